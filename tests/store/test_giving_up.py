"""Messages that a loop gives up: the dead letter and the acknowledgement are one step of the message's consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rillet import Store
from rillet.errors import CommandError, WrongType
from rillet.store.command_steps import run_step
from rillet.store.consuming.delivery import delivery
from rillet.store.consuming.delivery_options import DeliveryOptions, End
from rillet.testing.clock import StoreClock
from tests.store.conftest import Frontend, only

SPENT: dict[str, Any] = {"max_deliveries": 1, "dead_letters": "dead", "claim_idle": 5, "block": None}


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock(1_700_000_000)


def _pause_before(store: Store, steps: Any, wanted: Callable[[Any], bool]) -> list[bytes]:
    """Run the commands of a loop up to the first one that is wanted; return that."""
    command = next(steps)
    while not wanted(command):
        command = steps.send(run_step(store, command))
    found: list[bytes] = command
    return found


@pytest.mark.parametrize("change", [{}, {"dead_letters": None, "on_exhausted": "drop"}], ids=["dead letter", "dropped"])
def test_a_paused_worker_gives_up_no_message_of_another(clock: StoreClock, change: dict[str, Any]) -> None:
    with clock.open() as store:
        group = store.stream("jobs").group("workers")
        store.stream("jobs").add({"n": 1})
        group.consumer("one").read()
        clock.advance(6)
        slow, options = group.consumer("slow"), DeliveryOptions(**SPENT | change)
        steps = delivery([slow], options, End(options), options.prefetched(slow.key), options.leases(slow.key))
        command = _pause_before(store, steps, lambda one: b"bury" in one or b"ack" in one)
        clock.advance(6)
        (message,) = group.consumer("fast").messages(claim_idle=5, stop_when_empty=True)
        steps.send(run_step(store, command))
        assert len(store.stream("dead")) == 0
        assert group.pending_summary().consumers == {"fast": 1}
        assert message.ack()
        assert message.deliveries == 2


def test_a_paused_consumer_gives_up_no_message_of_the_next_owner_of_its_partition(clock: StoreClock) -> None:
    with clock.open() as store:
        stream = store.partitioned("orders", 1, "k")
        stream.add({"k": "a"})
        group = stream.group("billing")
        loop = group.consumer("one").messages(stop_when_empty=True, claim_idle=5)
        next(iter(loop))
        clock.advance(6)  # and it is killed
        options = DeliveryOptions(**SPENT)
        slow = group.consumer("slow")
        steps = slow._steps(options, End(options), *slow._loop(options))
        command = _pause_before(store, steps, lambda one: b"bury" in one)
        clock.advance(6)
        (message,) = group.consumer("fast").messages(stop_when_empty=True, claim_idle=5)
        steps.send(run_step(store, command))
        assert len(store.stream("dead")) == 0
        assert message.ack()


def test_a_dead_letter_and_its_acknowledgement(store: Store) -> None:
    group = store.stream("jobs").group("workers")
    store.stream("jobs").add({"n": 1})
    store.stream("jobs").add({str(n): n for n in range(3600)})  # more words than a script accepts
    assert len(group.consumer("one").read()) == 2
    store.execute("SET", "dead", "not a stream")
    spent = SPENT | {"claim_idle": 0, "stop_when_empty": True}
    with pytest.raises(WrongType):
        list(group.consumer("two").messages(**spent))
    assert group.pending_count() == 2
    store.delete("dead")
    assert list(group.consumer("two").messages(**spent)) == []
    assert group.pending_count() == 0
    short, long = store.stream("dead")
    assert short.fields == {"n": "1", "_stream": "jobs", "_group": "workers", "_id": short["_id"], "_deliveries": "1"}
    assert len(long.fields) == 3604


@only("memory", "redis")
def test_a_worker_without_the_right_to_run_scripts(frontend: Frontend) -> None:
    store = frontend.store
    group = store.stream("jobs").group("workers")
    store.stream("jobs").add_many([{"n": 1}, {"n": 2}])
    assert len(group.consumer("one").read()) == 2
    spent = SPENT | {"claim_idle": 0, "stop_when_empty": True}
    store.execute("ACL", "SETUSER", "default", "resetkeys", "~jobs", "~dead", "-eval")
    try:
        assert list(group.consumer("two").messages(**spent)) == []
        assert group.pending_count() == 0
        assert len(store.stream("dead")) == 2
        store.stream("jobs").add({"n": 3})
        typed = store.stream("jobs", codec="json", on_invalid=store.stream("dead"))
        assert typed.group("workers").consumer("two").read() == []
        assert group.pending_count() == 0
        assert len(store.stream("dead")) == 3
        store.execute("ACL", "SETUSER", "default", "resetkeys", "~jobs")
        store.stream("jobs").add({"n": 4})
        group.consumer("one").read()
        with pytest.raises(CommandError, match="permission"):
            list(group.consumer("two").messages(**spent))
        assert group.pending_count() == 1
    finally:
        store.execute("ACL", "SETUSER", "default", "allkeys", "+@all")


def test_an_invalid_message_that_is_not_pending_gets_its_dead_letter(store: Store) -> None:
    store.stream("jobs").add({"n": 1}, "7-0")
    stream = store.stream("jobs", codec="json", on_invalid=store.stream("dead"))
    assert stream.group("workers").consumer("one").read(noack=True) == []
    assert [entry["_id"] for entry in store.stream("dead")] == ["7-0"]


def test_a_task_gives_a_message_up(store: Store) -> None:
    async def body() -> None:
        stream = store.aio().stream("jobs")
        await stream.add({"n": 1})
        group = await stream.group("workers")
        await group.consumer("one").read()
        async for _ in group.consumer("two").messages(**SPENT | {"claim_idle": 0}, stop_when_empty=True):
            raise AssertionError
        assert await group.pending_count() == 0

    asyncio.run(body())
    assert len(store.stream("dead")) == 1
