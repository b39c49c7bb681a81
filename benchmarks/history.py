"""Plots memory and opening time against the history of a stream, with and without segments.

    python -m benchmarks.history docs/images                    measure, write history.json, draw history.svg
    python -m benchmarks.history docs/images --draw             draw history.json again
    python -m benchmarks.history docs/images --entries 4000000 --limit 32mb

Two directories, one with a limit, get the same entries of five fields. After each part, the store is closed, and a new
process opens it and reads the first and the last ten entries: the growth of the process, and the time of the opening.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import rillet
from benchmarks.curves import Lines, draw
from benchmarks.stream_memory import BATCH, resident, rows

PARTS = 6
OPENINGS = 2  # of which the fastest counts
MEMORY, OPENING = "growth of the process, MB", "opening, seconds of the processor"


def opened(folder: str) -> tuple[float, float]:
    """Return the seconds of the processor that opening a store takes, and by how many bytes the process grew."""
    before, began = resident(), time.process_time()
    with rillet.open(folder) as store:
        seconds = time.process_time() - began
        stream = store.stream("s")
        assert stream.range(count=10)
        assert stream.reverse(count=10)
        return seconds, resident() - before


def measured(entries: int, limit: str) -> Lines:
    """Return the curves."""
    plots: Lines = {MEMORY: {}, OPENING: {}}
    part = entries // PARTS // BATCH * BATCH
    for name, setting in ((f"limit of {limit}", limit), ("no limit", "0")):
        for lines in plots.values():
            lines[name] = []
        with tempfile.TemporaryDirectory() as folder:
            for end in range(part, part * PARTS + 1, part):
                with rillet.open(folder, stream_memory=setting) as store:
                    stream = store.stream("s")
                    for first in range(end - part, end, BATCH):
                        stream.add_many(rows(first))
                    while setting != "0" and int((info := store.info())["stream_memory_used"]) > int(
                        info["stream_memory_limit"]
                    ):
                        time.sleep(0.05)
                command = [sys.executable, "-m", "benchmarks.history", folder, "--one"]
                found = [json.loads(subprocess.check_output(command)) for _ in range(OPENINGS)]
                seconds, grown = min(found)
                plots[MEMORY][name].append((end / 1e6, grown / 1e6))
                plots[OPENING][name].append((end / 1e6, seconds))
                print(f"{name}: {end:,} entries, {grown / 1e6:.0f} MB, {seconds:.2f} s", file=sys.stderr, flush=True)
    return plots


def main() -> None:
    """Measure, or take the file; draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--entries", type=int, default=3_000_000)
    parser.add_argument("--limit", default="16mb")
    parser.add_argument("--draw", action="store_true", help="draw history.json again")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(opened(str(given.folder))))
        return
    path = given.folder / "history.json"
    if not given.draw:
        path.write_text(json.dumps(measured(given.entries, given.limit), indent=1) + "\n", encoding="utf-8")
    draw(json.loads(path.read_text(encoding="utf-8")), given.folder / "history.svg", "million entries")


if __name__ == "__main__":
    main()
