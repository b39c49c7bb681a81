"""RDB files that rillet writes: their content, failures while writing, and loading by redis-server."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from rillet.errors import LogCorrupt
from rillet.keyspace.clock import ManualClock
from rillet.persistence.aof.base import write_base
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.persistence.disk import Disk, DiskFile
from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.writer import write_rdb
from rillet.protocol.reply_parser import parse_all
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.structs.crc64 import crc64
from tests.judge import PEERS, redis_binary, required_binary, running_redis
from tests.persistence.state import LATER, STREAMS, WORK, state_of

NOW = 1_700_000_000_000


class Bare:
    """An engine without a log, for single commands."""

    def __init__(self, now: int = NOW, **settings: Any) -> None:
        self.clock = ManualClock(now)
        self.engine = Engine(Settings(**{"compat": "7.0", "enable_debug_command": "yes", **settings}), self.clock)
        self.session = self.engine.session()

    def __call__(self, *argv: Any) -> Any:
        self.engine.execute(self.session, [arg if isinstance(arg, bytes) else str(arg).encode() for arg in argv])
        return parse_all(self.session.out.take_bytes())[0]

    def work(self, *texts: str) -> Bare:
        for line in "\n".join(texts).splitlines():
            if line:
                self(*line.split())
        return self


def full(now: int = NOW, **settings: Any) -> Bare:
    """An engine with keys of every type."""
    return Bare(now, **settings).work("\n".join(WORK), STREAMS)


@pytest.mark.parametrize("compression", [True, False])
def test_written_values_are_read_back(tmp_path: Path, compression: bool) -> None:
    one = full(rdbcompression=compression)
    before = state_of(one)
    assert write_rdb(tmp_path / "dump.rdb", one.engine) == len(before) > 10
    two = Bare(rdbcompression=compression)
    loaded = load_rdb(tmp_path / "dump.rdb", two.engine)
    assert loaded[:6] == ((tmp_path / "dump.rdb").stat().st_size, len(before), 0, 0, 0, 10)
    assert loaded.facts[b"redis-ver"] == b"7.0.15"
    assert loaded.facts[b"ctime"] == b"%d" % (NOW // 1000)
    two.engine.check()
    assert state_of(two) == before
    assert two("DEBUG", "DIGEST") == one("DEBUG", "DIGEST")
    assert [path.name for path in tmp_path.iterdir()] == ["dump.rdb"]


def test_the_parts_of_a_file_are_in_order(tmp_path: Path) -> None:
    """The checksum covers all parts."""
    one = Bare().work("SET k v", "SELECT 3", "SET n 12 PXAT 1700000000777")
    write_rdb(tmp_path / "dump.rdb", one.engine, log_base=True)
    data = (tmp_path / "dump.rdb").read_bytes()
    assert data.startswith(b"REDIS0010\xfa\x09redis-ver\x067.0.15\xfa\x0aredis-bits\xc0\x40\xfa\x05ctime\xc2")
    assert b"ctime\xc2" + (NOW // 1000).to_bytes(4, "little") + b"\xfa\x08used-mem" in data
    assert b"\xfa\x08aof-base\xc0\x01\xfe\x00\xfb\x01\x00\x00\x01k\x01v\xfe\x03\xfb\x01\x01\xfc" in data
    assert data[:-8].endswith(b"\x01\x01\xfc" + (NOW + 777).to_bytes(8, "little") + b"\x00\x01n\xc0\x0c\xff")
    assert int.from_bytes(data[-8:], "little") == crc64(data[:-8])
    unchecked = Bare(rdbchecksum=False)
    write_rdb(tmp_path / "dump.rdb", unchecked.engine)
    assert (tmp_path / "dump.rdb").read_bytes().endswith(b"\xff" + bytes(8))


def test_a_file_of_several_pieces_is_read_back(tmp_path: Path) -> None:
    """One value is larger than a piece."""
    one = Bare(rdbcompression=False)
    for number in range(40):
        one("SET", f"k{number}", os.urandom(100_000))
    one("SET", "large", os.urandom(3_000_000))
    write_rdb(tmp_path / "dump.rdb", one.engine)
    assert (tmp_path / "dump.rdb").stat().st_size > 7_000_000
    two = Bare(rdbcompression=False)
    load_rdb(tmp_path / "dump.rdb", two.engine)
    assert two("DEBUG", "DIGEST") == one("DEBUG", "DIGEST")


@pytest.mark.parametrize(
    ("version", "policy"), [(None, "noeviction"), (9, "noeviction"), (12, "noeviction"), (None, "allkeys-lru")]
)
def test_values_at_rest_and_awake_are_written_alike(tmp_path: Path, version: int | None, policy: str) -> None:
    """Plain keys are copied from memory, others are converted; an access policy sends all through the second way."""
    one = Bare(maxmemory_policy=policy)
    for number in range(2400):
        one("SET", f"string:{number}", (f"{number}", f"text {number}", "ab" * 40, "x" * 1100)[number % 4])
        if number % 5 == 0:
            one("PEXPIREAT", f"string:{number}", 4_000_000_000_000 + number)
    for number in range(40):
        one("APPEND", f"raw:{number}", "tail")
        one("APPEND", f"raw:{number}", number)
        one("HSET", f"hash:{number}", "a", number, "b", "x" * (number % 3 * 40))
        one("SADD", f"ints:{number}", *range(number + 1))
        one("SADD", f"set:{number}", "a", "b", number)
        one("ZADD", f"zset:{number}", number, "a", 1.5, "b" * (1 + number % 2 * 80))
        one("RPUSH", f"list:{number}", *range(number + 1))
    one("ZADD", "skiplist", *(word for number in range(500) for word in (number % 7, f"member:{number}")))
    one("HSET", "table", *(word for number in range(600) for word in (number, f"value {number}")))
    one("SADD", "members", *(f"member {number}" for number in range(600)))
    one("RPUSH", "nodes", *("e" * 500 for _ in range(50)))
    for number in range(0, 2400, 7):
        one("DEL", f"string:{number}")
    before = state_of(one)
    reports: list[int] = []
    assert write_rdb(tmp_path / "dump.rdb", one.engine, version=version, progress=reports.append) == len(before)
    assert reports[:3] == [0, 1024, 2048]
    two = Bare()
    assert load_rdb(tmp_path / "dump.rdb", two.engine)[1] == len(before)
    two.engine.check()
    assert two("DEBUG", "DIGEST") == one("DEBUG", "DIGEST")
    assert state_of(two) == before
    if version is None and redis_binary():
        with running_redis("--enable-debug-command", "yes", folder=tmp_path) as judge, judge.client() as client:
            assert client.execute_command("DEBUG", "DIGEST") == one("DEBUG", "DIGEST")


def test_a_key_that_occurs_twice_is_an_error(tmp_path: Path) -> None:
    one = Bare().work("SET k first", "SET l other")
    write_rdb(tmp_path / "dump.rdb", one.engine)
    data = bytearray((tmp_path / "dump.rdb").read_bytes())
    at = data.index(b"\x00\x01l\x05other")
    data[at + 2 : at + 3] = b"k"
    (tmp_path / "dump.rdb").write_bytes(bytes(data))
    two = Bare()
    with pytest.raises(LogCorrupt, match="the key 'k' occurs twice"):
        load_rdb(tmp_path / "dump.rdb", two.engine)
    assert two("GET", "k") == b"first"


def test_expired_keys_are_written(tmp_path: Path) -> None:
    """The base of a log restores them; an independent file does not."""
    one = Bare().work("SET gone x PX 100", "SET kept y PX 1000", "SET ever z")
    one.clock.advance(500)
    write_rdb(tmp_path / "dump.rdb", one.engine)
    base, alone = Bare(NOW + 500), Bare(NOW + 500)
    assert load_rdb(tmp_path / "dump.rdb", base.engine)[1:3] == (3, 0)
    assert load_rdb(tmp_path / "dump.rdb", alone.engine, drop_expired=True)[1:3] == (2, 1)
    assert set(base.engine.databases[0].keys) == {b"gone", b"kept", b"ever"}
    assert set(alone.engine.databases[0].keys) == {b"kept", b"ever"}
    assert alone("PTTL", "kept") == 500


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    class FullDisk(Disk):
        """A disk on which one call, given by name, fails."""

        failing = ""

        def create(self, path: Path) -> DiskFile:
            if self.failing == "create":
                raise OSError(13, "Permission denied")
            file = super().create(path)
            if self.failing == "sync":
                file.close()  # the next operation on it fails
            return file

        def rename(self, old: Path, new: Path) -> None:
            if self.failing == "rename":
                raise OSError(5, "Input/output error")
            super().rename(old, new)

    one, disk = Bare().work("SET k 1"), FullDisk()
    path = tmp_path / "dump.rdb"
    write_rdb(path, one.engine, disk=disk)
    first = path.read_bytes()
    one("SET", "k", "2")
    for disk.failing in ("create", "sync", "rename"):
        with pytest.raises(OSError):
            write_rdb(path, one.engine, disk=disk)
        assert path.read_bytes() == first
        assert os.listdir(tmp_path) == ["dump.rdb"]
    disk.failing = ""
    write_rdb(path, one.engine, disk=disk)
    assert path.read_bytes() != first


def test_merging_replaces_existing_keys(tmp_path: Path) -> None:
    one, path = full(), tmp_path / "dump.rdb"
    before = state_of(one)
    write_rdb(path, one.engine)
    one.work("SET number changed", "SET added 1")
    load_rdb(path, one.engine, drop_expired=True, merge=True)
    assert state_of(one) == {**before, (0, b"added"): (one("DUMP", "added"), -1)}
    with pytest.raises(LogCorrupt, match="the key .* twice"):
        load_rdb(path, one.engine)


def test_records_of_other_servers_between_keys_are_skipped(tmp_path: Path) -> None:
    def load(head: bytes, body: bytes) -> Bare:
        data = head + body + b"\xff"
        (tmp_path / "x.rdb").write_bytes(data + crc64(data).to_bytes(8, "little"))
        fresh = Bare()
        load_rdb(tmp_path / "x.rdb", fresh.engine)
        return fresh

    assert load(b"VALKEY080", b"\xfe\x00\xf4\x01\x02\x03\x00\x01k\x01v")("GET", "k") == b"v"
    assert load(b"REDIS0014", b"\xfe\x00\x00\x01k\x01v")("GET", "k") == b"v"
    for head in (b"REDIS080x", b"VALKEYabc", b"REDI00010"):
        with pytest.raises(LogCorrupt, match="not an RDB file"):
            load(head, b"")
    (tmp_path / "x.rdb").write_bytes(b"")
    with pytest.raises(LogCorrupt, match="offset 0: 1 bytes expected, 0 left"):
        load_rdb(tmp_path / "x.rdb", Bare().engine)


def _reload(one: Bare, folder: Path) -> None:
    for database in one.engine.databases:
        database.flush()
    load_rdb(folder / "dump.rdb", one.engine, drop_expired=True)


def _as_log(one: Bare, folder: Path) -> None:
    """Write a log whose base is the engine's data."""
    log = AppendOnlyLog(folder, fsync="no")
    log.start(one.engine, lambda path: write_base(path, one.engine))
    log.close()
    one.engine.log = None


# -- what came with later servers ------------------------------------------------------------------------

MAKERS = {"7.0": 10, "7.2": 11, "7.4": 11, "8.0": 11, "8.2": 11, "8.6": 13, "newest": 14, "valkey": 11}
"""The version of a file with all that such a server's commands can make: the oldest that carries it."""


@pytest.mark.parametrize("compat", MAKERS)
def test_the_oldest_sufficient_version_is_written(tmp_path: Path, compat: str) -> None:
    one = full(compat=compat).work(LATER)
    write_rdb(tmp_path / "dump.rdb", one.engine)
    assert (tmp_path / "dump.rdb").read_bytes().startswith(b"REDIS%04d" % MAKERS[compat])
    before, told = state_of(one), _told(one)
    _reload(one, tmp_path)
    one.engine.check()
    assert state_of(one) == before
    assert _told(one) == told
    if compat in ("8.6", "newest"):
        assert one("XADD", "sent", "IDMP", "shop", "order-2", "*", "a", "2") == told[b"sent"][0][1][0]
        one.clock.advance(200_000)
        one.engine.expire_cycle()
        assert b"pids-tracked" in (row := one("XINFO", "STREAM", "sent"))
        assert row[row.index(b"pids-tracked") + 1] == 0
    if compat == "newest":
        # Released entries are claimed in the order of release, not of their IDs.
        claim = ("XREADGROUP", "GROUP", "g", "three", "CLAIM", "0", "STREAMS", "back", ">")
        twin = full(compat=compat).work(LATER)
        twin.clock.advance(200_000)
        claimed = one(*claim)
        assert claimed[0][1][0][0] == b"1-1"
        assert claimed == twin(*claim)


@pytest.mark.parametrize("preamble", ["yes", "no"])
@pytest.mark.parametrize("compat", ["7.0", "7.2", "8.6", "newest", "valkey"])
def test_a_rewritten_log_keeps_all_data(tmp_path: Path, compat: str, preamble: str) -> None:
    one = full(compat=compat, aof_use_rdb_preamble=preamble).work(LATER)
    _as_log(one, tmp_path)
    two = Bare(compat=compat)
    AppendOnlyLog(tmp_path, fsync="no").open(two.engine)
    two.engine.check()
    assert state_of(two) == state_of(one)
    assert _told(two) == _told(one)
    two.engine.log.close()


def test_data_unknown_to_an_older_compat_is_kept(tmp_path: Path) -> None:
    """Only the active-times of consumers may be omitted; data written by commands returns with the newer compat."""
    one = full(compat="newest").work(LATER)
    told = _told(one)
    one.engine.settings.set_text("compat", "7.0")
    write_rdb(tmp_path / "dump.rdb", one.engine)
    _reload(one, tmp_path)
    one.engine.check()
    one.engine.settings.set_text("compat", "newest")
    assert _told(one)[b"sent"] == told[b"sent"]
    assert _told(one)[b"back"] == told[b"back"]


# -- the judges --------------------------------------------------------------------------------------------


def _told(run: Any) -> dict[bytes, Any]:
    """Return XINFO of every stream of database 0, and its entries."""
    streams = [key for key in sorted(run("KEYS", "*")) if run("TYPE", key) == b"stream"]
    return {key: (run("XRANGE", key, "-", "+"), run("XINFO", "STREAM", key, "FULL", "COUNT", 0)) for key in streams}


def _judged(tmp_path: Path, one: Bare, binary: str | None, same: bool, *options: str) -> None:
    """Verify that a server loads the files: the same digest and expiries, and on the same version the same groups."""
    with running_redis("--dir", str(tmp_path), *options, binary=binary) as server:
        client = server.client()
        run = client.execute_command
        assert run("DEBUG", "DIGEST") == one("DEBUG", "DIGEST")
        theirs = {place: value[1] for place, value in state_of(run).items()}
        assert theirs == {place: value[1] for place, value in state_of(one).items()}
        if same:
            assert _told(run) == _told(one)
        client.close()
        client.connection_pool.disconnect()


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
@pytest.mark.parametrize("compression", [True, False])
def test_redis_loads_the_written_file(tmp_path: Path, compression: bool) -> None:
    now = time.time_ns() // 1_000_000
    one = full(now, rdbcompression=compression)
    write_rdb(tmp_path / "dump.rdb", one.engine)
    _judged(tmp_path, one, None, same=True)
    done = subprocess.run(["redis-check-rdb", str(tmp_path / "dump.rdb")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "RDB looks OK" in done.stdout, done.stdout


@pytest.mark.peer
@pytest.mark.parametrize("preamble", ["yes", "no"])
@pytest.mark.parametrize("compat", PEERS)
def test_servers_load_a_rewritten_log(tmp_path: Path, compat: str, preamble: str) -> None:
    binary = required_binary(compat)
    one = full(time.time_ns() // 1_000_000, compat=compat, aof_use_rdb_preamble=preamble).work(LATER)
    _as_log(one, tmp_path / "appendonlydir")
    write_rdb(tmp_path / "dump.rdb", Bare().work("SET nobody-reads it").engine)
    _judged(tmp_path, one, binary, True, "--appendonly", "yes")


@pytest.mark.peer
@pytest.mark.parametrize("compat", ["8.6", "newest", "valkey"])
def test_a_newer_server_loads_the_written_file(tmp_path: Path, compat: str) -> None:
    """One file in its own version, and one in the version that every server from 7.0 on loads."""
    binary = required_binary(compat)
    now = time.time_ns() // 1_000_000
    for one, same in ((full(now, compat=compat).work(LATER), True), (full(now), False)):
        write_rdb(tmp_path / "dump.rdb", one.engine)
        _judged(tmp_path, one, binary, same)
