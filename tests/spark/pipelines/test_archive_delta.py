"""Archives in Delta tables, in a folder and on an S3 endpoint: each entry once, whatever is killed or repeated."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from deltalake import DeltaTable
from deltalake.transaction import CommitProperties, Transaction

from rillet.spark.archive import delta
from rillet.spark.archive.backends import open_archive
from rillet.spark.archive.delta import APP, DeltaArchive, file_stats
from rillet.spark.archive.files import ArchiveError
from rillet.spark.archive.layout import Archive
from rillet.spark.archive.manifest import Part
from rillet.spark.pipelines.archive import FileOptions, merge_small
from rillet.spark.pipelines.archive_summary import ArchiveSummary
from rillet.spark.pipelines.task_runner import TaskRunner
from rillet.types.stream.id import StreamID
from tests.judge import Judge, free_port
from tests.spark.pipelines.test_archive import Killed, fill, job
from tests.spark.pipelines.test_history import Reader
from tests.variants import long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

__all__ = ["job"]  # the fixture

Make = Callable[..., DeltaArchive]


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """The address of an S3 endpoint on loopback."""
    pytest.importorskip("moto")
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert server.poll() is None
                assert time.monotonic() < deadline
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def s3_options(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
    }  # fmt: skip


PLACES = ("folder", "s3")


@pytest.fixture(params=PLACES)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return a function that opens the test's archive: always the same table."""
    if request.param == "folder":
        return lambda **words: DeltaArchive(tmp_path / "table", **words)
    endpoint = request.getfixturevalue("endpoint")
    bucket = f"bucket{abs(hash(str(tmp_path)))}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")).close()
    return lambda **words: DeltaArchive(f"s3://{bucket}/events", s3_options(endpoint), **words)


def in_table(archive: DeltaArchive) -> list[str]:
    """Return the IDs that a reader of the Delta table finds, by the files in its log."""
    table = archive._newest()
    if table is None:
        return []
    found = []
    for path in table.file_uris():
        relative = path[path.index("date=") :]
        with archive.storage.read(relative) as file:
            found += file.read(columns=["id"])["id"].to_pylist()
    return sorted(found)


def run(archive: DeltaArchive, job: Callable[..., Any], url: str, **options: str) -> Any:
    with archive.writing() as manifest:
        return job(archive, url, **{"stream": "events", **options}).round(manifest)


STEPS = ["created", "written", "staged", "drafted", "transacting", "transacted", "committed", "merged"]


KILLS = [("folder", step) for step in STEPS] + [("s3", "transacted")]


@pytest.mark.parametrize(
    ("make", "step"), [*KILLS, *long(*(("s3", step) for step in STEPS if ("s3", step) not in KILLS))], indirect=["make"]
)
def test_a_driver_killed_at_any_step_leaves_every_entry_exactly_once(
    judge: Judge, url: str, make: Make, job: Callable[..., Any], step: str
) -> None:
    wanted, kills = fill(judge, range(300)), 0
    for turn in range(20):
        left = [turn % 3 + 1]

        def at(reached: str, left: list[int] = left) -> None:
            left[0] -= reached == step
            if reached == step and left[0] == 0:
                raise Killed

        archive = make(at=at)
        try:
            run(archive, job, url, maxEntriesPerTrigger="150")
        except Killed:
            kills += 1
            if kills < 3:
                wanted += fill(judge, range(300 + 50 * kills, 350 + 50 * kills))
            listed = in_table(make())
            assert len(set(listed)) == len(listed)
            with judge.client() as client:  # only archived entries are trimmed
                kept = {identifier.decode() for identifier, _ in client.execute_command("XRANGE", "events", "-", "+")}
            assert set(wanted) <= set(listed) | kept
            continue
        break
    manifest = run(make(), job, url)
    assert kills
    assert in_table(make()) == sorted(wanted)
    assert sum(file.rows for file in manifest.files) == len(wanted)
    with judge.client() as client:
        assert client.xlen("events") == 1  # the last archived entry


def test_a_commit_whose_answer_is_lost_is_not_repeated(
    judge: Judge, url: str, make: Make, job: Callable[..., Any]
) -> None:
    ids = fill(judge, range(100))
    lost: list[str] = []

    def at(step: str) -> None:
        if step == "transacted" and not lost:
            lost.append(step)
            raise OSError("the connection was lost before the answer")

    manifest = run(make(at=at), job, url)
    assert lost
    assert in_table(make()) == sorted(ids)
    table = make()._newest()
    assert table is not None
    assert table.transaction_version(APP) == manifest.commit


def test_a_commit_after_one_of_another_process_is_refused(
    judge: Judge, url: str, make: Make, job: Callable[..., Any]
) -> None:
    """Both read the same entries; the commit of the slower one adds nothing."""
    ids = fill(judge, range(100))

    def at(step: str) -> None:
        if step == "drafted":
            slower.at = lambda step: None
            run(make(), job, url)

    slower = make(at=at)
    with pytest.raises(ArchiveError, match="another process has written to the Delta table .*: it is at commit"):
        run(slower, job, url)
    assert in_table(make()) == sorted(ids)
    ids += fill(judge, range(100, 150))
    run(slower, job, url)
    assert in_table(make()) == sorted(ids)


def test_a_commit_of_another_tool_in_between_is_no_conflict(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any]
) -> None:
    archive, ids = DeltaArchive(tmp_path / "t"), fill(judge, range(10))
    run(archive, job, url)

    def at(step: str) -> None:
        if step == "transacting":
            archive.at = lambda step: None
            table = DeltaTable(tmp_path / "t")
            other = CommitProperties(app_transactions=[Transaction("other", 1)])
            table.create_write_transaction([], "append", table.schema(), commit_properties=other)

    ids += fill(judge, range(10, 20))
    archive.at = at
    run(archive, job, url)
    assert in_table(DeltaArchive(tmp_path / "t")) == sorted(ids)


def test_offsets_survive_checkpoints_and_the_clean_up_of_the_log(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any]
) -> None:
    ids = fill(judge, range(40))
    run(DeltaArchive(tmp_path / "t"), job, url, maxEntriesPerTrigger="4")
    table = DeltaTable(tmp_path / "t")
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.create_checkpoint()
    table.cleanup_metadata()
    assert not list((tmp_path / "t" / "_delta_log").glob("*00000000003.json"))
    ids += fill(judge, range(40, 44))
    manifest = run(DeltaArchive(tmp_path / "t"), job, url)
    assert in_table(DeltaArchive(tmp_path / "t")) == sorted(ids)
    assert manifest.held("events") == StreamID.parse(ids[-1])


@pytest.mark.parametrize("make", ["folder", *long("s3")], indirect=True)
def test_small_files_are_merged_and_vacuum_removes_what_no_version_needs(
    judge: Judge, url: str, make: Make, job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = fill(judge, range(60), step=1000)
    archive = make()
    with archive.writing() as manifest:
        first = job(archive, url, stream="events", maxEntriesPerTrigger="10")
        manifest = first.round(manifest)
    assert (first.done.merged, first.done.into, len(manifest.files)) == (6, 1, 1)
    assert in_table(make()) == sorted(ids)
    orphan = archive.target("zstd")
    _, file = orphan.create()
    file.write(b"left by a killed task")
    left = orphan.finish(Part(file.name, "events", 0, StreamID(1, 0), StreamID(2, 0), 1, 1), file)
    assert make().vacuum(86400) == 0  # too young
    assert make().vacuum(0) == 6  # a running job may be about to commit the other file
    handler = archive.storage.handler()
    assert handler.get_file_info([left.path])[0].is_file
    monkeypatch.setattr(delta, "FRESH", 0.0)
    assert make().vacuum(0) >= 1
    assert not handler.get_file_info([left.path])[0].is_file
    assert in_table(make()) == sorted(ids)
    states = [info for info in archive.storage.handler().get_file_info_selector(_states()) if info.is_file]
    assert len(states) == 1
    ids += fill(judge, range(60, 70), step=1000)
    run(make(), job, url)
    assert in_table(make()) == sorted(ids)


def test_old_days_are_removed_whole(judge: Judge, url: str, make: Make, job: Callable[..., Any]) -> None:
    ids = fill(judge, range(900))
    run(make(), job, url)
    archive, done = make(), ArchiveSummary()
    now = StreamID.parse(ids[-1]).ms / 1000
    with archive.writing() as manifest:
        manifest = merge_small(archive, manifest, FileOptions(keep=time.time() - now), TaskRunner.using(None), done)
        assert (done.removed, manifest.commit) == (900 - len(in_table(make())), 2)
        merge_small(archive, manifest, FileOptions(keep=time.time() - now), TaskRunner.using(None), done)
    day = StreamID.parse(ids[-1]).ms // 86_400_000
    wanted = sorted(one for one in ids if StreamID.parse(one).ms // 86_400_000 == day)
    assert in_table(make()) == wanted
    assert make().manifest().read_up_to("events") == StreamID.parse(ids[-1])
    ids += fill(judge, range(900, 910))
    run(make(), job, url)
    assert len(in_table(make())) == len(wanted) + 10


def test_archive_and_stream_are_one_table(judge: Judge, url: str, make: Make, job: Callable[..., Any]) -> None:
    fill(judge, range(300))
    archive = make()
    run(archive, job, url)
    fill(judge, range(300, 400))
    words = {"archiveOptions": json.dumps(archive.storage.storage_options)} if "://" in archive.path else {}
    reader = Reader(url, archive.path, **words)
    tasks = reader.plan()
    run(make(), job, url)  # archives and trims the rest meanwhile
    assert sorted(number for task in tasks for number in reader.read(task)) == list(range(400))
    later = Reader(url, archive.path, startingOffsets="1700043200000", **words)
    assert sorted(later.numbers()) == list(range(200, 400))


def _states() -> Any:
    from pyarrow.fs import FileSelector

    return FileSelector("_rillet", recursive=True)


def test_statistics_and_names_let_readers_skip_files(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any]
) -> None:
    names = ["a:b=%41/ü", "events"]
    for name in names:
        fill(judge, range(3), name)
    with (archive := DeltaArchive(tmp_path / "t")).writing() as manifest:
        job(archive, url, streams=",".join(names)).round(manifest)
    import pyarrow as pa

    table = DeltaTable(tmp_path / "t")
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert {row["partition.stream"] for row in rows} == set(names)
    assert sum(row["num_records"] for row in rows) == 6
    assert all(row["min.id_ms"] <= row["max.id_ms"] for row in rows)
    part = Part("p", "s", None, StreamID(1 << 63, 0), StreamID((1 << 63) + 5, 0), 2, 9)
    assert file_stats(part)["minValues"] == {"id_ms": -(1 << 63)}
    assert file_stats(part._replace(first=StreamID(7, 0)))["minValues"] == {}
    assert file_stats(part._replace(first=StreamID(7, 0), last=StreamID(86_399_999, 1), day=0))["maxValues"] == {
        "id_ms": 86_399_999, "timestamp": "1970-01-01T23:59:59.999Z",
    }  # fmt: skip


def written(archive: DeltaArchive, number: int, columns: dict[str, str]) -> None:
    """Commit a file with one row of string columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.types import StringType, StructType

    target = archive.target("none")
    path, file = target.create()
    pq.write_table(pa.table({name: [value] for name, value in columns.items()}), file)
    identifier = StreamID(number, 0)
    part = target.finish(Part(path, "s", 0, identifier, identifier, 1, file.tell()), file)
    schema = StructType()
    for name in columns:
        schema = schema.add(name, StringType())
    manifest = archive.manifest()
    archive.append(manifest, [part], {"streams": {"s": str(identifier)}}, schema.json())


def test_a_kill_while_the_schema_is_extended_or_the_table_vacuumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "FRESH", 0.0)
    place, steps = tmp_path / "t", list[str]()

    def killed(step: str) -> None:
        steps.append(step)
        if step in ("extended", "vacuumed"):
            raise Killed

    written(DeltaArchive(place), 1, {"id": "1-0"})
    wide = {"id": "2-0", "user": "u"}
    with pytest.raises(Killed):
        written(DeltaArchive(place, merge_schema=True, at=killed), 2, wide)
    assert in_table(DeltaArchive(place)) == ["1-0"]
    written(DeltaArchive(place, merge_schema=True), 2, wide)
    with pytest.raises(Killed):
        DeltaArchive(place, at=killed).vacuum(0.0)
    assert DeltaArchive(place).vacuum(0.0) == 0
    assert steps == ["extended", "vacuumed"]
    archive = DeltaArchive(place)
    assert in_table(archive) == ["1-0", "2-0"]
    assert archive.manifest().held("s") == StreamID(2, 0)
    assert not list((place / "_rillet" / "staging").iterdir())
    assert len(list((place / "_rillet").glob("state-*"))) == 1
    with pytest.raises(ArchiveError, match="has other types for: id, user"):
        archive._create_or_extend(archive.manifest().schema.replace('"string"', '"long"'), ["date", "stream"], new=True)


def test_files_that_another_tool_has_merged_are_noticed(tmp_path: Path) -> None:
    """Their names lack the IDs, so `history` cannot use them; the archive continues at its offset."""
    for number in (1, 2):
        written(DeltaArchive(tmp_path / "t"), number, {"id": f"{number}-0"})
    assert DeltaTable(tmp_path / "t").optimize.compact()["numFilesRemoved"] == 2
    manifest = DeltaArchive(tmp_path / "t").existing()
    assert (manifest.foreign, manifest.commit, manifest.offset) == (1, 2, {"streams": {"s": "2-0"}})
    assert manifest.held("s") == StreamID(0, 0)  # nothing is trimmed until the next commit
    assert manifest.read_up_to("s") == StreamID(2, 0)
    written(DeltaArchive(tmp_path / "t"), 3, {"id": "3-0"})
    archive = DeltaArchive(tmp_path / "t")
    assert archive.manifest().held("s") == StreamID(3, 0)
    assert sum(DeltaTable(tmp_path / "t").get_add_actions(flatten=True).column("num_records").to_pylist()) == 3


def test_the_format_of_an_archive_is_found_and_kept(tmp_path: Path) -> None:
    assert isinstance(open_archive(tmp_path / "a"), Archive)
    assert isinstance(open_archive(tmp_path / "a", "delta"), DeltaArchive)
    assert isinstance(open_archive("s3://bucket/a"), DeltaArchive)
    with pytest.raises(ArchiveError, match="s3://bucket/a is not a folder"):
        open_archive("s3://bucket/a", "rillet")
    with pytest.raises(ArchiveError, match="format of an archive is rillet or delta, not 'iceberg'"):
        open_archive(tmp_path / "a", "iceberg")
    with pytest.raises(ArchiveError, match="merge_schema and storage_options are for Delta tables"):
        open_archive(tmp_path / "a", storage_options={"a": "b"})
    (tmp_path / "a" / "_delta_log").mkdir(parents=True)
    assert isinstance(open_archive(tmp_path / "a"), DeltaArchive)
    with pytest.raises(ArchiveError, match="has the format delta, not rillet"):
        open_archive(tmp_path / "a", "rillet")
    with pytest.raises(ArchiveError, match="there is no archive at"):
        open_archive(tmp_path / "b", "delta").existing()


def test_a_process_exits_normally_after_a_refused_commit(tmp_path: Path) -> None:
    """deltalake's readers into pyarrow abort some processes at their exit; rillet does not use them."""
    script = (
        "import sys\n"
        "from deltalake import DeltaTable\n"
        "from rillet.spark.archive.delta import DeltaArchive\n"
        "from rillet.spark.archive.files import ArchiveError\n"
        "import pyarrow.parquet as pq, pyarrow as pa\n"
        "from rillet.spark.archive.manifest import Part\n"
        "from rillet.types.stream.id import StreamID\n"
        "from pyspark.sql.types import StructType, StringType\n"
        "schema = StructType().add('id', StringType()).json()\n"
        "def write(archive, n):\n"
        "    target = archive.target('none')\n"
        "    path, file = target.create()\n"
        "    pq.write_table(pa.table({'id': [str(n)]}), file)\n"
        "    part = target.finish(Part(path, 's', 0, StreamID(n, 0), StreamID(n, 0), 1, file.tell()), file)\n"
        "    return archive.append(manifests[archive], [part], {'streams': {}}, schema)\n"
        "one, two = DeltaArchive(sys.argv[1]), DeltaArchive(sys.argv[1])\n"
        "manifests = {one: one.manifest(), two: two.manifest()}\n"
        "write(one, 1)\n"
        "try:\n"
        "    write(two, 2)\n"
        "except ArchiveError as error:\n"
        "    print(error)\n"
        "with one.storage.read(next(iter(one.manifest().files)).path) as file:\n"
        "    print(file.read()['id'].to_pylist())\n"
    )
    for number in range(2):
        ended = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / f"t{number}")], capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr
        assert "another process has written" in ended.stdout
        assert ended.stdout.endswith("['1']\n")


def test_archived_with_spark_and_its_schema_extended(
    spark: SparkSession, judge: Judge, url: str, tmp_path: Path, endpoint: str
) -> None:
    """Spark's tasks write to the object store; new columns extend the table; the summary line counts them."""
    from rillet.spark.pipelines import archive, compact

    bucket = f"{endpoint}/spark"
    urllib.request.urlopen(urllib.request.Request(bucket, method="PUT")).close()
    where: dict[str, Any] = {"url": url, "stream": "events", "storage_options": s3_options(endpoint)}
    fill(judge, range(100), step=1000)
    done = archive(spark, "s3://spark/events", schema="n int", trim=True, **where)
    assert (done.entries, done.trimmed) == (100, 99)
    fill(judge, range(100, 150), step=1000)
    with pytest.raises(ArchiveError, match="has the columns .*; the job writes"):
        archive(spark, "s3://spark/events", schema="n int, user string", **where)
    done = archive(spark, "s3://spark/events", schema="n int, user string", merge_schema=True, **where)
    assert done.entries == 50
    merged = compact(spark, "s3://spark/events", storage_options=s3_options(endpoint), keep_replaced=0.0)
    assert merged.merged >= 2
    assert merged.vacuumed >= 2
    opened = DeltaArchive("s3://spark/events", s3_options(endpoint))
    rows = []
    for file in opened.existing().files:
        with opened.storage.read(file.path) as parquet:
            rows += parquet.read(columns=["n", "user"]).to_pylist()
    assert sorted(row["n"] for row in rows) == list(range(150))
    assert sum(row["user"] is None for row in rows) == 100
    assert json.loads(opened.existing().schema)["fields"][-1]["name"] == "user"
