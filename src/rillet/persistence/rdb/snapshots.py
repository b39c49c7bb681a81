"""The RDB file of one engine: SAVE, BGSAVE, save points, loading at the start, DEBUG RELOAD (Redis: rdb.c).

    SAVE      ──► rdb_writer ──────────────┐
    BGSAVE    ──► child ──► rdb_writer ────┼──► temp-<pid>.rdb ──► dump.rdb ──► rdb ──► the databases
    save points, a scheduled BGSAVE ──► start a BGSAVE

SAVE blocks all clients while it writes. BGSAVE forks a child (rillet.persistence.fork) that writes the data of this
moment while the parent continues. `cron`, called several times a second, starts the saves that are due: with
`save 60 1000`, when more than 60 seconds have passed since the last successful save and there were 1000 changes. A
failed save is retried after 5 seconds.

`engine.dirty` counts the changes. After a successful child the count at the fork is subtracted, because later changes
are not in its file. An error keeps the old file; an error while loading keeps the keys loaded so far, as in Redis.
While save points are set and the last BGSAVE failed, writes are rejected (stop-writes-on-bgsave-error).

Intervals use a monotonic clock; LASTSAVE returns the time of day.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rillet.errors import CommandError, Corrupt, StoreError
from rillet.persistence.fork import ChildOutcome, Children, ChildReport
from rillet.persistence.rdb.reader import Loaded, LoadOptions, load_rdb
from rillet.persistence.rdb.writer import write_rdb
from rillet.persistence.write_gate import SNAPSHOT, WriteGate
from rillet.real_time import monotonic
from rillet.runtime.engine import Engine
from rillet.scripting.functions import forget_libraries

if TYPE_CHECKING:
    from typing import Unpack

PURPOSE = "RDB"
# Seconds after which a BGSAVE that failed is tried again (server.h: CONFIG_BGSAVE_RETRY_DELAY).
RETRY_SECONDS = 5
_STOPPED = (
    "Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify "
    "the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting "
    "fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error."
)
_ACTIVE = "Background save already in progress"
_OTHER_CHILD = (
    "Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to schedule a BGSAVE "
    "whenever possible."
)


class Say(Protocol):
    """Writes a line to the server's log."""

    def __call__(self, text: str, *, warning: bool = False) -> None: ...


def _silent(text: str, *, warning: bool = False) -> None:
    """Ignore a line for the server's log."""


class Snapshots:
    """The RDB file that the settings name, in `folder` or in the folder of the settings.

    `children` and `refusals` (the write gate) are shared with the append-only log.
    """

    def __init__(self, engine: Engine, folder: Path | None = None, *, children: Children | None = None,
                 refusals: WriteGate | None = None, say: Say = _silent) -> None:  # fmt: skip
        self.engine = engine
        self.folder = folder
        self.children = children or Children()
        self.last_save = engine.clock.now_ms() // 1000
        self.status = "ok"
        self.error = ""
        self.seconds = -1
        self.saves = 0
        self.failures = 0  # consecutive failed BGSAVEs
        self.copied = 0
        self.loaded = Loaded(0, 0, 0)
        self.scheduled = False
        # Called with the result of the current BGSAVE.
        self._on_ended: Callable[[bool], None] | None = None
        self._refusals = refusals or WriteGate(engine)
        self._say = say
        self._saved_at = engine.clock.ticks()
        # The time of the last BGSAVE, and `dirty` at that time.
        self._tried_at = -RETRY_SECONDS * 10**9
        self._dirty_before = 0
        self._draft = Path()
        self._began = 0.0

    @property
    def path(self) -> Path:
        """The path of the RDB file."""
        settings = self.engine.settings
        return (self.folder or Path(settings.dir).absolute()) / str(settings.dbfilename)

    # -- SAVE ----------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the RDB file (saveCommand); CommandError if that fails. O(bytes)"""
        if self.saving:
            raise CommandError(_ACTIVE)
        self.saves += 1
        self.write()

    def write(self) -> None:
        """Write the RDB file, even while a child runs (rdbSave). O(bytes)"""
        path = self.path
        try:
            write_rdb(path, self.engine, draft=path.with_name(draft_name(os.getpid())))
        except OSError as error:
            reason = error.strerror or str(error)
            self._say(f"Write error saving DB on disk: {reason}", warning=True)
            raise CommandError(f"the RDB file cannot be written: {reason}") from error
        self._say("DB saved on disk")
        self.engine.dirty = 0
        self._succeeded()

    def _succeeded(self) -> None:
        self.last_save = self.engine.clock.now_ms() // 1000
        self._saved_at = self.engine.clock.ticks()
        self._set_status("ok")

    def _set_status(self, status: str) -> None:
        self.status = status
        self.refuse_or_not()

    def refuse_or_not(self) -> None:
        """Reject or accept writes, as the settings and the last BGSAVE require (writeCommandsDeniedByDiskError)."""
        settings = self.engine.settings
        refused = settings.stop_writes_on_bgsave_error and settings.save and self.status == "err"
        self._refusals.set(SNAPSHOT, _STOPPED if refused else None)

    # -- BGSAVE --------------------------------------------------------------------------------------

    def background(self, later: bool = False, schedule: bool = False) -> bool:
        """Start a child that writes the RDB file, or schedule that and return False (bgsaveCommand); CommandError.

        later: only schedule the save; schedule: if another child works, start the save after that child.
        """
        if self.saving:
            raise CommandError(_ACTIVE)
        if later or (schedule and self.busy):
            self.scheduled = True
            return False
        if self.busy:
            raise CommandError(_OTHER_CHILD)
        try:
            self._begin()
        except OSError as error:
            raise CommandError(f"Can't save in background: fork: {error.strerror or error}") from error
        return True

    def background_for(self, ended: Callable[[bool], None]) -> None:
        """Start a BGSAVE for replicas, and call `ended` with its success; OSError."""
        self._begin()
        self._on_ended = ended

    def _begin(self) -> None:
        """Start the child process that writes the RDB file (rdbSaveBackground); OSError."""
        path = self.path
        self.saves += 1
        self._dirty_before = self.engine.dirty
        self._tried_at = self.engine.clock.ticks()
        try:
            pid = self.start_child(path)
        except OSError as error:
            self._set_status("err")
            self._say(f"Can't save in background: fork: {error.strerror or error}", warning=True)
            raise
        self._began = monotonic()
        self._draft = path.with_name(draft_name(pid))
        self._say(f"Background saving started by pid {pid}")

    @property
    def saving(self) -> bool:
        """Whether a child is writing the RDB file."""
        return self.children.is_at(PURPOSE)

    @property
    def busy(self) -> bool:
        """Whether any child process works."""
        return self.children.active is not None

    def start_child(self, path: Path) -> int:
        """Start the process that writes the RDB file, and return the process ID; `ended` is called after its end."""
        engine = self.engine

        def job(report: ChildReport) -> int:
            return write_rdb(path, engine, draft=path.with_name(draft_name(os.getpid())), progress=report,
                             before_rename=report.insist)  # fmt: skip

        keys = sum(len(database) for database in engine.databases)
        return self.children.start(PURPOSE, job, self.ended, keys=keys).pid

    def poll(self) -> None:
        """Handle the end of the child, if it has ended."""
        self.children.poll()

    def kill_child(self) -> None:
        """Kill the process that writes the RDB file; `ended` will be called."""
        if self.children.active is not None and self.children.is_at(PURPOSE):
            self.children.active.kill()

    def stop_child(self) -> None:
        """Kill the process that writes the RDB file, and remove its partial file (killRDBChild)."""
        if self.children.is_at(PURPOSE):
            self.children.stop()

    def ended(self, outcome: ChildOutcome) -> None:
        """Handle the end of the child that wrote the RDB file (backgroundSaveDoneHandlerDisk)."""
        self._handle(outcome)
        waiting, self._on_ended = self._on_ended, None
        if waiting is not None:
            waiting(outcome.ok)

    def _handle(self, outcome: ChildOutcome) -> None:
        self.seconds = int(outcome.seconds)
        if outcome.ok:
            self.copied = outcome.copied
            self._say("DB saved on disk")
            self._say(f"Fork CoW for RDB: peak {outcome.copied >> 20} MB")
            self._say("Background saving terminated with success")
            self.failures = 0
            self.engine.dirty = max(self.engine.dirty - self._dirty_before, 0)
            self._succeeded()
            return
        began = self.engine.clock.ticks()
        self._draft.unlink(missing_ok=True)
        if outcome.signal:
            self.engine.latency.add(b"rdb-unlink-temp-file", self.engine.clock.ticks() - began)
        self.error = outcome.error
        if outcome.signal:
            self._say(f"Background saving terminated by signal {outcome.signal}", warning=True)
        else:
            self._say(f"Write error saving DB on disk: {outcome.error}", warning=True)
            self._say("Background saving error", warning=True)
        if not outcome.wanted:
            self.failures += 1
            self._set_status("err")

    def flushed(self) -> bool:
        """Handle FLUSHALL: stop a child, and with save points write the empty file (flushAllDataAndResetRDB).

        Return whether the empty file was written.
        """
        if not self.engine.settings.save:
            self.kill_child()
            return False
        # A child that still runs could replace the new RDB file.
        self.stop_child()
        try:
            self.write()
        except CommandError:
            return False  # the old file is unchanged; `write` has logged the reason
        return True

    # -- periodic work -------------------------------------------------------------------------------

    def cron(self) -> None:
        """Start the BGSAVE of a save point, unless a child runs (serverCron)."""
        if self.busy:
            return
        since = (self.engine.clock.ticks() - self._saved_at) // 10**9
        for seconds, changes in self.engine.settings.save:
            if self.engine.dirty >= changes and since > seconds and self._may_try():
                self._say(f"{changes} changes in {seconds} seconds. Saving...")
                self._try()
                return

    def cron_scheduled(self) -> None:
        """Start a scheduled BGSAVE; call this after everything else that may start a child (serverCron)."""
        if self.scheduled and not self.busy and self._may_try():
            self.scheduled = not self._try()

    def _may_try(self) -> bool:
        return self.status == "ok" or self.engine.clock.ticks() - self._tried_at > RETRY_SECONDS * 10**9

    def _try(self) -> bool:
        try:
            self._begin()
        except OSError:
            return False
        return True

    # -- loading -------------------------------------------------------------------------------------

    def load(self, on_progress: Callable[[int, int], None] | None = None, **options: Unpack[LoadOptions]) -> Loaded:
        """Load the RDB file into the databases, if it exists. OSError, StoreError or Corrupt."""
        if self.path.exists():
            self.engine.loading = True
            total = self.path.stat().st_size
            report = None if on_progress is None else lambda done: on_progress(done, total)
            options.setdefault("drop_expired", True)
            options["progress"] = report
            try:
                self.loaded = load_rdb(self.path, self.engine, **options)
            finally:
                self.engine.loading = False
        return self.loaded

    def reload(self, save: bool, flush: bool, merge: bool) -> None:
        """Optionally write the RDB file and empty the databases, then load the RDB file (debug.c: DEBUG RELOAD)."""
        if save:
            self.write()
        if flush:
            for database in self.engine.databases:
                database.flush()
            forget_libraries(self.engine)
        try:
            self.load(merge=merge)
        except (OSError, StoreError, Corrupt) as error:
            raise CommandError(f"Error trying to load the RDB dump: {error}") from error

    # -- INFO ----------------------------------------------------------------------------------------

    def info(self) -> dict[str, object]:
        """Return the fields of INFO persistence about the RDB file."""
        saving = self.saving
        newer = {"rdb_saves_consecutive_failures": self.failures} if self.engine.settings.compat.knows(84) else {}
        return {
            "rdb_changes_since_last_save": self.engine.dirty, "rdb_bgsave_in_progress": int(saving),
            "rdb_last_save_time": self.last_save, "rdb_last_bgsave_status": self.status,
            "rdb_last_bgsave_time_sec": self.seconds,
            "rdb_current_bgsave_time_sec": int(monotonic() - self._began) if saving else -1,
            "rdb_saves": self.saves, **newer, "rdb_last_cow_size": self.copied,
            "rdb_last_load_keys_expired": self.loaded.expired, "rdb_last_load_keys_loaded": self.loaded.keys,
        }  # fmt: skip


def draft_name(pid: int) -> str:
    """Return the name under which a process writes an RDB file until it is complete (rdbSave)."""
    return f"temp-{pid}.rdb"
