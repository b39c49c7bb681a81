"""Bits of byte strings: count, search, integers of any width, bitwise operations (Redis: bitops.c).

Bit 0 is the most significant bit of byte 0, as in SETBIT and BITFIELD:

    offset     0   1   2   3   4   5   6   7     8   9  10  11 ...
             +---+---+---+---+---+---+---+---+ +---+---+---+---+---
             |            byte 0             | |   byte 1 ...
             +---+---+---+---+---+---+---+---+ +---+---+---+---+---
    u5 at 6                          `--- 5 bits, big-endian ---'

Compiled, count, search and operations take 8 bytes at a time. Interpreted, a range of bytes is one large integer.
Addresses come from `String.span`; a range outside of the string is the caller's error.

Costs: count, search and operations O(bytes), 3 to 20 GB a second compiled; one field O(1).
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcpy, memset

Bytes = Any  # bytes or a bytearray

AND, OR, XOR, NOT, DIFF, DIFF1, ANDOR, ONE = range(8)
_AND = cython.declare(cython.int, 0)
_OR = cython.declare(cython.int, 1)
_XOR = cython.declare(cython.int, 2)
_NOT = cython.declare(cython.int, 3)
_DIFF = cython.declare(cython.int, 4)
_DIFF1 = cython.declare(cython.int, 5)
_ANDOR = cython.declare(cython.int, 6)
_PAIRS = cython.declare(cython.ulonglong, 0x5555555555555555)
_FOURS = cython.declare(cython.ulonglong, 0x3333333333333333)
_BYTES = cython.declare(cython.ulonglong, 0x0F0F0F0F0F0F0F0F)
_SUM = cython.declare(cython.ulonglong, 0x0101010101010101)
_ALL = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_CLEAR = cython.declare(cython.int, 7)  # of `_merged`: a & ~b


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _ones(x: cython.ulonglong) -> cython.Py_ssize_t:
    """Return the number of set bits of a word: sums of 2, 4 and 8 bits, and the sum of the bytes; compiled only."""
    x = x - (x >> 1 & _PAIRS)
    x = (x & _FOURS) + (x >> 2 & _FOURS)
    x = (x + (x >> 4)) & _BYTES
    return x * _SUM >> 56


@cython.cfunc
def count_bits(p: cython.p_const_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the number of set bits at the offsets from `start` to `stop`, exclusive. O(bytes)"""
    if start >= stop:
        return 0
    byte: cython.Py_ssize_t = start >> 3
    last: cython.Py_ssize_t = stop >> 3
    head: cython.int = 0xFF >> (start & 7)
    tail: cython.int = 0xFF00 >> (stop & 7) & 0xFF
    if not cython.compiled:
        whole: int = int.from_bytes(p[byte : last + (1 if tail else 0)], "big")
        width = 8 * (last + (1 if tail else 0)) - start
        return (whole & (1 << width) - 1 & -1 << (-stop & 7)).bit_count()
    if byte == last:
        return _ones(p[byte] & head & tail)
    count: cython.Py_ssize_t = 0
    if head != 0xFF:
        count = _ones(p[byte] & head)
        byte += 1
    word: cython.ulonglong = 0
    while byte + 8 <= last:
        memcpy(cython.address(word), p + byte, 8)
        count += _ones(word)
        byte += 8
    while byte < last:
        count += _ones(p[byte])
        byte += 1
    if tail:
        count += _ones(p[last] & tail)
    return count


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_uniform(p: cython.p_const_uchar, word: cython.ulonglong) -> cython.bint:
    """Return whether each of the 8 words at an address is that word, with one branch; compiled only."""
    i: cython.int
    here: cython.ulonglong = 0
    other: cython.ulonglong = 0
    for i in range(8):
        memcpy(cython.address(here), p + 8 * i, 8)
        other |= here ^ word
    return other == 0


@cython.cfunc
@cython.exceptval(-2, check=False)
def find_bit(
    p: cython.p_const_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, bit: cython.bint
) -> cython.Py_ssize_t:
    """Return the offset of the first bit of that value between `start` and `stop`, exclusive; -1 if none. O(bytes)"""
    if start >= stop:
        return -1
    byte: cython.Py_ssize_t = start >> 3
    end: cython.Py_ssize_t = (stop + 7) >> 3
    found: cython.Py_ssize_t
    if not cython.compiled:
        whole: int = int.from_bytes(p[byte:end], "big")
        width = 8 * end - start
        whole = (whole if bit else ~whole) & (1 << width) - 1
        found = start + width - whole.bit_length()
        return found if found < stop else -1
    flip: cython.ulonglong = 0 if bit else _ALL
    word: cython.ulonglong = 0
    here: cython.int = (p[byte] ^ (flip & 0xFF)) & (0xFF >> (start & 7))
    while here == 0:
        byte += 1
        while byte + 64 <= end and _is_uniform(p + byte, flip):
            byte += 64
        while byte + 8 <= end:
            memcpy(cython.address(word), p + byte, 8)
            if word != flip:
                break
            byte += 8
        if byte >= end:
            return -1
        here = p[byte] ^ (flip & 0xFF)
    found = 8 * byte
    while here < 0x80:
        here <<= 1
        found += 1
    return found if found < stop else -1


@cython.cfunc
@cython.exceptval(check=False)
def read_field(
    p: cython.p_const_uchar, size: cython.Py_ssize_t, offset: cython.Py_ssize_t, width: cython.int
) -> cython.ulonglong:
    """Return the unsigned integer of `width` bits at an offset; bits from byte `size` on count as 0. O(1)"""
    value: cython.ulonglong = 0
    rest: cython.int = width
    while rest > 0:
        byte: cython.Py_ssize_t = offset >> 3
        room: cython.int = 8 - (offset & 7)
        take: cython.int = min(room, rest)
        part: cython.ulonglong = (p[byte] >> (room - take)) & ((1 << take) - 1) if byte < size else 0
        value = value << take | part
        offset += take
        rest -= take
    return value


@cython.cfunc
def write_field(buf: bytearray, offset: cython.Py_ssize_t, width: cython.int, value: cython.ulonglong) -> cython.bint:
    """Store the low `width` bits of a value at an offset. O(1)"""
    if offset < 0 or offset + width > 8 * len(buf):
        raise IndexError("the field is outside of the string")
    rest: cython.int = width
    while rest > 0:
        byte: cython.Py_ssize_t = offset >> 3
        room: cython.int = 8 - (offset & 7)
        take: cython.int = min(room, rest)
        rest -= take
        mask: cython.int = (1 << take) - 1
        part: cython.int = value >> rest & mask
        buf[byte] = buf[byte] & ~(mask << (room - take)) & 0xFF | part << (room - take)
        offset += take
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _address(source: Bytes) -> cython.p_const_uchar:
    """Return the address of bytes or of a bytearray; compiled only."""
    if isinstance(source, bytes):
        return cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(source))
    return cython.cast(cython.p_const_uchar, PyByteArray_AS_STRING(source))


@cython.cfunc
def _merged(a: Bytes, b: Bytes, size: cython.Py_ssize_t, operation: cython.int) -> bytes:
    """Return an operation on two sources of at most `size` bytes, padded with zero bytes; compiled only.

    (a & ((b & x) ^ u)) ^ (b & v) is each of the four operations, so the loop has no branch and the compiler uses
    vectors. The result never overlaps a source, for the same reason.
    """
    x: cython.uchar = 0 if operation == _XOR else 0xFF
    u: cython.uchar = 0 if operation == _AND else 0xFF
    v: cython.uchar = 0xFF if operation == _OR or operation == _XOR else 0
    i: cython.Py_ssize_t
    common: cython.Py_ssize_t = min(len(a), len(b))
    longest: cython.Py_ssize_t = max(len(a), len(b))
    if longest > size:
        raise IndexError("a source is longer than the result")
    result: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
    to: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(result))
    p: cython.p_const_uchar = _address(a)
    q: cython.p_const_uchar = _address(b)
    for i in range(common):
        to[i] = (p[i] & ((q[i] & x) ^ u)) ^ (q[i] & v)
    if len(a) < longest:
        p = q
        u = v
    for i in range(common, longest):
        to[i] = p[i] & u
    memset(to + longest, 0, size - longest)
    return result


@cython.ccall
def combine(operation: cython.int, sources: list[Any], size: cython.Py_ssize_t) -> bytes:
    """Return the result of an operation on bytes or bytearrays of at most `size` bytes, padded with zeros. O(bytes)

    size: that of the longest source. DIFF: the bits of the first that no other has. DIFF1: the bits that another has
    and the first has not. ANDOR: the bits of the first that another has. ONE: the bits that exactly one has.
    """
    if not cython.compiled:
        return _combine_numbers(operation, sources, size)
    first: Bytes = sources[0]
    result: Bytes = first
    if operation == _NOT:
        return _merged(first, b"\xff" * size, size, _XOR)
    if operation < _NOT:
        for other in sources[1:]:
            result = _merged(result, other, size, operation)
        return result if isinstance(result, bytes) else bytes(result)
    if operation <= _ANDOR:
        result = sources[1]
        for other in sources[2:]:
            result = _merged(result, other, size, _OR)
        if operation == _DIFF:
            return _merged(first, result, size, _CLEAR)
        return _merged(result, first, size, _CLEAR if operation == _DIFF1 else _AND)
    several: bytes = b""
    for other in sources[1:]:
        several = _merged(several, _merged(result, other, size, _AND), size, _OR)
        result = _merged(result, other, size, _OR)
    return _merged(result, several, size, _CLEAR)


def _combine_numbers(operation: int, sources: list[Any], size: int) -> bytes:
    first, *others = (int.from_bytes(source, "little") for source in sources)
    result = first
    union = 0
    several = 0
    for other in others:
        several |= (first | union) & other
        union |= other
        result = result & other if operation == AND else result | other if operation == OR else result ^ other
    if operation == NOT:
        result = first ^ (1 << 8 * size) - 1
    elif operation == DIFF:
        result = first & ~union
    elif operation == DIFF1:
        result = union & ~first
    elif operation == ANDOR:
        result = first & union
    elif operation == ONE:
        result = (first | union) & ~several
    return result.to_bytes(size, "little")
