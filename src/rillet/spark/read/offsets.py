"""Offsets: how far each stream has been read, and the JSON in which Spark's checkpoint keeps it.

An offset is the last ID that was read, so a range is open on the left: (after, last]. IDs only grow, and an
entry that arrives later, in the same millisecond too, has a larger ID than the last one of any earlier
snapshot: nothing is lost between two ranges that share an end.

    {"streams": {"events": "1526919030474-5", ...},     the last ID read, by stream
     "added":   {"events": 123},                         the stream's entries-added there, where it is known exactly
     "plan":    [[["events", "<after>", "<last>"], ...], ...],   the batch that ends here: its tasks, their ranges
     "initial": true,                                    only in the offset that a new query starts from
     "unread":  ["orders"],                              streams of which nothing was read yet, nor anything promised
     "deleted": {"events": "1526919030999-0"},           without "added": the largest ID beyond the offset that had
                                                         been deleted already when the batch was planned
     "from":    {"events": "<ID>"}}                      in the end of the first batch: where that one starts; and
                                                         of one that a group hands out again (delivering.py)

`plan` is what makes a batch repeatable: Spark writes the end of a batch down before it runs it, so a batch that is
run again, by another driver on another number of cores, has the same tasks with the same rows in the same order. A
sink may rely on that.

Spark does not write down where a query started before its first batch is committed: after a crash it asks
`initialOffset` anew, when "latest" has become another ID, and runs the batch that it had already planned. `from` (and
the plan) keep that batch the same.

`streams` is one JSON object of texts, so that it can be pasted into `startingOffsets`, where an ID without
parenthesis is read inclusively: the last entry is read once more then. Offsets of the first version of this source,
{"<stream>": "<ID>", ...}, are understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rillet.errors import RilletError
from rillet.types.stream.id import MAX, StreamID

Part = tuple[str, StreamID, StreamID]  # a stream and a range of it: the entries with after < ID <= last
Task = tuple[Part, ...]


class OffsetError(RilletError):
    """A checkpoint holds what this query cannot go on from."""


def number(identifier: StreamID) -> int:
    """Return the ID as one number of 128 bits."""
    return identifier.ms << 64 | identifier.seq


def identifier(value: int) -> StreamID:
    """Return the ID of a number of 128 bits."""
    return StreamID(value >> 64, value & MAX)


@dataclass(frozen=True)
class Offset:
    """How far the streams of a query have been read."""

    streams: dict[str, StreamID]
    added: dict[str, int] = field(default_factory=dict)
    plan: tuple[Task, ...] | None = None
    initial: bool = False
    start: dict[str, StreamID] | None = None  # "from"
    unread: frozenset[str] = frozenset()
    deleted: dict[str, StreamID] = field(default_factory=dict)

    @classmethod
    def parse(cls, told: Mapping[str, Any]) -> Offset:
        """Read what `json` wrote, or the first version; OffsetError where it is neither."""
        try:
            if not isinstance(told.get("streams"), Mapping):
                return cls._first_version(told)
            return cls(
                _ids(told["streams"]),
                {str(stream): int(count) for stream, count in told.get("added", {}).items()},
                None if "plan" not in told else tuple(tuple(map(_part, task)) for task in told["plan"]),
                bool(told.get("initial")),
                None if "from" not in told else _ids(told["from"]),
                frozenset(map(str, told.get("unread", ()))),
                _ids(told.get("deleted", {})),
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise OffsetError(f"rillet: the checkpoint holds no offset of this source: {error}") from None

    @classmethod
    def _first_version(cls, told: Mapping[str, Any]) -> Offset:
        streams = _ids({name: text for name, text in told.items() if name not in ("initial", "from")})
        if not streams:
            raise ValueError("no stream is in it")
        start = None if "from" not in told else dict.fromkeys(streams, StreamID.parse(str(told["from"])))
        return cls(streams, initial=bool(told.get("initial")), start=start)

    def json(self) -> dict[str, Any]:
        """Return what Spark keeps; equal offsets are equal texts."""
        told: dict[str, Any] = {"streams": _texts(self.streams)}
        if self.added:
            told["added"] = {stream: self.added[stream] for stream in sorted(self.added)}
        if self.plan is not None:
            told["plan"] = [[[stream, str(after), str(last)] for stream, after, last in task] for task in self.plan]
        if self.initial:
            told["initial"] = True
        if self.unread:
            told["unread"] = sorted(self.unread)
        if self.deleted:
            told["deleted"] = _texts(self.deleted)
        if self.start is not None:
            told["from"] = _texts(self.start)
        return told


def _ids(told: Mapping[str, Any]) -> dict[str, StreamID]:
    return {str(stream): StreamID.parse(str(text)) for stream, text in told.items()}


def _texts(streams: Mapping[str, StreamID]) -> dict[str, str]:
    return {stream: str(streams[stream]) for stream in sorted(streams)}


def _part(told: Any) -> Part:
    stream, after, last = told
    return str(stream), StreamID.parse(str(after)), StreamID.parse(str(last))
