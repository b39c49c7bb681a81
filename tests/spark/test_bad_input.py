"""Bad input in a real Spark: each error is one sentence in the first line of Spark's exception."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from rillet.spark.errors import reason
from rillet.spark.options import parse
from rillet.spark.source import BatchReader
from tests.judge import Judge, free_port, running_redis

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def sentence(fails: Callable[[], Any]) -> str:
    """Return what an exception of Spark says in rillet's words: in its first line, or behind a task's headline."""
    with pytest.raises(Exception) as caught:
        fails()
    text = str(caught.value)
    found = reason(caught.value)
    assert found.startswith("rillet: ")
    headline, _, rest = text.partition("\n")
    assert found in (
        rest.partition("\n")[0] if headline == "An exception was thrown from the Python worker:" else headline
    )
    assert text.partition("=== Streaming Query ===")[0].partition("JVM stacktrace")[0].count(found) == 1
    assert "secret" not in text
    return found


def batch(spark: SparkSession, url: str, stream: str = "events", **options: str) -> Callable[[], Any]:
    """Return what reads a stream with a schema, so that nothing is asked before the job."""
    read = spark.read.format("rillet").schema("id string, n long").option("url", url).option("stream", stream)
    return lambda: read.options(**options).load().collect()


def query(spark: SparkSession, url: str, checkpoint: Path, stream: str = "events", **options: str) -> Callable[[], Any]:
    """Return what runs an available-now query."""
    read = spark.readStream.format("rillet").schema("id string, n long").option("url", url).option("stream", stream)

    def run() -> None:
        writer = read.options(**options).load().writeStream.format("noop")
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

    return run


def test_errors_of_a_batch_read_are_one_sentence(spark: SparkSession, judge: Judge, url: str) -> None:
    with judge.client() as client:
        client.execute_command("XADD", "events", "1-0", "n", "x")
    where = f"127.0.0.1:{judge.port}"
    assert sentence(batch(spark, url, "absent")) == f"rillet: there is no stream 'absent' at {where}"
    assert "unknown option fooo" in sentence(batch(spark, url, fooo="1"))
    assert "'n'" in sentence(batch(spark, url, mode="FAILFAST"))  # in a task
    over = spark.range(1).write.format("rillet").mode("overwrite").options(url=url, stream="events")
    assert sentence(over.save) == "rillet: a stream can only be appended to: use mode('append')"


@pytest.mark.long
def test_more_errors_of_a_batch_read(spark: SparkSession, judge: Judge, url: str) -> None:
    where = f"127.0.0.1:{judge.port}"
    with judge.client() as client:
        client.execute_command("XADD", "events", "1-0", "n", "x")
        client.execute_command("SET", "text", "1")
    assert "WRONGTYPE" in (told := sentence(batch(spark, url, "text")))
    assert "'text'" in told
    assert where in told
    assert where in sentence(batch(spark, f"redis://:secret@{where}"))
    assert f"TLS with {where} failed" in sentence(batch(spark, f"rediss://{where}", timeout="500ms"))
    nobody = free_port()
    assert f"no server answers at 127.0.0.1:{nobody}" in sentence(batch(spark, f"redis://127.0.0.1:{nobody}"))
    required = spark.read.format("rillet").schema("absent long not null").options(url=url, stream="events")
    assert "column 'absent' is declared NOT NULL" in sentence(required.load().collect)
    interval = spark.read.format("rillet").schema("n interval").options(url=url, stream="events")
    assert "the schema does not fit a stream: " in sentence(interval.load().collect)


def test_errors_of_a_streaming_query_are_one_sentence(
    spark: SparkSession, judge: Judge, url: str, tmp_path: Path
) -> None:
    where = f"127.0.0.1:{judge.port}"
    with judge.client() as client:
        for n in range(1, 4):
            client.execute_command("XADD", "events", f"{n}-0", "n", n)
        told = sentence(query(spark, url, tmp_path / "ends", endingOffsets="5-0"))  # before there is a reader
        assert told == "rillet: these options are not allowed for a streaming read: endingOffsets"
        query(spark, url, tmp_path / "c")()
        client.execute_command("XADD", "events", "9-0", "n", 9)
        client.execute_command("XTRIM", "events", "MAXLEN", "0")
        told = sentence(query(spark, url, tmp_path / "c"))
        assert told.startswith(f"rillet: 1 entry was lost before being read: the stream 'events' at {where}")


@pytest.mark.long
def test_more_errors_of_a_streaming_query(spark: SparkSession, judge: Judge, url: str, tmp_path: Path) -> None:
    with judge.client() as client:
        for stream in ("events", "other"):
            client.execute_command("XADD", stream, "1-0", "n", 1)
        assert "no stream 'absent'" in sentence(query(spark, url, tmp_path / "absent", "absent"))
        query(spark, url, tmp_path / "c")()
        told = sentence(query(spark, url, tmp_path / "c", "other"))
        assert told == "rillet: the checkpoint belongs to the stream 'events', but the query reads the stream 'other'"
        client.execute_command("DEL", "events")
        client.execute_command("SET", "events", "text")
        assert "WRONGTYPE" in sentence(query(spark, url, tmp_path / "c"))


def test_a_wrong_or_missing_password_is_an_error(spark: SparkSession) -> None:
    with running_redis() as locked, locked.client() as client:
        client.execute_command("CONFIG", "SET", "requirepass", "pass")
        where = f"127.0.0.1:{locked.port}"
        told = sentence(batch(spark, f"redis://:secret@{where}"))
        assert told.startswith(f"rillet: {where} refused the password")
        assert sentence(batch(spark, f"redis://{where}")).startswith(f"rillet: {where} requires a password")


def test_a_server_that_loads_is_waited_for() -> None:
    slowly = ("--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
    with running_redis(*slowly) as server, server.client() as loader, server.client() as client:
        client.execute_command("XADD", "events", "1-0", "n", "1")
        for n in range(100):
            client.execute_command("SET", f"key{n}", "x" * 2000)
        reloading = threading.Thread(target=loader.execute_command, args=("DEBUG", "RELOAD"))
        reloading.start()
        try:
            while b"\r\nloading:1" not in client.execute_command("INFO", "persistence"):
                assert reloading.is_alive()
            given = parse({"url": f"redis://127.0.0.1:{server.port}", "stream": "events"})
            reader = BatchReader(given, StructType().add("n", "long"), 1)
            (part,) = reader.partitions()
            assert [batch.to_pydict() for batch in reader.read(part)] == [{"n": [1]}]
        finally:
            reloading.join()
