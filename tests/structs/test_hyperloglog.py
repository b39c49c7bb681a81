"""HyperLogLog strings: both forms against a dict of registers, and strings of any bytes."""

from __future__ import annotations

import random

import pytest

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.structs.hyperloglog import (
    DENSE_SIZE,
    EMPTY,
    HEADER,
    REGISTERS,
    count_registers,
    decode,
    registers_of,
    store_registers,
    to_dense,
    use_words,
)
from tests.differential.wire import Local
from tests.variants import by_speed


def _registers(values: dict[int, int]) -> bytearray:
    registers = bytearray(REGISTERS)
    for index, value in values.items():
        registers[index] = value
    return registers


@pytest.mark.parametrize("largest", [3, 32, 51])
@pytest.mark.parametrize("limit", [0, 200, 20_000])
def test_registers_are_raised_in_both_forms(limit: int, largest: int) -> None:
    chance = random.Random(f"{limit} {largest}")
    string, model = bytearray(EMPTY), dict[int, int]()
    for _ in range(by_speed(30, 8)):
        start, width = chance.randrange(REGISTERS), chance.choice((40, 400))
        more = {(start + chance.randrange(width)) % REGISTERS: chance.randrange(1, largest + 1) for _ in range(40)}
        assert store_registers(string, _registers(more), False, limit)
        model = {index: max(model.get(index, 0), more.get(index, 0)) for index in {*model, *more}}
        assert registers_of(string) == _registers(model)
        assert len(string) <= max(limit, len(EMPTY)) or len(string) == DENSE_SIZE
    dense = bytearray(string)
    assert to_dense(dense)
    assert (len(dense), dense[4]) == (DENSE_SIZE, 0)
    assert registers_of(dense) == _registers(model)
    assert string[4] == 1 or limit < 20_000 or largest > 32


@pytest.mark.parametrize("words", [True, False])
def test_dense_registers_are_merged_one_or_eight_at_a_time(words: bool) -> None:
    """Two dense strings and a sparse one, in both orders, into a dense target and into a new one."""
    chance = random.Random(5)
    one, other = (bytearray(chance.randrange(64) for _ in range(REGISTERS)) for _ in range(2))
    few = _registers({chance.randrange(REGISTERS): chance.randrange(1, 33) for _ in range(300)} | {REGISTERS - 1: 32})
    largest = bytearray(map(max, one, other, few))
    local = Local(Engine(Settings(compat="newest")))
    for name, registers in ((b"one", one), (b"other", other), (b"target", other), (b"few", few)):
        string = bytearray(EMPTY)
        assert store_registers(string, registers, registers is not few, 3000)
        assert registers_of(string) == registers
        local.run([b"SET", name, bytes(string)])
    use_words(words)
    try:
        for argv in ([b"target", b"one", b"few"], [b"new", b"few", b"other", b"one"]):
            assert local.run([b"PFMERGE", *argv]) == b"+OK\r\n"
            merged = local.run([b"GET", argv[0]])
            assert registers_of(merged[merged.index(b"\n") + 1 : -2]) == largest
            count = local.run([b"PFCOUNT", *argv[1:], b"other"])
            assert count == b":%d\r\n" % count_registers(largest)
        assert local.run([b"PFMERGE", b"sparse", b"few"]) == b"+OK\r\n"
        assert local.run([b"PFCOUNT", b"sparse", b"few"]) == b":%d\r\n" % count_registers(few)
        assert local.run([b"PFDEBUG", b"ENCODING", b"sparse"]) == b"+sparse\r\n"
    finally:
        use_words(True)


@pytest.mark.parametrize("largest", [0, 1, 2, 20, 31, 32, 51, 63])
def test_the_estimate_is_that_of_the_counted_registers(largest: int) -> None:
    """PFCOUNT of one and of two strings; a value above 31 needs the numbers of registers by value."""
    chance = random.Random(largest)
    local = Local(Engine(Settings(compat="newest")))
    for _ in range(by_speed(5, 2)):
        registers = bytearray(min(int(chance.expovariate(0.3)), largest) for _ in range(REGISTERS))
        registers[chance.randrange(REGISTERS)] = largest
        string = bytearray(EMPTY)
        assert store_registers(string, registers, True, 0)
        string[15] = 0x80
        local.run([b"SET", b"k", bytes(string)])
        expected = b":%d\r\n" % count_registers(registers)
        assert local.run([b"PFCOUNT", b"k", b"k"]) == expected
        assert local.run([b"PFCOUNT", b"k"]) == expected


def test_the_estimate_at_the_ends() -> None:
    assert count_registers(_registers({})) == 0
    assert count_registers(_registers({7: 1})) == 1
    assert count_registers(bytearray(b"\x01") * REGISTERS) > 10_000
    assert count_registers(bytearray(b"\x32") * REGISTERS) == -(2**63)  # too large for 64 bits, as in C
    assert count_registers(bytearray(b"\x3f") * REGISTERS) == -(2**63)
    with pytest.raises(IndexError):
        count_registers(bytearray(5))


def test_opcodes_as_text() -> None:
    assert decode(EMPTY) == b"Z:16384"
    assert decode(EMPTY[:HEADER] + b"\x00\x3f\x80\xff\x41\x00\x40") == b"z:1 z:64 v:1,1 v:32,4 Z:257 Z:1"


def test_strings_of_any_bytes_are_rejected_or_work() -> None:
    """Whatever users write: a reply or an error, and a string that all commands still accept or reject."""
    chance = random.Random(11)
    local = Local(Engine(Settings(compat="newest")))
    for _ in range(by_speed(1000, 200)):
        size = chance.choice((0, 1, 3, 30, 200, 12288))
        start = b"HYLL" + bytes((chance.choice((0, 1, 1, 1, 2)),)) + chance.randbytes(11)
        body = chance.randbytes(size) if chance.random() < 0.5 else bytes(chance.choices((0x7F, 0xFF, 0x80, 1), k=size))
        local.run([b"SET", b"k", start[: chance.choice((16, 16, 16, 9))] + body + chance.choice((b"", b"\x7f\xff"))])
        for _ in range(3):
            argv = chance.choice((
                [b"PFADD", b"k", *(chance.randbytes(4) for _ in range(5))], [b"PFCOUNT", b"k"],
                [b"PFCOUNT", b"k", b"j"], [b"PFMERGE", b"k", b"j"], [b"PFMERGE", b"j", b"k"],
                [b"PFDEBUG", b"DECODE", b"k"], [b"PFDEBUG", b"TODENSE", b"k"],
                [b"CONFIG", b"SET", b"hll-sparse-max-bytes", chance.choice((b"9", b"3000"))],
            ))  # fmt: skip
            assert local.run(argv)[:1] in b"+-:$"
    local.engine.check()
