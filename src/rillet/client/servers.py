"""The connections to one server, or to the nodes of a cluster, looked up by key.

    with Servers(options) as servers:
        servers.call(b"events", b"XINFO", b"STREAM", b"events")   # one command, on the node that serves the key
        servers.each([(b"a", (b"XLEN", b"a")), ...])              # one command for each key, all nodes in parallel
        connection = servers.connection(b"events")                 # for pipelines: the connection to that node
        connection = servers.readers(b"events")                    # for bulk reads: a replica, if the options allow
        for connection in servers.masters(): ...                   # every node that owns slots

Connections are opened at first use and kept until `close`. Each node has up to three connections: one as master, one as
replica, and one for keys that ASK sent there. So nothing but the caller's own commands is sent on a connection that the
caller is reading from. `call`, `calls`, `replies` and `each` follow redirections. A caller that uses a connection
directly passes each error reply to `redirected`; if that returns True, the caller gets the connection again and
repeats. client/redirection.py decides what each redirection changes.

A lost node makes the map stale (`forget`). The map is then read again from any node that answers, until the slot has a
reachable master, up to the timeout. With `waits`, which a caller sets after a first reply, every lost server is waited
for in this way: it restarts, or a failover moves its address. Without `waits`, an unreachable server fails immediately,
because a wrong port should not take a minute. `StaysAway` reports that waiting did not help. Nothing is sent again
after a lost connection, because only the caller knows whether the command may run twice.

**A replica may lag behind its master, and does not know that a slot is being moved.** It holds a prefix of its master's
data. So a reader that reaches the end of a replica's data before the end of its range continues at the master.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from rillet.client.address import Address, NodeAddress
from rillet.client.cluster import Topology, read_shards, read_slots, slot_of, slots_of_node
from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError, StaysAway, refused
from rillet.client.redirection import (
    LOGGER,
    Patience,
    Redirection,
    Redirections,
    not_executed,
    pause_reason,
    with_asking,
)
from rillet.client.sentinel import current_master
from rillet.protocol.reply_parser import ReplyError
from rillet.real_time import monotonic

MASTER, REPLICA, ASKING = "master", "replica", "asking"  # the uses of connections
_ONLY_SERVER = (None, MASTER)  # node and use
LEFT_OUT_FOR = 5.0  # minimum seconds for which the client avoids a replica that did not answer
SCAN_COUNT = b"1000"
IN_FLIGHT = 2000  # commands in one pipeline; with more, a server may stop reading until the client reads replies


class ServerOptions(Protocol):
    """The settings of a client."""

    @property
    def timeout(self) -> float:
        """Seconds to wait for a server that redirects, loads or restarts."""

    @property
    def read_from(self) -> str:
        """The nodes to read from: `master` or `replica`."""

    def seeds(self) -> tuple[NodeAddress, ...]:
        """Return the configured nodes of a cluster; none for one server."""

    def address(self) -> Address:
        """Return the current address; it may change between calls if a store's directory gets another owner."""

    def place(self) -> str:
        """Return the server's name for messages."""


@dataclass(frozen=True)
class ClientOptions:
    """ServerOptions for a server with a fixed address."""

    server: Address
    timeout: float = 60.0
    read_from: str = "master"

    @classmethod
    def from_url(cls, url: str, timeout: float = 60.0, strict: bool = True) -> ClientOptions:
        """Return the options for a url; see Address.parse."""
        return cls(Address.parse(url, strict), timeout)

    def seeds(self) -> tuple[NodeAddress, ...]:
        """Return the configured nodes of a cluster."""
        return self.server.seeds

    def address(self) -> Address:
        """Return the address to connect to; that of the current master if sentinels watch it."""
        return self.server if self.server.sentinels is None else current_master(self.server)

    @property
    def moves(self) -> bool:
        """Whether `address` may take time, and return another server after a failover."""
        return self.server.sentinels is not None

    def place(self) -> str:
        """Return the server's name for messages."""
        return str(self.server)


class Servers:
    """The connections of one client, looked up by key; a context manager, used by one thread.

    unlimited: a reply may take any time (XREAD BLOCK 0); else a reply that takes longer than the timeout is an error.
    reply_timeout: the limit for replies of `unlimited` connections; see Connection.
    checks_idle: replace a connection that the server has closed before its next use. It is for a caller that reads all
    replies before the next request, because unread replies look like a closed connection.
    """

    def __init__(self, options: ServerOptions, unlimited: bool = False, reply_timeout: float | None = None,
                 checks_idle: bool = False) -> None:  # fmt: skip
        self.options = options
        self._reply_timeout = reply_timeout
        self.waits = False  # whether to wait for a lost server, up to the timeout
        self.checks_idle = checks_idle
        self._socket_timeout = None if unlimited else options.timeout
        self._seeds = options.seeds()
        self._kept: dict[tuple[NodeAddress | None, str], Connection] = {}  # (node, use) -> connection
        self._topology: Topology | None = None
        self._stale = False
        self._redirections = Redirections(options.timeout)
        self._used: dict[bytes, Connection] = {}  # key -> the connection of its last command
        self._lost: set[NodeAddress] = set()
        self._left_out: dict[NodeAddress, float] = {}  # replica that did not answer -> the time of its next use
        self._replicas_of_one: tuple[NodeAddress, ...] | None = None
        self._left_out_names: set[bytes] = set()  # of streams, which a warning has named

    def __str__(self) -> str:
        """Return the server's or cluster's name for messages."""
        if self._seeds:
            return "the cluster of " + ",".join(f"{node.host}:{node.port}" for node in self._seeds)
        return self.options.place()

    # ---- connections ----

    def connection(self, key: bytes) -> Connection:
        """Return the connection to the node that serves a key; ConnectionLost if the node is unreachable."""
        if not self._seeds:  # one server: nothing is redirected
            connection = self._used[key] = self._reach(None)
            return connection
        connection, asking = self._serving(key)
        if asking:
            connection.call(b"ASKING")
        return connection

    def open_connection(self) -> Connection | None:
        """Return the connection to the only server if it is open, or was closed by the server since its last use."""
        return self._kept.get(_ONLY_SERVER)

    @property
    def connected(self) -> bool:
        """True if a connection is open, or was closed by the server since its last use."""
        return bool(self._kept)

    def readers(self, key: bytes) -> Connection:
        """Return a connection to read a key from: to a replica, if the options allow it and a replica answers."""
        if self.options.read_from == "replica" and not self._redirections.has_asked(key):
            for node in self._replicas(key):
                begun = monotonic()
                try:
                    self._used[key] = self._open(node, REPLICA)
                    return self._used[key]
                except ConnectionLost:
                    self.leave_out(node, monotonic() - begun)
        return self.connection(key)

    def masters(self) -> Iterator[Connection]:
        """Yield a connection to every node that owns slots."""
        if not self._seeds:
            yield self._reach(None)
            return
        for slot in self._map().shards().values():
            yield self._reach(slot)

    @property
    def is_cluster(self) -> bool:
        """True if the address names a cluster."""
        return bool(self._seeds)

    def owners(self) -> Sequence[object]:
        """Return the node that owns each slot of the cluster, in the order of the slots."""
        return [None if owner is None else owner.master for owner in self._map().owners]

    def slot_connection(self, slot: int) -> Connection:
        """Return the connection to the master of a slot."""
        return self._reach(slot)

    def by_node(self, keys: Sequence[bytes]) -> list[tuple[Connection, list[bytes]]]:
        """Return each connection with the keys that its node serves."""
        if not self._seeds:
            return [(self._reach(None), list(keys))] if keys else []
        nodes: dict[int, tuple[Connection, list[bytes]]] = {}
        for key in keys:
            connection = self._reach(self._slot(key))
            nodes.setdefault(id(connection), (connection, []))[1].append(key)
        return list(nodes.values())

    def together(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the keys that one command may contain: all keys; in a cluster, those in the slot of the first key."""
        return [key for key in keys if not self._seeds or slot_of(key) == slot_of(keys[0])]

    def _serving(self, key: bytes) -> tuple[Connection, bool]:
        """Return the connection for a key's next command, and whether to send ASKING before the command."""
        node = self._redirections.asked_node(key)
        if node is not None:
            try:
                self._used[key] = self._open(node, ASKING)
                return self._used[key], True
            except ConnectionLost:
                pass  # then the command goes to the owner of the slot, which may redirect it again
        self._redirections.forget_ask(key)
        self._used[key] = self._reach(self._slot(key))
        return self._used[key], False

    def _slot(self, key: bytes) -> int | None:
        """Return the slot of a key, or None if the address is a single server."""
        return slot_of(key) if self._seeds else None

    def _open(self, node: NodeAddress | None, use: str = MASTER) -> Connection:
        """Return the connection to a node (None: to the only server) for a use: MASTER, REPLICA or ASKING."""
        kept = self._kept.get((node, use))
        if kept is not None and (kept.lost or (self.checks_idle and kept.stale())):
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
        try:
            address = self.options.address()
            at = address if node is None else address.at(node)
            connection = Connection(at, self._socket_timeout, self._reply_timeout)
        except ConnectionLost as error:
            LOGGER.info("%s", error)
            if node is not None:
                self._lost.add(node)
            self._stale = self._stale or use != REPLICA  # a lost replica does not make the slot map stale
            raise
        if node is not None:
            self._lost.discard(node)
        return connection

    def _reach(self, slot: int | None) -> Connection:
        """Return the connection to the master of a slot (None: to the only server); wait for an election."""
        if slot is None and not self.waits:
            return self._open(None)
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
                if not patience.again():
                    raise self._stays_away(error) from error

    def _stays_away(self, error: Exception | str) -> StaysAway:
        return StaysAway.before(f"{error} (waited for it for {self.options.timeout:g} s)")

    def _replicas(self, key: bytes) -> list[NodeAddress]:
        """Return the usable replicas for a key, connected ones first."""
        if self._seeds:
            shard = self._map().shard(key)
            replicas = shard.replicas if shard is not None else ()
        else:
            if self._replicas_of_one is None or self._stale:
                with self._connect(None) as connection:
                    role = connection.call(b"ROLE")
                listed = role[2] if role[0] == b"master" else []
                self._replicas_of_one = tuple(NodeAddress(host.decode(), int(port)) for host, port, _ in listed)
                self._stale = False
            replicas = self._replicas_of_one
        now = monotonic()
        usable = [node for node in replicas if self._left_out.get(node, 0.0) <= now]
        random.shuffle(usable)
        return sorted(usable, key=lambda node: (node, REPLICA) not in self._kept)

    def leave_out(self, node: NodeAddress, wasted: float = 0.0) -> None:
        """Stop using a replica for a while: for at least ten times as long as the client waited for the replica."""
        self._left_out[node] = monotonic() + max(LEFT_OUT_FOR, 10 * wasted)

    def forget(self, connection: Connection) -> None:
        """Close a lost connection; the next use of its keys opens another one."""
        connection.close()
        for place in [place for place, kept in self._kept.items() if kept is connection]:
            del self._kept[place]
            if place[0] is not None:
                self._lost.add(place[0])
                if connection.replica:
                    self.leave_out(place[0], self.options.timeout)
        self._redirections.forget_nodes(self._lost)
        self._stale = True

    def interrupt(self) -> None:
        """Wake the thread that waits for a reply; its request raises ConnectionLost. May be called from any thread."""
        for connection in list(self._kept.values()):
            connection.interrupt()

    def close(self) -> None:
        """Close every connection."""
        while self._kept:
            self._kept.popitem()[1].close()
        self._redirections.clear()
        self._used.clear()

    def close_surely(self) -> None:
        """Close every connection, even if an exception from outside interrupts this call."""
        try:
            self.close()
        except BaseException:
            self.close()
            raise

    # ---- the slot map ----

    def _map(self) -> Topology:
        """Return the slot map of the cluster; read the map again if a node was lost."""
        if self._topology is None or self._stale:
            self._topology = self._discover(self._topology or Topology())
            self._stale = False
            self._redirections.clear()
        return self._topology

    def _discover(self, old: Topology) -> Topology:
        """Read the slot map from the first node that answers; nodes that were lost are tried last."""
        patience = Patience(self.options.timeout)
        while True:
            mapped = list(old.nodes())
            random.shuffle(mapped)  # a random order, so that the tasks of a Spark job use different nodes
            nodes = sorted(dict.fromkeys([*mapped, *self._seeds]), key=lambda node: node in self._lost)
            failure, waits = "", self.waits
            for node in nodes:
                try:
                    with self._connect(node) as connection:  # an existing connection may have outstanding replies
                        return self._read_map(connection, node)
                except ConnectionLost as error:
                    failure = str(error).removeprefix("rillet: ")
                except ConnectorError as error:
                    if pause_reason(str(error)) is None:
                        raise
                    failure, waits = str(error).removeprefix("rillet: "), True
            text = f"rillet: no node of {self} answers: {failure}"
            if not waits:
                raise ConnectionLost.before(text)
            if not patience.again():
                raise self._stays_away(text)

    def _read_map(self, connection: Connection, node: NodeAddress) -> Topology:
        """Return the slot map as one node reports it."""
        (reply,) = connection.replies([(b"CLUSTER", b"SHARDS")])
        if not isinstance(reply, ReplyError):
            return read_shards(reply, node, connection.address.tls is not None)
        (reply,) = connection.replies([(b"CLUSTER", b"SLOTS")])  # CLUSTER SHARDS exists since 7.0
        if not isinstance(reply, ReplyError):
            return read_slots(reply, node)
        line = str(reply)
        if "cluster support disabled" in line or "unknown command" in line:
            raise ConnectorError(
                f"rillet: {connection.address} is not a node of a cluster: use redis:// in the url: {line}", line
            )
        raise refused(connection.address, "CLUSTER SLOTS", line)

    def redirected(self, key: bytes, error: str) -> bool:
        """Update the slot map from an error reply (MOVED, ASK ...) for a key; return whether to repeat the command."""
        used = self._used.get(key)
        redirection = Redirection.read(error, used.address.node if used else NodeAddress("", 0))
        if redirection is None:
            return self._redirections.pause(self, key, error, used)
        if not self._seeds:
            raise refused(used.address if used else self.options.address(), "", error)
        return self._redirections.follow(self, key, redirection)

    def map_moved(self, slot: int, node: NodeAddress) -> None:
        """Record in the slot map that the node owns the slot."""
        if not self._map().moved(slot, node) and self.options.read_from == "replica":
            self._stale = True  # the replicas of the new node are not in the map

    def map_is_stale(self) -> None:
        """Mark the slot map as stale: it is read again before its next use."""
        self._stale = True

    # ---- commands ----

    def call(self, key: bytes, *words: bytes) -> Any:
        """Send one command to the node of a key and return its reply; an error reply raises ConnectorError."""
        return self.calls(key, [words])[0]

    def calls(self, key: bytes, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """Send commands to the node of a key, all at once; the first error reply raises ConnectorError."""
        replies = self.replies(key, commands)
        if commands:
            self._used[key].check(commands, replies)
        return replies

    def replies(self, key: bytes, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """Send commands to the node of a key and return their replies, with a ReplyError for each error reply.

        Redirected commands are sent again. If the commands include MULTI, all are sent again: none was executed.
        """
        together = any(words[0].upper() == b"MULTI" for words in commands)
        replies: list[Any] = [None] * len(commands)
        left = list(range(len(commands)))
        while left:
            with _not_the_first(not together and len(left) < len(commands)):
                connection, asking = self._serving(key)
                sent, places = with_asking([commands[place] for place in left], asking)
                try:
                    received = connection.replies(sent)
                except BaseException as error:
                    if isinstance(error, ConnectionLost) or not isinstance(error, ConnectorError):
                        self.forget(connection)  # even after an interrupt: replies may be outstanding
                    raise
            for place, answered in zip(left, places, strict=True):
                replies[place] = received[answered]
            again = [place for place in left if not_executed(replies[place])]
            if not again or not self.redirected(key, str(replies[again[0]])):
                break
            left = left if together else again
        return replies

    def replies_of_node(self, key: bytes, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """Send commands to the node that executed the last command of a key, on the same connection; follow nothing."""
        connection = self._used.get(key)
        if connection is None:  # the store found that the server is another one, and closed all connections
            raise ConnectionLost.before(f"rillet: the connection to {self.options.place()} was lost")
        if connection.stale():
            raise ConnectionLost.before(
                f"rillet: the connection to {connection.address} was lost: closed by the server"
            )
        asking = self._kept.get((connection.address.node, ASKING)) is connection
        sent, places = with_asking(commands, asking)
        received = connection.replies(sent)
        return [received[place] for place in places]

    def each(self, requests: Sequence[tuple[bytes, Sequence[bytes]]]) -> list[Any]:
        """Send one command for each key, to all nodes in parallel; return the replies, with ReplyErrors among them.

        At most IN_FLIGHT commands wait for their replies at a time.
        """
        replies: list[Any] = []
        for begin in range(0, len(requests), IN_FLIGHT):
            with _not_the_first(begin > 0):
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
            for connection, sent in under_way:
                for place in sent:
                    self._used[requests[place][0]] = connection
                with _not_the_first(connection is not under_way[0][0]):
                    connection.send_all([requests[place][1] for place in sent])
            for connection, sent in under_way:
                for place in sent:
                    replies[place] = connection.reply()
        except BaseException:
            for connection, _ in under_way:  # the replies that remain will not be read
                self.forget(connection)
            raise
        for key, sent in places.items():
            again = [place for place in sent if not_executed(replies[place])]
            if again and self.redirected(key, str(replies[again[0]])):
                with _not_the_first(len(again) < len(requests)):
                    received = self.replies(key, [requests[place][1] for place in again])
                for place, reply in zip(again, received, strict=True):
                    replies[place] = reply
        return replies

    def ask(self, connection: Connection, *words: bytes) -> Any:
        """Send one command to a node and return its reply; wait while the node is loading, up to the timeout."""
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

    # ---- stream names ----

    def scan(self, pattern: str | bytes) -> list[bytes]:
        """Return the keys of all streams that match a glob, sorted; O(keys of all nodes).

        Names that are not UTF-8 are left out, with a warning: Spark cannot represent them, and they may be of another
        program. All nodes are scanned twice if slots are being moved, so a key that moves during the scan is found.
        """
        glob = pattern.encode() if isinstance(pattern, str) else pattern
        names: set[bytes] = set()
        before = self.slot_texts()
        for connection in self.masters():
            names.update(self._scan(connection, glob))
        if self._seeds and ("[" in "".join(before) or self.slot_texts() != before):
            for connection in self.masters():
                names.update(self._scan(connection, glob))
        wrong = {name for name in names if not is_text(name)}
        if wrong - self._left_out_names:
            self._left_out_names |= wrong
            shown = ", ".join(repr(name)[1:] for name in sorted(wrong)[:5]) + (", ..." if len(wrong) > 5 else "")
            LOGGER.warning(
                "rillet: streams at %s have names that are not UTF-8, which Spark cannot represent, and are not read: "
                "%s (a narrower pattern excludes them)", self, shown,
            )  # fmt: skip
        return sorted(names - wrong)

    def slot_texts(self) -> list[str]:
        """Return for each master the text of its slots; a slot that is being moved is in brackets."""
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


@contextmanager
def _not_the_first(earlier: bool) -> Iterator[None]:
    """Mark a lost connection as one on which something was sent, if `earlier` requests of the batch were sent."""
    try:
        yield
    except ConnectionLost as error:
        error.sent = error.sent or earlier
        raise


def is_text(name: bytes) -> bool:
    """Return whether a name is UTF-8."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
