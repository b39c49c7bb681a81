"""The state of streams and groups on the servers: the only module that sends XINFO STREAM and XINFO GROUPS.

    stream_infos(servers, ["a", "b"])        {"a": StreamInfo(...), "b": None}    for planning, data loss, metrics
    xinfo_streams(servers, [b"a"])           [{"length": 3, ...}]                 the complete reply, for pipelines
    xinfo_groups(servers, [b"a", b"b"])      [[{"name": b"g", ...}], None]        a dictionary per group

These functions send the requests for all keys together, one pipeline per node. The result for a missing key is None.
For any other error reply (a key of another type, a missing permission) they raise ConnectorError: a caller that trims
or copies streams must not treat such a key as missing.

entry_counts.py states what these numbers prove about the entries after an ID. `StreamInfo` contains:

    length     number of entries
    first      ID of the first entry
    last       last-generated-id: the largest ID ever generated; it never decreases
    added      entries-added: how many entries were ever added; it never decreases        (since Redis 7.0)
    deleted    max-deleted-entry-id: the largest ID that XDEL removed; XTRIM does not change it     (since 7.0)
    top        ID of the last entry; below `last` if XDEL removed the entries at the end
    large      whether the first or the last entry is so large that reading sample entries costs too much
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rillet.client.errors import ConnectorError, refusal
from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.option_types import EARLIEST
from rillet.types.stream.id import MAX, StreamID

SEALED = StreamID(MAX, MAX)
LARGE_ENTRY = 16384  # the size of a large entry in bytes


@dataclass(frozen=True)
class StreamInfo:
    """The counters of a stream from XINFO STREAM; `added` and `deleted` are None before Redis 7.0."""

    length: int
    first: StreamID | None
    last: StreamID
    added: int | None
    deleted: StreamID | None
    large: bool = False
    top: StreamID | None = None

    @classmethod
    def from_reply(cls, reply: Mapping[str, Any]) -> StreamInfo:
        """Return the StreamInfo for one XINFO STREAM reply."""
        edges = [entry for entry in (reply.get("first-entry"), reply.get("last-entry")) if entry]
        deleted = reply.get("max-deleted-entry-id")
        top = StreamID.parse(reply["last-entry"][0]) if reply.get("last-entry") else None
        last = StreamID.parse(reply["last-generated-id"])
        if last == SEALED:  # a partition that accepts no entry any more (rillet.store.partitions.layout)
            last = top or EARLIEST
        return cls(
            reply["length"],
            StreamID.parse(reply["first-entry"][0]) if reply.get("first-entry") else None,
            last,
            reply.get("entries-added"),
            StreamID.parse(deleted) if deleted else None,
            any(sum(map(len, entry[1] or ())) > LARGE_ENTRY for entry in edges),
            top,
        )

    @property
    def removed(self) -> int | None:
        """The number of entries ever removed from the stream: entries-added minus length; None if unknown."""
        return None if self.added is None else self.added - self.length

    def all_after(self, offset: StreamID) -> bool:
        """Return whether every entry lies after an offset; True for an empty stream."""
        return self.first is None or self.first > offset


def stream_infos(servers: Servers, streams: Iterable[str]) -> dict[str, StreamInfo | None]:
    """Return the counters of each stream, None for a missing one; raise ConnectorError for a key of another type."""
    names = list(dict.fromkeys(streams))
    replies = xinfo_streams(servers, [name.encode() for name in names])
    return {
        name: None if reply is None else StreamInfo.from_reply(reply)
        for name, reply in zip(names, replies, strict=True)
    }


class StreamInfoCache:
    """`stream_infos` for a planner that asks again and again: a stream with an equal reply has the same StreamInfo.

    Comparing a reply costs a tenth of parsing it, and the caller recognizes an unchanged stream by the object.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, StreamInfo]] = {}

    def infos(self, servers: Servers, streams: Iterable[str]) -> dict[str, StreamInfo | None]:
        """Return the counters of each stream, as `stream_infos` does; forget all other streams."""
        names = list(dict.fromkeys(streams))
        replies = _xinfo(servers, b"STREAM", [name.encode() for name in names])
        known, self._known = self._known, {}
        for name, reply in zip(names, replies, strict=True):
            if reply is not None:
                self._keep(name, reply, known.get(name))
        return {name: self._known[name][1] if name in self._known else None for name in names}

    def changed(
        self, servers: Servers, before: Mapping[str, StreamInfo | None], changed: Iterable[str], needed: Container[str]
    ) -> dict[str, StreamInfo | None]:
        """Return the counters of the streams of an earlier result, and of those that have appeared since then.

        changed: the streams whose counters must be read. needed: the streams that may be None in the result; others are
        left out if they are missing, or keys of another type.
        """
        names = list(changed)
        replies = servers.each([(name.encode(), (b"XINFO", b"STREAM", name.encode())) for name in names])
        found = dict(before)
        for name, reply in zip(names, replies, strict=True):
            if isinstance(reply, ReplyError):
                if "no such key" not in str(reply) and (name in needed or "WRONGTYPE" not in str(reply)):
                    raise stream_error(servers, name.encode(), "XINFO", str(reply))
                self._known.pop(name, None)
                found[name] = None
                if name not in needed:
                    del found[name]
                continue
            found[name] = self._keep(name, reply, self._known.get(name))
        return found

    def _keep(self, name: str, reply: Any, before: tuple[Any, StreamInfo] | None) -> StreamInfo:
        if before is None or before[0] != reply:
            before = reply, StreamInfo.from_reply(pairs_to_dict(reply))
        self._known[name] = before
        return before[1]


def xinfo_streams(servers: Servers, keys: Sequence[bytes]) -> list[dict[str, Any] | None]:
    """Return the XINFO STREAM reply of each key as a dictionary; None for a missing key."""
    return [None if reply is None else pairs_to_dict(reply) for reply in _xinfo(servers, b"STREAM", keys)]


def xinfo_groups(servers: Servers, keys: Sequence[bytes]) -> list[list[dict[str, Any]] | None]:
    """Return the XINFO GROUPS reply of each key as dictionaries, one per group; None for a missing key."""
    replies = _xinfo(servers, b"GROUPS", keys)
    return [None if reply is None else [pairs_to_dict(group) for group in reply] for reply in replies]


def _xinfo(servers: Servers, subcommand: bytes, keys: Sequence[bytes]) -> list[Any]:
    replies = servers.each([(key, (b"XINFO", subcommand, key)) for key in keys])
    for index, (key, reply) in enumerate(zip(keys, replies, strict=True)):
        if isinstance(reply, ReplyError):
            if "no such key" not in str(reply):
                raise stream_error(servers, key, "XINFO", str(reply))
            replies[index] = None
    return replies


def pairs_to_dict(flat: Sequence[Any]) -> dict[str, Any]:
    """Return a reply that is a flat list of alternating names and values as a dictionary."""
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def stream_error(servers: Servers, key: bytes, command: str, line: str) -> ConnectorError:
    """Return the ConnectorError for a command on a stream to which a server replied with the error `line`."""
    where = servers.connection(key).address
    return ConnectorError(f"{refusal(where, command, line)} (stream {key.decode('utf-8', 'backslashreplace')!r})")
