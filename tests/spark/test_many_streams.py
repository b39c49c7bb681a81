"""Many streams at once, without Spark: streams are selected and divided among tasks without gaps or duplicates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from rillet.client.errors import ConnectorError
from rillet.spark.options import parse
from rillet.spark.read import micro_batch
from rillet.spark.read.data_loss import DataLoss
from rillet.spark.read.offsets import Offset
from rillet.spark.source import BatchReader, StreamingReader
from rillet.spark.spark_versions import ReadAllAvailable
from tests.judge import Judge
from tests.spark.conftest import entry_id
from tests.spark.test_page_reader import cutting_proxy

SCHEMA = StructType().add("stream", "string").add("n", "long")
Add = Callable[..., None]


def rows(batches: Iterator[Any]) -> list[tuple[str, int]]:
    return [
        pair
        for batch in batches
        for pair in zip(batch.column("stream").to_pylist(), batch.column("n").to_pylist(), strict=True)
    ]


def batch_reader(url: str, **more: str) -> BatchReader:
    return BatchReader(parse({"url": url, **more}), SCHEMA, 4)


def stream_reader(url: str, **more: str) -> StreamingReader:
    return StreamingReader(parse({"url": url, **more}), SCHEMA, 4)


def tasks_of(reader: BatchReader) -> list[list[tuple[str, int]]]:
    return [rows(reader.read(part)) for part in reader.partitions()]


def batch_of(reader: StreamingReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int]]:
    return [row for part in reader.partitions(start, end) for row in rows(reader.read(part))]


def in_order(found: Sequence[tuple[str, int]], stream: str) -> list[int]:
    return [n for name, n in found if name == stream]


def test_a_huge_stream_and_many_small_ones_are_shared_evenly(url: str, add: Add) -> None:
    add(range(30_000), "huge")
    for i in range(40):
        add(range(250), f"small:{i}")
    tasks = tasks_of(batch_reader(url, streamPattern="*"))
    sizes = list(map(len, tasks))
    assert len(tasks) == 4
    assert max(sizes) < 1.3 * min(sizes)
    found = [row for task in tasks for row in task]
    assert Counter(found) == Counter(
        [("huge", n) for n in range(30_000)] + [(f"small:{i}", n) for i in range(40) for n in range(250)]
    )
    assert in_order(found, "huge") == list(range(30_000))
    assert all(in_order(found, f"small:{i}") == list(range(250)) for i in range(40))


def test_only_selected_streams_are_read(url: str, add: Add) -> None:
    for name in ("a", "b", "ab"):
        add(range(10), name)
    assert {name for name, _ in rows_of(batch_reader(url, streams="a, ab"))} == {"a", "ab"}
    assert {name for name, _ in rows_of(batch_reader(url, streamPattern="?"))} == {"a", "b"}
    assert rows_of(batch_reader(url, streamPattern="nothing*")) == []
    with pytest.raises(ConnectorError, match="there is no stream 'c' at 127.0.0.1"):
        batch_reader(url, streams="a,c").partitions()


def rows_of(reader: BatchReader) -> list[tuple[str, int]]:
    return [row for task in tasks_of(reader) for row in task]


def test_of_a_partitioned_stream_any_part_may_be_missing(url: str, add: Add) -> None:
    with pytest.raises(ConnectorError, match="there is no stream 'events:0'"):
        batch_reader(url, stream="events", partitioned="3").partitions()
    add(range(10), "events:2")
    assert rows_of(batch_reader(url, stream="events", partitioned="3")) == [("events:2", n) for n in range(10)]
    reader = stream_reader(url, stream="events", partitioned="3")
    start = reader.initialOffset()
    assert list(start["streams"]) == ["events:2"]
    add(range(5), "events:0")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert sorted(batch_of(reader, start, end)) == [("events:0", n) for n in range(5)] + [
        ("events:2", n) for n in range(10)
    ]
    reader.stop()


def test_each_stream_and_each_time_may_have_bounds(url: str, add: Add) -> None:
    for name in ("a", "b", "c"):
        add(range(30), name)
    bounds = {
        "startingOffsets": f'{{"a": "{entry_id(10)}", "b": "latest"}}',
        "endingOffsets": f'{{"a": "({entry_id(12)}", "c": "{entry_id(1)}"}}',
    }
    assert rows_of(batch_reader(url, streams="a,b,c", **bounds)) == [("a", 10), ("a", 11), ("c", 0), ("c", 1)]
    moments = {"startingTimestamp": "2023-11-14T22:13:20.002Z", "endingTimestamp": "1700000000003"}
    assert rows_of(batch_reader(url, streams="a,b", **moments)) == [(name, n) for name in "ab" for n in (6, 7, 8)]


@pytest.mark.parametrize("page", [1, 7, 40, 1000])
def test_ranges_under_way_together_give_the_same_rows_after_lost_connections(
    judge: Judge, url: str, add: Add, page: int
) -> None:
    for i in range(30):
        add(range(5 + i * 7), f"s{i:02}")
    settings = {"streamPattern": "s*", "minPartitions": "1", "pageEntries": str(page), "batchEntries": "100"}
    (expected,) = tasks_of(batch_reader(url, **settings))
    assert Counter(expected) == Counter((f"s{i:02}", n) for i in range(30) for n in range(5 + i * 7))
    assert all(in_order(expected, f"s{i:02}") == list(range(5 + i * 7)) for i in range(30))
    (part,) = batch_reader(url, **settings).partitions()
    with cutting_proxy(judge.port, [3000, 10_001, 20_000, 77]) as port:
        assert rows(batch_reader(f"redis://127.0.0.1:{port}", **settings).read(part)) == expected


def test_a_stream_that_appears_is_read_from_its_beginning(url: str, add: Add) -> None:
    add(range(10), "log:a")
    reader = stream_reader(url, streamPattern="log:*", startingOffsets="latest")
    start = reader.initialOffset()
    add(range(10, 12), "log:a")
    add(range(4), "log:b")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert batch_of(reader, start, end) == [("log:a", 10), ("log:a", 11), *[("log:b", n) for n in range(4)]]
    assert end["streams"] == {"log:a": entry_id(11), "log:b": entry_id(3)}
    assert end["added"] == {"log:a": 12, "log:b": 4}
    reader.stop()
    named = stream_reader(url, streams="log:b,log:c")
    with pytest.raises(
        ConnectorError, match="the checkpoint belongs to the stream 'log:a', but the query reads the streams"
    ):
        named.latestOffset(end, ReadAllAvailable())
    named.stop()
    other = stream_reader(url, streamPattern="*:b")
    with pytest.raises(
        ConnectorError, match="belongs to the stream 'log:a', but the query reads streams that match '\\*:b'"
    ):
        other.latestOffset(end, ReadAllAvailable())
    other.stop()


def test_a_query_can_start_before_its_stream_exists(url: str, add: Add) -> None:
    reader = stream_reader(url, streamPattern="log:*")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    add(range(3), "log:a")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert batch_of(reader, start, end) == [("log:a", n) for n in range(3)]
    reader.stop()
    named = stream_reader(url, streams="log:a,absent")
    with pytest.raises(ConnectorError, match="there is no stream 'absent'"):
        named.initialOffset()
    named.stop()


@pytest.mark.parametrize("exactly", ["false", "true"])
def test_a_cap_is_shared_in_proportion_and_starves_no_stream(url: str, add: Add, exactly: str) -> None:
    add(range(24_000), "busy")
    add(range(6000), "calm")
    add(range(2), "quiet")
    reader = stream_reader(url, streams="busy,calm,quiet", maxEntriesPerTrigger="5000", exactTriggers=exactly)
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    seen: list[tuple[str, int]] = []
    sizes = []
    while (end := reader.latestOffset(start, limit)) != start:
        found = batch_of(reader, start, end)
        sizes.append(Counter(name for name, _ in found))
        seen += found
        start = end
    assert Counter(seen) == Counter(
        [("busy", n) for n in range(24_000)] + [("calm", n) for n in range(6000)] + [("quiet", n) for n in range(2)]
    )
    assert sizes[0]["quiet"] >= 1
    assert 3 < sizes[0]["busy"] / sizes[0]["calm"] < 5.5
    totals = [sum(size.values()) for size in sizes]
    if exactly == "true":
        assert max(totals) <= 5000
    assert all(3500 < total < 6500 for total in totals[:-1]), totals
    reader.stop()


def test_a_cap_below_the_number_of_streams_takes_turns(url: str, add: Add) -> None:
    for i in range(10):
        add(range(3), f"s{i}")
    reader = stream_reader(url, streamPattern="s*", maxEntriesPerTrigger="4")
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    turns = []
    for _ in range(5):
        end = reader.latestOffset(start, limit)
        turns.append(batch_of(reader, start, end))
        start = end
    assert all(len(turn) == 4 for turn in turns)
    assert {name for turn in turns[:3] for name, _ in turn} == {f"s{i}" for i in range(10)}
    reader.stop()


@pytest.mark.parametrize("more", [{}, {"group": "g"}, {"group": "g", "groupMode": "deliver"}], ids=str)
def test_a_trigger_and_its_report_read_the_state_once(judge: Judge, url: str, add: Add, more: dict[str, str]) -> None:
    """However many streams there are: what is asked of each is asked of all in one go, and not again for the report."""
    for i in range(30):
        add(range(3), f"s{i}")
    reader = stream_reader(url, streamPattern="s*", **more)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with judge.client() as client:

        def asked() -> dict[str, int]:
            """Return how often each command was called by a trigger that reads from one stream."""
            client.execute_command("CONFIG", "RESETSTAT")
            reader.latestOffset(start, ReadAllAvailable())
            assert reader.reportLatestOffset()["behind"]["s7"] == 0
            told = client.execute_command("INFO", "commandstats").decode().splitlines()
            lines = [line.removeprefix("cmdstat_").split(":calls=") for line in told if ":calls=" in line]
            return {name: int(rest.partition(",")[0]) for name, rest in lines}

        asked()  # the group is moved for all streams
        add(range(3, 5), "s7")
        found = asked()
        assert (found["xinfo|stream"], found["scan"]) == (30, 1)
        assert found.get("xinfo|groups", 0) == (30 if "groupMode" in more else 0)
        assert found.get("xreadgroup", 0) == (1 if "groupMode" in more else 0)
        add([5], "s8")
        assert reader.reportLatestOffset()["behind"]["s8"]  # a report that comes alone asks
    reader.stop()


# ---- more than a thousand streams ----------------------------------------------------------------------------------


@pytest.fixture
def sessions(judge: Judge, url: str) -> str:
    """A server with 1,200 streams of one entry each."""
    with judge.client() as client:
        for i in range(1200):
            client.execute_command("XADD", f"session:{i}", "5-1", "n", str(i))
    return url


def calls(client: Any, name: str) -> int:
    """Return how often a command was called since CONFIG RESETSTAT."""
    lines = client.execute_command("INFO", "commandstats").decode().splitlines()
    found = [line for line in lines if line.startswith(f"cmdstat_{name}:")]
    return int(found[0].split("calls=")[1].split(",")[0]) if found else 0


def test_the_offset_of_many_streams_is_small_and_repeatable(judge: Judge, sessions: str) -> None:
    reader = stream_reader(sessions, streamPattern="session:*")
    start = reader.initialOffset()
    end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    assert sorted(n for _, n in batch_of(reader, start, end)) == list(range(1200))
    assert "streams" not in end
    assert len(json.dumps(end["packed"])) < 12_000
    with judge.client() as client:
        for i in (3, 700):
            client.execute_command("XADD", f"session:{i}", "6-0", "n", "9")
        client.execute_command("DEL", "session:5")
        second = json.loads(json.dumps(reader.latestOffset(end, ReadAllAvailable())))
        reader.stop()
        again = stream_reader(sessions, streamPattern="session:*")
        assert sorted(batch_of(again, end, second)) == [("session:3", 9), ("session:700", 9)]
        client.execute_command("XADD", "session:new", "7-0", "n", "10")
        third = again.latestOffset(second, ReadAllAvailable())
        assert batch_of(again, second, third) == [("session:new", 10)]
        found = Offset.parse(third)
        assert set(found.streams) == {f"session:{i}" for i in range(1200) if i != 5} | {"session:new"}
        assert (str(found.streams["session:3"]), found.added["session:3"]) == ("6-0", 2)
        assert Offset.parse(json.loads(json.dumps(found.json()))) == found
        client.execute_command("XADD", "session:8", "8-0", "n", "1")
        client.execute_command("XTRIM", "session:8", "MAXLEN", "0")
        with pytest.raises(DataLoss, match="1 entry was lost before being read: the stream 'session:8'"):
            again.latestOffset(third, ReadAllAvailable())
    again.stop()


def test_an_idle_query_looks_at_all_streams_now_and_then(
    judge: Judge, sessions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = stream_reader(sessions, streamPattern="session:*")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    monkeypatch.setattr(micro_batch, "LOOKS", 1e-6)  # the next look is hours away
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    with judge.client() as client:
        client.execute_command("CONFIG", "RESETSTAT")
        for _ in range(3):
            assert reader.latestOffset(end, ReadAllAvailable()) == end
            assert reader.reportLatestOffset()["behind"]["session:7"] == 0
        assert (calls(client, "xinfo|stream"), calls(client, "scan"), calls(client, "xread")) == (0, 0, 3)
        client.execute_command("XADD", "session:7", "6-0", "n", "77")  # is noticed at once
        second = reader.latestOffset(end, ReadAllAvailable())
        assert batch_of(reader, end, second) == [("session:7", 77)]
        assert calls(client, "xinfo|stream") >= 1200
        monkeypatch.setattr(micro_batch, "LOOKS", 1e6)  # each trigger looks
        assert reader.latestOffset(second, ReadAllAvailable()) == second
        client.execute_command("XADD", "session:new", "7-0", "n", "10")
        third = reader.latestOffset(second, ReadAllAvailable())
        assert batch_of(reader, second, third) == [("session:new", 10)]
    reader.stop()
