"""The services of a store in memory: a thread calls functions of modules later, and holds the engine's lock.

    module ── post, call_later ──► timers ──► thread ── lock ── function ── log

A store that also serves a socket has an event loop, which calls the functions instead (rillet.server.server_services).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rillet.loggers import logger
from rillet.protocol.peer_replies import Replies
from rillet.runtime.engine import Engine
from rillet.runtime.engine_services import DefaultServices
from rillet.timer_thread import TimerThread

if TYPE_CHECKING:
    from rillet.client.peer_sockets import PeerSockets

LOGGER = logger("store")


class MemoryServices(DefaultServices):
    """The services of an engine in memory."""

    def __init__(self, engine: Engine, lock: Any, thread: TimerThread | None = None) -> None:
        super().__init__(engine)
        self._lock = lock
        self._thread = thread or TimerThread("a function of a module failed")
        self.peers: PeerSockets | None = None

    def exchange(self, address: tuple[str, str], setup: list[list[bytes]], database: int,
                 commands: list[list[bytes]], timeout_ms: int) -> Replies:  # fmt: skip
        """Send commands to another server and return its replies (MIGRATE)."""
        if self.peers is None:
            from rillet.client.peer_sockets import PeerSockets

            self.peers = PeerSockets()
        return self.peers.exchange(address, setup, database, commands, timeout_ms)

    def log_line(self, text: str, level: str = "warning") -> None:
        """Write a line to the logger of stores."""
        LOGGER.log({"warning": 30, "notice": 20}.get(level, 10), "%s", text)

    def post(self, function: Callable[[], object]) -> None:
        """Call a function soon in the thread."""
        self.call_later(0, function)

    def call_later(self, seconds: float, function: Callable[[], object]) -> Callable[[], object]:
        """Call a function after a time in the thread; return a function that cancels this."""
        return self._thread.later(seconds, lambda: self._run_job(function)).cancel

    def _run_job(self, function: Callable[[], object]) -> None:
        with self._lock:
            if not self._thread.ended:
                function()
                if self._engine.log is not None:
                    self._engine.log.write()

    def close(self) -> None:
        """Drop the jobs, end the thread and close the connections to other servers."""
        if self.peers is not None:
            self.peers.close()
        self._thread.end()
