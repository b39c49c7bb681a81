"""Replaces the files of a log while it is written: a new incremental file, a new base.

    state ON             rotate            the old file is synced and closed; commands go to a new file
                         install_base      the base replaces all files but the current one

    state WAIT_REWRITE   open_temp_incr    commands go to temp-<name>.incr, which no manifest names
                         install_base      the base and that file become the log together; the state is ON
                         drop_temp_incr    the base failed: drop the collected commands

Before `install_base` nothing in the temporary file is durable, as in Redis (AOF_WAIT_REWRITE).
rillet.persistence.aof.rewrite calls these in order. `install_base` runs in a thread, so it changes shared state only
while it holds the syncer's lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from rillet.persistence.aof.file import AofFile
from rillet.persistence.aof.states import ON, WAIT_REWRITE

if TYPE_CHECKING:
    from rillet.persistence.aof.log import AppendOnlyLog


class AofRotation:
    """Replaces the incremental files and the base of one log."""

    def __init__(self, log: AppendOnlyLog) -> None:
        self._log = log

    def rotate(self) -> None:
        """Continue in a new incremental file, after syncing the old one (openNewIncrAofForAppend).

        OSError if that fails; the log then continues in the old file.
        """
        log, folder, syncer = self._log, self._log.files, self._log.syncer
        log.write()
        with syncer.lock:
            reason = log.failures.reason
            if reason is None:
                syncer.sync_pending()
            if syncer.error is not None or reason is not None or log.state != ON:
                raise syncer.error or OSError(errno.EIO, reason or "the log is not open")
            obstacle = log.obstacle()
            if obstacle is not None:
                raise obstacle
            manifest = folder.manifest.with_incr(log.name)
            added = manifest.incrs[-1]
            # If the commit fails but reaches the disk, the manifest names a file without commands. That is harmless.
            file = AofFile.create(log.disk, folder.path / added.name, seq=added.seq, checksums=log.checksums)
            try:
                folder.commit(manifest, [])
            except OSError:
                file.close()
                raise
            assert log.file is not None
            log.closed_size += log.file.size
            log.close_file()
            log.file = file
            log.feed.forget_db()

    def open_temp_incr(self) -> None:
        """Discard the bytes that are not in a file, and collect commands in the temporary file; OSError."""
        log, folder = self._log, self._log.files
        with log.syncer.lock:
            log.close_file()
            log.discard_buffer()
            log.state = WAIT_REWRITE
            log.syncer.error = None
            log.disk.make_folder(folder.path)
            folder.watch()
            path = folder.path / folder.temp_incr
            log.file = AofFile.create(log.disk, path, seq=folder.manifest.incr_seq + 1, checksums=log.checksums)

    def drop_temp_incr(self) -> None:
        """Remove the temporary file, because writing the base failed."""
        log = self._log
        with log.syncer.lock:
            if log.state == WAIT_REWRITE and log.file is not None:
                path = log.file.path
                log.close_file()
                log.syncer.error = None
                with contextlib.suppress(OSError):  # a remaining file is replaced later, or removed by `find`
                    log.disk.remove(path)

    def install_base(self, draft: str, as_rdb: bool) -> None:
        """Put the written base in force; after OSError the previous log stays in force.

        From any thread, but not during a rotation; other threads may write.
        """
        log, folder, syncer = self._log, self._log.files, self._log.syncer
        manifest = folder.manifest.with_base(log.name, as_rdb, 1 if log.state == ON else 0)
        assert manifest.base is not None
        moves = [(draft, manifest.base.name)]
        base_size = log.disk.size(folder.path / draft)
        if log.state != WAIT_REWRITE:
            folder.commit(manifest, moves)
        else:
            manifest = manifest.with_incr(log.name)
            name = manifest.incrs[-1].name
            moves.append((folder.temp_incr, name))
            with syncer.lock:
                syncer.sync()
                if log.file is None or syncer.error is not None:
                    raise syncer.error or OSError(errno.EIO, os.strerror(errno.EIO))
                folder.commit(manifest, moves)
                log.file.path = folder.path / name
                log.state = ON
        log.closed_size = base_size
        log.base_size = log.current_size if log.state == ON else base_size
