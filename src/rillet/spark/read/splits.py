"""How entries are shared: a trigger's cap among streams, a batch's ranges among tasks. Arithmetic only, no server.

Redis tells how many entries a stream has, but not how many lie between two IDs. So an `Estimate` cuts the space of IDs
into cells, looks at the first few entries (PROBE) behind the start of each, and guesses:

    ├────cell────┼────cell────┼────cell────┼────cell────┤
    x.x..x.xx.x  xxxxxxxx                               x
    seen: dense  seen: denser  the entries seen lie beyond the cell: it holds exactly those inside (here none)

A cell whose probe ran into the next one is known exactly; any other gets the density of the entries seen, and all of
those are scaled so that the whole adds up to XLEN, which is exact. Scaling is what makes the guess good where entries
come in bursts: each probe is wrong there, and all are wrong by about the same factor. A cell in which a cut falls and
that holds too much for a good cut is looked at again in pieces, up to FINER of them.

`line` then lays the ranges of all streams end to end and cuts the line into equal tasks: one huge stream becomes many
tasks, many small ones become one, and at most one range more is made than there are tasks. A cut that falls near the
border of two streams is moved there.

    |----- events -----|-- a --|- b -|-- c --|---------- orders ----------|
    |     task    |      task     |     task      |     task     |   task  |

It decides only who reads how much, never what is read: the ranges are disjoint and cover everything.

Rejected: paging through the entries to count them (0.7 s for a million; `exactTriggers` asks for it), and a script
(it blocks the server for as long).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rillet.spark.read.offsets import Part, Task, identifier, number
from rillet.types.stream.id import StreamID

PROBE = 8
FINER = 16
WORTH_A_TASK = 2000  # entries; starting a Python task costs as much as reading that many many times over
TYPICAL = 4  # as many times as dense as the median a cell is at the most, if it is like the others
NEAR = 0.1  # of a task: as near to the border of two streams a cut is moved there


class Cell(NamedTuple):
    """A piece of the ID space, (start, end] as numbers, and how many entries it is thought to hold."""

    start: int
    end: int
    load: float
    exact: bool = False


class Probe(NamedTuple):
    """What a look at a page showed: how many entries, and the first and the last of their IDs if there were any."""

    entries: int
    first: StreamID
    last: StreamID


def cells(start: int, end: int, count: int) -> list[tuple[int, int]]:
    """Return the bounds of `count` equal pieces of (start, end], without those that are empty."""
    cuts = [start + (end - start) * i // count for i in range(count + 1)]
    return [(a, b) for a, b in zip(cuts, cuts[1:], strict=False) if a < b]


class Estimate:
    """Where the entries of a stream lie, as far as probes tell; the part that matters is (after, last]."""

    def __init__(self, first: StreamID, after: StreamID, last: StreamID, end: StreamID, entries: int) -> None:
        """`first` is just below the stream's first entry, `end` its last ID, `entries` its length."""
        self.entries = entries
        self.low, self.high = number(after), number(last)
        self.cells: list[Cell] = []
        self._raw: list[Cell] = []  # the same, before they were scaled
        self._edges = [(number(first), self.low), (self.low, self.high), (self.high, number(end))]
        self._unit = 1 << 64 if self.low >> 64 != self.high >> 64 else 1

    def first_look(self, samples: int) -> list[tuple[int, int]]:
        """Return the cells to probe first: most of them inside, some outside so that the whole is known."""
        some = max(1, samples // 4)
        counts = (some, samples, some)
        return [cell for (a, b), n in zip(self._edges, counts, strict=True) if a < b for cell in cells(a, b, n)]

    def look_again(self, positions: Sequence[tuple[float, float]], most: int) -> list[tuple[int, int]]:
        """Return finer cells, at most so many, for those in which a position falls that hold too much for it.

        A position is a number of entries from the beginning, and how many a cell may hold around it; they rise. Where
        most entries are hidden from the probes, all cells hold too much.
        """
        hidden = sum(cell.load for cell in self._raw) < self.entries / 2
        chosen: list[tuple[int, int]] = []
        passed, place = 0.0, 0
        for cell in self.cells:
            inside = self.low <= cell.start < self.high
            pieces = FINER if hidden else 0
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

    def take(self, bounds: Sequence[tuple[int, int]], seen: Sequence[Probe]) -> None:
        """Take what the probes of some cells saw; they replace the coarser cells that they are pieces of."""
        coarse = {cell.start: cell for cell in self._raw}
        usual = TYPICAL * self._median_density()
        done: list[Cell] = []
        pieces: list[Cell] = []
        for (start, end), found in zip(bounds, seen, strict=True):
            pieces.append(self._measured(start, end, found))
            parent = coarse.get(pieces[0].start)
            if parent is None or end == parent.end:
                done += pieces if parent is None else _as_heavy(pieces, parent, usual)
                coarse.pop(pieces[0].start, None)
                pieces = []
        self._raw = sorted([*coarse.values(), *done])
        self.cells = self._scaled()

    def _median_density(self) -> float:
        found = sorted(cell.load / (cell.end - cell.start) for cell in self._raw if not cell.exact)
        return found[len(found) // 2] if found else 0.0

    def _measured(self, start: int, end: int, seen: Probe) -> Cell:
        if seen.entries < PROBE:
            return Cell(start, end, float(seen.entries), True)
        return Cell(start, end, PROBE * ((end - start) / max(number(seen.last) - number(seen.first), self._unit)))

    def _scaled(self) -> list[Cell]:
        """Return the cells with the guessed ones scaled so that all add up to the stream's length."""
        exact = sum(cell.load for cell in self._raw if cell.exact)
        guessed = sum(cell.load for cell in self._raw if not cell.exact)
        factor = max(self.entries - exact, 0) / guessed if guessed else 1.0
        return [
            cell if cell.exact else Cell(cell.start, cell.end, max(float(PROBE), cell.load * factor))
            for cell in self._raw
        ]

    def spread(self) -> None:
        """Take the entries to lie evenly over the whole, without any look."""
        whole = sum(b - a for a, b in self._edges) or 1
        self._raw = [Cell(a, b, self.entries * (b - a) / whole) for a, b in self._edges if a < b]
        self.cells = self._raw

    def inside(self) -> list[Cell]:
        """Return the cells of the part that matters."""
        return [cell for cell in self.cells if self.low <= cell.start < self.high]

    def count(self) -> float:
        """Return how many entries the part that matters is thought to hold."""
        return sum(cell.load for cell in self.inside())


def _as_heavy(pieces: Sequence[Cell], parent: Cell, usual: float) -> Sequence[Cell]:
    """Return the pieces of a cell, made as heavy together as it was if they seem much too light.

    They tell more than the cell did. But where entries come in bursts, small cells are guessed with another error than
    large ones, and only cells of one size can be compared; then the cell was right, unless it was denser than `usual`.
    """
    exact = sum(cell.load for cell in pieces if cell.exact)
    guessed = sum(cell.load for cell in pieces if not cell.exact)
    rest = parent.load - exact
    if not 0 < guessed < rest / 2 or parent.load > usual * (parent.end - parent.start):
        return pieces
    return [cell if cell.exact else Cell(cell.start, cell.end, cell.load * rest / guessed) for cell in pieces]


def located(found: Sequence[Cell], positions: Sequence[float]) -> list[StreamID]:
    """Return the IDs that so many entries, in rising order, are thought to be before or at."""
    ids: list[StreamID] = []
    passed = 0.0
    for cell in found:
        while len(ids) < len(positions) and cell.load and passed + cell.load >= positions[len(ids)]:
            part = (positions[len(ids)] - passed) / cell.load
            ids.append(identifier(min(cell.end, cell.start + int((cell.end - cell.start) * part))))
        passed += cell.load
    return ids + [identifier(found[-1].end)] * (len(positions) - len(ids))


def capped(waiting: Mapping[str, float], cap: int) -> dict[str, int]:
    """Return how many entries of each stream belong to a batch of `cap`: in proportion to what waits.

    `waiting` has the streams that have waited longest first: each gets one entry as long as the cap lasts, so that a
    busy stream does not keep a quiet one from being read.
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
    """One stream's piece of the line: where cuts fall inside it, and whether a task ends with it."""

    cuts: list[float]
    ends: bool


def line(weights: Sequence[float], parts: int) -> list[SplitBoundaries]:
    """Cut ranges of these weights, laid end to end, into `parts` equal tasks."""
    weights = weights if sum(weights) > 0 else [1.0] * len(weights)
    share = sum(weights) / parts
    found = [SplitBoundaries([], False) for _ in weights]
    begin = 0.0
    border = 1
    for place, weight in enumerate(weights):
        end = begin + weight
        while border < parts and (share * border <= end or place == len(weights) - 1):
            cut = share * border
            border += 1
            if min(cut - begin, end - cut) > NEAR * share:
                found[place].cuts.append(cut - begin)
            elif cut - begin > end - cut:
                found[place] = replace(found[place], ends=True)
            elif place:
                found[place - 1] = replace(found[place - 1], ends=True)
        begin = end
    return found


def tasks(
    ranges: Sequence[Part], stretches: Sequence[SplitBoundaries], cuts: Sequence[Sequence[StreamID]]
) -> list[Task]:
    """Return the tasks of a line: the ranges, cut at these IDs; none is empty."""
    done: list[list[Part]] = [[]]
    for (stream, after, last), stretch, inner in zip(ranges, stretches, cuts, strict=True):
        for cut in inner:
            if after < cut < last:
                done[-1].append((stream, after, cut))
                after = cut
            done.append([])
        if after < last:
            done[-1].append((stream, after, last))
        if stretch.ends:
            done.append([])
    return [tuple(task) for task in done if task]
