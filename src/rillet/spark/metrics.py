"""Adds the number, size and age of a query's unread entries to Spark's progress report.

At each trigger Spark requests a source's newest offset and shows the returned JSON, unchanged, as the source's
`latestOffset`. So the JSON can contain more than the offset:

    {"streams": {"events": "1526919030474-5"},    the newest ID
     "added": {"events": 1123},                   entries ever added
     "behind": {"events": 100},                   unread entries: those after this trigger's batch
     "estimated": ["events"],                     streams whose `behind` is an estimate
     "bytesBehind": 5200,                         approximate size of the unread entries in the server's memory
     "oldestUnreadMs": 350,                       age of the oldest unread entry, by the server's clock
     "lost": {"events": 7},                       entries lost before they were read, since the query started
     "unsure": ["events"]}                        streams that may have lost more entries than `lost` counts

`behind` is exact in three cases: all of the stream's entries are after the offset, no entry is, or the offset has an
exact entries-added and nothing was deleted since. Otherwise `behind` is interpolated from the IDs, as if the entries
were spread evenly. `bytesBehind` is MEMORY USAGE in proportion to the unread entries. An age is the server's TIME minus
the milliseconds of an ID, so it is only meaningful if IDs are times. Empty values are left out.

Cost: nothing if all entries are read, because the trigger has already read the counters. Otherwise one pipeline for the
streams with unread entries: MEMORY USAGE, the oldest unread entry (unless it is the stream's first one), and TIME.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.option_types import EARLIEST
from rillet.spark.read.offsets import number
from rillet.spark.read.stream_info import StreamInfo
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def entries_after(after: StreamID, added: int | None, now: StreamInfo) -> tuple[int, bool]:
    """Return how many entries of a stream are after an ID, and whether that number is exact."""
    if now.first is None or now.last <= after:
        return 0, True
    if now.all_after(after):
        return now.length, True
    if added is not None and now.added is not None and (now.deleted is None or now.deleted <= after):
        return max(now.added - added, 0), True
    share = (number(now.last) - number(after)) / max(number(now.last) - number(now.first), 1)
    return round(now.length * min(share, 1.0)), False


def report(
    servers: Servers,
    infos: Mapping[str, StreamInfo | None],
    read: Mapping[str, StreamID],
    added: Mapping[str, int],
    lost: Mapping[str, int],
    unsure: Sequence[str],
) -> dict[str, Any]:
    """Return the metrics for Spark's progress report, from the streams' counters and the last IDs that were read."""
    present = {stream: info for stream, info in sorted(infos.items()) if info is not None}
    behind: dict[str, int] = {}
    estimated = []
    for stream, info in present.items():
        behind[stream], exact = entries_after(read.get(stream, EARLIEST), added.get(stream), info)
        if not exact:
            estimated.append(stream)
    values: dict[str, Any] = {
        "streams": {stream: str(info.last) for stream, info in present.items()},
        "added": {stream: info.added for stream, info in present.items() if info.added is not None},
        "behind": behind,
        "estimated": estimated,
        "lost": {stream: lost[stream] for stream in sorted(lost)},
        "unsure": sorted(unsure),
        **_unread(servers, {stream: present[stream] for stream, entries in behind.items() if entries}, read, behind),
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

    @property
    def entries_behind(self) -> int:
        """The number of unread entries in all streams."""
        return sum(self.behind.values())


def progress(query: StreamingQuery) -> Progress | None:
    """Return the progress of a streaming query; None before the end of its first trigger."""
    last: Any = query.lastProgress
    return None if last is None else read_progress(last)


def read_progress(last: Any) -> Progress:
    """Parse a query's progress, from lastProgress or a StreamingQueryListener; skip sources other than rillet."""
    report = last if isinstance(last, Mapping) else json.loads(last.json)
    offsets = [source.get("latestOffset") for source in report.get("sources", ())]
    parsed = [json.loads(offset) if isinstance(offset, str) else offset for offset in offsets]
    newest = [one for one in parsed if isinstance(one, Mapping) and "streams" in one and "behind" in one]

    def merged(name: str) -> dict[str, Any]:
        return {stream: value for one in newest for stream, value in one.get(name, {}).items()}

    def listed(name: str) -> tuple[str, ...]:
        return tuple(stream for one in newest for stream in one.get(name, ()))

    return Progress(
        report["batchId"], report["numInputRows"], merged("streams"), merged("behind"), listed("estimated"),
        merged("lost"), listed("unsure"), sum(one.get("bytesBehind", 0) for one in newest),
        max((one["oldestUnreadMs"] for one in newest if "oldestUnreadMs" in one), default=None),
    )  # fmt: skip
