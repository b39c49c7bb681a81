"""The commands about the connection itself: ECHO, SELECT, QUIT, RESET (Redis: server.c, db.c, networking.c)."""

from __future__ import annotations

from rillet.commands.arguments import small_integer
from rillet.commands.connection import command
from rillet.errors import CommandError
from rillet.runtime.session import Session

_CONNECTION_FLAGS = "noscript loading stale"


@command("quit", arity=-1, flags=_CONNECTION_FLAGS + " fast no_auth allow_busy", since="1.0.0", complexity="O(1)")
def quit_(session: Session, argv: list[bytes]) -> None:
    """Close the connection after the replies are sent."""
    session.out.ok()
    session.enter("close")


@command("reset", arity=1, flags=_CONNECTION_FLAGS + " fast no_auth allow_busy", since="6.2.0", complexity="O(1)")
def reset(session: Session, argv: list[bytes]) -> None:
    """Reset the connection to the state of a new one."""
    engine = session.engine
    session.discard()
    engine.channels.forget(session)
    engine.monitors.forget(session)
    engine.tracking.disable(session)
    if engine.settings.compat.knows(72):
        session.extra.pop("no_evict", None)
    session.extra.pop("readonly", None)
    session.db = engine.databases[0]
    session.out.resp = 2
    session.name = b""
    session.enter("reset")
    if not session.trusted:
        engine.acl.begin(session)
    session.out.simple(b"RESET")


@command("echo", arity=2, flags="loading stale fast", since="1.0.0", syntax="message", complexity="O(1)")
def echo(session: Session, argv: list[bytes]) -> None:
    """Reply with the message."""
    session.out.bulk(argv[1])


@command("select", arity=2, flags="loading stale fast", since="1.0.0", syntax="index", complexity="O(1)")
def select(session: Session, argv: list[bytes]) -> None:
    """Switch to another database."""
    index = small_integer(argv[1])
    if not 0 <= index < len(session.engine.databases):
        raise CommandError("DB index is out of range")
    session.db = session.engine.databases[index]
    session.out.ok()
