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

`take_node` asks both of a node at once, its bytes and what they say: loading a stream is that walk, and the unpacking
before it. It reads each box through a pointer, after one look at whether the box lies inside, and knows what genuine
nodes are made of: numbers stored as numbers, boxes below 16 KiB. Whatever else it meets it leaves to `validate_node`
and `add_node`, which know all that there is.

Costs: O(entries). `add_node` takes a third of what `validate_node` takes; `take_node` 2 ns a box, a tenth of both.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.structs.listpack import Listpack

if not cython.compiled:  # compiled code has them as C functions, through the .pxd
    from rillet.types.stream.id import key_ms, key_seq, less, undelta
    from rillet.types.stream.node import first_entry, int_at, master_fields, size_at, validate_node

_COUNT = cython.declare(cython.Py_ssize_t, 6)  # the position of a node's count: right behind the header
_DELETED = cython.declare(cython.longlong, 1)
_SAMEFIELDS = cython.declare(cython.longlong, 2)
_MASK = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _box_end(p: cython.p_const_uchar, pos: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the position behind the box at pos, below `end`; -1 unless it ends by then and tells its length right."""
    b: cython.int = p[pos]
    n: cython.Py_ssize_t
    if b < 0x80:
        n = 1
    elif b < 0xC0:
        n = 1 + (b & 0x3F)
    elif b < 0xE0:
        n = 2
    elif b < 0xF0:
        if pos + 1 >= end:
            return -1
        n = 2 + (((b & 0x0F) << 8) | p[pos + 1])
    elif 0xF1 <= b <= 0xF4:
        n = 9 if b == 0xF4 else b - 0xEE
    else:
        return -1
    pos += n
    if n <= 127:
        return pos + 1 if pos < end and p[pos] == n else -1
    if pos + 1 < end and p[pos] == n >> 7 and p[pos + 1] == (n & 127) | 128:
        return pos + 2
    return -1


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _is_number(b: cython.int) -> cython.bint:
    """Say whether a box that begins so holds a number."""
    return b < 0x80 or 0xC0 <= b < 0xE0 or 0xF1 <= b <= 0xF4


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _number(p: cython.p_const_uchar, pos: cython.Py_ssize_t) -> cython.longlong:
    """Return the number in a box that holds one and lies inside."""
    b: cython.int = p[pos]
    v: cython.longlong
    i: cython.Py_ssize_t
    n: cython.Py_ssize_t
    if b < 0x80:
        return b
    if b < 0xE0:
        v = ((b & 0x1F) << 8) | p[pos + 1]
        return v - 8192 if v >= 4096 else v
    n = 8 if b == 0xF4 else b - 0xEF
    v = p[pos + n]
    if v >= 128:
        v -= 256
    for i in range(pos + n - 1, pos, -1):
        v = v * 256 + p[i]
    return v


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
    def take_node(self, key: bytes, lp: Listpack) -> cython.bint:
        """Walk the next node, of which nothing is known; False where it is not sound or contradicts itself. O(bytes)"""
        if lp.used <= len(lp.buf) and self.walk(key_ms(key), key_seq(key), lp.buf, lp.used):
            return True
        return lp.validate(True) and validate_node(lp) and self.add_node(key, lp)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def join(self, later: LivingEntries) -> cython.bint:
        """Take over what another walk has seen of the nodes that follow."""
        if later.count != 0:
            if not less(self.last_ms, self.last_seq, later.first_ms, later.first_seq):
                self.rises = False
            if self.count == 0:
                self.first_ms = later.first_ms
                self.first_seq = later.first_seq
            self.last_ms = later.last_ms
            self.last_seq = later.last_seq
            self.count += later.count
        if not later.rises:
            self.rises = False
        if later.set_back:
            self.set_back = True
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def walk(
        self,
        master_ms: cython.ulonglong,
        master_seq: cython.ulonglong,
        p: cython.p_const_uchar,
        used: cython.Py_ssize_t,
    ) -> cython.bint:
        """Take a node that is sound and made as servers make it; leave everything else alone and return False."""
        end: cython.Py_ssize_t = used - 1
        pos: cython.Py_ssize_t = _COUNT
        at: cython.Py_ssize_t
        left: cython.Py_ssize_t
        nfields: cython.Py_ssize_t
        boxes: cython.longlong
        total: cython.longlong
        flags: cython.longlong
        ms: cython.ulonglong
        seq: cython.ulonglong
        last_ms: cython.ulonglong = self.last_ms
        last_seq: cython.ulonglong = self.last_seq
        first_ms: cython.ulonglong = 0
        first_seq: cython.ulonglong = 0
        counted: cython.longlong
        tombs: cython.longlong
        living: cython.longlong = 0
        deleted: cython.longlong = 0
        rises: cython.bint = True
        set_back: cython.bint = False
        if used < 11 or p[end] != 0xFF:
            return False
        total = p[3]
        total = (total << 24) | (p[2] << 16) | (p[1] << 8) | p[0]
        if total != used:
            return False
        # The master entry.
        at = _box_end(p, pos, end)
        if at < 0 or at >= end or not _is_number(p[pos]):
            return False
        counted = _number(p, pos)
        pos = _box_end(p, at, end)
        if pos < 0 or pos >= end or not _is_number(p[at]):
            return False
        tombs = _number(p, at)
        at = _box_end(p, pos, end)
        if at < 0 or not _is_number(p[pos]):
            return False
        boxes = _number(p, pos)
        if boxes < 0 or boxes > used:
            return False
        nfields = boxes
        left = nfields
        pos = at
        while left > 0 and pos < end:
            pos = _box_end(p, pos, end)
            if pos < 0:
                return False
            left -= 1
        if pos >= end or p[pos] != 0 or pos + 2 > end or p[pos + 1] != 1:
            return False
        pos += 2
        total = nfields + 4
        while pos < end:
            # An entry: flags, both deltas, its fields, how many boxes that were.
            at = _box_end(p, pos, end)
            if at < 0 or at >= end or not _is_number(p[pos]):
                return False
            flags = _number(p, pos)
            pos = _box_end(p, at, end)
            if pos < 0 or pos >= end or not _is_number(p[at]):
                return False
            ms = (master_ms + cython.cast(cython.ulonglong, _number(p, at))) & _MASK
            at = _box_end(p, pos, end)
            if at < 0 or at >= end or not _is_number(p[pos]):
                return False
            seq = (master_seq + cython.cast(cython.ulonglong, _number(p, pos))) & _MASK
            pos = at
            left = nfields
            boxes = nfields + 3
            if flags & _SAMEFIELDS == 0:
                pos = _box_end(p, at, end)
                if pos < 0 or not _is_number(p[at]):
                    return False
                boxes = _number(p, at)
                if boxes < 0 or boxes > used:
                    return False
                left = 2 * boxes
                boxes = left + 4
            while left > 0 and pos < end:
                pos = _box_end(p, pos, end)
                if pos < 0:
                    return False
                left -= 1
            if pos >= end:
                return False
            at = _box_end(p, pos, end)
            if at < 0 or not _is_number(p[pos]) or _number(p, pos) != boxes:
                return False
            pos = at
            total += boxes + 1
            if living + deleted == 0 and (ms != master_ms or seq != master_seq):
                return False
            if flags & _DELETED != 0:
                deleted += 1
                continue
            if ms < last_ms or (ms == last_ms and seq <= last_seq):
                rises = False
            if ms < master_ms or (ms == master_ms and seq < master_seq):
                set_back = True
            if living == 0:
                first_ms = ms
                first_seq = seq
            last_ms = ms
            last_seq = seq
            living += 1
        left = p[5]
        left = (left << 8) | p[4]
        if counted != living or tombs != deleted or (left != total and left != 0xFFFF):
            return False
        if living != 0:
            if self.count == 0:
                self.first_ms = first_ms
                self.first_seq = first_seq
            self.last_ms = last_ms
            self.last_seq = last_seq
            self.count += living
        if not rises:
            self.rises = False
        if set_back:
            self.set_back = True
        return True

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
