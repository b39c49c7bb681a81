"""TIME, ROLE and LOLWUT (Redis: server.c, replication.c, lolwut.c)."""

from __future__ import annotations

from rillet.commands.server import command
from rillet.runtime.session import Session


@command("time", arity=1, flags="loading stale fast", since="2.6.0", complexity="O(1)")
def time(session: Session, argv: list[bytes]) -> None:
    """Return the time: seconds since the epoch, and microseconds."""
    seconds, microseconds = divmod(session.engine.clock.now_us(), 1_000_000)
    session.out.array(2)
    session.out.bulk_int(seconds)
    session.out.bulk_int(microseconds)


@command("role", arity=1, flags="noscript loading stale fast", since="2.8.12", complexity="O(1)")
def role(session: Session, argv: list[bytes]) -> None:
    """Return the replication role: master, without replicas."""
    session.out.array(3)
    session.out.bulk(b"master")
    session.out.integer(0)
    session.out.array(0)


@command("lolwut", arity=-1, flags="readonly fast", since="5.0.0", syntax="[VERSION version]", complexity="O(1)")
def lolwut(session: Session, argv: list[bytes]) -> None:
    """Draw a picture and show the version."""
    from rillet import __version__

    drawing = "  ~~~~ ~~ ~  ~~~ ~~~~~~ ~ ~~~\n ~~ o-o-o-o ~~~~ o-o-o ~~~~ o\n~~~~~ ~ ~~ ~~~~ ~~  ~~~ ~~ ~\n"
    session.out.verbatim(f"{drawing}rillet ver. {__version__}\n".encode())
