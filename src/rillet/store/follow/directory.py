"""The files of a replica that survives its process: a snapshot, and the changes that followed it.

    follow.json        {"format": 1, "keys": [...], "id": ..., "offset": ..., "db": ..., "base": "base-3.rdb",
                        "logs": ["changes-3-1.log", "changes-3-2.log"]}
    base-3.rdb         the data at that position
    changes-3-1.log    records: a line, then bytes of the stream

    <start> <end> <db> <length> <CRC-32>\n <bytes>     commands between two positions (change_log.LogRecord)
    <offset> <offset> <db> <40> <CRC-32>\n <id>        from here on the history has this name

Each record ends outside a transaction, so a torn end costs nothing but bytes that the server sends again: the position
of the replica is that of the last whole record. Nothing is synced while the replica runs. `follow.json` is replaced
when a new base is complete and on the disk; then the previous files are deleted.

**A new base.** When the logs have grown, the replica begins another log, and a separate process applies the closed ones
to the base (compaction.py). The store is not stopped, and the application's process is not forked.

Rejected: a log of rillet.persistence.aof. It would encode each command again, and its position in the stream would be
exact only after an orderly end.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import rillet
from rillet.errors import Corrupt, NotAStore, StoreError
from rillet.host.directory import create_folder
from rillet.loggers import logger
from rillet.persistence.directory_lock import DirectoryLock
from rillet.persistence.disk import REAL, write_file
from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.writer import write_rdb
from rillet.replication.applier import Applier
from rillet.replication.changes import ChangePosition
from rillet.runtime.engine import Engine
from rillet.store.follow.change_log import LogRecord

LOGGER = logger("attach")
INDEX = "follow.json"
FORMAT = 1
REWRITE_SIZE = 64 << 20  # bytes of logs from which on a new base is made, if they exceed the base
_ID = 40


class FollowDirectory:
    """The files of one replica. keys: the globs of its filter; another filter begins with a snapshot."""

    def __init__(self, path: str | os.PathLike[str], keys: Sequence[str]) -> None:
        self.path = Path(path).absolute()
        self.keys = list(keys)
        self.failure = ""  # why nothing is written any more
        self._lock = DirectoryLock()
        self._index: dict[str, Any] = {}
        self._file: BinaryIO | None = None
        self._log_size = 0
        self._number = self._generation = 0
        self._draft: BinaryIO | None = None
        self._end = 0  # the position of the last record
        self._compaction: subprocess.Popen[bytes] | None = None
        self._closed_logs: list[str] = []
        self._take()

    def _take(self) -> None:
        if self.path.is_dir() and not (self.path / INDEX).exists():
            strange = [one.name for one in self.path.iterdir() if not one.name.startswith(("base-", "changes-", "."))]
            if strange:
                raise NotAStore(f"{self.path} is not the directory of a replica: it contains {strange[0]}")
        create_folder(self.path)
        self._lock.acquire(self.path)
        try:
            with open(self.path / INDEX, "rb") as file:
                index = json.load(file)
        except FileNotFoundError:
            return
        except ValueError as error:
            LOGGER.warning("%s: %s is damaged (%s): the replica begins with a snapshot", self.path, INDEX, error)
            return
        if index.get("format") != FORMAT:
            self._lock.release()
            raise StoreError(f"{self.path}: the format {index.get('format')} of {INDEX} is newer than {FORMAT}: "
                             "upgrade rillet")  # fmt: skip
        self._generation = _number_of(index["base"])
        if index["keys"] == self.keys:
            self._index = index

    # -- opening -------------------------------------------------------------------------------------

    def load(self, engine: Engine, keep: Callable[[LogRecord], None]) -> ChangePosition | None:
        """Load the stored data, and return its position; None if there is none. keep(record) receives the changes."""
        if not self._index:
            return None
        base, logs = self.path / self._index["base"], [self.path / name for name in self._index["logs"]]
        try:
            position, size = load_files(engine, base, logs, _position(self._index), keep, truncates=True)
        except (OSError, Corrupt) as error:
            LOGGER.warning("%s: %s: the replica begins with a snapshot", self.path, error)
            for database in engine.databases:
                database.flush(False)
            self._index = {}
            return None
        self._log_size, self._end = size, position.offset
        self._number = _number_of(logs[-1].name)
        self._file = open(logs[-1], "ab", buffering=0)  # noqa: SIM115 - `close` closes it
        return position

    # -- records -------------------------------------------------------------------------------------

    def append(self, record: LogRecord) -> None:
        """Write a record."""
        self._end = record.end
        self._write(record)

    def advance(self, offset: int, db: int) -> None:
        """Note a position that is behind the last record."""
        if self._file is not None and offset > self._end:
            self.append(LogRecord(self._end, offset, db, b""))

    def continued(self, history: str, offset: int, db: int) -> None:
        """Note that the history has another name from here on."""
        self._write(LogRecord(offset, offset, db, history.encode()))

    def _write(self, record: LogRecord) -> None:
        file, data = self._file, record.data
        if file is None:
            return
        head = f"{record.start} {record.end} {record.db} {len(data)} {zlib.crc32(data):08x}\n".encode()
        try:
            left = memoryview(head + data)
            while left:
                left = left[file.write(left) or 0 :]
        except OSError as error:
            self._fail(error)
            return
        self._log_size += len(head) + len(data)

    def _fail(self, error: OSError) -> None:
        """Write no more: the files stay a prefix of the data, and the next start continues there."""
        self.failure = f"{error.filename or self.path} cannot be written: {error.strerror}"
        LOGGER.error("%s; the replica continues in memory", self.failure)
        file, self._file = self._file, None
        if file is not None:
            file.close()
        self.abort_snapshot()

    # -- snapshots -----------------------------------------------------------------------------------

    def begin_snapshot(self) -> None:
        """Prepare for the bytes of a snapshot."""
        try:
            self._draft = open(self.path / ".snapshot", "wb")  # noqa: SIM115 - closed by commit or abort
        except OSError as error:
            self._fail(error)

    def take_snapshot(self, data: bytes) -> None:
        """Write bytes of a snapshot that is kept as it is."""
        if self._draft is not None and not self.keys:
            try:
                self._draft.write(data)
            except OSError as error:
                self._fail(error)

    def abort_snapshot(self) -> None:
        """Delete the bytes of a snapshot."""
        draft, self._draft = self._draft, None
        if draft is not None:
            with contextlib.suppress(OSError):
                draft.close()
            (self.path / ".snapshot").unlink(missing_ok=True)

    def commit_snapshot(self, engine: Engine, position: ChangePosition) -> None:
        """Make the data of a full synchronisation the stored data. The caller holds the engine's lock."""
        self._stop_compaction()
        draft, self._draft = self._draft, None
        if draft is None:
            return
        try:
            self._generation += 1
            generation = self._generation
            base, log = self.path / f"base-{generation}.rdb", f"changes-{generation}-1.log"
            draft.flush()
            os.fsync(draft.fileno())
            draft.close()
            if self.keys:
                (self.path / ".snapshot").unlink()
                write_rdb(base, engine, draft=self.path / ".snapshot")
            else:
                os.replace(self.path / ".snapshot", base)
            self._begin_log(log)
            self._number, self._log_size, self._end = 1, 0, position.offset
            self._write_index(position, base.name, [log])
            self.failure = ""
        except OSError as error:
            self._fail(error)

    def _begin_log(self, name: str) -> None:
        if self._file is not None:
            self._file.close()
        self._file = open(self.path / name, "wb", buffering=0)  # noqa: SIM115 - `close` closes it

    def _write_index(self, position: ChangePosition, base: str, logs: list[str]) -> None:
        """Replace the index, and delete files that it does not name."""
        self._index = {"format": FORMAT, "keys": self.keys, "id": position.id, "offset": position.offset,
                       "db": position.db, "base": base, "logs": logs}  # fmt: skip
        draft = self.path / ".follow.json"
        write_file(REAL, draft, [json.dumps(self._index).encode()])
        REAL.rename(draft, self.path / INDEX)
        REAL.sync_folder(self.path)
        for one in self.path.iterdir():
            if one.name.startswith(("base-", "changes-")) and one.name not in (base, *logs):
                one.unlink(missing_ok=True)

    # -- a new base ----------------------------------------------------------------------------------

    def tick(self, settings: dict[str, str]) -> None:
        """Begin a new base if the logs have grown, or take one that is complete; call this a few times a second."""
        process = self._compaction
        if process is not None:
            if process.poll() is not None:
                self._take_base(process)
            return
        if self._file is None or self._log_size < REWRITE_SIZE:
            return
        try:
            if self._log_size >= (self.path / self._index["base"]).stat().st_size:
                self._begin_base(settings)
        except OSError as error:
            self._fail(error)

    def _begin_base(self, settings: dict[str, str]) -> None:
        """Close the log, begin another one, and start the process that makes a base of the closed ones."""
        self._closed_logs = list(self._index["logs"])
        self._number += 1
        log = f"changes-{self._generation}-{self._number}.log"
        self._begin_log(log)
        self._log_size = 0
        self._write_index(_position(self._index), self._index["base"], [*self._closed_logs, log])
        home = str(Path(rillet.__file__).parent.parent)
        paths = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
        request = {"index": self._index, "logs": self._closed_logs, "folder": str(self.path), "settings": settings}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rillet.store.follow.compaction"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
        )  # fmt: skip
        self._compaction = process
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()

    def _take_base(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        said = process.stdout.read()
        self._stop_compaction()
        if process.returncode != 0 or not said:
            LOGGER.error("%s: a new base could not be written: %s", self.path, said.decode("utf-8", "replace"))
            return
        answer = json.loads(said)
        self._generation += 1
        base = f"base-{self._generation}.rdb"
        os.replace(self.path / ".compacted", self.path / base)
        logs = [name for name in self._index["logs"] if name not in self._closed_logs]
        self._write_index(ChangePosition.parse(answer["position"]), base, logs)

    def _stop_compaction(self) -> None:
        process, self._compaction = self._compaction, None
        if process is not None:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def close(self) -> None:
        """Close the files and release the directory."""
        self._stop_compaction()
        self.abort_snapshot()
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.release()

    def forget_in_child(self) -> None:
        """In a forked child: leave the files to the parent."""
        self._file = self._draft = self._compaction = None


def _number_of(name: str) -> int:
    return int(name.partition(".")[0].split("-")[-1])


def _position(index: dict[str, Any]) -> ChangePosition:
    return ChangePosition(index["id"], index["offset"], index["db"])


def read_records(path: Path, *, truncates: bool = False) -> Iterator[LogRecord]:
    """Yield the whole records of a log. truncates: cut off a torn end."""
    with open(path, "r+b" if truncates else "rb") as file:
        good = 0
        while True:
            words = file.readline(200).split()
            if len(words) != 5 or not all(word.isdigit() for word in words[:4]):
                break
            start, end, db, length = map(int, words[:4])
            data = file.read(length)
            if len(data) < length or b"%08x" % zlib.crc32(data) != words[4]:
                break
            good = file.tell()
            yield LogRecord(start, end, db, data)
        if truncates:
            file.truncate(good)


def load_files(engine: Engine, base: Path, logs: Sequence[Path], position: ChangePosition,
               keep: Callable[[LogRecord], None] = lambda record: None, *,
               truncates: bool = False) -> tuple[ChangePosition, int]:  # fmt: skip
    """Load a base and apply logs; return the position of the data and the size of the logs. Corrupt, OSError."""
    load_rdb(base, engine)
    state = engine.replication
    state.id, state.offset, state.db = position.id, position.offset, position.db
    session = engine.session(trusted=True)
    session.enter("follow")
    session.db = engine.databases[state.db]
    applier = Applier(session, state.offset, lambda text: LOGGER.error("%s: %s", base.parent, text))
    size = 0
    for number, log in enumerate(logs):
        for record in read_records(log, truncates=truncates and number == len(logs) - 1):
            if record.start == record.end and len(record.data) == _ID:
                state.id2, state.second_offset = state.id, state.offset + 1
                state.id = record.data.decode("ascii", "replace")
                continue
            if record.end <= state.offset:
                continue
            if session.db.index != record.db:
                session.db = engine.databases[record.db]
            if record.data:
                applier.feed(record.data)
            state.offset, state.db = record.end, session.db.index if record.data else record.db
            keep(record)
        size += log.stat().st_size
    engine.close_session(session)
    engine.dirty = 0
    return ChangePosition(state.id, state.offset, state.db), size
