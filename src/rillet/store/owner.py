"""The owner's side of a durable store: the engine, its log and its rewrites, and a server thread for other processes.

The engine runs in the threads that call the store. Attached processes reach the engine through a Unix socket, which an
event loop in a separate thread serves. One lock protects the engine: a thread must hold the lock to run a command.

The event loop's thread also maintains the log: it retries failed writes, and rewrites a log that has grown enough
(rillet.persistence.aof.rewrite). A new process writes the base file from the log's closed files, so callers do not
wait, and the application's process is not forked. If no process can be started, or if the log failed, the owner writes
the base file itself, and all callers wait.
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from rillet.errors import StoreError
from rillet.loggers import logger
from rillet.modules.loading import NO_MODULES, OpenModules, load_all
from rillet.persistence.aof.rewrite_format import InlineBaseWriter, SpawnedBaseWriter
from rillet.persistence.aof.service import AofService
from rillet.persistence.write_gate import WriteGate
from rillet.runtime.engine import Engine
from rillet.runtime.host import DefaultHost
from rillet.runtime.settings.settings import SettingError, Settings
from rillet.server.host import ServerHost
from rillet.server.server import UNIX_SOCKETS, Server, event_loop_factory
from rillet.store.directory import LOG_FOLDER, Directory
from rillet.store.guarded_server import TURNS_OF_AN_ACCEPT, GuardedConnection, GuardedServer, redirect_to_null
from rillet.store.recovery import LoadingHost, recover
from rillet.store.serving import ServerLoop
from rillet.store.snapshots import StoreSnapshots

LOGGER, LOG = logger("owner"), logger("log")


class OwnerHost(ServerHost):
    """The host of a store's engine. SHUTDOWN is refused: the process that opened the store closes it."""

    def __init__(self, owner: Owner, server: Server) -> None:
        super().__init__(server)
        self._owner = owner

    def shutdown(self, *, save: bool, nosave: bool, force: bool, now: bool) -> bool:
        return DefaultHost.shutdown(self, save=save, nosave=nosave, force=force, now=now)

    def info_sections(self) -> Mapping[str, Callable[[], Mapping[str, Any]]]:
        owner = self._owner
        return {
            **super().info_sections(),
            "persistence": lambda: {**owner.snapshots.info(), **owner.aof.info()},
        }

    def setting_changed(self, name: str) -> None:
        self._owner.setting_changed(name)

    def save(self) -> None:
        self._owner.snapshots.save()

    def bgsave(self, *, later: bool, schedule: bool) -> bool:
        return self._owner.snapshots.background(later, schedule)

    def last_save(self) -> int:
        return self._owner.snapshots.last_save

    def flushed(self) -> bool:
        return self._owner.snapshots.flushed()

    def rewrite_log(self, *, later: bool) -> bool:
        return self._owner.aof.rewrite(later)


class Owner:
    """The process that holds the lock of a store's directory."""

    def __init__(self, directory: Directory, settings: Settings, lock: Any,
                 progress: Callable[[int, int], None] | None = None, *, separate: bool = False,
                 modules: OpenModules = NO_MODULES) -> None:  # fmt: skip
        self.directory = directory
        self._separate = separate
        self.engine = Engine(settings)
        self.engine.host = LoadingHost(self.engine)
        self._settings: Any = settings
        self.lock = lock
        load_all(self.engine, *modules)
        names = directory.redis_logs() or [settings.appendfilename]
        if len(names) > 1:
            raise StoreError(f"{directory.path / LOG_FOLDER} holds several logs: {', '.join(names)}; leave only one")
        inline, gate = InlineBaseWriter(self.engine), WriteGate(self.engine)
        self._spawned = SpawnedBaseWriter(settings)
        self.aof = AofService(
            self.engine, directory.path / LOG_FOLDER, names[0],
            self._spawned if SpawnedBaseWriter.possible() else inline, from_memory=inline, lock=directory.log_lock,
            gate=gate, on_failure=self._warn, busy=lambda: self.snapshots.saving,
        )  # fmt: skip
        self.log = self.aof.log
        self.rewriting = self.aof.rewriting
        self.snapshots: StoreSnapshots = StoreSnapshots(self.engine, directory.path, self.log, self.rewriting, gate)
        self.recovery = recover(directory.path, directory.killed, self.aof, progress, directory.snapshot)
        self._server: Server
        self._loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="rillet-owner", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            self._thread.join()
            self.aof.close()
            if isinstance(self._problem, OSError):
                raise StoreError(f"{directory.path}: other processes cannot attach: {self._problem}") from self._problem
            raise self._problem
        LOGGER.info("%s: this process (%d) owns the directory", directory.path, os.getpid())

    def _new_server(self) -> GuardedServer:
        return GuardedServer(self.engine, connection=GuardedConnection, guard=self.lock)

    def _warn(self, text: str) -> None:
        LOG.error("%s: %s", self.directory.path, text)
        warnings.warn(f"{self.directory.path}: {text}", RuntimeWarning, stacklevel=2)

    def _cron(self) -> None:
        self.aof.cron()
        self.snapshots.tick()

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
                runner.run(self._main())
        except BaseException as error:
            if self._ready.is_set():
                raise
            self._problem = error  # the event loop could not be created
            self._ready.set()

    async def _main(self) -> None:
        try:
            if UNIX_SOCKETS:
                self._settings.unixsocket = str(self.directory.socket_path())
            self._server = self._new_server()
            self.engine.host = OwnerHost(self, self._server)
            self._server.cron_jobs.append(self._cron)
            self._loop = asyncio.get_running_loop()
            await self._server.start(tcp=False)
            if self._server.addresses.unix_path is not None:
                self.directory.announce(self._server.addresses.unix_path, self._separate)
        except BaseException as error:
            self._problem = error
            return
        finally:
            self._ready.set()
        await self._server.wait()
        # asyncio accepts a connection a few iterations before it creates the connection's object. Wait for the object,
        # so that `stop` closes the connection; otherwise only the garbage collector would close it.
        for _ in range(TURNS_OF_AN_ACCEPT):
            await asyncio.sleep(0)
        await self._server.stop()

    def setting_changed(self, name: str) -> None:
        """Apply a setting that CONFIG SET changed; raise SettingError to reject it."""
        if name == "appendonly":
            raise SettingError("a store in a directory always has an append-only log")
        if name == "dir":
            raise SettingError("the directory of an open store cannot be changed")
        self.snapshots.refuse_or_not()
        self.aof.setting_changed(name)
        if name != "appendfsync":
            self._server.setting_changed(name)

    def forget_in_child(self) -> None:
        """Release the parent's files and sockets in a forked child, so that the parent can continue to serve.

        `_from_parents` keeps the objects alive, because their descriptors were only redirected.
        """
        redirect_to_null(self._server, *self.log.descriptors(), *self._spawned.descriptors(),
                         *self.snapshots.descriptors())  # fmt: skip
        self._spawned.forget_in_child()
        self.snapshots.forget_in_child()
        self.directory.forget_in_child()
        _from_parents.append(self)

    @property
    def where(self) -> ServerLoop:
        """The server, and the event loop of its thread."""
        return ServerLoop(self._server, self._loop)

    def is_this_thread(self) -> bool:
        """Return whether the caller is the thread that serves attached processes."""
        return self._thread is threading.current_thread()

    def close(self) -> None:
        """Stop serving attached processes, write and sync the log, then release the directory's lock."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._loop.call_soon_threadsafe(self._server.request_stop)
            self._thread.join()
        try:
            with self.lock:
                self.snapshots.stop_child()
                self.aof.close()
        finally:
            self.directory.unlock()
            LOGGER.info("%s: closed; this process (%d) no longer owns the directory", self.directory.path, os.getpid())


_from_parents: list[Owner] = []
