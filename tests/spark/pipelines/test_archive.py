"""Archives hold every entry once, whatever is killed at any step, for readers of the manifest and of the folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

import pytest

import rillet
from rillet.client.errors import ConnectorError
from rillet.spark.archive.files import ArchiveError, can_exchange
from rillet.spark.archive.layout import OWN, Archive, day_of, folder_of
from rillet.spark.archive.manifest import ArchiveManifest
from rillet.spark.options import Options, parse
from rillet.spark.pipelines.archive import FileOptions, merge_small
from rillet.spark.pipelines.archive_summary import ArchiveSummary
from rillet.spark.pipelines.archive_trim import trim_errors
from rillet.spark.pipelines.task_runner import TaskRunner
from rillet.types.stream.id import StreamID
from tests.judge import Judge
from tests.spark.conftest import entry_id
from tests.variants import long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

DAY = 86_400_000


class Killed(BaseException):
    """Stands for a killed driver."""


def types() -> Any:
    """Return the columns of an archive with the map `fields`; parsing DDL would need a session."""
    from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType, TimestampType

    kinds = {"stream": StringType(), "id": StringType(), "id_ms": LongType(), "id_seq": LongType()}
    kinds |= {"timestamp": TimestampType(), "fields": MapType(StringType(), StringType())}  # type: ignore[dict-item]
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


@pytest.fixture
def job() -> Callable[..., Any]:
    """What archives without Spark, which only runs the tasks elsewhere."""
    import rillet.spark.pipelines.archive  # noqa: F401

    module = sys.modules["rillet.spark.pipelines.archive"]

    def make(archive: Archive, url: str, **options: str) -> Any:
        files = module.FileOptions(small_files=2)
        return module.ArchiveJob(archive, {"url": url, **options}, None, TaskRunner.using(None), files, trim=True)

    return make


def fill(judge: Judge, numbers: range, stream: str = "events", step: int = DAY // 400) -> list[str]:
    """Append entries, 400 a day."""
    ids = [f"{1_700_000_000_000 + i * step}-{i % 3}" for i in numbers]
    with judge.client() as client:
        pipe = client.pipeline(transaction=False)
        for i, identifier in zip(numbers, ids, strict=True):
            pipe.execute_command("XADD", stream, identifier, "n", i, "user", f"u{i % 7}")
        pipe.execute()
    return ids


def by_glob(folder: Path) -> list[str]:
    """Return the IDs that pyarrow finds in the folder without the manifest."""
    import pyarrow.dataset as ds

    if not list(folder.glob("date=*/stream=*/*.parquet")):
        return []
    return sorted(ds.dataset(folder, partitioning="hive").to_table(columns=["id"])["id"].to_pylist())


def by_manifest(archive: Archive) -> list[str]:
    """Return the IDs of the files in the manifest."""
    import pyarrow as pa

    from rillet.spark.archive.parquet_reader import ArchiveTask, read_share

    manifest = archive.manifest()
    schema = pa.schema([("id", pa.string())])
    return sorted(
        identifier
        for file in manifest.files
        for batch in read_share(
            ArchiveTask(tuple(archive.places(manifest, file.path)), file.stream, StreamID(0, 0), file.last),
            schema,
            Options(),
        )
        for identifier in batch.column("id").to_pylist()
    )


@pytest.mark.parametrize(
    "step", ["committed", "placed", "merged", "exchanged", *long("written", "staged", "drafted", "settled")]
)
def test_a_driver_killed_at_any_step_leaves_every_entry_exactly_once(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any], step: str
) -> None:
    """The driver is killed when it reaches the step for the first, second, third time, until a run completes."""
    archive, wanted, kills = Archive(tmp_path / "a"), fill(judge, range(900)), 0
    for attempt in range(40):
        left = [attempt % 3 + 1]

        def at(reached: str, left: list[int] = left) -> None:
            left[0] -= reached == step
            if reached == step and left[0] == 0:
                raise Killed

        archive.at = at
        try:
            with archive.writing() as manifest:
                job(archive, url, stream="events", maxEntriesPerTrigger="250").round(manifest)
        except Killed:
            kills += 1
            if attempt < 2:
                wanted += fill(judge, range(900 + 100 * attempt, 1000 + 100 * attempt))
            listed = by_glob(archive.path)
            assert len(set(listed)) == len(listed)
            assert set(listed) <= set(wanted)
            read = by_manifest(archive)
            assert len(set(read)) == len(read)
            assert set(listed) <= set(read) | set(wanted)
            with judge.client() as client:  # only archived entries are trimmed
                kept = {identifier.decode() for identifier, _ in client.execute_command("XRANGE", "events", "-", "+")}
            assert set(wanted) <= set(read) | kept
            continue
        break
    archive.at = lambda reached: None
    with archive.writing() as manifest:
        manifest = job(archive, url, stream="events").round(manifest)
    assert kills
    assert by_glob(archive.path) == by_manifest(archive) == sorted(wanted)
    assert sum(file.rows for file in manifest.files) == len(wanted)
    assert not list((archive.path / OWN).glob("staging/*"))
    with judge.client() as client:
        assert client.xlen("events") == 1  # the last archived entry


@pytest.mark.parametrize("step", ["merged", "committed", "exchanged", "settled", "staged", "drafted"])
def test_old_days_are_removed_whole_also_after_a_kill_at_any_step(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any], step: str
) -> None:
    """Three days of two streams; those before the last one are removed. Readers of the last commit keep its rows."""
    ids = {name: fill(judge, range(900), name) for name in ("events", "events:2")}
    archive = Archive(tmp_path / "a")
    with archive.writing() as manifest:
        before = job(archive, url, streamPattern="events*").round(manifest)
    table = {file.path: archive.places(before, file.path) for file in before.files}
    left = [1]

    def at(reached: str) -> None:
        left[0] -= reached == step
        if reached == step and left[0] == 0:
            raise Killed

    now = 1_700_000_000 + 899 * DAY // 400 // 1000
    keep = FileOptions(keep=time() - now + 0.5 * DAY / 1000)  # half a day before the last entry
    archive.at, done = at, ArchiveSummary()
    for attempt in range(2):
        try:
            with archive.writing() as manifest:
                merge_small(archive, manifest, keep, TaskRunner.using(None), done)
            break
        except Killed:
            assert attempt == 0
            assert set(by_glob(archive.path)) <= set(ids["events"])
    assert left[0] < 1
    days = [(1_700_000_000_000 + n * (DAY // 400)) // DAY for n in range(900)]
    wanted = [one for one, day in zip(ids["events"], days, strict=True) if day >= days[-1] - (now % 86_400 < 43_200)]
    assert 0 < len(wanted) < 900
    assert by_manifest(archive) == by_glob(archive.path) == sorted(2 * wanted)
    assert len(list(archive.path.glob("date=*"))) == len({day_of(int(one.split("-")[0])) for one in wanted})
    assert all(any(place.exists() for place in places) for places in table.values())  # for readers of `before`
    assert not list((archive.path / OWN).glob("staging/*"))
    fill(judge, range(900, 910))
    with archive.writing() as manifest:
        job(archive, url, streamPattern="events*").round(manifest)
    assert len(by_glob(archive.path)) == 2 * len(wanted) + 10


def test_trimming_waits_for_groups_and_keeps_the_last_entry(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any]
) -> None:
    ids = fill(judge, range(100))

    def archived() -> list[str]:
        archive = Archive(tmp_path / "a")
        with archive.writing() as manifest:
            job(archive, url, stream="events").round(manifest)
        with judge.client() as client:
            return [identifier.decode() for identifier, _ in client.execute_command("XRANGE", "events", "-", "+")]

    with judge.client() as client:
        client.execute_command("XGROUP", "CREATE", "events", "slow", "0")
        client.execute_command("XGROUP", "CREATE", "events", "quick", ids[80])
        assert archived() == ids
        client.execute_command("XREADGROUP", "GROUP", "slow", "c", "COUNT", "50", "STREAMS", "events", ">")
        client.execute_command("XACK", "events", "slow", *ids[:20], *ids[21:50])
        assert archived() == ids[20:]  # the oldest pending entry
        client.execute_command("XACK", "events", "slow", ids[20])
        assert archived() == ids[49:]  # the last delivered entry
        client.execute_command("XGROUP", "SETID", "events", "slow", "$")
        assert archived() == ids[80:]
        client.execute_command("XGROUP", "DESTROY", "events", "quick")
        assert archived() == ids[99:]
        client.execute_command("XDEL", "events", ids[99])  # and without the last archived entry
        ids += fill(judge, range(100, 110))
        assert archived() == ids[100:]
        client.execute_command("XGROUP", "DESTROY", "events", "slow")
        assert archived() == ids[109:]
    assert by_glob(tmp_path / "a") == sorted(ids)


def test_the_summary_line_reports_that_trimming_removed_nothing() -> None:
    done = ArchiveSummary(entries=300, files=3, bytes=2_000_000)
    assert done.line("a") == "a: 300 entries archived in 3 files (2.0 MB)"
    done.trims = True
    assert done.line("a") == "a: 300 entries archived in 3 files (2.0 MB), nothing trimmed"
    done.trimmed = 1200
    assert done.line("a") == "a: 300 entries archived in 3 files (2.0 MB), 1,200 trimmed"


def test_a_stream_that_was_recreated_is_trimmed_only_to_its_own_archived_entries(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any]
) -> None:
    """It is trimmed to its own last archived entry, not to that of the deleted stream of the same name."""
    before, archive = fill(judge, range(400, 500)), Archive(tmp_path / "a")
    with archive.writing() as manifest:
        manifest = job(archive, url, stream="events").round(manifest)
    with judge.client() as client:
        client.delete("events")
        after = fill(judge, range(200))
        with (
            pytest.raises(ConnectorError, match="before being read: the stream 'events'"),
            archive.writing() as manifest,
        ):
            job(archive, url, stream="events").round(manifest)
        assert client.xlen("events") == 200
        with archive.writing() as manifest:
            manifest = job(archive, url, stream="events", failOnDataLoss="false").round(manifest)
        assert client.xlen("events") == 1
        assert manifest.held("events") == StreamID.parse(after[199])
        after += fill(judge, range(200, 250))  # below the archived IDs of the deleted stream
        with archive.writing() as manifest:
            job(archive, url, stream="events", failOnDataLoss="false").round(manifest)
        assert client.xlen("events") == 1
    assert by_glob(archive.path) == sorted(before + after)


def test_entries_deleted_before_the_first_batch_are_not_a_loss_in_a_later_run(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any]
) -> None:
    """The manifest keeps the whole offset, also for a stream that was read partly or not at all."""
    ids, others, archive = fill(judge, range(400)), fill(judge, range(10), "others"), Archive(tmp_path / "a")
    with judge.client() as client:
        client.execute_command("XDEL", "events", ids.pop(300))
        client.execute_command("XDEL", "others", others.pop(5))
    with archive.writing() as manifest:
        first = job(archive, url, stream="events", maxEntriesPerTrigger="100")
        first.stop.set()  # ends after a batch
        first.round(manifest)
    assert 0 < len(by_manifest(archive)) < 300
    with archive.writing() as manifest:
        job(archive, url, streams="events,others", maxEntriesPerTrigger="150").round(manifest)
    assert by_manifest(archive) == by_glob(archive.path) == sorted(ids + others)


def test_lost_entries_are_counted_once_and_reported(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any]
) -> None:
    ids, archive = fill(judge, range(10)), Archive(tmp_path / "a")
    with archive.writing() as manifest:
        manifest = job(archive, url, stream="events").round(manifest)
        ids += fill(judge, range(10, 50))
        with judge.client() as client:
            client.execute_command("XTRIM", "events", "MAXLEN", "=", "0")
        with pytest.raises(ConnectorError, match="40 entries were lost .* or use another folder to start over$"):
            job(archive, url, stream="events").round(manifest)
        tolerant = job(archive, url, stream="events", failOnDataLoss="false")
        for _ in range(3):
            manifest = tolerant.round(manifest)
        with judge.client() as client:
            ids += fill(judge, range(50, 60))
            client.execute_command("XTRIM", "events", "MAXLEN", "=", "9")
        tolerant.round(manifest)
    assert (tolerant.done.lost, tolerant.done.unsure, tolerant.done.entries) == (41, False, 9)
    assert tolerant.done.line("a").endswith(", 41 entries lost before archiving")
    assert by_manifest(archive) == sorted(ids[:10] + ids[51:])


@pytest.mark.parametrize("wrong", [("n", b"\xff"), (b"\xfe", "1")])
def test_entries_with_bytes_that_a_string_archive_cannot_hold_are_not_trimmed(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any], wrong: tuple[Any, Any]
) -> None:
    ids, archive = fill(judge, range(5)), Archive(tmp_path / "a")
    with judge.client() as client:
        client.execute_command("XADD", "events", "*", *wrong)
        with (
            pytest.raises(ArchiveError, match="'events' has bytes that are not UTF-8 between 17"),
            archive.writing() as m,
        ):
            job(archive, url, stream="events").round(m)
        assert client.xlen("events") == 6
        assert by_manifest(archive) == []
    with archive.writing() as manifest:
        untouched = job(archive, url, stream="events")
        untouched.trim = False
        untouched.round(manifest)
    assert len(by_manifest(archive)) == len(ids) + 1


def test_options_that_skip_entries_are_rejected_together_with_trim(tmp_path: Path) -> None:
    given = {"url": "redis://localhost", "stream": "s", "startingOffsets": "5-0", "mode": "DROPMALFORMED"}
    assert [text.split()[-1] for text in trim_errors(parse(given))] == ["archived", "archive"]
    assert not trim_errors(parse({"url": "redis://localhost", "stream": "s"}))


def test_a_pattern_matches_as_it_does_on_the_server(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any]
) -> None:
    """Otherwise an archived stream would not be recognised in the next run, and its entries would be archived twice."""
    ids, archive = fill(judge, range(10), "events:[1]"), Archive(tmp_path / "a")
    for _ in range(2):
        for pattern in ("events:[^2]1?", "events:\\[?\\]", "ev*"):
            with archive.writing() as manifest:
                job(archive, url, streamPattern=pattern).round(manifest)
    assert by_glob(archive.path) == ids


def test_several_streams_and_jobs_share_a_folder(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any]
) -> None:
    import pyarrow.dataset as ds

    names = ["events:1", "events:2", "a/b=ü %"]
    ids = {name: fill(judge, range(10 * place, 10 * place + 10), name) for place, name in enumerate(names)}
    archive = Archive(tmp_path / "a")
    for options in ({"streamPattern": "events:*"}, {"stream": names[2]}, {"streams": "events:2,events:1"}):
        with archive.writing() as manifest:
            latest = job(archive, url, **options).round(manifest)
    assert latest.streams() == sorted(names)
    rows = ds.dataset(archive.path, partitioning="hive").to_table(columns=["stream", "id"]).to_pylist()
    assert sorted((row["stream"], row["id"]) for row in rows) == sorted((n, one) for n in names for one in ids[n])
    second = Archive(tmp_path / "a").writing()
    with archive.writing(), pytest.raises(ArchiveError, match="another process is writing to the archive"), second:
        pass


def test_errors_name_the_archive_and_the_cause(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="s3a://bucket/events is not a folder of a file system"):
        Archive("s3a://bucket/events")
    with pytest.raises(ArchiveError, match="there is no archive at .*manifest.json is missing"):
        Archive(tmp_path).existing()
    for name in ("x" * 249, "\u6d41" * 28):
        with pytest.raises(ArchiveError, match="is too long for a folder of an archive: 25[69] bytes after percent"):
            folder_of(name, 0)
    (tmp_path / OWN).mkdir()
    (tmp_path / OWN / "manifest.json").write_text('{"format": 1}')
    with pytest.raises(ArchiveError, match="the manifest of the archive .* is damaged"):
        Archive(tmp_path).manifest()
    (tmp_path / OWN / "manifest.json").write_text('{"format": 4}')
    with pytest.raises(ArchiveError, match="has format 4; this version reads 1 to 3"):
        Archive(tmp_path).manifest()
    assert folder_of("a:b/c", 19_000) == "date=2022-01-08/stream=a%3Ab%2Fc"
    assert folder_of("\u00c4A.Z~b", 0) == "date=1970-01-01/stream=%C3%84%41.%5A~b"
    names = ("Events", "events", "", "__HIVE_DEFAULT_PARTITION__", "%41", "a", "A")
    assert len({folder_of(name, 0).casefold() for name in names}) == len(names)
    assert folder_of("e", day_of(1 << 60)) == "date=__HIVE_DEFAULT_PARTITION__/stream=e"
    assert can_exchange(tmp_path)
    assert ArchiveManifest().last("e") == StreamID(0, 0)


def test_ids_beyond_the_year_9999_have_no_date() -> None:
    import pyarrow as pa

    from rillet.spark.pipelines.parquet import runs

    ms = [5, DAY + 1, 1 << 62, -1, -1]  # the last two stand for 2^64 - 1
    batch = pa.record_batch({"stream": ["s"] * 5, "id_ms": pa.array(ms, pa.int64())})
    assert [(day, rows.num_rows) for _, day, rows in runs(batch)] == [(0, 1), (1, 1), (None, 1), (None, 2)]
    ends = pa.record_batch({"stream": ["s"] * 2, "id_ms": pa.array([5, -1], pa.int64())})
    assert [(day, rows.num_rows) for _, day, rows in runs(ends)] == [(0, 1), (None, 1)]


@pytest.mark.long
def test_a_new_driver_completes_the_commit_of_a_killed_one(
    spark: SparkSession, judge: Judge, url: str, tmp_path: Path
) -> None:
    """A driver, its JVM and its workers are killed between commit and rename; this process continues and compacts."""
    from rillet.spark.pipelines import archive, compact

    wanted = fill(judge, range(3000))
    script = (
        "import os, signal, sys, rillet.spark\n"
        "from rillet.spark.archive.layout import Archive\n"
        "Archive.__init__.__defaults__ = (lambda step: step == 'placed' and os.killpg(0, signal.SIGKILL), 'stream')\n"
        "from rillet.spark.pipelines import archive\n"
        "spark = rillet.spark.session('local[1]', spark_driver_memory='512m')\n"
        "archive(spark, sys.argv[1], url=sys.argv[2], stream='events', maxEntriesPerTrigger='1000', trim=True)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a"), url], start_new_session=True, capture_output=True,
        timeout=300, env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    first = Archive(tmp_path / "a").existing()
    assert first.commit == 1
    assert len(by_glob(tmp_path / "a")) < sum(file.rows for file in first.files)
    wanted += fill(judge, range(3000, 3100))
    shown: list[tuple[int, int | None]] = []
    done = archive(spark, tmp_path / "a", url=url, stream="events", small_files=100, trim=True,
                   progress=lambda *counts: shown.append(counts))  # fmt: skip
    assert done.entries == 3100 - sum(file.rows for file in first.files)
    assert shown[-1][0] == done.entries
    merged = compact(spark, tmp_path / "a")
    assert merged.merged > merged.into > 0
    kept = len(list((tmp_path / "a" / OWN / "replaced").rglob("*.old")))
    assert kept == merged.merged
    assert compact(spark, tmp_path / "a", keep_replaced=0.0).merged == 0
    assert not list((tmp_path / "a" / OWN / "replaced").rglob("*.old"))
    table = spark.read.parquet(str(tmp_path / "a"))
    assert set(table.columns) == {"id", "id_ms", "id_seq", "timestamp", "fields", "date", "stream"}
    row = table.selectExpr("count(*)", "count(distinct id)", "sum(fields['n'])", "sum(int(date = date(timestamp)))")
    assert tuple(row.collect()[0]) == (3100, 3100, 3100 * 3099 / 2, 3100)
    assert by_glob(tmp_path / "a") == sorted(wanted)


def test_an_embedded_store_is_archived_with_typed_columns(spark: SparkSession, tmp_path: Path) -> None:
    from rillet.spark.pipelines import archive

    with rillet.open(str(tmp_path / "events.rillet")) as store:
        events = store.stream("events")
        for i in range(50):
            events.add({"n": str(i), "user": f"u{i}"}, id=entry_id(i))
        done = archive(spark, tmp_path / "a", path=str(tmp_path / "events.rillet"), stream="events",
                       schema="n int, user string", trim=True)  # fmt: skip
        assert (done.entries, done.trimmed, len(events)) == (50, 49, 1)
        with pytest.raises(ArchiveError, match="has the columns .*; the job writes"):
            archive(spark, tmp_path / "a", path=str(tmp_path / "events.rillet"), stream="events")
    rows = spark.read.parquet(str(tmp_path / "a")).where("n >= 48").select("id", "n", "user").collect()
    assert sorted(tuple(row) for row in rows) == [(entry_id(48), 48, "u48"), (entry_id(49), 49, "u49")]
