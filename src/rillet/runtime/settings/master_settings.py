"""The settings of a master: its replication stream, and the snapshots for replicas (rillet.replication)."""

from __future__ import annotations

from rillet.runtime.settings.setting_types import INT_MAX, LONG_MAX, boolean, integer, memory

MASTER = [
    memory("repl-backlog-size", "Bytes of changes that a replica may miss and still continue", 1024 * 1024, 1, LONG_MAX,
           valkey_default=10 * 1024 * 1024),
    integer("repl-backlog-ttl", "Seconds after which the changes are dropped if there is no replica; 0: never",
            3600, 0, LONG_MAX),
    integer("repl-ping-replica-period", "Seconds between two PINGs to replicas", 10, 1, INT_MAX),
    boolean("repl-diskless-sync", "Whether a snapshot goes from the child process to the replicas without a file",
            True),
    integer("repl-diskless-sync-delay", "Seconds that a snapshot without a file waits for more replicas",
            5, 0, INT_MAX),
    integer("repl-diskless-sync-max-replicas", "Replicas for which such a snapshot starts at once; 0: it waits",
            0, 0, INT_MAX),
    boolean("repl-rdb-channel", "Whether a snapshot without a file comes over a second connection, beside the stream; "
            "of the master and of the replica", True, since=80, valkey=False, hidden=True),
    boolean("repl-disable-tcp-nodelay", "Whether the system may collect small changes before it sends them", False),
    integer("min-replicas-to-write", "Replicas in time below which writes are rejected; 0: never", 0, 0, INT_MAX),
    integer("shutdown-timeout", "Seconds for which a shutdown waits for replicas; 0: it does not wait", 10, 0, INT_MAX),
    integer("min-replicas-max-lag", "Seconds since its last message within which a replica is in time; 0: no limit",
            10, 0, INT_MAX),
]  # fmt: skip
