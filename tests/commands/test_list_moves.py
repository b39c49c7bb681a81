"""LMOVEM: which elements move, in which order, and what the log contains. No reference server has the command yet."""

from __future__ import annotations

import pytest

from tests.commands.ends import Bench

pytestmark = pytest.mark.both


@pytest.fixture
def bench() -> Bench:
    bench = Bench(compat="newest")
    bench("RPUSH", "s", "a", "b", "c", "d")
    bench("RPUSH", "t", "x", "y")
    return bench


@pytest.mark.parametrize(("sides", "order", "moved", "target"), [
    ("LEFT LEFT", "OBO", "ba", "baxy"), ("LEFT LEFT", "BULK", "ab", "abxy"),
    ("LEFT RIGHT", "OBO", "ab", "xyab"), ("LEFT RIGHT", "BULK", "ab", "xyab"),
    ("RIGHT LEFT", "OBO", "cd", "cdxy"), ("RIGHT LEFT", "bulk", "cd", "cdxy"),
    ("RIGHT RIGHT", "obo", "dc", "xydc"), ("RIGHT RIGHT", "BULK", "cd", "xycd"),
])  # fmt: skip
def test_the_order_depends_on_the_sides(bench: Bench, sides: str, order: str, moved: str, target: str) -> None:
    line = ["LMOVEM", "s", "t", *sides.split(), "COUNT", "2", order]
    assert bench.logged(*line) == [[word.encode() for word in line]]
    bench("FLUSHALL")
    bench("RPUSH", "s", "a", "b", "c", "d")
    bench("RPUSH", "t", "x", "y")
    assert b"".join(bench(*line)).decode() == moved
    assert b"".join(bench("LRANGE", "t", 0, -1)).decode() == target
    bench.engine.check()


@pytest.mark.parametrize(("line", "left"), [
    ("s s LEFT LEFT COUNT 2 OBO", "bacd"), ("s s LEFT LEFT COUNT 2 BULK", "abcd"),
    ("s s LEFT RIGHT COUNT 2 BULK", "cdab"), ("s s RIGHT LEFT COUNT 9 OBO", "abcd"), ("s s LEFT RIGHT", "bcda"),
])  # fmt: skip
def test_a_list_can_be_its_own_target(bench: Bench, line: str, left: str) -> None:
    bench("LMOVEM", *line.split())
    assert b"".join(bench("LRANGE", "s", 0, -1)).decode() == left
    bench.engine.check()


def test_too_few_elements_are_null(bench: Bench) -> None:
    assert bench.run(b"LMOVEM s t LEFT LEFT EXACTLY 5 OBO".split()) == b"*-1\r\n"
    assert bench.run(b"LMOVEM none t LEFT LEFT".split()) == b"*-1\r\n"
    assert bench.logged("LMOVEM", "none", "t", "LEFT", "LEFT", "COUNT", 3, "BULK") == []
    assert bench("LMOVEM", "s", "u", "LEFT", "RIGHT", "COUNT", 9, "BULK") == [b"a", b"b", b"c", b"d"]
    assert (bench("EXISTS", "s"), bench("LLEN", "u")) == (0, 4)


@pytest.mark.parametrize(
    "options", ["COUNT 2", "COUNT 0 OBO", "COUNT x OBO", "EXACTLY 1 ANY", "2 OBO", "COUNT 1 OBO x"]
)
def test_wrong_options_are_errors(bench: Bench, options: str) -> None:
    assert bench.run(b"LMOVEM s t LEFT LEFT".split() + options.encode().split()).startswith(b"-ERR ")
    bench("SET", "text", "x")
    assert bench.run(b"LMOVEM s text LEFT LEFT".split()).startswith(b"-WRONGTYPE")
    assert bench("LLEN", "s") == 4


def test_it_begins_with_8_10() -> None:
    assert Bench(compat="8.6").run(b"LMOVEM s t LEFT LEFT".split()).startswith(b"-ERR unknown command")
