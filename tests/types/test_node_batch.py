"""Nodes that two threads decompress: the results and the errors are those of one thread."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest

import rillet
from rillet.errors import Corrupt
from rillet.persistence.worker_thread import WorkerThread
from rillet.types.rdb.primitives import RdbReader, RdbWriter
from rillet.types.rdb.stream import load_stream, save_stream
from rillet.types.stream.stream import Stream
from tests.variants import long_interpreted, seeds

MANY = 6000 if rillet.compiled() else 2100
ROUNDS = 400 if rillet.compiled() else 100


def stream_of(nodes: int, seed: int, compressible: bool = True) -> bytes:
    """Return the RDB bytes of a stream of that many nodes, some with tombstones."""
    source, stream = random.Random(seed), Stream()
    for number in range(nodes * 4):
        value = b"abc" * source.randrange(1, 30) if compressible else source.randbytes(30)
        stream.append([b"field", value, b"n", b"%d" % number], 0, 2, 1000 + number, 0, 4096, 4)
    for number in source.sample(range(nodes * 4), nodes // 2):
        stream.delete(1000 + number, 0)
    out = RdbWriter()
    save_stream(out, stream, 19)
    return bytes(out.out)


def outcome(data: bytes, helper: WorkerThread | None) -> Any:
    """Return the RDB bytes of the loaded stream, or the error and its position."""
    reader = RdbReader.reading(io.BytesIO(data).readinto)
    reader.helper = helper
    try:
        stream = load_stream(reader, 19)
    except Corrupt as error:
        return str(error), reader.mark
    except (IndexError, OverflowError, MemoryError) as error:
        return type(error)
    out = RdbWriter()
    save_stream(out, stream, 19)
    return bytes(out.out), reader.position, reader.checksum_so_far()


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [
    1, 15, 16, 17, 100, 1025, *(pytest.param(nodes, marks=long_interpreted) for nodes in (1023, 1024, MANY)),
])  # fmt: skip
@pytest.mark.parametrize("compressible", [True, False])
def test_two_threads_load_the_same_stream_as_one(nodes: int, compressible: bool) -> None:
    data = stream_of(nodes, nodes, compressible)
    helper = WorkerThread()
    try:
        alone = outcome(data, None)
        assert outcome(data, helper) == alone
        assert alone[0] == data
    finally:
        helper.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 4))
def test_two_threads_reject_damage_like_one(seed: int) -> None:
    source, data = random.Random(seed), stream_of(60, seed, seed % 2 == 0)
    helper = WorkerThread()
    refused = 0
    try:
        for _ in range(ROUNDS):
            damaged = bytearray(data)
            for _ in range(source.choice((1, 1, 3))):
                damaged[source.randrange(len(data))] = source.choice((0, 16, 0x7F, 0xC3, 0xFF, source.randrange(256)))
            cut = bytes(damaged[: source.choice((len(data), len(data), source.randrange(len(data))))])
            with_help, alone = outcome(cut, helper), outcome(cut, None)
            refused += isinstance(alone[0], str) if isinstance(alone, tuple) else 1
            if isinstance(alone, tuple) and isinstance(alone[0], bytes):
                assert with_help == alone
            else:
                assert isinstance(with_help, type) or isinstance(with_help[0], str)
    finally:
        helper.close()
    assert refused > ROUNDS // 4


def test_nodes_out_of_order_are_sorted() -> None:
    """No server writes such a payload: the nodes are in random order."""
    data = stream_of(64, 1)
    reader = RdbReader(data)
    pairs = [(reader.raw(0), reader.string(), reader.string()) for _ in range(reader.length())]
    rest = data[reader.position :]
    random.Random(3).shuffle(pairs)
    out = RdbWriter()
    out.length(len(pairs))
    for _, key, node in pairs:
        out.string(key)
        out.string(node)
    helper = WorkerThread()
    try:
        assert outcome(bytes(out.out) + rest, helper)[0] == data == outcome(bytes(out.out) + rest, None)[0]
    finally:
        helper.close()
