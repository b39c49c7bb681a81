"""One column under construction: its buffers against the values that pyarrow reads from them."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns import column as kinds  # noqa: E402
from rillet.columns.column import LABELS, WIDTHS, Column, NotPlain  # noqa: E402
from rillet.columns.row_builder import FIELD  # noqa: E402
from rillet.columns.value_parsing import ValueParser  # noqa: E402

TYPES: dict[int, Any] = {
    kinds.STRING: pa.string(), kinds.BINARY: pa.binary(), kinds.BOOLEAN: pa.bool_(), kinds.BYTE: pa.int8(),
    kinds.SHORT: pa.int16(), kinds.INT: pa.int32(), kinds.LONG: pa.int64(), kinds.FLOAT: pa.float32(),
    kinds.DOUBLE: pa.float64(), kinds.TIMESTAMP: pa.timestamp("us", tz="UTC"), kinds.DATE: pa.date32(),
    kinds.DECIMAL: pa.decimal128(38, 10), kinds.WHOLE: pa.int64(), kinds.REAL: pa.float64(),
}  # fmt: skip
INTEGERS = {kinds.BYTE: 8, kinds.SHORT: 16, kinds.INT: 32, kinds.LONG: 64}
INT64 = st.integers(-(2**63), 2**63 - 1)
WHOLE_TEXTS = INT64.map(b"%d".__mod__)
SAFE = st.floats(-1e299, 1e299).filter(lambda value: value == 0 or abs(value) > 1e-299)  # not near a double's limits
REAL_TEXTS = st.one_of(WHOLE_TEXTS, SAFE.map(lambda value: repr(value).encode()))


def new(kind: int, strict: bool = False) -> Column:
    """Return an empty column of a kind; decimals have the precision and scale of TYPES."""
    column = Column(b"f", FIELD, kinds.STRING if kind >= kinds.WHOLE else kind, ValueParser())
    if kind >= kinds.WHOLE:
        column.be_plain(kind)
    if kind == kinds.DECIMAL:
        column.be_decimal(38, 10)
    column.strict = strict
    return column


def array_of(column: Column) -> Any:
    """Take the column as a pyarrow array, which pyarrow validates."""
    kind = TYPES[column.kind]
    length, nulls, *buffers = column.take_buffers()
    if buffers[1] is None:
        del buffers[1]
    array = pa.Array.from_buffers(kind, length, [None if b is None else pa.py_buffer(b) for b in buffers], nulls)
    array.validate(full=True)
    assert array.is_null().to_pylist().count(True) == nulls
    return array


def put(column: Column, text: bytes | None, lead: bytes = b"9", tail: bytes = b"9") -> None:
    """Append a text that lies between other bytes, or a null."""
    if text is None:
        column.put_null()
    else:
        column.put(bytearray(lead + text + tail), len(lead), len(text))


# ---- strings -------------------------------------------------------------------------------------------------------

TEXTS = st.lists(st.one_of(st.none(), st.binary(max_size=40), st.text(max_size=20).map(str.encode)), max_size=60)


@given(TEXTS)
def test_a_string_column_replaces_bytes_that_are_not_utf8(texts: list[bytes | None]) -> None:
    column = new(kinds.STRING)
    for text in texts:
        put(column, text)
    expected = [None if text is None else text.decode("utf-8", "replace") for text in texts]
    assert array_of(column).to_pylist() == expected


@given(TEXTS)
def test_a_binary_column_keeps_every_byte(texts: list[bytes | None]) -> None:
    column = new(kinds.BINARY)
    for text in texts:
        put(column, text)
    assert array_of(column).to_pylist() == texts


@given(st.binary(max_size=12), st.binary(max_size=20), st.binary(max_size=20))
def test_bytes_around_a_text_do_not_change_it(text: bytes, lead: bytes, tail: bytes) -> None:
    """Short texts are copied as 16 bytes where the buffer has them, and as they are at its end."""
    column = new(kinds.STRING)
    put(column, text, lead, tail)
    put(column, text, lead, b"")
    expected = text.decode("utf-8", "replace")
    assert array_of(column).to_pylist() == [expected, expected]


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1000])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_one_byte_beyond_ascii_is_found_wherever_it_lies(size: int, place: str) -> None:
    for tail in (b"", b"\xc3" * 20, b"a" * 20):
        column = new(kinds.STRING)
        text = bytearray(b"a" * size)
        if size:
            text[{"first": 0, "middle": size // 2, "last": size - 1}[place]] = 0xFF
        put(column, bytes(text), b"\xff" * 20, tail)
        assert array_of(column)[0].as_py() == text.decode("utf-8", "replace")


@pytest.mark.parametrize(
    "text",
    [
        b"\xc2\x80", b"\xdf\xbf", b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xef\xbf\xbf",
        b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xc1\xbf", b"\xc0\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\x80", b"\xbf", b"\xc3", b"\xe2\x82",
        b"\xf0\x9f\x98", b"\xe2\x28\xa1", b"\xf0\x28\x8c\xbc", b"\xf0\x90\x28\xbc", b"\xf0\x90\x8c\x28", b"\xfe\xff",
    ],
)  # fmt: skip
def test_utf8_ends_where_the_unicode_standard_ends_it(text: bytes) -> None:
    """The texts lie at the limits of table 3-7: shortest forms, surrogates, the last code point, cut sequences."""
    strict, lenient = new(kinds.STRING, strict=True), new(kinds.STRING)
    try:
        text.decode()
        valid = True
    except UnicodeDecodeError:
        valid = False
    for column in (strict, lenient):
        for word in (text, b"ab" + text, text + b"cd", text * 9):
            put(column, word, tail=b"\x80\xbf\x80")
    assert strict.parser.bad == (not valid)
    assert not lenient.parser.bad
    expected = [word.decode("utf-8", "replace") for word in (text, b"ab" + text, text + b"cd", text * 9)]
    assert array_of(lenient).to_pylist() == expected


@given(st.lists(st.binary(max_size=700), min_size=1, max_size=30))
def test_strings_grow_beyond_the_first_buffers(texts: list[bytes]) -> None:
    column = new(kinds.BINARY)
    for _ in range(3):
        for text in texts:
            put(column, text)
    assert [column.value(i) for i in range(column.length)] == texts * 3
    assert array_of(column).to_pylist() == texts * 3


def test_offsets_cross_the_growth_of_their_buffer() -> None:
    for count in (254, 255, 256, 257, 511, 512, 513, 5000):
        column = new(kinds.STRING)
        for number in range(count):
            if number % 3:
                column.put_bytes(b"%d" % number)
            else:
                column.put_null()
        expected = [str(number) if number % 3 else None for number in range(count)]
        assert array_of(column).to_pylist() == expected


def test_a_value_outside_the_column_is_an_index_error() -> None:
    column = new(kinds.STRING)
    column.put_bytes(b"x")
    for i in (-1, 1, 2**40):
        with pytest.raises(IndexError):
            column.value(i)


@pytest.mark.parametrize("kind", sorted(TYPES))
@pytest.mark.parametrize(("start", "size"), [(-1, 1), (0, 4), (3, 1), (4, 0), (0, -1), (2**62, 2**62), (1, 2**63 - 1)])
def test_a_text_outside_its_buffer_is_an_index_error_and_adds_nothing(kind: int, start: int, size: int) -> None:
    column = new(kind)
    with pytest.raises(IndexError):
        column.put(bytearray(b"123"), start, size)
    assert (column.length, column.nulls, column.used) == (0, 0, 0)


# ---- numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(INTEGERS))
@given(values=st.lists(st.one_of(st.none(), st.integers(-(2**65), 2**65)), max_size=30), edge=st.integers(-3, 3))
def test_integers_beyond_the_width_become_null_and_are_marked_bad(
    kind: int, values: list[int | None], edge: int
) -> None:
    bits = INTEGERS[kind]
    column = new(kind)
    values = [*values, 2 ** (bits - 1) + edge, -(2 ** (bits - 1)) + edge]
    expected = []
    for value in values:
        column.parser.bad = False
        fits = value is not None and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
        put(column, None if value is None else b"%d" % value)
        assert column.parser.bad == (value is not None and not fits)
        expected.append(value if fits else None)
    assert array_of(column).to_pylist() == expected


@pytest.mark.parametrize("kind", sorted(set(TYPES) - {kinds.DATE}))
@given(value=INT64)
@example(value=0)
@example(value=1)
@example(value=-(2**63))
@example(value=9223372036854775)
@example(value=9223372036854776)
def test_a_number_is_what_its_decimal_text_is(kind: int, value: int) -> None:
    """A listpack stores decimal integers as such: put_number gives the column that put gives for their text."""
    numbers, texts = new(kind), new(kind)
    numbers.put_number(value)
    put(texts, b"%d" % value)
    assert numbers.parser.bad == texts.parser.bad
    assert numbers.take_buffers() == texts.take_buffers()


def test_a_number_is_no_date() -> None:
    column = new(kinds.DATE)
    column.put_number(20130101)
    assert column.parser.bad
    assert column.bad == kinds.NUMBER
    assert array_of(column).to_pylist() == [None]


@given(st.lists(st.floats(), max_size=40))
def test_doubles_keep_their_bits_and_floats_are_rounded_once(values: list[float]) -> None:
    doubles, floats = new(kinds.DOUBLE), new(kinds.FLOAT)
    for value in values:
        doubles.put_real_value(value)
        floats.put_real_value(value)
    assert bytes(doubles.take_buffers()[4]) == struct.pack(f"={len(values)}d", *values)
    expected = pa.array(values, pa.float64()).cast(pa.float32(), safe=False)
    assert list(map(repr, array_of(floats).to_pylist())) == list(map(repr, expected.to_pylist()))


@given(st.lists(st.one_of(st.none(), st.booleans()), max_size=90), st.integers(1, 110))
def test_booleans_are_bits_across_the_growth_of_their_buffer(values: list[bool | None], times: int) -> None:
    column = new(kinds.BOOLEAN)
    for value in values * times:
        put(column, None if value is None else b"true" if value else b"F")
    assert array_of(column).to_pylist() == values * times


DECIMAL_EDGES = ["0", "-0.00000000005", "9999999999999999999999999999.9999999999", "10000000000000000000000000000",
                 "-9999999999999999999999999999.99999999995", "99999999999999999.95", "999999999999999999", "1e27",
                 "1e28", "-1e-11", "5e-11", "123456789012345678901234567.0123456789", ".5", "5.", "1e-400"]  # fmt: skip


@pytest.mark.parametrize("text", DECIMAL_EDGES)
def test_decimals_use_all_128_bits(text: str) -> None:
    """Arrow's own cast of the text is the oracle, for texts that need no rounding; else Decimal's half up."""
    from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

    column = new(kinds.DECIMAL)
    put(column, text.encode())
    try:
        expected = Decimal(text).quantize(Decimal("1e-10"), ROUND_HALF_UP, Context(38))
    except InvalidOperation:
        expected = None
    assert array_of(column).to_pylist() == [expected]
    assert column.label == "decimal(38,10)"


# ---- nulls and removal ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(TYPES))
@pytest.mark.parametrize("before", [0, 1, 7, 8, 9, 255, 256, 1023, 1024, 1025, 2500])
def test_the_first_null_makes_the_bitmap_wherever_it_comes(kind: int, before: int) -> None:
    column = new(kind)
    text = b"2013-01-01" if kind == kinds.DATE else b"1"
    for _ in range(before):
        put(column, text)
    assert len(column.valid) == 0
    column.put_null()
    put(column, text)
    assert column.nulls == 1
    valid = array_of(column).is_valid().to_pylist()
    assert valid == [True] * before + [False, True]


STEPS = st.lists(st.sampled_from(["value", "null", "bad", "drop"]), max_size=80)


@pytest.mark.parametrize("kind", sorted(set(TYPES) - {kinds.WHOLE, kinds.REAL}))
@given(steps=STEPS)
@example(steps=["null", "drop", "null", "value"])
@example(steps=["value", "null", "drop", "value", "null"])
def test_dropping_the_last_value_leaves_those_before(kind: int, steps: list[str]) -> None:
    good = b"2013-01-01" if kind == kinds.DATE else b"1"
    column, expected = new(kind), list[bool]()
    for step in steps:
        if step == "drop":
            if expected:
                expected.pop()
                column.drop()
        else:
            put(column, {"value": good, "null": None, "bad": b"x"}[step])
            expected.append(step == "value" or (step == "bad" and kind <= kinds.BINARY))
    assert column.length == len(expected)
    assert column.nulls == expected.count(False)
    assert array_of(column).is_valid().to_pylist() == expected


def test_a_dropped_true_leaves_no_bit_behind() -> None:
    column = new(kinds.BOOLEAN)
    for text in (b"true", b"true"):
        put(column, text)
    column.drop()
    put(column, b"false")
    assert array_of(column).to_pylist() == [True, False]


@given(st.lists(st.lists(st.one_of(st.none(), INT64), max_size=200), min_size=2, max_size=4))
def test_a_taken_column_begins_anew_and_shares_nothing(batches: list[list[int | None]]) -> None:
    column = new(kinds.LONG)
    arrays = []
    for batch in batches:
        for value in batch:
            put(column, None if value is None else b"%d" % value)
        arrays.append(array_of(column))
        assert (column.length, column.nulls, column.used) == (0, 0, 0)
    assert [array.to_pylist() for array in arrays] == batches


def test_truncate_forgets_the_texts_behind_a_mark() -> None:
    column = new(kinds.STRING)
    for text in (b"one", b"two", b"three"):
        column.put_bytes(text)
    column.truncate(1, 3)
    column.put_bytes(b"four")
    assert array_of(column).to_pylist() == ["one", "four"]


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=40))
def test_put_decimal_writes_digits_into_a_string(halves: list[tuple[int, int]]) -> None:
    column = new(kinds.STRING)
    for ms, seq in halves:
        column.put_decimal(ms, ord("-"))
        column.put_decimal(seq, 0)
        column.end_text()
    assert array_of(column).to_pylist() == [f"{ms}-{seq}" for ms, seq in halves]


# ---- columns whose type was inferred -------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.none(), st.just(b""), WHOLE_TEXTS), max_size=40))
def test_whole_numbers_stay_whole_and_empty_texts_are_null(texts: list[bytes | None]) -> None:
    column = new(kinds.WHOLE)
    for text in texts:
        put(column, text)
    assert column.kind == kinds.WHOLE
    assert array_of(column).to_pylist() == [int(text) if text else None for text in texts]


@given(st.lists(WHOLE_TEXTS, max_size=20), st.lists(REAL_TEXTS, max_size=20), st.floats(-1e9, 1e9))
def test_a_column_of_whole_numbers_becomes_real_at_the_first_fraction(
    whole: list[bytes], more: list[bytes], fraction: float
) -> None:
    column = new(kinds.WHOLE)
    text = f"{fraction:.3f}".encode()
    assume(float(text) != 0)  # -0.000 is not canonical
    for word in [*whole, text, *more]:
        put(column, word)
    assert (column.kind, column.label) == (kinds.REAL, "double")
    assert array_of(column).to_pylist() == [float(word) for word in [*whole, text, *more]]


@pytest.mark.parametrize(
    "text",
    [b"007", b"+7", b"--1", b" 7", b"7 ", b"x", b"-", b"1_0", b"0x1", b"\xff", b"1.",
     b".5", b"00.5", b"-00", b"1e", b"INF", b"infinity", b"1e-400", b"1e400", b"true", b"1,5",
     b"1e300", b"1e-300", b"\xd9\xa1"],
)  # fmt: skip
def test_a_text_that_is_no_plain_number_ends_an_inferred_column(text: bytes) -> None:
    for kind in (kinds.WHOLE, kinds.REAL):
        column = new(kind)
        with pytest.raises(NotPlain):
            put(column, text)
        assert column.length == 0


@pytest.mark.parametrize(("text", "value"), [(b"nan", math.nan), (b"inf", math.inf), (b"-inf", -math.inf),
                                             (b"NaN", math.nan), (b"Infinity", math.inf), (b"1.5e10", 1.5e10),
                                             (b"0", 0.0), (b"0.0", 0.0), (b"-0.5", -0.5), (b"1e-5", 1e-5),
                                             (b"-0", -0.0), (b"9223372036854775808", 2.0**63)])  # fmt: skip
def test_a_real_column_takes_plain_numbers_and_the_named_ones(text: bytes, value: float) -> None:
    for kind in (kinds.REAL, kinds.WHOLE):
        column = new(kind)
        put(column, text)
        assert repr(array_of(column)[0].as_py()) in (repr(value), repr(int(value)) if value == 0 else "")


def test_a_column_with_values_keeps_its_kind() -> None:
    column = new(kinds.STRING)
    column.put_bytes(b"7")
    with pytest.raises(AssertionError):
        column.be_plain(kinds.WHOLE)


def test_every_kind_has_a_width_and_a_label() -> None:
    assert len(WIDTHS) == len(LABELS) == 15
    for kind, type_ in TYPES.items():
        if WIDTHS[kind]:
            assert WIDTHS[kind] == type_.bit_width // 8
        assert new(kind).label == ("decimal(38,10)" if kind == kinds.DECIMAL else LABELS[kind])


# ---- JSON ----------------------------------------------------------------------------------------------------------


def test_a_json_column_keeps_objects_until_they_are_taken() -> None:
    import json

    column = new(kinds.JSON)
    column.read = json.loads
    for text in (b'{"a": 1}', b"null", b"{", b"[]", None):
        put(column, text)
    assert (column.length, column.nulls) == (5, 3)
    assert column.parser.bad
    column.drop()
    column.put_number(7)
    assert column.take_objects() == [{"a": 1}, None, None, [], 7]
    assert (column.length, column.nulls, column.take_objects()) == (0, 0, [])
