"""A server listens while it loads its files: most commands reply LOADING, some work, and a shutdown is possible."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rillet.persistence.rdb.writer import write_rdb
from rillet.protocol.command_parser import pack_command
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.server.serve_while_loading import LoadingPhase, Progress
from rillet.server.server import Server
from rillet.server.server_services import ServerServices
from tests.forked import Forked
from tests.judge import free_port
from tests.server.harness import Client, connected, line_of

OFTEN = ("--loading-process-events-interval-bytes", "100000")  # a key of the large logs
LOADING = b"-LOADING Redis is loading the dataset in memory\r\n"


def big_log(folder: Path, commands: int, size: int = 800) -> None:
    """A log whose commands set a thousand keys repeatedly."""
    log = folder / "appendonlydir"
    log.mkdir()
    (log / "appendonly.aof.manifest").write_text("file appendonly.aof.1.incr.aof seq 1 type i\n")
    with open(log / "appendonly.aof.1.incr.aof", "wb") as out:
        for at in range(commands):
            out.write(pack_command([b"SET", b"key:%d" % (at % 1000), b"%0*d" % (size, at)]))


@contextlib.contextmanager
def starting(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server as soon as it accepts connections."""
    port = free_port()
    with Forked(["serve", "--port", port, "--dir", folder, *arguments], stderr=subprocess.STDOUT) as process:
        try:
            assert "PID: " in line_of(process)
            yield process, port
        finally:
            process.kill()


def rest_of(process: subprocess.Popen[str]) -> str:
    """Return the server's remaining output, including bytes that arrived with the first line."""
    assert process.stdout is not None
    alarm = threading.Timer(20, process.kill)
    alarm.start()
    said = process.stdout.read()
    process.wait()
    alarm.cancel()
    return said


@contextlib.contextmanager
def reading_forever(**settings: str) -> Iterator[tuple[Client, threading.Event]]:
    """A client of a server that loads until the event is set, one piece per iteration of its loop."""
    engine = Engine(Settings(port=free_port(), bind="127.0.0.1", **settings))
    enough, listening = threading.Event(), threading.Event()
    server = Server(engine)
    loading = LoadingPhase(engine)

    class LoadingServices(ServerServices):
        def info_sections(self) -> Mapping[str, Callable[[], Mapping[str, Any]]]:
            return {**super().info_sections(), "persistence": loading.info}

    engine.services = LoadingServices(server)

    def job(progress: Progress) -> None:
        while not enough.is_set():
            loading._turn = float("-inf")  # a turn is always over
            progress(30, 120)

    async def main() -> None:
        engine.loading = True
        await server.start()
        listening.set()
        assert await loading.run(job, server.is_stopping)
        await server.wait()
        await server.stop()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert listening.wait(60)
    try:
        with connected(server.port) as client:
            yield client, enough
    finally:
        enough.set()
        server.loop.call_soon_threadsafe(server.request_stop)
        thread.join()


def test_commands_answered_during_loading() -> None:
    with reading_forever(enable_debug_command="yes") as (client, enough):
        assert all(client.call(command) == LOADING for command in ("GET k", "PING", "XADD k * a b", "EXISTS k"))
        assert client.info("loading") == "1"
        assert client.info("async_loading") == "0"
        assert client.info("loading_total_bytes") == "120"
        assert client.info("loading_loaded_perc") == "25.00"
        assert client.info("loading_loaded_bytes") == "30"
        assert int(client.info("loading_eta_seconds")) >= 0
        assert client.call("DEBUG RELOAD") == LOADING
        assert client.call("DEBUG LOG here") == b"+OK\r\n"
        assert client.call("SAVE") == LOADING
        assert client.call("FLUSHALL") == LOADING
        client.send("MULTI", "SET k v", "EXEC")
        assert client.reply() == b"+OK\r\n"
        assert client.reply() == LOADING
        assert client.reply().startswith(b"-EXECABORT")
        enough.set()
        while client.info("loading") == "1":
            pass
        assert client.call("SET k v") == b"+OK\r\n"
        assert client.call("GET k") == b"$1\r\nv\r\n"
        assert b"loading_total_bytes" not in client.call("INFO persistence")


def test_clients_are_answered_while_a_log_loads(tmp_path: Path) -> None:
    big_log(tmp_path, 60_000)
    with starting(tmp_path, "--appendonly", "yes") as (process, port):
        with connected(port) as client:
            while client.info("loading") == "1":
                pass
            assert client.call("GET key:1").endswith(b"059001\r\n")
            assert client.call("DBSIZE") == b":1000\r\n"
        process.send_signal(signal.SIGTERM)
        said = rest_of(process)
    assert process.returncode == 0
    assert "Ready to accept connections" in said
    assert "Traceback" not in said


def test_a_replica_shows_its_role_while_it_loads(tmp_path: Path) -> None:
    """Sentinel and clients that look for a master must not take a replica that starts for one."""
    big_log(tmp_path, 200, 100_000)
    options = ("--appendonly", "yes", "--key-load-delay", "50000", *OFTEN, "--replicaof", "127.0.0.1 1")
    with starting(tmp_path, *options) as (_, port), connected(port) as client:
        assert client.info("role") == "slave"
        assert (client.info("master_host"), client.info("master_port")) == ("127.0.0.1", "1")
        assert (client.info("master_link_status"), client.info("slave_repl_offset")) == ("down", "1")
        assert client.call("ROLE").endswith(b"$7\r\nconnect\r\n:-1\r\n")
        assert b"$4\r\nrole\r\n$7\r\nreplica\r\n" in client.call("HELLO 2")
        assert client.call("REPLICAOF NO ONE") == LOADING


@pytest.mark.parametrize("how", ["SIGTERM", "SHUTDOWN", "SHUTDOWN SAVE"])
def test_a_server_can_be_stopped_while_it_loads(tmp_path: Path, how: str) -> None:
    big_log(tmp_path, 200, 100_000)
    before = {one.name: one.read_bytes() for one in tmp_path.glob("appendonlydir/*")}
    with starting(tmp_path, "--appendonly", "yes", "--key-load-delay", "50000", *OFTEN) as (process, port):
        with connected(port) as client:
            assert client.call("PING") == LOADING
            assert client.call("CONFIG SET appendonly no") == LOADING
            if how.startswith("SHUTDOWN"):
                assert client.call(how) == b""
        if how == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        said = rest_of(process)
    assert process.returncode == 0, said
    assert "Ready to accept" not in said, said
    assert "Traceback" not in said, said
    # Only a part was loaded, so no file was written from it.
    assert before == {one.name: one.read_bytes() for one in tmp_path.glob("appendonlydir/*")}
    assert not (tmp_path / "dump.rdb").exists()


def test_clients_are_answered_while_an_rdb_file_loads(tmp_path: Path) -> None:
    engine = Engine(Settings(rdbcompression=False))
    session = engine.session()
    for at in range(200):
        engine.execute(session, [b"SET", b"key:%d" % at, os.urandom(200_000)])
        session.out.take_bytes()
    write_rdb(tmp_path / "dump.rdb", engine)
    with starting(tmp_path) as (_, port), connected(port) as client:
        while client.info("loading") == "1":
            pass
        assert client.call("DBSIZE") == b":200\r\n"
        assert client.info("rdb_last_load_keys_loaded") == "200"


def test_a_damaged_file_ends_the_server(tmp_path: Path) -> None:
    big_log(tmp_path, 100)
    log = tmp_path / "appendonlydir" / "appendonly.aof.1.incr.aof"
    log.write_bytes(log.read_bytes().replace(b"*3", b"!3"))
    with starting(tmp_path, "--appendonly", "yes") as (process, _):
        said = rest_of(process)
    assert process.returncode == 1
    assert "offset 0: Bad file format" in said
    assert "Traceback" not in said


def test_the_loader_and_the_loop_alternate() -> None:
    """They never run at the same time, and an exception of the loader is raised in the caller."""
    engine = Engine()
    seen: list[str] = []

    def job(progress: Progress) -> None:
        for at in range(3):
            seen.append(f"read {at}")
            loading._turn = float("-inf")
            progress(at, 3)
        raise OSError("the end")

    async def main() -> None:
        async def loop() -> None:
            while engine.loading:
                seen.append("loop")
                await asyncio.sleep(0)

        engine.loading = True
        task = asyncio.create_task(loop())
        with pytest.raises(OSError, match="the end"):
            await loading.run(job, lambda: False)
        await task

    loading = LoadingPhase(engine)
    asyncio.run(main())
    assert seen == ["read 0", "loop", "read 1", "loop", "read 2", "loop"]
    assert not engine.loading
