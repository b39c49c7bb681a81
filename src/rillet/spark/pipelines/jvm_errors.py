"""Passes on what Spark's JVM writes to stderr, without the BrokenPipeError tracebacks of its Python daemon.

Spark closes the connection to a Python worker that it no longer needs, at the end of a query or of the session. A
worker that has bytes to flush then ends with a traceback, also after a correct result:

    Traceback (most recent call last):
      File ".../pyspark/daemon.py", line 264, in manager
      ...
    BrokenPipeError: [Errno 32] Broken pipe

The JVM inherits the stderr of the process that starts it. So it is started with a pipe as stderr, whose lines a thread
copies to the real one. What the JVM writes after this process has ended goes nowhere.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_BEGIN = b"Traceback (most recent call last):"
_END = b"BrokenPipeError: "


@contextmanager
def without_broken_pipes() -> Iterator[None]:
    """Give a JVM that starts inside this context manager a stderr without these tracebacks."""
    try:
        terminal = os.dup(2)
    except OSError:  # this process has no stderr
        yield
        return
    end, begin = os.pipe()
    os.dup2(begin, 2)
    os.close(begin)
    threading.Thread(target=_copy, args=(end, os.dup(terminal)), name="rillet-jvm-errors", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def _copy(source: int, target: int) -> None:
    with open(source, "rb", buffering=0) as lines, open(target, "wb", buffering=0) as terminal:
        for line in kept_lines(lines):
            terminal.write(line)


def kept_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines except tracebacks that end with a BrokenPipeError; a traceback is held back until its last line."""
    held: list[bytes] = []
    for line in lines:
        if line.startswith(_BEGIN):
            yield from held
            held = [line]
        elif not held:
            yield line
        elif line.startswith(b"  "):
            held.append(line)
        else:
            if not line.startswith(_END):
                yield from (*held, line)
            held = []
    yield from held
