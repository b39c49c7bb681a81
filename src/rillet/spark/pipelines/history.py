"""history: prints archived entries together with the streams' later entries, or writes them to Parquet files.

spark/read/history.py describes how an archive and its streams are combined without gaps or duplicates.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rillet.spark.option_types import whole_number
from rillet.spark.pipelines import cli_arguments, cli_common
from rillet.spark.sessions import history
from rillet.store.display.json_line import print_json
from rillet.units import counted

EPILOG = """examples:
  rillet pipeline history events.archive --url redis://localhost --stream events --where "id_ms >= 1714521600000"
  rillet pipeline history events.archive --url redis://localhost --stream events --to may.parquet
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", type=cli_arguments.local_folder, metavar="FOLDER", help="the archive's folder")
    cli_arguments.source_arguments(parser)
    add = parser.add_argument_group("history").add_argument
    add("--schema", help="typed columns instead of the map `fields`: 'id string, delay double'")
    add("--where", metavar="SQL", help="a condition on the columns")
    add("--to", metavar="FOLDER", help="write Parquet files to this folder instead of printing rows")
    add("--limit", type=whole_number(1), default=20, metavar="N", help="the number of rows to print (default: 20)")


def argument_errors(options: argparse.Namespace) -> list[str]:
    errors = cli_arguments.source_errors(options)
    if options.to is not None and Path(options.to).exists():
        errors.append(f"--to is {options.to!r}: this path exists already")
    return errors


def run(options: argparse.Namespace) -> int:
    """Print the rows of an archive and its streams, or write them to Parquet files; return the exit status."""
    with cli_common.session_of(options, "history") as spark:
        given = cli_arguments.source_options(options)
        if options.where is not None:  # the table is used with this condition only
            given = {"pushFilters": "true", **given}
        table = history(spark, archive=options.archive, schema=options.schema, **given)
        if options.where is not None:
            table = table.where(options.where)
        if options.to is None and options.json:
            from pyspark.sql import functions as F

            line = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
            for row in table.limit(options.limit).select(line).toLocalIterator():
                print(row[0], flush=True)
        elif options.to is None:
            table.show(options.limit, truncate=False)
            print(f"{options.archive} and the stream: {counted(table.count(), 'entry', 'entries')}")
        else:
            table.write.parquet(options.to)
            entries = spark.read.parquet(options.to).count()
            if options.json:
                print_json({"to": options.to, "entries": entries})
            else:
                print(f"{options.to}: {counted(entries, 'entry', 'entries')}")
    return cli_common.DONE


__all__ = ["history"]
