"""Store.stats: the same figures for every kind of store, compared with a count of the entries."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator

import pytest

import rillet
from rillet.store.stats import StoreStats, ages_of
from tests.cluster import Cluster
from tests.judge import Judge, redis_binary, required_binary, running_redis
from tests.store.conftest import Frontend
from tests.variants import seeds


def fill(store: rillet.Store) -> None:
    orders = store.stream("orders")
    orders.add_many([(f"{n}-0", {"n": n, "text": "x" * 20}) for n in range(1, 301)])
    billing = orders.group("billing")
    billing.consumer("one").read(20)
    billing.consumer("two").read(5)
    billing.ack("1-0")
    orders.group("late", "300-0").create()
    store.stream("empty").group("waiting").create()
    store.execute("SET", "no stream", "x")


def test_the_figures(frontend: Frontend) -> None:
    store = frontend.store
    fill(store)
    stats = store.stats()
    assert [stream.name for stream in stats.streams] == ["empty", "orders"]
    empty, orders = stats.streams
    assert (orders.length, orders.entries_added) == (300, 300)
    assert (str(orders.first_id), str(orders.last_id), str(orders.last_generated_id)) == ("1-0", "300-0", "300-0")
    assert orders.nodes == store.stream("orders").info()["radix-tree-keys"]
    billing, late = orders.groups
    assert (billing.name, billing.lag, billing.lag_exact, billing.lag_note) == ("billing", 275, True, "")
    assert (billing.pending, billing.examined) == (24, 24)
    assert str(billing.last_delivered_id) == "25-0"
    assert sum(billing.ages.values()) == 24
    assert billing.deliveries == 1
    assert billing.oldest_ms is not None
    assert [(one.name, one.pending) for one in billing.consumers] == [("one", 19), ("two", 5)]
    assert (late.lag, late.pending, late.oldest_ms, late.deliveries) == (0, 0, None, None)
    assert (empty.length, empty.first_id, empty.last_id, empty.groups[0].lag) == (0, None, None, 0)
    assert abs(stats.time - time.time()) < 600
    assert json.loads(json.dumps(stats.as_dict()))["streams"][1]["groups"][0]["last_delivered_id"] == "25-0"


def test_memory_by_structure(frontend: Frontend) -> None:
    store = frontend.store
    fill(store)
    store.stream("orders").add_many([(f"{n}-0", {"n": n, "text": "x" * 20}) for n in range(301, 501)])
    stats = store.stats("orders")
    memory = stats.streams[0].memory
    if frontend.kind == "redis":
        assert stats.server.startswith("redis 7.0")
        assert memory.total == store.execute("MEMORY", "USAGE", "orders")
        assert (memory.listpacks, memory.rax, memory.pending) == (None, None, None)
        assert "total only" in memory.note
        return
    assert stats.server == f"rillet {rillet.__version__}"
    parts = (memory.listpacks, memory.rax, memory.groups, memory.pending, memory.idmp, memory.stream)
    assert memory.total == sum(part or 0 for part in parts)
    assert memory.measured == stats.streams[0].nodes
    usage = store.execute("MEMORY", "USAGE", "orders", "SAMPLES", 0)
    assert usage == pytest.approx(memory.total, rel=0.15)  # MEMORY USAGE counts what the allocator rounds up, too


def test_the_rate_between_two_samples(frontend: Frontend) -> None:
    store = frontend.store
    store.stream("s").add({"n": 1})
    first = store.stats()
    assert first.streams[0].rate is None
    store.stream("s").add_many([{"n": n} for n in range(50)])
    store.stream("new").add({"n": 1})
    second = store.stats(previous=first)
    new, old = second.streams
    assert new.rate is None
    assert old.rate is not None
    assert round(old.rate * (second.time - first.time)) == 50
    store.delete("s")
    store.stream("s").add({"n": 1})
    assert store.stats("s", previous=second).streams[0].rate is None


def test_pending_messages_by_age(frontend: Frontend) -> None:
    store = frontend.store
    fill(store)
    consumer = store.stream("orders").group("billing", create=False).consumer("one")
    for id, idle in (("2-0", 30), ("3-0", 300), ("4-0", 3000), ("5-0", 30_000), ("6-0", 300_000)):
        consumer.claim_ids(id, set_idle=idle)
    group = store.stats("orders").streams[0].groups[0]
    assert group.ages == {"<10s": 19, "<1m": 1, "<10m": 1, "<1h": 1, "<1d": 1, ">=1d": 1, "released": 0}
    assert group.oldest_ms is not None
    assert group.oldest_ms >= 300_000_000
    assert group.deliveries == 2
    few = store.stats("orders", pending=3).streams[0].groups[0]
    assert (few.pending, few.examined, sum(few.ages.values())) == (24, 3, 3)
    none = store.stats("orders", pending=0).streams[0].groups[0]
    assert (none.examined, none.oldest_ms) == (0, None)


def test_more_pending_messages_than_one_reply_has(frontend: Frontend) -> None:
    stream = frontend.store.stream("s")
    stream.add_many([{"n": n} for n in range(2500)])
    stream.group("g").consumer("c").read(2500)
    assert frontend.store.stats().streams[0].groups[0].examined == 2500
    assert frontend.store.stats(pending=1700).streams[0].groups[0].examined == 1700


def test_a_released_message() -> None:
    with rillet.open() as store:
        store.stream("s").add({"n": 1})
        group = store.stream("s").group("g")
        group.consumer("c").read()
        group.nack(store.stream("s").first_id or 0)
        assert store.stats().streams[0].groups[0].ages["released"] == 1
    assert ages_of([-1, 0, 9_999, 10_000, 86_400_000]) == {
        "<10s": 2, "<1m": 1, "<10m": 0, "<1h": 0, "<1d": 0, ">=1d": 1, "released": 1,
    }  # fmt: skip


def test_a_name_that_is_not_a_stream(frontend: Frontend) -> None:
    fill(frontend.store)
    with pytest.raises(rillet.CommandError, match="no such key"):
        frontend.store.stats("missing")
    with pytest.raises(rillet.WrongType):
        frontend.store.stats("no stream")


def test_the_asyncio_form_has_the_same_figures(frontend: Frontend) -> None:
    fill(frontend.store)

    async def both() -> StoreStats:
        aio = frontend.store.aio()
        return await aio.stats(previous=await aio.stats())

    found, expected = asyncio.run(both()), frontend.store.stats()
    for one, other in zip(found.streams, expected.streams, strict=True):
        assert (one.name, one.length, one.nodes, one.memory) == (other.name, other.length, other.nodes, other.memory)
        assert [(g.name, g.lag, g.pending) for g in one.groups] == [(g.name, g.lag, g.pending) for g in other.groups]
    assert found.streams[0].rate == 0.0


# -- lag ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["7.0", "8.6", "newest", "valkey", "rillet"])
def server(request: pytest.FixtureRequest) -> Iterator[rillet.Store]:
    if request.param == "rillet":
        with rillet.open() as store:
            yield store
        return
    binary = required_binary(request.param)
    with running_redis(binary=binary) as judge, rillet.connect(f"redis://127.0.0.1:{judge.port}") as store:
        yield store


@pytest.mark.peer
@pytest.mark.parametrize("seed", seeds(10, 300))
def test_a_lag_is_exact_or_unknown_with_a_reason(server: rillet.Store, seed: int) -> None:
    server.execute("FLUSHALL")
    chosen, stream, added = random.Random(seed), server.stream("x"), 1
    stream.add({"n": 1}, id="1-0")
    for _ in range(25):
        names = [group.name for group in stream.groups()]
        match chosen.choice("aaaaddtgrrs"):
            case "a":
                added += 1
                stream.add({"n": added}, id=f"{added}-0")
            case "d":
                stream.delete(f"{chosen.randrange(1, added + 1)}-0")
            case "t":
                stream.trim(maxlen=chosen.randrange(added))
            case "g":
                start = chosen.choice(["0", "$", f"{chosen.randrange(added + 1)}-0"])
                stream.group(f"g{chosen.randrange(3)}", start).create()
            case "r" if names:
                stream.group(chosen.choice(names), create=False).consumer("c").read(chosen.randrange(1, 4))
            case "s" if names:
                stream.group(chosen.choice(names), create=False).set_id(f"{chosen.randrange(added + 1)}-0")
        for group in server.stats("x").streams[0].groups:
            ahead = len(stream.range(f"({group.last_delivered_id}"))
            if group.lag is None:
                assert group.lag_note.startswith(("an entry at or after", "the server has no count"))
                assert not server.owner  # rillet counts
            elif group.lag_exact:
                assert (group.lag, group.lag_note) == (ahead, "")
            else:
                assert group.lag >= ahead
                assert "7.0" in group.lag_note


def test_the_reasons_of_an_unknown_lag() -> None:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed")
    with running_redis() as judge, rillet.connect(f"redis://127.0.0.1:{judge.port}") as store:
        stream = store.stream("s")
        stream.add_many([(f"{n}-0", {"n": n}) for n in range(1, 11)])
        stream.group("middle", "5-0").create()
        (group,) = store.stats().streams[0].groups
        no_count = "the server has no count of the entries up to {} (entries-read is null)"
        assert (group.lag, group.lag_note) == (None, no_count.format("5-0"))
        stream.group("middle", create=False).delete()
        stream.group("all").consumer("c").read(3)
        stream.delete("7-0")
        (group,) = store.stats().streams[0].groups
        assert (group.lag, group.lag_note) == (
            None, "an entry at or after 3-0 was deleted: the greatest deleted ID is 7-0",
        )  # fmt: skip
        # A group that read past a deleted entry has no count either, and nobody has set it.
        stream.group("all", create=False).consumer("c").read(5)
        (group,) = store.stats().streams[0].groups
        assert (group.lag, group.lag_note) == (None, no_count.format("9-0"))


# -- servers --------------------------------------------------------------------------------------------


def test_a_cluster(cluster: Cluster) -> None:
    with rillet.connect(cluster.url) as store:
        names = sorted(cluster.key_of(share, "s") for share in range(3))
        for name in names:
            store.stream(name).add({"n": 1})
            store.stream(name).group("g").consumer("c").read()
        stats = store.stats()
        assert [stream.name for stream in stats.streams] == names
        assert [stream.groups[0].pending for stream in stats.streams] == [1, 1, 1]
        assert [stream.name for stream in asyncio.run(store.aio().stats()).streams] == names


def test_a_user_without_permission_for_memory_usage(judge: Judge) -> None:
    with judge.client() as client:
        client.execute_command("FLUSHALL")
        client.execute_command("ACL", "SETUSER", "watcher", "on", ">secret", "~*", "+@read", "+info", "+multi",
                               "+exec", "-memory")  # fmt: skip
        client.connection_pool.disconnect()
    with rillet.connect(f"redis://watcher:secret@127.0.0.1:{judge.port}") as store:
        with rillet.connect(f"redis://127.0.0.1:{judge.port}") as admin:
            admin.stream("s").add({"n": 1})
            admin.stream("s").group("g").create()
        (stream,) = store.stats().streams
        assert stream.memory.total is None
        assert "NOPERM" in stream.memory.note
        assert stream.groups[0].lag == 1


# -- RILLET.XMEMORY -------------------------------------------------------------------------------------


def test_the_command() -> None:
    with rillet.open() as store:
        store.stream("s").add_many([{"n": n} for n in range(5000)])
        all_nodes = store.stream("s").info()["radix-tree-keys"]
        for samples, measured in ((1, 1), (7, 7), (0, all_nodes)):
            reply = store.execute("RILLET.XMEMORY", "s", "SAMPLES", samples)
            found = dict(zip(reply[::2], reply[1::2], strict=True))
            assert found.pop(b"measured") == measured
            assert store.execute("MEMORY", "USAGE", "s") == pytest.approx(sum(found.values()), rel=0.15)
        for words in (("s", "SAMPLES"), ("s", "COUNT", "1"), ("s", "SAMPLES", "-1"), ("s", "SAMPLES", "x")):
            with pytest.raises(rillet.CommandError):
                store.execute("RILLET.XMEMORY", *words)
        with pytest.raises(rillet.CommandError, match="no such key"):
            store.execute("RILLET.XMEMORY", "missing")
