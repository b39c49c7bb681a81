"""Writes rows exactly once into many streams, whose names are in a column: streams of a server share transactions.

    TYPE a  TYPE b ...                                                  for all streams of a record batch, one pipeline
    WATCH fence  HMGET record done 3  MULTI  XADD a ... XADD b ... XADD a ...  HSET record 3 ...  SET fence ...  EXEC

So a task has one commit record (commits.py) for all of its streams, not one for each. Its `rows` are the first rows of
the task, of whichever stream. In a cluster, a transaction has the keys of one slot, so the streams of a slot share
transactions and a record. The name of such a group of streams is a key in its slot:

    rillet:streams{<tag>}.<stream>      tag: 0 on a single server, else the hash tag of the slot; stream: the option

Rows keep their order, so the entries of each stream are in the order of the task's rows.

Three kinds of writes use a record for each stream instead (transactions.py). With an idColumn, the last ID of each
stream matters. A write with txnAppId may share this name with another write, into other streams. And rows that are
distributed by turns, or to a partitioned stream of the library, go to a few streams.

**Errors inside EXEC.** Types are checked before. If another client replaces a stream by a key of another type at this
moment, only some rows of the transaction are written, and the record is marked as `torn`.

Rejected: transactions for a group of streams by their first rows (each attempt would have other groups); a pipeline of
transactions of several slots (EXEC ends WATCH for all of them).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rillet.client.cluster import slot_of
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.reply_stream import ReplyStream
from rillet.client.servers import IN_FLIGHT, Servers
from rillet.client.transaction import retry
from rillet.columns.command_packing import pack_keys
from rillet.columns.row_packing import RowPacker
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.write.commits import (
    Identity,
    Record,
    group_name,
    shown,
)
from rillet.spark.write.row_encoder import RowEncoder
from rillet.spark.write.transactions import TaskTransactions, TransactionSender
from rillet.spark.write.writer import another_type, append_words, refusal, word_in

if TYPE_CHECKING:
    from rillet.spark.options import Options

_NAME = "__rillet_stream"  # the column of the streams' names


class GroupedRows:
    """Divides the rows of a task among groups of streams; has the methods of a RowEncoder that a sender uses."""

    single = by_turns = False

    def __init__(self, encoder: RowEncoder, cluster: bool) -> None:
        self.encoder = encoder
        self.cluster = cluster

    def streams(self) -> list[bytes]:
        """Return no stream: rows name them."""
        return []

    def group_of(self, stream: bytes) -> bytes:
        """Return the group of a stream."""
        return group_name(self.encoder.stream, slot_of(stream) if self.cluster else None)

    def with_names(self, batch: Any) -> Any:
        """Return a record batch with the streams' names as a last column, in Arrow's dictionary encoding."""
        import pyarrow as pa

        names, codes = self.encoder.codes(batch)
        column = pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.binary()))
        return pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, _NAME])

    @staticmethod
    def counts(batch: Any) -> dict[bytes, int]:
        """Return the number of rows of each stream."""
        import pyarrow.compute as pc

        column = batch.column(_NAME)
        names = column.dictionary.to_pylist()
        counted = pc.value_counts(column.indices)
        places, numbers = counted.field(0).to_pylist(), counted.field(1).to_pylist()
        return {names[place]: rows for place, rows in zip(places, numbers, strict=True)}

    def shares(self, batch: Any, turn: int) -> Iterator[tuple[bytes, Any]]:
        """Yield each group with its rows of a record batch, in order."""
        if not self.cluster:
            yield self.group_of(b""), batch
            return
        import pyarrow as pa
        import pyarrow.compute as pc

        column = batch.column(_NAME)
        slots = pa.array([slot_of(name) for name in column.dictionary.to_pylist()], pa.int32()).take(column.indices)
        order = pc.sort_indices(slots)
        slots, batch = slots.take(order), batch.take(order)
        at = 0
        for pair in pc.value_counts(slots).to_pylist():
            yield group_name(self.encoder.stream, pair["values"]), batch.slice(at, pair["counts"])
            at += pair["counts"]

    def load(self, packer: RowPacker, batch: Any, ids: Any) -> None:
        """Load the columns of a record batch, whose names `with_names` has added, into a packer."""
        self.encoder.load(packer, batch, ids, batch.column(_NAME).dictionary_decode())


class ManyStreamsSender(TransactionSender):
    """Writes a task's rows exactly once, in transactions that the streams of a server or slot share."""

    def __init__(self, servers: Servers, options: Options, layout: RowEncoder, identity: Identity) -> None:
        self.grouping = GroupedRows(layout, servers.is_cluster)
        super().__init__(servers, options, self.grouping, identity)  # type: ignore[arg-type]
        self.seen: dict[bytes, int] = {}  # by stream: the number of rows
        self.checked: set[bytes] = set()  # streams that `_look` has looked at
        self._failed = b""

    # ---- what is there before --------------------------------------------------------------------------------------

    def send(self, batch: Any) -> None:
        """Pack the rows of a record batch as XADD commands, and send transactions that are full."""
        if not batch.num_rows:
            return
        named = self.grouping.with_names(batch)
        counts = self.grouping.counts(named)
        self._look(counts)
        for stream, rows in counts.items():
            self.seen[stream] = self.seen.get(stream, 0) + rows
        super().send(named)

    def _look(self, named: Iterable[bytes]) -> None:
        """Begin the groups of streams, and check their types, once for each stream."""
        streams = [stream for stream in named if stream not in self.checked]
        if not streams:
            return
        groups = dict.fromkeys(map(self.grouping.group_of, streams if self.grouping.cluster else streams[:1]))
        if new := [group for group in groups if group not in self.shares]:
            retry(self.servers, partial(self._begin_groups, new))
        retry(self.servers, partial(self._check_types, streams))
        self.checked.update(streams)

    def _begin_groups(self, groups: Sequence[bytes]) -> None:
        records = [Record(group, self.identity) for group in groups]
        replies = self.servers.each([(record.key, record.look()) for record in records])
        for record, reply in zip(records, replies, strict=True):
            if isinstance(reply, ReplyError):
                raise ConnectorError(f"rillet: {self.servers} refused to read {record.key!r}: {reply}", str(reply))
            recorded = record.progress(reply)
            self._check_torn(record.stream, recorded)
            self.shares[record.stream] = TaskTransactions(self.servers, record, recorded, False)

    def _check_types(self, streams: Sequence[bytes]) -> None:
        """Raise ConnectorError if a key holds another type than a stream."""
        if not self.grouping.cluster and self._has_streams_only(streams):
            return
        for stream, kind in zip(streams, self._each([(b"TYPE", stream) for stream in streams]), strict=True):
            if kind not in (b"stream", b"none"):
                raise another_type(self.servers, stream, kind)

    def _has_streams_only(self, streams: Sequence[bytes]) -> bool:
        """Return whether the keys of a single server are streams or missing; 0.3 us for a key."""
        connection = self.servers.connection(b"")
        replies = ReplyStream(connection)
        kinds: set[bytes] = set()
        try:
            for at in range(0, len(streams), IN_FLIGHT):
                some = list(streams[at : at + IN_FLIGHT])
                connection.send(pack_keys([(b"*2\r\n$4\r\nTYPE\r\n", b"")], some))
                kinds.update(replies.lines(len(some)))
        except ConnectionLost:
            self.servers.forget(connection)
            raise
        return kinds <= {b"+stream", b"+none"}

    def _each(self, commands: Sequence[tuple[bytes, ...]]) -> list[Any]:
        replies = self.servers.each([(words[1], words) for words in commands])
        for words, reply in zip(commands, replies, strict=True):
            if isinstance(reply, ReplyError):
                raise ConnectorError(f"rillet: {self.servers} refused {words[0].decode()} {shown(words[1])}: {reply}",
                                     str(reply))  # fmt: skip
        return replies

    # ---- transactions ----------------------------------------------------------------------------------------------

    def check_type(self, stream: bytes) -> None:
        """Do nothing: the name of a group is not a key of the user."""

    def packer(self, stream: bytes) -> RowPacker:
        """Return a packer for the XADD commands of rows that name their streams."""
        return RowPacker(append_words(self.options, b""))

    def finish(self) -> dict[bytes, int]:
        """Commit the task's remaining rows; return the number of rows that the task wrote to each stream."""
        super().finish()
        return self.seen

    def groups(self) -> dict[bytes, int]:
        """Return the number of rows of each group."""
        return self.rows

    def execute(self, share: TaskTransactions, notes: int) -> list[ReplyError] | None:
        """Execute the open transaction; note the stream of the first XADD that fails."""
        appends = sum(chunk.commands for chunk in share.kept)
        self._failed = b""

        def before(lines: int) -> int:
            place = min(lines // 2, appends)
            if place < appends:
                self._failed = self._stream_of(share, place)
            return place + max(lines - 2 * appends, 0)

        return share.transaction.execute_lines(2 * appends + notes, before)

    @staticmethod
    def _stream_of(share: TaskTransactions, place: int) -> bytes:
        """Return the stream of the n-th XADD in the kept chunks."""
        for chunk in share.kept:
            if place < chunk.commands:
                return word_in(chunk.data, place, 1)
            place -= chunk.commands
        return b""

    def refused(self, share: TaskTransactions, error: ReplyError) -> ConnectorError:
        """Return the error for a row that the server rejected inside EXEC; it names the stream."""
        return refusal(self.servers.connection(share.stream), self._failed or share.stream, str(error))
