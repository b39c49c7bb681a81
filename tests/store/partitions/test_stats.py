"""What `store.stats`, `rillet stats` and the inspector show of partitioned streams."""

from __future__ import annotations

from typing import Any

import pytest

from rillet import PartitionedStream, Store
from rillet.cli.stats import report
from rillet.inspector.groups import groups_of_stream
from rillet.keyspace.helper_keys import partition_of_key
from rillet.store.partitions.layout import keys_of


@pytest.fixture
def orders(store: Store) -> PartitionedStream[Any]:
    stream = store.partitioned("{o}%ders", 4, "customer")
    stream.add_many({"customer": n, "n": n} for n in range(20))
    return stream


def test_the_key_of_a_partition() -> None:
    for name in (b"orders", b"{a}b:1", b"50%", b"%7B{", b"a\nb"):
        assert [partition_of_key(key) for key in keys_of(name, 7, 3)] == [(name, 7, number) for number in range(3)]
    for other in (b"orders", b"a:1:2", b"a:1:2:{x}", b"{a}:1:2:{3}", b"a:1:2:{3}b"):
        assert partition_of_key(other) is None


def test_who_reads_which_partition(store: Store, orders: PartitionedStream[Any]) -> None:
    loop: Any = orders.group("billing").consumer("w 1").messages(claim_idle=60)
    message = next(loop)
    stats = orders.stats()
    parts = [stream.groups[0].partition for stream in stats.streams]
    assert all(part is not None for part in parts)
    assert sorted(part.number for part in parts if part) == [0, 1, 2, 3]
    assert {(part.stream, part.epoch, part.state, part.consumer) for part in parts if part} == {
        ("{o}%ders", 1, "current", "w 1")
    }
    assert all(0 < (part.lease_until or 0) - stats.time <= 60 for part in parts if part)
    text = "\n".join(report("here", stats))
    assert "partitions of {o}%ders" in text
    assert text.count("w 1") >= 4
    page = groups_of_stream(store, message.stream.key)
    assert [one["consumer"] for one in page["partitions"]] == ["w 1"] * 4
    assert sum(one["length"] for one in page["partitions"]) == 20
    loop.close()
    assert [stream.groups[0].partition.consumer for stream in orders.stats().streams] == [None] * 4  # type: ignore
    assert "none" in "\n".join(report("here", orders.stats()))


def test_epochs(orders: PartitionedStream[Any]) -> None:
    group = orders.group("billing")
    group.create()
    orders.repartition(2)
    group.create()
    states = [one.partition.state for stream in orders.stats().streams for one in stream.groups if one.partition]
    assert sorted(states) == ["current"] * 4 + ["later"] * 2
    for message in group.consumer("one").messages(stop_when_empty=True):
        message.ack()
    states = [one.partition.state for stream in orders.stats().streams for one in stream.groups if one.partition]
    assert sorted(states) == ["current"] * 2 + ["done"] * 4


def test_another_stream_with_such_a_key(store: Store) -> None:
    store.stream("a:1:2:{3}").add({"n": 1})
    store.stream("a:1:2:{3}").group("g").create()
    assert store.stats("a:1:2:{3}").streams[0].groups[0].partition is None
    assert groups_of_stream(store, b"a:1:2:{3}")["partitions"] == []
