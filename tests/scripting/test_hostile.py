"""Random hostile scripts (tests.scripting.hostile): a few in each run, many in `make test-long`."""

from __future__ import annotations

import resource

import pytest

from tests.scripting.hostile import run
from tests.variants import seeds


@pytest.mark.parametrize("seed", seeds(1, 2))
def test_hostile_scripts_harm_only_themselves(seed: int) -> None:
    assert run(200, seed) == 200


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_hundred_thousand_hostile_scripts() -> None:
    assert run(100_000, 7) == 100_000


def _resident() -> int:
    """Return the bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_memory_stays_bounded_over_hostile_scripts() -> None:
    """The caches of the interpreter are full after a few thousand scripts; more scripts need no more memory."""
    run(4000, 8)
    before = _resident()
    run(20_000, 9)
    assert _resident() < before * 5 // 4
