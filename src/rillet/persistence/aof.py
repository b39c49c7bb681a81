"""The append-only log: every command that changed something, as RESP, in order (Redis: aof.c).

    *2\\r\\n$6\\r\\nSELECT\\r\\n$1\\r\\n0\\r\\n   the database of what follows, when it changes
    *5\\r\\n$4\\r\\nXADD\\r\\n...               one command; a transaction is MULTI ... EXEC

`append` takes commands into a buffer; `flush`, called before replies leave, writes the buffer in
one call and then does what `appendfsync` says:

    always     fdatasync before the reply: what was acknowledged is on disk
    everysec   a thread syncs once a second: a power loss costs at most that second
    no         the operating system decides

A write or sync that fails leaves the log at its last whole state, is reported to `on_failure`, and
the log takes nothing more: after a failed fsync nobody knows what the disk holds, so no later
success may be reported for the same bytes. Reading goes on.

Replay: a command torn off at the very end (the process died while writing) is dropped with a
warning, an unfinished transaction too. Anything else that is not RESP, or that the engine refuses,
is LogCorrupt with file and offset: nothing is loaded in part silently.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rillet.commands.session import Session
from rillet.engine import Engine
from rillet.errors import LogCorrupt, Misconf, NewerFormat, ProtocolError
from rillet.persistence.manifest import LogFile, read_manifest, sync_folder, write_manifest
from rillet.protocol.parser import CommandParser, pack_command

_CHUNK = 1 << 20


class TornLog(UserWarning):
    """The end of a log was torn off; what was dropped, and where, is in the message."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay found: commands carried out, bytes read, bytes dropped at a torn end, seconds."""

    commands: int
    bytes: int
    dropped: int
    seconds: float


class AppendOnlyLog:
    """The log of one engine, in a folder of Redis 7's layout; an engine's `log`."""

    def __init__(self, folder: Path, *, name: str = "appendonly.aof", fsync: str = "everysec",
                 on_failure: Callable[[str], None] | None = None) -> None:
        self.folder = folder
        self.name = name
        self.fsync = fsync
        self.on_failure = on_failure
        self.failure: str | None = None
        self.size = 0
        self.synced = 0
        self._db = -1
        self._buffer = bytearray()
        self._file = -1
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._syncer: threading.Thread | None = None

    # -- opening -------------------------------------------------------------------------------------

    @property
    def manifest(self) -> Path:
        """The path of the manifest."""
        return self.folder / f"{self.name}.manifest"

    def open(self, engine: Engine, progress: Callable[[int, int], None] | None = None) -> Replayed:
        """Replay what is there into the engine, then take its changes; progress(bytes done, bytes in all)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files = self._files()
        replayed = self._replay(engine, [self.folder / file.name for file in files], progress)
        current = self.folder / files[-1].name
        self._file = os.open(current, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.size = self.synced = os.fstat(self._file).st_size
        if self.fsync == "everysec":
            self._start_syncer()
        engine.log = self
        return replayed

    def _files(self) -> list[LogFile]:
        if not self.manifest.exists():
            first = LogFile(f"{self.name}.1.incr.aof", 1, "i")
            (self.folder / first.name).touch(exist_ok=False)
            write_manifest(self.manifest, [first])
            sync_folder(self.folder.parent)
            return [first]
        files = [file for file in read_manifest(self.manifest) if file.type != "h"]
        for file in files:
            if not (self.folder / file.name).exists():
                raise LogCorrupt(str(self.manifest), 0, f"the file {file.name} is missing")
            if file.type == "b" and file.name.endswith(".rdb"):
                raise NewerFormat(f"{self.folder / file.name}: a log with an RDB base; this version reads logs without one")
        incremental = [file for file in files if file.type == "i"]
        if not incremental:
            raise LogCorrupt(str(self.manifest), 0, "no incremental file")
        return files

    def _replay(self, engine: Engine, paths: list[Path], progress: Callable[[int, int], None] | None) -> Replayed:
        started = time.monotonic()
        total = sum(path.stat().st_size for path in paths)
        session = engine.session(trusted=True)
        engine.loading = True
        commands = done = dropped = 0
        try:
            for path in paths:
                one = _Replay(path, session, last=path == paths[-1])
                commands += one.run(lambda here, before=done: progress(before + here, total) if progress else None)
                done += one.good
                dropped += one.dropped
        finally:
            engine.loading = False
            engine.close_session(session)
        return Replayed(commands, done, dropped, time.monotonic() - started)

    # -- writing -------------------------------------------------------------------------------------

    def append(self, db: int, argv: list[bytes]) -> None:
        """Take one command that changed database db (feedAppendOnlyFile). O(bytes)"""
        if self.failure is not None:
            return
        if db != self._db:
            self._buffer += pack_command([b"SELECT", b"%d" % db])
            self._db = db
        self._buffer += pack_command(argv)

    def flush(self) -> None:
        """Write what was appended, and sync it under `always`; Misconf where that fails (flushAppendOnlyFile)."""
        if self._buffer:
            data = bytes(self._buffer)
            self._buffer.clear()
            self._write(data)
            if self.fsync == "always":
                self._sync()
        if self.failure is not None:
            raise Misconf(self.failure)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        start = self.size
        try:
            while view:
                written = os.write(self._file, view)
                view = view[written:]
        except OSError as error:
            self._fail("writing to", error)
            self._cut(start)
        else:
            self.size = start + len(data)

    def _cut(self, size: int) -> None:
        """Take half a command off the end; if even that fails, the next opening drops it as torn."""
        try:
            os.ftruncate(self._file, size)
        except OSError as error:
            warnings.warn(f"{self.folder}: the torn end of the log stays: {error}", TornLog, stacklevel=2)

    def _sync(self) -> None:
        size = self.size
        try:
            os.fdatasync(self._file)
        except OSError as error:
            self._fail("syncing", error)
        else:
            self.synced = size

    def _fail(self, doing: str, error: OSError) -> None:
        self.failure = f"Errors {doing} the AOF file: {error.strerror}"
        if self.on_failure is not None:
            self.on_failure(self.failure)

    def _start_syncer(self) -> None:
        self._syncer = threading.Thread(target=self._sync_every_second, name="rillet-fsync", daemon=True)
        self._syncer.start()

    def _sync_every_second(self) -> None:
        while not self._wake.wait(1.0):
            with self._lock:
                if not self._closing and self.synced != self.size and self.failure is None:
                    self._sync()

    def close(self) -> None:
        """Write and sync the rest, and let go of the file; a second call does nothing."""
        if self._file < 0:
            return
        self._wake.set()
        if self._syncer is not None:
            self._syncer.join()
        try:
            self.flush()
            if self.failure is None:
                self._sync()
        finally:
            os.close(self._file)
            self._file = -1
        if self.failure is not None:
            raise Misconf(self.failure)


class _Replay:
    """The replay of one file: `good` bytes were carried out, `dropped` torn off the end of the last file."""

    def __init__(self, path: Path, session: Session, last: bool) -> None:
        self.path = path
        self.session = session
        self.last = last
        self.good = 0
        self.dropped = 0
        self.commands = 0
        self._here = 0
        self._transaction: list[list[bytes]] | None = None

    def run(self, progress: Callable[[int], None]) -> int:
        """Carry out every command of the file and return how many there were."""
        parser = CommandParser()
        parser.authenticated = True
        size = self.path.stat().st_size
        fed = 0
        with open(self.path, "rb") as file:
            while chunk := file.read(_CHUNK):
                fed += len(chunk)
                parser.feed(chunk)
                self._drain(parser, fed)
                progress(self.good)
        self._finish(size)
        return self.commands

    def _drain(self, parser: CommandParser, fed: int) -> None:
        """Run the commands that are whole; `here` is where the one being read begins."""
        while True:
            here = self._here
            try:
                argv = parser.next()
            except ProtocolError as error:
                raise LogCorrupt(str(self.path), here, str(error)) from None
            if argv is None:
                return
            self._here = fed - parser.buffered
            if argv:
                self._take(argv, here)
            if self._transaction is None:
                self.good = self._here

    def _take(self, argv: list[bytes], start: int) -> None:
        """Run a command, or keep it until its transaction is whole."""
        name = argv[0].upper()
        if name.startswith(b"#"):  # an annotation such as #TS:<seconds>
            return
        if name == b"MULTI":
            self._transaction = []
        elif name == b"EXEC" and self._transaction is not None:
            whole, self._transaction = self._transaction, None
            for one in whole:
                self._run(one, start)
        elif self._transaction is not None:
            self._transaction.append(argv)
        else:
            self._run(argv, start)

    def _run(self, argv: list[bytes], start: int) -> None:
        session = self.session
        session.engine.execute(session, argv)
        reply = session.out.take()
        if reply.startswith(b"-"):
            command = b" ".join(argv[:3]).decode("utf-8", "replace")
            raise LogCorrupt(str(self.path), start, f"{command!r} was refused: {reply[1:-2].decode('utf-8', 'replace')}")
        self.commands += 1

    def _finish(self, size: int) -> None:
        torn = size - self.good
        if not torn:
            return
        if not self.last:
            raise LogCorrupt(str(self.path), self.good, "the file ends inside a command, and others follow it")
        with open(self.path, "rb") as file:
            file.seek(self.good)
            first = file.read(1)
        if first not in (b"*", b"#"):
            raise LogCorrupt(str(self.path), self.good, f"a command expected, found {first!r}")
        self.dropped = torn
        os.truncate(self.path, self.good)
        warnings.warn(f"{self.path}: {torn} bytes of an unfinished command were dropped at offset {self.good}",
                      TornLog, stacklevel=2)
