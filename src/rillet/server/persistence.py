"""The files of a server: its append-only log, and the RDB file that SAVE writes, around its event loop.

    rillet.host.files    the log: replayed at the start, written before replies leave, rewritten; the RDB file: loaded
                         at the start if there is no log (server.c: loadDataFromDisk), SAVE, BGSAVE
    shutdown.py          SHUTDOWN and the signals

While the data is loaded, clients are answered. owner.json announces the server to processes that open the directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from rillet.errors import CommandError, Misconf, StoreError
from rillet.host.data_directory import UnloadedFiles
from rillet.host.directory import LOG_FOLDER
from rillet.host.files import ForkingFiles
from rillet.persistence.announcement import NAME as OWNER
from rillet.persistence.announcement import Announcement, announce, announced
from rillet.persistence.aof.loader import LoadResult
from rillet.persistence.aof.states import OFF, ON
from rillet.persistence.foreign_server import reject_foreign_server
from rillet.persistence.fork import Child
from rillet.replication.restart import ExpiredAtStart
from rillet.runtime.engine import Engine
from rillet.runtime.settings.setting_types import SettingError
from rillet.server.log_lines import WARNING, say, say_line
from rillet.server.serve_while_loading import LoadingPhase
from rillet.server.server import Server
from rillet.server.shutdown import Shutdown

# The address at which a server that listens on this address answers on the same machine.
_LOOPBACK = {"127.0.0.1": "127.0.0.1", "0.0.0.0": "127.0.0.1", "*": "127.0.0.1", "::1": "[::1]", "::": "[::1]",
             "::*": "[::1]", "localhost": "127.0.0.1"}  # fmt: skip


class ServerPersistence(ForkingFiles):
    """The log and the RDB file of a server's engine; is_store: the folder is the directory of a rillet store."""

    def __init__(self, engine: Engine, folder: Path, *, is_store: bool = False) -> None:
        super().__init__(engine, folder, say_line, is_store=is_store)
        self._server: Server | None = None
        self._unloaded = UnloadedFiles(engine.settings, folder, say_line)
        self.shutdown = Shutdown(engine, self.children, self.snapshots, self.aof.prepare_shutdown)
        self.expired = ExpiredAtStart(engine.settings)
        self._loading = LoadingPhase(engine)
        self._loaded = False

    async def open(self, stopping: Callable[[], bool]) -> bool:
        """Replay the log, or load the RDB file with `appendonly no`, while clients are answered.

        Return False if `stopping` returned True meanwhile.
        """
        if not self._is_store:
            self._unloaded.report()
        job = self._open_log if self._engine.settings.appendonly else self._open_rdb
        self._loaded = await self._loading.run(job, stopping)
        return self._loaded

    def _open_rdb(self, progress: Callable[[int, int], None] | None = None) -> None:
        self.open_rdb(progress, self.expired.add)

    def _open_log(self, progress: Callable[[int, int], None] | None = None) -> None:
        if self._is_store:
            say(f"{self.snapshots.path.parent} is the directory of a rillet store: the append-only log is on")
        log = self.aof.log.folder
        reject_foreign_server(self._folder, log)
        try:
            self._lock.acquire(log)
        except OSError as error:
            raise StoreError(f"{error.filename or log} cannot be opened: {error.strerror}") from error
        self._announce()  # now, so that rillet.open waits while the log is loaded
        result = self.open_log(progress, begin_with_base=True, adopt=self.snapshots.path if self._is_store else None)
        if result.torn:
            say(result.torn, WARNING)
        say(_summary(result))

    def _announce(self) -> None:
        """Write owner.json, so that rillet.open attaches to this server; only for the log that a store would open."""
        if self._server is not None and self.aof.log.folder == self._folder / LOG_FOLDER:
            with contextlib.suppress(OSError):  # the server does not depend on the file
                announce(self._folder, address_of(self._server))

    def _withdraw(self) -> None:
        """Remove owner.json before the lock of the log is released."""
        found = announced(self._folder)
        if found is not None and found.run_id == self._engine.run_id:
            with contextlib.suppress(OSError):
                (self._folder / OWNER).unlink()

    def close(self) -> None:
        """Write and sync the log, and stop logging."""
        self._withdraw()
        stream = self._engine.replication.stream
        if self._loaded and stream is not None and self.aof.log.state == ON:
            stream.note_position(always=True)
        try:
            super().close()
        except Misconf as error:
            say(f"Fail to fsync the AOF file: {error}", WARNING)
        self.children.stop()

    def attach(self, server: Server) -> None:
        """Run the periodic jobs on the server's timer, and shut the server down on a signal."""
        # After CONFIG SET appendonly no, the replies that wait for a sync of the log can be sent.
        self.aof.on_closed = lambda: server.engine_loop.call_soon(server.replies.flush)
        self._server = server
        server.log = self.aof
        self._watch_children()
        self.shutdown.attach(server.timers, server.guard, server.pauses, server.request_stop)
        server.timers.jobs.append(self.cron)
        self._engine.defrag.is_blocked = lambda: self.snapshots.busy

    def _watch_children(self) -> None:
        """Let the event loop report the end of a child process."""
        loop = asyncio.get_running_loop()

        def unwatch(number: int) -> None:
            loop.remove_reader(number)

        def watch(child: Child) -> None:
            child.on_close = unwatch
            loop.add_reader(child.fileno(), self.children.poll)

        self.children.watch = watch

    def cron(self) -> None:
        """Do the periodic work, once the data is loaded."""
        if self._loaded:
            super().cron()

    def setting_changed(self, name: str) -> None:
        """Apply a setting of the log or the RDB file; SettingError rejects it."""
        if name == "appendonly" and not self._loaded:
            raise SettingError("the dataset is still being loaded")
        if name == "appendonly" and self._engine.settings.appendonly and self.aof.log.state == OFF:
            self._unloaded.set_log_aside()
        if name == "appendonly" and not self._engine.settings.appendonly and not self._is_store:
            self._withdraw()
        super().setting_changed(name)
        if name == "appendonly" and self.aof.log.state != OFF:
            self._announce()

    def info(self) -> dict[str, object]:
        """Return the fields of INFO persistence."""
        link = None if self._server is None else self._server.followed
        received = None if link is None else link.phase
        loading = self._loading if received is None else received
        return {**super().info(), **loading.info()}

    def reload(self, save: bool, flush: bool, merge: bool) -> None:
        """Write and load the RDB file (DEBUG RELOAD); rewrite the log if loading may have changed the data."""
        if save:
            self.snapshots.write()
        try:
            self.snapshots.reload(False, flush, merge)
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
