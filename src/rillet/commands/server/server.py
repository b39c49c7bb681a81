"""The commands about the server as a whole (Redis: server.c, slowlog.c, latency.c).

Nothing here times commands, so the slow log and the latency events are empty, and say so by their
length; the thresholds in CONFIG stand at "off".
"""

from __future__ import annotations

from rillet.commands.arguments import integer, syntax_error, text
from rillet.commands.help import reply_help
from rillet.commands.server.info import info_text
from rillet.errors import CommandError
from rillet.runtime.registry import command
from rillet.runtime.session import Session

_SHUTDOWN_WORDS = frozenset((b"nosave", b"save", b"now", b"force", b"abort"))


@command("info", arity=-1, flags="loading stale", group="server", since="1.0.0", complexity="O(1)",
         syntax="[section [section ...]]")
def info(session: Session, argv: list[bytes]) -> None:
    """Tell the state of the server, by sections."""
    sections = [text(word).lower() for word in argv[1:]]
    session.out.verbatim(info_text(session.engine, sections))


@command("time", arity=1, flags="loading stale fast", group="server", since="2.6.0", complexity="O(1)")
def time(session: Session, argv: list[bytes]) -> None:
    """Tell the time: seconds since the epoch, and microseconds."""
    seconds, microseconds = divmod(session.engine.clock.now_us(), 1_000_000)
    session.out.array(2)
    session.out.bulk_int(seconds)
    session.out.bulk_int(microseconds)


@command("role", arity=1, flags="noscript loading stale fast", group="server", since="2.8.12", complexity="O(1)")
def role(session: Session, argv: list[bytes]) -> None:
    """Tell the part in replication: a master without replicas."""
    session.out.array(3)
    session.out.bulk(b"master")
    session.out.integer(0)
    session.out.array(0)


@command("shutdown", arity=-1, flags="admin noscript loading stale no_multi allow_busy", group="server", since="1.0.0",
         complexity="O(1)", syntax="[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]")
def shutdown(session: Session, argv: list[bytes]) -> None:
    """End the server; before, the RDB file is written where there are save points (not with NOSAVE), or with SAVE."""
    words = {word.lower() for word in argv[1:]}
    if not words <= _SHUTDOWN_WORDS or {b"save", b"nosave"} <= words or (b"abort" in words and len(words) > 1):
        raise syntax_error()
    if b"abort" in words:
        raise CommandError("No shutdown in progress.")
    session.engine.host.shutdown(save=b"save" in words, nosave=b"nosave" in words, force=b"force" in words)
    session.closing = True


@command("save", arity=1, flags="no_async_loading admin noscript no_multi", group="server", since="1.0.0",
         complexity="O(N) for N bytes of data")
def save(session: Session, argv: list[bytes]) -> None:
    """Write all databases to the RDB file; nobody is served meanwhile."""
    session.engine.host.save()
    session.out.ok()


@command("bgsave", arity=-1, flags="no_async_loading admin noscript", group="server", since="1.0.0", complexity="O(1)",
         syntax="[SCHEDULE]")
def bgsave(session: Session, argv: list[bytes]) -> None:
    """Let a child process write all databases, as they are now, to the RDB file."""
    if len(argv) > 2 or (len(argv) == 2 and argv[1].lower() != b"schedule"):
        raise syntax_error()
    # A transaction is saved whole: a save that it starts begins after it.
    started = session.engine.host.bgsave(later=session.in_exec, schedule=len(argv) == 2)
    session.out.simple(b"Background saving started" if started else b"Background saving scheduled")


@command("lastsave", arity=1, flags="loading stale fast", group="server", since="1.0.0", complexity="O(1)")
def lastsave(session: Session, argv: list[bytes]) -> None:
    """Tell when the RDB file was last written, or else when the server began; seconds since the epoch."""
    session.out.integer(session.engine.host.last_save())


@command("bgrewriteaof", arity=1, flags="no_async_loading admin noscript", group="server", since="1.0.0",
         complexity="O(N) for N bytes of data")
def bgrewriteaof(session: Session, argv: list[bytes]) -> None:
    """Write the append-only file anew, as short as the data allows."""
    # As with BGSAVE, a rewrite that a transaction starts begins after it.
    started = session.engine.host.rewrite_log(later=session.in_exec)
    what = b"started" if started else b"scheduled"
    session.out.simple(b"Background append only file rewriting " + what)


@command("lolwut", arity=-1, flags="readonly fast", group="server", since="5.0.0", complexity="O(1)",
         syntax="[VERSION version]")
def lolwut(session: Session, argv: list[bytes]) -> None:
    """Draw something, and tell the version."""
    from rillet import __version__

    drawing = "  ~~~~ ~~ ~  ~~~ ~~~~~~ ~ ~~~\n ~~ o-o-o-o ~~~~ o-o-o ~~~~ o\n~~~~~ ~ ~~ ~~~~ ~~  ~~~ ~~ ~\n"
    session.out.verbatim(f"{drawing}rillet ver. {__version__}\n".encode())


# -- the slow log -----------------------------------------------------------------------------------


@command("slowlog|get", arity=-2, flags="admin loading stale", group="server", since="2.2.12", complexity="O(1)",
         syntax="[count]")
def slowlog_get(session: Session, argv: list[bytes]) -> None:
    """List slow commands: none, commands are not timed."""
    if len(argv) > 3:
        raise CommandError(f"unknown subcommand or wrong number of arguments for '{text(argv[1])}'. Try SLOWLOG HELP.")
    if len(argv) == 3 and integer(argv[2], "count should be greater than or equal to -1") < -1:
        raise CommandError("count should be greater than or equal to -1")
    session.out.array(0)


@command("slowlog|len", arity=2, flags="admin loading stale", group="server", since="2.2.12", complexity="O(1)")
def slowlog_len(session: Session, argv: list[bytes]) -> None:
    """Count the slow commands: none, commands are not timed."""
    session.out.integer(0)


@command("slowlog|reset", arity=2, flags="admin loading stale", group="server", since="2.2.12", complexity="O(1)")
def slowlog_reset(session: Session, argv: list[bytes]) -> None:
    """Empty the slow log, which is empty."""
    session.out.ok()


@command("slowlog|help", arity=2, flags="loading stale", group="server", since="6.2.0", complexity="O(1)")
def slowlog_help(session: Session, argv: list[bytes]) -> None:
    """Show this help."""
    reply_help(session, "slowlog")


# -- latency ----------------------------------------------------------------------------------------


@command("latency|latest", arity=2, flags="admin noscript loading stale", group="server", since="2.8.13",
         complexity="O(1)")
def latency_latest(session: Session, argv: list[bytes]) -> None:
    """List the latest latency events: none are kept."""
    session.out.array(0)


@command("latency|history", arity=3, flags="admin noscript loading stale", group="server", since="2.8.13",
         complexity="O(1)", syntax="event")
def latency_history(session: Session, argv: list[bytes]) -> None:
    """List the samples of a latency event: none are kept."""
    session.out.array(0)


@command("latency|reset", arity=-2, flags="admin noscript loading stale", group="server", since="2.8.13",
         complexity="O(1)", syntax="[event [event ...]]")
def latency_reset(session: Session, argv: list[bytes]) -> None:
    """Forget latency events, and count the forgotten: none are kept."""
    session.out.integer(0)


@command("latency|help", arity=2, flags="loading stale", group="server", since="2.8.13", complexity="O(1)")
def latency_help(session: Session, argv: list[bytes]) -> None:
    """Show this help."""
    reply_help(session, "latency")


# -- modules ----------------------------------------------------------------------------------------


@command("module|list", arity=2, flags="admin noscript", group="server", since="4.0.0", complexity="O(1)")
def module_list(session: Session, argv: list[bytes]) -> None:
    """List the loaded modules: none."""
    session.out.array(0)


@command("module|help", arity=2, flags="loading stale", group="server", since="5.0.0", complexity="O(1)")
def module_help(session: Session, argv: list[bytes]) -> None:
    """Show this help."""
    reply_help(session, "module")
