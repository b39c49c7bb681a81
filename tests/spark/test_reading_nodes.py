"""Reading whole nodes from a rillet server and from an embedded store, without Spark."""

from __future__ import annotations

import random
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import rillet  # noqa: E402
from rillet.client.address import Address  # noqa: E402
from rillet.client.connection import Connection  # noqa: E402
from rillet.client.errors import ConnectorError  # noqa: E402
from rillet.client.pages import PageRange, RangeReader  # noqa: E402
from rillet.client.servers import Servers  # noqa: E402
from rillet.columns.arrow_batch import record_batch, rows_for  # noqa: E402
from rillet.protocol.command_parser import pack_command  # noqa: E402
from rillet.spark.options import parse  # noqa: E402
from rillet.spark.read.page_reader import read_task  # noqa: E402
from rillet.types.stream.id import MAX, StreamID  # noqa: E402
from tests.server.harness import running  # noqa: E402
from tests.spark.conftest import entry_id, number, options  # noqa: E402
from tests.spark.test_page_reader import cutting_proxy  # noqa: E402

FIRST, LAST = StreamID(0, 0), StreamID(MAX, MAX)
WHOLE = (("events", FIRST, LAST),)
SCHEMA = pa.schema([("stream", pa.string()), ("id", pa.string()), ("n", pa.int64()), ("user", pa.string())])
SMALL = {"pageEntries": "20", "batchEntries": "70"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A rillet server with 1,500 entries in `events`, some deleted, some of other fields, and 700 in `more`."""
    with running(tmp_path_factory.mktemp("nodes"), "--stream-node-max-entries", "10") as server:
        with Connection(Address(port=server.port), 30) as connection:
            connection.calls([[b"XADD", b"events", entry_id(i).encode(), *odd(i)] for i in range(1500)])
            connection.calls([[b"XADD", b"more", entry_id(i).encode(), *number(i)] for i in range(700)])
            gone = random.Random(7).sample(range(1500), 300)
            connection.call(b"XDEL", b"events", *(entry_id(i).encode() for i in gone))
        yield f"redis://127.0.0.1:{server.port}"


def odd(i: int) -> list[bytes]:
    return number(i) if i % 7 else [b"user", b"odd", b"n", b"%d" % i, b"n", b"%d" % -i]


def table(batches: Iterator[Any]) -> Any:
    return pa.Table.from_batches(list(batches), SCHEMA)


def by_range(chosen: Any, ranges: Any) -> Any:
    """Return the entries of ranges as XRANGE returns them."""
    rows = rows_for(SCHEMA, b"")
    with Servers(chosen) as servers:
        pages = [PageRange(stream.encode(), after, last) for stream, after, last in ranges]
        batches = [record_batch(rows, SCHEMA) for _ in RangeReader(servers, rows, pages, nodes=False).read()]
        return table(iter(batches))


@pytest.mark.parametrize(("page", "batch"), [(1, 1), (3, 100), (100, 7), (1000, 10_000)])
def test_nodes_contain_the_same_entries_as_xrange(url: str, page: int, batch: int) -> None:
    chosen = options(url, pageEntries=str(page), batchEntries=str(batch))
    batches = list(read_task(chosen, WHOLE, SCHEMA))
    assert table(iter(batches)).equals(by_range(chosen, WHOLE))
    assert sum(map(len, batches)) == 1200
    assert max(map(len, batches)) <= batch


def test_many_ranges_of_several_streams_keep_their_order(url: str) -> None:
    chance = random.Random(3)
    ranges = []
    for _ in range(12):
        low, high = sorted(StreamID.parse(entry_id(chance.randint(0, 1600))) for _ in range(2))
        ranges.append((chance.choice(("events", "more", "absent")), chance.choice((low, FIRST)), high))
    chosen = options(url, **SMALL)
    expected = pa.concat_tables([by_range(chosen, [one]) for one in ranges])
    assert table(read_task(chosen, ranges, SCHEMA)).equals(expected)


def test_the_reply_contains_whole_nodes(url: str) -> None:
    with Connection(Address.parse(url), 30) as connection:
        connection.call(b"CONFIG", b"RESETSTAT")
        table(read_task(options(url), WHOLE, SCHEMA))
        told = connection.call(b"INFO", b"commandstats")
        assert b"cmdstat_rillet.xnodes:calls=1," in told
        assert b"xrange" not in told


def test_an_embedded_store_is_read_the_same_way(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store") as store:
        store.run_many([[b"XADD", b"events", entry_id(i).encode(), *number(i)] for i in range(500)])
        chosen = parse({"path": str(tmp_path / "store"), "stream": "events", **SMALL})
        assert table(read_task(chosen, WHOLE, SCHEMA)).column("n").to_pylist() == list(range(500))
        assert "cmdstat_rillet.xnodes" in store.execute("INFO", "commandstats").decode()


def test_a_lost_connection_is_made_again_where_it_broke(url: str) -> None:
    port = Address.parse(url).port
    with cutting_proxy(port, [3_000, 9_999, 5, 20_001]) as cut:
        chosen = options(f"redis://127.0.0.1:{cut}", **SMALL)
        assert table(read_task(chosen, WHOLE, SCHEMA)).equals(by_range(options(url), WHOLE))
    with cutting_proxy(port, [9_000] * 6) as cut:  # no page is ever whole, but nodes are
        chosen = options(f"redis://127.0.0.1:{cut}")
        assert table(read_task(chosen, WHOLE, SCHEMA)).equals(by_range(options(url), WHOLE))
    with (
        cutting_proxy(port, [5] * 1000) as cut,
        pytest.raises(ConnectorError, match=f"connection to 127.0.0.1:{cut} was lost"),
    ):
        table(read_task(options(f"redis://127.0.0.1:{cut}", timeout="300ms"), WHOLE, SCHEMA))


def test_errors_equal_those_of_xrange(url: str) -> None:
    with Connection(Address.parse(url), 30) as connection:
        connection.call(b"SET", b"text", b"x")
    with pytest.raises(ConnectorError, match=r"^rillet: .*'text'.*WRONGTYPE"):
        table(read_task(options(url, "text"), [("text", FIRST, LAST)], SCHEMA))
    assert len(table(read_task(options(url, "absent"), [("absent", FIRST, LAST)], SCHEMA))) == 0


@contextmanager
def answering(reply: bytes) -> Iterator[int]:
    """A server that gives each connection the same answer."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.recv(65536)
                client.sendall(reply)
                client.recv(65536)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (pack_command([b"1-1", b"1-1"]), "the server's page ends at 1-1, the ID where it began"),
        (pack_command([b"9-9", b"1-1", bytes(16), b"no listpack"]), "stream node: the bytes are not a listpack"),
        (pack_command([b"9-9", b"1-1", b"key", b""]), "stream node: the key must be an ID of 16 bytes"),
        (b"*3\r\n$3\r\n9-9\r\n$1\r\n", "invalid reply to RILLET.XNODES"),
    ],
)
def test_an_invalid_node_is_an_error_of_one_sentence(reply: bytes, told: str) -> None:
    with (
        answering(reply) as port,
        pytest.raises(ConnectorError, match=re.escape(f"rillet: reading 'events' from 127.0.0.1:{port}: {told}")),
    ):
        table(read_task(options(f"redis://127.0.0.1:{port}"), [("events", StreamID(1, 1), LAST)], SCHEMA))
