"""Glob patterns on bytes with Redis's semantics (util.c, stringmatchlen).

    *        any number of bytes          [abc]    one of these bytes          \\x   the byte x itself
    ?        exactly one byte             [a-f]    one byte of this range
                                          [^a-f]   one byte outside this range

A pattern is compared byte by byte, as it is. There is nothing to compile, and elements for which the text has no byte
are not read, so a pattern of any length costs little. Each element but the star matches exactly one byte.

    pattern   a * b c * d          at      the element of the pattern to be compared
    text      a x b c y d          place   the byte of the text to be compared
                  ^                star    the element after the last star; mark: the byte with which it is compared

The part before the first star must match at the start of the text, and the part behind the last star at its end. A
part between two stars is compared at each byte until it matches. An earlier star is never tried again: the leftmost
position of a part leaves the most room for the rest. So the cost is O(pattern * text) for any number of stars, as in
Redis (skipLongerMatches).

Quirks of Redis that are kept:
- An empty text matches only the empty pattern, not `*`.
- An unterminated class ends with the pattern.
- In `[a-]`, the range extends to `]` and the class stays open.
- In a range, bytes above 127 sort below the others, as C's signed char does.
- An escaped byte in a class is compared with its case, even if the match otherwise ignores case.
- A pattern with more than 1,000 separate stars, a final one not counted, matches no text: Redis limits its recursion.

Rejected alternatives: fnmatch (different class rules, text only); a regular expression with an atomic group for each
star, which takes seconds to compile for a pattern of 60,000 bytes, and is ten times slower than this loop compiled.
"""

from __future__ import annotations

from rillet._cython import cython

_STAR = cython.declare(cython.int, 42)
_ANY = cython.declare(cython.int, 63)
_OPEN = cython.declare(cython.int, 91)
_ESCAPE = cython.declare(cython.int, 92)
_CLOSE = cython.declare(cython.int, 93)
_NOT = cython.declare(cython.int, 94)
_DASH = cython.declare(cython.int, 45)
_NESTING = cython.declare(cython.int, 1000)


@cython.ccall
def matches(pattern: bytes, text: bytes, ignore_case: cython.bint = False) -> cython.bint:
    """Return whether the glob matches the whole text (util.c: stringmatchlen). O(pattern * text)"""
    return _match(pattern, text, len(text), ignore_case)


@cython.cfunc
def _match(
    pattern: bytes, t: cython.p_const_uchar, end: cython.Py_ssize_t, ignore_case: cython.bint
) -> cython.bint:
    """Do `matches` for a text at an address."""
    p: cython.p_const_uchar = pattern
    size: cython.Py_ssize_t = len(pattern)
    at: cython.Py_ssize_t = 0
    place: cython.Py_ssize_t = 0
    star: cython.Py_ssize_t = -1  # also if the part behind the last star may not be tried again
    mark: cython.Py_ssize_t = 0
    part: cython.Py_ssize_t
    after: cython.Py_ssize_t
    stars: cython.int = 0
    c: cython.int
    byte: cython.int
    if end == 0:
        return size == 0
    while place < end:
        if at < size:
            c = p[at]
            byte = t[place]
            at += 1
            if c == _STAR:
                while at < size and p[at] == _STAR:
                    at += 1
                stars += 1
                if at == size or stars > _NESTING:
                    return at == size
                part = _elements(p, size, at, end - place)
                if part < 0:  # the last part
                    place = end + part
                    star = -1
                elif part <= end - place:
                    star, mark = at, place
                else:
                    return False
                continue
            if c == _OPEN:
                after = _after_class(p, size, at, byte, ignore_case)
                if after > 0:
                    at = after
                    place += 1
                    continue
            else:
                if c == _ESCAPE and at < size:
                    c = p[at]
                    at += 1
                elif c == _ANY:
                    c = byte
                if c == byte or (ignore_case and _lower(c) == _lower(byte)):
                    place += 1
                    continue
        if star < 0:
            return False
        mark += 1
        place, at = mark, star
    while at < size and p[at] == _STAR:
        at += 1
    return at == size


@cython.cfunc
@cython.exceptval(check=False)
def _elements(
    p: cython.p_const_uchar, size: cython.Py_ssize_t, at: cython.Py_ssize_t, most: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the number of elements from `at` to the next star, negative if none follows; most + 1 if more. O(most)"""
    count: cython.Py_ssize_t = 0
    after: cython.Py_ssize_t
    while at < size and count <= most:
        if p[at] == _STAR:
            return count
        count += 1
        at += 1
        if p[at - 1] == _OPEN:
            after = _after_class(p, size, at, 0, False)
            at = after if after > 0 else -after
        elif p[at - 1] == _ESCAPE and at < size:
            at += 1
    return count if count > most else -count


@cython.ccall
def matching(pattern: bytes, texts: list[bytes]) -> list[bytes]:
    """Return the texts that match. O(pattern * bytes)"""
    found: list[bytes] = []
    text: bytes
    for text in texts:
        if matches(pattern, text):
            found.append(text)
    return found


@cython.ccall
def matches_any(patterns: list[bytes], text: bytes) -> cython.bint:
    """Return whether one of the patterns matches. O(patterns * text)"""
    return matches_any_at(patterns, text, len(text))


@cython.cfunc
def matches_any_at(patterns: list[bytes], text: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
    """Do `matches_any` for a text at an address."""
    pattern: bytes
    for pattern in patterns:
        if _match(pattern, text, size, False):
            return True
    return False


@cython.cfunc
@cython.exceptval(check=False)
def _after_class(
    p: cython.p_const_uchar, size: cython.Py_ssize_t, at: cython.Py_ssize_t, byte: cython.int, ignore_case: cython.bint
) -> cython.Py_ssize_t:
    """Return the position after a class such as [a-f] that begins at `at`; negative if it does not match the byte."""
    negated: cython.bint = at < size and p[at] == _NOT
    found: cython.bint = False
    low: cython.int
    high: cython.int
    if negated:
        at += 1
    while at < size:
        if p[at] == _ESCAPE and at + 1 < size:
            at += 1
            found = found or p[at] == byte
        elif p[at] == _CLOSE:
            at += 1
            break
        elif at + 2 < size and p[at + 1] == _DASH:
            low, high = _signed(p[at]), _signed(p[at + 2])
            if low > high:
                low, high = high, low
            if ignore_case:
                found = found or _lower(low) <= _lower(_signed(byte)) <= _lower(high)
            else:
                found = found or low <= _signed(byte) <= high
            at += 2
        else:
            found = found or p[at] == byte or (ignore_case and _lower(p[at]) == _lower(byte))
        at += 1
    return -at if found == negated else at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _signed(byte: cython.int) -> cython.int:
    return byte - 256 if byte > 127 else byte


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _lower(byte: cython.int) -> cython.int:
    return byte + 32 if 65 <= byte <= 90 else byte
