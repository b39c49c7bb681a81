"""One client on a socket: bytes to the parser, commands to the engine, replies back in one write.

    data_received -> parser -> Engine.drain -> session.out -> (log flushed) -> transport.write

A connection answers each chunk of received data with one write. While its session is blocked, the received bytes stay
in the parser, up to client-query-buffer-limit. Replies that the client does not read are kept, as in Redis: many
clients send a whole pipeline before they read, so a server that stopped reading would cause a deadlock.
client-output-buffer-limit bounds the kept replies. Without that limit the server stops reading from a client whose
unread replies exceed client-query-buffer-limit, until the client has read them.

Channel messages arrive at any time from other clients' commands. They collect in session.out, and the loop sends them
in its next iteration with one write (messages.py), or earlier if there are very many. If the client does not
read, client-output-buffer-limit disconnects it: immediately above `hard` bytes, or after a number of seconds above
`soft` bytes, which the server's periodic job checks too.

With a log, the replies of one loop iteration are set aside together (logged_replies.py) when the log is written, and
leave in order once the log is as safe as `appendfsync` requires. Under `always` that is after a sync. One thread syncs
for all clients of an iteration; the clients of the iterations during that sync share the next one. While only one
client sends commands, its turn ends with the write of the log and its replies (LoggedReplies.end_turn), without another
iteration.

The class has asyncio's protocol methods (connection_made, data_received, ...) without being an asyncio.Protocol: both
event loops only call the methods, and a compiled class has no Python base. Both event loops set TCP_NODELAY.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import suppress
from socket import IPPROTO_TCP, SHUT_RDWR, TCP_NODELAY
from socket import socket as Socket
from typing import Any, cast

from rillet._cython import cython, public
from rillet.errors import Misconf
from rillet.protocol.command_parser import CommandParser
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.client_line import client_line
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.runtime.session_state import REPLICA, SUBSCRIBED, UNAUTHENTICATED
from rillet.runtime.settings.settings import UNCOUNTED_OUTPUT

_UNCOUNTED = cython.declare(cython.Py_ssize_t, UNCOUNTED_OUTPUT)
# Bytes of unread replies beyond that for which a client that has not authenticated is disconnected.
_UNAUTHENTICATED_OUTPUT = cython.declare(cython.Py_ssize_t, 1024)
# Bytes of input that count for `maxmemory` before they run; less input counts after its turn.
_LARGE_INPUT = cython.declare(cython.Py_ssize_t, 1 << 15)
_REPLY_BATCH = cython.declare(cython.Py_ssize_t, 1 << 20)  # bytes of replies after which the replies are sent
_REPLICA_OUTPUT = 1 << 20  # bytes for a replica that may wait in its socket's buffer
_MOST_ASIDE = cython.declare(cython.Py_ssize_t, 16)  # at most so many loop iterations have replies that wait

# Whether received commands run now, and whether their replies wait for the end of that turn.
_NO_TURN = cython.declare(cython.int, 0)
_TURN = cython.declare(cython.int, 1)
_REPLIED = cython.declare(cython.int, 2)


@cython.cclass
class ClientConnection:
    """The asyncio protocol of one client's socket; `session` is the client's state in the engine."""

    __slots__ = (
        "server", "engine", "session", "parser", "transport", "exposed", "received", "sent",
        "reads", "writes", "last_read",
        "counted", "watched", "_peer", "_local", "reply_peak", "_peak_reset",
        "_timer", "_paused", "_dirty", "_announced", "_limited", "_above_since", "_alarm", "_aside", "_held",
        "_turn",
    )  # fmt: skip
    server: public[Any]
    engine: public[Engine]
    session: public[Session]
    parser: public[CommandParser]
    transport: public[Any]
    _peer: Any
    _local: Any
    received: public[cython.longlong]
    sent: public[cython.longlong]
    reads: public[cython.longlong]
    writes: public[cython.longlong]
    last_read: public[cython.Py_ssize_t]
    counted: public[cython.Py_ssize_t]
    reply_peak: public[cython.Py_ssize_t]
    _peak_reset: cython.longlong
    _timer: Any
    _aside: Any
    _above_since: cython.longlong
    _alarm: cython.Py_ssize_t
    exposed: public[cython.bint]
    watched: public[cython.bint]
    _paused: cython.bint
    _dirty: cython.bint
    _held: cython.bint
    _announced: cython.bint
    _limited: cython.bint
    _turn: cython.int

    def __init__(self, server: Any) -> None:
        self.server = server
        self.engine = server.engine
        self.parser = CommandParser()
        self.transport = None
        # Whether the client came over TCP, so that protected-mode applies to it.
        self.exposed = False
        # The addresses, once they were asked for: most connections end without that.
        self._peer = None
        self._local = None
        self.received = 0
        self.sent = 0
        # System calls that transferred data, as far as the event loop makes one for each buffer.
        self.reads = 0
        self.writes = 0
        self.last_read = 0
        # The largest size of the replies that were sent together, since the periodic job reset it.
        self.reply_peak = 0
        self._peak_reset = 0
        # The bytes that ClientMemory counted for this client, and whether it measures the client after each turn.
        self.counted = 0
        self.watched = False
        self._timer = None
        self._paused = False
        # _dirty: replies wait for the end of this loop iteration, when the log is written. _aside: replies that wait
        # for a sync. _held: too many replies wait for a sync, so commands wait as well.
        self._dirty = False
        # One of _NO_TURN, _TURN and _REPLIED.
        self._turn = _NO_TURN
        self._aside = None  # a deque once the log makes replies wait
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
        server = self.server
        refusal: bytes = server.refusal(self, socket)
        if refusal:
            socket.write(refusal)
            socket.close()
            return
        self.transport = socket
        self.session = self.engine.session()
        self.session.transport = self
        self.session.patient = True
        self.session.on_message = self
        self.take_settings()
        server.connections[self] = None
        self.watched = server.client_memory.watched
        if self.watched:
            server.client_memory.measure(self)

    @property
    def local(self) -> str:
        """The server's side of the socket: address and port, or the path of a Unix socket."""
        if self._local is None:
            if self.transport is None:
                return ""
            self._local = address_of(self.transport.get_extra_info("sockname"))
        return str(self._local)

    @property
    def unix(self) -> bool:
        """Whether the client came through a Unix socket."""
        return self.transport is not None and not isinstance(self.transport.get_extra_info("sockname"), tuple)

    @property
    def peer(self) -> str:
        """The client's side of the socket. A client of a Unix socket has no address: Redis shows the path twice."""
        if self._peer is None:
            if self.transport is None:
                return ""
            self._peer = self.local if self.unix else address_of(self.transport.get_extra_info("peername"))
        return str(self._peer)

    @property
    def fd(self) -> int:
        """The number of the socket's file descriptor, -1 if it is unknown."""
        raw = self.transport.get_extra_info("socket") if self.transport is not None else None
        return raw.fileno() if raw is not None else -1

    def take_settings(self) -> None:
        """Copy the client's limits from the settings, at the start and after each CONFIG SET of a limit."""
        settings = self.engine.settings
        self.parser.proto_max_bulk_len = settings.proto_max_bulk_len
        self.parser.query_buffer_limit = settings.client_query_buffer_limit
        self.parser.strict = settings.compat.valkey
        normal = settings.client_output_buffer_limit.normal
        self._limited = normal.hard > 0 or normal.soft > 0

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, run the complete commands and send the replies."""
        if self.transport is None:
            return
        self.session.last_ms = self.engine.mstime
        self.last_read = len(data)
        self.reads += 1
        self.received += self.last_read
        if self.session.state & REPLICA and not data.strip(b"\r\n"):
            self.engine.replication.stream.alive(self.session)
        self.parser.feed(data)
        if self.watched and self.parser.buffered > _LARGE_INPUT:
            self.server.client_memory.measure(self)  # a large command counts before it runs
        if self.session.blocked is None:
            self._turn = _TURN
            try:
                self.run()
            finally:
                self._end_turn()
        elif self.parser.buffered > self.parser.query_buffer_limit:
            # Nothing is parsed while the session is blocked, so the limit is checked here.
            self.engine.stats.input_limit_hits += 1
            self.transport.abort()
        if self.watched:
            self.server.turn_ended(self)

    @property
    def settled(self) -> bool:
        """True if no reply waits for the log."""
        return not self._dirty and not self._aside and not self.session.out.used

    def run_busy(self, data: bytes) -> bytes:
        """Run received commands while a script of another client runs, and return the replies (server/busy.py)."""
        self.session.last_ms = self.engine.mstime
        self.received += len(data)
        self.parser.feed(data)
        if self.session.blocked is None:
            self.engine.drain(self.session, self.parser, _REPLY_BATCH)
        replies: bytes = self.session.out.take_bytes()
        self.sent += len(replies)
        return replies

    def take_transport(self, transport: Any) -> None:
        """Use another transport of the same socket from now on."""
        self.transport = transport

    @cython.cfunc
    def _end_turn(self) -> cython.bint:
        """Handle the replies to the received commands."""
        replied: cython.bint = self._turn == _REPLIED
        self._turn = _NO_TURN
        if replied:
            self.server.replies.end_turn(self)
        return True

    def pause_writing(self) -> None:
        """Record that the client reads too slowly; from now on its output limits are checked."""
        self._paused = True
        self.server.slow[self] = None

    def resume_writing(self) -> None:
        """Continue with the client's commands after the client has read its replies."""
        self._paused = False
        self.server.slow.pop(self, None)
        if self.session.state & REPLICA:
            with self.server.guard:
                self.engine.replication.stream.drained(self.session.extra["attached"])
            return
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
        if self.transport is not None:
            self.transport = None
            self.session.transport = None
            self.session.on_message = None
            self.server.forget(self)
            if self.session.state & REPLICA and self.engine.replication.stream is not None:
                self.engine.replication.stream.forget(self.session.extra["attached"])
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
            if self.engine.observed:
                # A client that caches a key learns of its change before the writer gets its reply.
                self.server.messages.deliver_now()
            if out.used:
                self._send()
                if more and self._dirty:
                    if self._turn == _REPLIED:
                        self._turn = _TURN
                        self.server.replies.flush_soon(self)
                    self.server.replies.flush()
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
        if self.session.state & REPLICA:
            return self._reply_to_replica()
        if self._limited and not self.within_limits():
            return False
        if self.session.out.used > self.reply_peak:
            self.reply_peak = self.session.out.used
        if self.engine.log is None and not self._aside:
            self.sent += self.session.out.used
            self.writes += 1
            self.transport.write(self.session.out.hand_over())
        elif not self._dirty:
            self._dirty = True
            if self._turn == _NO_TURN:
                self.server.replies.flush_soon(self)
            else:
                self._turn = _REPLIED
        return True

    # -- replicas ------------------------------------------------------------------------------------

    def become_replica(self) -> None:
        """From now on the client receives the stream and the snapshot alone."""
        if hasattr(self.transport, "set_write_buffer_limits"):
            self.transport.set_write_buffer_limits(_REPLICA_OUTPUT)
        if self.engine.settings.repl_disable_tcp_nodelay and not self.unix:
            self.transport.get_extra_info("socket").setsockopt(IPPROTO_TCP, TCP_NODELAY, 0)

    def send_raw(self, data: bytes) -> None:
        """Send bytes of the stream, or of a snapshot."""
        if self.transport is not None and not self.transport.is_closing():
            self.sent += len(data)
            self.writes += 1
            self.transport.write(data)

    @property
    def is_slow(self) -> bool:
        """Whether the client reads too slowly: `resume_writing` follows."""
        return bool(self._paused)

    def close_when_sent(self) -> None:
        """Close the connection after the bytes that were sent to a replica."""
        self.session.closing = True
        if self.transport is not None:
            self.transport.close()

    def _reply_to_replica(self) -> bool:
        """Drop a reply, which would be mistaken for a part of the stream, and disconnect (networking.c: addReply)."""
        session = self.session
        reply = bytes(session.out.take_bytes())
        name = "<unknown>" if session.command is None else session.command.fullname
        if reply[:1] == b"-":
            error = reply[1:].strip().decode("utf-8", "backslashreplace")
            master = "primary" if self.engine.settings.compat.valkey else "master"
            self.engine.services.log_line(f"== CRITICAL == This {master} is sending an error to its replica: '{error}' "
                                      f"after processing the command '{name}'")  # fmt: skip
        line = client_line(session, session).decode("utf-8", "backslashreplace")
        self.engine.services.log_line(f"Replica generated a reply to command '{name}', disconnecting it: {line}")
        self.close()
        return False

    def put_aside(self) -> None:
        """Set aside the replies of this loop iteration until the log is as safe as appendfsync requires."""
        self._dirty = False
        self._wait_for_log(self.session.out.hand_over())

    @cython.cfunc
    def _wait_for_log(self, replies: object) -> cython.bint:
        if self._aside is None:
            self._aside = deque()
        self._aside.append(replies)
        return True

    def send_now(self) -> None:
        """Send the replies of this turn: the log is as safe as appendfsync requires, and no older replies wait."""
        self._dirty = False
        self._wait_for_log(self.session.out.hand_over())
        self.release()

    def release(self) -> None:
        """Send the oldest replies that waited for a sync of the log."""
        replies = self._aside.popleft()
        if self.transport is None or self.transport.is_closing():  # the connection was closed meanwhile
            return
        self.sent += len(replies)
        self.writes += 1
        self.transport.write(replies)
        if self.session.closing and not self._dirty and not self._aside:
            self._end()
        elif self._held and len(self._aside) <= _MOST_ASIDE:
            self._held = False
            self.server.engine_loop.call_soon(self.resume)

    def refuse(self, error: Misconf) -> None:
        """Replace the oldest set-aside replies by the error, and close: the log may have lost their writes."""
        self._aside.popleft()
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(f"-{error}\r\n".encode())
            self.transport.close()

    # -- messages ------------------------------------------------------------------------------------

    def __call__(self) -> None:
        """Schedule the sending of a message that another session's command put into session.out."""
        if not self._announced:
            self._announced = True
            self.server.messages.deliver_soon(self)
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
        if session.closing or session.state & REPLICA:  # the stream checks its replicas
            return True
        limits = self.engine.settings.client_output_buffer_limit
        limit = limits.pubsub if session.state & SUBSCRIBED else limits.normal
        waiting = session.out.used + self.transport.get_write_buffer_size()
        reached, self._above_since = limit.reached(waiting, self._above_since, self.engine.clock.now_ms())
        if session.state & UNAUTHENTICATED and waiting > _UNCOUNTED + _UNAUTHENTICATED_OUTPUT:
            reached = True  # networking.c: checkClientOutputBufferLimits
        if not reached:
            return True
        self.engine.stats.output_limit_hits += 1
        session.closing = True
        session.out.take_bytes()
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

    def woken(self) -> None:
        """Continue with the next commands, after the command that unblocked the session."""
        self._stop_timer()
        self.server.replies.resume_soon(self)

    def resume(self) -> None:
        """Send the replies of a session that was blocked, and run its next commands."""
        if self.transport is not None:
            if self.session.out.used:
                self._send()
            self.run()

    # -- closing -------------------------------------------------------------------------------------

    @property
    def query_buffer(self) -> tuple[int, int]:
        """The bytes that were received and not parsed yet, and the unused bytes beside them; for CLIENT LIST."""
        return self.parser.buffered, 0

    @property
    def partial_bytes(self) -> int:
        """The bytes of the arguments of an incomplete command, for CLIENT LIST."""
        return self.parser.held

    @property
    def buffered_bytes(self) -> int:
        """The bytes in the buffers of this connection, except those in the session's output."""
        return self.parser.buffered + self.parser.held + self.unsent

    def shrink(self, now: int) -> None:
        """Shrink an output buffer much larger than the recent replies (server.c: clientsCronResizeOutputBuffer)."""
        engine: Engine = self.engine
        if engine.shrinks_buffers and self.session.out.shrink(self.reply_peak):
            engine.stats.buffer_shrinks += 1
        if 0 <= engine.peak_reset_ms <= now - self._peak_reset:
            self.reply_peak = self.session.out.used
            self._peak_reset = now

    def close_after_reply(self) -> None:
        """Close the connection once its replies are sent (networking.c: CLIENT_CLOSE_AFTER_REPLY)."""
        self.session.closing = True
        if self.transport is None or self._dirty:
            return
        if self.session.out.used:
            self._send()
        if not self._dirty and not self._aside:
            self._end()

    @cython.cfunc
    def _end(self) -> cython.bint:
        """Close the connection after its last reply; if that is sent, end the session before other clients run.

        Redis frees such a client in the same iteration of its loop (networking.c: freeClientsInAsyncFreeQueue). The
        event loop calls `connection_lost` in its next one, after commands of others that followed the reply.
        """
        self.transport.close()
        if self.transport.get_write_buffer_size() == 0:
            self.connection_lost(None)
        return True

    def close(self) -> None:
        """Close the connection and drop its unsent replies; its session ends in the next loop iteration."""
        if self.transport is not None:
            self.session.closing = True
            self.transport.abort()

    def _end_stream(self) -> None:
        """Let the peer see the end of the connection now: the event loop closes the socket in its next iteration."""
        socket = None if self.transport is None else self.transport.get_extra_info("socket")
        if socket is not None and not self.transport.is_closing():
            with suppress(OSError), Socket(fileno=os.dup(socket.fileno())) as twin:
                twin.shutdown(SHUT_RDWR)

    def kill(self) -> None:
        """Do `close` and end the session at once, for CLIENT KILL (freeClient); not while its own command runs."""
        self._end_stream()
        self.close()
        self.connection_lost(None)  # the event loop calls it, too, in its next iteration


def address_of(name: Any) -> str:
    """Return "host:port", "[v6]:port" or the path of a Unix socket, as CLIENT LIST shows it."""
    if isinstance(name, tuple):
        host, port = name[0], name[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(name, bytes):
        name = name.decode("utf-8", "surrogateescape")
    return f"{name or ''}:0"
