"""The directory of a durable store: what lies in it, who owns it, how another process finds the owner.

    events.rillet/
      rillet.json       {"format": 1, "written_by": "0.1.0"}      the marker: this is a store
      lock              held (flock) by the process that owns the store, for as long as it lives
      owner.json        {"pid": ..., "socket": "..."}             where the owner listens
      socket            the owner's Unix socket (in a temporary folder where the path would exceed 107 bytes)
      appendonlydir/    the log, in Redis's layout (persistence.aof)

The operating system gives the lock back when its holder ends, however it ends, so a crash leaves
nothing to clean up: the next opener gets the lock, replays the log and owns the store.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

import rillet
from rillet.errors import NewerFormat, NotAStore, StoreBusy, StoreError
from rillet.persistence.directory_lock import DirectoryLock
from rillet.persistence.disk import REAL
from rillet.persistence.file_lock import holder, try_lock

FORMAT = 1
MARKER = "rillet.json"
LOG_FOLDER = "appendonlydir"
# The log of a redis-server before 7.0, which the first opening makes the base of its own (AppendOnlyLog).
SINGLE_FILE = "appendonly.aof"
_SOCKET_FOLDER = "rillet-"
_LONGEST_SOCKET_PATH = 107  # sizeof(sockaddr_un.sun_path) less its terminator


class Directory:
    """A store's folder, checked and ready; `lock` makes this process the owner."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._lock = -1
        self.log_lock = DirectoryLock()
        # The number of the process that owned the store before and did not close it.
        self.killed: int | None = None
        self._prepare()

    def _prepare(self) -> None:
        """Make the folder a store, or see that it is one; raises NotAStore, NewerFormat or StoreError."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            names = sorted(entry.name for entry in self.path.iterdir())
        except (FileExistsError, NotADirectoryError):
            raise NotAStore(f"{self.path} is a file, not the directory of a store") from None
        except OSError as error:
            raise StoreError(f"{self.path} cannot be opened: {error.strerror}") from error
        if MARKER in names:
            check_marker(self.path)
        else:
            # What another opener of this moment may have made, before its marker.
            strange = [name for name in names if name != "lock" and not name.startswith(f".{MARKER}.")]
            if strange and not self.redis_logs() and SINGLE_FILE not in names:
                raise NotAStore(
                    f"{self.path} is not a store: it has no {MARKER}, but {strange[0]!r}; give an empty or a new "
                    "directory"
                )
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise StoreError(f"{self.path} cannot be written by this user")

    def redis_logs(self) -> list[str]:
        """Return the names of the logs that lie here; redis-server's is adopted where there is no marker yet."""
        found = sorted(one.name for one in (self.path / LOG_FOLDER).glob("*.manifest"))
        # One that was being written when a process ended is not in force (persistence.manifest).
        return [name.removesuffix(".manifest") for name in found if not name.startswith("temp-")]

    # -- owning ----------------------------------------------------------------------------------------

    def lock(self) -> bool:
        """Become the owner if nobody is; False where another opener (here or elsewhere) is."""
        try:
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"{self.path}/lock cannot be opened: {error.strerror}") from error
        try:
            locked = try_lock(handle)
        except OSError as error:
            os.close(handle)
            raise StoreError(f"{self.path}/lock cannot be locked: {error.strerror}") from error
        if not locked:
            os.close(handle)
            return False
        self._lock = handle
        try:
            if (self.path / LOG_FOLDER).exists():
                self.log_lock.take(self.path / LOG_FOLDER)
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
        return True

    def claim_log(self) -> None:
        """Lock the log's folder, too, which servers lock; once more where it was removed and made anew."""
        self.log_lock.take(self.path / LOG_FOLDER)

    def _remove_leavings(self) -> None:
        """Remove what an owner that was killed left behind."""
        owner = self.owner()
        if owner is not None:
            _remove_socket(Path(owner[1]), self.path)
        (self.path / "owner.json").unlink(missing_ok=True)
        for draft in [*self.path.glob(f".{MARKER}.*"), *self.path.glob(".owner.json.*")]:
            draft.unlink(missing_ok=True)

    def unlock(self) -> None:
        """Let another process own the store; nothing where this one does not."""
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                self._remove_leavings()
            self._unlock()

    def _unlock(self) -> None:
        self.log_lock.release()
        os.close(self._lock)
        self._lock = -1

    def forget_in_child(self) -> None:
        """After a fork: the lock is the parent's alone, for as long as the parent lives."""
        if self._lock >= 0:
            self._unlock()

    def socket_path(self) -> Path:
        """Return where the owner is to listen: here, or in a new temporary folder where this path is too long."""
        here = self.path / "socket"
        if len(os.fsencode(here)) <= _LONGEST_SOCKET_PATH:
            return here
        return Path(tempfile.mkdtemp(prefix=_SOCKET_FOLDER)) / "socket"

    def announce(self, socket: Path) -> None:
        """Tell other openers where this owner listens."""
        self._write("owner.json", {"pid": os.getpid(), "socket": str(socket)})

    def owner(self) -> tuple[int, str] | None:
        """Return the owner's (pid, socket path), or None while it has not announced itself."""
        try:
            found = json.loads((self.path / "owner.json").read_bytes())
            return int(found["pid"]), str(found["socket"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def holder(self) -> int | None:
        """Return the process that holds the lock, as the system tells it; None where it does not."""
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


def check_marker(path: Path) -> None:
    """See that the folder's marker is one that is read here; NotAStore tells its file and offset, NewerFormat whose."""
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
            f'{marker}: offset {at}: {{"format": 1, ...}} expected, the marker of a store is damaged. Where '
            f"{LOG_FOLDER} beside it is whole, remove {MARKER}: the next opening writes a new one"
        ) from None
    if number > FORMAT:
        raise NewerFormat(
            f"{path} has format {number}, written by rillet {found.get('written_by', '?')}; rillet "
            f"{rillet.__version__} reads formats up to {FORMAT}: upgrade rillet to open it"
        )


def _remove_socket(socket: Path, home: Path) -> None:
    """Remove an owner's socket, and the temporary folder that was made for it where it is not in its store."""
    socket.unlink(missing_ok=True)
    folder = socket.parent
    if folder != home and folder.name.startswith(_SOCKET_FOLDER):
        with contextlib.suppress(OSError):
            folder.rmdir()
