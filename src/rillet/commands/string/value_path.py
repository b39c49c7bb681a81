"""The base of fast paths on one string: it finds the bytes of a string, awake or at rest (runtime/fast_path.py).

    view    for a command that reads: the address and size of the bytes, wherever they are
    raw     for a command that changes bytes in place: the string, if it is awake and has its own buffer

A string gets that buffer when the handler of such a command changes it for the first time.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.small_values import SmallValuePath
from rillet.keyspace.database import Database
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.types.at_rest import LAST_STRING
from rillet.types.string import String

_LAST_STRING = cython.declare(cython.int, LAST_STRING)


@cython.cclass
class StringPath(SmallValuePath):
    """The fast path of a command on one string.

    n: the entry of the string that `raw` returned; at, size: the bytes that `view` found.
    """

    __slots__ = ("at", "n", "size")

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def view(self, db: Database, words: ArgumentSpans) -> cython.int:
        """Find the string of words[1] as a read does; return 0, MISSING, or UNUSUAL without any effect.

        `at` is valid until the next change of the keyspace. For a missing key, `size` is 0.
        """
        keys: Dict = db.keys
        n: cython.Py_ssize_t = self.find(db, words)
        self.at = words.at[1]
        self.size = 0
        if n < 0:
            if n != -1 or db.on_missed is not None:
                return -2
            db.misses += 1
            return -1
        if not self.view_entry(keys, n):
            return -2
        db.hits += 1
        self.touch(db, n)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def view_entry(self, keys: Dict, n: cython.Py_ssize_t) -> cython.bint:
        """Find the bytes of an entry's string without an effect; return False for another type."""
        value: object = keys.object_at(n)
        if value is None:
            rest: cython.p_const_uchar = keys.value_span(n)
            if rest[0] > _LAST_STRING:
                return False
            self.size = keys.span_size - 1
            self.at = rest + 1 if cython.compiled else bytes(rest[1 : keys.span_size])
        elif isinstance(value, String):
            string: String = value
            self.size = string.length()
            self.at = string.span()
        else:
            return False
        return True

    @cython.cfunc
    def raw(self, db: Database, words: ArgumentSpans) -> String:
        """Return the string of words[1], to change its buffer `grown`; None if the fast path does not support it.

        There is no effect yet: the caller notes the string in the ledger, and touches the entry `n`.
        """
        n: cython.Py_ssize_t = self.find(db, words)
        if n < 0:
            return None  # type: ignore[return-value]
        value: object = db.keys.object_at(n)
        if value is None or not isinstance(value, String):
            return None  # type: ignore[return-value]
        string: String = value
        if string.grown is None:
            return None
        self.n = n
        return string


__all__ = ["StringPath"]
