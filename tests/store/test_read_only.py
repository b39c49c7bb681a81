"""rillet.open(path, readonly=True) reads every kind of directory and changes nothing in it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.errors import LogCorrupt, NewerFormat, NotAStore, ReadOnly, StoreError
from rillet.runtime.registry import TABLE
from rillet.store.backends.read_only import OpenFiles
from rillet.types.compat import NEWEST
from tests.forked import ROOT
from tests.judge import redis_binary, running_redis
from tests.server.harness import running
from tests.server.test_lifecycle import LOG
from tests.store.process import Other

TEXT = "^READONLY You can't write against a read only replica.$"
NEEDS_REDIS = pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")


def _tree(folder: Path) -> dict[str, tuple[int, int, int, int]]:
    return {
        str(path.relative_to(folder)): (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        for path in [folder, *sorted(folder.rglob("*"))]
        for found in [path.lstat()]
    }


@contextmanager
def _unchanged(folder: Path) -> Iterator[None]:
    before = _tree(folder)
    yield
    assert _tree(folder) == before


def _fill(store: Store) -> None:
    store.stream("s").add_many([{"n": number} for number in range(5)])
    store.execute("XGROUP", "CREATE", "s", "g", "0")
    store.execute("XREADGROUP", "GROUP", "g", "c", "COUNT", "2", "STREAMS", "s", ">")
    store.execute("SET", "k", "v")
    store.execute("SET", "expiring", "v", "PX", "3600000")


def _check(store: Store) -> None:
    assert len(store.stream("s")) == 5
    assert store.execute("XPENDING", "s", "g")[0] == 2
    assert store.execute("GET", "k") == b"v"
    for line in ("SET k w", "XADD s * n 1", "XREADGROUP GROUP g c STREAMS s >", "XACK s g 0-1", "DEL k", "FLUSHALL",
                 "BLPOP l 0", "EXPIRE k 1", "XGROUP CREATE s h 0", "GETEX k PERSIST"):  # fmt: skip
        with pytest.raises(ReadOnly, match=TEXT):
            store.execute(*line.split())
    assert store.execute("PING") == b"PONG"
    assert len(store.stream("s")) == 5


@pytest.mark.parametrize("state", ["closed", "owned", "killed"])
def test_the_directory_of_a_store(tmp_path: Path, state: str) -> None:
    path = tmp_path / "store"
    with Other(path) as other:
        with rillet.open(path) as attached:
            _fill(attached)
        if state == "closed":
            other.tell("store.close()")
            other.answer()
        elif state == "killed":
            other.kill()
        with _unchanged(path), rillet.open(path, readonly=True) as store:
            _check(store)
            assert store.path == str(path)
            assert repr(store) == f"Store({str(path)!r}, read-only)"
            assert store.recovery is not None
            assert store.recovery.commands >= 6
            assert store.info()["aof_last_write_status"] == "ok"


@NEEDS_REDIS
@pytest.mark.parametrize("kind", ["log", "rdb"])
@pytest.mark.parametrize("live", [True, False])
def test_the_directory_of_a_redis_server(tmp_path: Path, kind: str, live: bool) -> None:
    appendonly = "yes" if kind == "log" else "no"
    with running_redis("--appendonly", appendonly, "--appendfsync", "no", folder=tmp_path) as redis:
        with rillet.connect(f"redis://127.0.0.1:{redis.port}") as store:
            _fill(store)
            if kind == "rdb":
                store.execute("SAVE")
        if live:
            with _unchanged(tmp_path), rillet.open(tmp_path, readonly=True) as store:
                _check(store)
    with _unchanged(tmp_path), rillet.open(tmp_path, readonly=True) as store:
        _check(store)


def test_the_directory_of_rillet_serve(tmp_path: Path) -> None:
    with running(tmp_path, *LOG):
        with rillet.open(tmp_path) as store:
            _fill(store)
        with _unchanged(tmp_path), rillet.open(tmp_path, readonly=True) as store:
            _check(store)


def test_the_single_file_of_an_older_server(tmp_path: Path) -> None:
    (tmp_path / "appendonly.aof").write_bytes(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n")
    with _unchanged(tmp_path), rillet.open(tmp_path, readonly=True) as store:
        assert store.execute("GET", "k") == b"v"


@pytest.mark.parametrize("checksums", [True, False])
def test_a_torn_end_is_ignored_and_stays(tmp_path: Path, checksums: bool) -> None:
    with rillet.open(tmp_path, aof_checksums=checksums) as store:
        store.execute("SET", "k", "v")
    log = next(tmp_path.glob("appendonlydir/*.incr.aof"))
    with log.open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1")
    with _unchanged(tmp_path), rillet.open(tmp_path, readonly=True) as store:
        assert store.execute("GET", "k") == b"v"
        assert store.recovery is not None
        assert store.recovery.dropped == 22
        assert "22 bytes of an unfinished" in store.recovery.note
        assert "were ignored at" in store.recovery.note


def test_an_interrupted_commit_is_not_completed(tmp_path: Path) -> None:
    with rillet.open(tmp_path) as store:
        store.execute("SET", "k", "v")
    manifest = tmp_path / "appendonlydir" / "appendonly.aof.manifest"
    manifest.rename(manifest.with_name(f"temp-{manifest.name}"))
    with _unchanged(tmp_path), rillet.open(tmp_path, readonly=True) as store:
        assert store.execute("GET", "k") == b"v"


def test_a_snapshot_is_consistent_while_the_owner_rewrites(tmp_path: Path) -> None:
    """Entries are added in order, so each snapshot holds a prefix of them that is at least as long as the last one."""
    with rillet.open(tmp_path, auto_aof_rewrite_percentage=0) as owner:
        stream, stopping = owner.stream("s"), threading.Event()

        def write() -> None:
            number = 0
            while not stopping.is_set():
                number += 1
                stream.add({"n": number}, id=f"{number}-0")
                if number % 40 == 0:
                    try:
                        owner.execute("BGREWRITEAOF")
                    except rillet.CommandError:
                        pass  # the last one still runs

        writer = threading.Thread(target=write)
        writer.start()
        try:
            before = 0
            for _ in range(8):
                acknowledged = len(stream)
                with rillet.open(tmp_path, readonly=True) as store:
                    ids = [entry.id.ms for entry in store.stream("s")]
                assert ids == list(range(1, len(ids) + 1))
                assert len(ids) >= max(before, acknowledged)
                before = len(ids)
        finally:
            stopping.set()
            writer.join()


def test_removed_files_stay_readable(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with OpenFiles([path]) as files:
        with path.open("ab") as file:
            file.write(b"later")
        path.unlink()
        assert files.size(path) == 10
        with files.read_from(path) as reader:
            assert reader.read(4) == b"0123"
            reader.seek(8)
            assert reader.read() == b"89"
            assert reader.read() == b""
        with files.read_from(path) as reader:
            assert reader.read() == b"0123456789"


def test_every_write_command_is_refused(tmp_path: Path) -> None:
    with rillet.open(tmp_path) as store:
        store.execute("SET", "k", "v")
    with _unchanged(tmp_path), rillet.open(tmp_path, readonly=True) as store:
        for entry in TABLE:
            for one in [entry, *(entry.subcommands or {}).values()]:
                if one.write and one.known_to(NEWEST):
                    argv = one.fullname.replace("|", " ").split()
                    argv += ["1"] * (abs(one.arity) - len(argv))
                    with pytest.raises(ReadOnly, match=TEXT):
                        store.execute(*argv)
        assert store.execute("DBSIZE") == 1
        assert store.execute("GET", "k") == b"v"
        for words in (("SAVE",), ("BGSAVE",), ("BGREWRITEAOF",), ("SHUTDOWN",)):
            with pytest.raises(rillet.CommandError):
                store.execute(*words)


def _by_redis_py(store: Store) -> Any:
    return store.redis().set("k", "w")


def _by_asyncio(store: Store) -> Any:
    async def run() -> Any:
        return await store.aio().stream("s").add({"a": 1})

    return asyncio.run(run())


def _by_transaction(store: Store) -> Any:
    return store.execute_many([["MULTI"], ["GET", "k"], ["SET", "k", "w"], ["EXEC"]])


def _by_socket(store: Store) -> Any:
    with store.serve() as served, rillet.connect(served.url) as client:
        return client.execute("SET", "k", "w")


INTERFACES: list[Callable[[Store], Any]] = [
    _by_redis_py, _by_asyncio, _by_transaction, _by_socket,
    lambda store: store.stream("s").add_many([{"a": 1}] * 3),
    lambda store: store.stream("s").group("h", start="0").consumer("c").read(),
    lambda store: store.stream("s").trim(maxlen=0),
    lambda store: store.delete("k"),
]  # fmt: skip


@pytest.mark.parametrize("write", INTERFACES)
def test_each_interface_refuses_writes(tmp_path: Path, write: Callable[[Store], Any]) -> None:
    with rillet.open(tmp_path) as store:
        _fill(store)
    with _unchanged(tmp_path), rillet.open(tmp_path, readonly=True) as store:
        with pytest.raises(Exception, match="You can't write against a read only"):
            write(store)
        assert store.execute("GET", "k") == b"v"
        assert len(store.stream("s")) == 5


def test_a_snapshot_of_it_can_be_saved_elsewhere(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store") as store:
        _fill(store)
    with _unchanged(tmp_path / "store"), rillet.open(tmp_path / "store", readonly=True) as store:
        with pytest.raises(ValueError, match="open read-only: pass the path"):
            store.save()
        (tmp_path / "copy").mkdir()
        saved = store.save(tmp_path / "copy" / "dump.rdb")
    assert saved.exists()
    with rillet.open(tmp_path / "copy", readonly=True) as store:
        _check(store)


def test_directories_that_hold_no_data(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="readonly=True needs the path"):
        rillet.open(readonly=True)
    with pytest.raises(NotAStore, match="missing does not exist"):
        rillet.open(tmp_path / "missing", readonly=True)
    assert not (tmp_path / "missing").exists()
    with pytest.raises(NotAStore, match="has neither rillet.json nor a log nor dump.rdb"):
        rillet.open(tmp_path, readonly=True)
    (tmp_path / "file").touch()
    with pytest.raises(NotAStore, match="is a file"):
        rillet.open(tmp_path / "file", readonly=True)
    (tmp_path / "rillet.json").write_text('{"format": 1, "written_by": "0.1"}')
    with rillet.open(tmp_path, readonly=True) as store:
        assert store.execute("DBSIZE") == 0
    (tmp_path / "rillet.json").write_text('{"format": 2, "written_by": "9.1"}')
    with pytest.raises(NewerFormat):
        rillet.open(tmp_path, readonly=True)


def test_missing_files_are_an_error(tmp_path: Path) -> None:
    with rillet.open(tmp_path) as store:
        store.execute("SET", "k", "v")
    log = next(tmp_path.glob("appendonlydir/*.incr.aof"))
    log.rename(tmp_path / "away")
    with pytest.raises(LogCorrupt, match=r"the file appendonly.aof.1.incr.aof is missing"):
        rillet.open(tmp_path, readonly=True)
    (tmp_path / "away").rename(log)
    next(tmp_path.glob("appendonlydir/*.manifest")).unlink()
    with pytest.raises(LogCorrupt, match=r"the manifest is missing, but appendonly.aof.1.incr.aof exists"):
        rillet.open(tmp_path, readonly=True)


def test_without_permission_to_write() -> None:
    """As another user where this one is root, to whom nothing is forbidden."""
    folder = Path(tempfile.mkdtemp(prefix="rillet-test-", dir="/tmp"))
    try:
        with rillet.open(folder) as store:
            store.execute("SET", "k", "v")
        for path in [*folder.rglob("*"), folder]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        code = """import os, sys, rillet
def read():
    with rillet.open(sys.argv[1], readonly=True) as store: return store.execute("GET", "k")
read()  # the other user may not read the modules of this one
if os.geteuid() == 0: os.setuid(65534)
print(read())"""
        source = str(Path(rillet.__file__).parent.parent)
        with _unchanged(folder):
            told = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, cwd=ROOT,
                                  env={**os.environ, "PYTHONPATH": source})  # fmt: skip
        assert told.stdout == "b'v'\n", told.stderr
    finally:
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs to mount a file system")
def test_on_a_read_only_file_system(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store") as store:
        _fill(store)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    made = subprocess.run(["mount", "--bind", tmp_path / "store", mounted], capture_output=True)
    if made.returncode:
        pytest.skip("this user cannot mount")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", mounted], check=True)
        with pytest.raises(StoreError):
            rillet.open(mounted)
        with rillet.open(mounted, readonly=True) as store:
            _check(store)
    finally:
        subprocess.run(["umount", mounted], check=True)


def test_an_rdb_file_is_read(tmp_path: Path) -> None:
    with rillet.open() as store:
        store.stream("s").add({"n": 1})
        backup = store.save(tmp_path / "backup.rdb")
    before = backup.read_bytes()
    with rillet.open(backup, readonly=True) as store:
        assert store.stream("s").length() == 1
        with pytest.raises(ReadOnly):
            store.stream("s").add({"n": 2})
        with pytest.raises(rillet.CommandError, match="there is no stream 'nope'"):
            store.stats("nope")
    assert backup.read_bytes() == before
    assert list(tmp_path.iterdir()) == [backup]
    other = tmp_path / "other.txt"
    other.write_text("REDIR")
    with pytest.raises(NotAStore, match="neither the directory of a store nor an RDB file"):
        rillet.open(other, readonly=True)
