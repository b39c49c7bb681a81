"""The engine: the only way to run a command, for every frontend.

    argv -> execute      look up the command; runtime/admission.py checks, queues or refuses it if anything is unusual
         -> call         handler(session, argv), which writes the reply to session.out
         -> propagation  count the changes and log them (runtime/propagation.py)
         -> blocking     serve the clients that wait for keys that became ready (runtime/blocking.py)

The engine opens no socket, file or thread: see runtime/host.py. A frontend (the server, the store) calls `execute`
for one command or `drain` for a buffer of them. It calls `before_reply` before any byte of a reply leaves the process:
under `appendfsync always` an acknowledged change is on disk.

The engine is not safe to use from two threads at once: the store holds a lock around it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from os import urandom
from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: run interpreted
    from rillet import _cython as cython

from rillet.errors import Busy, CommandError, ProtocolError
from rillet.keyspace.clock import Clock
from rillet.keyspace.database import Database
from rillet.keyspace.defrag import IDLE, ActiveDefrag
from rillet.keyspace.eviction import FAIL, OK, Eviction
from rillet.keyspace.expire_cycle import SLICE, ExpireCycle
from rillet.keyspace.lazyfree import LazyFree
from rillet.keyspace.lru import LFU, LRM, LRU, AccessClock
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.protocol.command_parser import CommandParser, QueryBufferExceeded
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime import session_state
from rillet.runtime.acl.control import AccessControl
from rillet.runtime.admission import admit
from rillet.runtime.blocking import Blocking
from rillet.runtime.channels import Channels
from rillet.runtime.command_log import CommandLog, request_size
from rillet.runtime.command_queue import CommandQueue
from rillet.runtime.field_expiry import FIELDS_AT_ONCE, expire_fields
from rillet.runtime.host import DefaultHost, Host
from rillet.runtime.hotkeys import record as record_hot_keys
from rillet.runtime.implementation import Implementation
from rillet.runtime.keyspace_events import CLASS, MISS, NEW, OVERWRITTEN, TYPE_CHANGED, channels_of
from rillet.runtime.latency import LatencyMonitor
from rillet.runtime.memory import MemoryFigures
from rillet.runtime.monitors import SCRIPTS, Monitors
from rillet.runtime.pause import PAUSE_OFF, PausedClients
from rillet.runtime.propagation import Propagation
from rillet.runtime.registry import TABLE, Command, load_commands
from rillet.runtime.replication import FAILOVER_IN_PROGRESS, ReplicationState
from rillet.runtime.session import Session
from rillet.runtime.settings import Settings
from rillet.runtime.statistics import CommandCounters, Statistics
from rillet.runtime.tracking import Tracking
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal
from rillet.types.compat import EMBEDS_UP_TO_128
from rillet.types.stream.value import Stream

_IMPORT_SOURCE = cython.declare(cython.int, session_state.IMPORT_SOURCE)
_SPECIAL = cython.declare(cython.int, session_state.SPECIAL)
_SILENT = cython.declare(cython.int, session_state.MUTED | session_state.REPLY_SKIP_NEXT)
_RESTRICTED = cython.declare(cython.int, session_state.RESTRICTED)
_PAUSED = cython.declare(cython.int, session_state.PAUSED)
_REFUSING = cython.declare(cython.int, session_state.REFUSING)
_BUSY = cython.declare(cython.int, session_state.BUSY)
_LOADING = cython.declare(cython.int, session_state.LOADING)
_FOLLOWS = cython.declare(cython.int, session_state.FOLLOWS)
_FULL = cython.declare(cython.int, session_state.FULL)
_FOR_CLIENTS = cython.declare(cython.int, session_state.FOR_CLIENTS)
_REPLY_SKIP_NEXT = cython.declare(cython.int, session_state.REPLY_SKIP_NEXT)
_UNAUTHENTICATED = cython.declare(cython.int, session_state.UNAUTHENTICATED)
_CLOSING = cython.declare(cython.int, session_state.CLOSING)
_TRUSTED = cython.declare(cython.int, session_state.TRUSTED)
# A session with TRUSTED and without MASTER repeats a log: its changes are not logged.
_FROM_OTHERS = cython.declare(cython.int, session_state.TRUSTED | session_state.MASTER)
_RUNNING = cython.declare(cython.int, session_state.RUNNING)
_NO_TOUCH = cython.declare(cython.int, session_state.NO_TOUCH)

_MAX_CACHED_NAMES = 4096
PEAK_RESET_MS = 5000  # server.h: REPLY_BUFFER_DEFAULT_PEAK_RESET_TIME
# Replies to a replayed log have no reader: the output is emptied after this many bytes.
_REPLAY_BATCH = cython.declare(cython.Py_ssize_t, 1 << 15)
# Entries of each database in which a call of `rehash` looks for values that can rest.
_SWEPT = cython.declare(cython.Py_ssize_t, 1024)
# Milliseconds between two searches for expired producers of idempotent messages.
_IDMP_PERIOD = 1000
# Values that wait to be measured before a command settles the ledger (keyspace/memory_usage.py).
_WAITING = cython.declare(cython.Py_ssize_t, 32)
# Bytes of replies to consecutive calls after which `maxmemory` is compared again: 16 replies of SET.
_UNCHECKED = cython.declare(cython.Py_ssize_t, 80)
_NO_STOP = cython.declare(cython.Py_ssize_t, 2**62)
_MINUS = cython.declare(cython.int, 45)
# Limits of the command log: nothing is logged; and the one below which each call is timed (ns).
_NEVER = cython.declare(cython.longlong, 2**62)
_FINEST_TIME = cython.declare(cython.longlong, 1_000_000)
# Bytes of consecutive calls after which their time, and the data with `maxmemory`, is compared with the limit.
_TIMED_INPUT = cython.declare(cython.Py_ssize_t, 4096)
# While more than one part in so many of `maxmemory` waits to be freed, each run of the eviction frees some of it.
_PENDING_SHARE = cython.declare(cython.Py_ssize_t, 8)


@cython.final
@cython.cclass
class Engine:
    """Databases, settings, sessions and statistics of one server or store."""

    __slots__ = (
        "databases", "settings", "clock", "propagation", "blocking", "sessions", "statistics", "preserved",
        "_notify_events", "on_keyspace_event", "started_ms", "next_session_id", "host", "active_expire",
        "allow_access_expired",
        "run_id", "replication", "mstime", "channels", "conditions", "_by_name", "_last_entry",
        "_buffer", "_paused_clients", "_since", "_idmp_expired", "_implementations", "_renamed", "_spans", "_paused", "failed_at", "ran", "_refusal",
        "defrag", "expiry", "access", "lazyfree", "eviction", "limited", "memory", "modules",
        "keeps_expired", "importing", "_sees_expired", "_writes",
        "command_log", "latency", "slow_ns", "large", "tracks_latency", "hotkeys", "monitored_ns",
        "acl", "scripts", "tracking", "monitors", "observed", "peak_reset_ms", "shrinks_buffers",
        "applying", "writing",
    )  # fmt: skip
    sessions: dict[int, Session]
    _by_name: dict[bytes, Command]
    _last_entry: Command | None
    _implementations: list[Any]
    _spans: list[ArgumentSpans]
    _renamed: dict[bytes, Command | None]

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None) -> None:
        load_commands()
        self.conditions = 0
        self.settings = settings or Settings()
        self.clock = clock or Clock()
        self.statistics = Statistics()
        self.command_log = CommandLog(self)
        self.latency = LatencyMonitor(self.settings, self.clock)
        # The session of HOTKEYS, or None.
        self.hotkeys: Any = None
        # A command that takes so many nanoseconds, or whose request or reply has so many bytes, is unusual.
        self.slow_ns = self.large = 2**62
        # Nanoseconds from which the latency monitor records an event; 2**62 while it is off.
        self.monitored_ns = 2**62
        # Whether each command's times are counted in a histogram.
        self.tracks_latency = True
        self.propagation = Propagation(self.settings, self.clock)
        self.blocking = Blocking(self.clock, self.statistics, self.propagation)
        self.databases = [Database(index, self.clock) for index in range(self.settings.databases)]
        self.access = AccessClock(self.clock)
        self.lazyfree = LazyFree(self.clock)
        self._buffer = RestBuffer()
        for database in self.databases:
            database.access = self.access
            database.buffer = self._buffer
            database.lazy = self.lazyfree
            database.on_expired = self._expired
            database.on_ready = self.blocking.database_ready
            database.may_expire = self._may_expire
            database.may_delete = self._may_delete
        self.eviction = Eviction(self.databases, self.clock, self.access, self._evicted, self._trimmed)
        for database in self.databases:
            database.limit_growth(self.eviction)
        # Whether `maxmemory` is set.
        self.limited = False
        # While a command runs that must not delete expired keys, though they are missing for it.
        self.keeps_expired = False
        # Valkey's import-mode; and while a command runs in it, whether its client sees expired keys, and whether it
        # writes.
        self.importing = False
        self._sees_expired = False
        self._writes = False
        self.memory = MemoryFigures(self)
        self.defrag = ActiveDefrag(self.databases, self.settings, self.clock, self._changes)
        self.channels = Channels()
        self.tracking = Tracking(self)
        self.monitors = Monitors(self)
        # Whether a client tracks keys or watches commands, or import-mode is on: then no command takes its fast path.
        self.observed = False
        # DEBUG REPLYBUFFER: after how many ms the recent size of a client's replies is measured anew (-1: never), and
        # whether the periodic job shrinks output buffers.
        self.peak_reset_ms = PEAK_RESET_MS
        self.shrinks_buffers = True
        self.sessions = {}
        self.host: Host = DefaultHost(self)
        # Data of an RDB file that rillet cannot interpret, kept for the next file (persistence.rdb.reader).
        self.preserved: Any = None
        self._refusal: str | None = None
        # The loaded modules (rillet.modules.manager.Modules), or None before the first one is loaded.
        self.modules: Any = None
        self.acl: Any = None
        # The Lua scripts (rillet.scripting.scripts.Scripts), or None before the first one.
        self.scripts: Any = None
        self._notify_events = False
        self.on_keyspace_event: Callable[[Database, bytes, bytes, bytes], None] | None = None
        # While the engine follows a master. `applying`: a command of the master runs, for which no key has expired.
        # `writing`: a client's command writes to a writable replica.
        self.applying = False
        self.writing = False
        self._paused = PAUSE_OFF
        self._paused_clients = PausedClients(self)
        # Cached time in milliseconds; may lag by one interval of the server's timer.
        self.mstime = 0
        self.active_expire = True
        # Commands see expired keys and fields, which stay (DEBUG SET-ALLOW-ACCESS-EXPIRED).
        self.allow_access_expired = False
        self.run_id = urandom(20).hex()
        self.replication = ReplicationState()
        self.started_ms = self.clock.now_ms()
        self.next_session_id = 1
        self._by_name = {}
        # The last command: clients repeat a command, and comparing a name costs less than hashing it.
        self._last_entry = None
        self._idmp_expired = 0
        self.expiry = ExpireCycle(self._expired_batch)
        self.expiry.fields = self._expire_fields
        # Where the reply begins to the last command that failed.
        self.failed_at = -1
        # The calls that the last run of a command has begun.
        self.ran = 0
        # Argument spans that no call uses.
        self._spans = []
        # By Command.index, None before the first call.
        self._implementations = []
        # The commands under other names; None: the name is removed.
        self._renamed = {}
        # The time (in ticks) at which the last command of a batch ended; 0 outside of a batch. It is also the start of
        # the next command: a batch reads the clock once per command, and parsing counts as part of the command.
        self._since = 0
        self.take_settings()
        self.acl = AccessControl(self)

    @property
    def log(self) -> Any:
        """The destination of changes (runtime.propagation.Log), or None."""
        return self.propagation.log

    @log.setter
    def log(self, log: Any) -> None:
        self.propagation.set_log(log)

    @property
    def aof(self) -> Any:
        """The append-only log, or None; `log` may also be the log of the replication stream."""
        return self.propagation.aof

    @property
    def dirty(self) -> int:
        """The number of changes since the last save (server.dirty)."""
        return self.propagation.dirty

    @dirty.setter
    def dirty(self, count: int) -> None:
        self.propagation.dirty = count

    # -- conditions (runtime/session_state.py) -------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _when(self, condition: cython.int, holds: cython.bint) -> cython.bint:
        self.conditions = (self.conditions | condition) if holds else (self.conditions & ~condition)
        return True

    @property
    def loading(self) -> bool:
        """True while a file is loaded."""
        return self.conditions & _LOADING != 0

    @loading.setter
    def loading(self, holds: bool) -> None:
        self._when(_LOADING, holds)

    @property
    def follows(self) -> bool:
        """True while the engine follows a master: expired keys wait for its deletions (runtime/replica.py)."""
        return self.conditions & _FOLLOWS != 0

    @follows.setter
    def follows(self, holds: bool) -> None:
        self._when(_FOLLOWS, holds)

    @property
    def busy(self) -> bool:
        """True while a script runs for longer than busy-reply-threshold: commands of other clients are refused."""
        return self.conditions & _BUSY != 0

    @busy.setter
    def busy(self, holds: bool) -> None:
        self._when(_BUSY, holds)

    @property
    def out_of_memory(self) -> bool:
        """True if the last run of the eviction could not make room."""
        return self.conditions & _FULL != 0

    @property
    def paused(self) -> int:
        """The commands that CLIENT PAUSE holds back: none, writes or all (the constants in runtime/pause.py)."""
        return self._paused

    @paused.setter
    def paused(self, kind: int) -> None:
        self._paused = kind
        self._when(_PAUSED, kind != PAUSE_OFF)

    @property
    def notify_events(self) -> bool:
        """True while keyspace events are published."""
        return self._notify_events

    @notify_events.setter
    def notify_events(self, wanted: bool) -> None:
        self._notify_events = wanted
        for database in self.databases:
            database.notifies = wanted

    @property
    def refusal(self) -> str | None:
        """The error reply for writes while they are refused, else None (persistence.write_gate)."""
        return self._refusal

    @refusal.setter
    def refusal(self, reason: str | None) -> None:
        self._refusal = reason
        self._when(_REFUSING, reason is not None)

    # -- sessions ------------------------------------------------------------------------------------

    def session(self, *, trusted: bool = False) -> Session:
        """Return a new session on database 0; a trusted session needs no password and replays a log."""
        session = Session(self, self.databases[0], self.next_session_id)
        self.next_session_id += 1
        session.created_ms = session.last_ms = self.clock.now_ms()
        if trusted:
            session.enter("trust")
        else:
            self.acl.begin(session)
        self.sessions[session.id] = session
        return session

    def close_session(self, session: Session) -> None:
        """Remove the session with its watches, subscriptions and blocking. O(watched keys + subscriptions)"""
        if session.watcher.keys:
            session.unwatch()
        if session.subscriptions is not None or session.pushes is not None:
            self.channels.forget(session)
        if self.observed or session.tracking is not None:
            self.monitors.forget(session)
            self.tracking.forget(session)
        blocked = session.blocked
        if blocked is not None:
            self.blocking.unblock(session)
            if blocked.on_disconnect is not None:
                blocked.on_disconnect()
        self.sessions.pop(session.id, None)

    # -- running commands ----------------------------------------------------------------------------

    # A call of a command, from its bytes to its effects:
    #
    #     execute, drain, run_next, call   find the command; admit it, if anything is unusual
    #     _run                             run it, and the calls of the same command that follow it
    #     _begin, _end                     what clients see who track keys or watch commands; import-mode
    #     _account                         count and time the calls; log those that took long

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def execute(self, session: Session, argv: list[bytes]) -> cython.bint:
        """Run one command, which replies in session.out; return False if the session blocked instead."""
        words: ArgumentSpans = self.take_spans()
        words.take(argv, 0, len(argv))
        try:
            self._admit_and_run(session, self.command_of(words), words, None, -1)
        finally:
            self.give_spans(words)
        return session.blocked is None

    @cython.ccall
    def take_spans(self) -> ArgumentSpans:
        """Return argument spans for the words of one call, which `give_spans` gives back."""
        spare: list[ArgumentSpans] = self._spans
        return spare.pop() if spare else ArgumentSpans()

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def give_spans(self, words: ArgumentSpans) -> cython.bint:
        """Keep argument spans for another call."""
        words.begin(False)
        self._spans.append(words)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _admit_and_run(
        self, session: Session, entry: Command | None, words: ArgumentSpans, parser: CommandParser | None,
        limit: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Run a command of a client if it is admitted, and calls that follow it; return whether `words` has the next.

        A parser is after the command already.
        """
        flags: cython.int = self._flags(session)
        if flags & _SILENT:
            return self._run_silently(session, entry, words, flags)
        if (entry is None or flags or not entry.accepts(words.count)
                or (entry.subcommands is not None and words.count > 1)):  # fmt: skip
            if not admit(self, session, entry, words, flags):
                if session.blocked is None and session.tracking is not None:
                    self.tracking.command_ended(session, entry)
                return False
            limit = -1
        assert entry is not None
        located: cython.bint = self._run(session, entry, words, parser, limit)
        if session.pushes is not None:
            session.flush_pushes()
        if self.blocking.ready and not self.busy:
            self.blocking.serve_ready()
            if self._since:
                self._since = self.clock.ticks()
        return located

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _flags(self, session: Session) -> cython.int:
        """Return the flags of a session that are special, and the conditions of the engine that concern it."""
        if session.state & _TRUSTED:
            return (session.state & _SPECIAL) | (self.conditions & ~_FOR_CLIENTS)
        if self.limited or self.observed:
            self._make_rooms(session)
            if self._since:
                self._since = self.clock.ticks()  # the eviction is not a part of the command
        return (session.state & _SPECIAL) | self.conditions

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _make_rooms(self, session: Session) -> cython.bint:
        """Evict keys above `maxmemory`, and tracked keys above `tracking-table-max-keys`, before a command runs."""
        tracking: Tracking = self.tracking
        if not self.limited and not tracking.limit:
            return True
        tracking.current = session
        try:
            if self.limited:
                self.make_room()
            if self.observed:
                tracking.make_room()
        finally:
            tracking.current = None
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _run_silently(
        self, session: Session, entry: Command | None, words: ArgumentSpans, flags: cython.int
    ) -> cython.bint:
        """Run a command whose reply is dropped (CLIENT REPLY OFF and SKIP); return False."""
        if self.conditions & _PAUSED and self.postpone(session, entry, words.to_list()):
            return False
        mark: cython.Py_ssize_t = session.out.mark()
        if session.state & _REPLY_SKIP_NEXT:
            session.enter("skipped call starts")
        if admit(self, session, entry, words, flags):
            assert entry is not None
            self._run(session, entry, words, None, -1)
        if session.blocked is None:
            session.mute(mark)
        if session.pushes is not None:
            session.flush_pushes()
        if self.blocking.ready and not self.busy:
            self.blocking.serve_ready()
        return False

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def call(self, session: Session, entry: Command, argv: list[bytes]) -> cython.bint:
        """Run an admitted command, and act on its effects."""
        words: ArgumentSpans = self.take_spans()
        words.take(argv, 0, len(argv))
        try:
            self._run(session, entry, words, None, -1)
        finally:
            self.give_spans(words)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def call_spans(self, session: Session, entry: Command, words: ArgumentSpans) -> cython.bint:
        """Do `call` for arguments that are spans."""
        self._run(session, entry, words, None, -1)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _run(
        self, session: Session, entry: Command, words: ArgumentSpans, parser: CommandParser | None,
        limit: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Run a call and act on its effects; then the calls of the same command that follow it in the parser.

        Stop after `limit` bytes of replies, or when anything else has to be done. Return whether `words` has the next
        command of the parser, which is before it.
        """
        implementation: Implementation = self._implementation(entry)
        propagation: Propagation = self.propagation
        access: AccessClock = self.access
        out: ReplyWriter = session.out
        feed: PropagationBuffer | None = None
        start: cython.Py_ssize_t = 0
        mark: cython.Py_ssize_t = out.mark()
        ran: cython.longlong = 0
        failed: cython.longlong = 0
        located: cython.bint = False
        outer: cython.int = session.state & _RUNNING
        observed: cython.bint = self.observed
        measured: cython.bint = self.large < _NEVER or self.slow_ns < _FINEST_TIME
        if (parser is None or not implementation.on_spans or measured or not words.received or self._renamed
                or (observed and (self.monitors.sessions or session.tracking is not None))):  # fmt: skip
            limit = -1
        elif self.slow_ns < _NEVER or self.limited:
            start = parser.began
            parser.scan_stop = start + _TIMED_INPUT
            if self.limited and entry.write:
                limit = min(limit, out.used + _UNCHECKED - 1)
        if measured or (observed and self.monitors.sessions):
            words.to_list()  # as the client sent them
        session.state |= _RUNNING
        session.command = entry
        session.logged = propagation.log is not None and session.state & _FROM_OTHERS != _TRUSTED
        if session.logged and entry.write:
            feed = propagation.feed
        if not outer and len(session.db.ledger.waiting) > _WAITING:
            session.db.ledger.settle()
        began: cython.longlong = self._since or self.clock.ticks()
        if began >= access.due:
            access.update()
        untouched: cython.bint = access.untouched
        if session.state & _NO_TOUCH:
            access.untouched = entry.fullname != "touch"
            access.choose_stamp()
        tracking: Tracking = self.tracking
        writer: object = tracking.writer
        outermost: cython.bint = False
        sees: cython.bint = self._sees_expired
        writes: cython.bint = self._writes
        if observed:
            outermost = self._begin(session, entry, words)
        try:
            while True:
                session.dirty = 0
                session.propagated = None
                if feed is not None:
                    feed.reserve_spans(words)  # a change that cannot be logged must not begin
                propagation.depth += 1
                session.commands += 1
                ran += 1
                try:
                    implementation.run(session, words)
                except CommandError as error:
                    failed += 1
                    limit = -1
                    self.failed_at = mark
                    session.reply_error(mark, error)
                finally:
                    propagation.depth -= 1
                    # Log changes also after KeyboardInterrupt or MemoryError: the data may already have changed.
                    if session.dirty or session.propagated is not None:
                        propagation.take_effects(session, words)
                    if propagation.pending and propagation.depth == 0:
                        self._flush(entry)
                if out.used > limit or session.db.ready_keys or session.pushes is not None:
                    break
                if parser.scan(words) == 0:
                    break
                if not words.is_option(0, entry.word) or not entry.accepts(words.count):
                    located = True
                    break
                parser.step()
                mark = out.mark()
        finally:
            self.ran = ran
            if not outer:
                session.state &= ~_RUNNING
            if access.untouched != untouched:
                access.untouched = untouched
                access.choose_stamp()
            ended: cython.longlong = self.clock.ticks()
            if self._since:
                self._since = ended
            self.statistics.commands_processed += ran
            counters: CommandCounters = self.statistics.of(entry)
            counters.failed += failed
            if session.blocked is None:
                if ran > 0:
                    counters.count(ended - began, ran, self.tracks_latency)
            else:
                self._begin_wait(session, entry, ended - began)
            if observed:
                tracking.writer = writer
                self._sees_expired = sees
                self._writes = writes
                self._end(session, entry, words, outermost)
        if ended - began >= self.slow_ns or self.large < _NEVER:
            if start:
                self._look_at_chunk(session, entry, parser.data[start : parser.pos], ended - began)
            else:
                self._look_at(session, entry, words.sent(), ended - began, out.mark() - mark)
        if propagation.depth == 0:  # no command holds a value that it may still change
            database: Database = session.db
            if database.created or len(database.awake) - database._first_awake > database.awake_limit:
                database.rest_oldest()
        return located

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _flush(self, entry: Command) -> cython.bint:
        """Log what an outermost command and those that it called have changed."""
        if len(self.propagation.pending) > 1 and "touches_arbitrary_keys" in entry.flags:
            return self.propagation.flush_each()
        return self.propagation.flush_pending()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _begin(self, session: Session, entry: Command, words: ArgumentSpans) -> cython.bint:
        """Begin a command while clients watch commands (MONITOR) or cache keys (CLIENT TRACKING), or in import-mode.

        Return whether no other command runs.
        """
        tracking: Tracking = self.tracking
        outermost: cython.bint = tracking.current is None
        if outermost:
            tracking.current = session
        tracking.writer = session
        if self.importing:
            current: Session = tracking.current
            self._sees_expired = current.state & _IMPORT_SOURCE != 0
            self._writes = entry.write
        if self.monitors.sessions:
            self.monitors.feed_script(session, entry, words.to_list())
        return outermost

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _end(self, session: Session, entry: Command, words: ArgumentSpans, outermost: cython.bint) -> cython.bint:
        """End what `_begin` has begun: show the command, remember the keys that it read, send invalidations."""
        tracking: Tracking = self.tracking
        current: Session = tracking.current
        if self.monitors.sessions:
            self.monitors.feed(session, entry, words.sent(), current)
        # Of a script that only reads, the commands count, and not the script itself (server.c: call).
        if current.tracking is not None and "readonly" in entry.flags and entry.fullname not in SCRIPTS:
            self._remember(current, session, entry, words.sent())
        if outermost:
            tracking.command_ended(current, entry)
            tracking.current = None
            tracking.schedule()
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _remember(self, current: Session, session: Session, entry: Command, argv: list[bytes]) -> cython.bint:
        """Record the keys that a command has read; up to 7.0, all keys of the script that called it."""
        if session is not current and not self.settings.compat.knows(72):
            entry, argv = current.command, current.argv
        return self.tracking.remember(current, entry, argv)

    def observe(self) -> None:
        """Update `observed` after a client began or ended to track keys or to watch commands, or after import-mode."""
        in_use = self.tracking.in_use
        self.observed = in_use or bool(self.monitors.sessions) or self.importing
        for database in self.databases:
            database.tracking = self.tracking if in_use else None

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def run_queue(self, session: Session, queue: CommandQueue) -> cython.bint:
        """Run every queued command once; an interrupt (KeyboardInterrupt ...) is raised after the last one.

        A store runs transactions only where nothing can interrupt them: in the engine's thread or, if it is compiled,
        as steady commands (rillet.store.transports.shield). Where that does not hold, each command still runs at most
        once: it is repeated only if it has not begun, because it may have changed data before it counted the change.
        """
        parser: CommandParser = queue.parser()
        words: ArgumentSpans = self.take_spans()
        entries: list[Command] = queue.entries
        at: cython.Py_ssize_t = 0
        repeated: cython.Py_ssize_t = -1
        mark: cython.Py_ssize_t = 0
        located: cython.bint = False
        interrupt: BaseException | None = None
        while at < len(entries):
            try:
                while at < len(entries):
                    self.ran = 0
                    mark = session.out.mark()
                    parser.scan_stop = _NO_STOP
                    if located or parser.scan(words):
                        parser.step()
                    else:
                        argv: list[bytes] = parser.next()
                        words.take(argv, 0, len(argv))
                    entry: Command = entries[at]
                    denied: object = None
                    located = False
                    if session.state & _RESTRICTED:
                        denied = self.acl.exec_error(session, entry, words.to_list())
                    if denied is None:
                        located = self._run(
                            session, entry, words, parser, -1 if session.state & _RESTRICTED else _NO_STOP
                        )
                        at += self.ran
                    else:
                        session.reply_error(mark, denied)
                        at += 1
            except BaseException as error:
                interrupt = error
                if self.ran == 0 and repeated != at:
                    session.out.truncate(mark)
                    repeated = at
                else:
                    at += max(self.ran, 1)
                located = False
                parser = queue.parser()
                for _ in range(at):
                    parser.next()
        self.give_spans(words)
        if interrupt is not None:
            raise interrupt
        return True

    def _look_at(self, session: Any, entry: Any, argv: list[bytes], nanoseconds: int, reply: int) -> None:
        """Log a call that took long or that has a large request or reply; one that blocks is logged when it ends."""
        request = 0
        if session.trusted:
            return
        if self.large < _NEVER or self.hotkeys is not None:
            request = request_size(argv)
            if nanoseconds < self.slow_ns and max(request, reply) < self.large:
                return
        if self.hotkeys is not None and self.hotkeys.active:
            record_hot_keys(self.hotkeys, self.clock.now_ms(), entry, argv, nanoseconds // 1000, request + reply)
        if nanoseconds >= self.slow_ns:
            self.latency.add(b"fast-command" if "fast" in entry.flags else b"command", nanoseconds)
        if session.blocked is None:
            self.command_log.record(session, entry, argv, nanoseconds // 1000, request, reply)

    def _begin_wait(self, session: Any, entry: Any, nanoseconds: int) -> None:
        """Keep the time of a call that blocks its client; Redis before 7.2 counts the call now."""
        session.blocked.spent = nanoseconds
        if not self.settings.compat.knows(72):
            counters = self.statistics.of(entry)
            counters.calls += 1
            counters.nanoseconds += nanoseconds

    def end_wait(self, session: Any, blocked: Any, nanoseconds: int, served: bool) -> None:
        """Count and log a call whose client was blocked and has its reply now (blocked.c: updateStatsOnUnblock)."""
        entry = session.command
        if blocked.postponed or entry is None:
            return
        newer = self.settings.compat.knows(72)
        if not newer and not served:
            return  # a timeout
        total = blocked.spent + nanoseconds
        counters = self.statistics.of(entry)
        counters.nanoseconds += total if newer else nanoseconds
        counters.calls += newer
        counters.track(total, self.tracks_latency)
        if total >= self.slow_ns and not session.trusted:
            self.latency.add(b"command-unblocking", nanoseconds)
            self.command_log.record(session, entry, blocked.argv, total // 1000, 0, 0)

    def before_reply(self) -> None:
        """Make the log as durable as the settings require; call this before replies leave the process."""
        log = self.propagation.log
        if log is not None:
            log.flush()

    # -- running a buffer of commands ----------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def drain(self, session: Session, parser: CommandParser, limit: cython.Py_ssize_t) -> cython.bint:
        """Run the complete commands in the parser; return True if the caller must send the replies and call again.

        Stop when the session blocks or closes, when the parser needs more bytes, or after `limit` bytes of replies.
        After a protocol error, Redis's error text is the last reply, and the session is closed.
        """
        statistics: Statistics = self.statistics
        ran: cython.longlong = statistics.commands_processed
        began: cython.longlong = self.clock.ticks()
        self._since = began
        try:
            return self._drain(session, parser, limit)
        finally:
            ran = statistics.commands_processed - ran
            if ran != 0:
                statistics.count_turn(max(ran, 1), self._since - began)
            self._since = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _drain(self, session: Session, parser: CommandParser, limit: cython.Py_ssize_t) -> cython.bint:
        words: ArgumentSpans = self.take_spans()
        argv: list[bytes] | None
        located: cython.bint = False
        while session.blocked is None and not session.state & _CLOSING:
            if session.out.used > limit:
                self.give_spans(words)
                return True
            parser.authenticated = session.state & _UNAUTHENTICATED == 0
            parser.scan_stop = _NO_STOP
            if located or parser.scan(words):
                parser.step()
            else:
                argv = self._next(session, parser)
                if argv is None:
                    break
                if not argv:
                    continue
                words.take(argv, 0, len(argv))
            located = self._admit_and_run(session, self.command_of(words), words, parser, limit)
        self.give_spans(words)
        return False

    @cython.cfunc
    def _next(self, session: Session, parser: CommandParser) -> list[bytes] | None:
        """Return the next command in any form, [] if it is empty, None if there is none; reply to a protocol error."""
        try:
            return parser.next()
        except ProtocolError as error:
            # A full query buffer closes the connection without an error reply (readQueryFromClient).
            if isinstance(error, QueryBufferExceeded):
                self.statistics.input_limit_hits += 1
            else:
                session.out.error(f"ERR {error}".encode("utf-8", "surrogateescape"))
            session.enter("close")
            return None

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def run_next(
        self, session: Session, parser: CommandParser, words: ArgumentSpans, apart: tuple[bytes, ...]
    ) -> cython.longlong:
        """Run the next command of a log or a master, and the calls of the same command that follow it.

        The replies stay in session.out. If one is an error, it is the last one, at `failed_at`, and `words` has the
        command. Return the number of commands; 0 if the next one is in an unusual form, or one of those in `apart`,
        which are lower-case names.
        """
        self.failed_at = -1
        self.ran = 0
        if parser.scan(words) == 0:
            return 0
        for name in apart:
            if words.is_option(0, name):
                return 0
        parser.step()
        self._since = self.clock.ticks()
        try:
            self._admit_and_run(session, self.command_of(words), words, parser, _REPLAY_BATCH)
        finally:
            self._since = 0
        ran: cython.longlong = max(self.ran, 1)
        if ran == 1 and session.out.used and session.out.buf[0] == _MINUS:
            self.failed_at = 0
        return ran

    def _look_at_chunk(self, session: Any, entry: Any, received: bytes, nanoseconds: int) -> None:
        """Log the longest of the calls in a chunk that took long: one of them took nearly all of the time."""
        parser = CommandParser()
        parser.feed(received)
        longest: list[bytes] = []
        while argv := parser.next():
            if sum(map(len, argv)) > sum(map(len, longest)):
                longest = argv
        if longest:
            self._look_at(session, entry, longest, nanoseconds, 0)

    # -- looking up commands -------------------------------------------------------------------------

    @cython.ccall
    def command_of(self, words: ArgumentSpans) -> Command | None:
        """Return the command or subcommand that the words call, the container if the subcommand is unknown, or None."""
        entry: Command | None = self._last_entry
        if entry is None or not words.is_option(0, entry.word):  # clients repeat a command
            name: bytes = words.get(0)
            entry = self._by_name.get(name)
            self._last_entry = entry if entry is not None and words.is_option(0, entry.word) else None
            if entry is None:
                entry = self._find(name)
        if entry is not None and entry.subcommands is not None and words.count > 1:
            return self._find_subcommand(entry, words.get(1))
        return entry

    @cython.cfunc
    def _implementation(self, entry: Command) -> Implementation:
        """Return the implementation of a command for this engine."""
        known: list[Any] = self._implementations
        if 0 <= entry.index < len(known) and known[entry.index] is not None:
            return known[entry.index]
        found: Implementation = entry.implementation()
        if entry.index >= 0 and not entry.module:
            known += [None] * (entry.index + 1 - len(known))
            known[entry.index] = found
        return found

    @cython.ccall
    def lookup(self, argv: list[bytes]) -> Command | None:
        """Return the command or subcommand that the words call, the container if the subcommand is unknown, or None."""
        entry: Command | None = self._by_name.get(argv[0])
        if entry is None:
            entry = self._find(argv[0])
        if entry is not None and entry.subcommands is not None and len(argv) > 1:
            return self._find_subcommand(entry, argv[1])
        return entry

    @cython.cfunc
    def _find(self, name: bytes) -> Command | None:
        entry = TABLE.by_name.get(name.lower())
        if self._renamed and not (self.loading and entry is not None):
            # A log contains commands that were rewritten with their own names.
            entry = self._renamed.get(name.lower(), entry)
        if entry is None and self.modules is not None:
            entry = self.modules.commands.get(name.lower())
        if entry is None:
            return None
        if not entry.known_to(self.settings.compat):
            return entry if self.loading else None  # a log may contain commands that the current `compat` lacks
        if len(self._by_name) < _MAX_CACHED_NAMES and not (self._renamed and self.loading):
            self._by_name[name] = entry
        return entry

    def rename_command(self, old: bytes, new: bytes) -> None:
        """Give a command another name, or remove it if that is empty (redis.conf: rename-command); CommandError."""
        old, new = old.lower(), new.lower()
        entry = self._find(old)
        if entry is None:
            raise CommandError("No such command in rename-command")
        if new and self._find(new) is not None:
            raise CommandError("Target command name already exists")
        self._renamed[old] = None
        if new:
            self._renamed[new] = entry
        self._by_name.clear()
        self._last_entry = None

    def narrow(self, narrowing: Any) -> None:
        """Rewrite effects for older replicas from now on (rillet.runtime.older_replicas); None: for none."""
        self.propagation.narrow = narrowing

    @cython.cfunc
    def _find_subcommand(self, entry: Command, name: bytes) -> Command:
        assert entry.subcommands is not None
        subcommand = entry.subcommands.get(name)
        if subcommand is None:
            subcommand = entry.subcommands.get(name.lower())
        if subcommand is None or not (self.loading or subcommand.known_to(self.settings.compat)):
            return entry
        return subcommand

    def take_settings(self) -> None:
        """After a change of settings, update the visible commands and the published keyspace events."""
        self._by_name.clear()
        self._last_entry = None
        if self.acl is not None:
            self.acl.take_settings()
        if self.scripts is not None:
            self.scripts.calls.settled = False  # the next script compares its interpreter with the settings
        self.defrag.take_settings()
        self.slow_ns, self.large = self.command_log.limits()
        threshold = self.settings.latency_monitor_threshold
        self.monitored_ns = threshold * 1_000_000 if threshold else 2**62
        self.eviction.timed = self.monitored_ns < _NEVER
        self.slow_ns = min(self.slow_ns, self.monitored_ns)
        self.tracks_latency = self.settings.latency_tracking
        if self.hotkeys is not None and self.hotkeys.active:
            self.slow_ns = 0  # each command is measured
        self.expiry.on_time = self.settings.compat.knows(82)
        self._buffer.take_limits(self.settings)
        self._take_access_settings()
        self.eviction.take_settings(self.settings)
        self.limited = self.eviction.limit != 0
        self.tracking.limit = self.settings.tracking_table_max_keys
        self.tracking.early = not self.settings.compat.knows(72)
        self._when(_FULL, False)
        self.importing = self.settings.import_mode
        self.observe()
        events = self.settings.notify_keyspace_events
        self.notify_events = events.wanted
        flags: int = events.flags if events.wanted else 0
        if self.modules is not None and self.modules.event_classes:
            self.notify_events = True
            flags |= self.modules.event_classes
        shrinks = self.settings.compat.knows(74) or self.settings.compat.valkey
        for database in self.databases:
            database.resize_as(shrinks)
            database.lazy_server_del = self.settings.lazyfree_lazy_server_del
            database.embeds_expiry = self.settings.compat.embedding == EMBEDS_UP_TO_128
            database.on_missed = self._missed if flags & MISS else None
            database.on_new = self._new if flags & NEW else None
            database.on_overwritten = self._overwritten if flags & (OVERWRITTEN | TYPE_CHANGED) else None

    def postpone(self, session: Session, entry: Command | None, argv: list[bytes]) -> bool:
        """Hold back the command if CLIENT PAUSE applies to it; return whether it was held back."""
        return self._paused_clients.postpone(session, entry, argv)

    def hold_during_failover(self, session: Session, argv: list[bytes]) -> bool:
        """Hold back the command of a client that is sent to the master while that one is not the master yet."""
        if self.replication.failover_state != FAILOVER_IN_PROGRESS or session.transport is None:
            return False
        self._paused_clients.hold(session, argv)
        return True

    def _take_access_settings(self) -> None:
        policy: str = self.settings.maxmemory_policy
        self.access.mode = LFU if policy.endswith("lfu") else LRM if policy.endswith("lrm") else LRU
        self.access.log_factor = self.settings.lfu_log_factor
        self.access.decay_time = self.settings.lfu_decay_time
        self.access.exact = self.settings.compat.valkey
        self.access.choose_stamp()

    def busy_error(self) -> Busy:
        """Return the error for commands while a script runs for too long (server.c: slowscripterr, slowevalerr)."""
        server = "Valkey" if self.settings.compat.valkey else "Redis"
        kind = "FUNCTION" if self.scripts.calls.function else "SCRIPT"
        return Busy(f"{server} is busy running a script. You can only call {kind} KILL or SHUTDOWN NOSAVE.")

    def unpause(self, rest: int = PAUSE_OFF) -> None:
        """Relax a pause to `rest`, and run the commands that are not held back any more."""
        self.paused = rest
        self._paused_clients.resume()

    # -- eviction ------------------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def make_room(self) -> cython.bint:
        """Evict keys if the data is larger than `maxmemory`; return False if there is no room. Timers call this too.

        While clients are paused the data does not change (evict.c: isSafeToPerformEvictions).
        """
        if self.loading or self.paused or (self.follows and self.settings.replica_ignore_maxmemory):
            self._when(_FULL, False)
            self.eviction.running = False
            return True
        began: cython.longlong = self.clock.ticks() if self.monitored_ns < _NEVER else 0
        result: cython.int = self.eviction.run()
        if self.monitored_ns < _NEVER:
            self.latency.add(b"eviction-cycle", self.clock.ticks() - began)
        self._when(_FULL, result == FAIL)
        if result == OK and not self.lazyfree.pending_bytes and not self.blocking.ready:
            return True
        if _PENDING_SHARE * self.lazyfree.pending_bytes > self.eviction.limit:
            self.lazyfree.step()
        if self.blocking.ready:
            self.blocking.serve_ready()
        return not self.out_of_memory

    def _evicted(self, database: Database, key: bytes) -> None:
        """Publish and log an eviction (evict.c: performEvictions)."""
        if self.monitored_ns < _NEVER:
            compat = self.settings.compat
            event = b"evict-del" if compat.knows(80) and not compat.valkey else b"eviction-del"
            self.latency.add(event, self.eviction.deletion_ns)
        database.touch(key, True)
        if self.notify_events:
            self.keyspace_event(database, b"e", b"evicted", key)
        if self.propagation.log is not None:
            self.propagation.add(database.index, [b"UNLINK" if self.eviction.lazy else b"DEL", key])

    def _trimmed(self, database: Database, key: bytes, stream: Stream) -> None:
        """Publish and log that eviction has trimmed a stream, as the exact XTRIM with the same result."""
        database.touch(key, True)
        self.propagation.dirty += 1
        if self.notify_events:
            self.keyspace_event(database, b"t", b"xtrim", key)
        if self.propagation.log is not None:
            self.propagation.add(database.index, [b"XTRIM", key, b"MAXLEN", b"=", decimal(stream.length)])

    def used_memory(self) -> int:
        """Return the bytes in use: data, values that wait to be freed, buffers. O(databases)"""
        return int(self.eviction.counted() + self.lazyfree.pending_bytes)

    # -- expiry --------------------------------------------------------------------------------------

    def _expired(self, database: Database, key: bytes) -> None:
        """Count an expired key, mark its watchers, log the DEL (expire.c: deleteExpiredKeyAndPropagate)."""
        self.statistics.expired_keys += 1
        if self.monitored_ns < _NEVER:
            self.latency.add(b"expire-del", self.clock.ticks() - self.latency.began)
        database.touch(key, True)
        if self.notify_events:
            self.keyspace_event(database, b"x", b"expired", key)
        # The DEL is logged even while writes are refused: the log buffers it until its file can be written again.
        if self.propagation.log is not None and not self.loading:
            name = b"UNLINK" if self.settings.lazyfree_lazy_expire else b"DEL"
            self.propagation.add(database.index, [name, key])

    def _expired_batch(self, database: Database, count: int, keys: list[bytes]) -> None:
        """Do `_expired` for keys that the expiry cycle deleted; `keys` may be empty if there is no log."""
        self.statistics.expired_keys += count
        if self.propagation.log is not None:
            name = b"UNLINK" if self.settings.lazyfree_lazy_expire else b"DEL"
            self.propagation.add_deletions(database.index, name, keys)

    def _expire_fields(self, database: Database, key: bytes, now: int) -> None:
        """Remove some expired fields of a hash, for the expiry cycle."""
        expire_fields(self, database, key, now, FIELDS_AT_ONCE, True)

    def _may_expire(self) -> bool:
        return (not self.loading and not self.applying and not self.allow_access_expired
                and not self._sees_expired)  # fmt: skip

    def _may_delete(self) -> bool:
        # On a replica, the master deletes expired keys; in import-mode, the source does. Another client's write
        # replaces them (expire.c: getExpirationPolicyWithFlags).
        if self.monitored_ns < _NEVER:
            self.latency.began = self.clock.ticks()  # the deletion follows, then `_expired`
        return (not self.paused and not self.keeps_expired and (not self.follows or self.writing)
                and (not self.importing or self._writes))  # fmt: skip

    @property
    def keeps_past(self) -> bool:
        """True if a key with a time in the past is stored, instead of deleted (checkAlreadyExpired)."""
        return self.loading or self.importing

    def expire_cycle(self, slice_ns: int = SLICE) -> int:
        """Begin the slow expiry cycle, or continue it for a slice; return the number of deleted keys.

        While `expiry.unfinished` is true, the caller should continue after other work.
        """
        if self.follows:
            return self._expire_own()
        if self.loading or self.paused or not self.active_expire or self.importing:
            return 0
        effort, hz = self.settings.active_expire_effort, self.settings.hz
        self.expiry.start(len(self.databases), effort, hz, self.clock.ticks())
        removed = self._expire(slice_ns)
        now = self.clock.now_ms()
        if now - self._idmp_expired >= _IDMP_PERIOD:
            self._idmp_expired = now
            for database in self.databases:
                database.expire_idmp(now)
        if self.blocking.ready:
            self.blocking.serve_ready()
        return removed

    def expire_fast(self) -> None:
        """Run the fast expiry cycle if many keys are expired; for the end of a round of commands (beforeSleep)."""
        if self.loading or self.paused or self.follows or not self.active_expire or self.importing:
            return
        effort = self.settings.active_expire_effort
        if self.expiry.start_fast(len(self.databases), effort, self.clock.ticks()):
            self._expire(2**62)
            if self.blocking.ready:
                self.blocking.serve_ready()

    def _expire(self, slice_ns: int) -> int:
        before = self.statistics.expired_keys
        # One by one, each with `_expired`, if somebody receives the events or deletions are measured.
        self.expiry.events = self.notify_events or self.monitored_ns < _NEVER
        self.expiry.names = self.propagation.log is not None
        self.expiry.rehashes = self.settings.activerehashing
        began = self.clock.ticks()
        self.expiry.step(self.databases, self.clock, self.settings.active_expire_effort, slice_ns)
        self.latency.add(b"expire-cycle", self.clock.ticks() - began)
        removed = self.statistics.expired_keys - before
        self.statistics.expired_keys_active += removed
        return removed

    def _expire_own(self) -> int:
        """Delete expired keys that clients of a writable replica have created; its master deletes the others."""
        if self.loading or self.paused or not self.active_expire or not self.replication.own_keys:
            return 0
        removed = 0
        self.writing = True
        try:
            for name in list(self.replication.own_keys):
                database = self.databases[name[0]]
                removed += database.expire_if_needed(name[1])
                if database.get_expire(name[1]) < 0:
                    del self.replication.own_keys[name]
        finally:
            self.writing = False
        if self.blocking.ready:
            self.blocking.serve_ready()
        return removed

    def expire_all(self) -> None:
        """Delete every expired key at once, for clocks that a test moves. O(keys with an expiry)"""
        for database in self.databases:
            now = self.clock.now_ms()
            for key in [key for key, when in database.expiries() if when < now]:
                database.expire_if_needed(key)
            while due := database.subexpires.due(now, 1):
                expire_fields(self, database, due[0], now, sys.maxsize, True)
        if self.blocking.ready:
            self.blocking.serve_ready()

    def rehash(self, microseconds: int) -> None:
        """Shrink and rehash the tables of the keyspace, until the time has passed (server.c: databasesCron)."""
        for database in self.databases:
            database.rest_oldest()
            database.rest_some(_SWEPT)
            database.keys.shrink_if_needed()
            database.expires.shrink_if_needed()
        if not self.settings.activerehashing:
            return
        stop = self._now_us() + microseconds
        for database in self.databases:
            for table in (database.keys, database.expires):
                if table.rehashing and table.rehash_for(stop - self._now_us(), self._now_us):
                    return

    def _now_us(self) -> int:
        return int(self.clock.ticks()) // 1000

    # -- defragmentation -----------------------------------------------------------------------------

    def _changes(self) -> int:
        return int(self.propagation.dirty)

    def defrag_step(self) -> float:
        """Compact values for half a millisecond; return the seconds until the next call. Timers call this."""
        if self.loading or self.paused:
            return IDLE
        began = self.clock.ticks()
        pause = float(self.defrag.run())
        self.latency.add(b"active-defrag-cycle", self.clock.ticks() - began)
        return pause

    # -- keyspace events -----------------------------------------------------------------------------

    def keyspace_event(
        self, database: Database, kind: bytes, event: bytes, key: bytes, subkeys: list[bytes] | None = None
    ) -> None:
        """Publish a keyspace event if the settings name its class (notify.c: notifyKeyspaceEventWithSubkeys)."""
        if self.modules is not None:
            self.modules.keyspace_event(database, kind, event, key)
        if self.on_keyspace_event is not None:
            self.on_keyspace_event(database, kind, event, key)
        flags = self.settings.notify_keyspace_events.flags
        if flags & CLASS[kind] and (self.channels.channels or self.channels.patterns):
            for channel, message in channels_of(flags, database.index, event, key, subkeys):
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
        """Assert the invariants of the databases, channels, sessions and blocked clients. O(data)"""
        self.channels.check()
        self.lazyfree.check()
        self.eviction.check()
        for session in self.sessions.values():
            session.check()
        written = [id(session.out.buf) for session in self.sessions.values() if len(session.out.buf) > 0]
        assert len(set(written)) == len(written), "two sessions write into one buffer"
        self.acl.check_state()
        for database in self.databases:
            database.check()
            for key, waiting in database.blocking_keys.items():
                for blocked in waiting:
                    assert blocked.session.blocked is blocked and key in blocked.keys


__all__ = ["PEAK_RESET_MS", "Engine"]
