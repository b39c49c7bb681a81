"""Segments of streams: the file, its damage, a power loss while it is written, and streams on top of it."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import BinaryIO
from zlib import crc32

import pytest

from rillet.errors import Corrupt, SegmentUnreadable
from rillet.persistence.disk import REAL, Disk
from rillet.persistence.rdb.plain_keys import key_of
from rillet.persistence.segments.compression import compressor, decompress
from rillet.persistence.segments.segment import (
    FOOTER,
    HEADER,
    PAGE,
    ROW,
    IndexCache,
    Sealed,
    Segment,
    SegmentWriter,
    read_segment,
)
from rillet.runtime.engine import Engine
from rillet.structs.listpack import Listpack
from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.nodes import NodeIterator, SealedNodes
from rillet.types.stream.stream import Stream
from rillet.types.string import String
from tests.persistence.simulated_disk import PowerLoss, SimulatedDisk
from tests.types.test_sealed_nodes import filled, ids, same

ROOMY = 1 << 30


def nodes_of(stream: Stream) -> list[tuple[bytes, Listpack]]:
    nodes = NodeIterator(stream)
    nodes.seek("^")
    found = []
    while nodes.next():
        found.append((nodes.key, nodes.node()))
    return found


Compress = Callable[[bytes], bytes]


def written(disk: Disk, path: Path, nodes: list[tuple[bytes, Listpack]], compress: Compress | None = None) -> Sealed:
    writer = SegmentWriter(disk, path, 1_700_000_000_000, compress)
    for key, node in nodes:
        assert writer.add(key, node)
    writer.close_data()
    writer.sync()
    return writer.finish()


Seal = Callable[..., Segment]


@pytest.fixture(params=["none", "zstd"])
def seal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Seal]:
    """A function that seals all nodes of a stream but the last one; the segments are closed at the end."""
    opened: list[Segment] = []
    compress = compressor() if request.param == "zstd" else None

    def seal(stream: Stream, cache: IndexCache | None = None) -> Segment:
        path = tmp_path / str(len(opened) + 1)
        sealed = written(REAL, path, nodes_of(stream)[:-1], compress)
        segment = Segment(REAL, path, sealed, cache or IndexCache(ROOMY))
        stream.seal(SealedNodes(segment, 0, segment.sealed.nodes, segment.sealed.entries))
        opened.append(segment)
        return segment

    yield seal
    for segment in opened:
        segment.close()


def test_a_segment_has_the_bytes_of_its_nodes(tmp_path: Path) -> None:
    stream = filled(50)
    stream.delete(7, 0)
    nodes = nodes_of(stream)
    sealed = written(REAL, tmp_path / "1", nodes)
    data = (tmp_path / "1").read_bytes()
    assert list(tmp_path.iterdir()) == [tmp_path / "1"]
    assert (sealed.nodes, sealed.entries, sealed.size) == (10, 49, len(data))
    at = HEADER.size
    for _, node in nodes:
        assert data[at : at + node.used] == node.to_bytes()
        at += node.used
    assert len(data) == at + 10 * ROW.size + FOOTER.size
    assert read_segment(REAL, tmp_path / "1") == sealed
    segment = Segment(REAL, tmp_path / "1", sealed, IndexCache(ROOMY))
    assert [segment.key(number) for number in range(10)] == [key for key, _ in nodes]
    assert [segment.living(number) for number in range(10)] == [5, 4] + [5] * 8
    assert segment.living_of(1, 3) == 14
    assert [segment.node(number).to_bytes() for number in range(10)] == [node.to_bytes() for _, node in nodes]
    assert segment.find(nodes[3][0]) == 3
    assert segment.find(b"\0" * 16) == -1
    assert segment.find(b"\xff" * 16) == 9
    segment.close()


def texts(entries: int) -> Stream:
    """Return a stream of which some nodes can be compressed, and others not."""
    stream, chance = Stream(), Random(entries)
    for ms in range(1, entries + 1):
        text = chance.randbytes(5000) if ms % 50 == 0 else b"a word, " * 5
        stream.append([b"text", text], 0, 1, ms, 0, 4096, 100)
    return stream


def test_nodes_are_compressed_if_that_makes_them_smaller(tmp_path: Path) -> None:
    nodes = nodes_of(texts(3000))
    plain, small = written(REAL, tmp_path / "plain", nodes), written(REAL, tmp_path / "small", nodes, compressor())
    assert small.size - 60 * 5000 < (plain.size - 60 * 5000) * 0.6
    assert (small.nodes, small.entries) == (plain.nodes, plain.entries)
    segment = Segment(REAL, tmp_path / "small", small, IndexCache(ROOMY))
    assert {segment.size(number) < nodes[number][1].used for number in range(small.nodes)} == {False, True}
    assert [segment.node(number).to_bytes() for number in range(small.nodes)] == [node.to_bytes() for _, node in nodes]
    assert all(segment.matches(number, node) for number, (_, node) in enumerate(nodes))
    assert not segment.matches(0, nodes[1][1])
    found = [(key, bytes(data[at : at + size])) for data, places in segment.blocks(3, 20) for key, at, size in places]
    assert found == [(key, node.to_bytes()) for key, node in nodes[3:23]]
    segment.close()


def test_a_compressed_node_needs_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = written(REAL, tmp_path / "1", nodes_of(texts(300)), compressor())
    monkeypatch.setitem(sys.modules, "zstandard", None)
    segment = Segment(REAL, tmp_path / "1", sealed, IndexCache(ROOMY))
    with pytest.raises(SegmentUnreadable, match=r"/1: zstd is missing: pip install 'rillet\[zstd\]'"):
        segment.node(0)
    segment.close()


def test_segments_of_version_1_are_read(tmp_path: Path) -> None:
    """Their rows end before the last field, which is for compressed nodes."""
    nodes = nodes_of(filled(300))
    written(REAL, tmp_path / "2", nodes)
    data = (tmp_path / "2").read_bytes()
    index_at = int.from_bytes(data[-FOOTER.size + 24 :][:8], "little")
    rows = data[index_at : -FOOTER.size]
    index = b"".join(rows[at : at + ROW.size - 4] for at in range(0, len(rows), ROW.size))
    footer = bytearray(data[-FOOTER.size :])
    footer[40:44] = crc32(index).to_bytes(4, "little")
    footer[-4:] = crc32(footer[:-4]).to_bytes(4, "little")
    (tmp_path / "1").write_bytes(data[:8] + b"\1" + data[9:index_at] + index + footer)
    segment = Segment(REAL, tmp_path / "1", read_segment(REAL, tmp_path / "1"), IndexCache(ROOMY))
    assert [segment.node(number).to_bytes() for number in range(len(nodes))] == [node.to_bytes() for _, node in nodes]
    assert [segment.find(key) for key, _ in nodes] == list(range(len(nodes)))
    assert segment.matches(7, nodes[7][1])
    found = [bytes(data[at : at + size]) for data, places in segment.blocks(0, 60) for _, at, size in places]
    assert found == [node.to_bytes() for _, node in nodes]
    segment.close()


def test_nodes_that_break_the_order_stay_in_memory(tmp_path: Path) -> None:
    stream = filled(20)
    (first, one), (second, two), (third, tombs), _ = nodes_of(stream)
    writer = SegmentWriter(REAL, tmp_path / "1", 0)
    assert writer.add(second, two)
    assert not writer.add(second, two)
    assert not writer.add(first, one)
    for number in range(11, 15):
        stream.delete(number, 0)
    assert writer.add(third, tombs)  # it has one entry
    stream.trim_minid(16, 0, False, 0)
    assert len(writer) == 2
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_blocks_have_the_nodes_with_few_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = nodes_of(filled(60))[:-1]
    path = tmp_path / "1"
    segment = Segment(REAL, path, written(REAL, path, nodes), IndexCache(ROOMY))
    for size in (1, 300, 1 << 20):
        monkeypatch.setattr("rillet.persistence.segments.segment._READ", size)
        for first, count in ((0, len(nodes)), (3, 5), (len(nodes) - 1, 9), (2, 0)):
            found: list[tuple[bytes, bytes]] = []
            blocks = 0
            for data, places in segment.blocks(first, count):
                found += [(key, bytes(data[at : at + length])) for key, at, length in places]
                blocks += 1
            assert found == [(key, node.to_bytes()) for key, node in nodes[first : first + count]]
            assert blocks == {1: len(found), 1 << 20: min(len(found), 1)}.get(size, blocks)
    damaged = bytearray(path.read_bytes())
    damaged[-ROW.size * len(nodes) - FOOTER.size - 10] ^= 1  # in the last node
    path.write_bytes(damaged)
    monkeypatch.setattr("rillet.persistence.segments.segment._READ", 1)
    sound = segment.blocks(0, len(nodes))
    for _ in nodes[:-1]:
        next(sound)
    with pytest.raises(SegmentUnreadable, match="is damaged"):
        next(sound)
    segment.close()


def test_streams_read_from_their_segments(seal: Seal) -> None:
    stream, plain = filled(1000), filled(1000)
    segment = seal(stream)
    same(stream, plain)
    for one in (stream, plain):
        for number in (1, 2, 3, 4, 5, 77, 500, 996):
            assert one.delete(number, 0)
        assert one.trim_maxlen(800, False, 0) == 192
    same(stream, plain)
    assert segment.path.exists()


def test_pages_of_indexes_are_dropped_when_the_room_is_needed_and_read_again(seal: Seal) -> None:
    cache = IndexCache(250 * ROW.size)
    streams = [filled(1000) for _ in range(4)]
    segments = [seal(stream, cache) for stream in streams]
    chance = random.Random(1)
    for _ in range(50):
        number = chance.randrange(4)
        at = chance.randint(1, 1000)
        assert ids(streams[number], at, at)[0][0] == at
        assert cache.size <= cache.limit
    assert cache.hits > cache.misses > 4
    for segment in segments:
        segment.close()
    assert cache.size == 0
    assert ids(streams[2], 5, 5)[0][0] == 5


class CountingDisk(Disk):
    """A disk that counts the bytes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def read_at(self, file: BinaryIO, offset: int, size: int) -> bytes:
        self.read += size
        return super().read_at(file, offset, size)


def test_a_node_of_any_segment_costs_a_page_of_its_index(tmp_path: Path) -> None:
    disk, cache, count = CountingDisk(), IndexCache(2 * PAGE * ROW.size), 80
    stream = filled(1000)
    nodes = nodes_of(stream)[:-1]
    segments = [Segment(disk, tmp_path / f"{n}", written(REAL, tmp_path / f"{n}", nodes), cache) for n in range(count)]
    keys = [key for key, _ in nodes]
    for segment in segments:  # each index is read and checked once
        assert [segment.key(number) for number in range(len(keys))] == keys
    before, disk.read = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0, 0
    chance = random.Random(1)
    for _ in range(100):
        number = chance.randrange(len(keys))
        segment = chance.choice(segments)
        assert segment.find(keys[number]) == number
        assert segment.find(keys[number] + b"\0") == number
        assert segment.node(number).to_bytes() == nodes[number][1].to_bytes()
    largest = max(node.used for _, node in nodes)
    assert disk.read <= 100 * (PAGE * ROW.size + largest)
    assert segments[0].find(b"") == -1
    assert before <= 64 + 60  # files are closed, too
    assert cache.size <= cache.limit
    # A page that has changed since is found out.
    path = segments[3].path
    segments[3].find(keys[100])
    data = bytearray(path.read_bytes())
    data[len(data) - FOOTER.size - 8] ^= 1
    path.write_bytes(data)
    assert segments[3].key(0) == keys[0]
    with pytest.raises(SegmentUnreadable, match="the index of the segment is damaged"):
        segments[3].key(len(keys) - 1)
    for segment in segments:
        segment.close()


@pytest.mark.parametrize("part", ["node", "index", "footer", "missing", "short"])
def test_damage_makes_only_its_part_unreadable(part: str, seal: Seal) -> None:
    stream = filled(100)
    segment = seal(stream)
    segment.close()  # else the index is in memory
    path = segment.path
    data = bytearray(path.read_bytes())
    at = {"node": HEADER.size + 10, "index": len(data) - FOOTER.size - 30, "footer": len(data) - 8}.get(part, 0)
    data[at] ^= 1
    if part == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if part == "short" else data)
    with pytest.raises(SegmentUnreadable, match=r"/1: ") as raised:
        ids(stream, 1, 5)
    if part == "node":
        assert "the node with the entries 1-0 to 5-0 is damaged" in str(raised.value)
        assert [ms for ms, _ in ids(stream, 6)] == list(range(6, 101))
    assert [ms for ms, _ in ids(stream, 96)] == list(range(96, 101))
    assert segment.sealed.nodes == 19


def spoiled(good: bytes, kind: str, chance: Random) -> bytes:
    """Return hostile bytes: random ones, changed ones, or changed ones whose checksums are right again."""
    if kind == "random":
        data = bytearray(chance.randbytes(chance.choice([0, 1, 79, 80, 144, 300, len(good)])))
        data[: chance.choice([0, 8, 16])] = good[: chance.choice([0, 8, 16])]
        return bytes(data)
    data = bytearray(good)
    for _ in range(chance.choice([1, 1, 2, 8])):
        data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0xFF, chance.randrange(256)])
    if kind == "changed":
        if chance.random() < 0.2:
            del data[chance.randrange(len(data)) :]
        return bytes(data)
    index_at = len(data) - FOOTER.size - ROW.size * int.from_bytes(good[-FOOTER.size :][:8], "little")
    for at in range(index_at, len(data) - FOOTER.size, ROW.size):
        row = list(ROW.unpack_from(data, at))
        stored = data[row[2] : row[2] + row[4]]
        with contextlib.suppress(Corrupt):
            row[7] = crc32(stored if row[4] == row[8] else decompress(bytes(stored), row[8]))
        ROW.pack_into(data, at, *row)
    data[-24:-20] = crc32(data[index_at : len(data) - FOOTER.size]).to_bytes(4, "little")
    data[-4:] = crc32(data[-FOOTER.size : -4]).to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize("kind", ["random", "changed", "sealed again"])
@pytest.mark.parametrize("rounds", [200, pytest.param(34_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("compress", [None, compressor()], ids=["none", "zstd"])
def test_hostile_bytes_raise_an_error(compress: Compress | None, rounds: int, kind: str, tmp_path: Path) -> None:
    """Whoever can change the file cannot make the process crash, hang, or return something without an error."""
    chance = Random(rounds)
    path = tmp_path / "1"
    stream = filled(60)
    sound = nodes_of(stream)[:-1]
    sealed = written(REAL, path, sound, compress)
    good = path.read_bytes()
    errors = 0
    for _ in range(rounds):
        data = spoiled(good, kind, chance)
        path.write_bytes(data)
        expected = sealed
        try:
            found = read_segment(REAL, path)
            expected = found if kind == "sealed again" and 0 < found.nodes <= 100 else sealed
        except Corrupt:
            errors += 1
        segment = Segment(REAL, path, expected, IndexCache(ROOMY))
        try:
            nodes = [segment.node(number).to_bytes() for number in range(expected.nodes)]
        except (SegmentUnreadable, Corrupt):
            errors += 1
        else:
            if kind != "sealed again":
                assert nodes == [node.to_bytes() for _, node in sound]
        cold = filled(60)
        try:
            first = segment.key(0)
            cold.trim_minid(61, 0, False, 0)
            cold.add_sealed(first, SealedNodes(segment, 0, expected.nodes, max(expected.entries, 0)))
            for reverse in (False, True):
                entries = StreamIterator(cold, 0, 0, (1 << 64) - 1, (1 << 64) - 1, reverse)
                for _ in range(1000):
                    if not entries.next_entry():
                        break
                    entries.fields()
        except (SegmentUnreadable, Corrupt, IndexError, ValueError, OverflowError, MemoryError):
            errors += 1
        segment.close()
    assert errors > rounds // 3


def test_the_key_of_a_stream_is_found_among_many() -> None:
    database = Engine().databases[0]
    streams = {b"stream:%d" % number: filled(1) for number in range(0, 9000, 7)}
    for number in range(9000):
        key = b"stream:%d" % number
        database.put(key, streams[key] if key in streams else String(b"x"))
    assert all(key_of(database.keys, stream) == key for key, stream in list(streams.items())[::100])
    assert key_of(database.keys, next(reversed(streams.values()))) == b"stream:8995"
    assert key_of(database.keys, Stream()) is None


def test_after_a_power_loss_a_segment_with_its_name_is_complete() -> None:
    disk = SimulatedDisk(folders=["/", "/d"])
    path = Path("/d/1")
    nodes = nodes_of(filled(400))
    sealed = written(disk, path, nodes)
    disk.note("sealed")
    power = PowerLoss(disk.journal, None, ["/", "/d"])
    done = False
    while power.at < len(power.journal):
        done = done or power.step().kind == "note"
        for seed in range(20):
            image = power.image(Random(seed))
            if str(path) not in image.files():
                assert not done
                continue
            segment = Segment(image, path, sealed, IndexCache(ROOMY))
            assert [segment.node(number).to_bytes() for number in range(80)] == [node.to_bytes() for _, node in nodes]
            assert all(a < b for a, b in pairwise(segment.key(number) for number in range(80)))
    assert done
