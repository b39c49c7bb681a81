"""Every reply type of a real server in RESP2 and RESP3 is written identically and parsed."""

from __future__ import annotations

import pytest

from rillet.protocol.command_parser import pack_command
from rillet.protocol.reply_parser import Push, ReplyError, parse_all
from rillet.protocol.reply_writer import ReplyWriter
from tests.judge import Judge
from tests.protocol.feeding import ask, converse


def integers(out: ReplyWriter) -> None:
    for i in range(3):
        out.integer(i)


def write(out: ReplyWriter, name: str) -> None:
    """Write the reply of DEBUG PROTOCOL (debug.c)."""
    if name == "string":
        out.bulk(b"Hello World")
    elif name == "integer":
        out.integer(12345)
    elif name == "double":
        out.double(3.141)
    elif name == "bignum":
        out.bignum(b"1234567999999999999999999999999999999")
    elif name == "null":
        out.null()
    elif name == "array":
        mark = out.mark()
        integers(out)
        out.insert_array(mark, 3)
    elif name == "set":
        mark = out.mark()
        integers(out)
        out.insert_set(mark, 3)
    elif name == "map":
        mark = out.mark()
        for i in range(3):
            out.integer(i)
            out.boolean(i == 1)
        out.insert_map(mark, 3)
    elif name == "attrib":
        if out.resp == 3:
            out.attribute(1)
            out.bulk(b"key-popularity")
            out.array(2)
            out.bulk(b"key:123")
            out.integer(90)
        out.bulk(b"Some real reply following the attribute")
    elif name == "push":
        if out.resp == 2:
            out.error(b"ERR RESP2 is not supported by this command")
        else:
            out.push(2)
            out.bulk(b"server-cpu-usage")
            out.integer(42)
            out.bulk(b"Some real reply following the push reply")
    elif name == "verbatim":
        out.verbatim(b"This is a verbatim\nstring")
    else:
        out.boolean(name == "true")


REPLY = b"Some real reply following the "
VALUES: dict[str, tuple[list[object], list[object]]] = {
    "string": ([b"Hello World"], [b"Hello World"]),
    "integer": ([12345], [12345]),
    "double": ([b"3.141"], [3.141]),
    "bignum": ([b"1234567999999999999999999999999999999"], [1234567999999999999999999999999999999]),
    "null": ([None], [None]),
    "array": ([[0, 1, 2]], [[0, 1, 2]]),
    "set": ([[0, 1, 2]], [{0, 1, 2}]),
    "map": ([[0, 0, 1, 1, 2, 0]], [{0: False, 1: True, 2: False}]),
    "attrib": ([REPLY + b"attribute"], [REPLY + b"attribute"]),
    "push": (
        [ReplyError("ERR RESP2 is not supported by this command")],
        [Push([b"server-cpu-usage", 42]), REPLY + b"push reply"],
    ),
    "verbatim": ([b"This is a verbatim\nstring"], [b"This is a verbatim\nstring"]),
    "true": ([1], [True]),
    "false": ([0], [False]),
}


@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("name", VALUES)
def test_debug_protocol_replies_are_written_and_read_identically(judge: Judge, name: str, resp: int) -> None:
    greeting = ask(judge, pack_command([b"HELLO", b"%d" % resp]))
    both = ask(judge, pack_command([b"HELLO", b"%d" % resp]) + pack_command([b"DEBUG", b"PROTOCOL", name.encode()]))
    hello, *values = parse_all(both)
    assert b"proto" in hello
    out = ReplyWriter(resp)
    write(out, name)
    sent = out.take_bytes()
    assert both.endswith(sent)
    assert len(both) - len(sent) in range(len(greeting) - 4, len(greeting) + 5)  # client IDs differ in length
    assert repr(values) == repr(VALUES[name][resp - 2])


@pytest.mark.parametrize("resp", [2, 3])
def test_large_replies_of_a_server_are_parsed(judge: Judge, resp: int) -> None:
    sent = [pack_command(argv) for argv in ([b"HELLO", b"%d" % resp], [b"COMMAND"], [b"COMMAND", b"DOCS"])]
    _, commands, docs = converse(judge, b"".join(sent), 3)
    assert {command[0] for command in commands} >= {b"xadd", b"xread", b"get"}
    assert len(docs) == len(commands) * (2 if resp == 2 else 1)


@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("score", ["1", "0.1", "1e300", "inf", "-inf", "3.0000000000000004", "1e-310", "1e17"])
def test_doubles_are_written_as_by_the_server(judge: Judge, score: str, resp: int) -> None:
    reply = ask(
        judge,
        pack_command([b"HELLO", b"%d" % resp]),
        pack_command([b"ZADD", b"doubles", score.encode(), b"m"]),
        pack_command([b"ZSCORE", b"doubles", b"m"]),
    )
    out = ReplyWriter(resp)
    out.double(float(score))
    assert reply.endswith(b"\r\n" + out.take_bytes())
