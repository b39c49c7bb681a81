"""The services of a server: what commands use of its sockets and files.

    ServerServices     any server, also the one inside a store that serves attached clients
    DurableServices    a server that owns an append-only file and an RDB file (rillet.server.app)
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rillet.client.peer_sockets import PeerSockets
from rillet.errors import CommandError
from rillet.host.file_services import FileServices
from rillet.host.process_memory import memory
from rillet.protocol.peer_replies import Replies
from rillet.runtime.engine_services import DefaultServices
from rillet.server import acl_file
from rillet.server.config_rewrite import rewrite
from rillet.server.log_lines import LEVELS, say
from rillet.server.pauses import BY_CLIENT, FOR_FAILOVER, FOREVER_MS
from rillet.server.server import NEEDS_LOG, Server
from rillet.server.shutdown import ShutdownOptions

if TYPE_CHECKING:
    from rillet.runtime.session import Session
    from rillet.server.persistence import ServerPersistence
    from rillet.server.process import Process
    from rillet.server.redis_conf import Configuration


class ServerServices(DefaultServices):
    """The services that a server provides to its engine."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.engine)
        self._server = server
        self.peers = PeerSockets()

    def exchange(self, address: tuple[str, str], setup: list[list[bytes]], database: int,
                 commands: list[list[bytes]], timeout_ms: int) -> Replies:  # fmt: skip
        """Send commands to another server and return its replies (MIGRATE)."""
        return self.peers.exchange(address, setup, database, commands, timeout_ms)

    def follow(self, host: str, port: int) -> None:
        """Follow a master from now on (REPLICAOF)."""
        self._server.replica.follow(host, port)

    def promote(self) -> None:
        """Become a master (REPLICAOF NO ONE)."""
        self._server.replica.stop()

    def shutdown(self, *, save: bool, nosave: bool, force: bool, now: bool) -> bool:
        """Stop the server."""
        self._server.request_stop()
        return True

    def pause(self, until_ms: int, writes_only: bool) -> None:
        """Pause the clients until a time in ms of Clock.uptime_ms (CLIENT PAUSE)."""
        self._server.pauses.begin(BY_CLIENT, until_ms, writes_only)

    def unpause(self) -> None:
        """End the pause and run the commands of the paused clients (CLIENT UNPAUSE)."""
        self._server.pauses.end(BY_CLIENT)

    def pause_state(self) -> tuple[str, int]:
        """Return the reason of the pause, and the milliseconds until it ends."""
        return self._server.pauses.reason, self._server.pauses.left()

    def failing_over(self, begins: bool) -> None:
        """Hold back writes while the role of the master is handed to a replica, or no longer (FAILOVER)."""
        if begins:
            self._server.pauses.begin(FOR_FAILOVER, FOREVER_MS, True)
        else:
            self._server.pauses.end(FOR_FAILOVER)

    def stop_process(self) -> None:
        """Stop this process until it gets SIGCONT (debug.c: debugPauseProcess)."""
        say("Process is about to stop.")
        os.kill(os.getpid(), signal.SIGSTOP)
        say("Process has been continued.")

    def pause_cron(self, paused: bool) -> None:
        """Stop or restart the periodic jobs (DEBUG PAUSE-CRON)."""
        self._server.timers.paused = paused

    def serve_while_busy(self, caller: Any) -> bool:
        """Serve the other clients once while a script runs; only the event loop's thread can do this."""
        if threading.get_ident() != self._server.engine_loop.thread:
            return False
        self._server.busy.serve(caller)
        return self._server.is_stopping()

    def script_ended(self) -> None:
        """Continue with the clients that connected while a script ran."""
        if threading.get_ident() == self._server.engine_loop.thread:
            self._server.busy.script_ended()

    def broadcast_soon(self) -> None:
        """Send the keys that changed to the clients that cache them in the next loop iteration."""
        self._server.messages.broadcast_soon()

    def post(self, function: Callable[[], object]) -> None:
        """Call a function soon in the event loop, while the guard is held."""
        self._server.engine_loop.post(function)

    def call_later(self, seconds: float, function: Callable[[], object]) -> Callable[[], object]:
        """Call a function after a time in the event loop, while the guard is held."""
        return self._server.engine_loop.call_later(seconds, function)

    def attach_replica(self, session: Session, history: str | None, offset: int) -> None:
        """Make a client's connection that of a replica (PSYNC, SYNC)."""
        if not hasattr(session.transport, "become_replica"):
            super().attach_replica(session, history, offset)
        self._server.replicas.attach(session, history, offset)

    def memory(self) -> dict[str, int]:
        """Return the resident memory of the process."""
        return memory()

    def info_sections(self) -> Mapping[str, Callable[[], Mapping[str, Any]]]:
        """Return the fields of INFO clients and INFO stats; measure the clients for INFO memory."""
        stats = self._server.stats
        self._server.client_memory.measure_few()
        return {"server": self.server_info, "clients": stats.clients, "stats": stats.stats}

    def server_info(self) -> Mapping[str, Any]:
        """Return the addresses on which the server listens (Redis 7.2), as its settings name them."""
        settings = self._engine.settings
        if not settings.compat.knows(72):
            return {}
        bound = "".join(f",bind={address}" for address in settings.bind.split())
        listening = [f"name=tcp{bound},port={settings.port}"] if settings.port else []
        if settings.unixsocket:
            listening.append(f"name=unix,bind={settings.unixsocket}")
        if settings.tls_port:
            listening.append(f"name=tls{bound},port={settings.tls_port}")
        return {f"listener{number}": text for number, text in enumerate(listening)}

    def reset_stats(self) -> None:
        """Reset the counters of clients and network traffic (CONFIG RESETSTAT)."""
        self._server.stats.reset()

    def setting_changed(self, name: str) -> None:
        """Apply the new value of a setting to the connected clients, after CONFIG SET."""
        self._server.setting_changed(name)


class DurableServices(FileServices, ServerServices):
    """The services of a server with files. `configuration` names the file that CONFIG REWRITE writes."""

    def __init__(self, server: Server, files: ServerPersistence, configuration: Configuration,
                 process: Process) -> None:  # fmt: skip
        ServerServices.__init__(self, server)
        self._process = process
        self._files: ServerPersistence = files
        self._configuration = configuration

    def shutdown(self, *, save: bool, nosave: bool, force: bool, now: bool) -> bool:
        """Write the RDB file if the flags or save points require it, then stop the server (SHUTDOWN)."""
        return self._files.shutdown.request(ShutdownOptions(save, nosave, force, now))

    def abort_shutdown(self) -> None:
        """Abort a shutdown that waits for replicas (SHUTDOWN ABORT)."""
        self._files.shutdown.abort()

    def log_line(self, text: str, level: str = "warning") -> None:
        """Write a line to the server's log."""
        say(text, LEVELS.index(level))

    def info_sections(self) -> Mapping[str, Callable[[], Mapping[str, Any]]]:
        """Return the fields of INFO clients, stats, persistence and rillet."""
        stats, children = self._server.stats, self._files.children
        self._server.client_memory.measure_few()
        return {
            "server": lambda: {**self.server_info(), "config_file": str(self._configuration.file or ""),
                               **self._files.shutdown.info()},
            "clients": stats.clients,
            "stats": lambda: {**stats.stats(), **children.stats()},
            "persistence": self._files.info,
            "rillet": self._files.stream_info,
        }

    def reset_stats(self) -> None:
        """Reset the counters of the network and of child processes (CONFIG RESETSTAT)."""
        super().reset_stats()
        self._files.children.reset()

    def setting_changed(self, name: str) -> None:
        """Apply the new value of a setting to the log, the RDB file and the connected clients, after CONFIG SET."""
        self._process.setting_changed(name)
        self._files.setting_changed(name)
        if name not in NEEDS_LOG:
            super().setting_changed(name)

    def rewrite_config(self, everything: bool) -> None:
        """Write the settings to the redis.conf that the server was started with (CONFIG REWRITE)."""
        configuration = self._configuration
        if configuration.file is None:
            super().rewrite_config(everything)
            return
        try:
            rewrite(configuration.file, configuration.settings, everything, users=self._engine.acl.lines())
        except OSError as error:
            raise CommandError(f"Rewriting config file: {error.strerror}") from error

    def read_acl_file(self) -> bytes:
        """Return the text of the ACL file (ACL LOAD)."""
        return acl_file.read(acl_file.path_of(self._engine), self._engine.settings.aclfile)

    def write_acl_file(self, text: bytes) -> None:
        """Replace the text of the ACL file (ACL SAVE)."""
        acl_file.write(acl_file.path_of(self._engine), text)

    def reload(self, *, save: bool, flush: bool, merge: bool) -> None:
        """Write the RDB file and load it again (DEBUG RELOAD)."""
        self._files.reload(save, flush, merge)

    def load_log(self) -> None:
        """Empty the databases and load the append-only file (DEBUG LOADAOF)."""
        self._files.load_log()
