"""A streaming query without Spark: calls a reader as Spark does, with a checkpoint in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql.types import StructType

from rillet.spark.options import parse
from rillet.spark.source import StreamingReader
from rillet.spark.spark_versions import ReadAllAvailable, ReadMaxRows
from tests.judge import required_binary, running_redis

SCHEMA = StructType().add("stream", "string").add("id", "string").add("n", "long")


class Query:
    """Runs batches, of a server or, without a url, of a `path`.

    `checkpoint` is what survives it: the offset up to which all is in the sink, and a planned end.
    """

    made: ClassVar[list[Query]] = []

    def __init__(self, url: str, checkpoint: dict[str, Any] | None = None, **options: str) -> None:
        where = {} if "streams" in options or "streamPattern" in options else {"stream": "events"}
        self.given = {**({"url": url} if url else {}), **where, **options}
        self.options = parse(self.given)
        self.reader = StreamingReader(self.options, SCHEMA, 2)
        self.checkpoint = checkpoint if checkpoint is not None else {}
        self.made.append(self)

    @property
    def lost(self) -> dict[str, int]:
        return self.reader.follower.guard.lost

    @property
    def unsure(self) -> set[str]:
        return self.reader.follower.guard.unsure

    def plan(self) -> bool:
        """Ask for the next end and write it down, as Spark does before a batch; False when there is nothing to do."""
        if "committed" not in self.checkpoint:
            self.checkpoint["committed"] = self.reader.initialOffset()
        start = self.checkpoint["committed"]
        limit: Any = ReadAllAvailable()
        if self.options.max_entries_per_trigger is not None:
            limit = ReadMaxRows(self.options.max_entries_per_trigger)
        end = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
        if end == start:
            return False
        self.checkpoint["planned"] = end
        return True

    def read(self) -> list[int]:
        """Run the planned batch's tasks and return their numbers, in order of tasks."""
        parts = self.reader.partitions(self.checkpoint["committed"], self.checkpoint["planned"])
        return [n for part in parts for batch in self.reader.read(part) for n in batch.column("n").to_pylist()]

    def commit(self) -> None:
        """Note that the planned batch is in the sink."""
        self.checkpoint["committed"] = self.checkpoint.pop("planned")

    def batch(self) -> list[int]:
        """Plan, read and commit a batch; nothing where there is nothing to do."""
        if not self.plan():
            return []
        found = self.read()
        self.commit()
        return found

    def restarted(self, **options: str) -> Query:
        """Return the query that goes on from the checkpoint after this one ended."""
        self.reader.stop()
        given = {**self.given, **options}
        return Query(given.pop("url", ""), self.checkpoint, **given)


@pytest.fixture
def stopped() -> Iterator[None]:
    """Stop the queries that a test made."""
    yield
    while Query.made:
        Query.made.pop().reader.stop()


@contextmanager
def server(name: str, folder: Path) -> Iterator[str]:
    """Start a server to read from and yield its url: "rillet", or a peer of tests.judge; skip where it is not there."""
    if name == "rillet":
        from tests.server.harness import running

        with running(folder) as ours:
            yield f"redis://127.0.0.1:{ours.port}"
        return
    with running_redis(binary=required_binary(name)) as judge:
        yield f"redis://127.0.0.1:{judge.port}"
