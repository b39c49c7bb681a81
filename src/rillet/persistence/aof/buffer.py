"""The commands that are logged but not yet in the file (Redis: server.aof_buf).

    engine ──► feed ──────► file
                  unwritten ──► file      the bytes of a failed write; the retry writes them before the feed

The engine appends to `feed`, which is in RESP. `unwritten` is already in the form of the file, checksums included.
"""

from __future__ import annotations

from rillet.protocol.propagation_buffer import PropagationBuffer


class AofBuffer:
    """The bytes between the engine and the file."""

    __slots__ = ("feed", "unwritten")

    def __init__(self) -> None:
        self.feed = PropagationBuffer()
        self.unwritten = b""

    @property
    def size(self) -> int:
        """The bytes that are not in the file (aof_buffer_length)."""
        return len(self.unwritten) + self.feed.used

    def append(self, db: int, argv: list[bytes]) -> None:
        """Append one command that changed database db (feedAppendOnlyFile). O(bytes)"""
        self.feed.select(db)
        self.feed.command(argv)

    def discard(self) -> int:
        """Drop everything that is not in the file and return its size; the next command begins with SELECT."""
        lost = len(self.unwritten) + len(self.feed.take())
        self.unwritten = b""
        self.feed.forget_db()
        return lost


__all__ = ["AofBuffer"]
