"""Cold reads: a thread reads nodes of streams from the disk, while other clients are served.

    command ── absent nodes ──► hold: its client is blocked ──► thread: load ──► the command begins again

A command that needs entries of a stream asks first what the disk must read (`commands.stream.cold`). Its client then
waits like one that CLIENT PAUSE holds back, so its later commands keep their order. When the parts are in the memory of
the system, the command runs from its beginning, in one step, with the stream as it is then. If parts have left that
memory again after some rounds, it reads them itself.

Who waits: a client of a socket, and a thread or task of this process with a single command. A batch of commands of this
process, MULTI, a script and the replay of a log read what they need at once, and others wait meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from queue import SimpleQueue

from rillet.runtime import session_state
from rillet.runtime.blocking import BlockedClient
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.types.stream.nodes import Absent

_MOST_ROUNDS = 6
_SILENT = session_state.MUTED | session_state.REPLY_SKIP_NEXT
_Work = tuple[BlockedClient, list[Absent], int]


class ColdReads:
    """The clients of an engine that wait for the disk."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._round = 0  # of the command that runs now
        self.held = 0
        """How often a command has waited."""

    def may_hold(self, session: Session) -> bool:
        """Return whether the client of this session can wait."""
        return (session.patient and session.can_block and not session.state & _SILENT
                and self._round < _MOST_ROUNDS)  # fmt: skip

    def hold(self, session: Session, argv: list[bytes], absent: Sequence[Absent]) -> None:
        """Hold a command back, which has done nothing yet, until a thread has read these parts."""
        session.argv = argv
        self._engine.blocking.block(session, [], 0, lambda _session, _key: False, lambda _session: None)
        assert session.blocked is not None
        session.blocked.postponed = True
        self._engine.stats.commands_processed -= 1  # it counts when it begins again
        session.commands -= 1
        self.held += 1
        self._queue.put((session.blocked, list(absent), self._round))
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="rillet-cold-reads", daemon=True)
            self._thread.start()

    def _read(self) -> None:
        while (work := self._queue.get()) is not None:
            blocked, absent, number = work
            for part in absent:
                part.load()
            self._engine.services.post(partial(self._go_on, blocked, number + 1))

    def _go_on(self, blocked: BlockedClient, number: int) -> None:
        """Run a command from its beginning; the caller holds the lock."""
        if blocked.session.blocked is blocked:  # else the client has left
            self._again(blocked, number)
            self._engine.blocking.wake(blocked.session)

    def run_now(self, session: Session) -> None:
        """Run a command that was held back, and let it read by itself; the caller holds the lock, and keeps it."""
        if session.blocked is not None and session.blocked.postponed:
            self._again(session.blocked, _MOST_ROUNDS)

    def _again(self, blocked: BlockedClient, number: int) -> None:
        engine = self._engine
        engine.blocking.unblock(blocked.session)
        self._round = number
        try:
            engine.execute(blocked.session, blocked.argv)
        finally:
            self._round = 0

    def close(self) -> None:
        """End the thread."""
        self._queue.put(None)
