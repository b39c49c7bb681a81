"""TIME (Redis: server.c)."""

from __future__ import annotations

from typing import Any

from rillet.commands.server import command
from rillet.runtime.session import Session


@command("time", arity=1, flags="loading stale fast", since="2.6.0", complexity="O(1)")
def time(session: Session, argv: list[bytes]) -> None:
    """Return the time: seconds since the epoch, and microseconds."""
    clock: Any = session.engine.clock
    scripts = session.engine.scripts
    if scripts is not None and not session.engine.settings.compat.knows(72):
        clock = clock.inner  # since 7.2 the time stands still inside a script
    seconds, microseconds = divmod(clock.now_us(), 1_000_000)
    session.out.array(2)
    session.out.bulk_int(seconds)
    session.out.bulk_int(microseconds)
