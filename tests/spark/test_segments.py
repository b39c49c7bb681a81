"""Tasks read the sealed nodes of a store from their files; the rows are those of a read through the owner."""

from __future__ import annotations

import pickle
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import MapType, StringType, StructType  # noqa: E402

import rillet  # noqa: E402
from rillet import Store  # noqa: E402
from rillet.client.errors import ConnectorError  # noqa: E402
from rillet.persistence.segments.segment import Segment  # noqa: E402
from rillet.spark.options import parse  # noqa: E402
from rillet.spark.read.data_loss import DataLoss  # noqa: E402
from rillet.spark.read.page_reader import read_task  # noqa: E402
from rillet.spark.source import DEFAULT_SCHEMA, BatchReader, FilteringReader, StreamingReader  # noqa: E402
from rillet.types.stream.id import StreamID  # noqa: E402
from tests.store.test_stream_memory import files, fill, rewritten, settled  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

TYPED = "stream string, id string, n bigint, text string"
COUNT = 6000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store whose stream `s` lies in segments, except for its newest nodes."""
    with rillet.open(tmp_path / "store", stream_memory="64kb", appendfsync="no") as opened:
        opened.execute_many([[b"XADD", b"s", b"%d-0" % n, b"n", b"%d" % n, b"text", b"x" * 60]
                             for n in range(1, COUNT + 1)])  # fmt: skip
        settled(opened)  # one call, so one segment
        yield opened


def options(tmp_path: Path, **more: Any) -> dict[str, str]:
    return {"path": str(tmp_path / "store"), "stream": "s", "minPartitions": "3", **more}


def columns(schema: str = TYPED) -> StructType:
    """Return the columns of a schema, which Spark itself only reads in a session."""
    found = StructType()
    for column in schema.split(", "):
        name, kind = column.split()
        found.add(name, MapType(StringType(), StringType()) if kind.startswith("map")
                  else {"bigint": "long", "int": "integer"}.get(kind, kind))  # fmt: skip
    return found


def planned(tmp_path: Path, schema: str = TYPED, **more: Any) -> tuple[BatchReader, list[Any]]:
    """Return a batch reader and its partitions, as they reach the tasks."""
    reader = BatchReader(parse(options(tmp_path, **more)), columns(schema), 3)
    return pickle.loads(pickle.dumps((reader, reader.partitions())))


def read(reader: Any, partitions: list[Any]) -> Any:
    """Return the rows of the tasks."""
    return pa.Table.from_batches([batch for one in partitions for batch in reader.read(one)], reader.arrow_schema)


def through_owner(reader: Any, partitions: list[Any]) -> Any:
    """Return the rows that the owner has of the same ranges."""
    batches = [batch for one in partitions for batch in read_task(reader.options, one.ranges, reader.arrow_schema)]
    return pa.Table.from_batches(batches, reader.arrow_schema)


def numbers(rows: Any) -> list[int]:
    return rows.column("n").to_pylist()


def calls(store: Store, command: str) -> int:
    found = re.search(rf"cmdstat_rillet.{command}:calls=(\d+)", store.execute("INFO", "commandstats").decode())
    return int(found[1]) if found else 0


def from_owner(partitions: list[Any]) -> int:
    """Return how many pieces of the tasks are not in files: at least one, because the newest node is in memory."""
    return sum(piece.sealed is None for one in partitions for part in one.ranges for piece in one.store.pieces(part))


def folder(tmp_path: Path) -> Path:
    return tmp_path / "store" / "appendonlydir" / "segments"


# ---- the rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [TYPED, DEFAULT_SCHEMA, "id_ms bigint, text binary"])
def test_the_rows_are_those_of_the_owner(store: Store, tmp_path: Path, schema: str) -> None:
    reader, partitions = planned(tmp_path, schema)
    assert len(partitions) == 3
    assert all(one.store.sealed for one in partitions)
    before = calls(store, "xnodes")
    rows = read(reader, partitions)
    assert calls(store, "xnodes") == before + from_owner(partitions)
    assert rows.num_rows == COUNT
    assert rows.equals(through_owner(reader, partitions))


@pytest.mark.parametrize(("batch", "page"), [("1", "1"), ("7", "100"), ("1000", "20")])
def test_small_batches_have_the_same_rows(store: Store, tmp_path: Path, batch: str, page: str) -> None:
    reader, partitions = planned(tmp_path, batchEntries=batch, pageEntries=page, endingOffsets="1500")
    batches = [one for partition in partitions for one in reader.read(partition)]
    assert max(map(len, batches)) <= int(batch)
    assert numbers(pa.Table.from_batches(batches)) == list(range(1, 1501))


def test_ranges_that_begin_and_end_anywhere(store: Store, tmp_path: Path) -> None:
    chance = random.Random(5)
    for _ in range(30):
        first, last = sorted(chance.randint(1, COUNT + 10) for _ in range(2))
        reader, partitions = planned(tmp_path, startingOffsets=f"({first}-0", endingOffsets=f"{last}-0")
        assert numbers(read(reader, partitions)) == list(range(first + 1, min(last, COUNT) + 1))


def test_deleted_and_trimmed_entries_are_left_out(store: Store, tmp_path: Path) -> None:
    chance = random.Random(6)
    gone = set(chance.sample(range(1, COUNT), 40))
    store.execute("XDEL", "s", *(f"{n}-0" for n in gone))
    store.execute("XTRIM", "s", "MINID", "777-0")
    settled(store)
    reader, partitions = planned(tmp_path)
    rows = read(reader, partitions)
    assert numbers(rows) == [n for n in range(777, COUNT + 1) if n not in gone]
    assert rows.equals(through_owner(reader, partitions))


def test_several_streams(store: Store, tmp_path: Path) -> None:
    fill(store, 3000, key=b"t")
    fill(store, 5, key=b"u")
    settled(store)
    given = {name: value for name, value in options(tmp_path).items() if name != "stream"}
    reader = BatchReader(parse({**given, "streams": "s,u,t"}), columns(), 3)
    partitions = reader.partitions()
    rows = read(reader, partitions)
    assert rows.num_rows == COUNT + 3005
    assert rows.equals(through_owner(reader, partitions))


def test_bad_values_are_treated_alike(store: Store, tmp_path: Path) -> None:
    for mode in ("PERMISSIVE", "DROPMALFORMED"):
        reader, partitions = planned(tmp_path, "id string, text int, _corrupt string", mode=mode)
        rows = read(reader, partitions)
        assert rows.num_rows == (COUNT if mode == "PERMISSIVE" else 0)
        assert rows.equals(through_owner(reader, partitions))
    reader, partitions = planned(tmp_path, "text int", mode="FAILFAST")
    with pytest.raises(rillet.errors.RilletError, match="1-0.*'text'"):
        read(reader, partitions)


def test_filters_skip_segments_and_nodes(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.datasource import GreaterThan, LessThanOrEqual

    reader = FilteringReader(parse(options(tmp_path, pushFilters="true")), columns("id_ms bigint, n bigint"), 3)
    assert reader.pushFilters([GreaterThan(("id_ms",), 1000), LessThanOrEqual(("id_ms",), 1100)]) == []
    partitions = reader.partitions()
    nodes = 0
    blocks = Segment.blocks

    def counted(self: Segment, first: int, count: int) -> Any:
        nonlocal nodes
        nodes += count
        return blocks(self, first, count)

    monkeypatch.setattr(Segment, "blocks", counted)
    assert numbers(read(reader, partitions)) == list(range(1001, 1101))
    assert 0 < nodes <= 6


# ---- what happens between planning and reading ---------------------------------------------------------------------


def test_the_rows_are_those_of_the_planning(store: Store, tmp_path: Path) -> None:
    """Deletes and trims that follow do not change what lies in segments, and a rewrite leaves the held files."""
    reader, partitions = planned(tmp_path)
    before = files(tmp_path / "store")
    store.execute("XDEL", "s", "5-0", "700-0", "701-0")
    store.execute("XTRIM", "s", "MINID", f"{COUNT // 2}-0")
    for _ in range(3):
        rewritten(store)
    assert set(before) <= set(files(tmp_path / "store"))
    assert numbers(read(reader, partitions)) == list(range(1, COUNT + 1))
    store.execute("DEL", "s")
    found = numbers(read(reader, partitions))
    assert found == list(range(1, len(found) + 1))  # what was in memory is gone
    assert len(found) > COUNT * 3 // 4


@pytest.mark.parametrize("damage", ["missing", "cut", "replaced"])
def test_without_its_file_a_task_reads_from_the_owner(store: Store, tmp_path: Path, damage: str) -> None:
    """The owner has had the segments rewritten meanwhile, or whatever may have happened."""
    reader, partitions = planned(tmp_path)
    guarded, checked = planned(tmp_path, failOnDataLoss="true")
    store.execute("XTRIM", "s", "MINID", "1000-0")
    copy = {path: path.read_bytes() for path in folder(tmp_path).glob("*.segment")}
    everything = store.execute("DUMP", "s")
    store.execute("DEL", "s")
    store.execute("RESTORE", "s", 0, everything)  # the entries are in memory
    for path, data in copy.items():
        path.unlink()
        if damage == "cut":
            path.write_bytes(data[:-1])
        elif damage == "replaced":
            path.write_bytes(data[:20] + bytes(20) + data[40:-1] + bytes(1))
    assert numbers(read(reader, partitions)) == list(range(1000, COUNT + 1))
    with pytest.raises(DataLoss, match="may have been lost"):
        read(guarded, checked)


def test_a_damaged_node_is_an_error_that_names_the_file(store: Store, tmp_path: Path) -> None:
    reader, partitions = planned(tmp_path)
    path = sorted(folder(tmp_path).glob("*.segment"))[0]
    data = bytearray(path.read_bytes())
    data[30_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(ConnectorError, match=f"{path.name}: offset .* is damaged"):
        read(reader, partitions)


# ---- streaming reads -----------------------------------------------------------------------------------------------


def test_micro_batches_contain_each_entry_once(store: Store, tmp_path: Path) -> None:
    reader = StreamingReader(parse(options(tmp_path, maxEntriesPerTrigger="2500")), columns(), 3)
    begin = offset = reader.initialOffset()
    found: list[int] = []
    used = 0
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        partitions: list[Any] = reader.partitions(offset, end)
        used += sum(bool(one.store.sealed) for one in partitions)
        rows = read(reader, partitions)
        assert rows.equals(read(reader, reader.partitions(offset, end)))  # a repeated batch
        found += numbers(rows)
        offset = end
    reader.stop()
    assert found == list(range(1, COUNT + 1))
    assert used >= 4
    assert begin != offset


def test_a_trim_of_read_entries_is_no_loss_and_one_of_others_is(store: Store, tmp_path: Path) -> None:
    reader = StreamingReader(parse(options(tmp_path, minPartitions="1", batchEntries="1000")), columns(), 1)
    start = {"streams": {"s": "1-0"}, "added": {"s": 1}}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    task: Any = reader.partitions(start, end)[0]
    (last,) = (sealed[-1].last for sealed in task.store.sealed.values())
    for upto, lost in ((last, False), (StreamID(last.ms + 10, 0), True)):
        batches = reader.read(task)
        rows = [next(batches)]
        store.execute("XTRIM", "s", "MINID", f"{upto.ms + 1}-0")
        if lost:
            with pytest.raises(DataLoss, match="may have been lost"):
                list(batches)
        else:
            rows += batches
            assert numbers(pa.Table.from_batches(rows)) == list(range(2, COUNT + 1))
    reader.stop()


# ---- workers -------------------------------------------------------------------------------------------------------

_TASK = """
import pickle, sys
import pyarrow
reader, partitions = pickle.load(open(sys.argv[1], "rb"))
print(sum(batch.num_rows for one in partitions for batch in reader.read(one)))
print(*[name for name in sys.modules if name.startswith("rillet.")])
"""


def test_what_a_worker_imports(store: Store, tmp_path: Path) -> None:
    """A task reads segments and, from the owner, the newest entries: it opens no store."""
    (tmp_path / "task").write_bytes(pickle.dumps(planned(tmp_path)))
    ended = subprocess.run([sys.executable, "-c", _TASK, str(tmp_path / "task")], capture_output=True, text=True,
                           check=False)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    rows, names = ended.stdout.splitlines()
    assert rows == str(COUNT)
    imported = names.split()
    assert len(imported) <= 110, imported
    rooms = {name.split(".")[1] for name in imported}
    rooms -= {"_cython", "_cyutility", "errors", "loggers", "real_time", "units"}
    assert rooms == {"client", "columns", "persistence", "protocol", "spark", "structs", "types"}


# ---- Spark ---------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_spark_reads_segments(store: Store, spark: SparkSession, tmp_path: Path) -> None:
    source = spark.read.format("rillet").schema(TYPED).options(**options(tmp_path))
    before = calls(store, "xnodes") + from_owner(planned(tmp_path)[1])
    assert [row.n for row in source.load().select("n").collect()] == list(range(1, COUNT + 1))
    assert calls(store, "xnodes") == before
    raw = spark.read.format("rillet").options(**options(tmp_path)).load()
    assert raw.selectExpr("count(*)", "sum(cast(fields['n'] as int))", "min(id)", "count(distinct id)").collect() == [
        (COUNT, COUNT * (COUNT + 1) // 2, "1-0", COUNT)
    ]
    some = source.option("pushFilters", "true").load().where("id = '4321-0' or id = 'x'")
    assert [row.n for row in some.collect()] == [4321]


@pytest.mark.spark
def test_spark_follows_a_stream_with_segments(store: Store, spark: SparkSession, tmp_path: Path) -> None:
    def run() -> None:
        frame = (spark.readStream.format("rillet").schema(TYPED)
                 .options(**options(tmp_path, maxEntriesPerTrigger="2500")).load())  # fmt: skip
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "table")).awaitTermination()

    run()
    fill(store, 2000, COUNT + 1)
    settled(store)
    store.execute("XTRIM", "s", "MINID", f"{COUNT - 100}-0")
    run()
    table = spark.read.parquet(str(tmp_path / "table"))
    assert sorted(row.n for row in table.select("n").collect()) == list(range(1, COUNT + 2001))


@pytest.mark.spark
def test_an_archive_of_a_stream_with_segments(store: Store, spark: SparkSession, tmp_path: Path) -> None:
    from rillet.spark.pipelines.archive import archive

    before = calls(store, "xnodes") + from_owner(planned(tmp_path)[1])
    given: dict[str, Any] = {name: value for name, value in options(tmp_path).items() if name != "minPartitions"}
    done = archive(spark, tmp_path / "archive", trim=True, **given)
    assert (done.entries, done.lost) == (COUNT, 0)
    assert done.trimmed > 0
    assert calls(store, "xnodes") == before
    found = spark.read.parquet(str(tmp_path / "archive"))
    assert found.select("id").distinct().count() == COUNT
