"""OBJECT and MEMORY: the encoding and the size of values (Redis: object.c)."""

from __future__ import annotations

import sys
from typing import Any

from rillet.commands.arguments import integer, syntax_error
from rillet.commands.help import reply_help
from rillet.errors import CommandError
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.types.string import PLAIN, String, string2ll

_SHARED_INTEGERS = 10_000
_SHARED_REFCOUNT = 2**31 - 1
# Bytes of a dict entry: hash, key, value and index, at CPython's maximum load of two thirds.
_DICT_SLOT = 24 * 3 // 2 + 8


def _value(session: Session, key: bytes) -> Any:
    """Return the value at the key; reply null and return None if the key does not exist."""
    value = session.db.lookup_no_notify(key)
    if value is None:
        session.out.null()
    return value


@command("object|encoding", arity=3, flags="readonly", keys=(2, 2, 1), group="generic", since="2.2.3",
         complexity="O(1)", syntax="key")
def object_encoding(session: Session, argv: list[bytes]) -> None:
    """Return the encoding of the value at a key."""
    value = _value(session, argv[2])
    if value is not None:
        session.out.bulk(value.encoding().encode())


@command("object|refcount", arity=3, flags="readonly", keys=(2, 2, 1), group="generic", since="2.2.3",
         complexity="O(1)", syntax="key")
def object_refcount(session: Session, argv: list[bytes]) -> None:
    """Return the reference count of a value: 1, or INT_MAX for the small integers that Redis shares."""
    value = _value(session, argv[2])
    if value is None:
        return
    number = string2ll(value.data) if isinstance(value, String) and value.form == PLAIN else None
    shared = isinstance(number, int) and 0 <= number < _SHARED_INTEGERS
    session.out.integer(_SHARED_REFCOUNT if shared else 1)


@command("object|idletime", arity=3, flags="readonly", keys=(2, 2, 1), group="generic", since="2.2.3",
         complexity="O(1)", syntax="key")
def object_idletime(session: Session, argv: list[bytes]) -> None:
    """Refuse: access times are not kept; they would add a clock reading to every lookup."""
    if _value(session, argv[2]) is not None:
        raise CommandError("idle time not tracked: rillet keeps no access times")


@command("object|freq", arity=3, flags="readonly", keys=(2, 2, 1), group="generic", since="4.0.0",
         complexity="O(1)", syntax="key")
def object_freq(session: Session, argv: list[bytes]) -> None:
    """Refuse: access frequencies are not kept."""
    if _value(session, argv[2]) is not None:
        raise CommandError(
            "An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching "
            "between policies at runtime LRU and LFU data will take some time to adjust."
        )


@command("object|help", arity=2, flags="loading stale", group="generic", since="6.2.0", complexity="O(1)")
def object_help(session: Session, argv: list[bytes]) -> None:
    """Show this help."""
    reply_help(session, "object")


# -- MEMORY -----------------------------------------------------------------------------------------


@command("memory|usage", arity=-3, flags="readonly", keys=(2, 2, 1), group="server", since="4.0.0",
         complexity="O(N) for N samples", syntax="key [SAMPLES count]")
def memory_usage(session: Session, argv: list[bytes]) -> None:
    """Estimate the bytes that a key and its value take in this process."""
    samples = 5
    for at in range(3, len(argv), 2):
        if argv[at].lower() != b"samples" or at + 1 == len(argv):
            raise syntax_error()
        samples = integer(argv[at + 1])
        if samples < 0:
            raise syntax_error()
    value: Any = session.db.lookup(argv[2])  # the only lookup that counts neither as hit nor as miss
    if value is None:
        session.out.null()
    else:
        session.out.integer(value.memory_usage(samples) + sys.getsizeof(argv[2]) + _DICT_SLOT)


@command("memory|stats", arity=2, flags="", group="server", since="4.0.0", complexity="O(1)")
def memory_stats(session: Session, argv: list[bytes]) -> None:
    """Return memory figures of this process."""
    out = session.out
    facts = session.engine.host.memory()
    databases = [database for database in session.engine.databases if len(database)]
    keys = sum(len(database) for database in databases)
    numbers = {
        "peak.allocated": facts["used_memory_peak"],
        "total.allocated": facts["used_memory"],
        "keys.count": keys,
        "keys.bytes-per-key": facts["used_memory"] // keys if keys else 0,
    }
    out.map(len(numbers) + len(databases))
    for name, number in numbers.items():
        out.bulk(name.encode())
        out.integer(number)
    for database in databases:
        out.bulk(b"db.%d" % database.index)
        out.map(2)
        out.bulk(b"overhead.hashtable.main")
        out.integer(sys.getsizeof(database.values))
        out.bulk(b"overhead.hashtable.expires")
        out.integer(sys.getsizeof(database.expires))


@command("memory|doctor", arity=2, flags="", group="server", since="4.0.0", complexity="O(1)")
def memory_doctor(session: Session, argv: list[bytes]) -> None:
    """Reply that there is no diagnosis."""
    session.out.verbatim(b"No diagnosis: memory belongs to the Python interpreter; MEMORY STATS has the figures.\n")


@command("memory|malloc-stats", arity=2, flags="", group="server", since="4.0.0", complexity="O(1)")
def memory_malloc_stats(session: Session, argv: list[bytes]) -> None:
    """Reply that the allocator has no statistics."""
    session.out.verbatim(b"Stats not supported for the current allocator")


@command("memory|purge", arity=2, flags="", group="server", since="4.0.0", complexity="O(1)")
def memory_purge(session: Session, argv: list[bytes]) -> None:
    """Do nothing: the interpreter releases memory by itself."""
    session.out.ok()


@command("memory|help", arity=2, flags="loading stale", group="server", since="4.0.0", complexity="O(1)")
def memory_help(session: Session, argv: list[bytes]) -> None:
    """Show this help."""
    reply_help(session, "memory")
