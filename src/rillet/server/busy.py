"""Clients that are served while a script runs for too long (Redis: processEventsWhileBlocked).

The event loop waits for the command that runs the script, so it cannot read from the other clients: neither asyncio's
loop nor uvloop's can run an iteration inside a callback. After `busy-reply-threshold` the script's hook calls `serve`,
which does by hand what the loop would do:

    sockets of clients     poll, read, run the commands, write the replies at once
    listening sockets      poll, accept; the new client gets a temporary transport, and after the script a real one

Nearly all commands are refused with BUSY (rillet.runtime.admission), so the replies are short and nothing is logged.
Not served until the script ends: the client that runs the script; clients with replies that wait for the log or for the
client to read. A client with TLS is served by its TlsTransport, which decrypts the bytes, also during its handshake.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Iterable
from typing import Any

from rillet.keyspace.clock import Clock
from rillet.runtime.session import Session
from rillet.server.addresses import Addresses
from rillet.server.connection import ClientConnection
from rillet.server.engine_loop import EngineLoop
from rillet.server.listeners import ListeningAddress
from rillet.server.tls import TlsTransport

_PERIOD_MS = 2  # between two calls of poll
_READ = 16 * 1024
_ACCEPTED = 64  # new clients in one call


class TemporaryTransport:
    """A transport without an event loop, for a client that connects while a script runs."""

    def __init__(self, raw: socket.socket) -> None:
        self.socket = raw
        self.unsent = b""
        self._closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the addresses and the socket, as asyncio's transports do."""
        if name == "sockname":
            return self.socket.getsockname()
        if name == "peername":
            return self.socket.getpeername()
        return self.socket if name == "socket" else default

    def write(self, data: bytes | bytearray) -> None:
        """Send what the socket takes; keep the rest for the real transport."""
        self.unsent += data
        with contextlib.suppress(BlockingIOError):
            try:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
            except BrokenPipeError:
                self.abort()
            except ConnectionError:
                self.abort()

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that are not sent yet."""
        return len(self.unsent)

    def is_closing(self) -> bool:
        """Return whether the connection is closed or will be."""
        return self._closing

    def close(self) -> None:
        """Close the connection after the script."""
        self._closing = True

    abort = close

    def pause_reading(self) -> None:
        """Do nothing: a client is read from only after the replies to its last commands."""

    resume_reading = pause_reading


class _Adoption:
    """The protocol that a real transport gets first; it passes the transport to the client's connection."""

    def __init__(self, connection: ClientConnection | TlsTransport, unsent: bytes) -> None:
        self._connection = connection
        self._unsent = unsent

    def connection_made(self, transport: Any) -> None:
        """Replace the temporary transport."""
        self._connection.take_transport(transport)
        transport.set_protocol(self._connection)
        if self._unsent:
            transport.write(self._unsent)

    def connection_lost(self, error: Exception | None) -> None:
        """Close the session: the client left before the transport was replaced."""
        self._connection.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on that arrive before the protocol is replaced."""
        self._connection.data_received(data)

    def eof_received(self) -> bool:
        """Close the connection."""
        return False

    def pause_writing(self) -> None:
        """Pass on that the client reads too slowly."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the client has read its replies."""
        self._connection.resume_writing()


class BusyClients:
    """Serves the clients of one server while a script runs; handshakes: those whose TLS is not ready."""

    def __init__(self, clock: Clock, loop: EngineLoop, addresses: Addresses, connections: Iterable[ClientConnection],
                 handshakes: Iterable[TlsTransport]) -> None:  # fmt: skip
        self._clock = clock
        self._loop = loop
        self._addresses = addresses
        self._connections = connections
        self._handshakes = handshakes
        self._next_ms = 0
        self._new: dict[int, tuple[ClientConnection | TlsTransport, TemporaryTransport]] = {}

    def serve(self, caller: Session) -> None:
        """Read from the clients that sent something, and accept new ones; return at once if it is too early."""
        now = self._clock.uptime_ms()
        if now < self._next_ms:
            return
        self._next_ms = now + _PERIOD_MS
        clients = self._clients(caller)
        listeners = {one.fileno(): (listener, one) for listener in self._addresses.listeners
                     for one in listener.sockets}  # fmt: skip
        poll = select.poll()
        for fd in (*clients, *listeners):
            poll.register(fd, select.POLLIN)
        for fd, _event in poll.poll(0):
            if fd in listeners:
                self._accept(*listeners[fd])
            else:
                self._read(fd, clients[fd])

    def _clients(self, caller: Session) -> dict[int, ClientConnection | TlsTransport]:
        """Return the clients that can be served, by their file descriptors."""
        clients: dict[int, ClientConnection | TlsTransport] = {}
        for connection in self._connections:
            fd = connection.fd
            if fd >= 0 and connection.session is not caller:
                transport: Any = connection.transport
                if isinstance(transport, TlsTransport):
                    if transport.can_serve_busy:
                        clients[fd] = transport
                elif self._can_serve(connection):
                    clients[fd] = connection
        for one in self._handshakes:
            raw = one.get_extra_info("socket")
            if raw is not None and raw.fileno() >= 0 and one.can_serve_busy:
                clients[raw.fileno()] = one
        return clients

    def _can_serve(self, connection: ClientConnection) -> bool:
        transport = connection.transport
        return (transport is not None and not transport.is_closing() and connection.settled
                and not transport.get_write_buffer_size())  # fmt: skip

    def _read(self, fd: int, client: ClientConnection | TlsTransport) -> None:
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if fd in self._new:
                _, temporary = self._new.pop(fd)
                temporary.socket.close()
                client.connection_lost(None)
            return  # the transport of an older client finds this out after the script
        if isinstance(client, TlsTransport):
            client.serve_busy(data, fd)
            return
        replies = client.run_busy(data)
        if replies and fd in self._new:
            client.transport.write(replies)
        elif replies:
            try:
                sent = os.write(fd, replies)
            except BlockingIOError:
                sent = 0
            except OSError:
                return
            if sent < len(replies):
                client.transport.write(replies[sent:])
        if client.session.closing:
            client.transport.close()

    def _accept(self, listener: ListeningAddress, listening: Any) -> None:
        with socket.socket(fileno=os.dup(listening.fileno())) as own:
            own.setblocking(False)
            for _ in range(_ACCEPTED):
                try:
                    raw, _address = own.accept()
                except OSError:
                    return
                raw.setblocking(False)
                if raw.family != getattr(socket, "AF_UNIX", None):
                    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                transport = TemporaryTransport(raw)
                client = self._addresses.factory(listener)()
                client.connection_made(transport)
                if transport.is_closing() or (isinstance(client, ClientConnection) and client.transport is None):
                    raw.close()  # refused
                    continue
                self._new[raw.fileno()] = client, transport

    def script_ended(self) -> None:
        """Give the clients that connected meanwhile to the event loop."""
        new, self._new = self._new, {}
        self._next_ms = 0
        for connection, transport in new.values():
            if transport.is_closing():
                transport.socket.close()
                connection.connection_lost(None)
            else:
                self._loop.create_task(self._adopt(connection, transport))

    async def _adopt(self, connection: ClientConnection | TlsTransport, transport: TemporaryTransport) -> None:
        try:
            protocol: Any = _Adoption(connection, transport.unsent)
            await self._loop.loop.connect_accepted_socket(lambda: protocol, transport.socket)
        except OSError:
            transport.socket.close()
            connection.connection_lost(None)
