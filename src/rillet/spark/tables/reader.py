"""The batch reader of tables: parts of the keys as tasks, pipelines of commands, Arrow record batches.

    driver      TableReader.partitions     client/key_scan.py divides the keys: ranges of SCAN cursors, or slots
    executors   TableReader.read           key_scan lists the keys of a part, client/key_reader.py reads their values

An embedded store and a rillet server are read by the same commands: values go from the reply's bytes into the columns,
without Python objects. The store has no command that returns many hashes at once in their stored form, as
RILLET.XNODES does for streams.

**What a read contains.** Each key that exists during the whole read, once. A key that is created, deleted or renamed
during the read may be missing. Values are read key by key, at different moments. The fields of a hash are of one
moment; ttlColumn and the columns of the type `keys` are further commands, between which another client may change the
key. Lists, sets and sorted sets of more than 10,000 elements are read in pages: each element that is in a set or a
sorted set during the whole read occurs once; elements of a list shift if other elements are pushed or removed before
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from rillet.client.errors import ConnectorError
from rillet.client.key_reader import KeyReader
from rillet.client.key_scan import CURSORS, KeyScan, ScanPart, plan_scan
from rillet.client.servers import Servers
from rillet.columns.arrow_batch import record_batch
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.errors import plainly
from rillet.spark.options import OptionError
from rillet.spark.read.schema_inference import FieldType
from rillet.spark.server_address import require_store
from rillet.spark.spark_versions import DataSourceReader, InputPartition
from rillet.spark.table_options import WRITE_ONLY, TableOptions
from rillet.spark.tables.schema import SCAN_TYPES, TableRows, arrow_schema_of
from rillet.spark.worker_socket import InTask
from rillet.spark.write.commits import PREFIX

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BATCH_BYTES = 32 << 20
KEYS_PER_TASK = 1000


class ScanPartition(InputPartition):
    """The part of the keys that one Spark task reads."""

    def __init__(self, part: ScanPart) -> None:
        super().__init__(None)
        self.part = part


class KeysPartition(InputPartition):
    """Keys that one Spark task reads."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        super().__init__(None)
        self.keys = tuple(keys)


class TableReader(InTask, DataSourceReader):
    """Reads the keys of one type that a pattern or a list selects."""

    def __init__(self, options: TableOptions, schema: StructType, parallelism: int) -> None:
        options.refuse(WRITE_ONLY, "reading")
        require_keys(options)
        self.options = options
        self.parallelism = options.min_partitions or parallelism
        self.arrow_schema: Any = arrow_schema_of(options, schema)
        require_store(options.path)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks: parts of the server's keys, or of the listed keys."""
        if self.options.keys is not None:
            keys = [key.encode() for key in self.options.keys]
            count = max(1, min(self.parallelism, len(keys) // KEYS_PER_TASK))
            return [KeysPartition(keys[i::count]) for i in range(count)]
        with plainly(), Servers(self.options) as servers:
            # A store without an owner is opened by the planner's process and again by a task's process.
            parts = plan_scan(servers, self.parallelism, lasting=self.options.path is None)
            return [ScanPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        with plainly():
            if isinstance(partition, KeysPartition):
                keys = partition.keys
                batches = (keys[i : i + KEYS_PER_TASK] for i in range(0, len(keys), KEYS_PER_TASK))
                yield from read_table(self.options, self.arrow_schema, batches)
                return
            assert isinstance(partition, ScanPartition)
            yield from read_table(self.options, self.arrow_schema, partition.part)


def require_keys(options: TableOptions) -> None:
    """Raise OptionError if no option selects keys."""
    if options.type != "keys" and options.key_pattern is None and options.keys is None and not options.key_prefix:
        raise OptionError("rillet: give keyPattern, keyPrefix or keys, which select the keys to read")


def read_table(
    options: TableOptions, schema: Any, keys: ScanPart | Iterable[Sequence[bytes]], keeps: bool = False
) -> Iterator[Any]:
    """Yield the rows of keys as record batches of an Arrow schema.

    keys: a part of the server's keys, or batches of keys; a listed key of another type is an error. keeps: whether a
    key that does not exist has a row of nulls.
    """
    table = TableRows(options, schema)
    with Servers(options) as servers, Servers(options) as side, Servers(options) as scanning:
        servers.waits = side.waits = scanning.waits = True
        listed = not isinstance(keys, ScanPart)
        reader = KeyReader(
            servers, side, table.rows, table.plan, pipeline=options.pipeline_keys, batch_rows=options.batch_rows,
            batch_bytes=BATCH_BYTES, prefix=len(options.key_prefix.encode()), keeps=keeps,
            wrong_type=(lambda key, line: _wrong_type(side, options, key)) if listed else None,
        )  # fmt: skip
        if isinstance(keys, ScanPart):
            kind = SCAN_TYPES.get(options.type, options.type.encode())
            scan = KeyScan(scanning, keys, options.glob(), kind, options.scan_count)
            keys = _without_records(options, scan.batches(options.pipeline_keys))
        for _ in reader.read(keys):
            batch = record_batch(table.rows, schema)
            if batch.num_rows:  # mode=DROPMALFORMED may drop all rows of a batch
                yield batch


def _without_records(options: TableOptions, batches: Iterable[list[bytes]]) -> Iterable[list[bytes]]:
    """Leave out the commit records of writes, unless the pattern names them or the table lists keys."""
    literal = re.split(rb"[*?\[\\]", options.glob())[0]
    may_contain = options.type in ("hash", "string", "bitmap") and PREFIX.startswith(literal)
    if not may_contain or literal.startswith(b"rillet:"):
        return batches
    return ([key for key in batch if not key.startswith(PREFIX)] for batch in batches)


def _wrong_type(side: Servers, options: TableOptions, key: bytes) -> None:
    kind = side.call(key, b"TYPE", key).decode()
    if kind != "none":
        shown = key.decode(errors="backslashreplace")
        raise ConnectorError(f"rillet: the key {shown!r} at {side} is a {kind}, not a {options.type}")


# ---- inferSchema -------------------------------------------------------------------------------------------------


def infer_table(options: TableOptions) -> StructType:
    """Return the schema inferred from a sample of hashes: the key, then the fields in order of appearance."""
    from pyspark.sql import types

    require_keys(options)
    of_kind = {
        "bigint": types.LongType(), "double": types.DoubleType(), "boolean": types.BooleanType(),
        "date": types.DateType(), "timestamp": types.TimestampType(), "string": types.StringType(),
    }  # fmt: skip
    with Servers(options) as servers, Servers(options) as scanning:
        if options.keys is not None:
            keys = [key.encode() for key in options.keys[: options.sample_keys]]
        else:
            scan = KeyScan(scanning, ScanPart(CURSORS), options.glob(), b"hash", options.scan_count)
            if servers.is_cluster:
                scan.part = max(plan_scan(servers, 1), key=lambda part: len(part.slots))
            found = (key for batch in scan.batches(options.scan_count) for key in batch)
            keys = list(islice(found, options.sample_keys))
        replies = servers.each([(key, (b"HGETALL", key)) for key in keys])
    kinds: dict[bytes, FieldType] = {}
    for flat in replies:
        if isinstance(flat, ReplyError) or not flat:
            continue
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            kinds.setdefault(field, FieldType()).add(value)
    if not kinds:
        raise ConnectorError(
            f"rillet: cannot infer a schema at {servers}: no hash was found. Give a schema, or leave out inferSchema"
        )
    columns = [types.StructField(options.key_name, types.StringType())]
    taken = {options.key_name.lower(), options.corrupt_column.lower(), "fields", (options.ttl_column or "").lower()}
    for raw, kind in kinds.items():
        try:
            name = column = raw.decode()
        except UnicodeDecodeError:
            continue
        while column.lower() in taken:
            column += "_field"
        taken.add(column.lower())
        metadata: dict[str, Any] = {} if column == name else {"field": name}
        columns.append(types.StructField(column, of_kind[kind.name], metadata=metadata))
    if options.ttl_column:
        columns.append(types.StructField(options.ttl_column, types.LongType()))
    return types.StructType(columns)
