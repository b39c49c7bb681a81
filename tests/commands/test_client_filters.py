"""The filters of CLIENT LIST and CLIENT KILL, by compat."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.commands.ends import Bench
from tests.differential.wire import Redis
from tests.judge import Judge


class Transport:
    """A transport like that of a socket: addresses and kill()."""

    def __init__(self, peer: str) -> None:
        self.peer, self.local = peer, "127.0.0.1:6379"

    def kill(self) -> None:
        """Do nothing: the session has no socket."""


def ids(bench: Bench, *filters: str | int) -> list[int]:
    """Return the IDs that CLIENT LIST shows with these filters."""
    reply = bench("CLIENT", "LIST", *filters)
    return [int(line.split(b" ")[0][3:]) for line in reply.splitlines()]


@pytest.fixture
def bench() -> Bench:
    """An engine of Valkey with the sessions 1, 2 (named two, database 5) and 3 (a subscriber)."""
    bench = Bench(compat="valkey")
    bench.clock.advance(10_000)
    two, three = bench.beside(), bench.beside()
    two.session.transport = Transport("[::1]:5")
    two("CLIENT", "SETNAME", "two")
    two("CLIENT", "CAPA", "redirect")
    two("SELECT", 5)
    three("CLIENT", "SETINFO", "LIB-NAME", "lib")
    three("SUBSCRIBE", "channel")
    bench("PING")
    return bench


@pytest.mark.parametrize(("filters", "expected"), [
    (("NAME", "two"), [2]), (("NOT-NAME", "two"), [1, 3]), (("DB", 5), [2]), (("NOT-DB", 5), [1, 3]),
    (("TYPE", "pubsub"), [3]), (("NOT-TYPE", "pubsub"), [1, 2]), (("FLAGS", "P"), [3]), (("NOT-FLAGS", "P"), [1, 2]),
    (("FLAGS", "N"), [1, 2]), (("CAPA", "r"), [2]), (("IP", "::1"), [2]), (("ADDR", "[::1]:5"), [2]),
    (("LIB-NAME", "lib"), [3]), (("NOT-LIB-NAME", "lib"), [1, 2]), (("ID", 1, 3), [1, 3]), (("NOT-ID", 1), [2, 3]),
    (("ID", 1, 2, "SKIPME", "yes"), [2]), (("USER", "default", "MAXAGE", 10), [1]), (("MAXAGE", 11), []),
])  # fmt: skip
def test_valkey_filters_clients(bench: Bench, filters: tuple[str | int, ...], expected: list[int]) -> None:
    assert ids(bench, *filters) == expected


@pytest.mark.parametrize(("filters", "error"), [
    (("FLAGS", "z"), "ERR Unknown flags found in the provided filter: z"),
    (("NOT-CAPA", "q"), "ERR Unknown capa found in the NOT-CAPA filter: q"),
    (("DB", 99), "ERR DB number should be between 0 and 15"), (("IDLE", 0), "ERR idle should be greater than 0"),
    (("USER", "nobody"), "ERR No such user 'nobody'"), (("ID", 0), "ERR client-id should be greater than 0"),
    (("BOGUS", 1), "ERR syntax error"), (("ID", "x"), "ERR syntax error"),
])  # fmt: skip
def test_valkey_rejects_bad_filters(bench: Bench, filters: tuple[str | int, ...], error: str) -> None:
    assert bench("CLIENT", "LIST", *filters) == error


def test_kill_takes_the_filters_too(bench: Bench) -> None:
    assert bench("CLIENT", "KILL", "NOT-TYPE", "pubsub", "NAME", "two") == 1
    assert bench("CLIENT", "KILL", "SKIPME", "no", "NOT-ID", 1, 2) == 1


def test_redis_knows_fewer_filters() -> None:
    bench = Bench(compat="newest")
    assert bench("CLIENT", "LIST", "NAME", "x") == "ERR syntax error"
    assert bench("CLIENT", "KILL", "NAME", "x") == "ERR syntax error"
    assert bench("CLIENT", "KILL", "MAXAGE", 1) == 0
    assert Bench(compat="7.0")("CLIENT", "KILL", "MAXAGE", 1) == "ERR syntax error"


def test_the_fields_follow_the_version() -> None:
    assert Bench(compat="7.0")("CLIENT", "INFO").endswith(b" resp=2\n")
    assert b" watch=0 " in Bench(compat="8.6")("CLIENT", "INFO")
    assert b" capa= " in Bench(compat="valkey")("CLIENT", "INFO")


LINES = [
    ["MULTI", "PING", "CLIENT INFO", "EXEC", "CLIENT INFO"],
    ["EVAL return(redis.call('ping')) 0", "CLIENT INFO"],
    ["WATCH k", "CLIENT INFO", "UNWATCH", "CLIENT INFO"],
    ["READONLY", "CLIENT INFO", "READWRITE", "CLIENT INFO", "READONLY", "RESET", "CLIENT INFO"],
]


@pytest.mark.parametrize("compat", ["7.0", "8.6", "newest", "valkey"])
def test_the_line_inside_exec_equals_the_servers(compat: str, peer_of: Callable[[str], Judge]) -> None:
    """The flags, the queue and the counted commands; also after scripts, whose commands count, and READONLY."""
    wanted = re.compile(rb" (flags|multi|argv-mem|multi-mem|cmd|tot-cmds)=(\S+)")
    for commands in LINES:
        bench = Bench(compat=compat)
        with Redis(peer_of(compat).port) as server:
            for command in commands:
                ours, theirs = bench.run(command.encode().split()), server.run(command.encode().split())[0]
                if b"flags=" in theirs:
                    assert wanted.findall(ours) == wanted.findall(theirs), command
                else:
                    assert ours == theirs, command
