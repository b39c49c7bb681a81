"""Replies to RILLET.XNODES into rows: whole, in pieces, damaged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from rillet.columns.arrow_batch import record_batch, rows_for  # noqa: E402
from rillet.columns.node_decoder import FULL, NodeReader  # noqa: E402
from rillet.columns.node_pages import ANSWER, MORE, NodePages  # noqa: E402
from rillet.columns.resp_decoder import ReplyFailed  # noqa: E402
from rillet.errors import Corrupt, ProtocolError  # noqa: E402
from rillet.types.stream.value import Stream  # noqa: E402
from tests.columns.model import ENTRIES, Entry, rising  # noqa: E402
from tests.columns.test_node_decoder import FIRST, LAST, filled, table  # noqa: E402
from tests.columns.test_resp_decoder import DEFAULT, TYPED, as_rows  # noqa: E402


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
     b"*4\r\n$-1\r\n$-1\r\n$16\r\n" + bytes(16) + b"\r\n$0\r\n\r\n",
     b"*4\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n", b"*4\r\n$-1\r\n$-1\r\n$16\r\n" + bytes(16) + b"\r\n$-1\r\n"],
)  # fmt: skip
def test_a_reply_that_is_not_a_page_of_nodes_is_rejected(reply: bytes) -> None:
    with pytest.raises((Corrupt, ProtocolError)):
        paged(reply, DEFAULT, [])


def test_an_error_reply_raises_its_text() -> None:
    with pytest.raises(ReplyFailed, match="unknown command"):
        paged(b"-ERR unknown command 'RILLET.XNODES'\r\n", DEFAULT, [])
