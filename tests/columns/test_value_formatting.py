"""Numbers, days and moments as text: the packer formats them as Arrow does, byte for byte."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns import row_packing as pack  # noqa: E402
from rillet.columns.row_packing import RowPacker  # noqa: E402
from rillet.columns.string_column import as_texts, texts  # noqa: E402
from rillet.columns.value_formatting import (  # noqa: E402
    FIRST_DAY,
    LAST_DAY,
    LEAST_POWER,
    MOST_POWER,
    ValueFormatter,
    powers,
)
from tests.columns.test_row_packing import commands, packed  # noqa: E402

SHORT = st.builds(lambda digits, places: digits / 10**places, st.integers(-(10**16), 10**16), st.integers(0, 12))
DOUBLES = st.one_of(
    st.floats(),
    SHORT,
    st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", bits.to_bytes(8, "little"))[0]),
    st.integers(-1074, 1023).map(lambda power: 2.0**power),
    st.integers(-323, 308).map(lambda power: float(f"1e{power}")),
    st.sampled_from([-0.0, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 9999999999.5, 1e10, 1e-6, 9.5e-7]),
)
SINGLES = st.one_of(
    st.floats(width=32),
    SHORT.map(lambda value: struct.unpack("<f", struct.pack("<f", value))[0]),
    st.integers(0, 2**32 - 1).map(lambda bits: struct.unpack("<f", bits.to_bytes(4, "little"))[0]),
    st.integers(-149, 127).map(lambda power: 2.0**power),
    st.integers(-(2**24), 2**24).map(lambda whole: whole * 64.0),
)


def whole(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


def moments(unit: str, zone: str | None) -> tuple[Any, st.SearchStrategy[int]]:
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    years = st.integers(FIRST_DAY * 86_400 * per, (LAST_DAY + 1) * 86_400 * per - 1)
    return pa.timestamp(unit, zone), whole(64) if unit == "ns" else years


KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.float64(), DOUBLES), (pa.float32(), SINGLES), (pa.bool_(), st.booleans()),
    (pa.int8(), whole(8)), (pa.int16(), whole(16)), (pa.int32(), whole(32)), (pa.int64(), whole(64)),
    (pa.uint8(), whole(8, False)), (pa.uint16(), whole(16, False)), (pa.uint32(), whole(32, False)),
    (pa.uint64(), whole(64, False)), (pa.date32(), st.integers(FIRST_DAY, LAST_DAY)),
    (pa.decimal128(20, 3), st.decimals(-(10**16), 10**16, places=3)),
    moments("s", None), moments("ms", "UTC"), moments("us", "America/New_York"), moments("us", None),
    moments("ns", "+05:30"),
]  # fmt: skip


def values(array: Any, direct: bool) -> list[bytes | None]:
    """Return what the packer makes of an array."""
    packer = RowPacker([b"XADD", b"k"])
    packer.rows_of([texts(pa.array(["x"] * len(array)), "always"), texts(array, "f", direct)], None)
    return [row[6] if len(row) > 5 else None for row in commands(packed(packer, len(array), 400))]


@pytest.mark.parametrize(
    ("kind", "cells"), KINDS, ids=lambda value: str(value) if isinstance(value, pa.DataType) else ""
)
def test_values_are_written_as_arrow_writes_them(kind: Any, cells: st.SearchStrategy[Any]) -> None:
    @settings(deadline=None)
    @given(st.lists(st.one_of(st.none(), cells), max_size=40), st.integers(0, 20), st.integers(0, 40))
    def check(drawn: list[Any], cut: int, size: int) -> None:
        array = pa.array(drawn, kind).slice(cut, size)
        expected = as_texts(array).to_pylist()
        assert values(array, True) == [None if text is None else text.encode() for text in expected]
        assert values(array, False) == values(array, True)

    check()


@settings(deadline=None)
@given(st.lists(st.one_of(whole(64), st.none()), min_size=1, max_size=9), st.sampled_from(["s", "ms", "us"]))
@example([FIRST_DAY * 86_400 - 1], "s")
@example([(LAST_DAY + 1) * 86_400_000], "ms")
@example([-(2**63), 2**63 - 1, 0], "us")
def test_moments_outside_the_years_1_to_9999_are_written_by_arrow(drawn: list[int | None], unit: str) -> None:
    array = pa.array(drawn, pa.timestamp(unit, "UTC"))
    assert values(array, True) == [None if text is None else text.encode() for text in as_texts(array).to_pylist()]


def test_days_outside_the_years_1_to_9999_are_written_by_arrow() -> None:
    for day in (FIRST_DAY - 1, LAST_DAY + 1, -(2**31), 2**31 - 1):
        array = pa.array([0, day, None], pa.date32())
        assert values(array, True) == [b"1970-01-01", as_texts(array)[1].as_py().encode(), None]
    with pytest.raises(IndexError):
        ValueFormatter().put_day(LAST_DAY + 1)


@settings(deadline=None)
@given(DOUBLES)
def test_a_double_survives_its_text_and_has_the_shortest_digits(value: float) -> None:
    writer = ValueFormatter()
    text = writer.text(writer.put_real(value))
    assert struct.pack("<d", float(text)) == struct.pack("<d", value) or value != value
    shortest = repr(value).split("e")[0].replace(".", "").strip("-0")
    assert text.decode().split("e")[0].replace(".", "").strip("-0") == shortest


def test_ids_and_maps_can_be_columns_of_values() -> None:
    packer = RowPacker([b"XADD", b"k"])
    array = pa.array([[("a", 1.5), ("b", None)], [("c", -2.0)]], pa.map_(pa.string(), pa.float64()))
    ids = texts(pa.array([5, 6]), "", True)
    ends = array.buffers()[1].to_pybytes()
    packer.rows_of_map(ends, 0, texts(array.keys), texts(array.items, "", True), ids)
    result = commands(packed(packer, 2))
    assert result == [[b"XADD", b"k", b"5", b"a", b"1.5"], [b"XADD", b"k", b"6", b"c", b"-2"]]


def test_values_outside_their_buffer_are_an_index_error() -> None:
    for kind, data in (("INT64", bytes(7)), ("DOUBLE", bytes(7)), ("FLOAT", bytes(3)), ("BOOLEAN", b""),
                       ("DAY", bytes(3)), ("MICROSECONDS", bytes(7))):  # fmt: skip
        packer = RowPacker([b"XADD", b"k"])
        packer.rows_of([pack.StringArrays(b"f", None, b"", data, 0).be_values(getattr(pack, kind))], None)
        with pytest.raises(IndexError):
            packer.pack(0, 1, 100)


# ---- one value at a time -------------------------------------------------------------------------------------------


def real(value: float) -> str:
    writer = ValueFormatter()
    return writer.text(writer.put_real(value)).decode()


def single(value: float) -> str:
    writer = ValueFormatter()
    return writer.text(writer.put_single(value)).decode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (0.1, "0.1"),
        (0.3, "0.3"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1 / 3, "0.3333333333333333"),
        (2 / 3, "0.6666666666666666"),
        (100.0, "100"),
        (1234567.891, "1234567.891"),
        (9999999999.0, "9999999999"),
        (9999999999.5, "9999999999.5"),
        (1e10, "1e+10"),
        (12345678901.0, "1.2345678901e+10"),
        (1e-6, "0.000001"),
        (1.5e-6, "0.0000015"),
        (9.999e-7, "9.999e-7"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
        (2.2250738585072014e-308, "2.2250738585072014e-308"),
        (2.225073858507201e-308, "2.225073858507201e-308"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740992.0, "9.007199254740992e+15"),
        (4.35, "4.35"),
        (2.0**-1074, "5e-324"),
        (2.0**1023, "8.98846567431158e+307"),
        (1e22, "1e+22"),
        (1e23, "1e+23"),
        (9.5367431640625e-07, "9.5367431640625e-7"),
        (123456.7890625, "123456.7890625"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
    ],
)
def test_a_double_has_its_shortest_text_with_both_signs(value: float, text: str) -> None:
    assert real(value) == text
    if value == value and not text.startswith("-"):
        assert real(-value) == "-" + text
    assert pa.array([value]).cast(pa.string())[0].as_py() == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (16777216.0, "16777216"),
        (16777218.0, "16777218"),
        (33554432.0, "33554432"),
        (123456792.0, "123456790"),
        (1e10, "1e+10"),
        (3.4028234663852886e38, "3.4028235e+38"),
        (1.1754943508222875e-38, "1.1754944e-38"),
        (1.401298464324817e-45, "1e-45"),
        (0.333333343267440796, "0.33333334"),
        (1.0000001192092896, "1.0000001"),
        (float("inf"), "inf"),
    ],
)
def test_a_float_has_its_shortest_text_with_both_signs(value: float, text: str) -> None:
    value = struct.unpack("=f", struct.pack("=f", value))[0]
    assert single(value) == text
    assert single(-value) == "-" + text
    assert pa.array([value], pa.float32()).cast(pa.string())[0].as_py() == text


@pytest.mark.parametrize("power", range(-323, 309, 7))
def test_powers_of_ten_and_their_neighbours_read_back(power: int) -> None:
    import math

    value = float(f"1e{power}")
    for near in (math.nextafter(value, 0), value, math.nextafter(value, math.inf), value * 1.5, value * 9.75):
        assert float(real(near)) == near
        assert len(real(near)) <= 24


@given(st.integers(-(2**63), 2**64 - 1))
@example(0)
@example(-(2**63))
@example(2**63)
@example(2**64 - 1)
def test_integers_are_their_decimal_digits(value: int) -> None:
    writer = ValueFormatter()
    if value >= 0:
        assert writer.text(writer.put_unsigned(value)) == b"%d" % value
    if value < 2**63:
        assert writer.text(writer.put_signed(value)) == b"%d" % value


def test_booleans_are_true_and_false() -> None:
    writer = ValueFormatter()
    assert [writer.text(writer.put_truth(value)) for value in (True, False)] == [b"true", b"false"]


@given(st.lists(st.one_of(st.dates().map(lambda d: d.toordinal()), st.integers(1, 3_652_059)), min_size=1, max_size=30))
def test_days_are_written_whatever_the_buffer_held_before(ordinals: list[int]) -> None:
    """The formatter keeps the last day in its buffer; every other value must make it write the day again."""
    from datetime import date

    writer = ValueFormatter()
    for number, ordinal in enumerate(ordinals):
        days = ordinal - date(1970, 1, 1).toordinal()
        expected = date.fromordinal(ordinal).isoformat().encode()
        assert writer.text(writer.put_day(days)) == expected
        assert writer.text(writer.put_day(days)) == expected
        moment = writer.text(writer.put_moment(days * 86_400 + number, 0, True))
        assert moment == expected + b"T00:00:%02dZ" % number


@pytest.mark.parametrize("day", [FIRST_DAY - 1, LAST_DAY + 1, -(2**61), 2**62])
def test_days_and_moments_outside_the_years_are_an_index_error(day: int) -> None:
    writer = ValueFormatter()
    with pytest.raises(IndexError):
        writer.put_day(day)
    with pytest.raises(IndexError):
        writer.put_moment(max(-(2**63), min(2**63 - 1, day * 86_400)), 0, False)
    assert writer.text(writer.put_day(0)) == b"1970-01-01"


@pytest.mark.parametrize("places", [0, 3, 6, 9])
@pytest.mark.parametrize("value", [-1, 0, 1, -86_400, 86_399, 999_999_999, -999_999_999, 1_000_000_000])
def test_moments_before_1970_round_down_to_their_second(value: int, places: int) -> None:
    writer = ValueFormatter()
    seconds, part = divmod(value, 10**places)
    text = pa.array([seconds], pa.timestamp("s")).cast(pa.string())[0].as_py().replace(" ", "T")
    expected = text + (f".{part:0{places}d}" if places else "")
    assert writer.text(writer.put_moment(value, places, False)).decode() == expected


# ---- the table of powers -------------------------------------------------------------------------------------------


def test_the_table_holds_every_power_of_ten_rounded_up_to_128_bits() -> None:
    import sys
    from fractions import Fraction

    table = powers()
    assert len(table) == 16 * (MOST_POWER - LEAST_POWER + 1)
    for power in range(LEAST_POWER, MOST_POWER + 1):
        at = 16 * (power - LEAST_POWER)
        low = int.from_bytes(table[at : at + 8], sys.byteorder)
        high = int.from_bytes(table[at + 8 : at + 16], sys.byteorder)
        bits = high << 64 | low
        assert bits.bit_length() == 128
        exact = Fraction(10) ** power
        shift = (exact.numerator.bit_length() - exact.denominator.bit_length()) - 128
        scaled = [exact / Fraction(2) ** (shift + i) for i in (0, 1, 2)]
        assert any(bits - 1 < value <= bits for value in scaled)


@pytest.mark.parametrize("digits", range(1, 18))
@given(data=st.data())
def test_a_decimal_of_few_digits_is_written_with_these_digits(digits: int, data: st.DataObject) -> None:
    """Every decimal of up to 15 digits is the shortest text of its double."""
    mantissa = data.draw(st.integers(10 ** (digits - 1), 10**digits - 1))
    power = data.draw(st.integers(-300, 280))
    text = real(float(f"{mantissa}e{power}"))
    assert float(text) == float(f"{mantissa}e{power}")
    shown = text.split("e")[0].replace(".", "").strip("0")
    if digits <= 15:
        assert shown == str(mantissa).strip("0")
    assert len(shown) <= max(digits, 1)


SINGLE_LIMITS = [0, 1, 2, 3, 2**23 - 1, 2**23, 2**23 + 1, 0x7F7FFFFE, 0x7F7FFFFF, 0x3F800000, 0x3F800001]


@pytest.mark.parametrize("bits", SINGLE_LIMITS)
@pytest.mark.parametrize("sign", [0, 1 << 31])
def test_floats_at_the_limits_read_back(bits: int, sign: int) -> None:
    value = struct.unpack("=f", struct.pack("=I", bits | sign))[0]
    text = single(value)
    assert struct.pack("=f", float(text)) == struct.pack("=I", bits | sign)
    assert text == pa.array([value], pa.float32()).cast(pa.string())[0].as_py()


@pytest.mark.parametrize("exponent", range(0, 255, 9))
def test_floats_of_every_size_read_back(exponent: int) -> None:
    for fraction in (0, 1, 2, 0x2AAAAA, 0x400000, 0x7FFFFE, 0x7FFFFF):
        value = struct.unpack("=f", struct.pack("=I", exponent << 23 | fraction))[0]
        assert struct.unpack("=f", struct.pack("=f", float(single(value))))[0] == value


@pytest.mark.parametrize("exponent", range(0, 2047, 31))
def test_doubles_of_every_size_are_pythons_shortest(exponent: int) -> None:
    for fraction in (0, 1, 2, 0x5555555555555, 0x8000000000000, 0xFFFFFFFFFFFFE, 0xFFFFFFFFFFFFF):
        value = struct.unpack("=d", struct.pack("=Q", exponent << 52 | fraction))[0]
        text = real(value)
        assert float(text) == value
        assert text.split("e")[0].replace(".", "").strip("0") == repr(value).split("e")[0].replace(".", "").strip("0")
