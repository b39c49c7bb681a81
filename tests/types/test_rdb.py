"""DUMP payloads: the same bytes as redis-server's, and nothing malformed gets in or does harm."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from rillet.errors import Corrupt
from rillet.structs.crc64 import crc64
from rillet.types.rdb import value as rdb
from rillet.types.rdb.primitives import RdbReader, RdbWriter
from rillet.types.stream.stream import Stream
from rillet.types.string import String, new_string, string2ll
from tests.judge import Judge
from tests.variants import seeds

STRINGS = [
    b"", b"0", b"-1", b"127", b"128", b"-128", b"-129", b"32767", b"32768", b"-32769", b"2147483647", b"2147483648",
    b"-2147483649", b"99999999999", b"123456789012", b"007", b"+1", b"-0", b"1.5", b"x" * 20, b"x" * 21, b"x" * 63,
    b"ab" * 32, b"x" * 16383, b"x" * 16384, bytes(range(256)) * 4, b"x" * 70000,
]  # fmt: skip


@contextmanager
def compressing(client: redis.Redis, on: bool) -> Iterator[None]:
    """Let the judge compress or not; afterwards it does again, as other tests expect."""
    client.execute_command("CONFIG", "SET", "rdbcompression", "yes" if on else "no")
    try:
        yield
    finally:
        client.execute_command("CONFIG", "SET", "rdbcompression", "yes")


@pytest.mark.parametrize("compression", [True, False])
def test_strings_dump_as_redis_does(judge: Judge, compression: bool) -> None:
    with judge.client() as client, compressing(client, compression):
        for text in STRINGS:
            client.execute_command("SET", "key", text)
            theirs = client.execute_command("DUMP", "key", NEVER_DECODE=[])
            assert rdb.dump(new_string(text), compression) == theirs
            value = rdb.restore(theirs)
            assert isinstance(value, String)
            assert value.value() == text


def _random_stream(client: redis.Redis, seed: int) -> Stream:
    """Build the same stream here and on the server and return ours."""
    source = random.Random(seed)
    stream, ms = Stream(), 1_700_000_000_000
    client.execute_command("DEL", "s")
    for _ in range(source.choice((1, 99, 101, 450))):
        ms += source.choice((0, 1, 5, 100_000))
        temperature, note = b"%d" % source.randrange(-5000, 5000), b"ab" * source.randrange(30)
        argv = [b"XADD", b"s", b"", b"temperature", temperature, b"note", note]
        seq = stream.last_seq + 1 if ms == stream.last_ms else 0
        argv[2] = b"%d-%d" % (ms, seq)
        client.execute_command(*argv)
        stream.append(argv, 3, 2, ms, seq, 4096, 100)
    client.execute_command("XGROUP", "CREATE", "s", "g", "0")
    stream.create_group(b"g", 0, 0, -1)
    return stream


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_streams_dump_as_redis_does(judge: Judge, seed: int) -> None:
    with judge.client() as client:
        stream = _random_stream(client, seed)
        for compression in (True, False):
            with compressing(client, compression):
                theirs = client.execute_command("DUMP", "s", NEVER_DECODE=[])
            assert rdb.dump(stream, compression) == theirs
        client.execute_command("XREADGROUP", "GROUP", "g", "alice", "COUNT", "7", "STREAMS", "s", ">")
        client.execute_command("XREADGROUP", "GROUP", "g", "12345", "COUNT", "3", "STREAMS", "s", ">")
        theirs = client.execute_command("DUMP", "s", NEVER_DECODE=[])
        copy = rdb.restore(theirs)
        assert isinstance(copy, Stream)
        copy.check()
        assert rdb.dump(copy) == theirs


def test_every_length_and_integer_comes_back() -> None:
    out = RdbWriter()
    numbers = [0, 63, 64, 16383, 16384, 2**32 - 1, 2**32, 2**64 - 1]
    for number in numbers:
        out.length(number)
    reader = RdbReader(bytes(out.out))
    assert [reader.length() for _ in numbers] == numbers
    assert string2ll(b"-9223372036854775808") == -(2**63)
    assert string2ll(b"9223372036854775808") is None


def _sealed(body: bytes) -> bytes:
    sealed = body + (10).to_bytes(2, "little")
    return sealed + crc64(sealed).to_bytes(8, "little")


@given(st.data())
def test_a_damaged_payload_is_refused_or_sound(choose: st.DataObject) -> None:
    stream = Stream()
    for number in range(5):
        stream.append([b"a", b"%d" % number, b"b", b"text"], 0, 2, 1000 + number, 0, 4096, 3)
    group = stream.create_group(b"g", 1001, 0, 2)
    group.deliver(1000, 0, group.create_consumer(b"c", 5), 7)
    body = bytearray(rdb.dump(stream, False)[:-10])
    for _ in range(choose.draw(st.integers(1, 3))):
        body[choose.draw(st.integers(0, len(body) - 1))] = choose.draw(st.integers(0, 255))
    cut = choose.draw(st.integers(0, 4))
    payload = _sealed(bytes(body[: len(body) - cut]))
    assert rdb.seal_is_valid(payload)
    try:
        rdb.dump(rdb.restore(payload))
    except Corrupt:
        pass


def test_a_broken_seal_is_seen() -> None:
    payload = rdb.dump(new_string(b"value"))
    assert rdb.seal_is_valid(payload)
    assert not rdb.seal_is_valid(payload[:-1] + bytes((payload[-1] ^ 1,)))
    assert not rdb.seal_is_valid(payload[:9])
    for version, known in ((9, True), (11, True), (14, True), (15, False), (79, False), (80, True), (81, False)):
        other = payload[:-10] + version.to_bytes(2, "little")
        assert rdb.seal_is_valid(other + crc64(other).to_bytes(8, "little")) == known
    with pytest.raises(Corrupt):
        rdb.restore(_sealed(b"\xfa"))
