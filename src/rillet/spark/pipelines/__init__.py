"""The standard pipelines for streams. Each is both a function on DataFrames and a command, `rillet pipeline NAME`.

    archive.py            streams to Parquet files by date, exactly once, compacted; trims archived entries
                          (archive_backfill.py: what an archive lacks; archive_offsets.py, archive_summary.py,
                          archive_trim.py, parquet.py; spark/archive: the format of the folder)
    history.py            an archive and its live stream as one table (the reader: spark/read/history.py)
    changes.py            every change of a server in an archive, and the value of every key in a table
                          (changes_archive.py; spark/changes: the source; spark/state: the table)
    replay.py             writes rows with IDs to a stream, in order, at full speed or at their recorded pace
                          (replay_writer.py: the Spark task that writes; after a stop it resumes at the next row)
    dead_letters.py       failed entries by group, reason and age; requeue.py moves them back into their stream
                          (letters.py: few entries, without Spark; letter_text.py)
    lag.py                samples of group lag and consumers over time, as a table, report or chart
                          (lag_sampling.py)
    snapshot.py           RDB files as tables, and a report on their memory
    migrate.py            copies streams from server to server with groups and counters, and verifies each copy
                          (migrate_stream.py, migrate_compare.py, copying.py: entries as bytes)
    migrate_keys.py       copies keys of all other types, and verifies them by digests
    run.py                the jobs of a TOML file, in one process (jobs.py: their metrics and health)
    group_info.py         reads the state of groups with XINFO and, page by page, XPENDING
    task_runner.py        where tasks run: in this process, or in Spark
    tables.py             progress of Spark's tasks, and text tables
    cli_arguments.py      the parser and the arguments that the commands share
    cli_common.py         the Spark session and the messages that the commands share

A pipeline's function has the name of its module, and the package exports the function under that name. The modules
import pyspark and pyarrow inside functions, so importing this package needs neither.
"""

from __future__ import annotations

from rillet.spark.pipelines.archive import archive, compact
from rillet.spark.pipelines.archive_backfill import backfill
from rillet.spark.pipelines.changes import changes
from rillet.spark.pipelines.dead_letters import dead_letters
from rillet.spark.pipelines.history import history
from rillet.spark.pipelines.lag import lag
from rillet.spark.pipelines.migrate import migrate
from rillet.spark.pipelines.migrate_keys import migrate_keys
from rillet.spark.pipelines.replay import replay
from rillet.spark.pipelines.snapshot import snapshot

__all__ = [
    "archive", "backfill", "changes", "compact", "dead_letters", "history", "lag", "migrate", "migrate_keys", "replay",
    "snapshot",
]  # fmt: skip
