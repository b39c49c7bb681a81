"""Writing rows from Spark local[2] to a stream of redis-server: the sink, and redis-py pipelines in foreachPartition.

The rows have five columns, two of them double, and are cached in Spark in two partitions. With order=stream, the rows
of the second partition follow those of the first. Each way writes once as a warm-up. The ways alternate, and the
medians are compared. The stream is deleted before each turn.

The upper limit is measured too: processes that do nothing else send the same rows as packed XADDs from files, as plain
commands and as transactions of 16 MiB. This is the cost of the server and the socket, without Spark.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import ROOT, Figure, redis_server
from rillet.protocol.command_parser import pack_command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = "stream"
TASKS = 2
PIPELINE = 1000
TRANSACTION = 16 << 20
WAYS = ("redis-py", "rillet, exactly once", "rillet, at least once", "rillet, in order")
MOST = 1.3  # the target: rows in order take at most this many times the time of rows without an order
COLUMNS = (
    "format_string('sensor-%05d', id * 7919 % 50000) device",
    "round(rand(7) * 65 - 20, 3) temperature",
    "round(rand(8) * 100, 2) humidity",
    "element_at(array('ok', 'degraded', 'offline'), cast(id % 3 as int) + 1) status",
    "substr(md5(cast(id as string)), 1, 16) session",
)


def table(spark: SparkSession, entries: int) -> DataFrame:
    """Return the rows, computed and cached by Spark."""
    frame = spark.range(0, entries, 1, TASKS).selectExpr(*COLUMNS).cache()
    assert frame.count() == entries
    return frame


def _by_redis_py(port: int) -> Any:
    """Return the function for foreachPartition."""

    def write(rows: Any) -> None:
        import redis

        with redis.Redis(port=port) as client:
            pipeline = client.pipeline(transaction=False)
            for number, row in enumerate(rows, 1):
                pipeline.xadd(STREAM, row.asDict())
                if number % PIPELINE == 0:
                    pipeline.execute()
            pipeline.execute()

    return write


def write(frame: DataFrame, way: str, port: int) -> float:
    """Write all rows in one of the WAYS; return the seconds."""
    began = time.perf_counter()
    if way == "redis-py":
        frame.foreachPartition(_by_redis_py(port))
    else:
        writer = frame.write.format("rillet").mode("append").option("url", f"redis://127.0.0.1:{port}")
        once = "none" if way == "rillet, at least once" else "auto"
        order = "stream" if way == "rillet, in order" else "none"
        writer.option("stream", STREAM).option("exactlyOnce", once).option("order", order).save()
    return time.perf_counter() - began


def ask(port: int, *words: bytes) -> bytes:
    """Send one command and return the first line of its reply."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(pack_command(list(words)))
        return connection.makefile("rb").readline()


def _packed(folder: Path, frame: DataFrame, entries: int) -> list[Path]:
    """Write the rows as packed commands to files: for each task one with plain commands, one with transactions."""
    files = []
    rows = frame.limit(entries).toArrow().to_pylist()
    for task in range(TASKS):
        plain, queued = bytearray(), bytearray(pack_command([b"MULTI"]))
        since = 0
        for row in rows[task::TASKS]:
            words = [word for pair in row.items() for word in (pair[0].encode(), str(pair[1]).encode())]
            command = pack_command([b"XADD", STREAM.encode(), b"*", *words])
            plain += command
            queued += command
            since += len(command)
            if since > TRANSACTION:
                queued += pack_command([b"EXEC"]) + pack_command([b"MULTI"])
                since = 0
        for name, data in (("plain", plain), ("queued", queued + pack_command([b"EXEC"]))):
            files.append(folder / f"{name}{task}")
            files[-1].write_bytes(data)
    return files


def blast(port: int, name: str) -> None:
    """Send a file and read all replies; runs in a sending process."""
    data = memoryview(Path(name).read_bytes())
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setblocking(False)
        import select

        at = 0
        while at < len(data):
            readable, writable, _ = select.select([connection], [connection], [])
            if readable:
                connection.recv(1 << 20)
            if writable:
                at += connection.send(data[at : at + (1 << 18)])
        connection.setblocking(True)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass


def ceiling(port: int, files: list[Path], entries: int) -> float:
    """Return the entries per second of processes that only send files."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    ask(port, b"DEL", STREAM.encode())
    began = time.perf_counter()
    sending = [
        subprocess.Popen([sys.executable, "-m", "benchmarks.spark_write", str(port), str(file)], env=environment)
        for file in files
    ]
    for process in sending:
        assert process.wait() == 0, "a sender failed"
    took = time.perf_counter() - began
    assert ask(port, b"XLEN", STREAM.encode()) == b":%d\r\n" % entries
    return entries / took


def measure(rounds: int = 3, entries: int = 1_000_000) -> dict[str, float]:
    """Return the entries per second by way."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (before, str(ROOT))))
    from rillet.spark import session

    spark = session("local[2]", "rillet benchmark", spark_driver_memory="2g")
    try:
        spark.sparkContext.setLogLevel("ERROR")
        frame = table(spark, entries)
        speeds: dict[str, list[float]] = {way: [] for way in WAYS}
        with redis_server() as (port, _), tempfile.TemporaryDirectory(prefix="rillet-bench-") as folder:
            for turn in range(rounds + 1):
                for way, found in speeds.items():
                    ask(port, b"FLUSHALL")
                    took = write(frame, way, port)
                    assert ask(port, b"XLEN", STREAM.encode()) == b":%d\r\n" % entries, f"{way} lost entries"
                    if turn:  # the first turn is a warm-up
                        found.append(entries / took)
            figures = {way: statistics.median(found) for way, found in speeds.items()}
            half = min(entries, 400_000)
            files = _packed(Path(folder), frame, half)
            for name, chosen in (("plain", files[::2]), ("in transactions", files[1::2])):
                figures[f"server alone, {name}, two senders"] = ceiling(port, chosen, half)
            figures["server alone, plain, one sender"] = ceiling(port, files[:1], half // TASKS)
    finally:
        spark.stop()
        os.environ["PYTHONPATH"] = before
    return figures


def figures(rounds: int = 3, scale: float = 1.0) -> list[Figure]:
    """Return the rows of the benchmark table."""
    found = measure(rounds, max(20_000, int(1_000_000 * scale)))
    what = "Spark sink, rows into a stream, local[2]"
    alone = found["server alone, plain, two senders"]
    return [
        Figure(f"{what}, exactly once", "redis-py pipelines", found[WAYS[0]], found[WAYS[1]], "entries/s", 3.0),
        Figure(f"{what}, at least once", "redis-py pipelines", found[WAYS[0]], found[WAYS[2]], "entries/s", 3.0),
        Figure(f"{what}, at least once", "packed commands, no Spark", alone, found[WAYS[2]], "entries/s", None),
        Figure(f"{what}, exactly once, in order", "order=none", found[WAYS[1]], found[WAYS[3]], "entries/s", 1 / MOST),
    ]


if __name__ == "__main__":
    if len(sys.argv) == 3:
        blast(int(sys.argv[1]), sys.argv[2])
    else:
        for label, figure in measure().items():
            print(f"{label:40} {figure:>12,.0f}")
