"""The socket options of a server."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.server.server import Server, event_loop_factory
from tests.judge import free_port


async def _options() -> list[int]:
    server = Server(Engine(Settings(port=free_port(), bind="127.0.0.1")))
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"PING\r\n")
    assert await reader.readline() == b"+PONG\r\n"
    sockets = [connection.transport.get_extra_info("socket") for connection in server.connections]
    options = [int(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) for one in sockets]
    writer.close()
    await writer.wait_closed()
    await server.stop()
    return options


def test_the_kernel_does_not_delay_replies() -> None:
    for factory in {event_loop_factory(), asyncio.new_event_loop}:
        with asyncio.Runner(loop_factory=factory) as runner:
            assert [bool(option) for option in runner.run(_options())] == [True]


async def _crowd(path: Path) -> int:
    """Connect many at a moment at which the server accepts nobody; return how many are served then."""
    server = Server(Engine(Settings(port=0, unixsocket=str(path))))
    await server.start()
    with ExitStack() as stack:
        crowd = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(300)]
        for one in crowd:
            one.setblocking(False)
            one.connect(str(path))  # BlockingIOError if the queue is full
        loop = asyncio.get_running_loop()
        served = 0
        for one in crowd:
            await loop.sock_sendall(one, b"PING\r\n")
            served += await loop.sock_recv(one, 16) == b"+PONG\r\n"
    await server.stop()
    return served


def test_the_backlog_applies_to_unix_sockets(tmp_path: Path) -> None:
    """`tcp-backlog` limits the number of waiting connections."""
    for factory in {event_loop_factory(), asyncio.new_event_loop}:
        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(_crowd(tmp_path / "socket")) == 300
