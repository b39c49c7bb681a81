"""A consumer group beside the checkpoint: followed, so that others see how far Spark is, or read through.

Spark's checkpoint alone decides what is read again after a restart. What the server's people look at (XINFO GROUPS, lag
alarms, inspectors) knows nothing of it. Option `group` tells them, in one of two modes. Both do their part when Spark
asks for the next offset: it names the one up to which everything is in the sink then, after the last batch of an
available-now query too (`commit` comes a batch late, or never).

**follow** (`Follower`): the group's last-delivered-id is set to what was committed, and its entries-read with it where
the offset knows how many entries had been added there, so that lag is exact and goes down to 0. Entries are read by
XRANGE as ever; nothing is pending. The group is Spark's own. It is made if it is missing. At its first trigger a query
sets it to where the query is, forwards or backwards (an older checkpoint is read from, so lag says so); afterwards it
is never moved backwards: who moved it on meanwhile wins. After a lost connection it is looked at again, for a server
that crashed may have lost its last second; so is what was acknowledged.

**deliver** (`Deliverer`): for teams whose other consumers share the group: each entry goes to one of them.

    trigger     acknowledge what is pending for us up to the offset that was committed     XPENDING, XACK
                take what is pending for us beyond it: a crash left it                     XPENDING, XREADGROUP 0
                or else be given new entries, up to the cap                                XREADGROUP >
    task        read its range from our own history                                        XPENDING, XREADGROUP <after>

What was delivered is pending for our consumer until it is acknowledged, so a batch that is repeated is the same
entries again, and the range (after, last] of our history is the batch, however many entries of other consumers lie
between. An entry that was deleted meanwhile is pending without fields: it is lost, and counted or told like any other
loss. XCLAIM by another consumer takes an entry out of our hands: let its idle time be longer than a batch takes.
Every query needs a `consumer` of its own.

Where a query starts: where the group is (and before what is pending for our consumer); `startingOffsets` decides only
where the group is made. Redis hands entries out with their fields, so the planner receives what tasks receive once
more; it decodes no more than IDs. Costs: deliver reads everything twice and keeps a pending entry for each (about 100
bytes), which the cap bounds (DELIVERED without one). Rejected: a consumer for each task, whose pending entries would
not be those of the same task after a restart on another number of cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rillet.client.errors import ConnectionLost, ConnectorError, StaysAway
from rillet.client.protocol import pack
from rillet.client.redirection import Patience
from rillet.client.servers import Servers
from rillet.columns.arrow_batch import record_batch, rows_for
from rillet.columns.resp_decoder import MORE, RangeDecoder, ReplyFailed
from rillet.columns.row_builder import RowBuilder
from rillet.errors import ProtocolError
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.option_types import before
from rillet.spark.options import Options
from rillet.spark.read.data_loss import DataLoss
from rillet.spark.read.metadata import id_text
from rillet.spark.read.offsets import Part, Task
from rillet.spark.read.stream_info import xinfo_groups
from rillet.types.stream.id import MAX, StreamID

ACKNOWLEDGED = 1000  # entries of an XACK
DELIVERED = 100_000  # entries of a trigger where the user set no cap
WORTH_A_TASK = 2000
FIRST_PAGE = 32  # entries of which a task learns how large they are
MAX_BATCH_BYTES = 32 << 20


@dataclass(frozen=True)
class Move:
    """Where a group goes in a stream; made if it is missing. `read` entries were read up to there, if that is known."""

    stream: str
    at: StreamID
    read: int | None = None
    make: bool = False


class _Group:
    """A group's name and consumer at servers, and where it stands."""

    def __init__(self, options: Options, servers: Servers) -> None:
        assert options.group is not None
        self.options = options
        self.servers = servers
        self.name = options.group.encode()
        self.consumer = options.consumer.encode()
        self.done: dict[str, StreamID] = {}  # up to where it was moved or acknowledged

    def positions(self, streams: Iterable[str]) -> dict[str, StreamID | None]:
        """Return the group's last-delivered-id in each stream, None where there is no such group; all at once.

        Streams that are missing are left out.
        """
        names = list(streams)
        found: dict[str, StreamID | None] = {}
        for name, told in zip(names, xinfo_groups(self.servers, [name.encode() for name in names]), strict=True):
            if told is not None:
                ours = [StreamID.parse(group["last-delivered-id"]) for group in told if group["name"] == self.name]
                found[name] = ours[0] if ours else None
        return found

    def place_all(self, moves: Sequence[Move]) -> None:
        """Set the group to an ID in each of many streams, all at once."""
        replies = self.servers.each([(move.stream.encode(), self._words(move)) for move in moves])
        for move, reply in zip(moves, replies, strict=True):
            if isinstance(reply, ReplyError):
                self.place(move)

    def _words(self, move: Move, counted: bool = True) -> list[bytes]:
        words = [b"XGROUP", b"CREATE" if move.make else b"SETID", move.stream.encode(), self.name, id_text(move.at)]
        return [*words, b"ENTRIESREAD", b"%d" % move.read] if counted and move.read is not None else words

    def place(self, move: Move) -> None:
        """Set the group to an ID in one stream; ConnectorError where that cannot be."""
        stream, key = move.stream, move.stream.encode()
        (reply,) = self.servers.replies(key, [self._words(move)])
        if isinstance(reply, ReplyError) and "syntax" in str(reply).lower() and move.read is not None:  # before 7.0
            (reply,) = self.servers.replies(key, [self._words(move, counted=False)])
        if isinstance(reply, ReplyError) and reply.prefix == "BUSYGROUP":  # somebody else was faster
            self.place(replace(move, make=False))
        elif isinstance(reply, ReplyError):
            where = self.servers.connection(key).address
            raise ConnectorError(
                f"rillet: the group {self.options.group!r} of {stream!r} at {where} cannot be moved: {reply}"
            )


class GroupFollower(_Group):
    """Moves the group behind what Spark has committed."""

    def __init__(self, options: Options, servers: Servers) -> None:
        super().__init__(options, servers)
        self.ours: set[str] = set()  # streams in which the group was where the query began

    def committed(self, streams: Mapping[str, StreamID], added: Mapping[str, int]) -> None:
        """Set the group to the offsets up to which all is in the sink; streams that are gone are left out.

        Two round trips for all streams that moved, none for the others.
        """
        there = self.positions(stream for stream, at in streams.items() if self.done.get(stream) != at)
        self.place_all([
            Move(stream, streams[stream], added.get(stream), make=now is None)
            for stream, now in there.items()
            if now is None or stream not in self.ours or now < streams[stream]
        ])  # fmt: skip
        self.done.update({stream: streams[stream] for stream in there})
        self.ours.update(there)


@dataclass(frozen=True)
class DeliveredPage:
    """Entries that our consumer was given: those of its history with after < ID <= last."""

    stream: str
    after: StreamID
    last: StreamID
    entries: int
    missing: int = 0  # of them, deleted before they could be read


class Deliverer(_Group):
    """Is given entries as a consumer of the group, and acknowledges what Spark has committed."""

    def __init__(self, options: Options, servers: Servers) -> None:
        super().__init__(options, servers)
        self.lost: dict[str, int] = {}  # found deleted when a crash's leavings were taken
        self.clean: set[str] = set()  # streams without any
        self.stands: dict[str, StreamID] = {}  # where the group was when it was last looked at

    def positions(self, streams: Iterable[str]) -> dict[str, StreamID | None]:
        """Return where the group is in each stream, and note it."""
        found = super().positions(streams)
        self.stands.update({stream: at for stream, at in found.items() if at is not None})
        return found

    def may_have(self, stream: str, last: StreamID) -> bool:
        """Return whether a stream that ends at an ID may have entries for us."""
        return stream not in self.clean or stream not in self.stands or self.stands[stream] < last

    def begin(self, stream: str, start: StreamID) -> StreamID:
        """Return where a new query starts: before what is pending, or where the group is; made if it is missing."""
        at = self.positions([stream]).get(stream)
        if at is None:
            self.place(Move(stream, start, make=True))
            return start
        oldest = self.pending(stream, b"-", b"+", 1)
        return before(oldest[0]) if oldest else at

    def pending(self, stream: str, low: bytes, high: bytes, count: int) -> list[StreamID]:
        """Return the IDs that are pending for our consumer, in order, from `low` to `high`, at most `count`."""
        key = stream.encode()
        found = self.servers.call(key, b"XPENDING", key, self.name, low, high, b"%d" % count, self.consumer)
        return [StreamID.parse(entry[0]) for entry in found]

    def pending_after(self, stream: str, after: StreamID, high: bytes, count: int) -> list[StreamID]:
        """Return the same from the ID behind `after` on; a server refuses to look behind the largest there is."""
        return [] if after.ms == after.seq == MAX else self.pending(stream, b"(" + id_text(after), high, count)

    def committed(self, streams: Mapping[str, StreamID], added: Mapping[str, int]) -> None:
        """Acknowledge what is pending for us up to the offsets; O(entries acknowledged)."""
        for stream, at in streams.items():
            if self.done.get(stream) == at:
                continue
            key = stream.encode()
            try:
                while found := self.pending(stream, b"-", id_text(at), ACKNOWLEDGED):
                    self.servers.call(key, b"XACK", key, self.name, *map(id_text, found))
            except ConnectorError as error:
                if "NOGROUP" not in str(error):
                    raise
            self.done[stream] = at

    def deliver(self, streams: Mapping[str, StreamID], most: int | None) -> list[DeliveredPage]:
        """Return the pages of the next batch: what a crash left in our hands, else what the group has for us now.

        streams: up to where each has been read. most: the cap of the trigger. Streams take turns, a page each.
        """
        left = DELIVERED if most is None else most
        pages: list[DeliveredPage] = []
        active = dict(streams)
        while active and left > 0:
            for stream, after in list(active.items()):
                count = min(left, self.options.page_entries)
                page = (self._left_behind(stream, after, count) if stream not in self.clean else None) or self._given(
                    stream, after, count
                )
                if page is not None:
                    pages.append(page)
                    active[stream] = page.last
                    left -= page.entries
                if page is None or (stream in self.clean and page.entries < count):  # that is all
                    del active[stream]
                if left <= 0:
                    break
        for page in pages:  # not before all are there: a trigger that fails is planned again, and counts them again
            if page.missing:
                self.lost[page.stream] = self.lost.get(page.stream, 0) + page.missing
        return pages

    def _left_behind(self, stream: str, after: StreamID, count: int) -> DeliveredPage | None:
        """Return entries that were delivered to us and never committed; None, and never asked again, without any."""
        found = self.pending_after(stream, after, b"+", count)
        if not found:
            self.clean.add(stream)
            return None
        history = History(self.options, self.servers, (stream, after, found[-1]))
        history.page(RowBuilder(stream.encode()), len(found))
        if history.missing and self.options.fail_on_data_loss:
            raise _deleted(self.options, self.servers, stream, history.missing)
        return DeliveredPage(stream, after, found[-1], len(found), history.missing)

    def _given(self, stream: str, after: StreamID, count: int) -> DeliveredPage | None:
        """Return new entries of the group, pending for us from now on; None where there are none."""
        asked = DeliveryRequest(self.servers, stream)
        if asked.read(RowBuilder(stream.encode()), self.name, self.consumer, b">", count) == 0:
            return None
        if asked.last <= after:  # a moment ago it stood further
            raise set_back(self.options, self.servers, stream, asked.last, after)
        return DeliveredPage(stream, after, asked.last, asked.entries)


def tasks(pages: Sequence[DeliveredPage], parallelism: int) -> tuple[Task, ...]:
    """Share pages out among tasks of about the same number of entries; pages that follow one another are one range."""
    total = sum(page.entries for page in pages)
    parts = max(1, min(parallelism, total // WORTH_A_TASK))
    found: list[list[Part]] = [[] for _ in range(parts)]
    passed = 0
    for page in sorted(pages, key=lambda page: (page.stream, page.after)):
        task = found[min(passed * parts // max(total, 1), parts - 1)]
        if task and task[-1][0] == page.stream and task[-1][2] == page.after:
            task[-1] = (page.stream, task[-1][1], page.last)
        else:
            task.append((page.stream, page.after, page.last))
        passed += page.entries
    return tuple(tuple(task) for task in found if task)


def ends(pages: Sequence[DeliveredPage]) -> dict[str, StreamID]:
    """Return up to where pages bring their streams."""
    return {page.stream: page.last for page in sorted(pages, key=lambda page: page.last)}


# ---- entries ------------------------------------------------------------------------------------------------------


class DeliveryRequest:
    """One XREADGROUP of one stream, decoded by a RangeDecoder behind the words that come before its entries."""

    def __init__(self, servers: Servers, stream: str) -> None:
        self.servers = servers
        self.key = stream.encode()
        self.head = b"*1\r\n*2\r\n$%d\r\n%b\r\n" % (len(self.key), self.key)
        self.entries = self.missing = 0
        self.last = StreamID(0, 0)

    def read(self, rows: RowBuilder, group: bytes, consumer: bytes, start: bytes, count: int) -> int:
        """Append up to `count` entries to rows; return how many came, deleted ones among them."""
        words = (b"XREADGROUP", b"GROUP", group, consumer, b"COUNT", b"%d" % count, b"STREAMS", self.key, start)
        while True:
            connection = self.servers.connection(self.key)
            receiver = GroupLag(RangeDecoder(rows, 1 << 62, 1 << 62), self.head)
            try:
                connection.send(pack(*words))
                while receiver.waiting or receiver.decoder.decode() == MORE:
                    connection.receive(receiver)  # type: ignore[arg-type]
            except ConnectionLost:
                self.servers.forget(connection)
                raise
            except ReplyFailed as error:
                if self.servers.redirected(self.key, str(error)):
                    continue
                raise ConnectorError(
                    f"rillet: reading {self.key.decode()!r} at {connection.address} as {consumer.decode()!r} of "
                    f"the group {group.decode()!r}: {error}"
                ) from None
            except ProtocolError as error:
                raise ConnectorError(
                    f"rillet: reading {self.key.decode()!r} from {connection.address}: {error}"
                ) from error
            decoder = receiver.decoder
            self.entries, self.missing = decoder.entries, decoder.missing
            self.last = StreamID(decoder.last_ms, decoder.last_seq)
            return self.entries


class GroupLag:
    """What a connection receives into: takes the words before the entries off and leaves the rest to a decoder."""

    def __init__(self, decoder: RangeDecoder, head: bytes) -> None:
        self.decoder = decoder
        self.head = head
        self.waiting = True
        self.begun = b""
        self.room = bytearray()

    def space(self, n: int) -> memoryview:
        """Return room for at least n bytes."""
        if not self.waiting:
            return self.decoder.space(n)
        self.room = bytearray(n)
        return memoryview(self.room)

    def filled(self, n: int) -> None:
        """Take what was received; null and errors have no such words and are the decoder's too."""
        if not self.waiting:
            self.decoder.filled(n)
            return
        self.begun += self.room[:n]
        if len(self.begun) < len(self.head) and self.head.startswith(self.begun):
            return
        self.waiting = False
        self.decoder.feed(self.begun.removeprefix(self.head))


class History:
    """A range of what is pending for our consumer, read page by page; `after` is the last entry that was read."""

    def __init__(self, options: Options, servers: Servers, part: Part) -> None:
        self.group = Deliverer(options, servers)
        self.stream, self.after, self.last = part
        self.missing = 0

    def page(self, rows: RowBuilder, count: int) -> bool:
        """Append the next `count` entries to rows; False where the range has no more.

        Asking for IDs first says how many entries of the history the range holds: a reply has no other end.
        """
        found = self.group.pending_after(self.stream, self.after, id_text(self.last), count)
        if not found:  # what was handed out is claimed by others, or not known any more to have been
            stands = self.group.positions([self.stream]).get(self.stream)
            if self.group.options.fail_on_data_loss and stands is not None and stands < self.last:
                raise set_back(self.group.options, self.group.servers, self.stream, stands, self.last)
            return False
        asked = DeliveryRequest(self.group.servers, self.stream)
        came = asked.read(rows, self.group.name, self.group.consumer, id_text(self.after), len(found))
        self.missing += asked.missing
        if came != len(found) or asked.last != found[-1]:
            raise ConnectorError(
                f"rillet: what is pending for the consumer {self.group.options.consumer!r} in {self.stream!r} changed "
                "while it was read: every query needs a consumer of its own"
            )
        self.after = found[-1]
        return self.after < self.last


def set_back(options: Options, servers: Servers, stream: str, stands: StreamID, handed_out: StreamID) -> DataLoss:
    """Return the error about a group that stands before what it has handed out."""
    where = servers.connection(stream.encode()).address
    return DataLoss(
        f"rillet: entries may have been lost before being read: the group {options.group!r} of the stream {stream!r} "
        f"at {where} stands at {stands}, and had handed out entries up to {handed_out}: it was moved back, or its "
        "server crashed and lost that; failOnDataLoss=false reads again what is handed out again"
    )


def _deleted(options: Options, servers: Servers, stream: str, entries: int) -> DataLoss:
    where = servers.connection(stream.encode()).address
    many = f"{entries} {'entry was' if entries == 1 else 'entries were'}"
    return DataLoss(
        f"rillet: {many} lost before being read: delivered from the stream {stream!r} at {where} to the consumer "
        f"{options.consumer!r} of the group {options.group!r} and then deleted; failOnDataLoss=false goes on "
        "without them"
    )


def read_delivered(options: Options, servers: Servers, part: Part, schema: Any) -> Iterator[Any]:
    """Yield a range of our consumer's history as record batches of an Arrow schema, in order.

    A lost connection is made again for as long as `timeout` without progress; what was read is still pending. A page
    is one reply, which is asked for by entries: as many as those of the last page say that a batch may hold.
    """
    history = History(options, servers, part)
    goes_on, patience = True, Patience(options.timeout)
    count = min(FIRST_PAGE, options.batch_entries)
    while goes_on:
        rows = rows_for(schema, part[0].encode(), options.mode, options.corrupt_column)
        try:
            goes_on = history.page(rows, count)
            patience = Patience(options.timeout)
        except StaysAway:
            raise
        except ConnectionLost:
            if not patience.again():
                raise
            continue
        if history.missing and options.fail_on_data_loss:
            raise _deleted(options, servers, part[0], history.missing)
        fitting = count * MAX_BATCH_BYTES // max(rows.nbytes, 1)
        count = max(1, min(options.batch_entries, 16 * count, fitting))
        if rows.length:
            yield record_batch(rows, schema)


def read_all_delivered(options: Options, ranges: Sequence[Part], schema: Any) -> Iterator[Any]:
    """Yield the entries of a task's ranges out of our consumer's history, one range after the other."""
    with Servers(options) as servers:
        servers.waits = True  # the planner had an answer
        for part in ranges:
            yield from read_delivered(options, servers, part, schema)
