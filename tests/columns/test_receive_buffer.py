"""The receive buffer keeps undecoded bytes in order while others arrive and are decoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.columns.receive_buffer import ReceiveBuffer
from rillet.protocol.reply_writer import ReplyWriter

STEPS = st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 60), st.booleans()), max_size=30)


@given(STEPS, st.integers(0, 20))
def test_undecoded_bytes_keep_their_order_and_the_buffer_stays_small(
    steps: list[tuple[bytes, int, bool]], size: int
) -> None:
    buffer = ReceiveBuffer(size)
    expected = b""
    for data, decoded, fed in steps:
        if fed:
            buffer.feed(data)
        else:
            with buffer.space(len(data)) as room:
                assert len(room) >= len(data)
                room[: len(data)] = data
            buffer.filled(len(data))
        expected += data
        assert bytes(buffer.buf[buffer.pos : buffer.end]) == expected
        buffer.pos += min(decoded, len(expected))
        expected = expected[decoded:]
        buffer.check()
    assert len(buffer.buf) < 4 * (size + sum(len(data) for data, _, _ in steps) + 1)


def test_more_bytes_than_the_room_are_a_value_error() -> None:
    buffer = ReceiveBuffer(4)
    for wrong in (5, -1):
        with pytest.raises(ValueError, match="exceed the room"):
            buffer.filled(wrong)
    with pytest.raises(BufferError), buffer.space(1):
        buffer.space(100)  # the room is not released


@pytest.mark.parametrize("size", [0, 1, 7, 64])
@pytest.mark.parametrize("wanted", [0, 1, 8, 63, 64, 65, 10_000])
def test_the_room_has_at_least_the_requested_size(size: int, wanted: int) -> None:
    buffer = ReceiveBuffer(size)
    for _ in range(3):
        with buffer.space(wanted) as room:
            assert len(room) >= wanted
            room[:wanted] = b"x" * wanted
        buffer.filled(wanted)
    assert bytes(buffer.buf[: buffer.end]) == b"x" * (3 * wanted)


def test_decoded_bytes_make_room_before_the_buffer_grows() -> None:
    buffer = ReceiveBuffer(100)
    for number in range(1000):
        data = b"%03d" % number * 30
        buffer.feed(data)
        assert bytes(buffer.buf[buffer.pos : buffer.end]) == data
        buffer.pos = buffer.end
    assert len(buffer.buf) == 100


def test_undecoded_bytes_move_to_the_front() -> None:
    buffer = ReceiveBuffer(10)
    buffer.feed(b"0123456789")
    buffer.pos = 7
    with buffer.space(3) as room:
        assert len(room) == 7
    assert (buffer.pos, buffer.end) == (0, 3)
    assert bytes(buffer.buf[:3]) == b"789"
    assert len(buffer.buf) == 10


def test_a_receive_of_nothing_changes_nothing() -> None:
    buffer = ReceiveBuffer(4)
    buffer.feed(b"")
    buffer.filled(0)
    assert (buffer.pos, buffer.end, len(buffer.buf)) == (0, 0, 4)


@given(st.lists(st.integers(0, 5000), max_size=40))
def test_the_buffer_doubles_and_so_copies_each_byte_a_constant_number_of_times(sizes: list[int]) -> None:
    buffer, growths, total = ReceiveBuffer(16), 0, 0
    for size in sizes:
        before = len(buffer.buf)
        buffer.feed(bytes(size))
        total += size
        growths += len(buffer.buf) > before
        assert len(buffer.buf) >= 2 * before or len(buffer.buf) == before
    assert buffer.end == total
    assert 2**growths <= max(1, len(buffer.buf))


def test_an_exchange_takes_the_replies_without_a_copy_and_the_writer_continues_in_the_other_buffer() -> None:
    buffer, out = ReceiveBuffer(8), ReplyWriter()
    out.integer(1)  # the first reply allocates the writer's buffer
    out.take_bytes()
    first, second = buffer.buf, out.buf
    for text in (b"one", b"two", b"x" * 5000):
        out.bulk(text)
        buffer.exchange(out)
        assert bytes(buffer.buf[buffer.pos : buffer.end]) == b"$%d\r\n%b\r\n" % (len(text), text)
        assert len(out) == 0
        buffer.pos = buffer.end
        assert {id(buffer.buf), id(out.buf)} == {id(first), id(second)}


def test_an_exchange_appends_to_undecoded_bytes() -> None:
    buffer, out = ReceiveBuffer(4), ReplyWriter()
    buffer.feed(b"0123")
    buffer.pos = 2
    out.integer(7)
    buffer.exchange(out)
    assert bytes(buffer.buf[buffer.pos : buffer.end]) == b"23:7\r\n"
    assert len(out) == 0


def test_an_exchange_of_nothing_leaves_nothing_to_decode() -> None:
    buffer, out = ReceiveBuffer(4), ReplyWriter()
    buffer.exchange(out)
    assert buffer.pos == buffer.end == len(out) == 0


def test_an_exchange_of_nothing_keeps_the_buffer_that_all_writers_without_a_reply_share() -> None:
    buffer, out = ReceiveBuffer(4), ReplyWriter()
    buffer.exchange(out)
    buffer.feed(b"received")
    out.check()
    assert len(ReplyWriter().buf) == len(out.buf) == 0
    out.integer(7)
    buffer.exchange(out)
    assert bytes(buffer.buf[buffer.pos : buffer.end]) == b"received:7\r\n"
