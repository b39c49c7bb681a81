"""What the server keeps on disk: its log, and the RDB file that SAVE writes.

The log is opened at the start, turned on and off, rewritten and reloaded by commands, closed at the end. CONFIG SET
appendonly yes writes a base of the data and logs from then on; BGREWRITEAOF replaces the files by a new base. A
server without a log begins with the RDB file, if there is one (server.c: loadDataFromDisk). The server stands still
while either is written (rillet.persistence.rdb_writer says why); BGSAVE and BGREWRITEAOF wait for the end of the
turn's commands, so that no half of a transaction is in the file.
"""

from __future__ import annotations

import asyncio
import warnings
from functools import partial
from pathlib import Path

from rillet.commands.settings import SettingError
from rillet.engine import Engine
from rillet.errors import CommandError, Corrupt, Misconf, StoreError
from rillet.persistence.aof import AppendOnlyLog, TornLog
from rillet.persistence.child import Children
from rillet.persistence.refusals import LOG, Refusals
from rillet.persistence.rewriting import rewrite
from rillet.server.messages import WARNING, say
from rillet.server.server import Server
from rillet.server.snapshots import ServerSnapshots


class Durability:
    """The append-only log and the RDB file of a server's engine, and the services that commands ask of them."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine = engine
        self._folder = folder
        self._log: AppendOnlyLog | None = None
        self._rewriting = False
        # One child at a time, whatever it is for.
        self.children = Children()
        self._refusals = Refusals(engine)
        self._file = ServerSnapshots(engine, self.children, self._refusals, self._prepare_end)
        self._snapshots = self._file.snapshots
        engine.services.update(load_log=self._load, rewrite_log=self._rewrite_soon, log_line=partial(say, level=WARNING),
                               reload=self._reload)  # fmt: skip
        engine.info_sections["persistence"] = self._facts

    def open(self) -> None:
        """Replay the log, or load the RDB file where the settings ask for no log, and tell what was found."""
        if not self._engine.settings.appendonly:
            self._file.open()
            return
        self._log = self._new_log()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", TornLog)
            replayed = self._log.open(self._engine)
        for one in told:
            say(str(one.message))
        if replayed.commands:
            say(f"{replayed.commands} commands ({replayed.bytes} bytes) replayed in {replayed.seconds:.2f} s")

    def _facts(self) -> dict[str, object]:
        return {**self._file.facts(), "aof_rewrite_in_progress": int(self._rewriting), "aof_rewrite_scheduled": 0}

    def close(self) -> None:
        """Write and sync the rest; nothing more is logged."""
        self.children.stop()
        self._close_log()

    def _close_log(self) -> None:
        self._engine.log = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def attach(self, server: Server) -> None:
        """Let CONFIG SET reach the files as well as the clients, and the server's clock and its end."""

        def changed(name: str) -> None:
            self._file.setting_changed(name)
            if name == "appendonly":
                self._turn(self._engine.settings.appendonly)
            elif name == "appendfsync":
                if self._log is not None:
                    self._log.set_fsync(self._engine.settings.appendfsync)
            else:
                server.setting_changed(name)

        self._engine.services["setting_changed"] = changed
        self._file.attach(server)
        server.cron_jobs.append(self._cron)

    def _cron(self) -> None:
        """See what children did, and begin what is due, in the order of server.c: serverCron."""
        self.children.poll()
        self._snapshots.cron()
        self._snapshots.cron_scheduled()

    def _prepare_end(self, force: bool) -> None:
        """Do what the log needs before the end; CommandError where the end has to wait."""

    def _new_log(self) -> AppendOnlyLog:
        settings = self._engine.settings
        return AppendOnlyLog(self._folder / settings.appenddirname, name=settings.appendfilename,
                             fsync=settings.appendfsync, on_failure=self._failed)  # fmt: skip

    def _failed(self, reason: str) -> None:
        self._refusals.set(LOG, reason)
        say(f"{reason}; writes are refused from now on")

    def _turn(self, on: bool) -> None:
        if not on:
            self._close_log()
        elif self._log is None:
            log = self._new_log()
            try:
                rewrite(log, self._engine)
                log.start(self._engine)
            except (OSError, StoreError) as error:
                raise SettingError(f"the append-only file cannot be written: {error}") from error
            self._log = log

    def _load(self) -> None:
        """Empty the databases and fill them from the files (debug.c: DEBUG LOADAOF)."""
        log = self._log or self._new_log()
        if not log.path.exists():
            raise CommandError("there is no append-only file to load")
        try:
            log.close()
            for database in self._engine.databases:
                database.flush()
            log.open(self._engine)
            if self._log is None:
                self._engine.log = None
                log.close()
        except (OSError, StoreError, Corrupt) as error:
            # The databases hold a part of it, and nothing may be added to what could not be read.
            self._failed(f"the append-only file cannot be loaded: {error}")
            raise CommandError(str(self._engine.refusal)) from error

    def _rewrite_soon(self) -> None:
        """Rewrite once this turn's commands are logged: a transaction's first half must not be in the base."""
        if self._rewriting:
            raise CommandError("Background append only file rewriting already in progress")
        self._rewriting = True
        asyncio.get_running_loop().call_soon(self._rewrite)

    def _rewrite(self) -> None:
        """Replace the log's files; without a log, leave the data as one that is not written on (as Redis does)."""
        self._rewriting = False
        log = self._log or self._new_log()
        try:
            log.close()
            rewrite(log, self._engine)
        except (OSError, StoreError, Misconf) as error:
            say(f"the append-only file could not be rewritten, the old one goes on: {error}")
        if self._log is not None and log.failure is None:
            log.start(self._engine)

    def _reload(self, save: bool, flush: bool, merge: bool) -> None:
        """Write and load the RDB file; what another one brought begins a new log."""
        if save:
            self._snapshots.write()
        try:
            self._snapshots.reload(False, flush, merge)
        except CommandError as error:
            if self._log is not None:
                # The log leads elsewhere, and what was written on here might be refused when it is replayed.
                self._failed(str(error).removeprefix("ERR "))
            raise
        if self._log is not None and not (save and flush):
            self._rewrite_soon()


__all__ = ["Durability"]
