"""A short, deterministic run of the fuzzer, and tests that it detects violations."""

from __future__ import annotations

import os
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import rillet
from rillet.columns import column as kinds
from rillet.columns.node_decoder import NodeReader, nodes_of
from rillet.columns.resp_decoder import DONE, RangeDecoder
from rillet.columns.row_builder import RowBuilder
from rillet.columns.value_parsing import ValueParser
from rillet.errors import Corrupt
from rillet.structs.listpack import Listpack
from tests.columns import fuzz_columns, hostile_bytes
from tests.columns.fuzz_columns import ROOT, TARGETS
from tests.variants import by_speed, long_interpreted, seeds


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 2, 1))
def test_hostile_bytes_break_no_property(seed: int) -> None:
    count = by_speed(1000, 600, 2000)
    code, report = fuzz_columns.run(seed, count, progress=False)
    assert code == 0, report
    assert f'"inputs": {count}' in report


@long_interpreted
def test_two_builds_make_the_same_of_hostile_bytes() -> None:
    """Compiled against interpreted; in the interpreted run, without Cython against Cython's own shim."""
    package, count = Path(rillet.__file__).parents[1], by_speed(200, 400, 400)
    here = fuzz_columns.outcomes(7, count, package, "RILLET_NO_CYTHON" not in os.environ)
    source = fuzz_columns.outcomes(7, count, ROOT / "src", rillet.compiled() is False)
    assert here[0] == ("speed compiled" if rillet.compiled() else "speed interpreted")
    assert source[0] == "speed interpreted"
    assert here[1:] == source[1:]
    assert len({line.split()[1] for line in here[1:]}) > count // 2


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_seed_and_a_case_name_an_input(target: str) -> None:
    case = list(TARGETS).index(target)
    assert fuzz_columns.run_case(3, case)[0] == target
    assert fuzz_columns.digest(fuzz_columns.run_case(3, case)) == fuzz_columns.digest(fuzz_columns.run_case(3, case))
    assert fuzz_columns.describe(3, case) == fuzz_columns.describe(3, case)
    assert fuzz_columns.describe(3, case).startswith(target)


@pytest.mark.slow
def test_half_of_the_inputs_get_past_the_first_check() -> None:
    """Input that is always rejected at its first byte reaches no code."""
    ends: list[str] = []
    for case in range(600):
        name, result = fuzz_columns.run_case(9, case)
        if name == "reply" or name == "page":
            ends.append(next(part for part in reversed(result) if isinstance(part, str)))
    assert len(ends) / 4 < sum(not end for end in ends) < 0.95 * len(ends)
    assert len({re.sub(r"[0-9].*", "", end) for end in ends}) >= 6


def test_a_valid_reply_and_a_sound_node_are_what_the_pool_says() -> None:
    rng = random.Random(4)
    sound = 0
    for _ in range(300):
        decoder = RangeDecoder(RowBuilder(b"k"))
        decoder.feed(hostile_bytes.valid_reply(rng))
        assert decoder.decode() == DONE
        items = hostile_bytes.node_items(rng)
        data = hostile_bytes.listpack([hostile_bytes.box(item) for item in items])
        assert list(Listpack.from_bytes(data, True)) == items
        try:
            nodes_of([(bytes(16), data)])
            sound += 1
        except Corrupt:
            pass
    assert sound > 60


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16381, 16382, 16383, 16384, 2097150, 2097151])
def test_the_fuzzer_writes_backlens_as_the_listpack_does(size: int) -> None:
    data = hostile_bytes.listpack([hostile_bytes.box(b"x" * size)])
    assert Listpack.from_bytes(data, True).to_bytes() == data


@pytest.mark.parametrize("item", hostile_bytes.NUMBERS)
def test_the_fuzzer_writes_integers_as_the_listpack_does(item: int) -> None:
    lp = Listpack()
    lp.append_int(item)
    assert hostile_bytes.listpack([hostile_bytes.box(item)]) == lp.to_bytes()
    for width in range(1, 5):
        assert list(Listpack.from_bytes(hostile_bytes.listpack([hostile_bytes.box(item, width)]), True)) == [item]


@pytest.mark.parametrize(
    ("kind", "buffers"),
    [
        (kinds.STRING, (1, 0, None, bytearray(4) + b"\x02\0\0\0", bytearray(b"\xff\xff"))),
        (kinds.STRING, (2, 0, None, bytearray(12), bytearray(b"a"))),
        (kinds.BINARY, (2, 0, None, bytearray(4) + b"\x02\0\0\0\x01\0\0\0", bytearray(b"a"))),
        (kinds.LONG, (1, 0, None, None, bytearray(7))),
        (kinds.LONG, (1, 1, None, None, bytearray(8))),
        (kinds.LONG, (1, 1, bytearray(b"\x01"), None, bytearray(8))),
        (kinds.BOOLEAN, (9, 0, None, None, bytearray(1))),
    ],
)
def test_a_column_that_breaks_arrows_rules_would_be_seen(kind: int, buffers: Any) -> None:
    column = kinds.Column(b"f", 0, kind, ValueParser())
    with pytest.raises((AssertionError, UnicodeDecodeError)):
        fuzz_columns.consistent(column, *buffers)


def test_a_column_that_outgrows_its_input_would_be_seen() -> None:
    rows = RowBuilder(b"k")
    rows.add_field(b"f", kinds.STRING)
    node = hostile_bytes.listpack([hostile_bytes.box(b"x" * 3000)])
    rows.columns[0].put_bytes(node)
    with pytest.raises(AssertionError, match="outgrows"):
        fuzz_columns.taken(rows, 1, 1000)


def test_an_error_that_is_not_documented_would_be_seen() -> None:
    def pull() -> bool:
        raise IndexError("a read outside the buffer")

    with pytest.raises(IndexError):
        fuzz_columns.attempt(RowBuilder(b"k"), pull, None, 0)
    with pytest.raises(IndexError):
        NodeReader(RowBuilder(b"k"), (0, 0), (1, 1)).open(bytearray(8), 0, 9, 0, 0)


def test_a_process_that_dies_is_reported_with_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["-c", "import os, struct, sys; open(sys.argv[1], 'r+b').write(struct.pack('<q', 6)); os.abort()"]
    monkeypatch.setattr(fuzz_columns, "command", lambda *rest: [sys.executable, *words, rest[1]])
    code, report = fuzz_columns.run(1, 10, progress=False)
    assert code < 0
    assert report.startswith("seed 1 case 6: the process ended with -6; node: [(")
