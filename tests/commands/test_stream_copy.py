"""COPY of a stream: the copy is complete and shares nothing with the original."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.commands.ends import Bench
from tests.judge import PEERS, Judge
from tests.persistence.state import LATER, STREAMS

Run = Callable[..., Any]


def make(run: Run) -> list[bytes]:
    """Create streams with every feature that the server has, and a copy of each; return their names."""
    for line in (STREAMS + LATER).split("\n"):
        if line:
            run(*line.split())
    names = [key for key in run("KEYS", "*") if run("TYPE", key) == b"stream"]
    for key in names:
        assert run("COPY", key, b"copy of " + key) == 1
    return sorted(names)


def state_of(run: Run, key: bytes) -> Any:
    """Return the entries of a stream and everything that XINFO shows of it."""
    return run("XRANGE", key, "-", "+"), run("XINFO", "STREAM", key, "FULL", "COUNT", 0)


@pytest.mark.parametrize("compat", ["7.0", "7.2", "8.0", "8.6", "newest", "valkey"])
def test_changing_a_copy_does_not_change_the_original(compat: str) -> None:
    bench = Bench(compat=compat)
    names = make(bench)
    for key in names:
        before = state_of(bench, key)
        assert state_of(bench, b"copy of " + key) == before
        for words in (
            ("XADD", "18446744073709551615-18446744073709551615", "f", "v"), ("XTRIM", "MAXLEN", "1"), ("XDEL", "2-0"),
            ("XGROUP", "DESTROY", "g"), ("XCFGSET", "IDMP-DURATION", "7"), ("XGROUP", "CREATE", "new", "0"),
        ):  # fmt: skip
            at = 2 if words[0] == "XGROUP" else 1
            bench(*words[:at], b"copy of " + key, *words[at:])
        assert state_of(bench, key) == before != state_of(bench, b"copy of " + key)
        bench.engine.check()


@pytest.mark.parametrize("compat", PEERS)
def test_servers_copy_the_same_parts(peer_of: Callable[[str], Judge], compat: str) -> None:
    with peer_of(compat).client() as client:

        def run(*words: Any) -> Any:
            try:
                return client.execute_command(*words)
            except redis.ResponseError as error:
                return error

        run("FLUSHALL")
        names = make(run)
        assert names == make(Bench(compat=compat))
        for key in names:
            assert state_of(run, key) == state_of(run, b"copy of " + key)
