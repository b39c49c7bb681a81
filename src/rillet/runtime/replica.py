"""The commands that a replica refuses, and the keys of a writable replica (Redis: server.c, processCommand).

    READONLY     a write of a client, with replica-read-only
    MASTERDOWN   any command that needs the data, without a link to the master and with replica-serve-stale-data no
    REDIRECT     a write of a client with CLIENT CAPA REDIRECT, and a read if it has not sent READONLY (Valkey)

On a writable replica, the keys that clients change may expire although the master does not know them. They are
remembered (`ReplicationState.own_keys`), and the engine deletes them in time (Redis: expireSlaveKeys).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet.errors import Loading, MasterDown, ReadOnly, Redirect
from rillet.runtime.pause import SCRIPT_WRITES

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine
    from rillet.runtime.registry import Command
    from rillet.runtime.session import Session


def refuse_write(engine: CommandEngine, session: Session, entry: Command, argv: list[bytes]) -> None:
    """Raise ReadOnly for a write of a client; on a writable replica, remember the keys of the write."""
    queue = [(one, words) for one, words in session.queue if one.write] if entry.fullname == "exec" else []
    engine.writing = bool(queue) or entry.write
    if not engine.writing and "may_replicate" not in entry.flags:
        return
    if engine.settings.replica_read_only:
        if engine.writing:
            engine.writing = False
            raise ReadOnly()
        return
    own = engine.replication.own_keys
    for one, words in queue or [(entry, argv)]:
        for position in one.key_positions(words):
            own[session.db.index, words[position]] = None


def redirect(engine: CommandEngine, session: Session, entry: Command, argv: list[bytes]) -> None:
    """Raise Redirect for a command that the client can send to the master instead (clientSupportStandAloneRedirect).

    Scripts with flags are writes, unless they declare `no-writes`.
    """
    queue = [one for one, _ in session.queue] if entry.fullname == "exec" else [entry]
    script_writes = SCRIPT_WRITES.get(entry.name)
    writes = (any(one.write for one in queue) or (script_writes is not None and script_writes(session, argv) is True))
    if writes or ("readonly" not in session.extra and any("readonly" in one.flags for one in queue)):
        raise Redirect(master_address(engine))


def master_address(engine: CommandEngine) -> str:
    """Return `host:port` of the master that the engine follows."""
    host, port = engine.replication.master  # type: ignore[misc]
    return f"{host}:{port}"


def _is_stale(engine: CommandEngine) -> bool:
    """Return whether the data may be old and replica-serve-stale-data forbids to show it."""
    return not engine.settings.replica_serve_stale_data and not engine.replication.link.connected


def refuse_stale(engine: CommandEngine, session: Session, entry: Command) -> None:
    """Raise MasterDown for a command that needs the data while the link to the master is down.

    While new data is loaded beside the old data, a few commands are refused as during every load.
    """
    if engine.replication.link.asynchronous and "no_async_loading" in entry.flags:
        raise Loading()
    if not _is_stale(engine):
        return
    names = [one for one, _ in session.queue] if entry.fullname == "exec" else [entry]
    if any("stale" not in one.flags for one in names):
        raise MasterDown()


def script_refusal(engine: CommandEngine, entry: Command) -> bytes | None:
    """Return the error for a command of a script on a replica, or None."""
    if entry.write and engine.settings.replica_read_only:
        return f"READONLY {ReadOnly.default}".encode()
    if "stale" not in entry.flags and _is_stale(engine):
        return f"MASTERDOWN {MasterDown.default}".encode()
    return None


def check_script(engine: CommandEngine, writes: bool, allows_stale: bool) -> None:
    """Raise the error for a script on a replica, before it runs (processCommand, scriptPrepareForRun).

    The flags of the script count as those of the command. A script without flags may write, if it calls no write.
    """
    if writes and engine.settings.replica_read_only:
        raise ReadOnly()
    if not allows_stale and _is_stale(engine):
        raise MasterDown()
