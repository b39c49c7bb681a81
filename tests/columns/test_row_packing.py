"""Arrow columns into XADD commands: read by the command parser, run by the engine, and read back."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns.arrow_batch import record_batch, rows_for  # noqa: E402
from rillet.columns.node_decoder import DONE, NodeDecoder  # noqa: E402
from rillet.columns.row_packing import RowPacker, StringArrays  # noqa: E402
from rillet.columns.string_column import texts as as_column  # noqa: E402
from rillet.protocol.command_parser import CommandParser, pack_command  # noqa: E402
from rillet.runtime.engine import Engine  # noqa: E402
from rillet.runtime.settings.settings import Settings  # noqa: E402


def texts(array: Any, name: bytes = b"") -> StringArrays:
    valid, offsets, data = (None if buffer is None else buffer.to_pybytes() for buffer in array.buffers())
    return StringArrays(name, valid, offsets or bytes(4), data, array.offset)


def commands(data: bytes) -> list[list[bytes]]:
    parser = CommandParser()
    parser.feed(data)
    result = []
    while (command := parser.next()) is not None:
        result.append(command)
    return result


def packed(packer: RowPacker, rows: int, limit: int = 1 << 16) -> bytes:
    row, data = 0, b""
    while row < rows:
        row = packer.pack(row, rows, limit)
        data += packer.take_bytes()
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


def test_a_row_of_nulls_and_a_null_id_are_value_errors() -> None:
    packer = RowPacker([b"XADD", b"k"])
    packer.rows_of([texts(pa.array([None], pa.string()), b"f")], None)
    with pytest.raises(ValueError, match="nothing but nulls"):
        packer.pack(0, 1, 100)
    packer.rows_of([texts(pa.array(["x"]), b"f")], texts(pa.array([None], pa.string())))
    with pytest.raises(ValueError, match="ID column"):
        packer.pack(0, 1, 100)


def test_contradictory_buffers_are_an_index_error() -> None:
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
def test_slices_are_packed_without_the_rest_of_their_parent(cells: list[Any], cut: int, size: int) -> None:
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
    result = commands(packed(packer, len(rows), 50))
    assert result == [
        [b"XADD", key, b"MINID", b"~", b"5-0", b"%d-1" % number, b"f", value]
        for number, (key, value) in enumerate(rows)
    ]
    packer.rows_of([as_column(pa.array(["x"]), "f")], None, as_column(pa.array([None], pa.string())))
    with pytest.raises(ValueError, match="stream column"):
        packer.pack(0, 1, 100)


def test_values_of_other_types_have_the_documented_texts() -> None:
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


# ---- through the engine and back -----------------------------------------------------------------------------------


def added(data: bytes) -> dict[bytes, Any]:
    """Run packed commands in an engine; return its streams."""
    engine = Engine(Settings())
    session = engine.session()
    for command in commands(data):
        assert engine.execute(session, command)
        assert not session.out.take_bytes().startswith(b"-"), command
    return dict(engine.databases[0].items())


def table_of(stream: Any, schema: Any) -> Any:
    rows = rows_for(schema, b"k")
    decoder = NodeDecoder(rows, stream, (0, 0), (2**64 - 1, 2**64 - 1))
    while decoder.decode() != DONE:
        raise AssertionError("the batch is full")
    return record_batch(rows, schema)


ROUND_TRIPS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.string(), st.text(max_size=30)),
    (pa.binary(), st.binary(max_size=70)),
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.timestamp("us"), st.datetimes()),
]


@pytest.mark.slow
@pytest.mark.parametrize(("type_", "cells"), ROUND_TRIPS, ids=lambda value: str(value)[:20])
@given(data=st.data())
def test_values_that_are_written_are_read_back_by_the_same_type(
    type_: Any, cells: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    """Arrow array -> XADD -> engine -> listpack nodes -> Arrow array."""
    array = pa.array(data.draw(st.lists(st.one_of(st.none(), cells), min_size=1, max_size=25)), type_)
    packer = RowPacker([b"XADD", b"k"])
    packer.rows_of([as_column(pa.array(["x"] * len(array)), "always"), as_column(array, "f")], None)
    stream = added(packed(packer, len(array)))[b"k"]
    batch = table_of(stream, pa.schema([("f", type_), ("always", pa.string())]))
    assert batch.column(0).equals(array)
    assert batch.column(1).to_pylist() == ["x"] * len(array)


@pytest.mark.slow
@given(
    st.lists(
        st.dictionaries(st.text(max_size=6), st.text(max_size=12), min_size=1, max_size=6), min_size=1, max_size=15
    )
)
def test_maps_that_are_written_are_read_back_in_order(maps: list[dict[str, str]]) -> None:
    type_ = pa.map_(pa.string(), pa.string())
    array = pa.array([list(pairs.items()) for pairs in maps], type_)
    ids = as_column(pa.array([f"{number}-{number}" for number in range(1, len(maps) + 1)]))
    packer = RowPacker([b"XADD", b"k"])
    ends = array.buffers()[1].to_pybytes()
    packer.rows_of_map(ends, 0, as_column(array.keys), as_column(array.items), ids)
    batch = table_of(added(packed(packer, len(maps)))[b"k"], pa.schema([("id", pa.string()), ("fields", type_)]))
    assert batch.column(0).to_pylist() == [f"{number}-{number}" for number in range(1, len(maps) + 1)]
    assert batch.column(1).to_pylist() == [list(pairs.items()) for pairs in maps]


@given(
    st.lists(st.tuples(st.sampled_from([b"a", b"b", b"long key" * 9]), st.binary(max_size=9)), min_size=1, max_size=20)
)
def test_each_rows_stream_gets_its_own_entries(rows: list[tuple[bytes, bytes]]) -> None:
    packer = RowPacker([b"XADD", b"unused"])
    keys = as_column(pa.array([key for key, _ in rows], pa.binary()))
    packer.rows_of([as_column(pa.array([value for _, value in rows], pa.binary()), "f")], None, keys)
    streams = added(packed(packer, len(rows), 100))
    for key in {key for key, _ in rows}:
        values = table_of(streams[key], pa.schema([("f", pa.binary())])).column(0).to_pylist()
        assert values == [value for other, value in rows if other == key]
    assert b"unused" not in streams


# ---- bytes ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=90)), min_size=1, max_size=5), max_size=12)
)
def test_packed_rows_are_what_pack_command_makes(rows: list[list[tuple[bytes, bytes]]]) -> None:
    ends = [0]
    for pairs in rows:
        ends.append(ends[-1] + len(pairs))
    flat = [pair for pairs in rows for pair in pairs]
    names, values = (as_column(pa.array([pair[i] for pair in flat], pa.binary())) for i in (0, 1))
    packer = RowPacker([b"XADD", b"k", b"MINID", b"~", b"1"])
    packer.rows_of_map(struct.pack(f"={len(ends)}i", *ends), 0, names, values, None)
    expected = b"".join(
        pack_command([b"XADD", b"k", b"MINID", b"~", b"1", b"*", *(word for pair in pairs for word in pair)])
        for pairs in rows
    )
    assert packed(packer, len(rows)) == expected


@pytest.mark.parametrize("limit", [1, 40, 41, 500, 1 << 20])
def test_a_pack_ends_behind_the_row_that_reaches_the_limit(limit: int) -> None:
    packer = RowPacker([b"XADD", b"k"])
    packer.rows_of([as_column(pa.array(["v" * 10] * 50), "f")], None)
    one = len(pack_command([b"XADD", b"k", b"*", b"f", b"v" * 10]))
    row = packer.pack(0, 50, limit)
    assert row == min(50, -(-limit // one))
    assert packer.commands == row
    assert packer.used == row * one
    assert packer.pack(row, 50, limit) == row  # full until it is taken
    assert len(packer.take_bytes()) == row * one
    assert (packer.used, packer.commands) == (0, 0)


@pytest.mark.parametrize("size", [0, 15, 16, 17, 31, 32, 33, 65_000, 65_536, 70_000, 1_000_000])
def test_a_value_crosses_the_growth_of_the_buffer(size: int) -> None:
    packer = RowPacker([b"XADD", b"k"])
    cells = [b"a" * size, b"", b"b" * size, None, b"c" * (size + 1)]
    packer.rows_of([as_column(pa.array(["x"] * 5), "always"), as_column(pa.array(cells, pa.binary()), "f")], None)
    rows = [row[6] if len(row) > 5 else None for row in commands(packed(packer, 5, 1 << 30))]
    assert rows == cells


def test_the_word_after_the_id_follows_it() -> None:
    """With IDMP, the column of IDs holds the names of messages, and the server chooses the ID."""
    packer = RowPacker([b"XADD", b"k", b"IDMP", b"producer"], b"*")
    packer.rows_of([as_column(pa.array(["v", "w"]), "f")], as_column(pa.array(["m1", "m2"])))
    assert commands(packed(packer, 2)) == [
        [b"XADD", b"k", b"IDMP", b"producer", name, b"*", b"f", value] for name, value in ((b"m1", b"v"), (b"m2", b"w"))
    ]


def test_a_null_name_in_a_map_is_an_error() -> None:
    packer = RowPacker([b"XADD", b"k"])
    names, values = as_column(pa.array([None, "b"], pa.string())), as_column(pa.array(["1", "2"]))
    packer.rows_of_map(struct.pack("=2i", 0, 2), 0, names, values, None)
    with pytest.raises(ValueError, match="null name"):
        packer.pack(0, 1, 100)


@pytest.mark.parametrize(
    "ends", [b"", bytes(4), struct.pack("=2i", 0, 3), struct.pack("=2i", -1, 1), struct.pack("=2i", 0, 2**31 - 1)]
)
def test_offsets_of_a_map_outside_its_arrays_are_an_index_error(ends: bytes) -> None:
    packer = RowPacker([b"XADD", b"k"])
    column = as_column(pa.array(["1", "2"]))
    packer.rows_of_map(ends, 0, column, column, None)
    with pytest.raises(IndexError):
        packer.pack(0, 1, 100)
