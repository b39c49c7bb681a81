"""A server with a log that a test kills and starts again on the same port."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from tests.forked import Forked
from tests.judge import await_ready, free_port, redis_binary


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
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
                 "--appendonly", "yes", "--appendfsync", "always", *options]  # fmt: skip
        with self.log.open("ab") as errors:
            self.process: subprocess.Popen[Any] = (
                Forked(["serve", *words], stdout=subprocess.DEVNULL, stderr=errors) if self.kind == "rillet"
                else subprocess.Popen([str(redis_binary()), *words], stdout=subprocess.DEVNULL, stderr=errors)
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
