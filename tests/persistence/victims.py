"""The processes that the kill tests kill: they open a directory, and channels to them return every reply.

A `Subject` is a server, started as a user starts it, or two processes with the same store, one of them attached to the
other. The clients of a store are threads of these processes. They receive their commands through a pair of sockets and
return the replies the same way, so that the killing process knows what was acknowledged.

    python -m tests.persistence.victims FOLDER SETTINGS NUMBER ...      such a process; the numbers of its sockets
"""

from __future__ import annotations

import ast
import contextlib
import os
import pickle
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rillet
from rillet.errors import StoreError
from rillet.protocol.command_parser import pack_command
from tests.persistence.ledger import Failure

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = 4
TIMEOUT = 60.0
_FRAME = struct.Struct("<I")


class Gone(Exception):
    """The other side was killed."""


@dataclass(frozen=True)
class Plan:
    """A chain: its seed, its number of rounds, its kind of process, and the settings."""

    seed: int
    number: int
    rounds: int
    library: bool

    def source(self) -> random.Random:
        """Return the random numbers of this chain."""
        return random.Random(f"{self.seed}:{self.number}")

    def settings(self) -> dict[str, str]:
        """Return the settings of the directory."""
        source = self.source()
        found = {
            "appendfsync": source.choice(("always", "everysec", "no")),
            "compat": source.choice(("7.0", "newest")),
            "aof-use-rdb-preamble": source.choice(("yes", "no")),
            "auto-aof-rewrite-percentage": "10",
            "auto-aof-rewrite-min-size": "16kb",
            "stream-node-max-entries": "10",
            "aof-timestamp-enabled": source.choice(("yes", "no")),
            "no-appendfsync-on-rewrite": source.choice(("yes", "no")),
            "aof-checksums": source.choice(("yes", "no")),
            "enable-debug-command": "yes",
        }
        if not self.library:
            found |= {"appendonly": "yes", "save": source.choice(("", "1 100"))}
        return found

    def __str__(self) -> str:
        return f"{'library' if self.library else 'server'} {self.settings()}"


def _environment() -> dict[str, str]:
    folder = str(Path(rillet.__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join((folder, str(ROOT)))}


class Channel:
    """Sends commands and receives replies: to a server in RESP, to a process with a store in frames."""

    def __init__(self, connection: socket.socket, library: bool) -> None:
        self.socket = connection
        self.library = library
        self._frames = b""
        self._replies: list[Any] = []
        if not library:
            import hiredis

            self._reader: Any = hiredis.Reader()
        connection.settimeout(TIMEOUT)

    def send(self, commands: list[list[bytes]]) -> None:
        """Send commands; Gone if the other side has ended."""
        if self.library:
            data = pickle.dumps(commands)
            data = _FRAME.pack(len(data)) + data
        else:
            data = b"".join(map(pack_command, commands))
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Gone from error

    def reply(self) -> Any:
        """Return the next reply, or an exception for an error; Gone if the other side has ended."""
        while not self._replies:
            try:
                data = self.socket.recv(1 << 16)
            except TimeoutError:
                raise Failure(f"no reply within {TIMEOUT:.0f} seconds") from None
            except OSError as error:
                raise Gone from error
            if not data:
                raise Gone
            self._take(data)
        return self._replies.pop(0)

    def _take(self, data: bytes) -> None:
        if self.library:
            self._frames += data
            while (frame := _frame(self._frames)) is not None:
                self._frames = self._frames[_FRAME.size + len(frame) :]
                self._replies += pickle.loads(frame)
            return
        self._reader.feed(data)
        while (one := self._reader.gets()) is not False:
            self._replies.append(one)

    def ask(self, commands: list[list[bytes]]) -> list[Any]:
        """Send commands and return their replies."""
        self.send(commands)
        return [self.reply() for _ in commands]

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def _frame(data: bytes) -> bytes | None:
    if len(data) < _FRAME.size:
        return None
    size = _FRAME.unpack_from(data)[0]
    return data[_FRAME.size : _FRAME.size + size] if len(data) >= _FRAME.size + size else None


class Subject:
    """The processes that open a directory, and a channel to them for each client."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.plan = plan
        self.processes: list[subprocess.Popen[str]] = []
        self.channels: list[Channel] = []
        self.said: list[str] = []
        self._readers: list[threading.Thread] = []
        self.socket_path = ""

    def begin(self) -> None:
        """Start the first process without waiting for it."""
        if self.plan.library:
            self._hold(CLIENTS // 2)
            return
        self.socket_path = str(Path(tempfile.gettempdir()) / f"k{os.getpid()}-{time.monotonic_ns() % 10**9}.sock")
        words = [word for name, value in self.plan.settings().items() for word in (f"--{name}", value)]
        self._start(["-m", "rillet", "serve", "--port", "0", "--unixsocket", self.socket_path, "--dir",
                     str(self.folder), *words], ())  # fmt: skip

    def open(self) -> None:
        """Wait until the first process is ready, start the others, and connect."""
        self._ready(self.processes[0], "listening" if not self.plan.library else "ready")
        if self.plan.library:
            self._hold(CLIENTS - CLIENTS // 2)
            self._ready(self.processes[1], "ready")
            return
        for _ in range(CLIENTS):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.socket_path)
            self.channels.append(Channel(connection, False))

    def _start(self, arguments: list[str], inherited: tuple[int, ...]) -> None:
        process = subprocess.Popen(
            [sys.executable, *arguments], env=_environment(), cwd=ROOT, text=True, pass_fds=inherited,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.processes.append(process)

    def _hold(self, clients: int) -> None:
        """Start a process that opens the store and serves some clients."""
        pairs = [socket.socketpair() for _ in range(clients)]
        numbers = tuple(theirs.fileno() for _, theirs in pairs)
        self._start(["-m", "tests.persistence.victims", str(self.folder), repr(self.plan.settings()),
                     *map(str, numbers)], numbers)  # fmt: skip
        for ours, theirs in pairs:
            theirs.close()
            self.channels.append(Channel(ours, True))

    def _ready(self, process: subprocess.Popen[str], word: str) -> None:
        assert process.stdout is not None
        alarm = threading.Timer(TIMEOUT, process.kill)
        alarm.daemon = True  # a signal may end this process between any two lines here, and nobody waits for the alarm
        try:
            alarm.start()
            while True:
                line = process.stdout.readline()
                self.said.append(line)
                if word in line:
                    break
                if not line:
                    raise Failure(f"the directory does not open: {''.join(self.said)}")
        finally:
            alarm.cancel()
        reader = threading.Thread(target=lambda: self.said.extend(process.stdout or ()))
        reader.start()
        self._readers.append(reader)

    def kill(self, source: random.Random) -> None:
        """Kill all processes, the owner first; the others get a moment to react."""
        for process in self.processes:
            process.kill()
            if process is not self.processes[-1]:
                time.sleep(source.choice((0, 0, source.uniform(0, 0.1))))
        self._gone()

    def end(self) -> None:
        """End it as an operator does, while the clients continue."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        self._gone()

    def _gone(self) -> None:
        for process in self.processes:
            process.wait(TIMEOUT)
        for reader in self._readers:
            reader.join()

    def close(self) -> None:
        """Let go of all that is left of it."""
        for process in self.processes:
            process.kill()
            process.wait(TIMEOUT)
        for reader in self._readers:
            reader.join()
        for process in self.processes:
            if process.stdout is not None:
                process.stdout.close()
        for channel in self.channels:
            channel.close()
        if self.socket_path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.socket_path)


def _hold(folder: str, settings: dict[str, str], numbers: list[int]) -> None:
    """Open a store and carry out what comes in, a thread for each channel; until killed, or nobody is left."""
    options: Any = {name.replace("-", "_"): value for name, value in settings.items()}
    store = rillet.open(folder, **options)
    threads = [threading.Thread(target=_serve, args=(store, socket.socket(fileno=number))) for number in numbers]
    for thread in threads:
        thread.daemon = True
        thread.start()
    print("ready", "owner" if store.owner else "attached", flush=True)
    for thread in threads:
        thread.join()


def _serve(store: rillet.Store, connection: socket.socket) -> None:
    data = b""
    with connection:  # so that a waiting reader sees the end of this thread
        while piece := connection.recv(1 << 16):
            data += piece
            while (frame := _frame(data)) is not None:
                data = data[_FRAME.size + len(frame) :]
                try:
                    for part in _parts(pickle.loads(frame)):
                        _answer(connection, store.run_many(part) if len(part) > 1 else [store.run(part[0])])
                except StoreError:  # the owner was killed; it is unknown whether this command was executed
                    return


def _parts(commands: list[list[bytes]]) -> Iterator[list[list[bytes]]]:
    """Yield the commands one by one, or all of them together."""
    if len(commands) % 2:
        yield commands
        return
    together: list[list[bytes]] = []
    for argv in commands:
        together.append(argv)
        if together[0] != [b"MULTI"] or argv == [b"EXEC"]:
            yield together
            together = []


def _answer(connection: socket.socket, replies: list[Any]) -> None:
    data = pickle.dumps(replies)
    connection.sendall(_FRAME.pack(len(data)) + data)


def read(channel: Channel, name: bytes) -> tuple[Any, ...]:
    """Return the state of a client's keys, in the form of Model.state."""
    exists, text, expires, count, items, table = channel.ask([
        [b"EXISTS", name + b"s"], [b"GET", name + b"t"], [b"PEXPIRETIME", name + b"t"], [b"GET", name + b"n"],
        [b"LRANGE", name + b"l", b"0", b"-1"], [b"HGETALL", name + b"h"],
    ])  # fmt: skip
    stream = None
    if exists:
        facts = _pairs(channel.ask([[b"XINFO", b"STREAM", name + b"s", b"FULL", b"COUNT", b"0"]])[0])
        group = _pairs(facts[b"groups"][0])
        stream = (
            [tuple(entry) for entry in facts[b"entries"]], facts[b"entries-added"], facts[b"last-generated-id"],
            group[b"last-delivered-id"], [(one[0], one[1], one[3]) for one in group[b"pending"]],
            sorted(_pairs(one)[b"name"] for one in group[b"consumers"]),
        )  # fmt: skip
    return stream, text, expires, count, items, _pairs(table)


def _pairs(flat: Any) -> dict[bytes, Any]:
    return dict(flat) if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


if __name__ == "__main__":
    _hold(sys.argv[1], ast.literal_eval(sys.argv[2]), [int(word) for word in sys.argv[3:]])
