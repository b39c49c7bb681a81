"""Clients that send much before they read: all commands are answered, and the buffered replies are limited."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rillet.protocol.command_parser import pack_command
from tests.server.harness import Client, Running, field, running

WORD = 60_000
COUNT = 500


@pytest.fixture(params=["uvloop", "asyncio"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, loop=request.param) as started:
        yield started


def word(n: int) -> bytes:
    return b"%08d" % n + b"x" * (WORD - 8)


def send(connection: socket.socket) -> None:
    """Send commands with 30 MB of replies without reading."""
    for n in range(COUNT):
        connection.sendall(pack_command([b"ECHO", word(n)]))


def read(client: Client) -> None:
    for n in range(COUNT):
        assert client.reply() == b"$%d\r\n%b\r\n" % (WORD, word(n))


def waiting(client: Client, who: int) -> int:
    """Return the number of bytes that the server buffers for a client."""
    return int(field(client, who, "omem")) + int(field(client, who, "obl"))


def test_a_pipeline_may_exceed_the_socket_buffers(server: Running) -> None:
    with server.client() as client:
        send(client.socket)
        read(client)
        assert client.call("PING") == b"+PONG\r\n"


def test_unread_replies_are_bounded_by_the_query_buffer_limit(server: Running) -> None:
    with server.client() as operator, server.client() as client:
        assert operator.call("CONFIG SET client-query-buffer-limit 1mb") == b"+OK\r\n"
        who = int(client.call("CLIENT ID")[1:])
        sender = threading.Thread(target=send, args=(client.socket,))
        sender.start()
        before, now = -1, 0
        while now < 1 << 20 or now != before:  # grows until the server stops reading
            before, now = now, waiting(operator, who)
        assert now < 5 << 20
        read(client)
        sender.join()
        assert client.call("PING") == b"+PONG\r\n"
        assert waiting(operator, who) < 1 << 20


def test_a_client_that_reads_nothing_is_disconnected_at_its_limit(server: Running) -> None:
    with server.client() as operator, server.client() as client:
        limit = pack_command([b"CONFIG", b"SET", b"client-output-buffer-limit", b"normal 2mb 0 0"])
        operator.socket.sendall(limit)
        assert operator.reply() == b"+OK\r\n"
        who = client.call("CLIENT ID")[1:-2].decode()
        with pytest.raises(OSError):
            send(client.socket)
        assert operator.call(f"CLIENT LIST ID {who}") == b"$0\r\n\r\n"
