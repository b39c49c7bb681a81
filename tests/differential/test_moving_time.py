"""Expiry while time moves: the same replies, events, idle times and counters as each server. See moving_time.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.moving_time import Comparison, TimedServer, library, server
from tests.judge import PEERS, required_binary
from tests.variants import by_speed, seeds

STEPS = by_speed(800, 800, 1500)


@pytest.fixture(scope="module", params=PEERS)
def timed(request: pytest.FixtureRequest) -> Iterator[tuple[str, TimedServer]]:
    """A server of each compat that is at hand, whose clock a test moves."""
    if library() is None:
        pytest.skip("libfaketime is not installed (Debian: faketime)")
    with server(request.param, required_binary(request.param)) as one:
        yield request.param, one


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_replies_and_events_are_the_server_s(timed: tuple[str, TimedServer], seed: int) -> None:
    compat, one = timed
    comparison = Comparison(one, compat, seed)
    comparison.run(STEPS)
    assert len(comparison.done) >= STEPS
