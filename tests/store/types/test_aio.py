"""The asyncio classes of hash, set, sorted set, list, string and counter, on every kind of store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rillet import Store
from rillet.errors import WrongType
from rillet.store.aio import AsyncStore
from rillet.store.codecs import json_of, text_of
from tests.store.conftest import Frontend
from tests.store.types.conftest import only

MANY = 2500  # more than two pages


def _run(store: Store, body: Callable[[AsyncStore], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await body(store.aio())

    asyncio.run(limited())


async def _raises(error: type[BaseException], call: Awaitable[Any]) -> None:
    with pytest.raises(error):
        await call


def test_hash(store: Store) -> None:
    async def body(store: AsyncStore) -> None:
        prices = store.hash("h", codec=text_of(float))
        assert await prices.set_value("apple", 1.5)
        assert not await prices.set_value("apple", 2.5)
        assert await prices.get_value("apple") == 2.5
        await _raises(KeyError, prices.get_value("fig"))
        assert await prices.get("fig") is None
        assert await prices.get("fig", 0.0) == 0.0
        assert await prices.setdefault("fig", 3.0) == 3.0
        assert not await prices.add("fig", 4.0)
        assert await prices.contains("fig")
        assert not await prices.contains(7)
        await prices.update({"pear": 1.0}, plum=2.0)
        assert await prices.mget(["pear", "kiwi"]) == [1.0, None]
        assert await prices.pop("pear") == 1.0
        assert await prices.pop("pear", None) is None
        await _raises(KeyError, prices.pop("pear"))
        assert await prices.incr_float("plum", 0.5) == 2.5
        assert await prices.remove("plum", "kiwi") == 1
        assert await prices.random() in ("apple", "fig")
        name, price = await prices.popitem()
        assert (name, price) in (("apple", 2.5), ("fig", 3.0))
        assert await prices.size() == 1
        counts = store.hash("counts", codec=text_of(int))
        await counts.update({f"f{number}": number for number in range(MANY)})
        assert await counts.incr("f1", 4) == 5
        await counts.set_value("f1", 1)
        expected = {f"f{number}": number for number in range(MANY)}
        assert {name: number async for name, number in counts.scan()} == expected
        assert {name async for name in counts} == set(expected)
        assert [name async for name in counts.scan_fields("f2499")] == ["f2499"]
        assert await counts.get_all() == expected
        await counts.clear()
        await _raises(KeyError, counts.popitem())

    _run(store, body)


@only("memory", "socket")
def test_fields_that_expire(store: Store) -> None:
    async def body(store: AsyncStore) -> None:
        tokens = store.hash("tokens", codec=text_of(int))
        assert await tokens.set_values({"ann": 1, "bob": 2}, expire=60)
        assert not await tokens.set_values({"ann": 2}, nx=True)
        assert round(await tokens.field_ttl("ann") or 0) == 60
        assert await tokens.persist_field("ann")
        assert await tokens.field_ttl("ann") is None
        assert await tokens.expire_field("ann", 30)
        assert await tokens.expire_field_at("bob", datetime(2500, 1, 1, tzinfo=UTC))
        assert await tokens.get_and_expire(["ann", "none"], None) == [1, None]
        assert await tokens.get_and_delete(["ann"]) == [1]
        await _raises(KeyError, tokens.field_ttl("ann"))
        assert await tokens.get_all() == {"bob": 2}

    _run(store, body)


def test_set(store: Store) -> None:
    async def body(store: AsyncStore) -> None:
        one, two = store.set("{s}:1"), store.set("{s}:2")
        assert await one.add("a")
        assert not await one.add("a")
        await one.update("bcd")
        await two.update(["c", "d"], {"e"})
        assert await one.contains("a")
        assert await one.contains_many(["a", "x"]) == [True, False]
        assert await one.size() == 4
        assert await one.members() == set("abcd") == {member async for member in one}
        assert await one.union(two) == set("abcde") == await one.union(["c", "d", "e"])
        assert await one.intersection(two) == {"c", "d"} == await one.intersection({"c", "d", "e"})
        assert await one.difference(two) == {"a", "b"} == await one.difference("cde")
        assert await one.symmetric_difference(two) == {"a", "b", "e"} == await one.symmetric_difference("cde")
        assert not await one.isdisjoint(two)
        assert await one.isdisjoint(["x"])
        # A set whose codec differs is read, and then combined here.
        numbers = store.set("{s}:3", codec=text_of(str))
        await numbers.update("cz")
        assert await one.intersection(numbers) == {"c"}
        await one.intersection_update(two)
        assert await one.members() == {"c", "d"}
        await one.update(two)
        await one.difference_update(["e"])
        await one.symmetric_difference_update(["c", "x"])
        assert await one.members() == {"d", "x"}
        assert await one.move("x", two)
        assert await one.discard("d")
        await _raises(KeyError, one.remove("d"))
        await _raises(KeyError, one.pop())
        assert await two.random() in set("cdex")
        assert set(await two.random_many(9)) == set("cdex")
        assert await two.pop() in set("cdex")
        assert len(await two.pop_many(9)) == 3
        assert not await two.exists()
        many = store.set("many", codec=text_of(int))
        await many.update(range(MANY))
        assert {number async for number in many.scan()} == set(range(MANY))

    _run(store, body)


def test_sorted_set(store: Store) -> None:
    async def body(store: AsyncStore) -> None:
        scores = store.zset("z")
        assert await scores.set_value("ann", 3)
        assert await scores.add({"bob": 1, "eve": 2}) == 2
        await scores.update(dan=4)
        assert await scores.get_value("ann") == 3.0
        await _raises(KeyError, scores.get_value("x"))
        assert await scores.get("x", 7) == 7
        assert await scores.setdefault("x", 9) == 9
        assert await scores.contains("x")
        assert await scores.pop("x") == 9
        assert await scores.incr("bob", 4) == 5
        assert await scores.rank("bob") == 3
        assert await scores.rank("bob", reverse=True) == 0
        assert await scores.mget(["ann", "x"]) == [3.0, None]
        assert await scores.range(0, 1) == [("eve", 2.0), ("ann", 3.0)]
        assert await scores.range_by_score("(2", 4) == [("ann", 3.0), ("dan", 4.0)]
        assert await scores.count(3) == 3
        assert [member async for member in scores] == ["eve", "ann", "dan", "bob"]
        assert [page async for page in scores.pages(reverse=True)][0][0] == ("bob", 5.0)
        assert await scores.pop_min() == ("eve", 2.0)
        assert await scores.pop_max() == ("bob", 5.0)
        assert await scores.popitem() == ("dan", 4.0)
        assert await scores.pop_min_many(2) == [("ann", 3.0)]
        await _raises(KeyError, scores.pop_min(block=0.01))
        assert await scores.pop_max(block=0.01, default=None) is None
        waiting = asyncio.create_task(scores.pop_min(block=30))
        await asyncio.sleep(0)
        await scores.add([("late", 1.5)])
        assert await waiting == ("late", 1.5)
        await scores.add((f"m{number:05}", 0) for number in range(MANY))
        assert {member async for member, _ in scores.scan()} == {f"m{number:05}" for number in range(MANY)}
        assert await scores.range_by_lex("[m02499") == ["m02499"]
        assert await scores.count_lex("[m02498") == 2
        assert await scores.remove_range_by_lex("[m02499", "[m02499") == 1
        assert await scores.remove_range(0, 0) == 1
        assert len(await scores.get_all()) == MANY - 2
        assert await scores.remove_range_by_score() == MANY - 2

    _run(store, body)


def test_list(store: Store) -> None:
    async def body(store: AsyncStore) -> None:
        jobs = store.list("{l}:1", codec=json_of(int))
        assert await jobs.append(2) == 1
        assert await jobs.appendleft(1) == 2
        await jobs.extend([3, 4])
        await jobs.extendleft([0])
        assert await jobs.get_all() == [0, 1, 2, 3, 4] == [number async for number in jobs]
        assert await jobs.get_value(-1) == 4
        await _raises(IndexError, jobs.get_value(9))
        await jobs.set_value(0, 7)
        await _raises(IndexError, jobs.set_value(9, 7))
        assert await jobs.index(7) == 0
        await _raises(ValueError, jobs.index(99))
        assert await jobs.count(7) == 1
        assert await jobs.contains(7)
        assert await jobs.insert_before(7, 6) == 6
        assert await jobs.insert_after(7, 8) == 7
        await _raises(ValueError, jobs.insert_after(99, 8))
        assert await jobs.range(0, 2) == [6, 7, 8]
        assert await jobs.remove(8) == 1
        assert await jobs.pop() == 4
        assert await jobs.popleft() == 6
        assert await jobs.pop_many(2) == [3, 2]
        assert await jobs.popleft_many(1) == [7]
        done = store.list("{l}:2", codec=json_of(int))
        assert await jobs.move(done) == 1
        assert await jobs.move(done, block=0.01) is None
        assert await done.get_all() == [1]
        await _raises(IndexError, jobs.pop(block=0.01))
        assert await jobs.popleft(default=None) is None
        waiting = asyncio.create_task(jobs.popleft(block=30))
        await asyncio.sleep(0)
        await jobs.append(5)
        assert await waiting == 5
        await jobs.extend(range(MANY))
        assert [number async for number in jobs] == list(range(MANY))
        await jobs.trim(0, 9)
        assert await jobs.size() == 10

    _run(store, body)


def test_string_and_counter(store: Store) -> None:
    async def body(store: AsyncStore) -> None:
        text = store.string("t")
        assert await text.get_value() is None
        assert await text.set_value("one", expire=100)
        assert not await text.set_value("two", nx=True)
        assert await text.get_and_set("two", keep_expiry=True) == "one"
        ttl = await text.ttl()
        assert ttl is not None
        assert 90 < ttl <= 100
        assert await text.get_and_expire(None) == "two"
        assert await text.ttl() is None
        assert await text.append("!") == 4
        assert await text.get_range(0, 2) == b"two"
        assert await text.set_range(0, "T") == 4
        assert await text.size() == 4
        assert await text.get_and_delete() == "Two!"
        visits = store.counter("n")
        assert await visits.incr() == 1
        assert await visits.decr(3) == -2
        assert await visits.get_value() == -2
        assert await visits.incr_float(0.5) == -1.5
        assert await visits.get_float() == -1.5
        await visits.set_value(7, expire=timedelta(seconds=50))
        assert await visits.persist()
        assert await visits.reset() == 7

    _run(store, body)


def test_keys(store: Store) -> None:
    async def body(store: AsyncStore) -> None:
        await store.stream("s").add({"a": 1})
        await store.hash("{h}").update(a="1")
        await store.zset("{h}z").add({"m": 1})
        assert {name async for name in store} == {"s", "{h}", "{h}z"} == {name async for name in store.keys()}  # noqa: SIM118
        assert [name async for name in store.keys("?h*", kind="hash")] == ["{h}"]
        assert [stream.name for stream in await store.streams()] == ["s"]
        assert await store.exists("{h}")
        assert await store.type("{h}z") == "zset"
        assert await store.type("none") is None
        found = await store.get_object("{h}")
        assert repr(found) == "AsyncHash('{h}')"
        assert repr(await store.get_object("s")) == "AsyncStream('s')"
        await _raises(KeyError, store.get_object("none"))
        assert await store.expire("{h}", 100)
        assert await store.ttl("{h}")
        assert await store.expire_at("{h}", datetime.now(UTC) + timedelta(seconds=50))
        assert await store.persist("{h}")
        assert await store.rename("{h}", "{h}2")
        assert not await store.rename("{h}2", "{h}z", replace=False)
        assert await store.copy("{h}2", "{h}3")
        await _raises(WrongType, store.list("{h}2").append("x"))
        assert await store.delete("{h}2", "{h}3", "none") == 2

    _run(store, body)


def test_streams(frontend: Frontend) -> None:
    async def body(store: AsyncStore) -> None:
        one, two = store.stream("{s}:1"), store.stream("{s}:2")
        assert await one.first_id() is None
        ids = await one.add_many(({"n": number} for number in range(1500)), maxlen=1500)
        assert len(ids) == 1500
        assert await one.last_id() == ids[-1]
        assert await one.first_id() == ids[0]
        assert await one.contains(ids[3])
        assert [entry.id async for entry in one.scan(reverse=True, page=700)] == ids[::-1]
        await two.add({"n": "b"}, 5)
        assert {name: len(part) for name, part in (await store.read({one: "0", "{s}:2": "0"})).items()} == {
            "{s}:1": 1500, "{s}:2": 1,
        }  # fmt: skip
        waiting = asyncio.create_task(store.read({one: "$", two: "$"}, block=30))
        await asyncio.sleep(0.05)
        made = await two.add({"n": "c"})
        assert [(name, entry.id) for name, part in (await waiting).items() for entry in part] == [("{s}:2", made)]
        assert await one.trim(maxlen=10) == 1490
        assert await one.delete(ids[-1]) == 1
        assert await one.exists()
        assert (await one.info(full=True))["length"] == 9

    _run(frontend.store, body)


def test_groups_and_messages(frontend: Frontend) -> None:
    async def body(store: AsyncStore) -> None:
        one, two = store.stream("{s}:1"), store.stream("{s}:2")
        consumer = await store.consumer("g", "c", [one, "{s}:2"])
        group = await one.group("g")
        assert await group.create()
        assert not await group.create()
        assert await group.create_consumer("other")
        await one.add_many({"n": number} for number in range(5))
        await two.add({"n": 5})
        first = await consumer.read(count=2)
        assert [message["n"] for message in first] == ["0", "1", "5"]
        assert first[0].stream.name == "{s}:1"
        assert await first[0].ack()
        assert not await first[0].ack()
        assert await consumer.ack(*first) == 2
        batches = [batch async for batch in consumer.messages(batch=2, stop_when_empty=True)]
        assert [message["n"] for batch in batches for message in batch] == ["2", "3", "4"]
        assert await group.pending_count() == 3
        assert await group.lag() in (0, None)
        summary = await group.pending_summary()
        assert summary.total == 3
        assert {one.name for one in await group.consumers()} == {"c", "other"}
        assert (await one.groups())[0].name == "g"
        other = group.consumer("other")
        claimed = [message async for message in other.claim_all(0)]
        assert [message["n"] for message in claimed] == ["2", "3", "4"]
        assert [message.deliveries for message in claimed] == [2, 2, 2]
        taken = await group.consumer("c").claim_ids(claimed[0].id, just_ids=True)
        assert taken == [claimed[0].id]
        assert (await other.info()).pending == 2
        assert [entry.id for entry in await other.pending()] == [message.id for message in claimed[1:]]
        assert [message["n"] for message in await other.read(after="0")] == ["3", "4"]
        stop = asyncio.Event()
        handled = []
        async for message in other.messages(stop=stop, timeout=20):
            handled.append(message["n"])
            await message.ack(delete=None)
            stop.set()
        assert handled == ["3"]
        assert await group.delete_consumer("other", pending="drop") == 1
        await group.set_id("$")
        assert await group.delete()
        await _raises(KeyError, group.info())

    _run(frontend.store, body)


def test_failed_messages_go_to_the_dead_letters(frontend: Frontend) -> None:
    async def body(store: AsyncStore) -> None:
        consumer = (await store.stream("s").group("g")).consumer("c")
        await store.stream("s").add({"n": 1})
        for _ in range(3):
            async for message in consumer.messages(max_deliveries=2, dead_letters="dead", stop_when_empty=True):
                assert message["n"] == "1"
        dead = [entry async for entry in store.stream("dead")]
        assert [(entry["n"], entry["_deliveries"]) for entry in dead] == [("1", "2")]

    _run(frontend.store, body)


def test_a_transaction_acknowledges_and_is_repeated(frontend: Frontend) -> None:
    async def body(store: AsyncStore) -> None:
        group = await store.stream("{t}s").group("g")
        await store.stream("{t}s").add({"n": 1})
        (message,) = await group.consumer("c").read()
        calls = 0

        async def take(transaction: Any) -> None:
            nonlocal calls
            calls += 1
            value = int(await store.execute("GET", "{t}n") or 0)
            if calls == 1:  # another client interferes
                await store.execute("SET", "{t}n", 10)
            transaction.execute("SET", "{t}n", value + 1)
            transaction.ack(message)

        await store.transact(take, ["{t}n"])
        assert calls == 2
        assert await store.counter("{t}n").get_value() == 11
        assert await group.pending_count() == 0

    _run(frontend.store, body)


@only("memory", "owner", "attached")
def test_the_state_of_the_store(frontend: Frontend) -> None:
    async def body(store: AsyncStore) -> None:
        plain = store.synchronous
        assert (store.path, store.owner, store.socket, store.url) == (
            plain.path, plain.owner, plain.socket, plain.url,
        )  # fmt: skip
        assert repr(store) == f"Async{plain!r}"
        assert (await store.info())["redis_mode"]
        served = await store.serve()
        try:
            assert served.url
        finally:
            await asyncio.to_thread(served.close)
        client = store.redis_async()
        try:
            assert await client.ping()
        finally:
            await client.aclose()

    _run(frontend.store, body)
