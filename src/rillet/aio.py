"""The asyncio classes, for annotations: what `store.aio()` returns, and the objects that it returns.

    from rillet.aio import AsyncStore

    async def handle(store: AsyncStore) -> None: ...
"""

from __future__ import annotations

from rillet.store.aio import (
    AsyncArray,
    AsyncBitmap,
    AsyncConsumer,
    AsyncCounter,
    AsyncGeo,
    AsyncGroup,
    AsyncHash,
    AsyncHyperLogLog,
    AsyncList,
    AsyncMessage,
    AsyncMultiConsumer,
    AsyncSet,
    AsyncSortedSet,
    AsyncStore,
    AsyncStream,
    AsyncString,
    AsyncSubscription,
)
from rillet.store.aio.partitions.group import AsyncPartitionedConsumer, AsyncPartitionedGroup
from rillet.store.aio.partitions.stream import AsyncPartitionedStream
from rillet.store.follow import AsyncReplica
from rillet.store.transaction import AsyncTransaction

__all__ = [
    "AsyncArray",
    "AsyncBitmap",
    "AsyncConsumer",
    "AsyncCounter",
    "AsyncGeo",
    "AsyncGroup",
    "AsyncHash",
    "AsyncHyperLogLog",
    "AsyncList",
    "AsyncMessage",
    "AsyncMultiConsumer",
    "AsyncPartitionedConsumer",
    "AsyncPartitionedGroup",
    "AsyncPartitionedStream",
    "AsyncReplica",
    "AsyncSet",
    "AsyncSortedSet",
    "AsyncStore",
    "AsyncStream",
    "AsyncString",
    "AsyncSubscription",
    "AsyncTransaction",
]
