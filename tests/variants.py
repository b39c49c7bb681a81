"""The size of a test: fewer steps in the interpreted build, and the full number in `make test-long` alone."""

from __future__ import annotations

import os
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


def seeds(short: int, total: int, first: int = 0) -> list[Any]:
    """Return `total` seeds; those after the first `short` have the mark `long`."""
    return [*range(first, first + short), *long(*range(first + short, first + total))]
