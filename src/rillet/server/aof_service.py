"""The server's append-only log: opened at the start, turned on and off, rewritten and reloaded by commands.

What is done to the files is in rillet.persistence.aof.log and rewriting; here they meet the event loop, CONFIG SET
and the
server's own log. A rewrite is done by a forked child; while another child is at work it is put off.

CONFIG SET appendonly yes lets a child write a base of the data and collects what is logged meanwhile; both become the
log together (AOF_WAIT_REWRITE). CONFIG SET appendonly no leaves the files as they are.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from rillet.errors import CommandError, Corrupt, Misconf, StoreError
from rillet.persistence.aof.base import write_base
from rillet.persistence.aof.loader import LoadResult, TornLog
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.persistence.aof.rewrite import Rewriting
from rillet.persistence.aof.rewrite_format import PURPOSE, ForkedBaseWriter
from rillet.persistence.aof.states import OFF, ON, WAIT_REWRITE
from rillet.persistence.directory_lock import DirectoryLock
from rillet.persistence.fork import Children
from rillet.persistence.write_gate import LOG, WriteGate
from rillet.runtime.engine import Engine
from rillet.runtime.settings import SettingError
from rillet.server.log_lines import WARNING, say
from rillet.server.server import Server


class ServerLog:
    """The append-only log of a server's engine, and the commands that use it."""

    def __init__(self, engine: Engine, folder: Path, children: Children, refusals: WriteGate) -> None:
        self._engine = engine
        self._children = children
        self._refusals = refusals
        self._server: Server | None = None
        # Whether the databases are not what the files lead to, so that nothing may be made of them.
        self._lost = False
        self._claim = DirectoryLock()
        settings = engine.settings
        self.log = AppendOnlyLog(folder / settings.appenddirname, name=settings.appendfilename,
                                 fsync=settings.appendfsync, on_failure=self._failed,
                                 on_recovery=self._recovered)  # fmt: skip
        self.log.checksums = settings.aof_checksums
        self.rewriting = Rewriting(
            self.log, engine, ForkedBaseWriter(engine, children), busy=self._other_child, say=say
        )
        self._take_settings()

    # -- opening -------------------------------------------------------------------------------------

    def open(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Replay the log and tell what was found; a log without a file begins with a base."""
        log, engine = self.log, self._engine
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", TornLog)
            try:
                self._claim.take(log.folder)
                replayed = log.load(engine, progress)
                log.start(engine, lambda path: write_base(path, engine, log.disk))
            except OSError as error:
                raise StoreError(f"{error.filename or log.folder} cannot be opened: {error.strerror}") from error
        for one in told:
            say(str(one.message), WARNING)
        say(_summary(replayed))

    def attach(self, server: Server) -> None:
        """Let the server's replies wait for the log."""
        self._server = server

    def _take_settings(self) -> None:
        settings = self._engine.settings
        self.log.load_truncated = settings.aof_load_truncated
        self.log.corrupt_tail_max_size = settings.aof_load_corrupt_tail_max_size
        self.log.keep_history = settings.aof_disable_auto_gc
        self.log.feed.timestamps = settings.aof_timestamp_enabled

    def setting_changed(self, name: str) -> None:
        """Act on CONFIG SET; SettingError where a setting cannot be had."""
        settings = self._engine.settings
        if name == "appendonly":
            self._turn(settings.appendonly)
        elif name == "appendfsync":
            self.log.set_fsync(settings.appendfsync)
        elif name == "aof-disable-auto-gc":
            self._take_settings()
            if not settings.aof_disable_auto_gc and not self.rewriting.in_progress:
                self._remove_history()
        else:
            self._take_settings()

    def _remove_history(self) -> None:
        try:
            self.log.files.remove_history()
        except OSError as error:
            say(f"History files cannot be removed: {error.strerror}", WARNING)

    # -- failures ------------------------------------------------------------------------------------

    def _failed(self, reason: str) -> None:
        self._refusals.set(LOG, reason)
        say(f"{reason}; writes are refused from now on", WARNING)

    def _recovered(self) -> None:
        # The folder may be another one than before.
        with contextlib.suppress(OSError, StoreError):
            self._claim.take(self.log.folder)
        self._refusals.set(LOG, None)
        say("AOF write error looks solved, Redis can write again.", WARNING)

    def _other_child(self) -> bool:
        return self._children.active is not None and not self._children.is_at(PURPOSE)

    # -- commands ------------------------------------------------------------------------------------

    def _turn(self, on: bool) -> None:
        if on and self.log.state == OFF:
            self._turn_on()
        elif not on and self.log.state != OFF:
            self._turn_off()

    def _turn_on(self) -> None:
        log, rewriting = self.log, self.rewriting
        rewriting.abort()  # its base would be without what is logged from now on
        try:
            if self._lost:
                raise OSError("the databases are not what was loaded")
            self._claim.take(log.folder)
            log.start_waiting(self._engine)
            if self._other_child() or self._in_transaction():
                rewriting.scheduled = True
                say("AOF was enabled while something else is going on. A rewrite is scheduled.", WARNING)
            else:
                rewriting.begin()
        except (OSError, StoreError, Corrupt) as error:
            say(f"The append-only file cannot be begun: {error}", WARNING)
            self._turn_off()
            raise SettingError("Unable to turn on AOF. Check server logs.") from error

    def _turn_off(self) -> None:
        self.rewriting.abort()
        self.rewriting.scheduled = False
        self._close()
        self._claim.release()
        self._refusals.set(LOG, None)
        if self._server is not None:
            # What waited for the log is as safe as it will be.
            self._server.call_soon(self._server.flush)

    def _in_transaction(self) -> bool:
        return any(session.in_exec for session in self._engine.sessions.values())

    def rewrite(self, later: bool = False) -> bool:
        """Begin a rewrite (bgrewriteaofCommand); False where that comes later, CommandError where it cannot be.

        later: not at this moment, as in the middle of a transaction.
        """
        rewriting = self.rewriting
        if rewriting.in_progress:
            raise CommandError("Background append only file rewriting already in progress")
        if self._lost:
            raise CommandError(str(self._engine.refusal))
        if later or self._other_child():
            rewriting.scheduled = True
            rewriting.failures = 0
            return False
        try:
            rewriting.begin()
        except (OSError, Corrupt) as error:
            say(f"The append-only file cannot be rewritten: {error}", WARNING)
            raise CommandError(
                "Can't execute an AOF background rewriting. Please check the server logs for more information."
            ) from error
        return True

    def reload(self) -> None:
        """Empty the databases and fill them from the files (debug.c: DEBUG LOADAOF)."""
        log, engine = self.log, self._engine
        self.rewriting.settle()
        if not log.files.manifest_path.exists():
            raise CommandError("there is no append-only file to load")
        log.write()
        if log.failure is not None:
            raise CommandError(f"the append-only file does not hold what is here: {log.failure}")
        for database in engine.databases:
            database.flush()
        try:
            replayed = log.reload(engine)
        except (OSError, StoreError, Corrupt) as error:
            self.lose(f"the append-only file cannot be loaded: {error}")
            raise CommandError(str(engine.refusal)) from error
        engine.dirty = 0
        say(_summary(replayed))

    def lose(self, reason: str) -> None:
        """The databases hold a part of something: refuse writes, and let nothing be added to the files or made anew."""
        self._lost = True
        self.rewriting.abort()
        self.rewriting.scheduled = False
        self._close()
        self._failed(reason)

    def begin_anew(self) -> None:
        """Let the log lead to the data that are here now, which came from elsewhere. O(data)"""
        if self.log.state == WAIT_REWRITE:
            self.rewriting.abort()  # its base is of what was here before
        if self.log.state == ON:
            try:
                self.rewriting.rewrite_now()
            except (OSError, Corrupt) as error:
                self.lose(f"the append-only file cannot be rewritten: {error}")

    # -- from time to time, and the end ----------------------------------------------------------------

    def cron(self) -> None:
        """Move a rewrite on, begin what is due, try again what failed."""
        self.rewriting.tick(time.monotonic())

    def prepare_end(self, force: bool) -> None:
        """End a rewrite before the server ends (prepareForShutdown); CommandError where the end has to wait for it."""
        self.rewriting.settle()
        if self.rewriting.in_progress:
            if self.log.state == WAIT_REWRITE and self.log.failure is None:
                if not force:
                    say("Writing initial AOF, can't exit.", WARNING)
                    raise CommandError("Writing initial AOF, can't exit.")
                say("Writing initial AOF. Exit anyway.", WARNING)
            say("There is a child rewriting the AOF. Killing it!", WARNING)
            self.rewriting.abort()
        if self.log.state != OFF:
            say("Calling fsync() on the AOF file.")
            self.log.write()

    def close(self) -> None:
        """Write and sync the rest; nothing more is logged."""
        self.rewriting.abort()
        self._close()
        self._claim.release()

    def _close(self) -> None:
        self._engine.log = None
        try:
            self.log.close()
        except Misconf as error:
            say(f"Fail to fsync the AOF file: {error}", WARNING)

    def facts(self) -> dict[str, object]:
        """Return what INFO persistence tells of the log."""
        return self.rewriting.facts()


def _summary(replayed: LoadResult) -> str:
    """Return the line that says what was found."""
    dropped = f", {replayed.dropped} bytes of a torn end dropped" if replayed.dropped else ""
    return (f"DB loaded from append only file: {replayed.seconds:.3f} seconds, {replayed.commands} commands, "
            f"{replayed.keys} keys of a base, {replayed.bytes} bytes{dropped}")  # fmt: skip


__all__ = ["ServerLog"]
