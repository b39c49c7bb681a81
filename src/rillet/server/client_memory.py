"""The memory of clients: counted for `maxmemory`, limited by `maxmemory-clients` (Redis: networking.c, evictClients).

    client      objects | unparsed input | queued commands | unsent replies | names of subscriptions
    total       the sum over all clients -> Eviction.buffers, so that buffers make room by evicting keys
    over limit  the largest client is disconnected, then the next one; CLIENT NO-EVICT exempts a client

While a limit is set, a client is measured after each of its turns. Otherwise the periodic job measures some clients at
a time, and INFO measures all of them while they are few. The total is always known.

Costs: a measurement O(1), O(n log n) while the limit is exceeded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rillet.runtime.memory import session_bytes
from rillet.runtime.session_state import REPLICA
from rillet.server.log_lines import LOGGER

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine
    from rillet.runtime.settings.settings import Settings
    from rillet.server.connection import ClientConnection

_FEW = 100  # clients that INFO measures
_LEAST = 5  # clients that each run of the periodic job measures (server.c: CLIENTS_CRON_MIN_ITERATIONS)


def client_limit(settings: Settings) -> int:
    """Return maxmemory-clients in bytes, 0 without a limit (getMaxClientsMemory)."""
    limit: int = settings.maxmemory_clients
    return limit if limit >= 0 else settings.maxmemory * -limit // 100


class ClientMemory:
    """The memory of one server's clients. `watched`: every turn of a client must be followed by `measure`.

    connections: the clients; hz: returns the runs per second of the periodic job.
    """

    def __init__(self, engine: Engine, connections: Mapping[ClientConnection, None], hz: Callable[[], int]) -> None:
        self._engine = engine
        self._connections = connections
        self._hz = hz
        self._queue: deque[ClientConnection] = deque()
        self.total = 0
        self.limit = 0
        self.watched = False

    def take_settings(self) -> None:
        """Copy the limits from the settings, and measure all clients if there is a limit."""
        settings = self._engine.settings
        self.limit = client_limit(settings)
        self.watched = bool(self.limit or settings.maxmemory)
        for connection in list(self._connections):
            connection.watched = self.watched
            if self.watched:
                self.measure(connection)

    def measure(self, connection: ClientConnection) -> None:
        """Count the present size of a client; disconnect the largest clients if all exceed the limit."""
        if connection.transport is None or connection.transport.is_closing():
            return
        if connection.session.state & REPLICA:  # replicas have limits of their own (evict.c: freeMemoryGetNotCounted)
            self.forget(connection)
            return
        size = session_bytes(connection.session) + connection.buffered_bytes
        self.total += size - connection.counted
        connection.counted = size
        self._engine.eviction.buffers = self.total
        if 0 < self.limit < self.total:
            self._evict()

    def forget(self, connection: ClientConnection) -> None:
        """Subtract a client that is gone. A client that the job has still to measure is ignored then."""
        self.total -= connection.counted
        connection.counted = 0
        self._engine.eviction.buffers = self.total

    def measure_some(self) -> None:
        """Measure some clients, so that each is measured once a second. The periodic job calls this."""
        connections = self._connections
        if not self._queue:
            self._queue.extend(connections)
        for _ in range(min(max(_LEAST, len(connections) // self._hz()), len(self._queue))):
            connection = self._queue.popleft()
            if connection in connections:
                connection.shrink(self._engine.clock.now_ms())
                self.measure(connection)

    def measure_few(self) -> None:
        """Measure all clients if they are few, for a report."""
        if not self.watched and len(self._connections) <= _FEW:
            for connection in list(self._connections):
                self.measure(connection)

    def _evict(self) -> None:
        """Disconnect the largest clients until the others fit."""
        clients = [one for one in self._connections if one.counted and not one.session.extra.get("no_evict")]
        total = sum(one.counted for one in clients)
        if total <= self.limit:
            return
        clients.sort(key=lambda one: one.counted)
        while clients and total > self.limit:
            largest = clients.pop()
            total -= largest.counted
            self._engine.memory.clients_evicted += 1
            LOGGER.info("client %s evicted: it takes %d bytes", largest.peer, largest.counted)
            self.forget(largest)
            largest.close()
