"""Java, which Spark needs and Python cannot bring: found and named before Spark fails on it.

Spark's own message for a missing Java is a traceback that ends in JAVA_GATEWAY_EXITED. `require_java` says the same in
one line, beforehand. `session` is the short way to a local Spark in which `format("rillet")` works and whose workers
find this package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rillet.errors import RilletError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST = 17


class JavaMissing(RilletError):
    """No Java that Spark runs on; the text is one line that says what to do."""


def require_java() -> str:
    """Return the path of the java that Spark will start; raise JavaMissing where it is absent or too old."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    what_to_do = f"install Java {OLDEST} or newer (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    if program is None:
        raise JavaMissing(f"Spark needs Java, and none is on the PATH: {what_to_do}")
    version = java_version(program)
    if version is None:
        place = f"JAVA_HOME is {home}, but {program}" if home else program
        raise JavaMissing(f"Spark needs Java; {place} does not run: {what_to_do}")
    if version < OLDEST:
        raise JavaMissing(f"Spark needs Java {OLDEST} or newer, and {program} is version {version}: {what_to_do}")
    return program


def java_version(program: str) -> int | None:
    """Return the major version that `java -version` tells, None when it does not run."""
    try:
        told = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found[1]) if told.returncode == 0 and found else None


def session(master: str = "local[2]", name: str = "rillet", **settings: str) -> SparkSession:
    """Return a Spark session with `rillet` registered; settings are Spark's, with _ for the dots of their names."""
    require_java()
    package_folder = str(Path(__file__).parents[2])
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if package_folder not in folders:  # the workers are other processes and inherit it
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
    for key, value in {**defaults, **settings}.items():
        # A name that has dots is one of Spark's already: spark.executorEnv.HTTP_PROXY.
        builder = builder.config(key if "." in key else key.replace("_", "."), value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
