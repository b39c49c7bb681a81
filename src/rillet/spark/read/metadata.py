"""What a planner asks of the servers: which streams there are, and where some of their entries lie.

Everything is asked for all streams at once: a pipeline for each node, all nodes working at the same time. So a
thousand streams cost a planner about as many round trips as one.

    found        the keys that the options name, or that a pattern matches now
    glimpses     XRANGE COUNT n: how many entries came, and the first and last of their IDs. No entry becomes a Python
                 object: a decoder without columns steps over them
    ranks, places    RILLET.XRANK and RILLET.XAFTER, which a rillet engine answers exactly, in O(log n). Another
                 server says "unknown command", once for each connection; None is returned then
    wait_for_news    XREAD BLOCK, so that an idle query does not ask in a loop
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.protocol import pack
from rillet.client.servers import IN_FLIGHT, Servers
from rillet.columns.resp_decoder import MORE, RangeDecoder, ReplyFailed
from rillet.columns.row_builder import RowBuilder
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options
from rillet.spark.read.offsets import successor
from rillet.spark.read.splits import Probe
from rillet.spark.read.stream_info import StreamInfo, refused
from rillet.types.stream.id import StreamID

IDLE_MS = 100

_WITHOUT_RANKS: weakref.WeakSet[Connection] = weakref.WeakSet()


def found(options: Options, servers: Servers) -> list[str]:
    """Return the streams to read, those that do not exist among them unless a pattern is looked up; in order."""
    named = options.keys()
    if named is not None:
        return list(named)
    return [key.decode() for key in servers.scan(options.stream_pattern or "*")]


def keys_of_all(servers: Servers) -> int:
    """Return how many keys the servers hold."""
    return sum(int(servers.ask(connection, b"DBSIZE")) for connection in servers.masters())


def missing(servers: Servers, stream: str) -> ConnectorError:
    """Return the error about a stream that is not there."""
    return ConnectorError(f"rillet: there is no stream {stream!r} at {servers.connection(stream.encode()).address}")


def require_streams(options: Options, servers: Servers, known: Mapping[str, StreamInfo | None]) -> None:
    """Raise ConnectorError where a named stream is not there; of a partitioned one, where no part is."""
    absent = [stream for stream, facts in known.items() if facts is None]
    if absent and options.keys() is not None and (options.partitioned is None or len(absent) == len(known)):
        raise missing(servers, absent[0])


class MetadataPage(NamedTuple):
    """A page to look at: the first entries of (after, last] of a stream, `most` of them, or the last ones backwards."""

    stream: str
    after: StreamID
    last: StreamID
    most: int
    backwards: bool = False


def glimpses(servers: Servers, pages: Sequence[MetadataPage]) -> list[Probe]:
    """Return what pages hold."""
    told: list[Probe] = [Probe(0, page.after, page.after) for page in pages]
    for begin in range(0, len(pages), IN_FLIGHT):  # not more replies than a server should keep for us
        part = pages[begin : begin + IN_FLIGHT]
        try:
            _glimpse_at(servers, part, begin, told)
        except ReplyFailed:
            told[begin : begin + IN_FLIGHT] = _glimpse_wherever(servers, part)
    return told


def _glimpse_wherever(servers: Servers, pages: Sequence[MetadataPage]) -> Iterator[Probe]:
    """Yield what pages hold while a slot moves: each is followed to the node that has it; entries become objects."""
    requests = [(page.stream.encode(), _words(page.stream.encode(), page)) for page in pages]
    for page, reply in zip(pages, servers.each(requests), strict=True):
        if isinstance(reply, ReplyError):
            raise refused(servers, page.stream.encode(), "XRANGE", str(reply))
        ids = [StreamID.parse(entry[0]) for entry in reply]
        yield Probe(len(ids), ids[0], ids[-1]) if ids else Probe(0, page.after, page.after)


def _glimpse_at(servers: Servers, pages: Sequence[MetadataPage], begin: int, told: list[Probe]) -> None:
    places: dict[bytes, list[int]] = {}
    for place, page in enumerate(pages):
        places.setdefault(page.stream.encode(), []).append(place)
    nodes = [
        (connection, [(key, place) for key in keys for place in places[key]])
        for connection, keys in servers.by_node(list(places))
    ]
    try:
        for connection, asked in nodes:
            connection.send(b"".join([page_request(key, pages[place]) for key, place in asked]))
        for connection, asked in nodes:
            stepping = _STEPPING.get(connection) or _STEPPING.setdefault(connection, _Stepping())
            for _, place in asked:
                told[begin + place] = stepping.page(connection, pages[place])
    except BaseException:
        for connection, _ in nodes:  # replies that nobody will read
            servers.forget(connection)
        raise


class _Stepping:
    """Steps over pages that arrive on a connection; kept with it, for its buffer costs more than a look."""

    def __init__(self) -> None:
        self.rows = RowBuilder(b"")
        self.decoder = RangeDecoder(self.rows, 1 << 62, 1 << 62)

    def page(self, connection: Connection, asked: MetadataPage) -> Probe:
        """Return what the next reply holds."""
        decoder = self.decoder
        self.rows.clear()
        decoder.max_rows = 1
        while decoder.decode() == MORE:
            connection.receive(decoder)
        entries = decoder.entries
        if not entries:
            return Probe(0, asked.after, asked.after)
        first = StreamID(decoder.last_ms, decoder.last_seq)
        if entries == 1:
            return Probe(1, first, first)
        decoder.max_rows = 1 << 62
        while decoder.decode() == MORE:
            connection.receive(decoder)
        return Probe(entries, first, StreamID(decoder.last_ms, decoder.last_seq))


_STEPPING: weakref.WeakKeyDictionary[Connection, _Stepping] = weakref.WeakKeyDictionary()


def page_request(key: bytes, page: MetadataPage) -> bytes:
    """Return the packed XRANGE or XREVRANGE of a page."""
    return pack(*_words(key, page))


def _words(key: bytes, page: MetadataPage) -> tuple[bytes, ...]:
    low, high = text(successor(page.after)), text(page.last)
    if page.backwards:
        return b"XREVRANGE", key, high, low, b"COUNT", b"%d" % page.most
    return b"XRANGE", key, low, high, b"COUNT", b"%d" % page.most


def text(bound: StreamID) -> bytes:
    """Return an ID as a word of a command."""
    return b"%d-%d" % bound


# ---- exactly ----------------------------------------------------------------------------------------------------


def ranking(servers: Servers, stream: str) -> bool:
    """Tell whether a stream's server may know ranks, as far as is known."""
    return servers.connection(stream.encode()) not in _WITHOUT_RANKS


def ranks(servers: Servers, asked: Mapping[str, Sequence[StreamID]]) -> dict[str, list[int]] | None:
    """Return how many entries of each stream have an ID up to each of these; None where no rillet engine answers."""
    return _exactly(servers, {stream: [b"RILLET.XRANK", *map(text, ids)] for stream, ids in asked.items()}, list)


def places(servers: Servers, asked: Sequence[tuple[str, StreamID, int]]) -> list[StreamID] | None:
    """Return the IDs of the entries that are so many after these, or the last ones; None without a rillet engine."""
    keys = [stream.encode() for stream, _, _ in asked]
    words = [
        (key, (b"RILLET.XAFTER", key, text(after), b"%d" % count))
        for key, (_, after, count) in zip(keys, asked, strict=True)
    ]
    replies = _answers(servers, words)
    if replies is None:
        return None
    found = zip(replies, asked, strict=True)
    return [after if reply is None else StreamID.parse(reply) for reply, (_, after, _) in found]


def _exactly(servers: Servers, asked: Mapping[str, list[bytes]], read: Any) -> dict[str, Any] | None:
    words = [(stream.encode(), (first[0], stream.encode(), *first[1:])) for stream, first in asked.items()]
    replies = _answers(servers, words)
    return None if replies is None else {stream: read(reply) for stream, reply in zip(asked, replies, strict=True)}


def _answers(servers: Servers, words: Sequence[tuple[bytes, Sequence[bytes]]]) -> list[Any] | None:
    """Return the replies to commands of rillet's own, None where a server does not know them."""
    nodes = [connection for connection, _ in servers.by_node(list(dict.fromkeys(key for key, _ in words)))]
    if any(connection in _WITHOUT_RANKS for connection in nodes):
        return None
    replies = servers.each(words)
    if any(isinstance(reply, ReplyError) for reply in replies):  # proxies and ACLs have words of their own for it
        _WITHOUT_RANKS.update(nodes)
        return None
    return replies


def count_ahead(servers: Servers, stream: str, after: StreamID, last: StreamID, entries: int, page: int) -> StreamID:
    """Return the ID of the entry that is `entries` further than `after`, or `last` if that comes first.

    Redis has no rank, so the entries travel here to be counted: O(entries), about 0.7 us each.
    """
    left = entries
    while left > 0 and after < last:
        count = min(left, page)
        (seen,) = glimpses(servers, [MetadataPage(stream, after, last, count)])
        if seen.entries < count:
            return last
        after = seen.last
        left -= count
    return after


# ---- waiting ----------------------------------------------------------------------------------------------------


def wait_for_news(servers: Servers, after: Mapping[str, StreamID]) -> bool:
    """Wait until one of these streams has an entry after its ID, IDLE_MS at the longest; False if certainly none has.

    A cluster lets only streams of one slot be watched together; news from others are seen when the time is over.
    """
    idle = min(IDLE_MS, max(1, int(servers.options.timeout * 500)))
    bounds = {stream.encode(): text(bound) for stream, bound in after.items()}
    watched = servers.together(list(bounds))
    if not watched:
        time.sleep(idle / 1000)
        return True
    begun = time.monotonic()
    ids = [bounds[key] for key in watched]
    words = (b"XREAD", b"COUNT", b"1", b"BLOCK", b"%d" % idle, b"STREAMS", *watched, *ids)
    connection = servers.connection(watched[0])
    try:
        (reply,) = connection.replies([words])
    except ConnectionLost:
        servers.forget(connection)
        raise
    if isinstance(reply, ReplyError):  # the next look at the streams says what is wrong
        time.sleep(max(0.0, idle / 1000 - (time.monotonic() - begun)))
    return reply is not None or len(watched) < len(after)
