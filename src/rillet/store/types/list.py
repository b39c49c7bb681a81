"""List: values in order under one key, with the interface of a deque.

    jobs = store.list("jobs")
    jobs.append("a")                     RPUSH
    jobs.extend(["b", "c"])              one RPUSH
    jobs.popleft(block=5)                BLPOP: waits up to 5 seconds for a value
    jobs[0], jobs[-1], jobs[2:5]         LINDEX, LRANGE

It is a Sequence, and has the methods of a deque that Redis can execute as one command. It has no `insert(i, x)`,
`del jobs[i]`, `reverse()`, `rotate()` or `sort()`: Redis has no command for them, and reading and rewriting the list
would lose what other clients do meanwhile. `insert_before` and `insert_after` find a place by its value.
`sorted_values` and `store_sorted` sort (rillet.store.types.sortable).

The ends are reached in O(1). An index costs O(index), counted from the nearer end. Iteration reads pages (LRANGE): if
the list changes at its left end meanwhile, a value may be skipped or yielded twice. `get_all` reads everything at one
moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar, overload

from rillet.errors import CommandError
from rillet.store.arguments.argument_checks import integer_of, one_of, values_of, whole_number
from rillet.store.arguments.durations import Seconds
from rillet.store.types.sortable import Sortable
from rillet.store.types.stored_key import MISSING, PAGE, V, key_in, same_data, seconds_of

T = TypeVar("T")
End = Literal["left", "right"]
_LISTS_ENDS = ("left", "right")


class List(Sortable[V], Sequence[V]):
    """A list of the store as a Sequence with the methods of a deque. See the module for what is left out, and cost."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    # -- the ends ------------------------------------------------------------------------------------

    def append(self, value: V) -> int:
        """Add a value at the right end; return the length (RPUSH). O(1)"""
        return int(self.store.run([b"RPUSH", self.key, self._encode(value)]))

    def appendleft(self, value: V) -> int:
        """Add a value at the left end; return the length (LPUSH). O(1)"""
        return int(self.store.run([b"LPUSH", self.key, self._encode(value)]))

    def extend(self, values: Iterable[V]) -> None:
        """Add values at the right end, in one command (RPUSH). O(values)"""
        argv = [b"RPUSH", self.key, *map(self._encode, values_of(values, "values"))]
        if len(argv) > 2:
            self.store.run(argv)

    def extendleft(self, values: Iterable[V]) -> None:
        """Add values at the left end, one after the other, so that the last one is first (LPUSH). O(values)"""
        argv = [b"LPUSH", self.key, *map(self._encode, values_of(values, "values"))]
        if len(argv) > 2:
            self.store.run(argv)

    @overload
    def pop(self, *, block: Seconds | None = None) -> V: ...
    @overload
    def pop(self, *, default: T, block: Seconds | None = None) -> V | T: ...
    def pop(self, *, default: Any = MISSING, block: Seconds | None = None) -> Any:
        """Remove the value at the right end and return it (RPOP, BRPOP). O(1)

        If the list is empty, wait `block` seconds (0: without limit), then return the default or raise IndexError.
        """
        return self._popped(self.store.run(_pop_arguments(b"RPOP", self.key, block)), default)

    @overload
    def popleft(self, *, block: Seconds | None = None) -> V: ...
    @overload
    def popleft(self, *, default: T, block: Seconds | None = None) -> V | T: ...
    def popleft(self, *, default: Any = MISSING, block: Seconds | None = None) -> Any:
        """Remove the value at the left end and return it (LPOP, BLPOP); see pop. O(1)"""
        return self._popped(self.store.run(_pop_arguments(b"LPOP", self.key, block)), default)

    def pop_many(self, count: int) -> list[V]:
        """Remove up to `count` values from the right end; return them, the last one first (RPOP). O(count)"""
        return list(map(self._decode, self.store.run([b"RPOP", self.key, integer_of(count, "count", 0)]) or ()))

    def popleft_many(self, count: int) -> list[V]:
        """Remove up to `count` values from the left end; return them (LPOP). O(count)"""
        return list(map(self._decode, self.store.run([b"LPOP", self.key, integer_of(count, "count", 0)]) or ()))

    def move(
        self, to: List[V], source: End = "left", target: End = "right", *, block: Seconds | None = None
    ) -> V | None:
        """Move a value from an end of this list to an end of another; return it (LMOVE, BLMOVE). Atomic. O(1)

        If this list is empty, wait `block` seconds (0: without limit), then return None.
        """
        ends = one_of(source, "source", _LISTS_ENDS), one_of(target, "target", _LISTS_ENDS)
        argv = [b"LMOVE", self.key, key_in(to, "to", List), *(end.upper().encode() for end in ends)]
        if block is not None:
            argv = [b"BLMOVE", *argv[1:], seconds_of(block, "block")]
        raw = self.store.run(argv)
        return None if raw is None else self._decode(raw)

    def _popped(self, reply: Any, default: Any) -> Any:
        if reply is None:
            if default is MISSING:
                raise IndexError(f"the list {self.name!r} is empty")
            return default
        return self._decode(reply[1] if isinstance(reply, list) else reply)  # BLPOP replies with the key first

    # -- any place -----------------------------------------------------------------------------------

    def get_value(self, index: int) -> V:
        """Return the value at an index, which may be negative; IndexError beyond the ends (LINDEX). O(index)"""
        raw = self.store.run([b"LINDEX", self.key, integer_of(index, "index")])
        if raw is None:
            raise IndexError(f"the list {self.name!r} has no index {index}")
        return self._decode(raw)

    def set_value(self, index: int, value: V) -> None:
        """Replace the value at an index; IndexError beyond the ends (LSET). O(index)"""
        try:
            self.store.run([b"LSET", self.key, integer_of(index, "index"), self._encode(value)])
        except CommandError as error:
            if str(error) not in ("ERR index out of range", "ERR no such key"):
                raise
            raise IndexError(f"the list {self.name!r} has no index {index}") from None

    def range(self, start: int = 0, end: int = -1) -> list[V]:
        """Return the values from index start to end, both included; -1 is the last (LRANGE). O(start + returned)"""
        return list(map(self._decode, self.store.run([b"LRANGE", self.key, *_ends(start, end)])))

    def trim(self, start: int, end: int) -> None:
        """Keep only the values from index start to index end, both included (LTRIM). O(removed)"""
        self.store.run([b"LTRIM", self.key, *_ends(start, end)])

    def insert_before(self, pivot: V, value: V) -> int:
        """Insert a value before the first value that equals pivot; return the length (LINSERT). O(n)

        ValueError if the list has no such value.
        """
        return self._insert(b"BEFORE", pivot, value)

    def insert_after(self, pivot: V, value: V) -> int:
        """Insert a value after the first value that equals pivot; see insert_before (LINSERT). O(n)"""
        return self._insert(b"AFTER", pivot, value)

    def _insert(self, where: bytes, pivot: V, value: V) -> int:
        argv = [b"LINSERT", self.key, where, self._encode(pivot), self._encode(value)]
        length = int(self.store.run(argv))
        if length <= 0:  # -1: no such value; 0: no such key
            raise ValueError(f"the list {self.name!r} does not contain {pivot!r}")
        return length

    def remove(self, value: V, count: int = 1) -> int:
        """Remove the first `count` equal values, from the right if negative, all if 0; return how many (LREM). O(n)"""
        return int(self.store.run([b"LREM", self.key, integer_of(count, "count"), self._encode(value)]))

    def index(self, value: V, start: int = 0, stop: int | None = None) -> int:
        """Return the index of the first equal value; ValueError if there is none (LPOS). O(n)

        With start or stop, the values between them are read.
        """
        if start == 0 and stop is None:
            found = self.store.run([b"LPOS", self.key, self._encode(value)])
        else:
            first, last = whole_number(start, "start"), None if stop is None else whole_number(stop, "stop")
            found = _position(self.range(), value, first, last)
        if found is None:
            raise ValueError(f"the list {self.name!r} does not contain {value!r}")
        return int(found)

    def count(self, value: V) -> int:
        """Return the number of equal values (LPOS). O(n)"""
        return len(self.store.run([b"LPOS", self.key, self._encode(value), b"COUNT", b"0"]))

    def contains(self, value: object) -> bool:
        """Return whether the list has an equal value (LPOS); False for a value that the codec rejects. O(n)"""
        try:
            raw = self._encode(value)  # type: ignore[arg-type]
        except TypeError:
            return False
        return self.store.run([b"LPOS", self.key, raw]) is not None

    def clear(self) -> None:
        """Delete the key (DEL). O(n)"""
        self.delete()

    def size(self) -> int:
        """Return the number of values (LLEN). O(1)"""
        return int(self.store.run([b"LLEN", self.key]))

    def get_all(self) -> list[V]:
        """Return all values, as they are at one moment (LRANGE). O(n)"""
        return self.range()

    def pages(self) -> Iterator[list[V]]:
        """Yield all values in order, in lists of a thousand (LRANGE)."""
        start, more = 0, True
        while more:
            raws = self.store.run([b"LRANGE", self.key, integer_of(start, "start"), b"%d" % (start + PAGE - 1)])
            yield list(map(self._decode, raws))
            start, more = start + PAGE, len(raws) == PAGE

    # -- operators -----------------------------------------------------------------------------------

    @overload
    def __getitem__(self, index: int) -> V: ...
    @overload
    def __getitem__(self, index: slice) -> list[V]: ...
    def __getitem__(self, index: int | slice) -> V | list[V]:
        if not isinstance(index, slice):
            return self.get_value(index)
        if index.step not in (None, 1):
            raise ValueError(f"a slice of a stored list must have step 1, got {index.step}: use get_all()[...]")
        if index.stop == 0:
            return []
        return self.range(index.start or 0, -1 if index.stop is None else index.stop - 1)

    def __setitem__(self, index: int, value: V) -> None:
        self.set_value(index, value)

    def __contains__(self, value: object) -> bool:
        return self.contains(value)

    def __len__(self) -> int:
        return self.size()

    def __iter__(self) -> Iterator[V]:
        """Yield the values in order, a page at a time."""
        return (value for page in self.pages() for value in page)

    def __reversed__(self) -> Iterator[V]:
        """Yield the values from the right end to the left, a page at a time (LRANGE)."""
        end, more = -1, True
        while more:
            page = self.range(end - PAGE + 1, end)
            yield from reversed(page)
            end, more = end - PAGE, len(page) == PAGE

    def __eq__(self, other: object) -> bool:
        """Compare with a stored list or a Python list: all values are read."""
        if not isinstance(other, (List, list)):
            return NotImplemented
        return same_data(self, other) or self.get_all() == list(other)


def _position(values: list[Any], value: object, start: int, stop: int | None) -> int | None:
    try:
        return values.index(value, start, len(values) if stop is None else stop)
    except ValueError:
        return None


def _pop_arguments(command: bytes, key: bytes, block: Seconds | None) -> list[bytes]:
    """Return the command that pops, or its blocking form."""
    return [command, key] if block is None else [b"B" + command, key, seconds_of(block, "block")]


def _ends(start: int, end: int) -> tuple[bytes, bytes]:
    """Return the first and the last index of a range as arguments."""
    return integer_of(start, "start"), integer_of(end, "end")
