"""DEL, UNLINK, FLUSHDB and FLUSHALL (Redis: db.c). UNLINK and ASYNC free large values later: keyspace/lazyfree.py."""

from __future__ import annotations

from typing import Any

from rillet.commands.arguments import syntax_error
from rillet.commands.keys import command
from rillet.runtime.session import Session

_NO_LIMIT = 2**62  # nanoseconds


def delete_keys(session: Session, keys: list[bytes], lazy: bool) -> None:
    database = session.db
    removed = 0
    for key in keys:
        database.expire_if_needed(key)
        if database.delete(key, lazy):
            session.modified(key)
            session.notify(b"g", b"del", key)
            removed += 1
    session.out.integer(removed)


@command("del", arity=-2, flags="write", keys=(1, -1, 1), since="1.0.0", syntax="key [key ...]",
         complexity="O(N) for N keys, and O(M) for each value made of M parts")
def del_(session: Session, argv: list[bytes]) -> None:
    """Delete keys."""
    delete_keys(session, argv[1:], session.engine.settings.lazyfree_lazy_user_del)


@command("unlink", arity=-2, flags="write fast", keys=(1, -1, 1), since="4.0.0", syntax="key [key ...]",
         complexity="O(N) for N keys, and O(M) for each value made of M parts")
def unlink(session: Session, argv: list[bytes]) -> None:
    """Delete keys, and free large values later."""
    delete_keys(session, argv[1:], True)


def _flush(session: Session, argv: list[bytes], databases: list[Any]) -> int:
    """Empty the databases; return the number of keys (flushCommandCommon).

    Since 7.4 Redis runs SYNC as ASYNC, except in a transaction, and the client waits for the end. INFO counts the keys
    as freed lazily. Here they are freed at once, and counted.
    """
    settings = session.engine.settings
    lazy = bool(settings.lazyfree_lazy_user_flush)
    if len(argv) > 1:
        word = argv[1].lower()
        if len(argv) > 2 or word not in (b"sync", b"async"):
            raise syntax_error()
        lazy = word == b"async"
    counted = lazy or (settings.compat.knows(74) and session.engine.propagation.depth == 1)
    if session.engine.modules is not None:
        session.engine.modules.server_event("flush", session.db.index if len(databases) == 1 else -1)
    removed: int = sum(database.flush(counted) for database in databases)
    tracking = session.engine.tracking
    tracking.invalidate_all()
    if counted and not lazy and tracking.pending:
        tracking.send_pending(session)  # the client waits for its reply, but not for the message
    if counted and not lazy:
        session.engine.lazyfree.step(_NO_LIMIT)
    return removed


@command("flushdb", arity=-1, flags="write", keys=(0, 0, 0), group="server", since="1.0.0", syntax="[ASYNC | SYNC]",
         complexity="O(N) for N keys")
def flushdb(session: Session, argv: list[bytes]) -> None:
    """Delete all keys of the database."""
    session.dirty += _flush(session, argv, [session.db])
    session.propagate(argv)
    session.out.ok()


@command("flushall", arity=-1, flags="write", keys=(0, 0, 0), group="server", since="1.0.0", syntax="[ASYNC | SYNC]",
         complexity="O(N) for N keys in all databases")
def flushall(session: Session, argv: list[bytes]) -> None:
    """Delete all keys of all databases."""
    session.dirty += _flush(session, argv, session.engine.databases)
    if not session.engine.loading and session.engine.services.flushed():
        session.dirty = 0  # the server has saved the empty databases as an RDB file
    session.propagate(argv)
    session.out.ok()
