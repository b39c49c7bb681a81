"""Faults of stores while the models of delays, of the order by key and of partitions run: kills, and clocks that jump.

The models are those of test_delay_model, test_order_model and partitions/test_model, with their ledgers. Here a fault
comes between any two commands, by chance:

    a kill        the process of the store ends by SIGKILL, and another one reads its log
    a jump        its clock goes forward, or back
    a lost reply  a command is executed, and the store is killed before the consumer receives its reply. That consumer
                  ends there, as a worker does that is killed, and the ledger expects either outcome

The places, each a store with these faults:

    Server        redis-server, or `rillet serve`, with appendfsync always: what it has acknowledged survives.
                  libfaketime adds an offset to its clock, which the test writes to a file
    Clock         a store in memory with a StoreClock, which is set back here; it cannot be killed
    Owner         a directory that another process owns, which is killed once in a round: then this process owns it
    Cluster       three redis-servers with appendfsync always, of which one at a time is killed and started again.
                  Each has its own clock: what is due is due by the clock of the node that has the stream
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from glob import glob
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pytest

import rillet
from rillet import InvalidEntry, OutcomeUnknown, Store
from rillet.client.cluster import SLOTS, slot_of
from rillet.testing.clock import StoreClock
from tests.cluster import MASTERS, Node, running_cluster, settled
from tests.judge import await_ready, free_port, redis_binary
from tests.store import test_delay_model, test_order_model
from tests.store.partitions import test_model
from tests.store.process import Other

LIBRARY = next(iter(glob("/usr/lib/*/faketime/libfaketime.so.1")), None)
MODELS: dict[str, Any] = {"delays": test_delay_model, "order": test_order_model, "partitions": test_model}
KEY = b"{a}jobs}"  # the stream of the models of delays and of the order
SECOND = 0.999  # a second of the models where clocks jump; below 1 they expect that time passes between two commands


class Place(Protocol):
    """A store with faults.

    unit: a second of the models, in seconds. backward: whether its clock can go back. odds: one command in so many
    meets a fault of each kind. kills: how often it was killed.
    """

    unit: float
    backward: bool
    odds: int
    kills: int

    def opened(self, random: Random) -> Any:
        """Return the empty store of a round, as a context manager."""

    def now(self, key: bytes = KEY) -> float:
        """Return the time of its clock, in seconds since 1970; of a cluster, that of the node that has the key."""

    def latest(self) -> float:
        """Return the greatest time of its clocks."""

    def jump(self, seconds: float) -> None:
        """Let the time pass, or set the clock back."""

    def kill(self) -> None:
        """End the process of the store; return when there is another one."""


class FakeClock:
    """A clock of a process, that of the machine and an offset, by libfaketime. place: a file with the offset."""

    def __init__(self, place: Path) -> None:
        self._place, self._offset = place, 0.0
        self.jump(0.0)

    def environment(self) -> dict[str, str]:
        """Return the variables of a process with this clock."""
        assert LIBRARY is not None
        # jemalloc reads the clock before libfaketime can begin; with the C library in front, its malloc is used.
        # Without its "monotonic fix", libfaketime leaves the waits of Python's threads alone, which it makes very slow.
        return {
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "LD_PRELOAD": f"{LIBRARY}:libc.so.6", "FAKETIME_TIMESTAMP_FILE": str(self._place),
            "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip

    def jump(self, seconds: float) -> None:
        """Change the offset."""
        self._offset += seconds
        new = self._place.with_suffix(".new")
        new.write_text(f"{self._offset:+.3f}\n")
        new.replace(self._place)

    def now(self) -> float:
        """Return its time, in seconds since 1970."""
        return time.time() + float(f"{self._offset:.3f}")


class Server:
    """A redis-server, or a `rillet serve`, that survives its kills, with a clock that jumps."""

    unit, backward = SECOND, True

    def __init__(self, folder: Path, rillets: bool = False) -> None:
        self.folder, self.port, self._clock = folder, free_port(), FakeClock(folder / "offset")
        self.kills, self.odds = 0, 1000 if rillets else 200  # Python starts slowly
        binary = redis_binary()
        assert binary is not None
        self._program = [sys.executable, "-m", "rillet", "serve"] if rillets else [binary]
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [*self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
             "--appendonly", "yes", "--appendfsync", "always"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **self._clock.environment()},
        )  # fmt: skip
        await_ready(self.port, self._process)

    @contextmanager
    def opened(self, random: Random) -> Iterator[Store]:
        with rillet.connect(f"redis://127.0.0.1:{self.port}") as store:
            store.execute("FLUSHALL")
            yield store

    def kill(self) -> None:
        self.kills += 1
        self.end()
        self._start()

    def end(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=60)

    def jump(self, seconds: float) -> None:
        self._clock.jump(seconds)

    def now(self, key: bytes = KEY) -> float:
        return self._clock.now()

    latest = now


class Clock:
    """A store in memory with a clock that the test sets."""

    unit, backward, odds, kills = SECOND, True, 200, 0

    @contextmanager
    def opened(self, random: Random) -> Iterator[Store]:
        self._clock = StoreClock(1_700_000_000)
        with self._clock.open() as store:
            yield store

    def now(self, key: bytes = KEY) -> float:
        return self._clock.time()

    latest = now

    def jump(self, seconds: float) -> None:
        self._clock._move(round(seconds * 1000))

    def kill(self) -> None:
        pass


class Real:
    """A store with the clock of the machine: a second of the models takes three milliseconds."""

    unit, backward, odds, kills = 0.003, False, 200, 0

    def __init__(self, store: Store | None = None) -> None:
        self.store = store

    @contextmanager
    def opened(self, random: Random) -> Iterator[Store]:
        assert self.store is not None
        self.store.execute("FLUSHALL")
        yield self.store

    def now(self, key: bytes = KEY) -> float:
        return time.time()

    latest = now

    def jump(self, seconds: float) -> None:
        until = time.time() + seconds
        while time.time() < until:
            pass

    def kill(self) -> None:
        pass


class Owner(Real):
    """A directory that another process owns, which is killed once in a round."""

    @contextmanager
    def opened(self, random: Random) -> Iterator[Store]:
        folder = Path(tempfile.mkdtemp(prefix="rillet-owner-"))
        self._owner: Other | None = Other(folder / "store.rillet")
        try:
            with rillet.open(folder / "store.rillet") as store:
                assert not store.owner
                yield store
        finally:
            if self._owner is not None:
                self._owner.end()
            shutil.rmtree(folder, ignore_errors=True)

    def kill(self) -> None:
        if self._owner is not None:
            self._owner.kill()
            self._owner = None
            self.kills += 1


class Cluster:
    """Three redis-servers that survive their kills, each with a clock that jumps."""

    unit, backward, odds = SECOND, True, 200

    def __init__(self) -> None:
        self.kills = 0
        self._random = Random(0)
        self._clocks: dict[int, FakeClock] = {}
        self._stack = ExitStack()
        # The nodes' patience is measured by their clocks, so it must be longer than the jumps of a round.
        self._cluster = self._stack.enter_context(
            running_cluster(durable=True, environment=self._environment, node_timeout_ms=24 * 3600 * 1000)
        )
        self._store = self._stack.enter_context(rillet.connect(self._cluster.url))

    def _environment(self, node: Node) -> dict[str, str]:
        if node.number not in self._clocks:
            self._clocks[node.number] = FakeClock(node.folder / "offset")
        return self._clocks[node.number].environment()

    @contextmanager
    def opened(self, random: Random) -> Iterator[Store]:
        self._random = Random(random.random())
        self._cluster.flush()
        for clock in self._clocks.values():
            clock.jump(time.time() - clock.now() + self._random.choice((0, 0, 0.5, -0.5, 5, -5, 40, -40)))
        yield self._store

    def now(self, key: bytes = KEY) -> float:
        return self._clocks[min(slot_of(key) // (SLOTS // MASTERS), MASTERS - 1)].now()

    def latest(self) -> float:
        return max(clock.now() for clock in self._clocks.values())

    def jump(self, seconds: float) -> None:
        for clock in self._clocks.values():
            clock.jump(seconds * self._random.choice((1, 1, 1, 0.5, 2)))

    def kill(self) -> None:
        node = self._random.choice(self._cluster.nodes)
        self.kills += 1
        self._cluster.kill(node)
        self._cluster.start(node)
        self._clocks[node.number].jump(2.5)  # a master serves two seconds after its start, by its clock
        self._cluster.wait(lambda: settled(self._cluster), "the cluster serves all slots")

    def end(self) -> None:
        self._stack.close()


class Faults:
    """What happens to a store during a round."""

    def __init__(self, place: Place, random: Random) -> None:
        self.place, self.random = place, random
        self.on, self.in_step = True, False
        self.model: Any = None

    def advance(self, seconds: float) -> None:
        """Let time pass; during a round, the clock may also go back.

        What was due before may have been moved or claimed then, so it may be handed out although it is not due again.
        """
        if not (self.on and self.place.backward) or self.random.randrange(3):
            self.place.jump(seconds)
            return
        now, latest, model = self.place.now() + 0.002, self.place.latest() + 0.002, self.model
        if not isinstance(model, test_order_model.Model):
            model.dues = {n: 0.0 if due <= latest else due for n, due in model.dues.items()}
        at = getattr(model, "at", {})
        model.held = {n: until for n, until in model.held.items() if until > self.place.now(at.get(n, KEY)) + 0.002}
        if isinstance(model, test_order_model.Model):
            model.leases = {n: lease for n, lease in model.leases.items() if lease[1] > now}
        elif isinstance(model, test_delay_model.Model):
            shortest = test_delay_model.LEASES[0] * model.unit
            model.leases = {n: lease for n, lease in model.leases.items() if lease[1] + shortest > now}
        self.place.jump(-seconds)
        now = self.place.now()
        if isinstance(model, test_delay_model.Model):
            # The same consumer may renew a lease that began in the future, and a server that starts ends it earlier.
            model.leases = {n: (name, min(since, now)) for n, (name, since) in model.leases.items()}
        if model.actors and hasattr(model.actors[0], "since"):  # a batch may be checked in the past of its first check
            for actor in model.actors:
                actor.since = min(actor.since, now)

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs commands, with kills before and after them."""

        def run(*arguments: Any, **options: Any) -> Any:
            dice = self.random.randrange(self.place.odds) if self.on else -1
            if dice == 0:
                self.place.kill()
            reply = function(*arguments, **options)
            if dice == 1:
                self.place.kill()
            elif dice == 2 and self.in_step:
                self.place.kill()
                raise OutcomeUnknown("the store was killed before its reply arrived")
            return reply

        return run

    def stepped(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return Actor.step, which ends an actor whose reply was lost."""

        def step(actor: Any) -> None:
            self.in_step = True
            try:
                function(actor)
            except OutcomeUnknown:
                for message in actor.failed[:1]:  # its retry may have replaced the longer time of an extension
                    actor.model.held.pop(message["n"], None)
                    getattr(actor.model, "leases", {}).pop(message["n"], None)
                if isinstance(actor.next, InvalidEntry):  # the command of Model.invalid
                    actor.model.finished(actor.next.entry["n"])
                actor.model.actors.remove(actor)
                actor.steps.close()
                if hasattr(actor.model, "freed"):
                    actor.model.freed(actor.name)
            finally:
                self.in_step = False

        return step


@contextmanager
def _looking(module: Any, model: Any) -> Iterator[None]:
    with module._clock(model) if module is test_model else module._always_looking():
        yield


def play(place: Place, module: Any, seed: object, steps: int = 150) -> None:
    """Play a round of a model on a store with faults."""
    random = Random(f"{module.__name__} {seed}")
    faults = Faults(place, random)
    with place.opened(random) as store, pytest.MonkeyPatch.context() as patch:
        if hasattr(module, "BACKOFF"):
            patch.setattr(module, "BACKOFF", 4 * place.unit)
        model = faults.model = module.Model(store, random, place.now, faults.advance, place.unit)
        for name in ("run", "run_many"):
            patch.setattr(Store, name, faults.wrapped(getattr(Store, name)))
        patch.setattr(module.Actor, "step", faults.stepped(module.Actor.step))
        with _looking(module, model):
            model.run(steps)
            faults.on = False
            model.finish()


__all__ = ["LIBRARY", "MODELS", "Clock", "Cluster", "Faults", "Owner", "Place", "Real", "Server", "play"]
