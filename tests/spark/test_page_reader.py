"""Planning and reading against a real server, without Spark."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import ArrayType, StringType, StructType  # noqa: E402

from rillet.client.address import Address  # noqa: E402
from rillet.client.connection import Connection  # noqa: E402
from rillet.client.errors import ConnectorError  # noqa: E402
from rillet.client.redirection import Patience  # noqa: E402
from rillet.client.servers import Servers  # noqa: E402
from rillet.spark.options import OptionError  # noqa: E402
from rillet.spark.read.data_loss import DataLoss, Place  # noqa: E402
from rillet.spark.read.metadata import count_ahead  # noqa: E402
from rillet.spark.read.page_reader import read_task  # noqa: E402
from rillet.spark.read.stream_info import stream_infos  # noqa: E402
from rillet.spark.source import BatchReader, RilletDataSource, StreamingReader  # noqa: E402
from rillet.spark.spark_versions import ReadAllAvailable, ReadMaxRows  # noqa: E402
from rillet.types.stream.id import MAX, StreamID  # noqa: E402
from tests.judge import Judge, running_redis  # noqa: E402
from tests.server.harness import launch, running  # noqa: E402
from tests.spark.conftest import entry_id, options  # noqa: E402

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
WHOLE = (("events", StreamID(0, 0), StreamID(MAX, MAX)),)
SPARK_SCHEMA = StructType().add("id", "string").add("n", "long")


def numbers(batches: Iterator[Any]) -> list[int]:
    return [n for batch in batches for n in batch.column("n").to_pylist()]


@pytest.mark.parametrize(("page", "batch"), [(1, 1), (7, 100), (100, 7), (1000, 10_000), (500, 1000)])
def test_pages_and_batches_of_any_size_are_the_stream(
    url: str, add: Callable[..., None], page: int, batch: int
) -> None:
    add(range(1000))
    chosen = options(url, pageEntries=str(page), batchEntries=str(batch))
    batches = list(read_task(chosen, WHOLE, SCHEMA))
    assert numbers(iter(batches)) == list(range(1000))
    assert max(found.num_rows for found in batches) <= max(batch, page)


def test_a_range_is_open_on_the_left_and_closed_on_the_right(url: str, add: Callable[..., None]) -> None:
    add(range(100))
    after, last = StreamID.parse(entry_id(9)), StreamID.parse(entry_id(20))
    assert numbers(read_task(options(url), [("events", after, last)], SCHEMA)) == list(range(10, 21))
    assert numbers(read_task(options(url), [("events", last, last)], SCHEMA)) == []


@contextmanager
def cutting_proxy(port: int, lengths: list[int]) -> Iterator[int]:
    """Pass connections on to a server, each closed after so many bytes of answers; the last one is not."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for length in [*lengths, 1 << 60]:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, socket.create_connection(("127.0.0.1", port)) as server:
                requests = threading.Thread(target=forward, args=(client, server, 1 << 60))
                requests.start()
                forward(server, client, length)
                requests.join()

    def forward(source: socket.socket, target: socket.socket, length: int) -> None:
        try:
            while length > 0 and (data := source.recv(min(length, 65536))):
                target.sendall(data)
                length -= len(data)
        except OSError:
            pass
        for end in (source, target):  # either side's end is the end of both
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_a_lost_connection_is_made_again_where_it_broke(judge: Judge, url: str, add: Callable[..., None]) -> None:
    add(range(2000))
    with cutting_proxy(judge.port, [10_000, 33_333, 5, 70_001]) as port:
        chosen = options(f"redis://127.0.0.1:{port}", pageEntries="100", batchEntries="300")
        assert numbers(read_task(chosen, WHOLE, SCHEMA)) == list(range(2000))


def test_a_connection_that_keeps_breaking_is_an_error(judge: Judge, url: str, add: Callable[..., None]) -> None:
    add(range(10))
    with (
        cutting_proxy(judge.port, [5] * 1000) as port,
        pytest.raises(ConnectorError, match=f"connection to 127.0.0.1:{port} was lost"),
    ):
        numbers(read_task(options(f"redis://127.0.0.1:{port}", timeout="300ms"), WHOLE, SCHEMA))


def test_errors_name_the_server_and_the_stream(judge: Judge, url: str) -> None:
    with judge.client() as client:
        client.execute_command("SET", "text", "x")
    with pytest.raises(ConnectorError, match=f"there is no stream 'absent' at 127.0.0.1:{judge.port}"):
        BatchReader(options(url, "absent"), SPARK_SCHEMA, 1).partitions()
    with Servers(options(url)) as servers:
        assert stream_infos(servers, ["absent"]) == {"absent": None}
        with pytest.raises(ConnectorError, match="WRONGTYPE.*'text'"):
            stream_infos(servers, ["text"])
    with pytest.raises(ConnectorError, match="reading 'text' from .*WRONGTYPE"):
        numbers(read_task(options(url, "text"), [("text", *WHOLE[0][1:])], SCHEMA))
    with pytest.raises(ConnectorError, match="no server answers at 127.0.0.1:1: .* .waited for it for 0.1 s"):
        numbers(read_task(options("redis://127.0.0.1:1", timeout="100ms"), WHOLE, SCHEMA))


def test_a_connection_uses_its_password_and_database() -> None:
    with running_redis() as server:
        with Connection(Address(port=server.port), 5) as connection:
            connection.call(b"CONFIG", b"SET", b"requirepass", b"secret")
        with pytest.raises(ConnectorError, match="refused the password: WRONGPASS"):
            Connection(Address(port=server.port, password="guess"), 5)
        with Connection(Address(port=server.port, password="secret", db=3), 5) as connection:
            connection.call(b"XADD", b"s", b"1-1", b"n", b"7")
        chosen = options(f"redis://default:secret@127.0.0.1:{server.port}/3", "s")
        assert numbers(read_task(chosen, [("s", *WHOLE[0][1:])], SCHEMA)) == [7]


def test_counting_ahead_is_exact(url: str, add: Callable[..., None]) -> None:
    add(range(500))
    last = StreamID.parse(entry_id(499))
    with Servers(options(url)) as servers:
        for entries in (1, 63, 64, 65, 128, 499):
            assert str(count_ahead(servers, "events", StreamID(0, 0), last, entries, 64)) == entry_id(entries - 1)
        assert count_ahead(servers, "events", StreamID(0, 0), last, 5000, 64) == last


def test_a_batch_is_planned_over_the_existing_entries(url: str, add: Callable[..., None]) -> None:
    add(range(30_000))
    reader = BatchReader(options(url), SPARK_SCHEMA, 3)
    parts = reader.partitions()
    assert len(parts) == 3
    add(range(30_000, 30_010))  # later than the plan
    shares = [numbers(reader.read(part)) for part in parts]
    assert [n for share in shares for n in share] == list(range(30_000))
    assert max(map(len, shares)) < 1.3 * min(map(len, shares))
    few = BatchReader(options(url, startingOffsets=entry_id(10), endingOffsets=f"({entry_id(15)}"), SPARK_SCHEMA, 3)
    assert [n for part in few.partitions() for n in numbers(few.read(part))] == [10, 11, 12, 13, 14]
    empty = BatchReader(options(url, startingOffsets="latest"), SPARK_SCHEMA, 3)
    assert [n for part in empty.partitions() for n in numbers(empty.read(part))] == []


def test_entries_too_large_to_sample_are_split_evenly_in_time(judge: Judge, url: str) -> None:
    with judge.client() as client:
        for n in range(8):
            client.execute_command("XADD", "large", f"{1000 + n}-0", "n", n, "payload", "x" * 20_000)
    reader = BatchReader(options(url, "large"), SPARK_SCHEMA, 4)
    parts = reader.partitions()
    assert [numbers(reader.read(part)) for part in parts] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def stream_reader(url: str, **more: str) -> StreamingReader:
    return StreamingReader(options(url, **more), SPARK_SCHEMA, 2)


def batch_of(reader: StreamingReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [n for part in reader.partitions(start, end) for n in numbers(reader.read(part))]


def test_micro_batches_have_no_gaps_or_duplicates(judge: Judge, url: str, add: Callable[..., None]) -> None:
    add(range(100))
    reader = stream_reader(url, maxEntriesPerTrigger="30")
    start = reader.initialOffset()
    seen: list[int] = []
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    for _ in range(4):
        end = reader.latestOffset(start, limit)
        seen += batch_of(reader, start, end)
        start = end
    assert seen == list(range(100))
    assert reader.latestOffset(start, limit) == start
    with judge.client() as client:  # the same millisecond, later
        client.execute_command("XADD", "events", f"{entry_id(99).split('-')[0]}-*", "n", "1000")
    end = reader.latestOffset(start, limit)
    assert batch_of(reader, start, end) == [1000]
    reader.stop()


def test_latest_is_resolved_once_and_survives_a_restart_before_the_first_commit(
    url: str, add: Callable[..., None]
) -> None:
    add(range(10))
    reader = stream_reader(url, startingOffsets="latest")
    start = reader.initialOffset()
    add(range(10, 20))
    assert reader.initialOffset() == start
    end = reader.latestOffset(start, ReadAllAvailable())
    assert batch_of(reader, start, end) == list(range(10, 20))
    reader.stop()
    add(range(20, 30))
    again = stream_reader(url, startingOffsets="latest")
    later = again.initialOffset()  # Spark asks anew: it has the planned end only
    assert batch_of(again, later, end) == list(range(10, 20))
    assert batch_of(again, end, again.latestOffset(end, ReadAllAvailable())) == list(range(20, 30))
    again.stop()


def test_available_now_ends_at_the_ids_at_its_start(url: str, add: Callable[..., None]) -> None:
    add(range(50))
    reader = stream_reader(url)
    reader.prepareForTriggerAvailableNow()
    add(range(50, 60))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert batch_of(reader, start, end) == list(range(50))
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    newest = reader.reportLatestOffset()
    assert (newest["streams"], newest["added"]) == ({"events": entry_id(59)}, {"events": 60})
    reader.stop()


def test_a_replaced_stream_and_a_foreign_checkpoint_are_errors(
    judge: Judge, url: str, add: Callable[..., None]
) -> None:
    add(range(10))
    reader = stream_reader(url)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with judge.client() as client:
        client.execute_command("DEL", "events")
        with pytest.raises(DataLoss, match="the stream 'events' at .* is gone"):
            reader.latestOffset(end, ReadAllAvailable())
        client.execute_command("XADD", "events", "5-1", "n", "1")
    with pytest.raises(DataLoss, match="'events' at .* a different one: it ends at 5-1"):
        reader.latestOffset(end, ReadAllAvailable())
    with pytest.raises(
        ConnectorError, match="the checkpoint belongs to the stream 'orders', but the query reads the stream 'events'"
    ):
        reader.latestOffset({"orders": "1-1"}, ReadAllAvailable())
    reader.stop()


def test_the_planner_finds_a_server_again(judge: Judge, url: str, add: Callable[..., None]) -> None:
    add(range(10))
    reader = stream_reader(url)
    start = reader.initialOffset()
    with judge.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")
    assert reader.latestOffset(start, ReadAllAvailable())["streams"] == {"events": entry_id(9)}
    reader.stop()


def test_options_of_the_other_direction_are_rejected(url: str) -> None:
    with pytest.raises(OptionError, match="not allowed for reading: maxlen"):
        BatchReader(options(url, maxlen="5"), SPARK_SCHEMA, 1)
    with pytest.raises(OptionError, match="not allowed for a batch read: maxEntriesPerTrigger"):
        BatchReader(options(url, maxEntriesPerTrigger="5"), SPARK_SCHEMA, 1)
    with pytest.raises(OptionError, match="not allowed for a streaming read: endingOffsets"):
        stream_reader(url, endingOffsets="5")
    with pytest.raises(OptionError, match="'id' cannot be int64"):
        BatchReader(options(url), StructType().add("a", ArrayType(StringType())).add("id", "long"), 1)
    with pytest.raises(OptionError, match="mode\\('append'\\)"):
        RilletDataSource({"url": url, "stream": "events"}).writer(SPARK_SCHEMA, True)
    with pytest.raises(ConnectorError, match="there is no store at /nowhere"):
        BatchReader(RilletDataSource({"path": "/nowhere", "stream": "x"}).parsed, SPARK_SCHEMA, 1)


# ---- a server that is away -----------------------------------------------------------------------------------------

LARGE = 2500  # entries of 8 KB: no socket's buffers hold a page of them


class Pauses:
    """Counts the pauses of those who wait for a server, and starts it again in the third."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, start: Callable[[], object]) -> None:
        self.count = 0
        again = Patience.again

        def counted(patience: Patience) -> bool:
            self.count += 1
            if self.count == 3:
                start()
            return again(patience)

        monkeypatch.setattr(Patience, "again", counted)


def fill_large(port: int) -> None:
    """Append the entries of a page that takes its time."""
    with Connection(Address(port=port), 60) as connection:
        for begin in range(0, LARGE, 100):
            names = [(entry_id(i).encode(), b"%d" % i) for i in range(begin, begin + 100)]
            connection.calls([[b"XADD", b"events", name, b"n", n, b"much", bytes(8000)] for name, n in names])


def read_while_killed(port: int, kill: Callable[[], object], pauses: Pauses, **more: str) -> None:
    """Read a page of which the beginning has come when the server is killed; all of it is read, after a restart."""
    chosen = options(f"redis://127.0.0.1:{port}", pageEntries=str(LARGE), batchEntries="100", **more)
    reading = read_task(chosen, WHOLE, SCHEMA, {"events": Place(StreamID(0, 0), 0)})
    found = numbers(iter([next(reading)]))
    kill()
    middle = 0
    for batch in reading:
        middle = middle or (len(found) if pauses.count else 0)
        found += batch.column("n").to_pylist()
    assert found == list(range(LARGE))
    assert pauses.count >= 3
    assert 0 < middle < LARGE


def test_a_redis_that_is_killed_in_the_middle_of_a_page_and_comes_back_costs_a_pause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = []
    with running_redis("--appendonly", "yes", folder=tmp_path) as server:
        slowly = ("--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
        command = [*cast("list[str]", server.process.args), *slowly]
        fill_large(server.port)
        with server.client() as client:
            for i in range(30):  # each delays loading, which is answered with LOADING meanwhile
                client.execute_command("SET", f"key:{i}", "x")
            client.execute_command("BGREWRITEAOF")
            while client.execute_command("INFO", "persistence").count(b"aof_rewrite_in_progress:1\r\n"):
                pass

        def kill() -> None:
            server.process.kill()
            server.process.wait()

        try:
            pauses = Pauses(monkeypatch, lambda: started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL)))
            read_while_killed(server.port, kill, pauses)
        finally:
            for process in started:
                process.kill()
                process.wait()


def test_a_rillet_server_that_is_killed_in_the_middle_of_a_page_and_comes_back_costs_a_pause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = ("--appendonly", "yes", "--appendfsync", "always")
    started = []
    with running(tmp_path, *log) as server:
        fill_large(server.port)

        def kill() -> None:
            server.process.kill()
            server.process.wait()

        try:
            again = ["--port", str(server.port), "--dir", str(tmp_path), *log]
            pauses = Pauses(monkeypatch, lambda: started.append(launch(again)))
            read_while_killed(server.port, kill, pauses)
        finally:
            for process in started:
                with process:
                    process.kill()
