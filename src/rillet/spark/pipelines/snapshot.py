"""snapshot: reads RDB files as DataFrames (keys, elements, entries, groups, pending), and reports their sizes.

    keys = snapshot(spark, "backups/*.rdb")              # files of any version of Redis, Valkey or rillet
    elements = snapshot(spark, "dump.rdb", "elements")   # key, type, index, field, value, score: all other types
    entries = snapshot(spark, "dump.rdb", "entries")     # stream, id, timestamp, fields
    report(keys)["prefixes"].show()

Each file is a Spark task, which reads the file once per table, from front to back, in bounded memory.
rillet.transfer.rdb_tables defines the columns. Each executor must have the files at the same path.

**A damaged file** yields all rows before the damage. Then, with the mode PERMISSIVE, it yields one row in which only
`file` and `_corrupt` (file, offset, cause) are set; with DROPMALFORMED, no further row. With FAILFAST, the query fails.

The report has five aggregations: by type and encoding, by key prefix, the biggest keys, the remaining lifetimes when
the file was written, and the files. All five use the same cached table of keys.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.errors import LogCorrupt, RilletError
from rillet.spark.local_source import data_source
from rillet.spark.option_types import whole_number
from rillet.spark.options import OptionError
from rillet.spark.pipelines.cli_arguments import local_folder
from rillet.spark.pipelines.cli_common import DONE, FAILED, progress_bar, session_of
from rillet.spark.pipelines.tables import in_bytes, table, watched
from rillet.store.display.json_line import print_json
from rillet.transfer.rdb_tables import TABLES, rdb_batches, rdb_files, rdb_header, schema_of
from rillet.units import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
CORRUPT = "_corrupt"
_FORMAT = "rillet-rdb"

# Ranges of a key's remaining lifetime: (upper bound in seconds, name).
_LEFT = (
    (0, "expired"), (60, "under a minute"), (3600, "under an hour"), (86_400, "under a day"),
    (7 * 86_400, "under a week"), (30 * 86_400, "under 30 days"),
)  # fmt: skip


def snapshot(
    spark: SparkSession, places: str | Path | Iterable[str | Path], table: str = "keys", *, mode: str = "PERMISSIVE"
) -> DataFrame:
    """Return a table (keys, elements, entries, groups or pending) of RDB files; places: files, folders or globs."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StringType

    errors = []
    if table not in TABLES:
        errors.append(f"table is {table!r}: expected one of {', '.join(TABLES)}")
    if mode not in MODES:
        errors.append(f"mode is {mode!r}: expected one of {', '.join(MODES)}")
    files: list[str] = []
    try:
        files = [str(Path(file).absolute()) for file in rdb_files(places)]
    except RilletError as error:
        errors.append(str(error))
    if errors:
        raise OptionError("rillet: " + "; ".join(errors))
    columns: StructType = from_arrow_schema(schema_of(table)).add(CORRUPT, StringType())
    spark.dataSource.register(data_source(_FORMAT, columns, files, partial(task, table=table, mode=mode)))
    return spark.read.format(_FORMAT).load()


def report(keys: DataFrame, *, separator: str = ":", depth: int = 1, top: int = 20) -> dict[str, DataFrame]:
    """Return the report on a table of keys as five tables: types, prefixes, biggest, lifetimes, files."""
    from pyspark.sql import functions as F

    sound = keys.where(F.col(CORRUPT).isNull())
    sums: list[Column] = [
        F.count("*").alias("keys"), F.sum("elements").alias("elements"), F.sum("serialized").alias("serialized"),
        F.sum("size").alias("size"),
    ]  # fmt: skip
    by_size = F.desc("size")
    prefix = F.when(F.instr("key", separator) > 0, F.substring_index("key", separator, depth)).otherwise("(none)")
    left = F.when(F.col("expires").isNull(), "never expires").when(F.col("ttl_seconds").isNull(), "unknown")
    for seconds, name in _LEFT:
        left = left.when(F.col("ttl_seconds") < seconds, name)
    return {
        "types": sound.groupBy("type", "encoding").agg(*sums).orderBy(by_size),
        "prefixes": sound.groupBy(prefix.alias("prefix"))
        .agg(*sums, F.max_by("key", F.struct("size", "key")).alias("biggest"))
        .orderBy(by_size)
        .limit(top),
        "biggest": sound.select("key", "type", "encoding", "elements", "serialized", "size", "db", "file")
        .orderBy(by_size, "key")
        .limit(top),
        "lifetimes": sound.groupBy(left.otherwise("30 days or more").alias("left"))
        .agg(*sums, F.min("ttl_seconds").alias("soonest"))
        .orderBy(F.asc_nulls_last("soonest")),
        "files": keys.groupBy("file")
        .agg(F.count("key").alias("keys"), *sums[2:], F.max(CORRUPT).alias("damage"))
        .orderBy("file"),
    }


def task(file: str, table: str, mode: str) -> Iterator[Any]:
    """Yield record batches of one table of an RDB file, with the column `_corrupt`; runs in a Spark task."""
    import pyarrow as pa

    schema = schema_of(table).append(pa.field(CORRUPT, pa.string()))
    try:
        for batch in rdb_batches(file, table):
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.nulls(batch.num_rows, pa.string())], schema=schema)
    except (LogCorrupt, OSError) as error:
        message = str(error) if isinstance(error, LogCorrupt) else f"{file}: {error.strerror}"
        if mode == "FAILFAST":
            raise RilletError(f"rillet: {message}") from None
        if mode == "PERMISSIVE":
            yield pa.RecordBatch.from_pylist([{"file": file, CORRUPT: message}], schema=schema)


# -- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("places", nargs="+", metavar="PLACE", help="RDB files, folders of them, or globs")
    add("--out", type=local_folder, help="write tables to this folder as Parquet: OUT/keys, OUT/entries ...")
    every = ",".join(TABLES)
    add("--tables", type=_tables, default=("keys",), help=f"tables to write with --out: {every}")
    add("--separator", default=":", help="the separator of a key's parts (default: ':')")
    add("--depth", type=whole_number(1), default=1, help="the number of a key's parts in its prefix (default: 1)")
    add("--top", type=whole_number(1), default=15, help="how many prefixes and biggest keys to print (default: 15)")


def _tables(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in TABLES]
    if unknown or not names:
        raise ValueError(f"expected some of {', '.join(TABLES)}" + f", not {', '.join(unknown)}" * bool(unknown))
    return names


def argument_errors(options: argparse.Namespace) -> list[str]:
    errors = []
    try:
        rdb_files(options.places or [])
    except RilletError as error:
        errors += [str(error)] if options.places else []
    if not options.separator:
        errors.append("--separator is empty")
    if options.tables not in (None, ("keys",)) and options.out is None:
        errors.append("--tables needs --out, the folder to write them to")
    return errors


def run(options: argparse.Namespace) -> int:
    """Read the RDB files, print the report, write the requested tables; return the exit status."""
    files = rdb_files(options.places)
    with session_of(options, "snapshot") as spark, progress_bar(options, "reading", "tasks") as bar:
        if options.out is not None:
            for name in options.tables:
                rows, place = snapshot(spark, files, name), f"{options.out}/{name}"
                watched(spark, bar, partial(rows.write.mode("overwrite").parquet, place))
        written = options.out is not None and "keys" in options.tables
        keys = spark.read.parquet(f"{options.out}/keys") if written else snapshot(spark, files).persist()
        parts = report(keys, separator=options.separator, depth=options.depth, top=options.top)
        collected = watched(spark, bar, lambda: {name: part.collect() for name, part in parts.items()})
        keys.unpersist()
    damaged = [row for row in collected["files"] if row["damage"]]
    if options.json:
        print_json({name: [row.asDict() for row in rows] for name, rows in collected.items()})
        return FAILED if damaged else DONE
    _print(collected)
    for row in damaged:
        print(f"DAMAGED {row['damage']}")
    total = sum(row["keys"] for row in collected["files"])
    size = sum(row["serialized"] or 0 for row in collected["files"])
    line = f"{counted(len(files), 'file')}, {counted(total, 'key')}, {in_bytes(size)} in the files"
    if options.out is not None:
        line += f"; {', '.join(options.tables)} written to {options.out}"
    print(line + (f"; {counted(len(damaged), 'file')} could not be read completely" if damaged else ""))
    return FAILED if damaged else DONE


def _print(collected: dict[str, list[Any]]) -> None:
    """Print the tables of the report."""
    for row in collected["files"]:
        if row["damage"] is None:
            rdb = rdb_header(row["file"])
            server = rdb.aux_fields.get("valkey-ver") or rdb.aux_fields.get("redis-ver") or "unknown"
            print(f"{row['file']}: RDB version {rdb.version}, written by {rdb.product} {server}, {row['keys']:,} keys")
    titles = {"types": "By type", "prefixes": "By prefix", "biggest": "Biggest keys", "lifetimes": "Time left"}
    for name, title in titles.items():
        rows = collected[name]
        if rows:
            head = [column for column in rows[0].asDict() if column not in ("soonest", "file")]
            cells = [[in_bytes(row[c]) if c in ("serialized", "size") else row[c] for c in head] for row in rows]
            print(f"\n{title}\n{table(head, cells)}")
    print()
