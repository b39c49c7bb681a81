"""`rillet export`: from a store, a log or a file to an RDB file of any version, and what that could not carry."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import rillet
from rillet.cli import main
from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.writer import write_rdb
from rillet.protocol.command_parser import pack_command
from tests.judge import redis_binary, running_redis
from tests.persistence.rdb_files import file, key, text
from tests.persistence.state import LATER
from tests.persistence.test_rdb_file import Bare
from tests.persistence.test_rdb_versions import FOREIGN, LIBRARY, all_types

Said = pytest.CaptureFixture[str]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "events.rillet"
    with rillet.open(path, appendfsync="no") as opened:
        for line in ["SET k v", "RPUSH l a b", "HSET h f v", "ZADD z 1 a", "XADD s 1-1 a 1", "XADD s 1-2 a 1",
                     "XDEL s 1-2", "XGROUP CREATE s g 0", "XADD sent IDMP shop order-1 * a 1"]:  # fmt: skip
            opened.execute(*line.split())
    return path


def test_a_store_and_its_parts(store: Path, tmp_path: Path, capsys: Said) -> None:
    before = {one: one.read_bytes() for one in store.rglob("*") if one.is_file()}
    digests = set()
    sources = store, store / "appendonlydir", next(store.glob("*/*.manifest"))
    for number, source in enumerate(sources):
        out = tmp_path / f"{number}.rdb"
        assert main(["export", str(source), str(out)]) == 0
        told = f"{out}: RDB version 13, 6 keys, {out.stat().st_size} bytes, for Redis 8.6 and newer\n"
        assert capsys.readouterr().out == told
        one = Bare(compat="newest")
        load_rdb(out, one.engine)
        one.engine.check()
        digests.add(one("DEBUG", "DIGEST"))
    assert len(digests) == 1
    assert {one: one.read_bytes() for one in store.rglob("*") if one.is_file()} == before


def test_data_that_an_older_version_cannot_store_is_reported(store: Path, tmp_path: Path, capsys: Said) -> None:
    out = tmp_path / "old.rdb"
    assert main(["export", "--rdb-version", "9", str(store), str(out)]) == 3
    said = capsys.readouterr().out
    assert "omitted from 'sent' (database 0): the messages of its idempotent producers (IDMP)\n" in said
    assert "omitted from 's' (database 0): the number of entries ever added, and the greatest deleted ID\n" in said
    assert "RDB version 9, 6 keys" in said
    assert said.endswith("version 9 cannot store 2 values completely\n")
    assert out.read_bytes().startswith(b"REDIS0009")
    assert main(["export", "--rdb-version", "9", "--lossy", "--force", str(store), str(out)]) == 0
    assert main(["export", "--rdb-version", "80", "--force", str(store), str(out)]) == 3
    assert out.read_bytes().startswith(b"VALKEY080")


def test_function_libraries_go_along(tmp_path: Path, capsys: Said) -> None:
    source, out = tmp_path / "in.rdb", tmp_path / "out.rdb"
    source.write_bytes(file(10, *FOREIGN))
    assert main(["export", str(source), str(out)]) == 0
    assert FOREIGN[1] in out.read_bytes()
    assert FOREIGN[5] in out.read_bytes()
    assert main(["export", "--rdb-version", "9", "--force", str(source), str(out)]) == 3
    assert "omitted from the file: 2 function libraries\n" in capsys.readouterr().out
    assert main(["export", "--skip-foreign", "--force", str(source), str(out)]) == 0
    assert LIBRARY not in out.read_bytes()


def test_failures_have_their_exit_status(store: Path, tmp_path: Path, capsys: Said) -> None:
    out, damaged, newer = tmp_path / "out.rdb", tmp_path / "damaged.rdb", tmp_path / "newer.rdb"
    damaged.write_bytes(file(10, key(0, b"k", text(b"v")))[:-3])
    newer.write_bytes(file(14, key(29, b"limit of users", b"")))
    (tmp_path / "two").mkdir()
    for name in "ab":
        (tmp_path / "two" / f"{name}.rdb").write_bytes(file(10))
    (tmp_path / "none").mkdir()
    for source, status, told in (
        (damaged, 1, "damaged.rdb: offset 15: 8 bytes expected, 5 left"),
        (newer, 1, "the key 'limit of users' (database 0) holds a rate limit"),
        (tmp_path / "nothing", 2, "does not exist"), (tmp_path / "none", 2, "holds neither a log nor an RDB file"),
        (tmp_path / "two", 2, "holds more than one log or RDB file: give one of a.rdb, b.rdb"),
    ):  # fmt: skip
        assert main(["export", str(source), str(out)]) == status
        assert told in capsys.readouterr().err
        assert not out.exists()
    out.write_bytes(b"mine")
    assert main(["export", str(store), str(out)]) == 2
    assert out.read_bytes() == b"mine"
    assert "exists; --force replaces it" in capsys.readouterr().err
    with rillet.open(store):
        assert main(["export", str(store), str(tmp_path / "x.rdb")]) == 2
        assert "is open in process" in capsys.readouterr().err
    for version in ("8", "x"):
        with pytest.raises(SystemExit):
            main(["export", "--rdb-version", version, str(store), str(out)])
        assert "expected 9 to 14, or 80 for Valkey 9" in capsys.readouterr().err
    beyond = tmp_path / "nowhere" / "out.rdb"
    assert main(["export", str(store), str(beyond)]) == 2
    assert capsys.readouterr().err == f"rillet: {beyond}: No such file or directory\n"


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
def test_an_exported_file_loads_into_an_older_redis(tmp_path: Path, capsys: Said) -> None:
    """What only the newest server holds, exported for 7.0.15: it loads, to the digest that was exported."""
    one = all_types(time.time_ns() // 1_000_000, compat="newest").work(LATER)
    write_rdb(tmp_path / "newest.rdb", one.engine)
    assert main(["export", "--rdb-version", "10", str(tmp_path / "newest.rdb"), str(tmp_path / "dump.rdb")]) == 3
    assert "released entries of the group g, which no consumer will receive again" in capsys.readouterr().out
    two = Bare()
    load_rdb(tmp_path / "dump.rdb", two.engine)
    with running_redis("--dir", str(tmp_path)) as server:
        client = server.client()
        assert client.execute_command("DEBUG", "DIGEST") == two("DEBUG", "DIGEST")
        client.close()
        client.connection_pool.disconnect()


def test_a_log_of_one_file_is_exported(tmp_path: Path) -> None:
    one = Bare()
    commands = pack_command([b"SELECT", b"3"]) + pack_command([b"SET", b"k", b"v"])
    (tmp_path / "appendonly.aof").write_bytes(commands + b"*1\r\n")
    assert main(["export", str(tmp_path), str(tmp_path / "out.rdb")]) == 0
    load_rdb(tmp_path / "out.rdb", one.engine)
    one("SELECT", 3)
    assert one("GET", "k") == b"v"
