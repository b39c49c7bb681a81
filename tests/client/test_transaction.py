"""Transactions against a real server: executed, disturbed by another client, refused, discarded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.protocol import pack, pack_all
from rillet.client.servers import ClientOptions, Servers
from rillet.client.transaction import Transaction, transact
from tests.judge import Judge

KEY, RECORD = b"events", b"{events}record"


@pytest.fixture
def servers(judge: Judge) -> Iterator[Servers]:
    with judge.client() as client:
        client.flushall()
    with Servers(ClientOptions.from_url(f"redis://127.0.0.1:{judge.port}", 20)) as opened:
        yield opened


def adds(first: int, count: int) -> bytes:
    return pack_all([(b"XADD", KEY, b"%d-1" % n, b"n", b"%d" % n) for n in range(first, first + count)])


def test_chunks_are_queued_and_executed_together(servers: Servers) -> None:
    transaction = Transaction(servers, KEY)
    transaction.begin([RECORD], [(b"HMGET", RECORD, b"rows"), (b"XINFO", b"STREAM", KEY)])
    record, info = transaction.opening()
    assert record == [None]
    assert str(info) == "ERR no such key"
    for chunk in range(5):
        transaction.send(adds(1 + 100 * chunk, 100), 100)
    transaction.send(pack(b"HSET", RECORD, b"rows", b"500"), 1)
    with Servers(servers.options) as other:
        assert other.call(KEY, b"XLEN", KEY) == 0
    assert transaction.execute(500, 1) == []
    assert not transaction.open
    assert servers.call(KEY, b"XLEN", KEY) == 500
    assert servers.call(RECORD, b"HGET", RECORD, b"rows") == b"500"


def test_a_changed_key_prevents_the_execution(servers: Servers) -> None:
    transaction = Transaction(servers, KEY)
    transaction.begin([RECORD])
    assert transaction.opening() == []
    transaction.send(adds(1, 3), 3)
    with Servers(servers.options) as other:
        other.call(RECORD, b"HSET", RECORD, b"rows", b"1")
    assert transaction.execute(3) is None
    assert servers.call(KEY, b"XLEN", KEY) == 0


def test_errors_inside_exec_are_returned(servers: Servers) -> None:
    servers.call(KEY, b"XADD", KEY, b"5-1", b"n", b"5")
    transaction = Transaction(servers, KEY)
    transaction.begin([RECORD])
    transaction.opening()
    transaction.send(adds(4, 3), 3)
    errors = transaction.execute(3)
    assert errors is not None
    assert [error.prefix for error in errors] == ["ERR", "ERR"]
    assert servers.call(KEY, b"XLEN", KEY) == 2


def test_errors_of_the_commands_after_the_appends_are_returned(servers: Servers) -> None:
    """Each reply before the first error counts, so no reply is awaited that does not come."""
    transaction = Transaction(servers, KEY)
    transaction.begin([RECORD])
    transaction.opening()
    transaction.send(adds(1, 3), 3)
    others = [(b"HSET", RECORD, b"rows", b"3"), (b"HSET", RECORD, b"batch", b"1"), (b"HSET", KEY, b"rows", b"3")]
    transaction.send(pack_all([*others, (b"HSET", RECORD, b"after", b"1")]), 4)
    errors = transaction.execute(3, 4)
    assert errors is not None
    assert [error.prefix for error in errors] == ["WRONGTYPE"]
    assert servers.call(KEY, b"XLEN", KEY) == 3


def test_a_command_that_is_not_queued_is_an_error_and_discard_leaves_nothing(servers: Servers) -> None:
    transaction = Transaction(servers, KEY)
    transaction.begin([RECORD])
    transaction.opening()
    transaction.send(pack(b"XADD", KEY), 1)
    with pytest.raises(ConnectorError, match="refused a command of a transaction: ERR wrong number of arguments"):
        transaction.settle()
    transaction.forget()
    transaction.begin([RECORD])
    transaction.opening()
    transaction.send(adds(1, 3), 3)
    transaction.discard()
    assert servers.call(KEY, b"XLEN", KEY) == 0


def test_a_lost_connection_ends_the_transaction(servers: Servers, judge: Judge) -> None:
    transaction = Transaction(servers, KEY)
    transaction.begin([RECORD])
    transaction.opening()
    with judge.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    transaction.send(adds(1, 3), 3)
    with pytest.raises(ConnectionLost):
        transaction.execute(3)
    transaction.forget()
    assert not transaction.open
    assert servers.call(KEY, b"XLEN", KEY) == 0


def test_a_small_transaction_is_repeated_while_its_key_changes(servers: Servers) -> None:
    tries: list[Any] = []

    def prepare() -> list[tuple[bytes, ...]]:
        tries.append(servers.call(RECORD, b"HGET", RECORD, b"rows"))
        if len(tries) < 3:
            with Servers(servers.options) as other:
                other.call(RECORD, b"HINCRBY", RECORD, b"rows", b"1")
        return [(b"XADD", KEY, b"*", b"n", b"1"), (b"HDEL", RECORD, b"rows")]

    result = transact(servers, KEY, [RECORD], prepare, 5)
    assert result is not None
    assert result[1] == 1
    assert tries == [None, b"1", b"2"]
    tries.clear()
    assert transact(servers, KEY, [RECORD], prepare, 2) is None
    assert transact(servers, KEY, [RECORD], list, 2) == []
    assert servers.call(KEY, b"XLEN", KEY) == 1


def test_a_small_transaction_returns_the_errors_of_single_commands(servers: Servers) -> None:
    servers.call(KEY, b"SET", KEY, b"text")
    commands = [(b"XADD", KEY, b"*", b"n", b"1"), (b"HDEL", RECORD, b"rows")]
    replies = transact(servers, KEY, [RECORD], lambda: commands, 1)
    assert replies is not None
    assert replies[0].prefix == "WRONGTYPE"
    assert replies[1] == 0
