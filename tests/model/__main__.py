"""The command line of the model test; see tests.model."""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence

if os.environ.get("RILLET_NO_CYTHON"):
    sys.modules["cython"] = None  # type: ignore[assignment]

import rillet
from tests.model import kinds
from tests.model.actors import LIMIT, ROLES, Watchdog
from tests.model.rounds import CALLS, ROUNDS_OF_A_WORLD, Round


class Runner:
    """Runs rounds of several kinds, and counts."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.counts: Counter[str] = Counter()
        self.failures = 0
        self.current: Round | None = None
        self.watchdog = Watchdog(self._failed)
        self.began = time.monotonic()

    def run(self) -> int:
        """Run the rounds, a world of a kind in turn; return the exit status."""
        options = self.options
        end = None if options.minutes is None else self.began + 60 * options.minutes
        seed, last = options.seed, options.seed + options.rounds
        turn = 0
        while seed < last and (end is None or time.monotonic() < end):
            kind = options.kind[turn % len(options.kind)]
            turn += 1
            seed = self._world(kind, seed, min(last, seed + options.world), end)
            if self.failures and not options.keep_going:
                break
        print(self._summary(), flush=True)
        return min(self.failures, 1)

    def _world(self, kind: str, seed: int, last: int, end: float | None) -> int:
        """Run rounds in one world; return the seed of the next round."""
        world, remove = kinds.new_world(kind, random.Random(seed))
        try:
            while seed < last and not world.ended and (end is None or time.monotonic() < end):
                faulthandler.dump_traceback_later(8 * LIMIT, exit=True)
                if self.current is not None:
                    self.current.clean()
                self._round(world, seed)
                seed += 1
                if self.failures and not self.options.keep_going:
                    break
            if self.current is not None and not self.failures:
                faulthandler.dump_traceback_later(8 * LIMIT, exit=True)
                self._judge(self.current, self.current.reopen())
        finally:
            self.current = None
            faulthandler.dump_traceback_later(8 * LIMIT, exit=True)
            world.close()
            faulthandler.cancel_dump_traceback_later()
            remove()
        return seed

    def _round(self, world: kinds.World, seed: int) -> None:
        one = self.current = Round(world, seed, self.options.calls, self.options.role or ROLES)
        self._judge(one, one.run(self.watchdog))
        self.counts[world.kind] += 1
        self.counts["calls"] += len(one.history.calls)
        self.counts["unknown"] += sum(call.unknown for call in one.history.calls)
        self.counts["kills"] += one.kills
        if sys.stderr.isatty() or seed % 100 == 0:
            print(f"\r{self._summary()}", end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)

    def _judge(self, one: Round, problems: list[str]) -> None:
        """Count and print the problems of a round."""
        if problems:
            self.failures += 1
            one.world.ended = True
            for problem in problems[:10]:
                self._failed(problem)
            self._print_history(one)

    def _failed(self, problem: str) -> None:
        one = self.current
        assert one is not None
        print(f"FAIL {one.world.kind}, seed {one.seed}: {problem}", flush=True)
        print(f"actors: {one.plan.actors} {[plan.actors for plan in one.of_workers]}")
        print(f"repeat: python -m tests.model --kind {one.world.kind} --seed {one.seed} --calls {self.options.calls} "
              + "".join(f"--role {role} " for role in self.options.role or ()) + "--times 20", flush=True)  # fmt: skip

    def _print_history(self, one: Round) -> None:
        if self.options.history:
            for call in sorted(one.history.calls, key=lambda call: call.began):
                print("   ", call)
        print(flush=True)

    def _summary(self) -> str:
        counts = self.counts
        rounds = ", ".join(f"{kind} {counts[kind]}" for kind in kinds.KINDS if counts[kind])
        total = sum(counts[kind] for kind in kinds.KINDS)
        return (
            f"{total} rounds ({rounds}): {counts['calls']} calls, {counts['unknown']} of unknown outcome, "
            f"{counts['kills']} kills, {self.failures} failures, {time.monotonic() - self.began:.0f} s"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run the rounds."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="The model test of all kinds of stores.")
    parser.add_argument("--rounds", type=int, help="rounds of all kinds together (default 100; 1 with --seed)")
    parser.add_argument("--minutes", type=float, help="end after so many minutes")
    parser.add_argument("--kind", choices=kinds.available(), action="append", help="this kind alone; may be repeated")
    parser.add_argument("--role", choices=ROLES, action="append", help="actors of this role alone; may be repeated")
    parser.add_argument("--seed", type=int, help="of the first round; the next rounds have the next seeds")
    parser.add_argument("--times", type=int, default=1, help="run the rounds so often")
    parser.add_argument("--calls", type=int, default=CALLS, help="calls of each actor in a round")
    parser.add_argument("--world", type=int, default=ROUNDS_OF_A_WORLD, help="rounds with the same store")
    parser.add_argument("--keep-going", action="store_true", help="continue after a failure")
    parser.add_argument("--history", action="store_true", help="print all calls of a round that failed")
    options = parser.parse_args(arguments)
    if options.rounds is None:
        options.rounds = 100 if options.seed is None else 1
    if options.seed is None:
        options.seed = random.randrange(1 << 31)
    options.kind = options.kind or kinds.available()
    warnings.simplefilter("ignore")  # forks with threads; sockets of interrupted connections
    print(f"rillet {rillet.__version__} {'compiled' if rillet.compiled() else 'interpreted'}, seed {options.seed}",
          flush=True)  # fmt: skip
    status = 0
    for _ in range(options.times):
        status = Runner(options).run()
        if status:
            break
    return status


if __name__ == "__main__":
    sys.exit(main())
