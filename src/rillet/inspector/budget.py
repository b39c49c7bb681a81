"""Budget: the bound on what the inspector costs the server at rest, and the account that the page shows.

    rest     what the inspector does without a request: samples for live views; at most SHARE of a core
    asked    what a user asks for: a page of entries, the bytes of a key, a search

The time of an exchange is measured here, at the client. It includes the network and the inspector's own work, so it is
an upper bound of the time that the server's thread spent. After each step at rest the sampler pauses until its share is
kept: a step of 2 ms is followed by a pause of 198 ms. A step is small (a SCAN of 100 keys), so no other client waits
long for it. A search runs in small steps, too, with a larger share, because a user waits for it; so does the first pass
of the sampler.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rillet.real_time import monotonic

SHARE = 0.01
"""The share of a core that the inspector may take at rest."""
SEARCH_SHARE = 0.25
"""The share of a core that a search may take."""
_CAUTION = 0.8  # the share of the bound that is used: a step may take longer than the one before
_WINDOW = 60.0  # seconds that the figures describe


class Budget:
    """The account of the time spent with the server. Safe to use from several threads."""

    def __init__(self, share: float = SHARE) -> None:
        self.share = share
        self._guard = threading.Lock()
        self._spent: deque[tuple[float, float, bool]] = deque()
        self._began = monotonic()
        self.steps = 0
        self.asked = 0

    @contextmanager
    def asking(self, at_rest: bool = False) -> Iterator[None]:
        """Account for the work of a request, or for a step at rest; `pause` returns how long to wait after that."""
        began = monotonic()
        try:
            yield
        finally:
            self._add(monotonic() - began, at_rest)

    def pause(self) -> float:
        """Return the seconds to wait after the last step at rest, so that the share is kept."""
        with self._guard:
            last = next((seconds for _, seconds, rest in reversed(self._spent) if rest), 0.0)
        return pause_after(last, self.share * _CAUTION)

    def _add(self, seconds: float, at_rest: bool) -> None:
        now = monotonic()
        with self._guard:
            self._spent.append((now, seconds, at_rest))
            self._forget(now)
            if at_rest:
                self.steps += 1
            else:
                self.asked += 1

    def _forget(self, now: float) -> None:
        while self._spent and self._spent[0][0] < now - _WINDOW:
            self._spent.popleft()

    def stats(self) -> dict[str, Any]:
        """Return the shares of a core in the last minute, and the bound, for JSON."""
        now = monotonic()
        with self._guard:
            self._forget(now)
            # A step belongs to the time up to the end of the pause after it, which is kept in any case.
            last = next(((when, seconds) for when, seconds, at_rest in reversed(self._spent) if at_rest), (now, 0.0))
            owed = max(0.0, last[0] + pause_after(last[1], self.share * _CAUTION) - now)
            window = max(1.0, min(_WINDOW, now - self._began) + owed)
            rest = sum(seconds for _, seconds, at_rest in self._spent if at_rest)
            asked = sum(seconds for _, seconds, at_rest in self._spent if not at_rest)
        return {"limit": self.share, "rest": rest / window, "asked": asked / window, "window": window,
                "steps": self.steps, "requests": self.asked}  # fmt: skip


def pause_after(seconds: float, share: float) -> float:
    """Return the seconds to wait after a step of so many seconds, so that the steps take that share of the time."""
    return seconds * (1 / share - 1)
