"""SORT: its log, its events, what it does to the sorted value, and its restrictions."""

from __future__ import annotations

import pytest

from tests.commands.ends import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_only_store_is_logged(bench: Bench) -> None:
    bench("RPUSH", "l", 3, 1, 2)
    assert bench.logged("SORT", "l") == []
    assert bench.logged("SORT", "l", "STORE", "m") == [[b"SORT", b"l", b"STORE", b"m"]]
    assert bench.logged("SORT", "none", "STORE", "none") == []
    assert bench.logged("SORT", "none", "STORE", "m") == [[b"SORT", b"none", b"STORE", b"m"]]
    assert bench("EXISTS", "m") == 0


def test_an_expired_weight_counts_as_0_and_is_logged_as_deleted(bench: Bench) -> None:
    bench("RPUSH", "l", 3, 1, 2)
    bench("SET", "w_3", -1)
    bench("SET", "w_2", -5, "PX", 10)
    assert bench("SORT", "l", "BY", "w_*") == [b"2", b"3", b"1"]
    bench.clock.advance(11)
    assert bench.logged("SORT", "l", "BY", "w_*") == [[b"DEL", b"w_2"]]
    assert bench("SORT", "l", "BY", "w_*") == [b"3", b"1", b"2"]


@pytest.mark.parametrize("command", ["SORT", "SORT_RO"])
def test_a_sorted_set_becomes_a_skiplist(bench: Bench, command: str) -> None:
    bench("ZADD", "z", 1, "b", 2, "a")
    assert bench("OBJECT", "ENCODING", "z") == b"listpack"
    assert bench(command, "z", "ALPHA") == [b"a", b"b"]
    assert bench("OBJECT", "ENCODING", "z") == b"skiplist"
    assert bench(command, "z", "BY", "nosort", "DESC") == [b"a", b"b"]
    bench.engine.check()


def test_the_list_may_be_stored_over_itself(bench: Bench) -> None:
    bench("RPUSH", "l", 3, 1, 2)
    bench("EXPIRE", "l", 100)
    assert bench("SORT", "l", "STORE", "l") == 3
    assert (bench("LRANGE", "l", 0, -1), bench("TTL", "l")) == ([b"1", b"2", b"3"], -1)


@pytest.mark.parametrize(("compat", "encoding"), [("7.0", b"quicklist"), ("newest", b"listpack")])
def test_a_stored_list_has_the_encoding_of_its_size(compat: str, encoding: bytes) -> None:
    bench = Bench(compat=compat)
    bench("RPUSH", "l", 3, 1, 2)
    bench("SORT", "l", "STORE", "m")
    assert bench("OBJECT", "ENCODING", "m") == encoding
    bench("RPUSH", "l", *range(5000))
    bench("SORT", "l", "STORE", "m")
    assert bench("OBJECT", "ENCODING", "m") == b"quicklist"
    bench.engine.check()


def test_keys_are_the_sorted_one_and_the_last_destination(bench: Bench) -> None:
    line = ["SORT", "a", "BY", "store", "STORE", "b", "LIMIT", "store", "store", "GET", "store", "store", "c"]
    assert bench("COMMAND", "GETKEYS", *line) == [b"a", b"c"]
    assert bench("COMMAND", "GETKEYS", "SORT_RO", "a", "BY", "b") == [b"a"]
