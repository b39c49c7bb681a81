"""The append-only log: every command that changed something, as RESP, in order (Redis: aof.c).

    *2\\r\\n$6\\r\\nSELECT\\r\\n$1\\r\\n0\\r\\n   the database of the next commands, when it changes
    *5\\r\\n$4\\r\\nXADD\\r\\n...               one command; a transaction is MULTI ... EXEC
    #TS:1700000000\\r\\n                    the time, with `aof-timestamp-enabled yes`

This class joins the parts:

    buffer.py     AofBuffer      commands that are not in the file yet
    file.py       AofFile        the current incremental file
    syncer.py     AofSyncer      syncs it, in a thread
    failures.py   AofFailures    the reason why it cannot be written
    folder.py     AofFolder      the manifest and the other files
    rotation.py   AofRotation    new incremental file, new base
    loader.py                    executes the commands of the files at the start

Three positions count bytes over all files. `write` returns the position that a reply must wait for:

    position      bytes ever appended                            feed ──write──► file ──sync──► disk
    size          given to the operating system                  position   >=  size    >=   synced
    synced        on the disk

    appendfsync always     a reply waits until `synced` has reached its position: `settled` tests it, `wait` blocks
    everysec, no           a reply waits for `size`

If the log cannot be written, `on_failure` is called, and writes must be rejected until `on_recovery` is called
(failures.py). All methods except `settled`, `wait` and `sync_soon` require the engine's lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rillet._cython import cython
from rillet.errors import Misconf
from rillet.persistence.aof.buffer import AofBuffer
from rillet.persistence.aof.failures import AofFailures, LogTakenOver, describe
from rillet.persistence.aof.file import AofFile
from rillet.persistence.aof.folder import AofFolder
from rillet.persistence.aof.loader import LoadResult, replay
from rillet.persistence.aof.manifest import AofManifest
from rillet.persistence.aof.rotation import AofRotation
from rillet.persistence.aof.states import OFF, ON, WAIT_REWRITE
from rillet.persistence.aof.syncer import AofSyncer
from rillet.persistence.disk import REAL, Disk
from rillet.real_time import monotonic

if TYPE_CHECKING:
    from rillet.protocol.propagation_buffer import PropagationBuffer
    from rillet.runtime.engine import Engine

_SECOND = 1.0
# A check whether other processes removed, renamed or wrote the file costs a system call, up to a sixth of an XADD. So a
# write is checked before its reply under `always`, or if it comes this long after the write before. Faster writes
# share a check, which is at most CHECK_SECONDS old.
_PAUSE = 0.00005
CHECK_SECONDS = 0.001


class AppendOnlyLog:
    """The append-only log of one engine, in a folder with Redis 7's layout; see `Engine.log`."""

    def __init__(self, folder: Path, *, name: str = "appendonly.aof", fsync: str = "everysec",
                 on_failure: Callable[[str], None] | None = None, on_recovery: Callable[[], None] | None = None,
                 disk: Disk = REAL, threads: bool = True) -> None:  # fmt: skip
        self.name = name
        self.disk = disk
        self.threads = threads
        self.load_truncated = True  # aof-load-truncated
        self.corrupt_tail_max_size = 0  # aof-load-corrupt-tail-max-size
        self.keep_history = False  # aof-disable-auto-gc
        self.checksums = False  # aof-checksums: each write is a frame (rillet.persistence.aof.frames)
        self.state = OFF
        self.buffer = AofBuffer()
        self.feed: PropagationBuffer = self.buffer.feed
        self.file: AofFile | None = None
        self.files = AofFolder(folder, name, disk)
        self.failures = AofFailures(on_failure, on_recovery)
        self.syncer = AofSyncer(lambda: (self.file, self.size), fsync, threads=threads)
        self.rotation = AofRotation(self)
        self.size = 0
        # Whether a write is under way: a call of the store in a signal handler must not write meanwhile.
        self.writing = False
        # The size of all files before the current file, and the size of the log after the last rewrite.
        self.closed_size = 0
        self.base_size = 0
        # Whether the files were given up because they were removed: others may have begun a log under the same path.
        self.removed = False
        # Times of a monotonic clock: a write after one of them is checked.
        self._paused_at = self._checked_until = 0.0
        self._replayed = 0
        self._foreign_tail = False  # the last file ends with commands of another server, without checksums
        self._last_check = float("-inf")

    # -- properties for other modules ----------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """The folder that contains the log's files."""
        return self.files.path

    @property
    def manifest(self) -> AofManifest:
        """The current manifest, which names the log's files."""
        return self.files.manifest

    @property
    def failure(self) -> str | None:
        """The text of the MISCONF error, None if the log can be written."""
        return self.failures.reason

    @property
    def synced(self) -> int:
        """The position up to which the log is on the disk: no manifest names the file that waits for a first base."""
        return 0 if self.state == WAIT_REWRITE else self.syncer.synced

    @property
    def position(self) -> int:
        """The number of bytes appended so far."""
        return self.size + self.buffer.size

    @property
    def unwritten(self) -> int:
        """The number of bytes that are not in the file yet (aof_buffer_length)."""
        return self.buffer.size

    @property
    def file_size(self) -> int:
        """The size of the current file in bytes."""
        return 0 if self.file is None else self.file.size

    @property
    def current_size(self) -> int:
        """The total size of the files in use, in bytes (aof_current_size)."""
        return self.closed_size + self.file_size

    @property
    def collecting(self) -> bool:
        """Whether every command since the last rotation or `open_temp_incr` is in a file."""
        return self.file is not None and self.syncer.error is None

    @property
    def needs_base(self) -> bool:
        """Whether the log failed so that only a new base, written from memory, makes it complete again."""
        return self.state == WAIT_REWRITE and self.failures.reason is not None

    # -- opening -------------------------------------------------------------------------------------

    def open(self, engine: Engine, progress: Callable[[int, int], None] | None = None) -> LoadResult:
        """Replay the files into the engine, then log its changes; progress(bytes done, bytes in total)."""
        result = self.load(engine, progress)
        self.start(engine)
        return result

    def load(self, engine: Engine, progress: Callable[[int, int], None] | None = None) -> LoadResult:
        """Replay the files into the engine; if that fails, the files stay unchanged (loadAppendOnlyFiles)."""
        self.files.manifest = self.files.find()
        self.files.adopt_single_file()
        return self._replay(engine, progress)

    def reload(self, engine: Engine) -> LoadResult:
        """Replay the files of a log that may be open (DEBUG LOADAOF)."""
        if self.state != ON:
            self.files.manifest = self.files.read()
        return self._replay(engine, None)

    def _replay(self, engine: Engine, progress: Callable[[int, int], None] | None) -> LoadResult:
        paths = self.files.loaded_paths()
        result = replay(engine, paths, progress, disk=self.disk, truncates=self.load_truncated,
                        corrupt_tail=self.corrupt_tail_max_size)  # fmt: skip
        self._foreign_tail = result.foreign
        self._replayed = result.bytes
        return result

    def start(self, engine: Engine, write_base: Callable[[Path], str] | None = None) -> None:
        """Log the engine's changes at the end of the last file, which the engine has replayed.

        write_base: writes a base to the path, for a log without files (aofOpenIfNeededOnServerStart).
        """
        files = self.files
        if files.size(self.manifest.loaded) != self._replayed:
            raise LogTakenOver(f"another process writes to {self.folder}: its files grew while they were read")
        self.file = files.open_last(write_base, checksums=self.checksums, new_file=self._foreign_tail)
        self.size = self.syncer.synced = self.file.size
        self.closed_size = files.size(self.manifest.loaded[:-1])
        self.base_size = 0 if self.manifest.base is None else files.size([self.manifest.base])
        self.feed.forget_db()
        self._begin(engine, ON)
        if self.manifest.history and not self.keep_history:
            with contextlib.suppress(OSError):
                files.remove_history()

    def start_waiting(self, engine: Engine) -> None:
        """Log the engine's changes from the next rewrite on; the rewrite writes the base (startAppendOnly)."""
        self.files.manifest = self.files.find()
        self._begin(engine, WAIT_REWRITE)

    def _begin(self, engine: Engine, state: int) -> None:
        self.state = state
        self.failures.reason = self.syncer.error = None
        self.set_fsync(self.syncer.fsync)
        engine.log = self

    # -- writing -------------------------------------------------------------------------------------

    def append(self, db: int, argv: list[bytes]) -> None:
        """Append one command that changed database db (feedAppendOnlyFile). O(bytes)"""
        self.buffer.append(db, argv)

    def write(self, since: int | None = None) -> int:
        """Write the buffer to the file; return the position that replies must wait for, 0 for none. Raises nothing.

        While writes are rejected, replies acknowledge no change and need not wait. since: the log position before the
        caller's first command, if other threads may have called `write` since. If such a call failed, the caller's
        replies wait for the position of the failure, and `settled` raises.
        """
        failures = self.failures
        if self.state == ON:
            if self.syncer.error is not None:
                pending = self.feed.used
                self._give_up_files(self.syncer.error)
                return failures.position if pending else failures.position_after(since)
            if failures.reason is not None:
                return failures.position_after(since)
            if self.feed.used:
                self.writing = True
                try:
                    error = self._write_buffer()
                finally:
                    self.writing = False
                if error is not None:
                    return self._enter_failure(error)
            return self.size + len(self.buffer.unwritten)
        if self.feed.used:
            self._write_temp_incr()
        return failures.position_after(since) if failures.reason is not None else self.size

    def _write_buffer(self) -> OSError | None:
        """Write the bytes of an earlier failed write, then the new commands; keep the bytes that cannot be written.

        The check of the file follows the write and precedes the reply, so that no reply acknowledges a write that is
        not found under the log's path.
        """
        file, buffer = self.file, self.buffer
        assert file is not None
        written: cython.Py_ssize_t
        before = buffer.unwritten
        data = file.frame(self.feed.take_bytes(), len(before))
        if before:
            data = before + data
            buffer.unwritten = b""
        written, error = file.append(data)
        self.size += written
        if error is not None:
            buffer.unwritten = data[written:]
            return error
        now = monotonic()
        if now >= self._paused_at or now >= self._checked_until:
            error = file.obstacle()
            self._checked_until = 0.0 if self.syncer.fsync == "always" else now + CHECK_SECONDS
        self._paused_at = now + _PAUSE
        return error

    def obstacle(self) -> OSError | None:
        """Return why writes to the log must stop: its files were removed, renamed or replaced, or others wrote them."""
        return None if self.file is None else self.file.obstacle() or self.files.obstacle()

    def _enter_failure(self, error: OSError) -> int:
        """Reject writes because of the error, and return the position for which the current replies wait."""
        if isinstance(error, FileNotFoundError):
            self.removed = True
            self._give_up_files(error)
        else:
            self.failures.fail(error, self.position)
        return self.failures.position_after(-1)

    def _write_temp_incr(self) -> None:
        """Write the buffer to the temporary file; an error makes the current rewrite fail."""
        if self.file is None:
            self.discard_buffer()
            return
        data = self.file.frame(self.feed.take_bytes())
        _, error = self.file.append(data)
        if error is not None:
            self.syncer.error = error
        self.size += len(data)

    def flush(self) -> None:
        """Write the buffer, and sync it under `always`; Misconf if that fails (flushAppendOnlyFile)."""
        try:
            self.wait(self.write())
        except Misconf:
            self.write()  # this call enters the failure state
            raise

    def settled(self, position: int) -> bool:
        """Return whether replies that wait for the position may be sent; Misconf if the log failed. Thread-safe."""
        syncer = self.syncer
        if position <= syncer.synced:
            return True
        # The order of these reads matters: `_give_up_files` sets the reason before it changes `size` and `state`, and
        # clears the error last.
        safe = position <= self.size and (syncer.fsync != "always" or syncer.paused or self.state != ON)
        error = syncer.error
        reason = self.failures.reason
        if reason is not None:
            raise Misconf(reason)
        if error is not None:
            raise Misconf(describe(error))
        return safe

    def wait(self, position: int) -> None:
        """Wait until the log up to the position is as safe as appendfsync requires; Misconf if it failed. Thread-safe.

        The first caller syncs for all threads that wait meanwhile. Callers should not hold the engine's lock.
        """
        if not self.settled(position):
            with self.syncer.lock:
                if not self.settled(position):
                    self.syncer.sync()
            self.settled(position)

    def sync_soon(self, on_synced: Callable[[], None] | None = None) -> None:
        """Sync soon, and call `on_synced` after each sync from now on; without threads, sync now. From any thread."""
        self.syncer.request(on_synced)

    def set_fsync(self, policy: str) -> None:
        """Set appendfsync: always, everysec or no."""
        self.syncer.set_policy(policy, running=self.state != OFF)

    # -- failures ------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Write the buffer, and once a second retry a failed write; `now` in seconds of a monotonic clock."""
        self.write()
        if self.state != ON or 0 <= now - self._last_check < _SECOND:
            return
        self._last_check = now
        assert self.file is not None
        if self.failures.reason is not None:
            self._retry()
        elif (error := self.obstacle()) is not None:
            self._enter_failure(error)
        if self.state == ON and not self.threads and self.syncer.fsync == "everysec":
            self.sync_soon()

    def _retry(self) -> None:
        error = self.obstacle() or self._write_buffer()
        if error is None:
            self.failures.recover()
        elif isinstance(error, FileNotFoundError):
            self._enter_failure(error)
        else:
            self.failures.note(error, self.position)

    def _give_up_files(self, error: OSError) -> None:
        """Close the files, whose content is unknown after a failed sync, and wait for a new base."""
        with self.syncer.lock:
            self.failures.reason = describe(error)
            self.close_file()
            self.discard_buffer()
            self.state = WAIT_REWRITE
            self.syncer.error = None
        self.failures.fail(error, self.position)

    def base_installed(self) -> None:
        """Accept writes again after a new base made the log complete.

        The base lacks bytes whose write failed after the base was begun: the failure lasts until they are written.
        """
        self.removed = False
        if self.failures.reason is not None and self.state == ON and not self.buffer.unwritten:
            self.failures.recover()

    def close_file(self) -> None:
        """Close the current file without syncing it; only AofRotation calls this."""
        file, self.file = self.file, None
        if file is not None:
            file.close()

    def discard_buffer(self) -> None:
        """Drop the bytes that are not in a file, and count them as written; only AofRotation calls this."""
        self.size += self.buffer.discard()

    # -- closing -------------------------------------------------------------------------------------

    def descriptors(self) -> list[int]:
        """Return the descriptors of the open files."""
        return [self.file.fileno()] if self.file is not None and self.file.fileno() >= 0 else []

    def close(self) -> None:
        """Write and sync the buffer, and close the file; a second call does nothing (stopAppendOnly).

        Misconf if the write or the sync fails and no earlier failure was reported.
        """
        if self.state == OFF:
            return
        syncer, failures = self.syncer, self.failures
        syncer.stop()
        reported = failures.reason
        if self.state == ON and syncer.error is None:
            if reported is not None:
                self._retry()
            self.write()
            with syncer.lock:
                syncer.sync_pending()
                if syncer.error is None and self.file is not None and failures.reason is None:
                    self.file.seal()
        error = syncer.error
        self.rotation.drop_temp_incr()
        self.state = OFF
        self.close_file()
        self.discard_buffer()
        if error is not None and failures.reason is None:
            failures.fail(error, self.position)
        if failures.reason is not None and failures.reason != reported:
            raise Misconf(failures.reason)
