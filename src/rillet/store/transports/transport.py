"""Links: how a store reaches its engine. Each takes a command and returns the raw reply.

    LocalLink    the engine is in this process: a lock, a session for each thread, no socket
                 (rillet.store.transports.in_process)
    SocketLink   another process owns the store: RESP over its Unix socket, a connection for each thread
    RedisLink    any server that redis-py reaches: Redis, Valkey, rillet; ClusterLink
                 (rillet.store.transports.cluster): a cluster

A local or socket reply is RESP, parsed by the same parser; so a store behaves the same through
either, and exactly as a client of the server would see it. An error reply becomes the exception class of
its prefix (`error_of`), whichever way it came.

A connection that breaks in the middle of an exchange raises StoreError, because nobody knows whether the command
was carried out: sending it again could carry it out twice. Only a connection that could not be made at all
(NotSent) lets the store try elsewhere by itself.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from rillet import errors
from rillet.errors import CommandError, ProtocolError, StoreClosed, StoreError
from rillet.protocol.command_parser import pack_command
from rillet.protocol.reply_parser import INCOMPLETE, ReplyError, ReplyParser

_RECEIVE = 1 << 18
_PIECE = 1 << 16  # bytes of commands that redis-py sends before it takes a reply: what sockets hold in any case
OF_A_CONNECTION = frozenset((b"MULTI", b"EXEC", b"DISCARD", b"WATCH", b"UNWATCH"))

# The class of each prefix: WRONGTYPE -> WrongType. "ERR" is CommandError itself.
ERROR_CLASSES: dict[str, type[CommandError]] = {
    found.prefix: found
    for found in vars(errors).values()
    if isinstance(found, type) and issubclass(found, CommandError)
}


class NotSent(StoreError):
    """The other side could not be reached, and nothing was sent to it."""


class Transport(Protocol):
    """What a store needs of the other side."""

    def execute(self, argv: list[bytes]) -> Any:
        """Run one command and return its reply; an error reply is returned, not raised."""

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Run commands in order, as a pipeline where there is a network, and return their replies."""

    def close(self) -> None:
        """Let go of the other side."""


def error_of(line: str) -> CommandError:
    """Return an error line as the exception that its prefix stands for."""
    prefix = line.partition(" ")[0]
    found = ERROR_CLASSES.get(prefix)
    if found is None:
        return ReplyError(line)
    error = found.__new__(found)
    Exception.__init__(error, line)
    return error


def raised(reply: Any) -> Any:
    """Return a reply; an error is raised."""
    if isinstance(reply, CommandError):
        raise error_of(str(reply)) if type(reply) is ReplyError else reply
    return reply


class SocketTransport:
    """RESP over the Unix socket of the process that owns the store."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._thread = threading.local()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._guard = threading.Lock()
        self._closed = False
        self._abandoned = False

    def _connection(self) -> tuple[socket.socket, ReplyParser]:
        """Return this thread's connection, made where there is none."""
        found: tuple[socket.socket, ReplyParser] | None = getattr(self._thread, "connection", None)
        if found is not None and not self._closed and not self._abandoned:
            return found
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._abandoned:
            raise NotSent(f"the process that owned the store went away ({self.path})")
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(self.path)
        except OSError as error:
            connection.close()
            raise NotSent(f"the store's owner cannot be reached ({self.path}): {error.strerror}") from error
        with self._guard:
            for other, thread in list(self._connections.items()):
                if not thread.is_alive():
                    del self._connections[other]
                    other.close()
            self._connections[connection] = threading.current_thread()
        self._thread.connection = found = (connection, ReplyParser())
        return found

    def execute(self, argv: list[bytes]) -> Any:
        """Send one command and wait for its reply."""
        return self._exchange(pack_command(argv), 1)[0]

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Send all commands at once and wait for all replies."""
        return self._exchange(b"".join(map(pack_command, commands)), len(commands)) if commands else []

    def execute_packed(self, data: bytes, count: int) -> list[Any]:
        """Send commands that are packed and wait for their replies."""
        return self._exchange(data, count)

    def _exchange(self, data: bytes, count: int) -> list[Any]:
        connection, parser = self._connection()
        replies: list[Any] = []
        refused = False
        try:
            if len(data) > _RECEIVE:
                self._send_large(connection, parser, data)
            else:
                connection.sendall(data)
            while len(replies) < count:
                reply = parser.next()
                if reply is INCOMPLETE:
                    received = connection.recv(_RECEIVE)
                    if not received and refused:
                        # The owner could not log the batch, said so once, and hung up.
                        replies += replies[-1:] * (count - len(replies))
                        break
                    if not received:
                        raise ConnectionResetError("the owner closed the connection")
                    parser.feed(received)
                else:
                    replies.append(reply)
                    refused = type(reply) is ReplyError and reply.prefix == "MISCONF"
        except (OSError, ProtocolError) as error:
            self._drop(connection)
            if self._closed:
                raise StoreClosed("the store was closed while this call waited") from None
            raise StoreError(
                f"the process that owns the store went away ({self.path}) before it replied; whether the command "
                "was carried out is not known"
            ) from error
        except BaseException:
            # Half an exchange cannot be continued: the next call starts a connection of its own.
            self._drop(connection)
            raise
        if refused:
            self._drop(connection)
        return replies

    def _send_large(self, connection: socket.socket, parser: ReplyParser, data: bytes) -> None:
        """Send while replies are taken in: both sides would wait for ever once both directions are full."""
        view = memoryview(data)
        connection.setblocking(False)
        try:
            while view:
                try:
                    view = view[connection.send(view[:_RECEIVE]) :]
                    continue
                except BlockingIOError:
                    pass
                _wait_until_ready(connection)
                with contextlib.suppress(BlockingIOError):
                    received = connection.recv(_RECEIVE)
                    if not received:
                        raise ConnectionResetError("the owner closed the connection")
                    parser.feed(received)
        finally:
            with contextlib.suppress(OSError):
                connection.setblocking(True)

    def _drop(self, connection: socket.socket) -> None:
        self._thread.connection = None
        with self._guard:
            self._connections.pop(connection, None)
        connection.close()

    def abandon(self) -> None:
        """Give up this way: its owner is gone. Calls that still come here raise NotSent."""
        self._abandoned = True
        self._shut()

    def close(self) -> None:
        """Close the connections of every thread; those that wait get StoreClosed."""
        self._closed = True
        self._shut()

    def _shut(self) -> None:
        with self._guard:
            connections = list(self._connections)
            self._connections.clear()
        for connection in connections:
            # close() alone does not wake a thread that waits in recv().
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def forget_in_child(self) -> None:
        """After a fork: the connections belong to the parent; close this process's copies, quietly."""
        self._abandoned = True
        connections, self._connections = self._connections, {}
        for connection in connections:
            connection.close()
        self._guard = threading.Lock()


def _wait_until_ready(connection: socket.socket) -> None:
    """Wait until the socket takes more bytes or has some."""
    import select

    poll = select.poll()
    poll.register(connection, select.POLLIN | select.POLLOUT)
    poll.poll()


class RedisTransport:
    """A server behind redis-py: `redis://`, `rediss://`, `unix://`."""

    cluster = False

    def __init__(self, url: str) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ModuleNotFoundError as error:
            raise StoreError("connecting to a server needs redis-py: pip install 'rillet[redis]'") from error
        self.url = url
        self.where = url.rpartition("@")[2]
        self._errors = redis.exceptions
        self._closed = False
        try:
            # redis-py would send a command again after a broken connection: an XADD could be carried out twice.
            self.client: Any = self._client(redis, {"retry": Retry(NoBackoff(), 0), "protocol": 2})
        except ValueError as error:
            raise StoreError(f"{self.where!r} is not the address of a server: {error}") from None
        except (self._errors.RedisError, self._errors.RedisClusterException, OSError) as error:
            raise self._unreachable(error) from error

    def _client(self, redis: Any, once: dict[str, Any]) -> Any:
        client = redis.Redis.from_url(self.url, socket_timeout=None, **once)
        client.response_callbacks.clear()
        return client

    @property
    def closed(self) -> bool:
        """Whether the store let go of the server."""
        return self._closed

    def _unreachable(self, error: Exception) -> StoreError:
        return StoreError(f"the server at {self.where} did not answer: {error}")

    def execute(self, argv: list[bytes]) -> Any:
        """Send one command through redis-py; its reply is not shaped by redis-py's callbacks."""
        if self._closed:
            raise StoreClosed("the store is closed")
        try:
            return self.client.execute_command(*argv)
        except (self._errors.ConnectionError, self._errors.TimeoutError) as error:
            raise self.failed(error) from error
        except self._errors.ResponseError as error:
            return redis_error(error)

    def failed(self, error: Exception) -> StoreError:
        """Return a broken exchange as a StoreError; an error reply that redis-py takes for one is raised as itself."""
        if self._closed:
            return StoreClosed("the store was closed while this call waited")
        prefix = getattr(error, "status_code", None)
        # redis-py counts these replies among its connection errors.
        if prefix in ERROR_CLASSES:
            raise redis_error(error)
        return self._unreachable(error)

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Send the commands as a pipeline, many as several: a server may read no more until its replies are taken."""
        if self._closed:
            raise StoreClosed("the store is closed")
        return [reply for piece in _pieces(commands) for reply in self._pipelined(piece)]

    def _pipelined(self, commands: Sequence[list[bytes]]) -> list[Any]:
        try:
            with self.client.pipeline(transaction=False) as pipeline:
                for argv in commands:
                    pipeline.execute_command(*argv)
                replies = pipeline.execute(raise_on_error=False)
        except (self._errors.ConnectionError, self._errors.TimeoutError) as error:
            raise self.failed(error) from error
        return [redis_error(reply) if isinstance(reply, self._errors.ResponseError) else reply for reply in replies]

    def close(self) -> None:
        """Close redis-py's connections, those that wait too."""
        self._closed = True
        interrupt_all(self.client.connection_pool)
        self.client.close()


def _pieces(commands: Sequence[list[bytes]]) -> Iterator[Sequence[list[bytes]]]:
    """Yield commands in order, about _PIECE bytes of them at a time; all at once where one is about its connection."""
    begin = size = 0
    if not any(argv[0].upper() in OF_A_CONNECTION for argv in commands):
        for place, argv in enumerate(commands):
            more = sum(map(len, argv)) + 16 * len(argv)
            if place > begin and size + more > _PIECE:
                yield commands[begin:place]
                begin, size = place, 0
            size += more
    yield commands[begin:]


def interrupt_all(pool: Any) -> None:
    """Close a pool's connections, those that wait too."""
    for connection in list(getattr(pool, "_in_use_connections", ())):
        interrupt(connection)
    pool.disconnect()


def interrupt(connection: Any) -> None:
    """Wake the thread that waits on a redis-py connection; it closes the connection itself."""
    sock = getattr(connection, "_sock", None)
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def redis_error(error: Exception) -> CommandError:
    """Return redis-py's error as ours, with the whole line: redis-py cuts the prefixes that it has classes for."""
    text = str(error)
    cut = getattr(error, "status_code", None) or _CUT.get(type(error).__name__)
    if cut is None:
        head = text.partition(" ")[0]
        return error_of(text if head.isupper() and head.isalpha() else f"ERR {text}")
    return error_of(text if text.startswith(f"{cut} ") else f"{cut} {text}")


# Versions of redis-py before `status_code` say the prefix by the class only; all of them, where a cluster redirects.
_CUT = {
    "AuthenticationError": "NOAUTH", "ExecAbortError": "EXECABORT", "BusyLoadingError": "LOADING",
    "NoScriptError": "NOSCRIPT", "ReadOnlyError": "READONLY", "NoPermissionError": "NOPERM",
    "MovedError": "MOVED", "AskError": "ASK", "TryAgainError": "TRYAGAIN", "ClusterDownError": "CLUSTERDOWN",
    "ClusterCrossSlotError": "CROSSSLOT",
}  # fmt: skip


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Ask again, a little later each time, until the condition holds or the time is over."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    return True
