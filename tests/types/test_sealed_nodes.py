"""Streams whose nodes are partly sealed behave as streams whose nodes are all in memory, and have the same bytes."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable

import pytest

from rillet.structs.listpack import Listpack
from rillet.types.rdb.primitives import RdbWriter
from rillet.types.rdb.stream import copy_stream, save_stream
from rillet.types.stream.compaction import StreamCompactor
from rillet.types.stream.counts import counts_of
from rillet.types.stream.id import encode_key, key_ms
from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.nodes import NodeIterator, SealedNodes
from rillet.types.stream.stream import ACKED, DELREF, KEEPREF, Stream

TOP = (1 << 64) - 1
KIND = 19  # RDB_TYPE_STREAM_LISTPACKS_2


class Kept:
    """A source of nodes in memory, which counts what is read."""

    def __init__(self, nodes: list[tuple[bytes, bytes]]) -> None:
        self.keys = [key for key, _ in nodes]
        self.nodes = [data for _, data in nodes]
        self.read = 0

    def reference(self) -> bytes:
        return b"kept"

    def key(self, number: int) -> bytes:
        return self.keys[number]

    def living(self, number: int) -> int:
        return int(Listpack.from_bytes(self.nodes[number]).values()[0])

    def node(self, number: int) -> Listpack:
        self.read += 1
        return Listpack.from_bytes(self.nodes[number])

    def find(self, key: bytes) -> int:
        return bisect_right(self.keys, key) - 1

    def living_of(self, first: int, count: int) -> int:
        return sum(self.living(number) for number in range(first, first + count))

    def size(self, number: int) -> int:
        return len(self.nodes[number])

    def absent(self, first: int, count: int) -> None:
        return None

    def bytes_of(self, first: int, count: int) -> int:
        total = sum(map(len, self.nodes))
        return total * (first + count) // len(self.nodes) - total * first // len(self.nodes)


def in_memory(stream: Stream) -> list[tuple[bytes, bytes]]:
    """Return the nodes that may be sealed: those in memory, without the last one."""
    nodes = NodeIterator(stream)
    found: list[tuple[bytes, bytes]] = []
    last = b""
    nodes.seek("^")
    while nodes.next():
        last = nodes.key
        if nodes.range is None and nodes.living() > 0:
            found.append((nodes.key, nodes.node().to_bytes()))
    return [node for node in found if node[0] != last]


def sealed(stream: Stream, first: int, count: int) -> Kept | None:
    """Seal some of the nodes in memory that lie together; return their source."""
    nodes = NodeIterator(stream)
    chosen = in_memory(stream)[first : first + count]
    if not chosen:
        return None
    together = [chosen[0]]
    nodes.seek(">", chosen[0][0])
    for node in chosen[1:]:
        if not nodes.next() or nodes.key != node[0]:
            break
        together.append(node)
    source = Kept(together)
    stream.seal(SealedNodes(source, 0, len(together), source.living_of(0, len(together))))
    return source


def filled(entries: int, per_node: int = 5) -> Stream:
    stream = Stream()
    for number in range(1, entries + 1):
        stream.append([b"n", b"%d" % number], 0, 1, number, 0, 4096, per_node)
    return stream


def saved(stream: Stream) -> bytes:
    out = RdbWriter()
    save_stream(out, stream, KIND)
    return bytes(out.out)


def ids(stream: Stream, start: int = 0, end: int = TOP, reverse: bool = False) -> list[tuple[int, list[bytes]]]:
    entries = StreamIterator(stream, start, 0, end, TOP, reverse)
    found = []
    while entries.next_entry():
        found.append((entries.ms, entries.fields()))
    return found


def same(a: Stream, b: Stream) -> None:
    a.check()
    b.check()
    assert ids(a) == ids(b)
    assert ids(a, reverse=True) == ids(b, reverse=True)
    assert saved(a) == saved(b)
    assert a.node_count == b.node_count
    for name in ("length", "last_ms", "first_ms", "first_seq", "max_deleted_ms", "entries_added"):
        assert getattr(a, name) == getattr(b, name), name


def test_a_range_costs_one_key_and_is_read_only_where_it_is_wanted() -> None:
    stream, plain = filled(500), filled(500)
    source = sealed(stream, 0, 99)
    assert source is not None
    assert (stream.rax.numele, stream.node_count, stream.sealed) == (2, 100, 99)
    assert stream.node_bytes == 4096  # of the last node
    counts = counts_of(stream)
    assert counts.rank(stream, 500, 0) == 500
    assert source.read == 0
    assert counts.rank(stream, 250, 0) == 250
    assert ids(stream, 121, 122) == ids(plain, 121, 122)
    assert source.read == 2
    same(stream, plain)


def test_ranges_that_follow_each_other_become_one() -> None:
    stream = filled(100)
    source = Kept(in_memory(stream))
    for first in (0, 4, 12):
        count = {0: 4, 4: 8, 12: 7}[first]
        stream.seal(SealedNodes(source, first, count, 5 * count))
    assert (stream.ranges, stream.sealed, stream.node_count) == (1, 19, 20)
    same(stream, filled(100))


def test_a_deletion_takes_one_node_into_memory_and_splits_the_range() -> None:
    stream, plain = filled(100), filled(100)
    sealed(stream, 0, 19)
    for one in (stream, plain):
        assert one.delete(52, 0)
        assert not one.delete(52, 0)
    assert (stream.ranges, stream.sealed, stream.rax.numele) == (2, 18, 4)
    same(stream, plain)
    for number in (51, 53, 54, 55):
        for one in (stream, plain):
            assert one.delete(number, 0)
    assert (stream.sealed, stream.node_count) == (18, 19)
    same(stream, plain)


def test_trimming_drops_whole_ranges_without_a_read() -> None:
    for by_id in (False, True):
        stream, plain = filled(1000), filled(1000)
        nodes = in_memory(stream)
        first, second = Kept(nodes[:100]), Kept(nodes[100:199])
        for source in (first, second):
            stream.seal(SealedNodes(source, 0, len(source.keys), 5 * len(source.keys)))
        for one in (stream, plain):
            trimmed = one.trim_minid(502, 0, False, 0) if by_id else one.trim_maxlen(499, False, 0)
            assert trimmed == 501
        assert (first.read, second.read) == (0, 1)
        same(stream, plain)


def test_an_append_after_the_last_nodes_in_memory_are_gone() -> None:
    stream, plain = filled(100), filled(100)
    sealed(stream, 0, 19)
    for one in (stream, plain):
        for number in range(96, 101):
            one.delete(number, 0)
        assert one.edge(False, True)
        assert one.edge_ms == 95
        one.append([b"n", b"x"], 0, 1, 200, 0, 4096, 100)
    same(stream, plain)


def test_a_copy_shares_the_ranges_and_neither_changes_the_other() -> None:
    stream, plain = filled_with_group(100, 40), filled_with_group(100, 40)
    source = sealed(stream, 2, 12)
    assert source is not None
    twin = copy_stream(stream)
    assert source.read == 0
    assert (twin.ranges, twin.sealed) == (stream.ranges, stream.sealed)
    same(twin, stream)
    for one in (twin, plain):
        assert one.delete(33, 0)
        one.trim_maxlen(60, False, 0, KEEPREF)
        one.append([b"n", b"x"], 0, 1, 200, 0, 4096, 5)
    same(twin, plain)
    same(stream, filled_with_group(100, 40))


def filled_with_group(entries: int, read: int) -> Stream:
    stream = filled(entries)
    stream.create_group(b"g", read, 0, -1)
    return stream


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 60))])
def test_random_changes_give_the_same_stream(seed: int) -> None:
    chance = random.Random(seed)
    stream, plain = filled(150), filled(150)
    both = (stream, plain)
    last = 150
    for one in both:
        one.create_group(b"g", 100, 0, -1)

    def add() -> None:
        nonlocal last
        last += chance.randint(1, 3)
        words = [b"n", b"%d" % last] if chance.random() < 0.8 else [b"other", b"x", b"m", b"y"]
        for one in both:
            one.append(words, 0, len(words) // 2, last, 0, 4096, 5)

    def delete() -> None:
        ms = chance.randint(1, last)
        assert len({one.delete(ms, 0) for one in both}) == 1

    def remove_while_iterating() -> None:
        start, reverse, every = chance.randint(1, last), chance.random() < 0.5, chance.randint(1, 4)
        for one in both:
            entries = StreamIterator(one, start, 0, start + 20, 0, reverse)
            number = 0
            while entries.next_entry():
                number += 1
                if number % every == 0:
                    entries.remove_current()
            one.settle_first()

    def trim() -> None:
        strategy = chance.choice([KEEPREF, KEEPREF, DELREF, ACKED])
        approx, limit = chance.random() < 0.5, chance.choice([0, 0, 7, 20])
        amount = chance.randint(0, 30)
        if chance.random() < 0.5:
            done = {one.trim_maxlen(max(one.length - amount, 0), approx, limit, strategy) for one in both}
        else:
            done = {one.trim_minid(one.first_ms + amount, 0, approx, limit, strategy) for one in both}
        assert len(done) == 1

    def compact() -> None:
        for one in both:
            compactor = StreamCompactor(one)
            while compactor.step(4096, 5):
                pass

    def seal() -> None:
        sealed(stream, chance.randint(0, 10), chance.randint(1, 40))

    def look() -> None:
        start, end = sorted((chance.randint(0, last), chance.randint(0, last)))
        for reverse in (False, True):
            assert ids(stream, start, end, reverse) == ids(plain, start, end, reverse)
        ranks = [counts_of(one).rank(one, start, 0) for one in both]
        assert ranks[0] == ranks[1]
        key = encode_key(start, 0)
        for op in ("<", "<=", ">", ">="):
            found = []
            for one in both:
                nodes = NodeIterator(one)
                steps = [key_ms(nodes.key) for _ in range(3) if nodes.seek(op, key) and nodes.next()]
                while nodes.next() and len(steps) < 8:
                    steps.append(key_ms(nodes.key))
                while nodes.prev() and len(steps) < 16:
                    steps.append(key_ms(nodes.key))
                found.append(steps)
            if stream.node_count == plain.node_count:
                assert found[0] == found[1], op

    changes: list[Callable[[], None]] = [add] * 8 + [delete] * 4 + [seal] * 2 + [look] * 2
    changes += [remove_while_iterating, trim]
    for _ in range(150):
        chance.choice(changes)()
        if chance.random() < 0.05:
            same(stream, plain)
    same(stream, plain)
    compact()  # sealed nodes stay as they are, so the nodes differ from here on
    stream.check()
    assert ids(stream) == ids(plain)
