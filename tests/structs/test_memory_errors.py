"""A dict and a skiplist after operations that ran out of memory: nothing has changed, and the next attempt works.

Interpreted only: the test replaces the function that allocates blocks, which compiled code calls directly.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import rillet
from rillet.structs import block_list, skiplist
from rillet.structs.dict import Dict
from rillet.structs.skiplist import NODE_MEMBERS, Skiplist
from rillet.types.encoding_limits import DEFAULTS
from rillet.types.zset import Zset

pytestmark = pytest.mark.skipif(rillet.compiled(), reason="compiled code allocates without calling Python")


class Scarce:
    """Functions that raise MemoryError at every second call."""

    def __init__(self) -> None:
        self.failures = 0
        self.on = False

    def wrap(self, function: Callable[[int], object]) -> Callable[[int], object]:
        fails = True

        def call(argument: int) -> object:
            nonlocal fails
            if self.on and fails:
                fails = False
                self.failures += 1
                raise MemoryError
            fails = True
            return function(argument)

        return call


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> Scarce:
    found = Scarce()
    monkeypatch.setattr(block_list, "bytearray", found.wrap(bytearray), raising=False)
    monkeypatch.setattr(skiplist, "getrandbits", found.wrap(random.Random(1).getrandbits))
    return found


def insist(scarce: Scarce, action: Callable[[], object], check: Callable[[], None]) -> object:
    """Do an action until it succeeds; check after each failure."""
    while True:
        scarce.on = True
        try:
            return action()
        except MemoryError:
            scarce.on = False
            check()
        finally:
            scarce.on = False


def test_a_dict_is_unchanged_if_memory_runs_out(scarce: Scarce) -> None:
    table = Dict(values=True)
    model: dict[bytes, bytes] = {}

    def check() -> None:
        table.check()
        assert len(table) == len(model)
        assert all(table.get(key) == value for key, value in model.items())

    for number in range(300):
        key, value = b"key:%d" % number, b"v" * (20000 if number % 50 == 0 else number)
        assert insist(scarce, lambda key=key, value=value: table.set(key, value), check)  # type: ignore[misc]
        model[key] = value
        if number % 5 == 0:
            assert insist(scarce, lambda key=key: table.delete(key), check)  # type: ignore[misc]
            del model[key]
    check()
    assert scarce.failures > 20


@pytest.mark.slow
def test_rehashing_goes_on_after_memory_ran_out(scarce: Scarce) -> None:
    """The buckets of a large table are in several blocks, so one chain goes to several of them."""
    table = Dict()
    keys = [b"%d" % number for number in range(40)]
    for key in keys:
        table.add(key)
    while table.rehash(10):
        pass
    assert table.resize(1 << 16)

    def check() -> None:
        table.check()
        assert set(table) == set(keys)

    while insist(scarce, lambda: table.rehash(1), check):
        pass
    check()
    assert scarce.failures > 2


@pytest.mark.slow
def test_a_skiplist_is_unchanged_if_memory_runs_out(scarce: Scarce) -> None:
    table = Dict(numbers=True, newest=True)
    ranked = Skiplist()
    table.owner = ranked
    model: dict[bytes, float] = {}
    chance = random.Random(2)

    def check() -> None:
        table.check()
        ranked.check(table)
        assert dict(ranked.iterate(table)) == model

    for number in range(4 * NODE_MEMBERS):
        member, score = b"%d" % number, float(chance.randrange(40))
        added = insist(scarce, lambda m=member, s=score: ranked.add(table, m, s), check)  # type: ignore[misc]
        assert added
        model[member] = score
    check()
    for number in range(3 * NODE_MEMBERS):
        # All gather at one place, so its nodes are split again and again.
        n, score = table.find(b"%d" % number), 50.0 + chance.random()
        assert insist(scarce, lambda n=n, s=score: ranked.move(table, n, s), check)  # type: ignore[misc]
        model[b"%d" % number] = score
    check()
    assert scarce.failures > 10


def test_the_removal_of_a_range_is_whole_if_memory_runs_out(scarce: Scarce) -> None:
    table = Dict(numbers=True, newest=True)
    ranked = Skiplist()
    table.owner = ranked
    for number in range(3 * NODE_MEMBERS):
        ranked.add(table, b"%d" % number, float(number))

    def check() -> None:
        table.check()
        ranked.check(table)
        assert table.pauses == 0

    while len(ranked):
        size = len(ranked)
        wanted = min(size, 150)
        insist(scarce, lambda: len(ranked) < size or ranked.delete_range(table, 0, wanted), check)  # noqa: B023
        check()
        assert len(ranked) == size - wanted


def test_a_listpack_stays_if_its_conversion_runs_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    value = Zset()
    for number in range(100):
        value.add(b"%d" % number, float(number), DEFAULTS)
    before = list(value)
    left = 0

    def allocate(size: int) -> bytearray:
        nonlocal left
        left -= 1
        if left < 0:
            raise MemoryError
        return bytearray(size)

    monkeypatch.setattr(block_list, "bytearray", allocate, raising=False)
    for blocks in range(100):
        left = blocks
        assert (value.encoding(), list(value)) == ("listpack", before)
        try:
            value.to_skiplist()
            break
        except MemoryError:
            continue
    monkeypatch.undo()
    value.check()
    assert (value.encoding(), list(value)) == ("skiplist", before)
    assert blocks > 10
