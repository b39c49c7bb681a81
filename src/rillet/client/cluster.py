"""The slots of a cluster and the map of the nodes that own them.

    key ──hash tag──► CRC16 mod 16384 = slot ──Topology──► Shard: a master and its replicas

The hash tag of a key is the text between its first { and the next }, if that is not empty. Keys with one tag have one
slot, so one transaction can change them. The CRC is XMODEM's, which `binascii.crc_hqx` computes.

The map from slots to nodes is read from CLUSTER SHARDS, or from CLUSTER SLOTS on a server older than 7.0; both give the
same `Topology`. SHARDS contains two ports for each node, for TCP and for TLS; SLOTS contains the port for the kind of
connection in use.

A node that does not know its own name sends an empty host (or "?", or null). The client then uses the host to which it
sent the request. A failed master stays in the map because no other node owns its slots yet; failed replicas are
omitted.

This module does no I/O: `Servers` sends the requests, and the functions here read the replies.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rillet.client.address import NodeAddress

SLOTS = 16384


def slot_of(key: bytes) -> int:
    """Return the slot of a key (cluster.c, keyHashSlot)."""
    opening = key.find(b"{")
    if opening >= 0:
        closing = key.find(b"}", opening + 1)
        if closing > opening + 1:
            key = key[opening + 1 : closing]
    return binascii.crc_hqx(key, 0) % SLOTS


@dataclass(frozen=True)
class Shard:
    """A master and its replicas."""

    master: NodeAddress
    replicas: tuple[NodeAddress, ...] = ()


@dataclass
class Topology:
    """The map from slots to shards, as one node reported it, with the corrections of later MOVED replies."""

    owners: list[Shard | None] = field(default_factory=lambda: [None] * SLOTS)

    def shard(self, key: bytes) -> Shard | None:
        """Return the shard that owns the slot of a key; None if no shard does."""
        return self.owners[slot_of(key)]

    def shards(self) -> dict[Shard, int]:
        """Return all shards that own slots, each with its first slot, in this order; O(slots)."""
        found: dict[Shard, int] = {}
        previous = None
        for slot, owner in enumerate(self.owners):
            if owner is not previous:  # a hash for each slot would take ten times as long
                previous = owner
                if owner is not None:
                    found.setdefault(owner, slot)
        return found

    def nodes(self) -> Iterator[NodeAddress]:
        """Yield every node of the map, masters first."""
        shards = self.shards()
        yield from (shard.master for shard in shards)
        for shard in shards:
            yield from shard.replicas

    def own(self, first: int, last: int, shard: Shard) -> None:
        """Assign the slots from first to last to a shard."""
        self.owners[first : last + 1] = [shard] * (last + 1 - first)

    def moved(self, slot: int, node: NodeAddress) -> bool:
        """Assign a slot to the shard of a master; return False if the master was not in the map."""
        shard = next((shard for shard in self.shards() if shard.master == node), None)
        self.owners[slot] = shard or Shard(node)
        return shard is not None


def read_shards(reply: Sequence[Any], sender: NodeAddress, tls: bool) -> Topology:
    """Return the map from slots to shards that a reply to CLUSTER SHARDS contains."""
    topology = Topology()
    for entry in map(_pairs, reply):
        nodes = [_pairs(node) for node in entry[b"nodes"]]
        replicas = [node for node in nodes if node[b"role"] != b"master" and node.get(b"health") == b"online"]
        for node in nodes:
            if node[b"role"] == b"master":
                shard = Shard(_node(node, sender, tls), tuple(_node(replica, sender, tls) for replica in replicas))
                slots = entry[b"slots"]
                for first, last in zip(slots[::2], slots[1::2], strict=True):
                    topology.own(int(first), int(last), shard)
    return topology


def read_slots(reply: Sequence[Any], sender: NodeAddress) -> Topology:
    """Return the map from slots to shards that a reply to CLUSTER SLOTS contains."""
    topology = Topology()
    for first, last, *nodes in reply:
        master, *replicas = [NodeAddress(_host(node[0], sender), int(node[1])) for node in nodes]
        topology.own(first, last, Shard(master, tuple(replicas)))
    return topology


def _pairs(flat: Any) -> dict[bytes, Any]:
    """Convert a flat list of names and values (RESP2) to a dict; return a dict (RESP3) unchanged."""
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


def _node(fields: dict[bytes, Any], sender: NodeAddress, tls: bool) -> NodeAddress:
    port = fields.get(b"tls-port" if tls else b"port") or fields.get(b"port") or fields[b"tls-port"]
    return NodeAddress(_host(fields.get(b"endpoint"), sender), int(port))


def _host(endpoint: bytes | None, sender: NodeAddress) -> str:
    return sender.host if endpoint in (None, b"", b"?") else endpoint.decode()


def slots_of_node(nodes: bytes) -> str:
    """Return the slots in the line `myself` of a CLUSTER NODES reply; a migrating slot looks like [93->-<id>]."""
    for line in nodes.decode("utf-8", "replace").splitlines():
        fields = line.split(" ")
        if "myself" in fields[2].split(","):
            return " ".join(fields[8:])
    return ""
