"""Writes rows exactly once: each transaction also stores its progress in a commit record (commits.py).

    TransactionSender       writes the rows of a task
        TaskTransactions    the task's rows for one stream: how many are packed, and how many are committed
            Transaction     WATCH HMGET MULTI  XADD ... XADD  HSET SET  EXEC    (client/transaction.py)

The rows of many streams, whose names are in a column, share transactions (many_streams.py).

The rows of a single stream are sent into the open transaction chunk by chunk, while more rows are packed. EXEC follows
at transactionBytes or at the end. If a task's rows go to several streams, only one transaction can be open at a time:
the chunks are kept until they add up to transactionBytes, then each stream gets its transaction.

**Memory.** The chunks of a transaction are kept until the reply to EXEC: transactionBytes plus one chunk. The server
queues the same commands as objects, which takes about three times as many bytes per task.

**Lost connections and redirections** (MOVED, TRYAGAIN and so on) end the open transaction. The commit record then shows
whether the server executed the transaction. If not, the task sends the transaction again, until `timeout`. Any other
error reply ends the task.

**Errors inside EXEC.** Two errors occur only when EXEC runs: XADD to a key of another type, and XADD with an ID that is
not above the stream's last ID. Redis then executes the other commands of the transaction, including the record. So the
task checks the key's type first. With an idColumn, each ID must be larger than the previous ID and than the stream's
last ID, and the task watches the stream until EXEC. If the server still rejects a row, the task corrects the commit
record at once: it resets the record if no row was written, and marks it as `torn` otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from xxhash import xxh3_64

from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.protocol import pack_all
from rillet.client.servers import Servers
from rillet.client.transaction import NotQueued, Transaction, multi_exec, retry
from rillet.columns.row_packing import RowPacker
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options
from rillet.spark.write.commits import CommitProgress, Identity, Record, shown
from rillet.spark.write.row_encoder import RowEncoder, ids_that_rise
from rillet.spark.write.writer import Sender, append_words, refusal
from rillet.types.stream.id import StreamID

NO_ID = StreamID(0, 0)
MAX_CONFLICTS = 100  # maximum number of consecutive transactions that another client makes fail
Result = TypeVar("Result")


class Chunk(NamedTuple):
    """Packed XADD commands, and the task's rows up to the end of this chunk: their number, their bytes and digest."""

    data: bytes | bytearray
    commands: int
    rows: int
    size: int
    digest: str
    first_id: StreamID | None = None  # the ID of the chunk's first row, with an idColumn


class TaskTransactions:
    """A write task's rows for one stream: how many are packed, and how many are in the stream."""

    def __init__(self, servers: Servers, record: Record, recorded: CommitProgress | None, reads_ids: bool) -> None:
        self.stream = record.stream
        self.record = record
        self.transaction = Transaction(servers, record.stream)
        self.reads_ids = reads_ids  # whether transactions also watch and read the stream's last ID
        self.batch = record.identity.batch
        self.recorded = recorded or CommitProgress(self.batch)
        self.closed = recorded is None  # the batch was complete before: only count rows
        self.rows = self.size = 0
        self.digest = xxh3_64()
        self.at = Chunk(b"", 0, 0, 0, self.digest.hexdigest())  # the last chunk that was kept or committed
        self.kept: list[Chunk] = []  # uncommitted chunks
        self.sent = 0  # How many kept chunks are in the open transaction.
        self._opening: tuple[CommitProgress | None, StreamID] | None = None
        self.first_id: StreamID | None = None  # the first ID in the kept chunks
        self.packed_first_id: StreamID | None = None  # the first ID in the packer
        self.last_id = NO_ID
        self.conflicts = 0  # consecutive transactions that another client made fail

    def set_recorded(self, progress: CommitProgress) -> None:
        """Store the committed progress and discard the kept chunks, because all their rows are in the stream."""
        self.recorded = progress
        self.kept.clear()
        self.first_id = None
        self.conflicts = 0

    def progress(self, state: str) -> CommitProgress:
        """Return the progress that the next transaction will store in the commit record."""
        return CommitProgress(self.batch, self.at.rows, self.at.size, self.at.digest, state)

    def take_chunk(self, packer: RowPacker, trimming: bytes) -> Chunk:
        """Return the packed commands as a chunk; `trimming`: the bytes of XADD's trim arguments."""
        commands = packer.commands
        data = packer.take_bytes()
        # The digests omit the trim arguments: after a restart, MINID may differ although the rows are equal.
        hashed = data.replace(trimming, b"") if trimming else data
        self.digest.update(hashed)
        self.size += len(hashed)
        first, self.packed_first_id = self.packed_first_id, None
        return Chunk(data, commands, self.rows, self.size, self.digest.hexdigest(), first)

    def send_kept(self) -> None:
        """Send the kept chunks of XADD commands that the open transaction lacks; begin one if none is open."""
        if not self.transaction.open:
            self.sent = 0
            watched = (self.record.fence, self.stream) if self.reads_ids else (self.record.fence,)
            reads = [self.record.look()] + ([(b"XINFO", b"STREAM", self.stream)] if self.reads_ids else [])
            self.transaction.begin(watched, reads)
            self._opening = None
        while self.sent < len(self.kept):
            self.transaction.send(*self.kept[self.sent][:2])
            self.sent += 1
            if self.sent > 1:
                self.opening()  # read these replies, so that `send` can read the QUEUED replies

    def opening(self) -> tuple[CommitProgress | None, StreamID]:
        """Return the commit record and the stream's last ID, as read at the start of the open transaction."""
        if self._opening is not None:
            return self._opening
        reply, *info = self.transaction.opening()
        if isinstance(reply, ReplyError):
            raise ConnectorError(str(reply), str(reply))
        last_id = NO_ID
        if info and not isinstance(info[0], ReplyError):  # XINFO replies with an error if the key does not exist
            last_id = StreamID.parse(info[0][info[0].index(b"last-generated-id") + 1])
        self._opening = self.record.progress(reply), last_id
        return self._opening


class TransactionSender(Sender):
    """Writes a task's rows exactly once, however often the task runs."""

    def __init__(self, servers: Servers, options: Options, layout: RowEncoder, identity: Identity) -> None:
        super().__init__(servers, options, layout, identity.partition)
        self.identity = identity
        self.shares: dict[bytes, TaskTransactions] = {}
        self.pending = 0  # Bytes of packed rows that may not be in a stream yet.
        self.trimming = b"".join([b"$%d\r\n%b\r\n" % (len(one), one) for one in append_words(options, b"")[2:]])
        for stream in layout.streams() if layout.by_turns else ():
            self.begin(stream)

    # ---- rows of earlier attempts ----

    def begin(self, stream: bytes) -> None:
        """Read the commit record of a stream: how many rows earlier attempts have written."""
        if stream in self.shares:
            return
        record = Record(stream, self.identity)

        def look() -> CommitProgress | None:
            self.check_type(stream)
            return record.progress(self.servers.call(record.key, *record.look()))

        recorded = retry(self.servers, look)
        self._check_torn(stream, recorded)
        self.shares[stream] = TaskTransactions(self.servers, record, recorded, self.options.id_column is not None)

    def bound(self, stream: bytes, row: int, stop: int) -> int:
        """Return the end of the rows that the commit record counts: packing pauses there to compare the digest."""
        share = self.shares[stream]
        left = share.recorded.rows - share.rows
        return min(stop, row + left) if left > 0 else stop

    def packed(self, stream: bytes, packer: RowPacker, rows: Any, start: int, stop: int) -> None:
        """Count packed rows and check their IDs; compare the digest after the rows that the commit record counts."""
        share = self.shares[stream]
        share.rows += stop - start
        if share.closed:
            return
        if share.rows > share.recorded.rows:
            if share.recorded.state == "done":
                raise self._other_rows(share)
            if self.options.id_column:
                column = rows.column(self.options.id_column).slice(start, stop - start)
                first, share.last_id = ids_that_rise(column, self.options.id_column, share.last_id)
                share.packed_first_id = share.packed_first_id or first
        elif share.rows == share.recorded.rows:
            self.chunk(stream, packer)
            if share.recorded.state == "part":
                self._compare(share)

    # ---- sending transactions ----

    def chunk(self, stream: bytes, packer: RowPacker) -> None:
        """Keep a chunk of XADD commands for the next commit, unless its rows are already in the stream."""
        if not packer.used:
            return
        share = self.shares[stream]
        chunk = share.take_chunk(packer, self.trimming)
        if share.closed or chunk.rows <= share.recorded.rows:  # the stream has these rows already
            share.at = chunk
            return
        self.keep(share, chunk)

    def keep(self, share: TaskTransactions, chunk: Chunk) -> None:
        """Keep a chunk for the next commit; send it ahead if it belongs to the only stream."""
        share.at = chunk
        share.kept.append(chunk)
        share.first_id = share.first_id or chunk.first_id
        self.pending += len(chunk.data)
        if self.layout.single:
            self._send_ahead(share)
        if self.pending >= self.options.transaction_bytes:
            self._commit_all("part")

    def _send_ahead(self, share: TaskTransactions) -> None:
        """Send kept chunks into the open transaction before EXEC; after a failure, `_commit` sends them again."""
        if share.sent < len(share.kept) - 1 and not share.transaction.open:
            return  # the connection was lost; `_commit` waits for the server
        try:
            self._naming(share, share.send_kept)
        except (ConnectionLost, NotQueued):
            share.transaction.forget()

    def _commit_all(self, state: str) -> None:
        """Commit the kept chunks of all streams; with round-robin rows, only after all recorded rows are packed."""
        if self.layout.by_turns and any(share.rows < share.recorded.rows for share in self.shares.values()):
            return
        for share in self.shares.values():
            if share.kept:
                self._commit(share, state)
        self.pending = 0

    def _commit(self, share: TaskTransactions, state: str) -> None:
        """Commit a stream's kept chunks; return when any attempt of the task has written all packed rows."""

        def attempt() -> bool:
            try:
                return self._naming(share, lambda: self._try(share, share.progress(state)))
            except (ConnectionLost, NotQueued):
                share.transaction.forget()
                raise

        while not retry(self.servers, attempt, share.stream):
            if self._overtaken(share):
                return

    def _try(self, share: TaskTransactions, progress: CommitProgress) -> bool:
        """Send EXEC for a transaction; return False if another attempt of the task wrote to the stream meanwhile."""
        share.send_kept()
        notes = share.record.note(progress)
        recorded, last_id = share.opening()
        share.transaction.send(pack_all(notes), len(notes))
        share.transaction.settle()
        if recorded != share.recorded:
            share.transaction.discard()
            return False
        if share.first_id is not None and share.first_id <= last_id:
            if share.conflicts:
                raise self._conflict(share)
            problem = f"ERR The ID specified in XADD is equal or smaller than the stream's last one, {last_id}"
            raise refusal(self.servers.connection(share.stream), share.stream, problem, share.first_id)
        errors = self.execute(share, len(notes))
        if errors is None:
            return False
        if errors:
            raise self._torn(share, errors, sum(chunk.commands for chunk in share.kept))
        share.set_recorded(progress)
        return True

    def execute(self, share: TaskTransactions, notes: int) -> list[ReplyError] | None:
        """Execute the open transaction: the kept chunks and `notes` commands after them; see Transaction.execute."""
        return share.transaction.execute(sum(chunk.commands for chunk in share.kept), notes)

    def _naming(self, share: TaskTransactions, action: Callable[[], Result]) -> Result:
        """Call a function; add the stream's name to the error if the server replies with one."""
        try:
            return action()
        except (ConnectionLost, NotQueued):
            raise
        except ConnectorError as error:
            if not error.line:
                raise
            raise refusal(self.servers.connection(share.stream), share.stream, error.line) from None

    def finish(self) -> dict[bytes, int]:
        """Commit the task's remaining rows; return the number of rows that the task wrote to each stream."""
        for stream, packer in self.packers.items():
            self.chunk(stream, packer)
        for share in self.shares.values():  # check all streams before writing to any
            self._check_whole(share)
        for share in self.shares.values():
            while share.rows and not share.closed and share.recorded.state != "done":
                self._commit(share, "done")
            self._check_whole(share)
        return self.rows

    # ---- conflicts and errors ----

    def _overtaken(self, share: TaskTransactions) -> bool:
        """Skip the rows that another attempt of the task wrote meanwhile; return False if it wrote no row."""
        record = share.record
        progress = retry(self.servers, lambda: record.progress(self.servers.call(record.key, *record.look())))
        if progress is None:
            share.closed = True
            share.set_recorded(share.recorded)
            return True
        self._check_torn(share.stream, progress)
        if progress == share.recorded:
            share.conflicts += 1
            if self.options.id_column and share.conflicts == MAX_CONFLICTS:
                raise self._conflict(share)
            return False
        if progress.state == "part" and progress.rows < share.recorded.rows:
            where = str(self.servers.connection(share.stream).address)
            raise ConnectorError(
                f"rillet: {where} lost rows of {shown(share.stream)} that {self._task()} had written: it restarted or "
                f"failed over without its last writes; Spark must run the task again"
            )
        if progress.state == "part" and progress.rows < share.at.rows:
            raise ConnectorError(
                f"rillet: another attempt of {self._task()} wrote to {shown(share.stream)} at the same time and has "
                f"written fewer rows than this attempt; Spark must run the task again"
            )
        share.set_recorded(progress)
        if progress.state == "part" and progress.rows == share.at.rows:
            self._compare(share)
        return True

    def _conflict(self, share: TaskTransactions) -> ConnectorError:
        return ConnectorError(
            f"rillet: another client appended to {shown(share.stream)} during the write, but with an idColumn the IDs "
            f"must rise: write a single partition, sorted by ID, while no other client appends"
        )

    def _torn(self, share: TaskTransactions, errors: list[ReplyError], rows: int) -> ConnectorError:
        """Correct the commit record after the server rejected rows inside EXEC; return the error to raise."""
        recorded = share.recorded if len(errors) == rows else share.progress("torn")
        multi_exec(self.servers, share.stream, share.record.note(recorded))
        return self.refused(share, errors[0])

    def refused(self, share: TaskTransactions, error: ReplyError) -> ConnectorError:
        """Return the error for a row that the server rejected inside EXEC."""
        if self.options.partitioned_stream is not None:
            from rillet.store.partitions.layout import is_sealed  # other workers import nothing of the store

            if is_sealed(error):
                return ConnectorError(
                    f"rillet: the number of partitions of {self.options.partitioned_stream!r} has changed, so "
                    f"{shown(share.stream)} accepts no row any more: start the query again"
                )
        return refusal(self.servers.connection(share.stream), share.stream, str(error))

    def _check_torn(self, stream: bytes, recorded: CommitProgress | None) -> None:
        if recorded is not None and recorded.state == "torn":
            raise ConnectorError(
                f"rillet: an earlier attempt of {self._task()} was rejected in the middle of a transaction, so only "
                f"some of its rows are in {shown(stream)}; the task cannot be completed"
            )

    def _compare(self, share: TaskTransactions) -> None:
        if share.at.digest != share.recorded.digest:
            raise ConnectorError(
                f"rillet: {self._task()} wrote {share.recorded.rows} rows to {shown(share.stream)} before it failed, "
                f"and now the rows are in another order: sort them within the partition, or set transactionBytes to "
                f"more than the size of the task"
            )

    def _check_whole(self, share: TaskTransactions) -> None:
        """Raise ConnectorError if the task's rows differ from those in the commit record."""
        recorded = share.recorded
        same = share.rows == recorded.rows and share.size == recorded.size
        if self.layout.by_turns and share.digest.hexdigest() != recorded.digest:
            same = False
        if not share.closed and (share.rows < recorded.rows or (recorded.state == "done" and not same)):
            raise self._other_rows(share)

    def _other_rows(self, share: TaskTransactions) -> ConnectorError:
        return ConnectorError(
            f"rillet: {self._task()} wrote {share.recorded.rows} rows to {shown(share.stream)} before, and now it has "
            f"other rows: a batch can only be repeated with the same rows in each task"
        )

    def _task(self) -> str:
        return f"task {self.identity.partition} of batch {self.identity.batch}"
