"""The server's fields of INFO: accepted and rejected clients, bytes in and out, rates, memory.

Each connection counts its own bytes; the totals include connected and disconnected clients.
Rates are averages over the last 16 samples of the cron, as in Redis (server.c: trackInstantaneousMetric).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from rillet.runtime.engine import Engine
from rillet.server.connection import ClientConnection

_SAMPLES = 16


class ServerStats:
    """The counters of one server. connections: the clients that are connected now."""

    def __init__(self, engine: Engine, connections: Mapping[ClientConnection, None]) -> None:
        self._engine = engine
        self._connections = connections
        self.accepted = self.refused = 0
        self._received = self._sent = self._reads = self._writes = 0
        # Samples of the totals: (time in ms, commands, bytes received, bytes sent, turns, nanoseconds of turns).
        self._samples: deque[tuple[int, int, int, int, int, int]] = deque(maxlen=_SAMPLES)

    def add_closed(self, connection: ClientConnection) -> None:
        """Add the counters of a client that disconnected."""
        self._received += connection.received
        self._sent += connection.sent
        self._reads += connection.reads
        self._writes += connection.writes

    def of_closed(self) -> tuple[int, int]:
        """Return the bytes received from and sent to clients that disconnected. O(1)"""
        return self._received, self._sent

    def sample(self, now: int) -> None:
        """Record the current totals, from which the rates are computed."""
        counted = self._engine.stats
        self._samples.append((now, counted.commands_processed, *self._bytes(), counted.turns, counted.busy_ns))

    def reset(self) -> None:
        """Reset the counters (CONFIG RESETSTAT)."""
        self.accepted = self.refused = 0
        self._samples.clear()
        reads, writes = self._transfers()
        self._reads -= reads
        self._writes -= writes
        received, sent = self._bytes()
        self._received -= received
        self._sent -= sent

    def _bytes(self) -> tuple[int, int]:
        here = self._connections
        return (self._received + sum(connection.received for connection in here),
                self._sent + sum(connection.sent for connection in here))

    def _transfers(self) -> tuple[int, int]:
        """Return the number of reads from sockets and of writes to them. O(clients)"""
        here = self._connections
        return (self._reads + sum(connection.reads for connection in here),
                self._writes + sum(connection.writes for connection in here))

    def _rates(self) -> list[float]:
        """Return commands, bytes received, bytes sent, turns, and nanoseconds of turns: each per second."""
        if len(self._samples) < 2:
            return [0.0] * 5
        first, last = self._samples[0], self._samples[-1]
        seconds = max(last[0] - first[0], 1) / 1000
        return [max(last[at] - first[at], 0) / seconds for at in range(1, 6)]

    def clients(self) -> dict[str, Any]:
        """Return the server's fields of INFO clients."""
        here = self._connections
        return {
            "client_recent_max_input_buffer": max((one.last_read for one in here), default=0),
            "client_recent_max_output_buffer": max((len(one.session.out.buf) for one in here), default=0),
            "clients_in_timeout_table": sum(1 for one in here if one.session.blocked is not None
                                            and one.session.blocked.deadline),
        }  # fmt: skip

    def stats(self) -> dict[str, Any]:
        """Return the server's fields of INFO stats."""
        received, sent = self._bytes()
        reads, writes = self._transfers()
        commands, incoming, outgoing, turns, busy = self._rates()
        compat = self._engine.settings.compat
        newer: dict[str, Any] = {}
        if compat.knows(72):
            newer["instantaneous_eventloop_cycles_per_sec"] = round(turns)
            newer["instantaneous_eventloop_duration_usec"] = round(busy / turns / 1000) if turns else 0
        return {
            "total_connections_received": self.accepted, "rejected_connections": self.refused,
            "instantaneous_ops_per_sec": round(commands), "total_net_input_bytes": received,
            "total_net_output_bytes": sent, "instantaneous_input_kbps": f"{incoming / 1024:.2f}",
            "instantaneous_output_kbps": f"{outgoing / 1024:.2f}", "total_reads_processed": reads,
            "total_writes_processed": writes, **newer,
        }  # fmt: skip
