"""The sockets between a replica and its master: the link, and the second one that carries a snapshot.

    event loop ── bytes ──► owner.received ──► Follower      owner.opened, .received, .ended
        ▲
        └── open, write, hold, close

A `MasterSocket` belongs to one owner and is opened once. After `close` it is deaf: no callback comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, Protocol

from rillet.errors import StoreError
from rillet.replication.replica import Follower
from rillet.runtime.settings.settings import Settings
from rillet.server.engine_loop import EngineLoop
from rillet.server.tls import client_context


class SocketOwner(Protocol):
    """The handler of a MasterSocket's events."""

    def opened(self, socket: MasterSocket) -> None:
        """Handle a connection that is open."""

    def received(self, socket: MasterSocket, data: bytes) -> None:
        """Handle bytes of the master."""

    def ended(self, socket: MasterSocket, reason: str) -> None:
        """Handle the end of the connection, or a failure to open it."""


class MasterSocket(asyncio.Protocol):
    """One connection to a master."""

    def __init__(self, settings: Settings, loop: EngineLoop, owner: SocketOwner) -> None:
        self._settings: Any = settings
        self._loop = loop
        self._owner = owner
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self.transport: Any = None

    def open(self, host: str, port: int) -> None:
        """Begin to open the connection; `opened` or `ended` of the owner is called later."""
        self._task = self._loop.create_task(self._open(host, port))

    async def _open(self, host: str, port: int) -> None:
        settings = self._settings
        source = settings.bind_source_addr
        try:
            context = client_context(settings) if settings.tls_replication else None
            await self._loop.loop.create_connection(
                lambda: self, host, port, ssl=context, local_addr=(source, 0) if source else None,
                server_hostname="" if context is not None else None)  # fmt: skip
        except (OSError, ssl.SSLError, StoreError) as error:
            if not self._closed:
                self._closed = True
                self._owner.ended(self, f"Error condition on socket for SYNC: {getattr(error, 'strerror', 0) or error}")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self._closed:
            self.transport.abort()
            return
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        if not self._closed:
            self._owner.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closed:
            self._closed = True
            self._owner.ended(self, "" if exc is None else f"Error on the link to MASTER: {exc}")

    def write(self, data: bytes) -> None:
        """Send bytes, if the connection is open."""
        if self.transport is not None and not self._closed:
            self.transport.write(data)

    def hold(self, held: bool) -> None:
        """Stop to read, or continue."""
        if self.transport is not None and not self._closed:
            with contextlib.suppress(RuntimeError):  # the connection is closing
                self.transport.pause_reading() if held else self.transport.resume_reading()

    def close(self) -> None:
        """Drop the connection, or the attempt to open it."""
        self._closed = True
        if self.transport is not None:
            self.transport.abort()
        elif self._task is not None:
            self._task.cancel()


class SecondSocket:
    """The second connection of a link (the RDB channel); `follower` handles what it brings."""

    def __init__(self, settings: Settings, loop: EngineLoop, follower: Follower) -> None:
        self._settings = settings
        self._loop = loop
        self._follower = follower
        self._socket: MasterSocket | None = None

    def open(self, host: str, port: int) -> None:
        """Begin to open a connection instead of an older one."""
        self.close()
        self._socket = MasterSocket(self._settings, self._loop, self)
        self._socket.open(host, port)

    def write(self, data: bytes) -> None:
        """Send bytes to the master."""
        if self._socket is not None:
            self._socket.write(data)

    def hold(self, held: bool) -> None:
        """Stop to read from the master, or continue."""
        if self._socket is not None:
            self._socket.hold(held)

    @property
    def is_used(self) -> bool:
        """Whether there is a connection, or an attempt to open one."""
        return self._socket is not None

    def close(self) -> None:
        """Drop the connection."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()

    def opened(self, socket: MasterSocket) -> None:
        """Begin the handshake."""
        with self._loop.guard:
            self._follower.channel_opened()

    def received(self, socket: MasterSocket, data: bytes) -> None:
        """Handle bytes of the master."""
        with self._loop.guard:
            self._follower.channel_received(data)

    def ended(self, socket: MasterSocket, reason: str) -> None:
        """Handle the end of the connection."""
        self._socket = None
        with self._loop.guard:
            self._follower.channel_closed(reason)
