"""The nodes of a cluster that receive a command, and the combination of several nodes' replies.

    a key                      the master of its slot; for keys of several slots the server replies CROSSSLOT
    MULTI ... EXEC             the master of the first key; only as one execute_many
    FLUSHALL, CONFIG ...       every master; the reply is the first error, or else the first reply
    DBSIZE, KEYS               every master; the replies are added up or joined
    no key                     any master

These functions do no input or output; the transports of servers and clusters use them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rillet.client.redirection import not_executed
from rillet.errors import CommandError, NotSent, OutcomeUnknown
from rillet.runtime.registry import TABLE
from rillet.store.transports.transport import TRANSACTION_COMMANDS, errors_among

EVERY_MASTER = frozenset(
    (b"FLUSHALL", b"FLUSHDB", b"CONFIG", b"SCRIPT", b"FUNCTION", b"SAVE", b"BGSAVE", b"BGREWRITEAOF")
)
_GATHERED = frozenset((b"DBSIZE", b"KEYS"))


def for_every_master(argv: list[bytes]) -> bool:
    """Return whether a command goes to every master; raise CommandError if a cluster cannot execute it alone."""
    name = argv[0].upper()
    if name in TRANSACTION_COMMANDS:
        raise CommandError(
            f"{name.decode()} belongs to one connection, and a cluster has many: "
            "execute_many accepts MULTI to EXEC for keys of one slot; use redis() for other transactions"
        )
    if name == b"SCAN":
        raise CommandError("SCAN reads one node, with a cursor of that node: use keys(), which reads every node")
    return name in EVERY_MASTER or name in _GATHERED


def joined(argv: list[bytes], replies: Sequence[Any]) -> Any:
    """Return one reply for the replies of every master."""
    errors = errors_among(replies)
    if errors:
        return errors[0][1]
    name = argv[0].upper()
    if name == b"DBSIZE":
        return sum(replies)
    return [key for reply in replies for key in reply] if name == b"KEYS" else replies[0]


def whole_transaction(argvs: Sequence[list[bytes]]) -> bool | None:
    """Return whether the commands are one transaction, from MULTI to EXEC; None if there is no MULTI."""
    names = [argv[0].upper() for argv in argvs]
    if b"MULTI" not in names:
        return None
    return names[0] == b"MULTI" and names[-1] == b"EXEC" and not {b"EXEC", b"DISCARD"}.intersection(names[:-1])


def unless_redirected(replies: list[Any]) -> list[Any]:
    """Return the replies to a transaction whose keys are watched; with None for EXEC if the node did not execute it.

    The node of a slot that has moved does not know the watched keys, and a server that loads its data has forgotten
    them, so the transaction must not be sent again.
    """
    return [*replies[:-1], None] if any(map(not_executed, replies)) else replies


@contextmanager
def unless_first(earlier: bool) -> Iterator[None]:
    """Raise OutcomeUnknown in place of NotSent if `earlier` commands of the same call were sent."""
    try:
        yield
    except NotSent as error:
        if earlier:
            raise OutcomeUnknown(
                f"some commands of the call were executed, and others were not sent: {error}"
            ) from error
        raise


def first_key(argvs: Sequence[list[bytes]]) -> bytes | None:
    """Return the first key among the commands; None if no command has one."""
    return next((key for key in map(key_of, argvs) if key is not None), None)


def key_of(argv: list[bytes]) -> bytes | None:
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
