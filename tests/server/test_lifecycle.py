"""The start and the end of a server: errors at the start, and the data that each kind of end preserves."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from tests.server.conftest import skip_without
from tests.server.harness import LOOPS, TIMEOUT, Client, Running, launch, running
from tests.variants import long

LOG = ("--appendonly", "yes")


def refused(*arguments: str) -> str:
    """Return the error line of a server that does not start."""
    with launch(list(arguments)) as process:
        try:
            _, errors = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert process.returncode == 1, errors
    assert errors.startswith("rillet: ")
    assert errors.count("\n") == 1
    return errors


# -- what it refuses -------------------------------------------------------------------------------


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert refused("--port", str(port), "--dir", str(tmp_path)) == (
            f"rillet: Failed listening on port {port} (tcp): 127.0.0.1: Address already in use\n"
        )


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert refused("--dir", str(missing)) == f"rillet: the directory {missing} does not exist (--dir)\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_without_permission_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o000)
    try:
        assert "cannot be read and written" in refused("--dir", str(tmp_path))
    finally:
        tmp_path.chmod(0o755)


def test_a_file_instead_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is a file" in refused("--dir", str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("colour blue", "unknown directive 'colour'"),
        ("port", "'port': wrong number of arguments"),
        ("port 7000 7001", "'port 7000 7001': wrong number of arguments"),
        ("hz many", "'hz many': argument couldn't be parsed into an integer"),
        ("appendfsync sometimes", "argument(s) must be one of the following: "),
        ('dir "unbalanced', "Unbalanced quotes in configuration line"),
        ("save 60", "Invalid save parameters"),
        ("dbfilename a/b", "dbfilename can't be a path, just a filename"),
    ],
)
def test_an_invalid_directive_is_an_error(tmp_path: Path, line: str, reason: str) -> None:
    conf = tmp_path / "redis.conf"
    conf.write_text(f"# a comment\n\nport 0\n{line}\n")
    said = refused(str(conf))
    assert f"{conf}, line 4: " in said
    assert reason in said


def test_an_invalid_option_is_an_error(tmp_path: Path) -> None:
    assert "option --colour: 'colour \"blue\"': unknown directive 'colour'" in refused("--colour", "blue")
    assert "'port \"--loglevel\" \"verbose\"': wrong number of arguments" in refused("--port", "--loglevel", "verbose")
    assert "cannot read the configuration file nothing.conf: No such file" in refused("nothing.conf")
    assert "'-x' is neither a configuration file nor an option" in refused("-x")


def test_a_damaged_log_is_an_error(tmp_path: Path) -> None:
    with running(tmp_path, *LOG) as server, server.client() as client:
        assert client.call("SET k v") == b"+OK\r\n"
    [log] = tmp_path.rglob("*.incr.aof")
    log.write_bytes(b"garbage\r\n" + log.read_bytes())
    said = refused("--port", "0", "--dir", str(tmp_path), *LOG)
    assert str(log) in said


# -- the configuration file ------------------------------------------------------------------------


def test_options_override_included_files(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("stream-node-max-entries 7\nhz 20\n")
    conf = tmp_path / "redis.conf"
    conf.write_text(f'daemonize no\nport 1\ninclude "{tmp_path}/more.conf"\nproto-max-bulk-len 2mb\n')
    before = f"sys.argv.insert(2, {str(conf)!r})"
    with running(tmp_path, "--hz", "30", before=before) as server, server.client() as client:
        for name, value in (("stream-node-max-entries", "7"), ("hz", "30"), ("proto-max-bulk-len", "2097152")):
            assert value.encode() in client.call(f"CONFIG GET {name}")


# -- the Unix socket -------------------------------------------------------------------------------


def _unix(path: Path) -> Client:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TIMEOUT)
    connection.connect(str(path))
    return Client(connection)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_listens_on_a_unix_socket(tmp_path: Path, loop: str) -> None:
    skip_without(loop)
    path = tmp_path / "s"
    with running(tmp_path, "--unixsocket", str(path), loop=loop) as server:
        with _unix(path) as client, server.client() as other:
            assert client.call("SET k v") == b"+OK\r\n"
            assert other.call("GET k") == b"$1\r\nv\r\n"
            line = client.call("CLIENT INFO").decode()
            assert f" addr={path}:0 laddr={path}:0 " in line
            assert " flags=U " in line
        said = refused("--port", "0", "--dir", str(tmp_path), "--unixsocket", str(path))
        assert said == f"rillet: cannot listen on {path}: another server listens there\n"
        assert path.exists()
    assert not path.exists()


def test_a_socket_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with running(tmp_path, "--unixsocket", str(path)) as killed:
        killed.stop(signal.SIGKILL)
    assert path.exists()
    with running(tmp_path, "--unixsocket", str(path)), _unix(path) as client:
        assert client.call("PING") == b"+PONG\r\n"


# -- the end ---------------------------------------------------------------------------------------


def _write_until_it_ends(server: Running, end: str) -> int:
    """Write as fast as possible while the server ends, and return the last acknowledged number."""
    with server.client() as client:
        client.send(*["INCR n"] * 200)
        assert client.reply() == b":1\r\n"
        if end == "SHUTDOWN":
            with server.client() as other:
                other.send("SHUTDOWN")
        else:
            server.process.send_signal(getattr(signal, end))
        last = 1
        with suppress(ConnectionResetError, BrokenPipeError):
            while reply := client.reply():
                assert reply == b":%d\r\n" % (last + 1)
                last += 1
                client.send("INCR n")
    return last


@pytest.mark.parametrize(("loop", "end", "fsync"), [
    ("uvloop", "SIGTERM", "everysec"), ("uvloop", "SIGINT", "no"), ("uvloop", "SHUTDOWN", "everysec"),
    ("uvloop", "SIGKILL", "always"), ("asyncio", "SIGTERM", "everysec"), ("asyncio", "SIGKILL", "always"),
    *long(("asyncio", "SIGINT", "no"), ("asyncio", "SHUTDOWN", "everysec")),
])  # fmt: skip
def test_acknowledged_changes_survive_a_restart(tmp_path: Path, loop: str, end: str, fsync: str) -> None:
    skip_without(loop)
    with running(tmp_path, *LOG, "--appendfsync", fsync, loop=loop) as server:
        acknowledged = _write_until_it_ends(server, end)
        status, errors = server.ended()
    assert status == (-signal.SIGKILL if end == "SIGKILL" else 0), errors
    assert "Traceback" not in errors
    with running(tmp_path, *LOG) as again, again.client() as client:
        assert int(client.call("GET n").split(b"\r\n")[1]) >= acknowledged


def warnings(said: str) -> list[str]:
    """Return the lines of a log with the level warning, but for the last words, which have it in Redis, too."""
    return [line for line in said.splitlines() if " # " in line and not line.endswith("ready to exit, bye bye...")]


def test_blocked_clients_do_not_delay_the_shutdown(tmp_path: Path) -> None:
    with running(tmp_path) as server, server.client() as waiting, server.client() as silent:
        waiting.wait_in("XREAD BLOCK 0 STREAMS s $")
        assert silent.call("PING") == b"+PONG\r\n"
        status, said = server.stop()
        assert status == 0
        assert "Received SIGTERM" in said
        assert warnings(said.split("shutdown...")[-1]) == []
        assert waiting.rest() == silent.rest() == b""


def test_a_client_that_reads_nothing_does_not_delay_the_shutdown(tmp_path: Path) -> None:
    with running(tmp_path) as server, server.client() as slow, server.client() as client:
        client.send("SET big " + "x" * (1 << 20))
        assert client.reply() == b"+OK\r\n"
        slow.send(*["GET big"] * 64)
        assert slow.file.read(1) == b"$"
        status, said = server.stop()
        assert status == 0
        assert "Received SIGTERM" in said
        assert warnings(said.split("shutdown...")[-1]) == []


# -- the log while it runs -------------------------------------------------------------------------


def _stream_and_ttl(client: Client) -> None:
    client.send("XADD s 1-1 f v", "XADD s 2-1 f w", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
                "SET k v", "PEXPIREAT k 99999999999999", "SELECT 3", "SET three 3")  # fmt: skip
    assert not any(client.reply().startswith(b"-") for _ in range(8))


def test_a_log_enabled_later_contains_all_data(tmp_path: Path) -> None:
    with running(tmp_path) as server, server.client() as client:
        _stream_and_ttl(client)
        assert client.call("CONFIG SET appendonly yes") == b"+OK\r\n"
        assert client.call("SET after 1") == b"+OK\r\n"
        client.rewritten()
    with running(tmp_path, *LOG) as server, server.client() as client:
        client.send("SELECT 3", "MGET three after", "SELECT 0", "XPENDING s g", "PEXPIRETIME k", "XLEN s")
        replies = [client.reply() for _ in range(6)]
        assert replies[1] == b"*2\r\n$1\r\n3\r\n$1\r\n1\r\n"
        assert replies[3].startswith(b"*4\r\n:1\r\n")
        assert replies[4:] == [b":99999999999999\r\n", b":2\r\n"]


def test_a_rewrite_in_a_transaction_is_scheduled(tmp_path: Path) -> None:
    with running(tmp_path, *LOG) as server, server.client() as client:
        client.send(*["INCR n"] * 1_000)
        assert [client.reply() for _ in range(1_000)][-1] == b":1000\r\n"
        client.send("MULTI", "INCR n", "BGREWRITEAOF", "INCR n", "EXEC", "INCR n")
        assert [client.reply() for _ in range(6)][-1] == b":1003\r\n"
        client.rewritten()
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.aof")) < 500
    with running(tmp_path, *LOG) as server, server.client() as client:
        assert client.call("GET n") == b"$4\r\n1003\r\n"


def test_a_full_disk_rejects_writes_and_keeps_acknowledged_ones(tmp_path: Path) -> None:
    limit = "import resource, sys; sys.dont_write_bytecode = True"  # one that ends at the limit would stay
    limit += "; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))"
    acknowledged = 0
    with running(tmp_path, *LOG, "--appendfsync", "always", before=limit) as server:
        with server.client() as client:
            while (reply := client.call("INCR n")).startswith(b":"):
                acknowledged = int(reply[1:])
            assert reply.startswith(b"-MISCONF Errors writing to the AOF file: File too large")
        with server.client() as client:
            assert client.call("INCR n").startswith(b"-MISCONF ")
            assert client.call("GET n").startswith(b"$")
        status, errors = server.stop()
        assert status == 0
        assert "writes are refused from now on" in errors
    with running(tmp_path, *LOG) as again, again.client() as client:
        assert int(client.call("GET n").split(b"\r\n")[1]) == acknowledged


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_signal_after_the_end_of_the_shutdown_does_not_change_the_exit_status(tmp_path: Path, loop: str) -> None:
    skip_without(loop)
    late = ("import atexit, os, signal; "
            "atexit.register(lambda: [os.kill(os.getpid(), one) for one in (signal.SIGTERM, signal.SIGINT)])")
    with running(tmp_path, loop=loop, before=late) as server, server.client() as client:
        client.send("SHUTDOWN")
        assert client.rest() == b""
        assert server.ended()[0] == 0
