"""Arrow schemas into columns, and columns into record batches."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns import column as kinds  # noqa: E402
from rillet.columns.arrow_batch import NullValue, kind_of, record_batch, rows_for  # noqa: E402
from rillet.columns.resp_decoder import DONE, RangeDecoder  # noqa: E402
from tests.columns.model import ENTRIES, Entry, expected_default, reply  # noqa: E402
from tests.columns.test_resp_decoder import DEFAULT, as_rows, decode  # noqa: E402

KINDS = [
    (pa.string(), kinds.STRING),
    (pa.large_string(), kinds.STRING),
    (pa.binary(), kinds.BINARY),
    (pa.large_binary(), kinds.BINARY),
    (pa.bool_(), kinds.BOOLEAN),
    (pa.int8(), kinds.BYTE),
    (pa.int16(), kinds.SHORT),
    (pa.int32(), kinds.INT),
    (pa.int64(), kinds.LONG),
    (pa.float32(), kinds.FLOAT),
    (pa.float64(), kinds.DOUBLE),
    (pa.timestamp("us"), kinds.TIMESTAMP),
    (pa.timestamp("us", tz="Asia/Tokyo"), kinds.TIMESTAMP),
    (pa.date32(), kinds.DATE),
    (pa.decimal128(38, 38), kinds.DECIMAL),
    (pa.struct([("a", pa.int8())]), kinds.JSON),
    (pa.list_(pa.list_(pa.string())), kinds.JSON),
    (pa.map_(pa.string(), pa.date32()), kinds.JSON),
]
REJECTED = [
    pa.null(), pa.uint8(), pa.uint64(), pa.float16(), pa.timestamp("ns"), pa.timestamp("s"), pa.date64(),
    pa.time64("us"), pa.duration("us"), pa.decimal256(40, 2), pa.binary(4), pa.list_(pa.uint8()),
    pa.struct([("a", pa.timestamp("ms"))]), pa.map_(pa.int32(), pa.string()), pa.map_(pa.string(), pa.uint8()),
    pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.struct([("a", pa.null())])),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("type_", "kind"), KINDS, ids=str)
def test_every_supported_type_has_a_kind(type_: Any, kind: int) -> None:
    assert kind_of(type_) == kind
    schema = pa.schema([("f", type_)])
    assert record_batch(rows_for(schema, b"k"), schema).schema == schema


@pytest.mark.parametrize("type_", REJECTED, ids=str)
def test_every_other_type_is_rejected_by_the_columns_name(type_: Any) -> None:
    assert kind_of(type_) is None
    with pytest.raises(ValueError, match=r"column 'f' cannot be .*supported: string, binary, boolean"):
        rows_for(pa.schema([("ok", pa.string()), ("f", type_)]), b"k")


@pytest.mark.parametrize(
    ("name", "type_"),
    [("id", pa.binary()), ("id_ms", pa.int32()), ("id_seq", pa.string()), ("timestamp", pa.int64()),
     ("stream", pa.int64()), ("fields", pa.string()), ("fields", pa.map_(pa.binary(), pa.string())),
     ("fields", pa.map_(pa.string(), pa.int64()))],
)  # fmt: skip
def test_the_entrys_own_columns_have_one_type(name: str, type_: Any) -> None:
    with pytest.raises(ValueError, match=f"column '{name}'"):
        rows_for(pa.schema([(name, type_)]), b"k")


@pytest.mark.parametrize("name", ["id", "id_ms", "id_seq", "timestamp", "stream", "fields", "_corrupt"])
@pytest.mark.parametrize("spark", [False, True])
def test_a_field_with_a_reserved_name_is_reached_through_metadata(name: str, spark: bool) -> None:
    """Spark packs a column's metadata into one JSON text; pyarrow keeps it plain."""
    metadata = {"SPARK::metadata::json": json.dumps({"field": name, "comment": 1})} if spark else {"field": name}
    schema = pa.schema([pa.field("column", pa.string(), metadata=metadata), ("id", pa.string())])
    table = decode(reply([(1, 2, [(name.encode(), b"value")])]), schema)
    assert table.to_pylist() == [{"column": "value", "id": "1-2"}]


def test_metadata_that_names_no_text_is_ignored() -> None:
    metadata = {"SPARK::metadata::json": json.dumps({"field": 5}), "other": "x"}
    schema = pa.schema([pa.field("n", pa.string(), metadata=metadata)])
    assert decode(reply([(1, 2, [(b"n", b"value")])]), schema).to_pylist() == [{"n": "value"}]


@pytest.mark.slow
@given(ENTRIES)
def test_large_strings_and_plain_ones_hold_the_same(entries: list[Entry]) -> None:
    fields = [("user", pa.string(), pa.large_string()), ("n", pa.binary(), pa.large_binary())]
    small = decode(reply(entries), pa.schema([(name, type_) for name, type_, _ in fields]))
    large = decode(reply(entries), pa.schema([(name, type_) for name, _, type_ in fields]))
    assert small.to_pylist() == large.to_pylist()
    assert [column.type for column in large.columns] == [type_ for _, _, type_ in fields]


@pytest.mark.slow
@given(ENTRIES, st.integers(0, 6))
def test_a_batch_leaves_out_the_entry_that_has_not_arrived(entries: list[Entry], cut: int) -> None:
    rows = rows_for(DEFAULT, b"events")
    decoder = RangeDecoder(rows)
    data = reply([*entries, (5, 5, [(b"name", b"value")] * 3)])
    decoder.feed(data[: len(data) - 2 - 3 * cut])
    decoder.decode()
    batch = record_batch(rows, DEFAULT)
    batch.validate(full=True)
    assert as_rows(pa.Table.from_batches([batch])) == expected_default(b"events", entries)
    decoder.feed(data[len(data) - 2 - 3 * cut :])
    assert decoder.decode() == DONE
    assert record_batch(rows, DEFAULT).num_rows == 1


def test_a_batch_keeps_its_values_when_the_next_one_is_built() -> None:
    rows = rows_for(DEFAULT, b"events")
    decoder = RangeDecoder(rows)
    batches = []
    for number in range(1, 6):
        decoder.feed(reply([(number, 0, [(b"f", b"%d" % number * 50)])]))
        assert decoder.decode() == DONE
        batches.append(record_batch(rows, DEFAULT))
    assert [batch.column(1)[0].as_py() for batch in batches] == [f"{number}-0" for number in range(1, 6)]
    assert [batch.column(5)[0].as_py() for batch in batches] == [[("f", str(n) * 50)] for n in range(1, 6)]


@pytest.mark.parametrize("type_", [pa.int64(), pa.struct([("a", pa.int8())]), pa.decimal128(5, 2), pa.date32()])
def test_a_null_in_a_column_without_nulls_names_the_column_and_the_count(type_: Any) -> None:
    schema = pa.schema([("id", pa.string()), pa.field("f", type_, nullable=False)])
    with pytest.raises(NullValue, match="column 'f' is declared NOT NULL, but 2 of 3 entries"):
        decode(reply([(1, 1, [(b"f", b"x")]), (1, 2, []), (1, 3, [(b"f", b"{}" if type_.num_fields else b"1")])] if
                     type_ != pa.date32() else [(1, 1, [(b"f", b"x")]), (1, 2, []), (1, 3, [(b"f", b"2013-01-01")])]),
               schema)  # fmt: skip


def test_an_empty_schema_counts_rows() -> None:
    rows = rows_for(pa.schema([]), b"k")
    decoder = RangeDecoder(rows)
    decoder.feed(reply([(1, 1, [(b"f", b"x")]), (1, 2, [(b"f", b"x")])]))
    assert decoder.decode() == DONE
    assert rows.length == 2
