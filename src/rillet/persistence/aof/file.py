"""The incremental file that a log appends to: frames, partial writes, the final frame.

With `aof-checksums yes` each write is one frame (rillet.persistence.aof.frames), and the file begins with an empty
frame that is synced before a manifest names the file. Otherwise the file is plain RESP, as Redis writes it.

`size` counts the bytes that the operating system has, `synced` the bytes that are on the disk.

This module and log.py are compiled, so that no interrupt (KeyboardInterrupt ...) comes between a write and its count.

The file belongs to one process. `obstacle` compares the size of the file at its path with `size`, by one call of stat.
It detects bytes of another process (a redis-server takes no lock), and a file or folder that was removed or renamed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from rillet._cython import cython
from rillet.persistence.aof.failures import LogTakenOver
from rillet.persistence.aof.frames import frame
from rillet.persistence.disk import Disk, DiskFile, write_all


class AofFile:
    """One incremental file, open for appending; `seq` is its number in the manifest."""

    __slots__ = ("_checksums", "_file", "_sealed", "path", "seq", "size", "synced")

    def __init__(self, file: DiskFile, path: Path, *, seq: int, checksums: bool, size: int = 0) -> None:
        self._file = file
        self.path = path
        self.seq = seq
        self.size = self.synced = size
        self._checksums = checksums
        self._sealed = True  # True: the last frame states that all bytes before it are synced
        if not size:
            try:
                self._begin()
            except OSError:
                file.close()
                raise

    @classmethod
    def create(cls, disk: Disk, path: Path, *, seq: int, checksums: bool) -> AofFile:
        """Create an empty file, or replace the file that has this path; OSError."""
        return cls(disk.create(path), path, seq=seq, checksums=checksums)

    @classmethod
    def append_to(cls, disk: Disk, path: Path, *, seq: int, checksums: bool) -> AofFile:
        """Open the file at its end; create it if it does not exist. OSError."""
        file = disk.append_to(path)
        return cls(file, path, seq=seq, checksums=checksums, size=disk.size(path))

    def _begin(self) -> None:
        if self._checksums:
            head = frame(b"", offset=0, synced=0, seq=self.seq)
            write_all(self._file, head)
            self._file.sync()
            self.size = self.synced = len(head)

    def frame(self, data: bytes, unwritten: int = 0) -> bytes:
        """Return the data as one frame (unchanged without checksums); `unwritten` bytes will be written before it."""
        if not self._checksums or not data:
            return data
        self._sealed = False
        return frame(data, offset=self.size + unwritten, synced=self.synced, seq=self.seq)

    def append(self, data: bytes) -> tuple[int, OSError | None]:
        """Write the data; return the number of bytes that the file keeps, and the error that stopped the write.

        After an error a partial write is truncated, so that the file ends with a whole command. If that fails too,
        the file keeps the partial write, and the next write must supply the remaining bytes.
        """
        file = self._file
        done: cython.Py_ssize_t = 0
        try:
            done = file.write(data)
            while done < len(data):
                done += file.write(memoryview(data)[done:])
        except OSError as error:
            if done:
                try:
                    if self._file.size_at(self.path) == self.size + done:  # else another process wrote here
                        self._file.truncate(self.size)
                        done = 0
                except OSError:
                    pass
                self.size += done
            return done, error
        self.size += done
        return done, None

    def obstacle(self) -> OSError | None:
        """Return why writes to this file must stop, if it is not at its path as this process left it."""
        try:
            size = self._file.size_at(self.path)
            if size == self.size:
                return None
            if size >= 0:
                return self._written_by_others(size)
            removed = self._file.is_removed()
        except OSError as error:
            return error
        if removed:
            return FileNotFoundError(errno.ENOENT, f"{os.strerror(errno.ENOENT)}: {self.path} was removed")
        return LogTakenOver(f"{self.path} was renamed or replaced while the store was open; writes are accepted again "
                            "when it is back under this name")  # fmt: skip

    def _written_by_others(self, size: int) -> LogTakenOver:
        return LogTakenOver(f"another process writes to {self.path}, which has {size} bytes instead of {self.size}; "
                            "end one of the two processes, and open the store again")  # fmt: skip

    def sync(self) -> None:
        """Sync all bytes written so far to the disk; OSError if that fails."""
        size = self.size
        self._file.sync()
        self.synced = size

    def seal(self) -> None:
        """Append an empty frame, which states that the whole file is synced; ignore errors: the frame is optional."""
        if self._checksums and not self._sealed and self.synced == self.size:
            try:
                write_all(self._file, frame(b"", offset=self.size, synced=self.size, seq=self.seq))
                self._file.sync()
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(self.size)

    def close(self) -> None:
        """Close the file without syncing it."""
        self._file.close()

    def fileno(self) -> int:
        """Return the file descriptor; -1 if there is none, as on a simulated disk."""
        return self._file.fileno()
