"""Entries are packed as XADD commands, and replies read, exactly as the functions for single commands do it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rillet
from rillet.errors import CommandError
from rillet.protocol.command_parser import pack_command
from rillet.protocol.reply_parser import parse_all
from rillet.store.arguments.encoding import append_fields, entries_in
from rillet.store.arguments.entry_packing import EntryPacker, ids_in
from rillet.store.entry import Entry, entries_of
from rillet.store.stream import BATCH_BYTES
from rillet.types.stream.id import StreamID
from tests.variants import by_speed

pytestmark = pytest.mark.both

VALUES = st.one_of(
    st.text(max_size=40), st.binary(max_size=40), st.floats(), st.integers(),
    st.sampled_from([0, 9, 10, 10**9 - 1, 10**9, 10**10, 2**63 - 1, 2**63, -1, -(2**63)]),
    st.sampled_from(["é", "\udc80", "ÿ" * 20, "x" * 300]),
)  # fmt: skip
NAMES = st.one_of(st.text(max_size=12), st.binary(max_size=12), st.integers(0, 3), st.sampled_from(["n", "carrier"]))
ENTRIES = st.lists(st.dictionaries(NAMES, VALUES, min_size=1, max_size=12), max_size=6)


def packer(batch: int = 1000, most: int = BATCH_BYTES) -> EntryPacker:
    return EntryPacker([b"XADD", b"s"], batch, most)


@settings(max_examples=by_speed(15, 15, 300))
@given(ENTRIES)
def test_a_packed_entry_is_the_command_with_its_encoded_fields(entries: list[dict[Any, Any]]) -> None:
    one = packer()
    wanted = b""
    longest = 4
    for fields in entries:
        argv = [b"XADD", b"s", b"*"]
        append_fields(argv, fields)
        wanted += pack_command(argv)
        longest = max(longest, *map(len, argv))
        assert not one.add([b"*"], fields)
        assert not one.add([b"IDMP", b"p", b"1", b"*"], list(fields.items()))
        wanted += pack_command([*argv[:2], b"IDMP", b"p", b"1", *argv[2:]])
        one.add_words([b"1-1"], argv[3:])
        wanted += pack_command([*argv[:2], b"1-1", *argv[3:]])
    assert (one.count, one.longest) == (3 * len(entries), longest)
    assert one.take_bytes() == wanted
    assert (one.count, one.used, one.take_bytes()) == (0, 0, b"")


def test_the_packer_is_full_after_a_batch_and_after_many_bytes() -> None:
    one = packer(2, 1000)
    assert [one.add([b"*"], {"f": 1}), one.add([b"*"], {"f": 2})] == [False, True]
    one.take_bytes()
    assert one.add([b"*"], {"f": "x" * 1000})


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "an entry must have at least one field"),
        ({"a": 1, "b": None}, "stream 's': the value of the field 'b': None has no standard text form"),
        ({"a": 1, None: 2}, "stream 's': the name of a field: None has no standard text form"),
        ({"a": True}, "the value of the field 'a': True has no standard text form"),
        ({"a": "\ud800"}, "the value of the field 'a':"),
        ([], "an entry must have at least one field"),
        ("text", "stream 's': fields: expected a mapping or pairs"),
    ],
)
def test_errors_name_the_stream_and_the_field(fields: Any, error: str) -> None:
    with rillet.open() as store:
        for add in (lambda: store.stream("s").add_many([{"n": 1}, fields]), lambda: store.stream("s").add(fields)):
            with pytest.raises((TypeError, ValueError), match=error):
                add()
        assert len(store.stream("s")) == 0


def test_a_large_batch_is_sent_in_parts_and_a_rejected_entry_ends_it() -> None:
    with rillet.open() as store:
        stream = store.stream("s")
        ids = stream.add_many(((f"{n + 1}-0", {"text": "x" * (BATCH_BYTES // 4)}) for n in range(6)), batch=100)
        assert ids == [StreamID(n + 1, 0) for n in range(6)]
        with pytest.raises(CommandError, match="equal or smaller"):
            stream.add_many([("7-0", {"n": 1}), ("7-0", {"n": 2}), ("8-0", {"n": 3}), ("9-0", {"n": 4})], batch=3)
        assert stream.last_id == StreamID(8, 0)
        assert stream.add_many([{"n": 1}], create=False, batch=1)[0] is not None
        assert store.stream("none").add_many([{"n": 1}, {"n": 2}], create=False) == [None, None]


@pytest.mark.parametrize("raw", [
    b"$3\r\n1-1\r\n$3\r\n1-2\r\n", b"$41\r\n18446744073709551615-18446744073709551615\r\n", b"$-1\r\n", b"",
    b"+QUEUED\r\n", b"-ERR no\r\n", b"$3\r\n1-1\r\n-ERR no\r\n", b"$3\r\n1-1", b"$3\r\n1-1\r", b"$2\r\n1-\r\n",
    b"$1\r\n1\r\n",
])  # fmt: skip
def test_the_ids_in_replies(raw: bytes) -> None:
    ids = ids_in(raw, raw.count(b"$"))
    if raw in (b"", b"$3\r\n1-1\r\n$3\r\n1-2\r\n"):
        assert ids == [StreamID.parse(one) for one in parse_all(raw)]
        assert all(type(one) is StreamID and one.ms == 1 for one in ids)
    else:
        assert ids is None
    assert ids_in(raw, 5) is None


FLAT = st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=200)), min_size=1, max_size=8)


@given(st.lists(FLAT, max_size=5), st.integers(0, 1000))
def test_the_entries_in_a_reply(rows: list[list[tuple[bytes, bytes]]], cut: int) -> None:
    data = b"*%d\r\n" % len(rows)
    for number, pairs in enumerate(rows):
        flat = [word for pair in pairs for word in pair]
        data += b"*2\r\n" + pack_command([b"%d-0" % number])[4:] + pack_command(flat)
    wanted: list[Entry[Any]] = entries_of(parse_all(data)[0])
    found = entries_in(data, Entry)
    assert found == wanted
    assert [entry.fields for entry in found] == [entry.fields for entry in wanted]
    assert entries_in(data[: cut % len(data)], Entry) is None


@pytest.mark.parametrize("raw", [b"*-1\r\n", b"_\r\n", b"-ERR no\r\n", b"*1\r\n*2\r\n$3\r\n1-1\r\n*-1\r\n",
                                 b"*1\r\n:1\r\n", b""])  # fmt: skip
def test_a_reply_of_another_form_is_left_to_the_parser(raw: bytes) -> None:
    assert entries_in(raw, Entry) is None
