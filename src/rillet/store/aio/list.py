"""The asyncio form of rillet.store.types.list: AsyncList.

Made from store/types/list.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, overload

from rillet.errors import CommandError
from rillet.store.aio.sortable import AsyncSortable
from rillet.store.arguments.argument_checks import integer_of, one_of, values_of, whole_number
from rillet.store.arguments.durations import Seconds
from rillet.store.types.list import _LISTS_ENDS, End, T, _ends, _pop_arguments, _position
from rillet.store.types.stored_key import MISSING, PAGE, V, key_in, seconds_of


class AsyncList(AsyncSortable[V]):
    """A list of the store, with the methods of a deque. See rillet.store.types.list for cost.

    `async for` yields the values in order, a thousand at a time.
    """

    __slots__ = ()

    # -- the ends ------------------------------------------------------------------------------------

    async def append(self, value: V) -> int:
        """Add a value at the right end; return the length (RPUSH). O(1)"""
        return int(await self.store.run([b"RPUSH", self.key, self._encode(value)]))

    async def appendleft(self, value: V) -> int:
        """Add a value at the left end; return the length (LPUSH). O(1)"""
        return int(await self.store.run([b"LPUSH", self.key, self._encode(value)]))

    async def extend(self, values: Iterable[V]) -> None:
        """Add values at the right end, in one command (RPUSH). O(values)"""
        argv = [b"RPUSH", self.key, *map(self._encode, values_of(values, "values"))]
        if len(argv) > 2:
            await self.store.run(argv)

    async def extendleft(self, values: Iterable[V]) -> None:
        """Add values at the left end, one after the other, so that the last one is first (LPUSH). O(values)"""
        argv = [b"LPUSH", self.key, *map(self._encode, values_of(values, "values"))]
        if len(argv) > 2:
            await self.store.run(argv)

    @overload
    async def pop(self, *, block: Seconds | None = None) -> V: ...
    @overload
    async def pop(self, *, default: T, block: Seconds | None = None) -> V | T: ...
    async def pop(self, *, default: Any = MISSING, block: Seconds | None = None) -> Any:
        """Remove the value at the right end and return it (RPOP, BRPOP). O(1)

        If the list is empty, wait `block` seconds (0: without limit), then return the default or raise IndexError.
        """
        return self._popped(await self.store.run(_pop_arguments(b"RPOP", self.key, block)), default)

    @overload
    async def popleft(self, *, block: Seconds | None = None) -> V: ...
    @overload
    async def popleft(self, *, default: T, block: Seconds | None = None) -> V | T: ...
    async def popleft(self, *, default: Any = MISSING, block: Seconds | None = None) -> Any:
        """Remove the value at the left end and return it (LPOP, BLPOP); see pop. O(1)"""
        return self._popped(await self.store.run(_pop_arguments(b"LPOP", self.key, block)), default)

    async def pop_many(self, count: int) -> list[V]:
        """Remove up to `count` values from the right end; return them, the last one first (RPOP). O(count)"""
        return list(map(self._decode, await self.store.run([b"RPOP", self.key, integer_of(count, "count", 0)]) or ()))

    async def popleft_many(self, count: int) -> list[V]:
        """Remove up to `count` values from the left end; return them (LPOP). O(count)"""
        return list(map(self._decode, await self.store.run([b"LPOP", self.key, integer_of(count, "count", 0)]) or ()))

    async def move(
        self, to: AsyncList[V], source: End = "left", target: End = "right", *, block: Seconds | None = None
    ) -> V | None:
        """Move a value from an end of this list to an end of another; return it (LMOVE, BLMOVE). Atomic. O(1)

        If this list is empty, wait `block` seconds (0: without limit), then return None.
        """
        ends = one_of(source, "source", _LISTS_ENDS), one_of(target, "target", _LISTS_ENDS)
        argv = [b"LMOVE", self.key, key_in(to, "to", AsyncList), *(end.upper().encode() for end in ends)]
        if block is not None:
            argv = [b"BLMOVE", *argv[1:], seconds_of(block, "block")]
        raw = await self.store.run(argv)
        return None if raw is None else self._decode(raw)

    def _popped(self, reply: Any, default: Any) -> Any:
        if reply is None:
            if default is MISSING:
                raise IndexError(f"the list {self.name!r} is empty")
            return default
        return self._decode(reply[1] if isinstance(reply, list) else reply)  # BLPOP replies with the key first

    # -- any place -----------------------------------------------------------------------------------

    async def get_value(self, index: int) -> V:
        """Return the value at an index, which may be negative; IndexError beyond the ends (LINDEX). O(index)"""
        raw = await self.store.run([b"LINDEX", self.key, integer_of(index, "index")])
        if raw is None:
            raise IndexError(f"the list {self.name!r} has no index {index}")
        return self._decode(raw)

    async def set_value(self, index: int, value: V) -> None:
        """Replace the value at an index; IndexError beyond the ends (LSET). O(index)"""
        try:
            await self.store.run([b"LSET", self.key, integer_of(index, "index"), self._encode(value)])
        except CommandError as error:
            if str(error) not in ("ERR index out of range", "ERR no such key"):
                raise
            raise IndexError(f"the list {self.name!r} has no index {index}") from None

    async def range(self, start: int = 0, end: int = -1) -> list[V]:
        """Return the values from index start to end, both included; -1 is the last (LRANGE). O(start + returned)"""
        return list(map(self._decode, await self.store.run([b"LRANGE", self.key, *_ends(start, end)])))

    async def trim(self, start: int, end: int) -> None:
        """Keep only the values from index start to index end, both included (LTRIM). O(removed)"""
        await self.store.run([b"LTRIM", self.key, *_ends(start, end)])

    async def insert_before(self, pivot: V, value: V) -> int:
        """Insert a value before the first value that equals pivot; return the length (LINSERT). O(n)

        ValueError if the list has no such value.
        """
        return await self._insert(b"BEFORE", pivot, value)

    async def insert_after(self, pivot: V, value: V) -> int:
        """Insert a value after the first value that equals pivot; see insert_before (LINSERT). O(n)"""
        return await self._insert(b"AFTER", pivot, value)

    async def _insert(self, where: bytes, pivot: V, value: V) -> int:
        argv = [b"LINSERT", self.key, where, self._encode(pivot), self._encode(value)]
        length = int(await self.store.run(argv))
        if length <= 0:  # -1: no such value; 0: no such key
            raise ValueError(f"the list {self.name!r} does not contain {pivot!r}")
        return length

    async def remove(self, value: V, count: int = 1) -> int:
        """Remove the first `count` equal values, from the right if negative, all if 0; return how many (LREM). O(n)"""
        return int(await self.store.run([b"LREM", self.key, integer_of(count, "count"), self._encode(value)]))

    async def index(self, value: V, start: int = 0, stop: int | None = None) -> int:
        """Return the index of the first equal value; ValueError if there is none (LPOS). O(n)

        With start or stop, the values between them are read.
        """
        if start == 0 and stop is None:
            found = await self.store.run([b"LPOS", self.key, self._encode(value)])
        else:
            first, last = whole_number(start, "start"), None if stop is None else whole_number(stop, "stop")
            found = _position(await self.range(), value, first, last)
        if found is None:
            raise ValueError(f"the list {self.name!r} does not contain {value!r}")
        return int(found)

    async def count(self, value: V) -> int:
        """Return the number of equal values (LPOS). O(n)"""
        return len(await self.store.run([b"LPOS", self.key, self._encode(value), b"COUNT", b"0"]))

    async def contains(self, value: object) -> bool:
        """Return whether the list has an equal value (LPOS); False for a value that the codec rejects. O(n)"""
        try:
            raw = self._encode(value)  # type: ignore[arg-type]
        except TypeError:
            return False
        return await self.store.run([b"LPOS", self.key, raw]) is not None

    async def clear(self) -> None:
        """Delete the key (DEL). O(n)"""
        await self.delete()

    async def size(self) -> int:
        """Return the number of values (LLEN). O(1)"""
        return int(await self.store.run([b"LLEN", self.key]))

    async def get_all(self) -> list[V]:
        """Return all values, as they are at one moment (LRANGE). O(n)"""
        return await self.range()

    async def pages(self) -> AsyncIterator[list[V]]:
        """Yield all values in order, in lists of a thousand (LRANGE)."""
        start, more = 0, True
        while more:
            raws = await self.store.run([b"LRANGE", self.key, integer_of(start, "start"), b"%d" % (start + PAGE - 1)])
            yield list(map(self._decode, raws))
            start, more = start + PAGE, len(raws) == PAGE

    # -- operators -----------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[V]:
        """Yield the values in order, a page at a time."""
        return (value async for page in self.pages() for value in page)
