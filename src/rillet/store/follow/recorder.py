"""Applies the stream of the server to a replica, and notes what it applied in the change log and in the directory.

    chunk ── Applier (compiled) ──► engine                       all keys
          ── UnitParser ── KeyFilter ── Applier ──► engine       some keys
                                          └──► LogRecord ──► ChangeLog, files of the directory

The link's thread runs this, with the engine's lock. The recorder is the `applier` of a Follower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rillet.protocol.command_parser import pack_command
from rillet.replication.applier import Applier
from rillet.replication.changes import Unit, UnitParser
from rillet.replication.errors import LinkError
from rillet.replication.filtering import KeyFilter, Unappliable
from rillet.store.follow.change_log import LogRecord

if TYPE_CHECKING:
    from rillet.runtime.session import Session


class Recorder:
    """The applier of a replica. keep(record) notes a record; lost(reason) is called before a full synchronisation."""

    def __init__(self, session: Session, offset: int, on_refused: Any, keys: KeyFilter | None,
                 keep: Callable[[LogRecord], None], lost: Callable[[str], None]) -> None:  # fmt: skip
        self._inner = Applier(session, offset, on_refused)
        self._state = session.engine.replication
        self._keys = keys
        self._keep = keep
        self._lost = lost
        self._parser = UnitParser(offset, self._state.db)
        self._rest: list[bytes] = []  # received bytes that are not applied

    @property
    def session(self) -> Any:
        """The session of the master."""
        return self._inner.session

    @property
    def fed(self) -> int:
        """The position of the last received byte, for INFO."""
        return int(self._state.offset) + self.waiting

    @property
    def waiting(self) -> int:
        """The number of received bytes that are not applied: the beginning of a command or of a transaction."""
        return sum(map(len, self._rest)) if self._keys is None else self._parser.waiting

    @property
    def ack_wanted(self) -> bool:
        """Whether the server asked for the position."""
        return bool(self._inner.ack_wanted)

    @ack_wanted.setter
    def ack_wanted(self, wanted: bool) -> None:
        self._inner.ack_wanted = wanted

    def feed(self, chunk: bytes) -> None:
        """Apply the commands that this chunk completes; LinkError."""
        if self._keys is None:
            self._feed_all(chunk)
        else:
            self._feed_some(chunk, self._keys)

    def _feed_all(self, chunk: bytes) -> None:
        state = self._state
        start, db = state.offset, state.db
        self._rest.append(chunk)
        try:
            self._inner.feed(chunk)
        finally:
            count = state.offset - start
            if count:
                whole = self._rest[0] if len(self._rest) == 1 else b"".join(self._rest)
                self._rest = [whole[count:]] if count < len(whole) else []
                self._keep(LogRecord(start, start + count, db, whole[:count]))

    def _feed_some(self, chunk: bytes, keys: KeyFilter) -> None:
        run: list[Unit] = []
        for unit in self._parser.feed(chunk):
            try:
                part = keys.part_of(unit)
            except Unappliable as error:
                self._apply(run)
                self._lost(f"{error} reads a key that the filter excludes")
                raise LinkError(f"the master's command {error} reads a key that the replica does not keep") from None
            if part is unit.data:
                run.append(unit)
                continue
            self._apply(run)
            run = []
            if part is None:
                self._advance(unit)
            else:
                self._apply_part(unit, part)
        self._apply(run)

    def _apply(self, run: list[Unit]) -> None:
        """Apply units whose bytes are contiguous."""
        if not run:
            return
        data = run[0].data if len(run) == 1 else b"".join([unit.data for unit in run])
        self._apply_part(run[0], data, run[-1])

    def _apply_part(self, unit: Unit, data: bytes, last: Unit | None = None) -> None:
        session, end = self._inner.session, last or unit
        if session.db.index != unit.db:
            self._inner.feed(pack_command([b"SELECT", b"%d" % unit.db]))
        self._inner.feed(data)
        self._advance(end)
        if data:
            self._keep(LogRecord(unit.start, end.end, unit.db, data))

    def _advance(self, unit: Unit) -> None:
        self._state.offset, self._state.db = unit.end, unit.db_after
