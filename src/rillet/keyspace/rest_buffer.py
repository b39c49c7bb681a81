"""RestBuffer: one small value, unpacked from its bytes at rest (types/at_rest.py) while a command reads or changes it.

    bytes in the dict      tag | head of a list | listpack         tag | intset
           |  load, unpack_...                      ^ compose, pack_...
           v                                        |
    RestBuffer             packed: the listpack    intset    set, list: a Set or List of one of them

The buffer belongs to an engine and is used again for each command, so a small value that a command changes needs no
Python object. A command that fails, or finds that the result cannot rest, leaves the buffer as it is: the dict has not
changed.

A value of more than LIMIT bytes cannot rest: `outgrown`, or the method that packs it, says so.

A command works on a hash, `zset`, `set` or `list` of the buffer as on any other value of its type, and then packs it,
or takes it as an object. Two objects are used again for hashes: one of pairs, also for a small hashtable, and one of
fields that may expire. No other object may refer to the buffer's own after the command.

`take_limits` copies the settings that choose an encoding, because each command compares them.

Costs: O(bytes), at most 1 KiB, to unpack and to pack.
"""

from __future__ import annotations

from rillet._cython import cython, public, readonly
from rillet.structs.dict import Dict
from rillet.structs.intset import Intset
from rillet.structs.listpack import Listpack
from rillet.structs.memory import copy_slice
from rillet.structs.quicklist import Quicklist, QuicklistNode
from rillet.types.at_rest import LIMIT, TABLE_LIMIT
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits, has_compact
from rillet.types.hash import FieldExpiry, Hash
from rillet.types.list import List, ListLimits
from rillet.types.set import Set, SetLimits
from rillet.types.zset import Zset

if cython.compiled:
    from cython.cimports.libc.string import memcpy


HASH, ZSET, SET, INTSET, LIST, SET_TABLE, HASH_TABLE = 3, 4, 5, 6, 7, 8, 9
"""The tags of collections (types/at_rest.py)."""
_INTSET = cython.declare(cython.int, INTSET)
_LIST = cython.declare(cython.int, LIST)
_SET = cython.declare(cython.int, SET)
_SET_TABLE = cython.declare(cython.int, SET_TABLE)
_HASH_TABLE = cython.declare(cython.int, HASH_TABLE)
_ZSET = cython.declare(cython.int, ZSET)
_HASH = cython.declare(cython.int, HASH)
_LIMIT = cython.declare(cython.Py_ssize_t, LIMIT)
_TABLE_LIMIT = cython.declare(cython.Py_ssize_t, TABLE_LIMIT)
_TRIPLES = cython.declare(cython.int, 10)
_LIST_HEAD = cython.declare(cython.Py_ssize_t, 6)
_TRIPLES_HEAD = cython.declare(cython.Py_ssize_t, 9)
_MOST = 2**62  # the greatest limit: settings have 64 bits


@cython.final
@cython.cclass
class RestBuffer:
    """A value at rest: its tag and `packed`, or `set` or `list`; and the limits of encodings.

    hash, entry: of the key.
    zset: the object of the sorted set in `packed` while a command uses it.
    """

    __slots__ = (
        "compact", "entry", "expiring_hash", "hash", "hash_entries", "hash_value", "head", "intset", "list",
        "list_limits", "packed", "rest", "set", "set_limits", "small_hash", "stream_bytes", "stream_entries", "valkey",
        "zset", "zset_classic", "zset_entries", "zset_value", "_node",
    )  # fmt: skip
    packed: readonly[Listpack]
    rest: readonly[bytearray]
    small_hash: readonly[Hash]
    expiring_hash: readonly[Hash]
    head: readonly[cython.Py_ssize_t]
    hash: public[cython.uint]
    entry: public[cython.Py_ssize_t]
    intset: readonly[Intset]
    set: readonly[Set]
    set_limits: readonly[SetLimits]
    compact: readonly[cython.bint]
    zset: readonly[Zset]
    valkey: readonly[cython.bint]
    zset_classic: readonly[cython.bint]
    hash_entries: readonly[cython.longlong]
    hash_value: readonly[cython.longlong]
    zset_entries: readonly[cython.longlong]
    zset_value: readonly[cython.longlong]
    list: readonly[List]
    list_limits: readonly[ListLimits]
    _node: QuicklistNode
    stream_bytes: readonly[cython.longlong]
    stream_entries: readonly[cython.longlong]

    def __init__(self) -> None:
        self.packed = Listpack(2048)
        self.zset = Zset()
        self.rest = bytearray(2048)
        self.small_hash = Hash()
        self.small_hash.listpack = self.packed
        self.expiring_hash = Hash()
        self.expiring_hash.listpack = None
        self.expiring_hash.expiry = FieldExpiry(self.packed, None)
        self.expiring_hash.tag = _TRIPLES
        self.head = 1
        self.hash = 0
        self.entry = -1
        self.intset = Intset()
        self.set = Set()
        self.set.spare = self.packed
        self.list = List()
        self._node = QuicklistNode(self.packed)
        self.take_limits(DEFAULTS)

    def take_limits(self, limits: EncodingLimits) -> None:
        """Copy the limits of encodings."""
        self.compact = has_compact(limits)
        self.hash_entries = min(limits.hash_max_listpack_entries, _MOST)
        self.hash_value = min(limits.hash_max_listpack_value, _MOST)
        self.set_limits = SetLimits(limits)
        self.zset_entries = min(limits.zset_max_listpack_entries, _MOST)
        self.zset_value = min(limits.zset_max_listpack_value, _MOST)
        self.zset_classic = not self.compact
        self.valkey = limits.compat.valkey
        self.list_limits = ListLimits(limits)
        self.stream_bytes = limits.stream_node_max_bytes
        self.stream_entries = limits.stream_node_max_entries

    # -- from and to the bytes at rest ---------------------------------------------------------------

    @cython.cfunc
    def load(self, keys: Dict, n: cython.Py_ssize_t) -> cython.int:
        """Unpack the value of an entry, which has no object, if it is a collection; return its tag."""
        at: cython.p_const_uchar = keys.value_span(n)
        size: cython.Py_ssize_t = keys.span_size
        tag: cython.int = at[0]
        i: cython.Py_ssize_t
        if tag == _HASH or tag == _HASH_TABLE or tag == _ZSET or tag == _TRIPLES:
            self.head = _TRIPLES_HEAD if tag == _TRIPLES else 1
            if cython.compiled:
                for i in range(self.head):
                    self.rest[i] = at[i]
                self.packed.load(at + self.head, size - self.head)
            else:
                self.rest[: self.head] = at[: self.head]
                self.packed.load(at[self.head : size], size - self.head)
        return tag

    @cython.cfunc
    def start(self, tag: cython.int) -> cython.bint:
        """Begin with an empty listpack."""
        self.head = 1
        self.rest[0] = tag
        return self.packed.clear()

    # -- hashes --------------------------------------------------------------------------------------

    @cython.cfunc
    def load_hash(self, keys: Dict, n: cython.Py_ssize_t) -> Hash:
        """Unpack the value of an entry, which has no object; return None unless it is a hash that needs no object."""
        tag: cython.int = self.load(keys, n)
        if tag == _HASH or tag == _HASH_TABLE:
            self.small_hash.tag = tag
            return self.small_hash
        if tag != _TRIPLES:
            return None  # type: ignore[return-value]
        expiry: FieldExpiry | None = self.expiring_hash.expiry
        assert expiry is not None
        due: cython.longlong = 0
        i: cython.Py_ssize_t
        for i in range(8, 0, -1):
            due = due << 8 | self.rest[i]
        expiry.due = due
        return self.expiring_hash

    @cython.cfunc
    def start_hash(self) -> Hash:
        """Begin with an empty hash."""
        self.start(_HASH)
        self.small_hash.tag = _HASH
        return self.small_hash

    @cython.cfunc
    def compose_hash(self, value: Hash) -> cython.Py_ssize_t:
        """Write the bytes of a packed hash to `rest`; return their number, or 0 if it must be an object."""
        i: cython.Py_ssize_t
        if self.packed.used + self.head - 1 > _LIMIT:
            return 0
        if value.tag == _HASH_TABLE and self.packed.length() > 2 * _TABLE_LIMIT:
            return 0
        expiry: FieldExpiry | None = value.expiry
        if expiry is not None:
            due: cython.longlong = expiry.due
            for i in range(1, _TRIPLES_HEAD):
                self.rest[i] = due & 0xFF
                due >>= 8
        self.rest[0] = value.tag
        return self.compose()

    @cython.cfunc
    def outgrown(self, tag: cython.int) -> cython.bint:
        """Return whether the listpack cannot rest as a value with this tag: it needs more bytes or another form."""
        return self.packed.used > _LIMIT or (tag == _HASH_TABLE and self.packed.length() > 2 * _TABLE_LIMIT)

    @cython.cfunc
    def compose(self) -> cython.Py_ssize_t:
        """Write the value's bytes to `rest`; return their number. The value fits."""
        size: cython.Py_ssize_t = self.head + self.packed.used
        if cython.compiled:
            to: cython.p_uchar = self.rest
            fr: cython.p_uchar = self.packed.buf
            memcpy(to + self.head, fr, self.packed.used)
        else:
            self.rest[self.head : size] = self.packed.buf[: self.packed.used]
        return size

    # -- sets ----------------------------------------------------------------------------------------

    @cython.cfunc
    def unpack_set(self, keys: Dict, n: cython.Py_ssize_t) -> Set:
        """Return `set`, unpacked from an entry that has no object, or None if the value is not a set."""
        at: cython.p_const_uchar = keys.value_span(n)
        size: cython.Py_ssize_t = keys.span_size - 1
        tag: cython.int = at[0]
        value: Set = self.set
        if cython.compiled:
            at += 1
        else:
            at = at[1:]
        value.table = None
        value.hashed = tag == _SET_TABLE
        if tag == _INTSET:
            self.intset.load(at, size)
            value.intset = self.intset
            value.listpack = None
        elif tag == _SET or tag == _SET_TABLE:
            self.packed.load(at, size)
            value.listpack = self.packed
            value.intset = None
        else:
            return None  # type: ignore[return-value]
        return value

    @cython.cfunc
    def new_set(self) -> Set:
        """Return `set` as an empty intset."""
        value: Set = self.set
        self.intset.clear()
        value.intset = self.intset
        value.listpack = None
        value.table = None
        value.hashed = False
        return value

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def pack_set(self) -> cython.Py_ssize_t:
        """Write the bytes of `set` at rest to `rest`; return their number, or -1 if they exceed the limits."""
        value: Set = self.set
        intset: Intset | None = value.intset
        packed: Listpack | None = value.listpack
        if intset is not None and intset.nbytes() <= _LIMIT:
            return self._write(_INTSET, 1, intset.buf, intset.nbytes())
        if packed is None or packed.used > _LIMIT or (value.hashed and packed.length() > _TABLE_LIMIT):
            return -1
        return self._write(_SET_TABLE if value.hashed else _SET, 1, packed.buf, packed.used)

    @cython.cfunc
    def take_set(self) -> Set:
        """Return the members of `set` as a set that lasts. O(bytes)"""
        value: Set = self.set
        taken: Set = Set(
            None if value.intset is None else value.intset.copy(),
            None if value.listpack is None else value.listpack.copy(),
            value.table,
        )
        value.table = None
        if value.hashed:
            taken.to_hashtable()
        return taken

    # -- lists ---------------------------------------------------------------------------------------

    @cython.cfunc
    def unpack_list(self, keys: Dict, n: cython.Py_ssize_t) -> List:
        """Return `list`, unpacked from an entry that has no object, or None if the value is not a list."""
        at: cython.p_const_uchar = keys.value_span(n)
        size: cython.Py_ssize_t = keys.span_size - _LIST_HEAD
        if at[0] != _LIST:
            return None  # type: ignore[return-value]
        flags: cython.int = at[1]
        fill: cython.int = at[2] | at[3] << 8
        depth: cython.int = at[4] | at[5] << 8
        if cython.compiled:
            at += _LIST_HEAD
        else:
            at = at[_LIST_HEAD:]
        self.packed.load(at, size)
        if fill & 0x8000:
            fill -= 0x10000
        self.list.elements.hold(self._node, self.packed, fill, depth, flags & 2 != 0, flags & 1 != 0)
        return self.list

    @cython.cfunc
    def new_list(self) -> List:
        """Return `list` as an empty list."""
        limits: ListLimits = self.list_limits
        self.packed.clear()
        self.list.elements.hold(self._node, self.packed, limits.fill, limits.depth, not limits.compact, limits.compact)
        return self.list

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def pack_list(self) -> cython.Py_ssize_t:
        """Write the bytes of `list` at rest to `rest`; return their number, or -1 if they exceed the limits."""
        elements: Quicklist = self.list.elements
        node: QuicklistNode | None = elements.head
        if elements.nodes != 1 or node is None or node.packed is None or node.packed.used > _LIMIT:
            return -1
        self.rest[1] = (1 if elements.single else 0) | (2 if elements.classic else 0)
        self.rest[2] = elements.fill & 0xFF
        self.rest[3] = elements.fill >> 8 & 0xFF
        self.rest[4] = elements.depth & 0xFF
        self.rest[5] = elements.depth >> 8 & 0xFF
        return self._write(_LIST, _LIST_HEAD, node.packed.buf, node.packed.used)

    @cython.cfunc
    def take_list(self) -> List:
        """Return `list`, which lasts now: the buffer gets another one. O(nodes)"""
        taken: List = self.list
        taken.elements.release(self.packed)
        self.list = List()
        self._node = QuicklistNode(self.packed)
        return taken

    @cython.cfunc
    def _write(
        self, tag: cython.int, head: cython.Py_ssize_t, payload: bytearray, size: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Write a tag, and the first bytes of a payload after the head, to `rest`; return the number of all bytes."""
        self.rest[0] = tag
        copy_slice(self.rest, head, payload, 0, size)
        return head + size
