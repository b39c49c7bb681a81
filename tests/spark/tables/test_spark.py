"""Tables through Spark itself; test_places.py has every kind of place without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rillet
from rillet.client import key_scan
from rillet.client.servers import Servers
from rillet.spark import enrich, foreach_batch, read_keys, reason
from rillet.spark.table_options import parse_table
from tests.cluster import running_cluster
from tests.judge import redis_binary, running_redis
from tests.server.harness import running
from tests.variants import long

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROWS = 8300  # enough for two parts of a single server
assert ROWS >= 2 * key_scan.KEYS_PER_POSITION


@pytest.fixture(scope="module", params=["redis", *long("rillet", "store", "cluster")])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Start a server and yield the connector's options that name it."""
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    folder: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "redis":
        with running_redis() as judge:
            yield {"url": f"redis://127.0.0.1:{judge.port}"}
    elif request.param == "rillet":
        with running(folder) as server:
            yield {"url": f"redis://127.0.0.1:{server.port}"}
    elif request.param == "store":
        with rillet.open(folder / "tables.rillet"):
            yield {"path": str(folder / "tables.rillet")}
    else:
        with running_cluster() as cluster:
            yield {"url": cluster.url}


def call(place: dict[str, Any], *words: str | bytes) -> Any:
    """Send one command to the place; its second word is the key."""
    packed = [word if isinstance(word, bytes) else word.encode() for word in words]
    with Servers(parse_table({**place, "type": "hash", "keyPrefix": "x"})) as servers:
        return servers.call(packed[1], *packed)


def written(frame: DataFrame, place: dict[str, Any], mode: str = "append", **options: str) -> None:
    frame.write.format("rillet").mode(mode).options(**place, **options).save()


def table(spark: SparkSession, place: dict[str, Any], schema: str = "", **options: str) -> DataFrame:
    reader = spark.read.format("rillet").options(**place, **options)
    return (reader.schema(schema) if schema else reader).load()


USERS = "id bigint, name string, score double, born date"


def users(spark: SparkSession, count: int = ROWS) -> DataFrame:
    return spark.range(count).selectExpr("id", "concat('name ', id) name", "id / 4 score",
                                         "date_add(date'2000-01-01', cast(id % 1000 as int)) born")  # fmt: skip


def test_hashes_there_and_back(spark: SparkSession, place: dict[str, Any]) -> None:
    written(users(spark), place, type="hash", keyColumn="id", keyPrefix="user:", ttl="1h")
    read = table(spark, place, USERS, type="hash", keyColumn="id", keyPrefix="user:")
    assert read.rdd.getNumPartitions() >= 2
    found = [tuple(row) for row in read.collect()]
    assert sorted(found) == [tuple(row) for row in users(spark).collect()]
    assert 3000 < call(place, "TTL", "user:7") <= 3600


@pytest.mark.long
def test_key_lists_inference_and_overwrite(spark: SparkSession, place: dict[str, Any]) -> None:
    written(users(spark), place, type="hash", keyColumn="id", keyPrefix="user:", ttl="1h")
    # The keys of a DataFrame; keys that do not exist have no rows.
    some = spark.createDataFrame([(5,), (6,), (5,), (ROWS + 1,)], "n int")
    buyers = read_keys(some, "user:{n}", schema="key string, score double", **place)
    assert sorted(map(tuple, buyers.collect())) == [("user:5", 1.25), ("user:6", 1.5)]
    inferred = table(spark, place, type="hash", keys="user:5,user:6", inferSchema="true", keyColumn="id")
    assert inferred.schema.simpleString() == "struct<id:string,name:string,score:double,born:date>"
    # overwrite replaces the table.
    written(users(spark, 3), place, "overwrite", type="hash", keyColumn="id", keyPrefix="user:")
    again = table(spark, place, USERS, type="hash", keyColumn="id", keyPrefix="user:")
    assert sorted(row.id for row in again.collect()) == [0, 1, 2]
    assert call(place, "TTL", "user:1") == -1


@pytest.mark.long
def test_other_types_there_and_back(spark: SparkSession, place: dict[str, Any]) -> None:
    pairs = spark.range(100).selectExpr("concat('k', id % 7) key", "concat('v', id) value", "cast(id as double) score")
    for kind, columns in (("string", "key, value"), ("set", "key, value member"), ("list", "key, value"),
                          ("zset", "key, value member, score")):  # fmt: skip
        frame = pairs.where("score < 7") if kind == "string" else pairs
        written(frame.selectExpr(*columns.split(", ")), place, type=kind, keyPrefix=f"{kind}:")
        read = table(spark, place, type=kind, keyPattern=f"{kind}:*", keyPrefix=f"{kind}:")
        expected = frame.selectExpr(*columns.split(", "))
        found = read.drop("index")
        assert found.exceptAll(expected).count() == expected.exceptAll(found).count() == 0, kind
    lists = table(spark, place, type="list", keyPattern="list:*")
    assert lists.where("key = 'list:k3'").selectExpr("max(index)").collect()[0][0] == 13
    written(spark.createDataFrame([("k1", "v", 1.0)], "key string, member string, score double"), place, "overwrite",
            type="zset", keyPrefix="zset:")  # fmt: skip
    assert [tuple(row) for row in table(spark, place, type="zset", keyPrefix="zset:").collect()] == [("k1", "v", 1.0)]


def test_a_stream_is_enriched_and_counted_once(spark: SparkSession, place: dict[str, Any], tmp_path: Path) -> None:
    tiers = spark.createDataFrame([(n, f"tier {n}", n) for n in range(5)], "id int, name string, level int")
    written(tiers, place, type="hash", keyColumn="id", keyPrefix="tier:")
    events = spark.range(60).selectExpr("id % 6 tier", "1 n")
    rows = enrich(events, "tier:{tier}", "name string, level int", prefix="tier_", **place)
    assert rows.columns == ["tier", "n", "tier_name", "tier_level"]
    assert {tuple(row) for row in rows.distinct().collect()} == {
        *((n, 1, f"tier {n}", n) for n in range(5)), (5, 1, None, None)
    }  # fmt: skip
    written(events.where("tier < 3"), place, stream="events:{s}")

    def run() -> None:
        source = spark.readStream.format("rillet").schema("tier int, n int").options(**place, stream="events:{s}")
        enriched = enrich(source.load(), "tier:{tier}", ["name"], **place)
        counts = enriched.groupBy("name").agg({"n": "sum"}).selectExpr("name", "`sum(n)` events")
        upsert = foreach_batch(type="hash", keyColumn="name", keyPrefix="count:", **place)
        add = foreach_batch("sums", type="hash", keyColumn="name", keyPrefix="sum:", addColumns="events", **place)

        def both(batch: DataFrame, number: int) -> None:
            upsert(batch, number)
            add(batch, number)

        query = (counts.writeStream.outputMode("update").foreachBatch(both).trigger(availableNow=True)
                 .option("checkpointLocation", str(tmp_path / "c")).start())  # fmt: skip
        query.awaitTermination()

    run()
    for file in (tmp_path / "c" / "commits").glob("*0*"):  # Spark repeats the batch
        file.unlink()
    for file in (tmp_path / "c" / "commits").glob(".*0*"):
        file.unlink()
    run()
    written(spark.createDataFrame([(1, 5)], "tier int, n int"), place, stream="events:{s}")
    run()
    counts = table(spark, place, "key string, events int", type="hash", keyPrefix="count:")
    assert {tuple(row) for row in counts.collect()} == {("tier 0", 10), ("tier 1", 15), ("tier 2", 10)}
    sums = table(spark, place, "key string, events int", type="hash", keyPrefix="sum:")
    assert {tuple(row) for row in sums.collect()} == {("tier 0", 10), ("tier 1", 25), ("tier 2", 10)}


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_a_repeated_batch_has_the_same_tasks(spark: SparkSession, place: dict[str, Any]) -> None:
    """Adaptive execution merges partitions by the number of cores, which changes when an executor is lost."""
    small = {
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1b",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "500b",
    }
    before = {name: spark.conf.get(name, None) for name in small}
    cores = spark.sparkContext._jsc.sc().conf()
    counts = spark.range(400).selectExpr("concat('', id % 40) key", "1 n").groupBy("key").count()
    counts = counts.withColumnRenamed("count", "n")
    last = "pmod(hash(key), 8) = 7"  # the last partition
    broken = counts.selectExpr("key", f"if({last}, cast(raise_error('broken') as bigint), n) n")
    add = foreach_batch("repeated", type="hash", keyPrefix="again:", addColumns="n", **place)
    try:
        for name, value in small.items():
            spark.conf.set(name, value)
        cores.set("spark.default.parallelism", "8")
        with pytest.raises(Exception, match="broken"):
            add(broken, 0)
        assert 1 <= len(call(place, "KEYS", "again:*")) < 40  # some tasks have written
        cores.set("spark.default.parallelism", "1")
        add(counts, 0)
    finally:
        cores.remove("spark.default.parallelism")
        for name, earlier in before.items():
            spark.conf.unset(name) if earlier is None else spark.conf.set(name, earlier)
    assert spark.conf.get("spark.sql.adaptive.coalescePartitions.parallelismFirst") == "true"
    assert [call(place, "HGET", f"again:{n}", "n") for n in range(40)] == [b"10"] * 40


@pytest.mark.long
def test_a_streaming_sink_of_hashes(spark: SparkSession, place: dict[str, Any], tmp_path: Path) -> None:
    written(spark.range(100).selectExpr("id n", "concat('x', id) name"), place, stream="rows:{s}")
    source = spark.readStream.format("rillet").schema("n int, name string").options(**place, stream="rows:{s}").load()
    query = (source.writeStream.format("rillet").options(**place, type="hash", keyColumn="n", keyPrefix="row:")
             .option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start())  # fmt: skip
    query.awaitTermination()
    read = table(spark, place, "key int, name string", type="hash", keyPrefix="row:")
    assert sorted(map(tuple, read.collect())) == [(n, f"x{n}") for n in range(100)]


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_errors_are_one_line(spark: SparkSession, place: dict[str, Any]) -> None:
    frame = spark.createDataFrame([("a", "1")], "key string, value string")
    written(frame, place, type="string", keyPrefix="e:")

    def failure(action: Any) -> str:
        with pytest.raises(Exception) as caught:
            action()
        return reason(caught.value)

    assert "refused to write the list 'e:a': WRONGTYPE" in failure(
        lambda: written(frame, place, type="list", keyPrefix="e:"))  # fmt: skip
    assert "the key 'e:a' at 127.0.0.1:" in failure(lambda: table(spark, place, type="hash", keys="e:a").collect())
    assert "type is 'hashes': expected one of stream, hash" in failure(lambda: table(spark, place, type="hashes"))
    assert "'e:a' already exists" in failure(
        lambda: written(frame, place, type="string", keyPrefix="e:", ifExists="error"))  # fmt: skip
    for mode in ("Ignore", "ErrorIfExists"):  # refused by Spark itself
        assert mode in failure(lambda mode=mode: written(frame, place, mode, type="string"))
    stream = spark.readStream.format("rillet").options(**place, type="hash", keyPattern="e:*").load()
    query = stream.writeStream.format("noop").start()
    assert "only streams can be read by a streaming query" in failure(query.awaitTermination)


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_the_examples_of_the_guide_run(
    spark: SparkSession, place: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The examples check their results; the table that one shows and what is left on the server are compared here."""
    guide = Path(__file__).parents[3] / "docs" / "spark-tables.md"
    with Servers(parse_table({**place, "type": "keys"})) as servers:
        servers.call(b"", b"FLUSHALL")
    names: dict[str, Any] = {"spark": spark}
    for program in re.findall(r"^```python\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(program.replace("redis://localhost:6379", place["url"]), guide.name, "exec"), names)
    shown = re.findall(r"^\| *([\w:]+)\|(\w+)\|", capsys.readouterr().out, re.MULTILINE)
    assert sorted(shown) == [("name", "type"), ("user:1", "hash"), ("user:2", "hash")]
    assert call(place, "HGETALL", "user:1") == [b"name", b"Ada", b"age", b"36"]
    assert call(place, "ZRANGE", "board:week", "0", "-1", "WITHSCORES") == [b"Grace", b"7", b"Ada", b"12.5"]
    assert call(place, "XLEN", "orders") == 4


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_the_examples_for_users_of_spark_redis_run(spark: SparkSession, place: dict[str, Any]) -> None:
    guide = Path(__file__).parents[3] / "docs" / "spark-redis.md"
    python = re.findall(r"^# rillet\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
    (sql,) = re.findall(r"^```sql\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
    assert len(python) == 2
    people = spark.createDataFrame([("1", "Ada", 36), ("2", "Grace", 85)], "id string, name string, age int")
    names: dict[str, Any] = {"spark": spark, "people": people}
    for program in python:
        exec(compile(program.replace("redis://localhost", place["url"]), guide.name, "exec"), names)
    assert names["people"] is not people
    assert sorted(map(tuple, names["people"].collect())) == sorted(map(tuple, people.collect()))
    try:
        for statement in filter(str.strip, sql.replace("redis://localhost", place["url"]).split(";")):
            spark.sql(statement)
        assert spark.sql("SELECT sum(age) FROM person").collect() == [(36 + 85 + 72,)]
    finally:
        spark.catalog.dropTempView("person")
    assert call(place, "HGETALL", "person:3") == [b"name", b"Edsger", b"age", b"72"]
