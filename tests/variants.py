"""The size of a test: fewer steps in the interpreted build, and parameters that only `make test-long` runs."""

from __future__ import annotations

from typing import Any

import pytest

import rillet


def by_speed(compiled: int, interpreted: int) -> int:
    """Return the first size in the compiled build and the second in the interpreted one, which is ten times slower."""
    return compiled if rillet.compiled() else interpreted


def long(*values: Any) -> list[Any]:
    """Return parameters with the mark `long`; a tuple is the values of several names."""
    return [pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.long) for one in values]


def seeds(short: int, total: int, first: int = 0) -> list[Any]:
    """Return `total` seeds; those after the first `short` have the mark `long`."""
    return [*range(first, first + short), *long(*range(first + short, first + total))]
