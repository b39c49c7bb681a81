"""SORT on lists, sets and sorted sets, through both APIs; and the conditions of strings and counters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import rillet
from rillet import Store
from rillet.errors import CommandError, WrongType
from rillet.store.codecs import text_of


@pytest.fixture
def memory() -> Iterator[Store]:
    with rillet.open() as store:
        yield store


def test_elements_are_sorted(store: Store) -> None:
    numbers = store.list("{s}numbers", codec=text_of(int))
    numbers.extend([30, 4, 100, 4])
    assert numbers.sorted_values() == [4, 4, 30, 100]
    assert numbers.sorted_values(descending=True, start=1, count=2) == [30, 4]
    assert numbers.sorted_values(alpha=True) == [100, 30, 4, 4]
    assert numbers.sorted_values(by="nosort", start=1) == [4, 100, 4]
    words = store.set("{s}words")
    words.update(["b", "a", "c"])
    assert words.sorted_values(alpha=True, descending=True) == ["c", "b", "a"]
    with pytest.raises(CommandError, match="converted into double"):
        words.sorted_values()
    result = store.list("{s}result")
    assert words.store_sorted(result, alpha=True, count=2) == 2
    assert result[:] == ["a", "b"]
    scores = store.zset("{s}scores")
    scores.update({"x": 2, "y": 1})
    assert scores.sorted_values(by="nosort") == ["y", "x"]
    with pytest.raises(ValueError, match="at least one pattern"):
        words.sorted_lookup()


def test_patterns_name_other_keys(memory: Store) -> None:
    users = memory.set("users")
    users.update(["ann", "bob", "cid"])
    for name, age in (("ann", 40), ("bob", 30)):
        memory.hash(f"user:{name}").update(name=name.title(), age=str(age))
    assert users.sorted_values(by="user:*->age") == ["cid", "bob", "ann"]
    assert users.sorted_lookup("#", "user:*->name", by="user:*->age") == [("cid", None), ("bob", "Bob"), ("ann", "Ann")]
    assert users.store_sorted(memory.list("names"), "user:*->name", by="user:*->age", descending=True) == 3
    assert memory.list("names")[:] == ["Ann", "Bob", ""]


def test_the_asyncio_classes_sort(memory: Store) -> None:
    async def body() -> None:
        store = memory.aio()
        numbers = store.list("n", codec=text_of(int))
        await numbers.extend([3, 1, 2])
        assert await numbers.sorted_values() == [1, 2, 3]
        assert await numbers.sorted_lookup("#", "w:*", descending=True, count=1) == [("3", None)]
        assert await numbers.store_sorted(store.list("m", codec=text_of(int)), descending=True) == 3
        text = store.string("s")
        assert await text.set_value("a", ifne="a")
        assert not await text.delete_if(ifeq="b")
        assert await text.delete_if(ifeq="a")
        assert await store.counter("c").incr_within(7, high=5, saturate=True) == (5, 5)

    asyncio.run(body())


def test_a_string_is_replaced_and_deleted_under_conditions(memory: Store) -> None:
    lock = memory.string("lock")
    assert (lock.digest(), lock.delete_if(ifeq="me"), lock.set_value("x", ifeq="me")) == (None, False, False)
    assert lock.set_value("me", nx=True)
    assert (lock.set_value("you", ifeq="him"), lock.get_value()) == (False, "me")
    assert (lock.set_value("you", ifeq="me", expire=30), lock.get_value()) == (True, "you")
    digest = lock.digest()
    assert digest is not None
    assert len(digest) == 16
    assert not lock.set_value("us", ifdne=digest)
    assert lock.set_value("us", ifdeq=digest.upper())
    assert (lock.delete_if(ifne="us"), lock.delete_if(ifdeq=digest), lock.delete_if(ifdne=digest)) == (
        False, False, True,
    )  # fmt: skip
    with pytest.raises(ValueError, match="pass one of"):
        lock.set_value("x", ifeq="a", ifne="b")
    with pytest.raises(ValueError, match="pass one of"):
        lock.set_value("x", ifeq="a", nx=True)
    with pytest.raises(ValueError, match="pass one of"):
        lock.delete_if()
    memory.list("list").append("x")
    with pytest.raises(WrongType):
        memory.string("list").digest()


def test_a_counter_stays_within_its_bounds(memory: Store) -> None:
    stock = memory.counter("stock")
    assert stock.incr_within(10, high=15) == (10, 10)
    assert stock.incr_within(10, high=15) == (10, 0)
    assert stock.incr_within(10, high=15, saturate=True, expire=100) == (15, 5)
    assert stock.incr_within(-20, low=0, saturate=True, expire=500, only_new_expiry=True) == (0, -15)
    ttl = stock.ttl()
    assert ttl is not None
    assert ttl <= 100
