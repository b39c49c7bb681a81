"""The transfer of the data to replicas: a full synchronisation (Redis: rdb.c, rdbSaveToSlavesSockets; replication.c).

    PipeTransfer    child ── RDB ──► pipe ── this process ──► sockets      $EOF:<40 bytes> RDB <the same 40 bytes>
    SavedTransfer   child ──► dump.rdb, then the file ──► sockets          $<length> RDB
    InlineTransfer  this process ──► file without a name ──► sockets       $<length> RDB; for a store: it never forks

All replicas of a PipeTransfer receive the same bytes at the same time: the pipe is read when the last of them has taken
the previous piece, so the child waits for the slowest one (repl-timeout disconnects it). A replica can join a
SavedTransfer until the file is complete: it receives the same file and the same commands as the first one.

While the transfer runs, the commands stay in the backlog (attached.py). A transfer that fails disconnects its replicas,
which try again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rillet.persistence.fork import ChildOutcome, Children, ChildReport
from rillet.persistence.rdb.snapshots import PURPOSE, Snapshots
from rillet.persistence.rdb.writer import RdbParts, stream_rdb
from rillet.replication.attached import SENDING, WAIT_END, AttachedReplica

if TYPE_CHECKING:
    from rillet.replication.master import ReplicationStream

_PIECE = 1 << 18  # bytes that are sent at once
_MARK_BYTES = 20  # of the end mark, which is written in hexadecimal


class TransferWatcher(Protocol):
    """The event loop's part that transfers need."""

    def add_reader(self, number: int, function: Callable[[], object]) -> None:
        """Call the function whenever the descriptor can be read."""

    def remove_reader(self, number: int) -> object:
        """Stop that."""


class Transfer:
    """The base of the transfers; `replicas` are those that still receive the snapshot."""

    on_disk = False

    def __init__(self, stream: ReplicationStream, replicas: list[AttachedReplica]) -> None:
        self.stream = stream
        self.replicas = list(replicas)
        self.request = replicas[0].properties.request
        self.offset: int = stream.state.offset
        self.history: str = stream.state.id

    def begin(self) -> None:
        """Send the first bytes: the replicas have the announcement of the synchronisation."""

    def may_join(self, replica: AttachedReplica) -> bool:
        """Return whether a replica can still receive this snapshot and the commands since then."""
        return False

    def join(self, replica: AttachedReplica) -> None:
        """Let a replica receive this snapshot, too."""
        raise NotImplementedError

    def forget(self, replica: AttachedReplica) -> None:
        """Continue without a replica, which has disconnected."""
        if replica in self.replicas:
            self.replicas.remove(replica)

    def drained(self, replica: AttachedReplica) -> None:
        """Continue with a replica whose socket takes bytes again."""

    def poll(self) -> None:
        """Check whether the child has ended."""

    def flushed(self) -> None:
        """End a transfer of data that FLUSHALL has deleted; the replicas begin again."""


class PipeTransfer(Transfer):
    """Sends what a child writes into a pipe, without a file."""

    def __init__(self, stream: ReplicationStream, replicas: list[AttachedReplica], children: Children,
                 watcher: TransferWatcher, guard: contextlib.AbstractContextManager[Any]) -> None:  # fmt: skip
        super().__init__(stream, replicas)
        self._children = children
        self._watcher = watcher
        self._guard = guard
        self._mark = os.urandom(_MARK_BYTES).hex().encode()
        self._announced = self._complete = False
        self._outcome: ChildOutcome | None = None
        self._reading = False
        self._pipe, writing = os.pipe()
        engine, parts = stream.engine, parts_of(replicas[0])

        def job(report: ChildReport) -> int:
            return stream_rdb(_PipeFile(writing), engine, parts, progress=report)

        keys = sum(len(database) for database in engine.databases)
        try:
            children.start(PURPOSE, job, self._ended, keys=keys, keep=(writing,))
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            os.close(writing)
        os.set_blocking(self._pipe, False)
        assert children.active is not None
        self._say(f"Background RDB transfer started by pid {children.active.pid}")

    def _say(self, text: str) -> None:
        self.stream.engine.services.log_line(text, "notice")

    def begin(self) -> None:
        """Watch the pipe. The end mark is announced with the first bytes: until then, an error may take its place."""
        self._watch(True)

    def _watch(self, wanted: bool) -> None:
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._watcher.add_reader(self._pipe, self._readable)
            else:
                self._watcher.remove_reader(self._pipe)

    def _readable(self) -> None:
        """Send the next piece, unless a replica has not taken the previous one."""
        with self._guard:
            if any(replica.connection.is_slow for replica in self.replicas):
                self._watch(False)
                return
            try:
                data = os.read(self._pipe, _PIECE)
            except BlockingIOError:
                return
            if not data:
                self._complete = True
                self._watch(False)
                self._say(f"Diskless rdb transfer, done reading from pipe, {len(self.replicas)} replicas still up.")
                self._children.poll()
                self._finish()
                return
            now = self.stream.engine.clock.uptime_ms()
            if not self._announced:
                self._announced = True
                data = b"$EOF:" + self._mark + b"\r\n" + data
            for replica in self.replicas:
                replica.write(data)
                replica.sent_ms = replica.sent_ms if replica.connection.is_slow else now

    def drained(self, replica: AttachedReplica) -> None:
        """Read on if no replica is slow."""
        if not self._complete and not any(one.connection.is_slow for one in self.replicas):
            self._watch(True)

    def forget(self, replica: AttachedReplica) -> None:
        """Continue without a replica; without any, kill the child."""
        super().forget(replica)
        if not self.replicas and self._outcome is None and self._children.active is not None:
            self._say("Diskless rdb transfer, last replica dropped, killing fork child.")
            self._children.active.kill()
        self.drained(replica)

    def poll(self) -> None:
        """Check whether the child has ended."""
        self._children.poll()

    def flushed(self) -> None:
        """Kill the child (flushAllDataAndResetRDB)."""
        if self._outcome is None and self._children.active is not None:
            self._children.active.kill()

    def _ended(self, outcome: ChildOutcome) -> None:
        self._outcome = outcome
        if not outcome.ok or not self.replicas:
            self._complete = True
            self._watch(False)
        self._finish()

    def _finish(self) -> None:
        """End the transfer once the child has ended and all of its bytes are sent."""
        outcome = self._outcome
        if outcome is None or not self._complete or self._pipe < 0:
            return
        self._watch(False)
        os.close(self._pipe)
        self._pipe = -1
        replicas, self.replicas = self.replicas, []
        if outcome.ok:
            self._say("Background RDB transfer terminated with success")
            for replica in replicas:
                replica.write(self._mark)
                self.stream.snapshot_sent(replica, at_once=False)
        else:
            self.stream.engine.services.log_line(f"Background transfer error: {outcome.error}")
            self.stream.fail(replicas, "" if self._announced else outcome.error)
        self.stream.transfer_ended()


class _Sender:
    """Sends an open file to one replica, as fast as its socket takes it."""

    __slots__ = ("_at", "_descriptor", "_size", "replica")

    def __init__(self, replica: AttachedReplica, descriptor: int, size: int) -> None:
        self.replica = replica
        self._descriptor = descriptor
        self._size = size
        self._at = 0
        replica.state = SENDING
        replica.write(f"${size}\r\n".encode())

    def pump(self) -> bool:
        """Send what the socket takes; return whether the whole file is sent. OSError if it cannot be read."""
        while self._at < self._size and not self.replica.connection.is_slow:
            data = os.pread(self._descriptor, min(_PIECE, self._size - self._at), self._at)
            if not data:
                raise OSError(f"the RDB file has ended at {self._at} of {self._size} bytes")
            self.replica.write(data)
            self._at += len(data)
        return self._at >= self._size


class FileTransfer(Transfer):
    """Sends an RDB file; the base class sends one that this process has just written."""

    on_disk = True

    def __init__(self, stream: ReplicationStream, replicas: list[AttachedReplica]) -> None:
        super().__init__(stream, replicas)
        self._senders: dict[AttachedReplica, _Sender] = {}
        self._descriptor = -1

    def _send_file(self, descriptor: int) -> None:
        """Begin to send an open file, which this object closes."""
        self._descriptor = descriptor
        size = os.fstat(descriptor).st_size
        for replica in list(self.replicas):
            self._senders[replica] = _Sender(replica, descriptor, size)
        for replica in list(self.replicas):
            self.drained(replica)
        self._end_if_done()

    def drained(self, replica: AttachedReplica) -> None:
        """Send more of the file to a replica."""
        sender = self._senders.get(replica)
        if sender is None:
            return
        try:
            done = sender.pump()
        except OSError as error:
            self.stream.engine.services.log_line(f"The RDB file cannot be sent to {replica.name}: {error}")
            self.stream.fail([replica])
            return
        if done:
            del self._senders[replica]
            self.replicas.remove(replica)
            self.stream.snapshot_sent(replica, at_once=True)
            self._end_if_done()

    def forget(self, replica: AttachedReplica) -> None:
        """Continue without a replica."""
        super().forget(replica)
        self._senders.pop(replica, None)
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._descriptor >= 0 and not self.replicas:
            os.close(self._descriptor)
            self._descriptor = -1
            self._sent()
            self.stream.transfer_ended()

    def _sent(self) -> None:
        """The file is closed."""


class InlineTransfer(FileTransfer):
    """Writes the data to a file without a name in this process, while the engine waits. O(data)"""

    def __init__(self, stream: ReplicationStream, replicas: list[AttachedReplica]) -> None:
        super().__init__(stream, replicas)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - `begin` closes it
        stream_rdb(_PipeFile(self._file.fileno()), stream.engine, parts_of(replicas[0]))

    def begin(self) -> None:
        """Send the file."""
        descriptor = os.dup(self._file.fileno())
        self._file.close()
        self._send_file(descriptor)


class SavedTransfer(FileTransfer):
    """Lets a child write the RDB file of the server (BGSAVE), then sends it."""

    def __init__(self, stream: ReplicationStream, replicas: list[AttachedReplica], snapshots: Snapshots) -> None:
        super().__init__(stream, replicas)
        self._snapshots = snapshots
        self._saving = True
        snapshots.background_for(self._saved)

    def may_join(self, replica: AttachedReplica) -> bool:
        """Return whether the file is not complete yet, and has the commands that the replica needs behind it."""
        properties = replica.properties
        if self._descriptor >= 0 or properties.request != self.request or replica.main is not None:
            return False  # a first connection has not kept the commands since the begin of the file
        return any(one.state == WAIT_END and (one.needs_stream or not replica.needs_stream) for one in self.replicas)

    def join(self, replica: AttachedReplica) -> None:
        """Let a replica receive this file, too."""
        replica.begin(self.history, self.offset)
        self.replicas.append(replica)

    def forget(self, replica: AttachedReplica) -> None:
        """Continue without a replica; without any, kill a child whose file nothing else needs."""
        super().forget(replica)
        if not self.replicas and self._descriptor < 0 and self._saving and not self.stream.settings.save:
            self._snapshots.stop_child()

    def poll(self) -> None:
        """Check whether the child has ended."""
        self._snapshots.children.poll()

    def _saved(self, ok: bool) -> None:
        """Send the file, or disconnect the replicas, which will try again."""
        self._saving = False
        if not ok or not self.replicas:
            self.stream.fail(list(self.replicas))
            self.stream.transfer_ended()
            return
        try:
            descriptor = os.open(self._snapshots.path, os.O_RDONLY)
        except OSError as error:
            self.stream.engine.services.log_line(f"SYNC failed. Can't open the RDB file after BGSAVE: {error.strerror}")
            self.stream.fail(list(self.replicas))
            self.stream.transfer_ended()
            return
        self._send_file(descriptor)

    def _sent(self) -> None:
        """Remove the file if nothing else needs it (rdb-del-sync-files)."""
        settings = self.stream.settings
        if settings.rdb_del_sync_files and not settings.save and self.stream.engine.aof is None:
            with contextlib.suppress(OSError):
                Path(self._snapshots.path).unlink()


class _PipeFile:
    """A descriptor that a snapshot is written to, as a file of rillet.persistence.disk; never synced."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes | bytearray | memoryview) -> int:
        return os.write(self._descriptor, data)

    def sync(self) -> None:
        return


def parts_of(replica: AttachedReplica) -> RdbParts:
    """Return the parts of the data that a replica asked for."""
    properties = replica.properties
    filters = properties.filters
    return RdbParts(
        data=filters is None, functions=filters is None or "functions" in filters,
        compressed=properties.compressed, checked=properties.checked, reader=properties.server,
    )  # fmt: skip
