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

from collections.abc import Callable
from os import urandom
from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: run interpreted
    from rillet import _cython as cython

from rillet.keyspace.clock import Clock
from rillet.keyspace.database import Database
from rillet.keyspace.defrag import ActiveDefrag
from rillet.keyspace.eviction import Eviction
from rillet.keyspace.expire_cycle import ExpireCycle
from rillet.keyspace.lazyfree import LazyFree
from rillet.keyspace.lru import LFU, LRM, LRU, AccessClock
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.runtime import session_state
from rillet.runtime.acl.control import AccessControl
from rillet.runtime.blocking import Blocking
from rillet.runtime.channels import Channels
from rillet.runtime.command_log import CommandLog
from rillet.runtime.dispatch import Dispatch
from rillet.runtime.host import DefaultHost, Host
from rillet.runtime.keyspace_events import MISS, NEW, OVERWRITTEN, TYPE_CHANGED
from rillet.runtime.latency import LatencyMonitor
from rillet.runtime.memory import MemoryFigures
from rillet.runtime.monitors import Monitors
from rillet.runtime.pause import PAUSE_OFF, PausedClients
from rillet.runtime.propagation import Propagation
from rillet.runtime.registry import load_commands
from rillet.runtime.replication import ReplicationState
from rillet.runtime.session import Session
from rillet.runtime.settings import Settings
from rillet.runtime.statistics import Statistics
from rillet.runtime.tracking import Tracking
from rillet.types.compat import EMBEDS_UP_TO_128

_FULL = cython.declare(cython.int, session_state.FULL)
PEAK_RESET_MS = 5000  # server.h: REPLY_BUFFER_DEFAULT_PEAK_RESET_TIME
# Limits of the command log: nothing is logged; and the one below which each call is timed (ns).
_NEVER = cython.declare(cython.longlong, 2**62)


@cython.final
@cython.cclass
class Engine(Dispatch):
    """Databases, settings, sessions and statistics of one server or store."""

    __slots__ = (
        "sessions", "preserved", "started_ms", "next_session_id", "host", "run_id", "mstime", "_buffer", "memory",
        "peak_reset_ms", "shrinks_buffers",
    )  # fmt: skip
    sessions: dict[int, Session]

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
        for database in self.databases:
            database.check()
            for key, waiting in database.blocking_keys.items():
                for blocked in waiting:
                    assert blocked.session.blocked is blocked and key in blocked.keys


__all__ = ["PEAK_RESET_MS", "Engine"]
