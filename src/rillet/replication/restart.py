"""The position of a server after a restart, from the auxiliary fields of its RDB file (Redis: rdbPopulateSaveInfo).

    repl-id, repl-offset    the history and the offset of the data
    repl-stream-db          the database that the stream had selected there

A log ends with the same fields, also after a crash (rillet.persistence.aof.position). Redis begins with a full
synchronisation when it has a log.

A replica continues at this position. A master begins a new history that continues the stored one, so that its replicas
continue, too, if its backlog holds what they lack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine


def restore(engine: Engine, facts: Mapping[bytes, bytes], *, replica: bool) -> bool:
    """Take the position of loaded data; return whether the fields contain one."""
    name, offset = facts.get(b"repl-id", b""), facts.get(b"repl-offset", b"")
    if len(name) != 40 or not offset.isdigit():
        return False
    state = engine.replication
    state.offset = int(offset)
    if replica:
        state.id = name.decode("ascii", "replace")
        db = facts.get(b"repl-stream-db", b"0")
        state.db = int(db) if db.isdigit() and int(db) < len(engine.databases) else 0
    else:
        state.id2, state.second_offset = name.decode("ascii", "replace"), state.offset + 1
    return True


__all__ = ["restore"]
