"""Partitioned streams while workers, the owner of the directory and changes of partitions are killed, with a ledger.

A worker appends each hand-out to a list of its key before it acknowledges. So the first hand-outs of a key must be in
the order in which its entries were added, whoever was killed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from random import Random

import pytest

import rillet
from tests.store.process import Other
from tests.waiting import until

WORKER = """
import random, rillet
there = rillet.connect(url) if url else store
while True:
    try:
        jobs = there.partitioned("jobs")
        for message in jobs.group("g").consumer(name).messages(claim_idle=1.0, heartbeat=True, block=0.1,
                                                               backoff=rillet.Exponential(0.02, most=0.1)):
            there.execute("RPUSH", "seen:" + message["key"], message["n"])
            if random.random() < 0.8:
                message.ack()
    except (rillet.StoreError, rillet.CommandError):
        pass
"""
CHANGE = "(rillet.connect({url!r}) if {url!r} else store).partitioned('jobs').repartition({number})"


def _worker(path: Path | str, url: str, name: str) -> Other:
    other = Other(path)
    other.tell(f"exec({WORKER!r}, dict(globals(), store=store, name={name!r}, url={url!r}))")
    return other


def _seen(store: rillet.Store, key: int) -> list[int]:
    found = list(map(int, store.execute("LRANGE", f"seen:{key}", 0, -1)))
    return list(dict.fromkeys(found))


def _handled(store: rillet.Store, least: int) -> bool:
    return sum(len(_seen(store, key)) for key in range(5)) >= least


def _round(store: rillet.Store, path: Path | str, url: str, random: Random, kills: int) -> None:
    jobs = store.partitioned("jobs", partitions=4, by="key")
    added: dict[int, list[int]] = {key: [] for key in range(5)}
    jobs.group("g").create()
    workers = [_worker(path, url, f"w{n}") for n in range(3)]
    number = 0
    for kill in range(kills):
        change = Other(path) if kill % 2 == 0 else None
        if change is not None:
            change.tell(CHANGE.format(url=url, number=random.randrange(1, 7)))
        for _ in range(12):
            key = random.randrange(5)
            try:
                jobs.add({"key": key, "n": number})
                added[key].append(number)
            except rillet.OutcomeUnknown:  # it may be there, and would then be the only one of its key
                store.stream("unsure").add({"n": number})
            number += 1
        if change is not None:
            change.kill()
        until(partial(_handled, store, 6 * kill), "messages are handled")
        place = random.randrange(3)
        workers[place].kill()
        workers[place] = _worker(path, url, f"w{place}")
    jobs.add({"key": 0, "n": number})  # finishes a change that was killed
    added[0].append(number)
    for worker in workers:
        worker.kill()
    group = jobs.group("g")

    def done() -> bool:
        info = group.info()
        return (info.pending, info.lag) == (0, 0)

    def all_seen() -> bool:  # `info` does not count the partitions in which no consumer has created the group yet
        return all(set(numbers) <= set(_seen(store, key)) for key, numbers in added.items()) and done()

    for message in group.consumer("last").messages(claim_idle=1.0, block=0.2, stop=all_seen):
        store.execute("RPUSH", f"seen:{message['key']}", message["n"])
        message.ack()
    unsure = {int(entry["n"]) for entry in store.stream("unsure")}
    for key, numbers in added.items():
        found = _seen(store, key)
        assert set(numbers) <= set(found) <= set(numbers) | unsure
        assert found == sorted(found)
    assert done()


def _rounds(place: str, request: pytest.FixtureRequest, tmp_path: Path, seeds: Iterable[int], kills: int) -> None:
    for seed in seeds:
        if place == "directory":
            path = tmp_path / f"{seed}.rillet"
            with rillet.open(path, owner="process") as store:
                _round(store, path, "", Random(seed), kills)
            continue
        url = request.getfixturevalue("cluster_url") if place == "cluster" else (
            f"redis://127.0.0.1:{request.getfixturevalue('judge').port}")  # fmt: skip
        with rillet.connect(url) as store:
            store.delete(*store.keys())
            _round(store, ":memory:", url, Random(seed), kills)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["directory", "server", "cluster"])
def test_order_is_kept_while_processes_are_killed(place: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    _rounds(place, request, tmp_path, [1], 3)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("place", ["directory", "server", "cluster"])
def test_order_is_kept_in_many_kills(place: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    _rounds(place, request, tmp_path, range(30), 5)
