"""EntryLookup compared with a separate lookup of every entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rillet.types.stream.entry_lookup import EntryLookup
from rillet.types.stream.stream import Stream


def stream_of(ids: set[int], deleted: set[int]) -> Stream:
    """Return a stream of the entries n-1 in nodes of three; some entries are deleted."""
    stream = Stream()
    for ms in sorted(ids):
        stream.append([b"n", b"%d" % ms], 0, 1, ms, 1, 4096, 3)
    for ms in deleted & ids:
        stream.delete(ms, 1)
    return stream


NUMBERS = st.integers(1, 60)


@given(st.sets(NUMBERS), st.sets(NUMBERS), st.lists(st.tuples(NUMBERS, st.integers(0, 2)), max_size=60))
def test_entries_are_found_in_any_order(ids: set[int], deleted: set[int], asked: list[tuple[int, int]]) -> None:
    """An entry is found with all its fields, whatever lookups precede it."""
    stream = stream_of(ids, deleted)
    finder = EntryLookup(stream)
    for ms, seq in asked:
        found = finder.find(ms, seq)
        assert found == stream.contains(ms, seq) == (seq == 1 and ms in ids - deleted)
        if found:
            assert (finder.entries.ms, finder.entries.seq) == (ms, seq)
            assert finder.entries.fields() == [b"n", b"%d" % ms]


@given(st.sets(NUMBERS), st.lists(NUMBERS, max_size=40))
def test_entries_are_found_in_ascending_order(ids: set[int], asked: list[int]) -> None:
    """Commands look pending entries up in this order."""
    stream = stream_of(ids, set())
    finder = EntryLookup(stream)
    assert [ms for ms in sorted(asked) if finder.find(ms, 1)] == [ms for ms in sorted(asked) if ms in ids]
