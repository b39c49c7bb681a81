"""Offsets: the last ID that was read of each stream, in the JSON that Spark's checkpoint stores.

An offset contains the last ID that was read, so ranges exclude their start: (after, last]. IDs only increase: an entry
that is added later, even in the same millisecond, has a larger ID than the stream's last ID before. So no entry falls
between two ranges that share a bound.

    {"streams": {"events": "1526919030474-5", ...},     the last ID read of each stream
     "added":   {"events": 123},                         entries-added less the entries after that ID, when the batch
                                                         was planned (entry_counts.py), if known exactly
     "between": {"events": [100, 140]},                  otherwise two bounds of that number, if known
     "removed": {"events": 7},                           entries-added less the length, when the batch was planned, if
                                                         the batch ends before the stream's last ID
     "plan":    [[["events", "<after>", "<last>"]]],     the ranges of each task of the batch that ends here
     "initial": true,                                    only in the offset at which a new query starts
     "unread":  ["orders"],                              streams of which no entry was planned or read yet
     "deleted": {"events": "1526919030999-0"},           the largest deleted ID when the batch was planned, if it is
                                                         after the offset
     "more":    ["events"],                              streams with entries after the batch, when it was planned
     "from":    {"events": "<ID>"}}                      the batch's start: only for the first batch, and for a
                                                         batch that a group delivers again

With more than PACKED streams, `packed` stands for `streams` and `added`: their names, IDs and counts as columns of
JSON, compressed by LZMA, in base64. 10,000 streams take 10 to 60 kB instead of 680, by how much their IDs differ.

`plan` makes a batch repeatable. Spark stores the end of a batch before it runs the batch. If another driver with
another number of cores repeats the batch, the tasks have the same rows in the same order. A sink may rely on this.

Spark stores the start of a query only when the first batch is committed. After an earlier crash, it calls
`initialOffset` again, when "latest" is a different ID, and then runs the batch that was already planned. `from` and
`plan` keep that batch the same.

`streams` is one JSON object of strings, so it can be pasted into the option `startingOffsets`. For that option, an ID
without a parenthesis includes the entry with this ID, so the last entry is read again. `parse` also accepts the format
of the first version of this source, {"<stream>": "<ID>", ...}.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rillet.errors import RilletError
from rillet.spark.read.entry_counts import CountInterval
from rillet.types.stream.id import MAX, StreamID

PACKED = 1000
_LZMA = "lzma:"
Part = tuple[str, StreamID, StreamID]  # (stream, after, last): its entries with after < ID <= last
Task = tuple[Part, ...]


class OffsetError(RilletError):
    """The offset in the checkpoint is malformed, or the query cannot continue from this offset."""


def number(identifier: StreamID) -> int:
    """Return a stream ID as a 128-bit number: milliseconds in the high 64 bits, sequence number in the low 64 bits."""
    return identifier.ms << 64 | identifier.seq


def identifier(value: int) -> StreamID:
    """Return the stream ID for a 128-bit number."""
    return StreamID(value >> 64, value & MAX)


@dataclass(frozen=True)
class Offset:
    """The last ID that a query has read of each stream, with the counters and the plan that belong to it."""

    streams: dict[str, StreamID]
    added: dict[str, int] = field(default_factory=dict)
    plan: tuple[Task, ...] | None = None
    initial: bool = False
    start: dict[str, StreamID] | None = None  # "from" in the JSON
    unread: frozenset[str] = frozenset()
    deleted: dict[str, StreamID] = field(default_factory=dict)
    between: dict[str, CountInterval] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    more: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Offset:
        """Parse an offset's JSON, also in the format of the first version; raise OffsetError if it is malformed."""
        try:
            if "packed" in value:
                value = {**value, **_unpacked(str(value["packed"]))}
            if not isinstance(value.get("streams"), Mapping):
                return cls._first_version(value)
            return cls(
                _ids(value["streams"]),
                {str(stream): int(count) for stream, count in value.get("added", {}).items()},
                None if "plan" not in value else tuple(tuple(map(_part, task)) for task in value["plan"]),
                bool(value.get("initial")),
                None if "from" not in value else _ids(value["from"]),
                frozenset(map(str, value.get("unread", ()))),
                _ids(value.get("deleted", {})),
                {str(stream): _interval(bounds) for stream, bounds in value.get("between", {}).items()},
                {str(stream): int(count) for stream, count in value.get("removed", {}).items()},
                frozenset(map(str, value.get("more", ()))),
            )
        except (ValueError, TypeError, AttributeError, zlib.error) as error:
            raise OffsetError(f"rillet: the checkpoint does not contain an offset of this source: {error}") from None

    @classmethod
    def _first_version(cls, value: Mapping[str, Any]) -> Offset:
        streams = _ids({name: text for name, text in value.items() if name not in ("initial", "from")})
        if not streams:
            raise ValueError("the offset names no stream")
        start = None if "from" not in value else dict.fromkeys(streams, StreamID.parse(str(value["from"])))
        return cls(streams, initial=bool(value.get("initial")), start=start)

    def json(self) -> dict[str, Any]:
        """Return the JSON value that Spark stores; equal offsets have equal JSON texts."""
        value: dict[str, Any] = {}
        if len(self.streams) > PACKED:
            value["packed"] = _packed(self.streams, self.added)
        else:
            value["streams"] = _texts(self.streams)
            if self.added:
                value["added"] = {stream: self.added[stream] for stream in sorted(self.added)}
        if self.between:
            value["between"] = {stream: list(self.between[stream]) for stream in sorted(self.between)}
        if self.removed:
            value["removed"] = {stream: self.removed[stream] for stream in sorted(self.removed)}
        if self.plan is not None:
            value["plan"] = [[[stream, str(after), str(last)] for stream, after, last in task] for task in self.plan]
        if self.initial:
            value["initial"] = True
        if self.unread:
            value["unread"] = sorted(self.unread)
        if self.deleted:
            value["deleted"] = _texts(self.deleted)
        if self.more:
            value["more"] = sorted(self.more)
        if self.start is not None:
            value["from"] = _texts(self.start)
        return value


def _packed(streams: Mapping[str, StreamID], added: Mapping[str, int]) -> str:
    """Return `streams` and `added` as one text; equal values give equal texts."""
    names = sorted(streams)
    ids = [streams[name] for name in names]
    first = min(one.ms for one in ids)
    times = [one.ms - first for one in ids]
    columns = [first, names, times, [one.seq for one in ids], [added.get(name) for name in names]]
    data = json.dumps(columns, separators=(",", ":")).encode()
    return _LZMA + b64encode(_lzma(data, False)).decode()


def _lzma(data: bytes, back: bool) -> bytes:
    """Compress data, or decompress it; Python may have been built without LZMA, which only such a query needs."""
    import lzma

    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1}]  # a higher one takes more time and hardly less space
    try:
        if back:
            return lzma.decompress(data, lzma.FORMAT_RAW, filters=filters)
        return lzma.compress(data, lzma.FORMAT_RAW, filters=filters)
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from None


def _unpacked(text: str) -> dict[str, Any]:
    if text.startswith(_LZMA):
        first, names, times, numbers, added = json.loads(_lzma(b64decode(text[len(_LZMA) :]), True))
        times = [first + time for time in times]
    else:  # of an early version
        names, times, numbers, added = json.loads(zlib.decompress(b64decode(text)))
    ids = [f"{ms}-{seq}" for ms, seq in zip(times, numbers, strict=True)]
    counts = {name: count for name, count in zip(names, added, strict=True) if count is not None}
    return {"streams": dict(zip(names, ids, strict=True)), "added": counts}


def _ids(value: Mapping[str, Any]) -> dict[str, StreamID]:
    return {str(stream): StreamID.parse(str(text)) for stream, text in value.items()}


def _interval(value: Any) -> CountInterval:
    least, most = value
    return CountInterval(int(least), int(most))


def _texts(streams: Mapping[str, StreamID]) -> dict[str, str]:
    return {stream: str(streams[stream]) for stream in sorted(streams)}


def _part(value: Any) -> Part:
    stream, after, last = value
    return str(stream), StreamID.parse(str(after)), StreamID.parse(str(last))
