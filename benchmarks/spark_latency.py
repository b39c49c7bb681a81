"""From the moment an entry is appended until foreachBatch has its row: Spark local[2] at 1,000 entries a second.

    python -m benchmarks spark_latency           the rows of the table
    python -m benchmarks.spark_latency           the latencies of each round, and the parts of a trigger

The peer is Spark's own socket source, which runs in the JVM and keeps nothing: its latency is that of a micro-batch
without a Python data source. The same thread sends to both, one entry each millisecond with the time in it, and the
same foreachBatch collects the rows of each batch. The first seconds warm up and do not count. The two alternate.
"""

from __future__ import annotations

import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.harness import Figure, redis_server
from benchmarks.spark_read import spark_session
from rillet.protocol.command_parser import pack_command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RATE = 1000
SECONDS = 15.0
WARM_UP_S = 5.0
AT_MOST = 1.15
"""The latency may be so many times that of the socket source."""


class Sender(threading.Thread):
    """Sends RATE times a second what `make` returns for a time in nanoseconds."""

    def __init__(self, connection: socket.socket, make: Callable[[int], bytes], seconds: float) -> None:
        super().__init__(daemon=True)
        self.connection = connection
        self.make = make
        self.seconds = seconds

    def run(self) -> None:
        """Send, and drop the replies."""
        drain = threading.Thread(target=self._drain, daemon=True)
        drain.start()
        began = time.perf_counter()
        for number in range(int(RATE * self.seconds)):
            wait = began + number / RATE - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            self.connection.sendall(self.make(time.time_ns()))

    def _drain(self) -> None:
        try:
            while self.connection.recv(1 << 16):
                pass
        except OSError:
            pass


def parts_of_trigger(query: StreamingQuery) -> dict[str, float]:
    """Return the mean milliseconds of each part of the last triggers, as Spark's progress reports them."""
    last = [one.durationMs for one in query.recentProgress if one.numInputRows][-20:]
    return {name: statistics.mean(one.get(name, 0) for one in last) for name in last[-1]} if last else {}


def measured(frame: DataFrame, column: str, sender: Sender, trigger: dict[str, float]) -> list[float]:
    """Run a query over a stream that the sender fills; return the latencies of the entries in milliseconds."""
    found: list[float] = []
    until = time.time_ns() + int(WARM_UP_S * 1e9)

    def take(batch: DataFrame, _number: int) -> None:
        sent = [int(row[0]) for row in batch.select(column).collect()]
        now = time.time_ns()
        found.extend((now - one) / 1e6 for one in sent if one > until)

    with tempfile.TemporaryDirectory(prefix="rillet-bench-") as checkpoint:
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).start()
        try:
            while query.lastProgress is None:
                time.sleep(0.01)
            until = time.time_ns() + int(WARM_UP_S * 1e9)
            sender.start()
            sender.join()
            trigger.update(parts_of_trigger(query))
            query.processAllAvailable()
        finally:
            query.stop()
    return found


@contextmanager
def _listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def by_socket(spark: SparkSession, seconds: float, trigger: dict[str, float]) -> list[float]:
    """Return the latencies of Spark's socket source."""
    with _listening() as server:
        accepted: list[socket.socket] = []
        accepting = threading.Thread(target=lambda: accepted.append(server.accept()[0]), daemon=True)
        accepting.start()
        source = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", server.getsockname()[1])
        frame = source.load()

        class Late(Sender):
            def run(self) -> None:
                accepting.join()
                self.connection = accepted[0]
                super().run()

        # The source accepts no query before it is connected, and no batch before a line: `lastProgress` needs one.
        def first() -> None:
            accepting.join()
            accepted[0].sendall(b"0\n")

        threading.Thread(target=first, daemon=True).start()
        try:
            return measured(frame, "value", Late(server, lambda now: b"%d\n" % now, seconds), trigger)
        finally:
            for one in accepted:
                one.close()


def by_rillet(spark: SparkSession, port: int, seconds: float, trigger: dict[str, float]) -> list[float]:
    """Return the latencies of a stream in redis-server."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = b"latency"
        connection.sendall(pack_command([b"DEL", key]) + pack_command([b"XADD", key, b"*", b"sent", b"0"]))
        connection.recv(1 << 16)
        options = {"url": f"redis://127.0.0.1:{port}", "stream": "latency", "startingOffsets": "earliest"}
        frame = spark.readStream.format("rillet").schema("id string, sent bigint").options(**options).load()
        sender = Sender(connection, lambda now: pack_command([b"XADD", key, b"*", b"sent", b"%d" % now]), seconds)
        return measured(frame, "sent", sender, trigger)


def percentiles(values: list[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[len(ordered) * 99 // 100]


def latencies(rounds: int, seconds: float, shows: bool = False) -> tuple[list[tuple[float, float]], ...]:
    """Return the percentiles of both sources in each round; shows: print them with the parts of a trigger."""
    theirs: list[tuple[float, float]] = []
    ours: list[tuple[float, float]] = []
    with redis_server() as (port, _), spark_session() as spark:
        for _ in range(rounds):
            for name, side in (("socket", theirs), ("rillet", ours)):
                trigger: dict[str, float] = {}
                found = (
                    by_socket(spark, seconds, trigger) if side is theirs else by_rillet(spark, port, seconds, trigger)
                )
                side.append(percentiles(found))
                if shows:
                    parts = ", ".join(f"{part} {ms:.0f}" for part, ms in trigger.items())
                    print(f"{name}: p50 {side[-1][0]:.0f} ms, p99 {side[-1][1]:.0f} ms; {parts}", flush=True)
    return theirs, ours


def figures(rounds: int = 3, scale: float = 1.0) -> list[Figure]:
    """Return the rows of the benchmark table."""
    theirs, ours = latencies(rounds, WARM_UP_S + max(3.0, SECONDS * scale))
    rows = []
    for name, at in (("p50", 0), ("p99", 1)):
        peer, own = (statistics.median(one[at] for one in side) for side in (theirs, ours))
        what = f"{RATE:,} entries/s into foreachBatch, {name}"
        rows.append(Figure(what, "Spark's socket source", peer, own, "ms", 1 / AT_MOST, less_is_better=True))
    return rows


if __name__ == "__main__":
    latencies(3, WARM_UP_S + SECONDS, shows=True)
