"""The host of a server's engine: the services of sockets and files that commands use.

    ServerHost     any server, also the one inside a store that serves attached clients
    DurableHost    a server that owns an append-only file and an RDB file (rillet.server.app)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rillet.errors import CommandError
from rillet.runtime.host import DefaultHost
from rillet.server.config_rewrite import rewrite
from rillet.server.log_lines import LEVELS, say
from rillet.server.stats import memory

if TYPE_CHECKING:
    from rillet.server.persistence import ServerPersistence
    from rillet.server.redis_conf import Configuration
    from rillet.server.server import Server

# Settings that only a server with an append-only file can change.
NEEDS_LOG = ("appendonly", "appendfsync")


class ServerHost(DefaultHost):
    """The services that a server provides to its engine."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.engine)
        self._server = server

    def shutdown(self, *, save: bool, nosave: bool, force: bool) -> None:
        """Stop the server."""
        self._server.request_stop()

    def pause(self, until_ms: int, writes_only: bool) -> None:
        """Pause the clients until a time in milliseconds (CLIENT PAUSE)."""
        self._server.pause(until_ms, writes_only)

    def unpause(self) -> None:
        """End the pause and run the commands of the paused clients (CLIENT UNPAUSE)."""
        self._engine.unpause()

    def pause_cron(self, paused: bool) -> None:
        """Stop or restart the periodic jobs (DEBUG PAUSE-CRON)."""
        self._server.pause_cron(paused)

    def post(self, function: Callable[[], object]) -> None:
        """Call a function soon in the event loop, while the guard is held."""
        self._server.post(function)

    def call_later(self, seconds: float, function: Callable[[], object]) -> Callable[[], object]:
        """Call a function after a time in the event loop, while the guard is held."""
        return self._server.call_later(seconds, function)

    def memory(self) -> dict[str, int]:
        """Return the resident memory of the process."""
        return memory()

    def info_sections(self) -> Mapping[str, Callable[[], Mapping[str, Any]]]:
        """Return the fields of INFO clients and INFO stats."""
        return {"clients": self._server.figures.clients, "stats": self._server.figures.stats}

    def reset_statistics(self) -> None:
        """Reset the counters of clients and network traffic (CONFIG RESETSTAT)."""
        self._server.figures.reset()

    def setting_changed(self, name: str) -> None:
        """Apply the new value of a setting to the connected clients, after CONFIG SET."""
        self._server.setting_changed(name)


class DurableHost(ServerHost):
    """The host of a server with files. `configuration` names the file that CONFIG REWRITE writes."""

    def __init__(self, server: Server, files: ServerPersistence, configuration: Configuration) -> None:
        super().__init__(server)
        self._files = files
        self._configuration = configuration

    def shutdown(self, *, save: bool, nosave: bool, force: bool) -> None:
        """Write the RDB file if the flags or save points require it, then stop the server (SHUTDOWN)."""
        self._files.rdb.shutdown(save, nosave, force)

    def log_line(self, text: str, level: str = "warning") -> None:
        """Write a line to the server's log."""
        say(text, LEVELS.index(level))

    def info_sections(self) -> Mapping[str, Callable[[], Mapping[str, Any]]]:
        """Return the fields of INFO clients, stats and persistence."""
        figures, children = self._server.figures, self._files.children
        return {
            "clients": figures.clients,
            "stats": lambda: {**figures.stats(), **children.stats()},
            "persistence": self._files.info,
        }

    def reset_statistics(self) -> None:
        """Reset the counters of the network and of child processes (CONFIG RESETSTAT)."""
        super().reset_statistics()
        self._files.children.reset()

    def setting_changed(self, name: str) -> None:
        """Apply the new value of a setting to the log, the RDB file and the connected clients, after CONFIG SET."""
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
            rewrite(configuration.file, configuration.settings, everything)
        except OSError as error:
            raise CommandError(f"Rewriting config file: {error.strerror}") from error

    def save(self) -> None:
        """Write the RDB file before returning (SAVE)."""
        self._files.rdb.snapshots.save()

    def bgsave(self, *, later: bool, schedule: bool) -> bool:
        """Write the RDB file in a child process (BGSAVE)."""
        return self._files.rdb.snapshots.background(later, schedule)

    def last_save(self) -> int:
        """Return the time of the last successful save, in seconds (LASTSAVE)."""
        return self._files.rdb.snapshots.last_save

    def flushed(self) -> bool:
        """Write an empty RDB file after FLUSHALL if there are save points."""
        return self._files.rdb.snapshots.flushed()

    def reload(self, *, save: bool, flush: bool, merge: bool) -> None:
        """Write the RDB file and load it again (DEBUG RELOAD)."""
        self._files.reload(save, flush, merge)

    def rewrite_log(self, *, later: bool) -> bool:
        """Rewrite the append-only file in a child process (BGREWRITEAOF)."""
        return self._files.aof.rewrite(later)

    def load_log(self) -> None:
        """Empty the databases and load the append-only file (DEBUG LOADAOF)."""
        self._files.load_log()


__all__ = ["NEEDS_LOG", "DurableHost", "ServerHost"]
