"""`python -m benchmarks.pinging PORT`: send 1,000 PINGs a second until a line arrives.

It prints the slowest PING of each tenth of a second, in ms. This is a separate process, so that only the server and the
machine can delay a reply.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time

from benchmarks.harness import ROOT


class Pinging:
    """Run the process during a block; afterwards `longest` is the slowest PING in milliseconds.

    line: the slowest of each tenth of a second, as points of seconds and milliseconds.
    """

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "benchmarks.pinging", str(port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.longest = 0.0
        self.line: list[tuple[float, float]] = []

    def __enter__(self) -> Pinging:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        out, _errors = self.process.communicate("\n", timeout=600)
        self.line = [(number / 10, float(word)) for number, word in enumerate(out.split())]
        self.longest = max((ms for _, ms in self.line), default=0.0)


def main() -> None:
    """Send PINGs and print the slowest of each tenth of a second."""
    slowest: list[float] = []
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(600)
        print("ready", flush=True)
        began = time.perf_counter()
        while not select.select([sys.stdin], [], [], 0.001)[0]:
            begin = time.perf_counter()
            connection.sendall(b"PING\r\n")
            assert connection.recv(64) == b"+PONG\r\n"
            now = time.perf_counter()
            while len(slowest) <= (now - began) * 10:
                slowest.append(0.0)
            slowest[-1] = max(slowest[-1], now - begin)
    print(*(f"{seconds * 1000:.3f}" for seconds in slowest))


if __name__ == "__main__":
    main()
