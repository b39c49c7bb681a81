"""A simulated disk that records every call, loses unsynced data, and fails on request.

It implements the calls of rillet.persistence.disk. Without faults it is a file system in memory, and each call that
changes something is one operation of the journal:

    make_folder  create  write  truncate  sync  rename  remove  sync_folder      and notes, which the test adds

`PowerLoss` walks along the journal and returns, for any number of operations, the possible disk contents after a power
loss at that point. Unsynced data may survive in any combination:

    data      each sector (512 bytes) of a file is written or not, independent of the order of the writes, in its state
              after any of the writes to it. The file may have grown over missing sectors, which contain zeroes or old
              disk contents
    names     the folder has the first few of its changes, or (harder) any subset of them: a rename may survive without
              the file's data

    journal   write A   write B   sync   write C   write D  |  power loss
    file      AAAAAAAAAABBBBBBBBBB       CCCCCCCC  DDDDDDDD    in the kernel
              AAAAAAAAAABBBBBBBBBB       CC?0000000DDDD        one of many possible disk contents

After a failed sync the kernel considers those pages written: a later sync, even if it succeeds, writes only the sectors
that were written again. With `evicts` the kernel also drops the pages, so that a reader sees the disk's contents.

All randomness comes from one seed, so a failure can be repeated.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, NamedTuple

from rillet.persistence.disk import Disk, DiskFile

SECTOR = 512
FOREVER = 1 << 62


class Operation(NamedTuple):
    """One entry of the journal: the call, the name, the file's number, and the bytes or the size."""

    kind: str
    path: str
    file: int = -1
    at: int = 0
    data: bytes = b""
    target: str = ""
    note: Any = None

    def __str__(self) -> str:
        about = {
            "write": f" {len(self.data)} bytes at {self.at}", "truncate": f" to {self.at}",
            "rename": f" to {self.target}", "note": f" {self.note}",
        }  # fmt: skip
        return f"{self.kind} {self.path}{about.get(self.kind, '')}"


@dataclass
class Fault:
    """Calls that fail: those of a kind (or any), from the at-th on (the next one is 0), so many times.

    A write may put some bytes down before: `short` of them, the first time; error 0 is a short write without an error.
    """

    error: int
    kinds: frozenset[str] = frozenset()
    at: int = 0
    times: int = 1
    short: int = 0
    told: int = field(default=0, init=False)

    def strikes(self, kind: str) -> bool:
        """Count the call and return whether it fails."""
        if self.kinds and kind not in self.kinds:
            return False
        if self.at > 0:
            self.at -= 1
            return False
        if self.told >= self.times:
            return False
        self.told += 1
        return True


class Killed(BaseException):
    """The process ends here as by kill -9: none of its cleanup reaches the disk."""


class _SimulatedFile:
    """An open file; it stays the same file when its name changes or is removed."""

    def __init__(self, disk: SimulatedDisk, path: str, number: int) -> None:
        self._disk = disk
        self._path = path
        self._number = number

    def write(self, data: bytes | bytearray | memoryview) -> int:
        return self._disk._write(self._path, self._number, bytes(data))

    def sync(self) -> None:
        self._disk._sync(self._path, self._number)

    def truncate(self, size: int) -> None:
        self._disk._truncate(self._path, self._number, size)

    def close(self) -> None:
        self._number = -1

    def fileno(self) -> int:
        return -1

    def size_at(self, path: Path) -> int:
        is_there = self._disk.names_of.get(str(path)) == self._number
        return len(self._disk.contents[self._number]) if is_there else -1

    def is_removed(self) -> bool:
        return self._number not in self._disk.names_of.values()


class SimulatedDisk(Disk):
    """Files in memory, a journal of their changes, and planned failures of calls."""

    __slots__ = ("calls", "contents", "evicts", "faults", "folders", "journal", "kill_in", "names_of", "unsynced")

    def __init__(self, files: dict[str, bytes] | None = None, folders: Iterable[str] = ("/",)) -> None:
        self.folders = set(folders)
        self.names_of: dict[str, int] = {}
        self.contents: list[bytearray] = []
        self.journal: list[Operation] = []
        self.faults: list[Fault] = []
        # The number of calls that may fail; a fault is planned for one of these numbers.
        self.calls = 0
        # The number of calls before the process is killed; -1: never.
        self.kill_in = -1
        self.evicts = False
        self.unsynced: dict[int, bytes] = {}
        for path, data in (files or {}).items():
            self.names_of[path] = len(self.contents)
            self.contents.append(bytearray(data))

    # -- faults ----------------------------------------------------------------------------------------

    def fail(self, error: int, *kinds: str, at: int = 0, times: int = 1, short: int = 0) -> Fault:
        """Plan failures of calls (see Fault); FOREVER lasts until `works`."""
        fault = Fault(error, frozenset(kinds), at, times, short)
        self.faults.append(fault)
        return fault

    def works(self) -> None:
        """Remove the planned faults."""
        self.faults.clear()

    def _call(self, kind: str, path: str) -> Fault | None:
        """Count a call and raise its planned fault; the caller performs a short write."""
        self.calls += 1
        if self.kill_in >= 0:
            if not self.kill_in:
                raise Killed
            self.kill_in -= 1
        for fault in [fault for fault in self.faults if fault.strikes(kind)]:
            if kind == "write" and fault.short:
                return fault
            raise _error(fault.error, path)
        return None

    # -- files that are open ---------------------------------------------------------------------------

    def _write(self, path: str, number: int, data: bytes) -> int:
        if number < 0:
            raise _error(9, path)
        fault = self._call("write", path)
        if fault is not None:
            data = data[: fault.short]
            fault.short = 0
            if fault.error:
                fault.told -= 1  # the next write finds no space at all
        content = self.contents[number]
        if self.evicts and number not in self.unsynced:
            self.unsynced[number] = bytes(content)
        self.journal.append(Operation("write", path, number, len(content), data))
        content += data
        return len(data)

    def _sync(self, path: str, number: int) -> None:
        if number < 0:
            raise _error(9, path)
        try:
            self._call("sync", path)
        except OSError:
            self.journal.append(Operation("sync_failed", path, number))
            before = self.unsynced.pop(number, None)
            if before is not None:
                content = self.contents[number]
                content[:] = before[: len(content)].ljust(len(content), b"\0")
            raise
        self.unsynced.pop(number, None)
        self.journal.append(Operation("sync", path, number))

    def _truncate(self, path: str, number: int, size: int) -> None:
        if number < 0:
            raise _error(9, path)
        self._call("truncate", path)
        content = self.contents[number]
        self.journal.append(Operation("truncate", path, number, size))
        del content[size:]
        content.extend(bytes(size - len(content)))

    # -- the calls of Disk -----------------------------------------------------------------------------

    def append_to(self, path: Path) -> DiskFile:
        """Open a file to write at its end; create it if it does not exist."""
        return self._open(str(path), False)

    def create(self, path: Path) -> DiskFile:
        """Open an empty file for writing, replacing an existing one."""
        return self._open(str(path), True)

    def _open(self, path: str, empty: bool) -> DiskFile:
        if path in self.folders:
            raise _error(21, path)
        number = self.names_of.get(path)
        if number is None:
            self._call("create", path)
            self._needs_folder(path)
            number = self.names_of[path] = len(self.contents)
            self.contents.append(bytearray())
            self.journal.append(Operation("create", path, number))
        else:
            self._call("open", path)
            if empty and self.contents[number]:
                self.journal.append(Operation("truncate", path, number, 0))
                self.contents[number].clear()
        return _SimulatedFile(self, path, number)

    def read_from(self, path: Path) -> BinaryIO:
        """Open a file to read."""
        self._call("read", str(path))
        return io.BytesIO(bytes(self.contents[self._find(str(path))]))

    def read_at(self, file: BinaryIO, offset: int, size: int) -> bytes:
        """Read from a place of an open file."""
        file.seek(offset)
        return file.read(size)

    def exists(self, path: Path) -> bool:
        """Return whether a file or folder with this name exists."""
        return str(path) in self.names_of or str(path) in self.folders

    def size(self, path: Path) -> int:
        """Return the file's size in bytes."""
        return len(self.contents[self._find(str(path))])

    def identity(self, path: Path) -> tuple[int, int] | None:
        """Return the number of the file or folder at the path, None if there is none."""
        number = self.names_of.get(str(path), 0 if str(path) in self.folders else None)
        return None if number is None else (0, number)

    def names(self, folder: Path) -> list[str]:
        """Return the names in the folder, none if it does not exist."""
        if str(folder) in self.names_of or _folder(str(folder)) in self.names_of:
            raise _error(20, str(folder))
        return sorted(
            os.path.basename(path) for path in [*self.names_of, *self.folders] if _folder(path) == str(folder) != path
        )

    def make_folder(self, path: Path) -> None:
        """Create the folder and its missing parents."""
        for one in [*reversed(path.parents), path]:
            if str(one) in self.names_of:
                raise _error(17 if one == path else 20, str(one))
            if str(one) not in self.folders:
                self._call("make_folder", str(one))
                self.folders.add(str(one))
                self.journal.append(Operation("make_folder", str(one)))

    def rename(self, old: Path, new: Path) -> None:
        """Rename the file atomically, replacing an existing file."""
        self._call("rename", str(old))
        self._needs_folder(str(old))
        self._needs_folder(str(new))
        number = self._find(str(old))
        if str(new) in self.folders:
            raise _error(21, str(new))
        if old != new:
            self.names_of[str(new)] = self.names_of.pop(str(old))
            self.journal.append(Operation("rename", str(old), number, target=str(new)))

    def remove(self, path: Path) -> None:
        """Remove the file if it exists."""
        if str(path) in self.folders:
            raise _error(21, str(path))
        if str(path) in self.names_of:
            self._call("remove", str(path))
            self.journal.append(Operation("remove", str(path), self.names_of.pop(str(path))))
        elif _folder(str(path)) in self.names_of:
            raise _error(20, str(path))

    def truncate(self, path: Path, size: int) -> None:
        """Truncate a file that is not open for writing; durable on return."""
        number = self._find(str(path))
        self._truncate(str(path), number, size)
        self._sync(str(path), number)

    def sync_folder(self, folder: Path) -> None:
        """Make the folder's entries durable."""
        self._call("sync_folder", str(folder))
        if str(folder) not in self.folders:
            self._find(str(folder))
        self.journal.append(Operation("sync_folder", str(folder)))

    def _find(self, path: str) -> int:
        number = self.names_of.get(path)
        if number is None:
            if path in self.folders:
                raise _error(21, path)
            self._needs_folder(path)
            raise _error(2, path)
        return number

    def _needs_folder(self, path: str) -> None:
        if _folder(path) not in self.folders:
            raise _error(20 if _folder(path) in self.names_of else 2, path)

    # -- what only tests do ----------------------------------------------------------------------------

    def note(self, note: Any) -> None:
        """Add a note to the journal about the progress so far."""
        self.journal.append(Operation("note", "", note=note))

    def files(self) -> dict[str, bytes]:
        """Return every file's bytes as a running process sees them."""
        return {path: bytes(self.contents[number]) for path, number in self.names_of.items()}

    def changes(self) -> list[Operation]:
        """Return the operations that are visible to a running process."""
        return [one for one in self.journal if one.kind not in ("sync", "sync_failed", "sync_folder", "note")]

    def copy(self) -> SimulatedDisk:
        """Return a disk with the same contents and a new journal, as a new process finds it after a kill."""
        return SimulatedDisk(self.files(), self.folders)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _folder(path: str) -> str:
    return os.path.dirname(path)


# -- the power goes ------------------------------------------------------------------------------------


class _OnDisk:
    """A file as the disk has it: `durable` is certain, `pending` what was done since, `cache` what the kernel shows.

    `doubtful` are sectors whose sync failed: the disk has them as in `durable` or as in `cache`.
    """

    __slots__ = ("cache", "doubtful", "durable", "frozen", "pending")

    def __init__(self, data: bytes = b"") -> None:
        self.durable = bytearray(data)
        self.cache = bytearray(data)
        self.pending: list[Operation] = []
        self.doubtful: set[int] = set()
        self.frozen: bytes | None = data  # the durable bytes as an object that images share

    def take(self, operation: Operation) -> None:
        """Record a write or a truncation."""
        _apply(self.cache, operation)
        self.pending.append(operation)

    def sync(self) -> None:
        """Make all data durable, except for sectors of a failed sync that were not written again."""
        if self.doubtful:
            self.doubtful -= {sector for one in self.pending for sector in _sectors(one)}
            kept = {sector: bytes(_sector(self.durable, sector)) for sector in self.doubtful}
            self.durable[:] = self.cache
            for sector, data in kept.items():
                self._put(sector, data)
        else:
            # Writes at the end and cuts: what lies before the lowest place is as it was.
            lowest = min([len(self.durable), *(one.at for one in self.pending)])
            self.durable[lowest:] = self.cache[lowest:]
        self.pending.clear()
        self.frozen = None

    def fail(self) -> None:
        """Record a failed sync: its sectors are in doubt, and no later sync writes them."""
        for one in self.pending:
            self.doubtful.update(_sectors(one))
        before = self.durable[:]
        self.durable[:] = self.cache
        for sector in self.doubtful:
            self._put(sector, bytes(_sector(before, sector)))
        self.pending.clear()
        self.frozen = None

    def _put(self, sector: int, data: bytes) -> None:
        end = min(len(self.durable), (sector + 1) * SECTOR)
        size = max(0, end - sector * SECTOR)
        self.durable[sector * SECTOR : end] = data[:size].ljust(size, b"\0")

    def image(self, random: Random, orderly: bool) -> bytes:
        """Return possible disk contents of the file after a power loss at this point."""
        if not self.pending and not self.doubtful:
            if self.frozen is None:
                self.frozen = bytes(self.durable)
            return self.frozen
        disk = bytearray(self.durable)
        for sector in sorted(self.doubtful):
            if random.random() < 0.5:
                start = sector * SECTOR
                disk[start : start + SECTOR] = _sector(self.cache, sector)[: max(0, len(disk) - start)]
        way = random.randrange(3 if orderly else 4)
        if way == 0 or not self.pending:  # no further data was written
            return bytes(disk)
        if way == 1:  # all of it was
            for one in self.pending:
                _apply(disk, one)
            return bytes(disk)
        whole = random.randrange(len(self.pending) + 1)
        for one in self.pending[:whole]:
            _apply(disk, one)
        if whole < len(self.pending):
            if way == 2:  # in order, and torn
                _tear(disk, self.pending[whole], random)
            else:
                _scatter(disk, self.pending[whole:], random)
        return bytes(disk)


def _apply(data: bytearray, operation: Operation) -> None:
    if operation.kind == "truncate":
        del data[operation.at :]
        data.extend(bytes(operation.at - len(data)))
    else:
        data.extend(bytes(max(0, operation.at - len(data))))
        data[operation.at : operation.at + len(operation.data)] = operation.data


def _sectors(operation: Operation) -> range:
    end = operation.at + max(1, len(operation.data))
    return range(operation.at // SECTOR, (end - 1) // SECTOR + 1)


def _sector(data: bytearray, sector: int) -> bytearray:
    return data[sector * SECTOR : (sector + 1) * SECTOR]


def _tear(disk: bytearray, operation: Operation, random: Random) -> None:
    """Write a prefix that ends at any byte."""
    if operation.kind == "write":
        _apply(disk, operation._replace(data=operation.data[: random.randrange(len(operation.data) + 1)]))


def _scatter(disk: bytearray, pending: list[Operation], random: Random) -> None:
    """Write some sectors of each write in any order, each in its state after one of the writes."""
    cache = bytearray(disk)
    survives = random.choice((0.2, 0.5, 0.9))
    for one in pending:
        _apply(cache, one)
        if one.kind == "truncate":
            if random.random() < survives:
                del disk[one.at :]
            continue
        for sector in _sectors(one):
            if random.random() < survives:
                start = sector * SECTOR
                _fill(disk, start, random)
                disk[start : start + SECTOR] = _sector(cache, sector)
    if random.random() < 0.3:  # the size was written, and no data
        _fill(disk, random.randint(min(len(disk), len(cache)), len(cache)), random)


def _fill(disk: bytearray, size: int, random: Random) -> None:
    """Extend the file to the size with zeroes, random bytes or old contents."""
    disk.extend(bytes(max(0, min(size - len(disk), -len(disk) % SECTOR))))  # the rest of a sector is empty
    missing = size - len(disk)
    if missing <= 0:
        return
    way = random.randrange(3)
    if way == 0 or (way == 2 and not disk):
        disk.extend(bytes(missing))
    elif way == 1:
        disk.extend(random.randbytes(missing))
    else:
        start = random.randrange(0, len(disk), SECTOR)
        stale = bytes(disk[start : start + missing])
        disk.extend((stale * (missing // len(stale) + 1))[:missing])


class _OnDiskFolder:
    """A folder on the disk: durable names, and the changes since."""

    __slots__ = ("changes", "durable")

    def __init__(self) -> None:
        self.durable: dict[str, int] = {}
        self.changes: list[Operation] = []

    def sync(self) -> None:
        for one in self.changes:
            _rename(self.durable, one)
        self.changes.clear()

    def image(self, random: Random) -> dict[str, int]:
        """Return possible names after a power loss: after the first few changes, or after any of them."""
        if not self.changes:
            return self.durable
        found = dict(self.durable)
        if random.random() < 0.7:
            for one in self.changes[: random.randint(0, len(self.changes))]:
                _rename(found, one)
        else:
            for one in self.changes:
                if random.random() < 0.5:
                    _rename(found, one)
        return found


FOLDER = -2  # the "file" of a name that is a folder's


def _rename(names: dict[str, int], operation: Operation) -> None:
    if operation.kind == "make_folder":
        names[operation.path] = FOLDER
    elif operation.kind == "create":
        names[operation.path] = operation.file
    elif operation.kind == "remove":
        if names.get(operation.path) == operation.file:
            del names[operation.path]
    else:
        if names.get(operation.path) == operation.file:
            del names[operation.path]
        names[operation.target] = operation.file


class PowerLoss:
    """The possible disk contents after a power loss, for successive positions in the journal. O(operations) in all."""

    def __init__(self, journal: list[Operation], files: dict[str, bytes] | None = None,
                 folders: Iterable[str] = ("/",), orderly: bool = False) -> None:
        self.journal = journal
        # Whether writes are on the disk in their order, the last one torn: an ext4 with data=ordered on a good day.
        self.orderly = orderly
        self.at = 0
        self._files: dict[int, _OnDisk] = {}
        self._folders: dict[str, _OnDiskFolder] = {}
        for path in folders:
            self._folder(path)
            if path != _folder(path):
                self._folder(_folder(path)).durable[path] = FOLDER
        for number, (path, data) in enumerate((files or {}).items()):
            self._folder(_folder(path)).durable[path] = number
            self._files[number] = _OnDisk(data)

    def _folder(self, path: str) -> _OnDiskFolder:
        return self._folders.setdefault(path, _OnDiskFolder())

    def step(self) -> Operation:
        """Advance by one operation and return it."""
        one = self.journal[self.at]
        self.at += 1
        kind = one.kind
        if kind in ("write", "truncate"):
            self._file(one.file).take(one)
        elif kind == "sync":
            self._file(one.file).sync()
        elif kind == "sync_failed":
            self._file(one.file).fail()
        elif kind == "sync_folder":
            self._sync_folder(self._folder(one.path))
        elif kind == "rename" and _folder(one.target) != _folder(one.path):
            self._folder(_folder(one.target)).changes.append(one._replace(kind="create", path=one.target))
            self._folder(_folder(one.path)).changes.append(one._replace(kind="remove"))
        elif kind != "note":
            self._folder(_folder(one.path)).changes.append(one)
        return one

    def _sync_folder(self, folder: _OnDiskFolder) -> None:
        for one in folder.changes:
            if one.kind == "remove" and one.target:  # the file must be in one of the folders
                self._folder(_folder(one.target)).durable[one.target] = one.file
        folder.sync()

    def _file(self, number: int) -> _OnDisk:
        return self._files.setdefault(number, _OnDisk())

    def image(self, random: Random) -> SimulatedDisk:
        """Return a disk with possible contents after a power loss."""
        names: dict[str, int] = {}
        waiting = ["/"]
        while waiting:
            found = self._folder(waiting.pop()).image(random)
            names.update(found)
            waiting += [path for path, number in found.items() if number == FOLDER]
        for folder in self._folders.values():
            for one in folder.changes:  # a file moved to another folder is in one of them, or in both
                if one.target and one.kind == "remove" and one.file not in names.values():
                    names[one.path] = one.file
        files = {
            path: self._file(number).image(random, self.orderly) for path, number in names.items() if number != FOLDER
        }
        return SimulatedDisk(files, ["/", *(path for path, number in names.items() if number == FOLDER)])


def losses(disk: SimulatedDisk, files: dict[str, bytes], folders: Iterable[str], seed: int) -> Iterator[SimulatedDisk]:
    """Yield the possible contents before the first operation of the journal, and after each. O(operations)"""
    power = PowerLoss(disk.journal, files, folders)
    random = Random(seed)
    yield power.image(random)
    while power.at < len(power.journal):
        power.step()
        yield power.image(random)


__all__ = ["FOREVER", "SECTOR", "Fault", "Killed", "Operation", "PowerLoss", "SimulatedDisk", "losses"]
