"""The consumer group: processes that share the year out among themselves, one of which is killed.

Each worker attaches to the store that the demo's own process owns, reads its share, handles it, and
acknowledges it together with its own counter in one transaction: `handled:<worker>` grows by what was
read, `twice` by what XACK says was acknowledged before. So at the end the counters prove what happened.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from typing import Any

import rillet
from rillet.store import Consumer, Message, Store

STREAM, GROUP = "flights", "dispatch"
BATCH = 200
CLAIM_IDLE = 1.0  # seconds after which another worker's pending flights are taken over
VICTIM = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the counters say at the end."""

    handled: dict[str, int]
    killed: bool
    claimed: int
    twice: int
    pending: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class Fate:
    """How a worker and its parent agree on the moment at which it is killed: with messages in its hands."""

    due: Event  # the parent's: do not come back from your next read
    holding: Event  # the worker's: I have read and not acknowledged, and I wait


def work(path: str, name: str, fate: Fate | None = None, sleep_when_empty: float = 0.05) -> None:
    """Handle flights until none is left, neither new nor pending with anybody."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    with rillet.open(path) as store:
        consumer = store.stream(STREAM).group(GROUP, create=False).consumer(name)
        while True:
            messages, claimed = consumer.read(BATCH), False
            if not messages:
                _, messages = consumer.claim(CLAIM_IDLE, BATCH)
                claimed = bool(messages)
            if messages and fate is not None and fate.due.is_set():
                fate.holding.set()
                signal.pause()
            if messages:
                _handle(store, consumer, messages, claimed)
            elif consumer.group.pending_count() == 0:
                return
            else:
                time.sleep(sleep_when_empty)


def _handle(store: Store, consumer: Consumer, messages: list[Message], claimed: bool) -> None:
    """Do the work (how many minutes each carrier lost), then acknowledge and count in one transaction."""
    late: dict[str, int] = {}
    for message in messages:
        fields = message.fields
        if fields["dep_delay"]:
            late[fields["carrier"]] = late.get(fields["carrier"], 0) + max(0, int(fields["dep_delay"]))
    ids = [str(message.id) for message in messages]
    group = consumer.group
    commands: list[list[Any]] = [
        ["MULTI"],
        ["XACK", STREAM, group.name, *ids],
        ["INCRBY", f"handled:{consumer.name}", len(ids)],
        *[["INCRBY", f"late:{carrier}", minutes] for carrier, minutes in late.items()],
    ]
    if claimed:
        commands.append(["INCRBY", "claimed", len(ids)])
    acknowledged = store.execute_many([*commands, ["EXEC"]])[-1][0]
    if acknowledged != len(ids):
        store.execute("INCRBY", "twice", len(ids) - acknowledged)


def share_out(store: Store, workers: int, kill_at: int, progress: Callable[[int], None]) -> Outcome:
    """Run the workers, kill one of them once kill_at flights are handled, wait for the others, read the counters."""
    group = store.stream(STREAM).group(GROUP, "0")
    context = multiprocessing.get_context("spawn")
    names = [f"worker-{number + 1}" for number in range(workers)]
    victim, killed, fate = names[VICTIM], False, Fate(context.Event(), context.Event())
    processes = {
        name: context.Process(target=work, args=(store.path, name, fate if name == victim else None), name=name)
        for name in names
    }
    try:
        for process in processes.values():
            process.start()
        while any(process.is_alive() for process in processes.values()):
            done = _handled(store, names)
            progress(sum(done.values()))
            if sum(done.values()) >= kill_at:
                fate.due.set()
            if not killed and fate.holding.is_set():
                processes[victim].kill()
                killed = True
            time.sleep(0.01)
        for name, process in processes.items():
            process.join()
            if process.exitcode != 0 and name != victim:
                raise RuntimeError(f"{name} ended with exit code {process.exitcode}")
    finally:
        for process in processes.values():
            if process.is_alive():
                process.kill()
                process.join()
    progress(sum(_handled(store, names).values()))
    info = group.info()
    return Outcome(
        _handled(store, names),
        killed,
        _number(store, "claimed"),
        _number(store, "twice"),
        info["pending"],
        info["lag"],
    )


def _handled(store: Store, names: list[str]) -> dict[str, int]:
    return {name: _number(store, f"handled:{name}") for name in names}


def _number(store: Store, key: str) -> int:
    return int(store.execute("GET", key) or 0)
