"""A server with a log that a test kills and starts again on the same port."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import rillet
from tests.judge import await_ready, free_port, redis_binary

# An interpreted build runs without Cython, as the process of the test does.
_RILLET = """
import os, sys
if os.environ.get("RILLET_NO_CYTHON"):
    sys.modules["cython"] = None
from rillet.cli import main
sys.exit(main(sys.argv[1:]))
"""


class RestartedServer:
    """redis-server or `rillet serve` with `appendfsync always`: an acknowledged write is there after a restart.

    kind: "redis" or "rillet". The errors of the process are in the file server.log, next to its folder.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.log = folder.with_name("server.log")
        self.start()

    def start(self, *options: str, wait: bool = True) -> None:
        """Start the server, and wait until it has loaded its log."""
        program = [str(redis_binary())] if self.kind == "redis" else [sys.executable, "-c", _RILLET, "serve"]
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
                 "--appendonly", "yes", "--appendfsync", "always", *options],
                stdout=subprocess.DEVNULL, stderr=errors,
                env={**os.environ, "PYTHONPATH": str(Path(rillet.__file__).parent.parent)},
            )  # fmt: skip
        if wait:
            await_ready(self.port, self.process)

    def end(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, and wait for the end of the process."""
        self.process.send_signal(number)
        self.process.wait(timeout=60)

    def start_after(self, seconds: float) -> threading.Thread:
        """Start the server later, in a thread."""

        def later() -> None:
            time.sleep(seconds)
            self.start()

        thread = threading.Thread(target=later)
        thread.start()
        return thread

    def errors(self) -> str:
        """Return the errors of all processes."""
        with contextlib.suppress(FileNotFoundError):
            return self.log.read_text(errors="replace")
        return ""


__all__ = ["RestartedServer"]
