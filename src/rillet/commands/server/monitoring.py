"""SLOWLOG and LATENCY (Redis: slowlog.c, latency.c).

rillet records neither slow commands nor latency events. The commands reply as a server does that has recorded none.
"""

from __future__ import annotations

from rillet.commands.arguments import integer, text
from rillet.commands.help import reply_help
from rillet.errors import CommandError
from rillet.runtime.registry import command
from rillet.runtime.session import Session


@command("slowlog|get", arity=-2, flags="admin loading stale", group="server", since="2.2.12", complexity="O(1)",
         syntax="[count]")
def slowlog_get(session: Session, argv: list[bytes]) -> None:
    """List slow commands; none are recorded."""
    if len(argv) > 3:
        raise CommandError(f"unknown subcommand or wrong number of arguments for '{text(argv[1])}'. Try SLOWLOG HELP.")
    if len(argv) == 3 and integer(argv[2], "count should be greater than or equal to -1") < -1:
        raise CommandError("count should be greater than or equal to -1")
    session.out.array(0)


@command("slowlog|len", arity=2, flags="admin loading stale", group="server", since="2.2.12", complexity="O(1)")
def slowlog_len(session: Session, argv: list[bytes]) -> None:
    """Return the number of slow commands; none are recorded."""
    session.out.integer(0)


@command("slowlog|reset", arity=2, flags="admin loading stale", group="server", since="2.2.12", complexity="O(1)")
def slowlog_reset(session: Session, argv: list[bytes]) -> None:
    """Empty the slow log; it is always empty."""
    session.out.ok()


@command("slowlog|help", arity=2, flags="loading stale", group="server", since="6.2.0", complexity="O(1)")
def slowlog_help(session: Session, argv: list[bytes]) -> None:
    """Show this help."""
    reply_help(session, "slowlog")


@command("latency|latest", arity=2, flags="admin noscript loading stale", group="server", since="2.8.13",
         complexity="O(1)")
def latency_latest(session: Session, argv: list[bytes]) -> None:
    """List the latest latency events; none are recorded."""
    session.out.array(0)


@command("latency|history", arity=3, flags="admin noscript loading stale", group="server", since="2.8.13",
         complexity="O(1)", syntax="event")
def latency_history(session: Session, argv: list[bytes]) -> None:
    """List the samples of a latency event; none are recorded."""
    session.out.array(0)


@command("latency|reset", arity=-2, flags="admin noscript loading stale", group="server", since="2.8.13",
         complexity="O(1)", syntax="[event [event ...]]")
def latency_reset(session: Session, argv: list[bytes]) -> None:
    """Delete latency events and return their number; none are recorded."""
    session.out.integer(0)


@command("latency|help", arity=2, flags="loading stale", group="server", since="2.8.13", complexity="O(1)")
def latency_help(session: Session, argv: list[bytes]) -> None:
    """Show this help."""
    reply_help(session, "latency")
