"""Commands that `execute` rejects: they would give later calls other replies, or change the shared connection."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rillet import Store
from rillet.errors import CommandError
from tests.store.conftest import Frontend

MORE_REPLIES = [["MONITOR"], ["SYNC"], ["psync", "?", "-1"], ["REPLCONF", "ACK", "0"]]
ENDS = [["QUIT"], ["reset"], ["HELLO", "2"], ["CLIENT", "TRACKING", "ON"]]

SHARED = [["SELECT", "1"], ["select", "0"], ["AUTH", "x"], ["READONLY"], ["READWRITE"], ["ASKING"],
          ["CLIENT", "SETNAME", "x"], ["client", "no-touch", "on"], ["CLIENT", "NO-EVICT", "ON"],
          ["CLIENT", "SETINFO", "LIB-NAME", "x"], ["CLIENT", "CACHING", "YES"]]  # fmt: skip


def refused(store: Store, argv: list[Any], reason: str) -> None:
    """Check that each way to execute a command rejects it, and that later calls get their own replies."""

    async def tasks() -> None:
        twin = store.aio()
        with pytest.raises(CommandError, match=reason):
            await twin.execute(*argv)
        with pytest.raises(CommandError, match=reason):
            await twin.execute_many([["PING"], argv])
        assert await asyncio.gather(*(twin.execute("ECHO", n) for n in range(5))) == [b"%d" % n for n in range(5)]

    with pytest.raises(CommandError, match=reason):
        store.execute(*argv)
    with pytest.raises(CommandError, match=reason):
        store.execute_many([["PING"], argv])
    with store.transaction() as transaction, pytest.raises(CommandError, match=reason):
        transaction.execute(*argv)
    assert [store.execute("ECHO", n) for n in range(5)] == [b"%d" % n for n in range(5)]
    asyncio.run(tasks())


@pytest.mark.parametrize("argv", [*MORE_REPLIES, *ENDS], ids=lambda argv: argv[0].upper())
def test_what_spoils_later_replies_is_refused(store: Store, argv: list[str]) -> None:
    refused(store, argv, r"^ERR (MONITOR|P?SYNC|REPLCONF|QUIT|RESET|HELLO|CLIENT TRACKING) .*cannot be executed")


@pytest.mark.parametrize("argv", SHARED, ids=lambda argv: "-".join(argv[:2]))
def test_a_task_cannot_change_the_connection_of_the_others(store: Store, argv: list[str]) -> None:
    async def tasks() -> None:
        twin = store.aio()
        reason = r"tasks.*: use (rillet\.connect|a client of store\.redis_async\(\))"
        with pytest.raises(CommandError, match=reason):
            await twin.execute(*argv)
        with pytest.raises(CommandError, match=reason):
            await twin.execute_many([["PING"], argv])
        with pytest.raises(CommandError, match=reason):
            await twin.execute_many([["MULTI"], argv, ["EXEC"]])
        assert await twin.execute("CLIENT", "GETNAME") in (None, b"")
        await twin.stream("orders").add({"n": 1})

    asyncio.run(tasks())
    assert store.stream("orders").length() == 1


def test_a_client_of_redis_py_selects_its_own_database(store: Store) -> None:
    async def tasks() -> None:
        twin = store.aio()
        client = twin.redis_async(db=1)
        await client.set("k", 1)
        assert await twin.execute("GET", "k") is None
        await client.aclose()

    asyncio.run(tasks())


def test_select_belongs_to_the_thread(store: Store) -> None:
    store.execute("SELECT", 1)
    store.execute("SET", "k", 1)
    store.execute("SELECT", 0)
    assert store.execute("GET", "k") is None


def test_a_transaction_and_a_bulk_read_are_in_the_database_of_the_thread(frontend: Frontend) -> None:
    store = frontend.store
    if frontend.kind == "redis":
        store.execute("FLUSHALL")
    assert store.execute("SELECT", 1) == b"OK"
    store.stream("orders").add({"n": 1}, id="1-1")
    with store.transaction(watch=["orders"]) as transaction:
        transaction.add("orders", {"n": 2}, id="2-1")
    assert [str(entry.id) for entry in store.stream("orders")] == ["1-1", "2-1"]
    assert len(store.stream("orders").to_arrow()) == 2
    assert store.execute_many([["PING"], ["SELECT", 2]])[1] == b"OK"
    with store.transaction() as transaction:
        transaction.add("orders", {"n": 3})
    assert [len(store.stream("orders")), store.execute("SELECT", 0), len(store.stream("orders"))] == [1, b"OK", 0]


def test_select_does_not_move_the_tasks_of_the_same_thread(frontend: Frontend) -> None:
    """Neither before the event loop runs, nor inside it, and for no kind of command."""
    store = frontend.store
    if frontend.kind == "redis":
        store.execute("FLUSHALL")

    async def tasks(database: int) -> None:
        twin = store.aio()
        stream = twin.stream("orders")
        for number in (database, 0, 3):
            length = await stream.length()
            assert store.execute("SELECT", number) == b"OK"
            waiting = asyncio.create_task(twin.execute("BLPOP", "list", 0))
            await stream.add({"n": 1})
            await stream.add_many([{"n": 1}, {"n": 2}])
            async with twin.transaction() as transaction:
                transaction.add("orders", {"n": 1})
            assert await stream.length() == length + 4
            await twin.execute("RPUSH", "list", "x")
            assert await waiting == [b"list", b"x"]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(twin.execute("BLPOP", "list", 0), 0.05)
            assert await stream.length() == length + 4
            assert store.stream("orders").length() == (length + 4 if number == 0 else 0)
        assert store.execute_many([["SELECT", 0], ["XLEN", "orders"], ["SELECT", 5], ["XLEN", "orders"]])[1::2] == [
            await stream.length(), 0,
        ]  # fmt: skip

    store.execute("SELECT", 2)
    for database in (4, 5):
        asyncio.run(tasks(database))
        assert store.execute("XLEN", "orders") == 0
    store.execute("SELECT", 0)
    assert store.execute("XLEN", "orders") == 24


def test_hello_without_a_version_is_accepted(store: Store) -> None:
    assert store.execute("HELLO")


def test_what_drops_replies_is_refused(store: Store) -> None:
    for argv in (["CLIENT", "REPLY", "OFF"], ["client", "reply", "skip"], ["CLIENT", "REPLY", "ON"]):
        refusal = r"^ERR CLIENT REPLY cannot be executed, because every call waits for a reply"
        with pytest.raises(CommandError, match=refusal):
            store.execute(*argv)
        with pytest.raises(CommandError, match=r"^ERR CLIENT REPLY cannot be executed"):
            store.execute_many([["PING"], argv])
    assert store.execute("PING") == b"PONG"


def test_what_has_more_than_one_reply_is_refused(store: Store) -> None:
    for word in ("SUBSCRIBE", "psubscribe", "SSUBSCRIBE", "UNSUBSCRIBE"):
        with pytest.raises(CommandError, match=r"use Store.subscribe\(\)"):
            store.execute(word, "a")
    with pytest.raises(CommandError, match=r"use Store.subscribe\(\)"):
        store.execute_many([["SUBSCRIBE", "a"]])
