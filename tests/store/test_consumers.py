"""Consumers: how often a message was delivered, batches, the end of an iteration, several streams, administration."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import pytest

from rillet import Message, Store
from rillet.errors import BusyGroup, CommandError, NoGroup
from rillet.records import ConsumerInfo, GroupInfo, PendingSummary
from rillet.store.group import Consumer, Group
from rillet.types.stream.id import StreamID


def _filled(store: Store, count: int, name: str = "jobs") -> Consumer:
    stream = store.stream(name)
    stream.add_many((n, {"n": n}) for n in range(1, count + 1))
    return stream.group("workers").consumer("one")


def _numbers(messages: Iterator[Message] | list[Message]) -> list[int]:
    return [int(message["n"]) for message in messages]


def _agree(messages: list[Message]) -> None:
    """The count of each message is the one that the group has."""
    for message in messages:
        (pending,) = message.group.pending(1, start=message.id, end=message.id)
        assert (pending.id, pending.deliveries) == (message.id, message.deliveries)


# -- deliveries --------------------------------------------------------------------------------------------------------


def test_a_message_has_its_number_of_deliveries(store: Store) -> None:
    one = _filled(store, 6)
    two = one.group.consumer("two")
    fresh = one.read(4)
    assert [(message.deliveries, message.idle_ms) for message in fresh] == [(1, 0)] * 4
    _agree(fresh)
    again = one.read(after="1-0", count=2)
    assert [(message.id.ms, message.deliveries) for message in again] == [(2, 2), (3, 2)]
    _agree(again)
    claimed = two.claim(0)[1]
    assert [message.deliveries for message in claimed] == [2, 3, 3, 2]
    _agree(claimed)
    assert [message.deliveries for message in two.messages(stop_when_empty=True)] == [3, 4, 4, 3, 1, 1]
    assert [message.deliveries for message in one.read(noack=True)] == []


def test_messages_of_others_between_the_claimed_ones_do_not_disturb_the_counts(store: Store) -> None:
    """The consumer has 40 other pending messages between the two that it claims."""
    one, two = _filled(store, 42), None
    one.read(1)
    two = one.group.consumer("two")
    assert len(two.read(40)) == 40
    one.read(1)
    claimed = two.claim_ids(42, 1)
    assert [(message.id.ms, message.deliveries) for message in claimed] == [(42, 2), (1, 2)]
    seen = []
    for message in two.messages(claim_idle=0, max_deliveries=4, on_exhausted="drop", stop_when_empty=True):
        seen.append((message.id.ms, message.deliveries))
        message.ack()
    assert sorted(seen) == [(n, 3 if n in (1, 42) else 2) for n in range(1, 43)]


def _after(steps: Iterator[int], some: int) -> bool:
    return next(steps) > some


@pytest.mark.parametrize("seed", range(3))
def test_counts_agree_with_the_group_whatever_the_consumers_do(store: Store, seed: int) -> None:
    random = Random(seed)
    stream = store.stream("s")
    group = stream.group("g")
    consumers = [group.consumer(name) for name in ("a", "b")]
    for step in range(1, 60):
        consumer = random.choice(consumers)
        after = StreamID(random.randrange(step), 0)
        match random.randrange(7):
            case 0 | 1:
                stream.add_many((step * 10 + n, {"n": n}) for n in range(random.randrange(4)))
                _agree(consumer.read(random.randrange(1, 5)))
            case 2:
                _agree(consumer.read(random.randrange(1, 9), after=after))
            case 3:
                _agree(consumer.claim(0, random.randrange(1, 5), after)[1])
            case 4:
                ids = [found.id for found in group.pending()]
                _agree(consumer.claim_ids(*random.sample(ids, min(len(ids), 3))))
            case 5:
                group.ack(*(found.id for found in group.pending(2, start=after)))
            case _:
                stop = iter(range(100))
                some = random.randrange(4)
                for message in consumer.messages(3, stop=partial(_after, stop, some), timeout=0):
                    _agree([message])


class _Interrupted:
    """A store whose `after` runs once, after the first command of that name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Store, name: bytes, after: Callable[[], Any]) -> None:
        run = store.run

        def running(argv: list[bytes]) -> Any:
            reply = run(argv)
            if argv[0] == name:
                monkeypatch.undo()
                after()
            return reply

        monkeypatch.setattr(type(store), "run", lambda _, argv: running(argv))


def test_a_message_that_another_consumer_claims_meanwhile_is_not_handed_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = _filled(store, 3)
    one.read()
    two = one.group.consumer("two")
    _Interrupted(monkeypatch, store, b"XREADGROUP", lambda: two.claim_ids(2, just_ids=True))
    assert _numbers(one.read(after="0")) == [1, 3]
    _Interrupted(monkeypatch, store, b"XAUTOCLAIM", lambda: one.claim_ids(1, just_ids=True))
    assert _numbers(two.claim(0)[1]) == [2, 3]


# -- max_deliveries ----------------------------------------------------------------------------------------------------


def test_messages_refuses_to_drop_without_being_told(store: Store) -> None:
    one = _filled(store, 1)
    with pytest.raises(ValueError, match="pass either dead_letters='a stream', or on_exhausted='drop'"):
        one.messages(max_deliveries=2)
    with pytest.raises(ValueError, match="pass either dead_letters"):
        one.messages(max_deliveries=2, dead_letters="dead", on_exhausted="drop")
    for wrong in ({"dead_letters": "dead"}, {"on_exhausted": "drop"}):
        with pytest.raises(ValueError, match="apply after max_deliveries deliveries: pass it too"):
            one.messages(**wrong)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="on_exhausted must be 'drop' or None, not 'keep'"):
        one.messages(max_deliveries=1, on_exhausted="keep")  # type: ignore[call-overload]
    for name in ("batch", "count"):
        with pytest.raises(ValueError, match=f"{name} must be an int of at least 1, not 0"):
            one.messages(**{name: 0})  # type: ignore[call-overload]
    assert one.group.stream.groups() == []


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("claim_idle", -1, "claim_idle must be at least 0 seconds, not -1"),
        ("claim_idle", "1", "claim_idle must be seconds or a timedelta, not '1'"),
        ("block", float("nan"), "block must be at least 0 seconds, not nan"),
        ("block", float("inf"), "block must be a finite number of seconds, not inf"),
        ("timeout", -0.5, "timeout must be at least 0 seconds, not -0.5"),
        ("max_deliveries", "5", "max_deliveries must be an int of at least 1, not '5'"),
        ("max_deliveries", 0, "max_deliveries must be an int of at least 1, not 0"),
        ("batch", 1.5, "batch must be an int of at least 1, not 1.5"),
        ("count", None, "count must be an int of at least 1, not None"),
        ("dead_letters", 5, "dead_letters: a name must be str or bytes, not 5"),
        ("stop", 5, r"stop must be a function, or an event with is_set\(\), not 5"),
        ("stop_when_empty", "no", "stop_when_empty must be True or False, not 'no'"),
    ],
)
def test_messages_refuses_other_values(store: Store, name: str, value: Any, text: str) -> None:
    one = _filled(store, 1)
    with pytest.raises((TypeError, ValueError), match=f"^{text}$"):
        one.messages(**{"max_deliveries": 5, "dead_letters": "dead", name: value})
    assert one.group.stream.groups() == []


def test_exhausted_messages_are_dropped_on_demand(store: Store) -> None:
    one = _filled(store, 3)
    one.read(2)
    handled = list(one.messages(max_deliveries=1, on_exhausted="drop", stop_when_empty=True))
    assert _numbers(handled) == [3]
    assert [found.id.ms for found in one.pending()] == [3]


# -- batches and the end -----------------------------------------------------------------------------------------------


def test_batches(store: Store) -> None:
    one = _filled(store, 7)
    one.read(2)
    found = []
    for batch in one.messages(batch=3, stop_when_empty=True):
        assert isinstance(batch, list)
        found.append(_numbers(batch))
        assert one.ack(*batch) == len(batch)
    assert found == [[1, 2], [3, 4, 5], [6, 7]]
    assert one.group.pending_count() == 0


def test_a_failed_batch_is_delivered_again(store: Store) -> None:
    one = _filled(store, 5)
    for _ in one.messages(batch=5, stop_when_empty=True):
        break
    two = one.group.consumer("two")
    batches = list(two.messages(batch=2, claim_idle=0, max_deliveries=2, dead_letters="dead", stop_when_empty=True))
    assert [[(message.id.ms, message.deliveries) for message in batch] for batch in batches] == [
        [(1, 2), (2, 2)], [(3, 2), (4, 2)], [(5, 2)],
    ]  # fmt: skip


def test_stop_ends_after_the_current_message_and_gives_the_others_back(store: Store) -> None:
    one = _filled(store, 5)
    one.read(1)
    stop = threading.Event()
    seen = []
    for message in one.messages(stop=stop, claim_idle=60):
        seen.append((message.id.ms, message.deliveries))
        message.ack()
        if message.id.ms == 2:
            stop.set()
    assert seen == [(1, 2), (2, 1)]
    assert [found.deliveries for found in one.group.pending()] in ([], [0], [0, 0], [0, 0, 0])
    # Another consumer with the same claim_idle does not wait for it.
    two = one.group.consumer("two").messages(claim_idle=60, stop_when_empty=True)
    assert [(message.id.ms, message.deliveries) for message in two] == [(3, 1), (4, 1), (5, 1)]
    assert list(one.messages(stop=stop)) == []


def test_a_loop_that_ends_gives_its_prefetched_messages_back(store: Store) -> None:
    one = _filled(store, 4)
    given_back = [(1, "one", 1), (2, "one", 0), (3, "one", 0), (4, "one", 0)]

    def pending() -> list[tuple[int, str, int]]:
        return [(found.id.ms, found.consumer, found.deliveries) for found in one.group.pending()]

    for _ in one.messages():
        break
    assert pending() == given_back
    one.group.set_id(0)
    assert one.ack(*one.read(after=0)) == 4
    with contextlib.suppress(ZeroDivisionError):
        for _ in one.messages():
            raise ZeroDivisionError
    assert pending() == given_back


def test_messages_that_others_claimed_are_not_given_back(store: Store) -> None:
    one = _filled(store, 3)
    two = one.group.consumer("two")
    stopped: list[bool] = []
    for _ in one.messages(stop=lambda: bool(stopped)):
        assert len(two.claim_ids(3)) == 1
        stopped.append(True)
    assert [(found.id.ms, found.consumer, found.deliveries) for found in one.group.pending()] == [
        (1, "one", 1), (2, "one", 0), (3, "two", 2),
    ]  # fmt: skip


def test_stop_during_own_and_stale_messages_and_in_batches(store: Store) -> None:
    one = _filled(store, 6)
    one.read(6)
    batches: list[list[int]] = []
    for batch in one.messages(batch=2, stop=lambda: bool(batches)):
        batches.append(_numbers(batch))
    assert batches == [[1, 2]]
    assert [found.deliveries for found in one.pending()] == [2, 2, 1, 1, 1, 1]
    stop = threading.Event()
    two = one.group.consumer("two")
    for message in two.messages(claim_idle=0, stop=stop):
        stop.set()
        assert message.deliveries == 3
    assert [found.deliveries for found in one.group.pending()] == [3, 2, 1, 1, 1, 1]


def test_timeout_ends_an_iteration_without_messages(store: Store) -> None:
    one = _filled(store, 2)
    assert _numbers(one.messages(timeout=0.05)) == [1, 2]
    assert list(one.messages(timeout=0.05, block=0)) != []  # its own, which were not acknowledged
    assert one.group.ack(1, 2) == 2
    assert list(one.messages(timeout=0.05, block=0)) == []
    one.group.stream.add({"n": 3}, 3)
    assert [message.ack() for message in one.messages(timeout=0)] == [True]
    assert list(one.messages(timeout=0, block=None)) == []
    assert list(one.messages(timeout=0.02, block=None, claim_idle=0)) == []


@pytest.mark.usefixtures("quick_stop")
def test_a_waiting_consumer_notices_stop(store: Store) -> None:
    one = _filled(store, 1)
    stop = threading.Event()
    found: list[int] = []

    def work() -> None:
        for message in one.messages(stop=stop, block=0):
            found.append(message.id.ms)
            message.ack()

    thread = threading.Thread(target=work)
    thread.start()
    while not int(store.info()["blocked_clients"]):
        threading.Event().wait(0.005)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert found == [1]


# -- several streams ---------------------------------------------------------------------------------------------------


def test_read_several_streams(store: Store) -> None:
    a, b = store.stream("a"), store.stream(b"b\xff")
    assert store.read({"a": "0", b"b\xff": "0"}) == {}
    a.add_many((n, {"n": n}) for n in (1, 2, 3))
    b.add({"n": 4}, 4)
    found = store.read({a: 1, b: "0-0"}, count=1)
    assert {name: [entry.id.ms for entry in entries] for name, entries in found.items()} == {"a": [2], b.name: [4]}
    positions = {name: entries[-1].id for name, entries in found.items()}
    assert {name: len(entries) for name, entries in store.read(positions).items()} == {"a": 1}
    assert store.read({"a": "$", "none": "$"}, block=0.01) == {}
    assert list(store.read({"a": StreamID(3, 0).datetime})) == ["a"]
    with pytest.raises(ValueError, match="pass at least one stream"):
        store.read({})
    with pytest.raises(TypeError, match="a name must be str or bytes"):
        store.read({5: "0"})


def test_a_consumer_of_several_streams(store: Store) -> None:
    consumer = store.consumer("billing", "w", ["a", store.stream("b"), b"c", "a"])
    assert repr(consumer) == "MultiConsumer(['a', 'b', 'c'], 'billing', 'w')"
    assert consumer.read() == []
    for name in "abc":
        store.stream(name).add_many((n, {"n": n}) for n in range(1, 4))
    first = consumer.read(1)
    assert [(message.stream.name, message.id.ms, message.deliveries) for message in first] == [
        ("a", 1, 1), ("b", 1, 1), ("c", 1, 1),
    ]  # fmt: skip
    assert consumer.ack(*first) == 3
    assert consumer.ack(*first) == consumer.ack() == 0
    other = store.consumer("billing", "dead", ["b", "c"])
    assert len(other.read(1)) == 2
    seen = []
    for message in consumer.messages(claim_idle=0, stop_when_empty=True):
        seen.append((message.stream.name, message.id.ms, message.deliveries))
        assert message.ack()
    assert sorted(seen) == [("a", 2, 1), ("a", 3, 1), ("b", 2, 2), ("b", 3, 1), ("c", 2, 2), ("c", 3, 1)]
    store.stream("a").add({"n": 9}, 9)
    store.stream("c").add({"n": 9}, 9)
    assert [len(batch) for batch in consumer.messages(batch=10, stop_when_empty=True)] == [2]
    assert sorted(message.stream.name for message in consumer.messages(timeout=0.01)) == ["a", "c"]
    assert [message.deliveries for message in consumer.messages(stop_when_empty=True)] == [3, 3]


def test_a_consumer_of_several_streams_waits_for_any_of_them(store: Store) -> None:
    consumer = store.consumer("g", "w", ["a", "b"])
    store.stream("b").add({"n": 1}, 1)
    found: list[str] = []

    def work() -> None:
        for message in consumer.messages(block=0):
            found.append(message.stream.name)
            message.ack()
            if len(found) == 2:
                return

    thread = threading.Thread(target=work)
    thread.start()
    while not int(store.info()["blocked_clients"]):
        threading.Event().wait(0.005)
    store.stream("a").add({"n": 1}, 1)
    thread.join(60)
    assert found == ["b", "a"]


def test_stop_gives_back_the_messages_of_each_stream(store: Store) -> None:
    consumer = store.consumer("g", "w", ["a", "b"])
    for name in "ab":
        store.stream(name).add_many((n, {"n": n}) for n in (1, 2))
    stop = threading.Event()
    for _ in consumer.messages(stop=stop):
        stop.set()
    counts = {part.group.stream.name: [found.deliveries for found in part.pending()] for part in consumer.consumers}
    assert counts == {"a": [1, 0], "b": [0, 0]}


def test_mistakes_with_several_streams(store: Store) -> None:
    with pytest.raises(TypeError, match=r"pass \['orders'\]"):
        store.consumer("g", "w", "orders")
    with pytest.raises(ValueError, match="at least one stream"):
        store.consumer("g", "w", [])
    with pytest.raises(NoGroup):
        store.consumer("g", "w", ["a"], create=False).read()


# -- administration ----------------------------------------------------------------------------------------------------


def _group(store: Store) -> Group:
    stream = store.stream("s")
    stream.add_many((n, {"n": n}) for n in range(1, 6))
    return stream.group("g")


def test_groups_are_created_and_moved(store: Store) -> None:
    stream = store.stream("s")
    group = stream.group("g", create=False)
    with pytest.raises(CommandError, match="requires the key to exist|no such key"):
        group.create(mkstream=False)
    stream.add_many((n, {"n": n}) for n in range(1, 6))
    assert group.create("2", entries_read=2, mkstream=False)
    assert not group.create()
    with pytest.raises(BusyGroup):
        store.execute("XGROUP", "CREATE", "s", "g", "0")
    assert group.info() == GroupInfo("g", 0, 0, StreamID(2, 0), 2, 3)
    assert group.lag == 3
    group.set_id("4", entries_read=4)
    assert (group.info().last_delivered_id, group.lag) == (StreamID(4, 0), 1)
    stream.delete("5")
    stream.add({"n": 6}, 6)
    group.set_id("3")
    assert group.info().entries_read is group.lag is None
    other = store.stream("t")
    other.add_many((n, {"n": n}) for n in (1, 2, 3))
    counted = other.group("g", "1", entries_read=1)
    assert counted.create()
    assert counted.lag == 2
    stream.group("h").create()
    assert [found.name for found in stream.groups()] == ["g", "h"]
    assert group.delete()
    with pytest.raises(KeyError):
        _ = group.lag


def test_consumers_are_created_listed_and_deleted(store: Store) -> None:
    group = _group(store)
    assert group.create_consumer("idle")
    assert not group.create_consumer("idle")
    group.consumer("busy").read(2)
    busy, idle = group.consumers()
    assert isinstance(busy, ConsumerInfo)
    assert (busy.name, busy.pending, idle.name, idle.pending) == ("busy", 2, "idle", 0)
    assert busy.idle_ms >= 0
    assert idle.inactive_ms is None
    assert busy.inactive_ms is None or busy.inactive_ms >= 0  # Redis before 7.2 does not report it
    assert group.consumer("busy").info()[:2] == ("busy", 2)
    with pytest.raises(KeyError):
        group.consumer("none").info()
    assert group.delete_consumer("busy", pending="drop") == 2
    assert [found.name for found in group.consumers()] == ["idle"]


def test_the_summary_of_pending_messages(store: Store) -> None:
    group = _group(store)
    group.create()
    assert group.pending_summary() == PendingSummary(0, None, None, {})
    group.consumer("a").read(3)
    group.consumer("b").read(1)
    group.ack(2)
    assert group.pending_summary() == PendingSummary(3, StreamID(1, 0), StreamID(4, 0), {"a": 2, "b": 1})
    assert group.pending_count() == 3


def test_given_messages_are_claimed(store: Store) -> None:
    group = _group(store)
    one, two = group.consumer("one"), group.consumer("two")
    one.read(3)
    assert two.claim_ids(1, 2, idle=3600) == []
    assert [(found["n"], found.deliveries) for found in two.claim_ids(1, 9)] == [("1", 2)]
    assert two.claim_ids(2, just_ids=True) == [StreamID(2, 0)]
    assert [(found.id.ms, found.deliveries) for found in two.pending()] == [(1, 2), (2, 1)]
    assert [found.deliveries for found in two.claim_ids(3, deliveries=7, set_idle=100)] == [7]
    assert two.pending(idle=99)[0].id == StreamID(3, 0)
    two.claim_ids(1, delivered_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert two.pending(idle=1e8)[0].id == StreamID(1, 0)
    assert two.claim_ids(5) == []
    assert [found["n"] for found in two.claim_ids(5, force=True, last_id="5")] == ["5"]
    assert group.info().last_delivered_id == StreamID(5, 0)


def test_all_stale_messages_are_claimed_in_pages(store: Store) -> None:
    stream = store.stream("s")
    stream.add_many((n, {"n": n}) for n in range(1, 31))
    group = stream.group("g")
    group.consumer("dead").read()
    assert list(group.consumer("a").claim_all(3600)) == []
    claimed = list(group.consumer("a").claim_all(0, count=7))
    assert _numbers(claimed) == list(range(1, 31))
    assert {message.deliveries for message in claimed} == {2}
