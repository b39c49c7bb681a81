"""HyperLogLog on every kind of store, synchronous and asyncio."""

from __future__ import annotations

import asyncio
from typing import assert_type

import pytest

from rillet import HyperLogLog, Store, String
from rillet.errors import InvalidObj, WrongType
from rillet.store.codecs import text_of


def test_elements_are_counted(store: Store) -> None:
    monday, tuesday = store.hyperloglog("{v}:mon"), store.hyperloglog("{v}:tue")
    assert monday.count() == 0
    assert not monday.exists()
    assert monday.add("ann", "bob")
    assert not monday.add("ann")
    assert tuesday.update(f"guest {n}" for n in range(1000))
    assert tuesday.add("ann")
    assert monday.count() == 2
    assert abs(tuesday.count() - 1001) < 20
    assert abs(monday.count(tuesday) - 1002) < 20
    week = store.hyperloglog("{v}:week")
    week.merge(monday, tuesday)
    assert week.count() == monday.count(tuesday)
    assert isinstance(store["{v}:week"], String)
    assert repr(week) == "HyperLogLog('{v}:week')"
    assert monday.delete()


def test_the_codec_makes_the_bytes(store: Store) -> None:
    numbers = store.hyperloglog("n", codec=text_of(int))
    assert_type(numbers, HyperLogLog[int])
    assert numbers.add(1, 2)
    assert not store.hyperloglog("n").add("1", "2")
    with pytest.raises(TypeError):
        numbers.add("3")  # type: ignore[arg-type]


def test_strings_that_are_no_hyperloglogs(store: Store) -> None:
    store.hash("h")["f"] = "v"
    store.string("s").set_value("HYLL is a text")
    store.execute("SET", "broken", b"HYLL\1" + bytes(10) + b"\x80\xff")
    for name in ("h", "s"):
        with pytest.raises(WrongType):
            store.hyperloglog(name).add("x")
    with pytest.raises(InvalidObj):
        store.hyperloglog("broken").count()


def test_asyncio(store: Store) -> None:
    async def body() -> None:
        async with asyncio.timeout(60):
            logs = store.aio()
            one, other = logs.hyperloglog("{a}1"), logs.hyperloglog("{a}2")
            assert await one.add("x", "y")
            assert await other.update(["y", "z"])
            assert (await one.count(), await one.count(other)) == (2, 3)
            await one.merge(other)
            assert await one.count() == 3

    asyncio.run(body())
