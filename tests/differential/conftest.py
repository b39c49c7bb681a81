"""A server of each judge, which logs what it is told; and values that go to rest after each command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rillet.keyspace import database
from tests.judge import PEERS, Judge, required_binary, running_redis

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always", "--notify-keyspace-events", "KEA")


@pytest.fixture(scope="module", params=PEERS)
def writer(request: pytest.FixtureRequest) -> Iterator[tuple[str, Judge]]:
    """A server of each compat that is at hand, which logs; how, a module may say (LOGGING)."""
    binary = required_binary(request.param)
    with running_redis(*getattr(request.module, "LOGGING", ALWAYS), binary=binary) as server:
        yield request.param, server


@pytest.fixture(autouse=True)
def values_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep one small value awake, so that commands find nearly all values at rest."""
    monkeypatch.setattr(database, "AWAKE_LIMIT", 1)
