"""The parser of regular expressions (regex.py): a pattern becomes a tree of nodes (TRE: tre-parse.c).

    a(b|c)*        Pair(a, Repeat(Pair(b, c, union), 0, -1))

The parser is TRE's machine with a stack of steps, because the places where a group ends and flags end decide what a
pattern with surplus parentheses means. It takes O(pattern). Where TRE reads behind the end of the pattern or aborts,
the pattern is invalid here.
"""

from __future__ import annotations

from rillet.structs.array.regex_matcher import (
    AT_END,
    AT_START,
    AT_WORD_BOUNDARY,
    AT_WORD_END,
    AT_WORD_START,
    INSIDE_WORD,
)

_MOST_REPEATS = 255
_MOST_ITEMS = 2048
_INT_MAX = 2**31 - 1
_MACROS = {
    ord("t"): b"\t", ord("n"): b"\n", ord("r"): b"\r", ord("f"): b"\f", ord("a"): b"\a", ord("e"): b"\033",
    ord("w"): b"[[:alnum:]_]", ord("W"): b"[^[:alnum:]_]", ord("s"): b"[[:space:]]", ord("S"): b"[^[:space:]]",
    ord("d"): b"[[:digit:]]", ord("D"): b"[^[:digit:]]",
}  # fmt: skip
_ESCAPED_ASSERTIONS = {
    ord("b"): AT_WORD_BOUNDARY, ord("B"): INSIDE_WORD, ord("<"): AT_WORD_START, ord(">"): AT_WORD_END,
}  # fmt: skip
_UPPER = range(65, 91)
_LOWER = range(97, 123)
_DIGITS = range(48, 58)
_GRAPH = range(33, 127)
_ALPHA = {*_UPPER, *_LOWER}
_ALNUM = {*_ALPHA, *_DIGITS}
_HEX = {*_DIGITS, *range(65, 71), *range(97, 103)}
_CLASSES = {
    b"alnum": _ALNUM, b"alpha": _ALPHA, b"blank": {9, 32}, b"cntrl": {*range(32), 127}, b"digit": {*_DIGITS},
    b"graph": {*_GRAPH}, b"lower": {*_LOWER}, b"print": {32, *_GRAPH}, b"punct": {*_GRAPH} - _ALNUM,
    b"space": {*range(9, 14), 32}, b"upper": {*_UPPER}, b"xdigit": _HEX,
}  # fmt: skip
IGNORE_CASE, _NEWLINE, _RIGHT, _UNGREEDY, _LITERAL = 1, 2, 4, 8, 16
_FLAGS = {ord("i"): IGNORE_CASE, ord("n"): _NEWLINE, ord("r"): _RIGHT, ord("U"): _UNGREEDY}
Range = tuple[int, int]


class RegexError(ValueError):
    """The expression is invalid; the text is TRE's."""


class Backreference(ValueError):
    """The expression contains a back reference, which ARGREP does not support."""


BAD_PATTERN, _BAD_BRACE, _NO_BRACE = "Invalid regexp", "Invalid contents of {}", "Missing '}'"
_BAD_REPEAT, _BAD_RANGE, NO_MEMORY = "Invalid use of repetition operators", "Invalid character range", "Out of memory"


# -- the expression as a tree --------------------------------------------------------------------------


class Node:
    """A node of the tree. `grouped`: it is the content of a group."""

    __slots__ = ("grouped",)

    def __init__(self) -> None:
        self.grouped = False


class Bytes(Node):
    """One byte out of some ranges."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: list[Range]) -> None:
        super().__init__()
        self.ranges = ranges


class Empty(Node):
    """Nothing, with assertions (0 = none)."""

    __slots__ = ("assertions",)

    def __init__(self, assertions: int = 0) -> None:
        super().__init__()
        self.assertions = assertions


class Pair(Node):
    """Two nodes: one after the other, or, if `union`, alternatives."""

    __slots__ = ("left", "right", "union")

    def __init__(self, left: Node, right: Node, union: bool) -> None:
        super().__init__()
        self.left, self.right, self.union = left, right, union


class Repeat(Node):
    """A node `least` to `most` times; most -1 = without a limit."""

    __slots__ = ("least", "most", "node")

    def __init__(self, node: Node, least: int, most: int) -> None:
        super().__init__()
        self.node, self.least, self.most = node, least, most


def _upper(byte: int) -> int:
    return byte - 32 if byte in _LOWER else byte


def lower(byte: int) -> int:
    return byte + 32 if byte in _UPPER else byte


# The steps of the parser, which its stack holds (tre-parse.c: tre_parse_re_stack_symbol_t).
(_WHOLE, _ATOM, _GROUPED, _BRANCH, _PIECE, _MORE, _JOIN, _ALTERNATIVE, _UNITE, _POSTFIX, _RESTORE) = range(11)


class Parser:
    """Reads a pattern. `at`: the position; `flags`: those that apply here; `depth`: open groups."""

    def __init__(self, pattern: bytes, flags: int) -> None:
        self.pattern = pattern
        self.flags = flags
        self.at = 0
        self.end = len(pattern)
        self.groups = 0
        self.back_reference = -1
        self.approximate = False
        self.inline_flags = False
        self.depth = 0
        self._until_end_quote = False
        self._result: Node = Empty()
        self._stack: list[tuple[int, object]] = []

    def _char(self, ahead: int = 0) -> int:
        """Return a byte at or after the position, -1 behind the end."""
        return self.pattern[self.at + ahead] if self.at + ahead < self.end else -1

    def parse(self, outer: bool = True) -> Node:
        """Return the tree of the pattern; raise RegexError. outer: it is not the expansion of a macro."""
        steps = {
            _WHOLE: self._whole, _ATOM: self._atom, _GROUPED: self._group, _BRANCH: self._branch,
            _PIECE: self._piece, _MORE: self._more, _JOIN: self._join, _ALTERNATIVE: self._alternative,
            _UNITE: self._unite, _POSTFIX: self._postfix, _RESTORE: self._restore,
        }  # fmt: skip
        if outer:
            self._push(_GROUPED)
        self._push(_WHOLE)
        while self._stack:
            step, value = self._stack.pop()
            steps[step](value)
        if self.depth > 0:
            raise RegexError("Missing ')'")
        return self._result

    def _push(self, step: int, value: object = None) -> None:
        self._stack.append((step, value))

    def _whole(self, _: object) -> None:
        if not self.flags & _LITERAL:
            self._push(_ALTERNATIVE)
        self._push(_BRANCH)

    def _branch(self, _: object) -> None:
        self._push(_MORE)
        self._push(_PIECE)

    def _piece(self, _: object) -> None:
        if not self.flags & _LITERAL:
            self._push(_POSTFIX)
        self._push(_ATOM)

    def _more(self, _: object) -> None:
        """Read another piece of a branch, unless the branch ends here."""
        char = self._char()
        if char == -1:
            return
        if not self.flags & _LITERAL:
            if char == ord("|"):
                return
            if char == ord(")") and self.depth > 0:
                self.depth -= 1
                return
        self._push(_MORE)
        self._push(_JOIN, self._result)
        self._push(_PIECE)

    def _join(self, left: object) -> None:
        assert isinstance(left, Node)
        self._result = Pair(left, self._result, False)

    def _unite(self, left: object) -> None:
        assert isinstance(left, Node)
        self._result = Pair(left, self._result, True)

    def _alternative(self, _: object) -> None:
        if self.flags & _LITERAL:
            return
        if self._char() == ord("|"):
            self._push(_ALTERNATIVE)
            self._push(_UNITE, self._result)
            self._push(_BRANCH)
            self.at += 1
        elif self._char() == ord(")"):
            self.at += 1

    def _group(self, _: object) -> None:
        if self._result.grouped:
            self._result = Pair(Empty(), self._result, False)
        self._result.grouped = True

    def _restore(self, flags: object) -> None:
        assert isinstance(flags, int)
        self.flags = flags

    # -- repetition ----------------------------------------------------------------------------------

    def _postfix(self, _: object) -> None:
        char = self._char()
        if self.flags & _LITERAL or char == -1:
            return
        if char == ord("{"):
            self.at += 1
            self._brace()
            self._push(_POSTFIX)
        elif char in b"*+?":
            following = self._char(1)
            if following in (ord("*"), ord("+")):
                raise RegexError(_BAD_REPEAT)
            self.at += 2 if following == ord("?") else 1
            self._result = Repeat(self._result, int(char == ord("+")), 1 if char == ord("?") else -1)
            self._push(_POSTFIX)

    def _number(self) -> int:
        """Read a decimal number, at most INT_MAX; return -1 if there is none."""
        begin = self.at
        while self._char() in _DIGITS:
            self.at += 1
        return min(int(self.pattern[begin : self.at][:4000]), _INT_MAX) if self.at > begin else -1

    def _brace(self) -> None:
        """Read the content of a brace expression and repeat the last node (tre_parse_bound)."""
        begin = self.at
        least = most = self._number()
        if self._char() == ord(","):
            least = max(least, 0)
            self.at += 1
            most = self._number()
        if least > most >= 0:
            raise RegexError(_BAD_BRACE)
        if max(least, most) > _MOST_REPEATS:
            raise RegexError(f"Maximum repetition in {{}} larger than {_MOST_REPEATS}")
        approximate = self._parameters()
        if self.at >= self.end:
            raise RegexError(_NO_BRACE)
        if self.at == begin or self._char() != ord("}"):
            raise RegexError(_BAD_BRACE)
        self.at += 1
        if self._char() == ord("?"):
            self.at += 1
        elif self._char() in (ord("*"), ord("+")):
            raise RegexError(_BAD_REPEAT)
        self.approximate |= approximate and not least == most == 0
        if least == most == 0:
            self._result = Empty()
        elif least < 0 and most < 0:
            self._result = Repeat(self._result, 1, 1)
        else:
            self._result = Repeat(self._result, least, most)

    def _parameters(self) -> bool:
        """Read the parameters of approximate matching, which have no effect; return whether there are any."""
        counted = costed = found = False
        while True:
            begin = self.at
            if not counted:
                while self.at + 1 < self.end and self._char() in b"+-#~, ":
                    char = self._char()
                    self.at += 1
                    if char in b"+-#~":
                        self._number()
                        found = True
                        counted = counted or char != ord("~")
            if not costed:
                while self.at + 1 < self.end and self._char() in b"+ <,0123456789":
                    char = self._char()
                    if char in _DIGITS:
                        self._number()
                        if self._char() not in (ord("i"), ord("d"), ord("s")):
                            raise RegexError(_BAD_BRACE)
                        costed = found = True
                    self.at += 1
                    if char == ord("<"):
                        while self._char() == ord(" "):
                            self.at += 1
                        self._number()
                        found = True
                    elif char == ord(","):
                        break
            if self.at == begin:
                return found

    # -- atoms ---------------------------------------------------------------------------------------

    def _atom(self, _: object) -> None:
        char = self._char()
        if char == -1 or self.flags & _LITERAL:
            self._literal()
        elif char == ord("("):
            self._open()
        elif char == ord(")") and self.depth > 0:
            self._result = Empty()
        elif char == ord("["):
            self.at += 1
            self._result = Bytes(self._bracket())
        elif char == ord("\\"):
            self._escape()
        elif char == ord("."):
            self.at += 1
            self._result = Bytes([(0, 9), (11, 255)] if self.flags & _NEWLINE else [(0, 255)])
        elif char in b"^$":
            self.at += 1
            self._result = Empty(AT_START if char == ord("^") else AT_END)
        else:
            self._literal()

    def _open(self) -> None:
        """Begin a group, or read flags."""
        if self._char(1) == ord("?"):
            self._extension()
            return
        self.depth += 1
        self.at += 1
        self.groups += 1
        self._push(_GROUPED)
        self._push(_WHOLE)

    def _extension(self) -> None:
        """Read (?flags), (?flags:...) or (?#comment); the flags apply to the rest of the group."""
        flags, on = self.flags, True
        self.at += 2
        while True:
            char = self._char()
            self.at += 1
            if char in _FLAGS:
                flags = flags | _FLAGS[char] if on else flags & ~_FLAGS[char]
            elif char == ord("-"):
                on = False
            elif char == ord(":"):
                self.depth += 1
                break
            elif char == ord(")"):
                break
            elif char == ord("#"):
                close = self.pattern.find(b")", self.at)
                if close < 0:
                    raise RegexError(BAD_PATTERN)
                self.at = close + 1
                break
            else:
                raise RegexError(BAD_PATTERN)
        self.inline_flags |= flags != self.flags
        self._push(_RESTORE, self.flags)
        self._push(_WHOLE)
        self.flags = flags

    def _escape(self) -> None:
        char = self._char(1)
        if char in _MACROS:
            inner = Parser(_MACROS[char], self.flags)
            self._result = inner.parse(False)
            self.at += 2
        elif char == -1:
            raise RegexError("Trailing backslash")
        elif char == ord("Q"):
            self.flags |= _LITERAL
            self._until_end_quote = True
            self.at += 2
            self._push(_ATOM)
        elif char in _ESCAPED_ASSERTIONS:
            self._result = Empty(_ESCAPED_ASSERTIONS[char])
            self.at += 2
        elif char == ord("x"):
            self.at += 2
            self._hexadecimal()
        elif char in _DIGITS:
            self.back_reference = max(self.back_reference, char - 48)
            self._result = Empty()
            self.at += 2
        else:
            self._result = Bytes([(char, char)])
            self.at += 2

    def _hexadecimal(self) -> None:
        """Read the digits of an escaped byte; without any, it is byte 0."""
        braced = self._char() == ord("{")
        self.at += braced
        begin = self.at
        while self._char() in _HEX and self.at < begin + (8 if braced else 2):
            self.at += 1
        value = int(self.pattern[begin : self.at] or b"0", 16)
        if braced:
            if self._char() != ord("}"):
                raise RegexError(_NO_BRACE)
            self.at += 1
        if value == 0xFFFFFFFF:
            self._result = Empty()
            return
        value = ((value & 0xFFFF) ^ 0x8000) - 0x8000 if value > 255 else value
        self._result = Bytes([(value, value)])

    def _literal(self) -> None:
        quoted = bool(self.flags & _LITERAL)
        if self._until_end_quote and self.pattern[self.at : self.at + 2] == b"\\E":
            self.flags &= ~_LITERAL
            self._until_end_quote = False
            self.at += 2
            self._push(_PIECE)
            return
        char = self._char()
        if not quoted and (char == -1 or char in b"*|{+?"):
            self._result = Empty()
            return
        char = max(char, 0)  # a quote without content stands for the byte 0 behind the pattern
        self.at += 1
        if self.flags & IGNORE_CASE and char in _ALPHA:
            self._result = Bytes([(_upper(char), _upper(char)), (lower(char), lower(char))])
        else:
            self._result = Bytes([(char, char)])

    # -- bracket expressions -------------------------------------------------------------------------

    def _bracket(self) -> list[Range]:
        negated = self._char() == ord("^")
        self.at += negated
        items = self._items()
        return _negated(sorted(items, key=lambda item: item[0])) if negated else items

    def _items(self) -> list[Range]:
        """Read the ranges up to the closing bracket (tre_parse_bracket_items)."""
        items: list[Range] = []
        begin = self.at
        while True:
            char = self._char()
            if char == -1:
                raise RegexError("Missing ']'")
            if char == ord("]") and self.at > begin:
                self.at += 1
                return items
            if self._char(1) == ord("-") and self._char(2) not in (-1, ord("]")):
                low, high = char, self._char(2)
                self.at += 3
                if low > high:
                    raise RegexError(_BAD_RANGE)
            elif char == ord("[") and self._char(1) in (ord("."), ord("=")):
                raise RegexError("Unknown collating element")
            elif char == ord("[") and self._char(1) == ord(":"):
                items += self._class()
                if len(items) > _MOST_ITEMS:
                    raise RegexError(NO_MEMORY)
                continue
            else:
                if char == ord("-") and self._char(1) not in (-1, ord("]")) and self.at != begin:
                    raise RegexError(_BAD_RANGE)
                low = high = char
                self.at += 1
            items.append((low, high))
            if self.flags & IGNORE_CASE:
                items += _other_case(low, high)
            if len(items) > _MOST_ITEMS:
                raise RegexError(NO_MEMORY)

    def _class(self) -> list[Range]:
        """Read a class such as [:alpha:]."""
        end = self.pattern.find(b":", self.at + 2)
        if end < 0:
            raise RegexError("Unknown character class name")
        name = self.pattern[self.at + 2 : end][:63].split(b"\0", 1)[0]
        members = _CLASSES.get(name)
        if members is None:
            raise RegexError("Unknown character class name")
        self.at = end + 2
        if self.at > self.end:
            raise RegexError("Missing ']'")
        if self.flags & IGNORE_CASE and members & _ALPHA:
            members = members | {_upper(one) for one in members} | {lower(one) for one in members}
        return _runs(members)


def _runs(members: set[int]) -> list[Range]:
    """Return the ranges of a set of bytes."""
    runs: list[Range] = []
    for one in sorted(members):
        if runs and runs[-1][1] == one - 1:
            runs[-1] = (runs[-1][0], one)
        else:
            runs.append((one, one))
    return runs


def _other_case(low: int, high: int) -> list[Range]:
    """Return the ranges of the letters of a range in the other case."""
    found = {lower(one) if one in _UPPER else _upper(one) for one in range(low, high + 1) if one in _ALPHA}
    return _runs(found)


def _negated(items: list[Range]) -> list[Range]:
    """Return the ranges that TRE uses for the negation of sorted ranges (tre_parse_bracket)."""
    ranges: list[Range] = []
    low = high = 0
    for first, last in items:
        if first < high:  # an overlap moves `high`, but not `low`
            high = max(last + 1, high)
            continue
        if first - 1 >= low:
            ranges.append((low, first - 1))
        low = high = last + 1
    return [*ranges, (low, 255)]
