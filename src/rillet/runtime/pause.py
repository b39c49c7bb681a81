"""CLIENT PAUSE: the commands that it holds back, and their order (Redis: networking.c, pauseClients).

A script that declares flags is held back if it may write; EVAL of a script without flags is always held back.

A paused client is blocked without keys and without a deadline, before its command runs (BLOCKED_POSTPONE). The end of
the pause runs the commands in the order of their arrival. Only clients that are connected by a socket are held back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rillet.runtime.blocking import BlockedClient
from rillet.runtime.registry import Command
from rillet.runtime.replication import FAILOVER_IN_PROGRESS
from rillet.runtime.session import Session

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

# Values of Engine.paused: the commands that CLIENT PAUSE holds back.
PAUSE_OFF = 0
PAUSE_WRITES = 1
PAUSE_ALL = 2

# Commands that run scripts -> whether this script may write, None without flags. The modules of the commands fill it.
SCRIPT_WRITES: dict[str, Callable[[Session, list[bytes]], bool | None]] = {}


class PausedClients:
    """The sessions of one engine whose commands CLIENT PAUSE holds back."""

    def __init__(self, engine: CommandEngine) -> None:
        self._engine = engine
        self._postponed: list[BlockedClient] = []

    def postpone(self, session: Session, entry: Command | None, argv: list[bytes]) -> bool:
        """Hold back a command if the pause applies to it; return whether it was held back."""
        if session.transport is None or session.trusted or entry is None or not entry.accepts(len(argv)):
            return False
        if self._engine.paused == PAUSE_WRITES and not _may_replicate(session, entry, argv):
            return False
        self.hold(session, argv)
        return True

    def hold(self, session: Session, argv: list[bytes]) -> None:
        """Hold back a command until the end of the pause."""
        session.argv = argv
        # The command waits for no key and has no timeout.
        self._engine.blocking.block(session, [], 0, lambda _session, _key: False, lambda _session: None)
        assert session.blocked is not None
        session.blocked.postponed = True
        self._postponed.append(session.blocked)

    def hold_during_failover(self, session: Session, argv: list[bytes]) -> bool:
        """Hold back the command of a client that is sent to the master while that one is not the master yet."""
        if self._engine.replication.failover_state != FAILOVER_IN_PROGRESS or session.transport is None:
            return False
        self.hold(session, argv)
        return True

    def relax(self, rest: int = PAUSE_OFF) -> None:
        """Relax a pause to `rest`; run the commands that are not held back any more (unblockPostponedClients)."""
        self._engine.paused = rest
        blocking = self._engine.blocking
        postponed, self._postponed = self._postponed, []
        for blocked in postponed:
            session = blocked.session
            if session.blocked is blocked:
                blocking.unblock(session)
                self._engine.execute(session, blocked.argv)
                blocking.wake(session)


def _may_replicate(session: Session, entry: Command, argv: list[bytes]) -> bool:
    """Return whether a pause of writes holds back the command (server.c: is_may_replicate_command)."""
    if entry.name == "exec":
        return any(_may_replicate(session, queued, words) for queued, words in session.queue)
    script_writes = SCRIPT_WRITES.get(entry.name)
    writes = None if script_writes is None else script_writes(session, argv)
    if writes is not None:
        return writes
    return entry.write or "may_replicate" in entry.flags
