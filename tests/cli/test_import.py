"""`rillet import`: from files and servers into new and existing stores and servers."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import rillet
from rillet.cli import main
from rillet.persistence.checking import check
from rillet.persistence.rdb.writer import write_rdb
from rillet.protocol.command_parser import pack_command
from tests.cluster import running_cluster
from tests.judge import Judge, redis_binary, required_binary, running_redis
from tests.persistence.rdb_files import file, key, text
from tests.persistence.state import LATER
from tests.persistence.test_rdb_versions import FOREIGN, all_types

Said = pytest.CaptureFixture[str]

WORK = ["SET k v", "RPUSH l a b", "HSET h f v", "ZADD z 1 a", "SADD s a b", "XADD x 1-1 a 1", "XADD x 1-2 a 1",
        "XDEL x 1-2", "XGROUP CREATE x g 0", "XREADGROUP GROUP g c STREAMS x >",
        "SET soon v PXAT 90000000000000"]  # fmt: skip
KEYS = ("k", "l", "h", "z", "s", "x", "soon")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "source.rillet"
    with rillet.open(path, appendfsync="no") as opened:
        for line in WORK:
            opened.execute(*line.split())
    return path


@pytest.fixture
def server() -> Iterator[Judge]:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed")
    with running_redis() as started:
        yield started


def url(server: Judge, rest: str = "") -> str:
    return f"redis://127.0.0.1:{server.port}{rest}"


def run(server: Judge, *commands: str, db: int = 0) -> Any:
    """Run commands on a server and return the last reply."""
    with server.client(db=db) as client:
        replies = [client.execute_command(*command.split()) for command in commands]
        client.connection_pool.disconnect()
    return replies[-1]


def dumps(path: Path) -> list[Any]:
    with rillet.open(path) as opened:
        return [*(opened.execute("DUMP", name) for name in KEYS), opened.execute("PEXPIRETIME", "soon")]


# -- files into directories ---------------------------------------------------------------------------


def test_each_kind_of_file_becomes_a_new_store(store: Path, tmp_path: Path, capsys: Said) -> None:
    expected = dumps(store)
    with rillet.open(store) as opened:
        opened.save(tmp_path / "backup.rdb")
    single = tmp_path / "single.aof"
    single.write_bytes(b"".join(pack_command(line.encode().split()) for line in WORK))
    before = {one: one.read_bytes() for one in store.rglob("*") if one.is_file()}
    sources = store, store / "appendonlydir", next(store.glob("*/*.manifest")), tmp_path / "backup.rdb", single
    for number, source in enumerate(sources):
        target = tmp_path / f"{number}.rillet"
        assert main(["import", str(source), str(target)]) == 0
        assert capsys.readouterr().out.startswith(f"{target}: 7 keys copied from {source} in ")
        assert check(target).sound
        found = dumps(target)
        assert found[:5] + found[6:] == expected[:5] + expected[6:]
        with rillet.open(target) as opened:
            assert opened.execute("XPENDING", "x", "g")[0] == 1
    assert {one: one.read_bytes() for one in store.rglob("*") if one.is_file()} == before


def test_an_existing_store(store: Path, tmp_path: Path, capsys: Said) -> None:
    target = tmp_path / "target.rillet"
    with rillet.open(target) as opened:
        opened.execute("FLUSHALL")
    assert main(["import", str(store), str(target)]) == 0  # it is empty
    capsys.readouterr()
    assert main(["import", str(store), str(target)]) == 2
    assert capsys.readouterr().err == (
        "rillet: the target has 7 keys: choose --merge refuse, skip or replace for the keys that exist on both sides\n"
    )
    with rillet.open(target) as opened:
        opened.execute("DEL", "l")
        opened.execute("SET", "k", "mine")
    assert main(["import", "--merge", "refuse", str(store), str(target)]) == 2
    # It names five of the seven keys, in the order of the table.
    assert re.search(r"the target has keys of the source in database 0: ('\w+', ){5}\.\.\.;", capsys.readouterr().err)
    with rillet.open(target) as opened:  # also while it is open
        assert main(["import", "--merge", "skip", str(store), str(target)]) == 0
        assert "1 key copied from" in (said := capsys.readouterr().out)
        assert "6 that it already had kept" in said
        assert opened.execute("GET", "k") == b"mine"
        assert opened.execute("LLEN", "l") == 2
        opened.execute("SET", "other", "1")
        assert main(["import", "--merge", "replace", str(store), str(target)]) == 0
        assert opened.execute("GET", "k") == b"v"
        assert opened.execute("GET", "other") == b"1"
    assert check(target).sound


def test_all_databases_and_no_expired_keys(tmp_path: Path, capsys: Said) -> None:
    later = (1 << 45).to_bytes(8, "little")
    early = (1000).to_bytes(8, "little")
    source, target = tmp_path / "in.rdb", tmp_path / "out"
    source.write_bytes(file(
        10, b"\xfe\x00", key(0, b"a", text(b"1")), b"\xfc" + early + key(0, b"old", text(b"1")), b"\xfe\x03",
        b"\xfc" + later + key(0, b"b", text(b"2")), b"\xfe\x14", key(0, b"c", text(b"3")),
    ))  # fmt: skip
    assert main(["import", str(source), str(target)]) == 0
    said = capsys.readouterr().out
    assert f"{target} has keys in database 20: open it with databases=21\n" in said
    assert "3 keys copied" in said
    assert "1 expired" in said
    with rillet.open(target, databases=21) as opened:
        assert opened.execute("DBSIZE") == 1
        with opened.redis() as client:
            client.select(3)
            assert client.execute_command("PEXPIRETIME", "b") == 1 << 45


def test_modules_cannot_become_a_store(tmp_path: Path, capsys: Said) -> None:
    source, target = tmp_path / "in.rdb", tmp_path / "out"
    source.write_bytes(file(10, *FOREIGN))
    assert main(["import", str(source), str(target)]) == 3
    said = capsys.readouterr().out
    assert "function libraries" not in said
    assert "the value of a module\n" in said
    with rillet.open(target) as store, store.redis() as client:
        assert client.execute_command("FCALL", "f", 0) == 7
    assert main(["import", "--lossy", str(source), str(tmp_path / "other")]) == 0


def test_failures_have_their_exit_status(store: Path, tmp_path: Path, capsys: Said) -> None:
    damaged, folder = tmp_path / "damaged.rdb", tmp_path / "folder"
    damaged.write_bytes(file(10, key(0, b"k", text(b"v")))[:-3])
    folder.mkdir()
    (folder / "notes.txt").touch()
    closed = "redis://127.0.0.1:1"
    for source, target, status, said in (
        (damaged, tmp_path / "new", 1, "damaged.rdb: offset 15: 8 bytes expected, 5 left"),
        (tmp_path / "nothing", tmp_path / "new", 2, "does not exist"),
        (store, store, 2, "is both the source and the target"),
        (store, folder, 2, "is not a store: it has no rillet.json, but 'notes.txt'"),
        (store, closed, 2, "no server answers at 127.0.0.1:1"),
        (closed, tmp_path / "new", 2, "no server answers at 127.0.0.1:1"),
        (store, "http://x", 2, "url is neither redis://"),
    ):
        assert main(["import", str(source), str(target)]) == status
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
        assert error.startswith("rillet: ")
        assert not error.startswith("rillet: rillet:")
        assert not (tmp_path / "new").exists()
    with rillet.open(store):
        assert main(["import", str(store), str(tmp_path / "new")]) == 2
        assert "is open in process" in capsys.readouterr().err


# -- servers ------------------------------------------------------------------------------------------


def test_from_a_server_and_to_a_server(server: Judge, store: Path, tmp_path: Path, capsys: Said) -> None:
    assert main(["import", str(store), url(server)]) == 0
    assert f"{url(server)}: 7 keys copied from {store} in " in capsys.readouterr().out
    assert run(server, "PEXPIRETIME soon") == 90000000000000
    assert run(server, "XLEN x") == 1
    run(server, "SET b 1 EX 1000", "SET c 2", db=3)
    target = tmp_path / "target"
    assert main(["import", url(server), str(target)]) == 0
    assert f"{target}: 9 keys copied from 127.0.0.1:{server.port} in " in capsys.readouterr().out
    with rillet.open(target) as opened:
        assert opened.execute("DBSIZE") == 7
        assert opened.execute("LRANGE", "l", 0, -1) == [b"a", b"b"]
        with opened.redis() as client:
            client.select(3)
            assert 900_000 < client.pttl("b") <= 1_000_000
            assert client.pttl("c") == -1
    assert main(["import", url(server, "/3"), url(server, "/5")]) == 0
    assert run(server, "DBSIZE", db=5) == 2
    assert 900 < run(server, "TTL b", db=5) <= 1000
    capsys.readouterr()
    assert main(["import", "--merge", "replace", str(target), url(server, "/6")]) == 2
    assert "the source has databases 0, 3, but the target's url selects database 6" in capsys.readouterr().err


def test_many_and_large_keys(server: Judge, tmp_path: Path) -> None:
    with redis.Redis(port=server.port) as client:
        client.mset({f"key-{n}": n for n in range(5000)})
        client.mset({f"large-{n}": bytes(3 << 20) + b"%d" % n for n in range(4)})
        client.lpush("incompressible", *(str(n * 7919 % 1000003) for n in range(50000)))
        digest = client.execute_command("DEBUG", "DIGEST")
        assert main(["import", url(server), str(tmp_path / "one")]) == 0
        with rillet.open(tmp_path / "one", enable_debug_command="yes") as opened:
            assert opened.execute("DEBUG", "DIGEST") == digest.lower()
        with running_redis() as other:
            assert main(["import", str(tmp_path / "one"), url(other)]) == 0
            assert main(["import", "--merge", "replace", url(server), url(other)]) == 0
            assert run(other, "DEBUG DIGEST") == digest


def test_an_older_server_gets_what_it_can_store(server: Judge, tmp_path: Path, capsys: Said) -> None:
    """Streams of the newest server, copied from its files and from itself into Redis 7.0."""
    newest = all_types(time.time_ns() // 1_000_000, compat="newest").work(LATER)
    write_rdb(tmp_path / "newest.rdb", newest.engine)
    assert main(["import", str(tmp_path / "newest.rdb"), url(server)]) == 3
    said = capsys.readouterr().out
    assert "released entries of the group g, which no consumer will receive again" in said
    assert "rejected" not in said
    digest = run(server, "DEBUG DIGEST")
    assert main(["import", str(tmp_path / "newest.rdb"), str(tmp_path / "store")]) == 0
    with rillet.open(tmp_path / "store") as opened:
        run(server, "FLUSHALL")
        assert opened.socket is not None
        assert main(["import", f"unix://{opened.socket}", url(server)]) == 3
    assert "rejected" not in capsys.readouterr().out
    assert run(server, "DEBUG DIGEST") == digest


def test_function_libraries_go_to_a_server(server: Judge, tmp_path: Path) -> None:
    with redis.Redis(port=server.port) as client, running_redis() as other:
        client.function_load("#!lua name=one\nredis.register_function('f', function() return 1 end)")
        client.set("k", "v")
        assert main(["import", url(server), url(other)]) == 0
        assert run(other, "FCALL f 0") == 1
        assert main(["import", url(server), str(tmp_path / "store")]) == 0
        with rillet.open(tmp_path / "store") as store, store.redis() as own:
            assert own.execute_command("FCALL", "f", 0) == 1
        client.save()
        run(other, "FLUSHALL", "FUNCTION FLUSH")
        assert main(["import", str(server.folder / "dump.rdb"), url(other)]) == 0
        assert run(other, "FCALL f 0") == 1


def test_function_libraries_that_the_target_has(server: Judge, capsys: Said) -> None:
    one, two, other = (f"#!lua name={name}\nredis.register_function('{name}', function() return {reply} end)"
                       for name, reply in (("one", 1), ("two", 2), ("one", 10)))  # fmt: skip
    with redis.Redis(port=server.port) as client, running_redis() as place, redis.Redis(port=place.port) as target:
        for code in (one, two):
            client.function_load(code)
        target.function_load(other)
        assert main(["import", url(server), url(place)]) == 3
        assert "ERR Library one already exists; choose --merge skip or replace" in capsys.readouterr().out
        assert main(["import", "--merge", "skip", url(server), url(place)]) == 0
        assert (target.fcall("one", 0), target.fcall("two", 0)) == (10, 2)
        assert main(["import", "--merge", "replace", url(server), url(place)]) == 0
        assert target.fcall("one", 0) == 1
        assert main(["import", url(server), url(place)]) == 0  # the same code


def test_a_server_that_rejects_writes(server: Judge, store: Path, capsys: Said) -> None:
    run(server, "CONFIG SET maxmemory 1")
    assert main(["import", str(store), url(server)]) == 2
    assert "the target rejected a key after 0 keys were copied: OOM command not allowed" in capsys.readouterr().err


def test_a_copy_while_keys_change(server: Judge, tmp_path: Path) -> None:
    """Keys that appear, change and disappear during the copy do no harm to the others."""
    with redis.Redis(port=server.port) as client:
        client.mset({f"stable-{n}": n for n in range(3000)})
        stop = threading.Event()

        def change() -> None:
            with redis.Redis(port=server.port) as writer:
                number = 0
                while not stop.is_set():
                    number += 1
                    writer.set(f"moving-{number % 50}", number, px=1 + number % 20)
                    writer.delete(f"moving-{(number + 25) % 50}")

        thread = threading.Thread(target=change)
        thread.start()
        try:
            assert main(["import", url(server), str(tmp_path / "store")]) == 0
        finally:
            stop.set()
            thread.join()
    with rillet.open(tmp_path / "store") as opened:
        assert sorted(opened.keys("stable-*")) == sorted(f"stable-{n}" for n in range(3000))


def test_clusters(store: Path, tmp_path: Path, capsys: Said) -> None:
    required_binary("7.0")
    with running_cluster() as cluster:
        assert main(["import", str(store), cluster.url]) == 0
        with rillet.connect(cluster.url) as connected:
            assert sorted(connected.keys()) == sorted(KEYS)
            connected.execute_many([("SET", f"key-{n}", n) for n in range(500)])
        capsys.readouterr()
        assert main(["import", str(store), cluster.url]) == 2
        assert "the target has 507 keys" in capsys.readouterr().err
        assert main(["import", cluster.url, str(tmp_path / "copy")]) == 0
        with rillet.open(tmp_path / "copy") as opened:
            assert opened.execute("DBSIZE") == 507
            assert opened.execute("GET", "key-77") == b"77"
        (tmp_path / "two.rdb").write_bytes(file(10, b"\xfe\x01", key(0, b"k", text(b"v"))))
        assert main(["import", "--merge", "skip", str(tmp_path / "two.rdb"), cluster.url]) == 2
        assert "the source has keys in database 1, but a cluster has only database 0" in capsys.readouterr().err
