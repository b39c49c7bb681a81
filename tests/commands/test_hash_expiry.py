"""Fields that expire, in an engine with a clock that the test moves. Real servers: tests/differential."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rillet.keyspace.clock import ManualClock
from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.writer import Lost, write_rdb
from rillet.runtime.engine import Engine
from rillet.runtime.pause import PAUSE_WRITES
from rillet.runtime.settings.settings import Settings
from rillet.types.compat import COMPATS
from tests.differential.logs import commands_in, kept
from tests.differential.wire import Local

NOW = 1_900_000_000_000
COMMANDS = ("HEXPIRE", "HPEXPIRE", "HEXPIREAT", "HPEXPIREAT", "HTTL", "HPTTL", "HEXPIRETIME", "HPEXPIRETIME",
            "HPERSIST", "HGETEX", "HSETEX", "HGETDEL")  # fmt: skip


class Timed(Local):
    """An engine whose clock stands still until it is moved."""

    def __init__(self, compat: str = "newest", **settings: Any) -> None:
        self.clock = ManualClock(NOW)
        super().__init__(Engine(Settings(compat=compat, enable_debug_command="yes", **settings), self.clock))

    def ask(self, line: str) -> object:
        """Run a command and check the engine's invariants."""
        reply = self(*line.split())
        self.engine.check()
        return reply


@pytest.fixture(params=["8.6", "newest", "valkey"])
def timed(request: pytest.FixtureRequest) -> Timed:
    return Timed(request.param)


@pytest.mark.parametrize("compat", COMPATS)
def test_older_servers_lack_the_commands(compat: str) -> None:
    one = Timed(compat)
    since = {name: 80 if name in ("HGETEX", "HSETEX", "HGETDEL") else 74 for name in COMMANDS}
    for name in COMMANDS:
        known = COMPATS[compat].valkey or COMPATS[compat].level >= since[name]
        assert (b"fast" in one.run([b"COMMAND", b"INFO", name.encode()])) is known
        assert (f"unknown command '{name}'" in str(one(name, "h", "x", "FIELDS", 1, "f", "v"))) is not known
    if COMPATS[compat].valkey:
        assert b"9.1.0" in one.run([b"COMMAND", b"DOCS", b"HGETDEL"])


def test_the_cycle_removes_expired_fields_and_empty_hashes(timed: Timed) -> None:
    timed.ask("HSET h a 1 b 2 c 3")
    timed.ask("HSET gone a 1")
    timed.ask("HPEXPIRE h 10000 FIELDS 2 a b")
    timed.ask("HPEXPIRE gone 5000 FIELDS 1 a")
    log = kept(timed.engine)
    timed.engine.expire_cycle()
    assert timed.ask("HLEN h") == 3
    timed.clock.advance(10_001)
    assert timed.ask("HLEN h") == 3
    assert timed.ask("HKEYS h") == [b"c"]
    timed.engine.expire_cycle()
    assert (timed.ask("HLEN h"), timed.ask("EXISTS gone")) == (1, 0)
    assert not timed.engine.databases[0].subexpires
    logged = [one for one in commands_in(log.feed.take_bytes()) if one[0] not in (b"SELECT", b"MULTI", b"EXEC")]
    if timed.engine.settings.compat.valkey:
        assert sorted(logged) == [[b"HDEL", b"gone", b"a"], [b"HDEL", b"h", b"a", b"b"], [b"UNLINK", b"gone"]]
        assert b"expired_fields:3" in timed.run([b"INFO", b"stats"])
    else:
        assert sorted(logged) == [[b"HDEL", b"gone", b"a"], [b"HDEL", b"h", b"a"], [b"HDEL", b"h", b"b"]]
        assert b"expired_subkeys:3" in timed.run([b"INFO", b"stats"])


def test_many_fields_expire_in_steps(timed: Timed) -> None:
    words = [word for at in range(2000) for word in (f"f{at}", "v")]
    timed("HSETEX", "h", "PX", 100, "FIELDS", 2000, *words)
    timed("HSET", "h", "stays", 1)
    timed.clock.advance(101)
    timed.engine.expire_cycle(0)
    assert 1 < int(str(timed("HLEN", "h"))) < 2001
    timed.engine.expire_all()
    assert timed.ask("HGETALL h") == [b"stays", b"1"]


def test_the_registration_follows_the_key(timed: Timed) -> None:
    """RENAME, MOVE, COPY, SWAPDB, overwriting and deletion keep the keyspace's list of hashes complete."""
    engine = timed.engine
    timed.ask("HSET h a 1 b 2")
    timed.ask("HPEXPIRE h 5000 FIELDS 1 a")

    def registered() -> list[list[bytes]]:
        return [[key for key, _ in database.subexpires.items()] for database in engine.databases[:2]]

    for line, expected in (
        ("RENAME h i", [[b"i"], []]), ("COPY i j", [[b"i", b"j"], []]), ("MOVE j 1", [[b"i"], [b"j"]]),
        ("SWAPDB 0 1", [[b"j"], [b"i"]]), ("COPY j k REPLACE", [[b"j", b"k"], [b"i"]]),
        ("SET j x", [[b"k"], [b"i"]]), ("HDEL k a", [[], [b"i"]]), ("COPY k l", [[], [b"i"]]),
        ("SELECT 1", [[], [b"i"]]), ("DEL i", [[], []]), ("HSETEX m PX 5 FIELDS 1 a 1", [[], [b"m"]]),
        ("PEXPIRE m 1", [[], [b"m"]]), ("FLUSHALL", [[], []]), ("HSETEX n PX 5000 FIELDS 1 a 1", [[], [b"n"]]),
    ):  # fmt: skip
        timed.ask(line)
        assert registered() == expected, line
    timed.ask("PEXPIRE n 1")
    timed.clock.advance(5)
    engine.expire_cycle()
    assert (registered(), timed.ask("DBSIZE")) == ([[], []], 0)


def test_a_replay_keeps_fields_until_the_log_removes_them(timed: Timed) -> None:
    log = kept(timed.engine)
    for line in ("HSET h a 1 b 5", "HPEXPIRE h 100 FIELDS 2 a b", "HINCRBY h b 1", "HPERSIST h FIELDS 1 b"):
        timed.ask(line)
    timed.clock.advance(200)
    timed.ask("HGET h a")
    timed.engine.expire_cycle()
    replica = Timed(timed.engine.settings.compat.name)
    replica.clock.advance(10_000)
    replica.session = replica.engine.session(trusted=True)
    replica.engine.loading = True
    for argv in commands_in(log.feed.take_bytes()):
        assert not replica.run(argv).startswith(b"-")
    replica.engine.loading = False
    assert replica.ask("HGETALL h") == timed.ask("HGETALL h") == [b"b", b"6"]


def test_a_pause_keeps_expired_fields_out_of_sight(timed: Timed) -> None:
    timed.ask("HSET h a 1 b 2")
    timed.ask("HPEXPIRE h 5 FIELDS 1 a")
    timed.engine.paused = PAUSE_WRITES
    timed.clock.advance(10)
    timed.engine.expire_cycle()
    assert (timed.ask("HGET h a"), timed.ask("HLEN h"), timed.ask("HVALS h")) == (b"-1", 2, [b"2"])
    timed.engine.paused_clients.relax()
    timed.engine.expire_cycle()
    assert timed.ask("HLEN h") == 1


def test_sort_passes_over_expired_fields(timed: Timed) -> None:
    timed.ask("RPUSH l 1 2")
    timed.ask("HSET h1 f 9 g 1")
    timed.ask("HSETEX h2 PX 5 FIELDS 1 f 3")
    assert timed.ask("SORT l BY h*->f GET h*->f") == [b"3", b"9"]
    timed.clock.advance(10)
    assert timed.ask("SORT l BY h*->f GET h*->f") == [b"-1", b"9"]


def test_events_of_fields() -> None:
    """Each of the four channels, with the fields of a command together; the formats of Redis 8.8."""
    one = Timed(notify_keyspace_events="hSTIV")
    listener = Local(one.engine)
    listener("PSUBSCRIBE", "__*")
    listener.session.out.take_bytes()
    one.ask("HSET h a 1 bc 2")
    said = listener.session.out.take_bytes()
    for channel, message in (
        (b"__subkeyspace@0__:h", b"hset|1:a,2:bc"), (b"__subkeyevent@0__:hset", b"1:h|1:a,2:bc"),
        (b"__subkeyspaceitem@0__:h\na", b"hset"), (b"__subkeyspaceitem@0__:h\nbc", b"hset"),
        (b"__subkeyspaceevent@0__:hset|h", b"1:a,2:bc"),
    ):  # fmt: skip
        assert b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(channel), channel, len(message), message) in said
    assert said.count(b"pmessage") == 5
    one.ask("DEL h")
    assert listener.session.out.take_bytes() == b""


@pytest.mark.parametrize(("compat", "header"), [("newest", b"REDIS0012"), ("valkey", b"VALKEY080")])
def test_an_rdb_file_keeps_the_times(tmp_path: Path, compat: str, header: bytes) -> None:
    one = Timed(compat)
    for name, count in (("small", 3), ("large", 600)):
        one("HSETEX", name, "PX", 5000, "FIELDS", count, *(word for at in range(count) for word in (at, at)))
        one("HSET", name, "stays", 1)
    one("HSET", "plain", "a", 1)
    write_rdb(tmp_path / "dump.rdb", one.engine)
    assert (tmp_path / "dump.rdb").read_bytes().startswith(header)
    for reader in ("newest", "valkey"):
        other = Timed(reader)
        load_rdb(tmp_path / "dump.rdb", other.engine)
        other.engine.check()
        assert other("DEBUG", "DIGEST-VALUE", "plain") == one("DEBUG", "DIGEST-VALUE", "plain")
        assert other.ask("HPEXPIRETIME small FIELDS 3 0 2 stays") == [NOW + 5000, NOW + 5000, -1]
        assert other.ask("HLEN large") == 601
        other.clock.advance(5001)
        other.engine.expire_cycle(10**9)
        assert (other.ask("HGETALL small"), other.ask("HLEN large")) == ([b"stays", b"1"], 1)
    lost: list[Lost] = []
    write_rdb(tmp_path / "old.rdb", one.engine, version=11, lost=lost)
    assert sorted((loss.key, loss.what) for loss in lost) == [
        (b"large", "the expiry of 600 fields"), (b"small", "the expiry of 3 fields"),
    ]  # fmt: skip


def test_expired_fields_in_an_independent_file(tmp_path: Path) -> None:
    """Redis keeps them, Valkey drops them, and a hash without other fields."""
    for compat, kept_keys in (("newest", 2), ("valkey", 1)):
        one = Timed(compat)
        one.ask("HSETEX h PX 5 FIELDS 1 a 1")
        one.ask("HSETEX i PX 5 FIELDS 1 a 1")
        one.ask("HSET i stays 1")
        write_rdb(tmp_path / compat, one.engine)
        other = Timed(compat)
        other.clock.advance(10)
        loaded = load_rdb(tmp_path / compat, other.engine, drop_expired=True)
        assert (loaded.keys, loaded.expired) == (kept_keys, 2 - kept_keys)
        assert other.ask("HLEN i") == (2 if compat == "newest" else 1)
        assert other.ask("HGETALL i") == [b"stays", b"1"]


def test_access_to_expired_data_can_be_allowed() -> None:
    one = Timed()
    one.ask("HSETEX h PX 5 FIELDS 1 a 1")
    one.ask("SET k v PX 5")
    one.ask("DEBUG SET-ALLOW-ACCESS-EXPIRED 1")
    one.clock.advance(10)
    one.engine.expire_cycle()
    assert (one.ask("HGET h a"), one.ask("GET k"), one.ask("KEYS *")) == (b"1", b"v", [b"h", b"k"])
    one.ask("DEBUG SET-ALLOW-ACCESS-EXPIRED 0")
    assert (one.ask("HGET h a"), one.ask("GET k"), one.ask("DBSIZE")) == (b"-1", b"-1", 0)


def test_until_8_6_persist_and_keepttl_are_read_together() -> None:
    engine = Engine(Settings(compat="8.6"), ManualClock(1_700_000_000_000))
    client = Local(engine)
    client.run([b"HSET", b"h", b"f", b"v"])
    one = b"-ERR Only one of EX, PX, EXAT, PXAT or %s arguments can be specified\r\n"
    for options, reply in (
        (b"KEEPTTL PERSIST", b"-ERR unknown argument\r\n"), (b"PERSIST KEEPTTL", b"-ERR unknown argument\r\n"),
        (b"KEEPTTL PERSIST KEEPTTL", one), (b"PERSIST PERSIST", one), (b"PERSIST KEEPTTL EX 5", one),
    ):  # fmt: skip
        for name, last, rest in ((b"HGETEX", b"PERSIST", b"f"), (b"HSETEX", b"KEEPTTL", b"f v")):
            line = b"%s h %s FIELDS 1 %s" % (name, options, rest)
            assert client.run(line.split()) == (reply % last if b"%s" in reply else reply), line
