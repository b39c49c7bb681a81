"""Scores of positions, and searches against a measurement of each position."""

from __future__ import annotations

import random

import pytest

from rillet.structs.dict import Dict
from rillet.structs.geohash import LATITUDE, SearchArea, distance, encode, geohash_text, latitude_of, longitude_of
from rillet.structs.skiplist import Skiplist
from tests.variants import by_speed


def _positions(seed: int, count: int) -> list[tuple[float, float]]:
    chance = random.Random(seed)
    return [(chance.uniform(-180, 180), chance.uniform(-LATITUDE, LATITUDE)) for _ in range(count)]


def test_a_position_is_the_middle_of_its_cell() -> None:
    for longitude, latitude in _positions(1, 500):
        score = encode(longitude, latitude)
        assert score < 2**52
        assert abs(longitude_of(score) - longitude) <= 180 / 2**26
        assert abs(latitude_of(score) - latitude) <= LATITUDE / 2**26
        assert encode(longitude_of(score), latitude_of(score)) == score
        assert encode(longitude, latitude, 5) == score >> 42  # a cell is a prefix


def test_the_edges_of_the_world() -> None:
    assert encode(-180, -LATITUDE) == 0
    assert encode(180, LATITUDE) == 3 << 52
    assert (longitude_of(3 << 52), latitude_of(3 << 52)) == (180, LATITUDE)
    for score in (-1.0, 1e300, -1e300, float("inf"), float("-inf"), 2.0**63, 2.0**64):
        assert -180 <= longitude_of(score) <= 180
        assert -LATITUDE <= latitude_of(score) <= LATITUDE
        assert len(geohash_text(score)) == 11


def test_distances() -> None:
    assert distance(0, 0, 0, 0) == 0
    assert distance(0, 0, 0, 1) == pytest.approx(111_226, abs=1)
    assert distance(0, 0, 180, 0) == pytest.approx(20_020_734, abs=1)
    assert distance(10, 60, 11, 60) == pytest.approx(distance(11, 60, 10, 60))


@pytest.mark.parametrize("kind", ["circle", "box", "polygon"])
def test_a_search_finds_what_a_measurement_of_each_position_finds(kind: str) -> None:
    chance = random.Random(kind)
    skiplist, table = Skiplist(), Dict(numbers=True, newest=True)
    table.owner = skiplist
    scores = {b"%d" % n: float(encode(*one)) for n, one in enumerate(_positions(2, by_speed(3000, 300)))}
    for member, score in scores.items():
        skiplist.add(table, member, score)
    for _ in range(by_speed(40, 10)):
        shape = SearchArea()
        shape.longitude, shape.latitude = chance.uniform(-120, 120), chance.uniform(-60, 60)
        radius = 10 ** chance.uniform(4, 6.2)
        if kind == "circle":
            shape.by_radius(radius)
        elif kind == "box":
            shape.by_box(radius, 2 * radius)
        else:
            longitude, latitude = shape.longitude, shape.latitude
            shape.by_polygon([(longitude, latitude), (longitude + 9, latitude + 1), (longitude + 5, latitude + 12)])
        shape.collect(skiplist, table)
        found = [table.entry_key(shape.entry_at(at)) for at in range(shape.count)]
        assert sorted(found) == sorted(member for member, score in scores.items() if shape.contains(score))
        shape.limit = 1
        shape.collect(skiplist, table)
        assert shape.count == min(len(found), 1)
