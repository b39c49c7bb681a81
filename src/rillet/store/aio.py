"""The asyncio face: the same store, stream, group and consumer, awaited.

    store = rillet.open("events.rillet").aio()
    stream = store.stream("orders")
    await stream.add({"total": "99.90"})
    async for entry in stream.follow():
        ...

In process a command takes microseconds and runs in place; one that waits does so in a worker thread,
and so does every command that goes through a socket. The methods are those of the plain objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from rillet.store.encoding import Fields, IDLike, Value
from rillet.store.group import Consumer, Group, Message
from rillet.store.stream import Entry, Stream
from rillet.types.stream_id import StreamID

if TYPE_CHECKING:
    from rillet.store.store import Store


class _Face:
    """Runs calls on the plain object, in place where they cannot take long."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def _call(self, function: Callable[..., Any], *args: Any, waits: bool = False, **kwargs: Any) -> Any:
        if self._store.owner and not waits:
            return function(*args, **kwargs)
        return await asyncio.to_thread(function, *args, **kwargs)


class AsyncStore(_Face):
    """The asyncio face of a Store; closing it closes the store."""

    async def execute(self, *args: Value) -> Any:
        """Run any command; see Store.execute. A blocking command belongs to the methods that take `block`."""
        return await self._call(self._store.execute, *args, waits=True)

    async def delete(self, *names: Value) -> int:
        """Delete keys and return how many there were."""
        return int(await self._call(self._store.delete, *names))

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


class AsyncStream(_Face):
    """The asyncio face of a Stream."""

    def __init__(self, store: Store, stream: Stream) -> None:
        super().__init__(store)
        self.plain = stream

    async def add(self, fields: Fields, id: IDLike = "*", **trim: Any) -> StreamID | None:
        """Append an entry; see Stream.add."""
        found: StreamID | None = await self._call(self.plain.add, fields, id, **trim)
        return found

    async def add_many(self, entries: Any) -> int:
        """Append entries; see Stream.add_many."""
        return int(await self._call(self.plain.add_many, entries, waits=True))

    async def range(self, start: IDLike = "-", end: IDLike = "+", count: int | None = None) -> list[Entry]:
        """Return entries; see Stream.range."""
        found: list[Entry] = await self._call(self.plain.range, start, end, count)
        return found

    async def reverse(self, start: IDLike = "+", end: IDLike = "-", count: int | None = None) -> list[Entry]:
        """Return entries, last first; see Stream.reverse."""
        found: list[Entry] = await self._call(self.plain.reverse, start, end, count)
        return found

    async def read(self, after: IDLike = "0-0", count: int | None = None, block: float | None = None) -> list[Entry]:
        """Return entries after an ID; see Stream.read."""
        found: list[Entry] = await self._call(self.plain.read, after, count, block, waits=block is not None)
        return found

    async def delete(self, *ids: IDLike) -> int:
        """Delete entries; see Stream.delete."""
        return int(await self._call(self.plain.delete, *ids))

    async def trim(self, **how: Any) -> int:
        """Drop the oldest entries; see Stream.trim."""
        return int(await self._call(self.plain.trim, **how))

    async def length(self) -> int:
        """Return the number of entries."""
        return int(await self._call(self.plain.__len__))

    async def info(self, full: bool = False) -> dict[str, Any]:
        """Return what XINFO STREAM tells."""
        found: dict[str, Any] = await self._call(self.plain.info, full)
        return found

    async def group(self, name: str | bytes, start: IDLike = "0") -> AsyncGroup:
        """Return the consumer group, created where it does not exist."""
        return AsyncGroup(self._store, await self._call(self.plain.group, name, start))

    async def follow(self, after: IDLike = "0-0", block: float = 1.0) -> AsyncIterator[Entry]:
        """Yield entries after an ID as they come, for ever."""
        last = after
        while True:
            for entry in await self.read(last, count=1000, block=block):
                last = entry.id
                yield entry

    async def __aiter__(self) -> AsyncIterator[Entry]:
        """Yield every entry that is there, first to last."""
        start: IDLike = "-"
        while batch := await self.range(start, count=1000):
            for entry in batch:
                yield entry
            start = f"({batch[-1].id}"


class AsyncGroup(_Face):
    """The asyncio face of a Group."""

    def __init__(self, store: Store, group: Group) -> None:
        super().__init__(store)
        self.plain = group

    def consumer(self, name: str | bytes) -> AsyncConsumer:
        """Return the consumer of that name."""
        return AsyncConsumer(self._store, self.plain.consumer(name))

    async def ack(self, *ids: IDLike) -> int:
        """Acknowledge messages; see Group.ack."""
        return int(await self._call(self.plain.ack, *ids))

    async def info(self) -> dict[str, Any]:
        """Return what XINFO GROUPS tells of the group."""
        found: dict[str, Any] = await self._call(self.plain.info)
        return found


class AsyncConsumer(_Face):
    """The asyncio face of a Consumer."""

    def __init__(self, store: Store, consumer: Consumer) -> None:
        super().__init__(store)
        self.plain = consumer

    async def read(self, count: int = 100, *, block: float | None = None, after: IDLike = ">") -> list[Message]:
        """Return messages; see Consumer.read."""
        found: list[Message] = await self._call(
            self.plain.read, count, block=block, after=after, waits=block is not None
        )
        return found

    async def claim(self, idle: float, count: int = 100, start: IDLike = "0-0") -> tuple[StreamID, list[Message]]:
        """Take over stale messages; see Consumer.claim."""
        found: tuple[StreamID, list[Message]] = await self._call(self.plain.claim, idle, count, start)
        return found

    async def messages(self, **options: Any) -> AsyncIterator[Message]:
        """Yield messages; see Consumer.messages."""
        messages = self.plain.messages(**options)
        end = object()
        while (message := await asyncio.to_thread(next, messages, end)) is not end:
            assert isinstance(message, Message)
            yield message

    def __aiter__(self) -> AsyncIterator[Message]:
        """Yield messages for ever."""
        return self.messages()
