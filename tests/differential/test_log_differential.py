"""What the commands of every group leave in the log: the same as in a real server's append-only file.

Random sequences over several databases run on both sides: streams, lists, sets, strings and keys, each from the
generator that its replies are compared with, with transactions around whatever comes, and WATCH that fails. Then both logs
are decoded and compared, unit by unit (`logs`). Clients that wait are served in another test, keys that expire in a third.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rillet.commands.settings import Settings
from rillet.engine import Engine
from tests.differential import list_set
from tests.differential.generator import FIRST, Generator, asks_the_clock
from tests.differential.logs import assert_same, assert_same_bytes, file_of, kept, units
from tests.differential.test_generic_differential import Maker, words
from tests.differential.wire import Local, Redis, read
from tests.judge import PEERS, Judge, peer_binary, running_redis

STEPS = int(os.environ.get("RILLET_DIFF_STEPS", "1000"))
SEEDS = range(int(os.environ.get("RILLET_DIFF_SEEDS", "4")))
LOGGING = ("--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0")


@pytest.fixture(scope="module", params=PEERS)
def writer(request: pytest.FixtureRequest) -> Iterator[tuple[str, Judge]]:
    """A server of each compat that is at hand; it logs everything before it answers."""
    binary = peer_binary(request.param)
    if binary is None:
        pytest.skip(f"no server to judge compat {request.param}")
    with running_redis(*LOGGING, binary=binary) as server:
        yield request.param, server


GENERIC = 2


class Mixed:
    """Commands of all generators, some of one after some of another, each at home in a database of its own."""

    def __init__(self, seed: int, compat: str) -> None:
        self.streams = Generator(seed, compat)
        lists, generic = list_set.Generator(seed), Maker(seed)
        self.random = generic.random
        self.sources: list[Callable[[], list[bytes]]] = [
            self.streams.next, lists.next, lambda: patient(plain(generic)),
        ]  # fmt: skip
        self.home = 0
        self.left = 0

    def next(self) -> list[bytes]:
        """Return the next command."""
        if self.left == 0:
            self.left = self.random.choice((1, 2, 5, 20))
            self.home = self.random.randrange(len(self.sources))
            return [b"SELECT", b"%d" % self.home]
        self.left -= 1
        if self.random.random() < 0.06:
            return [self.random.choice((b"MULTI", b"EXEC", b"exec", b"EXEC", b"DISCARD"))]
        return self.sources[self.home]()

    def observe(self, reply: bytes) -> None:
        """Let the streams' generator see the IDs that were given."""
        if self.home == 0 and self.streams.made:
            self.streams.observe(reply)


# What tells of the server or the connection: it leaves nothing in the log, and the judges differ.
_TOLD = frozenset(b"command client scan config debug hello latency slowlog memory object auth role shutdown".split())


def plain(generic: Maker) -> list[bytes]:
    """Return the next command on keys."""
    while True:
        argv = words(generic.command())
        if argv[0].lower() not in _TOLD:
            return argv


def patient(argv: list[bytes]) -> list[bytes]:
    """Return the command without a time that ends while the test runs."""
    return [b"1000000" if word == b"1000" else word for word in argv]


class Pair:
    """A server and an engine that log what they are told, from the same moment on."""

    def __init__(self, redis: Redis, server: Judge, compat: str) -> None:
        lazy = {"lazyfree_lazy_expire": True, "lazyfree_lazy_server_del": True} if compat == "valkey" else {}
        self.local = Local(Engine(Settings(compat=compat, enable_debug_command="yes", **lazy)))
        self.redis = redis
        # The server's log stands in a database that is not the next command's, as ours does.
        redis.run([b"RESET"], [b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0"], [b"FLUSHALL"], [b"SELECT", b"15"],
                  [b"SET", b"k", b"v"], [b"FLUSHALL"], [b"SELECT", b"0"])  # fmt: skip
        self.path = file_of(server)
        self.start = self.path.stat().st_size
        self.log = kept(self.local.engine)

    def run(self, argv: list[bytes]) -> tuple[bytes, bytes]:
        """Run a command on both sides; ours and theirs replied."""
        return self.local.run(argv), self.redis.run(argv)[0]

    def logs(self) -> tuple[bytes, bytes]:
        """Return what both have logged."""
        return self.log.feed.take(), self.path.read_bytes()[self.start :]


@pytest.fixture
def pair(writer: tuple[str, Judge]) -> Iterator[Pair]:
    """Both sides, empty."""
    compat, server = writer
    with Redis(server.port) as redis:
        yield Pair(redis, server, compat)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_log_for_the_same_commands(pair: Pair, writer: tuple[str, Judge], seed: int) -> None:
    mixed = Mixed(seed, writer[0])
    for argv in FIRST:
        pair.run(argv)
    for step in range(STEPS):
        argv = mixed.next()
        if (len(argv) > 1 and asks_the_clock(pair.local, argv)) or (b"*" in argv and pair.local.session.state):
            continue
        ours, theirs = pair.run(argv)
        mixed.observe(theirs)
        assert ours[:1] == theirs[:1] or argv[0] == b"CONFIG" or (mixed.home == GENERIC and not pair.local.session.state), (seed, step, argv, ours, theirs)
    pair.run([b"DISCARD"])
    ours, theirs = pair.run([b"DEBUG", b"DIGEST"])
    assert ours == theirs
    mine, real = (units(log) for log in pair.logs())
    assert_same(mine, real, f"seed {seed}")
    assert len(mine) > STEPS // 10
