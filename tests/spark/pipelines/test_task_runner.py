"""Small work runs in this process, with the results of Spark; large work starts Spark."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from rillet.cli import main
from rillet.spark.archive.layout import Archive
from rillet.spark.options import OptionError
from rillet.spark.pipelines import archive, changes, compact
from rillet.spark.pipelines.task_runner import MOST_BYTES, MOST_ENTRIES, TaskRunner, here, memory_of, struct_of
from tests.judge import Judge, running_redis
from tests.spark.conftest import entry_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Said = pytest.CaptureFixture[str]
SCHEMAS = (
    "a int, b string", "n long, `a b` double, t timestamp", "d decimal(20, 4), e date, f boolean, g binary, h float",
    "fields map<string,binary>",
    "i array<bigint>, j tinyint, k smallint, l timestamp_ntz",
)  # fmt: skip


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("rillet.spark.sessions.session", started)


def fail() -> Any:
    raise AssertionError("Spark was started")


def test_work_runs_in_this_process_up_to_a_size() -> None:
    auto = TaskRunner("auto", fail)
    assert auto.is_small(MOST_ENTRIES, MOST_BYTES)
    assert not auto.is_small(MOST_ENTRIES + 1)
    assert not auto.is_small(size=MOST_BYTES + 1)
    assert auto.work_for(5, 5) is here
    assert (auto.parallelism_for(5, 5), auto.used) == (1, "this process")
    with pytest.raises(AssertionError, match="Spark was started"):
        auto.work_for(MOST_ENTRIES + 1)
    assert TaskRunner("never", fail).is_small(1e12, 1e12)
    assert not TaskRunner("always", fail).is_small()
    auto.stop()


def test_tasks_run_in_order_and_the_first_error_ends_them() -> None:
    assert here([]) == []
    assert here([(pow, n, 2) for n in range(40)]) == [n * n for n in range(40)]
    shown: list[tuple[int, int | None]] = []
    assert here([(pow, 2, 2), (pow, 3, 2)], lambda *now: shown.append(now)) == [4, 9]
    assert shown == [(1, 2), (2, 2)]
    with pytest.raises(ZeroDivisionError):
        here([(divmod, 1, 0), (pow, 1, 1)])


def test_a_schema_that_only_spark_parses_is_an_error_without_spark() -> None:
    schema = struct_of("a int, b string", TaskRunner.using(None))
    assert schema.simpleString() == "struct<a:int,b:string>"
    assert struct_of(schema, TaskRunner.using(None)) is schema
    with pytest.raises(OptionError, match="'a interval day' is not a type|interval"):
        struct_of("a interval day", TaskRunner.using(None))


def test_the_memory_of_a_server_is_an_upper_bound(judge: Judge) -> None:
    class Refusing:
        def replies(self, _: object) -> list[Any]:
            return [RuntimeError("NOPERM")]

    with judge.client() as client:
        text = client.execute_command("INFO", "memory").decode()
    used = int(text.split("used_memory:")[1].split()[0])
    from rillet.client.servers import ClientOptions, Servers

    with Servers(ClientOptions.from_url(f"redis://127.0.0.1:{judge.port}")) as servers:
        assert used / 2 < memory_of(servers.masters()) < used * 2
    assert memory_of([Refusing()]) == float("inf")  # type: ignore[list-item]


@pytest.mark.usefixtures("no_spark")
def test_commands_of_little_work_start_no_spark(
    judge: Judge, url: str, add: Callable[..., None], tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    folder = str(tmp_path / "a")

    def run(*words: str) -> str:
        assert main(["pipeline", *words]) == 0, capsys.readouterr()
        return capsys.readouterr().out

    add(range(600))
    printed = run("archive", folder, "--url", url, "--stream", "events", "--schema", "n int", "--trim")
    assert re.fullmatch(rf"{folder}: 600 entries archived in 1 file \(.*\), .* in this process\n", printed)
    assert sum(file.rows for file in Archive(folder).manifest().files) == 600
    with judge.client() as client:
        for n in range(12):
            client.execute_command("XADD", "dead", f"{n + 1}-0", "n", n, "_stream", "again", "_group", f"g{n % 2}",
                                   "_id", "1-1", "_deliveries", "3")  # fmt: skip
    words = ("dead-letters", "--url", url, "--stream", "dead")
    printed = run(*words, "--show", "2")
    assert "12 entries dead, in this process\n" in printed
    assert printed.count("delivered too often") == 4
    assert "1-0 delivered too often: {'n': '0'}" in printed
    assert run(*words, "--requeue").endswith("12 entries dead; 12 requeued, in this process\n")
    with judge.client() as client:
        entries = client.execute_command("XRANGE", "again", "-", "+")
        assert [flat for _, flat in entries] == [[b"n", b"%d" % n] for n in range(12)]
        client.execute_command("XGROUP", "CREATE", "again", "g", "0")
        client.execute_command("XREADGROUP", "GROUP", "g", "c", "STREAMS", "again", ">")
    stuck = ("dead-letters", "--url", url, "--stream", "again", "--pending")
    assert "12 entries pending, in this process" in run(*stuck, "--min-idle", "0s")
    assert run(*stuck, "--min-idle", "0s", "--requeue").endswith("12 requeued, in this process\n")
    assert main(["pipeline", "dead-letters", "--url", url, "--stream", "none"]) == 1
    assert "there is no stream 'none'" in capsys.readouterr().err
    assert main(["pipeline", *words, "--where", "true", "--spark", "never"]) == 2
    assert "--where and --out need Spark" in capsys.readouterr().err
    with running_redis() as other:
        to = f"redis://127.0.0.1:{other.port}"
        printed = run("migrate", "--url", url, "--to-url", to, "--keys", "*")
        assert "in this process: all equal" in printed
        assert main(["pipeline", "migrate", "--url", url, "--to-url", to, "--resume", "--stream", "again"]) == 0
        with other.client() as client:
            assert client.execute_command("XLEN", "again") == 24


@pytest.mark.usefixtures("no_spark")
def test_changes_of_few_keys_start_no_spark(tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with running_redis("--repl-diskless-sync-delay", "0") as judge:
        with judge.client() as client:
            client.set("a", "1")
        words = ("--url", f"redis://127.0.0.1:{judge.port}", "--archive", str(tmp_path / "c"), "--state",
                 str(tmp_path / "s"))  # fmt: skip
        assert main(["pipeline", "changes", *words]) == 0
        assert "1 key written" in (printed := capsys.readouterr().out)
        assert printed.endswith("; in this process\n")


def test_functions_need_no_session(url: str, add: Callable[..., None], tmp_path: Path) -> None:
    stop = threading.Event()
    add(range(300))
    done = archive(None, tmp_path / "a", url=url, stream="events", schema="n int", stop=stop)
    add(range(300, 400))
    done = archive(None, tmp_path / "a", url=url, stream="events", schema="n int")
    assert (done.entries, done.files) == (100, 1)
    assert compact(None, tmp_path / "a").merged == 2
    assert callable(changes)


@pytest.mark.spark
@pytest.mark.slow
def test_spark_and_this_process_give_the_same(
    spark: SparkSession, url: str, add: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schemas, files and a job that changes from this process to Spark when it falls behind."""
    from pyspark.sql.types import StructType

    for text in SCHEMAS:
        assert struct_of(text, TaskRunner.using(None)).json() == StructType.fromDDL(text).json()
    asked = TaskRunner("auto", lambda: spark)
    assert struct_of("a int COMMENT 'the number'", asked).fieldNames() == ["a"]
    add(range(50))
    monkeypatch.setattr("rillet.spark.pipelines.task_runner.MOST_ENTRIES", 100)
    runner = TaskRunner("auto", lambda: spark)
    assert archive(runner, tmp_path / "a", url=url, stream="events").entries == 50
    assert runner.used == "this process"
    add(range(50, 600))
    assert archive(runner, tmp_path / "a", url=url, stream="events").entries == 550
    assert runner.used == "this process and Spark"
    assert archive(spark, tmp_path / "b", url=url, stream="events").entries == 600
    both = [spark.read.parquet(str(tmp_path / name)).orderBy("id").collect() for name in "ab"]
    assert both[0] == both[1]
    assert both[0][599]["id"] == entry_id(599)
