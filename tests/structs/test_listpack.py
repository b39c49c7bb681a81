"""Each encoding at its boundaries, and each operation on small lists."""

from __future__ import annotations

import gc

import pytest

from rillet.errors import Corrupt
from rillet.structs import listpack
from rillet.structs.listpack import Listpack, is_int64, parse_int64
from tests.structs.listpack_oracle import as_stored, encode

EMPTY = bytes.fromhex("07000000 0000 ff")

# value, and its entry with the backlen
VECTORS = [
    (b"0", "00 01"),
    (b"127", "7f 01"),
    (b"128", "c080 02"),
    (b"-1", "dfff 02"),
    (b"4095", "cfff 02"),
    (b"-4096", "d000 02"),
    (b"4096", "f1 0010 03"),
    (b"-4097", "f1 ffef 03"),
    (b"32767", "f1 ff7f 03"),
    (b"-32768", "f1 0080 03"),
    (b"32768", "f2 008000 04"),
    (b"8388607", "f2 ffff7f 04"),
    (b"-8388608", "f2 000080 04"),
    (b"8388608", "f3 00008000 05"),
    (b"-2147483648", "f3 00000080 05"),
    (b"2147483648", "f4 0000008000000000 09"),
    (b"-2147483649", "f4 ffffff7fffffffff 09"),
    (b"9223372036854775807", "f4 ffffffffffffff7f 09"),
    (b"-9223372036854775807", "f4 0100000000000080 09"),
    (b"-9223372036854775808", "f4 0000000000000080 09"),
    (b"", "80 01"),
    (b"hello", "85 68656c6c6f 06"),
    (b"007", "83 303037 04"),
    (b"\x00\xff", "82 00ff 03"),
]

NOT_INTEGERS = [
    b"", b"-", b"+1", b"-0", b"00", b"01", b"-01", b" 1", b"1 ", b"1\n", b"1.0", b"1e3", b"0x1", b"1_000", b"--1",
    b"1-", b"9223372036854775808", b"-9223372036854775809", b"10000000000000000000", b"18446744073709551616",
    b"99999999999999999999", b"-9999999999999999999", b"123456789012345678901", b"\xb2", "١".encode(),
]  # fmt: skip

INTEGERS = [b"0", b"1", b"-1", b"9", b"-10", b"9223372036854775807", b"-9223372036854775807", b"-9223372036854775808",
            b"1000000000000000000", b"-1000000000000000000"]  # fmt: skip


def filled(*values: bytes) -> Listpack:
    lp = Listpack()
    for value in values:
        lp.append(value)
    lp.check()
    return lp


@pytest.mark.parametrize(("value", "entry"), VECTORS, ids=[repr(value) for value, _ in VECTORS])
def test_an_entry_has_the_bytes_that_redis_writes(value: bytes, entry: str) -> None:
    body = bytes.fromhex(entry)
    lp = filled(value)
    assert lp.to_bytes() == (7 + len(body)).to_bytes(4, "little") + b"\x01\x00" + body + b"\xff"
    assert lp.get(6) == as_stored(value)
    assert lp.get_bytes(6) == value
    assert lp.compare(6, value)


@pytest.mark.parametrize("text", NOT_INTEGERS)
def test_text_that_is_not_a_canonical_integer_stays_a_string(text: bytes) -> None:
    assert not is_int64(text)
    assert parse_int64(text) == -(2**63)
    lp = filled(text)
    assert lp.decode(6)
    assert lp.get(6) == text


@pytest.mark.parametrize("text", INTEGERS)
def test_canonical_integers_are_recognized(text: bytes) -> None:
    assert is_int64(text)
    assert parse_int64(text) == int(text)
    assert not filled(text).decode(6)


@pytest.mark.parametrize("length", [1, 63, 64, 125, 126, 127, 4095, 4096, 16377, 16378, 16379, 16380, 2097145, 2097147])
def test_strings_at_the_thresholds_of_length_and_backlen_round_trip(length: int) -> None:
    value = b"s" * length
    lp = filled(value, b"after")
    assert lp.to_bytes() == encode([value, b"after"])
    assert lp.get(6) == value
    assert lp.prev(lp.prev(lp.used - 1)) == 6


def test_the_backlen_of_16383_takes_three_bytes_as_in_redis() -> None:
    def backlen_of(entry_size: int) -> int:
        return filled(b"s" * (entry_size - 5)).used - 7 - entry_size

    assert [backlen_of(n) for n in (16382, 16383, 16384)] == [2, 3, 3]
    assert [backlen_of(n) for n in (2097150, 2097151)] == [3, 4]


@pytest.mark.slow
def test_a_backlen_of_five_bytes_is_written_and_read() -> None:
    lp = Listpack(270_000_000)
    lp.append(b"s" * (268435455 - 5))
    assert lp.used == 7 + 268435455 + 5
    assert lp.prev(lp.used - 1) == 6


def test_an_empty_listpack_has_no_entries() -> None:
    lp = Listpack()
    assert lp.to_bytes() == EMPTY
    assert len(lp) == 0
    assert lp.nbytes == 7
    assert list(lp) == []
    assert lp.first() == lp.last() == lp.seek(0) == lp.seek(-1) == lp.find(6, b"x") == -1
    assert lp.is_end(6)
    assert not lp.compare(6, b"x")
    assert lp.delete_range(0, 5) == 0
    lp.prepend(b"x")
    assert lp.values() == [b"x"]


def test_capacity_is_reserved_and_shrink_releases_it() -> None:
    lp = Listpack(4096)
    assert len(lp.buf) == 4096
    assert lp.to_bytes() == EMPTY
    before = lp.buf
    lp.append(b"x" * 3000)
    assert lp.buf is before
    data = lp.to_bytes()
    lp.shrink()
    assert len(lp.buf) == lp.used
    assert lp.to_bytes() == data
    lp.append(b"y")
    lp.check()
    assert lp.values() == [b"x" * 3000, b"y"]


def test_entries_are_walked_in_both_directions() -> None:
    values = [b"a", b"1", b"x" * 200, b"-70000", b""]
    lp = filled(*values)
    pos, forward = lp.first(), []
    while pos != -1:
        forward.append(pos)
        pos = lp.next(pos)
    pos, backward = lp.last(), []
    while pos != -1:
        backward.append(pos)
        pos = lp.prev(pos)
    assert forward == backward[::-1]
    assert [lp.get_bytes(p) for p in forward] == values
    assert [lp.seek(i) for i in range(-6, 6)] == [-1, *forward, *forward, -1]
    assert [lp.skip(6, n) for n in range(6)] == [*forward, lp.used - 1]
    with pytest.raises(Corrupt):
        lp.skip(6, 6)


def test_decode_sets_the_at_attributes() -> None:
    lp = filled(b"abc", b"-5")
    assert lp.decode(6)
    assert lp.buf[lp.at_start : lp.at_start + lp.at_len] == b"abc"
    second = lp.at_next
    assert not lp.decode(second)
    assert lp.at_int == -5
    assert lp.is_end(lp.at_next)
    assert lp.get_int(second) == -5
    with pytest.raises(Corrupt, match="found a string where an integer is required"):
        lp.get_int(6)


def test_insert_and_replace_return_the_position_of_the_entry() -> None:
    lp = filled(b"a", b"c")
    pos = lp.insert(lp.seek(1), b"b", False)
    assert pos == lp.seek(1)
    assert lp.insert_int(pos, 7, True) == lp.seek(2)
    assert lp.values() == [b"a", b"b", 7, b"c"]
    assert lp.insert(lp.used - 1, b"end", False) == lp.seek(-1)
    assert lp.insert(lp.last(), b"later", True) == lp.seek(-1)
    assert lp.replace(6, b"x" * 100) == 6
    assert lp.replace(lp.seek(1), b"12") == lp.seek(1)
    assert lp.replace_int(lp.seek(2), 2**40) == lp.seek(2)
    lp.check()
    assert lp.values() == [b"x" * 100, 12, 2**40, b"c", b"end", b"later"]
    lp.prepend_int(-1)
    assert lp.to_bytes() == encode([lp.get_bytes(lp.seek(i)) for i in range(7)])


def test_delete_returns_the_position_of_the_next_entry() -> None:
    lp = filled(b"a", b"b", b"c")
    assert lp.delete(lp.seek(1)) == lp.seek(1)
    assert lp.values() == [b"a", b"c"]
    assert lp.delete(lp.seek(1)) == -1
    assert lp.delete(6) == -1
    assert lp.to_bytes() == EMPTY


@pytest.mark.parametrize("index", range(-6, 7))
@pytest.mark.parametrize("count", [-1, 0, 1, 2, 5, 100])
def test_delete_range_deletes_like_a_slice(index: int, count: int) -> None:
    values = [b"a", b"1", b"b" * 70, b"c", b"500"]
    lp = filled(*values)
    start = index if index >= 0 else index + 5
    kept = values if not 0 <= start < 5 or count <= 0 else values[:start] + values[start + count :]
    assert lp.delete_range(index, count) == 5 - len(kept)
    assert lp.to_bytes() == encode(kept)


def test_move_range_moves_like_slices() -> None:
    values = [b"a", b"1", b"b" * 70, b"c", b"500"]
    for first in range(5):
        for last in range(first, 6):
            for to in [*range(first + 1), *range(last, 6)]:
                lp = filled(*values)
                places = [*(lp.seek(index) for index in range(5)), lp.used - 1]
                lp.move_range(places[first], places[last], places[to])
                rest = values[:first] + values[last:]
                at = to if to <= first else to - (last - first)
                assert lp.to_bytes() == encode(rest[:at] + values[first:last] + rest[at:])


@pytest.mark.parametrize("places", [(5, 8, 10), (6, 40, 8), (8, 6, 8), (6, 8, 5), (6, 8, 40), (-1, 8, 10)])
def test_move_range_accepts_no_place_outside_the_entries(places: tuple[int, int, int]) -> None:
    lp = filled(b"a", b"1", b"x")
    before = lp.to_bytes()
    with pytest.raises(IndexError, match="outside the entries"):
        lp.move_range(*places)
    assert lp.to_bytes() == before


@pytest.mark.parametrize("size", [0, 1, 40, 63])
def test_find_reads_short_strings_with_long_headers(size: int) -> None:
    """A file may contain them; Redis finds them, too."""
    text = b"x" * size
    for header in (bytes((0xE0, size)), bytes((0xF0, size, 0, 0, 0))):
        entry = header + text + bytes((len(header) + size,))
        data = filled(b"a", b"y" * size, text + b"z").to_bytes()[6:-1] + entry
        lp = Listpack.from_bytes((len(data) + 7).to_bytes(4, "little") + b"\x04\0" + data + b"\xff")
        assert lp.find(6, text) == lp.seek(1 if size == 0 else 3)
        assert lp.get_bytes(lp.seek(3)) == text


def test_find_skips_entries_between_comparisons() -> None:
    lp = filled(b"f", b"v", b"v", b"f", b"10", b"x")
    assert lp.find(6, b"v") == lp.seek(1)
    assert lp.find(6, b"v", 1) == lp.seek(2)
    assert lp.find(6, b"10", 1) == lp.seek(4)
    assert lp.find(6, b"x", 1) == -1
    assert lp.find(6, b"010") == -1
    assert lp.find(lp.seek(2), b"f") == lp.seek(3)
    assert lp.find(6, b"f", 100) == 6
    assert lp.find(6, b"x", 100) == -1
    assert lp.find(lp.used - 1, b"x") == -1


def test_an_integer_stored_as_a_string_still_compares_by_its_bytes() -> None:
    lp = Listpack.from_bytes(bytes.fromhex("0a000000 0100 8135 02 ff"))
    assert lp.get(6) == b"5"
    assert lp.compare(6, b"5")
    assert lp.find(6, b"5") == 6
    wide = Listpack.from_bytes(bytes.fromhex("0b000000 0100 f10500 03 ff"))
    assert wide.get(6) == 5
    assert wide.compare(6, b"5")
    assert not wide.compare(6, b"05")


def test_merge_returns_a_new_listpack_and_changes_neither_input() -> None:
    first, second = filled(b"a", b"1"), filled(b"b" * 300)
    before = first.to_bytes(), second.to_bytes()
    for one, two in ((first, second), (second, first), (first, first), (first, Listpack()), (Listpack(), first)):
        merged = Listpack.merge(one, two)
        merged.check()
        assert merged.values() == one.values() + two.values()
        assert merged.to_bytes() == encode([v if isinstance(v, bytes) else b"%d" % v for v in merged])
    assert (first.to_bytes(), second.to_bytes()) == before


@pytest.mark.slow
def test_the_count_becomes_unknown_at_65535_and_known_after_counting() -> None:
    lp = Listpack(200_000)
    for _ in range(65534):
        lp.append_int(1)
    assert lp.to_bytes()[4:6] == b"\xfe\xff"
    assert len(lp) == 65534
    half = Listpack.from_bytes(lp.to_bytes())
    lp.append_int(2)
    lp.append_int(3)
    lp.check()
    assert lp.to_bytes()[4:6] == b"\xff\xff"
    assert len(lp) == 65536
    assert lp.get(lp.seek(65535)) == lp.get(lp.seek(-1)) == 3
    assert lp.seek(65536) == -1
    assert lp.delete_range(-2, 7) == 2
    assert lp.to_bytes()[4:6] == b"\xff\xff", "a deletion leaves it unknown"
    assert len(lp) == 65534
    assert lp.to_bytes()[4:6] == b"\xfe\xff", "counting it makes it known"
    merged = Listpack.merge(half, half)
    assert merged.to_bytes()[4:6] == b"\xff\xff"
    assert len(merged) == 2 * 65534


def test_a_listpack_cannot_outgrow_its_header() -> None:
    lp = filled(b"x")
    assert lp.can_append(2**30 - lp.used)
    assert not lp.can_append(2**30 - lp.used + 1)
    size, before = lp.used, bytes(lp.buf)
    lp.used = 2**32 - 3  # simulates that length: the check precedes every access
    for grow in (
        lambda: lp.append(b"xy"),
        lambda: lp.append_int(2**40),
        lambda: lp.insert(6, b"xy", False),
        lambda: Listpack.merge(lp, filled(b"abc")),
    ):
        with pytest.raises(OverflowError, match="4294967295 bytes"):
            grow()
    lp.used = size
    assert bytes(lp.buf) == before


def test_a_length_past_the_buffer_never_causes_a_read_outside_it() -> None:
    lp = filled(b"abc")
    lp.used = len(lp.buf) + 1000
    assert not lp.validate(False)
    for use in (lp.to_bytes, lp.last, lp.check, lambda: lp.skip(6, 500), lambda: lp.find(6, b"x")):
        with pytest.raises((IndexError, Corrupt)):
            use()


def test_invalid_positions_are_rejected() -> None:
    lp = filled(b"abc", b"1")
    end = lp.used - 1
    for pos in (-(2**62), -1, 0, 5, end, end + 1, len(lp.buf), 2**62):
        for use in (lp.decode, lp.get, lp.get_bytes, lp.get_int, lp.next, lp.delete):
            with pytest.raises(Corrupt):
                use(pos)
        with pytest.raises(Corrupt):
            lp.replace(pos, b"x")
        with pytest.raises(Corrupt):
            lp.insert(pos, b"x", True)
        if pos != end:
            with pytest.raises(Corrupt):
                lp.insert(pos, b"x", False)
            with pytest.raises(Corrupt):
                lp.prev(pos)
    assert lp.values() == [b"abc", 1]


def test_a_listpack_is_small_and_not_tracked_by_the_collector() -> None:
    lp = Listpack()
    assert not hasattr(lp, "__dict__")
    compiled = not listpack.__file__.endswith(".py")
    assert gc.is_tracked(lp) is not compiled
    assert repr(filled(b"x")) == "<Listpack: 1 entries in 10 bytes>"
