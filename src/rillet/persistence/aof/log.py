"""The append-only log: every command that changed something, as RESP, in order (Redis: aof.c).

    *2\\r\\n$6\\r\\nSELECT\\r\\n$1\\r\\n0\\r\\n   the database of what follows, when it changes
    *5\\r\\n$4\\r\\nXADD\\r\\n...               one command; a transaction is MULTI ... EXEC
    #TS:1700000000\\r\\n                    the time, where `aof-timestamp-enabled` is yes

Commands gather in `feed`. Before replies leave, `write` hands them to the operating system, and says up to which
position the log must have come before they may leave:

    position      bytes ever appended, over all files            feed ──write──► file ──sync──► disk
    size          handed to the operating system                 position   >=  size    >=   synced
    synced        on the disk

    always        a reply waits until `synced` has reached its position: `settled` tells, `wait` waits. One sync serves
                  all who wait for what was written before it began (group commit), while others read and write
    everysec      a reply waits for `size`; a thread syncs once a second: a power loss costs that second at most
    no            a reply waits for `size`; the operating system decides what is on the disk

What goes wrong is told to `on_failure`, and writes have to be refused until `on_recovery` (docs/design/0006):

    a write fails      part of a command is cut off again, and the bytes are kept. `tick` tries once a second to write
                       them; when that succeeds all is as before
    a sync fails,      nobody knows what the files hold, and nothing in them is ever reported safe again. The log waits
    the folder goes    for a new base, written from memory into new files (rillet.persistence.aof.rewrite)

    state     OFF ──open_aside──► WAITING ──take_over──► ON ──a sync failed──► WAITING
                                                          └────── close ─────► OFF

While it waits for a base, what is logged goes to a file beside the log (temp-<name>.incr) that gets its place when the
base stands; nothing is promised for it before, as in Redis (AOF_WAIT_REWRITE).

Everything but `settled`, `wait` and the syncing belongs to whoever holds the engine. With threads=False there are no
threads: `sync_soon` and `tick` sync when they are called, so that a simulated disk sees the same calls each time.

Replay (rillet.persistence.aof.loader) is the other direction.
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

from rillet.errors import LogCorrupt, Misconf
from rillet.persistence.aof.frames import batch
from rillet.persistence.aof.loader import LoadResult, TornLog, replay
from rillet.persistence.aof.manifest import AofManifest, LogFile, commit, read_manifest, recover
from rillet.persistence.disk import REAL, Disk, DiskFile, write_all
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.runtime.engine import Engine

OFF, WAITING, ON = range(3)
_SECOND = 1.0


class AppendOnlyLog:
    """The log of one engine, in a folder of Redis 7's layout; an engine's `log`."""

    def __init__(self, folder: Path, *, name: str = "appendonly.aof", fsync: str = "everysec",
                 on_failure: Callable[[str], None] | None = None, on_recovery: Callable[[], None] | None = None,
                 disk: Disk = REAL, threads: bool = True) -> None:  # fmt: skip
        self.folder = folder
        self.name = name
        self.fsync = fsync
        self.disk = disk
        self.threads = threads
        # Called by whoever holds the engine: with the text of the refusal, and when writes may be taken again.
        self.on_failure = on_failure
        self.on_recovery = on_recovery
        # Called by the thread that syncs, after each time: `settled` may have changed.
        self.on_synced: Callable[[], None] | None = None
        self.failure: str | None = None
        # The position that the log had when writes came to be refused: what lies before it may not be safe.
        self.failed_at = 0
        self.state = OFF
        self.manifest = AofManifest()
        # Whether replies wait for no sync for now (no-appendfsync-on-rewrite, while a child writes).
        self.relaxed = False
        self.truncates = True  # aof-load-truncated
        self.corrupt_tail = 0  # aof-load-corrupt-tail-max-size
        self.keeps_history = False  # aof-disable-auto-gc
        self.checksums = False  # aof-checksums: each write is a batch (rillet.persistence.aof.frames)
        self.feed = PropagationBuffer()
        self.size = 0
        self.synced = 0
        # Bytes in the files before the current one, and in all of them when the log was last rewritten.
        self.closed_size = 0
        self.base_size = 0
        self._kept = b""
        self._begins = 0  # the position at which the current file begins
        self._sealed = True  # no batch stands at its end that no later one tells to be on the disk
        self._foreign = False  # the last file ends with what is not ours
        self._file: DiskFile | None = None
        self._path = folder
        self._sync_error: OSError | None = None
        self._syncing = threading.Lock()  # held while syncing, and while the file is replaced
        self._wake = threading.Event()
        self._syncer: threading.Thread | None = None
        self._stopping = False
        self._looked = float("-inf")

    # -- opening -------------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The path of the manifest."""
        return self.folder / f"{self.name}.manifest"

    @property
    def aside(self) -> str:
        """The name of the file that collects what is logged while the log waits for a base (getTempIncrAofName)."""
        return f"temp-{self.name}.incr"

    def open(self, engine: Engine, progress: Callable[[int, int], None] | None = None) -> LoadResult:
        """Replay what is there into the engine, then take its changes; progress(bytes done, bytes in all)."""
        replayed = self.load(engine, progress)
        self.start(engine)
        return replayed

    def load(self, engine: Engine, progress: Callable[[int, int], None] | None = None) -> LoadResult:
        """Replay what is there into the engine; a log that is refused is left as it is (loadAppendOnlyFiles)."""
        self.manifest = self._adopt(self.find())
        return self._load(engine, progress)

    def reload(self, engine: Engine) -> LoadResult:
        """Replay the log as it is now, while it is written or not (DEBUG LOADAOF)."""
        if self.state != ON:
            self.manifest = read_manifest(self.path, self.disk) if self.disk.exists(self.path) else AofManifest()
        return self._load(engine, None)

    def _load(self, engine: Engine, progress: Callable[[int, int], None] | None) -> LoadResult:
        for file in self.manifest.loaded:
            if not self.disk.exists(self.folder / file.name):
                # aof.c: loadAppendOnlyFiles, "doesn't exist"
                raise LogCorrupt(str(self.path), 0, f"the file {file.name} is missing: {os.strerror(errno.ENOENT)}")
        paths = [self.folder / file.name for file in self.manifest.loaded]
        replayed = replay(engine, paths, progress, disk=self.disk, truncates=self.truncates,
                          corrupt_tail=self.corrupt_tail)  # fmt: skip
        self._foreign = replayed.foreign
        return replayed

    def find(self) -> AofManifest:
        """Return the manifest, after what a crash left undone was done or undone; empty where there is no log.

        For a log that is neither open nor being rewritten.
        """
        disk = self.disk
        if not disk.exists(self.folder):
            return AofManifest()
        recover(self.path, disk)
        for name in disk.names(self.folder):
            if name.startswith(f"temp-{self.name}."):
                disk.remove(self.folder / name)
        manifest = read_manifest(self.path, disk) if disk.exists(self.path) else AofManifest()
        if not manifest.loaded:
            own = re.compile(re.escape(self.name) + r"\.\d+\.(base|incr)\.(rdb|aof)")
            for name in disk.names(self.folder):
                if own.fullmatch(name) and disk.size(self.folder / name) and not disk.exists(self.path):
                    raise LogCorrupt(str(self.path), 0, f"the manifest is missing, and {name} is there")
        return manifest

    def _adopt(self, manifest: AofManifest) -> AofManifest:
        """Take the single file of a server before 7.0 as the base of a log (aofUpgradePrepare)."""
        old, new = self.folder.parent / self.name, self.folder / self.name
        begun = manifest.loaded and [file.name for file in manifest.files] == [self.name] and not self.disk.exists(new)
        if not self.disk.exists(old) or (manifest.loaded and not begun):
            return manifest
        if not begun:
            self.disk.make_folder(self.folder)
            manifest = AofManifest(LogFile(self.name, 1, "b"), base_seq=1)
            commit(self.path, manifest, [], self.disk)
        self.disk.rename(old, new)
        self.disk.sync_folder(self.folder)
        self.disk.sync_folder(self.folder.parent)
        return manifest

    def start(self, engine: Engine, write_base: Callable[[Path], str] | None = None) -> None:
        """Take the engine's changes at the end of the last file, whose data the engine holds already.

        write_base: writes a base to the path, for a log that has no file yet (aofOpenIfNeededOnServerStart).
        """
        disk = self.disk
        disk.make_folder(self.folder)
        made, moves = self.manifest, []
        if not made.loaded and write_base is not None:
            draft = f"temp-{self.name}.base"
            made = made.with_base(self.name, write_base(self.folder / draft) == "rdb", 0)
            assert made.base is not None
            moves.append((draft, made.base.name))
        if self.checksums and made.incrs and self._foreign:
            before = disk.append_to(self.folder / made.incrs[-1].name)
            try:
                before.sync()
            finally:
                before.close()
            made = made.with_incr(self.name)
        if not made.incrs:
            made = made.with_incr(self.name)
        self._path = self.folder / made.incrs[-1].name
        if made.incrs != self.manifest.incrs:
            moves.append((self.aside, self._path.name))
            self._file = disk.create(self.folder / self.aside)
        else:
            self._file = disk.append_to(self._path)
        try:
            if moves or not disk.size(self._path):
                self._begin_file(self._file, made.incr_seq)
            # A process that was killed may have left bytes and names that are seen and not on the disk.
            self._file.sync()
            if made is not self.manifest:
                commit(self.path, made, moves, disk)
            else:
                disk.sync_folder(self.folder)
            disk.sync_folder(self.folder.parent)
        except OSError:
            self._drop_file()
            raise
        self.manifest = made
        self.size = self.synced = disk.size(self._path)
        self._begins = 0
        self.closed_size = sum(disk.size(self.folder / file.name) for file in made.loaded[:-1])
        self.base_size = disk.size(self.folder / made.base.name) if made.base else 0
        self.state = ON
        self.failure = self._sync_error = None
        self.feed.forget_db()
        self.set_fsync(self.fsync)
        engine.log = self
        if self.manifest.history and not self.keeps_history:
            with contextlib.suppress(OSError):
                self.remove_history()

    @property
    def _seq(self) -> int:
        """The number of the file that is written; a higher one may have been given to one that failed."""
        return self.manifest.incr_seq + 1 if self.state == WAITING else self.manifest.incrs[-1].seq

    def _begin_file(self, file: DiskFile, seq: int) -> int:
        """Write what a file of batches begins with, and return how many bytes that is."""
        self._sealed = True
        if not self.checksums:
            return 0
        head = batch(b"", offset=0, synced=0, seq=seq)
        write_all(file, head)
        file.sync()
        return len(head)

    def start_waiting(self, engine: Engine) -> None:
        """Take the engine's changes as soon as a rewrite begins, which is to bring the base (startAppendOnly)."""
        self.manifest = self.find()
        self.state = WAITING
        self.failure = self._sync_error = None
        self.set_fsync(self.fsync)
        engine.log = self

    # -- writing -------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The bytes appended so far."""
        return self.size + len(self._kept) + self.feed.used

    @property
    def file_size(self) -> int:
        """The bytes of the current file."""
        return self.size - self._begins

    @property
    def current_size(self) -> int:
        """The bytes of all files that are in use (aof_current_size)."""
        return self.closed_size + self.file_size

    @property
    def unwritten(self) -> int:
        """The bytes that wait to be written (aof_buffer_length)."""
        return len(self._kept) + self.feed.used

    def append(self, db: int, argv: list[bytes]) -> None:
        """Take one command that changed database db (feedAppendOnlyFile). O(bytes)"""
        self.feed.select(db)
        self.feed.command(argv)

    def write(self, since: int | None = None) -> int:
        """Hand on what was appended; return the position for which replies have to wait, 0 for none. Raises nothing.

        While writes are refused nothing has to wait: what is still answered was there before. since: the position at
        which the caller's replies begin, where others may have called this meanwhile: if that failed, they wait for it.
        """
        if self._sync_error is not None and self.state == ON:
            fed = self.feed.used
            self._break(self._sync_error)
            return self.failed_at if fed else self._owed(since)
        if self.state != ON:
            if self.feed.used:
                self._write_aside()
            return self._owed(since) if self.failure is not None else self.size
        if self.failure is not None:
            return self._owed(since)
        if self.feed.used:
            self._hand_on(self._taken())
        return self.size + len(self._kept)

    def _owed(self, since: int | None) -> int:
        return self.failed_at if since is not None and since < self.failed_at else 0

    def flush(self) -> None:
        """Write what was appended, sync it under `always`; Misconf where it cannot be kept (flushAppendOnlyFile)."""
        try:
            self.wait(self.write())
        except Misconf:
            self.write()  # writes are refused from now on
            raise

    def settled(self, position: int) -> bool:
        """Whether replies may leave that wait for the position; Misconf where they never may. From any thread."""
        if position <= self.synced:
            return True
        # In this order: who breaks the log says why before he moves `size` and `state`, and forgets the error last.
        safe = position <= self.size and (self.fsync != "always" or self.relaxed or self.state != ON)
        error = self._sync_error
        failure = self.failure
        if failure is not None or error is not None:
            raise Misconf(failure or _told(error))
        return safe

    def wait(self, position: int) -> None:
        """Return once the position is as safe as the settings ask, Misconf where it never is. From any thread.

        Whoever comes first syncs for all who come meanwhile; the engine should be free for others during it.
        """
        if not self.settled(position):
            with self._syncing:
                if not self.settled(position):
                    self._sync()
            self.settled(position)

    def _taken(self) -> bytes:
        """Return what the feed holds as it is to stand in the file."""
        data = self.feed.take()
        if not self.checksums or not data:
            return data
        self._sealed = False
        seq = self._seq
        synced = max(self.synced - self._begins, 0)  # a file beside the log is not synced before its base stands
        return batch(data, offset=self.file_size + len(self._kept), synced=synced, seq=seq)

    def _seal(self) -> None:
        """Tell in the file that all of it is on the disk; it does no harm where that cannot be written."""
        assert self._file is not None
        if self.checksums and not self._sealed and self.synced == self.size:
            size = self.file_size
            try:
                write_all(self._file, batch(b"", offset=size, synced=size, seq=self._seq))
                self._file.sync()
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(size)

    def _hand_on(self, data: bytes) -> None:
        assert self._file is not None
        done = 0
        try:
            while done < len(data):
                done += self._file.write(memoryview(data)[done:] if done else data)
        except OSError as error:
            if done:
                try:
                    self._file.truncate(self.file_size)
                except OSError:
                    # Part of a command stays there; whatever is written next is the rest of it.
                    self.size += done
                    data = data[done:]
            self._kept = data
            self._fail(error)
        else:
            self._kept = b""
            self.size += len(data)

    def _write_aside(self) -> None:
        """Add to the file beside the log; where that fails the base that is being written is not worth waiting for."""
        if self._file is None:
            self._drop()
            return
        data = self._taken()
        done = 0
        try:
            while done < len(data):
                done += self._file.write(memoryview(data)[done:] if done else data)
        except OSError as error:
            self._sync_error = error
        self.size += len(data)

    def _drop(self) -> None:
        """Forget what was not written; positions count it all the same."""
        lost = len(self._kept) + len(self.feed.take())
        self._kept = b""
        self.size += lost
        self._begins += lost
        self.feed.forget_db()

    # -- failures ------------------------------------------------------------------------------------

    @property
    def collects(self) -> bool:
        """Whether all that was logged since the last `rotate` or `open_aside` is in a file."""
        return self._file is not None and self._sync_error is None

    @property
    def broken(self) -> bool:
        """Whether only a new base, written from memory, can make the log whole again."""
        return self.state == WAITING and self.failure is not None

    def _fail(self, error: OSError) -> None:
        self.failed_at = self.position
        self.failure = _told(error)
        if self.on_failure is not None:
            self.on_failure(self.failure)

    def _break(self, error: OSError) -> None:
        """Give the files up."""
        with self._syncing:
            self.failure = _told(error)
            self._drop_file()
            self._drop()
            self.state = WAITING
            self._sync_error = None
        self._fail(error)

    def _drop_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _resume(self) -> None:
        self.failure = None
        if self.on_recovery is not None:
            self.on_recovery()

    def tick(self, now: float) -> None:
        """What has to happen about once a second; `now` in seconds, by a clock that is not set back."""
        self.write()
        if self.state != ON or 0 <= now - self._looked < _SECOND:
            return
        self._looked = now
        if self.failure is not None:
            self._hand_on_again()
        elif not self.disk.exists(self._path):
            self._break(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
        if self.state == ON and not self.threads and self.fsync == "everysec":
            self.sync_soon()

    def _hand_on_again(self) -> None:
        failure, self.failure = self.failure, None
        told, self.on_failure = self.on_failure, None
        try:
            self._hand_on(self._kept + self._taken())
        finally:
            self.on_failure = told
        if self.failure is None:
            self.failure = failure
            self._resume()

    # -- files ---------------------------------------------------------------------------------------

    def rotate(self) -> None:
        """Go on in a new incremental file, the old one being on the disk (openNewIncrAofForAppend).

        OSError where that fails; the old one goes on then.
        """
        self.write()
        with self._syncing:
            if self.synced < self.size and self.failure is None:
                self._sync()
            if self._sync_error is not None or self.failure is not None or self.state != ON:
                raise self._sync_error or OSError(errno.EIO, self.failure or "the log is not open")
            made = self.manifest.with_incr(self.name)
            path = self.folder / made.incrs[-1].name
            # Where a failure leaves it in the manifest, with its beginning only, it does no harm.
            file = self.disk.create(path)
            try:
                head = self._begin_file(file, made.incr_seq)
                self._commit(made, [])
            except OSError:
                file.close()
                raise
            self._drop_file()
            self._file, self._path = file, path
            self.closed_size += self.file_size
            self._begins = self.size - head
            self.feed.forget_db()

    def open_aside(self) -> None:
        """Collect what is logged from now on beside the log, until there is a base for it; OSError where that fails."""
        with self._syncing:
            self._drop_file()
            self._drop()
            self.state = WAITING
            self._sync_error = None
            self.disk.make_folder(self.folder)
            self._path = self.folder / self.aside
            self._file = self.disk.create(self._path)
            self._begins = self.size - self._begin_file(self._file, self.manifest.incr_seq + 1)

    def close_aside(self) -> None:
        """Forget what was collected: there is no base for it."""
        with self._syncing:
            if self.state == WAITING and self._file is not None:
                self._drop_file()
                self._sync_error = None
                with contextlib.suppress(OSError):  # the next one takes its place, or the next opening
                    self.disk.remove(self._path)

    def take_over(self, draft: str, as_rdb: bool) -> None:
        """Make the written base, and what was collected beside it, the log; OSError leaves the one that there was.

        From any thread, while nobody rotates: others may write.
        """
        keep = 1 if self.state == ON else 0
        made = self.manifest.with_base(self.name, as_rdb, keep)
        assert made.base is not None
        moves = [(draft, made.base.name)]
        base_size = self.disk.size(self.folder / draft)
        if self.state != WAITING:
            self._commit(made, moves)
        else:
            made = made.with_incr(self.name)
            moves.append((self.aside, made.incrs[-1].name))
            with self._syncing:
                self._sync()
                if self._file is None or self._sync_error is not None:
                    raise self._sync_error or OSError(errno.EIO, os.strerror(errno.EIO))
                self._commit(made, moves)
                self._path = self.folder / made.incrs[-1].name
                self.state = ON
        self.closed_size = base_size
        self.base_size = self.current_size if self.state == ON else base_size

    def _commit(self, made: AofManifest, moves: list[tuple[str, str]]) -> None:
        """Put the manifest in force. One that fails may be on the disk all the same: no name in it is given again."""
        try:
            commit(self.path, made, moves, self.disk)
        except OSError:
            known = {file.name for file in self.manifest.files}
            orphans = tuple(replace(file, type="h") for file in made.files if file.name not in known)
            self.manifest = replace(self.manifest, base_seq=made.base_seq, incr_seq=made.incr_seq,
                                    history=(*orphans, *self.manifest.history))  # fmt: skip
            raise
        self.manifest = made

    def resumed(self) -> None:
        """Let writes be taken again after a base made the log whole; by whoever holds the engine.

        Bytes that could not be written are not in a base that was begun before them: they still wait.
        """
        if self.failure is not None and self.state == ON and not self._kept:
            self._resume()

    def remove_history(self) -> None:
        """Remove the files that are in no more use (aofDelHistoryFiles); from any thread, while nobody rotates."""
        if self.manifest.history:
            for file in self.manifest.history:
                self.disk.remove(self.folder / file.name)
            made = self.manifest.without_history()
            commit(self.path, made, [], self.disk)
            self.manifest = made

    # -- syncing -------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Sync what was written before; `_syncing` is held. After a failure nothing is tried again."""
        file, size = self._file, self.size
        if file is None or self._sync_error is not None:
            return
        try:
            file.sync()
        except OSError as error:
            self._sync_error = error
        else:
            self.synced = size

    def sync_soon(self) -> None:
        """Have it synced; `on_synced` tells when it is. At once where there are no threads."""
        if self.threads:
            if self._syncer is None:
                self._start_syncer()
            self._wake.set()
        else:
            self._sync_if_needed()

    def _sync_if_needed(self) -> None:
        with self._syncing:
            if self.synced < self.size:
                self._sync()
        if self.on_synced is not None:
            self.on_synced()

    def set_fsync(self, policy: str) -> None:
        """Change when the log is synced: always, everysec or no."""
        self.fsync = policy
        if policy == "everysec" and self.threads and self.state != OFF:
            self._start_syncer()
            self._wake.set()

    def _start_syncer(self) -> None:
        if self._syncer is None:
            self._stopping = False
            self._syncer = threading.Thread(target=self._sync_again_and_again, name="rillet-fsync", daemon=True)
            self._syncer.start()

    def _sync_again_and_again(self) -> None:
        while True:
            asked = self._wake.wait(_SECOND if self.fsync == "everysec" else None)
            self._wake.clear()
            if self._stopping:
                return
            if asked or not self.relaxed:
                self._sync_if_needed()

    def _stop_syncer(self) -> None:
        if self._syncer is not None:
            self._stopping = True
            self._wake.set()
            self._syncer.join()
            self._syncer = None

    # -- the end -------------------------------------------------------------------------------------

    def descriptors(self) -> list[int]:
        """Return the numbers of the open files."""
        return [self._file.fileno()] if self._file is not None and self._file.fileno() >= 0 else []

    def close(self) -> None:
        """Write and sync the rest, and let go of the file; a second call does nothing (stopAppendOnly).

        Misconf where that fails and nobody was told before.
        """
        if self.state == OFF:
            return
        self._stop_syncer()
        known = self.failure
        if self.state == ON and self._sync_error is None:
            if known is not None:
                self._hand_on_again()
            self.write()
            if self.failure is None:
                with self._syncing:
                    if self.synced < self.size:
                        self._sync()
                    if self._sync_error is None:
                        self._seal()
        error = self._sync_error
        self.close_aside()
        self.state = OFF
        self._drop_file()
        self._drop()
        if error is not None and self.failure is None:
            self._fail(error)
        if self.failure is not None and self.failure != known:
            raise Misconf(self.failure)


def _told(error: OSError | None) -> str:
    assert error is not None
    return f"Errors writing to the AOF file: {error.strerror or error}"


__all__ = ["OFF", "ON", "WAITING", "AppendOnlyLog", "LoadResult", "TornLog"]
