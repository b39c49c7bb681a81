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
import os
import socket
import stat
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rillet.errors import Misconf, StoreError
from rillet.keyspace.defrag import IDLE
from rillet.keyspace.lazyfree import PAUSE
from rillet.runtime.engine import Engine
from rillet.runtime.pause import PAUSE_ALL, PAUSE_WRITES
from rillet.runtime.session_state import SUBSCRIBED
from rillet.runtime.settings import SettingError
from rillet.server.client_memory import ClientMemory
from rillet.server.connection import ClientConnection
from rillet.server.host import NEEDS_LOG, ServerHost
from rillet.server.log_lines import JOURNAL, LOGGER
from rillet.server.stats import ServerStats

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

UNIX_SOCKETS = hasattr(socket, "AF_UNIX")
_RESERVED_FILES = 32  # for the log and other files (server.h: CONFIG_MIN_RESERVED_FDS)
_REHASH_US = 1000  # microseconds of rehashing per run of the periodic jobs
_LAST_REPLIES = 1.0  # seconds that clients have at a shutdown to read their last replies


def _files_run_out(transport: asyncio.Transport) -> bool:
    """Return whether the process has opened nearly as many files as it may: then new clients would get no reply.

    The system gives a file the lowest free number, so that of the client's socket is about the number of open files.
    """
    client = transport.get_extra_info("socket")
    if resource is None or client is None:
        return False
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit != resource.RLIM_INFINITY and bool(client.fileno() >= limit - _RESERVED_FILES)


class CannotListen(StoreError):
    """The server cannot listen; the message names the address."""


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
        self.figures = ServerStats(self)
        self.client_memory = ClientMemory(self)
        self.loop: asyncio.AbstractEventLoop
        self.thread = 0  # the identifier of the event loop's thread
        self.port = 0
        self._listeners: list[asyncio.Server] = []
        self.unix_path: Path | None = None
        self._unix_socket: os.stat_result
        self._stopping: asyncio.Event
        self._all_gone: asyncio.Event
        self._cron_paused = False
        self._dirty: list[ClientConnection] = []
        # The client whose turn was the last one with replies that wait for the log.
        self._latest: ClientConnection | None = None
        # Clients that were blocked and have a reply.
        self._woken: deque[ClientConnection] = deque()
        self._with_messages: list[ClientConnection] = []
        # Replies that wait for a position of the log, oldest first: the position and the connections.
        self._unsettled: deque[tuple[int, list[ClientConnection]]] = deque()
        # The position of the log when replies were last set aside; other threads write the log, too.
        self._flushed = 0
        self._cron: asyncio.TimerHandle | None = None
        self._defrag: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_due = False  # the next cycle is due, and the last one is unfinished
        self._freeing: asyncio.Handle | None = None
        self._evicting: asyncio.Handle | None = None
        # The periodic jobs: called `hz` times a second while the guard is held.
        self.cron_jobs: list[Callable[[], None]] = []
        self._pause_until = 0
        # Functions of modules that were posted before the event loop ran; None once it runs.
        self._early: list[Callable[[], None]] | None = []
        engine.host = ServerHost(self)
        self.client_memory.take_settings()

    # -- start ---------------------------------------------------------------------------------------

    async def start(self, *, tcp: bool = True) -> None:
        """Listen on the addresses of the settings; CannotListen if that fails."""
        self.loop, self.thread = asyncio.get_running_loop(), threading.get_ident()
        self._stopping = asyncio.Event()
        self._all_gone = asyncio.Event()
        if tcp and self.settings.port:
            await self._listen_tcp()
        if self.settings.unixsocket:
            await self._listen_unix(Path(self.settings.unixsocket))
        self._tick()
        self._defragment()
        early, self._early = self._early or [], None
        for function in early:
            function()

    async def _listen_tcp(self) -> None:
        self.port = self.settings.port
        for address in self.settings.bind.split():
            # "-::1" in redis.conf: an address that may be missing on this machine.
            optional, host = address.startswith("-"), address.lstrip("-")
            host = {"*": "0.0.0.0", "::*": "::"}.get(host, host)
            try:
                listener = await self.loop.create_server(
                    self._new_connection, host, self.port, backlog=self.settings.tcp_backlog
                )
            except OSError as error:
                if optional:
                    continue
                await self._close_listeners()
                reason = os.strerror(error.errno) if error.errno else str(error)
                # server.c: initServer, the words that tools look for
                raise CannotListen(f"Failed listening on port {self.port} (tcp): {host}: {reason}") from error
            self._listeners.append(listener)
            LOGGER.info("listening on %s:%d", host, self.port)

    async def _listen_unix(self, path: Path) -> None:
        try:
            await self.listen_unix(path)
        except CannotListen:
            await self._close_listeners()
            raise
        self.unix_path = path
        self._unix_socket = path.stat()

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Listen on one more TCP address; port 0 takes a free port. CannotListen if that fails."""
        try:
            listener = await self.loop.create_server(
                self._new_connection, host, port, backlog=self.settings.tcp_backlog
            )
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise CannotListen(f"cannot listen on {host}:{port}: {reason}") from error
        self._listeners.append(listener)
        LOGGER.info("listening on %s:%d", *listener.sockets[0].getsockname()[:2])
        return listener

    async def listen_unix(self, path: Path) -> asyncio.Server:
        """Listen on a Unix socket, in place of one that a killed process left; CannotListen if that fails."""
        if not UNIX_SOCKETS:
            raise CannotListen(f"cannot listen on {path}: this operating system has no Unix sockets")
        # asyncio and uvloop would silently replace the socket of a running server that listens on this path.
        if answers(path):
            raise CannotListen(f"cannot listen on {path}: another server listens there")
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(path.stat().st_mode):
                path.unlink()  # a killed process left the socket file behind
        try:
            listener = await self.loop.create_unix_server(
                self._new_connection, str(path), backlog=self.settings.tcp_backlog
            )
        except OSError as error:
            raise CannotListen(f"cannot listen on {path}: {error.strerror or error}") from error
        self._listeners.append(listener)
        LOGGER.info("listening on %s", path)
        return listener

    def stop_listening(self, listener: asyncio.Server) -> None:
        """Accept no more clients on this address; its connected clients stay."""
        if listener in self._listeners:
            self._listeners.remove(listener)
            listener.close()

    def _new_connection(self) -> Any:
        return self._connection(self)

    def admit(self, transport: asyncio.Transport) -> bool:
        """Count a new client; return False if there are `maxclients` clients, or nearly all files are in use."""
        self.figures.accepted += 1
        LOGGER.debug("client accepted: %d were connected", len(self.connections))
        if len(self.connections) < self.settings.maxclients and not _files_run_out(transport):
            return True
        self.figures.refused += 1
        LOGGER.warning("client rejected: %d clients are connected, maxclients is %d", len(self.connections),
                       self.settings.maxclients)  # fmt: skip
        return False

    def forget(self, connection: ClientConnection) -> None:
        """Unregister a disconnected client."""
        self.connections.pop(connection, None)
        self.client_memory.forget(connection)
        LOGGER.debug("client %s disconnected", connection.peer)
        self.slow.pop(connection, None)
        if self._latest is connection:
            self._latest = None
        self.figures.add_closed(connection)
        if not self.connections and self._stopping.is_set():
            self._all_gone.set()

    # -- periodic work and replies -------------------------------------------------------------------

    def pause_cron(self, paused: bool) -> None:
        """Stop or restart the periodic jobs (DEBUG PAUSE-CRON)."""
        self._cron_paused = paused

    def _tick(self) -> None:
        """Run the periodic jobs, `hz` times a second (server.c: serverCron)."""
        # The event loop logs an exception of a job; the timer is set first, so that the jobs continue.
        self._cron = self.loop.call_later(1 / self.settings.hz, self._tick)
        if not self._cron_paused:
            self._run_jobs()

    def _defragment(self) -> None:
        """Do one step of the defragmentation, and schedule the next one."""
        pause = IDLE
        try:
            if not self._cron_paused:
                with self.guard:
                    pause = self.engine.defrag_step()
        finally:
            self._defrag = self.loop.call_later(pause, self._defragment)

    def _free(self) -> None:
        """Do one step of the lazy freeing, and schedule the next one while values wait."""
        self._freeing = None
        with self.guard:
            if self.engine.lazyfree.step():
                self._freeing = self.loop.call_later(PAUSE, self._free)

    def turn_ended(self, connection: ClientConnection) -> None:
        """Measure a client after its turn, and let an unfinished eviction continue after the others' turns."""
        self.client_memory.measure(connection)
        if self.engine.eviction.running:
            self.evict_soon()

    def evict_soon(self) -> None:
        """Continue the eviction in the next iteration of the loop (evict.c: startEvictionTimeProc)."""
        if self._evicting is None:
            self._evicting = self.loop.call_soon(self._evict)

    def _evict(self) -> None:
        self._evicting = None
        with self.guard:
            self.engine.make_room()
            if self.engine.eviction.running:
                self.evict_soon()
            if self.engine.log is not None:
                self._flush_guarded()

    def _run_jobs(self) -> None:
        engine = self.engine
        engine.mstime = now = engine.clock.now_ms()
        with self.guard:
            if engine.paused and now >= self._pause_until:
                engine.unpause()
            engine.rehash(_REHASH_US)
            engine.memory.take_peak()
            self.client_memory.measure_some()
            if engine.eviction.running:
                self.evict_soon()
            if self._expiry is None:
                self._expire()
            else:
                self._expiry_due = True
            if engine.lazyfree.pending and self._freeing is None:
                self._freeing = self.loop.call_soon(self._free)
            if engine.log is not None:
                self._flush_guarded()
            for job in self.cron_jobs:
                job()
            if self.settings.timeout:
                self._close_idle(now)
            for connection in list(self.slow):
                connection.within_limits()
        self.figures.sample(now)

    def _expire(self) -> None:
        """Begin or continue the expiry cycle; the rest follows after a pause, in which clients are served."""
        self._expiry = None
        engine = self.engine
        engine.expire_cycle()
        if engine.paused or not engine.active_expire:
            return
        if engine.expiry.unfinished:
            self._expiry = self.loop.call_later(engine.expiry.pause(engine.clock.ticks()) / 1e9, self._continue_expiry)
        elif self._expiry_due:
            self._expiry_due = False
            self._expiry = self.loop.call_later(0, self._continue_expiry)

    def _continue_expiry(self) -> None:
        with self.guard:
            self._expire()
            if self.engine.log is not None:
                self._flush_guarded()

    def _close_idle(self, now: int) -> None:
        oldest = now - self.settings.timeout * 1000
        for connection in list(self.connections):
            session = connection.session
            if session.blocked is None and not session.state & SUBSCRIBED and session.last_ms < oldest:
                connection.close()

    def pause(self, until_ms: int, writes_only: bool) -> None:
        """Pause the clients until a time in ms; a second call can only extend and tighten the pause (pauseClients)."""
        engine = self.engine
        if until_ms <= engine.clock.now_ms() and not engine.paused:
            return
        self._pause_until = max(until_ms, self._pause_until) if engine.paused else until_ms
        engine.paused = max(engine.paused, PAUSE_WRITES if writes_only else PAUSE_ALL)

    def setting_changed(self, name: str) -> None:
        """Apply the new value of a setting to the connected clients, after CONFIG SET."""
        if name in NEEDS_LOG:
            raise SettingError("can't be changed while the server runs")
        if name == "loglevel":
            JOURNAL.configure(self.settings.loglevel, self.settings.logfile)
        for connection in self.connections:
            connection.take_settings()
        self.client_memory.take_settings()
        if name == "maxmemory" and self.settings.maxmemory:
            self.evict_soon()

    def deliver_soon(self, connection: ClientConnection) -> None:
        """Schedule a connection: the next loop iteration sends its channel messages."""
        self._with_messages.append(connection)
        if len(self._with_messages) == 1:
            self.call_soon(self._deliver)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call the function in the next loop iteration; only the loop's thread may use this method."""
        self.loop.call_soon(function)

    def post(self, function: Callable[[], object]) -> None:
        """Call a function in a later loop iteration, while the guard is held; any thread may call this method."""
        if self._early is not None:
            self._early.append(lambda: self.post(function))
            return
        with contextlib.suppress(RuntimeError):  # the event loop has ended
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
            waiting, self._with_messages = self._with_messages, []
            for connection in waiting:
                connection.deliver()

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
        position = log.write(self._flushed)
        self._flushed = log.position
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
            if self.engine.lazyfree.pending and self._freeing is None:
                self._freeing = self.loop.call_soon(self._free)
            self._flush_guarded()

    def _flush_guarded(self) -> None:
        waiting, self._dirty = self._dirty, []
        log = self.engine.log
        if log is not None and self.settings.aof_flush_sleep and log.unwritten:
            self.engine.clock.sleep(self.settings.aof_flush_sleep / 1_000_000)
        position = 0
        if log is not None:
            position = log.write(self._flushed)
            self._flushed = log.position
        self._set_aside(position, waiting)

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
        for timer in (self._cron, self._defrag, self._expiry, self._freeing, self._evicting):
            if timer is not None:
                timer.cancel()
        self._cron = self._defrag = self._expiry = self._freeing = self._evicting = None
        if not self._stopping.is_set() or self._listeners:
            LOGGER.info("the server stops: %d clients are connected", len(self.connections))
        await self._close_listeners()
        self._stopping.set()
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
        if self.unix_path is not None:
            with contextlib.suppress(OSError):
                # Another process may have a socket there, if the folder of this one was renamed.
                if os.path.samestat(self.unix_path.stat(), self._unix_socket):
                    self.unix_path.unlink()
            self.unix_path = None

    async def _close_listeners(self) -> None:
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.close()


def answers(path: str | Path) -> bool:
    """Return whether a process accepts connections on the Unix socket."""
    if not UNIX_SOCKETS:
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def calm_garbage_collector() -> None:
    """Run Python's cycle collector rarely: the engine's data has no cycles, and a full collection visits all of it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)


def event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's event loop if it is installed, asyncio's otherwise."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop
    factory: Callable[[], Any] = uvloop.new_event_loop
    return factory


__all__ = ["UNIX_SOCKETS", "CannotListen", "Server", "answers", "calm_garbage_collector", "event_loop_factory"]
