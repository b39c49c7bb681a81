"""The asyncio API: the same store, streams, groups, consumers and types, with coroutines.

    store = rillet.open("events.rillet").aio()
    stream = store.stream("orders")
    await stream.add({"total": "99.90"})
    async for entry in stream.follow():
        ...

    runner          how a command runs: on the event loop, on an asyncio connection, in a thread (clusters)
    subscription    channels
    all others      made from the synchronous modules by tools/make_aio.py; a test compares them

In process a command takes microseconds and runs in the event loop. A command that blocks, or that waits for the disk
(`appendfsync always`), suspends its task and uses no thread, so ten thousand tasks can wait. Attached to another
process or over a server, commands go through asyncio connections (rillet.store.transports.async_connected). A worker
thread runs commands on a cluster, and what computes for long: `to_arrow`, `add_arrow`, `save`.

A cancelled call has no effect on the data: see rillet.store.transports.undelivered.

An operator cannot wait, so `len(stream)`, `stream[id]`, `id in stream` and `prices["apple"] = 1` have no asyncio form:
use `length`, `get`, `contains` and `set_value`. A property that runs a command is a method: `await stream.last_id()`.
"""

from rillet.store.aio.array import AsyncArray
from rillet.store.aio.bitmap import AsyncBitmap
from rillet.store.aio.geo import AsyncGeo
from rillet.store.aio.group import AsyncConsumer, AsyncGroup, AsyncMultiConsumer
from rillet.store.aio.hash import AsyncHash
from rillet.store.aio.hyperloglog import AsyncHyperLogLog
from rillet.store.aio.list import AsyncList
from rillet.store.aio.message import AsyncMessage
from rillet.store.aio.set import AsyncSet
from rillet.store.aio.sorted_set import AsyncSortedSet
from rillet.store.aio.store import AsyncStore
from rillet.store.aio.stream import AsyncStream
from rillet.store.aio.string import AsyncCounter, AsyncString
from rillet.store.aio.subscription import AsyncSubscription

__all__ = ["AsyncArray", "AsyncBitmap", "AsyncConsumer", "AsyncCounter", "AsyncGeo", "AsyncGroup", "AsyncHash",
           "AsyncHyperLogLog", "AsyncList",
           "AsyncMessage", "AsyncMultiConsumer", "AsyncSet", "AsyncSortedSet", "AsyncStore", "AsyncStream",
           "AsyncString", "AsyncSubscription"]  # fmt: skip
