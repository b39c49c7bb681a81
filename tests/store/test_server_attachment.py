"""`rillet.open` on the directory of a running `rillet serve` attaches to the server."""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path

import pytest

import rillet
from rillet.errors import StoreBusy
from rillet.store.sharing import directory_backend
from tests.judge import running_redis
from tests.server.harness import TIMEOUT, launch, line_of, running
from tests.server.test_lifecycle import LOG, refused
from tests.server.test_serve_while_loading import starting


def _use(path: Path) -> None:
    """Read and write through an attached store, by each of its interfaces."""
    with rillet.open(path) as store, rillet.open(path) as other:
        assert not store.owner
        assert store.path == str(path)
        entry = store.stream("s").add({"a": 1})
        assert [one.id for one in other.stream("s")] == [entry]
        assert store.execute_many([("SET", "k", "v"), ("GET", "k")])[1] == b"v"
        group = store.stream("s").group("g", start="0")
        assert [message.id for message in group.consumer("c").read()] == [entry]
        assert other.delete("s", "k") == 2
        assert store.save() == path / "dump.rdb"


def test_through_tcp(tmp_path: Path) -> None:
    with running(tmp_path, *LOG) as server:
        announced = json.loads((tmp_path / "owner.json").read_text())
        assert announced["pid"] == server.process.pid
        assert announced["url"] == f"redis://127.0.0.1:{server.port}"
        _use(tmp_path)
        assert not (tmp_path / "rillet.json").exists()
        assert not (tmp_path / "lock").exists()
    assert not (tmp_path / "owner.json").exists()


def test_through_its_unix_socket(tmp_path: Path) -> None:
    with running(tmp_path, *LOG, "--unixsocket", str(tmp_path / "server.sock")) as server:
        _use(tmp_path)
        with rillet.open(tmp_path) as store:
            assert store.socket == str(tmp_path / "server.sock")
            names = [line for line in store.execute("CLIENT", "LIST").decode().splitlines() if "server.sock" in line]
            assert names
        assert server.stop()[0] == 0
    assert not (tmp_path / "owner.json").exists()


def test_the_directory_of_a_store(tmp_path: Path) -> None:
    with rillet.open(tmp_path) as store:
        store.execute("SET", "before", "1")
        assert "writes the log there" in refused("--dir", str(tmp_path), "--port", "0", *LOG)
    with running(tmp_path, *LOG), rillet.open(tmp_path) as store:
        assert not store.owner
        assert store.execute("GET", "before") == b"1"
        store.execute("SET", "after", "1")
    with rillet.open(tmp_path) as store:
        assert store.owner
        assert store.execute("MGET", "before", "after") == [b"1", b"1"]


def test_a_server_with_a_password_is_an_error(tmp_path: Path) -> None:
    with running(tmp_path, *LOG, "--requirepass", "secret") as server:
        recommended = rf"use rillet.connect\('redis://:PASSWORD@127.0.0.1:{server.port}'\)$"
        with pytest.raises(StoreBusy, match=f"is served by process {server.process.pid} at .*password: {recommended}"):
            rillet.open(tmp_path)
        with rillet.connect(f"redis://:secret@127.0.0.1:{server.port}") as store:
            assert store.execute("PING") == b"PONG"


def test_a_log_that_is_turned_off_and_on(tmp_path: Path) -> None:
    with running(tmp_path, *LOG) as server, server.client() as client:
        assert client.call("CONFIG SET appendonly no") == b"+OK\r\n"
        assert not (tmp_path / "owner.json").exists()
        assert client.call("CONFIG SET appendonly yes") == b"+OK\r\n"
        client.rewritten()
        _use(tmp_path)


def test_an_attached_store_waits_for_a_server_that_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_backend, "RESTART_SECONDS", 60.0)
    with running(tmp_path, *LOG) as server:
        store = rillet.open(tmp_path)
        store.stream("s").add({"a": 1})
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    with store, running(tmp_path, *LOG):
        with contextlib.suppress(rillet.StoreError):  # the outcome of the first command may be unknown
            store.execute("SET", "k", "v")
        assert not store.owner
        assert len(store.stream("s")) == 1


def test_the_directory_of_a_killed_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its announcement remains, and its port may belong to another server."""
    monkeypatch.setattr(directory_backend, "RESTART_SECONDS", 0.0)
    with running(tmp_path, *LOG) as server:
        attached = rillet.open(tmp_path)
        attached.stream("s").add({"a": 1})
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    announced = json.loads((tmp_path / "owner.json").read_text())
    with running_redis() as redis:
        redis.client().execute_command("CONFIG", "SET", "requirepass", "secret")
        announced["url"] = f"redis://127.0.0.1:{redis.port}"
        (tmp_path / "owner.json").write_text(json.dumps(announced))
        with rillet.open(tmp_path) as store:
            assert store.owner
            assert len(store.stream("s")) == 1
            assert store.recovery is not None
            assert store.recovery.killed == announced["pid"]
            with attached:
                with contextlib.suppress(rillet.StoreError):  # the outcome of the first command may be unknown
                    attached.execute("SET", "k", "v")
                assert len(attached.stream("s")) == 1  # now attached to the new owner


def test_while_the_server_loads_its_log(tmp_path: Path) -> None:
    with running(tmp_path, *LOG) as server, server.client() as client:
        for number in range(40):
            assert client.call(f"SET k{number} v") == b"+OK\r\n"
    with starting(tmp_path, *LOG, "--key-load-delay", "25000"):
        while not (tmp_path / "owner.json").exists():  # the server has locked its log
            pass
        with rillet.open(tmp_path) as store:
            assert not store.owner
            assert store.execute("DBSIZE") == 40


def test_a_server_that_listens_nowhere(tmp_path: Path) -> None:
    with launch(["--port", "0", "--dir", str(tmp_path), *LOG]) as process:
        try:
            while "listening" not in line_of(process):
                pass
            with pytest.raises(StoreBusy, match=f"served by process {process.pid}, which listens neither on a Unix"):
                rillet.open(tmp_path)
        finally:
            process.terminate()
            process.communicate(timeout=TIMEOUT)
