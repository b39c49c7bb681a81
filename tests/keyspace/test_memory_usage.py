"""used_memory: the account of values and tables, beside the growth of a real process (keyspace/memory_usage.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from rillet import compiled
from rillet.keyspace.memory_usage import Ledger, dict_bytes, value_bytes
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.types.hash import Hash
from rillet.types.rdb import value as rdb
from rillet.types.string import new_string
from rillet.types.zset import Zset
from tests.variants import by_speed, long

# Loads by name: each line makes a type grow by more than 10 MB in its encodings. {i}: a counter, {v}: 100 bytes.
LOADS = {
    "short strings": ("SET key:{i} 0123456789", 300_000),
    "strings": ("SET key:{i} {v}", 200_000),
    "strings that grow": ("APPEND key:{j} {v}", 300_000),
    "keys that expire": ("SET key:{i} 0123456789 EX 100000", 250_000),
    "a list": ("RPUSH list element-number-{i}", 600_000),
    "lists": ("RPUSH list:{j} element-number-{i}-{i}-{i}", 1_000_000),  # 50 MB: nodes that grow in turn leave gaps
    "small hashes": ("HSET hash:{i} a {i} b {i} c hello", 200_000),
    "a hash": ("HSET hash field:{i} value:{i}", 250_000),
    "a set": ("SADD set member:{i}", 300_000),
    "a sorted set": ("ZADD zset {i} member:{i}", 600_000),
    "a stream": ("XADD stream * temperature {i} humidity {i}", 1_000_000),
    "streams": ("XADD stream:{j} * temperature {i} humidity {i}", 400_000),
    "sets": ("SADD set:{j} member:{i}", 600_000),
    "groups": ("XGROUP CREATE stream:{j} group:{i} $ MKSTREAM", 50_000),
}
_CHILD = """
import gc, sys
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def run(count):
    for i in range(count):
        words = line.format(i=i, j=i % 2000, v="v" * 100).split()
        engine.execute(session, [word.encode() for word in words])
        session.out.truncate(0)

line, count = sys.argv[1], int(sys.argv[2])
engine = Engine(Settings())
session = engine.session()
run(100)
engine.execute(session, [b"FLUSHALL"])
gc.collect()
before = resident(), engine.used_memory()
run(count)
after = resident(), engine.used_memory()
engine.check()
print(after[0] - before[0], after[1] - before[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("name", [*LOADS][::7] + long(*(name for number, name in enumerate(LOADS) if number % 7)))
def test_used_memory_grows_as_the_process_does(name: str) -> None:
    if not compiled():
        pytest.skip("interpreted objects have other sizes")
    line, count = LOADS[name]
    done = subprocess.run([sys.executable, "-c", _CHILD, line, str(count)], capture_output=True, text=True,
                          env=os.environ, check=True)  # fmt: skip
    grown, counted = map(int, done.stdout.split())
    assert grown > 10_000_000
    most = 0.08 if name == "sets" else 0.05  # small tables that grow in turn leave gaps of varying size
    assert abs(counted / grown - 1) < most, f"{name}: the process grew by {grown}, used_memory by {counted}"


class Client:
    """A session of an engine in memory."""

    def __init__(self, **settings: Any) -> None:
        self.engine = Engine(Settings(**settings))
        self.session = self.engine.session()

    def __call__(self, *words: object) -> bytes:
        self.engine.execute(self.session, [w if isinstance(w, bytes) else str(w).encode() for w in words])
        return bytes(self.session.out.hand_over())

    @property
    def used(self) -> int:
        return self.engine.used_memory()


MANY = range(by_speed(20_000, 3000))
FILLS = {
    "string": ("SET", "k", "x" * 100_000), "list": ("RPUSH", "k", *MANY, "x" * 50_000), "set": ("SADD", "k", *MANY),
    "hash": ("HSET", "k", *MANY), "zset": ("ZADD", "k", *MANY),
    "stream": ("XADD", "k", "*", *(10**9 + number for number in MANY)),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILLS)
@pytest.mark.parametrize("end", ["DEL", "UNLINK", "FLUSHALL", "FLUSHALL ASYNC", "PEXPIREAT", "SET", "RENAME"])
def test_used_memory_falls_when_data_is_deleted(kind: str, end: str) -> None:
    client = Client()
    client("SET", "x", "y")
    client("DEL", "x")
    before = client.used
    client(*FILLS[kind])
    full = client.used
    assert full > before + by_speed(50_000, 25_000)
    if end == "SET":
        client("SET", "k", "")
    elif end == "RENAME":
        client("SET", "other", "")
        client("RENAME", "other", "k")
    elif end == "PEXPIREAT":
        client("PEXPIREAT", "k", 1)
    else:
        client(*end.split(), *(() if end.startswith("FLUSH") else ("k",)))
    client.engine.lazyfree.step(2**62)
    assert client.used < before + 1000
    client.engine.check()


def test_a_change_of_a_value_is_counted_at_the_next_query() -> None:
    client = Client()
    for words in (("RPUSH", "l", "a"), ("HSET", "h", "a", "b"), ("XADD", "s", "*", "a", "b"), ("ZADD", "z", 1, "a"),
                  ("SADD", "set", "a"), ("SET", "str", "a")):  # fmt: skip
        client(*words)
    large = "x" * 5000
    for words in (("RPUSH", "l", large), ("HSET", "h", "f", large), ("XADD", "s", "*", "a", large),
                  ("ZADD", "z", 2, large), ("SADD", "set", large), ("APPEND", "str", large)):  # fmt: skip
        before = client.used
        client(*words)
        assert client.used > before + 3000, words
    client.engine.check()


def test_groups_are_counted_also_when_commands_look_the_stream_up_for_reading() -> None:
    client = Client()
    for number in range(2000):
        client("XADD", "s", f"{number + 1}-0", "a", "b")
    client("XGROUP", "CREATE", "s", "g", "0")
    before = client.used
    client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    pending = client.used
    assert pending > before + 2000 * 60
    client("XACK", "s", "g", *(f"{number + 1}-0" for number in range(2000)))
    client("XGROUP", "DESTROY", "s", "g")
    assert client.used < pending


def test_a_string_that_a_command_creates_and_then_fills_is_counted() -> None:
    client = Client()
    before = client.used
    for number in range(10):
        client("SETRANGE", f"k{number}", 100_000, "x")
        client("APPEND", f"a{number}", "x" * 100_000)
    assert client.used > before + 2_000_000
    client.engine.check()


def test_values_keep_their_sum_when_they_move() -> None:
    client = Client()
    client("RPUSH", "l", *range(1000))
    client("MOVE", "l", 1)
    client("SWAPDB", 0, 1)
    client("COPY", "l", "m")
    client("RENAME", "l", "n")
    client("RPOPLPUSH", "m", "n")
    client.engine.check()
    ledgers = [database.ledger for database in client.engine.databases]
    assert ledgers[0].total > 0
    assert sum(ledger.total for ledger in ledgers[1:]) == 0


def test_a_ledger_finds_wrong_sums() -> None:
    ledger = Ledger()
    value = new_string(b"abc")
    ledger.note(value)
    ledger.check([value])
    with pytest.raises(AssertionError, match="the ledger has"):
        ledger.check([])
    ledger.leave(value)
    ledger.check([])


@pytest.mark.parametrize("kind", FILLS)
def test_memory_usage_is_the_part_of_a_key(kind: str) -> None:
    client = Client()
    client("SET", "x", "y")
    before = client.used
    client(*FILLS[kind])
    part = client.used - before
    reply = int(client("MEMORY", "USAGE", "k")[1:-2])
    assert abs(reply - part) < 0.02 * part + 500
    assert client("MEMORY", "USAGE", "k", "SAMPLES", 0) == b":%d\r\n" % reply
    assert client("MEMORY", "USAGE", "none") == b"$-1\r\n"


@pytest.mark.parametrize("fill", ["SET k value", "HSET k a b", "RPUSH k a", "SADD k a", "SADD k 1", "ZADD k 1 a"])
def test_memory_usage_is_the_same_after_a_command_has_woken_the_value(fill: str) -> None:
    client = Client()
    client(*fill.split())
    client("GET", "none")
    rests = client("MEMORY", "USAGE", "k")
    database = client.engine.databases[0]
    database.wake(b"k")
    assert database.keys.object_at(database.keys.find(b"k")) is not None
    assert client("MEMORY", "USAGE", "k") == rests


def test_memory_usage_does_not_depend_on_other_keys() -> None:
    client = Client()
    client("SET", "k", "value", "EX", 100)
    alone = client("MEMORY", "USAGE", "k")
    for number in range(100):
        client("SET", number, "value", "EX", 100)
        assert client("MEMORY", "USAGE", "k") == alone


def test_errors_of_memory_usage() -> None:
    client = Client()
    assert client("MEMORY", "USAGE", "k", "SAMPLES") == b"-ERR syntax error\r\n"
    assert client("MEMORY", "USAGE", "k", "SAMPLES", -1) == b"-ERR syntax error\r\n"
    assert client("MEMORY", "USAGE", "k", "SAMPLES", "x") == b"-ERR value is not an integer or out of range\r\n"
    assert client("MEMORY", "USAGE", "k", "nothing", 1) == b"-ERR syntax error\r\n"


def test_memory_doctor_names_a_peak_and_a_limit() -> None:
    client = Client()
    assert b"too small" in client("MEMORY", "DOCTOR")
    for number in range(2):
        client("SET", f"k{number}", "x" * 20_000_000)
    client("INFO", "memory")
    client("DEL", "k0")
    client("CONFIG", "SET", "maxmemory", "1mb")
    reply = client("MEMORY", "DOCTOR")
    assert b"Peak: the data was" in reply
    assert b"Limit: the data exceeds maxmemory (1.00M)" in reply


def test_the_peak_and_its_reset() -> None:
    client = Client()
    client("SET", "k", "x" * 1_000_000)
    client("INFO", "memory")
    client("DEL", "k")
    peak = client.engine.memory.peak
    assert peak > client.used + 900_000
    client("CONFIG", "RESETSTAT")
    assert client.engine.memory.peak < peak


def test_a_restored_value_is_counted() -> None:
    client = Client()
    client("RPUSH", "l", *("x" * 1000 for _ in range(500)))
    dump = rdb.dump(client.session.db.peek(b"l"))
    client("DEL", "l")
    before = client.used
    client("RESTORE", "l", 0, dump)
    assert client.used > before + 400_000
    client.engine.check()


def test_the_size_of_a_collection_grows_with_its_elements() -> None:
    fields, members = Hash(), Zset()
    sizes: list[tuple[int, int]] = []
    for count in (1, 100, 1000, 3000):
        for number in range(len(members), count):
            fields.set(b"field%d" % number, b"v" * 50)
            members.add(b"m%d" % number, 1.0)
        sizes.append((value_bytes(fields), value_bytes(members)))
    assert sizes == sorted(sizes)
    assert 1000 * 60 < sizes[2][0] < 1000 * 110
    assert 1000 * 30 < sizes[2][1] < 1000 * 90


def test_sizes_of_structures() -> None:
    client = Client(list_compress_depth=1)
    for number in range(5000):
        client("RPUSH", "l", f"{number % 7}" * 100)
    value = client.session.db.peek(b"l")
    assert value_bytes(value) < 5000 * 100  # compressed
    assert dict_bytes(client.session.db.keys) < 5000
    client("LSET", "l", 2500, "y" * 500)
    client("LREM", "l", 30, "0" * 100)
    client("LINSERT", "l", "BEFORE", "1" * 100, "new")
    client("LTRIM", "l", 10, 3000)
    client.engine.check()


def test_many_values_that_leave_in_one_transaction_are_counted() -> None:
    """The values that wait to be measured do not make each deletion slower."""
    client = Client()
    client("MULTI")
    for number in range(500):
        client("RPUSH", number, "x" * 2000)
    for number in range(0, 500, 2):
        client("APPEND", f"s{number}", "x" * 2000)
        client("DEL", number)
    client("EXEC")
    assert len(client.session.db.ledger.waiting) <= 400
    client.engine.check()
    one: Any = client.session.db.ledger
    before = one.total
    client("APPEND", "s0", "x" * 2000)
    assert client.engine.used_memory() > 0
    assert one.total >= before + 2000
    client("FLUSHALL")
    assert one.total == 0 or client.session.db.ledger.total == 0


def test_a_value_that_leaves_is_found_among_few() -> None:
    ledger = Ledger()
    values = [new_string(bytes(2000)) for _ in range(1000)]
    for value in values:
        ledger.note(value)
    for value in values[:900]:
        ledger.leave(value)
        assert len(ledger.waiting) <= 129
    ledger.check(values[900:])
