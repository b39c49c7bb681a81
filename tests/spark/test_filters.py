"""Filter push-down returns the same rows as Spark's own filters, and reads fewer entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from rillet.spark.options import parse
from rillet.spark.read.filters import EVERYTHING, Pushed, complement, ids_before, ids_from, intersection, union
from rillet.spark.read.offsets import identifier, number
from rillet.spark.source import BatchReader, FilteringReader, RilletDataSource
from rillet.types.stream.id import MAX, StreamID
from tests.judge import Judge
from tests.spark.conftest import entry_id
from tests.variants import by_speed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    StructType().add("stream", "string").add("id", "string").add("id_ms", "long").add("id_seq", "long")
    .add("timestamp", "timestamp").add("n", "long")
)  # fmt: skip
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# ---- Spark's comparisons, in Python --------------------------------------------------------------------------------


def row_of(stream: str, at: StreamID) -> dict[str, Any]:
    """Return an entry's own columns as Spark sees them."""
    signed = [half - (1 << 64) if half >= 1 << 63 else half for half in at]
    micros = at.ms * 1000
    return {
        "stream": stream,
        "id": str(at),
        "id_ms": signed[0],
        "id_seq": signed[1],
        "timestamp": micros if micros < 1 << 63 else None,
    }


def order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def literal(value: Any) -> Any:
    """Return a literal in the form of a row: timestamps as microseconds."""
    return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value


def holds(one: ds.Filter, row: dict[str, Any]) -> bool | None:
    """Return what Spark says of a filter: true, false or null."""
    if isinstance(one, ds.Not):
        inner = holds(one.child, row)
        return None if inner is None else not inner
    found = row[one.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(one, (ds.IsNull, ds.IsNotNull)):
        return (found is None) is isinstance(one, ds.IsNull)
    value = one.value  # type: ignore[attr-defined]
    if isinstance(one, ds.EqualNullSafe):
        return bool(found == literal(value))
    if isinstance(one, ds.In):
        values = [literal(each) for each in value]
        return None if found is None else True if found in values else None if None in values else False
    if found is None or value is None:
        return None
    if isinstance(one, ds.StringStartsWith):
        return bool(found.startswith(value))
    left, right = order(found), order(literal(value))
    if isinstance(one, ds.EqualTo):
        return bool(left == right)
    if isinstance(one, ds.GreaterThan):
        return bool(left > right)
    if isinstance(one, ds.GreaterThanOrEqual):
        return bool(left >= right)
    return bool(left < right) if isinstance(one, ds.LessThan) else bool(left <= right)


# ---- IDs and filters around them -----------------------------------------------------------------------------------

NEAR = st.sampled_from([0, 1, 9, 10, 11, 99, 100, 101, 1526919030474, (1 << 63) // 1000, (1 << 63) - 1, 1 << 63, MAX])
HALVES = st.one_of(NEAR, st.builds(lambda n, d: min(max(n + d, 0), MAX), NEAR, st.integers(-3, 3)), st.integers(0, MAX))
IDS = st.builds(StreamID, HALVES, HALVES)
STREAMS = st.sampled_from(["a", "b", "events", "é", "z9"])
TEXTS = st.one_of(
    IDS.map(str), IDS.flatmap(lambda at: st.integers(0, len(str(at))).map(lambda cut: str(at)[:cut])),
    HALVES.map(str), st.text(st.sampled_from("0123456789-:/ é\x7f"), max_size=6),
)  # fmt: skip
LONGS = st.one_of(HALVES.map(lambda half: half - (1 << 64) if half >= 1 << 63 else half), st.integers(-5, 5))
MOMENTS = st.one_of(
    st.integers(-3000, 3000).map(lambda micros: EPOCH + timedelta(microseconds=micros)),
    st.integers(0, 9_999_999_999_999).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
    st.datetimes(datetime(1960, 1, 1), datetime(9999, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC)),
)
VALUES = {"stream": st.one_of(STREAMS, TEXTS), "id": TEXTS, "id_ms": LONGS, "id_seq": LONGS, "timestamp": MOMENTS}
COMPARED = [ds.EqualTo, ds.EqualNullSafe, ds.GreaterThan, ds.GreaterThanOrEqual, ds.LessThan, ds.LessThanOrEqual]


def filters_of(column: str) -> st.SearchStrategy[ds.Filter]:
    path, values = (column,), st.one_of(VALUES[column], st.none())
    plain = [st.builds(kind, st.just(path), values) for kind in COMPARED]
    plain.append(st.builds(ds.In, st.just(path), st.lists(values, max_size=4).map(tuple)))
    plain += [st.just(ds.IsNull(path)), st.just(ds.IsNotNull(path))]
    if column in ("stream", "id"):
        plain.append(st.builds(ds.StringStartsWith, st.just(path), VALUES[column]))
    return st.one_of([*plain, st.one_of(plain).map(ds.Not)])


FILTERS = st.sampled_from(sorted(VALUES)).flatmap(filters_of)


@settings(max_examples=by_speed(50, 50, 120), deadline=None)
@given(st.lists(FILTERS, min_size=1, max_size=3), st.lists(IDS, max_size=30), STREAMS)
def test_a_conjunction_keeps_the_rows_that_spark_would(filters: list[Any], ids: list[StreamID], stream: str) -> None:
    pushed = Pushed.on(SCHEMA)
    left = pushed.push(filters)
    assert all(any(one is other for other in filters) for one in left)
    entries = sorted({*ids, *(at for one in filters for at in ids_in(one))})
    expected = [at for at in entries if all(holds(one, row_of(stream, at)) for one in filters)]
    found: list[StreamID] = []
    if pushed.keeps(stream) and entries and entries[0] > StreamID(0, 0):
        after, last = pushed.bounds(identifier(number(entries[0]) - 1), entries[-1])
        task = pushed.clip(((stream, after, last),)) if after < last else ()
        found = [at for _, low, high in task for at in entries if low < at <= high]
    elif pushed.keeps(stream):
        expected = [at for at in expected if at > StreamID(0, 0)]  # there is no entry 0-0
        task = pushed.clip(((stream, StreamID(0, 0), StreamID(MAX, MAX)),))
        found = [at for _, low, high in task for at in entries if low < at <= high]
    assert [at for at in found if all(holds(one, row_of(stream, at)) for one in left)] == expected


def ids_in(one: Any) -> Iterator[StreamID]:
    """Yield the IDs that a filter's literals name, and their neighbours."""
    one = one.child if isinstance(one, ds.Not) else one
    value = getattr(one, "value", ())
    for each in value if isinstance(value, tuple) else (value,):
        try:
            at = number(StreamID.parse(each)) if isinstance(each, str) else None
        except ValueError:
            continue
        if isinstance(each, int):
            at = (each % (1 << 64)) << 64
        if isinstance(each, datetime):
            at = max(literal(each) // 1000, 0) << 64
        if at is not None:
            yield from (identifier(near) for near in (at - 1, at, at + 1, at + MAX) if 0 < near < 1 << 128)


@settings(max_examples=by_speed(60, 60, 150), deadline=None)
@given(TEXTS, IDS)
def test_sets_of_texts_are_exact(text: str, at: StreamID) -> None:
    inside = any(low <= number(at) <= high for low, high in ids_before(text))
    assert inside == (str(at).encode() < text.encode())
    assert any(low <= number(at) <= high for low, high in ids_from(text)) == str(at).startswith(text)


PIECES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=6)


@given(PIECES, PIECES)
def test_intervals_are_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    def members(pieces: Any) -> set[int]:
        return {n for low, high in pieces for n in range(low, min(high, 70) + 1)}

    first, second = union(one), union(other)
    assert members(first) == members(one)
    assert members(intersection(first, second)) == members(one) & members(other)
    assert members(complement(first)) == set(range(71)) - members(one)
    assert complement(complement(first)) == first
    assert union((*first, *complement(first))) == EVERYTHING


def test_filters_on_other_columns_stay_with_spark() -> None:
    schema = (
        StructType().add("n", "long").add("id", "string", metadata={"field": "id"}).add("timestamp", "timestamp_ntz")
    )
    pushed = Pushed.on(schema)
    kept = [
        ds.EqualTo(("n",), 1),
        ds.EqualTo(("id",), "1-0"),
        ds.EqualTo(("fields", "n"), "1"),
        ds.GreaterThan(("timestamp",), datetime(2024, 1, 1, tzinfo=UTC)),
        ds.StringContains(("id",), "1"),
    ]
    assert pushed.push(kept) == kept
    assert pushed.push([ds.GreaterThan(("timestamp",), datetime(2024, 1, 1))]) == []
    assert pushed.bounds(StreamID(5, 0), StreamID(9, 0)) == (StreamID(9, 0), StreamID(9, 0))


def rows(reader: BatchReader) -> list[tuple[str, int]]:
    return [
        pair
        for part in reader.partitions()
        for batch in reader.read(part)
        for pair in zip(batch.column("stream").to_pylist(), batch.column("n").to_pylist(), strict=True)
    ]


def test_a_reader_requests_only_selected_entries(judge: Judge, url: str, add: Callable[..., None]) -> None:
    add(range(1000))
    add(range(1000), "other")
    given = parse({"url": url, "streams": "events,other"})
    reader = FilteringReader(given, SCHEMA, 2)
    wanted = [entry_id(n) for n in (7, 8, 500)]
    assert reader.pushFilters([ds.In(("id",), tuple(wanted)), ds.EqualTo(("stream",), "other")]) == []
    assert rows(reader) == [("other", 7), ("other", 8), ("other", 500)]
    with judge.client() as client:
        client.execute_command("CONFIG", "RESETSTAT")
        nothing = FilteringReader(given, SCHEMA, 2)
        nothing.pushFilters([ds.LessThan(("id_ms",), 5)])
        assert rows(nothing) == []
        assert b"cmdstat_xrange" not in client.execute_command("INFO", "commandstats")
    assert "pushFilters" not in dir(BatchReader) or BatchReader.pushFilters is ds.DataSourceReader.pushFilters


def test_a_plain_class_defines_no_filters_and_an_option_turns_them_on(url: str) -> None:
    class Registered(RilletDataSource):
        pushes_filters = True

    given = {"url": url, "stream": "events"}
    assert type(RilletDataSource(given).reader(SCHEMA)) is BatchReader
    assert type(Registered(given).reader(SCHEMA)) is BatchReader
    assert type(Registered({**given, "pushFilters": "true"}).reader(SCHEMA)) is FilteringReader


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_fewer_entries_and_the_same_rows(spark: SparkSession, url: str, add: Callable[..., None]) -> None:
    add(range(30_000))
    conditions = (
        f"id >= '{entry_id(29_990)}' and n % 2 = 0",
        "timestamp >= timestamp'2023-11-14 22:13:29.9' and timestamp < timestamp'2023-11-14 22:13:29.95'"
        " and id_seq = 1",
        f"id like '17000000099%' and not id_ms = {1_700_000_000_000 + 9_990}",
    )
    read = spark.read.format("rillet").schema(
        "stream string, id string, id_ms long, id_seq long, timestamp timestamp, n long"
    )
    read = read.option("url", url).option("stream", "events")
    with redis.Redis.from_url(url) as client:

        def sent() -> int:
            return int(client.info("stats")["total_net_output_bytes"])

        for condition in conditions:
            client.config_resetstat()
            found = sorted(row.n for row in read.option("pushFilters", "true").load().where(condition).collect())
            little = sent()
            whole = read.option("pushFilters", "false").load().where(condition)
            assert found == sorted(row.n for row in whole.collect())
            assert found
            assert little < sent() / 5


@pytest.mark.spark
@pytest.mark.slow
def test_a_dataframe_can_be_used_again_after_a_filter(spark: SparkSession, url: str, add: Callable[..., None]) -> None:
    """Spark keeps the first plan with a DataFrame, so a pushed filter would remove rows from the second query."""
    add(range(100))
    events = spark.read.format("rillet").schema("id string, n long").options(url=url, stream="events").load()
    assert events.where(f"id = '{entry_id(50)}'").count() == 1
    assert events.count() == 100
    assert events.where(f"id = '{entry_id(51)}'").collect()[0].n == 51
