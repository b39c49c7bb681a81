"""A column whose field occurs in no entry is reported, with the fields that do occur."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from rillet.spark.archive.layout import Archive
from rillet.spark.options import parse
from rillet.spark.pipelines.task_runner import TaskRunner
from rillet.spark.read import unknown_fields
from rillet.spark.read.unknown_fields import UnknownField
from rillet.spark.source import BatchReader, StreamingReader
from tests.judge import Judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_MS = 1_700_000_000_000
WRONG = StructType().add("id", "string").add("n", "long").add("Karrier", "string").add("_corrupt", "string")


@pytest.fixture(autouse=True)
def _nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_fields, "_warned", set())


@pytest.fixture
def stream(judge: Judge, url: str) -> str:
    """The address of a server with 3,000 entries, of which only number 1,500 has the field `rare`."""
    with judge.client() as client:
        pipe = client.pipeline(transaction=False)
        for i in range(3000):
            more = ("rare", "1") if i == 1500 else ()
            pipe.execute_command("XADD", "flights", f"{FIRST_MS + 10 * i}-0", "n", i, "carrier", "UA", *more)
        pipe.execute()
    return url


def batch(url: str, schema: StructType, **options: str) -> list[Any]:
    return BatchReader(parse({"url": url, "stream": "flights", **options}), schema, 2).partitions()


def test_a_batch_read_warns_once_and_names_the_fields_seen(stream: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert batch(stream, WRONG)
    (line,) = [record.getMessage() for record in caplog.records]
    rest = "the field 'Karrier' (did you mean 'carrier'?), so the column is null. Fields seen: n, carrier, rare. "
    assert line.startswith("rillet: none of 2,500 sampled entries of 'flights' at 127.0.0.1:")
    assert line.endswith(f"{rest}unknownFields=ignore turns this warning off")


def test_fail_and_ignore(stream: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UnknownField, match="'Karrier' .* Fields seen: n, carrier, rare. Set unknownFields to warn"):
        batch(stream, WRONG, unknownFields="fail")
    assert batch(stream, WRONG, unknownFields="ignore")
    named = StructType([StructField("airline", StringType(), metadata={"field": "carrier"})])
    assert batch(stream, named, unknownFields="fail")
    assert batch(stream, StructType().add("rare", "string"), unknownFields="fail")  # in the middle of the range only
    outside = {"startingOffsets": str(FIRST_MS + 20_000), "unknownFields": "fail"}
    with pytest.raises(UnknownField, match="none of 1,000 sampled entries .* the field 'rare', so"):
        batch(stream, StructType().add("rare", "string"), **outside)
    wrong = StructField("carrier", StringType(), metadata={"field": "x"})
    two = StructType([wrong, StructField("nn", IntegerType())])
    with pytest.raises(UnknownField, match="the fields 'x' of the column 'carrier', 'nn' .*, so these columns are"):
        batch(stream, two, unknownFields="fail")
    assert not caplog.records


def test_an_empty_range_says_nothing(stream: str, caplog: pytest.LogCaptureFixture) -> None:
    assert batch(stream, WRONG, startingOffsets="latest", unknownFields="fail")
    assert not caplog.records


def test_a_streaming_query_compares_its_first_batch(stream: str, caplog: pytest.LogCaptureFixture) -> None:
    from rillet.spark.spark_versions import ReadMaxRows

    reader = StreamingReader(parse({"url": stream, "stream": "flights"}), WRONG, 2)
    try:
        start = reader.initialOffset()
        for _ in range(3):
            start = reader.latestOffset(start, ReadMaxRows(1000))
        assert [record.getMessage() for record in caplog.records if "'Karrier'" in record.getMessage()]
        assert len(caplog.records) == 1
    finally:
        reader.stop()
    failing = StreamingReader(parse({"url": stream, "stream": "flights", "unknownFields": "fail"}), WRONG, 2)
    try:
        with pytest.raises(UnknownField, match="Karrier"):
            failing.latestOffset(failing.initialOffset(), ReadMaxRows(1000))
    finally:
        failing.stop()


def test_fields_of_an_archive_count(stream: str, tmp_path: Path, judge: Judge) -> None:
    """`old` occurs in the archive only, `new` in the stream only."""
    from rillet.spark.pipelines.archive import ArchiveJob, FileOptions

    with judge.client() as client:
        client.execute_command("DEL", "flights")
        client.execute_command("XADD", "flights", "5-0", "old", 1)
        archive = Archive(tmp_path / "a")
        with archive.writing() as manifest:
            from tests.spark.pipelines.test_archive import types

            runner = TaskRunner.using(None)
            job = ArchiveJob(archive, {"url": stream, "stream": "flights"}, types(), runner, FileOptions())
            job.round(manifest)
        client.execute_command("XADD", "flights", "6-0", "new", 2)
    both = StructType().add("old", LongType()).add("new", LongType())
    options = {"archive": str(tmp_path / "a"), "unknownFields": "fail"}
    assert batch(stream, both, **options)
    with pytest.raises(UnknownField, match="none of the sampled entries of .*/a and its streams has the field 'x'"):
        batch(stream, both.add("x", "string"), **options)


@pytest.mark.spark
@pytest.mark.slow
def test_the_query_of_a_user_fails_with_the_fields_seen(spark: SparkSession, stream: str) -> None:
    source = spark.read.format("rillet").schema("n long, karrier string").options(url=stream, stream="flights")
    assert source.load().where("karrier is null").count() == 3000
    with pytest.raises(Exception, match=r"has the field 'karrier' \(did you mean 'carrier'\?\)") as caught:
        source.option("unknownFields", "fail").load().count()
    from rillet.spark import reason

    assert reason(caught.value).startswith("rillet: none of 2,500 sampled entries of 'flights' at 127.0.0.1:")


def test_seconds_since_1970_in_a_timestamp_column_are_reported(
    judge: Judge, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with judge.client() as client:
        for n in range(3):
            fields = ("at", 1_700_000_000 + n, "ms", 1_700_000_000_000 + n, "day", "2023-11-14", "n", 1_700_000_000)
            client.execute_command("XADD", "flights", "*", *fields)
    kinds = {"at": "timestamp", "ms": "timestamp", "day": "timestamp", "n": "long", "sent": "timestamp"}
    schema = StructType()
    for name, kind in kinds.items():
        schema = schema.add(name, kind, metadata={"field": "at"} if name == "sent" else None)
    schema = StructType(schema.fields[1:])
    for _ in range(2):
        assert batch(url, schema)
    (line,) = [record.getMessage() for record in caplog.records]
    assert re.search(r"the timestamp columns 'sent' \(170000000.\) contain integers that look like seconds", line)
    caplog.clear()
    assert batch(url, schema, unknownFields="ignore")
    assert not caplog.records
