"""Set: unique members under one key, with the interface of Python's set.

    tags = store.set("tags")
    tags.add("red")                        SADD
    "red" in tags                          SISMEMBER
    tags & store.set("other")              SINTER: the server computes it; a Python set results
    tags |= store.set("other")             SUNIONSTORE: no member leaves the server
    tags - {"red"}                         SMEMBERS, then Python

The operators run on the server if the other operand is a Set of the same store with an equal codec. In a cluster both
keys must then be in one slot: use a hash tag, as in "{user1}:tags" and "{user1}:groups". With any other operand the
members are read.

Iteration reads pages (SSCAN). A member that exists during the whole iteration is yielded at least once; it may be
yielded twice if the set changes meanwhile. `members` reads all members at one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

from rillet.store.arguments.argument_checks import integer_of, values_of
from rillet.store.types.sortable import Sortable
from rillet.store.types.stored_key import V, key_in, same_data

T = TypeVar("T")


class Set(Sortable[V], MutableSet[V]):
    """A set of the store as a MutableSet. See the module for the operators, iteration and cost."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    # -- members -------------------------------------------------------------------------------------

    def add(self, value: V) -> bool:  # type: ignore[override]  # a set's add returns nothing
        """Add a member; return whether it is new (SADD). O(1)"""
        return bool(self.store.run([b"SADD", self.key, self._encode(value)]))

    def discard(self, value: V) -> bool:  # type: ignore[override]  # a set's discard returns nothing
        """Remove a member; return whether it existed (SREM). O(1)"""
        return bool(self.store.run([b"SREM", self.key, self._encode(value)]))

    def remove(self, value: V) -> None:
        """Remove a member; KeyError if there is none (SREM). O(1)"""
        if not self.discard(value):
            raise KeyError(value)

    def contains(self, value: object) -> bool:
        """Return whether a value is a member (SISMEMBER); False for a value that the codec rejects. O(1)"""
        try:
            member = self._encode(value)  # type: ignore[arg-type]
        except TypeError:
            return False
        return bool(self.store.run([b"SISMEMBER", self.key, member]))

    def contains_many(self, values: Iterable[V]) -> list[bool]:
        """Return for each value whether it is a member (SMISMEMBER). O(values)"""
        argv = [b"SMISMEMBER", self.key, *map(self._encode, values_of(values, "values"))]
        return [bool(reply) for reply in self.store.run(argv)] if len(argv) > 2 else []

    def pop(self) -> V:
        """Remove a random member and return it; KeyError if the set is empty (SPOP). O(1)"""
        raw = self.store.run([b"SPOP", self.key])
        if raw is None:
            raise KeyError(f"the set {self.name!r} is empty")
        return self._decode(raw)

    def pop_many(self, count: int) -> set[V]:
        """Remove up to `count` random members and return them (SPOP). O(count)"""
        return set(map(self._decode, self.store.run([b"SPOP", self.key, integer_of(count, "count", 0)])))

    def random(self) -> V | None:
        """Return a random member, which stays; None if the set is empty (SRANDMEMBER). O(1)"""
        raw = self.store.run([b"SRANDMEMBER", self.key])
        return None if raw is None else self._decode(raw)

    def random_many(self, count: int) -> list[V]:
        """Return up to `count` different random members, which stay (SRANDMEMBER). O(count)"""
        return list(map(self._decode, self.store.run([b"SRANDMEMBER", self.key, integer_of(count, "count", 0)])))

    def move(self, value: V, to: Set[V]) -> bool:
        """Move a member to another set of the same store; return whether it existed (SMOVE). Atomic. O(1)"""
        return bool(self.store.run([b"SMOVE", self.key, key_in(to, "to", Set), self._encode(value)]))

    def clear(self) -> None:
        """Delete the key (DEL). O(members)"""
        self.delete()

    def size(self) -> int:
        """Return the number of members (SCARD). O(1)"""
        return int(self.store.run([b"SCARD", self.key]))

    def members(self) -> set[V]:
        """Return all members, as they are at one moment (SMEMBERS). O(members)"""
        return set(map(self._decode, self.store.run([b"SMEMBERS", self.key])))

    def scan(self, match: str | bytes | None = None) -> Iterator[V]:
        """Yield the members that match a glob, a page at a time (SSCAN)."""
        for page in self._scan(b"SSCAN", match):
            for raw in page:
                yield self._decode(raw)

    # -- several sets --------------------------------------------------------------------------------

    def union(self, *others: Iterable[V] | Set[V]) -> set[V]:
        """Return the members of this set and of all others (SUNION). O(members)"""
        if self._on_server(others):
            return self._combined(b"SUNION", others)
        return self.members().union(*self._operands(others))

    def intersection(self, *others: Iterable[V] | Set[V]) -> set[V]:
        """Return the members that are also in all others (SINTER). O(members of the smallest * sets)"""
        if self._on_server(others):
            return self._combined(b"SINTER", others)
        return self.members().intersection(*self._operands(others))

    def difference(self, *others: Iterable[V] | Set[V]) -> set[V]:
        """Return the members that are in none of the others (SDIFF). O(members)"""
        if self._on_server(others):
            return self._combined(b"SDIFF", others)
        return self.members().difference(*self._operands(others))

    def symmetric_difference(self, other: Iterable[V] | Set[V]) -> set[V]:
        """Return the members that are in one of the two sets only (SDIFF twice; not atomic). O(members)"""
        if not self._on_server([other]):
            return self.members().symmetric_difference(*self._operands([other]))
        key = _key(other)
        replies = self.store.run_many([[b"SDIFF", self.key, key], [b"SDIFF", key, self.key]])
        return {self._decode(raw) for reply in replies for raw in reply}

    def isdisjoint(self, other: Iterable[Any] | Set[Any]) -> bool:
        """Return whether the sets have no member in common (SINTERCARD LIMIT 1). O(members of the smaller)"""
        if not self._on_server([other]):
            return self.members().isdisjoint(*self._operands([other]))
        return not self.store.run([b"SINTERCARD", b"2", self.key, _key(other), b"LIMIT", b"1"])

    def update(self, *others: Iterable[V] | Set[V]) -> None:
        """Add the members of others (SUNIONSTORE, or one SADD). O(members)"""
        if others and self._on_server(others):
            self._store_combined(b"SUNIONSTORE", others)
            return
        argv = [b"SADD", self.key, *(self._encode(value) for other in self._operands(others) for value in other)]
        if len(argv) > 2:
            self.store.run(argv)

    def intersection_update(self, *others: Iterable[V] | Set[V]) -> None:
        """Keep only the members that are in all others (SINTERSTORE, or SMEMBERS and SREM: not atomic). O(members)"""
        if self._on_server(others):
            self._store_combined(b"SINTERSTORE", others)
        else:
            members = self.members()
            self._remove(members.difference(members.intersection(*self._operands(others))))

    def difference_update(self, *others: Iterable[V] | Set[V]) -> None:
        """Remove the members of others (SDIFFSTORE, or one SREM). O(members)"""
        if others and self._on_server(others):
            self._store_combined(b"SDIFFSTORE", others)
        else:
            self._remove([value for other in self._operands(others) for value in other])

    def symmetric_difference_update(self, other: Iterable[V] | Set[V]) -> None:
        """Remove the common members, add the other ones of `other` (SMEMBERS, SREM, SADD: not atomic). O(members)"""
        members = self.members()
        values: set[V] = set(*self._operands([other]))
        self._remove(members & values)
        self.update(values - members)

    def _remove(self, values: Iterable[V]) -> None:
        argv = [b"SREM", self.key, *map(self._encode, values)]
        if len(argv) > 2:
            self.store.run(argv)

    def _on_server(self, others: Iterable[Any]) -> bool:
        """Return whether all others are Sets of the same store with an equal codec."""
        return all(
            isinstance(other, Set) and other.store is self.store and other.codec == self.codec for other in others
        )

    def _operands(self, others: Iterable[Iterable[T] | Set[T]]) -> list[Iterable[T]]:
        """Return the others, with the members of each Set as a set of this process."""
        operands: list[Iterable[T]] = []
        for other in others:
            operands.append(other.members() if isinstance(other, Set) else values_of(other, "another set"))
        return operands

    def _combined(self, command: bytes, others: Iterable[Any]) -> set[V]:
        return set(map(self._decode, self.store.run([command, self.key, *map(_key, others)])))

    def _store_combined(self, command: bytes, others: Iterable[Any]) -> None:
        self.store.run([command, self.key, self.key, *map(_key, others)])

    # -- operators -----------------------------------------------------------------------------------

    def __contains__(self, value: object) -> bool:
        return self.contains(value)

    def __len__(self) -> int:
        return self.size()

    def __iter__(self) -> Iterator[V]:
        return self.scan()

    def __eq__(self, other: object) -> bool:
        """Compare with a set: all members are read."""
        if not isinstance(other, AbstractSet):
            return NotImplemented
        return same_data(self, other) or self.members() == _members(other)

    def __le__(self, other: AbstractSet[Any]) -> bool:
        if not isinstance(other, AbstractSet):
            return NotImplemented
        return self.members() <= _members(other)

    def __lt__(self, other: AbstractSet[Any]) -> bool:
        if not isinstance(other, AbstractSet):
            return NotImplemented
        return self.members() < _members(other)

    def __ge__(self, other: AbstractSet[Any]) -> bool:
        if not isinstance(other, AbstractSet):
            return NotImplemented
        return self.members() >= _members(other)

    def __gt__(self, other: AbstractSet[Any]) -> bool:
        if not isinstance(other, AbstractSet):
            return NotImplemented
        return self.members() > _members(other)

    def __or__(self, other: AbstractSet[T]) -> set[V | T]:
        if not isinstance(other, AbstractSet):
            return NotImplemented
        return self.union(other)  # type: ignore[arg-type,return-value]

    def __and__(self, other: AbstractSet[Any]) -> set[V]:
        if not isinstance(other, AbstractSet):
            return NotImplemented
        return self.intersection(other)

    def __sub__(self, other: AbstractSet[Any]) -> set[V]:
        if not isinstance(other, AbstractSet):
            return NotImplemented
        return self.difference(other)

    def __xor__(self, other: AbstractSet[T]) -> set[V | T]:
        if not isinstance(other, AbstractSet):
            return NotImplemented
        return self.symmetric_difference(other)  # type: ignore[arg-type,return-value]

    __ror__ = __or__
    __rand__ = __and__
    __rxor__ = __xor__

    def __rsub__(self, other: AbstractSet[T]) -> set[T]:  # type: ignore[misc]
        if not isinstance(other, AbstractSet):
            return NotImplemented
        return _members(other) - self.members()

    def __ior__(self, other: AbstractSet[V]) -> Set[V]:  # type: ignore[override,misc]
        self.update(other)
        return self

    def __iand__(self, other: AbstractSet[Any]) -> Set[V]:
        self.intersection_update(other)
        return self

    def __isub__(self, other: AbstractSet[Any]) -> Set[V]:
        self.difference_update(other)
        return self

    def __ixor__(self, other: AbstractSet[V]) -> Set[V]:  # type: ignore[override,misc]
        self.symmetric_difference_update(other)
        return self


def _key(other: Any) -> bytes:
    key: bytes = other.key
    return key


def _members(values: Iterable[T]) -> set[T]:
    """Return the members of a Set, or any iterable, as a set of this process."""
    return values.members() if isinstance(values, Set) else set(values)
