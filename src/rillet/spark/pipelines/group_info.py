"""Reads the state of groups from servers: XINFO GROUPS, XINFO CONSUMERS, and XPENDING page by page.

    for page in pending_pages(servers, b"events", b"billing"):
        for one in page: one.id, one.consumer, one.delivered, one.deliveries

XPENDING returns the time since an entry's delivery, so computing the time of delivery requires the server's clock. Each
XPENDING is sent between two TIME commands. If both TIME replies have the same millisecond, the time of delivery is
exact. If not, XPENDING is repeated a few times; after that the time may be a millisecond late. Pages bound the
memory, even if millions of entries are pending. XINFO STREAM FULL is not used, because its reply has no pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rillet.client.pages import reply_pages, successor
from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options, parse
from rillet.spark.read import stream_info
from rillet.spark.read.stream_info import pairs_to_dict, stream_error
from rillet.spark.server_address import require_store
from rillet.types.stream.id import StreamID

PAGE = 1000
STREAM_OPTIONS = {"stream", "streams", "streampattern"}  # the options that select streams, in lower case
_TRIES = 8


class XpendingRow(NamedTuple):
    """A pending entry; `delivered` is in ms of the server's clock. After XNACK, `consumer` is empty, `delivered` 0."""

    id: StreamID
    consumer: bytes
    delivered: int
    deliveries: int


def shown(raw: bytes) -> str:
    """Return a key, name or ID as text; bytes that are not UTF-8 are escaped."""
    return raw.decode("utf-8", "backslashreplace")


def or_all_streams(given: Mapping[str, str]) -> dict[str, str]:
    """Return a source's options; if they name no stream, add the option that selects all streams."""
    named = STREAM_OPTIONS & {name.lower() for name in given}
    return dict(given) if named else {**given, "streamPattern": "*"}


def checked_options(given: Mapping[str, str]) -> Options:
    """Parse a source's options, by default for all streams; raise an error if they name a store that does not exist."""
    options = parse(or_all_streams(given))
    require_store(options.path)
    return options


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
    following = successor(identifier)
    return None if following == identifier else b"%d-%d" % following


def milliseconds(time: list[bytes]) -> int:
    """Return the time in a reply to TIME, in milliseconds since 1970."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


def pending_pages(
    servers: Servers, key: bytes, group: bytes, *, start: bytes = b"-", end: bytes = b"+", page: int = PAGE,
    idle: int = 0,
) -> Iterator[list[XpendingRow]]:  # fmt: skip
    """Yield pages of a group's pending entries from `start` to `end`, sorted by ID; none if the group does not exist.

    idle: the minimum idle time in milliseconds.
    """
    words = (b"XPENDING", key, group, *((b"IDLE", b"%d" % idle) if idle else ()))

    def command(at: bytes) -> tuple[bytes, ...]:
        return (*words, at, end, b"%d" % page)

    def send(request: list[bytes]) -> list[XpendingRow]:
        entries: list[Any] = []
        now = 0
        for _ in range(_TRIES):
            before, entries, behind = servers.replies(key, [(b"TIME",), request, (b"TIME",)])
            if isinstance(entries, ReplyError):
                if entries.prefix == "NOGROUP":
                    return []
                raise stream_error(servers, key, "XPENDING", str(entries))
            now = milliseconds(before)
            if now == milliseconds(behind):
                break
        # An entry that XNACK released has the age -1 and an empty consumer name.
        return [XpendingRow(StreamID.parse(raw), who, now - age if who else 0, n) for raw, who, age, n in entries]

    return reply_pages(send, command, start, page, lambda last: after(last.id))
