"""The end of a copy of a log: its last whole command, or a time (`rillet backup`, `rillet restore --to`).

    base.rdb          incr.aof 1                            incr.aof 2
    ctime 10:00:00    #TS 10:00:05 ... #TS 10:59:58 ...     #TS 11:00:02 ...
                                      ▲ --to 10:59:59: the files after this one are left out

A log with `aof-timestamp-enabled yes` states the time of its commands, to the second. Everything up to the requested
second is kept, as `redis-check-aof --truncate-to-timestamp` does, but also if that is not in the last file. The base
has the data of one moment, so no earlier moment can be restored; nor can one at which the log already had commands, but
no times.

A frame (frames.py) is loaded whole or not at all. So a cut inside of a frame writes that frame again, with the commands
that remain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from rillet.errors import Corrupt, LogCorrupt, StoreError
from rillet.persistence.aof.frames import FrameReader, frame
from rillet.persistence.aof.scan import CommandScan
from rillet.persistence.checking import MANY_DATABASES
from rillet.persistence.disk import REAL, Disk, write_all
from rillet.persistence.rdb.reader import load_rdb, read_aux_fields, verify_checksum
from rillet.persistence.rdb.records import HEADER, MAGICS
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings

Progress = Callable[[int, int], None]
_LONGEST = 128  # bytes of a frame's header line


@dataclass(slots=True)
class LogEnd:
    """The end of a log: the offset `at` in the file number `file`; the files after it are left out.

    commands: the number of commands up to there. first, last: the times of the log up to there, in seconds since the
    epoch, -1 if it has none; base: the time of the base's data, -1 if unknown. beyond: the first time left out, or -1.
    """

    file: int = -1
    at: int = 0
    frame: int = -1
    commands: int = 0
    base: int = -1
    first: int = -1
    last: int = -1
    beyond: int = -1
    torn: int = 0
    """The number of bytes of an unfinished command or transaction after the end."""

    @property
    def oldest(self) -> int:
        """The first second to which the log can be restored, -1 if it has no times."""
        return self.base if self.base >= 0 else self.first


def find_end(paths: list[Path], to: int = -1, progress: Progress | None = None, disk: Disk = REAL) -> LogEnd:
    """Return where the log of these files ends, or ended at the second `to`. O(bytes), in constant memory

    LogCorrupt: a file is damaged before that place. StoreError: the log cannot be restored to that second.
    """
    end = LogEnd()
    sizes = [disk.size(path) for path in paths]
    last = max((number for number, size in enumerate(sizes) if size), default=-1)
    for number, path in enumerate(paths):
        before = sum(sizes[:number])

        def report(done: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, sum(sizes))

        if sizes[number] or path.suffix == ".rdb":
            _follow(end, number, path, sizes[number], to, number == last, report, disk)
        else:
            end.file, end.at, end.frame = number, 0, -1
        if end.beyond >= 0:
            break
    if to >= 0:
        _require_time(end, to)
    return end


def _follow(end: LogEnd, number: int, path: Path, size: int, to: int, is_last: bool, report: Callable[[int], None],
            disk: Disk) -> None:  # fmt: skip
    """Continue to the end of one file."""
    with disk.read_from(path) as file:
        start = 0
        if path.suffix == ".rdb" or file.read(HEADER).startswith(MAGICS):
            start = _after_rdb(path, size, end, disk)
        scan: CommandScan = CommandScan(str(path), start, to)
        if start < size:
            file.seek(start)
            frames: FrameReader = FrameReader(file, size, start)
            done = start
            while chunk := frames.read():
                if not scan.feed(chunk):
                    break
                done += len(chunk)
                report(done)
            if scan.beyond < 0:
                _check_frames(path, frames, scan, is_last)
    end.file, end.at, end.frame = number, scan.good, scan.frame
    end.commands += scan.commands
    end.first = scan.first if end.first < 0 else end.first
    end.last = scan.last if scan.last >= 0 else end.last
    end.beyond = scan.beyond
    if scan.beyond < 0:
        end.torn = size - scan.good
        if end.torn and not is_last:
            raise LogCorrupt(str(path), scan.good, "the file ends inside a command and is not the log's last")


def _check_frames(path: Path, frames: FrameReader, scan: CommandScan, is_last: bool) -> None:
    """Raise LogCorrupt for damaged frames; a torn end of the last file is not damage (loader.py)."""
    if frames.break_at >= 0 and (not is_last or frames.was_synced()):
        raise LogCorrupt(str(path), frames.break_at, frames.why)
    if scan.good < frames.checked_end():
        raise LogCorrupt(str(path), scan.good, "a frame with a correct checksum ends inside a command or transaction")


def _after_rdb(path: Path, size: int, end: LogEnd, disk: Disk) -> int:
    """Return the offset after the RDB data with which a file begins; note the time of the data."""
    if path.suffix == ".rdb":
        verify_checksum(path, disk)
    created = read_aux_fields(path, disk).get(b"ctime", b"")
    end.base = int(created) if created.isdigit() else -1
    if path.suffix == ".rdb":
        return size
    # A log of a server before 7.0: only its contents show where the RDB data ends.
    engine = Engine(Settings(databases=MANY_DATABASES, rdb_foreign="keep"))
    engine.loading = True
    return load_rdb(path, engine, disk=disk).end


def _require_time(end: LogEnd, to: int) -> None:
    """Raise StoreError unless the found end is the state of that second."""
    if end.base > to:
        raise StoreError(f"the log cannot be restored to {moment(to)}: its base has the data of {moment(end.base)}. "
                         "Use a backup that was made before its last rewrite")  # fmt: skip
    if end.commands and end.first < 0:
        if end.beyond < 0:
            raise StoreError("the log has no times, so only its end can be restored; times are logged with "
                             "aof-timestamp-enabled yes")  # fmt: skip
        raise StoreError(f"the log cannot be restored to {moment(to)}: its first time is {moment(end.beyond)}, after "
                         f"{end.commands} commands without a time")  # fmt: skip
    if not end.commands and end.base < 0:
        raise StoreError(f"the log has nothing at or before {moment(to)}"
                         + (f": it begins at {moment(end.beyond)}" if end.beyond >= 0 else ""))  # fmt: skip


def cut(path: Path, end: LogEnd, disk: Disk = REAL) -> None:
    """Remove what follows the end from its file, which no process writes, and sync the file."""
    if end.at >= disk.size(path):
        return
    if not 0 <= end.frame < end.at:
        disk.truncate(path, end.at)
        return
    with disk.read_from(path) as file:
        file.seek(end.frame)
        line = file.read(_LONGEST).partition(b"\n")[0]
        begin = end.frame + len(line) + 1
        _crc, length, synced, seq = line.removeprefix(b"#RILLET:").split()
        if begin + int(length) <= end.at:
            disk.truncate(path, end.at)
            return
        if begin == end.at:
            disk.truncate(path, end.frame)
            return
        file.seek(begin)
        rest = file.read(end.at - begin)
    disk.truncate(path, end.frame)
    again = disk.append_to(path)
    try:
        write_all(again, frame(rest, offset=end.frame, synced=int(synced), seq=int(seq)))
        again.sync()
    finally:
        again.close()


def moment(second: int) -> str:
    """Return a time as text in UTC."""
    try:
        return f"{datetime.fromtimestamp(second, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        raise Corrupt(f"{second} is not a time in seconds since 1970") from None
