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

Costs: a line of about 35 bytes a write (not a command), and a CRC-32. A store that adds one entry at a time has a batch
for each, so this is compiled: a line is read in place, no object is made for it, and the checksum of a few hundred
bytes is a table's, at hand sooner than zlib, which takes four bytes in a nanosecond, is called. Rejected: a file of
checksums beside the log (a second write and a second sync); trusting the order in which a file system writes (ext4 with
data=ordered keeps it for files that grow, others do not); a faster library for CRC-32 (the checksum of large batches is
a hundredth of what their commands cost).
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.persistence.disk import Disk

if not cython.compiled:  # compiled code has them as C functions, through the .pxd
    from rillet.protocol.reply_writer import put_digits

MARK = b"#RILLET:"
_MARK = cython.declare(bytes, MARK)
_LONGEST = cython.declare(cython.Py_ssize_t, 128)  # of a line
_DIGITS = cython.declare(cython.Py_ssize_t, 16)  # where those of the checksum end
_SMALL = cython.declare(cython.Py_ssize_t, 512)  # bytes, from which on zlib is called
_32_BITS = cython.declare(cython.uint, 0xFFFFFFFF)
# What a redis-server begins with.
_TIME = b"#TS:"
WRITTEN_ON = (b"*2\r\n$6\r\nSELECT\r\n", b"*1\r\n$5\r\nMULTI\r\n", _TIME)
_PIECE = cython.declare(cython.Py_ssize_t, 1 << 20)


def _table() -> bytes:
    """Return eight rows of 256: what a byte with 0 to 7 bytes behind it adds to a CRC-32."""
    rows = [[row] for row in range(256)]
    for row in rows:
        for _ in range(8):
            row[0] = (row[0] >> 1) ^ 0xEDB88320 if row[0] & 1 else row[0] >> 1
    for row in rows:
        for place in range(7):
            row.append(rows[row[place] & 0xFF][0] ^ (row[place] >> 8))
    return array("I", [row[place] for place in range(8) for row in rows]).tobytes()


_ROWS = cython.declare(bytes, _table() if cython.compiled else b"")


@cython.cfunc
@cython.exceptval(check=False)
def _by_table(buf: cython.p_const_uchar, size: cython.Py_ssize_t, crc: cython.uint) -> cython.uint:
    """Return the CRC-32 of so many bytes, continued from crc: eight bytes a step."""
    rows: cython.p_uint = cython.cast(cython.p_uint, cython.cast(cython.p_const_uchar, _ROWS))
    at: cython.Py_ssize_t = 0
    crc ^= _32_BITS
    while size - at >= 8:
        crc = (
            rows[1792 + ((crc ^ buf[at]) & 0xFF)]
            ^ rows[1536 + (((crc >> 8) ^ buf[at + 1]) & 0xFF)]
            ^ rows[1280 + (((crc >> 16) ^ buf[at + 2]) & 0xFF)]
            ^ rows[1024 + (((crc >> 24) ^ buf[at + 3]) & 0xFF)]
            ^ rows[768 + buf[at + 4]]
            ^ rows[512 + buf[at + 5]]
            ^ rows[256 + buf[at + 6]]
            ^ rows[buf[at + 7]]
        )
        at += 8
    while at < size:
        crc = rows[(crc ^ buf[at]) & 0xFF] ^ (crc >> 8)
        at += 1
    return crc ^ _32_BITS


@cython.cfunc
@cython.exceptval(0, check=True)
def _crc32(data: bytes, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, crc: cython.uint) -> cython.uint:
    """Return the CRC-32 of data[start:stop], continued from crc."""
    buf: cython.p_const_uchar = data
    if cython.compiled and stop - start < _SMALL:
        return _by_table(buf + start, stop - start, crc)
    return crc32(memoryview(data)[start:stop], crc)


def batch(data: bytes, *, offset: cython.longlong, synced: cython.ulonglong, seq: cython.ulonglong) -> bytes:
    """Return the data with its line before it, to be written at the offset of file number `seq`. O(bytes)"""
    rest: bytes = _numbers(len(data), synced, seq)
    crc: cython.uint = _crc32(rest, 0, len(rest), offset & _32_BITS)
    return _begin(_crc32(data, 0, len(data), crc)) + rest + data


# Filled and copied while nobody else runs.
_scratch = cython.declare(bytearray, bytearray(128))


@cython.cfunc
def _numbers(length: cython.ulonglong, synced: cython.ulonglong, seq: cython.ulonglong) -> bytes:
    """Return what a line has behind its checksum."""
    buf: cython.p_uchar = _scratch
    at: cython.Py_ssize_t
    buf[0] = 32
    at = put_digits(buf, 1, length)
    buf[at] = 32
    at = put_digits(buf, at + 1, synced)
    buf[at] = 32
    at = put_digits(buf, at + 1, seq)
    buf[at] = 13
    buf[at + 1] = 10
    return buf[: at + 2] if cython.compiled else bytes(_scratch[: at + 2])


@cython.cfunc
def _begin(crc: cython.uint) -> bytes:
    """Return a line up to its checksum."""
    buf: cython.p_uchar = _scratch
    mark: cython.p_const_uchar = _MARK
    i: cython.Py_ssize_t
    digit: cython.uint
    for i in range(8):
        digit = (crc >> (28 - 4 * i)) & 15
        buf[i] = mark[i]
        buf[8 + i] = digit + (48 if digit < 10 else 87)
    return buf[:_DIGITS] if cython.compiled else bytes(_scratch[:_DIGITS])


@cython.final
@cython.cclass
class FrameReader:
    """Reads a file of a log and hands on what its checksums vouch for; `file` stands at offset `at`.

    ours: whether the file begins with a batch; others are handed on as they are. plain_from: where a redis-server wrote
    on, -1 where none did. break_at: where the first break is, -1 where there is none; why: what is wrong there.
    """

    __slots__ = ("ours", "plain_from", "break_at", "why", "_file", "_size", "_buffer", "_at", "_begun", "_file_seq",
                 "_crc", "_length", "_synced", "_seq")  # fmt: skip
    ours: cython.bint
    plain_from: cython.longlong
    break_at: cython.longlong
    why: str
    _file: BinaryIO
    _size: cython.longlong
    _buffer: bytes
    _at: cython.longlong
    _begun: cython.bint
    _file_seq: cython.ulonglong
    _crc: cython.uint
    _length: cython.ulonglong
    _synced: cython.ulonglong
    _seq: cython.ulonglong

    def __init__(self, file: BinaryIO, size: cython.longlong, at: cython.longlong = 0) -> None:
        self._file = file
        self._size = size
        self._buffer = b""
        self._at = at  # the offset of the buffer's first byte
        self._begun = False  # whether a batch told the file's number
        self._file_seq = 0
        # What the line says that was read last.
        self._crc = 0
        self._length = self._synced = self._seq = 0
        self.plain_from = -1
        self.break_at = -1
        self.why = ""
        self._need(_LONGEST)
        # A first line that is no batch is a damaged one, unless it is what a redis-server notes.
        self.ours = self._at == 0 and self._buffer[:1] == b"#" and not self._buffer.startswith(_TIME)
        if not self.ours:
            self.plain_from = at

    @cython.ccall
    def read(self) -> bytes:
        """Return the next bytes, of whole batches; b"" at the end or at the break."""
        if self.plain_from >= 0:
            return self._plain()
        taken: cython.Py_ssize_t = 0
        length: cython.Py_ssize_t
        while self.break_at < 0 and self.plain_from < 0 and taken < _PIECE:
            length = self._next(taken)
            if not length:
                break
            taken += length
        piece: bytes = self._buffer[:taken]
        self._buffer = self._buffer[taken:]
        self._at += taken
        return piece or (self._plain() if self.plain_from >= 0 else b"")

    @cython.cfunc
    def _plain(self) -> bytes:
        piece: bytes = self._buffer or self._file.read(_PIECE)
        self._buffer = b""
        self._at += len(piece)
        return piece

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _need(self, size: cython.Py_ssize_t) -> cython.bint:
        """Have so many bytes in the buffer; whether the file holds them."""
        pieces: list[bytes] = [self._buffer]
        got: cython.Py_ssize_t = len(self._buffer)
        while got < size:
            piece: bytes = self._file.read(max(_PIECE, size - got))
            if not piece:
                break
            pieces.append(piece)
            got += len(piece)
        if len(pieces) > 1:
            self._buffer = b"".join(pieces)
        return got >= size

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _next(self, skip: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the length of the batch that begins there, with its line; 0 where there is none."""
        at: cython.longlong = self._at + skip
        if len(self._buffer) - skip < _LONGEST and not self._need(skip + _LONGEST) and len(self._buffer) == skip:
            return 0
        behind: cython.Py_ssize_t = self._read_line(self._buffer, skip)
        if behind == 0 or (self._begun and self._seq != self._file_seq):
            if self._buffer.startswith(WRITTEN_ON, skip):
                self.plain_from = at
            else:
                self._break(at, f"a batch expected, found {self._buffer[skip : skip + 16]!r}")
            return 0
        end: cython.Py_ssize_t = self._whole(behind)
        if end < 0:
            self._break(at, f"a batch of {self._length} bytes expected, and the file ends")
            return 0
        found: cython.uint = _crc32(self._buffer, skip + _DIGITS, end, at & _32_BITS)
        if found != self._crc:
            self._break(at, f"the checksum of a batch is {self._crc:08x}, of its bytes it is {found:08x}")
            return 0
        self._begun = True
        self._file_seq = self._seq
        return end - skip

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _whole(self, behind: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Have all of the batch whose line ends there in the buffer and return its end; -1 where the file ends."""
        left: cython.longlong = self._size - self._at - behind
        if left < 0 or self._length > cython.cast(cython.ulonglong, left):
            return -1
        end: cython.Py_ssize_t = behind + cython.cast(cython.Py_ssize_t, self._length)
        if end > len(self._buffer) and not self._need(end):
            return -1
        return end

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read_line(self, data: bytes, start: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the line that begins there and return where it ends; 0 where there is none, or not all of it."""
        buf: cython.p_const_uchar = data
        mark: cython.p_const_uchar = _MARK
        size: cython.Py_ssize_t = len(data)
        at: cython.Py_ssize_t
        first: cython.Py_ssize_t
        field: cython.Py_ssize_t
        number: cython.ulonglong = 0
        byte: cython.int
        if size - start < _DIGITS:
            return 0
        for field in range(8):
            if buf[start + field] != mark[field]:
                return 0
        for at in range(start + 8, start + 16):
            byte = buf[at]
            if 48 <= byte <= 57:
                number = number << 4 | (byte - 48)
            elif 97 <= byte <= 102:
                number = number << 4 | (byte - 87)
            else:
                return 0
        self._crc = number
        at = start + 16
        for field in range(3):
            if at >= size or buf[at] != 32:
                return 0
            at = first = at + 1
            number = 0
            while at < size and at < first + 19 and 48 <= buf[at] <= 57:
                number = number * 10 + (buf[at] - 48)  # of 19 digits, which 64 bits hold
                at += 1
            if at == first:
                return 0
            if field == 0:
                self._length = number
            elif field == 1:
                self._synced = number
            else:
                self._seq = number
        return at + 2 if at + 2 <= size and buf[at] == 13 and buf[at + 1] == 10 else 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _break(self, at: cython.longlong, why: str) -> cython.bint:
        self.break_at = at
        self.why = why
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def vouched_for(self) -> cython.longlong:
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
        rest: bytes = self._buffer[self.break_at - self._at :] + self._file.read()
        place: cython.ulonglong = self.break_at
        start: cython.Py_ssize_t = rest.find(_MARK)
        while start >= 0:
            behind: cython.Py_ssize_t = self._read_line(rest, start)
            if behind and self._synced > place and self._seq == self._file_seq:
                left: cython.ulonglong = len(rest) - behind
                if self._length <= left:
                    end: cython.Py_ssize_t = behind + cython.cast(cython.Py_ssize_t, self._length)
                    if _crc32(rest, start + _DIGITS, end, (self.break_at + start) & _32_BITS) == self._crc:
                        return True
            start = rest.find(_MARK, start + 1)
        return False


def holds_nothing(disk: Disk, path: Path) -> bool:
    """Whether the file is empty, or holds only what a file of batches begins with."""
    size = disk.size(path)
    if 0 < size <= _LONGEST:
        with disk.read_from(path) as file:
            reader: FrameReader = FrameReader(file, size)
        return reader._read_line(reader._buffer, 0) == size and reader._length == 0
    return not size


__all__ = ["FrameReader", "batch", "holds_nothing"]
