"""CRC-64: Redis's check value, and the table agrees with the extension."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rillet.structs.crc64 import crc64, crc64_by_table


def test_the_check_value_of_redis() -> None:
    assert crc64(b"123456789") == 0xE9C6D914C4B8D9CA


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_table_agrees_and_sums_continue(head: bytes, tail: bytes) -> None:
    assert crc64(head + tail) == crc64_by_table(head + tail) == crc64(tail, crc64(head))
