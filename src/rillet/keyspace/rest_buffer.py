"""RestBuffer: one small value, unpacked from its bytes at rest (types/at_rest.py) while a command reads or changes it.

    bytes in the dict      tag | head of a list | listpack         tag | intset
           |  load                                  ^ compose
           v                                        |
    RestBuffer             rest: tag and head    packed: the listpack    numbers: the members of the intset

The buffer belongs to an engine and is used again for each command, so a small value that a command changes needs no
Python object. A command that fails, or finds that the result cannot rest, leaves the buffer as it is: the dict has not
changed.

`take_limits` copies the settings that choose an encoding, because each command compares them.

Costs: load and compose O(bytes), at most 1 KiB; `add_number` O(n).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.listpack import Listpack
from rillet.types.at_rest import LIMIT, TABLE_LIMIT
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits, has_compact

if not cython.compiled:
    from rillet.structs.dict_table import put_u32, u32

if TYPE_CHECKING:  # a C function, which the .pxd declares for the compiled module
    memcpy: Any

HASH, ZSET, SET, INTSET, LIST, SET_TABLE, HASH_TABLE = 3, 4, 5, 6, 7, 8, 9
"""The tags of collections (types/at_rest.py)."""
_INTSET = cython.declare(cython.int, INTSET)
_LIST = cython.declare(cython.int, LIST)
_HASH_TABLE = cython.declare(cython.int, HASH_TABLE)
_HASH = cython.declare(cython.int, HASH)
_LIMIT = cython.declare(cython.Py_ssize_t, LIMIT)
_TABLE_LIMIT = cython.declare(cython.Py_ssize_t, TABLE_LIMIT)
_LIST_HEAD = cython.declare(cython.Py_ssize_t, 6)
_INTSET_HEAD = cython.declare(cython.Py_ssize_t, 8)
_NUMBERS = cython.declare(cython.Py_ssize_t, 512)
_MOST = 2**62  # the greatest limit: settings have 64 bits


@cython.final
@cython.cclass
class RestBuffer:
    """A value at rest: `rest[:head]` and `packed`, or the integers of an intset; and the limits of encodings.

    words: the arguments of the command that uses the buffer, if they are a list. hash, entry: of its key.
    first, last: a range that it names.
    """

    __slots__ = (
        "compact", "entry", "first", "hash", "hash_entries", "hash_value", "head", "intset_entries", "last",
        "list_depth", "list_size", "list_threshold", "numbers", "packed", "rest", "set_entries", "set_value", "words",
        "zset_classic", "zset_entries", "zset_value", "_numbers", "_width",
    )  # fmt: skip
    _numbers: Any

    def __init__(self) -> None:
        self.packed = Listpack(2048)
        self.rest = bytearray(2048)
        self.words = ArgumentSpans()
        self.head = 1
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
        self.list_size = max(-5, min(limits.list_max_listpack_size, 32767))
        self.list_depth = max(0, min(limits.list_compress_depth, 65535))
        self.list_threshold = limits.quicklist_packed_threshold

    # -- from and to the bytes at rest ---------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def load(self, keys: Dict, n: cython.Py_ssize_t) -> cython.int:
        """Unpack the value of an entry, which has no object, if it is a collection; return its tag."""
        at: cython.p_const_uchar = keys.value_span(n)
        size: cython.Py_ssize_t = keys.span_size
        tag: cython.int = at[0]
        i: cython.Py_ssize_t
        if tag == _INTSET:
            self._load_numbers(at)
        elif _HASH <= tag <= _HASH_TABLE:
            self.head = _LIST_HEAD if tag == _LIST else 1
            if cython.compiled:
                self.rest[0] = tag
                if tag == _LIST:
                    for i in range(1, _LIST_HEAD):
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

    @cython.cfunc
    @cython.exceptval(check=False)
    def fits(self) -> cython.bint:
        """Return whether the listpack is small enough to rest."""
        return self.packed.used <= _LIMIT

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def table_fits(self, words: cython.Py_ssize_t) -> cython.bint:
        """Return whether a hashtable, whose elements have so many words each, is small enough to rest."""
        return self.packed.used <= _LIMIT and self.packed.length() <= words * _TABLE_LIMIT

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
    def list_keeps_its_form(self) -> cython.bint:
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
        """Read the integers of an intset after its tag."""
        i: cython.Py_ssize_t
        if cython.compiled:
            p: cython.p_uchar = cython.cast(cython.p_uchar, at + 1)
            self._width = u32(p, 0)
            self.numbers = min(u32(p, 4), _NUMBERS)
            for i in range(self.numbers):
                if self._width == 2:
                    self._numbers[i] = cython.cast(cython.p_short, p + _INTSET_HEAD)[i]
                elif self._width == 4:
                    self._numbers[i] = cython.cast(cython.p_int, p + _INTSET_HEAD)[i]
                else:
                    self._numbers[i] = cython.cast(cython.p_longlong, p + _INTSET_HEAD)[i]
            return True
        self._width, self.numbers = u32(at, 1), u32(at, 5)
        for i in range(self.numbers):
            start = 9 + i * self._width
            self._numbers[i] = int.from_bytes(at[start : start + self._width], "little", signed=True)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_number(self, value: cython.longlong) -> cython.bint:
        """Add an integer; return False if it is a member already. The caller compares `numbers_size` after each."""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self.numbers
        middle: cython.Py_ssize_t
        if high and self._numbers[high - 1] < value:
            low = high
        while low < high:
            middle = (low + high) >> 1
            if self._numbers[middle] < value:
                low = middle + 1
            else:
                high = middle
        if low < self.numbers and self._numbers[low] == value:
            return False
        if not -32768 <= value <= 32767:
            self._width = max(self._width, 4 if -2147483648 <= value <= 2147483647 else 8)
        high = self.numbers
        while high > low:
            self._numbers[high] = self._numbers[high - 1]
            high -= 1
        self._numbers[low] = value
        self.numbers += 1
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def has_number(self, value: cython.longlong) -> cython.bint:
        """Return whether an integer is a member. O(log n)"""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self.numbers
        middle: cython.Py_ssize_t
        while low < high:
            middle = (low + high) >> 1
            if self._numbers[middle] < value:
                low = middle + 1
            else:
                high = middle
        return low < self.numbers and self._numbers[low] == value

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
            p += 1
            put_u32(p, 0, self._width)
            put_u32(p, 4, self.numbers)
            for i in range(self.numbers):
                if self._width == 2:
                    cython.cast(cython.p_short, p + _INTSET_HEAD)[i] = cython.cast(cython.short, self._numbers[i])
                elif self._width == 4:
                    cython.cast(cython.p_int, p + _INTSET_HEAD)[i] = cython.cast(cython.int, self._numbers[i])
                else:
                    cython.cast(cython.p_longlong, p + _INTSET_HEAD)[i] = self._numbers[i]
        else:
            put_u32(memoryview(self.rest), 1, self._width)
            put_u32(memoryview(self.rest), 5, self.numbers)
            for i in range(self.numbers):
                start = 9 + i * self._width
                self.rest[start : start + self._width] = self._numbers[i].to_bytes(self._width, "little", signed=True)
        return 1 + _INTSET_HEAD + self.numbers * self._width


__all__ = ["HASH", "HASH_TABLE", "INTSET", "LIST", "SET", "SET_TABLE", "ZSET", "RestBuffer"]
