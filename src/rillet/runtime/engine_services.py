"""EngineServices: what the engine requires from the program that contains it.

    server   -> rillet.server.server_services   sockets, CLIENT PAUSE, a configuration file, RDB file, append-only file
    store    -> rillet.store.sharing            the same without SHUTDOWN, in the process of an application
    memory   -> rillet.host.memory_services     later calls in a thread, connections of MIGRATE
    neither  -> DefaultServices                 an engine in memory, in a test or in a Spark task

The engine opens no file, socket or thread. A command that needs one calls a method of `Engine.services`. The services
of a program derive from DefaultServices and override what it provides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rillet.errors import CommandError
from rillet.protocol.peer_replies import Replies
from rillet.runtime.settings.setting_types import SettingError
from rillet.runtime.settings.settings import PARAMETERS
from rillet.types.module import KeyPlace
from rillet.types.rdb import value as rdb

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine
    from rillet.runtime.session import Session

try:
    import resource
except ModuleNotFoundError:  # Windows lacks the module `resource`
    resource = None  # type: ignore[assignment]

_NO_RDB_FILE = "this store is in memory and has no RDB file; Store.save(path) writes one"

_NO_ACL_FILE = "only a server has an ACL file"


class EngineServices(Protocol):
    """The services that commands use; a method raises CommandError if it cannot do its work.

    Each method's default is for an engine without server and files: the method does nothing, or refuses with a reason.
    """

    _engine: CommandEngine
    _jobs: list[tuple[int, Callable[[], object]]]

    # -- the process ---------------------------------------------------------------------------------

    def shutdown(self, *, save: bool, nosave: bool, force: bool, now: bool) -> bool:
        """Write the RDB file if the flags or the save points require it, then end the process (SHUTDOWN).

        Return False if the server waits for its replicas first.
        """
        raise CommandError("SHUTDOWN needs a server; the process that opened this store closes it")

    def abort_shutdown(self) -> None:
        """Abort a shutdown that waits for replicas (SHUTDOWN ABORT)."""
        raise CommandError("No shutdown in progress.")

    def pause(self, until_ms: int, writes_only: bool) -> None:
        """Hold back the commands of all clients, or their writes, until a time of Clock.uptime_ms (CLIENT PAUSE)."""
        raise CommandError("CLIENT PAUSE needs a server; this store runs inside its process")

    def unpause(self) -> None:
        """End a pause and run the commands that were held back (CLIENT UNPAUSE)."""
        return

    def pause_state(self) -> tuple[str, int]:
        """Return the reason of a pause, and the milliseconds until it ends."""
        return "none", 0

    def failing_over(self, begins: bool) -> None:
        """Hold back writes while the role of the master is handed to a replica, or no longer (FAILOVER)."""
        return

    def has_child(self) -> bool:
        """Return whether a child process writes a file."""
        return False

    def pause_cron(self, paused: bool) -> None:
        """Stop or restart the periodic jobs (DEBUG PAUSE-CRON)."""
        return

    def stop_process(self) -> None:
        """Stop this process until it gets SIGCONT (DEBUG REPL-PAUSE)."""
        return

    def memory(self) -> dict[str, int]:
        """Return used_memory and used_memory_peak in bytes (INFO memory).

        Default: the peak of this process for both fields, 0 if the operating system does not report it.
        """
        if resource is None:
            return {"used_memory": 0, "used_memory_peak": 0}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return {"used_memory": peak, "used_memory_peak": peak}

    def log_line(self, text: str, level: str = "warning") -> None:
        """Write a line to the server's log; `level` is one of `loglevel`."""
        return

    def info_sections(self) -> Mapping[str, Callable[[], Mapping[str, Any]]]:
        """Return a function for each INFO section; its fields override or extend the engine's fields."""
        return {}

    def reset_stats(self) -> None:
        """Reset the counters of the services (CONFIG RESETSTAT)."""
        return

    # -- other servers -------------------------------------------------------------------------------

    def follow(self, host: str, port: int) -> None:
        """Follow a master from now on (REPLICAOF)."""
        raise CommandError("REPLICAOF needs a server")

    def promote(self) -> None:
        """Become a master (REPLICAOF NO ONE)."""
        return

    def exchange(self, address: tuple[str, str], setup: list[list[bytes]], database: int,
                 commands: list[list[bytes]], timeout_ms: int) -> Replies:  # fmt: skip
        """Send commands about keys of a database to another server, and return its replies (MIGRATE)."""
        raise CommandError("MIGRATE needs a server or a store")

    def serve_while_busy(self, caller: Any) -> bool:
        """Serve the other clients once while a script of `caller` runs for too long; return whether it must end now.

        Default: other clients wait until the script ends.
        """
        return False

    def script_ended(self) -> None:
        """Continue as usual after a script that ran for too long."""
        return

    # -- replication ---------------------------------------------------------------------------------

    def attach_replica(self, session: Session, history: str | None, offset: int) -> None:
        """Make a client's connection that of a replica (PSYNC; SYNC if history is None); CommandError."""
        raise CommandError("PSYNC needs a server, or a store that serves a socket")

    # -- later calls ---------------------------------------------------------------------------------

    def post(self, function: Callable[[], object]) -> None:
        """Call a function soon, while no command runs. Any thread may call this.

        Default: `run_jobs` calls it.
        """
        self._jobs.append((0, function))

    def broadcast_soon(self) -> None:
        """Send the keys that changed to the clients that cache them, soon, while no command runs."""
        self.post(self._engine.tracking.broadcast)

    def call_later(self, seconds: float, function: Callable[[], object]) -> Callable[[], object]:
        """Call a function once after a time, while no command runs; return a function that cancels this.

        Default: `run_jobs` calls it.
        """
        job = (self._engine.clock.uptime_ms() + int(seconds * 1000), function)
        self._jobs.append(job)

        def cancel() -> None:
            if job in self._jobs:
                self._jobs.remove(job)

        return cancel

    def run_jobs(self) -> None:
        """Call the functions of `post` and `call_later` that are due; for an engine without server and store."""
        now = self._engine.clock.uptime_ms()
        due = [job for job in self._jobs if job[0] <= now]
        for job in due:
            self._jobs.remove(job)
            job[1]()

    # -- settings ------------------------------------------------------------------------------------

    def setting_changed(self, name: str) -> None:
        """Apply a setting that CONFIG SET changed; SettingError rejects it, and CONFIG SET restores the value.

        Default: reject the settings that only a server or a store in a directory can apply.
        """
        if name in PARAMETERS and PARAMETERS[name].needs_host:
            raise SettingError("can't be changed after the start")

    def rewrite_config(self, everything: bool) -> None:
        """Write the settings to the configuration file, the defaults too if `everything` (CONFIG REWRITE)."""
        raise CommandError("The server is running without a config file")

    # -- the ACL file --------------------------------------------------------------------------------

    def read_acl_file(self) -> bytes:
        """Return the text of the file that the setting `aclfile` names (ACL LOAD)."""
        raise CommandError(_NO_ACL_FILE)

    def write_acl_file(self, text: bytes) -> None:
        """Replace the text of the file that the setting `aclfile` names (ACL SAVE)."""
        raise CommandError(_NO_ACL_FILE)

    # -- the RDB file --------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the RDB file before returning (SAVE)."""
        raise CommandError(_NO_RDB_FILE)

    def bgsave(self, *, later: bool, schedule: bool) -> bool:
        """Start to write the RDB file in the background and return True, or schedule that and return False (BGSAVE).

        later: only schedule the save, as in a transaction; schedule: wait for another child instead of failing.
        """
        raise CommandError(_NO_RDB_FILE)

    def cancel_bgsave(self) -> str:
        """Stop a running or scheduled BGSAVE, and return the status reply (Valkey's BGSAVE CANCEL)."""
        raise CommandError("Background saving is currently not in progress or scheduled")

    def last_save(self) -> int:
        """Return the time of the last save of the RDB file, in seconds since the epoch (LASTSAVE).

        Default: the creation time of the engine.
        """
        started: int = self._engine.started_ms
        return started // 1000

    def flushed(self) -> bool:
        """Handle FLUSHALL: return whether an empty RDB file was written, so that there are no unsaved changes."""
        return False

    def reload(self, *, save: bool, flush: bool, merge: bool) -> None:
        """Write the RDB file if `save`, empty the databases if `flush`, then load the file (DEBUG RELOAD).

        Default: replace each value by the one that its RDB bytes decode to, the closest to a reload without a file.
        """
        settings = self._engine.settings
        for database in self._engine.databases:
            for key, value in list(database.items()):
                place = KeyPlace(database.index, key)
                payload = rdb.dump(value, settings.rdbcompression, place=place)
                database.exchange(key, rdb.restore(payload, settings, place=place))

    # -- the append-only file ------------------------------------------------------------------------

    def rewrite_log(self, *, later: bool) -> bool:
        """Start to rewrite the append-only file and return True, or schedule that and return False (BGREWRITEAOF)."""
        raise CommandError("BGREWRITEAOF needs a server with an append-only file")

    def load_log(self) -> None:
        """Empty the databases and load the append-only file (DEBUG LOADAOF)."""
        raise CommandError("there is no append-only file to load")


class DefaultServices(EngineServices):
    """The services of an engine that has no server and no files, and the base class of the others."""

    def __init__(self, engine: CommandEngine) -> None:
        self._engine = engine
        self._jobs = []
