"""How far behind a query is, in Spark's own progress.

Spark asks a source for its newest offset at each trigger and shows the JSON that it answers with as `latestOffset` of
the source, unread. So beside the offset there is room for what an operator asks:

    {"streams": {"events": "1526919030474-5"},    the newest ID
     "added": {"events": 1123},                   entries ever added
     "behind": {"events": 100},                   entries after the batch that this trigger reads
     "estimated": ["events"],                     streams whose `behind` is an estimate
     "bytesBehind": 5200,                         what those entries take in the server's memory, about
     "oldestUnreadMs": 350,                       how long the oldest of them has been there, by the server's clock
     "lost": {"events": 7},                       entries removed before they were read, counted since the query started
     "unsure": ["events"]}                        streams of which more may have been lost than is counted

`behind` is exact where all entries lie after the offset (it is the length), where nothing does, and where the offset
knows how many entries had been added and nothing was removed since; else it is what the IDs suggest, if entries were
spread evenly. Bytes are MEMORY USAGE shared out by entries. Ages are the server's TIME less the milliseconds of an ID,
so they mean something where IDs are times. Names without anything to tell are left out.

Cost: nothing while nothing is behind, since the trigger has seen the streams already; else one pipeline about those
that are: what each takes, its oldest entry unless that is its first one, and the clock of its node.
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
    """Return how many entries lie after an ID, and whether that is exact."""
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
    known: Mapping[str, StreamInfo | None],
    read: Mapping[str, StreamID],
    added: Mapping[str, int],
    lost: Mapping[str, int],
    unsure: Sequence[str],
) -> dict[str, Any]:
    """Return what a query's progress shows, given the streams now and up to where they have been read."""
    there = {stream: facts for stream, facts in sorted(known.items()) if facts is not None}
    waiting: dict[str, int] = {}
    estimated = []
    for stream, facts in there.items():
        waiting[stream], exact = entries_after(read.get(stream, EARLIEST), added.get(stream), facts)
        if not exact:
            estimated.append(stream)
    told: dict[str, Any] = {
        "streams": {stream: str(facts.last) for stream, facts in there.items()},
        "added": {stream: facts.added for stream, facts in there.items() if facts.added is not None},
        "behind": waiting,
        "estimated": estimated,
        "lost": {stream: lost[stream] for stream in sorted(lost)},
        "unsure": sorted(unsure),
        **_unread(servers, {stream: there[stream] for stream, entries in waiting.items() if entries}, read, waiting),
    }
    return {name: value for name, value in told.items() if value or name in ("streams", "behind", "bytesBehind")}


def _unread(
    servers: Servers, known: Mapping[str, StreamInfo], read: Mapping[str, StreamID], waiting: Mapping[str, int]
) -> dict[str, int]:
    """Return the bytes and the age of what is not read yet; what a server does not tell is left out."""
    keys = {stream.encode(): stream for stream in known}
    after = {key: read.get(stream, EARLIEST) for key, stream in keys.items()}
    begun = [key for key, stream in keys.items() if not known[stream].all_after(after[key])]  # its first entry is read
    nodes = [of_node for _, of_node in servers.by_node(list(keys))]
    replies = iter(servers.each([
        *((key, (b"MEMORY", b"USAGE", key)) for key in keys),
        *((key, (b"XRANGE", key, b"(%d-%d" % after[key], b"+", b"COUNT", b"1")) for key in begun),
        *((of_node[0], (b"TIME",)) for of_node in nodes),
    ]))  # fmt: skip
    sizes = 0.0
    for stream, facts in known.items():
        size = next(replies)
        if isinstance(size, int):
            sizes += size * min(waiting[stream] / max(facts.length, 1), 1.0)
    oldest = {key: known[stream].first for key, stream in keys.items()}
    for key in begun:
        entries = next(replies)
        told = bool(entries) and not isinstance(entries, ReplyError)
        oldest[key] = StreamID.parse(entries[0][0]) if told else None
    ages = []
    for of_node in nodes:
        clock = next(replies)
        if not isinstance(clock, ReplyError):
            now = int(clock[0]) * 1000 + int(clock[1]) // 1000
            ages += [max(now - one.ms, 0) for key in of_node if (one := oldest[key]) is not None]
    return {"bytesBehind": round(sizes), **({"oldestUnreadMs": max(ages)} if ages else {})}


@dataclass(frozen=True)
class Progress:
    """What a query's last progress says about its rillet sources."""

    batch: int
    rows: int  # of all the query's sources: numInputRows
    streams: dict[str, str] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    estimated: tuple[str, ...] = ()
    lost: dict[str, int] = field(default_factory=dict)
    unsure: tuple[str, ...] = ()
    bytes_behind: int = 0
    oldest_unread_ms: int | None = None

    @property
    def entries_behind(self) -> int:
        """Return the entries not read yet, of all streams."""
        return sum(self.behind.values())


def progress(query: StreamingQuery) -> Progress | None:
    """Return how far a streaming query is, None before its first trigger has ended."""
    last: Any = query.lastProgress
    return None if last is None else read_progress(last)


def read_progress(last: Any) -> Progress:
    """Read a progress of Spark's, as lastProgress or a listener gives it; sources of other kinds are passed over."""
    told = last if isinstance(last, Mapping) else json.loads(last.json)
    streams: dict[str, str] = {}
    behind: dict[str, int] = {}
    lost: dict[str, int] = {}
    estimated: list[str] = []
    unsure: list[str] = []
    ages: list[int] = []
    size = 0
    for source in told.get("sources", ()):
        newest = source.get("latestOffset")
        if isinstance(newest, str):
            newest = json.loads(newest)
        if not isinstance(newest, Mapping) or "streams" not in newest or "behind" not in newest:
            continue
        streams.update(newest["streams"])
        behind.update(newest["behind"])
        lost.update(newest.get("lost", {}))
        estimated += newest.get("estimated", ())
        unsure += newest.get("unsure", ())
        size += newest.get("bytesBehind", 0)
        ages += [newest["oldestUnreadMs"]] if "oldestUnreadMs" in newest else []
    return Progress(
        told["batchId"], told["numInputRows"], streams, behind, tuple(estimated), lost, tuple(unsure), size,
        max(ages, default=None),
    )  # fmt: skip
