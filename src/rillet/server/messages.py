"""Messages that clients did not ask for: of channels, of MONITOR, and keys that changed for clients that cache them.

They collect in the clients' sessions, and leave in the next loop iteration, one write for each client.
"""

from __future__ import annotations

from rillet.runtime.engine import Engine
from rillet.server.connection import ClientConnection
from rillet.server.engine_loop import EngineLoop


class Messages:
    """The messages that wait in one server."""

    def __init__(self, engine: Engine, loop: EngineLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._waiting: list[ClientConnection] = []
        self._delivers_soon = False

    def deliver_soon(self, connection: ClientConnection) -> None:
        """Schedule a connection: the next loop iteration sends its channel messages."""
        self._waiting.append(connection)
        self._schedule()

    def broadcast_soon(self) -> None:
        """Let the next loop iteration send the keys that changed to the clients that cache them."""
        if self._loop.runs_here:
            self._schedule()
        else:
            self._loop.post(self.deliver_now)

    def _schedule(self) -> None:
        if not self._delivers_soon:
            self._delivers_soon = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        with self._loop.guard:
            self.deliver_now()

    def deliver_now(self) -> None:
        """Send the messages for clients that cache keys or watch commands; the caller holds the guard."""
        self._delivers_soon = True  # at the end of this method
        try:
            self._engine.tracking.broadcast()
        finally:
            self._delivers_soon = False
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            connection.deliver()
