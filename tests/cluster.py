"""A real cluster of three masters, and a replica of each where wanted, on loopback: started, broken and stopped here.

    with running_cluster(replicas=True) as cluster:
        cluster.url                                  redis+cluster://127.0.0.1:<port of the first>
        cluster.key_of(1, "events")                  a key that the second master serves
        with cluster.moving(key) as move:            its slot is on its way to another master
            move.migrate()                           the key has gone: its master answers ASK
            move.finish()                            the slot has gone: it answers MOVED
        cluster.kill(node); cluster.start(node)

The nodes know each other by CLUSTER MEET, each with its share of the slots and its own epoch, so that nothing has to be
agreed on. Ready is when every node says cluster_state:ok, knows all others, and each replica follows its master.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import redis

from rillet.client.cluster import SLOTS, slot_of
from tests.judge import await_ready, free_port, redis_binary

MASTERS = 3
NODE_TIMEOUT_MS = 1500


@dataclass
class Node:
    """One server of the cluster; `id` is its name among the others."""

    number: int
    port: int
    bus: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    id: str = ""
    _client: Any = field(default=None, repr=False)

    def run(self, *words: Any) -> Any:
        """Run a command on this node; a redirection raises."""
        if self._client is None:
            self._client = redis.Redis(host="127.0.0.1", port=self.port, protocol=2)
            self._client.response_callbacks.clear()
        return self._client.execute_command(*words)

    def info(self, section: str, name: str) -> str:
        """Return one line's value of INFO, or of CLUSTER INFO."""
        text = self.run("CLUSTER", "INFO") if section == "cluster" else self.run("INFO", section)
        found = dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)
        return found.get(name, "")

    def calls_of(self, command: str) -> int:
        """Return how often a command was called, by INFO commandstats."""
        told = self.info("commandstats", f"cmdstat_{command}")
        return int(told.partition("calls=")[2].partition(",")[0]) if told else 0

    def refusals(self, prefix: str) -> int:
        """Return how often an error of this kind was answered: ASK, MOVED."""
        told = self.info("errorstats", f"errorstat_{prefix}")
        return int(told.partition("count=")[2]) if told else 0


@dataclass
class Cluster:
    """The nodes: three masters, then their replicas in the same order.

    environment: the variables that a node has beside those of this process.
    """

    nodes: list[Node]
    binary: str
    durable: bool = False
    environment: Callable[[Node], dict[str, str]] = lambda _: {}
    node_timeout_ms: int = NODE_TIMEOUT_MS

    @property
    def url(self) -> str:
        """Return the url that names the first node only; the others are discovered."""
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def start(self, node: Node) -> None:
        """Start a node, new or killed before, and wait until it answers."""
        command = [
            self.binary, "--port", str(node.port), "--bind", "127.0.0.1", "--dir", str(node.folder), "--save", "",
            "--appendonly", "yes" if self.durable else "no", "--appendfsync", "always",
            "--cluster-enabled", "yes", "--cluster-port", str(node.bus),
            "--cluster-node-timeout", str(self.node_timeout_ms), "--cluster-config-file", "nodes.conf",
            "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--enable-debug-command", "yes",
        ]  # fmt: skip
        node.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **self.environment(node)}
        )
        await_ready(node.port, node.process)
        node.id = node.run("CLUSTER", "MYID").decode()

    def kill(self, node: Node) -> None:
        """End a node as a power failure does."""
        assert node.process is not None
        node.process.kill()
        node.process.wait(timeout=60)
        node.process = None

    def stop(self) -> None:
        """End all nodes and remove what they wrote."""
        for node in self.nodes:
            if node.process is not None:
                node.process.kill()  # nothing is to be saved
        for node in self.nodes:
            if node._client is not None:
                node._client.close()
            if node.process is not None:
                node.process.wait(timeout=60)
            shutil.rmtree(node.folder, ignore_errors=True)

    def masters(self) -> list[Node]:
        """Return the nodes that are masters now, in the order of their slots, as the first that lives sees them."""
        living = next(node for node in self.nodes if node.process is not None)
        told = sorted(living.run("CLUSTER", "SLOTS"), key=lambda share: share[0])
        ports = list(dict.fromkeys(int(share[2][1]) for share in told))
        return [node for port in ports for node in self.nodes if node.port == port]

    def owner(self, key: str | bytes) -> Node:
        """Return the master of a key."""
        slot = slot_of(key.encode() if isinstance(key, str) else key)
        living = next(node for node in self.nodes if node.process is not None)
        port = next(int(share[2][1]) for share in living.run("CLUSTER", "SLOTS") if share[0] <= slot <= share[1])
        return next(node for node in self.nodes if node.port == port)

    def key_of(self, share: int, name: str) -> str:
        """Return a key that begins with a name, in the third of the slots with this number."""
        size = SLOTS // MASTERS
        return next(
            key for key in (f"{name}{i}" for i in count()) if min(slot_of(key.encode()) // size, MASTERS - 1) == share
        )

    def run(self, key: str, *words: Any) -> Any:
        """Run a command on the master of a key."""
        return self.owner(key).run(*words)

    def flush(self) -> None:
        """Remove all data."""
        for node in self.masters():
            node.run("FLUSHALL")

    @contextmanager
    def moving(self, key: str) -> Iterator[Moving]:
        """Begin to move a key's slot to another master; at the end the slot is that one's, with all its keys."""
        source = self.owner(key)
        target = next(node for node in self.masters() if node is not source)
        move = Moving(self, slot_of(key.encode()), source, target)
        move.target.run("CLUSTER", "SETSLOT", move.slot, "IMPORTING", move.source.id)
        move.source.run("CLUSTER", "SETSLOT", move.slot, "MIGRATING", move.target.id)
        try:
            yield move
        finally:
            move.finish()

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Wait until something holds that the nodes tell each other."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                if ready():
                    return
            except (redis.ConnectionError, redis.ResponseError):
                pass  # a node that is on its way up, or learns of another
            time.sleep(0.02)
        raise AssertionError(f"not within 120 seconds: {what}")


@dataclass
class Moving:
    """A slot on its way."""

    cluster: Cluster
    slot: int
    source: Node
    target: Node
    finished: bool = False

    def migrate(self) -> None:
        """Carry the keys of the slot over; the source answers ASK for them from now on."""
        while keys := self.source.run("CLUSTER", "GETKEYSINSLOT", self.slot, 100):
            self.source.run("MIGRATE", "127.0.0.1", self.target.port, "", 0, 5000, "KEYS", *keys)

    def finish(self) -> None:
        """Give the slot to the target: the source answers MOVED from now on."""
        if self.finished:
            return
        self.migrate()
        for node in [self.target, self.source, *self.cluster.masters()]:
            node.run("CLUSTER", "SETSLOT", self.slot, "NODE", self.target.id)
        self.finished = True


@contextmanager
def running_cluster(replicas: bool = False, binary: str | None = None, durable: bool = False,
                    **options: Any) -> Iterator[Cluster]:  # fmt: skip
    """Start three masters, with a replica of each where wanted; all is ready. durable: a node survives its kill."""
    program = binary or redis_binary()
    assert program is not None, "redis-server is not installed"
    cluster = Cluster([], program, durable, **options)
    try:
        for number in range(2 * MASTERS if replicas else MASTERS):
            folder = Path(tempfile.mkdtemp(prefix="rillet-cluster-"))
            cluster.nodes.append(Node(number, free_port(), free_port(), folder))
            cluster.start(cluster.nodes[-1])
        _join(cluster)
        yield cluster
    finally:
        cluster.stop()


def _join(cluster: Cluster) -> None:
    first, size = cluster.nodes[0], SLOTS // MASTERS
    for node in cluster.nodes:
        node.run("CLUSTER", "SET-CONFIG-EPOCH", node.number + 1)
        if node.number < MASTERS:
            last = SLOTS - 1 if node.number == MASTERS - 1 else (node.number + 1) * size - 1
            node.run("CLUSTER", "ADDSLOTSRANGE", node.number * size, last)
        if node is not first:
            first.run("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus)
    everybody = str(len(cluster.nodes))
    cluster.wait(
        lambda: all(node.info("cluster", "cluster_known_nodes") == everybody for node in cluster.nodes),
        "the nodes know each other",
    )
    for node in cluster.nodes[MASTERS:]:
        node.run("CLUSTER", "REPLICATE", cluster.nodes[node.number - MASTERS].id)
    cluster.wait(lambda: settled(cluster), "the cluster serves all slots, its replicas follow")


def settled(cluster: Cluster) -> bool:
    """Return whether all nodes serve, each master knows its replica, and each replica has what its master has."""
    shares = cluster.nodes[0].run("CLUSTER", "SLOTS")
    copies = len(cluster.nodes) // MASTERS
    return (
        all(node.info("cluster", "cluster_state") == "ok" for node in cluster.nodes)
        and all(len(node.run("CLUSTER", "SLOTS")) == len(shares) for node in cluster.nodes)
        and all(len(share) - 2 == copies for node in cluster.nodes for share in node.run("CLUSTER", "SLOTS"))
        and all(
            node.info("replication", "role") == "master" or node.info("replication", "master_link_status") == "up"
            for node in cluster.nodes
        )
    )
