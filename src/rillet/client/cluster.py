"""Which node of a cluster serves which key: slots, and the map of who owns them.

    key ──hash tag──► CRC16 mod 16384 = slot ──Topology──► Shard: a master and its replicas

What lies between the first { and the next } of a key is its hash tag, if that is not empty: keys of one tag have one
slot, so they can be in one transaction. The CRC is XMODEM's, which `binascii.crc_hqx` computes.

The map comes from CLUSTER SHARDS, or from CLUSTER SLOTS where a server is older than 7.0; both are made into the same
`Topology`. SHARDS tells two ports, of which the one for our kind of connection is taken; SLOTS tells that one.

A node that does not know its own name tells an empty host (or "?", or null): the host by which it was asked. Nodes that
the others have marked as failed are kept as masters, since nobody else owns their slots yet, and left out as replicas.

No sockets here: `Servers` asks, this reads the answers.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rillet.client.address import NodeAddress

SLOTS = 16384
_REDIRECTION = re.compile(r"(?:^|: )(MOVED|ASK) ([0-9]+) (\S*):([0-9]+)$")


def slot_of(key: bytes) -> int:
    """Return the slot of a key (cluster.c, keyHashSlot)."""
    opening = key.find(b"{")
    if opening >= 0:
        closing = key.find(b"}", opening + 1)
        if closing > opening + 1:
            key = key[opening + 1 : closing]
    return binascii.crc_hqx(key, 0) % SLOTS


@dataclass(frozen=True)
class Redirection:
    """What MOVED (for good) or ASK (for the next command) says."""

    asks: bool
    slot: int
    node: NodeAddress

    @classmethod
    def read(cls, line: str, told_by: NodeAddress) -> Redirection | None:
        """Read an error reply, or a sentence that ends with one; None where it is no redirection."""
        found = _REDIRECTION.search(line)
        if found is None:
            return None
        host = found[3] if found[3] not in ("", "?") else told_by.host
        return cls(found[1] == "ASK", int(found[2]), NodeAddress(host, int(found[4])))


@dataclass(frozen=True)
class Shard:
    """A master and its replicas."""

    master: NodeAddress
    replicas: tuple[NodeAddress, ...] = ()


@dataclass
class Topology:
    """Which shard owns each slot, as one node saw it, and what MOVED has told since."""

    owners: list[Shard | None] = field(default_factory=lambda: [None] * SLOTS)

    def shard(self, key: bytes) -> Shard | None:
        """Return who serves a key; None where nobody does."""
        return self.owners[slot_of(key)]

    def shards(self) -> list[Shard]:
        """Return all shards that own slots, in the order of their first slot; O(slots)."""
        return list(dict.fromkeys(owner for owner in self.owners if owner is not None))

    def nodes(self) -> Iterator[NodeAddress]:
        """Yield every node that is known, masters first."""
        shards = self.shards()
        yield from (shard.master for shard in shards)
        for shard in shards:
            yield from shard.replicas

    def own(self, first: int, last: int, shard: Shard) -> None:
        """Give the slots from first to last to a shard."""
        self.owners[first : last + 1] = [shard] * (last + 1 - first)

    def moved(self, slot: int, node: NodeAddress) -> bool:
        """Give a slot to the shard of a master; False where the map did not know it as one."""
        known = next((shard for shard in self.shards() if shard.master == node), None)
        self.owners[slot] = known or Shard(node)
        return known is not None


def read_shards(reply: Sequence[Any], told_by: NodeAddress, tls: bool) -> Topology:
    """Return the map of a reply to CLUSTER SHARDS."""
    topology = Topology()
    for told in map(_pairs, reply):
        nodes = [_pairs(node) for node in told[b"nodes"]]
        replicas = [node for node in nodes if node[b"role"] != b"master" and node.get(b"health") == b"online"]
        for node in nodes:
            if node[b"role"] == b"master":
                shard = Shard(_node(node, told_by, tls), tuple(_node(replica, told_by, tls) for replica in replicas))
                slots = told[b"slots"]
                for first, last in zip(slots[::2], slots[1::2], strict=True):
                    topology.own(int(first), int(last), shard)
    return topology


def read_slots(reply: Sequence[Any], told_by: NodeAddress) -> Topology:
    """Return the map of a reply to CLUSTER SLOTS, whose ports are those for the kind of connection it came over."""
    topology = Topology()
    for first, last, *nodes in reply:
        master, *replicas = [NodeAddress(_host(node[0], told_by), int(node[1])) for node in nodes]
        topology.own(first, last, Shard(master, tuple(replicas)))
    return topology


def _pairs(flat: Sequence[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _node(told: dict[bytes, Any], told_by: NodeAddress, tls: bool) -> NodeAddress:
    port = told.get(b"tls-port" if tls else b"port") or told.get(b"port") or told[b"tls-port"]
    return NodeAddress(_host(told.get(b"endpoint"), told_by), int(port))


def _host(told: bytes | None, told_by: NodeAddress) -> str:
    return told_by.host if told in (None, b"", b"?") else told.decode()


def slots_of_node(nodes: bytes) -> str:
    """Return the slots that a node shows as its own in CLUSTER NODES; with those on their way, like [93->-<id>]."""
    for line in nodes.decode("utf-8", "replace").splitlines():
        fields = line.split(" ")
        if "myself" in fields[2].split(","):
            return " ".join(fields[8:])
    return ""
