"""Active defragmentation: a stream of a million entries after XDEL of nine in ten, beside a stream that never had them.

Two figures of memory: MEMORY USAGE with all samples, which adds up the sizes of the engine's buffers, and the growth of
the process. The first is what the defragmentation controls. The second also depends on which pages of its heap the C
library returns to the system; a page that is not returned is used by the next values.

The stall is the slowest of 1,000 PINGs a second during the defragmentation, less the slowest of an idle control of the
same duration in the same run. On a machine with other load both vary by milliseconds, so the longest step in CPU time
is measured as well, of an engine in this process (`longest_step`).
"""

from __future__ import annotations

import socket
import time

from benchmarks.harness import Figure, resident_bytes, rillet_server
from benchmarks.memory import ENTRIES, entries
from benchmarks.pinging import Pinging
from rillet.keyspace.defrag import IDLE
from rillet.protocol.command_parser import pack_command
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.wire import Local

_BATCH = 2000
_ON = ["--active-defrag-ignore-bytes", "1mb"]


class _Client:
    """A connection that sends batches of commands."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._file = self._socket.makefile("rb")

    def call(self, *words: object) -> bytes:
        """Run one command; return the first line of its reply, or the bulk string."""
        self._socket.sendall(pack_command([str(word).encode() for word in words]))
        line = self._file.readline()
        return self._file.read(int(line[1:]) + 2)[:-2] if line[:1] == b"$" else line[1:-2]

    def send_all(self, commands: list[list[bytes]], lines: int) -> None:
        """Run commands whose replies have that many lines each."""
        for start in range(0, len(commands), _BATCH):
            part = commands[start : start + _BATCH]
            self._socket.sendall(b"".join(map(pack_command, part)))
            for _ in range(lines * len(part)):
                self._file.readline()

    def info(self, field: str) -> int:
        """Return a number of INFO."""
        text = self.call("INFO", "everything")
        return int(text.split(f"\r\n{field}:".encode())[1].split(b"\r\n")[0])

    def memory(self) -> int:
        """Return the bytes of the stream in the engine's own accounting."""
        return int(self.call("MEMORY", "USAGE", "s", "SAMPLES", "0"))


def _add(client: _Client, rows: list[list[bytes]]) -> None:
    client.send_all([[b"XADD", b"s", *row] for row in rows], 2)


def _delete(rows: list[list[bytes]]) -> list[list[bytes]]:
    """Return the commands that delete nine in ten entries."""
    gone = [row[0] for number, row in enumerate(rows) if number % 10]
    return [[b"XDEL", b"s", *gone[start : start + 100]] for start in range(0, len(gone), 100)]


def _pinged(port: int, client: _Client, seconds: float) -> float:
    """Return the slowest PING (ms) of an idle server, with the same other commands as in `_defragmented`."""
    with Pinging(port) as pinging:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            client.info("active_defrag_running")
            time.sleep(0.2)
    return pinging.longest


def _defragmented(port: int, client: _Client) -> tuple[float, float]:
    """Defragment; return the slowest PING (ms) and the seconds."""
    before, began = client.info("active_defrag_hits"), time.monotonic()
    with Pinging(port) as pinging:
        client.call("CONFIG", "SET", "activedefrag", "yes")
        while client.info("active_defrag_hits") == before or client.info("active_defrag_running"):
            time.sleep(0.2)
    return pinging.longest, time.monotonic() - began


def longest_step(count: int) -> tuple[float, float]:
    """Return the CPU milliseconds of the longest step, and of a median step, of an engine in this process."""
    end = Local(Engine(Settings(activedefrag="yes", active_defrag_ignore_bytes="1mb")))
    rows = entries(count)
    for row in rows:
        end.run([b"XADD", b"s", *row])
    for command in _delete(rows):
        end.run(command)
    times: list[int] = []
    del rows
    while True:
        began = time.thread_time_ns()
        pause = end.engine.defrag_step()
        times.append(time.thread_time_ns() - began)
        if pause == IDLE and not end.engine.defrag.running:
            times.sort()
            return times[-1] / 1e6, times[len(times) // 2] / 1e6


def run(mode: str, scale: float) -> list[Figure]:
    """Measure memory and stalls."""
    count = max(50_000, int(ENTRIES * scale))
    step, median = longest_step(count // 4)  # first, while this process has few free pages
    rows = entries(count)
    with rillet_server(mode, *_ON) as (port, pid):
        client, before = _Client(port), resident_bytes(pid)
        _add(client, rows[::10])
        never, never_grown = client.memory(), resident_bytes(pid) - before
    with rillet_server(mode, *_ON) as (port, pid):
        client, before = _Client(port), resident_bytes(pid)
        _add(client, rows)
        client.send_all(_delete(rows), 1)
        sparse, sparse_grown = client.memory(), resident_bytes(pid) - before
        stalled, seconds = _defragmented(port, client)
        idle = _pinged(port, client, seconds)
        packed, packed_grown = client.memory(), resident_bytes(pid) - before
    left = count // 10
    print(f"# bytes per entry before: {sparse / left:.0f} (process {sparse_grown / left:.0f}); {seconds:.1f} s; "
          f"slowest PING {stalled:.2f} ms, idle {idle:.2f} ms; steps in CPU ms: median {median:.2f}")  # fmt: skip
    goal = round(1 / 1.3, 3)
    return [
        Figure("bytes per entry left, MEMORY USAGE", "never had them", never / left, packed / left, "bytes", goal, mode,
               True),
        Figure("bytes per entry left, process", "never had them", never_grown / left, packed_grown / left, "bytes",
               None, mode, True),
        Figure("slowest PING during defragmentation", "idle + 1 ms", idle + 1, stalled, "ms", 1.0, mode, True),
        Figure("longest step, CPU time", "1 ms", 1.0, step, "ms", 1.0, mode, True),
    ]  # fmt: skip
