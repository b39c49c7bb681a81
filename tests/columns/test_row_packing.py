"""Arrow columns into XADD: what a server's parser reads out of the packed bytes."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns.row_packing import RowPacker, StringArrays  # noqa: E402
from rillet.columns.string_column import texts as as_column  # noqa: E402
from rillet.protocol.command_parser import CommandParser  # noqa: E402


def texts(array: Any, name: bytes = b"") -> StringArrays:
    valid, offsets, data = (None if buffer is None else buffer.to_pybytes() for buffer in array.buffers())
    return StringArrays(name, valid, offsets or bytes(4), data, array.offset)


def commands(data: bytes) -> list[list[bytes]]:
    parser = CommandParser()
    parser.feed(data)
    found = []
    while (command := parser.next()) is not None:
        found.append(command)
    return found


def packed(packer: RowPacker, rows: int, limit: int = 1 << 16) -> bytes:
    row, data = 0, b""
    while row < rows:
        row = packer.pack(row, rows, limit)
        data += packer.take()
    return data


CELLS = st.one_of(st.none(), st.binary(max_size=300))


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=9), CELLS, CELLS), max_size=30), st.integers(0, 5), st.integers(1, 400))
def test_rows_become_commands_without_their_nulls(rows: list[tuple[bytes, Any, Any]], cut: int, limit: int) -> None:
    columns = [pa.array([row[i] for row in rows], pa.binary()).slice(cut) for i in range(3)]
    packer = RowPacker([b"XADD", b"k", b"MAXLEN", b"~", b"10"])
    packer.rows_of([texts(column, b"f%d" % i) for i, column in enumerate(columns)], None)
    expected = []
    for row in rows[cut:]:
        pairs = [word for i, cell in enumerate(row) if cell is not None for word in (b"f%d" % i, cell)]
        expected.append([b"XADD", b"k", b"MAXLEN", b"~", b"10", b"*", *pairs])
    assert commands(packed(packer, len(rows[cut:]), limit)) == expected


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.text(max_size=9))), max_size=20),
    st.integers(0, 3),
)
def test_maps_become_fields(maps: list[dict[str, str | None]], cut: int) -> None:
    maps = [{**pairs, "always": "x"} for pairs in maps]
    array = pa.array([list(pairs.items()) for pairs in maps], pa.map_(pa.string(), pa.string())).slice(cut)
    ids = pa.array([f"1-{n}" for n in range(len(maps))], pa.string()).slice(cut)
    packer = RowPacker([b"XADD", b"k"])
    packer.rows_of_map(array.buffers()[1].to_pybytes(), array.offset, texts(array.keys), texts(array.items), texts(ids))
    expected = []
    for number, pairs in list(enumerate(maps))[cut:]:
        words = [word.encode() for name, value in pairs.items() if value is not None for word in (name, value)]
        expected.append([b"XADD", b"k", b"1-%d" % number, *words])
    assert commands(packed(packer, len(array))) == expected


def test_what_cannot_be_an_entry_is_refused() -> None:
    packer = RowPacker([b"XADD", b"k"])
    packer.rows_of([texts(pa.array([None], pa.string()), b"f")], None)
    with pytest.raises(ValueError, match="nothing but nulls"):
        packer.pack(0, 1, 100)
    packer.rows_of([texts(pa.array(["x"]), b"f")], texts(pa.array([None], pa.string())))
    with pytest.raises(ValueError, match="ID column"):
        packer.pack(0, 1, 100)


def test_buffers_that_lie_are_an_index_error() -> None:
    packer = RowPacker([b"XADD", b"k"])
    for bad in (
        StringArrays(b"f", None, b"\0\0\0\0", b"", 0),
        StringArrays(b"f", None, bytes(4) + b"\x09\0\0\0", b"abc", 0),
        StringArrays(b"f", b"", bytes(8), b"", 7),
        StringArrays(b"f", b"\xff", bytes(800), b"", 90),
    ):
        packer.rows_of([bad], None)
        with pytest.raises(IndexError):
            packer.pack(0, 1, 100)


@settings(deadline=None)
@given(st.lists(CELLS, max_size=40), st.integers(0, 20), st.integers(0, 20))
def test_slices_hand_over_their_own_part(cells: list[Any], cut: int, size: int) -> None:
    array = pa.array(cells, pa.binary()).slice(cut, size)
    packer = RowPacker([b"XADD", b"k"])
    always = as_column(pa.array(["x"] * len(array)), "always")
    packer.rows_of([always, as_column(array, "f")], None)
    expected = [
        [b"XADD", b"k", b"*", b"always", b"x", *([] if cell is None else [b"f", cell])]
        for cell in cells[cut : cut + size]
    ]
    assert commands(packed(packer, len(array))) == expected


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.binary(max_size=30)), min_size=1, max_size=20))
def test_each_row_can_have_its_own_stream(rows: list[tuple[bytes, bytes]]) -> None:
    keys = as_column(pa.array([key for key, _ in rows], pa.binary()))
    ids = as_column(pa.array([f"{number}-1" for number in range(len(rows))]))
    packer = RowPacker([b"XADD", b"unused", b"MINID", b"~", b"5-0"])
    packer.rows_of([as_column(pa.array([value for _, value in rows], pa.binary()), "f")], ids, keys)
    found = commands(packed(packer, len(rows), 50))
    assert found == [
        [b"XADD", key, b"MINID", b"~", b"5-0", b"%d-1" % number, b"f", value]
        for number, (key, value) in enumerate(rows)
    ]
    packer.rows_of([as_column(pa.array(["x"]), "f")], None, as_column(pa.array([None], pa.string())))
    with pytest.raises(ValueError, match="stream column"):
        packer.pack(0, 1, 100)


def test_what_other_types_are_as_texts() -> None:
    moment = datetime(2013, 1, 1, 5, 15, tzinfo=UTC)
    columns = {
        "decimal": pa.array([Decimal("1.50"), Decimal("0.00"), None], pa.decimal128(20, 10)),
        "moment": pa.array([moment] * 3, pa.timestamp("us", tz="UTC")),
        "plain": pa.array([moment.replace(tzinfo=None)] * 3, pa.timestamp("us")),
        "day": pa.array([moment.date()] * 3),
        "truth": pa.array([True, False, None]),
        "large": pa.array([b"\xff", b"", b"x"], pa.large_binary()),
        "views": pa.array(["é", "", None], pa.string_view()),
    }
    packer = RowPacker([b"XADD", b"k"])
    packer.rows_of([as_column(array, name) for name, array in columns.items()], None)
    rows = [dict(zip(row[3::2], row[4::2], strict=True)) for row in commands(packed(packer, 3))]
    assert rows[0] == {
        b"decimal": b"1.5000000000",
        b"moment": b"2013-01-01T05:15:00.000000Z",
        b"plain": b"2013-01-01T05:15:00.000000",
        b"day": b"2013-01-01",
        b"truth": b"true",
        b"large": b"\xff",
        b"views": "é".encode(),
    }
    assert rows[1][b"decimal"] == b"0.0000000000"
    assert set(rows[2]) == {b"moment", b"plain", b"day", b"large"}
