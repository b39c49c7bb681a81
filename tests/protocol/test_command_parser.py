"""The command parser: split input, quoting, limits, malformed input."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rillet.errors import ProtocolError
from rillet.protocol.command_parser import CommandParser, QueryBufferExceeded, pack_command, split_args
from tests.protocol.feeding import commands, randomly, singly
from tests.variants import by_speed

XADD = [b"XADD", b"events", b"*", b"temperature", b"21.5", b"place", b"", b"raw", bytes(range(256))]


def error(data: bytes, **limits: object) -> str | None:
    """Return the error for the bytes, or None; check that the error is independent of the chunks."""
    results = []
    for chunks in ([data], singly(data), randomly(data, 1, 5000)):
        parser = CommandParser()
        for name, value in limits.items():
            setattr(parser, name, value)
        out = commands(chunks, parser)
        results.append(out[-1] if out and isinstance(out[-1], str) else None)
    assert results[0] == results[1] == results[2]
    return results[0]


def test_a_packed_command_round_trips() -> None:
    packed = pack_command([b"XADD", b"s", b"*"])
    assert packed == b"*3\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n"
    assert commands([packed]) == [[b"XADD", b"s", b"*"]]
    assert pack_command(()) == b"*0\r\n"
    assert pack_command((b"A" * 1000,) * 12).startswith(b"*12\r\n$1000\r\nA")


@given(st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=20), max_size=8), st.integers(0, 2**32))
def test_commands_are_independent_of_the_chunks(expected: list[list[bytes]], seed: int) -> None:
    data = b"".join(pack_command(argv) for argv in expected)
    assert commands([data]) == expected
    assert commands(singly(data)) == expected
    assert commands(randomly(data, seed)) == expected


def test_multibulk_inline_and_empty_commands_can_be_mixed() -> None:
    data = pack_command(XADD) + b"PING\r\n" + b"*0\r\n*-1\r\n\r\n   \n" + pack_command([b""]) + b'set k "a b"\n'
    expected = [XADD, [b"PING"], [], [], [], [], [b""], [b"set", b"k", b"a b"]]
    assert commands([data]) == commands(singly(data)) == expected


def test_arguments_are_exact_bytes_of_every_length() -> None:
    argv = [bytes([i % 256]) * i for i in (0, 1, 9, 10, 99, 100, 999, 1000, 9999, 10000, 40000)]
    [parsed] = commands([pack_command(argv)])
    assert parsed == argv
    assert {type(arg) for arg in parsed} == {bytes}


def test_a_command_may_exceed_the_preallocated_arguments() -> None:
    argv = [b"%d" % i for i in range(5000)]
    data = pack_command(argv) + pack_command([b"PING"])
    assert commands([data]) == commands(randomly(data, 7, 300)) == [argv, [b"PING"]]


@pytest.mark.parametrize("data", [bytearray(b"PING\r\n"), memoryview(b"PING\r\n"), "PING\r\n", None])
def test_feed_accepts_only_bytes(data: object) -> None:
    parser = CommandParser()
    with pytest.raises(TypeError):
        parser.feed(data)  # type: ignore[arg-type]
    assert parser.next() is None


def test_commands_before_an_error_are_returned_and_the_error_is_permanent() -> None:
    parser = CommandParser()
    parser.feed(b"*1\r\n$4\r\nPING\r\n*1\r\n:4\r\nPING\r\n")
    assert parser.next() == [b"PING"]
    for _ in range(2):
        with pytest.raises(ProtocolError, match=r"^Protocol error: expected '\$', got ':'$"):
            parser.next()
        parser.feed(b"PING\r\n")
    assert parser.buffered == 0


def test_commands_stay_buffered_until_next_is_called() -> None:
    parser = CommandParser()
    for _ in range(3000):
        parser.feed(b"PING\r\nPI")
        parser.feed(b"NG\r\n")
    assert parser.buffered == 3000 * 12
    assert [parser.next() for _ in range(6001)] == [[b"PING"]] * 6000 + [None]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"*x\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*1 \r\n", "invalid multibulk length"),
        (b"*-\r\n", "invalid multibulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*99999999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$\r\n", "invalid bulk length"),
        (b"*1\r\n$00\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$9223372036854775808\r\n", "invalid bulk length"),
        (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
        (b"*1\r\n\xff\r\n", "expected '$', got '\udcff'"),
        (b'SET "a\r\n', "unbalanced quotes in request"),
    ],
)
def test_malformed_commands_are_rejected(data: bytes, text: str) -> None:
    assert error(data) == "Protocol error: " + text


@pytest.mark.parametrize("number", [b"2147483647", b"-1", b"0", b"-9223372036854775808"])
def test_unusual_counts_are_accepted(number: bytes) -> None:
    assert error(b"*" + number + b"\r\n") is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "filler", "text"),
    [
        (b"", b"x", "too big inline request"),
        (b"", b"\0", "too big inline request"),
        (b"*", b"1", "too big mbulk count string"),
        (b"*1\r\n", b"1", "too big bulk count string"),
        (b"*1\r\n$", b"1", "too big bulk count string"),
    ],
)
def test_a_line_is_rejected_one_byte_above_64_kib(head: bytes, filler: bytes, text: str) -> None:
    line_start = head.rpartition(b"\n")[2]
    full = head + filler * (65536 - len(line_start))
    assert error(full) is None
    assert error(full + filler) == "Protocol error: " + text
    assert error(full + b"\r\n", max_inline_len=1000) == "Protocol error: " + text


def test_a_nul_byte_hides_the_end_of_a_line() -> None:
    assert commands([b"PI\0NG\r\nPING\r\n"]) == []
    assert commands([b"*1\0\r\n"]) == []
    assert error(b"PI\0NG\r\n" * 10000) == "Protocol error: too big inline request"


def test_a_client_without_password_has_small_limits() -> None:
    assert error(b"*11\r\n", authenticated=False) == "Protocol error: unauthenticated multibulk length"
    assert error(b"*10\r\n", authenticated=False) is None
    assert error(b"*1\r\n$16385\r\n", authenticated=False) == "Protocol error: unauthenticated bulk length"
    assert error(b"*1\r\n$16384\r\n", authenticated=False) is None
    assert error(b"*1\r\n$600000000\r\n", authenticated=False) == "Protocol error: invalid bulk length"


def test_limits_can_be_set() -> None:
    assert error(b"*1\r\n$11\r\n", proto_max_bulk_len=10) == "Protocol error: invalid bulk length"
    assert error(b"*1\r\n$10\r\n", proto_max_bulk_len=10) is None
    assert error(b"*5\r\n", max_multibulk_len=4) == "Protocol error: invalid multibulk length"
    assert error(b"*4\r\n", max_multibulk_len=4) is None


def test_unparsed_bytes_above_the_limit_end_the_connection() -> None:
    parser = CommandParser()
    parser.query_buffer_limit = 1000
    parser.feed(pack_command([b"x" * 100]) * 50)
    assert [parser.next() is not None for _ in range(51)] == [True] * 50 + [False]
    parser.feed(b"*1\r\n$2000\r\n" + b"x" * 1000)
    assert parser.next() is None
    parser.feed(b"x")
    with pytest.raises(QueryBufferExceeded):
        parser.next()


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        (b"", []),
        (b"  a  b\t c ", [b"a", b"b", b"c"]),
        (b'a"b c"', [b"ab c"]),
        (b"a'b c' d", [b"ab c", b"d"]),
        (b'""', [b""]),
        (b"'' \"\"", [b"", b""]),
        (rb'"\x41\xff\xZZ\x4"', [b"A\xffxZZx4"]),
        (rb'"\n\r\t\b\a\\\"\q"', [b'\n\r\t\b\a\\"q']),
        (rb"'\n\'\\'", None),
        (rb"'\n\'\\x'", [rb"\n'\\x"]),
        (rb"a\nb", [rb"a\nb"]),
        (b"a\vb\fc", [b"a\vb\fc"]),
        (b"\v\fa", [b"a"]),
        (b'"a"\vb', [b"a", b"b"]),
        (b"a\rb", [b"a", b"b"]),
        (b'"a"b', None),
        (b"'a'b", None),
        (b'"', None),
        (b"'", None),
        (b'"\\', None),
        (b"\"a'", None),
    ],
)
def test_inline_commands_are_split_by_redis_s_quoting_rules(line: bytes, argv: list[bytes] | None) -> None:
    assert split_args(line) == argv


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        (b"", []),
        (b"  a  b\t c ", [b"a", b"b", b"c"]),
        (b'"a"b', [b"ab"]),
        (b"""'a'"b"c d""", [b"abc", b"d"]),
        (b'"""tes"t-\'k\'e"y" x', [b"test-key", b"x"]),
        (b"'' \"\" ''\"\"", [b"", b"", b""]),
        (b'"a"\vb c', [b"a\vb", b"c"]),
        (rb'"\x41"B"\""', [b'AB"']),
        (rb'"a\"', [b"a\\"]),
        (rb"'a\'", [b"a\\"]),
        (rb'"a\" b', None),
        (b"'b'a'r", None),
        (b'"b"a"r', None),
        (b'"\\', None),
    ],
)
def test_valkey_s_quotes_are_parts_of_words(line: bytes, argv: list[bytes] | None) -> None:
    assert split_args(line, True) == argv


def test_an_inline_line_ends_in_lf_with_or_without_cr() -> None:
    assert commands([b"a b\nc d\r\n"]) == [[b"a", b"b"], [b"c", b"d"]]
    assert commands([b"a\r", b"\n", b"b", b"\n"]) == [[b"a"], [b"b"]]


def test_the_bytes_after_a_bulk_string_are_not_checked() -> None:
    assert commands([b"*1\rX$4\rXPINGXX*1\r\n$1\r\na\r\n"]) == [[b"PING"], [b"a"]]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"*1\rX", "invalid CRLF in request"),
        (b"*x\rX", "invalid CRLF in request"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1\0\r\n", "invalid multibulk length"),
        (b"*1\r\n$4\rX", "invalid CRLF in request"),
        (b"*1\r\n$x\rX", "invalid CRLF in request"),
        (b"*1\r\n:4\rX", "expected '$', got ':'"),
        (b"*1\r\n$4xx\r\n", "invalid bulk length"),
        (b"*1\r\n$\0\r\n", "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGx\n", "invalid CRLF in request"),
        (b"*1\r\n$4\r\nPING\rx", "invalid CRLF in request"),
    ],
)
def test_valkey_checks_each_line_end(data: bytes, text: str) -> None:
    assert error(data, strict=True) == "Protocol error: " + text


def test_strict_commands_are_independent_of_the_chunks() -> None:
    data = pack_command(XADD) + b'*0\r\nset "a"b c\n' + pack_command([b"", b"x" * 20000])
    results = []
    for chunks in ([data], singly(data), randomly(data, 3, 500)):
        parser = CommandParser()
        parser.strict = True
        results.append(commands(chunks, parser))
    assert results == [[XADD, [], [b"set", b"ab", b"c"], [b"", b"x" * 20000]]] * 3


@settings(max_examples=by_speed(150, 80, 300))
@given(st.lists(st.sampled_from([b"*", b"$", b"1", b"2", b"-", b"\r", b"\n", b"\r\n", b"a", b'"', b"\0"]), max_size=30))
def test_random_bytes_give_commands_or_one_error(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    at_once = commands([data])
    assert commands(singly(data)) == at_once
    assert commands(randomly(data, len(data), 4)) == at_once


def test_random_bytes_of_all_values_give_commands_or_one_error() -> None:
    rng = random.Random(5)
    for _ in range(300):
        good = pack_command([rng.randbytes(rng.randrange(30)) for _ in range(rng.randrange(1, 5))])
        data = bytearray(good * 3)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        assert commands([bytes(data)]) == commands(singly(bytes(data)))


@pytest.mark.slow
def test_a_large_string_in_small_chunks_arrives_whole_in_bounded_memory() -> None:
    # Copying the buffered bytes at every chunk would take thousands of times longer.
    size, chunk = 32 << 20, bytes(range(256)) * 16
    parser = CommandParser()
    tracemalloc.start()
    try:
        parser.feed(b"*2\r\n$3\r\nSET\r\n$%d\r\n" % size)
        for _ in range(size // len(chunk)):
            parser.feed(chunk)
            assert parser.next() is None
        parser.feed(b"\r\n")
        assert parser.next() == [b"SET", chunk * (size // len(chunk))]
        assert tracemalloc.get_traced_memory()[1] < 5 * size
    finally:
        tracemalloc.stop()


def test_announced_but_unsent_arguments_take_little_memory() -> None:
    tracemalloc.start()
    try:
        parsers = [CommandParser() for _ in range(10)]
        for parser in parsers:
            parser.feed(b"*2147483647\r\n$536870912\r\nabc")
            assert parser.next() is None
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()
