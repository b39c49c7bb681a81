"""Reads the state of groups from servers: XINFO GROUPS, XINFO CONSUMERS, and XPENDING page by page.

    for page in pending_pages(servers, b"events", b"billing"):
        for one in page: one.id, one.consumer, one.delivered, one.deliveries

XPENDING returns the time since an entry's delivery, so the time of delivery depends on the server's clock. Each
XPENDING is sent between two TIME commands. If both TIME replies have the same millisecond, the time of delivery is
exact. If not, the request is repeated a few times; after that the time may be a millisecond late. A page limits the
memory and the size of a reply, even if millions of entries are pending. XINFO STREAM FULL is not used, because its
reply has no pages.
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
    """A pending entry; `delivered` is in ms of the server's clock. After XNACK, `consumer` is empty, `delivered` 0."""

    id: StreamID
    consumer: bytes
    delivered: int
    deliveries: int


def streams_of(servers: Servers, options: Options) -> list[bytes]:
    """Return the keys of the streams that the options list or that match the option's pattern."""
    keys = options.keys()
    return servers.scan(options.stream_pattern or "*") if keys is None else [key.encode() for key in keys]


def xinfo_stream(servers: Servers, key: bytes) -> dict[str, Any] | None:
    """Return the reply to XINFO STREAM as a dictionary; None if the key does not exist."""
    (reply,) = stream_info.xinfo_streams(servers, [key])
    return reply


def xinfo_groups(servers: Servers, key: bytes) -> list[dict[str, Any]]:
    """Return the reply to XINFO GROUPS, a dictionary for each group; empty if the key does not exist."""
    (reply,) = stream_info.xinfo_groups(servers, [key])
    return reply or []


def xinfo_consumers(servers: Servers, key: bytes, group: bytes) -> list[dict[str, Any]]:
    """Return the reply to XINFO CONSUMERS, a dictionary for each consumer; empty if the group or key does not exist."""
    (reply,) = servers.replies(key, [(b"XINFO", b"CONSUMERS", key, group)])
    if isinstance(reply, ReplyError):
        if reply.prefix != "NOGROUP" and "no such key" not in str(reply):
            raise stream_error(servers, key, "XINFO", str(reply))
        return []
    return [pairs_to_dict(one) for one in reply]


def after(identifier: StreamID) -> bytes | None:
    """Return the next larger stream ID as text; None for the largest possible ID."""
    if identifier.seq < MAX:
        return b"%d-%d" % (identifier.ms, identifier.seq + 1)
    return b"%d-0" % (identifier.ms + 1) if identifier.ms < MAX else None


def milliseconds(time: list[bytes]) -> int:
    """Return the time in a reply to TIME, in milliseconds since 1970."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


def pending_page(
    servers: Servers, key: bytes, group: bytes, start: bytes, end: bytes, count: int, idle: int = 0
) -> list[XpendingRow]:
    """Return the first `count` pending entries of an ID range, sorted by ID; empty if the group does not exist."""
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
    # An entry that XNACK released has the age -1 and an empty consumer name.
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
    """Yield pages of the pending entries of an ID range, sorted by ID; `idle`: the minimum idle time in ms."""
    at: bytes | None = start
    while at is not None:
        rows = pending_page(servers, key, group, at, end, page, idle)
        if rows:
            yield rows
        if len(rows) < page:
            return
        at = after(rows[-1].id)
