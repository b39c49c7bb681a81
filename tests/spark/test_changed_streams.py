"""A query over many streams of a rillet server reads the state of those that changed, and misses nothing."""

from __future__ import annotations

import json
import random
import zlib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import redis
from pyspark.sql.types import StructType

from rillet.client.errors import ConnectionLost
from rillet.spark.options import parse
from rillet.spark.read import micro_batch
from rillet.spark.read.changed_streams import ChangedStreams
from rillet.spark.read.offsets import Offset, OffsetError
from rillet.spark.source import StreamingReader
from rillet.spark.spark_versions import ReadAllAvailable
from rillet.types.stream.id import StreamID
from tests.server.harness import Running, running

pytestmark = pytest.mark.slow

SCHEMA = StructType().add("stream", "string").add("n", "long")
STREAMS = 30


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few streams are many."""
    monkeypatch.setattr(micro_batch, "MANY_STREAMS", 5)
    monkeypatch.setattr(micro_batch, "IDLE_MS", 1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    """A server of rillet with a log."""
    with running(tmp_path, "--appendonly", "yes") as found:
        yield found


class Query:
    """A query by pattern without Spark, and what it has read."""

    def __init__(self, port: int, **options: str) -> None:
        self.options = {"url": f"redis://127.0.0.1:{port}", "streamPattern": "s*", "timeout": "30", **options}
        self.restart()
        self.start: dict[str, Any] = self.reader.initialOffset()
        self.rows: list[tuple[str, int]] = []

    def restart(self) -> None:
        """Continue in another process."""
        self.reader = StreamingReader(parse(self.options), SCHEMA, 2)

    def trigger(self) -> bool:
        """Read what is new; return False if nothing is."""
        end = self.reader.latestOffset(self.start, ReadAllAvailable())
        self.reader.reportLatestOffset()
        if end == self.start:
            return False
        for part in self.reader.partitions(self.start, end):
            for batch in self.reader.read(part):
                self.rows += zip(batch["stream"].to_pylist(), batch["n"].to_pylist(), strict=True)
        self.start = json.loads(json.dumps(end))
        return True

    def drain(self) -> None:
        """Read all that there is."""
        while self.trigger():
            pass


class Producer:
    """Writes numbered entries, and deletes, renames and replaces keys."""

    def __init__(self, client: redis.Redis, seed: int) -> None:
        self.client = client
        self.source = random.Random(seed)
        self.number = 0
        self.written: list[tuple[str, int]] = []

    def add(self, stream: str) -> None:
        """Append an entry."""
        self.number += 1
        self.client.xadd(stream, {"n": self.number})
        self.written.append((stream, self.number))

    def some(self, fresh: bool) -> None:
        """Append some entries; fresh: also to streams that did not exist."""
        for _ in range(self.source.randint(0, 4)):
            number = self.source.randrange(STREAMS if not fresh else 2 * STREAMS)
            self.add(f"s{number}")
        self.client.xadd("other", {"n": 1})
        self.client.set("text", "x")

    def end_one(self) -> None:
        """Delete or replace a stream, all of which was read."""
        name = f"s{self.source.randrange(STREAMS, 2 * STREAMS)}"
        how = self.source.randrange(3)
        if how == 0:
            self.client.delete(name)
        elif how == 1:
            self.client.pexpire(name, 1)
        elif self.client.exists(name):
            self.client.rename(name, "gone")


def information(client: redis.Redis) -> int:
    """Return how often XINFO STREAM was called."""
    return int(client.info("commandstats").get("cmdstat_xinfo|stream", {"calls": 0})["calls"])


@pytest.mark.parametrize("seed", range(4))
def test_every_entry_is_read_once_while_streams_come_and_go(server: Running, seed: int) -> None:
    with redis.Redis(port=server.port) as client:
        producer = Producer(client, seed)
        for number in range(STREAMS):
            producer.add(f"s{number}")
        query = Query(server.port)
        for round_ in range(60):
            if round_ % 20 == 13:
                query.restart()
            if round_ % 4 == 3:
                query.drain()
                producer.end_one()
            producer.some(True)
            query.trigger()
            if round_ == 40:
                client.swapdb(0, 1)
                client.swapdb(1, 0)
        query.drain()
        assert sorted(query.rows) == sorted(producer.written)


def test_only_changed_streams_are_asked_for(server: Running) -> None:
    with redis.Redis(port=server.port) as client:
        producer = Producer(client, 0)
        for number in range(STREAMS):
            producer.add(f"s{number}")
        query = Query(server.port)
        query.drain()
        assert query.trigger() is False
        for changed in range(4):
            before = information(client)
            for number in range(changed):
                producer.add(f"s{number}")
            producer.add("other")
            assert query.trigger() is (changed > 0)
            assert information(client) - before == changed
        assert sorted(query.rows) == sorted(row for row in producer.written if row[0] != "other")


def test_a_restart_of_the_server_skips_no_change(tmp_path: Path) -> None:
    with running(tmp_path, "--appendonly", "yes") as server, redis.Redis(port=server.port) as client:
        port, producer = server.port, Producer(client, 1)
        for number in range(STREAMS):
            producer.add(f"s{number}")
        query = Query(port)
        query.drain()
        producer.add("s1")
    with running(tmp_path, "--port", str(port), "--appendonly", "yes"), redis.Redis(port=port) as client:
        producer.client = client
        query.drain()
        producer.add("s2")
        client.delete("s3")
        query.drain()
        assert sorted(query.rows) == sorted(producer.written)
        assert "s3" not in Offset.parse(query.start).streams


def test_a_lost_reply_is_no_lost_change(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position has moved, but the streams were not read."""
    with redis.Redis(port=server.port) as client:
        producer = Producer(client, 2)
        for number in range(STREAMS):
            producer.add(f"s{number}")
        query = Query(server.port)
        query.drain()
        asked = ChangedStreams.all_or_changed
        lost: list[Any] = []

        def losing(self: ChangedStreams) -> Any:
            found = asked(self)
            if len(lost) < 2 and found:
                lost.append(found)
                raise ConnectionLost("rillet: the connection was lost")
            return found

        monkeypatch.setattr(ChangedStreams, "all_or_changed", losing)
        producer.add("s1")
        query.drain()
        assert lost == [["s1"]]
        producer.add("s2")
        query.drain()
        assert lost == [["s1"], ["s2"]]
        assert sorted(query.rows) == sorted(producer.written)


def test_a_server_that_forbids_the_command_is_read_as_any_other(server: Running) -> None:
    with redis.Redis(port=server.port) as client:
        client.acl_setuser("reader", True, nopass=True, keys=["*"], categories=["+@all"], commands=["-rillet.changes"])
        producer = Producer(client, 3)
        for number in range(STREAMS):
            producer.add(f"s{number}")
        query = Query(server.port, user="reader", password="x")
        for _ in range(5):
            query.drain()
            producer.some(True)
        query.drain()
        assert sorted(query.rows) == sorted(producer.written)


def test_packed_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of an early version, which were compressed by zlib."""
    streams = {f"session:{n}": StreamID(10**12 + n * 977, n % 3) for n in range(2000)}
    added = {name: n for n, name in enumerate(streams) if n % 5}
    value = Offset(streams, added).json()
    assert len(value["packed"]) < 12_000
    found = Offset.parse(json.loads(json.dumps(value)))
    assert (found.streams, found.added) == (streams, added)
    assert found.json() == value
    names = sorted(streams)
    columns = [names, [streams[one].ms for one in names], [streams[one].seq for one in names],
               [added.get(one) for one in names]]  # fmt: skip
    early = Offset.parse({"packed": b64encode(zlib.compress(json.dumps(columns).encode())).decode()})
    assert (early.streams, early.added) == (streams, added)
    for wrong in ("lzma:", "lzma:AAAA", "lzma:" + value["packed"][9:], "AAAA"):
        with pytest.raises(OffsetError):
            Offset.parse({"packed": wrong})
