"""Bad values in the three modes, and decimals."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns.arrow_batch import record_batch, rows_for  # noqa: E402
from rillet.columns.resp_decoder import DONE, RangeDecoder  # noqa: E402
from rillet.columns.row_builder import BadValue  # noqa: E402
from rillet.columns.value_parsing import exactly  # noqa: E402
from tests.columns.model import Entry, reply, text  # noqa: E402
from tests.variants import by_speed  # noqa: E402

MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
SCHEMA = pa.schema(
    [
        ("_corrupt", pa.string()),
        ("id", pa.string()),
        ("n", pa.int32()),
        ("yes", pa.bool_()),
        ("amount", pa.decimal128(6, 2)),
        ("user", pa.string()),
        ("j", pa.struct([("a", pa.int64())])),
        ("fields", pa.map_(pa.string(), pa.string())),
    ]
)
WORDS = {
    b"n": st.sampled_from([b"1", b"-7", b"2147483648", b"x", b""]),
    b"yes": st.sampled_from([b"true", b"0", b"maybe"]),
    b"amount": st.sampled_from([b"1.005", b"9999.99", b"9999.995", b"1e400"]),
    b"user": st.sampled_from([b"ada", b"", b"\xff\xfe", "größe".encode()]),
    b"j": st.sampled_from([b'{"a": 1}', b"{}", b"null", b'{"a": "1"}', b"{"]),
    b"other": st.binary(max_size=5),
}
BAD = {
    b"n": {b"2147483648", b"x", b""},
    b"yes": {b"maybe"},
    b"amount": {b"9999.995", b"1e400"},
    b"j": {b'{"a": "1"}', b"{"},
}


def read(entries: list[Entry], mode: str, schema: Any = SCHEMA, corrupt: str = "_corrupt") -> list[dict[str, Any]]:
    rows = rows_for(schema, b"events", mode, corrupt)
    decoder = RangeDecoder(rows)
    decoder.feed(reply(entries))
    assert decoder.decode() == DONE
    batch = record_batch(rows, schema)
    batch.validate(full=True)
    result: list[dict[str, Any]] = batch.to_pylist()
    return result


@st.composite
def mixed(draw: st.DrawFn) -> list[Entry]:
    names = draw(st.lists(st.sampled_from(sorted(WORDS)), min_size=1, max_size=7))
    count = draw(st.integers(1, 25))
    return [(1, number, [(name, draw(WORDS[name])) for name in names]) for number in range(1, count)]


@settings(deadline=None)
@given(mixed())
def test_every_mode_handles_bad_values_as_documented(entries: list[Entry]) -> None:
    bad = [any(value in BAD.get(name, ()) for name, value in dict(fields).items()) for _, _, fields in entries]
    permissive = read(entries, "PERMISSIVE")
    assert [row["id"] for row in permissive] == [f"1-{entry[1]}" for entry in entries]
    for row, (_, _, fields), is_bad in zip(permissive, entries, bad, strict=True):
        last = {text(name): text(value) for name, value in fields}
        assert row["_corrupt"] == (json.dumps(last, ensure_ascii=False) if is_bad else None)
        assert dict(row["fields"]) == last
        for name in ("n", "yes", "amount", "j"):
            if name not in last or dict(fields)[name.encode()] in BAD[name.encode()]:
                assert row[name] is None
        assert row["user"] == last.get("user")
    assert read(entries, "DROPMALFORMED") == [row for row, is_bad in zip(permissive, bad, strict=True) if not is_bad]
    strict = [
        is_bad or any(text(word).encode() != word for pair in entry[2] for word in pair)
        for is_bad, entry in zip(bad, entries, strict=True)
    ]
    if True in strict:
        with pytest.raises(BadValue, match=rf"^rillet: in the stream 'events', entry 1-{strict.index(True) + 1}, "):
            read(entries, "FAILFAST")
    else:
        assert read(entries, "FAILFAST") == permissive


def test_failfast_names_the_stream_the_entry_the_field_and_the_type() -> None:
    schema = pa.schema([("amount", pa.decimal128(6, 2)), ("user", pa.string()), ("raw", pa.binary())])
    long: list[Entry] = [(5, 1, [(b"amount", b"1")]), (5, 2, [(b"amount", b"x" * 300)])]
    with pytest.raises(ValueError) as caught:
        read(long, "FAILFAST", schema)
    assert str(caught.value) == (
        f"rillet: in the stream 'events', entry 5-2, the field 'amount' is not of type decimal(6,2): '{'x' * 100}'... "
        "(mode FAILFAST)"
    )
    with pytest.raises(BadValue, match="the field 'user' is not of type string: 'a\ufffd'"):
        read([(5, 3, [(b"user", b"a\xff")])], "FAILFAST", schema)
    assert read([(5, 3, [(b"raw", b"a\xff")])], "FAILFAST", schema)[0]["raw"] == b"a\xff"
    with pytest.raises(BadValue, match="in the column 'fields' is not of type string"):
        read([(5, 3, [(b"a\xff", b"")])], "FAILFAST", pa.schema([("fields", pa.map_(pa.string(), pa.string()))]))


@pytest.mark.parametrize("size", [1, 5, 5000])
def test_failfast_shows_no_bytes_from_outside_the_entry(size: int) -> None:
    """A stream's key lies in another buffer than its entries, which may be shorter."""
    rows = rows_for(pa.schema([("stream", pa.string())]), b"\xff" * size, "FAILFAST")
    decoder = RangeDecoder(rows)
    decoder.feed(reply([(1, 1, [(b"secret", b"value")])]))
    with pytest.raises(
        BadValue, match=r"entry 1-1, the key is not of type string: bytes that are not UTF-8 \(mode FAILFAST\)"
    ):
        decoder.decode()


def test_the_column_of_bad_entries_has_the_given_name() -> None:
    schema = pa.schema([("n", pa.int32()), ("broken", pa.string()), ("_corrupt", pa.string())])
    entries: list[Entry] = [(1, 1, [(b"n", b"x"), (b"broken", b"b"), (b"_corrupt", b"c")])]
    (row,) = read(entries, "PERMISSIVE", schema, "broken")
    assert row == {"n": None, "broken": '{"n": "x", "broken": "b", "_corrupt": "c"}', "_corrupt": "c"}
    assert read(entries, "DROPMALFORMED", schema, "broken") == []


def test_a_missing_field_is_not_a_bad_value_but_violates_not_null() -> None:
    schema = pa.schema([pa.field("n", pa.int32(), nullable=False), ("_corrupt", pa.string())])
    for mode in MODES:
        with pytest.raises(ValueError, match="'n' is declared NOT NULL, but 1 of 1 entries"):
            read([(1, 1, [(b"m", b"1")])], mode, schema)


# ---- decimals -----------------------------------------------------------------------------------------------------

DECIMAL_LIKE = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, places=None).map(lambda value: f"{value:f}"[:60]),
    st.decimals(-(10**6), 10**6, places=3).map(str),
    st.text("0123456789+-.eE ", max_size=22),
    st.integers(-(10**40), 10**40).map(str),
)


def rounded(digits: str, precision: int, scale: int) -> Decimal | None:
    """Return what Spark's cast makes of it: half up to the scale, nothing beyond the precision."""
    try:
        value = Decimal(digits.strip(" "))
        if not value.is_finite():
            return None
        return value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(precision))
    except DecimalException:
        return None


@settings(deadline=None, max_examples=by_speed(120, 80, 300))
@given(DECIMAL_LIKE, st.integers(1, 38), st.integers(0, 38))
@example("1.005", 5, 2)
@example("-0.005", 5, 2)
@example("999.995", 5, 2)
@example(".5", 38, 38)
@example("5.", 5, 0)
@example("99999999999999999.95", 18, 1)
@example("123456789012345678", 18, 0)
@example("1e400", 38, 0)
@example("1e-400", 38, 38)
@example("-1234.5", 38, 18)
@example("99999999999999999999.5", 38, 18)
@example("999999999999999999.5", 19, 1)
@example("123456789012345678", 20, 3)
def test_decimals_are_rounded_as_sparks_cast_rounds_them(digits: str, precision: int, scale: int) -> None:
    scale = min(scale, precision)
    schema = pa.schema([("d", pa.decimal128(precision, scale))])
    (row,) = read([(1, 1, [(b"d", digits.encode())])], "PERMISSIVE", schema)
    assert row["d"] == rounded(digits, precision, scale)


def test_decimals_equal_recorded_results_of_sparks_cast() -> None:
    """Noted from PySpark 4.3: try_cast(v as decimal(5,2))."""
    recorded = {
        "1.005": "1.01", "1.015": "1.02", "-1.005": "-1.01", "2.345": "2.35", "999.994": "999.99", "999.995": None,
        "1e2": "100.00", " 12.3 ": "12.30", "+5": "5.00", ".5": "0.50", "5.": "5.00", "1e-10": "0.00", "": None,
        "NaN": None, "inf": None, "1,000": None, "0x1": None, "1e400": None, "1e-400": "0.00", "12345": None,
        "-0.005": "-0.01", "-0.004": "0.00", "1_0": None, "1d": None, "1E2": "100.00", "\x1f7\t": "7.00", ".": None,
    }  # fmt: skip
    schema = pa.schema([("d", pa.decimal128(5, 2))])
    entries: list[Entry] = [(1, n, [(b"d", digits.encode())]) for n, digits in enumerate(recorded, 1)]
    result = [row["d"] for row in read(entries, "PERMISSIVE", schema)]
    assert result == [None if value is None else Decimal(value) for value in recorded.values()]
    assert exactly(b"1e99999999999999999999", 38, 0) is None
