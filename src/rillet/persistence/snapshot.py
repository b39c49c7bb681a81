"""The RDB file of one engine: SAVE and LASTSAVE, what is loaded at the start, DEBUG RELOAD (Redis: rdb.c).

    SAVE ──► rdb_writer ──► dump.rdb ──► rdb ──► the databases

The engine stands still while it writes or loads. An error leaves the old file; one while loading leaves what was loaded
so far, as in Redis.
"""

from __future__ import annotations

import time
from pathlib import Path

from rillet.engine import Engine
from rillet.errors import CommandError, Corrupt, StoreError
from rillet.persistence.rdb import Loaded, load_rdb
from rillet.persistence.rdb_writer import write_rdb


class Snapshots:
    """The RDB file that the settings name, in a folder."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.last_save = engine.clock.now_ms() // 1000
        self.status = "ok"
        self.seconds = -1
        self.saves = 0
        self.loaded = Loaded(0, 0, 0)
        # BGSAVE was answered, and the file is about to be written.
        self.pending = False

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.folder / str(self.engine.settings.dbfilename)

    def save(self) -> None:
        """Write the file anew (rdbSave); CommandError says why it could not be. O(bytes)"""
        began = time.monotonic()
        try:
            write_rdb(self.path, self.engine)
        except OSError as error:
            self.status = "err"
            raise CommandError(f"the RDB file cannot be written: {error.strerror or error}") from error
        finally:
            self.pending = False
            self.seconds = int(time.monotonic() - began)
        self.status = "ok"
        self.saves += 1
        self.last_save = self.engine.clock.now_ms() // 1000
        self.engine.dirty = 0

    def load(self, *, merge: bool = False) -> Loaded:
        """Put the file's keys into the databases; nothing where there is no file. OSError, StoreError or Corrupt."""
        if self.path.exists():
            self.engine.loading = True
            try:
                self.loaded = load_rdb(self.path, self.engine, drop_expired=True, merge=merge)
            finally:
                self.engine.loading = False
        return self.loaded

    def reload(self, save: bool, flush: bool, merge: bool) -> None:
        """Write the file, empty the databases, load it (debug.c: DEBUG RELOAD); each step may be left out."""
        if save:
            self.save()
        if flush:
            for database in self.engine.databases:
                database.flush()
        try:
            self.load(merge=merge)
        except (OSError, StoreError, Corrupt) as error:
            raise CommandError(f"Error trying to load the RDB dump: {error}") from error

    def facts(self) -> dict[str, object]:
        """Return what INFO persistence tells of it."""
        return {
            "rdb_bgsave_in_progress": int(self.pending), "rdb_last_save_time": self.last_save,
            "rdb_last_bgsave_status": self.status, "rdb_last_bgsave_time_sec": self.seconds,
            "rdb_current_bgsave_time_sec": 0 if self.pending else -1, "rdb_saves": self.saves,
            "rdb_last_load_keys_expired": self.loaded.expired, "rdb_last_load_keys_loaded": self.loaded.keys,
        }  # fmt: skip


__all__ = ["Snapshots"]
