"""Rows into streams exactly once: transactions that write down what they wrote. commits.py has the records, and why.

    TransactionSender    a task; what of it is in the streams already, and what is to be done now
        Share            its rows of one stream: packed, and known to be there
            Wire         WATCH HMGET MULTI  XADD ... XADD  HSET SET  EXEC    of that stream, on its connection

Rows that go to one stream are sent into the open transaction chunk by chunk while more are packed; at transactionBytes,
or at the end, EXEC makes them count. A task whose rows go to several streams can have one transaction open at a time,
so its chunks wait until they are transactionBytes in all; then each stream gets its transaction.

**Memory.** The chunks of a transaction are kept here until EXEC is answered: transactionBytes and one chunk. The server
holds as much again for each task, queued, with the space that its words take as objects (about three times the bytes).

**A lost connection, MOVED, TRYAGAIN and their like** end a transaction that was open. The record then tells whether it
counted, and if not it is sent again, for as long as the option `timeout` says. A refusal ends the task.

**What can be refused inside EXEC**, after everything was queued: an XADD whose key holds another type, and one whose
ID does not rise. Redis then runs the other commands all the same, the record among them. So the type is looked at
before, and with an idColumn the IDs must rise among themselves and above the stream's last ID, which is watched until
EXEC. What is refused nevertheless is taken back from the record at once (nothing was written) or marked there as torn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from xxhash import xxh3_64

from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.protocol import pack
from rillet.client.redirection import Patience
from rillet.client.servers import Servers
from rillet.columns.row_packing import RowPacker
from rillet.spark.options import Options
from rillet.spark.write.commits import CommitProgress, Identity, Record, shown
from rillet.spark.write.row_encoder import RowEncoder, ids_that_rise
from rillet.spark.write.writer import Refused, ReplyStream, Sender, append_words, refusal
from rillet.types.stream.id import StreamID

LATER = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN")
NOTHING = StreamID(0, 0)
DISTURBED = 100  # transactions that fail one after the other because somebody else trims or deletes all the time
Result = TypeVar("Result")


class Again(ConnectorError):
    """The server could not take it now, or is not the right one any more; nothing was written."""

    def __init__(self, error: ConnectorError, line: str) -> None:
        super().__init__(str(error))
        self.line = line


class Wire:
    """The transactions of one stream: one after the other, each on the connection that serves the stream then."""

    def __init__(self, servers: Servers, stream: bytes, record: Record, looks_at_ids: bool) -> None:
        self.servers = servers
        self.stream = stream
        self.record = record
        self.looks_at_ids = looks_at_ids
        self.told: CommitProgress | None = None  # what the record said when the transaction began
        self.last_id = NOTHING  # and the stream, with looks_at_ids
        self._connection: Connection | None = None
        self._unanswered: deque[int | None] = deque()  # commands of each chunk; None for the opening

    @property
    def open(self) -> bool:
        """Whether a transaction has begun."""
        return self._connection is not None

    def begin(self) -> None:
        """Send what comes before the rows."""
        self._connection = self.servers.connection(self.stream)
        self._replies = ReplyStream(self._connection)
        self._unanswered.clear()
        watched = (self.record.fence, self.stream) if self.looks_at_ids else (self.record.fence,)
        opening: list[tuple[bytes, ...]] = [(b"WATCH", *watched), self.record.look()]
        if self.looks_at_ids:
            opening.append((b"XINFO", b"STREAM", self.stream))
        self._connection.send(b"".join([pack(*words) for words in (*opening, (b"MULTI",))]))
        self._unanswered.append(None)

    def send(self, data: bytes | bytearray, commands: int) -> None:
        """Send commands into the transaction; the replies of the chunk before are read."""
        assert self._connection is not None
        self._connection.send(data)
        self._unanswered.append(commands)
        while len(self._unanswered) > 2:
            self._answer()

    def settle(self) -> None:
        """Wait until everything that was sent is queued."""
        while self._unanswered:
            self._answer()

    def _answer(self) -> None:
        commands = self._unanswered.popleft()
        if commands is not None:
            if self._replies.skip(commands):
                raise self._refused(self._replies.reply())
            return
        self._accepted()  # WATCH
        self.told = self.record.told(self._accepted())
        if self.looks_at_ids:
            told = self._replies.reply()  # an error: there is no such key
            place = None if isinstance(told, Refused) else told.index(b"last-generated-id")
            self.last_id = NOTHING if place is None else StreamID.parse(told[place + 1].decode())
        self._accepted()  # MULTI

    def _accepted(self) -> Any:
        reply = self._replies.reply()
        if isinstance(reply, Refused):
            raise self._refused(reply)
        return reply

    def _refused(self, line: str) -> ConnectorError:
        assert self._connection is not None
        error = refusal(self._connection, self.stream, line)
        return Again(error, line) if line.startswith(LATER) else error

    def discard(self) -> None:
        """Give the queued commands up."""
        assert self._connection is not None
        self._connection.send(pack(b"DISCARD"))
        self._accepted()
        self._connection = None

    def execute(self, rows: int, notes: int) -> list[Refused] | None:
        """Carry out `rows` XADDs and the notes behind them; return the refusals, None where a watched key changed."""
        assert self._connection is not None
        self._connection.send(pack(b"EXEC"))
        if not self._replies.starts_with(b"*"):
            raise self._refused(self._replies.reply())
        counted = self._replies.line() != b"*-1"
        refused: list[Refused] = []
        if counted and (left := self._replies.skip(2 * rows + notes)):
            before = (2 * rows + notes - left) // 2
            replies = [self._replies.reply() for _ in range(rows + notes - before)]
            refused = [reply for reply in replies if isinstance(reply, Refused)]
        self._connection = None
        return refused if counted else None

    def forget(self) -> None:
        """Close the connection of the open transaction, whatever is on its way there."""
        if self._connection is not None:
            self.servers.forget(self._connection)
            self._connection = None


class TaskTransactions:
    """A task's rows of one stream: how far they are packed, and how far they are in the stream."""

    def __init__(self, stream: bytes, wire: Wire, known: CommitProgress | None) -> None:
        self.stream = stream
        self.wire = wire
        self.batch = wire.record.identity.batch
        self.known = known or CommitProgress(self.batch)
        self.closed = known is None  # the whole batch is complete: rows are only counted
        self.rows = self.size = 0
        self.digest = xxh3_64()
        self.kept: list[
            tuple[bytearray, int]
        ] = []  # chunks, with their commands, that are not known to be in the stream
        self.sent = 0  # how many of them are in the open transaction
        self.first_id: StreamID | None = None  # of them
        self.last_id = NOTHING
        self.disturbed = 0  # how often somebody else has changed the stream since it was watched

    def known_to_be(self, progress: CommitProgress) -> None:
        """Take note of what the record says now, when all that is packed is in the stream or was overtaken."""
        self.known = progress
        self.kept.clear()
        self.first_id = None
        self.disturbed = 0

    def progress(self, state: str) -> CommitProgress:
        """Return what the record will say."""
        return CommitProgress(self.batch, self.rows, self.size, self.digest.hexdigest(), state)

    def send_kept(self) -> None:
        """Send what is kept and not sent yet into the transaction."""
        if not self.wire.open:
            self.sent = 0
            self.wire.begin()
        while self.sent < len(self.kept):
            self.wire.send(*self.kept[self.sent])
            self.sent += 1


class TransactionSender(Sender):
    """Writes a task's rows exactly once, however often the task runs."""

    def __init__(self, servers: Servers, options: Options, layout: RowEncoder, identity: Identity) -> None:
        super().__init__(servers, options, layout, identity.partition)
        self.identity = identity
        self.shares: dict[bytes, TaskTransactions] = {}
        self.pending = 0  # bytes that are packed and not in a stream
        # Not in digests: a bound like "a week ago" is another one after a restart, and the rows are the same.
        self.trimming = b"".join([b"$%d\r\n%b\r\n" % (len(one), one) for one in append_words(options, b"")[2:]])
        for stream in layout.streams() if layout.by_turns else ():
            self.begin(stream)

    # ---- what is there already ----

    def begin(self, stream: bytes) -> None:
        """Look up what is in a stream already."""
        if stream in self.shares:
            return
        record = Record(stream, self.identity)

        def look() -> CommitProgress | None:
            super(TransactionSender, self).begin(stream)
            return record.told(self.servers.call(record.key, *record.look()))

        known = self._patiently(look)
        self._check_torn(stream, known)
        wire = Wire(self.servers, stream, record, self.options.id_column is not None)
        self.shares[stream] = TaskTransactions(stream, wire, known)

    def bound(self, stream: bytes, row: int, stop: int) -> int:
        """Pause where the recorded rows end, to compare the digest there."""
        share = self.shares[stream]
        left = share.known.rows - share.rows
        return min(stop, row + left) if left > 0 else stop

    def packed(self, stream: bytes, packer: RowPacker, rows: Any, start: int, stop: int) -> None:
        """Count rows, look at their IDs, and compare where the record ends."""
        share = self.shares[stream]
        share.rows += stop - start
        if share.closed:
            return
        if share.rows > share.known.rows:
            if share.known.state == "done":
                raise self._other_rows(share)
            if self.options.id_column:
                column = rows.column(self.options.id_column).slice(start, stop - start)
                first, share.last_id = ids_that_rise(column, self.options.id_column, share.last_id)
                share.first_id = share.first_id or first
        elif share.rows == share.known.rows:
            self.chunk(stream, packer)
            if share.known.state == "part":
                self._compare(share)

    # ---- on the way ----

    def chunk(self, stream: bytes, packer: RowPacker) -> None:
        """Keep a chunk, or send it into the open transaction; rows that are in the stream already only count."""
        if not packer.used:
            return
        share = self.shares[stream]
        commands = packer.commands
        data = packer.take()
        told = data.replace(self.trimming, b"") if self.trimming else data
        share.digest.update(told)
        share.size += len(told)
        if share.closed or share.rows <= share.known.rows:  # no chunk goes over the record's end, see `bound`
            return
        share.kept.append((data, commands))
        self.pending += len(data)
        if self.layout.single:
            self._send_ahead(share)
        if self.pending >= self.options.transaction_bytes:
            self._commit_all("part")

    def _send_ahead(self, share: TaskTransactions) -> None:
        """Send chunks into the open transaction; where that is not possible now, they are kept for `_commit`."""
        if share.sent < len(share.kept) - 1 and not share.wire.open:
            return  # what was open is gone; waiting for the server is left to `_commit`
        try:
            share.send_kept()
        except (ConnectionLost, Again):
            share.wire.forget()

    def _commit_all(self, state: str) -> None:
        """Commit what is kept; with rows dealt by turns, only when every record has been found to be of these rows."""
        if self.layout.by_turns and any(share.rows < share.known.rows for share in self.shares.values()):
            return
        for share in self.shares.values():
            if share.kept:
                self._commit(share, state)
        self.pending = 0

    def _commit(self, share: TaskTransactions, state: str) -> None:
        """Make everything that is packed be in the stream, or find that another attempt has done so."""

        def attempt() -> bool:
            try:
                return self._try(share, share.progress(state))
            except (ConnectionLost, Again):
                share.wire.forget()
                raise

        while not self._patiently(attempt, share.stream):
            if self._overtaken(share):
                return

    def _try(self, share: TaskTransactions, progress: CommitProgress) -> bool:
        """Send a transaction's end; False where another attempt has written meanwhile."""
        share.send_kept()
        notes = share.wire.record.note(progress)
        share.wire.send(b"".join([pack(*words) for words in notes]), len(notes))
        share.wire.settle()
        if share.wire.told != share.known:
            share.wire.discard()
            return False
        if share.first_id is not None and share.first_id <= share.wire.last_id:
            if share.disturbed:
                raise self._disturbed(share)
            problem = (
                f"ERR The ID specified in XADD is equal or smaller than the stream's last one, {share.wire.last_id}"
            )
            raise refusal(self.servers.connection(share.stream), share.stream, problem, share.first_id)
        rows = sum(commands for _, commands in share.kept)
        refused = share.wire.execute(rows, len(notes))
        if refused is None:
            return False
        if refused:
            raise self._torn(share, refused, rows)
        share.known_to_be(progress)
        return True

    def _patiently(self, what: Callable[[], Result], stream: bytes = b"") -> Result:
        """Do something again while servers come back or agree on who they are, up to the timeout."""
        patience = Patience(self.options.timeout)
        while True:
            try:
                return what()
            except ConnectionLost:
                if not patience.again():
                    raise
            except Again as error:
                if not self.servers.redirected(stream, error.line) or not patience.again():
                    raise

    def finish(self) -> dict[bytes, int]:
        """Commit what is left; return rows by stream."""
        for stream, packer in self.packers.items():
            self.chunk(stream, packer)
        for share in self.shares.values():  # all of them, before the first is written
            self._check_whole(share)
        for share in self.shares.values():
            while share.rows and not share.closed and share.known.state != "done":
                self._commit(share, "done")
            self._check_whole(share)
        return self.rows

    # ---- what is not as it should be ----

    def _overtaken(self, share: TaskTransactions) -> bool:
        """Find this attempt's place in what another attempt has written meanwhile; False where none has."""
        record = share.wire.record
        told = self._patiently(lambda: record.told(self.servers.call(record.key, *record.look())))
        if told is None:
            share.closed = True
            share.known_to_be(share.known)
            return True
        self._check_torn(share.stream, told)
        if told == share.known:
            share.disturbed += 1
            if self.options.id_column and share.disturbed == DISTURBED:
                raise self._disturbed(share)
            return False
        if told.state == "part" and told.rows < share.rows:
            raise ConnectorError(
                f"rillet: another attempt of {self._task()} wrote to {shown(share.stream)} at the same moment and is "
                f"not as far as this one: it has to be run again"
            )
        share.known_to_be(told)
        if told.state == "part" and told.rows == share.rows:
            self._compare(share)
        return True

    def _disturbed(self, share: TaskTransactions) -> ConnectorError:
        return ConnectorError(
            f"rillet: somebody else appended to {shown(share.stream)} meanwhile, and with an idColumn the IDs must "
            f"rise: write one partition, sorted"
        )

    def _torn(self, share: TaskTransactions, refused: list[Refused], rows: int) -> ConnectorError:
        """Take a transaction back from the record, some of whose rows were refused; return the error."""
        known = share.known if len(refused) == rows else share.progress("torn")
        self.servers.calls(share.stream, [(b"MULTI",), *share.wire.record.note(known), (b"EXEC",)])
        return refusal(self.servers.connection(share.stream), share.stream, refused[0])

    def _check_torn(self, stream: bytes, known: CommitProgress | None) -> None:
        if known is not None and known.state == "torn":
            raise ConnectorError(
                f"rillet: {self._task()} was refused in the middle of a transaction before, so some of its rows are in "
                f"{shown(stream)} and some are not: it cannot be completed"
            )

    def _compare(self, share: TaskTransactions) -> None:
        if share.digest.hexdigest() != share.known.digest:
            raise ConnectorError(
                f"rillet: {self._task()} wrote {share.known.rows} rows to {shown(share.stream)} before it failed, and "
                f"now they come in another order: sort them in the partition, or raise transactionBytes above its size"
            )

    def _check_whole(self, share: TaskTransactions) -> None:
        """Refuse a task whose rows are others than those that the record speaks of."""
        known = share.known
        same = share.rows == known.rows and share.size == known.size
        if self.layout.by_turns and share.digest.hexdigest() != known.digest:
            same = False
        if not share.closed and (share.rows < known.rows or (known.state == "done" and not same)):
            raise self._other_rows(share)

    def _other_rows(self, share: TaskTransactions) -> ConnectorError:
        return ConnectorError(
            f"rillet: {self._task()} wrote {share.known.rows} rows to {shown(share.stream)} before, and now it has "
            f"other rows: a batch can only be repeated in the same split into tasks"
        )

    def _task(self) -> str:
        return f"task {self.identity.partition} of batch {self.identity.batch}"
