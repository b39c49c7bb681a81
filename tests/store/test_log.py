"""The log of a store: one sync for many threads, rewritten by itself and when asked, whole again after a failure."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.errors import Misconf
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.persistence.aof.manifest import read_manifest
from rillet.persistence.aof.rewrite_format import SpawnedBaseWriter
from rillet.store.transports.in_process import InProcessTransport
from tests.judge import redis_binary, running_redis
from tests.store.owner_processes import lives
from tests.waiting import until

WRITERS = 8


def _log(store: Store) -> AppendOnlyLog:
    link = store.transport
    assert isinstance(link, InProcessTransport)
    log = link.engine.log
    assert isinstance(log, AppendOnlyLog)
    return log


def _files(path: Path) -> list[str]:
    manifest = read_manifest(path / "appendonlydir/appendonly.aof.manifest")
    assert sorted(os.listdir(path / "appendonlydir")) == sorted(
        [*(file.name for file in manifest.files), "appendonly.aof.manifest"])  # fmt: skip
    return [file.name.removeprefix("appendonly.aof.") for file in manifest.files]


def _rewritten(store: Store) -> None:
    until(lambda: store.info()["aof_rewrite_in_progress"] == store.info()["aof_rewrite_scheduled"] == "0")


def test_one_sync_for_all_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one thread syncs, the others get the engine and write; the next sync serves them all."""
    real, syncs = os.fdatasync, 0
    written = threading.Event()

    def sync(number: int) -> None:
        nonlocal syncs
        syncs += 1
        assert written.wait(60)
        real(number)

    with rillet.open(tmp_path / "s", appendfsync="always") as store:
        log = _log(store)
        monkeypatch.setattr(os, "fdatasync", sync)
        with ThreadPoolExecutor(WRITERS) as pool:
            before = log.size
            one = len(b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n") + len(b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n")
            calls = [pool.submit(store.execute, "INCR", "n") for _ in range(WRITERS)]
            until(lambda: log.size >= before + (WRITERS - 1) * 23 + one - 23)
            assert log.synced == before
            assert not any(call.done() for call in calls)
            # Who reads has to wait, too: nobody sees what a power loss would take.
            reader = pool.submit(store.execute, "GET", "n")
            written.set()
            assert sorted(call.result(60) for call in calls) == list(range(1, WRITERS + 1))
            assert reader.result(60) is not None
        assert syncs <= 3
        assert log.synced == log.size
        monkeypatch.undo()
    with rillet.open(tmp_path / "s") as store:
        assert store.execute("GET", "n") == str(WRITERS).encode()


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
@pytest.mark.parametrize("spawned", [True, False])
def test_bgrewriteaof_rewrites_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spawned: bool) -> None:
    monkeypatch.setattr(SpawnedBaseWriter, "possible", lambda: spawned)
    path = tmp_path / "s"
    with rillet.open(path) as store:
        stream = store.stream("s")
        for n in range(500):
            stream.add({"n": n}, maxlen=100)
        stream.group("g").consumer("c").read(count=10)
        with pytest.raises(rillet.CommandError, match="already in progress"):  # of the second one
            store.execute_many([["BGREWRITEAOF"], ["BGREWRITEAOF"]])
        stream.add({"n": "meanwhile"})
        _rewritten(store)
        assert _files(path) == ["1.base.rdb", "2.incr.aof"]
        stream.add({"n": "after"})
        before = stream.range()
        # redis-server reads what a killed process would leave.
        shutil.copytree(path / "appendonlydir", tmp_path / "judged/appendonlydir")
        with running_redis("--dir", str(tmp_path / "judged"), "--appendonly", "yes") as judge:
            client = judge.client()
            until(lambda: b"loading:0" in client.execute_command("INFO", "persistence"))
            assert client.xlen("s") == len(before) == 102
            assert client.execute_command("XPENDING", "s", "g")[0] == 10
    with rillet.open(path) as store:
        assert store.stream("s").range() == before
        assert store.stream("s").group("g").pending_count() == 10


def test_a_log_that_has_grown_is_rewritten(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", auto_aof_rewrite_min_size="10kb") as store:
        until(lambda: bool(store.execute("SET", "k", "x" * 100)) and store.info()["aof_rewrites"] != "0")
        _rewritten(store)
        assert "1.base.rdb" in _files(tmp_path / "s") or "2.base.rdb" in _files(tmp_path / "s")
    with rillet.open(tmp_path / "s") as store:
        assert store.execute("GET", "k") == b"x" * 100


def test_closed_while_it_is_rewritten(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s") as store:
        store.execute("SET", "k", "1")
        store.execute("BGREWRITEAOF")
        store.execute("SET", "k", "2")
    assert _files(tmp_path / "s")[-1] == "2.incr.aof"
    with rillet.open(tmp_path / "s") as store:
        assert store.execute("GET", "k") == b"2"


KILLED = """
import os, sys
import rillet
from rillet.persistence.aof.rewrite_format import SpawnedBaseWriter
store = rillet.open(sys.argv[1])
store.execute("SET", "k", "1")
store.execute("BGREWRITEAOF")
store.execute("SET", "k", "2")
[process] = [writer._process for writer in __import__("gc").get_objects()
             if isinstance(writer, SpawnedBaseWriter) and writer._process]
print(process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_process_that_writes_a_base_ends_with_its_owner(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(rillet.__file__).parent.parent)}
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "s")], stdout=subprocess.PIPE, text=True,
                          env=environment) as owner:  # fmt: skip
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert owner.wait(60) == -signal.SIGKILL
    until(lambda: not lives(pid))
    with rillet.open(tmp_path / "s") as store:
        assert store.execute("GET", "k") == b"2"
        assert _files(tmp_path / "s") == ["1.incr.aof", "2.incr.aof"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_while_it_is_rewritten(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s") as store:
        store.execute("SET", "k", "1")
        store.execute("BGREWRITEAOF")
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(0 if store.execute("GET", "k") == b"1" else 1)  # through the parent's socket
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        _rewritten(store)
        assert store.info()["aof_last_bgrewrite_status"] == "ok"
        assert _files(tmp_path / "s") == ["1.base.rdb", "2.incr.aof"]


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_sync_that_fails_and_the_way_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: Any) -> None:
    def fail(_number: int) -> None:
        raise OSError(5, "Input/output error")

    def failed() -> bool:
        try:
            return store.info()["aof_last_write_status"] == "err"
        except Misconf:  # INFO came between the failed sync and the next look at it
            return False

    with rillet.open(tmp_path / "s", appendfsync=fsync) as store:
        store.execute("SET", "k", "1")
        log = store.transport.engine.log  # type: ignore[attr-defined]
        until(lambda: log.synced == log.position)  # a sync of this write may still be due

        def fails() -> None:
            monkeypatch.setattr(os, "fdatasync", fail)
            if fsync == "always":
                with pytest.raises(Misconf, match="Input/output error"):
                    store.execute("SET", "k", "2")
            else:
                store.execute("SET", "k", "2")
                until(failed)

        with pytest.warns(RuntimeWarning, match="writes are refused from now on"):
            fails()
        with pytest.raises(Misconf):
            store.execute("SET", "k", "3")
        assert store.execute("GET", "k") == b"2"
        monkeypatch.undo()
        until(lambda: store.info()["aof_last_write_status"] == "ok")
        assert store.execute("SET", "k", "4") == b"OK"
        shutil.copytree(tmp_path / "s/appendonlydir", tmp_path / "copy/appendonlydir")
        with rillet.open(tmp_path / "copy") as copy:
            assert copy.execute("GET", "k") == b"4"


def test_a_folder_of_an_older_redis_is_adopted(tmp_path: Path) -> None:
    (tmp_path / "appendonly.aof").write_bytes(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n")
    (tmp_path / "dump.rdb").write_bytes(b"old")
    with rillet.open(tmp_path) as store:
        assert store.execute("INCR", "a") == 2
    assert _files(tmp_path) == ["appendonly.aof", "1.incr.aof"]
    assert not (tmp_path / "appendonly.aof").exists()
    with rillet.open(tmp_path) as store:
        assert store.execute("GET", "a") == b"2"


def test_through_a_socket_while_others_sync(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", appendfsync="always") as owner, rillet.open(tmp_path / "s") as guest:
        assert not guest.owner

        def work(store: Store) -> None:
            for _ in range(50):
                store.execute("INCR", "n")

        with ThreadPoolExecutor(4) as pool:
            for call in [pool.submit(work, store) for store in (owner, guest, owner, guest)]:
                call.result(60)
        assert owner.execute("GET", "n") == guest.execute("GET", "n") == b"200"
        log = _log(owner)
        assert log.synced == log.size
