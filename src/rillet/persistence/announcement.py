"""owner.json: how other processes reach the process that owns a directory.

    {"pid": 4711, "socket": "/data/events.rillet/socket"}                           a store
    {"pid": 4711, "socket": "", "url": "redis://127.0.0.1:6379", "run_id": "..."}   rillet serve --appendonly yes

The owner writes the file when it holds the lock of the log, and removes it before it releases the lock. A killed owner
leaves the file behind, so a reader must verify it: the socket of a store lies in a folder that no other program uses,
but another server may listen on a port by then. So a reader compares `run_id` with the field of INFO.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

NAME = "owner.json"


@dataclass(frozen=True, slots=True)
class Announcement:
    """The process that owns a directory; `socket` and `url` are "" if it has none, `run_id` is "" for a store."""

    pid: int
    socket: str
    url: str = ""
    run_id: str = ""

    @property
    def is_server(self) -> bool:
        """Whether the owner is a server, whose sockets other programs use, too."""
        return bool(self.run_id)


def announce(folder: Path, owner: Announcement) -> None:
    """Write owner.json in one step; OSError if that fails."""
    content: dict[str, object] = {"pid": owner.pid, "socket": owner.socket}
    if owner.is_server:
        content |= {"url": owner.url, "run_id": owner.run_id}
    draft = folder / f".{NAME}.{os.getpid()}"
    draft.write_text(json.dumps(content) + "\n", encoding="utf-8")
    os.replace(draft, folder / NAME)


def announced(folder: Path) -> Announcement | None:
    """Return the content of owner.json, None if the file is missing or invalid."""
    try:
        found = json.loads((folder / NAME).read_bytes())
        return Announcement(int(found["pid"]), str(found["socket"]), str(found.get("url", "")),
                            str(found.get("run_id", "")))  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


__all__ = ["NAME", "Announcement", "announce", "announced"]
