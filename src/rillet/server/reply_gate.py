"""What the server keeps on disk: its log, and the RDB file that SAVE writes.

    append_only.py    the log: replayed at the start, written before replies leave, rewritten
    snapshots.py      the RDB file: loaded at the start where there is no log (server.c: loadDataFromDisk), SAVE, BGSAVE

Here is what both share: one child at a time, one clock, one refusal of writes, and the end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rillet.errors import CommandError
from rillet.persistence.aof.states import OFF
from rillet.persistence.fork import Children
from rillet.persistence.write_gate import WriteGate
from rillet.runtime.engine import Engine
from rillet.runtime.settings import SettingError
from rillet.server.aof_service import ServerLog
from rillet.server.loading import LoadingPhase
from rillet.server.rdb_service import ServerSnapshots
from rillet.server.server import Server


class ReplyGate:
    """The append-only log and the RDB file of a server's engine, opened, moved on and closed together."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine = engine
        # One child at a time, whatever it is for.
        self.children = Children()
        refusals = WriteGate(engine)
        self.aof = ServerLog(engine, folder, self.children, refusals)
        self.rdb = ServerSnapshots(engine, self.children, refusals, self.aof.prepare_end)
        self._snapshots = self.rdb.snapshots
        self._loading = LoadingPhase(engine)
        self._loaded = False

    async def open(self, stopping: Callable[[], bool]) -> bool:
        """Replay the log, or load the RDB file where the settings ask for no log, and tell what was found.

        Clients are answered meanwhile. False where `stopping` told that the server is to end.
        """
        job = self.aof.open if self._engine.settings.appendonly else self.rdb.open
        self._loaded = await self._loading.run(job, stopping)
        return self._loaded

    def close(self) -> None:
        """Write and sync the rest; nothing more is logged."""
        self.aof.close()
        self.children.stop()

    def attach(self, server: Server) -> None:
        """Run the periodic jobs on the server's timer, and end the server in order on a signal."""
        self.aof.attach(server)
        self.rdb.attach(server)
        server.cron_jobs.append(self._cron)

    def _cron(self) -> None:
        """See what children did, and begin what is due, in the order of server.c: serverCron."""
        if not self._loaded:
            return
        self.children.poll()
        self._snapshots.cron()
        self.aof.cron()
        self._snapshots.cron_scheduled()

    def setting_changed(self, name: str) -> None:
        """Apply a setting of the files; SettingError rejects it."""
        if name == "appendonly" and not self._loaded:
            raise SettingError("the dataset is still being loaded")
        self.rdb.setting_changed(name)
        self.aof.setting_changed(name)

    def facts(self) -> dict[str, object]:
        """Return the fields of INFO persistence."""
        return {**self.rdb.facts(), **self.aof.facts(), **self._loading.facts()}

    def reload(self, save: bool, flush: bool, merge: bool) -> None:
        """Write and load the RDB file; what another one brought begins a new log."""
        if save:
            self._snapshots.write()
        try:
            self._snapshots.reload(False, flush, merge)
        except CommandError as error:
            if self.aof.log.state != OFF:
                # The log leads elsewhere, and what was written on here might be refused when it is replayed.
                self.aof.lose(str(error).removeprefix("ERR "))
            raise
        if not (save and flush):
            self.aof.begin_anew()


__all__ = ["ReplyGate"]
