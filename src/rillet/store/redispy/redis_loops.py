"""The clients of `store.redis_async()`: one client for the program, one pool of connections for each event loop.

A connection of redis.asyncio belongs to the event loop in which it was opened, and so do its locks. A program may have
several loops: one `asyncio.run` after the other, one loop for each test, or a loop in each of several threads. So
everything of a client that belongs to a loop is kept once for each loop, in a client of redis-py with its own pool:

    LoopClient ── connection_pool: LoopPool ──► Loops ── loop 1 ──► redis.asyncio.Redis, its pool
               ── connection, its lock ───────►       ── loop 2 ──► redis.asyncio.Redis, its pool

    LoopCluster ── nodes, their connections ──► Loops ── loop 1 ──► redis.asyncio.RedisCluster

Pipelines, subscriptions, scripts and locks refer to the client of the program, so a script that was registered in one
loop runs in another one.

The connections of a loop are closed when the loop ends: asyncio then closes every open generator, and `Loops` leaves
one in each loop (asyncio.run, asyncio.Runner and uvloop do this). If a program closes a loop without this, the next
loop that uses the client closes the connections.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any
from weakref import ReferenceType, ref

from redis.asyncio.client import Redis  # a test may replace redis.asyncio.Redis by store.redis_async
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import ConnectionPool

from rillet.client.async_connection import hang_up

Loop = asyncio.AbstractEventLoop | None  # None: no loop runs, as while a program starts


class Loops:
    """The clients of redis-py that a client consists of: one for each event loop."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._clients: dict[Loop, Any] = {}
        self._endings: dict[Loop, Any] = {}
        self._setup: list[Callable[[Any], object]] = []

    def here(self) -> Any:
        """Return the client of the running event loop."""
        try:
            loop: Loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        client = self._clients.get(loop)
        return self._begin(loop) if client is None else client

    def _begin(self, loop: Loop) -> Any:
        for other in list(self._clients):
            if other is not None and other.is_closed():
                _leave(self.forget(other))
        client = self._make()
        for setup in self._setup:
            setup(client)
        client = self._clients.setdefault(loop, client)
        if loop is not None:
            self._endings[loop] = ending = _until_the_loop_ends(ref(self), loop)
            begin: Any = ending.__anext__()
            with contextlib.suppress(StopIteration):
                begin.send(None)  # it suspends at its `yield`
        return client

    def forget(self, loop: Loop) -> Any:
        """Remove the client of a loop and return it."""
        self._endings.pop(loop, None)
        return self._clients.pop(loop, None)

    def every(self) -> list[Any]:
        """Return the clients of all loops."""
        return list(self._clients.values())

    def set_up(self, setup: Callable[[Any], object]) -> None:
        """Call a function with the client of each loop, now or when it is made."""
        self._setup.append(setup)
        for client in self.every():
            setup(client)


async def _until_the_loop_ends(loops: ReferenceType[Loops], loop: Loop) -> AsyncIterator[None]:
    """Close the connections when the event loop ends: asyncio then closes every open generator."""
    try:
        yield
    finally:
        owner = loops()
        client = None if owner is None else owner.forget(loop)
        for part in _parts(client):
            with contextlib.suppress(Exception):  # the server ended first
                await part.aclose()


def _parts(client: Any) -> list[Any]:
    """Return a client and the clients of the sentinels that it asks."""
    pool = getattr(client, "connection_pool", None)
    manager = getattr(pool, "sentinel_manager", None)
    return [] if client is None else [client, *getattr(manager, "sentinels", ())]


def _leave(client: Any) -> None:
    """Close the connections of a client whose event loop was closed, without the loop."""
    for part in _parts(client):
        for connection in _connections(part):
            writer, connection._reader, connection._writer = connection._writer, None, None
            if writer is not None:
                hang_up(writer.transport)


def _connections(client: Any) -> list[Any]:
    """Return the connections of one client, which counts as closed from now on."""
    if isinstance(client, RedisCluster):
        client._initialize = True
        nodes = [*client.nodes_manager.nodes_cache.values(), *client.nodes_manager.startup_nodes.values()]
        return [connection for node in nodes for connection in node._connections]
    pool: Any = client.connection_pool
    client.connection = None
    return [*pool._available_connections, *pool._in_use_connections]


class _OfTheLoop:
    """An attribute of a client that belongs to an event loop: that of the client of the running loop."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else getattr(client._loops.here(), self._name)

    def __set__(self, client: Any, value: Any) -> None:
        setattr(client._loops.here(), self._name, value)


class LoopPool(ConnectionPool):
    """The pool of the running event loop."""

    _own = frozenset(("_loops", "__class__", "end_sessions"))

    def __init__(self, loops: Loops) -> None:
        object.__setattr__(self, "_loops", loops)

    def __getattribute__(self, name: str) -> Any:
        if name in LoopPool._own:
            return object.__getattribute__(self, name)
        return getattr(self._loops.here().connection_pool, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._loops.here().connection_pool, name, value)

    def __repr__(self) -> str:
        return repr(self._loops.here().connection_pool)

    def __del__(self) -> None:
        pass  # the pool of each loop counts its connections

    def end_sessions(self) -> None:
        """End the sessions in this process at once, from any thread, as at the end of a test."""
        for client in self._loops.every():
            client.connection_pool.end_sessions()


class LoopClient(Redis):
    """A client of redis.asyncio for every event loop of the program."""

    connection: Any = _OfTheLoop()
    _single_conn_lock: Any = _OfTheLoop()
    _usage_lock: Any = _OfTheLoop()
    _usage_counter: Any = _OfTheLoop()

    def __init__(self, make: Callable[[], Redis]) -> None:
        self._loops = Loops(make)
        first: Any = self._loops.here()
        pool: Any = LoopPool(self._loops)
        super().__init__(connection_pool=pool, single_connection_client=first.single_connection_client)
        self.auto_close_connection_pool = first.auto_close_connection_pool

    def __del__(self, *_: Any) -> None:
        pass  # the client of each loop warns if its connection was left open

    def client(self) -> Redis:
        """Return a client with one connection, which uses the same pools."""
        return LoopClient(lambda: self._loops.here().client())

    def set_retry(self, retry: Any) -> None:
        """Set the retries of the connections, in every event loop."""
        self._loops.set_up(lambda client: client.set_retry(retry))


class LoopCluster(RedisCluster):
    """A client of a cluster for every event loop of the program."""

    nodes_manager: Any = _OfTheLoop()
    commands_parser: Any = _OfTheLoop()
    startup_nodes: Any = _OfTheLoop()
    reinitialize_counter: Any = _OfTheLoop()
    _aggregate_nodes: Any = _OfTheLoop()
    _initialize: Any = _OfTheLoop()
    _lock: Any = _OfTheLoop()
    _usage_lock: Any = _OfTheLoop()
    _usage_counter: Any = _OfTheLoop()
    _event_dispatcher: Any = _OfTheLoop()
    _oss_cluster_maint_notifications_handler: Any = _OfTheLoop()

    def __init__(self, **options: Any) -> None:
        self._loops = Loops(lambda: RedisCluster(**options))
        super().__init__(**options)
        callbacks = self.response_callbacks
        self._loops.set_up(lambda client: _share(client, callbacks))

    def __del__(self, *_: Any) -> None:
        pass  # the client of each loop warns if its connections were left open


def _share(client: Any, callbacks: Any) -> None:
    """Let the nodes of one loop's client use these callbacks for replies."""
    client.nodes_manager.connection_kwargs["response_callbacks"] = callbacks
    for node in client.nodes_manager.startup_nodes.values():
        node.response_callbacks = callbacks
