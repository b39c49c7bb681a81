"""Actors: threads and tasks of one process that make calls at the same time, each interrupted in its way.

thread        calls in a thread
interrupted   another thread raises exceptions in its calls
lines         an exception is raised in the n-th place of each call where Python can raise one
raising       the main thread; a signal handler raises in its calls
nesting       the main thread; a signal handler makes calls inside its calls
forking       forks between its calls; the children make calls
tasks         three asyncio tasks whose calls are cancelled, or limited by a timeout
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import fcntl
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rillet import Store
from rillet.errors import Loading, NestedCall, NotSent, OutcomeUnknown, TransactionConflict
from rillet.store.aio import AsyncStore
from tests.model.history import Call, History, Outcome
from tests.model.interrupts import AtPlace, FromHandler, FromThread, Undisturbed, quiet
from tests.model.operations import Choices, Keys, Step

LIMIT = 30.0  # seconds after which a call waits forever
TASKS = 3
ROLES = ("thread", "interrupted", "lines", "raising", "nesting", "forking", "tasks")
IN_MAIN_THREAD = ("raising", "nesting")
# The error says that nothing was executed. Loading: on a busy machine, a server that restarts loads for too long.
_REJECTED = (Loading, NestedCall, NotSent, TransactionConflict)


@dataclass(frozen=True)
class Actor:
    """What an actor does in a round: its name, its role, the seed of its choices, and how many calls it makes."""

    name: str
    role: str
    seed: int
    calls: int
    only: tuple[str, ...] | None = None  # names of operations

    def names(self) -> list[str]:
        """Return the names under which its calls are recorded."""
        if self.role == "tasks":
            return [f"{self.name}.{number}" for number in range(TASKS)]
        extra = {"nesting": ["inner"], "forking": ["child", "parent"]}.get(self.role, [])
        return [self.name, *(f"{self.name}.{word}" for word in extra)]


@dataclass(frozen=True)
class Plan:
    """The actors of one process in one round."""

    prefix: str
    actors: tuple[Actor, ...]
    folder: Path  # for journals
    separate_after_fork: bool = False  # a forked child has a copy of the data
    disturbed: bool = False  # the owner or server is killed meanwhile

    @property
    def keys(self) -> Keys:
        """The keys of the round."""
        return Keys(self.prefix)


def _call_of(choices: Choices, step: Step, number: int) -> Call:
    return Call(choices.actor, number, step.name, step.place, step.tokens, step.may_take)


def _returned(history: History, call: Call, step: Step, reply: Any) -> None:
    """Record a call that returned, and check that the reply belongs to it."""
    result = step.plain(reply)
    history.end(call, Outcome.DONE, result)
    if step.afterwards is not None:
        step.afterwards(result)
    if step.expected is not None:
        try:
            step.expected(result)
        except AssertionError as error:
            history.violate(f"swapped reply: {call}: {error}")


def _failed(history: History, call: Call, step: Step, error: BaseException, expected: bool, loses: bool = True) -> None:
    """Record a call that raised. expected: it was interrupted. loses: it may have taken elements."""
    if not expected and isinstance(error, _REJECTED):
        history.end(call, Outcome.NOT_DONE, step.partial(), type(error).__name__)
        return
    history.end(call, Outcome.UNKNOWN, step.partial(), repr(error), loses)
    if not expected and not isinstance(error, OutcomeUnknown):
        text = "".join(traceback.format_exception(error))
        history.violate(f"unexpected error: {call}\n{text}")


def make(store: Store, history: History, choices: Choices, number: int, interrupts: Undisturbed) -> None:
    """Make a call, record it, and check its reply."""
    step = choices.step()
    call = _call_of(choices, step, number)
    history.begin(call)
    try:
        reply = interrupts.call(lambda: step.call(store))
    except BaseException as error:
        _failed(history, call, step, error, interrupts.sent)
    else:
        _returned(history, call, step, reply)


def _work(store: Store, plan: Plan, actor: Actor, history: History) -> None:
    """Make the calls of an actor that is not a group of tasks."""
    source = random.Random(actor.seed)
    choices = Choices(actor.name, plan.keys, source, names=actor.only)
    interrupts = _interrupts(store, plan, actor, history)
    try:
        for number in range(actor.calls):
            if actor.role == "forking" and source.random() < 2 / actor.calls:
                _fork(store, plan, actor, history, number)
            make(store, history, choices, number, interrupts)
    finally:
        interrupts.close()


def _interrupts(store: Store, plan: Plan, actor: Actor, history: History) -> Undisturbed:
    source = random.Random(actor.seed + 1)
    if actor.role == "interrupted":
        return FromThread(source)
    if actor.role == "lines":
        return AtPlace(lambda: source.randint(1, source.choice((10, 40, 160))))
    if actor.role == "raising":
        return FromHandler(source)
    if actor.role == "nesting":
        inner = Choices(f"{actor.name}.inner", plan.keys, source)
        numbers = iter(range(1_000_000))
        return FromHandler(source, lambda: make(store, history, inner, next(numbers), Undisturbed()))
    return Undisturbed()


def _fork(store: Store, plan: Plan, actor: Actor, history: History, number: int) -> None:
    """Fork; the child makes some calls and ends. Its calls are read from its journal."""
    journal = plan.folder / f"child-{actor.name}-{number}"
    sys.stdout.flush()
    sys.stderr.flush()
    lock = os.open(journal, os.O_WRONLY | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # until the child has ended, whether this process lives or not
    child = os.fork()
    if child == 0:
        _in_child(store, plan, actor, journal, number)
    os.close(lock)
    own = Choices(f"{actor.name}.parent", plan.keys, random.Random(actor.seed - number))
    own.made = number * 1000
    for place in range(5):  # while the child works
        make(store, history, own, number * 1000 + place, Undisturbed())
    limit = time.monotonic() + LIMIT
    ended, status = 0, 0
    while not ended and time.monotonic() < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.001)
    if not ended:
        os.kill(child, signal.SIGUSR1)  # prints its stacks: faulthandler is registered
        time.sleep(1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not ended or status:
        history.violate(f"a forked child of {actor.name} ended with status {status if ended else 'nothing'}")
    history.merge(journal, _not_seen if plan.separate_after_fork else lambda call: None)


def merge_orphans(folder: Path, history: History) -> None:
    """Add the calls of forked children whose parent was killed, once they have ended."""
    for journal in sorted(folder.glob("child-*")):
        with journal.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
        history.merge(journal)


def _not_seen(call: Call) -> None:
    """Change a call on a copy of the data: its writes must not be found, and it takes nothing."""
    call.outcome, call.may_take = Outcome.NOT_DONE, 0
    if not call.tokens:
        call.place = "none"


def _in_child(store: Store, plan: Plan, actor: Actor, journal: Path, number: int) -> None:
    status = 1
    try:
        history = History(journal=journal, disturbed=plan.disturbed)
        choices = Choices(f"{actor.name}.child", plan.keys, random.Random(actor.seed + number))
        choices.made = number * 1000
        for own in range(8):
            make(store, history, choices, number * 1000 + own, Undisturbed())
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


# -- tasks -----------------------------------------------------------------------------------------------


def _work_in_loop(store: Store, plan: Plan, actor: Actor, history: History) -> None:
    async def run() -> None:
        await asyncio.gather(*(
            _task(store, Choices(name, plan.keys, random.Random(actor.seed + place), True, actor.only), actor, history)
            for place, name in enumerate(actor.names())
        ))  # fmt: skip

    asyncio.run(run())


async def _task(store: Store, choices: Choices, actor: Actor, history: History) -> None:
    aio, source = store.aio(), choices.source
    for number in range(actor.calls):
        how = source.random()
        if how < 0.4:
            await make_cancelled(aio, history, choices, number)
        elif how < 0.6:
            limit = source.choice((0, 0.0002, 0.001, 0.003))
            await make_cancelled(aio, history, choices, number, within=limit)
        else:
            turns, pause = source.choice((0, 1, 2, 3, 5, 8, 20)), 0.0005 if how < 0.7 else 0
            await make_cancelled(aio, history, choices, number, turns, pause)


async def make_cancelled(aio: AsyncStore, history: History, choices: Choices, number: int, turns: int | None = None,
                         pause: float = 0, within: float | None = None) -> None:  # fmt: skip
    """Make a call of the asyncio API; cancel it after some turns of the event loop, or when a time limit has passed."""
    step = choices.step()
    call = _call_of(choices, step, number)
    history.begin(call)
    try:
        if turns is None:
            async with asyncio.timeout(within):
                reply = await step.call(aio)
        else:
            task = asyncio.ensure_future(step.call(aio))
            for _ in range(turns):
                await asyncio.sleep(0)
            if pause:
                await asyncio.sleep(pause)
            task.cancel()
            reply = await task
    except (TimeoutError, asyncio.CancelledError) as error:
        _failed(history, call, step, error, True, loses=False)  # a cancelled call takes nothing
    except BaseException as error:
        _failed(history, call, step, error, False)
    else:
        _returned(history, call, step, reply)


# -- a process -------------------------------------------------------------------------------------------


def run_plan(store: Store, plan: Plan, history: History, before_main: Callable[[], None] | None = None) -> None:
    """Run all actors of a process at the same time, and return when each has made its calls."""
    threads = [
        threading.Thread(target=_guarded, args=(_work_in_loop if actor.role == "tasks" else _work, store, plan, actor,
                                                history), name=actor.name, daemon=True)
        for actor in plan.actors if actor.role not in IN_MAIN_THREAD
    ]  # fmt: skip
    faulthandler.register(signal.SIGUSR1, chain=False)
    with quiet():
        for thread in threads:
            thread.start()
        if before_main is not None:
            before_main()
        for actor in plan.actors:
            if actor.role in IN_MAIN_THREAD:
                _guarded(_work, store, plan, actor, history)
        for thread in threads:
            thread.join()


def _guarded(work: Callable[..., None], store: Store, plan: Plan, actor: Actor, history: History) -> None:
    try:
        work(store, plan, actor, history)
    except BaseException as error:
        history.violate(f"{actor.name} ended: {''.join(traceback.format_exception(error))}")


class Watchdog:
    """Ends the process with the stack of each thread if a call waits longer than LIMIT."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        self.history: History | None = None
        self._failed = failed
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(1)
            history = self.history
            oldest = None if history is None else history.oldest()
            if oldest is not None and time.monotonic() - oldest.began > LIMIT:
                for task in Path("/proc/self/task").glob("*/stat"):
                    print(task.read_text()[:120], (task.parent / "wchan").read_text(), file=sys.stderr)
                for _ in range(2):  # two pictures show which threads still move
                    faulthandler.dump_traceback(all_threads=True)
                    time.sleep(2)
                with contextlib.suppress(Exception):
                    self._failed(f"a call waits forever: {oldest}")
                os._exit(3)


__all__ = [
    "IN_MAIN_THREAD",
    "LIMIT",
    "ROLES",
    "Actor",
    "Plan",
    "Watchdog",
    "make",
    "make_cancelled",
    "merge_orphans",
    "run_plan",
]
