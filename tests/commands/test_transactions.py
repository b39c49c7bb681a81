"""MULTI, EXEC and WATCH: what is run, what is logged, and what spoils a transaction."""

from __future__ import annotations

import pytest

from rillet.runtime.session_state import IN_MULTI
from tests.commands.ends import Bench
from tests.differential.wire import Local

pytestmark = pytest.mark.both


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_transaction_is_logged_as_one(bench: Bench) -> None:
    bench("MULTI")
    bench("SET", "a", 1)
    bench("GET", "a")
    bench("INCR", "a")
    assert bench.log.take() == []
    assert bench("EXEC") == [b"OK", b"1", 2]
    assert bench.log.take() == [[b"MULTI"], [b"SET", b"a", b"1"], [b"INCR", b"a"], [b"EXEC"]]
    assert bench.session.dirty == 0
    assert bench.session.propagated is None


def test_a_transaction_with_one_change_is_logged_without_multi(bench: Bench) -> None:
    bench("MULTI")
    bench("GET", "a")
    bench("SET", "a", 1)
    bench("EXEC")
    assert bench.log.take() == [[b"SET", b"a", b"1"]]


def test_errors_while_running_do_not_stop_the_rest(bench: Bench) -> None:
    bench("MULTI")
    bench("SET", "a", "x")
    bench("INCR", "a")
    bench("SET", "b", "y")
    assert bench("EXEC") == [b"OK", "ERR value is not an integer or out of range", b"OK"]


@pytest.mark.parametrize("spoiler", [("NOSUCH",), ("GET",), ("CONFIG", "NOSUCH"), ("SHUTDOWN",)])
def test_an_error_while_queueing_fails_the_transaction(bench: Bench, spoiler: tuple[str, ...]) -> None:
    bench("MULTI")
    bench("SET", "a", 1)
    assert bench(*spoiler).startswith("ERR")
    assert bench("EXEC") == "EXECABORT Transaction discarded because of previous errors."
    assert bench("EXISTS", "a") == 0
    assert bench("EXEC") == "ERR EXEC without MULTI"


def test_commands_about_the_transaction_are_not_queued_but_their_namesakes_are(bench: Bench) -> None:
    bench("MULTI")
    assert bench("MULTI") == "ERR MULTI calls can not be nested"
    assert bench("WATCH", "a") == "ERR WATCH inside MULTI is not allowed"
    assert bench("LATENCY", "RESET") == b"QUEUED"
    assert bench("EXEC") == [0]


CHANGES = (
    ("SET", "k", "w"), ("DEL", "k"), ("EXPIRE", "k", 100), ("PERSIST", "k"), ("RENAME", "k", "l"),
    ("RENAME", "x", "k"), ("APPEND", "k", "w"), ("FLUSHDB",), ("FLUSHALL",), ("SWAPDB", 0, 1), ("MOVE", "k", 1),
    ("COPY", "x", "k", "REPLACE"), ("GETDEL", "k"), ("GETEX", "k", "EX", 5), ("MSET", "y", 1, "k", 2),
    ("INCRBYFLOAT", "k", 1), ("SETRANGE", "k", 1, "x"),
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_of_a_watched_key_fails_the_transaction(bench: Bench, change: tuple[str, ...]) -> None:
    other = bench.beside()
    bench("SET", "k", 1, "EX", 1000)
    bench("SET", "x", 1)
    bench("WATCH", "k")
    other(*change)
    bench("MULTI")
    bench("SET", "result", 1)
    assert bench("EXEC") is None
    assert bench("EXISTS", "result") == 0
    assert not bench.session.watcher.keys
    assert not bench.session.state & IN_MULTI


def transaction(bench: Local) -> object:
    bench("MULTI")
    bench("PING")
    return bench("EXEC")


def test_reads_and_changes_of_other_keys_do_not_fail_the_transaction(bench: Bench) -> None:
    other = bench.beside()
    bench("SET", "k", 1)
    bench("WATCH", "k")
    other("GET", "k")
    other("SET", "l", 1)
    other("SELECT", 1)
    other("SET", "k", 1)
    assert transaction(bench) == [b"PONG"]


def test_unwatch_and_discard_remove_the_watches(bench: Bench) -> None:
    other = bench.beside()
    for forget in ("UNWATCH", "DISCARD"):
        bench("WATCH", "k")
        if forget == "DISCARD":
            bench("MULTI")
        other("INCR", "k")
        bench(forget)
        assert transaction(bench) == [b"PONG"]
    assert not bench.engine.databases[0].watched_keys


def test_the_expiry_of_a_watched_key_fails_the_transaction(bench: Bench) -> None:
    bench("SET", "k", 1, "PX", 10)
    bench("WATCH", "k")
    bench.clock.advance(11)
    assert transaction(bench) is None


def test_a_key_that_had_expired_before_watch_does_not_fail_the_transaction(bench: Bench) -> None:
    for removal in (("GET", "k"), ("DEL", "k"), ("FLUSHDB",), ("PING",)):
        bench("SET", "k", 1, "PX", 10)
        bench.clock.advance(11)
        bench("WATCH", "k")
        bench.beside()(*removal)
        assert transaction(bench) == [b"PONG"], removal


def test_blocking_commands_do_not_block_inside_a_transaction(bench: Bench) -> None:
    bench("MULTI")
    bench("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    bench("WAIT", 1, 0)
    assert bench("EXEC") == [None, 0]
    assert bench.session.blocked is None


def test_an_exec_with_writes_is_refused_while_the_log_is_broken(bench: Bench) -> None:
    bench("MULTI")
    bench("SET", "a", 1)
    bench.engine.refusal = "Errors writing to the AOF file"
    assert bench("EXEC").startswith("EXECABORT Transaction discarded because of: MISCONF")
    assert bench("EXISTS", "a") == 0
    bench("MULTI")
    bench("GET", "a")
    assert bench("EXEC") == [b"-1"]


def test_a_closed_session_has_no_watches(bench: Bench) -> None:
    other = bench.beside()
    other("WATCH", "k")
    bench.engine.close_session(other.session)
    assert not bench.engine.databases[0].watched_keys


def test_a_key_that_is_watched_twice_counts_once(bench: Bench) -> None:
    bench("WATCH", "a", "b", "a")
    bench("WATCH", "b")
    assert [key for _, key in bench.session.watcher.keys] == [b"a", b"b"]
    bench("UNWATCH")
    assert not bench.session.watcher.keys
    assert not bench.engine.databases[0].watched_keys


@pytest.mark.parametrize(("compat", "name"), [("7.0", ""), ("newest", ""), ("valkey", "'shutdown' ")])
def test_a_command_that_may_not_be_queued_fails_the_transaction(compat: str, name: str) -> None:
    bench = Bench(compat=compat)
    bench("MULTI")
    assert bench("SHUTDOWN", "NOSAVE") == f"ERR Command {name}not allowed inside a transaction"
    assert bench("EXEC") == "EXECABORT Transaction discarded because of previous errors."


def test_client_reply_is_not_queued_in_valkey() -> None:
    bench = Bench(compat="valkey")
    bench("MULTI")
    assert bench("CLIENT", "REPLY", "OFF") == "ERR Command 'client|reply' not allowed inside a transaction"
    assert bench("EXEC") == "EXECABORT Transaction discarded because of previous errors."
