"""Lazy freeing: large values are freed a little at a time, between commands (Redis: lazyfree.c).

    UNLINK z      key and value leave the database at once     a sorted set of a million members
                                                               |
    pending       [ value | value | database of FLUSHALL ASYNC ]      `step` takes the first one apart:
                      |                                               some blocks of a table, nodes of a list, ...
                      +--> parts [ table, skiplist ... ]

Redis frees in a thread. A thread of Python would hold the interpreter's lock while it frees, so here the owner's timer
calls `step`, which returns after some time. A value of at most 64 parts is freed at once (LAZYFREE_THRESHOLD).

Two kinds of deletions are lazy:

    on request    UNLINK, FLUSHALL ASYNC, and those that the lazyfree-lazy-* settings name, as in Redis
    always        keys that expire or are evicted: no client waits for their memory

The owner of a value must not use it any more: only its containers remain here, and they lose their elements.

Costs: `add` is O(1), for a stream O(groups). `step` frees _UNITS blocks, nodes or elements between two looks at the
clock; each is at most a block of 64 KiB.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from rillet.keyspace.clock import Clock
from rillet.keyspace.memory_usage import dict_bytes, value_bytes
from rillet.structs.dict import Dict
from rillet.structs.rax import Rax, RaxNode, release_some
from rillet.types.array import Array
from rillet.types.hash import Hash
from rillet.types.list import List
from rillet.types.module import ModuleValue
from rillet.types.set import Set
from rillet.types.stream.stream import Stream
from rillet.types.zset import Zset

STEP: Final = 300_000
"""Nanoseconds of one step of a timer."""
PAUSE: Final = 0.001
"""Seconds between two steps of a timer."""
THRESHOLD: Final = 64
"""A value with more parts than this is freed in steps (LAZYFREE_THRESHOLD)."""
_UNITS = 16


def free_effort(value: object) -> int:
    """Return the number of parts of a value that are freed one by one (lazyfreeGetFreeEffort). O(groups of a stream)"""
    if isinstance(value, List):
        return value.elements.nodes
    if isinstance(value, Set | Hash):
        return 1 if value.table is None else len(value.table)
    if isinstance(value, Zset):
        return 1 if value.listpack is not None else len(value)
    if isinstance(value, Stream):
        groups = value.groups.values()
        return value.rax.numnodes + sum(len(groups) * (1 + group.pending_count) for group in groups)
    if isinstance(value, Array):
        return len(value)
    if isinstance(value, ModuleValue):
        return value.free_effort()
    return 1


class _Tree:
    """The nodes of a radix tree that are left to free. The tree itself stays alive meanwhile."""

    def __init__(self, rax: Rax) -> None:
        self._rax = rax
        self._nodes: list[RaxNode] = [rax.head]

    def free_some(self, limit: int) -> bool:
        return release_some(self._nodes, limit)


class _Whole:
    """A module's value, which Python frees at once when nothing refers to it."""

    def __init__(self, value: ModuleValue) -> None:
        self._value: ModuleValue | None = value

    def free_some(self, limit: int) -> bool:
        self._value = None
        return False


def _parts(value: object) -> list[Any]:
    """Return the containers of a value, in the order in which they are freed."""
    if isinstance(value, List):
        return [value.elements]
    if isinstance(value, Set):
        return [value.table]
    if isinstance(value, Hash):
        times = None if value.expiry is None else value.expiry.times
        return [value.table] if times is None else [times.table, times.order, value.table]
    if isinstance(value, Zset):
        return [value.table, value.skiplist]
    if isinstance(value, Array):
        return [value.cells]
    if isinstance(value, ModuleValue):
        return [_Whole(value)]
    assert isinstance(value, Stream)
    parts: list[Any] = [_Tree(value.rax), value.pending.refs.pages]
    for group in value.groups.values():
        parts.append(group.index.pages)
        parts.extend(consumer.index.pages for consumer in group.consumers.values())
    return [*parts, value.groups]


class _Job:
    """A value or a database to be freed; `objects` is the number of keys, `size` the number of bytes."""

    def __init__(self, objects: int, parts: list[Any], size: int) -> None:
        self.objects = objects
        self.size = size
        self._parts = deque(part for part in parts if part is not None)

    def free_some(self) -> bool:
        """Free some units of the first part; return whether more remains."""
        if not self._parts:
            return False
        part = self._parts[0]
        if not self._free(part):
            self._parts.popleft()
        return bool(self._parts)

    def _free(self, part: Any) -> bool:
        if isinstance(part, Dict):
            values: list[object] = []
            more = part.free_some(_UNITS, values)
            for value in values:  # of a database: large ones are taken apart, too
                if free_effort(value) > THRESHOLD:
                    self._parts.extend(part for part in _parts(value) if part is not None)
            return more
        if isinstance(part, list):
            del part[-_UNITS:]
            return bool(part)
        if isinstance(part, dict):
            for _ in range(min(_UNITS, len(part))):
                part.popitem()
            return bool(part)
        return bool(part.free_some(_UNITS))


class LazyFree:
    """The values that wait to be freed.

    pending: keys whose values wait (lazyfree_pending_objects). pending_bytes: their size when they
    began to wait. freed: keys whose values were freed (lazyfreed_objects).
    on_pending: called without an argument when a value begins to wait and nothing frees values yet; it must not run
    Python code, because the call is inside a command. running: it was called, and values still wait. A caller of `step`
    that fails sets this to False, so that the next value calls `on_pending` again.
    """

    __slots__ = ("_clock", "_jobs", "freed", "on_pending", "pending", "pending_bytes", "running")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: deque[_Job] = deque()
        self.pending = 0
        self.pending_bytes = 0
        self.freed = 0
        self.running = False
        self.on_pending: Callable[[], object] | None = None

    def add(self, value: object) -> None:
        """Let a value wait that its owner has dropped; a small one is left to Python (freeObjAsync)."""
        if free_effort(value) > THRESHOLD:
            self._push(_Job(1, _parts(value), value_bytes(value)))

    def add_database(self, keys: Dict, expires: Dict, size: int = 0) -> None:
        """Let the tables of an emptied database wait, with `size` bytes of values (emptyDbAsync)."""
        if len(keys):
            size += dict_bytes(keys) + dict_bytes(expires)
            self._push(_Job(len(keys), [keys, expires], size))

    def _push(self, job: _Job) -> None:
        self._jobs.append(job)
        self.pending += job.objects
        self.pending_bytes += job.size
        if self.on_pending is not None and not self.running:
            try:
                self.on_pending()
                self.running = True
            except RuntimeError:  # no thread can be started
                self.step(2**62)

    def step(self, nanoseconds: int = STEP) -> bool:
        """Free for about that time; return whether more remains."""
        stop = self._clock.ticks() + nanoseconds
        while self._jobs:
            job = self._jobs[0]
            if not job.free_some():
                self._jobs.popleft()
                self.pending -= job.objects
                self.pending_bytes -= job.size
                self.freed += job.objects
            if self._clock.ticks() >= stop:
                break
        if not self._jobs:
            self.running = False
        return bool(self._jobs)

    def check(self) -> None:
        """Raise AssertionError unless `pending` is the number of waiting keys."""
        assert self.pending == sum(job.objects for job in self._jobs) >= 0
        assert self.pending_bytes == sum(job.size for job in self._jobs) >= 0
