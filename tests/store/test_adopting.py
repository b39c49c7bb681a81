"""rillet.open on a directory that holds only an RDB file: its data becomes the base of a new log."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

import rillet
from rillet.errors import LogCorrupt, NewerFormat, NotAStore, StoreError
from rillet.persistence.checking import check
from tests.judge import redis_binary, running_redis
from tests.persistence.rdb_files import file, key, text
from tests.persistence.test_rdb_versions import FOREIGN


def test_a_directory_with_only_an_rdb_file_opens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with rillet.open(tmp_path / "one") as first:
        first.execute_many([("SET", "k", "v"), ("SET", "soon", "v", "PXAT", 1 << 45), ("XADD", "s", "1-1", "a", "1"),
                            ("XGROUP", "CREATE", "s", "g", "0")])  # fmt: skip
        first.save()
        expected = [first.execute("DUMP", key) for key in ("k", "soon", "s")]
    two = tmp_path / "two"
    two.mkdir()
    shutil.copy(tmp_path / "one/dump.rdb", two)
    saved = (two / "dump.rdb").read_bytes()
    caplog.set_level(logging.INFO, "rillet.store")
    with rillet.open(two) as store:
        assert [store.execute("DUMP", key) for key in ("k", "soon", "s")] == expected
        assert store.recovery is not None
        assert (store.recovery.keys, store.recovery.adopted) == (3, "dump.rdb")
        assert "3 keys of dump.rdb are now the base of a new log" in str(store.recovery)
        assert store.execute("PEXPIRETIME", "soon") == 1 << 45
        store.execute("SET", "later", "v")
    assert (two / "dump.rdb").read_bytes() == saved
    assert check(two).sound
    (two / "dump.rdb").unlink()
    with rillet.open(two) as store:
        assert store.execute("DBSIZE") == 4
        assert store.recovery is not None
        assert store.recovery.adopted == ""


def test_a_log_goes_before_an_rdb_file(tmp_path: Path) -> None:
    with rillet.open(tmp_path) as store:
        store.execute("SET", "k", "1")
        store.save()
        store.execute("SET", "k", "2")
    with rillet.open(tmp_path) as store:
        assert store.execute("GET", "k") == b"2"


def test_an_rdb_file_of_another_name(tmp_path: Path) -> None:
    (tmp_path / "backup.rdb").write_bytes(file(10, key(0, b"k", text(b"v"))))
    with pytest.raises(NotAStore, match="is not a store"):
        rillet.open(tmp_path)
    with rillet.open(tmp_path, dbfilename="backup.rdb") as store:
        assert store.execute("GET", "k") == b"v"


def test_a_rejected_rdb_file_stays_and_is_tried_again(tmp_path: Path) -> None:
    sound = file(10, key(0, b"k", text(b"v")))
    (tmp_path / "dump.rdb").write_bytes(sound[:-3])
    for _ in range(2):
        with pytest.raises(LogCorrupt, match=r"dump.rdb: offset 15: 8 bytes expected, 5 left"):
            rillet.open(tmp_path)
    (tmp_path / "dump.rdb").write_bytes(file(10, *FOREIGN))
    with pytest.raises(NewerFormat, match="data of the module type .AAABAAAAA.; no loaded module has this type"):
        rillet.open(tmp_path)
    (tmp_path / "dump.rdb").write_bytes(sound)
    with rillet.open(tmp_path) as store:
        assert store.execute("GET", "k") == b"v"


def test_a_failure_before_the_manifest_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory can be opened again as before, whatever was written."""
    sound = file(10, key(0, b"k", text(b"v")))
    (tmp_path / "dump.rdb").write_bytes(sound)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("rillet.persistence.aof.folder.commit", "rillet.persistence.aof.manifest.write_file",
                 "rillet.persistence.aof.service.write_base"):  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setattr(name, fail)
            with pytest.raises(StoreError, match="No space left on device"):
                rillet.open(tmp_path)
        assert (tmp_path / "dump.rdb").read_bytes() == sound
    with rillet.open(tmp_path) as store:
        assert store.execute("GET", "k") == b"v"
    assert check(tmp_path).sound


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
def test_the_directory_of_a_redis_server_without_a_log(tmp_path: Path) -> None:
    with running_redis("--save", "900 1", folder=tmp_path) as server:
        client = server.client()
        client.execute_command("SET", "k", "v")
        client.execute_command("SAVE")
        client.close()
        client.connection_pool.disconnect()
    with rillet.open(tmp_path) as store:
        store.execute("SET", "l", "w")
    with running_redis("--appendonly", "yes", folder=tmp_path) as server:
        client = server.client()
        assert client.execute_command("DBSIZE") == 2
        client.close()
        client.connection_pool.disconnect()
