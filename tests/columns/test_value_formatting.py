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
from rillet.columns.value_formatting import FIRST_DAY, LAST_DAY, ValueFormatter  # noqa: E402
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
