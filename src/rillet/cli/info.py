"""`rillet info`: the build and the optional packages that are installed.

The first line is for bug reports. If the package is interpreted, the line also explains how to get a compiled one,
because pip hides the output of the build unless it runs with -v.
"""

from __future__ import annotations

import argparse
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import rillet
from rillet._compiled import by_speed
from rillet.cli.output import json_argument
from rillet.store.display.json_line import print_json

OPTIONAL = {
    "uvloop": "the server's event loop",
    "anycrc": "CRC-64 of DUMP payloads and RDB files",
    "msgspec": "JSON and MessagePack values (rillet.codecs)",
    "redis": "remote stores, and store.redis()",
    "hiredis": "redis-py's fast parser",
    "prometheus_client": "rillet serve --metrics-port",
    "opentelemetry-api": "spans and metrics (rillet.opentelemetry)",
    "shtab": "rillet completion",
    "prompt_toolkit": "rillet cli",
    "pyspark": "the Spark source and sink",
    "pyarrow": "Arrow batches for Spark, Stream.to_arrow",
    "pandas": "Stream.to_pandas",
    "polars": "Stream.to_polars",
    "rich": "the output of the flights demo",
    "grpcio": "Spark Connect",
    "deltalake": "archives in Delta tables",
    "matplotlib": "the chart of rillet pipeline lag",
}
PROGRAMS = {"java": "Spark needs Java 17 or newer", "redis-server": "the reference for tests and benchmarks"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    json_argument(parser, "the report as one line of JSON")


def run(options: argparse.Namespace) -> int:
    """Print the report and return 0."""
    if options.json:
        print_json(facts())
    else:
        print("\n".join(report()))
    return 0


def facts() -> dict[str, Any]:
    """Return the report for programs: versions, null for what is not installed; whether the programs are found."""
    compiled, interpreted = by_speed()
    return {
        "version": rillet.__version__, "compiled": len(compiled), "interpreted": interpreted,
        "package": Path(rillet.__file__).parent, "python": platform.python_version(), "platform": platform.platform(),
        "packages": {name: None if _version_of(name) == "-" else _version_of(name) for name in OPTIONAL},
        "programs": {name: shutil.which(name) for name in PROGRAMS},
    }  # fmt: skip


def report() -> list[str]:
    """Return the report on the build and the optional packages, as lines."""
    lines = [
        f"rillet {rillet.__version__}, {speed()}",
        f"  {'package':<13} {Path(rillet.__file__).parent}",
        f"  {'python':<13} {platform.python_implementation()} {platform.python_version()} on {platform.platform()}",
    ]
    lines += [f"  {name:<13} {_version_of(name):<9} {purpose}" for name, purpose in OPTIONAL.items()]
    lines += [f"  {name:<13} {_found(name):<9} {purpose}" for name, purpose in PROGRAMS.items()]
    return lines


def speed() -> str:
    """Return whether the byte-level modules are compiled, and a remedy if they are not."""
    compiled, interpreted = by_speed()
    if not interpreted:
        return f"compiled ({len(compiled)} modules)"
    if not compiled:
        return (
            "interpreted: same results, but slower. For the compiled package, install a C compiler and the Python "
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
