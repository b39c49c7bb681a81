"""MONITOR: show every command that the server runs (Redis: replication.c); runtime/monitors.py writes the lines."""

from __future__ import annotations

from rillet.commands.connection import command
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.runtime.session_state import MONITOR


@command("monitor", arity=1, flags="admin noscript loading stale", group="server", since="1.0.0", complexity="O(1)")
def monitor(session: Session, argv: list[bytes]) -> None:
    """Send every command that runs from now on to this connection."""
    if not session.can_block:
        # A client of this kind cannot show a stream of lines, for example inside EXEC's array.
        raise CommandError("MONITOR isn't allowed for DENY BLOCKING client")
    if session.state & MONITOR:
        return  # without a reply, as in Redis
    session.engine.monitors.add(session)
    session.out.ok()
