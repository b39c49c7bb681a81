"""A redis-py client whose connections lead to the engine in this process, without a socket.

redis-py keeps its own parser, pipelines, transactions and pool. Only the socket is replaced, by an object with the same
few methods: sent bytes go to the engine, and replies wait in a buffer until they are received.

    redis.Redis -> pool -> InProcessConnection -> EngineSocket.sendall -> Engine.drain
                                                  EngineSocket.recv    <- replies, or waits for them

Each connection has its own session, as over a network, so the connections of a pool keep MULTI and WATCH apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis
from redis.connection import Connection, ConnectionPool, UnixDomainSocketConnection, parse_url

from rillet.errors import CommandError, Misconf
from rillet.protocol.command_parser import CommandParser
from rillet.store.transports.cluster import ClusterTransport
from rillet.store.transports.in_process import InProcessTransport, Wakener
from rillet.store.transports.server import AttachedTransport, ServerTransport

if TYPE_CHECKING:
    from rillet.store.store import Store

_REPLY_LIMIT = 1 << 62


class EngineSocket:
    """The socket methods that redis-py calls, over a session of the engine."""

    def __init__(self, transport: InProcessTransport) -> None:
        self._transport = transport
        self._parser = CommandParser()
        # The engine sets this event when the session has a reply or a message.
        self._wakener = Wakener(transport.engine)
        self._arrived = self._wakener.event
        self._timeout: float | None = None
        self._ready = bytearray()
        with transport.lock:
            self._session: Any = transport.open_session(self._wakener)
        self._parser.authenticated = not transport.engine.settings.requirepass

    def sendall(self, data: bytes) -> None:
        """Run the commands that are complete after these bytes."""
        with self._transport.lock:
            if self._session is None or self._transport.closed:
                raise BrokenPipeError("the connection is closed")
            self._parser.feed(bytes(data))
            ran = self._drain()
        self._take(ran)

    def _drain(self) -> tuple[bytes, Any, int]:
        """Run complete commands; return the replies, the log, and the log offset to sync before the replies are sent.

        The caller must hold the lock.
        """
        session = self._session
        engine = self._transport.engine
        log = engine.log
        # If another client's command served this session, that client may already have failed to write the log.
        since, self._wakener.since = self._wakener.since, None
        began = 0 if log is None else log.position if since is None else since
        engine.drain(session, self._parser, _REPLY_LIMIT)
        return session.out.take(), log, 0 if log is None else log.write(began)

    def _take(self, ran: tuple[bytes, Any, int]) -> None:
        """Move replies to the buffer for recv once the log is synced as configured; call without holding the lock."""
        replies, log, position = ran
        try:
            if position:
                log.wait(position)
            self._ready += replies
        except Misconf as error:
            # Some replies acknowledge writes that are not in the log: report the error and close, as the server does.
            self._ready += b"-%b\r\n" % str(error).encode()
            with self._transport.lock:
                log.write()  # closes the write gate: the engine rejects later writes
                if self._session is not None:
                    self._transport.engine.blocking.fail(self._session, error)
                    self._session.out.take()
                    self._session.closing = True

    def recv(self, size: int) -> bytes:
        """Return bytes of replies, waiting up to the timeout; b"" at the end of the connection."""
        self._await_bytes()
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data

    def readable(self, timeout: float | None) -> bool:
        """Return whether replies arrive within `timeout` seconds; ConnectionError at the end of the connection."""
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
        """Wait until reply bytes arrive or the connection ends; raise TimeoutError or BlockingIOError."""
        clock = self._transport.engine.clock
        until = None if self._timeout is None else clock.now_ms() + round(self._timeout * 1000)
        while not self._ready:
            with self._transport.lock:
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
                raise BlockingIOError(11, "no reply has arrived yet")
            if until is not None and clock.now_ms() >= until:
                raise TimeoutError("timed out")
            self._arrived.wait(left)

    def _take_reply(self) -> tuple[bytes, Any, int] | None:
        """Return a blocked command's reply, if any; None at the end. The caller must hold the lock."""
        session = self._session
        if session is None or session.closing or self._transport.closed:
            return None
        deadline = self._blocked_until()
        if deadline is not None and deadline <= self._transport.engine.clock.now_ms():
            self._transport.engine.blocking.time_has_come(session)
        return self._drain() if session.out.used else (b"", None, 0)

    def _blocked_until(self) -> int | None:
        blocked = None if self._session is None else self._session.blocked
        return blocked.wakes_at or None if blocked is not None else None

    def settimeout(self, timeout: float | None) -> None:
        """Set how many seconds recv waits; None means without limit."""
        self._timeout = timeout

    def gettimeout(self) -> float | None:
        """Return how many seconds recv waits; None means without limit."""
        return self._timeout

    def setblocking(self, flag: bool) -> None:
        """Let recv wait without limit if the flag is True, and not at all if it is False."""
        self._timeout = None if flag else 0.0

    def shutdown(self, _how: int) -> None:
        """End the session; a thread that waits for a reply receives b"", the end of the connection."""
        with self._transport.lock:
            session, self._session = self._session, None
            if session is not None:
                self._transport.engine.blocking.fail(session, CommandError("connection closed"))
                self._transport.close_session(session)
        self._arrived.set()

    def close(self) -> None:
        """End the session."""
        self.shutdown(0)

    def fileno(self) -> int:
        """Return -1: there is no file descriptor."""
        return -1


class InProcessConnection(Connection):
    """A redis-py connection over an EngineSocket."""

    def __init__(self, *, rillet_transport: InProcessTransport, **options: Any) -> None:
        self._transport = rillet_transport
        super().__init__(**options)  # type: ignore[no-untyped-call]

    def _connect(self) -> Any:
        if self._transport.closed:
            raise redis.ConnectionError("the store is closed")
        connected = EngineSocket(self._transport)
        connected.settimeout(self.socket_timeout)
        return connected

    def can_read(self, timeout: float | None = 0) -> bool:
        """Return whether a reply has arrived. With hiredis, redis-py would poll a file descriptor."""
        if not self._sock:
            self.connect()  # type: ignore[no-untyped-call]
        reader = getattr(self._parser, "_reader", None)
        if reader is None:
            return bool(super().can_read(timeout))  # type: ignore[arg-type]
        return bool(reader.has_data()) or bool(self._sock.readable(timeout))  # type: ignore[attr-defined]

    def repr_pieces(self) -> list[tuple[str, Any]]:
        """Return the fields for redis-py's `repr` of a connection."""
        return [("store", "in process"), ("db", self.db)]


def client_of(store: Store, **options: Any) -> redis.Redis:
    """Return a redis-py client for the store's engine or server; `options` are those of redis-py's connections."""
    transport = store.transport
    client: redis.Redis
    if isinstance(transport, ClusterTransport):
        client = _cluster_client(str(store.url), **options)
    else:
        if isinstance(transport, InProcessTransport):
            where: dict[str, Any] = {"connection_class": InProcessConnection, "rillet_transport": transport}
        elif isinstance(transport, AttachedTransport):
            where = {"connection_class": UnixDomainSocketConnection, "path": transport.path}
        else:
            assert isinstance(transport, ServerTransport)
            where = dict(parse_url(str(store.url)))  # type: ignore[no-untyped-call]
        client = redis.Redis.from_pool(ConnectionPool(**{**where, **options}))
    # The client keeps a reference, so that the garbage collector does not close the store.
    client.rillet_store = store  # type: ignore[attr-defined]
    return client


def _cluster_client(url: str, **options: Any) -> Any:
    """Return redis-py's cluster client for a url with any number of nodes; redis-py accepts one node in a url."""
    from redis.cluster import ClusterNode

    scheme, _, rest = url.partition("+cluster://")
    place, slash, path = rest.partition("/")
    place, question, query = place.partition("?")
    credentials, at, hosts = place.rpartition("@")
    first, *others = hosts.split(",")
    nodes = [one.rpartition(":") if ":" in one.rpartition("]")[2] else (one, ":", "6379") for one in others]
    node_of: Any = ClusterNode
    startup = [node_of(host.strip("[]"), int(port)) for host, _, port in nodes]
    cluster: Any = redis.RedisCluster
    return cluster.from_url(f"{scheme}://{credentials}{at}{first}{slash}{path}{question}{query}",
                            startup_nodes=startup, **options)  # fmt: skip


__all__ = ["EngineSocket", "InProcessConnection", "client_of"]
