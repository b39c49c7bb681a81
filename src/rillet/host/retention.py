"""Retention: removes the oldest entries of the streams that have a policy, in small steps.

    timers ──► step() ──► the next policies of `rillet:retention`
                            ──► Cut (types/stream/retention.py): what exceeds the limits, and no group needs
                            ──► trim ──► watchers, keyspace event `xtrim`, the log and replicas: XTRIM MAXLEN = n

A step examines up to STREAMS policies, and removes up to NODES ranges of segments or nodes of one stream, so it takes
less than a millisecond. If more is to be removed, the timers call it again after a pause in which commands run.

A policy is read at the moment when it is applied, so one that was removed has no effect any more. Nothing is removed
while the engine loads, follows a master (the master's XTRIM does it), is paused, or refuses writes because they could
not be logged.

With thousands of policies a step does not examine all of them: 160 streams are examined every second. Rejected: a
command in each XADD (the age passes without one), and a key for each policy (the engine would have to look for them
among all keys).
"""

from __future__ import annotations

from collections import deque

from rillet.errors import SegmentUnreadable
from rillet.keyspace.database import Database
from rillet.keyspace.helper_keys import RETENTION
from rillet.loggers import logger
from rillet.runtime.engine import Engine
from rillet.types.hash import Hash
from rillet.types.stream.retention import Cut, policy_of
from rillet.types.stream.stream import Stream

LOGGER = logger("store")
STREAMS = 16
"""Policies that a step examines at most."""
NODES = 64
"""Ranges of segments, and nodes in memory, that a step removes at most."""
_FIELDS = 64  # policies that are read at once


class RetentionSteps:
    """The retention of one engine; every method requires the engine's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: deque[tuple[Database, bytes]] = deque()
        self._database = 0
        self._cursor = 0
        self._warned: set[tuple[int, bytes]] = set()

    def step(self) -> bool:
        """Apply the next policies; return whether one of their streams has more to remove."""
        if not self._may_run():
            return False
        if not self._waiting:
            self._read()
        for _ in range(min(STREAMS, len(self._waiting))):
            database, key = self._waiting.popleft()
            if self._apply(database, key):
                self._waiting.append((database, key))
                return True
        return False

    def run(self) -> None:
        """Apply all policies until nothing is to be removed."""
        for database in self._engine.databases if self._may_run() else ():
            policies = database.peek(RETENTION)
            for key in list(policies) if isinstance(policies, Hash) else ():
                while self._apply(database, key):
                    pass

    def _may_run(self) -> bool:
        engine = self._engine
        return not (engine.loading or engine.paused or engine.follows or engine.importing) and engine.refusal is None

    def _read(self) -> None:
        """Read the names of the next streams with a policy."""
        databases = self._engine.databases
        for _ in range(len(databases)):
            database = databases[self._database]
            policies = database.peek(RETENTION)
            if isinstance(policies, Hash):
                self._cursor, names = policies.scan(self._cursor, _FIELDS)
                self._waiting.extend((database, name) for name in names)
            else:
                self._cursor = 0
            if not self._cursor:
                self._database = (self._database + 1) % len(databases)
            if self._waiting:
                return

    def _apply(self, database: Database, key: bytes) -> bool:
        """Remove what a policy no longer keeps; return whether there is more."""
        policies = database.peek(RETENTION)
        text = policies.get(key) if isinstance(policies, Hash) else None
        stream = database.peek(key)
        if text is None or not isinstance(stream, Stream):
            return False
        policy = policy_of(text)
        if policy is None:
            self._warn(database, key, f"its policy is malformed: {text[:80]!r}")
            return False
        floor: Cut | None = None
        if policy.acknowledged:
            floor = Cut()
            if not floor.find_floor(stream):
                return False
        cut, length = Cut(), stream.length
        try:
            if not cut.find(stream, policy, self._engine.clock.now_ms(), floor, NODES):
                return False
            stream.trim_minid(cut.ms, cut.seq, False, 0)
        except SegmentUnreadable as error:
            self._warn(database, key, str(error))
        removed = stream.length < length
        if removed:
            self._engine.stats.retention_removed += length - stream.length
            database.ledger.note(stream)
            self._engine.trimmed(database, key, stream)
        return removed and not cut.is_complete

    def _warn(self, database: Database, key: bytes, reason: str) -> None:
        """Log once why nothing is removed from a stream."""
        if (database.index, key) not in self._warned:
            self._warned.add((database.index, key))
            LOGGER.warning("retention of the stream %r (database %d): %s", key.decode("utf-8", "backslashreplace"),
                           database.index, reason)  # fmt: skip
