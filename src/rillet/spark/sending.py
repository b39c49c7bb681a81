"""Packed rows on their way to servers: pipelined, bounded, and, if wanted, in transactions with a record.

    PlainSender         XADD XADD XADD ...        in chunks, each sent before the one before is answered
    TransactionSender   WATCH HMGET MULTI  XADD ... XADD  HSET SET  EXEC       (what and why: commits.py)

Memory. Rows that go to one stream leave in chunks of 256 KiB, and two chunks are under way: the client holds no more.
The server holds what is queued between MULTI and EXEC, at most transactionBytes and what one chunk is above it. A task
whose rows go to several streams can have one transaction open at a time, so it keeps packed rows here until they are
transactionBytes in all; then each stream gets its transaction.

Answers are counted, not parsed: an ID is two lines, QUEUED is one, and a line that begins with - is the first refusal
(`Replies`); 5 nanoseconds a row instead of 150.

What can still be refused inside EXEC, after everything was queued: an XADD whose key holds another type, and one whose
ID does not rise. Redis then runs the other commands all the same, the record among them. So the type is looked at
before, and with an idColumn the IDs must rise among themselves and above the stream's last ID, which is watched until
EXEC. What is refused nevertheless is taken back from the record at once (nothing was written) or marked there as torn.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from xxhash import xxh3_64

from rillet.columns.pack import Packer
from rillet.spark.commits import Identity, Progress, Record, shown
from rillet.spark.connection import RECEIVE, Connection, ConnectorError, pack
from rillet.spark.options import Options
from rillet.spark.servers import Servers
from rillet.spark.targets import Layout, ids_that_rise
from rillet.types.stream_id import StreamID

CHUNK = 1 << 18


class Replies:
    """The answers that come over a connection, passed over by lines or read one by one."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._data = bytearray()
        self._room = bytearray(RECEIVE)

    def space(self, size: int) -> memoryview:
        """Return the place for bytes to come (what Connection.receive asks for)."""
        return memoryview(self._room)

    def filled(self, size: int) -> None:
        """Take the bytes that have come."""
        self._data += memoryview(self._room)[:size]

    def _more(self) -> None:
        self.connection.receive(self)  # type: ignore[arg-type]

    def skip(self, lines: int) -> int:
        """Pass over lines up to the first that is an error; return how many are left."""
        while lines:
            there = self._data.count(b"\r\n")
            if there == 0:
                self._more()
                continue
            if there <= lines:
                end = self._data.rfind(b"\r\n") + 2
            else:
                there = lines
                end = len(self._data) - len(self._data.split(b"\r\n", lines)[lines])
            if self._data.startswith(b"-"):
                return lines
            refused = self._data.find(b"\r\n-", 0, end)
            if refused >= 0:
                there = self._data.count(b"\r\n", 0, refused + 2)
                end = refused + 2
            del self._data[:end]
            lines -= there
            if refused >= 0:
                return lines
        return 0

    def starts_with(self, kind: bytes) -> bool:
        """Return whether the next reply is of this kind."""
        while not self._data:
            self._more()
        return self._data.startswith(kind)

    def line(self) -> bytes:
        """Return the next line."""
        while (end := self._data.find(b"\r\n")) < 0:
            self._more()
        line = bytes(self._data[:end])
        del self._data[: end + 2]
        return line

    def reply(self) -> Any:
        """Return the next reply of RESP2; an error as a Refused."""
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self._bulk(int(rest))
        if kind == b"-":
            return Refused(rest.decode(errors="backslashreplace"))
        return int(rest) if kind == b":" else rest

    def _bulk(self, size: int) -> bytes:
        while len(self._data) < size + 2:
            self._more()
        text = bytes(self._data[:size])
        del self._data[: size + 2]
        return text


class Refused(str):
    """An error line."""

    __slots__ = ()


def append_words(options: Options, stream: bytes) -> list[bytes]:
    """Return an XADD up to, without, its ID."""
    words = [b"XADD", stream]
    sign = b"=" if options.trim_exactly else b"~"
    if options.maxlen is not None:
        words += [b"MAXLEN", sign, b"%d" % options.maxlen]
    if options.minid is not None:
        words += [b"MINID", sign, options.minid.encode()]
    return words


class Sender:
    """What both ways of writing share: rows are laid out and packed; `Way` subclasses send chunks."""

    def __init__(self, servers: Servers, options: Options, layout: Layout, partition: int) -> None:
        self.servers = servers
        self.options = options
        self.layout = layout
        self.partition = partition
        self.turn = partition
        self.packers: dict[bytes, Packer] = {}
        self.rows: dict[bytes, int] = {}
        self._replies: dict[Connection, Replies] = {}

    def send(self, batch: Any) -> None:
        """Append the rows of a record batch."""
        for stream, rows in self.layout.shares(batch, self.turn):
            if stream not in self.rows:
                self.rows[stream] = 0
                self.begin(stream)
            self.rows[stream] += rows.num_rows
            self._pack(stream, rows)
        self.turn += batch.num_rows

    def _pack(self, stream: bytes, rows: Any) -> None:
        # A stream's packer stays where there is one stream; many would hold 64 KiB each.
        packer = self.packers.get(stream) or Packer(append_words(self.options, stream))
        if self.layout.single:
            self.packers[stream] = packer
        self.layout.load(packer, rows)
        row = 0
        while row < rows.num_rows:
            before = row
            try:
                row = packer.pack(row, self.bound(stream, row, rows.num_rows), CHUNK)
            except ValueError as error:
                raise ConnectorError(f"rillet: writing to {shown(stream)}: {error}") from None
            self.packed(stream, packer, rows, before, row)
            if packer.used >= CHUNK:
                self.chunk(stream, packer)
        if packer.used and not self.layout.single:
            self.chunk(stream, packer)

    def bound(self, stream: bytes, row: int, stop: int) -> int:
        """Return before which row packing has to pause."""
        return stop

    def packed(self, stream: bytes, packer: Packer, rows: Any, start: int, stop: int) -> None:
        """Take note of rows that were packed."""

    def begin(self, stream: bytes) -> None:
        """Meet a stream for the first time; it is a stream, or nothing yet."""
        kind = self.servers.call(stream, b"TYPE", stream)
        if kind not in (b"stream", b"none"):
            address = self.servers.connection(stream).address
            raise ConnectorError(f"rillet: {shown(stream)} at {address} is no stream but a {kind.decode()}")

    def chunk(self, stream: bytes, packer: Packer) -> None:
        """Send what a packer holds."""
        raise NotImplementedError

    def finish(self) -> dict[bytes, int]:
        """Send what is left, wait until everything is answered; return rows by stream."""
        raise NotImplementedError

    def replies(self, connection: Connection) -> Replies:
        """Return what reads a connection's answers."""
        if connection not in self._replies:
            self._replies[connection] = Replies(connection)
        return self._replies[connection]

    def refusal(self, connection: Connection, stream: bytes, line: str, row_id: object = "") -> ConnectorError:
        """Return the error for a refused row."""
        which = f" (the row with ID {row_id})" if row_id else ""
        return ConnectorError(f"rillet: {connection.address} refused to append to {shown(stream)}: {line}{which}")


class PlainSender(Sender):
    """At least once: a task that runs again appends its rows again."""

    def __init__(self, servers: Servers, options: Options, layout: Layout, partition: int) -> None:
        super().__init__(servers, options, layout, partition)
        self._sent: dict[Connection, deque[tuple[bytes, bytearray, int]]] = {}

    def begin(self, stream: bytes) -> None:
        """Meet a stream for the first time, when nothing else is to come over its connection."""
        connection = self.servers.connection(stream)
        while waiting := self._sent.get(connection):
            self._answered(connection, *waiting.popleft())
        super().begin(stream)

    def chunk(self, stream: bytes, packer: Packer) -> None:
        """Send a chunk, then read the replies of the one before."""
        connection = self.servers.connection(stream)
        waiting = self._sent.setdefault(connection, deque())
        commands = packer.commands
        data = packer.take()
        connection.send(data)
        waiting.append((stream, data, commands))
        while len(waiting) > 1:
            self._answered(connection, *waiting.popleft())

    def _answered(self, connection: Connection, stream: bytes, data: bytearray, commands: int) -> None:
        replies = self.replies(connection)
        left = replies.skip(2 * commands)
        if left:
            row_id = id_in(data, commands - (left + 1) // 2, self.options) if self.options.id_column else ""
            raise self.refusal(connection, stream, replies.reply(), row_id)

    def finish(self) -> dict[bytes, int]:
        """Send what is left, wait until everything is answered; return rows by stream."""
        for stream, packer in self.packers.items():
            if packer.used:
                self.chunk(stream, packer)
        for connection, waiting in self._sent.items():
            while waiting:
                self._answered(connection, *waiting.popleft())
        return self.rows


def id_in(data: bytearray, command: int, options: Options) -> str:
    """Return the ID in a packed chunk's n-th XADD."""
    place = len(append_words(options, b""))
    at = 0
    while True:
        end = data.index(b"\r\n", at)
        words = int(data[at + 1 : end])
        at = end + 2
        for word in range(words):
            end = data.index(b"\r\n", at)
            size = int(data[at + 1 : end])
            if command == 0 and word == place:
                return data[end + 2 : end + 2 + size].decode(errors="backslashreplace")
            at = end + size + 4
        command -= 1


class Share:
    """A task's rows of one stream: how far they are packed, and how far they are in the stream."""

    def __init__(self, record: Record, known: Progress | None) -> None:
        self.record = record
        self.known = known or Progress(record.identity.batch)
        self.closed = known is None  # the whole batch is complete: rows are only counted
        self.rows = self.size = 0
        self.digest = xxh3_64()
        self.told: Progress | None = None  # what the record was when the transaction began
        self.open = False  # between MULTI and EXEC
        self.unanswered: deque[int | None] = deque()  # commands of each chunk; None for the opening
        self.kept: list[tuple[bytearray, int]] = []  # chunks, with their commands, whose transaction is still to come
        self.commands = 0  # rows that are packed and not committed
        self.pending = 0  # their bytes
        self.first_id: StreamID | None = None  # of them
        self.last_id = StreamID(0, 0)

    @property
    def repeating(self) -> bool:
        """Whether the rows at hand are in the stream already."""
        return self.closed or self.known.state == "done" or self.rows < self.known.rows

    def committed(self, progress: Progress) -> None:
        """Take note that this is what the record says now, and that nothing is under way."""
        self.known = progress
        self.kept.clear()
        self.commands = self.pending = 0
        self.first_id = None

    def progress(self, state: str) -> Progress:
        """Return what the record will say."""
        return Progress(self.record.identity.batch, self.rows, self.size, self.digest.hexdigest(), state)


class TransactionSender(Sender):
    """Exactly once: see commits.py."""

    def __init__(self, servers: Servers, options: Options, layout: Layout, identity: Identity) -> None:
        super().__init__(servers, options, layout, identity.partition)
        self.identity = identity
        self.shares: dict[bytes, Share] = {}
        for stream in layout.streams() if layout.by_turns else ():
            self.begin(stream)

    def begin(self, stream: bytes) -> None:
        """Look up what is in the stream already."""
        if stream in self.shares:
            return
        super().begin(stream)
        record = Record(stream, self.identity)
        known = record.told(self.servers.call(record.key, *record.look()))
        self._check_torn(stream, known)
        self.shares[stream] = Share(record, known)

    def _check_torn(self, stream: bytes, known: Progress | None) -> None:
        if known is not None and known.state == "torn":
            raise ConnectorError(
                f"rillet: {self._task()} was refused in the middle of a transaction before, so some of its rows are in "
                f"{shown(stream)} and some are not: it cannot be completed"
            )

    def _task(self) -> str:
        return f"task {self.identity.partition} of batch {self.identity.batch}"

    def bound(self, stream: bytes, row: int, stop: int) -> int:
        """Pause where the recorded rows end, to compare the digest there."""
        share = self.shares[stream]
        if share.repeating and share.rows < share.known.rows:
            return min(stop, row + share.known.rows - share.rows)
        return stop

    def packed(self, stream: bytes, packer: Packer, rows: Any, start: int, stop: int) -> None:
        """Count rows, look at their IDs, and compare where the record ends."""
        share = self.shares[stream]
        share.rows += stop - start
        if share.closed:
            return
        if self.options.id_column and not share.repeating:
            column = rows.column(self.options.id_column).slice(start, stop - start)
            first, share.last_id = ids_that_rise(column, self.options.id_column, share.last_id)
            share.first_id = share.first_id or first
        if share.known.state == "done" and share.rows > share.known.rows:
            raise self._other_rows(stream, share)
        if share.rows == share.known.rows:
            self.chunk(stream, packer)
            if share.known.state == "part":
                self._compare(stream, share)

    def _compare(self, stream: bytes, share: Share) -> None:
        if share.digest.hexdigest() != share.known.digest:
            raise ConnectorError(
                f"rillet: {self._task()} wrote {share.known.rows} rows to {shown(stream)} before it failed, and now "
                f"its rows come in another order: sort them in the partition, or raise transactionBytes above its size"
            )

    def _other_rows(self, stream: bytes, share: Share) -> ConnectorError:
        return ConnectorError(
            f"rillet: {self._task()} wrote {share.known.rows} rows to {shown(stream)} before, and now it has other "
            f"rows: a batch can only be repeated in the same split into tasks"
        )

    def chunk(self, stream: bytes, packer: Packer) -> None:
        """Send a chunk into the open transaction, or keep it; rows that are in the stream already only count."""
        if not packer.used:
            return
        share = self.shares[stream]
        commands = packer.commands
        data = packer.take()
        share.digest.update(data)
        share.size += len(data)
        if share.closed or share.rows <= share.known.rows:  # no chunk goes over the record's end, see `bound`
            return
        share.commands += commands
        share.pending += len(data)
        if not self.layout.single:
            share.kept.append((data, commands))
            if sum(each.pending for each in self.shares.values()) >= self.options.transaction_bytes:
                self._flush()
            return
        self._queue(stream, share, data, commands)
        if share.pending >= self.options.transaction_bytes:
            self._commit(stream, share, "part")

    def _flush(self) -> None:
        """Commit what is kept; with rows dealt by turns, only when every record has been found to be of these rows."""
        if self.layout.by_turns and any(share.rows < share.known.rows for share in self.shares.values()):
            return
        for stream, share in self.shares.items():
            if share.pending:
                self._commit(stream, share, "part")

    def _queue(self, stream: bytes, share: Share, data: bytes | bytearray, commands: int) -> None:
        """Send commands into the transaction, which begins with the first of them."""
        connection = self.servers.connection(stream)
        if not share.open:
            share.open = True
            watched = (share.record.fence, stream) if self.options.id_column else (share.record.fence,)
            opening: list[tuple[bytes, ...]] = [(b"WATCH", *watched), share.record.look()]
            if self.options.id_column:
                opening.append((b"XINFO", b"STREAM", stream))
            connection.send(b"".join([pack(*words) for words in (*opening, (b"MULTI",))]))
            share.unanswered.append(None)
        connection.send(data)
        share.unanswered.append(commands)
        while len(share.unanswered) > 2:
            self._answered(stream, share, connection)

    def _answered(self, stream: bytes, share: Share, connection: Connection) -> None:
        """Read the replies to the opening or to a chunk."""
        replies = self.replies(connection)
        commands = share.unanswered.popleft()
        if commands is not None:
            if replies.skip(commands):
                raise self.refusal(connection, stream, replies.reply())
            return
        self._accepted(connection, stream, replies.reply())  # WATCH
        share.told = share.record.told(self._accepted(connection, stream, replies.reply()))
        if self.options.id_column:
            self._check_above(connection, stream, share, replies.reply())
        self._accepted(connection, stream, replies.reply())  # MULTI

    def _accepted(self, connection: Connection, stream: bytes, reply: Any) -> Any:
        if isinstance(reply, Refused):
            raise self.refusal(connection, stream, reply)
        return reply

    def _check_above(self, connection: Connection, stream: bytes, share: Share, reply: Any) -> None:
        """Refuse a first ID that is not above the stream's last one."""
        if isinstance(reply, Refused):  # no such key
            return
        last = StreamID.parse(reply[reply.index(b"last-generated-id") + 1].decode())
        if share.first_id is not None and share.first_id <= last:
            problem = f"ERR The ID specified in XADD is equal or smaller than the stream's last one, {last}"
            raise self.refusal(connection, stream, problem, share.first_id)

    def _commit(self, stream: bytes, share: Share, state: str) -> None:
        """Make everything packed so far be in the stream, or find that another attempt has done so."""
        connection = self.servers.connection(stream)
        replies = self.replies(connection)
        progress = share.progress(state)
        notes = share.record.note(progress)
        for data, commands in share.kept:
            self._queue(stream, share, data, commands)
        self._queue(stream, share, b"".join([pack(*words) for words in notes]), len(notes))
        while share.unanswered:
            self._answered(stream, share, connection)
        share.open = False
        if share.told != share.known:
            connection.send(pack(b"DISCARD"))
            self._accepted(connection, stream, replies.reply())
            self._overtaken(stream, share, share.told)
            return
        connection.send(pack(b"EXEC"))
        if not replies.starts_with(b"*"):
            raise self.refusal(connection, stream, replies.reply())
        if replies.line() == b"*-1":
            self._overtaken(stream, share, share.record.told(connection.call(*share.record.look())))
            return
        lines = 2 * share.commands + len(notes)
        if left := replies.skip(lines):
            raise self._torn(connection, stream, share, (lines - left) // 2, len(notes))
        share.committed(progress)

    def _torn(self, connection: Connection, stream: bytes, share: Share, before: int, notes: int) -> ConnectorError:
        """Take a transaction back from the record, some of whose rows were refused; return the error."""
        rest = [self.replies(connection).reply() for _ in range(share.commands + notes - before)]
        refused = [reply for reply in rest if isinstance(reply, Refused)]
        known = share.known if len(refused) == share.commands else share.progress("torn")
        self.servers.calls(stream, [(b"MULTI",), *share.record.note(known), (b"EXEC",)])
        return self.refusal(connection, stream, refused[0])

    def _overtaken(self, stream: bytes, share: Share, told: Progress | None) -> None:
        """Find this attempt's place in what another attempt has written meanwhile."""
        if told is None:
            share.closed = True
            return
        self._check_torn(stream, told)
        if told == share.known and self.options.id_column:
            raise ConnectorError(
                f"rillet: somebody else appended to {shown(stream)} meanwhile, and with an idColumn the IDs must rise: "
                f"write one partition, sorted"
            )
        if told.state == "part" and told.rows < share.rows:
            raise ConnectorError(
                f"rillet: another attempt of {self._task()} wrote to {shown(stream)} at the same moment and is not as "
                f"far as this one: it has to be run again"
            )
        share.committed(told)
        if told.state == "part" and told.rows == share.rows:
            self._compare(stream, share)

    def finish(self) -> dict[bytes, int]:
        """Commit what is left; return rows by stream."""
        for stream, packer in self.packers.items():
            self.chunk(stream, packer)
        for stream, share in self.shares.items():  # all of them before the first is written
            self._check_whole(stream, share)
        for stream, share in self.shares.items():
            while share.rows and not share.closed and share.known.state != "done":
                self._commit(stream, share, "done")
            self._check_whole(stream, share)
        return self.rows

    def _check_whole(self, stream: bytes, share: Share) -> None:
        """Refuse a task whose rows are others than those that the record speaks of."""
        known = share.known
        same = share.rows == known.rows and share.size == known.size
        if self.layout.by_turns and share.digest.hexdigest() != known.digest:
            same = False
        if not share.closed and (share.rows < known.rows or (known.state == "done" and not same)):
            raise self._other_rows(stream, share)
