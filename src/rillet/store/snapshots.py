"""The RDB file of a store in a directory: SAVE, BGSAVE, save points and Store.save, without a fork.

    BGSAVE ──► rotate the log ──► a process of its own replays the closed files ──► temp-<pid>.rdb ──► dump.rdb
    SAVE   ──► the lock is held while this process writes it

The process that a store lives in is somebody else's: it may have threads, locks and memory that a forked child must not
meet. So BGSAVE closes the log's file at this moment, goes on in a new one, and lets a new Python process read what is
closed (rillet.persistence.aof.rewrite_format: Spawned). The callers wait for the rotation only. The other process
needs as much
memory as the data, and reads as long as an opening does. What it writes is what a restart would read at that moment:
all but what is not logged, when consumers were last seen (docs/formats/aof.md).

Where no process can be started, and while the log is broken, BGSAVE is a SAVE. A rewrite of the log and a snapshot read
the same files, so there is one of both at a time; the other one waits.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rillet.errors import CommandError, StoreError
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.persistence.aof.rewrite import Rewriting
from rillet.persistence.aof.rewrite_format import SNAPSHOT, SpawnedBaseWriter
from rillet.persistence.aof.states import ON
from rillet.persistence.disk import REAL, write_all
from rillet.persistence.fork import ChildOutcome
from rillet.persistence.rdb.snapshots import Snapshots
from rillet.persistence.write_gate import WriteGate
from rillet.runtime.engine import Engine
from rillet.store.transports.transport import wait_for

_PIECE = 1 << 20
_SIGKILL = 9  # Windows has no such signal, but INFO and the callers expect its number
_BUSY = "already in progress"


class StoreSnapshots(Snapshots):
    """The RDB file of a store's engine, in the store's directory; whoever calls holds the lock."""

    def __init__(self, engine: Engine, folder: Path, log: AppendOnlyLog, rewriting: Rewriting,
                 refusals: WriteGate) -> None:  # fmt: skip
        super().__init__(engine, folder, refusals=refusals)
        self._log = log
        self._rewriting = rewriting
        self._writer = SpawnedBaseWriter(engine.settings, SNAPSHOT)
        self._started = 0.0
        # Where the log was when its file was closed last, on account of a snapshot.
        self._rotated_at = -1
        self._written_here = False

    @property
    def saving(self) -> bool:
        """Whether the file is being written."""
        return self._writer.pid != 0 or self._written_here

    @property
    def busy(self) -> bool:
        """Whether the log's files are being read."""
        return self.saving or self._rewriting.in_progress

    def start_child(self, path: Path) -> int:
        """Start the process that is to write the file; OSError where that cannot be."""
        log = self._log
        self._started = time.monotonic()
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
        self.ended(ChildOutcome(error, signal=number, wanted=number != 0, seconds=time.monotonic() - self._started))

    def tick(self) -> None:
        """See whether the process is done, and begin what is due."""
        if self._written_here:
            self._written_here = False
            self._over("")
        self._writer.poll()
        self.cron()
        self.cron_scheduled()

    def kill_child(self) -> None:
        """End the process, if there is one."""
        self.stop_child()

    def stop_child(self) -> None:
        """End the process, if there is one, and remove what it wrote."""
        if self._writer.pid:
            self._writer.stop()
            self._over("it was stopped", _SIGKILL)

    def facts(self) -> dict[str, object]:
        """Return what INFO persistence tells of it; why the last one failed as well, since nobody reads a log here."""
        return {**super().facts(), "rdb_bgsave_scheduled": int(self.scheduled), "rdb_last_bgsave_error": self.error}

    def descriptors(self) -> list[int]:
        """Return the numbers of the open files."""
        return self._writer.descriptors()

    def forget_in_child(self) -> None:
        """After a fork: the process is the parent's."""
        self._writer.forget_in_child()


def save_in_background(execute: Callable[..., Any]) -> None:
    """Let the owner of a directory write the RDB file anew, by commands, and wait; StoreError says why it could not."""

    def facts() -> dict[str, str]:
        lines = execute("INFO", "persistence").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def idle() -> bool:
        found = facts()
        return found["rdb_bgsave_in_progress"] == found["rdb_bgsave_scheduled"] == "0"

    while True:
        before = int(facts()["rdb_saves"])
        try:
            execute("BGSAVE", "SCHEDULE")
            break
        except CommandError as error:
            if _BUSY not in str(error):
                raise StoreError(str(error).removeprefix("ERR ")) from error
        # That one began before we were called.
        wait_for(idle, math.inf)
    wait_for(idle, math.inf)
    found = facts()
    if int(found["rdb_saves"]) <= before:
        raise StoreError("the process that owns the store ended while it wrote the RDB file; try again")
    if found["rdb_last_bgsave_status"] != "ok":
        raise StoreError(f"the RDB file cannot be written: {found['rdb_last_bgsave_error']}")


def copy_file(source: Path, target: Path) -> None:
    """Make the target a copy, in one step, whole and on the disk; OSError leaves it as it was. O(bytes)"""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        file = REAL.create(draft)
        try:
            with REAL.read_from(source) as reading:
                while piece := reading.read(_PIECE):
                    write_all(file, piece)
            file.sync()
        finally:
            file.close()
        REAL.rename(draft, target)
        REAL.sync_folder(target.parent)
    finally:
        REAL.remove(draft)


__all__ = ["StoreSnapshots", "copy_file", "save_in_background"]
