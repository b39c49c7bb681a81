"""The order by key: messages(order_by=...)."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import InvalidEntry, LeaseLost, Message, Store
from rillet.keyspace.helper_keys import order_keys, retries_key
from rillet.store.command_steps import run_step
from rillet.store.consuming.delivery import delivery
from rillet.store.consuming.delivery_options import DeliveryOptions, End
from rillet.store.group import Group
from rillet.testing.clock import StoreClock
from tests.store.conftest import FEW, Frontend
from tests.store.process import Other
from tests.waiting import until

A, B = "ada", "bob"


def _add(group: Group, *customers: str | None) -> None:
    """Add an entry for each customer, with the IDs 1, 2 ..."""
    first = group.stream.last_id.ms + 1
    for n, customer in enumerate(customers, first):
        group.stream.add({"n": n} | ({} if customer is None else {"customer": customer}), n)


def _loop(group: Group, name: str, **options: Any) -> Any:
    """Return a loop that ends when nothing is to be done."""
    options = {"claim_idle": 60, "stop_when_empty": True} | options
    return group.consumer(name).messages(order_by="customer", **options)


def _ids(messages: Any) -> list[int]:
    """Acknowledge messages; return the milliseconds of their IDs."""
    found = []
    for message in messages:
        found.append(message.id.ms)
        assert message.ack()
    return found


def _helpers(group: Group) -> list[bool]:
    return [bool(group.store.execute("EXISTS", key)) for key in order_keys(group.stream.key, group.key)]


@pytest.fixture
def group(store: Store) -> Group:
    return store.stream("{a}b}orders").group("bill:ing")


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock(1_700_000_000)


@pytest.fixture
def timed(clock: StoreClock) -> Iterator[Group]:
    """A group of a store whose time the test moves."""
    with clock.open() as store:
        yield store.stream("orders").group("billing")


# -- the order ---------------------------------------------------------------------------------------------------------


def test_messages_of_a_key_come_one_after_another(frontend: Frontend, group: Group) -> None:
    other = frontend.another().stream("{a}b}orders").group("bill:ing")
    _add(group, A, A, B, A, B)
    one, two = _loop(group, "one"), _loop(other, "two")
    first: Message = next(one)
    second: Message = next(two)
    assert (first.id.ms, second.id.ms) == (1, 3)
    assert list(_loop(other, "three")) == []  # 2, 4 and 5 wait
    first.ack()
    assert next(two).id.ms == 2  # the key goes to the consumer that is free, although the other one had it
    second.ack()
    assert next(one).id.ms == 5
    assert list(_loop(other, "three")) == []
    assert group.pending_count() == 3
    one.close()
    two.close()


def test_nothing_remains(group: Group) -> None:
    assert _helpers(group) == [False, False, False]
    _add(group, A, B, A)
    loop = _loop(group, "one")
    message = next(loop)
    assert _helpers(group) == [True, True, True]
    message.ack()
    assert _ids(loop) == [2, 3]
    assert _helpers(group) == [False, False, False]
    assert not group.store.execute("EXISTS", retries_key(group.stream.key, group.key))
    assert _ids(_loop(group, "one")) == []
    assert _helpers(group) == [False, False, False]


def test_a_batch_has_messages_of_different_keys(group: Group) -> None:
    _add(group, A, A, B, "cleo", B)
    found = []
    for batch in _loop(group, "one", batch=10):
        found.append([message.id.ms for message in batch])
        group.consumer("one").ack(*batch)
    assert found == [[1, 3, 4], [2, 5]]
    assert _helpers(group) == [False, False, False]


@pytest.mark.parametrize("names", [("jobs", "{jobs}.eu", "jobs{}", "}jobs{", "a}{b}")])
def test_on_a_cluster(cluster_url: str, names: tuple[str, ...]) -> None:
    with rillet.connect(cluster_url) as store:
        for name in names:
            group = store.stream(name).group("workers")
            _add(group, A, B, A)
            assert _ids(_loop(group, "one")) == [1, 2, 3]
            assert _helpers(group) == [False, False, False]


def test_several_streams(store: Store) -> None:
    for name in ("{o}.eu", "{o}.us"):
        _add(store.stream(name).group("g"), A, A, B)
    worker = store.consumer("g", "one", streams=["{o}.eu", "{o}.us"])
    found = defaultdict(list)
    for message in worker.messages(order_by="customer", stop_when_empty=True):
        found[message.stream.name, message["customer"]].append(message.id.ms)
        worker.ack(message)
    assert sorted(map(tuple, found.values())) == [(1, 2), (1, 2), (3,), (3,)]


def test_a_task(group: Group) -> None:
    _add(group, A, B, A)

    async def body() -> None:
        there = await group.store.aio().stream("{a}b}orders").group("bill:ing")
        found = []
        async for message in there.consumer("one").messages(order_by="customer", claim_idle=60, stop_when_empty=True):
            found.append(message.id.ms)
            assert await message.ack()
        assert found == [1, 2, 3]

    asyncio.run(body())
    assert _helpers(group) == [False, False, False]


@pytest.mark.usefixtures("quick_stop")
def test_a_loop_waits_for_new_messages_and_for_keys(frontend: Frontend, group: Group) -> None:
    other = frontend.another().stream("{a}b}orders").group("bill:ing")
    _add(group, A)
    held = next(_loop(group, "one"))
    found: list[int] = []
    stop = threading.Event()

    def work() -> None:
        for message in _loop(other, "two", stop=stop, stop_when_empty=False, block=5):
            found.append(message.id.ms)
            message.ack()

    thread = threading.Thread(target=work)
    thread.start()
    _add(group, B)
    until(lambda: found == [2], "a new message arrives")
    _add(group, A)
    until(lambda: group.pending_count() == 2, "it waits for its key")
    held.ack()
    until(lambda: found == [2, 3], "the key is free")
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


@FEW
@pytest.mark.slow
def test_threads_and_stores_share_the_keys(frontend: Frontend) -> None:
    """Four loops at the same time: each key is in one handler at a time, and its messages come in order."""
    stores = [frontend.store, frontend.another()]
    stream = stores[0].stream("{a}b}orders")
    stream.add_many((n, {"customer": n % 7, "n": n}) for n in range(1, 201))
    stop = threading.Event()
    busy: dict[str, str] = {}
    found: dict[str, list[int]] = defaultdict(list)
    faults: list[str] = []

    def work(name: str, store: Store) -> None:
        group = store.stream("{a}b}orders").group("bill:ing")
        for message in _loop(group, name, stop=stop, stop_when_empty=False, block=0.05):
            key = message["customer"]
            if busy.setdefault(key, name) != name:
                faults.append(f"{key} is in the handlers of {name} and {busy[key]}")
            found[key].append(message.id.ms)
            busy.pop(key)
            message.ack()

    threads = [threading.Thread(target=work, args=(f"w{n}", stores[n % 2])) for n in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: sum(map(len, found.values())) >= 200, "all are handled")
    group = stream.group("bill:ing")
    until(lambda: group.pending_count() == 0, "all are acknowledged")
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert faults == []
    assert dict(found) == {str(key): [n for n in range(1, 201) if n % 7 == key] for key in range(7)}
    assert _helpers(group) == [False, False, False]


# -- failed messages ---------------------------------------------------------------------------------------------------


def test_a_failed_message_holds_back_its_key_only(timed: Group, clock: StoreClock) -> None:
    _add(timed, A, A, B, B)
    found = []
    for message in _loop(timed, "one"):
        found.append(message.id.ms)
        if message["customer"] == B:
            message.ack()
    assert found == [1, 3, 4]
    assert _ids(_loop(timed, "two")) == []
    clock.advance(61)
    assert _ids(_loop(timed, "two")) == [1, 2]


def test_a_retry_holds_back_its_key(timed: Group, clock: StoreClock) -> None:
    _add(timed, A, A, B)
    loop = _loop(timed, "one")
    next(loop).retry(delay=1000)
    assert _ids(loop) == [3]
    clock.advance(100)
    assert _ids(_loop(timed, "two", claim_idle=1)) == []
    clock.advance(900)
    again = _loop(timed, "two")
    message = next(again)
    assert (message.id.ms, message.deliveries) == (1, 2)
    message.ack()
    assert _ids(again) == [2]
    assert _helpers(timed) == [False, False, False]


def test_back_off_and_dead_letters(timed: Group, clock: StoreClock) -> None:
    _add(timed, A, A, B)
    found = []
    for _ in range(4):
        for message in _loop(timed, "one", backoff=lambda n: 10 * n, max_deliveries=2, dead_letters="dead"):
            found.append((message.id.ms, message.deliveries))
            if message.id.ms != 1:
                message.ack()
        clock.advance(10)
    assert found == [(1, 1), (3, 1), (1, 2), (2, 1)]
    assert [entry["_id"] for entry in timed.store.stream("dead")] == ["1-0"]
    assert _helpers(timed) == [False, False, False]


def test_a_dead_letter_does_not_free_a_key_that_has_moved(timed: Group, clock: StoreClock) -> None:
    """A worker is paused before the dead letter and its acknowledgement, for longer than the lease."""
    _add(timed, A, A)
    options = {"max_deliveries": 1, "dead_letters": "dead", "claim_idle": 5}
    next(_loop(timed, "one", **options))
    clock.advance(6)
    slow = timed.consumer("two")
    checked = DeliveryOptions(order_by="customer", max_deliveries=1, dead_letters="dead", claim_idle=5, block=None)
    steps = delivery([slow], checked, End(checked), checked.prefetched(slow.key), checked.leases(slow.key))
    command: Any = next(steps)
    while b"bury" not in command:
        command = steps.send(run_step(timed.store, command))
    clock.advance(6)
    moved = _loop(timed, "three")
    message = next(moved)
    assert message.id.ms == 1
    steps.send(run_step(timed.store, command))
    assert len(timed.store.stream("dead")) == 0
    assert list(_loop(timed, "four")) == []  # the second one still waits
    assert message.ack()
    assert _ids(moved) == [2]


def test_a_dropped_message_frees_its_key(timed: Group, clock: StoreClock) -> None:
    _add(timed, A, A)
    assert next(_loop(timed, "one", max_deliveries=1, on_exhausted="drop", claim_idle=5)).id.ms == 1
    clock.advance(6)
    assert _ids(_loop(timed, "two", max_deliveries=1, on_exhausted="drop")) == [2]


def test_a_released_message_comes_again_first() -> None:
    with rillet.open() as store:
        group = store.stream("orders").group("g")
        _add(group, A, A)
        loop = _loop(group, "one")
        next(loop).nack("silent")
        message = next(loop)
        assert (message.id.ms, message.deliveries) == (1, 1)
        assert group.consumer("one").nack(message, deliveries=7) == 1
        message = next(loop)
        assert (message.id.ms, message.deliveries) == (1, 8)
        message.ack()
        assert _ids(loop) == [2]
        with pytest.raises(ValueError, match="mode must be 'fail', 'silent' or 'fatal', not 'x'"):
            message.nack("x")


# -- leases ------------------------------------------------------------------------------------------------------------


def test_a_key_moves_when_its_lease_is_over(timed: Group, clock: StoreClock) -> None:
    _add(timed, A, A, A)
    loop = _loop(timed, "one", claim_idle=10)
    slow = next(loop)
    clock.advance(9)
    assert _ids(_loop(timed, "two", claim_idle=1)) == []  # the lease is that of the first one
    clock.advance(1)
    found = _loop(timed, "two")
    message = next(found)
    assert (message.id.ms, message.deliveries) == (1, 2)
    for call in (slow.ack, lambda: slow.extend(5), lambda: slow.retry(5), slow.nack):
        with pytest.raises(LeaseLost):
            call()
    message.ack()
    assert _ids(found) == [2, 3]
    loop.close()


def test_a_longer_lease(timed: Group, clock: StoreClock) -> None:
    _add(timed, A, A)
    loop = _loop(timed, "one", claim_idle=10)
    message = next(loop)
    message.extend(100)
    clock.advance(99)
    assert _ids(_loop(timed, "two")) == []
    assert message.ack()
    assert _ids(_loop(timed, "two")) == [2]


def test_an_extension_makes_no_lease_of_a_key_shorter(timed: Group, clock: StoreClock) -> None:
    _add(timed, A, A)
    loop = _loop(timed, "one", claim_idle=60)
    message = next(loop)
    message.extend(5)
    clock.advance(59)
    assert _ids(_loop(timed, "two")) == []
    clock.advance(1)
    assert next(_loop(timed, "two")).id.ms == 1
    loop.close()


@FEW
def test_a_heartbeat_keeps_the_key(frontend: Frontend, group: Group) -> None:
    _add(group, A, A)
    other = frontend.another().stream("{a}b}orders").group("bill:ing")
    for message in _loop(group, "one", claim_idle=0.3, heartbeat=True):
        if message.id.ms == 1:
            limit = threading.Event()
            for _ in range(10):
                limit.wait(0.05)
                assert list(_loop(other, "two")) == []
        assert message.ack()


def test_without_a_lease_a_key_waits_for_its_consumer(timed: Group, clock: StoreClock) -> None:
    _add(timed, A, A)
    assert next(_loop(timed, "one", claim_idle=None)).id.ms == 1
    clock.advance(1e6)
    assert _ids(_loop(timed, "two")) == []
    assert _ids(_loop(timed, "one")) == [1, 2]  # it starts again


def test_own_keys_come_first_after_a_restart(timed: Group) -> None:
    _add(timed, B, A, A)
    loop = _loop(timed, "one")
    next(loop).ack()
    assert next(loop).id.ms == 2
    _add(timed, "cleo")
    again = _loop(timed, "one")
    message = next(again)
    assert (message.id.ms, message.deliveries) == (2, 2)
    message.ack()
    assert _ids(again) == [3, 4]


def test_messages_that_were_read_ahead_are_given_back(timed: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rillet.store.consuming.prefetch.AHEAD", 600.0)  # as with fast handlers
    _add(timed, *"abcdefghijklmnopqrstuvwxyz")
    loop = _loop(timed, "one")
    for _ in range(15):
        next(loop).ack()
    loop.close()
    rows = timed.pending()
    assert len(rows) > 1
    assert {row.deliveries for row in rows} == {0}
    assert _ids(_loop(timed, "two")) == list(range(16, 27))


def test_a_collected_consumer_leaves_its_keys(timed: Group, clock: StoreClock) -> None:
    _add(timed, A, A, B)
    loop = _loop(timed, "one", claim_idle=None)
    next(loop)
    next(loop)
    clock.advance(100)
    two = _loop(timed, "two", claim_idle=None, collect=50)
    assert _ids(two) == [1, 2, 3]
    assert _helpers(timed) == [False, False, False]


def test_a_deleted_consumer_leaves_its_keys(timed: Group) -> None:
    _add(timed, A, A, B, B)
    next(_loop(timed, "one", claim_idle=None))
    assert timed.delete_consumer("one", pending="two") == 1
    assert _ids(_loop(timed, "three")) == [1, 2, 3, 4]
    _add(timed, A)
    next(_loop(timed, "one", claim_idle=None))
    assert timed.delete_consumer("one", pending="drop") == 1
    _add(timed, A)
    assert _ids(_loop(timed, "three")) == [timed.stream.last_id.ms]
    assert _helpers(timed) == [False, False, False]


# -- other programs ----------------------------------------------------------------------------------------------------


def test_every_acknowledgement_frees_the_key(group: Group) -> None:
    _add(group, *[A] * 6)
    loop = _loop(group, "one", claim_idle=None)
    next(loop).ack()
    assert group.ack(next(loop).id) == 1
    group.consumer("one").ack(next(loop))
    with group.store.transaction() as transaction:
        (acknowledged,) = transaction.ack(next(loop))
    assert acknowledged.result == 1
    assert next(loop).ack(delete="KEEPREF") if group.store.transport is None else next(loop).ack()
    message = next(loop)
    assert group.store.execute("XACK", group.stream.key, group.key, message.raw_id) == 1
    _add(group, A)
    assert next(loop).id.ms == 7  # found missing when the key gets a new message
    loop.close()


def test_an_acknowledgement_by_xack_is_noticed(timed: Group) -> None:
    _add(timed, A, A)
    message = next(_loop(timed, "one", claim_idle=None))
    assert _ids(_loop(timed, "two")) == []
    timed.store.execute("XACK", timed.stream.key, timed.key, message.raw_id)
    assert _ids(_loop(timed, "two")) == [2]


def test_a_waiting_loop_notices_an_acknowledgement_by_xack(group: Group) -> None:
    _add(group, A, A)
    message = next(_loop(group, "one", claim_idle=None))
    group.store.execute("XACK", group.stream.key, group.key, message.raw_id)
    assert next(_loop(group, "two", stop_when_empty=False)).id.ms == 2


def test_a_deleted_entry_frees_its_key(timed: Group) -> None:
    _add(timed, A, A, A)
    first = next(_loop(timed, "one"))
    assert list(_loop(timed, "two")) == []
    timed.stream.delete(1, 2)
    first.ack()
    assert _ids(_loop(timed, "two")) == [3]
    assert timed.pending_count() == 0
    assert _helpers(timed) == [False, False, False]


def test_pending_messages_of_other_loops_are_adopted(timed: Group, clock: StoreClock) -> None:
    _add(timed, *[A, B] * 120)
    timed.consumer("old").read(150)
    timed.consumer("one").read(60)
    timed.ack(1)
    clock.advance(30)
    found = []
    for message in _loop(timed, "one", claim_idle=20):
        found.append((message["customer"], message.id.ms))
        message.ack()
    assert [n for customer, n in found if customer == A] == list(range(3, 241, 2))
    assert [n for customer, n in found if customer == B] == list(range(2, 241, 2))
    assert _helpers(timed) == [False, False, False]


def test_the_leases_of_adopted_messages_are_kept(timed: Group, clock: StoreClock) -> None:
    _add(timed, A, A, B)
    timed.consumer("old").read(1)
    clock.advance(5)
    assert _ids(_loop(timed, "one", claim_idle=20)) == [3]
    clock.advance(15)
    assert _ids(_loop(timed, "one", claim_idle=20)) == [1, 2]


def test_a_renamed_stream_keeps_its_order(timed: Group) -> None:
    _add(timed, A, A, B)
    loop = _loop(timed, "one")
    next(loop)
    timed.store.execute("RENAME", "orders", "new")
    assert _ids(_loop(timed.store.stream("new").group("billing"), "one")) == [1, 2, 3]


@pytest.mark.parametrize("claim_idle", [None, 60])
def test_a_group_that_was_deleted_begins_again(timed: Group, claim_idle: float | None) -> None:
    _add(timed, A, A, A, B)
    loop = _loop(timed, "one", claim_idle=claim_idle)
    next(loop)
    assert [message.id.ms for message in loop] == [4]
    timed.store.execute("XGROUP", "DESTROY", "orders", "billing")
    assert _helpers(timed) == [True, True, True]
    timed.stream.delete(1)
    again = timed.stream.group("billing")
    assert sorted(_ids(_loop(again, "two", claim_idle=claim_idle))) == [2, 3, 4]
    assert _helpers(timed) == [False, False, False]
    _add(again, A)
    next(_loop(again, "one"))
    again.store.delete("orders")
    _add(again, A, B)
    assert sorted(_ids(_loop(again.stream.group("billing"), "two", claim_idle=claim_idle))) == [1, 2]
    _add(again, A)
    next(_loop(again.stream.group("billing"), "two", claim_idle=claim_idle))
    assert again.delete()
    assert _helpers(timed) == [False, False, False]


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_message_without_the_field(timed: Group, clock: StoreClock) -> None:
    _add(timed, A, None, A, None)
    loop = _loop(timed, "one", max_deliveries=2, dead_letters="dead")
    for n in (2, 4):
        next(loop).ack()
        with pytest.raises(InvalidEntry, match=f"entry {n}-0: the field 'customer' of order_by is missing") as caught:
            next(loop)
        assert caught.value.field == "customer"
    assert _ids(loop) == []
    for _ in range(2):
        clock.advance(61)
        assert _ids(_loop(timed, "one", max_deliveries=2, dead_letters="dead")) == []
    assert [entry["_id"] for entry in timed.store.stream("dead")] == ["2-0", "4-0"]
    assert _helpers(timed) == [False, False, False]
    _add(timed, None)
    with pytest.raises(InvalidEntry) as caught:
        next(_loop(timed, "one"))
    assert caught.value.message.ack()
    assert _helpers(timed) == [False, False, False]


def test_a_loop_without_the_order_is_refused(timed: Group) -> None:
    _add(timed, A, A)
    loop = _loop(timed, "one")
    message = next(loop)
    wrong = [timed.consumer("two").messages(), timed.consumer("two").messages(order_by="n")]
    for other in wrong:
        with pytest.raises(ValueError, match="messages of the group 'billing' of 'orders' are handed out in the order "
                                             "of 'customer': pass order_by='customer', or let"):  # fmt: skip
            next(other)
    message.ack()
    assert _ids(loop) == [2]
    _add(timed, A)
    assert next(timed.consumer("two").messages()).id.ms == 3  # nothing was in order any more


@pytest.mark.parametrize(("options", "error", "text"), [
    ({"order_by": 5}, TypeError, "order_by: a name must be str or bytes, not 5"),
    ({"order_by": "x", "claim_idle": 0}, ValueError, "claim_idle is the lease of a key with order_by: it must be"),
    ({"order_by": "x", "claim_idle": float("nan")}, ValueError, "claim_idle must be"),
])  # fmt: skip
def test_wrong_options(timed: Group, options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        timed.consumer("one").messages(**options)
    assert not timed.stream.exists()


# -- what is seen ------------------------------------------------------------------------------------------------------


def test_the_rights_that_an_order_needs(store: Store) -> None:
    """The rights of docs/workers.md."""
    stream = store.stream("orders")
    stream.add_many([{"customer": "a"}, {"customer": "a"}, {"customer": "b"}])
    rules = "resetkeys ~orders ~rillet:* -@all +@connection +@stream +@hash +@sortedset +eval +time +xread +del +multi"
    store.execute("ACL", "SETUSER", "default", *rules.split(), "+exec", "+acl")
    try:
        consumer = stream.group("g").consumer("one")
        options: dict[str, Any] = {"order_by": "customer", "claim_idle": 5, "heartbeat": True, "collect": 100}
        for message in consumer.messages(stop_when_empty=True, **options):
            message.extend(5)
            assert message.ack()
        assert stream.group("g").pending_count() == 0
        assert stream.group("g").ordered_keys() == []
    finally:
        store.execute("ACL", "SETUSER", "default", "allkeys", "+@all")



def test_what_is_held_and_waits(timed: Group, clock: StoreClock) -> None:
    assert timed.stream.group("billing").create()
    assert timed.ordered_keys() == []
    _add(timed, A, A, B, None)
    one, two = _loop(timed, "one"), _loop(timed, "two", claim_idle=None)
    next(one)
    next(two)
    with pytest.raises(InvalidEntry):
        next(two)
    found = {held.key: held for held in timed.ordered_keys()}
    assert (found[A].consumer, found[A].first.ms, found[A].deliveries, found[A].messages) == ("one", 1, 1, 2)
    assert found[A].until == datetime.fromtimestamp(clock.time() + 60, UTC)
    assert (found[B].consumer, found[B].first.ms, found[B].messages, found[B].until) == ("two", 3, 1, None)
    assert (found[None].consumer, found[None].first.ms) == ("two", 4)
    assert len(timed.ordered_keys(1)) == 1
    order = timed.store.stats().streams[0].groups[0].order
    assert (order.by, order.keys, order.waiting) == ("customer", 3, 1)
    clock.advance(61)
    assert {held.key: held.consumer for held in timed.ordered_keys()} == {A: None, B: "two", None: "two"}
    with pytest.raises(ValueError, match="count must be"):
        timed.ordered_keys(0)


# -- processes ---------------------------------------------------------------------------------------------------------


WORKER = """
import rillet
group = store.stream("orders").group("g")
while True:
    try:
        for message in group.consumer(name).messages(order_by="customer", claim_idle=60, block=0.1):
            key, n = message["customer"], int(message["n"])
            before = store.execute("GETSET", "in:" + key, name)
            store.execute("RPUSH", "log:" + key, n)
            message.ack()
    except (rillet.OutcomeUnknown, rillet.LeaseLost, rillet.StoreError):
        pass
"""


def _worker(path: Path, name: str) -> Other:
    other = Other(path)
    other.tell(f"exec({WORKER!r}, dict(globals(), store=store, name={name!r}))")
    return other


def _kills(path: Path, kills: int, entries: int) -> None:
    workers = [_worker(path, f"w{n}") for n in range(3)]  # the first one is the owner
    with rillet.open(path) as store:
        orders = store.stream("orders")
        for kill in range(kills):
            for n in range(entries):
                try:
                    orders.add({"customer": f"c{n % 5}", "n": kill * entries + n})
                except rillet.OutcomeUnknown:
                    pass
            workers[kill % 3].kill()
            workers[kill % 3] = _worker(path, f"w{kill % 3}")
        group = orders.group("g")
        until(lambda: group.lag == 0 and group.pending_count() == 0, "all is handled", 120)
        for worker in workers:
            worker.kill()
        for customer in range(5):
            log = [int(one) for one in store.execute("LRANGE", f"log:c{customer}", 0, -1)]
            expected = [int(entry["n"]) for entry in orders if entry["customer"] == f"c{customer}"]
            assert list(dict.fromkeys(log)) == expected  # nothing is lost, and nothing overtakes
            assert sorted(log) == log  # a message that comes again comes before the next one
        assert _helpers(group) == [False, False, False]


@pytest.mark.slow
def test_the_order_is_kept_while_workers_are_killed(tmp_path: Path) -> None:
    _kills(tmp_path / "store.rillet", 4, 20)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_the_order_is_kept_in_many_kills(tmp_path: Path) -> None:
    for seed in range(30):
        _kills(tmp_path / f"{seed}.rillet", 9, 30)
