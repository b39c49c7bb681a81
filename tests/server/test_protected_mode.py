"""protected-mode from another network namespace, the permissions of the Unix socket, and the options of sockets."""

from __future__ import annotations

import grp
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rillet.server.protected_mode import denied, is_local
from rillet.types.compat import COMPATS
from tests.judge import PEERS, free_port, required_binary, running_redis
from tests.replication.fake_replica import FakeReplica
from tests.server.conftest import skip_without
from tests.server.harness import LOOPS, TIMEOUT, Client, running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="network namespaces and /proc")
# Addresses that only this run of the tests uses.
_HERE, _THERE = (f"10.213.{os.getpid() % 250}.{number}" for number in (1, 2))
# Connects from the namespace, and prints the reply to a PING, and after DENIED all bytes until the end.
_PROBE = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as one:
    told = b""
    try:
        one.sendall(b"PING\\r\\n")
        while (not told.endswith(b"\\r\\n") or told.startswith(b"-DENIED")) and (data := one.recv(65536)):
            told += data
    except ConnectionResetError:
        pass
sys.stdout.buffer.write(told)
"""


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A network namespace that reaches this one through _HERE."""
    name = f"rillet{os.getpid()}"
    commands = (f"netns add {name}", f"link add {name[:12]}a type veth peer name {name[:12]}b netns {name}",
                f"addr add {_HERE}/24 dev {name[:12]}a", f"link set {name[:12]}a up",
                f"-n {name} addr add {_THERE}/24 dev {name[:12]}b", f"-n {name} link set {name[:12]}b up")  # fmt: skip
    if shutil.which("ip") is None:
        pytest.skip("needs ip (Debian: iproute2)")
    try:
        for command in commands:
            done = subprocess.run(["ip", *command.split()], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"no network namespace: {done.stderr.strip()}")
        yield name
    finally:
        subprocess.run(["ip", "link", "del", f"{name[:12]}a"], capture_output=True)
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


def from_elsewhere(namespace: str, port: int) -> bytes:
    """Return what a client in the namespace receives after a PING."""
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", _PROBE, _HERE, str(port)]
    return subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=True).stdout


@pytest.mark.peer
@pytest.mark.parametrize("compat", PEERS)
def test_other_hosts_are_refused_without_a_password(tmp_path: Path, namespace: str, compat: str) -> None:
    """The same replies as the server of `compat`, also after CONFIG SET; local clients are served."""
    changes = ("requirepass secret", "requirepass ''", "protected-mode no", "protected-mode yes")
    told = []
    for who in ("ours", "theirs"):
        with ExitStack() as stack:
            if who == "ours":
                given = ("--compat", compat, "--bind", "0.0.0.0", "--unixsocket", str(tmp_path / "socket"))
                server = stack.enter_context(running(tmp_path, *given))
                port = server.port
                with Client(_unix(tmp_path / "socket")) as local:
                    assert local.call("PING") == b"+PONG\r\n"
            else:
                judge = running_redis("--bind", "0.0.0.0", binary=required_binary(compat))
                port = stack.enter_context(judge).port
            client = stack.enter_context(Client(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)))
            replies = [from_elsewhere(namespace, port)]
            for change in changes:
                client.call("AUTH secret")
                words = ["CONFIG", "SET", *(word.strip("'") for word in change.split())]
                client.socket.sendall(b"*4\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(w), w.encode()) for w in words))
                assert client.reply() == b"+OK\r\n"
                replies.append(from_elsewhere(namespace, port))
            told.append(replies)
    assert told[0][0].startswith(b"-DENIED ")
    assert told[0] == told[1]


def _unix(path: Path) -> socket.socket:
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(TIMEOUT)
    one.connect(str(path))
    return one


@pytest.mark.parametrize("loop", LOOPS)
def test_tls_and_asyncio_refuse_other_hosts_too(tmp_path: Path, namespace: str, loop: str) -> None:
    skip_without(loop)
    with running(tmp_path, "--bind", "0.0.0.0 ::", loop=loop) as server, server.client() as client:
        assert from_elsewhere(namespace, server.port) == denied(COMPATS["newest"])
        assert client.info("rejected_connections") == "1"
        assert client.call("PING") == b"+PONG\r\n"


def test_which_addresses_are_local() -> None:
    for compat, second in (("7.0", False), ("7.2", True), ("valkey", True)):
        found = [is_local(host, COMPATS[compat]) for host in ("127.0.0.1", "127.0.0.2", "::1", "::2", "10.0.0.1")]
        assert found == [True, second, True, False, False]


def test_the_permissions_of_the_unix_socket(tmp_path: Path) -> None:
    """They are set before the first client can connect: the socket does not listen until then."""
    path = tmp_path / "socket"
    watch = ("import os, socket; listen = socket.socket.listen; socket.socket.listen = lambda one, *more: ("
             "print('mode', oct(os.stat(one.getsockname()).st_mode & 0o777), flush=True) "
             "if one.family == socket.AF_UNIX else None, listen(one, *more))[1]")  # fmt: skip
    group = grp.getgrgid(os.getgid()).gr_name
    for given, mode in ((("--unixsocketperm", "700"), 0o700), (("--unixsocketperm", "770"), 0o770),
                        (("--unixsocketgroup", group), None)):  # fmt: skip
        with running(tmp_path, "--unixsocket", str(path), *given, before=watch) as server:
            with Client(_unix(path)) as client:
                assert client.call("PING") == b"+PONG\r\n"
            found = stat.S_IMODE(path.stat().st_mode)
            assert f"mode {oct(found)}\n" in server.told
            assert mode is None or found == mode
            assert path.stat().st_gid == os.getgid()


def _option(client: Client, server: int, level: int, option: int) -> int:
    """Return an option of the server's side of a connection, through a copy of its descriptor."""
    return _option_of(client.call("CLIENT INFO"), server, level, option)


def _option_of(line: bytes, server: int, level: int, option: int) -> int:
    """Return an option of the server's side of the connection that a line of CLIENT LIST describes."""
    number = int(next(word for word in line.split() if word.startswith(b"fd="))[3:])
    pidfd = os.pidfd_open(server)
    try:
        import ctypes

        copy = ctypes.CDLL(None, use_errno=True).syscall(438, pidfd, number, 0)  # pidfd_getfd
        if copy < 0:
            pytest.skip("needs the permission to copy descriptors of another process")
        with socket.socket(fileno=copy) as same:
            return same.getsockopt(level, option)
    finally:
        os.close(pidfd)


@pytest.mark.parametrize("loop", LOOPS)
def test_keepalive_is_set_on_every_socket(tmp_path: Path, loop: str) -> None:
    skip_without(loop)
    with running(tmp_path, loop=loop) as server, server.client() as first:
        pid = server.process.pid
        for seconds in (300, 60, 0):
            assert first.call(f"CONFIG SET tcp-keepalive {seconds}") == b"+OK\r\n"
            with server.client() as client:
                assert bool(_option(client, pid, socket.SOL_SOCKET, socket.SO_KEEPALIVE)) == bool(seconds)
                if seconds:
                    assert _option(client, pid, socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == seconds
                    assert _option(client, pid, socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == seconds // 3
                assert _option(client, pid, socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_small_packets_for_a_replica_may_be_delayed(tmp_path: Path) -> None:
    arguments = ("--save", "", "--repl-diskless-sync-delay", "0")
    for value in ("yes", "no"):
        with (running(tmp_path, *arguments, "--repl-disable-tcp-nodelay", value) as server, server.client() as client,
              FakeReplica(server.port) as replica):  # fmt: skip
            replica.follow()
            line = client.call("CLIENT LIST TYPE replica")
            found = _option_of(line, server.process.pid, socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert bool(found) == (value == "no")


def test_packets_have_a_mark(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root may mark packets")
    with running(tmp_path, "--socket-mark-id", "77") as server, server.client() as client:
        assert _option(client, server.process.pid, socket.SOL_SOCKET, 36) == 77


@pytest.mark.parametrize("loop", LOOPS)
def test_addresses_change_while_the_server_runs(tmp_path: Path, loop: str) -> None:
    """CONFIG SET of bind and port; a failure keeps the old addresses. The replies are Redis's."""
    skip_without(loop)
    told = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy, other = taken.getsockname()[1], free_port()
        for who in ("ours", "theirs"):
            with ExitStack() as stack:
                if who == "ours":
                    port = stack.enter_context(running(tmp_path, "--bind", "127.0.0.1", loop=loop)).port
                else:
                    port = stack.enter_context(running_redis()).port
                first = stack.enter_context(Client(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)))

                def reach(host: str, number: int) -> bool:
                    try:
                        with Client(socket.create_connection((host, number), timeout=TIMEOUT)) as client:
                            return client.call("PING") == b"+PONG\r\n"
                    except ConnectionRefusedError:
                        return False

                replies: list[object] = []
                for value in (f"port {busy}", f"port {other}", "bind 127.0.0.2", "bind 192.0.2.1", f"port {port}"):
                    replies += [first.call(f"CONFIG SET {value}"), reach("127.0.0.1", port), reach("127.0.0.2", port),
                                reach("127.0.0.1", other), reach("127.0.0.2", other)]  # fmt: skip
                assert first.call("PING") == b"+PONG\r\n"
                told.append(replies)
    assert told[0] == told[1]
