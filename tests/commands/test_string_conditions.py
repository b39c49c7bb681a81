"""Conditions on strings, INCREX and shared integers: the log, the events and what the four servers differ in."""

from __future__ import annotations

import pytest

from rillet.types.string import hex_digest
from tests.commands.ends import NOW, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench(compat="newest")


def test_a_conditional_set_is_logged_without_get(bench: Bench) -> None:
    bench("SET", "k", "GET")
    assert bench.logged("SET", "k", "v", "get", "IFEQ", "GET", "GET") == [[b"SET", b"k", b"v", b"IFEQ", b"GET"]]
    assert bench.logged("SET", "k", "w", "IFEQ", "x") == []
    assert bench.logged("SET", "k", "w", "IFDEQ", hex_digest(b"v").upper(), "EX", 5) == [
        [b"SET", b"k", b"w", b"PXAT", b"%d" % (NOW + 5000)]
    ]


def test_a_wrong_digest_is_one_error(bench: Bench) -> None:
    """Redis writes the value and then the error, which leaves a client with one reply too many."""
    bench("SET", "k", "v")
    reply = bench.run([b"SET", b"k", b"w", b"GET", b"IFDEQ", b"x"])
    assert reply == b"-ERR must be exactly 16 hexadecimal characters\r\n"
    assert bench("GET", "k") == b"v"


@pytest.mark.parametrize("line", [
    "DELEX k IFEQ v", "DELEX k IFNE x", f"DELEX k IFDEQ {hex_digest(b'v').decode()}", "DELEX k IFDNE 0000000000000000",
])  # fmt: skip
def test_a_conditional_deletion_is_logged_as_del(bench: Bench, line: str) -> None:
    assert bench.logged(*line.split()) == []
    bench("SET", "k", "v")
    assert bench.logged(*line.split()) == [[b"DEL", b"k"]]
    assert bench("EXISTS", "k") == 0


def test_delifeq_exists_in_valkey_only(bench: Bench) -> None:
    assert bench.run([b"DELIFEQ", b"k", b"v"]).startswith(b"-ERR unknown command")
    valkey = Bench(compat="valkey")
    valkey("SET", "k", "v")
    assert valkey("DELIFEQ", "k", "x") == 0
    assert valkey.logged("DELIFEQ", "k", "v") == [[b"DEL", b"k"]]
    assert valkey.run([b"DIGEST", b"k"]).startswith(b"-ERR unknown command")
    assert b"delifeq" in valkey("COMMAND", "LIST")


def test_msetex_is_logged_with_the_absolute_expiry(bench: Bench) -> None:
    assert bench.logged("MSETEX", 2, "a", 1, "b", 2, "px", 100, "NX") == [
        [b"MSETEX", b"2", b"a", b"1", b"b", b"2", b"PXAT", b"%d" % (NOW + 100), b"NX"]
    ]
    assert bench.logged("MSETEX", 2, "a", 1, "c", 2, "NX") == []
    assert (bench("EXISTS", "c"), bench("PTTL", "b")) == (0, 100)


def test_increx_is_logged_as_its_result(bench: Bench) -> None:
    assert bench.logged("INCREX", "n", "BYINT", 5) == [[b"SET", b"n", b"5", b"KEEPTTL"]]
    assert bench.logged("INCREX", "n", "EX", 9) == [[b"SET", b"n", b"6", b"PXAT", b"%d" % (NOW + 9000)]]
    assert bench.logged("INCREX", "n", "BYFLOAT", "0.5", "EX", 5, "ENX") == [[b"SET", b"n", b"6.5", b"KEEPTTL"]]
    assert bench.logged("INCREX", "n", "BYFLOAT", "0.5", "PERSIST") == [[b"SET", b"n", b"7"]]
    assert bench.logged("INCREX", "n", "UBOUND", 5) == []
    assert bench.logged("INCREX", "n", "PXAT", 5) == [[b"DEL", b"n"]]
    assert bench.engine.stats.expired_keys == 1


@pytest.mark.parametrize("resp", [2, 3])
def test_increx_replies_with_doubles_in_resp3(bench: Bench, resp: int) -> None:
    bench("HELLO", resp)
    expected = b"*2\r\n,0.1\r\n,0.1\r\n" if resp == 3 else b"*2\r\n$3\r\n0.1\r\n$3\r\n0.1\r\n"
    assert bench.run([b"INCREX", b"n", b"BYFLOAT", b"0.1"]) == expected


def test_small_integers_are_shared_until_8_0() -> None:
    for compat, count in (("7.0", 2**31 - 1), ("newest", 1), ("valkey", 1)):
        bench = Bench(compat=compat)
        bench("SET", "n", 5)
        assert bench("OBJECT", "REFCOUNT", "n") == count
        bench("COPY", "n", "m")
        assert (bench("OBJECT", "REFCOUNT", "m"), bench("OBJECT", "ENCODING", "m")) == (1, b"int")
        bench("INCR", "m")
        assert bench("OBJECT", "REFCOUNT", "m") == count
        bench.engine.check()


@pytest.mark.parametrize(("compat", "size"), [("7.0", 44), ("8.0", 44), ("8.6", 38), ("newest", 38), ("valkey", 110)])
def test_the_longest_embedded_string_depends_on_the_server_and_the_key(compat: str, size: int) -> None:
    bench = Bench(compat=compat)
    bench("SET", "key", "x" * size)
    assert bench("OBJECT", "ENCODING", "key") == b"embstr"
    bench("SET", "key", "x" * (size + 1))
    assert bench("OBJECT", "ENCODING", "key") == b"raw"
    bench("RENAME", "key", "k")
    assert bench("OBJECT", "ENCODING", "k") == b"raw"


def test_in_valkey_an_expiry_takes_room_when_a_string_is_replaced() -> None:
    bench = Bench(compat="valkey")
    for expiry, encoding in (((), b"embstr"), (("EX", 100), b"raw")):
        bench("SET", "key", 1, *expiry)
        bench("SET", "key", "x" * 103)
        assert bench("OBJECT", "ENCODING", "key") == encoding
        bench("EXPIRE", "key", 100)
        assert bench("OBJECT", "ENCODING", "key") == b"raw"
        bench("DEL", "key")
    bench.engine.check()


def test_scans_keep_expired_keys_in_transactions_if_the_setting_says_so() -> None:
    bench = Bench(compat="newest")
    assert bench("CONFIG", "GET", "lazyexpire*") == []
    for kept, size in (("no", 1), ("yes", 0)):
        bench("CONFIG", "SET", "lazyexpire-nested-arbitrary-keys", kept)
        bench("SET", "k", "v", "PX", 10)
        bench.clock.advance(11)
        bench("MULTI")
        bench("SCAN", 0)
        bench("DBSIZE")
        assert bench("EXEC") == [[b"0", []], size]
        assert bench("SCAN", 0) == [b"0", []]
        assert bench("DBSIZE") == 0


def test_lpos_of_the_least_rank() -> None:
    """Redis 7.0 cannot negate it, so that each match counts; later servers reject it."""
    bench = Bench(compat="7.0")
    bench("RPUSH", "l", "a", "b", "c", "b")
    assert bench("LPOS", "l", "b", "RANK", -(2**63)) == 3
    assert bench("LPOS", "l", "b", "RANK", -(2**63), "COUNT", 1) == [3, 1]
    reply = Bench(compat="newest").run([b"LPOS", b"l", b"b", b"RANK", b"%d" % -(2**63)])
    assert reply.startswith(b"-ERR value is out of")


@pytest.mark.parametrize("line", ["COPY a b DB 2147483648", "MOVE a 2147483648", "SELECT -2147483649"])
def test_a_number_beyond_32_bits_names_the_range(bench: Bench, line: str) -> None:
    bench("SET", "a", 1)
    expected = b"-ERR value is out of range, value must between -2147483648 and 2147483647\r\n"
    assert bench.run(line.encode().split()) == expected
