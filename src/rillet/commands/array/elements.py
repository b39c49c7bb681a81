"""ARSET, ARMSET, ARGET, ARMGET, ARDEL, ARDELRANGE, ARLEN and ARCOUNT: values by their index (Redis: t_array.c)."""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.arguments import arity_error
from rillet.commands.array import command
from rillet.commands.array.fast_path import ArdelFastPath, ArgetFastPath, ArsetFastPath
from rillet.commands.array.values import array_for_write, array_to_read, changed, parse_index, write_index, write_word
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs.sparse_array import NO_INDEX, SparseArray
from rillet.types.array import Array

_NO_INDEX = cython.declare(cython.ulonglong, NO_INDEX)


@cython.ccall
@cython.exceptval(-1, check=False)
def set_range(
    session: Session, cells: SparseArray, first: cython.ulonglong, argv: list[bytes], begin: cython.Py_ssize_t
) -> cython.bint:
    """Set the arguments from `begin` on at consecutive indexes, all of which are valid."""
    kmax: cython.Py_ssize_t = session.engine.settings.array_sparse_kmax
    count: cython.Py_ssize_t = len(argv) - begin
    at: cython.Py_ssize_t
    if count > 1:
        cells.reserve_range(first, first + count - 1, kmax)
    for at in range(count):
        cells.set(first + at, argv[begin + at], kmax)
    return True


@command("arset", arity=-4, flags="write denyoom fast", syntax="key index value [value ...]",
         complexity="O(N) where N is the number of values", shortcut=ArsetFastPath)
def arset(session: Session, argv: list[bytes]) -> None:
    """Set values at consecutive indexes of an array, creating it if needed; reply with the number of new values."""
    key: bytes = argv[1]
    first: cython.ulonglong = parse_index(argv[2])
    count: cython.ulonglong = len(argv) - 3
    if count > _NO_INDEX - first:
        raise CommandError("array index overflow")
    array: Array = array_for_write(session, key, True)
    before: cython.ulonglong = array.cells.count
    set_range(session, array.cells, first, argv, 3)
    changed(session, key, b"arset", count)
    session.out.integer(array.cells.count - before)


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


@command("arget", arity=3, flags="readonly fast", syntax="key index", complexity="O(1)", shortcut=ArgetFastPath)
def arget(session: Session, argv: list[bytes]) -> None:
    """Reply with the value at an index of an array."""
    array: Array = array_to_read(session, argv[1])
    index: cython.ulonglong = parse_index(argv[2])
    if array is None:
        session.out.null()
    else:
        write_word(session.out, array.cells, array.cells.word(index))


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
@cython.exceptval(-1, check=False)
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


@command("ardel", arity=-3, flags="write fast", syntax="key index [index ...]",
         complexity="O(N) where N is the number of indices to delete", shortcut=ArdelFastPath)
def ardel(session: Session, argv: list[bytes]) -> None:
    """Delete the values at indexes of an array; reply with the number of values that existed."""
    key: bytes = argv[1]
    at: cython.Py_ssize_t
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
    for at in range(2, len(argv)):
        count += array.cells.remove(parse_index(argv[at]), kmax, kmin)
    _removed(session, key, array, b"ardel", count)


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
