"""When the replies of a server with a log leave: in the turn of a client that is alone, else once for all clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rillet.host.engine_lock import engine_lock
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.server.connection import ClientConnection
from rillet.server.logged_replies import LoggedReplies
from rillet.server.server import Server, event_loop_factory
from rillet.store.sharing.guarded_server import GuardedConnection
from tests.judge import free_port

KINDS = ("plain", "guarded")


class _CountedReplies(LoggedReplies):
    """Counts the replies that wait for the end of a loop iteration."""

    shared = 0

    def flush_soon(self, connection: ClientConnection) -> None:
        self.shared += 1
        super().flush_soon(connection)


class Client:
    """A connection of the test's own event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *lines: str) -> None:
        self.writer.write("".join(f"{line}\r\n" for line in lines).encode())

    async def bulk(self) -> bytes:
        """Return the next bulk string."""
        length = int((await self.reader.readline())[1:])
        return (await self.reader.readexactly(length + 2))[:-2]


class Turns:
    """A server with a log, and what its file contains."""

    def __init__(self, server: Server, replies: _CountedReplies, log: AppendOnlyLog) -> None:
        self.server = server
        self.replies = replies
        self._log = log
        self._clients: list[Client] = []

    async def client(self) -> Client:
        self._clients.append(Client(*await asyncio.open_connection("127.0.0.1", self.server.port)))
        return self._clients[-1]

    def logged(self, id: bytes) -> bool:
        assert self._log.file is not None
        return id in self._log.file.path.read_bytes()

    async def close(self) -> None:
        for client in self._clients:
            client.writer.close()
            await client.writer.wait_closed()


@asynccontextmanager
async def _server(kind: str, folder: Path, fsync: str) -> AsyncIterator[Turns]:
    engine = Engine(Settings(port=free_port(), bind="127.0.0.1"))
    log = AppendOnlyLog(folder, fsync=fsync)
    log.open(engine)
    guarded = kind == "guarded"
    connection = GuardedConnection if guarded else ClientConnection
    server = Server(engine, connection=connection, guard=engine_lock() if guarded else None)
    server.replies = replies = _CountedReplies(engine, server.engine_loop, server.timers.free_soon)
    await server.start()
    turns = Turns(server, replies, log)
    try:
        yield turns
    finally:
        await turns.close()
        await server.stop()
        log.close()


def _run(kind: str, folder: Path, body: Callable[[Turns], Awaitable[None]], fsync: str = "everysec") -> None:
    async def main(where: Path) -> None:
        async with _server(kind, where, fsync) as turns:
            await body(turns)

    for number, factory in enumerate({event_loop_factory(), asyncio.new_event_loop}):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main(folder / str(number)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
def test_a_client_that_is_alone_shares_no_write(kind: str, fsync: str, tmp_path: Path) -> None:
    async def body(turns: Turns) -> None:
        client = await turns.client()
        for _ in range(10):
            client.send("XADD s * f v", "XADD s * f w")
            for _ in range(2):
                assert turns.logged(await client.bulk())
        assert turns.replies.shared <= 1

    _run(kind, tmp_path, body, fsync)


@pytest.mark.parametrize("kind", KINDS)
def test_clients_that_take_turns_share_writes(kind: str, tmp_path: Path) -> None:
    async def body(turns: Turns) -> None:
        clients = [await turns.client() for _ in range(3)]
        for _ in range(10):
            for client in clients:
                client.send("XADD s * f v")
            for client in clients:
                assert turns.logged(await client.bulk())
        assert turns.replies.shared >= 20  # a client may be the last one of a round and the first one of the next

    _run(kind, tmp_path, body)


@pytest.mark.parametrize("kind", KINDS)
def test_a_woken_client_has_its_reply_after_the_write(kind: str, tmp_path: Path) -> None:
    async def body(turns: Turns) -> None:
        reader, next_reader, writer = [await turns.client() for _ in range(3)]
        for number in range(1, 6):
            reader.send("BLPOP jobs 0", f"RPUSH results done-{number}")
            next_reader.send("BLPOP results 0")
            while sum(one.blocked is not None for one in turns.server.engine.sessions.values()) < 2:
                await asyncio.sleep(0)
            writer.send(f"RPUSH jobs job-{number}")
            assert await writer.reader.readline() == b":1\r\n"
            assert await reader.reader.readline() == b"*2\r\n"
            assert [await reader.bulk(), await reader.bulk()] == [b"jobs", b"job-%d" % number]
            assert await reader.reader.readline() == b":1\r\n"
            assert await next_reader.reader.readline() == b"*2\r\n"
            assert [await next_reader.bulk(), await next_reader.bulk()] == [b"results", b"done-%d" % number]
            assert turns.logged(b"done-%d" % number)

    _run(kind, tmp_path, body)
