"""A server that is killed and started again: messages() continues, and other calls wait a short time."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rillet
from rillet.aio import AsyncMessage
from rillet.errors import NotSent, OutcomeUnknown, TransactionConflict
from tests.judge import free_port, redis_binary
from tests.server.restarted import RestartedServer
from tests.variants import long

KINDS = [
    pytest.param("redis", marks=pytest.mark.skipif(not redis_binary(), reason="needs redis-server")),
    "rillet",
]


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RestartedServer]:
    folder = tmp_path / "data"
    folder.mkdir()
    running = RestartedServer(request.param, folder)
    yield running
    running.end()
    shutil.rmtree(folder)


RILLET = pytest.mark.parametrize("server", ["rillet", *long("redis")], indirect=True)
COUNT = 60
PATIENT = 60.0  # seconds: a server starts slowly on a busy machine


def acknowledge(message: rillet.Message) -> None:
    """Acknowledge a message, again while the server is away for longer than `ack` waits."""
    while True:
        try:
            message.ack()
            return
        except NotSent:
            pass


async def acknowledge_async(message: AsyncMessage) -> None:
    """Do the same for a message of the asyncio API."""
    while True:
        try:
            await message.ack()
            return
        except NotSent:
            pass


def test_messages_continue_after_each_restart(server: RestartedServer) -> None:
    with rillet.connect(server.url) as store:
        stream = store.stream("s")
        group = stream.group("g")
        stream.add_many({"n": n} for n in range(COUNT))
        handled: list[int] = []
        ended: list[BaseException] = []

        def work() -> None:
            try:
                for message in group.consumer("c").messages(count=10, block=0.1, timeout=30):
                    if len(handled) in (5, 25, 45):  # the server is away when the next command is sent
                        server.end()
                        threads.append(server.start_after(0.1))
                    handled.append(int(message["n"]))
                    acknowledge(message)
                    if len(set(handled)) == COUNT:
                        return
            except BaseException as error:
                ended.append(error)

        threads: list[threading.Thread] = []
        worker = threading.Thread(target=work)
        worker.start()
        worker.join(90)
        for thread in threads:
            thread.join(60)
        assert not ended
        assert set(handled) == set(range(COUNT))
        assert group.pending_count() == 0


@RILLET
def test_messages_wait_longer_than_the_patience_of_other_calls(server: RestartedServer) -> None:
    with rillet.connect(server.url) as store:
        group = store.stream("s").group("g")
        received: list[str] = []

        def work() -> None:
            received.extend(str(message.id) for message in group.consumer("c").messages(block=0.1, stop=stop))

        stop = threading.Event()
        worker = threading.Thread(target=work)
        worker.start()
        store.stream("s").add({"n": 1}, id="1-1")
        while not received:
            time.sleep(0.01)
        server.end()
        with pytest.raises(NotSent, match="did not answer"):
            store.execute("GET", "k")  # after three seconds
        server.start()
        store.stream("s").add({"n": 2}, id="2-1")
        while len(set(received)) < 2:
            time.sleep(0.01)
        stop.set()
        worker.join(60)
        assert not worker.is_alive()
        assert set(received) == {"1-1", "2-1"}


@RILLET
def test_stop_timeout_and_close_end_messages_while_the_server_is_away(server: RestartedServer) -> None:
    with rillet.connect(server.url) as store:
        group = store.stream("s").group("g")
        assert store.execute("PING")
        server.end()
        assert list(group.consumer("c").messages(block=0.1, timeout=0.5)) == []
        stop = threading.Event()
        threading.Timer(0.3, stop.set).start()
        assert list(group.consumer("c").messages(block=0.1, stop=stop)) == []
        threading.Timer(0.3, store.close).start()
        with pytest.raises(rillet.StoreClosed):
            list(group.consumer("c").messages(block=0.1))


def test_asyncio_messages_continue(server: RestartedServer) -> None:
    async def body() -> None:
        async with rillet.connect(server.url).aio() as store:
            stream = store.stream("s")
            group = await stream.group("g")
            await stream.add_many({"n": n} for n in range(COUNT))
            handled: list[int] = []
            async for message in group.consumer("c").messages(count=10, block=0.1):
                if len(handled) in (5, 25):
                    server.end()
                    threads.append(server.start_after(0.1))
                handled.append(int(message["n"]))
                await acknowledge_async(message)
                if len(set(handled)) == COUNT:
                    break
            assert set(handled) == set(range(COUNT))
            assert await group.pending_count() == 0

    threads: list[threading.Thread] = []
    asyncio.run(asyncio.wait_for(body(), 100))
    for thread in threads:
        thread.join(60)


def test_a_command_that_was_not_sent_and_a_read_wait_for_the_server(server: RestartedServer) -> None:
    with rillet.connect(server.url) as store:
        assert store.execute("SET", "k", 1) == b"OK"
        increment = [b"INCR", b"n"]
        for call in (lambda: store.run(increment, PATIENT), lambda: store.run_many([increment], PATIENT)[0]):
            server.end()
            thread = server.start_after(0.1)
            before = int(store.run([b"GET", b"n"], PATIENT) or 0)
            thread.join(60)
            server.end()
            thread = server.start_after(0.1)
            assert call() == before + 1
            thread.join(60)


@RILLET
def test_an_acknowledgement_whose_outcome_is_unknown_does_not_end_as_not_sent(server: RestartedServer) -> None:
    with rillet.connect(server.url) as store, rillet.connect(server.url) as other:
        message = store.stream("s").add({"n": 1})
        group = store.stream("s").group("g")
        assert [entry.id for entry in group.consumer("c").read()] == [message]
        assert other.execute("CLIENT", "PAUSE", 60_000, "WRITE") == b"OK"
        killing = threading.Timer(0.3, server.end)  # after the server has received the command
        killing.start()
        with pytest.raises(OutcomeUnknown):
            group.ack(str(message))
        killing.join()


@pytest.mark.parametrize("watch", [[], ["n"]], ids=["plain", "watched"])
def test_a_transaction_waits_for_the_server(server: RestartedServer, watch: list[str]) -> None:
    """A server that loads its data answers WATCH, and the data that it loads change the watched key: run it again."""

    async def of_a_task(store: rillet.Store) -> int:
        try:
            async with store.aio().transaction(watch) as transaction:
                count = transaction.execute("INCR", "n")
        except TransactionConflict:
            assert watch
            return await of_a_task(store)
        return int(count.result)

    def of_a_thread(store: rillet.Store) -> int:
        try:
            with store.transaction(watch) as transaction:
                count = transaction.execute("INCR", "n")
        except TransactionConflict:
            assert watch
            return of_a_thread(store)
        return int(count.result)

    with rillet.connect(server.url) as store:
        assert store.execute("PING")
        server.end()
        starting = server.start_after(0.1)
        assert of_a_thread(store) == 1
        starting.join()

        async def body() -> None:
            aio = store.aio()
            await aio.execute("PING")
            server.end()
            await asyncio.sleep(0.05)  # the connection of the event loop is closed
            starting = server.start_after(0.1)
            assert await of_a_task(store) == 2
            starting.join()

        asyncio.run(body())


@pytest.mark.parametrize("is_async", [False, True], ids=["thread", "task"])
def test_a_transaction_waits_until_the_server_has_loaded(server: RestartedServer, is_async: bool) -> None:
    async def in_a_task() -> object:
        async with store.aio().transaction() as transaction:
            count = transaction.execute("INCR", "n")
        return count.result

    with rillet.connect(server.url) as store:
        store.execute_many([["SET", f"k{n}", n] for n in range(20)])
        server.end()
        server.start("--key-load-delay", "50000", "--loading-process-events-interval-bytes", "1024", wait=False)
        if is_async:
            assert asyncio.run(in_a_task()) == 1
        else:
            with store.transaction() as transaction:
                count = transaction.execute("INCR", "n")
            assert count.result == 1


def test_a_wrong_address_fails_at_once() -> None:
    with rillet.connect(f"redis://127.0.0.1:{free_port()}") as store:
        begun = time.monotonic()
        for _ in range(20):
            with pytest.raises(NotSent, match="no server answers"):
                store.execute("PING")
        with pytest.raises(NotSent, match="no server answers"):
            list(store.stream("s").group("g").consumer("c").messages())
        assert time.monotonic() - begun < 20  # with the patience of a server that was reached: 60 s
