"""The append-only log: every command that changed something, as RESP, in order (Redis: aof.c).

    *2\\r\\n$6\\r\\nSELECT\\r\\n$1\\r\\n0\\r\\n   the database of what follows, when it changes
    *5\\r\\n$4\\r\\nXADD\\r\\n...               one command; a transaction is MULTI ... EXEC
    #TS:1700000000\\r\\n                    a time that redis-server may note

`append` takes commands; `flush`, called before replies leave, writes them in one call and then does
what `appendfsync` says:

    always     fdatasync before the reply: what was acknowledged is on disk
    everysec   a thread syncs once a second: a power loss costs at most that second
    no         the operating system decides

A write or sync that fails is reported to `on_failure`, and the log takes nothing more: half a command is cut off,
so the file ends where the last whole flush ended. After a failed fsync nobody knows what the disk holds, and
a second fsync may succeed without having written it, so nothing is tried again: writes are refused until the
log is opened anew and what is really there has been read (docs/design/0006). Reading goes on.

Replay (rillet.persistence.replay) is the other direction.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

from rillet.engine import Engine
from rillet.errors import LogCorrupt, Misconf
from rillet.persistence.manifest import LogFile, read_manifest, sync_folder, write_manifest
from rillet.persistence.replay import Replayed, TornLog, replay
from rillet.protocol.feed import Feed


class AppendOnlyLog:
    """The log of one engine, in a folder of Redis 7's layout; an engine's `log`."""

    def __init__(self, folder: Path, *, name: str = "appendonly.aof", fsync: str = "everysec",
                 on_failure: Callable[[str], None] | None = None) -> None:
        self.folder = folder
        self.name = name
        self.fsync = fsync
        self.on_failure = on_failure
        self.failure: str | None = None
        # How many flushes have dropped commands: who waits for a flush may find that another's call made it.
        self.losses = 0
        self.size = 0
        self.synced = 0
        # What is to be written: the engine feeds it, a flush takes it.
        self.feed = Feed()
        self._file = -1
        self._wake = threading.Event()
        self._syncer: threading.Thread | None = None

    # -- opening -------------------------------------------------------------------------------------

    @property
    def manifest(self) -> Path:
        """The path of the manifest."""
        return self.folder / f"{self.name}.manifest"

    def open(self, engine: Engine, progress: Callable[[int, int], None] | None = None) -> Replayed:
        """Replay what is there into the engine, then take its changes; progress(bytes done, bytes in all)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files = self._files()
        replayed = replay(engine, [self.folder / file.name for file in files], progress)
        self.start(engine)
        return replayed

    def start(self, engine: Engine) -> None:
        """Take the engine's changes at the end of the last file, whose data the engine holds already."""
        current = self.folder / self._files()[-1].name
        self._file = os.open(current, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.size = self.synced = os.fstat(self._file).st_size
        self.feed.forget_db()
        self.set_fsync(self.fsync)
        engine.log = self

    def _files(self) -> list[LogFile]:
        """Return the files to be read, in order; the last one is the one to be written."""
        if not self.manifest.exists():
            return self._begin([], 1)
        files = [file for file in read_manifest(self.manifest) if file.type != "h"]
        # The base comes first, whatever the order of the lines (aof.c: aofLoadManifestFromDisk sorts them).
        files.sort(key=lambda file: (file.type == "i", file.seq))
        for file in files:
            if not (self.folder / file.name).exists():
                raise LogCorrupt(str(self.manifest), 0, f"the file {file.name} is missing")
        if not files or files[-1].type != "i":
            return self._begin(files, 1)
        return files

    def _begin(self, files: list[LogFile], seq: int) -> list[LogFile]:
        """Add an empty incremental file to the manifest."""
        first = LogFile(f"{self.name}.{seq}.incr.aof", seq, "i")
        if not files:
            for found in [*self.folder.glob("*.aof"), *self.folder.glob("*.rdb")]:
                if found.stat().st_size:
                    raise LogCorrupt(str(self.manifest), 0, f"the manifest is missing, and {found.name} is there")
        with open(self.folder / first.name, "ab") as out:
            os.fsync(out.fileno())
        write_manifest(self.manifest, [*files, first])
        sync_folder(self.folder.parent)
        return [*files, first]

    # -- writing -------------------------------------------------------------------------------------

    def append(self, db: int, argv: list[bytes]) -> None:
        """Take one command that changed database db (feedAppendOnlyFile). O(bytes)"""
        self.feed.select(db)
        self.feed.command(argv)

    def flush(self) -> None:
        """Write what was appended, sync it under `always`; Misconf where it cannot be kept (flushAppendOnlyFile)."""
        if not self.feed.used:
            return
        data = self.feed.take()
        if self.failure is None:
            self._write(data)
            if self.fsync == "always" and self.failure is None:
                self._sync()
        if self.failure is not None:
            self.losses += 1
            raise Misconf(self.failure)

    def _write(self, data: bytes) -> None:
        start = self.size
        try:
            written = os.write(self._file, data)
            while written < len(data):
                written += os.write(self._file, memoryview(data)[written:])
        except OSError as error:
            self._cut(start)
            self._fail(error)
        else:
            self.size = start + written

    def _cut(self, size: int) -> None:
        """Take half a command off the end; if even that fails, the next opening drops it as torn."""
        try:
            os.ftruncate(self._file, size)
        except OSError as error:
            warnings.warn(f"{self.folder}: the torn end of the log stays: {error}", TornLog, stacklevel=2)

    def _sync(self) -> None:
        size = self.size
        try:
            os.fdatasync(self._file)
        except OSError as error:
            self._fail(error)
        else:
            self.synced = size

    def _fail(self, error: OSError) -> None:
        self.failure = f"Errors writing to the AOF file: {error.strerror}"
        if self.on_failure is not None:
            self.on_failure(self.failure)

    # -- syncing -------------------------------------------------------------------------------------

    def set_fsync(self, policy: str) -> None:
        """Change when the log is synced: always, everysec or no."""
        self.fsync = policy
        if policy == "everysec" and self._syncer is None:
            self._wake.clear()
            self._syncer = threading.Thread(target=self._sync_every_second, name="rillet-fsync", daemon=True)
            self._syncer.start()
        elif policy != "everysec":
            self._stop_syncer()

    def _sync_every_second(self) -> None:
        while not self._wake.wait(1.0):
            if self.synced != self.size and self.failure is None:
                self._sync()

    def _stop_syncer(self) -> None:
        if self._syncer is not None:
            self._wake.set()
            self._syncer.join()
            self._syncer = None

    def descriptors(self) -> list[int]:
        """Return the numbers of the open files."""
        return [self._file] if self._file >= 0 else []

    def close(self) -> None:
        """Write and sync the rest, and let go of the file; a second call does nothing.

        Misconf where that fails and nobody was told before.
        """
        if self._file < 0:
            return
        self._stop_syncer()
        known = self.failure
        try:
            if known is None:
                self.flush()
                self._sync()
        finally:
            os.close(self._file)
            self._file = -1
        if self.failure != known:
            raise Misconf(str(self.failure))


__all__ = ["AppendOnlyLog", "Replayed", "TornLog"]
