"""HyperLogLog: the largest value of each register of several strings, for PFMERGE and PFCOUNT (Redis: hllMerge).

Compiled, 8 registers are a word of 64 bits:

    bits     0      6     12     18     24     30     36     42     48            64
             | r[0] | r[1] | r[2] | r[3] | r[4] | r[5] | r[6] | r[7] |  any bits   |

Six bytes of a dense string are the low 48 bits of a word, so no register is unpacked: the larger of 8 pairs takes 13
instructions, in a loop that the compiler turns into vectors. A block of 128 words of each string is processed before
the next block, so that the words stay in the nearest cache.

If the build is interpreted or `use_words` is off (PFDEBUG SIMD), a union has a byte for each register.

Costs: O(registers), 1.5 us for a dense string. Rejected alternative: a byte for each register also in compiled code.
Unpacking and packing take longer than comparing.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, readonly
from rillet.structs.hyperloglog import (
    DENSE,
    REGISTERS,
    count,
    count_registers,
    merge,
    merge_sparse,
    store_registers,
    to_dense,
    uses_words,
)
from rillet.structs.hyperloglog_estimate import estimate_sum, pair_table

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING
    from cython.cimports.libc.string import memcpy


_HEADER = cython.declare(cython.Py_ssize_t, 16)
_GROUPS = cython.declare(cython.int, 2048)  # of 8 registers: 6 bytes
_BLOCK = cython.declare(cython.int, 128)
_DENSE = cython.declare(cython.int, DENSE)
_LOW24 = cython.declare(cython.ulonglong, 0x0000000000FFFFFF)
_HIGH24 = cython.declare(cython.ulonglong, 0x0000FFFFFF000000)
_LOW12 = cython.declare(cython.ulonglong, 0x00000FFF00000FFF)
_HIGH12 = cython.declare(cython.ulonglong, 0x00FFF00000FFF000)
_LOW6 = cython.declare(cython.ulonglong, 0x003F003F003F003F)
_HIGH6 = cython.declare(cython.ulonglong, 0x0FC00FC00FC00FC0)
_TOPS = cython.declare(cython.ulonglong, 0x0000820820820820)  # the highest bit of each of 8 registers
_RESTS = cython.declare(cython.ulonglong, 0x00007DF7DF7DF7DF)  # the other five


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _group(p: cython.p_const_uchar) -> cython.ulonglong:
    """Return 8 registers at an address, 6 bytes, as a word of a union; compiled only."""
    low: cython.uint = 0
    high: cython.ushort = 0
    memcpy(cython.address(low), p, 4)
    memcpy(cython.address(high), p + 4, 2)
    x: cython.ulonglong = high
    return x << 32 | low


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _spread(x: cython.ulonglong) -> cython.ulonglong:
    """Return the 8 registers of a union's word as the bytes of a word; compiled only."""
    x = x & _LOW24 | (x & _HIGH24) << 8
    x = x & _LOW12 | (x & _HIGH12) << 4
    return x & _LOW6 | (x & _HIGH6) << 2


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _add(pairs: cython.p_ulonglong, word: cython.ulonglong) -> cython.ulonglong:
    """Return the sum of the table's numbers for the 8 registers of a union's word, which are at most 31."""
    low: cython.ulonglong = pairs[word & 4095] + pairs[word >> 12 & 4095]
    high: cython.ulonglong = pairs[word >> 24 & 4095] + pairs[word >> 36 & 4095]
    return low + high


@cython.cfunc
@cython.exceptval(check=False)
def _read_block(to: cython.p_uchar, p: cython.p_const_uchar) -> cython.void:
    """Copy a block of groups to words, four at a time; no byte behind the last group is read; compiled only."""
    word: cython.ulonglong = 0
    _i: cython.int
    for _i in range(_BLOCK // 4 - 1):
        memcpy(to, p, 8)
        memcpy(to + 8, p + 6, 8)
        memcpy(to + 16, p + 12, 8)
        memcpy(to + 24, p + 18, 8)
        to += 32
        p += 24
    memcpy(to, p, 8)
    memcpy(to + 8, p + 6, 8)
    memcpy(to + 16, p + 12, 8)
    word = _group(p + 18)
    memcpy(to + 24, cython.address(word), 8)


@cython.cfunc
@cython.exceptval(check=False)
def _write_block(to: cython.p_uchar, p: cython.p_const_uchar) -> cython.void:
    """Copy a block of words to groups, four at a time; compiled only.

    Each word overwrites the upper two bytes of the one before; no byte behind the last group is written.
    """
    _i: cython.int
    for _i in range(_BLOCK // 4 - 1):
        memcpy(to, p, 8)
        memcpy(to + 6, p + 8, 8)
        memcpy(to + 12, p + 16, 8)
        memcpy(to + 18, p + 24, 8)
        to += 24
        p += 32
    memcpy(to, p, 8)
    memcpy(to + 6, p + 8, 8)
    memcpy(to + 12, p + 16, 8)
    memcpy(to + 18, p + 24, 6)


@cython.cfunc
@cython.exceptval(check=False)
def _keep_larger(a: cython.p_ulonglong, b: cython.p_ulonglong, count: cython.int) -> cython.void:
    """Raise the registers in the words at `a` to those at `b`; compiled only.

    The highest bit of a register in `least` is set where the lower bits of a are at least those of b; in `keep`, where
    all bits are: the highest bits of a and b decide if they differ.
    """
    i: cython.Py_ssize_t
    for i in range(count):
        x: cython.ulonglong = a[i]
        y: cython.ulonglong = b[i]
        differ: cython.ulonglong = x ^ y
        least: cython.ulonglong = (x | _TOPS) - (y & _RESTS)
        keep: cython.ulonglong = (least ^ (least ^ x) & differ) & _TOPS
        a[i] = y ^ differ & ((keep << 1) - (keep >> 5))


@cython.cfunc
@cython.exceptval(check=False)
def _address(string: Any) -> cython.p_const_uchar:
    """Return the address of a string: bytes or a bytearray."""
    if not cython.compiled:
        return string
    if isinstance(string, bytes):
        return cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(string))
    return cython.cast(cython.p_const_uchar, PyByteArray_AS_STRING(string))


@cython.final
@cython.cclass
class Union:
    """The largest value of each register of several strings, which must not change before the result is read.

    dense: a string was dense. Compiled, sparse strings are merged into `_words` at once, and dense ones block by block
    when the result is read: a block of each stays in the nearest cache. `_registers`, a byte each, replaces both if
    `use_words` is off or the build is interpreted.
    """

    __slots__ = ("_registers", "_room", "_strings", "_words", "dense")
    _words: bytearray | None
    _registers: bytearray | None
    _room: bytearray
    _strings: list[Any]
    dense: readonly[cython.bint]

    def __init__(self) -> None:
        self._strings = []
        self._room = bytearray(16 * _BLOCK)
        self.clear()

    @cython.cfunc
    def clear(self) -> cython.bint:
        """Remove the strings."""
        self.dense = False
        self._strings.clear()
        self._words = None
        self._registers = None if cython.compiled and uses_words() else bytearray(REGISTERS)
        return True

    @cython.cfunc
    def merge(self, string: object) -> cython.bint:
        """Add a valid string, bytes or a bytearray; return False if it is corrupt. O(1) or, if sparse, O(opcodes)"""
        p: cython.p_const_uchar = _address(string)
        self.dense = self.dense or p[4] == _DENSE
        if self._registers is not None:
            return merge(self._registers, p, len(string))  # type: ignore[arg-type]
        if p[4] == _DENSE:
            self._strings.append(string)
            return True
        if self._words is None:
            self._words = bytearray(8 * _GROUPS)
        return merge_sparse(self._words, p, len(string), True)  # type: ignore[arg-type]

    @cython.cfunc
    @cython.exceptval(check=False)
    def _block(self, first: cython.int) -> cython.p_uchar:
        """Return the address of a block of words from a group on; compiled only, after at least one `merge`."""
        to: cython.p_uchar = self._room
        room: cython.p_uchar = to + 8 * _BLOCK
        k: cython.Py_ssize_t = 0
        if self._words is not None:
            words: cython.p_uchar = self._words
            to = words + 8 * first
        else:
            _read_block(to, _address(self._strings[0]) + _HEADER + 6 * first)
            k = 1
        while k < len(self._strings):
            _read_block(room, _address(self._strings[k]) + _HEADER + 6 * first)
            _keep_larger(cython.cast(cython.p_ulonglong, to), cython.cast(cython.p_ulonglong, room), _BLOCK)
            k += 1
        return to

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def count(self) -> cython.longlong:
        """Return the estimate. O(registers)"""
        if self._registers is not None:
            return count_registers(self._registers)
        if self._words is None and not self._strings:
            return 0
        pairs: cython.p_ulonglong = pair_table()
        block: cython.p_uchar
        word: cython.ulonglong = 0
        seen: cython.ulonglong = 0
        total: cython.ulonglong = 0
        first: cython.int = 0
        i: cython.int
        while first < _GROUPS:
            block = self._block(first)
            for i in range(_BLOCK):
                memcpy(cython.address(word), block + 8 * i, 8)
                seen |= word
                total += _add(pairs, word)
            first += _BLOCK
        return count_registers(self.values()) if seen & _TOPS else estimate_sum(total)

    @cython.cfunc
    def store(self, buf: bytearray, limit: cython.Py_ssize_t) -> cython.bint:
        """Store the union in one of its strings, which becomes dense if one was; False: corrupt. O(registers)"""
        if self._registers is not None or not self.dense:
            return store_registers(buf, self.values(), self.dense, limit)
        if not to_dense(buf):
            return False
        p: cython.p_uchar = buf
        first: cython.int = 0
        while first < _GROUPS:
            _write_block(p + _HEADER + 6 * first, self._block(first))
            first += _BLOCK
        return True

    @cython.ccall
    def values(self) -> bytearray:
        """Return the registers, a byte each. O(registers)"""
        if self._registers is not None:
            return self._registers
        registers: bytearray = bytearray(REGISTERS)
        if self._words is None and not self._strings:
            return registers
        to: cython.p_uchar = registers
        block: cython.p_uchar
        word: cython.ulonglong = 0
        first: cython.int = 0
        i: cython.int
        while first < _GROUPS:
            block = self._block(first)
            for i in range(_BLOCK):
                memcpy(cython.address(word), block + 8 * i, 8)
                word = _spread(word)
                memcpy(to + 8 * (first + i), cython.address(word), 8)
            first += _BLOCK
        return registers


@cython.ccall
@cython.exceptval(-2, check=False)
def count_string(string: Any) -> cython.longlong:
    """Return the estimate for a valid string, bytes or a bytearray; -1 if it is corrupt. O(registers)"""
    p: cython.p_const_uchar = _address(string)
    if p[4] != _DENSE:
        return count(p, len(string))
    union: Union = Union()
    union.merge(string)
    return union.count()
