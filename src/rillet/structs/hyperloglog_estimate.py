"""HyperLogLog: the estimate for given registers (Redis: hyperloglog.c, hllCount).

The estimate is Otmar Ertl's (arXiv:1702.01284), in double precision and in Redis's order of operations: it is the same
number. It depends on how many registers have each value: on the number of those that are 0, and on the sum of 2^-value
of the others. Two functions compute it:

    estimate        from the number of registers for each value
    estimate_sum    from one integer that has both, if no value exceeds 31

The integer is the sum of a number for each register. For the value 0 it is 2^48, for another one 2^(31 - value):

    bits     0                            45     48                   62
             | 2^31 * the sum of 2^-value |  0   | registers that are 0 |

With values up to 31 each partial sum has at most 45 bits, so a double holds it exactly, in any order. `pair_table` has
the sums for pairs of adjacent registers, 12 bits of a dense string: 8,192 additions without a store replace 16,384
counters, which takes half the time. The table has 32 KB, of which the usual values take 2 KB of the nearest cache.
"""

from __future__ import annotations

from rillet._cython import cython

if cython.compiled:
    from cython.cimports.libc.math import sqrt
else:
    from math import sqrt

_MOST = cython.declare(cython.longlong, -(2**63))  # what C's llroundl makes of a number that is too large
_PAIRS = cython.declare(bytearray, bytearray(8 * 4096))


@cython.cfunc
@cython.exceptval(check=False)
def pair_table() -> cython.p_ulonglong:
    """Return the sums of the numbers of two registers, by the 12 bits that hold them; compiled only."""
    table: cython.p_uchar = _PAIRS
    return cython.cast(cython.p_ulonglong, table)


@cython.cfunc
def _fill_pairs() -> cython.bint:
    """Fill the table of pairs."""
    pairs: cython.p_ulonglong = pair_table()
    i: cython.int
    for i in range(4096):
        pairs[i] = _share(i & 63) + _share(i >> 6)
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _share(value: cython.int) -> cython.ulonglong:
    """Return the number of one register."""
    one: cython.ulonglong = 1
    return one << 48 if value == 0 else one << 31 - value if value < 32 else 0


@cython.cfunc
@cython.exceptval(-2, check=False)
def estimate_sum(total: cython.ulonglong) -> cython.longlong:
    """Return the estimate for the sum of the numbers of 16,384 registers; compiled only."""
    low: cython.ulonglong = (cython.cast(cython.ulonglong, 1) << 48) - 1
    return _finish((total & low) / 2147483648.0, cython.cast(cython.double, total >> 48))


@cython.cfunc
@cython.exceptval(-2, check=False)
def estimate(counts: cython.p_uint) -> cython.longlong:
    """Return the estimate for numbers of registers by value."""
    m: cython.double = 16384.0
    z: cython.double = m * _tau((m - counts[51]) / m)
    value: cython.int = 50
    while value >= 1:
        z += counts[value]
        z *= 0.5
        value -= 1
    return _finish(z, counts[0])


@cython.cfunc
@cython.exceptval(-2, check=False)
def _finish(z: cython.double, empty: cython.double) -> cython.longlong:
    """Return the estimate for the sum of 2^-value of the registers that are not 0, and the number of the others."""
    m: cython.double = 16384.0
    z += m * _sigma(empty / m)
    if z == 0.0:
        return _MOST
    found: cython.double = 0.721347520444481703680 * m * m / z  # 0.5 / ln(2)
    if found >= 9223372036854775808.0:
        return _MOST
    whole: cython.longlong = int(found)
    return whole + 1 if found - whole >= 0.5 else whole


@cython.cfunc
@cython.exceptval(check=False)
def _sigma(x: cython.double) -> cython.double:
    """Return x + the sum of x ** 2**k * 2**(k - 1), which corrects for registers that are 0."""
    if x == 1.0:
        return float("inf")
    y: cython.double = 1.0
    z: cython.double = x
    last: cython.double = -1.0
    while last != z:
        x *= x
        last = z
        z += x * y
        y += y
    return z


@cython.cfunc
@cython.exceptval(check=False)
def _tau(x: cython.double) -> cython.double:
    """Return a third of 1 - x - the sum of (1 - x ** 2**-k)**2 * 2**-k, which corrects for registers that are full."""
    if x == 0.0 or x == 1.0:
        return 0.0
    y: cython.double = 1.0
    z: cython.double = 1.0 - x
    last: cython.double = -1.0
    while last != z:
        x = sqrt(x)
        last = z
        y *= 0.5
        z -= (1.0 - x) * (1.0 - x) * y
    return z / 3.0


if cython.compiled:
    _fill_pairs()
