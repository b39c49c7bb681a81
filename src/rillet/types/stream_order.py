"""Whether the nodes of a stream that came from outside agree with what they say of themselves.

`validate_node` looks at one node's bytes and believes its counts and IDs, as Redis does. Here the living entries of all
nodes are walked once, in order, and everything is asked that a genuine stream fulfils:

    each node   begins with the entry that gave it its ID; counts its living entries and its tombstones rightly
    `rises`     the IDs of living entries rise strictly, within a node and from one to the next, and begin above 0-0
    `set_back`  a living entry has an ID below its node's

A genuine stream rises unless it was set back: XSETID may go back behind deleted entries, and adding goes on from there.
Tombstones are out of order then. Where a trim left a node of tombstones only, even entries before that node's ID
are added to it, and no order is left, in Redis neither. A payload that breaks the rules otherwise is accepted by
Redis, which answers from it what comes out; no genuine server writes one.

Costs: O(entries), a third of what `validate_node` takes.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.structs.listpack import Listpack

if not cython.compiled:  # compiled code has them as C functions, through the .pxd
    from rillet.types.stream_id import key_ms, key_seq, less, undelta
    from rillet.types.stream_node import first_entry, int_at, master_fields, size_at

_COUNT = cython.declare(cython.Py_ssize_t, 6)  # the position of a node's count: right behind the header
_DELETED = cython.declare(cython.longlong, 1)
_SAMEFIELDS = cython.declare(cython.longlong, 2)


@cython.final
@cython.cclass
class LivingEntries:
    """What was seen so far: how many living entries, in which order, and the IDs of the first and the last."""

    __slots__ = ("count", "first_ms", "first_seq", "last_ms", "last_seq", "rises", "set_back")

    def __init__(self) -> None:
        self.count = 0
        self.first_ms = self.first_seq = 0
        self.last_ms = self.last_seq = 0
        self.rises = True
        self.set_back = False

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def add_node(self, key: bytes, lp: Listpack) -> cython.bint:
        """Walk the next node, which is sound by its bytes; False where it contradicts itself. O(entries)"""
        master_ms: cython.ulonglong = key_ms(key)
        master_seq: cython.ulonglong = key_seq(key)
        nfields: cython.longlong = master_fields(lp)
        pos: cython.Py_ssize_t = first_entry(lp)
        flags: cython.longlong
        ms: cython.ulonglong
        seq: cython.ulonglong
        boxes: cython.longlong
        living: cython.longlong = 0
        deleted: cython.longlong = 0
        while not lp.is_end(pos):
            flags = int_at(lp, pos)
            ms = undelta(master_ms, int_at(lp, lp.at_next))
            seq = undelta(master_seq, int_at(lp, lp.at_next))
            if living + deleted == 0 and (ms != master_ms or seq != master_seq):
                return False
            boxes = nfields
            if flags & _SAMEFIELDS == 0:
                boxes = 2 * size_at(lp, lp.at_next)
            pos = lp.skip(lp.at_next, boxes + 1)
            if flags & _DELETED != 0:
                deleted += 1
                continue
            if not less(self.last_ms, self.last_seq, ms, seq):
                self.rises = False
            if less(ms, seq, master_ms, master_seq):
                self.set_back = True
            if self.count == 0 and living == 0:
                self.first_ms = ms
                self.first_seq = seq
            self.last_ms = ms
            self.last_seq = seq
            living += 1
        self.count += living
        return living == int_at(lp, _COUNT) and deleted == int_at(lp, lp.at_next)
