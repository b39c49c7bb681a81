"""The asyncio form of rillet.store.types.set: AsyncSet.

Made from store/types/set.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from rillet.store.aio.sortable import AsyncSortable
from rillet.store.arguments.argument_checks import integer_of, values_of
from rillet.store.types.set import T, _key
from rillet.store.types.stored_key import V, key_in


class AsyncSet(AsyncSortable[V]):
    """A set of the store; see rillet.store.types.set. `async for` reads the members, a thousand at a time."""

    __slots__ = ()

    # -- members -------------------------------------------------------------------------------------

    async def add(self, value: V) -> bool:
        """Add a member; return whether it is new (SADD). O(1)"""
        return bool(await self.store.run([b"SADD", self.key, self._encode(value)]))

    async def discard(self, value: V) -> bool:
        """Remove a member; return whether it existed (SREM). O(1)"""
        return bool(await self.store.run([b"SREM", self.key, self._encode(value)]))

    async def remove(self, value: V) -> None:
        """Remove a member; KeyError if there is none (SREM). O(1)"""
        if not await self.discard(value):
            raise KeyError(value)

    async def contains(self, value: object) -> bool:
        """Return whether a value is a member (SISMEMBER); False for a value that the codec rejects. O(1)"""
        try:
            member = self._encode(value)  # type: ignore[arg-type]
        except TypeError:
            return False
        return bool(await self.store.run([b"SISMEMBER", self.key, member]))

    async def contains_many(self, values: Iterable[V]) -> list[bool]:
        """Return for each value whether it is a member (SMISMEMBER). O(values)"""
        argv = [b"SMISMEMBER", self.key, *map(self._encode, values_of(values, "values"))]
        return [bool(reply) for reply in await self.store.run(argv)] if len(argv) > 2 else []

    async def pop(self) -> V:
        """Remove a random member and return it; KeyError if the set is empty (SPOP). O(1)"""
        raw = await self.store.run([b"SPOP", self.key])
        if raw is None:
            raise KeyError(f"the set {self.name!r} is empty")
        return self._decode(raw)

    async def pop_many(self, count: int) -> set[V]:
        """Remove up to `count` random members and return them (SPOP). O(count)"""
        return set(map(self._decode, await self.store.run([b"SPOP", self.key, integer_of(count, "count", 0)])))

    async def random(self) -> V | None:
        """Return a random member, which stays; None if the set is empty (SRANDMEMBER). O(1)"""
        raw = await self.store.run([b"SRANDMEMBER", self.key])
        return None if raw is None else self._decode(raw)

    async def random_many(self, count: int) -> list[V]:
        """Return up to `count` different random members, which stay (SRANDMEMBER). O(count)"""
        return list(map(self._decode, await self.store.run([b"SRANDMEMBER", self.key, integer_of(count, "count", 0)])))

    async def move(self, value: V, to: AsyncSet[V]) -> bool:
        """Move a member to another set of the same store; return whether it existed (SMOVE). Atomic. O(1)"""
        return bool(await self.store.run([b"SMOVE", self.key, key_in(to, "to", AsyncSet), self._encode(value)]))

    async def clear(self) -> None:
        """Delete the key (DEL). O(members)"""
        await self.delete()

    async def size(self) -> int:
        """Return the number of members (SCARD). O(1)"""
        return int(await self.store.run([b"SCARD", self.key]))

    async def members(self) -> set[V]:
        """Return all members, as they are at one moment (SMEMBERS). O(members)"""
        return set(map(self._decode, await self.store.run([b"SMEMBERS", self.key])))

    async def scan(self, match: str | bytes | None = None) -> AsyncIterator[V]:
        """Yield the members that match a glob, a page at a time (SSCAN)."""
        async for page in self._scan(b"SSCAN", match):
            for raw in page:
                yield self._decode(raw)

    # -- several sets --------------------------------------------------------------------------------

    async def union(self, *others: Iterable[V] | AsyncSet[V]) -> set[V]:
        """Return the members of this set and of all others (SUNION). O(members)"""
        if self._on_server(others):
            return await self._combined(b"SUNION", others)
        return (await self.members()).union(*await self._operands(others))

    async def intersection(self, *others: Iterable[V] | AsyncSet[V]) -> set[V]:
        """Return the members that are also in all others (SINTER). O(members of the smallest * sets)"""
        if self._on_server(others):
            return await self._combined(b"SINTER", others)
        return (await self.members()).intersection(*await self._operands(others))

    async def difference(self, *others: Iterable[V] | AsyncSet[V]) -> set[V]:
        """Return the members that are in none of the others (SDIFF). O(members)"""
        if self._on_server(others):
            return await self._combined(b"SDIFF", others)
        return (await self.members()).difference(*await self._operands(others))

    async def symmetric_difference(self, other: Iterable[V] | AsyncSet[V]) -> set[V]:
        """Return the members that are in one of the two sets only (SDIFF twice; not atomic). O(members)"""
        if not self._on_server([other]):
            return (await self.members()).symmetric_difference(*await self._operands([other]))
        key = _key(other)
        replies = await self.store.run_many([[b"SDIFF", self.key, key], [b"SDIFF", key, self.key]])
        return {self._decode(raw) for reply in replies for raw in reply}

    async def isdisjoint(self, other: Iterable[Any] | AsyncSet[Any]) -> bool:
        """Return whether the sets have no member in common (SINTERCARD LIMIT 1). O(members of the smaller)"""
        if not self._on_server([other]):
            return (await self.members()).isdisjoint(*await self._operands([other]))
        return not await self.store.run([b"SINTERCARD", b"2", self.key, _key(other), b"LIMIT", b"1"])

    async def update(self, *others: Iterable[V] | AsyncSet[V]) -> None:
        """Add the members of others (SUNIONSTORE, or one SADD). O(members)"""
        if others and self._on_server(others):
            await self._store_combined(b"SUNIONSTORE", others)
            return
        argv = [b"SADD", self.key, *(self._encode(value) for other in await self._operands(others) for value in other)]
        if len(argv) > 2:
            await self.store.run(argv)

    async def intersection_update(self, *others: Iterable[V] | AsyncSet[V]) -> None:
        """Keep only the members that are in all others (SINTERSTORE, or SMEMBERS and SREM: not atomic). O(members)"""
        if self._on_server(others):
            await self._store_combined(b"SINTERSTORE", others)
        else:
            members = await self.members()
            await self._remove(members.difference(members.intersection(*await self._operands(others))))

    async def difference_update(self, *others: Iterable[V] | AsyncSet[V]) -> None:
        """Remove the members of others (SDIFFSTORE, or one SREM). O(members)"""
        if others and self._on_server(others):
            await self._store_combined(b"SDIFFSTORE", others)
        else:
            await self._remove([value for other in await self._operands(others) for value in other])

    async def symmetric_difference_update(self, other: Iterable[V] | AsyncSet[V]) -> None:
        """Remove the common members, add the other ones of `other` (SMEMBERS, SREM, SADD: not atomic). O(members)"""
        members = await self.members()
        values: set[V] = set(*await self._operands([other]))
        await self._remove(members & values)
        await self.update(values - members)

    async def _remove(self, values: Iterable[V]) -> None:
        argv = [b"SREM", self.key, *map(self._encode, values)]
        if len(argv) > 2:
            await self.store.run(argv)

    def _on_server(self, others: Iterable[Any]) -> bool:
        """Return whether all others are Sets of the same store with an equal codec."""
        return all(
            isinstance(other, AsyncSet) and other.store is self.store and other.codec == self.codec for other in others
        )

    async def _operands(self, others: Iterable[Iterable[T] | AsyncSet[T]]) -> list[Iterable[T]]:
        """Return the others, with the members of each Set as a set of this process."""
        operands: list[Iterable[T]] = []
        for other in others:
            operands.append(await other.members() if isinstance(other, AsyncSet) else values_of(other, "another set"))
        return operands

    async def _combined(self, command: bytes, others: Iterable[Any]) -> set[V]:
        return set(map(self._decode, await self.store.run([command, self.key, *map(_key, others)])))

    async def _store_combined(self, command: bytes, others: Iterable[Any]) -> None:
        await self.store.run([command, self.key, self.key, *map(_key, others)])

    # -- operators -----------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[V]:
        return self.scan()
