"""One client on a socket: bytes to the parser, commands to the engine, replies back in one write.

    data_received -> parser -> Engine.drain -> session.out -> (log flushed) -> transport.write

A connection answers everything that arrived in one piece with one write. It stops reading while the
client does not read its replies, and it stops parsing while its session waits in a blocking command;
what arrived meanwhile stays in the parser, whose limit is client-query-buffer-limit.

With a log, the replies of one turn of the event loop leave together after one flush of the log
(Server.flush_soon), as Redis does before it sleeps: under `appendfsync always` all clients of a turn
share one fsync, and no reply leaves before it.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, cast

from rillet.commands.session import Session
from rillet.errors import Misconf
from rillet.protocol.parser import CommandParser

if TYPE_CHECKING:
    from rillet.server.server import Server

# Replies gathered before a part of them is sent although commands are left (bytes).
_REPLY_BATCH = 1 << 20


class Connection(asyncio.Protocol):
    """The protocol object of one socket; `session` is its side in the engine."""

    __slots__ = ("server", "engine", "session", "parser", "transport", "_timer", "_paused", "_dirty", "peer", "local")

    def __init__(self, server: Server) -> None:
        self.server = server
        self.engine = server.engine
        self.transport: asyncio.Transport | None = None
        self.parser = CommandParser()
        self.peer = ""
        self.local = ""
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False
        self._dirty = False

    # -- the event loop's side -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new client, or refuse it where there are too many."""
        # uvloop's transports are no subclasses of asyncio.Transport, so only the type checker is told.
        self.transport = transport = cast(asyncio.Transport, transport)
        if not self.server.admit(self):
            transport.write(b"-ERR max number of clients reached\r\n")
            transport.close()
            self.transport = None
            return
        self.peer = _address(transport.get_extra_info("peername"))
        self.local = _address(transport.get_extra_info("sockname"))
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.session: Session = self.engine.session()
        self.session.transport = self
        self.session.on_wake = self._woken
        self.server.connections[self] = None
        self._set_limits()

    def _set_limits(self) -> None:
        settings = self.engine.settings
        self.parser.authenticated = not settings.requirepass
        self.parser.proto_max_bulk_len = settings.proto_max_bulk_len
        self.parser.query_buffer_limit = settings.client_query_buffer_limit

    def data_received(self, data: bytes) -> None:
        """Run what became whole and answer."""
        if self.transport is None:
            return
        self.session.last_ms = self.server.now_ms
        self.parser.feed(data)
        if self.session.blocked is not None:
            # Nothing is parsed while the session waits, so the limit has to be kept here.
            if self.parser.buffered > self.parser.query_buffer_limit:
                self.transport.abort()
            return
        self._run()

    def pause_writing(self) -> None:
        """The client reads slower than it asks: take nothing more from it."""
        self._paused = True
        if self.transport is not None:
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """The client caught up."""
        self._paused = False
        if self.transport is not None:
            self.transport.resume_reading()
            self._run()

    def eof_received(self) -> bool:
        """The client will send no more; what it sent was answered."""
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the client and all that its session held."""
        self._stop_timer()
        self.server.connections.pop(self, None)
        if self.transport is not None:
            self.transport = None
            self.engine.close_session(self.session)

    # -- commands --------------------------------------------------------------------------------------

    def _run(self) -> None:
        session = self.session
        more = True
        while more and not self._paused and self.transport is not None:
            more = self.engine.drain(session, self.parser, _REPLY_BATCH)
            if session.out.used:
                self._send()
        if session.blocked is not None and self._timer is None:
            self._start_timer(session.blocked.deadline)
        if session.closing:
            self.close_after_reply()

    def _send(self) -> None:
        if self.engine.log is not None:
            if not self._dirty:
                self._dirty = True
                self.server.flush_soon(self)
        elif self.transport is not None:
            self.transport.write(self.session.out.take())

    def release(self) -> None:
        """Send the replies that waited for the log."""
        self._dirty = False
        if self.transport is not None:
            self.transport.write(self.session.out.take())
            if self.session.closing:
                self.transport.close()

    def refuse(self, error: Misconf) -> None:
        """The log failed: what was to be said is not true, so say that and hang up."""
        self._dirty = False
        self.session.out.take()
        if self.transport is not None:
            self.transport.write(f"-{error}\r\n".encode())
            self.transport.close()

    # -- waiting ---------------------------------------------------------------------------------------

    def _start_timer(self, deadline: int) -> None:
        if deadline:
            delay = max(0, deadline - self.engine.clock.now_ms()) / 1000
            self._timer = self.server.loop.call_later(delay, self._expired)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self) -> None:
        self._timer = None
        blocked = self.session.blocked
        if blocked is None:
            return
        # The loop's clock and the wall clock may disagree by a millisecond.
        if blocked.deadline > self.engine.clock.now_ms():
            self._start_timer(blocked.deadline)
            return
        self.engine.expire_block(self.session)

    def _woken(self) -> None:
        """The session has its reply; go on with what the client sent meanwhile, after the command that woke it."""
        self._stop_timer()
        self.server.loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self.transport is not None:
            if self.session.out.used:
                self._send()
            self._run()

    # -- the end ---------------------------------------------------------------------------------------

    def close_after_reply(self) -> None:
        """Close the connection once its replies are sent (client.c: CLIENT_CLOSE_AFTER_REPLY)."""
        self.session.closing = True
        if self.transport is None:
            return
        self.transport.pause_reading()
        if not self._dirty:
            if self.session.out.used:
                self.transport.write(self.session.out.take())
            self.transport.close()

    def close(self) -> None:
        """Close the connection now, as CLIENT KILL does."""
        if self.transport is not None:
            self.session.closing = True
            self.transport.close()


def _address(name: Any) -> str:
    """Return "host:port", "[v6]:port" or the path of a Unix socket, as CLIENT LIST shows it."""
    if isinstance(name, tuple):
        host, port = name[0], name[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"{name or ''}:0"
