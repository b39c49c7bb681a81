"""Listpack nodes into Arrow columns: the rows of the reply to XRANGE; damaged and hand-made nodes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns.arrow_batch import record_batch, rows_for  # noqa: E402
from rillet.columns.node_decoder import DONE, FULL, NodeDecoder, NodeReader, nodes_of  # noqa: E402
from rillet.columns.row_builder import BadValue  # noqa: E402
from rillet.errors import Corrupt  # noqa: E402
from rillet.types.stream.stream import Stream  # noqa: E402
from tests.columns import test_bad_values as modes  # noqa: E402
from tests.columns.hostile_bytes import box, listpack  # noqa: E402
from tests.columns.model import ENTRIES, Entry, reply, rising  # noqa: E402
from tests.columns.test_bad_values import MODES, mixed, read  # noqa: E402
from tests.columns.test_resp_decoder import DEFAULT, TYPED, as_rows, decode  # noqa: E402
from tests.variants import by_speed  # noqa: E402

FIRST, LAST = (0, 0), (2**64 - 1, 2**64 - 1)


def filled(entries: list[Entry], node_max_entries: int = 3, node_max_bytes: int = 4096) -> Stream:
    """Return a stream of the entries, in small nodes."""
    stream = Stream()
    for ms, seq, fields in entries:
        flat = [word for pair in fields for word in pair]
        stream.append(flat, 0, len(fields), ms, seq, node_max_bytes, node_max_entries)
    return stream


def table(
    stream: Any,
    schema: Any,
    after: tuple[int, int] = FIRST,
    last: tuple[int, int] = LAST,
    max_rows: int = 2,
    exact: bool = True,
) -> Any:
    rows = rows_for(schema, b"events")
    decoder = NodeDecoder(rows, stream, after, last, max_rows)
    batches = []
    while decoder.decode() == FULL:
        assert rows.length == max_rows or not exact
        batches.append(record_batch(rows, schema))
    assert decoder.decode() == DONE
    batches.append(record_batch(rows, schema))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema)


@pytest.mark.slow
@settings(deadline=None)
@given(ENTRIES, st.sampled_from([DEFAULT, TYPED]), st.integers(1, 4))
def test_nodes_and_replies_give_the_same_columns(entries: list[Entry], schema: Any, max_rows: int) -> None:
    entries = rising(entries)
    from_nodes = table(filled(entries), schema, max_rows=max_rows)
    assert as_rows(from_nodes) == as_rows(decode(reply(entries), schema))


@pytest.mark.slow
@settings(deadline=None)
@given(ENTRIES, st.data())
def test_a_range_excludes_its_start_and_deleted_entries(entries: list[Entry], data: st.DataObject) -> None:
    entries = rising(entries)
    stream = filled(entries)
    ids = [entry[:2] for entry in entries]
    gone = set(data.draw(st.lists(st.sampled_from(ids), unique=True))) if ids else set()
    for ms, seq in gone:
        stream.delete(ms, seq)
    after, last = data.draw(st.sampled_from([*ids, FIRST, LAST])), data.draw(st.sampled_from([*ids, FIRST, LAST]))
    expected = [f"{ms}-{seq}" for ms, seq in ids if after < (ms, seq) <= last and (ms, seq) not in gone]
    assert table(stream, DEFAULT, after, last).column("id").to_pylist() == expected


@settings(deadline=None)
@given(ENTRIES)
def test_nodes_as_bytes_give_the_rows_of_the_stream(entries: list[Entry]) -> None:
    entries = rising(entries)
    stream = filled(entries)
    shipped = [(key, node.to_bytes()) for key, node in stream.rax.items()]
    assert table(nodes_of(shipped), DEFAULT).equals(table(stream, DEFAULT))


@pytest.mark.slow
@settings(deadline=None)
@given(ENTRIES.filter(len), st.data())
def test_corrupt_nodes_are_rejected_or_decoded(entries: list[Entry], data: st.DataObject) -> None:
    stream = filled(rising(entries))
    shipped = [(key, bytearray(node.to_bytes())) for key, node in stream.rax.items()]
    if not shipped:
        return
    raw = data.draw(st.sampled_from([node for _, node in shipped]))
    for _ in range(3):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        table(nodes_of([(key, bytes(node)) for key, node in shipped]), DEFAULT)
    except Corrupt:
        pass


def test_a_key_that_is_not_an_id_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        nodes_of([(b"short", b"")])


@pytest.mark.slow
@settings(deadline=None, max_examples=by_speed(30, 15, 60))
@given(mixed(), st.sampled_from(MODES), st.integers(1, 9))
def test_nodes_and_replies_have_the_same_bad_values(entries: list[Entry], mode: str, node_max_entries: int) -> None:
    rows = rows_for(modes.SCHEMA, b"events", mode, "_corrupt")
    decoder = NodeDecoder(rows, filled(entries, node_max_entries), FIRST, LAST)
    message, expected = "", []
    try:
        expected = read(entries, mode)
    except BadValue as error:
        message = str(error)
    if message:
        with pytest.raises(BadValue) as ours:
            decoder.decode()
        assert str(ours.value).replace("'", "") == message.replace("'", "")  # a number has no quotes
    else:
        assert decoder.decode() == DONE
        assert record_batch(rows, modes.SCHEMA).to_pylist() == expected


@pytest.mark.slow
def test_a_batch_ends_when_the_names_in_its_map_reach_the_limit() -> None:
    """A node holds its names once, and the map repeats them in every row: 4 KB of names make 50 MB of rows."""
    stream = filled([(1, n, [(b"n" * 4000, b"")]) for n in range(1, 12_500)], node_max_entries=0, node_max_bytes=0)
    for schema, most in ((pa.schema([("fields", pa.map_(pa.string(), pa.string()))]), 300), (TYPED, 12_499)):
        rows = rows_for(schema, b"events")
        decoder = NodeDecoder(rows, stream, FIRST, LAST, 16384, 1 << 20)
        lengths = []
        while decoder.decode() == FULL:
            lengths.append(rows.length)
            record_batch(rows, schema)
        assert sum(lengths) + rows.length == 12_499
        assert max([*lengths, rows.length]) <= most


# ---- nodes by hand -------------------------------------------------------------------------------------------------

NUMBERS = [0, 127, 128, -1, 4095, 4096, -4096, -4097, 2**15 - 1, -(2**15), 2**23 - 1, -(2**23), 2**31 - 1, -(2**31),
           2**63 - 1, -(2**63)]  # fmt: skip
SIZES = [0, 1, 62, 63, 64, 125, 126, 127, 128, 4095, 4096, 16376, 16377, 16378, 16379, 16380, 16381, 70_000]
NUMBERED = pa.schema([("n", pa.int64()), ("s", pa.string())])


def node_of(*items: int | bytes, width: int = 0) -> bytes:
    return listpack([box(item, width) for item in items])


def read_node(data: bytes, schema: Any = NUMBERED, master: tuple[int, int] = (5, 5)) -> list[dict[str, Any]]:
    """Decode one node that ends where its buffer ends."""
    rows = rows_for(schema, b"events")
    reader = NodeReader(rows, FIRST, LAST)
    reader.open(bytearray(data), 0, len(data), *master)
    assert reader.decode() == DONE
    batch = record_batch(rows, schema)
    batch.validate(full=True)
    return batch.to_pylist()


@pytest.mark.parametrize("width", range(5))
@pytest.mark.parametrize("number", NUMBERS)
def test_an_integer_has_its_value_in_every_encoding(number: int, width: int) -> None:
    """Redis reads an integer in a wider encoding than the smallest; so does the decoder."""
    master = [box(item) for item in (1, 0, 2, b"n", b"s", 0)]
    entry = [box(2), box(0), box(0), box(number, width), box(number, width), box(5)]
    assert read_node(listpack(master + entry)) == [{"n": number, "s": str(number)}]


@pytest.mark.parametrize("width", [0, 1, 2])
@pytest.mark.parametrize("size", SIZES)
def test_a_text_has_its_bytes_in_every_encoding(size: int, width: int) -> None:
    master = [box(item) for item in (1, 0, 2, b"n", b"s", 0)]
    entry = [box(2), box(0), box(0), box(b"7"), box(b"x" * size, width), box(5)]
    assert read_node(listpack(master + entry)) == [{"n": 7, "s": "x" * size}]


@pytest.mark.parametrize("width", range(5))
def test_counts_flags_and_deltas_have_their_value_in_every_encoding(width: int) -> None:
    data = node_of(2, 0, 1, b"n", 0, 2, 0, 0, b"7", 4, 0, 1, -1, 1, b"n", 8, 6, width=width)
    assert [row["n"] for row in read_node(data)] == [7, 8]


@pytest.mark.parametrize(
    ("master", "deltas", "expected"),
    [((5, 5), (0, 0), "5-5"), ((5, 5), (3, -5), "8-0"), ((0, 0), (2**63 - 1, -1), f"{2**63 - 1}-{2**64 - 1}"),
     ((2**64 - 1, 2**64 - 1), (0, 0), f"{2**64 - 1}-{2**64 - 1}"), ((2**63, 0), (2**63 - 1, 1), f"{2**64 - 1}-1"),
     ((2**64 - 1, 7), (2, -8), f"1-{2**64 - 1}"), ((0, 1), (-(2**63), -(2**63)), f"{2**63}-{2**63 + 1}")],
)  # fmt: skip
def test_deltas_wrap_around_64_bits(master: tuple[int, int], deltas: tuple[int, int], expected: str) -> None:
    data = node_of(1, 0, 0, 0, 2, *deltas, 3)
    assert read_node(data, pa.schema([("id", pa.string())]), master) == [{"id": expected}]


SOUND: list[int | bytes] = [1, 0, 1, b"n", 0, 2, 0, 0, b"7", 4]


@pytest.mark.parametrize(
    ("at", "item", "message"),
    [
        (0, -1, "negative count"), (1, -1, "negative count"), (0, b"x", "in place of a number"),
        (2, -1, "number of fields"),
        (2, 2**40, "number of fields"), (2, b"99999999999999999999", "in place of a number"), (4, 1, "master entry"),
        (4, b"", "in place of a number"), (5, b"x", "in place of a number"), (6, b"9223372036854775808", "in place of"),
        (7, b"1.5", "in place of a number"), (9, 3, "lp-count"), (9, 5, "lp-count"), (9, -4, "lp-count"),
        (2, 0, "in place of a number"), (2, 3, "stream node"), (5, 0, "stream node"),
    ],
)  # fmt: skip
def test_every_wrong_element_is_corrupt(at: int, item: int | bytes, message: str) -> None:
    assert read_node(node_of(*SOUND)) == [{"n": 7, "s": None}]
    items = [*SOUND[:at], item, *SOUND[at + 1 :]]
    with pytest.raises(Corrupt, match=message):
        read_node(node_of(*items))


@pytest.mark.slow
def test_a_node_that_is_cut_at_any_byte_is_corrupt() -> None:
    items: list[int | bytes] = [
        2,
        0,
        2,
        b"n",
        b"s" * 70,
        0,
        2,
        1000,
        -1,
        2**40,
        b"x" * 5000,
        5,
        0,
        2,
        2,
        1,
        b"own",
        b"y",
        6,
    ]
    data = node_of(*items)
    assert len(read_node(data)) == 2
    for size in range(7, len(data)):
        cut = struct.pack("<I", size) + data[4 : size - 1] + b"\xff"
        try:
            assert len(read_node(cut)) < 2
        except Corrupt:
            continue


@pytest.mark.parametrize("total", [0, 1, 6, 7, 19, 21, 2**31, 2**32 - 1])
def test_a_false_size_in_the_header_is_corrupt(total: int) -> None:
    boxes = [box(item) for item in SOUND]
    with pytest.raises(Corrupt, match="not a listpack"):
        read_node(listpack(boxes, total=total))


@pytest.mark.parametrize("count", [0, 1, 9, 11, 65535])
def test_the_element_count_in_the_header_is_not_needed(count: int) -> None:
    assert read_node(listpack([box(item) for item in SOUND], count=count)) == [{"n": 7, "s": None}]


@pytest.mark.parametrize("head", [b"\xf5", b"\xf6", b"\xfe", b"\xff", b"\xf0", b"\xf4", b"\xef", b"\xdf", b"\x80"])
@pytest.mark.parametrize("at", [0, 3, 5, 8])
def test_an_element_whose_bytes_are_missing_is_corrupt(head: bytes, at: int) -> None:
    boxes = [box(item) for item in SOUND[:at]] + [head]
    with pytest.raises(Corrupt):
        read_node(listpack(boxes))


@pytest.mark.parametrize(("start", "size"), [(-1, 8), (0, -1), (0, 9), (8, 1), (1, 8), (2**62, 2**62)])
def test_a_node_outside_its_buffer_is_an_index_error(start: int, size: int) -> None:
    with pytest.raises(IndexError):
        NodeReader(rows_for(NUMBERED, b"k"), FIRST, LAST).open(bytearray(8), start, size, 0, 0)


@pytest.mark.parametrize(
    ("max_rows", "max_bytes"), [(1, 1 << 20), (2, 1 << 20), (7, 1 << 20), (1 << 20, 1), (1 << 20, 90)]
)
def test_a_batch_is_full_at_its_limits_and_loses_nothing(max_rows: int, max_bytes: int) -> None:
    entries: list[Entry] = [(n, 0, [(b"n", b"%d" % n), (b"s", b"x" * (n % 9))]) for n in range(1, 60)]
    rows = rows_for(NUMBERED, b"k")
    decoder = NodeDecoder(rows, filled(entries, 7), FIRST, LAST, max_rows, max_bytes)
    result: list[int] = []
    while (state := decoder.decode()) == FULL:
        assert rows.length == max_rows or rows.nbytes >= max_bytes
        result += record_batch(rows, NUMBERED).column(0).to_pylist()
        assert (decoder.last_ms, decoder.last_seq) == (result[-1], 0)
    assert state == DONE
    assert result + record_batch(rows, NUMBERED).column(0).to_pylist() == list(range(1, 60))


@pytest.mark.slow
@given(ENTRIES, st.data())
def test_a_decoder_made_after_its_last_id_continues(entries: list[Entry], data: st.DataObject) -> None:
    entries = rising(entries)
    stream = filled(entries, 4)
    after, result = FIRST, list[str]()
    while True:
        rows = rows_for(DEFAULT, b"k")
        decoder = NodeDecoder(rows, stream, after, LAST, data.draw(st.integers(1, 3)))
        state = decoder.decode()
        result += record_batch(rows, DEFAULT).column("id").to_pylist()
        after = (decoder.last_ms, decoder.last_seq)
        if state == DONE:
            break
    assert result == [f"{ms}-{seq}" for ms, seq, _ in entries]


SAME = st.lists(st.lists(st.one_of(st.binary(max_size=70), st.integers(-(2**63), 2**63 - 1)), min_size=2, max_size=2),
                min_size=1, max_size=25)  # fmt: skip


@given(SAME, st.lists(st.integers(1, 25), max_size=8), st.integers(0, 6))
def test_entries_with_the_masters_fields_are_read_with_deletions_between(
    cells: list[list[bytes | int]], gone: list[int], node_max_entries: int
) -> None:
    words = [[b"%d" % cell if isinstance(cell, int) else cell for cell in row] for row in cells]
    entries: list[Entry] = [(7, n, [(b"n", row[0]), (b"s", row[1])]) for n, row in enumerate(words, 1)]
    stream = filled(entries, node_max_entries)
    for seq in gone:
        stream.delete(7, seq)
    schema = pa.schema([("id_seq", pa.int64()), ("n", pa.binary()), ("s", pa.binary())])
    expected = [{"id_seq": n, "n": row[0], "s": row[1]} for n, row in enumerate(words, 1) if n not in gone]
    assert table(stream, schema, max_rows=1 << 20, exact=False).to_pylist() == expected


@pytest.mark.slow
@given(ENTRIES, st.integers(1, 5))
def test_entries_trimmed_from_the_head_are_gone(entries: list[Entry], length: int) -> None:
    entries = rising(entries)
    stream = filled(entries)
    stream.trim_maxlen(length, False, 0)
    result = table(stream, DEFAULT, max_rows=1 << 20, exact=False).column("id").to_pylist()
    assert result == [f"{ms}-{seq}" for ms, seq, _ in entries[-length:]]


@pytest.mark.parametrize(
    "items",
    [
        [2, 0, 1, b"n", 0, 2, 0, 0, b"7", 4],
        [1, 1, 1, b"n", 0, 2, 0, 0, b"7", 4],
        [0, 0, 1, b"n", 0, 2, 0, 0, b"7", 4],
        [1, 0, 1, b"n", 1, 2, 0, 0, b"7", 4],
        [1, 0, 1, b"n", 0, 2, 0, 0, b"7", 5],
        [1, 0, 1, b"n", 0, 2, 0, 0, b"7"],
        [1, 0, 1, b"n", 0, 2, 0, 0, 4],
        [2, 2, 1, b"n", 0, 2, 0, 0, b"7", 4],
        [1, 0, 2, b"n", 0, 2, 0, 0, b"7", 4],
        [1, 0, 0, b"n", 0, 2, 0, 0, b"7", 4],
        [1, 0, 1, b"n", 0, 0, 0, 0, 2, b"own", b"7", 6],
        [1, 0, 1, b"n", 0, 0, 0, 0, 1, b"own", b"7", 5],
        [1, 0, 1, b"n", 0, 0, 0, 0, -1, 4],
        [1, 0, 1, b"n", 0, b"x", 0, 0, b"7", 4],
        [1, 0, 1, b"n", 0, 2, b"x", 0, b"7", 4],
        [1, 0, 1, b"n", 0, 2, 0, b"x", b"7", 4],
        [1, 0, 1, b"n", 0, 2, 0, 0, b"7", b"x"],
        [1, 0, -1, 0, 2, 0, 0, 3],
        [1, 0, 1],
        [],
    ],
    ids=str,
)
def test_nodes_that_arrive_as_bytes_are_validated_before_they_are_read(items: list[int | bytes]) -> None:
    """The counts of the master entry must be right too, which the decoder does not need."""
    with pytest.raises(Corrupt):
        nodes_of([(bytes(16), node_of(*SOUND)), (bytes(15) + b"\x01", node_of(*items))])


@pytest.mark.parametrize("key", [b"", b"x", bytes(15), bytes(17)])
def test_a_key_of_another_size_is_corrupt(key: bytes) -> None:
    with pytest.raises(Corrupt, match="16 bytes"):
        nodes_of([(key, node_of(*SOUND))])


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_nodes_are_read_in_the_order_of_their_ids(order: list[int]) -> None:
    nodes = [(struct.pack(">QQ", ms, 0), node_of(1, 0, 1, b"n", 0, 2, 0, 0, ms, 4)) for ms in (1, 256, 2**63)]
    stream = nodes_of([nodes[i] for i in order])
    schema = pa.schema([("id", pa.string()), ("n", pa.string())])
    rows = table(stream, schema, max_rows=1 << 20, exact=False).to_pylist()
    assert [row["id"] for row in rows] == ["1-0", "256-0", f"{2**63}-0"]
    assert [row["n"] for row in rows] == ["1", "256", str(2**63)]
