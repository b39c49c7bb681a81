"""The asyncio form of rillet.store.types.hyperloglog: AsyncHyperLogLog.

Made from store/types/hyperloglog.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rillet.store.aio.stored_key import AsyncStoredKey
from rillet.store.arguments.argument_checks import values_of
from rillet.store.types.stored_key import V, key_in


class AsyncHyperLogLog(AsyncStoredKey[V]):
    """A HyperLogLog of the store: it counts different elements approximately, with a standard error of 0.81%."""

    __slots__ = ()

    async def add(self, *elements: V) -> bool:
        """Add elements, creating the key; return whether the count may have changed (PFADD). O(1) each"""
        return bool(await self.store.run([b"PFADD", self.key, *map(self._encode, elements)]))

    async def update(self, elements: Iterable[V]) -> bool:
        """Add the elements of an iterable in one command; return whether the count may have changed (PFADD)."""
        return await self.add(*values_of(elements, "elements"))

    async def count(self, *others: AsyncHyperLogLog[Any]) -> int:
        """Estimate the number of different elements of this key, or of this and others together (PFCOUNT). O(1)"""
        return int(await self.store.run([b"PFCOUNT", self.key, *_keys(others)]))

    async def merge(self, *others: AsyncHyperLogLog[Any]) -> None:
        """Add the elements of others, creating the key (PFMERGE). O(others)"""
        await self.store.run([b"PFMERGE", self.key, *_keys(others)])


def _keys(others: Iterable[AsyncHyperLogLog[Any]]) -> Iterator[bytes]:
    return (key_in(one, "one of others", AsyncHyperLogLog) for one in others)
