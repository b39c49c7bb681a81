"""LZF: blocks equal to the reference implementation's, and safe handling of damaged blocks."""

from __future__ import annotations

import lzf as reference
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.errors import Corrupt
from rillet.structs.lzf import compress, decompress

words = st.lists(st.sampled_from([b"a", b"ab", b"temperature", b"\x00\x00", b"1526919030474", b"x" * 40]), max_size=200)
repetitive = st.builds(lambda parts, tail: b"".join(parts) + tail, words, st.binary(max_size=60))


def expected(data: bytes) -> bytes:
    # The binding passes a limit to the C function that is one byte too large.
    return reference.compress(data, len(data) - 5) or b""


@given(st.one_of(repetitive, st.binary(max_size=3000)))
def test_blocks_equal_those_of_the_reference(data: bytes) -> None:
    if len(data) > 5:
        assert compress(data) == expected(data)


@pytest.mark.parametrize("run", [*range(17, 25), 263, 264, 265, 266, 267, 280, 281, 282, 283, 300, 8190, 8193, 9000])
def test_matches_at_their_length_limits_equal_the_reference(run: int) -> None:
    for data in (b"q" * run, b"abc" * run, b"z" + b"r" * run + b"tail", bytes(range(256)) * (run // 200 + 1)):
        assert compress(data) == expected(data)


@given(repetitive)
def test_a_block_decompresses_to_the_original_bytes(data: bytes) -> None:
    block = compress(data)
    if block:
        assert len(block) <= len(data) - 4
        assert decompress(block, len(data)) == data


@given(st.binary(max_size=200), st.integers(0, 5000))
def test_arbitrary_bytes_are_rejected_or_give_the_stated_length(data: bytes, size: int) -> None:
    try:
        assert len(decompress(data, size)) == size
    except Corrupt:
        pass


@given(repetitive.filter(lambda data: bool(compress(data))), st.data())
def test_a_damaged_block_is_rejected_or_gives_the_stated_length(data: bytes, choose: st.DataObject) -> None:
    block = bytearray(compress(data))
    block[choose.draw(st.integers(0, len(block) - 1))] = choose.draw(st.integers(0, 255))
    try:
        assert len(decompress(bytes(block), len(data))) == len(data)
    except Corrupt:
        pass


def test_a_false_length_allocates_no_memory() -> None:
    with pytest.raises(Corrupt):
        decompress(b"\x00a", 1 << 40)
