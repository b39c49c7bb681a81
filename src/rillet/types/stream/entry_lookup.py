"""Finding entries by ID, one after the other: cheap where the IDs rise, as those of pending entries do.

A claim looks up many entries of one stream, mostly neighbours in rising order. A search in the radix
tree and in a node for each costs ten times a step to the next entry. So the finder keeps its
iterator where the last entry was found, takes up to eight steps from there, and searches anew only where
that does not get there.

    find(5-0)   search            5-0
    find(6-0)   one step          5-0 ─► 6-0
    find(9-0)   three steps                  ─► 7-0 ─► 8-0 ─► 9-0
    find(1-0)   search            1-0

Invariant: while `ahead` is set, the iterator's current entry is the first one that is not before any ID asked
for since the last search. The stream must not change between two calls.

Costs: O(1) for a neighbour, else O(log nodes + one node).
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.value import Stream

if not cython.compiled:  # compiled code has it as a C function, through the .pxd
    from rillet.types.stream.id import less

_MAX = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_STEPS = cython.declare(cython.int, 8)


@cython.final
@cython.cclass
class EntryLookup:
    """Finds entries of one stream; after `find` gave True, `entries` stands at the entry, its fields unread."""

    __slots__ = ("ahead", "entries", "given", "stream")
    stream: Stream
    entries: StreamIterator
    ahead: cython.bint
    given: cython.bint

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.entries = None  # type: ignore[assignment]  # once `ahead`, there is one
        self.ahead = False
        self.given = False

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def find(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Say whether the entry exists and is no tombstone, and stand there. Redis: streamEntryExists."""
        entries: StreamIterator = self.entries
        steps: cython.int = 0
        if not self.ahead or less(ms, seq, entries.ms, entries.seq):
            return self._search(ms, seq)
        # Whoever was given the entry has read its fields: it is not handed out again.
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
    @cython.exceptval(-1, check=False)
    def _search(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        entries: StreamIterator = StreamIterator(self.stream, ms, seq, _MAX, _MAX, False)
        self.entries = entries
        self.ahead = entries.next_entry()
        self.given = self.ahead and entries.ms == ms and entries.seq == seq
        return self.given
