"""The shutdown of a server: SHUTDOWN, SIGTERM and SIGINT (server.c: prepareForShutdown, finishShutdown).

    request ──► replicas that lack changes? ──yes──► wait: writes pause, replicas are asked for their offsets
                       │ no, or NOW                    │ all have everything, or shutdown-timeout seconds passed
                       ▼                               ▼
    log the replicas that lack changes
    kill a child that writes the file, and remove its draft
    write the log; an initial rewrite that is not complete prevents the shutdown
    with save points, or on SHUTDOWN SAVE, write the file; all clients wait
    run no further command of a client: every acknowledged write is in the file
    Server.stop, ServerPersistence.close

If a step fails, the server keeps running: SHUTDOWN returns an error, a signal writes a line to the log. FORCE shuts
down all the same. SHUTDOWN ABORT ends the wait, or a signal that the periodic job has not handled yet. Clients that
sent SHUTDOWN are blocked meanwhile. While a script runs for too long, nothing is awaited, because the replicas would
wait for the end of the script. A second SIGINT during the final save ends the process at once, with status 1 and
without the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rillet.errors import CommandError
from rillet.host.timers import EngineTimers
from rillet.persistence.fork import Children
from rillet.persistence.rdb.snapshots import PURPOSE, Snapshots, draft_name
from rillet.runtime.engine import Engine
from rillet.server.log_lines import WARNING, say
from rillet.server.pauses import BY_CLIENT, FOR_SHUTDOWN, FOREVER_MS, Pauses

_SIGNAL_SETTINGS = {signal.SIGINT: "shutdown_on_sigint", signal.SIGTERM: "shutdown_on_sigterm"}
_FAILED = "Errors trying to SHUTDOWN. Check logs."


class ShutdownOptions(NamedTuple):
    """The options of SHUTDOWN."""

    save: bool = False
    nosave: bool = False
    force: bool = False
    now: bool = False


class Shutdown:
    """The shutdown of one server; `end_log(force)` writes the log, or raises CommandError."""

    def __init__(self, engine: Engine, children: Children, snapshots: Snapshots,
                 end_log: Callable[[bool], None]) -> None:  # fmt: skip
        self._engine = engine
        self._children = children
        self._snapshots = snapshots
        self._end_log = end_log
        self._timers: EngineTimers
        self._guard: contextlib.AbstractContextManager[Any]
        self._pauses: Pauses
        self._stop: Callable[[], None]
        self._options = ShutdownOptions()
        self._ending = False
        self._signal = 0  # a signal that the periodic job has not handled
        self._deadline = 0  # while replicas are awaited: ms since the epoch

    def attach(self, timers: EngineTimers, guard: contextlib.AbstractContextManager[Any], pauses: Pauses,
               stop: Callable[[], None]) -> None:  # fmt: skip
        """Shut the server down on signals, and check the replicas periodically; stop: requests the end."""
        self._timers, self._guard, self._pauses, self._stop = timers, guard, pauses, stop
        timers.jobs.append(self._cron)
        loop = asyncio.get_running_loop()
        for number in _SIGNAL_SETTINGS:
            try:
                loop.add_signal_handler(number, self._signalled, number)
            except NotImplementedError:  # on Windows
                signal.signal(number, lambda received, _: loop.call_soon_threadsafe(self._signalled, received))

    def ignore_signals(self) -> None:
        """Ignore further signals: the files are closed, and a second SIGTERM must not change the exit status."""
        loop = asyncio.get_running_loop()
        for number in _SIGNAL_SETTINGS:
            with contextlib.suppress(NotImplementedError):  # on Windows
                loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)

    def request(self, options: ShutdownOptions) -> bool:
        """Begin the shutdown; return False if replicas are awaited first. After CommandError the server keeps running.

        (Redis: prepareForShutdown.)
        """
        if self._ending:
            return True
        if self._deadline:
            return False
        engine = self._engine
        if engine.loading:  # the databases hold only a part of the files' data
            options = options._replace(save=False, nosave=True)
        self._options = options
        say("User requested shutdown...", WARNING)
        timeout: int = engine.settings.shutdown_timeout
        if timeout and not options.now and not engine.busy and not self._is_ready():
            self._deadline = engine.clock.uptime_ms() + timeout * 1000
            if not engine.paused:
                engine.replication.stream.request_acks()
            self._pauses.begin(FOR_SHUTDOWN, FOREVER_MS, True)
            say("Waiting for replicas before shutting down.")
            return False
        self._finish()
        return True

    def abort(self) -> None:
        """Abort the shutdown that waits for replicas, or that a signal requests (SHUTDOWN ABORT); CommandError."""
        if self._deadline:
            self._cancel()
        elif self._signal:
            self._signal = 0
        else:
            raise CommandError("No shutdown in progress.")
        say("Shutdown manually aborted.")

    def info(self) -> dict[str, object]:
        """Return the field of INFO server: the time for which replicas are still awaited."""
        if not self._deadline:
            return {}
        return {"shutdown_in_milliseconds": self._deadline - self._engine.clock.uptime_ms()}

    def _signalled(self, number: int) -> None:
        """Shut down on a signal, with the flags of shutdown-on-sigterm and shutdown-on-sigint."""
        say(f"Received {signal.Signals(number).name} scheduling shutdown...", WARNING)
        self._signal = number
        if not self._timers.paused:
            with self._guard:
                self._cron()

    def _cron(self) -> None:
        """Begin the shutdown that a signal requests, or finish it once the replicas have all changes."""
        with contextlib.suppress(CommandError):  # the reason is in the log
            if self._deadline:
                if self._engine.clock.uptime_ms() >= self._deadline or self._is_ready():
                    self._finish()
            elif self._signal:
                flags: tuple[str, ...] = getattr(self._engine.settings, _SIGNAL_SETTINGS[signal.Signals(self._signal)])
                self._signal = 0
                self.request(ShutdownOptions("save" in flags, "nosave" in flags, "force" in flags, "now" in flags))

    # -- the replicas --------------------------------------------------------------------------------

    def _is_ready(self) -> bool:
        """Return whether all replicas have acknowledged all changes (isReadyToShutdown)."""
        state = self._engine.replication
        if state.stream is None or not state.stream.replicas:
            return True
        state.stream.flush()
        return all(replica.ack == state.offset for replica in state.stream.replicas)

    def _log_replicas(self) -> None:
        """Log which replicas lack changes."""
        state = self._engine.replication
        replicas = state.stream.replicas if state.stream is not None else []
        lagging = [replica for replica in replicas if replica.ack != state.offset]
        for replica in lagging:
            lag = replica.lag_seconds(self._engine.clock.uptime_ms())
            say(f"Lagging replica {replica.name} reported offset {state.offset - replica.ack} behind master, "
                f"lag={lag}, state={replica.shown_state}.", WARNING)  # fmt: skip
        if replicas:
            say(f"{len(replicas) - len(lagging)} of {len(replicas)} replicas are in sync when shutting down.")

    # -- the end -------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Save the data, then stop the server (finishShutdown); after CommandError the server keeps running."""
        try:
            self._log_replicas()
            self._save()
        except CommandError:
            say("Errors trying to shut down the server. Check the logs for more information.", WARNING)
            self._cancel()
            raise CommandError(_FAILED) from None
        self._ending = True
        self._pauses.begin(BY_CLIENT, FOREVER_MS, writes_only=False)
        self._stop()

    def _cancel(self) -> None:
        """Let the server continue: reply to the clients that sent SHUTDOWN, and run the writes (cancelShutdown)."""
        self._deadline = self._signal = 0
        engine = self._engine
        for session in list(engine.sessions.values()):
            if session.blocked is not None and session.command is not None and session.command.fullname == "shutdown":
                engine.blocking.fail(session, CommandError(_FAILED))
        self._pauses.end(FOR_SHUTDOWN)

    def _save(self) -> None:
        options = self._options
        if self._children.is_at(PURPOSE):
            say("There is a child saving an .rdb. Killing it!", WARNING)
            self._snapshots.stop_child()
        self._end_log(options.force)
        if options.save or (self._engine.settings.save and not options.nosave):
            say("Saving the final RDB snapshot before exiting.")
            try:
                with self._insisting():
                    self._snapshots.write()
            except CommandError:
                what = "Exit anyway." if options.force else "can't exit."
                say(f"Error trying to save the DB, {what}", WARNING)
                if not options.force:
                    raise

    @contextlib.contextmanager
    def _insisting(self) -> Iterator[None]:
        """Let SIGINT end the process immediately during the final save (server.c: sigShutdownHandler)."""
        draft = self._snapshots.path.with_name(draft_name(os.getpid()))

        def insist(_number: int, _frame: object) -> None:
            say("You insist... exiting now.", WARNING)
            draft.unlink(missing_ok=True)
            os._exit(1)

        before = signal.signal(signal.SIGINT, insist)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
