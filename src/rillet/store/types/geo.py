"""Geo: places on the earth under one key, and the search for those near a position.

    shops = store.geo("shops")
    shops.add("Palermo", 13.361389, 38.115556)         GEOADD: longitude, latitude
    shops.position("Palermo")                          GEOPOS: Coordinates(longitude=13.36..., latitude=38.11...)
    shops.distance("Palermo", "Catania", "km")         GEODIST
    shops.search(at=(15, 37), radius=200, unit="km")   GEOSEARCH: the nearest first
    shops.search(member="Palermo", box=(400, 400), unit="km", count=10)

A place is a member of a sorted set, whose score is its position: `store.zset("shops")` is the same key. Positions are
exact to 0.3 m, and their latitudes end at 85.05 degrees. Distances assume that the earth is a sphere, so they are wrong
by up to 0.5%.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Literal, NamedTuple

from rillet.store.arguments.argument_checks import flag, integer_of, items_of, number_of, one_of, values_of
from rillet.store.types.stored_key import MISSING, StoredKey, V, key_in

Unit = Literal["m", "km", "ft", "mi"]
_UNITS = ("m", "km", "ft", "mi")


class Coordinates(NamedTuple):
    """A longitude and a latitude in degrees."""

    longitude: float
    latitude: float


class GeoPlace(NamedTuple, Generic[V]):
    """A result of a search: the member, its distance from the centre in the unit of the search, its position."""

    member: V
    distance: float
    position: Coordinates


class Geo(StoredKey[V]):
    """Places of the store: members with a position; see rillet.store.types.geo."""

    __slots__ = ()

    def add(self, member: V, longitude: float, latitude: float) -> bool:
        """Set the position of a member; return whether it is new (GEOADD). O(log n)"""
        place = number_of(longitude, "longitude"), number_of(latitude, "latitude")
        argv = [b"GEOADD", self.key, *place, self._encode(member)]
        return bool(self.store.run(argv))

    def update(self, places: Iterable[tuple[V, float, float]]) -> int:
        """Set the positions of (member, longitude, latitude) in one command; return how many are new (GEOADD)."""
        argv = [b"GEOADD", self.key]
        for member, longitude, latitude in _places(places):
            argv += (number_of(longitude, "longitude"), number_of(latitude, "latitude"), self._encode(member))
        return int(self.store.run(argv)) if len(argv) > 2 else 0

    def position(self, member: V) -> Coordinates | None:
        """Return the position of a member, None if it is missing (GEOPOS). O(1)"""
        (found,) = self.store.run([b"GEOPOS", self.key, self._encode(member)])
        return _position(found)

    def positions(self, members: Iterable[V]) -> list[Coordinates | None]:
        """Return the positions of members in order, None for a missing one (GEOPOS). O(members)"""
        argv = [b"GEOPOS", self.key, *map(self._encode, values_of(members, "members"))]
        return list(map(_position, self.store.run(argv))) if len(argv) > 2 else []

    def geohash(self, member: V) -> str | None:
        """Return the standard geohash of a member, 11 letters, None if it is missing (GEOHASH). O(1)"""
        (found,) = self.store.run([b"GEOHASH", self.key, self._encode(member)])
        return None if found is None else found.decode()

    def distance(self, one: V, other: V, unit: Unit = "m") -> float | None:
        """Return the distance of two members, None if one is missing (GEODIST). O(1)"""
        name = one_of(unit, "unit", _UNITS).encode()
        found = self.store.run([b"GEODIST", self.key, self._encode(one), self._encode(other), name])
        return None if found is None else float(found)

    def search(self, *, member: V = MISSING, at: tuple[float, float] | None = None, radius: float | None = None,
               box: tuple[float, float] | None = None, unit: Unit = "m", count: int | None = None,
               any: bool = False, farthest: bool = False) -> list[GeoPlace[V]]:  # fmt: skip
        """Return the places within a circle or a box around a member or a position, the nearest first (GEOSEARCH).

        member, or at (longitude, latitude): the centre. radius, or box (width, height): the shape. farthest: the
        farthest first. count: at most so many; any: the first ones found, which need not be the nearest.
        CommandError if the member is missing. O(places in and around the shape)
        """
        argv = [b"GEOSEARCH", self.key, *_search(self._encode, member, at, radius, box, unit, count, any, farthest)]
        found = self.store.run([*argv, b"WITHDIST", b"WITHCOORD"])
        return [GeoPlace(self._decode(member), float(distance), Coordinates(*map(float, position)))
                for member, distance, position in found]  # fmt: skip

    def search_store(self, target: Geo[Any], *, member: V = MISSING, at: tuple[float, float] | None = None,
                     radius: float | None = None, box: tuple[float, float] | None = None, unit: Unit = "m",
                     count: int | None = None, any: bool = False, farthest: bool = False,
                     distances: bool = False) -> int:  # fmt: skip
        """Store the places that `search` would return; return how many (GEOSEARCHSTORE).

        distances: store distances as scores instead of positions; read them with `store.zset(target.key)`.
        """
        words = _search(self._encode, member, at, radius, box, unit, count, any, farthest)
        argv = [b"GEOSEARCHSTORE", key_in(target, "target", Geo), self.key, *words]
        return int(self.store.run([*argv, b"STOREDIST"] if flag(distances, "distances") else argv))

    def remove(self, *members: V) -> int:
        """Remove members; return how many existed (ZREM). O(log n) each"""
        return int(self.store.run([b"ZREM", self.key, *map(self._encode, members)])) if members else 0

    def size(self) -> int:
        """Return the number of members (ZCARD). O(1)"""
        return int(self.store.run([b"ZCARD", self.key]))


def _search(encode: Callable[[Any], bytes], member: Any, at: tuple[float, float] | None, radius: float | None,
            box: tuple[float, float] | None, unit: Unit, count: int | None, any: bool,
            farthest: bool) -> list[bytes]:  # fmt: skip
    """Return the arguments of a search; ValueError unless there are one centre and one shape."""
    if (member is MISSING) == (at is None):
        raise ValueError("pass member or at")
    if (radius is None) == (box is None):
        raise ValueError("pass radius or box")
    if flag(any, "any") and count is None:
        raise ValueError("any needs a count")
    if at is None:
        words = [b"FROMMEMBER", encode(member)]
    else:
        words = [b"FROMLONLAT", *_pair(at, "at", "(longitude, latitude)")]
    if box is not None:
        words += [b"BYBOX", *_pair(box, "box", "(width, height)")]
    else:
        words += [b"BYRADIUS", number_of(radius, "radius")]
    words.append(one_of(unit, "unit", _UNITS).encode())
    if not any:
        words.append(b"DESC" if flag(farthest, "farthest") else b"ASC")
    if count is not None:
        words += [b"COUNT", integer_of(count, "count", 1)]
    if any:
        words.append(b"ANY")
    return words


def _pair(pair: Any, name: str, parts: str) -> Iterator[bytes]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"{name} must be {parts}, not {pair!r:.200}")
    return (number_of(one, name) for one in pair)


def _places(places: Iterable[tuple[Any, float, float]]) -> Iterator[tuple[Any, float, float]]:
    for place in items_of(places, "places", "(member, longitude, latitude)"):
        if not isinstance(place, (tuple, list)) or len(place) != 3:
            raise TypeError(f"each of places must be (member, longitude, latitude), not {place!r:.200}")
        yield place[0], place[1], place[2]


def _position(reply: Any) -> Coordinates | None:
    """Return the position in a reply, or None."""
    return None if reply is None else Coordinates(*map(float, reply))
