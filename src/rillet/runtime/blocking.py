"""The clients that wait for one key, and in whose turn.

    Waiters ── None ──► client, client ...      each waits for something of its own (XREAD after its ID)
            ── b"g" ──► client, client ...      all wait for the same: the next entries of group g
            ── b"h" ──► ...

Redis serves the clients of a key first come first served, and asks each of them (blocked.c,
handleClientsBlockedOnKey). Where ten thousand wait in one group and one entry came, that is ten thousand
questions with one yes. So clients that name what they wait for stand in a queue together: when the first of
them cannot be served, nobody behind it can, and the rest is not asked. Across queues the order is
that of arrival, as in Redis.

Costs: O(1) to come and to go; a round O(queues), and O(log queues) for each client that is asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any


class KeyWaiters:
    """Those who wait for a key; iterated, they come in the order in which they arrived."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        self.queues: dict[bytes | None, OrderedDict[Any, None]] = {}

    def add(self, blocked: Any) -> None:
        """Take a client in, behind all others of its queue."""
        queue = self.queues.get(blocked.queue)
        if queue is None:
            queue = self.queues[blocked.queue] = OrderedDict()
        queue[blocked] = None

    def remove(self, blocked: Any) -> None:
        """Let a client go; nothing happens where it is gone."""
        queue = self.queues.get(blocked.queue)
        if queue is not None:
            queue.pop(blocked, None)
            if not queue:
                del self.queues[blocked.queue]

    def turns(self) -> ServingRound:
        """Return who is to be asked, one after the other, while they come and go."""
        return ServingRound(self)

    def __bool__(self) -> bool:
        return bool(self.queues)

    def __len__(self) -> int:
        return sum(len(queue) for queue in self.queues.values())

    def __iter__(self) -> Iterator[Any]:
        everybody = [blocked for queue in self.queues.values() for blocked in queue]
        return iter(sorted(everybody, key=lambda blocked: blocked.number))


class ServingRound:
    """One round over the waiting clients of a key: `next` says whose turn it is, `refused` that it got nothing."""

    __slots__ = ("_alone", "_at", "_queue", "_queues", "last")

    def __init__(self, waiters: KeyWaiters) -> None:
        self._alone = list(waiters.queues.get(None, ()))
        self._at = 0
        # A heap of queues by the number of their first: those that are still to be asked, but for the one being asked.
        self._queues = [(next(iter(queue)).number, queue) for name, queue in waiters.queues.items() if name is not None]
        heapify(self._queues)
        self._queue: OrderedDict[Any, None] | None = None
        # Who comes later, while others are served, waits for the next round.
        self.last = max((next(reversed(queue)).number for queue in waiters.queues.values()), default=0)

    def next(self) -> Any:
        """Return the client that has waited longest of those still to be asked, None when there is none."""
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
            self._come_back(queue)  # the first of it left meanwhile
        if alone is not None:
            self._at += 1
        return alone

    def _come_back(self, queue: OrderedDict[Any, None]) -> None:
        """Let a queue be asked again when the turn of its first has come."""
        head = next(iter(queue), None)
        if head is not None and head.number <= self.last:
            heappush(self._queues, (head.number, queue))

    def refused(self, blocked: Any) -> None:
        """Ask nobody else of its queue in this round."""
        if blocked.queue is not None:
            self._queue = None
