"""Transports: how a store reaches its engine. Each takes a command and returns its reply.

    InProcessTransport   the engine in this process: a lock, a session for each thread, no socket (in_process.py)
    AttachedTransport    the Unix socket of the process that owns the store (server.py)
    ServerTransport      any server: Redis, Valkey, rillet (server.py)
    ClusterTransport     a cluster of such servers (cluster.py)

Every transport uses the same reply parser, so a store behaves the same through each of them. An error reply becomes the
exception class of its prefix (`error_of`).

A connection that breaks during an exchange raises OutcomeUnknown: the command may have been executed. The store sends
it again only if that does no harm (`repeatable`). If no connection could be made (NotSent), the store tries another
transport, or the same server again (rillet.store.retries).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from rillet import errors
from rillet.errors import ClusterDown, CommandError, ExecAbort, Loading, TryAgain
from rillet.protocol.reply_parser import ReplyError
from rillet.real_time import monotonic
from rillet.runtime.registry import TABLE
from rillet.store.arguments.encoding import parse_id
from rillet.types.stream.id import StreamID

# The commands from which `store.transaction()` builds a transaction; they affect only the connection that sends them.
TRANSACTION_COMMANDS = frozenset((b"MULTI", b"EXEC", b"DISCARD", b"WATCH", b"UNWATCH"))

# Maps the first word of an error reply to its exception class: WRONGTYPE -> WrongType, ERR -> CommandError.
ERROR_CLASSES: dict[str, type[CommandError]] = {
    error.prefix: error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, CommandError)
    and (error is CommandError or error.prefix != CommandError.prefix)
}


# The server rejects every command for now: it loads its data, or no node serves the slot, or the slot is being moved.
NOT_READY = (Loading, ClusterDown, TryAgain)
_NOT_READY = frozenset(error.prefix for error in NOT_READY)


class Transport(Protocol):
    """The connection from a store to its engine: runs commands and returns their replies.

    clustered: whether several servers have the keys, each those of its slots.
    """

    clustered: bool

    def execute(self, argv: list[bytes]) -> Any:
        """Run one command and return its reply; an error reply is returned, not raised."""

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Run commands in order, pipelined over a network, and return their replies."""

    def append_packed(self, key: bytes, data: bytes, count: int) -> list[tuple[int, CommandError]]:
        """Run RESP-encoded commands of one key that do not block; return each error reply with its position."""

    def add_packed(self, key: bytes, data: bytes, count: int) -> list[StreamID | None]:
        """Run RESP-encoded XADDs of one key; return the IDs, None for null; raise the first error reply."""

    def page_source(self) -> Any:
        """Return a context manager that yields the servers from which client.pages.RangeReader reads."""

    def exclusive(self, key: bytes) -> Any:
        """Return a context manager that yields a function: list of commands -> replies, on a separate connection.

        In a cluster, the commands go to the node of the key.
        """

    def close(self) -> None:
        """Close the connections to the engine, or its sessions."""


class AsyncTransport(Protocol):
    """The connections of one event loop to a server or cluster."""

    closed: bool
    reached: bool  # whether a server has accepted a connection

    def execute(self, argv: list[bytes]) -> Awaitable[Any]:
        """Run one command and return its reply; an error reply is returned, not raised."""

    def execute_many(self, argvs: Sequence[list[bytes]]) -> Awaitable[list[Any]]:
        """Run commands in order, pipelined, and return their replies."""

    def exclusive(self, key: bytes) -> AbstractAsyncContextManager[Callable[..., Awaitable[list[Any]]]]:
        """Return a context manager that yields a function: list of commands -> replies, on a separate connection."""

    def close(self) -> None:
        """Close the connections: in the thread of the event loop, or after the loop was closed."""


def only_reads(argv: list[bytes]) -> bool:
    """Return whether a command has the flag `readonly` in the command table."""
    entry = TABLE.find(argv[0])
    return entry is not None and "readonly" in entry.flags


def repeatable(argv: list[bytes]) -> bool:
    """Return whether a command may be executed twice: it only reads, or its second execution changes nothing.

    That is XACK; and WATCH, which has no effect after its connection was lost.
    """
    return only_reads(argv) or acknowledges(argv) or argv[0] == b"WATCH"


def acknowledges(argv: list[bytes]) -> bool:
    """Return whether the command is XACK, the only repeatable one that changes data."""
    return argv[0].upper() == b"XACK"


def error_of(line: str) -> CommandError:
    """Return the exception for an error reply; the first word of the reply determines its class."""
    prefix = line.partition(" ")[0]
    kind = ERROR_CLASSES.get(prefix)
    if kind is None:
        return ReplyError(line)
    error = kind.__new__(kind)
    Exception.__init__(error, line)
    return error


def raised(reply: Any) -> Any:
    """Return a reply, or raise it if it is an exception."""
    if isinstance(reply, CommandError):
        raise _as_error(reply)
    return reply


def _as_error(reply: CommandError) -> CommandError:
    return error_of(str(reply)) if type(reply) is ReplyError else reply


class NotReady(CommandError):
    """A server executed none of several commands, because it was not ready; `reason` is its first error."""

    def __init__(self, reason: CommandError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def check_ready(replies: Sequence[Any], whole: bool = False) -> None:
    """Raise NotReady if a server executed none of several commands, because it was not ready.

    whole: they are one transaction, or its WATCH, so that none was executed if one was rejected.
    """
    failed = [reply for reply in replies if isinstance(reply, CommandError)]
    reasons = [reply for reply in failed if reply.prefix in _NOT_READY]
    if reasons and (whole or len(reasons) == len(replies) or failed[-1].prefix == ExecAbort.prefix):
        raise NotReady(_as_error(reasons[0]))


def all_raised(replies: list[Any]) -> list[Any]:
    """Return replies, or raise the first error; NotReady if the server executed none because it was not ready."""
    for error in replies:
        if isinstance(error, CommandError):
            check_ready(replies)
            raised(error)
    return replies


def ids_among(replies: list[Any]) -> list[StreamID | None]:
    """Return the IDs in replies to XADD, None for null; raise the first error, as `all_raised`."""
    return [None if reply is None else parse_id(reply) for reply in all_raised(replies)]


def all_ready(replies: list[Any]) -> list[Any]:
    """Return replies, with their errors; NotReady if the server executed none because it was not ready."""
    check_ready(replies)
    return replies


def errors_among(replies: Sequence[Any]) -> list[tuple[int, CommandError]]:
    """Return the error replies with their positions in the list."""
    return [(place, reply) for place, reply in enumerate(replies) if isinstance(reply, CommandError)]


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Return whether a condition becomes true within `seconds` of real time; 0 checks the condition once.

    The condition is checked in growing intervals, and at the end.
    """
    deadline = monotonic() + seconds
    pause = 0.005
    while not condition():
        left = deadline - monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, 0.1)
    return True
