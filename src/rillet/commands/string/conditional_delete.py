"""DIGEST, DELEX and DELIFEQ: the digest of a string, and deletions that depend on a string (t_string.c, db.c).

    DELEX k IFEQ value | IFNE value          compares the string
    DELEX k IFDEQ digest | IFDNE digest      compares its digest, as DIGEST shows it
    DELIFEQ k value                          Valkey's form of the first

A client reads a value or its digest, and deletes or replaces the key (SET ... IFEQ) only if it is still the same. The
deletions are propagated as DEL.
"""

from __future__ import annotations

from rillet.commands.arguments import arity_error
from rillet.commands.keys.delete import delete_keys
from rillet.commands.string import command
from rillet.commands.string.get_set import meets
from rillet.commands.string.set_options import IFDEQ, IFDNE, IFEQ, IFNE
from rillet.errors import CommandError, WrongType
from rillet.runtime.session import Session
from rillet.types.string import String, hex_digest

_CONDITIONS = {b"IFEQ": IFEQ, b"IFNE": IFNE, b"IFDEQ": IFDEQ, b"IFDNE": IFDNE}


@command("digest", arity=2, flags="readonly fast", since="8.4.0", syntax="key",
         complexity="O(N) where N is the length of the string value.")
def digest(session: Session, argv: list[bytes]) -> None:
    """Return the XXH3 hash of a string, as 16 hexadecimal digits."""
    value = session.db.view_read(argv[1])
    if value is None:
        session.out.null()
    elif not isinstance(value, String):
        raise WrongType()
    else:
        session.out.bulk(hex_digest(value.value()))


def _delete(session: Session, key: bytes, lazy: bool) -> None:
    """Delete the key that was compared, propagate a DEL, and reply 1."""
    session.db.delete(key, lazy)
    session.modified(key)
    session.notify(b"g", b"del", key)
    session.propagate([b"DEL", key])
    session.out.integer(1)


@command("delex", arity=-2, flags="write fast", since="8.4.0",
         syntax="key [IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest]",
         complexity="O(1) for IFEQ/IFNE, O(N) for IFDEQ/IFDNE where N is the length of the string value.")
def delex(session: Session, argv: list[bytes]) -> None:
    """Delete a key, if its string or the digest of its string meets a condition."""
    lazy = session.engine.settings.lazyfree_lazy_server_del
    if len(argv) == 2:
        delete_keys(session, argv[1:], lazy)
        return
    if len(argv) != 4:
        raise arity_error("delex")
    value = session.db.view_read(argv[1])
    if value is None:
        session.out.integer(0)
        return
    if not isinstance(value, String):
        raise CommandError("Key should be of string type if conditions are specified")
    condition = _CONDITIONS.get(argv[2].upper())
    if condition is None:
        raise CommandError("Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")
    if meets(value.value(), condition, argv[3]):
        _delete(session, argv[1], lazy)
    else:
        session.out.integer(0)


@command("delifeq", arity=3, flags="write fast", since="", valkey="9.0.0", syntax="key value", complexity="O(1)")
def delifeq(session: Session, argv: list[bytes]) -> None:
    """Delete a key if its string equals a value."""
    value = session.db.view(argv[1])
    if value is not None and not isinstance(value, String):
        raise WrongType()
    if value is None or value.value() != argv[2]:
        session.out.integer(0)
    else:
        _delete(session, argv[1], False)
