"""The asyncio form of rillet.store.types.stored_key: AsyncStoredKey.

Made from store/types/stored_key.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rillet.store.arguments.durations import milliseconds_in
from rillet.store.arguments.encoding import encode_name
from rillet.store.types.stored_key import PAGE, CodedKey, V, ttl_of, unix_milliseconds_of

if TYPE_CHECKING:
    from rillet.store.aio.store import AsyncStore


class AsyncStoredKey(CodedKey[V]):
    """A key of a store, with a codec for its values. Two objects are of the same data if store and key are equal."""

    __slots__ = ()
    store: AsyncStore

    # -- the key -------------------------------------------------------------------------------------

    async def exists(self) -> bool:
        """Return whether the key exists, that is, has an element (EXISTS). O(1)"""
        return bool(await self.store.run([b"EXISTS", self.key]))

    async def delete(self) -> bool:
        """Delete the key with all elements; return whether it existed (DEL). O(elements)"""
        return bool(await self.store.run([b"DEL", self.key]))

    async def expire(self, seconds: float | timedelta) -> bool:
        """Let the key expire after that time; return whether the key exists (PEXPIRE). O(1)"""
        return bool(await self.store.run([b"PEXPIRE", self.key, milliseconds_in(seconds, "seconds", -math.inf)]))

    async def expire_at(self, moment: datetime) -> bool:
        """Let the key expire at a time with a zone; return whether the key exists (PEXPIREAT). O(1)"""
        return bool(await self.store.run([b"PEXPIREAT", self.key, unix_milliseconds_of(moment, "moment")]))

    async def persist(self) -> bool:
        """Remove the expiry; return whether the key had one (PERSIST). O(1)"""
        return bool(await self.store.run([b"PERSIST", self.key]))

    async def ttl(self) -> float | None:
        """Return the seconds until the key expires, None without an expiry; KeyError if there is no key. O(1)"""
        return ttl_of(await self.store.run([b"PTTL", self.key]), self.key)

    # -- for subclasses --------------------------------------------------------------------------------

    async def _scan(self, command: bytes, match: str | bytes | None = None) -> AsyncIterator[list[Any]]:
        """Yield the replies of HSCAN, SSCAN or ZSCAN, of about PAGE elements each."""
        cursor, more = b"0", True
        glob = [] if match is None else [b"MATCH", encode_name(match, "match")]
        while more:
            cursor, page = await self.store.run([command, self.key, cursor, *glob, b"COUNT", b"%d" % PAGE])
            yield page
            more = cursor != b"0"
