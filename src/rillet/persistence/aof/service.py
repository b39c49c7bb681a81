"""The owner of an engine's log: opens and loads it, turns it on and off, rewrites it, reports its failures.

A server and a durable store use the same service. They differ in what they pass to it:

                   server                                store
    writer         ForkedBaseWriter: forks               SpawnedBaseWriter: starts a process
    lock           a new DirectoryLock                   the lock of the store's directory
    say            writes to the server's log            absent: errors contain their reason, and the lines go to the
                                                         logger rillet.log
    on_failure     writes to the server's log            warns with RuntimeWarning

CONFIG SET appendonly yes starts a rewrite and collects commands until its base is installed (AOF_WAIT_REWRITE).
CONFIG SET appendonly no leaves the files unchanged. Only one child process works at a time: a rewrite that is requested
while another child works is scheduled. All methods require the engine's lock.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from rillet.errors import CommandError, Corrupt, Misconf, StoreBusy, StoreError
from rillet.loggers import logger
from rillet.persistence.aof.base import write_base
from rillet.persistence.aof.failures import LogTakenOver
from rillet.persistence.aof.loader import LoadResult, load_snapshot
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.persistence.aof.rewrite import Rewriting
from rillet.persistence.aof.rewrite_format import BaseWriter
from rillet.persistence.aof.states import OFF, ON, WAIT_REWRITE
from rillet.persistence.directory_lock import DirectoryLock
from rillet.persistence.rdb.snapshots import Say
from rillet.persistence.write_gate import LOG, WriteGate
from rillet.real_time import monotonic
from rillet.runtime.engine import Engine
from rillet.runtime.settings.setting_types import SettingError
from rillet.scripting.functions import forget_libraries

LOGGER = logger("log")


class AofService:
    """The append-only log of one engine, and the operations that commands request.

    busy: returns whether another child works, so that no rewrite may start. on_closed: called when CONFIG SET turns the
    log off, because replies may still wait for a sync of the log.
    """

    def __init__(self, engine: Engine, folder: Path, name: str, writer: BaseWriter, *, lock: DirectoryLock,
                 gate: WriteGate, on_failure: Callable[[str], None], from_memory: BaseWriter | None = None,
                 busy: Callable[[], bool] = lambda: False, say: Say | None = None) -> None:  # fmt: skip
        self._engine = engine
        self._lock = lock
        self._gate = gate
        self._on_failure = on_failure
        self._busy = busy
        self._explains = say is None  # without a server's log, each error contains its reason
        self._say: Say = say or self._log_line
        self.on_closed: Callable[[], None] = lambda: None
        # Whether a failed load left databases that differ from the files; a rewrite would make the loss permanent.
        self._lost = False
        settings = engine.settings
        self.log = AppendOnlyLog(folder, name=name, fsync=settings.appendfsync, on_failure=self._failed,
                                 on_recovery=self._recovered)  # fmt: skip
        self.log.checksums = settings.aof_checksums
        self.rewriting = Rewriting(self.log, engine, writer, from_memory=from_memory, busy=busy, say=self._say,
                                   claim=self._claim)  # fmt: skip
        self._take_settings()

    # -- opening and closing -------------------------------------------------------------------------

    def open(self, progress: Callable[[int, int], None] | None = None, *,
             begin_with_base: bool = False, adopt: Path | None = None) -> LoadResult:  # fmt: skip
        """Replay the files, and log the engine's changes from now on; StoreError or LogCorrupt if that fails.

        begin_with_base: a log without files begins with a base, as redis-server's does. adopt: an RDB file whose data
        a log without files begins with, if the file exists; it is not changed.
        """
        log, engine = self.log, self._engine
        try:
            self._lock.acquire(log.folder)
            result = log.load(engine, progress)
            if adopt is not None and not log.manifest.loaded and log.disk.exists(adopt):
                result, begin_with_base = load_snapshot(engine, adopt, progress, disk=log.disk), True
            log.start(engine, (lambda path: write_base(path, engine, log.disk)) if begin_with_base else None)
        except OSError as error:
            raise StoreError(f"{error.filename or log.folder} cannot be opened: {error.strerror}") from error
        return result

    def close(self) -> None:
        """Write and sync the buffered commands, and stop logging; Misconf if that fails."""
        self.rewriting.abort()
        self._engine.log = None
        try:
            self.log.close()
        finally:
            self._lock.release()

    def _stop(self) -> None:
        self.rewriting.abort()
        self.rewriting.scheduled = False
        self._engine.log = None
        try:
            self.log.close()
        except Misconf as error:
            self._say(f"Fail to fsync the AOF file: {error}", warning=True)

    def prepare_shutdown(self, force: bool) -> None:
        """Stop a rewrite and write the log (prepareForShutdown); CommandError if the log's first base is incomplete."""
        self.rewriting.settle()
        if self.rewriting.in_progress:
            if self.log.state == WAIT_REWRITE and self.log.failure is None:
                if not force:
                    self._say("Writing initial AOF, can't exit.", warning=True)
                    raise CommandError("Writing initial AOF, can't exit.")
                self._say("Writing initial AOF. Exit anyway.", warning=True)
            self._say("There is a child rewriting the AOF. Killing it!", warning=True)
            self.rewriting.abort()
        if self.log.state != OFF:
            self._say("Calling fsync() on the AOF file.")
            self.log.write()

    # -- failures ------------------------------------------------------------------------------------

    def _failed(self, reason: str) -> None:
        self._gate.set(LOG, reason)
        self._on_failure(f"{reason}; writes are refused from now on")

    def _recovered(self) -> None:
        # The folder may have been removed and created anew, which needs a new lock.
        with contextlib.suppress(OSError, StoreError):
            self._lock.acquire(self.log.folder)
        self._gate.set(LOG, None)
        self._say("AOF write error looks solved, Redis can write again.", warning=True)

    def _claim(self) -> None:
        """Lock the folder that replaces a removed one; LogTakenOver if another process has a log there."""
        log, lock = self.log, self._lock
        if not log.removed or lock.holds(log.folder):
            return
        self._reject_other_log()
        try:
            lock.acquire(log.folder)
            self._reject_other_log()  # it may have been written since the first check
        except StoreBusy as error:
            raise LogTakenOver(str(error)) from error
        except OSError:
            lock.release()
            raise

    def _reject_other_log(self) -> None:
        if self.log.files.manifest_path.exists():
            raise LogTakenOver(f"{self.log.folder} was removed, and another process has begun a log there")

    def lose(self, reason: str) -> None:
        """Reject writes and rewrites from now on, because a failed load left only a part of the data in memory."""
        self._lost = True
        self._stop()
        self._failed(reason)

    # -- settings ------------------------------------------------------------------------------------

    def _take_settings(self) -> None:
        settings = self._engine.settings
        self.log.load_truncated = settings.aof_load_truncated
        self.log.corrupt_tail_max_size = settings.aof_load_corrupt_tail_max_size
        self.log.keep_history = settings.aof_disable_auto_gc
        self.log.feed.timestamps = settings.aof_timestamp_enabled

    def setting_changed(self, name: str) -> None:
        """Apply a setting of the log that CONFIG SET changed; SettingError if that is impossible."""
        settings = self._engine.settings
        if name == "appendonly":
            self._turn(settings.appendonly)
        elif name == "appendfsync":
            self.log.set_fsync(settings.appendfsync)
        else:
            self._take_settings()
            self.rewriting.settle()
            if name == "aof-disable-auto-gc" and not settings.aof_disable_auto_gc and not self.rewriting.in_progress:
                try:
                    self.log.files.remove_history()
                except OSError as error:
                    self._say(f"History files cannot be removed: {error.strerror}", warning=True)

    def _turn(self, on: bool) -> None:
        if on and self.log.state == OFF:
            self._turn_on()
        elif not on and self.log.state != OFF:
            self._turn_off()

    def _turn_on(self) -> None:
        log, rewriting = self.log, self.rewriting
        rewriting.abort()  # a running rewrite's base lacks the commands executed since its start
        try:
            if self._lost:
                raise OSError("the databases differ from the files that were loaded")
            self._lock.acquire(log.folder)
            log.start_waiting(self._engine)
            if self._busy() or any(session.in_exec for session in self._engine.sessions.values()):
                rewriting.scheduled = True
                self._say("AOF was enabled while something else is going on. A rewrite is scheduled.", warning=True)
            else:
                rewriting.begin()
        except (OSError, StoreError, Corrupt) as error:
            self._say(f"The append-only file cannot be started: {error}", warning=True)
            self._turn_off()
            raise SettingError("Unable to turn on AOF. Check server logs.") from error

    def _turn_off(self) -> None:
        self._stop()
        self._lock.release()
        self._gate.set(LOG, None)
        self.on_closed()

    # -- a replica that loads its master's data ------------------------------------------------------

    def suspend(self) -> None:
        """Stop logging, because the data is about to be replaced; the setting stays."""
        if self.log.state != OFF:
            self._turn_off()

    def resume(self, base: Path | None = None) -> None:
        """Begin the log anew with the current data; SettingError if that is impossible.

        base: an RDB file with this data, which becomes the base; without it, a rewrite begins.
        """
        if self._engine.settings.appendonly and self.log.state == OFF and not (base and self._adopt(base)):
            self._turn_on()

    def _adopt(self, base: Path) -> bool:
        """Make an RDB file the base of the log; return whether that succeeded (aof.c: restartAOFWithSyncRdb)."""
        log = self.log
        try:
            if self._lost:
                return False
            self._lock.acquire(log.folder)
            log.start_waiting(self._engine)
            self.rewriting.adopt(base)
        except (OSError, StoreError, Corrupt) as error:
            self._say(f"{base} cannot become the base of the append-only file: {error}", warning=True)
            self._turn_off()
            return False
        assert log.manifest.base is not None
        self._say(f"Reused RDB file from primary sync as AOF base file: {log.manifest.base.name}")
        return True

    # -- commands ------------------------------------------------------------------------------------

    def rewrite(self, later: bool = False) -> bool:
        """Start a rewrite, or schedule it and return False (bgrewriteaofCommand); CommandError if it cannot start.

        later: only schedule the rewrite, for example inside a transaction.
        """
        rewriting = self.rewriting
        if rewriting.in_progress:
            raise CommandError("Background append only file rewriting already in progress")
        if self._lost:
            raise CommandError(str(self._gate.reason(LOG)))
        if later or self._busy():
            rewriting.scheduled = True
            rewriting.failures = 0
            return False
        try:
            rewriting.begin()
        except (OSError, Corrupt) as error:
            self._say(f"The append-only file cannot be rewritten: {error}", warning=True)
            reason = f": {error}" if self._explains else ". Please check the server logs for more information."
            raise CommandError(f"Can't execute an AOF background rewriting{reason}") from error
        return True

    def reload(self) -> LoadResult:
        """Empty the databases and load the files (debug.c: DEBUG LOADAOF); CommandError."""
        log, engine = self.log, self._engine
        self.rewriting.settle()
        if not log.files.manifest_path.exists():
            raise CommandError("there is no append-only file to load")
        log.write()
        if log.failure is not None:
            raise CommandError(f"the append-only file lacks recent writes: {log.failure}")
        for database in engine.databases:
            database.flush()
        forget_libraries(engine)
        try:
            result = log.reload(engine)
        except (OSError, StoreError, Corrupt) as error:
            self.lose(f"the append-only file cannot be loaded: {error}")
            raise CommandError(str(self._gate.reason(LOG))) from error
        engine.dirty = 0
        return result

    def begin_anew(self) -> None:
        """Rewrite the log now, from memory, because its files do not contain the loaded data. O(data)"""
        if self.log.state == WAIT_REWRITE:
            self.rewriting.abort()  # a running rewrite would write the previous data
        if self.log.state == ON:
            try:
                self.rewriting.rewrite_now()
            except (OSError, Corrupt) as error:
                self.lose(f"the append-only file cannot be rewritten: {error}")

    def cron(self) -> None:
        """Advance the current rewrite, start one that is due, and retry failed writes of the log."""
        self.rewriting.tick(monotonic())

    def info(self) -> dict[str, object]:
        """Return the log's fields of INFO persistence."""
        return self.rewriting.info()

    def _log_line(self, text: str, *, warning: bool = False) -> None:
        """Log a line: the process of a store has no server's log."""
        LOGGER.log(logging.WARNING if warning else logging.INFO, "%s: %s", self.log.folder, text)
