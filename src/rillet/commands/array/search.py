"""ARGREP: the values of a range that match texts, globs or regular expressions (Redis: t_array.c).

    ARGREP k - +  MATCH error  GLOB "2026-*"  AND  LIMIT 10  WITHVALUES  NOCASE

Predicates and options come in any order; of options that exclude each other, the last one counts. A value must match
one predicate, or all with AND. All arguments are checked before the key is looked up.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython
from rillet.commands.arguments import integer, syntax_error
from rillet.commands.array import command
from rillet.commands.array.values import array_to_read, parse_index, write_index, write_word
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs.array.array_cursor import ArrayCursor
from rillet.structs.array.regex import compile_regex
from rillet.structs.array.regex_matcher import RegexMatcher
from rillet.structs.array.regex_parser import Backreference, RegexError
from rillet.structs.array.sparse_array import SparseArray
from rillet.structs.glob import matches
from rillet.types.array import Array

if cython.compiled:
    from cython.cimports.libc.string import memchr, memcmp

MOST_PREDICATES = 250
LONGEST_REGEX = 2048
_EXACT = cython.declare(cython.int, 0)
_MATCH = cython.declare(cython.int, 1)
_GLOB = cython.declare(cython.int, 2)
_KINDS = {b"exact": 0, b"match": 1, b"glob": 2, b"re": 3}
_REGEX = 3
_LONG = cython.declare(cython.Py_ssize_t, 256)  # bytes of a value from which a search has a worst case that matters


@cython.final
@cython.cclass
class Predicates:
    """The predicates of an ARGREP; `words` are (kind, what the arguments say), `tests` the same, compiled."""

    __slots__ = ("all", "fold", "limit", "tests", "with_values", "words", "_kind", "_text")
    words: list[Any]
    tests: list[Any]
    _kind: cython.int  # of the only predicate, -1 if there are several
    _text: bytes  # of the only predicate, if it is EXACT or MATCH
    all: cython.bint
    fold: cython.bint
    with_values: cython.bint
    limit: cython.longlong

    def __init__(self, argv: list[bytes]) -> None:
        """Parse the arguments from argv[4] on (arGrepParsePlanOrReply)."""
        self.all = self.fold = self.with_values = False
        self.limit = 0
        self.words = []
        at = 4
        while at < len(argv):
            word = argv[at].lower()
            last = at + 1 == len(argv)
            if word in _KINDS or word == b"limit":
                if last:
                    raise syntax_error()
                if word == b"limit":
                    self._limit(argv[at + 1])
                else:
                    self._add(_KINDS[word], argv[at + 1])
                at += 2
                continue
            if word == b"withvalues":
                self.with_values = True
            elif word == b"nocase":
                self.fold = True
            elif word in (b"and", b"or"):
                self.all = word == b"and"
            else:
                raise syntax_error()
            at += 1
        if not self.words:
            raise syntax_error()
        self.tests = [(kind, _test(kind, pattern, self.fold)) for kind, pattern in self.words]
        self._kind, text = self.tests[0] if len(self.tests) == 1 else (-1, b"")
        self._text = text if isinstance(text, bytes) else b""

    def _add(self, kind: int, pattern: bytes) -> None:
        if len(self.words) >= MOST_PREDICATES:
            raise CommandError(f"too many predicates, maximum is {MOST_PREDICATES}")
        if kind == _REGEX and len(pattern) > LONGEST_REGEX:
            raise CommandError(f"regular expression is too long, maximum is {LONGEST_REGEX} bytes")
        self.words.append((kind, pattern))

    def _limit(self, raw: bytes) -> None:
        most = integer(raw)
        if most <= 0:
            raise CommandError("LIMIT must be positive")
        self.limit = most

    @cython.ccall
    def match(self, value: bytes) -> cython.bint:
        """Return whether the value satisfies the predicates (arGrepValueMatches)."""
        folded: bytes = value.lower() if self.fold else value
        if self._kind == _MATCH:
            return _contains(folded, self._text)
        kind: cython.int
        found: cython.bint
        for kind, test in self.tests:
            if kind == _EXACT:
                found = folded == test
            elif kind == _MATCH:
                found = _contains(folded, test)
            elif kind == _GLOB:
                found = matches(test, value, self.fold)
            else:
                matcher: RegexMatcher = test
                found = matcher.matches(value)
            if found != self.all:
                return found
        return self.all


@cython.cfunc
def _contains(value: bytes, text: bytes) -> cython.bint:
    """Return whether a value contains a text. O(bytes), at worst their product"""
    if not cython.compiled:
        return value.find(text) >= 0  # `in` first tries an integer, and fails with an exception
    size: cython.Py_ssize_t = len(text)
    left: cython.Py_ssize_t = len(value) - size + 1  # places at which the text may begin
    if size == 0:
        return True
    p: cython.p_const_uchar = value
    q: cython.p_const_uchar = text
    found: cython.p_const_uchar
    if left > _LONG:  # Python's search is linear at worst
        return value.find(text) >= 0
    while left > 0:
        found = cython.cast(cython.p_const_uchar, memchr(p, q[0], left))
        if found == cython.NULL:
            return False
        if memcmp(found, q, size) == 0:
            return True
        left -= found - p + 1
        p = found + 1
    return False


def _test(kind: int, pattern: bytes, fold: bool) -> object:
    """Return what a value is compared with: bytes (a glob, too) or a regular expression."""
    if kind == 2:
        return pattern
    if kind != _REGEX:
        return pattern.lower() if fold else pattern
    if not pattern:
        raise CommandError("regular expression is empty")
    try:
        return compile_regex(pattern, fold)
    except RegexError as error:
        raise CommandError(f"invalid regular expression: {error}") from None
    except Backreference:
        raise CommandError("regular expression backreferences are not supported") from None


@cython.cfunc
@cython.exceptval(7777777777777777777, check=True)
def _bound(raw: bytes, array: Array | None) -> cython.ulonglong:
    """Return the index of a bound: - is 0, + is the last index of the array, 0 if that is None."""
    if raw == b"-":
        return 0
    if raw == b"+":
        return 0 if array is None else array.cells.length() - 1
    return parse_index(raw)


@command("argrep", arity=-6, flags="readonly",
         syntax="key start end EXACT string | MATCH string | GLOB pattern | RE pattern [EXACT string | MATCH string | "
         "GLOB pattern | RE pattern ...] [AND | OR | LIMIT limit | WITHVALUES | NOCASE ...]",
         complexity="O(P * C) where P is the number of visited positions in touched slices and C is the cost of "
         "evaluating the predicates on one existing element.")
def argrep(session: Session, argv: list[bytes]) -> None:
    """Reply with the indexes of the values in a range that match predicates, with the values if WITHVALUES is given."""
    _bound(argv[2], None)
    _bound(argv[3], None)
    predicates: Predicates = Predicates(argv)
    array: Array = array_to_read(session, argv[1])
    if array is None:
        session.out.array(0)
        return
    cells: SparseArray = array.cells
    cursor: ArrayCursor = ArrayCursor(cells, _bound(argv[2], array), _bound(argv[3], array))
    mark: cython.Py_ssize_t = session.out.mark()
    count: cython.longlong = 0
    while (predicates.limit == 0 or count < predicates.limit) and cursor.next():
        if not predicates.match(cells.data(cursor.word)):
            continue
        if predicates.with_values:
            session.out.array(2)
        write_index(session.out, cursor.index)
        if predicates.with_values:
            write_word(session.out, cells, cursor.word)
        count += 1
    session.out.insert_array(mark, count)
