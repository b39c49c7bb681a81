"""The reply parser: every type, split input, nesting, malformed input."""

from __future__ import annotations

import pickle
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rillet.errors import CommandError, ProtocolError
from rillet.protocol.reply_parser import INCOMPLETE, MAX_DEPTH, Push, ReplyError, ReplyParser, parse_all
from tests.protocol.feeding import randomly, replies, singly
from tests.variants import by_speed

EVERYTHING = (
    b"+OK\r\n-ERR no\r\n!5\r\nERR x\r\n:-5\r\n:+7\r\n:18446744073709551615\r\n$3\r\nabc\r\n$0\r\n\r\n$-1\r\n*-1\r\n"
    b"*0\r\n*2\r\n*1\r\n:1\r\n*0\r\n_\r\n#t\r\n#f\r\n,3.5\r\n,-inf\r\n,1e5\r\n(12345678901234567890123\r\n"
    b"=7\r\ntxt:abc\r\n%1\r\n+a\r\n*1\r\n:2\r\n%0\r\n~2\r\n:1\r\n:2\r\n~0\r\n>2\r\n+x\r\n:1\r\n"
    b">0\r\n|1\r\n+k\r\n*1\r\n:9\r\n*3\r\n|1\r\n+z\r\n*0\r\n:1\r\n|0\r\n:2\r\n:3\r\n"
)
VALUES = [
    b"OK", ReplyError("ERR no"), ReplyError("ERR x"), -5, 7, 2**64 - 1, b"abc", b"", None, None, [], [[1], []], None,
    True, False, 3.5, float("-inf"), 1e5, 12345678901234567890123, b"abc", {b"a": [2]}, {}, {1, 2}, set(), [b"x", 1],
    [], [1, 2, 3],
]  # fmt: skip


def test_every_type_is_parsed_independent_of_the_chunks() -> None:
    expected = repr(VALUES)
    assert repr(parse_all(EVERYTHING)) == expected
    assert repr(replies(singly(EVERYTHING))) == expected
    for seed in range(20):
        assert repr(replies(randomly(EVERYTHING, seed, 15))) == expected


def test_incomplete_is_distinct_from_every_value() -> None:
    parser = ReplyParser()
    assert parser.next() is INCOMPLETE
    parser.feed(b"*2\r\n_\r\n")
    assert parser.next() is INCOMPLETE
    assert parser.half_parsed
    parser.feed(b"_\r\n_\r\n")
    assert parser.next() == [None, None]
    assert not parser.half_parsed
    assert parser.next() is None
    assert parser.next() is INCOMPLETE
    assert repr(INCOMPLETE) == "INCOMPLETE"


def test_an_error_reply_is_returned_as_a_value() -> None:
    [error] = parse_all(b"-WRONGTYPE Operation against a key\r\n")
    assert isinstance(error, ReplyError)
    assert isinstance(error, CommandError)
    assert str(error) == "WRONGTYPE Operation against a key"
    assert error.prefix == "WRONGTYPE"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.prefix) == (str(error), error.prefix)
    assert str(parse_all(b"-ERR \xff\xc3\xa9\r\n")[0]) == "ERR \\xff\xe9"


def test_unhashable_elements_give_a_list() -> None:
    assert parse_all(b"~2\r\n%1\r\n+a\r\n:1\r\n:2\r\n") == [[{b"a": 1}, 2]]
    assert parse_all(b"%2\r\n*0\r\n:1\r\n+k\r\n:2\r\n") == [[([], 1), (b"k", 2)]]


def test_a_push_is_a_list_of_the_type_push() -> None:
    push, reply = parse_all(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n+OK\r\n")
    assert type(push) is Push
    assert push == [b"invalidate", [b"k"]]
    assert reply == b"OK"


def test_bulk_strings_may_contain_any_bytes() -> None:
    payloads = [bytes(range(256)), b"\r\n", b"$3\r\n", b"x" * 100_000]
    data = b"*4\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in payloads)
    for chunks in ([data], randomly(data, 3, 4000)):
        [values] = replies(chunks)
        assert values == payloads
        assert {type(v) for v in values} == {bytes}


@pytest.mark.parametrize(
    "data",
    [
        b"?\r\n", b"hello\r\n", b"\r\n", b":\r\n", b":x\r\n", b":1_0\r\n", b": 1\r\n", b":--1\r\n", b"(1.5\r\n",
        b"(" + b"1" * 5000 + b"\r\n", b",\r\n", b",x\r\n", b",1_0\r\n", b",infinity\r\n", b",e\r\n", b"#\r\n",
        b"#x\r\n", b"_x\r\n", b"$-2\r\n", b"$x\r\n", b"$\r\n", b"$1\r\nabc", b"$3\r\nabcde",
        b"$999999999999999999\r\n", b"!-1\r\n", b"=3\r\nabc\r\n", b"=4\r\nabcd\r\n", b"=-1\r\n", b"*-2\r\n",
        b"*x\r\n", b"*1.5\r\n", b"%-1\r\n", b"~-1\r\n", b">-1\r\n", b"+OK\rX", b":5\rX", b"$3\rXabc\r\n",
        b"*1\rX:1\r\n", b"*1\r\n" * (MAX_DEPTH + 1), b"|1\r\n" * (MAX_DEPTH + 1), b"$?\r\n;0\r\n", b"*?\r\n.\r\n",
    ],
)  # fmt: skip
def test_malformed_replies_are_rejected_permanently(data: bytes) -> None:
    for chunks in ([b"+OK\r\n" + data], singly(b"+OK\r\n" + data)):
        good, error = replies(chunks)
        assert good == b"OK"
        assert isinstance(error, ProtocolError)
    parser = ReplyParser()
    for piece in (data, b"+OK\r\n"):
        parser.feed(piece)
        with pytest.raises(ProtocolError):
            parser.next()
        assert not parser.half_parsed


def test_nesting_is_accepted_up_to_its_limit() -> None:
    [value] = parse_all(b"*1\r\n" * MAX_DEPTH + b":7\r\n")
    for _ in range(MAX_DEPTH):
        [value] = value
    assert value == 7
    assert replies([b"*1\r\n" * 1_000_000])[0].args == ("Protocol error: nested too deeply",)


@pytest.mark.parametrize("data", [b"+OK", b"$3\r\nab", b"*2\r\n:1\r\n", b"+OK\r\n*1\r\n", b"|1\r\n+a\r\n:1\r\n"])
def test_parse_all_rejects_a_truncated_reply(data: bytes) -> None:
    if data.startswith(b"|"):
        assert parse_all(data) == []  # an attribute without its reply leaves nothing partially parsed
    else:
        with pytest.raises(ProtocolError, match="truncated"):
            parse_all(data)


ATOMS = st.sampled_from(
    [bytes([byte]) for byte in b"*$:+-%~>|=!_#,(012\r\na"]
    + [b"\r\n", b"*2\r\n", b"$1\r\na\r\n", b":1\r\n", b"%1\r\n", b"|1\r\n", b"=5\r\ntxt:a\r\n"]
)


@settings(max_examples=by_speed(150, 80, 400))
@given(st.lists(ATOMS, max_size=25))
def test_random_replies_give_values_or_one_error(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    at_once = repr(replies([data]))
    assert repr(replies(singly(data))) == at_once
    assert repr(replies(randomly(data, len(data), 5))) == at_once


def test_random_bytes_give_values_or_one_error() -> None:
    rng = random.Random(3)
    for _ in range(300):
        data = bytearray(EVERYTHING)
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        assert repr(replies([bytes(data)])) == repr(replies(singly(bytes(data))))


def test_a_large_array_in_small_pieces_is_parsed_once() -> None:
    # Restarting at each piece would parse about eighty million replies here.
    count = 16_000
    data = b"*%d\r\n" % count + b"*2\r\n$15\r\n1526919030474-0\r\n:1\r\n" * count
    [values] = replies([data[i : i + 50] for i in range(0, len(data), 50)])
    assert values == [[b"1526919030474-0", 1]] * count
