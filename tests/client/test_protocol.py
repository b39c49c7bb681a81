"""The protocol of a connection, driven without a socket."""

from __future__ import annotations

import pytest

from rillet.client.address import Address
from rillet.client.errors import ConnectorError
from rillet.client.protocol import ClientProtocol, pack, pack_all
from rillet.protocol.reply_parser import INCOMPLETE, ReplyError


def test_commands_become_resp_arrays() -> None:
    assert pack(b"XLEN", b"s") == b"*2\r\n$4\r\nXLEN\r\n$1\r\ns\r\n"
    assert pack_all([(b"PING",), (b"PING",)]) == pack(b"PING") * 2


def test_a_connection_without_password_and_database_sends_no_opening() -> None:
    protocol = ClientProtocol(Address())
    assert protocol.open() == b""
    assert protocol.opened


def test_replies_are_read_from_single_bytes_behind_the_opening() -> None:
    protocol = ClientProtocol(Address(user="ann", password="p", db=3))
    assert protocol.open() == pack_all([(b"AUTH", b"ann", b"p"), (b"SELECT", b"3")])
    assert not protocol.opened
    replies = []
    for byte in b"+OK\r\n+OK\r\n:5\r\n-WRONGTYPE no\r\n*1\r\n$1\r\nx\r\n":
        protocol.feed(bytes([byte]))
        reply = protocol.next_reply()
        if reply is not INCOMPLETE:
            replies.append(reply)
    assert protocol.opened
    assert replies[0] == 5
    assert isinstance(replies[1], ReplyError)
    assert replies[1].prefix == "WRONGTYPE"
    assert replies[2] == [b"x"]


@pytest.mark.parametrize(
    ("received", "text"),
    [
        (b"-WRONGPASS no\r\n", "^rillet: 127.0.0.1:6379 .* refused the password: WRONGPASS no$"),
        (b"+OK\r\n-ERR DB index is out of range\r\n", "refused SELECT: ERR DB index"),
        (b"HTTP/1.1 400\r\n", "does not answer in Redis's protocol .if the server requires TLS"),
    ],
)
def test_a_refused_opening_and_bytes_that_are_not_resp_are_errors(received: bytes, text: str) -> None:
    protocol = ClientProtocol(Address(password="p", db=3))
    protocol.open()
    protocol.feed(received)
    with pytest.raises(ConnectorError, match=text):
        protocol.next_reply()


def test_a_url_may_select_resp3() -> None:
    protocol = ClientProtocol(Address.parse("redis://h?protocol=3", strict=False))
    assert protocol.open() == pack(b"HELLO", b"3")
    protocol.feed(b"%1\r\n$5\r\nproto\r\n:3\r\n%1\r\n$1\r\na\r\n:1\r\n")
    assert protocol.next_reply() == {b"a": 1}
