"""The one event stream of a page (SSE): overview figures as they change, and the new entries of a stream.

    event: overview   the figures of the sampler, once a second at most; more often while streams are searched for
    event: entries    {"stream": ..., "entries": [...], "skipped": true if the producer was faster than a reader}
    event: problem    the place cannot be read at the moment; the stream goes on

A page opens one connection and reopens it for another stream. The tail waits in XREAD BLOCK, so it costs the server
nothing while nothing is added; a producer that adds faster than RATE entries per second is shown in samples.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from rillet.errors import CommandError, RilletError
from rillet.inspector.filters import FieldFilter, matches
from rillet.inspector.place import InspectedPlace
from rillet.inspector.sampling import Sampler
from rillet.inspector.streams import entry_json
from rillet.inspector.text import to_text
from rillet.store.arguments.encoding import parse_id
from rillet.store.entry import stream_part
from rillet.store.store import Store

FEEDS = 16
"""The most event streams at a time."""
_BURST = 200  # entries of an event
_TAIL = 100  # entries that are shown after a gap
_PERIOD = 0.4  # seconds between two events of entries
_FIRST = 0.25  # seconds between two events of the overview while the streams are searched for
_BLOCK = b"1000"
_ALIVE = 15.0


class Tail:
    """The position of a live tail, and the entries after it."""

    def __init__(self, key: bytes, after: str, filters: list[FieldFilter]) -> None:
        self.key = key
        self.filters = filters
        self._after = after.encode()

    def next(self, store: Store, waits: bool) -> dict[str, Any] | None:
        """Return the next event, or None if nothing was added within a second."""
        if self._after == b"$":
            last = store.run([b"XREVRANGE", self.key, b"+", b"-", b"COUNT", b"1"])
            self._after = last[0][0] if last else b"0-0"
        block = [b"BLOCK", _BLOCK] if waits else []
        argv = [b"XREAD", b"COUNT", b"%d" % _BURST, *block, b"STREAMS", self.key, self._after]
        rows = stream_part(store.run(argv))
        if not rows:
            return None
        skipped = False
        self._after = rows[-1][0]
        if len(rows) == _BURST:
            newest = store.run([b"XREVRANGE", self.key, b"+", b"(" + self._after, b"COUNT", b"%d" % _TAIL])
            if newest:
                skipped = len(newest) == _TAIL
                rows = [*([] if skipped else rows), *reversed(newest)]
                self._after = newest[0][0]
        found = [entry_json(raw_id, flat) for raw_id, flat in rows if matches(self.filters, flat)]
        return {"stream": to_text(self.key), "entries": found, "skipped": skipped,
                "last": str(parse_id(self._after))}  # fmt: skip


class Feeds:
    """The event streams of all pages."""

    def __init__(self, place: InspectedPlace, sampler: Sampler) -> None:
        self._place, self._sampler = place, sampler
        self.open = 0
        self.closing = asyncio.Event()

    async def events(self, tail: Tail | None, focus: bytes | None) -> AsyncIterator[bytes]:
        """Yield the events of a page until it goes away."""
        queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=8)
        tasks = [asyncio.create_task(self._overviews(queue, focus))]
        if tail is not None:
            tasks.append(asyncio.create_task(self._entries(queue, tail)))
        self.open += 1
        closing = asyncio.create_task(self.closing.wait())
        getting: asyncio.Task[bytes] | None = None
        try:
            yield b"retry: 2000\n\n"
            while not self.closing.is_set():
                getting = getting or asyncio.create_task(queue.get())
                await asyncio.wait({getting, closing}, timeout=_ALIVE, return_when=asyncio.FIRST_COMPLETED)
                if getting.done():
                    found, getting = getting.result(), None
                    yield found
                else:
                    yield b": alive\n\n"
        finally:
            self.open -= 1
            for task in (*tasks, closing, *([getting] if getting is not None else [])):
                task.cancel()

    async def _overviews(self, queue: asyncio.Queue[bytes], focus: bytes | None) -> None:
        version = -1
        with self._sampler.watch():
            while True:
                if focus is not None:
                    self._sampler.focus(focus)
                if version != self._sampler.version:
                    version = self._sampler.version
                    await queue.put(event("overview", self._sampler.snapshot()))
                await asyncio.sleep(_FIRST if not self._sampler.has_streams() else 1.0)

    async def _entries(self, queue: asyncio.Queue[bytes], tail: Tail) -> None:
        loop = asyncio.get_running_loop()
        # A thread of its own: it waits for a second at a time, and a store has a connection for each thread.
        while True:
            waits = not self._place.is_snapshot
            try:
                found = await loop.run_in_executor(None, self._work(tail, waits))
            except (RilletError, CommandError, OSError) as error:
                await queue.put(event("problem", {"error": f"{type(error).__name__}: {error}"}))
                await asyncio.sleep(2.0)
                continue
            if found is not None and (found["entries"] or found["skipped"]):
                await queue.put(event("entries", found))
            await asyncio.sleep(_PERIOD if waits else 1.0)

    def _work(self, tail: Tail, waits: bool) -> Callable[[], dict[str, Any] | None]:
        return lambda: self._place.call(lambda store: tail.next(store, waits))


def event(name: str, data: Any) -> bytes:
    """Return an event in the format of SSE."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=True)}\n\n".encode()
