"""Stream IDs: conversions between their forms, their order, and deltas modulo 2**64."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.errors import InvalidID
from rillet.types.stream.id import (
    MAX,
    IDReader,
    StreamID,
    delta,
    encode_key,
    format_id,
    key_ms,
    key_seq,
    less,
    undelta,
)

u64 = st.one_of(st.integers(0, MAX), st.sampled_from([0, 1, MAX - 1, MAX, 1 << 63, (1 << 63) - 1, (1 << 63) + 1]))


@pytest.mark.slow
@given(u64, u64)
def test_every_form_of_an_id_converts_back(ms: int, seq: int) -> None:
    key = encode_key(ms, seq)
    assert key == ms.to_bytes(8, "big") + seq.to_bytes(8, "big")
    assert (key_ms(key), key_seq(key)) == (ms, seq)
    assert format_id(ms, seq) == f"{ms}-{seq}".encode()
    reader = IDReader()
    assert reader.read(format_id(ms, seq), 7, True)
    assert reader.seq_given
    assert (reader.ms, reader.seq) == (ms, seq)
    stream_id = StreamID(ms, seq)
    assert StreamID.parse(str(stream_id)) == StreamID.unpack(stream_id.pack()) == stream_id
    assert StreamID.parse(stream_id) == stream_id


@given(u64, u64, u64, u64)
def test_keys_and_objects_have_the_order_of_ids(a: int, b: int, c: int, d: int) -> None:
    assert less(a, b, c, d) == ((a, b) < (c, d)) == (encode_key(a, b) < encode_key(c, d))
    assert (StreamID(a, b) < StreamID(c, d)) == less(a, b, c, d)


@given(u64, u64)
def test_a_delta_is_signed_and_reversible(value: int, base: int) -> None:
    stored = delta(value, base)
    assert -(1 << 63) <= stored < 1 << 63
    assert (stored - (value - base)) % (1 << 64) == 0
    assert undelta(base, stored) == value


@given(st.binary(max_size=30))
def test_any_bytes_are_a_valid_id_or_rejected(text: bytes) -> None:
    reader = IDReader()
    if reader.read(text, 5, False):
        assert 0 <= reader.ms <= MAX
        assert 0 <= reader.seq <= MAX


def test_minus_plus_and_a_missing_sequence_number_are_parsed() -> None:
    reader = IDReader()
    assert reader.read(b"-", 9, False)
    assert (reader.ms, reader.seq) == (0, 0)
    assert reader.read(b"+", 9, False)
    assert (reader.ms, reader.seq) == (MAX, MAX)
    assert reader.read(b"5", 9, False)
    assert (reader.ms, reader.seq) == (5, 9)
    assert not reader.read(b"-", 9, True)
    assert not reader.read(b"+", 9, True)


def test_the_id_of_a_new_entry_may_omit_its_sequence_number() -> None:
    reader = IDReader()
    assert reader.read_new(b"5-*")
    assert (reader.ms, reader.seq, reader.seq_given) == (5, 0, False)
    assert reader.read_new(b"5-3")
    assert (reader.ms, reader.seq, reader.seq_given) == (5, 3, True)
    for text in (b"*", b"-*", b"5-**", b"5-1-*", b"+", b"x-*"):
        assert not reader.read_new(text)


def test_a_parenthesis_excludes_the_end_of_a_range() -> None:
    reader = IDReader()
    assert reader.read_interval(b"(5-1", 4, 0)
    assert reader.exclusive
    assert (reader.ms, reader.seq) == (5, 1)
    assert reader.read_interval(b"5", 1, MAX)
    assert not reader.exclusive
    assert reader.seq == MAX
    assert reader.read_interval(b"+", 1, 0)
    assert not reader.exclusive
    assert not reader.read_interval(b"(-", 2, 0)
    assert not reader.read_interval(b"(", 1, 0)


@pytest.mark.parametrize("text", ["", "-", "+", "$", " 1-1", "1-1 ", "+1-1", "1--1", "1-", "-1", "1-1-1", "1-*",
                                  "(1-1", "1-1\0", "\u0661-1", "\udc80", f"{MAX + 1}-0", f"0-{MAX + 1}",
                                  "9" * 5000])  # fmt: skip
def test_text_from_outside_is_an_id_or_a_clear_error(text: str) -> None:
    with pytest.raises(InvalidID, match="not a stream ID.*such as '1700000000000-0'"):
        StreamID.parse(text)


def test_parse_accepts_milliseconds_alone_and_leading_zeros() -> None:
    assert StreamID.parse(b"005-007") == (5, 7)
    assert StreamID.parse("5") == (5, 0)
    assert StreamID.parse("5", MAX) == (5, MAX)
    with pytest.raises(TypeError, match="not None"):
        StreamID.parse(None)  # type: ignore[arg-type]


def test_the_error_quotes_an_invalid_id() -> None:
    with pytest.raises(ValueError, match="not a stream ID: 'abc'"):
        StreamID.parse("abc")
    with pytest.raises(ValueError, match="16 bytes"):
        StreamID.unpack(b"short")
    with pytest.raises(ValueError, match="16 bytes"):
        key_ms(b"short")
