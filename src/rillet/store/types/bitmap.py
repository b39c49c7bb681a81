"""Bitmap: a string as a list of bits, and as integers of any width.

    seen = store.bitmap("seen:2026-11-26")
    seen[4711] = True                    SETBIT
    seen[4711], seen.count()             GETBIT, BITCOUNT
    for user in seen: ...                the offsets of the bits that are 1
    both.combine("and", monday, tuesday) BITOP: computed by the server
    seen.incr_field("u8", "#3", 1)       BITFIELD: the fourth integer of 8 bits

Offset 0 is the highest bit of the first byte. Bits behind the end are 0. The longest bitmap has 2^32 bits, or what
`proto-max-bulk-len` allows. The key has the type string: `store.string` reads the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from rillet.store.arguments.argument_checks import integer_of, items_of, one_of, text_bytes
from rillet.store.arguments.encoding import encode
from rillet.store.types.stored_key import StoredKey, key_in

Operation = Literal["and", "or", "xor", "not", "diff", "diff1", "andor", "one"]
Overflow = Literal["wrap", "sat", "fail"]
Unit = Literal["bit", "byte"]
_BYTES = 8192  # of a page
_OPERATIONS = ("and", "or", "xor", "not", "diff", "diff1", "andor", "one")
_OVERFLOWS = ("wrap", "sat", "fail")


class Bitmap(StoredKey[bytes]):
    """A bitmap of the store. See the module for its size, and the methods for their commands."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    # -- bits ----------------------------------------------------------------------------------------

    def get_value(self, offset: int) -> bool:
        """Return the bit at an offset (GETBIT). O(1)"""
        return bool(self.store.run([b"GETBIT", self.key, integer_of(offset, "offset", 0)]))

    def set_value(self, offset: int, bit: bool = True) -> bool:
        """Set the bit at an offset; return the old bit (SETBIT). O(1), O(new bytes) behind the end"""
        return bool(self.store.run([b"SETBIT", self.key, integer_of(offset, "offset", 0), _bit(bit)]))

    def get_many(self, offsets: Iterable[int]) -> list[bool]:
        """Return the bits at offsets, in one command (BITFIELD). O(offsets)"""
        words = [word for offset in _offsets(offsets) for word in (b"GET", b"u1", offset)]
        return list(map(bool, self.store.run([b"BITFIELD", self.key, *words]))) if words else []

    def set_many(self, offsets: Iterable[int], bit: bool = True) -> list[bool]:
        """Set the bits at offsets, in one command; return the old bits (BITFIELD). O(offsets)"""
        value = _bit(bit)
        words = [word for offset in _offsets(offsets) for word in (b"SET", b"u1", offset, value)]
        return list(map(bool, self.store.run([b"BITFIELD", self.key, *words]))) if words else []

    def count(self, start: int = 0, end: int = -1, *, unit: Unit = "byte") -> int:
        """Return the number of bits that are 1, of the bytes or bits from start to end, both included (BITCOUNT). O(n)

        A negative position counts from the end. unit="bit" needs Redis 7.0.
        """
        return int(self.store.run([b"BITCOUNT", self.key, *_ends(start, end), *_unit(unit)]))

    def position(self, bit: bool = True, start: int = 0, end: int | None = None, *, unit: Unit = "byte") -> int | None:
        """Return the offset of the first bit of that value; None if there is none (BITPOS). O(n)

        start, end: the first and the last byte or bit to examine. Without an end, the bits behind the bitmap are 0.
        """
        argv = [b"BITPOS", self.key, _bit(bit), integer_of(start, "start")]
        words = _unit(unit)
        if end is not None or words:
            argv += [b"-1" if end is None else integer_of(end, "end"), *words]
        found = int(self.store.run(argv))
        return None if found < 0 else found

    def pages(self) -> Iterator[list[int]]:
        """Yield the offsets of the bits that are 1, in order, in a list for each 8 KiB of the bitmap (GETRANGE)."""
        start, more = 0, True
        while more:
            end = start + _BYTES
            page: bytes = self.store.run([b"GETRANGE", self.key, integer_of(start, "start"), b"%d" % (end - 1)])
            yield list(_ones(page, 8 * start))
            start, more = end, len(page) == _BYTES

    # -- operations ----------------------------------------------------------------------------------

    def combine(self, operation: Operation, *sources: Bitmap) -> int:
        """Replace this bitmap by the combination of others; return its length in bytes (BITOP). O(n)

        diff: the bits of the first source that no other has; diff1: those of the others that the first does not have;
        andor: those of the first that another has; one: those that exactly one source has. These need Redis 8.2.
        """
        keys = [key_in(source, "one of sources", Bitmap) for source in sources]
        word = one_of(operation, "operation", _OPERATIONS)
        return int(self.store.run([b"BITOP", word.upper().encode(), self.key, *keys]))

    # -- integers ------------------------------------------------------------------------------------

    def get_field(self, kind: str, offset: int | str) -> int:
        """Return the integer at an offset (BITFIELD GET). O(1)

        kind: i and u with a width, such as u8 or i64. offset: a bit, or "#3" for the fourth integer of this kind.
        """
        argv = [b"BITFIELD", self.key, b"GET", text_bytes(kind, "kind"), _field_offset(offset)]
        return int(self.store.run(argv)[0])

    def set_field(self, kind: str, offset: int | str, value: int, *, overflow: Overflow = "wrap") -> int | None:
        """Set the integer at an offset; return the old one, None if the new one does not fit (BITFIELD SET). O(1)"""
        return self._field(b"SET", kind, offset, integer_of(value, "value"), overflow)

    def incr_field(self, kind: str, offset: int | str, by: int = 1, *, overflow: Overflow = "wrap") -> int | None:
        """Add to the integer at an offset; return the result (BITFIELD INCRBY). O(1)

        overflow: wrap around, sat: keep the nearest integer that fits, or fail: change nothing and return None.
        """
        return self._field(b"INCRBY", kind, offset, integer_of(by, "by"), overflow)

    def _field(self, word: bytes, kind: str, offset: int | str, value: bytes, overflow: Overflow) -> int | None:
        mode = one_of(overflow, "overflow", _OVERFLOWS).upper().encode()
        argv = [b"BITFIELD", self.key, b"OVERFLOW", mode, word, text_bytes(kind, "kind"), _field_offset(offset)]
        reply: list[int | None] = self.store.run([*argv, value])
        return reply[0]

    def fields(self, *operations: tuple[Any, ...]) -> list[int | None]:
        """Run several operations on integers, in one command (BITFIELD). O(operations)

        Each one is ("get", kind, offset), ("set", kind, offset, value) or ("incr", kind, offset, by), with an overflow
        after value or by.
        """
        argv = [b"BITFIELD", self.key]
        for operation in operations:
            if not isinstance(operation, (tuple, list)) or not operation:
                raise TypeError(f"one of operations must be a tuple, such as ('get', 'u8', 0), not {operation!r:.200}")
            name, *words = operation
            if name not in _LENGTHS or len(words) not in _LENGTHS[name]:
                raise ValueError("one of operations: expected get, set or incr with kind, offset and value, got "
                                 f"{(name, *words)!r:.200}")  # fmt: skip
            if len(words) == 4:
                argv += [b"OVERFLOW", encode(words.pop().upper())]
            elif name != "get":
                argv += [b"OVERFLOW", b"WRAP"]
            argv += [_WORDS[name], *map(encode, words)]
        reply: list[int | None] = self.store.run(argv)
        return reply

    # -- the bytes -----------------------------------------------------------------------------------

    def size(self) -> int:
        """Return the number of bits, a multiple of 8 (STRLEN). O(1)"""
        return 8 * int(self.store.run([b"STRLEN", self.key]))

    def get_bytes(self) -> bytes:
        """Return the bytes of the bitmap (GET). O(n)"""
        raw: bytes | None = self.store.run([b"GET", self.key])
        return b"" if raw is None else raw

    def set_bytes(self, data: bytes) -> None:
        """Replace the bytes of the bitmap (SET). O(n)"""
        self.store.run([b"SET", self.key, text_bytes(data, "data")])

    def clear(self) -> None:
        """Delete the key (DEL). O(n)"""
        self.delete()

    # -- operators -----------------------------------------------------------------------------------

    def __getitem__(self, offset: int) -> bool:
        return self.get_value(offset)

    def __setitem__(self, offset: int, bit: bool) -> None:
        self.set_value(offset, bit)

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and offset >= 0 and self.get_value(offset)

    def __len__(self) -> int:
        return self.size()

    def __iter__(self) -> Iterator[int]:
        """Yield the offsets of the bits that are 1, a page at a time."""
        return (offset for page in self.pages() for offset in page)

    def __eq__(self, other: object) -> bool:
        """Compare the bytes with those of another bitmap."""
        if not isinstance(other, Bitmap):
            return NotImplemented
        return self.get_bytes() == other.get_bytes()


_WORDS = {"get": b"GET", "set": b"SET", "incr": b"INCRBY"}
_LENGTHS = {"get": (2,), "set": (3, 4), "incr": (3, 4)}


def _unit(unit: Unit) -> list[bytes]:
    """Return the unit of a range as an argument; bytes are the default of every version."""
    return [] if one_of(unit, "unit", ("byte", "bit")) == "byte" else [b"BIT"]


def _ones(data: bytes, base: int) -> Iterator[int]:
    """Yield the offsets of the bits of some bytes that are 1."""
    for at, byte in enumerate(data):
        for bit in range(8) if byte else ():
            if byte & 0x80 >> bit:
                yield base + 8 * at + bit


def _bit(bit: bool) -> bytes:
    """Return a bit as an argument: a bool, 0 or 1."""
    if bit not in (0, 1):
        raise TypeError(f"bit must be True or False, not {bit!r:.200}")
    return b"1" if bit else b"0"


def _offsets(offsets: Iterable[int]) -> Iterator[bytes]:
    return (integer_of(one, "one of offsets", 0) for one in items_of(offsets, "offsets", "ints"))


def _field_offset(offset: int | str) -> bytes:
    """Return the offset of an integer as an argument: a bit, or "#" and the number of the integer."""
    return text_bytes(offset, "offset") if isinstance(offset, (str, bytes)) else integer_of(offset, "offset", 0)


def _ends(start: int, end: int) -> tuple[bytes, bytes]:
    """Return the first and the last index of a range as arguments."""
    return integer_of(start, "start"), integer_of(end, "end")
