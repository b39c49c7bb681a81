"""FAILOVER: a master hands its role to a replica without losing a change (Redis: replication.c).

    no-failover ──► waiting-for-sync ──► failover-in-progress ──► no-failover
                    writes are paused    this server follows the target and sends it PSYNC <id> <offset> FAILOVER
                    until the target     with which the target becomes the master; then the pause ends
                    has every change

With a timeout, the failover is aborted in the first state; with FORCE it goes on without the missing changes. An abort
in the second state makes this server the master again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet.errors import CommandError
from rillet.replication.attached import ONLINE, AttachedReplica
from rillet.runtime.replication import FAILOVER_IN_PROGRESS, NO_FAILOVER

if TYPE_CHECKING:
    from rillet.replication.master import ReplicationStream

WAITING = "waiting-for-sync"


class Failover:
    """The handover of one master; see ReplicationState.failover and failover_state."""

    def __init__(self, stream: ReplicationStream) -> None:
        self._stream = stream
        self._state = stream.state
        self._services = stream.engine.services
        self._target: tuple[str, int] | None = None
        self._deadline = 0
        self._forced = False

    def start(self, target: tuple[str, int] | None, timeout: int, forced: bool) -> None:
        """Pause the writes and wait for the target, or for any replica; CommandError."""
        if target is not None:
            replica = self._find(target)
            if replica is None:
                raise CommandError("FAILOVER target HOST and PORT is not a replica.")
            if replica.state != ONLINE:
                raise CommandError("FAILOVER target replica is not online.")
        self._say(f"FAILOVER requested to {_name(target)}.")
        self._target, self._forced = target, forced
        self._deadline = self._now() + timeout if timeout else 0
        self._state.failover_state = WAITING
        self._services.failing_over(True)
        self._stream.flush_soon()

    def _find(self, target: tuple[str, int]) -> AttachedReplica | None:
        return next((one for one in self._stream.replicas if (one.address, one.properties.port) == target), None)

    def check(self) -> None:
        """Begin the handover once the target has every change (updateFailoverStatus)."""
        if self._state.failover_state != WAITING:
            return
        if self._deadline and self._deadline <= self._now():
            if not self._forced:
                self.abort("Replica never caught up before timeout")
                return
            self._say(f"FAILOVER to {_name(self._target)} time out exceeded, failing over.")
            self._hand_over()
            return
        end = self._state.position()
        replica = None
        if self._target is not None:
            replica = self._find(self._target)
        else:
            replica = next((one for one in self._stream.replicas if one.state == ONLINE and one.ack == end), None)
        if replica is not None and replica.ack == end:
            self._target = (replica.address, replica.properties.port)
            self._say(f"Failover target {_name(self._target)} is synced, failing over.")
            self._hand_over()

    def _hand_over(self) -> None:
        assert self._target is not None
        self._state.failover_state = FAILOVER_IN_PROGRESS
        self._services.follow(*self._target)
        self._state.link.failover = True

    def abort(self, reason: str) -> None:
        """Stay the master, or become it again (abortFailover)."""
        if self._state.failover_state == NO_FAILOVER:
            return
        self._say(f"FAILOVER to {_name(self._target)} aborted: {reason}")
        if self._state.failover_state == FAILOVER_IN_PROGRESS:
            self._services.promote()
        self.end()

    def end(self) -> None:
        """Forget the failover, and run the writes that were held back (clearFailoverState)."""
        self._target, self._deadline, self._forced = None, 0, False
        self._state.failover_state = NO_FAILOVER
        self._services.failing_over(False)

    def _now(self) -> int:
        now: int = self._stream.engine.clock.uptime_ms()
        return now

    def _say(self, text: str) -> None:
        self._services.log_line(text, "notice")


def _name(target: tuple[str, int] | None) -> str:
    return "any replica" if target is None else f"{target[0]}:{target[1]}"
