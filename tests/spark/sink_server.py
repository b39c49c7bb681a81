"""Servers of a sink that are killed and restarted from what they have saved, and the sinks that write to them."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import redis
from pyspark import TaskContext

from rillet.spark.table_options import parse_table
from rillet.spark.tables.writer import TableStreamingWriter
from tests.forked import Forked
from tests.judge import await_ready, free_port
from tests.spark.writing import in_task, writer_of

SINKS: dict[str, dict[str, str]] = {
    "stream": {"stream": "copy"},
    "ordered": {"stream": "copy", "order": "stream", "orderWait": "50ms"},
    "idmp": {"stream": "copy", "exactlyOnce": "idmp"},
    "partitioned": {"stream": "copy", "partitioned": "2"},
    "streamColumn": {"streamColumn": "to"},
    "hash": {"type": "hash", "keyColumn": "n", "keyPrefix": "row:"},
    "counter": {"type": "hash", "keyColumn": "n", "keyPrefix": "row:", "addColumns": "times"},
    "set": {"type": "set", "keyColumn": "to", "keyPrefix": "row:", "valueColumn": "n"},
    "list": {"type": "list", "keyColumn": "to", "keyPrefix": "row:", "valueColumn": "n"},
}


class SinkServer:
    """A server with an RDB file that is written on demand only; `url` names it."""

    def __init__(self, folder: Path, binary: str | None, *words: str) -> None:
        """binary: None starts rillet's server."""
        self.folder, self.binary, self.words = folder, binary, words
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Start the server on what it has saved."""
        self.folder.mkdir(exist_ok=True)
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
                 "--repl-diskless-sync-delay", "0"]  # fmt: skip
        words += self.words or ("--appendonly", "no")
        self.process: subprocess.Popen[Any] = (
            Forked(["serve", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if self.binary is None
            else subprocess.Popen([self.binary, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )  # fmt: skip
        await_ready(self.port, self.process)

    def kill(self) -> None:
        """End the server as a power failure does."""
        self.process.kill()
        self.process.wait()

    def crash(self) -> None:
        """Kill the server and start it again."""
        self.kill()
        self.start()

    def run(self, *words: Any) -> Any:
        """Run a command."""
        with redis.Redis(port=self.port, protocol=2) as client:
            client.response_callbacks.clear()
            return client.execute_command(*words)

    def numbers(self) -> Counter[int]:
        """Return the numbers of the rows in all streams and other keys of a sink, each as often as it was written."""
        found: Counter[int] = Counter()
        with redis.Redis(port=self.port, protocol=2, decode_responses=True) as client:
            for key in client.scan_iter(count=1000):
                if key.startswith("rillet:commits:"):
                    continue
                kind = client.type(key)
                if kind == "stream":
                    found.update(int(entry["n"]) for _, entry in client.xrange(key))
                elif kind == "hash":
                    found[int(key.removeprefix("row:"))] += int(client.hget(key, "times") or 1)
                else:
                    members = client.smembers(key) if kind == "set" else client.lrange(key, 0, -1)
                    found.update(map(int, members))
        return found


def rows_of(sink: str, numbers: Iterable[int]) -> pa.Table:
    """Return rows with these numbers, and the columns that a sink needs."""
    wanted = list(numbers)
    columns: dict[str, Any] = {"n": pa.array(wanted, pa.int64())}
    if sink in ("streamColumn", "set", "list"):
        columns["to"] = pa.array([f"to{n % 2}" for n in wanted], pa.string())
    if sink == "counter":
        columns["times"] = pa.array([1] * len(wanted), pa.int64())
    if sink == "hash":
        columns["text"] = pa.array([f"row {n}" for n in wanted], pa.string())
    return pa.table(columns)


class SinkQuery:
    """A streaming query into a sink, without Spark: its tasks and commits are called as Spark does."""

    def __init__(self, url: str, sink: str, **options: str) -> None:
        self.sink = sink
        self.options = {"url": url, "timeout": "20", **SINKS[sink], **options}
        self.number = 0  # of the next batch

    def writer(self) -> Any:
        """Return a new writer, as Spark makes one for each batch and for each commit."""
        from pyspark.sql.pandas.types import from_arrow_schema

        rows = rows_of(self.sink, [])
        if "type" in self.options:
            return TableStreamingWriter(parse_table(self.options), from_arrow_schema(rows.schema))
        return writer_of(rows, self.options)

    def task(self, partition: int, numbers: Iterable[int]) -> Any:
        """Run a task of the next batch."""
        rows = rows_of(self.sink, numbers)
        in_task(partition, self.number)
        try:
            return self.writer().write(iter(rows.to_batches(max_chunksize=20)))
        finally:
            TaskContext._taskContext = None  # a Spark session may start in this process later

    def commit(self, messages: list[Any]) -> None:
        """Commit the next batch."""
        self.writer().commit(messages, self.number)
        self.number += 1

    def batch(self, *numbers: Iterable[int]) -> None:
        """Run a batch with a task for each sequence of numbers."""
        self.commit([self.task(partition, some) for partition, some in enumerate(numbers)])

    def hundred(self) -> None:
        """Run a batch of a hundred rows in two tasks, those that belong to its number."""
        first = 100 * self.number
        self.batch(range(first, first + 60), range(first + 60, first + 100))
