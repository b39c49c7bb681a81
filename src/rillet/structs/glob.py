"""Glob patterns on bytes with Redis's semantics (util.c, stringmatchlen).

    *        any number of bytes          [abc]    one of these bytes          \\x   the byte x itself
    ?        exactly one byte             [a-f]    one byte of this range
                                          [^a-f]   one byte outside this range

A pattern is split at its stars into segments, in which each element matches exactly one byte. The first
segment must match at the start of the text and the last one at the end. Each segment between them matches at
its leftmost position, which leaves the most room for the rest. No backtracking is needed, so `a*a*a*a*b`
costs O(pattern * text), where the textbook recursion is exponential in the number of stars.

Quirks of Redis that are kept:
- An empty text matches only the empty pattern, not `*`.
- An unterminated class ends with the pattern.
- In `[a-]`, the range extends to `]` and the class stays open.
- In a range, bytes above 127 sort below the others, as C's signed char does.
- An escaped byte in a class is compared with its case, even if the match otherwise ignores case.
- A pattern with more than 1,000 separate stars, a final one not counted, matches no text: Redis limits its recursion.

Rejected alternatives: fnmatch (different class rules, text only), a regular expression without atomic groups
(backtracks), one search for each segment (three times slower in KEYS).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

_STAR, _ANY, _OPEN, _CLOSE, _ESCAPE, _NOT, _DASH = b"*?[]\\^-"
_ALL = frozenset(range(256))
_NESTING = 1000


def matches(pattern: bytes, text: bytes, ignore_case: bool = False) -> bool:
    """Return whether the glob matches the whole text (util.c: stringmatchlen). O(pattern * text)"""
    return compiled(pattern, ignore_case).matches(text)


@lru_cache(maxsize=256)
def compiled(pattern: bytes, ignore_case: bool = False) -> Glob:
    """Return a compiled pattern; the last 256 are cached."""
    return Glob(pattern, ignore_case)


class Glob:
    """A pattern split at its stars into segments, whose elements match one byte each."""

    __slots__ = ("pattern", "_least", "_match", "_segments")

    def __init__(self, pattern: bytes, ignore_case: bool = False) -> None:
        self.pattern = pattern
        self._segments = _parse(pattern, ignore_case)
        self._least = sum(map(len, self._segments))
        # The regular expression is compiled for the first text that is long enough to match: a pattern may be long.
        self._match: Callable[[bytes], object] | None = None
        stars = len(self._segments) - 1 - (not self._segments[-1])
        if stars > _NESTING:
            self._match = _nothing

    def matches(self, text: bytes) -> bool:
        """Return whether the whole text matches. O(pattern * text)"""
        if not text:
            return not self.pattern
        if len(text) < self._least:
            return False
        match = self._match or self._compile()
        return match(text) is not None

    def matching(self, texts: list[bytes]) -> list[bytes]:
        """Return the texts that match. O(pattern * bytes)"""
        if self._match is None and max(map(len, texts), default=0) < self._least:
            return []
        found = list(filter(self._match or self._compile(), texts))
        if b"" in found and self.pattern:
            found = [text for text in found if text]
        return found

    def _compile(self) -> Callable[[bytes], object]:
        first, *others = [b"".join(map(_expression, segment)) for segment in self._segments]
        if not others:
            whole = first
        else:
            # An atomic group keeps its leftmost match, so the search never goes back.
            between = b"".join(b"(?>.*?%b)" % segment for segment in others[:-1] if segment)
            whole = b"%b%b.*%b" % (first, between, others[-1])
        self._match = re.compile(whole, re.DOTALL).fullmatch
        self._segments = []
        return self._match


def _nothing(_text: bytes) -> object:
    return None


def _parse(pattern: bytes, ignore_case: bool) -> list[list[frozenset[int]]]:
    """Return the segments between the stars: lists of elements. An element is the set of bytes that match."""
    segments: list[list[frozenset[int]]] = [[]]
    at = 0
    while at < len(pattern):
        byte = pattern[at]
        at += 1
        if byte == _STAR:
            # Adjacent stars count as one.
            if at == 1 or segments[-1] or len(segments) == 1:
                segments.append([])
        elif byte == _ANY:
            segments[-1].append(_ALL)
        elif byte == _OPEN:
            element, at = _parse_class(pattern, at, ignore_case)
            segments[-1].append(element)
        else:
            if byte == _ESCAPE and at < len(pattern):
                byte = pattern[at]
                at += 1
            segments[-1].append(_one(byte, ignore_case))
    return segments


def _parse_class(pattern: bytes, at: int, ignore_case: bool) -> tuple[frozenset[int], int]:
    """Return the bytes that a class such as [a-f] matches, and its end; `at` is the position after its "["."""
    taken: set[int] = set()
    negated = pattern[at : at + 1] == b"^"
    at += negated
    while at < len(pattern):
        byte = pattern[at]
        left = len(pattern) - at
        if byte == _ESCAPE and left >= 2:
            taken.add(pattern[at + 1])
            at += 2
        elif byte == _CLOSE:
            at += 1
            break
        elif left >= 3 and pattern[at + 1] == _DASH:
            taken |= _range(byte, pattern[at + 2], ignore_case)
            at += 3
        else:
            taken |= _one(byte, ignore_case)
            at += 1
    return _same(_ALL - taken if negated else frozenset(taken)), at


@lru_cache(maxsize=256)
def _same(element: frozenset[int]) -> frozenset[int]:
    """Return one shared object for equal sets of bytes, because a pattern may repeat a set very often."""
    return element


@lru_cache(maxsize=256)
def _range(first: int, last: int, ignore_case: bool) -> frozenset[int]:
    low, high = sorted((_signed(first), _signed(last)))
    if ignore_case:
        low, high = _signed_lower(low), _signed_lower(high)
        return frozenset(byte for byte in range(256) if low <= _signed_lower(_signed(byte)) <= high)
    return frozenset(byte for byte in range(256) if low <= _signed(byte) <= high)


@lru_cache(maxsize=512)
def _one(byte: int, ignore_case: bool) -> frozenset[int]:
    if not ignore_case:
        return frozenset((byte,))
    return frozenset(bytes((byte,)).lower() + bytes((byte,)).upper())


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _signed_lower(value: int) -> int:
    return value + 32 if 65 <= value <= 90 else value


@lru_cache(maxsize=256)
def _expression(element: frozenset[int]) -> bytes:
    """Return a regular expression that matches one byte of the set."""
    if len(element) == 256:
        return b"."
    if not element:
        return b"(?!)"
    if len(element) == 1:
        return re.escape(bytes(element))
    return b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(element)) + b"]"
