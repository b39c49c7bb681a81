"""The owner's side of a durable store: the engine, its log, and a server thread for other processes.

The engine runs in the threads that call the store; attached processes reach it through a Unix socket
that an event loop in a thread of its own serves. One lock keeps them apart: everything a connection
does to the engine happens while its thread holds it.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable

from rillet.commands.settings import Settings
from rillet.engine import Engine
from rillet.persistence.aof import AppendOnlyLog, Replayed
from rillet.server.connection import Connection
from rillet.server.server import Server, event_loop_factory
from rillet.store.directory import LOG_FOLDER, Directory


class GuardedConnection(Connection):
    """A connection whose engine is shared with other threads."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new client."""
        with self.server.guard:
            super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Run what became whole and answer."""
        with self.server.guard:
            super().data_received(data)

    def resume_writing(self) -> None:
        """The client caught up."""
        with self.server.guard:
            super().resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the client."""
        with self.server.guard:
            super().connection_lost(error)

    def _expired(self) -> None:
        with self.server.guard:
            super()._expired()

    def _woken(self) -> None:
        # Any thread may have added what the client waits for; timers belong to the loop's thread.
        self.server.loop.call_soon_threadsafe(self._resume)

    def _resume(self) -> None:
        with self.server.guard:
            self._stop_timer()
            super()._resume()


class Owner:
    """The process that holds the lock of a store's directory."""

    def __init__(self, directory: Directory, settings: Settings, lock: threading.RLock,
                 progress: Callable[[int, int], None] | None = None) -> None:
        self.directory = directory
        self.engine = Engine(settings)
        self.lock = lock
        self.log = AppendOnlyLog(directory.path / LOG_FOLDER, fsync=settings.appendfsync, on_failure=self._failed)
        self.replayed: Replayed = self.log.open(self.engine, progress)
        self._server: Server
        self._loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._problem: BaseException | None = None
        settings.unixsocket = str(directory.socket_path())
        self._thread = threading.Thread(target=self._serve, name="rillet-owner", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            self.log.close()
            raise self._problem

    def _failed(self, reason: str) -> None:
        self.engine.refusal = reason
        warnings.warn(f"{self.directory.path}: {reason}; writes are refused from now on", RuntimeWarning, stacklevel=2)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._server = Server(self.engine, connection=GuardedConnection, guard=self.lock)
        self._loop = asyncio.get_running_loop()
        try:
            await self._server.start(tcp=False)
        except BaseException as error:
            self._problem = error
            return
        finally:
            if self._problem is None:
                self.directory.announce(self._server.unix_path)
            self._ready.set()
        await self._server.wait()
        await self._server.stop()

    def close(self) -> None:
        """Stop serving others, then write and sync the log; the lock goes last."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._server.request_stop)
            self._thread.join()
        try:
            with self.lock:
                self.engine.log = None
                self.log.close()
        finally:
            self.directory.unlock()
