"""Bitmap on every kind of store, and against a set of integers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rillet import Store
from rillet.errors import CommandError, WrongType
from tests.store.conftest import Frontend
from tests.store.types.conftest import only
from tests.store.types.models import MODELLED


def test_a_bitmap_is_a_list_of_bits(store: Store) -> None:
    seen = store.bitmap("seen")
    assert (len(seen), list(seen), seen[7], 7 in seen, seen.count(), seen.get_bytes()) == (0, [], False, False, 0, b"")
    seen[7] = True
    assert (seen.set_value(7, False), seen.set_value(7), seen.set_value(9)) == (True, False, False)
    assert (len(seen), list(seen), seen[7], 7 in seen) == (16, [7, 9], True, True)
    assert -1 not in seen
    assert "x" not in seen
    assert seen.set_many([7, 1000, 1]) == [True, False, False]
    assert seen.get_many([0, 1, 7, 999, 1000]) == [False, True, True, False, True]
    assert (seen.set_many([]), seen.get_many([])) == ([], [])
    assert (seen.count(), seen.count(0, 0), seen.count(-1), seen.count(1, 8, unit="bit")) == (4, 2, 1, 2)
    assert (seen.position(), seen.position(False), seen.position(start=2)) == (1, 0, 1000)
    assert seen.position(True, 2, 2) is None
    assert (seen.position(start=8, unit="bit"), seen.position(True, 8, 8, unit="bit")) == (9, None)
    assert seen == store.bitmap("seen")
    assert seen != store.bitmap("other")
    assert (seen == {1}) is False
    seen.set_bytes(b"\xff")
    assert (list(seen), seen.position(False), seen.position(False, 0, -1)) == (list(range(8)), 8, None)
    seen.clear()
    assert not seen.exists()
    assert repr(seen) == "Bitmap('seen')"


def test_operations(store: Store) -> None:
    one, two, target = store.bitmap("{b}:1"), store.bitmap("{b}:2"), store.bitmap("{b}:3")
    one.set_many([1, 2, 3])
    two.set_many([3, 4, 12])
    assert (target.combine("and", one, two), list(target)) == (2, [3])
    assert (target.combine("or", one, two), list(target)) == (2, [1, 2, 3, 4, 12])
    assert (target.combine("xor", one, two), target.count()) == (2, 4)
    assert (target.combine("not", one), list(target)) == (1, [0, 4, 5, 6, 7])
    with pytest.raises(CommandError, match="must be called with a single source key"):
        target.combine("not", one, two)


@only("memory", "owner")
def test_newer_operations(store: Store) -> None:
    one, two, target = store.bitmap("{b}:1"), store.bitmap("{b}:2"), store.bitmap("{b}:3")
    one.set_many([1, 2, 3])
    two.set_many([3, 4])
    found = []
    for name in ("diff", "diff1", "andor", "one"):
        target.combine(name, one, two)
        found.append(list(target))
    assert found == [[1, 2], [4], [3], [1, 2, 4]]


def test_integers(store: Store) -> None:
    fields = store.bitmap("fields")
    assert (fields.set_field("u8", "#1", 200), fields.get_field("u8", 8), fields.get_field("i8", "#1")) == (0, 200, -56)
    assert (fields.incr_field("u8", "#1", 100), fields.incr_field("u8", "#1", 250, overflow="sat")) == (44, 255)
    assert fields.incr_field("u8", "#1", overflow="fail") is None
    assert fields.set_field("u8", "#1", 256, overflow="fail") is None
    assert fields.fields(("get", "u8", "#1"), ("set", "i5", 100, -3), ("incr", "i5", 100, 20, "sat")) == [255, 0, 15]
    assert fields.fields(("incr", "u2", 0, 3, "sat"), ("incr", "u2", 0, 1)) == [3, 0]
    for wrong in (("add", "u8", 0), ("get", "u8"), ("set", "u8", 0)):
        with pytest.raises(ValueError, match="expected get, set or incr"):
            fields.fields(wrong)
    with pytest.raises(CommandError, match="Invalid bitfield type"):
        fields.get_field("u64", 0)


@only("memory")
def test_pages_types_and_asyncio(frontend: Frontend) -> None:
    store = frontend.store
    far = store.bitmap("far")
    offsets = [0, 65_535, 65_536, 200_000]
    far.set_many(offsets)
    assert list(far) == offsets
    store.hash("hash")["f"] = "v"
    with pytest.raises(WrongType):
        store.bitmap("hash").set_value(1)

    async def run() -> None:
        bits = store.aio().bitmap("far")
        assert [offset async for offset in bits] == offsets
        assert await bits.incr_field("u8", 0, 1) == 129

    asyncio.run(run())


OFFSETS = st.lists(st.integers(0, 300), max_size=8)


@MODELLED
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(st.tuples(OFFSETS, st.booleans()), max_size=8), other=OFFSETS)
def test_like_a_set(store: Store, actions: list[Any], other: list[int]) -> None:
    store.delete("{b}:1", "{b}:2", "{b}:3")
    bits, model = store.bitmap("{b}:1"), set[int]()
    for offsets, bit in actions:
        bits.set_many(offsets, bit)
        model = model | set(offsets) if bit else model - set(offsets)
        assert list(bits) == sorted(model)
        assert bits.count() == len(model)
        assert bits.position() == min(model, default=None)
    second = store.bitmap("{b}:2")
    second.set_many(other)
    result = store.bitmap("{b}:3")
    result.combine("xor", bits, second)
    assert set(result) == model ^ set(other)
