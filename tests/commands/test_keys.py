"""Commands on keys of any type and on expiry: effects on other databases, the clock and the log."""

from __future__ import annotations

import pytest

from tests.commands.ends import NOW, Bench

pytestmark = pytest.mark.both


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_expiries_are_logged_as_absolute_times(bench: Bench) -> None:
    bench("SET", "k", "v")
    assert bench.logged("EXPIRE", "k", 10) == [[b"PEXPIREAT", b"k", b"%d" % (NOW + 10_000)]]
    assert bench.logged("PEXPIRE", "k", 10, "LT") == [[b"PEXPIREAT", b"k", b"%d" % (NOW + 10), b"LT"]]
    assert bench.logged("EXPIREAT", "k", 1_800_000_000) == [[b"PEXPIREAT", b"k", b"1800000000000"]]
    assert bench.logged("EXPIRE", "k", 10, "NX") == []
    assert bench.logged("PERSIST", "k") == [[b"PERSIST", b"k"]]
    assert bench.logged("EXPIRE", "k", -1) == [[b"DEL", b"k"]]
    assert bench("EXISTS", "k") == 0


def test_a_replayed_log_does_not_delete_by_the_clock(bench: Bench) -> None:
    bench.engine.loading = bench.session.trusted = True
    bench("SET", "k", "v")
    assert bench("PEXPIREAT", "k", 5) == 1
    assert bench("GET", "k") == b"v"
    bench.engine.loading = False
    assert bench("GET", "k") == b"-1"


@pytest.mark.parametrize(("milliseconds", "seconds"), [(1499, 1), (1500, 2), (400, 0)])
def test_ttl_rounds_to_the_nearer_second(bench: Bench, milliseconds: int, seconds: int) -> None:
    bench("SET", "k", "v", "PX", milliseconds)
    assert (bench("TTL", "k"), bench("PTTL", "k")) == (seconds, milliseconds)
    assert bench("PEXPIRETIME", "k") == NOW + milliseconds


def test_rename_keeps_the_expiry_and_replaces_the_target(bench: Bench) -> None:
    bench("SET", "a", 1, "PX", 500)
    bench("SET", "b", 2, "PX", 900)
    assert bench.logged("RENAME", "a", "b") == [[b"RENAME", b"a", b"b"]]
    assert (bench("GET", "b"), bench("PTTL", "b"), bench("EXISTS", "a")) == (b"1", 500, 0)


def test_a_copy_is_independent_of_its_source(bench: Bench) -> None:
    bench("SET", "a", "x", "PX", 500)
    bench("APPEND", "a", "y")
    bench("XADD", "s", "1-1", "f", "v")
    bench("XGROUP", "CREATE", "s", "g", 0)
    assert bench("COPY", "a", "b") == 1
    assert bench("COPY", "s", "s", "DB", 3) == 1
    bench("APPEND", "a", "z")
    bench("XADD", "s", "2-1", "f", "v")
    bench("XREADGROUP", "GROUP", "g", "me", "STREAMS", "s", ">")
    assert (bench("GET", "b"), bench("PTTL", "b"), bench("OBJECT", "ENCODING", "b")) == (b"xy", 500, b"raw")
    bench("SELECT", 3)
    assert bench("XLEN", "s") == 1
    assert bench("XPENDING", "s", "g")[0] == 0
    bench.engine.check()


def test_move_and_swap_are_seen_by_every_session(bench: Bench) -> None:
    other = bench.beside()
    bench("SET", "k", "v", "PX", 700)
    assert bench("MOVE", "k", 1) == 1
    other("SELECT", 1)
    assert other("PTTL", "k") == 700
    bench("SWAPDB", 0, 1)
    assert bench("GET", "k") == b"v"
    assert other("GET", "k") == b"-1"


def test_a_flush_of_an_empty_database_is_logged(bench: Bench) -> None:
    assert bench.logged("FLUSHDB") == [[b"FLUSHDB"]]
    assert bench.logged("FLUSHALL", "ASYNC") == [[b"FLUSHALL", b"ASYNC"]]


def test_a_scan_ends_and_returns_only_matching_keys(bench: Bench) -> None:
    for number in range(95):
        bench("SET", f"key:{number}", "v")
    bench("XADD", "stream", "1-1", "f", "v")
    bench("SET", "gone", "v", "PX", 1)
    bench.clock.advance(5)
    cursor, found = b"0", []
    for _ in range(20):
        cursor, more = bench("SCAN", cursor, "COUNT", 7, "MATCH", "*[0-9g]*", "TYPE", "string")
        found += more
        if cursor == b"0":
            break
    assert cursor == b"0"
    assert len(found) == 95 == len(set(found))


def test_wait_times_out_because_there_are_no_replicas(bench: Bench) -> None:
    assert bench("WAIT", 0, 0) == 0
    session = bench.session
    assert not bench.engine.execute(session, [b"WAIT", b"1", b"100"])
    assert session.blocked is not None
    assert session.blocked.deadline == NOW + 100
    bench.engine.blocking.expire(session)
    assert session.out.take_bytes() == b":0\r\n"


def test_small_integers_count_as_shared(bench: Bench) -> None:
    for value, count in ((9999, 2**31 - 1), (10000, 1), ("x", 1), (-1, 1)):
        bench("SET", "k", value)
        assert bench("OBJECT", "REFCOUNT", "k") == count
    bench("SET", "k", 1)
    bench("INCR", "k")
    assert bench("OBJECT", "REFCOUNT", "k") == 2**31 - 1


def test_debug_object_shows_the_encoding(bench: Bench) -> None:
    bench("SET", "k", 20000)
    before = bench("DEBUG", "OBJECT", "k")
    assert b"encoding:int" in before
    bench("INCR", "k")
    assert bench("DEBUG", "OBJECT", "k") == before


def test_memory_grows_with_the_value(bench: Bench) -> None:
    bench("SET", "small", "v")
    bench("SET", "large", "v" * 10_000)
    bench("XADD", "s", "1-1", "f", "v")
    assert 20 < bench("MEMORY", "USAGE", "small") < 400
    assert 10_000 < bench("MEMORY", "USAGE", "large") < 10_400
    assert bench("MEMORY", "USAGE", "s") > 100


def test_a_restored_key_with_an_overflowing_expiry_expires_at_once(bench: Bench) -> None:
    bench("SET", "k", "v")
    payload = bench("DUMP", "k")
    assert bench.logged("RESTORE", "k", (1 << 63) - 1, payload, "REPLACE") == [[b"DEL", b"k"]]
    assert bench("EXISTS", "k") == 0


def test_a_delivery_count_above_63_bits_is_logged_in_a_readable_form(bench: Bench) -> None:
    bench("XADD", "s", "1-1", "f", "v")
    bench("XGROUP", "CREATE", "s", "g", 0)
    bench("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    bench("XCLAIM", "s", "g", "c", 0, "1-1", "RETRYCOUNT", (1 << 63) - 1)
    (claim,) = bench.logged("XCLAIM", "s", "g", "c", 0, "1-1")
    assert claim[8:10] == [b"RETRYCOUNT", b"-9223372036854775808"]
    assert bench(*claim) == [b"1-1"]


def test_an_overflowed_read_counter_is_logged_as_unknown(bench: Bench) -> None:
    bench("XADD", "s", "1-1", "f", "v")
    bench("XGROUP", "CREATE", "s", "g", 0, "ENTRIESREAD", (1 << 63) - 1)
    logged = bench.logged("XREADGROUP", "GROUP", "g", "c", "NOACK", "STREAMS", "s", ">")[:-1]
    assert logged[-1][-2:] == [b"ENTRIESREAD", b"-1"]
    assert bench(*logged[-1]) == b"OK"
