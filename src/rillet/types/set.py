"""Sets: the value of a key that holds distinct members (Redis: t_set.c).

A set has one of three encodings, which clients see (OBJECT ENCODING) and DUMP exposes:

    intset       all members are canonical 64-bit integers, up to set-max-intset-entries (512)
    listpack     since 7.2: up to set-max-listpack-entries (128), each of up to set-max-listpack-value bytes (64)
    hashtable    anything else

Conversions go only down this list; a newly created set (SINTERSTORE, SPOP of nearly all members) starts again at the
top. An intset that receives a member that is not an integer becomes a listpack if it is small enough, and in 7.0
always a hashtable. An intset with too many members becomes a hashtable, not a listpack.

The hashtable is a `SlotTable` of its members, so membership, addition, removal and a random member are O(1).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator

from rillet.structs.intset import Intset
from rillet.structs.listpack import Listpack
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits, has_compact
from rillet.types.string import string2ll

_INTSET_LIMIT = 1 << 30
_SAFETY_LIMIT = 1 << 30  # listpack.c: LISTPACK_MAX_SAFETY_SIZE


class Set:
    """The members of one key, stored in `intset`, `listpack` or `slots`."""

    __slots__ = ("intset", "listpack", "members", "slots")

    type_name = "set"

    def __init__(self) -> None:
        self.intset: Intset | None = Intset()
        self.listpack: Listpack | None = None
        self.slots: dict[bytes, int] | None = None
        self.members: list[bytes] = []

    @staticmethod
    def for_value(value: bytes, expected: int, limits: EncodingLimits) -> Set:
        """Return an empty set in the encoding for a first member and an expected number of members (setTypeCreate)."""
        integer = string2ll(value) is not None
        if not has_compact(limits):
            return Set() if integer else Set.empty("hashtable")
        if integer and expected <= limits.set_max_intset_entries:
            return Set()
        return Set.empty("listpack" if expected <= limits.set_max_listpack_entries else "hashtable")

    @staticmethod
    def empty(encoding: str) -> Set:
        """Return an empty set with the given encoding."""
        made = Set()
        if encoding != "intset":
            made.intset = None
        if encoding == "listpack":
            made.listpack = Listpack()
        elif encoding == "hashtable":
            made.slots = {}
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
        return len(self.members) if self.listpack is None else self.listpack.length()

    def __contains__(self, member: bytes) -> bool:
        """Return whether the member exists; O(1), O(log n) in an intset, O(n) in a listpack."""
        if self.intset is not None:
            number = string2ll(member)
            return number is not None and number in self.intset
        if self.listpack is not None:
            return self._find(self.listpack, member) != -1
        assert self.slots is not None
        return member in self.slots

    def __iter__(self) -> Iterator[bytes]:
        """Yield the members: an intset's in rising order, others by position."""
        if self.intset is not None:
            for number in self.intset:
                yield b"%d" % number
        elif self.listpack is not None:
            pos = self.listpack.first()
            while pos != -1:
                yield self.listpack.get_bytes(pos)
                pos = self.listpack.next(pos)
        else:
            yield from self.members

    def at(self, index: int) -> bytes:
        """Return the member at a position from 0 to the length - 1. O(1), in a listpack O(n)"""
        if self.intset is not None:
            return b"%d" % self.intset[index]
        return self.members[index] if self.listpack is None else self.listpack.get_bytes(self.listpack.seek(index))

    def random(self) -> bytes:
        """Return a uniformly random member (setTypeRandomElement)."""
        return self.at(random.randrange(len(self)))

    def sample(self, count: int) -> list[bytes]:
        """Return up to `count` distinct random members. O(count), in a listpack O(n)"""
        if self.listpack is not None:
            members = list(self)
            return [members[at] for at in sorted(random.sample(range(len(members)), count))]
        return [self.at(at) for at in random.sample(range(len(self)), count)]

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return the next cursor (0 at the end) and some members, or all of a compact set (scanGenericCommand)."""
        if self.slots is None:
            return 0, list(self)
        stop = min(cursor, len(self.members)) if cursor else len(self.members)
        start = max(stop - count, 0)
        return start, self.members[start:stop]

    @staticmethod
    def _find(listpack: Listpack, member: bytes) -> int:
        first = listpack.first()
        return -1 if first == -1 else listpack.find(first, member)

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
        if self.slots is not None:
            if member in self.slots:
                return False
            self.slots[member] = len(self.members)
            self.members.append(member)
            return True
        if self.intset is not None:
            return self._add_to_intset(self.intset, member, limits)
        assert self.listpack is not None
        if self._find(self.listpack, member) != -1:
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
        widest = max(len(b"%d" % intset[0]), len(b"%d" % intset[-1])) if count else 0
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
            pos = self._find(self.listpack, member)
            if pos != -1:
                self.listpack.delete(pos)
            return pos != -1
        assert self.slots is not None
        slot = self.slots.pop(member, None)
        if slot is None:
            return False
        last = self.members.pop()
        if slot < len(self.members):
            self.members[slot] = last
            self.slots[last] = slot
        return True

    # -- conversion ----------------------------------------------------------------------------------

    def to_hashtable(self) -> None:
        """Convert to a hashtable (setTypeConvert). O(n)"""
        self.members = list(self)
        self.slots = {member: slot for slot, member in enumerate(self.members)}
        self.intset = self.listpack = None

    def to_listpack(self) -> None:
        """Convert to a listpack (setTypeConvert). O(n)"""
        listpack = Listpack()
        for member in self:
            listpack.append(member)
        self.listpack, self.intset, self.slots, self.members = listpack, None, None, []

    def to_intset(self, limits: EncodingLimits) -> None:
        """Convert a set of integers to an intset unless it has too many members (maybeConvertToIntset). O(n log n)"""
        if self.intset is None and len(self) <= min(limits.set_max_intset_entries, _INTSET_LIMIT):
            self.replace_all(sorted(map(int, self)))

    def replace_all(self, numbers: Iterable[int]) -> None:
        """Replace all members by the given integers. The set becomes an intset."""
        intset = Intset()
        for number in numbers:
            intset.add(number)
        self.intset, self.listpack, self.slots, self.members = intset, None, None, []

    # -- the whole set -------------------------------------------------------------------------------

    def copy(self) -> Set:
        """Return a copy with the same members and encoding (setTypeDup). O(n)"""
        twin = Set.empty(self.encoding())
        if self.intset is not None:
            twin.intset = self.intset.copy()
        elif self.listpack is not None:
            twin.listpack = Listpack.from_bytes(self.listpack.to_bytes(), False)
        else:
            assert self.slots is not None
            twin.members, twin.slots = self.members[:], self.slots.copy()
        return twin

    def memory_usage(self, samples: int = 5) -> int:
        """Return the memory used in this process (MEMORY USAGE); samples: members to measure, 0 = all."""
        size = sys.getsizeof(self)
        if self.intset is not None:
            return size + sys.getsizeof(self.intset) + sys.getsizeof(self.intset.members)
        if self.listpack is not None:
            return size + sys.getsizeof(self.listpack) + sys.getsizeof(self.listpack.buf)
        seen = self.members[:samples] if samples else self.members
        texts = sum(map(sys.getsizeof, seen)) * len(self.members) // len(seen) if seen else 0
        # CPython allocates an int object for each slot number above 256.
        numbers = max(0, len(self.members) - 257) * sys.getsizeof(1 << 29)
        return size + sys.getsizeof(self.members) + sys.getsizeof(self.slots) + texts + numbers

    def check(self) -> None:
        """Raise AssertionError if the set is empty, has two encodings, or its slots are wrong. O(n)"""
        assert [self.intset, self.listpack, self.slots].count(None) == 2 and len(self)
        if self.intset is not None:
            self.intset.check()
        elif self.listpack is not None:
            self.listpack.check()
            assert len(set(self)) == len(self)
        else:
            assert self.slots is not None and len(self.slots) == len(self.members)
            assert all(self.members[slot] == member for member, slot in self.slots.items())


__all__ = ["Set"]
