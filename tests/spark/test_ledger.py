"""Driver, workers and server killed under load: each event comes out exactly once (ledger.py has the long form)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rillet.spark.java import JavaMissing, require_java
from tests.judge import redis_binary
from tests.spark.ledger import Lost, id_of, run, settle

STRIKES = 3


def test_missing_duplicated_and_unknown_events_are_reported() -> None:
    settle(3, Counter([0, 1, 2]))
    settle(3, Counter([0, 1, 2, 3]))  # sent, never acknowledged, there all the same
    for found, told in (
        ([0, 2], "1 are missing"),
        ([0, 1, 1, 2], "1 are there twice"),
        ([0, 1, 2, 900], "1 were never"),
    ):
        with pytest.raises(Lost, match=told):
            settle(3, Counter(found))


def test_three_events_share_a_millisecond() -> None:
    assert [id_of(n)[-6:] for n in (0, 1, 2, 3)] == ["0000-0", "0000-1", "0000-2", "0001-0"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("kind", "sink"), [("redis", "parquet"), ("rillet", "stream")])
def test_each_event_comes_out_once(kind: str, sink: str, tmp_path: Path) -> None:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed")
    try:
        require_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    figures = run(kind, sink, STRIKES, 3, tmp_path)
    assert figures.events >= 2000
    assert figures.struck["driver"] == figures.struck["server"] == 1
