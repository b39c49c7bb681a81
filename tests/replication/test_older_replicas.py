"""Replicas that are older than their master: they get equal data, or an error, but never other data."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import redis

from rillet.replication.older_replicas import Narrowing
from rillet.runtime.engine import Engine
from rillet.runtime.registry import TABLE, load_commands
from rillet.runtime.replica_versions import compat_in_info, compat_of, knows, shown
from rillet.runtime.settings.settings import Settings
from rillet.types.compat import COMPATS, Compat
from tests.judge import required_binary, running_redis
from tests.replication.test_master_genuine import client, digests, fields
from tests.server.harness import running
from tests.waiting import until

load_commands()
OLD = compat_of("7.0.15", False)


class Effects:
    """A log that collects commands."""

    def __init__(self) -> None:
        self.commands: list[list[bytes]] = []

    def append(self, _db: int, argv: list[bytes]) -> None:
        self.commands.append(list(argv))

    def flush(self) -> None:
        return


class Master:
    """An engine of the newest version whose changes go to replicas of some servers alone."""

    def __init__(self, *servers: Compat) -> None:
        self.engine = Engine(Settings())
        self.log = Effects()
        self.engine.propagation.set_spare(self.log)
        self.calls = 0
        self.narrowing = Narrowing(self.engine, list(servers), self._called)
        self.engine.narrow(self.narrowing)
        self.session = self.engine.session()

    def _called(self) -> None:
        self.calls += 1

    def run(self, *lines: str) -> None:
        for line in lines:
            self.engine.execute(self.session, line.encode().split())
            assert not self.session.out.take_bytes().startswith(b"-"), line

    def effects(self, line: str) -> list[str]:
        """Run a command and return what the replicas get."""
        self.log.commands.clear()
        self.run(line)
        return [b" ".join(argv).decode("utf-8", "backslashreplace") for argv in self.log.commands]


@pytest.mark.parametrize(("version", "valkey", "level", "rdb", "stream"), [
    ("7.0.15", False, 70, 10, 19), ("7.2.4", False, 72, 11, 21), ("7.4.9", False, 74, 12, 21),
    ("8.2.1", False, 82, 12, 21),
    ("8.4.0", False, 84, 12, 21), ("8.6.3", False, 86, 13, 26), ("8.8.0", False, 88, 14, 27),
    ("9.0.0", False, 999_999, 14, 27), ("255.255.255", False, 999_999, 14, 27), ("6.2.1", False, 62, 10, 19),
    ("7.2.9", True, 72, 11, 21), ("8.1.0", True, 72, 11, 21), ("9.1.2", True, 72, 80, 21),
])  # fmt: skip
def test_a_version_shows_what_a_server_can_hold(version: str, valkey: bool, level: int, rdb: int, stream: int) -> None:
    server = compat_of(version, valkey)
    assert (server.level, server.rdb_version, server.stream_type) == (level, rdb, stream)
    assert shown(server) == ("Valkey " if valkey else "Redis ") + version


def test_info_shows_the_server() -> None:
    assert compat_in_info("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n") == compat_of(
        "8.1.0", True
    )
    assert compat_in_info("# Server\r\nredis_version:8.6.3\r\n") == compat_of("8.6.3", False)
    assert compat_in_info("redis_version:new\r\n") is None
    assert compat_in_info("") is None


@pytest.mark.parametrize(("name", "servers"), [
    ("hsetex", {"8.0.0", "8.6.3", "valkey 9.1.2"}), ("hexpire", {"7.4.1", "8.0.0", "8.6.3", "valkey 9.1.2"}),
    ("delifeq", {"valkey 9.1.2"}), ("xdelex", {"8.6.3"}), ("arset", set()), ("sintercard", None),
])  # fmt: skip
def test_a_server_knows_the_commands_of_its_version(name: str, servers: set[str] | None) -> None:
    all_servers = {"7.0.15", "7.2.4", "7.4.1", "8.0.0", "8.6.3", "valkey 8.1.0", "valkey 9.1.2"}
    entry = TABLE.find(name.encode())
    assert entry is not None
    known = {one for one in all_servers if knows(compat_of(one.split()[-1], "valkey" in one), entry)}
    assert known == (all_servers if servers is None else servers)


@pytest.mark.parametrize(("before", "line", "effects"), [
    ([], "SET k v", ["SET k v"]),
    (["SET k v"], "SET k w IFEQ v", ["SET k w"]),
    (["SET k v EX 1000"], "SET k w KEEPTTL IFEQ v", ["SET k w PXAT +"]),
    (["SET k v"], "DELEX k IFEQ v", ["DEL k"]),
    ([], "MSETEX 2 a 1 b 2", ["MULTI", "SET a 1", "SET b 2", "EXEC"]),
    (["SET a abc", "SET b b"], "BITOP DIFF d a b", ["SET d \x01bc"]),
    (["SET a abc"], "BITOP DIFF d none a", ["SET d \x00\x00\x00"]),
    (["SET a abc"], "BITOP NOT d a", ["BITOP NOT d a"]),
    ([], "INCREX n", ["SET n 1 KEEPTTL"]),
    ([], "HSETEX h FIELDS 2 f v g w", ["HSET h f v g w"]),
    (["HSET h f v g w"], "HSETEX h KEEPTTL FIELDS 1 f x", ["HSET h f x"]),
    (["HSET h f v g w"], "HGETDEL h FIELDS 1 f", ["HDEL h f"]),
    ([], "XADD s KEEPREF 1-1 f v", ["XADD s 1-1 f v"]),
    ([], "XADD s NOMKSTREAM DELREF 1-1 f v", []),
    ([], "XADD s IDMP p i * f v", ["XADD s + f v"]),
    ([], "XADD s IDMPAUTO p MAXLEN = 5 * f v", ["XADD s MAXLEN = 5 + f v"]),
    (["XADD s IDMP p i * f v"], "XADD s IDMP p i * f v", []),
    (["XADD s 1-1 f v", "XADD s 2-1 f v"], "XTRIM s MAXLEN 1 KEEPREF", ["XTRIM s MAXLEN 1"]),
    (["XADD s 1-1 f v"], "XCFGSET s IDMP-DURATION 5", []),
    (["XADD s 1-1 f v"], "XDELEX s IDS 2 1-1 5-5", ["XDEL s 1-1 5-5"]),
    (["XADD s 1-1 f v", "XGROUP CREATE s g 0", "XGROUP CREATE s other 0", "XREADGROUP GROUP g c STREAMS s >"],
     "XDELEX s DELREF IDS 1 1-1", ["MULTI", "XDEL s 1-1", "XACK s g 1-1", "XACK s other 1-1", "EXEC"]),
    (["XADD s 1-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >"],
     "XACKDEL s g IDS 1 1-1", ["MULTI", "XDEL s 1-1", "XACK s g 1-1", "EXEC"]),
    (["XADD s 1-1 f v", "XGROUP CREATE s g 0", "XGROUP CREATE s o 0", "XREADGROUP GROUP g c STREAMS s >"],
     "XACKDEL s g ACKED IDS 1 1-1", ["XACK s g 1-1"]),
    (["ZADD a 1 x"], "ZUNIONSTORE d 1 a AGGREGATE COUNT", ["RESTORE d 0 + REPLACE ABSTTL"]),
    (["RPUSH a 1 2"], "LMOVEM a b LEFT RIGHT COUNT 2 BULK", ["MULTI", "DEL a", "RESTORE b 0 + REPLACE ABSTTL", "EXEC"]),
])  # fmt: skip
def test_effects_use_commands_of_the_older_server(before: list[str], line: str, effects: list[str]) -> None:
    master = Master(OLD)
    master.run(*before)
    found = master.effects(line)
    assert len(found) == len(effects)
    for one, wanted in zip(found, effects, strict=True):
        head, plus, tail = wanted.partition("+")
        assert one == wanted if not plus else one.startswith(head) and one.endswith(tail)
    assert not master.narrowing.refused


@pytest.mark.parametrize(("servers", "before", "line", "reason"), [
    ([OLD], ["HSET h f v"], "HPEXPIRE h 100000 FIELDS 1 f",
     "Redis 7.0.15 cannot hold the value at key 'h' of database 0: the expiry of 1 fields"),
    ([OLD], ["HSET h f v"], "HSETEX h EX 100 FIELDS 1 g v", "the expiry of 1 fields"),
    ([compat_of("8.1.0", True)], ["HSET h f v"], "HEXPIRE h 100 FIELDS 1 f", "Valkey 8.1.0 cannot hold"),
    ([OLD, compat_of("8.6.3", False)], [], "ARSET a 5 v", "key 'a' of database 0: it is an array"),
    ([compat_of("8.6.3", False)], ["XADD s 1-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >"],
     "XNACK s g FAIL IDS 1 1-1", "it has 1 released entries (XNACK)"),
])  # fmt: skip
def test_a_value_that_a_replica_cannot_hold_is_refused(
    servers: list[Compat], before: list[str], line: str, reason: str
) -> None:
    master = Master(*servers)
    master.run(*before)
    assert not master.narrowing.refused
    master.effects(line)
    assert [server for server, _ in master.narrowing.refused] == servers
    assert reason in master.narrowing.refused[0][1]
    assert all(Narrowing(master.engine, [one], print).is_new(master.log.commands[-1]) for one in servers)
    assert master.calls == 1


def test_the_log_of_the_master_has_the_original_commands(tmp_path: Path) -> None:
    with running(tmp_path, "--appendonly", "yes", "--repl-compat", "7.0", "--repl-diskless-sync-delay", "0") as server:
        one = client(server.port)
        one.execute_command("CONFIG", "SET", "repl-compat", "7.2")
        with running_redis("--replicaof", f"127.0.0.1 {server.port}") as judge:
            replica = client(judge.port)
            _follows(replica)
            one.execute_command("HSETEX", "h", "KEEPTTL", "FIELDS", "1", "f", "v")
            one.execute_command("EVAL", "redis.call('msetex', 1, 'a', 'x') redis.call('set', 'b', 'y')", "0")
            assert one.execute_command("WAIT", 1, 60_000) == 1
            assert replica.execute_command("HGETALL", "h") == [b"f", b"v"]
            assert replica.execute_command("MGET", "a", "b") == [b"x", b"y"]
        log = b"".join(path.read_bytes() for path in (tmp_path / "appendonlydir").glob("*.incr.aof"))
        assert b"HSETEX" in log
        assert b"HSET\r\n" not in log
        assert (log.count(b"msetex"), log.count(b"EXEC")) == (1, 2)


def _follows(replica: redis.Redis) -> None:
    until(lambda: fields(replica, "replication")["master_link_status"] == "up", "the replica synchronises")


class Newer:
    """Random commands of the newest version whose results an old server can hold."""

    def __init__(self, seed: int, level: int) -> None:
        self.random = random.Random(seed)
        self.level = level

    def next(self) -> list[Any]:
        chance, key = self.random, f"s{self.random.randrange(3)}"
        ids = [f"{chance.randrange(60)}-1" for _ in range(chance.randrange(1, 4))]
        mode = chance.choice(("KEEPREF", "DELREF", "ACKED"))
        group, field = f"g{chance.randrange(2)}", f"f{chance.randrange(4)}"
        numbers = [f"n{chance.randrange(4)}" for _ in range(2)]
        return chance.choice((
            ["XADD", key, f"{chance.randrange(60)}-1", "f", "v"], ["XADD", key, "KEEPREF", "*", "f", "v"],
            ["XADD", key, mode, "MAXLEN", "~", chance.randrange(8), "*", "f", "v"],
            ["XADD", key, "IDMP", "p", chance.randrange(5), "*", "f", "v"],
            ["XTRIM", key, "MAXLEN", chance.randrange(9), mode],
            ["XDELEX", key, mode, "IDS", len(ids), *ids], ["XACKDEL", key, group, mode, "IDS", len(ids), *ids],
            ["XGROUP", "CREATE", key, group, "0"],
            ["XREADGROUP", "GROUP", group, "c", "COUNT", "4", "STREAMS", key, ">"],
            ["SET", numbers[0], chance.randrange(9), "IFEQ", chance.randrange(9)],
            ["INCREX", numbers[0], "UBOUND", "9"],
            ["SET", numbers[0], chance.randrange(9)], ["DELEX", numbers[1]],
            ["MSETEX", "2", numbers[0], "1", numbers[1], "2", "EX", "1000"], ["BITOP", "ONE", numbers[0], *numbers],
            ["HSETEX", "h", "FIELDS", "1", field, chance.randrange(9)], ["HGETDEL", "h", "FIELDS", "1", field],
            ["ZADD", "z", chance.randrange(9), field], ["ZUNIONSTORE", "y", "2", "z", "y", "AGGREGATE", "COUNT"],
            ["RPUSH", "l", *ids], ["LMOVEM", "l", "m", "LEFT", "RIGHT", "COUNT", "2", "BULK"], ["LPOP", "m"],
        ))  # fmt: skip

    def run(self, one: redis.Redis, count: int) -> None:
        pipeline = one.pipeline(transaction=False)
        for _ in range(count):
            pipeline.execute_command(*self.next())
        pipeline.execute(raise_on_error=False)


def _pending(one: redis.Redis) -> list[Any]:
    one.execute_command("SELECT", 0)
    found: list[Any] = []
    for key in ("s0", "s1", "s2"):
        for group in ("g0", "g1"):
            try:
                rows = one.execute_command("XPENDING", key, group, "-", "+", 1000)
            except redis.ResponseError as error:
                rows = [[str(error).split()[0], b""]]
            found += [(key, group, row[0], row[1]) for row in rows]
    return found


@pytest.mark.parametrize("peer", ["7.0", "8.6", "valkey"])
def test_an_older_replica_has_the_same_data(tmp_path: Path, peer: str) -> None:
    binary = required_binary(peer)
    with running(tmp_path, "--enable-debug-command", "yes", "--save", "", "--repl-diskless-sync-delay", "0") as server:
        made, one, master = Newer(4, COMPATS[peer].level), client(server.port), client(server.port)
        made.run(one, 200)
        with running_redis("--replicaof", f"127.0.0.1 {server.port}", binary=binary) as judge:
            replica = client(judge.port)
            _follows(replica)
            errors = fields(replica, "errorstats")
            for _ in range(3):
                made.run(one, 200)
                master.execute_command("CLIENT", "KILL", "TYPE", "replica")
            made.run(one, 100)
            assert master.execute_command("WAIT", 1, 60_000) == 1
            ours, theirs = digests(master), digests(replica)
            assert {key for key in ours | theirs if ours.get(key) != theirs.get(key)} == set()
            assert fields(replica, "errorstats") == errors
            assert _pending(master) == _pending(replica)
            facts = fields(master, "stats")
            assert (facts["sync_full"], facts["sync_partial_err"]) == ("1", "0")


def _lines(path: Path, part: str) -> list[str]:
    return [line for line in path.read_text().splitlines() if part in line]


def test_a_replica_gets_an_error_instead_of_data_that_it_cannot_hold(tmp_path: Path) -> None:
    log = tmp_path / "replica.log"
    with running(tmp_path, "--save", "", "--repl-diskless-sync-delay", "0") as server:
        one = client(server.port)
        with running_redis("--replicaof", f"127.0.0.1 {server.port}", "--logfile", str(log)) as judge:
            replica = client(judge.port)
            _follows(replica)
            one.execute_command("HSET", "h", "f", "v")
            one.execute_command("HPEXPIRE", "h", "100000", "FIELDS", "1", "f")
            one.execute_command("SET", "later", "x")
            refused = "Redis 7.0.15 cannot hold the value at key 'h' of database 0: the expiry of 1 fields"
            until(lambda: bool(_lines(log, f"MASTER aborted replication with an error: ERR {refused}")), "the error")
            assert replica.execute_command("EXISTS", "h", "later") in (0, 1)
            assert fields(replica, "replication")["master_link_status"] == "down"
            assert one.execute_command("HPERSIST", "h", "FIELDS", "1", "f") == [1]
            _follows(replica)
            assert one.execute_command("WAIT", 1, 60_000) == 1
            assert replica.execute_command("HGETALL", "h") == [b"f", b"v"]
            assert replica.execute_command("GET", "later") == b"x"


def test_a_replica_that_does_not_answer_is_treated_as_the_oldest(tmp_path: Path) -> None:
    with (
        running(tmp_path, "--save", "", "--repl-diskless-sync-delay", "0") as server,
        running_redis(binary=required_binary("8.6")) as judge,
    ):
        one, replica = client(server.port), client(judge.port)
        replica.execute_command("CONFIG", "SET", "requirepass", "secret")
        replica.execute_command("REPLICAOF", "127.0.0.1", str(server.port))
        _follows(replica)
        one.execute_command("HSETEX", "h", "FIELDS", "1", "f", "v")
        assert one.execute_command("WAIT", 1, 60_000) == 1
        assert "cmdstat_hset" in fields(replica, "commandstats")
        one.execute_command("CONFIG", "SET", "masterauth", "secret")
        one.execute_command("CLIENT", "KILL", "TYPE", "replica")
        until(lambda: int(fields(one, "stats")["sync_partial_ok"]) == 1, "the replica continues")
        one.execute_command("CONFIG", "SET", "repl-timeout", "3")
        until(lambda: _sends(one, replica), "the limit of the unknown version ends")


def _sends(one: redis.Redis, replica: redis.Redis) -> bool:
    one.execute_command("HSETEX", "h", "FIELDS", "1", "f", "v")
    one.execute_command("WAIT", 1, 60_000)
    return "cmdstat_hsetex" in fields(replica, "commandstats")


def test_a_server_in_the_middle_does_not_forward_what_its_replica_does_not_know(tmp_path: Path) -> None:
    with (running_redis(binary=required_binary("newest")) as top,
          running(tmp_path, "--save", "", "--repl-diskless-sync-delay", "0", "--replicaof",
                  f"127.0.0.1 {top.port}") as server):  # fmt: skip
        first, middle = client(top.port), client(server.port)
        _follows(middle)
        with running_redis("--replicaof", f"127.0.0.1 {server.port}") as judge:
            replica = client(judge.port)
            _follows(replica)
            first.execute_command("SET", "k", "v")
            first.execute_command("HSETEX", "h", "FIELDS", "1", "f", "v")
            until(
                lambda: int(fields(middle, "stats")["sync_full"]) == 2, "a full synchronisation instead of the command"
            )
            _follows(replica)
            until(lambda: replica.execute_command("HGETALL", "h") == [b"f", b"v"], "the data")
            assert "cmdstat_hsetex" not in fields(replica, "commandstats")
