"""Texts of fields as values: against Python's own int, float and datetime."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rillet.columns.value_parsing import ValueParser, exactly
from tests.variants import by_speed

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


@settings(deadline=None, max_examples=by_speed(200, 100, 500))
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
        (b"2013-01-01T05:15:00 CET", 1_357_013_700_000_000),
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
    for read, kind in ((integer, int), (real, float), (timestamp, int), (day, int), (boolean, int)):
        assert isinstance(read(text), kind | None)


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


# ---- against Arrow's casts -----------------------------------------------------------------------------------------

FINITE = st.decimals(allow_nan=False, allow_infinity=False)
ZONES = ["", "Z", "+00:00", "-00:00", "+05:30", "-0330", "+14:00", "-12", "+1800", " UTC", " +01:00", "z"]
CLOCKS = {
    "": 0,
    "T00:00": 0,
    " 23:59": 86_340_000_000,
    "T12:30:45": 45_045_000_000,
    " 00:00:00.1": 100_000,
    "T00:00:00.000001": 1,
    "T00:00:00.0000019": 1,
    "T23:59:59.999999": 86_399_999_999,
    "T05:06:07,5": 18_367_500_000,
    "T05:06:07.": 18_367_000_000,
}
DAYS = ["0001-01-01", "1582-10-15", "1900-02-28", "1969-12-31", "1970-01-01", "2000-02-29", "2024-12-31", "9999-12-31"]


def offset_of(zone: str) -> int:
    """Return the offset of a zone in microseconds."""
    digits = zone.strip().replace(":", "")
    if not digits or digits in ("Z", "z", "UTC"):
        return 0
    minutes = int(digits[1:3]) * 60 + int(digits[3:] or "0")
    return (-minutes if digits[0] == "-" else minutes) * 60_000_000


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("clock", sorted(CLOCKS))
def test_every_zone_follows_every_clock(clock: str, zone: str) -> None:
    for text in DAYS:
        days = (date.fromisoformat(text) - date(1970, 1, 1)).days
        expected: int | None = days * 86_400_000_000 + CLOCKS[clock] - offset_of(zone)
        if not clock and zone.startswith(" "):
            expected = None  # a blank after the day starts a clock
        assert timestamp((text + clock + zone).encode()) == expected
        assert timestamp((" \t" + text + clock + zone + "\r\n").encode()) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"2013-01-01T",
        b"2013-01-01T1",
        b"2013-01-01T1:00",
        b"2013-01-01T25:00",
        b"2013-01-01T12:60",
        b"2013-01-01T12:3",
        b"2013-01-01T12:30:6",
        b"2013-01-01T12:30:61",
        b"2013-01-01T12-30",
        b"2013-01-01T12:30:00+",
        b"2013-01-01+19:00",
        b"2013-01-01T12:30:00+1",
        b"2013-01-01T12:30:00+01:60",
        b"2013-01-01T12:30:00+01:001",
        b"2013-01-01T12:30 XYZ",
        b"2013-01-01T12:30:00ZZ",
        b"2013-01-01T12:30:00 utc",
        b"2013-00-01",
        b"2013-01-00",
        b"2013-01-32",
        b"2013-04-31",
        b"2100-02-29",
        b"02013-01-01",
        b"-013-01-01",
        b"2013/01/01",
        b"2013-01",
        b"1e3",
        b"1.5",
        b"0x10",
        b"2013-01-01t12:30",
        b"\xff",
        b"2013-01-0\xb1",
        b"9223372036854775808",
        b"-9223372036854776",
    ],
    ids=repr,
)
def test_a_malformed_moment_is_rejected(text: bytes) -> None:
    assert timestamp(text) is None


@pytest.mark.parametrize("year", [1, 4, 100, 400, 1600, 1900, 1968, 1970, 1999, 2000, 2023, 2024, 2100, 9999])
def test_every_day_of_a_year_is_read(year: int) -> None:
    first = date(year, 1, 1).toordinal()
    epoch = date(1970, 1, 1).toordinal()
    for ordinal in range(first, first + 365):
        text = date.fromordinal(ordinal).isoformat().encode()
        assert day(text) == ordinal - epoch
        assert timestamp(text) == (ordinal - epoch) * 86_400_000_000
    for month in range(1, 13):
        assert day(b"%04d-%02d-32" % (year, month)) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"2013-01-01", 15706),
        (b"2013-01-01 ", 15706),
        (b"2013-01-01T", 15706),
        (b"2013-01-01 x", 15706),
        (b"2013-01-01X", None),
        (b"2013-01-01-", None),
        (b"2013-1-01", None),
        (b"20130101", None),
        (b"15706", None),
        (b"0000-01-01", -719528),
        (b"0000-02-29", -719469),
        (b"0001-02-29", None),
        (b"", None),
        (b" ", None),
    ],
    ids=repr,
)
def test_a_date_may_be_followed_by_a_time_that_is_not_read(text: bytes, expected: int | None) -> None:
    assert day(text) == expected


pa = pytest.importorskip("pyarrow")


@settings(deadline=None)
@given(st.one_of(st.integers(-(2**66), 2**66).map(str), st.text("0123456789-", max_size=21)))
def test_integers_that_arrow_casts_are_the_same_integers(text: str) -> None:
    """Arrow accepts fewer texts: no blanks, no plus."""
    try:
        expected = pa.array([text]).cast(pa.int64())[0].as_py()
    except pa.ArrowInvalid:
        expected = None
    value = integer(text.encode())
    assert value == expected or (expected is None and value == int(text))


@settings(deadline=None)
@given(st.one_of(st.floats().map(repr), FINITE.map(str), st.text("0123456789.eE-", max_size=14)))
def test_doubles_that_arrow_casts_are_the_same_doubles(text: str) -> None:
    try:
        expected = pa.array([text]).cast(pa.float64())[0].as_py()
    except pa.ArrowInvalid:
        return
    assert repr(real(text.encode())) == repr(expected)


@settings(deadline=None)
@given(st.datetimes(), st.sampled_from(["s", "ms", "us"]), st.sampled_from([" ", "T"]))
def test_moments_that_arrow_writes_are_read_back(moment: datetime, unit: str, between: str) -> None:
    array = pa.array([moment], pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)
    text = array.cast(pa.string())[0].as_py().replace(" ", between)
    assert timestamp(text.encode()) == array.cast(pa.timestamp("us")).cast(pa.int64())[0].as_py()


@pytest.mark.parametrize("word", sorted(set(b"true t yes y 1 false f no n 0".split())))
@pytest.mark.parametrize("form", [bytes.lower, bytes.upper, bytes.title, lambda word: b"\x00 " + word + b"\t\x20"])
def test_words_of_truth_are_read_in_any_case_and_without_blanks(word: bytes, form) -> None:
    assert boolean(form(word)) == (word in (b"true", b"t", b"yes", b"y", b"1"))


@pytest.mark.parametrize(
    "word",
    [
        b"on",
        b"off",
        b"2",
        b"-1",
        b"01",
        b"tr",
        b"true1",
        b"truee",
        b"yess",
        b"none",
        b"\xff",
        b"t rue",
        b"f\x00alse",
        b"10",
        b"ye s",
    ],
)
def test_other_words_have_no_truth(word: bytes) -> None:
    assert boolean(word) is None


# ---- exact decimals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "precision", "scale", "expected"),
    [
        (b"1.005", 5, 2, 101),
        (b"-1.005", 5, 2, -101),
        (b"0.5", 1, 0, 1),
        (b"-0.5", 1, 0, -1),
        (b"0.49", 1, 0, 0),
        (b"9.5", 1, 0, None),
        (b"9.4", 1, 0, 9),
        (b"1e2", 3, 0, 100),
        (b"1e3", 3, 0, None),
        (b"1E-2", 3, 2, 1),
        (b" 7 ", 1, 0, 7),
        (b"+7", 1, 0, 7),
        (b".7", 2, 1, 7),
        (b"7.", 2, 1, 70),
        (b"", 5, 2, None),
        (b".", 5, 2, None),
        (b"nan", 5, 2, None),
        (b"Infinity", 5, 2, None),
        (b"1_0", 5, 2, None),
        (b"1 0", 5, 2, None),
        (b"--1", 5, 2, None),
        (b"1e", 5, 2, None),
        (b"e1", 5, 2, None),
        (b"0e999999999", 5, 2, 0),
        (b"1e-999999999", 5, 2, 0),
        (b"1e999999999999999999999", 5, 2, None),
        (b"9" * 38, 38, 0, 10**38 - 1),
        (b"9" * 39, 38, 0, None),
        (b"0." + b"9" * 38, 38, 38, 10**38 - 1),
        (b"0." + b"9" * 39, 38, 38, None),
        (b"0" * 100 + b"1", 1, 0, 1),
        ("٣".encode(), 5, 0, None),
        (b"\xff", 5, 0, None),
        (b"1\x002", 5, 0, None),
    ],
    ids=repr,
)
def test_exact_decimals_are_rounded_half_up_within_the_precision(
    text: bytes, precision: int, scale: int, expected: int | None
) -> None:
    assert exactly(text, precision, scale) == expected


@pytest.mark.parametrize(("text", "utc"), [
    (b"2013-01-01 05:15:00 Europe/Berlin", "2013-01-01 04:15:00"),
    (b"2013-07-01T05:15:00.5Europe/Berlin", "2013-07-01 03:15:00.500000"),
    (b"2013-01-01 05:15 America/Argentina/Buenos_Aires ", "2013-01-01 08:15:00"),
    (b"2013-01-01 05:15:00 GMT", "2013-01-01 05:15:00"),
    (b"2023-10-29 02:30:00 Europe/Berlin", "2023-10-29 00:30:00"),  # twice: the earlier one
    (b"2023-03-26 02:30:00 Europe/Berlin", "2023-03-26 01:30:00"),  # left out: 03:30 in summer
    (b"2013-01-01 05:15:00 Europe/Atlantis", None),
    (b"2013-01-01 05:15:00 Europe", None),
    (b"2013-01-01 05:15:00 ../Europe/Berlin", None),
    (b"2013-01-01 05:15:00 /etc/localtime", None),
    (b"2013-01-01 05:15:00 \xff", None),
    (b"0000-01-01 05:15:00 Europe/Berlin", None),
])  # fmt: skip
def test_zones_have_names(text: bytes, utc: str | None) -> None:
    """As Spark's cast reads them; "Z" and offsets are above."""
    found = timestamp(text)
    assert (None if found is None else str(datetime(1970, 1, 1) + timedelta(microseconds=found))) == utc
