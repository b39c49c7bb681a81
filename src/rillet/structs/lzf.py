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

Both work on places in memory, each range checked before it is touched: who reads an RDB file unpacks from its window of
the file into the value, and who writes one packs from the value into the file's next piece, without a copy between.
Short runs are copied in steps of eight bytes where there is room behind them; the byte by byte that the format speaks
of took twice as long.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

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
    """Return the table index of the three bytes that h ends with: the hash of LZF's VERY_FAST setting with 16 bits."""
    return ((h >> 8) - h * 5) & 0xFFFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _match_length(
    data: cython.p_const_uchar, ref: cython.Py_ssize_t, at: cython.Py_ssize_t, limit: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return how many bytes match at `ref` and `at`, of which three are known to; limit + 2 may be read."""
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
        _table = bytearray(4 << 16)
        base = 0
    _base = base + n
    return base


@cython.cfunc
@cython.exceptval(-1, check=False)
def pack(
    data: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    out: cython.p_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write the block for n bytes to out, from start on; return its size, or 0 where it would exceed `end` bytes.

    There is room for end + 8 bytes. Source: lzf_c.c lzf_compress.
    """
    if n == 0 or end <= 0:
        return 0
    base: cython.longlong = _claim_positions(n)
    table: cython.p_uint
    if cython.compiled:
        table = cython.cast(cython.p_uint, cython.cast(cython.p_uchar, _table))
    else:
        table = memoryview(_table).cast("I")
    last: cython.Py_ssize_t = n - 2
    ip: cython.Py_ssize_t = 0
    op: cython.Py_ssize_t = start + 1
    literals: cython.Py_ssize_t = 0
    h: cython.uint = 0
    slot: cython.uint
    here: cython.uint
    offset: cython.uint
    ref: cython.Py_ssize_t
    length: cython.Py_ssize_t
    room: cython.Py_ssize_t
    end += start
    if last > 0:
        h = data[0] << 8 | data[1]
    while ip < last:
        h = (h & 0xFFFF) << 8 | data[ip + 2]
        slot = _slot(h)
        here = base + ip
        offset = here - table[slot] - 1
        table[slot] = here
        ref = ip - offset - 1
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
            room = last - ip
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
    """Return the block for data, or b"" where it would exceed limit bytes (default: len(data) - 4, as Redis asks).

    Source: lzf_c.c lzf_compress; rdb.c rdbSaveLzfStringObject for the limit.
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
    """Copy a run of at most 32 bytes that lies within both; what is copied beyond it is written over later."""
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
    """Copy what lies `offset` bytes back; a match may overlap what it writes."""
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
    """Write the `size` bytes that the block data[ip:n] stands for to out; 0, or what is wrong with it (_DAMAGE)."""
    op: cython.Py_ssize_t = 0
    length: cython.Py_ssize_t
    offset: cython.Py_ssize_t
    control: cython.int
    while ip < n:
        control = data[ip]
        ip += 1
        if control < 32:
            length = control + 1
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
        offset = ((control & 0x1F) << 8) + data[ip] + 1
        ip += 1
        if offset > op or op + length > size:
            return 3
        _repeat(out, op, size, offset, length)
        op += length
    return 0 if op == size else 4


_DAMAGE = (
    "",
    "LZF: literal run outside the block",
    "LZF: truncated match",
    "LZF: match outside the output",
    "LZF: wrong length",
    "LZF: impossible length",
)


@cython.cfunc
@cython.exceptval(-1, check=False)
def refuse_block(damage: cython.int) -> cython.bint:
    """Raise Corrupt that tells the damage; `unpack` gave its number, or it is 5."""
    raise Corrupt(_DAMAGE[damage], "Invalid LZF compressed string")


@cython.ccall
def decompress(data: bytes, size: cython.Py_ssize_t) -> bytes:
    """Return the `size` bytes that the block stands for; Corrupt where it does not (lzf_d.c: lzf_decompress).

    Memory is bounded by what the block can expand to (264 bytes for three), whatever `size` claims.
    """
    n: cython.Py_ssize_t = len(data)
    damage: cython.int
    if size < 0 or size > n * 264:
        refuse_block(5)
    out: bytearray = bytearray(size)
    damage = unpack(data, 0, n, out, size)
    if damage:
        refuse_block(damage)
    return bytes(out)
