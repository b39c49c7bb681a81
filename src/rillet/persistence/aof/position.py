"""The position note: a line at the end of a log that names the data's place in a history of replication.

    *3 $3 SET ... *5 $4 XADD ...                 one write to the log
    #RP:<repl-id>:<repl-offset>:<database>\\r\\n    the last line of this write

redis-server 7.0 and later skip lines that begin with #. (Redis itself stores no position with a log, and begins with a
full synchronisation after a restart.)

A note counts only if it is the last line of the last file that has content. Then the log has exactly the changes up to
the offset: a write with changes contains them and the note in one piece, so after a crash the file ends with a note,
or without a position. Commands that another server appends later have no note, and end its validity.

The text of a value may look like a note. So `find` returns only a candidate, and the loader checks that a command ends
before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rillet.persistence.disk import Disk

PREFIX = b"#RP:"
_NOTE = re.compile(rb"#RP:([0-9a-f]{40}):(\d{1,19}):(\d{1,10})\r\n")
_LONGEST = 96


class PositionNote(NamedTuple):
    """A line that may be a note: its place in the file, and the fields of an RDB file that say the same."""

    start: int
    facts: dict[bytes, bytes]


def note(facts: Mapping[bytes, bytes]) -> bytes:
    """Return the note of a position, from the auxiliary fields of an RDB file."""
    return b"".join((PREFIX, facts[b"repl-id"], b":", facts[b"repl-offset"], b":", facts[b"repl-stream-db"], b"\r\n"))


def find(disk: Disk, path: Path, size: int) -> PositionNote | None:
    """Return the note with which a file of this size ends, if the last line looks like one."""
    with disk.read_from(path) as file:
        file.seek(max(size - _LONGEST, 0))
        tail = file.read(_LONGEST)
    at = tail.rfind(PREFIX)
    found = _NOTE.fullmatch(tail, at) if at >= 0 else None
    if found is None:
        return None
    name, offset, db = found.groups()
    return PositionNote(size - (len(tail) - at), {b"repl-id": name, b"repl-offset": offset, b"repl-stream-db": db})
