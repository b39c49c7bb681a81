"""The first elements of a sorted list, in the order in which Redis's pqsort leaves equal ones (pqsort.c).

pqsort is a quicksort that ignores the partitions behind the wanted ones. It is not stable, so it decides which of
several equal elements come first: COUNT of GEOSEARCH, LIMIT of SORT. If no two elements near the result are equal, the
order has one possibility, and Python's sort finds it. Otherwise the quicksort runs here, step by step: Bentley and
McIlroy's ("Engineering a Sort Function", 1993), whose middle element depends on the size of a partition:

    fewer than 7     no partition: insertion
    7                the middle one
    8 to 40          the median of first, middle and last
    more             the median of three such medians

Costs: O(n log n).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Compare = Callable[[Any, Any], int]
"""Return a negative number, 0 or a positive one, as C's comparison functions do."""


def first_sorted(items: list[Any], key: Callable[[Any], Any], count: int, descending: bool = False) -> list[Any]:
    """Return the first `count` items by rising or falling keys; `items` has more than `count`. O(n log n)"""
    ordered = sorted(items, key=key, reverse=descending)
    if all(key(ordered[at]) != key(ordered[at + 1]) for at in range(count)):
        return ordered[:count]
    sign = -1 if descending else 1

    def compare(one: Any, other: Any) -> int:
        left, right = key(one), key(other)
        return sign if left > right else 0 if left == right else -sign

    mixed = items[:]
    partial_sort(mixed, compare, count)
    return mixed[:count]


def partial_sort(items: list[Any], compare: Compare, count: int) -> None:
    """Sort a list in place, as far as its first `count` elements need it."""
    _sort(items, compare, 0, len(items), count - 1)


def _sort(a: list[Any], compare: Compare, base: int, n: int, last: int) -> None:
    """Sort a[base : base + n], whose elements behind `last` may stay unsorted."""
    while True:
        if n < 7:
            _insertion(a, compare, base, n)
            return
        middle = _pivot(a, compare, base, n)
        a[base], a[middle] = a[middle], a[base]
        smaller, larger = _partition(a, compare, base, n)
        if smaller > 1 and last >= base:
            _sort(a, compare, base, smaller, last)
        base += n - larger
        n = larger
        if larger <= 1 or last < base:
            return


def _insertion(a: list[Any], compare: Compare, base: int, n: int) -> None:
    for start in range(base + 1, base + n):
        at = start
        while at > base and compare(a[at - 1], a[at]) > 0:
            a[at - 1], a[at] = a[at], a[at - 1]
            at -= 1


def _pivot(a: list[Any], compare: Compare, base: int, n: int) -> int:
    middle = base + n // 2
    if n == 7:
        return middle
    low, high = base, base + n - 1
    if n > 40:
        d = n // 8
        low = _median(a, compare, low, low + d, low + 2 * d)
        middle = _median(a, compare, middle - d, middle, middle + d)
        high = _median(a, compare, high - 2 * d, high - d, high)
    return _median(a, compare, low, middle, high)


def _median(a: list[Any], compare: Compare, x: int, y: int, z: int) -> int:
    if compare(a[x], a[y]) < 0:
        return y if compare(a[y], a[z]) < 0 else z if compare(a[x], a[z]) < 0 else x
    return y if compare(a[y], a[z]) > 0 else x if compare(a[x], a[z]) < 0 else z


def _partition(a: list[Any], compare: Compare, base: int, n: int) -> tuple[int, int]:
    """Partition by the first element; return how many are smaller and how many are larger.

    Equal elements collect at both ends and move to the middle at last.
    """
    left = at = base + 1
    right = down = base + n - 1
    while True:
        while at <= down and (result := compare(a[at], a[base])) <= 0:
            if result == 0:
                a[left], a[at] = a[at], a[left]
                left += 1
            at += 1
        while at <= down and (result := compare(a[down], a[base])) >= 0:
            if result == 0:
                a[down], a[right] = a[right], a[down]
                right -= 1
            down -= 1
        if at > down:
            break
        a[at], a[down] = a[down], a[at]
        at += 1
        down -= 1
    smaller, larger = at - left, right - down
    _exchange(a, base, at, min(left - base, smaller))
    _exchange(a, at, base + n, min(larger, base + n - 1 - right))
    return smaller, larger


def _exchange(a: list[Any], start: int, end: int, size: int) -> None:
    """Exchange the first `size` elements of a range with its last ones."""
    for at in range(size):
        a[start + at], a[end - size + at] = a[end - size + at], a[start + at]


__all__ = ["first_sorted", "partial_sort"]
