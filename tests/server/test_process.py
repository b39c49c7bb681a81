"""Settings of the process: pid file, background, supervision, title, OOM score, log formats, syslog, open files."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rillet.protocol.command_parser import pack_command
from rillet.runtime.settings.settings import Settings
from rillet.server.process import Process
from tests.judge import await_ready, free_port, running_redis
from tests.server.harness import TIMEOUT, connected, launch, running
from tests.server.test_refused_values import STREAMS
from tests.structs.dump_payload import sealed

linux = pytest.mark.skipif(sys.platform != "linux", reason="a feature of Linux")


def test_a_pid_file_exists_while_the_server_runs(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with running(tmp_path, "--pidfile", str(pid_file)) as server:
        assert int(pid_file.read_text()) == server.process.pid
    assert not pid_file.exists()


def test_a_server_in_the_background(tmp_path: Path) -> None:
    """daemonize: the first process ends, and the server runs without a terminal, in its own session."""
    pid_file, log, port = tmp_path / "pid", tmp_path / "log", free_port()
    given = ["--port", str(port), "--dir", str(tmp_path), "--daemonize", "yes", "--pidfile", str(pid_file),
             "--logfile", str(log)]  # fmt: skip
    with launch(given) as process:
        assert process.wait(timeout=TIMEOUT) == 0
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    try:
        await_ready(port, sleeper)
    finally:
        sleeper.kill()
        sleeper.wait()
    with connected(port) as client:
        pid = int(client.info("process_id"))
        assert pid == int(pid_file.read_text()) != process.pid
        assert os.getsid(pid) == pid
        client.send("SHUTDOWN NOSAVE")
        assert client.rest() == b""
    assert "Ready to accept connections" in log.read_text()


def test_systemd_is_notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notify"
    for mode in ("systemd", "auto", "no"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(path))
            monkeypatch.setenv("NOTIFY_SOCKET", str(path))
            with running(tmp_path, "--supervised", mode):
                pass
            manager.setblocking(False)
            told = b""
            while mode != "no" and b"STOPPING=1" not in told:
                told += manager.recv(4096)
            assert (b"READY=1" in told) == (mode != "no")
        path.unlink()


def test_the_watchdog_of_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life while the event loop runs; none for another process, and none while it hangs."""
    path = tmp_path / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(TIMEOUT)
        with running(tmp_path, "--supervised", "auto") as server:
            assert b"READY=1" in manager.recv(4096)
            assert [manager.recv(4096) for _ in range(3)] == [b"WATCHDOG=1\n"] * 3
            server.process.send_signal(signal.SIGSTOP)
            manager.settimeout(0.5)
            with contextlib.suppress(TimeoutError):
                while True:
                    manager.recv(4096)
            with pytest.raises(TimeoutError):
                manager.recv(4096)
            server.process.send_signal(signal.SIGCONT)
        manager.settimeout(TIMEOUT)
        while b"STOPPING=1" not in manager.recv(4096):
            pass
        for pid, signs in ((str(os.getpid()), [b"WATCHDOG=1\n"]), ("1", [])):
            monkeypatch.setenv("WATCHDOG_PID", pid)
            process = Process(Settings(supervised="systemd"))
            for step in (process.ready, process.watch, process.watch, process.stopped):
                step()
            assert b"READY=1" in manager.recv(4096)
            assert [manager.recv(4096) for _ in (*signs, "end")] == [*signs, b"STOPPING=1\n"]


@linux
def test_upstart_gets_its_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTART_JOB", "rillet")
    with launch(["--port", str(free_port()), "--dir", str(tmp_path), "--supervised", "upstart"], fresh=True) as process:
        _pid, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        os.kill(process.pid, signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT)


def _title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()


@linux
def test_the_title_of_the_process(tmp_path: Path) -> None:
    with running(tmp_path, "--set-proc-title", "no", fresh=True) as server:
        assert "rillet.cli" in _title(server.process.pid)
    with running(tmp_path, "--bind", "127.0.0.1", fresh=True) as server, server.client() as client:
        assert _title(server.process.pid) == f"rillet 127.0.0.1:{server.port}"
        assert client.call("CONFIG SET proc-title-template {port}:{{x}:{config-file}") == b"+OK\r\n"
        assert _title(server.process.pid) == f"{server.port}:{{x}}:-"
        other = free_port()
        assert client.call(f"CONFIG SET port {other}") == b"+OK\r\n"
        assert _title(server.process.pid) == f"{other}:{{x}}:-"


def _oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


@linux
def test_the_score_for_the_oom_killer(tmp_path: Path) -> None:
    """Relative and absolute scores, those of a child, and the score after `no`."""
    with running(tmp_path, "--oom-score-adj", "absolute", "--oom-score-adj-values", "10", "20", "700",
                 "--rdb-key-save-delay", "60000000", "--save", "") as server, server.client() as client:  # fmt: skip
        pid = server.process.pid
        assert _oom_score(pid) == 10
        client.call("SET k v")
        assert client.call("BGSAVE").startswith(b"+Background")
        child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        # The child sets its score after the fork.
        deadline = time.monotonic() + TIMEOUT
        while _oom_score(child) != 700:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        base = _oom_score(os.getpid())
        assert client.call("CONFIG SET oom-score-adj no") == b"+OK\r\n"
        assert _oom_score(pid) == base
        assert client.call("CONFIG SET oom-score-adj relative") == b"+OK\r\n"
        assert _oom_score(pid) == min(base + 10, 1000)  # the kernel's largest
        os.kill(child, signal.SIGKILL)


@linux
def test_huge_pages_and_the_crash_log(tmp_path: Path) -> None:
    for value in ("yes", "no"):
        with running(tmp_path, "--disable-thp", value, "--crash-log-enabled", value) as server:
            status = Path(f"/proc/{server.process.pid}/status").read_text()
            enabled = re.search(r"THP_enabled:\s+(\d)", status)
            if enabled is not None:
                assert enabled.group(1) == ("0" if value == "yes" else "1")
            server.process.send_signal(signal.SIGSEGV)
            _said, errors = server.process.communicate(timeout=TIMEOUT)
            assert ("Fatal Python error: Segmentation fault" in errors) == (value == "yes")


def _said(tmp_path: Path, *more: str) -> str:
    log = tmp_path / "log"
    log.unlink(missing_ok=True)
    with running(tmp_path, "--logfile", str(log), *more):
        pass
    return next(line for line in log.read_text().splitlines() if "Ready to accept" in line)


def test_the_formats_of_the_log(tmp_path: Path) -> None:
    """log-format and log-timestamp-format, as in Valkey."""
    legacy, iso, ms = r"\d\d \w{3} \d{4} [\d:.]{12}", r"\d{4}-\d\d-\d\dT[\d:.]{12}[+-]\d\d:\d\d", r"\d{13}"
    text = "Ready to accept connections"
    assert re.fullmatch(rf"\d+:M {legacy} \* {text}", _said(tmp_path))
    line = _said(tmp_path, "--log-format", "logfmt", "--log-timestamp-format", "iso8601")
    assert re.fullmatch(rf'pid=\d+ role=primary timestamp="{iso}" level=notice message="{text}"', line)
    fields = json.loads(_said(tmp_path, "--log-format", "json", "--log-timestamp-format", "milliseconds"))
    assert re.fullmatch(ms, fields.pop("timestamp"))
    assert fields.pop("pid") > 0
    assert fields == {"role": "primary", "level": "notice", "message": text}


def test_the_log_goes_to_syslog(tmp_path: Path) -> None:
    device = Path("/dev/log")
    if os.geteuid() or device.exists():
        pytest.skip("needs root and a system without syslog, whose socket the test takes")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(device))
        daemon.settimeout(TIMEOUT)
        try:
            with running(tmp_path, "--syslog-enabled", "yes", "--syslog-ident", "my", "--syslog-facility", "local3"):
                line = daemon.recv(4096).decode()
        finally:
            device.unlink()
    assert line.startswith(f"<{19 * 8 + 5}>")  # local3, notice
    assert re.search(r" my\[\d+\]: ", line)


def test_the_log_can_hide_the_data_of_users(tmp_path: Path) -> None:
    for compat, value, shown in (("newest", "no", True), ("newest", "yes", False), ("valkey", "", False)):
        log = tmp_path / f"{compat}{value}"
        more = ("--hide-user-data-from-log", value) if value else ()
        given = ("--compat", compat, "--loglevel", "verbose", "--logfile", str(log), *more)
        with running(tmp_path, *given) as server, server.client() as client:
            client.socket.sendall(pack_command([b"RESTORE", b"secret", b"0", sealed(STREAMS["a consumer twice"])]))
            assert client.reply() == b"-ERR Bad data format\r\n"
        assert ("secret" in log.read_text()) == shown
        assert "RESTORE of" in log.read_text()


@linux
def test_the_limit_of_open_files_follows_maxclients(tmp_path: Path) -> None:
    """It is raised where that is possible; otherwise maxclients is reduced, and CONFIG SET fails."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 10100))"
    with running(tmp_path, "--maxclients", "5000", before=limit) as server:
        assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[0] == 5032
        with server.client() as client:
            assert client.call("CONFIG SET maxclients 9000") == b"+OK\r\n"
        assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[0] == 9032
    replies = []
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))"
    # Without its capabilities, root may not raise the hard limit.
    drop = "import ctypes; ctypes.CDLL(None).capset((ctypes.c_uint * 2)(0x20080522, 0), (ctypes.c_uint * 6)())"
    with running(tmp_path, "--maxclients", "5000", before=f"{limit}; {drop}") as server, server.client() as client:
        told = "".join(server.told)
        replies += [client.call("CONFIG GET maxclients"), client.call("CONFIG SET maxclients 5000")]
    assert "maxclients has been reduced to 168" in told
    assert replies[0].endswith(b"$3\r\n168\r\n")
    assert replies[1].endswith(b"is not able to handle the specified number of clients, try with 168\r\n")


@linux
def test_more_clients_run_the_periodic_jobs_more_often() -> None:
    from rillet.runtime.engine import Engine
    from rillet.server.server import Server

    server = Server(Engine(Settings()))
    server.connections = dict.fromkeys(range(5000))  # type: ignore[arg-type]
    assert server.hz() == 40
    server.settings.set_text("dynamic-hz", "no")
    assert server.hz() == 10


def test_renamed_commands(tmp_path: Path) -> None:
    """A new name, no name, the log, and the errors, beside redis-server."""
    conf = tmp_path / "redis.conf"
    conf.write_text('rename-command SET put\nrename-command FLUSHALL ""\nrename-command config cfg\nsave ""\n')
    calls = ("SET k v", "PUT k v", "put k w", "GET k", "FLUSHALL", "flushall", "CONFIG GET hz", "cfg GET hz",
             "MULTI", "SET k x", "EXEC", "MULTI", "PUT k y", "EXEC", "GET k")  # fmt: skip
    given, before = ("--appendonly", "yes", "--compat", "7.0"), f"sys.argv.insert(2, {str(conf)!r})"
    with running(tmp_path, *given, before=before) as ours, ours.client() as client:
        mine = [client.call(call) for call in calls]
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    with running_redis(conf=conf, folder=theirs) as judge, connected(judge.port) as client:
        assert mine == [client.call(call) for call in calls]
    with running(tmp_path, *given, before=before) as ours, ours.client() as client:
        assert client.call("GET k") == b"$1\r\ny\r\n"
    for line, reason in (("rename-command nosuch x", "No such command in rename-command"),
                         ("rename-command get set", "Target command name already exists")):  # fmt: skip
        conf.write_text(f"{line}\n")
        with launch([str(conf), "--port", str(free_port()), "--dir", str(tmp_path)]) as process:
            _out, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 1
        assert errors == f"rillet: {conf}, line 1: '{line}': {reason}\n"


def test_valkey_s_names_in_hello(tmp_path: Path) -> None:
    with running(tmp_path, "--compat", "valkey", "--availability-zone", "zone-a") as server, server.client() as client:
        told = client.call("HELLO")
        assert b"valkey" in told
        assert b"availability_zone\r\n$6\r\nzone-a\r\n" in told
        assert client.call("CONFIG SET extended-redis-compatibility yes availability-zone zone-b") == b"+OK\r\n"
        told = client.call("HELLO")
        assert b"valkey" not in told
        assert b"$5\r\nredis\r\n" in told
        assert b"zone-b" in told
        assert all(b"Redis ver. 7.2.4" in client.call(f"LOLWUT {words}") for words in ("", "VERSION 5", "VERSION 9"))
        client.call("CONFIG SET extended-redis-compatibility no")
        assert b"Valkey ver. " in client.call("LOLWUT")


def test_hello_shows_whether_the_server_follows_a_master(tmp_path: Path) -> None:
    with running(tmp_path) as server, server.client() as client:
        assert client.call("HELLO").endswith(b"$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n")
        client.call("REPLICAOF 127.0.0.1 1")
        assert b"$4\r\nrole\r\n$7\r\nreplica\r\n" in client.call("HELLO")
        client.call("REPLICAOF NO ONE")
        assert b"$4\r\nrole\r\n$6\r\nmaster\r\n" in client.call("HELLO")
