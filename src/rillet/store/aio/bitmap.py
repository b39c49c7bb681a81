"""The asyncio form of rillet.store.types.bitmap: AsyncBitmap.

Made from store/types/bitmap.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from rillet.store.aio.stored_key import AsyncStoredKey
from rillet.store.arguments.argument_checks import integer_of, one_of, text_bytes
from rillet.store.arguments.encoding import encode
from rillet.store.types.bitmap import (
    _BYTES,
    _LENGTHS,
    _OPERATIONS,
    _OVERFLOWS,
    _WORDS,
    Operation,
    Overflow,
    Unit,
    _bit,
    _ends,
    _field_offset,
    _offsets,
    _ones,
    _unit,
)
from rillet.store.types.stored_key import key_in


class AsyncBitmap(AsyncStoredKey[bytes]):
    """A bitmap of the store; see rillet.store.types.bitmap.

    `async for` yields the offsets of the bits that are 1, a page at a time.
    """

    __slots__ = ()

    # -- bits ----------------------------------------------------------------------------------------

    async def get_value(self, offset: int) -> bool:
        """Return the bit at an offset (GETBIT). O(1)"""
        return bool(await self.store.run([b"GETBIT", self.key, integer_of(offset, "offset", 0)]))

    async def set_value(self, offset: int, bit: bool = True) -> bool:
        """Set the bit at an offset; return the old bit (SETBIT). O(1), O(new bytes) behind the end"""
        return bool(await self.store.run([b"SETBIT", self.key, integer_of(offset, "offset", 0), _bit(bit)]))

    async def get_many(self, offsets: Iterable[int]) -> list[bool]:
        """Return the bits at offsets, in one command (BITFIELD). O(offsets)"""
        words = [word for offset in _offsets(offsets) for word in (b"GET", b"u1", offset)]
        return list(map(bool, await self.store.run([b"BITFIELD", self.key, *words]))) if words else []

    async def set_many(self, offsets: Iterable[int], bit: bool = True) -> list[bool]:
        """Set the bits at offsets, in one command; return the old bits (BITFIELD). O(offsets)"""
        value = _bit(bit)
        words = [word for offset in _offsets(offsets) for word in (b"SET", b"u1", offset, value)]
        return list(map(bool, await self.store.run([b"BITFIELD", self.key, *words]))) if words else []

    async def count(self, start: int = 0, end: int = -1, *, unit: Unit = "byte") -> int:
        """Return the number of bits that are 1, of the bytes or bits from start to end, both included (BITCOUNT). O(n)

        A negative position counts from the end. unit="bit" needs Redis 7.0.
        """
        return int(await self.store.run([b"BITCOUNT", self.key, *_ends(start, end), *_unit(unit)]))

    async def position(self, bit: bool = True, start: int = 0, end: int | None = None, *,
                       unit: Unit = "byte") -> int | None:  # fmt: skip
        """Return the offset of the first bit of that value; None if there is none (BITPOS). O(n)

        start, end: the first and the last byte or bit to examine. Without an end, the bits behind the bitmap are 0.
        """
        argv = [b"BITPOS", self.key, _bit(bit), integer_of(start, "start")]
        words = _unit(unit)
        if end is not None or words:
            argv += [b"-1" if end is None else integer_of(end, "end"), *words]
        found = int(await self.store.run(argv))
        return None if found < 0 else found

    async def pages(self) -> AsyncIterator[list[int]]:
        """Yield the offsets of the bits that are 1, in order, in a list for each 8 KiB of the bitmap (GETRANGE)."""
        start, more = 0, True
        while more:
            end = start + _BYTES
            page: bytes = await self.store.run([b"GETRANGE", self.key, integer_of(start, "start"), b"%d" % (end - 1)])
            yield list(_ones(page, 8 * start))
            start, more = end, len(page) == _BYTES

    # -- operations ----------------------------------------------------------------------------------

    async def combine(self, operation: Operation, *sources: AsyncBitmap) -> int:
        """Replace this bitmap by the combination of others; return its length in bytes (BITOP). O(n)

        diff: the bits of the first source that no other has; diff1: those of the others that the first does not have;
        andor: those of the first that another has; one: those that exactly one source has. These need Redis 8.2.
        """
        keys = [key_in(source, "one of sources", AsyncBitmap) for source in sources]
        word = one_of(operation, "operation", _OPERATIONS)
        return int(await self.store.run([b"BITOP", word.upper().encode(), self.key, *keys]))

    # -- integers ------------------------------------------------------------------------------------

    async def get_field(self, kind: str, offset: int | str) -> int:
        """Return the integer at an offset (BITFIELD GET). O(1)

        kind: i and u with a width, such as u8 or i64. offset: a bit, or "#3" for the fourth integer of this kind.
        """
        argv = [b"BITFIELD", self.key, b"GET", text_bytes(kind, "kind"), _field_offset(offset)]
        return int((await self.store.run(argv))[0])

    async def set_field(self, kind: str, offset: int | str, value: int, *, overflow: Overflow = "wrap") -> int | None:
        """Set the integer at an offset; return the old one, None if the new one does not fit (BITFIELD SET). O(1)"""
        return await self._field(b"SET", kind, offset, integer_of(value, "value"), overflow)

    async def incr_field(self, kind: str, offset: int | str, by: int = 1, *, overflow: Overflow = "wrap") -> int | None:
        """Add to the integer at an offset; return the result (BITFIELD INCRBY). O(1)

        overflow: wrap around, sat: keep the nearest integer that fits, or fail: change nothing and return None.
        """
        return await self._field(b"INCRBY", kind, offset, integer_of(by, "by"), overflow)

    async def _field(self, word: bytes, kind: str, offset: int | str, value: bytes, overflow: Overflow) -> int | None:
        mode = one_of(overflow, "overflow", _OVERFLOWS).upper().encode()
        argv = [b"BITFIELD", self.key, b"OVERFLOW", mode, word, text_bytes(kind, "kind"), _field_offset(offset)]
        reply: list[int | None] = await self.store.run([*argv, value])
        return reply[0]

    async def fields(self, *operations: tuple[Any, ...]) -> list[int | None]:
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
        reply: list[int | None] = await self.store.run(argv)
        return reply

    # -- the bytes -----------------------------------------------------------------------------------

    async def size(self) -> int:
        """Return the number of bits, a multiple of 8 (STRLEN). O(1)"""
        return 8 * int(await self.store.run([b"STRLEN", self.key]))

    async def get_bytes(self) -> bytes:
        """Return the bytes of the bitmap (GET). O(n)"""
        raw: bytes | None = await self.store.run([b"GET", self.key])
        return b"" if raw is None else raw

    async def set_bytes(self, data: bytes) -> None:
        """Replace the bytes of the bitmap (SET). O(n)"""
        await self.store.run([b"SET", self.key, text_bytes(data, "data")])

    async def clear(self) -> None:
        """Delete the key (DEL). O(n)"""
        await self.delete()

    # -- operators -----------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[int]:
        """Yield the offsets of the bits that are 1, a page at a time."""
        return (offset async for page in self.pages() for offset in page)
