"""CRC-64: Redis's check value, and equal results of the table and anycrc."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.structs.crc64 import crc64, crc64_by_table


def test_the_checksum_equals_redis_s_check_value() -> None:
    assert crc64(b"123456789") == 0xE9C6D914C4B8D9CA


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_table_agrees_with_anycrc_and_checksums_can_be_continued(head: bytes, tail: bytes) -> None:
    assert crc64(head + tail) == crc64_by_table(head + tail) == crc64(tail, crc64(head))


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 33, 1000])
def test_every_alignment_and_kind_of_buffer_gives_the_same_checksum(size: int) -> None:
    data = bytes((7 * number + number // 3) & 0xFF for number in range(size + 16))
    for start in range(16):
        part = data[start : start + size]
        assert crc64(part) == crc64(bytearray(part)) == crc64(memoryview(data)[start : start + size])
        assert crc64(part, 2**64 - 1) == crc64_by_table(part, 2**64 - 1)
