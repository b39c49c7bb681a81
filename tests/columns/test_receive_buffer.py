"""What comes in is what is there to decode, whatever was decoded in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.columns.receive_buffer import ReceiveBuffer

STEPS = st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 60), st.booleans()), max_size=30)


@given(STEPS, st.integers(0, 20))
def test_bytes_come_out_as_they_went_in(steps: list[tuple[bytes, int, bool]], size: int) -> None:
    inbox = ReceiveBuffer(size)
    expected = b""
    for data, decoded, fed in steps:
        if fed:
            inbox.feed(data)
        else:
            with inbox.space(len(data)) as room:
                assert len(room) >= len(data)
                room[: len(data)] = data
            inbox.filled(len(data))
        expected += data
        assert bytes(inbox.buf[inbox.pos : inbox.end]) == expected
        inbox.pos += min(decoded, len(expected))
        expected = expected[decoded:]
    assert len(inbox.buf) < 4 * (size + sum(len(data) for data, _, _ in steps) + 1)


def test_no_more_is_there_than_there_was_room_for() -> None:
    inbox = ReceiveBuffer(4)
    for wrong in (5, -1):
        with pytest.raises(ValueError, match="exceed the room"):
            inbox.filled(wrong)
    with pytest.raises(BufferError), inbox.space(1):
        inbox.space(100)  # the room is held
