"""Stream IDs as offsets; ranges of them; how a range is shared out among tasks.

An offset is the last ID that was read, so a range is open on the left: (after, last]. IDs only grow, and an
entry that arrives later, in the same millisecond too, has a larger ID than the last one of any earlier
snapshot: nothing is lost between two ranges that share an end.

Redis tells how many entries a stream has, but not how many lie between two IDs. So a range is cut where the
entries are expected to be: SAMPLES evenly spaced probes ask for the next few entries each. A cell whose probe
ran into the next cell holds exactly the entries seen; any other one gets the density of the entries seen.
A cell that seems to hold too much of the whole is probed again in FINER pieces, and so are all cells when the
number of entries is known (the whole stream is read) and most of them stayed unseen. The cuts then give every
task an equal share. A few hundred probes in one round trip are the rule, milliseconds in all.

It decides only who reads how much, never what is read: the ranges are disjoint and cover everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rillet.types.stream_id import MAX, StreamID

SAMPLES = 64
FINER = 16
ROUNDS = 4
MOST_PROBES = 20_000
PROBE = 8
WORTH_A_TASK = 2000  # entries; starting a Python task costs as much as reading that many many times over

Probe = Callable[[Sequence[StreamID]], list[list[StreamID]]]


@dataclass(frozen=True)
class Range:
    """The entries with after < ID <= last."""

    after: StreamID
    last: StreamID


def number(identifier: StreamID) -> int:
    """Return the ID as one number of 128 bits."""
    return identifier.ms << 64 | identifier.seq


def identifier(value: int) -> StreamID:
    """Return the ID of a number of 128 bits."""
    return StreamID(value >> 64, value & MAX)


def successor(bound: StreamID) -> StreamID:
    """Return the next larger ID (t_stream.c, streamIncrID)."""
    return identifier(number(bound) + 1)


@dataclass(frozen=True)
class Cell:
    """A piece of the ID space, (start, end] as numbers, and how many entries it is thought to hold."""

    start: int
    end: int
    load: float


def cells(start: int, end: int, count: int) -> list[tuple[int, int]]:
    """Return the bounds of `count` equal pieces of (start, end], without those that are empty."""
    cuts = [start + (end - start) * i // count for i in range(count + 1)]
    return [(a, b) for a, b in zip(cuts, cuts[1:], strict=False) if a < b]


def load(start: int, end: int, seen: Sequence[int], unit: int) -> float:
    """Estimate the entries in (start, end] from the first IDs after start; `unit` is the least distance between two."""
    inside = [value for value in seen if value <= end]
    if len(inside) < PROBE:
        return float(len(inside))
    return max(float(PROBE), PROBE * ((end - start) / max(inside[-1] - inside[0], unit)))


def split(whole: Range, parts: int, probe: Probe | None, exactly: bool, expected: int | None = None) -> list[Range]:
    """Cut a range into at most `parts` of about equal load; `exactly` keeps even those too small to be worth a task.

    expected: the entries in the range, where that is known.
    """
    low, high = number(whole.after), number(whole.last)
    if high <= low:
        return []
    if parts == 1 or probe is None:
        found = [Cell(a, b, 1.0) for a, b in cells(low, high, parts)]
    else:
        found = _sampled(low, high, parts, probe, expected)
        if not exactly:
            total = max(sum(cell.load for cell in found), expected or 0)
            parts = max(1, min(parts, int(total) // WORTH_A_TASK))
    cuts = _cuts(found, parts)
    return [Range(identifier(a), identifier(b)) for a, b in zip([low, *cuts], [*cuts, high], strict=True) if a < b]


def _sampled(low: int, high: int, parts: int, probe: Probe, expected: int | None) -> list[Cell]:
    """Return cells with their estimated loads, finer where the load is or must be hidden."""
    unit = 1 << 64 if low >> 64 != high >> 64 else 1

    def measured(bounds: Sequence[tuple[int, int]]) -> list[Cell]:
        seen = probe([identifier(start) for start, _ in bounds])
        return [Cell(a, b, load(a, b, list(map(number, ids)), unit)) for (a, b), ids in zip(bounds, seen, strict=True)]

    found = measured(cells(low, high, SAMPLES))
    probes = SAMPLES
    for _ in range(ROUNDS):
        total = sum(cell.load for cell in found)
        hidden = expected is not None and total < expected / 2 and len(found) * FINER * PROBE < expected
        heavy = {cell for cell in found if hidden or cell.load > max(total / (4 * parts), WORTH_A_TASK)}
        probes += FINER * len(heavy)
        if not heavy or probes > MOST_PROBES:
            break
        finer = iter(
            measured([piece for cell in found if cell in heavy for piece in cells(cell.start, cell.end, FINER)])
        )
        found = [piece for cell in found for piece in (_pieces(cell, finer) if cell in heavy else [cell])]
    return found


def _pieces(cell: Cell, finer: Iterator[Cell]) -> list[Cell]:
    """Take the cells that make up `cell` from the front of the iterator."""
    taken = [next(finer)]
    while taken[-1].end < cell.end:
        taken.append(next(finer))
    return taken


def _cuts(found: Sequence[Cell], parts: int) -> list[int]:
    """Return parts - 1 IDs between which the cells' loads are about equal, evenly spread inside a cell."""
    share = sum(cell.load for cell in found) / parts
    cuts: list[int] = []
    passed = 0.0
    for cell in found:
        while len(cuts) < parts - 1 and cell.load and passed + cell.load >= share * (len(cuts) + 1):
            part = (share * (len(cuts) + 1) - passed) / cell.load
            cuts.append(min(cell.end, cell.start + int((cell.end - cell.start) * part)))
        passed += cell.load
    return cuts
