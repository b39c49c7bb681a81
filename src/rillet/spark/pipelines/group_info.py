"""Groups as servers report them: XINFO GROUPS, XINFO CONSUMERS, and XPENDING in pages.

    for page in pending_pages(servers, b"events", b"billing"):
        for one in page: one.id, one.consumer, one.delivered, one.deliveries

A request for a page has TIME before and after it. XPENDING returns the time since an entry's delivery, by a clock that
the server reads between the two. If both return the same millisecond, the time of delivery is exact. If not, the
request is repeated, a few times; after that the time may be a millisecond late. Memory and replies are bounded by the
page, whatever is pending. XINFO STREAM FULL is not used, because its reply has no pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options
from rillet.spark.read import stream_info
from rillet.spark.read.stream_info import pairs_to_dict, stream_error
from rillet.types.stream.id import MAX, StreamID

PAGE = 1000
_TRIES = 8


class XpendingRow(NamedTuple):
    """A pending entry; `delivered` in server ms. If XNACK released it, the consumer is empty and delivered is 0."""

    id: StreamID
    consumer: bytes
    delivered: int
    deliveries: int


def streams_of(servers: Servers, options: Options) -> list[bytes]:
    """Return the keys that the options name, or those that the pattern matches."""
    keys = options.keys()
    return servers.scan(options.stream_pattern or "*") if keys is None else [key.encode() for key in keys]


def xinfo_stream(servers: Servers, key: bytes) -> dict[str, Any] | None:
    """Return the reply of XINFO STREAM; None without the key."""
    (reply,) = stream_info.xinfo_streams(servers, [key])
    return reply


def xinfo_groups(servers: Servers, key: bytes) -> list[dict[str, Any]]:
    """Return the reply of XINFO GROUPS, a dictionary for each group; empty without the key."""
    (reply,) = stream_info.xinfo_groups(servers, [key])
    return reply or []


def xinfo_consumers(servers: Servers, key: bytes, group: bytes) -> list[dict[str, Any]]:
    """Return the reply of XINFO CONSUMERS, a dictionary for each consumer; empty without the group or the key."""
    (reply,) = servers.replies(key, [(b"XINFO", b"CONSUMERS", key, group)])
    if isinstance(reply, ReplyError):
        if reply.prefix != "NOGROUP" and "no such key" not in str(reply):
            raise stream_error(servers, key, "XINFO", str(reply))
        return []
    return [pairs_to_dict(one) for one in reply]


def after(identifier: StreamID) -> bytes | None:
    """Return the next larger ID as text; None after the largest ID."""
    if identifier.seq < MAX:
        return b"%d-%d" % (identifier.ms, identifier.seq + 1)
    return b"%d-0" % (identifier.ms + 1) if identifier.ms < MAX else None


def milliseconds(time: list[bytes]) -> int:
    """Return a reply of TIME in milliseconds."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


def pending_page(
    servers: Servers, key: bytes, group: bytes, start: bytes, end: bytes, count: int, idle: int = 0
) -> list[XpendingRow]:
    """Return the first `count` pending entries of a range, by ID; empty without the group."""
    request = (b"XPENDING", key, group, *((b"IDLE", b"%d" % idle) if idle else ()), start, end, b"%d" % count)
    entries: list[Any] = []
    now = 0
    for _ in range(_TRIES):
        before, entries, behind = servers.replies(key, [(b"TIME",), request, (b"TIME",)])
        if isinstance(entries, ReplyError):
            if entries.prefix == "NOGROUP":
                return []
            raise ConnectorError(f"rillet: {servers} refused XPENDING of {key.decode('utf-8', 'replace')!r}: {entries}")
        now = milliseconds(before)
        if now == milliseconds(behind):
            break
    # A released entry has age -1 and an empty consumer.
    return [XpendingRow(StreamID.parse(raw), who, now - age if who else 0, times) for raw, who, age, times in entries]


def pending_pages(
    servers: Servers,
    key: bytes,
    group: bytes,
    *,
    start: bytes = b"-",
    end: bytes = b"+",
    page: int = PAGE,
    idle: int = 0,
) -> Iterator[list[XpendingRow]]:
    """Yield the pending entries of a range in pages, by ID; `idle`: only those idle for at least so many ms."""
    at: bytes | None = start
    while at is not None:
        rows = pending_page(servers, key, group, at, end, page, idle)
        if rows:
            yield rows
        if len(rows) < page:
            return
        at = after(rows[-1].id)
