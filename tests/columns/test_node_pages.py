"""Replies to RILLET.XNODES into rows: whole, in pieces, damaged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns.arrow_batch import record_batch, rows_for  # noqa: E402
from rillet.columns.node_decoder import FULL, NodeReader  # noqa: E402
from rillet.columns.node_pages import ANSWER, DONE, MORE, NodePages  # noqa: E402
from rillet.columns.resp_decoder import ReplyFailed  # noqa: E402
from rillet.errors import Corrupt, ProtocolError  # noqa: E402
from rillet.types.stream.stream import Stream  # noqa: E402
from tests.columns.model import ENTRIES, Entry, rising  # noqa: E402
from tests.columns.test_node_decoder import FIRST, LAST, filled, table  # noqa: E402
from tests.columns.test_resp_decoder import DEFAULT, TYPED, as_rows  # noqa: E402
from tests.variants import by_speed  # noqa: E402


def page(stream: Stream, go_on: bytes | None = None, first: bytes | None = None) -> bytes:
    """Return a reply with all nodes of a stream."""
    words = [go_on, first, *(word for key, node in stream.rax.items() for word in (key, node.to_bytes()))]
    bulks = [b"$-1\r\n" if word is None else b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n" % len(words) + b"".join(bulks)


def paged(replies: bytes, schema: Any, pieces: list[int], count: int = 1, max_rows: int = 2) -> tuple[Any, list[Any]]:
    """Return the table that replies give which arrive in pieces, and the IDs at their heads."""
    rows = rows_for(schema, b"events")
    pages = NodePages(NodeReader(rows, FIRST, LAST, max_rows))
    batches, heads = [], []
    rest = memoryview(replies)
    while count:
        state = pages.decode()
        if state == MORE:
            size = pieces.pop() if pieces else len(rest)
            with pages.space(len(rest)) as room:
                room[: len(rest[:size])] = rest[:size]
            pages.filled(len(rest[:size]))
            if not rest:
                raise ProtocolError("the reply has no end")
            rest = rest[size:]
        elif state == FULL:
            batches.append(record_batch(rows, schema))
        elif state == ANSWER:
            heads.append((pages.go_on, pages.first))
        else:
            count -= 1
    batches.append(record_batch(rows, schema))
    return pa.Table.from_batches(batches, schema), heads


@pytest.mark.slow
@settings(deadline=None, max_examples=by_speed(20, 15, 50))
@given(ENTRIES, ENTRIES, st.sampled_from([DEFAULT, TYPED]), st.lists(st.integers(1, 50), max_size=40))
def test_pages_in_pieces_give_the_rows_of_the_stream(
    first: list[Entry], second: list[Entry], schema: Any, pieces: list[int]
) -> None:
    streams = [filled(rising(first)), filled(rising(second))]
    result, heads = paged(page(streams[0], b"7-8") + page(streams[1], None, b"1-2"), schema, pieces, 2)
    assert as_rows(result) == as_rows(table(streams[0], schema)) + as_rows(table(streams[1], schema))
    assert heads == [((7, 8), None), (None, (1, 2))]


@pytest.mark.slow
@settings(deadline=None, max_examples=by_speed(20, 15, 50))
@given(ENTRIES.filter(len), st.data())
def test_pages_of_corrupt_nodes_are_rejected_or_decoded(entries: list[Entry], data: st.DataObject) -> None:
    raw = bytearray(page(filled(rising(entries))))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        result, _ = paged(bytes(raw), DEFAULT, [])
        result.validate(full=True)
    except (Corrupt, ProtocolError, ReplyFailed):
        pass


@pytest.mark.parametrize(
    "reply",
    [b"$3\r\nabc\r\n", b"*3\r\n$-1\r\n$-1\r\n", b"*0\r\n", b"*1\r\n$-1\r\n", b"*2\r\n$1\r\nx\r\n", b"*x\r\n",
     b"*2\r\n$99999999999\r\n", b"*2\r\n$-1\r\n$1\r\nx\r\n", b"*4\r\n$-1\r\n$-1\r\n$2\r\nab\r\n$0\r\n\r\n",
     b"*4\r\n$-1\r\n$-1\r\n$16\r\n" + bytes(16) + b"\r\n$0\r\n\r\n",
     b"*4\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n", b"*4\r\n$-1\r\n$-1\r\n$16\r\n" + bytes(16) + b"\r\n$-1\r\n"],
)  # fmt: skip
def test_a_reply_that_is_not_a_page_of_nodes_is_rejected(reply: bytes) -> None:
    with pytest.raises((Corrupt, ProtocolError)):
        paged(reply, DEFAULT, [])


def test_an_error_reply_raises_its_text() -> None:
    with pytest.raises(ReplyFailed, match="unknown command"):
        paged(b"-ERR unknown command 'RILLET.XNODES'\r\n", DEFAULT, [])


ENTRIES_OF_A_PAGE: list[Entry] = [(n, 0, [(b"n", b"%d" % n), (b"user", b"\r\n$3\r\n")]) for n in range(1, 8)]


@pytest.mark.slow
def test_a_page_that_is_split_at_any_byte_is_the_whole_page() -> None:
    stream = filled(ENTRIES_OF_A_PAGE)
    data = page(stream, b"7-0", b"1-0")
    whole = as_rows(table(stream, TYPED))
    for split in range(1, len(data)):
        batches, heads = paged(data, TYPED, [len(data), split])
        assert as_rows(batches) == whole, split
        assert heads == [((7, 0), (1, 0))]


@pytest.mark.parametrize("size", [1, 2, 3, 17, 64])
def test_a_page_in_equal_pieces_is_the_whole_page(size: int) -> None:
    stream = filled(ENTRIES_OF_A_PAGE)
    data = page(stream)
    batches, heads = paged(data, TYPED, [size] * len(data))
    assert as_rows(batches) == as_rows(table(stream, TYPED))
    assert heads == [(None, None)]


def test_every_prefix_of_a_page_waits_for_more_and_shows_whole_nodes_only() -> None:
    stream = filled(ENTRIES_OF_A_PAGE)
    data = page(stream, b"7-0")
    for size in range(len(data)):
        rows = rows_for(DEFAULT, b"k")
        pages = NodePages(NodeReader(rows, FIRST, LAST))
        pages.feed(data[:size])
        states = [pages.decode() for _ in range(3)]
        assert states in ([MORE, MORE, MORE], [ANSWER, MORE, MORE])
        assert rows.length in (0, 3, 6)


def test_the_buffer_takes_nothing_while_a_node_is_read() -> None:
    rows = rows_for(DEFAULT, b"k")
    pages = NodePages(NodeReader(rows, FIRST, LAST, 2))
    pages.feed(page(filled(ENTRIES_OF_A_PAGE)))
    assert (pages.decode(), pages.decode()) == (ANSWER, FULL)
    with pytest.raises(AssertionError, match="buffer"):
        pages.space(1)
    while True:
        record_batch(rows, DEFAULT)
        if pages.decode() == DONE:
            break
    with pages.space(1) as room:
        assert len(room) >= 1


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"*2\r\n$4294967297\r\n", ProtocolError), (b"*2\r\n$" + b"9" * 30 + b"\r\n", ProtocolError),
        (b"*4294967297\r\n", ProtocolError), (b"*2\r\n$-2\r\n", ProtocolError), (b"*2\r\n:5\r\n", ProtocolError),
        (b"*\r\n", ProtocolError), (b"*3\r\n", ProtocolError), (b"*-1\r\n", ProtocolError), (b"_\r\n", ProtocolError),
        (b"*2\r\n$3\r\na-b\r\n$-1\r\n", ProtocolError), (b"*2\r\n$-1\r\n$0\r\n\r\n", ProtocolError),
        (b"x" * 65536, ProtocolError), (b"*2\r\n" + b"$" * 65536, ProtocolError),
        (b"*4\r\n_\r\n_\r\n$15\r\n", Corrupt), (b"*4\r\n_\r\n_\r\n_\r\n", Corrupt),
        (b"*2\r\n-ERR no\r\n", ReplyFailed), (b"*4\r\n_\r\n_\r\n-ERR no\r\n", ReplyFailed), (b"-\r\n", ReplyFailed),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_malformed_page_ends_in_one_error_however_it_arrives(data: bytes, error: type[Exception], size: int) -> None:
    size = max(size, len(data) // 1000)  # the long lines arrive in a thousand pieces
    with pytest.raises(error):
        paged(data, DEFAULT, [size] * len(data))


def test_null_is_written_in_both_protocols() -> None:
    for null in (b"$-1\r\n", b"_\r\n"):
        _, heads = paged(b"*2\r\n" + null + b"$3\r\n1-2\r\n", DEFAULT, [])
        assert heads == [(None, (1, 2))]


@pytest.mark.parametrize("length", [16, 1 << 20, 1 << 32])
def test_a_long_node_is_awaited_without_room_for_it(length: int) -> None:
    rows = rows_for(DEFAULT, b"k")
    pages = NodePages(NodeReader(rows, FIRST, LAST))
    pages.feed(b"*4\r\n_\r\n_\r\n$16\r\n" + bytes(16) + b"\r\n$%d\r\n" % length)
    size = len(pages.buf)
    assert [pages.decode() for _ in range(2)] == [ANSWER, MORE]
    assert len(pages.buf) == size
