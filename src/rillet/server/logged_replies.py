"""Replies and the log: each reply leaves once the log is as safe as `appendfsync` requires.

    commands run ──► replies set aside ──► log written ──► synced, if appendfsync is always ──► replies sent
                     (one loop iteration,   (one write)     (a thread; one sync covers all
                      all clients)                           replies set aside before it began)

Without a log, a connection sends its replies itself.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

from rillet.errors import Misconf
from rillet.runtime.engine import Engine
from rillet.server.connection import ClientConnection
from rillet.server.engine_loop import EngineLoop


class LoggedReplies:
    """The replies of one server that wait for its log. free_soon: called before the log is written."""

    def __init__(self, engine: Engine, loop: EngineLoop, free_soon: Callable[[], None]) -> None:
        self._engine = engine
        self._settings = engine.settings
        self._loop = loop
        self._free_soon = free_soon
        self._dirty: list[ClientConnection] = []
        # The client whose turn was the last one with replies that wait for the log.
        self._latest: ClientConnection | None = None
        # Clients that were blocked and have a reply.
        self._woken: deque[ClientConnection] = deque()
        # Replies that wait for a position of the log, oldest first: the position and the connections.
        self._unsettled: deque[tuple[int, list[ClientConnection]]] = deque()
        # The position of the log when replies were last set aside; other threads write the log, too.
        self._flushed = 0

    def forget(self, connection: ClientConnection) -> None:
        """Forget a client that disconnected."""
        if self._latest is connection:
            self._latest = None

    # -- clients that were blocked -------------------------------------------------------------------

    def resume_soon(self, connection: ClientConnection) -> None:
        """Continue with a client that was blocked, at the latest in the next loop iteration, in the loop's thread."""
        self._woken.append(connection)
        if len(self._woken) == 1:
            self._loop.loop.call_soon(self._resume_woken)

    def _resume_woken(self) -> None:
        woken = self._woken
        try:
            for _ in range(len(woken)):
                woken.popleft().resume()
        finally:
            if woken:  # clients that these clients woke
                self._loop.loop.call_soon(self._resume_woken)

    # -- writing the log -----------------------------------------------------------------------------

    def flush_soon(self, connection: ClientConnection) -> None:
        """Send the connection's replies when the log contains their writes, not before this loop iteration ends."""
        self._dirty.append(connection)
        if len(self._dirty) == 1:
            self._loop.loop.call_soon(self.flush)

    def end_turn(self, connection: ClientConnection) -> None:
        """Write the log and send a connection's replies now, if it alone is active; the caller holds the guard.

        The clients that its commands woke get their replies now, too. If other clients have replies in this loop
        iteration, or had the latest ones, one write serves all of them at the end of the iteration.
        """
        log = self._engine.log
        alone = connection is self._latest and not self._dirty and not self._unsettled
        self._latest = connection
        if not alone or log is None or self._settings.aof_flush_sleep:
            self.flush_soon(connection)
            return
        if self._woken:
            self._dirty.append(connection)
            self._resume_woken()
            self.write()
            return
        position = self._write_log(log)
        try:
            settled = log.settled(position)
        except Misconf:
            settled = False  # the reply becomes the error
        if settled:
            connection.send_now()
        else:
            self._set_aside(position, [connection])

    def flush(self) -> None:
        """Write the log, and send each reply once its log position is as safe as appendfsync requires."""
        with self._loop.guard:
            if self._engine.expiry.pressing:
                self._engine.expire_fast()
            self._free_soon()
            self.write()

    def flush_log(self) -> None:
        """Do `flush` for a caller that holds the guard and that is not a client.

        With `appendfsync always` the log is synced although no reply waits for it.
        """
        self.write()
        log = self._engine.aof
        if log is not None and self._settings.appendfsync == "always":
            with contextlib.suppress(Misconf):
                if not log.settled(log.position):
                    log.sync_soon(self._synced)

    def write(self) -> None:
        """Do the same as `flush`, without the work of the engine that may come before; the caller holds the guard."""
        waiting, self._dirty = self._dirty, []
        log = self._engine.log
        if log is not None and self._settings.aof_flush_sleep and log.unwritten:
            self._engine.clock.sleep(self._settings.aof_flush_sleep / 1_000_000)
        position = 0
        if log is not None:
            position = self._write_log(log)
        self._set_aside(position, waiting)

    def _write_log(self, log: Any) -> int:
        """Write the log, and return the position up to which replies wait; measure the time."""
        engine = self._engine
        syncing = engine.aof is not None and engine.aof.syncer.syncing
        began = engine.clock.ticks()
        stream = engine.replication.stream
        if stream is not None:
            stream.note_position()
        position: int = log.write(self._flushed)
        self._flushed = log.position
        if stream is not None:
            stream.flush()
        spent = engine.clock.ticks() - began
        engine.stats.log_ns += spent
        if spent >= engine.monitored_ns:
            engine.latency.add(b"aof-write", spent)
            has_child = engine.services.has_child()
            cause = b"pending-fsync" if syncing else b"active-child" if has_child else b"alone"
            engine.latency.add(b"aof-write-" + cause, spent)
        return position

    # -- replies that wait for a sync ----------------------------------------------------------------

    def _set_aside(self, position: int, waiting: list[ClientConnection]) -> None:
        """Let replies wait for a position of the log, and send those that need not wait; the caller holds the guard."""
        if waiting:
            for connection in waiting:
                connection.put_aside()
            self._unsettled.append((position, waiting))
        if self._unsettled:
            self._release_settled()
            if self._unsettled:
                # One sync covers all replies that were set aside before its start; other clients are served meanwhile.
                self._engine.log.sync_soon(self._synced)

    def _release_settled(self) -> None:
        """Send the replies whose log position is safe; the caller holds the guard."""
        log = self._engine.log
        unsettled = self._unsettled
        while unsettled:
            position, waiting = unsettled[0]
            try:
                if log is not None and not log.settled(position):
                    return
            except Misconf as error:
                # Some of these replies acknowledge lost writes, but it is unknown which: reject all of them.
                log.write()  # the log enters its failure state, which rejects writes
                unsettled.popleft()
                for connection in waiting:
                    connection.refuse(error)
            else:
                unsettled.popleft()
                for connection in waiting:
                    connection.release()

    def _synced(self) -> None:
        """Send the replies that waited for a sync; called by the syncing thread."""
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        with self._loop.guard:
            engine, log = self._engine, self._engine.aof
            if log is not None and engine.monitored_ns < 2**62 and self._settings.appendfsync == "always":
                engine.latency.add(b"aof-fsync-always", log.syncer.last_ns)
            self._release_settled()
