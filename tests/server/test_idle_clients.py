"""Thousands of clients that only wait: what they cost, and that others are served meanwhile."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

import rillet
from rillet.runtime.session import Session
from tests.judge import running_redis
from tests.server.harness import TIMEOUT, Client, Running, running

MANY = 2000
# Of complete commands: a part of each is sent first, and the rest later.
HALVES = [(b"*1", b"\r\n$4\r\nPING\r\n"), (b"*1\r\n$4\r\nPI", b"NG\r\n"), (b"PI", b"NG\r\n"), (b"", b"PING\n"),
          (b"*", b"1\r\n$4\r\nPING\r\n"), (b"*1\r\n$4\r\nPING\r", b"\n")]  # fmt: skip


@pytest.fixture(autouse=True)
def many_files() -> None:
    """Permit this process as many sockets as the tests open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * MANY:
        pytest.skip("the limit of open files is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * MANY), hard))


def _resident(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * resource.getpagesize()


def _growth(port: int, pid: int) -> float:
    """Return the bytes by which a server grows for each client that connects and sends no command."""
    with ExitStack() as stack:
        client = stack.enter_context(Client(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)))
        assert client.call("PING") == b"+PONG\r\n"
        before = _resident(pid)
        for _ in range(MANY):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        while client.info("connected_clients") != str(MANY + 1):
            pass
        return (_resident(pid) - before) / MANY


@pytest.mark.skipif(not rillet.compiled(), reason="the sizes of compiled classes")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
def test_memory_of_clients_that_only_connected(tmp_path: Path) -> None:
    """At most 1.6 times that of redis-server; `python -m benchmarks connections` measures more clients."""
    with running_redis() as judge:
        theirs = _growth(judge.port, judge.process.pid)
    with running(tmp_path, fresh=True) as server:
        assert _growth(server.port, server.process.pid) < 1.6 * theirs


def test_half_open_connections_do_not_harm_others(server: Running, client: Client) -> None:
    """A part of a command waits for its rest; clients that vanish meanwhile are forgotten."""
    assert client.call("SET k v") == b"+OK\r\n"
    with ExitStack() as stack:
        clients = [stack.enter_context(server.client()) for _ in range(MANY)]
        for number, one in enumerate(clients):
            one.socket.sendall(HALVES[number % len(HALVES)][0])
        while client.info("connected_clients") != str(MANY + 1):
            pass
        assert client.call("GET k") == b"$1\r\nv\r\n"
        for one in clients[: MANY // 2]:
            one.close()
        for number, one in enumerate(clients[MANY // 2 :], MANY // 2):
            one.socket.sendall(HALVES[number % len(HALVES)][1])
            assert one.reply() == b"+PONG\r\n"
    while client.info("connected_clients") != "1":
        pass
    assert client.call("GET k") == b"$1\r\nv\r\n"


def test_a_client_is_rejected_when_nearly_all_files_are_in_use(tmp_path: Path) -> None:
    """Files that are not clients count, too: here the process has opened 100 of 300 before it serves."""
    files = "import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300)); " \
            "files = [os.open('/dev/null', os.O_RDONLY) for _ in range(100)]"  # fmt: skip
    with running(tmp_path, "--maxclients", "250", before=files) as server, ExitStack() as stack:
        replies = [b"+PONG\r\n"]
        while replies[-1] == b"+PONG\r\n":
            one = stack.enter_context(server.client())
            one.send("PING")
            replies.append(one.reply())
        assert replies[-1] == b"-ERR max number of clients reached\r\n"
        assert 130 < len(replies) < 170


def test_sessions_share_what_is_empty_and_nothing_else(engine_sessions: tuple[Session, Session]) -> None:
    one, other = engine_sessions
    one.remember("no_evict", True)
    one.watch(b"k")
    one.engine.execute(one, [b"MULTI"])
    one.engine.execute(one, [b"PING"])
    assert one.extra == {"no_evict": True}
    assert other.extra == {}
    assert len(one.watcher.keys) == 1
    assert not other.watcher.keys
    assert len(one.queue) == 1
    assert len(other.queue) == 0
    assert one.out.take_bytes() == b"+OK\r\n+QUEUED\r\n"
    assert other.out.take_bytes() == b""
    one.unwatch()
    assert not one.watcher.keys
    assert not one.db.watched_keys


def test_the_commands_of_a_script_count_for_its_session_alone(engine_sessions: tuple[Session, Session]) -> None:
    pytest.importorskip("lupa")
    one, other = engine_sessions
    for _ in range(2):
        one.engine.execute(one, [b"EVAL", b"redis.call('PING') return redis.call('PING')", b"0"])
    assert one.extra == {"of_scripts": 4}
    assert other.extra == {}


@pytest.fixture
def engine_sessions() -> tuple[Session, Session]:
    """Two sessions of one engine."""
    from rillet.runtime.engine import Engine

    engine = Engine()
    return engine.session(), engine.session()
