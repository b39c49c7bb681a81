"""MULTI, EXEC and WATCH (Redis: multi.c).

After MULTI, the engine queues commands (runtime/command_queue.py). EXEC runs them as it runs a pipeline; their changes
are logged between MULTI and EXEC. WATCH adds the session's watcher to keys. A change of a watched key marks the watcher
as dirty; EXEC then replies null and runs nothing.
"""

from __future__ import annotations

from rillet.commands.connection import command
from rillet.errors import CommandError, ExecAbort
from rillet.keyspace.database import Watcher
from rillet.runtime.session import Session
from rillet.runtime.session_state import IN_MULTI, MULTI_FAILED


def _not_inside(session: Session, name: str, text: str) -> CommandError:
    """Return the error for a command that a transaction may not contain; in Valkey, EXEC then fails too."""
    if not session.engine.settings.compat.valkey:
        return CommandError(text)
    session.enter("queueing fails")
    return CommandError(f"Command '{name}' not allowed inside a transaction")


def _note(session: Session) -> None:
    """Remember that the client has used a transaction, as the field `multi` of Valkey's CLIENT LIST shows."""
    if session.engine.settings.compat.valkey:
        session.remember("transactions", True)


@command("multi", arity=1, flags="noscript loading stale fast allow_busy", group="transactions", since="1.2.0",
         complexity="O(1)")
def multi(session: Session, argv: list[bytes]) -> None:
    """Start a transaction: queue the following commands until EXEC."""
    if session.state & IN_MULTI:
        raise _not_inside(session, "multi", "MULTI calls can not be nested")
    session.enter("multi")
    _note(session)
    session.out.ok()


@command("discard", arity=1, flags="noscript loading stale fast allow_busy", group="transactions", since="2.0.0",
         complexity="O(N) for N queued commands")
def discard(session: Session, argv: list[bytes]) -> None:
    """Discard the transaction and unwatch all keys."""
    if not session.state & IN_MULTI:
        raise CommandError("DISCARD without MULTI")
    session.discard()
    session.out.ok()


@command("exec", arity=1, flags="noscript loading stale skip_slowlog", group="transactions", since="1.2.0",
         complexity="Depends on commands in the transaction")
def exec_(session: Session, argv: list[bytes]) -> None:
    """Run the queued commands, unless a watched key changed."""
    if not session.state & IN_MULTI:
        raise CommandError("EXEC without MULTI")
    engine = session.engine
    failed, changed = session.state & MULTI_FAILED, _watched_changed(session.watcher)
    queue = session.queue
    session.discard()
    if failed:
        raise ExecAbort()
    if changed:
        session.out.null_array()
        return
    received = session.command
    session.queue = queue  # CLIENT INFO in the transaction shows it
    session.enter("exec")
    try:
        session.out.array(len(queue))
        if queue:
            engine.run_queue(session, queue)
    finally:
        session.enter("exec ends")
        session.clear_queue()
        # The engine has acted on the effects of each queued command; EXEC itself has no effects.
        session.command, session.argv, session.dirty, session.propagated = received, argv, 0, None


def _watched_changed(watcher: Watcher) -> bool:
    """Return whether a watched key has changed or expired (multi.c: isWatchedKeyExpired)."""
    if watcher.dirty:
        return True
    stale = watcher.stale or ()
    return any(one not in stale and one[0].is_expired(one[1]) for one in watcher.keys)


@command("watch", arity=-2, flags="noscript loading stale fast allow_busy", keys=(1, -1, 1), group="transactions",
         since="2.2.0", syntax="key [key ...]", complexity="O(N) for N keys")
def watch(session: Session, argv: list[bytes]) -> None:
    """Watch keys: if one of them changes, the next EXEC runs nothing."""
    if session.state & IN_MULTI:
        raise _not_inside(session, "watch", "WATCH inside MULTI is not allowed")
    _note(session)
    if not session.watcher.dirty:
        for key in argv[1:]:
            session.watch(key)
    session.out.ok()


@command("unwatch", arity=1, flags="noscript loading stale fast allow_busy", group="transactions", since="2.2.0",
         complexity="O(N) for N watched keys")
def unwatch(session: Session, argv: list[bytes]) -> None:
    """Unwatch all keys."""
    session.unwatch()
    session.out.ok()
