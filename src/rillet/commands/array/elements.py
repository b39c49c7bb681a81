"""ARSET, ARMSET, ARGET, ARMGET, ARDEL, ARDELRANGE, ARLEN and ARCOUNT: values by their index (Redis: t_array.c)."""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.arguments import arity_error
from rillet.commands.array import command
from rillet.commands.array.values import (
    array_at,
    array_for_write,
    array_to_read,
    changed,
    index_at,
    parse_index,
    write_index,
    write_word,
)
from rillet.errors import CommandError, WrongType
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.array.sparse_array import NO_INDEX, SparseArray
from rillet.types.array import Array

_NO_INDEX = cython.declare(cython.ulonglong, NO_INDEX)


@cython.ccall
def set_range(
    session: Session, cells: SparseArray, first: cython.ulonglong, words: ArgumentSpans, begin: cython.Py_ssize_t
) -> cython.bint:
    """Set the arguments from `begin` on at consecutive indexes, all of which are valid."""
    kmax: cython.Py_ssize_t = session.engine.settings.array_sparse_kmax
    count: cython.Py_ssize_t = words.count - begin
    at: cython.Py_ssize_t
    if count > 1:
        cells.reserve_range(first, first + count - 1, kmax)
    for at in range(count):
        cells.set(first + at, words.get(begin + at), kmax)
    return True


@cython.final
@cython.cclass
class Arset(Implementation):
    """ARSET."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Set values; reply with the number of new ones."""
        first: cython.ulonglong = index_at(words, 2)
        count: cython.ulonglong = words.count - 3
        if count > _NO_INDEX - first:
            raise CommandError("array index overflow")
        cells: SparseArray = array_at(session, words, True).cells
        before: cython.ulonglong = cells.count
        set_range(session, cells, first, words, 3)
        session.changed(words, count)
        if session.db.notifies:
            session.notify(b"a", b"arset", words.get(1))
        return session.out.integer(cells.count - before)


command("arset", arity=-4, flags="write denyoom fast", syntax="key index value [value ...]",
        complexity="O(N) where N is the number of values",
        summary="Set values at consecutive indexes of an array, creating it if needed; reply with the number of new "
        "values.")(Arset)


@command("armset", arity=-4, flags="write denyoom fast", syntax="key index value [index value ...]",
         complexity="O(N) where N is the number of pairs")
def armset(session: Session, argv: list[bytes]) -> None:
    """Set values at indexes of an array, creating it if needed; reply with the number of new values."""
    key: bytes = argv[1]
    at: cython.Py_ssize_t
    if len(argv) % 2:
        raise arity_error("armset")
    for at in range(2, len(argv), 2):
        parse_index(argv[at])
    array: Array = array_for_write(session, key, True)
    cells: SparseArray = array.cells
    before: cython.ulonglong = cells.count
    kmax: cython.Py_ssize_t = session.engine.settings.array_sparse_kmax
    for at in range(2, len(argv), 2):
        cells.set(parse_index(argv[at]), argv[at + 1], kmax)
    changed(session, key, b"armset", len(argv) // 2 - 1)
    session.out.integer(cells.count - before)


@cython.final
@cython.cclass
class Arget(Implementation):
    """ARGET."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the value at an index."""
        n: cython.Py_ssize_t = session.db.locate_read(words)
        value: object = None if n < 0 else session.db.keys.object_at(n)
        if n >= 0 and not isinstance(value, Array):
            raise WrongType()
        index: cython.ulonglong = index_at(words, 2)
        if n < 0:
            return session.out.null()
        array: Array = value  # type: ignore[assignment]
        return write_word(session.out, array.cells, array.cells.word(index))


command("arget", arity=3, flags="readonly fast", syntax="key index", complexity="O(1)",
        summary="Reply with the value at an index of an array.")(Arget)


@command("armget", arity=-3, flags="readonly fast", syntax="key index [index ...]",
         complexity="O(N) where N is the number of indices")
def armget(session: Session, argv: list[bytes]) -> None:
    """Reply with the values at indexes of an array."""
    array: Array = array_to_read(session, argv[1])
    at: cython.Py_ssize_t
    for at in range(2, len(argv)):
        parse_index(argv[at])
    session.out.array(len(argv) - 2)
    for at in range(2, len(argv)):
        if array is None:
            session.out.null()
        else:
            write_word(session.out, array.cells, array.cells.word(parse_index(argv[at])))


@cython.cfunc
def _removed(session: Session, key: bytes, array: Array, event: bytes, count: cython.ulonglong) -> cython.bint:
    """Finish a removal: record it, publish the events, delete an empty array, and reply with the number of values."""
    if count:
        empty: cython.bint = array.cells.count == 0
        if empty:
            session.db.delete(key)
        changed(session, key, event, count)
        if empty:
            session.notify(b"g", b"del", key)
    return write_index(session.out, count)


@cython.final
@cython.cclass
class Ardel(Implementation):
    """ARDEL."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Delete values; reply with the number of those that existed."""
        at: cython.Py_ssize_t
        for at in range(2, words.count):
            index_at(words, at)
        array: Array | None = array_at(session, words, False)
        if array is None:
            return session.out.integer(0)
        settings = session.engine.settings
        kmax: cython.Py_ssize_t = settings.array_sparse_kmax
        kmin: cython.Py_ssize_t = settings.array_sparse_kmin
        count: cython.ulonglong = 0
        for at in range(2, words.count):
            count += array.cells.remove(index_at(words, at), kmax, kmin)
        if count == 0:
            return session.out.integer(0)
        return _removed(session, words.get(1), array, b"ardel", count)


command("ardel", arity=-3, flags="write fast", syntax="key index [index ...]",
        complexity="O(N) where N is the number of indices to delete",
        summary="Delete the values at indexes of an array; reply with the number of values that existed.")(Ardel)


@command("ardelrange", arity=-4, flags="write", syntax="key start end [start end ...]",
         complexity="Proportional to the number of existing elements / slices touched, not to the numeric span of the "
         "requested ranges")
def ardelrange(session: Session, argv: list[bytes]) -> None:
    """Delete the values in ranges of an array; reply with their number."""
    key: bytes = argv[1]
    at: cython.Py_ssize_t
    if len(argv) % 2:
        raise arity_error("ardelrange")
    for at in range(2, len(argv)):
        parse_index(argv[at])
    array: Array = array_for_write(session, key, False)
    if array is None:
        session.out.integer(0)
        return
    settings = session.engine.settings
    kmax: cython.Py_ssize_t = settings.array_sparse_kmax
    kmin: cython.Py_ssize_t = settings.array_sparse_kmin
    count: cython.ulonglong = 0
    for at in range(2, len(argv), 2):
        one: cython.ulonglong = parse_index(argv[at])
        other: cython.ulonglong = parse_index(argv[at + 1])
        if one <= other:
            count += array.cells.remove_range(one, other, kmax, kmin)
        else:
            count += array.cells.remove_range(other, one, kmax, kmin)
    _removed(session, key, array, b"ardelrange", count)


@command("arlen", arity=2, flags="readonly fast", syntax="key", complexity="O(1)")
def arlen(session: Session, argv: list[bytes]) -> None:
    """Reply with the length of an array: its highest index + 1."""
    array: Array = array_to_read(session, argv[1])
    write_index(session.out, 0 if array is None else array.cells.length())


@command("arcount", arity=2, flags="readonly fast", syntax="key", complexity="O(1)")
def arcount(session: Session, argv: list[bytes]) -> None:
    """Reply with the number of values in an array."""
    array: Array = array_to_read(session, argv[1])
    write_index(session.out, 0 if array is None else array.cells.count)
