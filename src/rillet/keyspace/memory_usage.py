"""The size of the data in memory: one number that is always known (Redis: zmalloc_used_memory).

    used_memory = tables of the databases     Dict knows the bytes of its blocks, with the values at rest
                + values that are objects     the `total` of each database's Ledger
                + values that wait to be freed, buffers of clients, buffer of the log

Redis counts each allocation. Here most bytes are in buffers whose owners know their sizes, so a value's size follows in
O(1) from a few attributes (`value_bytes`). The value stores what was counted for it (`charge`), and the ledger holds
the sum:

    command looks up a value   -> Ledger.note: the value waits, because the command may change its size
    next command, or a query   -> Ledger.settle: total += value_bytes(value) - charge, for each value that waits
    value leaves the database  -> Ledger.leave: total -= charge

So no command measures a value twice, and a thousand XADDs to one stream measure it once. The sum of the charges equals
`total` at any time (`Database.check`); a charge may be older than its value only until the next command.

`value_bytes` counts what Python's allocator hands out: sizes are rounded up to 16, larger blocks have 8 bytes more. The
interpreter, its modules and the free memory that it keeps are not included: INFO shows them in used_memory_rss.

Costs: all functions O(1), `settle` O(values that wait). Rejected alternatives, with measurements in
docs/design/0025-used-memory.md: the resident size (it does not fall when data is deleted), glibc's mallinfo2 (it walks
all free blocks, and Python's own arenas are not in it), hooks in Python's allocator (slower by 8 % and more, and they
count the memory of the application around an embedded store).
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

from rillet._cython import cython, readonly
from rillet.structs.dict import Dict
from rillet.structs.intset import Intset
from rillet.structs.listpack import Listpack
from rillet.structs.quicklist import Quicklist, QuicklistNode
from rillet.structs.rax import Rax
from rillet.structs.skiplist import Skiplist
from rillet.types.array import Array
from rillet.types.at_rest import to_rest
from rillet.types.hash import Hash
from rillet.types.list import List
from rillet.types.module import ModuleValue
from rillet.types.set import Set
from rillet.types.sized import SizedValue
from rillet.types.stream.pending import PendingTable
from rillet.types.stream.stream import Stream
from rillet.types.string import String, new_string
from rillet.types.zset import Zset

_SMALL = cython.declare(cython.Py_ssize_t, 512)  # larger blocks come from malloc (obmalloc.c)
_PAGE = cython.declare(cython.Py_ssize_t, 72)  # a page of an arena: its object, list entry and address
_BYTES = cython.declare(cython.Py_ssize_t, sys.getsizeof(b""))
_BUFFER = cython.declare(cython.Py_ssize_t, 64)  # a bytearray object
_EMPTY_BUFFER = cython.declare(cython.Py_ssize_t, sys.getsizeof(bytearray()))
_STRING = cython.declare(cython.Py_ssize_t, sys.getsizeof(new_string(b"")))
_LISTPACK = cython.declare(cython.Py_ssize_t, sys.getsizeof(Listpack()))
_STREAM = cython.declare(cython.Py_ssize_t, sys.getsizeof(Stream()) + 645)
_LIST = cython.declare(cython.Py_ssize_t, sys.getsizeof(List()) + sys.getsizeof(Quicklist()) + 2 * 64)
_LIST_NODE = cython.declare(cython.Py_ssize_t, sys.getsizeof(QuicklistNode()))
_OBJECT = cython.declare(cython.Py_ssize_t, sys.getsizeof(Hash()))
_INTSET = cython.declare(cython.Py_ssize_t, sys.getsizeof(Intset()))
_RAX_NODE = cython.declare(cython.Py_ssize_t, 80)  # with its characters
_PENDING = cython.declare(cython.Py_ssize_t, 14)  # of a pending entry, in three indexes
_CONSUMER = cython.declare(cython.Py_ssize_t, 250)  # without entries
_GROUP = cython.declare(cython.Py_ssize_t, 320)  # with its place in the stream, without entries and consumers
_GROWING = cython.declare(cython.Py_ssize_t, 1 << 17)  # bytes of a table with blocks that still grow
_HELD = cython.declare(cython.Py_ssize_t, 64)  # values that one command may look up and change
_CONSUMER_PAGE = cython.declare(cython.Py_ssize_t, 190)  # its first page of entries


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def allocated(size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the bytes that the allocator uses for a block."""
    return (size + 15) & ~15 if size <= _SMALL else (size + 23) & ~15


@cython.ccall
def dict_bytes(table: Dict) -> cython.Py_ssize_t:
    """Return the bytes of a dict; the last blocks of keys and records count as far as they are filled. O(1)"""
    pages: cython.Py_ssize_t = len(table.arena.pages.blocks) - len(table.arena.vacant)
    size: cython.Py_ssize_t = table.memory_bytes() - table.arena.pages.memory_bytes()
    size += table.arena.live + table.arena.dead + pages * _PAGE
    if cython.compiled:
        size += table._top * table._stride - table._records.size
    return size


@cython.cfunc
@cython.exceptval(check=False)
def listpack_bytes(packed: Listpack) -> cython.Py_ssize_t:
    """Return the bytes of a listpack and its buffer."""
    return allocated(_LISTPACK) + _BUFFER + allocated(len(packed.buf) + 1)


@cython.cfunc
@cython.exceptval(check=False)
def string_bytes(string: String) -> cython.Py_ssize_t:
    """Return the bytes of a string. One that grows has spare room, and its moves leave gaps of 3 % in malloc's heap."""
    if string.grown is None:
        return allocated(_STRING) + allocated(_BYTES + len(string.data))
    room: cython.Py_ssize_t = sys.getsizeof(string.grown)
    return allocated(_STRING) + _BUFFER + allocated(room - _EMPTY_BUFFER) + (room >> 5)


@cython.cfunc
def stream_bytes(stream: Stream) -> cython.Py_ssize_t:
    """Return the bytes of a stream with its nodes and groups. O(1)"""
    rax: Rax = stream.rax
    pending: PendingTable = stream.pending
    size: cython.Py_ssize_t = _STREAM + stream.node_bytes
    size += rax.numele * (allocated(_LISTPACK) + _BUFFER) + rax.numnodes * _RAX_NODE
    size += len(pending.buf) + pending.count * _PENDING
    consumers: cython.Py_ssize_t = len(pending.owners) - len(pending.spare_owners)
    # `owners` also counts the consumer `nobody` of each group, which owns the entries that XNACK released.
    size += len(stream.groups) * _GROUP + consumers * _CONSUMER + min(consumers, pending.count) * _CONSUMER_PAGE
    if stream.idmp is not None:
        producers: Any = stream.idmp.producers
        seen: list[Any] = list(islice(producers.values(), 8))
        messages: cython.Py_ssize_t = 0
        for producer in seen:
            messages += 230 * len(producer.ids) + producer.iid_bytes
        if seen:
            size += len(producers) * (400 + messages // len(seen))
    return size


@cython.ccall
def value_bytes(value: object) -> cython.Py_ssize_t:
    """Return the bytes of a key's value, without its key and entry. O(1)"""
    kind: object = type(value)
    any_value: Any = value
    if kind is String:
        return string_bytes(value)  # type: ignore[arg-type]
    if kind is Stream:
        return stream_bytes(value)  # type: ignore[arg-type]
    if kind is List:
        elements: Quicklist = any_value.elements
        return _LIST + elements.node_bytes + elements.nodes * (_LIST_NODE + allocated(_LISTPACK) + _BUFFER + 8)
    if kind is Array:
        array: Array = value  # type: ignore[assignment]
        return allocated(_OBJECT) + array.cells.memory_bytes()
    packed: object = any_value.listpack
    if packed is not None:
        return allocated(_OBJECT) + listpack_bytes(packed)  # type: ignore[arg-type]
    if kind is Set and any_value.intset is not None:
        return allocated(_OBJECT) + _INTSET + allocated(sys.getsizeof(any_value.intset.buf))
    if kind is ModuleValue:
        return any_value.size()  # type: ignore[no-any-return]
    size: cython.Py_ssize_t = 0
    if kind is Hash and any_value.expiry is not None:
        size = allocated(_OBJECT)
        if any_value.expiry.triples is not None:
            return allocated(_OBJECT) + size + listpack_bytes(any_value.expiry.triples)
        size += any_value.expiry.times.memory_bytes()
    table: Dict = any_value.table
    size += table.memory_bytes()
    if kind is Zset:
        skiplist: Skiplist = any_value.skiplist
        size += skiplist.memory_bytes()
    # Blocks that grow leave gaps in malloc's heap, 1 to 10 %, until they have their full size.
    gaps: cython.Py_ssize_t = size // 20 if size < _GROWING else 0
    return allocated(_OBJECT) + size + gaps


def key_bytes(database: Any, key: bytes) -> int:
    """Return the bytes of a key with its value, entry, bucket and expiry; -1 if the key does not exist. O(1)

    A small value counts as at rest: whether a command has woken it does not change the size.
    """
    keys: Dict = database.keys
    n = keys.find(key)
    if n < 0:
        return -1
    value = keys.object_at(n)
    rest: bytes | None = None if value is None else to_rest(value)
    # The bytes from which a value was woken stay at its entry.
    kept = int(keys.value_size(n)) if rest is None else len(rest)
    size = kept + (value_bytes(value) + 8 if value is not None and rest is None else 0) + _entry_bytes(key)
    if database.expires.find(key) >= 0:
        size += _entry_bytes(key) + 8
    return size


def _entry_bytes(key: bytes) -> int:
    """Return the bytes of a key's item, record and two buckets: half of the buckets may be empty."""
    return len(key) + (1 if len(key) < 64 else 2) + 16 + 8


@cython.final
@cython.cclass
class Ledger:
    """The size of the values of one database that are objects; `waiting` are the values to measure again."""

    __slots__ = ("total", "waiting")
    total: readonly[cython.Py_ssize_t]
    waiting: readonly[list[Any]]

    def __init__(self) -> None:
        self.total = 0
        self.waiting = []

    @cython.ccall
    def note(self, value: object) -> cython.bint:
        """Measure the value later: the caller may change it. O(1)"""
        count: cython.Py_ssize_t = len(self.waiting)
        if count == 0 or self.waiting[count - 1] is not value:
            self.waiting.append(value)
        return True

    @cython.ccall
    def leave(self, value: object) -> cython.bint:
        """Subtract a value that left the database. O(1) amortized

        The search reads the last values that wait. A transaction can leave many more: those before them are measured,
        because the command that runs now has looked up only the last ones.
        """
        at: cython.Py_ssize_t = len(self.waiting) - 1
        if at >= 2 * _HELD:
            earlier: list[Any] = self.waiting[: at - _HELD]
            del self.waiting[: at - _HELD]
            for other in earlier:
                self._measure(other)
            at = len(self.waiting) - 1
        while at >= 0:
            if self.waiting[at] is value:
                self.waiting.pop(at)
            at -= 1
        if type(value) is String:
            string: String = value
            self.total -= 16 * cython.cast(cython.Py_ssize_t, string.charge)
            string.charge = 0
        elif cython.compiled:
            sized: SizedValue = value
            self.total -= sized.charge
            sized.charge = 0
        else:
            any_value: Any = value
            self.total -= getattr(any_value, "charge", 0)
            any_value.charge = 0
        return True

    @cython.ccall
    def settle(self) -> cython.bint:
        """Measure the values that wait. O(values that wait)"""
        waiting: list[Any] = self.waiting
        if waiting:
            self.waiting = []
            for value in waiting:
                self._measure(value)
        return True

    @cython.cfunc
    def _measure(self, value: object) -> cython.bint:
        """Charge a value of the database with its present size."""
        size: cython.Py_ssize_t = value_bytes(value)
        if type(value) is String:
            string: String = value
            size = (size + 15) >> 4
            self.total += 16 * (size - cython.cast(cython.Py_ssize_t, string.charge))
            string.charge = size
        elif cython.compiled:
            sized: SizedValue = value
            self.total += size - sized.charge
            sized.charge = size
        else:
            any_value: Any = value
            self.total += size - getattr(any_value, "charge", 0)
            any_value.charge = size
        return True

    def check(self, values: Any) -> None:
        """Raise AssertionError unless `total` is the sum of the charges of the database's values. O(values)"""
        self.settle()
        total = 0
        for value in values:
            total += getattr(value, "charge", 0) * (16 if type(value) is String else 1)
        assert total == self.total, f"the ledger has {self.total} bytes, the values {total}"
