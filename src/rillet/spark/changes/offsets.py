"""The offset of a micro-batch of changes: a position in the stream of a server, always outside MULTI.

    {"version": 1, "run": "", ...}         the start of a new query; the first trigger chooses the position
    {"version": 1, "run": "3f09...", "id": ..., "offset": 5120, "db": 0, "since": 4711, "snapshot": false}

A run is an uninterrupted piece of the stream: `since` is its first offset, and its files have its name. A query has one
run, unless changes were lost and failOnDataLoss is false. The offset contains `since` because Spark asks for the start
of a new query again after a restart, and the first batch must be the same then. snapshot: whether the run begins with
the data at `since`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rillet.errors import RilletError
from rillet.replication.changes import ChangePosition

VERSION = 1


class ChangesOffset(NamedTuple):
    """A place between two batches."""

    run: str = ""
    id: str = ""
    offset: int = -1
    db: int = 0
    since: int = -1
    snapshot: bool = False

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> ChangesOffset:
        """Return the offset that Spark read from its checkpoint."""
        if values.get("version") != VERSION:
            raise RilletError(f"rillet: the checkpoint is not one of format('rillet.changes'), version {VERSION}")
        return cls(**{name: values[name] for name in cls._fields})

    def json(self) -> dict[str, Any]:
        """Return the offset as Spark stores it."""
        return {"version": VERSION, **self._asdict()}

    @property
    def position(self) -> ChangePosition:
        """The position in the stream."""
        return ChangePosition(self.id, self.offset, self.db)
