"""AsyncSubscription: messages of channels for tasks. See rillet.store.channels."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from rillet.errors import StoreClosed
from rillet.store.channels import ChannelMessage, InProcessChannels, Names, Subscription
from rillet.store.transports.wakeners import waker

if TYPE_CHECKING:
    from rillet.store.aio.runner import AsyncRunner

_LONGEST_WAIT = 0.5  # seconds after which a waiting thread checks whether its task was cancelled


class AsyncSubscription:
    """The asyncio API of a Subscription. In process, waiting suspends only the task; otherwise it uses a thread."""

    def __init__(self, store: AsyncRunner, subscription: Subscription) -> None:
        self.store = store
        self.synchronous = subscription

    async def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self.store.synchronous.may_wait:
            return function(*args, **kwargs)
        return await self.store.in_thread(function, *args, **kwargs)

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

    async def get(self, timeout: float | None = None) -> ChannelMessage | None:
        """Return the next message; see Subscription.get."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        connection = self.synchronous.connection
        if isinstance(connection, InProcessChannels):
            return await self._get_here(connection, until)
        while True:
            # A thread cannot be interrupted. After a cancellation the thread ends soon, and its message is not lost.
            left = _LONGEST_WAIT if until is None else min(until - loop.time(), _LONGEST_WAIT)
            if await self.store.in_thread(self.synchronous.wait, max(left, 0.0)):
                return self.synchronous.get(0)
            if until is not None and loop.time() >= until:
                return None

    async def _get_here(self, connection: InProcessChannels, until: float | None) -> ChannelMessage | None:
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()
        connection.on_arrival = waker(loop, arrived)
        try:
            while (message := self.synchronous.get(0)) is None:
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
        self.synchronous.close()

    async def __aenter__(self) -> AsyncSubscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.synchronous.close()

    def __repr__(self) -> str:
        return f"Async{self.synchronous!r}"


__all__ = ["AsyncSubscription"]
