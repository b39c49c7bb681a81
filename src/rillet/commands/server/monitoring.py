"""SLOWLOG and LATENCY (Redis: slowlog.c, latency.c).

rillet records neither slow commands nor latency events. The commands reply like a server without such records.
"""

from __future__ import annotations

from rillet.commands.arguments import integer, subcommand_error
from rillet.commands.server import command
from rillet.errors import CommandError
from rillet.runtime.session import Session


@command("slowlog|get", arity=-2, flags="admin loading stale", since="2.2.12", syntax="[count]", complexity="O(1)")
def slowlog_get(session: Session, argv: list[bytes]) -> None:
    """List slow commands; none are recorded."""
    if len(argv) > 3:
        raise subcommand_error(argv)
    if len(argv) == 3 and integer(argv[2], "count should be greater than or equal to -1") < -1:
        raise CommandError("count should be greater than or equal to -1")
    session.out.array(0)


@command("slowlog|len", arity=2, flags="admin loading stale", since="2.2.12", complexity="O(1)")
def slowlog_len(session: Session, argv: list[bytes]) -> None:
    """Return the number of slow commands; none are recorded."""
    session.out.integer(0)


@command("slowlog|reset", arity=2, flags="admin loading stale", since="2.2.12", complexity="O(1)")
def slowlog_reset(session: Session, argv: list[bytes]) -> None:
    """Empty the slow log; it is always empty."""
    session.out.ok()


@command("latency|latest", arity=2, flags="admin noscript loading stale", since="2.8.13", complexity="O(1)")
def latency_latest(session: Session, argv: list[bytes]) -> None:
    """List the latest latency events; none are recorded."""
    session.out.array(0)


@command("latency|history", arity=3, flags="admin noscript loading stale", since="2.8.13", syntax="event",
         complexity="O(1)")
def latency_history(session: Session, argv: list[bytes]) -> None:
    """List the samples of a latency event; none are recorded."""
    session.out.array(0)


@command("latency|reset", arity=-2, flags="admin noscript loading stale", since="2.8.13", syntax="[event [event ...]]",
         complexity="O(1)")
def latency_reset(session: Session, argv: list[bytes]) -> None:
    """Delete latency events and return their number; none are recorded."""
    session.out.integer(0)
