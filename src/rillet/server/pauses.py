"""The reasons for which the clients of a server are paused, and when each ends (networking.c: pauseClients).

    reason                     begins with      ends
    client_pause               CLIENT PAUSE     at its time, or with CLIENT UNPAUSE
    failover_in_progress       FAILOVER         with the failover
    shutdown_in_progress       SHUTDOWN         when the shutdown is aborted or fails

The strictest reason applies. A reason that begins again can only become longer and stricter. When a reason ends, the
others remain, so CLIENT UNPAUSE does not run writes that a failover holds back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet.runtime.pause import PAUSE_ALL, PAUSE_OFF, PAUSE_WRITES

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine

FOREVER_MS = 1 << 62
BY_CLIENT, FOR_FAILOVER, FOR_SHUTDOWN = "client_pause", "failover_in_progress", "shutdown_in_progress"


class Pauses:
    """The pauses of one engine; times in ms of Clock.uptime_ms."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reasons: dict[str, tuple[int, int]] = {}

    def begin(self, reason: str, until_ms: int, writes_only: bool) -> None:
        """Hold back the commands of all clients, or their writes, for a reason."""
        kind = PAUSE_WRITES if writes_only else PAUSE_ALL
        until, before = self._reasons.get(reason, (0, PAUSE_OFF))
        if until <= self._engine.clock.uptime_ms():
            until, before = 0, PAUSE_OFF
        self._reasons[reason] = (max(until, until_ms), max(before, kind))
        self.update()

    def end(self, reason: str) -> None:
        """End the pause of a reason, and run the commands that no other reason holds back."""
        if self._reasons.pop(reason, None) is not None:
            self.update()

    def update(self) -> None:
        """Drop the reasons whose time has come, and run the commands that nothing holds back any more."""
        engine, now = self._engine, self._engine.clock.uptime_ms()
        self._reasons = {reason: one for reason, one in self._reasons.items() if one[0] > now}
        before, kind = engine.paused, max((kind for _, kind in self._reasons.values()), default=PAUSE_OFF)
        if kind < before:
            engine.paused_clients.relax(kind)
        else:
            engine.paused = kind

    def left(self) -> int:
        """Return the milliseconds until the last pause ends."""
        end = max((until for until, _ in self._reasons.values()), default=0)
        return max(end - int(self._engine.clock.uptime_ms()), 0)

    @property
    def reason(self) -> str:
        """The strictest reason, and among equals the one that ends last; "none" without a pause."""
        return max(self._reasons, key=lambda reason: self._reasons[reason][::-1], default="none")
