"""The data source in a real Spark, against a real redis-server and an embedded store."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rillet
from tests.judge import Judge
from tests.spark.conftest import ENTRIES, entry_id, number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TYPED = "id string, n long, amount double, user string, timestamp timestamp, absent int"


def read(spark: SparkSession, url: str, schema: str | None = None, stream: str = "events", **options: str) -> DataFrame:
    reader = spark.read.format("rillet").option("url", url).option("stream", stream).options(**options)
    return (reader.schema(schema) if schema else reader).load()


def run(frame: DataFrame, sink: str, checkpoint: Path, **options: str) -> list[dict[str, Any]]:
    """Run an available-now query to its end; return its progress."""
    writer = frame.writeStream.format(sink).options(**options).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return list(query.recentProgress)


def test_fifty_thousand_entries_are_read_exactly(spark: SparkSession, url: str, add: Callable[..., None]) -> None:
    add(range(ENTRIES))
    typed = read(spark, url, TYPED)
    assert typed.rdd.getNumPartitions() == 2
    row = typed.selectExpr(
        "count(*)",
        "sum(n)",
        "sum(amount)",
        "count(distinct id)",
        "count(distinct user)",
        "count(absent)",
        "cast(max(timestamp) as long)",
    ).collect()[0]
    total = ENTRIES * (ENTRIES - 1) // 2
    assert tuple(row) == (
        ENTRIES,
        total,
        total + ENTRIES / 4,
        ENTRIES,
        100,
        0,
        (1_700_000_000_000 + (ENTRIES - 1) // 3) // 1000,
    )
    default = read(spark, url, minPartitions="3")
    assert default.rdd.getNumPartitions() == 3
    assert default.columns == ["stream", "id", "id_ms", "id_seq", "timestamp", "fields"]
    row = default.selectExpr(
        "count(*)", "sum(fields['n'])", "count(distinct id_ms)", "sum(id_seq)", "max(size(fields))"
    ).collect()[0]
    assert tuple(row) == (ENTRIES, total, (ENTRIES + 2) // 3, sum(i % 3 for i in range(ENTRIES)), 3)


def test_rows_and_empty_ranges(spark: SparkSession, url: str, add: Callable[..., None]) -> None:
    add(range(10))
    row = read(spark, url, startingOffsets=entry_id(4), endingOffsets=entry_id(4)).collect()
    assert [(r.stream, r.id, r.id_ms, r.id_seq, r.fields) for r in row] == [
        ("events", entry_id(4), 1_700_000_000_001, 1, {"n": "4", "amount": "4.25", "user": "u4"})
    ]
    assert row[0].timestamp.isoformat() == "2023-11-14T22:13:20.001000"
    assert read(spark, url, startingOffsets="latest").count() == 0
    assert read(spark, url, endingOffsets="5").count() == 0


def test_errors_are_raised_before_a_job_starts(spark: SparkSession, url: str) -> None:
    with pytest.raises(Exception, match="there is no stream 'absent' at 127.0.0.1"):
        read(spark, url, stream="absent").count()
    with pytest.raises(Exception, match="unknown option foo; minPartitions is 'x'"):
        read(spark, url, foo="1", minPartitions="x")
    with pytest.raises(Exception, match="column 'id' cannot be int64"):
        read(spark, url, "id long").count()


def test_a_query_continues_after_its_checkpoint(
    spark: SparkSession, url: str, add: Callable[..., None], tmp_path: Path
) -> None:
    source = spark.readStream.format("rillet").schema("id string, n long").option("url", url).option("stream", "events")
    table = str(tmp_path / "table")
    add(range(1000))
    progress = run(source.option("maxEntriesPerTrigger", "400").load(), "parquet", tmp_path / "checkpoint", path=table)
    assert [p["numInputRows"] for p in progress] == [400, 400, 200]
    for first in (1000, 1700):
        add(range(first, first + 700))
        run(source.load(), "parquet", tmp_path / "checkpoint", path=table)
    found = sorted(row.n for row in spark.read.parquet(table).collect())
    assert found == list(range(2400))


def test_a_failed_batch_is_repeated_unchanged(
    spark: SparkSession, url: str, add: Callable[..., None], tmp_path: Path
) -> None:
    add(range(5))
    seen: dict[int, list[int]] = {}
    broken = [True]

    def handle(frame: DataFrame, batch: int) -> None:
        seen[batch] = sorted(row.n for row in frame.collect())
        if broken[0] and seen[batch]:
            raise RuntimeError("the sink is down")

    def start() -> Any:
        source = spark.readStream.format("rillet").schema("n long").option("url", url).option("stream", "events")
        frame = source.option("startingOffsets", "latest").load()
        return frame.writeStream.foreachBatch(handle).option("checkpointLocation", str(tmp_path)).start()

    query = start()
    query.processAllAvailable()  # it has found where "latest" is, in a first batch of nothing
    add(range(5, 20))
    with pytest.raises(Exception, match="the sink is down"):
        query.awaitTermination(60)
    first = dict(seen)
    add(range(20, 30))
    broken[0] = False
    query = start()
    query.processAllAvailable()
    query.stop()
    assert first == {0: [], 1: list(range(5, 20))}
    assert seen[1] == first[1]
    assert sorted(n for batch in seen.values() for n in batch) == list(range(5, 30))


def test_rows_that_were_read_can_be_written_back(
    spark: SparkSession, judge: Judge, url: str, add: Callable[..., None]
) -> None:
    add(range(3000))
    write = read(spark, url).coalesce(1).write.format("rillet").mode("append").option("url", url)
    write.option("stream", "copy").option("idColumn", "id").save()
    with judge.client() as client:
        original = client.execute_command("XRANGE", "events", "-", "+")
        copy = client.execute_command("XRANGE", "copy", "-", "+")
        # The order of a map's keys is Spark's affair.
        assert [(key, dict(zip(flat[::2], flat[1::2], strict=True))) for key, flat in copy] == [
            (key, dict(zip(flat[::2], flat[1::2], strict=True))) for key, flat in original
        ]
        with pytest.raises(
            Exception, match="refused to append to 'copy': ERR The ID specified in XADD is equal or smaller"
        ):
            write.option("stream", "copy").option("idColumn", "id").save()
        read(spark, url).write.format("rillet").mode("append").option("url", url).option("stream", "capped").option(
            "maxlen", "500"
        ).save()
        assert 500 <= client.execute_command("XLEN", "capped") < 700


def test_typed_columns_become_texts(spark: SparkSession, judge: Judge, url: str) -> None:
    frame = spark.sql(
        "select 'ä' as s, 7 as i, 2.5D as d, true as b, cast(null as string) as missing, date'2013-01-02' as day,"
        " timestamp'2013-01-02 03:04:05.5' as at, 1.50BD as price, X'ff00' as raw, timestamp'2014-01-01' as timestamp"
    )
    writer = frame.write.format("rillet").mode("append").option("url", url)
    with pytest.raises(Exception, match="the columns timestamp may be those of a source"):
        writer.option("stream", "typed").save()
    own = frame.drop("timestamp").write.format("rillet").mode("append").option("url", url)
    own.option("stream", "typed").save()
    writer.option("stream", "chosen").option("fieldColumns", "i, timestamp").save()
    with judge.client() as client:
        ((_, flat),) = client.execute_command("XRANGE", "typed", "-", "+")
        ((_, chosen),) = client.execute_command("XRANGE", "chosen", "-", "+")
    assert dict(zip(flat[::2], flat[1::2], strict=True)) == {
        b"s": "ä".encode(),
        b"i": b"7",
        b"d": b"2.5",
        b"b": b"true",
        b"day": b"2013-01-02",
        b"at": b"2013-01-02T03:04:05.500000Z",
        b"price": b"1.50",
        b"raw": b"\xff\x00",
    }
    assert chosen == [b"i", b"7", b"timestamp", b"2014-01-01T00:00:00.000000Z"]
    again = read(spark, url, "at timestamp, day date, b boolean, d float, i short, raw binary, s string", "typed")
    expected = spark.sql(
        "select timestamp'2013-01-02 03:04:05.5', date'2013-01-02', true, cast(2.5 as float), 7S, X'ff00', 'ä'"
    )
    assert [tuple(row) for row in again.collect()] == [tuple(row) for row in expected.collect()]


def test_columns_without_text_are_rejected_in_one_error(spark: SparkSession, url: str) -> None:
    frame = spark.sql("select array(1) as a, struct(2 as x) as b, 'fine' as c")
    with pytest.raises(
        Exception, match="there is no column 'k'; column 'a' is array<int>.*; column 'b' is struct<x:int>"
    ):
        frame.write.format("rillet").mode("append").option("url", url).option("stream", "s").option(
            "idColumn", "k"
        ).save()
    with pytest.raises(Exception, match="nothing but nulls"):
        spark.sql("select cast(null as string) as a").write.format("rillet").mode("append").option("url", url).option(
            "stream", "s"
        ).save()


def test_a_streaming_sink_appends_every_batch(
    spark: SparkSession, judge: Judge, url: str, add: Callable[..., None], tmp_path: Path
) -> None:
    source = (
        spark.readStream.format("rillet").schema("n long, user string").option("url", url).option("stream", "events")
    )
    for first in (0, 300):
        add(range(first, first + 300))
        frame = source.load().selectExpr("n * 2 as double", "user")
        run(frame, "rillet", tmp_path, url=url, stream="doubled")
    with judge.client() as client:
        entries = client.execute_command("XRANGE", "doubled", "-", "+")
    assert sorted(int(dict(zip(flat[::2], flat[1::2], strict=True))[b"double"]) for _, flat in entries) == list(
        range(0, 1200, 2)
    )


def test_an_embedded_store_is_read_and_written_by_its_path(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "events.rillet")
    with rillet.open(path) as store:
        events = store.stream("events")
        for i in range(500):
            flat = [word.decode() for word in number(i)]
            events.add(dict(zip(flat[::2], flat[1::2], strict=True)), id=entry_id(i))
        frame = spark.read.format("rillet").schema("n long").option("stream", "events").load(path)
        assert frame.selectExpr("sum(n)").collect()[0][0] == 500 * 499 // 2
        frame.write.format("rillet").mode("append").option("path", path).option("stream", "copy").save()
        assert len(store.stream("copy")) == 500
    # No process owns it now: a worker of Spark starts an owner process.
    assert spark.read.format("rillet").option("path", path).option("stream", "copy").load().count() == 500
    owner = json.loads((tmp_path / "events.rillet" / "owner.json").read_text())
    assert owner["pid"] != os.getpid()


def test_a_batch_keeps_its_tasks_on_another_number_of_cores(
    spark: SparkSession, judge: Judge, url: str, add: Callable[..., None], tmp_path: Path
) -> None:
    """The driver ends between the plan of a batch and its commit; what arrives in its last millisecond comes later."""
    add(range(9000), "log:a")
    add(range(3000), "log:b")
    seen: dict[int, list[list[tuple[str, int]]]] = {}
    broken = [True]

    def handle(frame: DataFrame, batch: int) -> None:
        seen[batch] = [[(row.stream, row.n) for row in task] for task in frame.rdd.glom().collect()]
        if broken[0]:
            raise RuntimeError("the driver is killed")

    def run_to_the_end(**options: str) -> None:
        source = spark.readStream.format("rillet").schema("stream string, n long").option("url", url)
        frame = source.option("streamPattern", "log:*").options(**options).load()
        query = frame.writeStream.foreachBatch(handle).option("checkpointLocation", str(tmp_path))
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="the driver is killed"):
        run_to_the_end(minPartitions="3")
    planned = seen[0]
    assert len(planned) == 3
    assert all(3800 < len(task) < 4200 for task in planned)
    with judge.client() as client:
        client.execute_command("XADD", "log:a", f"{entry_id(8999).split('-')[0]}-*", "n", "9000")
    add(range(50), "log:c")  # a stream that appears
    broken[0] = False
    run_to_the_end(minPartitions="2")
    assert seen[0] == planned
    rows = [row for batch in seen.values() for task in batch for row in task]
    assert sorted(rows) == [
        *(("log:a", n) for n in range(9001)), *(("log:b", n) for n in range(3000)), *(("log:c", n) for n in range(50)),
    ]  # fmt: skip


def test_a_cap_over_streams_of_different_sizes(
    spark: SparkSession, url: str, add: Callable[..., None], tmp_path: Path
) -> None:
    add(range(12_000), "busy")
    for i in range(20):
        add(range(30), f"quiet:{i}")
    source = spark.readStream.format("rillet").schema("stream string, n long").option("url", url)
    frame = source.option("streamPattern", "*").option("maxEntriesPerTrigger", "6000").load()
    table = str(tmp_path / "table")
    progress = run(frame, "parquet", tmp_path / "checkpoint", path=table)
    sizes = [p["numInputRows"] for p in progress if p["numInputRows"]]
    assert sum(sizes) == 12_600
    assert all(4500 < size < 7500 for size in sizes[:-1])
    found = spark.read.parquet(table)
    assert found.distinct().count() == 12_600
    assert found.where("stream like 'quiet:%'").count() == 600
