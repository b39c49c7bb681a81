"""One round: a plan for each process, made from a seed; the calls; the law."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace

from tests.model import kinds
from tests.model.actors import IN_MAIN_THREAD, ROLES, Actor, Plan, Watchdog, merge_orphans, run_plan
from tests.model.history import History
from tests.model.kinds import World
from tests.model.law import State, read_state, to_drain, violations
from tests.model.operations import GROUP

CALLS = 25  # of an actor in a round
ROUNDS_OF_A_WORLD = 25


class Round:
    """A round of a world. After `run`, `problems` has what contradicts the law."""

    def __init__(self, world: World, seed: int, calls: int = CALLS, roles: Sequence[str] = ROLES) -> None:
        self.world = world
        self.seed = seed
        source = random.Random(seed)
        self._calls = calls
        self._roles = roles
        self.prefix = f"m{seed}:"
        actors = self._actors(source, "p")
        self.kills = source.randint(1, world.kills) if world.kills and source.random() < 0.3 else 0
        self._of_kills = random.Random(source.getrandbits(40))
        self.plan = Plan(self.prefix, actors, world.folder, world.separate_after_fork, self.kills > 0)
        self.of_workers = [
            replace(self.plan, actors=self._actors(source, f"w{number}", 2)) for number in range(len(world.workers))
        ]
        self.history = History(disturbed=self.kills > 0)
        self.final: State | None = None  # the data at the end
        self.problems: list[str] = []

    def _actors(self, source: random.Random, name: str, most: int = 4) -> tuple[Actor, ...]:
        roles = [source.choice(self._roles) for _ in range(source.randint(min(2, most), most))]
        if "lines" in roles:
            # CPython 3.11 spins at the beginning of a profiled function while an exception waits for another thread.
            roles = [role for role in roles if role not in ("interrupted", "raising", "nesting")]
        main = [role for role in roles if role in IN_MAIN_THREAD]
        for role in main[1:]:  # there is one main thread
            roles.remove(role)
        return tuple(
            Actor(f"{name}{number}", role, source.getrandbits(40), self._calls) for number, role in enumerate(roles)
        )

    @property
    def actors(self) -> list[str]:
        """The names under which calls are recorded."""
        return [name for plan in (self.plan, *self.of_workers) for actor in plan.actors for name in actor.names()]

    def run(self, watchdog: Watchdog | None = None) -> list[str]:
        """Run the round and return what contradicts the law."""
        world, history = self.world, self.history
        world.prepare(self.plan.keys)
        if watchdog is not None:
            watchdog.history = history
        journals = [world.folder / f"journal-{self.seed}-{number}" for number in range(len(world.workers))]
        workers = list(world.workers)
        for worker, plan, journal in zip(workers, self.of_workers, journals, strict=True):
            worker.begin(plan, journal)
        killing = threading.Thread(target=self._kill, name="kills the owner")
        if self.kills:
            killing.start()
        run_plan(world.store, self.plan, history)
        if self.kills:
            killing.join()
        for worker in workers:
            if worker in world.workers:
                try:
                    worker.wait()
                except AssertionError as error:
                    history.violate(str(error))
                    world.ended = True
        for journal in journals:
            history.merge(journal)
        merge_orphans(world.folder, history)
        if watchdog is not None:
            watchdog.history = None
        self._judge()
        return self.problems

    def _kill(self) -> None:
        try:
            for _ in range(self.kills):
                time.sleep(self._of_kills.uniform(0.0, 0.15))
                self.world.kill(self._of_kills)
        except BaseException as error:
            self.history.violate(f"killing the owner: {''.join(traceback.format_exception(error))}")

    def _judge(self) -> None:
        calls, store = self.history.calls, self.world.store
        self.problems += self.history.violations
        state = read_state(store, self.plan.keys, self.actors)
        self.problems += violations(calls, state)
        required, allowed = to_drain(calls, state)
        got: set[str] = set()
        consumer = store.stream(self.plan.keys.stream).group(GROUP).consumer("drain")
        for message in consumer.messages(claim_idle=0.0, stop_when_empty=True):
            got.add(str(message.id))
            message.ack()
        if required - got:
            self.problems.append(f"group: a consumer that claims everything did not get {sorted(required - got)}")
        if got - allowed:
            self.problems.append(f"group: delivered again although they were acknowledged: {sorted(got - allowed)}")
        self.final = read_state(store, self.plan.keys, self.actors)
        self._complain()

    def _complain(self) -> None:
        complaint = self.world.complaint()
        if complaint:
            self.problems.append(complaint)

    def reopen(self) -> list[str]:
        """Close the store, open its files again, and return what is missing or has changed."""
        store = self.world.reopened()
        if store is None or self.final is None:
            return []
        with store:
            found = read_state(store, self.plan.keys, self.actors)
        self._complain()
        if found != self.final:
            self.problems.append(f"after opening the files again: {found}, not {self.final}")
        return self.problems

    def clean(self) -> None:
        """Delete the keys of the round."""
        with contextlib.suppress(Exception):
            self.world.store.delete(*self.world.store.keys(f"{self.prefix}*"))


def world_of(kind: str, seed: int) -> tuple[World, object]:
    """Return a world for the rounds from a seed on, and the function that removes it."""
    return kinds.new_world(kind, random.Random(seed))


__all__ = ["CALLS", "ROUNDS_OF_A_WORLD", "Round", "world_of"]
