"""Fixtures shared by all tests: the judge, and the mode (interpreted or compiled) that was asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.judge import Judge, redis_binary, running_redis


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """A redis-server of the whole session; use its FLUSHALL freely."""
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_redis() as server:
        yield server
