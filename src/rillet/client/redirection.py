"""Error replies after which the client sends the command again: to another node, or after a pause.

    MOVED slot host:port    the slot belongs to another node from now on
    ASK slot host:port      the key has already moved ahead of its slot: send ASKING, then the command, to that node
    TRYAGAIN CLUSTERDOWN    the same node can answer soon
    LOADING MASTERDOWN      the server is loading its data, or is a replica that lost its master

In none of these cases was the command executed, so the client may send it again. `Patience` gives the pauses.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rillet.client.address import NodeAddress
from rillet.errors import CommandError

REDIRECTIONS = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN")
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


@dataclass
class Patience:
    """Pauses that grow from 5 to 200 ms, until a total time is over."""

    seconds: float
    pause: float = 0.005
    begun: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)

    def again(self) -> bool:
        """Pause; return False once the time is over."""
        if time.monotonic() - self.begun > self.seconds:
            return False
        time.sleep(self.pause)
        self.pause = min(2 * self.pause, 0.2)
        self.last = time.monotonic()
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
