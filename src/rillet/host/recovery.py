"""The report after opening a store: its figures, and one log line.

    events.rillet: process 4711 ended without closing it; 812 keys of the base file and 20,113 commands replayed
    (3.1 MB) in 0.42 s; 17 bytes of an unfinished command were dropped at offset 1,204,113 of
    appendonly.aof.3.incr.aof

The line goes to the logger "rillet.store". Its level is WARNING if a process was killed or bytes were dropped, so that
it appears without any logging configuration; otherwise INFO. `Store.recovery` contains the stats.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from rillet.loggers import logger
from rillet.persistence.aof.loader import LoadResult

LOGGER = logger("store")


@dataclass(frozen=True, slots=True)
class Recovery:
    """The stats of a recovery: keys loaded from the base file, commands replayed, bytes read, and seconds.

    killed: the PID of an owner that ended without closing the store; None if the store was closed or is new.
    dropped: bytes removed from the incomplete end, at `offset` of the log's last file; note: the text about them, and
    about refused commands that were omitted.
    adopted: the name of the RDB file whose data became the base of a new log, because the directory had no log.
    """

    path: Path
    keys: int
    commands: int
    bytes: int
    seconds: float
    killed: int | None = None
    dropped: int = 0
    offset: int = -1
    note: str = ""
    adopted: str = ""

    def __str__(self) -> str:
        if self.adopted:
            size = f"{self.bytes / 1e6:.1f} MB in {self.seconds:.2f} s"
            return f"{self.path}: {self.keys:,} keys of {self.adopted} are now the base of a new log ({size})"
        base = f"{self.keys:,} keys of the base file and " if self.keys else ""
        parts = [f"{base}{self.commands:,} commands replayed ({self.bytes / 1e6:.1f} MB) in {self.seconds:.2f} s"]
        if self.killed is not None:
            parts.insert(0, f"process {self.killed} ended without closing it")
            if not self.dropped:
                parts.append("the log was intact")
        if self.note:
            parts.append(self.note)
        return f"{self.path}: {'; '.join(parts)}"


def recovered(path: Path, killed: int | None, replayed: LoadResult) -> Recovery:
    """Report and return the result of a replay. killed: the PID of an owner that ended without closing the store."""
    found = Recovery(path, replayed.keys, replayed.commands, replayed.bytes, replayed.seconds, killed, replayed.dropped,
                     replayed.offset, note_of(replayed), replayed.adopted)  # fmt: skip
    report(found)
    return found


def note_of(replayed: LoadResult) -> str:
    """Return the text about the part of a log that was not executed, "" if everything was."""
    omitted = f"{replayed.refused:,} commands that were refused were omitted" if replayed.refused else ""
    return "; ".join(filter(None, (replayed.torn, omitted)))


def report(found: Recovery) -> None:
    """Log the line of a recovery."""
    LOGGER.log(logging.WARNING if found.killed is not None or found.note else logging.INFO, "%s", found)
