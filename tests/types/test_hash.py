"""Hashes compared with a dict, and every RDB type of hashes read as real servers read it.

Current servers no longer write types 9 and 13, so the tests build those payloads. After RESTORE, they compare the
encoding, the digest and the payload with a real server's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.errors import Corrupt
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.structs.listpack import Listpack
from rillet.structs.ziplist import read_ziplist
from rillet.types.compat import COMPATS
from rillet.types.encoding_limits import Defaults
from rillet.types.hash import Hash
from rillet.types.rdb import hash as rdb_hash
from rillet.types.rdb import value as rdb
from rillet.types.rdb.primitives import RdbReader, RdbWriter
from tests.differential.wire import Local
from tests.judge import PEERS, Judge, peer_binary
from tests.structs.dump_payload import sealed
from tests.types.test_rdb_list_set import TEXTS, Both, body, listpack, ziplist
from tests.variants import by_speed


def made(pairs: dict[bytes, bytes], limits: Defaults | None = None) -> Hash:
    value = Hash()
    for field, content in pairs.items():
        value.set(field, content, limits or Defaults())
    return value


def limits_of(entries: int = 512, longest: int = 64, compat: str = "newest") -> Defaults:
    limits = Defaults()
    limits.hash_max_listpack_entries, limits.hash_max_listpack_value = entries, longest
    limits.compat = COMPATS[compat]
    return limits


# -- the value ------------------------------------------------------------------------------------------

names = st.one_of(st.integers(0, 12).map(lambda n: b"%d" % n), st.sampled_from([b"", b"f", b"F" * 9, b"\xff", b"007"]))
steps = st.lists(st.tuples(st.sampled_from(["set", "set", "remove", "scan", "pick"]), names, names), max_size=60)


@given(steps, st.integers(0, 8), st.integers(0, 9))
def test_it_behaves_as_a_dict(steps: list[tuple[str, bytes, bytes]], entries: int, longest: int) -> None:
    """After any changes, in either encoding, it holds the same items as a dict, in the same order until a removal."""
    value, model, limits, removed = Hash(), dict[bytes, bytes](), limits_of(entries, longest), False
    for what, field, content in steps:
        if what == "set":
            assert value.set(field, content, limits) is (field not in model)
            model[field] = content
        elif what == "remove":
            assert value.remove(field) is (model.pop(field, None) is not None)
        elif model:
            assert set(value.picks(3) + value.sample(2)) <= set(model)
            assert sorted(value.sample(99)) == sorted(value.scan(0, 99)[1]) == sorted(model)
        removed = removed or what == "remove"
        if value.encoding() == "listpack" or not removed:
            assert list(value.items()) == list(model.items())
        assert dict(value.items()) == model
        assert dict(zip(value, value.values(), strict=True)) == model
        assert len(value) == len(model)
        assert value.get(field) == model.get(field)
        assert (field in value) is (field in model)
        if model:
            value.check()
            twin = value.copy()
            twin.set(b"another", b"x", limits)
            assert b"another" not in value
            assert twin.get(b"another") == b"x"


def test_the_limits_determine_the_encoding() -> None:
    full = made({b"%d" % at: b"v" for at in range(512)})
    assert full.encoding() == "listpack"
    full.set(b"0", b"w")
    assert full.encoding() == "listpack"
    full.set(b"one more", b"v")
    assert full.encoding() == "hashtable"
    assert len(full) == 513
    for pair in ((b"f" * 65, b""), (b"", b"v" * 65)):
        assert made(dict([pair])).encoding() == "hashtable"
    assert made({b"f" * 64: b"v" * 64}).encoding() == "listpack"
    shrunk = limits_of(3)
    few = made({b"%d" % at: b"v" for at in range(10)})
    few.remove(b"0")
    assert few.encoding() == "listpack"
    few.set(b"1", b"w", shrunk)
    assert few.encoding() == "hashtable"


@pytest.mark.slow
def test_a_scan_returns_every_permanent_field() -> None:
    """Fields that exist during the whole scan are returned despite other changes, and the scan ends."""
    source = random.Random(3)
    for count in (1, 7, 100):
        value = made({b"stay%d" % at: b"v" for at in range(400)} | {b"go%d" % at: b"v" for at in range(400)})
        assert value.encoding() == "hashtable"
        met, cursor, calls = Counter[bytes](), 0, 0
        while True:
            cursor, fields = value.scan(cursor, count)
            met.update(fields)
            assert len(fields) < count + 10  # the last bucket is returned whole
            calls += 1
            for _ in range(3):
                value.remove(b"go%d" % source.randrange(400))
                value.set(b"new%d" % source.randrange(400), b"v")
            if calls % by_speed(4, 32, 1) == 0:
                value.check()
            if not cursor:
                break
        assert all(met[b"stay%d" % at] for at in range(400))
        assert calls <= 2048  # the buckets after the table doubled


def test_random_fields_are_uniformly_distributed() -> None:
    """In both encodings, the fields are drawn about equally often (chi-squared, 9 degrees of freedom)."""
    for limits in (limits_of(), limits_of(0)):
        value = made({b"%d" % at: b"v" for at in range(10)}, limits)
        met = Counter(value.picks(10_000))
        met.update(field for _ in range(3000) for field in value.sample(3))
        wanted = 19_000 / 10
        assert sum((met[b"%d" % at] - wanted) ** 2 / wanted for at in range(10)) < 40
        assert len(set(value.sample(4))) == 4


# -- as RDB bytes ---------------------------------------------------------------------------------------

PAIRS = [word for at, text in enumerate(TEXTS) for word in (b"f%d" % at, text)]
SHORT = [b"1", b"a", b"b", b"-70000", b"f", b""]
MANY = [word for at in range(513) for word in (b"%d" % at, b"v")]


def zipmap(words: list[bytes], free: int = 0) -> bytes:
    """Return a zipmap of fields and values, with free bytes after each value (zipmap.c: zipmapSet)."""
    out = bytearray((min(len(words) // 2, 254),))
    for at, word in enumerate(words):
        out += bytes((len(word),)) if len(word) < 254 else b"\xfe" + len(word).to_bytes(4, "little")
        out += bytes((free,)) + word + b"?" * free if at % 2 else word
    return bytes(out) + b"\xff"


PAYLOADS = {
    "hash": body(4, len(PAIRS) // 2, *PAIRS),
    "short hash": body(4, 3, *SHORT),
    "hash of a number of fields at the limit": body(4, 512, *MANY[:-2]),
    "hash of many fields": body(4, 513, *MANY),
    "hash of a long value": body(4, 3, b"a", b"b", b"c", b"x" * 65, b"d", b"e"),
    "hash of a long field": body(4, 2, b"a", b"b", b"x" * 65, b"d"),
    "hash of a zipmap": body(9, zipmap(SHORT)),
    "hash of a zipmap with free bytes": body(9, zipmap(SHORT, 3)),
    "hash of a zipmap with a long value": body(9, zipmap([b"a", b"x" * 65])),
    "hash of a zipmap with lengths around its limit": body(
        9, zipmap([word for n in (252, 253, 254, 255, 256) for word in (b"%d" % n, b"x" * n)])
    ),
    "hash of a large zipmap": body(9, zipmap(MANY)),
    "hash of a ziplist": body(13, ziplist(PAIRS)),
    "short hash of a ziplist": body(13, ziplist(SHORT)),
    "hash of a large ziplist": body(13, ziplist(MANY)),
    "hash of a listpack": body(16, listpack(*PAIRS)),
    "hash of a large listpack": body(16, listpack(*MANY)),
}
REFUSED = {
    "no field": body(4, 0),
    "a field twice": body(4, 2, b"a", b"1", b"a", b"2"),
    "a field twice among many": body(4, 514, *MANY, b"0", b"x"),
    "a field twice, and a long value between": body(4, 3, b"a", b"1", b"b", b"x" * 65, b"a", b"2"),
    "fewer fields than told": body(4, 3, b"a", b"b", b"c"),
    "a field twice in a zipmap": body(9, zipmap([b"a", b"1", b"a", b"2"])),
    "an empty zipmap": body(9, zipmap([])),
    "a zipmap without its end": body(9, zipmap(SHORT)[:-1]),
    "a field twice in a ziplist": body(13, ziplist([b"a", b"1", b"a", b"2"])),
    "a field without a value in a ziplist": body(13, ziplist([b"a", b"1", b"b"])),
    "an empty ziplist": body(13, ziplist([])),
    "a field twice in a listpack": body(16, listpack(b"a", b"1", b"a", b"2")),
    "an integer field twice in a listpack": body(16, listpack(b"1", b"1", b"1", b"2")),
    "a field without a value in a listpack": body(16, listpack(b"a", b"1", b"b")),
    "an empty listpack": body(16, listpack()),
    "a listpack that is none": body(16, listpack(b"a", b"b")[:-1] + b"\0"),
}


@pytest.fixture(params=PEERS)
def both(request: pytest.FixtureRequest, peer_of: Callable[[str], Judge]) -> Iterator[Both]:
    pair = Both(peer_of(request.param), request.param)
    pair.ask("CONFIG", "SET", "sanitize-dump-payload", "yes")
    with pair.redis:
        yield pair


@pytest.mark.parametrize("name", PAYLOADS)
def test_every_rdb_type_is_read_as_by_a_server(both: Both, name: str) -> None:
    assert both.ask("RESTORE", "k", 0, sealed(PAYLOADS[name]), "REPLACE") == (b"OK", b"OK")
    for words in (("OBJECT", "ENCODING", "k"), ("DEBUG", "DIGEST-VALUE", "k"), ("HLEN", "k")):
        ours, theirs = both.ask(*words)
        assert ours == theirs, words
    ours, theirs = both.ask("DUMP", "k")
    assert isinstance(ours, bytes)
    assert isinstance(theirs, bytes)
    if both.local("OBJECT", "ENCODING", "k") == b"hashtable":
        one, two = rdb.restore(ours), rdb.restore(theirs)
        assert isinstance(one, Hash)
        assert isinstance(two, Hash)
        assert dict(one.items()) == dict(two.items())
        assert ours[:1] == theirs[:1] == b"\x04"
    else:
        assert ours == theirs
    both.local.engine.check()


@pytest.mark.parametrize("name", REFUSED)
def test_malformed_hashes_are_rejected(both: Both, name: str) -> None:
    assert both.ask("RESTORE", "bad", 0, sealed(REFUSED[name])) == ("Bad data format", "Bad data format")


@pytest.mark.slow
@pytest.mark.parametrize("name", PAYLOADS)
def test_damaged_bytes_are_rejected_or_give_a_valid_hash(name: str) -> None:
    """Any accepted bytes give a hash that satisfies its invariants and can be written again."""
    source = random.Random(name)
    for _ in range(by_speed(100, 40, 100)):
        damaged = bytearray(PAYLOADS[name])
        for _ in range(source.choice((1, 1, 2, 4))):
            byte = source.choice((0, 1, 2, 127, 128, 254, 255, source.randrange(256)))
            damaged[source.randrange(1, len(damaged))] = byte
        del damaged[len(damaged) - source.choice((0, 0, 0, 1, 5)) :]
        try:
            value = rdb.restore(bytes(damaged) + bytes(10))
        except Corrupt:
            continue
        assert isinstance(value, Hash)
        value.check()
        again = rdb.restore(rdb.dump(value))
        assert isinstance(again, Hash)
        assert dict(again.items()) == dict(value.items())


@pytest.mark.parametrize(("version", "kind"), [(6, 13), (9, 13), (10, 16), (14, 16), (80, 16)])
def test_small_hashes_are_ziplists_before_rdb_version_10(version: int, kind: int) -> None:
    value = made(dict(zip(SHORT[::2], SHORT[1::2], strict=True)))
    assert rdb_hash.type_of(value, version) == kind
    out = RdbWriter()
    rdb_hash.save(out, value, kind)
    block = RdbReader(bytes(out.out)).string()
    assert (read_ziplist(block) if kind == 13 else words_of(block)) == SHORT
    assert list(rdb_hash.LOADERS[kind](RdbReader(bytes(out.out)), Defaults()).items()) == list(value.items())
    value.to_hashtable()
    assert rdb_hash.type_of(value, version) == 4


def words_of(block: bytes) -> list[bytes]:
    return [word if isinstance(word, bytes) else b"%d" % word for word in Listpack.from_bytes(block)]


def test_every_server_reads_the_written_hashes(peer_of: Callable[[str], Judge]) -> None:
    bench = Local(Engine(Settings(enable_debug_command="yes")))
    bench("HSET", "small", *SHORT)
    bench("HSET", "long", *PAIRS)
    bench("HSET", "large", *MANY)
    keys = ("small", "long", "large")
    payloads = [bench("DUMP", key) for key in keys]
    assert [payload[:1] for payload in payloads] == [b"\x10", b"\x04", b"\x04"]
    for compat in filter(peer_binary, PEERS):
        with peer_of(compat).client() as redis:
            for key, payload in zip(keys, payloads, strict=True):
                redis.execute_command("RESTORE", key, 0, payload, "REPLACE")
            theirs = redis.execute_command("DEBUG", "DIGEST-VALUE", *keys)
        assert theirs == bench("DEBUG", "DIGEST-VALUE", *keys)
