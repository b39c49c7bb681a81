"""A genuine redis-py client whose connection ends in this process.

redis-py keeps its own parser, pipelines, pub/sub and retries: only the socket is replaced, by an object
with the same few methods. What is sent goes to the engine, replies wait in a buffer to be received.
"""

from __future__ import annotations

import threading
from typing import Any

import redis
from redis.connection import Connection, ConnectionPool

from rillet.errors import CommandError, StoreClosed
from rillet.protocol.parser import CommandParser
from rillet.store.links import Link, LocalLink, RedisLink, SocketLink

_REPLY_LIMIT = 1 << 62


class EngineSocket:
    """The socket methods that redis-py calls, over a session of the engine."""

    def __init__(self, link: LocalLink) -> None:
        self._link = link
        self._parser = CommandParser()
        self._arrived = threading.Event()
        self._timeout: float | None = None
        self._ready = bytearray()
        with link.lock:
            self._session: Any = link.engine.session()
            self._session.on_wake = self._arrived.set
        self._parser.authenticated = not link.engine.settings.requirepass

    def sendall(self, data: bytes) -> None:
        """Run the commands that became whole."""
        if self._session is None:
            raise BrokenPipeError("the connection is closed")
        self._parser.feed(bytes(data))
        with self._link.lock:
            self._drain()

    def _drain(self) -> None:
        """Run what is whole; the lock is held. Replies move to the buffer that recv empties."""
        session = self._session
        self._link.engine.drain(session, self._parser, _REPLY_LIMIT)
        self._link.engine.before_reply()
        self._ready += session.out.take()

    def recv(self, size: int) -> bytes:
        """Return bytes of replies, waiting for them as long as the timeout allows; b"" at the end of the connection."""
        self._await_bytes()
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data

    def recv_into(self, buffer: Any, size: int = 0) -> int:
        """Fill a buffer with bytes of replies and return how many."""
        data = self.recv(size or len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _await_bytes(self) -> None:
        engine = self._link.engine
        remaining = self._timeout
        while not self._ready:
            session = self._session
            if session is None or session.closing or self._link._closed:
                return
            with self._link.lock:
                if session.out.used:
                    self._drain()
                    continue
                blocked = session.blocked
                if blocked is None and remaining is None:
                    raise StoreClosed("a reply was waited for that no command asked for")
                wait = remaining
                if blocked is not None and blocked.deadline:
                    left = (blocked.deadline - engine.clock.now_ms()) / 1000
                    if left <= 0:
                        engine.expire_block(session)
                        self._drain()
                        continue
                    wait = left if wait is None else min(wait, left)
                self._arrived.clear()
            if not self._arrived.wait(wait) and wait == remaining:
                raise TimeoutError("timed out")

    def settimeout(self, timeout: float | None) -> None:
        """Set how long recv waits (seconds); None for ever."""
        self._timeout = timeout

    def gettimeout(self) -> float | None:
        """Return how long recv waits."""
        return self._timeout

    def setblocking(self, flag: bool) -> None:
        """As settimeout(None) and settimeout(0)."""
        self._timeout = None if flag else 0.0

    def shutdown(self, _how: int) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            with self._link.lock:
                self._link.engine.unblock(session, CommandError("connection closed"))
                self._link.engine.close_session(session)
            self._arrived.set()

    def close(self) -> None:
        """End the session."""
        self.shutdown(0)

    def fileno(self) -> int:
        """There is no file behind it."""
        return -1


class InProcessConnection(Connection):
    """redis-py's connection over an EngineSocket."""

    def __init__(self, *, rillet_link: LocalLink, **options: Any) -> None:
        self._link = rillet_link
        super().__init__(**options)

    def _connect(self) -> Any:
        if self._link._closed:
            raise ConnectionError("the store is closed")
        return EngineSocket(self._link)

    def repr_pieces(self) -> list[tuple[str, Any]]:
        """What redis-py shows of a connection."""
        return [("store", "in process"), ("db", self.db)]


def client_of(link: Link, **options: Any) -> redis.Redis:
    """Return a redis-py client that reaches the link's engine or server."""
    if isinstance(link, LocalLink):
        pool: Any = ConnectionPool(connection_class=InProcessConnection, rillet_link=link, **options)
        return redis.Redis(connection_pool=pool)
    if isinstance(link, SocketLink):
        return redis.Redis(unix_socket_path=link.path, **options)
    assert isinstance(link, RedisLink)
    client: redis.Redis = type(link.client)(**{**link.client.get_connection_kwargs(), **options})
    return client


__all__ = ["EngineSocket", "InProcessConnection", "client_of"]
