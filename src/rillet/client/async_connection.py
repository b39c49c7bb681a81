"""AsyncConnection: one connection of an event loop to a server, with asyncio's own transport; commands are pipelined.

Commands that are sent in one turn of the event loop leave in one system call. Replies arrive in the order of the
commands: each completes the oldest future.

**The time limit for replies.** A connection with outstanding replies has one timer. If nothing arrived for `timeout`
seconds, in addition to the time that a blocking command waits in the server, all calls that wait on it fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import select
import socket
import ssl
from collections import deque
from typing import Any

from rillet.client.address import Address
from rillet.client.connection import ONE_CALL, certificate_advice, tls_context
from rillet.client.errors import ConnectionLost, ConnectorError, TimedOut
from rillet.client.loop_timers import LoopTimer, call_later, sleep
from rillet.client.protocol import ClientProtocol
from rillet.errors import NoConnection
from rillet.protocol.command_parser import pack_command
from rillet.protocol.reply_parser import INCOMPLETE, ReplyError
from rillet.real_time import monotonic

TOO_MANY = "ERR max number of clients"


class NeverSent(ConnectionLost):
    """A write failed, and nothing of it was sent."""

    sent = False


class AsyncConnection(asyncio.Protocol):
    """One connection: commands go out in order, and each reply completes the oldest future."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop, timeout: float | None = None) -> None:
        self.address = address
        self._timeout = timeout
        self._since = 0.0  # `monotonic` time of the last bytes, or of the first command that waits
        self._longer = 0.0  # seconds that the outstanding command waits in the server
        self._timer: LoopTimer | None = None
        self.id = b""  # the reply of CLIENT ID
        self.closed = False
        self._loop = loop
        self._protocol = ClientProtocol(address)
        self._transport: Any = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._output: list[bytes] = []
        self._hangup: Any = None  # polls whether the server has closed the connection, where the system can tell
        self._last = 0  # how many calls the last write contained, if it reaches the socket at once or not at all
        self._opened: asyncio.Future[None] = loop.create_future()
        self._introduced = False
        self.writable: asyncio.Future[None] | None = None

    # -- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Send the opening commands (AUTH, SELECT)."""
        self._transport = transport
        if self.address.unix is None and hasattr(select, "POLLRDHUP"):  # a write to a closed Unix socket fails
            self._hangup = select.poll()
            self._hangup.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        opening = self._protocol.open()
        if opening:
            transport.write(opening)
        else:
            self._opened.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Complete the futures of the replies that arrived."""
        protocol, waiting = self._protocol, self._waiting
        if self._timeout is not None:
            self._since = monotonic()
        try:
            protocol.feed(data)
            while (reply := protocol.next_reply()) is not INCOMPLETE:
                if not waiting:  # such as "ERR max number of clients reached"
                    raise ConnectorError(f"rillet: {self.address}: {reply}", str(reply))
                future = waiting.popleft()
                if not future.done():
                    future.set_result(reply)
            if not self._opened.done() and protocol.opened:
                self._opened.set_result(None)
        except Exception as error:
            self._fail(error)
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the calls that wait for a reply."""
        if error is not None and not self._introduced:
            # A server with too many clients wrote why before it closed the connection, which our write found closed.
            with contextlib.suppress(OSError, AttributeError):
                self.data_received(os.read(self._transport.get_extra_info("socket").fileno(), 1 << 16))
        self._fail_unsent(len(self._output))
        if isinstance(error, BrokenPipeError):
            self._fail_unsent(self._last, error)
        self._fail(ConnectionLost(f"rillet: the connection to {self.address} was lost: {error or 'closed'}"))

    def _fail_unsent(self, count: int, error: BrokenPipeError | None = None) -> None:
        """Fail the last `count` calls, which the server has not received, because the connection was closed before."""
        unsent = NeverSent(f"rillet: the connection to {self.address} was closed before: {error or 'by the server'}")
        unsent.__cause__ = error
        for _ in range(min(count, len(self._waiting))):
            future = self._waiting.pop()
            if not future.done():
                future.set_exception(unsent)
                future.exception()  # no warning if its task was cancelled meanwhile

    def pause_writing(self) -> None:
        """Hold back commands while the server reads too slowly."""
        self.writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Continue to send commands."""
        if self.writable is not None:
            self.writable.set_result(None)
            self.writable = None

    # -- commands ----------------------------------------------------------------------------------------

    async def introduced(self) -> None:
        """Wait until the server has accepted the opening commands and returned the ID of this connection.

        A server that has too many clients replies with an error and closes the connection, so no other command may be
        sent before: its outcome would be unknown.
        """
        await self._opened
        try:
            reply = await self.call(pack_command([b"CLIENT", b"ID"]))
        except TimedOut:
            raise
        except ConnectionLost as error:
            raise ConnectionLost(f"{error}, before its first reply: has the server reached maxclients?") from error
        if isinstance(reply, ReplyError) and str(reply).startswith(TOO_MANY):
            raise ConnectorError(f"rillet: {self.address}: {reply}", str(reply))
        self.id = b"%d" % reply if isinstance(reply, int) else b""  # an ACL may forbid the command
        self._introduced = True

    async def ready(self) -> None:
        """Wait until the server reads again, if it stopped."""
        while self.writable is not None:
            await asyncio.shield(self.writable)

    def call(self, data: bytes, longer: float = 0.0) -> asyncio.Future[Any]:
        """Send one command in RESP encoding in this turn of the loop; return the future of its reply.

        longer: seconds that the command may wait in the server.
        """
        future = self._loop.create_future()
        if self.closed:
            future.set_exception(NeverSent(f"rillet: the connection to {self.address} was lost"))
            future.exception()  # no warning if the caller fails at an earlier command
            return future
        if self._timeout is not None and (longer or not self._waiting):
            self._since, self._longer = monotonic(), longer
            self._watch()
        self._waiting.append(future)
        if not self._output:
            self._loop.call_soon(self._flush)
        self._output.append(data)
        return future

    def _watch(self) -> None:
        """Set the timer, unless it fires early enough; it is set again then."""
        due = self._since + (self._timeout or 0.0) + self._longer
        if self._timer is not None:
            if self._timer.due <= due:
                return
            self._no_timer()
        if due < math.inf:
            self._timer = call_later(self._loop, due - monotonic(), self._check_time)

    def _no_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_time(self) -> None:
        """Fail the calls if the server did not answer in time; else check again later."""
        self._timer = None
        if self.closed or not self._waiting:
            return
        if monotonic() < self._since + (self._timeout or 0.0) + self._longer:
            self._watch()
            return
        self._fail(TimedOut(f"rillet: {self.address} did not answer within {self._timeout:g} s"))
        self._transport.abort()

    def _flush(self) -> None:
        data, self._output = self._output, []
        if not self.closed and self._hangup is not None and self._hangup.poll(0):
            self._fail_unsent(len(data))  # the event loop will find the end of the connection in its next turn
        elif not self.closed:
            packed = b"".join(data)
            whole = self.address.unix is not None and len(packed) <= ONE_CALL
            self._last = len(data) if whole and not self._transport.get_write_buffer_size() else 0
            self._transport.write(packed)

    @property
    def idle(self) -> bool:
        """True if no reply is awaited."""
        return not self._waiting

    def _fail(self, error: Exception) -> None:
        self.closed = True
        self.resume_writing()  # the commands that were held back fail at once
        self._no_timer()
        if not self._opened.done():
            self._opened.set_exception(error)
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
                future.exception()  # no warning if its task was cancelled meanwhile

    def close(self, error: Exception | None = None) -> None:
        """Close the connection; calls that wait raise the error. Without its loop, only the socket is closed."""
        if self._loop.is_closed():  # nothing runs in it any more, and a future that is done would call it
            self.closed = True
            self._no_timer()
            if self._transport is not None:
                hang_up(self._transport)
            return
        self._fail(error or ConnectionLost(f"rillet: the connection to {self.address} was closed"))
        if self._opened.done():
            self._opened.exception()
        if self._transport is not None:
            self._transport.abort()


def hang_up(transport: Any) -> None:
    """Close the socket of a transport without its event loop, which was closed before the transport."""
    with contextlib.suppress(RuntimeError):  # the loop calls nothing any more
        transport.abort()
    opened = transport.get_extra_info("socket")
    if opened is not None:
        with contextlib.suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)


async def connected(address: Address, loop: asyncio.AbstractEventLoop, timeout: float | None) -> AsyncConnection:
    """Open a connection to an address; ConnectionLost if no server answers there."""
    pause = 0.001
    while True:
        try:
            if address.unix is None:
                context = None if address.tls is None else tls_context(address.tls)
                name = None if context is None else address.host
                _, made = await loop.create_connection(
                    lambda: AsyncConnection(address, loop, timeout), address.host, address.port, ssl=context,
                    server_hostname=name,
                )  # fmt: skip
                return made
            if not hasattr(loop, "create_unix_connection"):
                raise ConnectorError(f"rillet: {address}: this system has no Unix sockets")
            _, made = await loop.create_unix_connection(lambda: AsyncConnection(address, loop, timeout), address.unix)
            return made
        except BlockingIOError:  # the backlog of the listening Unix socket is full
            await sleep(pause)
            pause = min(2 * pause, 0.1)
        except ssl.SSLCertVerificationError as error:
            raise ConnectorError(
                f"rillet: the certificate of {address} is not accepted: {error.verify_message} "
                f"({certificate_advice(error)})"
            ) from error
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise NoConnection(
                    f"{address}: no more files can be opened, and each waiting call needs a connection: raise the "
                    "limit of open files (ulimit -n)"
                ) from error
            raise ConnectionLost(f"rillet: no server answers at {address}: {error}") from error
