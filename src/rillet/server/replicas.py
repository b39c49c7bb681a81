"""The replicas of a server: its replication stream, when it begins, and how snapshots reach them.

    server with files      repl-diskless-sync yes: a child writes into a pipe (PipeTransfer)
                           no: BGSAVE, then the file (SavedTransfer)
    store, no files        this process writes the snapshot while the engine waits (InlineTransfer)

The stream begins with the first replica, or when this server follows a master. It ends repl-backlog-ttl after the last
replica has left.
"""

from __future__ import annotations

from collections.abc import Callable

from rillet.errors import CommandError
from rillet.persistence.fork import Children
from rillet.persistence.rdb.snapshots import Snapshots
from rillet.replication.attached import AttachedReplica
from rillet.replication.master import ReplicationStream, refuse_writes
from rillet.replication.transfer import InlineTransfer, PipeTransfer, SavedTransfer, Transfer
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.server.engine_loop import EngineLoop
from rillet.server.replica_version import VersionQuestions
from rillet.types.compat import Compat

_SETTINGS = ("repl-backlog-size", "min-replicas-to-write", "min-replicas-max-lag")


class Replicas:
    """The replication stream of a server, created when it is needed."""

    def __init__(self, engine: Engine, loop: EngineLoop) -> None:
        self._engine = engine
        self._loop = loop
        # Of a server with files.
        self._children: Children | None = None
        self._snapshots: Snapshots | None = None
        self._questions: VersionQuestions | None = None
        self._check_least()

    def use_files(self, children: Children, snapshots: Snapshots) -> None:
        """Make snapshots in child processes from now on."""
        self._children, self._snapshots = children, snapshots

    def stream(self) -> ReplicationStream:
        """Return the stream; the first call creates it."""
        found: ReplicationStream | None = self._engine.replication.stream
        if found is None:
            found = ReplicationStream(self._engine, self._new_transfer, self._can_fork, self._children is not None,
                                      self._ask)  # fmt: skip
        return found

    def attach(self, session: Session, history: str | None, offset: int) -> None:
        """Make a client's connection that of a replica (PSYNC, SYNC); CommandError."""
        state = self._engine.replication
        if state.link is not None and state.link.filtered:
            raise CommandError("this store follows a part of its master's keys, so it has no replicas: follow the "
                               "master")  # fmt: skip
        if state.stream is None and state.master is None:
            state.begin_history()
            self._engine.services.log_line(f"Replication backlog created, my new replication IDs are '{state.id}' and "
                                       f"'{state.id2}'", "notice")  # fmt: skip
        self.stream().attach(session, history, offset)

    def _ask(self, host: str, port: int, answered: Callable[[Compat | None], None]) -> None:
        """Find the server of a replica."""

        def guarded(server: Compat | None) -> None:
            with self._loop.guard:
                answered(server)

        if self._questions is None:
            self._questions = VersionQuestions(self._loop.loop, self._engine.settings)
        self._questions.ask(host, port, guarded)

    def close(self) -> None:
        """Drop the questions to replicas, because the server stops."""
        if self._questions is not None:
            self._questions.close()

    def _can_fork(self) -> bool:
        return self._children is None or self._children.active is None

    def _new_transfer(self, stream: ReplicationStream, replicas: list[AttachedReplica], diskless: bool) -> Transfer:
        if self._children is None or self._snapshots is None:
            return InlineTransfer(stream, replicas)
        if diskless:
            return PipeTransfer(stream, replicas, self._children, self._loop.loop, self._loop.guard)
        return SavedTransfer(stream, replicas, self._snapshots)

    def tick(self) -> None:
        """Do the periodic work of the stream; the server's timer calls this."""
        if self._engine.replication.stream is not None:
            self._engine.replication.stream.cron()

    def setting_changed(self, name: str) -> None:
        """Apply a setting of replication after CONFIG SET."""
        if name in _SETTINGS:
            stream = self._engine.replication.stream
            if stream is not None:
                stream.take_settings()
            else:
                self._check_least()

    def _check_least(self) -> None:
        """Reject writes if replicas are required and there is no stream."""
        settings, master = self._engine.settings, self._engine.replication.master
        required = settings.min_replicas_to_write and settings.min_replicas_max_lag and master is None
        refuse_writes(self._engine, bool(required))
