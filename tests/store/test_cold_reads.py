"""Cold reads: a client waits for the disk in its turn, and others do not."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import pytest

import rillet
from rillet.errors import StoreClosed
from rillet.persistence.disk import Disk
from rillet.persistence.segments.segment import FilePart
from rillet.protocol.reply_parser import INCOMPLETE, ReplyParser
from tests.differential.wire import pack
from tests.store.test_stream_memory import LIMIT, fill, settled

COUNT = 20_000
SECONDS = 30


class Client:
    """A socket to a server."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self.parser = ReplyParser()

    def send(self, *lines: str) -> None:
        self.socket.sendall(b"".join(pack(line.encode().split()) for line in lines))

    def reply(self) -> Any:
        while (found := self.parser.next()) is INCOMPLETE:
            data = self.socket.recv(1 << 16)
            assert data, "the server closed the connection"
            self.parser.feed(data)
        return found

    def call(self, line: str) -> Any:
        self.send(line)
        return self.reply()


class SlowDisk:
    """A disk whose cold parts arrive when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        self.asked = threading.Event()
        self.warm: set[tuple[Path, int, int]] = set()
        self.loads = 0
        load = FilePart.load

        def slowly(part: FilePart) -> None:
            self.asked.set()
            assert self.go_on.wait(SECONDS)
            load(part)
            self.loads += 1
            self.warm.add((part.path, part.offset, part.size))

        def is_cached(_disk: Disk, file: BinaryIO, offset: int, size: int) -> bool:
            return (Path(file.name), offset, size) in self.warm

        monkeypatch.setattr(FilePart, "load", slowly)
        monkeypatch.setattr(Disk, "is_cached", is_cached)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Callable[[], Client]]:
    """Return a function that connects to a store with cold nodes."""
    clients: list[Client] = []
    with rillet.open(tmp_path / "store", stream_memory=LIMIT) as store:
        fill(store, COUNT)
        store.execute("XGROUP", "CREATE", "s", "g", 0)
        settled(store)
        with store.serve(port=0) as server:

            def connect() -> Client:
                clients.append(Client(int(urlsplit(server.url).port or 0)))
                return clients[-1]

            yield connect
            for one in clients:
                one.socket.close()


@pytest.mark.parametrize(("line", "entries"), [
    ("XRANGE s 100-0 + COUNT 300", range(100, 400)),
    ("XREVRANGE s 9000-0 - COUNT 300", range(9000, 8700, -1)),
    ("XREAD COUNT 300 STREAMS s 500-0", range(501, 801)),
    ("XREADGROUP GROUP g c COUNT 300 STREAMS s >", range(1, 301)),
])  # fmt: skip
def test_other_clients_do_not_wait(
    line: str, entries: range, client: Callable[[], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    one, other = client(), client()
    before = commands(other)
    one.send("SET k v", line, "GET k", line.replace("COUNT 300", "COUNT 2"))
    assert one.reply() == b"OK"
    assert disk.asked.wait(SECONDS)
    assert other.call("XLEN s") == COUNT
    assert other.call("XADD s * n 0") is not None  # before the read begins again
    disk.go_on.set()
    reply = one.reply()
    found = reply[0][1] if line.startswith("XREAD") else reply
    assert [entry[0] for entry in found] == [b"%d-0" % n for n in entries]
    assert one.reply() == b"v"
    assert one.reply()
    assert disk.loads
    after = commands(other)
    name = line.split()[0].lower()
    assert {key: after[key] - before.get(key, 0) for key in (name, "get", "xlen")} == {name: 2, "get": 1, "xlen": 1}


def commands(client: Client) -> dict[str, int]:
    """Return how often each command ran."""
    lines = client.call("INFO commandstats").decode().split()
    return {line.split("_")[1].split(":")[0]: int(line.split("calls=")[1].split(",")[0])
            for line in lines if line.startswith("cmdstat_")}  # fmt: skip


def test_a_transaction_reads_what_it_needs_itself(
    client: Callable[[], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    one = client()
    one.send("MULTI", "XRANGE s 100-0 + COUNT 3", "EXEC")
    assert [one.reply() for _ in range(2)] == [b"OK", b"QUEUED"]
    assert [entry[0] for entry in one.reply()[0]] == [b"100-0", b"101-0", b"102-0"]
    assert not disk.asked.is_set()


def test_a_client_that_leaves_is_forgotten(client: Callable[[], Client], monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)
    one, other = client(), client()
    one.send("XRANGE s 100-0 + COUNT 3")
    assert disk.asked.wait(SECONDS)
    one.socket.close()
    assert other.call("XLEN s") == COUNT
    disk.go_on.set()
    assert [entry[0] for entry in other.call("XRANGE s 100-0 + COUNT 3")] == [b"100-0", b"101-0", b"102-0"]


def test_parts_that_the_system_forgets_are_read_in_the_end(
    client: Callable[[], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Disk, "is_cached", lambda *_: False)
    assert [entry[0] for entry in client().call("XRANGE s 100-0 + COUNT 3")] == [b"100-0", b"101-0", b"102-0"]


# -- in this process -------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rillet.Store]:
    with rillet.open(tmp_path / "store", stream_memory=LIMIT) as store:
        fill(store, FEW)
        store.execute("XGROUP", "CREATE", "s", "g", 0)
        settled(store)
        yield store


FEW = 4000
FIRST = [b"1-0", b"2-0", b"3-0"]
LINES = ["XRANGE s - + COUNT 3", "XREAD COUNT 3 STREAMS s 0-0", "XREADGROUP GROUP g c COUNT 3 STREAMS s >"]


def entry_ids(line: str, reply: Any) -> list[bytes]:
    return [entry[0] for entry in (reply[0][1] if line.startswith("XREAD") else reply)]


@pytest.mark.parametrize("line", LINES)
def test_other_threads_do_not_wait(line: str, store: rillet.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(store.execute, *line.split())
        assert disk.asked.wait(SECONDS)
        assert store.execute("XLEN", "s") == FEW
        assert store.execute("XADD", "s", "*", "n", 0)
        assert not reply.done()
        disk.go_on.set()
        assert entry_ids(line, reply.result(SECONDS)) == FIRST
    assert store.execute("XLEN", "s") == FEW + 1
    assert store.execute("XPENDING", "s", "g")[0] == (3 if "GROUP" in line else 0)


@pytest.mark.parametrize("line", LINES)
def test_other_tasks_do_not_wait(line: str, store: rillet.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)

    async def main() -> None:
        there = store.aio()
        reply = asyncio.create_task(there.execute(*line.split()))
        assert await asyncio.to_thread(disk.asked.wait, SECONDS)
        assert await there.execute("XLEN", "s") == FEW
        cancelled = asyncio.create_task(there.execute(*line.replace("COUNT 3", "COUNT 4").split()))
        await asyncio.sleep(0)
        await there.execute("PING")
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        disk.go_on.set()
        assert entry_ids(line, await reply) == FIRST

    asyncio.run(main())
    assert store.execute("XPENDING", "s", "g")[0] == (3 if "GROUP" in line else 0)


@pytest.mark.parametrize("line", [
    "XREADGROUP GROUP g c COUNT 3 STREAMS s 0", "XCLAIM s g d 0 4-0 9-0", "XCLAIM s g d 0 7-0 JUSTID",
    "XAUTOCLAIM s g d 0 2-0 COUNT 2", "XDEL s 100-0 3000-0 5-0 99999-0", "XDELEX s DELREF IDS 2 200-0 3-0",
    "XACKDEL s g IDS 3 1-0 2-0 50-0",
])  # fmt: skip
def test_commands_about_single_entries(line: str, store: rillet.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with rillet.open() as plain:
        fill(plain, FEW)
        plain.execute("XGROUP", "CREATE", "s", "g", 0)
        for one in (store, plain):
            one.execute(*"XREADGROUP GROUP g c COUNT 20 STREAMS s >".split())
        settled(store)
        disk = SlowDisk(monkeypatch)
        with ThreadPoolExecutor(1) as pool:
            reply = pool.submit(store.execute, *line.split())
            assert disk.asked.wait(SECONDS)
            before = [one.execute("XPENDING", "s", "g") for one in (store, plain)]
            assert before[0] == before[1]
            assert [one.execute("XLEN", "s") for one in (store, plain)] == [FEW, FEW]
            disk.go_on.set()
            assert reply.result(SECONDS) == plain.execute(*line.split())
        for question in ("XPENDING s g", "XLEN s", "XPENDING s g - + 30 d", "XRANGE s 0 300"):
            found = [one.execute(*question.split()) for one in (store, plain)]
            if question.endswith(" d"):  # IDs and deliveries; idle times differ
                found = [[[entry[0], entry[3]] for entry in reply] for reply in found]
            assert found[0] == found[1], question
        hits = [one.info()["keyspace_hits"] for one in (store, plain)]
        assert hits[0] == hits[1]


def test_who_keeps_the_lock_reads_at_once(store: rillet.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)
    disk.go_on.set()
    for reply in store.execute_many([LINES[0].split(), LINES[0].split()]):
        assert entry_ids(LINES[0], reply) == FIRST
    with store.transaction() as pipeline:
        pipeline.execute(*LINES[0].split())
    assert not disk.asked.is_set()
    with store.transport.lock:  # type: ignore[attr-defined]
        assert entry_ids(LINES[2], store.execute(*LINES[2].split())) == FIRST
    assert store.execute("XPENDING", "s", "g")[0] == 3


def test_a_call_that_is_interrupted(store: rillet.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)
    raised = threading.Event()

    class Interrupt(Exception):
        pass

    def raises(*_: object) -> None:
        if not raised.is_set():
            raised.set()
            raise Interrupt

    def interrupt() -> None:
        assert disk.asked.wait(SECONDS)
        while not raised.wait(0.01):  # a signal that comes just before a thread sleeps does not wake it
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, raises)
    sender = threading.Thread(target=interrupt)
    sender.start()
    try:
        with pytest.raises(Interrupt):
            store.execute(*LINES[2].split())
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    disk.go_on.set()
    assert entry_ids(LINES[2], store.execute(*LINES[2].split())) == FIRST


def test_a_store_that_is_closed_meanwhile(store: rillet.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(store.execute, *LINES[2].split())
        assert disk.asked.wait(SECONDS)
        store.close()
        with pytest.raises(StoreClosed):
            reply.result(SECONDS)
    disk.go_on.set()


def test_the_system_says_what_is_in_its_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    disk = Disk()
    with disk.read_from(path) as file:
        os.fsync(file.fileno())
        disk.read_at(file, 0, 1 << 20)
        assert disk.is_cached(file, 0, 1 << 20)
        if hasattr(os, "RWF_NOWAIT"):
            assert not disk.is_cached(file, (1 << 20) - 10, 20)  # beyond the end there is nothing
