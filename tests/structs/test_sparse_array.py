"""The sparse array compared with a dict: values, order, ranges and words, with every limit.

tests/differential/test_values_differential.py compares the layout with Redis's by ARINFO FULL.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rillet.structs.array.array_cursor import ArrayCursor
from rillet.structs.array.array_slice import double_text, word_of, word_of_double, word_of_integer, word_of_short
from rillet.structs.array.sparse_array import NO_INDEX, SparseArray
from tests.variants import by_speed

VALUES = st.one_of(
    st.integers(-300, 300).map(lambda number: b"%d" % number),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: b"%d" % number),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: repr(number).encode()),
    st.binary(max_size=9),
    st.sampled_from([b"a" * 40, b"1.0", b"-0.0", b".5", b"1.", b"007", b"3.14"]),
)
NEAR = st.integers(0, 700)
INDEXES = st.one_of(
    NEAR, NEAR, st.integers(0, 20).map(lambda n: 256 * 2048 * n + 255 * n), st.integers(0, 2**64 - 2),
    st.integers(0, 5).map(lambda n: NO_INDEX - 1 - n),
)  # fmt: skip


class Model(RuleBasedStateMachine):
    """Every operation of a sparse array, applied to a dict too."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[int, bytes] = {}
        self.array = SparseArray(256)
        self.kmax, self.kmin = 10, 5

    @initialize(size=st.sampled_from([256, 512, 65536]))
    def start(self, size: int) -> None:
        self.array = SparseArray(size)

    @rule(limits=st.sampled_from([(10, 5), (0, 0), (1, 0), (2, 1), (30, 9), (4, 3)]))
    def limit(self, limits: tuple[int, int]) -> None:
        self.kmax, self.kmin = limits

    @rule(index=INDEXES, value=VALUES)
    def set(self, index: int, value: bytes) -> None:
        assert self.array.set(index, value, self.kmax) == (index not in self.model)
        self.model[index] = value

    @rule(index=st.one_of(NEAR, INDEXES), values=st.lists(VALUES, min_size=2, max_size=60))
    def set_range(self, index: int, values: list[bytes]) -> None:
        index = min(index, NO_INDEX - len(values))
        self.array.reserve_range(index, index + len(values) - 1, self.kmax)
        for at, value in enumerate(values, index):
            self.set(at, value)

    @rule(index=INDEXES)
    def remove(self, index: int) -> None:
        assert self.array.remove(index, self.kmax, self.kmin) == (index in self.model)
        self.model.pop(index, None)

    @rule(first=INDEXES, size=st.one_of(st.integers(0, 300), st.integers(0, 2**64)))
    def remove_range(self, first: int, size: int) -> None:
        last = min(first + size, NO_INDEX - 1)
        gone = [index for index in self.model if first <= index <= last]
        assert self.array.remove_range(first, last, self.kmax, self.kmin) == len(gone)
        for index in gone:
            del self.model[index]

    @rule(first=INDEXES, last=INDEXES)
    def walk(self, first: int, last: int) -> None:
        cursor = ArrayCursor(self.array, first, last)
        found = []
        while cursor.next():
            found.append((cursor.index, self.array.data(cursor.word)))
        low, high = min(first, last), max(first, last)
        expected = sorted(item for item in self.model.items() if low <= item[0] <= high)
        assert found == (expected if first <= last else expected[::-1])
        assert not cursor.next()

    @rule()
    def compact(self) -> None:
        self.array.begin_compaction()
        for _, part in self.array.numbered_slices():
            self.array.compact_slice(part)
        self.array.trim_strings()
        assert not self.array.spare

    @rule()
    def duplicate(self) -> None:
        self.array, old = self.array.copy(), self.array
        old.remove_range(0, NO_INDEX - 1)

    @invariant()
    def they_agree(self) -> None:
        self.array.check()
        assert list(self.array.items()) == sorted(self.model.items())
        assert len(self.array) == len(self.model)
        assert self.array.length() == max(self.model, default=-1) + 1
        assert self.array.memory_bytes() > 0
        for index in [0, 1, 255, 256, *list(self.model)[:3]]:
            assert self.array.get(index) == self.model.get(index)


Model.TestCase.settings = settings(max_examples=by_speed(8, 8, 50))
TestModel = pytest.mark.slow(Model.TestCase)


@given(VALUES)
@example(b"2305843009213693951")
@example(b"2305843009213693952")
@example(b"-2305843009213693948")
@example(b"-2305843009213693949")
@example(b"9223372036854775808.0")
@example(b"12345678901234567890123.5")
def test_a_word_is_the_value_or_none(value: bytes) -> None:
    array = SparseArray()
    word = word_of(value)
    if word:
        assert array.data(word) == value
    else:
        assert len(value) > 7
    array.set(5, value)
    assert array.get(5) == value


def test_words_of_each_kind() -> None:
    array = SparseArray()
    assert word_of(b"-1") == word_of_integer(-1) == 2**64 - 3
    assert word_of_integer(2**61) == word_of_integer(-(2**61) - 1) == 0
    assert word_of(b"2.5") == word_of_double(2.5)
    assert word_of_short(b"12") != word_of(b"12")
    assert array.data(word_of_short(b"12")) == b"12"
    assert word_of(b"") == word_of_short(b"")
    assert [double_text(value) for value in (1.0, -0.0, 0.1, 1e300, float("nan"), float("-inf"))] == [
        b"1.0", b"-0.0", b"0.1", b"1e+300", b"nan", b"-inf",
    ]  # fmt: skip


def test_a_million_indexes_apart_cost_no_memory_for_the_distance() -> None:
    array = SparseArray()
    for at in range(100):
        array.set(at * 10**15, b"x")
    assert array.memory_bytes() < 3_000_000
    assert array.remove_range(1, NO_INDEX - 1) == 99
    array.check()
    assert not array.blocks[1:]
    while array.free_some(16):
        pass
