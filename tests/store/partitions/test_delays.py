"""Delayed entries, filters and `order_by` of partitioned streams, on every kind of store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import rillet
from rillet import PartitionedStream, Store
from rillet.keyspace.helper_keys import delayed_key, moved_key
from rillet.store.command_steps import run_step
from rillet.store.partitions.layout import keys_of
from rillet.store.partitions.upkeep import moved
from rillet.testing.clock import StoreClock

PAST = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def orders(store: Store) -> PartitionedStream[Any]:
    return store.partitioned("orders", 4, "customer")


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock(1_700_000_000)


@pytest.fixture
def timed(clock: StoreClock) -> Iterator[PartitionedStream[Any]]:
    """A partitioned stream of a store whose time the test moves."""
    with clock.open() as store:
        yield store.partitioned("orders", 4, "customer")


def _handled(stream: PartitionedStream[Any], name: str = "one", **options: Any) -> list[str]:
    found = []
    for message in stream.group("billing").consumer(name).messages(claim_idle=10, stop_when_empty=True, **options):
        found.append(message["n"])
        assert message.ack()
    return found


# -- delays ------------------------------------------------------------------------------------------------------------


def test_delayed_entries(orders: PartitionedStream[Any]) -> None:
    orders.add({"customer": "ada", "n": 1}, at=PAST)
    due = orders.add({"customer": "ada", "n": 2}, delay=3600)
    assert len(orders.add_many([{"customer": c, "n": 3} for c in "abc"], delay=7200)) == 3
    assert orders.length() == 0
    assert orders.delayed_count() == 5
    assert [entry.due for entry in orders.delayed(2)] == [datetime(2020, 1, 1, tzinfo=UTC), due]
    assert _handled(orders) == ["1"]
    assert (orders.length(), orders.delayed_count()) == (1, 4)
    assert {entry.fields["n"] for entry in orders.delayed()} == {"2", "3"}
    orders.delete()
    assert list(orders.store.keys()) == []


def test_a_loop_that_waits_receives_them(orders: PartitionedStream[Any]) -> None:
    for n in range(4):
        orders.add({"customer": n, "n": n}, delay=0.05 * n)
    found = []
    for message in orders.group("billing").consumer("one").messages(timeout=20):
        found.append(message["n"])
        message.ack()
        if len(found) == 4:
            break
    assert sorted(found) == ["0", "1", "2", "3"]


def test_the_clock_and_the_order(timed: PartitionedStream[Any], clock: StoreClock) -> None:
    midnight = datetime.fromtimestamp(1_700_000_100, UTC)
    for n in range(3):
        assert timed.add({"customer": "ada", "n": n}, at=midnight) == midnight
    timed.add({"customer": "ada", "n": 3}, delay=50)
    clock.advance(99.999)
    assert _handled(timed) == ["3"]
    clock.advance(0.001)
    assert _handled(timed) == ["0", "1", "2"]


def test_they_follow_a_change_of_the_number_of_partitions(timed: PartitionedStream[Any], clock: StoreClock) -> None:
    """Also one by a program with the old description; entries that were added earlier come first."""
    other = timed.store.partitioned("orders")
    midnight = datetime.fromtimestamp(1_700_000_100, UTC)
    for n in range(150):
        timed.add({"customer": n % 7, "n": n}, at=midnight)
        other.layout()
    assert _handled(timed) == []
    timed.repartition(3)
    for n in range(150, 200):
        other.add({"customer": n % 7, "n": n}, at=midnight)
    assert timed.delayed_count() == 200
    assert _handled(timed) == []  # it moves them
    layout = timed.layout()
    assert not any(timed.store.stream(key).delayed_count() for key in layout.streams(1))
    assert timed.delete_drained() == 4
    clock.advance(100)
    found = [int(n) for n in _handled(timed)]
    assert sorted(found) == list(range(200))
    for customer in range(7):
        mine = [n for n in found if n % 7 == customer]
        assert mine == sorted(mine)
    assert _handled(timed, "two") == []
    timed.delete()
    assert list(timed.store.keys()) == []


def test_a_move_that_was_killed_or_paused_adds_nothing_twice(timed: PartitionedStream[Any], clock: StoreClock) -> None:
    timed.add_many(({"customer": n % 5, "n": n} for n in range(30)), delay=10)
    _handled(timed)
    source = max(timed.layout().streams(), key=lambda key: timed.store.stream(key).delayed_count())
    timed.repartition(2)
    paused = moved(b"orders", 1, source)
    command: Any = next(paused)
    while not isinstance(command[0], list):
        command = paused.send(run_step(timed.store, command))
    run_step(timed.store, command)  # and killed before the removal
    assert timed.delayed_count() > 30
    slow = moved(b"orders", 1, source)
    again: Any = next(slow)
    while not isinstance(again[0], list):
        again = slow.send(run_step(timed.store, again))
    _handled(timed)
    assert timed.delayed_count() == 30
    clock.advance(10)
    assert sorted(map(int, _handled(timed))) == list(range(30))
    again = slow.send(run_step(timed.store, again))  # it wakes up after all were delivered
    assert again[0] == b"ZREM"
    assert timed.delayed_count() == 0
    assert _handled(timed) == []
    assert timed.delete_drained() == 4
    assert moved_key(source) not in timed.store


def test_other_values_are_refused(orders: PartitionedStream[Any]) -> None:
    for wrong in ({"delay": -1}, {"delay": float("nan")}, {"delay": 1e12}, {"delay": 1, "at": PAST},
                  {"at": datetime(2020, 1, 1)}):
        with pytest.raises(ValueError, match=r"delay|at"):
            orders.add({"customer": 1}, **wrong)
    with pytest.raises(ValueError, match="needs the field 'customer'"):
        orders.add({"n": 1}, delay=1)
    with pytest.raises(ValueError, match="an entry with delay or at has at most"):
        orders.add({"customer": 1} | {str(n): n for n in range(3600)}, delay=1)
    assert orders.delayed_count() == 0


def test_the_keys_are_in_the_slot_of_their_partition() -> None:
    from rillet.client.cluster import slot_of

    for key in keys_of(b"{a}b}", 3, 5):
        assert slot_of(key) == slot_of(delayed_key(key)) == slot_of(moved_key(key))


def test_tasks(store: Store) -> None:
    async def body() -> None:
        stream = store.aio().partitioned("orders", 2, "customer")
        await stream.add({"customer": 1, "n": 1}, at=PAST)
        await stream.add_many([{"customer": 1, "n": 2}], delay=3600)
        loop = stream.group("billing").consumer("one").messages(stop_when_empty=True, where={"customer": 1})
        assert [message["n"] async for message in loop] == ["1"]
        assert await stream.delayed_count() == len(await stream.delayed()) == 1

    asyncio.run(body())


@pytest.mark.slow
def test_a_cluster(cluster_url: str) -> None:
    with rillet.connect(cluster_url) as store:
        orders = store.partitioned("orders", 6, "customer")
        orders.add_many(({"customer": n, "n": n} for n in range(20)), delay=0.2)
        orders.repartition(3)
        found = []
        for message in orders.group("billing").consumer("one").messages(timeout=20):
            found.append(int(message["n"]))
            message.ack()
            if len(found) == 20:
                break
        assert sorted(found) == list(range(20))
        assert orders.delayed_count() == 0
        orders.delete()


# -- where and order_by ------------------------------------------------------------------------------------------------


def test_a_filter(orders: PartitionedStream[Any]) -> None:
    orders.add_many({"customer": n % 5, "type": "a" if n % 10 == 0 else "b", "n": n} for n in range(1000))
    assert sorted(map(int, _handled(orders, where={"type": "a"}))) == list(range(0, 1000, 10))
    info = orders.group("billing").info()
    assert (info.pending, info.lag) == (0, 0)


def test_a_filter_of_pending_messages(orders: PartitionedStream[Any]) -> None:
    orders.add_many({"customer": 1, "type": "ab"[n % 2], "n": n} for n in range(6))
    for message in orders.group("billing").consumer("one").messages(claim_idle=10, stop_when_empty=True):
        message.retry(0)
        break
    assert _handled(orders, where={"type": "b"}) == ["1", "3", "5"]
    assert orders.group("billing").info().pending == 0


def test_a_filter_leaves_messages_to_the_next_loop_that_wants_them(orders: PartitionedStream[Any]) -> None:
    orders.add_many({"customer": n % 3, "kind": "ab"[n // 3 % 2], "n": n} for n in range(24))
    only_a = _handled(orders, where={"kind": "a"}, skipped="leave")
    assert sorted(map(int, only_a)) == [n for n in range(24) if n // 3 % 2 == 0]
    group = orders.group("billing")
    assert group.info().pending == 12
    counts = {one.deliveries for part in orders.partitions() for one in part.group("billing").pending()}
    assert counts == {0}
    assert _handled(orders, where={"kind": "a"}, skipped="leave") == []
    rest = []
    for message in group.consumer("other").messages(stop_when_empty=True, max_deliveries=1, dead_letters="dead"):
        assert message.deliveries == 1
        rest.append(int(message["n"]))
        message.ack()
    assert sorted(rest) == [n for n in range(24) if n // 3 % 2 == 1]
    assert [n for n in rest if n % 3 == 0] == sorted(n for n in rest if n % 3 == 0)
    assert group.info().pending == 0


def test_messages_that_are_left_hold_only_their_epoch(orders: PartitionedStream[Any]) -> None:
    orders.add({"customer": 1, "kind": "b", "n": 0})
    orders.repartition(3)
    orders.add({"customer": 1, "kind": "a", "n": 1})
    assert _handled(orders, where={"kind": "a"}, skipped="leave") == []  # the epoch is not finished
    assert _handled(orders) == ["0", "1"]


def test_a_retried_message_behind_a_left_one_comes_again(orders: PartitionedStream[Any]) -> None:
    orders.add_many({"customer": 1, "kind": kind, "n": n} for n, kind in enumerate("baba"))
    found = []
    for message in orders.group("billing").consumer("w").messages(where={"kind": "a"}, skipped="leave", block=0.05,
                                                            timeout=2):  # fmt: skip
        found.append((message["n"], message.deliveries))
        if message.deliveries == 1 and message["n"] == "1":
            message.retry(0.02)
        else:
            message.ack()
        if message["n"] == "3":
            break
    assert found == [("1", 1), ("1", 2), ("3", 1)]
    assert _handled(orders) == ["0", "2"]


def test_the_order_of_the_field_is_accepted(orders: PartitionedStream[Any]) -> None:
    orders.add_many({"customer": "ada", "n": n} for n in range(3))
    assert _handled(orders, order_by="customer") == ["0", "1", "2"]
    with pytest.raises(ValueError, match="partitioned by 'customer', .* order_by='n' is not possible"):
        _handled(orders, order_by="n")
