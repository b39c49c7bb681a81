"""A workload for durable stores: random commands on a few keys of every type, and the state of an engine as a number.

`Commands` generates the commands of clients; it reads the engine if a command needs an existing ID. A step is one
command or a transaction, with the keys that it may change, so the state after each step is computed from those keys
alone (`StateTracker`). The state omits what no log contains: the seen-times of consumers, and the read counters of
groups (Redis logs them with NOACK only). For the same reason, consumers do not read their own pending entries again:
that counts as a delivery, which Redis does not log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from random import Random
from typing import NamedTuple

from rillet.runtime.engine import Engine
from rillet.runtime.registry import TABLE
from rillet.types.digest import value_digest
from rillet.types.list import List
from rillet.types.set import Set
from rillet.types.stream.nodes import NodeIterator
from rillet.types.stream.stream import Stream
from rillet.types.string import String

DATABASES = 3
STREAMS = [b"s0", b"s1", b"s2"]
STRINGS = [b"k0", b"k1", b"k2", b"k3"]
COUNTERS = [b"n0", b"n1"]
LISTS = [b"l0", b"l1"]
SETS = [b"t0", b"t1"]
HASHES = [b"h0"]
ZSETS = [b"z0"]
GROUPS = [b"g0", b"g1"]
CONSUMERS = [b"alice", b"bob", b"carol"]
_LAST_ID = (1 << 64) - 1

Key = tuple[int, bytes]


class Step(NamedTuple):
    """Commands that one session executes together, and the keys that they may change."""

    commands: list[list[bytes]]
    keys: set[Key]


# -- the state -----------------------------------------------------------------------------------------


def _stream_parts(stream: Stream) -> Iterator[bytes]:
    nodes = NodeIterator(stream)
    nodes.seek("^")
    while nodes.next():
        key, node = nodes.key, nodes.node()
        yield key
        yield node.to_bytes()
    yield b"%d %d-%d %d-%d %d-%d %d" % (
        stream.length, stream.last_ms, stream.last_seq, stream.first_ms, stream.first_seq, stream.max_deleted_ms,
        stream.max_deleted_seq, stream.entries_added,
    )  # fmt: skip
    for group in stream.sorted_groups():
        yield b"group %b %d-%d" % (group.name, group.last_ms, group.last_seq)
        table = group.table
        for consumer in group.sorted_consumers():
            yield b"consumer %b" % consumer.name
            for slot in consumer.index.slots():
                yield b"%d-%d %d %d" % (
                    table.ms(slot), table.seq(slot), table.delivery_time(slot), table.delivery_count(slot)
                )  # fmt: skip


def _value_parts(value: object) -> Iterator[bytes]:
    if isinstance(value, String):
        yield b"string"
        yield value.value()
    elif isinstance(value, List):
        yield b"list"
        yield from value.elements
    elif isinstance(value, Set):
        yield b"set"
        yield from sorted(value)
    elif isinstance(value, Stream):
        yield b"stream"
        yield from _stream_parts(value)
    else:
        yield value_digest(value, False)


def key_state(engine: Engine, database: int, key: bytes) -> int:
    """Return a number that identifies a key's value and expiry; 0 if the key does not exist. O(size)"""
    found = engine.databases[database]
    value = found.peek(key)
    if value is None:
        return 0
    digest = blake2b(b"%d %d %d %b" % (database, found.get_expire(key), len(key), key), digest_size=8)
    for part in _value_parts(value):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return int.from_bytes(digest.digest(), "big")


def state(engine: Engine) -> int:
    """Return a number that identifies the engine's data. O(data)"""
    whole = 0
    for database in engine.databases:
        for key in database.keys:
            whole ^= key_state(engine, database.index, key)
    return whole


class StateTracker:
    """The state of an engine, updated after each step at the cost of the changed keys."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.keys: dict[Key, int] = {
            (database.index, key): key_state(engine, database.index, key)
            for database in engine.databases for key in database.keys
        }  # fmt: skip
        self.state = 0
        for one in self.keys.values():
            self.state ^= one

    def changed(self, keys: set[Key]) -> int:
        """Return the state after these keys may have changed."""
        for key in keys:
            now = key_state(self.engine, *key)
            self.state ^= self.keys.get(key, 0) ^ now
            self.keys[key] = now
        return self.state


# -- the commands --------------------------------------------------------------------------------------


class Commands:
    """Random commands, mostly on streams and their groups."""

    def __init__(self, random: Random, engine: Engine) -> None:
        self.random = random
        self.engine = engine
        self.count = 0
        makers: list[tuple[int, Callable[[int], list[bytes]]]] = [
            (30, self._xadd), (10, self._xreadgroup), (8, self._xack), (5, self._xclaim), (3, self._xautoclaim),
            (3, self._xtrim), (4, self._xdel), (6, self._xgroup), (1, self._xsetid), (8, self._string),
            (5, self._counter), (4, self._expire), (3, self._delete), (5, self._list), (5, self._set),
        ]  # fmt: skip
        if TABLE.find(b"hset"):
            makers.append((5, self._hash))
        if TABLE.find(b"zadd"):
            makers.append((5, self._zset))
        self._makers = [make for _, make in makers]
        self._weights = [weight for weight, _ in makers]
        # The keys that the generated command may change.
        self._keys: list[bytes] = []

    def step(self, database: int) -> Step:
        """Return the next step of a session on a database."""
        if self.random.random() < 0.06:
            steps = [self._one(database) for _ in range(self.random.randint(2, 5))]
            commands = [command for step in steps for command in step.commands]
            counter = b"tx"  # so that an incomplete transaction is detectable
            keys = {key for step in steps for key in step.keys} | {(database, counter)}
            ends = [b"INCR", counter]
            return Step([[b"MULTI"], ends, *commands, ends, [b"EXEC"]], keys)
        return self._one(database)

    def _one(self, database: int) -> Step:
        self.count += 1
        make = self.random.choices(self._makers, self._weights)[0]
        self._keys = []
        command = make(database)
        return Step([command], {(database, key) for key in self._keys})

    def _pick(self, keys: list[bytes]) -> bytes:
        key = self.random.choice(keys)
        self._keys.append(key)
        return key

    def _text(self) -> bytes:
        """Return a value: mostly short, sometimes several sectors long, sometimes similar to a log."""
        way = self.random.random()
        if way < 0.03:
            return b"%d." % self.count * self.random.randint(100, 300)
        if way < 0.05:
            return b"\r\n*1\r\n$4\r\nPING\r\n" * self.random.randint(1, 40)
        return b"%d-%b" % (self.count, b"v" * self.random.randint(0, 40))

    # -- streams

    def _xadd(self, _database: int) -> list[bytes]:
        command = [b"XADD", self._pick(STREAMS)]
        way = self.random.randrange(6)
        if way == 0:
            command += [b"MAXLEN", b"~", b"%d" % self.random.randint(5, 40)]
        elif way == 1:
            command += [b"MAXLEN", b"%d" % self.random.randint(5, 40)]
        command.append(b"*")
        for n in range(self.random.randint(1, 3)):
            command += [b"field%d" % n, self._text()]
        return command

    def _stream(self, database: int) -> tuple[bytes, Stream | None]:
        key = self._pick(STREAMS)
        value = self.engine.databases[database].peek(key)
        return key, value if isinstance(value, Stream) else None

    def _ids(self, stream: Stream | None, group: bytes | None = None) -> list[bytes]:
        """Return some IDs of the stream: pending ones of a group, or any in its range."""
        random = self.random
        if stream is not None and group is not None and group in stream.groups:
            slots = stream.groups[group].index.slots()
            if slots:
                table = stream.groups[group].table
                some = random.sample(slots, min(len(slots), random.randint(1, 4)))
                return [b"%d-%d" % (table.ms(slot), table.seq(slot)) for slot in some]
        if stream is None or not stream.length:
            return [b"1-1"]
        first, last = stream.first_ms, stream.last_ms
        return [b"%d-%d" % (random.randint(first, last), random.randint(0, 2)) for _ in range(random.randint(1, 3))]

    def _xreadgroup(self, _database: int) -> list[bytes]:
        key = self._pick(STREAMS)
        command = [b"XREADGROUP", b"GROUP", self.random.choice(GROUPS), self.random.choice(CONSUMERS)]
        if self.random.random() < 0.7:
            command += [b"COUNT", b"%d" % self.random.randint(1, 5)]
        if self.random.random() < 0.1:
            command.append(b"NOACK")
        return [*command, b"STREAMS", key, b">"]

    def _xack(self, database: int) -> list[bytes]:
        key, stream = self._stream(database)
        group = self.random.choice(GROUPS)
        return [b"XACK", key, group, *self._ids(stream, group)]

    def _xclaim(self, database: int) -> list[bytes]:
        key, stream = self._stream(database)
        group = self.random.choice(GROUPS)
        command = [b"XCLAIM", key, group, self.random.choice(CONSUMERS), b"0", *self._ids(stream, group)]
        options = [[], [b"JUSTID"], [b"FORCE"], [b"IDLE", b"50"], [b"RETRYCOUNT", b"7"]]
        return command + self.random.choice(options)

    def _xautoclaim(self, _database: int) -> list[bytes]:
        return [b"XAUTOCLAIM", self._pick(STREAMS), self.random.choice(GROUPS), self.random.choice(CONSUMERS), b"0",
                b"0", b"COUNT", b"%d" % self.random.randint(1, 5)]  # fmt: skip

    def _xtrim(self, database: int) -> list[bytes]:
        key, stream = self._stream(database)
        if self.random.random() < 0.3:
            return [b"XTRIM", key, b"MINID", self._ids(stream)[0]]
        return [b"XTRIM", key, b"MAXLEN", self.random.choice((b"~", b"=")), b"%d" % self.random.randint(3, 20)]

    def _xdel(self, database: int) -> list[bytes]:
        key, stream = self._stream(database)
        return [b"XDEL", key, *self._ids(stream)]

    def _xgroup(self, _database: int) -> list[bytes]:
        key, group = self._pick(STREAMS), self.random.choice(GROUPS)
        consumer = self.random.choice(CONSUMERS)
        return self.random.choice([
            [b"XGROUP", b"CREATE", key, group, b"0", b"MKSTREAM"],
            [b"XGROUP", b"CREATE", key, group, b"$", b"MKSTREAM"],
            [b"XGROUP", b"CREATECONSUMER", key, group, consumer], [b"XGROUP", b"DELCONSUMER", key, group, consumer],
            [b"XGROUP", b"SETID", key, group, b"0"], [b"XGROUP", b"DESTROY", key, group],
        ])  # fmt: skip

    def _xsetid(self, _database: int) -> list[bytes]:
        return [b"XSETID", self._pick(STREAMS), b"%d-1" % (self.engine.clock.now_ms() + 1)]

    # -- the others

    def _string(self, _database: int) -> list[bytes]:
        key = self._pick(STRINGS)
        return self.random.choice([
            [b"SET", key, self._text()], [b"SET", key, self._text(), b"PX", b"%d" % self.random.randint(50, 3000)],
            [b"APPEND", key, b"+%d" % self.count], [b"SETRANGE", key, b"3", b"%d" % self.count], [b"GETDEL", key],
            [b"SET", key, self._text(), b"KEEPTTL"],
        ])  # fmt: skip

    def _counter(self, _database: int) -> list[bytes]:
        key = self._pick(COUNTERS)
        return self.random.choice([
            [b"INCR", key], [b"INCRBY", key, b"%d" % self.random.randint(2, 9)], [b"INCRBYFLOAT", key, b"1.5"],
        ])  # fmt: skip

    def _expire(self, _database: int) -> list[bytes]:
        key = self._pick(STRINGS + LISTS + SETS)
        if self.random.random() < 0.2:
            return [b"PERSIST", key]
        return [b"PEXPIRE", key, b"%d" % self.random.randint(50, 2000)]

    def _delete(self, _database: int) -> list[bytes]:
        keys = STRINGS + LISTS + SETS + STREAMS
        if self.random.random() < 0.3:
            return [b"RENAME", self._pick(STRINGS), self._pick(STRINGS)]
        return [self.random.choice((b"DEL", b"UNLINK")), self._pick(keys), self._pick(keys)]

    def _list(self, _database: int) -> list[bytes]:
        key = self._pick(LISTS)
        return self.random.choice([
            [b"RPUSH", key, self._text(), b"%d" % self.count], [b"LPUSH", key, b"%d" % self.count], [b"LPOP", key],
            [b"RPOP", key, b"2"], [b"LTRIM", key, b"-20", b"-1"],
            [b"LINSERT", key, b"BEFORE", b"3", b"%d" % self.count],
            [b"LMOVE", key, self._pick(LISTS), b"LEFT", b"RIGHT"],
        ])  # fmt: skip

    def _set(self, _database: int) -> list[bytes]:
        key = self._pick(SETS)
        return self.random.choice([
            [b"SADD", key, b"%d" % self.random.randint(0, 60), self._text()],
            [b"SREM", key, b"%d" % self.random.randint(0, 60)], [b"SADD", key, b"%d" % self.random.randint(0, 60)],
            [b"SPOP", key, b"2"], [b"SUNIONSTORE", key, self._pick(SETS), self._pick(SETS)],
        ])  # fmt: skip

    def _hash(self, _database: int) -> list[bytes]:
        key, name = self._pick(HASHES), b"f%d" % self.random.randint(0, 20)
        return self.random.choice([
            [b"HSET", key, name, self._text()], [b"HDEL", key, name], [b"HINCRBY", key, b"count", b"1"],
        ])  # fmt: skip

    def _zset(self, _database: int) -> list[bytes]:
        key, member = self._pick(ZSETS), b"m%d" % self.random.randint(0, 20)
        return self.random.choice([
            [b"ZADD", key, b"%d" % self.count, member], [b"ZREM", key, member], [b"ZINCRBY", key, b"1.5", member],
            [b"ZPOPMIN", key],
        ])  # fmt: skip


__all__ = ["DATABASES", "Commands", "StateTracker", "Step", "key_state", "state"]
