"""LZF, the compression of strings in RDB files and DUMP payloads (Redis: lzf_c.c, lzf_d.c).

A compressed block is a sequence of instructions. The top three bits of an instruction select its form:

    000LLLLL  <L+1 bytes>            literal run of 1 to 32 bytes
    LLLooooo  oooooooo               copy L+2 bytes (3 to 8) from o+1 bytes back
    111ooooo  LLLLLLLL  oooooooo     copy L+9 bytes (9 to 264) from o+1 bytes back

The format leaves the choice of matches to the compressor. DUMP payloads equal to Redis's require
Redis's choices, which come from one table of 2**16 positions, indexed by a hash of the next three
bytes. Position 0 is never a match, because the table cannot distinguish it from "empty". Only the last
two positions of a match enter the table. If more than 16 bytes remain, a match compares its first
16 steps without checking the limit of 264, so it may extend three bytes past a shorter limit.

The table is allocated once: clearing 256 KiB for each value cost ten times the compression of a stream
node. Each call numbers its positions from a new base above all earlier ones, so entries left by earlier
calls look like positions before the start and are ignored.

compress O(n), decompress O(output).

`pack` and `unpack` work on memory addresses and check each range before they touch it. The RDB reader thus
decompresses from its file window into the value, and the RDB writer compresses from the value into its
output buffer, without copies in between. Short runs are copied eight bytes at a time where the buffer has
room after them; copying byte by byte took twice as long.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.errors import Corrupt

if cython.compiled:
    from cython.cimports.libc.string import memcpy  # type: ignore[import-not-found, unused-ignore]

_MAX_LITERAL = cython.declare(cython.int, 32)
_MAX_OFFSET = cython.declare(cython.uint, 1 << 13)
_MAX_MATCH = cython.declare(cython.int, 264)
_table = cython.declare(bytearray, bytearray(4 << 16))
_base = cython.declare(cython.longlong, 0)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _slot(h: cython.uint) -> cython.uint:
    """Return the index in the table of positions for the last three bytes in h (LZF's 16-bit hash for VERY_FAST)."""
    return ((h >> 8) - h * 5) & 0xFFFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _match_length(
    data: cython.p_const_uchar, ref: cython.Py_ssize_t, at: cython.Py_ssize_t, limit: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the length of the match between `ref` and `at`, whose first three bytes match; at most limit + 2."""
    n: cython.Py_ssize_t = 3
    if limit > 16:
        while n < 19 and data[ref + n] == data[at + n]:
            n += 1
        if n < 19:
            return n
    while n < limit and data[ref + n] == data[at + n]:
        n += 1
    return n


@cython.cfunc
def _claim_positions(n: cython.Py_ssize_t) -> cython.longlong:
    """Reserve n position numbers that are not in the table, and return the first; clear the table before 2**32."""
    global _base, _table
    base: cython.longlong = _base
    if base + n >= 4294967295:
        _table = bytearray(4 << 16)
        base = 0
    _base = base + n
    return base


@cython.cfunc
def pack(
    data: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    out: cython.p_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write the compressed n bytes to `out` at `start`; return the block's size, or 0 if it would exceed `end` bytes.

    `out` must have room for end + 8 bytes after `start`. Source: lzf_c.c lzf_compress.
    """
    if n == 0 or end <= 0:
        return 0
    base: cython.longlong = _claim_positions(n)
    if cython.compiled:
        table: cython.p_uint = cython.cast(cython.p_uint, cython.cast(cython.p_uchar, _table))
    else:
        table = memoryview(_table).cast("I")
    last: cython.Py_ssize_t = n - 2
    ip: cython.Py_ssize_t = 0
    op: cython.Py_ssize_t = start + 1
    literals: cython.Py_ssize_t = 0
    h: cython.uint = 0
    end += start
    if last > 0:
        h = data[0] << 8 | data[1]
    while ip < last:
        h = (h & 0xFFFF) << 8 | data[ip + 2]
        slot: cython.uint = _slot(h)
        here: cython.uint = base + ip
        offset: cython.uint = here - table[slot] - 1
        table[slot] = here
        ref: cython.Py_ssize_t = ip - offset - 1
        if (
            offset < _MAX_OFFSET
            and ref > 0
            and data[ref + 2] == data[ip + 2]
            and data[ref] == data[ip]
            and data[ref + 1] == data[ip + 1]
        ):
            if op + 4 >= end and op - (literals == 0) + 4 >= end:
                return 0
            if literals:
                out[op - literals - 1] = literals - 1
            else:
                op -= 1
            room: cython.Py_ssize_t = last - ip
            length: cython.Py_ssize_t = _match_length(data, ref, ip, room if room < _MAX_MATCH else _MAX_MATCH)
            if length < 9:
                out[op] = (offset >> 8) + ((length - 2) << 5)
                op += 1
            else:
                out[op] = (offset >> 8) + 0xE0
                out[op + 1] = length - 9
                op += 2
            out[op] = offset & 0xFF
            op += 2
            literals = 0
            ip += length
            if ip >= last:
                break
            h = data[ip - 2] << 16 | data[ip - 1] << 8 | data[ip]
            table[_slot(h)] = base + ip - 2
            h = (h & 0xFFFF) << 8 | data[ip + 1]
            table[_slot(h)] = base + ip - 1
            continue
        if op >= end:
            return 0
        out[op] = data[ip]
        op += 1
        ip += 1
        literals += 1
        if literals == _MAX_LITERAL:
            out[op - literals - 1] = literals - 1
            literals = 0
            op += 1
    if op + 3 > end:
        return 0
    while ip < n:
        out[op] = data[ip]
        op += 1
        ip += 1
        literals += 1
        if literals == _MAX_LITERAL:
            out[op - literals - 1] = literals - 1
            literals = 0
            op += 1
    if literals:
        out[op - literals - 1] = literals - 1
    else:
        op -= 1
    return op - start


@cython.ccall
def compress(data: bytes, limit: cython.Py_ssize_t = -1) -> bytes:
    """Return the compressed block, or b"" if it would exceed limit bytes (default: len(data) - 4, Redis's limit).

    Sources: lzf_c.c lzf_compress; rdb.c rdbSaveLzfStringObject for the limit.
    """
    n: cython.Py_ssize_t = len(data)
    end: cython.Py_ssize_t = n - 4 if limit < 0 else limit
    if n == 0 or end <= 0:
        return b""
    out: bytearray = bytearray(end + 8)
    size: cython.Py_ssize_t = pack(data, n, out, 0, end)
    return bytes(out[:size])


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _copy(
    out: cython.p_uchar,
    op: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    data: cython.p_const_uchar,
    ip: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    length: cython.Py_ssize_t,
) -> cython.bint:
    """Copy a run of at most 32 bytes within both buffers; bytes copied past the run are overwritten later."""
    i: cython.Py_ssize_t = 0
    if cython.compiled:
        if op + length + 8 <= size and ip + length + 8 <= n:
            while i < length:
                memcpy(out + op + i, data + ip + i, 8)
                i += 8
        else:
            memcpy(out + op, data + ip, length)
    else:
        out[op : op + length] = data[ip : ip + length]
    return True


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _repeat(
    out: cython.p_uchar,
    op: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    offset: cython.Py_ssize_t,
    length: cython.Py_ssize_t,
) -> cython.bint:
    """Copy bytes from a position `offset` bytes back in the same buffer; source and destination may overlap."""
    i: cython.Py_ssize_t = 0
    if cython.compiled:
        if offset >= 8 and op + length + 8 <= size:
            while i < length:
                memcpy(out + op + i, out + op + i - offset, 8)
                i += 8
        else:
            while i < length:
                out[op + i] = out[op + i - offset]
                i += 1
    else:
        out[op : op + length] = (out[op - offset : op] * (length // offset + 1))[:length]
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def unpack(
    data: cython.p_const_uchar,
    ip: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    out: cython.p_uchar,
    size: cython.Py_ssize_t,
) -> cython.int:
    """Decompress the block data[ip:n] into `size` bytes of out. Return 0, or the index of the error in _DAMAGE."""
    op: cython.Py_ssize_t = 0
    while ip < n:
        control: cython.int = data[ip]
        ip += 1
        if control < 32:
            length: cython.Py_ssize_t = control + 1
            if ip + length > n or op + length > size:
                return 1
            _copy(out, op, size, data, ip, n, length)
            ip += length
            op += length
            continue
        length = control >> 5
        if length == 7:
            if ip >= n:
                return 2
            length += data[ip]
            ip += 1
        length += 2
        if ip >= n:
            return 2
        offset: cython.Py_ssize_t = ((control & 0x1F) << 8) + data[ip] + 1
        ip += 1
        if offset > op or op + length > size:
            return 3
        _repeat(out, op, size, offset, length)
        op += length
    return 0 if op == size else 4


_DAMAGE = (
    "",
    "LZF: a literal run extends past the block or the output",
    "LZF: a match is truncated",
    "LZF: a match is outside the output",
    "LZF: the output has another length than the block declares",
    "LZF: the declared length is impossible for the size of the block",
)


@cython.cfunc
def refuse_block(damage: cython.int) -> cython.bint:
    """Raise Corrupt for an error that is given as an index in _DAMAGE, the table of error texts."""
    raise Corrupt(_DAMAGE[damage], "Invalid LZF compressed string")


@cython.ccall
def decompress(data: bytes, size: cython.Py_ssize_t) -> bytes:
    """Return the `size` bytes of a compressed block; raise Corrupt if it is malformed (lzf_d.c: lzf_decompress).

    Memory is bounded by the block's maximum expansion (264 bytes for three), whatever `size` claims.
    """
    n: cython.Py_ssize_t = len(data)
    if size < 0 or size > n * 264:
        refuse_block(5)
    out: bytearray = bytearray(size)
    damage: cython.int = unpack(data, 0, n, out, size)
    if damage:
        refuse_block(damage)
    return bytes(out)
