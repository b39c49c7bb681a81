"""ARINSERT, ARRING, ARNEXT, ARSEEK and ARLASTITEMS: values in the order of their insertion (Redis: t_array.c)."""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.arguments import arity_error, integer, syntax_error
from rillet.commands.array import command
from rillet.commands.array.elements import set_range
from rillet.commands.array.values import (
    array_at,
    array_for_write,
    array_to_read,
    changed,
    parse_index,
    write_index,
    write_word,
)
from rillet.commands.span_arguments import integer_at
from rillet.errors import CommandError
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.array.sparse_array import NO_INDEX, SparseArray
from rillet.types.array import Array

_NO_INDEX = cython.declare(cython.ulonglong, NO_INDEX)


@cython.final
@cython.cclass
class Arinsert(Implementation):
    """ARINSERT."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Set values at the next indexes; reply with the last one."""
        count: cython.ulonglong = words.count - 2
        array: Array = array_at(session, words, True)
        first: cython.ulonglong = array.next_index()
        if count > _NO_INDEX - first:
            raise CommandError("insert index overflow")
        set_range(session, array.cells, first, words, 2)
        array.cells.insert_index = first + count - 1
        session.changed(words, count)
        if session.db.notifies:
            session.notify(b"a", b"arinsert", words.get(1))
        return write_index(session.out, first + count - 1)


command("arinsert", arity=-3, flags="write denyoom fast", syntax="key value [value ...]",
        complexity="O(N) where N is the number of values",
        summary="Set values at the indexes after the last insert, creating the array if needed; reply with the last "
        "index.")(Arinsert)


@cython.final
@cython.cclass
class Arring(Implementation):
    """ARRING."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Set values in a ring; reply with the last index."""
        number: cython.longlong = integer_at(words, 2, "invalid size")
        if number <= 0:
            raise CommandError("size must be positive")
        size: cython.ulonglong = number
        array: Array = array_at(session, words, True)
        settings = session.engine.settings
        kmax: cython.Py_ssize_t = settings.array_sparse_kmax
        array.rework(size, settings.array_slice_size, kmax)
        cells: SparseArray = array.cells
        at: cython.Py_ssize_t
        index: cython.ulonglong = 0
        for at in range(3, words.count):
            index = array.next_index()
            if index >= size:
                index %= size
            cells.set(index, words.get(at), kmax)
            cells.insert_index = index
        session.changed(words, words.count - 3)
        if session.db.notifies:
            session.notify(b"a", b"arring", words.get(1))
        return write_index(session.out, index)


command("arring", arity=-4, flags="write denyoom", syntax="key size value [value ...]",
        complexity="O(M) normally, O(N+M) on ring resize, where N is the maximum of the old and new ring size and M "
        "is the number of inserted values",
        summary="Set values at the indexes after the last insert, modulo the size of the ring; reply with the last "
        "index.")(Arring)


@command("arnext", arity=2, flags="readonly fast", syntax="key", complexity="O(1)")
def arnext(session: Session, argv: list[bytes]) -> None:
    """Reply with the index of the next insert, null if there is no index after the last one."""
    array: Array = array_to_read(session, argv[1])
    index: cython.ulonglong = 0 if array is None else array.next_index()
    if index == _NO_INDEX:
        session.out.null()
    else:
        write_index(session.out, index)


@command("arseek", arity=3, flags="write fast", syntax="key index", complexity="O(1)")
def arseek(session: Session, argv: list[bytes]) -> None:
    """Set the index of the next insert; reply with 0 if there is no array."""
    key: bytes = argv[1]
    index: cython.ulonglong = parse_index(argv[2], True)
    array: Array = array_for_write(session, key, False)
    if array is None:
        session.out.integer(0)
        return
    array.cells.insert_index = _NO_INDEX if index == 0 else index - 1
    changed(session, key, b"arseek", 1)
    session.out.integer(1)


@command("arlastitems", arity=-3, flags="readonly", syntax="key count [REV]", complexity="O(N) where N is the count")
def arlastitems(session: Session, argv: list[bytes]) -> None:
    """Reply with the values at the last indexes of insertion, oldest first, or newest first with REV."""
    most = integer(argv[2], "invalid COUNT")
    if most <= 0:
        session.out.array(0)
        return
    newest_first: cython.bint = len(argv) == 4
    if newest_first:
        if argv[3].lower() != b"rev":
            raise syntax_error()
    elif len(argv) != 3:
        raise arity_error("arlastitems")
    array: Array = array_to_read(session, argv[1])
    if array is None:
        session.out.array(0)
        return
    cells: SparseArray = array.cells
    length: cython.ulonglong = cells.length()
    count: cython.ulonglong = cells.count if cells.count < most else most
    last: cython.ulonglong = length - 1 if cells.insert_index == _NO_INDEX else cells.insert_index
    session.out.array(count)
    at: cython.ulonglong
    for at in range(count):
        back: cython.ulonglong = at if newest_first else count - 1 - at
        # Below index 0, the walk continues at the end of the array.
        index: cython.ulonglong = last - back if back <= last else length - 1 - (back - last - 1) % length
        write_word(session.out, cells, cells.word(index))
