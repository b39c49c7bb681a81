"""LagListener shows the progress of queries to Prometheus."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry, generate_latest

import rillet.spark
from rillet.spark.lag_listener import LagListener
from tests import waiting
from tests.judge import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


def progress(query: str, name: str | None, batch: int, rows: int, **values: Any) -> Any:
    """Return an event of a query with one source."""
    text = {"batchId": batch, "numInputRows": rows, "sources": [{"latestOffset": json.dumps(values)}]}
    return SimpleNamespace(progress=SimpleNamespace(id=query, name=name, json=json.dumps(text)))


def samples(registry: CollectorRegistry) -> dict[str, float]:
    """Return the metrics as Prometheus reads them."""
    lines = generate_latest(registry).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_the_values_of_queries() -> None:
    registry = CollectorRegistry()
    listener = LagListener(registry, most_streams=2)
    events = {"streams": {"a": "1-1", "b": "2-1", "c": "3-1"}, "behind": {"a": 5, "b": 0, "c": 90},
              "bytesBehind": 700, "oldestUnreadMs": 1500, "lost": {"a": 3}, "estimated": ["c"],
              "behindBetween": {"c": [80, 120]}}  # fmt: skip
    listener.onQueryProgress(progress("1", "copy", 6, 10, **events))
    listener.onQueryProgress(progress("1", "copy", 7, 20, **events))
    listener.onQueryProgress(progress("2", None, 0, 1, streams={"d": "1-1"}, behind={"d": 0}))
    listener.onQueryProgress(progress("3", "rate", 0, 1))  # no source of rillet
    found = samples(registry)
    assert {name: value for name, value in found.items() if "copy" in name} == {
        'rillet_query_entries_behind{query="copy"}': 95,
        'rillet_query_entries_behind_at_most{query="copy"}': 125,
        'rillet_query_stream_entries_behind{query="copy",stream="a"}': 5,
        'rillet_query_stream_entries_behind{query="copy",stream="c"}': 90,
        'rillet_query_bytes_behind{query="copy"}': 700,
        'rillet_query_oldest_unread_seconds{query="copy"}': 1.5,
        'rillet_query_batch{query="copy"}': 7,
        'rillet_query_entries_lost_total{query="copy"}': 3,
        'rillet_query_rows_total{query="copy"}': 30,
    }
    assert found['rillet_query_entries_behind{query="2"}'] == 0
    assert not [name for name in found if "rate" in name]
    listener.onQueryTerminated(SimpleNamespace(id="1"))
    assert not [name for name in samples(registry) if "copy" in name]
    listener.close()
    assert samples(registry) == {}


@pytest.mark.spark
@pytest.mark.slow
def test_a_query_in_spark(spark: SparkSession, url: str, add: Callable[..., None], tmp_path: Path) -> None:
    add(range(100))
    port = free_port()
    listener = rillet.spark.LagListener(port=port)
    spark.streams.addListener(listener)
    try:
        source = spark.readStream.format("rillet").options(url=url, stream="events", maxEntriesPerTrigger="30")
        writer = source.schema("n long").load().writeStream.format("noop").queryName("counted")
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(processingTime="100 milliseconds").start()

        def scraped() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
                text: bytes = reply.read()
            return text.decode()

        waiting.until(lambda: 'rillet_query_rows_total{query="counted"} 100.0' in scraped(), "the last row")
        assert 'rillet_query_entries_behind{query="counted"} 0.0' in scraped()
        assert 'rillet_query_stream_entries_behind{query="counted",stream="events"} 0.0' in scraped()
        query.stop()
        waiting.until(lambda: "counted" not in scraped(), "the query to leave")
    finally:
        spark.streams.removeListener(listener)
        listener.close()
