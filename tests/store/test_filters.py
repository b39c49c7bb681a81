"""Filters: messages(where=...), and where of range, reverse and scan."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.errors import NoPerm
from rillet.store.consuming import filter_steps
from rillet.store.group import Group
from rillet.store.stream import Stream
from rillet.testing.clock import StoreClock
from tests.store.conftest import Frontend, only
from tests.variants import seeds
from tests.waiting import until

ORDERS = {"type": "order"}


@pytest.fixture
def stream(store: Store) -> Stream:
    """A stream in which every third entry is an order."""
    stream = store.stream("{a}b}events")
    stream.add_many((n, {"type": ("order", "refund", "click")[n % 3], "n": n}) for n in range(1, 31))
    return stream


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock(1_700_000_000)


@pytest.fixture
def timed(clock: StoreClock) -> Iterator[Group]:
    """A group of a store whose time the test moves."""
    with clock.open() as store:
        store.stream("events").add_many((n, {"type": "order" if n % 2 else "click", "n": n}) for n in range(1, 7))
        yield store.stream("events").group("g")


def _ids(entries: Any) -> list[int]:
    return [entry.id.ms for entry in entries]


def _acknowledged(messages: Any) -> list[int]:
    found = []
    for message in messages:
        found.append(message.id.ms)
        assert message.ack()
    return found


# -- ranges ------------------------------------------------------------------------------------------------------------


def test_a_range_of_entries_that_match(stream: Stream) -> None:
    assert _ids(stream.range(where=ORDERS)) == list(range(3, 31, 3))
    assert _ids(stream.range(10, 20, where=ORDERS)) == [12, 15, 18]
    assert _ids(stream.range("(12", where=ORDERS, count=2)) == [15, 18]
    assert _ids(stream.reverse(where=ORDERS, count=2)) == [30, 27]
    assert _ids(stream.reverse("(27-0", 20, where=ORDERS)) == [24, 21]
    assert _ids(stream.range(where={"type": ["order", "refund"]}, count=3)) == [1, 3, 4]
    assert _ids(stream.range(where={"type": ("order", b"click"), b"n": {2, 3}})) == [2, 3]
    assert _ids(stream.range(where={"n": 7})) == _ids(stream.range(where={"n": "7"})) == [7]
    assert stream.range(where={"missing": "order"}) == []
    assert stream.range(where=ORDERS, count=0) == []
    assert stream.store.stream("none").range(where=ORDERS) == []
    assert _ids(stream.scan(where=ORDERS, page=2)) == list(range(3, 31, 3))
    assert _ids(stream.scan(20, reverse=True, where=ORDERS)) == [30, 27, 24, 21]


def test_the_last_value_of_a_field_counts(store: Store) -> None:
    stream = store.stream("s")
    stream.add([("a", "1"), ("b", ""), ("a", "2")])
    assert len(stream.range(where={"a": 2, "b": ""})) == 1
    assert stream.range(where={"a": 1}) == []


def test_a_long_range_is_read_in_pieces(store: Store) -> None:
    stream = store.stream("s")
    stream.add_many((n + 1, {"n": n, "few": n % 997}) for n in range(2500))
    assert _ids(stream.range(where={"few": "0"})) == [1, 998, 1995]
    assert _ids(stream.range(where={"few": "996"}, count=1)) == [997]
    assert _ids(stream.reverse(where={"few": range(5)}, count=7)) == [1999, 1998, 1997, 1996, 1995, 1002, 1001]
    assert len(stream.range(where={"few": range(997)})) == 2500
    assert len(stream.range(where={"few": range(997)}, count=1500)) == 1500


def test_a_range_up_to_the_last_possible_id(store: Store) -> None:
    stream = store.stream("s")
    for id in ("1-1", f"{2**64 - 1}-{2**64 - 1}"):
        stream.add({"a": 1}, id)
    assert len(stream.range(where={"a": 1}, count=9)) == 2
    assert len(stream.reverse(where={"a": 1}, count=9)) == 2


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_any_conditions(seed: int, store: Store) -> None:
    """As a filter of all entries in Python."""
    random = Random(seed)
    stream = store.stream("s")
    values = ["", "a", "ab", "\0", "é", "1", "1.5"]
    for _ in range(100):
        stream.add([(random.choice("xyz"), random.choice(values)) for _ in range(random.randrange(1, 5))])
    everything = stream.range()
    for _ in range(20):
        where = {field: random.sample(values, random.randrange(1, 4)) for field in random.sample("xyz", 2)}
        expected = [one for one in everything if all(one.get(field) in some for field, some in where.items())]
        assert stream.range(where=where) == expected
        assert stream.reverse(where=where, count=5) == expected[::-1][:5]


@only("socket", "redis")
def test_a_user_without_scripts_filters_in_the_client(frontend: Frontend, stream: Stream) -> None:
    rules = "on nopass resetkeys ~* -@all +@connection +@read -eval -evalsha"
    frontend.store.execute("ACL", "SETUSER", "reader", *rules.split())
    frontend.store.execute("AUTH", "reader", "x")
    assert _ids(stream.range(where=ORDERS)) == list(range(3, 31, 3))
    assert _ids(stream.reverse(where=ORDERS, count=2)) == [30, 27]
    with pytest.raises(NoPerm):
        frontend.store.stream("a").add({"a": 1})


def test_a_snapshot_of_a_directory(tmp_path: Any) -> None:
    from rillet.store.backends.read_access import visit

    with rillet.open(tmp_path / "store.rillet") as store:
        store.stream("s").add_many([{"a": 1}, {"a": 2}])
    with visit(str(tmp_path / "store.rillet")) as store:
        assert len(store.stream("s").range(where={"a": 2})) == 1


def test_a_typed_stream(store: Store) -> None:
    @dataclass
    class Event:
        type: str
        n: int

    stream = store.stream("typed", type=Event, on_invalid="skip")
    stream.add_many(Event("order" if n % 2 else "click", n) for n in range(8))
    store.execute("XADD", "typed", "*", "type", "order", "n", "x")
    assert [entry.value.n for entry in stream.range(where=ORDERS)] == [1, 3, 5, 7]
    assert [entry.value.n for entry in stream.range(where=ORDERS, count=2)] == [1, 3]
    found = []
    for message in stream.group("g").consumer("one").messages(where=ORDERS, stop_when_empty=True):
        found.append(message.value.n)
        message.ack()
    assert found == [1, 3, 5, 7]


@pytest.mark.parametrize(("where", "error", "text"), [
    ("type", TypeError, r"where must be a mapping from fields to values, such as \{'type': 'order'\}, not 'type'"),
    ({}, ValueError, r"where needs at least one field: \{'type': 'order'\}"),
    ({"type": []}, ValueError, r"where\['type'\] needs at least one value"),
    ({"type": None}, TypeError, r"where\['type'\] must be bytes, str, int or float, not None"),
    ({"type": ["a", None]}, TypeError, r"one of where\['type'\] must be bytes, str, int or float, not None"),
    ({"type": {"a": 1}}, TypeError, r"where\['type'\] must be bytes, str, int or float, not \{'a': 1\}"),
    ({5: "a"}, TypeError, "a field of where: a name must be str or bytes, not 5"),
])  # fmt: skip
def test_wrong_conditions(timed: Group, where: Any, error: type[Exception], text: str) -> None:
    stream, worker = timed.stream, timed.consumer("one")
    for call in (stream.range, stream.reverse, lambda where: list(stream.scan(where=where)), worker.messages):
        with pytest.raises(error, match=text):
            call(where=where)


# -- messages ----------------------------------------------------------------------------------------------------------


def test_other_messages_are_acknowledged(stream: Stream) -> None:
    group = stream.group("g")
    assert _acknowledged(group.consumer("one").messages(where=ORDERS, stop_when_empty=True)) == list(range(3, 31, 3))
    assert group.pending_count() == 0
    assert group.lag == 0


def test_other_messages_are_left(stream: Stream) -> None:
    group = stream.group("g")
    one = group.consumer("one").messages(where=ORDERS, skipped="leave", stop_when_empty=True, claim_idle=60)
    assert _acknowledged(one) == list(range(3, 31, 3))
    assert {row.deliveries for row in group.pending()} == {0}
    two = group.consumer("two").messages(where={"type": "refund"}, skipped="leave", stop_when_empty=True, claim_idle=60)
    assert _acknowledged(two) == list(range(1, 31, 3))
    found = []
    for message in group.consumer("three").messages(stop_when_empty=True, claim_idle=60):
        found.append((message["type"], message.deliveries))
        message.ack()
    assert found == [("click", 1)] * 10


def test_pending_messages_are_filtered(timed: Group, clock: StoreClock) -> None:
    timed.consumer("one").read(2)
    timed.consumer("two").read(2)
    clock.advance(10)
    worker = timed.consumer("one")
    options: Any = {"where": ORDERS, "stop_when_empty": True}
    assert _acknowledged(worker.messages(skipped="leave", **options)) == [1, 5]
    assert [row.id.ms for row in timed.pending()] == [2, 3, 4, 6]
    assert _acknowledged(worker.messages(skipped="leave", claim_idle=5, **options)) == [3]
    assert [row.id.ms for row in timed.pending()] == [2, 4, 6]
    clock.advance(10)
    assert _acknowledged(worker.messages(claim_idle=5, **options)) == []
    assert timed.pending_count() == 0


def test_batches_retries_and_dead_letters(timed: Group, clock: StoreClock) -> None:
    found = []
    options: Any = {"where": ORDERS, "batch": 2, "stop_when_empty": True, "claim_idle": 60, "backoff": lambda _: 5}
    for _ in range(3):
        for batch in timed.consumer("one").messages(max_deliveries=2, dead_letters="dead", **options):
            found.append(_ids(batch))
            timed.consumer("one").ack(*[message for message in batch if message.id.ms != 3])
        clock.advance(6)
    assert found == [[1, 3], [5], [3]]
    assert [entry["n"] for entry in timed.store.stream("dead")] == ["3"]


def test_with_an_order_by_key(timed: Group, clock: StoreClock) -> None:
    timed.consumer("old").read(3)  # pending before, and two of them match
    worker = timed.consumer("one")
    clock.advance(100)
    options: Any = {"where": ORDERS, "order_by": "type", "stop_when_empty": True, "claim_idle": 60}
    assert _acknowledged(worker.messages(**options)) == [1, 3, 5]
    assert timed.pending_count() == 0
    timed.stream.add_many((n, {"type": "click"}) for n in range(7, 10))
    assert next(worker.messages(order_by="type", claim_idle=60)).id.ms == 7
    assert _acknowledged(worker.messages(**options)) == []  # the keys that it finds are filtered, too
    assert timed.pending_count() == 0
    with pytest.raises(ValueError, match="skipped='leave' cannot be combined with order_by"):
        worker.messages(where=ORDERS, skipped="leave", order_by="type")


@pytest.mark.usefixtures("quick_stop")
def test_a_loop_waits_for_messages_that_match(frontend: Frontend, stream: Stream) -> None:
    group = frontend.another().stream("{a}b}events").group("g")
    found: list[int] = []
    stop = threading.Event()

    def work() -> None:
        for message in group.consumer("one").messages(where={"n": [50, 51]}, stop=stop, block=5):
            found.append(message.id.ms)
            message.ack()

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: group.stream.groups() and group.lag == 0, "all are skipped")
    for n in (49, 50, 51):
        stream.add({"n": n}, n)
    until(lambda: found == [50, 51], "two match")
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


def test_many_messages_that_do_not_match(store: Store) -> None:
    stream = store.stream("s")
    stream.add_many({"n": n} for n in range(3 * filter_steps.READ + 1))
    found = stream.group("g").consumer("one").messages(where={"n": 3 * filter_steps.READ}, stop_when_empty=True)
    assert [message["n"] for message in found if message.ack()] == [str(3 * filter_steps.READ)]


def test_several_streams(store: Store) -> None:
    for name in ("{o}.eu", "{o}.us"):
        store.stream(name).add_many([{"type": "order"}, {"type": "click"}])
    worker = store.consumer("g", "one", streams=["{o}.eu", "{o}.us"])
    found = [message.stream.name for message in worker.messages(where=ORDERS, stop_when_empty=True) if message.ack()]
    assert sorted(found) == ["{o}.eu", "{o}.us"]


def test_on_a_cluster(cluster_url: str) -> None:
    with rillet.connect(cluster_url) as store:
        stream = store.stream("a}{b")
        stream.add_many([{"type": "order", "n": 1}, {"type": "click", "n": 2}, {"type": "order", "n": 3}])
        assert [entry["n"] for entry in stream.range(where=ORDERS)] == ["1", "3"]
        found = stream.group("g").consumer("one").messages(where=ORDERS, stop_when_empty=True, block=None)
        assert [message["n"] for message in found if message.ack()] == ["1", "3"]


def test_a_task(stream: Stream) -> None:
    async def body() -> None:
        there = stream.store.aio().stream("{a}b}events")
        assert _ids(await there.range(where=ORDERS, count=2)) == [3, 6]
        assert _ids(await there.reverse(where=ORDERS, count=1)) == [30]
        assert [entry.id.ms async for entry in there.scan(25, where=ORDERS)] == [27, 30]
        group = await there.group("g")
        found = []
        async for message in group.consumer("one").messages(where=ORDERS, stop_when_empty=True):
            found.append(message.id.ms)
            assert await message.ack()
        assert found == list(range(3, 31, 3))

    asyncio.run(body())


@pytest.mark.parametrize(("options", "text"), [
    ({"where": ORDERS, "skipped": "drop"}, "skipped must be 'ack' or 'leave', not 'drop'"),
    ({"skipped": "leave"}, "skipped says what happens to messages that do not match: pass where, too"),
])  # fmt: skip
def test_wrong_options(timed: Group, options: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        timed.consumer("one").messages(**options)
