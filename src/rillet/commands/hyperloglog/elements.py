"""PFADD, PFCOUNT and PFMERGE (Redis: hyperloglog.c; structs/hyperloglog.py has the algorithm).

The value is a string, so any string that begins like a HyperLogLog is one. PFCOUNT of one key writes its estimate into
the string: it is a read for clients, and yet a change that is logged. A string that is used becomes raw in each case.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.hyperloglog import command
from rillet.commands.string.values import string_at
from rillet.errors import InvalidObj, WrongType
from rillet.keyspace.database import Database
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.hyperloglog import EMPTY, Cursor, add, cache_count, cached_count, forget_count, is_valid
from rillet.structs.hyperloglog_union import Union, count_string
from rillet.types.string import String, new_string


@cython.ccall
def check_value(value: object) -> cython.bint:
    """Raise WrongType unless a value is a HyperLogLog (isHLLObjectOrReply)."""
    string: String
    if not isinstance(value, String):
        raise WrongType()
    string = value
    if not is_valid(string.span(), string.length()):
        raise WrongType("Key is not a valid HyperLogLog string value.")
    return True


@cython.cfunc
def _made(db: Database, words: ArgumentSpans, string: String) -> String:
    """Return the HyperLogLog that was found at words[1], or store one without elements there."""
    if string is None:
        string = new_string(b"")
        string.append(EMPTY)
        db.set(words.get(1), string)
    else:
        check_value(string)
        if string.grown is None:
            string.reserve(0)
    return string


@cython.cfunc
def _merge(db: Database, words: ArgumentSpans, union: Union) -> cython.bint:
    """Add the HyperLogLogs at all keys of a call."""
    at: cython.Py_ssize_t
    for at in range(1, words.count):
        n: cython.Py_ssize_t = db.locate_read(words, at)
        if n >= 0:
            value: object = db.value_at(n)
            check_value(value)
            string: String = value  # type: ignore[assignment]
            if not union.merge(string.bytes_like()):
                raise InvalidObj()
    return True


@cython.final
@cython.cclass
class Pfadd(Implementation):
    """PFADD (pfaddCommand): elements are hashed where they were received."""

    __slots__ = ("_cursor",)
    _cursor: Cursor

    def __init__(self) -> None:
        self._cursor = Cursor()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Add elements; reply 1 if the estimate may have changed."""
        db: Database = session.db
        limit: cython.Py_ssize_t = session.engine.settings.hll_sparse_max_bytes
        string: String = string_at(db, words, db.locate(words))
        changes: cython.Py_ssize_t = 1 if string is None else 0
        string = _made(db, words, string)
        result: cython.int = 0
        i: cython.Py_ssize_t
        for i in range(2, words.count):
            result = add(string.grown, words.at[i], words.size[i], limit, self._cursor)
            if result < 0:
                raise InvalidObj()
            changes += result
        if changes:
            forget_count(string.grown)
            session.changed(words, changes)
            if db.notifies:
                session.notify(b"$", b"pfadd", words.get(1))
        return session.out.integer(1 if changes else 0)


command("pfadd", arity=-2, flags="write denyoom fast", since="2.8.9", syntax="key [element [element ...]]",
        complexity="O(1) to add every element.",
        summary="Add elements to a HyperLogLog, which is created; reply 1 if the estimate may have changed.")(Pfadd)


@cython.final
@cython.cclass
class Pfcount(Implementation):
    """PFCOUNT (pfcountCommand). The estimate of one key is computed again if registers have changed."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with an estimate."""
        db: Database = session.db
        if words.count > 2:
            union: Union = Union()
            _merge(db, words, union)
            return session.out.integer(union.count())
        n: cython.Py_ssize_t = db.locate_read(words)
        if n < 0:
            return session.out.integer(0)
        string: String = _made(db, words, string_at(db, words, n))
        found: cython.longlong = cached_count(string.span())
        if found < 0:
            found = count_string(string.grown)
            if found == -1:
                raise InvalidObj()
            cache_count(string.grown, found)
            session.changed(words, 1)
        return session.out.integer(found)


command("pfcount", arity=-2, flags="readonly may_replicate", keys=(1, -1, 1), since="2.8.9", syntax="key [key ...]",
        complexity="O(1) with a very small average constant time when called with a single key. O(N) with N being the "
        "number of keys, and much bigger constant times, when called with multiple keys.",
        summary="Estimate how many different elements were added to one HyperLogLog, or to any of several.")(Pfcount)


@cython.final
@cython.cclass
class Pfmerge(Implementation):
    """PFMERGE (pfmergeCommand). _union: an empty union, or None while a call uses it."""

    __slots__ = ("_union",)
    _union: Union | None

    def __init__(self) -> None:
        self._union = None

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Add the elements of several HyperLogLogs to the first one, which is created."""
        db: Database = session.db
        union: Union | None = self._union
        self._union = None
        if union is None:  # the first call, or one after an error, or one inside another
            union = Union()
        union.clear()
        _merge(db, words, union)
        string: String = _made(db, words, string_at(db, words, db.locate(words)))
        if not union.store(string.grown, session.engine.settings.hll_sparse_max_bytes):
            raise InvalidObj()
        union.clear()
        self._union = union
        forget_count(string.grown)
        session.changed(words, 1)
        if db.notifies:
            session.notify(b"$", b"pfadd", words.get(1))
        return session.out.ok()


command("pfmerge", arity=-2, flags="write denyoom", keys=(1, -1, 1), since="2.8.9",
        syntax="destkey [sourcekey [sourcekey ...]]",
        complexity="O(N) to merge N HyperLogLogs, but with high constant times.",
        summary="Add the elements of several HyperLogLogs to the first one, which is created.")(Pfmerge)
