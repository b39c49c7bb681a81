"""Geo on every kind of store, synchronous and asyncio."""

from __future__ import annotations

import asyncio
from typing import assert_type

import pytest

from rillet import Geo, Store
from rillet.errors import CommandError, WrongType
from rillet.store.codecs import text_of
from rillet.store.types.geo import Coordinates, GeoPlace

PALERMO, CATANIA, ROME = (13.361389, 38.115556), (15.087269, 37.502669), (12.4964, 41.9028)


def _near(position: Coordinates | None, expected: tuple[float, float]) -> bool:
    return position is not None and all(abs(one - other) < 1e-5 for one, other in zip(position, expected, strict=True))


def _filled(store: Store) -> Geo[str]:
    cities = store.geo("{c}:cities")
    assert cities.add("Palermo", *PALERMO)
    assert cities.update([("Palermo", *PALERMO), ("Catania", *CATANIA), ("Rome", *ROME)]) == 2
    return cities


def test_members_have_positions(store: Store) -> None:
    cities = _filled(store)
    assert cities.size() == 3
    assert _near(cities.position("Rome"), ROME)
    assert cities.position("Paris") is None
    first, missing = cities.positions(["Palermo", "Paris"])
    assert _near(first, PALERMO)
    assert missing is None
    assert (cities.positions([]), cities.update([])) == ([], 0)
    assert cities.geohash("Palermo") == "sqc8b49rny0"
    assert cities.geohash("Paris") is None
    assert cities.distance("Palermo", "Catania") == 166274.1516
    assert cities.distance("Palermo", "Catania", "km") == 166.2742
    assert cities.distance("Palermo", "Paris") is None
    assert cities.remove("Rome", "Paris") == 1
    assert cities.remove() == 0
    assert set(store.zset(cities.key)) == {"Palermo", "Catania"}


def test_a_search_returns_the_nearest_first(store: Store) -> None:
    cities = _filled(store)
    found = cities.search(at=(15, 37), radius=200, unit="km")
    assert_type(found, list[GeoPlace[str]])
    assert [(one.member, one.distance) for one in found] == [("Catania", 56.4413), ("Palermo", 190.4424)]
    assert _near(found[0].position, CATANIA)
    assert [one.member for one in cities.search(member="Rome", box=(1200, 1200), unit="km", farthest=True)] == [
        "Catania", "Palermo", "Rome"
    ]  # fmt: skip
    assert [one.member for one in cities.search(member="Rome", radius=1000, unit="mi", count=2)] == ["Rome", "Palermo"]
    assert len(cities.search(member="Rome", radius=1000, unit="mi", count=1, any=True)) == 1
    with pytest.raises(CommandError, match="could not decode requested zset member|does not exist"):
        cities.search(member="Paris", radius=1)


def test_a_search_can_be_stored(store: Store) -> None:
    cities = _filled(store)
    target = store.geo("{c}:found")
    assert cities.search_store(target, at=(15, 37), radius=200, unit="km") == 2
    assert target.distance("Palermo", "Catania", "km") == 166.2742
    assert cities.search_store(target, at=(15, 37), radius=200, unit="km", count=1, distances=True) == 1
    assert [(name, round(score, 4)) for name, score in store.zset(target.key).items()] == [("Catania", 56.4413)]
    assert cities.search_store(target, at=(0, 0), box=(1, 1)) == 0
    assert not target.exists()


def test_wrong_arguments(store: Store) -> None:
    cities = _filled(store)
    with pytest.raises(ValueError, match="pass member or at"):
        cities.search(radius=1)
    with pytest.raises(ValueError, match="pass radius or box"):
        cities.search(at=(0, 0), radius=1, box=(1, 1))
    with pytest.raises(ValueError, match="any needs a count"):
        cities.search(at=(0, 0), radius=1, any=True)
    with pytest.raises(CommandError, match="invalid longitude,latitude pair"):
        cities.add("x", 181, 0)
    store.hash("h")["f"] = "v"
    with pytest.raises(WrongType):
        store.geo("h").position("x")
    numbers = store.geo("n", codec=text_of(int))
    numbers.add(7, 1, 1)
    assert [one.member for one in numbers.search(member=7, radius=1)] == [7]


def test_asyncio(store: Store) -> None:
    async def body() -> None:
        async with asyncio.timeout(60):
            cities = store.aio().geo("{c}:a")
            assert await cities.update([("Palermo", *PALERMO), ("Catania", *CATANIA)]) == 2
            assert _near(await cities.position("Catania"), CATANIA)
            assert [one.member for one in await cities.search(at=(15, 37), radius=200, unit="km")] == [
                "Catania", "Palermo"
            ]  # fmt: skip
            assert await cities.search_store(store.aio().geo("{c}:b"), at=(15, 37), radius=100, unit="km") == 1

    asyncio.run(body())
