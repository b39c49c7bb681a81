"""A bar that shows how far something long has come: opening a store, checking it, exporting it.

    events.rillet: replaying  [##########..............]  42 %  12.6 of 30.0 MB  0:03 left

It shows itself when a second has gone by without the end, and only to people: where the stream is a terminal. It is
one line that is drawn over itself, at most ten times a second, and gone when the work is done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

_AFTER = 1.0  # seconds
_EVERY = 0.1
_CELLS = 24
_CLEAR = "\r\x1b[K"


class ProgressBar:
    """Called with (bytes done, bytes in all); a context manager that wipes the line at its end."""

    def __init__(self, title: str, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.title = title
        self.stream = sys.stderr if stream is None else stream
        self.shown = False
        self._clock = clock
        self._began = clock()
        self._next = self._began + _AFTER
        self._seen_by_somebody = self.stream.isatty()

    def __call__(self, done: int, total: int) -> None:
        """Draw the bar, if it is time to."""
        if not self._seen_by_somebody:
            return
        now = self._clock()
        if now >= self._next:
            self._next = now + _EVERY
            self._draw(min(done, total), total, now - self._began)

    def _draw(self, done: int, total: int, seconds: float) -> None:
        part = done / total if total else 1.0
        cells = int(part * _CELLS)
        left = seconds / part - seconds if part else 0.0
        bar = "#" * cells + "." * (_CELLS - cells)
        sizes = f"{done / 1e6:.1f} of {total / 1e6:.1f} MB"
        time_left = f"  {int(left) // 60}:{int(left) % 60:02d} left" if part else ""
        self.stream.write(f"{_CLEAR}{self.title}  [{bar}] {part:4.0%}  {sizes}{time_left}")
        self.stream.flush()
        self.shown = True

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            self.stream.write(_CLEAR)
            self.stream.flush()


__all__ = ["ProgressBar"]
