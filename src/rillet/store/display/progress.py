"""A progress bar for long operations: opening a store, checking it, exporting it, running a pipeline.

    events.rillet: replaying  [##########..............]  42 %  12.6 of 30.0 MB  0:03 left

On a terminal the bar is one line. It appears after a second, is redrawn at most ten times a second, and is erased at
the end. Elsewhere nothing is written, unless `log` is set: then a plain line every five seconds records the progress.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from rillet.real_time import monotonic

_FIRST = 1.0  # seconds of work after which the bar appears
_REDRAW = 0.1
_LOG_EVERY = 5.0
_CELLS = 24
_CLEAR = "\r\x1b[K"


class ProgressBar:
    """A progress bar: call it with the work done and the total (None: unknown). Leaving its `with` block erases it.

    unit: the noun of the counted items; without a unit, the numbers are bytes and are shown as MB.
    """

    def __init__(
        self, title: str, stream: TextIO | None = None, clock: Callable[[], float] = monotonic, *,
        unit: str = "", log: bool = False,
    ) -> None:  # fmt: skip
        self.title, self.unit = title, unit
        self.stream = sys.stderr if stream is None else stream
        self.shown = False
        self._clock = clock
        self._began = clock()
        self._terminal = self.stream.isatty()
        self._log = log and not self._terminal
        self._next = self._began + (_LOG_EVERY if self._log else _FIRST)

    def __call__(self, done: int, total: int | None = None) -> None:
        """Draw the bar or write a log line, if one is due."""
        if not self._terminal and not self._log:
            return
        now = self._clock()
        if now < self._next:
            return
        self._next = now + (_LOG_EVERY if self._log else _REDRAW)
        seconds = now - self._began
        if total is not None:
            done = min(done, total)
        if self._log:
            self.stream.write(f"{self.title}: {self._amount(done, total)}, {done / seconds:,.0f} a second\n")
        else:
            self.stream.write(f"{_CLEAR}{self.title}  {self._line(done, total, seconds)}")
            self.shown = True
        self.stream.flush()

    def _amount(self, done: int, total: int | None) -> str:
        scale, digits, unit = (1, 0, self.unit) if self.unit else (1e6, 1, "MB")
        of = "" if total is None else f" of {total / scale:,.{digits}f}"
        return f"{done / scale:,.{digits}f}{of} {unit}"

    def _line(self, done: int, total: int | None, seconds: float) -> str:
        amount = self._amount(done, total)
        if total is None:
            return f"{amount}  {_minutes(seconds)}"
        part = done / total if total else 1.0
        cells = int(part * _CELLS)
        bar = "#" * cells + "." * (_CELLS - cells)
        left = f"  {_minutes(seconds / part - seconds)} left" if part else ""
        return f"[{bar}] {part:4.0%}  {amount}{left}"

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            self.stream.write(_CLEAR)
            self.stream.flush()


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
