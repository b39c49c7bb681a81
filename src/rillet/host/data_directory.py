"""The files that a server finds in its directory, and which of them it loads.

    the directory of a rillet store       the log, as if `appendonly yes` were given; `appendonly no` is an error
    a log, and `appendonly no`            the RDB file; the log is reported, and kept if a log is turned on later
    an RDB file without a log, and        nothing; the RDB file is reported, and kept under another name
    `appendonly yes`
    otherwise                             as redis-server does: the log with `appendonly yes`, else the RDB file

redis-server also ignores the log in the second case and the RDB file in the third one, but it does not report that. Its
next save or rewrite then destroys the files that it did not load (server.c: loadDataFromDisk).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Container
from pathlib import Path

from rillet.errors import StoreBusy, StoreError
from rillet.host.directory import LOG_FOLDER, MARKER, Directory
from rillet.persistence.checking import NOT_LOADED
from rillet.persistence.directory_lock import DirectoryLock
from rillet.persistence.rdb.snapshots import Say
from rillet.runtime.settings.setting_types import SettingError
from rillet.runtime.settings.settings import Settings


def serve_store(settings: Settings, given: Container[str], folder: Path) -> bool:
    """Return whether the folder is the directory of a store, and configure the server for it; StoreError if it cannot.

    given: the names of the settings that were given; the others get the values of the store.
    """
    if not (folder / MARKER).is_file():
        return False
    if "appendonly" in given and not settings.appendonly:
        raise StoreError(
            f"{folder} is the directory of a rillet store, whose data is in its append-only log, but appendonly is no: "
            "remove that setting, or choose another directory (--dir)"
        )
    names = Directory(folder, settings.dbfilename).redis_logs()
    if len(names) > 1 and "appendfilename" not in given:
        raise StoreError(f"{folder / LOG_FOLDER} holds several logs: {', '.join(names)}; leave only one")
    wanted = {"appenddirname": LOG_FOLDER, "appendfilename": names[0] if names else settings.appendfilename}
    for name, value in wanted.items():
        configured = getattr(settings, name)
        if name in given and configured != value and configured not in names:
            log = "/".join(wanted.values())
            raise StoreError(
                f"the log of the store {folder} is {log}, but {name} is {configured}: remove that setting, or choose "
                "another directory (--dir)"
            )
        if name not in given:
            settings.set_text(name, value)
    settings.appendonly = True
    if "aof-checksums" not in given:
        settings.aof_checksums = True  # the default of a store
    if "log-entries-read" not in given:
        settings.log_entries_read = True
    return True


class UnloadedFiles:
    """The log or the RDB file that a server on a directory of redis-server does not load."""

    def __init__(self, settings: Settings, folder: Path, say: Say) -> None:
        self._settings = settings
        self._say = say
        self._folder = folder
        self._unloaded_log = False

    def report(self) -> None:
        """Write a warning to the server's log about files that will not be loaded, and keep the RDB file."""
        settings = self._settings
        logs = self._folder / settings.appenddirname
        single, rdb = self._folder / settings.appendfilename, self._folder / str(settings.dbfilename)
        manifest = (logs / f"{settings.appendfilename}.manifest").exists()
        if not settings.appendonly:
            self._unloaded_log = manifest
            if manifest or single.is_file():
                log = logs if manifest else single
                self._say(f"{log} holds an append-only log, but appendonly is no: it is not loaded. To load it, stop "
                          "the server without saving (SHUTDOWN NOSAVE), and start it with --appendonly yes",
                          warning=True)  # fmt: skip
        elif settings.dbfilename and rdb.is_file() and not manifest and not single.exists():
            kept = _keep(rdb)
            self._say(f"{rdb}: appendonly is yes and there is no log: the RDB file is not loaded. It is kept as "
                      f"{kept.name}. To load it, start with --appendonly no, then turn the log on (CONFIG SET "
                      "appendonly yes)", warning=True)  # fmt: skip

    def set_log_aside(self) -> None:
        """Rename the folder of a log that was not loaded, before a new log replaces it; SettingError if that fails."""
        logs = self._folder / self._settings.appenddirname
        if not self._unloaded_log or not logs.is_dir():
            return
        lock = DirectoryLock()
        try:
            lock.acquire(logs)
            aside = _free_name(logs)
            logs.rename(aside)
        except StoreBusy:
            return  # another process writes the log; the service that takes the folder rejects the setting
        except OSError as error:
            self._say(f"{logs} holds a log that was not loaded, and cannot be renamed: {error.strerror}", warning=True)
            raise SettingError("Unable to turn on AOF. Check server logs.") from error
        finally:
            lock.release()
        self._unloaded_log = False
        self._say(f"The append-only log that was not loaded is now in {aside}", warning=True)


def _keep(path: Path) -> Path:
    """Give a file a second name, so that replacing the first name does not destroy it; OSError."""
    kept = path.with_name(path.name + NOT_LOADED)
    if kept.exists() and kept.samefile(path):
        return kept
    kept = _free_name(path)
    try:
        os.link(path, kept)
    except OSError:  # a file system without hard links
        shutil.copy2(path, kept)
    return kept


def _free_name(path: Path) -> Path:
    """Return the path with `.not-loaded` and, if that exists, a number."""
    names = (f"{path.name}{NOT_LOADED}{f'-{number}' if number > 1 else ''}" for number in range(1, 1 << 20))
    return next(path.with_name(name) for name in names if not path.with_name(name).exists())
