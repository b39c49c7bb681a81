"""The RESP server: sockets, timers and shutdown around one engine.

One event loop does everything: uvloop if it is installed, asyncio's own otherwise. `rillet serve`, tests, and stores
that serve attached processes (Unix socket) start a server.

On SIGTERM, SIGINT or SHUTDOWN the server stops listening, answers the commands that it has read, writes and syncs the
log, closes the clients and removes the Unix socket. No acknowledged write is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.host.timers import EngineTimers
from rillet.real_time import monotonic
from rillet.runtime.engine import Engine
from rillet.runtime.session_state import REPLICA, SUBSCRIBED
from rillet.runtime.settings.setting_types import SettingError
from rillet.server.addresses import Addresses, Protocols
from rillet.server.busy import BusyClients
from rillet.server.client_memory import ClientMemory
from rillet.server.connection import ClientConnection
from rillet.server.engine_loop import EngineLoop
from rillet.server.log_lines import LOGGER, WARNING, configure_log, say
from rillet.server.logged_replies import LoggedReplies
from rillet.server.messages import Messages
from rillet.server.pauses import Pauses
from rillet.server.protected_mode import default_user_is_open, denied, is_local
from rillet.server.replicas import Replicas
from rillet.server.server_stats import ServerStats
from rillet.server.tls import CONTEXT_SETTINGS, Handshakes, TlsContext, TlsError, TlsTransport
from rillet.server.unix_socket import CannotListen, UnixSocket

if TYPE_CHECKING:
    from rillet.persistence.aof.service import AofService
    from rillet.server.replica_link import ReplicaLink

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# Settings that only a server with an append-only file can change.
NEEDS_LOG = ("appendonly", "appendfsync")
_RESERVED_FILES = 32  # for the log and other files (server.h: CONFIG_MIN_RESERVED_FDS)
_FILE_CHECKS = 16  # one in so many clients is checked while there are files enough
_CLIENTS_PER_RUN, _MOST_HZ = 200, 500  # with dynamic-hz (server.h: MAX_CLIENTS_PER_CLOCK_TICK, CONFIG_MAX_HZ)
_LAST_REPLIES = 1.0  # seconds that clients have at a shutdown to read their last replies


def _files_left(transport: asyncio.Transport) -> int:
    """Return how many more clients the limit of the process's open files permits.

    The system gives a file the lowest free number, so that of the client's socket is about the number of open files.
    """
    client = transport.get_extra_info("socket")
    if resource is None or client is None:
        return _FILE_CHECKS * 2
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _FILE_CHECKS * 2 if limit == resource.RLIM_INFINITY else limit - _RESERVED_FILES - int(client.fileno())


class Server:
    """A server on TCP addresses and, if configured, a Unix socket.

    `guard`: a lock that is held during every access to the engine; None if no other thread uses the engine.
    """

    def __init__(self, engine: Engine, *, connection: type[ClientConnection] = ClientConnection,
                 guard: contextlib.AbstractContextManager[Any] | None = None) -> None:
        self.engine = engine
        self._connection = connection
        self.settings = engine.settings
        self.connections: dict[ClientConnection, None] = {}
        # Clients that read their replies too slowly.
        self.slow: dict[ClientConnection, None] = {}
        self.engine_loop = EngineLoop(guard, self._write_log, shared=guard is not None)
        self.guard = self.engine_loop.guard
        self.stats = ServerStats(engine, self.connections)
        self.client_memory = ClientMemory(engine, self.connections, self.hz)
        self.messages = Messages(engine, self.engine_loop)
        self.replies = LoggedReplies(engine, self.engine_loop, lambda: self.timers.free_soon())
        self.tls = TlsContext(engine.settings)
        self.handshakes = Handshakes(engine, self.engine_loop, self.tls, self.admit)
        self.addresses = Addresses(
            engine.settings, self.engine_loop,
            Protocols(self.new_connection, self.new_exposed_connection, self.new_tls_connection),
        )  # fmt: skip
        self.busy = BusyClients(engine.clock, self.engine_loop, self.addresses, self.connections,
                                self.handshakes.waiting)  # fmt: skip
        self.pauses = Pauses(engine)
        self.replicas = Replicas(engine, self.engine_loop)
        # The link to a master, None before this server first follows one; the log of a server with files.
        self.followed: ReplicaLink | None = None
        self.log: AofService | None = None
        self.timers = EngineTimers(engine, self.guard, self.replies.write, self.hz)
        self.timers.early.append(self._measure)
        self.timers.jobs += [self._serve_periodically, self.replicas.tick]
        self._stopping: asyncio.Event
        self._all_gone: asyncio.Event
        self._files_scarce = False  # then each new client is checked
        self.client_memory.take_settings()

    # -- start ---------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The TCP port, 0 if there is none."""
        return self.addresses.port

    @property
    def replica(self) -> ReplicaLink:
        """The link to a master; the first use creates it."""
        if self.followed is None:
            from rillet.server.replica_link import ReplicaLink

            self.followed = ReplicaLink(self.engine, self.engine_loop, self.replicas, self.log, port=lambda: self.port,
                                        write_log=self.replies.flush_log, is_stopping=self.is_stopping)  # fmt: skip
        return self.followed

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self.engine_loop.loop

    async def start(self, *, tcp: bool = True, unix: UnixSocket | None = None) -> None:
        """Listen on the addresses of the settings; CannotListen or TlsError if that fails.

        unix: the Unix socket of the settings, if it listens already.
        """
        self.engine_loop.use(asyncio.get_running_loop(), threading.get_ident())
        self._stopping = asyncio.Event()
        self._all_gone = asyncio.Event()
        if tcp and self.settings.tls_port:
            self.tls.load()
        try:
            if tcp:
                await self.addresses.listen_tcp()
            if unix is None and self.settings.unixsocket:
                unix = UnixSocket(Path(self.settings.unixsocket), self.settings)
            if unix is not None:
                await self.addresses.listen_main_unix(unix)
        except CannotListen:
            self.addresses.close()
            raise
        self.timers.start(self.loop.call_later)
        self.engine_loop.begin()

    def new_connection(self) -> Any:
        """Return the protocol of a client that only this machine can be."""
        return self._connection(self)

    def new_exposed_connection(self) -> Any:
        """Return the protocol of a client that may be on another host."""
        connection = self._connection(self)
        connection.exposed = True
        return connection

    def new_tls_connection(self) -> Any:
        """Return the protocol of a client that uses TLS."""
        return TlsTransport(self.handshakes, self.new_exposed_connection())

    def admit(self, transport: asyncio.Transport) -> bool:
        """Count a new client; return False if there are `maxclients` clients, or nearly all files are in use."""
        self.stats.accepted += 1
        clients = len(self.connections) + len(self.handshakes.waiting)
        LOGGER.debug("client accepted: %d were connected", clients)
        if clients < self.settings.maxclients and not self._files_run_out(transport):
            return True
        self.stats.refused += 1
        LOGGER.warning("client rejected: %d clients are connected, maxclients is %d", clients, self.settings.maxclients)
        return False

    def _files_run_out(self, transport: asyncio.Transport) -> bool:
        """Return whether nearly all files of the process are in use: then new clients would get no reply.

        The event loop keeps an object for each socket that was looked at, so most clients are not checked while there
        are files enough.
        """
        if not self._files_scarce and self.stats.accepted % _FILE_CHECKS:
            return False
        left = _files_left(transport)
        self._files_scarce = left < 2 * _FILE_CHECKS
        return left <= 0

    def refusal(self, connection: ClientConnection, transport: Any) -> bytes:
        """Return the reply that a new client gets before the server disconnects it, or nothing if it may stay."""
        if transport.__class__ is not TlsTransport and not self.admit(transport):
            return b"-ERR max number of clients reached\r\n"
        if connection.exposed and self.settings.protected_mode and default_user_is_open(self.engine):
            peer = transport.get_extra_info("peername")
            if isinstance(peer, tuple) and not is_local(peer[0], self.settings.compat):
                self.stats.refused += 1
                LOGGER.info("client %s:%d rejected: protected-mode is on and there is no password", *peer[:2])
                return denied(self.settings.compat)
        return b""

    def forget(self, connection: ClientConnection) -> None:
        """Unregister a disconnected client."""
        self.connections.pop(connection, None)
        if connection.counted:
            self.client_memory.forget(connection)
        if self.slow:
            self.slow.pop(connection, None)
        self.replies.forget(connection)
        self.stats.add_closed(connection)
        if not self.connections and self._stopping.is_set():
            self._all_gone.set()

    # -- periodic work -------------------------------------------------------------------------------

    def hz(self) -> int:
        """Return the runs per second of the periodic jobs: `hz`, or more with many clients (server.c: serverCron)."""
        hz: int = self.settings.hz
        if self.settings.dynamic_hz:
            while len(self.connections) > _CLIENTS_PER_RUN * hz and hz < _MOST_HZ:
                hz = min(2 * hz, _MOST_HZ)
        return hz

    def turn_ended(self, connection: ClientConnection) -> None:
        """Measure a client after its turn, and let an unfinished eviction continue after the others' turns."""
        self.client_memory.measure(connection)
        if self.engine.eviction.running:
            self.timers.evict_soon()

    def _serve_periodically(self) -> None:
        """Do the periodic work of the sockets; the timers hold the guard."""
        now = self.engine.mstime
        if self.followed is not None:
            self.followed.tick()
        self.handshakes.end_slow()
        self.tls.reload_if_changed()
        if self.settings.timeout:
            self._close_idle(now)
        for connection in list(self.slow):
            connection.within_limits()
        self.stats.sample(now)
        peers = getattr(self.engine.services, "peers", None)
        if peers:
            peers.close_idle()

    def _measure(self) -> None:
        if self.engine.paused:
            self.pauses.update()
        self.client_memory.measure_some()

    def _close_idle(self, now: int) -> None:
        oldest = now - self.settings.timeout * 1000
        for connection in list(self.connections):
            session = connection.session
            if session.blocked is None and not session.state & (SUBSCRIBED | REPLICA) and session.last_ms < oldest:
                connection.close()

    def setting_changed(self, name: str) -> None:
        """Apply the new value of a setting to the connected clients, after CONFIG SET."""
        if name in NEEDS_LOG:
            raise SettingError("can't be changed while the server runs")
        if name in CONTEXT_SETTINGS and self.settings.tls_port:
            self._load_tls()
        elif name in ("bind", "port", "tls-port"):
            if name == "tls-port" and self.tls.current is None:
                self._load_tls()
            self.addresses.rebind()
        elif name == "tcp-keepalive":
            self.addresses.set_keepalive(self.settings.tcp_keepalive)
        if name in ("loglevel", "log-format", "log-timestamp-format"):
            configure_log(self.settings)
        for connection in self.connections:
            connection.take_settings()
        self.client_memory.take_settings()
        self.replicas.setting_changed(name)
        if name == "maxmemory" and self.settings.maxmemory:
            self.timers.evict_soon()

    def _write_log(self) -> None:
        """Write the log after a function that the loop has called."""
        if self.engine.log is not None:
            self.replies.write()

    def _load_tls(self) -> None:
        try:
            self.tls.load()
        except TlsError as error:
            LOGGER.warning("%s", error)
            say(str(error), WARNING)
            raise SettingError("Unable to update TLS configuration. Check server logs.") from error

    # -- shutdown ------------------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Make `wait` return; called for a signal or SHUTDOWN."""
        self._stopping.set()

    def is_stopping(self) -> bool:
        """Return whether a stop was requested."""
        return self._stopping.is_set()

    async def wait(self) -> None:
        """Return when a stop is requested."""
        await self._stopping.wait()

    async def stop(self) -> None:
        """Stop listening, flush the log, send the replies, close every client; a second call does nothing."""
        self.timers.stop()
        if not self._stopping.is_set() or self.addresses.listeners:
            LOGGER.info("the server stops: %d clients are connected", len(self.connections))
        self.addresses.close()
        if self.followed is not None:
            self.followed.close()
        self.replicas.close()
        peers = getattr(self.engine.services, "peers", None)
        if peers is not None:
            peers.close()
        self._stopping.set()
        self.handshakes.close()
        with self.guard:
            self.replies.write()
            for connection in list(self.connections):
                connection.close_after_reply()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), _LAST_REPLIES)
        with self.guard:
            for connection in list(self.connections):
                connection.close()
        self.addresses.remove_unix()


def calm_garbage_collector() -> None:
    """Run Python's cycle collector rarely: the engine's data has no cycles, and a full collection visits all of it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)


def event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's event loop if it is installed, asyncio's otherwise; its timers follow the real time."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return _asyncio_loop
    factory: Callable[[], Any] = uvloop.new_event_loop
    return factory


def _asyncio_loop() -> asyncio.AbstractEventLoop:
    """Return asyncio's event loop with the clock that a test of the application does not stop; uvloop reads it too."""
    loop = asyncio.new_event_loop()
    loop.time = monotonic  # type: ignore[method-assign]
    return loop
