"""Fixtures shared by all tests: the judge, and the speed (interpreted or compiled) that was asked for.

`make test` runs the suite twice and says through the environment which build it means, so that a run which
silently loaded the other one fails instead of proving nothing:

    RILLET_EXPECT=compiled|interpreted   the build that must be the one imported
    RILLET_NO_CYTHON=1                   Cython is made unimportable, as it is where rillet runs and nobody builds
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if os.environ.get("RILLET_NO_CYTHON"):
    sys.modules["cython"] = None  # type: ignore[assignment]  # import now raises ModuleNotFoundError

import rillet
from rillet._compiled import by_speed
from tests.judge import Judge, redis_binary, running_redis


def pytest_configure() -> None:
    """Refuse to run against another build than the one asked for."""
    expected = os.environ.get("RILLET_EXPECT")
    if expected is None:
        return
    compiled, interpreted = by_speed()
    wrong = {"compiled": interpreted, "interpreted": compiled}.get(expected)
    if wrong is None:
        raise pytest.UsageError(f"RILLET_EXPECT is {expected!r}, neither compiled nor interpreted")
    if wrong:
        raise pytest.UsageError(f"RILLET_EXPECT is {expected}, but these are not, in {_package()}: {', '.join(wrong)}")


def pytest_report_header() -> str:
    """Say which build is tested."""
    shim = " with Cython blocked" if os.environ.get("RILLET_NO_CYTHON") else ""
    return f"rillet {rillet.__version__} {'compiled' if rillet.compiled() else 'interpreted'}{shim}, {_package()}"


def _package() -> Path:
    return Path(rillet.__file__).parent


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """A redis-server of the whole session; use its FLUSHALL freely."""
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_redis() as server:
        yield server
