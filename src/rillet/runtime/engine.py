"""The engine: the one way a command runs, whichever door it came through.

    argv -> execute: look-up, arity, authentication, MULTI queue, refusal of writes
         -> call:    handler(session, argv), reply in session.out
         -> effects: change counters, what to log (`Log`), keyspace events
         -> clients waiting for keys that became ready, in Redis's order (blocked.c)

The engine opens no socket, file or thread. Those who own one (the server, the store) call
`execute` for a session, then `before_reply` before any byte of the reply leaves, so that under
`appendfsync always` nothing is acknowledged that is not on disk.

Nothing here is safe to call from two threads at once: the store holds a lock around it.
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
# What a browser that was lured here sends: it is cut off without a reply (server.c: securityWarningCommand).
_HTTP = frozenset((b"post", b"host:"))
_MAX_CACHED_NAMES = 4096
# Bytes of replies, which nobody reads, after which a log's plain calls are interrupted.
_REPLAYED_AT_ONCE = cython.declare(cython.Py_ssize_t, 1 << 15)
# Milliseconds between two looks for messages of producers to be forgotten.
_IDMP_PERIOD = 1000
# Milliseconds after which who claims is asked again while CLIENT PAUSE holds clients back.
_PAUSED_RETRY = 100
# Engine.paused: whom CLIENT PAUSE holds back.
PAUSE_OFF = 0
PAUSE_WRITES = 1
PAUSE_ALL = 2


class Log(Protocol):
    """Where changes go: an append-only file, a replication stream, or several."""

    def append(self, db: int, argv: list[bytes]) -> None:
        """Take one command that changed database `db`."""

    def flush(self) -> None:
        """Make what was appended as durable as the settings ask before a reply may leave."""


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
        # The feed of the log, where it has one: what changed is written there, past `Log.append`.
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
        # The clock as the door last read it, for what may be a little late.
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
        # The words of one command, for whoever wants them as places in memory.
        self.words = ArgumentSpans()
        self._shortcuts = [(entry.name.encode(), entry, entry.shortcut()) for entry in TABLE if entry.shortcut]
        # A bit for each length of their names.
        self._shortcut_sizes = 0
        for name, _, _ in self._shortcuts:
            self._shortcut_sizes |= 1 << len(name)
        # When the last command of a batch ended (ticks), 0 outside of one: the next one begins there, so that a
        # batch asks for the time once a command, and the parsing counts as the command's.
        self._since = 0
        self.take_settings()

    # -- the log -------------------------------------------------------------------------------------

    @property
    def log(self) -> Any:
        """Where changes go (a Log), or None."""
        return self._log

    @log.setter
    def log(self, log: Any) -> None:
        self._log = log
        self.feed = getattr(log, "feed", None)

    # -- sessions ------------------------------------------------------------------------------------

    def session(self, *, trusted: bool = False) -> Session:
        """Return a new session on database 0; a trusted one needs no password and replays a log."""
        session = Session(self, self.databases[0], self.next_session_id)
        self.next_session_id += 1
        session.created_ms = session.last_ms = self.clock.now_ms()
        session.trusted = trusted
        if self.settings.requirepass and not trusted:
            session.state |= UNAUTHENTICATED
        self.sessions[session.id] = session
        return session

    def close_session(self, session: Session) -> None:
        """Forget the session: it waits for nothing, watches nothing, hears nothing, is listed nowhere."""
        self.unwatch(session)
        self.channels.forget(session)
        if session.blocked is not None:
            self._stop_waiting(session)
        self.sessions.pop(session.id, None)

    def unwatch(self, session: Session) -> None:
        """Take the session's watcher off every key (multi.c: unwatchAllKeys)."""
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
        """End the session's transaction and its watching (multi.c: discardTransaction)."""
        session.queue = []
        session.state &= ~(IN_MULTI | MULTI_FAILED)
        self.unwatch(session)

    # -- running a command ---------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def execute(self, session: Session, argv: list[bytes]) -> cython.bint:
        """Run one command; its reply is in session.out, unless the session now waits (False is returned then)."""
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
        """Run a command of a session that asked for no replies (CLIENT REPLY OFF and SKIP)."""
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
        """Take back the reply of a session that asked for none; SKIP ends with the command, however long it waited."""
        if session.state & (REPLY_OFF | REPLY_SKIP):
            session.out.truncate(mark)
            session.state &= ~REPLY_SKIP
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def drain(self, session: Session, parser: CommandParser, limit: cython.Py_ssize_t) -> cython.bint:
        """Run the commands that are whole in the parser; True = call again once the replies are sent.

        Stops when the session waits or closes, when the parser needs more bytes, or when `limit` bytes of
        replies have gathered. A broken protocol leaves Redis's error as the last reply and a closing session.
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
                # A client that only piles up bytes is cut off without a word (networking.c: readQueryFromClient).
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
        """Run the plain calls that come next by their command's shortcut; return how many they were."""
        size: cython.int = parser.first_size()
        # Nearly every other command is seen to be one by the length of its name.
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
        """Do for a run of calls what `call` does for one; they are counted and timed together."""
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
        """Run the plain calls of a log that come next, as long as there are any, without replies; how many they were.

        Every other command is left to whoever reads the log. Nothing was refused, and nothing half of a transaction
        run: there is no shortcut of MULTI.
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
        """Run the handler of an admitted command and act on what it noted."""
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
            # After an exception that ends more than the command (^C, no memory), too: what was changed is changed.
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
            # One command, as nearly always: nothing is to be gathered.
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
        """Return the time if the log wants to know it (ms since the epoch), else 0."""
        feed: PropagationBuffer | None = self.feed
        return self.clock.now_ms() if feed is not None and feed.timestamps else 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _flush_pending(self) -> cython.bint:
        """Log what one outermost command changed; more than one command goes as a transaction."""
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
        """Log MULTI or EXEC: since 7.2 they belong to no database, and a SELECT comes behind MULTI (propagateNow)."""
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
        """Let the log reach the durability that the settings ask for; to be called before replies leave."""
        if self._log is not None:
            self._log.flush()

    # -- admission -----------------------------------------------------------------------------------

    @cython.cfunc
    def _find(self, name: bytes) -> Command | None:
        found = TABLE.by_name.get(name.lower())
        if found is None:
            return None
        if found.level > self.settings.compat.level:
            return found if self.loading else None  # a log was written when more was shown
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
        """Act on settings that were changed: other commands may be there, other events be told."""
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
        """Decide on a command that is not plainly fine; False = refused or queued, the reply is written."""
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
        """Raise what processCommand (server.c) refuses before a call, in its order."""
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
        """Let a paused client wait with its command; only clients of a socket are (blocked.c: BLOCKED_POSTPONE)."""
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
        """Let the clients go on that were held back, in the order in which they came (unblockPostponedClients)."""
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
        """Let the session wait for its keys (blocked.c: blockForKeys); Session.block is the way here."""
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
        """Let a waiting session be asked again at a time (ms since the epoch), though its keys may not change."""
        blocked = session.blocked
        before = blocked.wakes_at
        blocked.retry_at = when
        if blocked.wakes_at < before or before == 0:
            # Its door sleeps for too long.
            self._wake(session)

    def time_has_come(self, session: Session) -> None:
        """Act on what a session waits for the clock for; called by its door at `Blocked.wakes_at`."""
        blocked = session.blocked
        if blocked is None or blocked.postponed:
            return
        now = self.clock.now_ms()
        if blocked.deadline and blocked.deadline <= now:
            self.expire_block(session)
        elif blocked.retry_at and blocked.retry_at <= now:
            if not blocked.keys:
                # It waits for something else, and is alone in that.
                blocked.retry_at = 0
                self._serve(blocked, b"")
                return
            if self.paused:
                # A claim is a write.
                blocked.retry_at = now + _PAUSED_RETRY
                return
            # All who wait for these keys are asked, in their order (t_stream.c: handleClaimableStreamEntries).
            blocked.retry_at = 0
            for key in blocked.keys:
                blocked.db.signal_ready(key)
            self._serve_ready()

    def has_unlogged(self) -> bool:
        """Whether a command that runs, or a transaction, changed something that is to be logged when it ends."""
        return len(self._pending) > 0

    def expire_block(self, session: Session) -> None:
        """The session waited long enough: write the reply of a time-out and wake it."""
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
        """Serve those who wait for the key, until each was asked whom that may help."""
        blocked = turns.next()
        while blocked is not None:
            if blocked.session.blocked is not blocked or not self._serve(blocked, key):
                turns.refused(blocked)
            blocked = turns.next()

    def _serve(self, blocked: Blocked, key: bytes) -> bool:
        """Try to serve one waiting client; whether it got a reply."""
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
        """A key's time has come: count it, tell its watchers, log the DEL (expire.c: deleteExpiredKeyAndPropagate)."""
        self.statistics.expired_keys += 1
        database.touch(key)
        if self.notify_events:
            self.keyspace_event(database, b"x", b"expired", key)
        # While writes are refused, too: the log keeps it until it can be written again.
        if self._log is not None and not self.loading:
            name = b"UNLINK" if self.settings.lazyfree_lazy_expire else b"DEL"
            self._pending.append((database.index, [name, key]))
            if self._depth == 0:
                self._flush_pending()

    def _may_expire(self) -> bool:
        return not self.loading and not self.paused

    def expire_cycle(self, limit: int = 20) -> int:
        """Remove keys whose time has come, some of each database; called from time to time by whoever owns a timer."""
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
        """Tell a keyspace event on its channels, if its class is wanted (notify.c: notifyKeyspaceEvent)."""
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
        """Assert the invariants of every database, of the channels and of the waiting clients."""
        self.channels.check()
        for database in self.databases:
            database.check()
            for key, waiting in database.blocking_keys.items():
                for blocked in waiting:
                    assert blocked.session.blocked is blocked and key in blocked.keys


def _may_write(session: Session, entry: Command) -> bool:
    """Whether the command is refused while changes cannot be logged; PING is, so that monitoring sees it."""
    if entry.fullname == "exec":
        return any(queued.write for queued, _ in session.queue)
    return entry.write or entry.fullname == "ping"


def _may_replicate(session: Session, entry: Command) -> bool:
    """Whether a pause of the writers holds the command back (server.c: is_may_replicate_command)."""
    if entry.name == "exec":
        return any(_may_replicate(session, queued) for queued, _ in session.queue)
    return entry.write or "may_replicate" in entry.flags


def _never_served(_session: Session, _key: bytes) -> bool:
    """A postponed command waits for no key."""
    return False


def _never_expires(_session: Session) -> None:
    """A postponed command has no time-out."""


def _text(raw: bytes) -> str:
    """Return a client's bytes as an error line shows them: as C's %s does, up to the first NUL."""
    return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _unknown_command(argv: list[bytes]) -> str:
    """Return the text of server.c for a command that does not exist: its name and first arguments, cut at 128 bytes."""
    arguments = b""
    for word in argv[1:]:
        if len(arguments) >= 128:
            break
        arguments += b"'" + word.split(b"\0", 1)[0][: 128 - len(arguments)] + b"' "
    return f"unknown command '{_text(argv[0][:128])}', with args beginning with: {_text(arguments)}"


__all__ = ["PAUSE_ALL", "PAUSE_OFF", "PAUSE_WRITES", "Engine", "Log"]
