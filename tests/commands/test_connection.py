"""Connections: authentication, names, lists, and muted replies."""

from __future__ import annotations

import pytest

from tests.commands.ends import Bench


class Transport:
    """A transport like that of a socket: addresses and close()."""

    def __init__(self, peer: str) -> None:
        self.peer, self.local, self.closed = peer, "127.0.0.1:6379", False

    def kill(self) -> None:
        self.closed = True


def test_commands_are_refused_before_the_password_is_given() -> None:
    bench = Bench(requirepass="secret")
    assert bench("GET", "k") == "NOAUTH Authentication required."
    assert bench("HELLO", 3).startswith("NOAUTH HELLO must be called")
    assert bench("AUTH", "wrong").startswith("WRONGPASS")
    assert bench("AUTH", "other", "secret").startswith("WRONGPASS")
    assert bench("AUTH", "secret") == b"OK"
    assert bench("GET", "k") == b"-1"
    assert bench("RESET") == b"RESET"
    assert bench("GET", "k") == "NOAUTH Authentication required."
    introduction = bench("HELLO", 3, "AUTH", "default", "secret", "SETNAME", "me")
    assert introduction[:4] == [b"server", b"redis", b"version", b"7.0.15"]
    assert bench("CLIENT", "GETNAME") == b"me"


def test_hello_changes_nothing_when_it_fails() -> None:
    bench = Bench()
    assert bench("HELLO", 3, "NOSUCH") == "ERR Syntax error in HELLO option 'NOSUCH'"
    assert bench.session.out.resp == 2
    bench("HELLO", 3)
    assert bench.run([b"GET", b"k"]) == b"_\r\n"


def test_reset_restores_the_state_of_a_new_connection() -> None:
    bench = Bench()
    for command in (("HELLO", 3), ("SELECT", 2), ("CLIENT", "SETNAME", "me"), ("WATCH", "k"), ("MULTI",), ("GET", "k")):
        bench(*command)
    bench("RESET")
    assert bench.session.db.index == 0
    assert bench.session.name == b""
    assert bench.session.out.resp == 2
    assert bench("EXEC") == "ERR EXEC without MULTI"
    assert not bench.engine.databases[2].watched_keys


def test_client_reply_off_and_skip_drop_replies() -> None:
    bench = Bench()
    assert bench.run([b"CLIENT", b"REPLY", b"SKIP"]) == b""
    assert bench.run([b"SET", b"k", b"v"]) == b""
    assert bench.run([b"GET", b"k"]) == b"$1\r\nv\r\n"
    assert bench.run([b"CLIENT", b"REPLY", b"OFF"]) == b""
    assert bench.run([b"NOSUCH"]) == b""
    assert bench.run([b"SET", b"k", b"w"]) == b""
    assert bench.run([b"CLIENT", b"REPLY", b"ON"]) == b"+OK\r\n"
    assert bench.run([b"GET", b"k"]) == b"$1\r\nw\r\n"


def test_the_error_for_a_bad_attribute_has_its_name_as_the_client_wrote_it() -> None:
    for name in (b"LIB-NAME", b"Lib-Ver"):
        assert Bench(compat="7.2").run([b"CLIENT", b"SETINFO", name, b"a b"]) == (
            b"-ERR " + name + b" cannot contain spaces, newlines or special characters.\r\n"
        )


def test_client_list_shows_one_line_per_connection() -> None:
    bench = Bench(compat="newest")
    other = bench.beside()
    other.session.transport = Transport("10.0.0.7:1234")
    other("CLIENT", "SETNAME", "other")
    other("CLIENT", "SETINFO", "LIB-NAME", "redis-py")
    other("SELECT", 3)
    other("MULTI")
    other("GET", "k")
    bench.clock.advance(2500)
    lines = bench("CLIENT", "LIST").decode().splitlines()
    fields = dict(field.split("=", 1) for field in lines[1].split(" "))
    expected = {"addr": "10.0.0.7:1234", "name": "other", "db": "3", "multi": "1", "flags": "x", "cmd": "get",
                "age": "2", "user": "default", "resp": "2", "lib-name": "redis-py"}  # fmt: skip
    assert {name: fields[name] for name in expected} == expected
    assert len(lines) == 2
    own = bench("CLIENT", "INFO").decode().rstrip("\n").replace("client|info", "client|list")
    assert own.partition(" rbs=")[0] == lines[0].partition(" rbs=")[0]
    assert bench("CLIENT", "LIST", "ID", other.session.id).decode().splitlines() == lines[1:]
    assert bench("CLIENT", "LIST", "TYPE", "pubsub") == b""


def test_client_kill_closes_the_matching_connections() -> None:
    bench = Bench()
    one, two = bench.beside(), bench.beside()
    one.session.transport, two.session.transport = Transport("10.0.0.1:1"), Transport("10.0.0.2:2")
    assert bench("CLIENT", "KILL", "10.0.0.1:1") == b"OK"
    assert one.session.transport.closed
    assert one.session.closing
    assert not two.session.transport.closed
    assert bench("CLIENT", "KILL", "10.0.0.9:9") == "ERR No such client"
    assert bench("CLIENT", "KILL", "ID", two.session.id, "ADDR", "10.0.0.2:2") == 1
    assert two.session.transport.closed
    assert bench("CLIENT", "KILL", "SKIPME", "no", "ID", bench.session.id) == 1
    assert bench.session.closing


@pytest.mark.parametrize(("reason", "reply"), [
    ((), b"*-1\r\n"), (("TIMEOUT",), b"*-1\r\n"), (("ERROR",), b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"),
])  # fmt: skip
def test_client_unblock_unblocks_a_blocked_connection(reason: tuple[str, ...], reply: bytes) -> None:
    bench = Bench()
    other = bench.beside()
    woken: list[bool] = []
    other.session.on_wake = lambda: woken.append(True)
    assert not bench.engine.execute(other.session, [b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"])
    assert bench("CLIENT", "UNBLOCK", other.session.id, *reason) == 1
    assert other.session.out.take_bytes() == reply
    assert woken == [True]
    assert bench("CLIENT", "UNBLOCK", other.session.id) == 0
    assert not bench.engine.databases[0].blocking_keys
