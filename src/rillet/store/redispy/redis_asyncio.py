"""A redis.asyncio client whose connections lead to the engine in this process, on the event loop, without a socket.

    redis.asyncio.Redis -> pool -> AsyncStoreConnection -> EngineStream.writelines -> Engine.drain
                                                           EngineStream.read       <- replies, or awaits them

EngineStream is redis-py's reader and its writer. A command runs in the event loop as soon as it is written. A command
that blocks suspends its task: the engine's wake-up and a timer of the loop continue it, so ten thousand tasks wait
without a thread. Under `appendfsync always` a worker thread waits for the sync, and the loop serves other tasks.

Cancellation. redis-py closes the connection of a cancelled call, but only when the task runs again: between the two,
a socket would accept an element that no caller receives. Here the session ends in the call of `Task.cancel` itself, so
a command that was still blocked consumes nothing. If the command was executed before the cancellation, its reply is
unread when redis-py closes the connection: what it took is put back then (rillet.store.redispy.redis_session).

A connection belongs to the event loop in which it was made: each loop has its own pool (redis_loops).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import redis.asyncio
import redis.client
from redis.asyncio.client import Redis  # a test may replace redis.asyncio.Redis by store.redis_async
from redis.asyncio.connection import Connection, ConnectionPool, parse_url

from rillet.client.address import Address
from rillet.client.loop_timers import LoopTimer, call_later, time_limit
from rillet.errors import Misconf
from rillet.store.redispy.redis_loops import LoopClient, LoopCluster
from rillet.store.redispy.redis_py import (
    DEFAULTS,
    STORE_DEFAULTS,
    check_options,
    cluster_nodes,
    find_owner,
    sentinel_arguments,
    transport_of,
)
from rillet.store.redispy.redis_session import Ran, RedisSession
from rillet.store.transports.cluster import ClusterTransport
from rillet.store.transports.connected import AttachedTransport, ServerTransport
from rillet.store.transports.in_process import InProcessTransport
from rillet.store.transports.task_threads import in_thread, in_thread_of
from rillet.store.transports.transport import Transport

if TYPE_CHECKING:
    from rillet.store.store import Store


class _Wait(asyncio.Future[None]):
    """The future of a waiting read. Cancelling it ends the session at once, before the cancelled task runs."""

    def __init__(self, stream: EngineStream, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._stream = stream

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            self._stream.cancelled()
        return cancelled


class EngineStream:
    """The methods of asyncio's StreamReader and StreamWriter that redis-py calls, over a session of the engine."""

    def __init__(self, transport: InProcessTransport) -> None:
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._buffer = bytearray()  # redis-py reads this attribute to find unread replies
        self._waiting: _Wait | None = None
        self._timer: LoopTimer | None = None
        self._scheduled = False
        self._closed = False
        # Replies that wait for a sync of the log, in order.
        self._unsynced: deque[Ran] = deque()
        self._syncing: asyncio.Task[None] | None = None
        self._session = RedisSession(transport, self._wake)

    # -- the writer ----------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Run the commands that are complete after these bytes; BrokenPipeError if the session has ended."""
        self._take(self._session.run(data, bool(self._buffer or self._unsynced)))
        self._set_timer()

    def writelines(self, pieces: Iterable[bytes]) -> None:
        """Run the commands that are complete after these bytes; BrokenPipeError if the session has ended."""
        self.write(b"".join(pieces))

    async def drain(self) -> None:
        """Return: nothing is left to be sent."""

    def is_closing(self) -> bool:
        """Return whether the session has ended."""
        return self._closed or self._session.ended

    def close(self) -> None:
        """End the session, and drop the replies that were not read; what their commands took is put back."""
        self._closed = True
        self._stop_timer()
        unread = bool(self._buffer or self._unsynced)
        self._buffer.clear()
        self._unsynced.clear()
        self._session.end(unread)  # which wakes a waiting read

    def abort(self) -> None:
        """Close the stream, as a transport whose event loop was closed."""
        self.close()

    async def wait_closed(self) -> None:
        """Return: `close` has ended the session."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the default: there is no socket."""
        return default

    @property
    def transport(self) -> EngineStream:
        """The object with `get_extra_info` and `abort`."""
        return self

    # -- the reader ----------------------------------------------------------------------------------

    def at_eof(self) -> bool:
        """Return whether the session has ended and all replies were read."""
        return not self._buffer and not self._unsynced and self.is_closing()

    async def read(self, count: int = -1) -> bytes:
        """Return up to `count` bytes of replies, waiting for the first; b"" at the end of the session."""
        await self._bytes(1)
        return self._pop(len(self._buffer) if count < 0 else count)

    async def readexactly(self, count: int) -> bytes:
        """Return `count` bytes of replies; IncompleteReadError if the session ends before."""
        if not await self._bytes(count):
            raise asyncio.IncompleteReadError(bytes(self._buffer), count)
        return self._pop(count)

    async def readline(self) -> bytes:
        """Return bytes of replies up to and including a line feed; fewer at the end of the session."""
        while (end := self._buffer.find(b"\n")) < 0:
            if not await self._bytes(len(self._buffer) + 1):
                return self._pop(len(self._buffer))
        return self._pop(end + 1)

    def _pop(self, count: int) -> bytes:
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def _bytes(self, count: int) -> bool:
        """Wait until the buffer holds `count` bytes; return False if the session ends before."""
        while len(self._buffer) < count:
            if not self._unsynced:
                self._collect()
                if len(self._buffer) >= count:
                    break
                if self._closed or (self._session.ended and not self._unsynced):
                    return False
            if self._waiting is not None:
                raise RuntimeError("another task waits for a reply on this connection")
            self._waiting = _Wait(self, self.loop)
            try:
                await self._waiting
            finally:
                self._waiting = None
        return True

    # -- arrival -------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Collect the output in the loop's next iteration; called from any thread, also in the middle of a command."""
        if self._scheduled:
            return
        self._scheduled = True
        schedule = self.loop.call_soon if threading.get_ident() == self._thread else self.loop.call_soon_threadsafe
        with contextlib.suppress(RuntimeError):  # the loop was closed: no task waits
            schedule(self._arrived)

    def _arrived(self) -> None:
        self._scheduled = False
        if not self._closed:
            self._collect()
        self._finish_waiting()

    def _collect(self) -> None:
        ran = self._session.collect()
        if ran is not None:
            self._take(ran)
            self._set_timer()

    def _take(self, ran: Ran) -> None:
        """Append replies to the buffer, in order, once the log is synced as configured."""
        if not ran.replies:
            return
        self._unsynced.append(ran)
        if len(self._unsynced) == 1:
            self._release()

    def _release(self) -> None:
        """Move the replies whose log position is safe to the buffer; await the sync for the first other reply."""
        while self._unsynced:
            ran = self._unsynced[0]
            try:
                if not ran.settled:
                    syncing = in_thread_of(self._session.transport.disk, ran.log.wait, ran.position)
                    self._syncing = self.loop.create_task(syncing)
                    self._syncing.add_done_callback(self._synced)
                    return
                self._buffer += ran.replies
                self._unsynced.popleft()
            except Misconf as error:
                self._buffer += self._session.failed(ran, error)
                self._unsynced.clear()
        self._finish_waiting()

    def _synced(self, waited: asyncio.Task[None]) -> None:
        if not waited.cancelled():
            waited.exception()  # `settled` raises the same error
        if not self._closed:
            self._release()

    def _finish_waiting(self) -> None:
        """Continue the waiting read, which looks at the buffer and the session again."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def cancelled(self) -> None:
        """End the session if a command is blocked, so that it consumes nothing after the caller was cancelled."""
        if self._session.end_if_blocked():
            self._stop_timer()

    # -- deadlines -----------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Set the timer for the deadline of the blocked command, if there is one."""
        self._stop_timer()
        left = self._session.seconds_left()
        if left is not None:
            self._timer = call_later(self.loop, max(left, 0.001), self._arrived)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class AsyncStoreConnection(Connection):
    """A redis.asyncio connection to a store in this process or to the socket of the store's owner."""

    def __init__(self, *, rillet_store: Store, **options: Any) -> None:
        self._store = rillet_store
        self._stream: EngineStream | None = None
        super().__init__(**options)

    async def _connect(self) -> None:
        self.end()
        there = transport_of(self._store)
        if isinstance(there, Address):
            try:
                return await self._open_socket(there)
            except OSError:
                await in_thread(find_owner, self._store)
            there = transport_of(self._store)
        if isinstance(there, Address):
            await self._open_socket(there)
        else:
            opened: Any = EngineStream(there)
            self._stream = self._reader = self._writer = opened

    async def _open_socket(self, address: Address) -> None:
        async with time_limit(self.socket_connect_timeout):
            if address.unix is not None:
                self._reader, self._writer = await asyncio.open_unix_connection(address.unix)
            else:
                self._reader, self._writer = await asyncio.open_connection(address.host, address.port)

    def end(self) -> None:
        """End the session in this process at once, from any thread and without an event loop."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
            self._reader = self._writer = None

    def _host_error(self) -> str:
        return repr(self._store)

    def repr_pieces(self) -> list[tuple[str, Any]]:
        """Return the fields for redis-py's `repr` of a connection."""
        return [("store", self._store), ("db", self.db)]

    def __del__(self, _warnings: Any = None) -> None:
        # redis-py warns about a connection that was not closed; a session in this process costs no descriptor.
        if getattr(self, "_stream", None) is not None:
            self.end()
        elif getattr(self, "_writer", None) is not None:
            super().__del__()


class AsyncStorePool(ConnectionPool):
    """redis-py's pool of connections to a store; `end_sessions` closes them without an event loop."""

    def __init__(self, store: Store, **options: Any) -> None:
        super().__init__(connection_class=AsyncStoreConnection, rillet_store=store, **options)
        self._made: weakref.WeakSet[AsyncStoreConnection] = weakref.WeakSet()

    def make_connection(self) -> Any:
        """Return a new connection."""
        made: Any = super().make_connection()  # type: ignore[no-untyped-call]
        self._made.add(made)
        return made

    def end_sessions(self) -> None:
        """End the sessions in this process at once, from any thread, as at the end of a test."""
        for connection in list(self._made):
            connection.end()


def async_client_of(store: Store, *, single_connection_client: bool = False, **options: Any) -> Redis:
    """Return a redis.asyncio client for the store's engine or server; options as for redis_py.client_of."""
    transport = store.transport
    check_options(options, "store.redis_async()", Redis, redis.asyncio.RedisCluster, redis.client.Redis)
    client: Any
    if isinstance(transport, ClusterTransport):
        client = _cluster_client(str(store.url), **{**DEFAULTS, **options})
    elif isinstance(transport, ServerTransport) and transport.options.moves:
        client = LoopClient(lambda: _sentinel_client(transport, options))
    else:

        def make() -> Redis:
            """Return a client with its own pool, for one event loop."""
            made = Redis(
                connection_pool=_pool(store, transport, options), single_connection_client=single_connection_client
            )
            made.auto_close_connection_pool = True
            return made

        client = LoopClient(make)
    # The client keeps a reference, so that the garbage collector does not close the store.
    client.rillet_store = store
    return client  # type: ignore[no-any-return]


def _pool(store: Store, transport: Transport, options: dict[str, Any]) -> ConnectionPool:
    """Return a pool of connections to the store's engine or server."""
    if isinstance(transport, ServerTransport) and not isinstance(transport, AttachedTransport):
        return ConnectionPool(**{**DEFAULTS, **parse_url(str(store.url)), **options})
    return AsyncStorePool(store, **{**STORE_DEFAULTS, **options})


def _sentinel_client(transport: ServerTransport, options: dict[str, Any]) -> Redis:
    from redis.asyncio.sentinel import Sentinel

    service, nodes, watchers, options_of_master = sentinel_arguments(transport)
    sentinel_of: Any = Sentinel
    client: Redis = sentinel_of(nodes, sentinel_kwargs=watchers).master_for(
        service, **{**DEFAULTS, **options_of_master, **options}
    )
    return client


def _cluster_client(url: str, **options: Any) -> Any:
    from redis.asyncio.cluster import ClusterNode

    first, others = cluster_nodes(url)
    node_of: Any = ClusterNode
    return LoopCluster.from_url(first, startup_nodes=[node_of(host, port) for host, port in others], **options)
