"""Lookup of many entries by ID, optimised for IDs that rise, as those of pending entries do.

A claim looks up many entries of one stream, mostly neighbours in rising order. A search in the radix tree and in a node
costs ten times as much as a step to the next entry. So the lookup keeps its iterator at the last entry, takes up to
eight steps from there, and searches again only if they do not reach the ID.

    find(5-0)   search            5-0
    find(6-0)   one step          5-0 ─► 6-0
    find(9-0)   three steps                  ─► 7-0 ─► 8-0 ─► 9-0
    find(1-0)   search            1-0

Invariant: if `ahead` is set, the iterator's current entry is the first one at or after every ID that was looked up
since the last search. The stream must not change between two calls.

Costs: O(1) for a neighbour, otherwise O(log nodes + one node).
"""

from __future__ import annotations

from rillet._cython import cython, readonly
from rillet.types.stream.id import less
from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.stream import Stream

_MAX = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_STEPS = cython.declare(cython.int, 8)


@cython.final
@cython.cclass
class EntryLookup:
    """Lookup of entries of one stream by ID. After `find` returns True, the iterator `entries` is at the entry."""

    __slots__ = ("ahead", "entries", "given", "stream")
    stream: readonly[Stream]
    entries: readonly[StreamIterator]
    ahead: readonly[cython.bint]
    given: readonly[cython.bint]

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.entries = None  # type: ignore[assignment]  # set before `ahead`
        self.ahead = False
        self.given = False

    @cython.ccall
    def find(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether the entry exists, and move `entries` to it. Redis: streamEntryExists."""
        entries: StreamIterator = self.entries
        steps: cython.int = 0
        if not self.ahead or less(ms, seq, entries.ms, entries.seq):
            return self._search(ms, seq)
        # The same ID as in the last call: search again, because the caller may have read this entry's fields.
        if self.given and entries.ms == ms and entries.seq == seq:
            return self._search(ms, seq)
        while less(entries.ms, entries.seq, ms, seq):
            if steps == _STEPS:
                return self._search(ms, seq)
            steps += 1
            if not entries.next_entry():
                self.ahead = False
                return False
        self.given = entries.ms == ms and entries.seq == seq
        return self.given

    @cython.cfunc
    def _search(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        entries: StreamIterator = StreamIterator(self.stream, ms, seq, _MAX, _MAX, False)
        self.entries = entries
        self.ahead = entries.next_entry()
        self.given = self.ahead and entries.ms == ms and entries.seq == seq
        return self.given
