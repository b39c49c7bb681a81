"""Rewriting a log: a base of the data replaces the files that led to it, while the log is written (aof.c).

    IDLE ──begin──► SYNCING ──► WRITING ──────────► FINISHING ──► IDLE
                    the file    rotate; a writer    a thread commits the new manifest and removes the old
                    is synced   writes the base     files, because that waits for the disk

    files of the log    base 1   incr 1                           before
                        base 1   incr 1   incr 2                  after the rotation; commands go to incr 2
                        base 1   incr 1   incr 2   temp base      the writer works
                                          incr 2   base 2         the new manifest; base 1 and incr 1 are history
                                          incr 2   base 2         history is removed

New commands go only to the new file, so a rewrite needs no memory for them. At every moment the manifest on the disk
names files that lead to the same data, so a crash does no harm at any point. If a step fails, the old files and the new
one remain the log, and the next rewrite covers all of them.

A log that waits for its base (CONFIG SET appendonly yes, or a log whose files were given up) has no file to rotate. Its
commands are collected in a temporary file, and the base and that file become the log together.

Large files are synced before the rotation by the syncing thread, so that the rotation, which blocks all clients, has
little left to sync.

`tick`, called several times a second, advances a rewrite and starts automatic rewrites: when the log has grown by
auto-aof-rewrite-percentage since the last rewrite and exceeds auto-aof-rewrite-min-size, when a rewrite was scheduled,
and when the files were given up. After three failures in a row automatic rewrites wait 1, 2, 4 ... 60 minutes (aof.c:
aofRewriteLimited). If the files were given up, the delays are seconds, because all writes are rejected meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from rillet.errors import Corrupt
from rillet.loggers import logger
from rillet.persistence.aof.base import part_of
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.persistence.aof.rewrite_format import AdoptedBase, BaseWriter, InlineBaseWriter
from rillet.persistence.aof.states import OFF, ON, WAIT_REWRITE
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings

LOGGER = logger("log")
IDLE, SYNCING, WRITING, FINISHING = range(4)
# The number of bytes that a rotation may sync while all clients wait (some milliseconds). With more, a thread syncs
# first.
_LITTLE = 1 << 23
_ROUNDS = 4
_FREE_FAILURES = 3
_LONGEST_WAIT = 60
_RETRY_SECONDS = 1.0

Say = Callable[[str], None]


class Rewriting:
    """The rewrites of one log, one at a time; every method requires the engine's lock.

    writer: writes the base. from_memory: writes the base if the log's files cannot be trusted. busy: returns whether
    another child works, so that no rewrite may start. claim: called before a log whose files were removed continues in
    a new folder; OSError if another process has a log there.
    """

    def __init__(self, log: AppendOnlyLog, engine: Engine, writer: BaseWriter, *, from_memory: BaseWriter | None = None,
                 busy: Callable[[], bool] = lambda: False, say: Say = lambda text: None,
                 claim: Callable[[], None] = lambda: None) -> None:  # fmt: skip
        self.log = log
        self.engine = engine
        self.scheduled = False
        self.succeeded = True
        self.rewrites = 0
        self.failures = 0  # consecutive failed rewrites
        self.last_seconds = -1
        self._writer = writer
        self._from_memory = from_memory or writer
        self._at_work: BaseWriter = writer
        self._busy = busy
        self._say = say
        self._claim = claim
        self._phase = IDLE
        self._rounds = 0
        self._now = 0.0
        self._started = 0.0
        # The earliest time of the next automatic rewrite, set after repeated failures, and the delay in minutes.
        self._not_before = float("-inf")
        self._limit: float | None = None
        self._minutes = 0
        # A random name: the child of a killed server may still be writing its draft.
        self._draft = f"temp-{log.name}.{os.urandom(4).hex()}.base"
        self._job: threading.Thread | None = None
        self._error = ""
        self._turns_on = False  # whether the log was off: it is on when its first base is installed

    @property
    def in_progress(self) -> bool:
        """Whether a rewrite is in progress. The first one ends when the log is on, because WAITAOF replies then."""
        return self._phase != IDLE and not self._is_on

    @property
    def _is_on(self) -> bool:
        return self._turns_on and self._phase == FINISHING and self.log.state == ON

    @property
    def _settings(self) -> Settings:
        return self.engine.settings

    # -- start of a rewrite --------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a rewrite (rewriteAppendOnlyFileBackground); after OSError or Corrupt the log is unchanged."""
        if self._is_on:
            self.settle()
        assert self._phase == IDLE
        log = self.log
        log.write()
        if log.state == OFF:
            log.files.manifest = log.files.find()
        self._rounds = 0
        self._started = self._now
        if log.state == ON and log.threads and log.failure is None and log.size - log.synced > _LITTLE:
            self._phase = SYNCING
            log.sync_soon()
        else:
            self._go()

    def _go(self) -> None:
        """Begin a new incremental file, and start to write the base."""
        log = self.log
        waiting = self._turns_on = log.state == WAIT_REWRITE
        self._at_work = self._from_memory if waiting or log.state == OFF else self._writer
        try:
            if waiting:
                self._claim()
                log.rotation.open_temp_incr()
            elif log.state == ON:
                log.rotation.rotate()
            else:
                log.disk.make_folder(log.folder)
            self.rewrites += 1
            kept = 1 if log.state == ON else 0
            files = log.manifest.loaded
            sources = [log.folder / file.name for file in files[: len(files) - kept]]
            self._at_work.start(log.folder / self._draft, sources, self._written)
        except OSError as error:
            log.rotation.drop_temp_incr()
            self._phase = IDLE
            self.succeeded = False
            self._not_before = self._now + _RETRY_SECONDS
            self._say(f"Can't rewrite append only file in background: {error.strerror or error}")
            raise
        self.scheduled = False
        self._phase = WRITING
        LOGGER.info("%s: Background AOF rewrite started", log.folder)

    # -- end of a rewrite ----------------------------------------------------------------------------

    def _written(self, error: str, kind: str) -> None:
        """Handle the result of writing the base: an error, or the base's format."""
        if error:
            self._failed(f"Background AOF rewrite terminated with error: {error}")
        else:
            self._say("Background AOF rewrite terminated with success")
            self._phase = FINISHING
            if self.log.threads:
                self._job = threading.Thread(target=self._finish, args=(kind == "rdb",), name="rillet-rewrite")
                self._job.start()
            else:
                self._finish(kind == "rdb")

    def _finish(self, as_rdb: bool) -> None:
        """Install the new base; runs in a thread, without the engine's lock."""
        self._error = ""
        try:
            self.log.rotation.install_base(self._draft, as_rdb)
        except OSError as error:
            self._error = error.strerror or str(error)
            return
        if not self.log.keep_history:
            with contextlib.suppress(OSError):  # after an error the next rewrite removes these files
                self.log.files.remove_history()

    def _finished(self) -> None:
        if self._job is not None:
            self._job.join()
            self._job = None
        if self._error:
            self._failed(f"Background AOF rewrite could not be installed: {self._error}")
            return
        self.log.base_installed()
        self.failures = 0
        self.succeeded = True
        self._say("Background AOF rewrite finished successfully")
        self._over()

    def _failed(self, text: str, *, counts: bool = True) -> None:
        self._say(text)
        if counts:
            self.succeeded = False
            self.failures += 1
        log = self.log
        for path in (log.folder / self._draft, part_of(log.folder / self._draft)):
            with contextlib.suppress(OSError):
                log.disk.remove(path)
        if log.state == WAIT_REWRITE:
            self._say(f"Removing the temp incr aof file {log.files.temp_incr} in the background")
            log.rotation.drop_temp_incr()
            self.scheduled = True
            if log.needs_base:
                self._not_before = self._now + min(2**self.failures, _LONGEST_WAIT)
        self._over()

    def _over(self) -> None:
        self.last_seconds = int(self._now - self._started)
        self._phase = IDLE

    def abort(self) -> None:
        """Abort the current rewrite, if any; the log keeps its files (killAppendOnlyChild)."""
        if self._phase == FINISHING:
            self._finished()
        elif self._phase != IDLE:
            self._say("Killing running AOF rewrite child")
            self._at_work.stop()
            self._failed("Background AOF rewrite was stopped", counts=False)

    def settle(self) -> None:
        """Wait until no thread changes the manifest, so that the files can be read."""
        if self._phase == FINISHING:
            self._finished()

    def rewrite_now(self) -> None:
        """Rewrite the log now, in the calling thread; OSError if that fails. O(data)"""
        self._rewrite_with(InlineBaseWriter(self.engine, self.log.disk))

    def adopt(self, file: Path) -> None:
        """Make an RDB file with the present data the base of the log; OSError if that fails."""
        self._rewrite_with(AdoptedBase(self.engine, self.log.disk, file))

    def _rewrite_with(self, writer: InlineBaseWriter) -> None:
        self.abort()
        before, self._writer, self._from_memory = (self._writer, self._from_memory), writer, writer
        try:
            self.begin()
            if self._phase == SYNCING:
                self._go()
            writer.poll()
            self.settle()
        finally:
            self._writer, self._from_memory = before
        if not self.succeeded:
            raise OSError(self._error)

    # -- periodic work -------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Advance the current rewrite and start one that is due; `now` in seconds of a monotonic clock."""
        self._now = now
        log = self.log
        log.tick(now)
        log.syncer.paused = self._settings.no_appendfsync_on_rewrite and (self._phase == WRITING or self._busy())
        if self._phase == SYNCING:
            self._sync_on()
        elif self._phase == WRITING:
            if log.state != OFF and not log.collecting:
                self._at_work.stop()
                self._failed("Background AOF rewrite was aborted: new commands cannot be written to the log")
            else:
                self._at_work.poll()
        if self._phase == FINISHING and (self._job is None or not self._job.is_alive()):
            self._finished()
        if self._phase == IDLE and not self._busy():
            self._begin_if_due()

    def _sync_on(self) -> None:
        """Begin a new incremental file once the thread has synced enough of the current file."""
        log = self.log
        if self._busy():  # a child of BGSAVE has started meanwhile: rewrite after its end
            self.scheduled = True
            self._over()
        elif log.failure is None and log.size - log.synced > _LITTLE and self._rounds < _ROUNDS:
            self._rounds += 1
            log.sync_soon()
        else:
            with contextlib.suppress(OSError):
                self._go()

    def _begin_if_due(self) -> None:
        log = self.log
        if self._now < self._not_before:
            return
        if log.needs_base or ((self.scheduled or self._has_grown()) and not self._limited()):
            with contextlib.suppress(OSError, Corrupt):
                self.begin()

    def _has_grown(self) -> bool:
        """Return whether the log has grown enough for an automatic rewrite (serverCron)."""
        log, settings = self.log, self._settings
        if log.state != ON or log.failure is not None or not settings.auto_aof_rewrite_percentage:
            return False
        if log.current_size <= settings.auto_aof_rewrite_min_size:
            return False
        growth = log.current_size * 100 // max(log.base_size, 1) - 100
        return bool(growth >= settings.auto_aof_rewrite_percentage)

    def _limited(self) -> bool:
        """Return whether the next rewrite must wait because of earlier failures (aofRewriteLimited)."""
        if self.failures < _FREE_FAILURES:
            self._minutes, self._limit = 0, None
        elif self._limit is None:
            self._minutes = min(2 * self._minutes or 1, _LONGEST_WAIT)
            self._limit = self._now + 60 * self._minutes
            self._say("Background AOF rewrite has repeatedly failed and triggered the limit, will retry in "
                      f"{self._minutes} minutes")  # fmt: skip
            return True
        elif self._now < self._limit:
            return True
        else:
            self._limit = None
        return False

    # -- INFO ----------------------------------------------------------------------------------------

    def info(self) -> dict[str, object]:
        """Return the log's fields of INFO persistence."""
        log = self.log
        return {
            "aof_enabled": int(log.state != OFF), "aof_rewrite_in_progress": int(self.in_progress),
            "aof_rewrite_scheduled": int(self.scheduled), "aof_last_rewrite_time_sec": self.last_seconds,
            "aof_current_rewrite_time_sec": int(self._now - self._started) if self.in_progress else -1,
            "aof_last_bgrewrite_status": "ok" if self.succeeded else "err", "aof_rewrites": self.rewrites,
            "aof_rewrites_consecutive_failures": self.failures,
            "aof_last_write_status": "ok" if log.failure is None else "err",
            "aof_last_cow_size": getattr(self._writer, "copied", 0),
            **(self._sizes() if log.state != OFF else {}),
        }  # fmt: skip

    def _sizes(self) -> dict[str, object]:
        log = self.log
        return {
            "aof_current_size": log.current_size, "aof_base_size": log.base_size,
            "aof_pending_rewrite": int(self.scheduled), "aof_buffer_length": log.unwritten,
            "aof_pending_bio_fsync": int(log.size > log.synced and log.syncer.fsync == "always"),
            "aof_delayed_fsync": 0,
        }  # fmt: skip
