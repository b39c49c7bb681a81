"""The fast paths of GET and SET: a pipeline of plain calls copies bytes between the client's buffers and the keyspace.

    GET key          key of the client's buffer -> entry -> value at rest -> reply
    SET key value    key and value of the client's buffer -> arena of the keyspace; also with IFEQ

No argument, key or value becomes a Python object (runtime/fast_path.py). The handlers in get_set.py execute everything
else: options, other types, keys that have an expiry, values that are too large to rest, and keys to which something is
attached (a watcher, a blocked client).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.string.values import write_string
from rillet.keyspace import lru
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime import session_state
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.types import at_rest
from rillet.types.compat import Compat
from rillet.types.stream.value import Stream
from rillet.types.string import String

if not cython.compiled:  # for compiled code, the .pxd declares this name
    from rillet.structs.dict_table import hash_bytes

if TYPE_CHECKING:  # C functions, which the .pxd declares for the compiled module
    memcmp: Any
    memcpy: Any

_LRU = cython.declare(cython.int, lru.LRU)
_KEEPS_TEXT = cython.declare(cython.int, session_state.KEEPS_TEXT)
_LIMIT = cython.declare(cython.Py_ssize_t, at_rest.LIMIT)
_IFEQ_LEVEL = cython.declare(cython.int, 84)
_LAST_STRING = cython.declare(cython.int, at_rest.LAST_STRING)


@cython.final
@cython.cclass
class GetFastPath(Implementation):
    """The fast path of GET: supports missing keys, and strings without an expiry that has passed."""

    __slots__ = ()

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Execute the GET on the bytes of the string, or with the handler."""
        if not session.db.notifies and self._get(session.db, session.out, words):
            return True
        return self.run_list(session, words)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _get(self, db: Database, out: ReplyWriter, words: ArgumentSpans) -> cython.bint:
        """Execute the GET, or return False without any effect if the fast path does not support it."""
        keys: Dict = db.keys
        expires: Dict = db.expires
        at: cython.p_const_uchar = words.at[1]
        size: cython.Py_ssize_t = words.size[1]
        h: cython.uint = hash_bytes(at, size)
        n: cython.Py_ssize_t = keys.find_hashed(at, size, h)
        if n < 0:
            db.misses += 1
            return out.null()
        if expires.used0 or expires.used1:
            due: cython.Py_ssize_t = expires.find_hashed(at, size, h)
            if due >= 0 and expires.number(due) < db.clock.now_ms():
                return False  # the handler deletes the expired key and logs its deletion
        value: object = keys.object_at(n)
        rest: cython.p_const_uchar = at
        if value is None:
            rest = keys.value_span(n)
            if rest[0] > _LAST_STRING:
                return False
        elif not isinstance(value, String):
            return False
        db.hits += 1
        if db.access.stamp >= 0:
            keys.put_lru(n, db.access.stamp)
        else:
            db.access.touch(keys, n)
        if value is not None:
            return write_string(out, value)
        if cython.compiled:
            return out.bulk_span(rest + 1, keys.span_size - 1)
        return out.bulk(bytes(rest[1 : keys.span_size]))


@cython.final
@cython.cclass
class SetFastPath(Implementation):
    """The fast path of SET: supports values that rest, at new keys and at keys without an expiry."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = bytearray(at_rest.LIMIT + 1)  # a plain string at rest: the tag 0, and the client's bytes

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Execute the SET on the bytes of the string, or with the handler."""
        db: Database = session.db
        if not db.notifies and (words.count == 3 or (words.count == 5 and words.is_option(3, b"ifeq"))):
            if not db.idmp_keys and not db.lazy_server_del and not session.state & _KEEPS_TEXT:
                if db.access.mode == _LRU and self._set(session, db, words):
                    return True
        return self.run_list(session, words)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _set(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute the SET, or return False without any effect if the fast path does not support it."""
        keys: Dict = db.keys
        expires: Dict = db.expires
        at: cython.p_const_uchar = words.at[1]
        size: cython.Py_ssize_t = words.size[1]
        data: cython.p_const_uchar = words.at[2]
        length: cython.Py_ssize_t = words.size[2]
        if length > _LIMIT:
            return False
        h: cython.uint = hash_bytes(at, size)
        if db.on_unlinked is not None:
            return False
        if (expires.used0 or expires.used1) and expires.find_hashed(at, size, h) >= 0:
            return False
        if db.subexpires.count() and db.subexpires.table.find_hashed(at, size, h) >= 0:
            return False
        if words.count == 5:
            met: cython.int = self._meets(session, db, words, h)
            if met <= 0:
                return met == 0 and session.out.null()
        n: cython.Py_ssize_t
        # A former object is freed at the end of this method, when the dict is complete again.
        old: object = None
        if cython.compiled:
            rest: cython.p_uchar = self._rest
            memcpy(rest + 1, data, length)  # noqa: F821
            n = keys.add_hashed(at, size, rest, length + 1, h)
            if not keys.added:
                old = keys.object_at(n)
                keys.set_value_span(n, rest, length + 1)
        else:
            plain = b"\0" + bytes(data)
            n = keys.add_hashed(at, size, plain, length + 1, h)
            if not keys.added:
                old = keys.object_at(n)
                keys.set_value_span(n, plain, length + 1)
        added: cython.bint = keys.added
        if old is not None:
            keys._set_object(n, None)
            db.ledger.leave(old)
        if db.access.stamp >= 0:
            keys.put_lru(n, db.access.stamp)
        elif added:
            db.access.start(keys, n)
        else:
            db.access.overwrite(keys, n)
        session.changed(words, 1)
        if db.blocking_keys and (added or (type(old) is Stream and db._awaits_group(words.get(1)))):
            db.signal_ready(words.get(1))
        return session.out.ok()

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _meets(self, session: Session, db: Database, words: ArgumentSpans, h: cython.uint) -> cython.int:
        """Return whether the string at the key equals the operand of IFEQ, as the handler reads it.

        Return -1 without any effect if the server does not have IFEQ or the value has another type.
        """
        keys: Dict = db.keys
        at: cython.p_const_uchar = words.at[4]
        size: cython.Py_ssize_t
        compat: Compat = session.engine.settings.compat
        if compat.level < _IFEQ_LEVEL and not compat.valkey:
            return -1
        n: cython.Py_ssize_t = keys.find_hashed(words.at[1], words.size[1], h)
        if n < 0:
            return 0
        value: object = keys.object_at(n)
        if value is None:
            rest: cython.p_const_uchar = keys.value_span(n)
            if rest[0] > _LAST_STRING:
                return -1
            size = keys.span_size - 1
            at = rest + 1 if cython.compiled else bytes(rest[1 : keys.span_size])
        elif isinstance(value, String):
            string: String = value
            size = string.length()
            at = string.span()
        else:
            return -1
        if not compat.valkey:
            db.hits += 1  # Redis looks the key up once more
        if db.access.stamp >= 0:
            keys.put_lru(n, db.access.stamp)
        else:
            db.access.touch(keys, n)
        if size != words.size[4]:
            return 0
        if cython.compiled:
            return memcmp(at, words.at[4], size) == 0  # noqa: F821
        return 1 if at == words.at[4] else 0


__all__ = ["GetFastPath", "SetFastPath"]
