"""AsyncSubscription: messages of channels for tasks. See rillet.store.channels."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

from rillet.client.loop_timers import time_limit
from rillet.errors import NoConnection, StoreClosed
from rillet.store import PublicNames
from rillet.store.arguments.durations import Seconds, seconds_in
from rillet.store.channels import ChannelConnection, ChannelMessage, InProcessChannels, Names, Subscription
from rillet.store.transports.task_threads import in_thread
from rillet.store.transports.task_wakeners import waker

if TYPE_CHECKING:
    from rillet.store.aio.runner import AsyncRunner


class AsyncSubscription(PublicNames):
    """The asyncio API of a Subscription. Waiting suspends only the task; a thread reads what arrived on a socket."""

    def __init__(self, store: AsyncRunner, subscription: Subscription) -> None:
        self.store = store
        self.synchronous = subscription
        self._turn = asyncio.Lock()  # one task at a time waits

    async def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self.store.synchronous.may_wait:
            return function(*args, **kwargs)
        return await in_thread(function, *args, **kwargs)

    async def add(self, *channels: str | bytes, patterns: Names = (), shards: Names = ()) -> None:
        """Subscribe to more channels or patterns; see Subscription.add."""
        await self._call(self.synchronous.add, *channels, patterns=patterns, shards=shards)

    async def remove(self, *channels: str | bytes, patterns: Names = (), shards: Names = ()) -> None:
        """Unsubscribe from channels or patterns; see Subscription.remove."""
        await self._call(self.synchronous.remove, *channels, patterns=patterns, shards=shards)

    @property
    def channels(self) -> list[str]:
        """The subscribed channels."""
        return self.synchronous.channels

    @property
    def patterns(self) -> list[str]:
        """The subscribed patterns."""
        return self.synchronous.patterns

    @property
    def shards(self) -> list[str]:
        """The subscribed shard channels."""
        return self.synchronous.shards

    async def get(self, timeout: Seconds | None = None) -> ChannelMessage | None:
        """Return the next message; see Subscription.get. Several tasks get the messages in turn."""
        message = self.synchronous.take_message()
        if message is None and not self._turn.locked():
            await self._poll()
            message = self.synchronous.take_message()
        if message is not None:
            return message
        try:
            async with time_limit(None if timeout is None else seconds_in(timeout)), self._turn:
                return await self._next()
        except TimeoutError:
            return None

    async def _next(self) -> ChannelMessage:
        """Wait for a message: an event of the engine's session, or of the sockets, resumes the task."""
        while True:
            arrived = asyncio.Event()
            connection = self.synchronous.connection
            with self._watching(connection, arrived):
                while self.synchronous.connection is connection:
                    arrived.clear()
                    await self._poll()  # also connects again if the connection broke
                    message = self.synchronous.take_message()
                    if message is not None:
                        return message
                    if self.synchronous.connection is connection:
                        await arrived.wait()

    @contextlib.contextmanager
    def _watching(self, connection: ChannelConnection | None, arrived: asyncio.Event) -> Iterator[None]:
        """Set an event whenever something arrives on a connection.

        The loop watches copies of the file descriptors: another thread may close the originals at any time, and the
        system may then use their numbers for other files.
        """
        loop = asyncio.get_running_loop()
        if isinstance(connection, InProcessChannels):
            connection.on_arrival = waker(loop, arrived)
            try:
                yield
            finally:
                connection.on_arrival = None
            return
        with contextlib.ExitStack() as watched:
            for file in [] if connection is None else connection.files():
                try:
                    copy = os.dup(file)
                except OSError as error:
                    if error.errno != errno.EBADF:
                        raise NoConnection(f"no more files can be opened: {error.strerror} (ulimit -n)") from error
                    arrived.set()  # closed meanwhile: `_poll` reports it
                    continue
                watched.callback(os.close, copy)
                loop.add_reader(copy, arrived.set)
                watched.callback(loop.remove_reader, copy)
            yield

    async def _poll(self) -> None:
        await self._call(self.synchronous.poll)

    async def __aiter__(self) -> AsyncIterator[ChannelMessage]:
        """Yield messages until the subscription or its store is closed."""
        with contextlib.suppress(StoreClosed):
            while True:
                message = await self.get()
                assert message is not None
                yield message

    async def close(self) -> None:
        """Close the subscription."""
        self.synchronous.close()

    async def __aenter__(self) -> AsyncSubscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.synchronous.close()

    def __repr__(self) -> str:
        return f"Async{self.synchronous!r}"
