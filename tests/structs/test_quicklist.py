"""The quicklist compared with a Python list, for every fill and depth and both versions of the rules.

tests/differential/test_values_differential.py compares the node boundaries with Redis's by DUMP payloads.
"""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rillet.structs.quicklist import Quicklist, QuicklistNode, exceeds, size_limit
from tests.variants import by_speed

VALUES = st.one_of(
    st.integers(-300, 300).map(lambda number: b"%d" % number),
    st.binary(max_size=12),
    st.sampled_from([b"a", b"b", b"ab" * 30, b"xyz" * 40, b"x" * 5000, bytes(range(256)) * 36]),
)
INDEXES = st.integers(-25, 25)


class Model(RuleBasedStateMachine):
    """Every operation of a quicklist, applied to a list too."""

    def __init__(self) -> None:
        super().__init__()
        self.model: list[bytes] = []
        self.list = Quicklist()

    @initialize(
        fill=st.sampled_from([-1, -2, 0, 1, 2, 3, 8]), depth=st.integers(0, 2), classic=st.booleans(),
        single=st.booleans(), threshold=st.sampled_from([0, 0, 4, 100]),
    )  # fmt: skip
    def start(self, fill: int, depth: int, classic: bool, single: bool, threshold: int) -> None:
        self.list = Quicklist(fill, depth, classic, single)
        self.list.threshold = threshold

    @rule(value=VALUES, head=st.booleans())
    def push(self, value: bytes, head: bool) -> None:
        self.list.push(value, head)
        self.model.insert(0 if head else len(self.model), value)

    @rule(head=st.booleans())
    def pop(self, head: bool) -> None:
        if self.model:
            assert self.list.pop(head) == self.model.pop(0 if head else -1)

    @rule(index=INDEXES, value=VALUES)
    def replace(self, index: int, value: bytes) -> None:
        there = -len(self.model) <= index < len(self.model)
        assert self.list.replace(index, value) == there
        if there:
            self.model[index] = value

    @rule(index=INDEXES, value=VALUES, after=st.booleans())
    def insert(self, index: int, value: bytes, after: bool) -> None:
        found = self.list.locate(index)
        assert (found is not None) == (-len(self.model) <= index < len(self.model))
        if found is not None:
            self.list.insert(*found, value, after)
            self.model.insert(index % len(self.model) + after, value)

    @rule(start=INDEXES, count=st.integers(-1, 30))
    def delete_range(self, start: int, count: int) -> None:
        at = start + len(self.model) if start < 0 else start
        gone = self.model[at : at + max(count, 0)] if at >= 0 else []
        assert self.list.delete_range(start, count) == len(gone)
        del self.model[at : at + len(gone)]

    @rule(value=VALUES, most=st.integers(0, 2), backwards=st.booleans())
    def remove(self, value: bytes, most: int, backwards: bool) -> None:
        order = range(len(self.model))
        found = [at for at in (reversed(order) if backwards else order) if self.model[at] == value]
        gone = set(found[: most or len(found)])
        assert self.list.remove(value, most, backwards) == len(gone)
        self.model = [one for at, one in enumerate(self.model) if at not in gone]

    @rule(value=VALUES, backwards=st.booleans(), most=st.integers(0, 9))
    def positions(self, value: bytes, backwards: bool, most: int) -> None:
        seen = self.model[::-1] if backwards else self.model
        expected = [at for at, one in enumerate(seen[: most or len(seen)]) if one == value]
        assert list(self.list.positions(value, backwards, most)) == expected

    @rule(index=INDEXES)
    def get(self, index: int) -> None:
        there = -len(self.model) <= index < len(self.model)
        assert self.list.get(index) == (self.model[index] if there else None)

    @rule()
    def begin_compaction(self) -> None:
        self.list.bookmark = self.list.head

    @rule(steps=st.integers(1, 4))
    def compact(self, steps: int) -> None:
        for _ in range(steps):
            self.list.compact()

    @invariant()
    def holds(self) -> None:
        assert self.list.bookmark is None or self.list.bookmark in list(self.list.chain())
        self.list.check()
        assert list(self.list) == self.model
        assert len(self.list) == len(self.model)


Model.TestCase.settings = settings(max_examples=by_speed(30, 15, 60), stateful_step_count=40)
TestModel = pytest.mark.slow(Model.TestCase)


def test_a_node_is_limited_by_bytes_or_by_elements() -> None:
    assert [size_limit(fill) for fill in (-1, -2, -5, -9)] == [4096, 8192, 65536, 65536]
    assert not exceeds(-1, 4096, 1000)
    assert exceeds(-1, 4097, 1)
    assert not exceeds(3, 8192, 3)
    assert exceeds(3, 8192, 4)
    assert exceeds(3, 8193, 1)
    assert exceeds(0, 7, 2)
    assert not exceeds(0, 7, 1)


def test_limits_out_of_range_are_clamped() -> None:
    one = Quicklist(1 << 40, 1 << 40)
    assert (one.fill, one.depth) == (32767, 65535)
    assert Quicklist(-100).fill == -5


def test_inner_nodes_are_compressed_and_the_ends_are_not() -> None:
    one = Quicklist(2, 1)
    for _ in range(10):
        one.push(b"compressible " * 10, False)
    closed = [node.block is not None for node in one.chain()]
    assert closed == [False, True, True, True, False]
    assert sum(len(node.block or b"") for node in one.chain()) < 200
    assert len(list(one)) == 10
    assert [node.block is not None for node in one.chain()] == closed
    assert one.replace(4, b"other " * 20)
    assert [node.block is not None for node in one.chain()] == closed
    while one.nodes > 2:
        one.pop(True)
    assert not any(node.block for node in one.chain())


def test_a_compaction_merges_neighbours_and_releases_capacity() -> None:
    one = Quicklist(4)
    for number in range(400):
        one.push(b"element %d" % number, False)
    for start in range(100):
        one.delete_range(start, 3)
    assert (one.nodes, len(one)) == (100, 100)
    kept, before = list(one), sum(len(node.listpack().buf) for node in one.chain())
    one.bookmark, freed = one.head, 0
    while one.bookmark is not None:
        freed += one.compact()
    assert (one.nodes, list(one)) == (25, kept)
    assert sum(len(node.listpack().buf) for node in one.chain()) == before - freed
    one.check()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_compaction_leaves_compressed_nodes(depth: int) -> None:
    one = Quicklist(2, depth)
    for number in range(40):
        one.push(b"compressible " * 10 + b"%d" % number, False)
    kept = list(one)
    one.bookmark = one.head
    while one.bookmark is not None:
        one.compact()
        one.check()
    assert list(one) == kept


@pytest.mark.parametrize("classic", [True, False])
def test_a_large_element_gets_its_own_node(classic: bool) -> None:
    one = Quicklist(-1, classic=classic)
    for value in (b"a", b"b", b"x" * 5000, b"c"):
        one.push(value, False)
    assert [node.is_plain() for node in one.chain()] == ([False] * 3 if classic else [False, True, False])


@pytest.mark.slow
def test_a_dropped_quicklist_is_freed_at_once_and_without_recursion() -> None:
    """The chain is a reference cycle; the destructor unlinks it instead of leaving it to the collector."""

    def nodes() -> int:
        return sum(isinstance(one, QuicklistNode) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = nodes()
        one = Quicklist(1)
        for _ in range(50_000):
            one.push(b"x", False)
        assert nodes() == before + 50_000
        del one
        assert nodes() == before
    finally:
        gc.enable()


def test_a_quicklist_whose_creation_was_interrupted_is_freed_silently() -> None:
    Quicklist.__new__(Quicklist).__del__()
