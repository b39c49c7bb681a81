"""`python -m benchmarks [PART ...]`: measure all or the named parts against their peers; --rounds, --scale, --json."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import (
    arrow,
    connections,
    data_commands,
    defrag,
    delays,
    durability,
    embedded,
    eviction,
    expiry,
    groups,
    hash_tables,
    interfaces,
    keyspace,
    lazyfree,
    memory,
    owner_modes,
    partitions,
    peers,
    replication,
    scripts,
    server,
    situations,
    small_keys,
    streams,
)  # fmt: skip
from benchmarks.harness import BUILDS, ROOT, Figure, loaded, report

SPARK = (
    "spark_read", "spark_follow", "spark_latency", "spark_write", "spark_archive", "spark_tables", "spark_segments",
)  # fmt: skip
"""Modules with a function `figures(rounds, scale)`; the Spark parts import Spark when they run."""
PARTS = (
    "server", "connections", "streams", "groups", "delays", "partitions", "durability", "embedded", "interfaces",
    "owner_modes", "memory", "defrag", "hash_tables", "small_keys", "data_commands", "scripts", "situations",
    "keyspace", "peers", "expiry", "eviction", "lazyfree", "replication", "arrow",
    *SPARK,
)  # fmt: skip


def measure(parts: list[str], rounds: int, scale: float, mode: str, cells: list[str]) -> list[Figure]:
    """Run the parts in the build `mode` and return their figures; `cells` selects those of `situations`."""
    figures: list[Figure] = []
    if "server" in parts:
        figures += server.run(rounds, mode, scale)
    if "connections" in parts:
        figures += connections.run(rounds, mode, scale)
    if "streams" in parts:
        figures += streams.run(rounds, mode, scale)
    if "groups" in parts:
        figures += groups.run(rounds, mode, scale)
    if "delays" in parts and mode == "compiled":
        figures += delays.run(rounds, scale)
    if "partitions" in parts and mode == "compiled":
        figures += partitions.run(rounds, scale)
    if "durability" in parts:
        figures += durability.run(rounds, mode, scale)
    if "embedded" in parts:
        figures += embedded.run(rounds, scale)
    if "interfaces" in parts and mode == "compiled":
        figures += interfaces.run(rounds, scale)
    if "owner_modes" in parts and mode == "compiled":
        figures += owner_modes.run(rounds, scale)
    if "hash_tables" in parts and mode == "compiled":
        figures += hash_tables.figures(rounds, scale)
    if "small_keys" in parts:
        figures += small_keys.run(rounds, mode, scale)
    if "data_commands" in parts:
        figures += data_commands.run(rounds, mode, scale)
    if "scripts" in parts:
        figures += scripts.run(rounds, mode, scale)
    if "situations" in parts and mode == "compiled":
        figures += situations.run(rounds, scale, cells)
    if "keyspace" in parts and mode == "compiled":
        figures += keyspace.run(min(rounds, 3), mode, scale)
    if "peers" in parts and mode == "compiled":
        figures += peers.run(rounds, mode, scale)
    if "memory" in parts:
        figures += memory.run(mode, scale)
    if "defrag" in parts and mode == "compiled":
        figures += defrag.run(mode, scale)
    if "expiry" in parts and mode == "compiled":
        figures += expiry.run(mode, scale)
    if "eviction" in parts and mode == "compiled":
        figures += eviction.run(mode, scale)
    if "lazyfree" in parts and mode == "compiled":
        figures += lazyfree.run(mode, scale)
    if "replication" in parts and mode == "compiled":
        figures += replication.run(min(rounds, 3), mode, scale)
    if "arrow" in parts and mode == "compiled":
        figures += arrow.figures(rounds, scale)
    for name in SPARK:
        if name in parts and mode == "compiled":
            figures += importlib.import_module(f"benchmarks.{name}").figures(min(rounds, 3), scale)
    return figures


def _other_build(arguments: argparse.Namespace) -> list[Figure]:
    """Measure the interpreted build in a separate process, with a tenth of the work."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "figures.json"
        subprocess.run(
            [
                sys.executable,
                "-m",
                "benchmarks",
                "--build",
                "interpreted",
                "--rounds",
                str(arguments.rounds),
                "--scale",
                str(arguments.scale * 0.1),
                "--only",
                ",".join(set(arguments.part or arguments.only.split(",")) - set(SPARK)),
                "--json",
                str(target),
            ],
            check=True,
            env={**os.environ, "PYTHONPATH": f"{BUILDS['interpreted']}{os.pathsep}{ROOT}"},
            stdout=subprocess.DEVNULL,
        )
        rows = json.loads(target.read_text())["figures"]
    return loaded(rows)


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("part", nargs="*", help=f"one of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--only", default=",".join(PARTS), help="the parts, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the work of every case")
    parser.add_argument("--interpreted", action="store_true", help="also measure the interpreted build")
    parser.add_argument("--build", choices=tuple(BUILDS), default="compiled")
    parser.add_argument("--cells", action="append", default=[], help='the cells of situations: "MULTI *, KEA"')
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "benchmarks.json")
    arguments = parser.parse_args()
    parts = arguments.part or arguments.only.split(",")
    unknown = set(parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    if not situations.selected(arguments.cells):
        parser.error(f"no cell matches {', '.join(arguments.cells)}")
    figures = measure(parts, arguments.rounds, arguments.scale, arguments.build, arguments.cells)
    if arguments.interpreted:
        figures += _other_build(arguments)
    report(figures, arguments.json)
    if "situations" in parts:
        print("", *situations.tables(figures), sep="\n\n")


if __name__ == "__main__":
    main()
