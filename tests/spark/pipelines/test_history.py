"""Archive and stream are one table without gaps or duplicates, also while the archive grows, trims and compacts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rillet.client.errors import ConnectorError
from rillet.spark.archive.layout import Archive
from rillet.spark.archive.manifest import Part
from rillet.spark.options import Options, parse
from rillet.spark.read.filters import Pushed
from rillet.types.stream.id import StreamID
from tests.judge import Judge
from tests.spark.pipelines.test_archive import by_glob, fill, job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

__all__ = ["job"]  # the fixture


class Reader:
    """Stands for a batch reader, without Spark."""

    def __init__(self, url: str, archive: Path | str, **options: str) -> None:
        import pyarrow as pa

        from rillet.spark.source import BatchReader

        self.options = parse({"url": url, "archive": str(archive), "stream": "events", **options})
        self.parallelism = 3
        self.schema = pa.schema([("n", pa.int64()), ("stream", pa.string())])
        self.pushed = Pushed({})
        self.bounds = lambda known: BatchReader.bounds(self, known)  # type: ignore[arg-type]

    def plan(self) -> list[Any]:
        from rillet.spark.read.history import plan

        return plan(self.options, self.parallelism, self.pushed.keeps, self.bounds)

    def read(self, task: Any) -> list[int]:
        from rillet.spark.read.history import read

        return [n for batch in read(self.options, task, self.schema) for n in batch.column("n").to_pylist()]

    def numbers(self) -> list[int]:
        return [n for task in self.plan() for n in self.read(task)]


def archive_all(folder: Path, url: str, job: Callable[..., Any], small_files: int = 2) -> None:
    archive = Archive(folder)
    with archive.writing() as manifest:
        found = job(archive, url, stream="events", maxEntriesPerTrigger="250")
        found.files = replace(found.files, small_files=small_files)
        found.round(manifest)


def test_entries_archived_and_trimmed_during_the_read_are_read_once(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive job runs at every point of a read: after planning, before each task, between two pages."""
    fill(judge, range(1000))
    folder = tmp_path / "a"
    archive_all(folder, url, job, small_files=99)
    fill(judge, range(1000, 2000))
    reader = Reader(url, folder, pageEntries="50", batchEntries="50", minPartitions="3")
    tasks = reader.plan()
    assert len(tasks) >= 4
    read = reader.read(tasks[0])
    archive_all(folder, url, job)  # now everything is archived, compacted and trimmed
    with judge.client() as client:
        assert client.xlen("events") == 1
    for task in tasks[1:]:
        read += reader.read(task)
    assert sorted(read) == list(range(2000))
    assert sorted(reader.numbers()) == list(range(2000))

    fill(judge, range(2000, 3000))
    module: Any = import_module("rillet.spark.read.history")

    whole, pages = module.read_task, [0]

    def in_between(*words: Any) -> Any:
        for batch in whole(*words):
            pages[0] += 1
            if pages[0] == 3:
                archive_all(folder, url, job)
            yield batch

    monkeypatch.setattr(module, "read_task", in_between)
    assert sorted(reader.numbers()) == list(range(3000))
    assert pages[0] >= 3


def test_bounds_prune_files_and_cut_at_the_seam(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any]
) -> None:
    ids = fill(judge, range(2000))
    folder = tmp_path / "a"
    archive_all(folder, url, job, small_files=99)
    more = fill(judge, range(2000, 2100))
    for first, last in ((0, 2099), (100, 150), (399, 400), (1990, 2010), (2050, 2060), (1999, 1999), (2000, 2000)):
        reader = Reader(url, folder, startingOffsets=[*ids, *more][first], endingOffsets=[*ids, *more][last])
        assert sorted(reader.numbers()) == list(range(first, last + 1))
    few = Reader(url, folder, startingOffsets=ids[100], endingOffsets=ids[150]).plan()
    assert sum(len(task.shares) for task in few) <= 2
    assert Reader(url, folder, startingOffsets="latest").numbers() == []


def test_deleted_and_recreated_streams_are_reported(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any]
) -> None:
    from rillet.spark.archive.files import ArchiveError

    fill(judge, range(100))
    archive_all(tmp_path / "a", url, job)
    with judge.client() as client:
        client.delete("events")
    assert sorted(Reader(url, tmp_path / "a").numbers()) == list(range(100))
    with judge.client() as client:
        client.execute_command("XADD", "events", "5-5", "n", "7")
    with pytest.raises(ConnectorError, match="'events' at .* ends at 5-5, but the archive .* at 17000.* created again"):
        Reader(url, tmp_path / "a").plan()
    assert sorted(Reader(url, tmp_path / "a", failOnDataLoss="false").numbers()) == list(range(100))
    with pytest.raises(ArchiveError, match="there is no archive at"):
        Reader(url, tmp_path / "b").plan()
    file = next((tmp_path / "a").glob("date=*/*/*.parquet"))
    file.write_bytes(b"PAR1")
    with pytest.raises(ArchiveError, match="cannot be read"):
        Reader(url, tmp_path / "a", failOnDataLoss="false").numbers()


def test_typed_columns_have_the_same_values_in_the_archive_and_the_stream() -> None:
    """Difficult values are decoded from the reply that Arrow builds and from the server's reply."""
    import pyarrow as pa

    from rillet.columns.arrow_batch import record_batch, rows_for
    from rillet.columns.resp_decoder import DONE, RangeDecoder
    from rillet.protocol.command_parser import pack_command
    from rillet.spark.archive.parquet_reader import decoded

    entries = [
        ("1-1", [("n", "5"), ("t", "ä\r\n$3")]), ("1-2", []), ("1-3", [("n", "x"), ("d", " 1e3 ")]),
        ("2-0", [("b", "yes"), ("", ""), ("t", "")]), ("18446744073709551615-7", [("n", "-9223372036854775808")]),
    ]  # fmt: skip
    schema = pa.schema([("stream", pa.string()), ("id", pa.string()), ("id_ms", pa.int64()), ("n", pa.int64()),
                        ("t", pa.string()), ("d", pa.float64()), ("b", pa.bool_())])  # fmt: skip
    reply = b"*%d\r\n" % len(entries)
    for identifier, pairs in entries:
        words = [word.encode() for pair in pairs for word in pair]
        reply += b"*2\r\n$%d\r\n%b\r\n" % (len(identifier), identifier.encode()) + pack_command(words)
    rows = rows_for(schema, b"events")
    decoder = RangeDecoder(rows)
    decoder.feed(reply)
    assert decoder.decode() == DONE
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([one for one, _ in entries]),
            pa.array([two for _, two in entries], pa.map_(pa.string(), pa.string())),
        ],
        names=["id", "fields"],
    )
    wanted = record_batch(rows, schema)
    assert decoded(batch, "events", schema, Options()).equals(wanted)
    assert decoded(batch.slice(2, 2), "events", schema, Options()).equals(wanted.slice(2, 2))


def test_interleaved_streams_are_written_to_one_file_per_stream_and_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task's batches may alternate between streams. Few files stay open, and each holds one stream and one day."""
    import pyarrow as pa

    from rillet.spark.archive.parquet_reader import ArchiveTask, read_share
    from rillet.spark.archive.targets import StagingFolder
    from rillet.spark.pipelines import parquet

    monkeypatch.setattr(parquet, "MOST_OPEN", 3)
    monkeypatch.setattr(parquet, "WAITING_BYTES", 1000)
    day, names, rows = 86_400_000, ["a", "b", "c", "d"], []
    for turn in range(8):
        for name in names[: 2 + turn % 3]:
            rows += [(name, (turn // 3) * day + turn * 1000, seq) for seq in range(1, 21)]
    table = pa.RecordBatch.from_pydict({
        "stream": [row[0] for row in rows], "id": [f"{row[1]}-{row[2]}" for row in rows],
        "id_ms": [row[1] for row in rows], "id_seq": [row[2] for row in rows],
    })  # fmt: skip
    (tmp_path / "s").mkdir()
    parts = parquet.write_parts(
        [table.slice(at, 70) for at in range(0, len(rows), 70)], StagingFolder(tmp_path, "s", "none")
    )
    assert sum(part.rows for part in parts) == len(rows)
    found: list[tuple[str, int, int]] = []
    for part in sorted(parts, key=lambda part: (part.stream, part.first)):
        share = ArchiveTask((tmp_path / part.path,), part.stream, StreamID(0, 0), part.last)
        schema = pa.schema([("id_ms", pa.int64()), ("id_seq", pa.int64())])
        ids = [tuple(row.values()) for one in read_share(share, schema, Options()) for row in one.to_pylist()]
        assert isinstance(part, Part)
        assert {ms // day for ms, _ in ids} == {part.day}
        assert ids == sorted(ids)
        assert (part.first, part.last) == (StreamID(*ids[0]), StreamID(*ids[-1]))
        found += [(part.stream, *one) for one in ids]
    assert found == sorted(rows)


def test_history_reads_every_entry_once_in_spark(
    spark: SparkSession, judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any]
) -> None:
    from rillet.spark import history

    fill(judge, range(900))
    archive_all(tmp_path / "a", url, job)
    fill(judge, range(900, 1000))
    typed = history(spark, "events", archive=tmp_path / "a", url=url, schema="id string, n long, user string")
    row = typed.selectExpr("count(*)", "count(distinct id)", "sum(n)", "count(distinct user)").collect()[0]
    assert tuple(row) == (1000, 1000, 499_500, 7)
    default = spark.read.format("rillet").options(url=url, stream="events", archive=str(tmp_path / "a")).load()
    row = default.selectExpr("sum(fields['n'])", "count(distinct stream)", "min(id_ms)", "count(timestamp)").collect()[
        0
    ]
    assert tuple(row) == (499_500, 1, 1_700_000_000_000, 1000)
    assert len(by_glob(tmp_path / "a")) == 900
