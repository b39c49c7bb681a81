"""What a server asks of its sockets."""

from __future__ import annotations

import asyncio
import socket

from rillet.commands.settings import Settings
from rillet.engine import Engine
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


def test_replies_are_not_held_back_by_the_kernel() -> None:
    for factory in {event_loop_factory(), asyncio.new_event_loop}:
        with asyncio.Runner(loop_factory=factory) as runner:
            assert [bool(option) for option in runner.run(_options())] == [True]
