"""Delayed entries and retries while workers are killed, among them the owner of the directory, with a ledger.

A worker counts each hand-out in a hash before it handles the message, acknowledges some, and lets the others fail.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

import pytest

import rillet
from tests.store.process import Other
from tests.waiting import until

WORKER = """
import random, rillet
jobs = store.stream("jobs")
while True:
    try:
        for message in jobs.group("g").consumer(name).messages(claim_idle=0.3, heartbeat=True, block=0.1,
                                                               backoff=rillet.Exponential(0.02, most=0.1)):
            now = store.execute("TIME")
            early = float(message["due"]) > int(now[0]) + int(now[1]) / 1e6
            store.execute("HINCRBY", "early" if early else "seen", message["n"], 1)
            if random.random() < 0.6:
                message.ack()
    except (rillet.OutcomeUnknown, rillet.LeaseLost):
        pass
"""


def _worker(path: Path, name: str) -> Other:
    other = Other(path)
    other.tell(f"exec({WORKER!r}, dict(globals(), store=store, name={name!r}))")
    return other


def _handled(store: rillet.Store, least: int) -> bool:
    return int(store.execute("HLEN", "seen")) >= least


def _round(path: Path, random: Random, kills: int) -> None:
    workers = [_worker(path, f"w{n}") for n in range(3)]  # the first one is the owner
    sure: set[str] = set()
    unsure: set[str] = set()
    with rillet.open(path) as store:
        jobs = store.stream("jobs")
        for kill in range(kills):
            for n in range(8):
                number, delay = f"{kill}.{n}", random.choice((0, 0.05, 0.3))
                seconds, microseconds = map(int, store.execute("TIME"))
                due = seconds + microseconds / 1e6 + delay - 0.001
                try:
                    jobs.add({"n": number, "due": f"{due:.6f}"}, delay=delay)
                    sure.add(number)
                except rillet.OutcomeUnknown:
                    unsure.add(number)
            until(partial(_handled, store, 8 * kill + 4), "messages are handled")
            place = random.randrange(3)
            workers[place].kill()
            workers[place] = _worker(path, f"w{place}")
        for worker in workers:
            worker.kill()
        for message in jobs.group("g").consumer("last").messages(claim_idle=0.1, timeout=1.5):
            store.execute("HINCRBY", "seen", message["n"], 1)
            message.ack()
        found = [entry["n"] for entry in jobs]
        assert sum(map(int, store.execute("HVALS", "seen"))) > len(found)
        assert len(found) == len(set(found))  # each one moved once
        assert sure <= set(found) <= sure | unsure
        assert set(store.hash("seen")) == set(found)
        assert store.execute("HLEN", "early") == 0
        assert jobs.delayed() == []
        assert jobs.group("g").pending_count() == 0


@pytest.mark.slow
def test_nothing_is_lost_while_workers_are_killed(tmp_path: Path) -> None:
    _round(tmp_path / "store.rillet", Random(1), 3)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_nothing_is_lost_in_many_kills(tmp_path: Path) -> None:
    for seed in range(50):
        _round(tmp_path / f"{seed}.rillet", Random(seed), 5)
