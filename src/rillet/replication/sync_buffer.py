"""The stream of a master that arrives while its snapshot is loaded (Redis: replDataBuf of replication.c).

    feed ──► [ 1 MiB ][ 1 MiB ][ 300 KiB .... ] ──► take        in the order of arrival, in small pieces

The memory is allocated in blocks, whose sizes INFO shows: `size` now, `peak` at most since the start of the server.
The owner stops to read from its master while `size` exceeds a limit, so the master keeps the rest.
"""

from __future__ import annotations

from collections import deque

BLOCK = 1 << 20
"""Bytes of a block (replDataBufReadFromConn)."""


class SyncBuffer:
    """Bytes in blocks; `used` are in it, `size` are allocated."""

    __slots__ = ("_at", "_blocks", "_end", "peak", "used")

    def __init__(self) -> None:
        self._blocks: deque[bytearray] = deque()
        self._at = 0  # bytes of the first block that were taken
        self._end = BLOCK  # bytes of the last block that are filled
        self.used = 0
        self.peak = 0

    @property
    def size(self) -> int:
        """The allocated bytes."""
        return len(self._blocks) * BLOCK

    def feed(self, data: bytes) -> None:
        """Append bytes. O(bytes)"""
        view, at = memoryview(data), 0
        while at < len(data):
            if self._end == BLOCK:
                self._blocks.append(bytearray(BLOCK))
                self._end = 0
                self.peak = max(self.peak, self.size)
            count = min(BLOCK - self._end, len(data) - at)
            self._blocks[-1][self._end : self._end + count] = view[at : at + count]
            self._end += count
            at += count
        self.used += len(data)

    def take_bytes(self, most: int) -> bytes:
        """Remove and return the next bytes: at most so many, of one block; b"" if there are none."""
        if not self.used:
            return b""
        end = self._end if len(self._blocks) == 1 else BLOCK
        data = bytes(memoryview(self._blocks[0])[self._at : min(self._at + most, end)])
        self._at += len(data)
        self.used -= len(data)
        if self._at == end:
            self._blocks.popleft()
            self._at = 0
            if not self._blocks:
                self._end = BLOCK
        return data

    def clear(self) -> None:
        """Drop everything."""
        self._blocks.clear()
        self._at, self._end, self.used = 0, BLOCK, 0

    def check(self) -> None:
        """Assert the invariants."""
        end = self._end if self._blocks else 0
        assert self.used == max(len(self._blocks) - 1, 0) * BLOCK + end - self._at
        assert 0 <= self._at <= BLOCK and self.size <= self.peak
