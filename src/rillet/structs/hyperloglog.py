"""HyperLogLog: how many different elements were added, within 0.81%, in at most 12 KiB (Redis: hyperloglog.c).

An element's 64-bit hash chooses one of 16,384 registers with its low 14 bits. The register keeps the longest run of
zero bits that the other 50 bits of a hash began with, plus one: 0 to 51. The registers are a string of one of two
forms:

    +------+---+-------+----------+---------------------------------------------------------
    | HYLL | E | 0 0 0 | count    | registers                                E: 0 dense, 1 sparse
    +------+---+-------+----------+---------------------------------------------------------
    0      4   5       8          16

    count     the last estimate, 64 bits, little-endian; its top bit is set when a register has changed since
    dense     6 bits for each register, from the low bits of a byte to the high ones: 12,288 bytes
    sparse    runs of registers with the same value, as a sequence of opcodes

    ZERO   00nnnnnn             n + 1 registers are 0               1 to 64
    XZERO  01nnnnnn nnnnnnnn    n + 1 registers are 0               1 to 16,384
    VAL    1vvvvvnn             n + 1 registers are v + 1           1 to 4 registers, values 1 to 32

A new string is sparse. It becomes dense when a register exceeds 32 or the string `hll-sparse-max-bytes`. The bytes
equal Redis's after each command: an opcode is split where a register changes, and neighbours merge as far as Redis
merges them (hllSparseSet), so equal registers may have different bytes, depending on the history.

The strings come from users: every read is checked, and a sequence that is not exactly 16,384 registers is
corrupt.

hyperloglog_union.py merges the registers of several strings, hyperloglog_estimate.py has the estimate. `use_words`
chooses how unions are computed (PFDEBUG SIMD). Interpreted, base64 converts between 6 and 8 bits.

Costs: adding is O(1) if dense, O(opcodes) if sparse; counting and merging O(registers).
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64

from rillet._cython import cython
from rillet.structs.hyperloglog_estimate import estimate

if cython.compiled:
    from cython.cimports.libc.string import memcpy, memmove


HEADER = 16
REGISTERS = 1 << 14
DENSE_SIZE = HEADER + REGISTERS * 6 // 8
EMPTY = b"HYLL\x01" + bytes(11) + b"\x7f\xff"
"""A string without elements: sparse, XZERO:16384."""
DENSE, SPARSE = 0, 1
_HEADER = cython.declare(cython.Py_ssize_t, 16)
_REGISTERS = cython.declare(cython.int, 16384)
_DENSE_SIZE = cython.declare(cython.Py_ssize_t, 12304)
_GROUPS = cython.declare(cython.int, 2048)  # of 8 registers: 6 bytes
_LARGEST_SPARSE = cython.declare(cython.int, 32)
_LONGEST_VALUE = cython.declare(cython.int, 4)
_LONGEST_ZERO = cython.declare(cython.int, 64)
_SCANNED = cython.declare(cython.int, 5)  # opcodes that are tried for a merge

_SEED = cython.declare(cython.ulonglong, 0xADC83B19)
_MIX = cython.declare(cython.ulonglong, 0xC6A4A7935BD1E995)
_ALL = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_STOP = cython.declare(cython.ulonglong, 1 << 50)

_LOW24 = cython.declare(cython.ulonglong, 0x0000000000FFFFFF)
_HIGH24 = cython.declare(cython.ulonglong, 0x0000FFFFFF000000)
_LOW12 = cython.declare(cython.ulonglong, 0x00000FFF00000FFF)
_HIGH12 = cython.declare(cython.ulonglong, 0x00FFF00000FFF000)
_LOW6 = cython.declare(cython.ulonglong, 0x003F003F003F003F)
_HIGH6 = cython.declare(cython.ulonglong, 0x0FC00FC00FC00FC0)

_SIXTY_FOUR = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TO_BYTES = bytes.maketrans(_SIXTY_FOUR, bytes(range(64)))
_TO_BASE64 = bytes.maketrans(bytes(range(64)), _SIXTY_FOUR)

_words = cython.declare(cython.bint, True)


@cython.final
@cython.cclass
class Cursor:
    """The start of a search for a register in a sparse string: an opcode, its first register, the opcode before.

    `set_sparse` moves it, so that registers in ascending order take one pass together. A new one is at the start.
    """

    __slots__ = ("at", "before", "first")
    at: cython.Py_ssize_t
    before: cython.Py_ssize_t
    first: cython.int

    def __init__(self) -> None:
        self.reset()

    @cython.ccall
    def reset(self) -> cython.bint:
        """Return to the start."""
        self.at = _HEADER
        self.before = -1
        self.first = 0
        return True


@cython.cfunc
@cython.exceptval(check=False)
def murmur64(p: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.ulonglong:
    """Return the hash of n bytes: MurmurHash64A with Redis's seed. O(n)"""
    h: cython.ulonglong = _SEED ^ (n * _MIX & _ALL)
    k: cython.ulonglong = 0
    i: cython.Py_ssize_t = 0
    while i + 8 <= n:
        if cython.compiled:
            memcpy(cython.address(k), p + i, 8)
        else:
            k = int.from_bytes(p[i : i + 8], "little")
        k = k * _MIX & _ALL
        k ^= k >> 47
        k = k * _MIX & _ALL
        h = (h ^ k) * _MIX & _ALL
        i += 8
    if i < n:
        if cython.compiled:
            k = 0
            memcpy(cython.address(k), p + i, n - i)
        else:
            k = int.from_bytes(p[i:n], "little")
        h = (h ^ k) * _MIX & _ALL
    h ^= h >> 47
    h = h * _MIX & _ALL
    return h ^ h >> 47


@cython.cfunc
@cython.exceptval(check=False)
def is_valid(p: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
    """Return whether a string has the header of a HyperLogLog and, if dense, its length (isHLLObjectOrReply). O(1)"""
    if size < _HEADER or p[0] != 72 or p[1] != 89 or p[2] != 76 or p[3] != 76 or p[4] > 1:
        return False
    return p[4] == 1 or size == _DENSE_SIZE


# -- the cached estimate ----------------------------------------------------------------------------


@cython.cfunc
@cython.exceptval(check=False)
def cached_count(p: cython.p_const_uchar) -> cython.longlong:
    """Return the estimate in the header of a valid string, -1 if a register has changed since. O(1)"""
    if p[15] & 0x80:
        return -1
    if cython.compiled:
        found: cython.longlong = 0
        memcpy(cython.address(found), p + 8, 8)
        return found
    else:
        return int.from_bytes(p[8:16], "little")


@cython.cfunc
def cache_count(buf: bytearray, count: cython.longlong) -> cython.bint:
    """Write an estimate into the header. O(1)"""
    i: cython.int = 0
    while i < 8:
        buf[8 + i] = count >> 8 * i & 0xFF
        i += 1
    return True


@cython.cfunc
def forget_count(buf: bytearray) -> cython.bint:
    """Mark the estimate in the header as outdated. O(1)"""
    buf[15] = buf[15] | 0x80
    return True


# -- adding -----------------------------------------------------------------------------------------


@cython.cfunc
@cython.exceptval(-2, check=False)
def add(
    buf: bytearray, p: cython.p_const_uchar, n: cython.Py_ssize_t, limit: cython.Py_ssize_t, cursor: Cursor
) -> cython.int:
    """Add an element of n bytes to a valid string; return 1 if a register changed, 0 if not, -1 if it is corrupt.

    A sparse string becomes dense rather than longer than `limit`.
    """
    h: cython.ulonglong = murmur64(p, n)
    index: cython.int = h & 0x3FFF
    rest: cython.ulonglong = h >> 14 | _STOP
    value: cython.int = 1
    while not rest & 1:
        rest >>= 1
        value += 1
    if buf[4] == 0:
        return set_dense(buf, index, value)
    cursor.reset()
    return set_sparse(buf, index, value, limit, cursor)


@cython.cfunc
def set_dense(buf: bytearray, index: cython.int, value: cython.int) -> cython.bint:
    """Raise a register of a dense string to a value; return whether it was smaller. O(1)"""
    at: cython.Py_ssize_t = _HEADER + (index * 6 >> 3)
    shift: cython.int = index * 6 & 7
    pair: cython.int = buf[at]
    if shift > 2:
        pair |= buf[at + 1] << 8
    if pair >> shift & 63 >= value:
        return False
    pair = pair & ~(63 << shift) | value << shift
    buf[at] = pair & 0xFF
    if shift > 2:
        buf[at + 1] = pair >> 8 & 0xFF
    return True


@cython.cfunc
@cython.exceptval(-2, check=False)
def set_sparse(
    buf: bytearray, index: cython.int, value: cython.int, limit: cython.Py_ssize_t, cursor: Cursor
) -> cython.int:
    """Raise a register of a sparse string to a value; return 1 if it was smaller, 0 if not, -1 for a corrupt string.

    The string may become dense. The search begins at the cursor, which is before the register (hllSparseSet).
    """
    if value > _LARGEST_SPARSE:
        return _promote(buf, index, value)
    p: cython.p_uchar = buf
    end: cython.Py_ssize_t = len(buf)
    at: cython.Py_ssize_t = cursor.at
    first: cython.int = cursor.first
    before: cython.Py_ssize_t = cursor.before
    # The opcode before, which becomes the cursor: its first register, and the opcode before it.
    before_first: cython.int = first
    earlier: cython.Py_ssize_t = before
    span: cython.int = 0
    size: cython.int = 1
    op: cython.int = 0
    while at < end:
        op = p[at]
        size = 1
        if op < 0x40:
            span = op + 1
        elif op >= 0x80:
            span = (op & 3) + 1
        else:
            span = ((op & 0x3F) << 8) + 1 + (p[at + 1] if at + 1 < end else 0)
            size = 2
        if index < first + span:
            break
        earlier = before
        before = at
        before_first = first
        first += span
        at += size
    if span == 0 or at >= end:
        return -1
    if at > cursor.at:
        cursor.at = before
        cursor.first = before_first
        cursor.before = earlier
    if op >= 0x80 and (op >> 2 & 0x1F) + 1 >= value:
        return 0
    new: cython.int = 0x80 | value - 1 << 2
    if size == 1 and span == 1:
        p[at] = new
    elif not _split(buf, at, op, size, index - first, first + span - 1 - index, new, limit):
        return _promote(buf, index, value)
    _merge_values(buf, before if before >= 0 else _HEADER)
    forget_count(buf)
    return 1


@cython.cfunc
def _split(
    buf: bytearray, at: cython.Py_ssize_t, op: cython.int, size: cython.int, left: cython.int, right: cython.int,
    new: cython.int, limit: cython.Py_ssize_t,
) -> cython.bint:  # fmt: skip
    """Replace an opcode by one for `left` registers, `new`, and one for `right` registers; False: beyond the limit."""
    part: cython.int = op & 0xFC if op >= 0x80 else 0
    needed: cython.int = 1 + _size_of_run(left, part) + _size_of_run(right, part)
    delta: cython.int = needed - size
    end: cython.Py_ssize_t = len(buf)
    if delta > 0 and end + delta > limit:
        return False
    behind: cython.Py_ssize_t = at + size
    if behind > end:  # the second byte of the last XZERO is missing: Redis writes behind the end, and cuts it off
        buf.extend(bytes(5))
    elif delta > 0:
        buf.extend(bytes(delta))
    if behind < end:
        if cython.compiled:
            p: cython.p_uchar = buf
            memmove(p + behind + delta, p + behind, end - behind)
        else:
            buf[behind + delta : end + delta] = buf[behind:end]
    to: cython.Py_ssize_t = _put_run(buf, at, left, part)
    buf[to] = new
    _put_run(buf, to + 1, right, part)
    if len(buf) > end + delta:
        del buf[end + delta :]
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _size_of_run(length: cython.int, part: cython.int) -> cython.int:
    if length == 0:
        return 0
    return 2 if part == 0 and length > _LONGEST_ZERO else 1


@cython.cfunc
def _put_run(buf: bytearray, at: cython.Py_ssize_t, length: cython.int, part: cython.int) -> cython.Py_ssize_t:
    """Write an opcode for registers of the value in `part`, or 0; return the position after it."""
    if length == 0:
        return at
    if part:
        buf[at] = part | length - 1
        return at + 1
    if length <= _LONGEST_ZERO:
        buf[at] = length - 1
        return at + 1
    buf[at] = 0x40 | length - 1 >> 8
    buf[at + 1] = length - 1 & 0xFF
    return at + 2


@cython.cfunc
def _merge_values(buf: bytearray, at: cython.Py_ssize_t) -> cython.bint:
    """Merge adjacent VAL opcodes of one value among the next five opcodes, if one can hold their registers."""
    p: cython.p_uchar = buf
    end: cython.Py_ssize_t = len(buf)
    left: cython.int = _SCANNED
    length: cython.int = 0
    while at < end and left:
        left -= 1
        if p[at] < 0x80:
            at += 2 if p[at] >= 0x40 else 1
            continue
        if at + 1 < end and p[at] & 0xFC == p[at + 1] & 0xFC:
            length = (p[at] & 3) + (p[at + 1] & 3) + 2
            if length <= _LONGEST_VALUE:
                p[at + 1] = p[at] & 0xFC | length - 1
                del buf[at]
                end -= 1
                if cython.compiled:
                    p = buf
                continue
        at += 1
    return True


@cython.cfunc
@cython.exceptval(-2, check=False)
def _promote(buf: bytearray, index: cython.int, value: cython.int) -> cython.int:
    """Make a sparse string dense and raise a register; return 1, or -1 if the string is corrupt."""
    if not to_dense(buf):
        return -1
    set_dense(buf, index, value)
    return 1


# -- the registers as bytes -------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _register(p: cython.p_const_uchar, index: cython.int) -> cython.int:
    """Return a register of a dense string at an address."""
    at: cython.Py_ssize_t = _HEADER + (index * 6 >> 3)
    shift: cython.int = index * 6 & 7
    pair: cython.int = p[at]
    if shift > 2:
        pair |= p[at + 1] << 8
    return pair >> shift & 63


def _dense_registers(dense: bytes | bytearray) -> bytes:
    """Return the registers of a dense string as bytes; interpreted. The last register comes first in base64."""
    return b2a_base64(dense[HEADER:][::-1], newline=False)[::-1].translate(_TO_BYTES)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _raise_field(p: cython.p_uchar, index: cython.int, value: cython.int) -> cython.void:
    """Raise a register in the words of a union, of which the caller has checked the index; compiled only."""
    shift: cython.int = 6 * (index & 7)
    word: cython.ulonglong = 0
    memcpy(cython.address(word), p + 8 * (index >> 3), 8)
    old: cython.int = word >> shift & 63
    if value > old:
        word += cython.cast(cython.ulonglong, value - old) << shift
        memcpy(p + 8 * (index >> 3), cython.address(word), 8)


@cython.cfunc
def merge(registers: bytearray, p: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
    """Raise 16,384 registers, a byte each, to those of a valid string; return False if it is corrupt (hllMerge)."""
    if len(registers) != _REGISTERS:
        raise IndexError("16,384 registers are needed")
    if p[4] == 0:
        return merge_dense(registers, p)
    return merge_sparse(registers, p, size, False)


@cython.cfunc
def merge_dense(registers: bytearray, p: cython.p_const_uchar) -> cython.bint:
    """Raise registers to those of a dense string; `merge` has checked both."""
    if not cython.compiled:
        registers[:] = bytes(map(max, registers, _dense_registers(p)))
        return True
    to: cython.p_uchar = registers
    i: cython.int = 0
    value: cython.int = 0
    while i < _REGISTERS:
        value = _register(p, i)
        if value > to[i]:
            to[i] = value
        i += 1
    return True


@cython.cfunc
def merge_sparse(
    registers: bytearray, p: cython.p_const_uchar, size: cython.Py_ssize_t, words: cython.bint
) -> cython.bint:
    """Raise registers, a byte each or the `words` of a union, to those of a sparse string; False if it is corrupt."""
    if len(registers) != _REGISTERS:  # 8 in a word of 8 bytes
        raise IndexError("16,384 registers are needed")
    to: cython.p_uchar = registers
    at: cython.Py_ssize_t = _HEADER
    index: cython.int = 0
    span: cython.int = 0
    value: cython.int = 0
    op: cython.int = 0
    while at < size:
        op = p[at]
        at += 1
        if op < 0x40:
            index += op + 1
        elif op < 0x80:
            index += ((op & 0x3F) << 8) + 1 + (p[at] if at < size else 0)
            at += 1
        else:
            span = (op & 3) + 1
            value = (op >> 2 & 0x1F) + 1
            if index + span > _REGISTERS:
                return False
            while span > 0:
                if words:
                    _raise_field(to, index, value)
                elif value > to[index]:
                    to[index] = value
                index += 1
                span -= 1
        if index > _REGISTERS:
            return False
    return index == _REGISTERS


@cython.ccall
def to_dense(buf: bytearray) -> cython.bint:
    """Make a valid string dense; return False, without a change, if it is corrupt (hllSparseToDense). O(registers)"""
    if buf[4] == 0:
        return True
    registers: bytearray = bytearray(_REGISTERS)
    p: cython.p_uchar = buf
    if not merge_sparse(registers, p, len(buf), False):
        return False
    dense: bytearray = bytearray(_DENSE_SIZE)
    dense[:16] = buf[:16]
    dense[4] = 0
    _pack(dense, registers)
    buf[:] = dense
    return True


@cython.cfunc
def _pack(buf: bytearray, registers: bytearray) -> cython.bint:
    """Write registers into a dense string."""
    if len(buf) != _DENSE_SIZE or len(registers) != _REGISTERS:
        raise IndexError("a dense string and 16,384 registers are needed")
    if not cython.compiled:
        buf[HEADER:] = a2b_base64(registers.translate(_TO_BASE64)[::-1])[::-1]
        return True
    p: cython.p_uchar = buf
    fr: cython.p_uchar = registers
    i: cython.int = 0
    x: cython.ulonglong = 0
    low: cython.uint = 0
    high: cython.ushort = 0
    while i < _GROUPS:
        memcpy(cython.address(x), fr + 8 * i, 8)
        x = x & _LOW6 | x >> 2 & _HIGH6
        x = x & _LOW12 | x >> 4 & _HIGH12
        x = x & _LOW24 | x >> 8 & _HIGH24
        low = cython.cast(cython.uint, x)
        high = cython.cast(cython.ushort, x >> 32)
        memcpy(p + _HEADER + 6 * i, cython.address(low), 4)
        memcpy(p + _HEADER + 6 * i + 4, cython.address(high), 2)
        i += 1
    return True


@cython.ccall
def store_registers(buf: bytearray, registers: bytearray, dense: cython.bint, limit: cython.Py_ssize_t) -> cython.bint:
    """Raise the registers of a valid string, as a dense one if `dense`; return False if it is corrupt (PFMERGE).

    Not `dense`: registers are set one after the other, and the string may become dense on the way.
    """
    if len(registers) != _REGISTERS:
        raise IndexError("16,384 registers are needed")
    index: cython.int = 0
    if dense:
        if not to_dense(buf):
            return False
        _pack(buf, registers)
        return True
    cursor: Cursor = Cursor()
    while index < _REGISTERS:
        if registers[index]:
            if buf[4] == 0:
                set_dense(buf, index, registers[index])
            else:
                set_sparse(buf, index, registers[index], limit, cursor)
        index += 1
    return True


# -- counting ---------------------------------------------------------------------------------------


@cython.cfunc
@cython.exceptval(-2, check=False)
def count(p: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.longlong:
    """Return the estimate for a valid string, -1 if it is corrupt (hllCount). O(registers)"""
    registers: bytearray
    if cython.compiled and p[4]:
        room: bytearray = bytearray(256)
        bytes_of_room: cython.p_uchar = room
        counts: cython.p_uint = cython.cast(cython.p_uint, bytes_of_room)
        return estimate(counts) if _tally_sparse(counts, p, size) else -1
    registers = bytearray(REGISTERS)
    return count_registers(registers) if merge(registers, p, size) else -1


@cython.ccall
@cython.exceptval(-2, check=False)
def count_registers(registers: bytearray) -> cython.longlong:
    """Return the estimate for 16,384 registers, a byte each. O(registers)"""
    if len(registers) != _REGISTERS:
        raise IndexError("16,384 registers are needed")
    if not cython.compiled:
        return estimate([registers.count(value) for value in range(64)])
    room: bytearray = bytearray(256)
    bytes_of_room: cython.p_uchar = room
    counts: cython.p_uint = cython.cast(cython.p_uint, bytes_of_room)
    fr: cython.p_uchar = registers
    i: cython.int = 0
    while i < _REGISTERS:
        counts[fr[i] & 63] += 1
        i += 1
    return estimate(counts)


@cython.cfunc
def _tally_sparse(counts: cython.p_uint, p: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
    """Count the registers of a sparse string by value; return False if it is corrupt; compiled only."""
    at: cython.Py_ssize_t = _HEADER
    index: cython.int = 0
    span: cython.int = 0
    op: cython.int = 0
    while at < size:
        op = p[at]
        at += 1
        if op >= 0x80:
            span = (op & 3) + 1
            counts[(op >> 2 & 0x1F) + 1] += span
        elif op < 0x40:
            span = op + 1
            counts[0] += span
        else:
            span = ((op & 0x3F) << 8) + 1 + (p[at] if at < size else 0)
            counts[0] += span
            at += 1
        index += span
        if index > _REGISTERS:
            return False
    return index == _REGISTERS


# -- PFDEBUG ----------------------------------------------------------------------------------------


def decode(sparse: bytes | bytearray) -> bytes:
    """Return the opcodes of a sparse string as text: `z:3 v:2,1 Z:16380`."""
    words: list[str] = []
    at = HEADER
    while at < len(sparse):
        op = sparse[at]
        if op >= 0x80:
            words.append(f"v:{(op >> 2 & 0x1F) + 1},{(op & 3) + 1}")
        elif op < 0x40:
            words.append(f"z:{op + 1}")
        else:
            second = sparse[at + 1] if at + 1 < len(sparse) else 0
            words.append(f"Z:{((op & 0x3F) << 8) + second + 1}")
            at += 1
        at += 1
    return " ".join(words).encode()


def registers_of(string: bytes | bytearray) -> bytearray | None:
    """Return the registers of a valid string, a byte each, or None if it is corrupt. O(registers)"""
    registers = bytearray(REGISTERS)
    return registers if merge(registers, string, len(string)) else None


@cython.ccall
def use_words(on: cython.bint) -> cython.bint:
    """Choose whether compiled unions merge 8 registers at a time, or one; return the choice. The result is the same."""
    global _words
    _words = on
    return True


@cython.ccall
def uses_words() -> cython.bint:
    """Return the choice of `use_words`."""
    return _words
