"""The link between a replica in this process and its server: a thread with one connection.

    server ══ socket ══ thread "rillet-follow" ── Follower (protocol) ── Recorder ── engine, change log, directory
                             └── snapshot ── SnapshotLoading (a second thread) ── new databases

The thread waits in the socket for at most a quarter of a second, because the Follower reports its position once a
second and notices silence. Each piece of the stream is applied under the engine's lock, so a read of another thread
sees the data between two commands, and never inside a transaction. While the gate is held (`paused`), nothing is
applied.

If sentinels watch the server, they are asked for the master before each connection. A master that becomes a replica
disconnects its replicas when its history changes, so the link follows the master without being told.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rillet.client.address import Address
from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.errors import RilletError
from rillet.loggers import logger
from rillet.real_time import monotonic
from rillet.replication.changes import ChangePosition
from rillet.replication.filtering import KeyFilter
from rillet.replication.handshake import LinkOptions
from rillet.replication.replica import CONNECTED, NONE, Follower
from rillet.runtime.engine import Engine
from rillet.store.follow.change_log import ChangeLog, LogRecord
from rillet.store.follow.directory import FollowDirectory
from rillet.store.follow.recorder import Recorder
from rillet.store.follow.resync_pace import ResyncPace
from rillet.store.follow.snapshot_loading import SnapshotLoading
from rillet.store.follow.stream_reader import VERSION, server_of
from rillet.store.transports.steady_event import SteadyEvent

if TYPE_CHECKING:
    from rillet.runtime.session import Session
    from rillet.runtime.settings.settings import Settings

LOGGER = logger("attach")
CONNECT_SECONDS = 5.0
_TURN = 0.25  # seconds between two periodic works
_PIECE = 1 << 15  # bytes that are applied under one hold of the lock


class LinkState(NamedTuple):
    """The state of a replica's link.

    status: "connect", "connecting", "handshake", "sync" (a snapshot is received), "connected", "paused" (before a
    snapshot that a command made necessary), or "none" after `close`.
    error: why the link is or was last broken, "" if it never was. full_syncs: the snapshots that were loaded. resyncs:
    those of them that a command made necessary because it reads keys that the filter excludes. refused: commands of the
    server that could not be applied, which are logged: the data may differ. disk_error: why the directory is no longer
    written.
    """

    status: str
    error: str
    full_syncs: int
    resyncs: int
    reconnections: int
    refused: int
    disk_error: str


class FollowLink:
    """Follows one server; the `carrier` of a Follower."""

    def __init__(self, engine: Engine, lock: Any, address: Address, keys: KeyFilter | None, log: ChangeLog,
                 directory: FollowDirectory | None) -> None:  # fmt: skip
        self._engine = engine
        self._settings: Settings = engine.settings
        self._lock = lock
        self.address = replace(address, db=0, protocol=2)
        self._keys = keys
        self.log = log
        self._directory = directory
        self.gate = threading.RLock()
        self.synced = SteadyEvent()  # set while there is data
        self.error = ""
        self.fatal: RilletError | None = None  # why it makes no sense to try again, of the first attempts
        self.full_syncs = self.resyncs = self.refused_commands = 0
        self._connection: Connection | None = None
        self._wanted = False
        self._loading: SnapshotLoading | None = None
        self._stopping = SteadyEvent()
        self._ticked = 0.0
        self._history = ""
        self._pace = ResyncPace()
        self.follower = Follower(engine, self, self._new_recorder, filtered=keys is not None)
        self._thread = threading.Thread(target=self._run, name="rillet-follow", daemon=True)

    # -- the life of the link --------------------------------------------------------------------------

    def start(self, resumable: bool) -> None:
        """Begin to follow. resumable: the engine holds data, at the position of its replication state."""
        host, port = self.address.host, self.address.port
        if self.address.unix is not None:
            host, port = self.address.unix, 0
        elif self.address.sentinels is not None:
            host, port = self.address.sentinels.service, 0  # until the first connection
        state = self._engine.replication
        if resumable:
            self._history = state.id
            self.synced.set()
        with self._lock:
            self.follower.follow(host, port, resumable=resumable)
            self._settings.replica_serve_stale_data = resumable
        self._thread.start()

    def close(self) -> None:
        """End the link and its thread."""
        self._stopping.set()
        connection = self._connection
        if connection is not None:
            connection.interrupt()
        if self._thread.is_alive() and not self.is_needed_here():
            self._thread.join()
        self.log.close()

    def is_needed_here(self) -> bool:
        """Return whether the link's thread is the caller, or would wait for the caller, which has paused it."""
        return self._thread is threading.current_thread() or _is_owned(self.gate)

    def forget_in_child(self) -> None:
        """In a forked child: the data stays as it is; the parent has the link."""
        self._stopping.set()
        self.follower.state = NONE
        self.gate = threading.RLock()
        self.log.closed = True
        self.log.guard = threading.RLock()  # another thread of the parent may have held it

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._turn()
            except Exception:
                LOGGER.exception("the replica of %s failed; it begins with a snapshot", self.address)
                with self.gate, self._lock:
                    self.follower.resumable = False
                    self.follower.closed("an internal error")
                self._stopping.wait(1)
        loading = self._loading
        with self._lock:
            self.disconnect()
            self.follower.state = NONE
        if loading is not None:
            loading.join()

    def _turn(self) -> None:
        """Do one step: connect, or receive, or wait."""
        if self._wanted:
            pause = self._pace.left(monotonic())
            if pause:
                self._stopping.wait(min(pause, _TURN))
                return
            self._open()
        elif self._connection is None:
            self._stopping.wait(_TURN)
        else:
            try:
                data = self._connection.receive_within(_TURN)
            except ConnectorError as error:
                self._broken(error)
            else:
                if data:
                    self._received(data)
        if monotonic() - self._ticked >= _TURN:
            self._ticked = monotonic()
            self._tick()

    def _tick(self) -> None:
        with self.gate, self._lock:
            self._send_errors(self.follower.tick)
            directory, state = self._directory, self._engine.replication
            if directory is not None:
                if self.follower.state == CONNECTED:
                    directory.advance(state.offset, state.db)
                directory.tick({"compat": self._engine.settings.compat.name})

    def _open(self) -> None:
        self._wanted = False
        if not self.follower.resumable:
            self._pace.began(monotonic())
        try:
            server = server_of(self.address)
            connection = Connection(server, CONNECT_SECONDS)
        except ConnectorError as error:
            if not isinstance(error, ConnectionLost):
                self.fatal = error
            self._broken(error)
            return
        self._connection = connection
        with self._lock:
            if server.unix is None:
                self._engine.replication.master = (server.host, server.port)
            self._send_errors(self.follower.opened)

    def _send_errors(self, function: Any, *arguments: Any) -> None:
        """Call a function of the follower, which may send on a connection that breaks."""
        try:
            function(*arguments)
        except ConnectorError as error:
            self._broken(error)

    def _broken(self, error: ConnectorError) -> None:
        self.error = str(error).removeprefix("rillet: ")
        with self.gate, self._lock:
            self.follower.closed(self.error)
        self.log.notify()

    def _received(self, data: bytes) -> None:
        pieces = [data] if len(data) <= _PIECE else [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
        connection = self._connection
        for piece in pieces:
            with self.gate, self._lock:
                self._send_errors(self.follower.received, piece)
                if self._engine.blocking.ready:
                    self._engine.blocking.serve_ready()
                if self.follower.state == CONNECTED:
                    self.log.advance(self._engine.replication.offset, self._engine.replication.db)
            if self._connection is not connection:
                break
            self._go_on_loading()
        self.log.notify()

    # -- what the follower needs -------------------------------------------------------------------------

    def connect(self, host: str, port: int) -> None:
        """Begin to open a connection."""
        self._wanted = True

    def disconnect(self) -> None:
        """Drop the connection, and abort a snapshot."""
        self._wanted = False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        loading, self._loading = self._loading, None
        if loading is not None:
            loading.cancel()
            if self._directory is not None:
                self._directory.abort_snapshot()

    def send(self, data: bytes) -> None:
        """Send bytes to the server."""
        if self._connection is not None:
            self._connection.send(data)

    def hold(self, held: bool) -> None:
        """Do nothing: the thread that reads also applies."""

    def options(self) -> LinkOptions:
        """Return what the handshake says about this replica; the connection is authenticated."""
        return LinkOptions(version=VERSION, ephemeral=self._directory is None)

    def log_line(self, text: str, warning: bool = False) -> None:
        """Write a line to the log."""
        if warning:
            self.error = text
            LOGGER.warning("%s: %s", self.address, text)
        else:
            LOGGER.info("%s: %s", self.address, text)

    def refused(self, text: str) -> None:
        """Count and log a command of the server that the engine refused."""
        self.refused_commands += 1
        LOGGER.error("%s: the replica differs from its server: %s", self.address, text)

    # -- the snapshot ------------------------------------------------------------------------------------

    def begin_snapshot(self, size: int, same_history: bool) -> None:
        """Begin to load a snapshot beside the old data."""
        if self._directory is not None:
            self._directory.begin_snapshot()
        keeps = None if self._keys is None else self._keys.keeps
        self._loading = SnapshotLoading(self._engine, self._lock, keeps)

    def take_snapshot(self, data: bytes) -> None:
        """Take bytes of the snapshot."""
        if self._loading is not None:
            self._loading.feed(data)
            if self._directory is not None:
                self._directory.take_snapshot(data)

    def end_snapshot(self) -> None:
        """Take the end of the snapshot."""
        if self._loading is not None:
            self._loading.end()

    def _go_on_loading(self) -> None:
        """Wait for the loader if it lags; when it has everything, replace the old data."""
        loading = self._loading
        if loading is None:
            return
        loading.wait_for_room()
        if not loading.is_ending:
            return
        loading.join()
        self._loading = None
        with self.gate, self._lock:
            if loading.loaded is None:
                self._not_loaded(loading.problem)
                return
            follower, state = self.follower, self._engine.replication
            db = int(loading.loaded.facts.get(b"repl-stream-db", b"0"))
            follower.data_replaced()
            loading.data.exchange()
            self._engine.dirty = 0
            self.full_syncs += 1
            self._pace.loaded(monotonic())
            full = follower.full
            if self._directory is not None and full.id:
                self._directory.commit_snapshot(self._engine, ChangePosition(full.id, full.offset, max(db, 0)))
            self._history = full.id
            self.log.begin(full.id or state.id, full.offset, max(db, 0))
            self._send_errors(follower.loaded, db)
            self._settings.replica_serve_stale_data = True
            if self._engine.blocking.ready:
                self._engine.blocking.serve_ready()
            self.log.advance(state.offset, state.db)
        self.synced.set()

    def _not_loaded(self, problem: BaseException | None) -> None:
        reason = str(problem) or "the transfer ended"
        if self._directory is not None:
            self._directory.abort_snapshot()
        if isinstance(problem, RilletError) and not self.synced.is_set():
            self.fatal = problem
        self.follower.load_failed(reason)

    # -- the stream --------------------------------------------------------------------------------------

    def _new_recorder(self, session: Session, offset: int, refused: Any) -> Recorder:
        state = self._engine.replication
        if state.id != self._history:
            self._history = state.id
            self.log.continued(state.id, state.offset)
            if self._directory is not None:
                self._directory.continued(state.id, state.offset, state.db)
        return Recorder(session, offset, refused, self._keys, self._keep, self._lost)

    def _keep(self, record: LogRecord) -> None:
        self.log.append(record)
        if self._directory is not None:
            self._directory.append(record)

    def _lost(self, reason: str) -> None:
        """Begin with a snapshot after a pause, because a command cannot be applied."""
        self.resyncs += 1
        self.follower.resumable = False
        pause = self._pace.lost(monotonic())
        LOGGER.info("%s: a full synchronisation is necessary (in %.1f s): %s", self.address, pause, reason)

    def state(self) -> LinkState:
        """Return the state of the link."""
        disk = "" if self._directory is None else self._directory.failure
        paused = self._wanted and self._pace.left(monotonic()) > 0
        status = "paused" if paused else self.follower.state
        return LinkState(status, self.error, self.full_syncs, self.resyncs, self.follower.disconnections,
                         self.refused_commands, disk)  # fmt: skip


def _is_owned(lock: Any) -> bool:
    return bool(lock._is_owned())
