"""Receives the stream of a server on the driver, and writes it to the folder before a batch is planned.

    server ══ socket ══ thread ── whole units ──► records ── flush ──► <run>-<start>-<end>.changes

The thread receives all the time, so that a long batch does not exhaust the server's backlog. It writes a file when it
has `fileBytes`; `flush` writes the rest. A lost connection is opened again, and the stream continues at the last
received byte. If the backlog no longer holds it, `lost` is set, and the thread ends.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

from rillet.client.errors import ConnectorError
from rillet.errors import RilletError
from rillet.replication.changes import ChangePosition, UnitParser
from rillet.replication.errors import LinkError
from rillet.spark.changes.offsets import ChangesOffset
from rillet.spark.changes.options import LATEST, SNAPSHOT, ChangesOptions
from rillet.spark.changes.storage import Received, Storage, StoredFile
from rillet.store.follow.stream_reader import StreamLost, StreamReader

_PAUSE = 0.25
_MOST_WAITING = 64 << 20  # bytes that wait for a flush while the folder cannot be written


def new_run() -> str:
    """Return the name of a new run."""
    return uuid.uuid4().hex[:12]


class Receiver:
    """Receives one run from `start` on; `files` are those that a batch may contain."""

    def __init__(self, options: ChangesOptions, storage: Storage, start: ChangesOffset, files: list[StoredFile],
                 position: ChangePosition, reader: StreamReader | None = None) -> None:  # fmt: skip
        self.start = start  # of the run: its name, `since` and `snapshot`
        self.files = files
        self.ends: dict[int, tuple[str, int]] = {}  # history and database at the end of each file
        self.lost = False
        self.error: RilletError | None = None
        self._options = options
        self._storage = storage
        self._position = position  # of the last received unit
        self._parser = UnitParser(position.offset, position.db)
        self._records: list[Received] = []
        self._size = 0
        self._has_changes = False  # whether the records contain more than PING and SELECT
        self._reader = reader
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="rillet-changes", daemon=True)
        self._thread.start()

    # -- beginnings --------------------------------------------------------------------------------------

    @classmethod
    def new(cls, options: ChangesOptions, storage: Storage) -> Receiver:
        """Begin a run where the options say; StreamLost, ConnectorError. Receives the snapshot."""
        run = new_run()
        storage.create()
        chosen = options.starting_offsets
        if chosen not in (LATEST, SNAPSHOT):
            position = ChangePosition.parse(chosen)
            reader = StreamReader(options.address(), position, options.timeout)
        else:
            write: Callable[[bytes], object] = lambda data: None  # noqa: E731
            out = None
            if chosen == SNAPSHOT:
                out = storage.new_snapshot(run)
                write = out.write
            reader = StreamReader.with_snapshot(options.address(), write, empty=chosen == LATEST,
                                                silence=options.timeout)  # fmt: skip
            if out is not None:
                out.close()
            position = ChangePosition(reader.id, reader.offset)
        start = ChangesOffset(run, position.id, position.offset, position.db, position.offset, chosen == SNAPSHOT)
        made = cls(options, storage, start, [], position, reader)
        if chosen == SNAPSHOT:  # while the thread receives, so that the server need not keep what follows
            try:
                storage.finish_snapshot(run, options.file_bytes)
            except BaseException:
                made.stop()
                raise
        return made

    @classmethod
    def resumed(cls, options: ChangesOptions, storage: Storage, start: ChangesOffset) -> Receiver:
        """Continue a run of the checkpoint, after the files that are in the folder."""
        files = storage.chain(start.run, start.offset)
        position = start.position
        if files:
            history, db = storage.end_of(files[-1])
            position = ChangePosition(history, files[-1].end, db)
        made = cls(options, storage, start, files, position)
        for file in files:
            made.ends[file.end] = storage.end_of(file)
        return made

    # -- the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                if self._reader is None:
                    self._reader = StreamReader(self._options.address(), self._position)
                    self._parser = UnitParser(self._position.offset, self._position.db)
                self._take(self._reader.receive())
                self.error = None
            except StreamLost:
                with self._changed:
                    self.lost = True
                    self._changed.notify_all()
                return
            except (ConnectorError, LinkError, OSError) as error:
                self._close_reader()
                self.error = error if isinstance(error, RilletError) else RilletError(f"rillet: {error}")
                with self._changed:
                    self._changed.notify_all()
                    self._changed.wait(_PAUSE)
        self._close_reader()

    def _take(self, data: bytes) -> None:
        reader = self._reader
        assert reader is not None
        units = self._parser.feed(data)
        if units:
            record = Received(units[0].start, units[-1].end, units[0].db, time.time_ns() // 1_000_000,
                              b"".join([unit.data for unit in units]))  # fmt: skip
            with self._changed:
                self._records.append(record)
                self._size += len(record.data)
                self._has_changes = self._has_changes or any(unit.commands for unit in units)
                self._position = ChangePosition(reader.id, record.end, units[-1].db_after)
                self._changed.notify_all()
            if self._size >= self._options.file_bytes:
                self._write()

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _write(self, only_changes: bool = False) -> None:
        """Write the waiting records to a file, after a write of the other thread; OSError.

        only_changes: leave them if they are nothing but PING and SELECT.
        """
        with self._writing:
            with self._changed:
                if only_changes and not self._has_changes:
                    return
                records, position = self._records, self._position
                self._records, self._size, self._has_changes = [], 0, False
            if not records:
                return
            try:
                file = self._storage.write(self.start.run, records, position.id, position.db)
            except BaseException:
                with self._changed:
                    self._records = records + self._records
                    self._size += sum(len(one.data) for one in records)
                    self._has_changes = True
                raise
            with self._changed:
                self.files.append(file)
                self.ends[file.end] = (position.id, position.db)

    # -- for the driver ----------------------------------------------------------------------------------

    @property
    def offset(self) -> int:
        """The offset of the last received unit."""
        return self._position.offset

    @property
    def is_away(self) -> bool:
        """Whether the server cannot be reached."""
        return self.error is not None

    def wait(self, offset: int, seconds: float) -> bool:
        """Wait until more than `offset` was received, or changes were lost; return whether this happened."""
        with self._changed:
            return self._changed.wait_for(lambda: self.lost or self._position.offset > offset, seconds)

    def end_after(self, offset: int, most: int | None) -> ChangesOffset | None:
        """Write what was received; return the end of a batch that begins at `offset`; None if there is nothing."""
        self._write(only_changes=True)
        end, size = -1, 0
        with self._changed:
            for file in self.files:
                if file.start < offset:
                    continue
                size += file.end - file.start
                if end >= 0 and most is not None and size > most:
                    break
                end = file.end
            if end < 0:
                return None
            history, db = self.ends[end]
        return self.start._replace(id=history, offset=end, db=db)

    def forget(self, offset: int) -> None:
        """Forget files before an offset, which was committed."""
        with self._changed:
            self.files = [file for file in self.files if file.end > offset]

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        with self._changed:
            self._changed.notify_all()
        self._thread.join(5)
