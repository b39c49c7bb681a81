"""Offsets in the checkpoint, and the even division of entries among tasks without gaps or duplicates."""

from __future__ import annotations

import bisect
import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rillet.client.pages import successor
from rillet.spark.read.entry_counts import CountInterval
from rillet.spark.read.offsets import Offset, OffsetError, identifier, number
from rillet.spark.read.splits import PROBE, Estimate, Probe, capped, line, located, tasks
from rillet.types.stream.id import MAX, StreamID
from tests.variants import covering, long

IDS = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)).map(lambda pair: StreamID(*pair))
NAMES = st.text(min_size=1, max_size=5)
PARTS = st.tuples(NAMES, IDS, IDS)


# ---- offsets ----


@given(
    st.dictionaries(NAMES, IDS, min_size=1),
    st.dictionaries(NAMES, st.integers(0, 2**63)),
    st.none() | st.lists(st.lists(PARTS, min_size=1).map(tuple)).map(tuple),
    st.booleans(),
    st.none() | st.dictionaries(NAMES, IDS),
    st.frozensets(NAMES),
    st.dictionaries(NAMES, IDS),
    st.dictionaries(NAMES, st.builds(CountInterval, st.integers(0, 2**63), st.integers(0, 2**63))),
    st.dictionaries(NAMES, st.integers(0, 2**63)),
)
def test_an_offset_is_the_same_after_json(
    streams, added, plan, initial, start, unread, deleted, between, removed
) -> None:
    offset = Offset(streams, added, plan, initial, start, unread, deleted, between, removed)
    again = Offset.parse(json.loads(json.dumps(offset.json())))
    assert again == offset
    assert json.dumps(again.json()) == json.dumps(offset.json())


def test_offsets_of_the_first_version_are_understood() -> None:
    assert Offset.parse({"events": "5-1", "from": "2-0"}) == Offset(
        {"events": StreamID(5, 1)}, start={"events": StreamID(2, 0)}
    )
    assert Offset.parse({"streams": "5-1", "initial": True}) == Offset({"streams": StreamID(5, 1)}, initial=True)


@pytest.mark.parametrize("told", [{}, {"events": "soon"}, {"streams": {"a": None}}, {"streams": {}, "plan": [[["a"]]]}])
def test_an_invalid_offset_is_an_error_of_one_sentence(told: dict[str, object]) -> None:
    with pytest.raises(OffsetError, match="the checkpoint does not contain an offset of this source"):
        Offset.parse(told)


def test_successor_carries_into_the_milliseconds() -> None:
    assert successor(StreamID(1, MAX)) == StreamID(2, 0)
    assert number(StreamID(1, 2)) == (1 << 64) + 2
    assert identifier((1 << 64) + 2) == StreamID(1, 2)


# ---- the line ----


@settings(deadline=None)
@given(
    st.lists(st.tuples(IDS, IDS, st.floats(0, 1e9)), max_size=20),
    st.integers(1, 9),
)
def test_tasks_are_disjoint_and_cover_everything(ranges, parts: int) -> None:
    line_up = [(f"s{i}", min(a, b), max(a, b)) for i, (a, b, _) in enumerate(ranges)]
    stretches = line([weight for *_, weight in ranges], parts)
    cuts = [
        sorted(identifier(number(a) + (number(b) - number(a)) * i // 7) for i in range(len(stretch.cuts)))
        for (_, a, b), stretch in zip(line_up, stretches, strict=True)
    ]
    found = tasks(line_up, stretches, cuts)
    assert len(found) <= parts
    assert all(after < last for task in found for _, after, last in task)
    flat = [part for task in found for part in task]
    for stream, after, last in line_up:
        pieces = [part for part in flat if part[0] == stream]
        if after == last:
            assert not pieces
            continue
        assert (pieces[0][1], pieces[-1][2]) == (after, last)
        assert all(left[2] == right[1] for left, right in zip(pieces, pieces[1:], strict=False))


@pytest.mark.parametrize(
    "weights", [[1000.0], [1.0] * 1000, [900.0, *[1.0] * 100], [10.0, 500.0, 3.0, 480.0, 7.0], [1.0] * 8]
)
def test_a_line_is_cut_into_tasks_of_about_the_same_weight(weights: list[float]) -> None:
    stretches = line(weights, 8)
    sizes = [0.0]
    for weight, stretch in zip(weights, stretches, strict=True):
        for left, right in zip([0.0, *stretch.cuts], [*stretch.cuts, weight], strict=True):
            sizes[-1] += right - left
            if right != weight:
                sizes.append(0.0)
        if stretch.ends:
            sizes.append(0.0)
    assert len(sizes) == 8
    assert max(sizes) < 1.3 * min(sizes)


@given(st.lists(st.floats(1, 1e6), max_size=30), st.integers(1, 10_000))
def test_a_cap_is_shared_in_proportion_and_kept(waiting: list[float], cap: int) -> None:
    found = {f"s{i}": float(int(count)) for i, count in enumerate(waiting)}
    shares = capped(found, cap)
    total = sum(found.values())
    assert sum(shares.values()) == min(cap, total)
    assert all(1 <= shares[stream] <= found[stream] for stream in shares)
    if cap >= len(found):
        assert set(shares) == set(found)
        fair = {stream: count * cap / total for stream, count in found.items()}
        assert total <= cap or all(abs(shares[stream] - fair[stream]) <= len(found) + 1 for stream in found)
    else:
        assert list(shares) == list(found)[:cap]  # the first have waited longest


# ---- estimates ----


def estimated(
    entries: Sequence[StreamID],
    after: StreamID,
    last: StreamID,
    positions: Sequence[tuple[float, float]],
    looks: int = 4,
) -> Estimate:
    """Return what probes of a sorted list tell."""

    def look(bounds: Sequence[tuple[int, int]]) -> list[Probe]:
        seen = []
        for start, end in bounds:
            begin = bisect.bisect_right(entries, identifier(start))
            inside = [entry for entry in entries[begin : begin + PROBE] if number(entry) <= end]
            top = entries[max(bisect.bisect_right(entries, identifier(end)) - 1, 0)]
            seen.append(Probe(len(inside), inside[0], inside[-1], top) if inside else Probe(0, after, after))
        return seen

    made = Estimate(identifier(number(entries[0]) - 1), after, last, entries[-1], len(entries))
    asked = made.first_cells(48)
    made.add_probes(asked, look(asked))
    for _ in range(looks - 1):
        if asked := made.refine(positions, 8192):
            made.add_probes(asked, look(asked))
    return made


def shares_of(entries: Sequence[StreamID], parts: int) -> list[int]:
    low = identifier(number(entries[0]) - 1)
    share = len(entries) / parts
    made = estimated(entries, low, entries[-1], [(share * k, share / 2) for k in range(1, parts)])
    cuts = located(made.inside(), [made.count() * k / parts for k in range(1, parts)])
    bounds = [bisect.bisect_right(entries, cut) for cut in [low, *cuts, entries[-1]]]
    return [b - a for a, b in zip(bounds, bounds[1:], strict=False)]


@pytest.mark.parametrize(("sequences", "step"), covering([1, 5, 300], [1, 17, 1000]))
def test_shares_are_about_even(step: int, sequences: int) -> None:
    sizes = shares_of([StreamID(1000 + n // sequences * step, n % sequences) for n in range(60_000)], 4)
    assert max(sizes) < 1.3 * min(sizes)


def test_one_millisecond_is_shared_by_sequence() -> None:
    sizes = shares_of([StreamID(5, n) for n in range(40_000)], 4)
    assert max(sizes) < 1.3 * min(sizes)


def test_a_burst_in_a_quiet_year_is_shared() -> None:
    quiet = [StreamID(n * 1_000_000, 0) for n in range(1, 3000)]
    burst = [StreamID(1_500_000_000 + n * 50, 1) for n in range(200_000)]
    sizes = shares_of(sorted([*quiet, *burst]), 4)
    assert sum(sizes) == 202_999
    assert max(sizes) < 0.5 * sum(sizes)


def test_a_burst_between_the_probes_is_found() -> None:
    quiet = [StreamID(n * 1_000_000, 0) for n in range(1, 3000)]
    burst = [StreamID(1_480_000_000 + n * 100, 0) for n in range(100_000)]
    sizes = shares_of(sorted([*quiet, *burst]), 4)
    assert max(sizes) < 0.5 * sum(sizes)


REGULAR = {
    "even": [StreamID(1000 + 10 * n, 0) for n in range(50_000)],
    "one much later": [*(StreamID(1000 + 10 * n, 0) for n in range(50_000)), StreamID(2_592_000_000, 0)],
    "200 a second": [StreamID(1000 * (n // 200), n % 200) for n in range(200, 50_200)],
    "1000 a second": [StreamID(1000 * (n // 1000), n % 1000) for n in range(1000, 51_000)],
}


@pytest.mark.parametrize("name", REGULAR)
def test_a_cap_of_a_regular_stream_is_about_kept(name: str) -> None:
    entries = REGULAR[name]
    for begin in (0, 10_000, 23_456):
        for wanted in (5000, 10_000, 20_000):
            after = entries[begin - 1] if begin else identifier(number(entries[0]) - 1)
            made = estimated(entries, after, entries[-1], [(wanted, wanted / 16)], 6)
            (found,) = located(made.inside(), [wanted * made.count() / (len(entries) - begin)])
            taken = bisect.bisect_right(entries, found) - begin
            assert 0.9 * wanted <= taken <= 1.15 * wanted


@pytest.mark.parametrize("bursts", [1, *long(10, 100), 1000])
def test_a_place_is_found_by_its_number_of_entries(bursts: int) -> None:
    """Entries that come one by one, or a hundred at once: the length of the stream tells the scale."""
    entries = [StreamID(1000 + n // bursts * bursts, n % bursts) for n in range(300_000)]
    begin = 100_000
    for wanted in (10_000, 50_000, 150_000):
        made = estimated(entries, entries[begin - 1], entries[-1], [(wanted, wanted / 16)])
        assert 170_000 < made.count() < 230_000
        (found,) = located(made.inside(), [float(wanted)])
        taken = bisect.bisect_right(entries, found) - begin
        assert wanted * 0.75 < taken < wanted * 1.3
