"""Random rounds of replication between rillet and real servers, in pairs and chains of three.

    RILLET_REDIS_8_6=... RILLET_NEWER_REDIS=... RILLET_VALKEY=... \\
        python -m tests.replication.matrix --rounds 1000
    python -m tests.replication.matrix --seed 7 --rounds 1 --pairs "rillet>7.0>rillet"
    python -m tests.replication.matrix --minutes 60 --jobs 2

A pair such as `7.0>rillet` means that rillet follows Redis 7.0; the first of three may also get two replicas. Without
--pairs, the rounds go through all pairs and chains whose servers are there. tests/replication/matrix_round.py describes
a round. Every round has its own seed; one that fails prints it, the events, and the command that repeats it, and keeps
its folder. Pairs without rillet show how genuine servers differ.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.judge import PEERS
from tests.replication.matrix_round import Round
from tests.replication.nodes import binaries_for

PAUSE = 10.0
EVENTS = 6
MOST_FAILURES = 20


def all_pairs() -> list[list[str]]:
    """Return the pairs and chains of the servers that are there."""
    found: list[list[str]] = []
    for kind in [kind for kind in PEERS if binaries_for(kind)]:
        found += [["rillet", kind], [kind, "rillet"], ["rillet", kind, "rillet"], [kind, "rillet", kind],
                  ["rillet", "rillet", kind], [kind, "rillet", "rillet"], ["rillet", kind, kind]]  # fmt: skip
    found += [["rillet", "rillet"], ["rillet", "rillet", "rillet"]]
    return found


class Matrix:
    """The rounds of one process, and what they have found."""

    def __init__(self, pairs: list[list[str]], folder: Path, events: int = EVENTS) -> None:
        self.pairs, self.folder, self.events = pairs, folder, events
        self.counts: Counter[str] = Counter()
        self.rounds = 0
        self.failed: list[str] = []

    def run(self, seed: int) -> bool:
        """Run one round; return whether it passed."""
        kinds = self.pairs[seed % len(self.pairs)]
        folder = self.folder / str(seed)
        played = Round(seed, kinds, folder)
        self.rounds += 1
        try:
            played.play(self.events)
        except Exception as error:
            pair = ">".join(kinds)
            self.failed.append(f"{seed} {pair}")
            print(f"FAILED: seed {seed}, {played.describe()}\n{traceback.format_exc()[-3000:]}\n"
                  f"error: {str(error)[:4000]}\nfiles: {folder}\n"
                  f"repeat: python -m tests.replication.matrix --seed {seed} --rounds 1 --pairs '{pair}'", flush=True)
            return False
        finally:
            self.counts += played.counts
        shutil.rmtree(folder, ignore_errors=True)
        return True

    def summary(self) -> str:
        """Return the line at the end."""
        events = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()) if " " not in name)
        unlike = ", ".join(f"{name[7:]} {count}" for name, count in sorted(self.counts.items()) if "unlike " in name)
        return (f"{self.rounds} rounds, {len(self.failed)} failed; expected and found: "
                f"{self.counts['expected partial']} partial, {self.counts['expected full']} full; "
                f"{events}; fields that differ: {unlike}")


def main() -> int:
    """Run the rounds, one after another or in several processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--minutes", type=float, default=0, help="end after so many minutes")
    parser.add_argument("--pairs", nargs="+", default=[], help="such as 7.0>rillet or rillet>8.6>rillet")
    parser.add_argument("--events", type=int, default=EVENTS, help="of each round")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    options = parser.parse_args()
    if options.jobs > 1:
        return side_by_side(options.jobs, options.rounds, options.seed)
    folder = Path(tempfile.mkdtemp(prefix="rillet-matrix-"))
    matrix = Matrix([pair.split(">") for pair in options.pairs] or all_pairs(), folder, options.events)
    end = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    shown = time.monotonic()
    for seed in range(options.seed, options.seed + options.rounds):
        if time.monotonic() > end or len(matrix.failed) >= MOST_FAILURES:
            break
        matrix.run(seed)
        if time.monotonic() > shown + PAUSE:
            shown = time.monotonic()
            print(f"seed {seed}: {matrix.summary()}", flush=True)
    print(f"all: {matrix.summary()}", flush=True)
    if not matrix.failed:
        shutil.rmtree(folder, ignore_errors=True)
    return min(len(matrix.failed), 1)


def side_by_side(jobs: int, rounds: int, seed: int) -> int:
    """Divide the rounds among processes with the other options of this one."""
    words = [word for at, word in enumerate(sys.argv[1:])
             if not {word, sys.argv[at]} & {"--jobs", "--rounds", "--seed"}]  # fmt: skip
    share = -(-rounds // jobs)
    running = [subprocess.Popen([sys.executable, "-m", "tests.replication.matrix", *words, "--rounds", str(share),
                                 "--seed", str(seed + at * share)]) for at in range(jobs)]  # fmt: skip
    return max(one.wait() for one in running)


if __name__ == "__main__":
    sys.exit(main())
