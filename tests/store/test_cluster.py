"""The same API over a Redis Cluster: one node that holds all slots, which answers and redirects as a large one does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rillet
from rillet.errors import BusyGroup, CommandError, StoreClosed
from rillet.store import Store
from tests.judge import free_port, redis_binary, running_redis


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_redis("--cluster-enabled", "yes", "--cluster-port", str(free_port())) as server:
        client = server.client()
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        while b"cluster_state:ok" not in client.execute_command("CLUSTER INFO"):
            pass
        client.close()
        client.connection_pool.disconnect()
        yield f"redis+cluster://127.0.0.1:{server.port}"


@pytest.fixture
def store(cluster: str) -> Iterator[Store]:
    with rillet.connect(cluster) as opened:
        opened.execute("FLUSHALL")
        yield opened


def test_streams_in_different_slots(store: Store) -> None:
    for n in range(20):
        stream = store.stream(f"stream-{n}")
        assert stream.add({"n": n}, 1) is not None
        assert stream.add_many([{"n": m} for m in range(50)]) == 50
        assert len(stream) == 51 and stream.range(count=1)[0]["n"] == str(n)
        assert stream.info()["length"] == 51 and stream.trim(maxlen=10) == 41


def test_groups_and_dead_letters(store: Store) -> None:
    stream = store.stream("jobs")
    group = stream.group("g")
    assert stream.group("g").name == "g"
    with pytest.raises(BusyGroup):
        store.execute("XGROUP", "CREATE", "jobs", "g", "0")
    stream.add_many([{"n": n} for n in range(3)])
    assert len(group.consumer("a").read()) == 3
    left = list(group.consumer("b").messages(claim_idle=0, max_deliveries=1, dead_letters="dead", stop_when_empty=True))
    assert left == [] and len(store.stream("dead")) == 3 and group.pending_count() == 0
    with pytest.raises(CommandError, match="^ERR Invalid stream ID"):
        stream.range("x")


def test_waiting_and_the_end(store: Store) -> None:
    assert store.stream("s").read("$", block=0.01) == []
    with store.redis() as client:
        assert client.xadd("s", {"a": 1}) and client.xlen("s") == 1
    store.close()
    with pytest.raises(StoreClosed):
        len(store.stream("s"))


def test_channels(store: Store) -> None:
    with store.subscribe("a", patterns=["b*"]) as subscription:
        assert store.publish("a", "x") == 1 and store.publish("bb", "y") == 1
        for channel, data in (("a", "x"), ("bb", "y")):
            message = subscription.get(10)
            assert message is not None and (message.channel, message.data) == (channel, data)
        assert subscription.get(0.01) is None
        with pytest.raises(ValueError, match="of their own"):
            subscription.add(shards=["s"])


def test_shard_channels(store: Store) -> None:
    with store.subscribe(shards=["s"]) as subscription:
        assert store.publish("s", "x", shard=True) == 1
        message = subscription.get(10)
        assert message is not None and (message.channel, message.data, message.shard) == ("s", "x", True)
        subscription.remove(shards=["s"])
        assert store.publish("s", "x", shard=True) == 0
