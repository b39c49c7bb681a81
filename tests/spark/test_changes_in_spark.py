"""format("rillet.changes") in Spark: queries that stop and continue under load, and servers that restart and change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from tests.replication.nodes import PATIENCE, Node, binaries_for
from tests.replication.proxy import Proxy
from tests.variants import long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow]


KINDS = ["7.0", pytest.param("valkey", marks=pytest.mark.peer("valkey")), "rillet"]


class Table:
    """A query from a server into a folder of Parquet files; `start` begins and continues it."""

    def __init__(self, spark: SparkSession, port: int, folder: Path, **options: str) -> None:
        self.spark, self.folder = spark, folder
        self.out = str(folder / "out")
        self._options = {"url": f"redis://127.0.0.1:{port}", "folder": str(folder / "received"), **options}

    def start(self, available_now: bool = False) -> StreamingQuery:
        rows = self.spark.readStream.format("rillet.changes").options(**self._options).load()
        writer = (rows.selectExpr("offset", "db", "key", "command", "cast(get(arguments, 2) as string) as value")
                  .writeStream.option("checkpointLocation", str(self.folder / "checkpoint")))  # fmt: skip
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start(self.out, "parquet")

    def rows(self, where: str = "true") -> list[Any]:
        """Return the rows of the table in the order of the stream."""
        return list(self.spark.read.parquet(self.out).where(where).orderBy("offset").collect())

    def values(self, key: str, command: str = "SET") -> list[int]:
        """Return the numbers that a key was set to."""
        return [int(row["value"]) for row in self.rows(f"key = '{key}' and command = '{command}'")]

    def until(self, running: StreamingQuery, value: int, key: str = "k") -> None:
        """Wait until the table has a value of a key."""
        deadline = time.monotonic() + PATIENCE
        while value not in self.values(key):
            assert running.exception() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)


def await_rows(running: StreamingQuery) -> None:
    """Return when a query has read changes; `processAllAvailable` would wait for the end of the load."""
    deadline = time.monotonic() + PATIENCE
    while not any(progress["numInputRows"] for progress in running.recentProgress):
        assert running.exception() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Writer:
    """Sets k to 1, 2, 3 ... in a thread, by pipelines of a hundred, with a pause of some seconds after each."""

    def __init__(self, connect: Callable[[], Any], pause: float = 0.01) -> None:
        self.written = 0
        self._connect, self._pause = connect, pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        client = self._connect()
        while not self._stop.is_set():
            pipeline = client.pipeline(transaction=False)
            for number in range(self.written + 1, self.written + 101):
                pipeline.set("k", str(number))
            pipeline.execute()
            self.written += 100
            time.sleep(self._pause)
        client.close()

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def serving(kind: str, folder: Path, *options: str, compat: str = "7.0") -> Iterator[Node]:
    """Start a server of a kind: 7.0, valkey ... or rillet."""
    node = Node("one", kind, compat, folder, ["--save", "", "--appendonly", "no", *options])
    try:
        node.start()
        yield node
    finally:
        node.close()


def existing(kind: str) -> str:
    """Return a kind of server; skip the test if the machine lacks it."""
    if kind != "rillet" and not binaries_for(kind):
        pytest.skip(f"no server of the kind {kind}")
    return kind


@pytest.mark.parametrize("kind", ["7.0", *long("rillet")])
def test_a_query(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """The snapshot and the changes become rows; an available-now query ends, and the next one continues."""
    with serving(existing(kind), tmp_path / "server") as node:
        client = node.client
        client.set("k", "0")
        table = Table(spark, node.port, tmp_path, startingOffsets="snapshot")
        table.start(available_now=True).awaitTermination(int(PATIENCE))
        for number in range(1, 51):
            client.set("k", str(number))
        table.start(available_now=True).awaitTermination(int(PATIENCE))
        client.delete("k")
        table.start(available_now=True).awaitTermination(int(PATIENCE))
    rows = [(row["command"], row["key"], row["value"]) for row in table.rows()]
    assert rows[:2] == [("snapshot", None, None), ("snapshot", "k", "0")]
    assert rows[2:] == [*(("SET", "k", str(number)) for number in range(1, 51)), ("DEL", "k", None)]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_under_load(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Under load, each change reaches the table once: after the snapshot, and while the query stops and continues."""
    compat = kind if kind != "rillet" else "7.0"
    with serving(existing(kind), tmp_path / "server", "--repl-backlog-size", "100mb", compat=compat) as node:
        table = Table(spark, node.port, tmp_path, startingOffsets="snapshot", fileBytes="200000")
        with Writer(node.connect) as writer:
            running = table.start()
            for _ in range(4):
                await_rows(running)
                running.stop()
                running = table.start()
            await_rows(running)
        table.until(running, writer.written)
        running.stop()
    values = table.values("k")
    (first,) = table.rows("command = 'snapshot' and key = 'k'") or [{"value": "0"}]
    assert values == list(range(int(first["value"]) + 1, writer.written + 1))
    offsets = [row["offset"] for row in table.rows("command != 'snapshot'")]
    assert offsets == sorted(set(offsets))


@pytest.mark.long
def test_a_batch_that_fails_runs_again(spark: SparkSession, tmp_path: Path) -> None:
    """A batch whose sink fails after its write runs again with the same rows."""
    with serving("7.0", tmp_path / "server", "--repl-backlog-size", "100mb") as node:
        seen: dict[int, list[list[tuple[Any, ...]]]] = {}

        def take(frame: Any, batch: int) -> None:
            rows = [tuple(row) for row in frame.orderBy("offset").collect()]
            seen.setdefault(batch, []).append(rows)
            if batch % 2 and len(seen[batch]) == 1:
                raise ValueError("a failure of the sink")

        def start() -> StreamingQuery:
            rows = (spark.readStream.format("rillet.changes").option("url", f"redis://127.0.0.1:{node.port}")
                    .option("folder", str(tmp_path / "received")).option("startingOffsets", "snapshot")
                    .load())  # fmt: skip
            return (rows.selectExpr("offset", "command", "cast(get(arguments, 2) as string) as value").writeStream
                    .option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(take).start())  # fmt: skip

        with Writer(node.connect, pause=0.1) as writer:
            deadline = time.monotonic() + 2 * PATIENCE
            while len(seen) < 8:
                running = start()
                while running.isActive and len(seen) < 8:
                    time.sleep(0.05)
                    assert time.monotonic() < deadline
                running.stop()
        running = start()
        while str(writer.written) not in {row[2] for batch in seen.values() for row in batch[-1]}:
            running = running if running.isActive else start()
            time.sleep(0.1)
            assert time.monotonic() < deadline
        running.stop()
    assert sum(len(tries) > 1 for tries in seen.values()) >= 3
    for tries in seen.values():
        assert all(rows == tries[0] for rows in tries)
    values = [int(row[2]) for number in sorted(seen) for row in seen[number][0] if row[1] == "SET"]
    first = [int(row[2]) for row in seen[0][0] if row[1] == "snapshot" and row[2] is not None]
    assert values == list(range(first[0] + 1 if first else 1, writer.written + 1))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_of_the_server(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """A server that stores its position in its RDB file continues its stream for a running query (PSYNC2)."""
    node = Node("one", existing(kind), kind if kind != "rillet" else "7.0", tmp_path / "server",
                ["--save", "3600 1", "--appendonly", "no"])  # fmt: skip
    try:
        node.start()
        table = Table(spark, node.port, tmp_path, timeout="60")
        running = table.start()
        _await_attached(node, running)
        for rounds in range(3):
            for number in range(200 * rounds + 1, 200 * rounds + 201):
                node.client.set("k", str(number))
            node.stop()  # the server waits until its replicas have everything
            node.start()
            _await_attached(node, running)
        last = 601
        node.client.set("k", str(last))
        table.until(running, last)
        running.stop()
        assert table.values("k") == list(range(1, last + 1))
    finally:
        node.close()


def _await_attached(node: Node, running: StreamingQuery) -> None:
    """Return when the query receives the server's stream."""
    deadline = time.monotonic() + PATIENCE
    while node.facts()["connected_slaves"] == "0":
        assert running.exception() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_failover(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """A replica is promoted: the query continues there at its offset, while it runs and after a restart."""
    compat = kind if kind != "rillet" else "7.0"
    options = ["--save", "", "--appendonly", "no", "--repl-backlog-size", "100mb"]
    with ExitStack() as stack:
        one = Node("one", existing(kind), compat, tmp_path / "one", options)
        two = Node("two", kind, compat, tmp_path / "two", options)
        for node in (one, two):
            stack.callback(node.close)
        one.start()
        two.lead_to(one)
        two.start()
        proxy = stack.enter_context(Proxy(one.port))
        table = Table(spark, proxy.port, tmp_path, startingOffsets="snapshot")
        with Writer(one.connect) as writer:
            running = table.start()
            await_rows(running)
        deadline = time.monotonic() + PATIENCE
        while not two.follows():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        before = int(two.facts()["slave_repl_offset"])
        two.follow(None)
        one.kill()
        proxy.target = two.port
        proxy.cut()
        two.client.set("k", str(writer.written + 1))
        table.until(running, writer.written + 1)
        running.stop()
        two.client.set("k", str(writer.written + 2))
        running = table.start()
        table.until(running, writer.written + 2)
        running.stop()
    rows = table.rows("command != 'snapshot'")
    assert [row["offset"] for row in rows] == sorted({row["offset"] for row in rows})
    assert rows[-1]["offset"] > before
    (first,) = table.rows("command = 'snapshot' and key = 'k'") or [{"value": "0"}]
    assert table.values("k") == list(range(int(first["value"]) + 1, writer.written + 3))


@pytest.mark.long
@pytest.mark.parametrize("fails", [True, False])
def test_a_backlog_that_is_too_small(spark: SparkSession, tmp_path: Path, fails: bool) -> None:
    """The query fails with DataLoss, or continues with a snapshot if the user wants that."""
    with serving("7.0", tmp_path / "server", "--repl-backlog-size", "16kb") as node:
        table = Table(spark, node.port, tmp_path, startingOffsets="snapshot", failOnDataLoss=str(fails).lower())
        node.client.set("k", "1")
        table.start(available_now=True).awaitTermination(int(PATIENCE))
        for number in range(2, 200):
            node.client.set("k", str(number))
            node.client.set("other", "x" * 1000)
        running = table.start()
        if fails:
            with pytest.raises(Exception, match="repl-backlog-size"):
                running.awaitTermination(int(PATIENCE))
            assert table.values("k") == []
            return
        node.client.set("k", "200")
        deadline = time.monotonic() + PATIENCE
        while "200" not in {row["value"] for row in table.rows("key = 'k'")}:
            assert running.exception() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        running.stop()
        assert [row["key"] for row in table.rows("command = 'snapshot'")].count(None) == 2
