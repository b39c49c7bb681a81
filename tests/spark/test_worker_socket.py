"""The connection between Spark and a Python worker does not delay small pieces."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark import TaskContext
from pyspark.sql.types import StructType

import rillet
from rillet.spark import RilletDataSource
from rillet.spark.worker_socket import _DESCRIPTORS, send_without_delay

SCHEMA = StructType().add("id", "string").add("n", "long")


@pytest.fixture
def url() -> Iterator[str]:
    """A server: the driver asks it before tasks write."""
    with rillet.open() as store, store.serve() as served:
        yield served.url


@pytest.fixture
def connected() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        if one.fileno() < _DESCRIPTORS:
            yield one
            return
        # Other tests of this process hold many files. A worker's connection has a low number: take one for the test.
        low = 20
        saved = os.dup(low) if _is_open(low) else None
        os.dup2(one.fileno(), low)
        try:
            yield one
        finally:
            if saved is None:
                os.close(low)
            else:
                os.dup2(saved, low)
                os.close(saved)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def delays(connection: socket.socket) -> bool:
    return not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("direction", ["reader", "streamReader", "writer", "streamWriter"])
@pytest.mark.parametrize("options", [{"stream": "s"}, {"type": "hash", "keyPattern": "k:*"}])
def test_a_task_unpickles_its_reader_or_writer_and_removes_the_delays(
    connected: socket.socket, url: str, direction: str, options: dict[str, str]
) -> None:
    source = RilletDataSource({"url": url, **options})
    if "type" in options and direction != "reader":
        source = RilletDataSource({"url": url, "type": "hash", "keyColumn": "id"})
    made = getattr(source, direction)(SCHEMA, *([False] if "riter" in direction else []))
    packed = pickle.dumps(made)
    TaskContext._setTaskContext(None)  # another test may have run a task in this process
    assert type(pickle.loads(packed)) is type(made)
    assert delays(connected)  # not in a task
    if direction == "streamReader" and "type" in options:
        return  # a reader that only raises an error
    TaskContext._setTaskContext(TaskContext())
    try:
        assert pickle.loads(packed).__dict__.keys() == made.__dict__.keys()
    finally:
        TaskContext._setTaskContext(None)
    assert not delays(connected)


def test_other_sockets_and_files_stay_as_they_are() -> None:
    before = send_without_delay()
    one, two = socket.socketpair()
    with one, two, socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket() as unconnected:
        assert send_without_delay() == before
        assert delays(unconnected)
