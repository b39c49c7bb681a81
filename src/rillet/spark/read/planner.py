"""A batch before it is read: how far it goes in each stream, and which tasks read what.

    spans       what there is to read: (after, last] of each stream
    weighed     how many entries that is: told by counters, exactly where they can; else estimated (shares.py)
    cut         ends of the batch, given a cap; tasks of about equal size

What a weight comes from, the cheapest first:

    the whole stream          XLEN
    since a known offset      entries-added now, less entries-added at the offset
    a rillet engine           RILLET.XRANK: exact, O(log n)
    a short stream            looking at all of it
    anything else             an estimate from probes; the whole is known, so it is only the fraction that is guessed

Where a cap ends a batch: at a rillet engine by RILLET.XAFTER, exactly. Elsewhere a small cap (SMALL) is counted out,
exactly; a larger one is estimated, unless `exactTriggers` asks for counting it out too, which reads as many entries
here as the batch has. The tasks' cuts are always estimates, but for rillet engines: they decide only who reads.

A trigger looks at SAMPLES places of a stream, and no more than twice at TRIGGER_PROBES others; so planning costs some
milliseconds, however long the stream is. A batch read may look longer, since it is planned once.

Nothing here is remembered between two calls: a planner that was restarted plans the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rillet.client.servers import Servers
from rillet.spark.option_types import EARLIEST, before
from rillet.spark.options import Options
from rillet.spark.read.metadata import MetadataPage, count_ahead, glimpses, places, ranking, ranks
from rillet.spark.read.offsets import Task, identifier
from rillet.spark.read.splits import (
    PROBE,
    WORTH_A_TASK,
    Estimate,
    SplitBoundaries,
    capped,
    line,
    located,
    tasks,
)
from rillet.spark.read.stream_info import StreamInfo
from rillet.types.stream.id import StreamID

SMALL = 4000  # entries that are rather counted than estimated
FEW = 128  # entries of one of many streams that are rather counted than estimated: looks cost as much
SHORT = 256  # entries of a stream that is rather looked at as a whole
SAMPLES = 48  # probes of one stream at first, and of all streams three times as many
TRIGGER_LOOKS, TRIGGER_PROBES = 3, 96
BATCH_LOOKS, BATCH_PROBES = 4, 8192


@dataclass(frozen=True)
class StreamRange:
    """What is to be read of a stream, (after, last], and what is known about it."""

    stream: str
    after: StreamID
    last: StreamID
    known: StreamInfo
    added: int | None = None  # entries-added at `after`

    @property
    def empty(self) -> bool:
        """Tell whether certainly nothing is in it."""
        return self.known.first is None or self.last < self.known.first or self.last <= self.after

    @property
    def low(self) -> StreamID:
        """Return the ID behind which its entries begin: `after`, or what is just before the stream's first entry."""
        return max(self.after, self.floor)

    @property
    def floor(self) -> StreamID:
        """Return the ID just before the stream's first entry."""
        first = self.known.first or EARLIEST
        return before(first) if first > EARLIEST else first


@dataclass
class SizedRange:
    """A span and how many entries it holds; `wanted` of them belong to the batch, which ends at `end` then."""

    span: StreamRange
    count: float
    sure: bool = True  # whether there are certainly no more
    wanted: float = 0.0
    end: StreamID = EARLIEST
    estimate: Estimate | None = None

    def ids(self, positions: Sequence[float]) -> list[StreamID]:
        """Return the IDs that so many entries, in rising order, are thought to be before or at."""
        assert self.estimate is not None
        scale = self.estimate.count() / self.count  # counters are more exact than an estimate
        return located(self.estimate.inside(), [position * scale for position in positions])


@dataclass(frozen=True)
class Batch:
    """How far a batch goes in each stream that it reads from, and its tasks."""

    ends: dict[str, StreamID]
    tasks: tuple[Task, ...]


class Planner:
    """Plans batches with the help of the servers; `parallelism` is the number of tasks if options do not say it."""

    def __init__(self, options: Options, servers: Servers, parallelism: int, hurried: bool) -> None:
        self.options = options
        self.servers = servers
        self.parallelism = parallelism
        self.probes = TRIGGER_PROBES if hurried else BATCH_PROBES
        self.looks = TRIGGER_LOOKS if hurried else BATCH_LOOKS
        self.ranked = False  # whether the servers rank exactly; found out by weighing

    # ---- how much there is ----

    def weigh(self, spans: Sequence[StreamRange]) -> list[SizedRange]:
        """Return the spans that may hold entries with how many they hold, those that have waited longest first."""
        spans = sorted((span for span in spans if not span.empty), key=lambda span: (span.low, span.stream))
        exact = None
        if spans and ranking(self.servers, spans[0].stream):
            exact = ranks(self.servers, {span.stream: (span.low, span.last) for span in spans})
        self.ranked = exact is not None
        if exact is not None:
            found = [SizedRange(span, float(exact[span.stream][1] - exact[span.stream][0])) for span in spans]
        else:
            found = self._weigh_by_looking(spans)
        return [one for one in found if one.count > 0]

    def _weigh_by_looking(self, spans: Sequence[StreamRange]) -> list[SizedRange]:
        found = [SizedRange(span, _told(span)) for span in spans]
        unknown = [one for one in found if one.count < 0]
        short = [one for one in unknown if one.span.known.length <= SHORT and not one.span.known.large]
        pages = [MetadataPage(one.span.stream, one.span.low, one.span.last, one.span.known.length) for one in short]
        for one, seen in zip(short, glimpses(self.servers, pages), strict=True):
            one.count = float(seen.entries)
        guessed = [one for one in unknown if one.count < 0]
        self._look_first(guessed)
        for one in guessed:
            assert one.estimate is not None
            one.count, one.sure = one.estimate.count(), False
        return found

    # ---- where the entries lie ----

    def _look_first(self, found: Sequence[SizedRange]) -> None:
        """Make estimates of streams that have none."""
        found = [one for one in found if one.estimate is None]
        samples = max(2, min(SAMPLES, 3 * SAMPLES // max(len(found), 1)))
        asked = []
        for one in found:
            span = one.span
            one.estimate = Estimate(span.floor, span.low, span.last, span.known.last, span.known.length)
            if span.known.large:
                one.estimate.spread()
            else:
                asked.append((one, one.estimate.first_look(samples)))
        self._look(asked)

    def _look(self, asked: Sequence[tuple[SizedRange, list[tuple[int, int]]]]) -> None:
        """Look at cells of several streams at once."""
        pages = [
            MetadataPage(one.span.stream, identifier(start), identifier(end), PROBE)
            for one, cells in asked
            for start, end in cells
        ]
        seen = glimpses(self.servers, pages)
        place = 0
        for one, cells in asked:
            assert one.estimate is not None
            one.estimate.take(cells, seen[place : place + len(cells)])
            place += len(cells)

    def _look_closely(self, found: Sequence[tuple[SizedRange, list[tuple[float, float]]]]) -> None:
        """Make estimates fine enough around positions (shares.py), within what a planner may ask."""
        self._look_first([one for one, _ in found])
        for _ in range(self.looks - 1):
            left = self.probes
            again = []
            for one, positions in found:
                assert one.estimate is not None
                scale = one.estimate.count() / one.count
                scaled = [(position * scale, grain * scale) for position, grain in positions]
                cells = [] if one.span.known.large else one.estimate.look_again(scaled, left)
                left -= len(cells)
                if cells:
                    again.append((one, cells))
            if not again:
                return
            self._look(again)

    # ---- the batch ----

    def cut(self, found: Sequence[SizedRange], cap: int | None) -> Batch:
        """Return the batch of what was weighed, or of the first `cap` entries of it."""
        shares = None if cap is None else capped({one.span.stream: one.count for one in found}, cap)
        taken = sorted(
            (one for one in found if shares is None or one.span.stream in shares), key=lambda one: one.span.stream
        )
        for one in taken:
            one.wanted = one.count if shares is None else min(one.count, float(shares[one.span.stream]))
            one.end = one.span.last
        total = sum(one.wanted for one in taken)
        parts = self._parts(total, taken)
        stretches = line([one.wanted for one in taken], parts) if taken else []
        if cap is not None:
            self._end(taken, stretches, total / parts, cap / max(total, 1.0))
        cuts = self._places(taken, stretches, total / parts)
        ranges = [(one.span.stream, one.span.low, one.end) for one in taken]
        return Batch({one.span.stream: one.end for one in taken}, tuple(tasks(ranges, stretches, cuts)))

    def _parts(self, total: float, found: Sequence[SizedRange]) -> int:
        """Return how many tasks a batch of so many entries gets."""
        if self.options.min_partitions is not None:
            return self.options.min_partitions
        if any(one.span.known.large for one in found):
            return self.parallelism
        return max(1, min(self.parallelism, int(total) // WORTH_A_TASK))

    def _end(
        self, taken: Sequence[SizedRange], stretches: Sequence[SplitBoundaries], share: float, room: float
    ) -> None:
        """Find the ends of streams of which a part is wanted; a look for one is a look for its tasks' cuts, too.

        room: how many times what is wanted fits into the cap; more than once where estimates say that this is all.
        """
        total = room * sum(one.wanted for one in taken)
        counting = self.options.exact_triggers or (total <= SMALL and not any(one.span.known.large for one in taken))
        found = [one for one in taken if one.wanted < one.count or (counting and not one.sure)]
        if not found:
            return
        asked = [(one.span.stream, one.span.low, int(one.wanted)) for one in found]
        if self.ranked and (exact := places(self.servers, asked)) is not None:
            for one, end in zip(found, exact, strict=True):
                one.end = min(end, one.span.last)
        elif counting:
            self._count(found, room, total <= SMALL)
        else:
            self._count([one for one in found if one.wanted <= FEW], 1.0, True)
            guessed = [
                (one, [*_around(stretch, share), (one.wanted, max(one.wanted / 16, PROBE))])
                for one, stretch in zip(taken, stretches, strict=True)
                if FEW < one.wanted < one.count
            ]
            self._look_closely(guessed)
            for one, _ in guessed:
                (one.end,) = one.ids([one.wanted])
            self._settle([one for one, _ in guessed])

    def _count(self, found: Sequence[SizedRange], room: float, at_once: bool) -> None:
        """Find ends by counting entries."""
        most = [  # one at the least, also where an estimate says less than one
            max(1, int(one.wanted * max(room, 1.0) if one.wanted == one.count else one.wanted)) for one in found
        ]
        if at_once:
            pages = [
                MetadataPage(one.span.stream, one.span.low, one.span.last, n)
                for one, n in zip(found, most, strict=True)
            ]
            for one, seen, n in zip(found, glimpses(self.servers, pages), most, strict=True):
                one.end = seen.last if seen.entries >= n else one.span.last
            return
        for one, n in zip(found, most, strict=True):
            span = one.span
            one.end = count_ahead(self.servers, span.stream, span.low, span.last, n, 10 * SMALL)

    def _settle(self, found: Sequence[SizedRange]) -> None:
        """Move guessed ends to the entry there: the one before, or where there is none the first that is to be read.

        An offset at an entry can be kept by whoever trims (XTRIM MINID); and a batch that ends there is not empty.
        """
        ahead = [MetadataPage(one.span.stream, one.span.low, one.end, 1, True) for one in found]
        first = [MetadataPage(one.span.stream, one.span.low, one.span.last, 1) for one in found]
        seen = glimpses(self.servers, [*ahead, *first])
        for one, before_end, after_low in zip(found, seen[: len(found)], seen[len(found) :], strict=True):
            one.end = max(before_end.last, after_low.last)

    def _places(
        self, found: Sequence[SizedRange], stretches: Sequence[SplitBoundaries], share: float
    ) -> list[list[StreamID]]:
        """Return the IDs at which tasks' cuts fall inside the streams."""
        asked = [
            (one.span.stream, one.span.low, max(1, round(cut)))
            for one, stretch in zip(found, stretches, strict=True)
            for cut in stretch.cuts
        ]
        if asked and self.ranked and (exact := places(self.servers, asked)) is not None:
            ids = iter(exact)
            return [[next(ids) for _ in stretch.cuts] for stretch in stretches]
        inner = [
            (one, _around(stretch, share))
            for one, stretch in zip(found, stretches, strict=True)
            if stretch.cuts and (one.estimate is None or one.wanted == one.count)
        ]
        self._look_closely(inner)
        return [one.ids(stretch.cuts) if stretch.cuts else [] for one, stretch in zip(found, stretches, strict=True)]


def _around(stretch: SplitBoundaries, share: float) -> list[tuple[float, float]]:
    """Return the cuts of a stretch as positions to look at: half a task may be hidden around each."""
    return [(cut, max(share / 2, PROBE)) for cut in stretch.cuts]


def _told(span: StreamRange) -> float:
    """Return how many entries a span holds as far as counters tell; -1 where they do not."""
    known = span.known
    if span.last < known.last:
        return -1.0
    if span.after <= span.floor:
        return float(known.length)
    if span.added is not None and known.added is not None and known.added >= span.added:
        return float(min(known.length, max(1, known.added - span.added)))  # XSETID may have set the counter
    return -1.0


def spans_of(
    known: Mapping[str, StreamInfo | None], bounds: Mapping[str, tuple[StreamID, StreamID]]
) -> list[StreamRange]:
    """Return the spans between bounds, of streams that are there."""
    found = []
    for stream, (after, last) in bounds.items():
        facts = known.get(stream)
        if facts is not None:
            found.append(StreamRange(stream, after, min(last, facts.last), facts))
    return found
