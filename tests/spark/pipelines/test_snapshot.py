"""RDB files as DataFrames: the rows of a task, the report, the command."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rillet.errors import RilletError
from rillet.spark.options import OptionError
from rillet.spark.pipelines.cli_arguments import PipelineParser, common_arguments
from rillet.spark.pipelines.jobs import Job
from rillet.spark.pipelines.snapshot import CORRUPT, add_arguments, report, run, task
from rillet.spark.pipelines.snapshot import snapshot as snapshot_of
from tests.judge import Judge
from tests.persistence import rdb_files as build

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyarrow")
MODULE = sys.modules["rillet.spark.pipelines.snapshot"]


@pytest.fixture
def files(judge: Judge, tmp_path: Path) -> Path:
    """Return a folder with the RDB file of a server, and the first half of that file."""
    folder = tmp_path / "backups"
    folder.mkdir()
    with judge.client() as client:
        client.flushall()
        for i in range(200):
            client.execute_command("SET", f"user:{i}", "x" * i, *(("EX", 30 + i * 1000) if i % 2 else ()))
        for i in range(300):
            client.execute_command("HSET", "cart:eu:1", f"f{i}", "y" * 50)
            client.execute_command("XADD", "events", f"{1_700_000_000_000 + i}-0", "n", i)
        client.execute_command("XGROUP", "CREATE", "events", "g", "0")
        client.execute_command("XREADGROUP", "GROUP", "g", "c", "COUNT", 9, "STREAMS", "events", ">")
        client.execute_command("SAVE")
    shutil.copy(judge.folder / "dump.rdb", folder / "whole.rdb")
    data = (folder / "whole.rdb").read_bytes()
    (folder / "torn.rdb").write_bytes(data[: len(data) // 2])
    return folder


def test_a_task_yields_the_rows_before_the_damage(files: Path) -> None:
    torn = str(files / "torn.rdb")
    rows = [row for batch in task(torn, "keys", "PERMISSIVE") for row in batch.to_pylist()]
    assert rows[-1]["key"] is None
    assert rows[-1][CORRUPT].startswith(f"{torn}: offset ")
    assert len(rows) > 10
    assert all(row[CORRUPT] is None for row in rows[:-1])
    dropped = [row for batch in task(torn, "keys", "DROPMALFORMED") for row in batch.to_pylist()]
    assert dropped == rows[:-1]
    with pytest.raises(RilletError, match=rf"rillet: {torn}: offset \d+: \d+ bytes expected"):
        list(task(torn, "keys", "FAILFAST"))
    (gone,) = [row for batch in task("/nowhere.rdb", "keys", "PERMISSIVE") for row in batch.to_pylist()]
    assert gone[CORRUPT] == "/nowhere.rdb: No such file or directory"


def test_all_wrong_arguments_are_reported_at_once(tmp_path: Path) -> None:
    def read(*words: str) -> None:
        parser = PipelineParser(prog="x")
        add_arguments(parser)
        parser.read(words, MODULE)

    with pytest.raises(OptionError) as caught:
        read(str(tmp_path), "--tables", "keys,foo", "--top", "0", "--separator", "", "--bar")
    for part in (
        "no RDB file at",
        "expected some of keys, elements, entries, groups, pending, not foo",
        "--top is '0'",
        "--separator is empty",
        "unknown argument --bar",
    ):
        assert part in str(caught.value)
    (tmp_path / "a.rdb").write_bytes(build.file(10))
    with pytest.raises(OptionError, match="--tables needs --out"):
        read(str(tmp_path), "--tables", "entries")


@pytest.mark.spark
@pytest.mark.slow
def test_tables_and_the_report_have_the_keys_of_the_file(
    spark: SparkSession,
    files: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keys = snapshot_of(spark, files / "whole.rdb").persist()
    parts = report(keys, top=3)
    prefixes = {row["prefix"]: (row["keys"], row["biggest"]) for row in parts["prefixes"].collect()}
    assert prefixes == {"cart": (1, "cart:eu:1"), "(none)": (1, "events"), "user": (200, "user:199")}
    left = {row["left"]: row["keys"] for row in parts["lifetimes"].collect()}
    assert left["never expires"] == 102
    assert sum(left.values()) == 202
    assert left["under an hour"] == 2
    keys.unpersist()
    entries = snapshot_of(spark, files / "whole.rdb", "entries")
    assert entries.selectExpr("count(*)", "sum(int(fields['n']))", "max(id)").first()[:] == (  # type: ignore[index]
        300, 44_850, "1700000000299-0",
    )  # fmt: skip
    pending = snapshot_of(spark, [files / "whole.rdb"], "pending")
    assert (entries.count(), pending.count()) == (300, 9)  # each table keeps its own files and columns
    with pytest.raises(OptionError, match=r"table is 'x'.*mode is 'y'.*no RDB file at"):
        snapshot_of(spark, tmp_path / "none", "x", mode="y")
    parser = PipelineParser(prog="x")
    add_arguments(parser)
    common_arguments(parser)
    given: Any = parser.read([str(files), "--out", str(tmp_path / "out"), "--tables", "groups"], MODULE)
    given.job = Job("snapshot", session=lambda: spark)
    assert run(given) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"DAMAGED {files / 'torn.rdb'}: offset ") for line in lines)
    assert lines[-1].startswith("2 files, ")
    assert lines[-1].endswith("1 file could not be read completely")
    given.json = True
    assert run(given) == 1
    found = json.loads(capsys.readouterr().out)
    damage = {Path(one["file"]).name: one["damage"] for one in found["files"]}
    assert damage["whole.rdb"] is None
    assert "offset" in damage["torn.rdb"]
    assert found["types"]
    groups = spark.read.parquet(str(tmp_path / "out" / "groups")).where("group IS NOT NULL")
    assert groups.select("stream", "pending", "length").distinct().collect() == [("events", 9, 300)]
