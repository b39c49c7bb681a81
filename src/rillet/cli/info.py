"""`rillet info`: which build runs, and which optional packages it finds.

The first line is what a bug report needs; an interpreted install says here how to get the compiled one, because
pip hides what the build said unless it is run with -v.
"""

from __future__ import annotations

import argparse
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import rillet
from rillet._compiled import by_speed

OPTIONAL = {
    "uvloop": "the server's event loop",
    "anycrc": "CRC-64 of DUMP payloads and RDB files",
    "redis": "remote stores, and store.redis()",
    "hiredis": "redis-py's fast parser",
    "pyspark": "the Spark source and sink",
    "pyarrow": "Arrow batches for Spark, Stream.to_arrow",
    "pandas": "Stream.to_pandas",
    "polars": "Stream.to_polars",
    "rich": "progress bars of the pipelines",
    "matplotlib": "the chart of rillet pipeline lag",
}
PROGRAMS = {"java": "Spark needs Java 17 or newer", "redis-server": "the judge of the tests and benchmarks"}


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(_options: argparse.Namespace | None = None) -> int:
    """Print the report and return 0."""
    print("\n".join(report()))
    return 0


def report() -> list[str]:
    """Return the lines of the report."""
    lines = [
        f"rillet {rillet.__version__}, {speed()}",
        f"  {'package':<13} {Path(rillet.__file__).parent}",
        f"  {'python':<13} {platform.python_implementation()} {platform.python_version()} on {platform.platform()}",
    ]
    lines += [f"  {name:<13} {_version_of(name):<9} {purpose}" for name, purpose in OPTIONAL.items()]
    lines += [f"  {name:<13} {_found(name):<9} {purpose}" for name, purpose in PROGRAMS.items()]
    return lines


def speed() -> str:
    """Return how the byte-level modules run here, and what to do where they are interpreted."""
    compiled, interpreted = by_speed()
    if not interpreted:
        return f"compiled ({len(compiled)} modules)"
    if not compiled:
        return (
            "interpreted: the same results, slower. For the compiled package install a C compiler and the Python "
            "headers (Debian: gcc python3-dev) and reinstall; in a source tree, `make setup`"
        )
    return f"mixed: {len(compiled)} modules compiled, interpreted: {', '.join(interpreted)}"


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "-"


def _found(program: str) -> str:
    return "found" if shutil.which(program) else "-"
