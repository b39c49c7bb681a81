"""Driver, workers and server killed under load: each event comes out exactly once (ledger.py has the long form)."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rillet.spark.java import JavaMissing, require_java
from tests.judge import redis_binary
from tests.spark.ledger import Server, found_in, id_of, run
from tests.spark.ledger_settling import (
    CLASSES,
    Lost,
    class_problems,
    hash_problems,
    order_problems,
    settle,
    text_of,
    times_in,
)
from tests.variants import long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def test_events_out_of_order_are_reported() -> None:
    assert order_problems([0, 1, 2, 5, 9]) == []
    assert order_problems([0, 3, 1, 2, 4]) == ["2 events are out of order ([1, 2] ...)"]
    assert order_problems([0, 3, 1, 2, 4, 5], streams=3) == []  # each of 0 3, 1 4, 2 5 is in order
    assert order_problems([3, 1, 0], streams=3) == ["1 events are out of order ([0] ...)"]
    with pytest.raises(Lost, match=r"^2 events are out of order"):
        settle(3, Counter([0, 1, 2]), order_problems([2, 0, 1]))


def test_wrong_hashes_and_counters_are_reported() -> None:
    hashes = {str(n): {"text": text_of(n)} for n in range(20)}
    assert hash_problems(hashes, {"text"}) == []
    assert times_in(hashes) == Counter(range(20))
    counted = {**hashes, "7": {**hashes["7"], "times": "2"}}
    assert times_in(counted)[7] == 2
    assert hash_problems(counted, {"text"}) == [f"1 events have wrong fields ({[counted['7']]} ...)"]
    assert hash_problems({"3": {"text": text_of(4)}}, {"text"}) != []

    def classes(numbers: list[int]) -> dict[str, dict[str, str]]:
        shares = {str(k): [n for n in numbers if n % CLASSES == k] for k in range(CLASSES)}
        return {
            key: {"events": str(len(share)), "total": str(sum(share)), "latest": str(max(share))}
            for key, share in shares.items()
        }

    assert class_problems(classes(list(range(20))), range(20)) == []
    for wrong in ([*range(20), 7], [8, *range(1, 20)], list(range(19))):  # twice, one for another, not counted
        assert len(class_problems(classes(wrong), range(20))) in (1, 2)
    assert len(class_problems({}, range(20))) == CLASSES


def test_three_events_share_a_millisecond() -> None:
    assert [id_of(n)[-6:] for n in (0, 1, 2, 3)] == ["0000-0", "0000-1", "0000-2", "0001-0"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("sink", ["hashes", *long("ordered", "counters")])
def test_a_repeated_batch_after_the_server_was_killed(spark: SparkSession, sink: str, tmp_path: Path) -> None:
    """The query of the ledger in this process: Spark repeats its batch, because the commit is not in the checkpoint."""
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    from tests.spark.ledger_driver import started  # it imports pyspark

    holder = Server(tmp_path, rillets=False)
    try:
        plan = {"sink": sink, "folder": str(tmp_path), "options": holder.options}
        for first in (0, 700):
            holder.send(list(range(first, first + 700)))
            query = started(spark, plan, finishing=True)
            query.awaitTermination()
            if first == 0:
                for file in (tmp_path / "checkpoint" / "commits").glob("*0*"):
                    file.unlink()
                (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
                holder.strike(random.Random(0))
        assert [one["batchId"] for one in query.recentProgress if one["numInputRows"]] == [0, 1]
        settle(1400, *found_in(sink, holder, tmp_path))
    finally:
        holder.end()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("kind", "sink"), [
    ("redis", "parquet"), ("rillet", "stream"), ("rillet", "ordered"), ("redis", "hashes"), ("rillet", "counters"),
])  # fmt: skip
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
