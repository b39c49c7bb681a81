"""Delayed entries, retries and back-off, on every kind of store: each comes once, when it is due, and in order."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

import rillet
from rillet import Exponential, LeaseLost, Store
from rillet.client.cluster import slot_of
from rillet.errors import CommandError, WrongType
from rillet.keyspace.helper_keys import delayed_key, retries_key
from rillet.store.consuming.delays import Delays
from rillet.testing.clock import StoreClock
from tests.store.conftest import Frontend

PAST = datetime(2020, 1, 1, tzinfo=UTC)
SOON = 0.05


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock(1_700_000_000)


@pytest.fixture
def timed(clock: StoreClock) -> Iterator[Store]:
    """A store whose time the test moves."""
    with clock.open() as store:
        yield store


def _numbers(messages: Any) -> list[str]:
    found = []
    for message in messages:
        found.append(message["n"])
        message.ack()
    return found


def _now(store: Store) -> datetime:
    seconds, microseconds = map(int, store.execute("TIME"))
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=microseconds)


# -- delayed entries ---------------------------------------------------------------------------------------------------


def test_a_delayed_entry_comes_when_it_is_due(store: Store) -> None:
    stream = store.stream("{a}jobs{}")
    worker = stream.group("workers").consumer("one")
    before = _now(store)
    due = stream.add({"n": 1, "raw": b"\xff:*"}, delay=SOON)
    assert stream.length() == 0
    (waiting,) = stream.delayed()
    assert waiting.due == due >= before + timedelta(seconds=SOON)
    assert before - timedelta(milliseconds=1) <= waiting.since <= _now(store)
    assert waiting.fields == {"n": "1", "raw": "\udcff:*"}
    for message in worker.messages(timeout=20):
        assert _now(store) >= due
        assert message.pairs == [(b"n", b"1"), (b"raw", b"\xff:*")]
        assert message.id.ms >= due.timestamp() * 1000 - 1
        message.ack()
        break
    assert stream.delayed() == []
    assert stream.length() == 1
    assert worker.group.pending_count() == 0


def test_entries_come_in_the_order_of_their_times(store: Store) -> None:
    stream = store.stream("jobs")
    worker = stream.group("workers").consumer("one")
    stream.add({"n": "first"})
    for n in range(12):
        stream.add({"n": n}, at=PAST)
    stream.add({"n": "earlier"}, at=PAST - timedelta(microseconds=1))  # rounded up to the same time
    stream.add({"n": "earliest"}, at=PAST - timedelta(milliseconds=1))
    stream.add({"n": "later"}, delay=3600)
    expected = ["first", "earliest", *map(str, range(12)), "earlier"]
    assert _numbers(worker.messages(stop_when_empty=True)) == expected
    assert [one.fields for one in stream.delayed()] == [{"n": "later"}]


def test_the_stream_is_trimmed_when_the_entry_is_added(store: Store) -> None:
    stream = store.stream("jobs")
    stream.add_many({"n": n} for n in range(5))
    stream.add({"n": 5}, at=PAST, maxlen=3, approximate=False)
    assert stream.length() == 5
    assert stream.deliver_due() == 1
    assert [entry["n"] for entry in stream] == ["3", "4", "5"]


def test_many_entries_are_moved_once(frontend: Frontend) -> None:
    stream = frontend.store.stream("jobs")
    for n in range(250):
        stream.add({"n": n}, at=PAST)
    moved: list[int] = []
    others = [frontend.another() for _ in range(3)]
    threads = [threading.Thread(target=lambda store=store: moved.append(store.stream("jobs").deliver_due()))
               for store in others]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(moved) == 250
    assert [int(entry["n"]) for entry in stream] == list(range(250))


def test_nothing_is_created_before_the_first_delay(store: Store) -> None:
    stream = store.stream("jobs")
    stream.add({"n": 1})
    worker = stream.group("workers").consumer("one")
    backoff = Exponential(1)
    assert _numbers(worker.messages(stop_when_empty=True, claim_idle=1, backoff=backoff, heartbeat=True)) == ["1"]
    assert stream.deliver_due() == 0
    assert (stream.delayed(), worker.group.retries()) == ([], [])
    assert list(store.keys()) == ["jobs"]


def test_an_entry_that_cannot_be_added_stays(store: Store) -> None:
    stream = store.stream("jobs")
    stream.add({"n": 1}, at=PAST)
    store.execute("SET", "jobs", "text")
    with pytest.raises(WrongType):
        stream.deliver_due()
    store.delete("jobs")
    assert stream.deliver_due() == 1
    assert stream.deliver_due() == 0


@pytest.mark.parametrize(
    ("delay", "kind", "text"),
    [
        (-1, ValueError, "delay must be at least 0 seconds, not -1"),
        (math.nan, ValueError, "delay must be at least 0 seconds, not nan"),
        (math.inf, ValueError, "delay must be at most a hundred years, not inf"),
        (1e11, ValueError, r"delay must be at most a hundred years, not 100000000000\.0"),
        (10**400, ValueError, "delay must be at most a hundred years"),
        (timedelta(days=-1), ValueError, "delay must be at least 0 seconds"),
        ("1", TypeError, "delay must be seconds or a timedelta, not '1'"),
        (True, TypeError, "delay must be seconds or a timedelta, not True"),
    ],
)
def test_other_delays_are_rejected(delay: Any, kind: type[Exception], text: str) -> None:
    with rillet.open() as store:
        stream = store.stream("jobs")
        stream.add({"n": 0})
        message = stream.group("g").consumer("c").read()[0]
        for call in (lambda: stream.add({"n": 1}, delay=delay), lambda: message.retry(delay)):
            with pytest.raises(kind, match=text):
                call()
        assert list(store.keys()) == ["jobs"]


def test_other_times_are_rejected() -> None:
    with rillet.open() as store:
        stream = store.stream("jobs")
        stream.add({"n": 0})
        message = stream.group("g").consumer("c").read()[0]
        add: Any = stream.add
        with pytest.raises(ValueError, match="at: .* has no time zone: pass an aware datetime"):
            stream.add({"n": 1}, at=datetime(2030, 1, 1))
        with pytest.raises(ValueError, match="no time zone"):
            message.retry(at=datetime(2030, 1, 1))
        with pytest.raises(TypeError, match="at must be an aware datetime"):
            add({"n": 1}, at=1.5)
        for call in (lambda: add({"n": 1}, delay=1, at=PAST), lambda: message.retry(1, at=PAST)):
            with pytest.raises(ValueError, match="pass either delay or at: both were passed"):
                call()
        with pytest.raises(ValueError, match="pass either delay or at: neither was passed"):
            message.retry()
        for wrong in ({"id": "5-1"}, {"create": False}, {"idmp": ("p", "1")}, {"idmpauto": "p"},
                      {"ref_policy": "ACKED"}):  # fmt: skip
            with pytest.raises(ValueError, match="cannot be combined with delay and at"):
                add({"n": 1}, delay=1, **wrong)
        with pytest.raises(ValueError, match="an entry with delay or at has at most 3495 fields"):
            stream.add({str(n): n for n in range(3600)}, delay=1)
        assert list(store.keys()) == ["jobs"]


def test_many_entries_are_delayed(store: Store) -> None:
    stream = store.stream("jobs")
    times = stream.add_many(({"n": n} for n in range(5)), delay=3600, batch=2)
    assert len(times) == 5
    assert times == sorted(times)
    assert stream.add_many([{"n": 5}, {"n": 6}], at=PAST, maxlen=1, approximate=False) == [PAST, PAST]
    assert stream.add_many([], delay=1) == []
    assert [one.fields["n"] for one in stream.delayed()] == ["5", "6", "0", "1", "2", "3", "4"]
    assert stream.deliver_due() == 2
    assert [entry["n"] for entry in stream] == ["6"]
    wrongs: list[Any] = [{"create": False}, {"idmpauto": "p"}, {"ref_policy": "KEEPREF"}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="cannot be combined with delay and at"):
            stream.add_many([{"n": 1}], delay=1, **wrong)
    with pytest.raises(ValueError, match="cannot be combined with delay and at"):
        stream.add_many([(5, {"n": 1})], delay=1)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="pass either delay or at: both were passed"):
        stream.add_many([{"n": 1}], delay=1, at=PAST)  # type: ignore[call-overload]
    assert stream.delayed_count() == 5


def test_a_task_delays_many_entries(store: Store) -> None:
    async def body() -> None:
        stream = store.aio().stream("jobs")
        assert len(await stream.add_many([{"n": 1}, {"n": 2}], delay=3600)) == 2
        assert await stream.delayed_count() == 2

    asyncio.run(body())


def test_a_typed_stream_delays_values(store: Store) -> None:
    stream = store.stream("jobs", codec="json")
    worker = stream.group("workers").consumer("one")
    stream.add({"job": [1, 2]}, at=PAST)
    assert [message.value for message in worker.messages(stop_when_empty=True)] == [{"job": [1, 2]}]


def test_several_streams(store: Store) -> None:
    for name in ("a", "b"):
        store.stream(name).add({"n": name}, at=PAST)
    worker = store.consumer("workers", "one", ["a", "b", "c"])
    assert sorted(_numbers(worker.messages(stop_when_empty=True))) == ["a", "b"]


def test_a_task_delays_and_retries(store: Store) -> None:
    async def body() -> None:
        stream = store.aio().stream("jobs")
        due = await stream.add({"n": 1}, delay=SOON)
        assert [one.due for one in await stream.delayed()] == [due]
        worker = await stream.group("workers")
        seen = []
        async for message in worker.consumer("one").messages(timeout=20):
            seen.append(message.deliveries)
            if len(seen) == 3:
                await message.ack()
                break
            await message.retry(SOON)
            assert len(await worker.retries()) == 1
        assert seen == [1, 2, 3]
        assert await stream.deliver_due() == 0

    asyncio.run(body())


def test_the_clock_is_that_of_the_store(clock: StoreClock, timed: Store) -> None:
    stream = timed.stream("jobs")
    worker = stream.group("workers").consumer("one")
    assert stream.add({"n": 1}, delay=30).timestamp() == 1_700_000_030
    clock.advance(29.999)
    assert _numbers(worker.messages(stop_when_empty=True)) == []
    clock.advance(0.001)
    assert _numbers(worker.messages(stop_when_empty=True)) == ["1"]


def test_a_waiting_loop_notices_what_others_add(frontend: Frontend) -> None:
    stream = frontend.store.stream("jobs")
    stream.add({"n": 0}, delay=3600)  # delays are in use
    other = frontend.another().stream("jobs")
    worker = stream.group("workers").consumer("one")
    messages = worker.messages(block=30, timeout=30)
    thread = threading.Timer(0.05, lambda: other.add({"n": 1}, delay=SOON))
    thread.start()
    assert next(messages)["n"] == "1"
    thread.join()


# -- names -------------------------------------------------------------------------------------------------------------


def test_helper_keys_have_the_slot_of_their_stream() -> None:
    names = [b"".join(parts) for length in range(4) for parts in product((b"a", b"{", b"}", b":"), repeat=length)]
    keys: Counter[bytes] = Counter()
    for name in names:
        assert slot_of(delayed_key(name)) == slot_of(name), name
        keys[delayed_key(name)] += 1
        for group in (b"", b"g", b"a:b", b"}", b"%3A", b":"):
            key = retries_key(name, group)
            assert slot_of(key) == slot_of(name), name
            keys[key] += 1
    assert max(keys.values()) == 1


def test_on_a_cluster(cluster_url: str) -> None:
    with rillet.connect(cluster_url) as store:
        for name in ("jobs", "{jobs}.eu", "jobs{}", "}jobs{", "a}{b}"):
            stream = store.stream(name)
            group = stream.group("a:{b}")
            stream.add({"n": 1}, at=PAST)
            stream.add({"n": 2}, delay=0.02)
            seen = []
            for message in group.consumer("one").messages(timeout=20, backoff=Exponential(0.01)):
                seen.append((message["n"], message.deliveries))
                if message.deliveries == 2:
                    message.ack()
                if len(seen) == 4:
                    break
            assert sorted(seen) == [("1", 1), ("1", 2), ("2", 1), ("2", 2)]
            assert group.pending_count() == 0


# -- retries -----------------------------------------------------------------------------------------------------------


def test_a_message_comes_again_when_its_retry_is_due(store: Store) -> None:
    stream = store.stream("jobs")
    stream.add({"n": 1})
    group = stream.group("workers")
    (message,) = group.consumer("one").read()
    message.retry(3600)
    assert group.pending_count() == 1
    one, two = group.consumer("one"), group.consumer("two")
    assert list(two.messages(claim_idle=0, stop_when_empty=True)) == []
    assert list(one.messages(stop_when_empty=True)) == []  # its own pending message, after a restart
    message.retry(SOON)
    ((id, due),) = group.retries()
    assert id == message.id
    for again in two.messages(timeout=20, claim_idle=0):
        assert _now(store) >= due
        assert (again.id, again.deliveries) == (message.id, 2)
        again.ack()
        break
    assert group.retries() == []
    with pytest.raises(LeaseLost, match="message .* of 'jobs' no longer belongs to the consumer 'one'"):
        message.retry(1)


def test_only_one_consumer_receives_a_retry(timed: Store, clock: StoreClock) -> None:
    stream = timed.stream("jobs")
    stream.add({"n": 1})
    group = stream.group("workers")
    group.consumer("one").read()[0].retry(5)
    loops = [group.consumer(f"c{n}").messages(stop_when_empty=True) for n in range(3)]
    clock.advance(5)
    found = [next(loop, None) for loop in loops]
    assert sum(one is not None for one in found) == 1


def test_an_acknowledged_message_does_not_come_again(timed: Store, clock: StoreClock) -> None:
    stream = timed.stream("jobs")
    stream.add({"n": 1})
    group = stream.group("workers")
    (message,) = group.consumer("one").read()
    message.retry(5)
    assert group.ack(message.id) == 1
    clock.advance(10)
    assert list(group.consumer("two").messages(stop_when_empty=True, claim_idle=1)) == []
    assert group.retries() == []


def test_other_groups_do_not_see_a_retry(timed: Store, clock: StoreClock) -> None:
    stream = timed.stream("jobs")
    stream.add({"n": 1})
    stream.group("a").consumer("one").read()[0].retry(5)
    clock.advance(10)
    assert _numbers(stream.group("b").consumer("one").messages(stop_when_empty=True)) == ["1"]
    assert stream.length() == 1
    assert _numbers(stream.group("a").consumer("two").messages(stop_when_empty=True)) == ["1"]


def test_back_off(timed: Store, clock: StoreClock) -> None:
    stream = timed.stream("jobs")
    stream.add({"n": 1})
    group = stream.group("workers")
    worker, start, seen = group.consumer("one"), clock.time(), []
    for _ in range(102):
        for message in worker.messages(stop_when_empty=True, backoff=Exponential(10, factor=3, most=60, jitter=0),
                                       max_deliveries=4, dead_letters="dead"):  # fmt: skip
            seen.append((message.deliveries, clock.time() - start))
        clock.advance(1)
    assert seen == [(1, 0), (2, 10), (3, 40), (4, 100)]
    (dead,) = timed.stream("dead")  # at once, after the last delivery
    assert dead["_deliveries"] == "4"
    assert group.pending_count() == 0


def test_a_handler_that_raises_has_failed(timed: Store, clock: StoreClock) -> None:
    stream = timed.stream("jobs")
    stream.add_many([{"n": 1}, {"n": 2}])
    group = stream.group("workers")

    def work() -> None:
        for message in group.consumer("one").messages(stop_when_empty=True, backoff=lambda times: 7 * times):
            if message["n"] == "1":
                raise RuntimeError("failed")
            message.ack()

    with pytest.raises(RuntimeError):
        work()
    assert [retry.due.timestamp() for retry in group.retries()] == [clock.time() + 7]
    work()
    assert group.pending_count() == 1
    clock.advance(7)
    with pytest.raises(RuntimeError):
        work()
    assert [retry.due.timestamp() for retry in group.retries()] == [clock.time() + 14]


def test_batches_back_off(timed: Store) -> None:
    stream = timed.stream("jobs")
    stream.add_many({"n": n} for n in range(4))
    group = stream.group("workers")
    worker = group.consumer("one")
    for batch in worker.messages(batch=4, stop_when_empty=True, backoff=Exponential(5, jitter=0)):
        worker.ack(batch[0])
        batch[1].retry(50)
        group.ack(batch[2].id)
    assert [(retry.due - _now(timed)).total_seconds() for retry in group.retries()] == [5, 50]


def test_a_message_that_a_transaction_acknowledged_has_not_failed(timed: Store) -> None:
    stream = timed.stream("jobs")
    stream.add({"n": 1})
    worker = stream.group("workers").consumer("one")
    for message in worker.messages(stop_when_empty=True, backoff=Exponential(5)):
        with timed.transaction() as transaction:
            transaction.ack(message)
            assert not message.settled
        assert message.settled
    assert list(timed.keys()) == ["jobs"]


def test_the_waits_of_a_back_off() -> None:
    exact = Exponential(2, factor=3, most=100, jitter=0)
    assert [exact(n) for n in (1, 2, 3, 4, 5, 1 << 63)] == [2, 6, 18, 54, 100, 100]
    assert all(9 <= Exponential(10, jitter=0.1)(1) <= 10 for _ in range(100))
    assert repr(exact) == "Exponential(2, factor=3, most=100, jitter=0)"
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: Exponential(-1), "first must be at least 0 seconds, not -1"),
        (lambda: Exponential(10, most=1), "most must be at least first"),
        (lambda: Exponential(1, most=math.inf), "most must be at least first and at most a hundred years, not inf"),
        (lambda: Exponential(1, factor=0.5), "factor must be a number from 1 to 1e[+]06, not 0.5"),
        (lambda: Exponential(1, jitter=math.nan), "jitter must be a number from 0 to 1, not nan"),
    ]
    for call, text in wrong:
        with pytest.raises(ValueError, match=text):
            call()
    with rillet.open() as store:
        worker = store.stream("jobs").group("workers").consumer("one")
        with pytest.raises(TypeError, match="backoff must be a function from the number of deliveries to seconds"):
            worker.messages(backoff=5)  # type: ignore[call-overload]


# -- rights ------------------------------------------------------------------------------------------------------------


def test_a_user_without_rights_for_the_helper_keys(store: Store) -> None:
    """Its loops work as before, and its delays are refused."""
    stream = store.stream("jobs")
    stream.add({"n": 1})
    store.execute("ACL", "SETUSER", "default", "resetkeys", "~jobs")
    try:
        worker = stream.group("workers").consumer("one")
        assert _numbers(worker.messages(stop_when_empty=True)) == ["1"]
        with pytest.raises(CommandError):
            stream.add({"n": 2}, delay=1)
    finally:
        store.execute("ACL", "SETUSER", "default", "allkeys")
    assert list(store.keys()) == ["jobs"]


def test_the_rights_that_delays_need(store: Store) -> None:
    """The rights of docs/workers.md."""
    rules = "resetkeys ~jobs ~rillet:delayed:* ~rillet:retries:* -@all +@connection +@stream +@transaction +@sortedset"
    store.execute("ACL", "SETUSER", "default", *rules.split(), "+eval", "+time", "+acl")
    try:
        stream = store.stream("jobs")
        stream.add({"n": 1}, at=PAST)
        worker = stream.group("workers").consumer("one")
        seen = []
        for message in worker.messages(timeout=20, claim_idle=1, heartbeat=True, backoff=Exponential(0.001)):
            seen.append(message.deliveries)
            if message.deliveries == 2:
                message.ack()
                break
        assert seen == [1, 2]
        assert worker.group.collect(0, to="two") == {"one": 0}
    finally:
        store.execute("ACL", "SETUSER", "default", "allkeys", "+@all")


def test_how_long_a_read_waits() -> None:
    with rillet.open() as store:
        delays = Delays([store.stream("jobs").group("g")])
        assert delays.due(False)
        delays.began()
        assert delays.saw(0, [], [], [b"1", b"0"]) == (False, False)
        assert not delays.due(True)
        assert (delays.limit(5), delays.limit(0), delays.limit(100)) == (5, 10, 10)
        delays.began()
        assert delays.saw(0, [b"", b"inf"], [b"1-1", b"1004"], [b"1", b"0"]) == (False, False)
        assert delays.limit(5) <= 0.004 + 1e-9
        assert delays.due(True)
        assert delays.saw(0, [b"m", b"1000"], [[b"1-1", 1000.5]], [b"1", b"0"]) == (True, False)


def test_no_entry_is_early(frontend: Frontend) -> None:
    """No entry is early, and none is forgotten."""
    stream = frontend.store.stream("jobs")
    worker = stream.group("workers").consumer("one")
    dues = {str(n): stream.add({"n": n}, delay=0.02 * n) for n in range(5)}
    for message in worker.messages(timeout=20):
        assert datetime.fromtimestamp(message.id.ms / 1000 + 0.001, UTC) >= dues.pop(message["n"])
        message.ack()
        if not dues:
            break
