"""owner.json: how other processes reach the process that owns a directory.

    {"pid": 4711, "version": "0.1.0", "protocol": 1, "oldest": 1,                   every owner
     "socket": "/data/events.rillet/socket", "separate": false}                     a store
     "socket": "", "url": "redis://127.0.0.1:6379", "run_id": "..."}                rillet serve --appendonly yes

The owner writes the file when it holds the lock of the log, and removes it before it releases the lock. A killed owner
leaves the file behind, so a reader must verify it: the socket of a store lies in a folder that no other program uses,
but another server may listen on a port by then. So a reader compares `run_id` with the field of INFO.

**Versions.** Owner and client may run different versions of rillet. Both speak RESP, and a command that the owner lacks
is an error of that command. `protocol` counts changes that RESP does not show: what a client assumes of the owner's
files, socket and replies. A process works with the protocols from `oldest` to `protocol`; two processes work together
if their ranges overlap (`check_version`), else opening the directory raises IncompatibleOwner. A file without these
fields means protocol 1.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path

import rillet
from rillet.errors import IncompatibleOwner

NAME = "owner.json"
# Raise PROTOCOL if a client of the previous number cannot use this owner, or the reverse; see the head of this file.
PROTOCOL = 1
OLDEST = 1


@dataclass(frozen=True, slots=True)
class Announcement:
    """The process that owns a directory; `socket` and `url` are "" if it has none, `run_id` is "" for a store.

    separate: whether it is the process of `rillet.open(path, owner="process")`, which does nothing else.
    """

    pid: int
    socket: str
    url: str = ""
    run_id: str = ""
    separate: bool = False
    version: str = rillet.__version__
    protocol: int = PROTOCOL
    oldest: int = OLDEST

    @property
    def is_server(self) -> bool:
        """Whether the owner is a server, whose sockets other programs use, too."""
        return bool(self.run_id)


def announce(folder: Path, owner: Announcement) -> None:
    """Write owner.json in one step; OSError if that fails."""
    content: dict[str, object] = {"pid": owner.pid, "version": owner.version, "protocol": owner.protocol,
                                  "oldest": owner.oldest, "socket": owner.socket}  # fmt: skip
    content |= {"url": owner.url, "run_id": owner.run_id} if owner.is_server else {"separate": owner.separate}
    draft = folder / f".{NAME}.{os.getpid()}"
    draft.write_text(json.dumps(content) + "\n", encoding="utf-8")
    os.replace(draft, folder / NAME)


def announced(folder: Path) -> Announcement | None:
    """Return the content of owner.json, None if the file is missing or invalid."""
    try:
        return _parsed((folder / NAME).read_bytes())
    except OSError:
        return None


def is_announced(folder: Path, owner: Announcement) -> bool:
    """Return whether owner.json still names the owner; also if this process has too many open files to read it."""
    try:
        return _parsed((folder / NAME).read_bytes()) == owner
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)


def _parsed(content: bytes) -> Announcement | None:
    try:
        found = json.loads(content)
        return Announcement(
            int(found["pid"]), str(found["socket"]), str(found.get("url", "")), str(found.get("run_id", "")),
            bool(found.get("separate", False)), str(found.get("version", "?")), int(found.get("protocol", 1)),
            int(found.get("oldest", 1)),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def check_version(folder: Path, owner: Announcement) -> None:
    """Raise IncompatibleOwner if this process and the owner have no protocol in common."""
    if owner.oldest > PROTOCOL or owner.protocol < OLDEST:
        raise IncompatibleOwner(
            f"{folder} is open in process {owner.pid}, which runs rillet {owner.version} with the protocols "
            f"{owner.oldest} to {owner.protocol}; this is rillet {rillet.__version__} with {OLDEST} to {PROTOCOL}: "
            "install the same version for both programs, or end that process"
        )
