"""The writers: what Spark calls, in tasks to append rows and on the driver to close a batch.

    driver      writer(schema)           options and schema are checked; a df.write gets its name
    executors   writer.write(batches)    targets.py: rows to streams and texts;  sending.py: to the servers
    driver      writer.commit(messages)  commits.py: the batch is complete, its tasks' records go

Exactly once by default (exactlyOnce = auto is `transaction`): design note 0017 has why. `none` is at least once: a task
that Spark runs again appends its rows again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from rillet.client.servers import Servers
from rillet.spark.errors import plainly
from rillet.spark.options import READ_ONLY, OptionError, Options
from rillet.spark.write.commits import (
    RESERVED,
    Identity,
    Written,
    close_batch,
    give_up,
    identity_of,
    name_in_keys,
    shown,
)
from rillet.spark.write.input_check import require_all_rows
from rillet.spark.write.producers import ProducerSender
from rillet.spark.write.row_encoder import RowEncoder
from rillet.spark.write.transactions import TransactionSender
from rillet.spark.write.writer import PlainSender, Sender

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger("rillet.spark")


class RowsCommitted(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, written: Written) -> None:
        self.written = written


class _Writing:
    """What both writers share."""

    query: str | None = None  # None: Spark's properties tell query and batch
    batch = 0
    lasting = True

    def __init__(self, options: Options, schema: StructType) -> None:
        with plainly():
            options.refuse(READ_ONLY, "writing")
            self.options = options
            self.layout = RowEncoder(options, schema)
            if options.exactly_once == "idmp" and options.id_column is not None:
                raise OptionError("rillet: with exactlyOnce=idmp the server chooses the IDs: leave idColumn out")

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Append the rows of a task."""
        with plainly(), Servers(self.options) as servers:
            sender, identity = self._sender(servers)
            for batch in iterator:
                sender.send(batch)
            require_all_rows()
            return RowsCommitted(Written(identity, sender.finish()))

    def _sender(self, servers: Servers) -> tuple[Sender, Identity | None]:
        context = TaskContext.get()
        if self.options.exactly_once == "none":
            return PlainSender(servers, self.options, self.layout, context.partitionId() if context else 0), None
        identity = identity_of(self.query, self.batch, context, self.lasting)
        if self.options.exactly_once == "idmp":
            return ProducerSender(servers, self.options, self.layout, identity), None
        return TransactionSender(servers, self.options, self.layout, identity), identity

    def close(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Record that the batch is complete."""
        written = told(messages)
        if written:
            with plainly(), Servers(self.options) as servers:
                close_batch(servers, written)


def told(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """Return what the tasks that ended well and keep records have told."""
    found = [message.written for message in messages if isinstance(message, RowsCommitted)]
    return [written for written in found if written.identity is not None]


class BatchWriter(_Writing, DataSourceArrowWriter):
    """The writer of df.write."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self.lasting = options.txn_app_id is not None
        if options.txn_app_id in RESERVED:
            raise OptionError(f"rillet: txnAppId is {options.txn_app_id!r}: that is the name of a pipeline's record")
        self.query = name_in_keys(options.txn_app_id) if options.txn_app_id else uuid.uuid4().hex
        self.batch = options.txn_version or 0

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Record that all tasks are done: a late attempt of one writes nothing."""
        self.close(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Stop late attempts and say what stays in the streams: appended entries are not taken back."""
        rows: dict[bytes, int] = dict.fromkeys(self.layout.streams(), 0)
        for message in messages:
            for stream, count in message.written.rows.items() if isinstance(message, RowsCommitted) else ():
                rows[stream] = rows.get(stream, 0) + count
        what = ", ".join(f"{count} rows in {shown(stream)}" for stream, count in rows.items())
        log.warning("rillet: a write failed; what its finished tasks appended stays: %s", what)
        if self.options.exactly_once not in ("none", "idmp") and not self.lasting:  # what has a name can be repeated
            with plainly(), Servers(self.options) as servers:
                give_up(servers, str(self.query), list(rows))


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The writer of df.writeStream."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.txn_app_id is not None:
            raise OptionError("rillet: txnAppId and txnVersion are for df.write: a streaming query has its own")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Record that the batch is complete: repeated, it writes nothing."""
        self.close(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Leave the records: the batch will be run again, and goes on where it stopped."""
