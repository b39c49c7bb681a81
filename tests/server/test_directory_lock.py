"""Only one process can write to a log: a second server, a store and `rillet check` fail and name the owner."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rillet
from rillet.cli import main
from rillet.errors import StoreBusy
from rillet.persistence.directory_lock import DirectoryLock
from tests.server.harness import running
from tests.server.test_lifecycle import LOG, refused

# If the system does not report a lock's holder (no /proc), the error names "another process".
WHO = "is in use: (process {}|another process) writes the log there"


def test_a_second_server_fails_until_the_first_has_ended(tmp_path: Path) -> None:
    with running(tmp_path, *LOG) as first:
        with first.client() as client:
            assert client.call("SET k v") == b"+OK\r\n"
        assert "writes the log there" in refused("--dir", str(tmp_path), "--port", "0", *LOG)
        with running(tmp_path) as other, other.client() as client:  # without a log there is no conflict
            assert client.call("CONFIG SET appendonly yes").startswith(b"-ERR CONFIG SET failed")
            assert client.call("CONFIG SET appendonly no") == b"+OK\r\n"
        first.process.kill()
        first.process.wait()
        with running(tmp_path, *LOG) as second, second.client() as client:
            assert client.call("GET k") == b"$1\r\nv\r\n"


def test_a_disabled_log_is_unlocked(tmp_path: Path) -> None:
    with running(tmp_path, *LOG) as first, first.client() as client:
        assert client.call("CONFIG SET appendonly no") == b"+OK\r\n"
        with running(tmp_path, *LOG):
            assert client.call("CONFIG SET appendonly yes").startswith(b"-ERR CONFIG SET failed")
        assert client.call("CONFIG SET appendonly yes") == b"+OK\r\n"
        client.rewritten()


def test_a_store_and_a_server_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path, *LOG) as server:
        with rillet.open(tmp_path) as attached:
            assert not attached.owner
        other = DirectoryLock()
        with pytest.raises(StoreBusy, match=WHO.format(server.process.pid)):
            other.acquire(tmp_path / "appendonlydir")
        assert not (tmp_path / "rillet.json").exists()
        for path in (tmp_path, tmp_path / "appendonlydir", *tmp_path.glob("appendonlydir/*.aof")):
            assert main(["check", "--repair", str(path)]) == 2
            assert "writes the log there" in capsys.readouterr().err
    with rillet.open(tmp_path) as store:
        assert "writes the log there" in refused("--dir", str(tmp_path), "--port", "0", *LOG)
        with rillet.open(tmp_path) as attached:
            assert store.owner
            assert not attached.owner
    with running(tmp_path, *LOG):
        pass


def test_a_recreated_folder_is_locked_again(tmp_path: Path) -> None:
    with running(tmp_path, *LOG) as server:
        shutil.rmtree(tmp_path / "appendonlydir")

        def accepts() -> bool:  # a server disconnects a client after a failed write to the log
            with server.client() as client:
                return client.call("SET k v") == b"+OK\r\n"

        assert not accepts()
        while not accepts():
            pass
        assert (tmp_path / "appendonlydir").exists()
        assert "writes the log there" in refused("--dir", str(tmp_path), "--port", "0", *LOG)


def test_a_lock_can_be_taken_and_released(tmp_path: Path) -> None:
    one, two = DirectoryLock(), DirectoryLock()
    one.acquire(tmp_path / "made" / "here")
    one.acquire(tmp_path / "made" / "here")
    with pytest.raises(StoreBusy, match="made/here is in use"):
        two.acquire(tmp_path / "made" / "here")
    one.release()
    one.release()
    two.acquire(tmp_path / "made" / "here")
    two.release()
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        one.acquire(tmp_path / "file")
