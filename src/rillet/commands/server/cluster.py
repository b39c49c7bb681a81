"""CLUSTER, ASKING, READONLY and READWRITE on a server without cluster mode (Redis: cluster.c, `cluster-enabled no`).

Every command exists, with its arity and flags, and replies that cluster mode is off. In Valkey, CLUSTER KEYSLOT,
READONLY and READWRITE work without cluster mode.

The slot of a key is CRC16 (XMODEM: polynomial 0x1021, initial value 0) modulo 16384, of the part between the first `{`
and the next `}` if there is such a part that is not empty.
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import partial

from rillet.errors import CommandError
from rillet.runtime import registry
from rillet.runtime.session import Session

SLOTS = 16384
_DISABLED = "This instance has cluster support disabled"
_CHANGE = "admin no_async_loading stale"
_NODES = "O(N) for N nodes"
_RANGES = "start-slot end-slot [start-slot end-slot ...]"

command = partial(registry.command, group="cluster")


def slot_of(key: bytes) -> int:
    """Return the hash slot of a key. O(length)"""
    start = key.find(b"{")
    end = key.find(b"}", start + 1) if start >= 0 else -1
    return crc_hqx(key[start + 1 : end] if end > start + 1 else key, 0) % SLOTS


def _disabled(session: Session, argv: list[bytes]) -> None:
    raise CommandError(_DISABLED)


# Name: arity, flags, since, since of Valkey if only Valkey has it, syntax, complexity, summary.
_SUBCOMMANDS: dict[str, tuple[int, str, str, str, str, str, str]] = {
    "addslots": (-3, _CHANGE, "3.0.0", "", "slot [slot ...]", "O(N) for N slots", "Assign slots to this node."),
    "addslotsrange": (-4, _CHANGE, "7.0.0", "", _RANGES, "O(N) for N slots", "Assign ranges of slots to this node."),
    "bumpepoch": (2, _CHANGE, "3.0.0", "", "", "O(1)", "Advance the configuration epoch."),
    "cancelslotmigrations": (2, _CHANGE, "", "9.0.0", "", "O(N) for N migrations", "Cancel the migrations of slots."),
    "count-failure-reports": (3, "admin stale", "3.0.0", "", "node-id", "O(N) for N reports",
                              "Count the reports that a node fails."),
    "countkeysinslot": (3, "stale", "3.0.0", "", "slot", "O(1)", "Count the keys of a slot."),
    "delslots": (-3, _CHANGE, "3.0.0", "", "slot [slot ...]", "O(N) for N slots", "Withdraw slots from this node."),
    "delslotsrange": (-4, _CHANGE, "7.0.0", "", _RANGES, "O(N) for N slots", "Withdraw ranges of slots."),
    "failover": (-2, _CHANGE, "3.0.0", "", "[FORCE | TAKEOVER]", "O(1)", "Make a replica replace its master."),
    "flushslot": (-3, "admin no_async_loading write", "", "9.0.0", "slot [ASYNC | SYNC]", "O(N) for N keys",
                  "Delete the keys of a slot."),
    "flushslots": (2, _CHANGE, "3.0.0", "", "", "O(1)", "Withdraw all slots from this node."),
    "forget": (3, _CHANGE, "3.0.0", "", "node-id", "O(1)", "Remove a node."),
    "getkeysinslot": (4, "stale", "3.0.0", "", "slot count", "O(N) for N keys", "Return keys of a slot."),
    "getslotmigrations": (2, _CHANGE, "", "9.0.0", "", "O(N) for N migrations", "Return the migrations of slots."),
    "info": (2, "stale", "3.0.0", "", "", "O(1)", "Return the state of the cluster."),
    "links": (2, "stale", "7.0.0", "", "", _NODES, "Return the connections to other nodes."),
    "meet": (-4, _CHANGE, "3.0.0", "", "ip port [cluster-bus-port]", "O(1)", "Add a node to the cluster."),
    "migrateslots": (-4, _CHANGE, "", "9.0.0", "SLOTSRANGE start-slot end-slot NODE node-id", "O(N) for N slots",
                     "Move slots to another node."),
    "migration": (-4, _CHANGE, "8.4.0", "", "<IMPORT start-slot end-slot [start-slot end-slot ...] | "
                  "CANCEL <ID task-id | ALL> | STATUS [ID task-id] [ALL]>", "O(N) for N slots",
                  "Start, observe and cancel migrations of slots."),
    "myid": (2, "stale", "3.0.0", "", "", "O(1)", "Return the ID of this node."),
    "myshardid": (2, "stale", "7.2.0", "", "", "O(1)", "Return the ID of this node's shard."),
    "nodes": (2, "stale", "3.0.0", "", "", _NODES, "Return the configuration of the cluster."),
    "replicas": (3, "admin stale", "5.0.0", "", "node-id", _NODES, "Return the replicas of a node."),
    "replicate": (3, _CHANGE, "3.0.0", "", "node-id", "O(1)", "Make this node a replica of another one."),
    "reset": (-2, "admin noscript stale", "3.0.0", "", "[HARD | SOFT]", _NODES, "Reset this node."),
    "saveconfig": (2, _CHANGE, "3.0.0", "", "", "O(1)", "Write the configuration to disk."),
    "set-config-epoch": (3, _CHANGE, "3.0.0", "", "config-epoch", "O(1)", "Set the epoch of a new node."),
    "setslot": (-4, _CHANGE, "3.0.0", "",
                "slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>", "O(1)", "Set a slot's state."),
    "shards": (2, "stale", "7.0.0", "", "", _NODES, "Return the slots and nodes of each shard."),
    "slaves": (3, "admin stale", "3.0.0", "", "node-id", _NODES, "Return the replicas of a node."),
    "slot-stats": (-4, "loading stale", "8.2.0", "8.0.0",
                   "<SLOTSRANGE start-slot end-slot | ORDERBY metric [LIMIT limit] [ASC | DESC]>", "O(N) for N slots",
                   "Return the use of slots."),
    "slots": (2, "stale", "3.0.0", "", "", _NODES, "Return the nodes of each range of slots."),
    "syncslots": (-3, _CHANGE, "8.4.0", "9.0.0", "argument [argument ...]", "O(1)",
                  "Exchange messages between nodes about slots."),
}  # fmt: skip

for _name, (_arity, _flags, _since, _valkey, _syntax, _complexity, _summary) in _SUBCOMMANDS.items():

    def _handler(session: Session, argv: list[bytes]) -> None:
        raise CommandError(_DISABLED)

    _handler.__doc__ = _summary
    command(f"cluster|{_name}", arity=_arity, flags=_flags, since=_since, valkey=_valkey, syntax=_syntax,
            complexity=_complexity)(_handler)  # fmt: skip


@command("cluster|help", arity=2, flags="loading stale", since="5.0.0", complexity="O(1)")
def cluster_help(session: Session, argv: list[bytes]) -> None:
    """Describe the subcommands; without cluster mode an error, as in Redis."""
    _disabled(session, argv)


@command("cluster|keyslot", arity=3, flags="stale", since="3.0.0", syntax="key", complexity="O(N) for N bytes")
def cluster_keyslot(session: Session, argv: list[bytes]) -> None:
    """Return the hash slot of a key."""
    if not session.engine.settings.compat.valkey:
        _disabled(session, argv)
    session.out.integer(slot_of(argv[2]))


@command("asking", arity=1, flags="fast", since="3.0.0", complexity="O(1)")
def asking(session: Session, argv: list[bytes]) -> None:
    """Announce that the client follows a redirection."""
    _disabled(session, argv)


@command("readonly", arity=1, flags="fast loading stale", since="3.0.0", complexity="O(1)")
def readonly(session: Session, argv: list[bytes]) -> None:
    """Let a replica answer reads of this connection; without a cluster this changes CLIENT LIST only."""
    if not session.engine.settings.compat.valkey:
        _disabled(session, argv)
    session.remember("readonly", True)
    session.out.ok()


@command("readwrite", arity=1, flags="fast loading stale", since="3.0.0", complexity="O(1)")
def readwrite(session: Session, argv: list[bytes]) -> None:
    """End the mode that READONLY began."""
    if not session.engine.settings.compat.valkey:
        _disabled(session, argv)
    session.extra.pop("readonly", None)
    session.out.ok()


@command("clusterscan", arity=-2, flags="readonly not_key", keys=(1, 1, 1), since="", valkey="9.1.0",
         syntax="cursor [MATCH pattern] [COUNT count] [TYPE type] [SLOT slot]",
         complexity="O(N) for N returned keys")
def clusterscan(session: Session, argv: list[bytes]) -> None:
    """Iterate over the keys of a cluster."""
    _disabled(session, argv)


@command("trimslots", arity=-5, flags="write", group="server", since="8.4.0",
         syntax="RANGES numranges start-slot end-slot [start-slot end-slot ...]", complexity="O(N) for N keys")
def trimslots(session: Session, argv: list[bytes]) -> None:
    """Delete the keys of slots that another node serves."""
    _disabled(session, argv)
