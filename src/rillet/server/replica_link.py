"""The socket between a replica and its master, for a server (rillet.replication.replica has the protocol).

    MasterSocket ── bytes ──► Follower ── snapshot ──► replica_loading
        ▲    SecondSocket ──►    └─────── stream ────► engine ──► log
        └── connect, send, hold, disconnect

The snapshot may come over the second socket (repl-rdb-channel); replica_channel.py has both.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rillet.errors import Corrupt, StoreError
from rillet.persistence.aof.service import AofService
from rillet.replication.handshake import LinkOptions
from rillet.replication.replica import Follower
from rillet.runtime.admission import FEW_REPLICAS, READ_ONLY
from rillet.runtime.engine import Engine
from rillet.runtime.replication import uses_channel
from rillet.runtime.settings.setting_types import SettingError
from rillet.server.connection import address_of
from rillet.server.engine_loop import EngineLoop
from rillet.server.log_lines import NOTICE, WARNING, in_words_of, say
from rillet.server.replica_channel import MasterSocket, SecondSocket
from rillet.server.replica_loading import Incoming, NewData, SnapshotFile, empty, load
from rillet.server.replicas import Replicas
from rillet.server.serve_while_loading import LoadingPhase

_PAUSE = 0.001  # seconds between two turns of applying a buffer, in which the event loop handles what has come


class _Transport:
    """The connection to the master as CLIENT LIST shows it and CLIENT KILL closes it."""

    def __init__(self, link: ReplicaLink, connection: MasterSocket) -> None:
        self._link = link
        self._connection = connection
        socket = connection.transport
        self.peer = address_of(socket.get_extra_info("peername"))
        self.local = address_of(socket.get_extra_info("sockname"))
        found = socket.get_extra_info("socket")
        self.fd = -1 if found is None else int(found.fileno())

    def kill(self) -> None:
        """Close the connection soon, after the command that runs; the link connects again."""
        self._link.kill_soon(self._connection)

    def close(self) -> None:
        """Close the connection."""
        self.kill()

    def woken(self) -> None:
        """Do nothing: a master's session never waits."""


class ReplicaLink:
    """The link of a server to its master; `follower` has its state.

    replicas: those of this server. log: its log, which stops during a load, or None. write_log: called with the guard
    held after changes of the master. port: returns the server's TCP port. is_stopping: whether the server stops.
    """

    def __init__(self, engine: Engine, loop: EngineLoop, replicas: Replicas, log: AofService | None, *,
                 write_log: Callable[[], None], port: Callable[[], int], is_stopping: Callable[[], bool]) -> None:
        self._engine = engine
        self._loop = loop
        self._replicas = replicas
        self._write_log = write_log
        self._port = port
        self._is_stopping = is_stopping
        self._settings: Any = engine.settings
        self.follower = Follower(engine, self, second=self)
        self.phase: LoadingPhase | None = None
        self._log = log
        self._connection: MasterSocket | None = None
        self._channel = SecondSocket(engine.settings, loop, self.follower)
        self._loading: asyncio.Task[None] | None = None
        self._file: SnapshotFile | None = None
        self._size = 0
        self._log_stopped = False

    # -- commands ------------------------------------------------------------------------------------

    def announce(self, host: str, port: int) -> None:
        """Show the address of the master that `follow` gets once the data is loaded."""
        self.follower.announce(host, port)

    def follow(self, host: str, port: int, *, resumable: bool = True) -> None:
        """Follow a master from now on (REPLICAOF host port)."""
        self._replicas.stream()  # the changes so far count in the position, and replicas of this server follow
        self._settings.replicaof = f"{host} {port}"
        self.follower.follow(host, port, resumable=resumable)

    def stop(self) -> None:
        """Become a master (REPLICAOF NO ONE)."""
        self._settings.replicaof = ""
        self.follower.stop()
        self._restart_log()

    def close(self) -> None:
        """Drop the connection, because the server stops."""
        self.disconnect()

    def tick(self) -> None:
        """Do the periodic work of the link; the server's timer calls this."""
        if self.follower.state == "none":
            return
        self.follower.tick()
        if self._log_stopped and self.follower.connected:
            self._restart_log()

    # -- the connection ------------------------------------------------------------------------------

    def connect(self, host: str, port: int) -> None:
        """Begin to open a connection."""
        self._connection = MasterSocket(self._engine.settings, self._loop, self)
        self._connection.open(host, port)

    def opened(self, socket: MasterSocket) -> None:
        """Take a new connection."""
        self.follower.transport = _Transport(self, socket)
        with self._loop.guard:
            self.follower.opened()

    def received(self, socket: MasterSocket, data: bytes) -> None:
        """Handle bytes of the master, and write the log."""
        self._apply(lambda: self.follower.received(data))

    def later(self, function: Callable[[], None]) -> None:
        """Call a function that applies changes, after the events that have come meanwhile.

        uvloop counts the time from the begin of the current iteration, which may be long: a timer that is set in this
        iteration could run before the sockets are read. So it is set in the next one.
        """
        loop = self._loop.loop
        loop.call_soon(loop.call_later, _PAUSE, self._apply, function)

    def _apply(self, function: Callable[[], None]) -> None:
        """Call a function that may apply changes of the master, and write the log."""
        with self._loop.guard:
            engine = self._engine
            if engine.refusal not in (None, READ_ONLY, FEW_REPLICAS) and self.follower.connected:
                self._cannot_write()
            function()
            if engine.log is not None:
                self._write_log()

    def _cannot_write(self) -> None:
        """End the process unless the settings allow a replica whose files lack changes of its master."""
        if not self._settings.replica_ignore_disk_write_errors:
            say(f"Replica was unable to write command to disk: {self._engine.refusal}", WARNING)
            os._exit(1)

    def ended(self, socket: MasterSocket, reason: str) -> None:
        """Handle the end of a connection, or a failure to open it."""
        self._connection = None
        with self._loop.guard:
            self.follower.lost(reason)

    def kill_soon(self, socket: MasterSocket) -> None:
        """End a connection in the next iteration of the event loop (CLIENT KILL)."""
        self._loop.loop.call_soon(self._kill, socket)

    def _kill(self, socket: MasterSocket) -> None:
        if socket is self._connection:
            with self._loop.guard:
                self.follower.closed("")

    def disconnect(self) -> None:
        """Drop the connections or the attempts to open them, and abort a snapshot."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._channel.close()
        self._abort_snapshot()

    def send(self, data: bytes) -> None:
        """Send bytes to the master."""
        if self._connection is not None:
            self._connection.write(data)

    def hold(self, held: bool) -> None:
        """Stop to read from the master, or continue."""
        if self._connection is not None:
            self._connection.hold(held)

    # -- the second connection -----------------------------------------------------------------------

    def open_channel(self, host: str, port: int) -> None:
        """Begin to open the second connection."""
        self._channel.open(host, port)

    def send_channel(self, data: bytes) -> None:
        """Send bytes to the master on the second connection."""
        self._channel.write(data)

    def close_channel(self) -> None:
        """Drop the second connection."""
        self._channel.close()

    def loads(self) -> str:
        """Return what is loaded at this time: "file", "stream", or "" for nothing."""
        return "" if self.phase is None else "stream" if isinstance(self.phase, Incoming) else "file"

    def _hold_snapshot(self, held: bool) -> None:
        """Stop to read the connection of the snapshot, or continue."""
        self._channel.hold(held) if self._channel.is_used else self.hold(held)

    def options(self) -> LinkOptions:
        """Return what the handshake says about this server."""
        settings = self._settings
        port = settings.replica_announce_port or (settings.tls_port if settings.tls_replication else self._port())
        version = settings.compat.redis_version.encode() if not settings.compat.valkey else b"9.1.0"
        return LinkOptions(
            settings.masteruser.encode("utf-8", "surrogateescape"),
            settings.masterauth.encode("utf-8", "surrogateescape"), port, settings.replica_announce_ip.encode(),
            version if settings.compat.valkey else b"", self._is_diskless(), rdb_channel=uses_channel(settings),
        )  # fmt: skip

    # -- the snapshot --------------------------------------------------------------------------------

    def _is_diskless(self) -> bool:
        """Return whether the snapshot is loaded without a file (useDisklessLoad)."""
        how = self._settings.repl_diskless_load
        if how == "on-empty-db":
            return not any(len(database) for database in self._engine.databases)
        return bool(how != "disabled")

    def begin_snapshot(self, size: int, same_history: bool) -> None:
        """Prepare for a snapshot: a file, or a loader that waits for its bytes."""
        self._size = max(size, 0)
        if not self._is_diskless():
            try:
                self._file = SnapshotFile(Path(self._settings.dir), self._engine.clock.now_ms() // 1000)
            except OSError as error:
                self.follower.closed(f"Opening the temp file needed for MASTER <-> REPLICA synchronization: "
                                     f"{error.strerror}")  # fmt: skip
            return
        swaps = self._settings.repl_diskless_load == "swapdb"
        incoming = Incoming(self._engine, self._hold_snapshot, refuses=not (swaps and same_history))
        self._start(incoming, incoming, "the snapshot of the master", NewData(self._engine) if swaps else None)

    def take_snapshot(self, data: bytes) -> None:
        """Take bytes of the snapshot."""
        if self._file is not None:
            try:
                self._file.receive(data)
            except OSError as error:
                self.follower.closed(f"Write error or short write writing to the DB dump file needed for MASTER <-> "
                                     f"REPLICA synchronization: {error.strerror}")  # fmt: skip
        elif isinstance(self.phase, Incoming):
            self.phase.receive(data)

    def end_snapshot(self) -> None:
        """Take the end of the snapshot; a file is loaded now."""
        if isinstance(self.phase, Incoming):
            self.phase.end()
        file, self._file = self._file, None
        if file is None:
            return
        path = Path(self._settings.dir) / (self._settings.dbfilename or "dump.rdb")
        try:
            file.finish(path)
            source = open(path, "rb", buffering=0)  # noqa: SIM115 - `_load` closes it
        except OSError as error:
            file.remove()
            self.follower.closed(f"Failed trying to rename the temp DB into {path.name} in MASTER <-> REPLICA "
                                 f"synchronization: {error.strerror}")  # fmt: skip
            return
        self._size = path.stat().st_size
        self._start(LoadingPhase(self._engine), source, str(path), None)

    def _start(self, phase: LoadingPhase, source: Any, name: str, new: NewData | None) -> None:
        before = self._loading
        self.phase = phase
        self._loading = self._loop.create_task(self._load(phase, source, name, new, before))

    async def _load(self, phase: LoadingPhase, source: Any, name: str, new: NewData | None,
                    before: asyncio.Task[None] | None) -> None:  # fmt: skip
        """Load the snapshot in turns with the event loop, then follow the stream; `before`: an aborted load."""
        engine, follower = self._engine, self.follower
        if before is not None:
            await asyncio.wait([before])
        if self.phase is not phase:
            return  # aborted before it began
        problem = ""
        db = 0
        loaded = False
        with self._loop.guard:
            self._stop_log()
            if new is None:
                self.log_line("MASTER <-> REPLICA sync: Flushing old data")
                follower.data_replaced()
                empty(engine, self._settings.replica_lazy_flush)
            self.log_line("MASTER <-> REPLICA sync: Loading DB in memory")

        def job(progress: Any) -> None:
            nonlocal db
            result = load(engine, source, name, new, progress, self._size)
            say(f"Done loading RDB, keys loaded: {result.keys}, keys expired: {result.expired}, empty keys skipped: "
                f"{result.empty}.")  # fmt: skip
            db = int(result.facts.get(b"repl-stream-db", b"0"))

        def is_over() -> bool:
            return self.phase is not phase or self._is_stopping()

        follower.asynchronous = not phase.refuses  # from now on, as the progress in INFO
        try:
            loaded = await phase.run(job, is_over)
        except (Corrupt, StoreError, OSError, ValueError) as error:
            problem = str(error)
        finally:
            if not isinstance(source, Incoming):
                source.close()
        if self.phase is not phase:  # the connection was dropped: what was loaded is a part of the data
            if new is None and not loaded:
                empty(engine, False)
            return
        self.phase, self.follower.asynchronous = None, False
        with self._loop.guard:
            if not loaded:
                if new is None:
                    empty(engine, False)
                follower.load_failed(problem or "the server stops")
                return
            if new is not None:
                follower.data_replaced()
                new.exchange()
            engine.dirty = 0
            self._delete_file(name, source)
            self._restart_log(None if isinstance(source, Incoming) else Path(name))
            follower.loaded(db)
            if engine.log is not None:
                self._write_log()

    def _delete_file(self, name: str, source: Any) -> None:
        """Delete a transferred file that nothing else needs (rdb-del-sync-files)."""
        settings = self._settings
        if settings.rdb_del_sync_files and not settings.appendonly and not settings.save and source is not self.phase:
            if not isinstance(source, Incoming):
                Path(name).unlink(missing_ok=True)

    def _abort_snapshot(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.remove()
        phase, self.phase = self.phase, None
        self.follower.asynchronous = False
        if isinstance(phase, Incoming):
            phase.cancel()

    # -- the log -------------------------------------------------------------------------------------

    def _stop_log(self) -> None:
        """Stop the log while the data is replaced; a rewrite begins it anew (stopAppendOnly)."""
        if self._log is not None and self._settings.appendonly and not self._log_stopped:
            self._log_stopped = True
            self._log.suspend()

    def _restart_log(self, file: Path | None = None) -> None:
        """Begin the log with the new data (startAppendOnlyWithRetry).

        file: an RDB file with this data. In Valkey it becomes the base of the log (restartAOFWithSyncRdb).
        """
        if not self._log_stopped or self._log is None:
            return
        reuses = self._settings.compat.valkey and self._settings.aof_use_rdb_preamble
        try:
            self._log.resume(file if reuses else None)
        except SettingError as error:
            say(f"{error}; trying again in a second", WARNING)
            return
        self._log_stopped = False

    # -- the log of the server -----------------------------------------------------------------------

    def log_line(self, text: str, warning: bool = False) -> None:
        """Write a line to the server's log."""
        say(in_words_of(self._settings.compat, text), WARNING if warning else NOTICE)

    def refused(self, text: str) -> None:
        """Log a command of the master that this server refused; end the process if the settings say so."""
        self.log_line(f"== CRITICAL == {text}", warning=True)
        if self._settings.propagation_error_behavior != "ignore" and self._settings.replica_read_only:
            self.log_line("This replica panicked sending an error to its master", warning=True)
            os._exit(1)
