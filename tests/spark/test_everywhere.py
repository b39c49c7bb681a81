"""One suite for every kind of server: redis-server, rillet's server, an embedded store, a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rillet
from rillet import Store
from rillet.spark import history
from rillet.spark.pipelines import archive
from tests.cluster import running_cluster
from tests.judge import redis_binary, running_redis
from tests.server.harness import running
from tests.variants import long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PLACES = ("cluster", *long("store", "redis", "rillet"))  # most other tests read a redis-server, some a store
ENTRIES = 3000
FIRST_MS = 1_700_000_000_000
COLUMNS = "stream string, id string, n long, name string"


@dataclass
class Place:
    """A place, through rillet's own API, and the connector's options that name it."""

    store: Store
    options: dict[str, str]

    def add(self, stream: str, numbers: range) -> None:
        """Append numbered entries, three to a millisecond."""
        self.store.stream(stream).add_many(
            [(f"{FIRST_MS + n // 3}-{n % 3}", {"n": n, "name": f"é{n % 10}"}) for n in numbers]
        )

    def numbers(self, *streams: str) -> list[int]:
        """Return the numbers in streams, in order."""
        return sorted(int(entry["n"]) for stream in streams for entry in self.store.stream(stream))


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Start the place, empty."""
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    folder: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "store":
        with rillet.open(folder / "events.rillet") as store:
            yield Place(store, {"path": str(folder / "events.rillet")})
    elif request.param == "cluster":
        with running_cluster() as cluster, rillet.connect(cluster.url) as store:
            yield Place(store, {"url": cluster.url})
    elif request.param == "redis":
        with running_redis() as server:
            url = f"redis://127.0.0.1:{server.port}"
            with rillet.connect(url) as store:
                yield Place(store, {"url": url})
    else:
        with running(folder) as server_of_ours:
            url = f"redis://127.0.0.1:{server_of_ours.port}"
            with rillet.connect(url) as store:
                yield Place(store, {"url": url})


@pytest.fixture
def empty(place: Place) -> Place:
    """The place without data."""
    place.store.execute("FLUSHALL")
    return place


def follow(spark: SparkSession, place: Place, checkpoint: Path, sink: str, **options: str) -> Any:
    """Run an available-now query from streams a, b, c to its end and return its progress."""
    frame = (
        spark.readStream.format("rillet").schema(COLUMNS)
        .options(**place.options, streamPattern="in:*", maxEntriesPerTrigger="1500").load()
    )  # fmt: skip
    query = (
        frame.writeStream.format(sink).options(**options).option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def test_many_streams_are_one_table(spark: SparkSession, empty: Place) -> None:
    empty.add("in:a", range(ENTRIES))
    for number in range(4):
        empty.add(f"in:{number}", range(number, 40 + number))
    read = spark.read.format("rillet").schema(COLUMNS).options(**empty.options)
    table = read.option("streamPattern", "in:*").load()
    rows = table.groupBy("stream").agg({"n": "sum", "id": "count"}).collect()
    assert {(row["stream"], row["sum(n)"], row["count(id)"]) for row in rows} == {
        ("in:a", sum(range(ENTRIES)), ENTRIES),
        *((f"in:{number}", sum(range(number, 40 + number)), 40) for number in range(4)),
    }
    one = spark.read.format("rillet").schema(COLUMNS).options(**empty.options, streams="in:1,in:a").load()
    one = one.where(f"id = '{FIRST_MS + 900}-1' and stream = 'in:a'")
    assert [tuple(row) for row in one.collect()] == [("in:a", f"{FIRST_MS + 900}-1", 2701, "é1")]


def test_micro_batches_contain_each_entry_once(spark: SparkSession, empty: Place, tmp_path: Path) -> None:
    empty.add("in:a", range(ENTRIES))
    empty.add("in:b", range(ENTRIES, ENTRIES + 100))
    first = follow(spark, empty, tmp_path / "checkpoint", "parquet", path=str(tmp_path / "table"))
    assert len(first) >= 2
    assert sum(progress["numInputRows"] for progress in first) == ENTRIES + 100
    empty.add("in:b", range(ENTRIES + 100, ENTRIES + 200))
    empty.add("in:c", range(ENTRIES + 200, ENTRIES + 300))  # not there before
    follow(spark, empty, tmp_path / "checkpoint", "parquet", path=str(tmp_path / "table"))
    assert follow(spark, empty, tmp_path / "checkpoint", "parquet", path=str(tmp_path / "table")) == []
    found = spark.read.parquet(str(tmp_path / "table"))
    assert sorted(row.n for row in found.select("n").collect()) == list(range(ENTRIES + 300))


def test_written_once_over_restarts(spark: SparkSession, empty: Place, tmp_path: Path) -> None:
    empty.add("in:a", range(ENTRIES))
    write = {**empty.options, "partitioned": "4", "stream": "out", "partitionColumn": "name"}
    follow(spark, empty, tmp_path / "checkpoint", "rillet", **write)
    # Spark has not written down that the last batch is through: it is run again.
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    empty.add("in:a", range(ENTRIES, ENTRIES + 10))
    follow(spark, empty, tmp_path / "checkpoint", "rillet", **write)
    out = [f"out:{number}" for number in range(4)]
    assert empty.numbers(*out) == list(range(ENTRIES + 10))
    names = [{entry["name"] for entry in empty.store.stream(stream)} for stream in out]
    assert sum(map(len, names)) == 10  # a name is in one of the keys
    spark.range(ENTRIES).selectExpr("id as n", "'x' as name").write.format("rillet").mode("append").options(
        **empty.options, stream="batch"
    ).save()
    assert empty.numbers("batch") == list(range(ENTRIES))


def test_archived_trimmed_and_read_as_one_table(spark: SparkSession, empty: Place, tmp_path: Path) -> None:
    empty.add("in:a", range(ENTRIES))
    empty.add("in:b", range(ENTRIES, ENTRIES + 100))
    source: dict[str, Any] = {"streamPattern": "in:*", **empty.options}
    done = archive(spark, tmp_path / "archive", trim=True, **source)
    assert (done.entries, done.trimmed) == (ENTRIES + 100, ENTRIES + 100 - 2)
    assert len(empty.store.stream("in:a")) == 1  # the fence
    empty.add("in:a", range(ENTRIES + 100, ENTRIES + 150))
    table = history(spark, archive=tmp_path / "archive", schema=COLUMNS, **source)
    assert sorted(row.n for row in table.select("n").collect()) == list(range(ENTRIES + 150))
    assert archive(spark, tmp_path / "archive", **source).entries == 50
