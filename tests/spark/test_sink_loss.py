"""The server of a sink restarts without its last writes: an error, or a count, and never a silent loss."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql.pandas.types import from_arrow_schema

import rillet.spark
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.spark.options import OptionError, parse
from rillet.spark.source import RilletDataSource
from rillet.spark.write.query_record import BatchesLost, QueryRecord
from tests import waiting
from tests.cluster import running_cluster
from tests.judge import free_port, redis_binary, required_binary
from tests.spark.sink_ledger import LOSSES, run
from tests.spark.sink_server import SINKS, SinkQuery, SinkServer, rows_of
from tests.spark.tables.tables import write as write_table
from tests.spark.writing import QUERY, batch_writer_of, in_task, numbered
from tests.variants import by_speed, long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.peer]

Made = Callable[..., SinkServer]


# All sinks write to redis-server, except one that needs a newer one, and two kinds of sinks to all servers.
PLACES = [
    *(("rillet" if sink == "idmp" else "7.0", sink) for sink in sorted(SINKS)),
    *((server, sink) for server in ("rillet", "newest", "valkey") for sink in ("stream", "hash")),
]


def places(ours: str, *others: str) -> pytest.MarkDecorator:
    """Return the places of a test: streams and hashes on each server, one sink on rillet's, and others.

    The first test has all of them, and each sink is in at least one of the others.
    """
    short = [
        (kind, sink) for kind, sink in PLACES
        if sink in others or (sink == ours if kind == "rillet" else sink in ("stream", "hash"))
    ]  # fmt: skip
    return pytest.mark.parametrize(("kind", "sink"), short + long(*(one for one in PLACES if one not in short)))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    """Start servers of a kind; stop them at the end."""
    servers: list[SinkServer] = []

    def start(kind: str, *words: str) -> SinkServer:
        binary = None if kind == "rillet" else required_binary(kind)
        servers.append(SinkServer(tmp_path / f"server{len(servers)}", binary, *words))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


def expected(*batches: int) -> Counter[int]:
    """Return the numbers of the rows of some batches, each once."""
    return Counter(n for batch in batches for n in range(100 * batch, 100 * batch + 100))


@pytest.mark.parametrize(("kind", "sink"), PLACES)
def test_lost_batches_are_an_error_before_anything_is_written(made: Made, kind: str, sink: str) -> None:
    server = made(kind)
    query = SinkQuery(server.url, sink)
    for number in range(7):
        query.hundred()
        if number == 2:
            server.run("SAVE")
    assert server.numbers() == expected(*range(7))
    server.crash()
    assert server.numbers() == expected(0, 1, 2)
    lost = "^rillet: the sink lost the batches 3 to 6: .* only up to 2, because"
    with pytest.raises(BatchesLost, match=lost) as told:
        query.hundred()
    assert "failOnDataLoss=false" in str(told.value)
    assert "redis://" not in str(told.value)
    assert server.numbers() == expected(0, 1, 2)


@places("hash", "ordered", "list")
def test_lost_batches_are_counted(made: Made, kind: str, sink: str, caplog: Any) -> None:
    server = made(kind)
    query = SinkQuery(server.url, sink, failOnDataLoss="false")
    for number in range(4):
        query.hundred()
        if number == 1:
            server.run("SAVE")
    server.crash()
    query.hundred()
    assert [text for text in caplog.messages if "the sink lost the batches 2 to 3" in text]
    assert server.numbers() == expected(0, 1, 4)
    strict = SinkQuery(server.url, sink)
    strict.number = query.number
    strict.hundred()
    assert server.numbers() == expected(0, 1, 4, 5)
    assert rillet.spark.lost_batches(QUERY, url=server.url) == 2


@places("stream", "counter")
def test_a_loss_of_everything_is_an_error(made: Made, kind: str, sink: str) -> None:
    server = made(kind)
    query = SinkQuery(server.url, sink)
    query.hundred()
    query.hundred()
    server.crash()
    server.run("SET", "other", "x")
    with pytest.raises(BatchesLost, match="the sink lost the batches 0 to 1: .* has no record of this query"):
        query.hundred()
    assert not server.run("KEYS", "*copy*") + server.run("KEYS", "row:*")


@places("idmp", "partitioned", "set")
def test_a_batch_is_repeated_after_a_loss_between_a_task_and_its_commit(made: Made, kind: str, sink: str) -> None:
    """Nothing had been put aside, so no message may say that."""
    server = made(kind)
    query = SinkQuery(server.url, sink)
    query.hundred()
    server.run("SAVE")
    told = [query.task(0, range(100, 160)), query.task(1, range(160, 200))]
    server.crash()
    with pytest.raises(ConnectorError, match="lost rows.* that task 0 of batch 1 had written: it restarted") as failed:
        query.commit(told)
    assert not isinstance(failed.value, BatchesLost)
    assert "aside" not in str(failed.value)
    assert server.numbers() == expected(0)
    query.hundred()
    assert server.numbers() == expected(0, 1)


@places("hash", "streamColumn")
def test_no_false_alarms(made: Made, kind: str, sink: str) -> None:
    """A restart without a loss, batches without rows, repeated batches, repeated commits, a new query."""
    server = made(kind)
    query = SinkQuery(server.url, sink)
    query.batch([])
    query.hundred()
    server.run("SAVE")
    server.crash()
    query.batch([], [])
    query.batch([])
    query.hundred()
    query.number -= 1
    told = [query.task(0, range(400, 460)), query.task(1, range(460, 500))]
    query.commit(told)
    query.number -= 1
    query.commit(told)
    query.hundred()
    assert server.numbers() == expected(1, 4, 5)


@pytest.mark.parametrize(("kind", "sink"), [("7.0", sink) for sink in ("stream", "ordered", "counter", "streamColumn")])
def test_an_older_commit_record_proves_nothing(made: Made, kind: str, sink: str) -> None:
    """The server loses the query's record, and all batches since then, but keeps the commit records of transactions."""
    server = made(kind)
    query = SinkQuery(server.url, sink)
    query.hundred()
    server.run("DEL", f"rillet:commits::{QUERY}")
    server.run("SAVE")
    query.options["failOnDataLoss"] = "false"
    query.hundred()
    query.hundred()
    del query.options["failOnDataLoss"]
    server.crash()
    with pytest.raises(BatchesLost, match="the sink lost the batches 0 to 2: .* has no record of this query"):
        query.hundred()
    assert server.numbers() == expected(0)


@pytest.mark.parametrize("strict", [False, True])
def test_more_is_lost_just_before_the_commit(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: Any, strict: bool
) -> None:
    """Then the commit of a batch without rows counts again, or is an error."""
    server = made("7.0")
    query = SinkQuery(server.url, "stream")
    saved = []
    for _ in range(2):
        query.hundred()
        server.run("SAVE")
        saved.append((server.folder / "dump.rdb").read_bytes())
    if not strict:
        query.hundred()
        server.crash()
        query.options["failOnDataLoss"] = "false"
    close = QueryRecord.close

    def closing(*words: Any) -> Any:
        monkeypatch.setattr(QueryRecord, "close", close)
        server.kill()
        (server.folder / "dump.rdb").write_bytes(saved[0])
        server.start()
        return close(*words)

    monkeypatch.setattr(QueryRecord, "close", closing)
    if strict:
        with pytest.raises(BatchesLost, match="the sink lost the batch 1: "):
            query.batch([])
    else:
        query.batch([])
        assert [text for text in caplog.messages if "the sink lost the batches 1 to 2" in text]
        assert rillet.spark.lost_batches(QUERY, url=server.url) == 2
    assert server.numbers() == expected(0)


# ---- clusters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", ["streamColumn", "hash", *long("counter")])
def test_a_master_of_a_cluster_loses_its_last_writes(sink: str) -> None:
    """The others keep theirs. Then a master without a record joins, which is no loss."""
    if redis_binary() is None:
        pytest.skip("redis-server is not installed")
    with running_cluster() as cluster:
        query = SinkQuery(cluster.url, sink)
        query.hundred()
        query.hundred()
        node = cluster.nodes[1]
        node.run("SAVE")
        query.hundred()
        records = {key for one in cluster.nodes for key in one.run("KEYS", f"rillet:commits:*::{QUERY}")}
        assert len(records) == 3
        cluster.kill(node)
        cluster.start(node)
        cluster.wait(lambda: all(one.info("cluster", "cluster_state") == "ok" for one in cluster.nodes), "it serves")
        with pytest.raises(BatchesLost, match=f"lost the batch 2: .*127.0.0.1:{node.port} has the .* up to 1, because"):
            query.hundred()
        query.options["failOnDataLoss"] = "false"
        query.hundred()
        del query.options["failOnDataLoss"]
        (key,) = node.run("KEYS", f"rillet:commits:*::{QUERY}")
        with cluster.moving(key.decode()):  # a record on its way; then its old master has none
            pass
        query.hundred()
        query.hundred()
        records = {key for one in cluster.nodes for key in one.run("KEYS", f"rillet:commits:*::{QUERY}")}
        assert len(records) == 3


# ---- waiting for copies ----------------------------------------------------------------------------------------


def followed(made: Made, kind: str, *words: str) -> tuple[SinkServer, SinkServer]:
    """Return a server and its replica."""
    server, replica = made(kind, *words), made(kind, *words)
    replica.run("REPLICAOF", "127.0.0.1", str(server.port))
    waiting.until(lambda: b"master_link_status:up" in replica.run("INFO", "replication"), "the replica to follow")
    return server, replica


@pytest.mark.parametrize(("kind", "sink"), [("7.0", "stream"), ("7.0", "hash"), ("rillet", "list"), ("valkey", "set")])
def test_a_batch_waits_for_replicas(made: Made, kind: str, sink: str) -> None:
    server, replica = followed(made, kind)
    query = SinkQuery(server.url, sink, waitReplicas="1", waitTimeout="30s")
    query.hundred()
    assert replica.numbers() == server.numbers() == expected(0)
    query.options["waitTimeout"] = "1s"
    told = [query.task(0, range(100, 160)), query.task(1, range(160, 200))]
    writer = query.writer()
    replica.process.send_signal(signal.SIGSTOP)
    late = r"wrote the batch, but after 1 s \(waitTimeout\) no replicas of 1 had the rows"
    with pytest.raises(ConnectorError, match=late):
        writer.commit(told, query.number)
    replica.process.send_signal(signal.SIGCONT)
    query.options["waitTimeout"] = "30s"
    query.hundred()  # Spark repeats the batch
    query.hundred()
    assert replica.numbers() == server.numbers() == expected(0, 1, 2)


@pytest.mark.parametrize("kind", ["newest", "valkey", "rillet"])
def test_a_batch_waits_for_the_disk(made: Made, kind: str) -> None:
    server = made(kind, "--appendonly", "yes", "--appendfsync", "everysec")
    for sink in ("stream", "hash"):
        query = SinkQuery(server.url, sink, waitAof="true")
        query.hundred()
        query.hundred()
        assert server.numbers() == expected(0, 1)
        server.run("FLUSHALL")


@pytest.mark.parametrize(("kind", "options", "problem"), [
    ("7.0", {"waitAof": "true"}, "has no WAITAOF, which needs Redis 7.2: leave out waitAof"),
    ("newest", {"waitAof": "true"}, "has no append-only file: set appendonly to yes there"),
    ("rillet", {"waitAof": "true"}, "has no append-only file: set appendonly to yes there"),
    ("7.0", {"waitReplicas": "1", "waitTimeout": "500ms"}, "has no replicas, and waitReplicas is 1: add replicas"),
])  # fmt: skip
def test_what_a_server_cannot_do_is_an_error_before_the_first_task(
    made: Made, kind: str, options: dict[str, str], problem: str
) -> None:
    server = made(kind)
    for sink in ("stream", "hash"):
        with pytest.raises(ConnectorError, match=problem):
            SinkQuery(server.url, sink, **options).writer()
    with pytest.raises(ConnectorError, match=problem):
        batch_writer_of(numbered(range(3)), {"url": server.url, "stream": "copy", **options})
    assert server.run("DBSIZE") == 0


@pytest.mark.parametrize("once", ["auto", "none"])
def test_a_batch_write_waits_for_replicas(made: Made, once: str) -> None:
    server, replica = followed(made, "7.0")
    options: dict[str, Any] = {"url": server.url, "waitReplicas": "1", "exactlyOnce": once}
    writer = batch_writer_of(numbered(range(100)), {**options, "stream": "copy"})
    in_task()
    told = writer.write(iter(numbered(range(100)).to_batches()))
    TaskContext._taskContext = None  # a Spark session may start in this process later
    writer.commit([told])
    hashes: dict[str, Any] = {**options, **SINKS["hash"]}
    write_table(rows_of("hash", range(200, 300)), 2, **hashes)
    assert replica.numbers() == server.numbers() == Counter([*range(100), *range(200, 300)])
    assert all(server.run("TTL", key) > 0 for key in server.run("KEYS", "rillet:commits::*"))


def test_options_of_waiting_are_checked() -> None:
    where = {"url": "redis://localhost", "stream": "copy"}
    for wrong, problem in (
        ({"waitTimeout": "1s"}, "waitTimeout needs waitReplicas or waitAof"),
        ({"waitReplicas": "0"}, "waitReplicas is '0': expected a whole number of at least 1"),
    ):
        with pytest.raises(OptionError, match=problem):
            parse({**where, **wrong})
    with pytest.raises(OptionError, match="not allowed for a batch write: failOnDataLoss"):
        batch_writer_of(numbered(range(1)), {**where, "failOnDataLoss": "false"})


# ---- a server that is not there --------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", ["stream", "ordered", "idmp", "hash", "counter"])
def test_a_write_to_an_unreachable_server_fails_at_once(sink: str) -> None:
    """A batch write on the driver, a new query in its tasks; with this timeout, waiting would outlast the test."""
    unreachable = {"url": f"redis://127.0.0.1:{free_port()}", "timeout": "600", **SINKS[sink]}
    schema = from_arrow_schema(rows_of(sink, []).schema)
    source = RilletDataSource(dict(unreachable))
    with pytest.raises(ConnectionLost, match="no server answers at 127.0.0.1:"):
        source.writer(schema, overwrite=False)
    query = SinkQuery(unreachable["url"], sink, timeout="600")
    with pytest.raises(ConnectionLost, match="no server answers at 127.0.0.1:"):
        query.task(0, range(3))
    query.options["timeout"] = "0.3"
    query.number = 1
    with pytest.raises(ConnectionLost, match="no server answers at 127.0.0.1:"):
        query.task(0, range(3))


# ---- kills at random sends ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", ["ordered", *long(*sorted(SINKS.keys() - {"ordered"}))])
@pytest.mark.parametrize("loss", LOSSES)
def test_no_loss_is_silent_and_no_row_is_doubled(loss: str, sink: str, tmp_path: Path) -> None:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed")
    kills = by_speed(3, 3, 5)
    result = run(loss, sink, kills, 11, tmp_path, "newest" if sink == "idmp" else "7.0")
    assert result.kills >= kills
    assert result.incomplete <= result.lost
    assert loss != "always" or not result.lost


# ---- Spark -----------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_query_in_spark_ends_with_the_error_and_continues_with_a_count(
    spark: SparkSession, made: Made, url: str, add: Callable[..., None], tmp_path: Path
) -> None:
    """Four batches of a hundred rows, a snapshot after the second, a kill after the fourth."""
    server = made("7.0")
    source = spark.readStream.format("rillet").options(url=url, stream="events").schema("n long").load()

    def batch(number: int, **options: str) -> Any:
        add(range(100 * number, 100 * number + 100))
        writer = source.writeStream.format("rillet").options(url=server.url, stream="copy", **options)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        return query

    for number in range(4):
        batch(number)
        if number == 1:
            server.run("SAVE")
    assert server.numbers() == expected(*range(4))
    server.crash()
    with pytest.raises(StreamingQueryException, match="rillet: the sink lost the batches 2 to 3: they were") as told:
        batch(4)
    assert rillet.spark.reason(told.value).startswith("rillet: the sink lost the batches 2 to 3: ")
    query = batch(5, failOnDataLoss="false")
    assert rillet.spark.lost_batches(query, url=server.url) == 2
    assert server.numbers() == expected(0, 1, 4, 5)
    batch(6, waitTimeout="10s", waitAof="false")
    assert server.numbers() == expected(0, 1, 4, 5, 6)
    assert rillet.spark.lost_batches(query, url=server.url) == 2


@pytest.mark.spark
@pytest.mark.parametrize("adds", [True, *long(False)])
def test_foreach_batch_notices_a_loss(
    spark: SparkSession, made: Made, url: str, add: Callable[..., None], tmp_path: Path, adds: bool
) -> None:
    server = made("7.0")
    source = spark.readStream.format("rillet").options(url=url, stream="events").schema("n long").load()
    hashes = {"url": server.url, "type": "hash", "keyPrefix": "row:", "keyColumn": "n"}

    def batch(number: int, crash: bool = False, **options: str) -> None:
        add(range(100 * number, 100 * number + 100))
        more = {"addColumns": "times"} if adds else {}
        write = rillet.spark.foreach_batch("sums", **hashes, **more, **options)

        def crashing(frame: Any, batch_number: int) -> None:
            write(frame, batch_number)
            if crash:
                server.crash()
                raise ValueError("the driver fails")

        writer = source.selectExpr("n", "1 times").writeStream.foreachBatch(crashing)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()

    batch(0)
    batch(1)
    server.run("SAVE")
    with pytest.raises(StreamingQueryException, match="the driver fails"):
        batch(2, crash=True)
    assert server.numbers() == expected(0, 1)
    batch(3)  # repeats batch 2 first: Spark had not committed it
    assert server.numbers() == expected(0, 1, 2, 3)
    server.crash()
    with pytest.raises(StreamingQueryException, match="rillet: the sink lost the batches 2 to 3: they were"):
        batch(4)
    batch(5, failOnDataLoss="false")
    assert server.numbers() == expected(0, 1, 4, 5)
