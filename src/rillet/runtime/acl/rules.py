"""The grammar of rules: their errors, and rules that are spread over several arguments.

ACL SETUSER alice on >secret ~orders:* +@read (%R~audit:* +get)
                                              └─ one selector in two arguments: merged() joins them
"""

from __future__ import annotations

from rillet.errors import RilletError

_BLANKS = frozenset(b" \t\n\v\f\r\0")


class RuleError(RilletError):
    """A rule is invalid; `unknown_name`: because it names an unknown command or category."""

    def __init__(self, text: str, unknown_name: bool = False) -> None:
        super().__init__(text)
        self.unknown_name = unknown_name


class UnmatchedParenthesis(RuleError):
    """A selector has no closing parenthesis; `at` is the position of its first argument."""

    def __init__(self, at: int) -> None:
        super().__init__("Wrong format")
        self.at = at


def syntax() -> RuleError:
    """Return the error for a rule that has no meaning."""
    return RuleError("Syntax error")


def unknown() -> RuleError:
    """Return the error for an unknown command or category."""
    return RuleError("Unknown command or category name in ACL", unknown_name=True)


def useless_pattern(flag: str, what: str) -> RuleError:
    """Return the error for a pattern after `~*` or `&*`."""
    reset = "resetkeys" if what == "patterns" else "resetchannels"
    return RuleError(
        f"Adding a pattern after the * pattern (or the '{flag}' flag) is not valid and does not have any effect. "
        f"Try '{reset}' to start with an empty list of {what}"
    )


def c_string(raw: bytes) -> bytes:
    """Return the bytes up to the first NUL, which is what C's string functions see."""
    return raw.split(b"\0", 1)[0]


def has_blanks(raw: bytes) -> bool:
    """Return whether the text contains white space or a NUL (ACLStringHasSpaces)."""
    return not _BLANKS.isdisjoint(raw)


def merged(words: list[bytes], restarts: bool) -> list[bytes]:
    """Join the arguments of each selector; UnmatchedParenthesis (acl.c: ACLMergeSelectorArguments).

    restarts: a second opening parenthesis drops what follows the first one, as in Redis 7.0.
    """
    rules: list[bytes] = []
    selector = b""
    opened = -1
    for at, word in enumerate(words):
        if word.startswith(b"(") and not word.endswith(b")") and (restarts or opened < 0):
            selector, opened = word, at
        elif opened >= 0:
            selector += b" " + c_string(word)
            if word.endswith(b")"):
                rules.append(selector)
                opened = -1
        else:
            rules.append(word)
    if opened >= 0:
        raise UnmatchedParenthesis(opened)
    return rules
