"""The files of a server: its append-only log, and the RDB file that SAVE writes.

    rillet.persistence.aof.service     the log: replayed at the start, written before replies leave, rewritten
    rdb_service.py                     the RDB file: loaded at the start if there is no log (server.c:
                                       loadDataFromDisk), SAVE, BGSAVE
    shutdown.py                        SHUTDOWN and the signals

Both share one child process at a time, one cron, one write gate, and the shutdown.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from rillet.errors import CommandError, Misconf, StoreError
from rillet.persistence.announcement import NAME as OWNER
from rillet.persistence.announcement import Announcement, announce, announced
from rillet.persistence.aof.loader import LoadResult
from rillet.persistence.aof.rewrite_format import PURPOSE, ForkedBaseWriter
from rillet.persistence.aof.service import AofService
from rillet.persistence.aof.states import OFF, ON
from rillet.persistence.directory_lock import DirectoryLock
from rillet.persistence.foreign_server import reject_foreign_server
from rillet.persistence.fork import Children
from rillet.persistence.remedies import salvageable
from rillet.persistence.write_gate import WriteGate
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import SettingError
from rillet.server.data_directory import UnloadedFiles
from rillet.server.log_lines import WARNING, say, say_line
from rillet.server.rdb_service import RdbService
from rillet.server.serve_while_loading import LoadingPhase
from rillet.server.server import Server
from rillet.server.shutdown import Shutdown

_STORE_LOG = "appendonlydir"  # rillet.host.directory
# The address at which a server that listens on this address answers on the same machine.
_LOOPBACK = {"127.0.0.1": "127.0.0.1", "0.0.0.0": "127.0.0.1", "*": "127.0.0.1", "::1": "[::1]", "::": "[::1]",
             "::*": "[::1]", "localhost": "127.0.0.1"}  # fmt: skip


class ServerPersistence:
    """The log and the RDB file of a server's engine; is_store: the folder is the directory of a rillet store."""

    def __init__(self, engine: Engine, folder: Path, *, is_store: bool = False) -> None:
        self._engine = engine
        self._folder = folder
        self._lock = DirectoryLock()
        self._server: Server | None = None
        self._is_store = is_store
        self._unloaded = UnloadedFiles(engine.settings, folder)
        self.children = children = Children()
        children.on_fork = lambda microseconds: engine.latency.add(b"fork", microseconds * 1000)
        settings, gate = engine.settings, WriteGate(engine)
        self.aof = AofService(
            engine, folder / settings.appenddirname, settings.appendfilename, ForkedBaseWriter(engine, children),
            lock=self._lock, gate=gate, on_failure=lambda text: say(text, WARNING), say=say_line,
            busy=lambda: children.active is not None and not children.is_at(PURPOSE),
        )  # fmt: skip
        self.rdb = RdbService(engine, children, gate)
        self._snapshots = self.rdb.snapshots
        self.shutdown = Shutdown(engine, children, self._snapshots, self.aof.prepare_shutdown)
        self._loading = LoadingPhase(engine)
        self._loaded = False
        # The position in the replication stream that was stored with the log, None without a log.
        self._position: Mapping[bytes, bytes] | None = None

    async def open(self, stopping: Callable[[], bool]) -> bool:
        """Replay the log, or load the RDB file with `appendonly no`, while clients are answered.

        Return False if `stopping` returned True meanwhile.
        """
        if not self._is_store:
            self._unloaded.report()
        job = self._open_log if self._engine.settings.appendonly else self.rdb.open
        self._loaded = await self._loading.run(job, stopping)
        return self._loaded

    def _open_log(self, progress: Callable[[int, int], None] | None = None) -> None:
        if self._is_store:
            say(f"{self._snapshots.path.parent} is the directory of a rillet store: the append-only log is on")
        log = self.aof.log.folder
        reject_foreign_server(self._folder, log)
        try:
            self._lock.acquire(log)
        except OSError as error:
            raise StoreError(f"{error.filename or log} cannot be opened: {error.strerror}") from error
        self._announce()  # now, so that rillet.open waits while the log is loaded
        adopted = self._snapshots.path if self._is_store else None
        with salvageable(self._folder):
            result = self.aof.open(progress, begin_with_base=True, adopt=adopted)
        self._position = result.position
        if result.torn:
            say(result.torn, WARNING)
        say(_summary(result))

    def _announce(self) -> None:
        """Write owner.json, so that rillet.open attaches to this server; only for the log that a store would open."""
        if self._server is not None and self.aof.log.folder == self._folder / _STORE_LOG:
            with contextlib.suppress(OSError):  # the server does not depend on the file
                announce(self._folder, address_of(self._server))

    def _withdraw(self) -> None:
        """Remove owner.json before the lock of the log is released."""
        found = announced(self._folder)
        if found is not None and found.run_id == self._engine.run_id:
            with contextlib.suppress(OSError):
                (self._folder / OWNER).unlink()

    def facts(self) -> Mapping[bytes, bytes]:
        """Return the position in the replication stream that was stored with the loaded data."""
        return self._snapshots.loaded.facts if self._position is None else self._position

    def close(self) -> None:
        """Write and sync the log, and stop logging."""
        self._withdraw()
        stream = self._engine.replication.stream
        if self._loaded and stream is not None and self.aof.log.state == ON:
            stream.note_position(always=True)
        try:
            self.aof.close()
        except Misconf as error:
            say(f"Fail to fsync the AOF file: {error}", WARNING)
        self.children.stop()

    def attach(self, server: Server) -> None:
        """Run the periodic jobs on the server's timer, and shut the server down on a signal."""
        # After CONFIG SET appendonly no, the replies that wait for a sync of the log can be sent.
        self.aof.on_closed = lambda: server.call_soon(server.flush)
        self._server = server
        server.replica.log = self.aof
        self.rdb.attach()
        self.shutdown.attach(server)
        server.timers.jobs.append(self._cron)
        self._engine.defrag.is_blocked = lambda: self._snapshots.busy

    def _cron(self) -> None:
        """Poll the child process, and start due saves and rewrites in the order of server.c: serverCron."""
        if not self._loaded:
            return
        self.children.poll()
        self._snapshots.cron()
        self.aof.cron()
        self._snapshots.cron_scheduled()

    def setting_changed(self, name: str) -> None:
        """Apply a setting of the log or the RDB file; SettingError rejects it."""
        if name == "appendonly" and not self._loaded:
            raise SettingError("the dataset is still being loaded")
        if name == "appendonly" and self._is_store and not self._engine.settings.appendonly:
            raise SettingError("a store in a directory always has an append-only log")
        if name == "appendonly" and self._engine.settings.appendonly and self.aof.log.state == OFF:
            self._unloaded.set_log_aside()
        self.rdb.setting_changed(name)
        if name == "appendonly" and not self._engine.settings.appendonly:
            self._withdraw()
        self.aof.setting_changed(name)
        if name == "appendonly" and self.aof.log.state != OFF:
            self._announce()

    def info(self) -> dict[str, object]:
        """Return the fields of INFO persistence."""
        received = None if self._server is None else self._server.replica.phase
        loading = self._loading if received is None else received
        return {**self.rdb.info(), **self.aof.info(), **loading.info()}

    def reload(self, save: bool, flush: bool, merge: bool) -> None:
        """Write and load the RDB file (DEBUG RELOAD); rewrite the log if loading may have changed the data."""
        if save:
            self._snapshots.write()
        try:
            self._snapshots.reload(False, flush, merge)
        except CommandError as error:
            if self.aof.log.state != OFF:
                # The log's files lack the reloaded data: a replay might reject commands that are logged later.
                self.aof.lose(str(error).removeprefix("ERR "))
            raise
        if not (save and flush):
            self.aof.begin_anew()

    def load_log(self) -> None:
        """Empty the databases and replay the log (DEBUG LOADAOF)."""
        say(_summary(self.aof.reload()))


def address_of(server: Server) -> Announcement:
    """Return the addresses of a server for processes on the same machine."""
    socket = str(server.addresses.unix_path.absolute()) if server.addresses.unix_path is not None else ""
    hosts = [address.lstrip("-") for address in server.settings.bind.split()]
    everywhere = [_LOOPBACK[host] for host in hosts if host in _LOOPBACK]
    url = f"redis://{(everywhere or hosts)[0]}:{server.port}" if server.port and hosts else ""
    return Announcement(os.getpid(), socket, url, server.engine.run_id)


def _summary(result: LoadResult) -> str:
    """Return the line that reports a replay of the append-only log in the server's log."""
    dropped = f", {result.dropped} bytes of a torn end dropped" if result.dropped else ""
    refused = f", {result.refused} refused commands omitted" if result.refused else ""
    if result.adopted:
        return f"DB loaded from {result.adopted}, for a new log: {result.seconds:.3f} seconds, {result.keys} keys"
    return (f"DB loaded from append only file: {result.seconds:.3f} seconds, {result.commands} commands, "
            f"{result.keys} keys of a base, {result.bytes} bytes{dropped}{refused}")  # fmt: skip


__all__ = ["ServerPersistence"]
