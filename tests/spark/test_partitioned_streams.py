"""Partitioned streams of the library, read and written by their name, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

import rillet
from rillet.client.errors import ConnectorError
from rillet.spark.options import OptionError, parse
from rillet.spark.source import BatchReader, StreamingReader
from rillet.store.partitions.layout import partition_of
from tests.spark.writing import batch_writer_of, in_task, table, write

SCHEMA = StructType().add("stream", "string").add("customer", "string").add("n", "long")
Rows = list[tuple[str, int]]


def created(url: str, partitions: int = 4, entries: int = 0) -> rillet.PartitionedStream[Any]:
    orders = rillet.connect(url).partitioned("orders", partitions=partitions, by="customer")
    orders.add_many({"customer": n % 7, "n": n} for n in range(entries))
    assert len(orders) == entries
    return orders


def reader(url: str, **more: str) -> StreamingReader:
    return StreamingReader(parse({"url": url, "partitionedStream": "orders", **more}), SCHEMA, 4)


def rows(batches: Any) -> Rows:
    found: Rows = []
    for batch in batches:
        found += zip(batch.column("customer").to_pylist(), batch.column("n").to_pylist(), strict=True)
    return found


def batches_of(source: StreamingReader, start: dict[str, Any], limit: Any = None) -> tuple[list[list[Rows]], Any]:
    """Read micro-batches until nothing is left; return the rows of each task of each batch, and the last offset."""
    found: list[list[Rows]] = []
    while True:
        end = source.latestOffset(start, limit or ReadAllAvailable())
        if end == start:
            return found, start
        found.append([rows(source.read(part)) for part in source.partitions(start, end)])
        start = end


def in_order(found: list[list[Rows]], entries: int) -> None:
    numbers = [n for batch in found for task in batch for _, n in task]
    assert sorted(numbers) == list(range(entries))
    for customer in range(7):
        mine = [n for batch in found for task in batch for name, n in task if name == str(customer)]
        assert mine == list(range(customer, entries, 7))


def test_one_task_for_each_partition(url: str) -> None:
    created(url, 4, 2000)
    source = BatchReader(parse({"url": url, "partitionedStream": "orders"}), SCHEMA, 16)
    tasks = [rows(source.read(part)) for part in source.partitions()]
    assert len(tasks) == 4
    assert len({customer for task in tasks for customer in {name for name, _ in task}}) == 7
    in_order([tasks], 2000)


@pytest.mark.parametrize("limit", [None, ReadMaxRows(50)])
def test_a_query_reads_the_partitions_of_an_epoch_to_their_end(url: str, limit: Any) -> None:
    orders = created(url, 4, 200)
    orders.repartition(3)
    orders.add_many({"customer": n % 7, "n": n} for n in range(200, 300))
    source = reader(url)
    found, end = batches_of(source, source.initialOffset(), limit)
    in_order(found, 300)
    orders.group("g").create()
    for message in orders.group("g").consumer("w").messages(stop_when_empty=True):
        message.ack()
    assert orders.delete_drained() == 4
    orders.repartition(5)
    orders.add_many({"customer": n % 7, "n": n} for n in range(300, 350))
    more, _ = batches_of(reader(url), end)  # a restart, from a checkpoint with deleted keys
    in_order([*found, *more], 350)


def test_a_query_begins_at_the_end(url: str) -> None:
    orders = created(url, 2, 20)
    orders.repartition(3)
    source = reader(url, startingOffsets="latest")
    start = source.initialOffset()
    orders.add_many({"customer": 1, "n": n} for n in range(3))
    found, _ = batches_of(source, start)
    assert found == [[[("1", 0), ("1", 1), ("1", 2)]]]


def test_an_available_now_query_ends(url: str) -> None:
    orders = created(url, 2, 50)
    orders.repartition(3)
    orders.add_many({"customer": n % 7, "n": n} for n in range(50, 80))
    source = reader(url)
    start = source.initialOffset()
    source.prepareForTriggerAvailableNow()
    orders.add({"customer": 1, "n": 1000})
    found, _ = batches_of(source, start)
    in_order(found, 80)


def test_rows_are_written_to_their_partitions(url: str) -> None:
    orders = created(url)
    some = table(customer=[f"c{n % 11}" for n in range(100)], n=pa.array(range(100), pa.int64()))
    options = {"url": url, "partitionedStream": "orders"}
    for _ in range(2):  # repeated, as after a failure
        assert sum(write(some, options).written.rows.values()) == 100
    entries = list(orders)
    assert len(entries) == 100
    for number, stream in enumerate(orders.partitions()):
        assert all(partition_of(entry["customer"].encode(), 4) == number for entry in stream)
    for customer in range(11):
        mine = [int(entry["n"]) for entry in entries if entry["customer"] == f"c{customer}"]
        assert mine == list(range(customer, 100, 11))
    assert {message["n"] for message in orders.group("g").consumer("w").messages(stop_when_empty=True)} == {
        str(n) for n in range(100)
    }  # fmt: skip


def test_a_map_of_fields_is_written(url: str) -> None:
    orders = created(url)
    pairs = [[("customer", f"c{n}"), ("n", str(n))] for n in range(20)]
    some = pa.table({"fields": pa.array(pairs, pa.map_(pa.string(), pa.string()))})
    write(some, {"url": url, "partitionedStream": "orders"})
    assert sorted(int(entry["n"]) for entry in orders) == list(range(20))
    for number, stream in enumerate(orders.partitions()):
        assert all(partition_of(entry["customer"].encode(), 4) == number for entry in stream)


def test_other_writes(url: str) -> None:
    orders = created(url)
    some = table(customer=["a", "b"], n=[1, 2])
    write(some, {"url": url, "partitionedStream": "orders", "exactlyOnce": "none"})
    writer = batch_writer_of(some, {"url": url, "partitionedStream": "orders"})
    in_task(query="")
    writer.commit([writer.write(iter(some.to_batches()))])
    assert len(orders) == 4


def test_a_write_stops_at_a_change_of_the_number_of_partitions(url: str) -> None:
    orders = created(url)
    some = table(customer=["a", "b"], n=[1, 2])
    writer = batch_writer_of(some, {"url": url, "partitionedStream": "orders"})
    orders.repartition(2)
    in_task()
    with pytest.raises(ConnectorError, match=r"partitions of 'orders' has changed, so .* start the query again"):
        writer.write(iter(some.to_batches()))
    assert len(orders) == 0
    write(some, {"url": url, "partitionedStream": "orders"})
    assert len(orders) == 2


def test_rows_without_the_field(url: str) -> None:
    orders = created(url)
    options = {"url": url, "partitionedStream": "orders"}
    with pytest.raises(OptionError, match="no column becomes the field 'customer', which selects the partition"):
        write(table(n=[1]), options)
    with pytest.raises(ConnectorError, match="a row lacks the field 'customer', which selects its partition"):
        write(table(customer=["a", None], n=[1, 2]), options)
    assert len(orders) == 0


def test_a_missing_stream(url: str) -> None:
    with pytest.raises(ConnectorError, match="there is no partitioned stream 'orders' at"):
        reader(url).initialOffset()
    with pytest.raises(ConnectorError, match="there is no partitioned stream 'orders' at"):
        write(table(customer=["a"]), {"url": url, "partitionedStream": "orders"})


@pytest.mark.parametrize("other", ["stream", "streams", "streamPattern"])
def test_one_selection(other: str) -> None:
    with pytest.raises(OptionError, match=f"give only one of {other} and partitionedStream"):
        parse({"url": "redis://localhost", "partitionedStream": "orders", other: "x"})


@pytest.mark.parametrize("other", ["minPartitions", "group", "streamColumn", "partitionColumn"])
def test_options_that_do_not_fit(other: str) -> None:
    with pytest.raises(OptionError, match=f"give only one of partitionedStream and {other}"):
        parse({"url": "redis://localhost", "partitionedStream": "orders", other: "1"})
