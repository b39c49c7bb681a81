"""SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF and SHUTDOWN: the server or store does the work (Redis: rdb.c, aof.c, db.c)."""

from __future__ import annotations

from rillet.commands.arguments import syntax_error
from rillet.commands.server import command
from rillet.errors import CommandError
from rillet.runtime.session import Session

_SHUTDOWN_WORDS = frozenset((b"nosave", b"save", b"now", b"force", b"abort"))
_VALKEY_WORDS = frozenset((b"safe", b"failover"))


@command("shutdown", arity=-1, flags="admin noscript loading stale no_multi allow_busy", since="1.0.0",
         syntax="[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]", complexity="O(1)")
def shutdown(session: Session, argv: list[bytes]) -> None:
    """Stop the server; before that, wait for replicas, and save the RDB file if save points or SAVE require it."""
    words = {word.lower() for word in argv[1:]}
    known = _SHUTDOWN_WORDS | _VALKEY_WORDS if session.engine.settings.compat.valkey else _SHUTDOWN_WORDS
    if not words <= known or {b"save", b"nosave"} <= words or (b"abort" in words and len(words) > 1):
        raise syntax_error()
    if b"abort" in words:
        session.engine.services.abort_shutdown()
        session.out.ok()
        return
    if b"failover" in words:
        raise CommandError("SHUTDOWN FAILOVER is only supported in cluster mode.")
    if b"now" not in words and not session.can_block:
        raise CommandError("SHUTDOWN without NOW or ABORT isn't allowed for DENY BLOCKING client")
    if session.engine.busy and b"nosave" not in words:
        raise session.engine.busy_error()
    if not session.engine.services.shutdown(save=b"save" in words, nosave=b"nosave" in words, force=b"force" in words,
                                        now=b"now" in words):  # fmt: skip
        session.block([], 0, lambda _session, _key: False, lambda _session: None)  # until the end, or an error
        session.blocked.unblockable = False
        return
    session.enter("close")


@command("save", arity=1, flags="no_async_loading admin noscript no_multi", since="1.0.0",
         complexity="O(N) for N bytes of data")
def save(session: Session, argv: list[bytes]) -> None:
    """Write all databases to the RDB file; no client is served meanwhile."""
    session.engine.services.save()
    session.out.ok()


@command("bgsave", arity=-1, flags="no_async_loading admin noscript", since="1.0.0", syntax="[SCHEDULE]",
         complexity="O(1)")
def bgsave(session: Session, argv: list[bytes]) -> None:
    """Write a snapshot of all databases to the RDB file in a child process."""
    word = argv[1].lower() if len(argv) == 2 else b""
    if word == b"cancel" and session.engine.settings.compat.valkey:
        session.out.simple(session.engine.services.cancel_bgsave().encode())
        return
    if len(argv) > 2 or word not in (b"", b"schedule"):
        raise syntax_error()
    # Inside a transaction, the save begins after EXEC, so that it contains the whole transaction.
    started = session.engine.services.bgsave(later=session.in_exec, schedule=len(argv) == 2)
    session.out.simple(b"Background saving started" if started else b"Background saving scheduled")


@command("lastsave", arity=1, flags="loading stale fast", since="1.0.0", complexity="O(1)")
def lastsave(session: Session, argv: list[bytes]) -> None:
    """Return the time of the last save of the RDB file, or of the server's start, in seconds since the epoch."""
    session.out.integer(session.engine.services.last_save())


@command("bgrewriteaof", arity=1, flags="no_async_loading admin noscript", since="1.0.0",
         complexity="O(N) for N bytes of data")
def bgrewriteaof(session: Session, argv: list[bytes]) -> None:
    """Rewrite the append-only file to the shortest form of the data."""
    # Inside a transaction, the rewrite begins after EXEC.
    started = session.engine.services.rewrite_log(later=session.in_exec)
    what = b"started" if started else b"scheduled"
    session.out.simple(b"Background append only file rewriting " + what)
