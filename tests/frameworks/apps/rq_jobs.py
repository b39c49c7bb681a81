"""Jobs of RQ."""

from __future__ import annotations

from tests.frameworks.apps.counting import fails_once

_RUNS: list[int] = []


def add(one: int, other: int) -> int:
    """Return the sum."""
    return one + other


def flaky() -> int:
    """Fail at the first run, in whichever worker."""
    return fails_once("rq")


def flaky_here() -> int:
    """Fail at the first run in this process."""
    _RUNS.append(1)
    if len(_RUNS) == 1:
        raise RuntimeError("the first run fails")
    return len(_RUNS)


def broken() -> None:
    """Always fail."""
    raise ValueError("broken")
