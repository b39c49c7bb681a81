"""Run the long and random tests for a given time: fuzzers, crash points, kills, and the tests marked `long`.

    make test-long                    30 minutes
    make test-long MINUTES=480        a night
    python tools/test_long.py --minutes 30 --seed 7 --only columns

Each job runs as a separate process with a new seed, in turn, on the compiled build and then on the interpreted one.
A job that fails prints its output and the command that repeats it. The exit status is 1 if any job failed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPILED = ROOT / "build" / "compiled"
EXAMPLES = "500"  # examples of each property; `make test` runs 20


@dataclass(frozen=True)
class Job:
    """A command made from a seed, about a minute long on the compiled build."""

    name: str
    command: Callable[[int], list[str]]
    interpreted: bool = True


# The folders of tests/ whose tests have more examples, or long sizes (tests.variants.by_speed), in `make test-long`.
PROPERTIES = ("columns", "structs", "types", "protocol", "commands", "keyspace", "persistence", "differential")

# The folders of tests/ that have tests with the mark `long`. One job for each, so that a short run reaches all of them.
MARKED = sorted(
    {
        path.relative_to(ROOT).parts[1]
        for path in ROOT.glob("tests/*/**/test_*.py")
        if re.search("mark[.]long|tests[.]variants", path.read_text(encoding="utf-8"))
    }
)


def _marked(folder: str) -> Callable[[int], list[str]]:
    return lambda _seed: ["-m", "pytest", "-q", "-m", "long", "--timeout=1800", f"tests/{folder}"]


def _properties(folder: str) -> Callable[[int], list[str]]:
    """Return the tests of a folder with more examples of each property, generated from another seed."""
    return lambda seed: [
        "-m", "pytest", "-q", "-m", "not long and not spark", "--timeout=1800", f"--hypothesis-seed={seed}",
        f"tests/{folder}",
    ]  # fmt: skip


def _module(name: str, *arguments: str, seed: str = "--seed") -> Callable[[int], list[str]]:
    return lambda number: ["-m", name, *arguments, *([seed] if seed else []), str(number)]


SINKS = ("parquet", "stream", "ordered", "hashes", "counters")
"""Of tests.spark.ledger."""

JOBS = (
    Job("restore", _module("tests.types.fuzz_restore", "20000", "--all", seed="")),
    *(Job(kind, _module("tests.persistence.fuzz_files", kind, "3000", seed=""))
      for kind in ("rdb", "aof", "manifest", "config", "check")),
    Job("dict", _module("tests.structs.fuzz_dict", "1000000", seed="")),
    Job("moving-time", _module("tests.differential.moving_time", "--steps", "50000"), interpreted=False),
    Job("columns", _module("tests.columns.fuzz_columns", "--inputs", "200000"), interpreted=False),
    Job("power-loss", _module("tests.persistence.power_loss", "--seeds", "1", "--commands", "1000")),
    Job("kill", _module("tests.persistence.killing", "--rounds", "20"), interpreted=False),
    Job("model", _module("tests.model", "--rounds", "150", "--minutes", "5", "--history")),
    Job("consumers", _module("tests.store.rounds", "--rounds", "10", "--minutes", "5")),
    Job("ledger", lambda seed: _module("tests.spark.ledger", "--strikes", "6", "--sink", SINKS[seed % 5])(seed),
        interpreted=False),
    Job("replication", _module("tests.replication.matrix", "--rounds", "4"), interpreted=False),
    *(Job(f"properties-{folder}", _properties(folder)) for folder in PROPERTIES),
    Job("ordinary", lambda _seed: ["-m", "pytest", "-q", "-m", "not long and not spark", "--timeout=1800",
                                   "tests/store", "tests/transfer", "tests/server", "tests/cli", "docs"]),
    *(Job(f"long-{folder}", _marked(folder), interpreted=folder != "spark") for folder in MARKED),
)  # fmt: skip


def environment(compiled: bool) -> dict[str, str]:
    """Return the environment that selects a build."""
    build = COMPILED if compiled else ROOT / "src"
    own = {"PYTHONPATH": f"{build}{os.pathsep}{ROOT}", "RILLET_EXPECT": "compiled" if compiled else "interpreted"}
    own["RILLET_EXAMPLES"] = EXAMPLES
    return {**os.environ, **own, "PYSPARK_PYTHON": sys.executable, **({} if compiled else {"RILLET_NO_CYTHON": "1"})}


def run(job: Job, seed: int, compiled: bool) -> bool:
    """Run a job once and return whether it passed."""
    words = job.command(seed)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment(compiled), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    passed = done.returncode in (0, 5)  # 5: pytest found no test with the mark
    build = "compiled" if compiled else "interpreted"
    took = time.monotonic() - began
    print(f"{'pass' if passed else 'FAIL'}  {job.name:12} {build:12} seed {seed:<12} {took:6.1f} s", flush=True)
    if not passed:
        print(done.stdout[-8000:])
        print(f"repeat: PYTHONPATH={environment(compiled)['PYTHONPATH']} python {' '.join(words)}", flush=True)
    return passed


def main() -> int:
    """Run the jobs in turn until the time is over."""
    parser = argparse.ArgumentParser(description="Run the long and random tests for a given time.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31), help="of the first round")
    parser.add_argument("--only", choices=sorted(job.name for job in JOBS), action="append", help="this job alone")
    options = parser.parse_args()
    jobs = [job for job in JOBS if options.only is None or job.name in options.only]
    end = time.monotonic() + 60 * options.minutes
    runs = failures = 0
    seed = options.seed
    while time.monotonic() < end:
        for compiled in (True, False):
            for job in jobs:
                if time.monotonic() < end and (compiled or job.interpreted):
                    runs += 1
                    failures += not run(job, seed, compiled)
        seed += 1
    print(f"{runs - failures} passed, {failures} failed")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
