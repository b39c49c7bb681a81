"""The archive of changes and the state table: equal to the server's data, whatever is killed at any step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import rillet
from rillet.spark.archive.files import ArchiveError
from rillet.spark.archive.layout import Archive
from rillet.spark.options import OptionError
from rillet.spark.pipelines.archive import FileOptions
from rillet.spark.pipelines.changes import ChangesJob, problems
from rillet.spark.pipelines.task_runner import TaskRunner
from rillet.spark.read.data_loss import DataLoss
from rillet.spark.state.table import open_state
from rillet.transfer.touched_keys import TouchedKeys
from tests.judge import Judge, required_binary, running_redis
from tests.replication.load import Load, differences, lasts
from tests.variants import long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(BaseException):
    """Stands for a killed driver."""


@contextmanager
def server(compat: str = "7.0", *options: str) -> Iterator[Judge]:
    with running_redis("--repl-diskless-sync-delay", "0", "--repl-backlog-size", "50mb", *options,
                       binary=required_binary(compat)) as judge:  # fmt: skip
        yield judge


class Outputs:
    """An archive and a state table of one server; `run` is a job of its own."""

    def __init__(self, port: int, folder: Path, archive: bool = True, state: bool = True, **options: str) -> None:
        self.archive = folder / "archive" if archive else None
        self.state = folder / "state" if state else None
        self._options = {"url": f"redis://127.0.0.1:{port}", "timeout": "20", "fileBytes": "20000", **options}
        self.refused = 0

    def run(self, at: Callable[[str], None] | None = None, buckets: int = 4) -> Any:
        """Run a job once; `at` is called at the steps of the commits."""
        files = FileOptions(small_files=4)
        state = None if self.state is None else open_state(self.state)
        job = ChangesJob(self.archive, state, self._options, None, TaskRunner.using(None), files, buckets=buckets)
        for output in job._outputs:
            if at is not None:
                (output.archive if hasattr(output, "archive") else output.table.archive).at = at
        with job.writing():
            job.round()
        self.refused += job.done.state.refused
        return job.done

    # -- what readers of the folders see

    def changes(self) -> list[dict[str, Any]]:
        """Return the rows of the archive, in the order of the stream."""
        import pyarrow.dataset as ds

        assert self.archive is not None
        rows = ds.dataset(self.archive, partitioning="hive").to_table().to_pylist()
        return sorted(rows, key=lambda row: row["offset"])

    def rows(self) -> dict[tuple[int, bytes], dict[str, Any]]:
        """Return the rows of the state table, by database and key."""
        import pyarrow.dataset as ds

        assert self.state is not None
        rows = ds.dataset(self.state, partitioning="hive").to_table().to_pylist()
        found = {(row["db"], row["key_bytes"]): row for row in rows}
        assert len(found) == len(rows)
        return found

    def store(self, compat: str) -> rillet.Store:
        """Return a store with the values of the state table."""
        store = rillet.open(compat=compat, enable_debug_command="yes")
        for (db, key), row in self.rows().items():
            store.execute("SELECT", db)
            expires = row["expires_ms"]
            store.execute("RESTORE", key, expires or 0, row["dump"], "ABSTTL")
        store.execute("SELECT", 0)
        return store


def client_of(store: rillet.Store) -> Any:
    client = store.redis(protocol=2)
    client.response_callbacks.clear()
    return client


PEERS = [pytest.param(compat, seed, marks=[pytest.mark.long, pytest.mark.peer(compat)])
         for seed, compat in enumerate(("valkey", "newest", "8.6", "valkey", "newest"), 10)]  # fmt: skip


@pytest.mark.parametrize(("compat", "seed"), [("7.0", 1), *long(*(("7.0", seed) for seed in range(2, 8))), *PEERS])
def test_the_state_equals_the_data(compat: str, seed: int, tmp_path: Path) -> None:
    """Random commands of every type, transactions, expiry, flushes and swaps: the table has the server's values."""
    with server(compat) as judge:
        master, maker = judge.client(), Load(seed, compat)
        maker.run(master, 200)
        outputs = Outputs(judge.port, tmp_path, maxBytesPerTrigger="60000")
        rounds = random.Random(seed)
        for number in range(8):
            outputs.run()
            maker.run(master, rounds.choice((5, 60, 300)))
            if number == 4:
                master.execute_command("SWAPDB", "0", "2")
        lasts(master)
        outputs.run()
        assert outputs.refused == 0
        with outputs.store(compat) as store:
            found = [line for line in differences(master, client_of(store)) if not line.startswith("functions")]
            assert found == []


def test_the_columns(tmp_path: Path) -> None:
    with server() as judge:
        client = judge.client()
        client.set("text", "a")
        client.rpush("list", "b", "a")
        client.sadd("set", "b", "a")
        client.hset("hash", mapping={"f": "1", "g": "2"})
        outputs = Outputs(judge.port, tmp_path, archive=False)
        outputs.run()
        client.zadd("zset", {"m": 1.5, "n": 1})
        client.xadd("stream", {"f": "1"}, id="1-1")
        client.xadd("stream", {"f": "2"}, id="2-1")
        client.lpush("list", "0")
        client.set(b"\xff", b"\x00\xfe", pxat=9_000_000_000_000)
        client.delete("set")
        client.execute_command("SELECT", 5)
        client.set("text", "in 5")
        outputs.run()
        rows = outputs.rows()
        assert {place: row["type"] for place, row in rows.items()} == {
            (0, b"text"): "string", (0, b"list"): "list", (0, b"hash"): "hash", (0, b"zset"): "zset",
            (0, b"stream"): "stream", (0, b"\xff"): "string", (5, b"text"): "string",
        }  # fmt: skip
        assert rows[0, b"text"]["value"] == "a"
        assert rows[5, b"text"]["value"] == "in 5"
        assert rows[0, b"list"]["elements"] == ["0", "b", "a"]
        assert rows[0, b"hash"]["fields"] == [("f", "1"), ("g", "2")]
        assert rows[0, b"zset"]["scores"] == [("n", 1.0), ("m", 1.5)]
        assert rows[0, b"stream"]["entries"] == [
            {"id": "1-1", "fields": [("f", "1")]}, {"id": "2-1", "fields": [("f", "2")]}
        ]  # fmt: skip
        binary = rows[0, b"\xff"]
        assert (binary["key"], binary["value"], binary["expires_ms"]) == ("\\xff", "\x00\\xfe", 9_000_000_000_000)
        assert binary["expires"].year == 2255
        client.setbit("bits", 1 << 30, 1)  # 128 MiB
        client.setbit("bits", 0, 1)
        outputs.run()
        bits = outputs.rows()[5, b"bits"]
        assert (bits["type"], bits["value"]) == ("string", None)
        with outputs.store("7.0") as store:
            store.execute("SELECT", 5)
            assert store.execute("BITCOUNT", "bits") == 2
        assert rows[0, b"text"]["version"] < rows[0, b"zset"]["version"] < rows[0, b"stream"]["version"]


def test_expiry_and_whole_databases(tmp_path: Path) -> None:
    """DEL for an expiry, RENAME, MOVE, COPY, SORT with patterns, FLUSHDB, SWAPDB and FLUSHALL, of keys not touched."""
    with server() as judge:
        client = judge.client()
        for db in range(4):
            client.execute_command("SELECT", db)
            for number in range(20):
                client.set(f"k{number}", f"{db}.{number}")
        client.execute_command("SELECT", 0)
        outputs = Outputs(judge.port, tmp_path, archive=False)
        outputs.run()

        def values() -> dict[tuple[int, str], str]:
            return {(db, key.decode()): row["value"] or str(row["elements"])
                    for (db, key), row in outputs.rows().items()}  # fmt: skip

        expected = values()
        assert expected == {(db, f"k{number}"): f"{db}.{number}" for db in range(4) for number in range(20)}
        client.execute_command("SWAPDB", 1, 2)
        client.execute_command("SELECT", 1)
        client.rename("k0", "renamed")  # the value of database 2 before
        client.move("k1", 3)  # refused: the target has it
        client.move("k2", 7)
        client.execute_command("COPY", "k3", "copied", "DB", 0)
        client.execute_command("SELECT", 3)
        client.flushdb()
        client.set("k5", "after the flush")
        client.execute_command("SELECT", 0)
        client.pexpire("k4", 1)
        while client.exists("k4"):
            pass
        client.rpush("ids", 7, 6)
        client.sort("ids", by="k*", alpha=True, store="sorted")
        client.execute_command("SORT", "ids", "BY", "nosort", "GET", "k*", "STORE", "got")
        outputs.run()
        expected = {(db, name): value for (db, name), value in expected.items() if db != 3}
        expected = {({1: 2, 2: 1}.get(db, db), name): value for (db, name), value in expected.items()}
        expected[1, "renamed"] = expected.pop((1, "k0"))
        expected[7, "k2"] = expected.pop((1, "k2"))
        del expected[0, "k4"]
        expected |= {(0, "copied"): "2.3", (3, "k5"): "after the flush", (0, "ids"): "['7', '6']",
                     (0, "sorted"): "['6', '7']", (0, "got"): "['0.7', '0.6']"}  # fmt: skip
        assert values() == expected
        client.flushall()
        client.set("last", "1")
        outputs.run()
        assert values() == {(0, "last"): "1"}
        client.flushall()
        outputs.run()
        assert values() == {}


STEPS = ["committed", *long("written", "staged", "drafted", "merged", "exchanged", "placed", "settled")]


@pytest.mark.parametrize("step", STEPS)
def test_a_job_killed_at_any_step_continues_exactly_once(step: str, tmp_path: Path) -> None:
    """The job is killed when it reaches the step for the first, second ... time, in either output, until one ends."""
    with server() as judge:
        client, maker = judge.client(), Load(7, "7.0")
        maker.run(client, 100)
        outputs, written, kills = Outputs(judge.port, tmp_path, maxBytesPerTrigger="30000"), 0, 0
        for number in range(12):
            for _ in range(20):
                client.rpush("log", written)
                written += 1
            client.execute_command("SWAPDB", 1, 2)
            left = [number % 4 + 1]

            def at(reached: str, left: list[int] = left) -> None:
                left[0] -= reached == step
                if reached == step and not left[0]:
                    raise Killed

            try:
                outputs.run(at)
            except Killed:
                kills += 1
        assert kills >= 3
        lasts(client)
        outputs.run()
        rows = outputs.changes()
        pushed = [int(row["arguments"][2]) for row in rows if row["command"] == "RPUSH" and row["key"] == "log"]
        first = int(rows[0]["offset"])
        assert pushed == list(range(pushed[0], written))
        assert sum(row["command"] == "snapshot" and row["key"] is None for row in rows) == 1
        assert first >= 0
        with outputs.store("7.0") as store:
            found = [line for line in differences(client, client_of(store)) if not line.startswith("functions")]
            assert found == []


def test_the_archive_is_partitioned_and_merged(tmp_path: Path) -> None:
    with server() as judge:
        client = judge.client()
        outputs = Outputs(judge.port, tmp_path, state=False)
        outputs.run()
        for number in range(12):
            client.execute_command("SELECT", number % 2)
            client.set("k", number)
            outputs.run()
        rows = outputs.changes()
        assert [(row["db"], row["arguments"][2]) for row in rows] == [
            (number % 2, b"%d" % number) for number in range(12)
        ]
        assert len({row["run"] for row in rows}) == 1
        assert outputs.archive is not None
        files = list(outputs.archive.glob("date=*/db=*/*.parquet"))
        assert len(files) < 8
        assert not list((outputs.archive / "_rillet" / "received").glob("*"))
        # a state table cannot begin beside it, because its snapshot is missing; nor can another archive be used
        beside = Outputs(judge.port, tmp_path)
        with pytest.raises(ArchiveError, match="use new folders, or one job for each"):
            beside.run()
        Archive(tmp_path / "state")
        entries = Outputs(judge.port, tmp_path / "more", state=False, startingOffsets="snapshot")
        entries.run()
        assert [row["command"] for row in entries.changes()] == ["snapshot"] * 3


def test_lost_changes(tmp_path: Path) -> None:
    """A job fails if the backlog is too small; with failOnDataLoss=false a snapshot replaces the table."""
    with server("7.0", "--repl-backlog-size", "16kb") as judge:
        client = judge.client()
        client.set("old", "1")
        Outputs(judge.port, tmp_path).run()
        client.delete("old")
        for number in range(100):
            client.set("k", f"{number} {'x' * 1000}")
        with pytest.raises(DataLoss, match="repl-backlog-size"):
            Outputs(judge.port, tmp_path).run()
        outputs = Outputs(judge.port, tmp_path, failOnDataLoss="false")
        outputs.run()
        assert [key for _, key in outputs.rows()] == [b"k"]
        assert sum(row["command"] == "snapshot" and row["key"] is None for row in outputs.changes()) == 2
        client.set("new", "1")
        outputs.run()
        assert sorted(key for _, key in outputs.rows()) == [b"k", b"new"]


def test_touched_keys() -> None:
    touched = TouchedKeys()
    for offset, (db, line) in enumerate([
        (0, "SET a 1"), (0, "SUNIONSTORE x y z"), (1, "DEL b"), (0, "SWAPDB 0 1"), (0, "RENAME b c"), (2, "FLUSHDB"),
        (2, "SET f 1"), (3, "SORT l BY w_* STORE s"), (4, "COPY a b DB 20"), (4, "MOVE m 5"),
    ]):  # fmt: skip
        touched.add(db, line.encode().split(), offset)
    assert touched.needed == {
        (0, b"a"), (0, b"x"), (0, b"y"), (0, b"z"), (1, b"b"), (1, b"c"), (3, b"l"), (3, b"s"), (4, b"a"), (4, b"b"),
        (20, b"b"), (4, b"m"), (5, b"m"),
    }  # fmt: skip
    assert touched.whole == {3}
    assert touched.written == {
        (1, b"a"): 0, (1, b"x"): 1, (0, b"b"): 4, (0, b"c"): 4, (2, b"f"): 6, (3, b"s"): 7, (4, b"b"): 8, (20, b"b"): 8,
        (4, b"m"): 9, (5, b"m"): 9,
    }  # fmt: skip
    assert touched.databases == 21
    moves = touched.moves()
    assert moves is not None
    assert [moves.target(db) for db in range(5)] == [1, 0, None, 3, 4]
    touched.add(0, [b"FLUSHALL"], 10)
    moves = touched.moves()
    assert moves is not None
    assert [moves.target(db) for db in (0, 1, 99)] == [None] * 3
    assert TouchedKeys().moves() is None


def test_problems(tmp_path: Path) -> None:
    assert problems(None, None, {}) == ["give an archive, a state table, or both"]
    assert "same folder" in problems(tmp_path, tmp_path, {})[0]
    wrong = problems(None, tmp_path, {"keys": "a*", "startingOffsets": "latest"})
    assert len(wrong) == 2
    with pytest.raises(OptionError, match="each of its masters"):
        ChangesJob(tmp_path, None, {"url": "redis+cluster://127.0.0.1"}, None, TaskRunner.using(None), FileOptions())


@pytest.mark.spark
@pytest.mark.long
def test_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The function and the reader of the table, with tasks on executors."""
    from rillet.spark.pipelines import changes
    from rillet.spark.pipelines.changes import read_state

    with server() as judge:
        client = judge.client()
        client.hset("h", mapping={"a": "1"})
        url, archive, state = f"redis://127.0.0.1:{judge.port}", tmp_path / "archive", tmp_path / "state"
        changes(spark, archive=archive, state=state, buckets=2, url=url)
        client.hset("h", "b", "2")
        client.xadd("s", {"price": "1.5"}, id="1-1")
        done = changes(spark, archive=archive, state=state, buckets=2, url=url)
        assert (done.archive.entries, done.state.written) == (2, 2)
        rows = {row["key"]: row for row in read_state(spark, state).collect()}
        assert rows["h"]["fields"] == {"a": "1", "b": "2"}
        assert rows["s"]["entries"][0]["fields"] == {"price": "1.5"}
        (added,) = spark.read.parquet(str(archive)).where("command = 'XADD'").collect()
        assert added["id"] == "1-1"
        assert spark.read.parquet(str(state)).where("db = 0").count() == 2
