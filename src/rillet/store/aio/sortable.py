"""The asyncio form of rillet.store.types.sortable: AsyncSortable.

Made from store/types/sortable.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet.store.aio.stored_key import AsyncStoredKey
from rillet.store.arguments.encoding import decode
from rillet.store.types.sortable import _options, _patterns
from rillet.store.types.stored_key import V, key_in

if TYPE_CHECKING:
    from rillet.store.aio.list import AsyncList


class AsyncSortable(AsyncStoredKey[V]):
    """A key whose elements SORT accepts."""

    __slots__ = ()

    async def sorted_values(self, *, by: str | bytes | None = None, start: int = 0, count: int | None = None,
                            descending: bool = False, alpha: bool = False) -> list[V]:  # fmt: skip
        """Return the elements in order of their numbers (SORT). O(elements * log(elements))

        by: a pattern of the keys whose values are compared instead; without `*`, the elements keep their order.
        start, count: which of the sorted elements; alpha: compare bytes. CommandError if a value is not a number.
        """
        argv = [b"SORT", self.key, *_options(by, start, count, descending, alpha)]
        return list(map(self._decode, await self.store.run(argv)))

    async def sorted_lookup(self, *get: str | bytes, by: str | bytes | None = None, start: int = 0,
                            count: int | None = None, descending: bool = False,
                            alpha: bool = False) -> list[tuple[str | None, ...]]:  # fmt: skip
        """Return for each element, in order, the texts that the patterns name; see sorted_values (SORT GET).

        The pattern `#` is the element itself. A text is None if the key or the field does not exist.
        """
        if not get:
            raise ValueError("pass at least one pattern, such as 'user:*->name', or '#' for the element")
        argv = [b"SORT", self.key, *_options(by, start, count, descending, alpha), *_patterns(get)]
        texts = [None if raw is None else decode(raw) for raw in await self.store.run(argv)]
        return [tuple(texts[at : at + len(get)]) for at in range(0, len(texts), len(get))]

    async def store_sorted(self, to: AsyncList[V], *get: str | bytes, by: str | bytes | None = None, start: int = 0,
                           count: int | None = None, descending: bool = False, alpha: bool = False) -> int:  # fmt: skip
        """Replace a list by the sorted elements, or by what patterns name; return its length (SORT STORE). Atomic.

        A key or field that does not exist is stored as an empty text.
        """
        argv = [b"SORT", self.key, *_options(by, start, count, descending, alpha), *_patterns(get)]
        argv += (b"STORE", key_in(to, "to", AsyncSortable))
        return int(await self.store.run(argv))
