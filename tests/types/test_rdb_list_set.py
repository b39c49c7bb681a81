"""Lists and sets in RDB form: every historical type is read as a real server reads it.

Current servers no longer write types 1, 10 and 14, so the tests build those payloads. After RESTORE, they compare the
encoding, the digest and the payload with a real server's.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator

import pytest
from redis import ResponseError

from rillet.errors import Corrupt
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.structs.intset import Intset
from rillet.structs.listpack import Listpack
from rillet.structs.ziplist import read_ziplist
from rillet.types.list import List
from rillet.types.rdb import value as rdb
from rillet.types.rdb.primitives import RdbWriter
from rillet.types.set import Set
from tests.differential.wire import Local
from tests.judge import PEERS, Judge, peer_binary
from tests.structs.dump_payload import sealed
from tests.variants import by_speed

TEXTS = [
    b"", b"a", b"12", b"13", b"-1", b"0", b"127", b"-128", b"300", b"-40000", b"8388607", b"-8388609", b"2147483648",
    b"-9223372036854775808", b"x" * 63, b"y" * 64, b"z" * 300, b"w" * 20000, b"007",
]  # fmt: skip


def ziplist(values: list[bytes]) -> bytes:
    """Return a ziplist of the values, with integers in their smallest form (ziplist.c: ziplistPush)."""
    body, before, last = b"", 0, 10
    for value in values:
        entry = bytes((before,)) if before < 254 else b"\xfe" + struct.pack("<I", before)
        entry += _ziplist_entry(value)
        last, before = 10 + len(body), len(entry)
        body += entry
    return struct.pack("<IIH", 11 + len(body), last, min(len(values), 0xFFFF)) + body + b"\xff"


def _ziplist_entry(value: bytes) -> bytes:
    try:
        number = int(value)
    except ValueError:
        number = 1 << 64
    if b"%d" % number == value and -(1 << 63) <= number < 1 << 63:
        if 0 <= number <= 12:
            return bytes((0xF1 + number,))
        for form, width in ((0xFE, 1), (0xC0, 2), (0xF0, 3), (0xD0, 4), (0xE0, 8)):
            if -(1 << 8 * width - 1) <= number < 1 << 8 * width - 1:
                return bytes((form,)) + number.to_bytes(width, "little", signed=True)
    size = len(value)
    if size < 64:
        return bytes((size,)) + value
    return (struct.pack(">H", 0x4000 | size) if size < 1 << 14 else struct.pack(">BI", 0x80, size)) + value


def body(kind: int, *parts: bytes | int) -> bytes:
    """Return a type and its parts: numbers as lengths, bytes as strings."""
    out = RdbWriter()
    out.raw(bytes((kind,)))
    for part in parts:
        if isinstance(part, int):
            out.length(part)
        else:
            out.string(part)
    return bytes(out.out)


def intset(*numbers: int) -> bytes:
    made = Intset()
    for number in numbers:
        made.add(number)
    return made.to_bytes()


def listpack(*values: bytes) -> bytes:
    made = Listpack()
    for value in values:
        made.append(value)
    return made.to_bytes()


PAYLOADS = {
    "list": body(1, len(TEXTS), *TEXTS),
    "list of a ziplist": body(10, ziplist(TEXTS)),
    "list of an empty and a full ziplist": body(14, 2, ziplist([]), ziplist(TEXTS)),
    "list of several ziplists": body(14, 3, ziplist(TEXTS[:5]), ziplist(TEXTS[5:9]), ziplist(TEXTS[9:])),
    "short list of a ziplist": body(10, ziplist([b"a", b"1"])),
    "short list": body(1, 2, b"a", b"1"),
    "list of a listpack": body(18, 1, 2, listpack(*TEXTS)),
    "list with large elements": body(18, 3, 1, b"x" * 50, 2, listpack(b"a", b"b"), 1, b"17"),
    "list of a large element": body(18, 1, 1, b"x"),
    "set of texts": body(2, len(TEXTS), *TEXTS),
    "set of integers": body(2, 3, b"3", b"-70000", b"2"),
    "set of integers and then a text": body(2, 4, b"3", b"2", b"a", b"1"),
    "set of a long text": body(2, 2, b"3", b"x" * 65),
    "set of an intset": body(11, intset(1, 2, 70000)),
    "set of a large intset": body(11, intset(*range(600))),
    "set of many integers": body(2, 600, *(b"%d" % number for number in range(600))),
    "set of many texts": body(2, 129, *(b"m%d" % number for number in range(129))),
}
SINCE_72 = {
    "set of a listpack": body(20, listpack(b"1", b"a", b"-7", b"x" * 100)),
    "set of a large listpack": body(20, listpack(*(b"%d" % number for number in range(129)))),
}
REFUSED = {
    "no element": body(1, 0),
    "an empty ziplist": body(10, ziplist([])),
    "empty ziplists": body(14, 2, ziplist([]), ziplist([])),
    "no node": body(18, 0),
    "a node of a kind that is not known": body(18, 1, 3, listpack(b"a")),
    "a node without bytes": body(18, 1, 1, b""),
    "a set without a member": body(2, 0),
    "a member twice": body(2, 2, b"a", b"a"),
    "an integer twice": body(2, 2, b"1", b"1"),
    "an empty intset": body(11, struct.pack("<II", 2, 0)),
    "members that do not rise": body(11, struct.pack("<IIhh", 2, 2, 5, 5)),
    "a listpack that is none": body(18, 1, 2, listpack(b"a")[:-1] + b"\0"),
    "a ziplist whose last entry is elsewhere": body(10, ziplist([b"a", b"b"]).replace(b"\x0d\0", b"\x0a\0", 1)),
    "fewer elements than told": body(1, 3, b"a", b"b"),
}


class Both:
    """A server and an engine that receive the same payloads."""

    def __init__(self, judge: Judge, compat: str) -> None:
        self.redis = judge.client()
        self.local = Local(Engine(Settings(enable_debug_command="yes", compat=compat, dump_format="native")))

    def ask(self, *words: bytes | str | int) -> tuple[object, object]:
        """Return rillet's and the server's reply; an error is its text without the first word."""
        try:
            theirs: object = self.redis.execute_command(*words)
        except ResponseError as error:
            theirs = str(error)
        ours = self.local(*words)
        return (ours.removeprefix("ERR ") if isinstance(ours, str) else ours), theirs


@pytest.fixture(params=PEERS)
def both(request: pytest.FixtureRequest, peer_of: Callable[[str], Judge]) -> Iterator[Both]:
    pair = Both(peer_of(request.param), request.param)
    pair.ask("CONFIG", "SET", "sanitize-dump-payload", "yes")
    with pair.redis:
        yield pair


@pytest.mark.parametrize("name", [*PAYLOADS, *SINCE_72])
def test_every_rdb_type_is_read_as_by_a_server(both: Both, name: str) -> None:
    payload = sealed({**PAYLOADS, **SINCE_72}[name])
    ours, theirs = both.ask("RESTORE", "k", 0, payload, "REPLACE")
    if both.local.engine.settings.compat.level == 70 and name in SINCE_72:
        # Types newer than 7.0 are read too, and get the encoding of 7.0.
        assert (ours, theirs) == (b"OK", "Bad data format")
        assert both.local("OBJECT", "ENCODING", "k") == b"hashtable"
        return
    assert ours == theirs
    for words in (("OBJECT", "ENCODING", "k"), ("DEBUG", "DIGEST-VALUE", "k")):
        ours, theirs = both.ask(*words)
        assert ours == theirs, words
    ours, theirs = both.ask("DUMP", "k")
    assert isinstance(ours, bytes)
    assert isinstance(theirs, bytes)
    if both.local("OBJECT", "ENCODING", "k") == b"hashtable":
        assert sorted(rdb.restore(ours)) == sorted(rdb.restore(theirs))  # type: ignore[call-overload]
        assert ours[:1] == theirs[:1]
    else:
        assert ours == theirs
    both.local.engine.check()


@pytest.mark.parametrize("name", REFUSED)
def test_malformed_values_are_rejected(both: Both, name: str) -> None:
    assert both.ask("RESTORE", "bad", 0, sealed(REFUSED[name])) == ("Bad data format", "Bad data format")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PAYLOADS, *SINCE_72])
def test_damaged_bytes_are_rejected_or_give_a_valid_value(name: str) -> None:
    """Any accepted bytes give a value that satisfies its invariants and can be written again."""
    source = random.Random(name)
    original = {**PAYLOADS, **SINCE_72}[name]
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
        assert isinstance(value, (List, Set))
        value.check()
        again = rdb.restore(rdb.dump(value))
        assert type(again) is type(value)


@pytest.mark.slow
def test_only_valid_ziplists_are_read() -> None:
    assert read_ziplist(ziplist(TEXTS)) == TEXTS
    many = [b"%d" % number for number in range(70_000)]
    assert read_ziplist(ziplist(many)) == many
    good = ziplist([b"abc", b"5", b"x" * 300, b"y"])
    for bad in (b"", good[:-1], good + b"\xff", good[:10] + b"\x05" + good[11:], good[:8] + b"\x09" + good[9:]):
        with pytest.raises(Corrupt):
            read_ziplist(bad)


@pytest.mark.parametrize("fill", [-1, 2, 300])
def test_every_server_reads_the_written_values(peer_of: Callable[[str], Judge], fill: int) -> None:
    """Values are written in the oldest form that can represent them, which is the default."""
    bench = Local(Engine(Settings(enable_debug_command="yes", list_max_listpack_size=fill)))
    bench("RPUSH", "l", *TEXTS)
    bench("SADD", "small", "a", "b", 1)
    bench("SADD", "numbers", 1, 2, 3)
    bench("SADD", "large", *(b"m%d" % number for number in range(200)))
    keys = ("l", "small", "numbers", "large")
    payloads = [bench("DUMP", key) for key in keys]
    for compat in filter(peer_binary, PEERS):
        with peer_of(compat).client() as redis:
            for key, payload in zip(keys, payloads, strict=True):
                redis.execute_command("RESTORE", key, 0, payload, "REPLACE")
            theirs = redis.execute_command("DEBUG", "DIGEST-VALUE", *keys)
        assert theirs == bench("DEBUG", "DIGEST-VALUE", *keys)
