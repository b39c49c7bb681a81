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
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from rillet.structs.dict import Dict
from rillet.structs.integer_text import decimal
from rillet.structs.intset import Intset
from rillet.structs.listpack import HEADER_SIZE, Listpack
from rillet.types.charged import Charged
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits, has_compact
from rillet.types.string import string2ll

_INTSET_LIMIT = 1 << 30
_SAFETY_LIMIT = 1 << 30  # listpack.c: LISTPACK_MAX_SAFETY_SIZE


class Set(Charged):
    """The value of a set key: its members, stored in `intset`, `listpack` or `table`."""

    __slots__ = ("intset", "listpack", "table")

    type_name = "set"

    def __init__(self) -> None:
        self.intset: Intset | None = Intset()
        self.listpack: Listpack | None = None
        self.table: Dict | None = None

    @staticmethod
    def for_value(value: bytes, expected: int, limits: EncodingLimits) -> Set:
        """Return an empty set in the encoding for a first member and an expected number of members (setTypeCreate)."""
        integer = string2ll(value) is not None
        if not has_compact(limits):
            return Set() if integer else Set.empty("hashtable")
        if integer and expected <= limits.set_max_intset_entries:
            return Set()
        return Set.empty("listpack" if expected <= limits.set_max_listpack_entries else "hashtable", expected)

    @staticmethod
    def empty(encoding: str, expected: int = 0) -> Set:
        """Return an empty set with the given encoding; a hashtable has buckets for the expected members."""
        made = Set()
        if encoding != "intset":
            made.intset = None
        if encoding == "listpack":
            made.listpack = Listpack()
        elif encoding == "hashtable":
            made.table = Dict(newest=True)
            made.table.resize(expected)
        return made

    def encoding(self) -> str:
        """Return the encoding: intset, listpack or hashtable."""
        if self.intset is not None:
            return "intset"
        return "hashtable" if self.listpack is None else "listpack"

    # -- reading -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of members (SCARD). O(1)"""
        if self.intset is not None:
            return len(self.intset)
        if self.listpack is not None:
            return self.listpack.length()
        assert self.table is not None
        return len(self.table)

    def __contains__(self, member: bytes) -> bool:
        """Return whether the member exists; O(1), O(log n) in an intset, O(n) in a listpack."""
        if self.intset is not None:
            number = string2ll(member)
            return number is not None and number in self.intset
        if self.listpack is not None:
            return self.listpack.find(HEADER_SIZE, member) != -1
        assert self.table is not None
        return self.table.find(member) >= 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the members: an intset's in rising order, others in the order of insertion or a similar one."""
        if self.intset is not None:
            for number in self.intset:
                yield decimal(number)
        elif self.listpack is not None:
            yield from self.listpack.texts()
        else:
            assert self.table is not None
            yield from self.table.keys()

    def random(self) -> bytes:
        """Return a uniformly random member (setTypeRandomElement). O(1), in a listpack O(n)"""
        if self.table is not None:
            return self.table.entry_key(self.table.uniform_entry())
        index = random.randrange(len(self))
        if self.intset is not None:
            return decimal(self.intset[index])
        assert self.listpack is not None
        return self.listpack.get_bytes(self.listpack.seek(index))

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

    def prepare(self, expected: int, limits: EncodingLimits) -> None:
        """Convert to a hashtable at once if `expected` members require it (setTypeMaybeConvert; since 7.2)."""
        if has_compact(limits) and (
            (self.listpack is not None and expected > limits.set_max_listpack_entries)
            or (self.intset is not None and expected > limits.set_max_intset_entries)
        ):
            self.to_hashtable()

    def add(self, member: bytes, limits: EncodingLimits = DEFAULTS) -> bool:
        """Add a member; return False if it already exists (setTypeAdd)."""
        table = self.table
        if table is not None:
            return table.add(member)
        if self.intset is not None:
            return self._add_to_intset(self.intset, member, limits)
        assert self.listpack is not None
        if self.listpack.find(HEADER_SIZE, member) != -1:
            return False
        if (
            self.listpack.length() < limits.set_max_listpack_entries
            and len(member) <= limits.set_max_listpack_value
            and self.listpack.can_append(len(member))
        ):
            return self.listpack.append(member)
        self.to_hashtable()
        return self.add(member)

    def _add_to_intset(self, intset: Intset, member: bytes, limits: EncodingLimits) -> bool:
        number = string2ll(member)
        if number is not None:
            if not intset.add(number):
                return False
            if len(intset) > min(limits.set_max_intset_entries, _INTSET_LIMIT):
                self.to_hashtable()
            return True
        count = len(intset)
        widest = max(len(decimal(intset[0])), len(decimal(intset[-1]))) if count else 0
        if (
            has_compact(limits)
            and count < limits.set_max_listpack_entries
            and max(len(member), widest) <= limits.set_max_listpack_value
            and count * (widest + 1) + len(member) <= _SAFETY_LIMIT
        ):
            self.to_listpack()
            assert self.listpack is not None
            return self.listpack.append(member)
        self.to_hashtable()
        return self.add(member)

    def remove(self, member: bytes) -> bool:
        """Remove a member; return False if it does not exist (setTypeRemove)."""
        if self.intset is not None:
            number = string2ll(member)
            return number is not None and self.intset.remove(number)
        if self.listpack is not None:
            pos = self.listpack.find(HEADER_SIZE, member)
            if pos != -1:
                self.listpack.delete(pos)
            return pos != -1
        assert self.table is not None
        return self.table.delete(member)

    # -- conversion ----------------------------------------------------------------------------------

    def to_hashtable(self) -> None:
        """Convert to a hashtable (setTypeConvert). O(n)"""
        table = Dict(newest=True)
        table.resize(len(self))
        for member in self:
            table.add(member)
        self.table, self.intset, self.listpack = table, None, None

    def to_listpack(self) -> None:
        """Convert to a listpack (setTypeConvert). O(n)"""
        self.listpack, self.intset, self.table = Listpack.of(self), None, None

    def to_intset(self, limits: EncodingLimits) -> None:
        """Convert a set of integers to an intset unless it has too many members (maybeConvertToIntset). O(n log n)"""
        if self.intset is None and len(self) <= min(limits.set_max_intset_entries, _INTSET_LIMIT):
            self.replace_all(sorted(map(int, self)))

    def replace_all(self, numbers: Iterable[int]) -> None:
        """Replace all members by the given integers. The set becomes an intset."""
        intset = Intset()
        for number in numbers:
            intset.add(number)
        self.intset, self.listpack, self.table = intset, None, None

    # -- the whole set -------------------------------------------------------------------------------

    def copy(self) -> Set:
        """Return a copy with the same members and encoding (setTypeDup). O(n)"""
        twin = Set.empty(self.encoding())
        if self.intset is not None:
            twin.intset = self.intset.copy()
        elif self.listpack is not None:
            twin.listpack = Listpack.from_bytes(self.listpack.to_bytes(), False)
        else:
            assert self.table is not None
            twin.table = self.table.copy()
        return twin

    def check(self) -> None:
        """Raise AssertionError if the set is empty, has two encodings, or a broken hash table. O(n)"""
        assert [self.intset, self.listpack, self.table].count(None) == 2 and len(self)
        if self.intset is not None:
            self.intset.check()
        elif self.listpack is not None:
            self.listpack.check()
            assert len(set(self)) == len(self)
        else:
            assert self.table is not None
            self.table.check()
