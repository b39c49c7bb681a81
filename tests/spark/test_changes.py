"""format("rillet.changes"): batches without Spark, as its driver and tasks call the reader."""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import rillet
from rillet.errors import LogCorrupt
from rillet.protocol.command_parser import pack_command
from rillet.replication.applier import Applier
from rillet.spark.changes.options import parse_changes
from rillet.spark.changes.rows import SCHEMA, entry_of
from rillet.spark.changes.source import ChangesReader
from rillet.spark.options import OptionError
from rillet.spark.read.data_loss import DataLoss
from rillet.spark.spark_versions import ReadAllAvailable
from rillet.transfer.rdb_parts import SnapshotParts, snapshot_keys, split
from tests.judge import Judge, required_binary, running_redis
from tests.replication.load import Load, differences, lasts
from tests.replication.proxy import Proxy

Offset = dict[str, Any]
Row = dict[str, Any]


@contextmanager
def server(compat: str = "7.0", *options: str) -> Iterator[Judge]:
    with running_redis("--repl-diskless-sync-delay", "0", "--repl-backlog-size", "20mb", *options,
                       binary=required_binary(compat)) as judge:  # fmt: skip
        yield judge


_TYPES: dict[str, DataType] = {
    "string": StringType(), "bigint": LongType(), "int": IntegerType(), "double": DoubleType(),
    "boolean": BooleanType(), "timestamp": TimestampType(), "array<string>": ArrayType(StringType()),
    "array<binary>": ArrayType(BinaryType()), "map<string|string>": MapType(StringType(), StringType()),
}  # fmt: skip


def schema_of(text: str) -> StructType:
    """Return the schema of a text without Spark's parser, which needs Java."""
    columns = [column.split() for column in text.replace("string,string>", "string|string>").split(",")]
    return StructType([StructField(name, _TYPES[kind]) for name, kind in columns])


def through_checkpoint(offset: Offset) -> Offset:
    found: Offset = json.loads(json.dumps(offset))
    return found


class Query:
    """The calls of a streaming query; `restart` forgets everything but the checkpoint."""

    def __init__(self, port: int, folder: Path, schema: str = SCHEMA, **options: str) -> None:
        self._schema = schema_of(schema)
        self._options = {"url": f"redis://127.0.0.1:{port}", "folder": str(folder), "timeout": "20", **options}
        self.start: Offset | None = None
        self.planned: Offset | None = None  # a batch that is not committed
        self.reader = self._new()

    def _new(self) -> ChangesReader:
        return ChangesReader(parse_changes(self._options), self._schema)

    def restart(self) -> None:
        """Stop the driver, and start another one."""
        self.reader.stop()
        self.reader = self._new()

    def begin(self) -> None:
        """Do the first trigger, which chooses where the query starts."""
        assert self.plan() is None

    def plan(self) -> Offset | None:
        """Plan the next batch, and return its end; None if there is nothing."""
        start = self.start or through_checkpoint(self.reader.initialOffset())
        end = through_checkpoint(self.reader.latestOffset(start, ReadAllAvailable()))
        self.planned = None if end == start else end
        return self.planned

    def rows(self) -> list[Row]:
        """Return the rows of the planned batch, as its tasks read them."""
        start = self.start or through_checkpoint(self.reader.initialOffset())
        assert self.planned is not None
        tasks = self.reader.partitions(start, self.planned)
        return [row for task in tasks for batch in self.reader.read(task) for row in batch.to_pylist()]

    def commit(self) -> None:
        """Commit the planned batch: Spark tells the source one batch late."""
        if self.start is not None:
            self.reader.commit(self.start)
        self.start, self.planned = self.planned, None

    def until(self, offset: int) -> list[Row]:
        """Run batches up to an offset of the server, and return their rows."""
        found, deadline = [], time.monotonic() + 30
        while self.start is None or self.start["offset"] < offset:
            if self.plan() is not None:
                found += self.rows()
                self.commit()
            assert time.monotonic() < deadline
        return found


@pytest.fixture
def query(tmp_path: Path) -> Iterator[Callable[..., Query]]:
    made: list[Query] = []

    def new(port: int, schema: str = SCHEMA, **options: str) -> Query:
        made.append(Query(port, tmp_path / "folder", schema, **options))
        return made[-1]

    yield new
    for one in made:
        one.reader.stop()


def offset_of(client: Any) -> int:
    """Return the offset of the last change, which is followed by a PING at most."""
    client.set("end", "1")
    text = client.execute_command("INFO", "replication").decode()
    return next(int(line.split(":")[1]) for line in text.splitlines() if line.startswith("master_repl_offset"))


def apply(store: rillet.Store, rows: list[Row]) -> None:
    """Apply the commands of rows to a store."""
    transport: Any = store.transport
    problems: list[str] = []
    with transport.lock:  # else the store's own thread, which tidies up, works in the middle of a command
        session = transport.engine.session(trusted=True)
        session.enter("follow")
        applier = Applier(session, 0, problems.append)
        for row in rows:
            if row["arguments"] != [b"snapshot"]:
                applier.feed(pack_command([b"SELECT", b"%d" % row["db"]]) + pack_command(row["arguments"]))
    assert problems == []


def client_of(store: rillet.Store) -> Any:
    client = store.redis(protocol=2)
    client.response_callbacks.clear()
    return client


def test_columns(query: Callable[..., Query]) -> None:
    typed = ("offset bigint, db int, key string, type string, command string, arguments array<string>, id string, "
             "fields map<string,string>, n int, price double")  # fmt: skip
    with server() as judge:
        client = judge.client()
        changes = query(judge.port, typed)
        changes.begin()
        client.execute_command("XADD", "s", "NOMKSTREAM", "MAXLEN", "~", "5", "1-1", "n", "1")  # no effect
        client.execute_command("XADD", "s", "MAXLEN", "~", "5", "1-1", "n", "7", "price", "1.5")
        client.execute_command("SELECT", 2)
        with client.pipeline() as pipeline:
            pipeline.execute_command("SELECT", 2)
            pipeline.incr("counter")
            pipeline.delete("missing")
            pipeline.flushdb()
            pipeline.execute()
        offset = offset_of(client)
        rows = changes.until(offset)
        assert [(row["db"], row["key"], row["type"], row["command"]) for row in rows] == [
            (0, "s", "stream", "XADD"), (2, "counter", "string", "INCRBY"), (2, None, None, "FLUSHDB"),
            (2, "end", "string", "SET"),
        ]  # fmt: skip
        assert rows[0] | {"offset": 0} == {
            "offset": 0, "db": 0, "key": "s", "type": "stream", "command": "XADD", "id": "1-1",
            "arguments": ["XADD", "s", "MAXLEN", "=", "1", "1-1", "n", "7", "price", "1.5"] if len(rows[0]["arguments"])
            > 8 else ["XADD", "s", "1-1", "n", "7", "price", "1.5"],
            "fields": [("n", "7"), ("price", "1.5")], "n": 7, "price": 1.5,
        }  # fmt: skip
        assert (rows[1]["n"], rows[1]["id"], rows[1]["fields"]) == (None, None, None)
        offsets = [row["offset"] for row in rows]
        assert offsets == sorted(set(offsets))


PEERS = [pytest.param(compat, marks=pytest.mark.peer(compat)) for compat in ("newest", "valkey")]


@pytest.mark.parametrize("compat", ["7.0", *PEERS])
def test_exactly_once_under_load_with_restarts(compat: str, query: Callable[..., Query]) -> None:
    """A snapshot and all changes after it, while the link is cut, the driver restarts, and batches run twice."""
    chance = random.Random(3)
    with server(compat) as judge, Proxy(judge.port) as proxy:
        master, maker = judge.client(), Load(21, compat)
        maker.run(master, 150)
        master.execute_command("XADD", "grouped", "1-1", "a", "b")
        master.execute_command("XGROUP", "CREATE", "grouped", "g", "0")
        master.execute_command("XREADGROUP", "GROUP", "g", "c", "STREAMS", "grouped", ">")
        changes = query(proxy.port, startingOffsets="snapshot", fileBytes="2000", maxBytesPerTrigger="3000")
        found: list[Row] = []
        for number in range(24):
            maker.run(master, 15)
            if changes.plan() is not None:
                rows = changes.rows()
                if chance.random() < 0.5:  # the driver ends before the commit; the batch runs again
                    planned = changes.planned
                    changes.restart()
                    changes.planned = planned
                    assert changes.rows() == rows
                found += rows
                changes.commit()
            if number % 5 == 4:
                proxy.cut()
        lasts(master)
        found += changes.until(offset_of(master))
        assert found[0]["arguments"] == [b"snapshot"]
        assert {row["command"] for row in found} > {"snapshot", "XADD", "SET"}
        after = [row["offset"] for row in found if row["command"] != "snapshot"]
        assert after == sorted(set(after))
        with rillet.open(compat=compat, enable_debug_command="yes") as store:
            apply(store, found)
            assert differences(master, client_of(store), streams=False) == []
            if master.exists("grouped"):
                pending = ("XPENDING", "grouped", "g")
                assert store.execute(*pending)[:3] == master.execute_command(*pending)[:3]


def test_committed_files_are_deleted(query: Callable[..., Query], tmp_path: Path) -> None:
    with server() as judge:
        client = judge.client()
        client.set("a", "1")
        changes = query(judge.port, startingOffsets="snapshot")
        changes.plan()
        assert [row["command"] for row in changes.rows()] == ["snapshot", "snapshot"]
        folder = tmp_path / "folder"
        assert len(list(folder.glob("*.rdb"))) == len(list(folder.glob("*.parts"))) == 1
        changes.commit()
        for _ in range(3):
            changes.until(offset_of(client))
            assert len(list(folder.iterdir())) == 1
        changes.restart()
        changes.until(offset_of(client))
        assert len(list(folder.iterdir())) == 1
        # A batch whose files are gone must not become a batch with fewer rows.
        offset_of(client)
        while changes.plan() is None:
            pass
        for file in folder.iterdir():
            file.unlink()
        with pytest.raises(DataLoss, match="lacks the changes from"):
            changes.rows()


def test_a_failover(query: Callable[..., Query]) -> None:
    with server() as one, server("7.0", "--replicaof", f"127.0.0.1 {one.port}") as two, Proxy(one.port) as proxy:
        first, second = one.client(), two.client()
        changes = query(proxy.port)
        changes.begin()
        first.set("a", "1")
        while first.execute_command("WAIT", 2, 1000) < 2:
            first.set("a", "2")
        second.execute_command("REPLICAOF", "NO", "ONE")
        proxy.target = two.port
        proxy.cut()
        rows = changes.until(offset_of(second))  # without a loss: the other server continues the history
        assert {row["key"] for row in rows} == {"a", "end"}
        changes.restart()
        second.set("b", "1")
        assert [row["key"] for row in changes.until(offset_of(second))] == ["b", "end"]


def test_a_restart_of_the_server(query: Callable[..., Query], tmp_path: Path) -> None:
    """A server that stores its position in its RDB file continues its stream."""
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "redis.conf").write_text("save 3600 1\nrepl-diskless-sync-delay 0\n")
    with running_redis(conf=tmp_path / "redis.conf", folder=data) as judge, Proxy(judge.port) as proxy:
        changes = query(proxy.port)
        changes.begin()
        judge.client().set("a", "1")
        judge.process.terminate()
        judge.process.wait(60)
        with running_redis(conf=tmp_path / "redis.conf", folder=data) as again:
            proxy.target = again.port
            again.client().set("b", "1")
            rows = changes.until(offset_of(again.client()))
    assert [row["key"] for row in rows] == ["a", "b", "end"]


@pytest.mark.parametrize("fails", [True, False])
def test_lost_changes(fails: bool, query: Callable[..., Query]) -> None:
    with server("7.0", "--repl-backlog-size", "16kb") as judge, Proxy(judge.port) as proxy:
        client = judge.client()
        changes = query(proxy.port, failOnDataLoss=str(fails).lower())
        changes.begin()
        assert len(changes.until(offset_of(client))) == 1
        changes.reader.stop()
        with client.pipeline(transaction=False) as pipeline:
            for _ in range(100):
                pipeline.set("k", "x" * 1000)
            pipeline.execute()
        changes.restart()
        if fails:
            with pytest.raises(DataLoss, match="repl-backlog-size"):
                changes.until(1 << 60)
            return
        assert changes.start is not None
        while changes.reader._receiver is None or changes.reader._receiver.start.run == changes.start["run"]:
            assert changes.plan() is None  # until a new run begins
        client.set("later", "1")
        assert [row["key"] for row in changes.until(offset_of(client))] == ["later", "end"]


def test_available_now_ends(query: Callable[..., Query]) -> None:
    with server() as judge:
        client = judge.client()
        for number in range(20):
            client.rpush("list", number)
        changes = query(judge.port, keys="l*,o*", startingOffsets="snapshot")
        offset = offset_of(client)
        changes.reader.prepareForTriggerAvailableNow()
        rows = []
        while changes.plan() is not None:
            rows += changes.rows()
            changes.commit()
        assert [row["key"] for row in rows] == [None, "list"]
        assert rows[1]["arguments"][2:] == [b"%d" % number for number in range(20)]
        assert changes.start is not None
        assert changes.start["offset"] <= offset


def test_available_now_ends_under_load(query: Callable[..., Query]) -> None:
    """The query ends at what the server had at its start, although more arrives before each batch."""
    with server() as judge:
        client = judge.client()
        changes = query(judge.port, fileBytes="1024")
        changes.begin()
        first = offset_of(client)
        changes.reader.prepareForTriggerAvailableNow()
        batches = 0
        while changes.plan() is not None:
            changes.commit()
            batches += 1
            client.set("more", "x" * 2000)
            assert batches < 20
        assert changes.start is not None
        assert changes.start["offset"] >= first


def test_a_snapshot_in_parts(query: Callable[..., Query]) -> None:
    """Every task reads a part; together they have each key once, in each database."""
    with server() as judge:
        client = judge.client()
        for db in (0, 3):
            client.execute_command("SELECT", db)
            for number in range(300):
                client.set(f"key:{number}", f"{db} {number}")
                client.rpush(f"list:{number}", *range(number % 7 + 1))
        client.execute_command("SELECT", 0)
        client.set("large", b"x" * 50_000)  # more than a part
        client.pexpireat("key:7", 9_000_000_000_000)
        last = f"{2**64 - 1}-{2**64 - 1}"
        client.execute_command("XADD", "last", last, "a", "b")
        changes = query(judge.port, startingOffsets="snapshot", fileBytes="1024")
        assert changes.plan() is not None
        assert changes.planned is not None
        tasks = changes.reader.partitions(through_checkpoint(changes.reader.initialOffset()), changes.planned)
        assert len(tasks) > 10
        rows = changes.rows()
        names = [(row["db"], row["key"]) for row in rows if row["type"] in ("string", "list") or row["key"] is None]
        expected = [(db, f"{kind}:{number}") for db in (0, 3) for kind in ("key", "list") for number in range(300)]
        assert sorted(names, key=repr) == sorted([*expected, (0, None), (0, "large")], key=repr)
        assert [row["id"] for row in rows if row["key"] == "last"] == [last, None]
        assert rows[0]["arguments"] == [b"snapshot"]
        assert [row["arguments"] for row in rows if row["arguments"][0] == b"PEXPIREAT"] == [
            [b"PEXPIREAT", b"key:7", b"9000000000000"]
        ]


def test_a_damaged_snapshot(tmp_path: Path) -> None:
    """Damage is found when the snapshot is divided, before a task reads it."""
    path = tmp_path / "dump.rdb"
    with rillet.open() as store:
        for number in range(1, 100):
            store.execute("RPUSH", f"list{number}", *[b"%d" % one for one in range(number)])
        store.save(path)
    data = path.read_bytes()
    whole = split(io.BytesIO(data), "dump.rdb", 500)
    assert len(whole.parts) > 2
    assert SnapshotParts.parse(whole.json()) == whole
    found = [key.key for part in whole.parts for key in snapshot_keys(data[part.start : part.end], part)]
    assert sorted(found) == sorted(b"list%d" % number for number in range(1, 100))
    for at in (0, 400, len(data) - 3):
        damaged = data[:at] + bytes((data[at] ^ 0x55,)) + data[at + 1 :]
        with pytest.raises(LogCorrupt):
            split(io.BytesIO(damaged), "dump.rdb", 500)
    for end in (5, 400, len(data) - 20, len(data) - 3):
        with pytest.raises(LogCorrupt):
            split(io.BytesIO(data[:end]), "dump.rdb", 500)


def test_options(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="folder is missing.*beside the checkpoint"):
        parse_changes({"url": "redis://127.0.0.1"})
    with pytest.raises(OptionError, match=r"option flder \(did you mean folder.*startingOffsets is 'x'.*folder is"):
        parse_changes({"url": "redis://127.0.0.1", "flder": "/x", "startingOffsets": "x"})
    with pytest.raises(OptionError, match="each of its masters"):
        parse_changes({"url": "redis+cluster://127.0.0.1", "folder": "/x"})
    with pytest.raises(OptionError, match="needs the url of a server"):
        parse_changes({"path": "/store", "folder": "/x"})
    with pytest.raises(OptionError, match="column 'offset' must be int64"):
        Query(1, tmp_path, "offset string")


@pytest.mark.parametrize(("words", "entry"), [
    (b"XADD s 1-1 a b", (b"1-1", [b"a", b"b"])),
    (b"XADD s MAXLEN = 5 1-1 a b", (b"1-1", [b"a", b"b"])),
    (b"XADD s NOMKSTREAM KEEPREF MINID 5-0 LIMIT 3 1-1 a b", (b"1-1", [b"a", b"b"])),
    (b"XADD s IDMP p m MAXLEN 5 1-1 a b", (b"1-1", [b"a", b"b"])),
    (b"SET a 1", None),
])  # fmt: skip
def test_the_entry_of_an_xadd(words: bytes, entry: Any) -> None:
    assert entry_of(words.split()) == entry
