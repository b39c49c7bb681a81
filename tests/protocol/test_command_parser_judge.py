"""The command parser compared with a real server: the same commands and error lines for the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from rillet.protocol.command_parser import (
    PROTO_MAX_BULK_LEN,
    QUERY_BUFFER_LIMIT,
    CommandParser,
    pack_command,
    split_args,
)
from rillet.protocol.reply_writer import ReplyWriter
from tests.judge import Judge
from tests.protocol.feeding import ask, commands

GARBAGE = [
    b"*x\r\n", b"*\r\n", b"*01\r\n", b"*+1\r\n", b"* 1\r\n", b"*1 \r\n", b"*-\r\n", b"*--1\r\n", b"*-01\r\n",
    b"*-1\r\n", b"*0\r\n", b"*-0\r\n", b"*1.0\r\n", b"*0x1\r\n", b"*1\n", b"*1\n\r\n", b"*1", b"*1\r", b"*", b"*a\r",
    b"*2147483647\r\n", b"*2147483648\r\n", b"*-2147483649\r\n", b"*9223372036854775807\r\n",
    b"*9223372036854775808\r\n", b"*-9223372036854775808\r\n", b"*-9223372036854775809\r\n",
    b"*18446744073709551616\r\n", b"*99999999999999999999\r\n", b"*999999999999999999999\r\n",
    b"*00000000000000000000001\r\n", b"*1\r\n:4\r\n", b"*1\r\nPING\r\n", b"*1\r\n\r\n", b"*1\r\n\r\n\r\n",
    b"*1\r\n\n\r\n", b"*1\r\n\xff\r\n", b"*1\r\n\x80\r\n", b"*1\r\n\x01\r\n", b"*1\r\n'\r\n", b"*1\r\n*1\r\n",
    b"*1\r\n$\r\n", b"*1\r\n$x\r\n", b"*1\r\n$-1\r\n", b"*1\r\n$-0\r\n", b"*1\r\n$04\r\nPING\r\n",
    b"*1\r\n$+4\r\nPING\r\n", b"*1\r\n$ 4\r\nPING\r\n", b"*1\r\n$4 \r\nPING\r\n", b"*1\r\n$536870912\r\n",
    b"*1\r\n$536870913\r\n", b"*1\r\n$4294967297\r\n", b"*1\r\n$9223372036854775808\r\n",
    b"*1\r\n$99999999999999999999\r\n", b"*1\r\n$4\nPING\r\n", b"*1\r\n$4\rXPINGXX*1\r\nx\r\n",
    b"*2\r\n$4\r\nPING\r\nx\r\n", b"*1\r\n$4\r\nPINGPING\r\n*x\r\n", b"*1\0\r\n", b"*1\r\n$\0\r\n", b"*1\r\n\0\r\n",
    b"*1\r\n$4\0\r\nPING\r\n", b"\0\r\n", b"PI\0NG\r\n", b"PING\0\r\n", b"\r\n", b"\n", b"\r\r\n", b"  \t \r\n",
    b"\v\f\r\n", b'"\r\n', b"'\r\n", b'"a"b\r\n', b"'a'b\r\n", b'"a\\"\r\n', b"a'b\r\n", b'a"b"c\r\n', b'"\\x4\r\n',
    b'"\\xZZ\r\n', b'"\\', b'"PING"\r\n*x\r\n', b"'PING'\t*x\r\n", b"PING\n*x\r\n", b"$4\r\n'\r\n", b"+x 'y\r\n",
    b"\xff\xfe'\r\n", b"'" * 3 + b"\r\n", b'"""\r\n', b"\"''\"x\r\n",
]  # fmt: skip


def protocol_error_of(reply: bytes) -> bytes | None:
    """Return the protocol error at the end of the reply, or None."""
    start = reply.rfind(b"-ERR Protocol error")
    return None if start < 0 else reply[start:]


def our_error(data: bytes, parser: CommandParser | None = None) -> bytes | None:
    """Return the error line that rillet's server would send for these bytes."""
    out = commands([data], parser)
    if not out or not isinstance(out[-1], str):
        return None
    replies = ReplyWriter()
    replies.error(b"ERR " + out[-1].encode("utf-8", "surrogateescape"))
    return replies.take_bytes()


@pytest.mark.parametrize("data", GARBAGE)
def test_error_lines_equal_the_server_s(judge: Judge, data: bytes) -> None:
    reply = ask(judge, b"PING\r\n" + data)
    assert reply.startswith(b"+PONG\r\n")
    assert protocol_error_of(reply) == our_error(b"PING\r\n" + data)


@pytest.mark.parametrize("head", [b"", b"\0", b"*", b"*1\r\n", b"*1\r\n$", b"*1\r\n$1\0"])
@pytest.mark.parametrize("above", [0, 1])
def test_lines_around_64_kib_are_handled_as_by_the_server(judge: Judge, head: bytes, above: int) -> None:
    data = head + b"1" * (65536 + above - len(head.rpartition(b"\n")[2]))
    assert protocol_error_of(ask(judge, data)) == our_error(data)
    assert (our_error(data) is not None) is bool(above)


def strict_parser() -> CommandParser:
    """Return a parser with Valkey's rules."""
    parser = CommandParser()
    parser.strict = True
    return parser


@pytest.mark.peer("valkey")
def test_error_lines_equal_valkey_s(peer_of: Callable[[str], Judge]) -> None:
    valkey = peer_of("valkey")
    for data in GARBAGE:
        reply = ask(valkey, b"PING\r\n" + data)
        assert reply.startswith(b"+PONG\r\n")
        assert protocol_error_of(reply) == our_error(b"PING\r\n" + data, strict_parser()), data


@pytest.mark.peer("valkey")
def test_random_garbage_gives_valkey_s_error(peer_of: Callable[[str], Judge]) -> None:
    _compare_garbage(peer_of("valkey"), strict_parser)


def test_random_garbage_gives_the_server_s_error(judge: Judge) -> None:
    _compare_garbage(judge, CommandParser)


def _compare_garbage(server: Judge, make_parser: Callable[[], CommandParser]) -> None:
    rng = random.Random(11)
    pieces = [
        b"*1\r\n", b"*2\r\n", b"$4\r\n", b"$1\r\n", b"PING", b"\r\n", b"\n", b"\r", b"'", b'"',
        b" ", b"-1", b"0", b"$", b"*",
    ]  # fmt: skip
    refused = 0
    for _ in range(400):
        data = b"".join(rng.choices(pieces, k=rng.randrange(1, 12)))
        ours = our_error(data, make_parser())
        refused += ours is not None
        assert protocol_error_of(ask(server, data)) == ours, data
    assert 50 < refused < 390


def test_inline_quoting_equals_the_server_s(judge: Judge) -> None:
    _compare_quoting(judge, False)


@pytest.mark.peer("valkey")
def test_inline_quoting_equals_valkey_s(peer_of: Callable[[str], Judge]) -> None:
    _compare_quoting(peer_of("valkey"), True)


def _compare_quoting(server: Judge, mixed: bool) -> None:
    rng = random.Random(12)
    pieces = [
        b"a", b"bc", b'"', b"'", b" ", b"\t", b"\v", b"\f", b"\\",
        b"\\x41", b"\\xff", b"\\xg", b"\\n", b"\\b", b"\r", b"\x80",
    ]  # fmt: skip
    client = server.client()
    balanced = 0
    for _ in range(400):
        line = b"RPUSH quoted first " + b"".join(rng.choices(pieces, k=rng.randrange(1, 10)))
        ours = split_args(line, mixed)
        client.delete("quoted")
        reply = ask(server, line, b"\r\n")
        if ours is None:
            assert reply == b"-ERR Protocol error: unbalanced quotes in request\r\n", line
        else:
            balanced += 1
            assert client.lrange("quoted", 0, -1) == ours[2:], line
    client.close()
    assert 50 < balanced < 390


@pytest.fixture
def locked(judge: Judge) -> Iterator[Judge]:
    """The server with a password, so that new connections are unauthenticated."""
    client = judge.client()
    client.config_set("requirepass", "secret")
    yield judge
    client.config_set("requirepass", "")
    client.close()


@pytest.mark.parametrize(
    "data",
    [
        b"*10\r\n",
        b"*11\r\n",
        b"*-11\r\n",
        b"*1\r\n$16384\r\n",
        b"*1\r\n$16385\r\n",
        b"*1\r\n$536870913\r\n",
        b"*9999999999\r\n",
    ],
)
def test_unauthenticated_limits_equal_the_server_s(locked: Judge, data: bytes) -> None:
    parser = CommandParser()
    parser.authenticated = False
    assert protocol_error_of(ask(locked, data)) == our_error(data, parser)


@pytest.fixture
def narrow(judge: Judge) -> Iterator[Judge]:
    """The server with the smallest limits that it accepts."""
    client = judge.client()
    for name in ("proto-max-bulk-len", "client-query-buffer-limit"):
        client.config_set(name, 1024 * 1024)
    yield judge
    client.config_set("proto-max-bulk-len", PROTO_MAX_BULK_LEN)
    client.config_set("client-query-buffer-limit", QUERY_BUFFER_LIMIT)
    client.close()


def test_configured_limits_equal_the_server_s(narrow: Judge) -> None:
    for length in (1024 * 1024, 1024 * 1024 + 1):
        parser = CommandParser()
        parser.proto_max_bulk_len = 1024 * 1024
        data = b"*2\r\n$3\r\nGET\r\n$%d\r\n" % length
        assert protocol_error_of(ask(narrow, data)) == our_error(data, parser)


def test_exceeding_the_query_buffer_limit_closes_the_connection_without_a_reply(narrow: Judge) -> None:
    data = pack_command([b"ECHO", b"x" * (1024 * 1024)])
    assert ask(narrow, data) == b""
