"""The fast paths of ARGET, ARSET, ARDEL, ARINSERT and ARRING: a value of an array that is awake, without word lists.

The handlers in elements.py and ring.py execute everything else: missing keys, several values, unusual indexes, errors.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.array.values import write_index, write_word
from rillet.commands.small_values import SmallValuePath
from rillet.keyspace.database import Database
from rillet.runtime.session import Session
from rillet.runtime.settings import Settings
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.sparse_array import NO_INDEX, SparseArray
from rillet.types.array import Array

_NO_INDEX = cython.declare(cython.ulonglong, NO_INDEX)


@cython.cfunc
@cython.exceptval(-2, check=False)
def _index(words: ArgumentSpans) -> cython.longlong:
    """Return the index in words[2]: up to 18 digits, also with leading zeros; -1 if it is anything else."""
    size: cython.Py_ssize_t = words.size[2]
    i: cython.Py_ssize_t
    value: cython.longlong = 0
    if size == 0 or size > 18:
        return -1
    for i in range(size):
        char: cython.int = words.at[2][i]
        if char < 48 or char > 57:
            return -1
        value = value * 10 + (char - 48)
    return value


@cython.cclass
class _ArrayPath(SmallValuePath):
    """What they have in common: servers before 8.8 do not know the commands."""

    __slots__ = ("_n",)
    _n: cython.Py_ssize_t  # the entry of the array that `_array` returned

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Execute the call on the cells of the array, or with the handler."""
        if not session.engine.settings.compat.knows(88):
            return self.run_list(session, words)
        return SmallValuePath.run(self, session, words)

    @cython.cfunc
    def _array(self, db: Database, words: ArgumentSpans) -> Array:
        """Return the array of words[1] without any effect, None if the fast path does not support it."""
        n: cython.Py_ssize_t = self.find(db, words)
        if n < 0:
            return None  # type: ignore[return-value]
        value: object = db.keys.object_at(n)
        if value is None or not isinstance(value, Array):
            return None  # type: ignore[return-value]
        self._n = n
        return value


@cython.final
@cython.cclass
class ArgetFastPath(_ArrayPath):
    """The fast path of ARGET."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"arget"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Reply with the value at an index, or return False without any effect."""
        if words.count != 3:
            return False
        index: cython.longlong = _index(words)
        array: Array = self._array(db, words)
        if index < 0 or array is None:
            return False
        db.hits += 1
        self.touch(db, self._n)
        return write_word(session.out, array.cells, array.cells.word(index))


@cython.final
@cython.cclass
class ArsetFastPath(_ArrayPath):
    """The fast path of ARSET with one value."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"arset"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Set the value at an index, or return False without any effect."""
        if words.count != 4:
            return False
        index: cython.longlong = _index(words)
        array: Array = self._array(db, words)
        if index < 0 or array is None:
            return False
        db.ledger.note(array)
        self.touch(db, self._n)
        new: cython.bint = array.cells.set(index, words.get(3), session.engine.settings.array_sparse_kmax)
        session.changed(words, 1)
        return session.out.integer(new)


@cython.final
@cython.cclass
class ArdelFastPath(_ArrayPath):
    """The fast path of ARDEL with one index, except of an array's last value."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"ardel"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Delete the value at an index, or return False without any effect."""
        if words.count != 3:
            return False
        index: cython.longlong = _index(words)
        array: Array = self._array(db, words)
        if index < 0 or array is None:
            return False
        cells: SparseArray = array.cells
        if cells.word(index) == 0:
            self.touch(db, self._n)
            return session.out.integer(0)
        if cells.count == 1:
            return False
        settings: Settings = session.engine.settings
        db.ledger.note(array)
        self.touch(db, self._n)
        cells.remove(index, settings.array_sparse_kmax, settings.array_sparse_kmin)
        session.changed(words, 1)
        return session.out.integer(1)


@cython.final
@cython.cclass
class ArinsertFastPath(_ArrayPath):
    """The fast path of ARINSERT with one value."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"arinsert"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Set the value after the last insert, or return False without any effect."""
        if words.count != 3:
            return False
        array: Array = self._array(db, words)
        if array is None:
            return False
        index: cython.ulonglong = array.next_index()
        if index == _NO_INDEX:
            return False
        cells: SparseArray = array.cells
        db.ledger.note(array)
        self.touch(db, self._n)
        cells.set(index, words.get(2), session.engine.settings.array_sparse_kmax)
        cells.insert_index = index
        session.changed(words, 1)
        return write_index(session.out, index)


@cython.final
@cython.cclass
class ArringFastPath(_ArrayPath):
    """The fast path of ARRING with one value."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"arring"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Set the value after the last insert of a ring, or return False without any effect."""
        size: cython.ulonglong = max(words.number(2), 0)
        if words.count != 4 or size == 0:
            return False
        array: Array = self._array(db, words)
        if array is None:
            return False
        settings: Settings = session.engine.settings
        kmax: cython.Py_ssize_t = settings.array_sparse_kmax
        db.ledger.note(array)
        self.touch(db, self._n)
        array.rework(size, settings.array_slice_size, kmax)
        index: cython.ulonglong = array.next_index() % size
        array.cells.set(index, words.get(3), kmax)
        array.cells.insert_index = index
        session.changed(words, 1)
        return write_index(session.out, index)
