"""Applies a batch of changes to the keys that it touches, in the engine of a replica.

    rows of the table ── restore ──► engine in memory ◄── Applier ── commands of the batch
                                          └── dump ──► rows of the keys that were written

The engine is that of rillet's replicas, so every command has the effect that it has on a replica of the server: MULTI,
SELECT, RENAME, MOVE, SWAPDB, FLUSHALL. Keys do not expire by themselves; the server sends DEL. The clock is that of the
arrival of the changes, so a batch that is applied again makes the same rows.

One process applies a batch, in the order of the stream: a command may combine any keys of a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rillet.commands.stream.idmp import track
from rillet.errors import Corrupt, RilletError
from rillet.keyspace.clock import ManualClock
from rillet.protocol.command_parser import pack_command
from rillet.replication.applier import Applier
from rillet.transfer.dumped_values import store_without_expiry
from rillet.transfer.touched_keys import TouchedKeys
from rillet.types.rdb import value as rdb
from rillet.types.stream.stream import Stream

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine

_AT_ONCE = 256  # commands that are applied together


class BatchCommand(NamedTuple):
    """A command of a batch; end: the offset of the stream after it; arrived: ms since 1970."""

    db: int
    words: list[bytes]
    end: int
    arrived: int


class StateKey(NamedTuple):
    """A key of the table; expires: ms since 1970, -1: never; version: the offset of its last change; payload: DUMP."""

    db: int
    key: bytes
    expires: int
    version: int
    payload: bytes


class BatchEngine:
    """An engine with the keys that a batch needs; a context manager."""

    def __init__(self, compat: str, databases: int) -> None:
        self._clock = ManualClock(1)
        self._now = 1
        self.refused: list[str] = []
        self._store = store_without_expiry(compat, databases, self._clock)
        self._engine: Engine = self._store.transport.engine  # type: ignore[attr-defined]
        session = self._engine.session(trusted=True)
        session.enter("follow")
        self._applier = Applier(session, 0, self.refused.append)

    def __enter__(self) -> BatchEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def load(self, keys: Iterable[StateKey]) -> None:
        """Load keys of the table; RilletError if one is malformed."""
        settings = self._engine.settings
        for one in keys:
            try:
                value = rdb.restore(one.payload, settings)
            except (Corrupt, IndexError, OverflowError, MemoryError) as error:
                name = one.key.decode("utf-8", "backslashreplace")
                raise RilletError(f"rillet: the value of the key {name!r} in the table is damaged: {error}") from None
            database = self._engine.databases[one.db]
            database.put(one.key, value)
            if isinstance(value, Stream):
                track(database, one.key, value)
            if one.expires >= 0:
                database.set_expire(one.key, one.expires)

    def apply(self, commands: Iterable[BatchCommand]) -> None:
        """Apply commands in order."""
        pieces: list[bytes] = []
        selected = -1
        for one in commands:
            if one.arrived > self._now:
                self._feed(pieces)
                self._clock.advance(one.arrived - self._now)
                self._now = one.arrived
            if one.db != selected:
                pieces.append(pack_command([b"SELECT", b"%d" % one.db]))
                selected = one.db
            pieces.append(pack_command(one.words))
            if len(pieces) >= _AT_ONCE:
                self._feed(pieces)
        self._feed(pieces)

    def _feed(self, pieces: list[bytes]) -> None:
        if pieces:
            self._applier.feed(b"".join(pieces))
            pieces.clear()

    def written(self, touched: TouchedKeys) -> Iterator[StateKey]:
        """Yield the keys that the batch wrote and that exist."""
        for (db, key), version in touched.written.items():
            database = self._engine.databases[db]
            value = database.peek(key)
            if value is not None:
                yield StateKey(db, key, database.get_expire(key), version, rdb.dump(value))
