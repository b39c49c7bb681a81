"""Replay: the files of an append-only log, carried out again (Redis: aof.c, loadSingleAppendOnlyFile).

    base.rdb    REDIS0010 ... EOF CRC64           read by rillet.persistence.rdb.reader
    incr.aof    *3 $3 SET ...  *5 $4 XADD ...     every command through the engine (playback.py)

While it runs, the engine is `loading`: no key expires by itself, because the log says when one went, and nothing is
logged again.

A command torn off at the very end of the last file (the process or the machine stopped while it was written) is
cut off with a warning, and so is a transaction without its EXEC: neither was acknowledged. Empty files behind do not
count: a rewrite begins with one. `aof-load-truncated no` refuses instead. Anything else that is no RESP, or that the
engine refuses, is LogCorrupt with file and offset; nothing is loaded in part silently. RESP has no checksums, so damage
inside a value is not seen, and damage that makes the last commands look like one long unfinished command is seen as
torn: the warning says how many bytes went.
"""

from __future__ import annotations

import gc
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rillet.errors import LogCorrupt
from rillet.persistence.aof.command_applier import CommandApplier
from rillet.persistence.aof.frames import MARK, WRITTEN_ON, FrameReader, holds_nothing
from rillet.persistence.disk import REAL, Disk, write_all
from rillet.persistence.rdb.reader import HEADER, MAGICS, load_rdb
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session

# A count or length, whole or torn off anywhere.
_HEADER = re.compile(rb"[*$](?:(\d{1,10})(?:\r\n?)?)?")


class TornLog(UserWarning):
    """The end of a log was torn off; what was dropped, and where, is in the message."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a replay found: commands carried out, bytes read, bytes dropped at a torn end, seconds.

    offset: where the torn end was in its file, -1 where there was none. keys: those that an RDB base brought. foreign:
    whether the last file ends with what was not written in batches.
    """

    commands: int
    bytes: int
    dropped: int
    seconds: float
    offset: int = -1
    keys: int = 0
    foreign: bool = False


def replay(engine: Engine, paths: list[Path], progress: Callable[[int, int], None] | None = None, *,
           disk: Disk = REAL, truncates: bool = True, corrupt_tail: int = 0) -> LoadResult:  # fmt: skip
    """Carry out the files in order; progress(bytes done, bytes in all). O(bytes)

    truncates: a torn end is cut off the last file that holds anything; else it is refused (aof-load-truncated).
    corrupt_tail: so is an end of fewer bytes than that which is no command at all (aof-load-corrupt-tail-max-size).
    """
    started = time.monotonic()
    sizes = [disk.size(path) for path in paths]
    total = sum(sizes)
    last = len(paths) - 1
    while last >= 0 and holds_nothing(disk, paths[last]):
        last -= 1
    commands = done = dropped = keys = 0
    offset = -1
    foreign = False
    collects = gc.isenabled()
    gc.disable()  # nothing that is loaded is a cycle, and each of its passes would visit all that is there so far
    engine.loading = True
    try:
        for at, path in enumerate(paths):
            if not sizes[at] and path.suffix != ".rdb":  # which is never empty
                foreign = False
                continue
            session = engine.session(trusted=True)  # each file begins in database 0
            try:
                one = _FileReplay(path, session, disk, at == last, truncates, corrupt_tail)
                one.run(partial(_tell, progress, done, total))
            finally:
                engine.close_session(session)
            commands += one.commands
            keys += one.keys
            done += one.good
            foreign = one.foreign
            if one.dropped:
                dropped, offset = one.dropped, one.good
    finally:
        engine.loading = False
        if collects:
            gc.enable()
    return LoadResult(commands, done, dropped, time.monotonic() - started, offset, keys, foreign)


def _tell(progress: Callable[[int, int], None] | None, before: int, total: int, here: int) -> None:
    if progress is not None:
        progress(before + here, total)


class _FileReplay:
    """The replay of one file: `good` bytes were carried out, `dropped` torn off the end of the last file."""

    def __init__(self, path: Path, session: Session, disk: Disk, last: bool, truncates: bool,
                 corrupt_tail: int) -> None:  # fmt: skip
        self.path = path
        self.session = session
        self.disk = disk
        self.last = last
        self.truncates = truncates
        self.corrupt_tail = corrupt_tail
        self.keys = 0
        self.dropped = 0
        self.foreign = False
        self.playback = CommandApplier(str(path), session, 0)

    @property
    def good(self) -> int:
        """Where the last whole command ended."""
        return self.playback.good

    @property
    def commands(self) -> int:
        """How many were carried out."""
        return self.playback.commands

    def run(self, progress: Callable[[int], None]) -> None:
        """Carry out every command of the file."""
        start = 0
        with self.disk.read_from(self.path) as file:
            size = self.disk.size(self.path)
            if file.read(HEADER).startswith(MAGICS):
                loaded = load_rdb(self.path, self.session.engine, disk=self.disk, progress=progress)
                start, self.keys = loaded.end, loaded.keys
            file.seek(start)
            self.playback = CommandApplier(str(self.path), self.session, start)
            batches = FrameReader(file, size, start)
            try:
                while chunk := batches.read():
                    self.playback.feed(chunk)
                    progress(self.good)
            except LogCorrupt:
                if not self._may_drop(size):
                    raise
                self._drop(size, "what is no command")
                return
            except (MemoryError, OverflowError) as error:  # SETRANGE to an offset that a damage made
                what = str(error) or "no memory for what is there"
                raise LogCorrupt(str(self.path), self.playback.here, what) from None
            self.foreign = batches.plain_from >= 0
            if batches.break_at >= 0 and (not self.last or batches.was_synced()):
                raise LogCorrupt(str(self.path), batches.break_at, batches.why)
            if self.good < batches.vouched_for():
                # Cutting there would break the batch: the next opening would take all of it for torn.
                raise LogCorrupt(str(self.path), self.good, "the end of a command or transaction expected: a batch "
                                 "ends inside it, and its checksum is right")  # fmt: skip
        progress(self.good)
        if size != self.good:
            self._cut(size, batches.break_at >= 0)

    def _cut(self, size: int, in_batch: bool) -> None:
        """Take an unfinished batch, command or transaction off the end of the last file."""
        if not self.last:
            raise LogCorrupt(str(self.path), self.good, "the file ends inside a command, and others follow it")
        if not in_batch:
            try:
                self._check_tail()
            except LogCorrupt:
                if not self._may_drop(size):
                    raise
        if not self.truncates and not self._may_drop(size):
            # aof.c: loadSingleAppendOnlyFile, the words of its label uxeof
            raise LogCorrupt(str(self.path), self.good, "Unexpected end of file reading the append only file, and "
                             "aof-load-truncated is no")  # fmt: skip
        what = "batch" if in_batch else "transaction" if self.playback.transaction is not None else "command"
        kept = self._keep_others(size) if in_batch else ""
        self._drop(size, f"an unfinished {what}", kept)

    def _may_drop(self, size: int) -> bool:
        """Whether so little is wrong at the end of the last file that the settings let it go."""
        return self.last and size - self.good < self.corrupt_tail

    def _keep_others(self, size: int) -> str:
        """Copy the file where a redis-server may have cut a torn batch at a command and written on; say where to."""
        with self.disk.read_from(self.path) as file:
            file.seek(self.good)
            tail = file.read()
            if MARK in tail[1:] or not any(mark in tail for mark in WRITTEN_ON):
                return ""
            file.seek(0)
            kept = self.path.with_name(f"{self.path.name}.torn-{self.good}")
            out = self.disk.create(kept)
            try:
                while piece := file.read(1 << 20):
                    write_all(out, piece)
                out.sync()
            finally:
                out.close()
        self.disk.sync_folder(kept.parent)
        return f"; another server may have written there, so the file as it was is kept: {kept.name}"

    def _drop(self, size: int, what: str, kept: str = "") -> None:
        self.dropped = size - self.good
        self.disk.truncate(self.path, self.good)
        told = f"{self.path}: {self.dropped} bytes of {what} were dropped at offset {self.good}{kept}"
        warnings.warn(told, TornLog, stacklevel=7)

    def _check_tail(self) -> None:
        """Raise LogCorrupt where what is left at the end is not the beginning of a command."""
        with self.disk.read_from(self.path) as file:
            file.seek(self.playback.here)
            tail = file.read()
        if tail and not begins_a_command(tail):
            raise LogCorrupt(str(self.path), self.playback.here, "neither a command nor the beginning of one")


def begins_a_command(tail: bytes) -> bool:
    """Whether more bytes could make the tail a command, as after a torn write and hardly ever after damage. O(bytes)"""
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
    """Read `<mark><digits> CR LF`: (number, its end), (-1, -1) where the tail ends inside, (-1, 0) for no such."""
    end = tail.find(b"\n", at)
    line = tail[at:] if end < 0 else tail[at : end + 1]
    found = _HEADER.fullmatch(line)
    if found is None or not line.startswith(mark):
        return -1, 0
    return (int(found[1]), end + 1) if end >= 0 else (-1, -1)
