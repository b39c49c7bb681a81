"""Transactions of a store: executed together or not at all, whatever threads, tasks and exceptions do."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import threading

import pytest

import rillet
from rillet import Store
from rillet.errors import CommandError, StoreError, TransactionConflict
from tests.judge import Judge, redis_binary, running_redis
from tests.store.conftest import Frontend


def test_the_commands_run_together_and_have_their_results(store: Store) -> None:
    with store.transaction() as transaction:
        entry = transaction.add("orders", {"total": "99.90"})
        count = transaction.execute("INCR", "count")
        assert store.execute("GET", "count") is None
        with pytest.raises(StoreError, match="not executed"):
            _ = count.result
    assert count.result == 1
    assert store.stream("orders").last_id == entry.result


def test_an_exception_in_the_block_discards_the_commands(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction(watch=["k"]) as transaction:  # noqa: PT012
        transaction.execute("SET", "k", 1)
        raise ZeroDivisionError
    assert store.execute("GET", "k") is None


def _counted(store: Store) -> set[str]:
    """Return the names of the commands that the server has executed since the last call."""
    counted = set(re.findall(r"^cmdstat_(\w+)", store.execute("INFO", "commandstats").decode(), re.MULTILINE))
    assert store.execute("CONFIG", "RESETSTAT") == b"OK"
    return counted


def test_an_empty_transaction_sends_nothing(store: Store) -> None:
    _counted(store)
    with store.transaction() as transaction:
        transaction.execute("PING")
    assert _counted(store) >= {"multi", "ping", "exec"}
    idle = _counted(store)
    with store.transaction():
        pass
    assert _counted(store) == idle
    with store.transaction(watch=["k"]):
        pass
    assert "watch" in (sent := _counted(store))
    assert sent.isdisjoint(("multi", "exec"))


def test_a_watched_key_that_changes_prevents_the_execution(frontend: Frontend) -> None:
    store = frontend.store
    store.execute("SET", "stock", 3)
    with pytest.raises(TransactionConflict), store.transaction(watch=["stock"]) as transaction:  # noqa: PT012
        transaction.execute("SET", "stock", 2)
        frontend.another().execute("SET", "stock", 9)
    assert store.execute("GET", "stock") == b"9"


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
def test_a_server_that_refuses_a_transaction_is_named() -> None:
    """As one that loads its data, or a replica without its master; it has forgotten the watched keys."""
    with running_redis() as judge, rillet.connect(f"redis://127.0.0.1:{judge.port}") as store:

        def read() -> None:
            with store.transaction(watch=["k"]) as transaction:
                store.execute("CONFIG", "SET", "replica-serve-stale-data", "no")
                store.execute("REPLICAOF", "127.0.0.1", "1")
                transaction.execute("GET", "k")

        with pytest.raises(TransactionConflict, match="nothing was executed; run it again: MASTERDOWN "):
            read()


def test_transact_repeats_until_no_other_client_interferes(frontend: Frontend) -> None:
    stores = [frontend.store, frontend.another(), frontend.another()]

    def increment(store: Store) -> None:
        for _ in range(30):
            store.transact(
                lambda transaction: transaction.execute("SET", "n", int(store.execute("GET", "n") or 0) + 1), ["n"]
            )

    threads = [threading.Thread(target=increment, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stores[0].execute("GET", "n") == b"90"


def test_an_error_of_a_command_is_raised_and_the_others_are_executed(store: Store) -> None:
    store.execute("SET", "text", "x")
    with pytest.raises(CommandError, match="not an integer"), store.transaction() as transaction:  # noqa: PT012
        transaction.execute("INCR", "text")
        after = transaction.execute("INCR", "n")
    assert after.result == 1


def test_a_command_that_cannot_be_queued_executes_nothing(store: Store) -> None:
    with pytest.raises(CommandError, match="unknown command"), store.transaction() as transaction:  # noqa: PT012
        transaction.execute("INCR", "n")
        transaction.execute("NOSUCH")
    assert store.execute("GET", "n") is None


def test_transaction_commands_are_refused_elsewhere(store: Store) -> None:
    for name in ("MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"):
        words = [name, "k"] if name == "WATCH" else [name]
        with pytest.raises(CommandError, match=r"store\.transaction"):
            store.execute(*words)
        with pytest.raises(CommandError, match=r"store\.transaction"):
            store.execute_many([["SET", "k", 1], words])
        with store.transaction() as transaction, pytest.raises(CommandError, match="the block sends it"):
            transaction.execute(*words)
    assert store.execute("GET", "k") is None


def test_a_command_outside_the_block_is_refused(store: Store) -> None:
    transaction = store.transaction()
    with pytest.raises(StoreError, match=r"has not begun.*use `with store.transaction\(\)"):
        transaction.execute("SET", "k", 1)
    with transaction:
        pass
    for queue in (lambda: transaction.execute("SET", "k", 1), lambda: transaction.add("orders", {"n": 1})):
        with pytest.raises(StoreError, match=r"has ended.*use `with store.transaction\(\)"):
            queue()
    with pytest.raises(ZeroDivisionError), store.transaction() as discarded:
        raise ZeroDivisionError
    with pytest.raises(StoreError, match="has ended"):
        discarded.execute("SET", "k", 1)
    assert not store.execute("EXISTS", "k", "orders")


def test_a_transaction_is_one_block(store: Store) -> None:
    with store.transaction(watch=["k"]) as transaction:
        number = transaction.execute("INCR", "n")
        with pytest.raises(StoreError, match="one `with` block, and this one has begun"), transaction:
            pass
    with pytest.raises(StoreError, match="one `with` block, and this one has ended"), transaction:
        pass
    assert (number.result, store.execute("GET", "n")) == (1, b"1")


def test_the_blocks_of_asyncio_are_as_strict(store: Store) -> None:
    async def body() -> None:
        transaction = store.aio().transaction()
        with pytest.raises(StoreError, match="has not begun"):
            transaction.execute("SET", "k", 1)
        async with transaction:
            transaction.execute("INCR", "n")
        with pytest.raises(StoreError, match="has ended"):
            transaction.execute("SET", "k", 1)
        with pytest.raises(StoreError, match="one `with` block"):
            async with transaction:
                pass

    asyncio.run(body())
    assert (store.execute("GET", "k"), store.execute("GET", "n")) == (None, b"1")


def test_threads_do_not_share_a_transaction(store: Store) -> None:
    barrier = threading.Barrier(4)
    seen: list[list[int]] = []

    def work() -> None:
        barrier.wait()
        for _ in range(50):
            with store.transaction() as transaction:
                numbers = [transaction.execute("INCR", "n") for _ in range(5)]
            seen.append([one.result for one in numbers])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one == list(range(one[0], one[0] + 5)) for one in seen)
    assert store.execute("GET", "n") == b"1000"


def test_tasks_do_not_share_a_transaction(frontend: Frontend) -> None:
    async def body() -> None:
        store = frontend.store.aio()

        async def work() -> list[int]:
            async with store.transaction(watch=["watched"]) as transaction:
                await asyncio.sleep(0)
                numbers = [transaction.execute("INCR", "n") for _ in range(5)]
            return [one.result for one in numbers]

        for one in await asyncio.gather(*(work() for _ in range(30))):
            assert one == list(range(one[0], one[0] + 5))
        with pytest.raises(CommandError, match=r"store\.transaction"):
            await store.execute("MULTI")
        with pytest.raises(TransactionConflict):  # noqa: PT012
            async with store.transaction(watch=["watched"]) as transaction:
                await store.execute("SET", "watched", 1)
                transaction.execute("INCR", "n")

    asyncio.run(body())


def test_a_connection_is_replaced_after_a_transaction(judge: Judge) -> None:
    with rillet.connect(f"redis://127.0.0.1:{judge.port}") as store, judge.client() as other:
        store.execute("DEL", "n")
        store.execute_many([["MULTI"], ["INCR", "n"], ["EXEC"]])
        other.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert store.execute("GET", "n") == b"1"


def test_a_value_of_a_class_names_the_stream_that_it_needs() -> None:
    @dataclasses.dataclass
    class Order:
        total: int

    remedy = r"Order, neither a mapping nor pairs: .* store\.stream\(name, type=Order\)"
    with rillet.open() as store:
        transaction = store.transaction()
        with transaction, pytest.raises(TypeError, match=remedy):
            transaction.add("orders", Order(1))  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=remedy):
            store.stream("orders").add(Order(1))  # type: ignore[call-overload]
        with store.transaction() as transaction:
            transaction.add(store.stream("orders", type=Order), Order(1))
        assert store.stream("orders").length() == 1
