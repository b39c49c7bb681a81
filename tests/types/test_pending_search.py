"""Searches for IDs in an index of pending entries whose distances vary widely."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.types.stream.group import Group
from rillet.types.stream.pending import PendingIterator

MAX = 0xFFFF_FFFF_FFFF_FFFF
NUMBERS = st.one_of(st.integers(0, 9), st.integers(0, MAX), st.integers(MAX - 9, MAX))
IDS = st.tuples(NUMBERS, NUMBERS)


def group_of(ids: set[tuple[int, int]]) -> Group:
    """Return a group in which the IDs are pending, delivered in ascending order."""
    group = Group(b"g", 0, 0, -1)
    consumer = group.create_consumer(b"c", 0)
    for ms, seq in sorted(ids):
        group.deliver(ms, seq, consumer, 0)
    return group


@given(st.sets(IDS, max_size=60), st.lists(IDS, max_size=60))
def test_any_set_of_ids_can_be_searched(ids: set[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    """Pending IDs are found, others are not, and an iterator starts at the next pending one."""
    group = group_of(ids)
    rising = sorted(ids)
    for ms, seq in others + rising:
        assert (group.find(ms, seq) >= 0) == ((ms, seq) in ids)
        pending = PendingIterator(group.table, group.index, ms, seq)
        later = [ident for ident in rising if ident >= (ms, seq)]
        assert pending.next() == bool(later)
        assert not later or (pending.ms, pending.seq) == later[0]


SPREADS = {
    "even": lambda n: (n, 1), "of one millisecond": lambda n: (7, n), "bursts": lambda n: (n // 300, n),
    "ever wider": lambda n: (n**5, 0), "ever narrower": lambda n: (MAX - (3000 - n) ** 5, 0),
    "all times": lambda n: (n * (MAX // 3000), MAX), "one far away": lambda n: (n if n < 2900 else MAX - 3000 + n, 0),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SPREADS)
def test_ids_on_many_pages_can_be_searched(name: str) -> None:
    """Three thousand IDs on a dozen pages are searched before and after some are acknowledged."""
    ids = [SPREADS[name](n) for n in range(3000)]
    group = group_of(set(ids))
    source = random.Random(name)
    gone = set(source.sample(ids, 1500))
    for ms, seq in source.sample(sorted(gone), len(gone)):
        assert group.acknowledge(ms, seq)
    group.check()
    left = sorted(set(ids) - gone)
    for ms, seq in source.sample(ids, len(ids)):
        assert (group.find(ms, seq) >= 0) == ((ms, seq) not in gone)
    pending = PendingIterator(group.table, group.index)
    found = []
    while pending.next():
        found.append((pending.ms, pending.seq))
    assert found == left
