"""StreamFinder against looking every entry up for itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rillet.types.stream.entry_lookup import EntryLookup
from rillet.types.stream.value import Stream


def stream_of(ids: set[int], deleted: set[int]) -> Stream:
    """Return a stream of the entries n-1, some of them deleted, in nodes of three."""
    stream = Stream()
    for ms in sorted(ids):
        stream.append([b"n", b"%d" % ms], 0, 1, ms, 1, 4096, 3)
    for ms in deleted & ids:
        stream.delete(ms, 1)
    return stream


NUMBERS = st.integers(1, 60)


@given(st.sets(NUMBERS), st.sets(NUMBERS), st.lists(st.tuples(NUMBERS, st.integers(0, 2)), max_size=60))
def test_any_order(ids: set[int], deleted: set[int], asked: list[tuple[int, int]]) -> None:
    """Whatever was asked before, an entry is found where it is, and its fields are all there."""
    stream = stream_of(ids, deleted)
    finder = EntryLookup(stream)
    for ms, seq in asked:
        found = finder.find(ms, seq)
        assert found == stream.contains(ms, seq) == (seq == 1 and ms in ids - deleted)
        if found:
            assert (finder.entries.ms, finder.entries.seq) == (ms, seq)
            assert finder.entries.fields() == [b"n", b"%d" % ms]


@given(st.sets(NUMBERS), st.lists(NUMBERS, max_size=40))
def test_rising_order(ids: set[int], asked: list[int]) -> None:
    """As pending entries are asked for."""
    stream = stream_of(ids, set())
    finder = EntryLookup(stream)
    assert [ms for ms in sorted(asked) if finder.find(ms, 1)] == [ms for ms in sorted(asked) if ms in ids]
