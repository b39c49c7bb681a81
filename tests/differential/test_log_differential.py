"""What the commands of every group leave in the log: the same as in a real server's append-only file.

Random sequences over several databases run on both sides: streams, lists, sets, hashes, sorted sets, strings and keys,
each from the generator that its replies are compared with, with transactions around whatever comes, and WATCH that
fails. Then both logs are decoded and compared, unit by unit (`logs`). Clients that wait are served in another test,
keys that expire in a third.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rillet.persistence.aof.log import AppendOnlyLog
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential import hashes, list_set
from tests.differential.generator import FIRST, Generator, asks_the_clock
from tests.differential.logs import assert_same, assert_same_bytes, file_of, kept, units
from tests.differential.templates import Maker, words
from tests.differential.test_generic_differential import OPTIONS, TEMPLATES, VALUES
from tests.differential.test_stream_log_differential import without_sight
from tests.differential.wire import Local, Redis, is_time, read, tree
from tests.judge import PEERS, Judge, required_binary, running_redis
from tests.variants import by_speed

STEPS = int(os.environ.get("RILLET_DIFF_STEPS", by_speed(400, 400, 600)))
SEEDS = range(int(os.environ.get("RILLET_DIFF_SEEDS", "2")))
LOGGING = ("--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0")


# -- commands --------------------------------------------------------------------------------------

GENERIC = 2
# What tells of the server or the connection: it leaves nothing in the log, and the judges differ.
_TOLD = frozenset(b"command client scan config debug hello latency slowlog memory object auth role shutdown".split())


class Mixed:
    """Commands of all generators, some of one after some of another, each at home in a database of its own."""

    def __init__(self, seed: int, compat: str, *, streams: bool = True) -> None:
        self.streams = Generator(seed, compat)
        lists, generic = list_set.Generator(seed), Maker(seed, TEMPLATES, VALUES, OPTIONS)
        fields, scored = hashes.Generator(seed, self.streams.compat.level), Scored(seed)
        self.random = generic.random
        self.sources: list[Callable[[], list[bytes]]] = [
            self.streams.next, lists.next, lambda: patient(plain(generic)), fields.next, scored.next,
        ]  # fmt: skip
        self.homes = range(0 if streams else 1, len(self.sources))
        self.home = 0
        self.left = 0

    def next(self) -> list[bytes]:
        """Return the next command."""
        if self.left == 0:
            self.left = self.random.choice((1, 2, 5, 20))
            self.home = self.random.choice(self.homes)
            return [b"SELECT", b"%d" % self.home]
        self.left -= 1
        if self.random.random() < 0.06:
            return [self.random.choice((b"MULTI", b"EXEC", b"exec", b"EXEC", b"DISCARD"))]
        return self.sources[self.home]()

    def observe(self, reply: bytes) -> None:
        """Let the streams' generator see the IDs that were given."""
        if self.home == 0 and self.streams.made:
            self.streams.observe(reply)


def plain(generic: Maker) -> list[bytes]:
    """Return the next command on keys."""
    while True:
        argv = words(generic.command())
        if argv[0].lower() not in _TOLD:
            return argv


def patient(argv: list[bytes]) -> list[bytes]:
    """Return the command without a time that ends while the test runs."""
    return [b"1000000" if word == b"1000" else word for word in argv]


class Scored:
    """Commands on sorted sets: a|b is one of them, z a key, m a member, s a score, i a rank, n a count."""

    LINES = (
        "ZADD z s m", "ZADD z s m s m s m", "ZADD z NX|XX|GT|LT|CH s m", "ZADD z XX|GT|LT|NX CH s m s m",
        "ZADD z XX|NX|CH INCR s m", "ZADD z INCR s m", "ZINCRBY z s m", "ZREM z m m m", "ZPOPMIN|ZPOPMAX z",
        "ZPOPMIN|zpopmax z n", "ZMPOP 2 z z MIN|MAX", "ZMPOP 1 z MIN|max COUNT n", "BZPOPMIN|BZPOPMAX z z 0.001",
        "BZMPOP 0.001 2 z z MIN|MAX COUNT n", "ZRANGESTORE z z i i", "ZRANGESTORE z z i i REV",
        "ZRANGESTORE z z -inf 5 BYSCORE LIMIT 0 n", "ZUNIONSTORE|ZINTERSTORE z 2 z z WEIGHTS s 2 AGGREGATE SUM|MAX|MIN",
        "ZUNIONSTORE|ZINTERSTORE|ZDIFFSTORE z 2 z z", "ZREMRANGEBYRANK z i i", "ZREMRANGEBYSCORE z s s",
        "ZADD even 0 m 0 m 0 m", "ZREMRANGEBYLEX even [m2 (m5", "ZREMRANGEBYLEX even - [m1", "ZADD z s", "ZADD z x m",
        "ZRANGE z 0 -1 WITHSCORES", "DEL z", "SADD z m", "RENAME z z", "COPY z z REPLACE", "ZUNIONSTORE z 1 nothing",
    )
    WORDS = {
        "z": (b"z1", b"z2", b"z3", b"z4"), "i": (b"0", b"1", b"-1", b"-2", b"3"), "n": (b"0", b"1", b"2", b"50", b"-1"),
        "s": (b"1", b"2", b"2", b"-1", b"0.5", b"3.0", b"+inf", b"-inf", b"1e3", b"17179869184.25", b"nan", b"01"),
        "m": (b"m1", b"m2", b"m3", b"m4", b"m5", b"7", b"x" * 65),
    }  # fmt: skip

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def next(self) -> list[bytes]:
        """Return the next command."""
        line = self.random.choice(self.LINES).split()
        return [self.random.choice(self.WORDS.get(word) or word.encode().split(b"|")) for word in line]


# -- both sides ------------------------------------------------------------------------------------


class Pair:
    """A server and an engine that log what they are told, from the same moment on."""

    def __init__(self, redis: Redis, server: Judge, compat: str, door: bool = False) -> None:
        lazy = {"lazyfree_lazy_expire": True, "lazyfree_lazy_server_del": True} if compat == "valkey" else {}
        self.local = Local(Engine(Settings(compat=compat, enable_debug_command="yes", **lazy)), door=door)
        self.redis = redis
        self.server = server
        # The server's log stands in a database that is not the next command's, as ours does.
        redis.run([b"RESET"], [b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0"], [b"FLUSHALL"], [b"SELECT", b"15"],
                  [b"SET", b"k", b"v"], [b"FLUSHALL"], [b"SELECT", b"0"])  # fmt: skip
        self.path = file_of(server)
        self.start = self.path.stat().st_size
        self.log = kept(self.local.engine)

    def run(self, argv: list[bytes]) -> tuple[bytes, bytes]:
        """Run a command on both sides; ours and theirs replied."""
        return self.local.run(argv), self.redis.run(argv)[0]

    def ask(self, line: str) -> None:
        """Run a command on both sides, which reply the same."""
        ours, theirs = self.run(line.encode().split())
        assert ours == theirs, (line, ours, theirs)

    def logs(self) -> tuple[bytes, bytes]:
        """Return what both have logged."""
        return self.log.feed.take_bytes(), self.path.read_bytes()[self.start :]


@pytest.fixture(params=[False, True], ids=["called", "door"])
def pair(request: pytest.FixtureRequest, writer: tuple[str, Judge]) -> Iterator[Pair]:
    """Both sides, empty; ours through the parser, or past it."""
    compat, server = writer
    with Redis(server.port) as redis:
        yield Pair(redis, server, compat, request.param)


def run_random(pair: Pair, mixed: Mixed, steps: int) -> None:
    """Run random commands on both sides, whose data is the same afterwards."""
    for argv in FIRST:
        pair.run(argv)
    for step in range(steps):
        argv = mixed.next()
        if (len(argv) > 1 and asks_the_clock(pair.local, argv)) or (b"*" in argv and pair.local.session.state):
            continue
        ours, theirs = pair.run(argv)
        mixed.observe(theirs)
        loose = argv[0] == b"CONFIG" or (mixed.home >= GENERIC and not pair.local.session.state)
        assert loose or ours[:1] == theirs[:1], (step, argv, ours, theirs)
    pair.run([b"DISCARD"])
    ours, theirs = pair.run([b"DEBUG", b"DIGEST"])
    assert ours == theirs


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_log_for_the_same_commands(pair: Pair, writer: tuple[str, Judge], seed: int) -> None:
    run_random(pair, Mixed(seed, writer[0]), STEPS)
    mine, real = (units(log) for log in pair.logs())
    assert_same(mine, real, f"seed {seed}")
    assert len(mine) > STEPS // 10


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_bytes_where_nothing_differs_on_purpose(pair: Pair, writer: tuple[str, Judge], seed: int) -> None:
    """SELECT, MULTI and EXEC stand where the server has them; but for streams, of which ours tells more."""
    run_random(pair, Mixed(1000 + seed, writer[0], streams=False), STEPS // 2)
    assert_same_bytes(*pair.logs())


# -- clients that wait -----------------------------------------------------------------------------


class Crowd:
    """Clients of both sides, who may wait while others write; each in one of two databases."""

    def __init__(self, pair: Pair, clients: int = 6) -> None:
        self.engine = pair.local.engine
        self.control = pair.redis
        self.ours = [self.engine.session() for _ in range(clients)]
        self.theirs = [Redis(pair.server.port) for _ in range(clients)]
        self.waiting: set[int] = set()
        for client in range(clients):
            self.run(client, [b"SELECT", b"%d" % (client % 2)])

    def close(self) -> None:
        """Hang up, whoever still waits."""
        for client, session in enumerate(self.ours):
            self.theirs[client].__exit__()
            self.engine.close_session(session)

    def run(self, client: int, argv: list[bytes]) -> None:
        """Let a client run a command on both sides; whoever gets a reply gets the same on both."""
        self.theirs[client].send(argv)
        self.control.run([b"PING"])  # what was sent before it has run when it is answered
        self.engine.execute(self.ours[client], list(argv))
        self.waiting.add(client)
        for one in sorted(self.waiting):
            if self.ours[one].blocked is None:
                our, their = self.ours[one].out.take_bytes(), self.theirs[one].reply()
                assert our == their, (one, argv, our, their)
                self.waiting.discard(one)


WAITING = (
    "XREAD BLOCK 0 STREAMS x y $ $", "XREAD COUNT 2 BLOCK 0 STREAMS x 5-0",
    "XREADGROUP GROUP g a|b|c BLOCK 0 STREAMS x >", "XREADGROUP GROUP g a|b COUNT 1 BLOCK 0 STREAMS x y > >",
    "XREADGROUP GROUP g n BLOCK 0 NOACK STREAMS x >", "BLPOP|BRPOP l m 0", "BRPOP m 0",
    "BLMOVE l m LEFT|right left|RIGHT 0", "BRPOPLPUSH m l 0", "BLMPOP 0 2 l m LEFT|right COUNT 2",
    "BZPOPMIN|BZPOPMAX z y 0", "BZMPOP 0 2 z w MIN COUNT 2",
)  # fmt: skip
WAKING = (
    "XADD x NUMBER-1 f v", "XADD x NUMBER-1 f v", "XADD y NUMBER-1 f v", "XGROUP CREATE x|y g $ MKSTREAM",
    "XGROUP CREATE x|y g 0 MKSTREAM", "XGROUP DESTROY x g", "DEL x|y|l|m|z", "LPUSH|RPUSH l|m 1", "RPUSH l|m 1 2 3",
    "LMOVE l m LEFT RIGHT", "RPOPLPUSH m l", "ZADD z|w 1 a", "ZADD z|w 1 a 2 b 3 c", "MULTI", "EXEC", "EXEC", "EXEC",
    "RENAME l m", "RENAME x y", "COPY l m REPLACE", "COPY x y REPLACE", "SET x|l|z 1", "MOVE l|x|z 0|1",
    "SWAPDB 0 1", "XACK x g 5-1", "ZUNIONSTORE w 1 z", "LINSERT l BEFORE 1 0", "XTRIM x MAXLEN 3", "FLUSHDB",
)  # fmt: skip


def crowded(chance: random.Random, number: int) -> tuple[list[bytes], bool]:
    """Return a command for the crowd, and whether it may wait."""
    waits = chance.random() < 0.45
    line = chance.choice(WAITING if waits else WAKING).replace("NUMBER", str(number))
    return [chance.choice(word.encode().split(b"|")) for word in line.split()], waits


@pytest.mark.parametrize("seed", SEEDS)
def test_who_is_served_leaves_the_same_log(writer: tuple[str, Judge], seed: int) -> None:
    """Clients wait for lists, sorted sets and streams; those who write, also within transactions, wake them."""
    compat, server = writer
    chance = random.Random(seed)
    with Redis(server.port) as redis:
        pair = Pair(redis, server, compat)
        crowd = Crowd(pair)
        try:
            for number in range(10, 10 + STEPS):
                free = [one for one in range(len(crowd.ours)) if one not in crowd.waiting]
                argv, waits = crowded(chance, number)
                if not free or (waits and len(free) < 2):
                    continue
                client = chance.choice(free)
                # Whom these wake first is up to the order of a hashtable there.
                if argv[0] not in (b"SWAPDB", b"FLUSHDB") or not (crowd.waiting or crowd.ours[client].state):
                    crowd.run(client, argv)
        finally:
            crowd.close()
        ours, theirs = pair.run([b"DEBUG", b"DIGEST"])
        assert ours == theirs
        mine, real = (units(log) for log in pair.logs())
        assert_same(mine, real, f"seed {seed}")


# -- keys that expire ------------------------------------------------------------------------------

MADE = ("SET k v", "RPUSH k a b", "SADD k 1 2", "XADD k 1-1 f v", "ZADD k 1 a", "HSET k f v")
TOUCHED = (
    "GET k", "EXISTS k nothing", "INCR k", "APPEND k x", "SETRANGE k 2 y", "LPUSH k c", "LPUSHX k c", "SADD k 3",
    "ZADD k 1 b", "HSET k g w", "HINCRBY k f 1", "XADD k 2-1 f v", "XADD k NOMKSTREAM 2-1 f v", "XTRIM k MAXLEN 0",
    "XGROUP CREATE k g $ MKSTREAM", "RENAME k other", "RENAMENX k other", "RENAME other k", "COPY k other",
    "MOVE k 1", "PERSIST k", "EXPIRE k 1000000", "TTL k", "TYPE k", "DEL k", "UNLINK k other", "TOUCH k",
    "MGET other k", "MSETNX k 1 other 2", "SET k v XX", "SET k v NX", "SET k v KEEPTTL", "SET k v GET", "GETSET k v",
    "GETDEL k", "GETEX k PERSIST", "SUNIONSTORE k k other", "SINTERSTORE other k k", "ZUNIONSTORE other 1 k",
    "LMOVE k other LEFT LEFT", "RPOPLPUSH other k", "BLPOP k other 0.001", "BLMOVE k other LEFT LEFT 0.001",
    "SMOVE k other 1", "KEYS *", "XREAD STREAMS k 0", "XREADGROUP GROUP g c STREAMS k >", "EXEC", "MULTI",
    "SCAN 0 COUNT 100", "RANDOMKEY", "DUMP k", "OBJECT ENCODING k", "STRLEN k", "LRANGE k 0 -1", "SMEMBERS k",
    "XLEN k", "ZSCORE k a", "HGETALL k", "DBSIZE", "RESTORE k 0 x REPLACE", "PEXPIRE k 0", "PEXPIREAT k 1",
    "GETEX k EXAT 1", "SET k v PXAT 1", "SPOP k", "SPOP k 2",
)  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_whose_time_has_come_when_they_are_looked_up(pair: Pair, seed: int) -> None:
    """A deletion stands before the command that found the key gone, in its transaction if it has one."""
    chance = random.Random(seed)
    for _ in range(STEPS // 50):
        made = (chance.choice(MADE), "PEXPIRE k 20", "DEBUG SLEEP 0.021")
        for line in (*made, *chance.choices(TOUCHED, k=4), "DISCARD"):
            ours, theirs = pair.run(line.encode().split())
            assert ours[:1] == theirs[:1], (line, ours, theirs)
    mine, real = (units(log) for log in pair.logs())
    assert_same(mine, real, f"seed {seed}")


def test_keys_that_the_clock_finds(writer: tuple[str, Judge]) -> None:
    """Each goes by a command of its own, in its database."""
    compat, server = writer
    with Redis(server.port) as redis:
        pair = Pair(redis, server, compat)
        for db in (3, 5):
            pair.ask(f"SELECT {db}")
            for number in range(50):
                pair.ask(f"SET k{number} v PX 50")
        pair.ask("DEBUG SLEEP 0.051")
        redis.run([b"DEBUG", b"SET-ACTIVE-EXPIRE", b"1"])
        while any(database.expires for database in pair.local.engine.databases):
            pair.local.engine.expire_cycle()
        while b"db" in redis.run([b"INFO", b"keyspace"])[0]:
            redis.run([b"DEBUG", b"SLEEP", b"0.01"])
        ours, theirs = (sorted((unit.framed, unit.commands) for unit in units(log)[100:]) for log in pair.logs())
        assert ours == theirs
        assert len(ours) == 100


# -- each other's files ----------------------------------------------------------------------------


def state(ask: Callable[[list[bytes]], bytes]) -> list[object]:
    """Return what can be seen of the data: a digest, and of each stream its groups, consumers and pending entries."""
    seen: list[object] = [ask([b"DEBUG", b"DIGEST"])]
    for db in range(5):
        ask([b"SELECT", b"%d" % db])
        for key in sorted(read(ask([b"KEYS", b"*"]))):
            if ask([b"TYPE", key]) == b"+stream\r\n":
                full = tree(ask([b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"]))
                seen.append((db, key, without_times(without_sight(full))))
    return seen


def assert_same_state(ours: list[object], theirs: list[object]) -> None:
    """Compare two states, a stream at a time."""
    for our, their in zip(ours, theirs, strict=True):
        assert our == their, difference(our, their)


def difference(ours: Any, theirs: Any) -> Any:
    """Return the innermost parts that differ."""
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and len(ours) == len(theirs):
        for our, their in zip(ours, theirs, strict=True):
            if our != their:
                return difference(our, their) if len(str(our)) > 300 else (ours, theirs)
    return ours, theirs


def without_times(node: Any) -> Any:
    """Return a tree without times, which differ by what passes between the two sides."""
    kind, value = node
    if isinstance(value, list):
        return kind, [without_times(child) for child in value]
    return (kind, "a time") if kind == b":" and is_time(value) else node


@pytest.mark.peer
@pytest.mark.parametrize("compat", PEERS)
def test_a_server_s_log_read_here(compat: str, tmp_path: Path) -> None:
    """What a server wrote is read to what the server reads it to."""
    binary = required_binary(compat)
    with running_redis(*LOGGING, binary=binary) as server, Redis(server.port) as redis:
        mixed = Mixed(77, compat)
        # Newer servers log HINCRBYFLOAT as HSETEX, which is not here.
        fields = mixed.sources[3]
        mixed.sources[3] = lambda: next(argv for argv in iter(fields, None) if argv[0] != b"HINCRBYFLOAT")
        run_random(Pair(redis, server, compat), mixed, STEPS)
        redis.run([b"DEBUG", b"LOADAOF"])
        theirs = state(lambda argv: redis.run(argv)[0])
        shutil.copytree(server.folder / "appendonlydir", tmp_path / "log")
    local = Local(Engine(Settings(compat=compat, enable_debug_command="yes")))
    log = AppendOnlyLog(tmp_path / "log", fsync="no")
    log.open(local.engine)
    assert_same_state(state(local.run), theirs)
    local.engine.check()
    log.close()


@pytest.mark.peer
@pytest.mark.parametrize("compat", PEERS)
def test_our_log_read_by_a_server(compat: str, tmp_path: Path) -> None:
    """What was written here is read by a server to what it is read to here."""
    binary = required_binary(compat)
    local = Local(Engine(Settings(compat=compat, enable_debug_command="yes")))
    log = AppendOnlyLog(tmp_path / "appendonlydir", fsync="no")
    log.open(local.engine)
    mixed = Mixed(78, compat)
    for _ in range(STEPS):
        mixed.observe(local.run(mixed.next()))
    log.close()
    local = Local(Engine(Settings(compat=compat, enable_debug_command="yes")))
    log.open(local.engine)
    ours = state(local.run)
    log.close()
    with running_redis(*LOGGING, "--dir", str(tmp_path), binary=binary) as server, Redis(server.port) as redis:
        assert_same_state(ours, state(lambda argv: redis.run(argv)[0]))
