"""Links: how a store reaches its engine. Each takes a command and returns the raw reply.

    LocalLink    the engine is in this process: a lock, a session for each thread, no socket
    SocketLink   another process owns the store: RESP over its Unix socket, a connection for each thread
    RedisLink    any server that redis-py reaches: Redis, Valkey, rillet; single node or cluster

A local or socket reply is RESP, parsed by the same parser; so a store behaves the same through
either, and exactly as a client of the server would see it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rillet.commands.session import Session
from rillet.engine import Engine
from rillet.errors import CommandError, StoreClosed, StoreError
from rillet.protocol.parser import pack_command
from rillet.protocol.replies import INCOMPLETE, ReplyParser, parse_all


class Link(Protocol):
    """What a store needs of the other side."""

    def execute(self, argv: list[bytes]) -> Any:
        """Run one command and return its reply; an error reply is returned, not raised."""

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Run commands in order, as a pipeline where there is a network, and return their replies."""

    def close(self) -> None:
        """Let go of the other side."""


class LocalLink:
    """The engine in this process. Every thread has a session of its own; the lock makes one command atomic."""

    def __init__(self, engine: Engine, lock: threading.RLock) -> None:
        self.engine = engine
        self.lock = lock
        self._closed = False
        self._thread = threading.local()
        self._sessions: list[Session] = []

    def session(self) -> Session:
        """Return this thread's session."""
        session: Session | None = getattr(self._thread, "session", None)
        if session is None:
            if self._closed:
                raise StoreClosed("the store is closed")
            with self.lock:
                session = self.engine.session()
                session.on_wake = _Wakener()
                self._sessions.append(session)
            self._thread.session = session
        return session

    def execute_raw(self, argv: list[bytes]) -> bytes:
        """Run one command and return the bytes of its reply, waiting where the command blocks."""
        session = self.session()
        with self.lock:
            if self._closed:
                raise StoreClosed("the store is closed")
            done = self.engine.execute(session, argv)
            if self.engine.log is not None:
                self.engine.log.flush()
            if done:
                return session.out.take()
        self._wait(session)
        with self.lock:
            return session.out.take()

    def execute(self, argv: list[bytes]) -> Any:
        """Run one command and return its parsed reply."""
        return parse_all(self.execute_raw(argv))[0]

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Run commands under one lock and one flush of the log; a command that would block is refused."""
        session = self.session()
        with self.lock:
            if self._closed:
                raise StoreClosed("the store is closed")
            for argv in commands:
                if not self.engine.execute(session, argv):
                    self.engine.unblock(session, CommandError("a blocking command cannot be part of a batch"))
            self.engine.before_reply()
            return parse_all(session.out.take())

    def _wait(self, session: Session) -> None:
        """Sleep until the session is served, its time is over, or the caller is interrupted."""
        wakener: _Wakener = session.on_wake
        blocked = session.blocked
        try:
            while blocked is not None and session.blocked is blocked:
                remaining = None
                if blocked.deadline:
                    remaining = (blocked.deadline - self.engine.clock.now_ms()) / 1000
                if remaining is not None and remaining <= 0:
                    with self.lock:
                        self.engine.expire_block(session)
                    return
                wakener.event.wait(remaining)
                wakener.event.clear()
                if self._closed:
                    raise StoreClosed("the store was closed while this call waited")
        except BaseException:
            with self.lock:
                self.engine.unblock(session, CommandError("interrupted"))
                session.out.take()
            raise

    def close(self) -> None:
        """End every session; threads that wait get StoreClosed."""
        with self.lock:
            self._closed = True
            sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.on_wake()
            with self.lock:
                self.engine.close_session(session)


class _Wakener:
    """What a waiting thread sleeps on; called by the engine when the session has its reply."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event = threading.Event()

    def __call__(self) -> None:
        self.event.set()


class SocketLink:
    """RESP over the Unix socket of the process that owns the store."""

    def __init__(self, path: str, on_lost: Callable[[], None] | None = None) -> None:
        self.path = path
        self._on_lost = on_lost
        self._thread = threading.local()
        self._connections: list[socket.socket] = []
        self._closed = False

    def _connection(self) -> tuple[socket.socket, ReplyParser]:
        found: tuple[socket.socket, ReplyParser] | None = getattr(self._thread, "connection", None)
        if found is None:
            if self._closed:
                raise StoreClosed("the store is closed")
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(self.path)
            except OSError:
                connection.close()
                raise
            found = (connection, ReplyParser())
            self._connections.append(connection)
            self._thread.connection = found
        return found

    def execute(self, argv: list[bytes]) -> Any:
        """Send one command and wait for its reply."""
        return self._exchange(pack_command(argv), 1)[0]

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Send all commands at once and wait for all replies."""
        return self._exchange(b"".join(map(pack_command, commands)), len(commands)) if commands else []

    def _exchange(self, data: bytes, count: int) -> list[Any]:
        connection, parser = self._connection()
        replies: list[Any] = []
        try:
            connection.sendall(data)
            while len(replies) < count:
                reply = parser.next()
                if reply is INCOMPLETE:
                    received = connection.recv(1 << 18)
                    if not received:
                        raise ConnectionResetError("the owner closed the connection")
                    parser.feed(received)
                else:
                    replies.append(reply)
        except BaseException as error:
            # Half an exchange cannot be continued: the next call starts a connection of its own.
            self._drop(connection)
            if isinstance(error, OSError):
                if self._on_lost is not None:
                    self._on_lost()
                raise StoreError(
                    f"the process that owns the store went away ({self.path}) before it replied; whether the command "
                    "was carried out is not known"
                ) from error
            raise
        return replies

    def _drop(self, connection: socket.socket) -> None:
        connection.close()
        self._thread.connection = None
        if connection in self._connections:
            self._connections.remove(connection)

    def close(self) -> None:
        """Close the connections of every thread."""
        self._closed = True
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()


class RedisLink:
    """A server behind redis-py: `redis://`, `rediss://`, `unix://`, and `redis+cluster://` for a cluster."""

    def __init__(self, url: str) -> None:
        try:
            import redis
        except ModuleNotFoundError as error:
            raise StoreError("connecting to a server needs redis-py: pip install 'rillet[redis]'") from error
        self._errors = redis.exceptions
        if url.startswith("redis+cluster://"):
            self.client: Any = redis.RedisCluster.from_url(url.replace("redis+cluster", "redis", 1))
            self._send = self.client.execute_command
            self.cluster = True
        else:
            self.client = redis.Redis.from_url(url, protocol=2)
            self.client.response_callbacks.clear()
            self._send = self.client.execute_command
            self.cluster = False

    def execute(self, argv: list[bytes]) -> Any:
        """Send one command through redis-py; its reply is not shaped by redis-py's callbacks."""
        try:
            return self._send(*argv)
        except self._errors.ResponseError as error:
            return _redis_error(error)

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Send the commands as one pipeline."""
        with self.client.pipeline(transaction=False) if not self.cluster else self.client.pipeline() as pipeline:
            for argv in commands:
                pipeline.execute_command(*argv)
            replies = pipeline.execute(raise_on_error=False)
        return [_redis_error(reply) if isinstance(reply, self._errors.ResponseError) else reply for reply in replies]

    def close(self) -> None:
        """Close redis-py's connections."""
        self.client.close()


def _redis_error(error: Exception) -> CommandError:
    """Return redis-py's error as ours, with the whole line: redis-py cuts the prefixes that it has classes for."""
    text = str(error)
    found = CommandError("")
    head = text.partition(" ")[0]
    found.args = (text if head.isupper() and head.isalpha() else f"ERR {text}",)
    return found


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
