"""Commands on small collections at rest have the effects of the same commands on objects.

The fast paths of hashes, lists, sets and sorted sets use small values as bytes (rillet.commands.small_values). One
side does so from bytes as a server, the second through its handlers, and the third never: it has a callback for new and
for missing keys, which the shorter form does not support, and its values never rest.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from rillet import compiled
from rillet.protocol.command_parser import pack_command
from rillet.structs.dict import Dict
from rillet.types.at_rest import LIMIT, to_rest
from rillet.types.hash import Hash
from rillet.types.rdb.value import dump
from tests.commands.test_string_pipelines import bits, calls
from tests.commands.test_xadd_pipelines import Log, Side, sent
from tests.variants import by_speed, covering

pytestmark = pytest.mark.both

NEVER = 1 << 40
BATCHES = by_speed(15, 4, 30)
KEYS = [b"h", b"s", b"i", b"z", b"l", b"other", b"", b"k" * 70]
WORDS = [b"", b"a", b"b", b"c", b"f", b"1", b"2", b"-17", b"007", b"4095", b"70000", b"3000000000", b"x" * 9,
         b"x" * 64, b"y" * 65, b"z" * 130, b"-9223372036854775808", b"9223372036854775807", b"9223372036854775808",
         b"\xff\0\r\n", b"w" * 900, b"v" * LIMIT]  # fmt: skip
INTEGERS = [b"1", b"2", b"3", b"-1", b"32767", b"32768", b"-2147483649", b"5000000000", b"-9223372036854775808"]
SCORES = [b"1", b"2", b"2.5", b"-0", b"+3", b".5", b"1e3", b"inf", b"-inf", b"nan", b"x", b"", b"0.1", b"1234567.125",
          b"123456789012345678", b"0x10", b"1.", b"-", b".", b"1.1.1", b"100000000000000000000"]  # fmt: skip
BOUNDS = [b"0", b"1", b"2", b"-1", b"-2", b"100", b"-100", b"x", b"9223372036854775807", b"-9223372036854775808",
          b"4611686018427387903", b"01"]  # fmt: skip
SETTINGS: list[dict[str, int]] = [
    {},
    {"hash_max_listpack_entries": 3, "set_max_listpack_entries": 3, "set_max_intset_entries": 3,
     "zset_max_listpack_entries": 3, "list_max_listpack_size": 3},
    {"hash_max_listpack_value": 8, "set_max_listpack_value": 8, "zset_max_listpack_value": 8,
     "list_max_listpack_size": 0, "list_compress_depth": 1},
    {"set_max_listpack_entries": 0, "set_max_intset_entries": 0, "hash_max_listpack_entries": 0},
]  # fmt: skip


def some_command(chance: random.Random) -> list[bytes]:
    """Return a random command, mostly one that has a form for values at rest."""
    key = chance.choice(KEYS) if chance.random() < 0.1 else b""
    count = chance.choice([1, 1, 1, 2, 3, 3, 5, 70])
    kind = chance.randrange(11)
    if kind == 0:
        return [b"HGET", key or b"h", chance.choice(WORDS)]
    if kind in (1, 2):
        fields = [chance.choice(WORDS[:10] if chance.random() < 0.7 else WORDS) for _ in range(2 * count)]
        return [chance.choice([b"HSET", b"hset", b"HMSET"]), key or b"h", *fields[chance.random() < 0.05 :]]
    if kind == 3:
        return [b"SADD", key or b"s", *chance.choices(WORDS, k=count)]
    if kind == 4:
        return [b"SADD", key or b"i", *chance.choices(INTEGERS if chance.random() < 0.95 else WORDS, k=count)]
    if kind == 5:
        scores = SCORES[:7] if chance.random() < 0.8 else SCORES
        pairs = [word for _ in range(count) for word in (chance.choice(scores), chance.choice(WORDS[:14]))]
        return [b"ZADD", key or b"z", *([b"CH"] if chance.random() < 0.1 else []), *pairs]
    if kind == 6:
        return [chance.choice([b"LPUSH", b"RPUSH", b"rPush"]), key or b"l", *chance.choices(WORDS, k=count)]
    if kind == 7:
        name = chance.choice([b"HGETALL", b"HLEN", b"SMEMBERS", b"SCARD", b"ZCARD", b"LLEN", b"LPOP", b"RPOP"])
        own = {b"H": b"h", b"S": chance.choice([b"s", b"i"]), b"Z": b"z", b"L": b"l", b"R": b"l"}[name[:1]]
        return [name, key or own, *([b"2"] if chance.random() < 0.03 else [])]
    if kind == 8:
        name = chance.choice([b"HMGET", b"HDEL", b"SREM", b"ZREM", b"SISMEMBER", b"ZSCORE"])
        own = {b"H": b"h", b"S": chance.choice([b"s", b"i"]), b"Z": b"z"}[name[:1]]
        words = WORDS[:18] + (INTEGERS if own == b"i" else [])
        return [name, key or own, *chance.choices(words, k=1 if name in (b"SISMEMBER", b"ZSCORE") else count)]
    if kind == 9:
        if chance.random() < 0.6:
            return chance.choice([
                [b"HINCRBY", key or b"h", chance.choice(WORDS[:15]), chance.choice(BOUNDS)],
                [b"HSETNX", key or b"h", chance.choice(WORDS), chance.choice(WORDS)],
                [b"ZINCRBY", key or b"z", chance.choice(SCORES), chance.choice(WORDS[:14])],
            ])  # fmt: skip
        name, own = chance.choice([(b"LRANGE", b"l"), (b"ZRANGE", b"z")])
        return [name, key or own, chance.choice(BOUNDS), chance.choice(BOUNDS)]
    return chance.choice([
        [b"DEL", chance.choice(KEYS)], [b"DEL", b"h", b"s", b"i", b"z", b"l"], [b"PEXPIRE", chance.choice(KEYS), b"1"],
        [b"HDEL", b"h", b"a"], [b"HINCRBY", b"h", b"1", b"1"], [b"SREM", b"s", b"a"], [b"SREM", b"i", b"1"],
        [b"ZINCRBY", b"z", b"1", b"a"], [b"ZREM", b"z", b"b"], [b"LPOP", b"l"], [b"RPOP", b"l", b"5"], [b"PING"],
        [b"LREM", b"l", b"1", b"a"], [b"SET", b"other", b"1"], [b"HSET", b"h"], [b"SADD", b"s"], [b"MULTI"], [b"EXEC"],
        [b"EXEC"], [b"SELECT", b"1"], [b"SELECT", b"0"], [b"FLUSHALL"], [b"HGET", b"h"], [b"LTRIM", b"l", b"0", b"1"],
    ])  # fmt: skip


def content(value: Any) -> object:
    """Return what clients can see of a value; the order of a hashtable is not defined."""
    if value.encoding() != "hashtable":
        return value.encoding(), dump(value)
    return value.encoding(), sorted(value.items() if isinstance(value, Hash) else value)


def state(side: Side) -> object:
    databases = [{key: content(value) for key, value in one.items()} for one in side.engine.databases[:2]]
    counted = [(one.hits, one.misses) for one in side.engine.databases]
    return databases, counted, side.engine.dirty, side.engine.stats.commands_processed


def sorted_lines(replies: bytes) -> bytes:
    return b"".join(sorted(replies.split(b"\r\n")))


def run_on_objects(side: Side, argv: list[bytes]) -> bytes:
    """Run a command while every value is an object."""
    for one in side.engine.databases[:2]:
        for key, _ in one.items():
            one.wake(key)
    return side.run(argv)


def ignore(*_args: object) -> None:
    """Accept a notification."""


def sides(compat: str, log: bool, **settings: object) -> tuple[Side, Side, Side]:
    """Return the three sides."""
    three = [Side(Log(False) if log else None, compat=compat, **settings) for _ in range(3)]
    for one in three[2].engine.databases:
        one.on_new = one.on_missed = ignore
        one.awake_limit = NEVER
    for side in three[:2]:
        for one in side.engine.databases:
            one.awake_limit = 1
    return three[0], three[1], three[2]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "settings"), covering(
    [("7.0", True), ("newest", False), ("newest", True), ("valkey", True)], SETTINGS
))  # fmt: skip
def test_values_at_rest_change_as_objects_do(place: tuple[str, bool], settings: dict[str, int]) -> None:
    compat, log = place
    chance = random.Random(f"{compat} {log} {settings}")
    policy = chance.choice(["noeviction", "allkeys-lru", "allkeys-lfu"])
    quick, handled, slow = sides(compat, log, maxmemory_policy=policy, **settings)
    for _ in range(BATCHES):
        commands = [some_command(chance) for _ in range(chance.choice([1, 5, 20]))]
        # HGETALL and SMEMBERS of a hashtable have no defined order; EXEC runs those of an earlier batch.
        form = sorted_lines if any(argv[0] in (b"HGETALL", b"SMEMBERS", b"EXEC") for argv in commands) else bytes
        expected = form(b"".join(run_on_objects(slow, argv) for argv in commands))
        assert form(b"".join(handled.run(argv) for argv in commands)) == expected
        assert form(quick.send(b"".join(sent(argv, chance) for argv in commands))) == expected
        assert state(quick) == state(slow)
        assert state(handled) == state(slow)
        if quick.log is not None and handled.log is not None and slow.log is not None:
            logged = slow.log.feed.take_bytes()
            assert quick.log.feed.take_bytes() == logged
            assert handled.log.feed.take_bytes() == logged
        if policy == "allkeys-lru":
            for ours, theirs in zip(quick.engine.databases, slow.engine.databases, strict=True):
                assert bits(ours) == bits(theirs)
        ms = chance.choice([0, 0, 1, 700])
        for side in (quick, handled, slow):
            side.clock.advance(ms)
            side.engine.check()


CREATED = [
    [b"HSET", b"k", b"f", b"v", b"g", b"17"], [b"SADD", b"k", b"a", b"b"], [b"SADD", b"k", b"1", b"70000"],
    [b"ZADD", b"k", b"1", b"a", b"2.5", b"b"], [b"RPUSH", b"k", b"a", b"b"], [b"LPUSH", b"k", b"a", b"b"],
    [b"HSET", b"k", b"f", b"v" * 100], [b"SADD", b"k", b"m" * 100],
]  # fmt: skip


@pytest.mark.parametrize("argv", CREATED)
def test_a_small_value_is_created_and_changed_without_an_object(argv: list[bytes]) -> None:
    side = Side(log := Log(False))
    side.run([b"PING"])
    before = side.session.argv
    database = side.engine.databases[0]
    one = pack_command(argv)
    other = pack_command([word.replace(b"a", b"c") for word in argv])
    side.send(one + other + one)
    assert side.session.argv is before
    assert calls(side, argv[0].decode().lower()) == 3
    assert database.awake_value(b"k") is None
    assert database.created == database.awake == []
    assert database.keys.get(b"k") == to_rest(database.view(b"k"))
    assert log.feed.take_bytes().startswith(b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n" + one)
    side.engine.check()


def test_hget_wakes_nothing_and_reads_every_encoding() -> None:
    side = Side()
    long, many = b"v" * 100, [b"%d" % number for number in range(1200)]
    side.run([b"HSET", b"small", b"f", b"v", b"n", b"-17"])
    side.run([b"HSET", b"long", b"f", long])
    side.run([b"HSET", b"large", *many])
    database = side.engine.databases[0]
    for key, field, reply in [
        (b"small", b"f", b"$1\r\nv\r\n"), (b"small", b"n", b"$3\r\n-17\r\n"), (b"small", b"v", b"$-1\r\n"),
        (b"long", b"f", b"$100\r\n" + long + b"\r\n"), (b"large", b"4", b"$1\r\n5\r\n"), (b"large", b"5", b"$-1\r\n"),
        (b"none", b"f", b"$-1\r\n"),
    ]:  # fmt: skip
        assert side.run([b"HGET", key, field]) == side.send(pack_command([b"HGET", key, field])) == reply
    assert database.awake == []
    assert (database.hits, database.misses) == (12, 2)


READ = [
    (b"HMGET h name none", b"*2\r\n$1\r\nx\r\n$-1\r\n"),
    (b"HGETALL h", b"*4\r\n$4\r\nname\r\n$1\r\nx\r\n$1\r\nn\r\n$1\r\n5\r\n"),
    (b"HLEN h", b":2\r\n"), (b"HINCRBY h n 2", b":7\r\n"), (b"HDEL h n none", b":1\r\n"), (b"SISMEMBER s a", b":1\r\n"),
    (b"SISMEMBER i 70000", b":1\r\n"), (b"SISMEMBER i x", b":0\r\n"),
    (b"SMEMBERS i", b"*2\r\n$1\r\n3\r\n$5\r\n70000\r\n"),
    (b"SMEMBERS s", b"*1\r\n$1\r\na\r\n"), (b"SCARD i", b":2\r\n"), (b"SCARD s", b":1\r\n"), (b"ZCARD z", b":2\r\n"),
    (b"ZSCORE z b", b"$3\r\n2.5\r\n"), (b"ZRANGE z 0 -1", b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"), (b"LLEN l", b":3\r\n"),
    (b"HSETNX h name y", b":0\r\n"), (b"HSETNX h new y", b":1\r\n"), (b"ZINCRBY z 2 b", b"$3\r\n4.5\r\n"),
    (b"ZINCRBY z 0 b", b"$3\r\n4.5\r\n"), (b"ZREM z a none", b":1\r\n"), (b"SREM i 3 x", b":1\r\n"),
    (b"SREM s none", b":0\r\n"), (b"SREM s a", b":1\r\n"), (b"SREM i 70000", b":1\r\n"), (b"ZREM z b", b":1\r\n"),
    (b"LRANGE l -2 5", b"*2\r\n$1\r\nb\r\n$1\r\n3\r\n"), (b"LPOP l", b"$1\r\na\r\n"), (b"RPOP l", b"$1\r\n3\r\n"),
]  # fmt: skip


@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_reads_and_removals_wake_nothing(compat: str) -> None:
    side = Side(compat=compat)
    for line in (b"HSET h name x n 5", b"SADD s a", b"SADD i 3 70000", b"ZADD z 1 a 2.5 b", b"RPUSH l a b 3"):
        side.run(line.split())
    before = side.session.argv
    for line, reply in READ:
        assert side.send(pack_command(line.split())) == reply, line
    assert side.session.argv is before
    database = side.engine.databases[0]
    assert database.awake == database.created == []
    assert side.send(pack_command([b"LPOP", b"l"]) + pack_command([b"LPOP", b"l"])) == b"$1\r\nb\r\n$-1\r\n"
    assert side.run([b"EXISTS", b"l"]) == b":0\r\n"
    side.engine.check()


def test_a_value_of_another_type_is_an_error() -> None:
    side = Side()
    side.run([b"SET", b"k", b"v"])
    for argv in ([b"HGET", b"k", b"f"], *CREATED):
        assert side.send(pack_command(argv)).startswith(b"-WRONGTYPE"), argv


@pytest.mark.parametrize("argv", CREATED)
def test_a_watched_key_and_a_blocked_client_are_served(argv: list[bytes]) -> None:
    side = Side()
    other = side.engine.session()
    side.engine.execute(other, [b"WATCH", b"k"])
    side.send(pack_command(argv))
    assert other.watcher.dirty
    side.run([b"DEL", b"k"])
    if argv[0] in (b"RPUSH", b"LPUSH", b"ZADD"):
        pop = b"BZPOPMIN" if argv[0] == b"ZADD" else b"BLPOP"
        blocked = side.engine.session()
        side.engine.execute(blocked, [pop, b"k", b"0"])
        assert blocked.blocked is not None
        side.send(pack_command(argv))
        assert blocked.blocked is None


def test_changed_settings_take_effect() -> None:
    side = Side(compat="newest")
    side.run([b"CONFIG", b"SET", b"hash-max-listpack-entries", b"1"])
    side.send(pack_command([b"HSET", b"h", b"a", b"1"]))
    assert side.run([b"OBJECT", b"ENCODING", b"h"]) == b"$8\r\nlistpack\r\n"
    side.send(pack_command([b"HSET", b"h", b"b", b"1"]))
    assert side.run([b"OBJECT", b"ENCODING", b"h"]) == b"$9\r\nhashtable\r\n"


def test_keyspace_events_are_published() -> None:
    side = Side(notify_keyspace_events="KA")
    events: list[bytes] = []
    side.engine.on_keyspace_event = lambda _database, _kind, event, _key: events.append(event)
    for argv in CREATED[:5]:
        side.run(argv)
        side.run([b"DEL", b"k"])
    assert [event for event in events if event != b"del"] == [b"hset", b"sadd", b"sadd", b"zadd", b"rpush"]


# -- found by review ----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [2**62, 2**63 - 1])
def test_the_greatest_limits_keep_the_compact_encodings(limit: int) -> None:
    side = Side(hash_max_listpack_entries=limit, zset_max_listpack_entries=limit)
    side.send(b"".join(map(pack_command, ([b"HSET", b"h", b"f", b"v"], [b"HINCRBY", b"h", b"n", b"1"],
                                          [b"ZADD", b"z", b"1", b"m"]))))  # fmt: skip
    assert side.run([b"OBJECT", b"ENCODING", b"h"]) == side.run([b"OBJECT", b"ENCODING", b"z"]) == b"$8\r\nlistpack\r\n"


def test_batches_settle_the_account_of_memory() -> None:
    side = Side()
    for key in (b"s0", b"s1"):
        side.run([b"SADD", key, *(b"member:%d" % n for n in range(700))])
    for n in range(300):
        side.send(pack_command([b"SADD", b"s%d" % (n % 2), b"member:1"]))
    assert len(side.session.db.ledger.waiting) < 100


@pytest.mark.skipif(compiled(), reason="compiled methods cannot be replaced")
def test_without_memory_to_tidy_up_a_change_is_executed_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(False)
    side, twin = Side(log), Side()
    commands = [[b"HSET", b"h", b"f", b"v"], [b"RPUSH", b"l", b"a", b"b", b"c"], [b"SADD", b"s", b"x"]]
    side.send(b"".join(map(pack_command, commands)))
    failures = 0

    def no_memory(*_: object) -> None:
        nonlocal failures
        failures += 1
        raise MemoryError

    side.run([b"SET", b"gap", b"x" * 1000])
    side.run([b"DEL", b"gap"])  # most bytes of the page are dead
    monkeypatch.setattr("rillet.structs.dict._MIN_DEAD", 0)
    monkeypatch.setattr(Dict, "_compact", no_memory)
    for argv in ([b"HSET", b"h", b"f2", b"v2"], [b"LPOP", b"l"], [b"SADD", b"s", b"y"], [b"DEL", b"s"]):
        assert not side.send(pack_command(argv)).startswith(b"-")
    assert failures >= 4
    side.engine.databases[0].keys.tidy(1)  # as after deletions during a pause
    monkeypatch.undo()
    twin.send(log.feed.take_bytes())
    for argv in ([b"HGETALL", b"h"], [b"LRANGE", b"l", b"0", b"-1"], [b"EXISTS", b"s"]):
        assert side.run(argv) == twin.run(argv)


BATCHES_THAT_FAIL = {
    b"HSET": ([b"HSET", b"h%d", b"f", b"w"], "set_value_span"), b"SET": ([b"SET", b"h%d", b"w"], "set_value_span"),
    b"RPUSH": ([b"RPUSH", b"l%d", b"w"], "set_value_span"), b"HGET": ([b"HGET", b"h%d", b"f"], "value_span"),
}  # fmt: skip


@pytest.mark.skipif(compiled(), reason="compiled methods cannot be replaced")
@pytest.mark.parametrize("name", BATCHES_THAT_FAIL)
def test_after_an_exception_in_a_batch_the_calls_before_it_are_counted_and_logged(
    name: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv, method = BATCHES_THAT_FAIL[name]
    log = Log(False)
    side = Side(log)
    for number in range(5):
        side.run([b"HSET", b"h%d" % number, b"f", b"v"])
        side.run([b"RPUSH", b"l%d" % number, b"v"])
    log.feed.take_bytes()
    dirty, processed = side.engine.dirty, side.engine.stats.commands_processed
    before = calls(side, name.decode().lower())
    times = 0
    original = getattr(Dict, method)

    def fail_third(self: Dict, *arguments: Any) -> Any:
        nonlocal times
        times += self is side.engine.databases[0].keys
        if times == 3:
            raise MemoryError
        return original(self, *arguments)

    monkeypatch.setattr(Dict, method, fail_third)
    commands = [[word.replace(b"%d", b"%d" % number) for word in argv] for number in range(5)]
    with pytest.raises(MemoryError):
        side.send(b"".join(map(pack_command, commands)))
    monkeypatch.undo()
    writes = 0 if name == b"HGET" else 2
    assert side.engine.dirty - dirty == writes
    assert side.engine.stats.commands_processed - processed == 3  # the third one has begun, as with a handler
    assert calls(side, name.decode().lower()) - before == 3
    assert log.feed.take_bytes() == b"".join(map(pack_command, commands[:writes]))
    side.engine.check()
