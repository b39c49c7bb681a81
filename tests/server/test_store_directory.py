"""A server on a directory that already holds data: a store, a log with `appendonly no`, an RDB file without a log."""

from __future__ import annotations

from pathlib import Path

import pytest

import rillet
from rillet.cli import main
from tests.server.harness import running
from tests.server.test_lifecycle import LOG, refused


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "events.rillet"
    with rillet.open(path) as opened:
        opened.execute("SET", "k", "v")
        opened.stream("s").add({"a": "1"})
        opened.save()
        opened.execute("SET", "later", "not in dump.rdb")
    return path


def test_a_server_serves_the_data_of_a_store(store: Path) -> None:
    with running(store) as server, server.client() as client:
        assert client.call("GET k") == b"$1\r\nv\r\n"
        assert client.call("EXISTS later s") == b":2\r\n"
        assert client.call("CONFIG GET appendonly") == b"*2\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n"
        assert client.call("SET by-the-server 1") == b"+OK\r\n"
        refusal = client.call("CONFIG SET appendonly no")
        assert b"a store in a directory always has an append-only log" in refusal
        status, said = server.stop()
    assert status == 0
    assert f"{store} is the directory of a rillet store: the append-only log is on" in said
    with rillet.open(store) as opened:
        assert opened.execute("DBSIZE") == 4
        assert opened.execute("GET", "by-the-server") == b"1"


def test_import_into_a_store_that_a_server_serves(store: Path, tmp_path: Path) -> None:
    with rillet.open(tmp_path / "other", appendfsync="no") as other:
        other.execute("SET", "imported", "1")
    with running(store) as server, server.client() as client:
        assert main(["import", "--merge", "refuse", str(tmp_path / "other"), str(store)]) == 0
        assert client.call("GET imported") == b"$1\r\n1\r\n"


def test_an_explicit_appendonly_no_is_refused(store: Path) -> None:
    before = {one: one.read_bytes() for one in store.rglob("*") if one.is_file()}
    conf = store.parent / "redis.conf"
    conf.write_text("appendonly no\n")
    said = refused("--port", "0", "--dir", str(store), "--appendonly", "no")
    assert said == (
        f"rillet: {store} is the directory of a rillet store, whose data is in its append-only log, but appendonly is "
        "no: remove that setting, or choose another directory (--dir)\n"
    )
    assert refused(str(conf), "--port", "0", "--dir", str(store)) == said
    assert {one: one.read_bytes() for one in store.rglob("*") if one.is_file()} == before


def test_the_log_of_a_store_has_its_names(store: Path, tmp_path: Path) -> None:
    for name, value in (("appendfilename", "other.aof"), ("appenddirname", "logs")):
        said = refused("--port", "0", "--dir", str(store), f"--{name}", value)
        assert f"the log of the store {store} is appendonlydir/appendonly.aof, but {name} is {value}" in said
    (store / "rillet.json").write_text('{"format": 99}')
    assert "upgrade rillet to open it" in refused("--port", "0", "--dir", str(store))


def test_the_log_of_a_store_keeps_its_checksums(store: Path) -> None:
    with running(store) as server, server.client() as client:
        client.call("SET x y")
    log = max(store.rglob("*.incr.aof"), key=lambda one: one.stat().st_mtime_ns)
    assert b"#RILLET:" in log.read_bytes().partition(b"not in dump.rdb")[2]


def test_a_store_without_a_log_serves_its_rdb_file(store: Path) -> None:
    for one in (store / "appendonlydir").iterdir():
        one.unlink()
    with running(store) as server, server.client() as client:
        assert client.call("EXISTS k s later") == b":2\r\n"
    with rillet.open(store) as opened:
        assert opened.execute("EXISTS", "k", "s") == 2


# -- directories of a redis-server ------------------------------------------------------------------


def test_a_log_that_is_not_loaded_is_reported_and_kept(tmp_path: Path) -> None:
    """As redis-server does, `appendonly no` loads dump.rdb only; a log that is turned on later does not replace it."""
    with running(tmp_path, *LOG, "--save", "") as server, server.client() as client:
        client.call("SET in-the-log 1")
    kept = {one.name: one.read_bytes() for one in (tmp_path / "appendonlydir").iterdir()}
    with running(tmp_path) as server, server.client() as client:
        assert client.call("DBSIZE") == b":0\r\n"
        client.call("SET in-memory 1")
        assert client.call("CONFIG SET appendonly yes") == b"+OK\r\n"
        client.rewritten()
        _, said = server.stop()
    assert f"# {tmp_path}/appendonlydir holds an append-only log, but appendonly is no: it is not loaded" in said
    aside = tmp_path / "appendonlydir.not-loaded"
    assert {one.name: one.read_bytes() for one in aside.iterdir()} == kept
    assert f"# The append-only log that was not loaded is now in {aside}" in said
    assert main(["export", str(tmp_path), str(tmp_path / "out.rdb")]) == 0  # the folder is not a second log
    with running(tmp_path, *LOG) as server, server.client() as client:
        assert client.call("KEYS *") == b"*1\r\n$9\r\nin-memory\r\n"


def test_an_rdb_file_that_is_not_loaded_is_reported_and_kept(tmp_path: Path) -> None:
    """As redis-server does, `appendonly yes` without a log starts empty; the next save does not destroy dump.rdb."""
    with running(tmp_path) as server, server.client() as client:
        client.call("SET in-the-file 1")
    saved = (tmp_path / "dump.rdb").read_bytes()
    with running(tmp_path, *LOG) as server, server.client() as client:
        assert client.call("DBSIZE") == b":0\r\n"
        client.call("SET in-the-log 1")
        _, said = server.stop()
    assert "appendonly is yes and there is no log: the RDB file is not loaded" in said
    assert (tmp_path / "dump.rdb").read_bytes() != saved
    assert (tmp_path / "dump.rdb.not-loaded").read_bytes() == saved
    with running(tmp_path, *LOG) as server:
        _, said = server.stop()
    assert "not loaded" not in said
    assert (tmp_path / "dump.rdb.not-loaded").read_bytes() == saved
