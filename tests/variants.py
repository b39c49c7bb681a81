"""Parameters of a test that only `make test-long` runs: a test keeps a few variants in `make test`."""

from __future__ import annotations

from typing import Any

import pytest


def long(*values: Any) -> list[Any]:
    """Return parameters with the mark `long`; a tuple is the values of several names."""
    return [pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.long) for one in values]


def seeds(short: int, total: int, first: int = 0) -> list[Any]:
    """Return `total` seeds; those after the first `short` have the mark `long`."""
    return [*range(first, first + short), *long(*range(first + short, first + total))]
