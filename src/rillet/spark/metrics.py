"""Adds the number, size and age of a query's unread entries to Spark's progress report.

At each trigger Spark requests a source's newest offset and shows the returned JSON, unchanged, as the source's
`latestOffset`. So the JSON can contain more than the offset:

    {"streams": {"events": "1526919030474-5"},    the newest ID
     "added": {"events": 1123},                   entries ever added
     "behind": {"events": 100},                   unread entries: those after this trigger's batch
     "estimated": ["events"],                     streams whose `behind` is an estimate
     "behindBetween": {"events": [90, 120]},      for these: an interval that contains the true number
     "bytesBehind": 5200,                         approximate size of the unread entries in the server's memory
     "oldestUnreadMs": 350,                       age of the oldest unread entry, by the server's clock
     "lost": {"events": 7},                       entries lost before they were read, since the query started: at least
     "lostAtMost": {"events": 9},                 at most, if this is known and differs from `lost`
     "unsure": ["events"]}                        streams that may have lost more entries than `lost` counts

`behind` is exact if the counters determine it (read/entry_counts.py), or if the server ranks IDs (RILLET.XRANK). The
counters determine it unless an estimated cap has ended a batch, or XDEL has removed entries after the offset.
Otherwise `behind` is an estimate inside `behindBetween`: the planner's, or else one from the IDs, as if the entries
were spread evenly. The interval is wide after an estimated cap, because only counting the entries could narrow it.

The report for a batch is made before the batch runs. So `lostAtMost` allows for entries that were removed while a batch
ran only from the next report on.

`bytesBehind` is MEMORY USAGE in proportion to the unread entries. An age is the server's TIME minus
the milliseconds of an ID, so it is only meaningful if IDs are times. Empty values are left out.

Cost: nothing if all entries are read, because the trigger has already read the counters. Otherwise one pipeline for the
streams with unread entries: MEMORY USAGE, the oldest unread entry (unless it is the stream's first one), and TIME.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.option_types import EARLIEST
from rillet.spark.read.entry_counts import Counted, CountInterval
from rillet.spark.read.metadata import may_rank, ranks
from rillet.spark.read.offsets import Offset, number
from rillet.spark.read.stream_info import StreamInfo
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from rillet.spark.read.data_loss import DataLossGuard


def counted_at(offset: Offset, stream: str) -> Counted:
    """Return what an offset states about a stream; a stream that the offset lacks is unread."""
    if stream not in offset.streams:
        return Counted(EARLIEST)
    added = offset.between.get(stream) if stream not in offset.added else CountInterval.exactly(offset.added[stream])
    return Counted(offset.streams[stream], added, offset.removed.get(stream), offset.deleted.get(stream))


def evenly_spread(after: StreamID, now: StreamInfo) -> float:
    """Return an estimate of the entries after an ID, as if the stream's entries were spread evenly over its IDs."""
    if now.first is None:
        return 0.0
    share = (number(now.last) - number(after)) / max(number(now.last) - number(now.first), 1)
    return now.length * min(max(share, 0.0), 1.0)


def entries_behind(servers: Servers, infos: Mapping[str, StreamInfo], offset: Offset) -> dict[str, CountInterval]:
    """Return, for each stream, an interval that contains the number of its entries after an offset.

    One round trip if a rillet server must rank IDs, else none.
    """
    behind = {stream: counted_at(offset, stream).behind(info) for stream, info in infos.items()}
    asked = {
        stream: (offset.streams[stream], infos[stream].last)
        for stream, entries in behind.items()
        if not entries.exact and may_rank(servers, stream)
    }
    for stream, (after, last) in ((ranks(servers, asked) or {}) if asked else {}).items():
        behind[stream] = CountInterval.exactly(last - after)
    return behind


def report(
    servers: Servers,
    infos: Mapping[str, StreamInfo | None],
    read: Offset,
    estimates: Mapping[str, float],
    guard: DataLossGuard,
) -> dict[str, Any]:
    """Return the metrics for Spark's progress report, from the streams' counters and the offset that is read next.

    estimates: the planner's estimates of the entries after that offset.
    """
    present = {stream: info for stream, info in sorted(infos.items()) if info is not None}
    unread = {stream: info for stream, info in present.items() if info.last > read.streams.get(stream, EARLIEST)}
    intervals = entries_behind(servers, unread, read)
    behind = dict.fromkeys(present, 0)
    for stream, entries in intervals.items():
        after = read.streams.get(stream, EARLIEST)
        estimate = estimates.get(stream)
        behind[stream] = entries.nearest(evenly_spread(after, present[stream]) if estimate is None else estimate)
    values: dict[str, Any] = {
        "streams": {stream: str(info.last) for stream, info in present.items()},
        "added": {stream: info.added for stream, info in present.items() if info.added is not None},
        "behind": behind,
        "estimated": [stream for stream, entries in intervals.items() if not entries.exact],
        "behindBetween": {stream: list(entries) for stream, entries in intervals.items() if not entries.exact},
        "lost": dict(sorted(guard.lost.items())),
        "lostAtMost": dict(sorted(guard.lost_at_most.items())),
        "unsure": sorted(guard.unsure),
        **_unread(
            servers, {stream: present[stream] for stream, entries in behind.items() if entries}, read.streams, behind
        ),
    }
    return {name: value for name, value in values.items() if value or name in ("streams", "behind", "bytesBehind")}


def _unread(
    servers: Servers, infos: Mapping[str, StreamInfo], read: Mapping[str, StreamID], behind: Mapping[str, int]
) -> dict[str, int]:
    """Return size and age of the unread entries as metrics; omit a metric if the server rejects the command for it."""
    keys = {stream.encode(): stream for stream in infos}
    after = {key: read.get(stream, EARLIEST) for key, stream in keys.items()}
    started = [
        key for key, stream in keys.items() if not infos[stream].all_after(after[key])
    ]  # the query has read the first entries of these streams
    nodes = [of_node for _, of_node in servers.by_node(list(keys))]
    replies = iter(servers.each([
        *((key, (b"MEMORY", b"USAGE", key)) for key in keys),
        *((key, (b"XRANGE", key, b"(%d-%d" % after[key], b"+", b"COUNT", b"1")) for key in started),
        *((of_node[0], (b"TIME",)) for of_node in nodes),
    ]))  # fmt: skip
    sizes = 0.0
    for stream, info in infos.items():
        size = next(replies)
        if isinstance(size, int):
            sizes += size * min(behind[stream] / max(info.length, 1), 1.0)
    oldest = {key: infos[stream].first for key, stream in keys.items()}
    for key in started:
        entries = next(replies)
        readable = bool(entries) and not isinstance(entries, ReplyError)
        oldest[key] = StreamID.parse(entries[0][0]) if readable else None
    ages = []
    for of_node in nodes:
        clock = next(replies)
        if not isinstance(clock, ReplyError):
            now = int(clock[0]) * 1000 + int(clock[1]) // 1000
            ages += [max(now - one.ms, 0) for key in of_node if (one := oldest[key]) is not None]
    return {"bytesBehind": round(sizes), **({"oldestUnreadMs": max(ages)} if ages else {})}


@dataclass(frozen=True)
class Progress:
    """The metrics that the rillet sources of a query have added to its last progress."""

    batch: int
    rows: int  # Spark's numInputRows: the rows of all sources of the query
    streams: dict[str, str] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    estimated: tuple[str, ...] = ()
    lost: dict[str, int] = field(default_factory=dict)
    unsure: tuple[str, ...] = ()
    bytes_behind: int = 0
    oldest_unread_ms: int | None = None
    behind_between: dict[str, tuple[int, int]] = field(default_factory=dict)
    lost_at_most: dict[str, int] = field(default_factory=dict)

    @property
    def entries_behind(self) -> int:
        """The number of unread entries in all streams; an estimate if `estimated` names a stream."""
        return sum(self.behind.values())

    @property
    def entries_behind_between(self) -> tuple[int, int]:
        """Two bounds of the number of unread entries in all streams; equal if the number is exact."""
        bounds = [self.behind_between.get(stream, (entries, entries)) for stream, entries in self.behind.items()]
        return sum(least for least, _ in bounds), sum(most for _, most in bounds)


def progress(query: StreamingQuery) -> Progress | None:
    """Return the progress of a streaming query; None before the end of its first trigger."""
    last: Any = query.lastProgress
    return None if last is None else read_progress(last)


def lost_batches(query: StreamingQuery | str, **options: str) -> int:
    """Return how many committed batches a query's sink has lost and counted, since the query began.

    query: a streaming query or its ID. options: those that name the sink's server, such as `url`.
    """
    from rillet.spark.options import parse
    from rillet.spark.write.query_record import QueryRecord

    with Servers(parse(options)) as servers:
        return QueryRecord(servers, query if isinstance(query, str) else str(query.id)).lost_batches()


def _offset(text: str) -> Any:
    """Return a source's offset; None before Spark 4.2, which reports an offset without metrics as a Python text."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def read_progress(last: Any) -> Progress:
    """Parse a query's progress, from lastProgress or a StreamingQueryListener; skip sources other than rillet."""
    report = last if isinstance(last, Mapping) else json.loads(last.json)
    offsets = [source.get("latestOffset") for source in report.get("sources", ())]
    parsed = [_offset(offset) if isinstance(offset, str) else offset for offset in offsets]
    newest = [one for one in parsed if isinstance(one, Mapping) and "streams" in one and "behind" in one]

    def merged(name: str) -> dict[str, Any]:
        return {stream: value for one in newest for stream, value in one.get(name, {}).items()}

    def listed(name: str) -> tuple[str, ...]:
        return tuple(stream for one in newest for stream in one.get(name, ()))

    rows = report.get("numInputRows")
    if rows is None:  # over Spark Connect
        rows = sum(source.get("numInputRows") or 0 for source in report.get("sources", ()))
    return Progress(
        report["batchId"], rows, merged("streams"), merged("behind"), listed("estimated"),
        merged("lost"), listed("unsure"), sum(one.get("bytesBehind", 0) for one in newest),
        max((one["oldestUnreadMs"] for one in newest if "oldestUnreadMs" in one), default=None),
        {stream: (least, most) for stream, (least, most) in merged("behindBetween").items()}, merged("lostAtMost"),
    )  # fmt: skip
