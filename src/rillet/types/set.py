"""Sets: the value of a key that holds distinct members (Redis: t_set.c).

A set has one of three encodings, which clients see (OBJECT ENCODING) and DUMP exposes:

    intset       all members are canonical 64-bit integers, up to set-max-intset-entries (512)
    listpack     since 7.2: up to set-max-listpack-entries (128), each of up to set-max-listpack-value bytes (64)
    hashtable    anything else

Conversions go only down this list; a newly created set (SINTERSTORE, SPOP of nearly all members) starts again at the
top. An intset that receives a member that is not an integer becomes a listpack if it is small enough, and in 7.0
always a hashtable. An intset with too many members becomes a hashtable, not a listpack.

The hashtable is a `Dict` without values (structs/dict.py): membership, addition, removal and a random member are
O(1), it grows and shrinks in small steps, and SSCAN uses its cursor.

A set that is unpacked for one command (keyspace/rest_buffer.py) has a `spare` listpack, into which it converts without
a new object. Its hashtable is a listpack, too, while it is small (`hashed`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from rillet._cython import cython, public, readonly
from rillet.structs.dict import Dict
from rillet.structs.integer_text import decimal
from rillet.structs.intset import Intset
from rillet.structs.listpack import HEADER_SIZE, Listpack, is_lowest, parse_digits
from rillet.types.encoding_limits import DEFAULTS, PACKED_LIMIT, PACKED_TABLE_LIMIT, EncodingLimits, has_compact
from rillet.types.sized import SizedValue

_HEADER = cython.declare(cython.Py_ssize_t, HEADER_SIZE)
_NOT_INT = cython.declare(cython.longlong, -(2**63))
_INTSET_LIMIT = cython.declare(cython.longlong, 1 << 30)
_SAFETY_LIMIT = cython.declare(cython.longlong, 1 << 30)  # listpack.c: LISTPACK_MAX_SAFETY_SIZE
_PACKED = cython.declare(cython.Py_ssize_t, PACKED_LIMIT)
_PACKED_TABLE = cython.declare(cython.Py_ssize_t, PACKED_TABLE_LIMIT)
_MOST = 2**62  # the greatest limit: settings have 64 bits


@cython.final
@cython.cclass
class SetLimits:
    """The settings that choose the encoding of a set. compact: small sets of strings are listpacks (since 7.2)."""

    __slots__ = ("compact", "entries", "integers", "length")
    compact: readonly[cython.bint]
    integers: readonly[cython.longlong]
    entries: readonly[cython.longlong]
    length: readonly[cython.longlong]

    def __init__(self, limits: EncodingLimits = DEFAULTS) -> None:
        self.compact = has_compact(limits)
        self.integers = min(limits.set_max_intset_entries, _MOST)
        self.entries = min(limits.set_max_listpack_entries, _MOST)
        self.length = min(limits.set_max_listpack_value, _MOST)


_DEFAULTS = cython.declare(SetLimits, SetLimits())


@cython.final
@cython.cclass
class Set(SizedValue):
    """The value of a set key: its members, stored in `intset`, `listpack` or `table`."""

    __slots__ = ("hashed", "intset", "listpack", "spare", "table")
    hashed: public[cython.bint]
    intset: public[Intset | None]
    listpack: public[Listpack | None]
    spare: public[Listpack | None]
    table: public[Dict | None]

    type_name = "set"

    def __init__(
        self, intset: Intset | None = None, listpack: Listpack | None = None, table: Dict | None = None
    ) -> None:
        """Create a set of one of the structures; without one, an empty intset."""
        self.intset = Intset() if intset is None and listpack is None and table is None else intset
        self.listpack = listpack
        self.table = table
        self.spare = None
        self.hashed = False

    @staticmethod
    def empty(encoding: str, expected: int = 0) -> Set:
        """Return an empty set with the given encoding; a hashtable has buckets for the expected members."""
        made: Set = Set()
        if encoding == "listpack":
            made.to_listpack()
        elif encoding == "hashtable":
            made.to_hashtable(expected)
        return made

    @cython.ccall
    def encoding(self) -> str:
        """Return the encoding: intset, listpack or hashtable."""
        if self.intset is not None:
            return "intset"
        return "hashtable" if self.listpack is None or self.hashed else "listpack"

    # -- reading -------------------------------------------------------------------------------------

    @cython.ccall
    def count(self) -> cython.Py_ssize_t:
        """Return the number of members (SCARD). O(1)"""
        if self.intset is not None:
            return self.intset.count
        if self.listpack is not None:
            return self.listpack.length()
        return self.table.used0 + self.table.used1  # type: ignore[union-attr]

    def __len__(self) -> int:
        return self.count()

    def __contains__(self, member: bytes) -> bool:
        return self.has(member, len(member))

    @cython.cfunc
    def has(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Return whether the bytes at an address are a member; O(1), O(log n) in an intset, O(n) in a listpack."""
        if self.intset is not None:
            number: cython.longlong = parse_digits(at, size)
            return (number != _NOT_INT or is_lowest(at, size)) and self.intset.has(number)
        if self.listpack is not None:
            return self.listpack.find_span(_HEADER, at, size, 0) != -1
        return self.table.find_span(at, size) >= 0  # type: ignore[union-attr]

    def __iter__(self) -> Iterator[bytes]:
        """Yield the members: an intset's in rising order, others in the order of insertion or a similar one."""
        if self.intset is not None:
            for number in self.intset:
                yield decimal(number)
        elif self.listpack is not None:
            yield from self.listpack.texts()
        else:
            yield from self.table.keys()  # type: ignore[union-attr]

    def random(self) -> bytes:
        """Return a uniformly random member (setTypeRandomElement). O(1), in a listpack O(n)"""
        if self.table is not None:
            return self.table.entry_key(self.table.uniform_entry())
        index = random.randrange(len(self))
        if self.intset is not None:
            return decimal(self.intset[index])
        return self.listpack.get_bytes(self.listpack.seek(index))  # type: ignore[union-attr]

    def sample(self, count: int) -> list[bytes]:
        """Return up to `count` distinct random members. O(count), in a listpack O(n)"""
        if self.table is not None:
            return list(map(self.table.entry_key, self.table.distinct_sample(count)))
        if self.intset is not None:
            return [decimal(self.intset[at]) for at in random.sample(range(len(self)), count)]
        members = list(self)
        return [members[at] for at in sorted(random.sample(range(len(members)), count))]

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return the next cursor (0 at the end) and some members, or all of a compact set (scanGenericCommand)."""
        if self.table is None:
            return 0, list(self)
        following, entries = self.table.scan(cursor, count)
        return following, list(map(self.table.entry_key, entries))

    # -- changes -------------------------------------------------------------------------------------

    @cython.cfunc
    def start(
        self, at: cython.p_const_uchar, size: cython.Py_ssize_t, expected: cython.Py_ssize_t, limits: SetLimits
    ) -> cython.bint:
        """Choose the encoding of an empty intset for a first member and a number of members (setTypeCreate)."""
        integer: cython.bint = parse_digits(at, size) != _NOT_INT or is_lowest(at, size)
        if integer and (not limits.compact or expected <= limits.integers):
            return True
        if limits.compact and expected <= limits.entries:
            return self.to_listpack()
        return self.to_hashtable(expected if limits.compact else 0)

    @cython.ccall
    def prepare(self, expected: cython.Py_ssize_t, limits: SetLimits) -> cython.bint:
        """Convert to a hashtable if `expected` members require it; return whether (setTypeMaybeConvert; since 7.2)."""
        if not limits.compact or self.table is not None or self.hashed:
            return False
        if expected <= (limits.entries if self.intset is None else limits.integers):
            return False
        return self.to_hashtable()

    def add(self, member: bytes, limits: SetLimits = _DEFAULTS) -> bool:
        """Add a member; return False if it already exists (setTypeAdd)."""
        return self.put(member, len(member), limits)

    @cython.cfunc
    def put(self, at: cython.p_const_uchar, size: cython.Py_ssize_t, limits: SetLimits) -> cython.bint:
        """Add the bytes at an address; return False if they are a member already (setTypeAdd)."""
        if self.table is not None:
            self.table.add_span(at, size, at, -1)
            return self.table.added
        if self.intset is not None:
            number: cython.longlong = parse_digits(at, size)
            if number != _NOT_INT or is_lowest(at, size):
                return self._put_number(number, limits)
            return self._convert_for(size, limits) and self.put(at, size, limits)
        packed: Listpack = self.listpack  # type: ignore[assignment]
        if packed.find_span(_HEADER, at, size, 0) != -1:
            return False
        if self.hashed:
            if packed.length() < _PACKED_TABLE and packed.used <= _PACKED and size <= _PACKED:
                return packed.append_span(at, size)
        elif packed.length() < limits.entries and size <= limits.length and packed.can_append(size):
            return packed.append_span(at, size)
        return self.to_hashtable() and self.put(at, size, limits)

    @cython.cfunc
    def _put_number(self, number: cython.longlong, limits: SetLimits) -> cython.bint:
        """Add an integer to an intset."""
        if not self.intset.add(number):  # type: ignore[union-attr]
            return False
        return self.intset.count <= min(limits.integers, _INTSET_LIMIT) or self.to_hashtable()  # type: ignore[union-attr]

    @cython.cfunc
    def _convert_for(self, size: cython.Py_ssize_t, limits: SetLimits) -> cython.bint:
        """Convert an intset for a member of this size that is not an integer."""
        intset: Intset = self.intset  # type: ignore[assignment]
        count: cython.Py_ssize_t = intset.count
        widest: cython.Py_ssize_t = 0
        if count > 0:
            widest = max(len(decimal(intset.number_at(0))), len(decimal(intset.number_at(count - 1))))
        if (
            limits.compact
            and count < limits.entries
            and max(size, widest) <= limits.length
            and count * (widest + 1) + size <= _SAFETY_LIMIT
        ):
            return self.to_listpack()
        return self.to_hashtable()

    @cython.ccall
    def remove(self, member: bytes) -> cython.bint:
        """Remove a member; return False if it does not exist (setTypeRemove)."""
        return self.remove_span(member, len(member))

    @cython.cfunc
    def remove_span(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Remove the bytes at an address; return False if they are not a member (setTypeRemove)."""
        if self.intset is not None:
            number: cython.longlong = parse_digits(at, size)
            return (number != _NOT_INT or is_lowest(at, size)) and self.intset.remove(number)
        if self.listpack is None:
            return self.table.delete_span(at, size)  # type: ignore[union-attr]
        pos: cython.Py_ssize_t = self.listpack.find_span(_HEADER, at, size, 0)
        if pos != -1:
            self.listpack.delete(pos)
        return pos != -1

    # -- conversion ----------------------------------------------------------------------------------

    @cython.ccall
    def to_hashtable(self, expected: cython.Py_ssize_t = 0) -> cython.bint:
        """Convert to a hashtable, with buckets for the expected members (setTypeConvert). O(n)"""
        count: cython.Py_ssize_t = self.count()
        if self.spare is not None and not self.hashed and max(count, expected) <= _PACKED_TABLE:
            if self.listpack is None:
                self.to_listpack()
            self.hashed = True
            return True
        table: Dict = Dict(newest=True)
        table.resize(max(count, expected))
        for member in self:
            table.add(member)
        self.table = table
        self.intset = None
        self.listpack = None
        self.hashed = False
        return True

    @cython.ccall
    def to_listpack(self) -> cython.bint:
        """Convert an intset to a listpack (setTypeConvert). O(n)"""
        packed: Listpack = Listpack() if self.spare is None else self.spare
        index: cython.Py_ssize_t
        packed.clear()
        for index in range(self.intset.count):  # type: ignore[union-attr]
            packed.append_int(self.intset.number_at(index))  # type: ignore[union-attr]
        if self.spare is None:
            packed.shrink()
        self.listpack = packed
        self.intset = None
        return True

    def to_intset(self, limits: SetLimits) -> None:
        """Convert a set of integers to an intset unless it has too many members (maybeConvertToIntset). O(n log n)"""
        if self.intset is None and self.count() <= min(limits.integers, _INTSET_LIMIT):
            self.replace_all(sorted(map(int, self)))

    def replace_all(self, numbers: Iterable[int]) -> None:
        """Replace all members by the given integers. The set becomes an intset."""
        intset: Intset = Intset()
        for number in numbers:
            intset.add(number)
        self.intset = intset
        self.listpack = None
        self.table = None

    # -- the whole set -------------------------------------------------------------------------------

    def copy(self) -> Set:
        """Return a copy with the same members and encoding, which lasts (setTypeDup). O(n)"""
        twin: Set = Set(
            None if self.intset is None else self.intset.copy(),
            None if self.listpack is None else self.listpack.copy(),
            None if self.table is None else self.table.copy(),
        )
        if self.hashed:
            twin.to_hashtable()
        return twin

    def check(self) -> None:
        """Raise AssertionError if the set is empty, has two encodings, or a broken hash table. O(n)"""
        assert [self.intset, self.listpack, self.table].count(None) == 2 and self.count()
        assert self.spare is None and not self.hashed
        if self.intset is not None:
            self.intset.check()
        elif self.listpack is not None:
            self.listpack.check()
            assert len(set(self)) == len(self)
        else:
            self.table.check()  # type: ignore[union-attr]
