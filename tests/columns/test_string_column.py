"""Arrow arrays as columns of texts: what the packer writes for every type, slice and null."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns.row_packing import RowPacker  # noqa: E402
from rillet.columns.string_column import as_texts, texts, without_text  # noqa: E402
from tests.columns.test_row_packing import commands, packed  # noqa: E402

MOMENT = datetime(2013, 1, 1, 5, 15, 0, 250000, tzinfo=UTC)
PLAIN = MOMENT.replace(tzinfo=None)


def written(array: Any, direct: bool) -> list[bytes | None]:
    """Return the texts of an array, which the packer writes behind another column."""
    packer = RowPacker([b"XADD", b"k"])
    packer.rows_of([texts(pa.array(["x"] * len(array)), "always"), texts(array, "f", direct)], None)
    return [row[6] if len(row) > 5 else None for row in commands(packed(packer, len(array), 300))]


CASES: list[tuple[Any, list[Any], list[bytes | None]]] = [
    (pa.string(), ["a", "", "größe", None], [b"a", b"", "größe".encode(), None]),
    (pa.large_string(), ["a", None], [b"a", None]),
    (pa.string_view(), ["a", None, "x" * 100], [b"a", None, b"x" * 100]),
    (pa.binary(), [b"\xff\x00", b""], [b"\xff\x00", b""]),
    (pa.large_binary(), [b"\r\n", None], [b"\r\n", None]),
    (pa.binary_view(), [b"x" * 50, None], [b"x" * 50, None]),
    (pa.binary(3), [b"abc", None], [b"abc", None]),
    (pa.bool_(), [True, False, None], [b"true", b"false", None]),
    (pa.int8(), [-128, 127, None], [b"-128", b"127", None]),
    (pa.int16(), [-32768, 32767], [b"-32768", b"32767"]),
    (pa.int32(), [-(2**31), 2**31 - 1], [b"-2147483648", b"2147483647"]),
    (pa.int64(), [-(2**63), 2**63 - 1, 0], [b"-9223372036854775808", b"9223372036854775807", b"0"]),
    (pa.uint8(), [255, 0], [b"255", b"0"]),
    (pa.uint16(), [65535], [b"65535"]),
    (pa.uint32(), [2**32 - 1], [b"4294967295"]),
    (pa.uint64(), [2**64 - 1, 2**63], [b"18446744073709551615", b"9223372036854775808"]),
    (pa.float64(), [0.1, 1e10, -0.0, 1e-6, 9.5e-7], [b"0.1", b"1e+10", b"-0", b"0.000001", b"9.5e-7"]),
    (pa.float64(), [float("nan"), float("inf"), float("-inf")], [b"nan", b"inf", b"-inf"]),
    (pa.float32(), [0.1, 16777216.0, 3.4028234663852886e38], [b"0.1", b"16777216", b"3.4028235e+38"]),
    (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None], [b"0001-01-01", b"9999-12-31", None]),
    (pa.date64(), [date(2013, 1, 1), None], [b"2013-01-01", None]),
    (pa.time32("s"), [time(5, 15), None], [b"05:15:00", None]),
    (pa.time64("us"), [time(5, 15, 0, 1), None], [b"05:15:00.000001", None]),
    (pa.timestamp("s"), [PLAIN.replace(microsecond=0)], [b"2013-01-01T05:15:00"]),
    (pa.timestamp("ms", "UTC"), [MOMENT, None], [b"2013-01-01T05:15:00.250Z", None]),
    (pa.timestamp("us"), [PLAIN], [b"2013-01-01T05:15:00.250000"]),
    (pa.timestamp("us", "America/New_York"), [MOMENT], [b"2013-01-01T05:15:00.250000Z"]),
    (pa.timestamp("ns", "+05:30"), [MOMENT], [b"2013-01-01T05:15:00.250000000Z"]),
    (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("-0.01"), None], [b"1.50", b"-0.01", None]),
    (pa.decimal128(20, 10), [Decimal("0E-10"), Decimal("1e-10")], [b"0.0000000000", b"0.0000000001"]),
    (pa.decimal128(38, 0), [Decimal(10**38 - 1)], [b"9" * 38]),
    (pa.decimal256(50, 3), [Decimal("1.5"), None], [b"1.500", None]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a", None], [b"a", b"b", b"a", None]),
]


@pytest.mark.parametrize(("type_", "cells", "expected"), CASES, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("direct", [False, True])
def test_every_type_has_one_text(type_: Any, cells: list[Any], expected: list[bytes | None], direct: bool) -> None:
    array = pa.array(cells, type_)
    assert not without_text(type_)
    assert written(array, direct) == expected


@pytest.mark.parametrize(("type_", "cells", "expected"), CASES, ids=lambda value: str(value)[:30])
def test_a_slice_at_any_offset_has_its_own_texts_and_nulls(
    type_: Any, cells: list[Any], expected: list[bytes | None]
) -> None:
    """A slice shares its parent's buffers; validity bits and booleans begin in the middle of a byte."""
    array = pa.array((cells + [None]) * 7, type_)
    both = (expected + [None]) * 7
    for start in (0, 1, 7, 8, 9, len(array) - 1, len(array)):
        for size in (0, 1, 9):
            part = array.slice(start, size)
            for direct in (False, True):
                assert written(part, direct) == both[start : start + size]


@pytest.mark.parametrize(
    ("type_", "missing"),
    [(pa.list_(pa.int8()), True), (pa.struct([("a", pa.int8())]), True), (pa.map_(pa.string(), pa.string()), True),
     (pa.null(), True), (pa.month_day_nano_interval(), True), (pa.string(), False), (pa.duration("s"), False)],
    ids=str,
)  # fmt: skip
def test_nested_types_and_intervals_have_no_text(type_: Any, missing: bool) -> None:
    assert without_text(type_) is missing


@given(st.lists(st.one_of(st.none(), st.text(max_size=30)), max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_dictionaries_of_any_width_are_their_values(cells: list[str | None], start: int, size: int) -> None:
    array = pa.array(cells, pa.string()).dictionary_encode().slice(start, size)
    assert as_texts(array).to_pylist() == cells[start : start + size]


@given(st.lists(st.one_of(st.none(), st.decimals(-(10**9), 10**9, places=4)), max_size=20), st.integers(4, 20))
def test_decimals_have_the_digits_of_their_scale_and_no_exponent(cells: list[Decimal | None], scale: int) -> None:
    array = pa.array(cells, pa.decimal128(38, scale))
    result = as_texts(array).to_pylist()
    exact = Context(prec=38)  # the default of 28 digits is too short for 10 digits and a scale of 20
    unit = Decimal(1).scaleb(-scale)
    assert result == [None if cell is None else f"{cell.quantize(unit, context=exact):f}" for cell in cells]


UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@pytest.mark.parametrize("unit", sorted(UNITS))
@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=10))
def test_moments_of_64_bits_are_arrows_texts_in_iso_8601(unit: str, cells: list[int | None]) -> None:
    array = pa.array(cells, pa.timestamp(unit))
    expected = [None if text is None else text.replace(" ", "T", 1) for text in array.cast(pa.string()).to_pylist()]
    assert as_texts(array).to_pylist() == expected
    assert [None if x is None else x.decode() for x in written(array, True)] == expected


@given(st.lists(st.one_of(st.none(), st.binary(max_size=9)), max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_a_slice_copies_no_more_than_its_own_bytes(cells: list[bytes | None], start: int, size: int) -> None:
    array = pa.array([b"p" * 5000, *cells, b"s" * 5000], pa.binary()).slice(1 + start, size)
    array = array.slice(0, min(len(array), max(0, len(cells) - start)))
    column = texts(array, "f")
    packer = RowPacker([b"XADD", b"k"])
    packer.rows_of([texts(pa.array(["x"] * len(array)), "always"), column], None)
    result = [row[6] if len(row) > 5 else None for row in commands(packed(packer, len(array)))]
    assert result == cells[start : start + size]


def test_an_array_without_rows_is_a_column_without_rows() -> None:
    for type_, _, _ in CASES:
        empty = pa.array([], type_)
        for direct in (False, True):
            packer = RowPacker([b"XADD", b"k"])
            packer.rows_of([texts(empty, "f", direct)], None)
            assert packer.pack(0, 0, 100) == 0
            with pytest.raises(IndexError):
                packer.pack(0, 1, 100)


def test_chunks_of_a_column_are_packed_one_by_one() -> None:
    chunked = pa.chunked_array([pa.array([1, None]), pa.array([], pa.int64()), pa.array([3])])
    assert [text for chunk in chunked.chunks for text in written(chunk, True)] == [b"1", None, b"3"]
