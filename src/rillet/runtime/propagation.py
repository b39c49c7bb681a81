"""Propagation: the commands that changed data, on their way to the append-only log (Redis: propagateNow).

    XADD                       -> one command at once, into the log's propagation buffer
    EXEC, an expired key ...   -> collected until the outermost command ends, then MULTI command command EXEC

A handler's changes are logged together or not at all, so the log is always a sequence of whole commands. Nothing is
logged for a trusted session, whose commands come from a log.
"""

from __future__ import annotations

from typing import Any, Protocol

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: run interpreted
    from rillet import _cython as cython

from rillet.keyspace.clock import Clock
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.runtime import session_state
from rillet.runtime.session import Session

_TRUSTED = cython.declare(cython.int, session_state.TRUSTED)


class Log(Protocol):
    """The destination of changes: an append-only file, or a list in a test."""

    def append(self, db: int, argv: list[bytes]) -> None:
        """Append to the log a command that changed database `db`."""

    def flush(self) -> None:
        """Make the appended commands as durable as the settings require before a reply may be sent."""


@cython.final
@cython.cclass
class Propagation:
    """The changes of one engine that are not in its log yet; `depth` is the number of nested handlers."""

    __slots__ = ("log", "feed", "depth", "pending", "dirty", "_settings", "_clock")
    log: Any
    feed: PropagationBuffer | None
    pending: list[tuple[int, list[bytes]]]
    _settings: Any

    def __init__(self, settings: Any, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.log = None
        # The log's propagation buffer, if it has one: commands are written there instead of passed to `Log.append`.
        self.feed = None
        self.pending = []
        self.depth = 0
        # Changes since the last save (server.dirty).
        self.dirty = 0

    def set_log(self, log: Any) -> None:
        """Send changes to this log from now on; None stops logging."""
        self.log = log
        self.feed = getattr(log, "feed", None)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def take_effects(self, session: Session, argv: list[bytes]) -> cython.bint:
        """Count the changes of a handler; log the commands that it passed to `propagate`, or else `argv`."""
        self.dirty += session.dirty
        commands: list[list[bytes]] | None = session.propagated
        session.propagated = None
        if self.log is None or session.state & _TRUSTED:
            return True
        if self.depth == 0 and self.feed is not None and not self.pending:
            # The usual case is a single command, which needs no MULTI and EXEC.
            if commands is None or len(commands) == 1:
                return self._append(session.db.index, argv if commands is None else commands[0], self._log_time())
        if commands is None:
            self.pending.append((session.db.index, argv))
        else:
            for one in commands:
                self.pending.append((session.db.index, one))
        return True

    def add(self, db: int, argv: list[bytes]) -> None:
        """Log a command that no handler propagated, such as the DEL of an expired key."""
        self.pending.append((db, argv))
        if self.depth == 0:
            self.flush_pending()

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def add_deletions(self, db: cython.int, name: bytes, keys: list[bytes]) -> cython.bint:
        """Log a DEL or UNLINK for each key, outside of any handler."""
        feed: PropagationBuffer | None = self.feed
        if feed is None or self.depth or self.pending:
            for key in keys:
                self.add(db, [name, key])
            return True
        feed.begin(db, self._log_time())
        return feed.deletions(name, keys)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def flush_pending(self) -> cython.bint:
        """Log the collected changes of one outermost command; more than one command becomes a transaction."""
        pending = self.pending
        self.pending = []
        if self.log is None:
            return True
        now: cython.longlong = self._log_time()
        if len(pending) == 1:
            return self._append(pending[0][0], pending[0][1], now)
        if self.feed is not None:  # all of the transaction or none of it
            self.feed.reserve_transaction(pending)
        self._frame(pending[0][0], b"MULTI", now)
        for index, argv in pending:
            self._append(index, argv, now)
        return self._frame(pending[len(pending) - 1][0], b"EXEC", now)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _append(self, db: cython.int, argv: list[bytes], now: cython.longlong) -> cython.bint:
        feed: PropagationBuffer | None = self.feed
        if feed is None:
            self.log.append(db, argv)
            return True
        feed.begin(db, now)
        return feed.command(argv)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _frame(self, db: cython.int, word: bytes, now: cython.longlong) -> cython.bint:
        """Log MULTI or EXEC. Since 7.2 they belong to no database, and SELECT follows MULTI (propagateNow)."""
        feed: PropagationBuffer | None = self.feed
        if feed is not None and self._settings.compat.knows(72):
            db = feed.db
        return self._append(db, [word], now)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _log_time(self) -> cython.longlong:
        """Return the time in ms since the epoch if the log records timestamps, else 0."""
        feed: PropagationBuffer | None = self.feed
        return self._clock.now_ms() if feed is not None and feed.timestamps else 0


__all__ = ["Log", "Propagation"]
