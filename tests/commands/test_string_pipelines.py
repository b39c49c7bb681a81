"""The fast paths of GET, SET, INCR and similar commands have the effects of their handlers.

Compared are reply, value, access time, counters, log, WATCH.
"""

from __future__ import annotations

import random

import pytest

from rillet.keyspace.database import Database
from rillet.keyspace.lru import LFU
from rillet.protocol.command_parser import pack_command
from rillet.runtime.registry import TABLE
from rillet.types.at_rest import LIMIT as LARGEST
from tests.commands.test_xadd_pipelines import LIMIT, Log, Side, sent
from tests.variants import by_speed, covering

KEYS = [b"a", b"a", b"b", b"c", b"", b"list", b"hash", b"k" * 70, b"k" * 200, b"\r\n"]
VALUES = [b"", b"1", b"-17", b"007", b"text", b"x" * 44, b"x" * 45, b"x" * 126, b"x" * 127, b"\xff\0\r\n",
          b"y" * LARGEST, b"y" * (LARGEST + 1), b"9223372036854775807", b"9223372036854775808"]  # fmt: skip
STEPS = [b"1", b"0", b"-1", b"1000", b"007", b"x", b"", b"4611686018427387904", b"9223372036854775807"]
OTHERS = [
    [b"APPEND", b"a", b"x"], [b"SETRANGE", b"b", b"2", b"zz"], [b"INCR", b"c"], [b"INCRBYFLOAT", b"c", b"0.5"],
    [b"DEL", b"a"], [b"UNLINK", b"b"], [b"SET", b"a", b"1", b"EX", b"1"], [b"SET", b"b", b"2", b"NX"], [b"GET"],
    [b"SET", b"a"], [b"GET", b"a", b"b"], [b"PEXPIRE", b"a", b"2"], [b"PEXPIRE", b"c", b"1"], [b"PERSIST", b"a"],
    [b"RPUSH", b"list", b"1"], [b"HSET", b"hash", b"f", b"v"], [b"SET", b"list", b"1"], [b"OBJECT", b"ENCODING", b"a"],
    [b"MGET", b"a", b"b", b"hash"], [b"STRLEN", b"a"], [b"GETDEL", b"b"], [b"WATCH", b"a"], [b"MULTI"], [b"EXEC"],
    [b"SELECT", b"1"], [b"SELECT", b"0"], [b"RENAME", b"a", b"b"], [b"COPY", b"b", b"a", b"REPLACE"], [b"PING"],
    [b"OBJECT", b"IDLETIME", b"a"], [b"FLUSHALL"], [b"CLIENT", b"NO-TOUCH", b"ON"], [b"CLIENT", b"NO-TOUCH", b"OFF"],
]  # fmt: skip


def bits(database: Database) -> dict[bytes, int]:
    """Return the LRU or LFU data of each key."""
    return {database.keys.entry_key(n): database.keys.lru(n) for n in database.keys.entries()}


def some_command(chance: random.Random) -> list[bytes]:
    """Return a random command, mostly a GET or SET that the fast path takes."""
    if chance.random() < 0.15:
        return chance.choice(OTHERS)
    key = chance.choice(KEYS)
    if chance.random() < 0.2:
        return [chance.choice([b"INCR", b"incr", b"DECR"]), key]
    if chance.random() < 0.2:
        return [chance.choice([b"INCRBY", b"incrby", b"DECRBY"]), key, chance.choice(STEPS)]
    if chance.random() < 0.5:
        return [chance.choice([b"GET", b"get", b"GeT"]), key]
    return [chance.choice([b"SET", b"set", b"sEt"]), key, chance.choice(VALUES)]


@pytest.mark.parametrize(("seed", "log", "policy"), covering(
    range(4), ["none", "log", "log with timestamps"], ["noeviction", "allkeys-lfu", "allkeys-lrm"]
))  # fmt: skip
def test_a_batch_of_commands_has_the_effects_of_the_single_commands(seed: int, log: str, policy: str) -> None:
    """One side gets them as bytes in two parts, the other one by one; all that can be observed is equal."""
    chance = random.Random(f"{seed} {log} {policy}")
    options = {"compat": "newest", "lazyfree_lazy_server_del": chance.random() < 0.3, "maxmemory_policy": policy}
    quick, slow = (Side(None if log == "none" else Log(log == "log with timestamps"), **options) for _ in range(2))
    quick.engine.notify_events = chance.random() < 0.1  # keyspace events disable the fast path
    for side in (quick, slow):
        for one in side.engine.databases:
            one.awake_limit = 1
    for _ in range(by_speed(40, 15, 40)):
        commands = [some_command(chance) for _ in range(chance.choice([1, 5, 20]))]
        data = b"".join(sent(argv, chance) for argv in commands)
        cut = chance.randrange(len(data))
        assert quick.send(data[:cut]) + quick.send(data[cut:]) == b"".join(slow.run(argv) for argv in commands)
        assert quick.state() == slow.state()
        for ours, theirs in zip(quick.engine.databases, slow.engine.databases, strict=True):
            assert (ours.hits, ours.misses) == (theirs.hits, theirs.misses)
            assert dict(ours.expiries()) == dict(theirs.expiries())
            if policy != "allkeys-lfu":  # frequencies are random
                assert bits(ours) == bits(theirs)
        if quick.log is not None and slow.log is not None:
            assert quick.log.feed.take_bytes() == slow.log.feed.take_bytes()
        ms = chance.choice([0, 0, 1, -1, 700])
        quick.clock.advance(ms)
        slow.clock.advance(ms)
    quick.engine.check()


def calls(side: Side, name: str) -> int:
    """Return how many calls of a command were counted."""
    (entry,) = (entry for entry in TABLE if entry.fullname == name)
    count: int = side.engine.stats.of_command(entry).calls
    return count


def test_plain_calls_run_no_handler() -> None:
    side = Side(log := Log(False))
    side.run([b"PING"])
    before = side.session.argv
    assert side.send(pack_command([b"SET", b"k", b"v"]) * 3 + pack_command([b"GET", b"k"]) * 3) == (
        b"+OK\r\n" * 3 + b"$1\r\nv\r\n" * 3
    )
    assert side.session.argv is before
    assert (calls(side, "set"), calls(side, "get")) == (3, 3)
    assert log.feed.take_bytes().endswith(pack_command([b"SET", b"k", b"v"]) * 3)
    assert side.engine.dirty == 3


def test_a_value_that_is_awake_is_read_and_replaced() -> None:
    side = Side()
    side.run([b"SET", b"k", b"v"])
    side.run([b"APPEND", b"k", b"w"])
    database = side.engine.databases[0]
    assert database.awake_value(b"k") is not None
    assert side.send(pack_command([b"GET", b"k"])) == b"$2\r\nvw\r\n"
    assert side.send(pack_command([b"SET", b"k", b"x"]) + pack_command([b"GET", b"k"])) == b"+OK\r\n$1\r\nx\r\n"
    assert database.awake_value(b"k") is None
    database.check()


def test_a_counter_stays_packed() -> None:
    side = Side()
    database = side.engine.databases[0]
    assert side.send(pack_command([b"INCR", b"n"]) * 3 + pack_command([b"DECRBY", b"n", b"-97"])) == (
        b":1\r\n:2\r\n:3\r\n:100\r\n"
    )
    assert database.awake_value(b"n") is None
    assert side.run([b"OBJECT", b"ENCODING", b"n"]) == b"$3\r\nint\r\n"
    side.run([b"APPEND", b"n", b"0"])
    assert side.run([b"INCRBY", b"n", b"-1"]) == b":999\r\n"
    assert side.run([b"OBJECT", b"ENCODING", b"n"]) == b"$3\r\nint\r\n"
    database.check()


def test_a_set_invalidates_the_watch_of_another_client_and_serves_a_blocked_one() -> None:
    side = Side()
    other, blocked = side.engine.session(), side.engine.session()
    side.engine.execute(other, [b"WATCH", b"k"])
    side.send(pack_command([b"SET", b"k", b"v"]))
    assert other.watcher.dirty
    side.engine.execute(blocked, [b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"0", b"STREAMS", b"s", b">"])
    side.run([b"XGROUP", b"CREATE", b"s", b"g", b"$", b"MKSTREAM"])
    side.engine.execute(blocked, [b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"0", b"STREAMS", b"s", b">"])
    assert blocked.blocked is not None
    side.send(pack_command([b"SET", b"s", b"v"]))
    assert blocked.blocked is None  # the stream that it waited for was replaced


def test_an_expired_key_is_missing_and_its_deletion_is_logged() -> None:
    side = Side(log := Log(False))
    side.run([b"SET", b"k", b"v", b"PX", b"10"])
    assert side.send(pack_command([b"GET", b"k"])) == b"$1\r\nv\r\n"
    side.clock.advance(11)
    log.feed.take_bytes()
    assert side.send(pack_command([b"GET", b"k"])) == b"$-1\r\n"
    assert log.feed.take_bytes() == pack_command([b"DEL", b"k"])


def test_a_set_removes_the_expiry() -> None:
    side = Side()
    side.run([b"SET", b"k", b"v", b"PX", b"10"])
    side.send(pack_command([b"SET", b"k", b"w"]))
    assert side.run([b"PTTL", b"k"]) == b":-1\r\n"


def test_a_get_counts_an_access_with_an_lfu_policy() -> None:
    side = Side(maxmemory_policy="allkeys-lfu")
    assert side.engine.access.mode == LFU
    side.run([b"SET", b"k", b"v"])
    side.send(pack_command([b"GET", b"k"]) * 200)
    assert side.engine.access.frequency(bits(side.engine.databases[0])[b"k"]) > 5


def test_replies_accumulate_up_to_the_limit() -> None:
    side = Side()
    side.run([b"SET", b"k", b"v" * 20])
    side.parser.feed(pack_command([b"GET", b"k"]) * 10)
    assert side.engine.drain(side.session, side.parser, 30)
    assert side.session.out.used < 80
    taken = side.session.out.take_bytes()
    while side.engine.drain(side.session, side.parser, 30):
        taken += side.session.out.take_bytes()
    assert (taken + side.session.out.take_bytes()).count(b"$20\r\n") == 10
    assert LIMIT > 30
