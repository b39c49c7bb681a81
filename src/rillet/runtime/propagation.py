"""Propagation: the commands that changed data, on their way to the log and to replicas (Redis: propagateNow).

    XADD                       -> one command at once, into the log's propagation buffer
    EXEC, an expired key ...   -> collected until the outermost command ends, then MULTI command command EXEC:
                                  as RESP in a buffer for each run of commands of one database

A handler's changes are logged together or not at all, so the log is always a sequence of whole commands. Nothing is
logged for a trusted session, whose commands come from a log.

`log` is the destination of changes. It is the append-only log (`aof`) if there is one. Otherwise, while the engine
feeds replicas, it is the log of the replication stream (rillet.replication.master), which keeps no file. Both have a
`feed`. Code that means the file uses `aof`; code that must know whether anybody needs the changes uses `log`.
"""

from __future__ import annotations

from typing import Any, Protocol

from rillet._cython import cython, public, readonly
from rillet.keyspace.clock import Clock
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.runtime import session_state
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans

LOG_ONLY = 1 << 24
"""Added to the database of a pending command that is for the append-only log alone (redis.set_repl)."""
_LOG_ONLY = cython.declare(cython.int, LOG_ONLY)
_TRUSTED = cython.declare(cython.int, session_state.TRUSTED)
_SMALL = cython.declare(cython.Py_ssize_t, 1 << 16)  # bytes of a buffer that is used again
# Values of Narrowing.form_of (rillet.replication.older_replicas).
_EACH_FORM = cython.declare(cython.int, 1)
_PLAIN_SET = cython.declare(cython.int, 2)
_PLAIN_XADD = cython.declare(cython.int, 3)


class Log(Protocol):
    """The destination of changes: an append-only file, or a list in a test."""

    def append(self, db: int, argv: list[bytes]) -> None:
        """Append to the log a command that changed database `db`."""

    def flush(self) -> None:
        """Make the appended commands as durable as the settings require before a reply may be sent."""


@cython.cfunc
def _database(index: cython.int) -> cython.int:
    """Return the database of a pending command, whatever its destination."""
    return -1 - index if index < 0 else index % _LOG_ONLY


@cython.final
@cython.cclass
class Propagation:
    """The changes of one engine that are not in its log yet; `depth` is the number of nested handlers."""

    __slots__ = ("log", "aof", "feed", "depth", "pending", "dirty", "feeds_replicas", "on_feed", "narrow", "forms",
                 "_settings", "_clock", "_spare", "_run", "_kept")  # fmt: skip
    log: readonly[Any]
    aof: readonly[Any]
    feeds_replicas: public[cython.bint]
    on_feed: public[Any]
    narrow: public[Any]
    forms: public[dict[Any, int]]
    _spare: Any
    feed: readonly[PropagationBuffer | None]
    depth: public[cython.long]
    pending: readonly[list[tuple[int, Any]]]
    _run: PropagationBuffer | None
    _kept: PropagationBuffer | None
    dirty: public[cython.longlong]
    _settings: Any
    _clock: Clock

    def __init__(self, settings: Any, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.log = None
        self.aof = None
        # The log of the replication stream, in use while there is no other; and what it calls after `feed` has changed.
        self._spare = None
        self.feeds_replicas = False  # whether the changes of this engine go to replicas
        self.on_feed = None
        # The rewriting of effects for older replicas (rillet.replication.older_replicas), or None.
        self.narrow = None
        # Which calls of a command need no rewriting, by its declaration (Narrowing.form_of).
        self.forms = {}
        # The log's propagation buffer, if it has one: commands are written there instead of passed to `Log.append`.
        self.feed = None
        # (database, a command or a buffer of commands)
        self.pending = []
        # The buffer in the last element of `pending`, if the next command may follow there; a buffer to use again.
        self._run = None
        self._kept = None
        self.depth = 0
        # Changes since the last save (server.dirty).
        self.dirty = 0

    def set_log(self, log: Any) -> None:
        """Send changes to this log from now on; None stops logging."""
        self.aof = log
        self._choose()

    def set_spare(self, log: Any) -> None:
        """Send changes to this log while there is no append-only log."""
        self._spare = log
        self._choose()

    def _choose(self) -> None:
        self.log = self._spare if self.aof is None else self.aof
        self.feed = getattr(self.log, "feed", None)
        if self.on_feed is not None:
            self.on_feed()

    @cython.ccall
    def take_effects(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Count the changes of a command; log the commands that it passed to `propagate`, or else `words`."""
        self.dirty += session.dirty
        commands: list[list[bytes]] | None = session.propagated
        session.propagated = None
        if not session.logged:
            return True
        feed: PropagationBuffer | None = self.feed
        if self.narrow is not None and not session.state & _TRUSTED and not self._is_known(session, words, commands):
            effects: list[list[bytes]] = [words.to_list()] if commands is None else commands
            others: list[list[bytes]] | None = self.narrow.rewrite(session, effects)
            if others is not None:
                return self._take_both(session.db.index, effects, others)
        if self.depth == 0 and feed is not None and not self.pending:
            # The usual case is a single command, which needs no MULTI and EXEC.
            if commands is None:
                feed.begin(session.db.index, self._log_time())
                return feed.spans(words)
            if len(commands) == 1:
                return self._append(session.db.index, commands[0], self._log_time())
        if commands is None and feed is not None:
            return self._open_run(session.db.index).add(words)
        self._run = None
        for one in [words.to_list()] if commands is None else commands:
            self.pending.append((session.db.index, one))
        return True

    @cython.cfunc
    def _open_run(self, db: cython.int) -> PropagationBuffer:
        """Return the buffer for the next commands of a database in a transaction."""
        run: PropagationBuffer | None = self._run
        if run is not None and run.db == db:
            return run
        run = self._kept
        self._kept = None
        if run is None:
            run = PropagationBuffer()
        run.db = db
        self.pending.append((db, run))
        self._run = run
        return run

    def end_run(self) -> None:
        """Let the next command begin a new element of `pending`, whose caller changes those before it."""
        self._run = None

    @cython.cfunc
    def _is_known(self, session: Session, words: ArgumentSpans, commands: object) -> cython.bint:
        """Return whether older replicas certainly know the command that is logged as it is."""
        if commands is not None:
            return False
        form: Any = self.forms.get(session.command)
        if form is None:
            form = self.forms[session.command] = self.narrow.form_of(session.command)
        kind: cython.int = form
        if kind == _PLAIN_SET:
            return words.count == 3
        if kind == _PLAIN_XADD:
            return words.is_char(2, 42) or words.is_digit(2)
        return kind == _EACH_FORM

    @cython.cfunc
    def _take_both(self, db: cython.int, commands: list[Any], others: list[Any]) -> cython.bint:
        """Log the effects of a handler, and send other commands with the same result to older replicas."""
        one: list[bytes]
        self._run = None
        if self.log is self.aof:
            for one in commands:
                self.pending.append((db + _LOG_ONLY, one))
            for one in others:
                self.pending.append((-1 - db, one))
        else:
            for one in others:
                self.pending.append((db, one))
        return True

    def add(self, db: int, argv: list[bytes]) -> None:
        """Log a command that no handler propagated, such as the DEL of an expired key."""
        self._run = None
        self.pending.append((db, argv))
        if self.depth == 0:
            self.flush_pending()

    def add_for_replicas(self, db: int, argv: list[bytes]) -> None:
        """Send a command to replicas alone (PROPAGATE_REPL)."""
        if self.feeds_replicas:
            self._run = None
            self.pending.append((-1 - db, argv))
            if self.depth == 0:
                self.flush_pending()

    @cython.ccall
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
    def flush_pending(self) -> cython.bint:
        """Log the collected changes of one outermost command; more than one command becomes a transaction."""
        pending = self._take_pending()
        if self.log is None:
            return True
        now: cython.longlong = self._log_time()
        first_part: object = pending[0][1]
        if len(pending) == 1 and not (isinstance(first_part, PropagationBuffer) and first_part.count > 1):
            self._append(pending[0][0], first_part, now)
            return self._keep(first_part)
        if self.feed is not None:  # all of the transaction or none of it
            self.feed.reserve_transaction(pending)
        logged: cython.bint = False
        replicated: cython.bint = False
        first: cython.int = _database(pending[0][0])
        last: cython.int = _database(pending[len(pending) - 1][0])
        for index, _ in pending:
            logged = logged or index >= 0
            replicated = replicated or index < _LOG_ONLY
        if not logged:
            first, last = -1 - first, -1 - last
        elif not replicated:
            first, last = first + _LOG_ONLY, last + _LOG_ONLY
        self._frame(first, b"MULTI", now)
        for index, part in pending:
            self._append(index, part, now)
        self._frame(last, b"EXEC", now)
        return self._keep(first_part)

    @cython.cfunc
    def _keep(self, part: object) -> cython.bint:
        """Keep a small buffer for the next transaction."""
        if isinstance(part, PropagationBuffer):
            run: PropagationBuffer = part
            if len(run.out.buf) <= _SMALL:
                run.out.truncate(0)
                run.count = 0
                self._kept = run
        return True

    @cython.cfunc
    def _take_pending(self) -> list[Any]:
        """Return the collected changes, and forget them."""
        pending: list[Any] = self.pending
        self.pending = []
        self._run = None
        return pending

    @cython.ccall
    def flush_each(self) -> cython.bint:
        """Log the collected changes without a transaction: those of SCAN, which belong to no common change."""
        pending = self._take_pending()
        if self.log is not None:
            for index, part in pending:
                self._append(index, part, self._log_time())
        return True

    @cython.cfunc
    def _append(self, db: cython.int, part: object, now: cython.longlong) -> cython.bint:
        """Log a command, or the commands of a buffer."""
        feed: PropagationBuffer | None = self.feed
        if db < 0:  # for replicas alone
            if feed is not None and self.log is self.aof:
                return feed.for_replicas(-1 - db, part)
            db = -1 - db
        elif db >= _LOG_ONLY:  # for the append-only log alone
            if feed is None or self.log is not self.aof:
                return True
            return feed.for_log(db - _LOG_ONLY, part, now)
        if feed is None:
            self.log.append(db, part)
            return True
        feed.begin(db, now)
        return feed.commands(part)

    @cython.cfunc
    def _frame(self, db: cython.int, word: bytes, now: cython.longlong) -> cython.bint:
        """Log MULTI or EXEC. Since 7.2 they belong to no database, and SELECT follows MULTI (propagateNow)."""
        feed: PropagationBuffer | None = self.feed
        if feed is None or not self._settings.compat.knows(72):
            return self._append(db, [word], now)
        if db < 0 and self.log is self.aof:
            return feed.for_replicas(feed.db, [word])
        if db >= _LOG_ONLY:
            return True if self.log is not self.aof else feed.for_log(feed.db, [word], now)
        feed.begin(feed.db, now)
        return feed.command([word])

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _log_time(self) -> cython.longlong:
        """Return the time in ms since the epoch if the log records timestamps, else 0."""
        feed: PropagationBuffer | None = self.feed
        return self._clock.now_ms() if feed is not None and feed.timestamps else 0
