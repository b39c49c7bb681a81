"""`python -m benchmarks.pinging PORT`: send 1,000 PINGs a second until a line arrives; print the slowest, in ms.

This is a separate process, so that only the server and the machine can delay a reply.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time

from benchmarks.harness import ROOT


class Pinging:
    """Run the process during a block; afterwards `longest` is the slowest PING in milliseconds."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "benchmarks.pinging", str(port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.longest = 0.0

    def __enter__(self) -> Pinging:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        out, _errors = self.process.communicate("\n", timeout=600)
        self.longest = float(out)


def main() -> None:
    """Send PINGs and print the slowest."""
    longest = 0.0
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(600)
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0.001)[0]:
            begin = time.perf_counter()
            connection.sendall(b"PING\r\n")
            assert connection.recv(64) == b"+PONG\r\n"
            longest = max(longest, time.perf_counter() - begin)
    print(longest * 1000)


if __name__ == "__main__":
    main()
