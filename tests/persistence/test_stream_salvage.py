"""Salvage of a damaged stream: its sound nodes and groups are saved, the result is consistent, the report is exact.

The law of each round with a damaged byte: every node, group and producer whose bytes are sound is saved unchanged, no
entry is invented, nothing disappears without a line in the report, and the result passes check() and can be loaded.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rillet.keyspace.clock import ManualClock
from rillet.persistence.rdb.records import RdbRecords
from rillet.persistence.rdb.salvage import Salvaged, salvage_rdb
from rillet.persistence.rdb.stream_salvage import SALVAGED
from rillet.persistence.rdb.writer import write_rdb
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.types.rdb import value as rdb
from rillet.types.rdb.primitives import RdbReader
from rillet.types.stream.stream import Stream, StreamIterator
from tests.judge import redis_binary, running_redis
from tests.persistence.rdb_files import file, key, raw_id, size, text
from tests.variants import by_speed

STEP = by_speed(7, 17, 2)  # between two damaged bytes

START = 9 + len(key(0, b"stream", b""))  # the offset of the stream in the files of `saved`
NODE = b"\x10" + bytes(16)


def commands(*lines: str, compat: str = "7.0") -> Engine:
    """Return an engine after commands, with nodes of three entries."""
    engine = Engine(Settings(stream_node_max_entries=3, compat=compat), ManualClock(1_700_000_000_000))
    session = engine.session()
    for line in lines:
        engine.execute(session, line.encode().split())
        reply = session.out.take_bytes()
        assert not reply.startswith(b"-"), (line, reply)
    return engine


ENTRIES = tuple(f"XADD stream {number}-1 name value-{number} n {number}" for number in range(1, 16))
GROUPS = (
    "XGROUP CREATE stream first 0", "XREADGROUP GROUP first a COUNT 4 STREAMS stream >",
    "XREADGROUP GROUP first b COUNT 3 STREAMS stream >", "XACK stream first 2-1",
    "XGROUP CREATE stream second $", "XGROUP CREATE stream third 5-1",
    "XREADGROUP GROUP third c COUNT 2 STREAMS stream >", "XGROUP CREATECONSUMER stream third idle",
)  # fmt: skip


def sample(*more: str, compat: str = "7.0") -> Stream:
    """Return a stream with five nodes and three groups."""
    stream = commands(*ENTRIES, *GROUPS, *more, compat=compat).databases[0].lookup(b"stream")
    assert isinstance(stream, Stream)
    return stream


def payload(stream: Stream) -> tuple[int, bytes]:
    """Return the RDB type and the bytes of a stream, without compression, so that a changed byte stays in its place."""
    dumped = rdb.dump(stream, compression=False)
    return dumped[0], dumped[1:-10]


def saved(kind: int, data: bytes, tmp_path: Path) -> tuple[Stream | None, Salvaged]:
    """Salvage a file with one stream and a string after it; return the stream."""
    path = tmp_path / "x.rdb"
    contents = file(14, key(kind, b"stream", data), key(0, b"after", text(b"it")), key(0, b"last", text(b"one")))
    contents = contents[:-1] + bytes((contents[-1] ^ 1,))  # a damaged file has a wrong checksum
    path.write_bytes(contents)
    engine, report = Engine(Settings()), Salvaged()
    salvage_rdb(path, contents, engine, report)
    engine.check()
    assert {b"after", b"last"} <= set(engine.databases[0].keys)
    stream = engine.databases[0].lookup(b"stream")
    assert stream is None or isinstance(stream, Stream)
    return stream, report


def entries(stream: Stream) -> dict[tuple[int, int], list[bytes]]:
    """Return the fields of each entry."""
    it, found = StreamIterator(stream, 0, 0, 2**64 - 1, 2**64 - 1, False), {}
    while it.next_entry():
        found[it.ms, it.seq] = it.fields()
    return found


def groups(stream: Stream) -> dict[bytes, object]:
    """Return the state of each group."""
    return {name: (group.last_ms, group.last_seq, group.entries_read, group.pending(), {
        consumer.name: (consumer.seen_time, consumer.active_time) for consumer in group.consumers.values()})
        for name, group in stream.groups.items()}  # fmt: skip


def loads(stream: Stream) -> bool:
    """Return whether the saved stream can be loaded from its DUMP payload, unchanged."""
    again = rdb.restore(rdb.dump(stream))
    assert isinstance(again, Stream)
    again.check()
    return entries(again) == entries(stream) and groups(again) == groups(stream)


def what(report: Salvaged) -> list[str]:
    return [loss.what for loss in report.losses]


# -- nodes ---------------------------------------------------------------------------------------------


def node_places(data: bytes) -> list[tuple[int, int]]:
    """Return the places of the nodes in the bytes of a stream."""
    places, at = [], 1
    for _ in range(data[0]):
        assert data[at] == 16
        long = data[at + 17] >= 64
        length = (data[at + 17] & 63) << 8 | data[at + 18] if long else data[at + 17]
        end = at + 17 + (2 if long else 1) + length
        places.append((at, end))
        at = end
    return places


@pytest.mark.parametrize("number", range(5))
def test_a_damaged_node_is_lost_alone(tmp_path: Path, number: int) -> None:
    whole = sample()
    kind, data = payload(whole)
    start, end = node_places(data)[number]
    broken = data[: end - 1] + b"\xfe" + data[end:]  # the listpack's end
    stream, report = saved(kind, broken, tmp_path)
    assert stream is not None
    lost = {(3 * number + 1 + at, 1) for at in range(3)}
    assert entries(stream) == {one: fields for one, fields in entries(whole).items() if one not in lost}
    assert groups(stream) == groups(whole)  # pending entries of lost entries stay, as those of deleted ones in Redis
    expected = [
        "a node of a stream: its entries before 4-1", "a node of a stream: its entries after 3-1 and before 7-1",
        "a node of a stream: its entries after 6-1 and before 10-1",
        "a node of a stream: its entries after 9-1 and before 13-1", "a node of a stream: its entries after 12-1",
    ]  # fmt: skip
    [loss] = report.losses
    assert (loss.what, loss.start, loss.end) == (expected[number], START + start, START + end)
    assert loss.keys == ((0, b"stream"),)
    assert (stream.length, stream.entries_added, stream.last_ms, stream.last_seq) == (12, 15, 15, 1)
    assert (stream.first_ms, stream.first_seq) == ((4, 1) if number == 0 else (1, 1))
    deleted = [(4, 0), (7, 0), (10, 0), (13, 0), (15, 1)]
    assert (stream.max_deleted_ms, stream.max_deleted_seq) == (deleted[number][0], deleted[number][1])
    assert loads(stream)


def test_neighbours_are_listed_together(tmp_path: Path) -> None:
    kind, data = payload(sample())
    for start, end in node_places(data)[1:3]:
        data = data[: start + 25] + b"\xff" + data[start + 26 : end] + data[end:]
    stream, report = saved(kind, data, tmp_path)
    assert stream is not None
    assert sorted(entries(stream)) == [(1, 1), (2, 1), (3, 1), *((number, 1) for number in range(10, 16))]
    assert what(report) == ["2 nodes of a stream: its entries after 3-1 and before 10-1"]


def test_each_byte_of_a_node(tmp_path: Path) -> None:
    """A damaged node is lost alone, or its change is of a kind that nothing can detect (a value, an ID in order)."""
    whole = sample()
    kind, data = payload(whole)
    begin, end = node_places(data)[2]
    inside = {(7, 1), (8, 1), (9, 1)}
    outside = {one: fields for one, fields in entries(whole).items() if one not in inside}
    alone = 0
    for at in range(begin + 1, end, STEP):
        for change in (0x01, 0x80, 0xFF):
            stream, report = saved(kind, data[:at] + bytes((data[at] ^ change,)) + data[at + 1 :], tmp_path)
            if stream is None:  # the length of the node: no record can be read
                assert at in (begin + 17, begin + 18), at
                continue
            stream.check()
            assert loads(stream)
            found = entries(stream)
            kept = [one for one, fields in outside.items() if found.get(one) == fields]
            assert len(kept) >= 9, at  # two nodes that contradict each other: one of them is lost
            assert len(found) <= 15
            assert groups(stream) == groups(whole)
            assert report.losses  # at least: the checksum of the file is wrong
            if set(found) == set(outside):
                alone += 1
                assert what(report) == ["a node of a stream: its entries after 6-1 and before 10-1"]
    assert alone > (end - begin) // STEP


@pytest.mark.parametrize(("number", "damaged", "survivors"), [
    (1, raw_id(2**40, 1), 12), (1, raw_id(0, 7), 12), (0, raw_id(8, 0), 12), (4, raw_id(8, 0), 12),
])  # fmt: skip
def test_a_node_whose_id_is_damaged(tmp_path: Path, number: int, damaged: bytes, survivors: int) -> None:
    """Its entries seem to be elsewhere: the nodes that agree with each other are saved."""
    whole = sample()
    kind, data = payload(whole)
    start, _ = node_places(data)[number]
    stream, report = saved(kind, data[: start + 1] + damaged + data[start + 17 :], tmp_path)
    assert stream is not None
    assert len(entries(stream)) == survivors
    assert entries(stream).items() <= entries(whole).items()
    assert len(report.losses) == 1
    assert loads(stream)


def test_a_compressed_node(tmp_path: Path) -> None:
    """An LZF block that cannot be decompressed is a damaged node."""
    engine = commands(*(f"XADD stream {number}-1 name {'x' * 200}" for number in range(1, 10)))
    whole = engine.databases[0].lookup(b"stream")
    assert isinstance(whole, Stream)
    dumped = rdb.dump(whole)
    at = dumped.index(raw_id(4, 1)) + 16
    assert dumped[at] == 0xC3
    broken = dumped[: at + 8] + b"\xff\xff\xff" + dumped[at + 11 :]
    stream, report = saved(dumped[0], broken[1:-10], tmp_path)
    assert stream is not None
    assert sorted(entries(stream)) == [(number, 1) for number in (1, 2, 3, 7, 8, 9)]
    assert what(report) == ["a node of a stream: its entries after 3-1 and before 7-1"]


def test_all_nodes_are_lost(tmp_path: Path) -> None:
    """The groups and the last ID are saved; without groups, nothing is sound."""
    whole = sample()
    for stream_of, expected in ((whole, True), (commands(*ENTRIES).databases[0].lookup(b"stream"), False)):
        kind, data = payload(stream_of)  # type: ignore[arg-type]
        for start, _ in node_places(data):
            data = data[: start + 25] + b"\xff" + data[start + 26 :]
        stream, report = saved(kind, data, tmp_path)
        assert (stream is not None) == expected
        if stream is not None:
            assert (stream.length, stream.last_ms, stream.entries_added, stream.max_deleted_ms) == (0, 15, 15, 15)
            assert groups(stream) == groups(whole)
            assert what(report) == ["5 nodes of a stream: its entries"]
            assert loads(stream)
        else:
            assert what(report) == ["an invalid node, or a node with wrong counts, in a stream"]


# -- counters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "value", "text"), [
    (0, 9, "its length 9 is now 15"), (0, 20, "its length 20 is now 15"),
    (1, 14, "its last ID 14-1 is now 15-1"),
    (7, 3, "its number of entries ever added 3 is now 15"),
])  # fmt: skip
def test_damaged_counters(tmp_path: Path, offset: int, value: int, text: str) -> None:
    whole = sample()
    kind, data = payload(whole)
    at = node_places(data)[-1][1] + offset
    stream, report = saved(kind, data[:at] + bytes((value,)) + data[at + 1 :], tmp_path)
    assert stream is not None
    assert entries(stream) == entries(whole)
    assert (stream.length, stream.entries_added, stream.last_ms, stream.last_seq) == (15, 15, 15, 1)
    assert what(report) == [f"counters of a stream: {text}"]
    assert loads(stream)


# -- groups --------------------------------------------------------------------------------------------

PENDING = {(one, 1): (b"a" if one < 5 else b"b") for one in (1, 3, 4, 5, 6, 7)}  # of the group `first`


def owners(stream: Stream, name: bytes = b"first") -> dict[tuple[int, int], bytes]:
    return {one["id"]: one["consumer"] for one in stream.groups[name].pending()}


def test_a_pending_entry_that_the_group_lost(tmp_path: Path) -> None:
    """It stays with its consumer, as delivered once, a long time ago."""
    whole = sample()
    kind, data = payload(whole)
    at = data.index(raw_id(3, 1), data.index(b"\x05first"))
    stream, report = saved(kind, data[:at] + raw_id(99, 1) + data[at + 16 :], tmp_path)
    assert stream is not None
    assert owners(stream) == PENDING
    assert {one["id"]: (one["time"], one["count"]) for one in stream.groups[b"first"].pending()}[3, 1] == (0, 1)
    assert what(report) == ["the consumer group 'first': 1 pending entry (99-1) lost"]
    assert {name: groups(stream)[name] for name in (b"second", b"third")} == {
        name: groups(whole)[name] for name in (b"second", b"third")
    }
    assert loads(stream)


def test_a_pending_entry_that_the_consumer_lost(tmp_path: Path) -> None:
    """An entry whose consumer is unknown goes to the consumer `salvaged`, from which others can claim it."""
    whole = sample()
    kind, data = payload(whole)
    at = data.rindex(raw_id(3, 1), 0, data.index(b"\x05third"))
    stream, report = saved(kind, data[:at] + raw_id(99, 1) + data[at + 16 :], tmp_path)
    assert stream is not None
    assert owners(stream) == {**PENDING, (3, 1): SALVAGED}
    assert what(report) == [
        "the consumer group 'first': 1 pending entry (3-1) without a consumer: now pending with the consumer 'salvaged'"
        "; 1 pending entry (99-1) lost"
    ]
    assert loads(stream)


def test_each_byte_of_the_groups(tmp_path: Path) -> None:
    """No damage concerns another group than its own, and no pending entry of an existing entry disappears."""
    whole = sample()
    kind, data = payload(whole)
    begin = data.index(b"\x05first")
    places = [(name, data.index(bytes((len(name),)) + name, begin)) for name in (b"first", b"second", b"third")]
    places.append((b"", len(data)))
    saved_rounds = 0
    for (name, start), (_, end) in zip(places, places[1:], strict=False):
        others = {other: state for other, state in groups(whole).items() if other != name}
        for at in range(start, end, STEP):
            for change in (0x01, 0x80):
                stream, report = saved(kind, data[:at] + bytes((data[at] ^ change,)) + data[at + 1 :], tmp_path)
                if stream is None or "no record can be read" in what(report):  # a length or a count
                    continue
                saved_rounds += 1
                assert entries(stream) == entries(whole)
                assert loads(stream)
                assert {name: state for name, state in groups(stream).items() if name in others} == others, at
                assert report.losses
                if name in stream.groups:
                    kept = {one["id"] for one in stream.groups[name].pending()}
                    assert {one["id"] for one in whole.groups[name].pending()} <= kept, at
    assert saved_rounds > 3 * (len(data) - begin) // STEP // 2


def test_a_group_with_the_name_of_another(tmp_path: Path) -> None:
    whole = sample()
    kind, data = payload(whole)
    stream, report = saved(kind, data.replace(b"\x05third", b"\x05first"), tmp_path)
    assert stream is not None
    assert groups(stream) == {name: state for name, state in groups(whole).items() if name != b"third"}
    assert what(report) == [
        "a consumer group whose name is that of another group, with the last delivered ID 7-1 and 2 pending entries"
    ]


def test_released_entries(tmp_path: Path) -> None:
    """An entry that XNACK released has no consumer, and its ID is in a third list."""
    whole = sample("XNACK stream first FAIL IDS 2 3-1 4-1", compat="newest")
    kind, data = payload(whole)
    assert kind == 27
    at = data.rindex(raw_id(4, 1))
    stream, report = saved(kind, data[:at] + raw_id(99, 1) + data[at + 16 :], tmp_path)
    assert stream is not None
    assert owners(stream) == {**PENDING, (3, 1): b"", (4, 1): SALVAGED}
    assert len(report.losses) == 1
    assert loads(stream)


# -- producers and old types ---------------------------------------------------------------------------


def test_producers_forget_lost_entries(tmp_path: Path) -> None:
    """A producer that sends a lost message again adds it again."""
    ids = [f"{1_700_000_000_000 + number}-1" for number in range(1, 10)]
    lines = [f"XADD stream {one} name value" for one in ids]
    lines += [f"XIDMPRECORD stream producer i{number} {one}" for number, one in enumerate(ids, 1)]
    whole = commands(*lines, compat="newest").databases[0].lookup(b"stream")
    assert isinstance(whole, Stream)
    kind, data = payload(whole)
    start, _ = node_places(data)[1]
    stream, _ = saved(kind, data[: start + 25] + b"\xff" + data[start + 26 :], tmp_path)
    assert stream is not None
    assert stream.idmp is not None
    assert list(stream.idmp.producers[b"producer"].ids) == [b"i%d" % number for number in (1, 2, 3, 7, 8, 9)]
    at = data.rindex(b"\x08producer")
    stream, report = saved(kind, data[: at - 2] + b"\x00" + data[at - 1 :], tmp_path)
    assert stream is not None
    assert (entries(stream), stream.idmp) == (entries(whole), None)
    assert what(report) == ["the idempotent producers of a stream: a limit of idempotent producers is out of range"]


def test_a_stream_of_redis_5(tmp_path: Path) -> None:
    whole = sample()
    _, data = payload(whole)
    nodes = node_places(data)
    cut = nodes[-1][1]
    tail = size(15) + size(15) + size(1) + size(1) + text(b"g") + size(3) + size(1) + size(0)
    tail += size(1) + text(b"c") + struct.pack("<q", 5) + size(0)
    broken = data[: nodes[0][0] + 25] + b"\xff" + data[nodes[0][0] + 26 : cut]
    stream, report = saved(15, broken + tail, tmp_path)
    assert stream is not None
    assert (stream.length, stream.entries_added, stream.max_deleted_ms) == (12, 15, 4)
    assert what(report) == ["a node of a stream: its entries before 4-1"]
    assert set(stream.groups) == {b"g"}


# -- the whole way -------------------------------------------------------------------------------------


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
def test_redis_loads_what_was_saved(tmp_path: Path) -> None:
    """Redis has the saved entries, and treats the pending entries of lost ones as those of deleted ones."""
    whole = sample()
    whole.groups[b"third"].delete_consumer(b"idle")  # Redis 7.0 cannot load a consumer that was never active
    kind, data = payload(whole)
    start, _ = node_places(data)[1]
    broken = data[: start + 25] + b"\xff" + data[start + 26 :]
    at = broken.index(raw_id(3, 1), broken.index(b"\x05first"))
    contents = file(10, key(kind, b"stream", broken[:at] + raw_id(99, 1) + broken[at + 16 :]))
    engine = Engine(Settings())
    salvage_rdb(tmp_path / "x.rdb", contents, engine, Salvaged())
    (tmp_path / "redis").mkdir()
    write_rdb(tmp_path / "redis" / "dump.rdb", engine)
    with running_redis("--sanitize-dump-payload", "yes", folder=tmp_path / "redis") as server:
        client = server.client()
        assert client.execute_command("XLEN", "stream") == 12
        info = client.execute_command("XINFO", "STREAM", "stream")
        assert info[info.index(b"entries-added") + 1] == 15
        assert info[info.index(b"max-deleted-entry-id") + 1] == b"7-0"
        [first, *_] = client.execute_command("XINFO", "GROUPS", "stream")
        assert first[first.index(b"pending") + 1] == 6
        assert first[first.index(b"lag") + 1] == 8
        found = client.execute_command("XAUTOCLAIM", "stream", "first", "d", "0", "0")
        assert [one[0] for one in found[1]] == [b"1-1", b"3-1", b"7-1"]
        assert found[2] == [b"4-1", b"5-1", b"6-1"]
        assert client.execute_command("XADD", "stream", "16", "f", "v") == b"16-0"
        client.close()
        client.connection_pool.disconnect()


def test_the_scan_reads_the_sample(tmp_path: Path) -> None:
    """The sample's bytes are one record, so that the offsets above are right."""
    kind, data = payload(sample())
    contents = file(14, key(kind, b"stream", data))
    record = RdbRecords(RdbReader(contents, 9)).record()
    assert (record.value, record.end) == (START, len(contents) - 9)
