"""Compaction of streams: no command may see it, except for the sizes of nodes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rillet.keyspace.clock import ManualClock
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.types.stream.compaction import StreamCompactor
from rillet.types.stream.counts import StreamCounts
from rillet.types.stream.stream import Stream
from tests.differential.wire import Local
from tests.variants import by_speed

NOW = 1_700_000_000_000
FIELDS = st.sampled_from([("a", "1"), ("a", "x" * 30), ("b", "7", "c", "-5"), ("a", "12345", "b", ""), ("b", "y")])
GROUPS, CONSUMERS = st.sampled_from("gh"), st.sampled_from("uvw")
IDS = st.integers(0, 60)


def limits_of(engine: Engine) -> tuple[int, int]:
    return engine.settings.stream_node_max_bytes, engine.settings.stream_node_max_entries


class CompactedAndNot(RuleBasedStateMachine):
    """Two engines run the same commands; the stream of one is compacted between them. All replies are equal."""

    @initialize(entries=st.sampled_from([0, 2, 3, 10]), size=st.sampled_from([0, 60, 150, 4096]),
                compat=st.sampled_from(["7.0", "7.2", "valkey", "8.6", "newest"]))  # fmt: skip
    def start(self, entries: int, size: int, compat: str) -> None:
        self.ends = [
            Local(Engine(Settings(compat=compat, stream_node_max_entries=entries, stream_node_max_bytes=size),
                         ManualClock(NOW)))
            for _ in range(2)
        ]  # fmt: skip
        self.last = 0
        self.stream_now: Stream | None = None
        self.compactor: StreamCompactor | None = None
        for group in "gh":
            self.run("XGROUP", "CREATE", "s", group, "0", "MKSTREAM")
        for number in range(1, 8):
            self.run("XADD", "s", f"{number}-1", "a", str(number))
            self.last = number

    @property
    def stream(self) -> Any:
        return self.ends[0].engine.databases[0].peek(b"s")

    def run(self, *words: object) -> Any:
        """Run a command on both engines, and require the same reply."""
        one, other = (end(*(str(word) for word in words)) for end in self.ends)
        assert one == other, words
        return one

    @rule(fields=FIELDS, step=st.integers(1, 3), trim=st.sampled_from(["", "", "", "MAXLEN = 8", "MINID = 5"]))
    def add(self, fields: tuple[str, ...], step: int, trim: str) -> None:
        self.last += step
        self.run("XADD", "s", *trim.split(), f"{self.last}-1", *fields)

    @rule(ids=st.lists(IDS, min_size=1, max_size=12))
    def delete(self, ids: list[int]) -> None:
        self.run("XDEL", "s", *(f"{number}-1" for number in ids))

    @rule(start=IDS, keep=st.integers(2, 5))
    def delete_most(self, start: int, keep: int) -> None:
        self.run("XDEL", "s", *(f"{one}-1" for one in range(start, self.last + 1) if one % keep))

    @rule(count=st.integers(0, 20))
    def trim(self, count: int) -> None:
        self.run("XTRIM", "s", "MAXLEN", "=", count)

    @rule(number=IDS)
    def trim_to(self, number: int) -> None:
        self.run("XTRIM", "s", "MINID", "=", number)

    @rule(group=GROUPS, consumer=CONSUMERS, count=st.integers(1, 6), start=st.sampled_from([">", "0", "7-1"]),
          noack=st.booleans())  # fmt: skip
    def read(self, group: str, consumer: str, count: int, start: str, noack: bool) -> None:
        self.run(
            "XREADGROUP", "GROUP", group, consumer, "COUNT", count, *(["NOACK"] if noack else []), "STREAMS", "s", start
        )

    @rule(group=GROUPS, ids=st.lists(IDS, min_size=1, max_size=6))
    def acknowledge(self, group: str, ids: list[int]) -> None:
        self.run("XACK", "s", group, *(f"{number}-1" for number in ids))

    @rule(group=GROUPS, consumer=CONSUMERS, start=IDS, count=st.integers(1, 5))
    def claim(self, group: str, consumer: str, start: int, count: int) -> None:
        self.run("XAUTOCLAIM", "s", group, consumer, 0, start, "COUNT", count)
        self.run("XCLAIM", "s", group, consumer, 0, f"{start}-1")

    @rule(group=GROUPS, number=IDS)
    def set_group(self, group: str, number: int) -> None:
        self.run("XGROUP", "SETID", "s", group, number)

    @rule(number=IDS)
    def set_last(self, number: int) -> None:
        self.run("XSETID", "s", f"{max(number, self.last)}-5")
        self.last = max(number, self.last) + 1

    @rule()
    def set_last_back(self) -> None:
        """XSETID to an ID before deleted entries leaves nodes whose tombstones have greater IDs."""
        for end in self.ends:
            end("XSETID", "s", f"{max(self.last // 2, 1)}-1")
        flat = self.ends[0]("XINFO", "STREAM", "s")
        self.last = int(dict(zip(flat[::2], flat[1::2], strict=True))[b"last-generated-id"].split(b"-")[0])

    @rule(numbers=st.lists(IDS, min_size=1, max_size=4), count=st.integers(1, 9))
    def rank(self, numbers: list[int], count: int) -> None:
        self.run("RILLET.XRANK", "s", *numbers)
        self.run("RILLET.XAFTER", "s", numbers[0], count)

    @rule(number=IDS, count=st.integers(1, 9))
    def look(self, number: int, count: int) -> None:
        self.run("XREVRANGE", "s", f"{number}", "-", "COUNT", count)
        self.run("XREAD", "COUNT", count, "STREAMS", "s", number)

    @rule(step=st.integers(1, 3))
    def block(self, step: int) -> None:
        """A client that waits is served by the next entry, also after a compaction step."""
        waiting = [Local(end.engine) for end in self.ends]
        for client in waiting:
            argv = "XREADGROUP GROUP g waiting BLOCK 0 STREAMS s >".split()
            client.engine.execute(client.session, [word.encode() for word in argv])
        self.compact(2)
        self.last += step
        self.run("XADD", "s", f"{self.last}-1", "a", "served")
        for client in waiting:
            if client.session.blocked is not None:
                client.engine.blocking.expire(client.session)
        assert waiting[0].session.out.take_bytes() == waiting[1].session.out.take_bytes()
        for client in waiting:
            client.engine.close_session(client.session)

    @rule()
    def restart_pass(self) -> None:
        self.compactor = None

    @rule(steps=st.integers(1, 4))
    def compact(self, steps: int) -> None:
        for _ in range(steps):
            if self.compactor is None:
                self.compactor = StreamCompactor(self.stream)
            if not self.compactor.step(*limits_of(self.ends[0].engine)):
                self.compactor = None

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "ends"):
            return
        self.stream.check()
        if self.stream.sums is not None:
            counts = StreamCounts(2)
            counts.refresh(self.stream)
        self.run("XRANGE", "s", "-", "+")
        self.run("XREVRANGE", "s", "+", "-")
        self.run("XINFO", "GROUPS", "s")
        self.run("XPENDING", "s", "g", "-", "+", 100)
        one, other = (self.full(end) for end in self.ends)
        assert one == other

    def full(self, end: Local) -> dict[bytes, Any]:
        """Return XINFO STREAM FULL without the figures of the tree, which a compaction changes."""
        flat = end("XINFO", "STREAM", "s", "FULL", "COUNT", 0)
        found = dict(zip(flat[::2], flat[1::2], strict=True))
        for name in (b"radix-tree-keys", b"radix-tree-nodes"):
            del found[name]
        return found


CompactedAndNot.TestCase.settings = settings(max_examples=by_speed(20, 10, 30), stateful_step_count=30)
TestCompactedAndNot = pytest.mark.slow(CompactedAndNot.TestCase)


def compacted(stream: Stream, node_max_bytes: int = 4096, node_max_entries: int = 100) -> StreamCompactor:
    """Compact the whole stream."""
    compactor = StreamCompactor(stream)
    while compactor.step(node_max_bytes, node_max_entries):
        pass
    stream.check()
    return compactor


def filled(count: int, ids: Any = None, value: bytes = b"value %d") -> Stream:
    """Return a stream with two fields for each number."""
    stream = Stream()
    for number in range(1, count + 1) if ids is None else ids:
        stream.append([b"name", value % number, b"number", b"%d" % number], 0, 2, number, 0, 4096, 100)
    return stream


def buffers(stream: Stream) -> int:
    return sum(len(lp.buf) for _, lp in stream.rax.items())


@pytest.mark.slow
@pytest.mark.parametrize("keep", [2, 3, 10, 50])
def test_it_becomes_as_small_as_a_stream_without_the_entries(keep: int) -> None:
    stream, kept = filled(3000), range(keep, 3001, keep)
    for number in range(1, 3001):
        if number % keep:
            stream.delete(number, 0)
    before = buffers(stream)
    compactor = compacted(stream)
    never = filled(0, kept)
    assert buffers(stream) <= 1.05 * buffers(never)
    assert compactor.freed == before - buffers(stream)
    assert stream.node_count <= 1.05 * never.node_count + 1
    again = compacted(stream)
    assert (again.moved, again.freed) == (0, 0)


@pytest.mark.slow
def test_a_measurement_estimates_the_gain() -> None:
    stream = filled(5000)
    quiet = StreamCompactor(stream)
    while quiet.measure(7):
        pass
    assert (quiet.total, quiet.wasted, quiet.nodes) == (buffers(stream), 0, stream.node_count)
    for number in range(1, 5001):
        if number % 4:
            stream.delete(number, 0)
    measured = StreamCompactor(stream)
    while measured.measure(7):
        pass
    before = buffers(stream)
    assert 0.9 < measured.wasted / (before - buffers_after(stream)) < 1.1


def buffers_after(stream: Stream) -> int:
    compacted(stream)
    return buffers(stream)


def test_full_nodes_stay_as_they_are() -> None:
    stream = filled(2000)
    nodes = [(key, lp.to_bytes()) for key, lp in stream.rax.items()]
    assert compacted(stream).moved == 0
    assert [(key, lp.to_bytes()) for key, lp in stream.rax.items()] == nodes


def test_entries_with_other_names_keep_them() -> None:
    stream, rnd = Stream(), random.Random(3)
    entries = {}
    for number in range(1, 800):
        names = rnd.sample([b"a", b"b", b"long name " * 8, b"12"], rnd.randint(1, 3))
        words = [word for name in names for word in (name, rnd.choice([b"", b"-7", b"text " * 20]))]
        stream.append(words, 0, len(names), number, 0, 500, 20)
        entries[number] = words
    for number in range(1, 800):
        if rnd.random() < 0.7:
            stream.delete(number, 0)
            del entries[number]
    assert compacted(stream, 500, 20).moved > 0
    from rillet.types.stream.stream import StreamIterator

    reader, found = StreamIterator(stream, 0, 0, 2**64 - 1, 2**64 - 1, False), {}
    while reader.next_entry():
        found[reader.ms] = reader.fields()
    assert found == entries


def test_a_node_above_the_limit_stays() -> None:
    stream = Stream()
    for number in range(1, 40):
        stream.append([b"f", b"x" * 20_000], 0, 1, number, 0, 0, 0)
    for number in range(1, 39):
        stream.delete(number, 0)
    before = buffers(stream)
    assert compacted(stream, 0, 0).moved == 0
    assert buffers(stream) == before
