"""The matcher of a regular expression: all positions that a text can have reached, byte by byte (regex.py).

    positions   0 .. n-1; the last one is the end of the expression     a set of 256 bits for each
    steps       of position p: steps[first[p]] .. steps[first[p + 1]]   target, assertions

    text   x a b d      reached before x: the first positions {a}
                        x: nothing; a: {b, c, d}, and {a} again; b: {b, c, d, a}; d: the end: it matches

An expression may begin at any byte, so the first positions are added before each byte. `seen` has the byte at which a
position was reached last, so that none is visited twice. Texts without special characters are compared as such.
(TRE: tre-match-parallel.c.)
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING

AT_START, AT_END, AT_WORD_START, AT_WORD_END, AT_WORD_BOUNDARY, INSIDE_WORD = 1, 2, 16, 32, 64, 128

_AT_START = cython.declare(cython.uint, 1)
_AT_END = cython.declare(cython.uint, 2)
_AT_WORD_START = cython.declare(cython.uint, 16)
_AT_WORD_END = cython.declare(cython.uint, 32)
_AT_WORD_BOUNDARY = cython.declare(cython.uint, 64)
_INSIDE_WORD = cython.declare(cython.uint, 128)


def _numbers(values: list[int]) -> Any:
    """Return numbers as an array of C integers; interpreted, the list."""
    if not cython.compiled:
        return values
    return bytearray(b"".join([value.to_bytes(4, "little") for value in values]))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _pointer(numbers: bytearray) -> cython.p_uint:
    """Return the address of an array of C integers; compiled only."""
    return cython.cast(cython.p_uint, PyByteArray_AS_STRING(numbers))


def bit_sets(sets: list[list[tuple[int, int]]]) -> list[int]:
    """Return each union of ranges of bytes as eight words of 32 bits."""
    words: list[int] = []
    for ranges in sets:
        bits = 0
        for low, high in ranges:
            if high >= 0 and low <= high:
                bits |= (1 << high + 1) - (1 << max(low, 0))
        bits &= (1 << 256) - 1
        words += [bits >> 32 * at & 0xFFFFFFFF for at in range(8)]
    return words


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_word(byte: cython.int) -> cython.bint:
    return 97 <= byte <= 122 or 65 <= byte <= 90 or 48 <= byte <= 57 or byte == 95


@cython.cfunc
@cython.exceptval(check=False)
def _holds(
    assertions: cython.uint, before: cython.int, after: cython.int, at: cython.Py_ssize_t
) -> cython.bint:
    """Return whether all assertions hold between two bytes (0 at the ends); `at` is the position of the second."""
    if assertions & _AT_START and at > 0:
        return False
    if assertions & _AT_END and after != 0:
        return False
    left: cython.bint = _is_word(before)
    right: cython.bint = _is_word(after)
    if assertions & _AT_WORD_START and (left or not right):
        return False
    if assertions & _AT_WORD_END and (not left or right):
        return False
    if assertions & _AT_WORD_BOUNDARY and at != 0 and after != 0 and left == right:
        return False
    return not (assertions & _INSIDE_WORD and (at == 0 or after == 0 or left != right))


@cython.final
@cython.cclass
class RegexMatcher:
    """A compiled regular expression."""

    __slots__ = (
        "_edges", "_ends", "_first", "_first_steps", "_fold", "_positions", "_sets", "_starts", "_texts",
    )  # fmt: skip
    _positions: cython.Py_ssize_t
    _texts: list[Any]
    _starts: cython.bint
    _ends: cython.bint
    _fold: cython.bint
    _sets: Any  # bytearrays of C integers; interpreted, lists
    _first_steps: Any
    _edges: Any
    _first: Any

    def __init__(self) -> None:
        self._positions = 0
        self._texts = []
        self._starts = self._ends = self._fold = False

    def use_texts(self, texts: list[bytes], starts: bool, ends: bool, fold: bool) -> None:
        """Match any of some texts, at the start and end of the value if so; fold: they are in lower case."""
        self._texts = texts
        self._starts, self._ends, self._fold = starts, ends, fold

    def use_positions(
        self, sets: list[list[tuple[int, int]]], steps: list[list[tuple[int, int]]], first: list[tuple[int, int]]
    ) -> None:
        """Match by positions: the set of bytes and the steps of each, and those of the start. The last is the end."""
        self._positions = len(sets)
        self._sets = _numbers(bit_sets(sets))
        starts, edges = [0], []
        for some in steps:
            for target, assertions in some:
                edges += [target, assertions]
            starts.append(len(edges) // 2)
        self._first_steps = _numbers(starts)
        self._edges = _numbers(edges)
        self._first = _numbers([number for place in first for number in place])

    @cython.ccall
    def matches(self, text: bytes) -> cython.bint:
        """Return whether the expression matches a part of the text. O(bytes * steps)"""
        if self._positions == 0:
            return self._matches_text(text.lower() if self._fold else text)
        if cython.compiled:
            reached: bytearray = bytearray(8 * self._positions)
            seen: bytearray = bytearray(4 * self._positions)
            return self._run(
                text, len(text), _pointer(self._sets), _pointer(self._first_steps), _pointer(self._edges),
                _pointer(self._first), len(self._first) // 8, _pointer(reached), _pointer(seen),
            )  # fmt: skip
        return self._run(text, len(text), self._sets, self._first_steps, self._edges, self._first,
                         len(self._first) // 2, [0] * (2 * self._positions), [0] * self._positions)  # fmt: skip

    @cython.cfunc
    def _matches_text(self, text: bytes) -> cython.bint:
        one: bytes
        for one in self._texts:
            if self._starts and self._ends:
                if text == one:
                    return True
            elif self._starts:
                if text.startswith(one):
                    return True
            elif self._ends:
                if text.endswith(one):
                    return True
            elif one in text:
                return True
        return False

    @cython.cfunc
    def _run(
        self, text: cython.p_const_uchar, size: cython.Py_ssize_t, sets: cython.p_uint, starts: cython.p_uint,
        edges: cython.p_uint, first: cython.p_uint, firsts: cython.Py_ssize_t, reached: cython.p_uint,
        seen: cython.p_uint,
    ) -> cython.bint:  # fmt: skip
        """Follow the positions through the text; return True as soon as the end is reached.

        reached: room for the positions before this byte and before the next one. seen: `at` + 1 of the last byte before
        which a position was reached, first 0.
        """
        final: cython.uint = self._positions - 1
        here: cython.Py_ssize_t = 0  # where the positions reached before this byte begin in `reached`
        there: cython.Py_ssize_t = self._positions
        count: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        k: cython.Py_ssize_t
        edge: cython.Py_ssize_t
        target: cython.uint
        position: cython.uint
        before: cython.int = 0
        after: cython.int
        while True:
            after = text[at] if at < size else 0
            for i in range(firsts):
                target = first[2 * i]
                if seen[target] != at + 1 and (first[2 * i + 1] == 0 or _holds(first[2 * i + 1], before, after, at)):
                    if target == final:
                        return True
                    seen[target] = at + 1
                    reached[here + count] = target
                    count += 1
            if at >= size:
                return False
            before = after
            at += 1
            after = text[at] if at < size else 0
            k = 0
            for i in range(count):
                position = reached[here + i]
                if not sets[8 * position + (before >> 5)] >> (before & 31) & 1:
                    continue
                for edge in range(starts[position], starts[position + 1]):
                    target = edges[2 * edge]
                    if seen[target] == at + 1 or (
                        edges[2 * edge + 1] != 0 and not _holds(edges[2 * edge + 1], before, after, at)
                    ):
                        continue
                    if target == final:
                        return True
                    seen[target] = at + 1
                    reached[there + k] = target
                    k += 1
            count = k
            here, there = there, here
