"""When a replica of some keys may request the next snapshot, so that it does not burden its server.

    a command cannot be applied ── pause ── snapshot ── the stream ── a command cannot be applied ── pause × 2 ── ...
                                                        └── LONGEST without such a command: the first pause again

A snapshot costs the server a fork, or a pass over its data. All commands that cannot be applied and that come during
the pause are covered by the one snapshot at its end. While such commands keep coming, the pause doubles up to LONGEST,
or up to the time that a snapshot takes, if that is longer. So in the long run the server makes at most one snapshot
a minute, and spends at most half of its time on them.
"""

from __future__ import annotations

SHORTEST = 0.1  # seconds
LONGEST = 60.0


class ResyncPace:
    """The pauses before snapshots; times are in seconds of a monotonic clock."""

    def __init__(self, shortest: float = SHORTEST, longest: float = LONGEST) -> None:
        self.shortest, self.longest = shortest, longest
        self.pause = 0.0  # the last one; 0: there was none
        self._until = 0.0
        self._began: float | None = None
        self._took = 0.0  # the last snapshot
        self._loaded = 0.0

    def lost(self, now: float) -> float:
        """Note a command that cannot be applied; return the pause before the snapshot."""
        most = max(self.longest, self._took)
        if not self.pause or now - self._loaded >= most:
            self.pause = self.shortest
        else:
            self.pause = min(max(2 * self.pause, self._took), most)
        self._until = now + self.pause
        return self.pause

    def left(self, now: float) -> float:
        """Return how long to wait before the next attempt to connect."""
        return max(self._until - now, 0.0)

    def began(self, now: float) -> None:
        """Note that a connection for a snapshot is opened."""
        self._began = now

    def loaded(self, now: float) -> None:
        """Note that a snapshot was loaded."""
        if self._began is not None:
            self._took, self._began = now - self._began, None
        self._loaded = now
