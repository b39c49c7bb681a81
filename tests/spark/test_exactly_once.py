"""Exactly-once writes: attempts killed at every send, parallel attempts, repeated batches, Spark killed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import rillet  # noqa: E402
from rillet import Store  # noqa: E402
from rillet.client.connection import Connection  # noqa: E402
from rillet.client.errors import ConnectionLost, ConnectorError  # noqa: E402
from rillet.client.servers import Servers  # noqa: E402
from rillet.spark.options import OptionError  # noqa: E402
from tests.cluster import running_cluster  # noqa: E402
from tests.judge import Judge, redis_binary, required_binary, running_redis  # noqa: E402
from tests.server.harness import running  # noqa: E402
from tests.spark.ledger import ROOT, environment  # noqa: E402
from tests.spark.struck_writer import copy  # noqa: E402
from tests.spark.writing import QUERY, batch_writer_of, in_task, numbered, write, writer_of  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.peer]

PLACES = ("7.0", "8.6", "newest", "valkey", "rillet", "store", "cluster")
ROWS = 240


class Place:
    """Where streams live: the connector's options that name it, and its data."""

    def __init__(self, store: Store, kind: str, **options: str) -> None:
        self.store = store
        self.options = options
        self.kind = kind
        self.step = 1 if kind == "7.0" else 5  # of every so many sends one is struck
        self.fault: Fault | None = None  # the store has the same kind of connection: its reads must not be struck

    def numbers(self, *streams: str) -> list[int]:
        """Return the numbers in streams, in the order of the streams."""
        with self.fault.pausing() if self.fault is not None else contextlib.nullcontext():
            return [int(entry["n"]) for stream in streams for entry in self.store.stream(stream)]

    def of(self, stream: str, **more: str) -> dict[str, str]:
        """Return the options that write into a stream: chunks of about ten rows, four to a transaction."""
        return {**self.options, "stream": stream, "transactionBytes": "4096", "timeout": "20", **more}


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Every kind of place, empty."""
    folder: Path = tmp_path_factory.mktemp("place")
    if request.param == "store":
        with rillet.open(folder / "store") as store:
            yield Place(store, request.param, path=str(folder / "store"))
        return
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    if request.param == "cluster":
        with running_cluster() as cluster, rillet.connect(cluster.url) as store:
            yield Place(store, request.param, url=cluster.url)
        return
    binary = None if request.param == "rillet" else required_binary(request.param)
    with running(folder) if request.param == "rillet" else running_redis(binary=binary) as server:
        url = f"redis://127.0.0.1:{server.port}"
        with rillet.connect(url) as store:
            yield Place(store, request.param, url=url)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a few hundred rows many chunks."""
    monkeypatch.setattr("rillet.spark.write.writer.CHUNK", 1000)


class Killed(Exception):
    """What ends an attempt, as a signal would end its process."""


class Fault:
    """Ends the n-th send from now on: before the bytes have left, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: type[Exception], place: Place) -> None:
        place.fault = self
        self.left = 0
        self.after = False
        send = Connection.send

        def failing(connection: Connection, data: bytes | bytearray) -> None:
            self.left -= 1
            if self.left == 0 and not self.after:
                connection.close()
                raise error("rillet: the connection was lost before")
            send(connection, data)
            if self.left == 0:
                connection.close()
                raise error("rillet: the connection was lost after")

        monkeypatch.setattr(Connection, "send", failing)

    @contextlib.contextmanager
    def pausing(self) -> Iterator[None]:
        """Let everything through meanwhile."""
        left, self.left = self.left, 0
        yield
        self.left = left

    def at(self, place: int, after: bool) -> None:
        """Arm it; 0 is never."""
        self.left = place
        self.after = after


def strikes(fault: Fault, after: bool, step: int) -> Iterator[int]:
    """Arm the fault for the first send of what follows, and so on, until one is reached no more."""
    for number in count(1, step):
        fault.at(number, after)
        yield number
        if fault.left > 0:
            assert number > 2 * step
            fault.at(0, False)
            return


# ---- one attempt after the other -------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
def test_an_attempt_killed_at_any_send_is_completed_by_the_next(
    place: Place, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    fault = Fault(monkeypatch, Killed, place)
    rows = numbered(range(ROWS))
    for number in strikes(fault, after, place.step):
        options = place.of(f"killed {after} {number}")
        with contextlib.suppress(Killed):
            write(rows, options)
        with fault.pausing():
            write(rows, options)
        assert place.numbers(options["stream"]) == list(range(ROWS)), f"killed at send {number}"


@pytest.mark.parametrize("after", [False, True])
def test_an_attempt_outlives_a_connection_lost_at_any_send(
    place: Place, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    fault = Fault(monkeypatch, ConnectionLost, place)
    rows = numbered(range(ROWS))
    for number in strikes(fault, after, place.step):
        options = place.of(f"lost {after} {number}")
        write(rows, options)
        assert place.numbers(options["stream"]) == list(range(ROWS)), f"lost at send {number}"


@pytest.mark.parametrize("partitioned", [{"partitionColumn": "name"}, {}])
def test_many_streams_of_a_killed_attempt_are_completed(
    place: Place, monkeypatch: pytest.MonkeyPatch, partitioned: dict[str, str]
) -> None:
    fault = Fault(monkeypatch, Killed, place)
    rows = numbered(range(ROWS))
    kind = "hash" if partitioned else "turn"
    for number in strikes(fault, True, place.step + 3):
        options = place.of(f"{kind} {number}", partitioned="3", **partitioned)
        with contextlib.suppress(Killed):
            write(rows, options)
        with fault.pausing():
            write(rows, options)
        found = place.numbers(*(f"{kind} {number}:{part}" for part in range(3)))
        assert sorted(found) == list(range(ROWS)), f"killed at send {number}"


def test_without_records_rows_are_doubled(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault(monkeypatch, Killed, place)
    options = place.of("plain", exactlyOnce="none")
    fault.at(8, True)
    with pytest.raises(Killed):
        write(numbered(range(ROWS)), options)
    fault.at(0, False)
    write(numbered(range(ROWS)), options)
    found = place.numbers("plain")
    assert set(found) == set(range(ROWS))
    assert len(found) > ROWS


# ---- side by side ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["4096", "1000000"])
def test_two_attempts_at_once_write_every_row_once(place: Place, size: str) -> None:
    rows = numbered(range(ROWS))
    options = place.of(f"two {size}", transactionBytes=size)
    together = threading.Barrier(2)
    told: list[Any] = []

    def attempt(mine: Any) -> None:
        def batches() -> Iterator[Any]:
            for batch in mine.to_batches(max_chunksize=20):
                together.wait(60)
                yield batch

        told.append(writer_of(rows, options).write(batches()))

    in_task()
    # Where all of it is one transaction, the two may even have their rows in different orders.
    other = rows.take(list(range(ROWS - 1, -1, -1))) if size == "1000000" else rows
    threads = [threading.Thread(target=attempt, args=(mine,)) for mine in (rows, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 2
    assert told[0].written == told[1].written
    assert sorted(place.numbers(options["stream"])) == list(range(ROWS))


def test_a_fence_changed_without_rows_only_costs_a_retry(place: Place) -> None:
    rows = numbered(range(ROWS))
    options = place.of("fenced", transactionBytes="1000000")
    writer = writer_of(rows, options)
    in_task()
    batches = rows.to_batches(max_chunksize=100)

    def disturbed() -> Iterator[Any]:
        yield batches[0]
        place.store.execute("SET", f"rillet:commits:{{fenced}}:{QUERY}:0", "x")
        yield from batches[1:]

    writer.write(disturbed())
    assert place.numbers("fenced") == list(range(ROWS))


# ---- batches repeated ------------------------------------------------------------------------------------------


def test_a_batch_repeated_after_its_commit_writes_nothing(place: Place) -> None:
    options = place.of("repeated")
    for batch in range(3):
        tasks = [numbered(range(part, ROWS, 2)) for part in range(2)]
        for _ in range(2):
            told = [write(rows, options, part, batch) for part, rows in enumerate(tasks)]
            writer_of(tasks[0], options).commit(list(told), batch)
    assert sorted(place.numbers("repeated")) == sorted(list(range(ROWS)) * 3)
    record = place.store.execute("HGETALL", f"rillet:commits:{{repeated}}:{QUERY}")
    flat = list(record.items()) if isinstance(record, dict) else list(zip(record[::2], record[1::2], strict=True))
    assert flat == [(b"done", b"2")]


def test_a_changed_trim_bound_does_not_change_the_rows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted query trims to another week ago; what is in the stream is known all the same."""
    fault, rows = Fault(monkeypatch, Killed, place), numbered(range(ROWS))
    for step in (4, 12, 20):
        options = place.of(f"bound{step}")
        fault.at(step, after=True)
        with pytest.raises(Killed):
            write(rows, {**options, "minid": "1000"})
        for bound in ("2000", "123456789"):
            write(rows, {**options, "minid": bound})
        assert place.numbers(f"bound{step}") == list(range(ROWS))


def test_a_commit_outlives_a_lost_connection(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    options, rows = place.of("closing"), numbered(range(10))
    writer, told = writer_of(rows, options), write(rows, options)
    calls = Servers.calls
    lost: list[bytes] = []

    def losing(self: Servers, key: bytes, commands: Any) -> Any:
        replies = calls(self, key, commands)
        if len(lost) < 3:
            lost.append(commands[0][0])
            raise ConnectionLost("rillet: the connection was lost")
        return replies

    monkeypatch.setattr(Servers, "calls", losing)
    writer.commit([told], 0)
    assert lost == [b"HGETALL", b"HGETALL", b"HGETALL"]
    write(rows, options)
    assert place.numbers("closing") == list(range(10))


def test_an_old_version_of_a_named_write_logs_that_it_writes_nothing(place: Place, caplog: Any) -> None:
    """So it is with Delta, too: a query with a new checkpoint counts its batches from 0 again."""
    rows = numbered(range(10))
    for version in ("7", "0", "7"):
        writer = batch_writer_of(rows, place.of("old", txnAppId="nightly", txnVersion=version))
        in_task()
        writer.commit([writer.write(iter(rows.to_batches()))])
    assert place.numbers("old") == list(range(10))
    (said,) = caplog.messages
    expected = "rillet: batch 0 of nightly was not written to 'old', because batch 7 is already complete there."
    assert said.startswith(expected)


def test_named_writes_do_not_interfere(place: Place) -> None:
    """The record of `nightly:0` is not the fence of the first task of `nightly`."""
    rows = numbered(range(10))
    for name in ("nightly:0", "nightly", "nightly:0", "nightly"):
        writer = batch_writer_of(rows, place.of("named", txnAppId=name, txnVersion="3"))
        in_task()
        writer.commit([writer.write(iter(rows.to_batches()))])
    assert sorted(place.numbers("named")) == sorted(2 * list(range(10)))
    with pytest.raises(OptionError, match="txnAppId is 'replay', which is reserved for a pipeline"):
        batch_writer_of(rows, place.of("named", txnAppId="replay", txnVersion="3"))


def test_another_order_is_allowed_in_one_transaction_and_rejected_in_several(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault(monkeypatch, Killed, place)
    rows = numbered(range(ROWS))
    backwards = rows.take(list(range(ROWS - 1, -1, -1)))
    one = place.of("one", transactionBytes="1000000")
    write(rows, one)
    write(backwards, one)
    assert place.numbers("one") == list(range(ROWS))
    several = place.of("several")
    fault.at(14, True)
    with pytest.raises(Killed):
        write(rows, several)
    fault.at(0, False)
    there = place.numbers("several")
    assert 0 < len(there) < ROWS
    with pytest.raises(ConnectorError, match=r"task 0 of batch 0 wrote \d+ rows to 'several' before.*in another order"):
        write(backwards, several)
    assert place.numbers("several") == there
    write(rows, several)
    assert place.numbers("several") == list(range(ROWS))


def test_another_division_into_tasks_is_rejected(place: Place) -> None:
    options = place.of("split")
    write(numbered(range(120)), options, 0)
    told = [write(numbered(range(120, ROWS)), options, 1)]
    with pytest.raises(
        ConnectorError, match="task 0 of batch 0 wrote 120 rows to 'split' before, and now it has other"
    ):
        write(numbered(range(80)), options, 0)
    with pytest.raises(
        ConnectorError, match="task 1 of batch 0 wrote 120 rows to 'split' before, and now it has other"
    ):
        write(numbered(range(80, ROWS)), options, 1)
    divided = "batch 0 was written to 'split' by 1 tasks, but an earlier.*wrote task 0: rows"
    with pytest.raises(ConnectorError, match=divided):
        writer_of(numbered(range(1)), options).commit(list(told), 0)
    assert place.numbers("split") == list(range(ROWS))


# ---- producers of Redis 8.6 ------------------------------------------------------------------------------------


def test_producers_skip_rows_that_the_stream_remembers(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rillet.spark.write.producers.WINDOW_ROWS", 70)
    rows = numbered(range(ROWS))
    if place.kind in ("7.0", "valkey", "cluster"):
        with pytest.raises(ConnectorError, match="'plain old' .*does not support IDMP"):
            write(rows, place.of("plain old", exactlyOnce="idmp"))
        assert not place.store.execute("EXISTS", "plain old")
        return
    fault = Fault(monkeypatch, Killed, place)
    for number in strikes(fault, True, 5):
        options = place.of(f"idmp {number}", exactlyOnce="idmp")
        with contextlib.suppress(Killed):
            write(rows, options)
        with fault.pausing():
            write(rows, options)
        assert place.numbers(options["stream"]) == list(range(ROWS)), f"killed at send {number}"
    options = place.of("idmp", exactlyOnce="idmp", partitioned="2")
    for batch in (0, 0, 1):
        writer_of(rows, options).commit([write(rows, options, batch=batch)], batch)
    assert sorted(place.numbers("idmp:0", "idmp:1")) == sorted(2 * list(range(ROWS)))


# ---- Spark -----------------------------------------------------------------------------------------------------

EVENTS = 3000


def copied(judge: Judge, stream: str) -> list[int]:
    return sorted(in_order(judge, stream))


def in_order(judge: Judge, stream: str) -> list[int]:
    with judge.client() as client:
        return [int(flat[flat.index(b"n") + 1]) for _, flat in client.execute_command("XRANGE", stream, "-", "+")]


@pytest.mark.spark
@pytest.mark.long
def test_workers_and_the_driver_are_killed_and_every_row_is_there_once(
    spark: SparkSession, judge: Judge, url: str, tmp_path: Path
) -> None:
    with judge.client() as client:
        pipe = client.pipeline(transaction=False)
        for n in range(EVENTS):  # evenly spaced IDs, so each batch is split into two tasks
            pipe.execute_command("XADD", "events", f"{n + 1}-0", "n", n, "name", f"row {n:06} of them all")
        pipe.execute()
    plan = json.dumps({"url": url, "folder": str(tmp_path)})
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.struck_writer", plan],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    struck = {found.name for found in tmp_path.glob("*-*")}
    assert struck == {"amid-plain", "after-plain", "amid-once", "after-once", "driver-once"}, ended.stderr[-3000:]
    assert ended.returncode != 0
    plain = copied(judge, "plain")
    assert set(plain) == set(range(EVENTS))
    assert len(plain) > EVENTS
    assert set(copied(judge, "once")) < set(range(EVENTS))
    for _ in range(2):
        copy(spark, "rillet", url, tmp_path, "once")
        assert in_order(judge, "once") == list(range(EVENTS))
        # As if the driver had been killed after the sink's commit, before Spark wrote its own down.
        last = max((tmp_path / "once" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.spark
def test_truncated_input_does_not_count_as_complete(
    spark: SparkSession, judge: Judge, url: str, tmp_path: Path
) -> None:
    """What makes the rows fails between two batches: to the writer's iterator that is an end like any other."""
    failed = tmp_path / "failed"

    def made(batches: Iterator[Any]) -> Iterator[Any]:
        for place, batch in enumerate(batches):
            if place == 2 and not failed.exists():
                failed.touch()
                raise ValueError("no more of them")
            yield batch

    # Batches of 80 kB, each of which Spark sends before it asks for the next.
    frame = spark.range(0, 40_000, 1, 1).withColumnRenamed("id", "n").mapInArrow(made, "n long")
    writer = frame.write.format("rillet").mode("append").options(url=url, stream="s", txnAppId="cut", txnVersion="1")
    with pytest.raises(Exception, match="no more of them"):
        writer.save()
    assert failed.exists()
    writer.save()
    assert copied(judge, "s") == list(range(40_000))


@pytest.mark.spark
def test_repeating_a_named_write_appends_nothing(spark: SparkSession, judge: Judge, url: str) -> None:
    frame = spark.range(0, 1000, 1, 2).withColumnRenamed("id", "n")
    for version in (0, 0, 1):
        writer = frame.write.format("rillet").mode("append").options(url=url, stream="s", txnAppId="nightly")
        writer.option("txnVersion", str(version)).save()
    assert copied(judge, "s") == sorted(2 * list(range(1000)))
    for _ in range(2):
        frame.write.format("rillet").mode("append").options(url=url, stream="t").save()
    assert copied(judge, "t") == sorted(2 * list(range(1000)))
