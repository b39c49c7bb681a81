"""The compact formats of old servers: ziplists round trip, zipmaps are read, and damaged ones are safe."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.errors import Corrupt
from rillet.structs.ziplist import read_ziplist, write_ziplist
from rillet.structs.zipmap import read_zipmap

numbers = st.integers(-(2**64), 2**64).map(lambda number: b"%d" % number)
words = st.lists(st.one_of(numbers, st.binary(max_size=300), st.sampled_from([b"007", b"-0", b"+1", b"x" * 20_000])))


@given(words)
def test_a_ziplist_round_trips_its_entries(entries: list[bytes]) -> None:
    assert read_ziplist(write_ziplist(entries)) == entries


def test_each_form_of_a_ziplist_entry_equals_redis_s_bytes() -> None:
    """Compares with bytes from Redis: an immediate number, each integer width and string length, a large `before`."""
    numbers = (0, 12, 13, -1, 127, -128, 128, 32767, 32768, -(2**23), 2**23, 2**31 - 1, 2**31, -(2**63))
    packed = write_ziplist([b"%d" % number for number in numbers])
    forms = [packed[10:11], packed[11:13], packed[13:15], packed[15:18]]
    assert forms == [b"\x00", b"\xf1\x02", b"\xfd\x02", b"\xfe\x0d\x03"]
    assert read_ziplist(packed) == [b"%d" % number for number in numbers]
    for size, head in ((63, b"\x3f"), (64, b"\x40\x40"), (16383, b"\x7f\xff"), (16384, b"\x80\x00\x00\x40\x00")):
        assert write_ziplist([b"x" * size])[11:].startswith(head + b"x")
    assert write_ziplist([b"x" * 251, b"y"])[11 + 2 + 251 :].startswith(b"\xfe\xfe\x00\x00\x00\x01y")
    assert write_ziplist([b"x" * 250, b"y"])[11 + 2 + 250 :].startswith(b"\xfd\x01y")
    assert write_ziplist([]) == bytes((11, 0, 0, 0, 10, 0, 0, 0, 0, 0, 255))
    many = write_ziplist([b"1"] * 70_000)
    assert many[8:10] == b"\xff\xff"
    assert len(read_ziplist(many)) == 70_000


ZIPMAP = b"\x02\x03foo\x03\x00bar\x05hello\x05\x02world..\xff"


def test_a_zipmap_is_read() -> None:
    assert read_zipmap(ZIPMAP) == [b"foo", b"bar", b"hello", b"world"]
    assert read_zipmap(b"\xfe" + ZIPMAP[1:]) == [b"foo", b"bar", b"hello", b"world"]
    large = b"v" * 300
    assert read_zipmap(b"\x01\x01f\xfe" + (300).to_bytes(4, "little") + b"\x00" + large + b"\xff") == [b"f", large]
    assert read_zipmap(b"\x00\xff") == []
    for damaged in (b"", b"\xff", b"\x03" + ZIPMAP[1:], ZIPMAP[:-1], ZIPMAP + b"\xff", b"\x01\x05foo\xff"):
        with pytest.raises(Corrupt):
            read_zipmap(damaged)


@pytest.mark.parametrize("read", [read_zipmap, read_ziplist])
def test_damaged_bytes_are_rejected_or_read(read: object) -> None:
    source = random.Random(5)
    sound = ZIPMAP if read is read_zipmap else write_ziplist([b"a", b"12345", b"x" * 300, b"-7", b"end"])
    for _ in range(4000):
        data = bytearray(sound)
        for _ in range(source.choice((1, 1, 3))):
            data[source.randrange(len(data))] = source.randrange(256)
        try:
            found = read(bytes(data[: source.randrange(len(data)) or None]))  # type: ignore[operator]
        except Corrupt:
            continue
        assert all(type(word) is bytes for word in found)


def test_a_short_length_with_the_long_encoding_is_corrupt() -> None:
    """CVE-2026-25243: servers accepted it and then read at wrong positions."""
    value = b"\x01\x00v"
    assert read_zipmap(b"\x01\x03abc" + value + b"\xff") == [b"abc", b"v"]
    for length in (3, 253):
        with pytest.raises(Corrupt):
            read_zipmap(b"\x01\xfe" + length.to_bytes(4, "little") + b"a" * length + value + b"\xff")
    long = b"a" * 254
    assert read_zipmap(b"\x01\xfe" + (254).to_bytes(4, "little") + long + value + b"\xff") == [long, b"v"]
