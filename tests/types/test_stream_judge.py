"""The same commands on a real server and on a Stream give the same replies, counters, tree and bytes of nodes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from rillet.errors import Corrupt
from rillet.structs.crc64 import crc64
from rillet.structs.listpack import Listpack
from rillet.types.stream.group import Group
from rillet.types.stream.id import IDReader, encode_key, format_id
from rillet.types.stream.node import validate_node
from rillet.types.stream.stream import Stream, StreamIterator
from tests.judge import Judge
from tests.types.stream_dump import STREAM_LISTPACKS_2, dump_of, parse_payload
from tests.variants import seeds

MAX = (1 << 64) - 1
KEY = b"judged"
LIMITS = ("stream-node-max-bytes", "stream-node-max-entries", "rdbcompression")


@pytest.fixture
def server(judge: Judge) -> Iterator[redis.Redis]:
    """The server, whose node limits are restored afterward."""
    with judge.client() as client:
        old = {name: client.execute_command("CONFIG", "GET", name)[1] for name in LIMITS}
        client.execute_command("CONFIG", "SET", "rdbcompression", "no")
        client.execute_command("DEL", KEY)
        try:
            yield client
        finally:
            client.execute_command("DEL", KEY)
            for name, value in old.items():
                client.execute_command("CONFIG", "SET", name, value)


class Twin:
    """A Stream and the server's stream, to which the same commands are applied."""

    def __init__(self, server: redis.Redis, max_bytes: int, max_entries: int) -> None:
        self.server = server
        self.stream = Stream()
        self.max_bytes = max_bytes
        self.max_entries = max_entries
        self.ids: list[tuple[int, int]] = []
        self.call("CONFIG", "SET", "stream-node-max-bytes", max_bytes)
        self.call("CONFIG", "SET", "stream-node-max-entries", max_entries)

    def call(self, *words: Any) -> Any:
        """Send a command to the server."""
        return self.server.execute_command(*words)

    def add(self, ms: int, seq: int, words: list[bytes]) -> None:
        """XADD with an explicit ID."""
        self.call("XADD", KEY, format_id(ms, seq), *words)
        assert self.stream.append(words, 0, len(words) // 2, ms, seq, self.max_bytes, self.max_entries)
        self.ids.append((ms, seq))

    def delete(self, ms: int, seq: int) -> None:
        """XDEL of one ID."""
        assert self.stream.delete(ms, seq) == self.call("XDEL", KEY, format_id(ms, seq))

    def trim(self, *options: Any, **ours: Any) -> None:
        """XTRIM."""
        trim = self.stream.trim_minid if "ms" in ours else self.stream.trim_maxlen
        assert trim(**ours) == self.call("XTRIM", KEY, *options)

    def range(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Assert that XRANGE and XREVRANGE give the same entries."""
        first, last = format_id(*start), format_id(*end)
        assert entries(self.stream, start, end, False) == self.call("XRANGE", KEY, first, last)
        assert entries(self.stream, start, end, True) == self.call("XREVRANGE", KEY, last, first)

    def compare(self) -> None:
        """Assert that DUMP and XINFO show the same."""
        self.stream.check()
        payload = self.call("DUMP", KEY)
        if payload is None:
            assert self.stream.length == 0
            assert not self.stream.groups
            return
        assert dump_of(self.stream) == parse_payload(payload)
        info = self.call("XINFO", "STREAM", KEY)
        about = dict(zip(info[::2], info[1::2], strict=True))
        assert self.stream.node_count == about[b"radix-tree-keys"]
        assert self.stream.rax.numnodes == about[b"radix-tree-nodes"]


def entries(stream: Stream, start: tuple[int, int], end: tuple[int, int], reverse: bool) -> list[list[Any]]:
    """Return a range in the form of a client's reply."""
    it = StreamIterator(stream, *start, *end, reverse)
    found = []
    while it.next_entry():
        found.append([format_id(it.ms, it.seq), it.fields()])
    return found


def some_words(rnd: random.Random) -> list[bytes]:
    """Return random names and values: mostly the same names, numbers of all sizes, strings of all lengths."""
    names = [b"carrier", b"origin", b"42", b"-7"][: rnd.randint(1, 4)]
    if rnd.random() < 0.2:
        names = [rnd.choice([b"", b"x" * rnd.choice([1, 63, 64, 200]), b"0", b"00"]) for _ in range(rnd.randint(1, 5))]
    words = []
    for name in names:
        number = b"%d" % (rnd.choice([1, -1]) * rnd.getrandbits(rnd.choice([1, 7, 8, 13, 16, 24, 32, 63, 64])))
        text = b"v" * rnd.choice([0, 12, 70, 130, 900])
        words += [name, rnd.choice([number, number, b"N14228", text, b"\xff\0\r\n"])]
    return words


def next_id(rnd: random.Random, last: tuple[int, int]) -> tuple[int, int]:
    """Return an ID after the last one, near or far."""
    ms, seq = last
    if rnd.random() < 0.3 and seq < MAX:
        return ms, min(MAX, seq + rnd.choice([1, 1, 5, 1 << 40, 1 << 63]))
    return min(MAX, ms + rnd.choice([1, 1, 20, 1000, 1 << 33])), rnd.choice([0, 0, 3, 1 << 62, MAX - 5])


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(4, 14))
def test_random_commands_give_the_same_bytes(server: redis.Redis, seed: int) -> None:
    rnd = random.Random(seed)
    twin = Twin(server, rnd.choice([0, 150, 512, 4096]), rnd.choice([0, 1, 3, 10, 100]))
    stream = twin.stream
    last = (rnd.choice([0, 1, 1_700_000_000_000]), rnd.choice([1, 1 << 63]))
    for step in range(260):
        what = rnd.random()
        if what < 0.7 or not twin.ids:
            last = next_id(rnd, last)
            twin.add(*last, some_words(rnd))
        elif what < 0.85:
            twin.delete(*rnd.choice(twin.ids))
        elif what < 0.9:
            maxlen = rnd.randrange(max(1, stream.length + 2))
            if rnd.random() < 0.5:
                twin.trim("MAXLEN", "=", maxlen, maxlen=maxlen, approx=False, limit=0)
            else:
                limit = rnd.choice([0, 5, 100])
                twin.trim("MAXLEN", "~", maxlen, "LIMIT", limit, maxlen=maxlen, approx=True, limit=limit)
        elif what < 0.93:
            ms, seq = rnd.choice(twin.ids[-80:])
            if rnd.random() < 0.5:
                twin.trim("MINID", "=", format_id(ms, seq), ms=ms, seq=seq, approx=False, limit=0)
            else:
                twin.trim("MINID", "~", format_id(ms, seq), "LIMIT", 0, ms=ms, seq=seq, approx=True, limit=0)
        else:
            twin.range(rnd.choice([(0, 0), rnd.choice(twin.ids)]), rnd.choice([(MAX, MAX), rnd.choice(twin.ids)]))
        if step % 13 == 0:
            twin.compare()
    twin.range((0, 0), (MAX, MAX))
    twin.compare()


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_the_counts_of_unlimited_nodes_reach_every_integer_size(server: redis.Redis, seed: int) -> None:
    rnd = random.Random(seed)
    twin = Twin(server, 0, 0)
    for i in range(1, 140):
        twin.add(i, 0, [b"f", b"%d" % i])
    for ms, seq in rnd.sample(twin.ids, 60):
        twin.delete(ms, seq)
    for i in range(140, 150):
        twin.add(i, 0, [b"f", b"%d" % i])
    twin.trim("MAXLEN", 20, maxlen=20, approx=False, limit=0)
    twin.compare()
    twin.range((0, 0), (MAX, MAX))


@pytest.mark.slow
def test_the_count_of_a_node_can_take_three_bytes(server: redis.Redis) -> None:
    twin = Twin(server, 0, 0)
    twin.add(1, 0, [b"f", b"v"])
    pipe = server.pipeline(transaction=False)
    for i in range(2, 4100):
        pipe.execute_command("XADD", KEY, b"%d-0" % i, b"f", b"v")
        twin.stream.append([b"f", b"v"], 0, 1, i, 0, 0, 0)
    pipe.execute()
    twin.compare()
    twin.delete(5, 0)
    twin.add(5000, 0, [b"f", b"v"])
    twin.compare()


def read_group(stream: Stream, group: Group, consumer: bytes, count: int) -> int:
    """Do what XREADGROUP with `>` does, and create the consumer only if there is a new entry."""
    it = StreamIterator(stream, group.last_ms, group.last_seq + 1, MAX, MAX, False)
    given = 0
    while given < count and it.next_entry():
        stream.advance_group(group, it.ms, it.seq)
        reader = group.find_consumer(consumer) or group.create_consumer(consumer, 0)
        group.deliver(it.ms, it.seq, reader, 0)
        given += 1
    return given


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(3, 10))
def test_groups_have_the_same_counters_and_pending_entries(server: redis.Redis, seed: int) -> None:
    rnd = random.Random(seed)
    twin = Twin(server, 4096, rnd.choice([2, 5, 100]))
    stream = twin.stream
    twin.add(1, 1, [b"f", b"v"])
    names = [b"g", b"h"]
    for name in names:
        start = rnd.choice([(0, 0), (1, 1)])
        twin.call("XGROUP", "CREATE", KEY, name, format_id(*start))
        assert stream.create_group(name, *start, -1) is not None
    for step in range(150):
        name, consumer = rnd.choice(names), rnd.choice([b"a", b"b"])
        group = stream.groups[name]
        what = rnd.random()
        if what < 0.3:
            twin.add(step + 2, 0, [b"f", b"v"])
        elif what < 0.55:
            count = rnd.randint(1, 4)
            reply = twin.call("XREADGROUP", "GROUP", name, consumer, "COUNT", count, "STREAMS", KEY, ">")
            assert read_group(stream, group, consumer, count) == (len(reply[0][1]) if reply else 0)
        elif what < 0.7:
            ms, seq = rnd.choice(twin.ids)
            assert group.acknowledge(ms, seq) == twin.call("XACK", KEY, name, format_id(ms, seq))
        elif what < 0.8:
            twin.delete(*rnd.choice(twin.ids))
        elif what < 0.87:
            ms, seq = rnd.choice([*twin.ids, (0, 0)])
            read = rnd.choice([-1, 0, 3, (1 << 63) - 1])
            twin.call("XGROUP", "SETID", KEY, name, format_id(ms, seq), "ENTRIESREAD", read)
            group.set_id(ms, seq, read)
        elif what < 0.92:
            pending = twin.call("XGROUP", "DELCONSUMER", KEY, name, consumer)
            assert max(0, group.delete_consumer(consumer)) == pending
        elif what < 0.96:
            ms, seq = rnd.choice(twin.ids)
            claimed = twin.call("XCLAIM", KEY, name, consumer, 0, format_id(ms, seq), "FORCE", "JUSTID")
            if stream.contains(ms, seq):
                owner = group.find_consumer(consumer) or group.create_consumer(consumer, 0)
                slot = group.find(ms, seq)
                group.transfer(slot if slot >= 0 else group.force(ms, seq, owner, 0), owner)
                assert claimed == [format_id(ms, seq)]
            else:
                group.acknowledge(ms, seq)
                assert claimed == []
        else:
            maxlen = rnd.randrange(stream.length + 1)
            twin.trim("MAXLEN", maxlen, maxlen=maxlen, approx=False, limit=0)
        listed = [dict(zip(row[::2], row[1::2], strict=True)) for row in twin.call("XINFO", "GROUPS", KEY)]
        assert [row[b"name"] for row in listed] == [row.name for row in stream.sorted_groups()]
        for row, ours in zip(listed, stream.sorted_groups(), strict=True):
            assert row[b"lag"] == stream.lag(ours)
            assert row[b"entries-read"] == (None if ours.entries_read == -1 else ours.entries_read)
        twin.compare()


@pytest.mark.parametrize(
    "text",
    [b"5-1", b"5", b"007-1", b" 5-1", b"+5-1", b"5-+1", b"5--1", b"5--01", b"5--0", b"5-", b"-5", b"", b"5-1-1", b"a",
     b"18446744073709551615-18446744073709551615", b"18446744073709551616", b"5\0junk", b"5-1\0", b"0x5",
     b"5--9223372036854775808", b"5--9223372036854775809", b"5--18446744073709551615", b"5--18446744073709551616",
     b"00000000000000000000000000000000005-1", b"1" * 128, b"5 -1", b"5- 1", b"5-\t\v\f 1", b"5-1 "],
)  # fmt: skip
def test_ids_are_parsed_like_the_server(server: redis.Redis, text: bytes) -> None:
    server.execute_command("XGROUP", "CREATE", KEY, b"g", b"0", "MKSTREAM")
    reader = IDReader()
    if not reader.read(text, 0, True):
        with pytest.raises(redis.ResponseError, match="Invalid stream ID"):
            server.execute_command("XGROUP", "SETID", KEY, b"g", text)
        return
    server.execute_command("XGROUP", "SETID", KEY, b"g", text)
    group = server.execute_command("XINFO", "GROUPS", KEY)[0]
    last = dict(zip(group[::2], group[1::2], strict=True))[b"last-delivered-id"]
    assert format_id(reader.ms, reader.seq) == last


def restorable(node: bytes) -> bytes:
    """Return the payload of a stream with only that node, in RDB version 10."""
    ids = bytes([3, 1, 1, 9, 9, 1, 1, 0, 0, 3, 0])
    framed = b"\x80" + len(node).to_bytes(4, "big") + node
    body = bytes([STREAM_LISTPACKS_2, 1, 16]) + encode_key(1, 1) + framed + ids + (10).to_bytes(2, "little")
    return body + crc64(body).to_bytes(8, "little")


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_damaged_nodes_are_rejected_if_the_server_rejects_them(server: redis.Redis, seed: int) -> None:
    rnd = random.Random(seed)
    stream = Stream()
    for ms in range(1, 4):
        stream.append([b"a", b"%d" % (ms * 5000), b"b", b"text"], 0, 2, ms, ms, 0, 0)
    stream.append([b"c", b"1"], 0, 1, 4, MAX, 0, 0)
    stream.delete(2, 2)
    sound = stream.rax.find(encode_key(1, 1)).to_bytes()
    server.execute_command("CONFIG", "SET", "sanitize-dump-payload", "yes")
    pipe = server.pipeline(transaction=False)
    ours = []
    for _ in range(500):
        raw = bytearray(sound)
        for _ in range(rnd.choice([0, 1, 1, 2])):
            raw[rnd.randrange(len(raw))] = rnd.choice([rnd.randrange(256), rnd.randrange(10)])
        try:
            ours.append(validate_node(Listpack.from_bytes(bytes(raw), False)))
        except Corrupt:
            ours.append(False)
        pipe.execute_command("RESTORE", KEY, 0, restorable(bytes(raw)), "REPLACE")
    theirs = [reply == b"OK" for reply in pipe.execute(raise_on_error=False)]
    server.execute_command("CONFIG", "SET", "sanitize-dump-payload", "no")
    assert ours == theirs
    assert 20 < sum(ours) < 480
