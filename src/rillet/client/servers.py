"""The server or the nodes of a cluster behind one set of options, by key.

    with Servers(options) as servers:
        servers.call(b"events", b"XINFO", b"STREAM", b"events")   # one command of a key, wherever the key lives
        servers.each([(b"a", (b"XLEN", b"a")), ...])              # one of each of many keys, the nodes in parallel
        connection = servers.connection(b"events")                 # the bulk writers' way
        connection = servers.readers(b"events")                    # the bulk readers': a replica where that is wanted
        for connection in servers.masters(): ...                   # every node that holds keys

Connections are made when they are needed and kept until `close`. A node has one for what it owns, one for what is
read from it as a replica, and one for keys that it has ahead of their slot: nothing but what the caller asked for is
sent on a connection that he may be reading from. `call`, `calls`, `replies` and `each` follow a
server that redirects. Who uses a connection himself hands an error reply to `redirected`; after True he asks for
the connection again and sends the same once more:

    MOVED                 learnt: the slot belongs to another node from now on
    ASK                   the key has gone ahead of its slot: `connection` sends ASKING to the node that has it,
                          which is good for one command; so ask for the connection again before every command
    TRYAGAIN CLUSTERDOWN  a short wait, up to the timeout altogether
    LOADING               the same; a replica that loads is left out instead
    MASTERDOWN            the same with `waits`, see below: the url leads to a replica whose master is away

A node that was lost makes the map of the cluster stale (`forget`): it is asked for anew, from any node that answers,
until the slot has a master that can be reached, up to the timeout. With `waits`, which whoever has had an answer may
set, any server that is away is waited for like that, the only one or all of a cluster: it restarts, or a failover gives
its address to another. Without it that nobody is there is told at once: a wrong port should not take a minute.
`StaysAway` says that waiting was of no use. Nothing is sent twice here after a connection was lost: whether that is
right, only the caller knows.

**A replica may lag behind its master, and knows nothing of a slot that is being moved.** What it holds is a beginning
of what its master holds. So whoever reads a range from it (`connection.replica`) and comes to the end of what
it has before the end of the range goes on at the master; then nothing is missed.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rillet.client.address import Address, NodeAddress
from rillet.client.cluster import Redirection, Topology, read_shards, read_slots, slot_of, slots_of_node
from rillet.client.connection import Connection, ConnectionLost, ConnectorError, endpoint, refusal
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options

MASTER, REPLICA, ASKING = "master", "replica", "asking"  # what a connection is for
ASKED_FOR = 1.0  # seconds that an ASK is remembered; then the slot's owner is asked again
LEFT_OUT_FOR = 5.0  # seconds, at least, until a replica that did not answer is asked again
SCAN_COUNT = b"1000"
IN_FLIGHT = 2000  # commands of one pipeline: a server may stop listening to who does not take its replies
_NOT_NOW = re.compile(r"(?:^|: )(TRYAGAIN|CLUSTERDOWN|LOADING|MASTERDOWN) ")
_ELSEWHERE = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN")


class StaysAway(ConnectionLost):
    """A server that was waited for, up to the timeout."""


@dataclass
class Patience:
    """Pauses that grow from 5 to 200 ms until a time is over."""

    seconds: float
    pause: float = 0.005
    begun: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)

    def again(self) -> bool:
        """Wait a little; False when the time is over."""
        if time.monotonic() - self.begun > self.seconds:
            return False
        time.sleep(self.pause)
        self.pause = min(2 * self.pause, 0.2)
        self.last = time.monotonic()
        return True


class Servers:
    """Connections by key; a context manager, used by one thread."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.waits = False  # whether a server that is away is waited for, up to the timeout
        self._seeds = Address.of(options).seeds if options.url is not None else ()
        self._kept: dict[tuple[NodeAddress | None, str], Connection] = {}  # by node and what it is used for
        self._topology: Topology | None = None
        self._stale = False
        self._asked: dict[bytes, tuple[NodeAddress, float]] = {}
        self._used: dict[bytes, Connection] = {}  # what a key was last sent to
        self._lost: set[NodeAddress] = set()
        self._left_out: dict[NodeAddress, float] = {}  # replicas that did not answer, and until when nobody asks them
        self._replicas_of_one: tuple[NodeAddress, ...] | None = None
        self._patience: dict[bytes, Patience] = {}

    def __str__(self) -> str:
        """Return where the servers are, for messages."""
        if self._seeds:
            return "the cluster of " + ",".join(f"{node.host}:{node.port}" for node in self._seeds)
        return str(Address.of(self.options)) if self.options.url is not None else str(self.options.path)

    # ---- connections ----

    def connection(self, key: bytes) -> Connection:
        """Return the connection to the node that serves a key; ConnectionLost where it cannot be reached."""
        connection, asking = self._serving(key)
        if asking:
            connection.call(b"ASKING")
        return connection

    def readers(self, key: bytes) -> Connection:
        """Return a connection to read a key from: with readFrom=replica to a replica, if there is one that answers."""
        if self.options.read_from == "replica" and key not in self._asked:
            for node in self._replicas(key):
                begun = time.monotonic()
                try:
                    self._used[key] = self._open(node, REPLICA)
                    return self._used[key]
                except ConnectionLost:
                    self._leave_out(node, time.monotonic() - begun)
        return self.connection(key)

    def masters(self) -> Iterator[Connection]:
        """Yield a connection to every node that holds keys."""
        if not self._seeds:
            yield self._reach(None)
            return
        owners = self._map().owners
        for slot in {owner: slot for slot, owner in enumerate(owners) if owner is not None}.values():
            yield self._reach(slot)

    def by_node(self, keys: Sequence[bytes]) -> list[tuple[Connection, list[bytes]]]:
        """Return the keys together with the connection to the node that serves them."""
        found: dict[int, tuple[Connection, list[bytes]]] = {}
        for key in keys:
            connection = self._reach(self._slot(key))
            found.setdefault(id(connection), (connection, []))[1].append(key)
        return list(found.values())

    def together(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return those keys that one command may name together with the first: all; in a cluster, those of its slot."""
        return [key for key in keys if not self._seeds or slot_of(key) == slot_of(keys[0])]

    def _serving(self, key: bytes) -> tuple[Connection, bool]:
        """Return the connection for a key's next command, and whether ASKING goes before it."""
        node, since = self._asked.get(key, (None, 0.0))
        if node is not None and time.monotonic() - since < ASKED_FOR:
            try:
                self._used[key] = self._open(node, ASKING)
                return self._used[key], True
            except ConnectionLost:
                pass  # the slot's owner knows what became of the key
        self._asked.pop(key, None)
        self._used[key] = self._reach(self._slot(key))
        return self._used[key], False

    def _slot(self, key: bytes) -> int | None:
        """Return a key's slot; None where there is but one server."""
        return slot_of(key) if self._seeds else None

    def _open(self, node: NodeAddress | None, use: str = MASTER) -> Connection:
        """Return the connection to a node, or to the one server there is, for a use of its own."""
        kept = self._kept.get((node, use))
        if kept is not None and kept.lost:  # and nobody has said so
            self.forget(kept)
            kept = None
        if kept is None:
            kept = self._kept[node, use] = self._connect(node, use)
            try:
                if use == REPLICA:
                    kept.replica = True
                    if self._seeds:
                        kept.call(b"READONLY")
            except ConnectionLost:
                self.forget(kept)
                raise
        return kept

    def _connect(self, node: NodeAddress | None, use: str = MASTER) -> Connection:
        address = endpoint(self.options)
        try:
            made = Connection(address if node is None else address.at(node), self.options.timeout)
        except ConnectionLost:
            if node is not None:
                self._lost.add(node)
            self._stale = self._stale or use != REPLICA  # without a replica everything goes on
            raise
        if node is not None:
            self._lost.discard(node)
        return made

    def _reach(self, slot: int | None) -> Connection:
        """Return the connection to the master of a slot, waiting while others elect it; of None, to the only server."""
        patience = Patience(self.options.timeout)
        while True:
            shard = None if slot is None else self._map().owners[slot]
            try:
                if slot is None:
                    return self._open(None)
                if shard is None:
                    raise ConnectionLost(f"rillet: no node of {self} serves slot {slot}")
                return self._open(shard.master)
            except ConnectionLost as error:
                self._stale = True
                if slot is None and not self.waits:
                    raise
                if not patience.again():
                    raise self._stays_away(error) from error

    def _stays_away(self, error: Exception | str) -> StaysAway:
        return StaysAway(f"{error} (it was waited for, {self.options.timeout:g} s)")

    def _replicas(self, key: bytes) -> list[NodeAddress]:
        """Return the replicas for a key, one to which there is a connection before the others."""
        if self._seeds:
            shard = self._map().shard(key)
            known = shard.replicas if shard is not None else ()
        else:
            if self._replicas_of_one is None or self._stale:
                with self._connect(None) as connection:
                    role = connection.call(b"ROLE")
                told = role[2] if role[0] == b"master" else []
                self._replicas_of_one = tuple(NodeAddress(host.decode(), int(port)) for host, port, _ in told)
                self._stale = False
            known = self._replicas_of_one
        now = time.monotonic()
        usable = [node for node in known if self._left_out.get(node, 0.0) <= now]
        random.shuffle(usable)
        return sorted(usable, key=lambda node: (node, REPLICA) not in self._kept)

    def _leave_out(self, node: NodeAddress, wasted: float = 0.0) -> None:
        """Ask other nodes than this replica, for at least ten times as long as waiting for it took."""
        self._left_out[node] = time.monotonic() + max(LEFT_OUT_FOR, 10 * wasted)

    def forget(self, connection: Connection) -> None:
        """Close a connection that was lost; the next use of its keys makes another."""
        connection.close()
        for place in [place for place, kept in self._kept.items() if kept is connection]:
            del self._kept[place]
            if place[0] is not None:
                self._lost.add(place[0])
                if connection.replica:
                    self._leave_out(place[0], self.options.timeout)
        self._asked = {key: asked for key, asked in self._asked.items() if asked[0] not in self._lost}
        self._stale = True

    def close(self) -> None:
        """Close every connection."""
        while self._kept:
            self._kept.popitem()[1].close()
        self._asked.clear()
        self._used.clear()

    # ---- the map ----

    def _map(self) -> Topology:
        """Return who owns which slot, asked for anew after a node was lost."""
        if self._topology is None or self._stale:
            self._topology = self._discover(self._topology or Topology())
            self._stale = False
            self._asked.clear()
        return self._topology

    def _discover(self, old: Topology) -> Topology:
        """Ask one node after the other for the map, those that were lost last; where none can tell, see `waits`."""
        patience = Patience(self.options.timeout)
        while True:
            known = list(old.nodes())
            random.shuffle(known)  # the tasks of a job do not all ask the same node
            nodes = sorted(dict.fromkeys([*known, *self._seeds]), key=lambda node: node in self._lost)
            failure, waits = "", self.waits
            for node in nodes:
                try:
                    with self._connect(node) as connection:  # replies may be under way on those that are kept
                        return self._told(connection, node)
                except ConnectionLost as error:
                    failure = str(error).removeprefix("rillet: ")
                except ConnectorError as error:
                    if not _NOT_NOW.search(str(error)):
                        raise
                    failure, waits = str(error).removeprefix("rillet: "), True
            told = f"rillet: no node of {self} answers: {failure}"
            if not waits:
                raise ConnectionLost(told)
            if not patience.again():
                raise self._stays_away(told)

    def _told(self, connection: Connection, node: NodeAddress) -> Topology:
        """Return the map as one node sees it."""
        (reply,) = connection.replies([(b"CLUSTER", b"SHARDS")])
        if not isinstance(reply, ReplyError):
            return read_shards(reply, node, connection.address.tls is not None)
        (reply,) = connection.replies([(b"CLUSTER", b"SLOTS")])  # before 7.0
        if not isinstance(reply, ReplyError):
            return read_slots(reply, node)
        if "cluster support disabled" in str(reply) or "unknown command" in str(reply):
            raise ConnectorError(
                f"rillet: {connection.address} is no node of a cluster: use redis:// in the url: {reply}"
            )
        raise ConnectorError(refusal(connection.address, "CLUSTER SLOTS", str(reply)))

    def redirected(self, key: bytes, error: str) -> bool:
        """Learn from an error reply where a key lives now; False where it says nothing of that kind."""
        used = self._used.get(key)
        found = Redirection.read(
            error, NodeAddress(used.address.host, used.address.port) if used else NodeAddress("", 0)
        )
        if found is None:
            return self._not_now(key, error)
        if not self._seeds:
            raise ConnectorError(refusal(endpoint(self.options), "", error))
        patience = self._patience_with(key)
        if found.asks:
            self._asked[key] = found.node, time.monotonic()
        else:
            self._asked.pop(key, None)
            if not self._map().moved(found.slot, found.node) and self.options.read_from == "replica":
                self._stale = True  # its replicas are known to others
        # Nodes that do not agree send us back and forth: the first time costs nothing, then there are pauses.
        if patience is None:
            return True
        return patience.again()

    def _not_now(self, key: bytes, error: str) -> bool:
        """Wait where a node says that it cannot answer yet; a replica that says so is left out instead."""
        told = _NOT_NOW.search(error)
        used = self._used.get(key)
        if told is None:
            return False
        if used is not None and used.replica and told[1] in ("LOADING", "MASTERDOWN"):
            self._leave_out(NodeAddress(used.address.host, used.address.port))
            return True
        if told[1] == "MASTERDOWN" and not self.waits:
            return False
        if told[1] == "CLUSTERDOWN":
            self._stale = True
        patience = self._patience_with(key) or self._patience[key]
        return patience.again()

    def _patience_with(self, key: bytes) -> Patience | None:
        """Return the pauses of a key that was redirected less than a second ago; None, and new ones, for another."""
        kept = self._patience.get(key)
        if kept is not None and time.monotonic() - kept.last < 1:
            return kept
        self._patience[key] = Patience(self.options.timeout)
        return None

    # ---- commands ----

    def call(self, key: bytes, *words: bytes) -> Any:
        """Send one command about a key and return its reply; an error reply raises ConnectorError."""
        return self.calls(key, [words])[0]

    def calls(self, key: bytes, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """Send commands about a key, all at once; the first error reply raises ConnectorError."""
        replies = self.replies(key, commands)
        if commands:
            self._used[key].check(commands, replies)
        return replies

    def replies(self, key: bytes, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """Send commands about a key and return their replies, error replies among them, as ReplyError.

        What is redirected is sent again; with a MULTI among the commands all of them are, since nothing was executed.
        """
        together = any(words[0].upper() == b"MULTI" for words in commands)
        replies: list[Any] = [None] * len(commands)
        left = list(range(len(commands)))
        while left:
            connection, asking = self._serving(key)
            sent, kept = _with_asking([commands[place] for place in left], asking)
            try:
                got = connection.replies(sent)
            except ConnectionLost:
                self.forget(connection)
                raise
            for place, answered in zip(left, kept, strict=True):
                replies[place] = got[answered]
            again = [place for place in left if _elsewhere(replies[place])]
            if not again or not self.redirected(key, str(replies[again[0]])):
                break
            left = left if together else again
        return replies

    def each(self, requests: Sequence[tuple[bytes, Sequence[bytes]]]) -> list[Any]:
        """Send one command for each of many keys, to all nodes at once; error replies are returned, as ReplyError.

        IN_FLIGHT are under way at the most.
        """
        replies: list[Any] = []
        for begin in range(0, len(requests), IN_FLIGHT):
            replies += self._each(requests[begin : begin + IN_FLIGHT])
        return replies

    def _each(self, requests: Sequence[tuple[bytes, Sequence[bytes]]]) -> list[Any]:
        places: dict[bytes, list[int]] = {}
        for place, (key, _) in enumerate(requests):
            places.setdefault(key, []).append(place)
        replies: list[Any] = [None] * len(requests)
        under_way = [
            (connection, [place for key in keys for place in places[key]])
            for connection, keys in self.by_node(list(places))
        ]
        try:
            for connection, asked in under_way:
                for place in asked:
                    self._used[requests[place][0]] = connection
                connection.send_all([requests[place][1] for place in asked])
            for connection, asked in under_way:
                for place in asked:
                    replies[place] = connection.reply()
        except BaseException:
            for connection, _ in under_way:  # replies that nobody will read
                self.forget(connection)
            raise
        for key, asked in places.items():
            again = [place for place in asked if _elsewhere(replies[place])]
            if again and self.redirected(key, str(replies[again[0]])):
                for place, reply in zip(again, self.replies(key, [requests[place][1] for place in again]), strict=True):
                    replies[place] = reply
        return replies

    def ask(self, connection: Connection, *words: bytes) -> Any:
        """Send one command to a node and return its reply; what is loading is waited for, up to the timeout."""
        patience = Patience(self.options.timeout)
        later = ("LOADING", "MASTERDOWN") if self.waits else ("LOADING",)
        while True:
            try:
                (reply,) = connection.replies([words])
            except ConnectionLost:
                self.forget(connection)
                raise
            if not isinstance(reply, ReplyError) or reply.prefix not in later or not patience.again():
                connection.check([words], [reply])
                return reply

    # ---- names ----

    def scan(self, pattern: str | bytes) -> list[bytes]:
        """Return the keys of all streams that a glob matches, in order; O(keys of all nodes).

        Keys that move from node to node meanwhile are found: where slots are on their way, all nodes are asked twice.
        """
        glob = pattern.encode() if isinstance(pattern, str) else pattern
        found: set[bytes] = set()
        before = self._shares()
        for connection in self.masters():
            found.update(self._scan(connection, glob))
        if self._seeds and ("[" in "".join(before) or self._shares() != before):
            for connection in self.masters():
                found.update(self._scan(connection, glob))
        wrong = [name for name in sorted(found) if not _is_text(name)]
        if wrong:
            shown = ", ".join(repr(name)[1:] for name in wrong[:5]) + (", ..." if len(wrong) > 5 else "")
            raise ConnectorError(
                f"rillet: streams at {self} have names that are not UTF-8, which Spark cannot hold: {shown} "
                "(a narrower streamPattern leaves them out)"
            )
        return sorted(found)

    def _shares(self) -> list[str]:
        """Return the slots of each master, with those that are on their way, which stand in brackets."""
        if not self._seeds:
            return []
        return [slots_of_node(self.ask(connection, b"CLUSTER", b"NODES")) for connection in self.masters()]

    def _scan(self, connection: Connection, glob: bytes) -> Iterator[bytes]:
        cursor = b"0"
        while True:
            words = (b"SCAN", cursor, b"MATCH", glob, b"COUNT", SCAN_COUNT, b"TYPE", b"stream")
            cursor, names = self.ask(connection, *words)
            yield from names
            if cursor == b"0":
                return

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _elsewhere(reply: object) -> bool:
    return isinstance(reply, ReplyError) and reply.prefix in _ELSEWHERE


def _with_asking(commands: Sequence[Sequence[bytes]], asking: bool) -> tuple[list[Sequence[bytes]], list[int]]:
    """Return the commands with ASKING before each (once before a transaction), and where their replies will be."""
    sent: list[Sequence[bytes]] = []
    kept: list[int] = []
    inside = False
    for words in commands:
        if asking and not inside:
            sent.append((b"ASKING",))
        kept.append(len(sent))
        sent.append(words)
        inside = (inside or words[0].upper() == b"MULTI") and words[0].upper() not in (b"EXEC", b"DISCARD")
    return sent, kept


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
