"""Idle times and access frequencies in RDB files, in the base of a log and in RESTORE, exchanged with redis-server."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.writer import write_rdb
from tests.judge import Judge, redis_binary, running_redis
from tests.persistence.test_rdb_file import Bare

needs_redis = pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
IDLE = (0, 1, 63, 64, 16383, 16384, 10_000_000, 16_777_214)
FREQUENCIES = (0, 5, 100, 255)


def _fill(run: Any, policy: str) -> None:
    run("CONFIG", "SET", "maxmemory-policy", policy)
    run("SET", "source", "v")
    payload = run("DUMP", "source")
    run("DEL", "source")
    for seconds in IDLE if policy.endswith("lru") else ():
        run("RESTORE", f"idle:{seconds}", 0, payload, "IDLETIME", seconds)
        run("RESTORE", f"idle:{seconds}", 10**7, payload, "REPLACE", "IDLETIME", seconds)
    for count in FREQUENCIES if policy.endswith("lfu") else ():
        run("RESTORE", f"freq:{count}", 0, payload, "FREQ", count)


def _verify(run: Any, policy: str) -> None:
    run("CONFIG", "SET", "maxmemory-policy", policy)
    for seconds in IDLE if policy.endswith("lru") else ():
        assert seconds <= run("OBJECT", "IDLETIME", f"idle:{seconds}") <= seconds + 120
    for count in FREQUENCIES if policy.endswith("lfu") else ():
        assert count - 2 <= run("OBJECT", "FREQ", f"freq:{count}") <= count


def _now() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lfu"])
def test_access_data_survive_a_file(tmp_path: Path, policy: str) -> None:
    one = Bare(maxmemory_policy=policy)
    _fill(one, policy)
    _verify(one, policy)
    write_rdb(tmp_path / "dump.rdb", one.engine)
    two = Bare(maxmemory_policy=policy)
    load_rdb(tmp_path / "dump.rdb", two.engine)
    _verify(two, policy)
    assert two("DEBUG", "RELOAD") == b"OK"
    # A file is written under another policy without access data, and a frequency is ignored by an LRU policy.
    assert two("CONFIG", "SET", "maxmemory-policy", "noeviction") == b"OK"
    write_rdb(tmp_path / "plain.rdb", two.engine)
    assert (tmp_path / "plain.rdb").stat().st_size < (tmp_path / "dump.rdb").stat().st_size
    three = Bare(maxmemory_policy=policy)
    load_rdb(tmp_path / "plain.rdb", three.engine)
    name = "idle:64" if policy.endswith("lru") else "freq:100"
    assert three("OBJECT", "IDLETIME" if policy.endswith("lru") else "FREQ", name) in (0, 5)


@needs_redis
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lfu"])
def test_redis_and_rillet_load_each_others_access_data(tmp_path: Path, policy: str) -> None:
    one = Bare(_now())
    _fill(one, policy)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    write_rdb(ours / "dump.rdb", one.engine)
    with running_redis("--maxmemory-policy", policy, "--dir", str(ours)) as server:
        _verify(server.client().execute_command, policy)
    with running_redis("--maxmemory-policy", policy) as server:
        run = server.client().execute_command
        _fill(run, policy)
        run("SAVE")
        shutil.copytree(server.folder, theirs)
    two = Bare(_now(), maxmemory_policy=policy)
    load_rdb(theirs / "dump.rdb", two.engine)
    _verify(two, policy)


ERRORS = """
    RESTORE k 0 x IDLETIME      RESTORE k 0 x IDLETIME -1      RESTORE k 0 x FREQ 256      RESTORE k 0 x FREQ -1
    RESTORE k 0 x FREQ 1 IDLETIME 2         RESTORE k 0 x IDLETIME 2 FREQ 1      RESTORE k 0 x IDLETIME a
    OBJECT IDLETIME             OBJECT FREQ a b                OBJECT IDLETIME none        OBJECT FREQ none
    SET k v                     OBJECT FREQ k                  OBJECT IDLETIME k
    CONFIG SET maxmemory-policy allkeys-lfu                    OBJECT IDLETIME k           OBJECT FREQ none
    CONFIG SET maxmemory-policy nothing                        CONFIG GET maxmemory-policy
    CONFIG SET lfu-log-factor -1            CONFIG SET lfu-decay-time x                    CONFIG SET lfu-log-factor 0
    SET n v      GET n      GET n      OBJECT FREQ n      INCRBY i 123456      INCRBY i 2      APPEND i 0
    OBJECT FREQ i
    SET n w      OBJECT FREQ n      SET n x KEEPTTL      OBJECT FREQ n      RENAME n m      OBJECT FREQ m
    COPY m n     OBJECT FREQ n      OBJECT FREQ m      RPUSH l a b      LRANGE l 0 -1      LLEN l      OBJECT FREQ l
    HSET h a b   HGET h a      HGETALL h      OBJECT FREQ h      SADD s a      SCARD s      SISMEMBER s a
    OBJECT FREQ s
    ZADD z 1 a   ZSCORE z a      ZRANGE z 0 -1      OBJECT FREQ z      XADD x 1-1 a b      XADD x 2-1 a b      XLEN x
    OBJECT FREQ x      XRANGE x - +      XREAD STREAMS x 0      OBJECT FREQ x      GETSET m y     OBJECT FREQ m
    MSET m z n z       OBJECT FREQ m      SETRANGE m 0 a      OBJECT FREQ m      EXPIRE m 1000      OBJECT FREQ m
    TTL m              EXISTS m           TYPE m              TOUCH m            OBJECT FREQ m      PERSIST m
    OBJECT FREQ m
    GETEX m            OBJECT FREQ m      SETNX m a           OBJECT FREQ m      SET m a XX        OBJECT FREQ m
    SETEX m 1000 a     OBJECT FREQ m      GETDEL m            CONFIG SET maxmemory-policy noeviction
    CONFIG SET lfu-log-factor 10
"""


@needs_redis
def test_replies_equal_those_of_redis(judge: Judge) -> None:
    """The replies, among them frequencies that grow by 1 with each access (lfu-log-factor 0)."""
    from tests.differential.wire import Local, Redis

    local = Local()
    with Redis(judge.port) as redis:
        redis.run([b"FLUSHALL"])
        for row in ERRORS.strip().splitlines():
            for line in (line.strip() for line in row.split("  ") if line.strip()):
                argv = [word.encode() for word in line.split()]
                assert local.run(argv) == redis.run(argv)[0], line
