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
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rillet.errors import Misconf
from rillet.host.timers import EngineTimers
from rillet.real_time import monotonic
from rillet.runtime.engine import Engine
from rillet.runtime.session_state import REPLICA, SUBSCRIBED
from rillet.runtime.settings.settings import SettingError
from rillet.server.addresses import Addresses
from rillet.server.busy import BusyClients
from rillet.server.client_memory import ClientMemory
from rillet.server.connection import ClientConnection
from rillet.server.log_lines import LOGGER, WARNING, configure_log, say
from rillet.server.pauses import Pauses
from rillet.server.protected_mode import default_user_is_open, denied, is_local
from rillet.server.replica_link import ReplicaLink
from rillet.server.replicas import Replicas
from rillet.server.server_services import NEEDS_LOG, ServerServices
from rillet.server.server_stats import ServerStats
from rillet.server.tls import CONTEXT_SETTINGS, HANDSHAKE_SECONDS, TlsContext, TlsError, TlsTransport
from rillet.server.unix_socket import CannotListen, UnixSocket

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

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
        self.guard = guard or contextlib.nullcontext()
        self._connection = connection
        self.settings = engine.settings
        self.connections: dict[ClientConnection, None] = {}
        # Clients that read their replies too slowly.
        self.slow: dict[ClientConnection, None] = {}
        self.stats = ServerStats(self)
        self.client_memory = ClientMemory(self)
        self.busy = BusyClients(self)
        self.replica = ReplicaLink(self)
        self.loop: asyncio.AbstractEventLoop
        self.thread = 0  # the identifier of the event loop's thread
        self.tls = TlsContext(engine.settings)
        # Clients that have not completed the handshake of TLS, oldest first.
        self.handshakes: dict[TlsTransport, None] = {}
        self.addresses = Addresses(self)
        self._stopping: asyncio.Event
        self._all_gone: asyncio.Event
        self._files_scarce = False  # then each new client is checked
        self._dirty: list[ClientConnection] = []
        # The client whose turn was the last one with replies that wait for the log.
        self._latest: ClientConnection | None = None
        # Clients that were blocked and have a reply.
        self._woken: deque[ClientConnection] = deque()
        self._with_messages: list[ClientConnection] = []
        self._delivers_soon = False
        # Replies that wait for a position of the log, oldest first: the position and the connections.
        self._unsettled: deque[tuple[int, list[ClientConnection]]] = deque()
        # The position of the log when replies were last set aside; other threads write the log, too.
        self._flushed = 0
        self.timers = EngineTimers(engine, self.guard, self._flush_guarded, self.hz)
        self.timers.early.append(self._measure)
        self.timers.jobs.append(self._serve_periodically)
        self.pauses = Pauses(engine)
        # Functions of modules that were posted before the event loop ran; None once it runs.
        self._early: list[Callable[[], None]] | None = []
        engine.services = ServerServices(self)
        self.replicas = Replicas(self)
        self.client_memory.take_settings()

    # -- start ---------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The TCP port, 0 if there is none."""
        return self.addresses.port

    async def start(self, *, tcp: bool = True, unix: UnixSocket | None = None) -> None:
        """Listen on the addresses of the settings; CannotListen or TlsError if that fails.

        unix: the Unix socket of the settings, if it listens already.
        """
        self.loop, self.thread = asyncio.get_running_loop(), threading.get_ident()
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
        early, self._early = self._early or [], None
        for function in early:
            function()

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
        return TlsTransport(self, self.new_exposed_connection())

    def admit(self, transport: asyncio.Transport) -> bool:
        """Count a new client; return False if there are `maxclients` clients, or nearly all files are in use."""
        self.stats.accepted += 1
        clients = len(self.connections) + len(self.handshakes)
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
        if self._latest is connection:
            self._latest = None
        self.stats.add_closed(connection)
        if not self.connections and self._stopping.is_set():
            self._all_gone.set()

    # -- periodic work and replies -------------------------------------------------------------------

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
        self.replica.tick()
        self._end_slow_handshakes()
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

    def _end_slow_handshakes(self) -> None:
        """Disconnect clients whose TLS handshake takes too long."""
        oldest = monotonic() - HANDSHAKE_SECONDS
        for transport in list(self.handshakes) if self.handshakes else ():
            if transport.since > oldest:
                return
            LOGGER.info("Error accepting a client connection: the TLS handshake took too long")
            self.handshakes.pop(transport, None)
            transport.abort()

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

    def _load_tls(self) -> None:
        try:
            self.tls.load()
        except TlsError as error:
            LOGGER.warning("%s", error)
            say(str(error), WARNING)
            raise SettingError("Unable to update TLS configuration. Check server logs.") from error

    def deliver_soon(self, connection: ClientConnection) -> None:
        """Schedule a connection: the next loop iteration sends its channel messages."""
        self._with_messages.append(connection)
        self._schedule_delivery()

    def broadcast_soon(self) -> None:
        """Let the next loop iteration send the keys that changed to the clients that cache them."""
        if self._early is None and threading.get_ident() == self.thread:
            self._schedule_delivery()
        else:
            self.post(self.deliver_now)

    def _schedule_delivery(self) -> None:
        if not self._delivers_soon:
            self._delivers_soon = True
            self.loop.call_soon(self._deliver)

    def deliver_now(self) -> None:
        """Send the messages for clients that cache keys or watch commands; the caller holds the guard."""
        self._delivers_soon = True  # at the end of this method
        try:
            self.engine.tracking.broadcast()
        finally:
            self._delivers_soon = False
        waiting, self._with_messages = self._with_messages, []
        for connection in waiting:
            connection.deliver()

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call the function in the next loop iteration; only the loop's thread may use this method."""
        self.loop.call_soon(function)

    def post(self, function: Callable[[], object]) -> None:
        """Call a function in a later loop iteration, while the guard is held; any thread may call this method."""
        if self._early is not None:
            self._early.append(lambda: self.post(function))
            return
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            if threading.get_ident() == self.thread:
                self.loop.call_soon(self._run_job, function)
            else:
                self.loop.call_soon_threadsafe(self._run_job, function)

    def call_later(self, seconds: float, function: Callable[[], object]) -> Callable[[], object]:
        """Call a function after a time, while the guard is held; return a function that cancels this."""
        cancelled = False
        handles: list[asyncio.TimerHandle] = []

        def start() -> None:
            if not cancelled:
                handles.append(self.loop.call_later(seconds, self._run_job, function))

        def cancel() -> None:
            nonlocal cancelled
            cancelled = True
            for handle in handles:
                handle.cancel()

        if self._early is not None:
            self._early.append(start)
        elif threading.get_ident() == self.thread:
            start()
        else:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(start)
        return cancel

    def _run_job(self, function: Callable[[], object]) -> None:
        """Call a function of a module, and write the log afterwards."""
        with self.guard:
            function()
            if self.engine.log is not None:
                self._flush_guarded()

    def resume_soon(self, connection: ClientConnection) -> None:
        """Continue with a client that was blocked, at the latest in the next loop iteration, in the loop's thread."""
        self._woken.append(connection)
        if len(self._woken) == 1:
            self.loop.call_soon(self._resume_woken)

    def _resume_woken(self) -> None:
        woken = self._woken
        try:
            for _ in range(len(woken)):
                woken.popleft().resume()
        finally:
            if woken:  # clients that these clients woke
                self.loop.call_soon(self._resume_woken)

    def _deliver(self) -> None:
        with self.guard:
            self.deliver_now()

    def flush_soon(self, connection: ClientConnection) -> None:
        """Send the connection's replies when the log contains their writes, not before this loop iteration ends."""
        self._dirty.append(connection)
        if len(self._dirty) == 1:
            self.loop.call_soon(self.flush)

    def end_turn(self, connection: ClientConnection) -> None:
        """Write the log and send a connection's replies now, if it alone is active; the caller holds the guard.

        The clients that its commands woke get their replies now, too. If other clients have replies in this loop
        iteration, or had the latest ones, one write serves all of them at the end of the iteration.
        """
        log = self.engine.log
        alone = connection is self._latest and not self._dirty and not self._unsettled
        self._latest = connection
        if not alone or log is None or self.settings.aof_flush_sleep:
            self.flush_soon(connection)
            return
        if self._woken:
            self._dirty.append(connection)
            self._resume_woken()
            self._flush_guarded()
            return
        position = self._write_log(log)
        try:
            settled = log.settled(position)
        except Misconf:
            settled = False  # the reply becomes the error
        if settled:
            connection.send_now()
        else:
            self._set_aside(position, [connection])

    def flush(self) -> None:
        """Write the log, and send each reply once its log position is as safe as appendfsync requires."""
        with self.guard:
            if self.engine.expiry.pressing:
                self.engine.expire_fast()
            self.timers.free_soon()
            self._flush_guarded()

    def flush_log(self) -> None:
        """Do `flush` for a caller that holds the guard and that is not a client.

        With `appendfsync always` the log is synced although no reply waits for it.
        """
        self._flush_guarded()
        log = self.engine.aof
        if log is not None and self.settings.appendfsync == "always":
            with contextlib.suppress(Misconf):
                if not log.settled(log.position):
                    log.sync_soon(self._synced)

    def _flush_guarded(self) -> None:
        waiting, self._dirty = self._dirty, []
        log = self.engine.log
        if log is not None and self.settings.aof_flush_sleep and log.unwritten:
            self.engine.clock.sleep(self.settings.aof_flush_sleep / 1_000_000)
        position = 0
        if log is not None:
            position = self._write_log(log)
        self._set_aside(position, waiting)

    def _write_log(self, log: Any) -> int:
        """Write the log, and return the position up to which replies wait; measure the time."""
        engine = self.engine
        syncing = engine.aof is not None and engine.aof.syncer.syncing
        began = engine.clock.ticks()
        stream = engine.replication.stream
        if stream is not None:
            stream.note_position()
        position: int = log.write(self._flushed)
        self._flushed = log.position
        if stream is not None:
            stream.flush()
        spent = engine.clock.ticks() - began
        engine.stats.log_ns += spent
        if spent >= engine.monitored_ns:
            engine.latency.add(b"aof-write", spent)
            has_child = engine.services.has_child()
            cause = b"pending-fsync" if syncing else b"active-child" if has_child else b"alone"
            engine.latency.add(b"aof-write-" + cause, spent)
        return position

    def _set_aside(self, position: int, waiting: list[ClientConnection]) -> None:
        """Let replies wait for a position of the log, and send those that need not wait; the caller holds the guard."""
        if waiting:
            for connection in waiting:
                connection.put_aside()
            self._unsettled.append((position, waiting))
        if self._unsettled:
            self._release_settled()
            if self._unsettled:
                # One sync covers all replies that were set aside before its start; other clients are served meanwhile.
                self.engine.log.sync_soon(self._synced)

    def _release_settled(self) -> None:
        """Send the replies whose log position is safe; the caller holds the guard."""
        log = self.engine.log
        unsettled = self._unsettled
        while unsettled:
            position, waiting = unsettled[0]
            try:
                if log is not None and not log.settled(position):
                    return
            except Misconf as error:
                # Some of these replies acknowledge lost writes, but it is unknown which: reject all of them.
                log.write()  # the log enters its failure state, which rejects writes
                unsettled.popleft()
                for connection in waiting:
                    connection.refuse(error)
            else:
                unsettled.popleft()
                for connection in waiting:
                    connection.release()

    def _synced(self) -> None:
        """Send the replies that waited for a sync; called by the syncing thread."""
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self.loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        with self.guard:
            engine, log = self.engine, self.engine.aof
            if log is not None and engine.monitored_ns < 2**62 and self.settings.appendfsync == "always":
                engine.latency.add(b"aof-fsync-always", log.syncer.last_ns)
            self._release_settled()

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
        self.replica.close()
        self.replicas.close()
        peers = getattr(self.engine.services, "peers", None)
        if peers is not None:
            peers.close()
        self._stopping.set()
        for transport in list(self.handshakes):
            transport.abort()
        with self.guard:
            self._flush_guarded()
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


__all__ = ["CannotListen", "Server", "calm_garbage_collector", "event_loop_factory"]
