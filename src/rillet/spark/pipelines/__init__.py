"""The standard pipelines around streams, each a function over DataFrames and a command, `rillet pipeline NAME`.

    archive.py      streams -> Parquet files by date, exactly once, compacted; what is archived may be trimmed
    history.py      archive and live stream as one table
    replay.py       rows with IDs -> a stream, in order, at full speed or at a recorded pace
    dead_letters.py what failed, by group, reason and age; back into its stream
    lag.py          groups and consumers over time: a sample, a history, a report, a chart
    snapshot.py     RDB files as tables, and what fills a server
    migrate.py      streams from server to server with all that belongs to them, each verified
    aggregate.py    windowed measures by fields, as a file declares them (declared.py)
    folder.py       the archive's folder: its manifest, commits, what a crash leaves
    parquet.py      entries into Parquet files and out of them; what the tasks of these two do
    pending.py      what servers tell of groups, page by page
    forward.py      entries from server to server as bytes; migrate_stream.py: one stream, step by step
    showing.py      how far Spark's tasks are, and tables of text
    running.py      what the commands of all pipelines share: arguments, a session, a bar, one line at the end

A pipeline's function has the name of its module, and it is what this package shows under that name. The modules import
pyspark and pyarrow where they work with them, so importing this package needs neither.
"""

from __future__ import annotations

from rillet.spark.pipelines.aggregate import aggregate
from rillet.spark.pipelines.archive import archive, compact
from rillet.spark.pipelines.dead_letters import dead_letters
from rillet.spark.pipelines.history import history
from rillet.spark.pipelines.lag import lag
from rillet.spark.pipelines.migrate import migrate
from rillet.spark.pipelines.replay import replay
from rillet.spark.pipelines.snapshot import snapshot

__all__ = ["aggregate", "archive", "compact", "dead_letters", "history", "lag", "migrate", "replay", "snapshot"]
