"""The string commands: what they do to the key, the clock and the log. Replies are compared in tests/differential."""

from __future__ import annotations

from typing import Any

import pytest

import rillet
from tests.commands.ends import NOW, Bench

pytestmark = pytest.mark.both


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("options", "when"),
    [(("EX", 10), NOW + 10_000), (("PX", 10), NOW + 10), (("EXAT", 1_800_000_000), 1_800_000_000_000),
     (("PXAT", NOW + 5), NOW + 5)],
)  # fmt: skip
def test_expiries_are_logged_as_absolute_times(bench: Bench, options: tuple[str, int], when: int) -> None:
    assert bench.logged("SET", "k", "v", *options) == [[b"SET", b"k", b"v", b"PXAT", b"%d" % when]]
    assert bench.engine.databases[0].get_expire(b"k") == when
    bench("SET", "e", "v")
    assert bench.logged("GETEX", "e", *options) == [[b"PEXPIREAT", b"e", b"%d" % when]]


def test_logged_commands_do_not_depend_on_the_clock_or_on_arithmetic(bench: Bench) -> None:
    assert bench.logged("SETEX", "k", 10, "v") == [[b"SET", b"k", b"v", b"PXAT", b"%d" % (NOW + 10_000)]]
    assert bench.logged("PSETEX", "k", 10, "v") == [[b"SET", b"k", b"v", b"PXAT", b"%d" % (NOW + 10)]]
    assert bench.logged("SET", "k", "1.5", "GET") == [[b"SET", b"k", b"1.5"]]
    assert bench.logged("INCRBYFLOAT", "k", "0.1") == [[b"SET", b"k", b"1.6", b"KEEPTTL"]]
    assert bench.logged("GETSET", "k", "v") == [[b"SET", b"k", b"v"]]
    assert bench.logged("GETEX", "k") == []
    assert bench.logged("GETEX", "k", "PERSIST") == []
    assert bench.logged("APPEND", "k", "v") == [[b"APPEND", b"k", b"v"]]
    assert bench.logged("GETDEL", "k") == [[b"DEL", b"k"]]
    assert bench.logged("GETDEL", "k") == []
    assert bench.logged("SET", "k", "v", "XX") == []
    assert bench.logged("MSETNX", "a", 1, "b", 2) == [[b"MSETNX", b"a", b"1", b"b", b"2"]]


def test_getex_with_a_past_time_deletes_the_key(bench: Bench) -> None:
    bench("SET", "k", "v")
    assert bench("GETEX", "k", "PXAT", 5) == b"v"
    assert bench.log.take()[-1] == [b"DEL", b"k"]
    assert bench("EXISTS", "k") == 0


def test_the_deletion_of_an_expired_key_is_logged_before_its_replacement(bench: Bench) -> None:
    bench("SET", "k", "v", "PX", 10)
    bench.clock.advance(11)
    assert bench.logged("SETNX", "k", "w") == [[b"MULTI"], [b"DEL", b"k"], [b"SETNX", b"k", b"w"], [b"EXEC"]]
    assert bench.engine.stats.expired_keys == 1


def test_keepttl_and_increments_keep_the_expiry(bench: Bench) -> None:
    bench("SET", "k", "1", "PX", 1000)
    for command in (("SET", "k", "2", "KEEPTTL"), ("INCR", "k"), ("INCRBYFLOAT", "k", "1"), ("APPEND", "k", "0"),
                    ("SETRANGE", "k", 0, "9")):  # fmt: skip
        bench(*command)
        assert bench("PTTL", "k") == 1000, command
    bench("SET", "k", "1")
    assert bench("PTTL", "k") == -1


def test_the_length_of_strings_is_limited_for_clients_but_not_for_a_log(bench: Bench) -> None:
    bench("CONFIG", "SET", "proto-max-bulk-len", 1024 * 1024)
    assert bench("SETRANGE", "k", 1024 * 1024, "x").startswith("ERR string exceeds maximum allowed size")
    assert bench("EXISTS", "k") == 0
    bench.session.trusted = True
    assert bench("SETRANGE", "k", 1024 * 1024, "x") == 1024 * 1024 + 1


@pytest.mark.parametrize("size", [2**20, 2**60 - 1, 2**60, 2**63 - 1])
def test_every_offset_below_the_limit_is_valid(bench: Bench, size: int) -> None:
    """A limit in bits may exceed 64 bits."""
    bench("CONFIG", "SET", "proto-max-bulk-len", size)
    assert bench("SETBIT", "k", 7, 1) == 0
    assert bench("BITFIELD", "k", "GET", "u8", 0) == [1]
    assert bench("GETBIT", "k", min(8 * size, 2**63) - 1) == 0
    assert str(bench("GETBIT", "k", min(8 * size, 2**63))).startswith("ERR bit offset")


def test_a_replayed_log_accepts_expiries_in_the_past(bench: Bench) -> None:
    bench.engine.loading = bench.session.trusted = True
    bench("SET", "k", "v", "PXAT", 5)
    bench("PERSIST", "k")
    assert bench("GET", "k") == b"v"


@pytest.mark.parametrize(
    ("encoding", "value", "stored"),  # of a redis-server 7.0.15: the largest value minus this one has 64 bits or more
    [("i13", -(2**63), 4095), ("i13", -(2**63) + 4095, 4095), ("i13", -(2**63) + 4096, -4096), ("i1", -(2**63), 0),
     ("i1", -(2**63) + 1, -1), ("i64", -(2**63), -(2**63))],
)  # fmt: skip
def test_a_field_saturates_as_in_redis_at_the_lowest_numbers(
    bench: Bench, encoding: str, value: int, stored: int
) -> None:
    bench("BITFIELD", "k", "OVERFLOW", "SAT", "SET", encoding, 0, value)
    assert bench("BITFIELD", "k", "GET", encoding, 0) == [stored]


def test_failed_commands_change_nothing(bench: Bench) -> None:
    bench("XADD", "s", "1-1", "f", "v")
    bench.log.take()
    for command in (("SET", "s", "v", "GET"), ("GETSET", "s", "v"), ("APPEND", "s", "v"), ("INCR", "s"),
                    ("SETRANGE", "s", 0, "v"), ("GETDEL", "s"), ("INCRBYFLOAT", "s", 1), ("STRLEN", "s"),
                    ("GETEX", "s", "PERSIST")):  # fmt: skip
        assert bench(*command).startswith("WRONGTYPE"), command
    assert bench.log.take() == []
    assert bench("XLEN", "s") == 1


@pytest.mark.parametrize(
    ("size", "expected"),  # of OBJECT ENCODING in Valkey 9.1.2, after each of the commands below
    [(104, "embstr embstr embstr embstr raw"), (105, "embstr raw raw raw raw"), (112, "embstr raw raw raw raw"),
     (113, "raw raw raw raw raw")],
)  # fmt: skip
def test_an_expiry_separates_a_long_string_from_its_key_in_valkey(size: int, expected: str) -> None:
    text = b"x" * size
    with rillet.open(compat="valkey") as store:
        shown = []
        commands: list[list[Any]] = [
            ["SET", "k", text], ["EXPIRE", "k", 100], ["PERSIST", "k"], ["GETEX", "k", "EX", 100],
            ["COPY", "k", "kk", "REPLACE"],
        ]  # fmt: skip
        for command in commands:
            store.execute(*command)
            shown.append(store.execute("OBJECT", "ENCODING", command[2 if command[0] == "COPY" else 1]).decode())
        assert " ".join(shown) == expected
