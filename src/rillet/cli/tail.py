"""`rillet tail PATH|URL STREAM ...`: print the last entries of streams, then new ones as they are added, until ^C.

    2026-11-21T12:00:00.123Z orders 1795435200123-0 customer=42 total=9.5

PATH|URL is a directory or a url, as for `rillet stats`. If no process has the directory open, the entries in
its files are printed, and new ones after a process opened it. --json prints one line of JSON for each entry:
{"stream": ..., "id": ..., "time": ..., "fields": {...}}; a field that occurs twice has its last value.
--where type=order prints only entries whose field has this value; twice for the same field: one of the values.

Exit status: 0, also after ^C; 2 if the streams cannot be read, or one does not exist at the end of --no-follow.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from rillet.cli.output import guarded, moment, safe, until_interrupted
from rillet.cli.places import first_id, place_arguments, start_of, visited
from rillet.errors import StoreError
from rillet.store.arguments.conditions import Conditions
from rillet.store.arguments.encoding import decode
from rillet.store.arguments.positions import before
from rillet.store.backends.read_access import Visit
from rillet.store.entry import Entry
from rillet.store.store import Store
from rillet.types.stream.id import StreamID

_BLOCK = 1.0  # seconds of a waiting read; ^C ends it at once
_POLL = 0.5  # seconds between two looks at what cannot be waited for
_COUNT = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place_arguments(parser)
    parser.add_argument("streams", nargs="+", metavar="STREAM", help="the streams")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("-n", "--lines", type=int, default=10, metavar="N",
                       help="begin with the last N entries of each stream (default 10)")  # fmt: skip
    start.add_argument("--from", dest="start", type=start_of, metavar="ID|TIME",
                       help="begin at an ID, a time (2026-11-21T12:00, by default UTC), or an age (10m)")  # fmt: skip
    start.add_argument("--group", metavar="NAME", help="begin after the last entry that this group was delivered")
    parser.add_argument("--where", type=_condition, action="append", metavar="FIELD=VALUE",
                        help="only entries whose field has this value; may be repeated")  # fmt: skip
    parser.add_argument("--no-follow", action="store_true", help="end at the end of the streams")
    parser.add_argument("--json", action="store_true", help="print each entry as one line of JSON")


def _condition(text: str) -> tuple[str, str]:
    """Return a field and a value."""
    field, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIELD=VALUE")
    return field, value


def _where(options: argparse.Namespace) -> dict[str, list[str]] | None:
    """Return the values of each field that entries must have."""
    where: dict[str, list[str]] = {}
    for field, value in options.where or ():
        where.setdefault(field, []).append(value)
    return where or None


def run(options: argparse.Namespace) -> int:
    """Print entries until ^C; return the exit status."""
    if options.no_follow:
        return guarded(lambda: _tail(options))
    return guarded(lambda: until_interrupted(lambda: _tail(options)))


def _tail(options: argparse.Namespace) -> None:
    names = list(dict.fromkeys(options.streams))
    where = _where(options)
    conditions = None if where is None else Conditions(where)
    with visited(options) as visit:
        positions = _begin(visit.store(), names, options)
        while True:
            found = _next(visit, positions, options.no_follow)
            for name, entry in found:
                if conditions is None or conditions.match(entry.flat):
                    print(_line(name, entry, options.json))
                positions[name] = entry.id
            if found:
                print(end="", flush=True)
            elif options.no_follow:
                break
        _require(visit.store(), names, exist=True)


def _require(store: Store, names: list[str], *, exist: bool) -> None:
    """Raise StoreError if a key is not a stream, or does not exist: without --no-follow, it may be created later."""
    kinds = {name: store.type(name) for name in names}
    for name, kind in kinds.items():
        if kind not in (None, "stream"):
            raise StoreError(f"{name!r} has the type {kind}: it is not a stream")
    missing = [name for name, kind in kinds.items() if kind is None]
    if exist and missing:
        what = f"streams {', '.join(map(repr, missing))} do" if len(missing) > 1 else f"stream {missing[0]!r} does"
        raise StoreError(f"the {what} not exist: `rillet stats` lists the streams")


def _begin(store: Store, names: list[str], options: argparse.Namespace) -> dict[str, StreamID]:
    """Return the ID in each stream after which entries are printed."""
    _require(store, names, exist=options.group is not None)
    if options.group is not None:
        return {name: _position(store, name, options.group) for name in names}
    if options.start is not None:
        return dict.fromkeys(names, before(first_id(store, options.start)))
    positions = {}
    for name in names:
        stream = store.stream(name)
        last = stream.reverse(count=options.lines, where=_where(options)) if options.lines > 0 else []
        positions[name] = before(last[-1].id) if last else stream.last_id
    return positions


def _position(store: Store, name: str, group: str) -> StreamID:
    """Return the ID of the entry that a group was delivered last; StoreError if it does not exist."""
    try:
        return store.stream(name).group(group, create=False).info().last_delivered_id
    except KeyError:
        raise StoreError(f"stream {name!r} has no group {group!r}: `rillet groups` lists them") from None


def _next(visit: Visit, positions: dict[str, StreamID], at_once: bool) -> list[tuple[str, Entry[Any]]]:
    """Return the next entries, oldest first; none after a while without entries, or at once."""
    waits = not at_once and not visit.is_snapshot

    def read(store: Store) -> dict[str, list[Entry[Any]]]:
        nonlocal waits
        if waits and not visit.is_snapshot:
            try:
                return store.read(positions, count=_COUNT, block=_BLOCK)
            except ValueError:  # a cluster cannot wait for streams in different slots
                waits = False
        return store.read(positions, count=_COUNT)

    found = visit.ask(read)
    if not found and not waits and not at_once:
        time.sleep(_POLL)
    return sorted(((name, entry) for name, entries in found.items() for entry in entries), key=lambda one: one[1].id)


def _line(name: str, entry: Entry[Any], as_json: bool) -> str:
    if as_json:
        return json.dumps({"stream": name, "id": str(entry.id), "time": moment(entry.id) or None,
                           "fields": entry.fields})  # fmt: skip
    fields = (f"{_word(decode(field))}={_word(decode(value))}" for field, value in entry.pairs)
    return " ".join([*([moment(entry.id)] if moment(entry.id) else []), safe(name), str(entry.id), *fields])


def _word(text: str) -> str:
    """Return a field or a value; in quotes if its end would not be visible."""
    shown = safe(text)
    return (
        shown
        if shown and not any(one in shown for one in " =\"'")
        else f'"{shown.replace(chr(34), chr(92) + chr(34))}"'
    )
