"""Reads metadata for the planner: the existing streams, and the distribution of their entries over the ID space.

Requests for all streams are sent together, one pipeline per node, so a thousand streams cost about as many round trips
as one stream.

    selected_streams    the keys that the options select; SCAN for a pattern
    probe               XRANGE COUNT n: returns the number of entries in the reply, and their first and last ID. The
                        decoder skips the entries without creating Python objects
    ranks, ids_after    RILLET.XRANK and RILLET.XAFTER: exact replies from a rillet server, in O(log n). On any other
                        server the first such command fails; these functions then always return None
    wait_for_entries    XREAD BLOCK, so that an idle query does not poll
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.pages import successor
from rillet.client.protocol import pack
from rillet.client.servers import IN_FLIGHT, Servers
from rillet.columns.resp_decoder import MORE, RangeDecoder, ReplyFailed
from rillet.columns.row_builder import RowBuilder
from rillet.protocol.reply_parser import ReplyError
from rillet.real_time import monotonic
from rillet.spark.options import Options
from rillet.spark.read.splits import Probe
from rillet.spark.read.stream_info import StreamInfo, stream_error
from rillet.types.stream.id import StreamID

IDLE_MS = 100
COUNT_PAGE = 10_000
MEASURED_STREAMS = 100

_WITHOUT_RANKS: weakref.WeakSet[Connection] = weakref.WeakSet()


def selected_streams(options: Options, servers: Servers) -> list[str]:
    """Return the streams to read: the keys that match the pattern, or the listed keys, including missing ones."""
    keys = options.keys()
    if keys is not None:
        return list(keys)
    if options.partitioned_stream is not None:
        from rillet.spark.read.partitioned import description, keys_of_all  # only these reads need the library

        return keys_of_all(description(options, servers))
    return [key.decode() for key in servers.scan(options.stream_pattern or "*")]


def key_count(servers: Servers) -> int:
    """Return the number of keys on the servers."""
    return sum(int(servers.ask(connection, b"DBSIZE")) for connection in servers.masters())


def mean_entry_size(servers: Servers, unread: Mapping[str, tuple[StreamInfo, float]]) -> float:
    """Return the mean size of unread entries in bytes of the server's memory, by MEMORY USAGE of some streams.

    unread: by stream, its counters, and its number of unread entries.
    """
    most = sorted(unread, key=lambda stream: -unread[stream][1])[:MEASURED_STREAMS]
    replies = servers.each([(stream.encode(), (b"MEMORY", b"USAGE", stream.encode())) for stream in most])
    size = entries = 0.0
    for stream, reply in zip(most, replies, strict=True):
        info, count = unread[stream]
        if isinstance(reply, ReplyError):
            raise stream_error(servers, stream.encode(), "MEMORY USAGE", str(reply))
        if reply and info.length:
            size += count * reply / info.length
            entries += count
    return max(size / entries, 1.0) if entries else 1.0


def missing_stream(servers: Servers, stream: str) -> ConnectorError:
    """Return the error to raise for a stream that does not exist."""
    return ConnectorError(f"rillet: there is no stream {stream!r} at {servers.connection(stream.encode()).address}")


def require_streams(options: Options, servers: Servers, infos: Mapping[str, StreamInfo | None]) -> None:
    """Raise ConnectorError if a listed stream is missing, or if all parts of a partitioned stream are missing."""
    absent = [stream for stream, info in infos.items() if info is None]
    if absent and options.keys() is not None and (options.partitioned is None or len(absent) == len(infos)):
        raise missing_stream(servers, absent[0])


# ---- probes -----------------------------------------------------------------------------------------------------


class ProbeRequest(NamedTuple):
    """A request for up to `entries` entries of a stream in (after, last]: the first or, if `backwards`, the last."""

    stream: str
    after: StreamID
    last: StreamID
    entries: int
    backwards: bool = False


def probe(servers: Servers, requests: Sequence[ProbeRequest]) -> list[Probe]:
    """Return, for each request, the number of entries in the reply and their first and last ID."""
    probes: list[Probe] = [Probe(0, request.after, request.after) for request in requests]
    for start in range(0, len(requests), IN_FLIGHT):  # bounds the replies that a server buffers for this client
        part = requests[start : start + IN_FLIGHT]
        try:
            _probe_nodes(servers, part, start, probes)
        except ReplyFailed:
            probes[start : start + IN_FLIGHT] = _probe_redirected(servers, part)
    return probes


def _probe_redirected(servers: Servers, requests: Sequence[ProbeRequest]) -> Iterator[Probe]:
    """Yield the results of requests while a cluster slot migrates: follow redirections, parse entries into objects."""
    commands = [(request.stream.encode(), _range_command(request)) for request in requests]
    for request, reply in zip(requests, servers.each(commands), strict=True):
        if isinstance(reply, ReplyError):
            raise stream_error(servers, request.stream.encode(), "XRANGE", str(reply))
        ids = [StreamID.parse(entry[0]) for entry in reply]
        yield Probe(len(ids), ids[0], ids[-1]) if ids else Probe(0, request.after, request.after)


def _probe_nodes(servers: Servers, requests: Sequence[ProbeRequest], start: int, probes: list[Probe]) -> None:
    """Store the requests' results in probes[start:]; raise ReplyFailed if a server replies with an error."""
    indexes: dict[bytes, list[int]] = {}
    for index, request in enumerate(requests):
        indexes.setdefault(request.stream.encode(), []).append(index)
    nodes = [
        (connection, [index for key in keys for index in indexes[key]])
        for connection, keys in servers.by_node(list(indexes))
    ]
    try:
        for connection, of_node in nodes:
            connection.send(b"".join([pack(*_range_command(requests[index])) for index in of_node]))
        for connection, of_node in nodes:
            decoder = _DECODERS.get(connection) or _DECODERS.setdefault(connection, _ProbeDecoder())
            for index in of_node:
                probes[start + index] = decoder.page(connection, requests[index])
    except BaseException:
        for connection, _ in nodes:  # the next request would receive the unread replies
            servers.forget(connection)
        raise


class _ProbeDecoder:
    """Skips the entries of replies to XRANGE; one object per connection, because allocating its buffer is expensive."""

    def __init__(self) -> None:
        self.rows = RowBuilder(b"")
        self.decoder = RangeDecoder(self.rows, 1 << 62, 1 << 62)

    def page(self, connection: Connection, request: ProbeRequest) -> Probe:
        """Skip the next reply to XRANGE; return its number of entries and its first and last ID."""
        decoder = self.decoder
        self.rows.clear()
        decoder.max_rows = 1
        while decoder.decode() == MORE:
            connection.receive(decoder)
        entries = decoder.entries
        if not entries:
            return Probe(0, request.after, request.after)
        first = StreamID(decoder.last_ms, decoder.last_seq)
        if entries == 1:
            return Probe(1, first, first)
        decoder.max_rows = 1 << 62
        while decoder.decode() == MORE:
            connection.receive(decoder)
        return Probe(entries, first, StreamID(decoder.last_ms, decoder.last_seq))


_DECODERS: weakref.WeakKeyDictionary[Connection, _ProbeDecoder] = weakref.WeakKeyDictionary()


def _range_command(request: ProbeRequest) -> tuple[bytes, ...]:
    """Return the XRANGE or XREVRANGE command for a request."""
    key, low, high = request.stream.encode(), id_text(successor(request.after)), id_text(request.last)
    if request.backwards:
        return b"XREVRANGE", key, high, low, b"COUNT", b"%d" % request.entries
    return b"XRANGE", key, low, high, b"COUNT", b"%d" % request.entries


def id_text(bound: StreamID) -> bytes:
    """Return a stream ID as a command argument."""
    return b"%d-%d" % bound


def count_ahead(servers: Servers, stream: str, after: StreamID, last: StreamID, entries: int, page: int) -> StreamID:
    """Return the ID of the n-th entry after `after` (n = `entries`), at most `last`.

    Redis has no command for this, so the entries are transferred and counted: O(entries), about 0.7 us each.
    """
    left = entries
    while left > 0 and after < last:
        count = min(left, page)
        (counted,) = probe(servers, [ProbeRequest(stream, after, last, count)])
        if counted.entries < count:
            return last
        after = counted.last
        left -= count
    return after


# ---- exact ranks ------------------------------------------------------------------------------------------------


def may_rank(servers: Servers, stream: str) -> bool:
    """Return whether the stream's server may support RILLET.XRANK: False after an earlier failure."""
    return servers.connection(stream.encode()) not in _WITHOUT_RANKS


def ranks(servers: Servers, ids: Mapping[str, Sequence[StreamID]]) -> dict[str, list[int]] | None:
    """Return the number of entries at or before each ID of each stream; None if a server lacks RILLET.XRANK."""
    commands = [
        (stream.encode(), (b"RILLET.XRANK", stream.encode(), *map(id_text, bounds))) for stream, bounds in ids.items()
    ]
    replies = _extension_replies(servers, commands)
    return None if replies is None else dict(zip(ids, replies, strict=True))


def ids_after(servers: Servers, requests: Sequence[tuple[str, StreamID, int]]) -> list[StreamID] | None:
    """Return the ID of the entry `count` entries after each ID, or the stream's last ID.

    The result is None if a server lacks RILLET.XAFTER.
    """
    commands = [
        (stream.encode(), (b"RILLET.XAFTER", stream.encode(), id_text(after), b"%d" % count))
        for stream, after, count in requests
    ]
    replies = _extension_replies(servers, commands)
    if replies is None:
        return None
    return [
        after if reply is None else StreamID.parse(reply)
        for reply, (_, after, _) in zip(replies, requests, strict=True)
    ]


def _extension_replies(servers: Servers, commands: Sequence[tuple[bytes, Sequence[bytes]]]) -> list[Any] | None:
    """Return the replies to commands that only rillet has; None if a server does not support them."""
    nodes = [connection for connection, _ in servers.by_node(list(dict.fromkeys(key for key, _ in commands)))]
    if any(connection in _WITHOUT_RANKS for connection in nodes):
        return None
    replies = servers.each(commands)
    if any(isinstance(reply, ReplyError) for reply in replies):  # any error: its text depends on proxies and ACLs
        _WITHOUT_RANKS.update(nodes)
        return None
    return replies


def count_between(servers: Servers, stream: str, after: StreamID, last: StreamID) -> int:
    """Return how many entries have IDs in (after, last]: O(log n) on a rillet server, else 0.7 us per entry."""
    if exact := ranks(servers, {stream: (after, last)}):
        low, high = exact[stream]
        return high - low
    total = 0
    while after < last:
        (page,) = probe(servers, [ProbeRequest(stream, after, last, COUNT_PAGE)])
        total += page.entries
        if page.entries < COUNT_PAGE:
            break
        after = page.last
    return total


# ---- waiting ----------------------------------------------------------------------------------------------------


def wait_for_entries(servers: Servers, after: Mapping[str, StreamID]) -> bool:
    """Wait up to IDLE_MS for an entry after one of the IDs; return False if certainly no entry has arrived.

    XREAD on a cluster can only wait for streams of one slot. The caller sees entries in other slots after IDLE_MS.
    """
    idle = min(IDLE_MS, max(1, int(servers.options.timeout * 500)))
    bounds = {stream.encode(): id_text(bound) for stream, bound in after.items()}
    watched = servers.together(list(bounds))
    if not watched:
        time.sleep(idle / 1000)
        return True
    started = monotonic()
    ids = [bounds[key] for key in watched]
    words = (b"XREAD", b"COUNT", b"1", b"BLOCK", b"%d" % idle, b"STREAMS", *watched, *ids)
    connection = servers.connection(watched[0])
    try:
        (reply,) = connection.replies([words])
    except ConnectionLost:
        servers.forget(connection)
        raise
    if isinstance(reply, ReplyError):  # the caller's next XINFO reports the problem
        time.sleep(max(0.0, idle / 1000 - (monotonic() - started)))
    return reply is not None or len(watched) < len(after)
