"""EngineFiles: the log and the RDB file of one engine, and the periodic work on them.

    ForkingFiles     a server: forked children write the RDB file and the bases of the log, one at a time, as in Redis.
                     The data is that of the log, or of the RDB file with `appendonly no`
    SpawningFiles    a store in a directory: new processes write them from the log's closed files, because the process
                     of an application may have threads and locks that are unsafe in a forked child. A new log begins
                     with the RDB file that the directory holds

Both share one write gate: writes are refused while the log or the last BGSAVE has failed. All methods require the
engine's lock.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rillet.errors import LogCorrupt, StoreError
from rillet.host.spawned_snapshots import SpawnedSnapshots
from rillet.keyspace.lazyfree import PAUSE
from rillet.persistence.aof.loader import LoadResult
from rillet.persistence.aof.rewrite_format import PURPOSE, ForkedBaseWriter, InlineBaseWriter, SpawnedBaseWriter
from rillet.persistence.aof.service import AofService
from rillet.persistence.directory_lock import DirectoryLock
from rillet.persistence.fork import Children
from rillet.persistence.rdb.snapshots import Say, Snapshots
from rillet.persistence.remedies import salvageable
from rillet.persistence.write_gate import WriteGate
from rillet.runtime.engine import Engine
from rillet.runtime.settings.setting_types import SettingError

if TYPE_CHECKING:
    from rillet.host.sealing import Sealing

_ALWAYS_LOGGED = "a store in a directory always has an append-only log"


class EngineFiles(ABC):
    """The log and the RDB file of one engine. is_store: the folder is the directory of a rillet store."""

    aof: AofService
    snapshots: Snapshots

    def __init__(self, engine: Engine, folder: Path, *, is_store: bool) -> None:
        self._engine = engine
        self._folder = folder
        self._is_store = is_store
        # The position in the replication stream that was stored with the log, None without a log.
        self._position: Mapping[bytes, bytes] | None = None
        self.sealing: Sealing | None = None
        self._next_seal: Callable[[], object] | None = None  # cancels its next step

    def open_log(self, progress: Callable[[int, int], None] | None = None, *, begin_with_base: bool = False,
                 adopt: Path | None = None) -> LoadResult:  # fmt: skip
        """Replay the log, and log the engine's changes from now on (AofService.open)."""
        with salvageable(self._folder):
            result = self.aof.open(progress, begin_with_base=begin_with_base, adopt=adopt)
        self._position = result.position
        self._seal()
        return result

    def _seal(self) -> None:
        """Keep the streams within `stream-memory`, or within the limit of the last opening."""
        engine, log, settings = self._engine, self.aof.log, self._engine.settings
        limit = settings.stream_memory or (0 if engine.segments is None else engine.segments.stored_limit())
        if not limit and settings.stream_compression == "zstd":
            raise StoreError("stream-compression needs stream-memory: it is for what lies on disk")
        if not limit:
            return
        from rillet.host.cold_reads import ColdReads
        from rillet.host.sealing import Sealing
        from rillet.persistence.segments.folder import SegmentFolder

        settings.stream_memory = limit
        if engine.segments is None:
            engine.segments = SegmentFolder(log.disk, log.folder)
        try:
            engine.segments.remove_parts()
            if settings.stream_compression == "auto":
                settings.stream_compression = engine.segments.stored_compression()
            engine.segments.store_settings(limit, settings.stream_compression)
        except OSError as error:
            raise StoreError(f"{engine.segments.path} cannot be written: {error.strerror}") from error
        self.sealing = Sealing(engine, engine.segments, limit, self.aof)
        engine.cold_reads = ColdReads(engine)
        self.sealing.shorten_log_at_opening()

    def facts(self) -> Mapping[bytes, bytes]:
        """Return the position in the replication stream that was stored with the loaded data."""
        return self.snapshots.loaded.facts if self._position is None else self._position

    def cron(self) -> None:
        """Poll the child processes, and start due saves and rewrites in the order of server.c: serverCron."""
        self.snapshots.poll()
        self.snapshots.cron()
        self.aof.cron()
        self.snapshots.cron_scheduled()
        self._stop_sealing()  # a step that was scheduled for timers that ended since never comes
        self._seal_on()

    def _stop_sealing(self) -> None:
        """Cancel the next step of the sealing, if one is scheduled."""
        if self._next_seal is not None:
            self._next_seal()
            self._next_seal = None

    def _seal_on(self) -> None:
        """Do a step of the sealing, and the next ones soon."""
        self._next_seal = None
        if self.sealing is not None and self.sealing.tick():
            self._next_seal = self._engine.services.call_later(PAUSE, self._seal_on)

    def setting_changed(self, name: str) -> None:
        """Apply a setting of the files that CONFIG SET changed; SettingError rejects it."""
        if name == "appendonly" and self._is_store and not self._engine.settings.appendonly:
            raise SettingError(_ALWAYS_LOGGED)
        if name == "dir":
            self._enter(self._engine.settings.dir)
        elif name in ("save", "stop-writes-on-bgsave-error"):
            self.snapshots.refuse_or_not()
        self.aof.setting_changed(name)

    @abstractmethod
    def _enter(self, folder: str) -> None:
        """Change the folder of the RDB file; SettingError rejects it."""

    def info(self) -> dict[str, object]:
        """Return the fields of INFO persistence."""
        return {**self.snapshots.info(), **self.aof.info()}

    def stream_info(self) -> dict[str, object]:
        """Return the fields of INFO rillet: where the entries of streams are, none without segments."""
        return {} if self.sealing is None else self.sealing.info()

    def close(self) -> None:
        """Stop the process that writes the RDB file, write and sync the log, and stop logging; Misconf."""
        self.snapshots.stop_child()
        self._stop_sealing()
        if self.sealing is not None:
            self.sealing.shorten_log_at_end()
            self.sealing.close()
            self._engine.cold_reads.close()
        self.aof.close()


class ForkingFiles(EngineFiles):
    """The files of a server. say: writes a line to its log."""

    def __init__(self, engine: Engine, folder: Path, say: Say, *, is_store: bool = False) -> None:
        super().__init__(engine, folder, is_store=is_store)
        if engine.settings.stream_memory and not engine.settings.appendonly:
            raise StoreError("stream-memory needs `appendonly yes`: segments belong to a log")
        self._say = say
        self._lock = DirectoryLock()
        self.children = children = Children()
        children.on_fork = lambda microseconds: engine.latency.add(b"fork", microseconds * 1000)
        settings, gate = engine.settings, WriteGate(engine)
        self._rdb_folder: str = settings.dir
        self.aof = AofService(
            engine, folder / settings.appenddirname, settings.appendfilename, ForkedBaseWriter(engine, children),
            lock=self._lock, gate=gate, on_failure=lambda text: say(text, warning=True), say=say,
            busy=lambda: children.active is not None and not children.is_at(PURPOSE),
        )  # fmt: skip
        self.snapshots = Snapshots(engine, children=children, refusals=gate, say=say)

    def open_rdb(self, progress: Callable[[int, int], None] | None,
                 on_expired: Callable[[int, list[bytes]], None]) -> None:  # fmt: skip
        """Load the RDB file, if it exists, and log the result; StoreError if the file cannot be read.

        on_expired: called with the deletions of keys that had expired (LoadOptions).
        """
        path = self.snapshots.path
        if not path.exists():
            return
        try:
            # The master of a replica sends its deletions.
            is_master = not self._engine.settings.replicaof
            loaded = self.snapshots.load(progress, drop_expired=is_master, on_expired=on_expired)
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from error
        except LogCorrupt as error:
            self._say(f"Internal error in RDB reading offset {error.offset}: {error.reason}", warning=True)
            self._say("Terminating server after rdb file reading failure.", warning=True)
            with salvageable(path):
                raise
        self._say(f"Done loading RDB, keys loaded: {loaded.keys}, keys expired: {loaded.expired}, "
                  f"empty keys skipped: {loaded.empty}.")  # fmt: skip

    def _enter(self, folder: str) -> None:
        """Change the folder of the RDB file; a relative path is relative to the previous folder (setConfigDirOption).

        The working directory of the process does not change, because sys.path may contain relative paths.
        """
        path = os.path.join(self._rdb_folder, folder)
        try:
            os.stat(os.path.join(path, "."))  # raises OSError for the same paths as chdir would
        except OSError as error:
            raise SettingError(str(error.strerror)) from error
        self._rdb_folder = self._engine.settings.dir = os.path.realpath(path)

    def info(self) -> dict[str, object]:
        """Return the fields of INFO persistence."""
        return {**self.children.info(), **super().info()}


class SpawningFiles(EngineFiles):
    """The files of a store in a directory: the log of that name in the folder `log`, which `lock` protects."""

    snapshots: SpawnedSnapshots

    def __init__(self, engine: Engine, folder: Path, log: Path, name: str, lock: DirectoryLock,
                 on_failure: Callable[[str], None]) -> None:  # fmt: skip
        super().__init__(engine, folder, is_store=True)
        inline, gate = InlineBaseWriter(engine), WriteGate(engine)
        self._spawned = SpawnedBaseWriter(engine.settings)
        self.aof = AofService(
            engine, log, name, self._spawned if SpawnedBaseWriter.possible() else inline, from_memory=inline, lock=lock,
            gate=gate, on_failure=on_failure, busy=lambda: self.snapshots.saving,
        )  # fmt: skip
        self.snapshots = SpawnedSnapshots(engine, folder, self.aof.log, self.aof.rewriting, gate)

    def setting_changed(self, name: str) -> None:
        """Apply a setting of the files; SettingError rejects `appendonly`, which is not what turns the log on."""
        if name == "appendonly":
            raise SettingError(_ALWAYS_LOGGED)
        super().setting_changed(name)

    def _enter(self, folder: str) -> None:
        raise SettingError("the directory of an open store cannot be changed")

    def descriptors(self) -> list[int]:
        """Return the open file descriptors."""
        return [*self.aof.log.descriptors(), *self._spawned.descriptors(), *self.snapshots.descriptors()]

    def forget_in_child(self) -> None:
        """In a forked child: forget the parent's processes."""
        self._spawned.forget_in_child()
        self.snapshots.forget_in_child()
