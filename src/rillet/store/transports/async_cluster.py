"""AsyncClusterTransport: a cluster reached from an event loop, with async_connected's connections to each master.

    command ── slot of its key ── map of the slots ── AsyncServerTransport of the master ── reply
                     ▲                   ▲                                                  │
                     └── MOVED corrects the map; ASK names another node for one command ────┘

A redirected command was not executed, so it is sent again: at once after the first redirection, then with pauses, until
the timeout is over. If no connection to a master can be made, the map is read again from any node that answers. Before
commands for several nodes are sent, there is a connection to each of them, so NotSent means that nothing was sent. A
connection that breaks raises OutcomeUnknown, as over one server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from rillet.client.address import NodeAddress
from rillet.client.cluster import Topology, read_shards, read_slots, slot_of
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.loop_timers import sleep
from rillet.client.redirection import PauseLengths, Redirection, Remedy, not_executed, pause_reason, remedy_of
from rillet.client.servers import ClientOptions
from rillet.errors import CommandError, NotSent, OutcomeUnknown, StoreClosed, StoreError, StoreTimeout, UnknownTimeout
from rillet.protocol.reply_parser import ReplyError
from rillet.store.transports.async_connected import AsyncServerTransport
from rillet.store.transports.cluster_routing import (
    first_key,
    for_every_master,
    joined,
    key_of,
    unless_first,
    unless_redirected,
    whole_transaction,
)
from rillet.store.transports.undelivered import Steps, Undelivered, continues

Commands = Sequence[list[bytes]]
Send = Callable[[AsyncServerTransport, bool], Awaitable[list[Any]]]


class _TaskPatience(PauseLengths):
    """Pauses of a task. The first redirection is followed without a pause."""

    redirected = False

    async def after_redirection(self) -> bool:
        """Return whether to send the command again."""
        if not self.redirected:
            self.redirected = True
            return True
        return await self.again()

    async def again(self) -> bool:
        """Sleep for the next pause; return False without a pause if the total time is over."""
        pause = self.next_pause()
        if pause is None:
            return False
        await sleep(pause)
        return True


class AsyncClusterTransport:
    """Runs commands on the masters of a cluster for the tasks of one event loop."""

    def __init__(self, options: ClientOptions, undelivered: Undelivered,
                 failed: Callable[[ConnectorError], StoreError | CommandError],
                 not_sent: Callable[[ConnectorError], StoreError], timeout: float | None,
                 as_read: Callable[[UnknownTimeout, Commands], StoreError]) -> None:  # fmt: skip
        self._timeout = timeout
        self._as_read = as_read
        self._options = options
        self._undelivered = undelivered
        self._failed = failed
        self._not_sent = not_sent
        self._nodes: dict[NodeAddress, AsyncServerTransport] = {}
        self._topology: Topology | None = None
        self._reading: asyncio.Task[Topology] | None = None
        self.closed = False
        self.reached = False  # ClusterTransport, which made this one, has reached the cluster

    # -- nodes -------------------------------------------------------------------------------------------

    def _node(self, node: NodeAddress) -> AsyncServerTransport:
        """Return the connections to a node."""
        if self.closed:
            raise StoreClosed("the store is closed")
        found = self._nodes.get(node)
        if found is None or found.closed:
            address = self._options.address().at(node)
            found = self._nodes[node] = AsyncServerTransport(
                lambda: address, self._undelivered, self._failed, self._not_sent, self._timeout, self._as_read,
                self._restore,
            )  # fmt: skip
        return found

    async def _restore(self, restoring: Sequence[Steps]) -> None:
        """Put back what a cancelled command took: to the node that owns the slot now."""
        for steps in restoring:
            for argv in steps:
                if not continues(await self.execute(argv)):
                    break

    async def _map(self) -> Topology:
        """Return the map of the slots; several tasks read it once."""
        topology = self._topology
        if topology is not None:
            return topology
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_map())
            self._reading.add_done_callback(self._map_read)
        return await asyncio.shield(self._reading)

    def _map_read(self, task: asyncio.Task[Topology]) -> None:
        self._reading = None
        if not task.cancelled() and task.exception() is None:
            self._topology = task.result()

    async def _read_map(self) -> Topology:
        """Read the map from the first node that answers: connected nodes first."""
        failure: Exception | None = None
        for node in dict.fromkeys([*self._nodes, *self._options.seeds()]):
            server = self._node(node)
            try:
                reply = await server.execute([b"CLUSTER", b"SHARDS"])
                if not isinstance(reply, CommandError):
                    return read_shards(reply, node, self._options.address().tls is not None)
                reply = await server.execute([b"CLUSTER", b"SLOTS"])  # CLUSTER SHARDS exists since 7.0
            except StoreError as error:
                failure = error
                continue
            if not isinstance(reply, CommandError):
                return read_slots(reply, node)
            if pause_reason(str(reply)) is None:
                raise reply
            failure = self._not_sent(ConnectionLost(f"rillet: {node.host}:{node.port}: {reply}"))
        assert failure is not None
        raise NotSent(str(failure)) from failure

    async def _owner(self, slot: int) -> NodeAddress:
        """Return the master of a slot; NotSent if no node serves it."""
        shard = (await self._map()).owners[slot]
        if shard is None:
            raise self._not_sent(ConnectionLost(f"rillet: no node serves slot {slot}"))
        return shard.master

    # -- sending -----------------------------------------------------------------------------------------

    async def _follow(self, slot: int, send: Send) -> list[Any]:
        """Send commands of one slot to its node, and follow redirections; `send` gets the node and whether it asks."""
        pauses = _TaskPatience(self._options.timeout)
        asked: NodeAddress | None = None
        while True:
            try:
                node = asked or await self._owner(slot)
                replies = await send(self._node(node), asked is not None)
            except NotSent:
                self._topology, asked = None, None
                if not await pauses.again():
                    raise
                continue
            except (OutcomeUnknown, StoreTimeout):
                self._topology = None
                raise
            refused = next((reply for reply in replies if not_executed(reply)), None)
            if refused is None or not await self._redirected(refused, node, pauses):
                return replies
            redirection = Redirection.read(str(refused), node)
            asked = redirection.node if redirection is not None and redirection.asks else None

    async def _redirected(self, refused: ReplyError, node: NodeAddress, pauses: _TaskPatience) -> bool:
        """Apply a reply to the map; return whether to send the command again."""
        redirection = Redirection.read(str(refused), node)
        if redirection is not None:
            if not redirection.asks:
                (await self._map()).moved(redirection.slot, redirection.node)
            return await pauses.after_redirection()
        remedy = remedy_of(str(refused))
        if remedy is Remedy.READ_MAP:
            self._topology = None
        return remedy is not None and await pauses.again()

    async def _masters(self) -> list[AsyncServerTransport]:
        """Return the connections to each master."""
        topology = await self._map_or_wait()
        return [self._node(shard.master) for shard in topology.shards()]

    async def _map_or_wait(self) -> Topology:
        pauses = _TaskPatience(self._options.timeout)
        while True:
            try:
                return await self._map()
            except NotSent:
                if not await pauses.again():
                    raise

    async def shards(self) -> list[Callable[[list[bytes]], Awaitable[Any]]]:
        """Return for each master a function that runs a command there; NotSent if a master cannot be reached."""
        masters = await self._masters()
        await self._open(masters)
        return [master.execute for master in masters]

    # -- commands ----------------------------------------------------------------------------------------

    async def execute(self, argv: list[bytes]) -> Any:
        """Run one command on the node of its key, or on every master."""
        if for_every_master(argv):
            found = await asyncio.gather(*[ask(argv) for ask in await self.shards()], return_exceptions=True)
            return joined(argv, _complete(found))
        key = key_of(argv)
        if key is None:
            reply = await (await self._masters())[0].execute(argv)
            if not not_executed(reply) or len(argv) < 2:
                return reply
            key = argv[1]  # a shard channel (SPUBLISH), which has a slot although it is not a key

        async def send(server: AsyncServerTransport, asking: bool) -> list[Any]:
            return [await server.execute(argv, asking)]

        return (await self._follow(slot_of(key), send))[0]

    async def execute_many(self, argvs: Commands) -> list[Any]:
        """Run commands in one exchange with each node; send redirected commands again one by one."""
        whole = whole_transaction(argvs)
        if whole is not None:
            slot = slot_of(first_key(argvs) or b"")
            if whole:
                return await self._follow(slot, lambda server, asking: server.execute_many(argvs, asking))
            return await self._node(await self._owner(slot)).execute_many(argvs)
        parts = await self._parts(argvs)
        replies: list[Any] = [None] * len(argvs)
        await asyncio.gather(*[self._part(argvs, places, node, replies) for node, places in parts.items()])
        return _complete(replies)

    async def _parts(self, argvs: Commands) -> dict[NodeAddress | None, list[int]]:
        """Return the places of the commands of each node, to which there is a connection (None: of any node)."""
        pauses = _TaskPatience(self._options.timeout)
        while True:
            topology = await self._map_or_wait()
            parts: dict[NodeAddress | None, list[int]] = {}
            for place, argv in enumerate(argvs):
                key = key_of(argv)
                shard = None if key is None else topology.shard(key)
                parts.setdefault(None if shard is None else shard.master, []).append(place)
            try:
                await self._open([self._node(node) for node in parts if node is not None])
                return parts
            except NotSent:
                if not await pauses.again():
                    raise

    async def _open(self, nodes: Sequence[AsyncServerTransport]) -> None:
        """Open a connection to each node that has none; NotSent if a node cannot be reached."""
        opened = await asyncio.gather(*[node.open() for node in nodes], return_exceptions=True)
        for failure in opened:
            if failure is not None:
                self._topology = None
                raise failure

    async def _part(self, argvs: Commands, places: list[int], node: NodeAddress | None, replies: list[Any]) -> None:
        """Run the commands at some places on one node (None: one by one, wherever each belongs).

        The reply to a command that failed is a StoreError.
        """
        left = places
        if node is not None:
            try:
                received: list[Any] = await self._node(node).execute_many([argvs[place] for place in places])
            except NotSent:
                received = [None] * len(places)
            except StoreError as error:
                received, left = [error] * len(places), []
            else:
                left = [place for place, reply in zip(places, received, strict=True) if not_executed(reply)]
            for place, reply in zip(places, received, strict=True):
                replies[place] = reply
        for place in left:
            try:
                replies[place] = await self.execute(argvs[place])
            except StoreError as error:
                replies[place] = error

    # -- transactions ------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def exclusive(self, key: bytes) -> AsyncIterator[Callable[[Commands], Awaitable[list[Any]]]]:
        """Yield a coroutine function that runs commands on a separate connection; see ClusterTransport.exclusive."""
        async with contextlib.AsyncExitStack() as stack:
            opened: Callable[[Commands], Awaitable[list[Any]]] | None = None

            async def first(argvs: Commands, server: AsyncServerTransport, asking: bool) -> list[Any]:
                nonlocal opened
                await stack.aclose()  # of the node that redirected
                run = await stack.enter_async_context(server.exclusive(key))
                opened = partial(run, asking=asking)
                return await opened(argvs)

            async def run(argvs: Commands) -> list[Any]:
                if opened is not None:
                    return unless_redirected(await opened(argvs))
                return await self._follow(slot_of(key), partial(first, argvs))

            yield run

    # -- closing -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every connection; calls that wait raise StoreClosed.

        In the thread of the event loop, or after the loop was closed.
        """
        self.closed = True
        for server in self._nodes.values():
            server.close()


def _complete(replies: list[Any]) -> list[Any]:
    """Return the replies; raise the first failure among them: NotSent only if nothing was sent, else OutcomeUnknown."""
    failures = [reply for reply in replies if isinstance(reply, BaseException) and not isinstance(reply, CommandError)]
    for failure in failures:
        if not isinstance(failure, NotSent):
            raise failure
    if failures:
        with unless_first(len(failures) < len(replies)):
            raise failures[0]
    return replies
