"""A stream compared with a model, a dict of entries, and the corner cases that random operations seldom reach."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rillet.structs.listpack import Listpack
from rillet.types.stream.check import memory_by_structure
from rillet.types.stream.id import encode_key
from rillet.types.stream.stream import Stream, StreamIterator
from tests.variants import by_speed

MAX = (1 << 64) - 1
ID = tuple[int, int]
words_strategy = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"12", b""]), st.binary(max_size=90) | st.integers().map(lambda v: b"%d" % v)
    ),
    min_size=1,
    max_size=4,
).map(lambda pairs: [word for pair in pairs for word in pair])


def add(stream: Stream, ms: int, seq: int, *words: bytes) -> bool:
    """Append with Redis's default limits."""
    argv = list(words) or [b"f", b"v"]
    return stream.append(argv, 0, len(argv) // 2, ms, seq, 4096, 100)


def read(
    stream: Stream, start: ID = (0, 0), end: ID = (MAX, MAX), reverse: bool = False
) -> list[tuple[ID, list[bytes]]]:
    """Return the entries of a range."""
    it = StreamIterator(stream, *start, *end, reverse)
    found = []
    while it.next_entry():
        found.append(((it.ms, it.seq), it.fields()))
    assert not it.next_entry()
    return found


def ids(stream: Stream, **options: object) -> list[ID]:
    """Return the IDs of a range."""
    return [found for found, _ in read(stream, **options)]  # type: ignore[arg-type]


class StreamAndModel(RuleBasedStateMachine):
    """Random operations on a stream with small nodes, and on a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = Stream()
        self.model: dict[ID, list[bytes]] = {}
        self.last = (0, 0)
        self.added = 0
        self.max_deleted = (0, 0)

    @rule(words=words_strategy, ms=st.sampled_from([0, 1, 3, 1 << 40]), seq=st.sampled_from([0, 1, 9, 1 << 63]))
    def append(self, words: list[bytes], ms: int, seq: int) -> None:
        last_ms, last_seq = self.last
        new = (last_ms + ms, seq) if ms else (last_ms, last_seq + 1 + seq)
        if new <= self.last or max(new) > MAX:
            return
        assert self.stream.append([b"XADD", *words], 1, len(words) // 2, *new, 300, 5)
        self.model[new] = words
        self.last = new
        self.added += 1

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        victim = data.draw(st.sampled_from(list(self.model)))
        assert self.stream.delete(*victim)
        assert not self.stream.delete(*victim)
        del self.model[victim]
        self.max_deleted = max(self.max_deleted, victim)

    @rule(keep=st.integers(0, 30))
    def trim_to_length(self, keep: int) -> None:
        gone = sorted(self.model)[: max(0, len(self.model) - keep)]
        assert self.stream.trim_maxlen(keep, False, 0) == len(gone)
        for entry in gone:
            del self.model[entry]

    @rule(keep=st.integers(0, 30), limit=st.sampled_from([0, 3, 7]))
    def trim_approximately_to_length(self, keep: int, limit: int) -> None:
        before = len(self.model)
        deleted = self.stream.trim_maxlen(keep, True, limit)
        assert deleted <= max(0, before - keep)
        assert not limit or deleted <= limit
        for entry in sorted(self.model)[:deleted]:
            del self.model[entry]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), approx=st.booleans())
    def trim_to_id(self, data: st.DataObject, approx: bool) -> None:
        least = data.draw(st.sampled_from(list(self.model)))
        gone = sorted(entry for entry in self.model if entry < least)
        deleted = self.stream.trim_minid(*least, approx, 0)
        assert deleted <= len(gone) if approx else deleted == len(gone)
        for entry in gone[:deleted]:
            del self.model[entry]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def read_a_range(self, data: st.DataObject) -> None:
        some = st.sampled_from([*self.model, (0, 0), (MAX, MAX)])
        start, end = data.draw(some), data.draw(some)
        expected = [(entry, words) for entry, words in self.model.items() if start <= entry <= end]
        assert read(self.stream, start, end) == expected
        assert read(self.stream, start, end, True) == expected[::-1]
        assert self.stream.contains(*start) == (start in self.model)

    @rule(data=st.data(), reverse=st.booleans())
    def remove_while_iterating(self, data: st.DataObject, reverse: bool) -> None:
        it = StreamIterator(self.stream, 0, 0, MAX, MAX, reverse)
        removed = []
        while it.next_entry():
            if data.draw(st.integers(0, 3)) == 0:
                removed.append((it.ms, it.seq))
                it.remove_current()
        for entry in removed:
            del self.model[entry]
        # The iterator does not update the first ID; its caller does.
        first = min(self.model, default=(0, 0))
        self.stream.first_ms, self.stream.first_seq = first

    @invariant()
    def agrees(self) -> None:
        stream = self.stream
        stream.check()
        assert read(stream) == list(self.model.items())
        assert read(stream, reverse=True) == list(self.model.items())[::-1]
        assert stream.length == len(self.model)
        assert stream.entries_added == self.added
        assert (stream.last_ms, stream.last_seq) == self.last
        assert (stream.max_deleted_ms, stream.max_deleted_seq) == self.max_deleted
        assert stream.edge(True, True) == bool(self.model)
        assert (stream.edge_ms, stream.edge_seq) == min(self.model, default=(MAX, MAX))
        assert stream.edge(False, True) == bool(self.model)
        assert (stream.edge_ms, stream.edge_seq) == max(self.model, default=(0, 0))


TestStreamAndModel = pytest.mark.slow(StreamAndModel.TestCase)
TestStreamAndModel.settings = settings(max_examples=by_speed(30, 15, 40), stateful_step_count=40, deadline=None)


def test_the_greatest_ids_can_be_added_read_and_deleted() -> None:
    stream = Stream()
    assert add(stream, 0, 1)
    assert add(stream, 1, MAX)
    assert add(stream, MAX, MAX - 1)
    assert add(stream, MAX, MAX)
    assert ids(stream) == [(0, 1), (1, MAX), (MAX, MAX - 1), (MAX, MAX)]
    assert ids(stream, start=(MAX, MAX)) == [(MAX, MAX)] == ids(stream, start=(MAX, MAX), reverse=True)
    assert not stream.next_id(MAX)
    assert not stream.next_id(0)
    assert not stream.next_seq_of(MAX)
    stream.check()
    assert stream.delete(MAX, MAX)
    assert ids(stream, reverse=True) == [(MAX, MAX - 1), (1, MAX), (0, 1)]


def test_ids_increase_even_if_the_clock_is_set_back() -> None:
    stream = Stream()
    assert stream.next_id(0)
    assert (stream.next_ms, stream.next_seq) == (0, 1)
    add(stream, 1000, 5)
    assert stream.next_id(999)
    assert (stream.next_ms, stream.next_seq) == (1000, 6)
    assert stream.next_id(1000)
    assert (stream.next_ms, stream.next_seq) == (1000, 6)
    assert stream.next_id(1001)
    assert (stream.next_ms, stream.next_seq) == (1001, 0)
    add(stream, 1000, MAX)
    assert stream.next_id(7)
    assert (stream.next_ms, stream.next_seq) == (1001, 0)
    assert not stream.next_seq_of(1000)
    assert stream.next_seq_of(1002)
    assert (stream.next_ms, stream.next_seq) == (1002, 0)


def test_a_range_whose_start_is_after_its_end_is_empty() -> None:
    stream = Stream()
    for ms in range(1, 10):
        add(stream, ms, 0)
    assert ids(stream, start=(5, 0), end=(4, 0)) == ids(stream, start=(5, 0), end=(4, 0), reverse=True) == []
    assert ids(stream, start=(4, 1), end=(4, 9)) == ids(stream, start=(4, 1), end=(4, 9), reverse=True) == []


def test_an_id_that_is_not_greater_than_the_last_is_rejected() -> None:
    stream = Stream()
    with pytest.raises(ValueError, match="greater"):
        add(stream, 0, 0)
    add(stream, 5, 5)
    for wrong in [(5, 5), (5, 4), (4, 9)]:
        with pytest.raises(ValueError, match="greater"):
            add(stream, *wrong)
    assert stream.length == 1
    stream.check()


@pytest.mark.parametrize("words", [[b"f", None], [None, b"v"], [b"f", 3], [b"f"]])
def test_an_argument_of_a_wrong_type_is_rejected_before_the_stream_changes(words: list[bytes]) -> None:
    stream = Stream()
    add(stream, 1, 0)
    with pytest.raises((TypeError, IndexError)):
        stream.append(words, 0, 1, 2, 0, 4096, 100)
    assert stream.length == 1
    assert ids(stream) == [(1, 0)]
    stream.check()


def test_an_entry_of_more_than_a_gibibyte_is_rejected() -> None:
    stream = Stream()
    part = bytes(1 << 26)
    assert not stream.append([b"f", part] * 17, 0, 17, 1, 0, 4096, 100)
    assert stream.length == 0
    assert stream.node_count == 0
    assert stream.last_ms == 0


def test_full_nodes_have_no_spare_capacity() -> None:
    stream = Stream()
    for ms in range(1, 1000):
        add(stream, ms, 0, b"name", b"value-%d" % ms)
    nodes = [lp for _, lp in stream.rax.items()]
    assert len(nodes) == stream.node_count > 5
    for lp in nodes[:-1]:
        assert len(lp.buf) == lp.used <= 4096
    assert len(nodes[-1].buf) == 4096


def test_deleting_the_last_entry_of_a_node_removes_the_node() -> None:
    stream = Stream()
    for ms in range(1, 7):
        stream.append([b"f", b"v"], 0, 1, ms, 0, 4096, 2)
    assert stream.node_count == 3
    assert stream.delete(3, 0)
    assert stream.node_count == 3
    assert stream.delete(4, 0)
    assert stream.node_count == 2
    assert stream.delete(5, 0)
    assert stream.delete(6, 0)
    assert stream.node_count == 1
    stream.append([b"f", b"v"], 0, 1, 7, 0, 4096, 2)
    assert ids(stream) == [(1, 0), (2, 0), (7, 0)]
    stream.check()


def test_tombstones_are_skipped_unless_they_are_requested() -> None:
    stream = Stream()
    for ms in range(1, 6):
        add(stream, ms, 0)
    stream.delete(1, 0)
    stream.delete(5, 0)
    assert (stream.first_ms, stream.first_seq) == (2, 0)
    assert stream.edge(True, False)
    assert stream.edge_ms == 1
    assert stream.edge(False, False)
    assert stream.edge_ms == 5
    it = StreamIterator(stream, 0, 0, MAX, MAX, False)
    it.skip_tombstones = False
    seen = []
    while it.next_entry():
        seen.append(it.ms)
    assert seen == [1, 2, 3, 4, 5]


def test_an_iterator_need_not_read_all_fields_of_an_entry() -> None:
    stream = Stream()
    add(stream, 1, 0, b"a", b"1", b"b", b"2")
    add(stream, 2, 0, b"c", b"3", b"d", b"4", b"e", b"5")
    add(stream, 3, 0, b"a", b"6", b"b", b"7")
    it = StreamIterator(stream, 0, 0, MAX, MAX, False)
    assert it.next_entry()
    assert it.numfields == 2
    assert it.next_field()
    node = it.lp
    assert node is not None
    assert it.field_text
    assert bytes(node.buf[it.field_start : it.field_start + it.field_len]) == b"a"
    assert not it.value_text
    assert it.value_int == 1
    assert node.get(it.value_pos) == 1
    assert it.next_entry()
    assert it.numfields == 3
    assert it.next_field()
    assert it.next_field()
    assert node.get(it.field_pos) == b"d"
    assert it.value_int == 4
    assert it.next_entry()
    assert it.fields() == [b"a", b"6", b"b", b"7"]
    assert not it.next_field()
    assert not it.next_entry()
    assert not it.next_field()
    with pytest.raises(ValueError, match="not at an entry"):
        it.remove_current()


def test_an_iterator_returns_entries_that_were_appended_after_its_creation() -> None:
    stream = Stream()
    for ms in range(1, 4):
        stream.append([b"f", b"v"], 0, 1, ms, 0, 4096, 2)
    it = StreamIterator(stream, 0, 0, MAX, MAX, False)
    assert it.next_entry()
    for ms in range(4, 300):
        stream.append([b"f", b"v"], 0, 1, ms, 0, 4096, 2)
    rest = []
    while it.next_entry():
        rest.append(it.ms)
    assert rest == list(range(2, 300))


def test_a_loaded_node_accepts_new_entries() -> None:
    source, copy = Stream(), Stream()
    for ms in range(1, 151):
        add(source, ms, 0, b"name", b"%d" % ms)
    for key, lp in source.rax.items():
        assert copy.add_node(key, Listpack.from_bytes(lp.to_bytes(), False))
        assert not copy.add_node(key, lp)
    copy.length = copy.entries_added = source.length
    copy.last_ms, copy.first_ms = 150, 1
    copy.check()
    for stream in (source, copy):
        add(stream, 151, 0, b"name", b"x")
        assert stream.delete(151, 0)
        assert stream.delete(1, 0)
        stream.check()
    assert [lp.to_bytes() for _, lp in copy.rax.items()] == [lp.to_bytes() for _, lp in source.rax.items()]
    with pytest.raises(ValueError, match="16 bytes"):
        copy.add_node(b"short", Listpack())


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 3))
def test_memory_usage_estimates_from_a_sample_of_nodes(entries: int, per_node: int, samples: int) -> None:
    stream = Stream()
    for ms in range(1, entries + 1):
        stream.append([b"f", b"v"], 0, 1, ms, 0, 4096, per_node)
    whole = sum(len(lp.buf) for _, lp in stream.rax.items())
    tree = 16 * stream.rax.numele + 244 * stream.rax.numnodes
    exact, _ = memory_by_structure(stream, 0)
    assert sum(exact.values()) == 96 + whole + tree
    estimate, measured = memory_by_structure(stream, samples)
    assert measured == (min(samples, stream.rax.numele) if samples else stream.rax.numele)
    assert abs(sum(estimate.values()) - sum(exact.values())) <= whole


def test_check_detects_wrong_counters_and_nodes() -> None:
    stream = Stream()
    for ms in range(1, 5):
        add(stream, ms, 0)
    stream.check()
    stream.length = 3
    with pytest.raises(AssertionError, match="length"):
        stream.check()
    stream.length, stream.first_ms = 4, 2
    with pytest.raises(AssertionError, match="first_"):
        stream.check()
    stream.first_ms = 1
    assert stream.rax.find(encode_key(1, 0)).replace_int(6, 9) == 6
    with pytest.raises(AssertionError, match="valid"):
        stream.check()
