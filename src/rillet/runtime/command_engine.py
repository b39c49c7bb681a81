"""CommandEngine: what commands and the parts of the engine use of the engine (runtime/engine.py).

Everything below the engine refers to this protocol, so that a type checker knows the members and nothing imports the
engine from below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from rillet.errors import Busy
from rillet.keyspace.clock import Clock
from rillet.keyspace.database import Database
from rillet.keyspace.lazyfree import LazyFree
from rillet.keyspace.lru import AccessClock

if TYPE_CHECKING:
    from rillet.runtime.acl.control import AccessControl
    from rillet.runtime.blocking import Blocking
    from rillet.runtime.channels import Channels
    from rillet.runtime.command_queue import CommandQueue
    from rillet.runtime.engine_services import EngineServices
    from rillet.runtime.engine_stats import EngineStats
    from rillet.runtime.key_changes import KeyChanges
    from rillet.runtime.latency import LatencyMonitor
    from rillet.runtime.memory import MemoryStats
    from rillet.runtime.monitors import Monitors
    from rillet.runtime.pause import PausedClients
    from rillet.runtime.propagation import Propagation
    from rillet.runtime.registry import Command
    from rillet.runtime.replication import ReplicationState
    from rillet.runtime.session import Session
    from rillet.runtime.settings.settings import Settings
    from rillet.runtime.slowlog import CommandLog
    from rillet.runtime.tracking import Tracking
    from rillet.structs.argument_spans import ArgumentSpans


class CommandEngine(Protocol):
    """Databases, settings, sessions and statistics of one server or store, as commands see them."""

    # -- data and parts ------------------------------------------------------------------------------

    databases: list[Database]
    settings: Settings
    clock: Clock
    sessions: dict[int, Session]
    stats: EngineStats
    propagation: Propagation
    blocking: Blocking
    channels: Channels
    tracking: Tracking
    monitors: Monitors
    command_log: CommandLog
    latency: LatencyMonitor
    memory: MemoryStats
    replication: ReplicationState
    access: AccessClock
    lazyfree: LazyFree
    eviction: Any
    expiry: Any
    defrag: Any
    services: EngineServices
    acl: AccessControl
    modules: Any
    """rillet.modules.manager.Modules, or None."""
    scripts: Any
    """rillet.scripting.scripts.Scripts, or None."""
    preserved: Any
    segments: Any
    """rillet.persistence.segments.folder.SegmentFolder, or None."""
    on_retain: Callable[[], object] | None
    cold_reads: Any
    """rillet.host.cold_reads.ColdReads, or None."""
    log: Any

    # -- conditions ----------------------------------------------------------------------------------

    conditions: int
    loading: bool
    follows: bool
    busy: bool
    paused: int
    paused_clients: PausedClients
    refusal: str | None
    notify_events: bool
    observed: bool
    importing: bool
    applying: bool
    writing: bool
    active_expire: bool
    keeps_expired: bool
    allow_access_expired: bool
    shrinks_buffers: bool
    peak_reset_ms: int
    started_ms: int
    next_session_id: int
    mstime: int
    run_id: str
    dirty: int
    on_keyspace_event: Callable[[Database, bytes, bytes, bytes], None] | None

    @property
    def aof(self) -> Any:
        """The append-only log, or None."""

    @property
    def out_of_memory(self) -> bool:
        """True if the last run of the eviction could not make room."""

    @property
    def keeps_past(self) -> bool:
        """True if a key with a time in the past is stored, instead of deleted."""

    # -- running commands ----------------------------------------------------------------------------

    def session(self, *, trusted: bool = False) -> Session:
        """Return a new session on database 0."""

    def close_session(self, session: Session) -> None:
        """Remove the session with its watches, subscriptions and blocking."""

    def execute(self, session: Session, argv: list[bytes]) -> bool:
        """Run one command; return False if the session blocked instead."""

    def call(self, session: Session, entry: Command, argv: list[bytes]) -> bool:
        """Run an admitted command, and act on its effects."""

    def run_queue(self, session: Session, queue: CommandQueue) -> bool:
        """Run every queued command once."""

    def end_queue(self, queue: CommandQueue) -> bool:
        """Empty a queue whose commands have run."""

    def lookup(self, argv: list[bytes]) -> Command | None:
        """Return the command or subcommand that the words call."""

    def command_of(self, words: ArgumentSpans) -> Command | None:
        """Return the command or subcommand that the words call."""

    def busy_error(self) -> Busy:
        """Return the error for commands while a script runs for too long."""

    def rename_command(self, old: bytes, new: bytes) -> None:
        """Give a command another name, or remove it if that is empty."""

    # -- upkeep --------------------------------------------------------------------------------------

    def keyspace_event(
        self, database: Database, kind: bytes, event: bytes, key: bytes, subkeys: list[bytes] | None = None
    ) -> None:
        """Publish a keyspace event."""

    def make_room(self) -> bool:
        """Evict keys if the data is larger than `maxmemory`; return False if there is no room."""

    def observe(self) -> None:
        """Update `observed` after a client began or ended to track keys or to watch commands."""

    def changes_of(self, database: Database) -> KeyChanges:
        """Return the changes of a database's streams."""

    def note_change(self, database: Database, key: bytes) -> None:
        """Record a change of a stream that watchers do not see."""

    def restart_changes(self) -> None:
        """Record that all keys may have changed."""

    def take_settings(self) -> None:
        """Follow a change of settings."""

    def used_memory(self) -> int:
        """Return the bytes in use."""

    def expire_all(self) -> None:
        """Delete every expired key at once."""

    def narrow(self, narrowing: Any) -> None:
        """Rewrite effects for older replicas from now on; None: for none."""
