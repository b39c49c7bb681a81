"""A directory has one writer: a redis-server on it is found, and a store whose directory moved refuses writes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rillet
from rillet import Store
from rillet.errors import Misconf, StoreBusy
from rillet.persistence import foreign_server
from tests.forked import ROOT
from tests.judge import redis_binary, running_redis
from tests.store.process import Other
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore:.*writes are refused from now on:RuntimeWarning")
NEEDS_REDIS = pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system has no /proc")
POLICIES = pytest.mark.parametrize("fsync", ["always", "everysec", "no"])


def _refused(store: Store, match: str) -> None:
    """Every kind of write is rejected, and reads work."""
    with pytest.raises(Misconf, match=match):
        store.stream("s").add({"refused": 1})
    with pytest.raises(Misconf, match=match):
        store.execute_many([["SET", "refused", "1"], ["SET", "refused", "2"]])
    with pytest.raises(Misconf, match=match):
        store.execute("XADD", "s", "*", "refused", "1")
    assert len(store.stream("s")) >= 1


# -- a redis-server on the directory -------------------------------------------------------------------


@NEEDS_REDIS
@NEEDS_PROC
def test_the_directory_of_a_running_redis_server_is_rejected(tmp_path: Path) -> None:
    with running_redis("--appendonly", "yes", "--appendfsync", "no", folder=tmp_path) as redis:
        client = redis.client()
        client.execute_command("XADD", "s", "1-1", "a", "b")
        before = sorted(os.listdir(tmp_path))
        with pytest.raises(StoreBusy, match=rf"is in use by process {redis.process.pid} \(redis-server\): stop it"):
            rillet.open(tmp_path)
        assert sorted(os.listdir(tmp_path)) == before
        client.execute_command("XADD", "s", "2-1", "a", "b")
        told = subprocess.run([sys.executable, "-m", "rillet", "serve", "--port", "0", "--dir", str(tmp_path),
                               "--appendonly", "yes"], capture_output=True, text=True, cwd=ROOT,
                              env={**os.environ, "PYTHONPATH": str(Path(rillet.__file__).parent.parent)})  # fmt: skip
        assert told.returncode == 1
        assert f"is in use by process {redis.process.pid} (redis-server)" in told.stderr
    with rillet.open(tmp_path) as store:
        assert [str(entry.id) for entry in store.stream("s")] == ["1-1", "2-1"]


@NEEDS_REDIS
@NEEDS_PROC
def test_a_redis_server_without_a_log_is_rejected(tmp_path: Path) -> None:
    with running_redis(folder=tmp_path) as redis:
        redis.client().execute_command("SET", "k", "v")
        redis.client().execute_command("SAVE")
        with pytest.raises(StoreBusy, match=f"is in use by process {redis.process.pid} "):
            rillet.open(tmp_path)
    with rillet.open(tmp_path) as store:
        assert store.execute("GET", "k") == b"v"


@NEEDS_REDIS
@NEEDS_PROC
def test_a_store_does_not_replace_the_rdb_file_of_a_redis_server_in_its_folder(tmp_path: Path) -> None:
    rillet.open(tmp_path).close()
    with running_redis(folder=tmp_path) as redis, rillet.open(tmp_path) as store:
        redis.client().execute_command("SET", "k", "v")
        redis.client().execute_command("SAVE")
        saved = (tmp_path / "dump.rdb").read_bytes()
        for command in ("SAVE", "BGSAVE"):
            with pytest.raises(rillet.CommandError, match=f"is in use by process {redis.process.pid} "):
                store.execute(command)
        assert (tmp_path / "dump.rdb").read_bytes() == saved


@NEEDS_PROC
def test_the_log_of_a_store_needs_no_search_while_no_process_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rillet.open(tmp_path).close()
    log = next(tmp_path.glob("appendonlydir/*.incr.aof"))
    searched: list[Path] = []
    monkeypatch.setattr(foreign_server, "reject_foreign_server", lambda folder, _: searched.append(folder))
    with log.open("rb"):
        foreign_server.reject_writer(tmp_path, log.parent)
    assert searched == ([] if sys.platform == "linux" else [tmp_path])
    with log.open("ab"):
        foreign_server.reject_writer(tmp_path, log.parent)
    assert searched[-1:] == [tmp_path]


@NEEDS_PROC
def test_other_processes_in_the_directory_do_no_harm(tmp_path: Path) -> None:
    """A shell works there, a backup reads the log."""
    with rillet.open(tmp_path) as store:
        store.execute("SET", "k", "v")
    log = next(tmp_path.glob("appendonlydir/*.incr.aof"))
    with log.open("rb") as file, subprocess.Popen(["sleep", "60"], cwd=tmp_path, stdin=file) as sleeping:
        try:
            with rillet.open(tmp_path) as store:
                assert store.owner
        finally:
            sleeping.kill()
    with log.open("ab") as end, subprocess.Popen(["sleep", "60"], cwd=tmp_path, stdin=end) as writing:
        try:
            with pytest.raises(StoreBusy, match=rf"in use by process {writing.pid} \(sleep\)"):
                rillet.open(tmp_path)
        finally:
            writing.kill()


@NEEDS_REDIS
@pytest.mark.parametrize("checksums", [True, False])
def test_a_hidden_redis_server_is_detected_when_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checksums: bool
) -> None:
    """As where /proc is missing, or the server belongs to another user."""
    monkeypatch.setattr(foreign_server, "PROC", tmp_path / "nowhere")
    folder = tmp_path / "store"
    folder.mkdir()
    with running_redis("--appendonly", "yes", "--appendfsync", "no", folder=folder) as redis:
        client = redis.client()
        client.execute_command("XADD", "s", "1-1", "a", "b")
        with rillet.open(folder, aof_checksums=checksums) as store:
            assert store.owner
            client.execute_command("XADD", "s", "2-1", "a", "b")
            until(lambda: not _writable(store))
            _refused(store, "another process writes to .*appendonly.aof.*; end one of the two processes")
            with pytest.raises(rillet.CommandError):
                store.execute("BGREWRITEAOF")
            with pytest.raises(rillet.CommandError, match="another process writes there"):
                store.execute("SAVE")
        client.execute_command("XADD", "s", "9999999999999-1", "a", "b")
    with rillet.open(folder) as store:
        ids = [str(entry.id) for entry in store.stream("s")]
        assert {"1-1", "2-1", "9999999999999-1"} <= set(ids)


def _writable(store: Store) -> bool:
    try:
        store.execute("SET", "probe", "1")
    except Misconf:
        return False
    return True


@POLICIES
def test_foreign_growth_is_detected_before_the_next_reply(tmp_path: Path, fsync: str) -> None:
    with rillet.open(tmp_path, appendfsync=fsync) as store:  # type: ignore[arg-type]
        store.stream("s").add({"a": 1})
        with next(tmp_path.glob("appendonlydir/*.incr.aof")).open("ab") as log:
            log.write(b"*1\r\n$4\r\nPING\r\n")
        _refused(store, "another process writes to .*incr.aof, which has [0-9]+ bytes instead of [0-9]+; end one")


@POLICIES
def test_writes_between_two_checks_of_the_log_are_not_lost(tmp_path: Path, fsync: str) -> None:
    """A busy store checks its log once in CHECK_SECONDS; what it acknowledges until it notices is in the log."""
    acknowledged: list[int] = []

    def add_until_refused(store: Store, log: Path) -> None:
        for number in range(2, 1_000_000):
            store.stream("s").add({"n": number}, id=f"{number}-0")
            acknowledged.append(number)
            if number == 500:
                with log.open("ab") as other:
                    other.write(b"*3\r\n$3\r\nSET\r\n$5\r\nother\r\n$1\r\n1\r\n")

    with rillet.open(tmp_path / "store", appendfsync=fsync) as store:  # type: ignore[arg-type]
        store.stream("s").add({"n": 0}, id="1-0")
        (log,) = (tmp_path / "store" / "appendonlydir").glob("*.incr.aof")
        with pytest.raises(Misconf, match="another process"):
            add_until_refused(store, log)
        assert len(acknowledged) >= 499
    lines = log.read_bytes()
    assert all(b"$%d\r\n%d-0\r\n" % (len(str(n)) + 2, n) in lines for n in acknowledged)


@POLICIES
def test_a_manifest_of_another_process_is_not_replaced(tmp_path: Path, fsync: str) -> None:
    with rillet.open(tmp_path, appendfsync=fsync) as store:  # type: ignore[arg-type]
        store.stream("s").add({"a": 1})
        manifest = tmp_path / "appendonlydir" / "appendonly.aof.manifest"
        content = manifest.read_bytes().replace(b"appendonly.aof.1", b"appendonly.aof.7")
        manifest.with_name("new").write_bytes(content)
        manifest.with_name("new").rename(manifest)
        until(lambda: not _writable(store))
        _refused(store, "another process replaced .*manifest; end one of the two")
    assert manifest.read_bytes() == content


# -- a directory that is renamed -----------------------------------------------------------------------


@POLICIES
def test_a_renamed_directory_refuses_writes(tmp_path: Path, fsync: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with rillet.open(old, appendfsync=fsync) as store:  # type: ignore[arg-type]
        first = store.stream("s").add({"a": 1})
        old.rename(new)
        with Other(old) as other:
            _refused(store, "was renamed or replaced while the store was open")
            assert other.ask("store.owner")
            assert other.ask("store.stream('s').add({'b': 1}).ms > 0")
            with pytest.raises(rillet.CommandError):
                store.execute("SAVE")
            with pytest.raises(rillet.CommandError):
                store.execute("BGREWRITEAOF")
            store.close()
            assert other.ask("len(store.stream('s'))") == 1
            with rillet.open(old) as attached:  # the socket and owner.json of the other process are still there
                assert not attached.owner
                assert len(attached.stream("s")) == 1
        assert not list(old.glob("*.rdb"))
    with rillet.open(new) as store:
        assert next(iter(store.stream("s"))).id == first


def test_attached_clients_of_a_renamed_directory_are_refused(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with Other(old) as owner, rillet.open(old) as attached:
        attached.stream("s").add({"a": 1})
        old.rename(new)
        with rillet.open(old) as second:
            assert second.owner
            with pytest.raises(Misconf, match="was renamed or replaced"):
                attached.stream("s").add({"refused": 1})
            with rillet.open(new) as third:  # the socket of the first owner, although owner.json has the old path
                assert not third.owner
                assert len(third.stream("s")) == 2
                with pytest.raises(Misconf, match="was renamed or replaced"):
                    third.stream("s").add({"refused": 1})
            assert len(second.stream("s")) == 0
            attached.stream("s").add({"a": 1})  # the connection is new, and leads to the new owner of the path
            assert len(second.stream("s")) == 1
        assert owner.ask("store.owner")


def test_writes_are_accepted_when_the_directory_is_back(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with rillet.open(old) as store:
        store.stream("s").add({"a": 1})
        old.rename(new)
        until(lambda: not _writable(store))
        _refused(store, "was renamed or replaced")
        new.rename(old)
        until(lambda: _writable(store))
        store.stream("s").add({"a": 2})
        count = len(store.stream("s"))
    with rillet.open(old) as store:
        assert len(store.stream("s")) == count


def test_a_removed_directory_that_another_process_opened(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with rillet.open(path) as store:
        store.stream("s").add({"a": 1})
        with store.transport.lock:  # type: ignore[attr-defined]  # the owner's thread must not notice it before
            shutil.rmtree(path)
            other = Other(path)
        with other:
            assert other.ask("store.owner")
            assert other.ask("store.stream('s').add({'b': 1}).ms > 0")
            _refused(store, "No such file or directory: .* was removed")
            files = sorted(path.glob("appendonlydir/*"))
            rewriting = store.transport.engine.services._owner.files.aof.rewriting  # type: ignore[attr-defined]
            ticks = threading.Event()
            claim = rewriting._claim

            def monitored() -> None:
                ticks.set()
                claim()

            rewriting._claim = monitored
            assert ticks.wait(60)  # the owner tries to write its data anew
            ticks.clear()
            assert ticks.wait(60)
            assert sorted(path.glob("appendonlydir/*")) == files
            _refused(store, "was removed")
            store.close()
            assert other.ask("store.stream('s').add({'b': 1}).ms > 0")
    with rillet.open(path) as store:
        assert len(store.stream("s")) == 2


def test_a_removed_directory_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with rillet.open(path) as store:
        store.stream("s").add({"a": 1})
        with store.transport.lock:  # type: ignore[attr-defined]  # the owner's thread must not notice it before
            shutil.rmtree(path)
            with pytest.raises(Misconf, match="No such file or directory: .* was removed"):
                store.stream("s").add({"a": 2})
        until(lambda: _writable(store))
        count = len(store.stream("s"))
    with rillet.open(path) as store:
        assert len(store.stream("s")) == count
