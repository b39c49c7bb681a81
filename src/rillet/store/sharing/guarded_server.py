"""A server whose engine is shared with the threads of the process: each access to the engine holds the lock."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from rillet.server.connection import ClientConnection
from rillet.server.server import Server

# Loop iterations after which asyncio has created the object of a connection that it accepted.
TURNS_OF_AN_ACCEPT = 5


def _guarded(method: Any) -> Any:
    """Return a connection's method, changed to hold `server.guard`, the engine's lock, while it runs."""

    def guarded(self: GuardedConnection, *args: object) -> None:
        with self.server.guard:
            method(self, *args)

    return guarded


class GuardedConnection(ClientConnection):
    """A connection whose engine is shared with other threads."""

    __slots__ = ()
    connection_made = _guarded(ClientConnection.connection_made)
    data_received = _guarded(ClientConnection.data_received)
    resume_writing = _guarded(ClientConnection.resume_writing)
    connection_lost = _guarded(ClientConnection.connection_lost)
    _expired = _guarded(ClientConnection._expired)

    def woken(self) -> None:
        # Any thread may wake a blocked client, but only the event loop's thread may change timers.
        if threading.get_ident() == self.server.engine_loop.thread:
            self.server.replies.resume_soon(self)
        else:
            self.server.loop.call_soon_threadsafe(self.resume)

    def _relieve(self) -> None:
        """Leave the messages to the event loop's next iteration, because only the loop's thread may send."""

    def resume(self) -> None:
        with self.server.guard:
            self._stop_timer()
            super().resume()

    def close(self) -> None:
        """Close the socket in the event loop's thread, because any thread may run CLIENT KILL."""
        try:
            here = asyncio.get_running_loop() is self.server.loop
        except RuntimeError:
            here = False
        if here:
            super().close()
        else:
            self.session.closing = True
            self.server.loop.call_soon_threadsafe(super().close)


def descriptors(server: Server) -> list[int]:
    """Return the file descriptors of a server's listening and connected sockets."""
    numbers = [sock.fileno() for listener in server.addresses.listeners for sock in listener.sockets]
    for connection in server.connections:
        sock = connection.transport.get_extra_info("socket") if connection.transport is not None else None
        if sock is not None:
            numbers.append(sock.fileno())
    return numbers
