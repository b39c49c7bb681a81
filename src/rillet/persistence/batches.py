"""Batches: what one write adds to a log, with a checksum, so that what a power loss leaves can be told.

    #RILLET:<crc> <length> <synced> <seq>\\r\\n      one line, then so many bytes: whole commands, whole transactions
    *2 $6 SELECT ... *5 $4 XADD ...

RESP has no checksums. Of what was not synced, a power loss may leave any sector and take any other: zeroes between two
commands, or in the middle of a value, where a reader of RESP sees nothing wrong. A byte that flips is not seen either.
A line that begins with # is passed over by every redis-server since 7.0, so the checksum stands in one, and the file
is as good for Redis as before.

    crc       CRC-32 of all that follows it, begun with the place of the line in the file; eight hexadecimal digits
    length    of the bytes behind the line
    synced    so many bytes of this file were known to be on the disk when the line was written
    seq       the number of the file: a line of another file, left in a sector that was reused, is none of this one

A file of rillet begins with an empty batch, which is on the disk before a manifest names the file; a file that does not
is another's, and read as it is. In a file of ours, behind a batch, there may be

    the end, or a batch                      fine
    SELECT, MULTI, or #TS:                   a redis-server wrote on: what follows is read as it is
    anything else, or a wrong checksum       broken

A break where a later batch says that it was synced is damage. Where none does, nothing behind it was ever promised to
be on the disk: it was torn, and the file ends before the break. A batch is taken whole or not at all, as the replies
are that wait for it.

Costs: a line of about 35 bytes a write (not a command), and a CRC-32, of a gigabyte and more in a second. Rejected: a
file of checksums beside the log (a second write and a second sync); trusting the order in which a file system writes
(ext4 with data=ordered keeps it for files that grow, others do not).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from rillet.persistence.disk import Disk

MARK = b"#RILLET:"
_LINE = re.compile(rb"#RILLET:([0-9a-f]{8}) (\d{1,19}) (\d{1,19}) (\d{1,19})\r\n")
_LONGEST = 128
_DIGITS = len(MARK) + 8
_32_BITS = 0xFFFFFFFF
# What a redis-server begins with.
_TIME = b"#TS:"
_WRITTEN_ON = (b"*2\r\n$6\r\nSELECT\r\n", b"*1\r\n$5\r\nMULTI\r\n", _TIME)
_PIECE = 1 << 20


def batch(data: bytes, *, offset: int, synced: int, seq: int) -> bytes:
    """Return the data with its line before it, to be written at the offset of file number `seq`. O(bytes)"""
    rest = b" %d %d %d\r\n%b" % (len(data), synced, seq, data)
    return b"%b%08x%b" % (MARK, crc32(rest, offset & _32_BITS), rest)


class BatchReader:
    """Reads a file of a log and hands on what its checksums vouch for; `file` stands at offset `at`.

    ours: whether the file begins with a batch; others are handed on as they are. plain_from: where a redis-server wrote
    on, -1 where none did. break_at: where the first break is, -1 where there is none; why: what is wrong there.
    """

    def __init__(self, file: BinaryIO, size: int, at: int = 0) -> None:
        self._file = file
        self._size = size
        self._buffer = b""
        self._at = at  # the offset of the buffer's first byte
        self.seq = -1
        self.plain_from = -1
        self.break_at = -1
        self.why = ""
        self._need(_LONGEST)
        # A first line that is no batch is a damaged one, unless it is what a redis-server notes.
        self.ours = self._at == 0 and self._buffer[:1] == b"#" and not self._buffer.startswith(_TIME)
        if not self.ours:
            self.plain_from = at

    def read(self) -> bytes:
        """Return the next bytes, of whole batches; b"" at the end or at the break."""
        if self.plain_from >= 0:
            return self._plain()
        taken = 0
        while self.break_at < 0 and self.plain_from < 0 and taken < _PIECE:
            length = self._next(taken)
            if not length:
                break
            taken += length
        piece, self._buffer = self._buffer[:taken], self._buffer[taken:]
        self._at += taken
        return piece or (self._plain() if self.plain_from >= 0 else b"")

    def _plain(self) -> bytes:
        piece, self._buffer = self._buffer or self._file.read(_PIECE), b""
        self._at += len(piece)
        return piece

    def _need(self, size: int) -> bool:
        """Have so many bytes in the buffer; whether the file holds them."""
        pieces = [self._buffer]
        got = len(self._buffer)
        while got < size:
            piece = self._file.read(max(_PIECE, size - got))
            if not piece:
                break
            pieces.append(piece)
            got += len(piece)
        if len(pieces) > 1:
            self._buffer = b"".join(pieces)
        return got >= size

    def _next(self, skip: int) -> int:
        """Return the length of the batch that begins there, with its line; 0 where there is none."""
        at = self._at + skip
        if len(self._buffer) - skip < _LONGEST and not self._need(skip + _LONGEST) and len(self._buffer) == skip:
            return 0
        line = _LINE.match(self._buffer, skip)
        if line is None or (int(line[4]) != self.seq and self.seq >= 0):
            if self._buffer.startswith(_WRITTEN_ON, skip):
                self.plain_from = at
            else:
                self._break(at, f"a batch expected, found {self._buffer[skip : skip + 16]!r}")
            return 0
        end = line.end() + int(line[2])
        if end + self._at > self._size or (end > len(self._buffer) and not self._need(end)):
            self._break(at, f"a batch of {int(line[2])} bytes expected, and the file ends")
            return 0
        found = crc32(memoryview(self._buffer)[skip + _DIGITS : end], at & _32_BITS)
        if found != int(line[1], 16):
            self._break(at, f"the checksum of a batch is {line[1].decode()}, of its bytes it is {found:08x}")
            return 0
        self.seq = int(line[4])
        return end - skip

    def _break(self, at: int, why: str) -> None:
        self.break_at = at
        self.why = why

    def vouched_for(self) -> int:
        """Return where the batches end that were handed on; 0 in a file of another."""
        if not self.ours:
            return 0
        return self._at if self.plain_from < 0 else self.plain_from

    def was_synced(self) -> bool:
        """Whether a batch behind the break says that the break's place was on the disk: then it is damage. O(bytes)

        What a file begins with is on the disk before a manifest names the file.
        """
        if self.break_at == 0:
            return True
        rest = self._buffer[self.break_at - self._at :] + self._file.read()
        start = rest.find(MARK)
        while start >= 0:
            line = _LINE.match(rest, start)
            if line is not None and int(line[3]) > self.break_at and int(line[4]) == self.seq:
                data = memoryview(rest)[start + _DIGITS : line.end() + int(line[2])]
                if crc32(data, (self.break_at + start) & _32_BITS) == int(line[1], 16):
                    return True
            start = rest.find(MARK, start + 1)
        return False


def holds_nothing(disk: Disk, path: Path) -> bool:
    """Whether the file is empty, or holds only what a file of batches begins with."""
    size = disk.size(path)
    if 0 < size <= _LONGEST:
        with disk.read_from(path) as file:
            head = _LINE.fullmatch(file.read(_LONGEST))
        return head is not None and int(head[2]) == 0
    return not size


__all__ = ["BatchReader", "batch", "holds_nothing"]
