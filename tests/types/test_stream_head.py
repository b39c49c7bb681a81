"""The caches of the first and last node do not change the results of trims."""

from __future__ import annotations

import random

import pytest

from rillet.types.stream.stream import DELREF, KEEPREF, Stream
from tests.variants import seeds

NAMES = [b"a", b"temperature", b"17"]


def nodes(stream: Stream) -> list[tuple[bytes, bytes]]:
    """Return the key and bytes of every node."""
    return [(key, lp.to_bytes()) for key, lp in stream.rax.items()]


def facts(stream: Stream) -> tuple[object, ...]:
    """Return the counters of a stream."""
    return (stream.length, stream.first_ms, stream.first_seq, stream.last_ms, stream.last_seq, stream.entries_added,
            stream.max_deleted_ms, stream.max_deleted_seq, stream.stopped)  # fmt: skip


def forget(stream: Stream) -> None:
    """Clear the caches of the stream."""
    stream.tail = None
    stream.head = None


def act(chance: random.Random, streams: tuple[Stream, Stream], node_entries: int) -> list[object]:
    """Run the same operation on both streams and return both results."""
    kind = chance.random()
    ms, seq = streams[0].last_ms, streams[0].last_seq
    if kind < 0.55:
        step = chance.choice([0, 0, 1, 200])
        words = [chance.choice(NAMES), chance.choice([b"x", b"12345", b"y" * 70])] * chance.choice([1, 1, 2])
        count = chance.choice([1, 1, 1, 5, 140])
        for stream in streams:
            for number in range(count):
                after = (ms + step, 0) if step and number == 0 else (stream.last_ms, stream.last_seq + 1)
                assert stream.append(words, 0, len(words) // 2, *after, 4096, node_entries)
        return [0, 0]
    if kind < 0.65 and streams[0].length:
        entry = chance.randrange(streams[0].first_ms, ms + 1), chance.randrange(3)
        return [stream.delete(*entry) for stream in streams]
    limit = chance.choice([0, 0, 0, 3, 250])
    strategy = chance.choice([KEEPREF] * 9 + [DELREF])
    if kind < 0.9:
        maxlen = max(0, streams[0].length - chance.choice([0, 1, 1, 1, 2, 5, 130, 10_000]))
        approx = chance.random() < 0.3
        return [stream.trim_maxlen(maxlen, approx, limit if approx else 0, strategy) for stream in streams]
    if kind < 0.97:
        approx = chance.random() < 0.3
        below = chance.randrange(streams[0].first_ms, ms + 2)
        return [stream.trim_minid(below, seq, approx, limit if approx else 0, strategy) for stream in streams]
    if streams[0].length == 0:
        for stream in streams:  # XSETID sets the last ID back before tombstones and removed nodes
            stream.last_ms, stream.last_seq = ms // 2, 0
    return [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("node_entries", [1, 4, 100, 300])
@pytest.mark.parametrize("seed", seeds(1, 4))
def test_a_stream_with_caches_equals_one_without(seed: int, node_entries: int) -> None:
    chance = random.Random(f"{seed} {node_entries}")
    kept, forgetful = Stream(), Stream()
    for step in range(120):
        forget(forgetful)
        results = act(chance, (kept, forgetful), node_entries)
        assert results[0] == results[1]
        assert facts(kept) == facts(forgetful)
        assert nodes(kept) == nodes(forgetful)
        if step % 5 == 0:
            kept.check()


@pytest.mark.slow
def test_a_node_that_is_head_and_tail_keeps_its_caches_correct() -> None:
    """The count of the only node grows by a byte at 128, which moves the cached positions."""
    stream, plain = Stream(), Stream()
    for number in range(1, 400):
        for one in (stream, plain):
            assert one.append([b"f", b"%d" % number], 0, 1, number, 0, 0, 0)
        forget(plain)
        keep = 200 if number % 3 else 0
        if keep:
            assert stream.trim_maxlen(keep, False, 0) == plain.trim_maxlen(keep, False, 0)
        stream.check()
        assert nodes(stream) == nodes(plain)
        assert facts(stream) == facts(plain)
    assert stream.node_count == 1
