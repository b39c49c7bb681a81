"""Pages of a stream's entries, one entry whole, and the facts about a stream.

A page has a bounded size in entries, in bytes and in entries examined: entries of 10 MB are read one at a time, and a
filter that matches rarely returns after EXAMINED entries, with the position from which to continue. A value in a page
is cut; `whole_entry` returns it longer, with its bytes and its JSON tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Protocol

from rillet.errors import CommandError
from rillet.inspector.json_tree import json_tree
from rillet.inspector.sampling import stream_row
from rillet.inspector.text import shown, to_text
from rillet.store.arguments.encoding import parse_id
from rillet.store.consuming.dead_letters import Origin, origin_of, own_fields
from rillet.store.display.timeline import Timeline, timeline
from rillet.store.stats import plain
from rillet.store.store import Store
from rillet.types.stream.id import StreamID

PAGE = 100
MOST_PAGE = 1000
EXAMINED = 5000
"""The most entries that a filtered page examines."""
_PAGE_BYTES = 4 << 20
_FIRST = 8  # entries of the first read of a page: until their size is known
_CELL = 200  # bytes of a value in a page
_FIELDS = 200  # fields of an entry in a page
_WHOLE = 64 << 10  # bytes of a value in `whole_entry`


class Filter(Protocol):
    """A condition on the alternating fields and values of an entry."""

    def matches(self, flat: list[bytes]) -> bool:
        """Return whether an entry matches."""


def entry_json(raw_id: bytes, flat: list[bytes] | None, most: int = _CELL) -> dict[str, Any]:
    """Return an entry for JSON: its ID, its time, and fields as [name, value, size, flags].

    flags: "c" if the text is cut, "j" if the value may be JSON. An entry that was deleted has `fields` None. A dead
    letter has `letter`: its origin, and how many of the fields are those of the entry itself.
    """
    id = parse_id(raw_id)
    found: dict[str, Any] = {"id": str(id), "ms": id.ms, "fields": None}
    if flat is None:
        return found
    found["fields"] = [_field(flat[at], flat[at + 1], most) for at in range(0, min(len(flat) - 1, 2 * _FIELDS), 2)]
    if len(flat) > 2 * _FIELDS:
        found["more"] = len(flat) // 2 - _FIELDS
    own = own_fields(flat)
    if len(own) < len(flat):
        found["letter"] = {**origin_json(origin_of(flat)), "own": min(len(own) // 2, _FIELDS)}
    return found


def origin_json(origin: Origin) -> dict[str, Any]:
    """Return the origin of a dead letter for JSON."""
    return {name: shown(value, _CELL)[0] if isinstance(value, bytes) else value
            for name, value in asdict(origin).items()}  # fmt: skip


def _field(name: bytes, value: bytes, most: int) -> list[Any]:
    text, cut = shown(value, most)
    flags = ("c" if cut else "") + ("j" if value[:1] in (b"{", b"[") else "")
    return [shown(name, most)[0], text, len(value), flags]


def entries_page(store: Store, key: bytes, *, start: str, end: str, count: int = PAGE, reverse: bool = False,
                 filters: Sequence[Filter] = ()) -> dict[str, Any]:  # fmt: skip
    """Return entries from start to end (from the end if `reverse`) that match, and where to continue. O(examined)

    next: the position (exclusive, "(1-5") of the next page; None at the end of the range.
    """
    count = max(1, min(count, MOST_PAGE))
    command = b"XREVRANGE" if reverse else b"XRANGE"
    low, high = start.encode(), end.encode()
    found: list[dict[str, Any]] = []
    examined = size = 0
    step = _FIRST
    position: str | None = None
    while True:
        first, last = (high, low) if reverse else (low, high)
        wanted = min(step, count - len(found)) if not filters else min(step, EXAMINED - examined)
        rows = store.run([command, key, first, last, b"COUNT", b"%d" % wanted])
        for raw_id, flat in rows:
            examined += 1
            size += sum(map(len, flat))
            if all(one.matches(flat) for one in filters):
                found.append(entry_json(raw_id, flat))
            position = "(" + raw_id.decode()
            if len(found) >= count:
                break
        if len(found) >= count or size >= _PAGE_BYTES or examined >= EXAMINED:
            break
        if len(rows) < wanted:
            position = None
            break
        if reverse:
            high = b"(" + rows[-1][0]
        else:
            low = b"(" + rows[-1][0]
        average = max(1, size // max(1, examined))
        step = max(1, min(step * 4, MOST_PAGE, (_PAGE_BYTES - size) // average))
    return {"entries": found, "next": position, "examined": examined}


def whole_entry(store: Store, key: bytes, id: str) -> dict[str, Any] | None:
    """Return one entry with long values, hex bytes and JSON trees; None if it does not exist."""
    rows = store.run([b"XRANGE", key, id.encode(), id.encode(), b"COUNT", b"1"])
    if not rows:
        return None
    raw_id, flat = rows[0]
    found = entry_json(raw_id, flat, _WHOLE)
    found["details"] = [
        {"hex": flat[at + 1][:64].hex(" "), "json": json_tree(flat[at + 1])}
        for at in range(0, min(len(flat) - 1, 2 * _FIELDS), 2)
    ]
    return found


def stream_info(store: Store, key: bytes) -> dict[str, Any]:
    """Return length, edges, counters, memory and groups of a stream; CommandError if there is none."""
    stats = store.stats(key, pending=1000)
    return {**stream_row(stats.streams[0]), "name": to_text(key), "server": stats.server, "time": stats.time}


def timeline_json(store: Store, key: bytes, buckets: int, start: int | None, end: int | None) -> dict[str, Any]:
    """Return the timeline of a stream for JSON."""
    found: Timeline = timeline(store.stream(key), max(1, min(buckets, 1000)), start, end)
    facts: dict[str, Any] = plain(found)
    facts["holes"] = [list(one) for one in found.holes]
    facts["first_id"] = None if found.first_id is None else str(found.first_id)
    return facts


def rank_of(store: Store, key: bytes, id: str) -> int | None:
    """Return how many entries are at or before an ID; None if the server cannot count them (RILLET.XRANK)."""
    try:
        return int(store.run([b"RILLET.XRANK", key, str(StreamID.parse(id)).encode()])[0])
    except (CommandError, ValueError):
        return None
