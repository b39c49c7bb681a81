"""What servers tell of streams and their groups: the one place that asks XINFO STREAM, and XINFO GROUPS, and reads it.

    facts_of(servers, ["a", "b"])          {"a": Facts(...), "b": None}     planner, guard and progress: typed, by name
    streams_told(servers, [b"a"])          [{"length": 3, ...}]             pipelines: everything that is told, as it is
    groups_told(servers, [b"a", b"b"])     [[{"name": b"g", ...}], None]    a group's dictionary each

All keys are asked about at once, a pipeline for each node. A key that is missing is None. A refusal (a key of another
type, a user who may not) is a ConnectorError and never taken for "nothing there": who trims or copies would act on it.

`Facts` is what the planner's cost and the guard's proofs rest on:

    length                 entries there are
    first                  the ID of the first one
    last                   last-generated-id: the largest ID ever given; grows, whatever is removed
    added                  entries-added: how many were ever added; grows, whatever is removed     (Redis 7.0)
    deleted                max-deleted-entry-id: the largest ID that XDEL removed; XTRIM does not move it   (7.0)
    large                  whether looking at entries is not worth their transfer, as far as the first and the last tell
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rillet.client.errors import ConnectorError, refusal
from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.types.stream.id import StreamID

LARGE_ENTRY = 16384  # bytes


@dataclass(frozen=True)
class StreamInfo:
    """What XINFO STREAM tells of a stream; `added` and `deleted` are None before Redis 7.0."""

    length: int
    first: StreamID | None
    last: StreamID
    added: int | None
    deleted: StreamID | None
    large: bool = False

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> StreamInfo:
        """Read one stream of `streams_told`."""
        edges = [entry for entry in (told.get("first-entry"), told.get("last-entry")) if entry]
        deleted = told.get("max-deleted-entry-id")
        return cls(
            told["length"],
            StreamID.parse(told["first-entry"][0]) if told.get("first-entry") else None,
            StreamID.parse(told["last-generated-id"]),
            told.get("entries-added"),
            StreamID.parse(deleted) if deleted else None,
            any(sum(map(len, entry[1] or ())) > LARGE_ENTRY for entry in edges),
        )

    def behind(self, offset: StreamID) -> bool:
        """Return whether all entries lie after an offset, so that nothing of what it knew is left."""
        return self.first is None or self.first > offset


def facts_of(servers: Servers, streams: Iterable[str]) -> dict[str, StreamInfo | None]:
    """Return the facts of streams, None for one that is missing; a key of another type is a ConnectorError."""
    names = list(dict.fromkeys(streams))
    found = streams_told(servers, [name.encode() for name in names])
    return {name: None if told is None else StreamInfo.of(told) for name, told in zip(names, found, strict=True)}


def streams_told(servers: Servers, keys: Sequence[bytes]) -> list[dict[str, Any] | None]:
    """Return what XINFO STREAM tells of keys, by its names; None for one that is missing."""
    return [None if reply is None else named(reply) for reply in _told(servers, b"STREAM", keys)]


def groups_told(servers: Servers, keys: Sequence[bytes]) -> list[list[dict[str, Any]] | None]:
    """Return what XINFO GROUPS tells of the groups of keys, by its names; None for a key that is missing."""
    return [None if reply is None else [named(one) for one in reply] for reply in _told(servers, b"GROUPS", keys)]


def _told(servers: Servers, what: bytes, keys: Sequence[bytes]) -> list[Any]:
    replies = servers.each([(key, (b"XINFO", what, key)) for key in keys])
    for place, (key, reply) in enumerate(zip(keys, replies, strict=True)):
        if isinstance(reply, ReplyError):
            if "no such key" not in str(reply):
                raise refused(servers, key, "XINFO", str(reply))
            replies[place] = None
    return replies


def named(flat: Sequence[Any]) -> dict[str, Any]:
    """Return names and values in turn as a dictionary."""
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def refused(servers: Servers, key: bytes, command: str, line: str) -> ConnectorError:
    """Return the error about a stream for which a server refused a command."""
    where = servers.connection(key).address
    return ConnectorError(f"{refusal(where, command, line)} (stream {key.decode('utf-8', 'backslashreplace')!r})")
