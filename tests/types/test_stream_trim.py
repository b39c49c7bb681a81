"""Trims with a delete strategy: the removed entries, the removed references, and the end of the trim."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.types.stream.stream import ACKED, DELREF, KEEPREF, Stream, StreamIterator

MAX = (1 << 64) - 1
ENTRIES_OF_A_NODE = 3


@dataclass(frozen=True)
class Plan:
    """A stream of entries 1-0 to count-0, some deleted, and its groups: last delivered ID and pending entries."""

    count: int
    deleted: frozenset[int]
    groups: tuple[tuple[int, frozenset[int]], ...]

    def build(self) -> Stream:
        stream = Stream()
        for ms in range(1, self.count + 1):
            assert stream.append([b"f", b"v"], 0, 1, ms, 0, 4096, ENTRIES_OF_A_NODE)
        for ms in sorted(self.deleted):
            stream.delete(ms, 0)
        for number, (last, pending) in enumerate(self.groups):
            group = stream.create_group(b"g%d" % number, last, 0, -1)
            consumer = group.create_consumer(b"c", 0)
            for ms in sorted(pending):
                group.deliver(ms, 0, consumer, 0)
        return stream

    def living(self) -> list[int]:
        return [ms for ms in range(1, self.count + 1) if ms not in self.deleted]

    def referenced(self, ms: int) -> bool:
        return any(ms > last or ms in pending for last, pending in self.groups)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    count = draw(st.integers(1, 14))
    some = st.frozensets(st.integers(1, count))
    reached = st.integers(0, count) | st.just(count)
    groups = draw(st.lists(st.tuples(reached, some), max_size=3))
    return Plan(count, draw(some), tuple((last, pending) for last, pending in groups))


def ids(stream: Stream) -> list[int]:
    """Return the milliseconds of the entries that are not deleted."""
    it = StreamIterator(stream, 0, 0, MAX, MAX, False)
    found = []
    while it.next_entry():
        found.append(it.ms)
    return found


def nodes(stream: Stream) -> list[tuple[bytes, bytes]]:
    """Return the bytes of all nodes, with tombstones."""
    return [(key, bytes(lp.buf[: lp.used])) for key, lp in stream.rax.items()]


def pending(stream: Stream) -> list[set[int]]:
    """Return the pending entries of each group."""
    return [
        {ms for ms in range(1, 15) if group.find(ms, 0) >= 0} for _, group in sorted(stream.groups.items())
    ]


@given(plans(), st.integers(0, 15), st.booleans(), st.booleans())
def test_delref_removes_the_oldest_and_their_references(plan: Plan, threshold: int, by_id: bool, approx: bool) -> None:
    """DELREF removes as many as an exact trim, with or without `~`; remaining entries keep their references."""
    stream = plan.build()
    living = plan.living()
    gone = [ms for ms in living if ms < threshold] if by_id else living[: max(0, len(living) - threshold)]
    trim = stream.trim_minid(threshold, 0, approx, 0, DELREF) if by_id else (
        stream.trim_maxlen(threshold, approx, 0, DELREF)
    )
    assert trim == len(gone)
    assert ids(stream) == living[len(gone) :]
    assert pending(stream) == [set(owned) - set(gone) for _, owned in plan.groups]
    stream.check()


@given(plans(), st.integers(0, 15), st.booleans())
def test_acked_with_minid_removes_unreferenced_entries(plan: Plan, threshold: int, approx: bool) -> None:
    """Referenced entries stay, wherever they are."""
    stream = plan.build()
    kept = [ms for ms in plan.living() if ms >= threshold or plan.referenced(ms)]
    assert stream.trim_minid(threshold, 0, approx, 0, ACKED) == len(plan.living()) - len(kept)
    assert ids(stream) == kept
    assert pending(stream) == [set(owned) for _, owned in plan.groups]
    assert (stream.first_ms, stream.max_deleted_ms) == (min(kept, default=0), max(plan.deleted, default=0))
    stream.check()


@given(plans(), st.integers(0, 15), st.booleans())
def test_acked_with_maxlen_removes_the_oldest_unreferenced_entries(plan: Plan, keep: int, approx: bool) -> None:
    """It never removes more entries than exceed the length."""
    stream = plan.build()
    living = plan.living()
    free = [ms for ms in living if not plan.referenced(ms)]
    deleted = stream.trim_maxlen(keep, approx, 0, ACKED)
    assert deleted <= min(len(free), max(0, len(living) - keep))
    assert ids(stream) == [ms for ms in living if ms not in free[:deleted]]
    if not plan.groups:
        assert deleted == max(0, len(living) - keep)
    stream.check()


@given(
    plans(), st.integers(0, 15), st.booleans(), st.sampled_from([0, 1, 3, 4, 7]), st.sampled_from([DELREF, ACKED])
)
def test_a_limited_trim_equals_an_exact_trim_up_to_stop(
    plan: Plan, threshold: int, by_id: bool, limit: int, strategy: int
) -> None:
    """If the limit ended a trim, an exact trim up to the ID `stop` leaves the same bytes."""
    stream, other = plan.build(), plan.build()
    if by_id:
        deleted = stream.trim_minid(threshold, 0, True, limit, strategy)
    else:
        deleted = stream.trim_maxlen(threshold, True, limit, strategy)
    assert not limit or deleted <= limit
    if stream.stopped:
        assert other.trim_minid(stream.stop_ms, stream.stop_seq, False, 0, strategy) == deleted
    elif by_id:
        assert other.trim_minid(threshold, 0, False, 0, strategy) == deleted
    else:
        assert other.trim_maxlen(threshold, False, 0, strategy) == deleted
    assert nodes(stream) == nodes(other)
    assert pending(stream) == pending(other)


def test_a_node_with_a_pending_entry_does_not_end_an_acked_trim() -> None:
    """A pending entry in the first node stays, and the trim continues with the next node."""
    plan = Plan(9, frozenset(), ((9, frozenset({2})),))
    for approx in (False, True):
        stream = plan.build()
        assert stream.trim_maxlen(3, approx, 0, ACKED) == 6
        assert ids(stream) == [2, 8, 9]
        assert stream.node_count == 2
        stream = plan.build()
        assert stream.trim_maxlen(3, approx, 0, KEEPREF) == 6
        assert ids(stream) == [7, 8, 9]
        assert stream.node_count == 1


def test_a_node_that_cannot_be_removed_as_a_whole_ends_the_trim() -> None:
    """The trim ends at the node without which the stream would be too short, as in Redis's streamTrim."""
    plan = Plan(9, frozenset(), ((9, frozenset({1, 2, 3})),))
    stream = plan.build()
    assert stream.trim_maxlen(7, False, 0, ACKED) == 0  # the second node has two entries too many
    assert stream.trim_maxlen(6, False, 0, ACKED) == 3


def test_a_trim_with_a_strategy_removes_a_node_of_tombstones() -> None:
    """An exact MINID trim leaves such a node; a later trim removes it."""
    for strategy in (KEEPREF, DELREF, ACKED):
        stream = Plan(3, frozenset(), ()).build()
        stream.append([b"f", b"v"], 0, 1, 9, 0, 4096, ENTRIES_OF_A_NODE)
        stream.trim_minid(3, 0, False, 0, DELREF)
        stream.append([b"f", b"v"], 0, 1, 10, 0, 4096, 2)
        assert stream.delete(3, 0)
        assert stream.trim_minid(5, 0, True, 0, strategy) == 0
        assert [key for key, _ in nodes(stream)] == [(9).to_bytes(8, "big") + bytes(8)]


@pytest.mark.parametrize("strategy", [DELREF, ACKED])
def test_the_limit_counts_the_entries_of_a_node_that_are_not_deleted(strategy: int) -> None:
    """A node is kept if its entries would exceed the limit."""
    stream = Plan(9, frozenset({1}), ((9, frozenset()),)).build()
    assert stream.trim_maxlen(0, True, 4, strategy) == 2
    assert stream.stopped
    assert (stream.stop_ms, stream.stop_seq) == (4, 0)
    assert stream.trim_maxlen(8, True, 4, strategy) == 0
    assert not stream.stopped


def _is_referenced(stream: Stream, ms: int, seq: int) -> bool:
    stream.find_unread()
    return stream.is_held(ms, seq)


def test_an_entry_is_referenced_if_any_group_needs_it() -> None:
    """A group needs an entry that is pending in it or that it has not read; dropping removes all references."""
    stream = Plan(4, frozenset(), ((4, frozenset({1, 2})), (2, frozenset({2})))).build()
    assert [_is_referenced(stream, ms, 0) for ms in (1, 2, 3, 4, 9)] == [True] * 5
    stream.groups[b"g1"].set_id(4, 0, -1)
    assert [_is_referenced(stream, ms, 0) for ms in (1, 2, 3, 4, 9)] == [True, True, False, False, True]
    assert [stream.drop_references(ms, 0) for ms in (2, 2, 3)] == [2, 0, 0]
    assert pending(stream) == [{1}, set()]
    stream.destroy_group(b"g0")
    assert not _is_referenced(stream, 1, 0)
    assert _is_referenced(stream, 9, 0)
    stream.destroy_group(b"g1")
    assert not _is_referenced(stream, 9, 0)
