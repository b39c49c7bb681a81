"""The engine: the only way to run a command, for every frontend.

    argv -> execute      look up the command; runtime/admission.py checks, queues or refuses it if anything is unusual
         -> call         handler(session, argv), which writes the reply to session.out
         -> propagation  count the changes and log them (runtime/propagation.py)
         -> blocking     serve the clients that wait for keys that became ready (runtime/blocking.py)

The engine opens no socket, file or thread: see runtime/engine_services.py. A frontend (the server, the store) calls
`execute` for one command or `drain` for a buffer of them. It calls `log.flush` before any byte of a reply leaves the
process: under `appendfsync always` an acknowledged change is on disk.

The engine is not safe to use from two threads at once: the store holds a lock around it.
"""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING, Any

from rillet._cython import cython, public, readonly
from rillet.keyspace.clock import Clock
from rillet.keyspace.database import Database
from rillet.keyspace.lru import LFU, LRM, LRU
from rillet.runtime import session_state
from rillet.runtime.acl.control import AccessControl
from rillet.runtime.dispatch import Dispatch
from rillet.runtime.engine_services import DefaultServices, EngineServices
from rillet.runtime.keyspace_events import MISS, NEW, OVERWRITTEN, TYPE_CHANGED
from rillet.runtime.memory import MemoryStats
from rillet.runtime.session import Session
from rillet.runtime.settings.settings import Settings
from rillet.types.compat import EMBEDS_UP_TO_128

if TYPE_CHECKING:
    from rillet.runtime.key_changes import KeyChanges

_FULL = cython.declare(cython.int, session_state.FULL)
PEAK_RESET_MS = 5000  # server.h: REPLY_BUFFER_DEFAULT_PEAK_RESET_TIME
# Limits of the command log: nothing is logged; and the one below which each call is timed (ns).
_NEVER = cython.declare(cython.longlong, 2**62)


@cython.final
@cython.cclass
class Engine(Dispatch):
    """Databases, settings, sessions and statistics of one server or store."""

    __slots__ = (
        "sessions", "preserved", "started_ms", "next_session_id", "services", "run_id", "mstime", "memory", "changes",
        "cold_reads", "on_retain", "peak_reset_ms", "shrinks_buffers", "segments",
    )  # fmt: skip
    sessions: public[dict[int, Session]]
    services: public[EngineServices]
    preserved: public[Any]
    changes: public[dict[int, Any]]
    segments: public[Any]
    on_retain: public[Any]
    cold_reads: public[Any]
    peak_reset_ms: public[cython.longlong]
    shrinks_buffers: public[cython.bint]
    run_id: public[str]
    started_ms: public[cython.longlong]
    next_session_id: public[cython.longlong]
    memory: readonly[MemoryStats]
    mstime: public[cython.longlong]

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None) -> None:
        Dispatch.__init__(self, settings or Settings(), clock or Clock())
        self.memory = MemoryStats(self)
        # DEBUG REPLYBUFFER: after how many ms the recent size of a client's replies is measured anew (-1: never), and
        # whether the periodic job shrinks output buffers.
        self.peak_reset_ms = PEAK_RESET_MS
        self.shrinks_buffers = True
        self.sessions = {}
        # A runtime.key_changes.KeyChanges for each database that RILLET.CHANGES was called for.
        self.changes = {}
        self.services = DefaultServices(self)
        # Data of an RDB file that rillet cannot interpret, kept for the next file (persistence.rdb.reader).
        self.preserved = None
        # The folder of the nodes of streams that are kept on disk (persistence.segments), None without one.
        self.segments = None
        # Called after a stream was given a retention policy, if timers wait for that (host.idle_timers).
        self.on_retain = None
        # Who reads such nodes for clients that can wait (host.cold_reads), None without one.
        self.cold_reads = None
        # Cached time in milliseconds; may lag by one interval of the server's timer.
        self.mstime = 0
        self.run_id = urandom(20).hex()
        self.started_ms = self.clock.now_ms()
        self.next_session_id = 1
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

    def take_settings(self) -> None:
        """After a change of settings, update the visible commands and the published keyspace events."""
        self._by_name.clear()
        self._last_entry = None
        if self.acl is not None:
            self.acl.take_settings()
        if self.scripts is not None:
            self.scripts.calls.settled = False  # the next script compares its interpreter with the settings
        self.defrag.take_settings()
        threshold = self.settings.latency_monitor_threshold
        self.monitored_ns = threshold * 1_000_000 if threshold else 2**62
        self.eviction.timed = self.monitored_ns < _NEVER
        self.command_log.take_settings(self.monitored_ns)
        self.tracks_latency = self.settings.latency_tracking
        self.expiry.on_time = self.settings.compat.knows(82)
        self._buffer.take_limits(self.settings)
        self._take_access_settings()
        self.eviction.take_settings(self.settings)
        self.limited = self.eviction.limit != 0
        self._fitted = -1
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

    def observe(self) -> None:
        """Update `observed` after a client began or ended to track keys or to watch commands, or after import-mode."""
        in_use = self.tracking.in_use
        self.observed = in_use or bool(self.monitors.sessions) or self.importing
        for database in self.databases:
            database.tracking = self.tracking if in_use else None
            if database.index in self.changes:
                changes = self.changes[database.index]
                changes.following, database.tracking = database.tracking, changes

    def changes_of(self, database: Database) -> KeyChanges:
        """Return the changes of a database; the first call begins to record them."""
        if database.index not in self.changes:
            from rillet.runtime.key_changes import KeyChanges  # few servers need it

            self.changes[database.index] = KeyChanges(database)
            self.observe()
        found: KeyChanges = self.changes[database.index]
        return found

    def note_change(self, database: Database, key: bytes) -> None:
        """Record a change that watchers and caches do not see, as in Redis: XSETID."""
        if database.index in self.changes:
            self.changes[database.index].note(key)

    def restart_changes(self) -> None:
        """Record that all keys may have changed: databases were emptied, exchanged, or loaded."""
        for changes in self.changes.values():
            changes.restart()

    def _take_access_settings(self) -> None:
        policy: str = self.settings.maxmemory_policy
        self.access.mode = LFU if policy.endswith("lfu") else LRM if policy.endswith("lrm") else LRU
        self.access.log_factor = self.settings.lfu_log_factor
        self.access.decay_time = self.settings.lfu_decay_time
        self.access.exact = self.settings.compat.valkey
        self.access.choose_stamp()

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
        for changes in self.changes.values():
            changes.check()
        for database in self.databases:
            database.check()
            for key, waiting in database.blocking_keys.items():
                for blocked in waiting:
                    assert blocked.session.blocked is blocked and key in blocked.keys
