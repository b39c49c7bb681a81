"""Values at rest in a database: what wakes them, when they rest, and that no client can tell the difference."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rillet.keyspace.clock import ManualClock
from rillet.keyspace.database import AWAKE_LIMIT, Database
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.types.hash import Hash
from rillet.types.stream.stream import Stream
from rillet.types.string import RAW, TEXT, String, new_string
from tests.differential import hashes, list_set, values, zsets
from tests.differential.templates import Maker, words
from tests.differential.test_generic_differential import OPTIONS, TEMPLATES, VALUES
from tests.differential.wire import Local
from tests.variants import by_speed, seeds

pytestmark = pytest.mark.both

NEVER = 1 << 40
NOW = 1_700_000_000_000
VALUES_OF_A_TYPE = by_speed(1000, 400, 3000)
ALL = (b"a", b"b", b"c", b"d", b"e", b"key:1", b"key:2", b"text", b"stream", *hashes.HASHES, *zsets.ZSETS, *zsets.FLAT,
       *list_set.LISTS, *list_set.SETS)  # fmt: skip


def database(limit: int = 0) -> Database:
    one = Database(0, ManualClock(1000))
    one.awake_limit = limit
    return one


def objects(one: Database) -> int:
    """Return the number of values that are objects."""
    return sum(one.keys.object_at(n) is not None for n in one.keys.entries())


def test_a_small_string_is_stored_at_rest() -> None:
    one = database()
    assert not one.set_string(b"k", b"12")
    assert one.set_string(b"k", b"13", TEXT)
    assert one.keys.get(b"k") == b"\x0113"
    assert one.view(b"k").encoding() == "embstr"
    assert objects(one) == 0
    assert one.set_string(b"k", bytes(5000))
    assert objects(one) == 1
    assert one.view(b"k").value() == bytes(5000)
    one.rest_oldest()
    assert objects(one) == 1
    assert one.set_string(b"k", b"small")
    assert objects(one) == 0
    one.check()


def test_a_lookup_wakes_a_value_and_a_change_of_it_goes_to_rest_with_it() -> None:
    one = database()
    one.set_string(b"k", b"12")
    string = one.lookup(b"k")
    assert isinstance(string, String)
    assert one.lookup(b"k") is string is one.peek(b"k") is one.view(b"k")
    string.append(b"3")
    assert objects(one) == 1
    one.rest_oldest()
    assert objects(one) == 0
    assert one.view(b"k").value() == b"123"
    assert one.view(b"k").form == RAW
    one.check()


def test_a_value_that_was_read_goes_to_rest_unwritten() -> None:
    one = database()
    one.set_string(b"k", b"value")
    place = one.keys.layout()["places"]
    one.lookup(b"k")
    one.rest_oldest()
    assert one.keys.layout()["places"] == place
    assert objects(one) == 0


def test_a_value_that_grew_stays_awake_and_frees_its_bytes() -> None:
    one = database()
    one.set_string(b"k", bytes(1000))
    string = one.lookup(b"k")
    assert isinstance(string, String)
    used = one.keys.arena.live
    string.append(bytes(1000))
    one.rest_oldest()
    assert objects(one) == 1
    assert one.keys.arena.live <= used - 1000
    one.check()


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 1, 10])
def test_the_oldest_values_rest_first(limit: int) -> None:
    one, count = database(limit), by_speed(300, 100)
    for number in range(count):
        value = Hash()
        value.set(b"f", b"x")
        one.put(b"%d" % number, value)
    for number in range(count):
        woken: Any = one.lookup(b"%d" % number)
        woken.set(b"f", b"%d" % number)
        one.rest_oldest()
        assert objects(one) == min(limit, number + 1)
    one.check()
    for number in range(count):
        found: Any = one.view(b"%d" % number)
        assert found.get(b"f") == b"%d" % number
    assert [one.keys.object_at(one.keys.find(b"%d" % number)) is None for number in range(count - limit)] == [True] * (
        count - limit
    )


def test_a_backlog_rests_in_steps() -> None:
    one = database()
    for number in range(1000):
        one.set(b"%d" % number, new_string(b"v"))
    one.rest_oldest()
    assert 900 <= objects(one) < 1000
    for _ in range(20):
        one.rest_oldest()
    assert objects(one) == 0
    assert one.awake == one.created == []


def test_a_created_value_rests_even_if_others_may_stay_awake() -> None:
    one = database(10)
    one.set(b"k", new_string(b"v"))
    assert objects(one) == 1
    one.rest_oldest()
    assert objects(one) == 0
    assert one.keys.arena.dead == 0  # the bytes extend the newest item


@pytest.mark.slow
def test_the_walk_finds_values_that_became_small() -> None:
    one = database()
    for number in range(600):
        large = Hash()
        for field in range(30):
            large.set(b"%d" % field, bytes(50))
        one.set(b"%d" % number, large)
    while one.created:
        one.rest_oldest()
    assert objects(one) == 600
    for number in range(0, 600, 2):
        value: Any = one.lookup(b"%d" % number)
        for field in range(29):
            value.remove(b"%d" % field)
    for _ in range(4):
        one.rest_some(256)
    assert objects(one) == 300
    one.check()


@pytest.mark.slow
def test_the_walk_frees_the_lists_of_objects_that_rest() -> None:
    one, count = database(), by_speed(9000, 3000)
    for number in range(count):
        one.set(b"%d" % number, new_string(b"v"))
        one.rest_oldest()
    for _ in range(2 * count // 256 + 4):
        one.rest_some(256)
    assert objects(one) == 0
    assert one.keys.layout()["object_slots"] == 0
    one.lookup(b"77")
    one.check()
    assert objects(one) == 1


def test_deleted_and_replaced_keys_may_be_listed_as_awake() -> None:
    one = database()
    one.set(b"gone", new_string(b"v"))
    one.set(b"other", new_string(b"v"))
    one.delete(b"gone")
    one.set(b"other", Stream())
    one.rest_oldest()
    assert isinstance(one.lookup(b"other"), Stream)
    one.set(b"k", new_string(b"v"))
    one.flush()
    one.rest_oldest()
    one.check()


def test_databases_that_are_swapped_keep_their_values() -> None:
    one, two = database(), database()
    one.set(b"k", new_string(b"one"))
    two.set(b"k", new_string(b"two"))
    one.swap(two)
    one.rest_oldest()
    assert objects(one) == 0
    assert objects(two) == 1
    two.rest_oldest()
    assert one.view(b"k").value() == b"two"
    assert two.view(b"k").value() == b"one"


def test_values_that_are_put_rest_at_once() -> None:
    one = database()
    value = Hash()
    value.set(b"f", b"v")
    assert not one.put(b"k", value)
    assert one.put(b"k", value)
    one.put(b"s", Stream())
    assert objects(one) == 1
    one.exchange(b"k", new_string(b"x"))
    assert objects(one) == 1
    assert one.view(b"k").value() == b"x"


def filled(count: int = VALUES_OF_A_TYPE) -> Local:
    """Return an engine with many values of each type at rest."""
    local = Local(Engine(Settings(compat="newest", enable_debug_command="yes"), ManualClock(NOW)))
    for number in range(count):
        local("SET", f"s{number}", number)
        local("HSET", f"h{number}", "a", number, "b", "x")
        local("SADD", f"i{number}", number)
        local("SADD", f"m{number}", "x", number)
        local("ZADD", f"z{number}", number, "m")
        local("RPUSH", f"l{number}", number, "x")
    return local


@pytest.mark.slow
def test_few_values_stay_awake() -> None:
    local = filled()
    one = local.session.db
    assert len(one) == 6 * VALUES_OF_A_TYPE
    assert objects(one) <= AWAKE_LIMIT
    assert len(one.awake) <= 2 * AWAKE_LIMIT + 2


READS = (
    "KEYS *", "SCAN 0 COUNT 100000 TYPE hash", "RANDOMKEY", "EXISTS s1 h1 l1", "TOUCH s1 h1", "TYPE z1", "DUMP h1",
    "OBJECT ENCODING i1", "MEMORY USAGE l1", "TTL m1", "EXPIRE m1 100", "PERSIST m1", "GET s1", "MGET s1 h1 s2",
    "STRLEN s1", "GETRANGE s1 0 1", "GETEX s1", "SET s1 1 NX", "SET s1 1 GET", "INCRBYFLOAT s1 0.5",
    "GETSET s1 x", "SETNX s1 x", "MSETNX s1 x s2 y", "COPY h1 copied", "RENAME h2 renamed", "MOVE h3 1",
    "DEBUG DIGEST", "DEBUG OBJECT h1", "DEBUG DIGEST-VALUE h1", "DEBUG RELOAD", "WATCH h1", "SWAPDB 1 2", "DBSIZE",
)  # fmt: skip


@pytest.mark.slow
def test_reads_of_any_type_wake_nothing() -> None:
    local = filled(20)
    one = local.session.db
    one.awake_limit = 0
    local("PING")
    while objects(one):
        local("PING")
    for line in READS:
        one.awake_limit = NEVER  # what a command wakes stays awake
        reply = local(*line.split())
        assert not (isinstance(reply, str) and reply.startswith("ERR")), (line, reply)
        assert objects(one) == 0, line
        local.engine.check()


def test_nothing_rests_within_a_transaction() -> None:
    local = Local(Engine(Settings(compat="newest"), ManualClock(NOW)))
    one = local.session.db
    one.awake_limit = 0
    local("MULTI")
    for number in range(100):
        local("RPUSH", f"l{number}", "a")
        local("RPUSH", f"l{number}", "b")
    assert local("EXEC") == [1, 2] * 100
    for _ in range(3):
        local("PING")
    assert objects(one) == 0
    assert local("LRANGE", "l7", 0, -1) == [b"a", b"b"]


# Commands whose reply, or effect, depends on the order of a hashtable. Redis defines none; here it is the order of the
# entries, and members that are added to an awake table fill the gaps of removed ones.
RANDOM = (b"SPOP", b"SRANDMEMBER", b"HRANDFIELD", b"SSCAN", b"HSCAN", b"SCAN", b"RANDOMKEY", b"DUMP")


class Twins:
    """Two engines with the same clock, seeds and commands: one returns each value to rest, the other never does."""

    def __init__(self, limit: int, compat: str) -> None:
        self.both = []
        for awake in (limit, NEVER):
            settings = Settings(compat=compat, enable_debug_command="yes", dump_format="native")
            local = Local(Engine(settings, ManualClock(NOW)))
            for one in local.engine.databases:
                one.awake_limit = awake
            self.both.append(local)

    def run(self, argv: list[bytes], seed: int) -> tuple[bytes, bytes]:
        """Run a command on both sides, with the same random choices; return the replies."""
        replies = []
        for local in self.both:
            random.seed(seed)
            replies.append(local.run(argv))
        return replies[0], replies[1]

    def tables(self, argv: list[bytes]) -> bool:
        """Return whether an argument is a key whose value is a hashtable."""
        asked = [[b"OBJECT", b"ENCODING", word] for word in argv[1:]]
        return any(b"hashtable" in local.run(one) for local in self.both for one in asked)

    def step(self, argv: list[bytes], seed: int, where: str) -> None:
        """Run a command and compare the replies; without the order of their parts if a hashtable is involved."""
        unordered = self.tables(argv)
        if unordered and argv[0].upper() in RANDOM:
            return
        ours, theirs = self.run(argv, seed)
        if unordered:
            ours, theirs = (b"".join(sorted(reply.split(b"\r\n"))) for reply in (ours, theirs))
        assert ours == theirs, f"{where}: {argv}"

    def compare(self, where: str) -> None:
        """Compare all that a client can see of the keys."""
        for key in ALL:
            data = [b"DEBUG", b"DIGEST-VALUE", key] if self.tables([b"", key]) else [b"DUMP", key]
            for argv in ([b"OBJECT", b"ENCODING", key], data, [b"PTTL", key]):
                ours, theirs = self.run(argv, 0)
                assert ours == theirs, f"{where}: {argv}"
        ours, theirs = self.run([b"DEBUG", b"DIGEST"], 0)
        assert ours == theirs, where
        for local in self.both:
            local.engine.check()


@pytest.mark.parametrize("seed", seeds(2, 8))
@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_no_client_can_tell_whether_values_rest(compat: str, limit: int, seed: int) -> None:
    twins = Twins(limit, compat)
    level = twins.both[0].engine.settings.compat.level
    makers: list[values.Generator] = [kind(seed, level) for kind in (
        hashes.Generator, zsets.Generator, list_set.Generator
    )]  # fmt: skip
    strings = Maker(seed, TEMPLATES, VALUES, OPTIONS)
    chance = random.Random(seed)
    for step in range(by_speed(200, 40, 600)):
        kind = chance.randrange(4)
        argv = makers[kind].next() if kind < 3 else words(strings.command())
        if argv[0].upper() in (b"SHUTDOWN", b"MEMORY", b"CLIENT", b"SLOWLOG", b"LATENCY", b"CONFIG") and kind == 3:
            continue
        if argv[:2] == [b"DEBUG", b"OBJECT"]:
            continue
        twins.step(argv, step, f"seed {seed}, step {step}")
        twins.both[0].session.db.check()
        if step % 20 == 0:
            twins.compare(f"seed {seed}, step {step}: {argv}")
    twins.compare(f"seed {seed}, the end")
