"""A store that is sent to another process opens the same data there; an in-memory store says why it cannot."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Consumer, Counter, Hash, Message, Store, Stream, errors
from rillet.errors import ReadOnly
from tests.forked import ROOT
from tests.store.conftest import Frontend, only
from tests.variants import long

SENT = only("owner", "attached", "socket", "redis")
# Spawned workers start Python again: one kind stands for the others, which are pickled by the same code.
WAYS = [("attached", "spawn"), *long(("owner", "spawn"), ("socket", "spawn"), ("redis", "spawn"))]
if "fork" in get_all_start_methods():
    WAYS += [("owner", "fork"), ("attached", "fork"), ("socket", "fork"), ("redis", "fork")]


def add_one(stream: Stream, number: int) -> int:
    stream.add({"number": number})
    return os.getpid()


def handle_one(consumer: Consumer) -> str | None:
    for message in consumer.read(1):
        message.ack()
        return message["number"]
    return None


def acknowledge(message: Message) -> tuple[int, int]:
    return message.deliveries, int(message.ack())


def count(counter: Counter, table: Hash[int], times: int) -> None:
    for _ in range(times):
        counter.incr()
        table.incr("sum", 2)


def fail(store: Store) -> None:
    store.execute("SET", "text", "x")
    store.stream("text").add({"a": 1})


@pytest.mark.slow
@pytest.mark.parametrize(("frontend", "method"), WAYS, indirect=["frontend"])
def test_workers_use_the_objects_that_they_are_sent(frontend: Frontend, method: str) -> None:
    store = frontend.store
    jobs = store.stream("jobs")
    group = jobs.group("workers")
    counter, table = store.counter("counter"), store.hash("table", codec=rillet.codecs.text_of(int))
    with ProcessPoolExecutor(2, get_context(method)) as pool:
        pids = list(pool.map(add_one, [jobs] * 20, range(20)))
        assert os.getpid() not in pids
        assert sorted(int(entry["number"]) for entry in jobs) == list(range(20))
        handled = list(pool.map(handle_one, [group.consumer(f"c{number % 2}") for number in range(18)]))
        assert len(set(handled)) == 18
        (first, second) = group.consumer("here").read(2)
        assert pool.submit(acknowledge, first).result(60) == (1, 1)
        assert group.pending_count() == 1
        assert second.ack()
        list(pool.map(count, [counter] * 4, [table] * 4, [25] * 4))
        assert (int(counter), table["sum"]) == (100, 200)
        with pytest.raises(rillet.WrongType, match="^WRONGTYPE Operation against a key holding the wrong kind"):
            pool.submit(fail, store).result(60)


@SENT
def test_a_copy_in_the_same_process_is_a_store_of_its_own(frontend: Frontend) -> None:
    jobs = frontend.store.stream("jobs")
    id = jobs.add({"a": 1})
    copies = pickle.loads(pickle.dumps([jobs, jobs.group("g").consumer("c"), frontend.store.aio()]))
    assert copies[0].store is copies[1].store
    assert copies[0].store is not frontend.store
    assert [message.id for message in copies[1].read()] == [id]
    copies[0].store.close()
    assert jobs.length() == 1


@dataclass
class Order:
    number: int
    total: Decimal


@SENT
def test_a_copy_of_a_typed_stream_has_the_type(frontend: Frontend) -> None:
    orders = frontend.store.stream("orders", type=Order)
    order = Order(7, Decimal("9.90"))
    orders.add(order)
    consumer = pickle.loads(pickle.dumps(orders.group("g").consumer("c")))
    (message,) = consumer.read()
    assert message.value == order
    assert pickle.loads(pickle.dumps(message)).value == order
    assert [entry.value for entry in pickle.loads(pickle.dumps(orders))] == [order]


def test_a_copy_has_the_same_options(tmp_path: Path) -> None:
    def shown(store: Store, name: str) -> str:
        return str(store.execute("CONFIG", "GET", name)[1].decode())

    with rillet.open(tmp_path / "s", appendfsync="always", compat="7.2", aof_checksums=False) as store:
        store.execute("SET", "a", "1")
        data = pickle.dumps(store)
    with pickle.loads(data) as copy:
        assert copy.owner
        assert [shown(copy, name) for name in ("appendfsync", "compat", "aof-checksums")] == ["always", "7.2", "no"]
    with rillet.open(tmp_path / "s", readonly=True) as store:
        data = pickle.dumps(store)
    with pickle.loads(data) as copy:
        assert copy.execute("GET", "a") == b"1"
        with pytest.raises(ReadOnly):
            copy.execute("SET", "a", "2")


def test_a_relative_path_leads_to_the_same_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with rillet.open("s") as store:
        data = pickle.dumps(store)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        with pickle.loads(data) as copy:
            assert copy.path == str(tmp_path / "s")


def test_a_directory_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s") as store:
        data = pickle.dumps(store.stream("x"))
    (tmp_path / "s").rename(tmp_path / "t")
    with pytest.raises(rillet.StoreError, match=r"/s, the directory of a store .* does not exist here"):
        pickle.loads(data)
    assert not (tmp_path / "s").exists()


def test_a_store_in_memory_cannot_be_pickled() -> None:
    with rillet.open() as store:
        for one in (store, store.stream("x"), store.aio(), store.hash("h")):
            with pytest.raises(TypeError, match="a store in memory cannot be pickled, because its data is in"):
                pickle.dumps(one)
    with pytest.raises(rillet.StoreClosed, match="the store is closed"):
        pickle.dumps(store)


def test_a_closure_of_spark_contains_a_store(tmp_path: Path) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    (tmp_path / "worker.py").write_text(
        "import pickle, sys\nprint(pickle.load(open(sys.argv[1], 'rb'))([1, 2, 3]))\n", encoding="utf-8"
    )
    with rillet.open(tmp_path / "s") as store:
        rows = store.stream("rows")

        def write(partition: list[int]) -> int:
            return len(rows.add_many({"row": row} for row in partition))

        (tmp_path / "closure").write_bytes(cloudpickle.dumps(write))
        environment = {**os.environ, "PYTHONPATH": f"{Path(rillet.__file__).parent.parent}{os.pathsep}{ROOT}"}
        done = subprocess.run([sys.executable, "worker.py", "closure"], cwd=tmp_path, env=environment,
                              capture_output=True, text=True, timeout=120)  # fmt: skip
        assert done.stdout == "3\n", done.stderr
        assert [entry["row"] for entry in rows] == ["1", "2", "3"]


def _subclasses(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(one for child in kind.__subclasses__() for one in _subclasses(child))]


MADE: dict[type[Exception], Callable[[type[Any]], Exception]] = {
    errors.LogCorrupt: lambda kind: kind("file", 7, "bad bytes", "a check"),
}


@pytest.mark.parametrize("kind", _subclasses(errors.RilletError), ids=lambda kind: kind.__name__)
def test_errors_can_be_pickled(kind: type[Exception]) -> None:
    try:
        error = MADE.get(kind, lambda kind: kind("the text"))(kind)
    except TypeError:
        error = kind.__new__(kind, "the text")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.args, copy.__dict__) == (str(error), error.args, error.__dict__)
