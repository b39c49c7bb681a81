"""The dict: a hash table from byte strings to values that grows, shrinks and frees itself in small steps (dict.c).

Keys rest as bytes in an arena, not as Python objects. An entry is a record of 16 bytes (24 with a number):

    table    [ 0 | 7 | 0 | 3 | ...]            a bucket holds an entry's number + 1, or 0
                   |
    record 6       v                            0      4      8                          16
             +------+------+------------------+--------+ +----------+
             | next | hash | place of item 40 | lru 24 | | number   |
             +------+------+------------------+--------+ +----------+
                                 |
    item                         v              in the arena (structs/arena.py)
             +----------------------+-----+------------------+-------+
             | key length * 2 + dead| key | value length + 1 | value |
             +----------------------+-----+------------------+-------+

Lengths are varints of 7 bits a byte. The value's part exists only in a dict with `values`; length 0 there means that
the entry has no value at rest. In a dict with `objects`, an entry can have a Python object instead (a value that is
awake). `numbers` adds 8 bytes to each record: a signed integer or a double. The constructor fixes these parts.

**Two tables.** A table that is too small or too large is replaced step by step. Table 1 is the new one; each operation
moves one bucket, the one at `rehashidx`, and passes at most ten empty ones (dictRehash). Buckets below `rehashidx` are
empty, new keys go to table 1, and a search reads both. When table 0 is empty, table 1 takes its place. Bucket blocks,
record blocks and pages of keys are created one at a time, so no operation allocates or copies more than 64 KiB.

**Sizes.** A table doubles at one entry per bucket. While a child process saves (`set_resize_mode`), it doubles only at
six entries per bucket in 7.0 and at four in the newest version (`newest`). 7.0 shrinks below one entry in ten buckets,
when its owner calls `shrink_if_needed`; the newest version at one in eight, with each deletion.

**Scan.** The cursor counts with its bits reversed, the highest bit of the mask first. A table that doubles splits each
bucket into two whose lower bits are equal, so the cursor stays valid when the size changes (dictScan, with proof in
docs/formats/dict.md). The dict stores nothing about a scan.

**Numbers of entries** are valid until the next deletion. Records and items move: after deletions, the last records
fill gaps, and items leave pages that are mostly gaps. `pauses` above 0 stops all movement, as iteration does. An
`owner` that stores numbers is called with the old and the new number of each record that moves.

**Hash.** Python's own keyed hash of bytes (SipHash), of which 32 bits are stored: an attacker cannot choose keys that
collide, and moving a bucket reads no key.

Costs: find, add, delete, random O(1); every operation moves at most a constant number of entries. An entry without
value or number costs 16 bytes, 4 to 8 for buckets, and its key + 1. Rejected alternatives: a Python dict (its growth
stops the process for 116 ms at 2.8 million keys), open addressing (no scan by cursor without order), Python objects
for entries (64 bytes and more each), keys as Python objects (34 bytes and a reference each).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import getrandbits, sample
from typing import Any

from rillet._cython import cython
from rillet.structs.block_list import BlockList
from rillet.structs.dict_inspect import check_dict, describe
from rillet.structs.dict_table import (
    DictTable,
    address,
    bucket,
    hash_bytes,
    item_size,
    put_u32,
    put_u64,
    put_varint,
    table_mask,
    u32,
    u64,
    varint,
    varint_size,
)

if cython.compiled:
    from cython.cimports.libc.string import memcmp, memcpy
    from cython.cimports.rillet._extern import rillet_prefetch, rillet_prefetch_item

_BUCKET_SHIFT = cython.declare(cython.int, 14)
_BUCKET_MASK = cython.declare(cython.Py_ssize_t, (1 << 14) - 1)
_RECORD_SHIFT = cython.declare(cython.int, 12)
_RECORD_MASK = cython.declare(cython.Py_ssize_t, (1 << 12) - 1)
_PLACE_MASK = cython.declare(cython.ulonglong, (1 << 40) - 1)
_FREE_MARK = cython.declare(cython.ulonglong, (1 << 64) - 1)
_FAIR_SAMPLE = cython.declare(cython.Py_ssize_t, 15)  # GETFAIR_NUM_ENTRIES
_MIN_GAPS = cython.declare(cython.Py_ssize_t, 1024)  # records; fewer gaps are not worth moving entries
_MIN_DEAD = cython.declare(cython.Py_ssize_t, 1 << 16)  # bytes; the same for items
_FEW_GAPS = cython.declare(cython.Py_ssize_t, 64)  # records and bytes below which `reclaim` fills no gaps
_FEW_DEAD = cython.declare(cython.Py_ssize_t, 1024)
_EMPTY_BYTES = cython.declare(cython.Py_ssize_t, 700)  # the objects of an empty dict


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _next_cursor(cursor: cython.ulonglong, mask: cython.ulonglong) -> cython.ulonglong:
    """Return the cursor that follows within mask, with reversed bits: the carry runs from the highest bit down."""
    bit: cython.ulonglong = (mask >> 1) + 1
    cursor &= mask
    while bit and cursor & bit:
        cursor ^= bit
        bit >>= 1
    return cursor | bit


@cython.cfunc
@cython.inline
def _random_below(limit: cython.Py_ssize_t) -> cython.Py_ssize_t:
    bits: cython.ulonglong = getrandbits(62)
    return bits % cython.cast(cython.ulonglong, limit)


@cython.final
@cython.cclass
class Dict(DictTable):
    """A map from byte strings to bytes at rest (`values`), Python objects (`objects`), or numbers; else a set."""

    __slots__ = ()

    def __len__(self) -> int:
        return self.used0 + self.used1

    def __contains__(self, key: bytes) -> bool:
        return self.find(key) >= 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the keys by bucket, as `entries` does. O(n)"""
        for n in self.entries():
            yield self.entry_key(n)

    # -- by key ------------------------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def find(self, key: bytes) -> cython.Py_ssize_t:
        """Return the number of the entry with this key, or -1 (dictFind). O(1)"""
        if cython.compiled:
            at: cython.p_const_uchar = key
            h: cython.Py_hash_t = hash(key)
            return self.find_hashed(at, len(key), cython.cast(cython.uint, h))
        return self.find_span(key, len(key))

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def add_or_find(self, key: bytes) -> cython.Py_ssize_t:
        """Return the entry with this key; create it, and set `added`, if it does not exist (dictAddOrFind). O(1)"""
        if cython.compiled:
            at: cython.p_const_uchar = key
            h: cython.Py_hash_t = hash(key)
            return self.add_hashed(at, len(key), at, -1, cython.cast(cython.uint, h))
        return self.add_span(key, len(key), key, -1)

    @cython.ccall
    def add(self, key: bytes) -> cython.bint:
        """Add a key without a value; return False if it exists (dictAdd). O(1)"""
        self.add_or_find(key)
        return self.added

    @cython.ccall
    def get(self, key: bytes) -> Any:
        """Return the value of a key, bytes or object; None if the key or its value does not exist. O(1)"""
        n: cython.Py_ssize_t = self.find(key)
        if n < 0:
            return None
        if self.has_objects and not self.has_values:
            return self._object(n)
        return self.entry_value(n)

    @cython.ccall
    def set(self, key: bytes, value: object) -> cython.bint:
        """Set the value of a key; return whether the key is new (dictReplace). O(1)"""
        n: cython.Py_ssize_t
        if self.has_values and isinstance(value, bytes):
            n = self.add_value(key, value)
            if self.added:
                return True
            self.set_entry_value(n, value)
            return False
        if value is not None and not self.has_objects:
            raise TypeError("this dict stores no objects")
        n = self.add_or_find(key)
        new: cython.bint = self.added
        self.set_entry_value(n, value)
        return new

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def add_value(self, key: bytes, rest: bytes) -> cython.Py_ssize_t:
        """Return the entry with this key; create it with the value at rest if it does not exist (`added`). O(1)"""
        if not self.has_values:
            raise TypeError("this dict stores no values at rest")
        if cython.compiled:
            at: cython.p_const_uchar = key
            to: cython.p_const_uchar = rest
            h: cython.Py_hash_t = hash(key)
            return self.add_hashed(at, len(key), to, len(rest), cython.cast(cython.uint, h))
        return self.add_span(key, len(key), rest, len(rest))

    @cython.ccall
    def delete(self, key: bytes) -> cython.bint:
        """Delete the entry with this key; return False if it does not exist (dictDelete). O(1)"""
        if cython.compiled:
            at: cython.p_const_uchar = key
            return self.delete_span(at, len(key))
        return self.delete_span(key, len(key))

    @cython.ccall
    def unlink(self, key: bytes) -> Any:
        """Delete a key and return its value for the caller to free; None as for `get` (dictUnlink). O(1)"""
        n: cython.Py_ssize_t = self.find(key)
        if n < 0:
            return None
        value: object = self.entry_value(n)
        self._remove(n)
        return value

    @cython.cfunc
    def delete_span(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Delete the entry with this key; return False if it does not exist. O(1)"""
        n: cython.Py_ssize_t = self.find_span(at, size)
        if n < 0:
            return False
        return self._remove(n)

    @cython.cfunc
    def _remove(self, n: cython.Py_ssize_t) -> cython.bint:
        """Remove an entry with its item and its object."""
        self._unlink(n, u32(self._record(n), 4))
        self._free_item(n)
        if self.has_objects:
            self._set_object(n, None)
        self._free_record(n)
        self._tidy(self.newest)
        return True

    @cython.ccall
    def delete_entry(self, n: cython.Py_ssize_t) -> cython.bint:
        """Delete an entry by its number. O(1)"""
        self._live(n)
        return self._remove(n)

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def find_same(self, other: Dict, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the entry whose key is that of entry n of `other`, or -1. The key is not hashed again. O(1)"""
        at: cython.p_const_uchar = other.key_span(n)
        h: cython.uint = u32(other._record(n), 4)
        if cython.compiled:
            return self.find_hashed(at, other.span_size, h)
        return self.find_hashed(at[: other.span_size], other.span_size, h)

    @cython.cfunc
    def take_same(self, other: Dict, n: cython.Py_ssize_t) -> Any:
        """Remove the entry whose key is that of entry n of `other`; return its object, or None. O(1)

        The key is not hashed again and does not become an object.
        """
        own: cython.Py_ssize_t = self.find_same(other, n)
        if own < 0:
            return None
        value: object = self._object(own) if self.has_objects else None
        self._remove(own)
        return value

    @cython.cfunc
    def prefetch_same(self, other: Dict, numbers: list[Any]) -> cython.bint:
        """Load what `take_same` will read for these entries of `other` into the processor's caches. O(numbers)

        Each entry is at a random place of a large table. The loads of several entries at once take as long as one.
        """
        if cython.compiled:
            n: cython.Py_ssize_t
            index: cython.Py_ssize_t
            link: cython.Py_ssize_t
            place: cython.ulonglong
            second: cython.bint = self.rehashidx >= 0
            table: BlockList = self._table1 if second else self._table0
            mask: cython.Py_ssize_t = table_mask(self.exp1 if second else self.exp0)
            if mask < 0:
                return False
            for n in numbers:
                index = u32(other._record(n), 4) & mask
                if table.at[index >> _BUCKET_SHIFT] != cython.NULL:
                    rillet_prefetch(address(table, index >> _BUCKET_SHIFT, 4 * (index & _BUCKET_MASK)))
                rillet_prefetch(other._item(n))
            for n in numbers:
                link = bucket(table, u32(other._record(n), 4) & mask)
                if link:
                    rillet_prefetch(self._record(link - 1))
            for n in numbers:
                link = bucket(table, u32(other._record(n), 4) & mask)
                if link:
                    place = u64(self._record(link - 1), 8) & _PLACE_MASK
                    rillet_prefetch(address(self.arena.pages, place >> 16, place & 0xFFFF))
                    if self.has_objects:
                        self._prefetch_object(link - 1)
        return True

    @cython.cfunc
    def _prefetch_object(self, n: cython.Py_ssize_t) -> cython.bint:
        if n >> _RECORD_SHIFT < len(self._objects):
            chunk: list[Any] = self._objects[n >> _RECORD_SHIFT]
            if chunk is not None and n & _RECORD_MASK < len(chunk):
                rillet_prefetch_item(chunk, n & _RECORD_MASK)
        return True

    @cython.ccall
    def tidy(self, times: cython.Py_ssize_t) -> cython.bint:
        """Do what follows a deletion, for deletions during a pause; return whether gaps remain. O(times)"""
        gaps: cython.bint = True
        while gaps and times > 0:
            times -= 1
            self._tidy(False)
            gaps = not self.pauses and (
                len(self._vacated) > 0
                or (self._free_count > _MIN_GAPS and self._free_count > self.used0 + self.used1)
                or (self.arena.dead > _MIN_DEAD and 2 * self.arena.dead > self.arena.live)
            )
        return gaps

    # -- by number of the entry --------------------------------------------------------------------------

    @cython.ccall
    def entry_key(self, n: cython.Py_ssize_t) -> bytes:
        """Return the key of an entry. O(1)"""
        self._live(n)
        at: cython.p_const_uchar = self.key_span(n)
        if cython.compiled:
            return at[: self.span_size]
        return bytes(at[: self.span_size])

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def key_span(self, n: cython.Py_ssize_t) -> cython.p_const_uchar:
        """Return the address of the bytes of an entry's key; `span_size` is their number.

        The caller knows that the entry exists. The address is valid until the next change of the dict.
        """
        p: cython.p_uchar = self._item(n)
        head: cython.Py_ssize_t = varint(p, 0)
        self.span_size = head >> 1
        if cython.compiled:
            return p + varint_size(head)
        return p[varint_size(head) :]

    @property
    def top(self) -> int:
        """The number after the greatest entry number."""
        return self._top

    @cython.ccall
    def entries_between(self, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> list[Any]:
        """Return the entries with the numbers `first` to `last - 1`, in this order. O(last - first)"""
        found: list[Any] = []
        n: cython.Py_ssize_t
        for n in range(max(first, 0), min(last, self._top)):
            if u64(self._record(n), 8) != _FREE_MARK:
                found.append(n)
        return found

    @cython.ccall
    def keys_between(self, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> list[Any]:
        """Return the keys of the entries with the numbers `first` to `last - 1`, in this order. O(last - first)

        All keys are between 0 and `top`. This order is the order in memory, so it is the fastest way to read all.
        """
        found: list[Any] = []
        n: cython.Py_ssize_t
        for n in range(max(first, 0), min(last, self._top)):
            if u64(self._record(n), 8) != _FREE_MARK:
                found.append(self.entry_key(n))
        return found

    @cython.ccall
    def entry_value(self, n: cython.Py_ssize_t) -> Any:
        """Return the value of an entry: bytes, an object, or None. O(1)"""
        self._live(n)
        if self.has_objects:
            value: object = self._object(n)
            if value is not None:
                return value
        if not self.has_values:
            return None
        at: cython.p_const_uchar = self.value_span(n)
        if self.span_size < 0:
            return None
        if cython.compiled:
            return at[: self.span_size]
        return bytes(at[: self.span_size])

    @cython.ccall
    def set_entry_value(self, n: cython.Py_ssize_t, value: object) -> cython.bint:
        """Set the value of an entry; None removes it. Bytes rest in the arena if the dict has `values`. O(1)"""
        self._live(n)
        if value is not None and not self.has_objects and not (self.has_values and isinstance(value, bytes)):
            raise TypeError("this dict stores no objects")
        if self.has_values:
            if isinstance(value, bytes):
                rest: bytes = value
                if cython.compiled:
                    at: cython.p_const_uchar = rest
                    self.set_value_span(n, at, len(rest))
                else:
                    self.set_value_span(n, rest, len(rest))
                value = None
            elif cython.compiled:
                self.set_value_span(n, cython.NULL, -1)
            else:
                self.set_value_span(n, b"", -1)
        if self.has_objects:
            self._set_object(n, value)
        return True

    @cython.ccall
    def object_at(self, n: cython.Py_ssize_t) -> Any:
        """Return the object of an entry, or None if it has none: its value is at rest. O(1)"""
        self._live(n)
        return self._object(n)

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def value_size(self, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the number of bytes of the value of an entry, -1 if it has none. O(1)"""
        self._live(n)
        self.value_span(n)
        return self.span_size

    @cython.ccall
    def value_byte(self, n: cython.Py_ssize_t) -> cython.int:
        """Return the first byte of the value of an entry that has bytes. O(1)"""
        self._live(n)
        at: cython.p_const_uchar = self.value_span(n)
        if self.span_size <= 0:
            raise IndexError("the entry has no bytes")
        first: cython.int = at[0]
        return first

    @cython.ccall
    def wake_entry(self, n: cython.Py_ssize_t, value: object) -> cython.bint:
        """Give an entry an object that represents its bytes, which stay: `rest_entry` compares them later. O(1)"""
        self._live(n)
        return self._set_object(n, value)

    @cython.ccall
    def rest_entry(self, n: cython.Py_ssize_t, rest: bytes) -> cython.bint:
        """Replace the object of an entry by bytes. Equal bytes are not written: a child may share their page. O(1)"""
        at: cython.p_const_uchar = self.value_span(n)
        same: cython.bint = self.span_size == len(rest)
        if same:
            if cython.compiled:
                to: cython.p_const_uchar = rest
                same = memcmp(at, to, self.span_size) == 0
            else:
                same = at[: self.span_size] == rest
        if not same:
            return self.set_entry_value(n, rest)
        return self._set_object(n, None)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def value_span(self, n: cython.Py_ssize_t) -> cython.p_const_uchar:
        """Return the address of the bytes of an entry's value; `span_size` is their number, -1 if there are none.

        The caller knows that the entry exists. The address is valid until the next change of the dict.
        """
        p: cython.p_uchar = self._item(n)
        head: cython.Py_ssize_t = varint(p, 0)
        i: cython.Py_ssize_t = varint_size(head) + (head >> 1)
        self.span_size = varint(p, i) - 1
        i += varint_size(self.span_size + 1)
        if cython.compiled:
            return p + i
        return p[i:]

    @cython.cfunc
    def set_value_span(
        self, n: cython.Py_ssize_t, value: cython.p_const_uchar, value_size: cython.Py_ssize_t
    ) -> cython.bint:
        """Set the bytes of a value (value_size -1: none), in place if the length is equal or the item is the newest."""
        p: cython.p_uchar = self._item(n)
        size: cython.Py_ssize_t = varint(p, 0) >> 1
        start: cython.Py_ssize_t = varint_size(2 * size)
        i: cython.Py_ssize_t = start + size
        former: cython.Py_ssize_t = varint(p, i)
        same: cython.bint = former == value_size + 1
        if same or self.arena.resize_last(
            u64(self._record(n), 8) & _PLACE_MASK,
            i + varint_size(former) + max(former - 1, 0),
            i + varint_size(value_size + 1) + max(value_size, 0),
        ):
            i = put_varint(p, i, value_size + 1)
            if value_size > 0:
                if cython.compiled:
                    memcpy(p + i, value, value_size)
                else:
                    p[i : i + value_size] = value[:value_size]
            return True
        # The allocation may move the first page, so the key is copied to a place that does not move.
        key: bytes = self.entry_key(n)
        place: cython.ulonglong
        if cython.compiled:
            at: cython.p_const_uchar = key
            place = self._write_item(at, size, value, value_size)
        else:
            place = self._write_item(key, size, value, value_size)
        self._free_item(n)
        self._set_place(n, place)
        self._tidy_items()  # not the records: the numbers of entries stay valid
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _set_place(self, n: cython.Py_ssize_t, place: cython.ulonglong) -> cython.bint:
        r: cython.p_uchar = self._record(n)
        put_u64(r, 8, (u64(r, 8) & ~_PLACE_MASK) | place)
        return True

    @cython.cfunc
    def _object(self, n: cython.Py_ssize_t) -> Any:
        """Return the object of an entry, or None."""
        if n >> _RECORD_SHIFT >= len(self._objects):
            return None
        chunk: list[Any] = self._objects[n >> _RECORD_SHIFT]
        if chunk is None or n & _RECORD_MASK >= len(chunk):
            return None
        return chunk[n & _RECORD_MASK]

    @cython.cfunc
    def _set_object(self, n: cython.Py_ssize_t, value: object) -> cython.bint:
        """Set the object of an entry; the list of a block of records exists once one of them has an object."""
        at: cython.Py_ssize_t = n >> _RECORD_SHIFT
        slot: cython.Py_ssize_t = n & _RECORD_MASK
        while at >= len(self._objects):
            if value is None:
                return True
            self._objects.append(None)
        chunk: list[Any] = self._objects[at]
        if chunk is None or slot >= len(chunk):
            if value is None:
                return True
            room: cython.Py_ssize_t = _RECORD_MASK + 1 if at else min(max(8, 2 * slot), _RECORD_MASK + 1)
            if chunk is None:
                chunk = [None] * room
                self._objects[at] = chunk
                self._object_slots += room
            else:
                self._object_slots += room - len(chunk)
                chunk.extend([None] * (room - len(chunk)))
        chunk[slot] = value
        return True

    @cython.ccall
    def next_objects(self, slots: cython.Py_ssize_t) -> list[Any]:
        """Return the entries that have an object among the next `slots` of a walk, and begin again at the end. O(slots)

        The walk frees the list of a block of records in which no entry has an object.
        """
        found: list[Any] = []
        if not self._objects:
            return found
        at: cython.Py_ssize_t = self._object_walk >> _RECORD_SHIFT
        slot: cython.Py_ssize_t = self._object_walk & _RECORD_MASK
        if at >= len(self._objects):
            at = slot = 0
        chunk: list[Any] = self._objects[at]
        end: cython.Py_ssize_t = 0 if chunk is None else min(slot + slots, len(chunk))
        while slot < end:
            if chunk[slot] is not None:
                found.append((at << _RECORD_SHIFT) + slot)
            slot += 1
        if chunk is None or slot >= len(chunk):
            if chunk is not None and not found:
                slot = 0
                while slot < len(chunk) and chunk[slot] is None:
                    slot += 1
                if slot == len(chunk):
                    self._objects[at] = None
                    self._object_slots -= len(chunk)
            at += 1
            slot = 0
        self._object_walk = (at << _RECORD_SHIFT) + slot
        return found

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def number(self, n: cython.Py_ssize_t) -> cython.longlong:
        """Return the number of an entry as a signed integer; 0 until it is set. O(1)"""
        self._live_number(n)
        if cython.compiled:
            return cython.cast(cython.longlong, u64(self._record(n), 16))
        return int.from_bytes(self._record(n)[16:24], "little", signed=True)

    @cython.ccall
    def set_number(self, n: cython.Py_ssize_t, value: cython.longlong) -> cython.bint:
        """Set the number of an entry to a signed integer of 64 bits. O(1)"""
        self._live_number(n)
        if cython.compiled:  # a mask of 64 bits would be a Python object
            put_u64(self._record(n), 16, cython.cast(cython.ulonglong, value))
        else:
            put_u64(self._record(n), 16, value & 0xFFFFFFFFFFFFFFFF)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def score(self, n: cython.Py_ssize_t) -> cython.double:
        """Return the number of an entry as a double; 0.0 until it is set. O(1)"""
        self._live_number(n)
        if cython.compiled:
            return cython.cast(cython.p_double, self._record(n) + 16)[0]
        score: float = struct.unpack("<d", self._record(n)[16:24])[0]
        return score

    @cython.ccall
    def set_score(self, n: cython.Py_ssize_t, value: cython.double) -> cython.bint:
        """Set the number of an entry to a double. O(1)"""
        self._live_number(n)
        if cython.compiled:
            cython.cast(cython.p_double, self._record(n) + 16)[0] = value
        else:
            self._record(n)[16:24] = struct.pack("<d", value)
        return True

    @cython.cfunc
    def _live_number(self, n: cython.Py_ssize_t) -> cython.bint:
        if not self.has_numbers:
            raise TypeError("this dict stores no numbers")
        return self._live(n)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def lru(self, n: cython.Py_ssize_t) -> cython.long:
        """Return the 24 bits of LRU or LFU data of an entry; 0 until they are set. O(1)"""
        self._live(n)
        return u64(self._record(n), 8) >> 40

    @cython.ccall
    def set_lru(self, n: cython.Py_ssize_t, value: cython.long) -> cython.bint:
        """Set the LRU or LFU data of an entry, 0 to 2**24 - 1. O(1)"""
        if value < 0 or value > 0xFFFFFF:
            raise ValueError("LRU data has 24 bits")
        self._live(n)
        return self.put_lru(n, value)

    @cython.cfunc
    def put_lru(self, n: cython.Py_ssize_t, value: cython.long) -> cython.bint:
        """Do `set_lru` without checks, for each lookup."""
        bits: cython.ulonglong = value
        r: cython.p_uchar = self._record(n)
        put_u64(r, 8, (u64(r, 8) & _PLACE_MASK) | (bits << 40))
        return True

    # -- many entries ------------------------------------------------------------------------------------

    @cython.cfunc
    def _collect(self, table: BlockList, index: cython.Py_ssize_t, into: list[Any]) -> cython.bint:
        """Append the numbers of the entries in a bucket."""
        link: cython.Py_ssize_t = bucket(table, index)
        while link:
            into.append(link - 1)
            link = u32(self._record(link - 1), 0)
        return True

    def entries(self) -> Iterator[int]:
        """Yield the numbers of all entries; rehashing and movement pause meanwhile (dictGetSafeIterator). O(n)

        The caller may add, change and delete entries. An entry that exists the whole time is yielded once.
        """
        self.pauses += 1
        try:
            for second in (False, True):
                index: int = 0
                while index <= table_mask(self.exp1 if second else self.exp0):
                    table: BlockList = self._table1 if second else self._table0
                    if table.blocks[index >> _BUCKET_SHIFT] is None:
                        index = (index | _BUCKET_MASK) + 1
                        continue
                    found: list[int] = []
                    self._collect(table, index, found)
                    for n in found:
                        # The caller may have deleted it since, and its record may serve another entry.
                        if self._is_in(n, index, second):
                            yield n
                    index += 1
        finally:
            self.pauses -= 1

    def keys(self) -> Iterator[bytes]:
        """Yield the keys by number of entry: in the order of insertion unless entries were deleted. O(records)

        Movement pauses meanwhile. The order does not depend on the hash, and memory is read in sequence.
        """
        n: cython.Py_ssize_t = 0
        self.pauses += 1
        try:
            while n < self._top:
                if u64(self._record(n), 8) != _FREE_MARK:
                    yield self.entry_key(n)
                n += 1
        finally:
            self.pauses -= 1

    def items(self) -> Iterator[tuple[bytes, Any]]:
        """Yield (key, value) in the order of `keys`. O(records)"""
        n: cython.Py_ssize_t = 0
        self.pauses += 1
        try:
            while n < self._top:
                if u64(self._record(n), 8) != _FREE_MARK:
                    yield self.entry_key(n), self.entry_value(n)
                n += 1
        finally:
            self.pauses -= 1

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def uniform_entry(self) -> cython.Py_ssize_t:
        """Return an entry, or -1; all are equally likely unless nearly all records are gaps. O(1) expected"""
        n: cython.Py_ssize_t
        _tries: cython.int
        if self.used0 + self.used1:
            for _tries in range(64):
                n = _random_below(self._top)
                if u64(self._record(n), 8) != _FREE_MARK:
                    return n
        return self.fair_random_entry()

    def distinct_sample(self, count: int) -> list[int]:
        """Return min(count, length) distinct uniformly random entries, in random order. O(count) expected"""
        if 3 * count >= len(self):
            every = [n for n in range(self._top) if u64(self._record(n), 8) != _FREE_MARK]
            return sample(every, min(count, len(every)))
        chosen: dict[int, bool] = {}
        while len(chosen) < count:
            chosen[self.uniform_entry()] = True
        return list(chosen)

    def _is_in(self, n: int, index: int, second: bool) -> bool:
        if n >= self._top or u64(self._record(n), 8) == _FREE_MARK:
            return False
        return u32(self._record(n), 4) & table_mask(self.exp1 if second else self.exp0) == index

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def random_entry(self) -> cython.Py_ssize_t:
        """Return a random entry, or -1: entries in short chains are more likely (dictGetRandomKey). O(1) expected"""
        if self.used0 + self.used1 == 0:
            return -1
        if self.rehashidx >= 0:
            self._rehash_step()
        found: list[Any] = []
        size0: cython.Py_ssize_t = table_mask(self.exp0) + 1
        size1: cython.Py_ssize_t = table_mask(self.exp1) + 1
        first: cython.Py_ssize_t = max(self.rehashidx, 0)
        while not found:
            index: cython.Py_ssize_t = first + _random_below(size0 + size1 - first)
            if index < size0:
                self._collect(self._table0, index, found)
            else:
                self._collect(self._table1, index - size0, found)
        n: cython.Py_ssize_t = found[_random_below(len(found))]
        return n

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def fair_random_entry(self) -> cython.Py_ssize_t:
        """Return a random entry, or -1: one of 15 neighbours, for a fairer choice (dictGetFairRandomKey). O(1)"""
        found: list[Any] = self.sample(_FAIR_SAMPLE)
        if not found:
            return self.random_entry()
        n: cython.Py_ssize_t = found[_random_below(len(found))]
        return n

    @cython.ccall
    def sample(self, count: cython.Py_ssize_t) -> list[Any]:
        """Return up to `count` entries from adjacent buckets at a random place (dictGetSomeKeys). O(count)

        It may return fewer entries, and rarely the same entry twice. A chain that exceeds the count is sampled fairly.
        """
        count = min(count, self.used0 + self.used1)
        found: list[Any] = []
        if self.rehashidx >= 0 and self.pauses == 0:
            self.rehash(count)
        size0: cython.Py_ssize_t = table_mask(self.exp0) + 1
        size1: cython.Py_ssize_t = table_mask(self.exp1) + 1
        size: cython.Py_ssize_t = max(size0, size1)
        if count <= 0:
            return found
        index: cython.Py_ssize_t = _random_below(size)
        empty: cython.Py_ssize_t = 0
        steps: cython.Py_ssize_t = 10 * count
        second: cython.int
        while steps > 0 and len(found) < count:
            steps -= 1
            for second in range(2 if self.rehashidx >= 0 else 1):
                if second == 0 and index < self.rehashidx:
                    # Table 0 is empty below rehashidx; table 1 may end before it.
                    if index < size1:
                        continue
                    index = self.rehashidx
                if index >= (size1 if second else size0):
                    continue
                before: cython.Py_ssize_t = len(found)
                self._collect(self._table1 if second else self._table0, index, found)
                if len(found) > before:
                    empty = 0
                    if len(found) >= count:
                        break
                    continue
                empty += 1
                if empty >= 5 and empty > count:
                    index = _random_below(size)
                    empty = 0
            index = (index + 1) & (size - 1)
        while len(found) > count:
            # Reservoir sampling: each further entry replaces a chosen one with the probability count / its position.
            other: cython.Py_ssize_t = _random_below(len(found))
            if other < count:
                found[other] = found[len(found) - 1]
            found.pop()
        return found

    @cython.ccall
    @cython.exceptval(0, check=True)
    def scan_step(self, cursor: cython.ulonglong, into: list[Any]) -> cython.ulonglong:
        """Append the entries at a cursor to `into`; return the next cursor, 0 at the end (dictScan). O(1) expected"""
        if self.used0 + self.used1 == 0:
            return 0
        small: BlockList = self._table0
        large: BlockList = self._table1
        mask: cython.ulonglong = table_mask(self.exp0)
        if self.rehashidx < 0:
            self._collect(small, cursor & mask, into)
            return _next_cursor(cursor, mask)
        wide: cython.ulonglong = table_mask(self.exp1)
        if mask > wide:
            small, large = large, small
            mask, wide = wide, mask
        self._collect(small, cursor & mask, into)
        while True:
            # All buckets of the larger table into which the smaller table's bucket expands.
            self._collect(large, cursor & wide, into)
            cursor = _next_cursor(cursor, wide)
            if cursor & (mask ^ wide) == 0:
                return cursor

    def scan(self, cursor: int, count: int = 10) -> tuple[int, list[int]]:
        """Return the next cursor (0 at the end) and about `count` entries, from at most 10 * count buckets."""
        found: list[int] = []
        for _ in range(max(10 * count, 1)):
            cursor = self.scan_step(cursor, found)
            if not cursor or len(found) >= count:
                break
        return cursor, found

    # -- movement and release ----------------------------------------------------------------------------

    @cython.cfunc
    def _tidy(self, shrink: cython.bint) -> cython.bint:
        """Move a few entries and items if there are many gaps, and free one block of a former table. O(1)

        shrink: begin with a smaller table if this one has few entries. Without memory the gaps stay for a while: the
        caller's change is complete.
        """
        try:
            if shrink:
                self.shrink_if_needed()
            if self._vacated:
                self._free_vacated(1, None)
            if self.pauses:
                return False
            if self.used0 + self.used1 == 0 and len(self._records.blocks) + len(self.arena.pages.blocks) > 2:
                return self._discard_entries()
            if self._free_count > _MIN_GAPS and self._free_count > self.used0 + self.used1:
                self._pull_last()
                self._pull_last()
        except MemoryError:
            return False
        return self._tidy_items()

    @cython.cfunc
    def _tidy_items(self) -> cython.bint:
        """Move a few items if many bytes in pages are dead; without memory they stay for a while. O(1)"""
        if self.pauses == 0 and self.arena.dead > _MIN_DEAD and 2 * self.arena.dead > self.arena.live:
            try:
                self._compact(8, 60)
            except MemoryError:
                return False
        return True

    @cython.cfunc
    def _pull_last(self) -> cython.bint:
        """Shorten the records by one: the last one is a gap, or moves into a gap. O(1)"""
        last: cython.Py_ssize_t = self._top - 1
        r: cython.p_uchar = self._record(last)
        if u64(r, 8) == _FREE_MARK:
            following: cython.Py_ssize_t = u32(r, 0)
            previous: cython.Py_ssize_t = u32(r, 4)
            if previous:
                put_u32(self._record(previous - 1), 0, following)
            else:
                self._free = following
            if following:
                put_u32(self._record(following - 1), 4, previous)
            self._free_count -= 1
        else:
            gap: cython.Py_ssize_t = self._free - 1
            if self.has_objects:
                self._set_object(gap, self._object(last))  # first: it may need memory
            self._new_record()
            self._relink(last, gap + 1)
            to: cython.p_uchar = self._record(gap)
            if cython.compiled:
                memcpy(to, r, self._stride)
            else:
                to[: self._stride] = r[: self._stride]
            if self.has_objects:
                self._set_object(last, None)
            if self.owner is not None:
                self.owner.entry_moves(self, last, gap)
        self._top = last
        # One empty block stays, so that a size at its edge does not create and free it again and again.
        if ((last + _RECORD_MASK) >> _RECORD_SHIFT) + 1 < len(self._records.blocks):
            self._records.pop()
            if len(self._objects) > len(self._records.blocks):
                chunk: list[Any] = self._objects.pop()
                self._object_slots -= len(chunk) if chunk is not None else 0
        return True

    @cython.cfunc
    def _compact(self, steps: cython.Py_ssize_t, percent: cython.Py_ssize_t) -> cython.bint:
        """Move items away from pages of which less than `percent` is in use; `steps` bounds the items and pages."""
        page: cython.Py_ssize_t
        while steps > 0:
            steps -= 1
            page = self._walk_page
            if page < 0:
                if self._next_page >= len(self.arena.pages.blocks):
                    self._next_page = 0
                page = self._next_page
                self._next_page += 1
                if page == self.arena.current or self.arena.pages.blocks[page] is None:
                    continue
                if 100 * self.arena.page_live(page) < percent * (self.arena.page_fill(page) - 8):
                    self._walk_page = page
                    self._walk_offset = 8
                continue
            p: cython.p_uchar = address(self.arena.pages, page, self._walk_offset)
            size: cython.Py_ssize_t = item_size(p, self.has_values)
            if p[0] & 1 == 0:
                self._move_item(page, self._walk_offset, size)
            # The page is freed with its last item; the walk never passes its end.
            self._walk_offset += size
        return True

    @cython.cfunc
    def _move_item(self, page: cython.Py_ssize_t, offset: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Move a live item to the current page."""
        p: cython.p_uchar = address(self.arena.pages, page, offset)
        length: cython.Py_ssize_t = varint(p, 0) >> 1
        i: cython.Py_ssize_t = varint_size(2 * length)
        place: cython.longlong = page
        place = (place << 16) | offset
        n: cython.Py_ssize_t = self._find_place(address(self.arena.pages, page, offset + i), length, place)
        to: cython.longlong = self.arena.allocate(size)
        target: cython.p_uchar = address(self.arena.pages, to >> 16, to & 0xFFFF)
        if cython.compiled:
            memcpy(target, address(self.arena.pages, page, offset), size)
        else:
            target[:size] = address(self.arena.pages, page, offset)[:size]
        self._free_item(n)
        self._set_place(n, to)
        return True

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _find_place(
        self, at: cython.p_const_uchar, size: cython.Py_ssize_t, place: cython.longlong
    ) -> cython.Py_ssize_t:
        """Return the entry whose item is at a place. The key is in the arena, so the search moves nothing."""
        n: cython.Py_ssize_t = self._find(at, size, hash_bytes(at, size))
        assert n >= 0 and u64(self._record(n), 8) & _PLACE_MASK == place
        return n

    @cython.ccall
    def reclaim(self, limit: cython.Py_ssize_t) -> cython.bint:
        """Fill up to `limit` gaps between records and items; return False if less than one part in eight are gaps.

        For an owner who needs the memory: unlike `_tidy` and `defrag_step`, it also empties the page that receives new
        items, since a small dict has no other page. O(limit)
        """
        if self.pauses:
            return False
        records: cython.bint = 8 * self._free_count > self._top and self._free_count > _FEW_GAPS
        items: cython.bint = 8 * self.arena.dead > self.arena.live and self.arena.dead > _FEW_DEAD
        if records:
            for _ in range(min(limit, self._free_count)):
                self._pull_last()
        if items:
            if self._walk_page < 0 and self.arena.current >= 0:
                self.arena.leave_current()
            self._compact(limit, 90)
        return records or items

    @cython.ccall
    def defrag_step(self, limit: cython.Py_ssize_t) -> cython.bint:
        """Fill gaps between records and between items, `limit` of each; return whether gaps worth it remain."""
        if self.pauses:
            return False
        records: cython.bint = self._free_count > 0
        for _ in range(limit):
            if not self._free_count:
                break
            self._pull_last()
        items: cython.bint = self.arena.dead > 4096 and 10 * self.arena.dead > self.arena.live
        if items:
            self._compact(limit, 95)
        return records or items

    def wasted_bytes(self) -> int:
        """Return the bytes of gaps between records and between items, which `defrag_step` can fill. O(1)"""
        return int(self.arena.dead + self._free_count * self._stride)

    def detach(self) -> Dict:
        """Return a dict with all entries of this one, which becomes empty: to free them in steps. O(1)"""
        old = Dict(self.has_values, self.has_objects, self.has_numbers, self.newest)
        old._take(self)
        self._start()
        return old

    def _take(self, other: Dict) -> None:
        self.rehashidx, self.exp0, self.exp1 = other.rehashidx, other.exp0, other.exp1
        self.used0, self.used1 = other.used0, other.used1
        self._table0, self._table1, self._records = other._table0, other._table1, other._records
        self._top, self._free, self._free_count = other._top, other._free, other._free_count
        self._objects, self._object_slots, self.arena = other._objects, other._object_slots, other.arena
        self._walk_page, self._walk_offset = other._walk_page, other._walk_offset
        self._next_page = other._next_page

    def clear(self) -> None:
        """Remove all entries; later operations free their memory, a block or an object each (dictEmpty). O(1)"""
        self._discard()

    @cython.ccall
    def free_some(self, limit: cython.Py_ssize_t, into: list[Any] | None = None) -> cython.bint:
        """Remove all entries and free up to `limit` blocks or objects; return whether more remain. O(limit)

        With `into`, objects are appended to that list, so that the caller can free large ones in steps too.
        """
        if self.exp0 >= 0:
            self._discard()
        return self._free_vacated(limit, into)

    def copy(self) -> Dict:
        """Return a copy with equal keys, values at rest and numbers, and the same objects. O(n)"""
        twin = Dict(self.has_values, self.has_objects, self.has_numbers, self.newest)
        twin._take(self)
        twin._table0, twin._records = self._table0.copy(), self._records.copy()
        # After a rehash, both names mean the same table.
        twin._table1 = self._table1.copy() if self.rehashidx >= 0 else twin._table0
        twin.arena = self.arena.copy()
        twin._objects = [None if chunk is None else chunk[:] for chunk in self._objects]
        return twin

    # -- inspection --------------------------------------------------------------------------------------

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes that the dict uses, without its objects and what still waits to be freed. O(1)"""
        size: cython.Py_ssize_t = _EMPTY_BYTES + self._table0.memory_bytes() + self._records.memory_bytes()
        if self.rehashidx >= 0:
            size += self._table1.memory_bytes()
        return size + self.arena.pages.memory_bytes() + 8 * self._object_slots

    def chain_lengths(self, table: int) -> list[int]:
        """Return how many buckets of table 0 or 1 have 0, 1, 2 ... entries, in 50 classes. O(buckets)"""
        exp: cython.int = self.exp1 if table else self.exp0
        buckets: BlockList = self._table1 if table else self._table0
        counts: list[int] = [0] * 50
        index: cython.Py_ssize_t
        for index in range(table_mask(exp) + 1):
            length: cython.Py_ssize_t = 0
            link: cython.Py_ssize_t = bucket(buckets, index)
            while link:
                length += 1
                link = u32(self._record(link - 1), 0)
            counts[min(length, 49)] += 1
        return counts

    def stats(self, full: bool = True) -> str:
        """Return the text of DEBUG HTSTATS; the newest version gives the chains only if `full` (dictGetStats)."""
        return describe(self, full)

    def check(self) -> None:
        """Raise AssertionError if an invariant is violated. O(n)"""
        check_dict(self)

    def layout(self) -> dict[str, Any]:
        """Return the internal state that `check` verifies: chains, gaps and places. O(n)"""
        chains: list[list[list[int]]] = []
        for second in (False, True):
            table: BlockList = self._table1 if second else self._table0
            rows: list[list[int]] = []
            for index in range(table_mask(self.exp1 if second else self.exp0) + 1):
                row: list[int] = []
                self._collect(table, index, row)
                rows.append(row)
            chains.append(rows)
        gaps = []
        link, before = self._free, 0
        while link:
            record = self._record(link - 1)
            assert u64(record, 8) == _FREE_MARK and u32(record, 4) == before
            gaps.append(link - 1)
            before, link = link, u32(record, 0)
        return {
            "chains": chains,
            "gaps": gaps,
            "gap_count": self._free_count,
            "records": self._top,
            "hashes": [u32(self._record(n), 4) for n in range(self._top)],
            "places": [u64(self._record(n), 8) & _PLACE_MASK for n in range(self._top)],
            "sizes": [
                0 if u64(self._record(n), 8) == _FREE_MARK else item_size(self._item(n), self.has_values)
                for n in range(self._top)
            ],
            "objects": self._objects,
            "object_slots": self._object_slots,
        }
