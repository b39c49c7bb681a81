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
from tests.columns.model import NAMES, U64, VALUES, Entry, expected_default, reply  # noqa: E402
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


@settings(deadline=None)
@given(alike(), PIECES, st.integers(1, 5))
def test_entries_with_the_same_fields_equal_the_model(entries: list[Entry], pieces: list[int], max_rows: int) -> None:
    table = decode(reply(entries), DEFAULT, pieces, max_rows)
    assert as_rows(table) == expected_default(b"events", entries)


@settings(deadline=None)
@given(alike(), PIECES, st.sampled_from([DEFAULT, TYPED, pa.schema([("n", pa.int64())]), pa.schema([])]))
def test_decoding_by_shape_equals_decoding_by_names(entries: list[Entry], pieces: list[int], schema: Any) -> None:
    data = reply(entries)
    assert outcome(data, schema, pieces, True) == outcome(data, schema, [], False)


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
