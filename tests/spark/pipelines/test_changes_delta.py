"""The state table in Delta Lake: equal to the server's data by MERGE, with the rows before and after each batch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa
from deltalake import DeltaTable

import rillet
from rillet.cli import main
from rillet.spark.archive.files import ArchiveOvertaken
from rillet.spark.options import OptionError
from rillet.spark.pipelines import changes
from rillet.spark.pipelines.archive import FileOptions
from rillet.spark.pipelines.changes import ChangesJob, read_state
from rillet.spark.pipelines.task_runner import TaskRunner
from rillet.spark.state import delta
from rillet.spark.state.table import open_state
from tests.replication.load import Load, differences, lasts
from tests.spark.pipelines.test_changes_pipeline import client_of, server
from tests.variants import long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


class Killed(BaseException):
    """Stands for a killed driver."""


class Table:
    """A state table in Delta Lake of one server; `run` is a job of its own."""

    def __init__(self, port: int, folder: Path, **options: str) -> None:
        self.path = folder / "state"
        self._options = {"url": f"redis://127.0.0.1:{port}", "timeout": "20", "fileBytes": "20000", **options}

    def run(self, at: Callable[[str], None] | None = None) -> Any:
        state = open_state(self.path, "delta")
        if at is not None:
            state.at = at
        job = ChangesJob(None, state, self._options, None, TaskRunner.using(None), FileOptions(), buckets=4)
        with job.writing():
            job.round()
        assert not job.done.state.refused
        return job.done

    def rows(self) -> dict[tuple[int, bytes], dict[str, Any]]:
        """Return the rows by database and key, from the files in Delta's log."""
        archive = open_state(self.path)
        assert isinstance(archive, delta.DeltaState)
        found = []
        for file in archive.existing().files:
            with archive.storage.read(file.path) as parquet:
                found += parquet.read().to_pylist()
        rows = {(row["db"], row["key_bytes"]): row for row in found}
        assert len(rows) == len(found)
        return rows

    def feed(self, since: int = 0) -> list[dict[str, Any]]:
        """Return Delta's change data feed."""
        return pa.table(DeltaTable(self.path).load_cdf(starting_version=since)).to_pylist()

    def store(self, compat: str) -> rillet.Store:
        """Return a store with the values of the table."""
        store = rillet.open(compat=compat, enable_debug_command="yes")
        for (db, key), row in self.rows().items():
            store.execute("SELECT", db)
            store.execute("RESTORE", key, row["expires_ms"] or 0, row["dump"], "ABSTTL")
        store.execute("SELECT", 0)
        return store


@pytest.mark.parametrize("seed", [1, *long(2, 3, 4)])
def test_the_table_equals_the_data(seed: int, tmp_path: Path) -> None:
    """Random commands of every type, transactions, expiry, flushes and swaps."""
    with server() as judge:
        master, maker = judge.client(), Load(seed, "7.0")
        maker.run(master, 200)
        table = Table(judge.port, tmp_path, maxBytesPerTrigger="60000")
        rounds = random.Random(seed)
        for number in range(6):
            table.run()
            maker.run(master, rounds.choice((5, 60, 200)))
            if number == 3:
                master.execute_command("SWAPDB", "0", "2")
        lasts(master)
        table.run()
        with table.store("7.0") as store:
            found = [line for line in differences(master, client_of(store)) if not line.startswith("functions")]
            assert found == []


def test_the_feed_has_each_row_before_and_after_its_batch(tmp_path: Path) -> None:
    with server() as judge:
        client = judge.client()
        client.set("a", "1")
        client.set("b", "1")
        table = Table(judge.port, tmp_path)
        table.run()
        before = DeltaTable(table.path).version()
        client.set("a", "2")
        client.delete("b")
        client.rpush("list", "x")
        table.run()
        feed = [(row["_change_type"], row["key"], row["value"] or row["elements"]) for row in table.feed(before + 1)]
        assert Counter(map(str, feed)) == Counter(map(str, [
            ("update_preimage", "a", "1"), ("update_postimage", "a", "2"), ("delete", "b", "1"),
            ("insert", "list", ["x"]),
        ]))  # fmt: skip
        version = DeltaTable(table.path).version()
        assert table.run().batches == 0
        assert DeltaTable(table.path).version() == version
        client.flushall()
        table.run()
        assert table.rows() == {}
        assert {row["_change_type"] for row in table.feed(version + 1)} == {"delete"}


def test_a_batch_that_runs_again_changes_nothing(tmp_path: Path) -> None:
    """Two writers apply the same batch; the slower one is refused, and adds nothing."""
    with server() as judge:
        client = judge.client()
        client.set("a", "1")
        table = Table(judge.port, tmp_path)
        table.run()
        client.set("a", "2")
        slow = delta.DeltaState(table.path)
        with slow.writing() as manifest:
            table.run()
            version, rows = DeltaTable(table.path).version(), table.rows()
            (row,) = rows.values()
            again = {**row, "bucket": 0, "gone": False, "value": "late"}
            with pytest.raises(ArchiveOvertaken, match="Nothing was added"):
                slow.upsert(manifest, [again], manifest.offset)
        assert (DeltaTable(table.path).version(), table.rows()) == (version, rows)


@pytest.mark.parametrize("step", ["transacted", "committed", "drafted"])
def test_a_job_killed_at_any_step_continues_exactly_once(step: str, tmp_path: Path) -> None:
    with server() as judge:
        client, written, kills = judge.client(), 0, 0
        client.set("start", "1")
        table = Table(judge.port, tmp_path, maxBytesPerTrigger="3000")
        for number in range(6):
            for _ in range(20):
                client.rpush("log", written)
                written += 1
            if number == 3:
                client.execute_command("SWAPDB", 1, 2)
            left = [number % 2 + 1]

            def at(reached: str, left: list[int] = left) -> None:
                left[0] -= reached == step
                if reached == step and not left[0]:
                    raise Killed

            try:
                table.run(at)
            except Killed:
                kills += 1
        assert kills >= 2
        table.run()
        assert table.rows()[0, b"log"]["elements"] == [str(n) for n in range(written)]
        log = [row for row in table.feed() if row["key"] == "log"]
        after = [row for row in log if row["_change_type"] in ("insert", "update_postimage")]
        lengths = [len(row["elements"]) for row in sorted(after, key=lambda row: row["_commit_version"])]
        assert lengths == sorted(set(lengths))  # no batch was merged twice


def test_small_files_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "SMALL_FILES", 4)
    with server() as judge:
        client, table = judge.client(), Table(judge.port, tmp_path)
        for number in range(10):
            client.set(f"k{number}", number)
            table.run()
        assert len(DeltaTable(table.path).file_uris()) <= 12
        assert {row["value"] for row in table.rows().values()} == set(map(str, range(10)))
        client.set("k0", "new")
        table.run()
        assert table.rows()[0, b"k0"]["value"] == "new"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server() as judge:
        judge.client().set("a", "1")
        words = ["pipeline", "changes", "--url", f"redis://127.0.0.1:{judge.port}", "--state", str(tmp_path / "t")]
        assert main([*words, "--format", "delta"]) == 0
        assert "1 key written" in capsys.readouterr().out
        judge.client().set("a", "2")
        assert main(words) == 0
        assert main([*words, "--format", "rillet"]) == 1
        assert "has the format delta, not rillet" in capsys.readouterr().err
    assert main(["pipeline", "changes", "--url", "redis://localhost", "--state", "s3://bucket/t"]) == 2
    assert "folder is missing: where received changes wait" in capsys.readouterr().err
    with pytest.raises(OptionError, match="folder is missing"):
        changes(None, state="s3://bucket/t", url="redis://localhost")


def test_spark_reads_the_table(spark: SparkSession, tmp_path: Path) -> None:
    with server() as judge:
        client = judge.client()
        client.hset("h", mapping={"f": "1"})
        client.set("text", "a")
        words: dict[str, Any] = {"state": tmp_path / "t", "format": "delta", "url": f"redis://127.0.0.1:{judge.port}"}
        changes(spark, **words)
        client.hset("h", mapping={"f": "2"})
        client.set("more", "b")
        done = changes(spark, **words)
        assert done.state.written == 2
        rows = {row["key"]: row.asDict(recursive=True) for row in read_state(spark, tmp_path / "t").collect()}
        assert rows.keys() == {"h", "text", "more"}
        assert rows["h"]["fields"] == {"f": "2"}
        assert rows["more"]["value"] == "b"
