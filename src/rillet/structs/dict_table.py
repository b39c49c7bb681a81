"""The core of the dict: two tables of buckets, entries as records, keys in an arena (dict.c).

`DictTable` finds, adds and removes entries, and rehashes. structs/dict.py explains the structure and adds values,
numbers, iteration, scans and defragmentation. The functions at the top read and write memory: the same expression
uses a pointer in compiled code and a memoryview in interpreted code. They do not check ranges; `_live` verifies the
number of an entry where it comes from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rillet._cython import cython, public, readonly
from rillet.structs.arena import Arena
from rillet.structs.block_list import BlockList

if cython.compiled:
    from cython.cimports.libc.string import memcmp, memcpy
    from cython.cimports.rillet._extern import rillet_hash_bytes

INITIAL_SIZE = 4
"""Buckets of the first table (DICT_HT_INITIAL_SIZE)."""
RESIZE_ENABLE, RESIZE_AVOID, RESIZE_FORBID = 0, 1, 2
"""Modes of `set_resize_mode`: a process, a process whose child saves, the child (dictResizeEnable)."""

_BUCKET_SHIFT = cython.declare(cython.int, 14)  # buckets of a block: 64 KiB
_BUCKET_MASK = cython.declare(cython.Py_ssize_t, (1 << 14) - 1)
_RECORD_SHIFT = cython.declare(cython.int, 12)  # records of a block: 64 KiB
_RECORD_MASK = cython.declare(cython.Py_ssize_t, (1 << 12) - 1)
_PLACE_MASK = cython.declare(cython.ulonglong, (1 << 40) - 1)
_FREE_MARK = cython.declare(cython.ulonglong, (1 << 64) - 1)
_MAX_ENTRIES = cython.declare(cython.Py_ssize_t, (1 << 32) - 2)
_PAGE_ROOM = cython.declare(cython.Py_ssize_t, (1 << 16) - 8)
_OBJECT_BYTES = cython.declare(cython.Py_ssize_t, 900)  # the dict, its arena and its lists while they are empty

_resize_mode = cython.declare(cython.int, 0)


def set_resize_mode(mode: int) -> None:
    """Set the resize mode of this process: all its dicts (dictSetResizeEnabled)."""
    global _resize_mode
    _resize_mode = mode


# -- memory: the same expressions read a pointer (compiled) or a memoryview (interpreted) -------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def address(blocks: BlockList, index: cython.Py_ssize_t, offset: cython.Py_ssize_t) -> cython.p_uchar:
    if cython.compiled:
        return blocks.at[index] + offset
    return memoryview(blocks.blocks[index])[offset:]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def u32(p: cython.p_uchar, i: cython.Py_ssize_t) -> cython.uint:
    if cython.compiled:
        return cython.cast(cython.p_uint, p + i)[0]
    return int.from_bytes(p[i : i + 4], "little")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_u32(p: cython.p_uchar, i: cython.Py_ssize_t, value: cython.uint) -> cython.void:
    if cython.compiled:
        cython.cast(cython.p_uint, p + i)[0] = value
    else:
        p[i : i + 4] = value.to_bytes(4, "little")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def u64(p: cython.p_uchar, i: cython.Py_ssize_t) -> cython.ulonglong:
    if cython.compiled:
        return cython.cast(cython.p_ulonglong, p + i)[0]
    return int.from_bytes(p[i : i + 8], "little")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_u64(p: cython.p_uchar, i: cython.Py_ssize_t, value: cython.ulonglong) -> cython.void:
    if cython.compiled:
        cython.cast(cython.p_ulonglong, p + i)[0] = value
    else:
        p[i : i + 8] = value.to_bytes(8, "little")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def varint(p: cython.p_uchar, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the varint at p[i]."""
    value: cython.Py_ssize_t = p[i] & 0x7F
    shift: cython.int = 7
    while p[i] & 0x80:
        i += 1
        part: cython.Py_ssize_t = p[i] & 0x7F
        value |= part << shift
        shift += 7
    return value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def varint_size(value: cython.Py_ssize_t) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_varint(p: cython.p_uchar, i: cython.Py_ssize_t, value: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Write a varint at p[i]; return the index after it."""
    while value >= 0x80:
        p[i] = (value & 0x7F) | 0x80
        value >>= 7
        i += 1
    p[i] = value
    return i + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _copy(p: cython.p_uchar, i: cython.Py_ssize_t, source: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
    if cython.compiled:
        memcpy(p + i, source, n)
    else:
        p[i : i + n] = source[:n]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def hash_bytes(at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.uint:
    """Return 32 bits of Python's keyed hash of the bytes."""
    h: cython.Py_hash_t
    if cython.compiled:
        h = rillet_hash_bytes(at, size)
        return cython.cast(cython.uint, h)  # a mask of 32 bits would be a Python object
    h = hash(bytes(at[:size]))
    return h & 0xFFFFFFFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def item_size(p: cython.p_uchar, values: cython.bint) -> cython.Py_ssize_t:
    """Return the number of bytes of an item, live or dead."""
    head: cython.Py_ssize_t = varint(p, 0)
    size: cython.Py_ssize_t = varint_size(head) + (head >> 1)
    if values:
        length: cython.Py_ssize_t = varint(p, size)
        size += varint_size(length) + (length - 1 if length else 0)
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def bucket(table: BlockList, index: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the number + 1 of the first entry of a bucket, or 0."""
    if cython.compiled:
        block: cython.p_uchar = table.at[index >> _BUCKET_SHIFT]
        if block == cython.NULL:
            return 0
        return cython.cast(cython.p_uint, block)[index & _BUCKET_MASK]
    if table.blocks[index >> _BUCKET_SHIFT] is None:
        return 0
    return u32(address(table, index >> _BUCKET_SHIFT, 4 * (index & _BUCKET_MASK)), 0)


@cython.cfunc
@cython.inline
def set_bucket(table: BlockList, exp: cython.int, index: cython.Py_ssize_t, link: cython.Py_ssize_t) -> cython.bint:
    """Set the first entry of a bucket, in a table of 2**exp buckets; create its block if it does not exist."""
    if link or bucket(table, index):
        _make_bucket(table, exp, index)
        put_u32(address(table, index >> _BUCKET_SHIFT, 4 * (index & _BUCKET_MASK)), 0, link)
    return True


@cython.cfunc
@cython.inline
def _make_bucket(table: BlockList, exp: cython.int, index: cython.Py_ssize_t) -> cython.bint:
    """Create the block of a bucket, if it does not exist: `set_bucket` then allocates nothing."""
    segment: cython.Py_ssize_t = index >> _BUCKET_SHIFT
    missing: cython.bint
    if cython.compiled:
        missing = table.at[segment] == cython.NULL
    else:
        missing = table.blocks[segment] is None
    if missing:
        one: cython.Py_ssize_t = 4
        table.put(segment, one << min(exp, _BUCKET_SHIFT))
    return True


@cython.cfunc
def _new_table(exp: cython.int) -> BlockList:
    """Return an empty table of 2**exp buckets; its blocks come later."""
    one: cython.Py_ssize_t = 1
    return BlockList(one << max(exp - _BUCKET_SHIFT, 0))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def table_mask(exp: cython.int) -> cython.Py_ssize_t:
    one: cython.Py_ssize_t = 1
    return (one << exp) - 1 if exp >= 0 else -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _next_cursor(cursor: cython.ulonglong, mask: cython.ulonglong) -> cython.ulonglong:
    """Return the cursor that follows within mask, with reversed bits: the carry runs from the highest bit down."""
    bit: cython.ulonglong = (mask >> 1) + 1 if mask else 0
    cursor &= mask
    while bit and cursor & bit:
        cursor ^= bit
        bit >>= 1
    return cursor | bit


@cython.cclass
class EntryOwner:
    """An object that refers to entries of a dict by their numbers (structs/skiplist.py)."""

    __slots__ = ()

    @cython.ccall
    def entry_moves(self, table: object, old: cython.Py_ssize_t, new: cython.Py_ssize_t) -> cython.bint:
        """Note the new number of an entry of the dict. Both numbers are valid; the dict must not be changed."""
        raise NotImplementedError


@cython.cclass
class GrowthGate:
    """An object that decides whether a dict may allocate a larger table (keyspace/eviction.py)."""

    __slots__ = ()

    @cython.ccall
    def allows(self, more: cython.Py_ssize_t) -> cython.bint:
        """Return whether a table of so many bytes may be allocated; the dict must not be changed."""
        raise NotImplementedError


@cython.cclass
class DictTable:
    """The entries of a dict by key. An entry is known by its number; -1 means that it does not exist."""

    __slots__ = (
        "_free",
        "_free_count",
        "_next_page",
        "_object_slots",
        "_object_walk",
        "_objects",
        "_records",
        "_stride",
        "_table0",
        "_table1",
        "_top",
        "_vacated",
        "_walk_offset",
        "_walk_page",
        "added",
        "arena",
        "exp0",
        "exp1",
        "gate",
        "has_numbers",
        "has_objects",
        "has_values",
        "newest",
        "owner",
        "pauses",
        "rehashidx",
        "span_size",
        "used0",
        "used1",
    )
    has_values: readonly[cython.bint]
    has_objects: readonly[cython.bint]
    has_numbers: readonly[cython.bint]
    newest: public[cython.bint]
    pauses: public[cython.int]
    owner: public[EntryOwner | None]
    gate: public[GrowthGate | None]
    added: readonly[cython.bint]
    span_size: readonly[cython.Py_ssize_t]
    rehashidx: readonly[cython.Py_ssize_t]
    exp0: readonly[cython.int]
    exp1: readonly[cython.int]
    used0: readonly[cython.Py_ssize_t]
    used1: readonly[cython.Py_ssize_t]
    _table0: BlockList
    _table1: BlockList
    _records: BlockList
    _stride: cython.Py_ssize_t
    _top: cython.Py_ssize_t
    _free: cython.Py_ssize_t
    _free_count: cython.Py_ssize_t
    _objects: list[Any]
    _object_slots: cython.Py_ssize_t
    _object_walk: cython.Py_ssize_t
    arena: readonly[Arena]
    _walk_page: cython.Py_ssize_t
    _walk_offset: cython.Py_ssize_t
    _next_page: cython.Py_ssize_t
    _vacated: list[Any]

    def __init__(
        self, values: bool = False, objects: bool = False, numbers: bool = False, newest: bool = False
    ) -> None:
        self.has_values = values
        self.has_objects = objects
        self.has_numbers = numbers
        self.newest = newest
        self.pauses = 0
        self.added = False
        self.span_size = -1
        self.owner = None
        self.gate = None
        self._stride = 24 if numbers else 16
        self._vacated = []
        self._start()

    def _start(self) -> None:
        """Set the fields of an empty dict."""
        self.rehashidx = -1
        self.exp0 = self.exp1 = -1
        self.used0 = self.used1 = 0
        self._table0 = BlockList()
        self._table1 = self._table0
        self._start_entries()

    def _start_entries(self) -> None:
        self._records = BlockList()
        self._top = 0
        self._free = 0
        self._free_count = 0
        self._objects = []
        self._object_slots = 0
        self._object_walk = 0
        self.arena = Arena()
        self._walk_page = -1
        self._walk_offset = 0
        self._next_page = 0

    # -- records and items -----------------------------------------------------------------------------

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _record(self, n: cython.Py_ssize_t) -> cython.p_uchar:
        return address(self._records, n >> _RECORD_SHIFT, (n & _RECORD_MASK) * self._stride)

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _item(self, n: cython.Py_ssize_t) -> cython.p_uchar:
        place: cython.Py_ssize_t = u64(self._record(n), 8) & _PLACE_MASK
        return address(self.arena.pages, place >> 16, place & 0xFFFF)

    @cython.final
    @cython.cfunc
    def _live(self, n: cython.Py_ssize_t) -> cython.bint:
        """Raise IndexError unless n is the number of an entry."""
        if n < 0 or n >= self._top or u64(self._record(n), 8) == _FREE_MARK:
            raise IndexError("the dict has no entry with this number")
        return True

    @cython.cfunc
    def _reserve_record(self) -> cython.bint:
        """Make room for a record, so that `_new_record` allocates nothing."""
        if self._free:
            return True
        n: cython.Py_ssize_t = self._top
        if n >= _MAX_ENTRIES:
            raise MemoryError("a dict is limited to 2**32 - 2 entries")
        chunk: cython.Py_ssize_t = n >> _RECORD_SHIFT
        if chunk == len(self._records.blocks):
            self._records.append((4 if chunk == 0 else _RECORD_MASK + 1) * self._stride)
        elif chunk == 0:
            room: cython.Py_ssize_t = len(self._records.blocks[0])
            if (n + 1) * self._stride > room:
                self._records.enlarge(0, 2 * room)
        return True

    @cython.cfunc
    def _new_record(self) -> cython.Py_ssize_t:
        """Return the number of an unused record, which was reserved: the first gap, or a new one at the end."""
        n: cython.Py_ssize_t = self._free - 1
        if n >= 0:
            following: cython.Py_ssize_t = u32(self._record(n), 0)
            self._free = following
            self._free_count -= 1
            if following:
                put_u32(self._record(following - 1), 4, 0)
            return n
        n = self._top
        self._top = n + 1
        return n

    @cython.cfunc
    def _free_record(self, n: cython.Py_ssize_t) -> cython.bint:
        """Add a record to the gaps: a list linked in both directions, by `next` and `hash`."""
        r: cython.p_uchar = self._record(n)
        put_u32(r, 0, self._free)
        put_u32(r, 4, 0)
        put_u64(r, 8, _FREE_MARK)
        if self._free:
            put_u32(self._record(self._free - 1), 4, n + 1)
        self._free = n + 1
        self._free_count += 1
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_item(
        self,
        at: cython.p_const_uchar,
        size: cython.Py_ssize_t,
        value: cython.p_const_uchar,
        value_size: cython.Py_ssize_t,
    ) -> cython.longlong:
        """Write a key and a value (value_size -1: none) to the arena; return their place."""
        total: cython.Py_ssize_t = varint_size(2 * size) + size
        if self.has_values:
            total += varint_size(value_size + 1) + max(value_size, 0)
        place: cython.longlong = self.arena.allocate(total)
        p: cython.p_uchar = address(self.arena.pages, place >> 16, place & 0xFFFF)
        i: cython.Py_ssize_t = put_varint(p, 0, 2 * size)
        _copy(p, i, at, size)
        if self.has_values:
            i = put_varint(p, i + size, value_size + 1)
            if value_size > 0:
                _copy(p, i, value, value_size)
        return place

    @cython.cfunc
    def _free_item(self, n: cython.Py_ssize_t) -> cython.bint:
        """Mark the item of an entry as dead and free its bytes."""
        place: cython.longlong = u64(self._record(n), 8) & _PLACE_MASK
        p: cython.p_uchar = self._item(n)
        size: cython.Py_ssize_t = item_size(p, self.has_values)
        p[0] = p[0] | 1
        if self.arena.free(place, size) and place >> 16 == self._walk_page:
            self._walk_page = -1
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _same(self, n: cython.Py_ssize_t, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Return whether the key of an entry equals the given bytes."""
        p: cython.p_uchar = self._item(n)
        if varint(p, 0) != 2 * size:
            return False
        i: cython.Py_ssize_t = varint_size(2 * size)
        if cython.compiled:
            return memcmp(p + i, at, size) == 0
        return bool(p[i : i + size] == at[:size])

    # -- search, insertion, removal ----------------------------------------------------------------------

    @cython.final
    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _find(self, at: cython.p_const_uchar, size: cython.Py_ssize_t, h: cython.uint) -> cython.Py_ssize_t:
        """Return the number of the entry with this key, or -1."""
        index: cython.Py_ssize_t
        n: cython.Py_ssize_t
        if self.used0:
            index = h & table_mask(self.exp0)
            if index >= self.rehashidx:
                n = self._find_in(bucket(self._table0, index), at, size, h)
                if n >= 0:
                    return n
        if self.used1:
            return self._find_in(bucket(self._table1, h & table_mask(self.exp1)), at, size, h)
        return -1

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _find_in(
        self, link: cython.Py_ssize_t, at: cython.p_const_uchar, size: cython.Py_ssize_t, h: cython.uint
    ) -> cython.Py_ssize_t:
        """Return the entry with this key in a chain, or -1. Every command comes here, so it follows bare pointers."""
        r: cython.p_uchar
        if cython.compiled:
            records: cython.pp_uchar = self._records.at
            pages: cython.pp_uchar = self.arena.pages.at
            p: cython.p_uchar
            place: cython.ulonglong
            short: cython.bint = size < 64  # the length takes one byte
            while link:
                r = records[(link - 1) >> _RECORD_SHIFT] + ((link - 1) & _RECORD_MASK) * self._stride
                if u32(r, 4) == h:
                    place = u64(r, 8) & _PLACE_MASK
                    p = pages[place >> 16] + (place & 0xFFFF)
                    if short:
                        if p[0] == 2 * size and memcmp(p + 1, at, size) == 0:
                            return link - 1
                    elif varint(p, 0) == 2 * size:
                        if memcmp(p + varint_size(2 * size), at, size) == 0:
                            return link - 1
                link = u32(r, 0)
            return -1
        while link:
            r = self._record(link - 1)
            if u32(r, 4) == h and self._same(link - 1, at, size):
                return link - 1
            link = u32(r, 0)
        return -1

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def find_span(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the number of the entry with this key, or -1; interpreted, `at` is the key as bytes. O(1)"""
        if self.rehashidx >= 0:
            self._rehash_step()
        return self._find(at, size, hash_bytes(at, size))

    @cython.final
    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def find_hashed(self, at: cython.p_const_uchar, size: cython.Py_ssize_t, h: cython.uint) -> cython.Py_ssize_t:
        """Do `find_span` with the hash of the key, which a bytes object remembers."""
        if self.rehashidx >= 0:
            self._rehash_step()
        return self._find(at, size, h)

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def add_span(
        self,
        at: cython.p_const_uchar,
        size: cython.Py_ssize_t,
        value: cython.p_const_uchar,
        value_size: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Return the entry with this key; create it with the value if it does not exist (`added`). O(1)"""
        return self.add_hashed(at, size, value, value_size, hash_bytes(at, size))

    @cython.final
    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def add_hashed(
        self,
        at: cython.p_const_uchar,
        size: cython.Py_ssize_t,
        value: cython.p_const_uchar,
        value_size: cython.Py_ssize_t,
        h: cython.uint,
    ) -> cython.Py_ssize_t:
        """Do `add_span` with the hash of the key."""
        self.added = False
        if self.rehashidx >= 0:
            self._rehash_step()
        self._grow_if_needed()
        n: cython.Py_ssize_t = self._find(at, size, h)
        if n >= 0:
            return n
        # All memory is allocated before the first change: after MemoryError, the dict is as before.
        index: cython.Py_ssize_t
        if self.rehashidx >= 0:
            index = h & table_mask(self.exp1)
            _make_bucket(self._table1, self.exp1, index)
        else:
            index = h & table_mask(self.exp0)
            _make_bucket(self._table0, self.exp0, index)
        self._reserve_record()
        place: cython.longlong = self._write_item(at, size, value, value_size)
        n = self._new_record()
        r: cython.p_uchar = self._record(n)
        put_u32(r, 4, h)
        put_u64(r, 8, place)
        if self.has_numbers:
            put_u64(r, 16, 0)
        if self.rehashidx >= 0:
            put_u32(r, 0, bucket(self._table1, index))
            set_bucket(self._table1, self.exp1, index, n + 1)
            self.used1 += 1
        else:
            put_u32(r, 0, bucket(self._table0, index))
            set_bucket(self._table0, self.exp0, index, n + 1)
            self.used0 += 1
        self.added = True
        if self._vacated:
            self._free_vacated(1, None)
        return n

    @cython.cfunc
    def _relink(self, n: cython.Py_ssize_t, to: cython.Py_ssize_t) -> cython.bint:
        """Make the bucket or record that links to entry n (number + 1) link to `to` (number + 1, or 0) instead."""
        h: cython.uint = u32(self._record(n), 4)
        table: BlockList = self._table0
        exp: cython.int = self.exp0
        number: cython.int
        for number in range(2):
            index: cython.Py_ssize_t = h & table_mask(exp)
            link: cython.Py_ssize_t = bucket(table, index)
            if link == n + 1:
                set_bucket(table, exp, index, to)
                return number == 1
            while link:
                r: cython.p_uchar = self._record(link - 1)
                link = u32(r, 0)
                if link == n + 1:
                    put_u32(r, 0, to)
                    return number == 1
            assert self.rehashidx >= 0, "an entry is missing from its chain"
            table = self._table1
            exp = self.exp1
        raise AssertionError("an entry is missing from its chain")

    @cython.cfunc
    def _unlink(self, n: cython.Py_ssize_t, h: cython.uint) -> cython.bint:
        """Take an entry out of its chain."""
        if self._relink(n, u32(self._record(n), 0)):
            self.used1 -= 1
        else:
            self.used0 -= 1
        return True

    # -- size ------------------------------------------------------------------------------------------

    @cython.cfunc
    def _grow_if_needed(self) -> cython.bint:
        """Start to double the table if it is full (_dictExpandIfNeeded)."""
        if self.rehashidx >= 0:
            return False
        if self.exp0 < 0:
            return self.resize(INITIAL_SIZE)
        size: cython.Py_ssize_t = table_mask(self.exp0) + 1
        if self.used0 < size:
            return False
        # 7.0 divides without remainder and compares with > 5; the newest version with >= 4.
        forced: cython.Py_ssize_t = 4 if self.newest else 6
        if _resize_mode == 0 or (_resize_mode == 1 and self.used0 >= forced * size):
            # server.c: dictExpandAllowed; the table has 4 bytes a bucket.
            if self.gate is not None and 1000 * self.used0 <= 1618 * size and not self.gate.allows(8 * size):
                return False
            return self.resize(self.used0 + 1)
        return False

    @cython.ccall
    def shrink_if_needed(self) -> cython.bint:
        """Start to shrink a sparse table; return whether this began (htNeedsResize, dictShrinkIfNeeded). O(1)"""
        if self.rehashidx >= 0 or self.exp0 <= 2 or _resize_mode == 2:
            return False
        size: cython.Py_ssize_t = table_mask(self.exp0) + 1
        if not self.newest:
            # Percent, rounded down, as 7.0 calculates.
            if _resize_mode or self.used0 * 100 // size >= 10:
                return False
        elif self.used0 * (8 if _resize_mode == 0 else 32) > size:
            return False
        return self.resize(max(self.used0, INITIAL_SIZE))

    @cython.ccall
    def resize(self, size: cython.Py_ssize_t) -> cython.bint:
        """Start to rehash into the smallest table for `size` entries; return False if that is not useful. O(1)"""
        exp: cython.int = 2
        while table_mask(exp) + 1 < size:
            exp += 1
        if self.rehashidx >= 0 or self.used0 > size or exp == self.exp0 or exp > 32:
            return False
        if self.exp0 < 0:
            self._table0 = _new_table(exp)
            self.exp0 = exp
            return True
        self._table1 = _new_table(exp)
        self.exp1 = exp
        self.used1 = 0
        self.rehashidx = 0
        return True

    @cython.cfunc
    def _rehash_step(self) -> cython.bint:
        """Rehash one bucket unless rehashing is paused (_dictRehashStep)."""
        return self.pauses == 0 and self.rehash(1)

    @cython.ccall
    def rehash(self, steps: cython.Py_ssize_t) -> cython.bint:
        """Move up to `steps` buckets to the new table; return whether more remain (dictRehash).

        It passes at most 10 * steps empty buckets; a block that does not exist counts as one.
        """
        if self.rehashidx < 0 or _resize_mode == 2:
            return False
        size0: cython.Py_ssize_t = table_mask(self.exp0) + 1
        size1: cython.Py_ssize_t = table_mask(self.exp1) + 1
        mask1: cython.Py_ssize_t = size1 - 1
        if _resize_mode == 1:
            ratio: cython.Py_ssize_t = 4 if self.newest else 5
            if size1 > size0 and size1 < ratio * size0:
                return False
            if size1 < size0 and size0 < ratio * (8 if self.newest else 1) * size1:
                return False
        empty: cython.Py_ssize_t = 10 * steps
        while steps > 0 and self.used0:
            steps -= 1
            link: cython.Py_ssize_t = bucket(self._table0, self.rehashidx)
            while link == 0:
                if self._table0.blocks[self.rehashidx >> _BUCKET_SHIFT] is None:
                    self.rehashidx |= _BUCKET_MASK
                self.rehashidx += 1
                if self.rehashidx & _BUCKET_MASK == 0:
                    self._table0.drop((self.rehashidx >> _BUCKET_SHIFT) - 1)
                empty -= 1
                if empty <= 0:
                    return True
                link = bucket(self._table0, self.rehashidx)
            while link:
                r: cython.p_uchar = self._record(link - 1)
                following: cython.Py_ssize_t = u32(r, 0)
                index: cython.Py_ssize_t = u32(r, 4) & mask1
                # The only allocation: after MemoryError, the rest of the chain is still in table 0.
                _make_bucket(self._table1, self.exp1, index)
                put_u32(r, 0, bucket(self._table1, index))
                set_bucket(self._table1, self.exp1, index, link)
                set_bucket(self._table0, self.exp0, self.rehashidx, following)
                self.used0 -= 1
                self.used1 += 1
                link = following
            self.rehashidx += 1
            if self.rehashidx & _BUCKET_MASK == 0:
                self._table0.drop((self.rehashidx >> _BUCKET_SHIFT) - 1)
        if self.used0:
            return True
        self._finish_rehash()
        return False

    @cython.cfunc
    def _finish_rehash(self) -> cython.bint:
        """Replace table 0 by table 1; the blocks of the old one are freed one by one."""
        if len(self._table0.blocks) > 1:
            self._vacated.append(self._table0)
        self._table0 = self._table1
        self.exp0 = self.exp1
        self.used0 = self.used1
        self.exp1 = -1
        self.used1 = 0
        self.rehashidx = -1
        return True

    @cython.cfunc
    def _discard(self) -> cython.bint:
        """Empty the dict; its blocks and objects wait in `_vacated` to be freed. O(blocks of objects)"""
        for table in (self._table0, self._table1):
            if len(table.blocks):
                self._vacated.append(table)
        self._discard_entries()
        self._start()
        return True

    @cython.cfunc
    def _discard_entries(self) -> cython.bint:
        """Start again without records, items and objects; no bucket may refer to one."""
        for part in (self._records, self.arena.pages):
            if len(part.blocks):
                self._vacated.append(part)
        self._vacated.extend([chunk for chunk in self._objects if chunk is not None])
        self._start_entries()
        return True

    @cython.cfunc
    def _free_vacated(self, limit: cython.Py_ssize_t, into: list[Any] | None) -> cython.bint:
        """Free up to `limit` blocks or objects; append the objects to `into`, if given. Return whether more remain."""
        while limit > 0 and self._vacated:
            part: object = self._vacated[len(self._vacated) - 1]
            if isinstance(part, BlockList):
                blocks: BlockList = part
                if len(blocks.blocks):
                    blocks.pop()
                    limit -= 1
                else:
                    self._vacated.pop()
                continue
            objects: list[Any] = self._vacated[len(self._vacated) - 1]
            if not objects:
                self._vacated.pop()
                continue
            value: object = objects.pop()
            limit -= 1
            if into is not None and value is not None:
                into.append(value)
        return len(self._vacated) > 0

    def rehash_for(self, microseconds: int, now: Callable[[], int]) -> bool:
        """Rehash until `now()` (us) has advanced that far; return whether more remains (dictRehashMicroseconds)."""
        if self.pauses:
            return False
        stop = now() + microseconds
        while self.rehash(100):
            if now() >= stop:
                return True
        return False

    @property
    def rehashing(self) -> bool:
        """Whether two tables exist."""
        return self.rehashidx >= 0

    @property
    def buckets(self) -> int:
        """The number of buckets of both tables (dictSlots)."""
        return int(table_mask(self.exp0) + 1 + table_mask(self.exp1) + 1)
