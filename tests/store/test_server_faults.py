"""The models of delays, of the order by key and of partitions while stores are killed and their clocks jump."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rillet
from tests.judge import redis_binary
from tests.store import rounds
from tests.store.faults import LIBRARY, MODELS, Clock, Server, play

needs_faketime = pytest.mark.skipif(
    LIBRARY is None or redis_binary() is None, reason="the packages faketime and redis-server are not installed"
)


@pytest.fixture(scope="module", params=[False, True], ids=["redis", "rillet"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("faults"), request.param)
    yield server
    server.end()


@needs_faketime
@pytest.mark.slow
def test_the_clock_of_a_server_jumps_and_a_kill_loses_nothing(server: Server) -> None:
    with rillet.connect(f"redis://127.0.0.1:{server.port}") as store:
        for seconds in (50.0, -80.0, 30.0):
            server.jump(seconds)
            found = int(store.execute("TIME")[0])
            assert abs(found - server.now()) < 5
        store.execute("SET", "a", "1")
        server.kill()
        assert store.execute("GET", "a") == b"1"


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_lost_early_or_out_of_order_when_the_clock_of_the_store_jumps(model: str) -> None:
    for seed in range(3):
        play(Clock(), MODELS[model], seed)


@pytest.mark.slow
def test_the_program_counts_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert rounds.main(["--rounds", "1", "--kind", "clock", "--kind", "memory", "--seed", "1"]) == 0
    assert "order: 2 rounds: clock 1 (kills: 0), memory 1 (kills: 0)\n" in capsys.readouterr().out
