"""Timeline: how many entries a stream has in each part of its time, with holes and trims.

    counts    |  .:||:.   |  ::  |            edges      buckets + 1 times in ms
    exact     True: the counts are exact; False: those of large buckets are estimates from their first entries

A rillet store counts with RILLET.XRANK, O(log nodes) per edge. Other servers have no such command: a stream of up to
EXACT entries is read whole, page by page; of a longer one each bucket's first SAMPLE entries are read, and the rate
between them gives the count. The sum of the estimates is scaled to the length of the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rillet.errors import CommandError
from rillet.store.arguments.encoding import parse_id
from rillet.store.entry import named
from rillet.types.stream.id import MAX, StreamID

if TYPE_CHECKING:
    from rillet.store.stream import Stream

EXACT = 20_000
"""The most entries that are read to count them exactly."""
SAMPLE = 25
_SHORTEST = 1000  # ms of a timeline: one entry has a second around it
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Timeline:
    """Entries of a stream by time.

    edges: times in ms, one more than `counts`. removed: entries that were added and no longer exist; None before Redis
    7.0. trimmed_before: the first ID, if entries before it were removed. max_deleted_id: the greatest ID that was
    deleted or trimmed. exact: whether the counts are.
    """

    edges: list[int]
    counts: list[int]
    exact: bool
    length: int
    first_id: StreamID | None
    last_id: StreamID | None
    removed: int | None
    max_deleted_id: StreamID | None

    @property
    def holes(self) -> list[tuple[int, int]]:
        """The spans of time without entries, as (start, end) in ms; joined, in order."""
        found: list[tuple[int, int]] = []
        for at, count in enumerate(self.counts):
            if count == 0:
                start, end = self.edges[at], self.edges[at + 1]
                if found and found[-1][1] == start:
                    found[-1] = (found[-1][0], end)
                else:
                    found.append((start, end))
        return found

    def rates(self) -> list[float]:
        """Return the entries per second in each bucket."""
        return [
            count * 1000 / max(1, self.edges[at + 1] - self.edges[at]) for at, count in enumerate(self.counts)
        ]  # fmt: skip


def timeline(stream: Stream[Any], buckets: int = 120, start: int | None = None, end: int | None = None) -> Timeline:
    """Return the timeline of a stream between two times in ms, by default of all of it; CommandError if there is none.

    rillet: O(buckets * log nodes). Other servers: O(EXACT), or O(buckets * SAMPLE).
    """
    store, key = stream.store, stream.key
    facts = named(store.run([b"XINFO", b"STREAM", key]))
    first, last = (None if one is None else one.id for one in (facts["first-entry"], facts["last-entry"]))
    deleted = facts.get("max-deleted-entry-id")
    added = facts.get("entries-added")
    length = int(facts["length"])
    about = (length, first, last, None if added is None else max(0, added - length),
             StreamID.parse(deleted) if deleted and deleted != "0-0" else None)  # fmt: skip
    if first is None or last is None:
        return Timeline([0, 1], [0], True, *about)
    low = first.ms if start is None else start
    high = (last.ms if end is None else end) + 1
    edges = _edges(low, max(high, low + (_SHORTEST if end is None else 1)), buckets)
    counts = _ranked(stream, edges)
    if counts is not None:
        return Timeline(edges, counts, True, *about)
    if length <= EXACT:
        return Timeline(edges, _counted(stream, edges), True, *about)
    whole = start is None and end is None
    return Timeline(edges, _estimated(stream, edges, length if whole else None), False, *about)


def _edges(low: int, high: int, buckets: int) -> list[int]:
    buckets = max(1, min(buckets, high - low))
    return [low + (high - low) * at // buckets for at in range(buckets + 1)]


def _ranked(stream: Stream[Any], edges: list[int]) -> list[int] | None:
    """Return exact counts of a rillet store; None from a server that has no RILLET.XRANK."""
    ids = [f"{edge - 1}-{MAX}".encode() if edge else b"0-0" for edge in edges]
    try:
        ranks = stream.store.run([b"RILLET.XRANK", stream.key, *ids])
    except CommandError:
        return None
    return [ranks[at + 1] - ranks[at] for at in range(len(edges) - 1)]


def _counted(stream: Stream[Any], edges: list[int]) -> list[int]:
    counts = [0] * (len(edges) - 1)
    at = 0
    for entry in stream.scan(edges[0], edges[-1] - 1, page=_PAGE):
        while entry.id.ms >= edges[at + 1]:
            at += 1
        counts[at] += 1
    return counts


def _estimated(stream: Stream[Any], edges: list[int], length: int | None) -> list[int]:
    counts = [0.0] * (len(edges) - 1)
    full = set()
    commands = [[b"XRANGE", stream.key, b"%d" % edges[at], b"%d" % (edges[at + 1] - 1), b"COUNT", b"%d" % SAMPLE]
                for at in range(len(counts))]  # fmt: skip
    for at, rows in enumerate(stream.store.run_many(commands)):
        counts[at] = len(rows)
        if len(rows) == SAMPLE:
            seconds = max(1, parse_id(rows[-1][0]).ms - parse_id(rows[0][0]).ms)
            counts[at] = max(SAMPLE, (SAMPLE - 1) * (edges[at + 1] - edges[at]) / seconds)
            full.add(at)
    if length is not None and full:
        known = sum(count for at, count in enumerate(counts) if at not in full)
        scale = max(0.0, length - known) / sum(counts[at] for at in full)
        for at in full:
            counts[at] = max(float(SAMPLE), counts[at] * scale)
    return [round(count) for count in counts]
