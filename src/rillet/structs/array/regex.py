r"""Regular expressions of ARGREP: POSIX extended syntax on bytes, as Redis's library TRE reads it (Redis: deps/tre).

    .  [a-z]  [^[:digit:]]     one byte                    \w \W \s \S \d \D \t \n \r \f \a \e
    *  +  ?  {2,5}             repetition; a second ? is accepted, and means nothing here
    ( ... )  |                 group, alternatives         (?i:...)  (?i)  (?-i)  (?#comment)
    ^  $  \<  \>  \b  \B       assertions                  \x41  \x{41}  \Q...\E

Only whether a value contains a match is asked for. So an expression becomes a set of positions (one for each byte or
set of bytes in the expression, after the expansion of {n,m}) with steps between them, and `regex_matcher` follows all
possible positions at once: O(bytes * steps), whatever the expression.

    a(b|c)*d      start -> a     a -> b, c, d     b -> b, c, d     c -> b, c, d     d -> end

Each step has the assertions that hold between its two bytes. `_Part` is a piece of the expression: its first and last
positions, whether it can be empty, and the assertions of its empty match.

Quirks of TRE that are kept, because they decide what matches:

- An alternative that can be empty has the assertions of the first one that can be empty: (^|x*)a requires the start.
- A repetition of something that can be empty has its assertions even if it occurs zero times: (^)*a requires the start.
- `$` also holds before a byte 0, and `\b` at both ends of a value, whatever is there.
- In [^...], overlapping ranges can leave bytes out of the negated set: [^a-cb-e] matches d and e.
- An expression of plain texts with anchors only at its ends is compared as texts, so there `$` means the end, and
  ignoring case also applies to \x41.
- A brace expression may have parameters of approximate matching, {2~1}, which are ignored.

Where TRE reads behind the end of the pattern or aborts, the expression is invalid here. `MOST_POSITIONS` and
`MOST_STEPS` bound the memory of nested repetitions; beyond them TRE uses gigabytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rillet.structs.array.regex_matcher import AT_END, AT_START, RegexMatcher
from rillet.structs.array.regex_parser import (
    BAD_PATTERN,
    IGNORE_CASE,
    NO_MEMORY,
    Backreference,
    Bytes,
    Empty,
    Node,
    Pair,
    Parser,
    Range,
    RegexError,
    Repeat,
    lower,
)

MOST_POSITIONS = 50_000
MOST_STEPS = 500_000


# -- from the tree to positions ------------------------------------------------------------------------

Place = tuple[int, int]
"""A position, and the assertions before it (or after it)."""


@dataclass(slots=True)
class _Part:
    """A piece of the expression: its first and last positions; whether it can be empty, with these assertions."""

    nullable: bool
    first: list[Place]
    last: list[Place]
    assertions: int = 0


class _Builder:
    """Numbers the positions of a tree and collects the steps between them."""

    def __init__(self) -> None:
        self.sets: list[list[Range]] = []
        self.steps: list[dict[Place, None]] = []
        self.count = 0

    def build(self, root: Node) -> _Part:
        """Return the part of a tree. The stack replaces recursion: groups may be nested a thousand times."""
        stack: list[tuple[Node, int]] = [(root, 0)]  # a node, and how many parts it waits for; 0: not visited
        parts: list[_Part] = []
        while stack:
            node, needed = stack.pop()
            if needed:
                own = parts[-needed:]
                del parts[-needed:]
                parts.append(self._combine(node, own))
            elif isinstance(node, Pair):
                stack += [(node, 2), (node.right, 0), (node.left, 0)]
            elif isinstance(node, Repeat):
                once = node.least <= 1 and node.most <= 1
                copies = 1 if once else node.least + (1 if node.most == -1 else node.most - node.least)
                stack += [(node, copies), *[(node.node, 0)] * copies]
            elif isinstance(node, Bytes):
                parts.append(self._position(node))
            else:
                assert isinstance(node, Empty)
                parts.append(_Part(True, [], [], node.assertions))
        return parts[0]

    def _position(self, node: Bytes) -> _Part:
        if len(self.sets) >= MOST_POSITIONS:
            raise RegexError(NO_MEMORY)
        self.sets.append(node.ranges)
        self.steps.append({})
        place = [(len(self.sets) - 1, 0)]
        return _Part(False, place, place)

    def _combine(self, node: Node, parts: list[_Part]) -> _Part:
        """Return the part of a pair or a repetition, from those of its content."""
        if isinstance(node, Pair):
            return _union(*parts) if node.union else self.join(*parts)
        assert isinstance(node, Repeat)
        if node.least <= 1 and node.most <= 1:
            return self._repeated(parts[0], node.least, node.most)
        rest: _Part | None = None
        if node.most == -1:
            rest = self._repeated(parts.pop(), 0, -1)
        while len(parts) > node.least:
            copy = parts.pop()
            rest = self._repeated(copy if rest is None else self.join(copy, rest), 0, 1)
        whole: _Part | None = None
        for copy in parts:
            whole = copy if whole is None else self.join(whole, copy)
        if whole is None or rest is None:
            part = whole or rest
            assert part is not None
            return part
        return self.join(whole, rest)

    def _repeated(self, part: _Part, least: int, most: int) -> _Part:
        if most == -1:
            self._connect(part.last, part.first)
        return _Part(least == 0 or part.nullable, part.first, part.last, part.assertions if part.nullable else 0)

    def _connect(self, sources: list[Place], targets: list[Place]) -> None:
        for position, after in sources:
            steps = self.steps[position]
            before = len(steps)
            for target, assertions in targets:
                steps[(target, after | assertions)] = None
            self.count += len(steps) - before
            if self.count > MOST_STEPS:
                raise RegexError(NO_MEMORY)

    def join(self, left: _Part, right: _Part) -> _Part:
        self._connect(left.last, right.first)
        first, last = left.first, right.last
        if left.nullable:
            first = [(position, flags | left.assertions) for position, flags in right.first] + first
        if right.nullable:
            last = [(position, flags | right.assertions) for position, flags in left.last] + last
        return _Part(left.nullable and right.nullable, first, last, left.assertions | right.assertions)


def _union(left: _Part, right: _Part) -> _Part:
    """Return the part of two alternatives: its empty match is that of the first one that has any."""
    assertions = left.assertions if left.nullable else right.assertions
    return _Part(left.nullable or right.nullable, left.first + right.first, left.last + right.last, assertions)


# -- expressions of plain texts ------------------------------------------------------------------------


def _sequence(node: Node) -> list[Node]:
    """Return the nodes that follow each other."""
    found: list[Node] = []
    rest = [node]
    while rest:
        one = rest.pop()
        if isinstance(one, Pair) and not one.union:
            rest += [one.right, one.left]
        else:
            found.append(one)
    return found


def _single_byte(node: Node) -> int:
    """Return the byte of a node that is exactly one byte, else -1."""
    if isinstance(node, Bytes) and len(node.ranges) == 1:
        low, high = node.ranges[0]
        return low if low == high and 0 <= low <= 255 else -1
    return -1


def _folded_byte(node: Node) -> int:
    """Return the lower case of a node that is one letter in both cases, else -1."""
    pair: list[int] = []
    if isinstance(node, Bytes) and len(node.ranges) == 2:
        pair = [low for low, high in node.ranges if low == high and 0 <= low <= 255]
    elif isinstance(node, Pair) and node.union:
        pair = [_single_byte(node.left), _single_byte(node.right)]
    if len(pair) == 2 and -1 not in pair and lower(pair[0]) == lower(pair[1]):
        return lower(pair[0])
    return -1


def _text(node: Node, ignore_case: bool) -> bytes:
    """Return the text that a node stands for, b"" if it is not a plain text."""
    text = bytearray()
    for one in _sequence(node):
        byte = _single_byte(one)
        if byte >= 0 and ignore_case:
            byte = lower(byte)
        if byte < 0 and ignore_case:
            byte = _folded_byte(one)
        if byte < 0:
            return b""
        text.append(byte)
    return bytes(text)


def _texts(node: Node, ignore_case: bool) -> list[bytes]:
    """Return the texts of alternatives; [] if one of them is not a plain text."""
    found: list[bytes] = []
    rest = [node]
    while rest:
        one = rest.pop()
        if isinstance(one, Pair) and one.union and not (ignore_case and _folded_byte(one) >= 0):
            rest += [one.right, one.left]
            continue
        if isinstance(one, Bytes) and len(one.ranges) > 1 and not (ignore_case and _folded_byte(one) >= 0):
            rest += [Bytes([part]) for part in one.ranges]
            continue
        text = _text(one, ignore_case)
        if not text:
            return []
        found.append(text)
    return found


def _plain(tree: Node, ignore_case: bool) -> RegexMatcher | None:
    """Return the matcher of an expression of plain texts with anchors at its ends (tre_litopt_try_compile)."""
    pieces = _sequence(tree)
    starts = isinstance(pieces[0], Empty) and pieces[0].assertions == AT_START
    pieces = pieces[1:] if starts else pieces
    ends = bool(pieces) and isinstance(pieces[-1], Empty) and pieces[-1].assertions == AT_END
    pieces = pieces[:-1] if ends else pieces
    if not pieces:
        return None
    if len(pieces) == 1:
        texts = _texts(pieces[0], ignore_case)
    else:
        parts = [_text(piece, ignore_case) for piece in pieces]
        texts = [b"".join(parts)] if all(parts) else []
    if not texts:
        return None
    matcher = RegexMatcher()
    matcher.use_texts(texts, starts, ends, ignore_case)
    return matcher


@lru_cache(maxsize=64)
def compile_regex(pattern: bytes, ignore_case: bool = False) -> RegexMatcher:
    """Return a matcher of the expression; raise RegexError or Backreference. The last 64 are cached."""
    parser = Parser(pattern, IGNORE_CASE if ignore_case else 0)
    tree = parser.parse()
    if parser.back_reference >= 0:
        if parser.approximate:
            raise RegexError(BAD_PATTERN)
        if parser.back_reference > parser.groups:
            raise RegexError("Invalid back reference")
        raise Backreference
    plain = None if parser.inline_flags else _plain(tree, ignore_case)
    if plain is not None:
        return plain
    builder = _Builder()
    part = builder.build(tree)
    builder.sets.append([])
    builder.steps.append({})
    final = len(builder.sets) - 1
    whole = builder.join(part, _Part(False, [(final, 0)], [(final, 0)]))
    matcher = RegexMatcher()
    matcher.use_positions(builder.sets, [list(steps) for steps in builder.steps], whole.first)
    return matcher
