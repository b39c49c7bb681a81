"""LagListener: how far streaming queries are behind, as metrics of Prometheus in the driver's process.

    listener = LagListener(port=9400)              # or registry=... of the application
    spark.streams.addListener(listener)

The values are those of the progress that Spark reports after each trigger (metrics.py), for each query that has a
rillet source; `query` is its name, or its ID. A query that ends leaves the metrics. Of a query over many streams, only
the streams that are furthest behind have metrics of their own, because each would be a time series for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from rillet.extras import require
from rillet.spark.metrics import Progress, read_progress

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

MOST_STREAMS = 100


@dataclass(frozen=True)
class _Query:
    """The last progress of a query, and the rows of all its progress."""

    name: str
    last: Progress
    rows: int


class LagListener(StreamingQueryListener):
    """Collects the progress of the queries of a Spark session for Prometheus.

    registry: where the metrics are registered; a registry of the listener's own if there is none. port: serve its
    metrics over HTTP at this port. most_streams: how many streams of a query have metrics of their own, those that are
    furthest behind. Raise MissingExtra without prometheus_client.
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, port: int | None = None, most_streams: int = MOST_STREAMS
    ) -> None:
        require("metrics", "LagListener")
        from prometheus_client import CollectorRegistry, start_http_server

        self.registry = CollectorRegistry() if registry is None else registry
        self.most_streams = most_streams
        self._queries: dict[str, _Query] = {}
        self._lock = threading.Lock()  # Spark calls from its own thread, and so does the HTTP server
        self.registry.register(self)
        self._server: Any = None if port is None else start_http_server(port, registry=self.registry)[0]

    def close(self) -> None:
        """Leave the registry, and end the HTTP server."""
        self.registry.unregister(self)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    # ---- called by Spark ----

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: the first progress has the first values."""

    def onQueryProgress(self, event: Any) -> None:
        """Keep the values of a query with a source of rillet."""
        found = read_progress(event.progress)
        if not found.streams:
            return
        query = str(event.progress.id)
        with self._lock:
            before = self._queries.get(query)
            rows = found.rows + (0 if before is None else before.rows)
            self._queries[query] = _Query(event.progress.name or query, found, rows)

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: the last progress is still right."""

    def onQueryTerminated(self, event: Any) -> None:
        """Forget a query."""
        with self._lock:
            self._queries.pop(str(event.id), None)

    # ---- called by prometheus_client ----

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of all queries."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        with self._lock:
            queries = list(self._queries.values())
        of_query, of_stream = ["query"], ["query", "stream"]
        behind = GaugeMetricFamily("rillet_query_entries_behind", "Entries that are not read yet", labels=of_query)
        most = GaugeMetricFamily(
            "rillet_query_entries_behind_at_most", "Upper bound of the entries that are not read yet", labels=of_query
        )
        streams = GaugeMetricFamily(
            "rillet_query_stream_entries_behind", "Entries of a stream that are not read yet", labels=of_stream
        )
        size = GaugeMetricFamily("rillet_query_bytes_behind", "Approximate size of these entries", labels=of_query)
        age = GaugeMetricFamily(
            "rillet_query_oldest_unread_seconds", "Age of the oldest entry that is not read yet", labels=of_query
        )
        batch = GaugeMetricFamily("rillet_query_batch", "Number of the last batch", labels=of_query)
        lost = CounterMetricFamily(
            "rillet_query_entries_lost", "Entries removed before they were read, at least", labels=of_query
        )
        rows = CounterMetricFamily("rillet_query_rows", "Rows that the query has read", labels=of_query)
        for query in queries:
            last = query.last
            behind.add_metric([query.name], last.entries_behind)
            most.add_metric([query.name], last.entries_behind_between[1])
            size.add_metric([query.name], last.bytes_behind)
            age.add_metric([query.name], (last.oldest_unread_ms or 0) / 1000)
            batch.add_metric([query.name], last.batch)
            lost.add_metric([query.name], sum(last.lost.values()))
            rows.add_metric([query.name], query.rows)
            furthest = sorted(last.behind, key=lambda stream: (-last.behind[stream], stream))
            for stream in furthest[: self.most_streams]:
                streams.add_metric([query.name, stream], last.behind[stream])
        yield from (behind, most, streams, size, age, batch, lost, rows)
