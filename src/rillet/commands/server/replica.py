"""REPLICAOF, ROLE, and the fields of INFO replication of a replica (Redis: replication.c, server.c).

`EngineServices.follow` opens the connection; rillet.replication.replica has the states that ROLE and INFO show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet.commands.arguments import integer, text
from rillet.commands.server import command
from rillet.errors import CommandError
from rillet.runtime.session import Session

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

_CONNECTED = "connected"


@command("role", arity=1, flags="noscript loading stale fast", since="2.8.12", complexity="O(1)")
def role(session: Session, argv: list[bytes]) -> None:
    """Return the role: master, offset, replicas; or slave, address of the master, state of the link, offset."""
    state, out = session.engine.replication, session.out
    if state.master is None:
        out.array(3)
        out.bulk(b"master")
        out.integer(state.position())
        replicas = [] if state.stream is None else state.stream.replicas_for_role()
        out.array(len(replicas))
        for address, port, offset in replicas:
            out.array(3)
            out.bulk(address)
            out.bulk(str(port).encode())
            out.bulk(str(offset).encode())
        return
    host, port = state.master
    out.array(5)
    out.bulk(b"slave")
    out.bulk(host.encode("utf-8", "surrogateescape"))
    out.integer(port)
    out.bulk(state.link.state.encode())
    out.integer(state.offset if state.link.connected else -1)


def _follow(session: Session, argv: list[bytes]) -> None:
    engine = session.engine
    state = engine.replication
    if argv[1].lower() == b"no" and argv[2].lower() == b"one":
        if state.master is not None:
            engine.services.promote()
            engine.services.log_line(f"MASTER MODE enabled (user request from '{_client(session)}')")
        session.out.ok()
        return
    port = integer(argv[2], "Invalid master port")
    if not 0 <= port <= 65535:
        raise CommandError("Invalid master port")
    host = text(argv[1])
    if state.master is not None and state.master[0].lower() == host.lower() and state.master[1] == port:
        engine.services.log_line("REPLICAOF would result into synchronization with the master we are already connected "
                             "with. No operation performed.", "notice")  # fmt: skip
        session.out.simple(b"OK Already connected to specified master")
        return
    engine.services.follow(host, port)
    engine.services.log_line(f"REPLICAOF {host}:{port} enabled (user request from '{_client(session)}')", "notice")
    session.out.ok()


def _client(session: Session) -> str:
    return f"id={session.id} addr={session.address('peer').decode('utf-8', 'replace')}"


@command("replicaof", arity=3, flags="admin noscript stale no_async_loading", since="5.0.0",
         syntax="<host port | NO ONE>", complexity="O(1)")
def replicaof(session: Session, argv: list[bytes]) -> None:
    """Follow a master: its data replaces this server's; NO ONE: stop, and become a master with the current data."""
    _follow(session, argv)


@command("slaveof", arity=3, flags="admin noscript stale no_async_loading", since="1.0.0",
         syntax="<host port | NO ONE>", complexity="O(1)")
def slaveof(session: Session, argv: list[bytes]) -> None:
    """Follow a master, or stop (REPLICAOF)."""
    _follow(session, argv)


def replica_info(engine: CommandEngine) -> dict[str, Any]:
    """Return the fields of INFO replication that only a replica has (server.c: genRedisInfoString)."""
    state, settings = engine.replication, engine.settings
    compat, link = settings.compat, state.link
    host, port = state.master  # type: ignore[misc]
    now = engine.clock.now_ms()
    applier = link.applier
    known = applier is not None or link.resumable
    facts: dict[str, Any] = {
        "master_host": host, "master_port": port, "master_link_status": "up" if link.connected else "down",
        "master_last_io_seconds_ago": (now - link.last_io_ms) // 1000 if link.connected else -1,
        "master_sync_in_progress": int(link.state == "sync"),
        "slave_read_repl_offset": applier.fed if applier is not None else state.offset if known else 1,
        "slave_repl_offset": state.offset if known else 1,
    }  # fmt: skip
    if compat.valkey:
        facts |= {"replicas_repl_buffer_size": 0, "replicas_repl_buffer_peak": 0}
    elif compat.knows(80):
        buffer = link.early.buffer
        facts |= {"replica_full_sync_buffer_size": buffer.size, "replica_full_sync_buffer_peak": buffer.peak}
        if compat.knows(82):
            facts |= {"master_current_sync_attempts": link.attempts, "master_total_sync_attempts": link.total_attempts}
    if link.state == "sync":
        size, read = max(link.snapshot_size, 0), link.snapshot_read
        facts |= {
            "master_sync_total_bytes": size, "master_sync_read_bytes": read, "master_sync_left_bytes": size - read,
            "master_sync_perc": f"{100 * read / size if size else 0:.2f}",
            "master_sync_last_io_seconds_ago": (now - link.last_io_ms) // 1000,
        }  # fmt: skip
    down = (now - link.down_since_ms) // 1000 if link.down_since_ms else -1
    newer = compat.knows(82) and not compat.valkey
    if not link.connected:
        facts["master_link_down_since_seconds"] = down
    elif newer:
        facts["master_link_up_since_seconds"] = (now - link.up_since_ms) // 1000
        if compat.knows(84):
            facts["master_client_io_thread"] = 0
    if newer:
        facts["total_disconnect_time_sec"] = link.disconnected_ms // 1000 + max(down, 0)
    return facts | {
        "slave_priority": settings.replica_priority, "slave_read_only": int(settings.replica_read_only),
        "replica_announced": int(settings.replica_announced),
    }  # fmt: skip
