"""Logs of redis-server 7.0 and of rillet: each loads the other's."""

from __future__ import annotations

import shutil
import struct
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

import rillet
from rillet.errors import LogCorrupt, NewerFormat
from rillet.structs.crc64 import crc64
from tests.judge import redis_binary, running_redis
from tests.persistence.state import WORK, Opened, content_of
from tests.variants import by_speed
from tests.waiting import until

STEP = by_speed(3, 7, 1)

pytestmark = pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")


@contextmanager
def _redis(folder: Path, *options: str) -> Iterator[redis.Redis]:
    """A redis-server with its log in the folder; it is shut down in order."""
    arguments = ("--dir", str(folder), "--appendonly", "yes", *options)
    with running_redis(*arguments) as server:
        client = server.client()
        yield client
        client.close()
        client.connection_pool.disconnect()


def _without_times(content: dict[bytes, Any]) -> dict[bytes, Any]:
    """Remove the consumers' seen-times, which no log contains."""
    for value in content.values():
        if isinstance(value, tuple):
            for group in value[1]:
                for consumer in group[b"consumers"]:
                    del consumer[consumer.index(b"seen-time") : consumer.index(b"seen-time") + 2]
    return content


def _nodes_of(run: Any) -> dict[Any, Any]:
    """Return the DUMP of every key; streams without their groups."""
    found: dict[Any, Any] = {}
    for database in range(16):
        run("SELECT", database)
        for key in run("KEYS", "*"):
            if run("TYPE", key) == b"stream":
                run("COPY", key, b"copy of " + key)
                for group in run("XINFO", "GROUPS", b"copy of " + key):
                    run("XGROUP", "DESTROY", b"copy of " + key, group[1])
                found[database, key] = run("DUMP", b"copy of " + key)
                run("DEL", b"copy of " + key)
            else:
                found[database, key] = (run("DUMP", key), run("PEXPIRETIME", key))
    run("SELECT", 0)
    return found


def test_redis_loads_the_log_of_rillet(tmp_path: Path) -> None:
    folder = tmp_path / "appendonlydir"
    now = time.time_ns() // 1_000_000
    with Opened(folder, now=now) as opened:
        for line in WORK:
            opened(*line.split())
    with Opened(folder, now=now) as opened:
        ours, content = _nodes_of(opened), _without_times(content_of(opened))
        opened.engine.log = None
    with _redis(tmp_path) as client:
        assert _without_times(content_of(client.execute_command)) == content
        theirs = _nodes_of(client.execute_command)
    # A stream node that was trimmed as a whole may be packed differently after a replay; the same replay is the same.
    assert theirs == ours


def test_redis_and_rillet_continue_each_others_logs(tmp_path: Path) -> None:
    with rillet.open(tmp_path) as store:
        store.stream("s").add_many((n, {"n": n}) for n in range(1, 300))
        store.stream("s").group("g").consumer("c").read(10)
    (tmp_path / "rillet.json").unlink()  # unchanged from Redis
    with _redis(tmp_path, "--aof-use-rdb-preamble", "no") as client:
        assert client.execute_command("XLEN", "s") == 299
        client.execute_command("XADD", "s", "1000-0", "from", "redis")
        client.execute_command("SET", "text", "from redis", "EX", "1000")
    for name in ("lock", "owner.json"):
        (tmp_path / name).unlink(missing_ok=True)
    with rillet.open(tmp_path) as store:
        assert len(store.stream("s")) == 300
        assert store.execute("GET", "text") == b"from redis"
        assert 0 < store.execute("TTL", "text") <= 1000
        assert store.stream("s").group("g").pending_count() == 10
        store.stream("s").add({"from": "rillet"}, "1001")
    with _redis(tmp_path) as client:
        assert client.execute_command("XLEN", "s") == 301


@pytest.mark.parametrize("preamble", ["yes", "no"])
@pytest.mark.parametrize("compression", ["yes", "no"])
def test_rillet_loads_the_log_of_redis_after_a_rewrite(tmp_path: Path, preamble: str, compression: str) -> None:
    with _redis(tmp_path, "--aof-use-rdb-preamble", preamble, "--rdbcompression", compression) as client:
        run = client.execute_command
        for line in WORK:
            run(*line.split())
        run("XADD", "large", "1-1", "text", "compressible " * 1000, "number", 17, "raw", bytes(range(256)))
        run("SET", "long", "x" * 70000)
        run("XGROUP", "CREATE", "large", "empty", "$")
        run("BGREWRITEAOF")
        until(
            lambda: run("INFO", "persistence").count(b"aof_rewrite_in_progress:0")
            and list(tmp_path.glob(f"appendonlydir/*.2.base.{'rdb' if preamble == 'yes' else 'aof'}"))
        )
        until(lambda: b"2.base" in (tmp_path / "appendonlydir/appendonly.aof.manifest").read_bytes())
        run("XADD", "s", "9300000000000", "after", "rewrite")
    # A restart of Redis shows the content of these files: commands do not preserve everything.
    shutil.copytree(tmp_path, tmp_path / "copy")
    with _redis(tmp_path / "copy", "--rdbcompression", compression) as client:
        content, nodes = _without_times(content_of(client.execute_command)), _nodes_of(client.execute_command)
    shutil.rmtree(tmp_path / "copy")
    with rillet.open(tmp_path, compat="7.0", rdbcompression=compression == "yes") as store:
        assert _without_times(content_of(store.execute)) == content
        assert _nodes_of(store.execute) == nodes
        store.transport.engine.check()  # type: ignore[attr-defined]
        store.stream("s").add({"after": "adoption"})
        length = len(store.stream("s"))
    with rillet.open(tmp_path) as store:
        assert len(store.stream("s")) == length
    with _redis(tmp_path) as client:
        assert client.execute_command("XLEN", "s") == length


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An RDB base written by redis-server, with streams, strings, expiries and two databases."""
    folder = tmp_path_factory.mktemp("redis")
    with _redis(folder) as client:
        run = client.execute_command
        for line in WORK:
            run(*line.split())
        run("BGREWRITEAOF")
        until(lambda: list(folder.glob("appendonlydir/*.2.base.rdb")))
        until(lambda: b"2.base" in (folder / "appendonlydir/appendonly.aof.manifest").read_bytes())
    return (folder / "appendonlydir/appendonly.aof.2.base.rdb").read_bytes()


def _adopt(folder: Path, rdb: bytes) -> Opened:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "base.rdb").write_bytes(rdb)
    (folder / "appendonly.aof.manifest").write_text("file base.rdb seq 1 type b\n")
    return Opened(folder)


def test_a_damaged_base_is_rejected(base: bytes, tmp_path: Path) -> None:
    with _adopt(tmp_path / "a", base) as opened:
        assert opened("DBSIZE") >= 3
    for at in range(0, len(base), 7 * STEP):
        damaged = bytearray(base)
        damaged[at] ^= 0x41
        with pytest.raises((LogCorrupt, NewerFormat), match="base.rdb") as caught:
            _adopt(tmp_path / "a", bytes(damaged))
        if isinstance(caught.value, LogCorrupt):
            assert 0 <= caught.value.offset <= len(base)
    for end in range(5, len(base), 11 * STEP):
        with pytest.raises(LogCorrupt, match="base.rdb: offset"):
            _adopt(tmp_path / "a", base[:end])


def test_a_base_without_a_checksum_is_read(base: bytes, tmp_path: Path) -> None:
    with _adopt(tmp_path / "a", base[:-8] + bytes(8)) as opened:
        assert opened("DBSIZE") >= 3


def _sealed(body: bytes, version: bytes = b"0010") -> bytes:
    data = b"REDIS" + version + body + b"\xff"
    return data + crc64(data).to_bytes(8, "little")


def test_records_between_keys_are_read(tmp_path: Path) -> None:
    body = (
        b"\xfa\x09redis-ver\x057.0.0\xfa\x08aof-base\xc0\x01" + b"\xfe\x02" + b"\xfb\x04\x02"
        + b"\xfc" + struct.pack("<q", 1_900_000_000_123) + b"\x00\x01a\x01x"
        + b"\xfd" + struct.pack("<i", 1_900_000_000) + b"\xf8\x40\x80" + b"\x00\x01b\xc1\x39\x30"
        + b"\xf9\x07" + b"\x00\x01c\xc2\xff\xff\xff\xff" + b"\x00\x01d\x80\x00\x00\x00\x03abc"
        + b"\xfc" + struct.pack("<q", 5) + b"\x00\x01e\x01x" + b"\xfe\x00" + b"\x00\x00\x00"
    )  # fmt: skip
    with _adopt(tmp_path / "a", _sealed(body)) as opened:
        assert opened("GET", "") == b""
        opened("SELECT", 2)
        assert [opened("GET", key) for key in "abcd"] == [b"x", b"12345", b"-1", b"abc"]
        assert [opened("PEXPIRETIME", key) for key in "abcd"] == [1_900_000_000_123, 1_900_000_000_000, -1, -1]
        assert opened("GET", "e") is None  # it had expired


@pytest.mark.parametrize(("body", "told"), [
    (b"\xfe\x03\x1d\x01a",
     "the key 'a' \\(database 3\\) holds a rate limit; "
     "this version reads strings, lists, sets, hashes, sorted sets, arrays and streams"),
    (b"\x07\x01m\x00", "holds a value of the module type 'AAAAAAAAA'"),
    (b"\xf7\x00", "offset 9: data of the module type 'AAAAAAAAA'"),
    (b"\xfe\x20", "database 32"),
])  # fmt: skip
def test_an_unsupported_type_is_named(tmp_path: Path, body: bytes, told: str) -> None:
    with pytest.raises(NewerFormat, match=told):
        _adopt(tmp_path / "a", _sealed(body))


def test_a_newer_or_invalid_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(NewerFormat, match="RDB version 99; rillet reads up to 14: upgrade"):
        _adopt(tmp_path / "a", _sealed(b"", b"0099"))
    for body, told in (
        (b"\x00\x01a\x01x\x00\x01a\x01y", "the key 'a' occurs twice"),
        (b"\x1e\x01a", "RDB type 30 is unknown"),
    ):
        with pytest.raises(LogCorrupt, match=told):
            _adopt(tmp_path / "a", _sealed(body))
    with pytest.raises(LogCorrupt, match="not an RDB file"):
        _adopt(tmp_path / "a", b"REDISxxxx")
    with pytest.raises(LogCorrupt, match="offset 10: RDB CRC error: the file states the checksum 0000000000000001"):
        _adopt(tmp_path / "a", b"REDIS0010\xff" + (1).to_bytes(8, "little"))


def test_a_directory_of_redis_is_adopted_unchanged(base: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with _redis(tmp_path / "x", "--appendfilename", "other.aof") as client:
        client.execute_command("XADD", "s", "1-1", "a", "b")
    (tmp_path / "x" / "dump.rdb").write_bytes(base)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with rillet.open(tmp_path / "x") as store:
            assert len(store.stream("s")) == 1
            store.stream("s").add({"c": "d"})
    with rillet.open(tmp_path / "x") as store:
        assert len(store.stream("s")) == 2
    shutil.copy(tmp_path / "x/appendonlydir/other.aof.manifest", tmp_path / "x/appendonlydir/second.aof.manifest")
    with pytest.raises(rillet.StoreError, match="holds several logs: other.aof, second.aof"):
        rillet.open(tmp_path / "x")
