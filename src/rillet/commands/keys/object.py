"""OBJECT: the encoding of values and the time or frequency of their use (Redis: object.c)."""

from __future__ import annotations

from typing import Any

from rillet.commands.help_texts import declare_help
from rillet.commands.keys import command
from rillet.errors import CommandError
from rillet.keyspace.lru import LFU
from rillet.runtime.session import Session
from rillet.types.string import PLAIN, SHARED_INTEGERS, String, string2ll

_SWITCHING = (
    "Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust."
)
_SHARED_REFCOUNT = 2**31 - 1


def _entry(session: Session, key: bytes) -> int:
    """Return the number of the key's entry; reply null and return -1 if the key does not exist."""
    n: int = session.db.find_untouched(key, False)
    if n < 0:
        session.out.null()
    return n


def _value(session: Session, key: bytes) -> Any:
    """Return the value at the key; reply null and return None if the key does not exist."""
    n = _entry(session, key)
    return None if n < 0 else session.db.value_at(n)


@command("object|encoding", arity=3, flags="readonly", keys=(2, 2, 1), since="2.2.3", syntax="key", complexity="O(1)")
def object_encoding(session: Session, argv: list[bytes]) -> None:
    """Return the encoding of the value at a key."""
    value = _value(session, argv[2])
    if value is not None:
        name = value.encoding()
        if isinstance(value, String):
            name = value.encoding_at(len(argv[2]), session.engine.settings.compat.embedding)
        session.out.bulk(name.encode())


@command("object|refcount", arity=3, flags="readonly", keys=(2, 2, 1), since="2.2.3", syntax="key", complexity="O(1)")
def object_refcount(session: Session, argv: list[bytes]) -> None:
    """Return the reference count of a value: 1, or INT_MAX for the small integers that Redis shares.

    A copied integer is not shared (object.c: dupStringObject). Since 8.2 and in Valkey, an object contains its key, so
    keys share nothing.
    """
    value = _value(session, argv[2])
    if value is None:
        return
    number = string2ll(value.data) if isinstance(value, String) and value.form == PLAIN else None
    # With a policy that needs the access data of each value, Redis shares no integers (object.c: tryObjectEncoding).
    settings = session.engine.settings
    private = settings.maxmemory and settings.maxmemory_policy.endswith(("lru", "lfu", "lrm"))
    shared = isinstance(number, int) and 0 <= number < SHARED_INTEGERS and not private
    shared = shared and settings.compat.shares_integers
    session.out.integer(_SHARED_REFCOUNT if shared else 1)


@command("object|idletime", arity=3, flags="readonly", keys=(2, 2, 1), since="2.2.3", syntax="key", complexity="O(1)")
def object_idletime(session: Session, argv: list[bytes]) -> None:
    """Return the seconds since the last access of a key, unless an LFU policy is selected."""
    n = _entry(session, argv[2])
    if n < 0:
        return
    access = session.db.access
    if access.mode == LFU:
        raise CommandError(f"An LFU maxmemory policy is selected, idle time not tracked. {_SWITCHING}")
    session.out.integer(access.idle_time(session.db.keys.lru(n)))


@command("object|freq", arity=3, flags="readonly", keys=(2, 2, 1), since="4.0.0", syntax="key", complexity="O(1)")
def object_freq(session: Session, argv: list[bytes]) -> None:
    """Return the logarithmic access frequency of a key, if an LFU policy is selected."""
    n = _entry(session, argv[2])
    if n < 0:
        return
    access = session.db.access
    if access.mode != LFU:
        raise CommandError(f"An LFU maxmemory policy is not selected, access frequency not tracked. {_SWITCHING}")
    if access.exact:
        session.out.integer(access.settle(session.db.keys, n))
        return
    session.out.integer(access.frequency(session.db.keys.lru(n)))


declare_help("object", "generic", "6.2.0")
