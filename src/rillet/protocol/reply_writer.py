"""The reply writer: RESP2 and RESP3 replies, appended to one growing buffer.

A command appends its reply piece by piece. The connection takes the bytes of a whole batch of commands
and writes them to its socket at once.

    reply            RESP2                     RESP3
    simple string    +OK\\r\\n                   +OK\\r\\n
    error            -ERR text\\r\\n             -ERR text\\r\\n
    integer          :42\\r\\n                   :42\\r\\n
    bulk string      $3\\r\\nabc\\r\\n             $3\\r\\nabc\\r\\n
    null             $-1\\r\\n                   _\\r\\n
    null array       *-1\\r\\n                   _\\r\\n
    array            *2\\r\\n ...                *2\\r\\n ...
    map of n pairs   *2n\\r\\n ...               %n\\r\\n ...
    set              *n\\r\\n ...                ~n\\r\\n ...
    push             *n\\r\\n ...                >n\\r\\n ...
    attribute        (not sent)                |n\\r\\n ...
    double           $5\\r\\n3.141\\r\\n           ,3.141\\r\\n
    boolean          :1\\r\\n                    #t\\r\\n
    big number       $3\\r\\n123\\r\\n             (123\\r\\n
    verbatim         $3\\r\\nabc\\r\\n             =7\\r\\ntxt:abc\\r\\n

`resp`, which HELLO sets, selects the column.

If a reply's length is known only at its end, the caller takes a `mark()` before it and calls
`insert_array(mark, n)` after it, which moves the reply to make room for the header. Redis inserts an empty
node into its reply list instead (networking.c, addReplyDeferredLen). With a single buffer, a memmove of
that reply replaces the list.

Costs: each append is O(bytes), amortized; the buffer doubles. `take_bytes()` copies once and keeps the buffer for
the next batch unless it exceeds 1 MiB. `hand_over()` returns the buffer itself if the batch is large: for
megabytes, the main cost is not the copy but the page faults of a new buffer, about four times as much.

Invariant: `0 <= used <= len(buf)`, and `buf[:used]` is a sequence of complete pieces. Digits are written
directly into the buffer, because creating an int and its text for each length costs more than the reply.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, public, readonly

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_Resize  # type: ignore[import-not-found, unused-ignore]
    from cython.cimports.libc.string import memcpy, memmove  # type: ignore[import-not-found, unused-ignore]

INITIAL_CAPACITY = 1024
_NO_BUFFER = bytearray()  # of all writers without a reply; always empty, so `_grow` replaces it before a write
KEEP_CAPACITY = 1024 * 1024
"""`take` drops a buffer larger than this."""
HANDED_OVER = 128 * 1024
"""Batches of at least this size are handed over without a copy; malloc maps such sizes from the kernel anyway."""

# Room for a header (prefix, sign, 20 digits, CR LF) and the CR LF after a bulk string.
_ROOM = cython.declare(cython.Py_ssize_t, 32)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def count_digits(value: cython.ulonglong) -> cython.Py_ssize_t:
    """Return the number of decimal digits of the value; O(digits)."""
    digits: cython.Py_ssize_t = 1
    while value >= 10000:  # four digits at a time: the milliseconds of an ID have thirteen
        value = value // 10000
        digits += 4
    if value >= 1000:
        return digits + 3
    if value >= 100:
        return digits + 2
    return digits + 1 if value >= 10 else digits


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_pair(
    buf: cython.p_uchar, pos: cython.Py_ssize_t, pairs: cython.p_const_uchar, pair: cython.uint
) -> cython.bint:
    """Write the two digits of a number below 100 at pos."""
    if cython.compiled:
        memcpy(buf + pos, pairs + 2 * pair, 2)
    else:
        buf[pos : pos + 2] = pairs[2 * pair : 2 * pair + 2]
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_digits(buf: cython.p_uchar, pos: cython.Py_ssize_t, value: cython.ulonglong) -> cython.Py_ssize_t:
    """Write decimal digits at pos, where the caller reserved room; return the position after them."""
    end: cython.Py_ssize_t
    at: cython.Py_ssize_t
    rest: cython.ulonglong
    pairs: cython.p_const_uchar = (  # of digits, from 0 to 99: a load is cheaper than a division
        b"0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
        b"5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899"
    )
    if value < 10:  # most lengths have one or two digits
        buf[pos] = 48 + value
        return pos + 1
    if value < 100:
        _put_pair(buf, pos, pairs, value)
        return pos + 2
    end = pos + count_digits(value)
    at = end
    while value >= 100:
        at -= 2
        rest = value // 100
        _put_pair(buf, at, pairs, value - 100 * rest)
        value = rest
    if value >= 10:
        _put_pair(buf, pos, pairs, value)
    else:
        buf[pos] = 48 + value
    return end


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_header(
    buf: cython.p_uchar, pos: cython.Py_ssize_t, prefix: cython.uchar, value: cython.ulonglong
) -> cython.Py_ssize_t:
    """Write prefix, digits and CR LF at pos, where the caller reserved room; return the position after them."""
    buf[pos] = prefix
    return put_line_end(buf, put_digits(buf, pos + 1, value))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_bulk(
    buf: cython.p_uchar, pos: cython.Py_ssize_t, source: cython.p_const_uchar, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write a bulk string at pos, where the caller reserved room; return the position after it. Compiled only."""
    pos = put_header(buf, pos, 36, size)
    memcpy(buf + pos, source, size)
    return put_line_end(buf, pos + size)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_line_end(buf: cython.p_uchar, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Write CR LF at pos; return the position after it."""
    buf[pos] = 13
    buf[pos + 1] = 10
    return pos + 2


@cython.final
@cython.cclass
class ReplyWriter:
    """A buffer of replies (Redis: the addReply functions of networking.c)."""

    __slots__ = ("buf", "used", "resp", "before", "_room", "_start")
    buf: readonly[bytearray]
    used: public[cython.Py_ssize_t]
    resp: public[cython.int]
    before: cython.Py_ssize_t  # size of the last batch that was handed over; 0 after a growth
    _room: cython.Py_ssize_t  # len(buf), and its address (interpreted: the buffer): `use_buffer` sets them
    _start: cython.p_uchar

    def __init__(self, resp: cython.int = 2) -> None:
        self.use_buffer(_NO_BUFFER)  # the first reply allocates one: a client that is only connected costs less
        self.used = self.before = 0
        self.resp = resp

    @cython.cfunc
    def use_buffer(self, buf: bytearray) -> cython.bint:
        """Write to a buffer from now on, or to the same one after its size changed."""
        self.buf = buf
        self._start = buf
        self._room = len(buf)
        return True

    def __len__(self) -> int:
        return self.used

    def check(self) -> None:
        """Assert the invariant of the buffer, and that the one that writers without a reply share is empty."""
        assert 0 <= self.used <= self._room == len(self.buf)
        assert len(_NO_BUFFER) == 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _reserve(self, need: cython.Py_ssize_t) -> cython.bint:
        """Reserve room for `need` more bytes."""
        return self.used + need <= self._room or self._grow(need)

    @cython.cfunc
    def _grow(self, need: cython.Py_ssize_t) -> cython.bint:
        """Enlarge the buffer to twice its contents plus `need` bytes, or to the last batch's size if larger."""
        size: cython.Py_ssize_t = max(2 * self.used + need, self.before, INITIAL_CAPACITY)
        self.before = 0
        buf: bytearray = self.buf if self._room else bytearray()
        if cython.compiled:
            PyByteArray_Resize(buf, size)  # new pages of memory cost nothing until they are used
        else:
            buf.extend(bytes(size - len(buf)))
        return self.use_buffer(buf)

    @cython.ccall
    def reserve(self, need: cython.Py_ssize_t) -> cython.bint:
        """Reserve room for a reply whose approximate length is known."""
        self._reserve(need)
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _append(self, data: bytes) -> cython.bint:
        """Append bytes to the buffer, unchanged."""
        size: cython.Py_ssize_t = len(data)
        self._reserve(size)
        target: cython.p_uchar = self._start
        if cython.compiled:
            source: cython.p_const_uchar = data
            memcpy(target + self.used, source, size)
        else:
            target[self.used : self.used + size] = data
        self.used += size
        return True

    @cython.cfunc
    def append_span(self, source: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Append bytes from a memory address; compiled only."""
        self._reserve(size)
        target: cython.p_uchar = self._start
        memcpy(target + self.used, source, size)
        self.used += size
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _header(self, prefix: cython.uchar, value: cython.longlong) -> cython.bint:
        """Append a RESP header line: a prefix such as `*`, a signed decimal number, CR LF."""
        if not cython.compiled:
            return self._append(b"%c%d\r\n" % (prefix, value))
        if value < 0:
            return self._negative(prefix, value)
        self._reserve(_ROOM)
        target: cython.p_uchar = self._start
        self.used = put_header(target, self.used, prefix, cython.cast(cython.ulonglong, value))
        return True

    @cython.cfunc
    def _negative(self, prefix: cython.uchar, value: cython.longlong) -> cython.bint:
        """The rare negative case of `_header`, separate so that the common case is inlined."""
        if not cython.compiled:
            return self._append(b"%c%d\r\n" % (prefix, value))
        self._reserve(_ROOM)
        target: cython.p_uchar = self._start
        pos: cython.Py_ssize_t = self.used
        target[pos] = prefix
        target[pos + 1] = 45
        # +2^63 does not fit a signed integer, so -2^63 is negated in two steps.
        pos = put_digits(target, pos + 2, cython.cast(cython.ulonglong, -(value + 1)) + 1)
        self.used = put_line_end(target, pos)
        return True

    @cython.ccall
    def raw(self, data: bytes) -> cython.bint:
        """Append bytes that are already RESP (networking.c, addReplyProto)."""
        return self._append(data)

    @cython.ccall
    def ok(self) -> cython.bint:
        """Append +OK (shared.ok)."""
        return self._append(b"+OK\r\n")

    @cython.ccall
    def simple(self, text: bytes) -> cython.bint:
        """Append a simple string; the text must not contain CR or LF (networking.c, addReplyStatus)."""
        self._append(b"+")
        self._append(text)
        return self._append(b"\r\n")

    @cython.ccall
    def error(self, text: bytes) -> cython.bint:
        """Append an error line; the text includes the prefix word; CR and LF become spaces (addReplyErrorSdsSafe)."""
        if b"\r" in text or b"\n" in text:
            text = text.replace(b"\r", b" ").replace(b"\n", b" ")
        self._append(b"-")
        self._append(text)
        return self._append(b"\r\n")

    @cython.ccall
    def integer(self, value: cython.longlong) -> cython.bint:
        """Append a signed 64-bit integer (networking.c, addReplyLongLong)."""
        return self._header(58, value)

    @cython.ccall
    def unsigned(self, value: cython.ulonglong) -> cython.bint:
        """Append an unsigned 64-bit integer."""
        if not cython.compiled:
            return self._append(b":%d\r\n" % value)
        self._reserve(_ROOM)
        target: cython.p_uchar = self._start
        self.used = put_header(target, self.used, 58, value)
        return True

    @cython.ccall
    def bulk(self, data: bytes) -> cython.bint:
        """Append a bulk string (networking.c, addReplyBulkCBuffer); O(len)."""
        size: cython.Py_ssize_t = len(data)
        self._reserve(size + _ROOM)
        target: cython.p_uchar = self._start
        if cython.compiled:
            self.used = put_bulk(target, self.used, data, size)
            return True
        return self._append(b"$%d\r\n%b\r\n" % (size, data))

    @cython.cfunc
    def bulk_span(self, source: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Append a bulk string from a memory address; compiled only."""
        self._reserve(size + _ROOM)
        target: cython.p_uchar = self._start
        self.used = put_bulk(target, self.used, source, size)
        return True

    @cython.ccall
    def bulks(self, strings: list[Any]) -> cython.bint:
        """Append each byte string as a bulk string; O(bytes)."""
        data: bytes
        for data in strings:
            self.bulk(data)
        return True

    @cython.ccall
    def bulk_slice(self, source: bytearray, start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Append source[start:start+size] as a bulk string without a temporary object; check the range."""
        if start < 0 or size < 0 or start > len(source) - size:
            raise IndexError("the slice is outside the buffer")
        self._reserve(size + _ROOM)
        target: cython.p_uchar = self._start
        if cython.compiled:
            origin: cython.p_uchar = source  # after _reserve, because the source may be this buffer itself
            self.used = put_bulk(target, self.used, origin + start, size)
            return True
        return self._append(b"$%d\r\n%b\r\n" % (size, bytes(source[start : start + size])))

    @cython.ccall
    def raw_then_slice(
        self, before: bytes, source: bytearray, start: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> cython.bint:
        """Append `raw(before)` and `bulk_slice(source, start, size)` in one call: a field's name and its value."""
        pos: cython.Py_ssize_t = self.used
        head: cython.Py_ssize_t = len(before)
        if start < 0 or size < 0 or start > len(source) - size:
            raise IndexError("the slice is outside the buffer")
        if not cython.compiled:
            self._append(before)
            return self._append(b"$%d\r\n%b\r\n" % (size, bytes(source[start : start + size])))
        self._reserve(head + size + _ROOM)
        target: cython.p_uchar = self._start
        name: cython.p_const_uchar = before
        origin: cython.p_uchar = source
        memcpy(target + pos, name, head)
        self.used = put_bulk(target, pos + head, origin + start, size)
        return True

    @cython.ccall
    def bulk_int(self, value: cython.longlong) -> cython.bint:
        """Append an integer's decimal text as a bulk string (networking.c, addReplyBulkLongLong)."""
        if not cython.compiled:
            return self.bulk(b"%d" % value)
        sign: cython.Py_ssize_t = 1 if value < 0 else 0
        # +2^63 does not fit a signed integer, so -2^63 is negated in two steps.
        number: cython.ulonglong = cython.cast(cython.ulonglong, -(value + 1)) + 1 if value < 0 else value
        self._reserve(2 * _ROOM)
        target: cython.p_uchar = self._start
        pos: cython.Py_ssize_t = put_header(target, self.used, 36, count_digits(number) + sign)
        if sign:
            target[pos] = 45
            pos += 1
        pos = put_digits(target, pos, number)
        self.used = put_line_end(target, pos)
        return True

    @cython.ccall
    def stream_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Append `ms-seq` as a bulk string (t_stream.c, addReplyStreamID)."""
        if not cython.compiled:
            return self.bulk(b"%d-%d" % (ms, seq))
        self._reserve(3 * _ROOM)
        target: cython.p_uchar = self._start + self.used
        pos: cython.Py_ssize_t = put_digits(target, 5, ms)  # behind the header of an ID of ten characters or more
        target[pos] = 45
        pos = put_digits(target, pos + 1, seq)
        if pos < 15:
            memmove(target + 4, target + 5, pos - 5)
            pos -= 1
            put_header(target, 0, 36, pos - 4)
        else:
            put_header(target, 0, 36, pos - 5)
        self.used += put_line_end(target, pos)
        return True

    @cython.ccall
    def null(self) -> cython.bint:
        """Append a null (networking.c, addReplyNull)."""
        return self._append(b"$-1\r\n" if self.resp == 2 else b"_\r\n")

    @cython.ccall
    def null_array(self) -> cython.bint:
        """Append a null array (networking.c, addReplyNullArray)."""
        return self._append(b"*-1\r\n" if self.resp == 2 else b"_\r\n")

    @cython.ccall
    def array(self, size: cython.Py_ssize_t) -> cython.bint:
        """Append the header of an array; `size` replies must follow (networking.c, addReplyArrayLen)."""
        return self._header(42, size)

    @cython.ccall
    def map(self, size: cython.Py_ssize_t) -> cython.bint:
        """Append the header of a map; `size` pairs of replies must follow (networking.c, addReplyMapLen)."""
        return self._header(42, 2 * size) if self.resp == 2 else self._header(37, size)

    @cython.ccall
    def set(self, size: cython.Py_ssize_t) -> cython.bint:
        """Append the header of a set; `size` replies must follow (networking.c, addReplySetLen)."""
        return self._header(42 if self.resp == 2 else 126, size)

    @cython.ccall
    def push(self, size: cython.Py_ssize_t) -> cython.bint:
        """Append the header of a push message of `size` replies, in RESP2 an array (networking.c, addReplyPushLen)."""
        return self._header(42 if self.resp == 2 else 62, size)

    @cython.ccall
    def attribute(self, size: cython.Py_ssize_t) -> cython.bint:
        """Append the header of `size` pairs about the next reply; RESP3 only (networking.c, addReplyAttributeLen)."""
        assert self.resp == 3, "RESP2 has no attributes"
        return self._header(124, size)

    @cython.ccall
    def double(self, value: cython.double) -> cython.bint:
        """Append a double with 17 significant digits (networking.c, addReplyDouble)."""
        text: bytes = b"%.17g" % value
        return self._scalar(44, text)

    @cython.ccall
    def boolean(self, value: cython.bint) -> cython.bint:
        """Append a boolean, in RESP2 1 or 0 (networking.c, addReplyBool)."""
        if self.resp == 2:
            return self._header(58, 1 if value else 0)
        return self._append(b"#t\r\n" if value else b"#f\r\n")

    @cython.ccall
    def bignum(self, digits: bytes) -> cython.bint:
        """Append an integer of any size, given as decimal digits (networking.c, addReplyBigNum)."""
        return self._scalar(40, digits)

    @cython.cfunc
    def _scalar(self, prefix: cython.uchar, text: bytes) -> cython.bint:
        """Append a bulk string in RESP2, a line with the prefix in RESP3."""
        if self.resp == 2:
            return self.bulk(text)
        return self._append(b"%c%b\r\n" % (prefix, text))

    @cython.ccall
    def verbatim(self, data: bytes, kind: bytes = b"txt") -> cython.bint:
        """Append text with a three-letter format, padded with spaces; a bulk string in RESP2 (addReplyVerbatim)."""
        if self.resp == 2:
            return self.bulk(data)
        self._header(61, len(data) + 4)
        self._append(kind[:3].ljust(3))
        self._append(b":")
        self._append(data)
        return self._append(b"\r\n")

    @cython.ccall
    def mark(self) -> cython.Py_ssize_t:
        """Return the buffer position of the next reply, for `insert_array` and `truncate`."""
        return self.used

    @cython.ccall
    def truncate(self, mark: cython.Py_ssize_t) -> cython.bint:
        """Discard everything written since the mark."""
        if mark < 0 or mark > self.used:
            raise IndexError("the mark is outside the buffer")
        self.used = mark
        return True

    @cython.ccall
    def insert_array(self, mark: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Make the `size` replies since the mark an array (setDeferredArrayLen); O(bytes since the mark)."""
        return self._insert(mark, 42, size)

    @cython.ccall
    def insert_map(self, mark: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Make the 2 * `size` replies since the mark a map (setDeferredMapLen); O(bytes since the mark)."""
        return self._insert(mark, 42, 2 * size) if self.resp == 2 else self._insert(mark, 37, size)

    @cython.ccall
    def insert_set(self, mark: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Make the `size` replies since the mark a set (setDeferredSetLen); O(bytes since the mark)."""
        return self._insert(mark, 42 if self.resp == 2 else 126, size)

    @cython.cfunc
    def _insert(self, mark: cython.Py_ssize_t, prefix: cython.uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Insert a header at the mark and move the bytes after it."""
        if mark < 0 or mark > self.used:
            raise IndexError("the mark is outside the buffer")
        if size < 0:
            raise ValueError("the number of replies is negative")
        self._reserve(_ROOM)
        target: cython.p_uchar = self._start
        room: cython.Py_ssize_t = count_digits(size) + 3
        if cython.compiled:
            memmove(target + mark + room, target + mark, self.used - mark)
        else:
            target[mark + room : self.used + room] = target[mark : self.used]
        put_header(target, mark, prefix, size)
        self.used += room
        return True

    @cython.ccall
    def copy(self) -> bytes:
        """Return everything written, which stays; O(bytes)."""
        if cython.compiled:
            source: cython.p_uchar = self.buf
            return source[0 : self.used]
        return bytes(self.buf[: self.used])

    @cython.ccall
    def take_bytes(self) -> bytes:
        """Return and remove everything written; O(bytes)."""
        out: bytes = self.copy()
        self.used = 0
        if len(self.buf) > KEEP_CAPACITY:
            self.use_buffer(bytearray(INITIAL_CAPACITY))
        return out

    @cython.ccall
    def shrink(self, peak: cython.Py_ssize_t) -> cython.bint:
        """Replace the buffer by a smaller one if it is empty and less than half of it was used lately."""
        if self.used or len(self.buf) <= INITIAL_CAPACITY or 2 * peak >= len(self.buf):
            return False
        self.use_buffer(bytearray(max(INITIAL_CAPACITY, peak + 1)))
        return True

    @cython.ccall
    def hand_over(self) -> bytes | bytearray:
        """Return and remove everything written; if the batch is large, return the buffer itself, in O(1)."""
        if self.used < HANDED_OVER:
            return self.take_bytes()
        out: bytearray = self.buf
        self.before = self.used
        self.use_buffer(bytearray(INITIAL_CAPACITY))
        del out[self.used :]
        self.used = 0
        return out


@cython.ccall
def pack_command(argv: Any) -> bytes:
    """Serialize a command, a list or tuple of bytes, as an array of bulk strings; O(bytes)."""
    arg: bytes
    if not cython.compiled:
        return b"*%d\r\n" % len(argv) + b"".join([b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in argv])
    size: cython.Py_ssize_t = 32
    pos: cython.Py_ssize_t
    for arg in argv:
        size += len(arg) + 32
    buf: bytearray = bytearray(size)
    target: cython.p_uchar = buf
    pos = put_header(target, 0, 42, len(argv))
    for arg in argv:
        pos = put_bulk(target, pos, arg, len(arg))
    return target[0:pos]
