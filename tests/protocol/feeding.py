"""Helpers that feed bytes to a parser in different chunks and collect its results."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from typing import Any

from rillet.errors import ProtocolError
from rillet.protocol.command_parser import CommandParser
from rillet.protocol.reply_parser import INCOMPLETE, ReplyParser
from tests.judge import Judge


def commands(chunks: Iterable[bytes], parser: CommandParser | None = None) -> list[list[bytes] | str]:
    """Return the commands in the chunks, followed by the error's text if there was an error."""
    parser = parser or CommandParser()
    out: list[list[bytes] | str] = []
    try:
        for chunk in chunks:
            parser.feed(chunk)
            while (command := parser.next()) is not None:
                out.append(command)
    except ProtocolError as error:
        out.append(str(error))
    return out


def replies(chunks: Iterable[bytes]) -> list[Any]:
    """Return the replies in the chunks, followed by the ProtocolError if there was one."""
    parser = ReplyParser()
    out: list[Any] = []
    try:
        for chunk in chunks:
            parser.feed(chunk)
            while (reply := parser.next()) is not INCOMPLETE:
                out.append(reply)
    except ProtocolError as error:
        out.append(error)
    return out


def singly(data: bytes) -> list[bytes]:
    """Return the data as chunks of one byte."""
    return [data[i : i + 1] for i in range(len(data))]


def randomly(data: bytes, seed: int, largest: int = 20) -> list[bytes]:
    """Return the data in random chunks, some of them empty."""
    rng = random.Random(seed)
    chunks = []
    pos = 0
    while pos < len(data):
        size = rng.randrange(largest)
        chunks.append(data[pos : pos + size])
        pos += size
    return chunks


def converse(judge: Judge, data: bytes, count: int) -> list[Any]:
    """Send the data to the server over a new connection and return `count` replies."""
    parser = ReplyParser()
    received: list[Any] = []
    with socket.create_connection(("127.0.0.1", judge.port), timeout=10) as connection:
        connection.sendall(data)
        while len(received) < count:
            reply = parser.next()
            if reply is INCOMPLETE:
                parser.feed(connection.recv(65536))
            else:
                received.append(reply)
    return received


def ask(judge: Judge, *pieces: bytes) -> bytes:
    """Send the pieces to the server over a new connection, close it, and return all reply bytes."""
    with socket.create_connection(("127.0.0.1", judge.port), timeout=10) as connection:
        received = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                received += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass  # the server closed the connection before it had read everything
        return received
