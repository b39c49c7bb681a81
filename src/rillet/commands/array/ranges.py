"""ARGETRANGE, ARSCAN and AROP: the values between two indexes (Redis: t_array.c).

AROP computes with long doubles, as Redis does, and rounds after each addition. Sums of integers are exact below 2^63,
so they are computed as such; all others use the arithmetic of structs/long_double.py:

    AROP k 0 99 SUM      numbers, and texts that are numbers; other values do not count
    AROP k 0 99 AND      integers; numbers with a fraction are truncated
"""

from __future__ import annotations

from fractions import Fraction
from math import inf, isfinite, isinf, isnan, nan
from typing import Any

from rillet._cython import cython
from rillet.commands.arguments import arity_error, integer, syntax_error
from rillet.commands.array import command
from rillet.commands.array.values import array_to_read, parse_index, write_index, write_word
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs import long_double
from rillet.structs.array.array_cursor import ArrayCursor
from rillet.structs.array.array_slice import double_of, integer_of, word_of
from rillet.structs.array.sparse_array import SparseArray
from rillet.structs.integer_text import decimal
from rillet.types.array import Array
from rillet.types.string import string2ll

MOST_ITEMS = 1_000_000
"""The longest range of ARGETRANGE (ARGETRANGE_MAX_ITEMS)."""
_MOST_ITEMS = cython.declare(cython.ulonglong, 1_000_000)
_HALF = cython.declare(cython.longlong, 1 << 62)
_SHORT_SUM = cython.declare(cython.longlong, 10**17)  # %.17Lg shows smaller integers as they are
_SUM, _MIN, _MAX, _AND, _OR, _XOR, _MATCH, _USED = range(8)
_OPERATIONS = {
    b"sum": _SUM, b"min": _MIN, b"max": _MAX, b"and": _AND, b"or": _OR, b"xor": _XOR, b"match": _MATCH, b"used": _USED,
}  # fmt: skip
Number = int | float | Fraction


@command("argetrange", arity=4, flags="readonly", syntax="key start end",
         complexity="O(N) where N is the range length")
def argetrange(session: Session, argv: list[bytes]) -> None:
    """Reply with the value at each index of a range, null for an empty one; backwards if start > end."""
    start: cython.ulonglong = parse_index(argv[2])
    end: cython.ulonglong = parse_index(argv[3])
    array: Array = array_to_read(session, argv[1])
    backwards: cython.bint = start > end
    count: cython.ulonglong = (start - end if backwards else end - start) + 1
    if count > _MOST_ITEMS:
        raise CommandError(f"range exceeds maximum of {MOST_ITEMS} items")
    session.out.array(count)
    written: cython.ulonglong = 0
    if array is not None:
        cursor: ArrayCursor = ArrayCursor(array.cells, start, end)
        while cursor.next():
            place: cython.ulonglong = start - cursor.index if backwards else cursor.index - start
            while written < place:
                session.out.null()
                written += 1
            write_word(session.out, array.cells, cursor.word)
            written += 1
    while written < count:
        session.out.null()
        written += 1


@command("arscan", arity=-4, flags="readonly", syntax="key start end [LIMIT limit]",
         complexity="O(P) where P is visited positions in touched slices (dense scanned slots + sparse entries), with "
         "worst-case O(|end-start|+1) and typical case close to O(N), where N is the number of existing elements in "
         "range.")
def arscan(session: Session, argv: list[bytes]) -> None:
    """Reply with the indexes and values of a range; backwards if start > end."""
    start: cython.ulonglong = parse_index(argv[2])
    end: cython.ulonglong = parse_index(argv[3])
    most = _limit(argv[5]) if len(argv) == 6 and argv[4].lower() == b"limit" else 0
    if len(argv) == 6 and not most:
        raise syntax_error()
    if len(argv) not in (4, 6):
        raise arity_error("arscan")
    limit: cython.ulonglong = most
    array: Array = array_to_read(session, argv[1])
    if array is None:
        session.out.array(0)
        return
    mark: cython.Py_ssize_t = session.out.mark()
    count: cython.ulonglong = 0
    cursor: ArrayCursor = ArrayCursor(array.cells, start, end)
    while (limit == 0 or count < limit) and cursor.next():
        session.out.array(2)
        write_index(session.out, cursor.index)
        write_word(session.out, array.cells, cursor.word)
        count += 1
    session.out.insert_array(mark, count)


def _limit(raw: bytes) -> int:
    """Parse the argument of LIMIT, which is at least 1."""
    most = integer(raw)
    if most <= 0:
        raise CommandError("LIMIT must be positive")
    return most


# -- aggregation ---------------------------------------------------------------------------------------


@cython.cfunc
def _count(cells: SparseArray, cursor: ArrayCursor, wanted: bytes | None) -> cython.Py_ssize_t:
    """Return how many values of a range equal some bytes; None: count all values."""
    word: cython.ulonglong = 0 if wanted is None else word_of(wanted)
    count: cython.Py_ssize_t = 0
    while cursor.next():
        # A loaded value may have a tag that its text would not get; of two values with one tag but 0, the words decide.
        other: cython.bint = word & 3 == 0 or word & 3 != cursor.word & 3
        count += wanted is None or cursor.word == word or (other and cells.data(cursor.word) == wanted)
    return count


@cython.cfunc
def _sum_of_integers(cursor: ArrayCursor) -> object:
    """Return the sum of a range of integers, None if there is another value or the sum is too large."""
    total: cython.longlong = 0
    while cursor.next():
        if cursor.word & 3 != 1:
            return None
        total += integer_of(cursor.word)
        if total >= _HALF or total <= -_HALF:
            return None
    return total


@cython.cfunc
def _number(cells: SparseArray, word: cython.ulonglong) -> object:
    """Return the value of a word as a number, None if it is not one."""
    if word & 3 == 1:
        return integer_of(word)
    if word & 3 == 2:
        return double_of(word)
    return _number_of_text(cells.data(word))


def _number_of_text(data: bytes) -> Number | None:
    whole = string2ll(data)
    if whole is not None:
        return whole  # type: ignore[no-any-return]
    try:
        value = long_double.parse(data)
    except long_double.NotFinite:
        return -inf if data.startswith(b"-") else inf
    if not value and value is not None and data.startswith(b"-"):
        return -0.0
    return value


def add(one: Number, other: Number) -> Number:
    """Return the sum of two long doubles, rounded."""
    if isinstance(one, float) and isinstance(other, float):
        total = one + other
        rest = total - one
        if not isfinite(total) and isfinite(one) and isfinite(other):
            pass  # a long double has a larger range
        elif not isfinite(total) or (one - (total - rest)) + (other - rest) == 0:
            return total  # exact
    for value in (one, other):
        if isinstance(value, float) and not isfinite(value):
            return value
    exact = Fraction(one) + Fraction(other)
    try:
        return long_double.rounded(exact)
    except long_double.NotFinite:
        return inf if exact > 0 else -inf


def _aggregate(numbers: list[Number], operation: int) -> Number | None:
    """Return the sum, minimum or maximum of numbers, None if there are none."""
    if not numbers:
        return None
    found = numbers[0]
    for value in numbers[1:]:
        if operation == _SUM:
            found = add(found, value)
        elif value < found if operation == _MIN else value > found:
            found = value
    return found


def _bits(numbers: list[Number], operation: int) -> int | None:
    """Return the bitwise combination of numbers within 64 bits, None if there are none."""
    found: int | None = None
    for value in numbers:
        if isinstance(value, float) and (isnan(value) or isinf(value)):
            continue
        if not -(2**63) <= value <= 2**63 - 1:
            continue
        whole = int(value)
        if found is None:
            found = whole
        elif operation == _AND:
            found &= whole
        else:
            found = found | whole if operation == _OR else found ^ whole
    return found


@command("arop", arity=-5, flags="readonly",
         syntax="key start end SUM | MIN | MAX | AND | OR | XOR | MATCH value | USED",
         complexity="O(P) where P is visited positions in touched slices (dense scanned slots + sparse entries), with "
         "worst-case O(|end-start|+1) and typical case close to O(N), where N is the number of existing elements in "
         "range.")
def arop(session: Session, argv: list[bytes]) -> None:
    """Reply with the sum, minimum, maximum, bitwise combination or number of the values in a range."""
    start: cython.ulonglong = parse_index(argv[2])
    end: cython.ulonglong = parse_index(argv[3])
    operation = _OPERATIONS.get(argv[4].lower())
    if operation is None:
        raise CommandError("unknown operation")
    counts = operation in (_MATCH, _USED)
    if operation == _MATCH:
        if len(argv) != 6:
            raise CommandError("MATCH requires a value argument")
    elif len(argv) != 5:
        raise arity_error("arop")
    array: Array = array_to_read(session, argv[1])
    out = session.out
    if array is None:
        if counts:
            out.integer(0)
        else:
            out.null()
        return
    cells: SparseArray = array.cells
    cursor: ArrayCursor = ArrayCursor(cells, start, end)
    if counts:
        out.integer(_count(cells, cursor, argv[5] if operation == _MATCH else None))
        return
    if operation == _SUM and cursor.next():
        total: Any = _sum_of_integers(ArrayCursor(cells, start, end))
        if total is not None:
            out.bulk(decimal(total) if -_SHORT_SUM < total < _SHORT_SUM else long_double.format_general(total))
            return
    cursor = ArrayCursor(cells, start, end)
    numbers: list[Any] = []
    while cursor.next():
        number: object = _number(cells, cursor.word)
        if number is not None:
            numbers.append(number)
    if operation in (_AND, _OR, _XOR):
        bits = _bits(numbers, operation)
        if bits is None:
            out.null()
        else:
            out.integer(bits)
        return
    result = _aggregate(numbers, operation)
    if result is None:
        out.null()
    else:
        out.bulk(long_double.format_general(result if result == result else nan))
