"""ClusterTransport: a Redis or Valkey cluster.

    a key                      the master of its slot; for keys of several slots the server replies CROSSSLOT
    MULTI ... EXEC             the master of the first key; only as one execute_many
    FLUSHALL, CONFIG ...       every master; the reply is the first error, or else the first reply
    DBSIZE, KEYS               every master; the replies are added up or joined
    no key                     any master

rillet.client follows MOVED and ASK and pauses for TRYAGAIN and CLUSTERDOWN. A transaction is sent again as a whole if
its EXEC was refused. A broken connection raises StoreError, because the command may have been executed; a later call
goes to the replica that took over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rillet import commands
from rillet.client.connection import Connection
from rillet.client.redirection import not_executed
from rillet.client.servers import ClientOptions
from rillet.errors import CommandError
from rillet.protocol.reply_parser import parse_all
from rillet.runtime.registry import TABLE
from rillet.store.transports.server import ServerTransport
from rillet.store.transports.transport import TRANSACTION_COMMANDS, errors_among

EVERY_MASTER = frozenset(
    (b"FLUSHALL", b"FLUSHDB", b"CONFIG", b"SCRIPT", b"FUNCTION", b"SAVE", b"BGSAVE", b"BGREWRITEAOF")
)
_GATHERED = frozenset((b"DBSIZE", b"KEYS"))


class ClusterTransport(ServerTransport):
    """A cluster: redis+cluster://, rediss+cluster://."""

    def __init__(self, options: ClientOptions) -> None:
        commands.load()  # the command declarations contain the positions of the keys
        super().__init__(options)
        self.masters()  # raises StoreError if no node answers

    def masters(self) -> list[Connection]:
        """Return this thread's connection to each master."""
        return self._call(lambda: list(self.servers().masters()))

    # -- one command

    def execute(self, argv: list[bytes]) -> Any:
        """Send one command to the node of its key, or to every master."""
        name = argv[0].upper()
        if name in TRANSACTION_COMMANDS:
            raise CommandError(
                f"{name.decode()} belongs to one connection, and a cluster has many: "
                "execute_many accepts MULTI to EXEC for keys of one slot; use redis() for other transactions"
            )
        if name == b"SCAN":
            raise CommandError("SCAN reads one node, with a cursor of that node: use keys(), which reads every node")
        if name not in EVERY_MASTER and name not in _GATHERED:
            return self._follow([argv])[0]
        replies = [ask(argv) for ask in self.shards()]
        errors = errors_among(replies)
        if errors:
            return errors[0][1]
        if name == b"DBSIZE":
            return sum(replies)
        return [key for reply in replies for key in reply] if name == b"KEYS" else replies[0]

    def shards(self) -> list[Callable[[list[bytes]], Any]]:
        """Return for each master a function that runs a command there."""
        return [partial(self._ask, connection) for connection in self.masters()]

    def _ask(self, connection: Connection, argv: list[bytes]) -> Any:
        return self._call(lambda: connection.replies([argv]))[0]

    def _follow(self, argvs: Sequence[list[bytes]]) -> list[Any]:
        """Send commands to the node of the first key, and follow the redirections of that node."""
        key = next((key for key in map(self._key_of, argvs) if key is not None), None)
        if key is None:
            replies: list[Any] = self._call(lambda: self.masters()[0].replies(argvs))
            if not not_executed(replies[0]) or len(argvs[0]) < 2:
                return replies
            key = argvs[0][1]  # a shard channel (SPUBLISH), which has a slot although it is not a key
        return self._call(lambda: self.servers().replies(key, argvs))

    # -- several commands

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Send commands in one pipeline per node; send redirected commands again one by one."""
        names = [argv[0].upper() for argv in commands]
        if b"MULTI" in names:
            whole = names[0] == b"MULTI" and names[-1] == b"EXEC" and not {b"EXEC", b"DISCARD"}.intersection(names[:-1])
            return self._follow(commands) if whole else self._once(commands)
        replies: list[Any] = [None] * len(commands)
        keys = [self._key_of(argv) for argv in commands]
        keyed = [(place, key) for place, key in enumerate(keys) if key is not None]
        requests = [(key, commands[place]) for place, key in keyed]
        for (place, _), reply in zip(keyed, self._call(lambda: self.servers().each(requests)), strict=True):
            replies[place] = reply
        for place, key in enumerate(keys):
            if key is None:
                replies[place] = self.execute(commands[place])
        return replies

    def _once(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Send a transaction and the commands around it; never send them again, because they must not run twice."""
        key = next((key for key in map(self._key_of, commands) if key is not None), b"")
        return self._call(lambda: self.servers().connection(key).replies(commands))

    def append_packed(self, key: bytes, data: bytes, count: int) -> list[tuple[int, CommandError]]:
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
                replies[place] = self._follow([commands[place]])[0]
        return errors_among(replies)

    # -- the key of a command

    def _key_of(self, argv: list[bytes]) -> bytes | None:
        """Return a command's first key; None if it has no key or is unknown, so that any node may reply."""
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


__all__ = ["ClusterTransport"]
