"""Filter push-down: conditions on id, id_ms, timestamp and stream reduce the number of entries to read.

A stream is sorted by ID, so a condition on IDs is a set of ranges, and entries outside of it are not requested. An ID
consists of two 64-bit numbers. As one 128-bit number, a condition is a sorted list of disjoint intervals, and a
conjunction is their intersection:

    WHERE timestamp >= '2024-05-01' AND id_ms < 1714608000000

    IDs     0 ─────────────────────────────────────────────────────────── 2^128
    first               ├─────────────────────────────────────────────┤         (null if microseconds exceed 64 bits)
    second  ├──────────────────────────┤              ├───────────────┤         (signed long: 2^63 and above is < 0)
    both                ├──────────────┤

**`id` is a string in Spark** and compares as text: '9-0' > '10-0'. Numbers with equally many digits sort in the same
order as text, so a condition on `id` is still a set of intervals. For each number of digits of the millisecond part,
bisection finds the last matching ID. If the millisecond part is a prefix of the literal, bisection also finds the last
matching sequence number of each length. There are at most a few hundred intervals; IDs that are times lie in only one
of them.

Conditions on `stream` select the streams to read; names compare as UTF-8 bytes, as in Spark.

The intervals are exact, so Spark does not evaluate these filters again. Spark evaluates all other filters: on `id_seq`
(whose values repeat throughout the stream), on other columns, with a literal of another type, with OR, functions or
casts. A pushed filter costs microseconds; IN adds an interval per value.

**A pushed filter stays with its DataFrame.** Spark (4.3) keeps the plan of a Python source's first scan with the table
object of a DataFrame. A later query on the same DataFrame then reads what the filters of the first one selected, and
lacks rows without an error. A source cannot notice this: Spark does not call it again. So filters are only pushed if
the option `pushFilters` is true, for a DataFrame that is used in one query.

Spark only calls `pushFilters` if spark.sql.python.filterPushdown.enabled is on, and rejects a reader that defines
`pushFilters` if the setting is off. So `register` turns the setting on and uses readers that define the method. A data
source class that is registered without `register` has no filter push-down.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from operator import contains, eq, ge, gt, le, lt
from typing import TYPE_CHECKING, Any

from rillet.spark.read.offsets import Part, Task, identifier, number
from rillet.types.stream.id import MAX, StreamID

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

SWITCH = "spark.sql.python.filterPushdown.enabled"

Interval = tuple[int, int]
"""An interval of stream IDs as 128-bit numbers; it includes both ends."""

Intervals = tuple[Interval, ...]

LARGEST = (1 << 128) - 1
EVERYTHING: Intervals = ((0, LARGEST),)
NOTHING: Intervals = ()
LAST_TIMESTAMP = ((1 << 63) - 1) // 1000  # the largest number of milliseconds whose microseconds fit a signed long
HALF = 1 << 63
DIGITS = len(str(MAX))
COMPARED = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual")
_COMPARISONS: dict[str, Callable[[bytes, bytes], bool]] = {
    **dict(zip(COMPARED, (eq, eq, gt, ge, lt, le), strict=True)),
    "StringStartsWith": bytes.startswith,
    "StringEndsWith": bytes.endswith,
    "StringContains": contains,
}


# ---- sets of IDs --------------------------------------------------------------------------------------------------


def union(pieces: Iterable[Interval]) -> Intervals:
    """Return the union of intervals of IDs, sorted, without empty intervals."""
    found: list[Interval] = []
    for low, high in sorted(piece for piece in pieces if piece[0] <= piece[1]):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def complement(intervals: Intervals) -> Intervals:
    """Return the intervals of all IDs outside the given intervals."""
    starts = [0, *(high + 1 for _, high in intervals)]
    ends = [*(low - 1 for low, _ in intervals), LARGEST]
    return union(zip(starts, ends, strict=True))


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """Return the intersection of two lists of intervals, in O(len(one) + len(other))."""
    found = []
    i = j = 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low <= high:
            found.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def milliseconds(low: int, high: int) -> Interval:
    """Return the interval of the IDs from the millisecond `low` to the millisecond `high`, both included."""
    return max(low, 0) << 64, (min(high, MAX) << 64) + MAX


# ---- columns as sets ----------------------------------------------------------------------------------------------


def _lengths() -> Iterable[tuple[int, int]]:
    """Yield, for each number of digits from 1 to 20, the smallest and the largest 64-bit number with so many digits."""
    for digits in range(1, DIGITS + 1):
        yield 10 ** (digits - 1) if digits > 1 else 0, min(10**digits - 1, MAX)


def ids_before(text: str) -> Intervals:
    """Return the IDs whose text sorts before `text`, compared by bytes."""
    bound = text.encode()
    found: list[Interval] = []
    for low, high in _lengths():
        digits = len(str(low))
        start = bound[:digits]
        # Numbers with equally many digits sort in the same order as text.
        below = low + bisect_left(range(low, high + 1), start, key=lambda value: str(value).encode())
        if below > low:
            found.append(milliseconds(low, below - 1))
        if below <= high and str(below).encode() == start:
            found += [((below << 64) + a, (below << 64) + b) for a, b in _sequences_before(bound[digits:])]
    return union(found)


def _sequences_before(rest: bytes) -> Iterable[Interval]:
    """Yield the intervals of sequence numbers for which the text "-<number>" sorts before `rest`."""
    if rest[:1] != b"-":
        if rest[:1] > b"-":
            yield 0, MAX
        return
    for low, high in _lengths():
        below = low + bisect_left(range(low, high + 1), rest[1:], key=lambda value: str(value).encode())
        yield low, below - 1


def id_of(text: str) -> Intervals:
    """Return the interval that contains only the ID with exactly this text; no interval if the text is not an ID."""
    try:
        found = StreamID.parse(text)
    except ValueError:
        return NOTHING
    return ((number(found), number(found)),) if str(found) == text else NOTHING


def ids_from(prefix: str) -> Intervals:
    """Return the IDs whose text starts with a prefix: as texts, those from the prefix up to the next prefix."""
    if not prefix:
        return EVERYTHING
    last = prefix[-1]
    if not last.isascii():
        return NOTHING
    return intersection(complement(ids_before(prefix)), ids_before(prefix[:-1] + chr(ord(last) + 1)))


def _id(name: str, value: Any) -> Intervals | None:
    """Return the IDs for which a comparison of the column id is true; None if no intervals can express it."""
    if not isinstance(value, str):
        return None
    if name in ("EqualTo", "EqualNullSafe"):
        return id_of(value)
    if name == "StringStartsWith":
        return ids_from(value)
    return _ordered(name, ids_before(value), id_of(value), EVERYTHING)


def _ordered(name: str, below: Intervals, equal: Intervals, all_of_it: Intervals) -> Intervals | None:
    """Return the IDs for which <, <=, > or >= is true; `below`, `equal`: the IDs below and equal to the literal."""
    if name == "LessThan":
        return below
    if name == "LessThanOrEqual":
        return union((*below, *equal))
    if name == "GreaterThanOrEqual":
        return intersection(all_of_it, complement(below))
    if name == "GreaterThan":
        return intersection(all_of_it, complement(union((*below, *equal))))
    return None


def _id_ms(name: str, value: Any) -> Intervals | None:
    """Return the IDs for which a comparison of id_ms is true; id_ms is a signed long, so 2^63 and above is negative."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    equal: Intervals = (milliseconds(value % (1 << 64), value % (1 << 64)),) if -HALF <= value < HALF else NOTHING
    if name in ("EqualTo", "EqualNullSafe"):
        return equal
    signed = max(-HALF, min(value, HALF))
    if signed < 0:
        below = union([milliseconds(HALF, signed + (1 << 64) - 1)]) if signed > -HALF else NOTHING
    else:
        below = union([milliseconds(HALF, MAX), *([milliseconds(0, signed - 1)] if signed else [])])
    return _ordered(name, below, equal, EVERYTHING)


def _timestamp(name: str, value: Any, zoned: bool) -> Intervals | None:
    """Return the IDs for which a comparison of timestamp is true; it is null if its microseconds exceed 64 bits."""
    if not isinstance(value, datetime) or (value.tzinfo is not None) != zoned:
        return None
    moment = value if zoned else value.replace(tzinfo=timezone.utc)
    micros = (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
    equal: Intervals = (
        (milliseconds(micros // 1000, micros // 1000),) if micros >= 0 and micros % 1000 == 0 else NOTHING
    )
    if name in ("EqualTo", "EqualNullSafe"):
        return equal
    first = -(-micros // 1000)  # microseconds to milliseconds, rounded up
    below: Intervals = (milliseconds(0, min(first - 1, LAST_TIMESTAMP)),) if first > 0 else NOTHING
    return _ordered(name, below, equal, _WITH_TIMESTAMP)


_WITH_TIMESTAMP: Intervals = (milliseconds(0, LAST_TIMESTAMP),)  # IDs whose timestamp is not null


# ---- filters ------------------------------------------------------------------------------------------------------


@dataclass
class Pushed:
    """The IDs and streams that a query's filters select; Spark pickles this object with the reader."""

    zoned: dict[str, bool]  # columns with push-down; the value is whether a timestamp has a time zone
    ids: Intervals = EVERYTHING
    # Conditions on the column `stream`: (name of the comparison, value, whether negated).
    names: list[tuple[str, Any, bool]] = field(default_factory=list)

    @classmethod
    def on(cls, schema: StructType) -> Pushed:
        """Return an object that selects all entries; it supports filters on id, id_ms, timestamp and stream."""
        from pyspark.sql.types import TimestampType

        own = [column for column in schema.fields if not {"field", "payload"} & (column.metadata or {}).keys()]
        return cls(
            {
                column.name: isinstance(column.dataType, TimestampType)
                for column in own
                if column.name in ("id", "id_ms", "timestamp", "stream")
            }
        )

    def push(self, filters: Sequence[Filter]) -> list[Filter]:
        """Apply the supported filters, all of which must be true; return the filters that Spark must evaluate."""
        return [one for one in filters if not self._take(one)]

    def _take(self, one: Filter) -> bool:
        """Restrict the selection by one filter; return False if Spark must evaluate the filter."""
        negated = type(one).__name__ == "Not"
        inner: Any = one.child if negated else one  # type: ignore[attr-defined]
        path: tuple[str, ...] = getattr(inner, "attribute", ())
        name, value = type(inner).__name__, getattr(inner, "value", None)
        if len(path) != 1 or path[0] not in self.zoned:
            return False
        if path[0] == "stream":
            return self._take_name(name, value, negated)
        found = self._negated(path[0], name, value) if negated else self._set(path[0], name, value)
        if found is None:
            return False
        self.ids = intersection(self.ids, found)
        return True

    def _set(self, column: str, name: str, value: Any) -> Intervals | None:
        """Return the IDs for which a filter is true; None if push-down does not support the filter."""
        there = _WITH_TIMESTAMP if column == "timestamp" else EVERYTHING
        if name == "IsNotNull" or name == "IsNull":
            return there if name == "IsNotNull" else complement(there)
        if name == "EqualNullSafe" and value is None:
            return complement(there)
        if name == "In":
            sets = [self._set(column, "EqualTo", one) for one in value]
            return None if None in sets else union(piece for one in sets if one is not None for piece in one)
        if value is None and name in COMPARED:
            return NOTHING  # SQL: a comparison with null is null
        if column == "id":
            return _id(name, value)
        return _id_ms(name, value) if column == "id_ms" else _timestamp(name, value, self.zoned[column])

    def _negated(self, column: str, name: str, value: Any) -> Intervals | None:
        """Return the IDs for which `not filter` is true: those for which the filter is neither true nor null."""
        found = self._set(column, name, value)
        if found is None:
            return None
        if name in ("IsNull", "IsNotNull", "EqualNullSafe"):  # these operators never return null
            return complement(found)
        if value is None or (name == "In" and None in value):
            return NOTHING
        return intersection(_WITH_TIMESTAMP if column == "timestamp" else EVERYTHING, complement(found))

    def _take_name(self, name: str, value: Any, negated: bool) -> bool:
        known = (*_COMPARISONS, "In", "IsNull", "IsNotNull")
        values = value if name == "In" else () if name in ("IsNull", "IsNotNull") else (value,)
        if name not in known or not all(one is None or isinstance(one, str) for one in values):
            return False
        self.names.append((name, value, negated))
        return True

    def keeps(self, stream: str) -> bool:
        """Return whether the conditions on `stream` are true for a stream."""
        return all(_true(stream, name, value) is (not negated) for name, value, negated in self.names)

    def bounds(self, after: StreamID, last: StreamID) -> tuple[StreamID, StreamID]:
        """Reduce (after, last] to the span from its first to its last selected ID; the result may be empty."""
        inside = intersection(self.ids, ((number(after) + 1, number(last)),))
        return (identifier(inside[0][0] - 1), identifier(inside[-1][1])) if inside else (last, last)

    def clip(self, task: Task) -> Task:
        """Return the task with its ranges of entries reduced to the IDs that the filters select."""
        if self.ids == EVERYTHING:
            return task
        return tuple(piece for part in task for piece in self._clipped(part))

    def _clipped(self, part: Part) -> list[Part]:
        stream, after, last = part
        inside = intersection(self.ids, ((number(after) + 1, number(last)),))
        return [(stream, identifier(low - 1), identifier(high)) for low, high in inside]


def _true(stream: str, name: str, value: Any) -> bool | None:
    """Evaluate a condition on a stream's name; return None for null. Names compare as UTF-8 bytes, as in Spark."""
    if name in ("IsNull", "IsNotNull"):
        return name == "IsNotNull"
    if name == "In":
        return True if stream in value else None if None in value else False
    if value is None:
        return False if name == "EqualNullSafe" else None
    return _COMPARISONS[name](stream.encode(), str(value).encode())
