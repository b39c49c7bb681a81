"""Replies to XRANGE into Arrow columns: against a model in plain Python, whole and in pieces."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns.arrow_batch import record_batch, rows_for  # noqa: E402
from rillet.columns.resp_decoder import BEGUN, DONE, FULL, MORE, RangeDecoder, ReplyFailed  # noqa: E402
from rillet.columns.value_parsing import ValueParser  # noqa: E402
from rillet.errors import ProtocolError  # noqa: E402
from tests.columns.model import ENTRIES, Entry, bulk, expected_default, reply, text  # noqa: E402

DEFAULT = pa.schema(
    [
        ("stream", pa.string()),
        ("id", pa.string()),
        ("id_ms", pa.int64()),
        ("id_seq", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("fields", pa.map_(pa.string(), pa.string())),
    ]
)
TYPED = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("user", pa.string()),
        pa.field("amount", pa.float64()),
        pa.field("small", pa.int32(), metadata={"field": "17"}),
        pa.field("größe", pa.binary()),
    ]
)


def decode(
    data: bytes, schema: Any, pieces: list[int] | None = None, max_rows: int = 1 << 30, key: bytes = b"events"
) -> Any:
    """Return the table of one reply that arrives in pieces of the given sizes."""
    rows = rows_for(schema, key)
    decoder = RangeDecoder(rows, max_rows)
    batches = []
    sizes = iter(pieces or [])
    state = MORE
    while state != DONE:
        state = decoder.decode()
        if state == MORE:
            assert data, "the decoder waits for more than there is"
            size = next(sizes, len(data))
            decoder.feed(data[:size])
            data = data[size:]
        elif state == FULL:
            assert rows.length == max_rows
            batches.append(record_batch(rows, schema))
    assert not data
    batches.append(record_batch(rows, schema))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema)


def as_rows(table: Any) -> list[dict[str, Any]]:
    """Return the rows: timestamps as integers (a datetime ends with the year 9999), NaN as text that equals itself."""
    if "timestamp" in table.column_names:
        i = table.column_names.index("timestamp")
        table = table.set_column(i, "timestamp", table.column(i).cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return [{name: "NaN" if value != value else value for name, value in row.items()} for row in rows]


@pytest.mark.slow
@settings(deadline=None)
@given(ENTRIES, st.lists(st.integers(1, 60), max_size=30), st.integers(1, 5))
def test_default_columns_equal_the_model(entries: list[Entry], pieces: list[int], max_rows: int) -> None:
    table = decode(reply(entries), DEFAULT, pieces, max_rows)
    assert as_rows(table) == expected_default(b"events", entries)


@pytest.mark.slow
@settings(deadline=None)
@given(ENTRIES)
def test_typed_columns_take_the_last_field_of_their_name(entries: list[Entry]) -> None:
    table = decode(reply(entries), TYPED)
    parser = ValueParser()
    for row, (ms, seq, fields) in zip(table.to_pylist(), entries, strict=True):
        last = dict(fields)
        assert row["id"] == f"{ms}-{seq}"
        assert row["user"] == (text(last[b"user"]) if b"user" in last else None)
        assert row["größe"] == last.get("größe".encode())
        for column, name in (("n", b"n"), ("small", b"17"), ("amount", b"amount")):
            value = last.get(name)
            if value is None:
                assert row[column] is None
            elif column == "amount":
                expected = parser.real if parser.decimal(bytearray(value), 0, len(value)) else None
                assert repr(row[column]) == repr(expected)  # NaN does not equal itself
            else:
                known = parser.integer(bytearray(value), 0, len(value))
                fits = known and (column == "n" or -(2**31) <= parser.number < 2**31)
                assert row[column] == (parser.number if fits else None)


def test_every_kind_of_column_holds_values_bad_values_and_nulls() -> None:
    schema = pa.schema(
        [
            ("s", pa.string()),
            ("b", pa.binary()),
            ("t", pa.bool_()),
            ("i8", pa.int8()),
            ("i16", pa.int16()),
            ("i32", pa.int32()),
            ("i64", pa.int64()),
            ("f32", pa.float32()),
            ("f64", pa.float64()),
            ("ts", pa.timestamp("us", tz="UTC")),
            ("ntz", pa.timestamp("us")),
            ("d", pa.date32()),
        ]
    )
    good = {
        "s": "ä",
        "b": "x",
        "t": "yes",
        "i8": "-128",
        "i16": "32767",
        "i32": "-5",
        "i64": "7",
        "f32": "0.5",
        "f64": "1e3",
        "ts": "1970-01-01T00:00:01Z",
        "ntz": "2",
        "d": "1970-01-03",
    }
    bad = dict.fromkeys(good, "no value") | {"i8": "128", "i16": "40000", "i32": "2147483648", "f32": "1e300"}
    entries: list[Entry] = []
    for number in range(40):  # more than a byte of validity bits, nulls in between
        fields = {0: good, 1: bad, 2: {}}[number % 3]
        entries.append((1, number, [(k.encode(), v.encode()) for k, v in fields.items()] or [(b"other", b"")]))
    table = decode(reply(entries), schema)
    first, second, third = table.to_pylist()[:3]
    assert first["s"] == "ä"
    assert first["b"] == b"x"
    assert first["t"] is True
    assert first["i8"] == -128
    assert first["i16"] == 32767
    assert first["i32"] == -5
    assert first["i64"] == 7
    assert first["f32"] == 0.5
    assert first["f64"] == 1000.0
    assert first["ts"].timestamp() == 1
    assert first["ntz"].microsecond == 2000
    assert first["d"].isoformat() == "1970-01-03"
    assert second == dict.fromkeys(schema.names) | {"s": "no value", "b": b"no value", "f32": float("inf")}
    assert third == dict.fromkeys(schema.names)
    assert table.to_pylist()[36:39] == [first, second, third]
    assert table.column("i64").null_count == 26


def test_a_stream_whose_entries_change_their_fields() -> None:
    source = random.Random(3)
    names = [b"f%d" % i for i in range(400)]
    entries: list[Entry] = []
    for number in range(60):
        chosen = source.sample(names, source.choice((1, 3, 300)))
        chosen += source.sample(chosen, source.randrange(2))
        entries.append((5, number, [(name, b"%d" % source.randrange(100)) for name in chosen]))
    assert as_rows(decode(reply(entries), DEFAULT)) == expected_default(b"events", entries)


def test_names_that_become_equal_by_replacement_are_one_key() -> None:
    entries: list[Entry] = [(1, 1, [(b"\xff", b"1"), (b"\xfe", b"2"), (b"x", b"3")])]
    assert as_rows(decode(reply(entries), DEFAULT))[0]["fields"] == [("\ufffd", "2"), ("x", "3")]


def test_long_replacements_and_columns_grow() -> None:
    entries: list[Entry] = [(1, n, [(b"v", b"\xff" * 5000), (b"w", b"y" * 70000)]) for n in range(3)]
    assert as_rows(decode(reply(entries), DEFAULT)) == expected_default(b"events", entries)


def test_empty_replies_nulls_and_deleted_entries_make_no_rows() -> None:
    assert decode(b"*0\r\n", DEFAULT).num_rows == 0
    assert decode(b"*-1\r\n", DEFAULT).num_rows == 0
    assert decode(b"_\r\n", DEFAULT, [1, 1, 1]).num_rows == 0
    deleted = b"*3\r\n*2\r\n$3\r\n1-1\r\n*-1\r\n*2\r\n$3\r\n1-2\r\n$-1\r\n*2\r\n$3\r\n1-3\r\n_\r\n"
    for pieces in ([], [1] * 80):
        assert decode(deleted, DEFAULT, pieces).num_rows == 0
    decoder = RangeDecoder(rows_for(DEFAULT, b"k"))
    decoder.feed(deleted)
    assert (decoder.decode(), decoder.missing, decoder.entries, decoder.last_seq) == (DONE, 3, 3, 3)


@pytest.mark.parametrize("unusual", [b"007-1", b"18446744073709551615-7", b"1-00"])
@pytest.mark.parametrize("null", [b"*-1", b"$-1", b"_"])
@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_an_entry_after_a_deleted_one_has_its_own_id(unusual: bytes, null: bytes, size: int) -> None:
    data = b"*2\r\n*2\r\n$7\r\n1000-55\r\n" + null + b"\r\n*2\r\n" + bulk(unusual) + b"*2\r\n$1\r\nn\r\n$1\r\n7\r\n"
    ms, seq = map(int, unusual.split(b"-"))
    table = decode(data, TYPED, [size] * len(data))
    assert table.column("id").to_pylist() == [f"{ms}-{seq}"]


@pytest.mark.parametrize("fields", [b"$0\r\n\r\n", b"$5\r\nhello\r\n", b"$12\r\n"])
def test_an_entry_whose_fields_are_a_string_is_a_protocol_error(fields: bytes) -> None:
    with pytest.raises(ProtocolError, match="fields"):
        decode(b"*1\r\n*2\r\n$3\r\n1-1\r\n" + fields, TYPED)


def test_pages_follow_one_another() -> None:
    rows = rows_for(DEFAULT, b"k")
    decoder = RangeDecoder(rows)
    first: list[Entry] = [(1, 1, [(b"a", b"1")]), (1, 2, [(b"a", b"2")])]
    decoder.feed(reply(first) + reply([(2, 0, [(b"a", b"3")])]))
    assert decoder.decode() == DONE
    assert (decoder.entries, decoder.last_ms, decoder.last_seq) == (2, 1, 2)
    assert decoder.decode() == DONE
    assert (decoder.entries, decoder.last_ms, decoder.last_seq) == (1, 2, 0)
    assert record_batch(rows, DEFAULT).column("id").to_pylist() == ["1-1", "1-2", "2-0"]
    assert decoder.decode() == MORE
    assert rows.length == 0


@settings(deadline=None)
@given(
    ENTRIES.filter(len), st.integers(1, 6), st.booleans(), st.lists(st.integers(1, 40), max_size=30), st.integers(1, 3)
)
def test_a_page_has_the_same_number_of_entries_with_and_without_the_expected_one(
    entries: list[Entry], most: int, there: bool, pieces: list[int], max_rows: int
) -> None:
    known: Entry = (7, 7, [(b"known", b"1"), (b"", b"\r\n")])
    entries = [entry for entry in entries if entry[:2] != (7, 7)]
    sent = ([known, *entries] if there else entries)[: most + 1]  # COUNT most + 1
    data = reply(sent) + reply([(9, 9, [(b"next", b"page")])])
    rows = rows_for(DEFAULT, b"events")
    decoder = RangeDecoder(rows, max_rows)
    decoder.expect(7, 7, most)
    batches, begun, ended = [], 0, 0
    while ended < 2:
        state = decoder.decode()
        if state == MORE:
            assert data
            assert not (begun == 0 and decoder.left == 0)
            size = pieces.pop() if pieces else len(data)
            decoder.feed(data[:size])
            data = data[size:]
        elif state == FULL:
            batches.append(record_batch(rows, DEFAULT))
        elif state == BEGUN:
            begun += 1
            assert decoder.met == there
            assert rows.length == 0
        else:
            assert decoder.entries == (1 if ended else min(most, len(entries)))
            ended += 1
    batches.append(record_batch(rows, DEFAULT))
    assert begun == 1
    expected = expected_default(b"events", [*entries[:most], (9, 9, [(b"next", b"page")])])
    assert as_rows(pa.Table.from_batches(batches, DEFAULT)) == expected


def test_an_error_reply_carries_the_servers_text() -> None:
    with pytest.raises(ReplyFailed, match="^WRONGTYPE Operation against a key holding the wrong kind of value$"):
        decode(b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", DEFAULT, [1] * 20)


@pytest.mark.parametrize(
    "data",
    [
        b"+OK\r\n",
        b":1\r\n",
        b"*1\r\n$3\r\nabc\r\n",
        b"*1\r\n*3\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*1\r\n$1\r\na\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nab\r\n$1\r\nb\r\n",
        b"*1\r\n*2\r\n$-1\r\n*0\r\n",
        b"*1\r\n*2\r\n$3\r\n1x1\r\n*0\r\n",
        b"*1\r\n*2\r\n$1\r\n1\r\n*0\r\n",
        b"*1\r\n*2\r\n$2\r\n1-\r\n*0\r\n",
        b"*1\r\n*2\r\n$2\r\n-1\r\n*0\r\n",
        b"*1\r\n*2\r\n$22\r\n18446744073709551616-0\r\n*0\r\n",
        b"*99999999999999999999\r\n",
        b"*1x\r\n",
        b"*1\n\n\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$-1\r\n",
        b"x" * 70000,
    ],
)
def test_a_reply_that_is_not_xranges_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data + b"\r\n" * 4, DEFAULT)


@pytest.mark.slow
@settings(deadline=None)
@given(ENTRIES, st.data())
def test_mutated_replies_never_read_outside(entries: list[Entry], data: st.DataObject) -> None:
    raw = bytearray(reply(entries))
    for _ in range(data.draw(st.integers(1, 4))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.sampled_from(list(b"*$-0129\r\n_a\xff")))
    rows = rows_for(DEFAULT, b"k")
    decoder = RangeDecoder(rows)
    decoder.feed(bytes(raw))
    try:
        while decoder.decode() == DONE:
            pass
    except (ProtocolError, ReplyFailed):
        return
    record_batch(rows, DEFAULT).validate(full=True)


def test_unsupported_schemas_are_rejected_with_every_column() -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("a", pa.list_(pa.duration("us"))),
            ("fields", pa.string()),
            ("b", pa.decimal256(50, 2)),
            ("ok", pa.string()),
            pa.field("again", pa.string(), metadata={"field": "ok"}),
        ]
    )
    with pytest.raises(ValueError, match="'id'.*'a'.*'fields'.*'b'.*two columns take the field 'ok'"):
        rows_for(schema, b"k")


def test_a_null_in_a_not_null_column_is_an_error_with_its_count() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    assert decode(reply([(1, 1, [(b"n", b"1")])]), schema).to_pylist() == [{"n": 1}]
    with pytest.raises(ValueError, match="'n' is declared NOT NULL, but 1 of 1 entries"):
        decode(reply([(1, 1, [(b"n", b"x")])]), schema)


def test_binary_maps_keep_every_byte() -> None:
    schema = pa.schema([("fields", pa.map_(pa.string(), pa.binary()))])
    assert decode(reply([(1, 1, [(b"\xff", b"\xfe")])]), schema).to_pylist() == [{"fields": [("\ufffd", b"\xfe")]}]


@settings(deadline=None)
@given(st.binary(max_size=30))
def test_invalid_utf8_is_replaced_as_python_replaces_it(value: bytes) -> None:
    assert decode(reply([(1, 1, [(b"user", value)])]), TYPED).column("user").to_pylist() == [text(value)]


# ---- arrival -------------------------------------------------------------------------------------------------------

SAMPLE: list[Entry] = [
    (1526919030474, 0, [(b"user", b"ada"), (b"n", b"7")]),
    (1526919030474, 1, [(b"user", b""), (b"n", b"-9223372036854775808")]),
    (1526919030475, 0, [(b"user", b"\r\n*2\r\n$3\r\n"), (b"n", b"x" * 120)]),
    (2**64 - 1, 2**64 - 1, [(b"17", b"1"), (b"amount", b"0.5"), ("größe".encode(), b"\xff")]),
]


@pytest.mark.parametrize("schema", [DEFAULT, TYPED, pa.schema([("n", pa.string())])], ids=["default", "typed", "one"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 16])
def test_a_reply_in_equal_pieces_is_the_whole_reply(schema: Any, size: int) -> None:
    data = reply(SAMPLE)
    assert as_rows(decode(data, schema, [size] * len(data))) == as_rows(decode(data, schema))


@pytest.mark.slow
@pytest.mark.parametrize("schema", [DEFAULT, TYPED], ids=["default", "typed"])
def test_a_reply_that_is_split_at_any_byte_is_the_whole_reply(schema: Any) -> None:
    data = reply(SAMPLE)
    whole = as_rows(decode(data, schema))
    for split in range(1, len(data)):
        assert as_rows(decode(data, schema, [split])) == whole, split


@pytest.mark.slow
def test_two_replies_that_are_split_at_any_byte_are_two_replies() -> None:
    data = reply(SAMPLE[:2]) + reply(SAMPLE[2:])
    for split in range(len(data) + 1):
        rows = rows_for(DEFAULT, b"events")
        decoder = RangeDecoder(rows)
        done, entries = 0, 0
        for piece in (data[:split], data[split:]):
            decoder.feed(piece)
            while decoder.decode() == DONE:
                done += 1
                entries += decoder.entries
        assert (done, entries, rows.length) == (2, 4, 4)
        assert as_rows(pa.Table.from_batches([record_batch(rows, DEFAULT)])) == expected_default(b"events", SAMPLE)


@pytest.mark.slow
def test_every_prefix_of_a_reply_waits_for_more() -> None:
    data = reply(SAMPLE)
    for size in range(len(data)):
        rows = rows_for(DEFAULT, b"events")
        decoder = RangeDecoder(rows)
        decoder.feed(data[:size])
        assert decoder.decode() == MORE
        assert decoder.decode() == MORE
        whole = [entry for i, entry in enumerate(SAMPLE) if len(reply(SAMPLE[: i + 1])) <= size]
        assert rows.length == len(whole)
        assert as_rows(pa.Table.from_batches([record_batch(rows, DEFAULT)])) == expected_default(b"events", whole)


@pytest.mark.parametrize(
    ("head", "state"),
    [(b"*1099511627776\r\n", MORE), (b"*1\r\n*2\r\n$3\r\n1-1\r\n*1099511627776\r\n", MORE),
     (b"*1\r\n*2\r\n$1099511627776\r\n", MORE), (b"*1099511627777\r\n", None), (b"*9223372036854775808\r\n", None),
     (b"*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$18446744073709551617\r\n", None), (b"*" + b"0" * 50 + b"1\r\n", MORE)],
)  # fmt: skip
def test_huge_lengths_allocate_nothing_and_overflow_nothing(head: bytes, state: int | None) -> None:
    decoder = RangeDecoder(rows_for(DEFAULT, b"k"))
    decoder.feed(head)
    size = len(decoder.buf)
    if state is None:
        with pytest.raises(ProtocolError, match="invalid length"):
            decoder.decode()
    else:
        assert decoder.decode() == state
    assert len(decoder.buf) == size


@pytest.mark.parametrize("max_bytes", [1, 60, 61, 200, 10_000])
def test_a_batch_is_full_at_its_limit_of_bytes(max_bytes: int) -> None:
    entries: list[Entry] = [(1, n, [(b"user", b"x" * 30)]) for n in range(1, 40)]
    rows = rows_for(TYPED, b"k")
    decoder = RangeDecoder(rows, 1 << 30, max_bytes)
    decoder.feed(reply(entries))
    lengths, sizes = [], []
    while (state := decoder.decode()) == FULL:
        lengths.append(rows.length)
        sizes.append(rows.nbytes)
        record_batch(rows, TYPED)
    assert state == DONE
    one = len(reply(entries[9:10])) - len(b"*1\r\n")
    assert all(max_bytes <= size < max_bytes + one for size in sizes)
    assert sum(lengths) + rows.length == len(entries)


@pytest.mark.parametrize("wrong", [(-1, 0), (0, -1), (0, 1 << 40)])
def test_positions_outside_the_buffer_are_an_index_error(wrong: tuple[int, int]) -> None:
    decoder = RangeDecoder(rows_for(DEFAULT, b"k"))
    decoder.feed(b"*1\r\n")
    decoder.pos, decoder.end = wrong
    with pytest.raises(IndexError):
        decoder.decode()


@pytest.mark.parametrize("text", [b"-ERR x\r\n", b"-\r\n", b"-LOADING \xff\r\n"])
@pytest.mark.parametrize("before", [b"", b"*2\r\n", b"*1\r\n*2\r\n", b"*1\r\n*2\r\n$3\r\n1-1\r\n"])
def test_an_error_is_raised_wherever_it_replaces_an_element(text: bytes, before: bytes) -> None:
    with pytest.raises(ReplyFailed) as caught:
        decode(before + text, DEFAULT, [1] * 60)
    assert str(caught.value) == text[1:-2].decode("utf-8", "replace")


@pytest.mark.parametrize("size", [0, 1, 9, 10, 63, 64, 99, 100, 999, 1000, 65535, 65536, 300_000])
def test_values_of_any_length_arrive_whole(size: int) -> None:
    entries: list[Entry] = [(1, n, [(b"user", b"v" * size), (b"n" * (size % 1000), b"1")]) for n in (1, 2, 3)]
    assert as_rows(decode(reply(entries), DEFAULT, [4096] * 500)) == expected_default(b"events", entries)


def test_expected_entries_are_met_in_pieces_and_counted_once() -> None:
    data = reply(SAMPLE)
    for most, met in ((1, True), (2, True), (3, True), (9, True), (2, False)):
        rows = rows_for(DEFAULT, b"events")
        decoder = RangeDecoder(rows)
        decoder.expect(1526919030474 + (not met), 0, most)
        states = []
        for i in range(len(data)):
            decoder.feed(data[i : i + 1])
            while (state := decoder.decode()) != MORE:
                states.append(state)
                if state == BEGUN:
                    assert decoder.met is met
        assert states == [BEGUN, DONE]
        assert decoder.entries == rows.length == min(most, len(SAMPLE) - met)
