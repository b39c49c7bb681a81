"""Expiry with moving time: an engine and a real server whose clocks the comparison sets, to the same millisecond.

The engine has an injected clock. The server runs under libfaketime (Debian: faketime), which reads the time from a
file at each call. Time stands still on both sides while a command runs, and moves between commands by a millisecond or
by days, so that keys expire exactly at, before and after each boundary:

    PEXPIRE k 50  ──►  +49 ms, GET k  ──►  +1 ms, GET k  ──►  +1 ms, TTL k: k is deleted, one event

What is compared, with nothing masked but the encoding of strings in Valkey: the reply of each command; the keyspace
events of each command, in order; the idle times and frequencies; stream IDs, delivery times and idle times of
consumers; the counters of INFO stats. What chance or a hash table orders is compared as a set, at points where the
outcome is the same: RANDOMKEY, followed by a complete SCAN, which deletes all expired keys; and the active expiry
cycle, which runs on both sides until no expired key is left.

    python -m tests.differential.moving_time --steps 1000000 --seed 1 --compat 7.0
"""

from __future__ import annotations

import argparse
import glob
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rillet.keyspace.clock import ManualClock
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.types.compat import COMPATS
from tests.differential.templates import Command, Maker, Word, words
from tests.differential.wire import Local, Redis, read
from tests.judge import Judge, running_redis

START_MS = 1_900_000_000_000
ROUND = 2_000  # steps with the same engine
# With other policies, Redis shares the objects of small integers and thereby their LRU data, also without a limit.
POLICIES = ("allkeys-lru", "allkeys-lfu", "volatile-lru", "volatile-lfu")
LIMIT = b"1000gb"

STRINGS = ("a", "b", "c", "d", b"\xff\x00bin")
TYPED: dict[str, tuple[Word, ...]] = {
    "string": STRINGS, "list": ("l1", "l2"), "hash": ("h1", "h2"), "set": ("s1", "s2"), "zset": ("z1", "z2"),
    "stream": ("x1", "x2"),
}  # fmt: skip
ANY = tuple(key for keys in TYPED.values() for key in keys)
# DUMP of the string "value", as version 7.0 writes it: all servers load it.
PAYLOAD = b"\x00\x05value"
VALUES: dict[str, tuple[Word, ...]] = {
    **TYPED, "key": ANY, "collection": ANY[len(STRINGS) :],
    "value": ("v", "hello", 1, 42, "", "x" * 60, "y" * 64),
    "ms": (
        1, 2, 10, 49, 50, 51, 100, 500, 999, 1000, 1001, 3000, 10_000, 60_000, 86_400_000, 0, -1, -50, "x", 2**63 - 1,
    ),
    "s": (1, 1, 2, 3, 10, 60, 3600, 86_400, 0, -1, "x", 2**63 - 1, 9223372036854775),
    "offset": (-1000, -50, -1, 0, 1, 2, 10, 50, 100, 999, 1000, 1001, 5000, 60_000, 10_000_000),
    "idle": (0, 1, 5, 1000, 100_000, 20_000_000, -1, "x"),
    "frequency": (0, 1, 5, 100, 255, 256, "x"),
    "min-idle": (0, 0, 1, 50, 1000, 5000),
    "member": ("m1", "m2", "m3", 1, 2),
    "db": (0, 0, 0, 1, 2),
    "policy": POLICIES,
    "events": ("KEA", "KEA", "AKEmn", "KEx", "Eg$x", "Kl", ""),
    "yes": ("yes", "no"),
}  # fmt: skip
OPTIONS = {
    "set": ("NX", "XX", "GET", "KEEPTTL", "EX $s", "PX $ms", "PX $ms", "EXAT @s", "PXAT @ms", "bogus"),
    "getex": ("EX $s", "PX $ms", "EXAT @s", "PXAT @ms", "PERSIST", "bogus"),
    "expire": ("NX", "XX", "GT", "LT", "bogus"),
    "restore": ("REPLACE", "REPLACE", "IDLETIME $idle", "FREQ $frequency"),
    "key": ("$key",),
    "copy": ("REPLACE", "DB $db"),
}
TEMPLATES = """
    SET $string $value              SET $string $value %set         SET $string $value PX $ms    SET $key $value EX $s
    SET $string $value PXAT @ms     SETEX $string $s $value         PSETEX $string $ms $value    SETNX $string $value
    GET $string                     GETEX $string                   GETEX $string %getex         GETDEL $string
    GETSET $string $value           MSET $string $value $string $value                           MGET $key $key $key
    MSETNX a $value b $value                                        APPEND $string x             STRLEN $string
    SETRANGE $string 1 y            GETRANGE $string 0 1            INCR $string                 INCRBYFLOAT $string 1.5
    EXPIRE|PEXPIRE $key $ms         EXPIRE $key $s %expire          PEXPIRE $key $ms %expire     PEXPIRE $key $ms GT|LT
    PEXPIRE $key $ms NX|XX          EXPIREAT $key @s %expire        PEXPIREAT $key @ms %expire   PEXPIREAT $key @ms
    TTL|PTTL|EXPIRETIME $key        PEXPIRETIME $key                PERSIST $key                 TTL|PTTL $key
    TYPE $key                       EXISTS $key %key                TOUCH $key %key              DEL|UNLINK $key %key
    RENAME|RENAMENX $key $key       COPY $key $key %copy            MOVE $key $db                DUMP $string
    RESTORE $string 0|50|1000|-1 #payload %restore                  RESTORE $string @ms #payload REPLACE ABSTTL
    OBJECT IDLETIME|FREQ $key       OBJECT IDLETIME|FREQ $key       OBJECT ENCODING $collection  DBSIZE
    LPUSH|RPUSH $list $value        LPOP|RPOP $list                 LMOVE $list $list LEFT RIGHT RPUSHX $list $value
    LLEN $list                      LRANGE $list 0 -1               LREM $list 0 v               LTRIM $list 1 0
    HSET $hash $member $value       HDEL $hash $member              HGETALL|HLEN $hash           HINCRBY $hash $member 1
    SADD $set $member $member       SREM $set $member               SCARD $set                   SMOVE $set $set $member
    SINTERSTORE|SUNIONSTORE|SDIFFSTORE $set $set $key            SISMEMBER $set $member
    ZADD $zset 1 $member            ZREM $zset $member              ZRANGE $zset 0 -1 WITHSCORES ZPOPMIN $zset
    ZUNIONSTORE $zset 2 $zset $key  ZRANGESTORE $zset $zset 0 0     ZINCRBY $zset 1 $member      ZCARD $zset
    XADD $stream * f $value         XADD $stream MAXLEN 2 * f v     XLEN $stream                 XRANGE $stream - +
    XGROUP CREATE $stream g 0 MKSTREAM                              XDEL $stream 1-1             XTRIM $stream MAXLEN 0
    XREADGROUP GROUP g c COUNT 2 STREAMS $stream >                  XINFO GROUPS|STREAM $stream
    XPENDING $stream g - + 10       XPENDING $stream g IDLE $min-idle - + 10
    XAUTOCLAIM $stream g d $min-idle 0                              XINFO CONSUMERS $stream g
    MULTI                           EXEC                            EXEC                         WATCH $key %key
    DISCARD                         UNWATCH                         SELECT $db                   SELECT 0
"""
# Only the second client, which is never inside a transaction, sends these.
GLOBAL = """
    SWAPDB $db $db                  FLUSHDB                         FLUSHALL                     FLUSHDB ASYNC
    CONFIG SET maxmemory-policy $policy                             CONFIG SET lazyfree-lazy-expire $yes
    CONFIG SET notify-keyspace-events $events                       KEYS *                       KEYS [a-h]*
    CONFIG SET lfu-decay-time 0|1|3   SPOP $set 100                   CONFIG SET notify-keyspace-events KEA
"""


Source = tuple[str, dict[str, tuple[Word, ...]], dict[str, tuple[str, ...]]]


def library() -> str | None:
    """Return the path of libfaketime, None if it is not installed."""
    found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1") + glob.glob("/usr/lib*/faketime/libfaketime.so.1")
    return found[0] if found else None


class Stamp:
    """The file from which libfaketime reads the time."""

    def __init__(self) -> None:
        folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self._folder = tempfile.TemporaryDirectory(prefix="rillet-time-", dir=folder)
        self.path = Path(self._folder.name) / "now"
        self._next = self.path.with_suffix(".next")
        self.ms = START_MS
        self.set(self.ms)

    def set(self, ms: int) -> None:
        """Set the time, half a microsecond later than `ms`, because the library rounds fractions down."""
        self.ms = ms
        moment = datetime.fromtimestamp(ms // 1000, UTC)
        self._next.write_text(f"{moment:%Y-%m-%d %H:%M:%S}.{ms % 1000:03}0005\n")
        self._next.rename(self.path)

    def environment(self) -> dict[str, str]:
        """Return the environment of a server that follows the file; its timers run in real time."""
        preload = library()
        assert preload is not None
        return {
            # libc before jemalloc: jemalloc reads the clock while the library is not ready.
            "LD_PRELOAD": f"{preload} libc.so.6", "FAKETIME_TIMESTAMP_FILE": str(self.path), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "TZ": "UTC",
        }  # fmt: skip

    def close(self) -> None:
        """Remove the file."""
        self._folder.cleanup()


class TimedServer:
    """A real server, two clients of it, and a subscriber of all keyspace events."""

    judge: Judge

    def __init__(self, port: int, stamp: Stamp, compat: str) -> None:
        self.stamp = stamp
        # Valkey reads the time only each millisecond, and counts the processor's ticks in between (util.c: ustime).
        self.lag = 0.0011 if compat == "valkey" else 0.0
        self.clients = [Redis(port), Redis(port)]
        self.control = Redis(port)
        self.subscriber = Redis(port)
        self.subscriber.run([b"PSUBSCRIBE", b"__*key*__:*"])

    def run(self, client: int, argv: list[bytes]) -> bytes:
        return self.clients[client].run(argv)[0]

    def events(self) -> list[tuple[bytes, bytes]]:
        """Return the events since the last call."""
        self.subscriber.send([b"PING"])
        found: list[tuple[bytes, bytes]] = []
        while True:
            message = read(self.subscriber.reply())
            if message[0] == b"pong":
                return found
            found.append((message[2], message[3]))

    def close(self) -> None:
        for one in (*self.clients, self.control, self.subscriber):
            one.__exit__()

    def info(self, section: bytes) -> dict[str, str]:
        """Return a section of INFO."""
        return _fields(self.control.run([b"INFO", section])[0])

    def await_clock(self, new_second: bool) -> None:
        """Wait until the server has read the time; in a new second, also its timer for LRU data."""
        if self.lag:
            time.sleep(self.lag)
        if not new_second:
            return
        wanted = str(self.stamp.ms // 1000 & 0xFFFFFF)
        for _ in range(5_000):
            if self.info(b"server")["lru_clock"] == wanted:
                return
            time.sleep(0.0005)
        raise AssertionError("the server does not read the time")


class _TimedEngine:
    """An engine with the same clients."""

    def __init__(self, compat: str, ms: int) -> None:
        self.clock = ManualClock(ms)
        self.engine = Engine(Settings(compat=compat, enable_debug_command="yes", dump_format="native"), self.clock)
        self.engine.active_expire = False
        first = Local(self.engine)
        self.clients = [first, Local(self.engine, door=True)]  # the second one takes the fast paths
        self.subscriber = Local(self.engine)
        self.subscriber.run([b"PSUBSCRIBE", b"__*key*__:*"])

    def run(self, client: int, argv: list[bytes]) -> bytes:
        return self.clients[client].run(argv)

    def events(self) -> list[tuple[bytes, bytes]]:
        found = []
        data = self.subscriber.session.out.take_bytes()
        for message in _messages(data):
            found.append((message[2], message[3]))
        return found

    def info(self, section: bytes) -> dict[str, str]:
        return _fields(Local(self.engine).run([b"INFO", section]))


def _messages(data: bytes) -> Iterator[list[bytes]]:
    """Yield the messages of a subscriber: arrays of four bulk strings."""
    at = 0
    while at < len(data):
        assert data[at : at + 4] == b"*4\r\n", data[at : at + 40]
        at += 4
        parts = []
        for _ in range(4):
            end = data.index(b"\r\n", at)
            size = int(data[at + 1 : end])
            parts.append(data[end + 2 : end + 2 + size])
            at = end + 4 + size
        yield parts


def _fields(reply: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in reply.decode().split("\r\n"))
    return {name: value for name, colon, value in lines if colon}


class _Words(Maker):
    """Templates with times: @ms and @s are near the present, #payload is a DUMP."""

    def __init__(self, seed: int, stamp: Stamp, payload: bytes, source: Source) -> None:
        super().__init__(seed, *source)
        self._stamp = stamp
        self._payload = payload

    def filled(self, template: str) -> Command:
        """Return the words of a template."""
        command = super().filled(template)
        for at, word in enumerate(command):
            if word == "@ms":
                command[at] = self._stamp.ms + int(self.value("offset"))
            elif word == "@s":
                command[at] = (self._stamp.ms + int(self.value("offset"))) // 1000
            elif word == "#payload":
                command[at] = self._payload
        return command


_COUNTERS = ("expired_keys", "evicted_keys", "keyspace_hits", "keyspace_misses")
_UNORDERED = (b"keys", b"spop")
_HASH_TABLES = (2, 4)  # RDB types of payloads: the members of a set, the fields and values of a hash


def _payload(reply: bytes) -> bytes:
    """Return the payload in a reply to DUMP; empty if there is none."""
    return reply.partition(b"\r\n")[2][:-2] if reply.startswith(b"$") else b""


def _in_a_hash_table(reply: bytes) -> bool:
    """Return whether a reply to DUMP is the payload of a value whose order depends on a random seed."""
    return _payload(reply)[:1] in [bytes((kind,)) for kind in _HASH_TABLES]


class Comparison:
    """One round: a new engine, and the server emptied."""

    SOURCE: Source = (TEMPLATES, VALUES, OPTIONS)
    GLOBALS = GLOBAL
    COUNTERS: tuple[str, ...] = _COUNTERS

    def __init__(self, server: TimedServer, compat: str, seed: int, closely: bool = False) -> None:
        """closely: compare the counters after each command, to find the one that differs."""
        self.closely = closely
        self.server = server
        self.stamp = server.stamp
        self.random = random.Random(seed)
        self.policy = self.random.choice(POLICIES)
        # The events overwritten and type_changed are new in 8.2.
        self.events = self.classes(compat)
        for client in (0, 1):
            server.run(client, [b"RESET"])
        limit = [b"CONFIG", b"SET", b"maxmemory", LIMIT]
        for argv in (limit, *self._settings()):
            reply = server.control.run(argv)[0]
            assert reply[:1] == b"+", (argv, reply)
        server.await_clock(True)
        server.events()
        self.ours = _TimedEngine(compat, self.stamp.ms)
        self.evicts = self.ours.run(1, limit) == b"+OK\r\n"
        for argv in self._settings():
            reply = self.ours.run(1, argv)
            assert reply[:1] == b"+", (argv, reply)
        self.ours.engine.active_expire = False
        self.ours.events()
        self.payload = server.control.run([b"SET", b"p", b"value"], [b"DUMP", b"p"], [b"DEL", b"p"])[1]
        server.events()
        self.before = self._counters(server.info(b"stats"))
        self.maker = _Words(seed, self.stamp, self.payload.partition(b"\r\n")[2][:-2], self.SOURCE)
        self.globals = _Words(seed + 1, self.stamp, b"", self.SOURCE)
        self.globals.templates = [one for one in re.split(r"\n| {3,}", self.GLOBALS) if one.strip()]
        self.done: list[str] = []
        # Redis creates the words of a queued command, and thereby the LRU data of new values, before EXEC. Rounds that
        # read these data therefore keep a transaction within one second.
        self.reads_access = self.random.random() < 0.5
        if not self.reads_access:
            self.maker.templates = [one for one in self.maker.templates if "IDLETIME|FREQ" not in one]

    def _settings(self) -> list[list[bytes]]:
        pairs = {
            "maxmemory-policy": self.policy, "lfu-log-factor": "0", "lfu-decay-time": "1",
            "notify-keyspace-events": self.events, "lazyfree-lazy-expire": "no",
        }  # fmt: skip
        return [
            [b"FLUSHALL"], [b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0"],
            *([b"CONFIG", b"SET", name.encode(), value.encode()] for name, value in pairs.items()),
        ]  # fmt: skip

    def classes(self, compat: str) -> str:
        """Return the value of notify-keyspace-events."""
        return "AKEmnoc" if COMPATS[compat].knows(82) else "AKEmn"

    def _counters(self, info: dict[str, str]) -> dict[str, int]:
        return {name: int(info[name]) for name in self.COUNTERS if name in info}

    def run(self, steps: int) -> None:
        """Run that many steps; AssertionError at the first difference."""
        for _ in range(steps):
            kind = self.random.random()
            if kind < 0.14:
                self._move()
            elif kind < 0.155:
                self._random_key()
            elif kind < 0.175:
                self._scan()
            elif kind < 0.18:
                self._settle()
            elif kind < 0.182 and self.evicts:
                self._evict()
            elif kind < 0.2:
                self._command(1, words(self.globals.command()))
            else:
                self._command(int(self.random.random() < 0.3), self._ordinary())
        self._settle()

    def _ordinary(self) -> list[bytes]:
        return words(self.maker.command())

    def _move(self) -> None:
        """Move the time: mostly a little, seldom by days, so that LRU data goes round."""
        ms = self.random.choice((1, 1, 1, 2, 10, 48, 50, 100, 499, 500, 900, 1000, 1001, 3000, 10_000, 60_000))
        if self.random.random() < 0.02:
            ms = self.random.choice((3_600_000, 86_400_000, 40 * 86_400_000))
        if self.reads_access and self.ours.clients[0].session.state:
            ms = min(ms, 999 - self.stamp.ms % 1000)
        self.done.append(f"+{ms} ms")
        old = self.stamp.ms
        self.stamp.set(old + ms)
        self.ours.clock.advance(ms)
        self.server.await_clock(old // 1000 != self.stamp.ms // 1000)

    def _command(self, client: int, argv: list[bytes]) -> bytes:
        name = argv[0].lower()
        if client == 1 and name in (b"multi", b"watch"):
            client = 0
        self.done.append(f"{client} {argv}")
        ours, theirs = self.ours.run(client, argv), self.server.run(client, argv)
        if self.server.lag and argv[1:2] and argv[1].lower() == b"encoding":
            ours = theirs = b""  # Valkey's limit of embstr includes the name of the key
        if name in _UNORDERED:
            ours, theirs = (b"\r\n".join(sorted(reply.split(b"\r\n"))) for reply in (ours, theirs))
        if name == b"dump" and _in_a_hash_table(ours):
            ours, theirs = (bytes(sorted(_payload(reply)[:-10])) for reply in (ours, theirs))  # less the checksum
        self._equal("reply", *self.comparable(argv, ours, theirs))
        self._equal("events", self.ours.events(), self.server.events())
        if self.closely:
            self._counters_are_equal()
        return ours

    def comparable(self, argv: list[bytes], ours: bytes, theirs: bytes) -> tuple[bytes, bytes]:
        """Return two replies without what chance orders."""
        return ours, theirs

    def _equal(self, what: str, ours: object, theirs: object) -> None:
        if ours != theirs:
            if isinstance(ours, bytes) and isinstance(theirs, bytes):
                at = max(len(os.path.commonprefix([ours, theirs])) - 100, 0)
                ours, theirs = ours[at : at + 200], theirs[at : at + 200]
            steps = "\n".join(self.done[-40:])
            raise AssertionError(f"{steps}\n{what} differs\nours   {ours!r}\ntheirs {theirs!r}")

    def _both_scan(self) -> tuple[set[bytes], set[bytes]]:
        """Scan all keys of the second client's database, which deletes the expired ones."""
        found = []
        for side in (self.ours, self.server):
            keys: set[bytes] = set()
            cursor = b"0"
            while True:
                cursor, page = read(side.run(1, [b"SCAN", cursor, b"COUNT", b"1000"]))
                keys.update(page)
                if cursor == b"0":
                    break
            found.append(keys)
        return found[0], found[1]

    def _unordered_events(self) -> None:
        self._equal("events", sorted(self.ours.events()), sorted(self.server.events()))

    def _scan(self) -> None:
        self.done.append("SCAN of all keys")
        ours, theirs = self._both_scan()
        self._equal("keys", ours, theirs)
        self._unordered_events()

    def _random_key(self) -> None:
        """RANDOMKEY deletes the expired keys that it draws; the scan behind it deletes the others on both sides."""
        self.done.append("RANDOMKEY and a SCAN of all keys")
        replies = [side.run(1, [b"RANDOMKEY"]) for side in (self.ours, self.server)]
        drawn = [None if reply == b"$-1\r\n" else read(reply) for reply in replies]
        ours, theirs = self._both_scan()
        self._equal("keys", ours, theirs)
        for key in drawn:
            assert (key is None) == (not ours), (drawn, ours, self.done[-40:])
            assert key is None or key in ours, (drawn, ours, self.done[-40:])
        self._unordered_events()

    def _evict(self) -> None:
        """Write above a limit of memory of one byte: all keys that the policy may evict are evicted, in any order."""
        policy = self.random.choice(("allkeys-lru", "allkeys-lfu", "volatile-lru", "volatile-lfu", "volatile-ttl",
                                     "volatile-random", "allkeys-random", "noeviction"))  # fmt: skip
        self.done.append(f"eviction, {policy}")
        replies = []
        for side in (self.ours, self.server):
            before = read(side.run(1, [b"CONFIG", b"GET", b"maxmemory-policy"]))[1]
            assert side.run(1, [b"CONFIG", b"SET", b"maxmemory-policy", policy.encode()]) == b"+OK\r\n"
            assert side.run(1, [b"CONFIG", b"SET", b"maxmemory", b"1"]) == b"+OK\r\n"
            # Redis evicts for half a millisecond before a command, and goes on with the next one.
            replies.append([side.run(1, [b"SET", b"evicted?", b"v", b"PX", b"100"]) for _ in range(20)][-1])
            replies[-1] += b"".join(side.run(1, [name, b"evicted?"]) for name in (b"GET", b"EXISTS"))
            assert side.run(1, [b"CONFIG", b"SET", b"maxmemory", LIMIT]) == b"+OK\r\n"
            assert side.run(1, [b"CONFIG", b"SET", b"maxmemory-policy", before]) == b"+OK\r\n"
        self._equal("replies", *replies)
        self._unordered_events()
        self._equal("DBSIZE", self.ours.run(1, [b"DBSIZE"]), self.server.run(1, [b"DBSIZE"]))

    def _settle(self) -> None:
        """Let both active expiry cycles delete all expired keys; compare events, digests and counters."""
        self.done.append("active expiry")
        engine = self.ours.engine
        engine.active_expire = True
        due = self.stamp.ms + engine.expiry.on_time
        for _ in range(1_000):
            if not any(when < due for one in engine.databases for _, when in one.expiries()):
                break
            engine.expire_cycle()
        engine.active_expire = False
        wanted = {f"db{one.index}": len(one) for one in engine.databases if len(one)}
        self.server.control.run([b"DEBUG", b"SET-ACTIVE-EXPIRE", b"1"])
        for _ in range(5_000):
            info = self.server.info(b"keyspace")
            sizes = {name: int(re.findall(r"keys=(\d+)", text)[0]) for name, text in info.items()}
            if sizes == wanted:
                break
            time.sleep(0.0005)
        self.server.control.run([b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0"])
        self._equal("keys of the databases", wanted, sizes)
        self._unordered_events()
        digests = [self.ours.run(1, [b"DEBUG", b"DIGEST"]), self.server.run(1, [b"DEBUG", b"DIGEST"])]
        self._equal("DEBUG DIGEST", *digests)
        self._counters_are_equal()
        engine.check()

    def _counters_are_equal(self) -> None:
        counters = self._counters(self.server.info(b"stats"))
        theirs = {name: counters[name] - self.before[name] for name in counters}
        self._equal("INFO stats", self._counters(self.ours.info(b"stats")), theirs)


@contextmanager
def server(compat: str, binary: str | None = None, *options: str) -> Iterator[TimedServer]:
    """A server whose clock stands still until it is moved."""
    stamp = Stamp()
    try:
        with running_redis("--hz", "500", *options, binary=binary, environment=stamp.environment()) as judge:
            one = TimedServer(judge.port, stamp, compat)
            one.judge = judge
            try:
                yield one
            finally:
                one.close()
    finally:
        stamp.close()


def main() -> int:
    """Run rounds until the number of steps is reached; print the seed of each difference."""
    from tests.judge import peer_binary

    parser = argparse.ArgumentParser(description="Compare expiry with a real server while time moves.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--compat", default="7.0")
    parser.add_argument("--closely", action="store_true", help="compare the counters after each command")
    options = parser.parse_args()
    if library() is None:
        print("libfaketime is not installed (Debian: faketime)")
        return 5  # as pytest without a test
    done = failures = 0
    seed = options.seed
    with server(options.compat, peer_binary(options.compat)) as one:
        while done < options.steps:
            try:
                Comparison(one, options.compat, seed, options.closely).run(min(ROUND, options.steps - done))
            except AssertionError as error:
                failures += 1
                print(f"seed {seed}: {error}", flush=True)
                if failures > 20:
                    break
            done += ROUND
            seed += 1
    print(f"compat {options.compat}, seeds {options.seed} to {seed - 1}: {min(done, options.steps)} steps, "
          f"{failures} failures", flush=True)  # fmt: skip
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
