"""A command has the same effects on packed values as on objects: reply, value, access time, counters, log.

The commands are those of the differential tests. One side gets them in a buffer, and the other one by one, while every
value is an object.
"""

from __future__ import annotations

import random

import pytest

from rillet.protocol.command_parser import pack_command
from rillet.types.compat import COMPATS
from tests.commands.test_packed_values import run_on_objects
from tests.commands.test_string_pipelines import bits, calls
from tests.commands.test_xadd_pipelines import Log, Side
from tests.differential import arrays, geo, hyperloglogs, sorting, strings, values
from tests.differential import bits as bitmaps
from tests.variants import by_speed, covering

GENERATORS: dict[str, type[values.Generator]] = {
    "arrays": arrays.Generator, "bits": bitmaps.Generator, "geo": geo.Generator,
    "hyperloglogs": hyperloglogs.Generator, "sorting": sorting.Generator, "strings": strings.Generator,
}  # fmt: skip


@pytest.mark.parametrize(("kind", "compat"), covering(GENERATORS, ["7.0", "newest"]))
def test_commands_in_a_buffer_have_the_effects_of_single_commands(kind: str, compat: str) -> None:
    chance = random.Random(kind)
    maker = GENERATORS[kind](31, COMPATS[compat].level)
    quick, slow = (Side(Log(False), compat=compat) for _ in range(2))
    for _ in range(by_speed(60, 15)):
        commands = [maker.next() for _ in range(chance.choice((1, 5, 20)))]
        replies = quick.send(b"".join(map(pack_command, commands)))
        assert replies == b"".join(run_on_objects(slow, argv) for argv in commands), commands
        assert quick.state() == slow.state(), commands
        assert bits(quick.engine.databases[0]) == bits(slow.engine.databases[0])
        assert (quick.engine.databases[0].hits, quick.engine.databases[0].misses) == (
            slow.engine.databases[0].hits, slow.engine.databases[0].misses)  # fmt: skip
        assert quick.log is not None
        assert slow.log is not None
        assert quick.log.feed.take_bytes() == slow.log.feed.take_bytes()
        for side in (quick, slow):
            side.clock.advance(1)
            side.engine.check()


PREPARED = (
    b"SETBIT b 999 1", b"SETBIT b 999 1", b"SET text words", b"GEOADD places 11 45 a 11.1 45.1 b 12 46 c",
    b"SET n 5", b"SET same old", b"ARSET array 0 1 2 3", b"HSET hash a 1 b 2", b"RPUSH list 3 -1 2 10",
    b"CONFIG SET zset-max-listpack-entries 1", b"GEOADD sights 11 45 a 11.1 45.1 b 12 46 c", b"PFADD log a b",
    b"PFDEBUG TODENSE log", b"PFMERGE sum log",
)  # fmt: skip
PLAIN = {
    b"SETBIT b 7 1": b":0\r\n", b"GETBIT text 1": b":1\r\n", b"BITCOUNT text 0 0": b":6\r\n",
    b"BITPOS b 0": b":0\r\n", b"BITFIELD b GET u8 0 INCRBY i8 0 -1": b"*2\r\n:0\r\n:-1\r\n",
    b"BITFIELD text GET u8 0": b"*1\r\n:119\r\n",
    b"BITOP XOR both text n": b":5\r\n", b"ARDEL array 1": b":1\r\n", b"ARDEL array 9": b":0\r\n",
    b"GEOSEARCH sights FROMMEMBER a BYRADIUS 20 km DESC": b"*2\r\n$1\r\nb\r\n$1\r\na\r\n",
    b"GEOSEARCH sights FROMLONLAT 11 45 BYBOX 1 1 km WITHHASH": b"*1\r\n*2\r\n$1\r\na\r\n:3662466598026080\r\n",
    b"GEODIST places a b km": b"$7\r\n13.6183\r\n", b"PFMERGE sum log": b"+OK\r\n",
}  # fmt: skip


@pytest.mark.parametrize("line", PLAIN)
def test_a_call_creates_no_list_of_arguments(line: bytes) -> None:
    side = Side(compat="newest")
    for prepared in PREPARED:
        side.run(prepared.split())
    before = side.session.argv
    assert side.send(pack_command(line.split())) == PLAIN[line]
    assert side.session.argv is before
    assert calls(side, line.split()[0].lower().decode()) > 0


def test_searches_among_many_places_find_the_same_members_in_both_encodings() -> None:
    chance = random.Random(8)
    quick, slow = (Side(compat="newest", zset_max_listpack_entries=entries) for entries in (0, 1000))
    places = [[b"%.2f" % chance.uniform(10, 11), b"%.2f" % chance.uniform(45, 46), b"m%d" % n] for n in range(400)]
    for side in (quick, slow):
        side.run([b"GEOADD", b"places", *(word for place in places for word in place)])
    for _ in range(by_speed(200, 40)):
        argv = [
            b"GEOSEARCH", b"places",
            *chance.choice(([b"FROMLONLAT", *chance.choice(places)[:2]], [b"FROMMEMBER", chance.choice(places)[2]])),
            *chance.choice(([b"BYRADIUS"], [b"BYBOX", b"70"])), b"%d" % chance.randrange(60),
            b"km", *chance.choice(([], [b"ASC"], [b"desc"])),
            *chance.choice(([], [b"COUNT", b"%d" % chance.randrange(1, 50)])),
            *chance.choice(([], [b"WITHDIST"], [b"WITHHASH", b"WITHCOORD"])),
        ]  # fmt: skip
        assert quick.send(pack_command(argv)) == slow.run(argv), argv


def test_lists_of_numbers_are_sorted_alike() -> None:
    chance = random.Random(9)
    for compat in ("7.0", "newest"):
        quick, slow = (Side(compat=compat) for _ in range(2))
        for _ in range(by_speed(60, 15)):
            bound = chance.choice((3, 1000, 2**40, 2**60))
            numbers = [b"%d" % chance.randrange(-bound, bound) for _ in range(chance.choice((1, 5, 13, 100, 700)))]
            argv = [
                b"SORT", b"list", *chance.choice(([], [b"DESC"])),
                *chance.choice(([], [b"LIMIT", b"%d" % chance.randrange(9), b"%d" % chance.randrange(9)])),
                *chance.choice(([], [b"STORE", chance.choice((b"target", b"list"))])),
            ]  # fmt: skip
            for command in ([b"DEL", b"list"], [b"RPUSH", b"list", *numbers], argv, [b"TYPE", b"target"]):
                assert quick.send(pack_command(command)) == slow.run(command), argv
            assert quick.state() == slow.state()
