"""Blocking list commands: order of service, replies and log; scenarios as in test_stream_blocking."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.commands.ends import Bench, ListLog
from tests.commands.test_stream_blocking import Clients, Step, play
from tests.judge import PEERS, Judge

SCENARIOS: dict[str, list[Step]] = {
    "served in the order in which they came": [
        (0, "BLPOP l 0"), (1, "BRPOP l 0"), (2, "BLMPOP 0 1 l LEFT COUNT 10"), (3, "RPUSH l a b c d"), (3, "LLEN l"),
    ],
    "what is sorted into place": [
        (0, "BLPOP l 0"), (1, "BLMOVE m n LEFT LEFT 0"), (2, "RPUSH other 3 1 2"), (2, "SORT other STORE l"),
        (2, "SORT other DESC STORE m"), (2, "LRANGE l 0 -1"), (2, "LRANGE n 0 -1"),
    ],
    "what is sorted over another value": [
        (0, "BLPOP l 0"), (1, "SET l x"), (1, "RPUSH other 3 1"), (1, "SORT other STORE l"), (1, "LRANGE l 0 -1"),
        (1, "SORT none STORE l"), (1, "SORT other STORE l"),
    ],
    "one element serves one": [(0, "BLPOP l 0"), (1, "BLPOP l 0"), (2, "RPUSH l a"), (2, "RPUSH l b")],
    "one of several keys is enough": [(0, "BLPOP a b c 0"), (1, "RPUSH b x"), (1, "RPUSH a y"), (1, "LRANGE a 0 -1")],
    "two of the keys in one transaction": [
        (0, "BLPOP a b 0"), (1, "MULTI"), (1, "RPUSH b 1"), (1, "RPUSH a 2"), (1, "EXEC"), (1, "EXISTS a b"),
    ],
    "the same key twice": [(0, "BLPOP a a 0"), (1, "RPUSH a 1 2"), (1, "LRANGE a 0 -1")],
    "pushed and gone in one transaction": [
        (0, "BLPOP l 0"), (1, "MULTI"), (1, "RPUSH l a"), (1, "DEL l"), (1, "EXEC"), (1, "RPUSH l b"),
    ],
    "a key that is no list wakes nobody": [
        (0, "BLPOP l 0"), (1, "SADD l x"), (1, "DEL l"), (1, "SET l x"), (1, "DEL l"), (1, "LPUSH l y"),
    ],
    "another key became a string": [(0, "BLPOP a b 0"), (1, "SET a x"), (1, "RPUSH b y"), (1, "EXISTS b")],
    "a list that is renamed into place": [(0, "BRPOP l 0"), (1, "RPUSH other a b"), (1, "RENAME other l")],
    "a list that is copied into place": [(0, "BRPOP l 0"), (1, "RPUSH other a b"), (1, "COPY other l")],
    "a swapped database": [
        (0, "BLPOP l 0"), (1, "SELECT 7"), (1, "RPUSH l a"), (1, "SWAPDB 0 7"), (1, "SELECT 0"), (1, "EXISTS l"),
    ],
    "a chain of moves": [
        (0, "BLMOVE a b LEFT RIGHT 0"), (1, "BRPOPLPUSH b c 0"), (2, "BLPOP c 0"), (3, "RPUSH a x"),
        (3, "EXISTS a b c"),
    ],
    "a circle of moves": [
        (0, "BRPOPLPUSH a b 0"), (1, "BRPOPLPUSH b a 0"), (2, "RPUSH a x"), (2, "LRANGE a 0 -1"), (2, "EXISTS b"),
    ],
    "a move onto itself": [(0, "BLMOVE a a LEFT RIGHT 0"), (1, "RPUSH a x y"), (1, "LRANGE a 0 -1")],
    "a target of another type": [
        (0, "BRPOPLPUSH a t 0"), (1, "SET t x"), (1, "RPUSH a x"), (1, "LRANGE a 0 -1"), (1, "GET t"),
    ],
    "a source of another type": [(1, "SET a x"), (0, "BLMOVE a b LEFT LEFT 0"), (0, "BLPOP b a 0"), (0, "BLPOP a 0")],
    "who waits in a transaction is not served first": [
        (0, "BLPOP l 0"), (1, "MULTI"), (1, "RPUSH l a"), (1, "LPOP l"), (1, "EXEC"), (1, "RPUSH l b"),
    ],
    "no waiting inside a transaction": [
        (0, "MULTI"), (0, "BLPOP l 0"), (0, "BLMOVE l m LEFT LEFT 0"), (0, "BLMPOP 0 1 l LEFT"),
        (0, "BRPOPLPUSH l m 0"), (0, "EXEC"),
    ],
    "lists and streams of the same name": [
        (0, "BLPOP k 0"), (1, "XREAD BLOCK 0 STREAMS k 0"), (2, "XADD k 1-1 f v"), (2, "DEL k"), (2, "LPUSH k x"),
    ],
    "a member of a group whose stream became a list": [
        (1, "XGROUP CREATE k g $ MKSTREAM"), (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS k >"),
        (1, "MULTI"), (1, "DEL k"), (1, "SADD k x"), (1, "EXEC"), (1, "DEL k"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("compat", PEERS)
@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_scenario_matches_a_server(peer_of: Callable[[str], Judge], name: str, resp: int, compat: str) -> None:
    play(peer_of(compat), compat, resp, SCENARIOS[name])


@pytest.mark.parametrize(
    ("waiting", "logged"),
    [
        ("BLPOP l 0", "LPOP l"), ("BRPOP x l 0", "RPOP l"), ("BLMPOP 0 1 l RIGHT COUNT 9", "RPOP l 2"),
        ("BLMOVE l m left right 0", "LMOVE l m left right"), ("BRPOPLPUSH l m 0", "RPOPLPUSH l m"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", ["the client", "the list"])
def test_a_blocking_command_is_logged_as_its_effect(waiting: str, logged: str, first: str) -> None:
    """The log contains the non-blocking form after the RPUSH, for a command served at once or later."""
    clients = Clients(2)
    clients.engine.log = log = ListLog()
    steps: list[Step] = [(0, waiting), (1, "RPUSH l a b")]
    for client, text in steps if first == "the client" else reversed(steps):
        clients.run(client, text.encode().split())
    assert [b" ".join(argv).decode() for argv in log.take()] == ["RPUSH l a b", logged]


@pytest.mark.parametrize(("compat", "at_once"), [("7.0", True), ("8.6", False), ("valkey", False)])
@pytest.mark.parametrize(("waiting", "filling"), [
    ("BLPOP k 0", "RPUSH k a"), ("BLMOVE k l LEFT LEFT 0", "RPUSH k a"), ("BZPOPMIN k 0", "ZADD k 1 a"),
    ("XREAD BLOCK 0 STREAMS k 0", "XADD k 1-1 a b"),
])  # fmt: skip
def test_an_expired_key_stays_when_its_client_is_tried(waiting: str, filling: str, compat: str, at_once: bool) -> None:
    """Redis 7.0 deletes the key when it tries the client; newer servers leave it to the next command."""
    bench = Bench(compat=compat, lazyfree_lazy_expire="no")
    other = bench.beside()
    assert not bench.engine.execute(other.session, waiting.encode().split())
    for line in ("SELECT 1", filling, "PEXPIRE k 10"):
        bench(*line.split())
    bench.clock.advance(11)
    assert bench.logged("SWAPDB", 0, 1) == [[b"SWAPDB", b"0", b"1"], *([[b"DEL", b"k"]] if at_once else [])]
    assert other.session.blocked is not None
    bench("SELECT", 0)
    assert bench.logged("EXISTS", "k") == ([] if at_once else [[b"DEL", b"k"]])


def test_a_timeout_replies_with_a_null_array() -> None:
    """A move without an element replies null inside MULTI, and a null array after its timeout."""
    bench = Bench()
    for words in ("BLPOP l 1", "BLMOVE l m LEFT LEFT 0.5", "BLMPOP 3 1 l LEFT"):
        assert bench.run(words.encode().split()) == b"*-1\r\n"
    assert bench.logged("BLPOP", "l", 1) == []


def test_the_deadline_is_in_milliseconds_rounded_up() -> None:
    bench = Bench(compat="newest")
    assert not bench.engine.execute(bench.session, [b"BLPOP", b"l", b"0.0001"])
    assert bench.session.blocked.deadline == bench.clock.now_ms() + 1
    bench.engine.blocking.expire(bench.session)
    bench.session.out.take_bytes()
    assert bench("BLPOP", "l", "1e17") == "ERR timeout is out of range"
    assert bench("BLPOP", "l", "-inf") == "ERR timeout is negative"
    assert bench("BLPOP", "l", "inf") == "ERR timeout is out of range"
