"""Strings: the value of a key that holds bytes.

Redis stores a string in one of three encodings, which clients see (OBJECT ENCODING) and DUMP exposes:

    int      the text is a canonical 64-bit integer          SET k 42
    embstr   at most 44 bytes, never changed in place        SET k hello
    raw      anything else, and any changed string           APPEND k x, SETRANGE k 0 x

44 bytes fit beside an object's header in a 64-byte allocation (object.c, OBJ_ENCODING_EMBSTR_SIZE_LIMIT). Later servers
put the key into the same allocation, so the limit depends on it; `fits` has the three rules:

    Redis to 8.0    value <= 44
    since 8.2       key + value <= 41
    Valkey          key + value <= 113, for a key of 32 bytes or more 111; 8 less if the string replaces one that has an
                    expiry, even if the expiry is then removed

A string that does not fit is raw, and stays raw if RENAME or COPY gives it a shorter key.

rillet keeps the received bytes object for every encoding, because replies send text. The encoding is derived
from the text and from `form`, which records how the value was created:

    PLAIN   by SET: int, embstr or raw, depending on the text (tryObjectEncoding)
    TEXT    by INCRBYFLOAT: embstr or raw, never int          (createStringObject)
    RAW     by APPEND or SETRANGE on an existing key          (dbUnshareStringValue)
    OWN     by COPY of a small integer, which Redis to 8.0 does not share then (OBJECT REFCOUNT); else as PLAIN

A string that grows in place moves its bytes to an over-allocated bytearray (`grown`), so that n
appends cost O(n) bytes in total. `data` is then b""; only one of the two is ever in use.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, public, readonly

if cython.compiled:
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-not-found, unused-ignore]
        PyByteArray_AS_STRING,
    )
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING  # type: ignore[import-not-found, unused-ignore]

from rillet.structs.listpack import is_int64, parse_int64
from rillet.types.compat import EMBEDS_44, EMBEDS_UP_TO_64

EMBSTR_LIMIT = 44
PLAIN = 0
TEXT = 1
RAW = 2
OWN = 3
SHARED_INTEGERS = 10_000
"""Redis shares the integers from 0 up to this one."""
_RAW = cython.declare(cython.int, 2)
_KEY_SHORT = 32  # bytes from which the length of a key takes more than the type byte (sds.c: sdsReqType)
_MAX_INT = cython.declare(cython.longlong, (1 << 63) - 1)


@cython.final
@cython.cclass
class String:
    """The value of a string key."""

    __slots__ = ("charge", "data", "form", "grown")
    data: readonly[bytes]
    grown: bytearray
    form: readonly[cython.int]
    charge: public[cython.uint]  # what keyspace/memory_usage.py counted, in units of 16 bytes

    type_name = "string"

    def __init__(self, data: bytes = b"", form: cython.int = 0) -> None:
        self.data = data
        self.grown = None  # type: ignore[assignment]
        self.form = form
        self.charge = 0

    @cython.ccall
    def value(self) -> bytes:
        """Return the bytes; O(1), or O(length) while the string grows."""
        if self.grown is None:
            return self.data
        return bytes(self.grown)

    @cython.ccall
    def bytes_like(self) -> Any:
        """Return the bytes without a copy, as bytes or a bytearray; valid until the next change of the string. O(1)"""
        return self.data if self.grown is None else self.grown

    @cython.ccall
    def length(self) -> cython.Py_ssize_t:
        """Return the number of bytes (STRLEN). O(1)"""
        if self.grown is None:
            return len(self.data)
        return len(self.grown)

    def __len__(self) -> int:
        return self.length()

    @cython.cfunc
    @cython.exceptval(check=False)
    def span(self) -> cython.p_const_uchar:
        """Return the address of the bytes, which is valid until the next change of the string. O(1)"""
        if not cython.compiled:
            return self.data if self.grown is None else self.grown
        if self.grown is None:
            return cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(self.data))
        return cython.cast(cython.p_const_uchar, PyByteArray_AS_STRING(self.grown))

    @cython.ccall
    def reserve(self, size: cython.Py_ssize_t) -> bytearray:
        """Return the bytes as a buffer to change, with at least `size` bytes; new bytes are zero. O(new bytes)"""
        self._grow(size)
        return self.grown

    @cython.ccall
    def append(self, tail: bytes) -> cython.Py_ssize_t:
        """Append bytes; return the new length. Amortized O(bytes added)"""
        self._grow(0)
        self.grown += tail
        return len(self.grown)

    @cython.ccall
    def set_range(self, offset: cython.Py_ssize_t, part: bytes) -> cython.Py_ssize_t:
        """Overwrite bytes from offset on, padding a shorter string with zero bytes; return the new length."""
        self._grow(offset)
        self.grown[offset : offset + len(part)] = part
        return len(self.grown)

    @cython.ccall
    def get_range(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> bytes:
        """Return the bytes from start to stop (exclusive); 0 <= start <= stop. O(bytes)"""
        if self.grown is None:
            return self.data[start:stop]
        return bytes(self.grown[start:stop])

    @cython.cfunc
    def _grow(self, size: cython.Py_ssize_t) -> cython.bint:
        """Move the bytes to a buffer that can grow, with at least `size` bytes."""
        if self.grown is None:
            self.grown = bytearray(self.data)
            self.data = b""
            self.form = _RAW
        if len(self.grown) < size:
            self.grown.extend(bytes(size - len(self.grown)))
        return True

    def encoding(self) -> str:
        """Return the encoding without regard to the key: int, embstr or raw (object.c: strEncoding)."""
        return self.encoding_at(0, EMBEDS_44)

    def encoding_at(self, key_size: int, rule: int) -> str:
        """Return the encoding at a key of that size, under a rule of `Compat.embedding`."""
        if self.form == RAW:
            return "raw"
        if self.is_integer():
            return "int"
        return "embstr" if fits(rule, key_size, len(self.data)) else "raw"

    def is_integer(self) -> bool:
        """Return whether the string is stored as an integer."""
        return self.form in (PLAIN, OWN) and string2ll(self.data) is not None

    def copy(self) -> String:
        """Return a copy with the same bytes and encoding (object.c: dupStringObject)."""
        twin = String(self.data, self.form)
        if self.grown is not None:
            twin.data = self.value()
        return twin

    def check(self) -> None:
        """Raise AssertionError if both buffers are in use or the form is invalid."""
        assert self.form in (PLAIN, TEXT, RAW, OWN)
        assert self.grown is None or (self.data == b"" and self.form == RAW)


def fits(rule: int, key_size: int, size: int, expires: bool = False) -> bool:
    """Return whether a string shares an allocation with its object and its key (kvobjSet, shouldEmbedStringObject).

    expires: the string replaces one that has an expiry.
    """
    if rule == EMBEDS_44:
        return size <= EMBSTR_LIMIT
    if rule == EMBEDS_UP_TO_64:
        return key_size + size <= 41
    return key_size + size + (8 if expires else 0) <= (113 if key_size < _KEY_SHORT else 111)


@cython.ccall
def new_string(data: bytes, form: cython.int = 0) -> String:
    """Create a String faster than its constructor does."""
    string: String = String.__new__(String)
    string.data = data
    string.grown = None  # type: ignore[assignment]
    string.form = form
    string.charge = 0
    return string


def hex_digest(text: bytes) -> bytes:
    """Return the XXH3 hash of a text, 64 bits with seed 0, as 16 hexadecimal digits (DIGEST; t_string.c)."""
    from xxhash import xxh3_64_hexdigest  # imported here because few programs use digests

    return xxh3_64_hexdigest(text).encode()


@cython.ccall
def string2ll(text: bytes) -> Any:
    """Return the 64-bit integer of a canonical decimal text, or None for other text (util.c: string2ll)."""
    number: cython.longlong = parse_int64(text)
    if number < -_MAX_INT and not is_int64(text):  # parse_int64 returns -2**63 for text that is not an integer
        return None
    return number
