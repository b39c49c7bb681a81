"""The directory of a durable store: its files, its owner, and how another process finds the owner.

    events.rillet/
      rillet.json       {"format": 1, "written_by": "0.1.0"}      the marker: this is a store
      lock              held (flock) by the process that owns the store, until it ends
      owner.json        {"pid": ..., "socket": "...", ...}        where the owner listens (persistence.announcement)
      socket            the owner's Unix socket (in a temporary folder if the path would exceed 107 bytes)
      appendonlydir/    the log, in Redis's layout (persistence.aof)
      owner.log         warnings of an owner process (store.sharing.owner_process); absent if there are none
      dump.rdb          the snapshot that Store.save() and BGSAVE write; read only if there is no log

The operating system releases the lock when its holder ends, even by a crash. So no manual cleanup is necessary: the
next process that opens the store gets the lock, replays the log and becomes the owner.

`rillet serve` on the directory locks the log only, and writes owner.json: `rillet.open` attaches to it. A redis-server
locks nothing (persistence.foreign_server): `lock` raises StoreBusy if one uses a folder that is no store yet, before it
writes anything, or if one writes the log of a store; SAVE and BGSAVE refuse to replace the RDB file of one without a
log.

The folder may be renamed while the store is open: the lock goes with it, and another process may create a new folder
under the old name. So `unlock` removes files only if the path still leads to the locked folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import time
from pathlib import Path

import rillet
from rillet.errors import NewerFormat, NotAStore, StoreBusy, StoreError
from rillet.persistence.announcement import NAME as OWNER
from rillet.persistence.announcement import Announcement, announce, announced, check_version, is_announced
from rillet.persistence.aof.log import CHECK_SECONDS
from rillet.persistence.directory_lock import DirectoryLock, LogLocked
from rillet.persistence.disk import REAL
from rillet.persistence.file_lock import close_lock, holder, open_to_lock, try_lock
from rillet.persistence.foreign_server import reject_foreign_server, reject_writer

FORMAT = 1
MARKER = "rillet.json"
LOG_FOLDER = "appendonlydir"
# The log file of a redis-server before 7.0, which becomes the base file of a new log when the store is first opened.
SINGLE_FILE = "appendonly.aof"
_DRAFTS = (f".{MARKER}.", f".{OWNER}.")
_SOCKET_FOLDER = "rillet-"
_LONGEST_SOCKET_PATH = 107  # bytes of sockaddr_un.sun_path in C, minus the final null byte


class Directory:
    """The folder of a store. The constructor checks the folder; `lock` makes this process the owner.

    create: create the folder in an existing one, and accept an empty one; if False, the store must exist.
    """

    def __init__(self, path: str | os.PathLike[str], snapshot: str = "dump.rdb", create: bool = True) -> None:
        self.path = Path(path).absolute()
        # The RDB file that a folder without a log begins with.
        self.snapshot = self.path / snapshot if snapshot else None
        self._lock = -1
        self.log_lock = DirectoryLock()
        # The PID of a previous owner that ended without closing the store.
        self.killed: int | None = None
        self._prepare(create)

    def _prepare(self, create: bool) -> None:
        """Create the folder, or check that it contains a store; raise NotAStore, NewerFormat or StoreError if not."""
        try:
            if create:
                create_folder(self.path)
            names = sorted(os.listdir(self.path))
        except (FileExistsError, NotADirectoryError):
            raise NotAStore(f"{self.path} is a file, not the directory of a store") from None
        except FileNotFoundError:
            raise NotAStore(f"{self.path} does not exist, so there is no store to open") from None
        except OSError as error:
            raise StoreError(f"{self.path} cannot be opened: {error.strerror}") from error
        if MARKER in names:
            check_marker(self.path)
        else:
            # The lock file and a temporary rillet.json may belong to another process that opens the store just now.
            strange = [name for name in names if name not in ("lock", OWNER) and not name.startswith(_DRAFTS)]
            adoptable = SINGLE_FILE in names or (self.snapshot is not None and self.snapshot.name in names)
            if strange and not adoptable and not self.redis_logs():
                raise NotAStore(
                    f"{self.path} is not a store: it has no {MARKER}, but {strange[0]!r}; pass an empty or a new "
                    "directory"
                )
            if not create and not strange:
                raise NotAStore(f"{self.path} is empty, so there is no store to open")
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise StoreError(f"{self.path} cannot be written: this user has no permission")

    def redis_logs(self) -> list[str]:
        """Return the names of the logs in the folder. A folder without a marker may hold a redis-server's log."""
        try:
            found = sorted(os.listdir(self.path / LOG_FOLDER))
        except (FileNotFoundError, NotADirectoryError):
            return []
        # A manifest whose name starts with "temp-" was never completed, so it is ignored (persistence.aof.manifest).
        return [name.removesuffix(".manifest") for name in found
                if name.endswith(".manifest") and not name.startswith("temp-")]  # fmt: skip

    # -- ownership -------------------------------------------------------------------------------------

    def lock(self) -> bool:
        """Try to become the owner; return False if another process or another store of this process is the owner.

        StoreBusy: a server writes the log, or a redis-server uses the folder.
        """
        log = self.path / LOG_FOLDER
        is_new = not log.exists()
        begun = (self.path / "lock").exists()
        if not begun:  # before the lock file is created in a redis-server's folder
            reject_foreign_server(self.path, log)
        if not self._lock_file():
            return False
        try:
            if log.exists():
                self.log_lock.acquire(log)
            if begun:
                reject_writer(self.path, log)
            before = self.owner()
            self.killed = before[0] if before is not None else None
            self._remove_leavings()
            if not (self.path / MARKER).exists():
                self._write(MARKER, {"format": FORMAT, "written_by": rillet.__version__})
                REAL.sync_folder(self.path)
            self.claim_log()
        except StoreBusy:
            self._unlock()
            raise
        except OSError as error:
            self.unlock()
            raise StoreError(f"{self.path} cannot be written: {error.strerror}") from error
        except BaseException:
            self._unlock()
            raise
        if is_new:
            # If the previous folder of this name was renamed, its owner has noticed that when this method returns.
            time.sleep(CHECK_SECONDS)
        return True

    def _lock_file(self) -> bool:
        """Lock the lock file, and create it if necessary; return False if it is locked."""
        try:
            handle = open_to_lock(lambda: os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644))
        except OSError as error:
            raise StoreError(f"{self.path}/lock cannot be opened: {error.strerror}") from error
        try:
            locked = try_lock(handle)
        except OSError as error:
            close_lock(handle)
            raise StoreError(f"{self.path}/lock cannot be locked: {error.strerror}") from error
        if locked:
            self._lock = handle
        else:
            close_lock(handle)
        return locked

    def claim_log(self) -> None:
        """Lock the log's folder, as a server does; call this again after the folder was removed and created again."""
        self.log_lock.acquire(self.path / LOG_FOLDER)

    def _remove_leavings(self) -> None:
        """Remove the files of an owner that was killed: its socket, owner.json and incomplete temporary files."""
        owner = announced(self.path)
        if owner is not None and not owner.is_server:
            _remove_socket(self.socket_of(owner), self.path)
        (self.path / OWNER).unlink(missing_ok=True)
        for name in os.listdir(self.path):
            if name.startswith(_DRAFTS):
                (self.path / name).unlink(missing_ok=True)

    def unlock(self) -> None:
        """Let another process become the owner; do nothing if this process is not the owner."""
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                if self.is_here():
                    self._remove_leavings()
            self._unlock()

    def is_here(self) -> bool:
        """Return whether the path leads to the folder that this process locked."""
        try:
            return os.path.samestat(os.stat(self.path / "lock"), os.fstat(self._lock))
        except OSError:
            return False

    def _unlock(self) -> None:
        self.log_lock.release()
        if self._lock >= 0:
            close_lock(self._lock)
        self._lock = -1

    def forget_in_child(self) -> None:
        """Close a forked child's copy of the lock, so that only the parent holds it."""
        if self._lock >= 0:
            self._unlock()

    def socket_path(self) -> Path:
        """Return a path for the owner's socket: in the store's folder, or a temporary one if the path is too long."""
        here = self.path / "socket"
        if len(os.fsencode(here)) <= _LONGEST_SOCKET_PATH:
            return here
        return Path(tempfile.mkdtemp(prefix=_SOCKET_FOLDER)) / "socket"

    def announce(self, socket: Path, separate: bool = False) -> None:
        """Write owner.json, in which other processes find the socket of this owner."""
        announce(self.path, Announcement(os.getpid(), str(socket), separate=separate))

    def withdraw(self) -> None:
        """Remove owner.json and the socket's path, so that no other process can attach."""
        if self.is_here():
            self._remove_leavings()

    def announced(self) -> Announcement | None:
        """Return the content of owner.json, None if it is missing or invalid."""
        return announced(self.path)

    def is_announced(self, owner: Announcement) -> bool:
        """Return whether owner.json still names this owner."""
        return is_announced(self.path, owner)

    def check_version(self, owner: Announcement) -> None:
        """Raise IncompatibleOwner if the owner and this process cannot work together."""
        check_version(self.path, owner)

    def owner(self) -> tuple[int, str] | None:
        """Return (pid, socket path) of the owner from owner.json, or None if that file is missing or invalid."""
        found = announced(self.path)
        return None if found is None else (found.pid, str(self.socket_of(found)))

    def socket_of(self, owner: Announcement) -> Path:
        """Return the path of an owner's socket, also if the folder was renamed since the owner opened it."""
        socket, here = Path(owner.socket), self.path / "socket"
        return here if not owner.is_server and here.exists() else socket

    def log_is_locked(self) -> bool:
        """Return whether another process, or another store of this process, holds the lock of the log."""
        lock = DirectoryLock()
        try:
            if (self.path / LOG_FOLDER).exists():
                lock.acquire(self.path / LOG_FOLDER)
        except LogLocked:
            return True
        except OSError:
            return False
        finally:
            lock.release()
        return False

    def server(self) -> Announcement | None:
        """Return the announcement of the server that serves the directory, None if there is none."""
        found = announced(self.path)
        return found if found is not None and found.is_server else None

    def holder(self) -> int | None:
        """Return the PID of the process that holds the lock, or None if the operating system does not report it."""
        try:
            handle = os.open(self.path / "lock", os.O_RDONLY)
        except OSError:
            return None
        try:
            return holder(handle)
        finally:
            os.close(handle)

    def _write(self, name: str, content: dict[str, object]) -> None:
        draft = self.path / f".{name}.{os.getpid()}"
        draft.write_text(json.dumps(content) + "\n", encoding="utf-8")
        os.replace(draft, self.path / name)


def create_folder(path: Path) -> None:
    """Create a folder in an existing one, if it does not exist; see `check_parents`."""
    if not path.is_dir():
        check_parents(path)
        path.mkdir(exist_ok=True)


def check_parents(path: Path) -> None:
    """Raise StoreError if the folder of a path is missing; it names the first folder that is. OSError.

    As in sqlite3, missing folders are not created: a misspelled path, or a disk that is not mounted, would look like an
    empty store.
    """
    for folder in reversed(path.parents):
        try:
            if not stat.S_ISDIR(os.stat(folder).st_mode):
                raise NotAStore(f"{path} cannot be created: {folder} is a file, not the directory of a store")
        except FileNotFoundError:
            raise StoreError(
                f"{path} cannot be created: {folder} does not exist; create the folder first, or correct the path"
            ) from None


def check_marker(path: Path) -> None:
    """Check a folder's rillet.json; raise NotAStore if it is damaged, NewerFormat if this rillet is too old."""
    marker = path / MARKER
    try:
        found = json.loads(marker.read_bytes())
        number = found["format"]
        if type(number) is not int or number < 1:
            raise ValueError(number)
    except OSError as error:
        raise StoreError(f"{marker} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        at = error.pos if isinstance(error, json.JSONDecodeError) else getattr(error, "start", 0)
        raise NotAStore(
            f'{marker}: offset {at}: {{"format": 1, ...}} expected: the marker of the store is damaged. If the folder '
            f"{LOG_FOLDER} beside it is intact, remove {MARKER}: the next opening writes a new one"
        ) from None
    if number > FORMAT:
        raise NewerFormat(
            f"{path} has format {number}, written by rillet {found.get('written_by', '?')}; rillet "
            f"{rillet.__version__} reads formats up to {FORMAT}: upgrade rillet to open it"
        )


def _remove_socket(socket: Path, home: Path) -> None:
    """Remove an owner's socket, and its temporary folder if it is outside of the store's folder."""
    socket.unlink(missing_ok=True)
    folder = socket.parent
    if folder != home and folder.name.startswith(_SOCKET_FOLDER):
        with contextlib.suppress(OSError):
            folder.rmdir()
