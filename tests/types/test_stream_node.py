"""Untrusted nodes: invalid ones are rejected like in Redis, and no access leaves the buffer of the node."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.errors import Corrupt
from rillet.structs.listpack import Listpack
from rillet.types.stream.id import encode_key
from rillet.types.stream.node import validate_node
from rillet.types.stream.stream import Stream, StreamIterator

MAX = (1 << 64) - 1


def node_of(*values: int | bytes) -> Listpack:
    """Return a listpack of these values."""
    lp = Listpack()
    for value in values:
        if isinstance(value, int):
            lp.append_int(value)
        else:
            lp.append(value)
    return lp


def as_text(lp: Listpack, index: int, text: bytes) -> Listpack:
    """Replace the bytes of an element by a short string, which no writer of listpacks does."""
    pos = lp.seek(index)
    raw = lp.to_bytes()
    entry = bytes([0x80 | len(text)]) + text + bytes([1 + len(text)])
    raw = raw[:pos] + entry + raw[lp.skip(pos) :]
    return Listpack.from_bytes(len(raw).to_bytes(4, "little") + raw[4:])


def a_real_node() -> Listpack:
    """Return a node of a stream, with entries of equal and different names and a tombstone."""
    stream = Stream()
    for ms in range(1, 9):
        stream.append([b"a", b"%d" % (ms * 1000), b"b", b"text" * ms], 0, 2, ms, ms, 4096, 100)
    stream.append([b"c", b"x" * 100], 0, 1, 9, MAX, 4096, 100)
    stream.delete(4, 4)
    node = stream.rax.find(encode_key(1, 1))
    assert isinstance(node, Listpack)
    return node


GOOD = [
    (1, 0, 1, b"f", 0, 2, 0, 0, b"v", 4),
    (1, 1, 1, b"f", 0, 2, 0, 0, b"v", 4, 3, 1, 0, b"v", 4),
    (1, 0, 1, b"f", 0, 0, 0, 0, 1, b"g", b"v", 6),
    (0, 0, 1, b"f", 0),
    (1, 0, 0, 0, 2, 0, 0, 3),
    (-1, 2, 1, b"f", 0, 2, 0, 0, b"v", 4),
]
BAD = [
    (),
    (1,),
    (1, 0),
    (1, 0, 1),
    (1, 0, 1, b"f"),
    (1, 0, 1, b"f", 0),
    (1, 0, 1, b"f", 1, 2, 0, 0, b"v", 4),
    (1, 0, 2, b"f", 0, 2, 0, 0, b"v", 4),
    (2, 0, 1, b"f", 0, 2, 0, 0, b"v", 4),
    (0, 0, 1, b"f", 0, 2, 0, 0, b"v", 4),
    (-1, 0, 1, b"f", 0),
    (1, 0, 1, b"f", 0, 2, 0, 0, b"v", 5),
    (1, 0, 1, b"f", 0, 2, 0, 0, b"v", 4, 7),
    (1, 0, 1, b"f", 0, 0, 0, 0, b"g", b"v", 6),
    (1, 0, 1, b"f", 0, 0, 0, 0, 1 << 62, b"g", b"v", 6),
    (1, 0, -3, 0, 2, 0, 0, 0),
    (1, 0, 1, b"f", 0, 0, 0, 0, -1, 2),
    (b"x", 0, 1, b"f", 0, 2, 0, 0, b"v", 4),
    (1, 0, 1, b"f", 0, 2, 0, b"y", b"v", 4),
    ((1 << 63) - 1, (1 << 63) - 1, 1, b"f", 0),
]


@pytest.mark.parametrize("values", GOOD)
def test_valid_nodes_pass(values: tuple[int | bytes, ...]) -> None:
    assert validate_node(node_of(*values))


@pytest.mark.parametrize("values", BAD)
def test_invalid_nodes_fail_the_deep_validation_only(values: tuple[int | bytes, ...]) -> None:
    assert not validate_node(node_of(*values))
    assert validate_node(node_of(*values), False)


def test_numbers_may_be_stored_as_text() -> None:
    lp = as_text(as_text(node_of(*GOOD[0]), 0, b"1"), 7, b"0")
    assert lp.get(6) == b"1"
    assert validate_node(lp)
    stream = Stream()
    assert stream.add_node(encode_key(5, 0), lp)
    stream.length, stream.last_ms = 1, 5
    it = StreamIterator(stream, 0, 0, MAX, MAX, False)
    assert it.next_entry()
    assert (it.ms, it.seq) == (5, 0)
    assert it.fields() == [b"f", b"v"]
    assert not validate_node(as_text(lp, 0, b"01"))


def test_a_node_is_valid_and_its_truncations_are_not() -> None:
    node = a_real_node()
    assert validate_node(node)
    raw = node.to_bytes()
    for end in range(7, len(raw) - 1):
        cut = raw[4:end] + b"\xff"
        frame = Listpack.from_bytes((len(cut) + 4).to_bytes(4, "little") + cut, False)
        assert not validate_node(frame)


def use_everything(stream: Stream) -> None:
    """Call every function that reads or writes a node."""
    for reverse in (False, True):
        it = StreamIterator(stream, 0, 0, MAX, MAX, reverse)
        while it.next_entry():
            it.fields()
    stream.contains(3, 3)
    stream.edge(True, False)
    stream.append([b"a", b"1", b"b", b"2"], 0, 2, MAX, 0, 4096, 100)
    stream.delete(2, 2)
    stream.trim_maxlen(3, False, 0)
    stream.trim_minid(6, 0, False, 0)


@given(st.integers(0, 1 << 62))
def test_damaged_nodes_raise_no_other_error_than_corrupt(seed: int) -> None:
    rnd = random.Random(seed)
    raw = bytearray(a_real_node().to_bytes())
    for _ in range(rnd.choice([1, 1, 2, 5])):
        raw[rnd.randrange(6, len(raw) - 1)] = rnd.choice([rnd.randrange(256), 0xFF, 0xF0, 0xF4, 0])
    lp = Listpack.from_bytes(bytes(raw), False)
    validate_node(lp)
    stream = Stream()
    stream.add_node(encode_key(1, 1), lp)
    stream.length = rnd.choice([8, 1, 100])
    stream.last_ms, stream.last_seq = 9, MAX
    with contextlib.suppress(Corrupt, IndexError):
        use_everything(stream)
