"""Transactions with optimistic locking: WATCH, read, MULTI ... EXEC.

Two forms, for the keys of one slot:

    transact(servers, key, watch=[record], prepare=f)    small transactions: f reads and returns the commands;
                                                         repeated while another client changes a watched key
    Transaction(servers, key)                            large ones: thousands of packed commands, sent while the
                                                         caller prepares more

A `Transaction` sends its opening without waiting for the replies, and reads the replies of one chunk after it has sent
the next, so the server never waits for the client:

    begin       WATCH keys, reads, MULTI      one send
    opening     the replies to the reads      the caller decides whether to continue
    send        XADD XADD XADD ...            any number of chunks
    execute     EXEC                          None: a watched key changed; else the error replies, normally none
    discard     DISCARD

A server executes the other commands of a transaction even if one of them fails. So the caller must read the type of a
key before it writes (Redis: multi.c, execCommand).

A lost connection, or a redirection (`NotQueued`), ends the open transaction: call `forget` and begin again. If the
connection is lost after EXEC was sent, the transaction may have been executed; the caller must detect this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError, refused
from rillet.client.protocol import pack, pack_all
from rillet.client.redirection import Patience, not_executed
from rillet.client.reply_stream import ReplyStream
from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError

Commands = Sequence[Sequence[bytes]]
Result = TypeVar("Result")


class NotQueued(ConnectorError):
    """The server redirected the transaction or cannot execute it now; nothing was executed. See `line`."""


def transact(
    servers: Servers, key: bytes, watch: Sequence[bytes], prepare: Callable[[], Commands], tries: int
) -> list[Any] | None:
    """Execute the commands that `prepare` returns as one transaction; return the replies, ReplyErrors among them.

    `prepare` runs after WATCH and may read with `servers`. If it returns no command, nothing is executed and the result
    is empty; None if another client changed a watched key `tries` times. A transaction that the server rejects as a
    whole raises ConnectorError.
    """
    for _ in range(tries):
        servers.call(key, b"WATCH", *watch)
        commands = prepare()
        if not commands:
            servers.call(key, b"UNWATCH")
            return []
        result = multi_exec(servers, key, commands)
        if result is not None:
            return result
    return None


def multi_exec(servers: Servers, key: bytes, commands: Commands) -> list[Any] | None:
    """Execute commands on the keys of one slot as a transaction; return the replies, None if a watched key changed."""
    *_, result = servers.calls(key, [(b"MULTI",), *commands, (b"EXEC",)])
    return None if result is None else list(result)


def retry(servers: Servers, action: Callable[[], Result], key: bytes = b"") -> Result:
    """Run an action; repeat it after a lost connection, or a redirection of the key's transaction, up to `timeout`."""
    patience = Patience(servers.options.timeout)
    while True:
        try:
            return action()
        except ConnectionLost:
            if not patience.again():
                raise
        except NotQueued as error:
            if not servers.redirected(key, error.line) or not patience.again():
                raise


class Transaction:
    """Runs transactions on the keys of one slot, one after the other, on the connection to the slot's current node."""

    def __init__(self, servers: Servers, key: bytes) -> None:
        self.servers = servers
        self.key = key
        self.connection: Connection | None = None  # the connection of the open transaction
        self._replies: ReplyStream
        self._unanswered: deque[int] = deque()  # number of commands in each chunk whose replies have not been read
        self._reads: Commands | None = None  # the reads that `begin` sent, until their replies are read

    @property
    def open(self) -> bool:
        """True while a transaction is open."""
        return self.connection is not None

    def begin(self, watch: Sequence[bytes], reads: Commands = ()) -> None:
        """Send WATCH, the reads, and MULTI, without waiting for the replies."""
        self.connection = self.servers.connection(self.key)
        self._replies = ReplyStream(self.connection)
        self._unanswered.clear()
        self._reads = reads
        self.connection.send(pack_all([(b"WATCH", *watch), *reads, (b"MULTI",)]))

    def opening(self) -> list[Any]:
        """Wait for the replies to the reads and return them, with ReplyErrors among them; call once."""
        reads, self._reads = self._reads, None
        assert reads is not None
        self._accepted(b"WATCH")
        replies = [self._replies.reply() for _ in reads]
        for words, reply in zip(reads, replies, strict=True):
            if not_executed(reply):
                raise self._error(words[0], reply)
        self._accepted(b"MULTI")
        return replies

    def send(self, data: bytes | bytearray, commands: int) -> None:
        """Send commands in RESP encoding for the transaction, then read the replies of an earlier chunk."""
        assert self.connection is not None
        self.connection.send(data)
        self._unanswered.append(commands)
        while self._reads is None and len(self._unanswered) > 2:
            self._queued()

    def settle(self) -> None:
        """Read the replies to all sent commands, which confirm that the server has queued the commands."""
        while self._unanswered:
            self._queued()

    def _queued(self) -> None:
        if self._replies.skip(self._unanswered.popleft()):
            raise self._error(b"", self._replies.reply())

    def _accepted(self, name: bytes) -> Any:
        reply = self._replies.reply()
        if isinstance(reply, ReplyError):
            raise self._error(name, reply)
        return reply

    def _error(self, name: bytes, reply: ReplyError) -> ConnectorError:
        assert self.connection is not None
        error = refused(self.connection.address, name.decode() or "a command of a transaction", str(reply))
        return NotQueued(str(error), error.line) if not_executed(reply) else error

    def discard(self) -> None:
        """Send DISCARD, which drops the queued commands."""
        assert self.connection is not None
        self.settle()
        self.connection.send(pack(b"DISCARD"))
        self._accepted(b"DISCARD")
        self.connection = None

    def execute(self, appends: int, others: int = 0) -> list[ReplyError] | None:
        """Execute the queued commands; return the error replies, or None if a watched key changed.

        appends: the number of XADDs, whose replies have two lines each. others: the number of later commands, whose
        replies have one line each.
        """
        return self.execute_lines(
            2 * appends + others, lambda lines: min(lines // 2, appends) + max(lines - 2 * appends, 0)
        )

    def execute_lines(self, lines: int, before: Callable[[int], int]) -> list[ReplyError] | None:
        """Do `execute` for commands whose replies have so many lines together.

        before(n) returns the number of replies in the first n lines; it is called for the lines before the first error.
        """
        assert self.connection is not None
        self.settle()
        self.connection.send(pack(b"EXEC"))
        if not self._replies.starts_with(b"*"):
            raise self._error(b"EXEC", self._replies.reply())
        count = self._replies.line()
        executed = count != b"*-1"
        errors: list[ReplyError] = []
        if executed and (left := self._replies.skip(lines)):
            replies = [self._replies.reply() for _ in range(int(count[1:]) - before(lines - left))]
            errors = [reply for reply in replies if isinstance(reply, ReplyError)]
        self.connection = None
        return errors if executed else None

    def forget(self) -> None:
        """Close the connection of the open transaction; the server discards the queued commands."""
        if self.connection is not None:
            self.servers.forget(self.connection)
            self.connection = None
