"""Archives with partition columns of the user's choice: folders, values, merges and kills, in both formats."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

from rillet.cli import main
from rillet.spark.archive.backends import FORMATS, open_archive
from rillet.spark.archive.files import ArchiveError
from rillet.spark.archive.manifest import ArchiveManifest, Part, base_text, parse_base
from rillet.spark.options import OptionError, parse
from rillet.spark.pipelines import archive, compact
from rillet.spark.read.filters import Pushed
from rillet.types.stream.id import StreamID
from tests.judge import Judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

HOUR = 3_600_000
STEP = HOUR // 40
START = 1_700_000_000_000  # 2023-11-14 22:13 UTC
SCHEMA = "n bigint, region string, vip boolean, zone int"
REGIONS = ("eu", "EU", "us east/1=%", "", None, "\u00e4")
BY = "date,hour,region,vip"


class Killed(BaseException):
    """Stands for a killed driver."""


@pytest.fixture
def fill(judge: Judge, url: str) -> Callable[..., list[tuple[Any, ...]]]:
    """Append entries, forty an hour, and return their rows: n, region, vip."""

    def append(numbers: range, stream: str = "events") -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with judge.client() as client:
            for n in numbers:
                region, vip = REGIONS[n % len(REGIONS)], (True, False, None)[n % 3]
                fields: dict[str, Any] = {"n": n, "zone": n % 2}
                fields |= {} if region is None else {"region": region}
                fields |= {} if vip is None else {"vip": str(vip).lower()}
                client.xadd(stream, fields, f"{START + n * STEP}-0")
                rows.append((n, region, vip))
        return rows

    return append


def read(url: str, place: Path, **options: str) -> list[tuple[Any, ...]]:
    """Return the rows of the archive and its stream, as the batch source reads them in its tasks."""
    import pyarrow as pa

    from rillet.spark.read.history import plan
    from rillet.spark.read.history import read as read_task
    from rillet.spark.source import BatchReader

    class Reader:
        def __init__(self) -> None:
            self.options = parse({"url": url, "archive": str(place), "stream": "events", **options})
            self.pushed = Pushed({})

    reader = Reader()
    schema = pa.schema([("n", pa.int64()), ("region", pa.string()), ("vip", pa.bool_())])
    tasks = plan(reader.options, 2, reader.pushed.keeps, lambda known: BatchReader.bounds(reader, known))  # type: ignore[arg-type]
    return [
        (row["n"], row["region"], row["vip"])
        for task in tasks for batch in read_task(reader.options, task, schema) for row in batch.to_pylist()
    ]  # fmt: skip


def stored(rows: list[tuple[Any, ...]], format: str) -> list[tuple[Any, ...]]:
    """Return the rows as a format keeps them: Delta has no empty text in a partition column."""
    return rows if format == "rillet" else [(n, region or None, vip) for n, region, vip in rows]


def by_number(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: row[0])


@pytest.mark.parametrize("format", FORMATS)
def test_rows_keep_their_values_through_batches_merges_and_reads(
    url: str, fill: Callable[..., list[tuple[Any, ...]]], tmp_path: Path, format: str
) -> None:
    place, rows = tmp_path / "a", []
    for start in (0, 60, 120):
        rows += fill(range(start, start + 60))
        archive(None, place, schema=SCHEMA, format=format, partition_by=BY if not start else None, url=url,
                stream="events", maxEntriesPerTrigger="25", small_files=99)  # fmt: skip
        assert by_number(read(url, place)) == stored(rows, format)
    before = len(list(open_archive(place).manifest().files))
    done = compact(None, place)
    manifest = open_archive(place).manifest()
    assert manifest.partition_by == ("date", "hour", "region", "vip", "stream")
    assert done.merged > done.into > 0
    assert len(list(manifest.files)) == before - done.merged + done.into
    assert by_number(read(url, place)) == stored(rows, format)
    rows += fill(range(180, 200))
    assert by_number(read(url, place)) == [*stored(rows[:180], format), *rows[180:]]
    part = read(url, place, startingOffsets=str(START + 2 * HOUR), endingOffsets=str(START + 3 * HOUR - 1))
    assert by_number(part) == stored(rows[80:120], format)
    for file in manifest.files:
        assert file.day == file.first.ms // (24 * HOUR)
        assert file.values[0] == file.first.ms // HOUR % 24 == file.last.ms // HOUR % 24


def test_readers_of_the_folder_find_the_columns_in_its_names(
    url: str, fill: Callable[..., list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    import pyarrow.dataset as ds

    rows = fill(range(120))
    archive(None, tmp_path / "a", schema=SCHEMA, partition_by="date, zone,region", url=url, stream="events")
    found = ds.dataset(tmp_path / "a", partitioning="hive").to_table(columns=["n", "region", "zone", "vip"]).to_pylist()
    # A folder's name has no empty text.
    assert by_number([(row["n"], row["region"], row["vip"]) for row in found]) == [
        (n, region or None, vip) for n, region, vip in rows
    ]
    assert all(row["zone"] == row["n"] % 2 for row in found)
    folders = {str(path.parent.relative_to(tmp_path / "a")) for path in (tmp_path / "a").glob("*/*/*/*/*.parquet")}
    assert "date=2023-11-15/zone=0/region=eu/stream=events" in folders
    assert "date=2023-11-15/zone=1/region=%45%55/stream=events" in folders


def test_a_delta_table_has_the_columns_in_its_log(
    url: str, fill: Callable[..., list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    fill(range(120))
    archive(None, tmp_path / "t", schema=SCHEMA, format="delta", partition_by="hour,date,zone", url=url,
            stream="events")  # fmt: skip
    table = DeltaTable(tmp_path / "t")
    assert table.metadata().partition_columns == ["hour", "date", "zone", "stream"]
    kinds = {field.name: str(field.type) for field in table.schema().fields}
    assert "integer" in kinds["hour"]
    assert "integer" in kinds["zone"]
    from pyarrow import table as arrow

    files = arrow(table.get_add_actions(flatten=True)).to_pylist()
    assert sum(file["num_records"] for file in files) == 120
    assert {file["partition.zone"] for file in files} == {0, 1}
    assert {file["partition.hour"] for file in files} == {22, 23, 0, 1}


@pytest.mark.parametrize("format", FORMATS)
def test_an_archive_keeps_its_partition_columns(
    url: str, fill: Callable[..., list[tuple[Any, ...]]], tmp_path: Path, format: str
) -> None:
    fill(range(10))
    words: dict[str, Any] = {"format": format, "schema": SCHEMA, "url": url, "stream": "events"}
    with pytest.raises(ArchiveError, match="the partition column area is not in the schema"):
        archive(None, tmp_path / "a", partition_by="date,area", **words)
    with pytest.raises(OptionError, match="partition_by is 'region': expected date, and other columns"):
        archive(None, tmp_path / "a", partition_by="region", **words)
    assert archive(None, tmp_path / "a", partition_by="date,region", **words).entries == 10
    fill(range(10, 20))
    for other, shown in (("date", "date, stream"), ("region,date", "region, date, stream")):
        with pytest.raises(ArchiveError, match=f"is partitioned by date, region, stream; the job asks for {shown}"):
            archive(None, tmp_path / "a", partition_by=other, **words)
    assert archive(None, tmp_path / "a", partition_by="date,region,stream", **words).entries == 10
    with pytest.raises(ArchiveError, match="the partition column n has the type double"):
        archive(None, tmp_path / "b", partition_by="date,n", **{**words, "schema": "n double"})
    with pytest.raises(ArchiveError, match="hour is the hour of the ID"):
        archive(None, tmp_path / "b", partition_by="date,hour", **{**words, "schema": "hour int"})
    archive(None, tmp_path / "c", **words)
    with pytest.raises(ArchiveError, match="is partitioned by date, stream; the job asks for date, hour, stream"):
        archive(None, tmp_path / "c", partition_by="date,hour", **words)


def test_the_command_checks_the_columns(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pipeline", "archive", str(tmp_path / "a"), "--url", url, "--stream", "events", "--partition-by"]
    for wrong in ("hour", "date,date", "date,", "date,id"):
        assert main([*words, wrong]) == 2
        assert f"--partition-by is {wrong!r}: expected date, and other columns" in capsys.readouterr().err
    assert main(["pipeline", "archive", str(tmp_path), "--compact", "--partition-by", "date,hour"]) == 2
    assert "cannot be combined with --partition-by" in capsys.readouterr().err


@pytest.mark.parametrize("format", FORMATS)
def test_a_killed_job_leaves_every_row_once(
    url: str, fill: Callable[..., list[tuple[Any, ...]]], tmp_path: Path, format: str
) -> None:
    """The driver is killed at each step in turn, with trimming and merges."""
    import sys

    from rillet.spark.pipelines.task_runner import TaskRunner

    module = sys.modules["rillet.spark.pipelines.archive"]
    rows, kills, step = fill(range(60)), 0, 0
    while True:
        left = [step := step + 1]

        def at(reached: str, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise Killed

        place = open_archive(tmp_path / "a", format, partition_by=("date", "region", "stream"))
        place.at = at
        try:
            with place.writing() as manifest:
                options = {"url": url, "stream": "events", "maxEntriesPerTrigger": "40"}
                files = module.FileOptions(small_files=2)
                module.ArchiveJob(place, options, SCHEMA, TaskRunner.using(None), files, trim=True).round(manifest)
        except Killed:
            kills += 1
            rows += fill(range(len(rows), len(rows) + 5))
            if open_archive(tmp_path / "a", format).manifest().commit:
                assert [row[0] for row in by_number(read(url, tmp_path / "a"))] == list(range(len(rows)))
            continue
        break
    assert kills > 10
    assert by_number(read(url, tmp_path / "a")) == stored(rows, format)


def test_retention_removes_the_folders_above_empty_ones(judge: Judge, url: str, tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    with judge.client() as client:
        for age, region in ((9, "eu"), (9, "us"), (8, "eu"), (0, "eu")):
            client.xadd("events", {"n": age, "region": region}, f"{now - age * 24 * HOUR}-*")
    words: dict[str, Any] = {"schema": SCHEMA, "partition_by": "region,date", "url": url, "stream": "events"}
    archive(None, tmp_path / "a", **words)
    assert len(list((tmp_path / "a").glob("region=*/date=*/stream=events/*.parquet"))) == 4
    assert archive(None, tmp_path / "a", keep=3 * 86400.0, **words).removed == 3
    assert [path.name for path in (tmp_path / "a").glob("region=*")] == ["region=eu"]
    assert len(list((tmp_path / "a").glob("region=*/date=*"))) == 1


def test_the_manifest_has_a_format_for_columns_of_its_own() -> None:
    part = Part("p", "s", 5, StreamID(1, 0), StreamID(2, 0), 2, 9)
    plain = ArchiveManifest(1)
    plain.files.add([part])
    assert json.loads(base_text(plain))["format"] == 2
    assert json.loads(base_text(plain))["files"] == [["p", "s", 5, [1, 0], [2, 0], 2, 9]]
    own = ArchiveManifest(1, partition_by=("date", "region", "vip", "stream"))
    own.files.add([part._replace(values=(None, True))])
    number, again = parse_base(base_text(own))
    assert (number, again.partition_by, list(again.files)) == (3, own.partition_by, list(own.files))


@pytest.mark.parametrize("format", FORMATS)
def test_spark_writes_merges_and_reads_it(
    spark: SparkSession, url: str, fill: Callable[..., list[tuple[Any, ...]]], tmp_path: Path, format: str
) -> None:
    rows = fill(range(100))
    place = tmp_path / "a"
    for _ in range(2):
        archive(spark, place, schema=SCHEMA, format=format, partition_by="date,region", url=url, stream="events",
                small_files=99)  # fmt: skip
        rows += fill(range(len(rows), len(rows) + 50))
    assert compact(spark, place).merged
    reader = spark.read.format("rillet").schema("n bigint, region string, vip boolean, stream string")
    table = reader.options(url=url, stream="events", archive=str(place)).load()
    rows = [*stored(rows[:150], format), *rows[150:]]
    assert by_number([row[:3] for row in table.collect()]) == rows
    counts = {row["region"]: row["count"] for row in table.groupBy("region").count().collect()}
    assert counts == {region: sum(row[1] == region for row in rows) for region in REGIONS}
    if format == "rillet":
        files = spark.read.parquet(str(place))
        assert files.where("region = 'eu' AND date < '2023-11-16'").count() == len(
            [row for row in rows[:150] if row[1] == "eu" and START + row[0] * STEP < 1_700_092_800_000]
        )
