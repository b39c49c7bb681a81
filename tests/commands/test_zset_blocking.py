"""Waiting for sorted sets: who is served, when, with what, and what of it is logged; as in test_list_blocking."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.commands.ends import Bench, ListLog
from tests.commands.test_stream_blocking import Clients, Step, play
from tests.judge import PEERS, Judge

SCENARIOS: dict[str, list[Step]] = {
    "served in the order in which they came": [
        (0, "BZPOPMIN z 0"), (1, "BZPOPMAX z 0"), (2, "BZMPOP 0 1 z MIN COUNT 10"), (3, "ZADD z 1 a 2 b 3 c 4 d"),
        (3, "ZCARD z"),
    ],
    "one member serves one": [(0, "BZPOPMIN z 0"), (1, "BZPOPMIN z 0"), (2, "ZADD z 1 a"), (2, "ZADD z 0.1 b")],
    "one of several keys is enough": [(0, "BZPOPMAX a b c 0"), (1, "ZADD b 1 x"), (1, "ZADD a 1 y"), (1, "ZCARD a")],
    "two of the keys in one transaction": [
        (0, "BZPOPMIN a b 0"), (1, "MULTI"), (1, "ZADD b 1 x"), (1, "ZADD a 2 y"), (1, "EXEC"), (1, "EXISTS a b"),
    ],
    "the same key twice": [(0, "BZPOPMIN a a 0"), (1, "ZADD a 1 x 2 y"), (1, "ZRANGE a 0 -1")],
    "added and gone in one transaction": [
        (0, "BZPOPMIN z 0"), (1, "MULTI"), (1, "ZADD z 1 a"), (1, "DEL z"), (1, "EXEC"), (1, "ZADD z 2 b"),
    ],
    "a key that is no sorted set wakes nobody": [
        (0, "BZPOPMIN z 0"), (1, "SADD z x"), (1, "DEL z"), (1, "RPUSH z x"), (1, "DEL z"), (1, "ZADD z 1 y"),
    ],
    "another key became a string": [(0, "BZPOPMIN a b 0"), (1, "SET a x"), (1, "ZADD b 1 y"), (1, "EXISTS b")],
    "what is renamed into place": [(0, "BZPOPMAX z 0"), (1, "ZADD other 1 a 2 b"), (1, "RENAME other z")],
    "what is copied into place": [(0, "BZPOPMAX z 0"), (1, "ZADD other 1 a 2 b"), (1, "COPY other z")],
    "what is stored": [
        (0, "BZPOPMIN z 0"), (1, "BZMPOP 0 1 y MAX"), (2, "SADD s a b"), (2, "ZUNIONSTORE z 1 s"),
        (2, "ZRANGESTORE y z 0 -1"),
    ],
    "what replaces another value": [
        (0, "BZPOPMIN z 0"), (1, "SET z x"), (1, "ZADD other 1 a 2 b"), (1, "ZUNIONSTORE z 1 other"), (1, "SET z x"),
        (1, "ZRANGESTORE z other 0 -1"), (1, "ZCARD z"), (1, "DEL z"), (1, "ZUNIONSTORE z 1 other"),
    ],
    "what replaces a stream": [
        (0, "BZPOPMIN z 0"), (1, "XGROUP CREATE z g 0 MKSTREAM"), (1, "ZADD other 1 a"), (1, "ZUNIONSTORE z 1 other"),
        (1, "ZCARD z"),
    ],
    "lists and sorted sets of the same name": [
        (0, "BLPOP k 0"), (1, "BZPOPMIN k 0"), (2, "ZADD k 1 a"), (2, "LPUSH k x"), (2, "EXISTS k"),
    ],
    "an error on the way": [(1, "SET a x"), (0, "BZPOPMIN b a 0"), (0, "BZMPOP 0 1 a MIN"), (0, "BZPOPMAX a 0")],
    "no waiting inside a transaction": [
        (0, "MULTI"), (0, "BZPOPMIN z 0"), (0, "BZPOPMAX z 0"), (0, "BZMPOP 0 1 z MIN"), (0, "EXEC"),
    ],
    "who waits in a transaction is not served first": [
        (0, "BZPOPMIN z 0"), (1, "MULTI"), (1, "ZADD z 1 a"), (1, "ZPOPMIN z"), (1, "EXEC"), (1, "ZADD z 1 b"),
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
        ("BZPOPMIN z 0", "ZPOPMIN z"), ("BZPOPMAX x z 0", "ZPOPMAX z"), ("BZMPOP 0 1 z max COUNT 9", "ZPOPMAX z 2"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", ["the client", "the members"])
def test_a_blocking_command_is_logged_as_its_effect(waiting: str, logged: str, first: str) -> None:
    """The log contains the non-blocking form after the ZADD, for a command served at once or later."""
    clients = Clients(2)
    clients.engine.log = log = ListLog()
    steps: list[Step] = [(0, waiting), (1, "ZADD z 1 a 2 b")]
    for client, text in steps if first == "the client" else reversed(steps):
        clients.run(client, text.encode().split())
    assert [b" ".join(argv).decode() for argv in log.take()] == ["ZADD z 1 a 2 b", logged]


def test_a_timeout_replies_with_a_null_array() -> None:
    bench = Bench()
    for words in ("BZPOPMIN z 1", "BZPOPMAX z y 0.5", "BZMPOP 3 1 z MIN"):
        assert bench.run(words.encode().split()) == b"*-1\r\n"
    assert bench.logged("BZPOPMIN", "z", 1) == []
