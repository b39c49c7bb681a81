"""Clients on sockets receive complete replies in order, however the bytes arrive and whatever other clients do."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from rillet.protocol.command_parser import pack_command
from tests.judge import Judge
from tests.server.harness import TIMEOUT, Client, Running, field


def test_a_client_can_use_resp2_and_resp3(client: Client) -> None:
    assert client.call("PING") == b"+PONG\r\n"
    assert client.call("CONFIG GET hz") == b"*2\r\n$2\r\nhz\r\n$2\r\n10\r\n"
    assert client.call("HELLO 3").startswith(b"%7\r\n")
    assert client.call("CONFIG GET hz") == b"%1\r\n$2\r\nhz\r\n$2\r\n10\r\n"
    assert client.call("GET nothing") == b"_\r\n"


def test_inline_commands_are_accepted(client: Client) -> None:
    client.socket.sendall(b'SET k "a\\x00b"\r\n\r\nSTRLEN k\nGET k\r\n')
    assert [client.reply() for _ in range(3)] == [b"+OK\r\n", b":3\r\n", b"$3\r\na\0b\r\n"]


def test_commands_may_arrive_byte_by_byte(client: Client) -> None:
    for byte in pack_command([b"SET", b"k", b"split"]) + b"GET k\r\n":
        client.socket.sendall(bytes((byte,)))
    assert [client.reply(), client.reply()] == [b"+OK\r\n", b"$5\r\nsplit\r\n"]


def test_a_pipeline_of_thousands_of_commands_is_answered(client: Client) -> None:
    client.socket.sendall(b"".join(pack_command([b"INCR", b"n"]) for _ in range(5_000)) + b"*1\r\n$4\r\nPI")
    assert [client.reply() for _ in range(5_000)] == [b":%d\r\n" % number for number in range(1, 5_001)]
    client.socket.sendall(b"NG\r\n")
    assert client.reply() == b"+PONG\r\n"


def test_a_large_value_is_returned(client: Client) -> None:
    value = bytes(range(256)) * 80_000  # 20 MB
    client.socket.sendall(pack_command([b"SET", b"big", value]))
    assert client.reply() == b"+OK\r\n"
    assert client.call("GET big") == b"$%d\r\n%b\r\n" % (len(value), value)


def test_two_hundred_clients_are_served_at_once(server: Running) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(server.client()) for _ in range(200)]
        for one in clients:
            one.send(*["INCR total"] * 10)
        replies = [one.reply() for one in clients for _ in range(10)]
        assert sorted(int(reply[1:]) for reply in replies) == list(range(1, 2_001))
        assert clients[0].info("connected_clients") == "200"


GARBAGE = [
    b"*3\r\n$3\r\nSET\r\n:1\r\n",
    b"*99999999999\r\n",
    b"*1\r\n$-5\r\n",
    b"*1\r\n$9999999999\r\n",
    b"*abc\r\n",
    b'SET "unbalanced\r\n',
    b"*2\r\n$3\r\nGET\r\n\xff\xfe\r\n",
    b"*" + b"1" * 70_000,
    b"$" * 70_000,
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_invalid_input_disconnects_only_that_client(server: Running, judge: Judge, garbage: bytes) -> None:
    with server.client() as other, server.client() as bad:
        assert other.call("SET k v") == b"+OK\r\n"
        assert _answer(bad, garbage) == _answer(Client(_connect(judge.port)), garbage)
        assert other.call("GET k") == b"$1\r\nv\r\n"


@pytest.mark.parametrize("head", [b"POST / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_an_http_request_is_disconnected(server: Running, judge: Judge, head: bytes) -> None:
    def answer(client: Client) -> bytes:
        with client:
            client.socket.sendall(head + b"SET k v\r\n")
            return client.rest()

    # Earlier commands may be answered or not, depending on the time of the disconnect.
    assert b"+OK" not in answer(server.client())
    assert b"+OK" not in answer(Client(_connect(judge.port)))


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)


def _answer(client: Client, garbage: bytes) -> bytes:
    """Return the replies to a valid command and the invalid bytes after it."""
    with client:
        client.socket.sendall(b"PING\r\n" + garbage)
        return client.rest()


def test_commands_sent_before_closing_are_answered(client: Client) -> None:
    client.send(*["INCR n"] * 100)
    client.socket.shutdown(socket.SHUT_WR)
    assert client.rest() == b"".join(b":%d\r\n" % number for number in range(1, 101))


def test_a_slow_reader_delays_no_other_client_and_receives_everything(server: Running, client: Client) -> None:
    size, asked = 1 << 20, 100
    client.socket.sendall(pack_command([b"SET", b"big", b"x" * size]))
    assert client.reply() == b"+OK\r\n"
    with server.client() as slow:
        who = int(slow.call("CLIENT ID")[1:])
        slow.socket.sendall(b"".join(pack_command([b"GET", b"big"]) for _ in range(asked)))
        while int(client.info("total_net_output_bytes")) < asked * size:  # buffered for the client, as in Redis
            pass
        assert all(slow.reply() == b"$%d\r\n%b\r\n" % (size, b"x" * size) for _ in range(asked))
        assert slow.call("PING") == b"+PONG\r\n"
        assert int(field(client, who, "omem")) + int(field(client, who, "obl")) < size


def test_a_client_above_maxclients_is_rejected(server: Running, client: Client) -> None:
    here = int(client.info("connected_clients"))
    assert client.call(f"CONFIG SET maxclients {here}") == b"+OK\r\n"
    try:
        with server.client() as one_more:
            assert one_more.rest() == b"-ERR max number of clients reached\r\n"
    finally:
        assert client.call("CONFIG SET maxclients 10000") == b"+OK\r\n"
    assert int(client.info("rejected_connections")) >= 1


def test_idle_clients_are_disconnected_and_blocked_ones_are_not(server: Running, client: Client) -> None:
    with server.client() as idle, server.client() as waiting:
        waiting.wait_in("XREAD BLOCK 0 STREAMS s $")
        assert idle.call("PING") == b"+PONG\r\n"
        assert client.call("CONFIG SET timeout 1") == b"+OK\r\n"
        try:
            assert idle.rest() == b""
        finally:
            with server.client() as fresh:
                assert fresh.call("CONFIG SET timeout 0") == b"+OK\r\n"
                assert fresh.call("XADD s 1-1 f v") == b"$3\r\n1-1\r\n"
        assert waiting.reply().endswith(b"$1\r\nf\r\n$1\r\nv\r\n")


def test_a_password_is_required(server: Running, client: Client) -> None:
    assert client.call("CONFIG SET requirepass secret") == b"+OK\r\n"
    try:
        with server.client() as outside:
            assert outside.call("GET k").startswith(b"-NOAUTH ")
            many = pack_command([b"DEL", *[b"k"] * 50])
            # After the AUTH in the same write, the limits of unauthenticated clients no longer apply.
            outside.socket.sendall(b"AUTH secret\r\n" + many)
            assert [outside.reply(), outside.reply()] == [b"+OK\r\n", b":0\r\n"]
        with server.client() as outside:
            outside.socket.sendall(many)
            assert outside.rest() == b"-ERR Protocol error: unauthenticated multibulk length\r\n"
    finally:
        client.socket.sendall(pack_command([b"CONFIG", b"SET", b"requirepass", b""]))
        assert client.reply() == b"+OK\r\n"
