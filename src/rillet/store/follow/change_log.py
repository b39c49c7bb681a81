"""The last changes that a replica applied, in memory, for its consumers (`replica.changes()`).

    LogRecord  start ─────────── end      bytes between two positions outside MULTI; the database at `start`
    LogRecord               start ─────── end
                                           ▲ the applied position; consumers wait here

The log holds at least the last `limit` bytes, if as many were received since the last full synchronisation. A filter
leaves out the commands of other keys: then the bytes of a record are shorter than its distance, or missing between
two records.

A history that continues another one (after a failover) has the same offsets, so positions of the earlier one remain
valid up to that point.

The link's thread appends; consumers in other threads read, and wait for `news`, an event that is set after the next
change of the log and then replaced by another one. Tasks register a function that is called after each change.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from rillet.replication.changes import ChangePosition
from rillet.store.transports.steady_event import SteadyEvent


class LogRecord(NamedTuple):
    """Bytes of commands between two positions; db: the selected database before them."""

    start: int
    end: int
    db: int
    data: bytes

    @property
    def exact(self) -> bool:
        """Whether the bytes are those of the stream."""
        return len(self.data) == self.end - self.start


class Records(NamedTuple):
    """The records of a log after a position, whether they are complete, and the end of the log."""

    held: bool
    records: list[LogRecord]
    end: ChangePosition


class ChangeLog:
    """The last records; between `start` and `end` no change is missing. Before the first data, `history` is empty."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.history = ""
        self.start = self.end = self.db = 0
        self.closed = False
        self.guard = threading.RLock()
        self.news = SteadyEvent()
        self.listeners: set[Callable[[], None]] = set()
        self._earlier: dict[str, int] = {}  # histories that this one continues, and the offset where each ended
        self._records: list[LogRecord] = []
        self._size = 0

    def append(self, record: LogRecord) -> None:
        """Add a record, and drop those that exceed the limit. O(1) amortised"""
        with self.guard:
            self._records.append(record)
            self._size += len(record.data)
            self.end = record.end
            if self._size > self.limit:
                self._shorten()

    def _shorten(self) -> None:
        drop = 0
        while self._size > self.limit and drop < len(self._records) - 1:
            self._size -= len(self._records[drop].data)
            drop += 1
        if drop:
            self.start = self._records[drop - 1].end
            del self._records[:drop]

    def advance(self, offset: int, db: int) -> None:
        """Move the end to the applied position, over bytes without changes of wanted keys."""
        with self.guard:
            self.end, self.db = offset, db

    def begin(self, history: str, offset: int, db: int) -> None:
        """Begin at the position of new data."""
        with self.guard:
            self._records, self._size = [], 0
            self.start = self.end = offset
            self.db = db
            if history != self.history:
                self._earlier = {}
            self.history = history

    def resume(self, position: ChangePosition) -> None:
        """Begin with the records that were appended before, at the position of stored data."""
        with self.guard:
            self.history, self.end, self.db = position.id, position.offset, position.db
            self.start = max(self.start, self._records[0].start) if self._records else position.offset

    def continued(self, history: str, offset: int) -> None:
        """Note that a history continues the current one at an offset."""
        with self.guard:
            self._earlier[self.history] = offset
            self.history = history

    def notify(self) -> None:
        """Wake the consumers."""
        news, self.news = self.news, SteadyEvent()
        news.set()
        for listener in list(self.listeners):
            listener()

    def close(self) -> None:
        """End the consumers."""
        self.closed = True
        self.notify()

    def has_news(self, position: ChangePosition) -> bool:
        """Return whether a consumer at this position has something to do."""
        return bool(self.history) and (self.end > position.offset or not self._knows(position))

    def _knows(self, position: ChangePosition) -> bool:
        return position.id == self.history or position.offset <= self._earlier.get(position.id, -1)

    def after(self, position: ChangePosition, most: int) -> Records:
        """Return up to `most` records that contain changes after the position. O(log n)"""
        with self.guard:
            held = not self.history or (self._knows(position) and position.offset >= self.start)
            first = bisect_right(self._records, position.offset, key=lambda record: record.end) if held else 0
            records = self._records[first : first + most] if held else []
            return Records(held, records, ChangePosition(self.history, self.end, self.db))
