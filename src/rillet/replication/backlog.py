"""The backlog: the last bytes of the replication stream, in one list of blocks for all replicas (Redis: replBacklog).

          first                                                      end
    ──────┬─────────┬─────────┬──────────────┬─────────┬──────────────┐
          │ block   │ block   │ large block  │ block   │ block ►      │
    ──────┴─────────┴────▲────┴──────────────┴─────────┴──────────────┘
                         │          ◄───────────── limit ─────────────┤
               position of a slow replica

Positions count the bytes of the whole stream. The backlog keeps at least the last `limit` bytes, so that a replica that
reconnects can continue, and all bytes that wait for an attached replica: a replica has no other buffer. A block that no
replica needs is dropped as a whole.

Costs: `append` copies only what it adds to a small block or splits; `read` O(blocks + bytes). Rejected alternatives: a
ring buffer, which would need another buffer for each slow replica; an index of the blocks, because only a reconnecting
replica searches one.
"""

from __future__ import annotations

from collections import deque

BLOCK = 16384  # bytes of an ordinary block
_BLOCKS = 16  # the least number of blocks of a full backlog; its blocks are larger if the limit is large
DROPPED_AT_ONCE = 64  # blocks (replication.c: REPL_BACKLOG_TRIM_BLOCKS_PER_CALL)


class Backlog:
    """The last bytes of a stream; `end` is the number of bytes that were ever in it."""

    __slots__ = ("_blocks", "end", "first", "limit")

    def __init__(self, limit: int, position: int) -> None:
        self.limit = limit
        self.first = self.end = position
        # Only an ordinary block grows; a large one is the object that came.
        self._blocks: deque[bytes | bytearray] = deque()

    def __len__(self) -> int:
        return self.end - self.first

    def append(self, data: bytes) -> None:
        """Append the next bytes of the stream. O(bytes)"""
        self.end += len(data)
        if self._blocks and len(self._blocks[-1]) + len(data) <= BLOCK:
            last = self._blocks[-1]
            if isinstance(last, bytes):
                last = self._blocks[-1] = bytearray(last)
            last += data
            return
        # Blocks are dropped whole, so a large one would keep the backlog above its limit.
        most = max(BLOCK, self.limit // _BLOCKS)
        if len(data) <= most:
            self._blocks.append(data)
            return
        with memoryview(data) as view:
            for at in range(0, len(data), most):
                self._blocks.append(bytes(view[at : at + most]))

    def holds(self, position: int) -> bool:
        """Return whether the bytes from a position to the end are here."""
        return self.first <= position <= self.end

    def boundary(self, position: int) -> int:
        """Return the start of the block with a position; a block begins with a command. O(blocks)"""
        start = self.first
        for block in self._blocks:
            if position < start + len(block):
                break
            start += len(block)
        return start

    def read(self, position: int, most: int) -> bytes:
        """Return the bytes from a position on: up to `most`, or more up to the end of a block. O(blocks + bytes)"""
        assert self.holds(position)
        pieces: list[bytes] = []
        skip, left = position - self.first, most
        for block in self._blocks:
            if skip >= len(block):
                skip -= len(block)
                continue
            with memoryview(block) as view:
                pieces.append(bytes(view[skip:]))
            left -= len(pieces[-1])
            skip = 0
            if left <= 0:
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def trim(self, needed: int, most: int = DROPPED_AT_ONCE) -> None:
        """Drop the oldest blocks beyond `limit` bytes, but no byte from the position `needed` on. O(most)"""
        while most and self._blocks:
            size = len(self._blocks[0])
            if self.first + size > needed or len(self) - size < self.limit:
                return
            self._blocks.popleft()
            self.first += size
            most -= 1

    def check(self) -> None:
        """Assert the invariants. O(blocks)"""
        assert sum(map(len, self._blocks)) == len(self)
        assert all(self._blocks)
