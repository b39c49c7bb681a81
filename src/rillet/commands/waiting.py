"""The clients that wait for one key, and in whose turn.

    Waiters ── None ──► client, client ...      each waits for something of its own (XREAD after its ID)
            ── b"g" ──► client, client ...      all wait for the same: the next entries of group g
            ── b"h" ──► ...

Redis serves the clients of a key first come first served, and asks each of them (blocked.c,
handleClientsBlockedOnKey). Where ten thousand wait in one group and one entry came, that is ten thousand
questions with one yes. So clients that name what they wait for stand in a queue together: when the first of
them cannot be served, nobody behind it can, and the rest is not asked. Across queues the order is
that of arrival, as in Redis.

Costs: O(1) to come, to go, and for each client served; O(queues) to find whose turn it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any


class Waiters:
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

    def turns(self) -> Turns:
        """Return who is to be asked, one after the other, while they come and go."""
        return Turns(self)

    def __bool__(self) -> bool:
        return bool(self.queues)

    def __len__(self) -> int:
        return sum(len(queue) for queue in self.queues.values())

    def __iter__(self) -> Iterator[Any]:
        everybody = [blocked for queue in self.queues.values() for blocked in queue]
        return iter(sorted(everybody, key=lambda blocked: blocked.number))


class Turns:
    """One round over the waiting clients of a key: `next` says whose turn it is, `refused` that it got nothing."""

    __slots__ = ("_alone", "_at", "_queues", "last")

    def __init__(self, waiters: Waiters) -> None:
        self._alone = list(waiters.queues.get(None, ()))
        self._at = 0
        self._queues = [queue for name, queue in waiters.queues.items() if name is not None]
        # Who comes later, while others are served, waits for the next round.
        self.last = max((next(reversed(queue)).number for queue in waiters.queues.values()), default=0)

    def next(self) -> Any:
        """Return the client that has waited longest of those still to be asked, None when there is none."""
        chosen = None
        if self._at < len(self._alone):
            chosen = self._alone[self._at]
        for queue in self._queues:
            head = next(iter(queue), None)
            if head is not None and head.number <= self.last and (chosen is None or head.number < chosen.number):
                chosen = head
        if chosen is not None and chosen.queue is None:
            self._at += 1
        return chosen

    def refused(self, blocked: Any) -> None:
        """Ask nobody else of its queue in this round."""
        if blocked.queue is not None:
            self._queues = [queue for queue in self._queues if blocked not in queue]
