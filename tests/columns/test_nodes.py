"""Listpack nodes into Arrow columns: the same table as the reply to XRANGE gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns.arrow_batch import record_batch, rows_for  # noqa: E402
from rillet.columns.node_decoder import DONE, FULL, NodeDecoder, NodeReader, nodes_of  # noqa: E402
from rillet.columns.node_pages import ANSWER, MORE, NodePages  # noqa: E402
from rillet.columns.resp_decoder import ReplyFailed  # noqa: E402
from rillet.columns.row_builder import BadValue  # noqa: E402
from rillet.errors import Corrupt, ProtocolError  # noqa: E402
from rillet.types.stream.value import Stream  # noqa: E402
from tests.columns import test_modes as modes  # noqa: E402
from tests.columns.model import ENTRIES, Entry, reply, rising  # noqa: E402
from tests.columns.test_modes import MODES, mixed, read  # noqa: E402
from tests.columns.test_resp import DEFAULT, TYPED, as_rows, decode  # noqa: E402

FIRST, LAST = (0, 0), (2**64 - 1, 2**64 - 1)


def filled(entries: list[Entry], node_max_entries: int = 3) -> Stream:
    """Return a stream of the entries, in small nodes."""
    stream = Stream()
    for ms, seq, fields in entries:
        flat = [word for pair in fields for word in pair]
        stream.append(flat, 0, len(fields), ms, seq, 4096, node_max_entries)
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


# ---- replies of RILLET.XNODES ------------------------------------------------------------------------------------


def page(stream: Stream, go_on: bytes | None = None, first: bytes | None = None) -> bytes:
    """Return a reply with all nodes of a stream."""
    words = [go_on, first, *(word for key, node in stream.rax.items() for word in (key, node.to_bytes()))]
    bulks = [b"$-1\r\n" if word is None else b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n" % len(words) + b"".join(bulks)


def paged(replies: bytes, schema: Any, pieces: list[int], count: int = 1, max_rows: int = 2) -> tuple[Any, list[Any]]:
    """Return the table that replies give which arrive in pieces, and the IDs at their heads."""
    rows = rows_for(schema, b"events")
    pages = NodePages(NodeReader(rows, FIRST, LAST, max_rows))
    batches, found = [], []
    while count:
        state = pages.decode()
        if state == MORE:
            size = pieces.pop() if pieces else len(replies)
            with pages.space(len(replies)) as room:
                room[: len(replies[:size])] = replies[:size]
            pages.filled(len(replies[:size]))
            if not replies:
                raise ProtocolError("the reply has no end")
            replies = replies[size:]
        elif state == FULL:
            batches.append(record_batch(rows, schema))
        elif state == ANSWER:
            found.append((pages.go_on, pages.first))
        else:
            count -= 1
    batches.append(record_batch(rows, schema))
    return pa.Table.from_batches(batches, schema), found


@settings(deadline=None, max_examples=50)
@given(ENTRIES, ENTRIES, st.sampled_from([DEFAULT, TYPED]), st.lists(st.integers(1, 50), max_size=40))
def test_pages_that_arrive_in_pieces_are_the_stream(
    first: list[Entry], second: list[Entry], schema: Any, pieces: list[int]
) -> None:
    streams = [filled(rising(first)), filled(rising(second))]
    found, heads = paged(page(streams[0], b"7-8") + page(streams[1], None, b"1-2"), schema, pieces, 2)
    assert as_rows(found) == as_rows(table(streams[0], schema)) + as_rows(table(streams[1], schema))
    assert heads == [((7, 8), None), (None, (1, 2))]


@settings(deadline=None, max_examples=50)
@given(ENTRIES.filter(len), st.data())
def test_pages_of_corrupt_nodes_are_refused_or_decoded(entries: list[Entry], data: st.DataObject) -> None:
    raw = bytearray(page(filled(rising(entries))))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found, _ = paged(bytes(raw), DEFAULT, [])
        found.validate(full=True)
    except (Corrupt, ProtocolError, ReplyFailed):
        pass


@pytest.mark.parametrize(
    "reply",
    [b"$3\r\nabc\r\n", b"*3\r\n$-1\r\n$-1\r\n", b"*0\r\n", b"*1\r\n$-1\r\n", b"*2\r\n$1\r\nx\r\n", b"*x\r\n",
     b"*2\r\n$99999999999\r\n", b"*2\r\n$-1\r\n$1\r\nx\r\n", b"*4\r\n$-1\r\n$-1\r\n$2\r\nab\r\n$0\r\n\r\n",
     b"*4\r\n$-1\r\n$-1\r\n$16\r\n" + bytes(16) + b"\r\n$0\r\n\r\n"],
)  # fmt: skip
def test_what_is_no_page_is_refused(reply: bytes) -> None:
    with pytest.raises((Corrupt, ProtocolError)):
        paged(reply, DEFAULT, [])


def test_a_refusal_is_told() -> None:
    with pytest.raises(ReplyFailed, match="unknown command"):
        paged(b"-ERR unknown command 'RILLET.XNODES'\r\n", DEFAULT, [])
