"""Worker processes of the frameworks, started as a user starts them, and ended by their process ID."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
NODE = Path(__file__).parent / "node"
PATIENCE = 60.0
URL = "RILLET_FRAMEWORKS_URL"

T = TypeVar("T")


def environment(url: str) -> dict[str, str]:
    """Return the environment of a worker: it finds the checkout's tests, and the server."""
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    return {**os.environ, URL: url, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


@contextmanager
def worker(folder: Path, url: str, *arguments: str) -> Iterator[Path]:
    """Run `python -m ...` as a process with the server's URL in its environment; yield the file of its output.

    The process gets SIGTERM at the end. It must still run then, so a worker that crashed fails the test.
    """
    output = folder / f"worker-{time.monotonic_ns()}.log"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=folder, env=environment(url), stdout=file, stderr=file,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield output
            assert process.poll() is None, f"{arguments} ended with {process.returncode}:\n{output.read_text()}"
        except BaseException:
            print(output.read_text())
            raise
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process as an operator does; if that does not help, end its whole session."""
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=20)


def script(url: str, program: str, name: str) -> str:
    """Run a script in Node until its end, and return its standard output; AssertionError if it fails."""
    process = subprocess.run(
        [program, str(NODE / name)], capture_output=True, text=True, timeout=PATIENCE, env=environment(url),
        check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout
