"""Triggers, without Spark: the end of a batch, the content of its offset, and waiting."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

import rillet
from rillet.spark.options import parse
from rillet.spark.source import StreamingReader
from rillet.spark.spark_versions import ReadAllAvailable, ReadMaxRows, ReadMinRows
from tests.judge import Judge
from tests.spark.conftest import entry_id, number

SCHEMA = StructType().add("id", "string").add("n", "long")
Add = Callable[..., None]
Offset = dict[str, Any]


@pytest.fixture
def follow(url: str) -> Iterator[Callable[..., StreamingReader]]:
    """Make readers of a stream; they are stopped at the end."""
    made: list[StreamingReader] = []

    def reader(parallelism: int = 2, **options: str) -> StreamingReader:
        where = {} if "path" in options else {"url": url}
        made.append(StreamingReader(parse({**where, "stream": "events", **options}), SCHEMA, parallelism))
        return made[-1]

    yield reader
    for one in made:
        one.stop()


def numbers(reader: StreamingReader, start: Offset, end: Offset) -> list[list[int]]:
    """Return what each task of a batch reads."""
    tasks = reader.partitions(start, end)
    return [[n for batch in reader.read(task) for n in batch.column("n").to_pylist()] for task in tasks]


def flat(tasks: list[list[int]]) -> list[int]:
    return [n for task in tasks for n in task]


def through_checkpoint(offset: Offset) -> Offset:
    """Return an offset as Spark hands it back."""
    found: Offset = json.loads(json.dumps(offset))
    return found


def test_a_planned_batch_has_the_same_tasks_on_any_number_of_cores(
    judge: Judge, url: str, add: Add, follow: Callable[..., StreamingReader]
) -> None:
    add(range(20_000))
    reader = follow(parallelism=4)
    start = through_checkpoint(reader.initialOffset())
    end = through_checkpoint(reader.latestOffset(start, ReadAllAvailable()))
    planned = numbers(reader, start, end)
    assert len(planned) == 4
    reader.stop()  # the driver dies between plan and commit; entries of the last millisecond arrive, and more
    with judge.client() as client:
        client.execute_command("XADD", "events", f"{entry_id(19_999).split('-')[0]}-*", "n", "20000")
    add(range(20_001, 30_000))
    again = follow(parallelism=1, minPartitions="7")
    assert numbers(again, again.initialOffset(), end) == planned
    assert again.latestOffset(end, ReadMaxRows(1))["streams"] != end["streams"]
    rest = again.latestOffset(end, ReadAllAvailable())
    assert sorted(flat(numbers(again, end, rest))) == list(range(20_000, 30_000))
    assert again.partitions(rest, rest) == []


def test_a_query_continues_from_an_offset_of_the_first_version(
    add: Add, follow: Callable[..., StreamingReader]
) -> None:
    add(range(100))
    reader = follow()
    old = {"events": entry_id(9)}
    end = reader.latestOffset(old, ReadAllAvailable())
    assert flat(numbers(reader, old, end)) == list(range(10, 100))
    assert flat(numbers(reader, {"events": "0-0"}, {"events": entry_id(19), "from": entry_id(4)})) == list(range(5, 20))


def test_a_capped_trigger_ends_at_an_entry_near_the_cap(add: Add, follow: Callable[..., StreamingReader]) -> None:
    add(range(40_000))
    reader = follow()
    start = reader.initialOffset()
    seen: list[int] = []
    sizes = []
    while (end := reader.latestOffset(start, ReadMaxRows(6000))) != start:
        tasks = numbers(reader, start, end)
        assert end["streams"] == {"events": entry_id(flat(tasks)[-1])}
        sizes.append(sum(map(len, tasks)))
        seen += flat(tasks)
        start = end
    assert seen == list(range(40_000))
    assert all(4500 < size < 7500 for size in sizes[:-1]), sizes


@pytest.mark.parametrize(("cap", "all_at_once"), [("5000", True), ("4900", False), ("3999", False)])
def test_a_small_rest_does_not_become_a_trigger_of_its_own(
    add: Add, follow: Callable[..., StreamingReader], cap: str, all_at_once: bool
) -> None:
    add(range(5_090))
    exact = follow(maxEntriesPerTrigger=cap, exactTriggers="true")
    for reader, whole in ((follow(maxEntriesPerTrigger=cap), all_at_once), (exact, False)):
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert (end["streams"] == {"events": entry_id(5_089)}) is whole
        found = flat(numbers(reader, start, end))
        assert found == list(range(len(found)))
        assert (len(found) == 5_090) is whole


def test_a_trigger_is_capped_by_bytes(judge: Judge, add: Add, follow: Callable[..., StreamingReader]) -> None:
    """A trigger of small entries has more of them than one of large entries; one entry is read in any case."""
    add(range(3000))
    with judge.client() as client:
        size = client.execute_command("MEMORY", "USAGE", "events") / 3000
    reader = follow(maxBytesPerTrigger=str(round(1000 * size)))
    start, sizes = reader.initialOffset(), []
    while (end := reader.latestOffset(start, ReadAllAvailable())) != start:
        sizes.append(sum(batch.num_rows for part in reader.partitions(start, end) for batch in reader.read(part)))
        start = end
    assert sum(sizes) == 3000
    assert len(sizes) in (3, 4)
    assert all(900 < size < 1100 for size in sizes[:2])
    both = follow(maxBytesPerTrigger=str(round(1000 * size)), maxEntriesPerTrigger="100")
    start = both.initialOffset()
    end = both.latestOffset(start, ReadMaxRows(100))
    assert sum(batch.num_rows for part in both.partitions(start, end) for batch in both.read(part)) == 100
    one = follow(maxBytesPerTrigger="1")
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    assert sum(batch.num_rows for part in one.partitions(start, end) for batch in one.read(part)) == 1


@pytest.mark.parametrize("cap", [300, 7000])
def test_exact_triggers_count_their_entries(add: Add, follow: Callable[..., StreamingReader], cap: int) -> None:
    add(range(15_000))
    reader = follow(maxEntriesPerTrigger=str(cap), exactTriggers="true")
    start = reader.initialOffset()
    for _ in range(2):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert sum(map(len, numbers(reader, start, end))) == cap
        start = end


def test_a_rillet_server_caps_and_cuts_exactly(tmp_path: Path, follow: Callable[..., StreamingReader]) -> None:
    path = str(tmp_path / "events.rillet")
    with rillet.open(path) as store:
        events = store.stream("events")
        for i in range(13_000):
            flat_fields = [word.decode() for word in number(i)]
            events.add(dict(zip(flat_fields[::2], flat_fields[1::2], strict=True)), id=entry_id(i))
        for i in range(100, 200):
            events.delete(entry_id(i))
        reader = follow(path=path, parallelism=3)
        start = reader.initialOffset()
        tasks = []
        for _ in range(2):
            end = reader.latestOffset(start, ReadMaxRows(6002))
            tasks.append(numbers(reader, start, end))
            start = end
        assert [sum(map(len, found)) for found in tasks] == [6002, 6002]
        assert [len(task) for task in tasks[1]] == [2001, 2000, 2001]
        assert flat(flat(tasks)) == [*range(100), *range(200, 12_104)]  # type: ignore[arg-type]
        reader.stop()


def test_a_batch_waits_for_enough_entries_up_to_the_maximum_delay(
    judge: Judge, add: Add, follow: Callable[..., StreamingReader]
) -> None:
    reader = follow(minEntriesPerTrigger="50")
    add(range(20))
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    assert limit == ReadMinRows(50)
    assert reader.latestOffset(start, limit) == start
    add(range(20, 60))
    end = reader.latestOffset(start, limit)
    assert flat(numbers(reader, start, end)) == list(range(60))
    impatient = follow(minEntriesPerTrigger="50", maxTriggerDelay="150ms", maxEntriesPerTrigger="500")
    assert impatient.getDefaultReadLimit() == ReadMaxRows(500)
    add(range(60, 70))
    assert impatient.latestOffset(end, ReadMaxRows(500)) == end
    while (later := impatient.latestOffset(end, ReadMaxRows(500))) == end:
        pass  # each call waits a tenth of a second
    assert flat(numbers(impatient, end, later)) == list(range(60, 70))
    hasty = follow(stream="w", minEntriesPerTrigger="50", maxTriggerDelay="150ms")
    add([0], "w")
    begin = hasty.initialOffset()
    assert hasty.latestOffset(begin, limit) == begin
    with judge.client() as client:
        client.execute_command("XDEL", "w", entry_id(0))
    assert hasty.latestOffset(begin, limit) == hasty.latestOffset(begin, limit) == begin
    add([1], "w")  # which has not waited yet: another did that is gone
    assert hasty.latestOffset(begin, limit) == begin
    available = follow(minEntriesPerTrigger="50")
    add(range(70, 75))
    available.prepareForTriggerAvailableNow()
    last = available.latestOffset(later, limit)
    assert flat(numbers(available, later, last)) == list(range(70, 75))


def test_an_available_now_query_reads_up_to_the_ids_at_its_start(
    url: str, add: Add, follow: Callable[..., StreamingReader]
) -> None:
    add(range(30))
    add(range(20), "more")
    reader = StreamingReader(parse({"url": url, "streamPattern": "*"}), SCHEMA, 2)
    reader.prepareForTriggerAvailableNow()
    add(range(30, 40))
    add(range(5), "new")
    start = reader.initialOffset()
    seen: list[int] = []
    while (end := reader.latestOffset(start, ReadMaxRows(20))) != start:
        seen += flat(numbers(reader, start, end))
        start = end
    assert sorted(seen) == sorted([*range(30), *range(20)])
    reader.stop()


def test_an_idle_query_notices_a_new_entry_immediately(
    judge: Judge, add: Add, follow: Callable[..., StreamingReader]
) -> None:
    add(range(5))
    reader = follow()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end

    def add_when_blocked() -> None:
        with judge.client() as client:
            while b"blocked_clients:1" not in client.execute_command("INFO", "clients"):
                pass
        add([5])

    thread = threading.Thread(target=add_when_blocked)
    thread.start()
    while (later := reader.latestOffset(end, ReadAllAvailable())) == end:
        pass  # a wait was over before the other thread saw it
    thread.join()
    assert flat(numbers(reader, end, later)) == [5]


def test_a_cap_of_one_large_entry_makes_progress(judge: Judge, follow: Callable[..., StreamingReader]) -> None:
    """Large entries are not looked at: by their IDs the last two are a thousandth of the stream, less than one."""
    with judge.client() as client:
        for ms in (1, 1000, 1001, 1002):
            client.execute_command("XADD", "events", f"{ms}-0", "n", ms, "large", "x" * 20_000)
    reader = follow(maxEntriesPerTrigger="1", exactTriggers="true")
    start = reader.initialOffset()
    for ms in (1, 1000, 1001, 1002):
        end = reader.latestOffset(start, ReadMaxRows(1))
        assert flat(numbers(reader, start, end)) == [ms]
        start = end


@pytest.mark.parametrize("mode", [{}, {"group": "g", "groupMode": "deliver"}])
def test_the_largest_id_is_read_and_followed(
    judge: Judge, follow: Callable[..., StreamingReader], mode: dict[str, str]
) -> None:
    with judge.client() as client:
        for n in range(4):
            client.execute_command("XADD", "events", f"{2**64 - 1}-{2**64 - 4 + n}", "n", n)
    reader = follow(**mode)
    start = reader.initialOffset()
    for expected in ([0, 1, 2], [3]):
        end = reader.latestOffset(start, ReadMaxRows(3))
        assert flat(numbers(reader, start, end)) == expected
        start = end
    assert reader.latestOffset(start, ReadMaxRows(3)) == start
    assert reader.reportLatestOffset()["behind"] == {"events": 0}


@pytest.mark.parametrize(
    "where", [{}, {"stream": "events", "group": "g", "groupMode": "deliver"}, {"streamPattern": "ev*"}]
)
def test_a_connection_that_was_lost_between_triggers_is_made_again(
    judge: Judge, url: str, add: Add, where: dict[str, str]
) -> None:
    reader = StreamingReader(parse({"url": url, **(where or {"stream": "events"})}), SCHEMA, 2)
    add(range(5))
    start = reader.initialOffset()
    for first in (0, 5, 10):
        end = reader.latestOffset(start, ReadAllAvailable())
        assert flat(numbers(reader, start, end)) == list(range(first, first + 5))
        add(range(first + 5, first + 10))
        with judge.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        start = end
    reader.stop()


def test_a_cap_holds_for_bursty_streams(judge: Judge, follow: Callable[..., StreamingReader]) -> None:
    """Two hundred entries in one millisecond, then nothing for a second."""
    with judge.client() as client:
        pipe = client.pipeline(transaction=False)
        for n in range(40_000):
            pipe.execute_command("XADD", "events", f"{1_700_000_000_000 + n // 200 * 1000}-{n % 200}", "n", n)
        pipe.execute()
    reader = follow()
    start = reader.initialOffset()
    sizes = []
    while (end := reader.latestOffset(start, ReadMaxRows(10_000))) != start:
        sizes.append(sum(map(len, numbers(reader, start, end))))
        start = end
    assert sum(sizes) == 40_000
    assert all(5000 < size < 16_000 for size in sizes[:-1]), sizes
