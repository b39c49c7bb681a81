"""TLS of `rillet serve`: certificates, settings, and clients that do not complete the handshake."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.server import tls
from rillet.server.tls import users_in
from tests.authority import Authority, make_authority
from tests.judge import free_port, running_redis
from tests.server.conftest import skip_without
from tests.server.harness import LOOPS, TIMEOUT, Client, Running, connected, launch, running
from tests.variants import by_speed


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = make_authority(tmp_path_factory.mktemp("tls"))
    made.certify("other", "DNS:localhost")
    made.make("ec", "-in", "server.key", "-aes256", "-passout", "pass:secret", "-out", "locked.key")
    return made


def options(authority: Authority, *more: str) -> list[str]:
    """Return the options of a server with TLS."""
    return ["--tls-cert-file", authority.path("server.crt"), "--tls-key-file", authority.path("server.key"),
            "--tls-ca-cert-file", authority.path("ca.crt"), *more]  # fmt: skip


@contextmanager
def serving(tmp_path: Path, authority: Authority, *more: str, **how: Any) -> Iterator[tuple[Running, int]]:
    """Start a server on a TCP port and on one for TLS."""
    port = free_port()
    with running(tmp_path, "--tls-port", str(port), *options(authority), *more, **how) as server:
        yield server, port


def context(authority: Authority, name: str = "client") -> ssl.SSLContext:
    """Return the context of a client; name: its certificate, "" for none."""
    made = ssl.create_default_context(cafile=authority.path("ca.crt"))
    if name:
        made.load_cert_chain(authority.path(f"{name}.crt"), authority.path(f"{name}.key"))
    return made


def secure(port: int, with_context: ssl.SSLContext) -> Client:
    """Return a new connection over TLS."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    return Client(with_context.wrap_socket(plain, server_hostname="localhost"))


def refused(port: int, with_context: ssl.SSLContext) -> bool:
    """Return whether the server ends the handshake, or the connection after it (TLS 1.3)."""
    try:
        with secure(port, with_context) as client:
            return client.call("PING") != b"+PONG\r\n"
    except OSError:
        return True


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_with_a_certificate(tmp_path: Path, authority: Authority, loop: str) -> None:
    """Small and large commands and replies, blocked clients, messages, and the end of the connection."""
    skip_without(loop)
    with serving(tmp_path, authority, loop=loop) as (server, port):
        assert f"{port} (TLS)" in server.banner
        with secure(port, context(authority)) as client, secure(port, context(authority)) as other:
            assert client.call("PING") == b"+PONG\r\n"
            client.send("SET k " + "v" * 3_000_000, *["GET k"] * 3)
            assert client.reply() == b"+OK\r\n"
            assert [len(client.reply()) for _ in range(3)] == [3_000_012] * 3
            client.wait_in("BLPOP list 0")
            assert other.call("RPUSH list a") == b":1\r\n"
            assert client.reply() == b"*2\r\n$4\r\nlist\r\n$1\r\na\r\n"
            assert client.call("SUBSCRIBE news").startswith(b"*3")
            assert other.call("PUBLISH news hello") == b":1\r\n"
            assert client.reply().endswith(b"hello\r\n")
            line = other.call("CLIENT INFO")
            assert f"laddr=127.0.0.1:{port} ".encode() in line
            assert other.call("QUIT") == b"+OK\r\n"
            assert other.rest() == b""
        with server.client() as plain:
            assert plain.call("GET k")[:10] == b"$3000000\r\n"


@pytest.mark.parametrize("loop", LOOPS)
def test_clients_are_served_while_a_script_runs(tmp_path: Path, authority: Authority, loop: str) -> None:
    """A client of before, one that connects meanwhile, garbage, and one that leaves; one of them stops the script."""
    skip_without(loop)
    slow = ("--busy-reply-threshold", "10", "--compat", "7.0")
    with (
        serving(tmp_path, authority, *slow, loop=loop) as (_, port),
        secure(port, context(authority)) as caller, secure(port, context(authority)) as old,
    ):  # fmt: skip
        leaving = secure(port, context(authority))
        for client in (old, leaving):
            assert client.call("PING") == b"+PONG\r\n"  # the event loop has accepted it
        caller.send("EVAL while(1)do(type)(1)end 0")
        leaving.close()
        while (reply := old.call("PING")) == b"+PONG\r\n":
            pass  # the script has not reached the threshold
        assert reply.startswith(b"-BUSY")
        old.send(*["GET k"] * 300)
        assert all(old.reply().startswith(b"-BUSY") for _ in range(300))
        with secure(port, context(authority)) as new:
            assert new.call("GET k").startswith(b"-BUSY")
            with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as garbage:
                garbage.sendall(b"PING\r\n" * 9)
            assert refused(port, context(authority, ""))
            assert new.call("SCRIPT KILL") == b"+OK\r\n"
            assert b"SCRIPT KILL" in caller.reply()
            for client in (caller, old, new):
                assert client.call("SET k v") == b"+OK\r\n"
            assert new.call("QUIT") == b"+OK\r\n"
            assert new.rest() == b""


def test_who_needs_a_certificate(tmp_path: Path, authority: Authority) -> None:
    """tls-auth-clients: a missing certificate, and one of another authority."""
    elsewhere = make_authority(_new(tmp_path / "elsewhere"))
    stranger = context(authority, "")
    stranger.load_cert_chain(elsewhere.path("client.crt"), elsewhere.path("client.key"))
    with serving(_new(tmp_path / "data"), authority) as (server, port), server.client() as plain:
        for value, answers in (("yes", (False, True, True)), ("optional", (False, False, True)),
                               ("no", (False, False, False))):  # fmt: skip
            assert plain.call(f"CONFIG SET tls-auth-clients {value}") == b"+OK\r\n"
            found = tuple(refused(port, one) for one in (context(authority), context(authority, ""), stranger))
            assert found == answers, value


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def subject(port: int, with_context: ssl.SSLContext) -> str:
    """Return the name in the server's certificate."""
    with secure(port, with_context) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        certificate: Any = client.socket.getpeercert()
        return str(dict(part[0] for part in certificate["subject"])["commonName"])


def test_certificates_are_replaced_while_the_server_runs(tmp_path: Path, authority: Authority) -> None:
    """A bad certificate keeps the old one; the error is Redis's. The same name loads a changed file."""
    files = {"ours": _new(tmp_path / "ours"), "theirs": _new(tmp_path / "theirs")}
    replies = []
    for who, folder in files.items():
        for name in ("server.crt", "server.key"):
            shutil.copy(authority.path(name), folder)
        cert, key = folder / "server.crt", folder / "server.key"
        port = free_port()
        given = ("--tls-port", str(port), "--tls-cert-file", str(cert), "--tls-key-file", str(key),
                 "--tls-ca-cert-file", authority.path("ca.crt"), "--tls-auth-clients", "no")  # fmt: skip
        with ExitStack() as stack:
            if who == "ours":
                plain = stack.enter_context(stack.enter_context(running(folder, "--compat", "7.0", *given)).client())
            else:
                plain = stack.enter_context(connected(stack.enter_context(running_redis(*given)).port))
            bare = context(authority, "")
            told: list[Any] = [subject(port, bare)]
            told += [plain.call(f"CONFIG SET tls-cert-file {folder}/none.crt"), subject(port, bare)]
            told += [plain.call(f"CONFIG SET tls-key-file {authority.path('other.key')}"), subject(port, bare)]
            told += [plain.call("CONFIG SET tls-protocols TLSv9"), plain.call("CONFIG SET tls-ciphers nosuch")]
            told += [plain.call("CONFIG GET tls-protocols")]
            shutil.copy(authority.path("other.crt"), cert)
            shutil.copy(authority.path("other.key"), key)
            told += [subject(port, bare), plain.call(f"CONFIG SET tls-cert-file {cert}"), subject(port, bare)]
            told += [plain.call("CONFIG SET tls-port 0"), refused(port, bare)]
            told += [plain.call(f"CONFIG SET tls-port {port}"), subject(port, bare)]
            replies.append(told)
    assert [str(one).replace(str(tmp_path / "theirs"), str(tmp_path / "ours")) for one in replies[0]] == [
        str(one).replace(str(tmp_path / "theirs"), str(tmp_path / "ours")) for one in replies[1]
    ]
    assert "Unable to update TLS configuration. Check server logs." in str(replies[0][1])
    assert replies[0][2::2][:1] == ["server"]
    assert replies[0][-1] == "other"


def test_protocols_ciphers_and_the_servers_order(tmp_path: Path, authority: Authority) -> None:
    with serving(tmp_path, authority, "--tls-auth-clients", "no") as (server, port), server.client() as plain:

        def agreed(maximum: ssl.TLSVersion, ciphers: str = "") -> tuple[str | None, str]:
            wanted = context(authority, "")
            wanted.maximum_version = maximum
            if ciphers:
                wanted.set_ciphers(ciphers)
            with secure(port, wanted) as client:
                assert isinstance(client.socket, ssl.SSLSocket)
                cipher = client.socket.cipher()
                return client.socket.version(), cipher[0] if cipher else ""

        first, second = "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"
        assert agreed(ssl.TLSVersion.TLSv1_3)[0] == "TLSv1.3"
        assert plain.call("CONFIG SET tls-protocols TLSv1.2") == b"+OK\r\n"
        assert agreed(ssl.TLSVersion.TLSv1_3)[0] == "TLSv1.2"
        assert plain.call(f"CONFIG SET tls-ciphers {first}:{second}") == b"+OK\r\n"
        assert agreed(ssl.TLSVersion.TLSv1_2, f"{second}:{first}")[1] == second
        assert plain.call("CONFIG SET tls-prefer-server-ciphers yes") == b"+OK\r\n"
        assert agreed(ssl.TLSVersion.TLSv1_2, f"{second}:{first}")[1] == first
        assert plain.call(f"CONFIG SET tls-ciphers {second}") == b"+OK\r\n"
        assert agreed(ssl.TLSVersion.TLSv1_2, f"{second}:{first}")[1] == second
        assert plain.call("CONFIG SET tls-protocols TLSv1.3") == b"+OK\r\n"
        low = context(authority, "")
        low.maximum_version = ssl.TLSVersion.TLSv1_2
        assert refused(port, low)
        reply = plain.call("CONFIG SET tls-ciphersuites TLS_AES_128_GCM_SHA256")
        if hasattr(ssl.SSLContext, "set_ciphersuites"):
            assert reply == b"+OK\r\n"
            assert agreed(ssl.TLSVersion.TLSv1_3)[1] == "TLS_AES_128_GCM_SHA256"
        else:
            assert b"Unable to update TLS configuration" in reply


def test_a_key_with_a_passphrase_and_parameters_in_a_file(tmp_path: Path, authority: Authority) -> None:
    locked = ("--tls-key-file", authority.path("locked.key"))
    with serving(tmp_path, authority, *locked, "--tls-key-file-pass", "secret") as (_server, port):
        assert not refused(port, context(authority))
    for more, reason in (
        ((*locked, "--tls-key-file-pass", "wrong"), "Failed to load certificate"),
        (("--tls-ca-cert-file", ""), "Either tls-ca-cert-file or tls-ca-cert-dir must be specified"),
        (("--tls-cert-file", ""), "No tls-cert-file configured!"),
        (("--tls-dh-params-file", authority.path("none.pem")), "Failed to load DH params file"),
        (("--tls-dh-params-file", authority.path("ca.crt")), "Failed to load DH params file"),
    ):
        given = ["--port", "0", "--tls-port", str(free_port()), "--dir", str(tmp_path), *options(authority, *more)]
        with launch(given) as process:
            _said, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 1
        assert reason in errors
        assert errors.count("\n") == 1


def test_changed_files_are_loaded_after_an_interval(tmp_path: Path, authority: Authority) -> None:
    cert, key = tmp_path / "server.crt", tmp_path / "server.key"
    shutil.copy(authority.path("server.crt"), cert)
    shutil.copy(authority.path("server.key"), key)
    more = ("--compat", "valkey", "--tls-cert-file", str(cert), "--tls-key-file", str(key),
            "--tls-auto-reload-interval", "1", "--tls-auth-clients", "no")  # fmt: skip
    with serving(tmp_path, authority, *more) as (_server, port):
        bare = context(authority, "")
        assert subject(port, bare) == "server"
        shutil.copy(authority.path("other.key"), key)
        shutil.copy(authority.path("other.crt"), cert)
        while subject(port, bare) == "server":
            threading.Event().wait(0.05)
        assert subject(port, bare) == "other"


def test_garbage_and_half_open_connections_do_not_harm_others(tmp_path: Path, authority: Authority) -> None:
    """Bytes that are not TLS, a truncated handshake, and clients that send nothing."""
    count = by_speed(500, 500, 2000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * count:
        pytest.skip("the limit of open files is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * count), hard))
    log = tmp_path / "log"
    short = "import rillet.server.tls as tls, rillet.server.server as server; server.HANDSHAKE_SECONDS = 2.0"
    with ExitStack() as stack:
        server, port = stack.enter_context(serving(tmp_path, authority, "--maxclients", str(count + 50),
                                                   "--logfile", str(log), before=short))  # fmt: skip
        client = stack.enter_context(secure(port, context(authority)))
        assert client.call("SET k v") == b"+OK\r\n"
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]
        assert client.call("GET k") == b"$1\r\nv\r\n"
        for noise in (b"PING\r\n", b"\x16\x03\x01\x02\x00garbage" + bytes(600), os.urandom(5000), b"\x80" * 70_000):
            with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as one:
                one.sendall(noise)
                _drain(one)
            assert client.call("GET k") == b"$1\r\nv\r\n"
        with stack.enter_context(secure(port, context(authority))) as later:
            assert later.call("PING") == b"+PONG\r\n"
            assert later.info("connected_clients") == "2"
        for one in silent:
            one.settimeout(TIMEOUT)
            _drain(one)  # the server has disconnected it
        assert client.call("GET k") == b"$1\r\nv\r\n"


def _drain(one: socket.socket) -> None:
    """Read until the server disconnects."""
    try:
        while one.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass


def test_clients_in_a_handshake_count_for_maxclients(tmp_path: Path, authority: Authority) -> None:
    with ExitStack() as stack:
        _server, port = stack.enter_context(serving(tmp_path, authority, "--maxclients", "5"))
        client = stack.enter_context(secure(port, context(authority)))
        for _ in range(4):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        while client.call("PING") and not refused(port, context(authority)):
            threading.Event().wait(0.01)
        assert client.call("PING") == b"+PONG\r\n"


def test_rillets_own_client_and_redis_cli(tmp_path: Path, authority: Authority) -> None:
    """rillet.connect("rediss://...") and the tools of Redis."""
    with serving(tmp_path, authority) as (_server, port):
        files = [("ssl_ca_certs", "ca.crt"), ("ssl_certfile", "client.crt"), ("ssl_keyfile", "client.key")]
        query = "&".join(f"{name}={authority.path(file)}" for name, file in files)
        with rillet.connect(f"rediss://localhost:{port}?{query}") as store:
            stream = store.stream("s")
            stream.add({"a": "1"})
            assert [message.fields for message in stream.read()] == [{"a": "1"}]
        for tool, words, expected in (("redis-cli", ("XLEN", "s"), "1"),
                                      ("redis-benchmark", ("-n", "500", "-P", "8", "-q", "PING"), "requests per sec")):
            program = shutil.which(tool)
            if program is None:
                continue
            given = [program, "-p", str(port), "--tls", "--cacert", authority.path("ca.crt"), "--cert",
                     authority.path("client.crt"), "--key", authority.path("client.key"), *words]  # fmt: skip
            done = subprocess.run(given, capture_output=True, text=True, timeout=TIMEOUT)
            if "Unrecognized option" not in done.stdout + done.stderr:  # built without TLS
                assert expected in done.stdout, done


def test_the_user_in_a_certificate() -> None:
    certificate = {"subject": ((("countryName", "CH"),), (("commonName", "alice"),)),
                   "subjectAltName": (("DNS", "a"), ("URI", "urn:alice"), ("URI", "urn:b"))}  # fmt: skip
    found = [users_in(certificate, field) for field in ("off", "CN", "URI")]
    assert found == [[], ["alice"], ["urn:alice", "urn:b"]]
    assert [users_in({}, field) for field in ("off", "CN", "URI")] == [[], [], []]


def test_a_certificate_is_a_login(tmp_path: Path, authority: Authority) -> None:
    """tls-auth-clients-user: the common name, or in Valkey also a URI; otherwise an entry of ACL LOG."""
    authority.certify("bob", "DNS:bob,URI:urn:first,URI:urn:bob")
    for compat, field, name in (("newest", "CN", "bob"), ("valkey", "URI", "urn:bob")):
        more = ("--compat", compat, "--tls-auth-clients-user", field)
        with serving(tmp_path, authority, *more) as (server, port), server.client() as plain:
            with secure(port, context(authority, "bob")) as client:
                assert client.call("ACL WHOAMI") == b"$7\r\ndefault\r\n"
            assert b"tls-cert" in plain.call("ACL LOG")
            assert plain.call(f"ACL SETUSER {name} on +acl|whoami") == b"+OK\r\n"
            with secure(port, context(authority, "bob")) as client:
                assert name.encode() in client.call("ACL WHOAMI")
                assert client.call("GET k").startswith(b"-NOPERM")
            assert plain.call(f"ACL SETUSER {name} off") == b"+OK\r\n"
            with secure(port, context(authority, "bob")) as client:
                assert client.call("ACL WHOAMI") == b"$7\r\ndefault\r\n"
        assert plain.socket.fileno() == -1


def test_the_handshake_has_ten_seconds() -> None:
    assert tls.HANDSHAKE_SECONDS == 10
