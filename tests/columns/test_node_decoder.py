"""Listpack nodes into Arrow columns: the same table as the reply to XRANGE gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns.arrow_batch import record_batch, rows_for  # noqa: E402
from rillet.columns.node_decoder import DONE, FULL, NodeDecoder, nodes_of  # noqa: E402
from rillet.columns.row_builder import BadValue  # noqa: E402
from rillet.errors import Corrupt  # noqa: E402
from rillet.types.stream.value import Stream  # noqa: E402
from tests.columns import test_bad_values as modes  # noqa: E402
from tests.columns.model import ENTRIES, Entry, reply, rising  # noqa: E402
from tests.columns.test_bad_values import MODES, mixed, read  # noqa: E402
from tests.columns.test_resp_decoder import DEFAULT, TYPED, as_rows, decode  # noqa: E402

FIRST, LAST = (0, 0), (2**64 - 1, 2**64 - 1)


def filled(entries: list[Entry], node_max_entries: int = 3, node_max_bytes: int = 4096) -> Stream:
    """Return a stream of the entries, in small nodes."""
    stream = Stream()
    for ms, seq, fields in entries:
        flat = [word for pair in fields for word in pair]
        stream.append(flat, 0, len(fields), ms, seq, node_max_bytes, node_max_entries)
    return stream


def table(
    stream: Any, schema: Any, after: tuple[int, int] = FIRST, last: tuple[int, int] = LAST, max_rows: int = 2
) -> Any:
    rows = rows_for(schema, b"events")
    decoder = NodeDecoder(rows, stream, after, last, max_rows)
    batches = []
    while decoder.decode() == FULL:
        assert rows.length == max_rows
        batches.append(record_batch(rows, schema))
    assert decoder.decode() == DONE
    batches.append(record_batch(rows, schema))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema)


@settings(deadline=None)
@given(ENTRIES, st.sampled_from([DEFAULT, TYPED]), st.integers(1, 4))
def test_nodes_and_replies_give_the_same_columns(entries: list[Entry], schema: Any, max_rows: int) -> None:
    entries = rising(entries)
    from_nodes = table(filled(entries), schema, max_rows=max_rows)
    assert as_rows(from_nodes) == as_rows(decode(reply(entries), schema))


@settings(deadline=None)
@given(ENTRIES, st.data())
def test_ranges_are_open_on_the_left_and_tombstones_are_passed_over(entries: list[Entry], data: st.DataObject) -> None:
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
def test_shipped_nodes_are_the_stream(entries: list[Entry]) -> None:
    entries = rising(entries)
    stream = filled(entries)
    shipped = [(key, node.to_bytes()) for key, node in stream.rax.items()]
    assert table(nodes_of(shipped), DEFAULT).equals(table(stream, DEFAULT))


@settings(deadline=None)
@given(ENTRIES.filter(len), st.data())
def test_corrupt_nodes_are_refused_or_decoded(entries: list[Entry], data: st.DataObject) -> None:
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


def test_a_key_that_is_no_id_is_refused() -> None:
    with pytest.raises(Corrupt):
        nodes_of([(b"short", b"")])


@settings(deadline=None, max_examples=60)
@given(mixed(), st.sampled_from(MODES), st.integers(1, 9))
def test_bad_values_are_bad_in_nodes_too(entries: list[Entry], mode: str, node_max_entries: int) -> None:
    rows = rows_for(modes.SCHEMA, b"events", mode, "_corrupt")
    decoder = NodeDecoder(rows, filled(entries, node_max_entries), FIRST, LAST)
    told, expected = "", []
    try:
        expected = read(entries, mode)
    except BadValue as error:
        told = str(error)
    if told:
        with pytest.raises(BadValue) as ours:
            decoder.decode()
        assert str(ours.value).replace("'", "") == told.replace("'", "")  # a number is none that was a text
    else:
        assert decoder.decode() == DONE
        assert record_batch(rows, modes.SCHEMA).to_pylist() == expected


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
