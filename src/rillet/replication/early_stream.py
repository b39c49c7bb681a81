"""The stream of a master that comes before its snapshot is loaded: it is kept, then applied.

    snapshot and stream on one connection     up to 1 MiB is kept; applied at once
    the snapshot on a second one              up to `replica-full-sync-buffer-limit`; applied in turns of 20 ms

Above the limit nothing is read, so the master keeps the rest. Between the turns the event loop runs. Meanwhile half as
many bytes may come as are applied, so that the buffer gets empty.
(Redis: replication.c, rdbChannelBufferReplData, rdbChannelStreamReplDataToDb, replDataBufStreamToDb.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from rillet.replication.errors import LinkError
from rillet.replication.sync_buffer import SyncBuffer

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine

_MOST_ALONE = 1 << 20  # bytes that are kept while a snapshot of the same connection is loaded
_TURN_MS = 20  # of applying, between two turns of the event loop
_PIECE = 16384  # bytes that are applied at once


class EarlyStream:
    """The kept stream of one follower; apply(data) applies bytes, failed(reason) ends the link.

    carrier and second: those of the follower (rillet.replication.replica).
    """

    def __init__(self, engine: Engine, carrier: Any, second: Any, apply: Callable[[bytes], None],
                 failed: Callable[[str], None]) -> None:  # fmt: skip
        self._engine = engine
        self._carrier = carrier
        self._second = second
        self._apply = apply
        self._failed = failed
        self.buffer = SyncBuffer()
        self.is_held = False
        self._run = 0  # the number of the run that applies the buffer in turns, or 0
        self._runs = 0
        self._applied = self._fed = 0  # bytes that this run has applied, and that came meanwhile

    @property
    def is_draining(self) -> bool:
        """Whether the buffer is being applied in turns."""
        return self._run != 0

    def feed(self, data: bytes, *, alone: bool) -> None:
        """Keep bytes; alone: the snapshot comes over the same connection."""
        self.buffer.feed(data)
        if self._run:
            self._fed += len(data)
            return
        limit = _MOST_ALONE if alone else self._limit()
        if limit and self.buffer.used > limit and not self.is_held:
            if not alone:
                self._carrier.log_line(
                    f"Replication buffer limit has been reached ({limit} bytes), stopped buffering replication stream. "
                    "Further accumulation may occur on master side."
                )
            self._hold(True)

    def _limit(self) -> int:
        """Return the limit of the settings; 0: none (replDataBufReadFromConn)."""
        settings = self._engine.settings
        return int(settings.replica_full_sync_buffer_limit or settings.client_output_buffer_limit.replica.hard)

    def _hold(self, held: bool) -> None:
        if self.is_held != held:
            self.is_held = held
            self._carrier.hold(held)

    def clear(self) -> None:
        """Drop the bytes, because the link has ended."""
        if self._run:
            self._carrier.log_line("Master client was freed while streaming accumulated replication data to db.",
                                   warning=True)  # fmt: skip
        self._run = 0
        self.buffer.clear()
        self.is_held = False

    def apply(self) -> None:
        """Apply everything. O(bytes)"""
        try:
            while data := self.buffer.take_bytes(_PIECE):
                self._apply(data)
        except LinkError as error:
            self._failed(str(error))
            return
        self._hold(False)

    def drain(self, done: Callable[[], None]) -> None:
        """Begin to apply the bytes in turns; call done() at the end."""
        self._carrier.log_line("MASTER <-> REPLICA sync: Starting to stream replication buffer into the db "
                               f"({self.buffer.used} bytes).")  # fmt: skip
        self._runs += 1
        self._run = self._runs
        self._applied = self._fed = 0
        self._turn(self._run, done)

    def _turn(self, run: int, done: Callable[[], None]) -> None:
        if self._run != run:
            return
        clock = self._engine.clock
        end = clock.uptime_ms() + _TURN_MS
        try:
            while data := self.buffer.take_bytes(_PIECE):
                self._apply(data)
                self._applied += len(data)
                if pause_at(self._engine, "on-streaming-repl-buf") or clock.uptime_ms() >= end:
                    break
        except LinkError as error:
            self._failed(str(error))
            return
        if self._run != run:
            return
        if self.buffer.used:
            self._hold(self._fed > self._applied // 2)
            self._second.later(partial(self._turn, run, done))
            return
        self._run = 0
        self._carrier.log_line("MASTER <-> REPLICA sync: Successfully streamed replication buffer into the db "
                               f"({self._applied} bytes in total)")  # fmt: skip
        self._hold(False)
        done()


def pause_at(engine: Engine, step: str) -> bool:
    """Stop the process at a step of a synchronisation, and return True, if DEBUG REPL-PAUSE says so."""
    if step not in engine.replication.pauses:
        return False
    engine.services.stop_process()
    return True
