"""Replicas with a second connection, on their master's side (Redis 8: the RDB channel).

    first connection                           second connection
    PSYNC <id> <offset> ► +RDBCHANNELSYNC 17
      WAIT_CHANNEL                             REPLCONF rdb-channel 1 main-ch-client-id 17 ...; PSYNC ? -1
      STREAMING: the stream from <offset> ◄──  +FULLRESYNC <id> <offset>, the snapshot
      ONLINE ◄───────────────────────────────  everything is sent: the connection ends

So the commands do not wait at the master while the snapshot is sent. The replica keeps them until it has loaded the
snapshot. A second connection that ends too early ends the first one, and the replica begins again.
(Redis: replication.c, syncCommand, replicationSetupSlaveForFullResync, updateSlavesWaitingBgsave.)
"""

from __future__ import annotations

from rillet.replication.attached import STREAMING, AttachedReplica
from rillet.runtime.replication import WAIT_CHANNEL


def begin_channel(replica: AttachedReplica) -> None:
    """Let a replica, which cannot continue at its position, open its second connection."""
    replica.state = WAIT_CHANNEL
    replica.write(b"+RDBCHANNELSYNC %d\r\n" % replica.session.id)


def is_second(replica: AttachedReplica, replicas: list[AttachedReplica]) -> bool:
    """Return whether another connection of the same replica is attached (replicationCheckHasMainChannel)."""
    return replica.main is not None and replica.main in replicas


def waits_for(replica: AttachedReplica) -> AttachedReplica | None:
    """Return the first connection that needs this second one until the snapshot is sent, or None."""
    main = replica.main
    return main if main is not None and main.state == STREAMING else None
