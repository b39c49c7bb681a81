"""The commands that are logged but not yet in the file (Redis: server.aof_buf).

    engine ──► feed ──────► file
                  unwritten ──► file      the bytes of a failed write; the retry writes them before the feed

The engine appends to `feed`, which is in RESP. `unwritten` already has the file's format, including checksums.
"""

from __future__ import annotations

from rillet.protocol.propagation_buffer import PropagationBuffer


class AofBuffer:
    """The logged bytes that are not in the log's file yet."""

    __slots__ = ("feed", "unwritten")

    def __init__(self) -> None:
        self.feed = PropagationBuffer()
        self.unwritten = b""

    @property
    def size(self) -> int:
        """The number of bytes that are not in the file yet (aof_buffer_length)."""
        return len(self.unwritten) + self.feed.used

    def append(self, db: int, argv: list[bytes]) -> None:
        """Append one command that changed database db (feedAppendOnlyFile). O(bytes)"""
        self.feed.select(db)
        self.feed.command(argv)

    def discard(self) -> int:
        """Drop all bytes that are not in the file, and return their number; the next command begins with SELECT."""
        lost = len(self.unwritten) + len(self.feed.take_bytes())
        self.unwritten = b""
        self.feed.forget_db()
        return lost
