"""PFADD, PFCOUNT and PFMERGE (Redis: hyperloglog.c; structs/hyperloglog.py has the algorithm).

The value is a string, so any string that begins like a HyperLogLog is one. PFCOUNT of one key writes its estimate into
the string: it is a read for clients, and yet a change that is logged. A string that is used becomes raw in each case.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.hyperloglog import command
from rillet.commands.hyperloglog.fast_path import PfaddFastPath, PfcountFastPath, PfmergeFastPath
from rillet.commands.string.values import string_for_write, string_to_read
from rillet.errors import InvalidObj, WrongType
from rillet.keyspace.database import Database
from rillet.runtime.session import Session
from rillet.structs.hyperloglog import EMPTY, Cursor
from rillet.structs.hyperloglog_union import Union, count_string
from rillet.types.string import String, new_string

if not cython.compiled:  # the compiled module gets these C functions from its .pxd file
    from rillet.structs.hyperloglog import add, cache_count, cached_count, forget_count, is_valid


@cython.ccall
@cython.exceptval(-1, check=False)
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
def _created(db: Database, key: bytes) -> String:
    """Store a HyperLogLog without elements, and return it."""
    string: String = new_string(b"")
    string.append(EMPTY)
    db.set(key, string)
    return string


@command("pfadd", arity=-2, flags="write denyoom fast", since="2.8.9", syntax="key [element [element ...]]",
         complexity="O(1) to add every element.", shortcut=PfaddFastPath)
def pfadd(session: Session, argv: list[bytes]) -> None:
    """Add elements to a HyperLogLog, which is created; reply 1 if the estimate may have changed."""
    key: bytes = argv[1]
    limit: cython.Py_ssize_t = session.engine.settings.hll_sparse_max_bytes
    changes: cython.Py_ssize_t = 0
    result: cython.int = 0
    string: String = string_for_write(session.db, key)
    if string is None:
        string = _created(session.db, key)
        changes = 1
    else:
        check_value(string)
    buf: bytearray = string.reserve(0)
    cursor: Cursor = Cursor()
    element: bytes
    i: cython.Py_ssize_t = 2
    while i < len(argv):
        element = argv[i]
        result = add(buf, element, len(element), limit, cursor)
        if result < 0:
            raise InvalidObj()
        changes += result
        i += 1
    if changes:
        forget_count(buf)
        session.modified(key)
        session.dirty += changes - 1
        session.notify(b"$", b"pfadd", key)
    session.out.integer(1 if changes else 0)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _count_one(session: Session, key: bytes) -> cython.bint:
    """Reply with the estimate of one key, which is computed again if registers have changed."""
    db: Database = session.db
    n: cython.Py_ssize_t = db.find_read(key)
    if n < 0:
        return session.out.integer(0)
    value: object = db._wake(key, n)
    check_value(value)
    string: String = value  # type: ignore[assignment]
    buf: bytearray = string.reserve(0)
    found: cython.longlong = cached_count(string.span())
    if found < 0:
        found = count_string(buf)
        if found == -1:
            raise InvalidObj()
        cache_count(buf, found)
        session.modified(key)
    return session.out.integer(found)


@command("pfcount", arity=-2, flags="readonly may_replicate", keys=(1, -1, 1), since="2.8.9", syntax="key [key ...]",
         complexity="O(1) with a very small average constant time when called with a single key. O(N) with N being the "
         "number of keys, and much bigger constant times, when called with multiple keys.",
         shortcut=PfcountFastPath)
def pfcount(session: Session, argv: list[bytes]) -> None:
    """Estimate how many different elements were added to one HyperLogLog, or to any of several."""
    string: String
    if len(argv) == 2:
        _count_one(session, argv[1])
        return
    union: Union = Union()
    for key in argv[1:]:
        string = string_to_read(session, key)
        if string is not None:
            check_value(string)
            if not union.merge(string.bytes_like()):
                raise InvalidObj()
    session.out.integer(union.count())


@command("pfmerge", arity=-2, flags="write denyoom", keys=(1, -1, 1), since="2.8.9",
         syntax="destkey [sourcekey [sourcekey ...]]",
         complexity="O(N) to merge N HyperLogLogs, but with high constant times.", shortcut=PfmergeFastPath)
def pfmerge(session: Session, argv: list[bytes]) -> None:
    """Add the elements of several HyperLogLogs to the first one, which is created."""
    key: bytes = argv[1]
    union: Union = Union()
    string: String
    for one in argv[1:]:
        string = string_to_read(session, one)
        if string is not None:
            check_value(string)
            if not union.merge(string.bytes_like()):
                raise InvalidObj()
    string = string_for_write(session.db, key)
    if string is None:
        string = _created(session.db, key)
    buf: bytearray = string.reserve(0)
    if not union.store(buf, session.engine.settings.hll_sparse_max_bytes):
        raise InvalidObj()
    forget_count(buf)
    session.modified(key)
    session.notify(b"$", b"pfadd", key)
    session.out.ok()
