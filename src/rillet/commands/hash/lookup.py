"""The hash of a command whose arguments are spans, from its lookup until it is stored again.

    value = find_to_change(db, words)      an object, the buffer's packed hash, or None
    value = hash_to_fill(db, words, value, 2)
    value.set_at(...)                      the same operations for both
    keep_hash(db, words, value)            a packed hash becomes bytes in the dict again, or an object if it is large

A packed hash belongs to the buffer (keyspace/rest_buffer.py): a command uses it before it publishes events, and never
stores it. A hash at rest becomes an object at once if a field in it may have expired, or if it is a hashtable with
times.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.hash.unexpired import UnexpiredFields
from rillet.errors import WrongType
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.types.at_rest import LIMIT, type_at_rest
from rillet.types.hash import Hash

_LIMIT = cython.declare(cython.Py_ssize_t, LIMIT)
_DIGITS = cython.declare(cython.Py_ssize_t, 20)  # characters of the longest integer
_HEADS = cython.declare(cython.Py_ssize_t, 4)  # at least so many bytes beside a field and its value in a listpack


@cython.cfunc
def has_expired(db: Database, value: Hash) -> cython.bint:
    """Return whether a field of the hash may have expired. O(1)"""
    earliest: cython.longlong = value.earliest()
    return earliest != 0 and earliest <= db.clock.now_ms()


@cython.cfunc
def find_to_read(db: Database, words: ArgumentSpans) -> Hash | None:
    """Return the hash of words[1], which the caller does not change, or None; count a hit or miss (lookupKeyRead)."""
    n: cython.Py_ssize_t = db.locate_read(words)
    return None if n < 0 else _hash_of(db, words, n)


@cython.cfunc
def find_to_change(db: Database, words: ArgumentSpans) -> Hash | None:
    """Return the hash of words[1], or None (lookupKeyWrite)."""
    n: cython.Py_ssize_t = db.locate(words)
    db.buffer.entry = n
    if n < 0:
        return None
    value: Hash = _hash_of(db, words, n)
    if value.tag == 0:
        db.ledger.note(value)
    return value


@cython.cfunc
def _hash_of(db: Database, words: ArgumentSpans, n: cython.Py_ssize_t) -> Hash:
    """Return the value of an entry; raise WrongType for other types."""
    keys: Dict = db.keys
    found: object = keys.object_at(n)
    value: Hash | None
    if found is None:
        value = db.buffer.load_hash(keys, n)
        if value is not None and (value.expiry is None or not has_expired(db, value)):
            return value
        if value is not None or type_at_rest(keys.value_byte(n)) is Hash:
            return db._wake(words.get(1), n)  # type: ignore[return-value]
    if type(found) is not Hash:
        raise WrongType()
    return found


@cython.cfunc
def hash_to_fill(db: Database, words: ArgumentSpans, value: Hash | None, first: cython.Py_ssize_t) -> Hash:
    """Return the hash of `find_to_change`, or a new one, to which the words from `first` on can be added.

    It is converted to a hashtable if these fields and values require it (hashTypeTryConversion).
    """
    i: cython.Py_ssize_t
    widest: cython.Py_ssize_t = 0
    total: cython.Py_ssize_t = 0
    for i in range(first, words.count):
        widest = max(widest, words.size[i])
        total += words.size[i]
    return fillable(db, words, value, (words.count - first) >> 1, widest, total)


@cython.cfunc
def fillable(
    db: Database, words: ArgumentSpans, value: Hash | None, pairs: cython.Py_ssize_t, widest: cython.Py_ssize_t,
    total: cython.Py_ssize_t,
) -> Hash:  # fmt: skip
    """Do `hash_to_fill` for so many pairs; widest, total: the bytes of the longest word, and of all words."""
    buffer: RestBuffer = db.buffer
    if value is None or value.tag != 0:
        if total + _HEADS * pairs > _LIMIT or (value is not None and value.expiry is not None and (
                max(widest, _DIGITS) > buffer.hash_value or value.count() + pairs > buffer.hash_entries)):  # fmt: skip
            value = Hash() if value is None else unpacked(db, words, value)
        elif value is None:
            value = buffer.start_hash()
    if not value.is_table() and (widest > buffer.hash_value or (buffer.compact and pairs > buffer.hash_entries)
                                 or not value.packed().can_append(total)):  # fmt: skip
        value.to_hashtable()
    return value


@cython.cfunc
def unpacked(db: Database, words: ArgumentSpans, value: Hash) -> Hash:
    """Return the object of an existing hash, whose packed form has not been changed yet."""
    return value if value.tag == 0 else db._wake(words.get(1), db.buffer.entry)  # type: ignore[return-value]


@cython.cfunc
def keep_hash(db: Database, words: ArgumentSpans, value: Hash) -> cython.bint:
    """Store a hash of `find_to_change` or `hash_to_fill` after a change; delete the key if the hash is empty."""
    n: cython.Py_ssize_t = db.buffer.entry
    size: cython.Py_ssize_t
    if value.count() == 0:
        if n < 0:  # HSETEX with a time in the past creates a key and deletes it
            db.keep_object(words, n, value)
        return db.delete(words.get(1))
    if value.tag == 0:
        return n >= 0 or db.keep_object(words, n, value)
    size = db.buffer.compose_hash(value)
    if size:
        return db.keep_bytes(words, n, size)
    return db.keep_object(words, n, value.copy())


@cython.cfunc
@cython.exceptval(-3, check=False)
def locate_unexpired(session: Session, words: ArgumentSpans, value: Hash, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the place of the field words[i]; -1 if it is missing or has expired, -2 if it was removed for that.

    Redis removes it, and a hash that it empties; the caller then finds the hash again.
    """
    place: cython.Py_ssize_t = value.locate(words.at[i], words.size[i])
    if place >= 0 and value.expiry is not None and has_expired(session.db, value):
        fields = UnexpiredFields(session, words.get(1), value)
        if fields.get(words.get(i)) is None:
            return -2 if fields.expired or fields.deleted else -1
    return place
