"""rillet.follow: a read-only store in this process that replication keeps equal to a server.

    replica = rillet.follow("redis://host", keys=["orders*"])
    replica.stream("orders").range(count=10)          # no network
    for change in replica.changes(): ...

    opening            `follow`
    replica            Replica: the store; AsyncReplica
    link               the thread with the connection, and the state of the link
    resync_pace        the pauses before snapshots that a command makes necessary
    recorder           applies the stream, with or without a filter
    snapshot_loading   loads a snapshot beside the old data
    change_log         the last changes, in memory
    consumer           `replica.changes()`
    stream_reader      the stream of a server without its data: for consumers that are behind
    directory          the files of a replica that survives its process; compaction: a new base for them
"""

from rillet.store.follow.opening import follow
from rillet.store.follow.replica import AsyncReplica, Lag, Replica

__all__ = ["AsyncReplica", "Lag", "Replica", "follow"]
