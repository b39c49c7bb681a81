"""The same API over a Redis Cluster: three masters, what lies on all of them, slots that move, a node that dies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.errors import BusyGroup, CommandError, StoreClosed, StoreError, UnknownTimeout
from rillet.store.backends import server_backend
from tests.cluster import MASTERS, Cluster, running_cluster
from tests.judge import redis_binary


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_cluster() as started:
        yield started


@pytest.fixture(params=["", "?protocol=3"])
def store(request: pytest.FixtureRequest, nodes: Cluster) -> Iterator[Store]:
    nodes.flush()
    with rillet.connect(nodes.url + request.param) as opened:
        yield opened


def test_streams_in_different_slots(store: Store) -> None:
    for n in range(20):
        stream = store.stream(f"stream-{n}")
        assert stream.add({"n": n}, 1) is not None
        assert len(stream.add_many([{"n": m} for m in range(50)])) == 50
        assert len(stream) == 51
        assert stream.range(count=1)[0]["n"] == str(n)
        assert stream.info()["length"] == 51
        assert stream.trim(maxlen=10) == 41


def test_what_lies_on_all_nodes(store: Store, nodes: Cluster) -> None:
    names = [nodes.key_of(share, kind) for share in range(MASTERS) for kind in ("a", "b", "text")]
    for name in names:
        if name.startswith("text"):
            store.execute("SET", name, "x")
        else:
            store.stream(name).add({"n": 1}, "1-1")
    assert sorted(store.keys()) == sorted(names) == sorted(key.decode() for key in store.execute("KEYS", "*"))
    assert sorted(store.keys("a*")) == sorted(names[::3])
    assert [one.name for one in store.streams()] == sorted(name for name in names if not name.startswith("text"))
    assert store.execute("DBSIZE") == len(names)
    assert store.execute("CONFIG", "SET", "maxmemory", "0") == b"OK"
    found = store.execute_many([("TYPE", name) for name in names] + [("PING",), ("DBSIZE",)])
    assert found == [b"stream", b"stream", b"string"] * MASTERS + [b"PONG", len(names)]
    assert store.delete(*names[1:], "missing") == len(names) - 1
    assert list(store.keys()) == names[:1]
    assert store.execute("FLUSHALL") == b"OK"
    assert store.streams() == []


def test_what_a_cluster_cannot_do_is_said(store: Store, nodes: Cluster) -> None:
    first, second = nodes.key_of(0, "a"), nodes.key_of(1, "a")
    with pytest.raises(CommandError, match="^CROSSSLOT Keys in request don't hash to the same slot"):
        store.execute("XREAD", "STREAMS", first, second, "0", "0")
    for words in (("MULTI",), ("WATCH", first)):
        with pytest.raises(CommandError, match=f"{words[0]} belongs to one connection"):
            store.execute(*words)
    with pytest.raises(CommandError, match=r"use keys\(\), which reads every node"):
        store.execute("SCAN", "0")
    with pytest.raises(StoreError, match="writes its RDB file on its own disk"):
        store.save("x.rdb")
    with pytest.raises(CommandError, match="^ERR unknown command 'NOSUCH'"):
        store.execute("NOSUCH", first)
    add = ("XADD", second, "1-1", "a", "1")
    assert store.execute_many([("MULTI",), add, ("XLEN", second), ("EXEC",)])[3] == [b"1-1", 1]


def test_any_of_the_nodes_is_enough(nodes: Cluster) -> None:
    for hosts in ("127.0.0.1:1,{}", "{},127.0.0.1:1"):
        url = f"redis+cluster://{hosts.format(f'127.0.0.1:{nodes.nodes[1].port}')}/0?protocol=2"
        with rillet.connect(url) as store, store.redis() as client:
            assert client.xadd(nodes.key_of(2, "any"), {"n": 1})
            assert len(store.streams()) >= 1
    for wrong in ("redis+cluster://127.0.0.1:1,127.0.0.1:2", "redis+cluster://a:b", "redis+cluster://127.0.0.1:1,a:b"):
        with pytest.raises(StoreError, match="did not answer|is not the address of a server"):
            rillet.connect(wrong)


def test_groups_and_dead_letters(store: Store) -> None:
    stream = store.stream("jobs")
    group = stream.group("g")
    assert group.create()
    with pytest.raises(BusyGroup):
        store.execute("XGROUP", "CREATE", "jobs", "g", "0")
    stream.add_many([{"n": n} for n in range(3)])
    assert len(group.consumer("a").read()) == 3
    left = list(group.consumer("b").messages(claim_idle=0, max_deliveries=1, dead_letters="dead", stop_when_empty=True))
    assert left == []
    assert len(store.stream("dead")) == 3
    assert group.pending_count() == 0
    with pytest.raises(CommandError, match="^ERR Invalid stream ID"):
        stream.range("x")


def test_several_streams_at_once(store: Store, nodes: Cluster) -> None:
    names = [nodes.key_of(share, "a") for share in range(MASTERS)]
    for name in names:
        store.stream(name).add({"n": 1}, 1)
    assert {name: len(entries) for name, entries in store.read(dict.fromkeys(names, "0")).items()} == dict.fromkeys(
        names, 1
    )
    workers = store.consumer("g", "w", names)
    assert sorted(message.stream.name for message in workers.read()) == sorted(names)
    assert len(list(workers.messages(stop_when_empty=True))) == len(names)
    assert len(list(workers.messages(block=None, timeout=0))) == len(names)
    for call in (
        lambda: store.read(dict.fromkeys(names, "0"), block=1), lambda: workers.read(block=1),
        lambda: workers.messages(),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="a cluster cannot wait for streams in different slots"):
            call()
    tagged = ["{t}.a", "{t}.b"]
    store.stream(tagged[1]).add({"n": 1}, 1)
    assert list(store.read(dict.fromkeys(tagged, "0"), block=1)) == tagged[1:]
    together = store.consumer("g", "w", tagged)
    assert [message.stream.name for message in together.messages(timeout=0.01)] == tagged[1:]
    assert together.ack(*together.consumers[1].read(after="0")) == 1


def waiting(nodes: Cluster, key: str, work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Return a thread in which something waits for a key by now, and where its result will be."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(work())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    nodes.wait(lambda: nodes.owner(key).info("clients", "blocked_clients") == "1", "somebody waits for the key")
    return thread, result


def test_waiting_and_the_end(store: Store, nodes: Cluster) -> None:
    assert store.stream("s").read("$", block=0.01) == []
    with store.redis() as client:
        assert client.xadd("s", {"a": 1})
        assert client.xlen("s") == 1
    thread, result = waiting(nodes, "s", lambda: store.stream("s").read("$", block=0))
    nodes.owner("s").run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    while thread.is_alive():  # a read is sent again
        nodes.owner("s").run("XADD", "s", "*", "a", "1")
        thread.join(0.05)
    assert len(result[0]) >= 1
    thread, result = waiting(nodes, "s", lambda: store.stream("s").read("$", block=0))
    store.close()
    thread.join(60)
    assert isinstance(result[0], StoreClosed)
    with pytest.raises(StoreClosed):
        len(store.stream("s"))


def test_slots_that_move_are_followed(store: Store, nodes: Cluster) -> None:
    stream, ids = store.stream("events"), [f"{n}-1" for n in range(1, 9)]
    stream.add({"n": 1}, ids[0])
    with nodes.moving("events") as move:
        move.migrate()  # ASK
        stream.add({"n": 2}, ids[1])
        assert stream.add_many([(ids[2], {"n": 3}), (ids[3], {"n": 4})]) == [(3, 1), (4, 1)]
        move.finish()  # MOVED
        stream.add({"n": 5}, ids[4])
        assert stream.add_many([(ids[5], {"n": 6}), (ids[6], {"n": 7})]) == [(6, 1), (7, 1)]
        assert store.execute_many([("XLEN", "events"), ("XLEN", nodes.key_of(0, "x"))]) == [7, 0]
    assert [str(entry.id) for entry in stream] == ids[:7]
    assert list(store.keys()) == ["events"]
    before = nodes.owner("events").refusals("MOVED")
    assert len(stream) == 7
    assert nodes.owner("events").refusals("MOVED") == before  # it is learnt


def test_a_transaction_goes_where_its_slot_has_gone(store: Store, nodes: Cluster) -> None:
    stream = nodes.key_of(0, "orders")
    transaction = [("MULTI",), ("INCR", f"{{{stream}}}n"), ("XADD", stream, "*", "n", "1"), ("EXEC",)]

    def count(commands: list[tuple[str, ...]] = transaction) -> int:
        return int(store.execute_many(commands)[-1][0])

    assert count() == 1
    with nodes.moving(stream) as move:
        move.migrate()
        assert count() == 2  # ASK
        with pytest.raises(CommandError, match=r"store\.transaction"):
            count([("INCR", f"{{{stream}}}alone"), *transaction])
        move.finish()
        assert [count(), count()] == [3, 4]  # MOVED, and known
    assert len(store.stream(stream)) == 4


@pytest.mark.parametrize("watch", [[], ["n"]], ids=["plain", "watched"])
def test_a_transaction_without_a_reply_may_have_been_executed(nodes: Cluster, watch: list[str]) -> None:
    nodes.flush()
    with rillet.connect(nodes.url, timeout=0.5) as store:
        store.execute("SET", "n", 1)
        with pytest.raises(UnknownTimeout), store.transaction(watch) as transaction:  # noqa: PT012
            transaction.execute("INCR", "n")
            nodes.owner("n").run("CLIENT", "PAUSE", 1500, "WRITE")
    nodes.owner("n").run("CLIENT", "UNPAUSE")


def test_a_message_reaches_subscribers_on_every_node(store: Store) -> None:
    with store.subscribe("a", patterns=["b*"]) as subscription:
        assert store.publish("a", "x") in (0, 1)
        assert store.publish("bb", "y") in (0, 1)  # a node counts its own
        for channel, data in (("a", "x"), ("bb", "y")):
            message = subscription.get(60)
            assert message is not None
            assert (message.channel, message.data) == (channel, data)
        assert subscription.get(0.01) is None
        with pytest.raises(ValueError, match="shard channels cannot share"):
            subscription.add(shards=["s"])


def test_shard_channels_follow_their_slots(store: Store, nodes: Cluster) -> None:
    names = [nodes.key_of(share, "s") for share in range(MASTERS)]
    with store.subscribe(shards=names) as subscription:
        assert [store.publish(name, "x", shard=True) for name in names] == [1] * MASTERS
        heard = [subscription.get(60) for _ in names]
        assert sorted(one.channel for one in heard if one is not None) == sorted(names)
        subscription.remove(shards=names[:1])
        assert store.publish(names[0], "x", shard=True) == 0


def test_a_node_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that was not sent waits for the replica that takes over."""
    monkeypatch.setattr(server_backend, "CLUSTER_PATIENCE", 60.0)
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_cluster(replicas=True) as cluster, rillet.connect(cluster.url) as store:
        key, other = cluster.key_of(2, "a"), cluster.key_of(0, "a")
        cluster.run(key, "XADD", key, "1-1", "n", "1")
        cluster.run(key, "WAIT", 1, 60_000)
        assert len(store.stream(key)) == 1
        dead = cluster.owner(key)
        cluster.kill(dead)
        store.stream(key).add({"n": 2})
        assert len(store.stream(other)) == 0
        assert len(store.stream(key)) == 2
        assert list(store.keys()) == [key]
