"""Loading a log: its files are executed again (Redis: aof.c, loadSingleAppendOnlyFile).

    base.rdb    REDIS0010 ... EOF CRC64           read by rillet.persistence.rdb.reader
    incr.aof    *3 $3 SET ...  *5 $4 XADD ...     every command runs through the engine (command_applier.py)

Meanwhile the engine is `loading`: no key expires by itself, because the log contains the deletion, and nothing is
logged again.

If the process or the machine stopped during a write, the last file may end inside a command, or inside a transaction
without EXEC. Neither was acknowledged, so the loader truncates the file there and warns. Empty files after it do not
count: a rewrite begins with an empty file. `aof-load-truncated no` raises instead. All other bytes that are not RESP,
or that the engine rejects, raise LogCorrupt with file and offset; the loader never skips a part silently
(`aof-load-refused yes` logs and omits commands that the engine rejects).
RESP has no checksums, so damage inside a value is not detected, and damage that makes the last commands look like one
long unfinished command is treated as torn: the warning states how many bytes were dropped.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rillet.errors import LogCorrupt
from rillet.persistence.aof import position
from rillet.persistence.aof.command_applier import CommandApplier
from rillet.persistence.aof.folder import SEGMENTS
from rillet.persistence.aof.frames import MARK, WRITTEN_ON, FrameReader, is_empty
from rillet.persistence.disk import REAL, Disk, write_file
from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.records import HEADER, MAGICS
from rillet.real_time import monotonic
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session

Facts = Mapping[bytes, bytes]
"""Auxiliary fields of an RDB file."""
_PIECE = 1 << 20
# The header of a RESP array or bulk string, complete or truncated at any byte.
_HEADER = re.compile(rb"[*$](?:(\d{1,10})(?:\r\n?)?)?")


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a replay: commands executed, bytes read, bytes dropped from a torn end, seconds.

    offset: the file offset of the torn end, or -1; torn: a sentence about the torn end, or "". keys: the number of keys
    in the RDB base. foreign: the last file ends with commands without checksums, from another server. adopted: the name
    of the RDB file that was loaded instead, because there was no log. position: the place of the data in a history of
    replication (position.py), {} if unknown. refused: the number of commands omitted because the engine refused them.
    """

    commands: int
    bytes: int
    dropped: int
    seconds: float
    offset: int = -1
    torn: str = ""
    keys: int = 0
    foreign: bool = False
    adopted: str = ""
    position: Facts = field(default_factory=dict)
    refused: int = 0


def load_snapshot(engine: Engine, path: Path, progress: Callable[[int, int], None] | None = None, *,
                  disk: Disk = REAL) -> LoadResult:  # fmt: skip
    """Load an RDB file in place of a log; its expired keys are dropped. LogCorrupt, NewerFormat. O(bytes)"""
    started = monotonic()
    size = disk.size(path)
    engine.loading = True
    try:
        loaded = load_rdb(path, engine, disk=disk, drop_expired=True, progress=partial(_report, progress, 0, size))
    finally:
        engine.loading = False
    return LoadResult(0, size, 0, monotonic() - started, keys=loaded.keys, adopted=path.name)


def replay(engine: Engine, paths: list[Path], progress: Callable[[int, int], None] | None = None, *,
           disk: Disk = REAL, truncates: bool = True, corrupt_tail: int = 0,
           repairs: bool = True) -> LoadResult:  # fmt: skip
    """Execute the files in order; progress(bytes done, bytes in total). O(bytes)

    truncates: accept a torn end of the last file that has commands, instead of raising (aof-load-truncated).
    corrupt_tail: accept an invalid end of fewer bytes than this, too (aof-load-corrupt-tail-max-size).
    repairs: cut the torn or invalid end off the file; otherwise only report it.
    """
    started = monotonic()
    sizes = [disk.size(path) for path in paths]
    total = sum(sizes)
    last = len(paths) - 1
    while last >= 0 and is_empty(disk, paths[last]):
        last -= 1
    commands = refused = done = dropped = keys = 0
    offset, torn = -1, ""
    foreign = False
    place: Facts = {}
    collects = gc.isenabled()
    gc.disable()  # the loaded data has no reference cycles, and each garbage collection would visit all of it
    engine.loading = True
    if engine.segments is None and paths and disk.exists(paths[0].parent / SEGMENTS):
        from rillet.persistence.segments.folder import SegmentFolder

        engine.segments = SegmentFolder(disk, paths[0].parent)
    try:
        for at, path in enumerate(paths):
            if not sizes[at] and path.suffix != ".rdb":  # an RDB file is never empty
                foreign = False
                continue
            session = engine.session(trusted=True)  # a new session: each file begins in database 0
            try:
                one = _FileReplay(path, session, disk, at == last, truncates, corrupt_tail, repairs)
                one.run(partial(_report, progress, done, total))
            finally:
                engine.close_session(session)
            commands += one.applier.commands
            refused += one.applier.refused
            keys += one.keys
            done += one.good
            foreign = one.foreign
            place = one.position
            if one.dropped:
                dropped, offset, torn = one.dropped, one.good, one.torn
    finally:
        engine.loading = False
        if collects:
            gc.enable()
    return LoadResult(commands, done, dropped, monotonic() - started, offset, torn, keys, foreign,
                      position=place, refused=refused)  # fmt: skip


def _report(progress: Callable[[int, int], None] | None, before: int, total: int, here: int) -> None:
    if progress is not None:
        progress(before + here, total)


class _FileReplay:
    """The replay of one file: `good` bytes were executed, `dropped` bytes at its end were not."""

    def __init__(self, path: Path, session: Session, disk: Disk, last: bool, truncates: bool, corrupt_tail: int,
                 repairs: bool) -> None:  # fmt: skip
        self.path = path
        self.session = session
        self.disk = disk
        self.last = last
        self.truncates = truncates
        self.corrupt_tail = corrupt_tail
        self.repairs = repairs
        self.keys = 0
        self.dropped = 0
        self.torn = ""
        self.foreign = False
        self.position: Facts = {}
        self.applier = CommandApplier(str(path), session, 0)

    @property
    def good(self) -> int:
        """The file offset after the last complete command."""
        return self.applier.good

    def run(self, progress: Callable[[int], None]) -> None:
        """Execute every command of one log file."""
        start = 0
        with self.disk.read_from(self.path) as file:
            size = self.disk.size(self.path)
            if file.read(HEADER).startswith(MAGICS):
                engine: Engine = self.session.engine  # type: ignore[assignment]
                loaded = load_rdb(self.path, engine, disk=self.disk, progress=progress)
                start, self.keys = loaded.end, loaded.keys
            file.seek(start)
            self.applier = CommandApplier(str(self.path), self.session, start)
            frames = FrameReader(file, size, start)
            candidate = position.find(self.disk, self.path, size)
            try:
                while chunk := frames.read():
                    if candidate is not None:
                        chunk = self._feed_up_to(candidate, chunk)
                    self.applier.feed(chunk)
                    progress(self.good)
            except LogCorrupt:
                if not self._may_drop(size):
                    raise
                self._drop(size, "an invalid command")
                return
            except (MemoryError, OverflowError) as error:  # for example, a damaged SETRANGE with a huge offset
                reason = str(error) or "out of memory"
                raise LogCorrupt(str(self.path), self.applier.here, reason) from None
            self.foreign = frames.plain_from >= 0
            if frames.break_at >= 0 and (not self.last or frames.was_synced()):
                raise LogCorrupt(str(self.path), frames.break_at, frames.why)
            if self.good < frames.checked_end():
                # A cut inside a frame would break its checksum: the next start would drop the whole frame.
                raise LogCorrupt(str(self.path), self.good, "a frame with a correct checksum ends inside a command or "
                                 "transaction")  # fmt: skip
        progress(self.good)
        if size != self.good:
            self._cut(size, frames.break_at >= 0)

    def _feed_up_to(self, candidate: position.PositionNote, chunk: bytes) -> bytes:
        """Execute the commands before a position note, which counts if a command ends there; return the rest."""
        applier = self.applier
        left = candidate.start - applier.fed
        if not 0 <= left < len(chunk):
            return chunk
        if left:
            applier.feed(chunk[:left])
        if applier.good == candidate.start:
            self.position = candidate.facts
        return chunk[left:]

    def _cut(self, size: int, in_frame: bool) -> None:
        """Drop an unfinished frame, command or transaction at the end of the last file."""
        if not self.last:
            raise LogCorrupt(str(self.path), self.good, "the file ends inside a command and is not the log's last")
        if not in_frame:
            try:
                self._check_tail()
            except LogCorrupt:
                if not self._may_drop(size):
                    raise
        if not self.truncates and not self._may_drop(size):
            # Redis's error text (aof.c: loadSingleAppendOnlyFile, label uxeof)
            raise LogCorrupt(str(self.path), self.good, "Unexpected end of file reading the append only file, and "
                             "aof-load-truncated is no")  # fmt: skip
        what = "frame" if in_frame else "transaction" if self.applier.transaction is not None else "command"
        kept = self._keep_others() if in_frame and self.repairs else ""
        self._drop(size, f"an unfinished {what}", kept)

    def _may_drop(self, size: int) -> bool:
        """Return whether the invalid end of the last file is short enough to drop (aof-load-corrupt-tail-max-size)."""
        return self.last and size - self.good < self.corrupt_tail

    def _keep_others(self) -> str:
        """Copy the file if its torn end may contain commands of a redis-server; return a sentence about the copy."""
        tail = self._bytes_from(self.good)
        if MARK in tail[1:] or not any(mark in tail for mark in WRITTEN_ON):
            return ""
        kept = copy_torn(self.disk, self.path, self.good)
        return f"; another server may have continued the file, so a copy of it is kept: {kept.name}"

    def _drop(self, size: int, what: str, kept: str = "") -> None:
        self.dropped = size - self.good
        self.torn = f"{self.path}: {self.dropped} bytes of {what} were dropped at offset {self.good}{kept}"
        if self.repairs:
            self.disk.truncate(self.path, self.good)

    def _bytes_from(self, offset: int) -> bytes:
        with self.disk.read_from(self.path) as file:
            file.seek(offset)
            return file.read()

    def _check_tail(self) -> None:
        """Raise LogCorrupt if the unexecuted end of the file is not the beginning of a command."""
        tail = self._bytes_from(self.applier.here)
        if tail and not begins_a_command(tail):
            raise LogCorrupt(str(self.path), self.applier.here, "expected a command, found other bytes")


def copy_torn(disk: Disk, path: Path, offset: int) -> Path:
    """Copy a file before its end is cut off at the offset, and return the path of the copy. O(bytes)"""
    kept = path.with_name(f"{path.name}.torn-{offset}")
    with disk.read_from(path) as file:
        write_file(disk, kept, iter(lambda: file.read(_PIECE), b""))
    disk.sync_folder(kept.parent)
    return kept


def begins_a_command(tail: bytes) -> bool:
    """Return whether a file's tail begins a command: true for a torn write, but rarely for damage. O(bytes)"""
    if tail[:1] == b"#":
        return b"\n" not in tail
    words, at = _number(tail, 0, b"*")
    if words < 0:
        return at < 0
    for _ in range(words):
        if at >= len(tail):
            return True
        length, at = _number(tail, at, b"$")
        if length < 0:
            return at < 0
        at += length
        if at >= len(tail):
            return True
        if not b"\r\n".startswith(tail[at : at + 2]):
            return False
        at += 2
    return at > len(tail)


def _number(tail: bytes, at: int, mark: bytes) -> tuple[int, int]:
    """Parse `<mark><digits> CR LF`; return (number, end), (-1, -1) if it is incomplete, (-1, 0) if invalid."""
    end = tail.find(b"\n", at)
    line = tail[at:] if end < 0 else tail[at : end + 1]
    match = _HEADER.fullmatch(line)
    if match is None or not line.startswith(mark):
        return -1, 0
    return (int(match[1]), end + 1) if end >= 0 else (-1, -1)
