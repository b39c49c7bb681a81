"""Entry: a read-only mapping of fields to texts, decoded on demand, and the IDs of entries as times."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone

import pytest

import rillet
from rillet.store.arguments.encoding import encode, encode_id
from rillet.store.arguments.positions import encode_after, encode_new_id, encode_position, exact_id, milliseconds_of
from rillet.store.entry import Entry
from rillet.types.stream.id import MAX, StreamID

MANY = [b"f%d" % n for n in range(40)]


def _entry(*flat: bytes) -> Entry:
    return Entry(b"5-1", list(flat))


def test_an_entry_is_a_mapping() -> None:
    entry = _entry(b"a", b"1", b"b", b"2", b"a", b"3")
    assert isinstance(entry, Mapping)
    assert dict(entry) == entry.fields == {"a": "3", "b": "2"}
    assert list(entry) == list(entry.keys()) == ["a", "b"]
    assert list(entry.values()) == ["3", "2"]
    assert list(entry.items()) == [("a", "3"), ("b", "2")]
    assert len(entry) == 2
    assert "a" in entry
    assert "3" not in entry
    assert 5 not in entry  # type: ignore[comparison-overlap]
    assert entry.get("b") == "2"
    assert entry.get("c") is None
    assert {**entry, "c": "4"} == {"a": "3", "b": "2", "c": "4"}
    match entry:
        case {"b": value}:
            assert value == "2"
        case _:
            raise AssertionError("an entry matches the pattern of a mapping")


@pytest.mark.parametrize("decoded", [False, True])
def test_one_field_is_the_last_of_its_name(decoded: bool) -> None:
    for entry in (_entry(b"a", b"1", b"b", b"a", b"a", b"3"), _entry(b"a", b"1", *MANY, b"b", b"a", b"a", b"3")):
        if decoded:
            assert len(entry) >= 2
        assert entry["a"] == "3"
        assert entry["b"] == "a"
        for missing in ("3", "", "\udcff"):
            with pytest.raises(KeyError):
                entry[missing]
        with pytest.raises(KeyError):
            entry[5]  # type: ignore[index]


def test_fields_that_are_no_text_and_an_entry_without_fields() -> None:
    entry = _entry(b"\xff", b"\xfe")
    assert entry["\udcff"] == "\udcfe"
    assert dict(entry) == {"\udcff": "\udcfe"}
    assert dict(_entry()) == {}


def test_fields_is_a_dict_of_the_caller() -> None:
    entry = _entry(b"a", b"1")
    entry.fields["a"] = "changed"
    assert "a" in entry
    entry.fields["a"] = "changed"
    assert entry["a"] == "1"
    assert not hasattr(entry, "__dict__")


def test_entries_are_equal_by_id_and_raw_fields() -> None:
    entry = _entry(b"a", b"1")
    assert entry == _entry(b"a", b"1")
    assert hash(entry) == hash(_entry(b"b", b"1")) == hash(StreamID(5, 1))
    assert entry != Entry(b"5-2", [b"a", b"1"])
    assert entry != _entry(b"a", b"1", b"a", b"1")
    assert entry != {"a": "1"}
    assert pickle.loads(pickle.dumps(entry)) == copy.copy(entry) == entry


def test_an_entry_is_added_with_all_its_raw_fields() -> None:
    with rillet.open() as store:
        stream = store.stream("s")
        stream.add([(b"\xff", b"1"), (b"a", b"2"), (b"a", b"3")])
        stream.add(stream.range()[0])
        assert [entry.pairs for entry in stream] == [[(b"\xff", b"1"), (b"a", b"2"), (b"a", b"3")]] * 2


def test_the_time_of_an_id() -> None:
    assert StreamID(0, 0).datetime == datetime(1970, 1, 1, tzinfo=UTC)
    moment = StreamID(1700000000123, 7).datetime
    assert moment == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    assert milliseconds_of(moment) == 1700000000123
    for ms in (1, 999, 253402300799999):
        assert milliseconds_of(StreamID(ms, 0).datetime) == ms
    with pytest.raises(OverflowError):
        _ = StreamID(MAX, 0).datetime


def test_a_time_as_a_position() -> None:
    moment = datetime(1970, 1, 1, 1, 0, 1, 5999, tzinfo=timezone(timedelta(hours=1)))
    assert encode_position(moment) == b"1005"
    assert encode_after(moment) == b"1004-18446744073709551615"
    assert encode_new_id(moment) == b"1005-*"
    assert encode_after(StreamID(0, 0).datetime) == b"0-0"
    for text_of in (encode_position, encode_after, encode_new_id):
        assert text_of("7-1") == text_of(b"7-1") == text_of(StreamID(7, 1)) == b"7-1"
        with pytest.raises(ValueError, match="has no time zone: pass an aware datetime"):
            text_of(datetime(2024, 1, 1))
        with pytest.raises(ValueError, match="is before 1970"):
            text_of(datetime(1969, 12, 31, tzinfo=UTC))
    with pytest.raises(TypeError, match="a datetime is a time at which many entries may lie"):
        encode_id(moment)
    assert exact_id("5") == exact_id(5) == exact_id(b"5-0") == StreamID(5, 0)
    with pytest.raises(ValueError, match="must be an ID"):
        exact_id("(5-1")


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**30])
def test_an_int_of_any_size_is_stored_as_its_decimal_text(number: int) -> None:
    assert encode(number) == b"%d" % number
