"""The RDB file of a store in a directory: SAVE, BGSAVE and save points, without a fork.

    BGSAVE ──► rotate the log ──► a new process replays the closed files ──► temp-<pid>.rdb ──► dump.rdb
    SAVE   ──► this process writes dump.rdb while it holds the engine's lock

The application's process may have threads and locks that are unsafe in a forked child. So BGSAVE closes the current
file of the log, continues in a new file, and starts a new Python process that reads the closed files
(rillet.persistence.aof.rewrite_format: SpawnedBaseWriter). Callers wait only for this rotation. The new process needs
as much memory as the data, and as much time as opening the store. The RDB file contains the state that a restart would
restore at that moment: everything except the last-seen times of consumers, which are not logged (docs/formats/aof.md).

If no process can be started, or if the log has failed, BGSAVE runs as SAVE. A rewrite of the log and a snapshot read
the same files, so only one of them runs at a time; the other one waits.
"""

from __future__ import annotations

import os
from pathlib import Path

from rillet.errors import CommandError, StoreBusy
from rillet.persistence.aof.failures import LogTakenOver
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.persistence.aof.rewrite import Rewriting
from rillet.persistence.aof.rewrite_format import SNAPSHOT, SpawnedBaseWriter
from rillet.persistence.aof.states import ON
from rillet.persistence.foreign_server import reject_foreign_server
from rillet.persistence.fork import ChildOutcome
from rillet.persistence.rdb.snapshots import Snapshots
from rillet.persistence.write_gate import WriteGate
from rillet.real_time import monotonic
from rillet.runtime.engine import Engine

_SIGKILL = 9  # Windows has no such signal, but INFO and the callers expect its number


class SpawnedSnapshots(Snapshots):
    """Writes the RDB file in the store's directory. The caller of each method must hold the engine's lock."""

    def __init__(self, engine: Engine, folder: Path, log: AppendOnlyLog, rewriting: Rewriting,
                 refusals: WriteGate) -> None:  # fmt: skip
        super().__init__(engine, folder, refusals=refusals)
        self._log = log
        self._rewriting = rewriting
        self._writer = SpawnedBaseWriter(engine.settings, SNAPSHOT)
        self._started = 0.0
        # The size of the log at its last rotation for a snapshot.
        self._rotated_at = -1
        self._written_here = False

    @property
    def saving(self) -> bool:
        """True while the RDB file is being written."""
        return self._writer.pid != 0 or self._written_here

    @property
    def busy(self) -> bool:
        """True while a snapshot or a rewrite of the log reads the log's files."""
        return self.saving or self._rewriting.in_progress

    def write(self) -> None:
        """Write the RDB file; CommandError if that fails, or if another process may own the folder now. O(bytes)"""
        if self._log.removed or isinstance(self._log.obstacle(), LogTakenOver):
            raise CommandError(f"{self.path.parent} was renamed or removed, or another process writes there")
        try:
            self._reject_server()
        except OSError as error:
            raise CommandError(str(error.strerror)) from error
        super().write()

    def _reject_server(self) -> None:
        """Raise OSError if a redis-server uses the folder: the RDB file is its own."""
        try:
            reject_foreign_server(self.path.parent)
        except StoreBusy as error:
            raise OSError(0, str(error)) from error

    def start_child(self, path: Path) -> int:
        """Start the process that writes the RDB file; raise OSError if it cannot be started."""
        log = self._log
        self._reject_server()
        self._started = monotonic()
        if log.state != ON or log.failure is not None or not SpawnedBaseWriter.possible():
            try:
                self.write()
            except CommandError as error:
                raise OSError(0, str(error).removeprefix("ERR ")) from error
            self._written_here = True
            return os.getpid()
        log.write()
        if log.size != self._rotated_at:
            log.rotation.rotate()
            self._rotated_at = log.size
        sources = [log.folder / file.name for file in log.manifest.loaded[:-1]]
        self._writer.start(path, sources, lambda error, _kind: self._over(error))
        return self._writer.pid

    def _over(self, error: str, number: int = 0) -> None:
        self.ended(ChildOutcome(error, signal=number, wanted=number != 0, seconds=monotonic() - self._started))

    def poll(self) -> None:
        """Handle the end of the writing process, if it has ended."""
        if self._written_here:
            self._written_here = False
            self._over("")
        self._writer.poll()

    def stop_child(self) -> None:
        """Stop the process that writes the RDB file, if it is running, and remove its incomplete file."""
        if self._writer.pid:
            self._writer.stop()
            self._over("it was stopped", _SIGKILL)

    kill_child = stop_child

    def info(self) -> dict[str, object]:
        """Return the fields for INFO persistence, with the reason of the last failure."""
        return {**super().info(), "rdb_bgsave_scheduled": int(self.scheduled), "rdb_last_bgsave_error": self.error}

    def descriptors(self) -> list[int]:
        """Return the file descriptors of the pipes to the writing process."""
        return self._writer.descriptors()

    def forget_in_child(self) -> None:
        """In a forked child: drop the reference to the parent's writing process."""
        self._writer.forget_in_child()
