"""Entries with a recent shape are decoded faster: the result equals that of decoding by names, for any bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns.arrow_batch import record_batch, rows_for  # noqa: E402
from rillet.columns.resp_decoder import DONE, MORE, RangeDecoder, ReplyFailed  # noqa: E402
from rillet.errors import ProtocolError  # noqa: E402
from tests.columns.model import NAMES, U64, VALUES, Entry, bulk, expected_default, reply  # noqa: E402
from tests.columns.test_resp_decoder import DEFAULT, TYPED, as_rows, decode  # noqa: E402

SHAPES = st.lists(st.lists(NAMES, min_size=1, max_size=5), min_size=1, max_size=3)
PIECES = st.lists(st.integers(1, 90), max_size=40)


@st.composite
def alike(draw: st.DrawFn) -> list[Entry]:
    """Return entries of very few shapes."""
    shapes = draw(SHAPES)
    return [
        (draw(U64), draw(U64), [(name, draw(VALUES)) for name in draw(st.sampled_from(shapes))])
        for _ in range(draw(st.integers(2, 15)))
    ]


def outcome(data: bytes, schema: Any, pieces: list[int], learning: bool) -> tuple[list[dict[str, Any]], str]:
    """Return the rows that bytes give, and how it ends."""
    rows = rows_for(schema, b"events")
    if not learning:
        rows.shapes = {(b"%d" % number,): None for number in range(64)}  # type: ignore[misc]
    decoder = RangeDecoder(rows)
    sizes = iter(pieces)
    end = "waits"
    try:
        while True:
            state = decoder.decode()
            if state == DONE:
                end = "done"
                break
            assert state == MORE
            if not data:
                break
            size = next(sizes, len(data))
            decoder.feed(data[:size])
            data = data[size:]
    except (ProtocolError, ReplyFailed) as error:
        end = repr(error)
    batch = record_batch(rows, schema)
    batch.validate(full=True)
    return as_rows(pa.Table.from_batches([batch])), f"{end} {decoder.last_ms}-{decoder.last_seq}"


@pytest.mark.slow
@settings(deadline=None)
@given(alike(), PIECES, st.integers(1, 5))
def test_entries_with_the_same_fields_equal_the_model(entries: list[Entry], pieces: list[int], max_rows: int) -> None:
    table = decode(reply(entries), DEFAULT, pieces, max_rows)
    assert as_rows(table) == expected_default(b"events", entries)


@pytest.mark.slow
@settings(deadline=None)
@given(alike(), PIECES, st.sampled_from([DEFAULT, TYPED, pa.schema([("n", pa.int64())]), pa.schema([])]))
def test_decoding_by_shape_equals_decoding_by_names(entries: list[Entry], pieces: list[int], schema: Any) -> None:
    data = reply(entries)
    assert outcome(data, schema, pieces, True) == outcome(data, schema, [], False)


@pytest.mark.slow
@settings(deadline=None)
@given(alike(), PIECES, st.sampled_from([DEFAULT, TYPED]), st.data())
def test_damaged_bytes_have_the_same_outcome_by_shape_and_by_names(
    entries: list[Entry], pieces: list[int], schema: Any, data: st.DataObject
) -> None:
    raw = bytearray(reply(entries))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.one_of(st.sampled_from(b"0123456789$*\r\n-_:"), st.integers(0, 255)))
    cut = data.draw(st.integers(0, len(raw)))
    whole = bytes(raw[:cut] if data.draw(st.booleans()) else raw)
    assert outcome(whole, schema, pieces, True) == outcome(whole, schema, pieces, False)


def test_ids_with_leading_zeros_are_normalised() -> None:
    entry = b"*2\r\n$%d\r\n%b\r\n*2\r\n$1\r\nn\r\n$1\r\n7\r\n"
    ids = [b"1-1", b"007-1", b"7-010", b"0-0", b"18446744073709551615-18446744073709551615", b"12345678901-0"]
    data = b"*%d\r\n" % len(ids) + b"".join(entry % (len(text), text) for text in ids)
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    rows, _ = outcome(data, schema, [], True)
    assert [row["id"] for row in rows] == ["1-1", "7-1", "7-10", "0-0", ids[4].decode(), "12345678901-0"]


def test_alternating_shapes_are_decoded_correctly() -> None:
    entries: list[Entry] = [
        (number, 0, [(b"f%d" % (number % shapes), b"%d" % number), (b"n", b"%d" % number)])
        for shapes in (3, 20, 200)
        for number in range(1, 200)
    ]
    assert as_rows(decode(reply(entries), DEFAULT)) == expected_default(b"events", entries)
    assert decode(reply(entries), TYPED).column("n").to_pylist() == [entry[0] for entry in entries]


# ---- IDs and lengths, by shape and by names ------------------------------------------------------------------------

IDS: list[tuple[bytes, tuple[int, int] | None]] = [
    (b"0-0", (0, 0)),
    (b"0-1", (0, 1)),
    (b"1-0", (1, 0)),
    (b"7-10", (7, 10)),
    (b"12345678-1", (12345678, 1)),
    (b"1234567-12345678", (1234567, 12345678)),
    (b"1526919030474-0", (1526919030474, 0)),
    (b"1526919030474-18446744073709551615", (1526919030474, 2**64 - 1)),
    (b"9999999999999999999-1", (9999999999999999999, 1)),
    (b"10000000000000000000-1", (10**19, 1)),
    (b"18446744073709551615-18446744073709551615", (2**64 - 1, 2**64 - 1)),
    (b"1-9999999999999999999", (1, 9999999999999999999)),
    (b"1-10000000000000000000", (1, 10**19)),
    (b"007-1", (7, 1)),
    (b"7-007", (7, 7)),
    (b"00-00", (0, 0)),
    (b"0000000000000000000000000000001-1", (1, 1)),
    (b"18446744073709551616-0", None),
    (b"0-18446744073709551616", None),
    (b"99999999999999999999-1", None),
    (b"1-99999999999999999999", None),
    (b"1", None),
    (b"", None),
    (b"-", None),
    (b"-1", None),
    (b"1-", None),
    (b"1--1", None),
    (b"1-1-1", None),
    (b"+1-1", None),
    (b"1-+1", None),
    (b"1-1 ", None),
    (b" 1-1", None),
    (b"1_0-1", None),
    (b"1.0-1", None),
    (b"1234567a-1", None),
    (b"1234567/-1", None),
    (b"1234567:-1", None),
    (b"a-b", None),
    (b"1\x00-1", None),
    (b"\xb1-1", None),
]


def entry(identifier: bytes, name: bytes = b"n", value: bytes = b"7") -> bytes:
    return b"*2\r\n" + bulk(identifier) + b"*2\r\n" + bulk(name) + bulk(value)


@pytest.mark.parametrize(("identifier", "expected"), IDS, ids=repr)
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_an_id_is_read_or_rejected_by_shape_and_by_names(
    identifier: bytes, expected: tuple[int, int] | None, size: int
) -> None:
    """The second entry has the shape of the first, the third one does not."""
    schema = pa.schema([("id", pa.string()), ("n", pa.string())])
    data = b"*3\r\n" + entry(b"1-1") + entry(identifier) + entry(identifier, b"other")
    rows, end = outcome(data, schema, [size] * len(data), True)
    if expected is None:
        assert end == "ProtocolError('reply to XRANGE: the ID of an entry is malformed') 1-1"
        assert [row["id"] for row in rows] == ["1-1"]
    else:
        text = f"{expected[0]}-{expected[1]}"
        assert end == f"done {text}"
        assert rows == [{"id": "1-1", "n": "7"}, {"id": text, "n": "7"}, {"id": text, "n": None}]
    assert (rows, end) == outcome(data, schema, [size] * len(data), False)


LENGTHS: list[tuple[bytes, str]] = [
    (b"$1", "done"),
    (b"$01", "done"),
    (b"$00001", "done"),
    (b"$0", "reply to XRANGE: a bulk string is not followed by CRLF"),
    (b"$2", "reply to XRANGE: a bulk string is not followed by CRLF"),
    (b"$", "unexpected line"),
    (b"$x", "unexpected line"),
    (b"$-1", "null name or value"),
    (b"$-2", "unexpected line"),
    (b"$+1", "unexpected line"),
    (b"$1x", "invalid length"),
    (b"$1 ", "invalid length"),
    (b"$12x", "invalid length"),
    (b"$1099511627777", "invalid length"),
    (b"$9223372036854775808", "invalid length"),
    (b"$18446744073709551617", "invalid length"),
    (b"*1", "unexpected line"),
    (b":1", "unexpected line"),
    (b"+1", "unexpected line"),
    (b"_", "null name or value"),
    (b"-ERR no", "ReplyFailed('ERR no')"),
]


@pytest.mark.parametrize(("header", "end"), LENGTHS, ids=repr)
@pytest.mark.parametrize("element", ["ID", "name", "value"])
def test_a_length_is_read_or_rejected_by_shape_and_by_names(header: bytes, end: str, element: str) -> None:
    texts = {"ID": bulk(b"5-5"), "name": bulk(b"n"), "value": bulk(b"7")}
    size = len(texts[element].split(b"\r\n")[1])
    line = header.replace(b"1", b"%d" % size, 1) if header in (b"$1", b"$01", b"$00001") else header
    texts[element] = line + b"\r\n" + texts[element].split(b"\r\n", 1)[1]
    data = b"*3\r\n" + entry(b"1-1") + b"*2\r\n" + texts["ID"] + b"*2\r\n" + texts["name"] + texts["value"]
    data += entry(b"6-6")
    schema = pa.schema([("id", pa.string()), ("n", pa.string())])
    for pieces in ([], [1] * len(data), [5] * len(data)):
        rows, result = outcome(data, schema, pieces, True)
        assert (rows, result) == outcome(data, schema, pieces, False)
        assert end in result
        assert len(rows) == (3 if end == "done" else 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"*1\r\n*3\r\n", "not an array of ID and fields"),
        (b"*1\r\n*1\r\n", "not an array of ID and fields"),
        (b"*1\r\n*0\r\n", "not an array of ID and fields"),
        (b"*1\r\n*-1\r\n", "not an array of ID and fields"),
        (b"*1\r\n$5\r\nhello\r\n", "unexpected line"),
        (b"*1\r\n*2\r\n*2\r\n", "unexpected line"),
        (b"*1\r\n*2\r\n$3\r\n1-1\r\n*3\r\n", "a name without a value"),
        (b"*1\r\n*2\r\n$3\r\n1-1\r\n:5\r\n", "unexpected line"),
        (b"*1\r\n*2\r\n$3\r\n1-1\r\n%1\r\n", "unexpected line"),
        (b"*1\r\n*2\r\n$3\r\n1-1xx*2\r\n", "not followed by CRLF"),
        (b"$-1x\r\n", "unexpected line"),
        (b"*" + b"1" * 70_000, "invalid length"),
        (b"+" + b"x" * 70_000, "reply to XRANGE: a header line is too long; CRLF is missing"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_wrong_structure_has_one_error_in_any_pieces(data: bytes, message: str) -> None:
    for pieces in ([], [1] * min(len(data), 200), [7] * min(len(data), 200)):
        rows, end = outcome(data, DEFAULT, pieces, True)
        assert rows == []
        assert message in end


@pytest.mark.parametrize("count", [1, 8, 9, 63, 64, 65, 100])
def test_shapes_beyond_the_remembered_ones_are_decoded_by_names(count: int) -> None:
    entries: list[Entry] = [
        (number, turn, [(b"f%d" % number, b"%d" % turn), (b"n", b"%d" % number)])
        for turn in range(3)
        for number in range(1, count + 1)
    ]
    assert as_rows(decode(reply(entries), DEFAULT)) == expected_default(b"events", entries)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [1, 2, 63, 64, 65, 128, 300])
def test_entries_of_many_fields_are_decoded_by_shape_or_by_names(fields: int) -> None:
    entries: list[Entry] = [(n, 0, [(b"f%d" % i, b"%d" % (i * n)) for i in range(fields)]) for n in (1, 2, 3)]
    data = reply(entries)
    assert as_rows(decode(data, DEFAULT)) == expected_default(b"events", entries)
    assert outcome(data, DEFAULT, [100] * 1000, True) == outcome(data, DEFAULT, [], False)
