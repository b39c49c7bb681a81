"""Two shortcuts for users: a local Spark session with the connector, and an archive with its streams as one table.

pyspark is imported when a function is called, so importing this module does not need it.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rillet.spark.java import require_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def session(master: str = "local[2]", name: str = "rillet", **settings: str) -> SparkSession:
    """Return a Spark session with `rillet` registered; `settings` are Spark settings with _ in place of the dots."""
    require_java()
    package_folder = str(Path(__file__).parents[2])
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if package_folder not in folders:  # Spark's Python workers inherit PYTHONPATH
        os.environ["PYTHONPATH"] = os.pathsep.join([package_folder, *filter(None, folders)])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    from rillet.spark.source import register

    builder = SparkSession.builder.master(master).appName(name)
    defaults = {
        "spark_ui_enabled": "false",
        "spark_ui_showConsoleProgress": "false",
        "spark_sql_session_timeZone": "UTC",
    }
    if hasattr(socket, "AF_UNIX"):  # cheaper than TCP, and without its delays (worker_socket.py)
        defaults["spark_python_unix_domain_socket_enabled"] = "true"
    for key, value in {**defaults, **settings}.items():
        # A setting whose name contains dots is passed unchanged: spark.executorEnv.HTTP_PROXY.
        builder = builder.config(key if "." in key else key.replace("_", "."), value)
    spark = builder.getOrCreate()
    if master.startswith("local") and spark.conf.get(_FILE_MANAGER, None) is None:
        _speed_up_local_checkpoints(spark)
    register(spark)
    return spark


def _speed_up_local_checkpoints(spark: SparkSession) -> None:
    """Select Spark's file manager that renames a checkpoint's files itself; the default one starts processes for it.

    On a local disk, both replace a file by one rename. With the default, a trigger takes about 50 ms longer.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    for package in ("streaming.checkpointing", "streaming"):  # the second: before Spark 4.1
        name = f"org.apache.spark.sql.execution.{package}.FileSystemBasedCheckpointFileManager"
        try:
            spark._jvm.java.lang.Class.forName(name)  # type: ignore[union-attr]
        except Py4JError:
            continue
        spark.conf.set(_FILE_MANAGER, name)
        return


def history(
    spark: SparkSession,
    stream: str | None = None,
    *,
    archive: str | Path,
    schema: str | StructType | None = None,
    **options: str,
) -> DataFrame:
    """Return one table of archived entries and the streams' later entries; `options`: as for spark.read.

    archive: a folder, or the URL of a Delta table.
    """
    from rillet.spark.source import register

    register(spark)
    place = str(archive) if "://" in str(archive) else str(Path(archive).absolute())
    reader = spark.read.format("rillet").option("archive", place).options(**options)
    if stream is not None:
        reader = reader.option("stream", stream)
    return (reader if schema is None else reader.schema(schema)).load()
