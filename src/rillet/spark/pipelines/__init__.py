"""The standard pipelines around streams, each a function over DataFrames and a command, `rillet pipeline NAME`.

    archive.py      streams -> Parquet files by date, exactly once, compacted; what is archived may be trimmed
    history.py      archive and live stream as one table
    folder.py       the archive's folder: its manifest, commits, what a crash leaves
    parquet.py      entries into Parquet files and out of them; what the tasks of these two do
    running.py      what the commands of all pipelines share: arguments, a session, a bar, one line at the end

A pipeline's function has the name of its module, and it is what this package shows under that name. The modules import
pyspark and pyarrow where they work with them, so importing this package needs neither.
"""

from __future__ import annotations

from rillet.spark.pipelines.archive import archive, compact
from rillet.spark.pipelines.history import history

__all__ = ["archive", "compact", "history"]
