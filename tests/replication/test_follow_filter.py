"""rillet.follow with a filter: which commands a replica of some keys applies, and when it needs another snapshot."""

from __future__ import annotations

import asyncio
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

import rillet
from rillet.store.follow import link as follow_link
from rillet.store.follow.resync_pace import LONGEST, SHORTEST, ResyncPace
from tests.judge import Judge
from tests.replication.load import Load, differences, lasts
from tests.replication.proxy import Proxy
from tests.replication.test_follow import SECONDS, client_of, master_of, url_of
from tests.server.harness import running


@pytest.fixture
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Request each snapshot at once."""
    monkeypatch.setattr(follow_link, "ResyncPace", lambda: ResyncPace(shortest=0, longest=0))


# -- each command -----------------------------------------------------------------------------------------

# Keys that begin with o are wanted, those with x are not. "+": the replica needs another snapshot.
CASES = """
+ RENAME x1 o1
- RENAME o1 x1
- RENAME o1 o9
- RENAME x1 x9
+ RENAMENX x1 o9
- RENAMENX o1 x9
+ COPY x1 o9
+ COPY x1 o1 REPLACE
- COPY o1 x9
- COPY o1 o9
+ COPY x1 o9 DB 1
- COPY o1 x9 DB 1
- COPY o1 o9 DB 1
- MOVE o1 1
- MOVE x1 1
- SWAPDB 0 1
- MOVE o1 1; SWAPDB 0 1; SET o2 after
+ MOVE x1 1; SELECT 1; RENAME x1 o1; SELECT 0
- SELECT 1; SET o1 one; SET x1 one; SELECT 0; SWAPDB 1 0; DEL o1 x1
- FLUSHDB
- FLUSHALL ASYNC
- SELECT 1; MSET o1 1 x1 1; FLUSHDB; SELECT 0
+ SUNIONSTORE o9 os xs
- SUNIONSTORE o9 os os2
- SUNIONSTORE x9 os xs
- SUNIONSTORE x9 os os2
+ SINTERSTORE o9 os xs
+ SDIFFSTORE os os xs
- SDIFFSTORE os os os2
+ SMOVE xs os x
- SMOVE os xs a
- SMOVE os os2 a
- SPOP os 2
- SPOP xs 2
+ SORT xl STORE o9
- SORT ol STORE o9
- SORT ol STORE x9
- SORT xl STORE x9
+ SORT ol BY w* STORE o9
+ SORT ol BY nosort GET w* STORE o9
- SORT ol BY nosort GET # STORE o9
- SORT ol LIMIT 0 1 ALPHA DESC STORE ol
+ BITOP AND o9 o1 x1
- BITOP NOT o9 o1
- BITOP OR x9 o1 o2
+ PFMERGE oh xh
- PFMERGE oh oh2
- PFMERGE xh oh
- PFCOUNT oh; PFCOUNT xh; PFADD oh z
+ GEOSEARCHSTORE o9 xg FROMLONLAT 0 0 BYRADIUS 900 km
- GEOSEARCHSTORE o9 og FROMLONLAT 0 0 BYRADIUS 900 km
- GEOSEARCHSTORE x9 og FROMLONLAT 0 0 BYRADIUS 900 km STOREDIST
+ GEORADIUS xg 0 0 900 km STORE o9
- GEORADIUS og 0 0 900 km STOREDIST o9
- GEORADIUS og 0 0 900 km STORE x9
+ GEORADIUSBYMEMBER xg a 900 km STORE o9
+ ZUNIONSTORE o9 2 oz xz
- ZUNIONSTORE o9 2 oz oz2 WEIGHTS 2 3
- ZUNIONSTORE x9 2 oz xz
+ ZINTERSTORE oz 2 oz xz
+ ZDIFFSTORE o9 2 oz xz
- ZDIFFSTORE o9 2 oz oz2
+ ZRANGESTORE o9 xz 0 -1
- ZRANGESTORE o9 oz 0 -1
- ZRANGESTORE x9 oz 0 -1
- ZMPOP 2 xz oz MIN; ZMPOP 1 oz MAX; BZPOPMIN xz oz 1
+ LMOVE xl ol LEFT RIGHT
- LMOVE ol xl LEFT RIGHT
- LMOVE ol ol2 LEFT RIGHT
- LMOVE ol x9 LEFT RIGHT
+ RPOPLPUSH xl ol
- RPOPLPUSH ol xl
+ BLMOVE xl ol LEFT LEFT 1
- BRPOPLPUSH ol ol2 1
- LMPOP 2 xl ol LEFT; LMPOP 1 ol RIGHT; BLPOP xl ol 1
- XGROUP CREATE xt g2 0; XGROUP CREATE ot g2 0; XGROUP CREATE o9 g $ MKSTREAM; XGROUP CREATE x9 g $ MKSTREAM
- XGROUP SETID ot g 1-0; XGROUP SETID xt g 1-0; XGROUP CREATECONSUMER ot g c2; XGROUP CREATECONSUMER xt g c2
- XREADGROUP GROUP g c COUNT 1 STREAMS ot xt > >; XACK ot g 1-1; XACK xt g 1-1
- XREADGROUP GROUP g c STREAMS xt ot > >; XCLAIM ot g d 0 1-1; XAUTOCLAIM ot g e 0 0; XAUTOCLAIM xt g e 0 0
- XREADGROUP GROUP g c STREAMS xt ot > >; XGROUP DELCONSUMER ot g c; XGROUP DESTROY xt g; XDEL ot 1-1; XTRIM xt MAXLEN 1
- XADD ot MAXLEN ~ 1 * f v; XADD xt NOMKSTREAM 9-9 f v; XSETID ot 99999999999999-0; XSETID xt 99-0
- MSET o1 a x1 b o2 c x2 d
- MSET x1 a x2 b
- MSETNX o8 a x8 b; MSETNX o8 a x9 b
- DEL o1 x1 o2 x2; UNLINK ol xl; DEL xs
- SET o1 v PX 100000; PEXPIRE x1 100000; EXPIRE o2 100; PERSIST o1; GETDEL x1; GETEX o2 PERSIST
- INCR o8; APPEND x1 b; HSET o7 f v; HSET x7 f v; HINCRBY o7 n 2; HDEL o7 f
- MULTI; SET o1 a; SET x1 a; MSET o2 b x2 b; EXEC
- MULTI; SET x1 a; SET x2 a; EXEC
- MULTI; SET o1 a; SELECT 1; SET o1 b; SET x1 b; SELECT 0; INCR o8; EXEC
+ MULTI; SET o1 a; COPY x1 o9; SET o2 b; EXEC
+ MULTI; SELECT 1; SET x3 three; SELECT 0; COPY x1 o9; SELECT 1; RENAME x3 o3; SELECT 0; EXEC
- MULTI; MOVE o1 1; SWAPDB 0 1; COPY o1 o9; RENAME o2 x9; EXEC
+ EVAL "redis.call('set', KEYS[1], 'a'); redis.call('copy', KEYS[2], KEYS[3])" 3 o1 x1 o9
- EVAL "redis.call('set', KEYS[1], redis.call('get', KEYS[2]))" 2 o1 x1
- EVAL "for i = 1, 9 do redis.call('sadd', KEYS[1], redis.call('time')[2]); redis.call('incr', KEYS[2]) end" 2 os x8
+ FCALL lend 2 xs os x
- FCALL lend 2 os xs a
+ FCALL store 3 oz2 oz xz
- FCALL store 3 xz oz oz2
""".strip().splitlines()
_LIBRARY = """#!lua name=lib
redis.register_function('lend', function(keys, args) return redis.call('smove', keys[1], keys[2], args[1]) end)
redis.register_function('store', function(keys)
    return redis.call('zunionstore', keys[1], 2, keys[2], keys[3]) end)
"""
_DATA = """
FLUSHALL; MSET o1 wanted o2 also x1 unwanted x2 too w1 3 w2 2 w3 1 x3 7; SADD os a b c; SADD os2 b d; SADD xs b x y
RPUSH ol 3 1 2; RPUSH ol2 z; RPUSH xl 6 5; ZADD oz 1 a 2 b; ZADD oz2 3 b; ZADD xz 4 b 5 x; PFADD oh a b; PFADD oh2 c
PFADD xh x y; GEOADD og 1 1 a; GEOADD xg 1 1 a 2 2 b; XADD ot 1-1 f v; XADD ot 1-2 f v; XADD xt 1-1 f v; XADD xt 1-2 f v
XGROUP CREATE ot g 0; XGROUP CREATE xt g 0
"""


def send(client: redis.Redis, text: str) -> None:
    """Send commands that are separated by semicolons, or the ends of lines, on the connection of the client."""
    for line in text.strip().splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";")
        lexer.commenters, lexer.whitespace_split, words = "", True, []
        for token in [*lexer, ";"]:
            if token != ";":
                words.append(token)
            elif words:
                client.execute_command(*words)
                words = []


def data_of(client: redis.Redis, pattern: str) -> dict[tuple[int, bytes], Any]:
    """Return the digests and expiry times of the keys of a pattern."""
    found = {}
    for database in range(3):
        client.execute_command("SELECT", database)
        for key in client.execute_command("KEYS", pattern):
            found[database, key] = (client.execute_command("DEBUG", "DIGEST-VALUE", key),
                                    client.execute_command("PEXPIRETIME", key))  # fmt: skip
    client.execute_command("SELECT", 0)
    return found


def full_syncs_of(master: redis.Redis) -> int:
    """Return how many snapshots a server has begun."""
    text = master.execute_command("INFO", "stats").decode()
    return int(text.partition("sync_full:")[2].split()[0])


@contextmanager
def server_of(kind: str, folder: Path) -> Iterator[redis.Redis]:
    """A genuine server, or `rillet serve`; its client has one connection."""
    if kind == "rillet":
        options = ("--repl-diskless-sync-delay", "0", "--save", "", "--enable-debug-command", "yes")
        with running(folder, *options) as server:
            client = redis.Redis(port=server.port, protocol=2, single_connection_client=True)
            client.response_callbacks.clear()
            yield client
            client.close()
    else:
        with master_of(kind) as judge, judge.client(single_connection_client=True) as client:
            yield client


@pytest.mark.peer("newest", "valkey", "8.6")
@pytest.mark.parametrize("kind", ["7.0", "rillet", "8.6", "newest", "valkey"])
@pytest.mark.usefixtures("_no_pause")
def test_each_command(kind: str, tmp_path: Path) -> None:
    """Each command has its effect on the wanted keys, by itself or with a snapshot, and none of another key is kept."""
    compat = "7.0" if kind == "rillet" else kind
    with server_of(kind, tmp_path) as master:
        master.execute_command("FUNCTION", "LOAD", _LIBRARY)
        port = master.connection_pool.connection_kwargs["port"]
        settings: Any = {"compat": compat, "enable_debug_command": "yes"}
        with rillet.follow(url_of(port), keys=["o*"], **settings) as replica:
            client = client_of(replica)
            for case in CASES:
                send(master, _DATA)
                replica.wait_synced(SECONDS)
                before = replica.resyncs
                send(master, case[2:])
                replica.wait_synced(SECONDS)
                assert replica.resyncs - before == (case[0] == "+"), case
                assert data_of(client, "*") == data_of(master, "o*"), case
                assert replica.link.refused == 0, case
            assert replica.link.full_syncs == replica.resyncs + 1


# -- the pauses ------------------------------------------------------------------------------------------


def test_the_pauses_between_snapshots() -> None:
    pace = ResyncPace()
    assert pace.left(5.0) == 0
    now, pauses = 100.0, []
    for _ in range(12):  # a command of another key follows each snapshot at once
        pauses.append(pace.lost(now))
        assert pace.left(now) == pytest.approx(pauses[-1])
        now += pauses[-1]
        assert pace.left(now) == 0
        pace.began(now)
        now += 0.5
        pace.loaded(now)
    assert pauses[:4] == [SHORTEST, 0.5, 1.0, 2.0]  # at least as long as the snapshot took
    assert pauses[-2:] == [LONGEST, LONGEST]
    assert pace.lost(now + LONGEST - 1) == LONGEST
    pace.loaded(now)
    assert pace.lost(now + LONGEST) == SHORTEST
    pace.began(now)
    pace.loaded(now + 300)  # a snapshot of minutes
    assert pace.lost(now + 310) == 300
    pace.loaded(now + 900)
    assert pace.lost(now + 900 + 299) == 300
    pace.loaded(now + 1500)
    assert pace.lost(now + 1500 + 300) == SHORTEST


def test_one_snapshot_covers_a_burst() -> None:
    """While the replica cannot connect, a thousand such commands arrive: they need one snapshot, and no more."""
    with master_of() as judge, Proxy(judge.port) as proxy:
        master = judge.client()
        master.set("x", "0")
        with rillet.follow(url_of(proxy.port), keys=["o*"]) as replica:
            proxy.shut = True
            master.execute_command("COPY", "x", "o", "REPLACE")
            while replica.resyncs == 0:
                replica.wait(0)
            with master.pipeline(transaction=False) as pipeline:
                for number in range(1000):
                    pipeline.set("x", number)
                    pipeline.execute_command("COPY", "x", "o", "REPLACE")
                pipeline.execute()
            assert replica.execute("EXISTS", "o") == 0  # the data before the command
            assert not replica.connected
            proxy.shut = False
            replica.wait_synced(SECONDS)
            assert (replica.execute("GET", "o"), replica.resyncs, replica.link.full_syncs) == (b"999", 1, 2)
            assert full_syncs_of(master) == 2


def test_commands_that_never_stop() -> None:
    """Such commands keep coming: the replica pauses, requests one snapshot each time, and catches up at the end."""
    with master_of() as judge, rillet.follow(url_of(judge.port), keys=["o*"]) as replica:
        over = threading.Event()

        def write() -> None:
            client, number = judge.client(), 0
            while not over.is_set():
                number += 1
                client.set("x", number)
                client.execute_command("COPY", "x", "o", "REPLACE")

        writer = threading.Thread(target=write)
        writer.start()
        pauses = []
        while replica.resyncs < 4:
            if replica.link.status == "paused":
                pauses.append(replica.resyncs)
            replica.wait(0)
        over.set()
        writer.join()
        replica.wait_synced(SECONDS)
        master = judge.client()
        assert replica.execute("GET", "o") == master.execute_command("GET", "o")
        assert set(pauses) >= {2, 3}
        assert "reads a key" in replica.link.error
        assert replica.link.full_syncs == replica.resyncs + 1 == full_syncs_of(master)


def test_the_asyncio_form() -> None:
    async def use(judge: Judge) -> None:
        async with rillet.follow(url_of(judge.port), keys=["o*"]).aio() as replica:
            script = "redis.call('set', 'x', 1) redis.call('copy', 'x', 'o')"
            await asyncio.to_thread(judge.client().execute_command, "EVAL", script, 0)
            await replica.wait_synced(SECONDS)
            assert (replica.resyncs, await replica.execute("GET", "o"), replica.link.full_syncs) == (1, b"1", 2)

    with master_of() as judge:
        asyncio.run(use(judge))


def test_messages_of_transactions() -> None:
    """A transaction loses its commands of other keys, and keeps its messages."""
    with master_of() as judge, rillet.follow(url_of(judge.port), keys=["o*"]) as replica:
        master, messages = judge.client(), replica.subscribe("news")
        for words in ("SET x 1; PUBLISH news 1; SET o 1", "PUBLISH news 2; SET x 2; SELECT 3; SET x 2; PUBLISH news 3",
                      "SET o 2; PUBLISH news 4",
                      "SET x 3; SELECT 2; PUBLISH news 5; PUBLISH news 6; SET o 3"):  # fmt: skip
            with judge.client(single_connection_client=True) as client:
                send(client, f"MULTI; {words}; EXEC")
        master.publish("news", "7")
        found = [messages.get(SECONDS) for _ in range(7)]
        assert [message and message.data for message in found] == list("1234567")
        replica.wait_synced(SECONDS)
        assert [replica.redis(db=db).get("o") for db in (0, 2)] == [b"2", b"3"]
        assert replica.execute("DBSIZE") == 1


# -- random commands, and files --------------------------------------------------------------------------


@pytest.mark.peer("newest", "valkey")
@pytest.mark.parametrize("compat", ["newest", "valkey"])
@pytest.mark.usefixtures("_no_pause")
def test_some_keys(compat: str, tmp_path: Path) -> None:
    """A replica of some keys has their values, and nothing of the others, in memory and in its files."""
    with master_of(compat) as judge:
        master, maker = judge.client(), Load(4, compat)
        maker.run(master, 100)
        master.set("hidden", "a secret value")
        globs = ["s*", "[i-l]*", "e[0-3]"]
        settings: Any = {"compat": compat, "enable_debug_command": "yes"}
        with rillet.follow(url_of(judge.port), tmp_path, keys=globs, **settings) as replica:
            wanted: Any = replica._follows.keys
            for _ in range(5):
                maker.run(master, 40)
                master.execute_command("MSET", "hidden", "a secret value", "xyz", "a secret value")
                master.execute_command("SET", "other", "open")
                master.execute_command("COPY", "other", "s9", "REPLACE")
            lasts(master)
            replica.wait_synced(SECONDS)
            for database in range(3):
                master.execute_command("SELECT", database)
                for key in master.execute_command("KEYS", "*"):
                    if not wanted.keeps(key):
                        master.execute_command("DEL", key)
            replica.wait_synced(SECONDS)
            master.execute_command("SELECT", 0)
            assert differences(master, client_of(replica), streams=False) == []
            assert replica.resyncs > 0
            assert replica.link.full_syncs == replica.resyncs + 1
            assert replica.link.refused == 0
        for file in tmp_path.iterdir():
            assert b"a secret value" not in file.read_bytes()


def test_commands_that_read_other_keys() -> None:
    with master_of() as judge:
        master = judge.client()
        master.set("other", "1")
        with rillet.follow(url_of(judge.port), keys=["o1", "o2"]) as replica:
            changes = replica.changes(timeout=0)
            master.execute_command("RENAME", "other", "o1")
            master.execute_command("COPY", "o1", "away")
            replica.wait_synced(SECONDS)
            assert (replica.resyncs, replica.execute("GET", "o1"), list(replica.keys())) == (1, b"1", ["o1"])
            with master.pipeline() as pipeline:  # nothing of the transaction is visible before the snapshot
                pipeline.set("o2", "2")
                pipeline.execute_command("COPY", "away", "o1", "REPLACE")
                pipeline.execute()
            replica.wait_synced(SECONDS)
            assert (replica.resyncs, sorted(replica.keys())) == (2, ["o1", "o2"])
            # The consumer gets the changes before the snapshots from the server.
            assert [one.words[0] for one in changes] == [b"RENAME", b"SET", b"COPY"]


