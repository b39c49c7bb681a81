"""The engine: executes the commands of every session, whichever frontend the session belongs to.

    argv -> execute: lookup, arity, authentication, MULTI queue, rejection of writes
         -> call:    handler(session, argv); the reply is in session.out
         -> effects: change counters, log entries (`Log`), keyspace events
         -> clients blocked on keys that became ready, in Redis's order (blocked.c)

The engine opens no socket, file or thread. The frontend that owns them (server or store) calls `execute` for a session,
then `before_reply` before it sends any byte of the reply. Under `appendfsync always`, an acknowledged change is
therefore always on the disk.

The engine is not thread-safe: the store holds a lock around every call.
"""

from __future__ import annotations

from collections.abc import Callable
from os import urandom
from typing import Any, Protocol

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.errors import CommandError, ExecAbort, Loading, Misconf, NoAuth, ProtocolError
from rillet.keyspace.clock import Clock
from rillet.keyspace.database import Database
from rillet.protocol.command_parser import CommandParser, QueryBufferExceeded
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.runtime.blocking import KeyWaiters, ServingRound
from rillet.runtime.channels import Channels
from rillet.runtime.fast_path import FastPath
from rillet.runtime.host import DefaultHost, Host
from rillet.runtime.keyspace_events import CLASS, MISS, NEW, OVERWRITTEN, TYPE_CHANGED, channels_of
from rillet.runtime.registry import TABLE, Command, load_commands
from rillet.runtime.session import (
    BLOCKED,
    IN_MULTI,
    MULTI_FAILED,
    REPLY_OFF,
    REPLY_SKIP,
    REPLY_SKIP_NEXT,
    SUBSCRIBED,
    UNAUTHENTICATED,
    Blocked,
    Session,
)  # fmt: skip
from rillet.runtime.settings import Settings
from rillet.runtime.statistics import CommandCounters, Statistics
from rillet.structs.argument_spans import ArgumentSpans

# Commands that a session inside MULTI runs instead of queueing (server.c: processCommand).
_NOT_QUEUED = frozenset((b"exec", b"discard", b"multi", b"watch", b"quit", b"reset"))
# Commands that a RESP2 session with subscriptions may run.
_WHILE_SUBSCRIBED = frozenset(
    (b"ping", b"subscribe", b"ssubscribe", b"psubscribe", b"unsubscribe", b"sunsubscribe", b"punsubscribe", b"quit",
     b"reset")
)  # fmt: skip
# Words of an HTTP request, which a malicious web page may send: disconnect (server.c: securityWarningCommand).
_HTTP = frozenset((b"post", b"host:"))
_MAX_CACHED_NAMES = 4096
# During a replay, discard the replies of the fast path after this many bytes.
_REPLAYED_AT_ONCE = cython.declare(cython.Py_ssize_t, 1 << 15)
# The interval in milliseconds at which expired messages of idempotent producers are removed.
_IDMP_PERIOD = 1000
# The delay in milliseconds before a blocked claim is tried again during CLIENT PAUSE.
_PAUSED_RETRY = 100
# Values of Engine.paused: the commands that CLIENT PAUSE holds back.
PAUSE_OFF = 0
PAUSE_WRITES = 1
PAUSE_ALL = 2


class Log(Protocol):
    """The destination of logged changes, for example an append-only file."""

    def append(self, db: int, argv: list[bytes]) -> None:
        """Append one command that changed database `db`."""

    def flush(self) -> None:
        """Make the appended commands as durable as the settings require, before a reply is sent."""


@cython.final
@cython.cclass
class Engine:
    """Databases, settings, sessions and statistics of one server or store."""

    __slots__ = (
        "databases", "settings", "clock", "feed", "sessions", "statistics", "preserved", "refusal", "notify_events",
        "on_keyspace_event", "loading", "started_ms", "next_session_id", "dirty", "host",
        "active_expire", "run_id", "replication_id", "paused", "mstime",
        "channels", "words", "_by_name", "_ready", "_pending", "_postponed", "_waits", "_depth", "_since",
        "_idmp_expired", "_shortcuts", "_shortcut_sizes", "_log",
    )  # fmt: skip
    feed: PropagationBuffer | None
    _log: Any
    sessions: dict[int, Session]
    _by_name: dict[bytes, Command]
    _ready: list[Database]
    _pending: list[tuple[int, list[bytes]]]
    _shortcuts: list[tuple[bytes, Command, FastPath]]

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None) -> None:
        load_commands()
        self.settings = settings or Settings()
        self.clock = clock or Clock()
        self.databases = [Database(index, self.clock) for index in range(self.settings.databases)]
        for database in self.databases:
            database.on_expired = self._expired
            database.on_ready = self._database_ready
            database.may_expire = self._may_expire
        self._log = None
        # The propagation buffer of the log, if it has one: commands are written to it directly, without `Log.append`.
        self.feed = None
        self.channels = Channels()
        self.sessions = {}
        self.statistics = Statistics()
        self.host: Host = DefaultHost(self)
        # Data of an RDB file that rillet cannot interpret, kept for the next file (persistence.rdb.reader).
        self.preserved: Any = None
        self.refusal: str | None = None
        self.notify_events = False
        self.on_keyspace_event: Callable[[Database, bytes, bytes, bytes], None] | None = None
        self.loading = False
        self.paused = PAUSE_OFF
        # Cached time in milliseconds; may lag by one loop iteration.
        self.mstime = 0
        self.active_expire = True
        self.run_id = urandom(20).hex()
        self.replication_id = urandom(20).hex()
        self.started_ms = self.clock.now_ms()
        self.next_session_id = 1
        self.dirty = 0
        self._by_name = {}
        self._ready = []
        self._pending = []
        self._postponed: list[Blocked] = []
        self._waits = 0
        self._depth = 0
        self._idmp_expired = 0
        # The arguments of one command as memory addresses, for the fast paths.
        self.words = ArgumentSpans()
        self._shortcuts = [(entry.name.encode(), entry, entry.shortcut()) for entry in TABLE if entry.shortcut]
        # A bit set of the lengths of their names.
        self._shortcut_sizes = 0
        for name, _, _ in self._shortcuts:
            self._shortcut_sizes |= 1 << len(name)
        # The end of the previous command of a batch (ticks), 0 outside of a batch. The next command starts at this
        # time, so each command reads the clock once, and its time includes parsing.
        self._since = 0
        self.take_settings()

    # -- the log -------------------------------------------------------------------------------------

    @property
    def log(self) -> Any:
        """The Log that receives the changes, or None."""
        return self._log

    @log.setter
    def log(self, log: Any) -> None:
        self._log = log
        self.feed = getattr(log, "feed", None)

    # -- sessions ------------------------------------------------------------------------------------

    def session(self, *, trusted: bool = False) -> Session:
        """Return a new session on database 0; a trusted session replays a log and needs no password."""
        session = Session(self, self.databases[0], self.next_session_id)
        self.next_session_id += 1
        session.created_ms = session.last_ms = self.clock.now_ms()
        session.trusted = trusted
        if self.settings.requirepass and not trusted:
            session.state |= UNAUTHENTICATED
        self.sessions[session.id] = session
        return session

    def close_session(self, session: Session) -> None:
        """Unregister the session; end its waiting, its watched keys and its subscriptions."""
        self.unwatch(session)
        self.channels.forget(session)
        if session.blocked is not None:
            self._stop_waiting(session)
        self.sessions.pop(session.id, None)

    def unwatch(self, session: Session) -> None:
        """Remove the session's watcher from every key (multi.c: unwatchAllKeys)."""
        watcher = session.watcher
        for database, key in watcher.keys:
            watchers = database.watched_keys.get(key)
            if watchers is not None:
                watchers.discard(watcher)
                if not watchers:
                    del database.watched_keys[key]
        watcher.keys.clear()
        watcher.stale.clear()
        watcher.dirty = False

    def discard(self, session: Session) -> None:
        """Discard the session's transaction and its watched keys (multi.c: discardTransaction)."""
        session.queue = []
        session.state &= ~(IN_MULTI | MULTI_FAILED)
        self.unwatch(session)

    # -- running a command ---------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def execute(self, session: Session, argv: list[bytes]) -> cython.bint:
        """Run one command; return True if its reply is in session.out, False if the session is now blocked."""
        entry: Command | None = self._by_name.get(argv[0])
        if entry is None:
            entry = self._find(argv[0])
        if entry is not None and entry.subcommands is not None and len(argv) > 1:
            entry = self._find_subcommand(entry, argv[1])
        if (entry is None or session.state != 0 or self.refusal is not None or self.paused
                or (self.loading and not session.trusted) or not entry.accepts(len(argv))
                or (entry.subcommands is not None and len(argv) > 1)):  # fmt: skip
            if self.paused and self._postpone(session, entry, argv):
                return False
            if session.state & (REPLY_OFF | REPLY_SKIP | REPLY_SKIP_NEXT):
                return self._execute_muted(session, entry, argv)
            if not self._admit(session, entry, argv):
                return True
        assert entry is not None
        self.call(session, entry, argv)
        if session.pushes is not None:
            session.flush_pushes()
        if self._ready:
            self._serve_ready()
        return session.blocked is None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _execute_muted(self, session: Session, entry: Any, argv: list[bytes]) -> cython.bint:
        """Run a command of a session with disabled replies (CLIENT REPLY OFF and SKIP)."""
        mark: cython.Py_ssize_t = session.out.mark()
        if session.state & REPLY_SKIP_NEXT:
            session.state = (session.state & ~REPLY_SKIP_NEXT) | REPLY_SKIP
        if self._admit(session, entry, argv):
            self.call(session, entry, argv)
        if session.blocked is None:
            self._mute(session, mark)
        if session.pushes is not None:
            session.flush_pushes()
        if self._ready:
            self._serve_ready()
        return session.blocked is None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _mute(self, session: Session, mark: cython.Py_ssize_t) -> cython.bint:
        """Discard the reply if replies are disabled; SKIP ends with this command, even if it was blocked."""
        if session.state & (REPLY_OFF | REPLY_SKIP):
            session.out.truncate(mark)
            session.state &= ~REPLY_SKIP
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def drain(self, session: Session, parser: CommandParser, limit: cython.Py_ssize_t) -> cython.bint:
        """Run the complete commands in the parser; return True if more remain after the replies are sent.

        Stop when the session is blocked or closed, when the parser needs more bytes, or when the replies exceed
        `limit` bytes. A protocol error becomes the last reply, with Redis's text, and the session closes.
        """
        self._since = self.clock.ticks()
        try:
            return self._drain(session, parser, limit)
        finally:
            self._since = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _drain(self, session: Session, parser: CommandParser, limit: cython.Py_ssize_t) -> cython.bint:
        argv: list[bytes] | None
        while session.blocked is None and not session.closing:
            if session.out.used > limit:
                return True
            parser.authenticated = session.state & UNAUTHENTICATED == 0
            if self._take_shortcut(session, parser, limit):
                continue
            try:
                argv = parser.next()
            except ProtocolError as error:
                # An overfull query buffer: disconnect without a reply (networking.c: readQueryFromClient).
                if not isinstance(error, QueryBufferExceeded):
                    session.out.error(f"ERR {error}".encode("utf-8", "surrogateescape"))
                session.closing = True
                return False
            if argv is None:
                return False
            if argv:
                self.execute(session, argv)
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _take_shortcut(self, session: Session, parser: CommandParser, limit: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Run the next commands by a fast path, if they have one; return their number."""
        size: cython.int = parser.first_size()
        # The length of the name excludes nearly all commands without a fast path.
        if size < 0 or not self._shortcut_sizes >> size & 1:
            return 0
        if session.state != 0 or self.paused or self.notify_events or self.refusal is not None:
            return 0
        if self.loading and not session.trusted:
            return 0
        if self._log is not None and self.feed is None and not session.trusted:
            return 0
        words: ArgumentSpans = self.words
        for name, entry, shortcut in self._shortcuts:
            if len(name) == size and parser.first_is(name):
                words.count = parser.scan(words.at, words.size, words.room)
                if words.count == 0:
                    return 0
                return self._run_shortcut(session, parser, entry, shortcut, limit)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _run_shortcut(
        self, session: Session, parser: CommandParser, entry: Command, shortcut: FastPath, limit: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Run consecutive calls by the fast path; like `call`, but counted and timed together."""
        feed: PropagationBuffer | None = None if session.trusted else self.feed
        session.dirty = 0
        session.propagated = None
        session.command = entry
        began: cython.longlong = self._since
        ran: cython.Py_ssize_t = shortcut.run(session, parser, self.words, feed, limit)
        if ran == 0:
            return 0
        self._since = self.clock.ticks()
        counters: CommandCounters = self.statistics.of(entry)
        counters.nanoseconds += self._since - began
        counters.calls += ran
        self.statistics.commands_processed += ran
        self.dirty += session.dirty
        if self._ready:
            self._serve_ready()
        return ran

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def replay(self, session: Session, parser: CommandParser) -> cython.Py_ssize_t:
        """Run the next commands of a log as long as they have a fast path; discard replies, return their number.

        The caller runs all other commands. The fast path rejects no command, and never splits a transaction, because
        MULTI has no fast path.
        """
        count: cython.Py_ssize_t = 0
        ran: cython.Py_ssize_t = 1
        size: cython.int = parser.first_size()
        if size < 0 or not self._shortcut_sizes >> size & 1:
            return 0
        self._since = self.clock.ticks()
        try:
            while ran > 0:
                ran = self._take_shortcut(session, parser, _REPLAYED_AT_ONCE)
                count += ran
                session.out.truncate(0)
        finally:
            self._since = 0
        return count

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def call(self, session: Session, entry: Command, argv: list[bytes]) -> cython.bint:
        """Run the handler of an admitted command, then process the effects that it recorded in the session."""
        mark: cython.Py_ssize_t = session.out.mark()
        session.dirty = 0
        session.propagated = None
        session.argv = argv
        session.command = entry
        outer: cython.bint = session.running
        session.running = True
        counters: CommandCounters = self.statistics.of(entry)
        counters.calls += 1
        self.statistics.commands_processed += 1
        began: cython.longlong = self._since or self.clock.ticks()
        self._depth += 1
        try:
            entry.handler(session, argv)
        except CommandError as error:
            counters.failed += 1
            self._reply_error(session, mark, error)
        finally:
            self._depth -= 1
            session.running = outer
            ended: cython.longlong = self.clock.ticks()
            counters.nanoseconds += ended - began
            if self._since:
                self._since = ended
            # Also after an exception such as KeyboardInterrupt or MemoryError: the changes so far must be logged.
            if session.dirty or session.propagated is not None:
                self._take_effects(session, argv)
            if self._pending and self._depth == 0:
                self._flush_pending()
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _take_effects(self, session: Session, argv: list[bytes]) -> cython.bint:
        self.dirty += session.dirty
        commands: list[list[bytes]] | None = session.propagated
        session.propagated = None
        if self._log is None or session.trusted:
            return True
        if self._depth == 0 and self.feed is not None and not self._pending:
            # The common case, one command, needs no transaction.
            if commands is None or len(commands) == 1:
                return self._feed(session.db.index, argv if commands is None else commands[0], self._log_time())
        if commands is None:
            self._pending.append((session.db.index, argv))
        else:
            for one in commands:
                self._pending.append((session.db.index, one))
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _feed(self, db: cython.int, argv: list[bytes], now: cython.longlong) -> cython.bint:
        """Log a command that changed database db."""
        feed: PropagationBuffer | None = self.feed
        if feed is None:
            self._log.append(db, argv)
            return True
        feed.begin(db, now)
        return feed.command(argv)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _log_time(self) -> cython.longlong:
        """Return the time (ms since the epoch) if the log contains timestamps, else 0."""
        feed: PropagationBuffer | None = self.feed
        return self.clock.now_ms() if feed is not None and feed.timestamps else 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _flush_pending(self) -> cython.bint:
        """Log the changes of one outermost command; several logged commands form a transaction."""
        pending = self._pending
        self._pending = []
        if self._log is None:
            return True
        now: cython.longlong = self._log_time()
        if len(pending) == 1:
            return self._feed(pending[0][0], pending[0][1], now)
        self._frame(pending[0][0], b"MULTI", now)
        for index, argv in pending:
            self._feed(index, argv, now)
        return self._frame(pending[len(pending) - 1][0], b"EXEC", now)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _frame(self, db: cython.int, word: bytes, now: cython.longlong) -> cython.bint:
        """Log MULTI or EXEC; since 7.2 these need no SELECT, so a SELECT follows MULTI (server.c: propagateNow)."""
        feed: PropagationBuffer | None = self.feed
        if feed is not None and self.settings.compat.knows(72):
            db = feed.db
        return self._feed(db, [word], now)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _reply_error(self, session: Session, mark: cython.Py_ssize_t, error: object) -> cython.bint:
        session.out.truncate(mark)
        text = str(error)
        prefix = text.partition(" ")[0]
        self.statistics.count_error(prefix)
        session.out.error(text.encode("utf-8", "surrogateescape"))
        return True

    def before_reply(self) -> None:
        """Flush the log as the settings require; must be called before replies are sent."""
        if self._log is not None:
            self._log.flush()

    # -- admission -----------------------------------------------------------------------------------

    @cython.cfunc
    def _find(self, name: bytes) -> Command | None:
        found = TABLE.by_name.get(name.lower())
        if found is None:
            return None
        if found.level > self.settings.compat.level:
            return found if self.loading else None  # a log may contain commands that are newer than `compat`
        if len(self._by_name) < _MAX_CACHED_NAMES:
            self._by_name[name] = found
        return found

    @cython.cfunc
    def _find_subcommand(self, entry: Command, name: bytes) -> Command:
        assert entry.subcommands is not None
        found = entry.subcommands.get(name)
        if found is None:
            found = entry.subcommands.get(name.lower())
        hidden: cython.bint = found is not None and found.level > self.settings.compat.level and not self.loading
        return entry if found is None or hidden else found

    def take_settings(self) -> None:
        """Apply changed settings, which may affect the available commands and the published events."""
        self._by_name.clear()
        events = self.settings.notify_keyspace_events
        self.notify_events = events.wanted
        for database in self.databases:
            database.on_missed = self._missed if events.wanted and events.flags & MISS else None
            database.on_new = self._new if events.wanted and events.flags & NEW else None
            database.on_overwritten = (
                self._overwritten if events.wanted and events.flags & (OVERWRITTEN | TYPE_CHANGED) else None
            )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _admit(self, session: Session, entry: Any, argv: list[bytes]) -> cython.bint:
        """Return whether to run the command now; if False, it was rejected or queued and its reply is written."""
        if entry is None and argv[0].lower() in _HTTP:
            session.closing = True
            return False
        try:
            self._check(session, entry, argv)
        except CommandError as error:
            if entry is not None:
                self.statistics.count_rejection(entry)
            if session.state & IN_MULTI:
                session.state |= MULTI_FAILED
            if entry is not None and entry.fullname == "exec":
                self.discard(session)
                error = ExecAbort(f"Transaction discarded because of: {str(error).removeprefix('ERR ')}")
            self._reply_error(session, session.out.mark(), error)
            return False
        if session.state & IN_MULTI and entry.fullname.encode() not in _NOT_QUEUED:
            session.queue.append((entry, argv))
            session.command = entry
            session.out.simple(b"QUEUED")
            return False
        return True

    def _check(self, session: Session, entry: Command | None, argv: list[bytes]) -> None:
        """Raise CommandError if the command may not run; the checks have the order of server.c: processCommand."""
        if entry is None:
            raise CommandError(_unknown_command(argv))
        if entry.subcommands is not None and len(argv) > 1:
            raise CommandError(f"unknown subcommand '{_text(argv[1][:128])}'. Try {entry.name.upper()} HELP.")
        if not entry.accepts(len(argv)):
            raise CommandError(f"wrong number of arguments for '{entry.fullname}' command")
        if session.state & UNAUTHENTICATED and not entry.no_auth:
            raise NoAuth()
        if session.state & IN_MULTI and entry.no_multi:
            raise CommandError("Command not allowed inside a transaction")
        if self.refusal is not None and not session.trusted and _may_write(session, entry):
            raise Misconf(self.refusal)
        if session.state & SUBSCRIBED and session.out.resp == 2 and entry.fullname.encode() not in _WHILE_SUBSCRIBED:
            raise CommandError(
                f"Can't execute '{entry.fullname}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET "
                "are allowed in this context"
            )
        if self.loading and not session.trusted and "loading" not in entry.flags:
            raise Loading()

    # -- pausing -------------------------------------------------------------------------------------

    def _postpone(self, session: Session, entry: Command | None, argv: list[bytes]) -> bool:
        """Postpone a command of a paused client; only clients on sockets are paused (blocked.c: BLOCKED_POSTPONE)."""
        if session.transport is None or entry is None or not entry.accepts(len(argv)):
            return False
        if self.paused == PAUSE_WRITES and not _may_replicate(session, entry):
            return False
        session.argv = argv
        self.block(session, [], 0, _never_served, _never_expires)
        assert session.blocked is not None
        session.blocked.postponed = True
        self._postponed.append(session.blocked)
        return True

    def unpause(self) -> None:
        """End the pause and run the postponed commands, in order of arrival (unblockPostponedClients)."""
        self.paused = PAUSE_OFF
        waiting, self._postponed = self._postponed, []
        for blocked in waiting:
            session = blocked.session
            if session.blocked is blocked:
                self._stop_waiting(session)
                self.execute(session, blocked.argv)
                self._wake(session)

    # -- blocking ------------------------------------------------------------------------------------

    def block(self, session: Session, keys: list[bytes], timeout_ms: int,
              serve: Callable[[Any, bytes], bool], expired: Callable[[Any], None], queue: bytes | None = None) -> None:
        """Block the session on its keys (blocked.c: blockForKeys); called through Session.block."""
        deadline = self.clock.now_ms() + timeout_ms if timeout_ms else 0
        self._waits += 1
        blocked = Blocked(session, session.db, list(dict.fromkeys(keys)), deadline, serve, expired, session.argv, queue,
                          self._waits)  # fmt: skip
        for key in blocked.keys:
            waiting = session.db.blocking_keys.get(key)
            if waiting is None:
                waiting = session.db.blocking_keys[key] = KeyWaiters()
            waiting.add(blocked)
        session.blocked = blocked
        session.state |= BLOCKED

    def retry_at(self, session: Session, when: int) -> None:
        """Try to serve a blocked session at a time (ms since the epoch), even if none of its keys changes."""
        blocked = session.blocked
        before = blocked.wakes_at
        blocked.retry_at = when
        if blocked.wakes_at < before or before == 0:
            # The frontend's timer is set to a later time.
            self._wake(session)

    def time_has_come(self, session: Session) -> None:
        """Handle the time-out or the retry of a blocked session; the frontend calls it at `Blocked.wakes_at`."""
        blocked = session.blocked
        if blocked is None or blocked.postponed:
            return
        now = self.clock.now_ms()
        if blocked.deadline and blocked.deadline <= now:
            self.expire_block(session)
        elif blocked.retry_at and blocked.retry_at <= now:
            if not blocked.keys:
                # It is not blocked on keys, so no other client is affected.
                blocked.retry_at = 0
                self._serve(blocked, b"")
                return
            if self.paused:
                # A claim is a write.
                blocked.retry_at = now + _PAUSED_RETRY
                return
            # All clients blocked on these keys are tried in order (t_stream.c: handleClaimableStreamEntries).
            blocked.retry_at = 0
            for key in blocked.keys:
                blocked.db.signal_ready(key)
            self._serve_ready()

    def has_unlogged(self) -> bool:
        """Return whether the running command or transaction has made changes that will be logged when it ends."""
        return len(self._pending) > 0

    def expire_block(self, session: Session) -> None:
        """End the session's waiting with the reply of a time-out."""
        blocked = session.blocked
        if blocked is not None and not blocked.postponed:
            self._stop_waiting(session)
            mark: cython.Py_ssize_t = session.out.mark()
            blocked.expired(session)
            self._mute(session, mark)
            self._wake(session)

    def unblock(self, session: Session, error: CommandError) -> None:
        """End the session's waiting with an error (CLIENT UNBLOCK ... ERROR)."""
        if session.blocked is not None and not session.blocked.postponed:
            self._stop_waiting(session)
            self.statistics.count_failure(session.command)
            mark: cython.Py_ssize_t = session.out.mark()
            self._reply_error(session, mark, error)
            self._mute(session, mark)
            self._wake(session)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _stop_waiting(self, session: Session) -> cython.bint:
        blocked = session.blocked
        session.blocked = None
        session.state &= ~BLOCKED
        for key in blocked.keys:
            waiting = blocked.db.blocking_keys.get(key)
            if waiting is not None:
                waiting.remove(blocked)
                if not waiting:
                    del blocked.db.blocking_keys[key]
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _wake(self, session: Session) -> cython.bint:
        if session.on_wake is not None:
            session.on_wake()
        return True

    def _database_ready(self, database: Database) -> None:
        self._ready.append(database)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _serve_ready(self) -> cython.bint:
        """Serve the clients of ready keys, first come first served (blocked.c: handleClientsBlockedOnKeys)."""
        while self._ready:
            databases = self._ready
            self._ready = []
            for database in databases:
                keys = list(database.ready_keys)
                database.ready_keys.clear()
                for key in keys:
                    waiting = database.blocking_keys.get(key)
                    if waiting is not None:
                        self._serve_key(waiting.turns(), key)
        return True

    def _serve_key(self, turns: ServingRound, key: bytes) -> None:
        """Try to serve the clients blocked on the key, in turn; skip clients that cannot be served."""
        blocked = turns.next()
        while blocked is not None:
            if blocked.session.blocked is not blocked or not self._serve(blocked, key):
                turns.refused(blocked)
            blocked = turns.next()

    def _serve(self, blocked: Blocked, key: bytes) -> bool:
        """Try to serve one blocked client; return whether it received a reply."""
        session = blocked.session
        mark = session.out.mark()
        session.dirty = 0
        session.propagated = None
        session.running = True
        self._depth += 1
        try:
            done = blocked.serve(session, key)
        except CommandError as error:
            self.statistics.count_failure(session.command)
            self._reply_error(session, mark, error)
            done = True
        finally:
            self._depth -= 1
            session.running = False
            if session.dirty or session.propagated is not None:
                self._take_effects(session, blocked.argv)
            if self._pending and self._depth == 0:
                self._flush_pending()
        if done:
            self._mute(session, mark)
            self._stop_waiting(session)
        if session.pushes is not None:
            session.flush_pushes()
        if done:
            self._wake(session)
        return done

    # -- expiry and events ---------------------------------------------------------------------------

    def _expired(self, database: Database, key: bytes) -> None:
        """Count an expired key, mark its watchers, and log the DEL (expire.c: deleteExpiredKeyAndPropagate)."""
        self.statistics.expired_keys += 1
        database.touch(key)
        if self.notify_events:
            self.keyspace_event(database, b"x", b"expired", key)
        # Also while writes are rejected: the log buffers the command until the file can be written again.
        if self._log is not None and not self.loading:
            name = b"UNLINK" if self.settings.lazyfree_lazy_expire else b"DEL"
            self._pending.append((database.index, [name, key]))
            if self._depth == 0:
                self._flush_pending()

    def _may_expire(self) -> bool:
        return not self.loading and not self.paused

    def expire_cycle(self, limit: int = 20) -> int:
        """Delete up to `limit` expired keys of each database, and return their number; called by a periodic timer."""
        if self.loading or self.paused or not self.active_expire:
            return 0
        removed = sum(database.expire_some(limit) for database in self.databases if database.expires)
        now = self.clock.now_ms()
        if now - self._idmp_expired >= _IDMP_PERIOD:
            self._idmp_expired = now
            for database in self.databases:
                database.expire_idmp(now)
        if self._ready:
            self._serve_ready()
        return removed

    def keyspace_event(self, database: Database, kind: bytes, event: bytes, key: bytes) -> None:
        """Publish a keyspace event on its channels, if its class is enabled (notify.c: notifyKeyspaceEvent)."""
        if self.on_keyspace_event is not None:
            self.on_keyspace_event(database, kind, event, key)
        flags = self.settings.notify_keyspace_events.flags
        if flags & CLASS[kind] and (self.channels.channels or self.channels.patterns):
            for channel, message in channels_of(flags, database.index, event, key):
                self.channels.publish(channel, message)

    def _missed(self, database: Database, key: bytes) -> None:
        self.keyspace_event(database, b"m", b"keymiss", key)

    def _new(self, database: Database, key: bytes) -> None:
        if not self.loading:
            self.keyspace_event(database, b"n", b"new", key)

    def _overwritten(self, database: Database, key: bytes, old: object, new: object) -> None:
        self.keyspace_event(database, b"o", b"overwritten", key)
        if type(old) is not type(new):
            self.keyspace_event(database, b"c", b"type_changed", key)

    def check(self) -> None:
        """Assert the invariants of all databases, channels and blocked clients."""
        self.channels.check()
        for database in self.databases:
            database.check()
            for key, waiting in database.blocking_keys.items():
                for blocked in waiting:
                    assert blocked.session.blocked is blocked and key in blocked.keys


def _may_write(session: Session, entry: Command) -> bool:
    """Return whether the command is rejected while the log cannot be written; PING is, so that monitoring sees it."""
    if entry.fullname == "exec":
        return any(queued.write for queued, _ in session.queue)
    return entry.write or entry.fullname == "ping"


def _may_replicate(session: Session, entry: Command) -> bool:
    """Return whether CLIENT PAUSE WRITE holds the command back (server.c: is_may_replicate_command)."""
    if entry.name == "exec":
        return any(_may_replicate(session, queued) for queued, _ in session.queue)
    return entry.write or "may_replicate" in entry.flags


def _never_served(_session: Session, _key: bytes) -> bool:
    """Return False: a postponed command is not blocked on keys."""
    return False


def _never_expires(_session: Session) -> None:
    """Do nothing: a postponed command has no time-out."""


def _text(raw: bytes) -> str:
    """Return the bytes up to the first NUL as text, for an error line (C's %s)."""
    return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _unknown_command(argv: list[bytes]) -> str:
    """Return the error for an unknown command: its name and arguments, 128 bytes of each (server.c)."""
    arguments = b""
    for word in argv[1:]:
        if len(arguments) >= 128:
            break
        arguments += b"'" + word.split(b"\0", 1)[0][: 128 - len(arguments)] + b"' "
    return f"unknown command '{_text(argv[0][:128])}', with args beginning with: {_text(arguments)}"


__all__ = ["PAUSE_ALL", "PAUSE_OFF", "PAUSE_WRITES", "Engine", "Log"]
