"""Commands of clusters, replication and snapshots on a single master: the replies of four servers, byte for byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.commands.ends import Bench
from tests.differential.wire import Redis
from tests.judge import Judge

LINES = [
    "CLUSTER", "CLUSTER INFO", "CLUSTER MYID", "CLUSTER NODES", "CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER HELP",
    "CLUSTER KEYSLOT a", "CLUSTER KEYSLOT {user}.x", "CLUSTER KEYSLOT a{}b{c}", "CLUSTER COUNTKEYSINSLOT 1",
    "CLUSTER FOO", "CLUSTER MYSHARDID", "CLUSTER SLOT-STATS SLOTSRANGE 0 1", "CLUSTER FLUSHSLOT 1", "CLUSTER MEET a",
    "CLUSTERSCAN 0", "TRIMSLOTS RANGES 1 0 1", "READONLY", "READWRITE", "ASKING", "ROLE", "FAILOVER",
    "FAILOVER ABORT", "FAILOVER TO a 1 FORCE", "FAILOVER TO a x", "FAILOVER TIMEOUT 0", "FAILOVER NO",
    "REPLICAOF NO ONE", "SLAVEOF no one", "REPLICAOF a b", "REPLICAOF a 70000", "REPLCONF", "REPLCONF a",
    "REPLCONF a b", "REPLCONF capa eof capa psync2", "REPLCONF listening-port 1", "REPLCONF listening-port x",
    "REPLCONF version 1", "PSYNC a b", "PSYNC a 1 FAILOVER", "PSYNC a", "SYNC 1", "RESTORE-ASKING a",
    "RESTORE-ASKING a 0 x", "BGSAVE CANCEL", "BGSAVE FOO", "SHUTDOWN ABORT", "SHUTDOWN SAFE ABORT",
    "SHUTDOWN FAILOVER", "SHUTDOWN NOW ABORT", "WAIT 0 1", "WAIT 0 0", "SLOWLOG GET -2", "SLOWLOG GET x",
    "SLOWLOG GET 1 2", "SLOWLOG FOO", "LATENCY LATEST", "LATENCY HISTORY x", "LATENCY RESET x", "LATENCY GRAPH x",
    "LATENCY HISTOGRAM nosuch", "LATENCY FOO", "LATENCY HELP x", "COMMANDLOG LEN slow", "COMMANDLOG LEN x",
    "COMMANDLOG GET 1 large-reply", "COMMANDLOG RESET large-request", "HOTKEYS START", "HOTKEYS START METRICS 3 CPU",
    "HOTKEYS START METRICS 1 X", "HOTKEYS START METRICS 2 CPU", "HOTKEYS START METRICS 2 CPU CPU",
    "HOTKEYS START METRICS 1 CPU COUNT 0", "HOTKEYS START METRICS 1 CPU SLOTS 1 1", "HOTKEYS START METRICS 1 CPU X",
    "HOTKEYS STOP", "HOTKEYS GET", "HOTKEYS RESET", "HOTKEYS GET 1", "LOLWUT VERSION x", "LOLWUT VERSION 99",
    "MIGRATE h 1 k 0", "MIGRATE h 1 nokey 0 1",
]  # fmt: skip


@pytest.mark.parametrize("compat", ["7.0", "8.6", "newest", "valkey"])
def test_the_replies_equal_those_of_the_server(peer_of: Callable[[str], Judge], compat: str) -> None:
    bench = Bench(compat=compat, save="3600 1" if compat == "x" else "")
    different = []
    with Redis(peer_of(compat).port) as server:
        server.run([b"FLUSHALL"], [b"SLOWLOG", b"RESET"])
        for line in LINES:
            argv = [word.encode() for word in line.split()]
            ours, theirs = bench.run(list(argv)), server.run(argv)[0]
            if ours != theirs and b" ver. " not in theirs:
                different.append((line, ours, theirs))
    assert not different
