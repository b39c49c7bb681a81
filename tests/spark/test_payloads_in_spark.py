"""Payload formats in Spark: batch, and streaming exactly once, from one stream to another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("fastavro")
pytest.importorskip("confluent_kafka")

from pyspark.sql.pandas.types import from_arrow_schema

import rillet.spark
from tests.judge import Judge
from tests.spark.payloads import AVRO, AVRO_COLUMNS, PROTO_COLUMNS, avro_rows, descriptor_set, proto_rows
from tests.spark.schema_registry import SchemaRegistry, running_registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]
QUICK = json.dumps({"max.retries": 0})


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as found:
        yield found


def rows_of(frame: DataFrame, *names: str) -> list[Any]:
    return sorted((row.asDict(True) for row in frame.select(*names).collect()), key=str)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_a_query_copies_payloads_once(
    spark: SparkSession, url: str, judge: Judge, registry: SchemaRegistry, tmp_path: Path, kind: str
) -> None:
    """Each micro-batch of the copy fails once, after its tasks have run."""
    table, columns, more = avro_rows(), AVRO_COLUMNS, {"payloadSchema": json.dumps(AVRO)}
    if kind == "protobuf":
        table, columns = proto_rows(), PROTO_COLUMNS
        more = {"payloadSchema": descriptor_set(tmp_path), "payloadMessage": "air.Flight"}
    named = {"url": url, "payload": kind, "schemaRegistry": registry.url, "schemaRegistryOptions": QUICK}
    if kind == "protobuf":
        named["payloadMessage"] = "air.Flight"
    frame = spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True)).repartition(1)
    for _ in range(3):
        frame.write.format("rillet").mode("append").options(**{**named, **more}, stream="flights").save()
    read = spark.read.format("rillet").options(**named, stream="flights").load()
    assert read.schema.simpleString() == f"struct<id:string,timestamp:timestamp,{columns}>"
    payload = [name for name in read.columns if name not in ("id", "timestamp")]
    expected = rows_of(frame.withColumnRenamed("id", "id_field"), *payload)
    assert rows_of(read, *payload) == sorted(3 * expected, key=str)

    copied: set[int] = set()
    save = rillet.spark.write_batch("copy", **named, stream="copy", payloadSubject="flights-value")

    def save_twice(batch: DataFrame, number: int) -> None:
        save(batch, number)
        if number not in copied:
            copied.add(number)
            raise RuntimeError("injected")

    def run(save_rows: Any) -> None:
        followed = spark.readStream.format("rillet").options(**named, stream="flights", maxEntriesPerTrigger="4").load()
        writer = followed.drop("timestamp").writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.foreachBatch(save_rows).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except Exception as error:
            assert "injected" in str(error)  # noqa: PT017

    for _ in range(3):
        run(save_twice)
    assert copied == {0, 1}
    with judge.client() as client:
        streams = [client.execute_command("XRANGE", stream, "-", "+") for stream in ("flights", "copy")]
    assert len(streams[0]) == 6
    assert [fields for _, fields in streams[1]] == [fields for _, fields in streams[0]]


def test_the_programs_of_the_page(
    spark: SparkSession, registry: SchemaRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second one goes on where the first one ends."""
    page = (Path(__file__).parents[2] / "docs" / "spark-payloads.md").read_text()
    programs = "".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    for written, run in (
        ('rillet.spark.session("local[2]")', "given"),
        ("flights.rillet", str(tmp_path / "flights.rillet")),
        ("http://localhost:8081", registry.url),
    ):
        assert written in programs
        programs = programs.replace(written, run)
    names: dict[str, Any] = {"given": spark}
    exec(compile(programs, "spark-payloads.md", "exec"), names)
    shown = capsys.readouterr().out
    assert shown.count("|     UA|   45|") == 2
    with rillet.open(tmp_path / "flights.rillet") as store:
        streams = [store.execute("XRANGE", name, "-", "+") for name in ("flights", "flights.avro")]
    [[(_, (name, plain))], [(_, (_, registered))]] = streams
    assert (name, plain[:5], len(plain)) == (b"payload", b"\4UA\2Z", 11)
    assert registered == b"\0\0\0\0\1" + plain


def test_a_streaming_sink(
    spark: SparkSession, url: str, judge: Judge, registry: SchemaRegistry, tmp_path: Path
) -> None:
    """Two runs of a query append each row once; a payload of JSON becomes one of Avro, whose schema is registered."""
    with judge.client() as client:
        for number in range(10):
            client.xadd("orders", {"body": json.dumps({"number": number, "at": "2024-05-01T12:00:00Z"})})
    schema = {"type": "record", "name": "Order", "fields": [
        {"name": "number", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}  # fmt: skip
    avro = {"url": url, "stream": "avro", "payload": "avro", "schemaRegistry": registry.url}
    for _ in range(2):
        orders = (spark.readStream.format("rillet").schema("id string, number long, at timestamp")
                  .options(url=url, stream="orders", payload="json", payloadField="body")
                  .option("maxEntriesPerTrigger", "7").load())  # fmt: skip
        writer = (
            orders.writeStream.format("rillet")
            .options(**avro, payloadSchema=json.dumps(schema))
            .option("checkpointLocation", str(tmp_path / "c"))
        )
        writer.trigger(availableNow=True).start().awaitTermination()
    found = spark.read.format("rillet").options(**avro).load()
    assert [row.number for row in found.orderBy("id").collect()] == list(range(10))
    assert found.selectExpr("count(distinct at)", "min(unix_micros(at))").collect() == [(1, 1_714_564_800_000_000)]


def test_errors_before_tasks_start(spark: SparkSession, url: str, registry: SchemaRegistry, tmp_path: Path) -> None:
    named = {"url": url, "stream": "flights", "payload": "avro", "schemaRegistry": registry.url,
             "schemaRegistryOptions": QUICK}  # fmt: skip
    error = f"rillet: the schema registry at {registry.url} has no subject 'flights-value'"
    frame = spark.range(1)
    stream = spark.readStream.format("rillet").options(**named).schema("a int")

    def follow() -> None:
        query = stream.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
        query.awaitTermination()

    for use in (
        lambda: spark.read.format("rillet").options(**named).load(),
        lambda: spark.read.format("rillet").options(**named).schema("a int").load().count(),
        lambda: frame.write.format("rillet").mode("append").options(**named).save(), follow,
    ):  # fmt: skip
        with pytest.raises(Exception, match=error) as caught:
            use()
        assert rillet.spark.reason(caught.value) == error
    assert set(registry.requests) == {"GET /subjects/flights-value/versions/latest"}
