"""The asyncio API: the same store, stream, group and consumer with coroutines.

    store = rillet.open("events.rillet").aio()
    stream = store.stream("orders")
    await stream.add({"total": "99.90"})
    async for entry in stream.follow():
        ...

In process a command takes microseconds and runs in the event loop. A command that blocks, or that waits for the disk
(`appendfsync always`), suspends its task and uses no thread, so ten thousand tasks can wait. Attached to another
process or over a server, commands go through asyncio connections (rillet.store.transports.async_server). Methods that
need several commands, and everything on a cluster, run in a worker thread. The methods are those of the synchronous
objects.

A cancelled call has no effect on the data: see rillet.store.transports.undelivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rillet.errors import OutcomeUnknown, StoreClosed, StoreError
from rillet.store.channels import ChannelMessage, InProcessChannels, Names, Subscription, one_reply
from rillet.store.delivery import DeliveryOptions, Stop, delivery
from rillet.store.encoding import Fields, IDLike, Value, encode, encode_id, parse_id
from rillet.store.entry import Entry, entries_of, stream_part
from rillet.store.group import Consumer, Group
from rillet.store.message import Message
from rillet.store.records import GroupInfo, PendingEntry
from rillet.store.stream import BATCH, LAST_ID, Stream
from rillet.store.transaction import AsyncTransaction
from rillet.store.transports.cluster import ClusterTransport
from rillet.store.transports.in_process import InProcessTransport
from rillet.store.transports.server import ServerTransport
from rillet.store.transports.transport import Transport, raised
from rillet.store.transports.wakeners import waker
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.store.store import Store


_LONGEST_WAIT = 0.5  # seconds after which a waiting thread checks whether its task was cancelled


class AsyncCalls:
    """Runs calls of a synchronous object: in the event loop if they are fast, else in a worker thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._store.may_wait:
            return function(*args, **kwargs)
        return await self._in_thread(function, *args, **kwargs)

    async def _in_thread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._store.workers(), lambda: function(*args, **kwargs))

    async def _run(self, argv: list[bytes]) -> Any:
        """Run a command that may block."""
        transport = self._store.transport
        try:
            return raised(await self._execute(transport, argv))
        except StoreError as error:
            replacement = await asyncio.to_thread(self._store.replacement, transport, error, argv)
            return raised(await self._execute(replacement, argv))

    async def _execute(self, transport: Transport, argv: list[bytes]) -> Any:
        if isinstance(transport, InProcessTransport):
            return await transport.execute_async(argv)
        if isinstance(transport, ServerTransport) and not isinstance(transport, ClusterTransport):
            return await transport.for_loop().execute(argv)
        return await self._in_thread(transport.execute, argv)


class AsyncStore(AsyncCalls):
    """The asyncio API of a Store; closing it closes the store."""

    def transaction(self, watch: Iterable[str | bytes] = ()) -> AsyncTransaction:
        """Return an asynchronous context manager whose commands run together; see Store.transaction."""
        return AsyncTransaction(self, watch)

    def exclusive(self, key: bytes) -> Any:
        """Return an asynchronous context manager that yields a coroutine function: list of commands -> replies."""
        transport = self._store.transport
        if isinstance(transport, InProcessTransport):
            return transport.exclusive_async(key)
        if isinstance(transport, ServerTransport) and not isinstance(transport, ClusterTransport):
            return transport.for_loop().exclusive(key)
        return self._exclusive_in_threads(transport, key)

    @contextlib.asynccontextmanager
    async def _exclusive_in_threads(self, transport: Transport, key: bytes) -> AsyncIterator[Any]:
        """Run the commands of a transaction on a cluster, each exchange in a worker thread."""
        exclusive = transport.exclusive(key)
        run = await self._in_thread(exclusive.__enter__)
        try:
            yield lambda commands: self._in_thread(run, commands)
        finally:
            await self._in_thread(exclusive.__exit__, None, None, None)

    async def execute(self, *args: Value) -> Any:
        """Run any command; see Store.execute."""
        return await self._run(one_reply([encode(arg) for arg in args]))

    async def delete(self, *names: Value) -> int:
        """Delete keys; return how many existed."""
        return int(await self._call(self._store.delete, *names))

    async def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write an RDB file; see Store.save. It runs in a worker thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._store.workers(), self._store.save, path)

    async def publish(self, channel: str | bytes, data: Value, *, shard: bool = False) -> int:
        """Send a message to the current subscribers; see Store.publish."""
        return int(await self._call(self._store.publish, channel, data, shard=shard))

    async def subscribe(self, *channels: str | bytes, patterns: Names = (), shards: Names = ()) -> AsyncSubscription:
        """Subscribe to channels; see Store.subscribe."""
        plain = await self._call(self._store.subscribe, *channels, patterns=patterns, shards=shards)
        return AsyncSubscription(self._store, plain)

    def stream(self, name: str | bytes) -> AsyncStream:
        """Return the stream of that name."""
        return AsyncStream(self._store, self._store.stream(name))

    async def close(self) -> None:
        """Close the store."""
        await asyncio.to_thread(self._store.close)

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Commands:
    """In place of a store, for a Stream whose `add` returns its command instead of running it."""

    def id_of(self, argv: list[bytes]) -> list[bytes]:
        return argv


class AsyncStream(AsyncCalls):
    """The asyncio API of a Stream."""

    def __init__(self, store: Store, stream: Stream) -> None:
        super().__init__(store)
        self.plain = stream
        self.name = stream.name
        self._command: Any = Stream(_Commands(), stream.name)  # type: ignore[arg-type]

    async def add(self, fields: Fields, id: IDLike = "*", **trim: Any) -> StreamID | None:
        """Append an entry; see Stream.add."""
        if not self._store.may_wait:
            now: StreamID | None = self.plain.add(fields, id, **trim)
            return now
        reply = await self._run(self._command.add(fields, id, **trim))
        made: StreamID | None = None if reply is None else parse_id(reply)
        return made

    async def add_many(self, entries: Iterable[Fields | tuple[IDLike, Fields]], **how: Any) -> list[StreamID]:
        """Append entries; see Stream.add_many."""
        found: list[StreamID] = await self._in_thread(self.plain.add_many, entries, **how)
        return found

    async def range(self, start: IDLike = "-", end: IDLike = "+", count: int | None = None) -> list[Entry]:
        """Return entries; see Stream.range."""
        found: list[Entry] = await self._call(self.plain.range, start, end, count)
        return found

    async def reverse(self, start: IDLike = "+", end: IDLike = "-", count: int | None = None) -> list[Entry]:
        """Return entries, last first; see Stream.reverse."""
        found: list[Entry] = await self._call(self.plain.reverse, start, end, count)
        return found

    async def get(self, id: IDLike) -> Entry | None:
        """Return the entry of that ID, or None."""
        found: Entry | None = await self._call(self.plain.get, id)
        return found

    async def read(self, after: IDLike = "0-0", count: int | None = None, block: float | None = None) -> list[Entry]:
        """Return entries after an ID; see Stream.read."""
        return entries_of(stream_part(await self._run(self.plain.read_command(after, count, block))))

    async def delete(self, *ids: IDLike) -> int:
        """Delete entries; see Stream.delete."""
        return int(await self._call(self.plain.delete, *ids))

    async def trim(self, **how: Any) -> int:
        """Drop the oldest entries; see Stream.trim."""
        return int(await self._call(self.plain.trim, **how))

    async def to_arrow(self, start: IDLike = "-", end: IDLike = "+", **how: Any) -> Any:
        """Return a pyarrow.Table; see Stream.to_arrow. A worker thread builds it."""
        return await self._in_thread(self.plain.to_arrow, start, end, **how)

    async def to_pandas(self, start: IDLike = "-", end: IDLike = "+", **how: Any) -> Any:
        """Return a pandas.DataFrame; see Stream.to_pandas."""
        return await self._in_thread(self.plain.to_pandas, start, end, **how)

    async def to_polars(self, start: IDLike = "-", end: IDLike = "+", **how: Any) -> Any:
        """Return a polars.DataFrame; see Stream.to_polars."""
        return await self._in_thread(self.plain.to_polars, start, end, **how)

    async def add_arrow(self, table: Any, **how: Any) -> int:
        """Append the rows of a table; see Stream.add_arrow."""
        return int(await self._in_thread(self.plain.add_arrow, table, **how))

    async def length(self) -> int:
        """Return the number of entries."""
        return int(await self._call(self.plain.__len__))

    async def info(self, full: bool = False) -> dict[str, Any]:
        """Return the fields of XINFO STREAM."""
        found: dict[str, Any] = await self._call(self.plain.info, full)
        return found

    async def group(self, name: str | bytes, start: IDLike = "0", *, create: bool = True) -> AsyncGroup:
        """Return the consumer group; see Stream.group."""
        return AsyncGroup(self._store, await self._call(self.plain.group, name, start, create=create))

    async def follow(self, after: IDLike = "$", block: float = 1.0) -> AsyncIterator[Entry]:
        """Yield entries as they are added, without end; see Stream.follow."""
        last: IDLike = (await self._call(lambda: self.plain.last_id)) if after == "$" else after
        while True:
            for entry in await self.read(last, count=BATCH, block=block):
                last = entry.raw_id
                yield entry

    async def __aiter__(self) -> AsyncIterator[Entry]:
        """Yield all entries, from first to last, until the end is reached."""
        start: IDLike = "-"
        more = True
        while more:
            batch = await self.range(start, count=BATCH)
            for entry in batch:
                yield entry
            more = len(batch) == BATCH and batch[-1].id != LAST_ID
            start = b"(" + batch[-1].raw_id if more else start


class AsyncGroup(AsyncCalls):
    """The asyncio API of a Group."""

    def __init__(self, store: Store, group: Group) -> None:
        super().__init__(store)
        self.plain = group
        self.name = group.name

    def consumer(self, name: str | bytes) -> AsyncConsumer:
        """Return the consumer of that name."""
        return AsyncConsumer(self._store, self.plain.consumer(name))

    async def ack(self, *ids: IDLike) -> int:
        """Acknowledge messages; see Group.ack."""
        if not ids or not self._store.may_wait or len(ids) > BATCH:
            return int(await self._call(self.plain.ack, *ids))
        return int(await self._run([b"XACK", self.plain.stream.key, self.plain.key, *map(encode_id, ids)]))

    async def nack(self, *ids: IDLike, **how: Any) -> int:
        """Release messages; see Group.nack."""
        return int(await self._call(self.plain.nack, *ids, **how))

    async def pending(self, count: int = 100, **options: Any) -> list[PendingEntry]:
        """Return pending messages; see Group.pending."""
        found: list[PendingEntry] = await self._call(self.plain.pending, count, **options)
        return found

    async def info(self) -> GroupInfo:
        """Return the state of the group; see Group.info."""
        found: GroupInfo = await self._call(self.plain.info)
        return found


class AsyncConsumer(AsyncCalls):
    """The asyncio API of a Consumer. Its messages are synchronous objects: use `await consumer.ack(message)`."""

    def __init__(self, store: Store, consumer: Consumer) -> None:
        super().__init__(store)
        self.plain = consumer
        self.name = consumer.name

    async def read(self, count: int = 100, *, block: float | None = None, after: IDLike = ">", noack: bool = False,
                   claim_idle: float | None = None) -> list[Message]:  # fmt: skip
        """Return messages; see Consumer.read."""
        if after != ">":
            found: list[Message] = await self._call(self.plain.read, count, after=after)
            return found
        reply = await self._run(self.plain.read_command(count, block, after, noack, claim_idle))
        return self.plain.messages_of(stream_part(reply))

    async def ack(self, *messages: Message) -> int:
        """Acknowledge messages; return how many were pending."""
        return int(await self._call(self.plain.group.ack, *(message.raw_id for message in messages)))

    async def claim(self, idle: float, count: int = 100, start: IDLike = "0-0") -> tuple[StreamID, list[Message]]:
        """Claim stale messages; see Consumer.claim."""
        found: tuple[StreamID, list[Message]] = await self._call(self.plain.claim, idle, count, start)
        return found

    async def messages(self, count: int = 100, *, block: float | None = 1.0, claim_idle: float | None = None,
                       max_deliveries: int | None = None, dead_letters: str | bytes | None = None,
                       on_exhausted: Literal["drop"] | None = None, stop_when_empty: bool = False,
                       stop: Stop | None = None, timeout: float | None = None) -> AsyncIterator[Message]:  # fmt: skip
        """Yield messages; see Consumer.messages."""
        options = DeliveryOptions(count, block, claim_idle, max_deliveries, dead_letters, on_exhausted, stop_when_empty,
                                  stop, timeout)  # fmt: skip
        steps = delivery((self.plain,), options)
        reply: Any = None
        with contextlib.suppress(StopIteration):
            while True:
                step = steps.send(reply)
                reply = None
                if isinstance(step, tuple):
                    for message in step:
                        yield message
                else:
                    try:
                        reply = await self._run(step)
                    except OutcomeUnknown:  # what the command delivered is pending: begin again
                        steps = delivery((self.plain,), options)

    def __aiter__(self) -> AsyncIterator[Message]:
        """Yield messages without end."""
        return self.messages()


class AsyncSubscription(AsyncCalls):
    """The asyncio API of a Subscription. In process, waiting suspends only the task; otherwise it uses a thread."""

    def __init__(self, store: Store, subscription: Subscription) -> None:
        super().__init__(store)
        self.plain = subscription

    async def add(self, *channels: str | bytes, patterns: Names = (), shards: Names = ()) -> None:
        """Subscribe to more channels or patterns; see Subscription.add."""
        await self._call(self.plain.add, *channels, patterns=patterns, shards=shards)

    async def remove(self, *channels: str | bytes, patterns: Names = (), shards: Names = ()) -> None:
        """Unsubscribe from channels or patterns; see Subscription.remove."""
        await self._call(self.plain.remove, *channels, patterns=patterns, shards=shards)

    async def get(self, timeout: float | None = None) -> ChannelMessage | None:
        """Return the next message; see Subscription.get."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        connection = self.plain.connection
        if isinstance(connection, InProcessChannels):
            return await self._get_here(connection, until)
        while True:
            # A thread cannot be interrupted. After a cancellation the thread ends soon, and its message is not lost.
            left = _LONGEST_WAIT if until is None else min(until - loop.time(), _LONGEST_WAIT)
            if await self._in_thread(self.plain.wait, max(left, 0.0)):
                return self.plain.get(0)
            if until is not None and loop.time() >= until:
                return None

    async def _get_here(self, connection: InProcessChannels, until: float | None) -> ChannelMessage | None:
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()
        connection.on_arrival = waker(loop, arrived)
        try:
            while (message := self.plain.get(0)) is None:
                if until is not None and loop.time() >= until:
                    return None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await arrived.wait()
                arrived.clear()
            return message
        finally:
            connection.on_arrival = None

    async def __aiter__(self) -> AsyncIterator[ChannelMessage]:
        """Yield messages until the subscription or its store is closed."""
        with contextlib.suppress(StoreClosed):
            while True:
                message = await self.get()
                assert message is not None
                yield message

    async def close(self) -> None:
        """Close the subscription."""
        self.plain.close()

    async def __aenter__(self) -> AsyncSubscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.plain.close()
