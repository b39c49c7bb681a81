"""The receive buffer keeps undecoded bytes in order while others arrive and are decoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.columns.receive_buffer import ReceiveBuffer

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
    assert len(buffer.buf) < 4 * (size + sum(len(data) for data, _, _ in steps) + 1)


def test_more_bytes_than_the_room_are_a_value_error() -> None:
    buffer = ReceiveBuffer(4)
    for wrong in (5, -1):
        with pytest.raises(ValueError, match="exceed the room"):
            buffer.filled(wrong)
    with pytest.raises(BufferError), buffer.space(1):
        buffer.space(100)  # the room is not released
