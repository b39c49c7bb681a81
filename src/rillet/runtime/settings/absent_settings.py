"""Settings of features that rillet does not have. CONFIG GET shows the default; every other value is rejected.

A client or a test suite that reads a setting gets the value that describes rillet: one thread for input and output, no
cluster. A value that rillet could not honour is an error with the reason, in a file and in CONFIG SET, as
in a Redis without jemalloc for `activedefrag yes`.

Each group has a reason, and lines of `name default [servers]`. `servers` names the servers that have the setting: a
level (types.compat) means Redis from this level on and Valkey, `R` Redis only, `V` Valkey only, `<80` below a level.
`-` is an empty default, `hidden` a setting that CONFIG GET shows only by its full name.

Where only internal steps differ but never a reply, every value is true; settings.py declares such settings as ordinary
ones (`min-string-size-avoid-copy-reply`), if a test suite changes them.
"""

from __future__ import annotations

from typing import Any

from rillet.runtime.settings.setting_types import NEVER, SettingType, fixed

_THREADS = """
io-threads 1
io-threads-do-reads no <80 R
io-threads-always-active no V hidden
min-io-threads-avoid-copy-reply 7 V hidden
prefetch-batch-max-size 16 V
lookahead 16 86 R
vset-force-single-threaded-execution no 82 R
"""
_CPULISTS = """
server-cpulist - 74
bio-cpulist - 74
aof-rewrite-cpulist - 74
bgsave-cpulist - 74
"""
_EVENT_LOOP = """
max-new-connections-per-cycle 10 74
max-new-tls-connections-per-cycle 1 74
"""
_ALLOCATOR = """
jemalloc-bg-thread yes
active-defrag-max-scan-fields 1000
active-defrag-cycle-us 500 V
hash-seed - V
"""
_CRASH = """
crash-memcheck-enabled yes
watchdog-period 0 hidden
use-exit-on-panic no hidden
enable-debug-assert no V hidden
debug-context - V hidden
req-res-logfile - 72 hidden
ignore-warnings -
always-show-logo no
"""
_NETWORK = """
mptcp no V
repl-mptcp no V
rdma-bind - V
rdma-port 0 V
rdma-rx-size 1048576 V
rdma-completion-vector -1 V
client-default-resp 2 72 hidden
"""
_TLS_LIBRARY = """
tls-session-caching yes
tls-session-cache-size 20480
tls-session-cache-timeout 300
"""
_CLUSTER = """
cluster-enabled no
cluster-config-file nodes.conf
cluster-node-timeout 15000
cluster-port 0
cluster-allow-pubsubshard-when-down yes
cluster-allow-reads-when-down no
cluster-allow-replica-migration yes
cluster-announce-bus-port 0
cluster-announce-client-ipv4 - V
cluster-announce-client-ipv6 - V
cluster-announce-client-port 0 V
cluster-announce-client-tls-port 0 V
cluster-announce-hostname -
cluster-announce-human-nodename - 72
cluster-announce-ip -
cluster-announce-port 0
cluster-announce-tls-port 0
cluster-blacklist-ttl 60 V
cluster-compatibility-sample-ratio 0 80 R
cluster-config-save-behavior sync V
cluster-databases 1 V
cluster-link-sendbuf-limit 0
cluster-manual-failover-timeout 5000 V
cluster-message-gossip-perc 10 V hidden
cluster-migration-barrier 1
cluster-ping-interval 0 72 hidden
cluster-preferred-endpoint-type ip
cluster-replica-no-failover no
cluster-replica-validity-factor 10
cluster-require-full-coverage yes
cluster-slot-migration-handoff-max-lag-bytes 1048576 84 R
cluster-slot-migration-write-pause-timeout 10000 84 R
cluster-slot-migration-max-archived-tasks 32 84 R hidden
cluster-slot-migration-sync-buffer-drain-timeout 60000 84 R hidden
cluster-slot-migration-log-max-len 1000 V
cluster-slot-stats-enabled no 82
slot-migration-max-failover-repl-bytes 0 V
tls-cluster no
"""
_REPLICAS = """
dual-channel-replication-enabled no V
"""
_GROUPS = {
    "rillet has one thread for input and output": _THREADS,
    "rillet does not choose processors; start it with taskset": _CPULISTS,
    "the event loop accepts all waiting connections at once": _EVENT_LOOP,
    "rillet does not use jemalloc, and Python seeds its own hashes": _ALLOCATOR,
    "this concerns a server that is written in C": _CRASH,
    "rillet has TCP, TLS and Unix sockets only": _NETWORK,
    "Python's ssl module always has this value": _TLS_LIBRARY,
    "rillet has no cluster mode": _CLUSTER,
    "a replica of Valkey gets the snapshot and the stream over one connection": _REPLICAS,
    "rillet compares strings by their bytes, as in the locale C": "locale-collate - 72",
    "rillet has no histograms of the memory of keys": "key-memory-histograms no 86 R",
}


def _declared(line: str, reason: str) -> SettingType:
    name, default, *servers = line.split()
    options: dict[str, Any] = {"hidden": "hidden" in servers}
    for word in servers:
        if word == "V":
            options["since"] = NEVER
        elif word == "R":
            options["valkey"] = False
        elif word.startswith("<"):
            options["until"] = int(word[1:])
        elif word.isdigit():
            options["since"] = int(word)
    return fixed("" if default == "-" else default, reason, name, **options)[0]


ABSENT = [_declared(line, reason) for reason, group in _GROUPS.items() for line in group.strip().splitlines()]

# Old names of settings, with the servers that have them: (old name, current name, since, whether Valkey has it).
OLD_NAMES = (
    ("lua-time-limit", "busy-reply-threshold", 0, True),
    ("lua-enable-insecure-api", "lua-enable-deprecated-api", NEVER, True),
    ("server_cpulist", "server-cpulist", 0, True),
    ("bio_cpulist", "bio-cpulist", 0, True),
    ("aof_rewrite_cpulist", "aof-rewrite-cpulist", 0, True),
    ("bgsave_cpulist", "bgsave-cpulist", 0, True),
    ("cluster-slave-no-failover", "cluster-replica-no-failover", 0, True),
    ("cluster-slave-validity-factor", "cluster-replica-validity-factor", 0, True),
    ("slaveof", "replicaof", 0, True),
    ("primaryauth", "masterauth", NEVER, True),
    ("primaryuser", "masteruser", NEVER, True),
    ("min-slaves-max-lag", "min-replicas-max-lag", 0, True),
    ("min-slaves-to-write", "min-replicas-to-write", 0, True),
    ("repl-ping-slave-period", "repl-ping-replica-period", 0, True),
    ("slave-announce-ip", "replica-announce-ip", 0, True),
    ("slave-announce-port", "replica-announce-port", 0, True),
    ("slave-ignore-maxmemory", "replica-ignore-maxmemory", 0, True),
    ("slave-lazy-flush", "replica-lazy-flush", 0, True),
    ("slave-priority", "replica-priority", 0, True),
    ("slave-read-only", "replica-read-only", 0, True),
    ("slave-serve-stale-data", "replica-serve-stale-data", 0, True),
    ("commandlog-execution-slower-than", "slowlog-log-slower-than", NEVER, True),
    ("commandlog-slow-execution-max-len", "slowlog-max-len", NEVER, True),
    ("list-max-ziplist-size", "list-max-listpack-size", 0, True),
    ("hash-max-ziplist-entries", "hash-max-listpack-entries", 0, True),
    ("hash-max-ziplist-value", "hash-max-listpack-value", 0, True),
    ("zset-max-ziplist-entries", "zset-max-listpack-entries", 0, True),
    ("zset-max-ziplist-value", "zset-max-listpack-value", 0, True),
)
