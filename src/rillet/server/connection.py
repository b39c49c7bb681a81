"""One client on a socket: bytes to the parser, commands to the engine, replies back in one write.

    data_received -> parser -> Engine.drain -> session.out -> (log flushed) -> transport.write

A connection answers each chunk of received data with one write. While its session is blocked, the received bytes stay
in the parser, up to client-query-buffer-limit. Replies that the client does not read are kept, as in Redis: many
clients send a whole pipeline before they read, so a server that stopped reading would cause a deadlock.
client-output-buffer-limit bounds the kept replies. Without that limit the server stops reading from a client whose
unread replies exceed client-query-buffer-limit, until the client has read them.

Channel messages arrive at any time from other clients' commands. They collect in session.out, and the loop sends them
in its next iteration with one write (Server.deliver_soon), or earlier if there are very many. If the client does not
read, client-output-buffer-limit disconnects it: immediately above `hard` bytes, or after a number of seconds above
`soft` bytes, which the server's periodic job checks too.

With a log, the replies of one loop iteration are set aside together (Server.flush_soon) when the log is written, and
leave in order once the log is as safe as `appendfsync` requires. Under `always` that is after a sync. One thread syncs
for all clients of an iteration; the clients of the iterations during that sync share the next one. While only one
client sends commands, its turn ends with the write of the log and its replies (Server.end_turn), without another
iteration.

The class has asyncio's protocol methods (connection_made, data_received, ...) without being an asyncio.Protocol: both
event loops only call the methods, and a compiled class has no Python base. Both event loops set TCP_NODELAY.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: run interpreted
    from rillet import _cython as cython

from rillet.errors import Misconf
from rillet.protocol.command_parser import CommandParser
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.runtime.session_state import SUBSCRIBED
from rillet.runtime.settings import UNCOUNTED_OUTPUT

_UNCOUNTED = cython.declare(cython.Py_ssize_t, UNCOUNTED_OUTPUT)
_REPLY_BATCH = cython.declare(cython.Py_ssize_t, 1 << 20)  # bytes of replies after which the replies are sent
_MOST_ASIDE = cython.declare(cython.Py_ssize_t, 16)  # at most so many loop iterations have replies that wait

# Whether received commands run now, and whether their replies wait for the end of that turn.
_NO_TURN = cython.declare(cython.int, 0)
_TURN = cython.declare(cython.int, 1)
_REPLIED = cython.declare(cython.int, 2)


@cython.cclass
class ClientConnection:
    """The asyncio protocol of one client's socket; `session` is the client's state in the engine."""

    __slots__ = (
        "server", "engine", "session", "parser", "transport", "peer", "local", "received", "sent", "last_read",
        "counted", "watched",
        "_write", "_timer", "_paused", "_dirty", "_announced", "_limited", "_above_since", "_alarm", "_aside", "_held",
        "_turn",
    )  # fmt: skip
    server: Any
    engine: Engine
    session: Session
    parser: CommandParser
    transport: Any
    peer: str
    local: str
    received: cython.longlong
    sent: cython.longlong
    last_read: cython.Py_ssize_t
    counted: cython.Py_ssize_t
    watched: cython.bint
    _write: Any
    _timer: Any
    _paused: cython.bint
    _dirty: cython.bint
    _aside: Any
    _held: cython.bint
    _announced: cython.bint
    _limited: cython.bint
    _above_since: cython.longlong
    _alarm: cython.Py_ssize_t
    _turn: cython.int

    def __init__(self, server: Any) -> None:
        self.server = server
        self.engine = server.engine
        self.parser = CommandParser()
        self.transport = None
        self.peer = ""
        self.local = ""
        self.received = 0
        self.sent = 0
        self.last_read = 0
        # The bytes that ClientMemory counted for this client, and whether it measures the client after each turn.
        self.counted = 0
        self.watched = False
        self._write = None
        self._timer = None
        self._paused = False
        # _dirty: replies wait for the end of this loop iteration, when the log is written. _aside: replies that wait
        # for a sync. _held: too many replies wait for a sync, so commands wait as well.
        self._dirty = False
        # One of _NO_TURN, _TURN and _REPLIED.
        self._turn = _NO_TURN
        self._aside = deque()
        self._held = False
        # Whether channel messages will be sent in the next loop iteration.
        self._announced = False
        # Whether client-output-buffer-limit applies to replies, and not only to channel messages.
        self._limited = False
        # The size of the output from which on a channel message checks the output limits.
        self._alarm = _UNCOUNTED
        # The time at which the output exceeded the soft limit (ms), 0 while it is below.
        self._above_since = 0

    # -- callbacks of the event loop -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a new client, or reject it if there are too many."""
        # uvloop's transports do not derive from asyncio.Transport: the cast is for the type checker.
        socket = cast(asyncio.Transport, transport)
        if not self.server.admit(socket):
            socket.write(b"-ERR max number of clients reached\r\n")
            socket.close()
            return
        self.transport = socket
        self._write = socket.write
        self.session = self.engine.session()
        self.session.transport = self
        self.session.on_wake = self._woken
        self.session.on_message = self._message_came
        self._introduce(socket)
        self.take_settings()
        self.server.connections[self] = None
        self.watched = self.server.client_memory.watched
        self.server.client_memory.measure(self)

    def _introduce(self, transport: asyncio.Transport) -> None:
        """Record the addresses of the client and of the server for CLIENT LIST."""
        local = transport.get_extra_info("sockname")
        self.local = _address(local)
        unix = not isinstance(local, tuple)
        # A client of a Unix socket has no address: Redis shows the path for both sides.
        self.peer = self.local if unix else _address(transport.get_extra_info("peername"))
        raw = transport.get_extra_info("socket")
        self.session.extra["fd"] = raw.fileno() if raw is not None else -1
        self.session.extra["unix"] = unix

    def take_settings(self) -> None:
        """Copy the client's limits from the settings, at the start and after each CONFIG SET of a limit."""
        settings = self.engine.settings
        self.parser.proto_max_bulk_len = settings.proto_max_bulk_len
        self.parser.query_buffer_limit = settings.client_query_buffer_limit
        normal = settings.client_output_buffer_limit.normal
        self._limited = normal.hard > 0 or normal.soft > 0

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, run the complete commands and send the replies."""
        if self.transport is None:
            return
        self.session.last_ms = self.engine.mstime
        self.last_read = len(data)
        self.received += self.last_read
        self.parser.feed(data)
        if self.session.blocked is None:
            self._turn = _TURN
            try:
                self.run()
            finally:
                self._end_turn()
        elif self.parser.buffered > self.parser.query_buffer_limit:
            # Nothing is parsed while the session is blocked, so the limit is checked here.
            self.transport.abort()
        if self.watched:
            self.server.turn_ended(self)

    @cython.cfunc
    def _end_turn(self) -> cython.bint:
        """Handle the replies to the received commands."""
        replied: cython.bint = self._turn == _REPLIED
        self._turn = _NO_TURN
        if replied:
            self.server.end_turn(self)
        return True

    def pause_writing(self) -> None:
        """Record that the client reads too slowly; from now on its output limits are checked."""
        self._paused = True
        self.server.slow[self] = None

    def resume_writing(self) -> None:
        """Continue with the client's commands after the client has read its replies."""
        self._paused = False
        self.server.slow.pop(self, None)
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
            if self.session.blocked is None:
                self.run()
            elif self.session.out.used:
                self._send()
            if self._above_since:
                self.within_limits()
            if self.watched:
                self.server.client_memory.measure(self)

    def eof_received(self) -> bool:
        """Close the connection after the pending replies: the client has closed its side."""
        if self._dirty or self._aside:
            self.session.closing = True  # release() closes the connection
            return True
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        """Unregister the client and close its session."""
        self._stop_timer()
        self._write = None
        if self.transport is not None:
            self.transport = None
            self.session.transport = None
            self.session.on_wake = None
            self.session.on_message = None
            self.server.forget(self)
            self.engine.close_session(self.session)

    # -- commands ------------------------------------------------------------------------------------

    @cython.ccall
    def run(self) -> cython.bint:
        """Run the parsed commands until the session blocks or the client reads too slowly."""
        session: Session = self.session
        out: ReplyWriter = session.out
        more: cython.bint = True
        while more and self.transport is not None and not self._is_full():
            if self._aside and len(self._aside) > _MOST_ASIDE:
                self._held = True
                return True
            more = self.engine.drain(session, self.parser, _REPLY_BATCH)
            if out.used:
                self._send()
                if more and self._dirty:
                    if self._turn == _REPLIED:
                        self._turn = _TURN
                        self.server.flush_soon(self)
                    self.server.flush()
        if session.blocked is not None and self._timer is None:
            self._start_timer(session.blocked.wakes_at)
        if session.closing:
            self.close_after_reply()
        return True

    @cython.cfunc
    def _is_full(self) -> cython.bint:
        """Return whether too many replies wait for the client; if so, stop reading its commands meanwhile."""
        if not self._paused or self.transport.get_write_buffer_size() < self.parser.query_buffer_limit:
            return False
        if not self.transport.is_closing():
            self.transport.pause_reading()
        return True

    @cython.cfunc
    def _send(self) -> cython.bint:
        """Send the replies, immediately or after the log is written."""
        if self._limited and not self.within_limits():
            return False
        if self.engine.log is None and not self._aside:
            self.sent += self.session.out.used
            self._write(self.session.out.hand_over())
        elif not self._dirty:
            self._dirty = True
            if self._turn == _NO_TURN:
                self.server.flush_soon(self)
            else:
                self._turn = _REPLIED
        return True

    def put_aside(self) -> None:
        """Set aside the replies of this loop iteration until the log is as safe as appendfsync requires."""
        self._dirty = False
        self._aside.append(self.session.out.hand_over())

    def send_now(self) -> None:
        """Send the replies of this turn: the log is as safe as appendfsync requires, and no older replies wait."""
        self._dirty = False
        self._aside.append(self.session.out.hand_over())
        self.release()

    def release(self) -> None:
        """Send the oldest replies that waited for a sync of the log."""
        replies = self._aside.popleft()
        if self.transport is None or self.transport.is_closing():  # the connection was closed meanwhile
            return
        self.sent += len(replies)
        self._write(replies)
        if self.session.closing and not self._dirty and not self._aside:
            self.transport.close()
        elif self._held and len(self._aside) <= _MOST_ASIDE:
            self._held = False
            self.server.call_soon(self.resume)

    def refuse(self, error: Misconf) -> None:
        """Replace the oldest set-aside replies by the error, and close: the log may have lost their writes."""
        self._aside.popleft()
        if self.transport is not None and not self.transport.is_closing():
            self._write(f"-{error}\r\n".encode())
            self.transport.close()

    # -- messages ------------------------------------------------------------------------------------

    def _message_came(self) -> None:
        """Schedule the sending of a message that another session's command put into session.out."""
        if not self._announced:
            self._announced = True
            self.server.deliver_soon(self)
        if self.session.out.used > self._alarm:
            # Check only after this many bytes: a check costs more than a small message.
            self._alarm = self.session.out.used + _UNCOUNTED
            if self.within_limits():
                self._relieve()

    def _relieve(self) -> None:
        """Send a large batch of channel messages now, unless the client reads too slowly."""
        if self.session.out.used > _REPLY_BATCH and not self._paused and not self._dirty:
            self._alarm = _UNCOUNTED
            self._send()

    def deliver(self) -> None:
        """Send the channel messages that arrived since the last loop iteration."""
        self._announced = False
        self._alarm = _UNCOUNTED
        if self.transport is not None and self.session.out.used and not self._paused:
            self._send()
        if self.watched:
            self.server.client_memory.measure(self)

    @property
    def unsent(self) -> int:
        """The number of reply bytes that the client has not read yet, for CLIENT LIST."""
        return 0 if self.transport is None else int(self.transport.get_write_buffer_size())

    @cython.ccall
    def within_limits(self) -> cython.bint:
        """Return whether the client is within client-output-buffer-limit; if not, disconnect the client."""
        session: Session = self.session
        if self.transport is None or self.transport.is_closing():
            return False
        if session.closing:
            return True
        limits = self.engine.settings.client_output_buffer_limit
        limit = limits.pubsub if session.state & SUBSCRIBED else limits.normal
        waiting = session.out.used + self.transport.get_write_buffer_size()
        reached, self._above_since = limit.reached(waiting, self._above_since, self.engine.clock.now_ms())
        if not reached:
            return True
        session.closing = True
        session.out.take()
        self.close()
        return False

    # -- timeouts of blocked commands ----------------------------------------------------------------

    def _start_timer(self, deadline: int) -> None:
        if deadline:
            delay = max(0, deadline - self.engine.clock.uptime_ms()) / 1000
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
        # The loop's clock and the engine's clock may differ by a millisecond.
        if blocked.wakes_at <= self.engine.clock.uptime_ms():
            self.engine.blocking.time_has_come(self.session)
        if self.session.blocked is blocked and self._timer is None:
            self._start_timer(blocked.wakes_at)

    def _woken(self) -> None:
        """Continue with the next commands, after the command that unblocked the session."""
        self._stop_timer()
        self.server.resume_soon(self)

    def resume(self) -> None:
        """Send the replies of a session that was blocked, and run its next commands."""
        if self.transport is not None:
            if self.session.out.used:
                self._send()
            self.run()

    # -- closing -------------------------------------------------------------------------------------

    @property
    def query_buffer(self) -> tuple[int, int]:
        """The bytes of the last read, and the buffered bytes of an incomplete command; for CLIENT LIST."""
        return self.last_read, self.parser.buffered

    def close_after_reply(self) -> None:
        """Close the connection once its replies are sent (networking.c: CLIENT_CLOSE_AFTER_REPLY)."""
        self.session.closing = True
        if self.transport is None or self._dirty:
            return
        if self.session.out.used:
            self._send()
        if not self._dirty and not self._aside:
            self.transport.close()

    def close(self) -> None:
        """Close the connection now and drop its unsent replies, as CLIENT KILL does (freeClientAsync)."""
        if self.transport is not None:
            self.session.closing = True
            self.transport.abort()


def _address(name: Any) -> str:
    """Return "host:port", "[v6]:port" or the path of a Unix socket, as CLIENT LIST shows it."""
    if isinstance(name, tuple):
        host, port = name[0], name[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(name, bytes):
        name = name.decode("utf-8", "surrogateescape")
    return f"{name or ''}:0"
