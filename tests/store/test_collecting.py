"""Consumers that come and go: silent ones are collected, and none with pending messages is deleted by accident."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

import rillet
from rillet import PendingMessages, Store
from rillet.errors import NoGroup
from rillet.store.group import Consumer, Group
from rillet.testing.clock import StoreClock


@pytest.fixture
def group(store: Store) -> Group:
    """A group of a stream of six."""
    stream = store.stream("{a}b}jobs")
    stream.add_many((n, {"n": n}) for n in range(1, 7))
    return stream.group("workers")


def _silent(consumer: Consumer, ms: int) -> None:
    """Wait until the consumer has been silent for so many milliseconds, by the clock of the store."""
    while consumer.info().idle_ms < ms:
        pass


def _owners(group: Group) -> dict[int, tuple[str, int]]:
    return {one.id.ms: (one.consumer, one.deliveries) for one in group.pending()}


# -- deletion ----------------------------------------------------------------------------------------------------------


def test_a_consumer_with_pending_messages_is_not_deleted(group: Group) -> None:
    one = group.consumer("one")
    one.read(2)
    with pytest.raises(PendingMessages, match=r"the consumer 'one' of the group 'workers' of '{a}b}jobs' has pending"):
        group.delete_consumer("one")
    assert group.pending_count() == 2
    assert group.delete_consumer("one", pending="drop") == 2
    assert group.consumers() == []
    assert group.pending_count() == 0


def test_a_consumer_without_messages_is_deleted(group: Group) -> None:
    group.create_consumer("one")
    assert group.delete_consumer("one") == 0
    assert group.delete_consumer("one") == 0
    assert group.delete_consumer("one", pending="two") == 0
    assert group.consumers() == []
    with pytest.raises(NoGroup):
        group.stream.group("nobody").delete_consumer("one")


def test_another_consumer_receives_the_messages_as_they_are(group: Group) -> None:
    one, two = group.consumer("one"), group.consumer("two")
    one.read(3)
    one.read(after="2-0")  # a second delivery of 3
    _silent(one, 20)
    assert group.delete_consumer("one", pending=two) == 3
    assert _owners(group) == {1: ("two", 1), 2: ("two", 1), 3: ("two", 2)}
    assert min(pending.idle_ms for pending in group.pending()) >= 20
    assert [each.name for each in group.consumers()] == ["two"]
    assert group.delete_consumer("two", pending=b"drop") == 3  # the name of a consumer, as bytes
    assert [each.name for each in group.consumers()] == ["drop"]
    for same in ("drop", b"drop", group.consumer("drop")):
        if same != "drop":
            with pytest.raises(ValueError, match="pending must be another consumer than the deleted one, 'drop'"):
                group.delete_consumer("drop", pending=same)
    with pytest.raises(TypeError, match="pending: a name must be str or bytes, not 5"):
        group.delete_consumer("drop", pending=5)  # type: ignore[arg-type]


# -- collection --------------------------------------------------------------------------------------------------------


def test_silent_consumers_are_collected(group: Group) -> None:
    for name in ("one", "two", "three"):
        group.consumer(name).read(2)
        _silent(group.consumer(name), 30)
    assert group.collect(3600) == {}
    three = group.consumer("three")
    assert group.collect(0.03, to=three) == {"one": 2, "two": 2}
    assert _owners(group) == dict.fromkeys(range(1, 7), ("three", 1))
    assert min(one.idle_ms for one in group.pending(4)) >= 30
    assert [one.name for one in group.consumers()] == ["three"]


def test_the_last_active_consumer_receives_the_messages(group: Group) -> None:
    for name in ("one", "two"):
        group.consumer(name).read(3)
        _silent(group.consumer(name), 5)
    assert group.collect(0) == {"one": 3}
    assert _owners(group) == dict.fromkeys(range(1, 7), ("two", 1))
    assert group.collect(0) == {}  # it has messages
    group.ack(*range(1, 7))
    assert group.collect(0) == {"two": 0}
    assert group.collect(0) == {}
    assert group.consumers() == []


def test_many_messages_are_handed_on_in_several_steps(group: Group) -> None:
    group.stream.add_many((n, {"n": n}) for n in range(7, 257))
    one, two = group.consumer("one"), group.consumer("two")
    assert len(one.read(100)) + len(one.read(100)) + len(two.read(50)) == 250
    assert group.collect(0, to="three") == {"one": 200, "two": 50}
    assert group.pending_summary().consumers == {"three": 250}
    assert group.pending_count() == 250


def test_a_task_collects(group: Group) -> None:
    async def body() -> None:
        jobs = await group.store.aio().stream("{a}b}jobs").group("workers")
        await jobs.consumer("one").read(2)
        with pytest.raises(PendingMessages):
            await jobs.delete_consumer("one")
        assert await jobs.collect(0, to=jobs.consumer("two")) == {"one": 2}
        assert await jobs.delete_consumer("two", pending="three") == 2

    asyncio.run(body())
    assert group.pending_summary().consumers == {"three": 2}


@pytest.mark.parametrize(("idle", "kind"), [(-1, ValueError), (float("nan"), ValueError), ("1", TypeError)])
def test_other_times_are_rejected(group: Group, idle: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="idle must be"):
        group.collect(idle)
    with pytest.raises(TypeError, match="to: a name must be str or bytes"):
        group.collect(1, to=5)  # type: ignore[arg-type]


def test_on_a_cluster(cluster_url: str) -> None:
    with rillet.connect(cluster_url) as store:
        for name in ("jobs", "{jobs}.eu", "jobs{}", "}jobs{", "a}{b}"):
            stream = store.stream(name)
            stream.add({"n": 1})
            group = stream.group("workers")
            group.consumer("one").read()
            assert group.collect(0, to="two") == {"one": 1}
            assert group.delete_consumer("two", pending="drop") == 1


# -- a model -----------------------------------------------------------------------------------------------------------


def _round(random: Random) -> None:
    """Consumers read, acknowledge, fall silent, come back and are collected; a ledger has what each must hold."""
    clock = StoreClock(1_700_000_000)
    with clock.open() as store:
        stream = store.stream("jobs")
        group = stream.group("workers")
        group.create()
        holder: dict[int, str] = {}
        seen: dict[str, float] = {}
        added = 0
        for _ in range(random.randrange(10, 60)):
            name = random.choice("abcd")
            match random.randrange(6):
                case 0:
                    for _ in range(random.randrange(1, 4)):
                        added += 1
                        stream.add({"n": added}, added)
                case 1 | 2:
                    for message in group.consumer(name).read(random.randrange(1, 4)):
                        holder[message.id.ms] = name
                    seen[name] = clock.time()
                case 3:
                    some = random.sample(sorted(holder), min(len(holder), random.randrange(1, 4)))
                    assert group.ack(*some) == len(some)
                    for number in some:
                        del holder[number]
                case 4:
                    clock.advance(random.choice((0.5, 5, 50, 5000)))
                case _:
                    _collect(group, random.choice((1, 10, 100)), holder, seen, clock.time(), random.choice("abcde"))
            held = {one.id.ms: one.consumer for one in group.pending(1000)}
            assert held == holder
            assert {one.name for one in group.consumers()} == set(seen)


def _collect(group: Group, idle: int, holder: dict[int, str], seen: dict[str, float], now: float, to: str) -> None:
    silent = {name for name, when in seen.items() if now - when >= idle and name != to}
    expected = {name: sum(one == name for one in holder.values()) for name in silent}
    assert group.collect(idle, to=to) == expected
    for number, name in holder.items():
        if name in silent:
            holder[number] = to
            seen[to] = now
    for name in silent:
        del seen[name]


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_whatever_the_consumers_do(seed: int) -> None:
    _round(Random(seed))


@pytest.mark.long
def test_nothing_is_lost_in_two_thousand_rounds() -> None:
    for seed in range(2000):
        _round(Random(f"collect {seed}"))
