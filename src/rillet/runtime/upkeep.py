"""Upkeep: what an engine does between commands, and the effects of evictions. Expiry is in runtime/expiry.py.

    timers, commands -> make_room, rehash, defrag_step -> databases -> _evicted, trimmed ... -> the log

The base of the engine (runtime/engine.py), which creates the attributes. It has the engine's conditions, too: they
change what may be deleted, and which commands are admitted (runtime/admission.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

from rillet._cython import cython, public, readonly
from rillet.keyspace.clock import Clock
from rillet.keyspace.database import Database
from rillet.keyspace.defrag import IDLE, ActiveDefrag
from rillet.keyspace.eviction import FAIL, OK, Eviction
from rillet.keyspace.lazyfree import LazyFree
from rillet.keyspace.lru import AccessClock
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.runtime import session_state
from rillet.runtime.blocking import Blocking
from rillet.runtime.channels import Channels
from rillet.runtime.engine_stats import EngineStats
from rillet.runtime.keyspace_events import CLASS, channels_of
from rillet.runtime.latency import LatencyMonitor
from rillet.runtime.pause import PAUSE_OFF
from rillet.runtime.propagation import Propagation
from rillet.runtime.replication import ReplicationState
from rillet.runtime.settings.settings import Settings
from rillet.structs.integer_text import decimal
from rillet.types.stream.stream import Stream

_KEEPING = cython.declare(cython.int, session_state.LOADING | session_state.PAUSED)
_PAUSED = cython.declare(cython.int, session_state.PAUSED)
_REFUSING = cython.declare(cython.int, session_state.REFUSING)
_BUSY = cython.declare(cython.int, session_state.BUSY)
_LOADING = cython.declare(cython.int, session_state.LOADING)
_FOLLOWS = cython.declare(cython.int, session_state.FOLLOWS)
_FULL = cython.declare(cython.int, session_state.FULL)
# Entries of each database in which a call of `rehash` looks for values that can rest.
_SWEPT = cython.declare(cython.Py_ssize_t, 1024)
_NEVER = cython.declare(cython.longlong, 2**62)
# While more than one part in so many of `maxmemory` waits to be freed, each run of the eviction frees some of it.
_PENDING_SHARE = cython.declare(cython.Py_ssize_t, 8)


def _condition(flag: int, doc: str) -> property:
    """Return a property of the engine: one of its conditions (runtime/session_state.py)."""

    def holds(engine: CommandEngine) -> bool:
        return bool(engine.conditions & flag)

    def put(engine: CommandEngine, value: bool) -> None:
        engine.conditions = engine.conditions | flag if value else engine.conditions & ~flag

    return property(holds, put, None, doc)


@cython.cclass
class Upkeep:
    """Conditions, eviction, rehashing, defragmentation and keyspace events of one engine."""

    __slots__ = (
        "access", "blocking", "channels", "clock", "conditions", "databases", "defrag", "eviction", "latency",
        "lazyfree", "modules", "monitored_ns", "propagation", "replication", "settings",
        "stats",
        "_buffer", "_fitted", "_notify_events", "_on_keyspace_event", "_paused", "_refusal",
    )  # fmt: skip
    databases: public[list[Database]]
    settings: public[Settings]
    clock: public[Clock]
    propagation: readonly[Propagation]
    defrag: readonly[ActiveDefrag]
    blocking: readonly[Blocking]
    stats: public[EngineStats]
    modules: public[Any]
    _notify_events: cython.bint
    channels: public[Channels]
    _on_keyspace_event: Callable[[Database, bytes, bytes, bytes], None] | None
    replication: public[ReplicationState]
    access: readonly[AccessClock]
    eviction: readonly[Eviction]
    latency: readonly[LatencyMonitor]
    monitored_ns: readonly[cython.longlong]
    _fitted: cython.longlong
    lazyfree: readonly[LazyFree]
    conditions: public[cython.int]
    _paused: cython.int
    _refusal: str | None
    _buffer: Any

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.conditions = 0
        self.settings = settings
        self.clock = clock
        self.stats = EngineStats()
        self.latency = LatencyMonitor(self.settings, self.clock)
        # Nanoseconds from which the latency monitor records an event; 2**62 while it is off.
        self.monitored_ns = 2**62
        self.propagation = Propagation(self.settings, self.clock)
        self.blocking = Blocking(self.clock, self.stats, self.propagation)
        self.access = AccessClock(self.clock)
        self.lazyfree = LazyFree(self.clock)
        self._buffer = RestBuffer()
        self.databases = [
            Database(index, self.clock, self.access, self._buffer) for index in range(self.settings.databases)
        ]
        for database in self.databases:
            database.lazy = self.lazyfree
            database.on_ready = self.blocking.database_ready
        # The number of commands that had run when the data was found to fit into `maxmemory`; -1: it did not.
        self._fitted = -1
        self.eviction = Eviction(self.databases, self.clock, self.access, self._evicted, self.trimmed)
        for database in self.databases:
            database.limit_growth(self.eviction)
        self.defrag = ActiveDefrag(self.databases, self.settings, self.clock, self._changes)
        self.channels = Channels(self.choose_notified)
        self._refusal = None
        # The loaded modules (rillet.modules.manager.Modules), or None before the first one is loaded.
        self.modules = None
        self._notify_events = False
        self._on_keyspace_event = None
        self._paused = PAUSE_OFF
        self.replication = ReplicationState()

    # -- conditions (runtime/session_state.py) -------------------------------------------------------

    @cython.cfunc
    def _when(self, condition: cython.int, holds: cython.bint) -> cython.bint:
        self.conditions = (self.conditions | condition) if holds else (self.conditions & ~condition)
        return True

    loading = _condition(_LOADING, "True while a file is loaded.")
    follows = _condition(
        _FOLLOWS, "True while the engine follows a master: expired keys wait for its deletions (runtime/replica.py)."
    )
    busy = _condition(
        _BUSY, "True while a script runs for longer than busy-reply-threshold: commands of other clients are refused."
    )

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
        """True while keyspace events are wanted; the databases report them while somebody receives them."""
        return self._notify_events

    @notify_events.setter
    def notify_events(self, wanted: bool) -> None:
        self._notify_events = wanted
        self.choose_notified()

    @property
    def on_keyspace_event(self) -> Callable[[Database, bytes, bytes, bytes], None] | None:
        """A function to call for each event that commands report."""
        return self._on_keyspace_event

    @on_keyspace_event.setter
    def on_keyspace_event(self, function: Callable[[Database, bytes, bytes, bytes], None] | None) -> None:
        self._on_keyspace_event = function
        self.choose_notified()

    def choose_notified(self) -> None:
        """Let commands report keyspace events while the events are wanted and somebody receives any messages."""
        received = (
            self.channels.channels
            or self.channels.patterns
            or self._on_keyspace_event is not None
            or (self.modules is not None and self.modules.event_classes)
        )
        for database in self.databases:
            database.notifies = self._notify_events and bool(received)

    @property
    def refusal(self) -> str | None:
        """The error reply for writes while they are refused, else None (persistence.write_gate)."""
        return self._refusal

    @refusal.setter
    def refusal(self, reason: str | None) -> None:
        self._refusal = reason
        self._when(_REFUSING, reason is not None)

    # -- eviction ------------------------------------------------------------------------------------

    @cython.ccall
    def make_room(self) -> cython.bint:
        """Evict keys if the data is larger than `maxmemory`; return False if there is no room. Timers call this too.

        While clients are paused the data does not change (evict.c: isSafeToPerformEvictions).
        """
        self._fitted = -1
        if self.conditions & _KEEPING or (self.conditions & _FOLLOWS and self.settings.replica_ignore_maxmemory):
            self._when(_FULL, False)
            self.eviction.running = False
            return True
        began: cython.longlong = self.clock.ticks() if self.monitored_ns < _NEVER else 0
        result: cython.int = self.eviction.run()
        if self.monitored_ns < _NEVER:
            self.latency.add(b"eviction-cycle", self.clock.ticks() - began)
        self._when(_FULL, result == FAIL)
        if result == OK and not self.lazyfree.pending_bytes and not self.blocking.ready:
            self._fitted = self.stats.commands_processed
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

    def trimmed(self, database: Database, key: bytes, stream: Stream) -> None:
        """Publish and log that eviction or retention has trimmed a stream, as the exact XTRIM with the same result."""
        database.touch(key, True)
        self.propagation.dirty += 1
        if self.notify_events:
            self.keyspace_event(database, b"t", b"xtrim", key)
        if self.propagation.log is not None:
            self.propagation.add(database.index, [b"XTRIM", key, b"MAXLEN", b"=", decimal(stream.length)])

    def used_memory(self) -> int:
        """Return the bytes in use: data, values that wait to be freed, buffers. O(databases)"""
        return int(self.eviction.counted() + self.lazyfree.pending_bytes)

    # -- rehashing ----------------------------------------------------------------------------------

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
        if self._on_keyspace_event is not None:
            self._on_keyspace_event(database, kind, event, key)
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
