"""history: the command that prints or writes an archive together with the rest of its streams (read/history.py)."""

from __future__ import annotations

import argparse
from pathlib import Path

from rillet.spark.pipelines import cli_common as running
from rillet.spark.pipelines.cli_common import counted
from rillet.spark.sessions import history

EPILOG = """examples:
  rillet pipeline history events.archive --url redis://localhost --stream events --where "id_ms >= 1714521600000"
  rillet pipeline history events.archive --url redis://localhost --stream events --to may.parquet
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("archive", type=running.folder, metavar="FOLDER", help="the archive's folder")
    running.source_arguments(parser)
    group = parser.add_argument_group("history")
    group.add_argument("--schema", help="typed columns in place of the map of fields: 'id string, delay double'")
    group.add_argument("--where", metavar="SQL", help="a condition on the columns")
    group.add_argument("--to", metavar="FOLDER", help="write Parquet files there, in place of printing rows")
    group.add_argument("--limit", type=running.whole_number(1), default=20, metavar="N",
                       help="how many rows are printed (default: 20)")  # fmt: skip
    running.spark_arguments(parser)


def complaints(options: argparse.Namespace) -> list[str]:
    """Return what is wrong with the arguments taken together."""
    wrong = running.source_complaints(options)
    if options.to is not None and Path(options.to).exists():
        wrong.append(f"--to is {options.to!r}: it is there already")
    return wrong


def run(options: argparse.Namespace) -> int:
    """Print rows, or write them; print one line."""
    spark = running.open_session(options, "history")
    try:
        table = history(spark, archive=options.archive, schema=options.schema, **running.source_options(options))
        if options.where is not None:
            table = table.where(options.where)
        if options.to is None:
            table.show(options.limit, truncate=False)
            print(f"{options.archive} and the stream: {counted(table.count(), 'entry', 'entries')}")
        else:
            table.write.parquet(options.to)
            print(f"{options.to}: {counted(spark.read.parquet(options.to).count(), 'entry', 'entries')}")
    finally:
        spark.stop()
    return running.DONE


__all__ = ["history"]
