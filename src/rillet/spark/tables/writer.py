"""The writers of tables that Spark calls: in tasks to write rows, and on the driver to complete a write.

    driver      writer(schema, overwrite)   checks options and schema; ifExists looks for keys with the prefix
    executors   writer.write(batches)       senders.py sends commands
    driver      writer.commit(messages)     closes the commit records; mode("overwrite") removes keys without a row

**Modes.** `append` writes to keys that exist: fields are set, members and elements are added. `overwrite` replaces the
keys that begin with keyPrefix. Hashes and strings are replaced one by one while the rows arrive, and the keys that got
no row are deleted at the end. So a failed write has replaced some keys, and deleted none. A list, a set or a sorted set
may get rows from several tasks, so all of them are deleted before the first row is written.

Spark itself refuses the modes `ignore` and `errorifexists` for every source that is written in Python. Therefore they
are the option ifExists of `append`. Like Spark's modes, they look at the whole table: at any key with keyPrefix.

**Repeated tasks.** Spark repeats tasks and batches. HSET, SET, SADD and ZADD have the same result again. RPUSH,
HINCRBY and ZINCRBY are written in transactions with a commit record (write/commits.py), exactly once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from rillet.client.errors import ConnectorError
from rillet.client.key_scan import KeyScan, plan_scan
from rillet.client.servers import Servers
from rillet.client.transaction import retry
from rillet.loggers import logger
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.errors import plainly
from rillet.spark.options import OptionError
from rillet.spark.spark_versions import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from rillet.spark.table_options import READ_ONLY, TableOptions, escaped, parse_table
from rillet.spark.tables.commands import TableLayout
from rillet.spark.tables.schema import SCAN_TYPES
from rillet.spark.tables.senders import TableSender, TableTransactionSender
from rillet.spark.worker_socket import InTask
from rillet.spark.write.commits import (
    PREFIX,
    RESERVED,
    Identity,
    Written,
    give_up,
    name_in_keys,
    shown,
    task_identity,
)
from rillet.spark.write.copies import require_copies, require_servers
from rillet.spark.write.input_check import require_all_rows
from rillet.spark.write.micro_batches import Save, saving
from rillet.spark.write.query_record import (
    TaskNotes,
    complete_batch,
    require_earlier_batches,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

log = logger("spark")
_BATCH = 1000


class TableRowsWritten(WriterCommitMessage):
    """The message that a successful write task sends to the driver.

    hashes: of the keys, for mode overwrite. without_value: the rows of which nothing was written.
    """

    def __init__(self, written: Written, hashes: bytes = b"", without_value: int = 0) -> None:
        self.written = written
        self.hashes = hashes
        self.without_value = without_value


class _TableWriter(InTask):
    """The base class of the batch writer and the streaming writer."""

    query: str | None = None
    batch = 0
    lasting = True
    skips = False  # whether nothing is written, because of ifExists=ignore

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool = False) -> None:
        options.refuse(READ_ONLY, "writing")
        self.options = options
        self.layout = TableLayout(options, schema, overwrite)
        self.replaces = overwrite and options.type in ("hash", "string")
        if options.exactly_once == "none" and options.txn_app_id is not None:
            raise OptionError("rillet: txnAppId needs transactions: leave out exactlyOnce=none")
        if options.txn_app_id is not None and not self.layout.transactional:
            raise OptionError(
                f"rillet: txnAppId is not needed, because a repeated write of the type {options.type} has the same "
                "result; set exactlyOnce=transaction to use it"
            )

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of a task."""
        import xxhash

        hashes: set[bytes] = set()
        with plainly(), Servers(self.options) as servers:
            self.layout.cluster = servers.is_cluster
            self.layout.without_value = 0
            identity: Identity | None = None
            notes: TaskNotes | None = None
            sender: TableSender | TableTransactionSender
            if self.layout.transactional or self.noted:
                identity = task_identity(self.query, self.batch, TaskContext.get(), self.lasting)
                if self.streaming:
                    require_earlier_batches(servers, self.options, identity)
            servers.waits = True
            if self.layout.transactional:
                assert identity is not None
                sender = TableTransactionSender(servers, self.options, self.layout, identity)
            else:
                notes = TaskNotes(servers, identity) if identity is not None else None
                sender = TableSender(servers, self.options, self.layout, notes)
            with closing(sender):
                for batch in iterator:
                    if self.skips:
                        continue
                    rows = self.layout.with_keys(batch)
                    if self.replaces:
                        keys = rows.column(self.layout.key)
                        if self.options.type == "string":  # a null replaces nothing: its key is deleted at the end
                            keys = keys.filter(rows.column(self.options.value_name).is_valid())
                        hashes.update(map(xxhash.xxh3_64_digest, keys.to_pylist()))
                    sender.send(rows)
                require_all_rows()
                written = Written(identity, sender.finish())
                if notes is not None:
                    written = replace(written, notes=notes.written(), field=notes.field)
                return TableRowsWritten(written, b"".join(hashes), self.layout.without_value)

    def close(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Record in the commit records that the batch is complete; warn about rows without a value."""
        empty = sum(message.without_value for message in messages if isinstance(message, TableRowsWritten))
        if empty:
            remedy = " (nulls=delete deletes them)" if self.options.type in ("hash", "string") else ""
            log.warning("rillet: %d rows of the type %s have only nulls: nothing was written for their keys%s",
                        empty, self.options.type, remedy)  # fmt: skip
        if not self.skips:
            written = [message.written for message in messages if isinstance(message, TableRowsWritten)]
            with plainly(), Servers(self.options) as servers:
                complete_batch(servers, self.options, written, self.streaming)

    @property
    def streaming(self) -> bool:
        """Return whether the rows come from a streaming query, whose batches follow each other."""
        return self.query is None

    @property
    def noted(self) -> bool:
        """Return whether tasks that write without transactions note their chunks (write/query_record.py)."""
        return self.options.waits or (self.streaming and self.options.exactly_once != "none")


class TableBatchWriter(_TableWriter, DataSourceArrowWriter):
    """The writer of df.write."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool = False) -> None:
        super().__init__(options, schema, overwrite)
        with plainly():
            options.refuse(("failOnDataLoss",), "a batch write")
            require_servers(options)
        if options.txn_app_id in RESERVED:
            raise OptionError(f"rillet: txnAppId is {options.txn_app_id!r}, which is reserved for a pipeline")
        self.lasting = options.txn_app_id is not None
        self.query = name_in_keys(options.txn_app_id) if options.txn_app_id else uuid.uuid4().hex
        self.batch = options.txn_version or 0
        wants = "mode overwrite" if overwrite else f"ifExists={options.if_exists}"
        if (overwrite or options.if_exists != "append") and not options.key_prefix:
            raise OptionError(f"rillet: {wants} needs keyPrefix, which selects the keys that belong to the table")
        if overwrite and options.if_exists != "append":
            raise OptionError("rillet: ifExists applies to mode('append'), not to overwrite")
        if options.if_exists != "append":
            self._look()
        elif overwrite and not self.replaces:
            _delete_keys(options, lambda key: True)

    def _look(self) -> None:
        """Look for a key with the prefix: raise an error, or write nothing, as ifExists demands."""
        with Servers(self.options) as servers:
            found = next(_keys_with_prefix(servers, self.options), None)
            if found and self.options.if_exists == "error":
                raise ConnectorError(
                    f"rillet: {shown(found[0])} already exists at {servers} (ifExists=error): nothing was written"
                )
        self.skips = found is not None

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Complete the write; with mode overwrite, delete the keys that got no row."""
        self.close(messages)
        if self.replaces:
            import xxhash

            packed = b"".join(message.hashes for message in messages if isinstance(message, TableRowsWritten))
            written = {packed[at : at + 8] for at in range(0, len(packed), 8)}
            with plainly():
                _delete_keys(self.options, lambda key: xxhash.xxh3_64_digest(key) not in written)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Block late attempts of a failed write in transactions, and log that some rows may remain."""
        written = [message.written for message in messages if isinstance(message, TableRowsWritten)]
        rows = sum(sum(one.rows.values()) for one in written)
        log.warning("rillet: a write failed; %d rows of its finished tasks remain", rows)
        if self.layout.transactional and not self.lasting:
            names = {name for one in written for name in one.rows} | set(self.layout.streams())
            with plainly(), Servers(self.options) as servers:
                give_up(servers, str(self.query), sorted(names))


class TableStreamingWriter(_TableWriter, DataSourceStreamArrowWriter):
    """The writer of df.writeStream."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool = False) -> None:
        if overwrite:
            raise OptionError(
                "rillet: outputMode complete is not supported: use outputMode('update') with "
                "foreachBatch(rillet.spark.foreach_batch(...))"
            )
        super().__init__(options, schema)
        wrong = [name for name in ("txnAppId", "txnVersion", "ifExists") if name.lower() in options.named]
        if wrong:
            raise OptionError(f"rillet: these options apply to df.write, not to a streaming query: {', '.join(wrong)}")
        with plainly(), Servers(options) as servers:
            retry(servers, lambda: require_copies(servers, options, patient=True))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Record that the micro-batch is complete; if Spark repeats the batch, its tasks write nothing twice."""
        self.close(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: Spark repeats the micro-batch."""


def _keys_with_prefix(servers: Servers, options: TableOptions) -> Iterator[list[bytes]]:
    """Yield the keys of the table: those with the prefix and the type, but not the commit records of writes."""
    kind = SCAN_TYPES.get(options.type, options.type.encode())
    with Servers(options) as scanning:
        for part in plan_scan(scanning, 1):
            for keys in KeyScan(scanning, part, escaped(options.key_prefix) + b"*", kind).batches(_BATCH):
                if servers.is_cluster:  # keys of slots are listed without regard to their type
                    types = retry(servers, partial(servers.each, [(key, (b"TYPE", key)) for key in keys]))
                    keys = [key for key, found in zip(keys, types, strict=True) if found == kind]
                keys = [key for key in keys if not key.startswith(PREFIX)]
                if keys:
                    yield keys


def _delete_keys(options: TableOptions, wanted: Callable[[bytes], bool]) -> None:
    """Delete the keys of the table that `wanted` selects."""
    with Servers(options) as servers:
        for keys in _keys_with_prefix(servers, options):
            extra = [key for key in keys if wanted(key)]
            requests = [(key, (b"UNLINK", key)) for key in extra]
            for key, reply in zip(extra, retry(servers, partial(servers.each, requests)), strict=True):
                if isinstance(reply, ReplyError):
                    raise ConnectorError(f"rillet: {servers} refused to delete {shown(key)}: {reply}", str(reply))


# ---- streaming aggregations ----------------------------------------------------------------------------------------


def foreach_batch(name: str = "", **options: str) -> Save:
    """Return a function for `writeStream.foreachBatch` that writes each micro-batch to a table.

    It serves outputMode("update"), which Spark refuses for sources that are written in Python: each row replaces the
    values of its key, so a repeated batch has the same result. name: of the query, required where a repeated write
    would change the result (lists, addColumns); it must be unique on the server, and stay the same after a restart.
    """
    with plainly():
        parsed = parse_table(options)
        recorded = parsed.exactly_once != "none"
        transactional = recorded and parsed.adds
        if transactional and not name:
            raise OptionError("rillet: foreach_batch needs a name for the query, because the rows are added once")

    writing = {key: value for key, value in options.items() if key.lower() != "failondataloss"}

    def save(batch: DataFrame, number: int) -> None:
        writer = batch.write.format("rillet").mode("append").options(**writing)
        if transactional:
            writer = writer.option("txnAppId", name).option("txnVersion", str(number))
        writer.save()

    return saving(parsed, f"{parsed.type} {parsed.key_prefix}", recorded, transactional, save)
