"""The commands of a batch of changes, from the stored files of the stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rillet.replication.changes import UnitParser
from rillet.spark.changes.storage import Storage, StoredFile
from rillet.transfer.batch_engine import BatchCommand

_WITHOUT_KEYS = frozenset((b"FUNCTION", b"SCRIPT", b"PUBLISH", b"SPUBLISH"))


def batch_commands(storage: Storage, files: Iterable[StoredFile]) -> Iterator[BatchCommand]:
    """Yield the commands of stored files that change keys."""
    for file in files:
        for record in storage.read(file):
            for unit in UnitParser(record.start, record.db).feed(record.data):
                for (db, words), end in zip(unit.commands, unit.ends, strict=True):
                    if words[0].upper() not in _WITHOUT_KEYS:
                        yield BatchCommand(db, words, end, record.arrived)
