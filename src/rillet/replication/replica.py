"""An engine that follows a master: the states of the link, the position, and what happens to the data.

    CONNECT ──opened──► HANDSHAKE ──► +CONTINUE ───────────────────────────► CONNECTED ── the stream ─┐
       ▲                    └───────► +FULLRESYNC ──► TRANSFER ──► loaded ──►    │                    │
       └──────────────────────────── a closed connection, an error, a timeout ◄──┴────────────────────┘

`Follower` contains no socket, file or clock. A `Carrier` opens connections, sends bytes and loads
snapshots: the server's event loop (rillet.server.replica_link), or another program. It calls `opened`, `received`,
`lost`, `closed`, `loaded`, `load_failed` and, a few times a second, `tick`.

**The RDB channel** (Redis 8). With a `ChannelCarrier` the snapshot may come over a second connection. Then the first
one carries the stream meanwhile, which waits in `early`:

    HANDSHAKE ──► +RDBCHANNELSYNC ──► second connection ──► +FULLRESYNC ──► TRANSFER ──► loaded ──► CONNECTED
                  first one ────────────── the stream ──────────► early ───────────────────────► applied in turns

If the first connection ends while a file is loaded, or while the buffer is applied, this work is completed first: the
next link continues behind it. An earlier end of either connection ends both.

**Position.** `ReplicationState.id` and `offset` name the data that the engine holds. A new link asks for the bytes that
follow (`resumable`), also if the engine was a master before: if the new master continues the same history, nothing
else is transferred. A full synchronisation that fails after the old data was deleted leaves no position.

**Promotion** (`stop`): the engine begins a new history that continues the master's (`shift_id`), so that the
other replicas of the old master continue at their offsets.
(Redis: replication.c: replicationSetMaster, replicationUnsetMaster, replicationCron, rdbChannelFullSyncWithMaster,
rdbChannelStreamReplDataToDb, rdbChannelAbort.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from rillet.errors import Redirect, Unblocked
from rillet.protocol.command_parser import pack_command
from rillet.replication.applier import Applier
from rillet.replication.channel_handshake import ChannelLink
from rillet.replication.early_stream import EarlyStream, pause_at
from rillet.replication.errors import LinkError
from rillet.replication.handshake import (
    ChannelOffered,
    Continued,
    FullSync,
    LinkOptions,
    MasterLink,
    Note,
    Position,
    SnapshotBegin,
    SnapshotData,
    SnapshotEnd,
    StreamData,
)
from rillet.runtime.engine import Engine
from rillet.runtime.replica import master_address
from rillet.runtime.replication import FAILOVER_IN_PROGRESS, new_id

if TYPE_CHECKING:
    from rillet.runtime.settings.settings import Settings

NONE, CONNECT, CONNECTING, HANDSHAKE, TRANSFER, CONNECTED = (
    "none", "connect", "connecting", "handshake", "sync", "connected")  # fmt: skip
"""The states of a link, as ROLE names them."""
_FORCED = "force unblock from blocking operation, instance state changed (master -> replica?)"
_ACK_MS = 1000  # between two positions that the replica reports


class Carrier(Protocol):
    """The interface that a Follower requires from its program."""

    def connect(self, host: str, port: int) -> None:
        """Begin to open a connection; `opened` or `closed` of the follower is called later."""

    def disconnect(self) -> None:
        """Drop the connection, if there is one, and abort a snapshot; `closed` is not called."""

    def send(self, data: bytes) -> None:
        """Send bytes to the master."""

    def hold(self, held: bool) -> None:
        """Stop to read from the master, or continue."""

    def options(self) -> LinkOptions:
        """Return what the handshake says about this server."""

    def begin_snapshot(self, size: int, same_history: bool) -> None:
        """Prepare for a snapshot of `size` bytes (-1: unknown); `loaded` or `load_failed` is called at its end.

        same_history: the old data is an earlier state of the same history.
        """

    def take_snapshot(self, data: bytes) -> None:
        """Take bytes of the snapshot."""

    def end_snapshot(self) -> None:
        """Take the end of the snapshot."""

    def log_line(self, text: str, warning: bool = False) -> None:
        """Write a line to the log."""

    def refused(self, text: str) -> None:
        """Handle a command of the master that the engine refused."""


class ChannelCarrier(Protocol):
    """The interface for a second connection, which a Follower requires besides a Carrier."""

    def open_channel(self, host: str, port: int) -> None:
        """Begin to open the second connection; `channel_opened` or `channel_closed` is called later."""

    def send_channel(self, data: bytes) -> None:
        """Send bytes to the master on the second connection."""

    def close_channel(self) -> None:
        """Drop the second connection, if there is one; `Carrier.disconnect` drops both."""

    def later(self, function: Callable[[], None]) -> None:
        """Call a function soon, after the events that have come meanwhile."""

    def loads(self) -> str:
        """Return what is loaded at this time: "file", "stream", or "" for nothing."""


class Follower:
    """The link of one engine to its master; `state` is one of the constants of this module.

    applier: makes what applies the stream, from the session, the offset and `carrier.refused`. filtered: the engine
    keeps a part of the keys, so it cannot be a master of others. second: opens the second connection; None: the
    snapshot comes over the first one.
    """

    def __init__(self, engine: Engine, carrier: Carrier, applier: Callable[..., Any] = Applier,
                 *, filtered: bool = False, second: ChannelCarrier | None = None) -> None:  # fmt: skip
        self._engine = engine
        self._carrier = carrier
        self._second = second
        self._new_applier = applier
        self.filtered = filtered
        self._settings: Settings = engine.settings
        self.state = NONE
        self.applier: Any = None
        self.resumable = False
        # Whether a snapshot is loaded beside the old data, which clients read; the carrier sets it.
        self.asynchronous = False
        # FAILOVER: the next PSYNC makes the other server a master.
        self.failover = False
        # The connection as CLIENT LIST and CLIENT KILL use it; the carrier sets it, or None.
        self.transport: Any = None
        self._link: MasterLink | None = None
        self._channel: ChannelLink | None = None  # while the second connection is used
        self._full = FullSync("", -1)
        self._lost: str | None = None  # why the first connection has ended; what it brought is completed first
        # The stream that came before the snapshot was loaded.
        self.early = EarlyStream(engine, carrier, second, self._apply, self.closed)
        self._acked_ms = 0
        self._fsynced = 0
        self._unsynced: list[tuple[int, int]] = []  # positions of the log, and the offsets that they contain
        # For INFO: times in ms of the engine's clock, 0 for never.
        self.last_io_ms = 0
        self.down_since_ms = 0
        self.up_since_ms = 0
        self.disconnected_ms = 0
        self._gone_ms = 0  # when the stream, or a transfer, ended; 0 since the next one began
        self.disconnections = 0
        self.attempts = self.total_attempts = 0
        self.snapshot_size = self.snapshot_read = 0

    @property
    def connected(self) -> bool:
        """Whether the engine follows the stream of its master."""
        return self.state == CONNECTED

    @property
    def full(self) -> FullSync:
        """The position of the last snapshot."""
        return self._full

    def position_within(self) -> tuple[int, int] | None:
        """Return the offset and the database before the command that runs; None between pieces of the stream.

        The state has the position before the piece. FLUSHALL writes an RDB file that has save points: its empty data
        belongs to the position of that command. A transaction counts from its MULTI, and so does the state.
        """
        engine, applier = self._engine, self.applier
        if not isinstance(applier, Applier) or not engine.applying or engine.propagation.depth != 1:
            return None
        return applier.offset, applier.session.db.index

    # -- whom to follow ------------------------------------------------------------------------------

    def announce(self, host: str, port: int) -> None:
        """Show the engine as a replica without a link while it loads its data; `follow` is called at the end.

        A client, and Sentinel, must not take a replica that starts for a master.
        """
        state = self._engine.replication
        state.master, state.link, self.state = (host, port), self, CONNECT

    def follow(self, host: str, port: int, *, resumable: bool = True) -> None:
        """Follow a master from now on. resumable: the engine's own position may be one of the master's history."""
        state, was_master = self._engine.replication, not self._engine.follows
        self._drop()
        if was_master:
            self.resumable = resumable
        state.master = (host, port)
        state.link = self
        self._engine.follows = True
        if state.stream is not None:
            state.stream.role_changed()
        if not (state.failover_state == FAILOVER_IN_PROGRESS and self._settings.compat.valkey):
            self._disconnect_blocked()
        self.attempts = self.total_attempts = 0
        self._connect()

    def stop(self) -> None:
        """Become a master with the current data, which continues the history of the old master."""
        state = self._engine.replication
        if state.master is None:
            return
        self._drop()
        state.master = state.link = None
        state.own_keys.clear()
        state.shift_id()
        if state.stream is not None:
            state.stream.history_changed()
        self._engine.follows = False
        self.state = NONE
        self.resumable = False
        self.attempts = self.total_attempts = 0
        self.down_since_ms = self.up_since_ms = 0

    def _disconnect_blocked(self) -> None:
        """Wake the clients that wait for keys: a replica could not serve them (disconnectAllBlockedClients).

        In Valkey, reads of a client in the mode READONLY wait on, and clients that can follow are sent to the master.
        A failover of Valkey wakes the clients at its end, when the other server is the master.
        """
        engine = self._engine
        for session in list(engine.sessions.values()):
            blocked = session.blocked
            if blocked is None or blocked.postponed or ("readonly" in session.extra and not session.command.write):
                continue
            if blocked.keys and "redirects" in session.extra:
                engine.blocking.fail(session, Redirect(master_address(engine)))
            else:
                session.enter("close")
                engine.blocking.fail(session, Unblocked(_FORCED))

    # -- the connection ------------------------------------------------------------------------------

    def _now(self) -> int:
        return self._engine.clock.now_ms()

    def _connect(self) -> None:
        host, port = self._engine.replication.master or ("", 0)
        self.state = CONNECTING
        self.last_io_ms = self._now()
        self.attempts += 1
        self.total_attempts += 1
        self._carrier.log_line(f"Connecting to MASTER {host}:{port}")
        self._carrier.connect(host, port)

    def _drop(self) -> None:
        """Drop the connections; the applied position stays."""
        self._carrier.disconnect()
        self._closed_stream()
        self._link = self._channel = self._lost = None
        self.early.clear()

    def _closed_stream(self) -> None:
        if self.applier is not None:
            self._engine.close_session(self.applier.session)
            self.applier = None
        if self.state in (CONNECTED, TRANSFER):
            self._gone_ms = self._gone_ms or self._now()
        if self.state == CONNECTED:
            self.disconnections += 1
            self.attempts = 0
            self.down_since_ms, self.up_since_ms = self._now(), 0

    def opened(self) -> None:
        """Begin the handshake on a new connection."""
        state = self._engine.replication
        self._carrier.log_line("Non blocking connect for SYNC fired the event.")
        position = Position(state.id, state.position()) if self.resumable else None
        options = self._carrier.options()._replace(failover=self.failover)
        if self._second is None:
            options = options._replace(rdb_channel=False)
        self._link = MasterLink(options, position)
        self.state = HANDSHAKE
        self.last_io_ms = self._now()
        self._carrier.send(self._link.outgoing())

    def lost(self, reason: str) -> None:
        """Handle the end of the connection by the master or the network: complete what can be, or do `closed`."""
        loads = self._second.loads() if self._second is not None and self._channel is not None else ""
        if loads:
            self._carrier.log_line("Aborting rdb channel sync while loading the RDB.")
        if self.early.is_draining or loads == "file":
            if loads:
                self._carrier.log_line("After loading RDB, replica will try psync with master.")
            self._lost = reason
            return
        if loads:
            self._carrier.log_line("Failed trying to load the MASTER synchronization DB from socket: "
                                   "the other connection has ended", warning=True)  # fmt: skip
        self.closed(reason)

    def closed(self, reason: str) -> None:
        """End the link; connect again, at once if the stream was followed until now."""
        was_connected = self.state == CONNECTED
        if self.state in (NONE, CONNECT):
            return
        self._carrier.log_line(reason or "Connection with master lost.", warning=True)
        self._drop()
        self.state = CONNECT
        if was_connected:
            host, port = self._engine.replication.master or ("", 0)
            self._carrier.log_line(f"Reconnecting to MASTER {host}:{port}")
            self._connect()

    def received(self, data: bytes) -> None:
        """Handle bytes of the master."""
        self.last_io_ms = self._now()
        try:
            if self.applier is not None:
                self.applier.session.last_ms = self.last_io_ms
                self._take(data)
                return
            link = self._link
            if link is None:
                return
            for event in link.receive(data):
                self._handle(event)
                if self._link is not link:
                    return
            out = link.outgoing()
            if out:
                self._carrier.send(out)
        except LinkError as error:
            self._handed_over(False)
            self.closed(str(error))

    def _handle(self, event: Any) -> None:
        carrier = self._carrier
        if isinstance(event, StreamData):
            self._take(event.data)
        elif isinstance(event, SnapshotData):
            self.snapshot_read += len(event.data)
            carrier.take_snapshot(event.data)
        elif isinstance(event, Note):
            carrier.log_line(event.text)
        elif isinstance(event, Continued):
            self._handed_over(True)
            self._continue(event)
        elif isinstance(event, ChannelOffered):
            self._handed_over(True)
            self._open_channel(event)
        elif isinstance(event, FullSync):
            self._handed_over(bool(event.id))
            if self._link is None:
                return
            self._full = event
            self.state = TRANSFER
            self.snapshot_size, self.snapshot_read = -1, 0
            if event.id:
                carrier.log_line(f"Full resync from master: {event.id}:{event.offset}")
            if self._channel is not None:
                carrier.log_line("Starting to receive RDB and replication stream in parallel.")
        elif isinstance(event, SnapshotBegin):
            self.snapshot_size = max(event.size, 0)
            what = "streamed replica data from master" if event.size < 0 else f"{event.size} bytes from master"
            carrier.log_line(f"MASTER <-> REPLICA sync: receiving {what}")
            carrier.begin_snapshot(event.size, self._full.id == self._engine.replication.id and self.resumable)
        elif isinstance(event, SnapshotEnd):
            carrier.end_snapshot()

    def _handed_over(self, accepted: bool) -> None:
        """End a failover whose target has taken over the role of the master, or has refused."""
        if self.failover:
            self.failover = False
            handover = self._engine.replication.failover
            if accepted:
                if self._settings.compat.valkey:
                    self._disconnect_blocked()
                handover.end()
            else:
                handover.abort("Failover target rejected psync request")

    # -- the second connection -----------------------------------------------------------------------

    def _open_channel(self, event: ChannelOffered) -> None:
        """Open the second connection, which brings the snapshot."""
        assert self._second is not None
        self._channel = ChannelLink(self._carrier.options(), event.client)
        self._carrier.log_line("PSYNC is not possible, initialize RDB channel.")
        self._second.open_channel(*(self._engine.replication.master or ("", 0)))

    def channel_opened(self) -> None:
        """Begin the handshake on the second connection."""
        if self._channel is not None and self._second is not None:
            self.last_io_ms = self._now()
            self._second.send_channel(self._channel.outgoing())

    def channel_received(self, data: bytes) -> None:
        """Handle bytes of the second connection."""
        link, second = self._channel, self._second
        if link is None or second is None:
            return
        self.last_io_ms = self._now()
        try:
            for event in link.receive(data):
                self._handle(event)
                if self._channel is not link:
                    return
        except LinkError as error:
            self.closed(f"rdb channel sync failed with error: {error}")
            return
        out = link.outgoing()
        if out:
            pause_at(self._engine, "before-rdb-channel")
            second.send_channel(out)

    def channel_closed(self, reason: str) -> None:
        """Handle the end of the second connection, which is expected behind the snapshot."""
        if self._channel is not None and self._channel.phase != "done":
            self.closed(f"rdb channel sync failed with error: {reason or 'the connection has ended'}")

    def _take(self, data: bytes) -> None:
        """Apply bytes of the stream, or keep them until those before them are applied."""
        if self.applier is not None and not self.early.is_draining:
            self._apply(data)
        else:
            self.early.feed(data, alone=self._channel is None)

    def _drained(self) -> None:
        """Continue after the buffer is applied."""
        if self._lost is not None:
            self.closed(self._lost)

    # -- synchronised --------------------------------------------------------------------------------

    def _continue(self, event: Continued) -> None:
        """Continue at the current position, perhaps in a new history that continues the old one."""
        state = self._engine.replication
        self._carrier.log_line("Successful partial resynchronization with master.")
        if event.id and event.id != state.id:
            self._carrier.log_line(f"Master replication ID changed to {event.id}")
            state.id2, state.second_offset = state.id, state.offset + 1
            state.id = event.id
            if state.stream is not None:
                state.stream.history_changed()
        self._begin_stream()
        self._carrier.log_line("MASTER <-> REPLICA sync: Master accepted a Partial Resynchronization.")

    def data_replaced(self) -> None:
        """Forget the position: the old data is about to be deleted or replaced. The carrier calls this."""
        self.resumable = False
        state = self._engine.replication
        state.id = new_id()  # a promotion must not claim the history of data that is gone
        state.forget_second()
        if state.stream is not None:
            state.stream.data_replaced()

    def loaded(self, db: int) -> None:
        """Follow the stream after a snapshot; db: the database that the stream had selected."""
        state = self._engine.replication
        self._drop_own_keys()
        state.id, state.offset = (self._full.id, self._full.offset) if self._full.id else (new_id(), 0)
        state.forget_second()
        state.db = db if 0 <= db < len(self._engine.databases) else 0
        if state.stream is not None:
            state.stream.data_loaded()
        self._begin_stream()
        self._carrier.log_line("MASTER <-> REPLICA sync: Finished with success")
        self.acknowledge()
        if self._channel is None or self._second is None:
            self.early.apply()
        else:
            self._channel = None
            self._second.close_channel()
            self.early.drain(self._drained)

    def _drop_own_keys(self) -> None:
        self._engine.replication.own_keys.clear()

    def load_failed(self, reason: str) -> None:
        """Try again later; the carrier has left the old data or empty databases."""
        self.closed(f"Failed trying to load the MASTER synchronization DB: {reason}")

    def _begin_stream(self) -> None:
        engine, state = self._engine, self._engine.replication
        session = engine.session(trusted=True)
        session.enter("follow")
        session.transport = self.transport
        session.db = engine.databases[state.db]
        self.applier = self._new_applier(session, state.offset, self._carrier.refused)
        self.state = CONNECTED
        self.resumable = bool(self._full.id) or self.resumable
        self.failover = False
        now = self._now()
        if self._gone_ms:  # also while the engine was a master
            self.disconnected_ms += now - self._gone_ms
        self._gone_ms = 0
        self.down_since_ms, self.up_since_ms = 0, now
        self._unsynced = []
        self._fsynced = state.offset
        self._acked_ms = now

    def _apply(self, data: bytes) -> None:
        applier = self.applier
        assert applier is not None
        applier.feed(data)
        if applier.ack_wanted:
            applier.ack_wanted = False
            self.acknowledge()

    # -- periodic work -------------------------------------------------------------------------------

    def tick(self) -> None:
        """Connect again, report the position, and notice silence; call this a few times a second."""
        if self.state == NONE or not self._engine.follows:
            return
        now = self._now()
        if self.early.is_draining:
            self.last_io_ms = now  # this side is what takes time
        silent = now - self.last_io_ms > 1000 * self._settings.repl_timeout
        if self.state == TRANSFER and now - self._acked_ms >= _ACK_MS:
            self._acked_ms = now
            self._carrier.send(b"\n")  # this replica is alive (replicationSendNewlineToMaster)
        if self.state == CONNECT:
            if now - self.last_io_ms >= _ACK_MS:
                self._connect()
        elif self.state == CONNECTED:
            if silent:
                self.closed("MASTER timeout: no data nor PING received...")
            elif now - self._acked_ms >= _ACK_MS or self._more_is_synced():
                self.acknowledge()
        elif silent and not (self.early.is_held or self._is_loading_file()):
            what = "receiving bulk data from MASTER..." if self.state == TRANSFER else "connecting to the MASTER..."
            self.closed(f"Timeout {what}")

    def _is_loading_file(self) -> bool:
        return self._channel is not None and self._second is not None and self._second.loads() == "file"

    def _more_is_synced(self) -> bool:
        """Return whether the log on disk contains more of the stream than was reported."""
        log = self._engine.log
        return log is not None and bool(self._unsynced) and bool(log.synced >= self._unsynced[0][0])

    def acknowledge(self) -> None:
        """Report the applied position, and the part of it that is in the log on disk (replicationSendAck)."""
        offset = self._engine.replication.offset
        self._acked_ms = self._now()
        words: list[bytes] = [b"REPLCONF", b"ACK", str(offset).encode()]
        log = self._engine.log
        if log is not None and self._settings.compat.knows(72):
            self._unsynced.append((log.position, offset))
            while self._unsynced and log.synced >= self._unsynced[0][0]:
                self._fsynced = self._unsynced.pop(0)[1]
            words += [b"FACK", str(self._fsynced).encode()]
        self._carrier.send(pack_command(words))
