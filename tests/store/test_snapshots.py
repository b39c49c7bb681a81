"""Store.save and the commands behind it: an RDB file of one moment, without a fork; redis-server loads it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.errors import CommandError, StoreError
from rillet.host.spawned_snapshots import SpawnedSnapshots
from rillet.store.sharing.saving import copy_file
from tests.judge import running_redis
from tests.store.process import Other


def seen_by_redis(path: Path) -> dict[bytes, bytes]:
    """Return the DUMP of every key that redis-server finds in the file."""
    with running_redis() as judge:
        shutil.copy(path, judge.folder / "dump.rdb")
        client = judge.client()
        assert client.execute_command("DEBUG", "RELOAD", "NOSAVE") == b"OK"
        return {key: client.execute_command("DUMP", key) for key in client.execute_command("KEYS", "*")}


def seen(store: rillet.Store) -> dict[bytes, bytes]:
    return {key: store.execute("DUMP", key) for key in store.execute("KEYS", "*")}


def fill(store: rillet.Store) -> dict[bytes, bytes]:
    """Make something of every type that a file of 7.0 carries."""
    stream = store.stream("s")
    for number in range(300):
        stream.add({"n": number})
    store.execute("XGROUP", "CREATE", "s", "g", "0")
    store.execute("SET", "k", "v", "PX", 10**9)
    store.execute("RPUSH", "l", "a", "b")
    store.execute("SADD", "set", "1", "2")
    return seen(store)


def test_a_store_in_memory_is_saved_to_the_given_path(tmp_path: Path) -> None:
    with rillet.open(compat="7.0") as store:
        before = fill(store)
        assert store.save(tmp_path / "file.rdb") == tmp_path / "file.rdb"
        assert seen_by_redis(tmp_path / "file.rdb") == before
        with pytest.raises(ValueError, match="pass the path of the RDB file"):
            store.save()
        for command in ("SAVE", "BGSAVE"):
            with pytest.raises(CommandError, match=r"is in memory and has no RDB file; Store.save\("):
                store.execute(command)
        with pytest.raises(FileNotFoundError):
            store.save(tmp_path / "none" / "file.rdb")
        assert [path.name for path in tmp_path.iterdir()] == ["file.rdb"]


def test_a_store_in_a_directory_is_saved_to_its_dump(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store", compat="7.0") as store:
        before = fill(store)
        made = store.save()
        assert made == tmp_path / "store" / "dump.rdb"
        assert seen_by_redis(made) == before
        store.execute("SET", "later", 1)
        assert store.save(tmp_path / "copy.rdb") == tmp_path / "copy.rdb"
        assert seen_by_redis(tmp_path / "copy.rdb") == seen(store)
        info = store.info()
        assert info["rdb_saves"] == "2"
        assert info["rdb_last_bgsave_status"] == "ok"
        assert info["rdb_changes_since_last_save"] == "0"
        assert store.save() == made
        assert len(list((tmp_path / "store").glob("appendonlydir/*.incr.aof"))) == 3
        assert not list(tmp_path.rglob("temp-*"))
        assert not list(tmp_path.glob(".copy*"))
    with rillet.open(tmp_path / "store", compat="7.0") as store:
        assert seen(store).keys() == before.keys() | {b"later"}
        before = seen(store)
        store.execute("SET", "more", 1)
        assert store.execute("SAVE") == b"OK"
        assert store.execute("LASTSAVE") > 0
        assert seen_by_redis(made) == {**before, b"more": store.execute("DUMP", "more")}


def test_an_attached_store_saves_through_its_owner(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store", compat="7.0") as owner, Other(tmp_path / "store") as other:
        before = fill(owner)
        assert "attached" in other.opened
        assert other.ask("str(store.save())") == str(tmp_path / "store" / "dump.rdb")
        assert other.ask(f"str(store.save({str(tmp_path)!r} + '/there.rdb'))") == str(tmp_path / "there.rdb")
        assert seen_by_redis(tmp_path / "there.rdb") == before


def test_changes_go_on_while_it_is_written(tmp_path: Path) -> None:
    """Every file is a moment between two adds: no entry of it is missing, none too many."""
    with rillet.open(tmp_path / "store") as store:
        stream, stop = store.stream("s"), threading.Event()

        def add() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                stream.add({"n": number}, id=f"{number}-0")

        thread = threading.Thread(target=add)
        thread.start()
        try:
            lengths = []
            for _ in range(2):
                made = store.save()
                with running_redis() as judge:
                    shutil.copy(made, judge.folder / "dump.rdb")
                    client = judge.client()
                    assert client.execute_command("DEBUG", "RELOAD", "NOSAVE") == b"OK"
                    lengths.append(client.execute_command("XLEN", "s"))
                    [[last, _]] = client.execute_command("XREVRANGE", "s", "+", "-", "COUNT", 1)
                    assert last == b"%d-0" % lengths[-1]
        finally:
            stop.set()
            thread.join()
        assert 0 < lengths[0] < lengths[1] < len(stream)


def test_save_points_work_here_too(tmp_path: Path) -> None:
    with rillet.open(tmp_path, save="1 2") as store:
        store.execute("SET", "a", 1)
        store.execute("SET", "b", 1)
        while not (tmp_path / "dump.rdb").exists():
            threading.Event().wait(0.02)
    assert not list(tmp_path.glob("temp-*"))


def test_a_second_save_is_rejected(tmp_path: Path) -> None:
    with rillet.open(tmp_path) as store:
        fill(store)
        owner: Any = store._backend
        snapshots: SpawnedSnapshots = owner._owner.files.snapshots
        link: Any = store.transport
        with link.lock:  # so that nobody sees how it goes on
            assert store.execute("BGSAVE") == b"Background saving started"
            for command in ("BGSAVE", "SAVE"):
                with pytest.raises(CommandError, match="Background save already in progress"):
                    store.execute(command)
            assert store.execute("BGREWRITEAOF") == b"Background append only file rewriting scheduled"
            assert store.info()["rdb_bgsave_in_progress"] == "1"
        store.save()
        info = store.info()
        assert info["rdb_saves"] == "2"
        assert info["rdb_last_bgsave_error"] == ""
        while "1" in (info["aof_rewrite_scheduled"], info["aof_rewrite_in_progress"]):
            threading.Event().wait(0.01)
            info = store.info()
        with link.lock:
            store.execute("BGSAVE")
            assert store.execute("FLUSHALL") == b"OK"
            assert not snapshots.saving
            assert store.info()["rdb_last_bgsave_status"] == "ok"


def test_a_process_that_is_killed(tmp_path: Path) -> None:
    with rillet.open(tmp_path) as store:
        fill(store)
        owner: Any = store._backend
        snapshots: Any = owner._owner.files.snapshots
        store.save()
        before = (tmp_path / "dump.rdb").read_bytes()
        link: Any = store.transport
        with link.lock:
            store.execute("BGSAVE")
            os.kill(snapshots._writer.pid, signal.SIGKILL)
        while store.info()["rdb_bgsave_in_progress"] == "1":
            threading.Event().wait(0.01)
        assert store.info()["rdb_last_bgsave_error"] == "the process ended with status -9"
        assert (tmp_path / "dump.rdb").read_bytes() == before
        assert not list(tmp_path.glob("temp-*"))


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with rillet.open(tmp_path / "store") as store:
        (tmp_path / "store" / "dump.rdb").mkdir()
        with pytest.raises(StoreError, match="the RDB file cannot be written: Is a directory"):
            store.save()
        assert store.execute("SET", "k", "v") == b"OK"
        (tmp_path / "store" / "dump.rdb").rmdir()
        (tmp_path / "copy").mkdir()
        with pytest.raises(IsADirectoryError):
            store.save(tmp_path / "copy")
        assert store.save().exists()


def test_a_store_that_closes_meanwhile(tmp_path: Path) -> None:
    with rillet.open(tmp_path) as store:
        fill(store)
        store.execute("BGSAVE")
    assert not list(tmp_path.glob("temp-*"))
    with rillet.open(tmp_path) as store:
        assert len(store.stream("s")) == 300


def test_where_no_process_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/usr/bin/some-program")
    with rillet.open(tmp_path, compat="7.0") as store:
        before = fill(store)
        assert seen_by_redis(store.save()) == before
        (tmp_path / "dump.rdb").unlink()
        (tmp_path / "dump.rdb").mkdir()
        with pytest.raises(StoreError, match="the RDB file cannot be written: Is a directory"):
            store.save()


def test_a_save_can_be_awaited(tmp_path: Path) -> None:
    async def main() -> Path:
        return await store.aio().save()

    with rillet.open(tmp_path) as store:
        store.execute("SET", "k", "v")
        assert asyncio.run(main()) == tmp_path / "dump.rdb"


def test_a_server_saves_where_it_is() -> None:
    where = pytest.raises(StoreError, match="writes its RDB file on its own disk: use store.execute")
    with running_redis() as judge, rillet.connect(f"redis://127.0.0.1:{judge.port}") as store, where:
        store.save()


def test_a_copy_is_whole_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    (tmp_path / "b").write_bytes(b"old")
    copy_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"x" * 3_000_000
    with contextlib.suppress(FileNotFoundError):
        copy_file(tmp_path / "none", tmp_path / "b")
    assert (tmp_path / "b").stat().st_size == 3_000_000
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
