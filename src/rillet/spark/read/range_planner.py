"""Plans a batch: the last ID that it reads of each stream, and the ranges that each task reads.

    StreamRange   (after, last] of a stream: the unread entries
    SizedRange    a range with its number of entries: exact if the server can provide it, else estimated (splits.py)
    Batch         the last ID to read of each stream, given maxEntriesPerTrigger; tasks of about equal size

Sources of the number of entries in a range, the cheapest first:

    the whole stream          XLEN
    since an earlier offset   entries-added now, less entries-added at the offset
    a rillet server           RILLET.XRANK: exact, O(log n)
    a short stream            one XRANGE that covers it
    any other range           an estimate from sample entries (probes); XLEN is exact, so only the fraction is estimated

A batch also states how many entries it leaves unread, as an interval that contains the true number: the unread entries,
less those that the batch takes. Both are exact unless an estimate chose the end of the batch (or the counters do not
determine the unread entries, see entry_counts.py). The counting happens later than XINFO. So after counting, the
planner reads the counters again. If entries were removed meanwhile, the interval allows for them.

The end of a batch of at most maxEntriesPerTrigger entries: a rillet server returns it exactly (RILLET.XAFTER). For
other servers, the planner counts entries if the limit is small (SMALL) or `exactTriggers` is set, which transfers all
entries of the batch to the driver. With a larger limit, the end is estimated. If hardly more entries are unread than
the limit (REST), such a batch takes them all: otherwise the errors of the estimates would often leave a few entries for
a trigger of their own. The cuts between tasks are estimates, except on rillet servers; they only affect how evenly the
tasks are loaded.

The cost of a trigger does not depend on the length of the stream: SAMPLES probes per stream, then at most
TRIGGER_ROUNDS - 1 rounds with TRIGGER_PROBES more, a few milliseconds in all. A batch read is planned once, so it may
use more probes.

A planner keeps no state between two calls: after a restart it plans the same batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rillet.client.servers import Servers
from rillet.spark.option_types import EARLIEST, before
from rillet.spark.options import Options
from rillet.spark.read.entry_counts import Counted, CountInterval
from rillet.spark.read.metadata import ProbeRequest, count_ahead, ids_after, may_rank, probe, ranks
from rillet.spark.read.offsets import Task, identifier
from rillet.spark.read.splits import (
    MIN_TASK_ENTRIES,
    PROBE,
    Estimate,
    SplitBoundaries,
    capped,
    line,
    located,
    tasks,
)
from rillet.spark.read.stream_info import StreamInfo, stream_infos
from rillet.types.stream.id import StreamID

SMALL = 4000  # In a batch of up to this many entries, the planner counts them to find the end.
FEW = 128  # Up to this many entries of a stream are counted: sampling would cost as much.
SHORT = 256  # One XRANGE counts the entries of a stream up to this length.
REST = 0.02  # A batch with an estimated end takes the rest too, if it is at most this share of the cap.
SAMPLES = 48  # Maximum sampling requests in the first round: per stream; three times as many in all.
TRIGGER_ROUNDS, TRIGGER_PROBES = 6, 96
BATCH_ROUNDS, BATCH_PROBES = 4, 8192


@dataclass(frozen=True)
class StreamRange:
    """The range of IDs (after, last] to read of a stream, with the stream's counters."""

    stream: str
    after: StreamID
    last: StreamID
    info: StreamInfo
    counted: Counted | None = None  # the counters at `after`

    @property
    def empty(self) -> bool:
        """Return whether the range certainly contains no entries."""
        return self.info.first is None or self.last < self.info.first or self.last <= self.after

    @property
    def low(self) -> StreamID:
        """Return the ID before the first unread entry: `after`, or the ID just before the stream's first entry."""
        return max(self.after, self.floor)

    @property
    def behind(self) -> CountInterval:
        """Return how many entries the stream has after `after`, also beyond `last`."""
        return (self.counted or Counted(self.after)).behind(self.info)

    @property
    def floor(self) -> StreamID:
        """Return the ID just before the stream's first entry."""
        first = self.info.first or EARLIEST
        return before(first) if first > EARLIEST else first


@dataclass
class SizedRange:
    """A stream's range with its number of entries; the batch reads the first `wanted` entries, up to the ID `end`."""

    span: StreamRange
    count: float
    sure: bool = True  # whether `count` is exact
    wanted: float = 0.0
    end: StreamID = EARLIEST
    taken: int | None = None  # the number of entries up to `end`, if it was counted
    estimate: Estimate | None = None

    def ids(self, positions: Sequence[float]) -> list[StreamID]:
        """Return, for each n in `positions` (ascending), the estimated ID of the range's n-th entry."""
        assert self.estimate is not None
        scale = self.estimate.count() / self.count  # `count` may be exact; estimate.count() is not
        return located(self.estimate.inside(), [position * scale for position in positions])


@dataclass(frozen=True)
class Left:
    """The entries of a stream that a batch does not read: an interval that contains their number, and an estimate."""

    entries: CountInterval
    estimate: float


@dataclass(frozen=True)
class Batch:
    """A planned batch: the last ID that it reads of each stream, its tasks, and the entries that it leaves unread."""

    ends: dict[str, StreamID]
    tasks: tuple[Task, ...]
    left: dict[str, Left]


class Planner:
    """Plans batches; `parallelism` is the number of tasks unless the option minPartitions sets it."""

    def __init__(self, options: Options, servers: Servers, parallelism: int, hurried: bool) -> None:
        self.options = options
        self.servers = servers
        self.parallelism = parallelism
        self.probes = TRIGGER_PROBES if hurried else BATCH_PROBES
        self.rounds = TRIGGER_ROUNDS if hurried else BATCH_ROUNDS
        self.ranked = False  # whether the servers support RILLET.XRANK

    # ---- numbers of entries ----

    def measure(self, ranges: Sequence[StreamRange]) -> list[SizedRange]:
        """Return the ranges that contain entries, with their numbers of entries, ordered by their first unread IDs."""
        ranges = sorted((span for span in ranges if not span.empty), key=lambda span: (span.low, span.stream))
        exact = None
        if ranges and may_rank(self.servers, ranges[0].stream):
            exact = ranks(self.servers, {span.stream: (span.low, span.last) for span in ranges})
        self.ranked = exact is not None
        if exact is not None:
            sized = [SizedRange(span, float(exact[span.stream][1] - exact[span.stream][0])) for span in ranges]
        else:
            sized = self._measure_by_probing(ranges)
        return [one for one in sized if one.count > 0]

    def _measure_by_probing(self, ranges: Sequence[StreamRange]) -> list[SizedRange]:
        sized = [SizedRange(span, *_counted_entries(span)) for span in ranges]
        unknown = [one for one in sized if one.count < 0]
        short = [one for one in unknown if one.span.info.length <= SHORT and not one.span.info.large]
        pages = [ProbeRequest(one.span.stream, one.span.low, one.span.last, one.span.info.length) for one in short]
        for one, page in zip(short, probe(self.servers, pages), strict=True):
            one.count, one.sure = float(page.entries), True
        estimated = [one for one in unknown if one.count < 0]
        self._first_probes(estimated)
        for one in estimated:
            assert one.estimate is not None
            one.count, one.sure = one.estimate.count(), False
        return sized

    # ---- estimates from sample entries ----

    def _first_probes(self, sized: Sequence[SizedRange]) -> None:
        """Estimate the distribution of entries in each range that has no estimate yet."""
        sized = [one for one in sized if one.estimate is None]
        samples = max(2, min(SAMPLES, 3 * SAMPLES // max(len(sized), 1)))
        requests = []
        for one in sized:
            span = one.span
            one.estimate = Estimate(span.floor, span.low, span.last, span.info.last, span.info.length)
            if span.info.large:
                one.estimate.spread()
            else:
                requests.append((one, one.estimate.first_cells(samples)))
        self._probe(requests)

    def _probe(self, requests: Sequence[tuple[SizedRange, list[tuple[int, int]]]]) -> None:
        """Read sample entries in cells (sections of the ID space) of several streams, with one pipeline per node."""
        pages = [
            ProbeRequest(one.span.stream, identifier(start), identifier(end), PROBE)
            for one, cells in requests
            for start, end in cells
        ]
        tops = [page._replace(entries=1, backwards=True) for page in pages]
        found = probe(self.servers, [*pages, *tops])
        probes = [
            first._replace(top=top.last if top.entries else None)
            for first, top in zip(found[: len(pages)], found[len(pages) :], strict=True)
        ]
        place = 0
        for one, cells in requests:
            assert one.estimate is not None
            one.estimate.add_probes(cells, probes[place : place + len(cells)])
            place += len(cells)

    def _refine(self, sized: Sequence[tuple[SizedRange, list[tuple[float, float]]]]) -> None:
        """Read more sample entries near the cuts between tasks (splits.py), within the planner's limit of requests."""
        self._first_probes([one for one, _ in sized])
        for _ in range(self.rounds - 1):
            left = self.probes
            again = []
            for one, positions in sized:
                assert one.estimate is not None
                scale = one.estimate.count() / one.count
                scaled = [(position * scale, grain * scale) for position, grain in positions]
                cells = [] if one.span.info.large else one.estimate.refine(scaled, left)
                left -= len(cells)
                if cells:
                    again.append((one, cells))
            if not again:
                return
            self._probe(again)

    # ---- the end of a batch and its tasks ----

    def cut(self, sized: Sequence[SizedRange], cap: int | None) -> Batch:
        """Return a batch with all entries of the ranges, or with the first `cap` entries of them."""
        if cap is not None and self._is_last(sized, cap):
            cap = None
        shares = None if cap is None else capped({one.span.stream: one.count for one in sized}, cap)
        taken = sorted(
            (one for one in sized if shares is None or one.span.stream in shares), key=lambda one: one.span.stream
        )
        for one in taken:
            one.wanted = one.count if shares is None else min(one.count, float(shares[one.span.stream]))
            one.end = one.span.last
        total = sum(one.wanted for one in taken)
        parts = self._parts(total, taken)
        boundaries = line([one.wanted for one in taken], parts) if taken else []
        if cap is not None:
            self._find_ends(taken, boundaries, total / parts, cap / max(total, 1.0))
        cuts = self._cut_ids(taken, boundaries, total / parts)
        ranges = [(one.span.stream, one.span.low, one.end) for one in taken]
        ends = {one.span.stream: one.end for one in taken}
        if self.options.partitioned_stream is not None:  # one task for each partition keeps its order
            return Batch(ends, tuple((span,) for span in ranges if span[1] < span[2]), self._left(taken))
        return Batch(ends, tuple(tasks(ranges, boundaries, cuts)), self._left(taken))

    def _is_last(self, sized: Sequence[SizedRange], cap: int) -> bool:
        """Return whether a batch whose end would be estimated takes all entries, because there are hardly more."""
        if self.ranked or self.options.exact_triggers or cap <= SMALL:
            return False
        return cap < sum(one.count for one in sized) <= cap * (1 + REST)

    def _left(self, taken: Sequence[SizedRange]) -> dict[str, Left]:
        """Return how many entries of each stream follow the end of the batch."""
        left = {}
        partly = []
        for one in taken:
            if one.end >= one.span.info.last:
                left[one.span.stream] = Left(CountInterval.exactly(0), 0.0)
            else:
                partly.append(one)
        if not partly:
            return left
        exact = None
        if self.ranked:
            exact = ranks(self.servers, {one.span.stream: (one.end, one.span.info.last) for one in partly})
        now = stream_infos(self.servers, (one.span.stream for one in partly))
        for one in partly:
            stream = one.span.stream
            later = now[stream]
            if exact is not None:
                entries = _left_by_rank(one, exact[stream][1] - exact[stream][0], later)
            else:
                entries = _left_by_counting(one, later)
            left[stream] = Left(entries, max(one.count - (one.wanted if one.taken is None else one.taken), 0.0))
        return left

    def _parts(self, total: float, sized: Sequence[SizedRange]) -> int:
        """Return the number of tasks for a batch of `total` entries."""
        if self.options.min_partitions is not None:
            return self.options.min_partitions
        if any(one.span.info.large for one in sized):
            return self.parallelism
        return max(1, min(self.parallelism, int(total) // MIN_TASK_ENTRIES))

    def _find_ends(
        self, taken: Sequence[SizedRange], boundaries: Sequence[SplitBoundaries], share: float, room: float
    ) -> None:
        """Find the last ID to read of each range that the batch reads in part; also refine the cuts between tasks.

        room: maxEntriesPerTrigger divided by the (estimated) number of unread entries; above 1 if all entries fit.
        """
        total = room * sum(one.wanted for one in taken)
        counting = self.options.exact_triggers or (total <= SMALL and not any(one.span.info.large for one in taken))
        sized = [one for one in taken if one.wanted < one.count or (counting and not one.sure)]
        if not sized:
            return
        requests = [(one.span.stream, one.span.low, int(one.wanted)) for one in sized]
        if self.ranked and (exact := ids_after(self.servers, requests)) is not None:
            for one, end in zip(sized, exact, strict=True):
                one.end = min(end, one.span.last)
                one.taken = int(one.wanted) if end < one.span.last else None
        elif counting:
            self._count_out(sized, room, total <= SMALL)
        else:
            self._count_out([one for one in sized if one.wanted <= FEW], 1.0, True)
            estimated = [
                (one, [*_cut_positions(split, share), (one.wanted, max(one.wanted / 16, PROBE))])
                for one, split in zip(taken, boundaries, strict=True)
                if FEW < one.wanted < one.count
            ]
            self._refine(estimated)
            for one, _ in estimated:
                (one.end,) = one.ids([one.wanted])
            self._snap_to_entries([one for one, _ in estimated])

    def _count_out(self, sized: Sequence[SizedRange], room: float, at_once: bool) -> None:
        """Find the last ID to read of each range by counting its entries."""
        most = [  # at least one entry, even if the estimate is below one
            max(1, int(one.wanted * max(room, 1.0) if one.wanted == one.count else one.wanted)) for one in sized
        ]
        if at_once:
            pages = [
                ProbeRequest(one.span.stream, one.span.low, one.span.last, n)
                for one, n in zip(sized, most, strict=True)
            ]
            for one, page, n in zip(sized, probe(self.servers, pages), most, strict=True):
                one.end = page.last if page.entries >= n else one.span.last
                one.taken = page.entries
            return
        for one, n in zip(sized, most, strict=True):
            span = one.span
            one.end = count_ahead(self.servers, span.stream, span.low, span.last, n, 10 * SMALL)
            one.taken = n if one.end < span.last else None

    def _snap_to_entries(self, sized: Sequence[SizedRange]) -> None:
        """Move each range's estimated end back to the nearest entry; if there is none, to the range's first entry.

        Then the batch is not empty, and a program that trims the stream can keep the entry at the offset (XTRIM MINID).
        """
        ahead = [ProbeRequest(one.span.stream, one.span.low, one.end, 1, True) for one in sized]
        first = [ProbeRequest(one.span.stream, one.span.low, one.span.last, 1) for one in sized]
        probes = probe(self.servers, [*ahead, *first])
        for one, before_end, after_low in zip(sized, probes[: len(sized)], probes[len(sized) :], strict=True):
            one.end = max(before_end.last, after_low.last)

    def _cut_ids(
        self, sized: Sequence[SizedRange], boundaries: Sequence[SplitBoundaries], share: float
    ) -> list[list[StreamID]]:
        """Return, for each range, the IDs at which the range is cut into Spark tasks."""
        requests = [
            (one.span.stream, one.span.low, max(1, round(cut)))
            for one, split in zip(sized, boundaries, strict=True)
            for cut in split.cuts
        ]
        if requests and self.ranked and (exact := ids_after(self.servers, requests)) is not None:
            ids = iter(exact)
            return [[next(ids) for _ in split.cuts] for split in boundaries]
        inner = [
            (one, _cut_positions(split, share))
            for one, split in zip(sized, boundaries, strict=True)
            if split.cuts and (one.estimate is None or one.wanted == one.count)
        ]
        self._refine(inner)
        return [one.ids(split.cuts) if split.cuts else [] for one, split in zip(sized, boundaries, strict=True)]


def _cut_positions(split: SplitBoundaries, share: float) -> list[tuple[float, float]]:
    """Return each cut of a range with the most entries that the cell around the cut may hold: half a task's."""
    return [(cut, max(share / 2, PROBE)) for cut in split.cuts]


def _counted_entries(span: StreamRange) -> tuple[float, bool]:
    """Return the number of entries in a range and whether it is exact; -1 if the stream's counters do not bound it."""
    if span.last < span.info.last:
        return -1.0, False
    behind = span.behind
    if behind.exact:
        return float(behind.most), True
    added = None if span.counted is None else span.counted.added
    return (float(behind.most), False) if added is not None and added.exact else (-1.0, False)


def _left_by_counting(one: SizedRange, later: StreamInfo | None) -> CountInterval:
    """Return how many entries followed the end of a batch when it was planned, from the entries that it takes.

    later: the stream after the counting. Entries removed meanwhile may have been among those before the end.
    """
    span = one.span
    behind = span.behind
    top = int(span.info.top is not None and span.info.top > one.end)
    if later is None or later.removed is None or span.info.removed is None:
        return CountInterval(0, max(behind.most - 1, 0))
    gone = max(later.removed - span.info.removed, 0)
    whole = span.last == span.info.last  # otherwise the entries after `last` were not counted
    if one.taken is not None:
        entries = CountInterval(behind.least - one.taken - gone, behind.most - one.taken)
    elif one.end == span.last and one.sure and not whole:
        entries = CountInterval(behind.least - int(one.count) - gone, behind.most - int(one.count))
    else:
        entries = CountInterval(0, behind.most - int(one.end < span.last))  # an estimated end is moved to an entry
    return entries.within(top, max(behind.most, top))


def _left_by_rank(one: SizedRange, count: int, later: StreamInfo | None) -> CountInterval:
    """Return how many entries followed the end of a batch when it was planned; `count` of them were there later."""
    then = one.span.info
    if later is not None and not later.all_after(one.end) and later.deleted is not None and later.deleted <= one.end:
        return CountInterval.exactly(count)  # neither a trim nor XDEL has removed entries after the end
    if later is None or later.removed is None or then.removed is None:
        return CountInterval(min(count, then.length), then.length)
    return CountInterval(count, count + max(later.removed - then.removed, 0)).within(0, then.length)


def ranges_between(
    infos: Mapping[str, StreamInfo | None], bounds: Mapping[str, tuple[StreamID, StreamID]]
) -> list[StreamRange]:
    """Return, for each stream that exists, the range between the given IDs as a StreamRange."""
    return [
        StreamRange(stream, after, min(last, info.last), info)
        for stream, (after, last) in bounds.items()
        if (info := infos.get(stream)) is not None
    ]
