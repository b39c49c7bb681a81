"""The folder of a log: find its manifest, repair it after a crash, open the last file, commit, remove old files.

    <dir>/appendonly.aof                    the single file of a server before 7.0; becomes the first base
    <dir>/appendonlydir/<name>.manifest     rillet.persistence.aof.manifest
                       /temp-<name>.incr    collects commands while the log waits for its base (getTempIncrAofName)
                       /temp-<name>.*       drafts; a crash leaves them behind, and `find` removes them

A folder may be renamed while its log is open, and another process may create a new one under the old name. So `commit`
and `remove_history`, which write by path, first check that the path still leads to the folder that `open_last` opened.
`obstacle` detects a process that replaced the manifest or continued the file before the current one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from rillet.errors import LogCorrupt, StoreError
from rillet.persistence.aof.failures import LogTakenOver
from rillet.persistence.aof.file import AofFile
from rillet.persistence.aof.manifest import AofManifest, LogFile, commit, read_manifest, recover
from rillet.persistence.disk import REAL, Disk

SEGMENTS: Final = "segments"
"""The folder, beside the files of the log, of the nodes of streams that are kept on disk (persistence.segments)."""


class AofFolder:
    """The files of one log, and its current manifest. Never call `find` during a rewrite: it removes drafts."""

    def __init__(self, path: Path, name: str, disk: Disk) -> None:
        self.path = path
        self.name = name
        self.manifest_path = path / f"{name}.manifest"
        self.disk = disk
        self.manifest = AofManifest()
        self._folder: tuple[int, int] | None = None  # identity of the folder, None before it is opened
        self._committed: tuple[int, int] | None = None  # identity of the manifest that this object wrote or read
        self._closed: tuple[Path, int] | None = None  # path and size of the incremental file before the current one
        self._writing = threading.Lock()  # held while the manifest is replaced

    @property
    def temp_incr(self) -> str:
        """The name of the file that collects commands while the log waits for its base (getTempIncrAofName)."""
        return f"temp-{self.name}.incr"

    def find(self) -> AofManifest:
        """Complete or undo an interrupted commit, then read the manifest; return an empty one if there is no log."""
        disk = self.disk
        if not disk.exists(self.path):
            return AofManifest()
        recover(self.manifest_path, disk)
        for name in disk.names(self.path):
            if name.startswith(f"temp-{self.name}."):
                disk.remove(self.path / name)
        manifest = self.read()
        if not manifest.loaded:
            own = re.compile(re.escape(self.name) + r"\.\d+\.(base|incr)\.(rdb|aof)")
            for name in disk.names(self.path):
                if own.fullmatch(name) and disk.size(self.path / name) and not disk.exists(self.manifest_path):
                    raise LogCorrupt(str(self.manifest_path), 0, f"the manifest is missing, but {name} exists")
        return manifest

    def read(self) -> AofManifest:
        """Read the manifest without repairs; return an empty manifest if the file does not exist."""
        return read_manifest(self.manifest_path, self.disk) if self.disk.exists(self.manifest_path) else AofManifest()

    def adopt_single_file(self) -> None:
        """Make the single file of a server before 7.0 the base of the log (aofUpgradePrepare).

        The manifest is committed first, so that a second run completes the move after a crash.
        """
        disk, manifest = self.disk, self.manifest
        old, new = self.path.parent / self.name, self.path / self.name
        begun = manifest.loaded and [file.name for file in manifest.files] == [self.name] and not disk.exists(new)
        if not disk.exists(old) or (manifest.loaded and not begun):
            return
        if not begun:
            disk.make_folder(self.path)
            self.manifest = AofManifest(LogFile(self.name, 1, "b"), base_seq=1)
            commit(self.manifest_path, self.manifest, [], disk)
        disk.rename(old, new)
        disk.sync_folder(self.path)
        disk.sync_folder(self.path.parent)

    def loaded_paths(self) -> list[Path]:
        """Return the paths of the log's files in the order of their replay; LogCorrupt if one is missing."""
        paths = [self.path / file.name for file in self.manifest.loaded]
        for path in paths:
            if not self.disk.exists(path):
                # aof.c: loadAppendOnlyFiles, "doesn't exist"
                reason = f"the file {path.name} is missing: {os.strerror(errno.ENOENT)}"
                raise LogCorrupt(str(self.manifest_path), 0, reason)
        return paths

    def open_last(self, write_base: Callable[[Path], str] | None, *, checksums: bool, new_file: bool) -> AofFile:
        """Open the last incremental file, and create and commit the files that a new log lacks; OSError.

        write_base: writes the base of a log without files to the path, and returns "rdb" or "aof".
        new_file: the last file ends with commands without checksums; if checksums are on, begin another file.
        """
        disk, manifest = self.disk, self.manifest
        moves: list[tuple[str, str]] = []
        disk.make_folder(self.path)
        if not manifest.loaded and write_base is not None:
            draft = f"temp-{self.name}.base"
            manifest = manifest.with_base(self.name, write_base(self.path / draft) == "rdb", 0)
            assert manifest.base is not None
            moves.append((draft, manifest.base.name))
        if checksums and new_file and manifest.incrs:
            last = disk.append_to(self.path / manifest.incrs[-1].name)
            try:
                last.sync()
            finally:
                last.close()
            manifest = manifest.with_incr(self.name)
        if not manifest.incrs:
            manifest = manifest.with_incr(self.name)
        current = manifest.incrs[-1]
        is_new = manifest.incrs != self.manifest.incrs
        if is_new:
            moves.append((self.temp_incr, current.name))
            file = AofFile.create(disk, self.path / self.temp_incr, seq=current.seq, checksums=checksums)
        else:
            file = AofFile.append_to(disk, self.path / current.name, seq=current.seq, checksums=checksums)
        try:
            # After a killed process, bytes and file names may be visible that are not on the disk yet: sync them.
            file.sync()
            if manifest is self.manifest:
                disk.sync_folder(self.path)
            else:
                self.commit(manifest, moves)
                file.path = self.path / current.name
            disk.sync_folder(self.path.parent)
        except OSError:
            file.close()
            raise
        self.watch()
        return file

    # -- other processes -----------------------------------------------------------------------------

    def watch(self) -> None:
        """Record the state of the folder, its manifest and the closed file, with which `obstacle` compares."""
        self._folder = self.disk.identity(self.path)
        self._committed = self.disk.identity(self.manifest_path)
        self._record_closed()

    def forget(self) -> None:
        """Forget the folder, because the log continues in a new one."""
        self._folder = self._committed = self._closed = None

    def _record_closed(self) -> None:
        before = self.manifest.incrs[-2:-1]
        self._closed = None
        if before:
            path = self.path / before[0].name
            self._closed = (path, self.disk.size(path))

    def obstacle(self) -> LogTakenOver | None:
        """Return an error if another process replaced the manifest or continued a closed file; from any thread."""
        if not self._writing.acquire(blocking=False):
            return None
        try:
            if self._committed is not None and self.disk.identity(self.manifest_path) != self._committed:
                return LogTakenOver(f"another process replaced {self.manifest_path}; end one of the two processes, and "
                                    "open the store again")  # fmt: skip
            if self._closed is None:
                return None
            path, size = self._closed
            if self.disk.size(path) > size:
                return LogTakenOver(f"another process writes to {path}, which this process had closed; end one of the "
                                    "two processes, and open the store again")  # fmt: skip
        except OSError:
            return None  # the file was removed in between: the log no longer needs it
        finally:
            self._writing.release()
        return None

    def _check_folder(self) -> None:
        """Raise LogTakenOver if the path leads to another folder than the one that was opened, or to none."""
        if self._folder is not None and self.disk.identity(self.path) != self._folder:
            raise LogTakenOver(f"{self.path} was renamed, removed or replaced while the store was open")

    # -- changes of the files ------------------------------------------------------------------------

    def commit(self, manifest: AofManifest, moves: list[tuple[str, str]]) -> None:
        """Put the manifest in force, and rename the files that it names for the first time; OSError.

        A commit that raises may still have reached the disk, so its file numbers are not used again.
        """
        self._check_folder()
        try:
            self._commit(manifest, moves)
        except OSError:
            current = {file.name for file in self.manifest.files}
            orphans = tuple(replace(file, type="h") for file in manifest.files if file.name not in current)
            self.manifest = replace(self.manifest, base_seq=manifest.base_seq, incr_seq=manifest.incr_seq,
                                    history=(*orphans, *self.manifest.history))  # fmt: skip
            raise
        self.manifest = manifest
        with contextlib.suppress(OSError):
            self._record_closed()

    def _commit(self, manifest: AofManifest, moves: list[tuple[str, str]]) -> None:
        with self._writing:
            try:
                commit(self.manifest_path, manifest, moves, self.disk)
            finally:
                self._committed = self.disk.identity(self.manifest_path)

    def remove_history(self) -> None:
        """Remove the files that the log no longer needs (aofDelHistoryFiles); from any thread, but not during a
        rotation.
        """
        if self.manifest.history:
            self._check_folder()
            for file in self.manifest.history:
                self.disk.remove(self.path / file.name)
            manifest = self.manifest.without_history()
            self._commit(manifest, [])
            self.manifest = manifest

    def size(self, files: list[LogFile]) -> int:
        """Return the total size of the files in bytes."""
        return sum(self.disk.size(self.path / file.name) for file in files)


def log_files(folder: Path, single: str, disk: Disk = REAL) -> list[Path]:
    """Return the files of the log in a folder in the order of their replay, without repairs; none if there is no log.

    An interrupted first commit counts if it would be completed by `find`, and the single file of a server before 7.0
    (`single`, beside the folder) if it would be adopted. StoreError, LogCorrupt.
    """
    names = disk.names(folder)
    manifests = [name for name in names if name.endswith(".manifest") and not name.startswith("temp-")]
    drafts = [name for name in names if name.endswith(".manifest") and name.startswith("temp-")]
    if len(manifests) > 1:
        logs = ", ".join(name.removesuffix(".manifest") for name in manifests)
        raise StoreError(f"{folder} holds several logs: {logs}; leave only one")
    if manifests:
        loaded = read_manifest(folder / manifests[0], disk).loaded
    elif drafts and not (loaded := _complete_draft(folder / drafts[0], disk)):
        return []
    elif not drafts:
        _reject_orphans(folder, names, disk)
        return []
    paths = [folder / file.name for file in loaded]
    old = folder.parent / single
    return [old if path.name == single and not disk.exists(path) and disk.exists(old) else path for path in paths]


def _complete_draft(draft: Path, disk: Disk) -> list[LogFile]:
    """Return the files of a manifest that was not renamed yet, if all of them have their names; see `recover`."""
    try:
        loaded = read_manifest(draft, disk).loaded
    except LogCorrupt:
        return []
    return loaded if all(disk.exists(draft.parent / file.name) for file in loaded) else []


def _reject_orphans(folder: Path, names: list[str], disk: Disk) -> None:
    for name in names:
        if re.fullmatch(r".+\.\d+\.(base|incr)\.(rdb|aof)", name) and not name.startswith("temp-"):
            if disk.size(folder / name):
                raise LogCorrupt(str(folder), 0, f"the manifest is missing, but {name} exists")
