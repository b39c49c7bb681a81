"""Rounds of the models of delays, of the order by key and of partitions, on each kind of store, with faults.

    python -m tests.store.rounds                            # ten rounds of each model on each kind
    python -m tests.store.rounds --rounds 2000 --minutes 600
    python -m tests.store.rounds --model order --kind redis --seed 42 --rounds 1      # a failure prints this command

It prints how many rounds of each model were played on each kind, with how many kills, and exits with 1 if a ledger did
not agree. The models and their ledgers are described in their modules, the faults in tests.store.faults.

    clock       in memory, with a clock that jumps                      memory      rillet.open()
    directory   rillet.open(path)                                       attached    its owner is killed
    socket      rillet.connect, to a rillet in this process             redis       a redis-server with kills and jumps
    rillet      `rillet serve` with kills and jumps                     cluster     three redis-servers, as redis
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import rillet
from tests.judge import redis_binary
from tests.store.faults import LIBRARY, MODELS, Clock, Cluster, Owner, Place, Real, Server, play


@contextmanager
def _server(rillets: bool) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="rillet-faults-"))
    server = Server(folder, rillets)
    try:
        yield server
    finally:
        server.end()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _opened(kind: str) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="rillet-rounds-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        store = stack.enter_context(rillet.open() if kind == "memory" else rillet.open(folder / "store.rillet"))
        if kind == "socket":
            store = stack.enter_context(rillet.connect(f"unix://{store.socket}"))
        yield Real(store)


@contextmanager
def _plain(make: Callable[[], Place]) -> Iterator[Place]:
    yield make()


@contextmanager
def _cluster() -> Iterator[Place]:
    place = Cluster()
    try:
        yield place
    finally:
        place.end()


KINDS: dict[str, Callable[[], object]] = {
    "clock": lambda: _plain(Clock),
    "memory": lambda: _opened("memory"),
    "directory": lambda: _opened("directory"),
    "attached": lambda: _plain(Owner),
    "socket": lambda: _opened("socket"),
    "redis": lambda: _server(False),
    "rillet": lambda: _server(True),
    "cluster": _cluster,
}
WORLD = 10  # rounds with the same store


def available() -> list[str]:
    """Return the kinds that this machine has."""
    absent = {*(() if redis_binary() else ("redis", "cluster")), *(() if LIBRARY else ("redis", "rillet", "cluster"))}
    return [kind for kind in KINDS if kind not in absent]


class Runner:
    """Plays rounds, and counts."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rounds: Counter[tuple[str, str]] = Counter()
        self.kills: Counter[tuple[str, str]] = Counter()
        self.failures = 0
        self.end = time.monotonic() + 60 * options.minutes

    def run(self) -> int:
        """Play the rounds of all kinds in turn; return the exit status."""
        options = self.options
        try:
            for first in range(options.seed, options.seed + options.rounds, WORLD):
                for kind in options.kind:
                    for model in options.model:
                        self._world(kind, model, range(first, min(first + WORLD, options.seed + options.rounds)))
                self._print()
        except KeyboardInterrupt:
            self._print()
        return min(self.failures, 1)

    def _world(self, kind: str, model: str, seeds: Sequence[int]) -> None:
        if time.monotonic() >= self.end:
            return
        with KINDS[kind]() as place:  # type: ignore[attr-defined]
            for seed in seeds:
                if time.monotonic() >= self.end:
                    break
                try:
                    play(place, MODELS[model], f"{kind} {seed}")
                except Exception:
                    self.failures += 1
                    traceback.print_exc(limit=-8)
                    print(f"FAIL: python -m tests.store.rounds --kind {kind} --model {model} --seed {seed} --rounds 1",
                          flush=True)  # fmt: skip
                    break  # the store may have the keys of this round
                self.rounds[model, kind] += 1
            self.kills[model, kind] += place.kills

    def _print(self) -> None:
        for model in self.options.model:
            keys = [(model, kind) for kind in self.options.kind]
            counts = [f"{key[1]} {self.rounds[key]} (kills: {self.kills[key]})" for key in keys]
            print(f"{model}: {sum(self.rounds[key] for key in keys)} rounds: {', '.join(counts)}", flush=True)
        print(f"{self.failures} failures", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and play the rounds."""
    parser = argparse.ArgumentParser(prog="python -m tests.store.rounds", description="The models of consumers.")
    parser.add_argument("--rounds", type=int, default=10, help="of each model on each kind")
    parser.add_argument("--minutes", type=float, default=1e6, help="end after so many minutes")
    parser.add_argument("--kind", choices=available(), action="append", help="this kind alone; may be repeated")
    parser.add_argument("--model", choices=MODELS, action="append", help="this model alone; may be repeated")
    parser.add_argument("--seed", type=int, help="of the first round; the next rounds have the next seeds")
    options = parser.parse_args(arguments)
    options.kind, options.model = options.kind or available(), options.model or list(MODELS)
    if options.seed is None:
        options.seed = random.randrange(1 << 31)
    print(f"rillet {rillet.__version__} {'compiled' if rillet.compiled() else 'interpreted'}, seed {options.seed}",
          flush=True)  # fmt: skip
    return Runner(options).run()


if __name__ == "__main__":
    logging.getLogger("rillet").setLevel(logging.CRITICAL)
    sys.exit(main())
