"""Bulk copies between buffers: one range check, then one memcpy.

Other modules read and write single bytes through `bytearray` indexing, which checks its bounds. A
copy of many bytes would pay for that check at each byte. These helpers check the whole range once and
then use `memcpy` (compiled) or a slice assignment (interpreted). A range outside either buffer raises
IndexError and changes nothing. No pointer outlives its call, so buffers may be resized between calls.

They are C functions without a Python wrapper, which makes calls cheap. In the compiled build only compiled modules can
import them, because a C function is not an attribute of the module.

Rejected alternatives: `dst[a:b] = src` in compiled code (60-100 ns for a slice object and a temporary
copy per call), and memoryviews (300 ns to create, and they lock the bytearray's size).
"""

from __future__ import annotations

from rillet._cython import cython

if cython.compiled:
    from cython.cimports.libc.string import memcmp, memcpy, memmove



@cython.cfunc
def copy_part(
    dst: bytearray, dpos: cython.Py_ssize_t, src: bytes, spos: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.bint:
    """Copy src[spos:spos+n] into dst at dpos."""
    if n < 0 or dpos < 0 or spos < 0 or dpos > len(dst) - n or spos > len(src) - n:
        raise IndexError("a copy would exceed the source or target buffer")
    if cython.compiled:
        to: cython.p_uchar = dst
        fr: cython.p_uchar = src
        memcpy(to + dpos, fr + spos, n)
    else:
        dst[dpos : dpos + n] = src[spos : spos + n]
    return True


@cython.cfunc
def copy_slice(
    dst: bytearray, dpos: cython.Py_ssize_t, src: bytearray, spos: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.bint:
    """Copy src[spos:spos+n] into dst at dpos. Both may be the same buffer, with overlapping ranges."""
    if n < 0 or dpos < 0 or spos < 0 or dpos > len(dst) - n or spos > len(src) - n:
        raise IndexError("a copy would exceed the source or target buffer")
    if cython.compiled:
        to: cython.p_uchar = dst
        fr: cython.p_uchar = src
        memmove(to + dpos, fr + spos, n)
    else:
        dst[dpos : dpos + n] = src[spos : spos + n]
    return True


@cython.cfunc
def copy_out(src: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> bytes:
    """Return src[start:start+n] as bytes; raise IndexError if the range is not inside src."""
    if n < 0 or start < 0 or start > len(src) - n:
        raise IndexError("a read would exceed the source buffer")
    if cython.compiled:
        fr: cython.p_uchar = src
        return fr[start : start + n]
    else:
        return bytes(src[start : start + n])


@cython.cfunc
def equals(src: bytearray, start: cython.Py_ssize_t, value: bytes) -> cython.bint:
    """Return whether the bytes of src at start equal value."""
    n: cython.Py_ssize_t = len(value)
    if start < 0 or start > len(src) - n:
        raise IndexError("a read would exceed the source buffer")
    if cython.compiled:
        left: cython.p_uchar = src
        right: cython.p_uchar = value
        return memcmp(left + start, right, n) == 0
    else:
        return src[start : start + n] == value


@cython.cfunc
def put_u32(dst: bytearray, pos: cython.Py_ssize_t, v: cython.longlong) -> cython.bint:
    """Write the low 32 bits of v into dst at pos, in little-endian order."""
    if pos < 0 or pos > len(dst) - 4:
        raise IndexError("a write would exceed the target buffer")
    if cython.compiled:
        to: cython.p_uchar = dst
        to[pos] = v & 0xFF
        to[pos + 1] = (v >> 8) & 0xFF
        to[pos + 2] = (v >> 16) & 0xFF
        to[pos + 3] = (v >> 24) & 0xFF
    else:
        dst[pos : pos + 4] = (v & 0xFFFFFFFF).to_bytes(4, "little")
    return True
