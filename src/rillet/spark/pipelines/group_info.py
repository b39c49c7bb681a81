"""What servers tell of groups: XINFO GROUPS, XINFO CONSUMERS, and XPENDING a page at a time.

    for page in pending_pages(servers, b"events", b"billing"):
        for one in page: one.id, one.consumer, one.delivered, one.deliveries

A page is asked for with TIME before and after it. XPENDING tells how long ago an entry was delivered, by a clock read
between the two; where both show the same millisecond, the moment of delivery is exact. Where they do not, the page is
asked for again, a few times; after that it may be a millisecond late. Memory and replies are bounded by the page,
however much is pending, and nothing asks for XINFO STREAM FULL, whose reply has no pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options
from rillet.spark.read.stream_info import pairs_to_dict, stream_error, xinfo_groups, xinfo_streams
from rillet.types.stream.id import MAX, StreamID

PAGE = 1000
_TRIES = 8


class PendingRow(NamedTuple):
    """A pending entry; `delivered` in ms of the server's clock. Released by XNACK: consumer empty, delivered 0."""

    id: StreamID
    consumer: bytes
    delivered: int
    deliveries: int


def streams_of(servers: Servers, options: Options) -> list[bytes]:
    """Return the keys that the options name or match, in order."""
    keys = options.keys()
    return servers.scan(options.stream_pattern or "*") if keys is None else [key.encode() for key in keys]


def stream_facts(servers: Servers, key: bytes) -> dict[str, Any] | None:
    """Return what XINFO STREAM tells; None where there is no such key."""
    (told,) = xinfo_streams(servers, [key])
    return told


def groups_of(servers: Servers, key: bytes) -> list[dict[str, Any]]:
    """Return what XINFO GROUPS tells, a dictionary for each group; none where there is no such key."""
    (told,) = xinfo_groups(servers, [key])
    return told or []


def consumers_of(servers: Servers, key: bytes, group: bytes) -> list[dict[str, Any]]:
    """Return what XINFO CONSUMERS tells; none where the group, or its stream, has gone."""
    (reply,) = servers.replies(key, [(b"XINFO", b"CONSUMERS", key, group)])
    if isinstance(reply, ReplyError):
        if reply.prefix != "NOGROUP" and "no such key" not in str(reply):
            raise stream_error(servers, key, "XINFO", str(reply))
        return []
    return [pairs_to_dict(one) for one in reply]


def after(identifier: StreamID) -> bytes | None:
    """Return the text of the next larger ID; None after the largest."""
    if identifier.seq < MAX:
        return b"%d-%d" % (identifier.ms, identifier.seq + 1)
    return b"%d-0" % (identifier.ms + 1) if identifier.ms < MAX else None


def milliseconds(time: list[bytes]) -> int:
    """Return the milliseconds of a reply of TIME."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


def pending_page(
    servers: Servers, key: bytes, group: bytes, start: bytes, end: bytes, count: int, idle: int = 0
) -> list[PendingRow]:
    """Return the first `count` pending entries of a range, by ID; none where the group has gone."""
    asked = (b"XPENDING", key, group, *((b"IDLE", b"%d" % idle) if idle else ()), start, end, b"%d" % count)
    found: list[Any] = []
    now = 0
    for _ in range(_TRIES):
        before, found, behind = servers.replies(key, [(b"TIME",), asked, (b"TIME",)])
        if isinstance(found, ReplyError):
            if found.prefix == "NOGROUP":
                return []
            raise ConnectorError(f"rillet: {servers} refused XPENDING of {key.decode('utf-8', 'replace')!r}: {found}")
        now = milliseconds(before)
        if now == milliseconds(behind):
            break
    # What was released has an age of -1, and nobody's name.
    return [PendingRow(StreamID.parse(raw), who, now - age if who else 0, times) for raw, who, age, times in found]


def pending_pages(
    servers: Servers,
    key: bytes,
    group: bytes,
    *,
    start: bytes = b"-",
    end: bytes = b"+",
    page: int = PAGE,
    idle: int = 0,
) -> Iterator[list[PendingRow]]:
    """Yield the pending entries of a range in pages, by ID; `idle`: those that are for at least so many ms."""
    at: bytes | None = start
    while at is not None:
        found = pending_page(servers, key, group, at, end, page, idle)
        if found:
            yield found
        if len(found) < page:
            return
        at = after(found[-1].id)
