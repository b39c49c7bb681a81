"""The asyncio form of rillet.store.types.geo: AsyncGeo.

Made from store/types/geo.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rillet.store.aio.stored_key import AsyncStoredKey
from rillet.store.arguments.argument_checks import flag, number_of, one_of, values_of
from rillet.store.types.geo import _UNITS, Coordinates, GeoPlace, Unit, _places, _position, _search
from rillet.store.types.stored_key import MISSING, V, key_in


class AsyncGeo(AsyncStoredKey[V]):
    """Places of the store: members with a position; see rillet.store.types.geo."""

    __slots__ = ()

    async def add(self, member: V, longitude: float, latitude: float) -> bool:
        """Set the position of a member; return whether it is new (GEOADD). O(log n)"""
        place = number_of(longitude, "longitude"), number_of(latitude, "latitude")
        argv = [b"GEOADD", self.key, *place, self._encode(member)]
        return bool(await self.store.run(argv))

    async def update(self, places: Iterable[tuple[V, float, float]]) -> int:
        """Set the positions of (member, longitude, latitude) in one command; return how many are new (GEOADD)."""
        argv = [b"GEOADD", self.key]
        for member, longitude, latitude in _places(places):
            argv += (number_of(longitude, "longitude"), number_of(latitude, "latitude"), self._encode(member))
        return int(await self.store.run(argv)) if len(argv) > 2 else 0

    async def position(self, member: V) -> Coordinates | None:
        """Return the position of a member, None if it is missing (GEOPOS). O(1)"""
        (found,) = await self.store.run([b"GEOPOS", self.key, self._encode(member)])
        return _position(found)

    async def positions(self, members: Iterable[V]) -> list[Coordinates | None]:
        """Return the positions of members in order, None for a missing one (GEOPOS). O(members)"""
        argv = [b"GEOPOS", self.key, *map(self._encode, values_of(members, "members"))]
        return list(map(_position, await self.store.run(argv))) if len(argv) > 2 else []

    async def geohash(self, member: V) -> str | None:
        """Return the standard geohash of a member, 11 letters, None if it is missing (GEOHASH). O(1)"""
        (found,) = await self.store.run([b"GEOHASH", self.key, self._encode(member)])
        return None if found is None else found.decode()

    async def distance(self, one: V, other: V, unit: Unit = "m") -> float | None:
        """Return the distance of two members, None if one is missing (GEODIST). O(1)"""
        name = one_of(unit, "unit", _UNITS).encode()
        found = await self.store.run([b"GEODIST", self.key, self._encode(one), self._encode(other), name])
        return None if found is None else float(found)

    async def search(self, *, member: V = MISSING, at: tuple[float, float] | None = None, radius: float | None = None,
                     box: tuple[float, float] | None = None, unit: Unit = "m", count: int | None = None,
                     any: bool = False, farthest: bool = False) -> list[GeoPlace[V]]:  # fmt: skip
        """Return the places within a circle or a box around a member or a position, the nearest first (GEOSEARCH).

        member, or at (longitude, latitude): the centre. radius, or box (width, height): the shape. farthest: the
        farthest first. count: at most so many; any: the first ones found, which need not be the nearest.
        CommandError if the member is missing. O(places in and around the shape)
        """
        argv = [b"GEOSEARCH", self.key, *_search(self._encode, member, at, radius, box, unit, count, any, farthest)]
        found = await self.store.run([*argv, b"WITHDIST", b"WITHCOORD"])
        return [GeoPlace(self._decode(member), float(distance), Coordinates(*map(float, position)))
                for member, distance, position in found]  # fmt: skip

    async def search_store(self, target: AsyncGeo[Any], *, member: V = MISSING, at: tuple[float, float] | None = None,
                           radius: float | None = None, box: tuple[float, float] | None = None, unit: Unit = "m",
                           count: int | None = None, any: bool = False, farthest: bool = False,
                           distances: bool = False) -> int:  # fmt: skip
        """Store the places that `search` would return; return how many (GEOSEARCHSTORE).

        distances: store distances as scores instead of positions; read them with `store.zset(target.key)`.
        """
        words = _search(self._encode, member, at, radius, box, unit, count, any, farthest)
        argv = [b"GEOSEARCHSTORE", key_in(target, "target", AsyncGeo), self.key, *words]
        return int(await self.store.run([*argv, b"STOREDIST"] if flag(distances, "distances") else argv))

    async def remove(self, *members: V) -> int:
        """Remove members; return how many existed (ZREM). O(log n) each"""
        return int(await self.store.run([b"ZREM", self.key, *map(self._encode, members)])) if members else 0

    async def size(self) -> int:
        """Return the number of members (ZCARD). O(1)"""
        return int(await self.store.run([b"ZCARD", self.key]))
