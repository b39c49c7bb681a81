"""Sorted sets in RDB form: every historical type is read as a real server reads it.

Current servers no longer write types 3 and 12, so the tests build those payloads. After RESTORE, they compare the
encoding, the digest and the payload with a real server's.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from rillet.errors import Corrupt
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.structs.listpack import Listpack
from rillet.structs.ziplist import read_ziplist, write_ziplist
from rillet.types.encoding_limits import DEFAULTS
from rillet.types.rdb import value as rdb
from rillet.types.rdb import zset as rdb_zset
from rillet.types.rdb.primitives import RdbReader, RdbWriter
from rillet.types.zset import Zset
from tests.differential.wire import Local
from tests.judge import PEERS, Judge, peer_binary
from tests.structs.dump_payload import sealed
from tests.types.test_rdb_list_set import Both, body, both, listpack
from tests.variants import by_speed

__all__ = ["both"]

WORDS = (b"-7", b"-70000", b"m", b"-1.5", b"", b"0", b"1", b"0", b"a", b"0.1", b"x" * 64, b"3", b"zz", b"inf")


def as_text(*pairs: tuple[bytes, bytes]) -> bytes:
    """Return a payload of type 3."""
    out = RdbWriter()
    out.raw(b"\x03")
    out.length(len(pairs))
    for member, score in pairs:
        out.string(member)
        out.raw(score if len(score) == 1 and score[0] > 250 else bytes((len(score),)) + score)
    return bytes(out.out)


def as_doubles(*pairs: tuple[bytes, float]) -> bytes:
    """Return a payload of type 5."""
    out = RdbWriter()
    out.raw(b"\x05")
    out.length(len(pairs))
    for member, score in pairs:
        out.string(member)
        out.raw(struct.pack("<d", score))
    return bytes(out.out)


MANY = [(b"m%d" % number, float(number % 7)) for number in range(200)]
MANY_WORDS = [b"%d" % (number // 2) if number % 2 else b"m%03d" % number for number in range(400)]
PAYLOADS = {
    "scores as text": as_text((b"a", b"1"), (b"b", b"-0.5"), (b"c", b"\xfe"), (b"d", b"\xff"), (b"e", b"1e300")),
    "scores as text, 17 digits": as_text((b"a", b"0.10000000000000001"), (b"5", b"1e+17")),
    "many scores as text": as_text(*((member, b"%d" % score) for member, score in MANY)),
    "doubles": as_doubles((b"c", 3.5), (b"b", 2.0), (b"a", -1.0)),
    "doubles in no order": as_doubles((b"a", 2.0), (b"c", -1.0), (b"b", 2.0), (b"0", float("inf"))),
    "zeros": as_doubles((b"a", -0.0), (b"b", 0.0)),
    "a long member": as_doubles((b"x" * 65, 1.0), (b"b", -0.0)),
    "many doubles": as_doubles(*MANY),
    "a ziplist": body(12, write_ziplist(list(WORDS))),
    "a large ziplist": body(12, write_ziplist(MANY_WORDS)),
    "a listpack": body(17, listpack(*WORDS)),
    "a listpack with a long member": body(17, listpack(b"x" * 65, b"1")),
    "a large listpack": body(17, listpack(*MANY_WORDS)),
}
REFUSED = {
    "no member": as_doubles(),
    "no member, text": as_text(),
    "not a number": as_doubles((b"a", float("nan"))),
    "not a number, text": as_text((b"a", b"\xfd")),
    "a member twice": as_doubles((b"a", 1.0), (b"a", 2.0)),
    "an empty ziplist": body(12, write_ziplist([])),
    "an empty listpack": body(17, listpack()),
    "a member without a score": body(17, listpack(b"a", b"1", b"b")),
    "a member without a score in a ziplist": body(12, write_ziplist([b"a", b"1", b"b"])),
    "a member twice in a listpack": body(17, listpack(b"a", b"1", b"a", b"2")),
    "a member twice in a ziplist": body(12, write_ziplist([b"a", b"1", b"a", b"2"])),
    "a listpack that is none": body(17, listpack(b"a", b"1")[:-1] + b"\0"),
    "fewer members than told": as_doubles((b"a", 1.0))[:1] + b"\x02" + as_doubles((b"a", 1.0))[2:],
}
# A server accepts these without a check and then returns wrong replies.
DISORDERED = {
    "scores that fall": body(17, listpack(b"a", b"2", b"b", b"1")),
    "members that fall": body(17, listpack(b"b", b"1", b"a", b"1")),
    "a score that is a word": body(17, listpack(b"a", b"b")),
    "a score that is no number": body(17, listpack(b"a", b"nan")),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_every_rdb_type_is_read_as_by_a_server(both: Both, name: str) -> None:
    assert both.ask("RESTORE", "k", 0, sealed(PAYLOADS[name]), "REPLACE") == (b"OK", b"OK")
    for words in (("OBJECT", "ENCODING", "k"), ("DEBUG", "DIGEST-VALUE", "k"), ("DUMP", "k")):
        ours, theirs = both.ask(*words)
        assert ours == theirs, words
    both.local.engine.check()


@pytest.mark.parametrize("name", REFUSED)
def test_malformed_sorted_sets_are_rejected(both: Both, name: str) -> None:
    assert both.ask("RESTORE", "bad", 0, sealed(REFUSED[name])) == ("Bad data format", "Bad data format")


@pytest.mark.parametrize("name", DISORDERED)
def test_unordered_listpacks_are_rejected(name: str) -> None:
    bench = Local(Engine(Settings()))
    assert bench("RESTORE", "bad", 0, sealed(DISORDERED[name])) == "ERR Bad data format"


@pytest.mark.slow
@pytest.mark.parametrize("name", PAYLOADS)
def test_damaged_bytes_are_rejected_or_give_a_valid_sorted_set(name: str) -> None:
    """Any accepted bytes give a sorted set that satisfies its invariants and can be written again."""
    source = random.Random(name)
    original = PAYLOADS[name]
    for _ in range(by_speed(150, 40, 150)):
        damaged = bytearray(original)
        for _ in range(source.choice((1, 1, 2, 4))):
            byte = source.choice((0, 1, 2, 127, 128, 254, 255, source.randrange(256)))
            damaged[source.randrange(1, len(damaged))] = byte
        del damaged[len(damaged) - source.choice((0, 0, 0, 1, 5)) :]
        try:
            value = rdb.restore(bytes(damaged) + bytes(10))
        except Corrupt:
            continue
        assert isinstance(value, Zset)
        value.check()
        again = rdb.restore(rdb.dump(value))
        assert isinstance(again, Zset)
        assert list(again) == list(value)


def test_every_server_reads_the_written_sorted_sets(peer_of: Callable[[str], Judge]) -> None:
    """Values are written in the oldest form that can represent them, which is the default."""
    bench = Local(Engine(Settings(enable_debug_command="yes")))
    bench("ZADD", "small", 1, "a", 2, "b", "-0.5", 7, "inf", "c")
    bench("ZADD", "large", *(word for number in range(200) for word in (number % 9, f"m{number}")))
    for compat in filter(peer_binary, PEERS):
        with peer_of(compat).client() as redis:
            for key in ("small", "large"):
                redis.execute_command("RESTORE", key, 0, bench("DUMP", key), "REPLACE")
                theirs = redis.execute_command("ZRANGE", key, 0, -1, "WITHSCORES")
                assert theirs == bench("ZRANGE", key, 0, -1, "WITHSCORES")


def test_before_rdb_version_10_a_listpack_is_written_as_a_ziplist() -> None:
    value = Zset()
    for at in range(0, len(WORDS), 2):
        value.add(WORDS[at], float(WORDS[at + 1]))
    large = Zset.for_size(1000, 0, Settings())
    large.add(b"a", 1.0)
    assert [rdb_zset.type_of(value, version) for version in (9, 10, 80)] == [12, 17, 17]
    assert [rdb_zset.type_of(large, version) for version in (9, 10, 80)] == [5, 5, 5]
    out = RdbWriter()
    rdb_zset.save(out, value, 12)
    data = bytes(out.out)
    assert read_ziplist(RdbReader(data).string()) == list(WORDS)
    again = rdb_zset.LOADERS[12](RdbReader(data), DEFAULTS)
    assert list(again) == list(value)
    assert again.encoding() == "listpack"


def test_a_skiplist_is_written_in_descending_order() -> None:
    value = Zset.for_size(1000, 0, Settings())
    for member, score in ((b"a", 1.0), (b"c", 3.0), (b"b", 3.0)):
        value.add(member, score)
    assert rdb.dump(value)[:-10] == as_doubles((b"c", 3.0), (b"b", 3.0), (b"a", 1.0))


def test_a_valid_listpack_is_used_unchanged() -> None:
    packed = Listpack.from_bytes(listpack(*WORDS))
    value = rdb.restore(sealed(body(17, packed.to_bytes())))
    assert isinstance(value, Zset)
    assert value.listpack is not None
    assert value.listpack.to_bytes() == packed.to_bytes()
