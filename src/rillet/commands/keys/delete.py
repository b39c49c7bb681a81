"""DEL, UNLINK, FLUSHDB and FLUSHALL (Redis: db.c). Python frees memory at once, so UNLINK does the same as DEL."""

from __future__ import annotations

from rillet.commands.arguments import syntax_error
from rillet.commands.keys import command
from rillet.runtime.session import Session


def _delete(session: Session, keys: list[bytes]) -> None:
    database = session.db
    removed = 0
    for key in keys:
        database.expire_if_needed(key)
        if database.delete(key):
            session.modified(key)
            session.notify(b"g", b"del", key)
            removed += 1
    session.out.integer(removed)


@command("del", arity=-2, flags="write", keys=(1, -1, 1), since="1.0.0", syntax="key [key ...]",
         complexity="O(N) for N keys, and O(M) for each value made of M parts")
def del_(session: Session, argv: list[bytes]) -> None:
    """Delete keys."""
    _delete(session, argv[1:])


@command("unlink", arity=-2, flags="write fast", keys=(1, -1, 1), since="4.0.0", syntax="key [key ...]",
         complexity="O(N) for N keys, and O(M) for each value made of M parts")
def unlink(session: Session, argv: list[bytes]) -> None:
    """Delete keys."""
    _delete(session, argv[1:])


def _check_flush(argv: list[bytes]) -> None:
    if len(argv) > 2 or (len(argv) == 2 and argv[1].lower() not in (b"sync", b"async")):
        raise syntax_error()


@command("flushdb", arity=-1, flags="write", keys=(0, 0, 0), group="server", since="1.0.0", syntax="[ASYNC | SYNC]",
         complexity="O(N) for N keys")
def flushdb(session: Session, argv: list[bytes]) -> None:
    """Delete all keys of the database."""
    _check_flush(argv)
    session.dirty += session.db.flush()
    session.propagate(argv)
    session.out.ok()


@command("flushall", arity=-1, flags="write", keys=(0, 0, 0), group="server", since="1.0.0", syntax="[ASYNC | SYNC]",
         complexity="O(N) for N keys in all databases")
def flushall(session: Session, argv: list[bytes]) -> None:
    """Delete all keys of all databases."""
    _check_flush(argv)
    session.dirty += sum(database.flush() for database in session.engine.databases)
    if not session.engine.loading and session.engine.host.flushed():
        session.dirty = 0  # the host has saved the empty databases as an RDB file
    session.propagate(argv)
    session.out.ok()
