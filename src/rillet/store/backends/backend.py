"""Backends: where a store's engine runs, and how the store reaches it.

    MemoryBackend      an engine of this store, in memory
    DirectoryBackend   a directory: this process owns it, or is attached to the owner (store/sharing/)
    ServerBackend      a server or a cluster (store/backends/server_backend.py)

A backend provides a transport, and a new transport after the first one broke. Each is imported when it is used, and so
are the sockets of a store in memory.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.host.engine_lock import engine_lock
from rillet.host.engine_thread import completed
from rillet.host.idle_timers import IdleTimers
from rillet.host.memory_services import MemoryServices
from rillet.keyspace.clock import Clock
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.store.transports.in_process import InProcessTransport
from rillet.store.transports.transport import Transport

if TYPE_CHECKING:
    from rillet.host.recovery import Recovery
    from rillet.modules.loading import OpenModules
    from rillet.store.sharing.serving import EngineServer, ServerLoop

Execute = Callable[..., Any]


class Backend(ABC):
    """The place where a store's engine runs, and access to the engine."""

    path: str | None = None
    url: str | None = None

    @property
    def recovery(self) -> Recovery | None:
        """The result of replaying the log, if this process opened the directory as its owner."""
        return None

    @abstractmethod
    def transport(self) -> Transport:
        """Return the transport for later calls."""

    def replace(self, broken: Transport) -> Transport:
        """Return the transport for later calls after `broken` failed; `broken` itself if it can be used again."""
        return broken

    def before_fork(self, afterwards: list[Callable[[], object]]) -> None:
        """Prepare a fork of this process; add what the parent must call after the fork."""
        return

    def after_fork(self) -> Transport:
        """Return the transport of a forked child."""
        return self.transport()

    @abstractmethod
    def save(self, execute: Execute, path: Path | None) -> Path:
        """Write an RDB file."""

    def socket(self) -> str | None:
        """Return the path of the Unix socket of the store's owner, or None if there is no owner."""
        return None

    def where(self) -> ServerLoop | None:
        """Return the server around the engine in this process, which listens for `store.serve`; None without one."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Close the transport and release the store's files."""


class MemoryBackend(Backend):
    """An engine in memory and its lock. A forked child has a copy of the engine.

    active_expiry: delete expired keys that no command accesses.
    """

    def __init__(self, settings: Settings, clock: Clock | None = None, *, active_expiry: bool = True,
                 modules: OpenModules | None = None) -> None:  # fmt: skip
        self._transport = InProcessTransport(Engine(settings, clock), engine_lock())
        self._expires = active_expiry
        self._begin()
        if modules is not None:
            from rillet.modules.loading import load_all

            load_all(self._transport.engine, *modules)
        self._server: EngineServer | None = None
        self._guard = threading.Lock()

    def _begin(self) -> None:
        engine, lock = self._transport.engine, self._transport.lock
        self.timers = IdleTimers(engine, lock, expires=self._expires)
        self._services = engine.services = self._new_services(engine, lock)

    def _new_services(self, engine: Engine, lock: Any) -> MemoryServices:
        return MemoryServices(engine, lock, self.timers.thread)

    def transport(self) -> InProcessTransport:
        return self._transport

    def save(self, execute: Execute, path: Path | None) -> Path:
        if path is None:
            raise ValueError("a store in memory has no directory: pass the path of the RDB file")
        from rillet.persistence.rdb.writer import write_rdb

        with self._transport.lock:
            write_rdb(path, self._transport.engine, draft=path.with_name(f".{path.name}.{os.getpid()}"))
        return path

    def before_fork(self, afterwards: list[Callable[[], object]]) -> None:
        """Wait until no other thread runs a command, so that the child's copy of the engine is complete."""
        lock = self._transport.lock
        afterwards.append(lambda: lock.__exit__(None, None, None))  # first, because an interrupt may follow
        lock.__enter__()

    def after_fork(self) -> InProcessTransport:
        self._transport.after_fork(engine_lock())
        self._guard = threading.Lock()
        if self._server is not None:
            self._server.forget_in_child()
            self._server = None
        self._begin()
        return self._transport

    def where(self) -> ServerLoop:
        with self._guard:
            if self._server is None:
                from rillet.store.sharing.serving import EngineServer

                self._server = EngineServer(self._transport.engine, self._transport.lock)
            return self._server.where()

    def close(self) -> None:
        if self._must_close_here():
            self._close()
        else:
            completed(self._close)

    def _must_close_here(self) -> bool:
        """Return whether another thread that closes would wait for this one."""
        return self._transport.runs_here() or (self._server is not None and self._server.is_this_thread())

    def _close(self) -> None:
        with self._guard:
            server, self._server = self._server, None
        if server is not None:
            server.close()
        self._services.close()
        with self._transport.lock:
            self.timers.close()
        self._transport.close()

    def __repr__(self) -> str:
        return "in memory"
