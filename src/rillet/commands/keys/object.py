"""OBJECT and MEMORY: the encoding and the size of values (Redis: object.c)."""

from __future__ import annotations

import sys
from typing import Any

from rillet.commands.arguments import integer, syntax_error
from rillet.commands.keys import command
from rillet.commands.replies import write_tree
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.types.string import PLAIN, String, string2ll

_SHARED_INTEGERS = 10_000
_SHARED_REFCOUNT = 2**31 - 1
# The bytes of a dict entry (hash, key, value, index) at CPython's maximum load of two thirds.
_DICT_SLOT = 24 * 3 // 2 + 8


def _value(session: Session, key: bytes) -> Any:
    """Return the value at the key; reply null and return None if the key does not exist."""
    value = session.db.view_no_notify(key)
    if value is None:
        session.out.null()
    return value


@command("object|encoding", arity=3, flags="readonly", keys=(2, 2, 1), since="2.2.3", syntax="key", complexity="O(1)")
def object_encoding(session: Session, argv: list[bytes]) -> None:
    """Return the encoding of the value at a key."""
    value = _value(session, argv[2])
    if value is not None:
        session.out.bulk(value.encoding().encode())


@command("object|refcount", arity=3, flags="readonly", keys=(2, 2, 1), since="2.2.3", syntax="key", complexity="O(1)")
def object_refcount(session: Session, argv: list[bytes]) -> None:
    """Return the reference count of a value: 1, or INT_MAX for the small integers that Redis shares."""
    value = _value(session, argv[2])
    if value is None:
        return
    number = string2ll(value.data) if isinstance(value, String) and value.form == PLAIN else None
    shared = isinstance(number, int) and 0 <= number < _SHARED_INTEGERS
    session.out.integer(_SHARED_REFCOUNT if shared else 1)


@command("object|idletime", arity=3, flags="readonly", keys=(2, 2, 1), since="2.2.3", syntax="key", complexity="O(1)")
def object_idletime(session: Session, argv: list[bytes]) -> None:
    """Return an error: access times are not recorded, because each lookup would have to read the clock."""
    if _value(session, argv[2]) is not None:
        raise CommandError("idle time not tracked: rillet keeps no access times")


@command("object|freq", arity=3, flags="readonly", keys=(2, 2, 1), since="4.0.0", syntax="key", complexity="O(1)")
def object_freq(session: Session, argv: list[bytes]) -> None:
    """Return an error: access frequencies are not recorded."""
    if _value(session, argv[2]) is not None:
        raise CommandError(
            "An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching "
            "between policies at runtime LRU and LFU data will take some time to adjust."
        )


# -- MEMORY -----------------------------------------------------------------------------------------


@command("memory|usage", arity=-3, flags="readonly", keys=(2, 2, 1), group="server", since="4.0.0",
         syntax="key [SAMPLES count]", complexity="O(N) for N samples")
def memory_usage(session: Session, argv: list[bytes]) -> None:
    """Estimate the bytes that a key and its value take in this process."""
    samples = 5
    for at in range(3, len(argv), 2):
        if argv[at].lower() != b"samples" or at + 1 == len(argv):
            raise syntax_error()
        samples = integer(argv[at + 1])
        if samples < 0:
            raise syntax_error()
    value: Any = session.db.view(argv[2])  # this lookup counts neither a keyspace hit nor a miss
    if value is None:
        session.out.null()
    else:
        session.out.integer(value.memory_usage(samples) + sys.getsizeof(argv[2]) + _DICT_SLOT)


@command("memory|stats", arity=2, flags="", keys=(0, 0, 0), group="server", since="4.0.0", complexity="O(1)")
def memory_stats(session: Session, argv: list[bytes]) -> None:
    """Return the memory use of this process."""
    memory = session.engine.host.memory()
    databases = [database for database in session.engine.databases if len(database)]
    keys = sum(len(database) for database in databases)
    reply: dict[bytes, Any] = {
        b"peak.allocated": memory["used_memory_peak"],
        b"total.allocated": memory["used_memory"],
        b"keys.count": keys,
        b"keys.bytes-per-key": memory["used_memory"] // keys if keys else 0,
    }
    for database in databases:
        reply[b"db.%d" % database.index] = {
            b"overhead.hashtable.main": database.keys.memory_bytes(),
            b"overhead.hashtable.expires": database.expires.memory_bytes(),
        }
    write_tree(session.out, reply)


@command("memory|doctor", arity=2, flags="", keys=(0, 0, 0), group="server", since="4.0.0", complexity="O(1)")
def memory_doctor(session: Session, argv: list[bytes]) -> None:
    """Reply that rillet has no memory diagnosis."""
    session.out.verbatim(b"No diagnosis: memory belongs to the Python interpreter; MEMORY STATS has the figures.\n")


@command("memory|malloc-stats", arity=2, flags="", keys=(0, 0, 0), group="server", since="4.0.0", complexity="O(1)")
def memory_malloc_stats(session: Session, argv: list[bytes]) -> None:
    """Reply that the allocator has no statistics."""
    session.out.verbatim(b"Stats not supported for the current allocator")


@command("memory|purge", arity=2, flags="", keys=(0, 0, 0), group="server", since="4.0.0", complexity="O(1)")
def memory_purge(session: Session, argv: list[bytes]) -> None:
    """Do nothing, because the interpreter releases memory by itself."""
    session.out.ok()
