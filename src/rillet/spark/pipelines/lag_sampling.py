"""Samples of group lag: the rows that the command `lag` prints or writes to Parquet, one per group and sample.

For a sample, the command sends XINFO STREAM and XINFO GROUPS for each stream, and XINFO CONSUMERS and XPENDING for each
group. It reads up to `most_pending` pending entries with the lowest IDs (`pending_seen` is the number read), so the
cost is bounded even if millions of entries are pending. All times are from the server's clock (TIME).

    lag            undelivered entries, from XINFO or from the ranks of a rillet server; null if the server cannot count
                   them, and before Redis 7.0
    lag_least ...  two bounds of the undelivered entries, always available (read/entry_counts.py); equal to `lag` if it
    lag_most       is known
    behind_ms      time between the last delivered ID and the newest ID; from the stream's first entry if the group
                   has received nothing; always available
    age_p50_ms ... time since the last delivery of the pending entries: quantiles and maximum
    oldest_ms      age of the oldest pending entry

`Samples` writes one Parquet file per minute, in folders by date. A file has a hidden name until it is complete. If a
server does not answer, that sample is missing, an error line is printed, and sampling continues.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rillet.client.errors import ConnectionLost
from rillet.client.servers import Servers
from rillet.real_time import monotonic
from rillet.spark.options import Options
from rillet.spark.pipelines.group_info import (
    PAGE,
    milliseconds,
    pending_pages,
    shown,
    streams_of,
    xinfo_consumers,
    xinfo_groups,
    xinfo_stream,
)
from rillet.spark.pipelines.tables import NOTHING
from rillet.spark.read.entry_counts import Counted, CountInterval
from rillet.spark.read.metadata import may_rank, ranks
from rillet.spark.read.stream_info import StreamInfo
from rillet.types.stream.id import StreamID

MOST_PENDING = 100_000
FLUSH = 60.0  # One Parquet file holds the samples of this many seconds.
_MAX_LONG = (1 << 63) - 1  # An ID's milliseconds may exceed the largest Parquet long.

_LONGS = (
    "length", "entries_added", "entries_read", "lag", "lag_least", "lag_most", "behind_ms", "pending", "pending_seen",
    "age_p50_ms", "age_p90_ms", "age_p99_ms", "age_max_ms", "oldest_ms", "redelivered", "deliveries_max",
)  # fmt: skip


def schema() -> Any:
    """Return the Arrow schema of a sample of group lag."""
    import pyarrow as pa

    consumer = [("name", pa.string()), *((name, pa.int64()) for name in ("pending", "idle_ms", "inactive_ms"))]
    return pa.schema([
        ("sampled", pa.timestamp("us", tz="UTC")), ("stream", pa.string()), ("group", pa.string()),
        ("last_generated_id", pa.string()), ("last_delivered_id", pa.string()),
        *((name, pa.int64()) for name in _LONGS), ("consumers", pa.list_(pa.struct(consumer))),
    ])  # fmt: skip


def sample(servers: Servers, keys: Sequence[bytes], most_pending: int = MOST_PENDING) -> list[dict[str, Any]]:
    """Return a sample: one row for each group of the streams that exist. O(groups + pending entries read)"""
    return [row for key in keys for row in _stream_rows(servers, key, most_pending)]


def _stream_rows(servers: Servers, key: bytes, most_pending: int) -> Iterator[dict[str, Any]]:
    stream = xinfo_stream(servers, key)
    if stream is None:
        return
    for group in xinfo_groups(servers, key):
        name: bytes = group["name"]
        (clock,) = servers.calls(key, [(b"TIME",)])
        now = milliseconds(clock)
        newest, last = StreamID.parse(stream["last-generated-id"]), StreamID.parse(group["last-delivered-id"])
        first = stream["first-entry"]  # a group that has received nothing is behind from here on
        since = last if first is None else max(last, StreamID.parse(first[0]))
        yield {
            "sampled": now * 1000,
            "stream": shown(key),
            "group": shown(name),
            "last_generated_id": str(newest),
            "last_delivered_id": str(last),
            "length": stream["length"],
            "entries_added": stream.get("entries-added"),
            "entries_read": group.get("entries-read"),
            **_lag_columns(servers, key, stream, group),
            "behind_ms": min(max(newest.ms - since.ms, 0), _MAX_LONG) if newest > last and first is not None else 0,
            "pending": group["pending"],
            "consumers": [_consumer(one) for one in xinfo_consumers(servers, key, name)],
            **_pending_columns(servers, key, name, now, most_pending),
        }


def _lag_columns(servers: Servers, key: bytes, stream: dict[str, Any], group: dict[str, Any]) -> dict[str, int | None]:
    """Return the group's undelivered entries: their number, if the server can count them, and two bounds of it."""
    lag = group.get("lag")
    if lag is not None:
        return {"lag": lag, "lag_least": lag, "lag_most": lag}
    info = StreamInfo.from_reply(stream)
    last = StreamID.parse(group["last-delivered-id"])
    bounds = Counted(last).behind(info)
    name = key.decode(errors="replace")
    if not bounds.exact and name.encode() == key and may_rank(servers, name):
        if exact := ranks(servers, {name: (last, info.last)}):
            bounds = CountInterval.exactly(exact[name][1] - exact[name][0])
    return {"lag": bounds.least if bounds.exact else None, "lag_least": bounds.least, "lag_most": bounds.most}


def _consumer(info: dict[str, Any]) -> dict[str, Any]:
    inactive = info.get("inactive", -1)  # missing before Redis 7.2; -1: never active
    return {
        "name": shown(info["name"]),
        "pending": info["pending"],
        "idle_ms": info["idle"],
        "inactive_ms": None if inactive < 0 else inactive,
    }


def _pending_columns(servers: Servers, key: bytes, group: bytes, now: int, most: int) -> dict[str, int | None]:
    ages: list[int] = []
    read = redelivered = deliveries = 0
    oldest = None
    for page in pending_pages(servers, key, group, page=min(PAGE, most)):
        if oldest is None:
            oldest = max(now - page[0].id.ms, 0)
        for one in page[: most - read]:
            read += 1
            if one.consumer:  # no consumer owns an entry that XNACK released
                ages.append(max(now - one.delivered, 0))
            redelivered += one.deliveries > 1
            deliveries = max(deliveries, one.deliveries)
        if read >= most:
            break
    ages.sort()
    quantiles = {f"age_p{part}_ms": _quantile(ages, part) for part in (50, 90, 99)}
    return {
        "pending_seen": read, **quantiles, "age_max_ms": ages[-1] if ages else None, "oldest_ms": oldest,
        "redelivered": redelivered, "deliveries_max": deliveries if read else None,
    }  # fmt: skip


def _quantile(ordered: list[int], percent: int) -> int | None:
    """Return the smallest value that `percent` of the values do not exceed (nearest rank)."""
    return ordered[math.ceil(len(ordered) * percent / 100) - 1] if ordered else None


# -- writing samples to files ----------------------------------------------------------------------------------------


class Samples:
    """A buffer of rows that are written to Parquet files, one per minute and date."""

    def __init__(self, place: Path, flush: float = FLUSH) -> None:
        self.place = place
        self.flush_after = flush
        self.rows: list[dict[str, Any]] = []
        self.files = 0
        self._since = 0.0

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Add the rows of a sample; write a file if the buffer covers a minute."""
        if rows and not self.rows:
            self._since = monotonic()
        self.rows += rows
        if self.rows and monotonic() - self._since >= self.flush_after:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows, in folders by the date of the server's clock."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        by_date: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows:
            by_date.setdefault(f"{datetime.fromtimestamp(row['sampled'] / 1e6, timezone.utc):%Y-%m-%d}", []).append(row)
        for date, rows in by_date.items():
            where = self.place / f"date={date}"
            where.mkdir(parents=True, exist_ok=True)
            name = f"lag-{rows[0]['sampled'] // 1000}-{os.getpid()}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, schema=schema()), where / f".{name}")
            os.replace(where / f".{name}", where / name)
            self.files += 1
        self.rows = []


def watch(
    options: Options, every: float, lasting: float | None, samples: Samples | None, stopped: threading.Event,
    most_pending: int = MOST_PENDING, show: Any = None, each_round: AbstractContextManager[Any] = NOTHING,
) -> tuple[int, int, list[dict[str, Any]]]:  # fmt: skip
    """Sample for `lasting` seconds or until `stopped` is set; return (samples, failures, rows of the last sample)."""
    began = monotonic()
    total = None if lasting is None else max(math.ceil(lasting / every), 1)
    taken = missed = 0
    last: list[dict[str, Any]] = []
    with Servers(options) as servers:
        while True:
            try:
                with each_round:
                    last = sample(servers, streams_of(servers, options), most_pending)
                    taken += 1
                    if samples is not None:
                        samples.add(last)
            except ConnectionLost as error:
                if not taken and not missed:  # the first sample failed: the address is wrong
                    raise
                missed += 1
                print(
                    f"rillet: a sample failed, sampling continues: {str(error).removeprefix('rillet: ')}",
                    file=sys.stderr,
                )
            if show is not None:
                show(taken, total)
            due = began + (taken + missed) * every
            if taken + missed == total or stopped.wait(max(due - monotonic(), 0)):
                break
    if samples is not None and samples.rows:
        samples.flush()
    return taken, missed, last
