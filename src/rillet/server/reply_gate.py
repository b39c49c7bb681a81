"""What the server keeps on disk: its log, and the RDB file that SAVE writes.

    append_only.py    the log: replayed at the start, written before replies leave, rewritten
    snapshots.py      the RDB file: loaded at the start where there is no log (server.c: loadDataFromDisk), SAVE, BGSAVE

Here is what both share: one child at a time, one clock, one refusal of writes, and the end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rillet.errors import CommandError
from rillet.persistence.aof.log import OFF
from rillet.persistence.fork import Children
from rillet.persistence.write_gate import WriteGate
from rillet.runtime.engine import Engine
from rillet.runtime.settings import SettingError
from rillet.server.aof_service import ServerLog
from rillet.server.loading import LoadingPhase
from rillet.server.log_lines import LEVELS, say
from rillet.server.rdb_service import ServerSnapshots
from rillet.server.server import Server


class ReplyGate:
    """The append-only log and the RDB file of a server's engine, and the services that commands ask of them."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine = engine
        # One child at a time, whatever it is for.
        self.children = Children()
        refusals = WriteGate(engine)
        self._log = ServerLog(engine, folder, self.children, refusals)
        self._file = ServerSnapshots(engine, self.children, refusals, self._log.prepare_end)
        self._snapshots = self._file.snapshots
        engine.services.update(log_line=_log_line, reload=self._reload)
        self._loading = LoadingPhase(engine)
        self._loaded = False
        engine.info_sections["persistence"] = lambda: {**self._file.facts(), **self._log.facts(),
                                                       **self._loading.facts()}  # fmt: skip

    async def open(self, stopping: Callable[[], bool]) -> bool:
        """Replay the log, or load the RDB file where the settings ask for no log, and tell what was found.

        Clients are answered meanwhile. False where `stopping` told that the server is to end.
        """
        job = self._log.open if self._engine.settings.appendonly else self._file.open
        self._loaded = await self._loading.run(job, stopping)
        return self._loaded

    def close(self) -> None:
        """Write and sync the rest; nothing more is logged."""
        self._log.close()
        self.children.stop()

    def attach(self, server: Server) -> None:
        """Let CONFIG SET reach the files as well as the clients, and the server's clock and its end."""

        def changed(name: str) -> None:
            if name == "appendonly" and not self._loaded:
                raise SettingError("the dataset is still being loaded")
            self._file.setting_changed(name)
            self._log.setting_changed(name)
            if name not in ("appendonly", "appendfsync"):
                server.setting_changed(name)

        self._engine.services["setting_changed"] = changed
        self._log.attach(server)
        self._file.attach(server)
        server.cron_jobs.append(self._cron)

    def _cron(self) -> None:
        """See what children did, and begin what is due, in the order of server.c: serverCron."""
        if not self._loaded:
            return
        self.children.poll()
        self._snapshots.cron()
        self._log.cron()
        self._snapshots.cron_scheduled()

    def _reload(self, save: bool, flush: bool, merge: bool) -> None:
        """Write and load the RDB file; what another one brought begins a new log."""
        if save:
            self._snapshots.write()
        try:
            self._snapshots.reload(False, flush, merge)
        except CommandError as error:
            if self._log.log.state != OFF:
                # The log leads elsewhere, and what was written on here might be refused when it is replayed.
                self._log.lose(str(error).removeprefix("ERR "))
            raise
        if not (save and flush):
            self._log.begin_anew()


def _log_line(text: str, level: str = "warning") -> None:
    """Write a line to the server's log for what lies below the server; the level is one of `loglevel`."""
    say(text, LEVELS.index(level))


__all__ = ["ReplyGate"]
