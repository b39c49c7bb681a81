"""Bounds for the number of entries after an ID, and for the entries lost, from a stream's counters. Arithmetic only.

A server states a stream's length, its first and last entry, and counters (stream_info.py). They do not state how many
entries follow an ID in the middle. So each result is a `CountInterval` that contains the true number; it is exact if
both bounds are equal. A number is never guessed here: estimates are marked as such by their callers.

An offset stores two more numbers, taken when its batch was planned:

    added(offset)      entries-added then, less the entries that followed the offset then
    removed(offset)    entries-added then, less the stream's length then: how many entries were ever removed

    entries-added counts  │ read or removed before │ followed the offset then │ added since │
                          0                   added(offset)             added then    added now

So `added now - added(offset)` entries followed the offset then or were added since. Each of them still follows the
offset, or is lost:

    behind + lost = added now - added(offset)

One of the two is enough. The first line that applies is the answer:

    the stream is empty, or its last ID is at or before the offset      behind = 0
    the first entry follows the offset                                  behind = length
    the largest deleted ID is at or before the offset                   lost = 0: a trim removes from the front only
    as many entries as at the offset were ever removed                  lost = 0
    otherwise                                                           lost <= removed now - removed(offset), and
                                                                        lost >= 1 if the largest deleted ID has risen
                                                                        to an ID after the offset

Besides, 1 <= behind if the last entry follows the offset, and behind < length if the first entry does not.

Three things defeat counters: XSETID with ENTRIESADDED, XTRIM with ACKED (which removes entries in the middle without a
trace in the counters), and a stream that was deleted and created again (data_loss.py recognizes most of these).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.spark.read.stream_info import StreamInfo


class CountInterval(NamedTuple):
    """A whole number that is known to lie between two bounds, both included."""

    least: int
    most: int

    @property
    def exact(self) -> bool:
        """Return whether the bounds determine the number."""
        return self.least == self.most

    @classmethod
    def exactly(cls, value: int) -> CountInterval:
        """Return the interval of one number."""
        return cls(value, value)

    def within(self, least: int, most: int) -> CountInterval:
        """Return this interval clipped to `least`..`most`; if they do not overlap, the bound that is nearer to it."""
        low = min(max(self.least, least), most)
        return CountInterval(low, min(max(self.most, low), most))

    def nearest(self, estimate: float) -> int:
        """Return the whole number of this interval that is nearest to an estimate."""
        return min(max(round(estimate), self.least), self.most)


class Counted(NamedTuple):
    """A query's offset in one stream: the last ID, and the entries added and removed up to it, if known."""

    after: StreamID
    added: CountInterval | None = None
    removed: int | None = None
    deleted: StreamID | None = None  # the largest deleted ID then; None: at or before the ID

    def behind(self, now: StreamInfo) -> CountInterval:
        """Return how many entries follow the ID. O(1)"""
        if now.first is None or now.last <= self.after:
            return CountInterval.exactly(0)
        if now.all_after(self.after):
            return CountInterval.exactly(now.length)
        least, most = int(now.top is not None and now.top > self.after), now.length - 1
        if self.added is None or now.added is None:
            return CountInterval(min(least, most), most)
        lost = self._lost_in_the_middle(now)
        return CountInterval(now.added - self.added.most - lost.most, now.added - self.added.least - lost.least).within(
            least, most
        )

    def lost(self, now: StreamInfo) -> CountInterval | None:
        """Return how many entries that followed the ID were removed; None if the counters do not bound it. O(1)

        The result may be negative, if the stream has more entries after the ID than were added: it is another stream.
        """
        if now.added is None:
            return None
        if now.all_after(self.after):
            if self.added is None:
                return None
            since = now.added - now.length
            return CountInterval(since - self.added.most, since - self.added.least)
        lost = self._lost_in_the_middle(now)
        if self.added is not None:
            most = now.added - self.added.least - int(now.top is not None and now.top > self.after)
            return CountInterval(lost.least, max(min(lost.most, most), lost.least))
        return lost

    def _lost_in_the_middle(self, now: StreamInfo) -> CountInterval:
        """Return how many entries after the ID were removed if the first entry does not follow the ID."""
        removed = now.removed
        if now.deleted is None or now.deleted <= self.after or removed is None or removed == self.removed:
            return CountInterval.exactly(0)
        most = max(removed - (self.removed or 0), 0)
        return CountInterval(int(now.deleted > (self.deleted or self.after)), max(most, 1)).within(0, max(most, 1))
