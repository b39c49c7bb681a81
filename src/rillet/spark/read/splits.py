"""Divides a batch among streams and Spark tasks, by estimates of where entries lie. Arithmetic only; no server access.

Redis returns how many entries a stream has, but not how many lie between two IDs. An `Estimate` therefore divides the
ID space into cells. A probe reads the first entries (PROBE) after the start of a cell, and the last one; the estimate
extrapolates:

    ├────cell────┼────cell────┼────cell────┼────cell────┤
    x.x..x.xx.x  xxxxxxxx                               x
    probe: dense probe: denser the probe ends after the cell: the count inside the cell is exact (here 0)

If a probe reaches the next cell, the cell's count is exact. Every other cell gets the density of its probe, up to its
last entry. These
estimated counts are then scaled so that all cells add up to XLEN, which is exact. Scaling corrects the error of bursty
streams, whose probes are all wrong by about the same factor. If a cut between two tasks falls into a cell with too many
entries for a precise cut, the cell is divided into up to FINER smaller cells, which are probed in turn.

`line` concatenates the ranges of all streams and cuts the result into equal tasks. So a huge stream becomes many tasks,
many small streams become one task, and the cuts add at most one range per task. A cut close to the border between two
streams moves to the border.

    |----- events -----|-- a --|- b -|-- c --|---------- orders ----------|
    |     task    |      task     |     task      |     task     |   task  |

An estimate only affects how much each task reads. The ranges are always disjoint and cover everything.

Rejected: paging through the entries to count them (`exactTriggers` does it on request), and a Lua script (it blocks the
server for longer). docs/design/0019-capped-triggers.md has the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rillet.spark.read.offsets import Part, Task, identifier, number
from rillet.types.stream.id import StreamID

PROBE = 32
FINER = 16
MIN_TASK_ENTRIES = 2000  # Starting a Python task costs much more than reading this many entries.
TYPICAL = 4  # A cell with more than TYPICAL times the median density is an outlier.
NEAR = 0.1  # A cut this close to a stream border (as a fraction of a task) moves to the border.


class Cell(NamedTuple):
    """A section of the ID space, (start, end] as 128-bit numbers, with its exact or estimated number of entries."""

    start: int
    end: int
    load: float
    exact: bool = False


class Probe(NamedTuple):
    """The result of an XRANGE request for sample entries: their number and, if any, their first and last ID.

    top: the last ID of the whole range that was probed, if it was read too.
    """

    entries: int
    first: StreamID
    last: StreamID
    top: StreamID | None = None


def cells(start: int, end: int, count: int) -> list[tuple[int, int]]:
    """Divide the ID range (start, end] into `count` equal cells; return their bounds, without empty cells."""
    cuts = [start + (end - start) * i // count for i in range(count + 1)]
    return [(a, b) for a, b in zip(cuts, cuts[1:], strict=False) if a < b]


class Estimate:
    """The estimated distribution of a stream's entries over its IDs; (after, last] is the range to read."""

    def __init__(self, first: StreamID, after: StreamID, last: StreamID, end: StreamID, entries: int) -> None:
        """first: the ID just before the stream's first entry; end: the stream's last ID; entries: its length."""
        self.entries = entries
        self.low, self.high = number(after), number(last)
        self.cells: list[Cell] = []
        self._raw: list[Cell] = []  # the cells with their unscaled counts
        self._edges = [(number(first), self.low), (self.low, self.high), (self.high, number(end))]
        self._unit = 1 << 64 if self.low >> 64 != self.high >> 64 else 1

    def first_cells(self, samples: int) -> list[tuple[int, int]]:
        """Return cells that cover the whole stream, to probe first; most of them are in the range to read."""
        some = max(1, samples // 4)
        counts = (some, samples, some)
        return [cell for (a, b), n in zip(self._edges, counts, strict=True) if a < b for cell in cells(a, b, n)]

    def refine(self, positions: Sequence[tuple[float, float]], most: int) -> list[tuple[int, int]]:
        """Divide cells that hold too many entries for a precise cut, at it or before; return up to `most` cells.

        positions: for each cut, the number of entries before the cut, and the maximum number of entries in the cell
        around the cut; ascending. If the probes miss most of the entries, all cells are divided.
        """
        hidden = sum(cell.load for cell in self._raw) < self.entries / 2
        chosen: list[tuple[int, int]] = []
        passed, place = 0.0, 0
        for cell in self.cells:
            inside = self.low <= cell.start < self.high
            pieces = FINER if hidden else 0
            if inside and place < len(positions) and cell.load > 2 * positions[place][1]:  # its error moves the cut
                pieces = max(pieces, min(FINER, math.ceil(cell.load / positions[place][1])))
            while inside and place < len(positions) and positions[place][0] <= passed + cell.load:
                grain = positions[place][1]
                if cell.load > grain:
                    pieces = max(pieces, min(FINER, math.ceil(2 * cell.load / grain)))
                place += 1
            if pieces and not cell.exact:
                finer = cells(cell.start, cell.end, pieces)
                if len(chosen) + len(finer) > most:
                    break
                chosen += finer if len(finer) > 1 else []
            passed += cell.load if inside else 0.0
        return chosen

    def add_probes(self, bounds: Sequence[tuple[int, int]], seen: Sequence[Probe]) -> None:
        """Store the results of probing cells; the parts of a divided cell replace that cell."""
        coarse = {cell.start: cell for cell in self._raw}
        usual = TYPICAL * self._median_density()
        done: list[Cell] = []
        pieces: list[Cell] = []
        for (start, end), sized in zip(bounds, seen, strict=True):
            pieces.append(self._measured(start, end, sized))
            parent = coarse.get(pieces[0].start)
            if parent is None or end == parent.end:
                done += pieces if parent is None else _rescaled(pieces, parent, usual)
                coarse.pop(pieces[0].start, None)
                pieces = []
        self._raw = sorted([*coarse.values(), *done])
        self.cells = self._scaled()

    def _median_density(self) -> float:
        sized = sorted(cell.load / (cell.end - cell.start) for cell in self._raw if not cell.exact)
        return sized[len(sized) // 2] if sized else 0.0

    def _measured(self, start: int, end: int, seen: Probe) -> Cell:
        if seen.entries < PROBE:
            return Cell(start, end, float(seen.entries), True)
        first, last = number(seen.first), number(seen.last)
        top = end if seen.top is None else number(seen.top)
        if last - first == PROBE - 1 and top >> 64 == seen.first.ms:  # one burst with numbered entries
            return Cell(start, end, float(top - first + 1), True)
        if last - first < self._unit:  # the probe has seen one burst and not the gaps between bursts
            return Cell(start, end, PROBE * ((end - start) / self._unit))
        return Cell(start, end, max(float(PROBE), 1 + (top - first) * (PROBE - 1) / (last - first)))

    def _scaled(self) -> list[Cell]:
        """Return the cells; scale the estimated counts so that all cells add up to the stream's length."""
        exact = sum(cell.load for cell in self._raw if cell.exact)
        estimated = sum(cell.load for cell in self._raw if not cell.exact)
        factor = max(self.entries - exact, 0) / estimated if estimated else 1.0
        return [
            cell if cell.exact else Cell(cell.start, cell.end, max(float(PROBE), cell.load * factor))
            for cell in self._raw
        ]

    def spread(self) -> None:
        """Estimate without probing, as if the stream's entries were spread evenly over its IDs."""
        whole = sum(b - a for a, b in self._edges) or 1
        self._raw = [Cell(a, b, self.entries * (b - a) / whole) for a, b in self._edges if a < b]
        self.cells = self._raw

    def inside(self) -> list[Cell]:
        """Return the cells (sections of the ID space) in the range to read."""
        return [cell for cell in self.cells if self.low <= cell.start < self.high]

    def count(self) -> float:
        """Return the estimated number of entries in the range to read."""
        return sum(cell.load for cell in self.inside())


def _rescaled(pieces: Sequence[Cell], parent: Cell, usual: float) -> Sequence[Cell]:
    """Return the parts of a divided cell, scaled up if their counts add up to less than half of the cell's count.

    Smaller cells usually give the better estimate. In a bursty stream, however, the error depends on the size of a
    cell, so counts of cells of different sizes do not compare. The larger cell's count is then better, unless its
    density was an outlier (above `usual`).
    """
    exact = sum(cell.load for cell in pieces if cell.exact)
    estimated = sum(cell.load for cell in pieces if not cell.exact)
    rest = parent.load - exact
    if not 0 < estimated < rest / 2 or parent.load > usual * (parent.end - parent.start):
        return pieces
    return [cell if cell.exact else Cell(cell.start, cell.end, cell.load * rest / estimated) for cell in pieces]


def located(sized: Sequence[Cell], positions: Sequence[float]) -> list[StreamID]:
    """Return, for each n in `positions` (ascending), the estimated ID of the n-th entry in the cells."""
    ids: list[StreamID] = []
    passed = 0.0
    for cell in sized:
        while len(ids) < len(positions) and cell.load and passed + cell.load >= positions[len(ids)]:
            part = (positions[len(ids)] - passed) / cell.load
            ids.append(identifier(min(cell.end, cell.start + int((cell.end - cell.start) * part))))
        passed += cell.load
    return ids + [identifier(sized[-1].end)] * (len(positions) - len(ids))


def capped(waiting: Mapping[str, float], cap: int) -> dict[str, int]:
    """Divide a batch of `cap` entries among streams, in proportion to their numbers of unread entries.

    `waiting`: the unread entries of each stream, the stream with the oldest unread entry first. In this order, each
    stream gets at least one entry until `cap` is used up, so a busy stream cannot starve a quiet one.
    """
    total = sum(waiting.values())
    if total <= cap:
        return {stream: math.ceil(count) for stream, count in waiting.items()}
    shares = dict.fromkeys(list(waiting)[:cap], 1)
    left = cap - len(shares)
    rest = {stream: max(waiting[stream] - 1, 0.0) for stream in shares}
    whole = sum(rest.values()) or 1.0
    exact = {stream: left * count / whole for stream, count in rest.items()}
    for stream, share in exact.items():
        shares[stream] += int(share)
    over = cap - sum(shares.values())
    for stream in sorted(exact, key=lambda stream: int(exact[stream]) - exact[stream])[:over]:
        shares[stream] += 1
    return shares


@dataclass(frozen=True)
class SplitBoundaries:
    """The positions at which one stream's range is cut into tasks, and whether a task ends at the range's end."""

    cuts: list[float]
    ends: bool


def line(weights: Sequence[float], parts: int) -> list[SplitBoundaries]:
    """Concatenate ranges with the given numbers of entries and cut the result into `parts` equal tasks."""
    weights = weights if sum(weights) > 0 else [1.0] * len(weights)
    share = sum(weights) / parts
    sized = [SplitBoundaries([], False) for _ in weights]
    begin = 0.0
    border = 1
    for place, weight in enumerate(weights):
        end = begin + weight
        while border < parts and (share * border <= end or place == len(weights) - 1):
            cut = share * border
            border += 1
            if min(cut - begin, end - cut) > NEAR * share:
                sized[place].cuts.append(cut - begin)
            elif cut - begin > end - cut:
                sized[place] = replace(sized[place], ends=True)
            elif place:
                sized[place - 1] = replace(sized[place - 1], ends=True)
        begin = end
    return sized


def tasks(
    ranges: Sequence[Part], boundaries: Sequence[SplitBoundaries], cuts: Sequence[Sequence[StreamID]]
) -> list[Task]:
    """Cut the concatenated ranges into Spark tasks at the given IDs; return the tasks that are not empty."""
    done: list[list[Part]] = [[]]
    for (stream, after, last), split, inner in zip(ranges, boundaries, cuts, strict=True):
        for cut in inner:
            if after < cut < last:
                done[-1].append((stream, after, cut))
                after = cut
            done.append([])
        if after < last:
            done[-1].append((stream, after, last))
        if split.ends:
            done.append([])
    return [tuple(task) for task in done if task]
