"""The listpack compared with a Python list: equal values, and the oracle's bytes, after any sequence of operations."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rillet.structs.listpack import Listpack
from tests.structs.listpack_oracle import as_stored, encode
from tests.variants import by_speed

BOUNDARIES = [s * (1 << b) + d for b in (0, 7, 12, 15, 23, 31, 63) for s in (-1, 1) for d in (-1, 0, 1)]
INTEGERS = st.sampled_from([n for n in BOUNDARIES if -(2**63) <= n < 2**63]) | st.integers(-(2**63), 2**63 - 1)
LENGTHS = st.sampled_from([62, 63, 64, 125, 126, 127, 4095, 4096])
VALUES = (
    st.binary(max_size=20)
    | INTEGERS.map(lambda n: b"%d" % n)
    | st.text("0123456789-", max_size=21).map(str.encode)
    | LENGTHS.map(lambda n: b"s" * n)
)
INDEXES = st.integers(-12, 12)


class ListpackMachine(RuleBasedStateMachine):
    """A listpack and the list of its expected values."""

    def __init__(self) -> None:
        super().__init__()
        self.lp = Listpack()
        self.model: list[bytes] = []

    def position(self, index: int) -> int:
        return self.lp.seek(index % len(self.model))

    @rule(value=VALUES, front=st.booleans())
    def push(self, value: bytes, front: bool) -> None:
        (self.lp.prepend if front else self.lp.append)(value)
        self.model.insert(0 if front else len(self.model), value)

    @rule(v=INTEGERS, front=st.booleans())
    def push_int(self, v: int, front: bool) -> None:
        (self.lp.prepend_int if front else self.lp.append_int)(v)
        self.model.insert(0 if front else len(self.model), b"%d" % v)

    @rule(index=INDEXES, value=VALUES, after=st.booleans())
    def insert(self, index: int, value: bytes, after: bool) -> None:
        if self.model:
            pos = self.lp.insert(self.position(index), value, after)
            self.model.insert(index % len(self.model) + after, value)
            assert self.lp.get_bytes(pos) == value

    @rule(index=INDEXES, v=INTEGERS, after=st.booleans())
    def insert_int(self, index: int, v: int, after: bool) -> None:
        if self.model:
            pos = self.lp.insert_int(self.position(index), v, after)
            self.model.insert(index % len(self.model) + after, b"%d" % v)
            assert self.lp.get_int(pos) == v

    @rule(index=INDEXES, value=VALUES)
    def replace(self, index: int, value: bytes) -> None:
        if self.model:
            pos = self.lp.replace(self.position(index), value)
            self.model[index % len(self.model)] = value
            assert pos == self.position(index)

    @rule(index=INDEXES, v=INTEGERS)
    def replace_int(self, index: int, v: int) -> None:
        if self.model:
            self.lp.replace_int(self.position(index), v)
            self.model[index % len(self.model)] = b"%d" % v

    @rule(index=INDEXES)
    def delete(self, index: int) -> None:
        if self.model:
            index %= len(self.model)
            pos = self.lp.delete(self.lp.seek(index))
            del self.model[index]
            assert pos == (self.lp.seek(index) if index < len(self.model) else -1)

    @rule(index=INDEXES, count=st.integers(0, 6))
    def delete_range(self, index: int, count: int) -> None:
        start = index if index >= 0 else index + len(self.model)
        gone = len(self.model[start : start + count]) if start >= 0 else 0
        assert self.lp.delete_range(index, count) == gone
        if gone:
            del self.model[start : start + count]

    @rule(value=VALUES, pick=INDEXES, present=st.booleans(), start=INDEXES, skip=st.integers(0, 3))
    def find(self, value: bytes, pick: int, present: bool, start: int, skip: int) -> None:
        if self.model:
            value = self.model[pick % len(self.model)] if present else value
            start %= len(self.model)
            hits = [i for i in range(start, len(self.model), skip + 1) if self.model[i] == value]
            assert self.lp.find(self.lp.seek(start), value, skip) == (self.lp.seek(hits[0]) if hits else -1)
            assert self.lp.compare(self.position(pick), value) == (self.model[pick % len(self.model)] == value)

    @rule(values=st.lists(VALUES, max_size=4), front=st.booleans())
    def merge(self, values: list[bytes], front: bool) -> None:
        other = Listpack.from_bytes(encode(values))
        self.lp = Listpack.merge(other, self.lp) if front else Listpack.merge(self.lp, other)
        self.model = values + self.model if front else self.model + values

    @rule()
    def shrink(self) -> None:
        self.lp.shrink()
        assert len(self.lp.buf) == self.lp.used

    @invariant()
    def same(self) -> None:
        self.lp.check()
        assert self.lp.to_bytes() == encode(self.model)
        assert self.lp.values() == [as_stored(value) for value in self.model]
        assert len(self.lp) == len(self.model)
        pos, backward = self.lp.last(), []
        while pos != -1:
            backward.append(self.lp.get_bytes(pos))
            pos = self.lp.prev(pos)
        assert backward[::-1] == self.model


TestListpack = pytest.mark.slow(ListpackMachine.TestCase)
TestListpack.settings = settings(max_examples=by_speed(25, 15, 60), stateful_step_count=30, deadline=None)
