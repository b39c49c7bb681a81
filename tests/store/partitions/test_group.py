"""Groups of partitioned streams: how consumers share out the partitions, and in which order messages come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

import rillet
from rillet import LeaseLost, Message, NoGroup, PartitionedStream, Store
from rillet.store.command_steps import drive, run_step
from rillet.store.consuming import prefetch
from rillet.store.consuming.delivery_options import DeliveryOptions, End
from rillet.store.partitions import share
from rillet.store.partitions.upkeep import reset_to
from rillet.testing.clock import StoreClock
from tests.waiting import until


@pytest.fixture
def orders(store: Store) -> PartitionedStream[Any]:
    orders = store.partitioned("orders", partitions=4, by="customer")
    orders.add_many({"customer": n % 7, "n": n} for n in range(40))
    return orders


class Loop:
    """A loop over messages() that does one command at a time, on a store whose clock the test sets."""

    def __init__(self, orders: PartitionedStream[Any], name: str, lease: float = 10.0, **options: Any) -> None:
        self.store = orders.store
        given = DeliveryOptions(block=None, claim_idle=lease, **options)
        consumer = orders.group("billing").consumer(name)
        self.prefetched: Any
        self.prefetched, self.leases = consumer._loop(given)
        self.share = self.prefetched.share
        self.steps = consumer._steps(given, End(given), self.prefetched, self.leases)
        self.next: Any = next(self.steps)

    def messages(self, commands: int = 30) -> list[Message]:
        """Run commands until there are messages, or so many commands have run; return the messages."""
        if isinstance(self.next, tuple):
            self.next = next(self.steps)
        for _ in range(commands):
            if isinstance(self.next, tuple):
                break
            self.next = self.steps.send(run_step(self.store, self.next))
        return list(self.next) if isinstance(self.next, tuple) else []

    def handle(self, commands: int = 40) -> list[str]:
        """Acknowledge what comes; return the values of the field n."""
        found = []
        for _ in range(commands):
            for message in self.messages(12):
                message.ack()
                found.append(message["n"])
        return found

    def balance(self) -> set[int]:
        """Balance until nothing more is given back; return the partitions of the loop."""
        self.share.next = 0.0
        self.messages(12)
        return set(self.share.parts)

    def leave(self) -> None:
        self.steps.close()
        drive(self.store, self.prefetched.give_back())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StoreClock:
    clock = StoreClock(1_700_000_000)
    monkeypatch.setattr(share, "monotonic", clock.time)
    monkeypatch.setattr("rillet.store.partitions.delivery.monotonic", clock.time)
    return clock


@pytest.fixture
def empty(clock: StoreClock) -> Iterator[PartitionedStream[Any]]:
    with clock.open() as store:
        orders = store.partitioned("orders", partitions=8, by="customer")
        orders.group("billing").create()
        yield orders


def by_customer(numbers: list[int]) -> None:
    for customer in range(7):
        mine = [n for n in numbers if n % 7 == customer]
        assert mine == sorted(mine)


# -- one consumer --------------------------------------------------------------------------------------------


def test_messages_come_in_order(orders: PartitionedStream[Any]) -> None:
    found = []
    for message in orders.group("billing").consumer("w").messages(stop_when_empty=True):
        found.append(int(message["n"]))
        assert message.deliveries == 1
        assert message.ack()
    assert sorted(found) == list(range(40))
    by_customer(found)
    info = orders.group("billing").info()
    assert (info.epoch, info.partitions, info.pending, info.lag, info.consumers) == (1, 4, 0, 0, {})


def test_the_lag_counts_epochs_that_the_group_has_not_begun(orders: PartitionedStream[Any]) -> None:
    group = orders.group("billing")
    assert group.create()
    orders.repartition(2)
    orders.add_many({"customer": n % 5, "n": n} for n in range(40, 47))
    info = group.info()
    assert (info.epoch, info.lag) == (1, 47)
    assert sum(message.ack() for message in group.consumer("w").messages(stop_when_empty=True)) == 47
    assert (group.info().epoch, group.info().lag) == (2, 0)


def test_a_restart_begins_with_its_pending_messages(orders: PartitionedStream[Any]) -> None:
    group = orders.group("billing")
    before = [message["n"] for _, message in zip(range(5), group.consumer("w").messages(), strict=False)]
    found = list(group.consumer("w").messages(stop_when_empty=True))
    assert {message["n"] for message in found} == {str(n) for n in range(40)}
    assert {message["n"] for message in found if message.deliveries == 2} == set(before)
    assert group.info().pending == 40


def test_batches(orders: PartitionedStream[Any]) -> None:
    group = orders.group("billing")
    found = []
    for batch in group.consumer("w").messages(batch=5, stop_when_empty=True):
        assert 1 <= len(batch) <= 5
        assert len({message.stream.name for message in batch}) == 1
        assert group.consumer("w").ack(*batch) == len(batch)
        found += [int(message["n"]) for message in batch]
    by_customer(found)
    assert len(found) == 40
    assert group.info().pending == 0


def test_new_entries_are_received(orders: PartitionedStream[Any]) -> None:
    found = []
    for message in orders.group("billing", "$").consumer("w").messages(block=0.05, timeout=0.2):
        found.append(message["n"])
        message.ack()
    assert found == []
    orders.add({"customer": 1, "n": "new"})
    for message in orders.group("billing").consumer("w").messages(timeout=5):
        message.ack()
        assert message["n"] == "new"
        break


def test_a_waiting_consumer_wakes_up(orders: PartitionedStream[Any]) -> None:
    async def use() -> None:
        aio = orders.store.aio().partitioned("orders")
        group = aio.group("billing", "$")
        await group.create()

        async def add() -> None:
            for n in range(5):
                await asyncio.sleep(0.05)
                await aio.add({"customer": n, "n": n})

        task = asyncio.create_task(add())
        found = []
        async for message in group.consumer("w").messages(timeout=5):
            found.append(int(message["n"]))
            await message.ack()
            if len(found) == 5:
                break
        await task
        assert found == list(range(5))

    asyncio.run(use())


def test_a_missing_group(orders: PartitionedStream[Any]) -> None:
    group = orders.group("billing", create=False)
    with pytest.raises(NoGroup):
        next(iter(group.consumer("w").messages()))
    with pytest.raises(NoGroup):
        group.info()
    assert orders.group("billing").create()
    assert not orders.group("billing").create()
    assert len(list(group.consumer("w").messages(stop_when_empty=True))) == 40
    assert group.delete()
    assert not group.delete()
    with pytest.raises(NoGroup):
        next(iter(group.consumer("w").messages()))
    assert {key for key in list(orders.store.keys()) if not key.startswith("orders:")} == {
        "rillet:partitions:{orders}orders"
    }  # fmt: skip


def test_redis_clients_see_ordinary_groups(orders: PartitionedStream[Any]) -> None:
    for message in orders.group("billing").consumer("w").messages(stop_when_empty=True):
        message.ack()
    for stream in orders.partitions():
        info = stream.group("billing").info()
        assert (info.consumers, info.pending, info.lag) == (1, 0, 0)


# -- messages that fail -------------------------------------------------------------------------------------


def test_a_retried_message_holds_its_partition_back(store: Store) -> None:
    orders = store.partitioned("orders", partitions=2, by="customer")
    orders.add_many({"customer": n % 2, "n": n} for n in range(12))
    found: list[tuple[str, int]] = []
    for message in orders.group("billing").consumer("w").messages(timeout=2, block=0.05):
        found.append((message["n"], message.deliveries))
        if message["n"] in ("2", "3") and message.deliveries == 1:
            message.retry(0.2)
        else:
            message.ack()
        if len(found) == 14:
            break
    assert [n for n, _ in found if int(n) % 2 == 0] == ["0", "2", "2", "4", "6", "8", "10"]
    assert [n for n, _ in found if int(n) % 2 == 1] == ["1", "3", "3", "5", "7", "9", "11"]
    assert {n for n, deliveries in found if deliveries == 2} == {"2", "3"}


def test_backoff(store: Store) -> None:
    orders = store.partitioned("orders", partitions=1, by="customer")
    orders.add_many({"customer": 1, "n": n} for n in range(4))
    found = []
    for message in orders.group("billing").consumer("w").messages(timeout=2, block=0.05, backoff=lambda _: 0.05):
        found.append(message["n"])
        if message["n"] == "1" and message.deliveries < 3:
            continue
        message.ack()
        if message["n"] == "3":
            break
    assert found == ["0", "1", "1", "1", "2", "3"]


def test_dead_letters(store: Store) -> None:
    orders = store.partitioned("orders", partitions=2, by="customer")
    orders.add_many({"customer": 1, "n": n} for n in range(4))
    found = []
    for message in orders.group("billing").consumer("w").messages(
        timeout=20, block=0.05, max_deliveries=2, dead_letters="dead", backoff=lambda _: 0.01
    ):
        found.append(message["n"])
        if message["n"] != "1":
            message.ack()
        if message["n"] == "3":
            break
    assert found == ["0", "1", "1", "2", "3"]
    (letter,) = store.stream("dead")
    assert (letter["n"], letter["_deliveries"], letter["_group"]) == ("1", "2", "billing")
    assert orders.group("billing").info().pending == 0


def test_messages_that_were_read_ahead_are_not_counted(orders: PartitionedStream[Any]) -> None:
    group = orders.group("billing")
    for kill in range(5):
        for message in group.consumer(f"w{kill}").messages(max_deliveries=9, dead_letters="dead", stop_when_empty=True):
            if message["n"] == "20":
                break  # the worker ends in its handler
    counts = {
        entry.id: entry.deliveries for stream in orders.partitions() for entry in stream.group("billing").pending()
    }  # fmt: skip
    assert max(counts.values()) == 5
    assert orders.store.stream("dead").length() == 0


# -- several consumers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("consumers", [1, 2, 3, 5, 8, 11])
def test_partitions_are_shared_out(empty: PartitionedStream[Any], consumers: int) -> None:
    loops = [Loop(empty, f"w{n}") for n in range(consumers)]
    for _ in range(3):
        shares = [loop.balance() for loop in loops]
    assert sorted(number for share in shares for number in share) == list(range(8))
    sizes = sorted(map(len, shares))
    assert sizes[-1] <= -(-8 // consumers)
    assert sizes[0] >= 8 // consumers
    for loop in loops[1:]:
        loop.leave()
    assert loops[0].balance() == set(range(8))


def test_few_partitions_move(empty: PartitionedStream[Any]) -> None:
    first, second = Loop(empty, "a"), Loop(empty, "b")
    for _ in range(2):
        before = first.balance(), second.balance()
    third = Loop(empty, "c")
    for _ in range(3):
        after = first.balance(), second.balance(), third.balance()
    assert after[0] < before[0]
    assert after[1] < before[1]
    assert sorted(map(len, after)) == [2, 3, 3]
    tokens = {number: part.token for number, part in first.share.parts.items()}
    third.leave()
    assert first.balance() >= after[0]
    assert {number: first.share.parts[number].token for number in tokens} == tokens
    info = empty.group("billing").info()
    assert set(info.consumers) == {"a", "b"}
    assert set(info.consumers["a"]) >= after[0]


def test_the_partitions_of_a_killed_consumer_move_within_its_lease(
    empty: PartitionedStream[Any], clock: StoreClock
) -> None:  # fmt: skip
    killed, other = Loop(empty, "a"), Loop(empty, "b")
    for loop in (killed, other, killed, other):
        loop.balance()
    assert len(other.balance()) == 4
    clock.advance(9.0)
    assert len(other.balance()) == 4
    assert 0.9 <= other.share.next - clock.time() <= 1.1  # when the lease of the other one ends
    clock.advance(1.01)
    assert other.share.due()
    assert len(other.balance()) == 8


def test_a_lost_message_cannot_be_acknowledged(empty: PartitionedStream[Any], clock: StoreClock) -> None:
    empty.add_many({"customer": 1, "n": n} for n in range(3))
    slow, other = Loop(empty, "a"), Loop(empty, "b")
    (message,) = slow.messages(60)
    clock.advance(11.0)
    assert len(other.balance() or other.balance()) == 8
    (again,) = other.messages(60)
    assert (again["n"], again.deliveries) == ("0", 2)
    for call in (message.ack, lambda: message.extend(5), lambda: message.retry(5),
                 lambda: empty.group("billing").ack(message)):  # fmt: skip
        with pytest.raises(LeaseLost, match="no longer belongs to the consumer 'a'"):
            call()
    assert again.ack()
    assert slow.messages(100) == []  # what it had read ahead is lost, too
    assert other.handle() == ["1", "2"]


def test_a_renewed_lease_is_kept(empty: PartitionedStream[Any], clock: StoreClock) -> None:
    """What a heartbeat does, from its thread, while a handler works."""
    empty.add({"customer": 1, "n": 0})
    slow, other = Loop(empty, "a"), Loop(empty, "b")
    (message,) = slow.messages(60)
    for _ in range(10):
        clock.advance(6.0)
        drive(empty.store, slow.leases.renew())
        other.balance()
    assert other.messages(60) == []
    assert message.ack()


def test_an_extended_message_holds_the_partition(empty: PartitionedStream[Any], clock: StoreClock) -> None:
    empty.add_many({"customer": 1, "n": n} for n in range(2))
    slow, other = Loop(empty, "a"), Loop(empty, "b")
    (message,) = slow.messages(60)
    message.extend(30)
    clock.advance(11.0)
    other.balance()
    assert other.messages(60) == []
    assert message.ack()  # its time has not ended
    clock.advance(1.0)
    assert other.handle(20) == ["1"]


def test_another_loop_of_the_same_name_takes_over(empty: PartitionedStream[Any]) -> None:
    empty.add_many({"customer": 1, "n": n} for n in range(3))
    first = Loop(empty, "a")
    (message,) = first.messages(60)
    second = Loop(empty, "a")
    (again,) = second.messages(60)
    assert again["n"] == "0"
    with pytest.raises(LeaseLost):
        message.ack()
    first.share.next = 0.0
    with pytest.raises(LeaseLost, match="another loop has begun as the consumer 'a' of the group 'billing'"):
        first.messages(60)
    again.ack()
    assert second.handle() == ["1", "2"]


def test_a_change_of_the_number_of_partitions(empty: PartitionedStream[Any], clock: StoreClock) -> None:
    """No consumer receives an entry of the next epoch before all of this one are acknowledged."""
    empty.add_many({"customer": n % 7, "n": n} for n in range(30))
    first, second = Loop(empty, "a"), Loop(empty, "b")
    (message,) = first.messages(60)
    empty.repartition(3)
    empty.add_many({"customer": n % 7, "n": n} for n in range(30, 60))
    assert {int(n) for n in second.handle()} <= set(range(30)) - {int(message["n"])}
    message.ack()
    found = []
    for _ in range(6):
        for loop in (first, second):
            clock.advance(1.1)
            found += loop.handle(60)
    assert {int(n) for n in found} >= set(range(30, 60))
    assert set(first.balance()) | set(second.balance()) == set(range(3))
    assert empty.group("billing").info().lag == 0
    assert empty.delete_drained() == 8


def test_silent_consumers_are_collected(empty: PartitionedStream[Any], clock: StoreClock) -> None:
    empty.add_many({"customer": n, "n": n} for n in range(30))
    Loop(empty, "gone").messages(60)
    clock.advance(60)
    loop = Loop(empty, "w", collect=50.0)
    assert len(loop.handle(60)) == 30
    for stream in empty.partitions():
        assert [one.name for one in stream.group("billing").consumers()] == ["w"]


def test_closing_the_store_leaves_the_group(tmp_path: Any) -> None:
    with rillet.open(tmp_path / "s") as store:
        orders = store.partitioned("orders", partitions=2, by="customer")
        orders.add({"customer": 1})
        messages: Any = orders.group("billing").consumer("w").messages()
        next(messages)
        assert orders.group("billing").info().consumers == {"w": [0, 1]}
        messages.close()
        assert orders.group("billing").info().consumers == {}


@pytest.mark.slow
@pytest.mark.usefixtures("quick_stop")
def test_threads_share_out_the_work(orders: PartitionedStream[Any]) -> None:
    """Consumers in threads, one of which ends: every message comes once, in the order of its customer."""
    from threading import Event, Lock, Thread

    found: list[tuple[int, str]] = []
    lock, stop = Lock(), Event()

    def work(name: str, most: int) -> None:
        for done, message in enumerate(orders.group("billing").consumer(name).messages(claim_idle=5, stop=stop)):
            with lock:
                found.append((int(message["n"]), name))
            message.ack()
            if done + 1 >= most:
                return

    threads = [Thread(target=work, args=(f"w{n}", 5 if n == 0 else 1000)) for n in range(3)]
    for thread in threads:
        thread.start()
    for n in range(40, 200, 10):
        orders.add_many({"customer": m % 7, "n": m} for m in range(n, n + 10))
        if n == 100:
            orders.repartition(6)
        time.sleep(0.02)
    until(lambda: len(found) >= 200, "all messages are handled")
    stop.set()
    for thread in threads:
        thread.join()
    assert list(orders.group("billing").consumer("last").messages(stop_when_empty=True)) == []
    numbers = [n for n, _ in found]
    assert sorted(numbers) == list(range(200))
    by_customer(numbers)


def test_the_checks_before_a_hand_out(empty: PartitionedStream[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that was paused after it had read ahead hands nothing out that another one has."""
    monkeypatch.setattr(prefetch, "CHECK_AFTER", 0.0)
    monkeypatch.setattr(prefetch, "AHEAD", 60.0)
    empty.add_many({"customer": 1, "n": n} for n in range(30))
    first = Loop(empty, "a")
    for _ in range(12):
        first.messages(60)[0].ack()
    assert first.prefetched.messages
    second = Loop(empty, "a")
    (again,) = second.messages(60)
    assert again["n"] == "12"
    with pytest.raises(LeaseLost, match="another loop has begun"):
        first.messages(60)


# -- another position ------------------------------------------------------------------------------------------


def test_a_group_is_reset(orders: PartitionedStream[Any]) -> None:
    group = orders.group("billing")

    def handled() -> list[int]:
        found = []
        for message in group.consumer("w").messages(stop_when_empty=True):
            found.append(int(message["n"]))
            assert message.ack()
        by_customer(found)
        return sorted(found)

    assert handled() == list(range(40))
    group.reset_to("-")
    assert group.info().lag == 40
    assert handled() == list(range(40))
    entries = sorted(orders, key=lambda entry: int(entry["n"]))
    time.sleep(0.002)
    later = orders.add_many({"customer": n % 7, "n": n} for n in range(40, 50))
    group.reset_to(min(later))
    assert handled() == list(range(40, 50))
    group.reset_to(entries[0].id.datetime)
    orders.repartition(3)
    orders.add_many({"customer": n % 7, "n": n} for n in range(50, 60))
    assert handled() == list(range(60))
    group.reset_to("-")  # of the earlier epoch
    assert group.info().epoch == 1
    assert handled() == list(range(60))
    group.reset_to("-")
    group.reset_to("$")
    assert handled() == []
    orders.add({"customer": 1, "n": 60})
    assert handled() == [60]


def test_a_missing_group_is_created_at_a_position(orders: PartitionedStream[Any]) -> None:
    with pytest.raises(NoGroup):
        orders.group("billing", create=False).reset_to("-")
    orders.group("billing").reset_to("$")
    assert list(orders.group("billing").consumer("w").messages(stop_when_empty=True)) == []


def test_a_reset_takes_the_partitions_from_their_owners(empty: PartitionedStream[Any]) -> None:
    empty.add_many({"customer": 1, "n": n} for n in range(3))
    loop = Loop(empty, "a")
    (message,) = loop.messages(60)
    empty.group("billing").reset_to("-")
    for call in (message.ack, lambda: message.extend(5), lambda: message.retry(5)):
        with pytest.raises(LeaseLost):
            call()
    (again,) = loop.messages(60)
    assert (again["n"], again.deliveries) == ("0", 2)
    assert again.ack()
    assert loop.handle() == ["0", "1", "2"]  # the first one is delivered anew, as by a group of a stream


@pytest.mark.parametrize("stop", range(1, 6))
def test_a_killed_reset_is_continued_by_the_consumers(
    empty: PartitionedStream[Any], clock: StoreClock, stop: int
) -> None:  # fmt: skip
    """The reset ends before its command number `stop`; the old owner reads on, or the others continue it."""
    empty.add_many({"customer": n % 7, "n": n} for n in range(30))
    first, second = Loop(empty, "a"), Loop(empty, "b")

    def handled() -> list[int]:
        found: list[int] = []
        for _ in range(5):
            clock.advance(1.5)
            found += map(int, first.handle() + second.handle())
        by_customer(found)
        return sorted(found)

    assert handled() == list(range(30))
    empty.repartition(3)
    empty.add_many({"customer": n % 7, "n": n} for n in range(30, 40))
    assert handled() == list(range(30, 40))
    steps = reset_to(empty.key, b"billing", b"0-0")
    command: Any = next(steps)
    for _ in range(stop):
        try:
            command = steps.send(run_step(empty.store, command))
        except StopIteration:
            break
    assert handled() == list(range(40))


def test_a_reset_that_was_paused_changes_nothing_later(empty: PartitionedStream[Any]) -> None:
    empty.add_many({"customer": n % 7, "n": n} for n in range(20))
    steps = reset_to(empty.key, b"billing", b"$")
    command: Any = next(steps)
    for _ in range(3):
        command = steps.send(run_step(empty.store, command))
    empty.group("billing").reset_to("-")
    loop = Loop(empty, "a")
    assert sorted(map(int, loop.handle())) == list(range(20))
    while True:
        try:
            command = steps.send(run_step(empty.store, command))
        except StopIteration:
            break
    loop.share.next = 0.0
    assert loop.handle() == []
    assert empty.group("billing").info().lag == 0


def test_the_rights_that_partitions_need(store: Store) -> None:
    """The rights of docs/partitions.md."""
    rules = "resetkeys ~orders:* ~rillet:* -@all +@connection +@stream +multi +exec +@hash +@string +@sortedset"
    store.execute("ACL", "SETUSER", "default", *rules.split(), "+eval", "+time", "+exists", "+acl")
    try:
        orders = store.partitioned("orders", 4, "customer")
        orders.add_many({"customer": n} for n in range(10))
        orders.add({"customer": 1}, delay=0)
        group = orders.group("billing")
        loop = group.consumer("one").messages(claim_idle=5, heartbeat=True, collect=100, timeout=20)
        for number, message in enumerate(loop, 1):
            message.extend(5)
            assert message.ack()
            if number == 11:
                break
        del loop
        orders.repartition(2)
        orders.add({"customer": 2})
        group.reset_to("-")
        assert sum(message.ack() for message in group.consumer("one").messages(stop_when_empty=True)) == 12
        assert (group.info().lag, len(orders), orders.delayed_count()) == (0, 12, 0)
        store.execute("ACL", "SETUSER", "default", "+del", "+unlink")
        assert orders.delete_drained() == 4
        assert group.delete()
        orders.delete()
    finally:
        store.execute("ACL", "SETUSER", "default", "allkeys", "+@all")
    assert list(store.keys()) == []
