"""How ranges are shared out: nothing twice, nothing left out, and about evenly."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rillet.spark.offsets import PROBE, Range, number, split, successor
from rillet.types.stream_id import MAX, StreamID

IDS = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)).map(lambda pair: StreamID(*pair))


def probing(entries: Sequence[StreamID]):
    """Return a probe of a sorted list."""

    def probe(starts: Sequence[StreamID]) -> list[list[StreamID]]:
        return [list(entries[bisect.bisect_right(entries, start) :][:PROBE]) for start in starts]

    return probe


@settings(deadline=None)
@given(IDS, IDS, st.integers(1, 9), st.booleans(), st.lists(IDS, max_size=50))
def test_ranges_are_disjoint_and_cover_the_whole(
    after: StreamID, last: StreamID, parts: int, exactly: bool, entries: list[StreamID]
) -> None:
    ranges = split(Range(after, last), parts, probing(sorted(entries)), exactly)
    if last <= after:
        assert ranges == []
        return
    assert len(ranges) <= parts
    assert ranges[0].after == after
    assert ranges[-1].last == last
    for left, right in zip(ranges, ranges[1:], strict=False):
        assert left.last == right.after
    assert all(part.after < part.last for part in ranges)


@pytest.mark.parametrize("step", [1, 17, 1000])
@pytest.mark.parametrize("sequences", [1, 5])
def test_shares_are_about_even(step: int, sequences: int) -> None:
    entries = [StreamID(1000 + n // sequences * step, n % sequences) for n in range(30_000)]
    ranges = split(Range(StreamID(999, MAX), entries[-1]), 4, probing(entries), False)
    sizes = [sum(part.after < entry <= part.last for entry in entries) for part in ranges]
    assert len(sizes) == 4
    assert max(sizes) < 1.3 * min(sizes)


def test_a_burst_in_a_quiet_year_is_shared() -> None:
    quiet = [StreamID(n * 1_000_000, 0) for n in range(1, 3000)]
    burst = [StreamID(1_500_000_000 + n * 50, 1) for n in range(200_000)]
    entries = sorted([*quiet, *burst])
    ranges = split(Range(StreamID(0, 0), entries[-1]), 4, probing(entries), False, len(entries))
    sizes = [sum(part.after < entry <= part.last for entry in entries) for part in ranges]
    assert sum(sizes) == len(entries)
    assert max(sizes) < 0.5 * len(entries)


def test_a_burst_between_the_probes_is_found() -> None:
    quiet = [StreamID(n * 1_000_000, 0) for n in range(1, 3000)]
    burst = [StreamID(1_480_000_000 + n * 100, 0) for n in range(100_000)]
    entries = sorted([*quiet, *burst])
    ranges = split(Range(StreamID(0, 0), entries[-1]), 4, probing(entries), False, len(entries))
    sizes = [sum(part.after < entry <= part.last for entry in entries) for part in ranges]
    assert max(sizes) < 0.5 * len(entries)


def test_one_millisecond_is_shared_by_sequence() -> None:
    entries = [StreamID(5, n) for n in range(40_000)]
    ranges = split(Range(StreamID(4, MAX), entries[-1]), 4, probing(entries), False)
    sizes = [sum(part.after < entry <= part.last for entry in entries) for part in ranges]
    assert max(sizes) < 1.3 * min(sizes)


def test_little_is_one_task_unless_asked_for_exactly() -> None:
    entries = [StreamID(n, 0) for n in range(1, 300)]
    whole = Range(StreamID(0, 0), entries[-1])
    assert split(whole, 4, probing(entries), False) == [whole]
    assert len(split(whole, 4, probing(entries), True)) == 4


def test_successor_carries_into_the_milliseconds() -> None:
    assert successor(StreamID(1, MAX)) == StreamID(2, 0)
    assert number(StreamID(1, 2)) == (1 << 64) + 2
