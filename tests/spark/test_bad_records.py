"""badRecords=stream:NAME: rows that do not convert go to a stream, with the reason, once."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType  # noqa: E402

from rillet.client.address import Address  # noqa: E402
from rillet.client.connection import Connection  # noqa: E402
from rillet.client.errors import ConnectorError  # noqa: E402
from rillet.columns.arrow_batch import NullValue  # noqa: E402
from rillet.protocol.command_parser import pack_command  # noqa: E402
from rillet.spark.options import OptionError, parse  # noqa: E402
from rillet.spark.source import BatchReader, StreamingReader  # noqa: E402
from tests.judge import Judge  # noqa: E402
from tests.server.harness import running  # noqa: E402
from tests.spark.conftest import entry_id  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

COUNT = 6000
SCHEMA = StructType().add("id", StringType()).add("n", IntegerType()).add("delay", LongType())
DDL = "id string, n int, delay bigint"


def is_bad(i: int) -> bool:
    return i % 10 == 3


def fields(i: int) -> list[bytes]:
    return [b"n", b"%d" % i, b"delay", b"late" if is_bad(i) else b"%d" % (2 * i)]


@pytest.fixture(scope="module", params=["redis", "rillet"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, judge_of_session: Judge
) -> Iterator[str]:
    """A server's url."""
    if request.param == "redis":
        yield f"redis://127.0.0.1:{judge_of_session.port}"
    else:
        with running(tmp_path_factory.mktemp("server")) as server:
            yield f"redis://127.0.0.1:{server.port}"


@pytest.fixture
def call(place: str) -> Iterator[Callable[..., Any]]:
    """A function that sends a command to the server, which has COUNT entries in `events`, a tenth of them bad."""
    with Connection(Address.parse(place), 30) as connection:
        connection.call(b"FLUSHALL")
        fill(connection, range(COUNT))
        yield lambda *words: connection.call(*(str(word).encode() for word in words))


def fill(connection: Connection, numbers: range) -> None:
    connection.send(b"".join(pack_command([b"XADD", b"events", entry_id(i).encode(), *fields(i)]) for i in numbers))
    for _ in numbers:
        connection.reply()


def options(place: str, **more: str) -> dict[str, str]:
    return {"url": place, "stream": "events", "badRecords": "stream:bad", "minPartitions": "3", **more}


def planned(place: str, schema: StructType = SCHEMA, **more: str) -> tuple[Any, list[Any]]:
    reader = BatchReader(parse(options(place, **more)), schema, 3)
    return pickle.loads(pickle.dumps((reader, reader.partitions())))


def read(reader: Any, partitions: list[Any]) -> list[int]:
    batches = [batch for one in partitions for batch in reader.read(one)]
    return pa.Table.from_batches(batches, reader.arrow_schema).column("n").to_pylist()


def bad(call: Callable[..., Any]) -> list[dict[bytes, bytes]]:
    return [dict(zip(values[::2], values[1::2], strict=True)) for _, values in call("XRANGE", "bad", "-", "+")]


def ids(call: Callable[..., Any]) -> list[str]:
    return sorted(entry[b"id"].decode() for entry in bad(call))


SOUND = [i for i in range(COUNT) if not is_bad(i)]
BAD = sorted(entry_id(i) for i in range(COUNT) if is_bad(i))


def test_bad_rows_go_to_the_stream_with_the_reason(place: str, call: Callable[..., Any]) -> None:
    call("XADD", "events", "1800000000000-0", "n", "x" * 200, "delay", "1.5", "more", "ü")
    assert read(*planned(place)) == SOUND
    found = bad(call)
    assert found[0] == {
        b"stream": b"events", b"id": entry_id(3).encode(), b"entry": b'{"n": "3", "delay": "late"}',
        b"reason": b"the field 'delay' is not of type bigint: 'late'",
    }  # fmt: skip
    assert found[-1][b"reason"].decode() == (
        f"the field 'n' is not of type int: {'x' * 100!r}; the field 'delay' is not of type bigint: '1.5'"
    )
    assert found[-1][b"entry"].decode().endswith('"delay": "1.5", "more": "ü"}')
    assert ids(call) == sorted([*BAD, "1800000000000-0"])


@pytest.mark.parametrize("batch", ["1", "64", "100000"])
def test_attempts_that_run_again_append_nothing_twice(place: str, call: Callable[..., Any], batch: str) -> None:
    reader, partitions = planned(place, batchEntries=batch, endingOffsets=entry_id(899))
    for one in partitions:
        attempt = reader.read(one)
        next(attempt)
        attempt.close()  # a killed task
    side_by_side = [reader.read(one) for one in partitions for _ in range(2)]
    for attempt in side_by_side:
        next(attempt)
    for attempt in side_by_side:
        list(attempt)
    assert read(reader, partitions) == [i for i in SOUND if i < 900]
    assert ids(call) == sorted(entry_id(i) for i in range(900) if is_bad(i))
    read(*planned(place, batchEntries=batch, endingOffsets=entry_id(899)))  # another read
    assert len(bad(call)) == 180


def test_the_record_of_a_batch_read_expires(place: str, call: Callable[..., Any]) -> None:
    read(*planned(place))
    keys = call("KEYS", "rillet:commits:{bad}:*")
    assert len(keys) == 3
    assert all(0 < call("TTL", key.decode()) <= 86_400 for key in keys)


def test_a_repeated_micro_batch(place: str, call: Callable[..., Any]) -> None:
    reader = StreamingReader(parse(options(place, maxEntriesPerTrigger="2500")), SCHEMA, 3)
    offset = reader.initialOffset()
    found: list[int] = []
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        read(reader, list(reader.partitions(offset, end)))
        found += read(reader, list(reader.partitions(offset, end)))
        offset = end
    reader.stop()
    assert found == SOUND
    assert ids(call) == BAD


def test_other_columns_stay_as_they_are(place: str, call: Callable[..., Any]) -> None:
    schema = StructType([StructField("stream", StringType()), StructField("id_ms", LongType()), *SCHEMA.fields[1:],
                         StructField("text", StringType(), metadata={"field": "delay"})])  # fmt: skip
    reader, partitions = planned(place, schema)
    rows = pa.Table.from_batches([one for part in partitions for one in reader.read(part)], reader.arrow_schema)
    assert rows.schema.names == ["stream", "id_ms", "n", "delay", "text"]
    assert rows.column("text").to_pylist() == [str(2 * i) for i in SOUND]
    assert set(rows.column("stream").to_pylist()) == {"events"}


def test_not_null_columns(place: str, call: Callable[..., Any]) -> None:
    schema = StructType([StructField("n", IntegerType(), False), StructField("delay", LongType(), False)])
    assert read(*planned(place, schema)) == SOUND
    call("XADD", "events", "1800000000000-0", "n", "1")
    with pytest.raises(NullValue, match="column 'delay' is declared NOT NULL, but 1 of"):
        read(*planned(place, schema))


def test_the_target_must_be_a_stream(place: str, call: Callable[..., Any]) -> None:
    call("SET", "bad", "x")
    with pytest.raises(ConnectorError, match="badRecords: 'bad' is a string, not a stream"):
        read(*planned(place))


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"badRecords": "bad"}, "badRecords is 'bad': expected stream:NAME"),
        ({"badRecords": "stream:"}, "expected stream:NAME"),
        ({"badRecords": "stream:events"}, "badRecords names a stream that is read, events"),
        ({"mode": "FAILFAST"}, "give only one of badRecords and mode"),
        ({"groupMode": "deliver", "group": "g"}, "badRecords is not possible with groupMode=deliver"),
        ({"archive": "x"}, "give only one of badRecords and archive"),
    ],
)
def test_options_that_contradict(more: dict[str, str], error: str) -> None:
    with pytest.raises(OptionError, match=error):
        parse(options("redis://localhost", **more))


def test_a_pattern_must_not_match_the_target() -> None:
    with pytest.raises(OptionError, match="badRecords names a stream that is read, log:bad"):
        parse({"url": "redis://localhost", "streamPattern": "log:*", "badRecords": "stream:log:bad"})


def test_an_archive_does_not_trim_what_it_lacks() -> None:
    from rillet.spark.pipelines.archive_trim import trim_errors

    assert trim_errors(parse(options("redis://localhost"))) == [
        "trim would remove entries that badRecords leaves out of the archive"
    ]


@pytest.mark.spark
def test_a_query_that_fails_and_starts_again(
    spark: SparkSession, place: str, call: Callable[..., Any], tmp_path: Path
) -> None:
    """Each batch fails once after its tasks have run."""
    failed: set[int] = set()
    found: dict[int, list[int]] = {}

    def handle(frame: Any, number: int) -> None:
        found[number] = sorted(row.n for row in frame.select("n").collect())
        if number not in failed:
            failed.add(number)
            raise RuntimeError("injected")

    def run() -> None:
        frame = (spark.readStream.format("rillet").schema(DDL).options(**options(place, maxEntriesPerTrigger="2500"))
                 .load())  # fmt: skip
        writer = frame.writeStream.foreachBatch(handle).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except Exception as error:
            assert "injected" in str(error)  # noqa: PT017

    for _ in range(4):
        run()
    assert sorted(n for rows in found.values() for n in rows) == SOUND
    assert len(failed) == 3
    assert ids(call) == BAD


@pytest.mark.spark
def test_two_jobs_on_a_data_frame(spark: SparkSession, place: str, call: Callable[..., Any]) -> None:
    frame = spark.read.format("rillet").schema(DDL).options(**options(place)).load()
    assert frame.count() == len(SOUND)
    assert frame.selectExpr("sum(delay)").collect() == [(sum(2 * i for i in SOUND),)]
    assert ids(call) == BAD
