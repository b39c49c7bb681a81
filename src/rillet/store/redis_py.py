"""A genuine redis-py client whose connection ends in this process.

redis-py keeps its own parser, pipelines, transactions and pool: only the socket is replaced, by an object
with the same few methods. What is sent goes to the engine, replies wait in a buffer to be received.

    redis.Redis -> pool -> InProcessConnection -> EngineSocket.sendall -> Engine.drain
                                                  EngineSocket.recv    <- replies, or a wait for them

A connection has a session of its own, as over a network, so a pool of them keeps MULTI and WATCH apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis
from redis.connection import Connection, ConnectionPool, UnixDomainSocketConnection, parse_url

from rillet.errors import CommandError, Misconf
from rillet.protocol.command_parser import CommandParser
from rillet.store.transports.cluster import ClusterTransport
from rillet.store.transports.in_process import InProcessTransport, Wakener
from rillet.store.transports.transport import RedisTransport, SocketTransport, Transport

if TYPE_CHECKING:
    from rillet.store.store import Store

_REPLY_LIMIT = 1 << 62


class EngineSocket:
    """The socket methods that redis-py calls, over a session of the engine."""

    def __init__(self, link: InProcessTransport) -> None:
        self._link = link
        self._parser = CommandParser()
        # Set by the engine when the session has a reply or hears a message.
        self._wakener = Wakener(link.engine)
        self._arrived = self._wakener.event
        self._timeout: float | None = None
        self._ready = bytearray()
        with link.lock:
            self._session: Any = link.join(self._wakener)
        self._parser.authenticated = not link.engine.settings.requirepass

    def sendall(self, data: bytes) -> None:
        """Run the commands that became whole."""
        with self._link.lock:
            if self._session is None or self._link.closed:
                raise BrokenPipeError("the connection is closed")
            self._parser.feed(bytes(data))
            ran = self._drain()
        self._take(ran)

    def _drain(self) -> tuple[bytes, Any, int]:
        """Run what is whole; the lock is held. Return the replies, the log, and the position that they wait for."""
        session = self._session
        engine = self._link.engine
        log = engine.log
        # What woke the session may have been written, and refused, by whoever served it.
        since, self._wakener.since = self._wakener.since, None
        began = 0 if log is None else log.position if since is None else since
        engine.drain(session, self._parser, _REPLY_LIMIT)
        return session.out.take(), log, 0 if log is None else log.write(began)

    def _take(self, ran: tuple[bytes, Any, int]) -> None:
        """Move replies to the buffer that recv empties, once the log is as safe as it has to be; without the lock."""
        replies, log, position = ran
        try:
            if position:
                log.wait(position)
            self._ready += replies
        except Misconf as error:
            # Some of these replies acknowledge what the log did not take: say so and hang up, as the server does.
            self._ready += b"-%b\r\n" % str(error).encode()
            with self._link.lock:
                log.write()  # it sees to it that writes are refused from now on
                if self._session is not None:
                    self._link.engine.unblock(self._session, error)
                    self._session.out.take()
                    self._session.closing = True

    def recv(self, size: int) -> bytes:
        """Return bytes of replies, waiting for them as long as the timeout allows; b"" at the end of the connection."""
        self._await_bytes()
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data

    def readable(self, timeout: float | None) -> bool:
        """Whether bytes of replies come within `timeout` seconds; ConnectionError at the end of the connection."""
        kept, self._timeout = self._timeout, timeout
        try:
            self._await_bytes()
        except (BlockingIOError, TimeoutError):
            return False
        finally:
            self._timeout = kept
        if not self._ready:
            raise redis.ConnectionError("the connection is closed")
        return True

    def recv_into(self, buffer: Any, size: int = 0) -> int:
        """Fill a buffer with bytes of replies and return how many."""
        data = self.recv(size or len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _await_bytes(self) -> None:
        """Return once there are bytes or the connection has ended; TimeoutError, BlockingIOError as of a socket."""
        clock = self._link.engine.clock
        until = None if self._timeout is None else clock.now_ms() + round(self._timeout * 1000)
        while not self._ready:
            with self._link.lock:
                ran = self._take_reply()
                ends = [end for end in (until, self._blocked_until()) if end is not None]
                left = (min(ends) - clock.now_ms()) / 1000 if ends else None
                self._arrived.clear()
            if ran is None:
                return
            if ran[0]:
                self._take(ran)
                return
            if self._timeout == 0:
                raise BlockingIOError(11, "there is no reply")
            if until is not None and clock.now_ms() >= until:
                raise TimeoutError("timed out")
            self._arrived.wait(left)

    def _take_reply(self) -> tuple[bytes, Any, int] | None:
        """Return what a waiting command got meanwhile; None at the end of the connection. The lock is held."""
        session = self._session
        if session is None or session.closing or self._link.closed:
            return None
        deadline = self._blocked_until()
        if deadline is not None and deadline <= self._link.engine.clock.now_ms():
            self._link.engine.time_has_come(session)
        return self._drain() if session.out.used else (b"", None, 0)

    def _blocked_until(self) -> int | None:
        blocked = None if self._session is None else self._session.blocked
        return blocked.wakes_at or None if blocked is not None else None

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
        """End the session; a thread that waits for a reply sees the end of the connection."""
        with self._link.lock:
            session, self._session = self._session, None
            if session is not None:
                self._link.engine.unblock(session, CommandError("connection closed"))
                self._link.leave(session)
        self._arrived.set()

    def close(self) -> None:
        """End the session."""
        self.shutdown(0)

    def fileno(self) -> int:
        """There is no file behind it."""
        return -1


class InProcessConnection(Connection):
    """redis-py's connection over an EngineSocket."""

    def __init__(self, *, rillet_link: InProcessTransport, **options: Any) -> None:
        self._link = rillet_link
        super().__init__(**options)  # type: ignore[no-untyped-call]

    def _connect(self) -> Any:
        if self._link.closed:
            raise redis.ConnectionError("the store is closed")
        made = EngineSocket(self._link)
        made.settimeout(self.socket_timeout)
        return made

    def can_read(self, timeout: float | None = 0) -> bool:
        """Whether a reply has come. redis-py would poll a file descriptor, where hiredis parses."""
        if not self._sock:
            self.connect()  # type: ignore[no-untyped-call]
        reader = getattr(self._parser, "_reader", None)
        if reader is None:
            return bool(super().can_read(timeout))  # type: ignore[arg-type]
        return bool(reader.has_data()) or bool(self._sock.readable(timeout))  # type: ignore[attr-defined]

    def repr_pieces(self) -> list[tuple[str, Any]]:
        """What redis-py shows of a connection."""
        return [("store", "in process"), ("db", self.db)]


def client_of(store: Store, **options: Any) -> redis.Redis:
    """Return a redis-py client that reaches the store's engine or server; options of redis-py's connections."""
    link: Transport = store.link
    client: redis.Redis
    if isinstance(link, ClusterTransport):
        client = link.new_cluster_client(**options)
    else:
        if isinstance(link, InProcessTransport):
            where: dict[str, Any] = {"connection_class": InProcessConnection, "rillet_link": link}
        elif isinstance(link, SocketTransport):
            where = {"connection_class": UnixDomainSocketConnection, "path": link.path}
        else:
            assert isinstance(link, RedisTransport)
            where = dict(parse_url(link.url))  # type: ignore[no-untyped-call]
        client = redis.Redis.from_pool(ConnectionPool(**{**where, **options}))
    # The store is open for as long as its client is in use.
    client.rillet_store = store  # type: ignore[attr-defined]
    return client


__all__ = ["EngineSocket", "InProcessConnection", "client_of"]
