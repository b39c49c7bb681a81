"""OBJECT and MEMORY: the encoding and the size of values (Redis: object.c)."""

from __future__ import annotations

from typing import Any

from rillet.commands.arguments import integer, syntax_error
from rillet.commands.keys import command
from rillet.commands.replies import write_tree
from rillet.errors import CommandError
from rillet.keyspace.lru import LFU
from rillet.runtime.session import Session
from rillet.types.string import PLAIN, String, string2ll

_SWITCHING = (
    "Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust."
)
_SHARED_INTEGERS = 10_000
_SHARED_REFCOUNT = 2**31 - 1
# The bytes of an entry of the keyspace besides key and value: a record, buckets, and the lengths (structs/dict.py).
_ENTRY = 16 + 6 + 3


def _value(session: Session, key: bytes) -> Any:
    """Return the value at the key; reply null and return None if the key does not exist."""
    value = session.db.view_untouched(key, False)
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
    """Return the seconds since the last access of a key, unless an LFU policy is selected."""
    if _value(session, argv[2]) is None:
        return
    access = session.db.access
    if access.mode == LFU:
        raise CommandError(f"An LFU maxmemory policy is selected, idle time not tracked. {_SWITCHING}")
    session.out.integer(access.idle_time(session.db.access_bits(argv[2])))


@command("object|freq", arity=3, flags="readonly", keys=(2, 2, 1), since="4.0.0", syntax="key", complexity="O(1)")
def object_freq(session: Session, argv: list[bytes]) -> None:
    """Return the logarithmic access frequency of a key, if an LFU policy is selected."""
    if _value(session, argv[2]) is None:
        return
    access = session.db.access
    if access.mode != LFU:
        raise CommandError(f"An LFU maxmemory policy is not selected, access frequency not tracked. {_SWITCHING}")
    if access.exact:
        session.out.integer(access.settle(session.db.keys, session.db.keys.find(argv[2])))
        return
    session.out.integer(access.frequency(session.db.access_bits(argv[2])))


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
    keys = session.db.keys
    n = keys.find(argv[2])  # Redis finds expired keys too, and counts neither a hit nor a miss
    if n < 0:
        session.out.null()
        return
    value: Any = keys.object_at(n)
    size = keys.value_size(n) if value is None else value.memory_usage(samples)
    session.out.integer(size + len(argv[2]) + _ENTRY)


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
