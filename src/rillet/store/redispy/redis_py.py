"""A redis-py client whose connections lead to the engine in this process, without a socket.

redis-py keeps its own parser, pipelines, transactions and pool. Only the socket is replaced, by an object with the same
few methods: sent bytes go to the engine, and replies wait in a buffer until they are received.

    redis.Redis -> pool -> StoreConnection -> EngineSocket.sendall -> Engine.drain
                                              EngineSocket.recv    <- replies, or waits for them

Each connection has its own session, as over a network, so the connections of a pool keep MULTI and WATCH apart.

A connection follows its store: it asks the store for the current transport each time it connects. In an attached
process it connects to the owner's socket. If the owner has ended, the store finds or becomes the new owner first.

redis-py 8 gives up a read after 5 seconds by default, and sends the command again. A command that waits longer in the
engine (BLPOP with a timeout of 7) would fail, so the default here is redis-py's earlier one: no limit.
"""

from __future__ import annotations

import contextlib
import inspect
import socket
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import redis
from redis.client import Redis  # a test may replace redis.Redis by store.redis
from redis.connection import Connection, ConnectionPool, parse_url

from rillet.client.address import Address
from rillet.errors import Misconf, StoreClosed, StoreError
from rillet.real_time import monotonic
from rillet.store.redispy.redis_session import Ran, RedisSession
from rillet.store.transports.cluster import ClusterTransport
from rillet.store.transports.connected import AttachedTransport, ServerTransport
from rillet.store.transports.in_process import InProcessTransport
from rillet.store.transports.steady_event import SteadyEvent

if TYPE_CHECKING:
    from rillet.store.store import Store

# The defaults of every connection; the caller's options and the options of a url win.
DEFAULTS: dict[str, Any] = {"socket_timeout": None}
# A store sends no notices of maintenance; redis-py 7 and later would ask each new connection for them.
WITHOUT_NOTICES: dict[str, Any] = {}
with contextlib.suppress(ImportError):
    from redis.maint_notifications import MaintNotificationsConfig

    WITHOUT_NOTICES["maint_notifications_config"] = MaintNotificationsConfig(enabled=False)
# In this process a connection is only a session, so the pool has no limit (redis-py's is 100).
STORE_DEFAULTS: dict[str, Any] = {**DEFAULTS, "max_connections": 2**31}


class EngineSocket:
    """The socket methods that redis-py calls, over a session of the engine."""

    def __init__(self, transport: InProcessTransport) -> None:
        self._arrived = SteadyEvent()
        self._timeout: float | None = None
        self._ready = bytearray()
        self._session = RedisSession(transport, self._arrived.set, self)

    def sendall(self, data: bytes) -> None:
        """Run the commands that are complete after these bytes."""
        self._take(self._session.run(data, bool(self._ready)))

    def _take(self, ran: Ran) -> None:
        """Move replies to the buffer for recv once the log is synced as configured."""
        try:
            if ran.position:
                ran.log.wait(ran.position)
            self._ready += ran.replies
        except Misconf as error:
            # Some replies acknowledge writes that are not in the log: report the error and close, as the server does.
            self._ready += self._session.failed(ran, error)

    def recv(self, size: int) -> bytes:
        """Return bytes of replies, waiting up to the timeout; b"" at the end of the connection."""
        self._await_bytes(self._timeout)
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data

    def readable(self, timeout: float | None) -> bool:
        """Return whether replies arrive within `timeout` seconds; ConnectionError at the end of the connection."""
        try:
            self._await_bytes(timeout)
        except (BlockingIOError, TimeoutError):
            return False
        if not self._ready:
            raise redis.ConnectionError("the connection is closed")
        return True

    def recv_into(self, buffer: Any, size: int = 0) -> int:
        """Fill a buffer with bytes of replies and return how many."""
        data = self.recv(size or len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _await_bytes(self, timeout: float | None) -> None:
        """Wait until reply bytes arrive or the connection ends; raise TimeoutError or BlockingIOError.

        The timeout of redis-py is real time; the deadline of a blocked command follows the engine's clock.
        """
        until = None if timeout is None else monotonic() + timeout
        while not self._ready:
            self._arrived.clear()
            ran = self._session.collect()
            if ran is None:
                return
            if ran.replies:
                self._take(ran)
                return
            if timeout == 0:
                raise BlockingIOError(11, "no reply has arrived yet")
            left = [] if until is None else [until - monotonic()]
            if left and left[0] <= 0:
                raise TimeoutError("timed out")
            deadline = self._session.seconds_left()
            if deadline is not None:
                left.append(max(deadline, 0.001))
            self._arrived.wait(min(left) if left else None)

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
        self._session.end(bool(self._ready))

    def close(self) -> None:
        """End the session."""
        self._session.end(bool(self._ready))

    def fileno(self) -> int:
        """Return -1: there is no file descriptor."""
        return -1


def transport_of(store: Store) -> InProcessTransport | Address:
    """Return the engine's transport in this process, or the address of the owner in an attached process.

    Raise ConnectionRefusedError if the store is closed.
    """
    transport = store.transport
    assert isinstance(transport, (InProcessTransport, AttachedTransport))
    if transport.closed:
        raise ConnectionRefusedError("the store is closed")
    return transport if isinstance(transport, InProcessTransport) else transport.options.server


def find_owner(store: Store) -> None:
    """Let an attached store whose owner has ended attach to the new owner, or become it."""
    try:
        store.execute("PING")
    except StoreClosed:
        raise ConnectionRefusedError("the store is closed") from None
    except StoreError:
        store.execute("PING")


class StoreConnection(Connection):
    """A redis-py connection to a store in this process or to the socket of the store's owner.

    unread: how many replies were not read. An interrupted call leaves some, and the next call would receive them.
    """

    unread = 0

    def __init__(self, *, rillet_store: Store, **options: Any) -> None:
        self._store = rillet_store
        super().__init__(**options)  # type: ignore[no-untyped-call]

    def connect(self) -> None:
        """Connect and introduce the client; close the socket if this is interrupted in the middle."""
        try:
            super().connect()  # type: ignore[no-untyped-call]
        except BaseException:
            self.disconnect()
            raise

    def send_command(self, *args: Any, **kwargs: Any) -> None:
        """Send a command."""
        self.unread += 1
        super().send_command(*args, **kwargs)  # type: ignore[no-untyped-call]

    def pack_commands(self, commands: Any) -> Any:
        """Encode the commands of a pipeline, which are sent next."""
        self.unread += len(commands)
        return super().pack_commands(commands)  # type: ignore[no-untyped-call]

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        """Return the next reply, or raise it if it is an error."""
        try:
            reply = super().read_response(*args, **kwargs)
        except redis.ResponseError:
            self.unread -= 1
            raise
        self.unread -= 1
        return reply

    def disconnect(self, *args: Any, **kwargs: Any) -> None:
        """Close the socket."""
        self.unread = 0
        super().disconnect(*args, **kwargs)  # type: ignore[no-untyped-call]

    def _connect(self) -> Any:
        connected = self._open()
        connected.settimeout(self.socket_timeout)
        return connected

    def _open(self) -> EngineSocket | socket.socket:
        there = transport_of(self._store)
        if isinstance(there, Address):
            with contextlib.suppress(OSError):
                return self._open_socket(there)
            find_owner(self._store)
            there = transport_of(self._store)
        return self._open_socket(there) if isinstance(there, Address) else EngineSocket(there)

    def _open_socket(self, address: Address) -> socket.socket:
        if address.unix is None:
            return socket.create_connection(address.node, self.socket_connect_timeout)
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            opened.settimeout(self.socket_connect_timeout)
            opened.connect(address.unix)
        except BaseException:
            opened.close()
            raise
        return opened

    def can_read(self, timeout: float | None = 0) -> bool:
        """Return whether a reply has arrived. With hiredis, redis-py would poll a file descriptor."""
        if not self._sock:
            self.connect()
        reader = getattr(self._parser, "_reader", None)
        if reader is None or not isinstance(self._sock, EngineSocket):
            return bool(super().can_read(timeout))  # type: ignore[arg-type]
        return bool(reader.has_data()) or self._sock.readable(timeout)

    def _host_error(self) -> str:
        return repr(self._store)

    def repr_pieces(self) -> list[tuple[str, Any]]:
        """Return the fields for redis-py's `repr` of a connection."""
        return [("store", self._store), ("db", self.db)]


class StorePool(ConnectionPool):
    """A pool that an interrupted call does not fill: it drops connections that nothing uses, or with unread replies.

    A call takes a connection before the `try` block that releases it, so an interrupt between them loses it.
    """

    def reset(self) -> None:
        """Forget all connections."""
        super().reset()
        self._in_use_connections: Any = WeakSet()

    def release(self, connection: Any) -> None:
        """Take a connection back."""
        if connection.unread:
            connection.disconnect()
        super().release(connection)


def client_of(store: Store, *, single_connection_client: bool = False, **options: Any) -> Redis:
    """Return a redis-py client for the store's engine or server.

    options: those of redis-py's connections and pools. single_connection_client: use one connection, as redis.Redis.
    """
    transport = store.transport
    check_options(options, "store.redis()", Redis, redis.RedisCluster, ConnectionPool)
    client: Redis
    if isinstance(transport, ClusterTransport):
        client = _cluster_client(str(store.url), **{**DEFAULTS, **options})
    elif isinstance(transport, ServerTransport) and transport.options.moves:
        from redis.sentinel import Sentinel

        service, nodes, watchers, where = sentinel_arguments(transport)
        sentinel_of: Any = Sentinel
        client = sentinel_of(nodes, sentinel_kwargs=watchers).master_for(service, **{**DEFAULTS, **where, **options})
    elif isinstance(transport, ServerTransport) and not isinstance(transport, AttachedTransport):
        where = parse_url(str(store.url))  # type: ignore[no-untyped-call]
        pool = ConnectionPool(**{**DEFAULTS, **where, **options})
        client = Redis(connection_pool=pool, single_connection_client=single_connection_client)
        client.auto_close_connection_pool = True
    else:
        where = {"connection_class": StoreConnection, "rillet_store": store}
        pool = StorePool(**{**STORE_DEFAULTS, **WITHOUT_NOTICES, **where, **options})
        client = Redis(connection_pool=pool, single_connection_client=single_connection_client)
        client.auto_close_connection_pool = True
    # The client keeps a reference, so that the garbage collector does not close the store.
    client.rillet_store = store  # type: ignore[attr-defined]
    return client


def sentinel_arguments(transport: ServerTransport) -> tuple[str, list[Any], dict[str, Any], dict[str, Any]]:
    """Return redis-py's arguments: the service, the sentinels, the options of connections to them and to servers."""
    address = transport.options.server
    watched = address.sentinels
    assert watched is not None
    secure: dict[str, Any] = {}
    if address.tls is not None:
        secure = {"ssl": True, "ssl_ca_certs": address.tls.ca_file, "ssl_certfile": address.tls.cert_file,
                  "ssl_keyfile": address.tls.key_file, "ssl_cert_reqs": "required" if address.tls.verify else "none",
                  "ssl_check_hostname": address.tls.verify}  # fmt: skip
    watchers = {**secure, "username": watched.user, "password": watched.password}
    where = {**secure, "db": address.db, "username": address.user, "password": address.password}
    return watched.service, [tuple(node) for node in watched.nodes], watchers, where


def check_options(options: dict[str, Any], call: str, *classes: type) -> None:
    """Raise TypeError for an option that redis-py does not know; it would notice that at the first command only."""
    names: set[str] = set()
    connections = (redis.SSLConnection, redis.UnixDomainSocketConnection, options.get("connection_class", Connection))
    for kind in (*classes, *(base for connection in connections for base in connection.__mro__)):
        names.update(inspect.signature(kind.__init__).parameters)  # type: ignore[misc]
    unknown = sorted(options.keys() - names)
    if unknown:
        raise TypeError(f"{call} got an unknown option {unknown[0]!r}: it takes those of redis.Redis")


def cluster_nodes(url: str) -> tuple[str, list[tuple[str, int]]]:
    """Split a url of a cluster into a url of its first node, as redis-py accepts it, and the other nodes."""
    scheme, _, rest = url.partition("+cluster://")
    place, slash, path = rest.partition("/")
    place, question, query = place.partition("?")
    credentials, at, hosts = place.rpartition("@")
    first, *others = hosts.split(",")
    nodes = [one.rpartition(":") if ":" in one.rpartition("]")[2] else (one, ":", "6379") for one in others]
    return (f"{scheme}://{credentials}{at}{first}{slash}{path}{question}{query}",
            [(host.strip("[]"), int(port)) for host, _, port in nodes])  # fmt: skip


def _cluster_client(url: str, **options: Any) -> Any:
    """Return redis-py's cluster client for a url with any number of nodes; redis-py accepts one node in a url."""
    from redis.cluster import ClusterNode

    first, others = cluster_nodes(url)
    node_of: Any = ClusterNode
    cluster: Any = redis.RedisCluster
    return cluster.from_url(first, startup_nodes=[node_of(host, port) for host, port in others], **options)
