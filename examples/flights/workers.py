"""The consumer group: several processes share the year's flights, and one of them is killed.

Each worker attaches to the store that the demo's process owns. It reads messages, handles them, and acknowledges them
in one transaction with its counter: `handled:<worker>` grows by the number of messages, `twice` by those that XACK
reports as already acknowledged. So the counters prove the outcome.
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
from rillet import Consumer, Message, Store

STREAM, GROUP = "flights", "dispatch"
BATCH = 200
CLAIM_IDLE = 1.0  # seconds after which a worker claims another worker's pending flights
VICTIM = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counters at the end."""

    handled: dict[str, int]
    killed: bool
    claimed: int
    twice: int
    pending: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class KillSwitch:
    """The events by which a worker and its parent agree on the kill, while the worker holds messages."""

    due: Event  # set by the parent: stop after the next read
    holding: Event  # set by the worker: it holds unacknowledged messages and waits


def work(path: str, name: str, kill_switch: KillSwitch | None = None, sleep_when_empty: float = 0.05) -> None:
    """Handle flights until none is new and none is pending."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    with rillet.open(path) as store:
        consumer = store.stream(STREAM).group(GROUP, create=False).consumer(name)
        while True:
            messages, claimed = consumer.read(BATCH), False
            if not messages:
                _, messages = consumer.claim(CLAIM_IDLE, BATCH)
                claimed = bool(messages)
            if messages and kill_switch is not None and kill_switch.due.is_set():
                kill_switch.holding.set()
                signal.pause()
            if messages:
                _handle(store, consumer, messages, claimed)
            elif consumer.group.pending_count() == 0:
                return
            else:
                time.sleep(sleep_when_empty)


def _handle(store: Store, consumer: Consumer, messages: list[Message], claimed: bool) -> None:
    """Add up the delay of each carrier; acknowledge and count in one transaction."""
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
    """Run the workers, kill one when `kill_at` flights are handled, wait for the others, return the counters."""
    group = store.stream(STREAM).group(GROUP)
    group.create()
    context = multiprocessing.get_context("spawn")
    names = [f"worker-{number + 1}" for number in range(workers)]
    victim, killed, kill_switch = names[VICTIM], False, KillSwitch(context.Event(), context.Event())
    processes = {
        name: context.Process(target=work, args=(store.path, name, kill_switch if name == victim else None), name=name)
        for name in names
    }
    try:
        for process in processes.values():
            process.start()
        while any(process.is_alive() for process in processes.values()):
            done = _handled(store, names)
            progress(sum(done.values()))
            if sum(done.values()) >= kill_at:
                kill_switch.due.set()
            if not killed and kill_switch.holding.is_set():
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
        info.pending,
        info.lag,
    )


def _handled(store: Store, names: list[str]) -> dict[str, int]:
    return {name: _number(store, f"handled:{name}") for name in names}


def _number(store: Store, key: str) -> int:
    return int(store.execute("GET", key) or 0)
