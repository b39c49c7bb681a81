"""A replay writes in order, with equal or shifted IDs, at a pace, and resumes exactly after a kill."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.servers import Servers
from rillet.spark.options import parse
from tests.judge import Judge
from tests.spark.conftest import entry_id, number
from tests.variants import long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

HOUR = 3_600_000


class Killed(BaseException):
    """Stands for a killed process."""


def batch(numbers: range) -> Any:
    import pyarrow as pa

    pairs = [[(b"n".decode(), b"%d" % i)] for i in numbers]
    return pa.RecordBatch.from_arrays(
        [pa.array([entry_id(i) for i in numbers]), pa.array(pairs, pa.map_(pa.string(), pa.binary()))],
        names=["id", "fields"],
    )


@contextmanager
def writer(judge: Judge, retime: bool = False, speed: float | None = None, **clocks: Any) -> Iterator[Any]:
    from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType

    from rillet.spark.pipelines.replay_writer import ReplayWriter
    from rillet.spark.write.row_encoder import RowEncoder

    options = parse({"url": f"redis://127.0.0.1:{judge.port}", "stream": "copy", "idColumn": "id"})
    schema = StructType([StructField("id", StringType()), StructField("fields", MapType(StringType(), BinaryType()))])
    with Servers(options) as servers:
        yield ReplayWriter(servers, options, RowEncoder(options, schema), "a test", retime, speed, **clocks)


def entries(judge: Judge, stream: str = "copy") -> list[tuple[str, int]]:
    with judge.client() as client:
        found: Any = client.execute_command("XRANGE", stream, "-", "+")
    return [(identifier.decode(), int(fields[fields.index(b"n") + 1])) for identifier, fields in found]


@pytest.mark.parametrize(("lost", "retime"), [(False, False), (True, True), *long((False, True), (True, False))])
def test_a_replay_killed_at_any_chunk_resumes_exactly_there(
    judge: Judge, url: str, monkeypatch: pytest.MonkeyPatch, retime: bool, lost: bool
) -> None:
    """A kill before a transaction, or a lost reply to it; then another run with different batches."""
    from rillet.spark.pipelines.replay_writer import ReplayWriter

    whole = ReplayWriter._transaction
    monkeypatch.setattr(sys.modules["rillet.spark.pipelines.replay_writer"], "CHUNK_ROWS", 7)
    for kill in range(4):
        with judge.client() as client:
            client.flushall()
        left = [kill]

        def broken(self: Any, *words: Any, left: list[int] = left) -> bool:
            left[0] -= 1
            if left[0] < 0 and not lost:
                raise Killed
            done = whole(self, *words)
            if left[0] == -1 and lost:
                raise ConnectionLost("rillet: the answer was lost")
            return done

        monkeypatch.setattr(ReplayWriter, "_transaction", broken)
        with writer(judge, retime) as first:
            try:
                first.write(batch(range(30)))
            except Killed:
                assert not lost
        monkeypatch.setattr(ReplayWriter, "_transaction", whole)
        with writer(judge, retime) as second:
            for start in range(0, 50, 11):
                second.write(batch(range(start, min(start + 11, 50))))
        found = entries(judge)
        assert [n for _, n in found] == list(range(50))
        assert second.rows == 50
        assert second.before == (30 if lost else 7 * kill)
        if not retime:
            assert [identifier for identifier, _ in found] == [entry_id(i) for i in range(50)]
        shifts = {int(written.split("-")[0]) - int(entry_id(i).split("-")[0]) for i, (written, _) in enumerate(found)}
        assert len(shifts) == 1
        assert (shifts == {0}) is not retime


def test_writes_of_other_clients_to_the_target_are_detected(judge: Judge, url: str) -> None:
    with writer(judge) as one, judge.client() as client:
        one.write(batch(range(10)))
        client.execute_command("XADD", "copy", f"{entry_id(9)[:-1]}5", "n", "0")
        one.write(batch(range(12, 20)))  # after an entry of another client that fits between
        client.execute_command("XADD", "copy", "*", "n", "0")
        with pytest.raises(ConnectorError, match="stream 'copy' at .*, but the next entry of the replay has the ID"):
            one.write(batch(range(20, 30)))
    assert [n for _, n in entries(judge)] == [*range(10), 0, *range(12, 20), 0]
    unfinished = pytest.raises(ConnectorError, match="another replay into 'copy' is unfinished")
    with writer(judge, retime=True) as other, unfinished:
        other.write(batch(range(5, 10)))


def test_a_resumed_replay_checks_the_end_of_the_target_before_it_writes(judge: Judge, url: str) -> None:
    """Otherwise EXEC rejects the rows, and the record would list them as written."""
    with writer(judge) as one, judge.client() as client:
        one.write(batch(range(10)))
        client.execute_command("XADD", "copy", entry_id(14), "n", "-1")
    for _ in range(2):
        with writer(judge) as two, pytest.raises(ConnectorError, match="but the next entry of the replay has the ID"):
            two.write(batch(range(20)))
    with judge.client() as client:
        assert client.execute_command("HGET", "rillet:commits:{copy}:replay", "rows") == b"10"


def test_an_entry_between_two_transactions_is_detected(judge: Judge, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another client writes between EXEC and the next WATCH: no row that the target rejects is counted as written."""
    send = Connection.send

    def late(connection: Connection, data: bytes | bytearray) -> None:
        if data.startswith(b"*3\r\n$5\r\nWATCH"):
            with judge.client() as client:
                if client.exists("copy"):
                    client.execute_command("XADD", "copy", f"{entry_id(14)}", "n", "-1")
        return send(connection, data)

    with writer(judge) as one:
        monkeypatch.setattr(Connection, "send", late)
        one.write(batch(range(10)))
        monkeypatch.setattr(Connection, "send", send)
        with pytest.raises(ConnectorError, match="stream 'copy' at .*, but the next entry of the replay has the ID"):
            one.write(batch(range(10, 20)))
    with judge.client() as client:
        assert client.execute_command("HGET", "rillet:commits:{copy}:replay", "rows") == b"10"
    assert [n for _, n in entries(judge)] == [*range(10), -1]


def test_rows_are_written_at_the_recorded_pace(judge: Judge, url: str) -> None:
    """Three entries per millisecond, at a tenth of their speed; the clock advances only when the writer sleeps."""
    now = [100.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    with writer(judge, speed=0.1, clock=lambda: now[0], sleep=sleep) as slow:
        slow.write(batch(range(30)))
        slow.write(batch(range(30, 33)))
    assert len(slept) == 10
    assert all(abs(seconds - 0.01) < 1e-6 for seconds in slept)
    assert [n for _, n in entries(judge)] == list(range(33))


def test_a_frame_and_a_stream_are_replayed(
    spark: SparkSession, judge: Judge, url: str, add: Callable[..., None], tmp_path: Path
) -> None:
    from rillet.spark.pipelines import replay
    from rillet.spark.pipelines.replay import table

    add(range(500))
    frame, ordered = table(spark, url=url, stream="events", startingOffsets=entry_id(100), minPartitions="2")
    summary = replay(frame, "copy", ordered=ordered, url=url)
    assert (summary.rows, summary.before, summary.last) == (400, 0, entry_id(499))
    assert entries(judge) == [(entry_id(i), i) for i in range(100, 500)]
    mixed = spark.range(300).selectExpr(
        f"concat(1700000000000 + (299 - id) * {HOUR}, '-', id) as id", "299 - id as n", "cast(null as string) as none"
    )
    mixed.write.parquet(str(tmp_path / "mixed"))
    frame, ordered = table(spark, parquet=tmp_path / "mixed")
    assert not ordered
    summary = replay(frame, "later", retime=True, url=url)
    found = entries(judge, "later")
    times = [int(identifier.split("-")[0]) for identifier, _ in found]
    with judge.client() as client:
        seconds: Any = client.execute_command("TIME")
        assert not client.keys("rillet:*")
        assert client.execute_command("XRANGE", "copy", "-", "+", "COUNT", "1")[0][1] == number(100)  # all fields
    assert [n for _, n in found] == list(range(300))
    assert {after - before for before, after in zip(times, times[1:], strict=False)} == {HOUR}
    assert abs(times[0] - int(seconds[0]) * 1000) < HOUR
    named = spark.range(3).selectExpr("concat(id + 1, '-0') as id", "id as n", "'007' as stream")
    named.write.partitionBy("stream").parquet(str(tmp_path / "named"))
    assert table(spark, parquet=tmp_path / "named", stream="007")[0].count() == 3
