"""The skiplist compared with a sorted Python list, and the cost of its searches."""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from math import inf, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.structs.skiplist import MAX_LEVEL, Skiplist, SkiplistNode

SCORES = st.sampled_from([-inf, -1.5, -0.0, 0.0, 1.0, 1.5, 2.0**60, inf]) | st.integers(-3, 3).map(float)
MEMBERS = st.binary(max_size=2)


def pairs(skiplist: Skiplist) -> list[tuple[float, bytes]]:
    return [(node.score, node.member) for node in skiplist]


def filled(count: int, seed: int = 1) -> tuple[Skiplist, list[SkiplistNode]]:
    numbers = list(range(count))
    random.Random(seed).shuffle(numbers)
    skiplist = Skiplist()
    return skiplist, [skiplist.insert(float(number // 3), b"%07d" % number) for number in numbers]


@given(st.data())
def test_it_behaves_as_a_sorted_list(data: st.DataObject) -> None:
    skiplist, nodes = Skiplist(), dict[bytes, SkiplistNode]()
    model: list[tuple[float, bytes]] = []
    for _ in range(data.draw(st.integers(0, 40))):
        member = data.draw(MEMBERS)
        score = data.draw(SCORES)
        action = data.draw(st.integers(0, 5))
        if member not in nodes:
            nodes[member] = skiplist.insert(score, member)
            insort(model, (score, member))
        elif action < 3:
            model.remove((nodes[member].score, member))
            skiplist.move(nodes[member], score)
            insort(model, (score, member))
        elif action < 5:
            model.remove((nodes[member].score, member))
            skiplist.remove(nodes.pop(member))
        else:
            start = data.draw(st.integers(0, len(model) - 1))
            count = data.draw(st.integers(0, len(model) - start))
            gone = [nodes.pop(gone.member) for gone in skiplist.delete_range(start, count)]
            assert [(node.score, node.member) for node in gone] == model[start : start + count]
            del model[start : start + count]
        skiplist.check()
    assert pairs(skiplist) == model
    assert len(skiplist) == len(model)
    for rank, pair in enumerate(model):
        assert skiplist.rank(nodes[pair[1]]) == rank
        assert skiplist.at(rank) is nodes[pair[1]]
    scores = [score for score, _ in model]
    for score in {*scores, 0.5, -inf, inf}:
        assert skiplist.below(score, False) == sum(one < score for one in scores)
        assert skiplist.below(score, True) == sum(one <= score for one in scores)


@given(st.sets(MEMBERS), st.sets(MEMBERS, min_size=1))
def test_members_with_equal_scores_are_found_by_their_bytes(members: set[bytes], wanted: set[bytes]) -> None:
    skiplist = Skiplist()
    for member in members:
        skiplist.insert(7.0, member)
    for member in wanted:
        assert skiplist.below_member(member, False) == bisect_left(sorted(members), member)
        assert skiplist.below_member(member, True) == sum(one <= member for one in members)


def test_a_node_that_keeps_its_order_is_not_relinked() -> None:
    skiplist, _ = filled(100)
    node = skiplist.at(50)
    hops = skiplist.hops
    skiplist.move(node, node.score)  # its neighbours have the same score, so it is relinked
    assert skiplist.hops > hops
    assert skiplist.at(50) is node
    lone = skiplist.insert(1000.0, b"lone")
    hops = skiplist.hops
    skiplist.move(lone, 2000.0)
    assert skiplist.hops == hops
    assert skiplist.at(100) is lone
    skiplist.check()


@pytest.mark.parametrize("count", [100, 1000, 10_000])
def test_a_search_passes_a_logarithmic_number_of_nodes(count: int) -> None:
    """A search passes three nodes on average in each of the log4(n) levels."""
    skiplist, nodes = filled(count)
    skiplist.check()
    before = skiplist.hops
    for node in nodes:
        skiplist.at(skiplist.rank(node))
        skiplist.below(node.score, True)
    assert (skiplist.hops - before) / (3 * count) < 3 * log2(count)


def test_deleting_a_range_searches_only_for_its_start() -> None:
    skiplist, _ = filled(10_000)
    before = skiplist.hops
    assert len(skiplist.delete_range(5000, 4000)) == 4000
    assert skiplist.hops - before < 12 * log2(10_000)
    skiplist.check()


def test_each_level_has_a_quarter_of_the_nodes_below_it() -> None:
    skiplist, _ = filled(20_000)
    assert 4 <= skiplist.level <= 16 < MAX_LEVEL


def test_a_rank_out_of_range_raises_an_error() -> None:
    skiplist, _ = filled(3)
    for rank in (-1, 3, 1 << 40):
        with pytest.raises(IndexError):
            skiplist.at(rank)
    assert skiplist.delete_range(0, 0) == []


@pytest.mark.once
def test_a_long_skiplist_is_freed_without_deep_recursion() -> None:
    skiplist, nodes = filled(200_000)
    nodes.clear()
    del skiplist
