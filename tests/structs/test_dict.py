"""The dict against a Python dict: values, growth and shrinking, scans, movement, and release in steps."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rillet.structs import dict_table
from rillet.structs.dict import Dict
from tests.structs import fuzz_dict
from tests.variants import by_speed, long_interpreted, seeds

Keys = st.one_of(
    st.integers(0, 400).map(lambda i: b"key:%d" % i), st.binary(max_size=6), st.sampled_from([b"x" * 63, b"x" * 64])
)
Values = st.one_of(st.binary(max_size=20), st.sampled_from([b"", b"v" * 126, b"v" * 127, b"v" * 128, b"w" * 20000]))


@pytest.fixture
def resize_mode() -> Iterator[Callable[[int], None]]:
    yield dict_table.set_resize_mode
    dict_table.set_resize_mode(dict_table.RESIZE_ENABLE)


def numbered(count: int, **parts: bool) -> Dict:
    table = Dict(**parts)
    for i in range(count):
        table.add(b"key:%d" % i)
    return table


def settle(table: Dict) -> None:
    while table.rehash(100):
        pass


# -- one operation at a time -----------------------------------------------------------------------------


def test_an_empty_dict_has_no_tables() -> None:
    table = Dict(values=True)
    assert len(table) == 0
    assert table.find(b"a") == -1
    assert table.get(b"a") is None
    assert b"a" not in table
    assert not table.delete(b"a")
    assert table.unlink(b"a") is None
    assert table.random_entry() == table.fair_random_entry() == -1
    assert table.sample(3) == []
    assert table.scan(0) == (0, [])
    assert table.scan(77) == (0, [])
    assert list(table) == []
    assert table.buckets == 0
    assert not table.rehash(1)
    assert not table.shrink_if_needed()
    table.check()


def test_values_at_rest_and_awake() -> None:
    table = Dict(values=True, objects=True)
    awake = ["awake"]
    assert table.set(b"k", b"one")
    assert not table.set(b"k", b"two")
    assert table.get(b"k") == b"two"
    assert not table.set(b"k", awake)
    assert table.get(b"k") is awake
    assert not table.set(b"k", b"")
    assert table.get(b"k") == b""
    n = table.find(b"k")
    table.set_entry_value(n, None)
    assert table.entry_value(n) is None
    assert table.entry_key(n) == b"k"
    assert table.set(b"l", awake)
    assert table.unlink(b"l") is awake
    assert b"l" not in table
    table.check()


def test_a_set_takes_no_values() -> None:
    table = Dict()
    assert table.add(b"a")
    assert not table.add(b"a")
    assert table.get(b"a") is None
    with pytest.raises(TypeError, match="objects"):
        table.set(b"a", b"value")
    with pytest.raises(TypeError, match="numbers"):
        table.set_number(0, 1)


def test_a_value_that_is_refused_changes_nothing() -> None:
    table = Dict(values=True)
    table.set(b"a", b"value")
    for key in (b"a", b"new"):
        with pytest.raises(TypeError, match="objects"):
            table.set(key, ["awake"])
    with pytest.raises(TypeError, match="objects"):
        table.set_entry_value(table.find(b"a"), ["awake"])
    assert dict(table.items()) == {b"a": b"value"}
    table.check()


def test_numbers_and_scores() -> None:
    table = numbered(3, numbers=True)
    n = table.find(b"key:1")
    assert table.number(n) == 0
    assert table.score(n) == 0.0
    for number in (1, -1, 2**63 - 1, -(2**63)):
        table.set_number(n, number)
        assert table.number(n) == number
    for score in (1.5, -0.0, float("inf"), -1.0):
        table.set_score(n, score)
        assert table.score(n) == score
    assert table.number(table.find(b"key:2")) == 0


def test_lru_bits_survive_a_change_of_the_value() -> None:
    table = Dict(values=True)
    table.set(b"k", b"v")
    n = table.find(b"k")
    table.set_lru(n, 0xFFFFFF)
    table.set(b"k", b"longer")
    assert table.lru(n) == 0xFFFFFF
    assert table.get(b"k") == b"longer"
    with pytest.raises(ValueError, match="24 bits"):
        table.set_lru(n, 1 << 24)


@pytest.mark.parametrize("n", [-1, 3, 10**6])
def test_the_number_of_no_entry(n: int) -> None:
    table = numbered(3, numbers=True)
    for call in (table.entry_key, table.entry_value, table.number, table.lru, table.delete_entry):
        with pytest.raises(IndexError):
            call(n)


@pytest.mark.slow
def test_keys_between_skips_gaps() -> None:
    table = Dict(values=True)
    names = [b"%d" % n for n in range(10_000)]
    for name in names:
        table.set(name, b"v")
    assert table.keys_between(0, table.top) == names
    assert table.keys_between(-5, 3) == names[:3]
    assert table.keys_between(9_999, 20_000) == names[9_999:]
    for name in names[1::2]:
        table.delete(name)
    left = [key for first in range(0, table.top, 7) for key in table.keys_between(first, first + 7)]
    assert sorted(left) == sorted(names[::2])
    table.check()


def test_the_number_of_a_deleted_entry() -> None:
    table = numbered(3)
    n = table.find(b"key:1")
    table.delete_entry(n)
    with pytest.raises(IndexError):
        table.entry_key(n)
    table.check()


def test_large_keys_and_values_have_their_own_pages() -> None:
    table = Dict(values=True)
    for i in range(20):
        table.set(b"%d" % i * 10000, b"%d" % i * 30000)
    table.check()
    assert all(table.get(b"%d" % i * 10000) == b"%d" % i * 30000 for i in range(20))
    before = table.memory_bytes()
    for i in range(20):
        assert table.delete(b"%d" % i * 10000)
    table.check()
    assert table.memory_bytes() < before / 20


# -- sizes -------------------------------------------------------------------------------------------------


def test_a_table_doubles_when_it_is_full() -> None:
    table = Dict()
    sizes = []
    for i in range(70):
        table.add(b"%d" % i)
        settle(table)
        sizes.append(table.buckets)
    assert [sizes.index(size) + 1 for size in (4, 8, 16, 32, 64, 128)] == [1, 5, 9, 17, 33, 65]


@pytest.mark.parametrize(("newest", "count"), [(False, 24), (True, 16)])
def test_a_table_grows_at_the_forced_load_while_a_child_saves(
    resize_mode: Callable[[int], None], newest: bool, count: int
) -> None:
    table = Dict(newest=newest)
    resize_mode(dict_table.RESIZE_AVOID)
    for i in range(count):
        table.add(b"%d" % i)
        assert table.buckets == 4
    table.add(b"one more")
    assert table.rehashing
    settle(table)
    assert table.buckets == 4 + 28
    table.check()


def test_a_rehash_rests_while_a_child_saves(resize_mode: Callable[[int], None]) -> None:
    table = numbered(4)
    table.add(b"fifth")
    assert table.rehashing
    for mode in (dict_table.RESIZE_AVOID, dict_table.RESIZE_FORBID):
        resize_mode(mode)
        assert not table.rehash(100)
        assert table.rehashing
        assert b"fifth" in table
    resize_mode(dict_table.RESIZE_ENABLE)
    settle(table)
    assert not table.rehashing


@pytest.mark.parametrize(("newest", "left"), [(False, 102), (True, 128)])
def test_a_table_shrinks_when_it_is_sparse(newest: bool, left: int) -> None:
    table = numbered(1000, newest=newest)
    settle(table)
    for i in range(1000 - left - 1):
        table.delete(b"key:%d" % i)
        assert newest or not table.shrink_if_needed()
    assert not table.rehashing
    assert table.buckets == 1024
    table.delete(b"key:990")
    if not newest:
        assert not table.rehashing
        table.delete(b"key:991")
        assert table.shrink_if_needed() or table.delete(b"key:992") and table.shrink_if_needed()
    assert table.rehashing
    settle(table)
    assert table.buckets == 128
    table.check()


def test_a_pause_stops_the_rehash() -> None:
    table = numbered(5)
    table.pauses += 1
    for _ in range(50):
        assert b"key:1" in table
    assert table.rehashidx == 0
    assert not table.rehash_for(1000, lambda: 0)
    table.pauses -= 1
    while table.rehashing:
        assert b"key:1" in table
    table.check()


@pytest.mark.slow
def test_rehash_for_stops_at_its_limit() -> None:
    table = numbered(by_speed(40000, 6000))
    settle(table)
    table.resize(1 << by_speed(18, 15))
    clock = iter(range(0, 10**6, 400))
    assert table.rehash_for(1000, lambda: next(clock))
    assert next(clock) <= 2000
    assert not table.rehash_for(10**9, lambda: 0)
    table.check()


# -- iteration, samples, scans ----------------------------------------------------------------------------


def test_iteration_while_the_caller_adds_and_deletes() -> None:
    table = numbered(300)
    stable = {b"key:%d" % i for i in range(0, 300, 3)}
    seen = []
    for i, key in enumerate(table):
        seen.append(key)
        table.delete(b"key:%d" % (3 * i % 300 + 1))
        table.add(b"new:%d" % i) if i < 500 else None
        if i % 50 == 0:
            table.check()
    assert stable <= set(seen)
    assert all(seen.count(key) == 1 for key in stable)
    assert table.pauses == 0
    table.check()


def test_samples_are_entries() -> None:
    table = numbered(1000)
    for count in (1, 5, 64, 2000):
        found = table.sample(count)
        assert 0 < len(found) <= min(count, 1000)
        assert all(table.entry_key(n).startswith(b"key:") for n in found)


def test_a_fair_random_entry_reaches_every_entry() -> None:
    table = numbered(20)
    drawn = {table.entry_key(table.fair_random_entry()) for _ in range(2000)}
    assert drawn == set(table) == {table.entry_key(table.random_entry()) for _ in range(2000)}


def scan_all(table: Dict, between: Callable[[], object] = lambda: None, count: int = 3) -> set[bytes]:
    found, cursor = set(), 0
    while True:
        cursor, entries = table.scan(cursor, count)
        found |= {table.entry_key(n) for n in entries}
        if not cursor:
            return found
        between()


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(8, 20))
def test_a_scan_returns_what_exists_during_all_of_it(seed: int) -> None:
    chance = random.Random(seed)
    table = numbered(chance.choice([3, 30, 300, 3000]), newest=bool(seed & 1))
    stable = {key for key in table if chance.random() < 0.1}
    others = [key for key in table if key not in stable]

    def change() -> None:
        for _ in range(chance.randrange(40)):
            if chance.random() < chance.choice([0.1, 0.9]):
                others.append(b"new:%d" % chance.randrange(10**6))
                table.add(others[-1])
            elif others:
                table.delete(others.pop(chance.randrange(len(others))))
        table.shrink_if_needed()
        table.rehash(chance.randrange(20))

    assert stable <= scan_all(table, change)
    table.check()


def test_the_cursor_counts_with_reversed_bits() -> None:
    table = numbered(8)
    settle(table)
    cursors, cursor = [], 0
    for _ in range(8):
        cursors.append(cursor)
        cursor = table.scan_step(cursor, [])
    assert cursors == [0, 4, 2, 6, 1, 5, 3, 7]
    assert cursor == 0
    assert table.scan_step(2**64 - 1, []) == 0


# -- memory -------------------------------------------------------------------------------------------------


@long_interpreted
def test_deletions_free_memory() -> None:
    count = 40_000
    last = range(count - count // 40, count)
    table = Dict(values=True, objects=True, newest=True)
    for i in range(count):
        table.set(b"key:%d" % i, b"value" if i % 2 else [i])
    full = table.memory_bytes()
    for i in range(last.start):
        table.delete(b"key:%d" % i)
    table.check()
    assert table.memory_bytes() < full / 4
    while table.defrag_step(100):
        pass
    table.check()
    assert table.memory_bytes() < full / 5
    assert all(table.get(b"key:%d" % i) == (b"value" if i % 2 else [i]) for i in last)
    for i in last:
        table.delete(b"key:%d" % i)
    table.check()
    assert len(table) == 0
    assert table.memory_bytes() < full / 30


@pytest.mark.slow
def test_values_that_change_their_size_reuse_memory() -> None:
    table = Dict(values=True)
    for i in range(by_speed(200_000, 30_000)):
        table.set(b"key:%d" % (i % 500), b"v" * (i * 7 % 100))
    table.check()
    assert table.memory_bytes() < 300_000


def with_many_gaps() -> Dict:
    """Return a dict of which most records are gaps: the next deletion moves the last entries into them."""
    table = Dict(values=True, objects=True)
    for i in range(4000):
        table.set(b"key:%d" % i, [i])
    table.pauses += 1
    for i in range(3000):
        table.delete(b"key:%d" % i)
    table.pauses -= 1
    return table


@pytest.mark.slow
@pytest.mark.parametrize("value", [b"at rest", ["awake"], None])
def test_a_change_of_a_value_moves_no_entry(value: object) -> None:
    """The last entries do not move into gaps when a value changes: their numbers are valid until a deletion."""
    table = with_many_gaps()
    for i in (3999, 3998, 3500):
        key = b"key:%d" % i
        n = table.find(key)
        for changed in (b"other", value):
            table.set_entry_value(n, changed)
            assert table.entry_key(n) == key
            assert table.entry_value(n) == changed
            assert table.get(key) == changed
        table.set(key, b"again")
        assert table.get(key) == b"again"
        table.check()


@pytest.mark.slow
def test_a_detached_dict_is_freed_in_steps() -> None:
    table = Dict(objects=True)
    for i in range(10000):
        table.set(b"key:%d" % i, [i])
    old = table.detach()
    assert len(table) == 0
    assert len(old) == 10000
    assert table.memory_bytes() < 2000
    table.check()
    old.check()
    objects: list[object] = []
    steps = 0
    while old.free_some(100, objects):
        steps += 1
    assert len(objects) == 10000
    assert steps >= 100
    assert len(old) == 0
    old.check()
    old.set(b"again", [1])
    assert old.get(b"again") == [1]


@pytest.mark.slow
def test_the_buckets_of_a_dict_without_entries_are_freed_in_steps() -> None:
    count = by_speed(40000, 9000)
    table = numbered(count)
    settle(table)
    for i in range(count):
        table.delete(b"key:%d" % i)
    assert table.buckets == 1 << by_speed(16, 14)
    assert table.free_some(1)
    assert table.buckets == 0
    while table.free_some(1):
        pass
    table.check()


@pytest.mark.slow
def test_a_copy_has_no_second_table() -> None:
    table = numbered(by_speed(40000, 8000))
    settle(table)
    tracemalloc.start()
    try:
        twin = table.copy()
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used < 1.1 * twin.memory_bytes()


@pytest.mark.slow
def test_clear_and_reuse() -> None:
    table = numbered(5000)
    table.clear()
    assert len(table) == 0
    assert list(table) == []
    for i in range(5000):
        table.add(b"other:%d" % i)
    table.check()
    assert len(table) == 5000


def test_a_copy_is_independent() -> None:
    table = Dict(values=True, numbers=True)
    for i in range(100):
        table.set(b"%d" % i, b"v%d" % i)
        table.set_number(table.find(b"%d" % i), i)
    twin = table.copy()
    table.set(b"5", b"changed")
    table.delete(b"6")
    twin.check()
    assert all(twin.get(b"%d" % i) == b"v%d" % i and twin.number(twin.find(b"%d" % i)) == i for i in range(100))


@pytest.mark.slow
@pytest.mark.parametrize("kind", fuzz_dict.KINDS)
def test_cases_of_the_fuzzer(kind: str) -> None:
    steps, largest = by_speed(8000, 400, 20_000), by_speed(3000, 300)
    assert fuzz_dict.run(steps, 1, [kind], largest)[f"{kind}: steps"] >= steps


# -- any sequence of operations ---------------------------------------------------------------------------------


class DictMachine(RuleBasedStateMachine):
    """A dict and a Python dict, with a scan and an iteration in progress."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[bytes, tuple[object, int]] = {}
        self.table = Dict()
        self.cursor = 0
        self.stable: set[bytes] = set()
        self.scanned: set[bytes] = set()

    @initialize(newest=st.booleans(), objects=st.booleans(), count=st.sampled_from([0, 5, 100, 3000]))
    def fill(self, newest: bool, objects: bool, count: int) -> None:
        self.table = Dict(True, objects, True, newest)
        for i in range(count):
            self.set(b"key:%d" % i, b"%d" % i, i)

    @rule(key=Keys, value=Values, number=st.integers(-(2**63), 2**63 - 1))
    def set(self, key: bytes, value: bytes, number: int) -> None:
        assert self.table.set(key, value) == (key not in self.model)
        self.table.set_number(self.table.find(key), number)
        self.model[key] = (value, number)

    @rule(key=Keys)
    @precondition(lambda self: self.table.has_objects)
    def wake(self, key: bytes) -> None:
        value = [key]
        self.table.set(key, value)
        self.model[key] = (value, self.model.get(key, (None, 0))[1])

    @rule(key=Keys)
    def delete(self, key: bytes) -> None:
        self.stable.discard(key)
        assert self.table.delete(key) == (self.model.pop(key, None) is not None)

    @rule(start=st.integers(0, 3000), count=st.integers(1, 3000))
    def delete_many(self, start: int, count: int) -> None:
        for i in range(start, start + count):
            self.delete(b"key:%d" % i)
        self.table.shrink_if_needed()

    @rule(start=st.integers(0, 3000), count=st.integers(1, 500), size=st.integers(0, 300))
    def set_many(self, start: int, count: int, size: int) -> None:
        for i in range(start, start + count):
            self.set(b"key:%d" % i, b"v" * size, i)

    @rule(steps=st.integers(1, 3000))
    def rehash(self, steps: int) -> None:
        self.table.rehash(steps)

    @rule(limit=st.integers(1, 1000))
    def defrag(self, limit: int) -> None:
        self.table.defrag_step(limit)

    @rule(size=st.sampled_from([1, 100, 5000, 40000]))
    def resize(self, size: int) -> None:
        self.table.resize(size)

    @rule(count=st.integers(1, 50))
    def scan(self, count: int) -> None:
        if self.cursor == 0:
            self.stable, self.scanned = set(self.model), set()
        self.cursor, entries = self.table.scan(self.cursor, count)
        self.scanned |= {self.table.entry_key(n) for n in entries}
        if self.cursor == 0:
            assert self.stable <= self.scanned

    @rule(count=st.integers(1, 30))
    def sample(self, count: int) -> None:
        assert all(self.table.entry_key(n) in self.model for n in self.table.sample(count))

    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.model.clear()
        self.stable.clear()

    @rule(key=Keys)
    def get(self, key: bytes) -> None:
        value, number = self.model.get(key, (None, 0))
        n = self.table.find(key)
        assert (n >= 0) == (key in self.model)
        assert self.table.get(key) == value
        assert n < 0 or self.table.number(n) == number

    @invariant()
    def same_length(self) -> None:
        assert len(self.table) == len(self.model)

    def teardown(self) -> None:
        self.table.check()
        assert {key: self.table.get(key) for key in self.table} == {
            key: value for key, (value, _) in self.model.items()
        }


TestDictMachine = pytest.mark.slow(DictMachine.TestCase)
TestDictMachine.settings = settings(
    max_examples=by_speed(15, 5, 15), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
