"""MIGRATE between `rillet serve`, a store in this process and a real redis-server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import rillet
from tests.differential.wire import Redis, read
from tests.judge import Judge, free_port
from tests.server.harness import Running, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("migrate"), "--compat", "7.0", "--appendonly", "yes",
                 "--enable-debug-command", "yes") as one:
        yield one


@pytest.fixture
def ours(server: Running) -> Iterator[Redis]:
    with Redis(server.port) as client:
        client.run([b"FLUSHALL"], [b"SELECT", b"0"])
        yield client


@pytest.fixture
def theirs(judge: Judge) -> Iterator[Redis]:
    with Redis(judge.port) as client:
        client.run([b"FLUSHALL"], [b"SELECT", b"9"])
        yield client


def ask(client: Redis, *words: bytes | str | int) -> object:
    return read(client.run([word if isinstance(word, bytes) else str(word).encode() for word in words])[0])


def migrate(client: Redis, port: int, *rest: bytes | str | int) -> object:
    return ask(client, "MIGRATE", "127.0.0.1", port, *rest)


def test_a_key_moves_with_its_value_and_its_expiry(ours: Redis, theirs: Redis, judge: Judge, server: Running) -> None:
    ask(ours, "SET", "k", "v", "PX", 100_000)
    ask(ours, "XADD", "s", "1-1", "f", "v")
    assert migrate(ours, judge.port, "k", 9, 1000) == b"OK"
    assert migrate(ours, judge.port, "s", 9, 1000) == b"OK"
    assert (ask(ours, "EXISTS", "k", "s"), ask(theirs, "GET", "k")) == (0, b"v")
    assert 0 < int(str(ask(theirs, "PTTL", "k"))) <= 100_000
    assert ask(theirs, "XRANGE", "s", "-", "+") == [[b"1-1", [b"f", b"v"]]]
    # And back again, from the real server.
    assert ask(theirs, "MIGRATE", "127.0.0.1", server.port, "s", 0, 1000) == b"OK"
    assert ask(ours, "XLEN", "s") == 1


def test_the_deletion_is_logged(ours: Redis, theirs: Redis, judge: Judge) -> None:
    ask(ours, "SET", "k", "v")
    assert migrate(ours, judge.port, "k", 9, 1000) == b"OK"
    assert ask(ours, "DEBUG", "LOADAOF") == b"OK"
    assert ask(ours, "EXISTS", "k") == 0


def test_several_keys_move_and_missing_ones_are_left_out(ours: Redis, theirs: Redis, judge: Judge) -> None:
    ask(ours, "MSET", "a", 1, "b", 2)
    assert migrate(ours, judge.port, "", 9, 1000, "KEYS", "a", "none", "b") == b"OK"
    assert (ask(theirs, "MGET", "a", "b"), ask(ours, "DBSIZE")) == ([b"1", b"2"], 0)
    assert migrate(ours, judge.port, "none", 9, 1000) == b"NOKEY"


def test_copy_keeps_the_key_and_replace_overwrites_the_other(ours: Redis, theirs: Redis, judge: Judge) -> None:
    ask(ours, "SET", "k", "new")
    ask(theirs, "SET", "k", "old")
    reply = "ERR Target instance replied with error: BUSYKEY Target key name already exists."
    assert migrate(ours, judge.port, "k", 9, 1000) == reply
    assert (ask(ours, "GET", "k"), ask(theirs, "GET", "k")) == (b"new", b"old")
    assert migrate(ours, judge.port, "k", 9, 1000, "COPY", "REPLACE") == b"OK"
    assert (ask(ours, "GET", "k"), ask(theirs, "GET", "k")) == (b"new", b"new")


def test_a_key_that_is_rejected_stays_and_the_others_move(ours: Redis, theirs: Redis, judge: Judge) -> None:
    ask(ours, "MSET", "a", 1, "b", 2, "c", 3)
    ask(theirs, "SET", "b", "old")
    assert str(migrate(ours, judge.port, "", 9, 1000, "KEYS", "a", "b", "c")).startswith("ERR Target instance replied")
    assert (ask(ours, "KEYS", "*"), ask(theirs, "MGET", "a", "b", "c")) == ([b"b"], [b"1", b"old", b"3"])


def test_passwords_are_sent_to_the_other_server(ours: Redis, theirs: Redis, judge: Judge) -> None:
    ask(ours, "SET", "k", "v")
    ask(theirs, "CONFIG", "SET", "requirepass", "secret")
    try:
        assert str(migrate(ours, judge.port, "k", 9, 1000, "AUTH", "wrong")).startswith(
            "ERR Target instance replied with error: WRONGPASS"
        )
        assert ask(ours, "EXISTS", "k") == 1
        assert migrate(ours, judge.port, "k", 9, 1000, "REPLACE", "AUTH2", "default", "secret") == b"OK"
    finally:
        ask(theirs, "CONFIG", "SET", "requirepass", "")


def test_errors_of_arguments_equal_those_of_redis(ours: Redis, theirs: Redis, judge: Judge) -> None:
    lines: list[list[str | int]] = [
        ["k", "x", 1], ["k", 0, "x"], ["k", 0, 1, "NOSUCH"], ["k", 0, 1, "KEYS", "a"], ["k", 0, 1, "AUTH"],
    ]
    for rest in lines:
        assert migrate(ours, judge.port, *rest) == migrate(theirs, judge.port, *rest), rest


def test_a_server_that_does_not_answer_is_reported(ours: Redis) -> None:
    ask(ours, "SET", "k", "v")
    assert migrate(ours, free_port(), "k", 0, 1000) == "IOERR error or timeout connecting to the client"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        reply = migrate(ours, silent.getsockname()[1], "k", 0, 50)
    assert reply == "IOERR error or timeout reading from target instance"
    assert ask(ours, "GET", "k") == b"v"


def test_a_cached_connection_that_was_closed_is_replaced(ours: Redis, theirs: Redis, judge: Judge) -> None:
    ask(ours, "MSET", "a", 1, "b", 2)
    assert migrate(ours, judge.port, "a", 9, 1000) == b"OK"
    assert b"migrate_cached_sockets:1\r\n" in read(ours.run([b"INFO", b"stats"])[0])
    ask(theirs, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert migrate(ours, judge.port, "b", 9, 1000) == b"OK"
    assert ask(theirs, "MGET", "a", "b") == [b"1", b"2"]


def test_a_store_in_this_process_moves_keys(theirs: Redis, judge: Judge) -> None:
    with rillet.open() as store:
        store.execute("SET", "k", "v")
        done: list[object] = []
        thread = threading.Thread(
            target=lambda: done.append(store.execute("MIGRATE", "127.0.0.1", judge.port, "k", 9, 1000))
        )
        thread.start()
        thread.join()
        assert done == ["OK"] or done == [b"OK"]
        assert store.execute("EXISTS", "k") == 0
    assert ask(theirs, "GET", "k") == b"v"


def test_a_directory_moves_keys_too(tmp_path: Path, theirs: Redis, judge: Judge) -> None:
    with rillet.open(tmp_path / "store") as store:
        store.execute("SET", "k", "v")
        assert store.execute("MIGRATE", "127.0.0.1", judge.port, "k", 9, 1000) in ("OK", b"OK")
    with rillet.open(tmp_path / "store") as store:
        assert store.execute("EXISTS", "k") == 0
