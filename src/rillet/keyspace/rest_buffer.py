"""RestBuffer: one small value, unpacked from its bytes at rest (types/at_rest.py) while a command reads or changes it.

    bytes in the dict      tag | head of a list | listpack         tag | intset
           |  load                                  ^ compose
           v                                        |
    RestBuffer             rest: tag and head    packed: the listpack    numbers: the members of the intset

The buffer belongs to an engine and is used again for each command, so a small value that a command changes needs no
Python object. A command that fails, or finds that the result cannot rest, leaves the buffer as it is: the dict has not
changed.

A value of more than LIMIT bytes cannot rest. `append`, `prepend` and `replace` do nothing once the result
exceeds it, so the buffer stays small whatever a client sends; `outgrown` then returns True.

`load_hash` presents the unpacked value as a `Hash`, so that commands change it by the same operations as an object. Two
objects are used again for that: one of pairs, which is also a small hashtable, and one of fields that may expire.

`take_limits` copies the settings that choose an encoding, because each command compares them.

Costs: load and compose O(bytes), at most 1 KiB; `append` O(size); `prepend`, `replace`, `add_number` and
`remove_number` O(n).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.listpack import HEADER_SIZE, Listpack
from rillet.types.at_rest import LIMIT, TABLE_LIMIT
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits, has_compact
from rillet.types.hash import FieldExpiry, Hash
from rillet.types.zset import Zset

if not cython.compiled:  # the compiled module gets these C functions from its .pxd file
    from rillet.structs.dict_table import put_u32, u32

if TYPE_CHECKING:  # a C function, which the .pxd declares for the compiled module
    memcpy: Any

HASH, ZSET, SET, INTSET, LIST, SET_TABLE, HASH_TABLE = 3, 4, 5, 6, 7, 8, 9
"""The tags of collections (types/at_rest.py)."""
_INTSET = cython.declare(cython.int, INTSET)
_LIST = cython.declare(cython.int, LIST)
_SET_TABLE = cython.declare(cython.int, SET_TABLE)
_HASH_TABLE = cython.declare(cython.int, HASH_TABLE)
_HASH = cython.declare(cython.int, HASH)
_LIMIT = cython.declare(cython.Py_ssize_t, LIMIT)
_TABLE_LIMIT = cython.declare(cython.Py_ssize_t, TABLE_LIMIT)
_HEADER = cython.declare(cython.Py_ssize_t, HEADER_SIZE)
_TRIPLES = cython.declare(cython.int, 10)
_LIST_HEAD = cython.declare(cython.Py_ssize_t, 6)
_TRIPLES_HEAD = cython.declare(cython.Py_ssize_t, 9)
_INTSET_HEAD = cython.declare(cython.Py_ssize_t, 8)
_NUMBERS = cython.declare(cython.Py_ssize_t, 512)
_MOST = 2**62  # the greatest limit: settings have 64 bits


@cython.final
@cython.cclass
class RestBuffer:
    """A value at rest: `rest[:head]` and `packed`, or the integers of an intset; and the limits of encodings.

    words: the arguments of the command that uses the buffer, if they are a list. hash, entry: of its key.
    first, last: a range that it names. full: an entry is missing in the listpack, because the value cannot rest.
    zset: the object of the sorted set in `packed` while a command uses it.
    """

    __slots__ = (
        "compact", "entry", "expiring_hash", "first", "full", "hash", "hash_entries", "hash_value", "head",
        "intset_entries", "last", "list_depth", "list_size", "list_threshold", "numbers", "packed", "rest",
        "set_entries", "set_value", "small_hash", "stream_bytes", "stream_entries", "valkey", "words", "zset",
        "zset_classic", "zset_entries", "zset_value", "_numbers", "_width",
    )  # fmt: skip
    _numbers: Any

    def __init__(self) -> None:
        self.packed = Listpack(2048)
        self.zset = Zset()
        self.rest = bytearray(2048)
        self.words = ArgumentSpans()
        self.small_hash = Hash()
        self.small_hash.listpack = self.packed
        self.expiring_hash = Hash()
        self.expiring_hash.listpack = None
        self.expiring_hash.expiry = FieldExpiry(self.packed, None)
        self.expiring_hash.tag = _TRIPLES
        self.head = 1
        self.full = False
        self.hash = 0
        self.entry = -1
        self.first = self.last = 0
        self.numbers = 0
        self._width = 2
        if not cython.compiled:
            self._numbers = [0] * 513
        self.take_limits(DEFAULTS)

    def take_limits(self, limits: EncodingLimits) -> None:
        """Copy the limits of encodings."""
        self.compact = has_compact(limits)
        self.hash_entries = min(limits.hash_max_listpack_entries, _MOST)
        self.hash_value = min(limits.hash_max_listpack_value, _MOST)
        self.set_entries = min(limits.set_max_listpack_entries, _MOST)
        self.set_value = min(limits.set_max_listpack_value, _MOST)
        self.intset_entries = min(limits.set_max_intset_entries, _MOST)
        self.zset_entries = min(limits.zset_max_listpack_entries, _MOST)
        self.zset_value = min(limits.zset_max_listpack_value, _MOST)
        self.zset_classic = not self.compact
        self.valkey = limits.compat.valkey
        self.list_size = max(-5, min(limits.list_max_listpack_size, 32767))
        self.list_depth = max(0, min(limits.list_compress_depth, 65535))
        self.list_threshold = limits.quicklist_packed_threshold
        self.stream_bytes = limits.stream_node_max_bytes
        self.stream_entries = limits.stream_node_max_entries

    # -- from and to the bytes at rest ---------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def load(self, keys: Dict, n: cython.Py_ssize_t) -> cython.int:
        """Unpack the value of an entry, which has no object, if it is a collection; return its tag."""
        at: cython.p_const_uchar = keys.value_span(n)
        size: cython.Py_ssize_t = keys.span_size
        tag: cython.int = at[0]
        i: cython.Py_ssize_t
        self.full = False
        if tag == _INTSET:
            self._load_numbers(at)
        elif _HASH <= tag <= _TRIPLES:
            self.head = _LIST_HEAD if tag == _LIST else _TRIPLES_HEAD if tag == _TRIPLES else 1
            if cython.compiled:
                self.rest[0] = tag
                for i in range(1, self.head):
                    self.rest[i] = at[i]
                self.packed.load(at + self.head, size - self.head)
            else:
                self.rest[: self.head] = at[: self.head]
                self.packed.load(at[self.head : size], size - self.head)
        return tag

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def start(self, tag: cython.int) -> cython.bint:
        """Begin with an empty listpack."""
        self.head = 1
        self.full = False
        self.rest[0] = tag
        return self.packed.clear()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def start_list(self) -> cython.bint:
        """Begin with an empty list, which has the limits of the settings (types/list.py)."""
        self.start(_LIST)
        self.head = _LIST_HEAD
        self.rest[1] = 1 if self.compact else 2
        self.rest[2] = self.list_size & 0xFF
        self.rest[3] = (self.list_size >> 8) & 0xFF
        self.rest[4] = self.list_depth & 0xFF
        self.rest[5] = (self.list_depth >> 8) & 0xFF
        return True

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
    @cython.exceptval(-1, check=False)
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

    # -- changes of the listpack, up to the limit ----------------------------------------------------

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _takes(self, size: cython.Py_ssize_t) -> cython.bint:
        """Return whether an entry of so many bytes may be added: the value may still rest."""
        if size > _LIMIT or self.packed.used > _LIMIT:
            self.full = True
        return not self.full

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def append(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Append the bytes at a memory address as an entry; return False if the value cannot rest."""
        return self._takes(size) and self.packed.append_span(at, size)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def prepend(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Insert the bytes at a memory address as the first entry; return False if the value cannot rest."""
        if not self._takes(size):
            return False
        self.packed.insert_span(_HEADER, at, size)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def replace(self, pos: cython.Py_ssize_t, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Replace the entry at pos by the bytes at a memory address; return False if the value cannot rest."""
        if not self._takes(size):
            return False
        self.packed.replace_span(pos, at, size)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def outgrown(self, tag: cython.int) -> cython.bint:
        """Return whether the listpack cannot rest as a value with this tag: it needs more bytes or another form."""
        if self.full or self.packed.used > _LIMIT:
            return True
        if tag == _HASH_TABLE:
            return self.packed.length() > 2 * _TABLE_LIMIT
        if tag == _SET_TABLE:
            return self.packed.length() > _TABLE_LIMIT
        return tag == _LIST and not self._list_keeps_its_form()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def compose(self) -> cython.Py_ssize_t:
        """Write the value's bytes to `rest`; return their number. The value fits."""
        size: cython.Py_ssize_t = self.head + self.packed.used
        if cython.compiled:
            to: cython.p_uchar = self.rest
            fr: cython.p_uchar = self.packed.buf
            memcpy(to + self.head, fr, self.packed.used)  # noqa: F821
        else:
            self.rest[self.head : size] = self.packed.buf[: self.packed.used]
        return size

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _list_keeps_its_form(self) -> cython.bint:
        """Return whether a list may have so many elements without a conversion or a second node; its size fits."""
        single: cython.bint = self.rest[1] & 1 != 0
        fill: cython.int = self.rest[2] | self.rest[3] << 8
        if single and not self.compact:
            return False
        if single:
            fill = self.list_size
        elif fill & 0x8000:
            fill -= 0x10000
        return fill < 0 or self.packed.length() <= fill

    # -- intsets -------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def start_numbers(self) -> cython.bint:
        """Begin with an empty intset."""
        self.numbers = 0
        self._width = 2
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _load_numbers(self, at: cython.p_const_uchar) -> cython.bint:
        """Read the integers of an intset after its tag. They are not aligned in memory, so they are copied."""
        i: cython.Py_ssize_t
        if cython.compiled:
            two: cython.short = 0
            four: cython.int = 0
            memcpy(cython.address(four), at + 1, 4)  # noqa: F821
            self._width = four
            memcpy(cython.address(four), at + 5, 4)  # noqa: F821
            self.numbers = min(four, _NUMBERS)
            at += 1 + _INTSET_HEAD
            if self._width == 8:
                memcpy(cython.address(self._numbers[0]), at, 8 * self.numbers)  # noqa: F821
            elif self._width == 4:
                for i in range(self.numbers):
                    memcpy(cython.address(four), at + 4 * i, 4)  # noqa: F821
                    self._numbers[i] = four
            else:
                for i in range(self.numbers):
                    memcpy(cython.address(two), at + 2 * i, 2)  # noqa: F821
                    self._numbers[i] = two
            return True
        self._width, self.numbers = u32(at, 1), u32(at, 5)
        for i in range(self.numbers):
            start = 9 + i * self._width
            self._numbers[i] = int.from_bytes(at[start : start + self._width], "little", signed=True)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _index(self, value: cython.longlong) -> cython.Py_ssize_t:
        """Return the index of an integer, or the one at which it belongs. O(log n)"""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self.numbers
        middle: cython.Py_ssize_t
        if high and self._numbers[high - 1] < value:
            return high
        while low < high:
            middle = (low + high) >> 1
            if self._numbers[middle] < value:
                low = middle + 1
            else:
                high = middle
        return low

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def has_number(self, value: cython.longlong) -> cython.bint:
        """Return whether an integer is a member. O(log n)"""
        at: cython.Py_ssize_t = self._index(value)
        return at < self.numbers and self._numbers[at] == value

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_number(self, value: cython.longlong) -> cython.bint:
        """Add an integer; return False if it is a member already. The caller calls `numbers_fit` after each one."""
        at: cython.Py_ssize_t = self._index(value)
        i: cython.Py_ssize_t = self.numbers
        if at < self.numbers and self._numbers[at] == value:
            return False
        if not -32768 <= value <= 32767:
            self._width = max(self._width, 4 if -2147483648 <= value <= 2147483647 else 8)
        while i > at:
            self._numbers[i] = self._numbers[i - 1]
            i -= 1
        self._numbers[at] = value
        self.numbers += 1
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def remove_number(self, value: cython.longlong) -> cython.bint:
        """Remove an integer; return False if it is not a member. The width stays, as in Redis (intsetRemove)."""
        at: cython.Py_ssize_t = self._index(value)
        i: cython.Py_ssize_t
        if at == self.numbers or self._numbers[at] != value:
            return False
        self.numbers -= 1
        for i in range(at, self.numbers):
            self._numbers[i] = self._numbers[i + 1]
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def number_at(self, index: cython.Py_ssize_t) -> cython.longlong:
        """Return the member at an existing index."""
        number: cython.longlong = self._numbers[index]
        return number

    @cython.cfunc
    @cython.exceptval(check=False)
    def numbers_fit(self) -> cython.bint:
        """Return whether the intset is small enough to rest."""
        return self.numbers < _NUMBERS and _INTSET_HEAD + self.numbers * self._width <= _LIMIT

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def compose_numbers(self) -> cython.Py_ssize_t:
        """Write the bytes of the intset to `rest`; return their number. The intset fits."""
        i: cython.Py_ssize_t
        self.rest[0] = _INTSET
        if cython.compiled:
            p: cython.p_uchar = self.rest
            two: cython.short
            four: cython.int = self._width
            memcpy(p + 1, cython.address(four), 4)  # noqa: F821
            four = cython.cast(cython.int, self.numbers)
            memcpy(p + 5, cython.address(four), 4)  # noqa: F821
            p += 1 + _INTSET_HEAD
            if self._width == 8:
                memcpy(p, cython.address(self._numbers[0]), 8 * self.numbers)  # noqa: F821
            elif self._width == 4:
                for i in range(self.numbers):
                    four = cython.cast(cython.int, self._numbers[i])
                    memcpy(p + 4 * i, cython.address(four), 4)  # noqa: F821
            else:
                for i in range(self.numbers):
                    two = cython.cast(cython.short, self._numbers[i])
                    memcpy(p + 2 * i, cython.address(two), 2)  # noqa: F821
        else:
            put_u32(memoryview(self.rest), 1, self._width)
            put_u32(memoryview(self.rest), 5, self.numbers)
            for i in range(self.numbers):
                start = 9 + i * self._width
                self.rest[start : start + self._width] = self._numbers[i].to_bytes(self._width, "little", signed=True)
        return 1 + _INTSET_HEAD + self.numbers * self._width


__all__ = ["HASH", "HASH_TABLE", "INTSET", "LIST", "SET", "SET_TABLE", "ZSET", "RestBuffer"]
