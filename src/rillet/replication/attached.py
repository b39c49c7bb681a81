"""One attached replica, as its master sees it (Redis: the client flags and fields of a replica, replstate).

    WAIT_START    it needs a full synchronisation, which has not begun
    WAIT_END      the snapshot is being made; without a disk it is sent meanwhile
    SENDING       the RDB file is sent
    ONLINE        it has the snapshot, or needs none; `streams`: it receives the commands since then

A replica with an RDB channel (Redis 8) has two connections. The second one has the first three states. Its `main` is
the first one, which has these:

    WAIT_CHANNEL  it needs a full synchronisation: the second connection has not begun it
    STREAMING     it receives the commands, while the second one receives the snapshot
    ONLINE        the second connection has received everything

A replica has a position in the stream, and no buffer: `pump` sends from the backlog as fast as the socket takes it.
After a transfer without a file, the commands wait for the replica's first REPLCONF ACK, because the replica searches
the end of the data in what it receives (repl_start_cmd_stream_on_ack).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet.replication.backlog import Backlog
from rillet.runtime.replication import WAIT_CHANNEL, ReplicaProperties

if TYPE_CHECKING:
    from rillet.runtime.session import Session

WAIT_START, WAIT_END, SENDING, ONLINE = "wait_start", "wait_end", "send_bulk", "online"
STREAMING = "send_bulk_and_stream"
_SHOWN = {WAIT_START: "wait_bgsave", WAIT_END: "wait_bgsave", SENDING: "send_bulk", ONLINE: "online",
          WAIT_CHANNEL: "wait_bgsave", STREAMING: "send_bulk_and_stream"}  # fmt: skip
_PIECE = 1 << 18  # bytes that are read from the backlog at once


class AttachedReplica:
    """A replica: its connection, its state and its acknowledged offsets; times in ms of Clock.uptime_ms."""

    __slots__ = (
        "_peer", "above_since", "ack", "ack_ms", "asked", "connection", "disk_ack", "main", "needs_stream",
        "old_protocol", "position", "properties", "sent_ms", "session", "state", "streams", "waiting_since",
    )  # fmt: skip

    def __init__(self, session: Session, properties: ReplicaProperties, now: int) -> None:
        self.session = session
        self.connection: Any = session.transport
        self.properties = properties
        self._peer: str = session.address("peer").decode("utf-8", "surrogateescape").rpartition(":")[0].strip("[]")
        self.state = WAIT_START
        self.streams = False
        self.position = 0  # the bytes of the stream before its next one
        self.ack = self.disk_ack = 0
        self.ack_ms = self.sent_ms = self.waiting_since = now
        self.above_since = 0  # time (ms since the epoch) at which the unsent bytes exceeded the soft limit
        self.old_protocol = False  # SYNC: no acknowledgements
        self.asked = False  # the answer with its version has not come
        self.needs_stream = not properties.rdb_only
        self.main: AttachedReplica | None = properties.main if properties.rdb_channel else None

    @property
    def shown_state(self) -> str:
        """The state in INFO."""
        return _SHOWN[self.state]

    def lag_seconds(self, now: int) -> int:
        """Return the seconds since the last acknowledgement, 0 before the replica is online."""
        return (now - self.ack_ms) // 1000 if self.state == ONLINE else 0

    @property
    def address(self) -> str:
        """The IP address, as the replica announced it or as the socket shows it."""
        return self.properties.address or self._peer

    @property
    def name(self) -> str:
        """The address and port for the log of the server (replicationGetSlaveName)."""
        if self.properties.port:
            return f"{self.address}:{self.properties.port}"
        return f"client id #{self.session.id}"

    @property
    def buffering(self) -> bool:
        """Whether the backlog must keep the bytes since the replica's position."""
        return self.needs_stream and self.state not in (WAIT_START, WAIT_CHANNEL)

    def behind(self, end: int) -> int:
        """Return the bytes that the replica has not been sent, or not taken from the socket."""
        return (end - self.position if self.buffering else 0) + int(self.connection.unsent)

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self.connection.send_raw(data)

    def begin(self, history: str, offset: int) -> None:
        """Announce a full synchronisation of the data at an offset (replicationSetupSlaveForFullResync)."""
        self.state = WAIT_END
        self.position = offset
        if self.main is not None and self.main.state == WAIT_CHANNEL:
            self.main.state, self.main.position, self.main.streams = STREAMING, offset, True
        if not self.old_protocol:
            self.write(f"+FULLRESYNC {history} {offset}\r\n".encode())

    def pump(self, backlog: Backlog, latest: bytes, now: int) -> int:
        """Send what the socket takes of the stream; `latest`: its last bytes. Return the number of bytes sent."""
        start, end = self.position, backlog.end
        if end - start == len(latest) and not self.connection.is_slow:
            self.write(latest)
            self.position = end
        while self.position < end and not self.connection.is_slow:
            data = backlog.read(self.position, _PIECE)
            self.write(data)
            self.position += len(data)
        if not self.connection.is_slow:
            self.sent_ms = now
        return self.position - start

    def refuse(self, reason: str) -> None:
        """Disconnect the replica, which waits for its snapshot, with an error that it logs."""
        self.write(_error(reason))
        self.connection.close_when_sent()

    def close(self) -> None:
        """Disconnect the replica."""
        self.connection.close()


def _error(reason: str) -> bytes:
    """Return an error of one line."""
    return b"-ERR " + " ".join(reason.split()).encode("utf-8", "backslashreplace") + b"\r\n"
