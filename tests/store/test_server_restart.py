"""A server that is killed and started again: messages() continues, and other calls wait a short time."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rillet
from rillet.errors import NotSent
from tests.judge import _wait_until_ready, free_port, redis_binary

pytestmark = pytest.mark.once

KINDS = [
    pytest.param("redis", marks=pytest.mark.skipif(not redis_binary(), reason="needs redis-server")),
    "rillet",
]


class Restarted:
    """A server with a log, which the test kills and starts again on the same port."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it has loaded its log."""
        program = [str(redis_binary())] if self.kind == "redis" else [sys.executable, "-m", "rillet", "serve"]
        self.process = subprocess.Popen(
            [*program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
             "--appendonly", "yes", "--appendfsync", "always"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(Path(rillet.__file__).parent.parent)},
        )  # fmt: skip
        _wait_until_ready(self.port, self.process)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def start_after(self, seconds: float) -> threading.Thread:
        """Start the server later, in a thread."""

        def later() -> None:
            time.sleep(seconds)
            self.start()

        thread = threading.Thread(target=later)
        thread.start()
        return thread


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restarted]:
    folder = tmp_path / "data"
    folder.mkdir()
    running = Restarted(request.param, folder)
    yield running
    running.kill()
    shutil.rmtree(folder)


COUNT = 60


def test_messages_continue_after_each_restart(server: Restarted) -> None:
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
                        server.kill()
                        threads.append(server.start_after(0.2))
                    handled.append(int(message["n"]))
                    message.ack()
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


def test_messages_wait_longer_than_the_patience_of_other_calls(server: Restarted) -> None:
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
        server.kill()
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


def test_stop_timeout_and_close_end_messages_while_the_server_is_away(server: Restarted) -> None:
    with rillet.connect(server.url) as store:
        group = store.stream("s").group("g")
        assert store.execute("PING")
        server.kill()
        assert list(group.consumer("c").messages(block=0.1, timeout=0.5)) == []
        stop = threading.Event()
        threading.Timer(0.3, stop.set).start()
        assert list(group.consumer("c").messages(block=0.1, stop=stop)) == []
        threading.Timer(0.3, store.close).start()
        with pytest.raises(rillet.StoreClosed):
            list(group.consumer("c").messages(block=0.1))


def test_asyncio_messages_continue(server: Restarted) -> None:
    async def body() -> None:
        async with rillet.connect(server.url).aio() as store:
            stream = store.stream("s")
            group = await stream.group("g")
            await stream.add_many({"n": n} for n in range(COUNT))
            handled: list[int] = []
            async for message in group.consumer("c").messages(count=10, block=0.1):
                if len(handled) in (5, 25):
                    server.kill()
                    threads.append(server.start_after(0.2))
                handled.append(int(message["n"]))
                await message.ack()
                if len(set(handled)) == COUNT:
                    break
            assert set(handled) == set(range(COUNT))
            assert await group.pending_count() == 0

    threads: list[threading.Thread] = []
    asyncio.run(asyncio.wait_for(body(), 100))
    for thread in threads:
        thread.join(60)


def test_a_command_that_was_not_sent_and_a_read_wait_for_the_server(server: Restarted) -> None:
    with rillet.connect(server.url) as store:
        assert store.execute("SET", "k", 1) == b"OK"
        for call in (lambda: store.execute("INCR", "n"), lambda: store.execute_many([["INCR", "n"]])[0]):
            server.kill()
            thread = server.start_after(0.5)
            before = int(store.execute("GET", "n") or 0)
            thread.join(60)
            server.kill()
            thread = server.start_after(0.5)
            assert call() == before + 1
            thread.join(60)


def test_a_wrong_address_fails_at_once() -> None:
    with rillet.connect(f"redis://127.0.0.1:{free_port()}") as store:
        begun = time.monotonic()
        for _ in range(20):
            with pytest.raises(NotSent, match="no server answers"):
                store.execute("PING")
        with pytest.raises(NotSent, match="no server answers"):
            list(store.stream("s").group("g").consumer("c").messages())
        assert time.monotonic() - begun < 20  # with the patience of a server that was reached: 60 s
