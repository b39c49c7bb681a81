"""The orders of SORT: by number, by bytes, and the partial quicksort that a LIMIT selects (Redis: sort.c, pqsort.c).

    by number    a score for each element, in an array of doubles; equal scores: by the bytes of the element
    by bytes     Python's sort, which is stable as C's qsort is; the keys say what is compared
    partial      Bentley and McIlroy's quicksort, which sorts only the parts that overlap a window

The order of elements that compare equal is visible in one case: `SORT k BY pattern ALPHA` compares only the values of
other keys. Without LIMIT that order is the order of the input. With LIMIT it depends on each exchange of the partial
quicksort, so `partial_order` makes the same exchanges. The numeric order leaves no choice: only equal elements tie.

The scores are compared n log n times, so they are an array of C doubles and the elements move as numbers: 3 ns for a
comparison, 60 ns for one of Python's tuples (score, element).

A number is what C's strtod accepts; the servers differ at the edges:

                          7.0      8.0        newest     Valkey
    empty text            0        0          error      error
    leading blanks        yes      no         no         no
    hexadecimal           yes      no         yes        no
    2e308                 error    infinity   infinity   error       (newest: see `float_text.parse`, `wide`)
    1e-310                error    yes        yes        yes
    bytes behind a NUL    ignored  ignored    error      ignored

In 7.0, one number out of range makes later SORTs fail, too, until a system call fails (it never clears errno). That is
not so here.
"""

from __future__ import annotations

import sys
from typing import Any

from rillet._cython import cython
from rillet.structs.float_text import parse, parse_bound
from rillet.structs.integer_text import decimal
from rillet.structs.listpack import Listpack, is_int64, parse_int64

if cython.compiled:
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-not-found, unused-ignore]
        PyByteArray_AS_STRING,
    )

STRTOD, FAST_FLOAT, STRING2D, VALKEY = range(4)
"""How the servers parse a number: 7.0 to 7.4, 8.0 to 8.6, the newest, and Valkey."""

_RUN = cython.declare(cython.Py_ssize_t, 6)  # the merge sort begins with sorted runs of that length
_LEAST = cython.declare(cython.longlong, -(2**63))
_BLANKS = b" \t\n\v\f\r"
_NORMAL = sys.float_info.min  # strtod reports a range error for a smaller result that it rounds


def number_of(text: bytes, style: int) -> float | None:
    """Return the number that a server reads from a text, or None."""
    if style == STRING2D:
        return parse(text, wide=True)
    text = text.split(b"\0", 1)[0]
    if style == VALKEY:
        return parse(text, hexadecimal=False)
    if style == FAST_FLOAT:
        return parse_bound(text, plain=True)
    if not text:
        return 0.0
    value = parse(text.lstrip(_BLANKS))  # refuses what strtod reports as out of range
    return None if value is not None and 0 < abs(value) < _NORMAL else value


@cython.ccall
def scores_of(texts: list[Any], style: cython.int) -> bytearray:
    """Return the numbers of some texts as an array of doubles, 0 for None; None if a text is not a number. O(bytes)

    An integer stands for its text.
    """
    n: cython.Py_ssize_t = len(texts)
    i: cython.Py_ssize_t
    buf: bytearray = bytearray(8 * n)
    scores: cython.p_double = _doubles(buf)
    good: cython.bint = True
    number: cython.longlong
    for i in range(n):
        item: object = texts[i]
        if item is None:
            continue
        if not isinstance(item, bytes):
            number = item  # type: ignore[assignment]
            scores[i] = number
            continue
        text: bytes = item
        number = parse_int64(text)
        if number != _LEAST or is_int64(text):
            scores[i] = number
            continue
        value: object = number_of(text, style)
        if value is None:
            good = False  # the caller has looked up all values nevertheless
        else:
            scores[i] = value
    return buf if good else None  # type: ignore[return-value]


@cython.cfunc
@cython.exceptval(check=False)
def _doubles(buf: bytearray) -> cython.p_double:
    """Return a bytearray as an array of doubles, which is valid until the bytearray grows or is freed."""
    if not cython.compiled:
        return memoryview(buf).cast("d")
    return cython.cast(cython.p_double, PyByteArray_AS_STRING(buf))


@cython.cfunc
@cython.exceptval(check=False)
def integers_in(buf: bytearray) -> cython.p_Py_ssize_t:
    """Return a bytearray as an array of 64-bit integers."""
    if not cython.compiled:
        return memoryview(buf).cast("q")
    return cython.cast(cython.p_Py_ssize_t, PyByteArray_AS_STRING(buf))


# -- by number ---------------------------------------------------------------------------------------


@cython.ccall
def order_by_scores(items: list[Any], scored: bytearray, descending: cython.bint) -> bytearray:
    """Return the numbers of the items in the order of their scores, then of their texts. O(n log n)"""
    n: cython.Py_ssize_t = len(items)
    assert len(scored) == 8 * n
    kept: bytearray = bytearray(8 * n)
    spared: bytearray = bytearray(8 * n)
    scores: cython.p_double = _doubles(scored)
    order: cython.p_Py_ssize_t = integers_in(kept)
    spare: cython.p_Py_ssize_t = integers_in(spared)
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    for i in range(n):  # sorted runs, by insertion
        k = i
        while k % _RUN and _is_after(scores, items, order[k - 1], i, descending):
            order[k] = order[k - 1]
            k -= 1
        order[k] = i
    width: cython.Py_ssize_t = _RUN
    swap: cython.p_Py_ssize_t
    flips: cython.Py_ssize_t = 0
    while width < n:
        i = 0
        while i < n:
            _merge(scores, items, order, spare, i, min(i + width, n), min(i + 2 * width, n), descending)
            i += 2 * width
        swap = order
        order = spare
        spare = swap
        flips += 1
        width *= 2
    return spared if flips & 1 else kept


@cython.ccall
def first_by_scores(
    items: list[Any], scored: bytearray, descending: cython.bint, count: cython.Py_ssize_t
) -> list[Any]:
    """Return the first `count` items in the order of `order_by_scores`; less work if they are few. O(n + count^2)

    A sorted array holds the best so far; most items come after its last one.
    """
    n: cython.Py_ssize_t = len(items)
    assert len(scored) == 8 * n and 0 < count <= n
    kept: bytearray = bytearray(8 * n)
    scores: cython.p_double = _doubles(scored)
    best: cython.p_Py_ssize_t = integers_in(kept)
    size: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    for i in range(n):
        if size < count:
            k = size
            size += 1
        elif _is_after(scores, items, best[size - 1], i, descending):
            k = size - 1
        else:
            continue
        while k > 0 and _is_after(scores, items, best[k - 1], i, descending):
            best[k] = best[k - 1]
            k -= 1
        best[k] = i
    return picked(items, kept, 0, count)


@cython.ccall
def pack(values: list[Any]) -> Listpack:
    """Return a listpack of texts and integers. O(bytes)"""
    packed: Listpack = Listpack()
    item: object
    for item in values:
        if isinstance(item, bytes):
            packed.append(item)
        else:
            packed.append_int(item)  # type: ignore[arg-type]
    return packed


@cython.ccall
def most_bytes(values: list[Any]) -> cython.Py_ssize_t:
    """Return the most bytes that a listpack of texts and integers takes. O(values)"""
    total: cython.Py_ssize_t = 7
    item: object
    text: bytes
    for item in values:
        total += 31  # an integer of 20 digits, and what an entry needs beside its text
        if isinstance(item, bytes):
            text = item
            total += len(text) - 20
    return total


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _is_after(
    scores: cython.p_double, items: list[Any], one: cython.Py_ssize_t, other: cython.Py_ssize_t,
    descending: cython.bint,
) -> cython.bint:
    """Return whether one item comes after another (sort.c: sortCompare)."""
    low: cython.double = scores[one]
    high: cython.double = scores[other]
    if low != high:
        return low < high if descending else low > high
    first: bytes = _text(items[one])
    second: bytes = _text(items[other])
    return first < second if descending else first > second


@cython.cfunc
def _text(item: object) -> bytes:
    """Return an item, or the text of an integer."""
    return item if isinstance(item, bytes) else decimal(item)


@cython.cfunc
def _merge(
    scores: cython.p_double, items: list[Any], source: cython.p_Py_ssize_t, target: cython.p_Py_ssize_t,
    start: cython.Py_ssize_t, middle: cython.Py_ssize_t, end: cython.Py_ssize_t, descending: cython.bint,
) -> cython.bint:
    """Merge two sorted runs of the source, [start, middle) and [middle, end), into the same place of the target."""
    left: cython.Py_ssize_t = start
    right: cython.Py_ssize_t = middle
    at: cython.Py_ssize_t = start
    while at < end:
        if right >= end or (
            left < middle and not _is_after(scores, items, source[left], source[right], descending)
        ):
            target[at] = source[left]
            left += 1
        else:
            target[at] = source[right]
            right += 1
        at += 1
    return True


@cython.ccall
def picked(items: list[Any], ordered: bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> list[Any]:
    """Return the items whose numbers are ordered[start:end]. O(end - start)"""
    assert start >= 0 and end <= len(items) and len(ordered) == 8 * len(items)
    order: cython.p_Py_ssize_t = integers_in(ordered)
    found: list[Any] = []
    i: cython.Py_ssize_t
    for i in range(start, end):
        found.append(items[order[i]])
    return found


# -- integers ----------------------------------------------------------------------------------------


@cython.cfunc
def sort_integers(
    kept: bytearray, spared: bytearray, count: cython.Py_ssize_t, descending: cython.bint
) -> cython.bint:
    """Sort the first `count` integers of an array; `spared` has the same size. O(n log n)"""
    if count > len(kept) >> 3 or len(spared) != len(kept):
        raise IndexError("the arrays have fewer integers")
    numbers: cython.p_Py_ssize_t = integers_in(kept)
    spare: cython.p_Py_ssize_t = integers_in(spared)
    swap: cython.p_Py_ssize_t
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    one: cython.Py_ssize_t
    width: cython.Py_ssize_t = _RUN
    flips: cython.Py_ssize_t = 0
    for i in range(count):  # sorted runs, by insertion
        k = i
        one = numbers[i]
        while k % _RUN and numbers[k - 1] > one:
            numbers[k] = numbers[k - 1]
            k -= 1
        numbers[k] = one
    while width < count:
        i = 0
        while i < count:
            _merge_integers(numbers, spare, i, min(i + width, count), min(i + 2 * width, count))
            i += 2 * width
        swap = numbers
        numbers = spare
        spare = swap
        flips += 1
        width *= 2
    if flips & 1:
        for i in range(count):
            spare[i] = numbers[i]
        numbers = spare
    if descending:
        for i in range(count >> 1):
            one = numbers[i]
            numbers[i] = numbers[count - 1 - i]
            numbers[count - 1 - i] = one
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _merge_integers(
    source: cython.p_Py_ssize_t, target: cython.p_Py_ssize_t,
    start: cython.Py_ssize_t, middle: cython.Py_ssize_t, end: cython.Py_ssize_t,
) -> cython.void:  # fmt: skip
    """Merge two sorted runs of the source, [start, middle) and [middle, end), into the same place of the target."""
    left: cython.Py_ssize_t = start
    right: cython.Py_ssize_t = middle
    at: cython.Py_ssize_t = start
    first: cython.bint
    while left < middle and right < end:
        first = source[left] <= source[right]  # no branch: the processor could not predict it
        target[at] = source[left] if first else source[right]
        left += first
        right += not first
        at += 1
    while left < middle:
        target[at] = source[left]
        left += 1
        at += 1
    while right < end:
        target[at] = source[right]
        right += 1
        at += 1


# -- by bytes ----------------------------------------------------------------------------------------


def sorted_by_keys(items: list[Any], keys: list[bytes], descending: bool) -> list[Any]:
    """Return the items in the order of their keys; those with equal keys keep their order. O(n log n)"""
    return list(map(items.__getitem__, sorted(range(len(items)), key=keys.__getitem__, reverse=descending)))


@cython.ccall
def partial_order(
    items: list[Any], keys: list[Any], first: cython.Py_ssize_t, last: cython.Py_ssize_t, descending: cython.bint
) -> list[Any]:
    """Return the items, of which those from `first` to `last` (included) are in place (pqsort.c: pqsort). O(n)"""
    order: list[Any] = list(range(len(items)))
    todo: list[Any] = [(0, len(items))]
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    while todo:
        place, length = todo.pop()
        for start, size in _partition(keys, order, place, length, descending):
            # A part of one element is in place, and so is a part that does not overlap the window, for the caller.
            if size > 1 and not (last < start or first >= start + size):
                todo.append((start, size))
    return [items[at] for at in order]


@cython.cfunc
@cython.exceptval(-2, check=False)
def _compare(
    keys: list[Any], order: list[Any], i: cython.Py_ssize_t, j: cython.Py_ssize_t, descending: cython.bint
) -> cython.int:
    """Return -1, 0 or 1 as the item at place i comes before, with or after that at place j."""
    one: bytes = keys[order[i]]
    other: bytes = keys[order[j]]
    if one == other:
        return 0
    return 1 if (one > other) != descending else -1


@cython.cfunc
def _exchange(order: list[Any], i: cython.Py_ssize_t, j: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.bint:
    """Exchange `count` places from i on with those from j on."""
    k: cython.Py_ssize_t
    for k in range(count):
        one: object = order[i + k]
        order[i + k] = order[j + k]
        order[j + k] = one
    return True


@cython.cfunc
def _median(
    keys: list[Any], order: list[Any], a: cython.Py_ssize_t, b: cython.Py_ssize_t, c: cython.Py_ssize_t,
    descending: cython.bint,
) -> cython.Py_ssize_t:
    """Return the place of the median of three, with pqsort's choice among equal ones (med3)."""
    if _compare(keys, order, a, b, descending) < 0:
        if _compare(keys, order, b, c, descending) < 0:
            return b
        return c if _compare(keys, order, a, c, descending) < 0 else a
    if _compare(keys, order, b, c, descending) > 0:
        return b
    return a if _compare(keys, order, a, c, descending) < 0 else c


@cython.cfunc
def _pivot(
    keys: list[Any], order: list[Any], start: cython.Py_ssize_t, size: cython.Py_ssize_t, descending: cython.bint
) -> cython.Py_ssize_t:
    """Return the place of the pivot: the middle, the median of three, or the median of three medians."""
    middle: cython.Py_ssize_t = start + size // 2
    if size <= 7:
        return middle
    low: cython.Py_ssize_t = start
    high: cython.Py_ssize_t = start + size - 1
    if size > 40:
        step: cython.Py_ssize_t = size // 8
        low = _median(keys, order, low, low + step, low + 2 * step, descending)
        middle = _median(keys, order, middle - step, middle, middle + step, descending)
        high = _median(keys, order, high - 2 * step, high - step, high, descending)
    return _median(keys, order, low, middle, high, descending)


@cython.cfunc
def _partition(
    keys: list[Any], order: list[Any], start: cython.Py_ssize_t, size: cython.Py_ssize_t, descending: cython.bint
) -> list[Any]:
    """Divide a part around its pivot; return what lies below and above it, each as (start, size).

    Items equal to the pivot collect at both ends (up to pa, from pd) and move to the middle at the end.
    """
    i: cython.Py_ssize_t
    end: cython.Py_ssize_t = start + size
    if size < 7:
        for i in range(start + 1, end):
            k: cython.Py_ssize_t = i
            while k > start and _compare(keys, order, k - 1, k, descending) > 0:
                _exchange(order, k, k - 1, 1)
                k -= 1
        return []
    _exchange(order, start, _pivot(keys, order, start, size, descending), 1)
    pa: cython.Py_ssize_t = start + 1
    pb: cython.Py_ssize_t = start + 1
    pc: cython.Py_ssize_t = end - 1
    pd: cython.Py_ssize_t = end - 1
    result: cython.int
    while True:
        while pb <= pc:
            result = _compare(keys, order, pb, start, descending)
            if result > 0:
                break
            if result == 0:
                _exchange(order, pa, pb, 1)
                pa += 1
            pb += 1
        while pb <= pc:
            result = _compare(keys, order, pc, start, descending)
            if result < 0:
                break
            if result == 0:
                _exchange(order, pc, pd, 1)
                pd -= 1
            pc -= 1
        if pb > pc:
            break
        _exchange(order, pb, pc, 1)
        pb += 1
        pc -= 1
    below: cython.Py_ssize_t = pb - pa
    above: cython.Py_ssize_t = pd - pc
    i = min(pa - start, below)
    _exchange(order, start, pb - i, i)
    i = min(above, end - pd - 1)
    _exchange(order, pb, end - i, i)
    return [(start, below), (end - above, above)]
