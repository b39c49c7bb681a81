"""Stream IDs as offsets; ranges of them; how a range is shared out among tasks.

An offset is the last ID that was read, so a range is open on the left: (after, last]. IDs only grow, and an
entry that arrives later, in the same millisecond too, has a larger ID than the last one of any earlier
snapshot: nothing is lost between two ranges that share an end.

Redis tells how many entries a stream has, but not how many lie between two IDs. So a range is cut where the
entries are expected to be: SAMPLES evenly spaced probes ask for the next few entries each. A cell whose probe
ran into the next cell holds exactly the entries seen; any other one gets the density of the entries seen. The
cuts give every task an equal share of that estimate. It decides only who reads how much, never what is read:
the ranges are disjoint and cover everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rillet.types.stream_id import MAX, StreamID

SAMPLES = 64
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


def even_cuts(low: int, high: int, parts: int) -> list[int]:
    """Return the ends of `parts` equal pieces of (low, high]."""
    return [low + (high - low) * i // parts for i in range(1, parts + 1)]


def weights(low: int, ends: Sequence[int], seen: Sequence[Sequence[int]], probe: int) -> list[float]:
    """Estimate the entries in each cell from the first `probe` IDs after its start."""
    unit = 1 << 64 if low >> 64 != ends[-1] >> 64 else 1
    start = low
    found = []
    for end, ids in zip(ends, seen, strict=True):
        inside = [value for value in ids if value <= end]
        if len(inside) < probe:
            found.append(float(len(inside)))
        else:
            span = max(inside[-1] - inside[0], unit)
            found.append(max(float(probe), probe * ((end - start) / span)))
        start = end
    return found


def split(whole: Range, parts: int, probe: Probe | None, exactly: bool) -> list[Range]:
    """Cut a range into at most `parts` of about equal load; `exactly` keeps even those too small to be worth a task."""
    low, high = number(whole.after), number(whole.last)
    if high <= low:
        return []
    ends = even_cuts(low, high, SAMPLES)
    loads = [1.0] * SAMPLES
    if parts > 1 and probe is not None:
        starts = [low, *ends[:-1]]
        seen = probe([identifier(value) for value in starts])
        loads = weights(low, ends, [[number(found) for found in ids] for ids in seen], PROBE)
        if not exactly:
            parts = max(1, min(parts, int(sum(loads)) // WORTH_A_TASK))
    cuts = _cuts(low, ends, loads, parts)
    return [Range(identifier(a), identifier(b)) for a, b in zip([low, *cuts], [*cuts, high], strict=True) if a < b]


def _cuts(low: int, ends: Sequence[int], loads: Sequence[float], parts: int) -> list[int]:
    """Return parts - 1 IDs between which the cells' loads are about equal, evenly spread inside a cell."""
    share = sum(loads) / parts
    cuts: list[int] = []
    passed, start = 0.0, low
    for end, load in zip(ends, loads, strict=True):
        while len(cuts) < parts - 1 and load and passed + load >= share * (len(cuts) + 1):
            part = (share * (len(cuts) + 1) - passed) / load
            cuts.append(min(end, start + int((end - start) * part)))
        passed += load
        start = end
    return cuts
