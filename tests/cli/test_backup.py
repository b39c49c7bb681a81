"""`rillet backup` and `rillet restore`: copies of running stores and servers, restored to a moment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

import rillet
from rillet.cli import main
from rillet.cli.restore import second_of
from rillet.errors import NotAStore
from rillet.persistence.aof.frames import frame
from rillet.persistence.checking import check
from rillet.persistence.rdb.writer import write_rdb
from rillet.protocol.command_parser import pack_command
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.store.transports.transport import wait_for
from tests.judge import PEERS, redis_binary, required_binary, running_redis
from tests.server.harness import running

Said = pytest.CaptureFixture[str]

needs_redis = pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
LOG = "appendonlydir/appendonly.aof.1.incr.aof"


def written(folder: Path, name: str, *lines: str, seq: int = 1) -> None:
    """Write the log of a closed store, in which all commands share one frame."""
    (folder / "appendonlydir").mkdir(parents=True)
    head = frame(b"", offset=0, synced=0, seq=seq)
    body = b"".join(line.encode() + b"\r\n" if line[0] == "#" else pack_command(line.encode().split())
                    for line in lines)  # fmt: skip
    data = head + frame(body, offset=len(head), synced=len(head), seq=seq)
    data += frame(b"", offset=len(data), synced=len(data), seq=seq)
    (folder / "appendonlydir" / name).write_bytes(data)
    (folder / "appendonlydir/appendonly.aof.manifest").write_text(f"file {name} seq {seq} type i\n")


def get(path: Path, *words: str) -> Any:
    with rillet.open(path) as store:
        return store.execute(*words)


@contextmanager
def writers(url: str, threads: int = 2) -> Iterator[list[int]]:
    """Write transactions in threads; yield how many of each thread were acknowledged."""
    acknowledged, stop, all_write = [0] * threads, threading.Event(), threading.Barrier(threads + 1)

    def write(number: int) -> None:
        with rillet.connect(url) as store:
            while not stop.is_set():
                n = acknowledged[number] + 1
                store.execute_many([["MULTI"], ["SET", f"a{number}", n], ["RPUSH", f"l{number}", n],
                                    ["SET", f"b{number}", n], ["EXEC"]])  # fmt: skip
                acknowledged[number] = n
                if n == 1:
                    all_write.wait()

    running = [threading.Thread(target=write, args=(number,)) for number in range(threads)]
    for one in running:
        one.start()
    try:
        all_write.wait(60)
        yield acknowledged
    finally:
        stop.set()
        for one in running:
            one.join()


def consistent(ask: Any, at_least: list[int]) -> None:
    """Check that a copy has whole transactions, without gaps, and those that were acknowledged before it began."""
    for number, least in enumerate(at_least):
        n = int(ask("GET", f"a{number}"))
        assert n >= least
        assert int(ask("GET", f"b{number}")) == n
        assert [int(one) for one in ask("LRANGE", f"l{number}", 0, -1)] == list(range(1, n + 1))


@needs_redis
def test_a_store_that_is_written(tmp_path: Path) -> None:
    """Several copies while two threads write and the log is rewritten; rillet and redis-server open each of them."""
    path = tmp_path / "live"
    with rillet.open(path, appendfsync="no") as store:
        assert store.url is not None
        with writers(store.url) as acknowledged:
            copies = []
            for number in range(4):
                before = list(acknowledged)
                copies.append((tmp_path / f"copy {number}", before))
                assert main(["backup", str(path), str(copies[-1][0])]) == 0
                if number == 1:
                    store.execute("BGREWRITEAOF")
                elif number == 0:  # the owner took no part
                    assert store.info()["rdb_saves"] == store.info()["aof_rewrites"] == "0"
                    assert not list(path.glob("*/*.2.incr.aof"))
    for copy, before in copies:
        assert sorted(one.name for one in copy.iterdir()) == ["appendonlydir", "rillet.json"]
        with rillet.open(copy) as opened:
            consistent(opened.execute, before)
    copy, before = copies[0]
    with running_redis("--appendonly", "yes", folder=copy) as judge, judge.client() as client:
        consistent(client.execute_command, before)
        client.connection_pool.disconnect()


@needs_redis
@pytest.mark.parametrize("given", [("--aof-checksums", "yes"), ("--aof-use-rdb-preamble", "no")])
def test_a_server_that_is_written(tmp_path: Path, given: tuple[str, ...]) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    copies = []
    with (running(folder, "--appendonly", "yes", "--save", "", *given) as server, server.client() as client,
          writers(f"redis://127.0.0.1:{server.port}") as acknowledged):  # fmt: skip
        client.call("BGREWRITEAOF")
        for number in range(3):
            copies.append((tmp_path / str(number), list(acknowledged)))
            assert main(["backup", "--quick", str(folder), str(copies[-1][0])]) == 0
        client.rewritten()
    for copy, before in copies:
        assert check(copy).sound
        with rillet.open(copy, readonly=True) as store:
            consistent(store.execute, before)
    copy, before = copies[0]
    with running_redis("--appendonly", "yes", folder=copy) as judge, judge.client() as asked:
        consistent(asked.execute_command, before)
        asked.connection_pool.disconnect()


@pytest.mark.parametrize("compat", PEERS)
def test_redis_that_is_written(tmp_path: Path, compat: str) -> None:
    """Its directory, and its url: from a file and directly from the child (repl-diskless-sync)."""
    binary = required_binary(compat)
    with running_redis("--appendonly", "yes", "--repl-diskless-sync-delay", "0", binary=binary) as judge:
        url = f"redis://:secret@127.0.0.1:{judge.port}"
        with judge.client() as client:
            client.execute_command("CONFIG", "SET", "requirepass", "secret")
            client.execute_command("SELECT", "3")
            client.execute_command("XADD", "x", "1-1", "f", "v" * 100)
            with writers(url) as acknowledged:
                copies = []
                for name, source, diskless in (("directory", str(judge.folder), "yes"), ("stream", url, "yes"),
                                               ("file", url, "no"), ("one.rdb", url, "yes")):  # fmt: skip
                    client.execute_command("CONFIG", "SET", "repl-diskless-sync", diskless)
                    copies.append((tmp_path / name, list(acknowledged)))
                    assert main(["backup", source, str(copies[-1][0])]) == 0
            client.connection_pool.disconnect()
    for copy, before in copies:
        with rillet.open(copy, readonly=copy.suffix == ".rdb") as store:
            consistent(store.execute, before)
    for name in ("directory", "file"):
        with running_redis("--appendonly", "yes", binary=binary, folder=tmp_path / name) as judge:
            client = judge.client(db=3)
            assert client.execute_command("XLEN", "x") == 1
            client.close()


def test_the_url_of_a_rillet_server(tmp_path: Path, capsys: Said) -> None:
    """Without a log: the server sends the data of the moment."""
    copies = []
    given = ("--save", "", "--repl-diskless-sync-delay", "0")
    with running(tmp_path, *given) as server, server.client() as client:
        url = f"redis://127.0.0.1:{server.port}"
        with writers(url) as acknowledged:
            for name, diskless in (("copy", "yes"), ("file", "no"), ("copy.rdb", "yes")):
                assert client.call(f"CONFIG SET repl-diskless-sync {diskless}") == b"+OK\r\n"
                copies.append((tmp_path / name, list(acknowledged)))
                assert main(["backup", url, str(copies[-1][0])]) == 0
                said = capsys.readouterr().out
                assert f"127.0.0.1:{server.port} (SYNC), in" in said
                assert "verified: loaded, every structure checked: 2 lists, 4 strings" in said
    for copy, before in copies:
        with rillet.open(copy, readonly=copy.suffix == ".rdb") as store:
            consistent(store.execute, before)


def test_restoring_to_a_moment_between_two_writes(tmp_path: Path, capsys: Said) -> None:
    """A mistake at 12:00:07 is undone by restoring to 12:00:06, also if both are in one frame."""
    noon = int(datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp())
    lines = [f"#TS:{noon}", "SELECT 0", "SET k 1", f"#TS:{noon + 5}", "MULTI", "SET k 2", "XADD x 1-1 f v", "EXEC",
             f"#TS:{noon + 7}", "FLUSHALL", "SET k lost"]  # fmt: skip
    written(tmp_path / "live", "appendonly.aof.3.incr.aof", *lines, seq=3)
    assert main(["backup", str(tmp_path / "live"), str(tmp_path / "backup")]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{tmp_path}/backup: verified: loaded, every structure checked: 1 string",
        f"{tmp_path}/backup: can be restored to any second from 2026-11-26 12:00:00 UTC on; the last one is "
        "2026-11-26 12:00:07 UTC",
    ]
    expected = {"2026-11-26T12:00:00": (b"1", 0), "2026-11-26T13:00:04+01:00": (b"1", 0), str(noon + 5): (b"2", 1),
                "2026-11-26T12:00:06": (b"2", 1), "2026-11-26T12:00:07": (b"lost", 0)}  # fmt: skip
    for number, (when, (value, entries)) in enumerate(expected.items()):
        target = tmp_path / str(number)
        assert main(["restore", str(tmp_path / "backup"), str(target), "--to", when]) == 0
        said = capsys.readouterr().out.splitlines()[2:]
        with rillet.open(target) as store:
            assert (store.execute("GET", "k"), store.execute("XLEN", "x")) == (value, entries)
            store.execute("SET", "more", "1")
        assert get(target, "GET", "more") == b"1"
    assert said == [f"{target}: the last change is of 2026-11-26 12:00:07 UTC"]
    assert main(["restore", str(tmp_path / "backup"), str(tmp_path / "early"), "--to", str(noon - 1)]) == 2
    assert "nothing at or before 2026-11-26 11:59:59 UTC" in capsys.readouterr().err
    assert not (tmp_path / "early").exists()
    assert main(["restore", str(tmp_path / "backup"), str(tmp_path / "r.rdb"), "--to", str(noon + 6)]) == 0
    assert f"{tmp_path}/r.rdb: left out: what was logged from 2026-11-26 12:00:07 UTC on" in capsys.readouterr().out
    with rillet.open(tmp_path / "r.rdb", readonly=True) as store:
        assert store.execute("GET", "k") == b"2"


@needs_redis
def test_a_restored_directory_in_redis(tmp_path: Path) -> None:
    """A cut frame, a file less, and a single log file: redis-server opens the result and continues it."""
    written(tmp_path / "live", "appendonly.aof.1.incr.aof", "#TS:100", "SET k 1", "#TS:102", "SET k 2")
    incr = tmp_path / "live/appendonlydir/appendonly.aof.2.incr.aof"
    incr.write_bytes(pack_command([b"SELECT", b"0"]) + b"#TS:105\r\n" + pack_command([b"SET", b"k", b"3"]))
    manifest = incr.with_name("appendonly.aof.manifest")
    manifest.write_text(manifest.read_text() + f"file {incr.name} seq 2 type i\n")
    single = tmp_path / "appendonly.aof"
    single.write_bytes(b"#TS:100\r\n" + pack_command([b"SET", b"k", b"7"]))
    for source, to, value in ((tmp_path / "live", "101", b"1"), (tmp_path / "live", "104", b"2"), (single, "100", b"7"),
                              (tmp_path / "live", "105", b"3")):  # fmt: skip
        target = tmp_path / f"to-{value.decode()}"
        assert main(["restore", str(source), str(target), "--to", to]) == 0
        for expected in (value, b"new"):
            with running_redis("--appendonly", "yes", folder=target) as judge, judge.client() as client:
                assert client.execute_command("GET", "k") == expected
                client.execute_command("SET", "k", "new")
                client.connection_pool.disconnect()
        assert get(target, "GET", "k") == b"new"


@needs_redis
def test_a_log_with_times_that_redis_wrote(tmp_path: Path) -> None:
    with running_redis("--appendonly", "yes", "--aof-timestamp-enabled", "yes", folder=tmp_path) as judge:
        with judge.client() as client:
            client.execute_command("SET", "k", "1")
            now = client.execute_command("TIME")[0].decode()
            client.connection_pool.disconnect()
        assert main(["restore", str(tmp_path), str(tmp_path.with_name("restored")), "--to", now]) == 0
        assert main(["restore", str(tmp_path), str(tmp_path.with_name("early")), "--to", str(int(now) - 5)]) == 2
    assert get(tmp_path.with_name("restored"), "GET", "k") == b"1"


def test_a_base_has_one_moment(tmp_path: Path, capsys: Said) -> None:
    with rillet.open(tmp_path / "live", aof_timestamp_enabled=True) as store:
        store.execute("SET", "k", "1")
        store.execute("BGREWRITEAOF")
        wait_for(lambda: store.info()["aof_rewrite_in_progress"] == "0", 60)
        store.execute("SET", "k", "2")
    assert main(["restore", str(tmp_path / "live"), str(tmp_path / "old"), "--to", "1h"]) == 2
    assert "its base has the data of" in capsys.readouterr().err
    assert main(["restore", str(tmp_path / "live"), str(tmp_path / "new"), "--to", "2200-01-01"]) == 0
    assert get(tmp_path / "new", "GET", "k") == b"2"


@pytest.mark.parametrize(("damage", "quick_finds"), [("frame", True), ("base", True), ("refused", False)])
def test_a_damaged_source_gives_no_backup(tmp_path: Path, capsys: Said, damage: str, quick_finds: bool) -> None:
    live = tmp_path / "live"
    engine = Engine(Settings())
    session: Any = engine.session()
    engine.execute(session, [b"SET", b"other", b"value"])
    written(live, "appendonly.aof.1.incr.aof", "SET k 1", "LPUSH k 2" if damage == "refused" else "GET k")
    base = live / "appendonlydir/appendonly.aof.1.base.rdb"
    write_rdb(base, engine)
    manifest = base.with_name("appendonly.aof.manifest")
    manifest.write_text(f"file {base.name} seq 1 type b\n" + manifest.read_text())
    broken = {"frame": (live / LOG, b"$1\r\n1", b"$1\r\n7"), "base": (base, b"value", b"valuE")}
    if damage in broken:
        path, old, new = broken[damage]
        path.write_bytes(path.read_bytes().replace(old, new))
    for quick in ([], ["--quick"]):
        target = tmp_path / f"copy{len(quick)}"
        found = quick_finds or not quick
        assert main(["backup", *quick, str(live), str(target)]) == int(found)
        assert target.exists() != found
        assert ("was refused" if damage == "refused" else "checksum") in capsys.readouterr().err or not found
    assert {one.name for one in tmp_path.iterdir()} == {"live", *([] if quick_finds else ["copy1"])}


def test_nothing_is_overwritten(tmp_path: Path, capsys: Said) -> None:
    with rillet.open(tmp_path / "live") as store:
        store.execute("SET", "k", "1")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    (tmp_path / "x.rdb").touch()
    (tmp_path / "empty").mkdir()
    several = tmp_path / "several"
    for name in ("one", "two"):
        shutil.copytree(tmp_path / "live/appendonlydir", several / name)
    shutil.copy(tmp_path / "x.rdb", several / "dump.rdb")
    refused = {(str(tmp_path / "live"), "full"): "exists and is not empty", (str(tmp_path / "live"), "x.rdb"): "exists",
               (str(tmp_path / "live"), "live/backup"): "is inside", (str(tmp_path / "none"), "new"): "does not exist",
               (str(tmp_path / "empty"), "new"): "neither a log nor an RDB file",
               (str(several), "new"): "several logs: one, two", (str(tmp_path / "x.rdb"), "new"): "not an RDB file",
               ("redis+cluster://127.0.0.1:1", "new"): "make a backup of each master",
               ("redis://127.0.0.1:1", "new"): "no server answers"}  # fmt: skip
    for (source, target), reason in refused.items():
        assert main(["backup", source, str(tmp_path / target)]) in (1, 2)
        assert reason in capsys.readouterr().err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["empty", "full", "live", "several", "x.rdb"]
    assert main(["backup", str(tmp_path / "live"), str(tmp_path / "empty")]) == 0
    for target in ("deep/er", "deep/er.rdb"):
        assert main(["restore", str(several / "one"), str(tmp_path / target)]) == 2
        assert f"{tmp_path / 'deep'} does not exist; create the folder first" in capsys.readouterr().err
    assert not (tmp_path / "deep").exists()
    assert main(["restore", str(several / "one"), str(tmp_path / "deep")]) == 0
    assert get(tmp_path / "deep", "GET", "k") == b"1"


def test_a_backup_that_is_killed_leaves_no_data(tmp_path: Path) -> None:
    """The target has no log until everything is verified, so nothing opens half of a backup."""
    with rillet.open(tmp_path / "live", appendfsync="no") as store:
        store.stream("s").add_many([{"n": n} for n in range(1000)])
    code = ("import os, signal; from rillet.transfer import backup; from rillet.cli import main\n"
            "backup.check = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
            f"main(['backup', {str(tmp_path / 'live')!r}, {str(tmp_path / 'copy')!r}])")  # fmt: skip
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [one.name.startswith(".partial-") for one in (tmp_path / "copy").iterdir()] == [True]
    with pytest.raises(NotAStore):
        rillet.open(tmp_path / "copy")


def test_the_copy_is_no_more_readable_than_the_source(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "live") as store:
        store.execute("SET", "k", "1")
        os.chmod(tmp_path / "live" / LOG, 0o600)
        assert main(["backup", str(tmp_path / "live"), str(tmp_path / "copy")]) == 0
    assert (tmp_path / "copy" / LOG).stat().st_mode & 0o777 == 0o600


def test_the_socket_of_a_store(tmp_path: Path, capsys: Said) -> None:
    """A store sends no RDB file; its directory is the source."""
    with rillet.open(tmp_path / "live") as store:
        assert store.url is not None
        status = main(["backup", store.url, str(tmp_path / "copy")])
    if status:
        assert "give the path of its directory" in capsys.readouterr().err
    assert (tmp_path / "copy").exists() == (status == 0)


def test_times(capsys: Said) -> None:
    assert second_of("2026-11-26T12:00:03") == second_of("2026-11-26T14:00:03+02:00") == 1795694403
    assert second_of("1795694403") == 1795694403
    assert second_of("1d") == pytest.approx(datetime.now(UTC).timestamp() - 86400, abs=60)
    for text in ("yesterday", "2026-11-26T12:00:03.5", "-1"):
        with pytest.raises(SystemExit):
            main(["restore", "a", "b", f"--to={text}"])
        assert "in whole seconds" in capsys.readouterr().err


def test_a_server_that_ends_during_the_transfer(tmp_path: Path, capsys: Said) -> None:
    """The connection breaks in the middle of the data: no backup."""
    import socket

    for answer in (b"\n\n$1000\r\nREDIS0011", b"$EOF:" + b"x" * 40 + b"\r\nREDIS", b"\n", b"+what\r\n"):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve(answer: bytes = answer, listener: socket.socket = listener) -> None:
                client, _ = listener.accept()
                with client:
                    received = b""
                    while b"SYNC" not in received.replace(b"capa", b""):
                        before, received = received.count(b"REPLCONF"), received + client.recv(4096)
                        client.sendall(b"+OK\r\n" * (received.count(b"REPLCONF") - before))
                    client.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
            port = listener.getsockname()[1]
            assert main(["backup", f"redis://127.0.0.1:{port}", str(tmp_path / "copy")]) == 2
            thread.join()
        assert ("was lost" in capsys.readouterr().err) == (answer != b"+what\r\n")
        assert not (tmp_path / "copy").exists()


def test_a_client_without_the_right(tmp_path: Path, capsys: Said) -> None:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed")
    with running_redis() as judge, redis.Redis(port=judge.port) as client:
        client.execute_command("ACL", "SETUSER", "low", "on", ">low", "+@all", "-sync", "-bgsave")
        url = f"redis://low:low@127.0.0.1:{judge.port}"
        assert main(["backup", url, str(tmp_path / "copy")]) == 2
        assert "NOPERM" in capsys.readouterr().err
        client.execute_command("ACL", "SETUSER", "low", "+bgsave")
        assert main(["backup", url, str(tmp_path / "copy")]) == 0
        assert "(BGSAVE)" in capsys.readouterr().out
