"""Redirections: error replies after which the client sends the command again, to another node or after a pause.

    MOVED slot host:port    the slot belongs to another node from now on
    ASK slot host:port      the key has already moved ahead of its slot: send ASKING, then the command, to that node
    TRYAGAIN CLUSTERDOWN    the same node can answer soon
    LOADING MASTERDOWN      the server is loading its data, or is a replica that lost its master

In none of these cases was the command executed, so the client may send it again. `PauseLengths` and `remedy_of` are the
policy of both clients, without input or output; `Patience` sleeps in a thread, and the asyncio client in a task.
`Redirections` decides, for one client of a thread, what to change before the command is sent again:

    MOVED                 correct the map of the cluster
    ASK                   use the node that the reply names, for at most ASK_SECONDS; send ASKING before each command
    TRYAGAIN CLUSTERDOWN  pause, up to the client's timeout in total; CLUSTERDOWN makes the map stale, too
    LOADING               the same pause; if the server is a replica, stop using the replica for a while instead
    MASTERDOWN            as for LOADING; a server that is not used as a replica must have `waits` set
"""

from __future__ import annotations

import re
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from rillet.client.address import NodeAddress
from rillet.client.connection import Connection
from rillet.errors import CommandError
from rillet.loggers import logger
from rillet.real_time import monotonic

LOGGER = logger("client")
REDIRECTIONS = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN")
ASK_SECONDS = 1.0  # an ASK reply applies for this time; then commands go to the owner of the slot again
NOT_EXECUTED = (*REDIRECTIONS, "LOADING", "MASTERDOWN")
_REDIRECTION = re.compile(r"(?:^|: )(MOVED|ASK) ([0-9]+) (\S*):([0-9]+)$")
_PAUSE = re.compile(r"(?:^|: )(TRYAGAIN|CLUSTERDOWN|LOADING|MASTERDOWN) ")


@dataclass(frozen=True)
class Redirection:
    """The slot and the node in a MOVED or ASK reply."""

    asks: bool
    slot: int
    node: NodeAddress

    @classmethod
    def read(cls, line: str, sender: NodeAddress) -> Redirection | None:
        """Parse an error reply, or a sentence that ends with one; return None if it is not a redirection."""
        match = _REDIRECTION.search(line)
        if match is None:
            return None
        host = match[3] if match[3] not in ("", "?") else sender.host
        return cls(match[1] == "ASK", int(match[2]), NodeAddress(host, int(match[4])))


def pause_reason(line: str) -> str | None:
    """Return the first word of an error reply that requires a pause (TRYAGAIN, LOADING ...), None for other errors."""
    match = _PAUSE.search(line)
    return None if match is None else match[1]


def not_executed(reply: object) -> bool:
    """Return whether a reply is a redirection or requires a pause, so that the command was not executed."""
    return isinstance(reply, CommandError) and reply.prefix in NOT_EXECUTED


class Remedy(Enum):
    """The change that an error reply requires before the command is sent again."""

    PAUSE = "pause"
    READ_MAP = "read the map of the cluster again, after a pause"
    LEAVE_REPLICA = "stop using the replica for a while, without a pause"


def remedy_of(error: str, *, replica: bool = False, waits: bool = False) -> Remedy | None:
    """Return the remedy for an error reply; None if the command must not be sent again, or if it is a redirection.

    replica: a replica sent the error. waits: the client also waits for a replica that lost its master.
    """
    reason = pause_reason(error)
    if reason is None:
        return None
    if replica and reason in ("LOADING", "MASTERDOWN"):
        return Remedy.LEAVE_REPLICA
    if reason == "MASTERDOWN" and not waits:
        return None
    return Remedy.READ_MAP if reason == "CLUSTERDOWN" else Remedy.PAUSE


@dataclass
class PauseLengths:
    """The lengths of pauses, which grow from 5 to 200 ms until a total time is over."""

    seconds: float
    pause: float = 0.005
    begun: float = field(default_factory=monotonic)

    def next_pause(self) -> float | None:
        """Return the length of the next pause in seconds; None if the total time is over."""
        if monotonic() - self.begun > self.seconds:
            return None
        pause, self.pause = self.pause, min(2 * self.pause, 0.2)
        return pause


@dataclass
class Patience(PauseLengths):
    """Pauses of a thread."""

    last: float = field(default_factory=monotonic)

    def again(self) -> bool:
        """Sleep for the next pause; return False without a pause if the total time is over."""
        pause = self.next_pause()
        if pause is None:
            return False
        time.sleep(pause)
        self.last = monotonic()
        return True


def with_asking(commands: Sequence[Sequence[bytes]], asking: bool) -> tuple[list[Sequence[bytes]], list[int]]:
    """Return the commands with ASKING before each (once before a transaction), and the positions of their replies."""
    sent: list[Sequence[bytes]] = []
    places: list[int] = []
    in_transaction = False
    for words in commands:
        if asking and not in_transaction:
            sent.append((b"ASKING",))
        places.append(len(sent))
        sent.append(words)
        name = words[0].upper()
        in_transaction = (in_transaction or name == b"MULTI") and name not in (b"EXEC", b"DISCARD")
    return sent, places


class Router(Protocol):
    """The parts of a client that a redirection changes; client.servers.Servers implements them."""

    waits: bool

    def leave_out(self, node: NodeAddress) -> None:
        """Stop using a replica for a while."""

    def map_moved(self, slot: int, node: NodeAddress) -> None:
        """Record in the slot map that the node owns the slot."""

    def map_is_stale(self) -> None:
        """Mark the slot map as stale: it is read again before its next use."""


class Redirections:
    """The redirections of one client: for each key the node that ASK named, and the pauses.

    The client passes itself to each call: a stored reference to the client would keep its connections open longer.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._asked: dict[bytes, tuple[NodeAddress, float]] = {}  # key -> the node and the time of its ASK reply
        self._patience: dict[bytes, Patience] = {}

    def has_asked(self, key: bytes) -> bool:
        """Return whether the last redirection of a key was an ASK, even if the ASK is no longer valid."""
        return key in self._asked

    def asked_node(self, key: bytes) -> NodeAddress | None:
        """Return the node that a valid ASK named for a key, or None."""
        node, since = self._asked.get(key, (None, 0.0))
        return node if monotonic() - since < ASK_SECONDS else None

    def forget_ask(self, key: bytes) -> None:
        """Send the next command of a key to the owner of its slot."""
        self._asked.pop(key, None)

    def forget_nodes(self, lost: Container[NodeAddress]) -> None:
        """Forget each ASK reply that named a lost node."""
        self._asked = {key: asked for key, asked in self._asked.items() if asked[0] not in lost}

    def clear(self) -> None:
        """Forget every ASK reply."""
        self._asked.clear()

    def follow(self, router: Router, key: bytes, redirection: Redirection) -> bool:
        """Apply a MOVED or ASK reply for a key; return whether to send the command again.

        Nodes with different maps may redirect in a loop. So only the first redirection is followed without a pause.
        """
        patience = self._patience_with(key)
        LOGGER.debug("%s: slot %d is at %s", "ASK" if redirection.asks else "MOVED", redirection.slot, redirection.node)
        if redirection.asks:
            self._asked[key] = redirection.node, monotonic()
        else:
            self.forget_ask(key)
            router.map_moved(redirection.slot, redirection.node)
        return patience is None or patience.again()

    def pause(self, router: Router, key: bytes, error: str, used: Connection | None) -> bool:
        """Pause for TRYAGAIN, LOADING ..., or stop using the replica; return False for other errors."""
        remedy = remedy_of(error, replica=used is not None and used.replica, waits=router.waits)
        if remedy is None:
            return False
        LOGGER.info("pause for an error of the server: %s", error)
        if remedy is Remedy.LEAVE_REPLICA and used is not None:
            router.leave_out(used.address.node)
            return True
        if remedy is Remedy.READ_MAP:
            router.map_is_stale()
        patience = self._patience_with(key) or self._patience[key]
        return patience.again()

    def _patience_with(self, key: bytes) -> Patience | None:
        """Return the pauses of a key that was redirected less than a second ago; else start new pauses, return None."""
        kept = self._patience.get(key)
        if kept is not None and monotonic() - kept.last < 1:
            return kept
        self._patience[key] = Patience(self._timeout)
        return None
