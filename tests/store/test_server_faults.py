"""Delays, the order by key and partitions while redis-server is killed, and while its clock goes forward and back.

The models are those of test_delay_model, test_order_model and partitions/test_model, with their ledgers. Here the store
is a genuine redis-server with `appendonly yes` and `appendfsync always`, so what it has acknowledged survives. Between
any two commands it may be killed with SIGKILL, and started again from its log. Between two steps its clock may jump in
both directions: libfaketime adds an offset, which the test writes to a file. A reply to a consumer may be lost with the
server: that consumer ends there, as a worker does that is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from random import Random
from typing import Any

import pytest

import rillet
from rillet import OutcomeUnknown, Store
from tests.judge import await_ready, free_port, redis_binary
from tests.store import test_delay_model, test_order_model
from tests.store.partitions import test_model

UNIT = 0.999  # seconds of the models; below 1 they expect that time passes between two commands
LIBRARY = next(iter(glob("/usr/lib/*/faketime/libfaketime.so.1")), None)
MODELS: tuple[Any, ...] = (test_delay_model, test_order_model, test_model)

pytestmark = pytest.mark.skipif(LIBRARY is None, reason="the package faketime is not installed")


class Server:
    """A redis-server that survives its kills, with a clock that jumps."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.offset = folder, free_port(), 0.0
        self.kills = 0
        self._start()

    def _start(self) -> None:
        self.jump(0.0)
        binary = redis_binary()
        assert binary is not None
        assert LIBRARY is not None
        # jemalloc reads the clock before libfaketime can begin; with the C library in front, its malloc is used.
        clock = {
            "LD_PRELOAD": f"{LIBRARY}:libc.so.6", "FAKETIME_TIMESTAMP_FILE": str(self.folder / "offset"),
            "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip
        self._process = subprocess.Popen(
            [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
             "--appendonly", "yes", "--appendfsync", "always"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **clock},
        )  # fmt: skip
        await_ready(self.port, self._process)

    def kill(self) -> None:
        """Kill the server, and start it again."""
        self.kills += 1
        self.end()
        self._start()

    def end(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=60)

    def jump(self, seconds: float) -> None:
        """Set the clock forward, or back."""
        self.offset += seconds
        place = self.folder / "offset"
        place.with_suffix(".new").write_text(f"{self.offset:+.3f}\n")
        place.with_suffix(".new").replace(place)

    def now(self) -> float:
        """Return the time of its clock, in seconds since 1970."""
        return time.time() + float(f"{self.offset:.3f}")


class Faults:
    """What happens to the server during a round."""

    def __init__(self, server: Server, random: Random) -> None:
        self.server, self.random = server, random
        self.on, self.in_step = True, False
        self.model: Any = None

    def advance(self, seconds: float) -> None:
        """Let time pass; during a round, the clock may also go back.

        What was due before may have been moved or claimed then, so it may be handed out although it is not due again.
        """
        if not self.on or self.random.randrange(3):
            self.server.jump(seconds)
            return
        now, model = self.server.now() + 0.002, self.model
        if not isinstance(model, test_order_model.Model):
            model.dues = {n: 0.0 if due <= now else due for n, due in model.dues.items()}
        model.held = {n: until for n, until in model.held.items() if until > now}
        if isinstance(model, test_order_model.Model):
            model.leases = {n: lease for n, lease in model.leases.items() if lease[1] > now}
        self.server.jump(-seconds)

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs commands, with kills before and after them."""

        def run(*arguments: Any, **options: Any) -> Any:
            dice = self.random.randrange(200) if self.on else -1
            if dice == 0:
                self.server.kill()
            reply = function(*arguments, **options)
            if dice == 1:
                self.server.kill()
            elif dice == 2 and self.in_step:
                self.server.kill()
                raise OutcomeUnknown("the server was killed before its reply arrived")
            return reply

        return run

    def stepped(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return Actor.step, which ends an actor whose reply was lost."""

        def step(actor: Any) -> None:
            self.in_step = True
            try:
                function(actor)
            except OutcomeUnknown:
                actor.model.actors.remove(actor)
                actor.steps.close()
                if hasattr(actor.model, "freed"):
                    actor.model.freed(actor.name)
            finally:
                self.in_step = False

        return step


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("faults"))
    yield server
    server.end()


@contextmanager
def _looking(module: Any, model: Any) -> Iterator[None]:
    with module._clock(model) if module is test_model else module._always_looking():
        yield


def _round(server: Server, module: Any, seed: object, steps: int = 150) -> None:
    random = Random(f"{module.__name__} {seed}")
    faults = Faults(server, random)
    with rillet.connect(f"redis://127.0.0.1:{server.port}") as store, pytest.MonkeyPatch.context() as patch:
        store.execute("FLUSHALL")
        model = faults.model = module.Model(store, random, server.now, faults.advance, UNIT)
        for name in ("run", "run_many"):
            patch.setattr(Store, name, faults.wrapped(getattr(Store, name)))
        patch.setattr(module.Actor, "step", faults.stepped(module.Actor.step))
        with _looking(module, model):
            model.run(steps)
            faults.on = False
            model.finish()


def test_the_clock_of_the_server_jumps(server: Server) -> None:
    with rillet.connect(f"redis://127.0.0.1:{server.port}") as store:
        for seconds in (50.0, -80.0, 30.0):
            server.jump(seconds)
            found = int(store.execute("TIME")[0])
            assert abs(found - server.now()) < 5
        store.execute("SET", "a", "1")
        server.kill()
        assert store.execute("GET", "a") == b"1"


@pytest.mark.long
@pytest.mark.parametrize("module", MODELS, ids=lambda module: module.__name__.split(".")[-1])
def test_nothing_is_lost_early_or_out_of_order(server: Server, module: Any) -> None:
    for seed in range(2):
        _round(server, module, seed)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("module", MODELS, ids=lambda module: module.__name__.split(".")[-1])
def test_many_rounds(server: Server, module: Any) -> None:
    before = server.kills
    for seed in range(300):
        _round(server, module, seed)
    assert server.kills - before > 300
