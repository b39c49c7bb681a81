"""Texts of fields as values: against Python's own int, float and datetime."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rillet.columns.value_parsing import ValueParser

MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBER_LIKE = st.text("0123456789+-.eE _naif", max_size=24).map(str.encode)


def integer(text: bytes) -> int | None:
    parser = ValueParser()
    return parser.number if parser.integer(bytearray(b"x" + text + b"9"), 1, len(text)) else None


def real(text: bytes) -> float | None:
    """Read a double at the end of a buffer, and where a whole word lies behind it: the result is the same."""
    parser = ValueParser()
    result = parser.real if parser.decimal(bytearray(b"9" + text + b"9"), 1, len(text)) else None
    again = parser.real if parser.decimal(bytearray(b".9" + text + b"9.345678"), 2, len(text)) else None
    assert repr(again) == repr(result)
    return result


def timestamp(text: bytes) -> int | None:
    parser = ValueParser()
    return parser.number if parser.timestamp(bytearray(text + b"9"), 0, len(text)) else None


def day(text: bytes) -> int | None:
    parser = ValueParser()
    return parser.number if parser.date(bytearray(text + b"9"), 0, len(text)) else None


def boolean(text: bytes) -> int | None:
    parser = ValueParser()
    return parser.number if parser.boolean(bytearray(text + b"1"), 0, len(text)) else None


@settings(deadline=None)
@given(st.integers(-(2**70), 2**70))
def test_integers_are_read_within_64_bits_and_rejected_beyond(value: int) -> None:
    inside = -(2**63) <= value < 2**63
    assert integer(b"%d" % value) == (value if inside else None)
    assert integer(b" %d\r\n" % value) == (value if inside else None)


@pytest.mark.parametrize("edge", [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**19, 10**20, 0])
def test_integers_at_the_edges(edge: int) -> None:
    assert integer(b"%d" % edge) == (edge if -(2**63) <= edge < 2**63 else None)
    assert integer(b"000000000000000000000000%d" % abs(edge)) == (abs(edge) if abs(edge) < 2**63 else None)


@settings(deadline=None)
@given(NUMBER_LIKE)
def test_integers_are_signs_and_digits_only(text: bytes) -> None:
    plain = text.strip()
    expected = int(plain) if re.fullmatch(rb"[+-]?[0-9]+", plain) else None
    if expected is not None and not -(2**63) <= expected < 2**63:
        expected = None
    assert integer(text) == expected


@settings(deadline=None)
@given(st.floats(allow_nan=False))
def test_doubles_survive_their_shortest_text(value: float) -> None:
    assert real(repr(value).encode()) == value
    assert real(b"%.3f" % value) == float(f"{value:.3f}")


@settings(deadline=None)
@given(st.integers(0, 10**20), st.integers(-30, 30))
def test_doubles_are_rounded_as_python_rounds_them(mantissa: int, exponent: int) -> None:
    text = b"%de%d" % (mantissa, exponent)
    assert real(text) == float(text)
    digits = b"%d" % mantissa
    pointed = digits[:2] + b"." + digits[2:]
    assert real(b"-" + pointed) == float(b"-" + pointed)


@settings(deadline=None)
@given(NUMBER_LIKE)
def test_doubles_are_plain_decimals_or_the_named_ones(text: bytes) -> None:
    plain = text.strip()
    decimal = rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
    named = rb"(?i)[+-]?(nan|inf|infinity)"
    result = real(text)
    if re.fullmatch(decimal, plain) or re.fullmatch(named, plain):
        expected = float(plain)
        assert result == expected or (result is not None and math.isnan(result) and math.isnan(expected))
    else:
        assert result is None


@pytest.mark.parametrize(
    "text", [b"0.1", b"-0", b"1e22", b"1e23", b"9007199254740993", b"123456789012345678901e-5", b"5e-324", b"1e400"]
)
def test_doubles_are_rounded_correctly_at_the_limits_of_the_fast_path(text: bytes) -> None:
    assert real(text) == float(text)
    assert math.copysign(1, real(text) or 0.0) == math.copysign(1, float(text)) or float(text) == 0


@settings(deadline=None, max_examples=500)
@given(st.text("0123456789.-", min_size=1, max_size=10).map(str.encode))
def test_short_doubles_are_read_as_one_word(text: bytes) -> None:
    result = real(text)
    if re.fullmatch(rb"-?([0-9]+\.?[0-9]*|\.[0-9]+)", text):
        assert repr(result) == repr(float(text))
    else:
        assert result is None


@settings(deadline=None)
@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), st.sampled_from("T "), st.integers(-14 * 60, 14 * 60))
def test_timestamps_are_read_in_iso_8601(moment: datetime, between: str, minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    zoned = moment.replace(tzinfo=zone)
    expected = (zoned - EPOCH) // MICROSECOND
    assert timestamp(zoned.isoformat(between).encode()) == expected
    assert timestamp(zoned.isoformat(between).replace(":", "", 0).encode() + b" ") == expected
    utc = (moment.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
    assert timestamp(moment.isoformat(between).encode()) == utc
    assert timestamp(moment.isoformat(between).encode() + b"Z") == utc
    assert timestamp(moment.isoformat(between).encode() + b" UTC") == utc


@settings(deadline=None)
@given(st.dates())
def test_dates_are_days_since_1970(value: date) -> None:
    days = (value - date(1970, 1, 1)).days
    assert day(value.isoformat().encode()) == days
    assert day(value.isoformat().encode() + b"T10:11") == days
    assert timestamp(value.isoformat().encode()) == days * 86_400_000_000


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        (b"1526919030474", 1526919030474000),
        (b"-1", -1000),
        (b"2013-01-01 05:15", 1357017300000000),
        (b"2013-01-01T05:15:00.5+05:30", 1356997500500000),
        (b"2013-01-01T05:15:00,123456789", 1357017300123456),
        (b"9223372036854775", 9223372036854775000),
        (b"9223372036854776", None),
        (b"2013-02-29", None),
        (b"2012-02-29", 1330473600000000),
        (b"1900-02-29", None),
        (b"2013-13-01", None),
        (b"2013-01-01T24:00", None),
        (b"2013-01-01T05:15:60", None),
        (b"2013-01-01T05", None),
        (b"2013-01-01T05:15:00 CET", None),
        (b"2013-01-01T05:15:00+05:", 1356999300000000),
        (b"2013-01-01X", None),
        (b"2013-1-1", None),
        (b"", None),
        (b"yesterday", None),
    ],
)
def test_timestamps_have_their_microseconds_or_are_rejected(text: bytes, micros: int | None) -> None:
    assert timestamp(text) == micros


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_rejected_without_an_error(text: bytes) -> None:
    for read in (integer, real, timestamp, day, boolean):
        read(text)


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        (b"true", 1),
        (b"FALSE", 0),
        (b"Y", 1),
        (b"no", 0),
        (b"1", 1),
        (b" 0 ", 0),
        (b"2", None),
        (b"", None),
        (b"truest", None),
    ],
)
def test_booleans_are_sparks_words(text: bytes, truth: int | None) -> None:
    assert boolean(text) == truth


def test_a_value_outside_its_buffer_is_an_index_error() -> None:
    parser = ValueParser()
    for read in (parser.integer, parser.decimal, parser.timestamp, parser.date, parser.boolean):
        for start, size in ((0, 3), (-1, 2), (1, -1), (3, 1)):
            with pytest.raises(IndexError):
                read(bytearray(b"12"), start, size)


def test_eight_digits_read_as_one_word_are_the_number() -> None:
    parser = ValueParser()
    for text in (
        b"12345678",
        b"1234567a",
        b"/2345678",
        b":2345678",
        b"00000001",
        b"123456789012345678",
        b"1234567\xb1",
    ):
        expected = int(text) if text.isdigit() else None
        assert (parser.number if parser.integer(bytearray(text), 0, len(text)) else None) == expected
