"""The identity and position of an engine's data in the stream of changes that a master and its replicas share.

    id      ──────────────────────────────●  offset             the current history
    id2     ────────────●  second_offset - 1                    the history that it continues

A position is a history and an offset, the number of bytes of the replication stream before it. After a failover the
new master begins a history; `id2` and `second_offset` say up to which byte the previous one is equal, so that replicas
of the previous master continue with a partial resynchronisation (Redis: PSYNC2, shiftReplicationId).

This module holds values alone. rillet.replication fills them: `stream` while the engine feeds replicas, `link` while it
follows a master.
"""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING, Any

from rillet.types.compat import Compat

if TYPE_CHECKING:
    from rillet.runtime.session import Session
    from rillet.runtime.settings.settings import Settings

NO_ID = "0" * 40  # of a history that does not exist
# Values of ReplicationState.failover_state, besides that of rillet.replication.failover.
NO_FAILOVER, FAILOVER_IN_PROGRESS = "no-failover", "failover-in-progress"

RDB_CHANNEL = "rdb-channel-repl"
"""The capability of a replica that can receive the snapshot on a second connection."""
WAIT_CHANNEL = "wait_rdb_channel"
"""The state of a replica whose second connection is awaited (rillet.replication.attached)."""


def new_id() -> str:
    """Return the random name of a new history: 40 hexadecimal digits (server.c: changeReplicationId)."""
    return urandom(20).hex()


class ReplicaProperties:
    """The properties that a replica reports with REPLCONF before it attaches.

    capabilities: `eof`, `psync2` and `rdb-channel-repl` are used. filters: the parts of the data that it wants, None
    for all of them. rdb_channel: the connection is the second one of a replica, which carries the snapshot. main: what
    its master knows about the first one (rillet.replication.attached), or None.
    version: of a Valkey replica, such as "9.1.2". server: the server of the replica if it may lack commands or types of
    this master; None for rillet, and for a tool that only records the stream.
    """

    __slots__ = ("address", "capabilities", "compressed", "checked", "filters", "main", "port", "rdb_channel",
                 "rdb_only", "server", "separate", "version")

    def __init__(self) -> None:
        self.port = 0
        self.address = ""
        self.capabilities: set[str] = set()
        self.rdb_only = False
        self.rdb_channel = False
        self.separate = False  # its snapshot is not shared with replicas that have one connection
        self.main: Any = None
        self.filters: tuple[str, ...] | None = None
        self.compressed = self.checked = True
        self.version = ""
        self.server: Compat | None = None

    @property
    def request(self) -> tuple[object, ...]:
        """The properties of the RDB data that it wants: replicas with the same request share a transfer."""
        return self.filters, self.compressed, self.checked, self.server, self.separate


def uses_channel(settings: Settings) -> bool:
    """Return whether a replica or a master uses the second connection for snapshots: Redis 8 and newer have it."""
    return bool(settings.repl_rdb_channel and settings.compat.knows(80) and not settings.compat.valkey)


def offers_channel(settings: Settings) -> bool:
    """Return whether a master of these settings sends snapshots over a second connection."""
    return uses_channel(settings) and bool(settings.repl_diskless_sync)


def properties_of(session: Session) -> ReplicaProperties:
    """Return what a client said about itself as a replica."""
    found: ReplicaProperties | None = session.extra.get("replica")
    if found is None:
        found = ReplicaProperties()
        session.remember("replica", found)
    return found


class ReplicationState:
    """The state of replication of one engine (server.h: master_replid, replid2, master_repl_offset ...)."""

    __slots__ = (
        "db", "failed_partial_syncs", "failover", "failover_state", "full_syncs", "id", "id2", "link", "master",
        "offset", "own_keys", "partial_syncs", "pauses", "refusal", "second_offset", "sent_bytes", "stream",
    )  # fmt: skip

    def __init__(self) -> None:
        self.id = new_id()
        self.id2 = NO_ID
        self.offset = 0
        self.second_offset = -1
        # The database that the stream of the master had selected at `offset`.
        self.db = 0
        # Keys that clients of a writable replica changed and that may expire: (database, key).
        self.own_keys: dict[tuple[int, bytes], None] = {}
        # The address of the master that the engine follows, or None on a master; and the connection to it
        # (rillet.replication.replica).
        self.master: tuple[str, int] | None = None
        self.link: Any = None
        # The stream for the replicas (rillet.replication.master); None before the first replica.
        self.stream: Any = None
        # The handover to a replica (rillet.replication.failover), or None; and its state for INFO.
        self.failover: Any = None
        self.failover_state = NO_FAILOVER
        # The steps of a full synchronisation at which the process stops, for tests (DEBUG REPL-PAUSE).
        self.pauses: set[str] = set()
        # Why writes are rejected (admission.FEW_REPLICAS), or None.
        self.refusal: str | None = None
        # Counters of INFO stats: sync_full, sync_partial_ok, sync_partial_err, total_net_repl_output_bytes.
        self.full_syncs = self.partial_syncs = self.failed_partial_syncs = self.sent_bytes = 0

    def reset_stats(self) -> None:
        """Reset the counters (CONFIG RESETSTAT)."""
        self.full_syncs = self.partial_syncs = self.failed_partial_syncs = self.sent_bytes = 0

    def begin_history(self) -> None:
        """Begin a history that continues no other one (changeReplicationId, clearReplicationId2)."""
        self.id = new_id()
        self.forget_second()

    def position(self) -> int:
        """Return the offset, including the changes that the stream has not taken over yet."""
        if self.stream is not None:
            self.stream.pull()
        return self.offset

    def last_change(self) -> int:
        """Return the offset behind the last change, for WAIT: what the stream adds itself does not count."""
        end = self.position()
        return end if self.stream is None else min(int(self.stream.changed), end)

    def saved_position(self) -> dict[bytes, bytes]:
        """Return the auxiliary fields of an RDB file that make it a position in the history (rdbPopulateSaveInfo)."""
        if self.master is None:
            if self.stream is None:
                return {}
            offset, database = self.position(), self.stream.database
        else:
            offset, database = self.link.position_within() or (self.position(), self.db)
        return {b"repl-stream-db": str(database).encode(), b"repl-id": self.id.encode(),
                b"repl-offset": str(offset).encode()}  # fmt: skip

    def shift_id(self) -> None:
        """Begin a new history that continues the current one, after the engine became a master."""
        self.id2, self.second_offset = self.id, self.offset + 1
        self.id = new_id()

    def forget_second(self) -> None:
        """Forget the history before the current one (clearReplicationId2)."""
        self.id2, self.second_offset = NO_ID, -1
