"""Which commands `execute` accepts: those with exactly one reply, which leave nothing behind on the connection.

    rejected by                 command                                    in its place
    every store                 SUBSCRIBE, UNSUBSCRIBE and their family    Store.subscribe()
                                MULTI, EXEC, DISCARD, WATCH, UNWATCH       Store.transaction()
                                MONITOR                                    redis-cli monitor, store.redis().monitor()
                                SYNC, PSYNC, REPLCONF                      (the protocol of replicas)
                                QUIT, RESET                                Store.close()
                                HELLO with a version                       store.redis(protocol=...)
                                CLIENT REPLY, CLIENT TRACKING              (drop replies, add messages among them)
    the asyncio API too         SELECT                                     the database in the url of `connect`
                                AUTH, READONLY, READWRITE, ASKING,         another store or client
                                CLIENT SETNAME, NO-TOUCH, ...

A connection that got another number of replies than commands would give each later call the reply of another one.
In the synchronous API a connection belongs to a thread, and so does its database (SELECT). All tasks of an event loop
share another connection or session, so a task that changed it would change the commands of the others.
"""

from __future__ import annotations

from rillet.errors import CommandError
from rillet.store.arguments.encoding import decode
from rillet.store.transports.transport import TRANSACTION_COMMANDS

_CHANNELS = "has more than one reply and cannot be executed: use Store.subscribe()"
_TRANSACTION = "belongs to one connection, which threads and tasks would share: use `with store.transaction()`"
_REPLICATION = "turns the connection into that of a replica and cannot be executed: use a separate client"
_END = "ends or resets the connection, which the store's later calls need, and cannot be executed: use Store.close()"
_REFUSED = {
    **dict.fromkeys((b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE"), _CHANNELS),
    **dict.fromkeys((b"UNSUBSCRIBE", b"PUNSUBSCRIBE", b"SUNSUBSCRIBE"), _CHANNELS),
    **dict.fromkeys(TRANSACTION_COMMANDS, _TRANSACTION),
    **dict.fromkeys((b"SYNC", b"PSYNC", b"REPLCONF"), _REPLICATION),
    **dict.fromkeys((b"QUIT", b"RESET"), _END),
    b"MONITOR": "has more than one reply and cannot be executed: use a separate client, such as redis-cli monitor",
}
_REFUSED_OF_CLIENT = {
    b"REPLY": "cannot be executed, because every call waits for a reply",
    b"TRACKING": "cannot be executed, because its messages would come between replies: use a separate client",
}
_HELLO = "HELLO with a version changes the form of all replies and cannot be executed: use store.redis(protocol=...)"
# What changes the connection that all tasks of an event loop share.
_SHARED = frozenset((b"SELECT", b"AUTH", b"READONLY", b"READWRITE", b"ASKING"))
_SHARED_OF_CLIENT = frozenset((b"SETNAME", b"SETINFO", b"NO-EVICT", b"NO-TOUCH", b"CACHING"))


def one_reply(argv: list[bytes]) -> list[bytes]:
    """Return the command; raise CommandError if `execute` does not accept it, ValueError if it is empty."""
    if not argv:
        raise ValueError("the command is empty: pass at least its name")
    word = argv[0].upper()
    reason = _REFUSED.get(word)
    if reason is not None:
        raise CommandError(f"{decode(word)} {reason}")
    if len(argv) > 1 and word in (b"CLIENT", b"HELLO"):
        if word == b"HELLO":
            raise CommandError(_HELLO)
        reason = _REFUSED_OF_CLIENT.get(argv[1].upper())
        if reason is not None:
            raise CommandError(f"CLIENT {decode(argv[1].upper())} {reason}")
    return argv


def stateless(argv: list[bytes]) -> list[bytes]:
    """Return the command; raise CommandError as `one_reply`, and if it changes the connection that tasks share."""
    one_reply(argv)
    word = argv[0].upper()
    if word == b"SELECT":
        raise CommandError(
            "SELECT would change the database of all tasks: use rillet.connect('redis://.../1') for a server, "
            "store.redis_async(db=1) for any store"
        )
    if changes_connection(argv):
        name = decode(b" ".join(argv[:2]).upper() if word == b"CLIENT" else word)
        raise CommandError(f"{name} would change the connection that all tasks share: use a client of "
                           "store.redis_async(), or a separate store")  # fmt: skip
    return argv


def changes_connection(argv: list[bytes]) -> bool:
    """Return whether a command changes the state of its connection or session, which tasks would share."""
    word = argv[0].upper()
    return word in _SHARED or (word == b"CLIENT" and len(argv) > 1 and argv[1].upper() in _SHARED_OF_CLIENT)
