"""The inspector as a starlette application: the routes of the HTTP API, and the pages.

Every view of the page is a JSON request that curl can send, too (openapi.py describes them):

    curl -H "Authorization: Bearer $TOKEN" 'http://127.0.0.1:8321/api/groups?key=orders'

Names of keys, groups and consumers are in the notation of rillet.inspector.text. If the inspector shows several places,
the parameter `place` is the number of one of them; by default it is the first, 0. A request runs in one of the place's
threads. Errors are JSON: {"error": "..."}, with status 400 (the request), 403 (not allowed), 404 (no such entry),
409 (the data changed since the preview), 413 (over the limit of DUMP), 502 (the server cannot be reached).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from importlib.resources import files
from typing import Any, cast

from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from rillet.errors import CommandError, Corrupt, RilletError
from rillet.inspector import actions, blocks, console, groups, letters, search, streams, values
from rillet.inspector.export import FORMATS, export
from rillet.inspector.feed import FEEDS, Feeds, Tail
from rillet.inspector.filters import parse_filters
from rillet.inspector.openapi import describe
from rillet.inspector.place import InspectedPlace, ReadOnlyPlace
from rillet.inspector.sampling import Sampler
from rillet.inspector.search import search_keys
from rillet.inspector.security import RequestGuard
from rillet.inspector.text import from_text, to_text
from rillet.store.store import Store
from rillet.types.stream.id import StreamID

STATIC = files("rillet.inspector") / "static"
_REFUSALS: tuple[tuple[type[Exception], int], ...] = (
    (ReadOnlyPlace, 403), (console.Refused, 403), (actions.NotConfirmed, 409), (blocks.TooLarge, 413), (Corrupt, 422),
    (KeyError, 404), (ValueError, 400), (OverflowError, 400), (CommandError, 400), (RilletError, 502), (OSError, 502),
)  # fmt: skip


class Api:
    """The handlers of the API over one of the places of an inspector."""

    def __init__(self, place: InspectedPlace, names: Sequence[str] = ()) -> None:
        self.place = place
        self.names = list(names)  # of all places
        self.sampler = Sampler(place)
        self.feeds = Feeds(place, self.sampler)
        self._commands: list[dict[str, Any]] | None = None

    # -- reads ----------------------------------------------------------------------------------------

    async def about(self, request: Request) -> Response:
        """The place, and the limits."""
        return _json({**self.place.info(), "budget": self.place.budget.stats(), "places": self.names})

    async def overview(self, request: Request) -> Response:
        """Keys by type and size, memory, slow log, clients, streams."""
        with self.sampler.watch():
            if not self.sampler.has_streams():
                await _in_thread(lambda: self.sampler.wait_for_streams(2.0))
            return _json(self.sampler.snapshot())

    async def streams(self, request: Request) -> Response:
        """The names of the streams, in steps of SCAN; for completion."""
        pattern = _text(request, "match", "*")
        found: list[str] = []
        async for line in iterate_in_threadpool(search_keys(self.place, pattern, "stream")):
            if "found" in line:
                found.append(line["found"]["key"])
        return _json({"streams": sorted(set(found))})

    async def stream(self, request: Request) -> Response:
        """Length, edges, counters, memory and groups of a stream."""
        key = _text(request, "key")
        return _json(await self.place.ask(lambda store: streams.stream_info(store, key)))

    async def entries(self, request: Request) -> Response:
        """A page of entries."""
        key, filters = _text(request, "key"), parse_filters(request.query_params.getlist("where"))
        start, end = _position(request, "start", "-"), _position(request, "end", "+")
        count = _number(request, "count", streams.PAGE)
        reverse = request.query_params.get("reverse", "") in ("1", "true")
        return _json(await self.place.ask(lambda store: streams.entries_page(
            store, key, start=start, end=end, count=count, reverse=reverse, filters=filters)))  # fmt: skip

    async def entry(self, request: Request) -> Response:
        """One entry with its bytes and JSON trees."""
        key, id = _text(request, "key"), str(StreamID.parse(request.query_params["id"]))
        found = await self.place.ask(lambda store: streams.whole_entry(store, key, id))
        if found is None:
            raise KeyError(f"the stream has no entry {id}")
        return _json(found)

    async def timeline(self, request: Request) -> Response:
        """Entries by time, with holes and trims."""
        key, buckets = _text(request, "key"), _number(request, "buckets", 120)
        start, end = (_number(request, name, -1) for name in ("start", "end"))
        return _json(await self.place.ask(lambda store: streams.timeline_json(
            store, key, buckets, None if start < 0 else start, None if end < 0 else end)))  # fmt: skip

    async def rank(self, request: Request) -> Response:
        """How many entries are at or before an ID (rillet only)."""
        key, id = _text(request, "key"), request.query_params["id"]
        return _json({"rank": await self.place.ask(lambda store: streams.rank_of(store, key, id))})

    async def groups(self, request: Request) -> Response:
        """Groups of a stream: lag, consumers, ages of pending entries."""
        key = _text(request, "key")
        return _json(await self.place.ask(lambda store: groups.groups_of_stream(store, key)))

    async def pending(self, request: Request) -> Response:
        """Pending entries of a group, each with its entry."""
        key, group = _text(request, "key"), _text(request, "group")
        consumer = _optional(request, "consumer")
        idle, count = _number(request, "idle", 0), _number(request, "count", groups.PAGE)
        start = _position(request, "start", "-")
        return _json(await self.place.ask(lambda store: groups.pending_page(
            store, key, group, consumer=consumer, idle=idle, start=start, count=count)))  # fmt: skip

    async def letter_streams(self, request: Request) -> Response:
        """The streams of dead letters."""
        with self.sampler.watch():
            if not self.sampler.has_streams():
                await _in_thread(lambda: self.sampler.wait_for_streams(5.0))
            known = self.sampler.snapshot()
        names = [from_text(one["name"]) for one in known["streams"]]
        found = await self.place.ask(lambda store: letters.letter_streams(store, names))
        return _json({"streams": found, "complete": known["find"]["complete"]})

    async def letter_counts(self, request: Request) -> Response:
        """The dead letters of a stream by origin and reason."""
        key = _text(request, "key")
        return _json(await self.place.ask(lambda store: letters.letter_counts(store, key)))

    async def letters(self, request: Request) -> Response:
        """A page of dead letters of an origin, for a reason; the newest first."""
        key, end, count = _text(request, "key"), _position(request, "end", "+"), _number(request, "count", streams.PAGE)
        chosen = [letters.LetterFilter(*(_optional(request, name) for name in ("stream", "group", "reason")))]
        return _json(await self.place.ask(lambda store: streams.entries_page(
            store, key, start="-", end=end, count=count, reverse=True, filters=chosen)))  # fmt: skip

    async def value(self, request: Request) -> Response:
        """A page of the elements of a hash, a set, a sorted set or a list, or a string."""
        key, match = _text(request, "key"), _text(request, "match", "")
        start, count = request.query_params.get("start", ""), _number(request, "count", values.PAGE)
        reverse = request.query_params.get("reverse", "") in ("1", "true")
        return _json(await self.place.ask(lambda store: values.value_page(
            store, key, start=start, count=count, match=match, reverse=reverse)))  # fmt: skip

    async def element(self, request: Request) -> Response:
        """One element of a key with its bytes and JSON tree."""
        key, at = _text(request, "key"), _text(request, "element")
        return _json(await self.place.ask(lambda store: values.element(store, key, at)))

    async def bytes(self, request: Request) -> Response:
        """The blocks of a key, one as spans, and the rax of a stream."""
        key, at = _text(request, "key"), request.query_params.get("at", "")
        at = str(StreamID.parse(at)) if at else ""
        block = _number(request, "block", 0)
        return _json(
            await self.place.ask(lambda store: blocks.bytes_of(self.place, store, key, at=at, block=block))
        )

    async def append(self, request: Request) -> Response:
        """The steps that added an entry to its node, with the bytes after each."""
        key, id = _text(request, "key"), str(StreamID.parse(request.query_params["id"]))
        return _json(await self.place.ask(lambda store: blocks.append_of(self.place, store, key, id)))

    async def commands(self, request: Request) -> Response:
        """The command table, for completion and help."""
        if self._commands is None:
            self._commands = await self.place.ask(console.command_table)
        return _json({"commands": self._commands})

    async def feed(self, request: Request) -> Response:
        """The live updates of a page (SSE)."""
        if self.feeds.open >= FEEDS:
            raise console.Refused(f"more than {FEEDS} pages are open")
        key = _optional(request, "stream")
        tail = None
        if key is not None and request.query_params.get("tail", "") in ("1", "true"):
            # A browser that reconnects sends no position of ours: the tail begins at the present end again.
            after = _position(request, "after", "$")
            tail = Tail(key, after, parse_filters(request.query_params.getlist("where")))
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self.feeds.events(tail, key), media_type="text/event-stream", headers=headers)

    async def export(self, request: Request) -> Response:
        """A range of entries as CSV, JSON lines or Parquet."""
        key, form = _text(request, "key"), request.query_params.get("format", "jsonl")
        filters = parse_filters(request.query_params.getlist("where"))
        start, end = _position(request, "start", "-"), _position(request, "end", "+")
        parts = await _in_thread(lambda: export(self.place, key, form, start, end, filters))
        name = "".join(one if one.isascii() and (one.isalnum() or one in "-_.") else "_" for one in to_text(key))
        headers = {"content-disposition": f'attachment; filename="{name[:100] or "stream"}.{form}"',
                   "cache-control": "no-store"}  # fmt: skip
        return StreamingResponse(iterate_in_threadpool(parts), media_type=FORMATS[form], headers=headers)

    async def search_keys(self, request: Request) -> Response:
        """Keys by pattern and type, as lines of JSON while they are found."""
        return _lines(search_keys(self.place, _text(request, "match", "*"), request.query_params.get("type") or None))

    async def search_entries(self, request: Request) -> Response:
        """Entries by field over a range, as lines of JSON while they are found."""
        key, filters = _text(request, "key"), parse_filters(request.query_params.getlist("where"))
        start, end = _position(request, "start", "-"), _position(request, "end", "+")
        return _lines(search.search_entries(self.place, key, filters, start, end))

    async def openapi(self, request: Request) -> Response:
        """This API as OpenAPI."""
        return _json(describe())

    # -- console and actions --------------------------------------------------------------------------

    async def console(self, request: Request) -> Response:
        """Run a command: a read, or a confirmed write."""
        body = await _body(request)
        line = str(body.get("line", ""))
        if body.get("explain"):
            def explain(store: Store) -> dict[str, Any]:
                argv = console.split_words(line)
                return {"writes": console.check(self.place, store, argv), "command": console.join_words(argv),
                        "dangerous": console.is_dangerous(store, argv)}  # fmt: skip

            return _json(await self.place.ask(explain))
        if "confirm" in body:
            confirm = str(body["confirm"])
            return _json(await self.place.ask(lambda store: console.run_confirmed(self.place, store, line, confirm)))
        return _json(await self.place.ask(lambda store: console.run_line(self.place, store, line)))

    async def preview(self, request: Request) -> Response:
        """The commands of an action; nothing is written."""
        body = await _body(request)
        return _json({
            **actions.preview(await self.place.ask(lambda store: actions.plan(self.place, store, body))),
            "write": self.place.write,
        })  # fmt: skip

    async def act(self, request: Request) -> Response:
        """Run an action whose commands were confirmed."""
        body = await _body(request)
        self.place.allow_write()
        return _json(await self.place.ask(lambda store: actions.perform(self.place, store, body)))


Handler = Callable[[Api, Request], Awaitable[Response]]
_READS: dict[str, Handler] = {
    "place": Api.about, "overview": Api.overview, "streams": Api.streams, "stream": Api.stream,
    "entries": Api.entries, "entry": Api.entry, "timeline": Api.timeline, "rank": Api.rank,
    "groups": Api.groups, "pending": Api.pending, "letters": Api.letters, "letters/streams": Api.letter_streams,
    "letters/counts": Api.letter_counts, "value": Api.value, "element": Api.element, "bytes": Api.bytes,
    "append": Api.append, "commands": Api.commands, "feed": Api.feed, "export": Api.export,
    "search/keys": Api.search_keys, "search/entries": Api.search_entries, "openapi.json": Api.openapi,
}  # fmt: skip
_ACTS: dict[str, Handler] = {"console": Api.console, "preview": Api.preview, "act": Api.act}


def routes(apis: Sequence[Api]) -> list[Route]:
    """Return the routes of the API over places."""
    return [
        *(Route(f"/api/{name}", _guarded(apis, handler), methods=["GET"]) for name, handler in _READS.items()),
        *(Route(f"/api/{name}", _guarded(apis, handler), methods=["POST"]) for name, handler in _ACTS.items()),
    ]


def make_app(apis: Sequence[Api], token: str, names: Iterable[str], port: int) -> Any:
    """Return the application behind its guard; `names` are the hosts under which it is reached."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        for api in apis:
            api.feeds.closing.set()
        for api in apis:
            await _in_thread(api.sampler.close)

    async def index(request: Request) -> Response:
        return FileResponse(str(STATIC / "index.html"), headers={"cache-control": "no-cache"})

    app = Starlette(
        routes=[Route("/", index), *routes(apis), Mount("/static", StaticFiles(directory=str(STATIC)))],
        lifespan=lifespan,
    )
    return RequestGuard(cast("Any", app), token, names, port)


def _guarded(apis: Sequence[Api], handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await handler(_chosen(apis, request), request)
        except Exception as error:
            for kind, status in _REFUSALS:
                if isinstance(error, kind):
                    return _json({"error": _message(error)}, status)
            raise

    answer.__doc__ = handler.__doc__
    return answer


def _chosen(apis: Sequence[Api], request: Request) -> Api:
    """Return the API over the place of a request."""
    number = _number(request, "place", 0)
    if not 0 <= number < len(apis):
        raise ValueError(f"place={number}: this inspector shows {len(apis)}, counted from 0")
    return apis[number]


def _message(error: Exception) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if isinstance(error, KeyError) and " " not in text:
        text = f"the parameter {text!r} is missing"
    return to_text(text.encode("utf-8", "surrogateescape"))[:2000]


def _json(data: Any, status: int = 200) -> Response:
    return JSONResponse(data, status, headers={"cache-control": "no-store"})


def _lines(items: Iterable[dict[str, Any]]) -> Response:
    async def lines() -> AsyncIterator[bytes]:
        try:
            async for item in iterate_in_threadpool(items):
                yield json.dumps(item).encode() + b"\n"
        except (RilletError, ValueError, OSError) as error:
            yield json.dumps({"error": _message(error)}).encode() + b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson", headers={"cache-control": "no-store"})


async def _in_thread(function: Callable[[], Any]) -> Any:
    return await run_in_threadpool(function)


async def _body(request: Request) -> dict[str, Any]:
    body = await request.json()
    if not isinstance(body, dict):
        raise ValueError("the body is not a JSON object")
    return body


def _text(request: Request, name: str, default: str | None = None) -> bytes:
    value = request.query_params[name] if default is None else request.query_params.get(name, default)
    return from_text(value)


def _optional(request: Request, name: str) -> bytes | None:
    """Return a name, which may be empty; None if the parameter is missing."""
    return _text(request, name) if name in request.query_params else None


def _number(request: Request, name: str, default: int) -> int:
    return int(request.query_params.get(name, "") or default)


def _position(request: Request, name: str, default: str) -> str:
    """Return a position: "-", "+", "$", an ID, "(ID", or milliseconds; ValueError for other text."""
    value = request.query_params.get(name, "") or default
    if value in ("-", "+", "$"):
        return value
    if not value.removeprefix("(").replace("-", "", 1).isdigit():
        raise ValueError(f"{name}={value!r} is not a position: use -, +, an ID such as 1700000000000-0, or (ID")
    return value
