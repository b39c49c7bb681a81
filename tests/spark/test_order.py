"""order=stream: rows are appended in the order of the tasks, whatever happens to the tasks."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import from_arrow_schema  # noqa: E402

from rillet.client.errors import ConnectorError  # noqa: E402
from rillet.client.servers import Servers  # noqa: E402
from rillet.spark.options import OptionError, parse  # noqa: E402
from rillet.spark.write.commits import Identity, Written, close_batch  # noqa: E402
from rillet.spark.write.ordered import (  # noqa: E402
    MARKS,
    OrderedSender,
    Spool,
    append_all_aside,
    chunk_bytes,
    chunk_of,
    mark_rows_in_order,
    rows_in_order,
)
from rillet.spark.write.row_encoder import RowEncoder  # noqa: E402
from rillet.spark.write.transactions import Chunk  # noqa: E402
from rillet.types.stream.id import StreamID  # noqa: E402
from tests.judge import Judge  # noqa: E402
from tests.spark import test_exactly_once as exactly_once  # noqa: E402
from tests.spark.test_exactly_once import Fault, Killed, Place, strikes  # noqa: E402
from tests.spark.writing import QUERY, numbered, table, writer_of  # noqa: E402
from tests.variants import seeds  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.peer]

TASKS, EACH = 4, 150

place, small_chunks = exactly_once.place, exactly_once.small_chunks  # fixtures


def rows_of(task: int, each: int = EACH) -> Any:
    return numbered(range(task * each, (task + 1) * each))


class Batch:
    """The tasks of one batch, run without Spark: any number of attempts, in any order, also in parallel."""

    def __init__(self, place: Place, stream: str, batch: int = 0, **options: str) -> None:
        self.given = place.of(stream, order="stream", **options)
        self.options = parse(self.given)
        self.layout = RowEncoder(self.options, from_arrow_schema(rows_of(0).schema))
        self.batch = batch
        self.written: dict[int, Written] = {}

    def task(self, partition: int, rows: Any, pause: Callable[[], object] = lambda: None) -> None:
        """Run one attempt of a task; `pause` runs between its Arrow batches."""
        identity = Identity(QUERY, self.batch, partition, True)
        with Servers(self.options) as servers:
            sender = OrderedSender(servers, self.options, self.layout, identity)
            with contextlib.closing(sender):
                for one in rows.to_batches(max_chunksize=50):
                    sender.send(one)
                    pause()
                self.written[partition] = Written(identity, sender.finish(), True, sender.put_aside)

    def commit(self) -> None:
        """Do what the driver does when all tasks are complete."""
        written = [self.written[partition] for partition in sorted(self.written)]
        with Servers(self.options) as servers:
            append_all_aside(servers, self.options, self.layout, written)
            close_batch(servers, written)


def leftovers(place: Place, stream: str) -> list[bytes]:
    """Return the keys that only exist while rows are put aside."""
    keys = place.store.execute("KEYS", f"rillet:commits:{{{stream}}}*")
    return [key for key in keys if b":rows:" in key or b":aside" in key]


def assert_only_expiring(place: Place, stream: str) -> None:
    """An attempt that ends while it puts rows aside leaves a list that expires; nothing else is left."""
    for key in leftovers(place, stream):
        assert b":rows:" in key
        assert place.store.execute("TTL", key) > 0


# ---- tasks at the same time ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_parallel_tasks_append_in_order(place: Place, seed: int) -> None:
    rng = random.Random(seed)
    delays = [[rng.random() * 0.02 for _ in range(3)] for _ in range(TASKS)]
    batch = Batch(place, f"parallel {seed}", transactionBytes=rng.choice(["1024", "4096", "1000000"]))
    with ThreadPoolExecutor(TASKS) as pool:
        for task in pool.map(lambda n: batch.task(n, rows_of(n), lambda: time.sleep(delays[n].pop())), range(TASKS)):
            assert task is None
    assert place.numbers(f"parallel {seed}") == list(range(TASKS * EACH))
    batch.commit()
    assert place.numbers(f"parallel {seed}") == list(range(TASKS * EACH))
    assert not leftovers(place, f"parallel {seed}")


def test_tasks_without_rows_pass_the_turn_on(place: Place) -> None:
    batch = Batch(place, "gaps", orderWait="60s")
    none = rows_of(0).slice(0, 0)
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(batch.task, range(5), [none, rows_of(0), none, none, rows_of(1)]))
    batch.commit()
    assert place.numbers("gaps") == list(range(2 * EACH))


# ---- more tasks than slots ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [[3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1], [0, 3, 2, 1]])
def test_one_slot_and_any_order_of_the_tasks(place: Place, order: list[int]) -> None:
    """A task whose predecessors have not run puts its rows aside and leaves its slot."""
    stream = "slot " + "".join(map(str, order))
    batch = Batch(place, stream, orderWait="10ms")
    for partition in order:
        batch.task(partition, rows_of(partition))
        held = place.numbers(stream)
        assert held == list(range(len(held)))
    assert place.numbers(stream) == list(range(TASKS * EACH))
    batch.commit()
    assert place.numbers(stream) == list(range(TASKS * EACH))
    assert not leftovers(place, stream)


def test_a_waiting_task_goes_on_when_its_turn_comes(place: Place) -> None:
    batch = Batch(place, "waits", orderWait="60s")
    thread = threading.Thread(target=batch.task, args=(1, rows_of(1)))
    thread.start()
    batch.task(0, rows_of(0), lambda: time.sleep(0.01))
    thread.join()
    assert not leftovers(place, "waits")
    assert place.numbers("waits") == list(range(2 * EACH))


def test_the_driver_appends_what_no_task_has_appended(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task before has ended between its last transaction and the look for rows put aside."""
    batch = Batch(place, "driver", orderWait="10ms")
    for partition in (3, 2, 1):
        batch.task(partition, rows_of(partition))
    with monkeypatch.context() as patched:
        patched.setattr("rillet.spark.write.ordered.append_aside", lambda *_: None)
        batch.task(0, rows_of(0))
    assert place.numbers("driver") == list(range(EACH))
    batch.commit()
    assert place.numbers("driver") == list(range(TASKS * EACH))
    assert not leftovers(place, "driver")


def test_rows_put_aside_that_are_gone_are_an_error(place: Place) -> None:
    batch = Batch(place, "gone", orderWait="10ms")
    batch.task(1, rows_of(1))
    place.store.execute("DEL", *leftovers(place, "gone"))
    batch.task(0, rows_of(0))
    with pytest.raises(ConnectorError, match="rows of task 1 of batch 0 were put aside for 'gone' and are gone"):
        batch.commit()


# ---- attempts that end, and attempts at the same time -----------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("wait", ["10ms", "60s"])
def test_attempts_killed_at_every_send(place: Place, monkeypatch: pytest.MonkeyPatch, after: bool, wait: str) -> None:
    """Every task is killed at its n-th send and then repeated; with 10ms, the tasks run backwards."""
    fault = Fault(monkeypatch, Killed, place)
    order = range(3) if wait == "60s" else range(2, -1, -1)
    for number in strikes(fault, after, place.step + 1):
        batch = Batch(place, f"killed {after} {wait} {number}", orderWait=wait)
        for partition in order:
            fault.at(number, after)
            with contextlib.suppress(Killed):
                batch.task(partition, rows_of(partition, 60))
            with fault.pausing():
                batch.task(partition, rows_of(partition, 60))
        with fault.pausing():
            batch.commit()
            assert place.numbers(batch.options.stream) == list(range(180)), f"killed at send {number}"
            assert_only_expiring(place, batch.options.stream)
        fault.at(number, after)
        with contextlib.suppress(Killed):  # the loop ends when the send is reached no more
            Batch(place, f"probe {after} {wait} {number}", orderWait=wait).task(0, rows_of(0, 60))


@pytest.mark.parametrize("wait", ["20ms", "60s"])
def test_speculative_attempts(place: Place, wait: str) -> None:
    """Two attempts of each task at the same time; a rejected attempt is one that Spark would run again."""
    batch = Batch(place, f"twice {wait}", orderWait=wait)

    def attempt(number: int) -> None:
        partition, attempt = divmod(number, 2)
        for _ in range(5):
            try:
                batch.task(partition, rows_of(partition), lambda: time.sleep(0.003 * attempt))
                return
            except ConnectorError as error:
                assert "Spark must run the task again" in str(error)  # noqa: PT017

    with ThreadPoolExecutor(2 * TASKS) as pool:
        list(pool.map(attempt, random.Random(wait).sample(range(2 * TASKS), 2 * TASKS)))
    batch.commit()
    assert place.numbers(f"twice {wait}") == list(range(TASKS * EACH))
    batch.task(2, rows_of(2))  # a late attempt
    assert place.numbers(f"twice {wait}") == list(range(TASKS * EACH))
    assert_only_expiring(place, f"twice {wait}")


def test_an_attempt_that_was_overtaken_while_it_kept_its_rows_appends_nothing(place: Place) -> None:
    """The other attempt is complete when this one first sees that its turn has come, in the middle of its rows."""
    batch = Batch(place, "overtaken", orderWait="60s")
    rows = rows_of(1).to_batches(max_chunksize=50)
    with Servers(batch.options) as servers:
        slow = OrderedSender(servers, batch.options, batch.layout, Identity(QUERY, 0, 1, True))
        slow.send(rows[0])
        assert slow.spool is not None
        batch.task(0, rows_of(0))
        batch.task(1, rows_of(1))
        for one in rows[1:]:
            slow.send(one)
        assert slow.finish() == {b"overtaken": EACH}
    batch.commit()
    assert place.numbers("overtaken") == list(range(2 * EACH))


def test_a_repeated_batch_appends_nothing_and_the_next_one_follows(place: Place) -> None:
    for number in (0, 0, 1):
        batch = Batch(place, "repeated in order", number)
        for partition in range(TASKS):
            batch.task(partition, rows_of(partition + number * TASKS))
        batch.commit()
    assert place.numbers("repeated in order") == list(range(2 * TASKS * EACH))


def test_ids_of_several_tasks_rise(place: Place) -> None:
    """With an idColumn, several tasks may write a stream if they do so in order."""
    rows = [table(key=[f"5-{n}" for n in range(1 + 50 * t, 51 + 50 * t)], n=list(range(50))) for t in range(3)]
    options = parse(place.of("ids", order="stream", idColumn="key", orderWait="10ms"))
    layout = RowEncoder(options, from_arrow_schema(rows[0].schema))
    with Servers(options) as servers:
        for partition in (2, 0, 1):
            sender = OrderedSender(servers, options, layout, Identity(QUERY, 0, partition, True))
            for one in rows[partition].to_batches():
                sender.send(one)
            sender.finish()
    found = place.store.execute("XRANGE", "ids", "-", "+")
    keys = [key for key, _ in found] if not isinstance(found, dict) else list(found)
    assert keys == [b"5-%d" % n for n in range(1, 151)]


# ---- parts ------------------------------------------------------------------------------------------------------


def test_a_spool_returns_its_chunks_in_order() -> None:
    chunks = [Chunk(b"x" * n, n, 10 * n, 100 * n, f"{n:016x}", StreamID(n, 1) if n % 2 else None) for n in range(1, 60)]
    spool = Spool(500)
    for chunk in chunks:
        spool.add(chunk)
    assert spool.file is not None
    assert list(spool) == chunks
    spool.close()
    assert chunk_of(chunk_bytes(Chunk(b"a\nb", 1, 2, 3, "4"))) == Chunk(b"a\nb", 1, 2, 3, "4")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"partitioned": "2"}, "order=stream needs a single stream"),
        ({"exactlyOnce": "none"}, "order=stream is not possible with exactlyOnce=none"),
        ({"exactlyOnce": "idmp"}, "order=stream is not possible with exactlyOnce=idmp"),
    ],
)
def test_impossible_orders_are_rejected(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        writer_of(rows_of(0), {"url": "redis://127.0.0.1:1", "stream": "s", "order": "stream", **options})


# ---- Spark ------------------------------------------------------------------------------------------------------

EVENTS = 24_000


def fill(judge: Judge) -> None:
    with judge.client() as client:
        pipe = client.pipeline(transaction=False)
        for n in range(EVENTS):
            pipe.execute_command("XADD", "events", f"{n + 1}-0", "n", n)
        pipe.execute()


def copied(judge: Judge, stream: str) -> list[int]:
    with judge.client() as client:
        return [int(flat[1]) for _, flat in client.execute_command("XRANGE", stream, "-", "+")]


@pytest.fixture
def frame(spark: SparkSession, judge: Judge, url: str) -> Callable[..., Any]:
    """Return a function that reads the events with some number of tasks."""
    fill(judge)

    def read(tasks: int, **options: str) -> Any:
        reader = spark.read.format("rillet").options(url=url, stream="events", minPartitions=str(tasks), **options)
        return reader.schema("n long").load()

    return read


@pytest.mark.spark
def test_a_copy_by_spark_is_in_order_by_default(judge: Judge, url: str, frame: Callable[..., Any]) -> None:
    """Seven tasks in two slots; rows from elsewhere keep their tasks independent."""
    writer = (
        frame(7).where("n % 3 > 0").write.format("rillet").mode("append").options(url=url, transactionBytes="20000")
    )
    writer.option("stream", "copy").save()
    assert copied(judge, "copy") == [n for n in range(EVENTS) if n % 3]
    writer.option("stream", "chosen").option("order", "none").save()
    assert sorted(copied(judge, "chosen")) == [n for n in range(EVENTS) if n % 3]
    with judge.client() as client:
        assert not [key for key in client.execute_command("KEYS", "rillet:commits:*") if b"rows" in key]


@pytest.mark.spark
def test_sorted_rows_stay_sorted_with_the_option(
    spark: SparkSession, judge: Judge, url: str, frame: Callable[..., Any]
) -> None:
    frame(3).orderBy("n", ascending=False).write.format("rillet").mode("append").options(
        url=url, stream="sorted", order="stream", orderWait="500ms"
    ).save()
    assert copied(judge, "sorted") == list(range(EVENTS - 1, -1, -1))


@pytest.mark.spark
def test_a_stream_query_is_in_order(spark: SparkSession, judge: Judge, url: str, tmp_path: Path) -> None:
    fill(judge)
    source = spark.readStream.format("rillet").options(url=url, stream="events", minPartitions="5")
    frame = source.options(maxEntriesPerTrigger="9000", exactTriggers="true").schema("n long").load()
    writer = frame.writeStream.format("rillet").options(url=url, stream="followed", checkpointLocation=str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert copied(judge, "followed") == list(range(EVENTS))


@pytest.mark.spark
def test_rows_that_foreach_batch_persists_stay_in_order_with_the_option(
    spark: SparkSession, judge: Judge, url: str, tmp_path: Path
) -> None:
    """The second write reads Spark's cache, so no reader can mark its rows as those of one stream."""
    fill(judge)
    source = spark.readStream.format("rillet").options(url=url, stream="events", minPartitions="5")

    def write(batch: Any, number: int) -> None:
        batch.persist()
        for name in ("first", "second"):
            writer = batch.write.format("rillet").mode("append").options(url=url, stream=name, order="stream")
            writer.options(txnAppId=name, txnVersion=str(number), transactionBytes="20000").save()
        batch.unpersist()

    frame = source.options(maxEntriesPerTrigger="12000", exactTriggers="true").schema("n long").load()
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert copied(judge, "first") == copied(judge, "second") == list(range(EVENTS))


@pytest.mark.spark
def test_readers_leave_one_small_file(
    spark: SparkSession, url: str, frame: Callable[..., Any], tmp_path: Path
) -> None:
    """Most rows go to no writer of rillet, which could remove what the reader has left for it."""
    for _ in range(5):
        assert frame(3).count() == EVENTS
    source = spark.readStream.format("rillet").options(url=url, stream="events", maxEntriesPerTrigger="1200")
    rows = source.option("exactTriggers", "true").schema("n long").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    started = query.start()
    started.awaitTermination()
    assert started.lastProgress is not None
    assert started.lastProgress.batchId == 19
    (folder,) = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ["SPARK_LOCAL_DIRS"]).collect()
    left = list(Path(folder).rglob("rillet*"))
    assert [path.name for path in left] == ["rillet-in-order"]
    assert left[0].stat().st_size <= MARKS * 8


def test_marks_of_tasks_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Context:
        def __init__(self, number: int) -> None:
            self.number = number

        def taskAttemptId(self) -> int:
            return self.number

    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    assert not rows_in_order(Context(0))
    for number in (0, 7, MARKS + 1):
        mark_rows_in_order(Context(number))
    assert [number for number in range(MARKS + 9) if rows_in_order(Context(number))] == [0, 7, MARKS + 1]
    mark_rows_in_order(Context(MARKS + 7))
    assert not rows_in_order(Context(7))
    assert rows_in_order(Context(MARKS + 7))
    assert [path.name for path in tmp_path.iterdir()] == ["rillet-in-order"]
