"""PFADD, PFCOUNT, PFMERGE, PFDEBUG and PFSELFTEST: what the differential test does not compare."""

from __future__ import annotations

import random

import pytest

from rillet.structs.hyperloglog import EMPTY, uses_words
from tests.commands.ends import Bench

WRONG = "WRONGTYPE Key is not a valid HyperLogLog string value."
CORRUPT = "INVALIDOBJ Corrupted HLL object detected"


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_new_key_has_no_elements(bench: Bench) -> None:
    assert bench("PFADD", "k") == 1
    assert bench("GET", "k") == EMPTY[:15] + b"\x80" + EMPTY[16:]
    assert (bench("PFADD", "k"), bench("PFCOUNT", "k"), bench("PFCOUNT", "none")) == (0, 0, 0)
    assert bench("PFMERGE", "m") == b"OK"
    assert bench("EXISTS", "m") == 1
    assert bench("OBJECT", "ENCODING", "m") == b"raw"


def test_strings_without_a_header_are_rejected(bench: Bench) -> None:
    for value in (b"", b"12", b"HYLL", b"HYLL\2" + bytes(11), b"hYLL\1" + bytes(13), b"HYLL\0" + bytes(12298)):
        bench("SET", "k", value)
        for argv in (("PFADD", "k", "x"), ("PFCOUNT", "k"), ("PFCOUNT", "j", "k"), ("PFMERGE", "j", "k"),
                     ("PFMERGE", "k"), ("PFDEBUG", "ENCODING", "k")):  # fmt: skip
            assert bench(*argv) == WRONG, (value, argv)
    bench("RPUSH", "l", "x")
    assert bench("PFADD", "l", "x").startswith("WRONGTYPE Operation")
    assert bench("EXISTS", "j") == 0


def test_corrupt_opcodes_are_reported_by_the_command_that_reads_them(bench: Bench) -> None:
    short = EMPTY[:15] + b"\x80" + b"\x80"  # one register
    for argv in (("PFCOUNT", "k"), ("PFCOUNT", "j", "k"), ("PFMERGE", "j", "k"), ("PFMERGE", "k"),
                 ("PFDEBUG", "GETREG", "k"), ("PFDEBUG", "TODENSE", "k"), ("PFADD", "k", "x")):  # fmt: skip
        bench("SET", "k", short)
        assert bench(*argv) == CORRUPT, argv
        assert bench("GET", "k") == short
    assert bench("EXISTS", "j") == 0


def test_an_estimate_that_is_written_is_a_change(bench: Bench) -> None:
    other = bench.engine.session()
    bench("PFADD", "k", "a")
    for expected in (None, [1]):  # the second time, the estimate is in the string
        bench.engine.execute(other, [b"WATCH", b"k"])
        assert bench("PFCOUNT", "k") == 1
        bench.engine.execute(other, [b"MULTI"])
        bench.engine.execute(other, [b"EXISTS", b"k"])
        other.out.take_bytes()
        bench.engine.execute(other, [b"EXEC"])
        assert other.out.take_bytes() == (b"*-1\r\n" if expected is None else b"*1\r\n:1\r\n")


def test_the_log_leads_to_the_same_bytes(bench: Bench) -> None:
    chance = random.Random(1)
    for _ in range(150):
        key = chance.choice("abc")
        bench("PFADD", key, *(chance.randrange(10**4) for _ in range(chance.choice((1, 20)))))
        bench(*chance.choice((("PFCOUNT", key), ("PFMERGE", key, "a", "b"), ("PFDEBUG", "TODENSE", "c"))))
    other = Bench()
    for argv in bench.log.take():
        other.run(argv)
    assert bench("DEBUG", "DIGEST") == other("DEBUG", "DIGEST")


def test_debugging(bench: Bench) -> None:
    bench("PFADD", "k", "a", "b", "c")
    assert bench("PFDEBUG", "decode", "k") == b"Z:8436 v:1,1 Z:4274 v:2,1 Z:3068 v:1,1 Z:603"
    assert bench("PFDEBUG", "ENCODING", "k") == b"sparse"
    registers = bench("PFDEBUG", "GETREG", "k")
    assert {n: value for n, value in enumerate(registers) if value} == {8436: 1, 12711: 2, 15780: 1}
    assert bench("PFDEBUG", "ENCODING", "k") == b"dense"
    assert bench("PFDEBUG", "TODENSE", "k") == 0
    assert bench("PFDEBUG", "DECODE", "k") == "ERR HLL encoding is not sparse"
    assert bench("PFDEBUG", "ENCODING", "none") == "ERR The specified key does not exist"
    assert bench("PFDEBUG", "nosuch", "k") == "ERR Unknown PFDEBUG subcommand 'nosuch'"


def test_the_choice_of_the_loop_is_that_of_newer_servers() -> None:
    bench = Bench(compat="newest")
    try:
        assert bench("PFDEBUG", "SIMD", "off") == b"disabled"
        assert not uses_words()
    finally:
        assert bench("PFDEBUG", "SIMD", "ON") == b"enabled"
    assert bench("PFDEBUG", "SIMD", "maybe") == "ERR Argument must be ON or OFF"
    assert Bench()("PFDEBUG", "SIMD", "on") == "ERR The specified key does not exist"


def test_the_self_test(bench: Bench) -> None:
    assert bench("PFSELFTEST") == b"OK"
