"""Sorted sets against real servers: the same replies, encodings, digests, payloads, logs and events.

With compat 7.0 against redis-server 7.0.15; with a newer compat against the server that the environment names for it
(`tests.judge.PEERS`). Payloads are equal byte for byte, whatever the encoding; only ZSCAN of a skiplist comes in an
order of chance, and a range of members has a meaning in a skiplist only where all scores are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rillet.commands.settings import Settings
from rillet.engine import Engine
from rillet.types.compat import COMPATS
from rillet.types.zset import Zset
from tests.differential.test_stream_log_differential import ALWAYS, Kept, events_of, logged_by, watched
from tests.differential.wire import Local, Redis
from tests.differential.zsets import FLAT, ZSETS, Generator, comparable
from tests.judge import PEERS, Judge, peer_binary, running_redis

STEPS = 2500
SEEDS = range(4)
LIMITS = (b"zset-max-listpack-entries", b"128", b"zset-max-listpack-value", b"64")


class Pair:
    """A real server and an engine, asked the same things, in RESP2 or RESP3."""

    def __init__(self, redis: Redis, compat: str, resp: int = 2) -> None:
        self.redis = redis
        settings = Settings(enable_debug_command="yes", compat=compat, dump_format="native")
        self.level = settings.compat.level
        self.local = Local(Engine(settings), resp)
        redis.run([b"HELLO", b"%d" % resp])

    def ask(self, argv: list[bytes]) -> tuple[bytes, bytes]:
        """Return our reply and theirs."""
        return self.local.run(argv), self.redis.run(argv)[0]

    def compare(self, where: str) -> None:
        """Hold every key against the server's: encoding, digest and payload."""
        for key in ZSETS + FLAT:
            for argv in ([b"OBJECT", b"ENCODING", key], [b"DEBUG", b"DIGEST-VALUE", key], [b"DUMP", key]):
                ours, theirs = self.ask(argv)
                assert ours == theirs, f"{where}: {argv}"
        self.local.engine.check()


def has_no_meaning(local: Local, argv: list[bytes]) -> bool:
    """Whether a command asks for a range of members where scores differ and the encoding is skiplist."""
    words = [word.lower() for word in argv]
    if b"bylex" not in words and b"lex" not in words[0]:
        return False
    for key in argv[1:3]:
        value = local.session.db.values.get(key)
        if isinstance(value, Zset) and value.listpack is None and len({score for _, score in value}) > 1:
            return True
    return False


@pytest.fixture(params=["7.0", "8.6", "newest", "valkey"])
def peer(request: pytest.FixtureRequest, peer_of: Callable[[str], Judge]) -> Iterator[tuple[Redis, str]]:
    """A connection to a real server, emptied, and the compat that it judges."""
    compat: str = request.param
    with Redis(peer_of(compat).port) as redis:
        redis.run([b"FLUSHALL"], [b"CONFIG", b"SET", *LIMITS])
        yield redis, compat
        redis.run([b"CONFIG", b"SET", *LIMITS])


@pytest.mark.parametrize("seed", SEEDS)
def test_replies_and_values_are_equal(peer: tuple[Redis, str], seed: int) -> None:
    pair = Pair(*peer, resp=2 + seed % 2)
    maker = Generator(seed, pair.level)
    pair.ask([b"SET", b"text", b"x"])
    for step in range(STEPS):
        argv = maker.next()
        if has_no_meaning(pair.local, argv):
            continue
        ours, theirs = pair.ask(argv)
        where = f"seed {seed}, step {step}: {argv}"
        assert ours == theirs or (argv[0] == b"ZSCAN" and comparable(ours) == comparable(theirs)), where
        if step % 10 == 0:
            pair.compare(where)
    pair.compare(f"seed {seed}, the end")


@pytest.mark.parametrize("seed", SEEDS)
def test_payloads_are_taken_by_the_other_side(peer: tuple[Redis, str], seed: int) -> None:
    """What one side dumps the other restores, under its limits of the moment, to the same."""
    pair = Pair(*peer)
    maker = Generator(100 + seed, pair.level)
    for step in range(400):
        argv = maker.next()
        if has_no_meaning(pair.local, argv):
            continue
        pair.ask(argv)
        if step % 8:
            continue
        for key in ZSETS:
            ours, theirs = pair.ask([b"DUMP", key])
            if ours[:1] == b"$" and ours[:3] != b"$-1":
                sealed = ours.split(b"\r\n", 1)[1][:-2]
                assert ours == theirs
                assert pair.ask([b"RESTORE", b"z1", b"0", sealed, b"REPLACE"]) == (b"+OK\r\n", b"+OK\r\n")
                pair.compare(f"seed {seed}, step {step}, RESTORE of {key!r}")


@pytest.fixture(scope="module", params=PEERS)
def writer(request: pytest.FixtureRequest) -> Iterator[tuple[str, Judge]]:
    """A server of each compat that is at hand; it logs everything before it answers."""
    binary = peer_binary(request.param)
    if binary is None:
        pytest.skip(f"no server to judge compat {request.param}")
    with running_redis(*ALWAYS, binary=binary) as server:
        yield request.param, server


@pytest.mark.parametrize("seed", [300, 301])
def test_log_and_events_are_redis_s(writer: tuple[str, Judge], seed: int) -> None:
    compat, server = writer
    before = len(logged_by(server, 0))
    maker = Generator(seed, COMPATS[compat].level)
    local = Local(Engine(Settings(compat=compat)))
    local.engine.log = kept = Kept()
    ours = watched(local)
    with Redis(server.port) as redis, Redis(server.port) as listener:
        redis.run([b"FLUSHALL"], [b"CONFIG", b"SET", *LIMITS])
        local.run([b"FLUSHALL"])
        listener.run([b"PSUBSCRIBE", b"__keyevent@0__:*"])
        for _ in range(800):
            argv = maker.next()
            if has_no_meaning(local, argv):
                continue
            assert local.run(argv)[:1] == redis.run(argv)[0][:1]
            local.engine.notify_events = True  # which CONFIG SET told from the settings
        redis.run([b"PUBLISH", b"__keyevent@0__:last", b""])
        assert ours == events_of(listener)
    theirs = logged_by(server, before)
    assert kept.commands == theirs
    assert len(theirs) > 200
    replica = Local(Engine(Settings(compat=compat, enable_debug_command="yes")))
    replica.session = replica.engine.session(trusted=True)
    local.engine.settings.set_text("enable-debug-command", "yes")
    for argv in kept.commands:
        assert not replica.run(argv).startswith(b"-")
    assert replica("DEBUG", "DIGEST") == local("DEBUG", "DIGEST")
