"""Retries: a call of a server that is away waits in growing pauses until the server is back.

    not sent       no connection could be made, or the server replied LOADING: the command was not executed
    unknown        the connection broke after the command was sent: only a repeatable command is sent again

A server is away if it was reached before: a wrong address fails at once. A call waits at most PATIENCE seconds, then
raises the error. `messages()` waits without limit (rillet.store.group), and looks at `stop` and `timeout` each second.

A call of a cluster follows the cluster's own rules (rillet.client.redirection). A store in a directory has another way
to continue: it attaches to the next owner, or becomes it (rillet.store.backend).
"""

from __future__ import annotations

import time

PATIENCE = 3.0  # seconds; as long as a store in a directory waits for a server that ended
_FIRST, _LONGEST = 0.005, 0.25


class Retries:
    """The attempts of one call: growing pauses, for at most `patience` seconds."""

    __slots__ = ("_next", "_until", "failures", "pause")

    def __init__(self, patience: float = PATIENCE) -> None:
        self._until = time.monotonic() + patience
        self._next = _FIRST
        self.failures = 0
        self.pause = 0.0  # seconds to wait before the next attempt

    def again(self) -> bool:
        """Count a failure and set `pause` for the next attempt; return False if the time is over."""
        self.failures += 1
        left = self._until - time.monotonic()
        self.pause = max(0.0, min(self._next, left))
        self._next = min(2 * self._next, _LONGEST)
        return left > 0


__all__ = ["PATIENCE", "Retries"]
