"""The size of a test: fewer steps in the interpreted build, and the full number in `make test-long` alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

import pytest

import rillet

COMPILED = rillet.compiled()
LONG_RUN = "RILLET_EXAMPLES" in os.environ  # set by tools/test_long.py

# The mark of a slow test that is ordinary in the compiled build; interpreted, `make test-long` alone runs it.
long_interpreted = pytest.mark.slow if COMPILED else pytest.mark.long


def by_speed(compiled: int, interpreted: int, long: int | None = None) -> int:
    """Return the first size in the compiled build and the second in the interpreted one, which is ten times slower.

    `make test-long` takes the third, if there is one, in both.
    """
    if LONG_RUN and long is not None:
        return long
    return compiled if COMPILED else interpreted


def long(*values: Any) -> list[Any]:
    """Return parameters with the mark `long`; a tuple is the values of several names."""
    return [pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.long) for one in values]


def covering(*axes: Iterable[Any]) -> list[Any]:
    """Return all combinations of some values; those that `make test` does not need have the mark `long`.

    `make test` has each value of two axes, and each pair of values of three or more.
    """
    values = [list(axis) for axis in axes]
    rows = list(product(*(range(len(axis)) for axis in values)))
    parts = [{*combinations(enumerate(row), 1 if len(axes) < 3 else 2)} for row in rows]
    missing, short, often = set[Any]().union(*parts), set[int](), Counter[Any]()
    while missing:  # the next row has the most that is missing, and of those, what was chosen least often
        best = max(range(len(rows)), key=lambda at: (len(parts[at] & missing), -sum(often[one] for one in parts[at]),
                                                    -at))  # fmt: skip
        short.add(best)
        missing -= parts[best]
        often.update(parts[best])
    found = [tuple(axis[at] for axis, at in zip(values, row, strict=True)) for row in rows]
    chosen = [one for at, one in enumerate(found) if at in short]
    return chosen + long(*(one for at, one in enumerate(found) if at not in short))


def seeds(short: int, total: int, first: int = 0) -> list[Any]:
    """Return `total` seeds; those after the first `short` have the mark `long`."""
    return [*range(first, first + short), *long(*range(first + short, first + total))]
