"""The intset: a sorted set of 64-bit integers in one block of bytes (Redis: intset.c).

    +--------------+-------------+----------+----------+-- .. --+
    | encoding u32 | length u32  | member 0 | member 1 |        |
    +--------------+-------------+----------+----------+-- .. --+
    0              4             8

All numbers are little-endian. `encoding` is the size of every member in bytes: 2, 4 or 8, whichever
the widest member ever added needs. Adding a wider member converts all members; nothing converts them
back, so a set that once held 70000 keeps four bytes per member after 70000 is removed. DUMP exposes
this, so it is preserved. `docs/formats/intset.md` draws the format.

Invariants (`check`): the members rise strictly, and each fits the encoding.

Costs: contains O(log n); add and remove O(n), one move of the bytes after the member; index O(1).

The members are in an `array`, whose bytes equal those after the header. `bisect` searches it and
`insert` moves its tail, both in C. This module is therefore as fast interpreted as compiled, and is not
among the compiled modules. Rejected alternatives: a bytearray with a search in Python (ten bytecodes
a step), and a list (an 8-byte pointer and a 28-byte integer for each member).
"""

from __future__ import annotations

import random
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator

from rillet.errors import Corrupt

HEADER_SIZE = 8
_EMPTY_BYTES = sys.getsizeof(array("h"))
_CODES = {2: "h", 4: "i", 8: "q"}
_LITTLE = sys.byteorder == "little"


def width_of(value: int) -> int:
    """Return the size that a member needs in bytes: 2, 4 or 8 (intset.c: _intsetValueEncoding)."""
    if -(1 << 15) <= value < 1 << 15:
        return 2
    return 4 if -(1 << 31) <= value < 1 << 31 else 8


class Intset:
    """A sorted set of signed 64-bit integers."""

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: array[int] = array("h")

    @staticmethod
    def from_bytes(data: bytes, deep: bool = True) -> Intset:
        """Parse the bytes of an intset; raise Corrupt if they are malformed or the set is empty.

        deep=False does not verify the order of the members. Source: intset.c, intsetValidateIntegrity.
        """
        width, length = int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")
        if width not in _CODES or not length or len(data) != HEADER_SIZE + length * width:
            raise Corrupt("intset: length and encoding do not match the number of bytes")
        intset = Intset()
        intset.members = array(_CODES[width], data[HEADER_SIZE:])
        if not _LITTLE:
            intset.members.byteswap()
        if deep and not intset._rises():
            raise Corrupt("intset: the members are not in rising order")
        return intset

    def to_bytes(self) -> bytes:
        """Return the serialized intset, as in DUMP and RDB. O(n)"""
        members = self.members
        if not _LITTLE:
            members = members[:]
            members.byteswap()
        return members.itemsize.to_bytes(4, "little") + len(members).to_bytes(4, "little") + members.tobytes()

    @property
    def width(self) -> int:
        """Return the size of each member in bytes."""
        return self.members.itemsize

    @property
    def nbytes(self) -> int:
        """Return the number of bytes that `to_bytes` returns (intset.c: intsetBlobLen)."""
        return HEADER_SIZE + len(self.members) * self.members.itemsize

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[int]:
        """Yield the members in rising order."""
        return iter(self.members)

    def __contains__(self, value: int) -> bool:
        at = bisect_left(self.members, value)
        return at < len(self.members) and self.members[at] == value

    def __getitem__(self, index: int) -> int:
        """Return the member of a rank, 0 for the smallest; negative ranks count from the end."""
        return self.members[index]

    def __repr__(self) -> str:
        return f"<Intset: {len(self)} members of {self.width} bytes>"

    def add(self, value: int) -> bool:
        """Add a 64-bit integer; return False if it is already a member (intset.c: intsetAdd). O(n)"""
        width = width_of(value)
        if width > self.members.itemsize:
            self.members = array(_CODES[width], self.members)
        at = bisect_left(self.members, value)
        if at < len(self.members) and self.members[at] == value:
            return False
        self.members.insert(at, value)
        return True

    def remove(self, value: int) -> bool:
        """Remove a member; return False if it does not exist (intset.c: intsetRemove). O(n)"""
        at = bisect_left(self.members, value)
        if at == len(self.members) or self.members[at] != value:
            return False
        del self.members[at]
        return True

    def unused(self) -> int:
        """Return the bytes of the buffer that hold no member. O(1)"""
        return sys.getsizeof(self.members) - _EMPTY_BYTES - len(self.members) * self.members.itemsize

    def shrink(self) -> None:
        """Release the unused capacity. O(n)"""
        self.members = array(self.members.typecode, self.members)

    def random(self) -> int:
        """Return a random member; the set must not be empty."""
        return random.choice(self.members)

    def copy(self) -> Intset:
        """Return a copy with the same members and encoding. O(n)"""
        twin = Intset()
        twin.members = self.members[:]
        return twin

    def _rises(self) -> bool:
        members = self.members
        return all(members[at] < members[at + 1] for at in range(len(members) - 1))

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. O(n)"""
        assert self.members.typecode == _CODES[self.members.itemsize]
        assert self._rises()
