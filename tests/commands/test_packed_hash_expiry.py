"""Commands on fields that expire have the same effects on packed hashes and on objects.

One side gets the commands as bytes, in batches, and packs its values; the other one by one, and makes an object of each
value. Compared are replies, values with their times, registrations in the keyspace, counters, access times and the log.
"""

from __future__ import annotations

import random

import pytest

from rillet.keyspace.database import Database
from rillet.persistence.aof.command_applier import CommandApplier
from rillet.protocol.command_parser import pack_command
from rillet.types.hash import Hash
from tests.commands.ends import NOW
from tests.commands.test_packed_values import NEVER, run_on_objects, state
from tests.commands.test_string_pipelines import bits, calls
from tests.commands.test_xadd_pipelines import Log, Side, sent
from tests.variants import by_speed, covering

KEYS = [b"h", b"h", b"h", b"small", b"table", b"table", b"large", b"new", b"text", b"missing"]
FIELDS = [b"f1", b"f2", b"f3", b"f4", b"7", b"-12", b"", b"x" * 40, b"long" * 20]
VALUES = [b"v", b"17", b"", b"-9223372036854775808", b"w" * 64, b"z" * 65, b"9" * 25]
TIMES = [b"1", b"1", b"2", b"3", b"10", b"100", b"5000", b"0", b"-1", b"x", b"01", b"", b"70368744178",
         b"9223372036854775807", b"-9223372036854775807", b"70368744177663", b"70368744177664"]  # fmt: skip
COUNTS = [b"0", b"-1", b"x", b"", b"02", b"9223372036854775807", b"-9223372036854775807", b"4611686018427387905"]
CONDITIONS: list[list[bytes]] = [[], [], [], [b"NX"], [b"XX"], [b"gt"], [b"LT"], [b"no"], [b"NX", b"XX"]]
SETTINGS: list[dict[str, object]] = [
    {}, {"hash_max_listpack_entries": 4, "maxmemory_policy": "allkeys-lfu"}, {"hash_max_listpack_value": 5},
]  # fmt: skip


def fields(chance: random.Random, width: int) -> list[bytes]:
    """Return FIELDS, a number, mostly the right one, and the fields with their values."""
    pairs = [[chance.choice(FIELDS[:5] if chance.random() < 0.8 else FIELDS), chance.choice(VALUES)][:width]
             for _ in range(chance.choice([1, 1, 2, 2, 3, 8]))]  # fmt: skip
    words = [word for pair in pairs for word in pair]
    count = chance.choice(COUNTS) if chance.random() < 0.03 else b"%d" % (len(pairs) + (chance.random() < 0.02))
    return [chance.choice([b"FIELDS", b"FIELDS", b"fields", b"FiElDs"]), count, *words]


def time(chance: random.Random, unit: int, relative: bool, clock: int) -> bytes:
    """Return a time; an absolute one is mostly near the present."""
    if relative or chance.random() < 0.1:
        return chance.choice(TIMES[:7] if chance.random() < 0.9 else TIMES)
    return b"%d" % ((clock + chance.choice([-5, -1, 0, 1, 2, 50, 1500, 4000, 100_000])) // unit)


def option(chance: random.Random, clock: int) -> list[bytes]:
    """Return an option of a time."""
    name, unit, relative = chance.choice(
        [(b"EX", 1000, True), (b"px", 1, True), (b"EXAT", 1000, False), (b"PXAT", 1, False)]
    )
    return [name, time(chance, unit, relative, clock)]


def some_command(chance: random.Random, clock: int) -> list[bytes]:
    """Return a random command, mostly one on fields that expire."""
    key = chance.choice(KEYS)
    kind = chance.randrange(12)
    if kind < 3:
        name, unit, relative = chance.choice([
            (b"HEXPIRE", 1000, True), (b"hpexpire", 1, True), (b"HEXPIREAT", 1000, False), (b"HPEXPIREAT", 1, False),
        ])  # fmt: skip
        return [name, key, time(chance, unit, relative, clock), *chance.choice(CONDITIONS), *fields(chance, 1)]
    if kind == 3:
        name = chance.choice([b"HTTL", b"HPTTL", b"hexpiretime", b"HPEXPIRETIME"])
        return [name, key, *fields(chance, 1)]
    if kind == 4:
        return [b"HPERSIST", key, *fields(chance, 1)]
    if kind in (5, 6):
        some = chance.choice([[], [b"PERSIST"], option(chance, clock), option(chance, clock), [b"KEEPTTL"], [b"EX"]])
        return [b"HGETEX", key, *some, *fields(chance, 1)]
    if kind in (7, 8):
        some = chance.choice([[], [b"keepttl"], option(chance, clock), option(chance, clock), [b"PX"], [b"PERSIST"]])
        parts = [some, *chance.choice([[], [], [[b"FNX"]], [[b"fxx"]], [[b"FXX"], [b"FNX"]]])]
        chance.shuffle(parts)
        return [b"HSETEX", key, *(word for part in parts for word in part), *fields(chance, 2)]
    if kind == 9:
        return [b"HGETDEL", key, *fields(chance, 1)]
    return chance.choice([
        [b"HSET", key, *fields(chance, 2)[2:]], *([name, key, chance.choice(FIELDS)] for name in (b"HDEL", b"HGET")),
        [b"DEL", key], [b"SET", b"text", b"1"], [b"PEXPIRE", key, chance.choice([b"1", b"50"])], [b"PERSIST", key],
        [b"HSET", b"h", b"f1", b"1", b"f2", b"2", b"f3", b"3"], [b"HSET", b"table", b"f1", b"x" * 70, b"7", b"8"],
        [b"HSET", b"small", b"f1", b"1"], [b"HSET", b"large", *(b"f%d" % n for n in range(200))], [b"HLEN", key],
        [b"RENAME", key, b"h"], [b"COPY", key, b"large", b"REPLACE"], [b"MULTI"], [b"EXEC"], [b"EXEC"], [b"UNWATCH"],
        [b"SELECT", b"0"], [b"SELECT", b"1"], [b"WATCH", b"h"], [b"HPEXPIRE", b"h", b"1"], [b"HGETEX", b"h", b"FIELDS"],
        [b"HSETEX", b"h", b"FIELDS", b"1", b"f1", b"v", b"EX", b"5"],
        [b"HPEXPIRE", b"h", b"9", b"FIELDS", b"1", b"f", b"NX"],
    ])  # fmt: skip


def registered(database: Database) -> dict[bytes, int]:
    """Return the hashes with fields that expire, by their next expiry."""
    return dict(database.subexpires.items())


def values(side: Side) -> object:
    """Return the fields of the hashes with their times; the order of a hashtable is not defined."""
    hashes = ((key, one) for key, one in side.engine.databases[0].items() if isinstance(one, Hash))
    return {
        key: (one.encoding(), [] if one.encoding() == "hashtable" else list(one), sorted(one.rows()))
        for key, one in hashes
    }


LOGS = [("newest", "log"), ("newest", "log with timestamps"), ("8.6", "none"), ("valkey", "log"), ("7.0", "log")]


@pytest.mark.parametrize(("place", "settings"), covering(LOGS, SETTINGS))
def test_packed_hashes_change_as_objects_do(place: tuple[str, str], settings: dict[str, object]) -> None:
    compat, log = place
    chance = random.Random(f"{compat} {log} {settings}")
    quick, slow = (
        Side(None if log == "none" else Log(log == "log with timestamps"), compat=compat, **settings) for _ in range(2)
    )
    limit = chance.choice([1, 1024])
    for ours, theirs in zip(quick.engine.databases, slow.engine.databases, strict=True):
        ours.awake_limit = limit
        theirs.awake_limit = NEVER
    for _ in range(by_speed(50, 20, 80)):
        now = slow.clock.now_ms()
        commands = [some_command(chance, now) for _ in range(chance.choice([1, 5, 20]))]
        expected = b"".join(run_on_objects(slow, argv) for argv in commands)
        assert quick.send(b"".join(sent(argv, chance) for argv in commands)) == expected, commands
        assert values(quick) == values(slow), commands
        assert state(quick) == state(slow), commands
        if quick.log is not None and slow.log is not None:
            assert quick.log.feed.take_bytes() == slow.log.feed.take_bytes(), commands
        assert quick.engine.stats.expired_fields == slow.engine.stats.expired_fields
        for ours, theirs in zip(quick.engine.databases[:2], slow.engine.databases[:2], strict=True):
            assert registered(ours) == registered(theirs), commands
            assert (ours.hits, ours.misses) == (theirs.hits, theirs.misses), commands
            if settings.get("maxmemory_policy") != "allkeys-lfu":
                assert bits(ours) == bits(theirs), commands
        ms = chance.choice([0, 0, 1, 3, 700, 5000])
        cycle = chance.random() < 0.2
        for side in (quick, slow):
            side.clock.advance(ms)
            if cycle:
                side.engine.expire_cycle()
            side.engine.check()


PREPARED = (
    b"HSET h f 1 g two i 3", b"HSET table f " + b"x" * 70 + b" g 2", b"HEXPIRE h 100 FIELDS 1 f",
    b"HEXPIRE table 100 FIELDS 1 g",
)  # fmt: skip
PLAIN = {
    b"HEXPIRE h 50 FIELDS 2 f x": b"*2\r\n:1\r\n:-2\r\n", b"HPEXPIRE table 90000 LT FIELDS 1 g": b"*1\r\n:1\r\n",
    b"HEXPIREAT h 1800000000 NX FIELDS 1 f": b"*1\r\n:0\r\n",
    b"HPEXPIREAT none 1800000000000 FIELDS 1 f": b"*1\r\n:-2\r\n",
    b"HGET h f": b"$1\r\n1\r\n", b"HGET table g": b"$1\r\n2\r\n", b"HGET h none": b"$-1\r\n",
    b"HTTL h FIELDS 3 f g x": b"*3\r\n:100\r\n:-1\r\n:-2\r\n", b"HPTTL table FIELDS 1 g": b"*1\r\n:100000\r\n",
    b"HEXPIRETIME h FIELDS 1 f": b"*1\r\n:%d\r\n" % ((NOW + 100_999) // 1000),
    b"HPEXPIRETIME none FIELDS 1 f": b"*1\r\n:-2\r\n", b"HPERSIST h FIELDS 2 f g": b"*2\r\n:1\r\n:-1\r\n",
    b"HGETEX h FIELDS 2 g x": b"*2\r\n$3\r\ntwo\r\n$-1\r\n", b"HGETEX table PERSIST FIELDS 1 g": b"*1\r\n$1\r\n2\r\n",
    b"HGETEX h PX 5 FIELDS 1 f": b"*1\r\n$1\r\n1\r\n", b"HSETEX new EX 9 FIELDS 1 f v": b":1\r\n",
    b"HSETEX h FNX KEEPTTL FIELDS 1 f v": b":0\r\n", b"HSETEX table FXX FIELDS 1 g 5": b":1\r\n",
    b"HGETDEL h FIELDS 3 f g i": b"*3\r\n$1\r\n1\r\n$3\r\ntwo\r\n$1\r\n3\r\n",
    b"HGETDEL table FIELDS 1 x": b"*1\r\n$-1\r\n",
}  # fmt: skip


@pytest.mark.parametrize("line", PLAIN)
def test_a_call_makes_no_list_of_its_arguments(line: bytes) -> None:
    side = Side(compat="newest")
    for prepared in PREPARED:
        side.run(prepared.split())
    before = side.session.argv
    assert side.send(pack_command(line.split())) == PLAIN[line]
    assert side.session.argv is before
    assert calls(side, line.split()[0].lower().decode()) > 0
    side.engine.check()


def test_the_log_restores_the_same_fields() -> None:
    """The log is read later than some of its times."""
    side, other = Side(Log(False), compat="newest"), Side(compat="newest")
    for line in (*PREPARED, b"HSETEX h PX 5 FIELDS 2 f 1 new 2", b"HGETEX table EXAT 1800000000 FIELDS 1 f",
                 b"HGETDEL h FIELDS 1 g", b"HPERSIST table FIELDS 1 g"):  # fmt: skip
        side.send(pack_command(line.split()))
    assert side.log is not None
    other.clock.advance(60_000)
    other.engine.loading = True
    CommandApplier("the log", other.engine.session(trusted=True), 0).feed(side.log.feed.take_bytes())
    other.engine.loading = False
    for key in (b"h", b"table"):
        ours, theirs = (one.engine.databases[0].peek(key) for one in (side, other))
        assert isinstance(ours, Hash)
        assert sorted(ours.rows()) == sorted(theirs.rows())
    assert registered(side.engine.databases[0]) == registered(other.engine.databases[0])
