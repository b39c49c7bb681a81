"""Entries into the columns of a batch: by names, by shapes, begun again, with every mode and source."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns import column as kinds  # noqa: E402
from rillet.columns import row_builder  # noqa: E402
from rillet.columns.row_builder import (  # noqa: E402
    DROPMALFORMED,
    FAILFAST,
    MOST_FIELDS,
    PERMISSIVE,
    BadValue,
    RowBuilder,
    TooManyFields,
)
from tests.columns.model import FIELDS, NAMES, U64, VALUES, signed, text  # noqa: E402
from tests.columns.test_column import array_of  # noqa: E402
from tests.variants import long_interpreted  # noqa: E402

Value = bytes | int
Fields = list[tuple[bytes, Value]]
INT64 = st.integers(-(2**63), 2**63 - 1)
MIXED = st.lists(st.tuples(NAMES, st.one_of(VALUES, INT64)), max_size=8)


def word(value: Value) -> bytes:
    return b"%d" % value if isinstance(value, int) else value


def feed_by_name(rows: RowBuilder, fields: Fields, ms: int = 1, seq: int = 1) -> bool:
    """Give an entry field by field; the texts lie one after the other in one buffer."""
    buf = bytearray()
    rows.begin(ms, seq)
    spans = []
    for name, value in fields:
        start = len(buf)
        buf += name + word(value)
        spans.append((start, len(name), value))
    for start, size, value in spans:
        rows.name(buf, start, size)
        if isinstance(value, int):
            rows.number(value)
        else:
            rows.text(buf, start + size, len(value))
    return rows.finish(buf)


def set_slot(rows: RowBuilder, slot: Any, buf: bytearray, at: int, value: Value) -> None:
    """Set the value of a slot, as the decoders do: in the registers of its column, and in the map."""
    if rows.items is not None:
        if isinstance(value, int):
            rows.items.put_number(value)
        else:
            rows.items.put(buf, at, len(value))
    if slot.owner is not None:
        if isinstance(value, int):
            slot.owner.number = value
            slot.owner.size = kinds.NUMBER
        else:
            slot.owner.start = at
            slot.owner.size = len(value)


def feed_by_shape(rows: RowBuilder, fields: Fields, ms: int = 1, seq: int = 1) -> bool:
    """Give an entry through its shape."""
    buf = bytearray(b"".join(word(value) for _, value in fields))
    shape = rows.shape_of([name for name, _ in fields])
    rows.begin_as(shape, ms, seq)
    slot, at = shape.first, 0
    for _, value in fields:
        set_slot(rows, slot, buf, at, value)
        at += len(word(value))
        slot = slot.next
    assert slot is None
    return rows.finish(buf)


FEEDS = pytest.mark.parametrize("feed", [feed_by_name, feed_by_shape])


def with_columns(mode: int = PERMISSIVE, map_kind: int | None = kinds.BINARY) -> RowBuilder:
    rows = RowBuilder(b"events", mode)
    rows.add_field(b"user", kinds.BINARY)
    rows.add_field(b"n", kinds.LONG)
    if map_kind is not None:
        rows.add_map(map_kind)
    return rows


def maps_of(rows: RowBuilder) -> list[dict[bytes, bytes]]:
    """Return the pairs of every row's map."""
    ends = [0, *memoryview(bytes(rows.map_ends.data[: 4 * rows.length])).cast("i").tolist()]
    return [{rows.keys.value(j): rows.items.value(j) for j in range(ends[i], ends[i + 1])} for i in range(rows.length)]


def pairs_of(fields: Fields) -> dict[bytes, bytes]:
    return {text(name).encode(): word(value) for name, value in fields}


# ---- names and shapes ----------------------------------------------------------------------------------------------


@FEEDS
@given(entries=st.lists(MIXED, max_size=12))
def test_the_last_of_equal_fields_wins_in_columns_and_maps(feed: Any, entries: list[Fields]) -> None:
    rows = with_columns()
    for fields in entries:
        assert feed(rows, fields)
    assert maps_of(rows) == [pairs_of(fields) for fields in entries]
    users = [dict(fields).get(b"user") for fields in entries]
    assert array_of(rows.columns[0]).to_pylist() == [None if user is None else word(user) for user in users]


@given(st.lists(MIXED, max_size=10), st.data())
def test_names_and_shapes_give_the_same_rows(entries: list[Fields], data: st.DataObject) -> None:
    one, other = with_columns(), with_columns()
    for number, fields in enumerate(entries):
        feed_by_name(one, fields, number, number)
        data.draw(st.sampled_from([feed_by_name, feed_by_shape]))(other, fields, number, number)
    assert (one.length, maps_of(one)) == (other.length, maps_of(other))
    assert [column.take_buffers() for column in one.columns] == [column.take_buffers() for column in other.columns]


@FEEDS
@given(entries=st.lists(MIXED.filter(len), min_size=1, max_size=6), cut=st.integers(0, 7), by_shape=st.booleans())
def test_an_entry_that_is_begun_again_leaves_nothing(
    feed: Any, entries: list[Fields], cut: int, by_shape: bool
) -> None:
    rows = with_columns()
    for fields in entries:
        buf = bytearray(b"nuser junk")
        if by_shape:  # half of an entry, by its shape
            shape = rows.shape_of([b"user", b"n"])
            rows.begin_as(shape, 9, 9)
            set_slot(rows, shape.first, buf, 0, bytes(buf))
        else:  # half of an entry, by its names
            rows.begin(9, 9)
            for _ in range(cut):
                rows.name(buf, 1, 4)
                rows.text(buf, 5, 5)
        feed(rows, fields)
    assert maps_of(rows) == [pairs_of(fields) for fields in entries]
    assert rows.columns[0].length == rows.length == len(entries)


@FEEDS
def test_a_missing_field_is_null_after_an_entry_that_had_it(feed: Any) -> None:
    rows = with_columns()
    for fields in ([(b"user", b"ada"), (b"n", 7)], [], [(b"n", b"8")], [(b"other", b"x")]):
        assert feed(rows, fields)
    assert array_of(rows.columns[0]).to_pylist() == [b"ada", None, None, None]
    assert array_of(rows.columns[1]).to_pylist() == [7, None, 8, None]


@pytest.mark.parametrize("count", [1, 255, 256, 257, 400])
@FEEDS
def test_entries_of_hundreds_of_fields_keep_the_last_of_equal_names(feed: Any, count: int) -> None:
    """A batch remembers the names of 256 positions; behind them every entry is searched for equal names."""
    rows = with_columns()
    fields: Fields = [(b"f%d" % i, i) for i in range(count)]
    for entry in (fields, [*fields, fields[0]], fields[::-1], [*fields, (b"f0", b"again")]):
        feed(rows, entry)
    expected = [fields, fields, fields, [*fields[1:], (b"f0", b"again")]]
    assert maps_of(rows) == [pairs_of(entry) for entry in expected]


def test_shapes_are_remembered_up_to_a_number_and_stay_usable_beyond() -> None:
    rows = with_columns()
    first = rows.shape_of([b"user", b"n"])
    assert rows.shape_of([b"user", b"n"]) is first
    for number in range(200):
        assert rows.shape_of([b"%d" % number]).count == 1
    assert len(rows.shapes) <= 64
    rows.begin_as(first, 1, 1)
    set_slot(rows, first.first, bytearray(b"ada"), 0, b"ada")
    set_slot(rows, first.first.next, bytearray(), 0, 5)
    rows.finish(bytearray(b"ada"))
    assert maps_of(rows) == [{b"user": b"ada", b"n": b"5"}]


@given(st.lists(NAMES, max_size=6))
def test_a_shape_holds_what_lies_between_two_values_of_a_reply(names: list[bytes]) -> None:
    shape = RowBuilder(b"k").shape_of(names)
    slot, parts = shape.first, []
    while slot is not None:
        parts.append(slot.literal)
        assert slot.size == len(slot.literal)
        slot = slot.next
    expected = b"\r\n*%d" % (2 * len(names)) if names else b""
    expected += b"".join(b"\r\n$%d\r\n%b\r\n$" % (len(name), name) for name in names)
    assert b"".join(parts) == expected
    assert shape.unique == (len({text(name) for name in names}) == len(names))
    assert shape.count == len(names)


def test_a_shape_whose_values_are_missing_is_an_error() -> None:
    rows = with_columns()
    rows.begin_as(rows.shape_of([b"user"]), 1, 1)
    with pytest.raises(AssertionError, match="shape"):
        rows.finish(bytearray())


@pytest.mark.parametrize(("start", "size"), [(-1, 1), (0, 5), (4, 1), (5, 0), (2**62, 2**62)])
def test_names_and_texts_outside_their_buffer_are_an_index_error(start: int, size: int) -> None:
    rows, buf = with_columns(), bytearray(b"user")
    rows.begin(1, 1)
    with pytest.raises(IndexError):
        rows.name(buf, start, size)
    rows.begin(1, 1)
    rows.name(buf, 0, 4)
    with pytest.raises(IndexError):
        rows.text(buf, start, size)
    lazy = with_columns(map_kind=None)  # without a map the text is read by `finish`
    lazy.begin(1, 1)
    lazy.name(buf, 0, 4)
    if size >= 0:
        lazy.text(buf, start, size)
        with pytest.raises(IndexError):
            lazy.finish(buf)


# ---- the entry's own columns ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(U64, U64), max_size=30))
@example([(0, 0), (9999, 0), (10000, 1), (10000, 9), (10001, 10), (19999, 2**64 - 1), (20000, 0), (2**64 - 1, 0)])
@example([(1526919030474, 0), (1526919030475, 1), (1526919040474, 0), (7, 7), (1526919040474, 3)])
def test_the_columns_of_an_id_are_the_id(ids: list[tuple[int, int]]) -> None:
    rows = RowBuilder(b"k\xff")
    for source in (row_builder.ID, row_builder.ID_MS, row_builder.ID_SEQ, row_builder.ID_TIME, row_builder.STREAM):
        rows.add_source(source)
    for ms, seq in ids:
        feed_by_name(rows, [], ms, seq)
    shown, high, low, moment, stream = (array_of(column) for column in rows.columns)
    assert shown.to_pylist() == [f"{ms}-{seq}" for ms, seq in ids]
    assert high.to_pylist() == [signed(ms) for ms, _ in ids]
    assert low.to_pylist() == [signed(seq) for _, seq in ids]
    assert moment.cast(pa.int64()).to_pylist() == [ms * 1000 if ms * 1000 < 2**63 else None for ms, _ in ids]
    assert stream.to_pylist() == ["k\ufffd"] * len(ids)


# ---- adding columns ------------------------------------------------------------------------------------------------


def test_a_field_has_one_column_and_a_batch_one_map() -> None:
    rows = with_columns()
    with pytest.raises(ValueError, match="two columns take the field 'n'"):
        rows.add_field(b"n", kinds.STRING)
    with pytest.raises(ValueError, match="already has a map column"):
        rows.add_map(kinds.STRING)
    with pytest.raises(ValueError, match="STRING or BINARY"):
        RowBuilder(b"k").add_map(kinds.LONG)


@FEEDS
def test_discovered_fields_are_null_in_the_rows_before(feed: Any) -> None:
    rows = RowBuilder(b"k")
    rows.discovers = True
    for fields in ([(b"a", b"1")], [(b"b", b"2"), (b"a", 3)], [], [(b"c", b"\xff")]):
        feed(rows, fields)
    assert [column.name for column in rows.columns] == [b"a", b"b", b"c"]
    result = [array_of(column).to_pylist() for column in rows.columns]
    assert result == [["1", "3", None, None], [None, "2", None, None], [None, None, None, "\ufffd"]]


@long_interpreted
@FEEDS
def test_too_many_discovered_fields_are_an_error(feed: Any) -> None:
    rows = RowBuilder(b"k")
    rows.discovers = True
    for number in range(MOST_FIELDS):
        feed(rows, [(b"f%d" % number, b"x")])
    with pytest.raises(TooManyFields, match="1,000"):
        feed(rows, [(b"one more", b"x")])
    assert len(rows.columns) == MOST_FIELDS


# ---- modes ---------------------------------------------------------------------------------------------------------

BAD = st.lists(st.tuples(st.sampled_from([b"7", b"x", b""]), st.booleans()), max_size=30)


@FEEDS
@given(entries=BAD)
def test_permissive_keeps_dropmalformed_drops_and_both_leave_whole_columns(
    feed: Any, entries: list[tuple[bytes, bool]]
) -> None:
    kept, dropped = with_columns(PERMISSIVE), with_columns(DROPMALFORMED)
    for rows in (kept, dropped):
        for value, has_user in entries:
            fields: Fields = [(b"n", value), *([(b"user", b"ada")] if has_user else [])]
            assert feed(rows, fields)
            assert not rows.parser.bad
    good = [(value, has_user) for value, has_user in entries if value == b"7"]
    assert (kept.length, dropped.length) == (len(entries), len(good))
    assert maps_of(dropped) == [pairs_of([(b"n", b"7"), *([(b"user", b"ada")] if user else [])]) for _, user in good]
    assert array_of(kept.columns[1]).to_pylist() == [7 if value == b"7" else None for value, _ in entries]
    assert array_of(dropped.columns[1]).to_pylist() == [7] * len(good)
    assert array_of(dropped.columns[0]).to_pylist() == [b"ada" if user else None for _, user in good]


@FEEDS
@given(fields=FIELDS)
def test_the_corrupt_column_shows_all_fields_of_an_entry_with_a_bad_value(
    feed: Any, fields: list[tuple[bytes, bytes]]
) -> None:
    rows = RowBuilder(b"k", PERMISSIVE)
    rows.add_field(b"bad", kinds.LONG)
    rows.add_corrupt()
    entry: Fields = [*fields, (b"bad", b"x")]
    assert feed(rows, [*fields, (b"bad", 1)])
    assert not feed(rows, entry)
    rows.malformed([(name, word(value)) for name, value in entry])
    sound, corrupt = array_of(rows.columns[1]).to_pylist()
    assert sound is None
    assert json.loads(corrupt) == {text(name): text(word(value)) for name, value in entry}


@FEEDS
@pytest.mark.parametrize(
    ("kind", "value", "shown", "label"),
    [
        (kinds.LONG, b"x", "'x'", "bigint"),
        (kinds.INT, 2**31, "2147483648", "int"),
        (kinds.BYTE, b"-129", "'-129'", "tinyint"),
        (kinds.BOOLEAN, 2, "2", "boolean"),
        (kinds.DATE, 20130101, "20130101", "date"),
        (kinds.TIMESTAMP, b"2013-02-30", "'2013-02-30'", "timestamp"),
        (kinds.DOUBLE, b"y" * 200, "'" + "y" * 100 + "'...", "double"),
        (kinds.STRING, b"a\xff", "'a\ufffd'", "string"),
    ],
)
def test_failfast_names_the_entry_the_field_the_value_and_the_type(
    feed: Any, kind: int, value: Value, shown: str, label: str
) -> None:
    rows = RowBuilder(b"events", FAILFAST)
    rows.add_source(row_builder.ID)
    rows.add_field(b"f", kind)
    with pytest.raises(BadValue) as caught:
        feed(rows, [(b"other", b"\xff"), (b"f", value)], 15, 2)
    message = str(caught.value)
    for part in ("'events'", "15-2", "the field 'f'", label, shown, "FAILFAST"):
        assert part in message


def test_clear_begins_the_next_batch_with_what_was_learned() -> None:
    rows = with_columns()
    for _ in range(3):
        feed_by_name(rows, [(b"user", b"ada"), (b"n", 1)])
    taken = [column.take_buffers()[0] for column in (*rows.columns, rows.keys, rows.items)]
    assert taken == [3, 3, 3, 6, 6]
    rows.clear()
    assert (rows.length, rows.nbytes) == (0, 0)
    assert rows.pattern == [b"user", b"n"]
    feed_by_name(rows, [(b"n", b"2")])
    assert maps_of(rows) == [{b"n": b"2"}]


def test_a_batch_of_an_inferred_type_gives_up_at_the_first_other_text() -> None:
    rows = RowBuilder(b"k")
    rows.add_field(b"n", kinds.STRING).be_plain(kinds.WHOLE)
    for value in (b"1", b"", 7, b"-3"):
        assert feed_by_name(rows, [(b"n", value)])
    assert rows.columns[0].kind == kinds.WHOLE
    assert feed_by_name(rows, [(b"n", b"0.5")])
    assert rows.columns[0].kind == kinds.REAL
    with pytest.raises(kinds.NotPlain):
        feed_by_name(rows, [(b"n", b"half")])
    assert rows.columns[0].length == 5
    assert array_of(rows.columns[0]).to_pylist() == [1.0, None, 7.0, -3.0, 0.5]


@FEEDS
@pytest.mark.parametrize("mode", [PERMISSIVE, DROPMALFORMED])
def test_invalid_utf8_is_a_bad_value_only_in_failfast(feed: Any, mode: int) -> None:
    rows = RowBuilder(b"k", mode)
    rows.add_field(b"s", kinds.STRING)
    rows.add_map(kinds.STRING)
    assert feed(rows, [(b"s", b"a\xffb"), (b"\xfe", b"\xc3")])
    assert array_of(rows.columns[0]).to_pylist() == ["a\ufffdb"]
    assert maps_of(rows) == [{b"s": "a\ufffdb".encode(), "\ufffd".encode(): "\ufffd".encode()}]
    strict = RowBuilder(b"k", FAILFAST)
    strict.add_map(kinds.STRING)
    with pytest.raises(BadValue, match="in the column 'fields'"):
        feed(strict, [(b"ok", b"\xc3")])
