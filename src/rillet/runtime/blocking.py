"""The clients that are blocked on one key, and the order in which they are served.

    KeyWaiters ── None ──► client, client ...      each has its own condition (XREAD after its ID)
               ── b"g" ──► client, client ...      all have the same condition: new entries of group g
               ── b"h" ──► ...

Redis serves the clients of a key in order of arrival, and tries each of them (blocked.c, handleClientsBlockedOnKey). If
ten thousand clients wait in one group and one entry arrives, that is ten thousand attempts for one success. Here,
clients with the same condition share a queue. If the first client of a queue cannot be served, no other client in it
can, and the rest of the queue is skipped. Across queues, clients are served in order of arrival, as in Redis.

Costs: O(1) to add or remove a client; a round O(queues), and O(log queues) for each client that is tried.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any


class KeyWaiters:
    """The clients blocked on one key; iteration yields them in order of arrival."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        self.queues: dict[bytes | None, OrderedDict[Any, None]] = {}

    def add(self, blocked: Any) -> None:
        """Append a client to its queue."""
        queue = self.queues.get(blocked.queue)
        if queue is None:
            queue = self.queues[blocked.queue] = OrderedDict()
        queue[blocked] = None

    def remove(self, blocked: Any) -> None:
        """Remove a client, if present."""
        queue = self.queues.get(blocked.queue)
        if queue is not None:
            queue.pop(blocked, None)
            if not queue:
                del self.queues[blocked.queue]

    def turns(self) -> ServingRound:
        """Start a round over the clients; clients may be added and removed meanwhile."""
        return ServingRound(self)

    def __bool__(self) -> bool:
        return bool(self.queues)

    def __len__(self) -> int:
        return sum(len(queue) for queue in self.queues.values())

    def __iter__(self) -> Iterator[Any]:
        everybody = [blocked for queue in self.queues.values() for blocked in queue]
        return iter(sorted(everybody, key=lambda blocked: blocked.number))


class ServingRound:
    """One round over a key's blocked clients: `next` returns a client; call `refused` if it cannot be served."""

    __slots__ = ("_alone", "_at", "_queue", "_queues", "last")

    def __init__(self, waiters: KeyWaiters) -> None:
        self._alone = list(waiters.queues.get(None, ()))
        self._at = 0
        # The remaining queues, without the current one: a heap ordered by the number of their first client.
        self._queues = [(next(iter(queue)).number, queue) for name, queue in waiters.queues.items() if name is not None]
        heapify(self._queues)
        self._queue: OrderedDict[Any, None] | None = None
        # Clients that arrive during this round wait for the next one.
        self.last = max((next(reversed(queue)).number for queue in waiters.queues.values()), default=0)

    def next(self) -> Any:
        """Return the remaining client that has waited longest, or None."""
        alone = self._alone[self._at] if self._at < len(self._alone) else None
        if self._queue is not None:
            self._come_back(self._queue)
            self._queue = None
        while self._queues and (alone is None or self._queues[0][0] < alone.number):
            number, queue = heappop(self._queues)
            head = next(iter(queue), None)
            if head is not None and head.number == number:
                self._queue = queue
                return head
            self._come_back(queue)  # its first client was removed meanwhile
        if alone is not None:
            self._at += 1
        return alone

    def _come_back(self, queue: OrderedDict[Any, None]) -> None:
        """Put a queue back into the heap, at the position of its first client."""
        head = next(iter(queue), None)
        if head is not None and head.number <= self.last:
            heappush(self._queues, (head.number, queue))

    def refused(self, blocked: Any) -> None:
        """Skip the rest of this client's queue in this round."""
        if blocked.queue is not None:
            self._queue = None
