"""Lookup, replies and storage for the string commands (Redis: t_string.c)."""

from __future__ import annotations

from rillet._cython import cython
from rillet.errors import CommandError, WrongType
from rillet.keyspace import lru
from rillet.keyspace.database import Database
from rillet.runtime import session_state
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.types.at_rest import LAST_STRING
from rillet.types.string import TEXT, String

_LAST_STRING = cython.declare(cython.int, LAST_STRING)

_LFU = cython.declare(cython.int, lru.LFU)
_KEEPS_TEXT = cython.declare(cython.int, session_state.KEEPS_TEXT)
_TEXT = cython.declare(cython.int, TEXT)


@cython.ccall
def form_of_word(session: Session) -> cython.int:
    """Return the form of a string that a command stores as it came.

    Valkey stores no integer for a script, whose words have another owner (object.c: tryObjectEncoding).
    """
    return _TEXT if session.state & _KEEPS_TEXT else 0


@cython.cclass
class StringCommand(Implementation):
    """The base of commands on the bytes of a string. at, size: what `view` found; form: see types/string.py."""

    __slots__ = ("at", "form", "size")
    at: cython.p_const_uchar
    size: cython.Py_ssize_t
    form: cython.int

    @cython.cfunc
    def view(self, keys: Dict, n: cython.Py_ssize_t) -> cython.bint:
        """Find the bytes of an entry's string, packed or not; raise WrongType for another type. O(1)

        They are valid until the next change of the keyspace.
        """
        if not self.has_string(keys, n):
            raise WrongType()
        return True

    @cython.cfunc
    def has_string(self, keys: Dict, n: cython.Py_ssize_t) -> cython.bint:
        """Do `view`, but return False for another type. O(1)"""
        value: object = keys.object_at(n)
        if value is None:
            packed: cython.p_const_uchar = keys.value_span(n)
            if packed[0] > _LAST_STRING:
                return False
            self.form = packed[0]
            self.size = keys.span_size - 1
            self.at = packed + 1 if cython.compiled else bytes(packed[1 : keys.span_size])
        elif isinstance(value, String):
            string: String = value
            self.form = string.form
            self.size = string.length()
            self.at = string.span()
        else:
            return False
        return True


@cython.ccall
def write_string_at(session: Session, n: cython.Py_ssize_t, lenient: cython.bint = False) -> cython.bint:
    """Reply with the string of an entry of the keyspace, null if n < 0. A packed string is copied to the reply.

    For a value of another type, raise WrongType, or reply null if `lenient`.
    """
    if n < 0:
        return session.out.null()
    keys: Dict = session.db.keys
    value: object = keys.object_at(n)
    if value is None:
        at: cython.p_const_uchar = keys.value_span(n)
        if at[0] <= _LAST_STRING:
            if cython.compiled:
                return session.out.bulk_span(at + 1, keys.span_size - 1)
            return session.out.bulk(bytes(at[1 : keys.span_size]))
    elif isinstance(value, String):
        string: String = value
        if string.grown is None:
            return session.out.bulk(string.data)
        return session.out.bulk_slice(string.grown, 0, len(string.grown))
    if not lenient:
        raise WrongType()
    return session.out.null()


@cython.ccall
def write_string_of(session: Session, key: bytes, lenient: cython.bint = False) -> cython.bint:
    """Look up a key and do `write_string_at`."""
    return write_string_at(session, session.db.find_read(key), lenient)


@cython.ccall
def string_to_read(session: Session, key: bytes) -> String:
    """Return the string at a key, which the caller does not change, or None; raise WrongType for another type."""
    value: object = session.db.view_read(key)
    if value is not None and not isinstance(value, String):
        raise WrongType()
    return value  # type: ignore[return-value]


@cython.ccall
def string_to_change(db: Database, key: bytes) -> String:
    """Return the string at a key for a command that will replace it; else as `string_for_write`."""
    value: object = db.view(key)
    if value is not None and not isinstance(value, String):
        raise WrongType()
    return value  # type: ignore[return-value]


@cython.ccall
def string_for_write(db: Database, key: bytes) -> String:
    """Return the string at a key for a write, None if the key does not exist; raise WrongType for another type."""
    value: object = db.lookup(key)
    if value is not None and not isinstance(value, String):
        raise WrongType()
    return value  # type: ignore[return-value]


@cython.ccall
def string_at(db: Database, words: ArgumentSpans, n: cython.Py_ssize_t) -> String:
    """Return the string of entry n, whose key is words[1], for a write, None if n < 0; raise WrongType."""
    value: object = None if n < 0 else db.unpack(words, n)
    if value is not None and not isinstance(value, String):
        raise WrongType()
    return value  # type: ignore[return-value]


@cython.ccall
def store_string(
    session: Session, key: bytes, data: bytes, event: bytes, form: cython.int = 0
) -> cython.bint:
    """Store a value as SET does: remove the expiry, mark watchers, publish the event."""
    if session.db.access.mode == _LFU:
        session.db.touch_access(key)  # the lookup of setKey
    session.db.replace_string(key, data, False, form or form_of_word(session))
    session.modified(key)
    session.notify(b"$", event, key)
    return True


@cython.ccall
def update_string(session: Session, key: bytes, data: bytes, form: cython.int, event: bytes) -> cython.bint:
    """Replace the value of a key by a string of the form, and keep its expiry."""
    session.db.set_string(key, data, form, True)
    session.modified(key)
    session.notify(b"$", event, key)
    return True


def check_length(session: Session, size: int) -> None:
    if size > session.engine.settings.proto_max_bulk_len and not session.trusted:
        raise CommandError("string exceeds maximum allowed size (proto-max-bulk-len)")
