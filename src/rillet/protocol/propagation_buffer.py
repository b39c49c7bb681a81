"""Feed: the commands to be logged, as RESP, in one growing buffer.

    #TS:1700000000\\r\\n                             the second, where the settings ask for it and it is a new one
    *2\\r\\n$6\\r\\nSELECT\\r\\n$1\\r\\n0\\r\\n             the database of what follows, when it is another one
    *5\\r\\n$4\\r\\nXADD\\r\\n$1\\r\\ns\\r\\n$15\\r\\n170...      a command

The engine writes here what one command after the other changed; whoever owns the log (rillet.persistence.aof.log) takes
the bytes before replies leave. Below it there is no file: a feed is as good for a file as for a replica.

A command comes as a list of words, or as words that still lie where its client sent them: `header`, then `words` and
what is to stand in place of some of them. Words that lie behind each other are one copy, headers and all, for the
parser's `scan` leaves a command alone that is not written as Redis writes it (a client may end a line or a word by
something else than CR LF). So the bytes are the same whichever way a command came.

Invariants: `0 <= used <= len(buf)`; `db` is the database in which a reader of all that was fed since `forget_db`
stands, -1 where it cannot know; `second` is the time noted last, and never goes back (aof.c:
genAofTimestampAnnotationIfNeeded).

Costs: every append is O(bytes), amortised; `take` copies once and keeps the buffer, unless one batch made it larger
than 1 MiB. Rejected: a list of packed commands, joined when they are written (three objects and two copies a command).
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.protocol.reply_writer import pack_command

if not cython.compiled:  # compiled code has them as C functions, through the .pxd
    from rillet.protocol.reply_writer import count_digits, put_digits, put_header

if cython.compiled:
    from cython.cimports.libc.string import memcpy  # type: ignore[import-not-found, unused-ignore]

INITIAL_CAPACITY = 4096
KEEP_CAPACITY = 1024 * 1024
"""A buffer that grew beyond this many bytes is dropped by `take`."""

_ROOM = cython.declare(cython.Py_ssize_t, 32)  # a header: prefix, 20 digits, CR LF, and a CR LF after the payload


@cython.final
@cython.cclass
class PropagationBuffer:
    """Commands on their way to a log; `timestamps` says whether seconds are noted."""

    __slots__ = ("buf", "used", "db", "second", "timestamps")
    buf: bytearray
    used: cython.Py_ssize_t
    db: cython.int
    second: cython.longlong
    timestamps: cython.bint

    def __init__(self, timestamps: cython.bint = False) -> None:
        self.buf = bytearray(INITIAL_CAPACITY)
        self.used = 0
        self.db = -1
        self.second = 0
        self.timestamps = timestamps

    def __len__(self) -> int:
        return self.used

    # -- what stands between commands ----------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def begin(self, db: cython.int, ms: cython.longlong) -> cython.bint:
        """Prepare for a command that changed database db at ms since the epoch (feedAppendOnlyFile)."""
        if self.timestamps:
            self.note_time(ms // 1000)
        if db != self.db:
            self.select(db)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def select(self, db: cython.int) -> cython.bint:
        """Let what follows be about database db."""
        if db != self.db:
            self.raw(pack_command([b"SELECT", b"%d" % db]))
            self.db = db
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def forget_db(self) -> cython.bint:
        """A new file begins: its reader knows no database yet."""
        self.db = -1
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def note_time(self, second: cython.longlong) -> cython.bint:
        """Note the second (since the epoch), if it is later than the last one noted."""
        if second > self.second:
            self.second = second
            self.raw(b"#TS:%d\r\n" % second)
        return True

    # -- commands ------------------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def command(self, argv: list[bytes]) -> cython.bint:
        """Append a command; the bytes are those of `pack_command`."""
        word: bytes
        if not cython.compiled:
            return self.raw(pack_command(argv))
        pos: cython.Py_ssize_t
        size: cython.Py_ssize_t = _ROOM
        source: cython.p_const_uchar
        for word in argv:
            size += len(word) + _ROOM
        buf: bytearray = self._reserve(size)
        target: cython.p_uchar = buf
        pos = put_header(target, self.used, 42, len(argv))
        for word in argv:
            source = word
            size = len(word)
            pos = put_header(target, pos, 36, size)
            memcpy(target + pos, source, size)
            pos += size
            target[pos] = 13
            target[pos + 1] = 10
            pos += 2
        self.used = pos
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def raw(self, data: bytes) -> cython.bint:
        """Append bytes as they are."""
        size: cython.Py_ssize_t = len(data)
        buf: bytearray = self._reserve(size)
        if cython.compiled:
            target: cython.p_uchar = buf
            source: cython.p_const_uchar = data
            memcpy(target + self.used, source, size)
        else:
            buf[self.used : self.used + size] = data
        self.used += size
        return True

    # -- commands, word by word ----------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def header(self, count: cython.Py_ssize_t) -> cython.bint:
        """Begin a command of so many words; they follow."""
        if not cython.compiled:
            return self.raw(b"*%d\r\n" % count)
        buf: bytearray = self._reserve(_ROOM)
        self.used = put_header(buf, self.used, 42, count)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def words(
        self, at: cython.pp_const_uchar, size: cython.p_Py_ssize_t, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.bint:
        """Append the words start to stop of a command, where CommandParser.scan found them: all as they should be."""
        i: cython.Py_ssize_t
        if not cython.compiled:
            word: Any
            for i in range(start, stop):
                word = at[i]
                self.raw(b"$%d\r\n%b\r\n" % (len(word), word))
            return True
        if start >= stop:
            return True
        last: cython.Py_ssize_t = stop - 1
        before: cython.Py_ssize_t = count_digits(size[start]) + 3  # the first one's header: $, digits, CR LF
        total: cython.Py_ssize_t = before + (at[last] - at[start]) + size[last] + 2
        buf: bytearray = self._reserve(total)
        target: cython.p_uchar = buf
        memcpy(target + self.used, at[start] - before, total)
        self.used += total
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def number(self, value: cython.longlong) -> cython.bint:
        """Append a number, not below zero, as a word."""
        assert value >= 0
        if not cython.compiled:
            digits = b"%d" % value
            return self.raw(b"$%d\r\n%b\r\n" % (len(digits), digits))
        buf: bytearray = self._reserve(2 * _ROOM)
        target: cython.p_uchar = buf
        pos: cython.Py_ssize_t = put_header(target, self.used, 36, count_digits(value))
        pos = put_digits(target, pos, value)
        target[pos] = 13
        target[pos + 1] = 10
        self.used = pos + 2
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def stream_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Append the ID of a stream's entry as a word."""
        if not cython.compiled:
            text = b"%d-%d" % (ms, seq)
            return self.raw(b"$%d\r\n%b\r\n" % (len(text), text))
        buf: bytearray = self._reserve(3 * _ROOM)
        target: cython.p_uchar = buf
        pos: cython.Py_ssize_t = put_header(target, self.used, 36, count_digits(ms) + 1 + count_digits(seq))
        pos = put_digits(target, pos, ms)
        target[pos] = 45
        pos = put_digits(target, pos + 1, seq)
        target[pos] = 13
        target[pos + 1] = 10
        self.used = pos + 2
        return True

    # -- taking --------------------------------------------------------------------------------------

    @cython.ccall
    def take(self) -> bytes:
        """Return all that was fed and not taken yet."""
        size: cython.Py_ssize_t = self.used
        out: bytes
        if cython.compiled:
            source: cython.p_uchar = self.buf
            out = source[0:size]
        else:
            out = bytes(self.buf[:size])
        self.used = 0
        if len(self.buf) > KEEP_CAPACITY:
            self.buf = bytearray(INITIAL_CAPACITY)
        return out

    @cython.cfunc
    @cython.inline
    def _reserve(self, need: cython.Py_ssize_t) -> bytearray:
        """Make room for `need` more bytes; return the buffer."""
        if self.used + need > len(self.buf):
            self.buf.extend(bytes(self.used + need))
        return self.buf


__all__ = ["PropagationBuffer"]
