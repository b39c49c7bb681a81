"""The stream of changes of one engine, and the replicas that follow it (Redis: replication.c, the master's side).

    engine ── propagation ── feed ──┐ pull
                                    ├──► backlog ──► pump ──► replica's socket
    a master's bytes ── feed_raw ───┘       │
                                            └──► PSYNC: the bytes since the offset of a replica that reconnects

On a master the stream consists of the commands that the engine propagates: those of the append-only log's buffer, or of
the stream's own log (stream_log.py). On a replica it consists of the bytes that its master sends, unchanged, so that
all servers of a chain share one history and its offsets. `role_changed` selects the source. The stream adds PING and
REPLCONF GETACK. Every byte counts: `ReplicationState.offset` is the end of the backlog.

A full synchronisation (transfer.py) begins with the data at one offset; the stream continues there, with a SELECT.

Several threads may call `pull` while they hold the engine's lock; all other methods belong to the thread of the server.
docs/design/0029-the-replication-stream.md has the rules that follow from Redis's protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rillet.errors import CommandError, StoreError
from rillet.persistence.aof.position import note
from rillet.protocol.command_parser import pack_command
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.replication.attached import ONLINE, SENDING, STREAMING, WAIT_END, WAIT_START, AttachedReplica
from rillet.replication.backlog import DROPPED_AT_ONCE, Backlog
from rillet.replication.channels import begin_channel, is_second, waits_for
from rillet.replication.early_stream import pause_at
from rillet.replication.errors import NoMasterLink
from rillet.replication.failover import Failover
from rillet.replication.limits import Limits, covers, name_of
from rillet.replication.stream_log import StreamLog
from rillet.runtime.admission import FEW_REPLICAS
from rillet.runtime.replica_versions import UNKNOWN
from rillet.runtime.replication import NO_FAILOVER, RDB_CHANNEL, ReplicationState, properties_of

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine
    from rillet.runtime.session import Session
    from rillet.types.compat import Compat

_PING = b"*1\r\n$4\r\nPING\r\n"
_GETACK = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n"
_SECOND = 1000
_TRIMMED_PER_RUN = 10 * DROPPED_AT_ONCE
_UNCOUNTED = 16384  # bytes that a replica may be behind before its output limits are checked


class ReplicationStream:
    """The stream of an engine: its backlog and its replicas; see Engine.replication.stream.

    new_transfer(stream, replicas, diskless) starts the transfer of a snapshot (transfer.Transfer) or raises OSError.
    can_fork() is False while another child process works. forks: a child makes the snapshots, for which it is worth
    while to wait for more replicas. ask(host, port, answered) finds the version of a replica (types.compat.Compat).
    """

    def __init__(self, engine: Engine, new_transfer: Callable[[Any, list[AttachedReplica], bool], Any],
                 can_fork: Callable[[], bool], forks: bool,
                 ask: Callable[[str, int, Callable[[Any], None]], None] | None = None) -> None:  # fmt: skip
        self.engine = engine
        self.state: ReplicationState = engine.replication
        self.settings = engine.settings
        self.backlog = Backlog(self.settings.repl_backlog_size, self.state.offset)
        self.replicas: list[AttachedReplica] = []
        self.transfer: Any = None
        self.log = StreamLog(self)
        # The sessions that are blocked in WAIT and WAITAOF.
        self.waiting: list[Any] = []
        # The last replica that replicas_in_time counted, for INFO.
        self.good = 0
        self._new_transfer = new_transfer
        self._can_fork = can_fork
        self._forks = forks
        self._ask = ask
        self.limits = Limits(engine, self.flush_soon)
        self._feed: PropagationBuffer | None = None
        # The end of the last change; PING and GETACK may follow.
        self.changed = self.backlog.end
        self._sent = self.backlog.end  # the bytes of the stream that `send` has handled
        self._latest = b""  # the last bytes of the backlog, in one piece
        self._wants_acks = False
        self._noted: Any = None  # the file of the log that has a position
        self._flush_posted = False
        self._idle_since = engine.clock.uptime_ms()
        self._due = 0
        # PINGs come at the seconds of the engine that repl-ping-replica-period divides (replication_cron_loops).
        self._rounds = max(engine.clock.now_ms() - engine.started_ms, 0) // _SECOND + 1
        engine.propagation.on_feed = self._feed_changed
        self.state.stream = self
        self.role_changed()

    # -- the source of the bytes -----------------------------------------------------------------------

    def role_changed(self) -> None:
        """Take the bytes from the engine on a master, and from `feed_raw` alone on a replica."""
        propagation, is_master = self.engine.propagation, self.state.master is None
        propagation.feeds_replicas = is_master
        propagation.set_spare(self.log if is_master else None)
        self.limits.update(self.replicas)
        self._refresh_good()

    def _feed_changed(self) -> None:
        """Take the bytes from another buffer: the append-only log was turned on or off, or the role has changed."""
        feed = self.engine.propagation.feed if self.state.master is None else None
        before = self._feed
        if feed is before:
            return
        self.pull()
        if before is not None and before is not self.log.feed:
            before.share(False)
        self._feed = feed
        if feed is self.log.feed:
            feed.take_bytes()
            feed.forget_db()
        elif feed is not None:
            feed.share(True)

    @property
    def database(self) -> int:
        """The database that the stream has selected, 0 if none."""
        return 0 if self._feed is None else max(self._feed.db, 0)

    def pull(self) -> None:
        """Take over the commands that the engine has propagated. Any thread may call it with the engine's lock."""
        feed = self._feed
        if feed is not None:
            data = feed.take_bytes() if feed is self.log.feed else feed.pull()
            if data:
                self._append(data)
                self.changed = self.backlog.end

    def feed(self, commands: list[tuple[int, list[bytes]]]) -> None:
        """Append commands, each with its database, that changed the data before the stream began."""
        for db, argv in commands:
            self.log.append(db, argv)
        self.pull()

    def feed_words(self, argv: list[bytes]) -> None:
        """Append a command as it is, in the database that is selected, and send it."""
        self.flush()
        self._append(pack_command(argv))
        self.changed = self.backlog.end
        self.send()

    def feed_raw(self, data: bytes) -> None:
        """Append the bytes that this replica has received from its master, and send them on."""
        servers = [one.properties.server for one in self.replicas if one.streams and one.properties.server is not None]
        newer = self.limits.newer(servers, data) if servers else ""
        if newer:
            for replica in [one for one in self.replicas if one.properties.server is not None]:
                assert replica.properties.server is not None
                if self.limits.newer([replica.properties.server], data):
                    self._too_old(replica, f"{name_of(replica.properties.server)} does not know {newer!r}")
        self._append(data)
        self.send()

    def _append(self, data: bytes) -> None:
        self.backlog.append(data)
        self._latest = data
        self.state.offset = self.backlog.end

    def close(self) -> None:
        """Drop the backlog: the engine has no stream any more (freeReplicationBacklog)."""
        self.limits.close()
        propagation = self.engine.propagation
        self.state.stream = None
        propagation.feeds_replicas = False
        if self._feed is not None and self._feed is not self.log.feed:
            self._feed.share(False)
        self._feed = None
        propagation.on_feed = None
        propagation.set_spare(None)

    def note_position(self, *, always: bool = False) -> None:
        """End the next write to the log with its position, if it has changes or begins a file (aof/position.py)."""
        log = self.engine.aof
        if log is None or log.file is None or log.failure is not None:
            return
        if always or log.feed.used or log.file is not self._noted:
            self._noted = log.file
            log.feed.annotate(note(self.state.saved_position()))

    # -- what the replica's side reports -----------------------------------------------------------------

    def history_changed(self) -> None:
        """Let the replicas learn the new history of the data, or the new role, by a resynchronisation."""
        self.role_changed()
        self.disconnect_replicas()

    def data_replaced(self) -> None:
        """Disconnect the replicas: the data is about to be replaced."""
        self.disconnect_replicas()

    def data_loaded(self) -> None:
        """Continue at the offset of the loaded data, with an empty backlog."""
        offset = self.state.offset
        self.backlog = Backlog(self.settings.repl_backlog_size, offset)
        self._sent, self._latest, self.changed = offset, b"", offset

    # -- sending -----------------------------------------------------------------------------------------

    def flush_soon(self) -> None:
        """Have `flush` called soon in the thread of the server; from any thread that holds the engine's lock."""
        if not self._flush_posted:
            self._flush_posted = True
            self.engine.services.post(self.flush)

    def flush(self) -> None:
        """Send the propagated commands to the replicas."""
        self._flush_posted = False
        self.pull()
        if self._wants_acks:
            self._wants_acks = False
            if self.state.master is None and not self._failing_over and any(one.streams for one in self.replicas):
                self._append(_GETACK)
        if self.backlog.end != self._sent or self.limits.refused:
            self.send()

    def send(self) -> None:
        """Send new bytes of the backlog to the replicas, and drop old ones that no replica needs."""
        if self.limits.refused:
            self._drop_refused()
        backlog = self.backlog
        latest, end = self._latest, backlog.end
        if end - self._sent > len(latest):
            latest = b""
        self._sent = needed = end
        now = self.engine.clock.uptime_ms()
        for replica in list(self.replicas):
            if replica.streams:
                self.state.sent_bytes += replica.pump(backlog, latest, now)
            if replica.buffering:
                if end - replica.position > _UNCOUNTED and not self._within_limits(replica):
                    continue
                needed = min(needed, replica.position)
        backlog.trim(needed)

    def drained(self, replica: AttachedReplica) -> None:
        """Continue with a replica whose socket takes bytes again."""
        if self.limits.refused:
            self._drop_refused()
        if replica not in self.replicas:
            return
        now = self.engine.clock.uptime_ms()
        if replica.streams:
            self.state.sent_bytes += replica.pump(self.backlog, b"", now)
        else:
            replica.sent_ms = now
        if self.transfer is not None:
            self.transfer.drained(replica)

    def _within_limits(self, replica: AttachedReplica) -> bool:
        """Return whether a replica is within client-output-buffer-limit; if not, disconnect it."""
        limit = self.settings.client_output_buffer_limit.replica.at_least(self.settings.repl_backlog_size)
        waiting = replica.behind(self.backlog.end)
        reached, replica.above_since = limit.reached(waiting, replica.above_since, self.engine.clock.now_ms())
        if not reached:
            return True
        self.engine.stats.output_limit_hits += 1
        self._say(f"Client id={replica.session.id} replica={replica.name} scheduled to be closed ASAP for overcoming "
                  f"of output buffer limits. {waiting} bytes wait for it.", "warning")  # fmt: skip
        self._drop(replica)
        return False

    def _drop_refused(self) -> None:
        """Disconnect the replicas that are too old for the last commands, before these are sent."""
        for replica, reason in self.limits.take_refused(self.replicas):
            self._too_old(replica, reason)
        self.limits.update(self.replicas)

    def _too_old(self, replica: AttachedReplica, reason: str) -> None:
        self._say(
            f"Replica {replica.name} is disconnected, because it would differ from its master: {reason}", "warning"
        )
        self._drop(replica)

    def _drop(self, replica: AttachedReplica) -> None:
        self.forget(replica)
        replica.close()

    def forget(self, replica: AttachedReplica) -> None:
        """Unregister a replica whose connection has ended."""
        if replica not in self.replicas:
            return
        self.replicas.remove(replica)
        if not self.replicas:
            self._idle_since = self.engine.clock.uptime_ms()
        if self.transfer is not None:
            self.transfer.forget(replica)
        main = waits_for(replica)
        if main is not None:
            self._drop(main)
        self._trim()
        self._refresh_good()
        if replica.state == ONLINE:
            self._say(f"Connection with replica {replica.name} lost.")

    def _trim(self) -> None:
        """Drop bytes beyond the limit that replicas needed which have left. O(replicas)"""
        if len(self.backlog) > self.backlog.limit:
            needed = min((one.position for one in self.replicas if one.buffering), default=self.backlog.end)
            self.backlog.trim(needed, _TRIMMED_PER_RUN)

    def disconnect_replicas(self) -> None:
        """Disconnect all replicas, so that they resynchronise (disconnectSlaves)."""
        for replica in list(self.replicas):
            self._drop(replica)

    # -- attaching ---------------------------------------------------------------------------------------

    def attach(self, session: Session, history: str | None, offset: int) -> None:
        """Make a client's connection that of a replica (syncCommand); history None: SYNC. CommandError.

        Everything that the client receives from now on comes from this object.
        """
        if session.extra.get("attached") is not None:
            return
        if self.state.failover_state != NO_FAILOVER:
            raise NoMasterLink("Can't SYNC while failing over")
        if self.state.master is not None and not getattr(self.state.link, "connected", False):
            raise NoMasterLink("Can't SYNC while not connected with my master")
        properties = properties_of(session)
        if not session.transport.settled:
            raise CommandError("SYNC and PSYNC are invalid with pending output")
        if properties.filters is not None and "eof" not in properties.capabilities:
            raise CommandError("Filtered replica requires EOF capability")
        replica = AttachedReplica(session, properties, self.engine.clock.uptime_ms())
        self._say(f"Replica {replica.name} asks for synchronization")
        replica.old_protocol = history is None
        if replica.main is not None:
            properties.server = replica.main.properties.server
            self._synchronise(replica, history, offset)
            return
        if self.limits.learn(replica) or self._ask is None:
            self._synchronise(replica, history, offset)
            return
        replica.asked = True
        self._register(replica)
        self._ask(replica.address, properties.port, lambda server: self._answered(replica, server, history, offset))

    def _answered(self, replica: AttachedReplica, server: Compat | None, history: str | None, offset: int) -> None:
        """Continue with a replica that was asked for its version; server: None if there was no answer."""
        replica.asked = False
        if replica not in self.replicas or self.state.stream is not self:
            return
        if server is None:
            self._say(f"Replica {replica.name} did not answer INFO: it is treated as {name_of(UNKNOWN)} (repl-compat)")
        replica.properties.server = server or UNKNOWN
        self._synchronise(replica, history, offset)

    def _synchronise(self, replica: AttachedReplica, history: str | None, offset: int) -> None:
        """Let a replica whose version is known continue, or begin."""
        self.flush()
        if history is not None and self._can_continue(replica, history, offset):
            self._register(replica)
            self.state.partial_syncs += 1
            self._continue(replica, offset)
            return
        if history is not None and not history.startswith("?"):
            self.state.failed_partial_syncs += 1
        if history is not None and self._forks and RDB_CHANNEL in replica.properties.capabilities:
            self._register(replica)
            self._say(f"Replica {replica.name} is capable of rdb channel synchronization, and partial sync isn't "
                      "possible. Full sync will continue with dedicated rdb channel.")  # fmt: skip
            begin_channel(replica)
            return
        self.state.full_syncs += 1
        self._register(replica)
        self._wait_for_transfer(replica)

    def _register(self, replica: AttachedReplica) -> None:
        session = replica.session
        session.enter("replicate")
        session.remember("attached", replica)
        replica.connection.become_replica()
        if replica not in self.replicas:
            self.replicas.append(replica)
        self.limits.update(self.replicas)

    def _can_continue(self, replica: AttachedReplica, history: str, offset: int) -> bool:
        """Return whether a replica can continue at an offset (masterTryPartialResynchronization)."""
        state, wanted = self.state, history.lower()
        if wanted != state.id and (wanted != state.id2 or offset > state.second_offset):
            if history.startswith("?"):
                channel = " (rdb-channel)" if replica.properties.rdb_channel else ""
                self._say(f"Full resync requested by replica {replica.name}{channel}")
            elif wanted not in (state.id, state.id2):
                self._say(f"Partial resynchronization not accepted: Replication ID mismatch (Replica asked for "
                          f"'{history}', my replication IDs are '{state.id}' and '{state.id2}')")  # fmt: skip
            else:
                self._say(f"Partial resynchronization not accepted: Requested offset for second ID was {offset}, "
                          f"but I can reply up to {state.second_offset}")  # fmt: skip
            return False
        if not self.backlog.holds(offset - 1):
            self._say(f"Unable to partial resync with replica {replica.name} for lack of backlog "
                      f"(Replica request was: {offset}).")  # fmt: skip
            return False
        server = replica.properties.server
        if server is not None and offset <= self.backlog.end:
            start = self.backlog.boundary(offset - 1)
            data = self.backlog.read(start, self.backlog.end - start)
            newer = self.limits.newer([server], data, offset - 1 - start)
            if newer:
                self._say(f"Partial resynchronization not accepted: {name_of(server)} does not know {newer!r}")
            return not newer
        return True

    def _continue(self, replica: AttachedReplica, offset: int) -> None:
        history = f" {self.state.id}" if "psync2" in replica.properties.capabilities else ""
        replica.write(f"+CONTINUE{history}\r\n".encode())
        replica.position = offset - 1
        self._say(f"Partial resynchronization request from {replica.name} accepted. Sending "
                  f"{self.backlog.end - replica.position} bytes of backlog starting from offset {offset}.")  # fmt: skip
        self._put_online(replica)
        self.start_stream(replica)

    def _wait_for_transfer(self, replica: AttachedReplica) -> None:
        """Join a running transfer, start one, or wait for the next one."""
        transfer, delay = self.transfer, self.settings.repl_diskless_sync_delay
        if transfer is not None and transfer.may_join(replica):
            transfer.join(replica)
            self._say("Waiting for end of BGSAVE for SYNC")
        elif transfer is not None or not self._can_fork():
            self._say("Another child process is active. BGSAVE for replication delayed")
        elif self._is_diskless([replica]) and delay:
            self._say("Delay next BGSAVE for diskless SYNC")
            self._start_due_transfer()
        else:
            self._begin_transfer([replica])

    def _is_diskless(self, replicas: list[AttachedReplica]) -> bool:
        properties = replicas[0].properties
        special = properties.filters is not None or not (
            properties.server is None or covers(properties.server, self.settings.compat)
        )  # the RDB file of the server has other parts or newer types
        able = all("eof" in one.properties.capabilities for one in replicas)
        return self._forks and able and (self.settings.repl_diskless_sync or special)

    # -- full synchronisations -----------------------------------------------------------------------------

    def _start_due_transfer(self) -> None:
        """Start a transfer for the replicas that wait, once repl-diskless-sync-delay has passed."""
        waiting = [one for one in self.replicas if one.state == WAIT_START and not one.asked]
        if not waiting or self.state.stream is not self or self.transfer is not None or not self._can_fork():
            return
        request = waiting[0].properties.request
        together = [one for one in waiting if one.properties.request == request]
        idle = self.engine.clock.uptime_ms() - min(one.waiting_since for one in together)
        settings, most = self.settings, self.settings.repl_diskless_sync_max_replicas
        if (not self._forks or not settings.repl_diskless_sync or 0 < most <= len(together)
                or idle >= settings.repl_diskless_sync_delay * _SECOND):  # fmt: skip
            self._begin_transfer(together)

    def _begin_transfer(self, replicas: list[AttachedReplica]) -> None:
        """Send the data of this moment to replicas (startBgsaveForReplication)."""
        self.flush()
        if self._feed is not None:
            self._feed.forget_db()
        diskless = self._is_diskless(replicas)
        channel = " (rdb-channel)" if replicas[0].properties.separate else ""
        self._say(f"Starting BGSAVE for SYNC with target: {'replicas sockets' if diskless else 'disk'}{channel}")
        try:
            self.transfer = self._new_transfer(self, replicas, diskless)
        except (OSError, CommandError, StoreError) as error:
            self._say(f"BGSAVE for replication failed: {error}", "warning")
            self.fail(replicas, str(error) if isinstance(error, StoreError) else "")
            return
        pause_at(self.engine, "after-fork")
        for replica in replicas:
            replica.begin(self.state.id, self.state.offset)
            if replica.main is not None and replica.main.state == STREAMING:
                self._say(f"Starting to deliver RDB and replication stream to replica: {replica.main.name}")
        self.transfer.begin()

    def transfer_ended(self) -> None:
        """Forget the transfer: its snapshot is complete or has failed. Replicas that still wait may begin."""
        self.transfer = None
        self.engine.services.post(self._start_due_transfer)  # not now: a command may run

    def snapshot_sent(self, replica: AttachedReplica, *, at_once: bool) -> None:
        """Continue with the stream after a replica's snapshot; `at_once`: without waiting for its acknowledgement."""
        if replica not in self.replicas:
            return
        main = waits_for(replica)
        if main is not None:
            self._put_online(main)
        if not replica.needs_stream:
            self._say(f"RDB transfer completed, replica {replica.name} wants nothing else")
            self.forget(replica)
            replica.connection.close_when_sent()
            return
        self._put_online(replica)
        if at_once:
            self.start_stream(replica)

    def fail(self, replicas: list[AttachedReplica], reason: str = "") -> None:
        """Disconnect the replicas of a transfer that failed; reason: the error that they receive."""
        for replica in list(replicas):
            if reason:
                self.forget(replica)
                replica.refuse(reason)
            else:
                self._drop(replica)

    def _put_online(self, replica: AttachedReplica) -> None:
        """Count the replica as online (putSlaveOnline)."""
        replica.state = ONLINE
        replica.ack_ms = replica.sent_ms = self.engine.clock.uptime_ms()
        self._refresh_good()
        self._say(f"Synchronization with replica {replica.name} succeeded")

    def start_stream(self, replica: AttachedReplica) -> None:
        """Send the commands since the replica's position from now on (replicaStartCommandStream)."""
        replica.streams = True
        self.drained(replica)

    # -- acknowledgements ----------------------------------------------------------------------------------

    def acknowledge(self, session: Session, offset: int, disk_offset: int | None) -> None:
        """Take a replica's REPLCONF ACK: the offsets that it has applied, and that are on its disk."""
        replica: AttachedReplica | None = session.extra.get("attached")
        if replica is None:
            return
        replica.ack = max(replica.ack, offset)
        if disk_offset is not None:
            replica.disk_ack = max(replica.disk_ack, disk_offset)
        replica.ack_ms = self.engine.clock.uptime_ms()
        if replica.state == WAIT_END and self.transfer is not None:
            self.transfer.poll()
        if replica.state == STREAMING:
            self._put_online(replica)
        if replica.state == ONLINE and not replica.streams:
            self.start_stream(replica)
        self.serve_waiting()
        if self.state.failover is not None:
            self.state.failover.check()
        if self.state.refusal is not None:
            self._refresh_good()

    def alive(self, session: Session) -> None:
        """Take a line break of a replica, which shows that it is busy but there (networking.c: processInlineBuffer)."""
        session.extra["attached"].ack_ms = self.engine.clock.uptime_ms()

    def acknowledged(self, offset: int, *, on_disk: bool = False) -> int:
        """Return the number of replicas that have acknowledged an offset (replicationCountAcksByOffset)."""
        return sum(1 for one in self.replicas
                   if one.state == ONLINE and (one.disk_ack if on_disk else one.ack) >= offset)  # fmt: skip

    def request_acks(self) -> None:
        """Ask the replicas for acknowledgements, after the commands so far."""
        self._wants_acks = True
        self.flush_soon()

    def serve_waiting(self) -> None:
        """Reply to the clients of WAIT and WAITAOF whose changes enough replicas have."""
        if self.waiting:
            self.waiting = [one for one in self.waiting if one.blocked is not None]
            for session in list(self.waiting):
                self.engine.blocking.retry(session)

    def fail_over(self, target: tuple[str, int] | None, timeout: int, forced: bool) -> None:
        """Hand the role of the master to a replica (FAILOVER); CommandError."""
        if self.state.failover is None:
            self.state.failover = Failover(self)
        self.state.failover.start(target, timeout, forced)

    # -- min-replicas-to-write -------------------------------------------------------------------------------

    def _refresh_good(self) -> None:
        """Count the replicas in time, and reject or accept writes (refreshGoodSlavesCount)."""
        least, lag = self.settings.min_replicas_to_write, self.settings.min_replicas_max_lag
        oldest = self.engine.clock.uptime_ms() - (lag + 1) * _SECOND
        self.good = sum(1 for one in self.replicas if one.state == ONLINE and one.ack_ms > oldest)
        refuse_writes(self.engine, bool(least and lag and self.state.master is None and self.good < least))

    # -- periodic work -----------------------------------------------------------------------------------------

    def cron(self) -> None:
        """Do the periodic work, once a second; the server calls it more often (replicationCron)."""
        now = self.engine.clock.uptime_ms()
        if self.state.failover is not None:
            self.state.failover.check()
        if self.transfer is not None:
            self.transfer.poll()
        self._trim()
        if now < self._due:
            return
        self._due = now + _SECOND
        if self.replicas and self.state.master is None:
            if self._rounds % self.settings.repl_ping_replica_period == 0 and not self._failing_over:
                self.pull()
                self._append(_PING)
            self.flush()
        self._rounds += 1
        self._ping_waiting()
        self._drop_silent(now)
        self._drop_backlog(now)
        if self.state.stream is self:
            self._start_due_transfer()
            self.limits.update(self.replicas)
            self._refresh_good()

    @property
    def _failing_over(self) -> bool:
        return self.state.failover_state != NO_FAILOVER

    def _ping_waiting(self) -> None:
        """Send line breaks to the replicas that wait for a snapshot; they are no part of the stream."""
        on_disk = self.transfer is not None and self.transfer.on_disk
        for replica in self.replicas:
            if replica.state == WAIT_START or (replica.state == WAIT_END and on_disk):
                replica.write(b"\n")

    def _drop_silent(self, now: int) -> None:
        """Disconnect replicas that are silent for repl-timeout, or that do not read the snapshot."""
        oldest = now - (self.settings.repl_timeout + 1) * _SECOND
        for replica in list(self.replicas):
            if replica.state == ONLINE and not replica.old_protocol and replica.ack_ms <= oldest:
                self._say(f"Disconnecting timedout replica (streaming sync): {replica.name}", "warning")
                self._drop(replica)
            elif replica.state == WAIT_END and replica.connection.is_slow and replica.sent_ms <= oldest:
                self._say(f"Disconnecting timedout replica (full sync): {replica.name}", "warning")
                self._drop(replica)
            elif replica.buffering:
                self._within_limits(replica)

    def _drop_backlog(self, now: int) -> None:
        """Free the backlog of a master that has had no replica for repl-backlog-ttl.

        The history ends with it, because later changes do not count in its offset.
        """
        ttl = self.settings.repl_backlog_ttl
        if self.replicas or not ttl or self.state.master is not None or now - self._idle_since <= ttl * _SECOND:
            return
        self.state.begin_history()
        self.close()
        refuse_writes(self.engine, bool(self.settings.min_replicas_to_write and self.settings.min_replicas_max_lag))
        self._say(f"Replication backlog freed after {ttl} seconds without connected replicas.")

    def take_settings(self) -> None:
        """Apply repl-backlog-size and min-replicas-to-write after CONFIG SET."""
        self.backlog.limit = self.settings.repl_backlog_size
        self._refresh_good()

    # -- INFO and ROLE -----------------------------------------------------------------------------------------

    def info(self) -> list[dict[str, object]]:
        """Return the fields of each replica in INFO replication."""
        now = self.engine.clock.uptime_ms()
        return [
            {"ip": one.address, "port": one.properties.port, "state": one.shown_state, "offset": one.ack,
             "lag": one.lag_seconds(now)}
            for one in self.replicas if not is_second(one, self.replicas)
        ]  # fmt: skip

    def replicas_for_role(self) -> list[tuple[bytes, int, int]]:
        """Return the address, port and acknowledged offset of each replica that is online, for ROLE."""
        return [(one.address.encode("utf-8", "surrogateescape"), one.properties.port, one.ack)
                for one in self.replicas if one.state == ONLINE]  # fmt: skip

    def buffer_bytes(self) -> tuple[int, int]:
        """Return the bytes of the backlog up to its limit, and what replicas need beyond it (getMemoryOverheadData)."""
        size = len(self.backlog)
        beyond = max(size - self.backlog.limit, 0) if self.replicas else 0
        return size - beyond, beyond + sum(one.connection.unsent for one in self.replicas)

    def _say(self, text: str, level: str = "notice") -> None:
        self.engine.services.log_line(text, level)

    def check(self) -> None:
        """Assert the invariants. O(blocks + replicas)"""
        self.backlog.check()
        assert self.state.offset == self.backlog.end
        for replica in self.replicas:
            assert not replica.buffering or self.backlog.holds(replica.position)
            assert replica.state != SENDING or not replica.streams


def refuse_writes(engine: Engine, refused: bool) -> None:
    """Reject or accept writes because of the number of replicas; other reasons come first (write_gate.py)."""
    reason = FEW_REPLICAS if refused else None
    engine.replication.refusal = reason
    if engine.refusal in (None, FEW_REPLICAS):
        engine.refusal = reason
