"""AsyncRunner: how the commands of an AsyncStore run, and what is written by hand because it differs from Store.

    store                          a command                               a command that blocks
    in this process                runs on the event loop                  suspends its task (another session)
    attached, or on a server       a connection that all tasks share       another connection
    a cluster                      the same, for each node                 the same

With `appendfsync="always"` a task is suspended until its change is on disk; one thread syncs for all tasks that wait.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from rillet.errors import CommandError, StoreError, TransactionConflict
from rillet.host.engine_thread import EngineThread
from rillet.host.recovery import Recovery
from rillet.protocol.reply_parser import parse_all
from rillet.store.aio.command_steps import drive
from rillet.store.aio.subscription import AsyncSubscription
from rillet.store.arguments.allowed_commands import stateless
from rillet.store.arguments.argument_limits import UNLIMITED, check_length, check_lengths
from rillet.store.arguments.encoding import decode, encode_name, longest, parse_id
from rillet.store.async_retries import again_async, patiently_async
from rillet.store.channels import Names
from rillet.store.codecs import Codec
from rillet.store.consuming.prefetch import Prefetched
from rillet.store.entry import Entry, entries_of
from rillet.store.retries import FAILURES_OF_ONE, PATIENCE, Retries
from rillet.store.sharing.serving import StoreServer
from rillet.store.transaction import AsyncTransaction
from rillet.store.transports.async_cluster import AsyncClusterTransport
from rillet.store.transports.cluster import ClusterTransport
from rillet.store.transports.connected import ServerTransport
from rillet.store.transports.in_process import InProcessTransport
from rillet.store.transports.task_threads import in_thread, in_thread_of
from rillet.store.transports.transport import Transport, all_raised, all_ready, ids_among, raised
from rillet.store.typed.form_choice import form_of
from rillet.store.typed.forms import CodecName, OnInvalid, checked_action
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from typing import Self

    from redis.asyncio import Redis as AsyncRedis

    from rillet.store.aio.group import AsyncMessageReader
    from rillet.store.aio.partitions.stream import AsyncPartitionedStream
    from rillet.store.aio.store import AsyncStore
    from rillet.store.arguments.entry_packing import EntryPacker
    from rillet.store.consuming.delivery_options import Stop
    from rillet.store.consuming.leases import Leases
    from rillet.store.handling import Handled
    from rillet.store.store import Store

P = ParamSpec("P")
Result = TypeVar("Result")


class AsyncRunner:
    """Runs commands for tasks. `synchronous` is the Store; the two share everything, and closing one closes both."""

    def __init__(self, store: Store) -> None:
        self.synchronous = store

    # -- commands --------------------------------------------------------------------------------------

    _accepted = staticmethod(stateless)

    async def run(self, argv: list[bytes], patience: float = PATIENCE) -> Any:
        """Run one command whose arguments are bytes, and return its reply; see `execute`.

        patience: seconds for which the call waits for a server that is away; see rillet.store.retries.
        """
        store = self.synchronous
        transport = store.transport
        if longest(argv) > UNLIMITED:
            check_lengths(transport, [argv])
        try:
            return raised(await self._execute(transport, argv))
        except FAILURES_OF_ONE as error:
            retries = Retries(patience)
            transport = await in_thread(store.replacement, transport, error, retries, [argv])

        async def attempt(other: Transport) -> Any:
            return raised(await self._execute(other, argv))

        return await again_async(store, attempt, [argv], transport, retries, FAILURES_OF_ONE)

    async def in_thread(self, function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Run a function in a thread; a cancelled task does not stop it."""
        return await in_thread(function, *args, **kwargs)

    async def _end_loop(self, leases: Leases, prefetched: Prefetched) -> None:
        """Run the last commands of a loop over messages(). The event loop runs them for a loop that is collected."""
        with contextlib.suppress(StoreError, CommandError):  # the store is closed, or the group is gone
            await drive(cast("AsyncStore", self), leases.ended(), 0.0)
            await drive(cast("AsyncStore", self), prefetched.give_back(), 0.0)

    async def _handle(
        self, reader: AsyncMessageReader[Any], handler: Callable[[Any], object], concurrency: int,
        signals: Sequence[int] | None, stop: Stop | None, options: dict[str, Any],
    ) -> Handled:  # fmt: skip
        """Handle the messages of a reader; see AsyncConsumer.run."""
        from rillet.store.handling import Handling, run_in_tasks

        return await run_in_tasks(reader, Handling(handler, concurrency, signals, stop, options))

    @property
    def _loops(self) -> set[Prefetched]:
        """The loops over messages(), of both APIs."""
        return self.synchronous._loops

    async def run_many(self, commands: Sequence[list[bytes]], patience: float = PATIENCE,
                       raises: bool = True) -> list[Any]:  # fmt: skip
        """Run several commands whose arguments are bytes; see `execute_many` and `run`.

        raises: else the replies contain the errors; one is raised only if the server was not ready.
        """
        check_lengths(self.synchronous.transport, commands)
        checked = all_raised if raises else all_ready

        async def attempt(transport: Transport) -> list[Any]:
            return checked(await self._execute_many(transport, commands))

        return await patiently_async(self.synchronous, attempt, commands, patience)

    async def add_packed(self, key: bytes, packer: EntryPacker) -> list[StreamID | None]:
        """Run the XADDs of a packer, which is empty then, and return the IDs; see `AsyncStream.add_many`."""
        check_length(self.synchronous.transport, packer.longest)
        count, data = packer.count, packer.take_bytes()

        async def attempt(transport: Transport) -> list[StreamID | None]:
            if isinstance(transport, InProcessTransport):
                return await transport.add_packed_async(data, count)
            return ids_among(await self._execute_many(transport, parse_all(data)))

        return await patiently_async(self.synchronous, attempt, [[b"XADD"]])

    async def id_of(self, argv: list[bytes]) -> StreamID | None:
        """Run a command that replies with a stream ID or null; the fast path of `AsyncStream.add`."""
        store = self.synchronous
        transport = store.transport
        if not store.may_wait and not (isinstance(transport, InProcessTransport) and transport.tasks_apart):
            return store.id_of(argv)
        reply = await self.run(argv)
        made: StreamID | None = None if reply is None else parse_id(reply)
        return made

    async def read_entries(self, argv: list[bytes]) -> list[Entry[Any]]:
        """Run an XRANGE or XREVRANGE and return the entries."""
        return entries_of(await self.run(argv))

    def _execute(self, transport: Transport, argv: list[bytes]) -> Awaitable[Any]:
        if isinstance(transport, InProcessTransport):
            return transport.execute_async(argv)
        if isinstance(transport, ServerTransport):
            return transport.for_loop().execute(argv)
        return in_thread(transport.execute, argv)

    def _execute_many(self, transport: Transport, commands: Sequence[list[bytes]]) -> Awaitable[list[Any]]:
        if isinstance(transport, InProcessTransport):
            return transport.execute_many_async(commands)
        if isinstance(transport, ServerTransport):
            return transport.for_loop().execute_many(commands)
        return in_thread(transport.execute_many, commands)

    # -- keys ------------------------------------------------------------------------------------------

    def partitioned(self, name: str | bytes, partitions: int | None = None, by: str | bytes | None = None, *,
                    type: Any = None, codec: CodecName | Codec[Any] = "fields",
                    on_invalid: OnInvalid = "raise") -> AsyncPartitionedStream[Any]:  # fmt: skip
        """Return the partitioned stream of that name; see Store.partitioned."""
        from rillet.store.aio.partitions.stream import AsyncPartitionedStream

        store = cast("AsyncStore", self)
        return AsyncPartitionedStream(store, name, partitions, by, form_of(type, codec), checked_action(on_invalid))

    async def keys(self, pattern: str = "*", kind: str | None = None) -> AsyncIterator[str]:
        """Yield the keys that match a glob; `kind` selects a type, such as "stream" or "string" (SCAN).

        A cluster yields the keys of each master in turn. As with SCAN, a key may occur twice while a server resizes.
        """
        extra = [] if kind is None else [b"TYPE", encode_name(kind, "kind")]
        for run in await self._shards():
            cursor, more = b"0", True
            while more:
                scan = [b"SCAN", cursor, b"MATCH", encode_name(pattern, "pattern"), b"COUNT", b"1000", *extra]
                cursor, names = raised(await run(scan))
                for raw in names:
                    yield decode(raw)
                more = cursor != b"0"

    async def _shards(self) -> list[Callable[[list[bytes]], Awaitable[Any]]]:
        """Return for each master of a cluster a function that runs a command there; for another store, one function."""
        transport = self.transport
        if isinstance(transport, ClusterTransport):
            return await cast(AsyncClusterTransport, transport.for_loop()).shards()
        return [self.run]

    # -- transactions ----------------------------------------------------------------------------------

    def transaction(self, watch: Iterable[str | bytes] = ()) -> AsyncTransaction:
        """Return an asynchronous context manager whose commands are executed together, or not at all.

        watch: keys; if another client changes one of them during the block, TransactionConflict is raised.
        """
        return AsyncTransaction(cast(Any, self), watch)

    async def transact(self, function: Callable[[AsyncTransaction], Awaitable[Result]], watch: Iterable[str | bytes], *,
                       tries: int = 1000) -> Result:  # fmt: skip
        """Await function(transaction) in a transaction, again while other clients change the watched keys; return its
        result. TransactionConflict after `tries` calls.
        """
        keys = list(watch)
        while True:
            tries -= 1
            try:
                async with self.transaction(keys) as transaction:
                    result = await function(transaction)
                return result
            except TransactionConflict:
                if tries <= 0:
                    raise

    def exclusive(self, key: bytes, transport: Transport) -> Any:
        """Return an asynchronous context manager that yields a coroutine function: list of commands -> replies."""
        if isinstance(transport, InProcessTransport):
            return transport.exclusive_async(key)
        assert isinstance(transport, ServerTransport)
        return transport.for_loop().exclusive(key)

    # -- channels --------------------------------------------------------------------------------------

    async def subscribe(self, *channels: str | bytes, patterns: Names = (), shards: Names = ()) -> AsyncSubscription:
        """Subscribe to channels, to globs of channel names, and to shard channels; see AsyncSubscription."""
        store = self.synchronous
        if store.may_wait:
            plain = await in_thread(store.subscribe, *channels, patterns=patterns, shards=shards)
        else:
            plain = store.subscribe(*channels, patterns=patterns, shards=shards)
        return AsyncSubscription(self, plain)

    # -- files, other APIs -------------------------------------------------------------------------------

    async def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write a snapshot of all data to an RDB file; see Store.save. A worker thread writes it."""
        return await in_thread(self.synchronous.save, path)

    async def serve(self, port: int = 0, *, host: str = "127.0.0.1",
                    unix: str | os.PathLike[str] | None = None) -> StoreServer:  # fmt: skip
        """Serve this store on a socket, in a thread; see Store.serve. Close the result with its `close`."""
        return await in_thread(self.synchronous.serve, port, host=host, unix=unix)

    def redis_async(self, **options: Any) -> AsyncRedis:
        """Return a redis.asyncio client for this store; see Store.redis_async."""
        return self.synchronous.redis_async(**options)

    # -- state -------------------------------------------------------------------------------------------

    @property
    def transport(self) -> Transport:
        """The transport to the engine."""
        return self.synchronous.transport

    @property
    def path(self) -> str | None:
        """The directory of a durable store, else None."""
        return self.synchronous.path

    @property
    def recovery(self) -> Recovery | None:
        """The result of the recovery when this process opened the directory as owner; see rillet.host.recovery."""
        return self.synchronous.recovery

    @property
    def owner(self) -> bool:
        """True if the engine runs in this process."""
        return self.synchronous.owner

    @property
    def socket(self) -> str | None:
        """The Unix socket on which the store's owner listens; None in memory and over a server."""
        return self.synchronous.socket

    @property
    def url(self) -> str | None:
        """A url under which other processes of this machine reach the data; see Store.url."""
        return self.synchronous.url

    async def close(self) -> None:
        """Write the unwritten part of the log and release the directory; later calls raise StoreClosed."""
        await in_thread_of(EngineThread(), self.synchronous.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Async{self.synchronous!r}"
