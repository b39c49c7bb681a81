"""The rax compared with a dict, its shapes with those of rax.c, and deep trees without deep recursion."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rillet.structs.rax import NODE_MAX_SIZE, NOT_FOUND, Rax
from rillet.structs.rax_iterator import RaxIterator
from tests.variants import by_speed

DEEP = by_speed(5000, 1500, 20_000)
KEYS = st.one_of(
    st.binary(max_size=4),
    st.text("ab", max_size=8).map(str.encode),
    st.lists(st.sampled_from([0, 1, 0x7F, 0xFF]), max_size=16).map(bytes),
)


def tree(*keys: bytes) -> Rax:
    rax = Rax()
    for position, key in enumerate(keys):
        rax.insert(key, position)
    rax.check()
    return rax


class Value:
    """A value that supports weak references."""


class AgainstDict(RuleBasedStateMachine):
    """Random operations on a tree, with small or normal nodes, and on a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.trees = [Rax(), Rax(node_max_size=2), Rax(node_max_size=3)]
        self.model: dict[bytes, Any] = {}

    @rule(key=KEYS, value=st.one_of(st.none(), st.integers()))
    def insert(self, key: bytes, value: int | None) -> None:
        for rax in self.trees:
            assert rax.insert(key, value) == (key not in self.model)
        self.model[key] = value

    @rule(key=KEYS, value=st.integers())
    def try_insert(self, key: bytes, value: int) -> None:
        for rax in self.trees:
            assert rax.try_insert(key, value) == (key not in self.model)
        self.model.setdefault(key, value)

    @rule(key=KEYS)
    def remove_any(self, key: bytes) -> None:
        for rax in self.trees:
            assert rax.remove(key) == (key in self.model)
        self.model.pop(key, None)

    @rule(data=st.data())
    def remove_present(self, data: st.DataObject) -> None:
        if self.model:
            self.remove_any(data.draw(st.sampled_from(sorted(self.model))))

    @rule(key=KEYS)
    def find(self, key: bytes) -> None:
        for rax in self.trees:
            assert rax.find(key) == self.model.get(key, NOT_FOUND)
            assert (key in rax) == (key in self.model)

    @rule(key=KEYS, op=st.sampled_from(["^", "$", ">", ">=", "<", "<=", "="]), forward=st.booleans())
    def iterate(self, key: bytes, op: str, forward: bool) -> None:
        wanted = expected(sorted(self.model), op, key, forward)
        for rax in self.trees:
            it = RaxIterator(rax)
            assert it.seek(op, key) == bool(wanted)
            step = it.next if forward else it.prev
            met = []
            while step():
                met.append(it.key)
                assert it.data == self.model[it.key]
            assert met == wanted
            assert it.eof()

    @invariant()
    def agrees(self) -> None:
        for rax in self.trees:
            rax.check()
            assert len(rax) == rax.numele == len(self.model)
            assert list(rax.items()) == sorted(self.model.items())


def expected(keys: list[bytes], op: str, key: bytes, forward: bool) -> list[bytes]:
    """Return the keys that a seek and the following steps must visit."""
    tests: dict[str, Callable[[bytes], bool]] = {
        "^": lambda k: True, "$": lambda k: True, ">": lambda k: k > key, ">=": lambda k: k >= key,
        "<": lambda k: k < key, "<=": lambda k: k <= key, "=": lambda k: k == key,
    }  # fmt: skip
    found = [k for k in keys if tests[op](k)]
    if not found:
        return []
    start = found[0] if op in ("^", ">", ">=", "=") else found[-1]
    return [k for k in keys if k >= start] if forward else [k for k in reversed(keys) if k <= start]


TestAgainstDict = pytest.mark.slow(AgainstDict.TestCase)
TestAgainstDict.settings = settings(max_examples=by_speed(30, 20, 80), stateful_step_count=40, deadline=None)


@given(st.lists(KEYS, max_size=60, unique=True), st.randoms(use_true_random=False))
@settings(max_examples=by_speed(30, 20, 60), deadline=None)
def test_removing_all_keys_leaves_one_node(keys: list[bytes], random: Any) -> None:
    rax = tree(*keys)
    random.shuffle(keys)
    for key in keys:
        assert rax.remove(key)
        rax.check()
    assert (rax.numele, rax.numnodes) == (0, 1)


@pytest.mark.parametrize(
    ("keys", "nodes"),
    [
        ([b"telegram"], 2),
        ([b"telegram", b"telephone"], 6),
        ([b"telegram", b"telegraf"], 4),
        ([b"telegram", b"tango"], 6),
        ([b"telegram", b"radio"], 5),
        ([b"telegram", b"tele"], 3),
        ([b"a", b"b"], 3),
        ([b"ab", b"a"], 3),
        ([b"", b"a", b"ab"], 3),
    ],
)
def test_splits_create_as_many_nodes_as_rax_c(keys: list[bytes], nodes: int) -> None:
    """Node counts for the five cases of raxGenericInsert and their boundaries."""
    rax = tree(*keys)
    assert rax.numnodes == nodes
    for position, key in enumerate(keys):
        assert rax.find(key) == position
    for key in keys[1:]:
        rax.remove(key)
        rax.check()
    assert list(rax) == keys[:1]


def test_removing_a_branch_merges_the_remaining_chain() -> None:
    rax = tree(b"foobar", b"footer")
    assert rax.numnodes == 6
    rax.remove(b"footer")
    assert rax.show() == 'rax: 1 key, 2 nodes\n"foobar" -> [] = 0'
    assert not rax.unmerged


def test_removing_a_prefix_merges_only_after_one_edge_byte() -> None:
    """raxRemove compares the number of edge bytes with one, even if the node is compressed."""
    cut, joined = tree(b"foo", b"foobar"), tree(b"foo", b"foob")
    cut.remove(b"foo")
    joined.remove(b"foo")
    assert cut.show().splitlines()[1] == '"foo" -> "bar" -> [] = 1'
    assert joined.show().splitlines()[1] == '"foob" -> [] = 1'
    assert cut.unmerged
    assert not joined.unmerged


def test_merging_stops_below_a_key() -> None:
    rax = tree(b"a", b"abbb", b"abb")
    rax.remove(b"abb")
    assert rax.show().splitlines()[1] == '[a] -> "bb" = 0 -> [b] -> [] = 1'
    rax.insert(b"aa", 3)
    rax.check()


def test_chains_longer_than_a_node_are_split_and_never_overfilled() -> None:
    rax = Rax(node_max_size=4)
    rax.insert(b"0123456789", 1)
    assert rax.show().splitlines()[1] == '"0123" -> "4567" -> "89" -> [] = 1'
    rax.insert(b"012345xx", 2)
    rax.remove(b"012345xx")
    rax.check()
    assert rax.find(b"0123456789") == 1


@pytest.mark.parametrize("size", [1, 0, -1, NODE_MAX_SIZE + 1])
def test_invalid_node_sizes_are_rejected(size: int) -> None:
    with pytest.raises(ValueError, match="node_max_size"):
        Rax(node_max_size=size)


def test_a_node_with_256_children_finds_every_byte() -> None:
    rax = Rax()
    for byte in [*range(1, 256, 2), *range(254, -1, -2)]:
        rax.insert(bytes([byte]), byte)
    rax.check()
    assert [rax.find(bytes([byte])) for byte in range(256)] == list(range(256))
    assert rax.head.chars == bytes(range(256))
    assert rax.numnodes == 257


def test_none_is_a_value_distinct_from_an_absent_key() -> None:
    rax = tree()
    rax.insert(b"", None)
    assert rax.find(b"") is None
    assert b"" in rax
    assert rax.find(b"x") is NOT_FOUND
    assert repr(NOT_FOUND) == "NOT_FOUND"
    assert not rax.try_insert(b"", 1)
    assert rax.find(b"") is None
    assert not rax.insert(b"", 1)
    assert rax.find(b"") == 1


def test_keys_of_a_megabyte_are_stored_and_removed() -> None:
    long = bytes(1_000_000)
    rax = tree(long, long + b"\x01", long[:-1] + b"\x01", long[:500_000], b"\xff" * 1_000_000)
    assert [len(key) for key in rax] == [500_000, 1_000_000, 1_000_001, 1_000_000, 1_000_000]
    for key in list(rax):
        assert rax.remove(key)
        rax.check()


def deep_tree(step: bytes, depth: int) -> Rax:
    """Return a tree of the keys step, step * 2, ... step * depth, whose depth is the number of steps."""
    rax = Rax()
    for times in range(depth, 0, -1):
        rax.insert(step * times, times)
    return rax


@pytest.mark.slow
def test_a_deep_tree_is_iterated_drawn_checked_and_freed_without_recursion() -> None:
    """Runs on a stack of 512 KiB, which one C frame per node (20,000) would overflow."""
    outcome: list[Any] = []

    def work() -> None:
        rax = deep_tree(b"a", 20_000)
        rax.check()
        outcome.append((rax.numele, rax.numnodes, rax.find(b"a" * 20_000), rax.show().count("->")))
        outcome.append(sum(value for _, value in rax.items()))
        del rax
        outcome.append("freed")

    old = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(old)
    assert outcome == [(20_000, 20_001, 20_000, 20_000), 20_000 * 20_001 // 2, "freed"]


@pytest.mark.slow
@pytest.mark.parametrize("step", [b"a", b"ab"])
def test_a_deep_chain_is_pruned_without_recursion(step: bytes) -> None:
    rax = deep_tree(step, DEEP)
    for times in range(1, DEEP):
        rax.remove(step * times)
    # Steps of one byte have been merged into one node, longer ones have not; rax.py explains why.
    assert rax.numnodes == (2 if len(step) == 1 else DEEP + 1)
    rax.check()
    rax.remove(step * DEEP)
    assert (rax.numele, rax.numnodes) == (0, 1)
    rax.check()


def test_values_are_freed_with_their_keys() -> None:
    rax = Rax()
    watched = []
    for key in (b"a", b"ab", b"abc", b"b"):
        value = Value()
        watched.append(weakref.ref(value))
        rax.insert(key, value)
        del value
    rax.insert(b"a", None)
    rax.remove(b"ab")
    assert [ref() is None for ref in watched] == [True, True, False, False]
    rax.clear()
    assert all(ref() is None for ref in watched)
    assert (rax.numele, rax.numnodes, list(rax)) == (0, 1, [])
    rax.check()


def test_a_destructor_run_by_a_removal_sees_a_consistent_tree() -> None:
    rax = Rax()
    seen = []

    class Last:
        def __del__(self) -> None:
            rax.check()
            rax.insert(b"abx", 1)
            seen.append(list(rax))

    rax.insert(b"abc", Last())
    rax.insert(b"abe", 0)
    rax.remove(b"abc")
    assert seen == [[b"abe", b"abx"]]
    rax.check()


@pytest.mark.slow
def test_clear_breaks_a_reference_cycle_through_a_value() -> None:
    rax = Rax()
    value = Value()
    value.tree = rax  # type: ignore[attr-defined]
    gone = weakref.ref(value)
    rax.insert(b"k", value)
    del value
    rax.clear()
    del rax
    gc.collect()
    assert gone() is None


def test_keys_must_be_bytes() -> None:
    rax: Any = Rax()
    with pytest.raises(TypeError):
        rax.insert("text", 1)
    assert rax.numele == 0


def test_show_draws_one_line_for_each_branch() -> None:
    rax = tree(b"foo", b"foobar", b"footer", b"first")
    assert rax.show().splitlines() == [
        "rax: 4 keys, 10 nodes",
        "[f] -> [io]",
        '|- i -> "rst" -> [] = 3',
        "`- o -> [o] -> [bt] = 0",
        '   |- b -> "ar" -> [] = 1',
        '   `- t -> "er" -> [] = 2',
    ]
    assert Rax().show() == "rax: 0 keys, 1 node\n[]"
    strange = Rax()
    strange.insert(b'\x00"]\\ \xff', "v" * 99)
    assert strange.show().splitlines()[1] == f'"\\x00\\x22\\x5d\\x5c\\x20\\xff" -> [] = \'{"v" * 56}...'


@pytest.mark.slow
def test_many_sixteen_byte_keys_take_bounded_memory() -> None:
    """Keys as in a stream: milliseconds and sequence. Measured: 156 bytes per key compiled, 221 interpreted."""
    resident = Path("/proc/self/statm")
    if not resident.exists():
        pytest.skip("the memory of a process can be read only on Linux")
    page = os.sysconf("SC_PAGE_SIZE")
    before = int(resident.read_text().split()[1])
    count = by_speed(1_000_000, 100_000, 1_000_000)
    rax = Rax()
    for n in range(count):
        rax.insert((1_700_000_000_000 + 3 * n).to_bytes(8, "big") + (n % 5).to_bytes(8, "big"), None)
    grown = (int(resident.read_text().split()[1]) - before) * page
    assert len(rax) == count
    assert grown < 300 * count
