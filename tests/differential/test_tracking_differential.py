"""CLIENT TRACKING with random commands of several clients: each receives the bytes that the real server sends."""

from __future__ import annotations

import pytest

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.tracking import EngineClients, Generator, RealClients
from tests.judge import PEERS, Judge, required_binary, running_redis
from tests.variants import by_speed, seeds

CLIENTS = 4
STEPS = by_speed(400, 250, 600)


@pytest.mark.parametrize("seed", seeds(2, 8))
@pytest.mark.parametrize("compat", PEERS)
def test_clients_receive_the_messages_of_the_real_server(compat: str, seed: int) -> None:
    with running_redis(binary=required_binary(compat)) as judge:
        compare(judge, compat, seed)


def compare(judge: Judge, compat: str, seed: int) -> None:
    """Run the same random steps on both sides."""
    real = RealClients(judge, CLIENTS)
    local = EngineClients(Engine(Settings(compat=compat, dump_format="native")), real.ids)
    generator = Generator(seed, real.ids)
    history: list[str] = []
    assert real.run(0, [[b"FLUSHALL"]]) == local.run(0, [[b"FLUSHALL"]])
    for number in range(STEPS):
        at = generator.random.randrange(CLIENTS)
        if generator.random.random() < 0.02:
            history.append(f"client {at} is replaced")
            local.replace(at, real.replace(at))
            continue
        step = generator.step()
        history.append(f"client {at}: {step}")
        expected, received = real.run(at, step), local.run(at, step)
        if step[0][0] == b"HELLO":  # its reply names the modules of the server
            expected[at] = received[at] = b""
        assert received == expected, f"seed {seed}, step {number}\n" + "\n".join(history[-12:])
    real.close()
