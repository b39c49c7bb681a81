"""Frames: each write to the log with a checksum, so that the loader can detect what a power loss destroyed.

    #RILLET:<crc> <length> <synced> <seq>\\r\\n      a header line, then whole commands, whole transactions
    *2 $6 SELECT ... *5 $4 XADD ...

RESP has no checksums. A power loss may keep or lose each sector that was not synced. The result can be zeroes between
two commands or inside a value, where a RESP parser finds no error; the same holds for a flipped bit. redis-server 7.0
and later skip lines that begin with #, so the checksum is in such a line, and Redis can read the file as before.

    crc       CRC-32 of the rest of the frame, started with the frame's offset in the file; eight hexadecimal digits
    length    the bytes after the line
    synced    the bytes of this file that were on the disk when the line was written
    seq       the number of the file; identifies a frame of another file in a reused sector

A file of rillet begins with an empty frame, which is synced before a manifest names the file. A file that begins
otherwise comes from another server and is read as plain RESP. After a frame the reader accepts:

    the end, or a frame                      normal
    SELECT, MULTI, or #TS:                   a redis-server continued the file: the rest is plain RESP
    anything else, or a wrong checksum       a break

If a later frame states that the break was synced, the file is damaged. Otherwise nothing after the break was promised
to be on the disk: the write was torn, and the file ends before it. A frame is loaded whole or not at all, like the
replies that wait for it.

Cost: a line of about 35 bytes and one CRC-32 per write (not per command). A store that adds one entry at a time writes
a frame for each, so this module is compiled and parses the line without creating objects. Rejected: a separate file of
checksums (a second write and a second sync); trusting the order in which the file system writes (ext4 with
data=ordered keeps it for files that grow, others do not).
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from rillet._cython import cython, readonly
from rillet.persistence.aof.position import PREFIX as POSITION
from rillet.persistence.disk import Disk
from rillet.protocol.reply_writer import put_digits

MARK = b"#RILLET:"
_MARK = cython.declare(bytes, MARK)
_LONGEST = cython.declare(cython.Py_ssize_t, 128)  # maximum length of a header line
_DIGITS = cython.declare(cython.Py_ssize_t, 16)  # offset after the checksum in a header line
_SMALL = cython.declare(cython.Py_ssize_t, 4096)
_32_BITS = cython.declare(cython.uint, 0xFFFFFFFF)
# If a redis-server continues a rillet file, its first bytes are one of these prefixes.
_TIME = b"#TS:"
_NOTES = (_TIME, POSITION)  # of a file without frames
WRITTEN_ON = (b"*2\r\n$6\r\nSELECT\r\n", b"*1\r\n$5\r\nMULTI\r\n", _TIME)
_PIECE = cython.declare(cython.Py_ssize_t, 1 << 20)


@cython.cfunc
@cython.exceptval(0, check=True)
def _crc32(data: bytes, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, crc: cython.uint) -> cython.uint:
    """Return the CRC-32 of data[start:stop], continued from the checksum `crc` of earlier bytes."""
    if stop - start < _SMALL:
        return crc32(data[start:stop], crc)  # copying a few bytes is faster than creating a memoryview
    return crc32(memoryview(data)[start:stop], crc)


def frame(data: bytes, *, offset: cython.longlong, synced: cython.ulonglong, seq: cython.ulonglong) -> bytes:
    """Return the data as a frame for this offset of file number `seq`. O(bytes)"""
    body: bytes = _numbers(len(data), synced, seq) + data  # a second call of zlib would cost more than this copy
    return _begin(crc32(body, offset & _32_BITS)) + body


# One scratch buffer for all calls; the GIL protects it.
_scratch = cython.declare(bytearray, bytearray(128))


@cython.cfunc
def _numbers(length: cython.ulonglong, synced: cython.ulonglong, seq: cython.ulonglong) -> bytes:
    """Return the part of a frame's header line that follows the checksum."""
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
    """Return the first part of a frame's header line, which ends with the checksum."""
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
    """Reads one file of a log and returns the bytes whose checksums are right; `file` is positioned at offset `at`.

    ours: the file begins with a frame; `read` returns other files unchanged. plain_from: the offset at which a
    redis-server continued the file, or -1. break_at: the offset of the first break, or -1; why: its reason.
    """

    __slots__ = ("ours", "plain_from", "break_at", "why", "_file", "_size", "_buffer", "_at", "_begun", "_file_seq",
                 "_crc", "_length", "_synced", "_seq")  # fmt: skip
    ours: readonly[cython.bint]
    plain_from: readonly[cython.longlong]
    break_at: readonly[cython.longlong]
    why: readonly[str]
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
        self._begun = False  # whether the first frame was read
        self._file_seq = 0
        # The fields of the last header line.
        self._crc = 0
        self._length = self._synced = self._seq = 0
        self.plain_from = -1
        self.break_at = -1
        self.why = ""
        self._need(_LONGEST)
        # A first line with # is a damaged frame, unless it is a time or a position.
        self.ours = self._at == 0 and self._buffer[:1] == b"#" and not self._buffer.startswith(_NOTES)
        if not self.ours:
            self.plain_from = at

    @cython.ccall
    def read(self) -> bytes:
        """Return the contents of the next whole frames; b"" at the end of the file or at the break."""
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
    def _need(self, size: cython.Py_ssize_t) -> cython.bint:
        """Read from the file until the buffer has this size; return False if the file ends earlier."""
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
    def _next(self, skip: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the length of the frame at this offset of the buffer, header line included; 0 if it is invalid."""
        at: cython.longlong = self._at + skip
        if len(self._buffer) - skip < _LONGEST and not self._need(skip + _LONGEST) and len(self._buffer) == skip:
            return 0
        behind: cython.Py_ssize_t = self._read_line(self._buffer, skip)
        if behind == 0 or (self._begun and self._seq != self._file_seq):
            if self._buffer.startswith(WRITTEN_ON, skip):
                self.plain_from = at
            else:
                self._break(at, f"expected a frame, found {self._buffer[skip : skip + 16]!r}")
            return 0
        end: cython.Py_ssize_t = self._whole(behind)
        if end < 0:
            self._break(at, f"the file ends inside a frame of {self._length} bytes")
            return 0
        actual: cython.uint = _crc32(self._buffer, skip + _DIGITS, end, at & _32_BITS)
        if actual != self._crc:
            self._break(at, f"the checksum of a frame is {self._crc:08x}, but its bytes have {actual:08x}")
            return 0
        self._begun = True
        self._file_seq = self._seq
        return end - skip

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _whole(self, behind: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Buffer the frame whose header line ends at `behind`, and return its end; -1 if the file is too short."""
        left: cython.longlong = self._size - self._at - behind
        if left < 0 or self._length > cython.cast(cython.ulonglong, left):
            return -1
        end: cython.Py_ssize_t = behind + cython.cast(cython.Py_ssize_t, self._length)
        if end > len(self._buffer) and not self._need(end):
            return -1
        return end

    @cython.cfunc
    def _read_line(self, data: bytes, start: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Parse the header line at `start` and return its end; 0 if the line is malformed or truncated."""
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
                number = number * 10 + (buf[at] - 48)  # 19 digits fit in 64 bits
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
    def _break(self, at: cython.longlong, why: str) -> cython.bint:
        self.break_at = at
        self.why = why
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def checked_end(self) -> cython.longlong:
        """Return the file offset after the frames that `read` has returned; 0 for a file of another server."""
        if not self.ours:
            return 0
        return self._at if self.plain_from < 0 else self.plain_from

    def was_synced(self) -> bool:
        """Return whether a later frame states that the break was synced: then the break is damage. O(bytes)

        The first frame of a file is synced before a manifest names the file.
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


def is_empty(disk: Disk, path: Path) -> bool:
    """Return whether the file is empty or holds only the empty frame that begins a file."""
    size = disk.size(path)
    if 0 < size <= _LONGEST:
        with disk.read_from(path) as file:
            reader: FrameReader = FrameReader(file, size)
        return reader._read_line(reader._buffer, 0) == size and reader._length == 0
    return not size
