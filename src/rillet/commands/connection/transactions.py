"""MULTI, EXEC and WATCH (Redis: multi.c).

After MULTI, the engine queues commands (runtime/command_queue.py). EXEC runs them as it runs a pipeline; their changes
are logged between MULTI and EXEC. WATCH adds the session's watcher to keys. A change of a watched key marks the watcher
as dirty; EXEC then replies null and runs nothing.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython
from rillet.commands.connection import command
from rillet.errors import CommandError, ExecAbort
from rillet.keyspace.database import Watcher
from rillet.runtime import session_state
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans

_IN_MULTI = cython.declare(cython.int, session_state.IN_MULTI)
_MULTI_FAILED = cython.declare(cython.int, session_state.MULTI_FAILED)


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


@cython.final
@cython.cclass
class Multi(Implementation):
    """MULTI (multiCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Start a transaction."""
        if session.state & _IN_MULTI:
            raise _not_inside(session, "multi", "MULTI calls can not be nested")
        session.enter("multi")
        _note(session)
        return session.out.ok()


command("multi", arity=1, flags="noscript loading stale fast allow_busy", group="transactions", since="1.2.0",
        complexity="O(1)", summary="Start a transaction: queue the following commands until EXEC.")(Multi)


@command("discard", arity=1, flags="noscript loading stale fast allow_busy", group="transactions", since="2.0.0",
         complexity="O(N) for N queued commands")
def discard(session: Session, argv: list[bytes]) -> None:
    """Discard the transaction and unwatch all keys."""
    if not session.state & _IN_MULTI:
        raise CommandError("DISCARD without MULTI")
    session.discard()
    session.out.ok()


@cython.final
@cython.cclass
class Exec(Implementation):
    """EXEC (execCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Run the queued commands, unless a watched key changed."""
        if not session.state & _IN_MULTI:
            raise CommandError("EXEC without MULTI")
        failed: cython.bint = session.state & _MULTI_FAILED != 0
        changed: cython.bint = _watched_changed(session.watcher)
        queue: Any = session.queue
        session.discard()
        if failed:
            raise ExecAbort()
        if changed:
            return session.out.null_array()
        received: object = session.command
        session.queue = queue  # CLIENT INFO in the transaction shows it
        session.enter("exec")
        try:
            session.out.array(len(queue))
            if queue:
                session.engine.run_queue(session, queue)
        finally:
            session.enter("exec ends")
            session.clear_queue()
            if queue:
                session.engine.end_queue(queue)
            # The engine has acted on the effects of each queued command; EXEC itself has no effects.
            session.command, session.dirty, session.propagated = received, 0, None
        return True


command("exec", arity=1, flags="noscript loading stale skip_slowlog", group="transactions", since="1.2.0",
        complexity="Depends on commands in the transaction",
        summary="Run the queued commands, unless a watched key changed.")(Exec)


@cython.cfunc
def _watched_changed(watcher: Watcher) -> cython.bint:
    """Return whether a watched key has changed or expired (multi.c: isWatchedKeyExpired)."""
    if watcher.dirty:
        return True
    for one in watcher.keys:
        if (watcher.stale is None or one not in watcher.stale) and one[0].is_expired(one[1]):
            return True
    return False


@command("watch", arity=-2, flags="noscript loading stale fast allow_busy", keys=(1, -1, 1), group="transactions",
         since="2.2.0", syntax="key [key ...]", complexity="O(N) for N keys")
def watch(session: Session, argv: list[bytes]) -> None:
    """Watch keys: if one of them changes, the next EXEC runs nothing."""
    if session.state & _IN_MULTI:
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
