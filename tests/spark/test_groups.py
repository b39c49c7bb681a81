"""Consumer groups: one that follows the checkpoint, and one that delivers entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from rillet.client.errors import ConnectorError
from rillet.spark.groups.deliverer import DeliveredPage, tasks
from rillet.spark.read.data_loss import DataLoss
from rillet.types.stream.id import StreamID
from tests.cluster import Cluster
from tests.spark.calls import Query, server, stopped  # noqa: F401

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.usefixtures("stopped"), pytest.mark.peer]


@pytest.fixture(scope="module", params=["7.0", "rillet", "newest", "valkey"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Servers of each kind, one after the other."""
    with server(request.param, tmp_path_factory.mktemp(request.param)) as url:
        yield url


@pytest.fixture
def client(place: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(place, decode_responses=True) as connected:
        connected.flushall()
        yield connected


def add(client: Any, numbers: range, stream: str = "events") -> None:
    for n in numbers:
        client.xadd(stream, {"n": n}, id=f"{n}-0")


def group(client: Any, stream: str = "events", name: str = "spark") -> dict[str, Any]:
    return next(one for one in client.xinfo_groups(stream) if one["name"] == name)


def test_a_delivered_batch_keeps_the_size_limits(place: str, client: Any) -> None:
    for n in range(1, 401):
        client.xadd("events", {"n": n, "large": "x" * 200_000}, id=f"{n}-0")
    query = Query(place, group="spark", groupMode="deliver")
    query.plan()
    assert query.read() == list(range(1, 401))
    (task,) = query.reader.partitions(query.checkpoint["committed"], query.checkpoint["planned"])
    sizes = [batch.num_rows for batch in query.reader.read(task)]
    assert max(sizes) <= (32 << 20) // 200_000
    assert len(sizes) == 4


# ---- follow ---------------------------------------------------------------------------------------------------------


def test_a_group_follows_commits_and_its_lag_reaches_zero(place: str, client: Any) -> None:
    add(client, range(1, 11))
    query = Query(place, group="spark")
    assert query.plan()  # the first trigger makes the group where the query starts
    assert (group(client)["last-delivered-id"], group(client)["lag"]) == ("0-0", 10)
    query.read()
    query.commit()
    add(client, range(11, 16))
    query.plan()
    told = group(client)
    assert (told["last-delivered-id"], told["entries-read"], told["lag"], told["pending"]) == ("10-0", 10, 5, 0)
    query.read()
    query.commit()
    assert query.batch() == []  # as after the last batch of an available-now query
    assert (group(client)["last-delivered-id"], group(client)["lag"]) == ("15-0", 0)


def test_a_group_that_is_ahead_stays_there_until_a_restart(place: str, client: Any) -> None:
    add(client, range(1, 11))
    query = Query(place, group="spark")
    query.batch()
    query.batch()
    old = dict(query.checkpoint)
    add(client, range(11, 21))
    query.batch()
    query.batch()
    client.xgroup_setid("events", "spark", "30-0")
    add(client, range(21, 23))
    query.batch()
    query.batch()
    assert group(client)["last-delivered-id"] == "30-0"
    again = Query(place, old, group="spark")  # an older checkpoint: what it reads again is lag
    again.plan()
    assert (group(client)["last-delivered-id"], group(client)["lag"]) == ("10-0", 12)


def test_many_streams_of_a_cluster_have_their_group(cluster: Cluster) -> None:
    from redis.cluster import RedisCluster

    with RedisCluster.from_url(cluster.url.replace("redis+cluster", "redis"), decode_responses=True) as client:
        for name in ("a", "b", "c"):
            add(client, range(1, 4), name)
        query = Query(cluster.url, streams="a,b,c", group="spark")
        assert sorted(query.batch()) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
        query.batch()
        for name in ("a", "b", "c"):
            told = next(iter(client.xinfo_groups(name)))
            assert (told["last-delivered-id"], told["lag"]) == ("3-0", 0)


# ---- deliver ---------------------------------------------------------------------------------------------------------


def delivered(place: str, **options: str) -> Query:
    return Query(place, None, group="g", groupMode="deliver", pageEntries="4", batchEntries="3", **options)


def test_entries_are_delivered_shared_and_acknowledged(place: str, client: Any) -> None:
    add(client, range(1, 11))
    query = delivered(place, maxEntriesPerTrigger="6")
    assert query.plan()
    assert query.read() == [1, 2, 3, 4, 5, 6]
    ((_, other),) = client.xreadgroup("g", "other", {"events": ">"}, count=3)
    assert [entry[0] for entry in other] == ["7-0", "8-0", "9-0"]
    query.commit()
    assert client.xpending("events", "g")["pending"] == 9  # nothing is acknowledged before the next trigger
    assert query.batch() == [10]
    assert query.batch() == []
    assert client.xpending("events", "g")["consumers"] == [{"name": "other", "pending": 3}]
    add(client, range(11, 13))
    assert query.batch() == [11, 12]


def test_a_checkpoint_of_other_streams_is_rejected(place: str, client: Any) -> None:
    add(client, range(1, 4), "a:1")
    query = Query(place, None, streamPattern="a:*", group="g", groupMode="deliver")
    assert query.batch() == [1, 2, 3]
    with pytest.raises(ConnectorError, match="belongs to the stream 'a:1', but the query reads streams that match 'b:"):
        query.restarted(streamPattern="b:*").batch()


def test_a_repeated_batch_has_the_same_entries(place: str, client: Any) -> None:
    add(client, range(1, 21))
    query = delivered(place, maxEntriesPerTrigger="7")
    query.batch()
    query.plan()
    client.xreadgroup("g", "other", {"events": ">"}, count=2)
    first = query.read()
    again = query.restarted()  # the driver ended between reading and the sink's commit
    assert again.read() == first == list(range(8, 15))
    again.commit()
    assert again.batch() == [17, 18, 19, 20]


@pytest.mark.parametrize("started", [True, False])
def test_entries_delivered_but_never_planned_come_first(place: str, client: Any, started: bool) -> None:
    add(client, range(1, 13))
    query = delivered(place)
    if started:
        client.xgroup_create("events", "g", "0")
        client.xreadgroup("g", "spark", {"events": ">"}, count=2)
        query.plan()
        query.checkpoint.pop("planned")  # it was given to us, and the driver ended before it was written down
    else:
        client.xgroup_create("events", "g", "0")
        client.xreadgroup("g", "spark", {"events": ">"}, count=5)
        query.checkpoint.clear()  # not even a start was
    client.xreadgroup("g", "other", {"events": ">"}, count=1)
    again = query.restarted(maxEntriesPerTrigger="5")
    found = [n for _ in range(4) for n in again.batch()]
    assert found == (list(range(1, 13)) if started else [*range(1, 6), *range(7, 13)])
    again.batch()
    assert client.xpending("events", "g")["pending"] == (0 if started else 1)


def test_entries_deleted_after_delivery_are_lost(place: str, client: Any) -> None:
    add(client, range(1, 11))
    query = delivered(place)
    query.plan()
    client.xdel("events", "2-0", "3-0")
    with pytest.raises(DataLoss, match="were? lost .*delivered from the stream 'events' .* and then deleted"):
        query.read()
    counting = query.restarted(failOnDataLoss="false")
    assert counting.read() == [1, *range(4, 11)]
    counting.checkpoint.pop("planned")
    counting = counting.restarted()
    assert counting.batch() == [1, *range(4, 11)]
    assert counting.lost == {"events": 2}


def test_a_deleted_group_is_a_loss(place: str, client: Any) -> None:
    add(client, range(1, 4))
    query = delivered(place)
    query.batch()
    client.xgroup_destroy("events", "g")
    with pytest.raises(DataLoss, match="the group 'g' of the stream 'events' at 127.0.0.1:.* is gone"):
        query.batch()
    counting = query.restarted(failOnDataLoss="false")
    assert counting.batch() == [1, 2, 3]
    assert counting.unsure == {"events"}


def test_a_group_that_was_moved_back_is_noticed(place: str, client: Any) -> None:
    add(client, range(1, 4))
    query = delivered(place)
    query.batch()
    client.xgroup_setid("events", "g", "0")
    moved = "of the stream 'events' at .* is at 0-0, although it has delivered .* up to 3-0"
    with pytest.raises(DataLoss, match=moved):
        query.batch()
    counting = query.restarted(failOnDataLoss="false")
    assert counting.batch() == [1, 2, 3]
    assert counting.unsure == {"events"}


def test_pages_become_tasks_of_about_the_same_size() -> None:
    pages = [DeliveredPage("a", StreamID(n, 0), StreamID(n + 1, 0), 1000) for n in range(6)]
    pages.append(DeliveredPage("b", StreamID(0, 0), StreamID(9, 0), 2000))
    assert tasks(pages, 4) == (
        (("a", StreamID(0, 0), StreamID(2, 0)),),
        (("a", StreamID(2, 0), StreamID(4, 0)),),
        (("a", StreamID(4, 0), StreamID(6, 0)),),
        (("b", StreamID(0, 0), StreamID(9, 0)),),
    )
    assert tasks(pages[:1], 4) == ((("a", StreamID(0, 0), StreamID(1, 0)),),)
    assert tasks([], 4) == ()


# ---- in Spark -----------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["deliver", "follow"])
def test_a_query_that_fails_between_delivery_and_commit(
    spark: SparkSession, url: str, tmp_path: Path, mode: str
) -> None:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        add(client, range(1, 101))
        kept: dict[int, list[int]] = {}
        broken = [True]

        def sink(frame: DataFrame, batch: int) -> None:
            found = sorted(row.n for row in frame.collect())
            if broken[0] and batch == 1:
                raise RuntimeError("the sink is down")
            kept[batch] = found

        def run() -> None:
            source = spark.readStream.format("rillet").schema("n long").option("url", url).option("stream", "events")
            frame = source.options(group="g", groupMode=mode, maxEntriesPerTrigger="40").load()
            query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
            query.trigger(availableNow=True).start().awaitTermination()

        with pytest.raises(Exception, match="the sink is down"):
            run()
        broken[0] = False
        run()
        assert sorted(n for found in kept.values() for n in found) == list(range(1, 101))
        told = group(client, name="g")
        assert (told["last-delivered-id"], told["pending"], told["lag"]) == ("100-0", 0, 0)
