"""XXH3, 64 bits, seed 0: the hash of strings that DIGEST shows (the xxHash project, doc/xxhash_spec.md).

Five forms, by the length of the input, each of which reads the whole input and a part of a fixed secret of 192 bytes:

    0           a constant
    1 to 3      first, middle and last byte and the length in 32 bits, mixed
    4 to 16     two overlapping words from both ends, mixed
    17 to 240   pieces of 16 bytes: both halves, xor the secret, multiplied to 128 bits and folded to 64; summed
    241 and up  stripes of 64 bytes into eight lanes:

         byte 0        8        16  ...          56        64
              +--------+--------+----   ----+--------+
              | word 0 | word 1 |    ...    | word 7 |      one stripe
              +--------+--------+----   ----+--------+
                  |  \\_________ added to lane 1 (its neighbour)
                  `- xor secret -> lower half * upper half, added to lane 0

    After 16 stripes, a block, the lanes are scrambled. The last stripe is the last 64 bytes, wherever it begins.

All arithmetic is modulo 2^64, so the interpreted form masks each sum and product. 64-bit words are little-endian.
Cost: O(bytes), about 3 GB a second compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet._cython import cython

if TYPE_CHECKING:  # the compiled module gets this C function from its .pxd file
    memcpy: Any

_SECRET = cython.declare(bytes, bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
))  # fmt: skip
_ALL = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_HALF = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_PRIME32_1 = cython.declare(cython.ulonglong, 0x9E3779B1)
_PRIME32_2 = cython.declare(cython.ulonglong, 0x85EBCA77)
_PRIME32_3 = cython.declare(cython.ulonglong, 0xC2B2AE3D)
_PRIME1 = cython.declare(cython.ulonglong, 0x9E3779B185EBCA87)
_PRIME2 = cython.declare(cython.ulonglong, 0xC2B2AE3D27D4EB4F)
_PRIME3 = cython.declare(cython.ulonglong, 0x165667B19E3779F9)
_PRIME4 = cython.declare(cython.ulonglong, 0x85EBCA77C2B2AE63)
_PRIME5 = cython.declare(cython.ulonglong, 0x27D4EB2F165667C5)
_AVALANCHE = cython.declare(cython.ulonglong, 0x165667919E3779F9)
_RRMXMX = cython.declare(cython.ulonglong, 0x9FB21C651E98DF25)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _word(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.ulonglong:
    """Return the 64-bit word at a position."""
    if not cython.compiled:
        return int.from_bytes(p[at : at + 8], "little")
    word: cython.ulonglong = 0
    memcpy(cython.address(word), p + at, 8)  # noqa: F821
    return word


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _half_word(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.ulonglong:
    """Return the 32-bit word at a position."""
    if not cython.compiled:
        return int.from_bytes(p[at : at + 4], "little")
    word: cython.uint = 0
    memcpy(cython.address(word), p + at, 4)  # noqa: F821
    return word


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _folded(one: cython.ulonglong, other: cython.ulonglong) -> cython.ulonglong:
    """Return the lower half of the 128-bit product, xor its upper half."""
    low: cython.ulonglong = (one & _HALF) * (other & _HALF)
    left: cython.ulonglong = (one >> 32) * (other & _HALF)
    right: cython.ulonglong = (one & _HALF) * (other >> 32)
    middle: cython.ulonglong = (low >> 32) + (left & _HALF) + right
    upper: cython.ulonglong = (one >> 32) * (other >> 32) + (left >> 32) + (middle >> 32)
    return (((middle & _HALF) << 32) | (low & _HALF)) ^ upper


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _mixed(h: cython.ulonglong) -> cython.ulonglong:
    """Return the final mix of XXH3 (XXH3_avalanche)."""
    h ^= h >> 37
    h = h * _AVALANCHE & _ALL
    return h ^ (h >> 32)


@cython.cfunc
@cython.exceptval(check=False)
def _mixed_as_xxh64(h: cython.ulonglong) -> cython.ulonglong:
    """Return the final mix of the older hash, which the shortest inputs use (XXH64_avalanche)."""
    h ^= h >> 33
    h = h * _PRIME2 & _ALL
    h ^= h >> 29
    h = h * _PRIME3 & _ALL
    return h ^ (h >> 32)


@cython.cfunc
@cython.exceptval(check=False)
def _short(p: cython.p_const_uchar, n: cython.Py_ssize_t, s: cython.p_const_uchar) -> cython.ulonglong:
    """Return the hash of up to 16 bytes (XXH3_len_0to16_64b)."""
    low: cython.ulonglong
    high: cython.ulonglong
    size: cython.ulonglong = n
    if n > 8:
        low = _word(p, 0) ^ _word(s, 24) ^ _word(s, 32)
        high = _word(p, n - 8) ^ _word(s, 40) ^ _word(s, 48)
        swapped: cython.ulonglong = 0
        i: cython.int
        for i in range(8):
            swapped = ((swapped & (_ALL >> 8)) << 8) | (low >> (8 * i) & 0xFF)
        return _mixed((size + swapped + high + _folded(low, high)) & _ALL)
    if n >= 4:
        low = (_half_word(p, n - 4) + (_half_word(p, 0) << 32)) ^ _word(s, 8) ^ _word(s, 16)
        low ^= ((low << 49 | low >> 15) ^ (low << 24 | low >> 40)) & _ALL
        low = low * _RRMXMX & _ALL
        low ^= (low >> 35) + size
        low = low * _RRMXMX & _ALL
        return low ^ (low >> 28)
    if n > 0:
        low = p[0]
        high = p[n >> 1]
        low = low << 16 | high << 24 | p[n - 1] | size << 8
        return _mixed_as_xxh64(low ^ _half_word(s, 0) ^ _half_word(s, 4))
    return _mixed_as_xxh64(_word(s, 56) ^ _word(s, 64))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _piece(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, s: cython.p_const_uchar, key: cython.Py_ssize_t
) -> cython.ulonglong:
    """Return the value of 16 bytes under 16 bytes of the secret (XXH3_mix16B)."""
    return _folded(_word(p, at) ^ _word(s, key), _word(p, at + 8) ^ _word(s, key + 8))


@cython.cfunc
@cython.exceptval(check=False)
def _middle(p: cython.p_const_uchar, n: cython.Py_ssize_t, s: cython.p_const_uchar) -> cython.ulonglong:
    """Return the hash of 17 to 240 bytes (XXH3_len_17to128_64b, XXH3_len_129to240_64b)."""
    size: cython.ulonglong = n
    total: cython.ulonglong = size * _PRIME1 & _ALL
    i: cython.Py_ssize_t
    if n <= 128:
        for i in range((n - 1) >> 5, -1, -1):  # pairs of pieces from both ends
            total += _piece(p, 16 * i, s, 32 * i)
            total += _piece(p, n - 16 * i - 16, s, 32 * i + 16)
        return _mixed(total & _ALL)
    for i in range(8):
        total += _piece(p, 16 * i, s, 16 * i)
    total = _mixed(total & _ALL)
    for i in range(8, n >> 4):
        total += _piece(p, 16 * i, s, 16 * (i - 8) + 3)
    return _mixed((total + _piece(p, n - 16, s, 119)) & _ALL)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _stripe(
    lanes: cython.p_ulonglong, p: cython.p_const_uchar, at: cython.Py_ssize_t, s: cython.p_const_uchar,
    key: cython.Py_ssize_t,
) -> cython.bint:
    """Add 64 bytes to the lanes (XXH3_accumulate_512)."""
    i: cython.Py_ssize_t
    word: cython.ulonglong
    keyed: cython.ulonglong
    for i in range(8):
        word = _word(p, at + 8 * i)
        keyed = word ^ _word(s, key + 8 * i)
        lanes[i ^ 1] = (lanes[i ^ 1] + word) & _ALL
        lanes[i] = (lanes[i] + (keyed & _HALF) * (keyed >> 32)) & _ALL
    return True


@cython.cfunc
@cython.exceptval(0, check=True)
def _long(data: bytes) -> cython.ulonglong:
    """Return the hash of more than 240 bytes (XXH3_hashLong_64b)."""
    kept: bytearray = bytearray(64)
    p: cython.p_const_uchar = data
    s: cython.p_const_uchar = _SECRET
    n: cython.Py_ssize_t = len(data)
    lanes: cython.p_ulonglong
    i: cython.Py_ssize_t
    if cython.compiled:
        raw: cython.p_uchar = kept
        lanes = cython.cast(cython.p_ulonglong, raw)
    else:
        lanes = [0] * 8
    lanes[0] = _PRIME32_3
    lanes[1] = _PRIME1
    lanes[2] = _PRIME2
    lanes[3] = _PRIME3
    lanes[4] = _PRIME4
    lanes[5] = _PRIME32_2
    lanes[6] = _PRIME5
    lanes[7] = _PRIME32_1
    at: cython.Py_ssize_t = 0
    stripe: cython.Py_ssize_t = 0
    while at + 64 < n:  # the last byte belongs to the last stripe
        _stripe(lanes, p, at, s, 8 * stripe)
        at += 64
        stripe += 1
        if stripe == 16:
            stripe = 0
            for i in range(8):
                lanes[i] = (lanes[i] ^ (lanes[i] >> 47) ^ _word(s, 128 + 8 * i)) * _PRIME32_1 & _ALL
    _stripe(lanes, p, n - 64, s, 121)
    size: cython.ulonglong = n
    total: cython.ulonglong = size * _PRIME1 & _ALL
    for i in range(4):
        total += _folded(lanes[2 * i] ^ _word(s, 11 + 16 * i), lanes[2 * i + 1] ^ _word(s, 19 + 16 * i))
    return _mixed(total & _ALL)


@cython.ccall
@cython.exceptval(0, check=True)
def xxh3_64(data: bytes) -> cython.ulonglong:
    """Return the hash of some bytes (XXH3_64bits). O(bytes)"""
    n: cython.Py_ssize_t = len(data)
    if n > 240:
        return _long(data)
    p: cython.p_const_uchar = data
    s: cython.p_const_uchar = _SECRET
    return _short(p, n, s) if n <= 16 else _middle(p, n, s)


def hex_digest(data: bytes) -> bytes:
    """Return the hash as 16 hexadecimal digits (t_string.c: stringDigest). O(bytes)"""
    return format(xxh3_64(data), "016x").encode()


__all__ = ["hex_digest", "xxh3_64"]
