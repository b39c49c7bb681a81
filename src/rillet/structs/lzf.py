"""LZF, the compression of strings in RDB files and DUMP payloads (Redis: lzf_c.c, lzf_d.c).

A compressed block is a sequence of instructions; the first byte's top three bits tell which:

    000LLLLL  <L+1 bytes>            literal run of 1 to 32 bytes
    LLLooooo  oooooooo               copy L+2 bytes (3 to 8) from o+1 bytes back
    111ooooo  LLLLLLLL  oooooooo     copy L+9 bytes (9 to 264) from o+1 bytes back

The format leaves a compressor free to choose its matches; DUMP payloads equal to Redis's need the
same choices. They come from one table of 2**16 positions, indexed by a hash of the next three
bytes. Position 0 is never a match (the table cannot tell it from "empty"), only the last two
positions of a match enter the table, and a match that has more than 16 bytes left compares its
first 16 steps without looking at the limit of 264, so it may run three bytes past a shorter limit.

The table is made once: clearing 256 KiB for each value cost ten times the compression of a stream
node. Each call numbers its positions from a base of its own, above every earlier one's, so what an
earlier call left reads as a position before the start.

compress O(n), decompress O(output).
"""

from __future__ import annotations

from array import array

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.errors import Corrupt

# A typed memoryview (`cython.uint[:]`) is no type to mypy.
# mypy: disable-error-code="type-arg, valid-type, assignment, index"

_MAX_LITERAL = cython.declare(cython.int, 32)
_MAX_OFFSET = cython.declare(cython.int, 1 << 13)
_MAX_MATCH = cython.declare(cython.int, 264)
_table: cython.uint[:] = array("I", bytes(4 * (1 << 16)))
_base = cython.declare(cython.longlong, 0)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _slot(a: cython.uint, b: cython.uint, c: cython.uint) -> cython.uint:
    """Return the table index of three bytes: the hash of LZF's VERY_FAST setting with 16 bits."""
    h: cython.longlong = (a << 16) | (b << 8) | c
    return ((h >> 8) - h * 5) & 0xFFFF


@cython.cfunc
@cython.inline
def _match_length(
    data: bytes, ref: cython.Py_ssize_t, at: cython.Py_ssize_t, limit: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return how many bytes match at `ref` and `at`, of which three are known to."""
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
    """Return the base of n positions that no entry of the table has; the table starts anew at 2**32."""
    global _base, _table
    base: cython.longlong = _base
    if base + n >= 4294967295:
        _table = array("I", bytes(4 * (1 << 16)))
        base = 0
    _base = base + n
    return base


@cython.ccall
def compress(data: bytes, limit: cython.Py_ssize_t = -1) -> bytes:
    """Return the block for data, or b"" where it would exceed limit bytes (default: len(data) - 4, as Redis asks).

    Source: lzf_c.c lzf_compress; rdb.c rdbSaveLzfStringObject for the limit.
    """
    n: cython.Py_ssize_t = len(data)
    end: cython.Py_ssize_t = n - 4 if limit < 0 else limit
    if n == 0 or end <= 0:
        return b""
    out: bytearray = bytearray(end + 8)
    table: cython.uint[:] = _table
    base: cython.longlong = _claim_positions(n)
    ip: cython.Py_ssize_t = 0
    op: cython.Py_ssize_t = 1
    literals: cython.Py_ssize_t = 0
    slot: cython.uint
    ref: cython.Py_ssize_t
    offset: cython.Py_ssize_t
    length: cython.Py_ssize_t
    room: cython.Py_ssize_t
    while ip < n - 2:
        slot = _slot(data[ip], data[ip + 1], data[ip + 2])
        ref = table[slot] - base
        table[slot] = base + ip
        offset = ip - ref - 1
        if (
            0 < ref < ip
            and offset < _MAX_OFFSET
            and data[ref] == data[ip]
            and data[ref + 1] == data[ip + 1]
            and data[ref + 2] == data[ip + 2]
        ):
            if op + 4 >= end and op - (literals == 0) + 4 >= end:
                return b""
            if literals:
                out[op - literals - 1] = literals - 1
            else:
                op -= 1
            room = n - ip - 2
            length = _match_length(data, ref, ip, room if room < _MAX_MATCH else _MAX_MATCH)
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
            if ip >= n - 2:
                break
            table[_slot(data[ip - 2], data[ip - 1], data[ip])] = base + ip - 2
            table[_slot(data[ip - 1], data[ip], data[ip + 1])] = base + ip - 1
            continue
        if op >= end:
            return b""
        out[op] = data[ip]
        op += 1
        ip += 1
        literals += 1
        if literals == _MAX_LITERAL:
            out[op - literals - 1] = literals - 1
            literals = 0
            op += 1
    if op + 3 > end:
        return b""
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
    return bytes(out[:op])


@cython.ccall
def decompress(data: bytes, size: cython.Py_ssize_t) -> bytes:
    """Return the `size` bytes that the block stands for; Corrupt where it does not (lzf_d.c: lzf_decompress).

    Memory is bounded by what the block can expand to (264 bytes for three), whatever `size` claims.
    """
    n: cython.Py_ssize_t = len(data)
    if size < 0 or size > n * 264:
        raise Corrupt("LZF: impossible length")
    out: bytearray = bytearray(size)
    ip: cython.Py_ssize_t = 0
    op: cython.Py_ssize_t = 0
    length: cython.Py_ssize_t
    ref: cython.Py_ssize_t
    control: cython.int
    while ip < n:
        control = data[ip]
        ip += 1
        if control < 32:
            length = control + 1
            if ip + length > n or op + length > size:
                raise Corrupt("LZF: literal run outside the block")
            out[op : op + length] = data[ip : ip + length]
            ip += length
            op += length
            continue
        length = control >> 5
        if length == 7:
            if ip >= n:
                raise Corrupt("LZF: truncated match")
            length += data[ip]
            ip += 1
        length += 2
        if ip >= n:
            raise Corrupt("LZF: truncated match")
        ref = op - ((control & 0x1F) << 8) - data[ip] - 1
        ip += 1
        if ref < 0 or op + length > size:
            raise Corrupt("LZF: match outside the output")
        # Byte by byte: a match may overlap what it writes.
        for _ in range(length):
            out[op] = out[ref]
            op += 1
            ref += 1
    if op != size:
        raise Corrupt("LZF: wrong length")
    return bytes(out)
