"""Hashes with field expiry compared with a dict, and their RDB types read and written as real servers do."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.errors import Corrupt
from rillet.structs.crc64 import crc64
from rillet.structs.listpack import Listpack
from rillet.types.at_rest import awaken, to_rest
from rillet.types.compat import COMPATS
from rillet.types.hash import Hash
from rillet.types.rdb import value as rdb
from rillet.types.rdb.primitives import RdbReader, RdbWriter
from tests.judge import Judge
from tests.structs.dump_payload import sealed
from tests.types.test_hash import limits_of
from tests.types.test_rdb_list_set import Both, body

FAR = 4_000_000_000_000
VALKEY = COMPATS["valkey"].rdb_version

# -- the value ------------------------------------------------------------------------------------------

names = st.sampled_from([b"a", b"b", b"c", b"d", b"7", b"-1", b"F" * 9])
times = st.integers(1, 9)
steps = st.lists(
    st.tuples(st.sampled_from(["set", "keep", "time", "time", "persist", "remove", "convert"]), names, times),
    min_size=1, max_size=40,
)  # fmt: skip


@given(steps, st.sampled_from([2, 8, 512]), st.sampled_from(["newest", "valkey"]))
def test_it_behaves_as_a_dict(steps: list[tuple[str, bytes, int]], entries: int, compat: str) -> None:
    """After any changes, in each encoding, it holds the same fields with the same times as a dict."""
    value, model, limits = Hash(), dict[bytes, tuple[bytes, int]](), limits_of(entries, 64, compat)
    for what, field, when in steps:
        content = b"%d" % when
        if what in ("set", "keep"):
            old = model.get(field, (b"", 0))[1]
            assert value.set(field, content, limits, what == "keep") is (field not in model)
            model[field] = content, old if what == "keep" else 0
        elif what == "remove":
            assert value.remove(field) is (model.pop(field, None) is not None)
        elif what == "convert":
            value.to_hashtable() if value.table is None else None
        elif field in model:
            value.start_expiry(limits)
            value.set_time(field, when if what == "time" else 0)
            model[field] = model[field][0], when if what == "time" else 0
        assert value.time_of(field) == (model[field][1] if field in model else -1)
        assert value.get(field) == (model[field][0] if field in model else None)
    assert {field: (content, when) for field, content, when in value.rows()} == model
    assert sorted(value) == sorted(model)
    assert len(value) == len(model)
    due = sorted(when for _, when in model.values() if when)
    assert value.earliest() == (due[0] if due else 0)
    assert value.count_before(5) == sum(when < 5 for when in due)
    assert sorted(model[field][1] for field in value.due(5, 99)) == [when for when in due if when <= 5]
    if model:
        assert_survives(value, model)


def assert_survives(value: Hash, model: dict[bytes, tuple[bytes, int]]) -> None:
    """Assert that a copy, the bytes at rest and the RDB forms hold the same."""
    value.check()
    rest = to_rest(value)
    assert rest is not None
    woken = awaken(rest)
    for twin in (value.copy(), woken):
        twin.check()
        assert twin.encoding() == value.encoding()
        assert {field: (content, when) for field, content, when in twin.rows()} == model
    assert to_rest(woken) == rest
    for compat in (None, COMPATS["newest"], COMPATS["valkey"]):
        loaded = rdb.restore(rdb.dump(value, compat=compat))
        assert isinstance(loaded, Hash)
        loaded.check()
        assert {field: (content, when) for field, content, when in loaded.rows()} == model


def test_fields_rest_in_the_order_of_their_times() -> None:
    """Among equal times the last one that was set comes first; fields without a time come last."""
    value = Hash()
    for field in (b"a", b"b", b"c", b"d"):
        value.set(field, b"v")
    value.start_expiry()
    for field, when in ((b"c", 9), (b"a", 5), (b"d", 5), (b"c", 5), (b"b", 7)):
        value.set_time(field, when)
    assert [field for field, _, _ in value.rows()] == [b"c", b"d", b"a", b"b"]
    value.set_time(b"d", 0)
    assert list(value.rows())[-1] == (b"d", b"v", 0)
    assert value.encoding() == "listpackex"


def test_the_limits_determine_the_encoding() -> None:
    value = Hash()
    for at in range(512):
        value.set(b"%d" % at, b"v")
    value.start_expiry()
    value.set_time(b"7", FAR)
    assert value.encoding() == "listpackex"
    value.set(b"one more", b"v")
    assert value.encoding() == "hashtable"
    assert value.time_of(b"7") == FAR
    long = Hash()
    long.set(b"f", b"v")
    long.start_expiry()
    long.set(b"f", b"v" * 65)
    assert long.encoding() == "hashtable"
    long.check()


# -- as RDB bytes ---------------------------------------------------------------------------------------


def ms(when: int) -> bytes:
    return struct.pack("<q", when)


def triples(*rows: tuple[bytes, bytes, int]) -> bytes:
    packed = Listpack()
    for field, content, when in rows:
        packed.append(field)
        packed.append(content)
        packed.append_int(when)
    return packed.to_bytes()


def timed(kind: int, earliest: int, *rows: tuple[int, bytes, bytes]) -> bytes:
    """Return a payload of type 24, or of 22 without the earliest time."""
    out = RdbWriter()
    out.raw(bytes((kind,)) + (ms(earliest) if kind == 24 else b""))
    out.length(len(rows))
    for when, field, content in rows:
        out.length(when)
        out.string(field)
        out.string(content)
    return bytes(out.out)


def packed(kind: int, *rows: tuple[bytes, bytes, int]) -> bytes:
    """Return a payload of type 25, or of 23 without the registered time."""
    out = RdbWriter()
    out.raw(bytes((kind,)) + (ms(rows[0][2] if rows else 0) if kind == 25 else b""))
    out.string(triples(*rows))
    return bytes(out.out)


MANY = [(1 + at % 3, b"f%d" % at, b"v") for at in range(513)]
SOME = ((b"b", b"2", FAR), (b"a", b"1", FAR + 9), (b"c", b"3", 0))
PAYLOADS = {
    "times": timed(24, FAR, (1, b"a", b"1"), (0, b"b", b"2"), (10, b"c", b"")),
    "equal times": timed(24, FAR, (1, b"a", b"1"), (1, b"b", b"2"), (1, b"c", b"3"), (0, b"d", b"4"), (0, b"e", b"5")),
    "no times": timed(24, FAR, (0, b"a", b"1"), (0, b"b", b"2")),
    "a long value": timed(24, FAR, (5, b"a", b"1"), (1, b"b", b"x" * 65), (0, b"c", b"y")),
    "many fields": timed(24, FAR, *MANY),
    "times of the previews": timed(22, 0, (FAR, b"a", b"1"), (0, b"b", b"2")),
    "triples": packed(25, *SOME),
    "triples without times": packed(25, (b"a", b"1", 0), (b"b", b"2", 0)),
    "triples of the previews": packed(23, *SOME),
    "many triples": packed(25, *((b"f%d" % at, b"v", FAR) for at in range(513))),
}
REFUSED = {
    "no field": timed(24, FAR),
    "a field twice": timed(24, FAR, (1, b"a", b"1"), (1, b"a", b"2")),
    "a field twice in a table": timed(24, FAR, (1, b"a", b"x" * 65), (1, b"a", b"2")),
    "a time that is too late": timed(24, FAR, (1 << 48, b"a", b"1")),
    "fewer fields than told": timed(24, FAR, (1, b"a", b"1"), (1, b"b", b"2"))[:-4],
    "no triples": packed(25),
    "a field twice in triples": packed(25, (b"a", b"1", 5), (b"a", b"1", 6)),
    "a field without a time": body(23, Listpack.from_values([b"a", b"b"]).to_bytes()),
}


@pytest.fixture(params=["8.6", "newest"])
def redis(request: pytest.FixtureRequest, peer_of: Callable[[str], Judge]) -> Iterator[Both]:
    pair = Both(peer_of(request.param), request.param)
    pair.ask("CONFIG", "SET", "sanitize-dump-payload", "yes")
    with pair.redis:
        yield pair


@pytest.mark.parametrize("name", PAYLOADS)
def test_every_rdb_type_is_read_as_by_redis(redis: Both, name: str) -> None:
    ours, theirs = redis.ask("RESTORE", "k", 0, sealed(PAYLOADS[name]), "REPLACE")
    assert ours == theirs == b"OK"
    assert_alike(redis)


def assert_alike(pair: Both) -> None:
    for words in (("OBJECT", "ENCODING", "k"), ("DEBUG", "DIGEST-VALUE", "k")):
        ours, theirs = pair.ask(*words)
        assert ours == theirs, words
    ours, theirs = pair.ask("DUMP", "k")
    assert isinstance(ours, bytes)
    assert isinstance(theirs, bytes)
    one, two = rdb.restore(ours), rdb.restore(theirs)
    assert isinstance(one, Hash)
    assert isinstance(two, Hash)
    assert ours == theirs or pair.local("OBJECT", "ENCODING", "k") == b"hashtable"
    assert sorted(one.rows()) == sorted(two.rows())
    assert ours[0] == theirs[0]
    pair.local.engine.check()


@pytest.mark.parametrize("name", REFUSED)
def test_malformed_hashes_are_rejected(redis: Both, name: str) -> None:
    assert redis.ask("RESTORE", "bad", 0, sealed(REFUSED[name])) == ("Bad data format", "Bad data format")


def of_valkey(*rows: tuple[bytes, bytes, int]) -> bytes:
    """Return a payload of Valkey's type 22."""
    out = RdbWriter()
    out.raw(b"\x16")
    out.length(len(rows))
    for field, content, when in rows:
        out.string(field)
        out.string(content)
        out.milliseconds(when)
    made = bytes(out.out) + struct.pack("<H", VALKEY)
    return made + struct.pack("<Q", crc64(made))


def test_valkey_s_type_is_read_as_by_valkey(peer_of: Callable[[str], Judge]) -> None:
    pair = Both(peer_of("valkey"), "valkey")
    with pair.redis:
        for rows in (
            ((b"a", b"1", FAR), (b"b", b"2", -1), (b"c", b"x" * 70, 5)), ((b"a", b"1", (1 << 63) - 1),),
            tuple((b"f%d" % at, b"v", FAR + at) for at in range(600)),
        ):  # fmt: skip
            assert pair.ask("RESTORE", "k", 0, of_valkey(*rows), "REPLACE") == (b"OK", b"OK")
            assert_alike(pair)
        for rows in (((b"a", b"1", FAR), (b"a", b"2", FAR)), ((b"a", b"1", -2),)):
            ours, theirs = pair.ask("RESTORE", "bad", 0, of_valkey(*rows))
            assert ours == theirs == "Bad data format"


def test_the_version_decides_between_redis_s_and_valkey_s_type_22() -> None:
    preview = rdb.restore(sealed(PAYLOADS["times of the previews"]))
    other = rdb.restore(of_valkey((b"a", b"1", FAR), (b"b", b"2", -1)))
    assert isinstance(preview, Hash)
    assert isinstance(other, Hash)
    assert sorted(preview.rows()) == sorted(other.rows()) == [(b"a", b"1", FAR), (b"b", b"2", 0)]


def test_an_old_version_of_a_file_loses_the_times() -> None:
    value = rdb.restore(sealed(PAYLOADS["times"]))
    for version, kind in ((9, 13), (10, 16), (11, 16), (12, 25), (14, 25), (VALKEY, 22)):
        assert rdb.type_within(value, version) == kind
        lost = [] if kind in (22, 25) else ["the expiry of 2 fields"]
        assert rdb.losses(value, kind) == lost
        out = RdbWriter()
        rdb.save(out, value, kind)
        loaded = rdb.load(RdbReader(bytes(out.out)), kind, version=version)
        assert isinstance(loaded, Hash)
        assert loaded.earliest() == (0 if lost else FAR)
        assert sorted(loaded.items()) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"")]


@pytest.mark.parametrize("name", [name for name in PAYLOADS if "many" not in name])
def test_damaged_bytes_are_rejected_or_give_a_valid_hash(name: str) -> None:
    """Each byte of a payload is changed in turn."""
    good = PAYLOADS[name]
    for at in range(1, min(len(good), 120)):
        for byte in (0, 1, 127, 128, 255, good[at] ^ 1):
            damaged = bytearray(good)
            damaged[at] = byte
            try:
                value = rdb.restore(bytes(damaged) + bytes(10))
            except (Corrupt, IndexError, OverflowError, MemoryError):
                continue
            assert isinstance(value, Hash)
            value.check()
