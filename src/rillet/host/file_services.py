"""FileServices: what commands get from the log and the RDB file of an engine, in a server and in a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rillet.host.files import EngineFiles
from rillet.runtime.engine_services import DefaultServices


class FileServices(DefaultServices):
    """The services of an engine's files."""

    _files: EngineFiles

    def has_child(self) -> bool:
        """Return whether another process writes a file."""
        return self._files.snapshots.busy

    def info_sections(self) -> Mapping[str, Callable[[], Mapping[str, Any]]]:
        """Return the fields of INFO persistence and rillet, and those of other services."""
        return {**super().info_sections(), "persistence": self._files.info, "rillet": self._files.stream_info}

    def save(self) -> None:
        """Write the RDB file before returning (SAVE)."""
        self._files.snapshots.save()

    def bgsave(self, *, later: bool, schedule: bool) -> bool:
        """Write the RDB file in another process (BGSAVE)."""
        return self._files.snapshots.background(later, schedule)

    def cancel_bgsave(self) -> str:
        """Stop a running or scheduled BGSAVE (BGSAVE CANCEL)."""
        snapshots = self._files.snapshots
        if snapshots.saving:
            snapshots.stop_child()
            return "Background saving cancelled"
        if snapshots.scheduled:
            snapshots.scheduled = False
            return "Scheduled background saving cancelled"
        return super().cancel_bgsave()

    def last_save(self) -> int:
        """Return the time of the last successful save, in seconds (LASTSAVE)."""
        return self._files.snapshots.last_save

    def flushed(self) -> bool:
        """End the transfers of deleted data, and write an empty RDB file if there are save points (FLUSHALL)."""
        stream = self._engine.replication.stream
        if stream is not None and stream.transfer is not None:
            stream.transfer.flushed()
        return self._files.snapshots.flushed()

    def rewrite_log(self, *, later: bool) -> bool:
        """Rewrite the append-only file in another process (BGREWRITEAOF)."""
        return self._files.aof.rewrite(later)
