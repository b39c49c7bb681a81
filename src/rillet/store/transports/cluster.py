"""ClusterTransport: a Redis or Valkey cluster. The rules of routing are in cluster_routing.py.

rillet.client follows MOVED and ASK and pauses for TRYAGAIN and CLUSTERDOWN. A transaction is sent again as a whole if
its EXEC was refused. Before commands for several nodes are sent, there is a connection to each of them: if a node is
away, nothing was sent (NotSent), and the store sends all of them again. A connection that breaks later raises
OutcomeUnknown; a later call goes to the replica that took over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rillet.client.connection import Connection
from rillet.client.redirection import not_executed
from rillet.client.servers import ClientOptions
from rillet.protocol.reply_parser import parse_all
from rillet.store.transports.async_cluster import AsyncClusterTransport
from rillet.store.transports.cluster_routing import (
    first_key,
    for_every_master,
    joined,
    key_of,
    unless_first,
    whole_transaction,
)
from rillet.store.transports.connected import ServerTransport


class ClusterTransport(ServerTransport):
    """A cluster: redis+cluster://, rediss+cluster://."""

    clustered = True

    def __init__(self, options: ClientOptions, timeout: float | None = None) -> None:
        super().__init__(options, timeout)
        self.masters()  # raises StoreError if no node answers
        self.note_reached()

    def masters(self) -> list[Connection]:
        """Return this thread's connection to each master."""
        return self._call(lambda: list(self.servers().masters()))

    def _async_transport(self) -> AsyncClusterTransport:
        return AsyncClusterTransport(self.options, self.undelivered, self.failed, self.not_sent, self.timeout,
                                     self.as_read)  # fmt: skip

    # -- one command

    def execute(self, argv: list[bytes]) -> Any:
        """Send one command to the node of its key, or to every master."""
        if not for_every_master(argv):
            return self._follow([argv])[0]
        replies: list[Any] = []
        for ask in self.shards():
            with unless_first(bool(replies)):
                replies.append(ask(argv))
        return joined(argv, replies)

    def shards(self) -> list[Callable[[list[bytes]], Any]]:
        """Return for each master a function that runs a command there."""
        return [partial(self._ask, connection) for connection in self.masters()]

    def _ask(self, connection: Connection, argv: list[bytes]) -> Any:
        return self._call(lambda: connection.replies([argv]))[0]

    def _follow(self, argvs: Sequence[list[bytes]]) -> list[Any]:
        """Send commands to the node of the first key, and follow the redirections of that node."""
        key = first_key(argvs)
        if key is None:
            replies: list[Any] = self._call(lambda: self.masters()[0].replies(argvs))
            if not not_executed(replies[0]) or len(argvs[0]) < 2:
                return replies
            key = argvs[0][1]  # a shard channel (SPUBLISH), which has a slot although it is not a key
        return self._call(lambda: self.servers().replies(key, argvs))

    # -- several commands

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Send commands in one pipeline per node; send redirected commands again one by one."""
        whole = whole_transaction(commands)
        if whole is not None:
            return self._follow(commands) if whole else self._once(commands)
        replies: list[Any] = [None] * len(commands)
        keys = [key_of(argv) for argv in commands]
        keyed = [(place, key) for place, key in enumerate(keys) if key is not None]
        requests = [(key, commands[place]) for place, key in keyed]
        for (place, _), reply in zip(keyed, self._call(lambda: self.servers().each(requests)), strict=True):
            replies[place] = reply
        for place, key in enumerate(keys):
            if key is None:
                with unless_first(bool(keyed) or place > 0):
                    replies[place] = self.execute(commands[place])
        return replies

    def _once(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Send a transaction and the commands around it; never send them again, because they must not run twice."""
        key = first_key(commands) or b""
        return self._call(lambda: self.servers().connection(key).replies(commands))

    def _packed(self, key: bytes, data: bytes, count: int) -> list[Any]:
        """Send commands of one key in RESP encoding; send redirected commands again one by one."""

        def exchange() -> list[Any]:
            connection = self.servers().connection(key)
            connection.send_large(data)
            return [connection.reply() for _ in range(count)]

        replies = self._call(exchange)
        moved = [place for place, reply in enumerate(replies) if not_executed(reply)]
        if moved:
            self.servers().redirected(key, str(replies[moved[0]]))
            commands = parse_all(data)
            for place in moved:
                with unless_first(len(moved) < count or place > moved[0]):
                    replies[place] = self._follow([commands[place]])[0]
        return replies
