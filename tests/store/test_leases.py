"""Leases: the heartbeat of long handlers, their extension by hand, and handlers that lost their message."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rillet import LeaseLost, PendingMessages, Store
from rillet.store.group import Group
from rillet.testing.clock import StoreClock
from tests.store.conftest import Frontend, only
from tests.store.process import Other
from tests.waiting import until


@pytest.fixture
def group(store: Store) -> Group:
    """A group of a stream of three."""
    store.stream("jobs").add_many((n, {"n": n}) for n in (1, 2, 3))
    return store.stream("jobs").group("workers")


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock(1_700_000_000)


@pytest.fixture
def timed(clock: StoreClock) -> Iterator[Group]:
    """A group of a store whose time the test moves."""
    with clock.open() as store:
        store.stream("jobs").add_many((n, {"n": n}) for n in (1, 2, 3))
        yield store.stream("jobs").group("workers")


def _renewed(group: Group, above: int) -> None:
    """Wait until the first pending message was idle for a time, and was renewed."""
    limit = threading.Event()
    while group.pending()[0].idle_ms < above:
        limit.wait(0.001)
    before = group.pending()[0].idle_ms
    while group.pending()[0].idle_ms >= before:
        limit.wait(0.001)


# -- the heartbeat -----------------------------------------------------------------------------------------------------


def test_a_heartbeat_renews_the_message_of_a_handler(frontend: Frontend, group: Group) -> None:
    other = frontend.another().stream("jobs").group("workers").consumer("two")
    handled = []
    for message in group.consumer("one").messages(claim_idle=0.3, heartbeat=True, stop_when_empty=True):
        if message["n"] == "1":
            _renewed(group, 40)
            _renewed(group, 40)
            assert [one["n"] for one in other.read(1)] == ["2"]
        handled.append(message["n"])
        assert message.ack()
    assert handled[0] == "1"
    assert "2" not in handled or handled.count("2") == 1
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("rillet heartbeat") <= 1  # it is ending


def test_a_heartbeat_ends_with_the_loop(group: Group) -> None:
    loop: Any = group.consumer("one").messages(claim_idle=0.05, heartbeat=True)
    next(loop)
    (thread,) = [one for one in threading.enumerate() if one.name == "rillet heartbeat"]
    loop.close()
    thread.join(20)
    assert not thread.is_alive()


def test_the_heartbeat_of_a_task(group: Group) -> None:
    """Also while the handler blocks the event loop."""

    async def body() -> None:
        there = await group.store.aio().stream("jobs").group("workers")
        async for message in there.consumer("one").messages(claim_idle=0.2, heartbeat=True):
            _renewed(group, 30)
            assert await message.ack()
            break

    asyncio.run(body())


def test_a_heartbeat_needs_a_lease(group: Group) -> None:
    for wrong in ({}, {"claim_idle": 0}):
        with pytest.raises(ValueError, match="heartbeat renews the lease of claim_idle: pass claim_idle"):
            group.consumer("one").messages(heartbeat=True, **wrong)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="heartbeat must be True or False, not 1"):
        group.consumer("one").messages(heartbeat=1, claim_idle=1)  # type: ignore[call-overload]


WORKER = """
store = rillet.{how}({where!r})
loop = store.stream("jobs").group("workers").consumer("one").messages(claim_idle=0.2, heartbeat=True)
held = next(loop)
"""


@only("owner", "attached", "socket")
def test_a_heartbeat_ends_with_the_process(frontend: Frontend, group: Group, tmp_path: Any) -> None:
    where = frontend.store.url if frontend.kind == "socket" else str(frontend.store.path)
    with Other(tmp_path / "other") as other:
        code = WORKER.format(how="connect" if frontend.kind == "socket" else "open", where=where)
        other.ask(f"exec({code!r}, globals())")
        _renewed(group, 30)
        two = group.consumer("two")
        other.kill()
        for message in two.messages(claim_idle=0.2, timeout=20):
            if message["n"] == "1":
                assert message.deliveries == 2
                break
            message.ack()


# -- fencing -----------------------------------------------------------------------------------------------------------


def test_a_message_that_another_consumer_claimed_is_lost(group: Group) -> None:
    loop: Any = group.consumer("one").messages(claim_idle=60, heartbeat=True)
    message = next(loop)
    (claimed,) = group.consumer("two").claim_ids(message.id)
    for call in (message.ack, lambda: message.extend(5), lambda: message.retry(5), message.nack,
                 lambda: group.consumer("one").ack(message)):  # fmt: skip
        with pytest.raises(LeaseLost, match="message 1-0 of 'jobs' no longer belongs to the consumer 'one'") as caught:
            call()
        assert caught.value.ids == [message.id]
    assert group.pending_summary().consumers == {"two": 1}
    assert group.pending()[0].deliveries == 2
    assert claimed.ack()
    loop.close()


def test_the_same_consumer_after_a_restart_is_another_one(group: Group) -> None:
    first: Any = group.consumer("one").messages(claim_idle=60, heartbeat=True)
    before = next(first)
    second: Any = group.consumer("one").messages(claim_idle=60, heartbeat=True)
    now = next(second)
    assert (before.id, before.deliveries, now.id, now.deliveries) == (now.id, 1, before.id, 2)
    with pytest.raises(LeaseLost):
        before.ack()
    assert now.ack()
    with pytest.raises(LeaseLost):
        now.ack()


def test_several_acknowledgements_at_once(group: Group) -> None:
    worker = group.consumer("one")
    for batch in worker.messages(batch=3, claim_idle=60, heartbeat=True):
        group.consumer("two").claim_ids(2)
        with pytest.raises(LeaseLost) as caught:
            worker.ack(*batch)
        assert [id.ms for id in caught.value.ids] == [2]
        break
    assert group.pending_summary().consumers == {"two": 1}
    several = group.store.consumer("workers", "two", ["jobs"])
    assert several.ack(*group.consumer("two").read(after="0")) == 1


def test_unfenced_messages_are_acknowledged_as_ever(group: Group) -> None:
    (message,) = group.consumer("one").read(1)
    group.consumer("two").claim_ids(message.id)
    assert message.ack()
    assert not message.ack()


# -- extension ---------------------------------------------------------------------------------------------------------


def test_an_extended_message_is_not_claimed(timed: Group, clock: StoreClock) -> None:
    (message,) = timed.consumer("one").read(1)
    message.extend(60)
    two = timed.consumer("two")
    clock.advance(59)
    found = list(two.messages(claim_idle=10, stop_when_empty=True))
    assert [one["n"] for one in found] == ["2", "3"]
    with pytest.raises(PendingMessages):
        timed.delete_consumer("one")
    assert timed.collect(50, to="two") == {}  # the consumer is silent, and has a message on hold
    message.extend(60)
    clock.advance(59)
    assert two.ack(*two.messages(claim_idle=1000, stop_when_empty=True)) == 2
    clock.advance(1)
    again = next(two.messages(claim_idle=1000))
    assert (again["n"], again.deliveries) == ("1", 2)
    with pytest.raises(LeaseLost):
        message.extend(60)
    with pytest.raises(LeaseLost):
        message.ack()


def test_an_extension_makes_no_lease_shorter(timed: Group, clock: StoreClock) -> None:
    message = next(timed.consumer("one").messages(claim_idle=60))
    message.extend(5)
    two = timed.consumer("two")
    clock.advance(59)
    assert [one["n"] for one in two.messages(claim_idle=60, stop_when_empty=True)] == ["2", "3"]
    assert two.ack(*two.read(after="0")) == 2
    assert timed.retries() == []  # it is no retry
    clock.advance(1)
    (again,) = two.messages(claim_idle=60, stop_when_empty=True)
    assert (again["n"], again.deliveries) == ("1", 2)
    with pytest.raises(LeaseLost):
        message.ack()


def test_a_heartbeat_goes_on_after_an_extension(timed: Group, clock: StoreClock) -> None:
    loop: Any = timed.consumer("one").messages(claim_idle=0.3, heartbeat=True)
    message = next(loop)
    message.extend(0.4)
    clock.advance(0.35)
    until(lambda: timed.pending()[0].idle_ms == 0, "a renewal")
    clock.advance(0.1)  # the extension is over, and not the lease
    two = timed.consumer("two")
    assert [one["n"] for one in two.messages(claim_idle=0.3, stop_when_empty=True)] == ["2", "3"]
    assert message.ack()
    loop.close()


def test_a_restarted_worker_gets_its_message_after_the_extension(timed: Group, clock: StoreClock) -> None:
    one = timed.consumer("one")
    message = next(one.messages(claim_idle=60))
    message.extend(5)
    clock.advance(4)
    assert [again["n"] for again in one.messages(stop_when_empty=True)] == ["2", "3"]
    clock.advance(2)
    assert [again["n"] for again in one.messages(stop_when_empty=True)] == ["1", "2", "3"]


def test_a_retry_after_an_extension_is_a_retry(timed: Group, clock: StoreClock) -> None:
    message = next(timed.consumer("one").messages(claim_idle=60))
    message.extend(50)
    message.retry(5)
    two = timed.consumer("two")
    clock.advance(4)
    assert two.ack(*two.messages(claim_idle=60, stop_when_empty=True)) == 2
    clock.advance(1)
    assert next(two.messages(claim_idle=60))["n"] == "1"


def test_an_extended_message_is_acknowledged(group: Group) -> None:
    (message,) = group.consumer("one").read(1)
    message.extend(60)
    assert message.ack()
    assert group.pending_count() == 0
    assert group.retries() == []
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="(seconds|delay) must be"):
            message.extend(wrong)


# -- collection in a loop ----------------------------------------------------------------------------------------------


def test_a_loop_collects_silent_consumers(timed: Group, clock: StoreClock) -> None:
    timed.consumer("one").read(2)
    clock.advance(100)
    loop = timed.consumer("two").messages(collect=100, stop_when_empty=True)
    assert [(one["n"], one.deliveries) for one in loop] == [("1", 2), ("2", 2), ("3", 1)]
    assert [one.name for one in timed.consumers()] == ["two"]


def test_a_task_collects_silent_consumers(timed: Group, clock: StoreClock) -> None:
    async def body() -> None:
        timed.consumer("one").read(2)
        clock.advance(100)
        there = await timed.store.aio().stream("jobs").group("workers")
        seen = []
        async for message in there.consumer("two").messages(collect=100, claim_idle=5, stop_when_empty=True):
            seen.append(message["n"])
            await message.ack()
        assert seen == ["1", "2", "3"]

    asyncio.run(body())
    assert [one.name for one in timed.consumers()] == ["two"]
