"""Stream IDs: 128-bit numbers that rise, each a time in milliseconds and a sequence number.

Compiled code passes an ID as two unsigned 64-bit numbers, `ms` and `seq`, without allocation. An ID has three other
forms:

    text     1526919030474-55            sent and received by clients
    key      16 bytes, big endian        key of the radix trees; the byte order of
                                         keys is the order of IDs:

             ┌───────────────────────┬───────────────────────┐
             │ ms, 8 bytes           │ seq, 8 bytes          │
             └───────────────────────┴───────────────────────┘
    object   StreamID(ms=…, seq=…)       returned by the Python API

Inside a node an entry stores its ID as the difference to the node's master ID, separately for both halves, modulo 2^64,
as a signed number. `delta` and `undelta` convert; they do not rely on overflow, so compiled and interpreted code agree
at the ends of the range (1-18446744073709551615 after 0-1 has a sequence delta of -2).

Text is parsed as in Redis (t_stream.c, streamGenericParseIDOrReply; util.c, string2ull), with its quirks: the text ends
at its first NUL byte; more than 127 bytes are rejected; a half that is not a canonical number is parsed again by C's
strtoull, which accepts leading zeros, leading white space and a plus sign. A negative sequence number that is not
canonical (`1--05`) wraps around, while a canonical one (`1--5`) is rejected.

These quirks are those of clients' commands. `StreamID.parse`, for Python code, accepts digits only.

`IDReader` stores its results in attributes instead of returning a tuple, so that parsing allocates nothing. Rejected: a
C struct returned by value, which interpreted code does not have.
"""

from __future__ import annotations

import re
from datetime import datetime as DateTime
from datetime import timedelta, timezone
from typing import NamedTuple

from rillet._cython import cython, readonly
from rillet.errors import InvalidID

MAX = 0xFFFF_FFFF_FFFF_FFFF
_MASK = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_SIGNED_MAX = cython.declare(cython.ulonglong, 0x7FFF_FFFF_FFFF_FFFF)
_LONGEST_TEXT = 127
_SCRATCH = cython.declare(bytearray, bytearray(41))

_EPOCH = DateTime(1970, 1, 1, tzinfo=timezone.utc)

_TEXT = re.compile(rb"([0-9]{1,20})(?:-([0-9]{1,20}))?")
_STRTOULL = re.compile(rb"[ \t-\r]*([+-]?)([0-9]+)")
_CANONICAL_NEGATIVE = re.compile(rb"-[1-9][0-9]*")


class StreamID(NamedTuple):
    """An ID as a Python object, comparable in stream order. Redis: stream.h, streamID."""

    ms: int
    seq: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"

    @property
    def datetime(self) -> DateTime:
        """The time of the ID's milliseconds, in UTC; OverflowError after the year 9999."""
        return _EPOCH + timedelta(milliseconds=self.ms)

    def pack(self) -> bytes:
        """Return the 16-byte key of the radix trees."""
        return self.ms.to_bytes(8, "big") + self.seq.to_bytes(8, "big")

    @classmethod
    def unpack(cls, key: bytes) -> StreamID:
        """Return the ID of a 16-byte key."""
        if len(key) != 16:
            raise ValueError("a stream ID in binary form must have exactly 16 bytes")
        return cls(int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big"))

    @classmethod
    def parse(cls, text: str | bytes | StreamID, missing_seq: int = 0) -> StreamID:
        """Return the ID of a text that may come from outside: "ms-seq", or "ms" alone, with missing_seq after it.

        InvalidID, a ValueError, for any other text: also for "-", "+" and "$", a sign, a space, or a number above 64
        bits. TypeError for what is not text.
        """
        if isinstance(text, tuple):
            return cls(*text)
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"an ID must be text such as '1700000000000-0', not {text!r:.200}")
        raw = text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text
        match = _TEXT.fullmatch(raw)
        ms, seq = (0, 0) if match is None else (int(match[1]), missing_seq if match[2] is None else int(match[2]))
        if match is None or max(ms, seq) > MAX:
            raise InvalidID(f"not a stream ID: {text!r:.200}; it must be milliseconds and a sequence number, such as "
                            "'1700000000000-0', or milliseconds alone")  # fmt: skip
        return cls(ms, seq)


@cython.final
@cython.cclass
class IDReader:
    """Parses IDs into its attributes `ms`, `seq`, `seq_given` and `exclusive`."""

    __slots__ = ("exclusive", "ms", "seq", "seq_given")
    ms: readonly[cython.ulonglong]
    seq: readonly[cython.ulonglong]
    seq_given: readonly[cython.bint]
    exclusive: readonly[cython.bint]

    def __init__(self) -> None:
        self.ms = 0
        self.seq = 0
        self.seq_given = True
        self.exclusive = False

    @cython.ccall
    def read(self, text: bytes, missing_seq: cython.ulonglong, strict: cython.bint) -> cython.bint:
        """Parse `ms-seq` or `ms`, and unless strict also `-` and `+`. Return False for any other text."""
        return self.read_span(text, len(text), missing_seq, strict)

    @cython.cfunc
    def read_span(
        self, text: cython.p_const_uchar, size: cython.Py_ssize_t, missing_seq: cython.ulonglong, strict: cython.bint
    ) -> cython.bint:
        """Do `read` for the bytes at an address."""
        i: cython.Py_ssize_t
        digits: cython.Py_ssize_t = 0
        value: cython.ulonglong = 0
        dash: cython.bint = False
        if size == 1 and not strict:
            byte: cython.int = text[0]
            if byte == 45 or byte == 43:  # the special IDs - and + (lowest and highest ID)
                self.ms = self.seq = 0 if byte == 45 else _MASK
                self.seq_given = True
                return True
        for i in range(size):
            byte = text[i]
            if 48 <= byte <= 57 and digits < 19:
                value = value * 10 + (byte - 48)
                digits += 1
            elif byte == 45 and digits and not dash:
                self.ms = value
                value = 0
                digits = 0
                dash = True
            else:
                return self._read_slowly(text[:size], missing_seq, strict)
        if digits == 0:
            return self._read_slowly(text[:size], missing_seq, strict)
        self.seq_given = True
        self.seq = value if dash else missing_seq
        if not dash:
            self.ms = value
        return True

    @cython.cfunc
    def _read_slowly(self, text: bytes, missing_seq: cython.ulonglong, strict: cython.bint) -> cython.bint:
        if len(text) > _LONGEST_TEXT:
            return False
        text = text.split(b"\0", 1)[0]
        self.seq_given = True
        if text == b"-" or text == b"+":
            self.ms = self.seq = 0 if text == b"-" else _MASK
            return not strict
        dash: cython.Py_ssize_t = text.find(b"-")
        if dash < 0:
            self.seq = missing_seq
            return self._number(text, False)
        return self._number(text[:dash], False) and self._number(text[dash + 1 :], True)

    @cython.ccall
    def read_new(self, text: bytes) -> cython.bint:
        """Parse the ID argument of XADD: `ms-seq`, `ms`, or `ms-*`, which sets `seq_given` to False."""
        dash: cython.Py_ssize_t = text.find(b"-")
        if len(text) > _LONGEST_TEXT or dash < 0 or text[dash:].split(b"\0", 1)[0] != b"-*":
            return self.read(text, 0, True)
        self.seq = 0
        self.seq_given = False
        return self._number(text[:dash], False)

    @cython.ccall
    def read_interval(
        self, text: cython.p_const_uchar, size: cython.Py_ssize_t, missing_seq: cython.ulonglong
    ) -> cython.bint:
        """Parse one end of a range; a leading `(` excludes the ID. Redis: streamParseIntervalIDOrReply."""
        self.exclusive = size > 1 and text[0] == 40
        if not self.exclusive:
            return self.read_span(text, size, missing_seq, False)
        if cython.compiled:
            return self.read_span(text + 1, size - 1, missing_seq, True)
        return self.read(text[1:], missing_seq, True)

    @cython.cfunc
    def _number(self, text: bytes, sequence: cython.bint) -> cython.bint:
        match = _STRTOULL.fullmatch(text)
        if match is None:
            return False
        number = int(match[2])
        if number > MAX or (_CANONICAL_NEGATIVE.fullmatch(text) and number <= 1 << 63):
            return False
        if match[1] == b"-":
            number = (MAX + 1 - number) % (MAX + 1)
        if sequence:
            self.seq = number
        else:
            self.ms = number
        return True


@cython.ccall
@cython.exceptval(check=False)
def less(
    a_ms: cython.ulonglong, a_seq: cython.ulonglong, b_ms: cython.ulonglong, b_seq: cython.ulonglong
) -> cython.bint:
    """Return whether ID a comes before ID b. Redis: streamCompareID."""
    return a_ms < b_ms or (a_ms == b_ms and a_seq < b_seq)


@cython.ccall
@cython.exceptval(check=False)
def delta(value: cython.ulonglong, base: cython.ulonglong) -> cython.longlong:
    """Return value - base modulo 2^64, as the signed number that a node stores."""
    difference: cython.ulonglong = (value - base) & _MASK
    if difference <= _SIGNED_MAX:
        return cython.cast(cython.longlong, difference)
    return -cython.cast(cython.longlong, _MASK - difference) - 1


@cython.ccall
@cython.exceptval(check=False)
def undelta(base: cython.ulonglong, stored: cython.longlong) -> cython.ulonglong:
    """Return base + stored modulo 2^64: the inverse of `delta`."""
    if stored >= 0:
        return (base + cython.cast(cython.ulonglong, stored)) & _MASK
    return (base - 1 - cython.cast(cython.ulonglong, -(stored + 1))) & _MASK


@cython.ccall
def encode_key(ms: cython.ulonglong, seq: cython.ulonglong) -> bytes:
    """Return the 16-byte big-endian key. Redis: streamEncodeID."""
    if cython.compiled:
        raw: cython.p_uchar = _SCRATCH
        i: cython.int
        for i in range(8):
            raw[i] = (ms >> (56 - 8 * i)) & 0xFF
            raw[8 + i] = (seq >> (56 - 8 * i)) & 0xFF
        return cython.cast(bytes, raw[:16])
    else:
        return ms.to_bytes(8, "big") + seq.to_bytes(8, "big")


@cython.ccall
def key_ms(key: bytes) -> cython.ulonglong:
    """Return the milliseconds of a 16-byte key. Redis: streamDecodeID."""
    return _big_endian(key, 0)


@cython.ccall
def key_seq(key: bytes) -> cython.ulonglong:
    """Return the sequence number of a 16-byte key. Redis: streamDecodeID."""
    return _big_endian(key, 8)


@cython.cfunc
@cython.inline
def _big_endian(key: bytes, start: cython.Py_ssize_t) -> cython.ulonglong:
    i: cython.Py_ssize_t
    value: cython.ulonglong = 0
    if len(key) != 16:
        raise ValueError("a stream ID in binary form must have exactly 16 bytes")
    if cython.compiled:
        for i in range(start, start + 8):
            value = (value << 8) | key[i]
        return value
    else:
        return int.from_bytes(key[start : start + 8], "big")


@cython.ccall
def format_id(ms: cython.ulonglong, seq: cython.ulonglong) -> bytes:
    """Return the text `ms-seq`. Redis: createStreamIDString."""
    if cython.compiled:
        text: cython.p_uchar = _SCRATCH
        i: cython.int = 41
        while True:
            i -= 1
            text[i] = 48 + seq % 10
            seq //= 10
            if seq == 0:
                break
        i -= 1
        text[i] = 45
        while True:
            i -= 1
            text[i] = 48 + ms % 10
            ms //= 10
            if ms == 0:
                break
        return cython.cast(bytes, text[i:41])
    else:
        return b"%d-%d" % (ms, seq)
