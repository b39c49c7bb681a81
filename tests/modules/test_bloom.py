"""The Bloom filter: hashes, sizes, replies as the public documentation of RedisBloom has them, formats."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.errors import CommandError
from rillet.modules.bundled.bloom import Bloom, murmur_32, murmur_64
from rillet.structs.crc64 import crc64
from tests.modules.ends import Bench


def verification(hash_of: Callable[[bytes, int], int], size: int) -> int:
    """Return the value by which the suite SMHasher identifies a hash function."""
    hashes = b"".join(hash_of(bytes(range(n)), 256 - n).to_bytes(size, "little") for n in range(256))
    return hash_of(hashes, 0) & 0xFFFFFFFF


def test_the_hash_functions_are_those_of_smhasher() -> None:
    assert verification(murmur_64, 8) == 0x1F0D3804
    assert verification(murmur_32, 4) == 0x27864C1E


WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


@pytest.fixture
def bench() -> Bench:
    return Bench("bloom")


def test_the_example_of_the_documentation(bench: Bench) -> None:
    assert bench("BF.RESERVE", "bf_exp", 0.01, 1000, "EXPANSION", 2) == b"OK"
    assert bench("BF.RESERVE", "bf_non", 0.01, 1000, "NONSCALING") == b"OK"
    assert bench("BF.ADD", "bf", "item1") == 1
    assert bench("BF.ADD", "bf", "item1") == 0
    assert bench("BF.MADD", "bf", "item1", "item2", "item2") == [0, 1, 0]
    assert bench("BF.MEXISTS", "bf", "item1", "item2", "item3") == [1, 1, 0]
    assert bench("BF.EXISTS", "bf", "item1") == 1
    assert bench("BF.EXISTS", "nosuch", "x") == 0
    assert bench("BF.MEXISTS", "nosuch", "x", "y") == [0, 0]
    assert bench("BF.CARD", "bf") == 2
    assert bench("BF.CARD", "nosuch") == 0
    assert bench("BF.INFO", "bf") == [
        b"Capacity",
        100,
        b"Size",
        240,
        b"Number of filters",
        1,
        b"Number of items inserted",
        2,
        b"Expansion rate",
        2,
    ]
    assert bench("BF.INFO", "bf", "CAPACITY") == [100]
    assert bench("BF.INFO", "bf_non", "expansion") == [None]
    assert bench("BF.INSERT", "new", "CAPACITY", 10000, "ERROR", 0.001, "ITEMS", "hello") == [1]
    assert bench("BF.INFO", "new", "capacity") == [10000]
    assert bench("TYPE", "bf") == b"MBbloom--"


def test_replies_in_resp3_are_booleans_and_maps(bench: Bench) -> None:
    bench("HELLO", 3)
    assert bench.raw("BF.ADD", "f", "x") == b"#t\r\n"
    assert bench.raw("BF.EXISTS", "f", "y") == b"#f\r\n"
    assert bench.raw("BF.INFO", "f").startswith(b"%5\r\n+Capacity\r\n:100\r\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("BF.RESERVE f x 100", "ERR bad error rate"),
        ("BF.RESERVE f 1 100", "ERR (0 < error rate range < 1) "),
        ("BF.RESERVE f 0 100", "ERR (0 < error rate range < 1) "),
        ("BF.RESERVE f nan 100", "ERR (0 < error rate range < 1) "),
        ("BF.RESERVE f 0.1 x", "ERR bad capacity"),
        ("BF.RESERVE f 0.1 0", "ERR (capacity should be larger than 0)"),
        ("BF.RESERVE f 0.1 10 EXPANSION", "ERR no expansion"),
        ("BF.RESERVE f 0.1 10 EXPANSION x", "ERR bad expansion"),
        ("BF.RESERVE f 0.1 10 NONSCALING EXPANSION 2", "ERR Nonscaling filters cannot expand"),
        ("BF.RESERVE there 0.1 10", "ERR item exists"),
        ("BF.RESERVE f 0.1", "ERR wrong number of arguments for 'bf.reserve' command"),
        ("BF.RESERVE f 1e-300 1000000000000000000", "ERR could not create filter"),
        ("BF.INFO f", "ERR not found"),
        ("BF.INFO there x", "ERR Invalid information value"),
        ("BF.INSERT f NOCREATE ITEMS x", "ERR not found"),
        ("BF.INSERT f CAPACITY", "ERR wrong number of arguments for 'bf.insert' command"),
        ("BF.INSERT f ITEMS x y z CAPACITY", None),
        ("BF.INSERT g CAPACITY x ITEMS x", "ERR Bad capacity"),
        ("BF.INSERT g ERROR x ITEMS x", "ERR Bad error rate"),
        ("BF.INSERT g ERROR 2 ITEMS x", "ERR Bad argument received"),
        ("BF.INSERT g FOO ITEMS x", "ERR Unknown argument received"),
        ("BF.INSERT g NOCREATE ITEMS", "ERR wrong number of arguments for 'bf.insert' command"),
        ("BF.SCANDUMP f 0", "ERR not found"),
        ("BF.SCANDUMP there x", "ERR Second argument must be numeric"),
        ("BF.LOADCHUNK f 2 x", "ERR not found"),
        ("BF.LOADCHUNK f 1 x", "ERR received bad data"),
        ("BF.LOADCHUNK there 0 x", "ERR received bad data"),
        ("BF.LOADCHUNK there 1000000 x", "ERR invalid offset - no link found"),
        ("BF.ADD string x", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("BF.EXISTS string x", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ],
)
def test_errors(bench: Bench, words: str, text: str | None) -> None:
    bench("BF.ADD", "there", "x")
    bench("SET", "string", 1)
    if text is None:
        bench(*words.split())
        return
    with pytest.raises(CommandError) as caught:
        bench(*words.split())
    assert str(caught.value) == text
    assert bench("EXISTS", "f", "g") == 0


def test_a_filter_that_cannot_scale_reports_that_it_is_full(bench: Bench) -> None:
    bench("BF.RESERVE", "f", 0.01, 3, "NONSCALING")
    replies = bench("BF.MADD", "f", *range(10))
    assert replies[:3] == [1, 1, 1]
    assert str(replies[-1]) == "ERR non scaling filter is full"
    with pytest.raises(CommandError, match="non scaling filter is full"):
        bench("BF.ADD", "f", "new item")


@given(st.integers(1, 300), st.sampled_from([0.5, 0.1, 0.01, 1e-6]), st.integers(1, 4), st.sets(st.binary(max_size=20)))
def test_an_added_item_is_found_and_links_have_their_capacity(
    capacity: int, error: float, growth: int, items: set[bytes]
) -> None:
    value = Bloom(capacity, error, growth, True)
    added = sum(value.add(item) for item in items)
    value.check()
    assert value.size == added <= len(items)
    assert all(item in value for item in items)
    for number, link in enumerate(value.links):
        assert link.capacity == capacity * growth**number
        assert link.size <= link.capacity
        assert link.error == error * 0.5 ** (number + 1)


def test_the_error_rate_holds() -> None:
    value = Bloom(1000, 0.02, 2, True)
    for number in range(5000):
        value.add(b"in%d" % number)
    wrong = sum(b"out%d" % number in value for number in range(5000))
    assert wrong <= 5000 * 0.02 + 4 * math.sqrt(5000 * 0.02)
    assert len(value.links) == 3


def test_chunks_and_payloads_carry_a_filter_to_another_server(bench: Bench) -> None:
    bench("BF.RESERVE", "f", 0.001, 50)
    bench("BF.MADD", "f", *range(500))
    other = Bench("bloom")
    iterator, chunks = 0, 0
    while True:
        iterator, data = bench("BF.SCANDUMP", "f", iterator)
        if iterator == 0:
            break
        chunks += 1
        assert other("BF.LOADCHUNK", "f", iterator, data) == b"OK"
    assert chunks == 1 + bench("BF.INFO", "f", "FILTERS")[0]
    payload = bench("DUMP", "f")
    assert other("DUMP", "f") == payload
    assert other("RESTORE", "g", 0, payload) == b"OK"
    assert other("BF.MEXISTS", "g", *range(500)) == [1] * 500
    assert other("COPY", "g", "h") == 1
    other("BF.MADD", "h", *range(1000, 1100))
    assert other("DUMP", "g") == payload


def test_the_payload_has_the_published_layout(bench: Bench) -> None:
    bench("CONFIG", "SET", "rdbcompression", "no")
    bench("BF.RESERVE", "f", 0.01, 100)
    bench("BF.ADD", "f", "x")
    payload = bench("DUMP", "f")
    bpe = abs(math.log(0.005) / 0.480453013918201)
    data = next(iter(bench.engine.databases[0].items()))[1].value.links[0].data
    expected = (
        b"\x02\x01"
        b"\x02\x01"
        b"\x02\x05"
        b"\x02\x02"
        b"\x02\x40\x64"
        b"\x04"
        + struct.pack("<d", 0.005)
        + b"\x02"
        + bytes([math.ceil(0.693147180559945 * bpe)])
        + b"\x04"
        + struct.pack("<d", bpe)
        + b"\x02\x44\x80"
        + b"\x05\x40\x90"
        + bytes(data)
        + b"\x02\x01\x00"
    )
    assert payload[:1] + payload[10:-10] == b"\x07" + expected
    assert payload[1] == 0x81
    assert int.from_bytes(payload[2:10], "big") & 1023 == 4
    assert sum(byte.bit_count() for byte in data) == math.ceil(0.693147180559945 * bpe)


def test_filters_of_old_versions_are_read(bench: Bench) -> None:
    """Encoding 2 has no growth; filters without the options round up, and may hash with 32 bits."""
    for options in (0, 4):
        value = Bloom(10, 0.01, 2, True)
        value.options = options
        link = value.links[0]
        link.power, link.bits = 7, 128
        link.data = bytearray(16)
        value.add(b"x")
        out = Bench("bloom")
        module_type = out.engine.settings.module_types
        handle = next(iter(module_type.values()))
        from rillet.types.module import NOWHERE
        from rillet.types.module_io import ModuleReader, ModuleWriter
        from rillet.types.rdb.primitives import RdbReader, RdbWriter

        writer = RdbWriter()
        handle.type.rdb_save(ModuleWriter(writer, NOWHERE), value)
        loaded = handle.type.rdb_load(ModuleReader(RdbReader(bytes(writer.out)), NOWHERE), 4)
        assert b"x" in loaded
        assert b"y" not in loaded
        assert loaded.options == options
        head = b"\x02\x01\x02\x01\x02" + bytes([options])
        assert bytes(writer.out).startswith(head + b"\x02\x02")
        old = handle.type.rdb_load(ModuleReader(RdbReader(head + bytes(writer.out)[len(head) + 2 :]), NOWHERE), 2)
        assert b"x" in old
        assert old.growth == 2


def test_damaged_payloads_and_headers_are_refused_or_loaded_soundly(bench: Bench) -> None:
    bench("BF.RESERVE", "f", 0.01, 10)
    bench("BF.MADD", "f", *range(30))
    payload, header = bench("DUMP", "f"), bench("BF.SCANDUMP", "f", 0)[1]
    draw = random.Random(5)
    for _ in range(150):
        damaged = bytearray(payload[:-8])
        damaged[draw.randrange(1, len(damaged) - 2)] ^= 1 << draw.randrange(8)
        sealed = bytes(damaged) + crc64(bytes(damaged)).to_bytes(8, "little")
        assert bench.outcome("RESTORE", "d", 0, sealed, "REPLACE") in (b"OK", "ERR Bad data format")
        assert bench.outcome("BF.EXISTS", "d", "x") in (0, 1, WRONG_TYPE)
        damaged = bytearray(header)
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        bench("DEL", "d")
        assert bench.outcome("BF.LOADCHUNK", "d", 1, bytes(damaged)) in (b"OK", "ERR received bad data")
        assert bench.outcome("BF.ADD", "d", "x") in (
            0,
            1,
            "ERR non scaling filter is full",
            "ERR could not create filter",
        )
    bench.engine.check()


def test_the_log_restores_the_filter(bench: Bench) -> None:
    bench("BF.RESERVE", "f", 0.01, 10)
    bench("BF.ADD", "f", "a")
    bench("BF.EXISTS", "f", "a")
    bench("BF.INSERT", "g", "ITEMS", "x", "y")
    assert bench.log() == ["BF.RESERVE f 0.01 10", "BF.ADD f a", "BF.INSERT g ITEMS x y"]
