"""The skiplist compared with a sorted Python list, its nodes, and the cost of its searches."""

from __future__ import annotations

import random
import tracemalloc
from bisect import bisect_left, insort
from math import inf, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rillet
from rillet.structs.dict import Dict
from rillet.structs.skiplist import MAX_LEVEL, NODE_MEMBERS, Skiplist

SCORES = st.sampled_from([-inf, -1.5, -0.0, 0.0, 1.0, 1.5, 2.0**60, inf]) | st.integers(-3, 3).map(float)
MEMBERS = st.binary(max_size=2) | st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 64 + b"y"])
Pairs = list[tuple[float, bytes]]
SIZE = 6000 if rillet.compiled() else 1500
"""Members of a large list: more than one block of nodes, if compiled."""


def empty() -> tuple[Skiplist, Dict]:
    table = Dict(numbers=True, newest=True)
    skiplist = Skiplist()
    table.owner = skiplist
    return skiplist, table


def filled(count: int, seed: int = 1, each: int = 3) -> tuple[Skiplist, Dict]:
    """Return a skiplist of the members 0 to count - 1, added in random order, of which `each` share a score."""
    numbers = list(range(count))
    random.Random(seed).shuffle(numbers)
    skiplist, table = empty()
    for number in numbers:
        assert skiplist.add(table, b"%07d" % number, float(number // each))
    return skiplist, table


def pairs(skiplist: Skiplist, table: Dict) -> Pairs:
    return [(score, member) for member, score in skiplist.iterate(table)]


@pytest.mark.slow
@given(st.data())
def test_it_behaves_as_a_sorted_list(data: st.DataObject) -> None:
    skiplist, table = empty()
    model: Pairs = []
    for _ in range(data.draw(st.integers(0, 40))):
        member, score, action = data.draw(MEMBERS), data.draw(SCORES), data.draw(st.integers(0, 5))
        n = table.find(member)
        if n < 0:
            assert not skiplist.discard(table, member)
            assert skiplist.add(table, member, score)
            insort(model, (score, member))
        elif action < 3:
            assert not skiplist.add(table, member, score)
            model.remove((table.score(n), member))
            skiplist.move(table, n, score)
            insort(model, (score, member))
        elif action < 5:
            model.remove((table.score(n), member))
            assert skiplist.discard(table, member)
        else:
            start = data.draw(st.integers(0, len(model) - 1))
            count = data.draw(st.integers(0, len(model) - start))
            skiplist.delete_range(table, start, count)
            del model[start : start + count]
        skiplist.check(table)
    assert pairs(skiplist, table) == model
    assert [(score, member) for member, score in skiplist.iterate(table, True)] == model[::-1]
    for rank, (_, member) in enumerate(model):
        n = table.find(member)
        assert skiplist.rank(table, n) == rank
        assert skiplist.at(rank) == n
    scores = [score for score, _ in model]
    for score in {*scores, 0.5, -inf, inf}:
        assert skiplist.below(table, score, False) == sum(one < score for one in scores)
        assert skiplist.below(table, score, True) == sum(one <= score for one in scores)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_nodes_are_split_merged_and_moved(seed: int) -> None:
    """Grow over several blocks and shrink again, by members and by ranges; in rising, falling or random order."""
    source = random.Random(seed)
    skiplist, table = empty()
    model: Pairs = []
    target = SIZE
    for number in range(target):
        place = (number, -number, source.randrange(10**6), source.randrange(50))[seed]
        pair = (float(place), b"%d" % number)
        assert skiplist.add(table, pair[1], pair[0])
        insort(model, pair)
    skiplist.check(table)
    assert pairs(skiplist, table) == model
    assert skiplist.nodes >= target / NODE_MEMBERS
    while len(model) > 3:
        if source.random() < 0.02:
            start = source.randrange(len(model))
            count = source.randrange(1, 3 * NODE_MEMBERS)
            skiplist.delete_range(table, start, min(count, len(model) - start))
            del model[start : start + count]
        elif source.random() < 0.3:
            score, member = model.pop(source.randrange(len(model)))
            skiplist.move(table, table.find(member), score / 2)
            insort(model, (score / 2, member))
        else:
            assert skiplist.discard(table, model.pop(source.randrange(len(model)))[1])
        if source.random() < 0.01:
            skiplist.check(table)
            assert pairs(skiplist, table) == model
    skiplist.check(table)
    table.check()
    assert pairs(skiplist, table) == model
    assert skiplist.nodes <= 2
    assert skiplist.memory_bytes() < 150_000, "one spare block may stay"


@given(st.sets(MEMBERS), st.sets(MEMBERS, min_size=1))
def test_members_with_equal_scores_are_found_by_their_bytes(members: set[bytes], wanted: set[bytes]) -> None:
    skiplist, table = empty()
    for member in members:
        skiplist.add(table, member, 7.0)
    for member in wanted:
        assert skiplist.below_member(table, member, False) == bisect_left(sorted(members), member)
        assert skiplist.below_member(table, member, True) == sum(one <= member for one in members)


@pytest.mark.parametrize("step", [1, -1])
def test_members_in_order_fill_their_nodes(step: int) -> None:
    skiplist, table = empty()
    for number in range(1000):
        skiplist.add(table, b"%d" % number, float(step * number))
    skiplist.check(table)
    assert skiplist.nodes == 7
    assert {len(node["pairs"]) for node in skiplist.layout()} <= {NODE_MEMBERS - 1, NODE_MEMBERS, 1000 % NODE_MEMBERS,
                                                                  1000 - 6 * (NODE_MEMBERS - 1)}  # fmt: skip


def test_a_member_that_keeps_its_position_is_not_searched_again() -> None:
    skiplist, table = filled(2000, each=1)
    n = skiplist.at(1000)
    hops = skiplist.hops
    skiplist.rank(table, n)
    one_search = skiplist.hops - hops
    assert one_search > 0
    hops = skiplist.hops
    skiplist.move(table, n, 1000.5)
    assert skiplist.hops - hops == one_search
    assert skiplist.at(1000) == n
    assert table.score(n) == 1000.5
    skiplist.check(table)


@pytest.mark.slow
@pytest.mark.parametrize("count", [600, SIZE])
def test_a_search_passes_a_logarithmic_number_of_nodes(count: int) -> None:
    """A search passes three nodes on average in each of the log4(nodes) levels."""
    skiplist, table = filled(count)
    skiplist.check(table)
    before = skiplist.hops
    for number in range(count):
        n = table.find(b"%07d" % number)
        skiplist.at(skiplist.rank(table, n))
        skiplist.below(table, table.score(n), True)
    assert (skiplist.hops - before) / (3 * count) < 3 * log2(count / 40)


def test_deleting_a_range_does_not_search_for_each_member() -> None:
    """It searches for each node, and for those entries that the dict then moves into gaps."""
    skiplist, table = filled(SIZE)
    before, nodes = skiplist.hops, skiplist.nodes
    skiplist.delete_range(table, 500, SIZE - 800)
    assert skiplist.hops - before < (SIZE - 800) * log2(nodes) / 2
    skiplist.check(table)
    assert len(table) == len(skiplist) == 800


@pytest.mark.slow
def test_entries_that_move_in_the_dict_keep_their_place() -> None:
    skiplist, table = filled(3000, each=100)
    model = pairs(skiplist, table)
    source = random.Random(4)
    while len(model) > 100:
        _, member = model.pop(source.randrange(len(model)))
        skiplist.discard(table, member)
    assert table.top < 3000, "no record has moved"
    skiplist.check(table)
    assert pairs(skiplist, table) == model
    for _ in range(100):
        table.defrag_step(50)
    skiplist.check(table)
    assert pairs(skiplist, table) == model


@pytest.mark.slow
def test_each_level_has_a_quarter_of_the_nodes_below_it() -> None:
    skiplist, _ = filled(2 * SIZE)
    assert 2 <= skiplist.level < MAX_LEVEL


def test_a_rank_out_of_range_raises_an_error() -> None:
    skiplist, table = filled(3)
    for rank in (-1, 3, 1 << 40):
        with pytest.raises(IndexError):
            skiplist.at(rank)
    assert skiplist.delete_range(table, 0, 0)
    assert skiplist.pairs(table, 0, 0, False) == []
    assert list(empty()[0].iterate(table)) == []


def test_a_window_is_read_in_both_directions() -> None:
    skiplist, table = filled(1000)
    rising = [(member, score) for score, member in pairs(skiplist, table)]
    for start, count in ((0, 1000), (0, 1), (999, 1), (150, 400)):
        assert skiplist.pairs(table, start, count, False) == rising[start : start + count]
        assert skiplist.pairs(table, start + count - 1, count, True) == rising[start : start + count][::-1]


def test_a_copy_is_independent() -> None:
    skiplist, table = filled(500)
    twin, copied = skiplist.copy(), table.copy()
    copied.owner = twin
    twin.discard(copied, b"0000007")
    twin.add(copied, b"new", 3.0)
    twin.check(copied)
    skiplist.check(table)
    assert len(skiplist) == len(twin) == 500


@pytest.mark.slow
def test_no_step_allocates_more_than_a_block() -> None:
    skiplist, table = filled(1000, each=1)
    tracemalloc.start()
    try:
        for number in range(SIZE // 2):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            skiplist.add(table, b"more:%d" % number, float(number % 1000))
            # A block of the skiplist, of the dict's records or buckets, or a page of keys, and small objects.
            assert tracemalloc.get_traced_memory()[1] - before < 2 * 65536 + 40_000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_list_is_freed_in_blocks() -> None:
    skiplist, _ = filled(2 * SIZE)
    blocks = len(skiplist.blocks)
    steps = 1
    while skiplist.free_some(1):
        steps += 1
    assert steps == blocks > (2 if rillet.compiled() else 0)
