"""Doubles as text: parsed as by strtod, formatted as by Redis 7.0 and by newer versions."""

from __future__ import annotations

import struct
from math import copysign, inf, isinf, isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.structs.float_text import (
    as_integer,
    by_grisu,
    digits_17,
    listpack_score,
    parse,
    parse_all,
    parse_bound,
    reply_text,
    shortest,
)

DOUBLES = st.floats(allow_nan=False) | st.integers(0, 2**64 - 1).map(
    lambda bits: float(struct.unpack(">d", bits.to_bytes(8, "big"))[0])
).filter(lambda value: not isnan(value))


@given(DOUBLES)
def test_every_text_parses_to_the_original_double(value: float) -> None:
    for text in (shortest(value), digits_17(value), reply_text(value, True), reply_text(value, False)):
        back = float(text)
        assert back == value
        assert copysign(1, back) == copysign(1, value)
        assert parse_bound(text) == value
    kept = listpack_score(value, False)
    assert float(kept) == value == float(listpack_score(value, True))
    assert isinstance(kept, int) == (as_integer(value) is not None)


@given(DOUBLES.filter(lambda value: not isinf(value) and value != 0))
def test_the_shortest_text_never_has_more_digits_than_the_17_digit_text(value: float) -> None:
    def digits(text: bytes) -> bytes:
        return text.split(b"e")[0].replace(b".", b"").strip(b"-0")

    assert len(digits(repr(value).encode())) <= len(digits(shortest(value))) <= 17


@pytest.mark.parametrize(("value", "classic", "newer", "kept"), [
    (0.1, b"0.10000000000000001", b"0.1", b"0.1"),
    (3.0, b"3", b"3", 3),
    (-0.0, b"-0", b"-0", 0),
    (inf, b"inf", b"inf", b"inf"),
    (-inf, b"-inf", b"-inf", b"-inf"),
    (1e17, b"1e+17", b"100000000000000000", 10**17),
    (2.0**62, b"4.6116860184273879e+18", b"4611686018427387904", 2**62),
    (2.0**63, b"9.2233720368547758e+18", b"9223372036854776000", b"9223372036854776000"),
    (1e21, b"1e+21", b"1e+21", b"1e+21"),
    (1.5e-7, b"1.4999999999999999e-07", b"1.5e-7", b"1.5e-7"),
    (0.001, b"0.001", b"0.001", b"0.001"),
    (5e-324, b"4.9406564584124654e-324", b"5e-324", b"5e-324"),
    # Grisu2 produces one digit too many here.
    (45.44936278342308, b"45.449362783423076", b"45.449362783423076", b"45.449362783423076"),
])  # fmt: skip
def test_known_doubles_have_redis_s_texts(value: float, classic: bytes, newer: bytes, kept: bytes | int) -> None:
    assert (reply_text(value, True), reply_text(value, False), listpack_score(value, False)) == (classic, newer, kept)


@pytest.mark.parametrize(("text", "value"), [
    (b"1", 1.0), (b"+1", 1.0), (b".5", 0.5), (b"5.", 5.0), (b"1e3", 1000.0), (b"-1E-2", -0.01), (b"0x10", 16.0),
    (b"-0x.8p1", -1.0), (b"inf", inf), (b"-Infinity", -inf), (b"0e999999999", 0.0), (b"5e-324", 5e-324),
    (b"0x0p+0", 0.0), (b"", None), (b" 1", None), (b"1 ", None), (b"nan", None), (b"1e", None), (b"0x", None),
    (b"1_0", None),
    (b"e5", None), (b"1e400", None), (b"-1e400", None), (b"1e-400", None), (b"0x1p5000", None), (b"0x1p-5000", None),
    (b"1\x00", None), (b".", None), (b"+", None), (b"infin", None),
])  # fmt: skip
def test_a_score_must_be_a_number_without_surrounding_text(text: bytes, value: float | None) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(("text", "value"), [
    (b"", 0.0), (b" \t1", 1.0), (b"1 ", None), (b"1\x00abc", 1.0), (b"\x00abc", 0.0), (b"1e400", inf),
    (b"-1e400", -inf), (b"1e-400", 0.0), (b"0x1p5000", inf), (b" ", None), (b"nan", None), (b"abc", None),
    (b"+inf", inf),
])  # fmt: skip
def test_a_range_bound_accepts_more_forms_than_a_score(text: bytes, value: float | None) -> None:
    assert parse_bound(text) == value


def test_nan_and_infinity_have_texts() -> None:
    assert shortest(nan).endswith(b"nan")


@given(st.integers(-(2**38), 2**38), st.integers(0, 8))
def test_short_binary_fractions_have_grisu_s_texts(number: int, places: int) -> None:
    value = number / 2**places
    assert shortest(value) == (by_grisu(value) if value else b"0")


@given(st.from_regex(rb"[+-]?[0-9]{0,20}[.]?[0-9]{0,15}", fullmatch=True))
def test_a_decimal_text_is_the_nearest_double(text: bytes) -> None:
    try:
        value: float | None = float(text)
    except ValueError:
        value = None
    assert parse(text) == value
    assert value is None or copysign(1, value) == copysign(1, parse(text) or value)


def test_many_scores_are_parsed_at_once() -> None:
    assert parse_all([b"1", b"-2.5", b"inf"], True, False) == [1, -2.5, inf]
    assert parse_all([b"1", b"x"], True, False) is None
    assert parse_all([b"0x10"], True, False) == [16]
    assert parse_all([b"0x10"], False, False) is None
