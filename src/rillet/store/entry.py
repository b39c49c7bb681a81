"""Entry, and the functions that turn replies about streams into entries and dicts."""

from __future__ import annotations

from typing import Any

from rillet.store.encoding import decode, parse_id
from rillet.types.stream.id import StreamID


class Entry:
    """An entry of a stream: its `id` and its fields in order. `entry["name"]` is the last value of a field.

    `fields` is a dict of text; `pairs` are the raw (field, value) bytes, for fields that occur twice or are not text.
    The ID and the texts are decoded on demand, because most readers use only a part of a batch.
    """

    __slots__ = ("raw_id", "flat", "_id")
    _id: StreamID

    def __init__(self, raw_id: bytes, flat: list[bytes]) -> None:
        self.raw_id = raw_id
        self.flat = flat

    @property
    def id(self) -> StreamID:
        """The entry's ID."""
        try:
            return self._id
        except AttributeError:
            self._id = parse_id(self.raw_id)
            return self._id

    @property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        """The fields as (field, value) bytes, in the order in which they were added."""
        return list(zip(self.flat[::2], self.flat[1::2], strict=True))

    @property
    def fields(self) -> dict[str, str]:
        """The fields as text; a field that occurs twice has its last value."""
        text = [word.decode("utf-8", "surrogateescape") for word in self.flat]
        return dict(zip(text[::2], text[1::2], strict=True))

    def __getitem__(self, field: str) -> str:
        return self.fields[field]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and (self.id, self.flat) == (other.id, other.flat)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.id)!r}, {self.fields!r})"


def milliseconds(block: float) -> bytes:
    """Return seconds as the argument of BLOCK, in milliseconds: at least 1, but 0 (no limit) stays 0."""
    return b"%d" % (max(1, round(block * 1000)) if block > 0 else round(block * 1000))


def entries_of(reply: Any) -> list[Entry]:
    """Return the entries of an XRANGE reply; an entry that was deleted while pending has no fields."""
    return [Entry(raw_id, flat or []) for raw_id, flat in reply or ()]


def stream_part(reply: Any) -> Any:
    """Return the entries of the one stream in an XREAD or XREADGROUP reply (RESP2: pairs, RESP3: a map)."""
    if not reply:
        return []
    return next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]


def named(reply: Any) -> dict[str, Any]:
    """Return a reply of alternating names and values, or a map, as a dict with text keys (XINFO); bytes become text."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {decode(field): _plain(decode(field), value) for field, value in pairs}


def _plain(field: str, value: Any) -> Any:
    if field in ("first-entry", "last-entry"):
        return None if value is None else Entry(value[0], value[1])
    if field == "entries":
        return entries_of(value)
    if field in ("groups", "consumers") and isinstance(value, list):
        return [named(one) for one in value]
    return decode(value) if isinstance(value, bytes) else value
