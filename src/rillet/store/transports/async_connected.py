"""AsyncServerTransport: a server reached from an event loop, with asyncio's own transports; no thread waits.

    task ─┐
    task ─┼─ shared connection ─────────── pipelined: replies arrive in the order of the commands
    task ─┘
    task ─── separate connection ───────── while a command blocks (BLPOP, XREAD BLOCK ...); kept for the next one

All commands of one turn of the event loop leave in one system call. A transaction has a separate connection
(`exclusive`).

**A cancelled call has no effect**: see async_cancellation.

**The time limit for replies.** See async_connection. While a command waits without limit, a PING on the shared
connection checks the server, once in the time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from rillet.client.address import Address
from rillet.client.async_connection import AsyncConnection, NeverSent, connected
from rillet.client.block_time import block_seconds
from rillet.client.errors import ConnectionLost, ConnectorError, TimedOut
from rillet.client.loop_timers import LoopTimer, call_later, time_limit
from rillet.errors import CommandError, StoreClosed, StoreError, StoreTimeout, UnknownTimeout
from rillet.protocol.command_parser import pack_command
from rillet.runtime.registry import TABLE
from rillet.store.transports.async_cancellation import Cancellations
from rillet.store.transports.task_threads import in_thread
from rillet.store.transports.undelivered import Steps, Undelivered, takes, takes_any

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


class AsyncServerTransport:
    """Runs commands on a server for the tasks of one event loop."""

    def __init__(self, address: Callable[[], Address], undelivered: Undelivered,
                 failed: Callable[[ConnectorError], StoreError | CommandError],
                 not_sent: Callable[[ConnectorError], StoreError], timeout: float | None,
                 as_read: Callable[[UnknownTimeout, Sequence[list[bytes]]], StoreError],
                 restore: Callable[[Sequence[Steps]], Awaitable[None]] | None = None,
                 asks: bool = False) -> None:  # fmt: skip
        self._address = address
        self._asks = asks
        self._undelivered = undelivered
        self._failed = failed
        self._not_sent = not_sent
        self._timeout = timeout
        self._as_read = as_read
        self._cancellations = Cancellations(self._share, undelivered, restore)
        self._loop = asyncio.get_running_loop()
        self._shared: AsyncConnection | None = None
        self._sharing: asyncio.Task[AsyncConnection] | None = None
        self._idle: list[AsyncConnection] = []
        self._busy: set[AsyncConnection] = set()
        self._connecting = asyncio.Semaphore(_CONNECTING)
        self._unlimited: set[AsyncConnection] = set()  # with a command that waits without limit
        self._probe_timer: LoopTimer | None = None
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
        try:
            async with self._connecting, time_limit(self._timeout):
                # Sentinels are asked in another thread; any other address is there at once.
                address = await in_thread(self._address) if self._asks else self._address()
                connection = await connected(address, self._loop, self._timeout)
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

    async def open(self) -> None:
        """Open the shared connection if there is none; NotSent if the server cannot be reached."""
        await self._share()

    # -- commands ----------------------------------------------------------------------------------------

    async def execute(self, argv: list[bytes], asking: bool = False) -> Any:
        """Run one command and return its reply; an error reply is returned, not raised.

        asking: send ASKING first, because a node of a cluster named this one in an ASK reply.
        """
        simple = argv[0] in self._simple
        if not simple:
            kept = self._undelivered.take_reply(argv)
            if kept is not None:
                return kept
            if blocks(argv):
                return await self._execute_blocking(argv, asking)
            simple = self._note(argv)
        shared = self._shared
        if shared is None or shared.closed:
            shared = await self._share()
        if shared.writable is not None:
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
                await self._cancellations.settled(self._cancellations.restored(argv, reply), shared)
                raise
        except ConnectorError as error:
            raise self._raised(error, [argv]) from error

    def _raised(self, error: ConnectorError, argvs: Sequence[list[bytes]]) -> StoreError | CommandError:
        """Return the exception for commands that got no reply."""
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
        if shared.writable is not None:
            await shared.ready()
        if asking:
            shared.call(_ASKING)
        replies = [shared.call(pack_command(argv)) for argv in argvs]
        try:
            if takes_any(argvs):
                try:
                    await asyncio.shield(replies[-1])  # replies arrive in order
                except asyncio.CancelledError:
                    await self._cancellations.settled(self._cancellations.restored_all(argvs, replies), shared)
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
                await self._cancellations.settled(self._cancellations.unblocked(connection, argv, reply), connection)
                raise
        except ConnectorError as error:
            raise self._raised(error, [argv]) from error
        finally:
            self._release(connection)

    def _probe_later(self) -> None:
        if self._probe_timer is None and self._timeout is not None and not self.closed:
            self._probe_timer = call_later(self._loop, self._timeout, self._probe)

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
            raise (self._not_sent if isinstance(error, NeverSent) else self._failed)(error) from error
        except BaseException:
            connection.close()
            raise
        finally:
            self._release(connection)

    async def _until_the_loop_ends(self) -> AsyncIterator[None]:
        """Close the connections when the event loop ends: asyncio then closes every open generator."""
        try:
            yield
        finally:
            self.close()
            await asyncio.sleep(0)

    # -- closing -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every connection; calls that wait raise StoreClosed.

        In the thread of the event loop, or after the loop was closed.
        """
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
        for connection in self._connections():
            connection.close(error)
        self._idle.clear()

    def _connections(self) -> list[AsyncConnection]:
        return [*self._idle, *self._busy, *([self._shared] if self._shared is not None else [])]
