"""AsyncServerTransport: a server reached from an event loop, with asyncio's own transports; no thread waits.

    task ─┐
    task ─┼─ shared connection ─────────── pipelined: replies arrive in the order of the commands
    task ─┘
    task ─── separate connection ───────── while a command blocks (BLPOP, XREAD BLOCK ...); kept for the next one

All commands of one turn of the event loop leave in one system call. A transaction has a separate connection
(`exclusive`).

**A cancelled call has no effect.** A command that is not sent yet is dropped. A blocked one is unblocked (CLIENT
UNBLOCK on the shared connection); if its reply was already under way, or if the command takes data without blocking,
the reply is put back (rillet.store.transports.undelivered). The cancellation waits for this, a round trip, before it is
raised, so that the next command finds the data. If the server does not answer within SETTLE seconds, the connection is
closed; it is then unknown what the server did.

**The time limit for replies.** A connection with outstanding replies has one timer. If nothing arrived for `timeout`
seconds, in addition to the time that a blocking command waits in the server, all calls that wait on it fail. While a
command waits without limit, a PING on the shared connection checks the server, once in that time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from rillet import commands
from rillet.client.address import Address
from rillet.client.block_time import block_seconds
from rillet.client.connection import ONE_CALL, tls_context
from rillet.client.errors import ConnectionLost, ConnectorError, TimedOut
from rillet.client.protocol import ClientProtocol
from rillet.errors import CommandError, StoreClosed, StoreError, StoreTimeout, UnknownTimeout
from rillet.protocol.command_parser import pack_command
from rillet.protocol.reply_parser import INCOMPLETE, ReplyError
from rillet.runtime.registry import TABLE
from rillet.store.transports.transport import NoConnection
from rillet.store.transports.undelivered import (
    Steps,
    Undelivered,
    continues,
    executed,
    put_back_all,
    takes,
    takes_any,
)

SETTLE = 2.0  # seconds that a cancellation waits for the server
_UNBLOCK_AGAIN = 0.02  # seconds after which CLIENT UNBLOCK is repeated: it may have overtaken the command
TOO_MANY = "ERR max number of clients"
_ASKING = pack_command([b"ASKING"])
_CONNECTING = 64  # connections that are opened at the same time: the backlog of a listening socket is finite


def blocks(argv: list[bytes]) -> bool:
    """Return whether the command may block its connection."""
    name = argv[0].upper()
    if name in (b"XREAD", b"XREADGROUP"):
        at = 4 if name == b"XREADGROUP" else 1  # after GROUP, the group and the consumer, which may be named BLOCK
        for word in argv[at:]:
            option = word.upper()
            if option == b"BLOCK":
                return True
            if option == b"STREAMS":
                return False
        return False
    entry = TABLE.find(name)
    return entry is not None and "blocking" in entry.flags


class NeverSent(ConnectionLost):
    """A write failed, and nothing of it was sent."""


class AsyncConnection(asyncio.Protocol):
    """One connection: commands go out in order, and each reply completes the oldest future."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop, timeout: float | None = None) -> None:
        self.address = address
        self._timeout = timeout
        self._since = 0.0  # the loop's time of the last bytes, or of the first command that waits
        self._longer = 0.0  # seconds that the outstanding command waits in the server
        self._timer: asyncio.TimerHandle | None = None
        self.id = b""  # the reply of CLIENT ID
        self.closed = False
        self._loop = loop
        self._protocol = ClientProtocol(address)
        self._transport: Any = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._output: list[bytes] = []
        self._last = 0  # how many calls the last write contained, if it reaches the socket at once or not at all
        self._opened: asyncio.Future[None] = loop.create_future()
        self._introduced = False
        self._writable: asyncio.Future[None] | None = None

    # -- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Send the opening commands (AUTH, SELECT)."""
        self._transport = transport
        opening = self._protocol.open()
        if opening:
            transport.write(opening)
        else:
            self._opened.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Complete the futures of the replies that arrived."""
        protocol, waiting = self._protocol, self._waiting
        if self._timeout is not None:
            self._since = self._loop.time()
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
        if isinstance(error, BrokenPipeError):
            self._fail_unsent(error)
        self._fail(ConnectionLost(f"rillet: the connection to {self.address} was lost: {error or 'closed'}"))

    def _fail_unsent(self, error: BrokenPipeError) -> None:
        """Fail the calls of the last write, which the closed Unix socket rejected: the server has not received them."""
        unsent = NeverSent(f"rillet: the connection to {self.address} was closed before: {error}")
        unsent.__cause__ = error
        for _ in range(min(self._last, len(self._waiting))):
            future = self._waiting.pop()
            if not future.done():
                future.set_exception(unsent)
                future.exception()  # no warning if its task was cancelled meanwhile

    def pause_writing(self) -> None:
        """Hold back commands while the server reads too slowly."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Continue to send commands."""
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

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
        while self._writable is not None:
            await asyncio.shield(self._writable)

    def call(self, data: bytes, longer: float = 0.0) -> asyncio.Future[Any]:
        """Send one command in RESP encoding in this turn of the loop; return the future of its reply.

        longer: seconds that the command may wait in the server.
        """
        future = self._loop.create_future()
        if self.closed:
            future.set_exception(ConnectionLost(f"rillet: the connection to {self.address} was lost"))
            return future
        if self._timeout is not None and (longer or not self._waiting):
            self._since, self._longer = self._loop.time(), longer
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
            if self._timer.when() <= due:
                return
            self._timer.cancel()
            self._timer = None
        if due < math.inf:
            self._timer = self._loop.call_at(due, self._check_time)

    def _check_time(self) -> None:
        """Fail the calls if the server did not answer in time; else check again later."""
        self._timer = None
        if self.closed or not self._waiting:
            return
        if self._loop.time() < self._since + (self._timeout or 0.0) + self._longer:
            self._watch()
            return
        self._fail(TimedOut(f"rillet: {self.address} did not answer within {self._timeout:g} s"))
        self._transport.abort()

    def _flush(self) -> None:
        data, self._output = self._output, []
        if not self.closed:
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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._opened.done():
            self._opened.set_exception(error)
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
                future.exception()  # no warning if its task was cancelled meanwhile

    def close(self, error: Exception | None = None) -> None:
        """Close the connection; calls that wait raise the error."""
        self._fail(error or ConnectionLost(f"rillet: the connection to {self.address} was closed"))
        if self._opened.done():
            self._opened.exception()
        if self._transport is not None:
            self._transport.abort()


class AsyncServerTransport:
    """Runs commands on a server for the tasks of one event loop."""

    def __init__(self, address: Callable[[], Address], undelivered: Undelivered,
                 failed: Callable[[ConnectorError], StoreError | CommandError],
                 not_sent: Callable[[ConnectorError], StoreError], timeout: float | None,
                 as_read: Callable[[UnknownTimeout, Sequence[list[bytes]]], StoreError],
                 restore: Callable[[Sequence[Steps]], Awaitable[None]] | None = None) -> None:  # fmt: skip
        commands.load()
        self._address = address
        self._undelivered = undelivered
        self._failed = failed
        self._not_sent = not_sent
        self._timeout = timeout
        self._as_read = as_read
        self._restore = restore or self._restore_here
        self._loop = asyncio.get_running_loop()
        self._shared: AsyncConnection | None = None
        self._sharing: asyncio.Task[AsyncConnection] | None = None
        self._idle: list[AsyncConnection] = []
        self._busy: set[AsyncConnection] = set()
        self._connecting = asyncio.Semaphore(_CONNECTING)
        self._unlimited: set[AsyncConnection] = set()  # with a command that waits without limit
        self._probe_timer: asyncio.TimerHandle | None = None
        self._probing: asyncio.Task[None] | None = None
        self._simple: set[bytes] = set()  # names of commands that neither block nor take data
        self._ends: Any = None
        self._lost: ConnectionLost | None = None
        self.closed = False
        self.reached = False

    # -- connections -------------------------------------------------------------------------------------

    async def _connect(self) -> AsyncConnection:
        """Open a connection; raise NotSent if the server cannot be reached."""
        if self._ends is None:
            self._ends = self._until_the_loop_ends()
            await anext(self._ends)
        address = self._address()
        try:
            async with self._connecting, asyncio.timeout(self._timeout):
                connection = await _connected(address, self._loop, self._timeout)
                try:
                    await connection.introduced()
                except BaseException:
                    connection.close()
                    raise
        except TimeoutError as error:
            raise self._not_sent(TimedOut(str(error))) from error
        except ConnectionLost as error:
            raise self._not_sent(error) from error
        except ConnectorError as error:
            raise self._failed(error) from error
        self.reached = True
        return connection

    def _require_open(self) -> None:
        if self._lost is not None:
            raise self._not_sent(self._lost)
        if self.closed:
            raise StoreClosed("the store is closed")

    async def _share(self) -> AsyncConnection:
        """Return the shared connection; several tasks open it once."""
        shared = self._shared
        if shared is not None and not shared.closed:
            return shared
        self._require_open()
        if self._idle:
            self._shared = self._idle.pop()
            return await self._share()
        if self._sharing is None:
            self._sharing = self._loop.create_task(self._connect())
            self._sharing.add_done_callback(self._shared_opened)
        return await asyncio.shield(self._sharing)

    def _shared_opened(self, task: asyncio.Task[AsyncConnection]) -> None:
        self._sharing = None
        if not task.cancelled() and task.exception() is None:
            self._shared = task.result()
            if self.closed:
                self._shared.close()

    async def _exclusive(self) -> AsyncConnection:
        """Return a connection for one task."""
        await self._share()  # first, so that tasks that wait cannot take every connection that the server allows
        self._require_open()
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                self._busy.add(connection)
                return connection
        connection = await self._connect()
        self._busy.add(connection)
        return connection

    def _release(self, connection: AsyncConnection) -> None:
        """Keep a connection for the next command that blocks, if no reply is outstanding on it."""
        self._busy.discard(connection)
        self._unlimited.discard(connection)
        if connection.closed or not connection.idle or self.closed:
            connection.close()
        else:
            self._idle.append(connection)

    # -- commands ----------------------------------------------------------------------------------------

    async def execute(self, argv: list[bytes], asking: bool = False) -> Any:
        """Run one command and return its reply; an error reply is returned, not raised.

        asking: send ASKING first, because a node of a cluster named this one in an ASK reply.
        """
        simple = argv[0] in self._simple
        if not simple:
            kept = self._undelivered.take(argv)
            if kept is not None:
                return kept
            if blocks(argv):
                return await self._execute_blocking(argv, asking)
            simple = self._note(argv)
        shared = self._shared
        if shared is None or shared.closed:
            shared = await self._share()
        if shared._writable is not None:
            await shared.ready()
        if asking:
            shared.call(_ASKING)
        reply = shared.call(pack_command(argv))
        try:
            if simple:
                return await reply
            try:
                return await asyncio.shield(reply)
            except asyncio.CancelledError:
                await self._settled(self._restored(argv, reply), shared)
                raise
        except ConnectorError as error:
            raise self._raised(error, [argv]) from error

    def _raised(self, error: ConnectorError, argvs: Sequence[list[bytes]]) -> StoreError | CommandError:
        """Return the exception for commands that got no reply."""
        if isinstance(error, NeverSent):
            return self._not_sent(error)
        failed = self._failed(error)
        return self._as_read(failed, argvs) if isinstance(failed, UnknownTimeout) else failed

    def _note(self, argv: list[bytes]) -> bool:
        """Return whether the command only needs its reply; remember its name if no arguments change this."""
        if takes(argv):
            return False
        name = argv[0].upper()
        entry = TABLE.find(name)
        if entry is not None and "blocking" not in entry.flags:
            self._simple.add(name)
        return True

    async def execute_many(self, argvs: Sequence[list[bytes]], asking: bool = False) -> list[Any]:
        """Run commands in one exchange and return their replies. asking: of a transaction; see `execute`."""
        if not argvs:
            return []
        shared = await self._share()
        if shared._writable is not None:
            await shared.ready()
        if asking:
            shared.call(_ASKING)
        replies = [shared.call(pack_command(argv)) for argv in argvs]
        try:
            if takes_any(argvs):
                try:
                    await asyncio.shield(replies[-1])  # replies arrive in order
                except asyncio.CancelledError:
                    await self._settled(self._restored_all(argvs, replies), shared)
                    raise
            return [await reply for reply in replies]
        except ConnectorError as error:
            raise self._raised(error, argvs) from error

    async def _execute_blocking(self, argv: list[bytes], asking: bool) -> Any:
        connection = await self._exclusive()
        try:
            if asking:
                connection.call(_ASKING)
            seconds = block_seconds(argv)
            reply = connection.call(pack_command(argv), seconds)
            if seconds == math.inf and self._timeout is not None:
                self._unlimited.add(connection)
                self._probe_later()
            try:
                return await asyncio.shield(reply)
            except asyncio.CancelledError:
                await self._settled(self._unblocked(connection, argv, reply), connection)
                raise
        except ConnectorError as error:
            raise self._raised(error, [argv]) from error
        finally:
            self._release(connection)

    def _probe_later(self) -> None:
        if self._probe_timer is None and self._timeout is not None and not self.closed:
            self._probe_timer = self._loop.call_later(self._timeout, self._probe)

    def _probe(self) -> None:
        self._probe_timer = None
        if self._unlimited and not self.closed:
            self._probing = self._loop.create_task(self._check_server())

    async def _check_server(self) -> None:
        """Fail the calls that wait without limit if the server does not answer another one."""
        try:
            await (await self._share()).call(pack_command([b"PING"]))
        except (TimedOut, StoreTimeout):
            for connection in list(self._unlimited):
                connection.close(TimedOut(f"rillet: {connection.address} did not answer within {self._timeout:g} s"))
        except (ConnectorError, StoreError):
            pass  # the server ended: the connections show it
        self._probe_later()

    # -- transactions ------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def exclusive(self, key: bytes) -> AsyncIterator[Callable[..., Awaitable[list[Any]]]]:
        """Yield a coroutine function that runs commands on a separate connection; closed if the block fails."""
        connection = await self._exclusive()

        async def run(argvs: Sequence[list[bytes]], asking: bool = False) -> list[Any]:
            if asking:
                connection.call(_ASKING)
            return [await reply for reply in [connection.call(pack_command(argv)) for argv in argvs]]

        try:
            yield run
        except ConnectorError as error:
            connection.close()
            raise self._failed(error) from error
        except BaseException:
            connection.close()
            raise
        finally:
            self._release(connection)

    # -- cancellation ------------------------------------------------------------------------------------

    async def _settled(self, undoing: Awaitable[None], connection: AsyncConnection) -> None:
        """Finish the undoing of a cancelled call, even if the task is cancelled again; give up after SETTLE seconds."""
        task = asyncio.ensure_future(undoing)
        limit = self._loop.time() + SETTLE
        while not task.done() and self._loop.time() < limit:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=limit - self._loop.time())
        if not task.done():
            task.cancel()
            connection.close()
        elif not task.cancelled():
            task.exception()  # the connection broke: what the server did is unknown, as for any other call

    async def _unblocked(self, connection: AsyncConnection, argv: list[bytes], reply: asyncio.Future[Any]) -> None:
        """Unblock the command of a connection; put back what it took if its reply was already under way."""
        shared = await self._share()
        unblock = pack_command([b"CLIENT", b"UNBLOCK", connection.id])
        while not reply.done():
            answer = await shared.call(unblock)
            if isinstance(answer, ReplyError):  # not permitted: the server unblocks a client that has gone
                connection.close()
                return
            if not reply.done():
                await asyncio.wait([reply], timeout=_UNBLOCK_AGAIN)
        await self._restored(argv, reply)

    async def _restored(self, argv: list[bytes], reply: asyncio.Future[Any]) -> None:
        """Put back what a command took, once its reply is there."""
        await self._restored_all([argv], [reply])

    async def _restored_all(self, argvs: Sequence[list[bytes]], replies: Sequence[asyncio.Future[Any]]) -> None:
        """Put back what the commands of a batch took, once their replies are there."""
        pairs = executed(argvs, [await reply for reply in replies])
        for argv, taken in pairs:
            self._undelivered.keep(argv, taken)
        restoring = put_back_all(pairs)
        if restoring:
            await self._restore(restoring)

    async def _restore_here(self, restoring: Sequence[Steps]) -> None:
        shared = await self._share()
        for steps in restoring:
            for argv in steps:
                if not continues(await shared.call(pack_command(argv))):
                    break

    async def _until_the_loop_ends(self) -> AsyncIterator[None]:
        """Close the connections when the event loop ends: asyncio then closes every open generator."""
        try:
            yield
        finally:
            self.close()
            await asyncio.sleep(0)

    # -- closing -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every connection; calls that wait raise StoreClosed. In the thread of the event loop."""
        self._close(StoreClosed("the store was closed while this call waited"))

    def abandon(self, lost: ConnectionLost) -> None:
        """Close every connection, because the server ended: calls that wait raise the error that follows from `lost`.

        In the thread of the event loop.
        """
        self._lost = lost
        self._close(lost)

    def _close(self, error: Exception) -> None:
        self.closed = True
        if self._probe_timer is not None:
            self._probe_timer.cancel()
        for connection in [*self._idle, *self._busy, *([self._shared] if self._shared is not None else [])]:
            connection.close(error)
        self._idle.clear()


async def _connected(address: Address, loop: asyncio.AbstractEventLoop, timeout: float | None) -> AsyncConnection:
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
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.1)
        except ssl.SSLCertVerificationError as error:
            raise ConnectorError(
                f"rillet: the certificate of {address} is not accepted: {error.verify_message} "
                "(set caFile to the certificate of the authority)"
            ) from error
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise NoConnection(
                    f"{address}: no more files can be opened, and each waiting call needs a connection: raise the "
                    "limit of open files (ulimit -n)"
                ) from error
            raise ConnectionLost(f"rillet: no server answers at {address}: {error}") from error


__all__ = ["AsyncConnection", "AsyncServerTransport", "blocks"]
