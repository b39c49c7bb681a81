"""The reply writer: encodings, deferred lengths, buffers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rillet.protocol.reply_parser import Push, ReplyError, parse_all
from rillet.protocol.reply_writer import HANDED_OVER, INITIAL_CAPACITY, KEEP_CAPACITY, ReplyWriter

LONGLONG = st.integers(-(2**63), 2**63 - 1)
ULONGLONG = st.integers(0, 2**64 - 1)


def written(method: str, *arguments: object, resp: int = 2) -> bytes:
    out = ReplyWriter(resp)
    getattr(out, method)(*arguments)
    return out.take_bytes()


@pytest.mark.parametrize(
    ("method", "arguments", "resp2", "resp3"),
    [
        ("ok", (), b"+OK\r\n", b"+OK\r\n"),
        ("simple", (b"PONG",), b"+PONG\r\n", b"+PONG\r\n"),
        ("error", (b"ERR a\r\nb",), b"-ERR a  b\r\n", b"-ERR a  b\r\n"),
        ("integer", (-(2**63),), b":-9223372036854775808\r\n", b":-9223372036854775808\r\n"),
        ("unsigned", (2**64 - 1,), b":18446744073709551615\r\n", b":18446744073709551615\r\n"),
        ("bulk", (b"",), b"$0\r\n\r\n", b"$0\r\n\r\n"),
        ("bulk_slice", (bytearray(b"abcdef"), 1, 3), b"$3\r\nbcd\r\n", b"$3\r\nbcd\r\n"),
        ("bulk_int", (-42,), b"$3\r\n-42\r\n", b"$3\r\n-42\r\n"),
        ("stream_id", (2**64 - 1, 0), b"$22\r\n18446744073709551615-0\r\n", b"$22\r\n18446744073709551615-0\r\n"),
        ("null", (), b"$-1\r\n", b"_\r\n"),
        ("null_array", (), b"*-1\r\n", b"_\r\n"),
        ("array", (12,), b"*12\r\n", b"*12\r\n"),
        ("map", (6,), b"*12\r\n", b"%6\r\n"),
        ("set", (3,), b"*3\r\n", b"~3\r\n"),
        ("push", (2,), b"*2\r\n", b">2\r\n"),
        ("double", (0.5,), b"$3\r\n0.5\r\n", b",0.5\r\n"),
        ("double", (0.1,), b"$19\r\n0.10000000000000001\r\n", b",0.10000000000000001\r\n"),
        ("double", (-math.inf,), b"$4\r\n-inf\r\n", b",-inf\r\n"),
        ("double", (1e300,), b"$23\r\n1.0000000000000001e+300\r\n", b",1.0000000000000001e+300\r\n"),
        ("boolean", (True,), b":1\r\n", b"#t\r\n"),
        ("boolean", (False,), b":0\r\n", b"#f\r\n"),
        ("bignum", (b"123",), b"$3\r\n123\r\n", b"(123\r\n"),
        ("verbatim", (b"abc",), b"$3\r\nabc\r\n", b"=7\r\ntxt:abc\r\n"),
        ("verbatim", (b"abc", b"md"), b"$3\r\nabc\r\n", b"=7\r\nmd :abc\r\n"),
        ("raw", (b"+X\r\n",), b"+X\r\n", b"+X\r\n"),
    ],
)
def test_replies_have_resp2_and_resp3_forms(
    method: str, arguments: tuple[object, ...], resp2: bytes, resp3: bytes
) -> None:
    assert written(method, *arguments, resp=2) == resp2
    assert written(method, *arguments, resp=3) == resp3


def test_attributes_exist_only_in_resp3() -> None:
    assert written("attribute", 1, resp=3) == b"|1\r\n"
    with pytest.raises(AssertionError):
        written("attribute", 1, resp=2)


@given(LONGLONG)
def test_integers_are_written_in_decimal(value: int) -> None:
    assert written("integer", value) == b":%d\r\n" % value
    assert written("bulk_int", value) == b"$%d\r\n%d\r\n" % (len(str(value)), value)


@given(ULONGLONG, ULONGLONG)
def test_unsigned_integers_and_ids_are_written_in_decimal(ms: int, seq: int) -> None:
    text = b"%d-%d" % (ms, seq)
    assert written("unsigned", ms) == b":%d\r\n" % ms
    assert written("stream_id", ms, seq) == b"$%d\r\n%b\r\n" % (len(text), text)


@pytest.mark.parametrize("power", range(20))
def test_integers_around_powers_of_ten_are_written_correctly(power: int) -> None:
    for value in (10**power - 1, 10**power):
        assert written("unsigned", value) == b":%d\r\n" % value
        if value < 2**63:
            assert written("integer", -value) == b":%d\r\n" % -value


@given(st.binary(max_size=3000), st.data())
def test_bulk_strings_equal_slices_of_buffers(payload: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(payload)))
    size = data.draw(st.integers(0, len(payload) - start))
    assert written("bulk", payload) == b"$%d\r\n%b\r\n" % (len(payload), payload)
    assert written("bulk_slice", bytearray(payload), start, size) == written("bulk", payload[start : start + size])


@pytest.mark.parametrize(("start", "size"), [(-1, 1), (0, 11), (11, 0), (5, -1), (2**62, 2**62), (1, 2**63 - 1)])
def test_a_slice_outside_its_buffer_is_rejected(start: int, size: int) -> None:
    out = ReplyWriter()
    out.ok()
    with pytest.raises(IndexError):
        out.bulk_slice(bytearray(10), start, size)
    assert out.take_bytes() == b"+OK\r\n"


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3 * HANDED_OVER), max_size=6))
def test_batches_are_handed_over_unchanged(sizes: list[int]) -> None:
    out = ReplyWriter()
    handed = []
    for number, size in enumerate(sizes):
        out.reserve(size // 2)
        out.ok()
        out.bulk(b"%d" % number * size)
        handed.append(out.hand_over())
        assert len(out) == 0
    out.integer(7)
    assert handed == [b"+OK\r\n$%d\r\n%b\r\n" % (len(b"%d" % n) * s, b"%d" % n * s) for n, s in enumerate(sizes)]
    assert out.hand_over() == b":7\r\n"


def test_a_slice_may_come_from_the_same_buffer() -> None:
    out = ReplyWriter()
    out.simple(b"x" * (INITIAL_CAPACITY - 10))
    out.bulk_slice(out.buf, 0, 900)
    assert out.take_bytes().endswith(b"$900\r\n+" + b"x" * 899 + b"\r\n")


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=200)), st.lists(st.binary(max_size=200)), st.integers(0, 10**7))
def test_a_header_can_be_inserted_after_its_contents(before: list[bytes], inside: list[bytes], size: int) -> None:
    for method, plain in (("insert_array", "array"), ("insert_map", "map"), ("insert_set", "set")):
        for resp in (2, 3):
            late, early = ReplyWriter(resp), ReplyWriter(resp)
            for text in before:
                late.bulk(text)
                early.bulk(text)
            mark = late.mark()
            getattr(early, plain)(size)
            for text in inside:
                late.bulk(text)
                early.bulk(text)
            getattr(late, method)(mark, size)
            assert len(late) == len(early)
            assert late.take_bytes() == early.take_bytes()


def test_marks_outside_the_buffer_are_rejected() -> None:
    out = ReplyWriter()
    out.ok()
    for mark in (-1, 6):
        with pytest.raises(IndexError):
            out.insert_array(mark, 1)
        with pytest.raises(IndexError):
            out.truncate(mark)
    with pytest.raises(ValueError):
        out.insert_array(0, -1)
    out.truncate(0)
    assert out.take_bytes() == b""


def test_truncate_discards_everything_after_the_mark() -> None:
    out = ReplyWriter()
    out.ok()
    mark = out.mark()
    out.array(3)
    out.integer(1)
    out.truncate(mark)
    out.null()
    assert out.take_bytes() == b"+OK\r\n$-1\r\n"


def test_take_empties_the_buffer_and_keeps_it_unless_it_is_large() -> None:
    out = ReplyWriter()
    out.bulk(b"x" * 10000)
    assert len(out) == 10010
    assert len(out.take_bytes()) == 10010
    assert len(out) == 0
    assert out.take_bytes() == b""
    assert 10000 < len(out.buf) <= KEEP_CAPACITY
    out.bulk(b"x" * KEEP_CAPACITY)
    out.take_bytes()
    assert len(out.buf) == INITIAL_CAPACITY
    out.ok()
    assert out.take_bytes() == b"+OK\r\n"


@pytest.mark.parametrize("value", [None, "text", 5])
def test_a_bulk_string_must_be_bytes(value: object) -> None:
    out = ReplyWriter()
    with pytest.raises(TypeError):
        out.bulk(value)  # type: ignore[arg-type]
    assert len(out) == 0


VALUES = st.recursive(
    st.none() | st.booleans() | LONGLONG | st.floats(allow_nan=False) | st.binary(max_size=50),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.binary(max_size=9), inner, max_size=4),
    max_leaves=30,
)


def write(out: ReplyWriter, value: object) -> None:
    """Write a Python value in RESP3."""
    if value is None:
        out.null()
    elif isinstance(value, bool):
        out.boolean(value)
    elif isinstance(value, int):
        out.integer(value)
    elif isinstance(value, float):
        out.double(value)
    elif isinstance(value, bytes):
        out.bulk(value)
    elif isinstance(value, list):
        mark = out.mark()
        for item in value:
            write(out, item)
        out.insert_array(mark, len(value))
    else:
        assert isinstance(value, dict)
        out.map(len(value))
        for key, item in value.items():
            write(out, key)
            write(out, item)


@given(st.lists(VALUES, max_size=4))
def test_replies_round_trip_through_the_parser(values: list[object]) -> None:
    out = ReplyWriter(3)
    for value in values:
        write(out, value)
    assert parse_all(out.take_bytes()) == values


def test_the_remaining_types_round_trip_through_the_parser() -> None:
    out = ReplyWriter(3)
    out.error(b"NOGROUP No such group")
    out.set(2)
    out.integer(1)
    out.integer(2)
    out.push(1)
    out.simple(b"message")
    out.bignum(b"1" * 40)
    out.verbatim(b"text")
    error, members, push, big, text = parse_all(out.take_bytes())
    assert isinstance(error, ReplyError)
    assert error.prefix == "NOGROUP"
    assert members == {1, 2}
    assert type(push) is Push
    assert push == [b"message"]
    assert big == int("1" * 40)
    assert text == b"text"


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("raw", (b"",)), ("raw", (b"x",)), ("bulks", ([],)), ("bulks", ([b""],)), ("reserve", (1,)),
        ("bulk_slice", (bytearray(), 0, 0)), ("raw_then_slice", (b"", bytearray(), 0, 0)), ("integer", (1,)),
        ("insert_array", (0, 0)), ("insert_map", (0, 0)), ("insert_set", (0, 0)), ("truncate", (0,)),
        ("take_bytes", ()), ("hand_over", ()), ("shrink", (0,)), ("error", (b"",)), ("simple", (b"",)), ("null", ()),
    ],
)  # fmt: skip
def test_the_buffer_of_writers_without_a_reply_stays_empty(method: str, arguments: tuple[object, ...]) -> None:
    idle, out = ReplyWriter(), ReplyWriter()
    assert idle.buf is out.buf
    getattr(out, method)(*arguments)
    assert out.used == 0 or out.buf is not idle.buf
    assert len(idle.buf) == 0
    for one in (idle, out):
        one.check()


def test_a_write_into_the_shared_buffer_is_detected() -> None:
    idle = ReplyWriter()
    idle.buf.extend(b"x")
    try:
        with pytest.raises(AssertionError):
            ReplyWriter().check()
    finally:
        idle.buf.clear()


def test_many_inserted_headers_leave_the_buffer_as_large_as_it_was() -> None:
    out = ReplyWriter()
    for _ in range(1000):
        mark = out.mark()
        out.bulk(b"value")
        out.insert_array(mark, 1)
        out.truncate(0)
        out.check()
    out.bulk(bytes(700))
    out.bulk(bytes(400))
    assert len(out.take_bytes()) == 700 + 400 + 2 * len(b"$700\r\n\r\n")
    out.check()
