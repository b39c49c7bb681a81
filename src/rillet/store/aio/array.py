"""The asyncio form of rillet.store.types.array: AsyncArray.

Made from store/types/array.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Literal, overload

from rillet.errors import CommandError
from rillet.store.aio.stored_key import AsyncStoredKey
from rillet.store.arguments.argument_checks import flag, integer_of, items_of, one_of, values_of, whole_number
from rillet.store.arguments.encoding import pairs_of
from rillet.store.entry import pairs_in
from rillet.store.types.array import LAST, T, Texts, _both, _conditions, _indexes, _number
from rillet.store.types.stored_key import PAGE, V


class AsyncArray(AsyncStoredKey[V]):
    """An array of the store: a sparse list. See rillet.store.types.array.

    `async for` yields the values in the order of their indexes, a thousand at a time.
    """

    __slots__ = ()

    # -- one value -----------------------------------------------------------------------------------

    async def get_value(self, index: int) -> V:
        """Return the value at an index; IndexError if there is none (ARGET). O(1)

        A negative index counts from the length (ARLEN).
        """
        raw = await self.store.run([b"ARGET", self.key, await self._place(index)])
        if raw is None:
            raise IndexError(f"the array {self.name!r} has no value at {index}")
        return self._decode(raw)

    @overload
    async def get(self, index: int) -> V | None: ...
    @overload
    async def get(self, index: int, default: T) -> V | T: ...
    async def get(self, index: int, default: Any = None) -> Any:
        """Return the value at an index, or the default (ARGET). O(1)"""
        raw = await self.store.run([b"ARGET", self.key, integer_of(index, "index", 0)])
        return default if raw is None else self._decode(raw)

    async def set_value(self, index: int, value: V) -> bool:
        """Set the value at an index; return whether the index was empty (ARSET). O(1)"""
        return bool(await self.store.run([b"ARSET", self.key, await self._place(index), self._encode(value)]))

    async def _place(self, index: int) -> bytes:
        """Return an index as an argument; a negative one counts from the length."""
        place = whole_number(index, "index")
        if place < 0:
            place += await self.size()
        if place < 0:
            raise IndexError(f"the array {self.name!r} has no index {index}")
        return b"%d" % place

    # -- several values ------------------------------------------------------------------------------

    async def mget(self, indexes: Iterable[int]) -> list[V | None]:
        """Return the values at indexes, None for an empty one (ARMGET). O(indexes)"""
        argv = [b"ARMGET", self.key, *_indexes(items_of(indexes, "indexes", "ints"))]
        return self._values(await self.store.run(argv)) if len(argv) > 2 else []

    async def update(self, values: Mapping[int, V] | Iterable[tuple[int, V]]) -> int:
        """Set the values at indexes, in one command; return how many indexes were empty (ARMSET). O(values)"""
        pairs = pairs_of(values, "values")
        argv = [b"ARMSET", self.key]
        for index, value in pairs:
            argv += [integer_of(index, "index", 0), self._encode(value)]
        return int(await self.store.run(argv)) if len(argv) > 2 else 0

    async def set_range(self, start: int, values: Iterable[V]) -> int:
        """Set values at the indexes from start on; return how many indexes were empty (ARSET). O(values)"""
        argv = [b"ARSET", self.key, integer_of(start, "start", 0)]
        argv += map(self._encode, values_of(values, "values"))
        return int(await self.store.run(argv)) if len(argv) > 3 else 0

    async def range(self, start: int, end: int) -> list[V | None]:
        """Return the values from index start to end, both included, None for an empty one (ARGETRANGE). O(range)

        Backwards if start > end. CommandError for more than a million indexes: use `items`.
        """
        return self._values(await self.store.run([b"ARGETRANGE", self.key, *_both(start, end)]))

    async def remove(self, *indexes: int) -> int:
        """Delete the values at indexes; return how many there were (ARDEL). O(indexes)"""
        return int(await self.store.run([b"ARDEL", self.key, *_indexes(indexes)])) if indexes else 0

    async def remove_range(self, start: int, end: int = LAST) -> int:
        """Delete the values from index start to end, both included; return how many there were (ARDELRANGE).

        O(values), whatever the distance of the indexes.
        """
        return int(await self.store.run([b"ARDELRANGE", self.key, *_both(start, end)]))

    async def clear(self) -> None:
        """Delete the key (DEL). O(n)"""
        await self.delete()

    def _values(self, reply: list[Any]) -> list[V | None]:
        return [None if raw is None else self._decode(raw) for raw in reply]

    # -- the order of insertion ------------------------------------------------------------------------

    async def append(self, value: V) -> int:
        """Set a value at the index after the last insert; return the index (ARINSERT). O(1)"""
        return int(await self.store.run([b"ARINSERT", self.key, self._encode(value)]))

    async def extend(self, values: Iterable[V]) -> None:
        """Set values at the indexes after the last insert, in one command (ARINSERT). O(values)"""
        argv = [b"ARINSERT", self.key, *map(self._encode, values_of(values, "values"))]
        if len(argv) > 2:
            await self.store.run(argv)

    async def push(self, *values: V, size: int) -> int:
        """Set values in a ring of `size` indexes, over the oldest ones; return the last index (ARRING). O(values)

        If the array has another length, its last values are first moved into their order. O(n)
        """
        if not values:
            raise ValueError("push at least one value")
        return int(await self.store.run([b"ARRING", self.key, integer_of(size, "size", 1), *map(self._encode, values)]))

    async def last(self, count: int, *, newest_first: bool = False) -> list[V | None]:
        """Return the values at the last `count` indexes of insertion (ARLASTITEMS). O(count)"""
        order = [b"REV"] if flag(newest_first, "newest_first") else []
        return self._values(await self.store.run([b"ARLASTITEMS", self.key, integer_of(count, "count", 0), *order]))

    async def next_index(self) -> int | None:
        """Return the index of the next insert; None if the last index is taken (ARNEXT). O(1)"""
        reply = await self.store.run([b"ARNEXT", self.key])
        return None if reply is None else int(reply)

    async def seek(self, index: int) -> bool:
        """Let the next insert be at an index; return False if there is no key (ARSEEK). O(1)"""
        return bool(await self.store.run([b"ARSEEK", self.key, integer_of(index, "index", 0)]))

    # -- search --------------------------------------------------------------------------------------

    async def find(self, *, equals: Texts = (), contains: Texts = (), glob: Texts = (), regex: Texts = (),
                   match_all: bool = False, ignore_case: bool = False, start: int = 0, end: int = LAST,
                   limit: int | None = None) -> list[int]:  # fmt: skip
        """Return the indexes of the values that match one of the conditions, or all with match_all (ARGREP). O(n)

        Each condition is a text or several. regex: POSIX extended syntax. Backwards if start > end.
        """
        conditions = _conditions(equals, contains, glob, regex, match_all, ignore_case, limit)
        reply = await self.store.run([b"ARGREP", self.key, *_both(start, end), *conditions])
        return list(map(int, reply))

    async def find_items(self, *, equals: Texts = (), contains: Texts = (), glob: Texts = (), regex: Texts = (),
                         match_all: bool = False, ignore_case: bool = False, start: int = 0, end: int = LAST,
                         limit: int | None = None) -> dict[int, V]:  # fmt: skip
        """Do `find`, and return the indexes with their values (ARGREP WITHVALUES). O(n)"""
        conditions = _conditions(equals, contains, glob, regex, match_all, ignore_case, limit)
        argv = [b"ARGREP", self.key, *_both(start, end), *conditions, b"WITHVALUES"]
        return {int(index): self._decode(raw) for index, raw in await self.store.run(argv)}

    async def index(self, value: V, start: int = 0, end: int = LAST) -> int:
        """Return the first index from start to end, both included, of an equal value; else ValueError (ARGREP). O(n)"""
        argv = [b"ARGREP", self.key, *_both(start, end), b"EXACT", self._encode(value)]
        found = await self.store.run([*argv, b"LIMIT", b"1"])
        if not found:
            raise ValueError(f"the array {self.name!r} does not contain {value!r}")
        return int(found[0])

    async def contains(self, value: object) -> bool:
        """Return whether the array has an equal value (AROP MATCH); False for a value that the codec rejects. O(n)"""
        try:
            raw = self._encode(value)  # type: ignore[arg-type]
        except TypeError:
            return False
        return await self._operation(0, LAST, b"MATCH", raw) > 0  # type: ignore[no-any-return]

    # -- calculation ---------------------------------------------------------------------------------

    async def count(self, value: V, start: int = 0, end: int = LAST) -> int:
        """Return the number of equal values from index start to end, both included (AROP MATCH). O(n)"""
        return int(await self._operation(start, end, b"MATCH", self._encode(value)))

    async def used(self, start: int = 0, end: int = LAST) -> int:
        """Return the number of values from index start to end, both included (AROP USED). O(n)"""
        return int(await self._operation(start, end, b"USED"))

    async def sum(self, start: int = 0, end: int = LAST) -> float | None:
        """Return the sum of the values that are numbers; None if there are none (AROP SUM). O(n)"""
        return _number(await self._operation(start, end, b"SUM"))

    async def min(self, start: int = 0, end: int = LAST) -> float | None:
        """Return the least value that is a number; None if there is none (AROP MIN). O(n)"""
        return _number(await self._operation(start, end, b"MIN"))

    async def max(self, start: int = 0, end: int = LAST) -> float | None:
        """Return the greatest value that is a number; None if there is none (AROP MAX). O(n)"""
        return _number(await self._operation(start, end, b"MAX"))

    async def combine_bits(self, operation: Literal["and", "or", "xor"], start: int = 0, end: int = LAST) -> int | None:
        """Return the bitwise combination of the values that are numbers; None if there are none (AROP). O(n)"""
        reply = await self._operation(start, end, one_of(operation, "operation", ("and", "or", "xor")).upper().encode())
        return None if reply is None else int(reply)

    async def _operation(self, start: int, end: int, *words: bytes) -> Any:
        return await self.store.run([b"AROP", self.key, *_both(start, end), *words])

    # -- everything ----------------------------------------------------------------------------------

    async def size(self) -> int:
        """Return the length: the highest index with a value + 1 (ARLEN). O(1)"""
        return int(await self.store.run([b"ARLEN", self.key]))

    async def info(self, *, full: bool = False) -> dict[str, float]:
        """Return the layout of the array by the names of ARINFO; {} if there is no key. O(1), if full O(slices)"""
        try:
            reply = await self.store.run([b"ARINFO", self.key, *([b"FULL"] if flag(full, "full") else [])])
        except CommandError as error:
            if str(error) != "ERR no such key":
                raise
            return {}
        return {name.decode(): float(value) if b"avg" in name else int(value) for name, value in pairs_in(reply)}

    async def get_all(self) -> dict[int, V]:
        """Return all indexes with their values, as they are at one moment (ARSCAN). O(n)"""
        reply = await self.store.run([b"ARSCAN", self.key, b"0", b"%d" % LAST])
        return {int(index): self._decode(raw) for index, raw in reply}

    async def pages(self, start: int = 0, end: int = LAST) -> AsyncIterator[list[tuple[int, V]]]:
        """Yield the indexes with a value and the values, in lists of a thousand; backwards if start > end (ARSCAN)."""
        step = -1 if whole_number(start, "start", 0) > whole_number(end, "end", 0) else 1
        more = True
        while more:
            argv = [b"ARSCAN", self.key, *_both(start, end), b"LIMIT", b"%d" % PAGE]
            page = [(int(index), self._decode(raw)) for index, raw in await self.store.run(argv)]
            yield page
            more = len(page) == PAGE and page[-1][0] != end
            start = page[-1][0] + step if more else start

    def scan(self, start: int = 0, end: int = LAST) -> AsyncIterator[tuple[int, V]]:
        """Yield the indexes with a value and the values, a page at a time; backwards if start > end (ARSCAN)."""
        return (item async for page in self.pages(start, end) for item in page)

    def items(self) -> AsyncIterator[tuple[int, V]]:
        """Yield all indexes with a value and the values, in order, a page at a time; see `scan` for a range."""
        return self.scan()

    # -- operators -----------------------------------------------------------------------------------

    async def _ends(self, part: slice) -> tuple[int, int]:
        """Return the first and the last index of a slice."""
        if part.step not in (None, 1):
            raise ValueError(f"a slice of a stored array must have step 1, got {part.step}: use range(start, end)")
        start, stop = part.start or 0, part.stop
        if start < 0 or stop is None or stop < 0:
            start, stop, _ = slice(start, stop).indices(await self.size())
        return start, stop - 1

    def __aiter__(self) -> AsyncIterator[V]:
        """Yield the values in the order of their indexes, without the empty indexes, a page at a time."""
        return (value async for page in self.pages() for _, value in page)
