"""MONITOR at the engine: the lines, their order, and what they hide."""

from __future__ import annotations

import pytest

from rillet.protocol.command_parser import CommandParser, pack_command
from tests.commands.ends import NOW, Bench
from tests.differential.wire import Local


def lines(watcher: Local) -> list[str]:
    """Return the lines that a watching session received, without the time and the client."""
    received: bytes = watcher.session.out.take_bytes()
    return [line.partition("] ")[2] for line in received.decode().split("\r\n") if line]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def watch(bench: Bench) -> Local:
    """Return a session that watches."""
    watcher = bench.beside()
    assert watcher("MONITOR") == b"OK"
    return watcher


def test_a_line_has_time_database_client_and_arguments(bench: Bench) -> None:
    watcher = watch(bench)
    bench("SELECT", 3)
    watcher.session.out.take_bytes()
    bench("SET", b'k"\\\r\n\t\x07\x08\xff', 5)
    line = watcher.session.out.take_bytes()
    assert line == b'+%d.%06d [3 ?:0] "SET" "k\\"\\\\\\r\\n\\t\\a\\b\\xff" "5"\r\n' % divmod(NOW * 1000, 1_000_000)


def test_a_transaction_is_shown_in_the_order_of_its_execution(bench: Bench) -> None:
    watcher = watch(bench)
    for words in (["MULTI"], ["SET", "a", "1"], ["EXEC"], ["NOSUCH"], ["GET"], ["CONFIG", "GET", "port"]):
        bench(*words)
    assert lines(watcher) == ['"MULTI"', '"SET" "a" "1"', '"EXEC"']


def test_each_command_of_a_pipeline_is_shown_as_it_was_sent(bench: Bench) -> None:
    """Also one that is logged in another form; the line follows the words of its own command."""
    watcher, parser = watch(bench), CommandParser()
    sent = [["XADD", "s", "*", "f", str(n)] for n in range(3)] + [["EXPIRE", "s", "100"], ["GET", "a"], ["GET", "b"]]
    parser.feed(b"".join(pack_command([word.encode() for word in words]) for words in sent))
    bench.engine.drain(bench.session, parser, 1 << 20)
    assert lines(watcher) == [" ".join(f'"{word}"' for word in words) for words in sent]
    assert [argv[0] for argv in bench.log.take()] == [b"XADD"] * 3 + [b"PEXPIREAT"]


def test_a_script_is_shown_before_its_commands(bench: Bench) -> None:
    watcher = watch(bench)
    bench("EVAL", "redis.call('SET', KEYS[1], '1') return redis.call('GET', KEYS[1])", 1, "k")
    received = watcher.session.out.take_bytes().decode().splitlines()
    assert [line.partition(" ")[2] for line in received] == [
        '[0 ?:0] "EVAL" "redis.call(\'SET\', KEYS[1], \'1\') return redis.call(\'GET\', KEYS[1])" "1" "k"',
        '[0 lua] "SET" "k" "1"', '[0 lua] "GET" "k"',
    ]  # fmt: skip


def test_passwords_are_hidden(bench: Bench) -> None:
    watcher = watch(bench)
    bench("AUTH", "secret")
    bench("AUTH", "me", "secret")
    bench("HELLO", 2, "AUTH", "me", "secret")
    bench("ECHO", "plain")
    assert lines(watcher) == [
        '"AUTH" "(redacted)"', '"AUTH" "(redacted)" "(redacted)"', '"HELLO" "2" "AUTH" "(redacted)" "(redacted)"',
        '"ECHO" "plain"',
    ]  # fmt: skip


def test_a_watching_client_cannot_use_keys_until_reset(bench: Bench) -> None:
    watcher = watch(bench)
    assert watcher("GET", "a") == "ERR Replica can't interact with the keyspace"
    assert watcher("PUBLISH", "a", "b") == "ERR Replica can't interact with the keyspace"
    assert b" flags=O " in bench("CLIENT", "LIST")
    assert bench.engine.observed
    watcher.session.out.take_bytes()
    assert watcher.run([b"RESET"]) == b"+RESET\r\n"
    assert not bench.engine.observed
    assert watcher("GET", "a") == b"-1"


def test_monitor_is_refused_inside_a_transaction(bench: Bench) -> None:
    bench("MULTI")
    bench("MONITOR")
    assert bench("EXEC") == ["ERR MONITOR isn't allowed for DENY BLOCKING client"]


def test_a_client_that_leaves_no_longer_watches(bench: Bench) -> None:
    watcher = watch(bench)
    bench.engine.close_session(watcher.session)
    assert not bench.engine.monitors.sessions
    assert not bench.engine.observed
