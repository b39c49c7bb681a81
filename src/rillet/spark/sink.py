"""The writers that Spark calls: in tasks to append rows, and on the driver to complete a batch.

    driver      writer(schema)             checks options and schema; gives a df.write a unique name
    executors   writer.write(batches)      write/row_encoder.py converts rows to text, write/writer.py sends them
    driver      writer.commit(messages)    write/commits.py: marks the batch complete and removes its tasks' records

Writes are exactly once by default (exactlyOnce = auto means `transaction`); design note 0017 explains how. With
exactlyOnce = none, a task that Spark repeats appends its rows again.

With order = stream, a task appends its rows after those of all lower partitions (write/ordered.py). This is the default
for rows of a rillet source with one stream. A task learns this when its first rows arrive, because the reader of the
same task has started by then.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from rillet.client.servers import Servers
from rillet.client.transaction import retry
from rillet.loggers import logger
from rillet.spark.errors import plainly
from rillet.spark.options import READ_ONLY, OptionError, Options
from rillet.spark.spark_versions import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from rillet.spark.worker_socket import InTask
from rillet.spark.write.commits import (
    RESERVED,
    Identity,
    Written,
    give_up,
    group_name,
    name_in_keys,
    shown,
    task_identity,
)
from rillet.spark.write.copies import require_copies, require_servers
from rillet.spark.write.input_check import require_all_rows
from rillet.spark.write.many_streams import ManyStreamsSender
from rillet.spark.write.ordered import OrderedSender, append_all_aside, rows_in_order
from rillet.spark.write.producers import ProducerSender
from rillet.spark.write.query_record import TaskNotes, complete_batch, require_earlier_batches
from rillet.spark.write.row_encoder import RowEncoder
from rillet.spark.write.transactions import TransactionSender
from rillet.spark.write.writer import PlainSender, Sender

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rillet.store.partitions.layout import Layout

log = logger("spark")
MOST_NAMED = 20  # streams in a message


class RowsCommitted(WriterCommitMessage):
    """The message that a successful write task sends to the driver."""

    def __init__(self, written: Written) -> None:
        self.written = written


class _Writer(InTask):
    """The base class of the batch writer and the streaming writer."""

    query: str | None = None  # None: Spark's task properties contain the query's ID and the batch's number
    batch = 0
    lasting = True

    def __init__(self, options: Options, schema: StructType) -> None:
        with plainly():
            options.refuse(READ_ONLY, "writing")
            self.options = options
            self.layout = RowEncoder(options, schema, self._partitions(options))
            if options.exactly_once == "idmp" and options.id_column is not None:
                raise OptionError("rillet: leave out idColumn: with exactlyOnce=idmp the server generates the IDs")
            self.transactional = options.exactly_once in ("auto", "transaction")
            self.may_order = self.layout.single and self.transactional
            if options.order == "stream" and not self.layout.single:
                raise OptionError("rillet: order=stream needs a single stream: leave out partitioned and streamColumn")
            if options.order == "stream" and not self.may_order:
                raise OptionError(f"rillet: order=stream is not possible with exactlyOnce={options.exactly_once}")

    @staticmethod
    def _partitions(options: Options) -> Layout | None:
        """Return the description of the partitioned stream to write to, if the options name one."""
        if options.partitioned_stream is None:
            return None
        from rillet.spark.read.partitioned import description

        with Servers(options) as servers:
            return retry(servers, lambda: description(options, servers))

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Append the rows of a write task to their streams."""
        with plainly(), Servers(self.options) as servers:
            first = next(iterator, None)  # the reader of the rows notes their order before it yields some
            sender, identity = self._sender(servers)
            with closing(sender):
                if first is not None:
                    self.layout.check(first)
                for batch in iterator if first is None else chain((first,), iterator):
                    sender.send(batch)
                require_all_rows()
                rows = sender.finish()
            if isinstance(sender, PlainSender):
                notes = sender.notes
                if notes is None:
                    return RowsCommitted(Written(None, rows))
                return RowsCommitted(Written(identity, rows, notes=notes.written(), field=notes.field))
            if isinstance(sender, OrderedSender):
                return RowsCommitted(Written(identity, rows, True, sender.put_aside))
            return RowsCommitted(Written(identity, rows, groups=sender.groups()))

    def _sender(self, servers: Servers) -> tuple[Sender, Identity | None]:
        context = TaskContext.get()
        in_order = rows_in_order(context)
        if self.options.exactly_once == "none" and not self.options.waits:
            return PlainSender(servers, self.options, self.layout, context.partitionId() if context else 0), None
        identity = task_identity(self.query, self.batch, context, self.lasting)
        if self.streaming:
            require_earlier_batches(servers, self.options, identity)
        if not self.transactional:
            notes = TaskNotes(servers, identity) if self.streaming or self.options.waits else None
            if self.options.exactly_once == "none":
                return PlainSender(servers, self.options, self.layout, identity.partition, notes), identity
            return ProducerSender(servers, self.options, self.layout, identity, notes), identity
        if self.may_order and (self.options.order == "stream" or (in_order and self.options.order is None)):
            return OrderedSender(servers, self.options, self.layout, identity), identity
        if self.grouped:
            return ManyStreamsSender(servers, self.options, self.layout, identity), identity
        return TransactionSender(servers, self.options, self.layout, identity), identity

    @property
    def grouped(self) -> bool:
        """Return whether streams share commit records (write/many_streams.py)."""
        by_column = self.layout.stream_column is not None or self.layout.part_column is not None
        options = self.options
        named = (options.id_column, options.txn_app_id, options.partitioned_stream)
        return by_column and self.transactional and named == (None, None, None)

    def close(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Record in the streams' commit records that the batch is complete."""
        written = [message.written for message in messages if isinstance(message, RowsCommitted)]
        with plainly(), Servers(self.options) as servers:

            def append_rest() -> None:
                if ordered := [one for one in written if one.ordered]:
                    append_all_aside(servers, self.options, self.layout, ordered)

            complete_batch(servers, self.options, written, self.streaming, append_rest)

    @property
    def streaming(self) -> bool:
        """Return whether the rows come from a streaming query, whose batches follow each other."""
        return self.query is None


class BatchWriter(_Writer, DataSourceArrowWriter):
    """The writer of df.write."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        with plainly():
            options.refuse(("failOnDataLoss",), "a batch write")
            require_servers(options)
        self.lasting = options.txn_app_id is not None
        if options.txn_app_id in RESERVED:
            raise OptionError(f"rillet: txnAppId is {options.txn_app_id!r}, which is reserved for a pipeline")
        self.query = name_in_keys(options.txn_app_id) if options.txn_app_id else uuid.uuid4().hex
        self.batch = options.txn_version or 0

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Record that all tasks of the write are complete; a late attempt of a task then writes nothing."""
        self.close(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Block late attempts of a failed write, and log how many of its rows remain in the streams."""
        rows: dict[bytes, int] = dict.fromkeys(self.layout.streams(), 0)
        groups = {group_name(self.layout.stream, None)}
        for message in messages:
            if isinstance(message, RowsCommitted):
                groups.update(message.written.groups or ())
                for stream, count in message.written.rows.items():
                    rows[stream] = rows.get(stream, 0) + count
        counts = ", ".join(f"{count} rows in {shown(stream)}" for stream, count in rows.items())
        if len(rows) > MOST_NAMED:
            counts = f"{sum(rows.values())} rows in {len(rows)} streams"
        log.warning("rillet: a write failed; the rows of its finished tasks remain in the streams: %s", counts)
        # A write with txnAppId can be repeated, so its commit records stay open.
        if self.options.exactly_once not in ("none", "idmp") and not self.lasting:
            with plainly(), Servers(self.options) as servers:
                give_up(servers, str(self.query), sorted(groups) if self.grouped else list(rows))


class StreamingWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer of df.writeStream."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.txn_app_id is not None:
            raise OptionError("rillet: txnAppId and txnVersion apply to df.write, not to a streaming query")
        with plainly(), Servers(options) as servers:
            retry(servers, lambda: require_copies(servers, options, patient=True))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Record that the micro-batch is complete; if Spark repeats the batch, its tasks write nothing."""
        self.close(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: when Spark repeats the micro-batch, its tasks skip the rows that the commit records count."""
