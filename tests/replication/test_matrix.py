"""Rounds of the replication matrix: a few short ones, and more of them on demand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.judge import required_binary
from tests.replication.load import unlike
from tests.replication.matrix import Matrix, all_pairs


@pytest.mark.parametrize(("pair", "events"), [("7.0>rillet", 2), ("rillet>7.0>rillet", 1)])
def test_a_short_round(pair: str, events: int, tmp_path: Path) -> None:
    required_binary("7.0")
    matrix = Matrix([pair.split(">")], tmp_path, events=events)
    assert matrix.run(3), matrix.failed
    assert matrix.counts["expected partial"] + matrix.counts["expected full"] > 0
    assert "1 rounds, 0 failed" in matrix.summary()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_rounds_of_all_pairs(tmp_path: Path) -> None:
    seed = int(os.environ.get("RILLET_SEED", "1"))
    matrix = Matrix(all_pairs(), tmp_path)
    for number in range(seed, seed + int(os.environ.get("RILLET_ROUNDS", str(len(matrix.pairs))))):
        matrix.run(number)
    assert matrix.failed == []


def test_the_fields_in_which_streams_differ() -> None:
    consumer = [b"name", b"c", b"seen-time", 5, b"pel-count", 1, b"pending", [[b"1-1", 5, 1]]]
    group = [b"name", b"g", b"lag", 0, b"pending", [[b"1-1", b"c", 5, 1]], b"consumers", [consumer]]
    mine = [b"length", 1, b"groups", [group]]
    assert unlike(mine, mine) == set()
    assert unlike(mine, None) == {"stream"}
    assert unlike(mine, [b"length", 2, b"groups", [group], b"newer", 1]) == {"stream.length", "stream.newer missing"}
    other = [b"name", b"g", b"lag", 1, b"pending", [[b"1-1", b"c", 6, 2]], b"consumers", []]
    assert unlike(mine, [b"length", 1, b"groups", [other]]) == {
        "group.lag", "group.pel.time", "group.pel.count", "group.consumers"}  # fmt: skip
    idle = [b"name", b"d", b"seen-time", 5, b"pel-count", 0, b"pending", []]
    assert unlike([b"groups", [[b"consumers", [consumer, idle]]]], [b"groups", [[b"consumers", [consumer]]]]) == {
        "group.idle consumers"}  # fmt: skip
