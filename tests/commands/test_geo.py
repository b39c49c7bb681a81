"""The GEO commands: what the differential test does not compare."""

from __future__ import annotations

import random

import pytest

from rillet.commands.geo.replies import write_coordinate, write_distance
from rillet.protocol.reply_writer import ReplyWriter
from tests.commands.ends import Bench


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench("GEOADD", "s", "13.361389", "38.115556", "Palermo", "15.087269", "37.502669", "Catania")
    return bench


def test_geoadd_is_logged_as_zadd(bench: Bench) -> None:
    argv = ("GEOADD", "k", "nx", "CH", "13.361389", "38.115556", "a", "0", "0", "b")
    assert bench.logged(*argv) == [[b"zadd", b"k", b"nx", b"CH", b"3479099956230698", b"a", b"3377699720527872", b"b"]]
    assert bench.logged(*argv) == []
    assert bench.logged("GEORADIUS", "s", 15, 37, 200, "km", "STORE", "t") == [
        [b"GEORADIUS", b"s", b"15", b"37", b"200", b"km", b"STORE", b"t"]
    ]
    assert bench.logged("GEORADIUS", "s", 15, 37, 200, "km") == []


def test_the_keys_of_a_search(bench: Bench) -> None:
    assert bench("COMMAND", "GETKEYS", "GEORADIUS", "s", 1, 2, 3, "km") == [b"s"]
    words = ("GEORADIUSBYMEMBER", "s", "m", 3, "km", "STORE", "a", "storedist", "b")
    assert bench("COMMAND", "GETKEYS", *words) == [b"s", b"b"]
    more = ("GEOSEARCHSTORE", "t", "s", "FROMMEMBER", "m", "BYRADIUS", 1, "m")
    assert bench("COMMAND", "GETKEYS", *more) == [b"t", b"s"]


def test_a_search_replaces_its_own_source(bench: Bench) -> None:
    assert bench("GEOSEARCHSTORE", "s", "s", "FROMMEMBER", "Catania", "BYRADIUS", 1, "km") == 1
    assert bench("ZRANGE", "s", 0, -1) == [b"Catania"]
    assert bench("GEOSEARCHSTORE", "s", "none", "FROMMEMBER", "x", "BYRADIUS", 1, "km") == 0
    assert bench("EXISTS", "s") == 0


def test_a_polygon_around_a_pole() -> None:
    """Its centre is the pole, which has no cell."""
    bench = Bench(compat="valkey")
    bench("GEOADD", "k", 0, "85.05", "north", 0, "-85", "south")
    around = ("GEOSEARCH", "k", "BYPOLYGON", 4, 0, 84, 90, 84, 180, 84, -90, 84)
    assert bench(*around) in ([], [b"north"])
    assert bench("GEOSEARCH", "k", "BYPOLYGON", 2, 0, 84, 90, 84, "ASC") == (
        "ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"
    )


def test_the_distance_of_opposite_places_can_be_stored(bench: Bench) -> None:
    for latitude in range(0, 80, 7):
        bench("GEOADD", "k", 10, latitude, "here", -170, -latitude, "there")
        words = ("GEOSEARCHSTORE", "t", "k", "FROMMEMBER", "here", "BYRADIUS", 21000, "km", "STOREDIST")
        assert bench(*words) == 2
        assert 20_015 < float(bench("ZSCORE", "t", "there")) < 20_025
    bench.engine.check()


def test_coordinates_have_the_seventeen_decimals_of_printf() -> None:
    chance = random.Random(5)
    numbers = [0.0, -0.0, 0.5, -0.5, 1.0, -179.99999999999997, 180.0, 2.0**-8, 2.0**-9, 1e-20, 0.1 + 2.0**-40]
    numbers += [chance.uniform(-180.0, 180.0) for _ in range(300)]
    numbers += [chance.randrange(-180 << 40, 180 << 40) * 2.0**-40 for _ in range(300)]
    for number in numbers:
        text = f"{number:.17f}".rstrip("0").rstrip(".")
        text = "0" if text == "-0" else text
        out = ReplyWriter()
        write_coordinate(out, number, False)
        assert out.take_bytes() == f"${len(text)}\r\n{text}\r\n".encode()


def test_distances_have_four_decimals_rounded_to_even() -> None:
    chance = random.Random(6)
    for metres in (0.0, 0.00005, 0.00015, 1e13, 12.34565, *(chance.uniform(0, 2e7) for _ in range(300))):
        text = f"{round(metres * 10000.0):05d}"
        out = ReplyWriter()
        write_distance(out, metres)
        assert out.take_bytes() == f"${len(text) + 1}\r\n{text[:-4]}.{text[-4:]}\r\n".encode()
