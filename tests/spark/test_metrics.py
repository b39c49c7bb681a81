"""The values in a query's progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import rillet.spark
from rillet.spark.metrics import evenly_spread, read_progress
from rillet.spark.read.entry_counts import Counted, CountInterval
from rillet.spark.read.stream_info import StreamInfo
from rillet.types.stream.id import StreamID
from tests.judge import Judge
from tests.spark.calls import Query, stopped  # noqa: F401

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("stopped")


def at(ms: int) -> StreamID:
    return StreamID(ms, 0)


@pytest.mark.parametrize(
    ("after", "added", "now", "expected"),
    [
        (at(5), 5, StreamInfo(10, at(1), at(10), 10, at(0)), (5, 5)),
        (at(5), None, StreamInfo(3, at(8), at(10), 10, at(0)), (3, 3)),  # everything lies after it
        (at(10), None, StreamInfo(10, at(1), at(10), 10, at(0)), (0, 0)),
        (at(5), None, StreamInfo(0, None, at(10), 10, at(0)), (0, 0)),
        (at(6), None, StreamInfo(10, at(1), at(11), None, None, False, at(11)), (1, 9)),
        (at(6), 6, StreamInfo(9, at(1), at(11), 11, at(9), False, at(11)), (3, 4)),  # something after it was deleted
    ],
)
def test_entries_after_an_offset_are_bounded(
    after: StreamID, added: int | None, now: StreamInfo, expected: tuple[int, int]
) -> None:
    assert Counted(after, None if added is None else CountInterval.exactly(added)).behind(now) == expected
    assert expected[0] <= CountInterval(*expected).nearest(evenly_spread(after, now)) <= expected[1]


def test_a_report_has_counts_bytes_and_ages_by_the_servers_clock(judge: Judge, url: str) -> None:
    with judge.client() as client:
        seconds, micros = map(int, client.execute_command("TIME"))
        now = seconds * 1000 + micros // 1000
        for n in range(100):
            client.execute_command("XADD", "events", f"{now - 60_000 + n}-0", "n", n)
        query = Query(url, failOnDataLoss="false")
        query.batch()
        told = query.reader.reportLatestOffset()
        assert told["streams"] == {"events": f"{now - 60_000 + 99}-0"}
        assert (told["behind"], told["bytesBehind"]) == ({"events": 0}, 0)
        assert not {"estimated", "lost", "unsure", "oldestUnreadMs"} & set(told)
        for n in range(100, 150):
            client.execute_command("XADD", "events", f"{now - 60_000 + n}-0", "n", n)
        told = query.reader.reportLatestOffset()
        size = client.execute_command("MEMORY", "USAGE", "events")
        assert told["behind"] == {"events": 50}
        assert told["bytesBehind"] == round(size / 3)
        assert 60_000 - 150 <= told["oldestUnreadMs"] < 600_000
        client.execute_command("XTRIM", "events", "MAXLEN", "30")
        query.batch()
        assert query.reader.reportLatestOffset()["lost"] == {"events": 20}
        client.execute_command("DEL", "events")
        query.batch()
        told = query.reader.reportLatestOffset()
        assert (told["behind"], told["lost"], told["unsure"]) == ({}, {"events": 20}, ["events"])


def test_a_progress_is_parsed_from_any_source() -> None:
    told = {
        "batchId": 3,
        "numInputRows": 70,
        "sources": [
            {"description": "kafka", "latestOffset": {"topic": {"0": 5}}},
            {"latestOffset": '{"streams": {"a": "1-0"}, "behind": {"a": 4}, "bytesBehind": 10, "oldestUnreadMs": 8}'},
            {
                "latestOffset": {
                    "streams": {"b": "2-0"},
                    "behind": {"b": 1},
                    "lost": {"b": 2},
                    "estimated": ["b"],
                    "behindBetween": {"b": [1, 5]},
                    "lostAtMost": {"b": 3},
                    "unsure": ["b"],
                }
            },
        ],
    }
    found = read_progress(told)
    assert found == rillet.spark.Progress(
        3, 70, {"a": "1-0", "b": "2-0"}, {"a": 4, "b": 1}, ("b",), {"b": 2}, ("b",), 10, 8, {"b": (1, 5)}, {"b": 3}
    )
    assert (found.entries_behind, found.entries_behind_between) == (5, (5, 9))


@pytest.mark.spark
@pytest.mark.slow
def test_the_progress_of_a_query_in_spark(spark: SparkSession, judge: Judge, url: str, tmp_path: Path) -> None:
    with judge.client() as client:
        for n in range(1, 101):
            client.execute_command("XADD", "events", f"{n}-0", "n", n)
    source = spark.readStream.format("rillet").schema("n long").option("url", url).option("stream", "events")
    frame = source.option("maxEntriesPerTrigger", "60").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    found = [read_progress(one) for one in query.recentProgress]
    assert [(one.batch, one.rows, one.behind, one.bytes_behind > 0) for one in found] == [
        (0, 60, {"events": 40}, True),
        (1, 40, {"events": 0}, False),
    ]
    assert rillet.spark.progress(query) == found[-1]
