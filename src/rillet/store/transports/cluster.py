"""ClusterLink: a Redis or Valkey cluster. redis-py knows the nodes and their connections; what goes where is said here.

    a key                      its slot's master; keys of several slots are what the server calls CROSSSLOT
    MULTI ... EXEC             in one execute_many, to the master of its first key
    FLUSHALL, CONFIG ...       to every master; the first error, or the first reply
    DBSIZE, KEYS               to every master; added up, joined
    no key                     to one node

A node that redirects is obeyed: MOVED is learnt, ASK is followed with ASKING, TRYAGAIN and CLUSTERDOWN are waited for a
little; a transaction is sent again as a whole where its EXEC was refused. The whole map is asked for where a node is
not known or does not answer, and not for a slot that moved: redis-py makes its connections anew then, those of
subscriptions, too. A connection that breaks is a StoreError, as over one server, because nobody knows whether the
command was carried out; a later call goes to the replica that took over.

Rejected: redis-py's own way through a cluster. It sends a command again after a broken connection, so that an XADD
could be carried out twice, gives up a wait for an entry after its socket's timeout, and shapes replies of its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rillet import commands
from rillet.errors import CommandError, StoreClosed
from rillet.runtime.registry import TABLE
from rillet.store.transports.transport import OF_A_CONNECTION, RedisTransport, interrupt_all, redis_error

EVERYWHERE = frozenset(
    (b"FLUSHALL", b"FLUSHDB", b"CONFIG", b"SCRIPT", b"FUNCTION", b"SAVE", b"BGSAVE", b"BGREWRITEAOF")
)
_GATHERED = frozenset((b"DBSIZE", b"KEYS"))
_HOPS = 20
_PAUSE = 0.05  # seconds, until a node is asked again that could not answer yet


class ClusterTransport(RedisTransport):
    """A cluster behind redis-py."""

    cluster = True

    def __init__(self, url: str) -> None:
        commands.load()  # which say where their keys are
        self._moved: dict[int, Any] = {}  # slots of which a node said, after the map was drawn, who has them
        super().__init__(url)

    def _client(self, redis: Any, once: dict[str, Any]) -> Any:
        client = self._connected(_bare_cluster_class(), socket_timeout=None, **once)
        client.cluster_response_callbacks.clear()
        return client

    def _connected(self, kind: Any, **options: Any) -> Any:
        """Return a cluster client by any of the url's nodes, of which redis-py takes one in a url."""
        from redis.cluster import ClusterNode

        scheme, _, rest = self.url.partition("+cluster://")
        place, slash, path = rest.partition("/")
        place, question, query = place.partition("?")
        who, at, hosts = place.rpartition("@")
        first, *others = hosts.split(",")
        nodes = [one.rpartition(":") if ":" in one.rpartition("]")[2] else (one, ":", "6379") for one in others]
        node_of: Any = ClusterNode
        startup = [node_of(host.strip("[]"), int(port)) for host, _, port in nodes]
        return kind.from_url(f"{scheme}://{who}{at}{first}{slash}{path}{question}{query}",
                             startup_nodes=startup, **options)  # fmt: skip

    # -- one command

    def execute(self, argv: list[bytes]) -> Any:
        """Send one command to where its key is, or to every master."""
        name = argv[0].upper()
        if name in OF_A_CONNECTION:
            raise CommandError(
                f"{name.decode()} is of one connection, and a cluster has many: "
                "execute_many takes MULTI to EXEC for keys of one slot, redis() gives a client for the rest"
            )
        if name == b"SCAN":
            raise CommandError("SCAN goes through one node, with a cursor of its own: keys() goes through all of them")
        if name not in EVERYWHERE and name not in _GATHERED:
            return self._follow(argv, self._node_for(argv))
        replies = [self._follow(argv, node) for node in self._masters()]
        errors = [reply for reply in replies if isinstance(reply, CommandError)]
        if errors:
            return errors[0]
        if name == b"DBSIZE":
            return sum(replies)
        return [key for found in replies for key in found] if name == b"KEYS" else replies[0]

    def shards(self) -> list[Callable[[list[bytes]], Any]]:
        """Return for each master what runs a command there."""
        return [partial(self._ask_one, node) for node in self._masters()]

    def _ask_one(self, node: Any, argv: list[bytes]) -> Any:
        return self._ask(node, [argv])[0]

    def _follow(self, argv: list[bytes], node: Any) -> Any:
        """Send a command to a node, and to wherever that one sends it."""
        asking = False
        for _ in range(_HOPS):
            reply = self._ask(node, [argv], asking)[0]
            if not _elsewhere(reply):
                return reply
            node, asking = self._sent_on(reply, node, argv)
        return reply

    def _sent_on(self, reply: CommandError, node: Any, argv: list[bytes]) -> tuple[Any, bool]:
        """Return which node is to be asked after one that did not carry a command out, and whether with ASKING."""
        if reply.prefix in ("MOVED", "ASK"):
            return self._named(str(reply), node), reply.prefix == "ASK"
        time.sleep(_PAUSE)
        if reply.prefix == "CLUSTERDOWN":
            self._learn()
        return self._node_for(argv), False

    def _ask(self, node: Any, commands: Sequence[list[bytes]], asking: bool = False) -> list[Any]:
        """Send commands to a node, in order; return the replies, errors among them."""
        if self._closed:
            raise StoreClosed("the store is closed")
        try:
            client = self.client.get_redis_connection(node)
            if len(commands) == 1 and not asking:
                try:
                    return [client.execute_command(*commands[0])]
                except self._errors.ResponseError as error:
                    return [redis_error(error)]
            with client.pipeline(transaction=False) as pipeline:
                if asking:
                    pipeline.execute_command(b"ASKING")
                for argv in commands:
                    pipeline.execute_command(*argv)
                replies = pipeline.execute(raise_on_error=False)[asking:]
        except (self._errors.ConnectionError, self._errors.TimeoutError) as error:
            failure = self.failed(error)
            with contextlib.suppress(Exception):  # where all of them are gone, the next call says so
                self._learn()
            raise failure from error
        return [redis_error(reply) if isinstance(reply, self._errors.ResponseError) else reply for reply in replies]

    # -- several

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Send commands as a pipeline for each node; those that are sent elsewhere follow one by one."""
        if any(argv[0].upper() == b"MULTI" for argv in commands):
            return self._transact(commands)
        replies: list[Any] = [None] * len(commands)
        places: dict[Any, list[int]] = {}
        alone = []
        for place, argv in enumerate(commands):
            if self._key_of(argv) is None:
                alone.append(place)
            else:
                places.setdefault(self._node_for(argv), []).append(place)
        for node, mine in places.items():
            for place, reply in zip(mine, self._ask(node, [commands[place] for place in mine]), strict=True):
                replies[place] = reply
        for place, reply in enumerate(replies):
            if place in alone or _elsewhere(reply):
                replies[place] = self.execute(commands[place])
        return replies

    def _transact(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Send a transaction to the master of its first key, and all of it to wherever that one sends it.

        Where EXEC is refused nothing was carried out; with commands around the transaction it cannot be sent again.
        """
        first = next((argv for argv in commands if self._key_of(argv) is not None), commands[0])
        names = [argv[0].upper() for argv in commands]
        whole = names[0] == b"MULTI" and names[-1] == b"EXEC" and not {b"EXEC", b"DISCARD"}.intersection(names[:-1])
        node, asking = self._node_for(first), False
        for _ in range(_HOPS):
            replies = self._ask(node, commands, asking)
            sent = next((reply for reply in replies if _elsewhere(reply)), None)
            if sent is None or not whole or not isinstance(replies[-1], CommandError):
                break
            node, asking = self._sent_on(sent, node, first)
        return replies

    # -- the map

    def _key_of(self, argv: list[bytes]) -> bytes | None:
        """Return a command's first key, None where it has none or is not known here; then a node says where it goes."""
        entry = TABLE.find(argv[0])
        if entry is not None and entry.subcommands is not None and len(argv) > 1:
            entry = entry.subcommands.get(argv[1].lower())
        if entry is None or not entry.accepts(len(argv)):
            return None
        try:
            positions = entry.key_positions(argv)
        except (CommandError, ValueError, IndexError):
            return None
        return argv[positions[0]] if positions else None

    def _node_for(self, argv: list[bytes]) -> Any:
        key = self._key_of(argv)
        return self.client.get_default_node() if key is None else self.node_of(key)

    def node_of(self, key: bytes) -> Any:
        """Return redis-py's node that has a key."""
        moved = self._moved.get(self.client.keyslot(key))
        try:
            return self.client.get_node_from_key(key) if moved is None else moved
        except self._errors.RedisError as error:  # its slot has no master at the moment
            raise self._unreachable(error) from error

    def _masters(self) -> list[Any]:
        if self._closed:
            raise StoreClosed("the store is closed")
        return list(self.client.get_primaries())

    def _named(self, line: str, by: Any) -> Any:
        """Return the node that MOVED or ASK names, and keep in mind whose the slot is now."""
        prefix, slot, where = line.split()[:3]
        host, _, port = where.rpartition(":")
        for _ in range(2):
            node = self.client.get_node(host=host or by.host, port=int(port))
            if node is not None:
                break
            self._learn()
        else:
            raise self._unreachable(RuntimeError(f"{by.name} says {line}, and nobody knows that node"))
        if prefix == "MOVED":
            self._moved[int(slot)] = node
        return node

    def _learn(self) -> None:
        """Ask the cluster for its map."""
        self._moved.clear()
        try:
            self.client.nodes_manager.initialize()
        except (self._errors.RedisError, OSError) as error:
            raise self.failed(error) from error

    def new_cluster_client(self, **options: Any) -> Any:
        """Return another cluster client, with options of its own."""
        import redis

        return self._connected(redis.RedisCluster, **options)

    def close(self) -> None:
        """Close redis-py's connections, those that wait too."""
        self._closed = True
        for node in self.client.get_nodes():
            if node.redis_connection is not None:
                interrupt_all(node.redis_connection.connection_pool)
        self.client.close()


def _elsewhere(reply: object) -> bool:
    """Whether a reply says that the command was not carried out, and where or when it may be."""
    return isinstance(reply, CommandError) and reply.prefix in ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN")


def _bare_cluster_class() -> Any:
    """Return redis-py's cluster client, without the shaping of replies that the client of each node would do."""
    import redis

    class BareCluster(redis.RedisCluster):
        def get_redis_connection(self, node: Any) -> Any:
            client: Any = super().get_redis_connection(node)
            shaped = client.response_callbacks
            # redis-py itself asks for what the cluster is and for where the keys of a command are.
            for name in [name for name in shaped if not name.startswith(("CLUSTER", "COMMAND"))]:
                del shaped[name]
            return client

    return BareCluster


__all__ = ["ClusterTransport"]
