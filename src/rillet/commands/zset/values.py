"""The sorted set of a command: its lookup, as an object or unpacked from bytes, and its return to the keyspace.

    n = db.locate(words)              the entry of the key
    value = zset_at(db, n)            the object of the key, or the engine's one unpacked sorted set; None: no key
    value.put(...)                    operations of types/zset.py
    keep(session, words, n, value)    store what was unpacked

The unpacked sorted set is valid until the command ends or unpacks another value.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.errors import WrongType
from rillet.keyspace import rest_buffer
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.zset import Zset

_ZSET = cython.declare(cython.int, rest_buffer.ZSET)


@cython.cfunc
def zset_at(db: Database, n: cython.Py_ssize_t) -> Zset | None:
    """Return the sorted set of an entry that `Database.locate` found, None if it found none; raise WrongType."""
    if n < 0:
        return None
    value: object = db.keys.object_at(n)
    if value is None:
        if db.buffer.load(db.keys, n) == _ZSET:
            return db.buffer.zset.hold(db.buffer.packed)
    elif type(value) is Zset:
        db.ledger.note(value)
        zset: Zset = value
        return zset
    raise WrongType()


@cython.cfunc
def new_zset(db: Database) -> Zset:
    """Return an empty sorted set, for `keep`."""
    db.buffer.start(_ZSET)
    return db.buffer.zset.hold(db.buffer.packed)


@cython.cfunc
def keep(session: Session, words: ArgumentSpans, n: cython.Py_ssize_t, value: Zset) -> cython.bint:
    """Store a sorted set that was changed as the value of the key in words[1]; delete the key of an empty one."""
    db: Database = session.db
    buffer: RestBuffer = db.buffer
    if value.count() == 0:
        key: bytes = words.get(1)
        db.delete(key)
        return session.notify(b"g", b"del", key)
    if value is not buffer.zset:
        return True
    if value.listpack is not None and not buffer.outgrown(_ZSET):
        return db.keep_bytes(words, n, buffer.compose())
    db.keep_object(words, n, value.detach())
    new_zset(db)
    return buffer.packed.shrink()
