"""The rewrite of a server's log: replies and INFO fields as in redis-server, and the data after a restart."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import threading
from pathlib import Path

import pytest

from tests.judge import redis_binary, running_redis
from tests.server.harness import Client, Running, running

LOG = ("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0", "--save", "", "--enable-debug-command", "yes")
STARTED = b"+Background append only file rewriting started\r\n"
SCHEDULED = b"+Background append only file rewriting scheduled\r\n"
ACTIVE = b"-ERR Background append only file rewriting already in progress\r\n"
SLOW = 10_000_000  # microseconds per key: the child runs for the whole test
# A disk that cannot sync while a file with this name exists.
FAILING = """
import os
import resource
real = os.fdatasync
def sync(number):
    if os.path.exists({flag!r}):
        raise OSError(5, "Input/output error")
    real(number)
os.fdatasync = sync
"""


def _fill(client: Client) -> None:
    client.send("SET k 1", "RPUSH l a b c", "XADD s 1-1 f v", "XGROUP CREATE s g 0",
                "XREADGROUP GROUP g c COUNT 1 STREAMS s >", "PEXPIREAT k 99999999999999", "SELECT 3", "SET three 3",
                "SELECT 0")  # fmt: skip
    assert not any(client.reply().startswith(b"-") for _ in range(9))


def _manifest(folder: Path) -> list[str]:
    text = (folder / "appendonlydir/appendonly.aof.manifest").read_text()
    return [line.removeprefix("file appendonly.aof.").partition(" ")[0] for line in text.splitlines()]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "appendonlydir").iterdir())


def _digest(client: Client) -> bytes:
    return client.call("DEBUG DIGEST")


def _slow(client: Client, usec: int = SLOW) -> None:
    assert client.call(f"CONFIG SET rdb-key-save-delay {usec}") == b"+OK\r\n"


def _child_of(server: Running) -> int:
    with open(f"/proc/{server.process.pid}/task/{server.process.pid}/children") as file:
        return int(file.read().split()[0])


def _kill(server: Running, child: int) -> None:
    server.process.kill()
    os.kill(child, signal.SIGKILL)
    server.ended()


def _judged(folder: Path, digest: bytes) -> None:
    """Check that redis-server loads a copy of the folder to the same data."""
    copy = folder.parent / "judged"
    shutil.copytree(folder, copy)
    with running_redis("--dir", str(copy), "--appendonly", "yes", "--enable-debug-command", "yes") as judge:
        client = judge.client()
        while b"loading:1" in client.execute_command("INFO", "persistence"):
            threading.Event().wait(0.01)
        assert b"+%b\r\n" % client.execute_command("DEBUG", "DIGEST") == digest
    shutil.rmtree(copy)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "server"
    made.mkdir()
    return made


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_redis_loads_the_files_in_every_state_of_a_rewrite(folder: Path, preamble: str) -> None:
    with running(folder, *LOG, "--compat", "7.0", "--aof-use-rdb-preamble", preamble) as server:
        with server.client() as client:
            kind = "rdb" if preamble == "yes" else "aof"
            assert _manifest(folder) == [f"1.base.{kind}", "1.incr.aof"]
            _fill(client)
            _slow(client)
            assert client.call("BGREWRITEAOF") == STARTED
            assert client.call("BGREWRITEAOF") == ACTIVE
            assert client.info("aof_rewrite_in_progress") == "1"
            assert client.info("aof_rewrite_scheduled") == "0"
            client.send("SET during 1", "XADD s 2-1 f w", "DEL l")
            assert not any(client.reply().startswith(b"-") for _ in range(3))
            digest = _digest(client)
            assert _manifest(folder) == [f"1.base.{kind}", "1.incr.aof", "2.incr.aof"]
            _judged(folder, digest)
            assert client.call("DEBUG LOADAOF") == b"+OK\r\n"
            assert _digest(client) == digest
            os.kill(_child_of(server), signal.SIGKILL)
            client.rewritten()
            assert client.info("aof_last_bgrewrite_status") == "err"
            assert client.info("aof_rewrites_consecutive_failures") == "1"
            assert _manifest(folder) == [f"1.base.{kind}", "1.incr.aof", "2.incr.aof"]
            assert not [name for name in _names(folder) if name.startswith("temp-")]
            _slow(client, 0)
            assert client.call("BGREWRITEAOF") == STARTED
            client.rewritten()
            assert client.info("aof_last_bgrewrite_status") == "ok"
            assert client.info("aof_rewrites") == "2"
            assert int(client.info("aof_last_rewrite_time_sec")) >= 0
            assert client.info("aof_current_rewrite_time_sec") == "-1"
            assert _manifest(folder) == [f"2.base.{kind}", "3.incr.aof"]
            assert _names(folder) == [f"appendonly.aof.{name}" for name in (*_manifest(folder), "manifest")]
            client.call("SET after 1")
            digest = _digest(client)
        server.process.kill()
        server.ended()
    _judged(folder, digest)
    with running(folder, *LOG, "--compat", "7.0") as server, server.client() as client:
        assert _digest(client) == digest


def test_a_server_killed_during_a_rewrite_loses_nothing(folder: Path) -> None:
    with running(folder, *LOG) as server:
        with server.client() as client:
            _fill(client)
            _slow(client)
            client.call("BGREWRITEAOF")
            client.call("SET during 1")
            digest, child = _digest(client), _child_of(server)
        _kill(server, child)
    with running(folder, *LOG) as server, server.client() as client:
        assert _digest(client) == digest
        assert not [name for name in _names(folder) if name.startswith("temp-")]


def test_a_rewrite_waits_for_a_snapshot_or_a_transaction(folder: Path) -> None:
    with running(folder, *LOG) as server, server.client() as client:
        _fill(client)
        _slow(client)
        assert client.call("BGSAVE").startswith(b"+Background saving started")
        assert client.call("BGREWRITEAOF") == SCHEDULED
        assert client.info("aof_rewrite_scheduled") == "1"
        assert client.info("aof_rewrite_in_progress") == "0"
        assert _manifest(folder) == ["1.base.rdb", "1.incr.aof"]
        _slow(client, 0)
        os.kill(_child_of(server), signal.SIGKILL)
        client.rewritten()
        assert _manifest(folder) == ["2.base.rdb", "2.incr.aof"]
        client.send("MULTI", "SET a 1", "BGREWRITEAOF", "SET b 1", "EXEC")
        replies = [client.reply() for _ in range(5)]
        assert replies[-1] == b"*3\r\n+OK\r\n" + SCHEDULED + b"+OK\r\n"
        client.rewritten()
        assert _manifest(folder) == ["3.base.rdb", "3.incr.aof"]
        digest = _digest(client)
        assert client.call("DEBUG LOADAOF") == b"+OK\r\n"
        assert _digest(client) == digest


def test_a_log_can_be_enabled_at_run_time(folder: Path) -> None:
    with running(folder, *LOG[2:]) as server:
        with server.client() as client:
            _fill(client)
            _slow(client)
            assert client.call("CONFIG SET appendonly yes") == b"+OK\r\n"
            assert client.info("aof_rewrite_in_progress") == "1"
            assert client.info("aof_enabled") == "1"
            client.call("SET during 1")
            assert "appendonly.aof.manifest" not in _names(folder)
            os.kill(_child_of(server), signal.SIGKILL)
            while client.info("aof_rewrites") != "2":  # the next one starts automatically
                threading.Event().wait(0.01)
            assert client.call("SHUTDOWN") == b"-ERR Errors trying to SHUTDOWN. Check logs.\r\n"
            _slow(client, 0)
            os.kill(_child_of(server), signal.SIGKILL)
            client.rewritten()
            assert _manifest(folder) == ["1.base.rdb", "1.incr.aof"]
            client.call("SET after 1")
            digest = _digest(client)
            # Off: the files stay as they are, and a rewrite leaves a base alone.
            assert client.call("CONFIG SET appendonly no") == b"+OK\r\n"
            assert client.info("aof_enabled") == "0"
            client.call("SET lost 1")
            assert client.call("DEBUG LOADAOF") == b"+OK\r\n"
            assert _digest(client) == digest
            assert client.call("BGREWRITEAOF") == STARTED
            client.rewritten()
            assert _manifest(folder) == ["2.base.rdb"]
            _slow(client)
            assert client.call("CONFIG SET appendonly yes") == b"+OK\r\n"
            client.call("SET lost again")
            assert _manifest(folder) == ["2.base.rdb"]  # the old log stays in force until the new base is complete
        child = _child_of(server)
        _kill(server, child)
    with running(folder, *LOG) as server, server.client() as client:
        assert _digest(client) == digest


def test_a_server_killed_in_its_first_rewrite_has_no_log_yet(folder: Path) -> None:
    with running(folder, *LOG[2:]) as server:
        with server.client() as client:
            _fill(client)
            _slow(client)
            client.call("CONFIG SET appendonly yes")
            client.call("SET during 1")
        child = _child_of(server)
        _kill(server, child)
    with running(folder, *LOG) as server, server.client() as client:
        assert client.call("DBSIZE") == b":0\r\n"
        assert client.call("SET a 1") == b"+OK\r\n"
        assert _manifest(folder) == ["1.base.rdb", "1.incr.aof"]


def test_a_shutdown_during_a_rewrite_loses_nothing(folder: Path) -> None:
    with running(folder, *LOG) as server:
        with server.client() as client:
            _fill(client)
            _slow(client)
            client.call("BGREWRITEAOF")
            child = _child_of(server)
            digest = _digest(client)
        status, said = server.stop()
        assert status == 0
        assert "There is a child rewriting the AOF. Killing it!" in said
        assert not Path(f"/proc/{child}").exists()
        assert _manifest(folder) == ["1.base.rdb", "1.incr.aof", "2.incr.aof"]
        assert not [name for name in _names(folder) if name.startswith("temp-")]
    with running(folder, *LOG) as server, server.client() as client:
        assert _digest(client) == digest


def test_a_rewrite_starts_automatically(folder: Path) -> None:
    grows = (*LOG, "--auto-aof-rewrite-percentage", "100", "--auto-aof-rewrite-min-size", "20kb")
    with running(folder, *grows) as server, server.client() as client:
        while client.info("aof_rewrites") == "0":
            client.send(*["SET k " + "x" * 100] * 100)
            assert {client.reply() for _ in range(100)} == {b"+OK\r\n"}
        client.rewritten()
        assert int(client.info("aof_base_size")) < 20_000
        assert "1.base.rdb" not in _manifest(folder)


def test_only_replies_to_writes_wait_for_the_sync(folder: Path) -> None:
    """A write is acknowledged after a sync that began after it was written; one sync serves many clients."""
    with running(folder, *LOG, "--appendfsync", "always") as server:
        clients = [server.client() for _ in range(20)]
        for _ in range(20):
            for client in clients:
                client.send("INCR n", "GET n")
            for client in clients:
                n = client.reply()
                assert n.startswith(b":")
                assert client.reply().startswith(b"$")
        with server.client() as client:
            client.send(*["INCR n"] * 2000)
            assert [client.reply() for _ in range(2000)][-1] == b":2400\r\n"
            # Replies that are sent in parts stay in order.
            client.send("SET big " + "x" * 300_000)
            assert client.reply() == b"+OK\r\n"
            client.send(*["INCR n", "GET big"] * 50)
            for at in range(50):
                assert client.reply() == b":%d\r\n" % (2401 + at)
                assert len(client.reply()) > 300_000
            assert client.call("CONFIG SET appendfsync everysec") == b"+OK\r\n"
            assert client.call("INCR n") == b":2451\r\n"
            client.send("INCR n", "CONFIG SET appendfsync always", "INCR n", "CONFIG SET appendonly no", "INCR n")
            assert b"".join(client.reply() for _ in range(5)) == b":2452\r\n+OK\r\n:2453\r\n+OK\r\n:2454\r\n"
            for one in clients:
                one.close()
        server.process.kill()
        server.ended()
    with running(folder, *LOG) as server, server.client() as client:
        assert client.call("GET n") == b"$4\r\n2453\r\n"


def test_half_closed_clients_receive_their_replies(folder: Path) -> None:
    with running(folder, *LOG, "--appendfsync", "always") as server, server.client() as client:
        client.send("INCR n", "INCR n")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.rest() == b":1\r\n:2\r\n"


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_server_recovers_from_a_failed_sync(folder: Path, fsync: str) -> None:
    flag = folder / "fail"
    before = FAILING.format(flag=str(flag))
    with running(folder, *LOG, "--appendfsync", fsync, before=f"exec({before!r})") as server:
        with server.client() as client:
            _fill(client)
        flag.touch()
        with server.client() as client:
            if fsync == "always":
                assert client.call("SET k 2").startswith(b"-MISCONF Errors writing to the AOF file: Input/output")
                assert client.rest() == b""  # it is unknown which of its replies are true
            else:
                assert client.call("SET k 2") == b"+OK\r\n"
        with server.client() as client:
            while client.info("aof_last_write_status") != "err":
                threading.Event().wait(0.01)
            assert client.call("SET k 3").startswith(b"-MISCONF Errors writing to the AOF file: Input/output error")
            assert client.call("GET k") == b"$1\r\n2\r\n"
            flag.unlink()
            while client.info("aof_last_write_status") != "ok":
                threading.Event().wait(0.01)
            assert client.call("SET k 4") == b"+OK\r\n"
            digest = _digest(client)
        server.process.kill()
        server.ended()
    with running(folder, *LOG) as server, server.client() as client:
        assert _digest(client) == digest


def test_a_server_recovers_from_a_removed_folder(folder: Path) -> None:
    with running(folder, *LOG) as server:
        with server.client() as client:
            _fill(client)
            shutil.rmtree(folder / "appendonlydir")
            while client.info("aof_last_write_status") != "err" and client.info("aof_rewrites") == "0":
                threading.Event().wait(0.01)
            while client.info("aof_last_write_status") != "ok":
                threading.Event().wait(0.01)
            assert client.call("SET k 4") == b"+OK\r\n"
            digest = _digest(client)
        server.process.kill()
        server.ended()
    with running(folder, *LOG) as server, server.client() as client:
        assert _digest(client) == digest


def test_the_single_file_log_of_an_older_server_is_adopted(folder: Path) -> None:
    (folder / "appendonly.aof").write_bytes(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n")
    with running(folder, *LOG) as server, server.client() as client:
        assert client.call("INCR a") == b":2\r\n"
        assert (folder / "appendonlydir/appendonly.aof.manifest").read_text() == (
            "file appendonly.aof seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n")
        assert client.call("BGREWRITEAOF") == STARTED
        client.rewritten()
        assert _names(folder) == ["appendonly.aof.2.base.rdb", "appendonly.aof.2.incr.aof", "appendonly.aof.manifest"]
        assert client.call("DEBUG LOADAOF") == b"+OK\r\n"
        assert client.call("GET a") == b"$1\r\n2\r\n"


def test_the_log_has_timestamps_if_enabled(folder: Path) -> None:
    with running(folder, *LOG, "--aof-use-rdb-preamble", "no") as server, server.client() as client:
        assert client.call("CONFIG SET aof-timestamp-enabled yes") == b"+OK\r\n"
        client.call("SET a 1")
        log = folder / "appendonlydir/appendonly.aof.1.incr.aof"
        assert log.read_bytes().startswith(b"#TS:1")
        assert client.call("BGREWRITEAOF") == STARTED
        client.rewritten()
        base = folder / "appendonlydir/appendonly.aof.2.base.aof"
        assert base.read_bytes().startswith(b"#TS:1")
        assert client.call("DEBUG LOADAOF") == b"+OK\r\n"
        assert client.call("GET a") == b"$1\r\n1\r\n"


def test_a_snapshot_that_begins_while_the_log_is_synced_goes_first(folder: Path) -> None:
    """A rewrite syncs much unsynced data before the rotation; a BGSAVE may begin meanwhile."""
    with running(folder, *LOG, "--appendfsync", "no") as server, server.client() as client:
        client.send(f"SET k {'v' * 9_000_000}", "BGREWRITEAOF", "BGSAVE")
        assert client.reply() == b"+OK\r\n"
        assert client.reply() == STARTED
        assert client.reply().startswith(b"+Background saving started")
        while client.info("aof_rewrites") == "0" or client.info("aof_rewrite_in_progress") == "1":
            client.call("PING")
        assert client.info("aof_last_bgrewrite_status") == "ok"
        assert client.info("rdb_last_bgsave_status") == "ok"
        assert _manifest(folder) == ["2.base.rdb", "2.incr.aof"]


def test_a_reply_is_rejected_if_an_earlier_write_failed(folder: Path) -> None:
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
    with running(folder, *LOG, before=limit) as server, server.client() as client:
        assert client.call("SET before 1") == b"+OK\r\n"
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
        client.send(f"SET k {'v' * 300}", "BGREWRITEAOF")  # this also writes the log
        assert client.reply() == b"-MISCONF Errors writing to the AOF file: File too large\r\n"
        assert client.rest() == b""
        with server.client() as other:  # what is in memory only is not given up for what is in the file
            assert other.call("DEBUG LOADAOF").startswith(b"-ERR the append-only file lacks recent writes: ")
            assert other.call("STRLEN k") == b":300\r\n"
        server.process.kill()
        server.ended()


def test_data_reloaded_during_the_first_rewrite_is_in_the_log(folder: Path) -> None:
    with running(folder, *LOG[2:]) as server, server.client() as client:
        assert client.call("SET a 1") == b"+OK\r\n"
        assert client.call("SAVE") == b"+OK\r\n"
        assert client.call("SET a 2") == b"+OK\r\n"
        _slow(client, 100_000)
        assert client.call("CONFIG SET appendonly yes") == b"+OK\r\n"
        assert client.call("DEBUG RELOAD NOSAVE") == b"+OK\r\n"
        _slow(client, 0)
        client.rewritten()
        assert client.call("GET a") == b"$1\r\n1\r\n"
        assert client.call("DEBUG LOADAOF") == b"+OK\r\n"
        assert client.call("GET a") == b"$1\r\n1\r\n"
