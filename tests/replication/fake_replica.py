"""A replica that shows the bytes which its master sends."""

from __future__ import annotations

import socket
from pathlib import Path

from rillet.persistence.rdb.reader import load_rdb
from rillet.protocol.command_parser import CommandParser, pack_command
from rillet.runtime.engine import Engine
from tests.server.harness import connected

TIMEOUT = 30.0
_MARK = 40


class FakeReplica:
    """A connection that speaks the protocol of replicas; nothing happens before a method is called."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self.file = self.socket.makefile("rb")
        self.id = ""
        self.offset = 0

    def __enter__(self) -> FakeReplica:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect."""
        self.file.close()
        self.socket.close()

    def send(self, *words: str) -> None:
        """Send one command."""
        self.socket.sendall(pack_command([word.encode() for word in words]))

    def call(self, *words: str) -> bytes:
        """Send one command and return its reply, which has one line."""
        self.send(*words)
        return self.line()

    def line(self) -> bytes:
        """Return the next line, without the line breaks that keep a waiting replica alive."""
        while (line := self.file.readline()) == b"\n":
            pass
        return line.removesuffix(b"\r\n")

    def declare(self, *capabilities: str, port: int = 1) -> FakeReplica:
        """Send the properties of a replica that applies the commands of all versions."""
        answer = self.call("REPLCONF", "listening-port", str(port))
        assert answer == b"+OK", answer
        for capability in (*capabilities, "rillet-8.10.0"):
            assert self.call("REPLCONF", "capa", capability) == b"+OK"
        return self

    def psync(self, history: str = "?", offset: int = -1) -> bytes:
        """Ask for a synchronisation; return the answer and remember the position that it names."""
        answer = self.call("PSYNC", history, str(offset))
        words = answer.decode().split()
        if words[0] == "+FULLRESYNC":
            self.id, self.offset = words[1], int(words[2])
        elif words[0] == "+CONTINUE":
            self.id, self.offset = words[1] if len(words) > 1 else history, offset - 1
        return answer

    def snapshot(self) -> bytes:
        """Return the bytes of the RDB data, sized or with an end mark."""
        head = self.line()
        if not head.startswith(b"$EOF:"):
            return self.file.read(int(head[1:]))
        mark, data = head[5:], b""
        while not data.endswith(mark):
            data += self.file.read1()
        return data[:-_MARK]

    def follow(self, *capabilities: str) -> bytes:
        """Synchronise fully, acknowledge, and return the RDB data; the stream follows."""
        self.declare(*(capabilities or ("eof", "psync2")))
        assert self.psync().startswith(b"+FULLRESYNC")
        data = self.snapshot()
        with connected(self.socket.getpeername()[1]) as client:  # Redis 7.0 ignores an earlier acknowledgement
            while b"state=online" not in client.call("INFO replication"):
                pass
        self.ack()
        return data

    def ack(self, offset: int | None = None, *more: str) -> None:
        """Acknowledge an offset: that of the bytes read so far."""
        self.send("REPLCONF", "ACK", str(self.offset if offset is None else offset), *more)

    def stream(self, size: int) -> bytes:
        """Return the next bytes of the stream."""
        data = self.file.read(size)
        self.offset += len(data)
        return data

    def commands(self, count: int, *, pings: bool = False) -> list[bytes]:
        """Return the next commands of the stream, their words joined with blanks; PING only if asked for."""
        found: list[bytes] = []
        while len(found) < count:
            head = self.file.readline()
            assert head.startswith(b"*"), head
            raw, words = head, []
            for _ in range(int(head[1:])):
                size = self.file.readline()
                word = self.file.read(int(size[1:]) + 2)
                raw += size + word
                words.append(word[:-2])
            self.offset += len(raw)
            if pings or words != [b"PING"]:
                found.append(b" ".join(words))
        return found

    def ended(self) -> bool:
        """Return whether the master has disconnected, after what it may have sent before."""
        try:
            while self.file.read1():
                pass
        except ConnectionResetError:
            pass
        return True


def loaded(data: bytes, folder: Path) -> Engine:
    """Return an engine with the data of an RDB file."""
    path = folder / "received.rdb"
    path.write_bytes(data)
    engine = Engine()
    load_rdb(path, engine)
    return engine


def words_of(raw: bytes) -> list[list[bytes]]:
    """Return the commands in bytes of a stream."""
    parser = CommandParser()
    parser.feed(raw)
    found = []
    while argv := parser.next():
        found.append(argv)
    return found
