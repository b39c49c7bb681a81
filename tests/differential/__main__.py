"""A long comparison of all types with real servers: random commands, and the same replies and values on both sides.

    RILLET_REDIS_7_2=... RILLET_REDIS_7_4=... RILLET_REDIS_8_0=... RILLET_REDIS_8_2=... \\
    RILLET_REDIS_8_6=... RILLET_NEWER_REDIS=... RILLET_VALKEY=... \\
        python -m tests.differential --steps 1000000
    python -m tests.differential --steps 20000 --compat newest --kind arrays --seed 7

The steps are divided among the servers and the kinds: those of test_values_differential (hashes, zsets, lists and
sets, bits, arrays ...), streams in memory, streams in segments, calls by the grammar of every command, and commands on
keys of any type (7.0 only). A round has up to 2,000 steps and a seed of its own, which a difference names; a test with
this seed repeats the round. Half of the rounds call the handlers, the others go through the parser and take the fast
paths. A line shows the progress every few seconds.
`python -m tests.differential.moving_time` compares expiry in the same way.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.differential import grammar
from tests.differential import test_generic_differential as generic
from tests.differential import test_stream_differential as streams
from tests.differential import test_values_differential as several
from tests.differential.wire import Redis
from tests.judge import PEERS, Judge, peer_binary, running_redis

ROUND = 2_000
PAUSE = 5.0
MOST_FAILURES = 20
Round = Callable[[Judge, str, int, int], None]
"""A comparison of one kind: server, compat, seed, steps; AssertionError at the first difference."""


def values_round(name: str) -> Round:
    """Return the comparison of a kind of values."""
    kind = several.KINDS[name]

    def compare(server: Judge, compat: str, seed: int, steps: int) -> None:
        reset = [[b"CONFIG", b"SET", *one.limits_at(compat)] for one in several.KINDS.values()]
        with Redis(server.port) as redis:
            redis.run([b"FLUSHALL"], *reset)
            try:
                several.run(kind, redis, compat, seed, steps)
            finally:
                redis.run([b"HELLO", b"2"], *reset)

    return compare


def streams_round(server: Judge, compat: str, seed: int, steps: int) -> None:
    """Compare streams."""
    streams.run(server.port, compat, seed, steps)


def sealed_streams_round(server: Judge, compat: str, seed: int, steps: int) -> None:
    """Compare streams that are on disk but for their last nodes."""
    with TemporaryDirectory() as folder:
        streams.run(server.port, compat, seed, steps, Path(folder))


def keys_round(server: Judge, compat: str, seed: int, steps: int) -> None:
    """Compare commands on keys of any type."""
    with Redis(server.port) as redis:
        redis.run([b"FLUSHALL"], [b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0"])
        try:
            generic.run(generic.Pair(redis), seed, steps)
        finally:
            redis.run([b"RESET"], [b"DEBUG", b"SET-ACTIVE-EXPIRE", b"1"])


def grammar_round(server: Judge, compat: str, seed: int, steps: int) -> None:
    """Compare calls by the grammar of every command."""
    with Redis(server.port) as redis:
        found = list(grammar.differences(redis, compat, seed, steps))
        redis.run([b"RESET"], [b"FLUSHALL"], [b"DEBUG", b"SET-ACTIVE-EXPIRE", b"1"])
    assert not found, found[:3]


def rounds_of(compat: str) -> dict[str, Round]:
    """Return the comparisons with a server."""
    # The rounds of streams change settings that CONFIG GET shows to those of keys.
    found: dict[str, Round] = {"keys": keys_round} if compat == "7.0" else {}
    found |= {name: values_round(name) for name in several.KINDS}
    return {**found, "grammar": grammar_round, "streams": streams_round, "sealed-streams": sealed_streams_round}


class Progress:
    """Counts steps and differences, and prints a line every few seconds."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = self.failures = 0
        self._began = self._shown = time.monotonic()

    def add(self, what: str, steps: int) -> None:
        """Count the steps of a round."""
        self.done += steps
        now = time.monotonic()
        if now - self._shown >= PAUSE:
            self._shown = now
            self.show(what)

    def show(self, what: str) -> None:
        """Print the progress."""
        rate = self.done / max(time.monotonic() - self._began, 0.001)
        print(f"{self.done:>9,} of {self.total:,} steps, {rate:,.0f} a second, {self.failures} differences  {what}",
              flush=True)  # fmt: skip


def compare(server: Judge, compat: str, kinds: dict[str, Round], steps: int, seed: int, progress: Progress) -> None:
    """Run rounds of each kind against a server, `steps` for each; print each difference with its seed."""
    for name, one in kinds.items():
        for at in range(0, steps, ROUND):
            count = min(ROUND, steps - at)
            try:
                one(server, compat, seed + at // ROUND, count)
            except AssertionError:
                progress.failures += 1
                where = f"compat {compat}, {name}, seed {seed + at // ROUND}"
                print(f"{where}:\n{traceback.format_exc(limit=-2)}", flush=True)
                if progress.failures >= MOST_FAILURES:
                    return
            progress.add(f"{compat}, {name}", count)


def main() -> int:
    """Run the comparison; return 1 if there was a difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=100_000, help="steps in total (default: 100,000)")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first round of each kind")
    parser.add_argument("--compat", nargs="+", choices=list(PEERS), default=list(PEERS), help="servers")
    parser.add_argument("--kind", nargs="+", default=None, help="kinds: " + ", ".join(rounds_of("7.0")))
    options = parser.parse_args()
    binaries = {compat: peer_binary(compat) for compat in options.compat}
    for compat in [compat for compat, binary in binaries.items() if binary is None]:
        print(f"no server for compat {compat}: {PEERS[compat] or 'redis-server'} names none")
        del binaries[compat]
    chosen = {compat: {name: one for name, one in rounds_of(compat).items() if not options.kind or name in options.kind}
              for compat in binaries}  # fmt: skip
    parts = sum(map(len, chosen.values()))
    if not parts:
        print("nothing to compare")
        return 5  # as pytest without a test
    steps = -(-options.steps // parts)
    progress = Progress(steps * parts)
    for compat, kinds in chosen.items():
        with ExitStack() as stack:
            server = stack.enter_context(running_redis(binary=binaries[compat]))
            compare(server, compat, kinds, steps, options.seed, progress)
        if progress.failures >= MOST_FAILURES:
            break
    progress.show("the end")
    return min(progress.failures, 1)


if __name__ == "__main__":
    sys.exit(main())
