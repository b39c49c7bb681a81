"""Streams as tables and back: the same through every kind of store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

import rillet  # noqa: E402
from rillet import Store  # noqa: E402
from rillet.client.pages import PageRange  # noqa: E402
from rillet.columns.column import NotPlain  # noqa: E402
from rillet.columns.row_builder import MOST_FIELDS  # noqa: E402
from rillet.errors import CommandError, StoreClosed, StoreError, WrongType  # noqa: E402
from rillet.store.tables import arrow  # noqa: E402
from rillet.store.tables.schema_inference import schema_of, typed  # noqa: E402
from rillet.types.stream.id import StreamID  # noqa: E402
from tests.cluster import running_cluster  # noqa: E402
from tests.judge import redis_binary  # noqa: E402
from tests.server.harness import running  # noqa: E402
from tests.store.conftest import RILLET  # noqa: E402

MOMENT = pa.timestamp("us", "UTC")


def fields(n: int) -> dict[str, Any]:
    """Return the fields of entry n: of one order and of another, some more, with a name of ours and bytes."""
    plain = {"n": n, "price": f"{n}.5", "who": f"user-{n % 3}", "zip": "02134"}
    if n % 5 == 0:
        return {**plain, "id": "mine", "raw": b"\xff\x00"}
    return plain if n % 3 else dict(reversed(plain.items()))


def filled(store: Store, entries: int = 60) -> Any:
    stream = store.stream("events")
    stream.add_many([(f"{1000 + n}-{n % 2}", fields(n)) for n in range(entries)])
    return stream


def rows(stream: Any) -> list[dict[str, Any]]:
    """Return what a table of the stream has to hold."""
    found = []
    for entry in stream:
        told = entry.fields
        found.append({
            "id": str(entry.id), "timestamp": datetime.fromtimestamp(entry.id.ms / 1000, UTC), "n": int(told["n"]),
            "price": float(told["price"]), "who": told["who"], "zip": told["zip"], "id_field": told.get("id"),
            "raw": "\ufffd\0" if "raw" in told else None,
        })  # fmt: skip
    return found


def test_every_field_has_a_column_of_its_type(store: Store) -> None:
    stream = filled(store)
    stream.delete("1007-1", "1010-0")
    table = stream.to_arrow()
    assert sorted(table.to_pylist(), key=lambda row: row["id"]) == sorted(rows(stream), key=lambda row: row["id"])
    assert table.column("id").to_pylist() == [str(entry.id) for entry in stream]
    kinds = {"id": pa.string(), "timestamp": MOMENT, "n": pa.int64(), "price": pa.float64(), "zip": pa.string()}
    assert {name: table.schema.field(name).type for name in kinds} == kinds
    assert stream.to_arrow(schema=table.schema).equals(table)  # the schema knows which field `id_field` is


def test_a_schema_and_columns_say_what_is_wanted(store: Store) -> None:
    stream = filled(store)
    table = stream.to_arrow("1002", "(1005-1", schema="id string, n double, raw binary, id_ms bigint")
    assert table.to_pydict() == {
        "id": ["1002-0", "1003-1", "1004-0"], "n": [2.0, 3.0, 4.0], "raw": [None] * 3, "id_ms": [1002, 1003, 1004],
    }  # fmt: skip
    assert stream.to_arrow(count=2, schema=table.schema, columns=["n"]).to_pydict() == {"n": [0.0, 1.0]}
    assert stream.to_arrow(count=2, columns=["who", "n", "absent", "id"]).to_pydict() == {
        "who": ["user-0", "user-1"], "n": [0, 1], "absent": [None, None], "id": ["1000-0", "1001-1"],
    }  # fmt: skip
    mapped = stream.to_arrow(count=2, fields="map").column("fields").to_pylist()
    assert [dict(pairs)["n"] for pairs in mapped] == ["0", "1"]


def test_pieces_of_any_size_are_the_stream(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH", 7)
    monkeypatch.setattr(arrow, "PAGE", 3)
    monkeypatch.setattr(arrow, "CHUNK", 100)
    stream = filled(store)
    ids = [str(entry.id) for entry in stream]
    for count in (0, 1, 6, 7, 8, 30, 59, 60, 100, None):
        assert stream.to_arrow(count=count).column("id").to_pylist() == ids[:count]
        assert stream.to_arrow(count=count, columns=["n"]).column("n").to_pylist() == list(range(60))[:count]
        assert len(stream) == 60  # the connection is as it was


def test_a_table_comes_back_as_it_went(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "CHUNK", 500)
    source = filled(store)
    table = source.to_arrow(columns=["id", "n", "price", "who", "zip"])
    copy = store.stream("copy")
    assert copy.add_arrow(table, id_column="id") == 60
    assert copy.to_arrow(columns=table.schema.names).equals(table)
    again = store.stream("again")
    assert again.add_arrow(source.to_arrow(fields="map"), id_column="id") == 60
    assert [entry.fields for entry in again] == [
        {**entry.fields, **({"raw": "\ufffd\0"} if "raw" in entry.fields else {})} for entry in source
    ]
    assert store.stream("short").add_arrow(table.slice(10), maxlen=5, approximate=False) == 50
    assert [entry["n"] for entry in store.stream("short")] == ["55", "56", "57", "58", "59"]


@RILLET
def test_a_table_is_added_with_a_policy_for_references(store: Store) -> None:
    stream = store.stream("s")
    stream.add_many((n, {"n": n}) for n in range(1, 4))
    group = stream.group("g")
    assert len(group.consumer("c").read(2)) == 2
    table = pa.table({"n": [4, 5]})
    assert stream.add_arrow(table, maxlen=1, approximate=False, ref_policy="ACKED") == 2
    assert [entry["n"] for entry in stream] == ["1", "2", "3", "4", "5"]  # no group has acknowledged them
    assert stream.add_arrow(table, maxlen=1, approximate=False, ref_policy="DELREF") == 2
    assert (stream.length(), group.pending_count()) == (1, 0)
    with pytest.raises(ValueError, match="limit is the most entries that a trim removes: pass maxlen or minid too"):
        stream.add_arrow(table, limit=3)


def test_what_values_are_as_texts(store: Store) -> None:
    table = pa.table({
        "at": pa.array([datetime(2024, 5, 1, 12, tzinfo=UTC), None], MOMENT), "day": [date(2024, 5, 1), None],
        "yes": [True, None], "half": [0.5, None], "raw": [b"\xff", None], "word": ["x", "y"], "big": [2**40, 7],
        "coded": pa.array(["a", "b"]).dictionary_encode(), "long": pa.array(["a", None], pa.large_string()),
    })  # fmt: skip
    stream = store.stream("values")
    assert stream.add_arrow(table) == 2
    first, second = stream
    assert first.pairs == [
        (b"at", b"2024-05-01T12:00:00.000000Z"), (b"day", b"2024-05-01"), (b"yes", b"true"), (b"half", b"0.5"),
        (b"raw", b"\xff"), (b"word", b"x"), (b"big", b"1099511627776"), (b"coded", b"a"), (b"long", b"a"),
    ]  # fmt: skip
    assert second.pairs == [(b"word", b"y"), (b"big", b"7"), (b"coded", b"b")]
    moments = store.stream("moments")
    moments.add_arrow(table.slice(0, 1), id_column="at", columns=["word"])
    moments.add_arrow(table.slice(0, 1), id_column="at", columns=["word"])
    assert [entry.id for entry in moments] == [(1714564800000, 0), (1714564800000, 1)]


def test_a_row_that_is_refused_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "CHUNK", 100)
    stream = store.stream("events")
    table = pa.table({"key": [f"{n}-1" for n in range(1, 40)], "n": list(range(1, 40))})
    table = table.set_column(0, "key", pa.array([*table.column("key").to_pylist()[:30], "7-1", *["90-1"] * 8]))
    with pytest.raises(CommandError, match=r"ID specified in XADD is equal or smaller.*\(row 30\)$"):
        stream.add_arrow(table, id_column="key")
    assert stream.range("30-1", "30-1")[0]["n"] == "30"
    with pytest.raises(ValueError, match="^row 2: a row has nothing but nulls"):
        store.stream("nulls").add_arrow(pa.table({"n": [1, 2, None]}))
    with pytest.raises(ValueError, match="^row 1: the ID column holds a null"):
        store.stream("nulls").add_arrow(pa.table({"key": ["5-1", None], "n": [1, 2]}), id_column="key")
    store.execute("SET", "text", "x")
    with pytest.raises(WrongType):
        store.stream("text").add_arrow(pa.table({"n": [1]}))


def test_what_cannot_be_read_is_refused_as_elsewhere(store: Store) -> None:
    store.execute("SET", "text", "x")
    with pytest.raises(WrongType):
        store.stream("text").to_arrow()
    with pytest.raises(CommandError, match="Invalid stream ID"):
        store.stream("events").to_arrow("no-id")
    empty = store.stream("absent").to_arrow()
    assert empty.num_rows == 0
    assert empty.schema.names == ["id", "timestamp"]
    assert filled(store).to_arrow("5000").num_rows == 0
    store.close()
    with pytest.raises(StoreClosed):
        store.stream("events").to_arrow()
    with pytest.raises(StoreClosed):
        store.stream("events").add_arrow(pa.table({"n": [1]}))


# -- what does not depend on the kind of store ------------------------------------------------------------------------


def test_changes_between_two_pages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH", 10)
    monkeypatch.setattr(arrow, "PAGE", 1)  # a page of nodes has one node
    with rillet.open(stream_node_max_entries=10) as store:
        stream = filled(store)
        columns = arrow.Columns(stream.key, "n bigint", None, "infer")
        pieces = arrow.batches(stream, columns, PageRange(stream.key, StreamID(0, 0), StreamID(2**63, 0)))
        next(pieces)  # the next page is requested, but the engine has not run the request
        columns.finish_batch()
        stream.trim(minid="1040-0")
        stream.add({"n": 99})
        for _ in pieces:
            columns.finish_batch()
        assert columns.table().column("n").to_pylist() == [*range(20), *range(40, 60), 99]


def test_a_stream_of_too_many_fields_says_what_to_do() -> None:
    with rillet.open() as store:
        stream = store.stream("wide")
        stream.add_many([{f"field-{n}": n for n in range(part, MOST_FIELDS, 10)} for part in range(10)])
        assert stream.to_arrow().num_columns == MOST_FIELDS + 2
        stream.add({"one more": 1})
        with pytest.raises(StoreError, match=r"'wide' has more than 1,000 different fields: pass columns.*\"map\""):
            stream.to_arrow()
        assert stream.to_arrow(fields="map").num_rows == 11


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-7", None, ""], pa.int64()), (["9223372036854775807"], pa.int64()),
        (["9223372036854775808"], pa.float64()), (["1", "007"], pa.string()), (["+7"], pa.int64()),
        (["1", "2.5", "-1e3", "nan"], pa.float64()), (["0.5", "00.5"], pa.string()), (["-0.5", "-0"], pa.float64()),
        (["1 "], pa.int64()), (["true", "FALSE", ""], pa.bool_()), (["true", "1"], pa.string()),
        (["2024-05-01"], pa.date32()), (["2024-05-01", "2024-02-30"], pa.string()),
        (["2024-05-01T12:00:00Z", "2024-05-01 12:00:00.5+02:00"], MOMENT), (["2024-05-01T12:00", "2024-05-01"], MOMENT),
        (["2024-05-01T12:00:00Z", "2024-05-01T12:00:00"], MOMENT), (["", None], pa.string()), ([], pa.string()),
        (["x"], pa.string()), ([*["1"] * 100, "x"], pa.string()), ([*["1"] * 100, "1.5"], pa.float64()),
    ],
)  # fmt: skip
def test_a_type_is_one_that_every_value_fits(values: list[str | None], kind: Any) -> None:
    column = pa.chunked_array([pa.array(values[:2], pa.string()), pa.array(values[2:], pa.string())])
    found = typed(column)
    assert found.type == kind
    if kind != pa.string():
        assert [value is None for value in found.to_pylist()] == [not value for value in values]


CELL = st.one_of(
    st.none(), st.just(""), st.integers(-(2**64), 2**64).map(str), st.floats().map(repr),
    st.decimals(-1000, 1000, places=2).map(str),
    st.sampled_from(["007", "-0", "0", "+7", ".5", "5.", "00.5", "1e400", "1e-400", "1e5", " 1", "n/a", "NaN", "-",
                     "-.5", "0e5", "9223372036854775808", "9007199254740993", "true", "2024-05-01", "1_0", "0x10"]),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.one_of(st.lists(CELL, min_size=1), st.lists(st.integers().map(str), min_size=1)), max_size=4))
@example([["1", "2"], ["3", "2.5"], ["4"]])
@example([["9007199254740993"], ["1.5"], ["9007199254740993"]])
@example([[None, ""], ["1", ""], ["2.5", "nan"], ["inf"]])
@example([["1.50", "2"], ["1"], ["n/a"]])
def test_a_type_found_early_is_the_one_that_all_texts_have(pieces: list[list[str | None]]) -> None:
    cells = [cell for piece in pieces for cell in piece]
    tables = []
    with rillet.open() as store:
        stream = store.stream("events")
        for number, cell in enumerate(cells):
            stream.add({"always": "x", **({} if cell is None else {"f": cell})}, id=f"{number + 1}-0")
        for early in (True, False):
            found = arrow.Columns(stream.key, None, None, "infer", early)
            after = StreamID(0, 0)
            try:
                for piece in pieces:
                    pages = PageRange(stream.key, after, StreamID(2**63, 0), len(piece))
                    for _ in arrow.batches(stream, found, pages):
                        found.finish_batch()
                    after = StreamID(after.ms + len(piece), 0)
                tables.append(found.table())
            except NotPlain:
                assert early
    assert len({repr(table.to_pydict()) for table in tables}) == 1  # as texts: nan is not nan
    assert [table.schema for table in tables] == [tables[0].schema] * len(tables)
    if "f" in tables[0].schema.names:
        assert tables[0].column("f").type == typed(pa.chunked_array([pa.array(cells, pa.string())])).type


@pytest.mark.parametrize("early", [True, False])
def test_numbers_that_end_late_are_read_again_as_texts(monkeypatch: pytest.MonkeyPatch, early: bool) -> None:
    monkeypatch.setattr(arrow, "BATCH", 7)
    monkeypatch.setattr(arrow.Columns.__init__, "__defaults__", (early,))
    with rillet.open() as store:
        stream = store.stream("events")
        stream.add_many([{"n": n, "x": f"{n}.50", "y": "" if n < 9 else n} for n in range(40)])
        assert stream.to_arrow(columns=["n", "x", "y"]).to_pydict() == {
            "n": list(range(40)), "x": [n + 0.5 for n in range(40)], "y": [None] * 9 + list(range(9, 40)),
        }  # fmt: skip
        stream.add({"n": 1.5, "x": "n/a", "y": 7})
        table = stream.to_arrow()
        assert table.column("x").to_pylist() == [*(f"{n}.50" for n in range(40)), "n/a"]
        assert table.column("n").to_pylist() == [*map(float, range(40)), 1.5]


def test_schemas_are_read_as_spark_writes_them() -> None:
    text = "id string, `odd ``name` : decimal(5,2), tags array<string>, at timestamp, "
    assert schema_of(text + "m map<string, binary>, s struct<a:int,b:date>") == pa.schema([
        ("id", pa.string()), ("odd `name", pa.decimal128(5, 2)), ("tags", pa.list_(pa.string())), ("at", MOMENT),
        ("m", pa.map_(pa.string(), pa.binary())), ("s", pa.struct([("a", pa.int32()), ("b", pa.date32())])),
    ])  # fmt: skip
    for wrong, told in (("id", "not 'id'"), ("id text", "'text' is not a type"), ("", "''"),
                        ("n decimal(1,2,3)", r"'decimal\(1,2,3\)' is not a type")):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            schema_of(wrong)


def test_contradictions_are_said_at_once() -> None:
    with rillet.open() as store:
        stream = filled(store)
        for how, told in (
            ({"fields": "all"}, 'fields must be "infer" or "map"'), ({"columns": ["fields"]}, 'fields="map"'),
            ({"schema": "n bigint", "columns": ["m"]}, "not in the schema: m"),
            ({"columns": ["n", "n"]}, "two columns"),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=told):
                stream.to_arrow(**how)
        table = pa.table({"id": ["1-1"], "tags": [["a"]]})
        for more, told in (
            ({}, "'tags' is list.*no text"), ({"columns": ["x"]}, "no column 'x'"),
            ({"id_column": "x", "columns": ["id"]}, "no column 'x'"), ({"columns": []}, "no column remains"),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=told):
                stream.add_arrow(table, **more)


def test_a_range_becomes_a_pandas_frame() -> None:
    pandas = pytest.importorskip("pandas")
    with rillet.open() as store:
        stream = filled(store)
        frame = stream.to_pandas(columns=["id", "n", "who"])
        assert isinstance(frame, pandas.DataFrame)
        assert frame["n"].sum() == sum(range(60))
        assert store.stream("frame").add_arrow(frame) == 60
        assert store.stream("frame").to_pandas(columns=["n"], split_blocks=True)["n"].tolist() == list(range(60))
        assert asyncio.run(_by_tasks(store)) == 60


async def _by_tasks(store: Store) -> int:
    stream = store.aio().stream("tasks")
    await stream.add_arrow(await store.aio().stream("events").to_arrow(count=60))
    return len(await stream.to_pandas())


def test_a_range_becomes_a_polars_frame() -> None:
    polars = pytest.importorskip("polars")
    with rillet.open() as store:
        stream = filled(store)
        frame = stream.to_polars("1010", "1019")
        assert isinstance(frame, polars.DataFrame)
        assert frame["n"].to_list() == list(range(10, 20))
        assert store.stream("frame").add_arrow(frame.select("n", "who")) == 10


@pytest.mark.parametrize(
    ("module", "call"),
    [("pyarrow", "to_arrow"), ("pandas", "to_pandas"), ("polars", "to_polars"), ("pyarrow", "add_arrow")],
)
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, module: str, call: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with rillet.open() as store:
        wanted: Callable[..., Any] = getattr(store.stream("events"), call)
        extra = "arrow" if module == "pyarrow" else module
        with pytest.raises(StoreError, match=rf"^{call} needs {module}: pip install 'rillet\[{extra}\]'"):
            wanted(*([None] if call == "add_arrow" else []))


def test_a_rillet_server_ships_nodes(tmp_path: Path) -> None:
    with running(tmp_path) as server, rillet.connect(f"redis://127.0.0.1:{server.port}") as store:
        stream = filled(store)
        assert stream.to_arrow().column("n").to_pylist() == [entry.fields["n"] and int(entry["n"]) for entry in stream]
        assert stream.to_arrow(count=7).num_rows == 7
        assert stream.to_arrow("1003", columns=["n"]).num_rows == 57
        told = store.execute("INFO", "commandstats").decode()
        assert "cmdstat_rillet.xnodes:calls=3," in told
        store.execute("SET", "text", "x")
        with pytest.raises(WrongType):
            store.stream("text").to_arrow()


def test_a_cluster_that_moves_slots_is_followed() -> None:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_cluster() as cluster, rillet.connect(cluster.url) as store:
        stream = filled(store)
        expected = stream.to_arrow()
        assert expected.num_rows == 60
        with cluster.moving("events") as moving:
            moving.migrate()  # ASK
            assert stream.to_arrow().equals(expected)
            assert stream.add_arrow(expected.select(["n"])) == 60
            moving.finish()  # MOVED
            assert stream.to_arrow(count=60).equals(expected)
        with cluster.moving("events") as moving:
            moving.migrate()
            moving.finish()
            assert stream.add_arrow(expected.select(["n"])) == 60
            assert len(stream) == 180
