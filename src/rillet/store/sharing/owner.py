"""The owner's side of a durable store: the engine, its log and its rewrites, and a socket for other processes.

The engine runs in the threads that call the store. One lock protects it: a thread must hold the lock to run a command.

    OwnerThread     runs the engine's timers, and waits for the first client of the directory's Unix socket
    EngineServer    replaces it when a client has come, or when a command or `store.serve` needs a server

Both maintain the log: they retry failed writes, and rewrite a log that has grown enough
(rillet.persistence.aof.rewrite). A new process writes the base file from the log's closed files, so callers do not
wait, and the application's process is not forked. If no process can be started, or if the log failed, the owner writes
the base file itself, and all callers wait.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rillet.errors import StoreClosed, StoreError
from rillet.host.directory import LOG_FOLDER, Directory
from rillet.host.files import SpawningFiles
from rillet.host.memory_services import MemoryServices
from rillet.host.recovery import recovered
from rillet.host.timers import EngineTimers
from rillet.loggers import logger
from rillet.modules.loading import NO_MODULES, OpenModules, load_all
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.server.unix_socket import UNIX_SOCKETS, UnixSocket
from rillet.store.display.progress import ProgressBar
from rillet.store.sharing.owner_services import QuietServices
from rillet.store.sharing.owner_thread import OwnerThread, redirect_to_null

if TYPE_CHECKING:
    from rillet.server.server import Server
    from rillet.store.sharing.serving import EngineServer

LOGGER, LOG = logger("owner"), logger("log")
_OF_SOCKETS, _OF_LOG = ("bind", "port", "tls-port"), ("appendonly", "appendfsync")


class Owner:
    """The process that holds the lock of a store's directory."""

    def __init__(self, directory: Directory, settings: Settings, lock: Any,
                 progress: Callable[[int, int], None] | None = None, *, separate: bool = False,
                 modules: OpenModules = NO_MODULES) -> None:  # fmt: skip
        self.directory = directory
        self._separate = separate
        self.engine = Engine(settings)
        self.engine.services = MemoryServices(self.engine, lock)
        self._settings: Any = settings
        self.lock = lock
        load_all(self.engine, *modules)
        names = directory.redis_logs() or [settings.appendfilename]
        if len(names) > 1:
            raise StoreError(f"{directory.path / LOG_FOLDER} holds several logs: {', '.join(names)}; leave only one")
        self.files = SpawningFiles(self.engine, directory.path, directory.path / LOG_FOLDER, names[0],
                                   directory.log_lock, self._warn)  # fmt: skip
        with ProgressBar(f"{directory.path.name}: replaying") as bar:
            replayed = self.files.open_log(progress or bar, adopt=directory.snapshot)
        self.recovery = recovered(directory.path, directory.killed, replayed)
        self._closed = False
        self._server: EngineServer | None = None
        self.timers = EngineTimers(self.engine, lock, self._write, lambda: settings.hz)
        self.timers.jobs.append(self.cron)
        try:
            self.services = self.engine.services = QuietServices(self)
            self._socket = self._listen() if UNIX_SOCKETS else None
            self._thread = OwnerThread(None if self._socket is None else self._socket.opened, self.server)
            self.timers.start(self._thread.later)
            if self._socket is not None:
                directory.announce(self._socket.path, separate)
        except BaseException as error:
            self.files.close()
            if isinstance(error, OSError):
                raise StoreError(f"{directory.path}: other processes cannot attach: {error}") from error
            raise
        LOGGER.info("%s: this process (%d) owns the directory", directory.path, os.getpid())

    def _listen(self) -> UnixSocket:
        path = self.directory.socket_path()
        self._settings.unixsocket = str(path)
        return UnixSocket(path, self._settings)

    def _write(self) -> None:
        self.engine.log.write()

    def server(self) -> EngineServer:
        """Return the server around the engine; the first call starts it, in place of this object's thread."""
        with self.lock:
            if self._server is None:
                if self._closed:
                    raise StoreClosed("the store is closed")
                self._server = self._new_server()
                self._server.server.timers.jobs.append(self.cron)
                self._thread.end()
            return self._server

    def _new_server(self, kind: type[Server] | None = None) -> EngineServer:
        from rillet.server.server import Server
        from rillet.store.sharing.served_owner import OwnerServices
        from rillet.store.sharing.serving import EngineServer

        return EngineServer(self.engine, self.lock, kind or Server, lambda server: OwnerServices(self, server),
                            self._socket)  # fmt: skip

    def _warn(self, text: str) -> None:
        LOG.error("%s: %s", self.directory.path, text)
        warnings.warn(f"{self.directory.path}: {text}", RuntimeWarning, stacklevel=2)

    def cron(self) -> None:
        """Maintain the files, several times a second."""
        if not self._closed:
            self.files.cron()

    def setting_changed(self, name: str) -> None:
        """Apply a setting that CONFIG SET changed; raise SettingError to reject it."""
        self.files.setting_changed(name)
        if name in _OF_SOCKETS or (self._server is not None and name not in _OF_LOG):
            self.server().server.setting_changed(name)
        elif name == "maxmemory":
            self.timers.evict_soon()

    def forget_in_child(self) -> None:
        """Release the parent's files and sockets in a forked child, so that the parent can continue to serve.

        `_from_parents` keeps the objects alive, because their descriptors were only redirected.
        """
        numbers = self.files.descriptors()
        if self._server is not None:
            self._server.forget_in_child()
        elif self._socket is not None:
            numbers.append(self._socket.opened.fileno())
        redirect_to_null([*numbers, *self._thread.descriptors()])
        self.files.forget_in_child()
        self.directory.forget_in_child()
        _from_parents.append(self)

    def is_this_thread(self) -> bool:
        """Return whether the caller is the thread that runs the timers or serves attached processes."""
        return self._thread.is_this_thread() or (self._server is not None and self._server.is_this_thread())

    def close(self) -> None:
        """Stop serving attached processes, write and sync the log, then release the directory's lock."""
        with self.lock:
            self._closed = True
        self._thread.end()
        if not self.lock._is_owned():
            self._thread.join()
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.opened.close()
            self._socket.remove()
        self.services.close()
        try:
            with self.lock:
                self.files.close()
        finally:
            self.directory.unlock()
            LOGGER.info("%s: closed; this process (%d) no longer owns the directory", self.directory.path, os.getpid())


_from_parents: list[Owner] = []
