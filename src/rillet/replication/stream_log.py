"""The log of a master without an append-only file: its commands go to replicas alone.

The engine needs a log as soon as anybody must learn of its changes. With an append-only file, that log serves both
readers (rillet.protocol.propagation_buffer). Without one, this log is in force. Nothing waits for it: a position is
settled at once, because replicas never delay a reply (WAIT asks for that).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rillet.protocol.propagation_buffer import PropagationBuffer

if TYPE_CHECKING:
    from rillet.replication.master import ReplicationStream


class StreamLog:
    """The interface of rillet.persistence.aof.log, without a file; see Engine.log."""

    failure: str | None = None
    writing = False
    unwritten = 0

    def __init__(self, stream: ReplicationStream) -> None:
        self._stream = stream
        self.feed = PropagationBuffer()

    @property
    def position(self) -> int:
        """The number of bytes appended so far."""
        return int(self._stream.backlog.end) + self.feed.used

    size = synced = position

    def append(self, db: int, argv: list[bytes]) -> None:
        """Append one command that changed database db."""
        self.feed.begin(db, 0)
        self.feed.command(argv)

    def write(self, since: int | None = None) -> int:
        """Have the commands sent soon; return 0, the position that replies wait for."""
        if self.feed.used:
            self._stream.flush_soon()
        return 0

    def flush(self) -> None:
        """Do `write`."""
        self.write()

    def settled(self, position: int) -> bool:
        """Return True: no reply waits for replicas."""
        return True

    def wait(self, position: int) -> None:
        """Return at once."""

    def sync_soon(self, on_synced: Callable[[], None] | None = None) -> None:
        """Do nothing: there is no file."""
