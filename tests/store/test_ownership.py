"""A message belongs to one worker: prefetched messages, leases, hand-outs that are counted, and what a kill leaves."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.store.group import Group
from tests.forked import Forked
from tests.judge import Judge
from tests.model.ownership import KINDS, OF_PROCESSES, world
from tests.store.conftest import FEW, Frontend, only
from tests.variants import by_speed, covering, long


def _group(store: Store, messages: int) -> Group:
    stream = store.stream("jobs")
    group = stream.group("workers")
    group.create("0")
    stream.add_many((n, {"n": n}) for n in range(1, messages + 1))
    return group


def _pending(group: Group) -> list[tuple[int, str, int]]:
    return [(found.id.ms, found.consumer, found.deliveries) for found in group.pending()]


def _in_threads(group: Group, workers: int, seconds: float, **options: Any) -> dict[str, list[int]]:
    """Let workers handle all messages; return the messages of each."""
    handled: dict[str, list[int]] = {f"w{number}": [] for number in range(workers)}

    def work(name: str) -> None:
        for message in group.consumer(name).messages(**options):
            handled[name].append(message.id.ms)
            time.sleep(seconds)
            message.ack()

    threads = [threading.Thread(target=work, args=(name,)) for name in handled]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return handled


@FEW
def test_workers_share_the_messages_and_handle_each_once(store: Store) -> None:
    group = _group(store, 60)
    handled = _in_threads(
        group, 3, 0.01, claim_idle=0.5, max_deliveries=5, dead_letters="dead", block=0.05, timeout=0.3
    )
    assert Counter(number for some in handled.values() for number in some) == Counter(range(1, 61))
    assert min(map(len, handled.values())) >= 6
    assert not store.stream("dead").exists()


@only("memory", "redis")
def test_what_a_live_worker_has_prefetched_is_not_stolen(store: Store) -> None:
    group = _group(store, 5)
    handled: list[int] = []
    claimed: list[int] = []
    done = threading.Event()

    def thief() -> None:
        for message in group.consumer("thief").messages(claim_idle=0.5, block=0.02, stop=done):
            claimed.append(message.id.ms)
            message.ack()

    thread = threading.Thread(target=thief)
    for message in group.consumer("slow").messages(count=100, timeout=0.1, block=0.02):
        if not handled:
            assert len(_pending(group)) == 5
            thread.start()
        handled.append(message.id.ms)
        time.sleep(0.2)
        message.ack()
    done.set()
    thread.join()
    assert (handled, claimed) == ([1, 2, 3, 4, 5], [])


def test_what_another_consumer_owns_is_not_handed_out(store: Store) -> None:
    group = _group(store, 5)
    seen = []
    for message in group.consumer("one").messages(stop_when_empty=True):
        seen.append(message.id.ms)
        if message.id.ms == 2:
            assert len(group.consumer("two").claim_ids(3, 5)) == 2
            group.ack(4)
            time.sleep(0.02)
    assert seen == [1, 2]
    assert _pending(group) == [(1, "one", 1), (2, "one", 1), (3, "two", 2), (5, "two", 2)]


def test_messages_are_read_ahead_while_handlers_are_fast(store: Store) -> None:
    group = _group(store, 200)
    most = 0
    for message in group.consumer("one").messages(claim_idle=30, prefetch=10, stop_when_empty=True):
        if message.id.ms % 9 == 0:
            waiting = [row for row in _pending(group) if row[0] != message.id.ms]
            most = max(most, len(waiting))
            assert {row[2] for row in waiting} <= {0}
        assert message.deliveries == 1
        message.ack()
    assert 1 <= most < 10


@only("memory", "attached", "redis")
def test_a_slow_worker_reads_nothing_ahead(store: Store) -> None:
    group = _group(store, 12)
    for message in group.consumer("one").messages(claim_idle=30, prefetch=100, stop_when_empty=True):
        time.sleep(0.025)
        assert _pending(group) == [(message.id.ms, "one", 1)]
        message.ack()


WORKER = """
import os, sys, time, rillet
store = rillet.connect(sys.argv[1]) if "://" in sys.argv[1] else rillet.open(sys.argv[1])
consumer = store.stream("jobs").group("workers", create=False).consumer("killed")
for message in consumer.messages(claim_idle=60, max_deliveries=int(sys.argv[3]), dead_letters="dead", prefetch=50):
    if message.id.ms == 41 and sys.argv[2] == "inside":
        print("inside", flush=True)
        time.sleep(100)
    message.ack()
    if message.id.ms == 41:
        os._exit(1)
"""


def _killed(where: str, how: str, limit: int) -> None:
    with Forked([WORKER, where, how, limit], function="tests.forked:run_text", stderr=None) as process:
        assert process.stdout is not None
        if how == "inside":
            assert process.stdout.readline() == "inside\n"
            process.send_signal(signal.SIGKILL)
        process.wait(60)


@pytest.mark.parametrize(("kind", "limit", "how"), covering(["directory", "redis"], [1, 3], ["inside", "after"]))
def test_only_the_message_in_the_handler_of_a_killed_worker_is_counted(
    kind: str, how: str, limit: int, tmp_path: Path, judge: Judge
) -> None:
    where = str(tmp_path / "store") if kind == "directory" else f"redis://127.0.0.1:{judge.port}"
    with rillet.open(where) if kind == "directory" else rillet.connect(where) as store:
        store.execute("FLUSHALL")
        group = _group(store, 60)
        _killed(where, how, limit)
        pending = _pending(group)
        if how == "inside":  # a message in a fast handler may lack one count
            number, consumer, counted = pending.pop(0)
            assert (number, consumer) == (41, "killed")
            assert counted in ([1] if limit == 1 else [0, 1])
        assert {row[2] for row in pending} <= {0}
        group.consumer("helper").claim_ids(*[row[0] for row in _pending(group)], just_ids=True, set_idle=100)
        left = [
            (message.id.ms, message.deliveries, message.ack())
            for message in group.consumer("next").messages(
                claim_idle=60, max_deliveries=limit, dead_letters="dead", stop_when_empty=True
            )
        ]
        assert left[-19:] == [(number, 1, True) for number in range(42, 61)]
        again = [] if how == "after" or limit == 1 else [(41, counted + 1, True)]
        assert left[:-19] == again
        dead = [(letter["n"], letter["_deliveries"]) for letter in store.stream("dead")]
        assert dead == ([("41", "1")] if how == "inside" and limit == 1 else [])


@only("memory", "redis")
def test_two_live_workers_of_one_name_are_noticed(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    group = _group(store, 4)
    first = group.consumer("same").messages(stop_when_empty=True)
    assert next(first).id.ms == 1
    with caplog.at_level(logging.WARNING, "rillet.store"):
        assert [message.id.ms for message in group.consumer("same").messages(stop_when_empty=True)] == [1, 2, 3, 4]
        time.sleep(0.02)
        assert list(first) == []
    assert caplog.messages == [
        "two live readers of the group 'workers' of 'jobs' have the name 'same' and receive each other's messages: "
        "give each its own name"
    ]


def test_closing_the_store_gives_prefetched_messages_back(frontend: Frontend) -> None:
    group = _group(frontend.store, 3)
    iterator = group.consumer("one").messages()
    assert next(iterator).id.ms == 1
    if frontend.kind in ("memory", "owner"):  # no other store is there to look
        iterator.close()  # type: ignore[attr-defined]
        assert _pending(group) == [(1, "one", 1), (2, "one", 0), (3, "one", 0)]
        return
    other = frontend.another()
    frontend.store.close()
    assert _pending(other.stream("jobs").group("workers", create=False)) == [
        (1, "one", 1), (2, "one", 0), (3, "one", 0),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*(kind for kind in KINDS if kind != "cluster"), *long("cluster")])
def test_random_workers(kind: str, tmp_path: Path) -> None:
    with world(kind, tmp_path) as made:
        for seed in range(by_speed(1, 1, 2) if kind in OF_PROCESSES else by_speed(2, 2, 4)):
            assert made.round(seed, tmp_path).problems == []


def test_a_refused_claim_is_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server refuses a claim if its clock was set back between the two commands; the message is still the loop's."""
    with rillet.open() as store:
        group = _group(store, 3)
        assert len(group.consumer("c").read(count=3)) == 3
        run = store.run
        refused: list[bytes] = []

        def run_with_one_refusal(argv: list[bytes], *options: Any) -> Any:
            if argv[0] == b"XCLAIM" and not refused:
                refused.append(argv[5])
                argv = [*argv[:4], b"%d" % (int(argv[4]) + 60_000), *argv[5:]]
            return run(argv, *options)

        monkeypatch.setattr(store, "run", run_with_one_refusal)
        handled = [message.id.ms for message in group.consumer("c").messages(stop_when_empty=True) if message.ack()]
        assert refused == [b"1-0"]
        assert handled == [1, 2, 3]
