"""Field expiry while time moves: the same replies, events, counters, payloads and logs as each server.

See moving_fields.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.moving_fields import LOGGING, FieldComparison
from tests.differential.moving_time import TimedServer, library, server
from tests.judge import required_binary
from tests.variants import by_speed, seeds

STEPS = by_speed(500, 500, 700)


@pytest.fixture(scope="module", params=["7.4", "8.0", "8.2", "8.6", "newest", "valkey"])
def timed(request: pytest.FixtureRequest) -> Iterator[tuple[str, TimedServer]]:
    """A server with field expiry, whose clock a test moves."""
    if library() is None:
        pytest.skip("libfaketime is not installed (Debian: faketime)")
    with server(request.param, required_binary(request.param), *LOGGING) as one:
        yield request.param, one


@pytest.mark.parametrize("seed", seeds(1, 2, 40))
def test_replies_events_and_logs_are_the_server_s(timed: tuple[str, TimedServer], seed: int) -> None:
    compat, one = timed
    comparison = FieldComparison(one, compat, seed)
    comparison.run(STEPS)
    assert len(comparison.done) >= STEPS // 2
