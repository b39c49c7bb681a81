"""The argument grammar of a command, parsed from the `syntax` of its declaration.

    key value [NX | XX] [GET] [EX seconds | PX milliseconds]

    [ ... ]        optional                              |      alternatives
    < ... >        a group                               ...    the preceding item may be repeated
    lower case     a value of that name                  other  a word or sign, sent literally
    [ ... ]@8.4.0  since that version; not shown to users of an earlier one; also < ... >@8.4.0

Redis writes this tree by hand in a JSON file for each command (src/commands/*.json). Here the line that people read is
the source, and COMMAND DOCS returns the tree:

    Argument(name="value", type="string")
    Argument(name="condition", type="oneof", optional, arguments=[nx, xx]) ...

A word followed by one value is that value with a token (EX seconds); a word followed by several values is a block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LEXEMES = re.compile(r"\.\.\.|[\[\]|<>]|@[\d.]+|[^\s\[\]|<>]+")
_SINCE = re.compile(r"(?<=[\]>])@[\d.]+")
_TYPES = {
    "key": "key", "newkey": "key", "key1": "key", "key2": "key", "source": "key", "destination": "key",
    "pattern": "pattern", "seconds": "integer", "milliseconds": "integer", "count": "integer", "index": "integer",
    "cursor": "integer", "increment": "integer", "decrement": "integer", "offset": "integer", "start": "integer",
    "end": "integer", "db": "integer", "timeout": "integer", "numreplicas": "integer", "client-id": "integer",
    "numids": "integer", "idmp-duration": "integer", "idmp-maxsize": "integer",
    "unix-time-seconds": "unix-time", "unix-time-milliseconds": "unix-time",
}  # fmt: skip


@dataclass(slots=True)
class Argument:
    """One argument: a value, a pure token, a choice (oneof) or a block of arguments."""

    name: str
    type: str
    token: str = ""
    optional: bool = False
    multiple: bool = False
    arguments: list[Argument] = field(default_factory=list)
    since: str = ""


def without_versions(syntax: str) -> str:
    """Return a syntax line without its version marks."""
    return _SINCE.sub("", syntax)


def parse(syntax: str) -> list[Argument]:
    """Return the arguments that a syntax line describes."""
    reader = _SyntaxParser(_LEXEMES.findall(syntax))
    arguments = reader.choice(())
    assert reader.at == len(reader.words), f"unbalanced syntax: {syntax}"
    return arguments


class _SyntaxParser:
    """Recursive-descent parser of the lexemes of a syntax line."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.at = 0

    def _peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def choice(self, closing: tuple[str, ...]) -> list[Argument]:
        """Parse up to a closing bracket; several alternatives become one `oneof`."""
        options = [self._sequence(closing)]
        while self._peek() == "|":
            self.at += 1
            options.append(self._sequence(closing))
        if len(options) == 1:
            return options[0]
        arguments = [_as_one(option) for option in options]
        return [Argument(arguments[0].name, "oneof", arguments=arguments)]

    def _sequence(self, closing: tuple[str, ...]) -> list[Argument]:
        found: list[Argument] = []
        while self.at < len(self.words):
            word = self._peek()
            if word == "|" or word in closing:
                break
            self.at += 1
            if word == "[":
                self._bracket(found)
            elif word == "<":
                found.append(_as_one(self.choice((">",))))
                self.at += 1
                self._version(found[-1])
            elif word == "...":
                found[-1].multiple = True
            else:
                found.append(_word(word))
        return _with_tokens(found)

    def _bracket(self, found: list[Argument]) -> None:
        """Parse an optional item; in `x [x ...]`, mark x as repeated instead."""
        inner = self.choice(("]",))
        self.at += 1
        if inner and inner[-1].multiple and len(inner) <= len(found):
            before = found[len(found) - len(inner) :]
            if [one.name for one in before] == [one.name for one in inner]:
                del found[len(found) - len(inner) :]
                repeated = _as_one(before)
                repeated.multiple = True
                found.append(repeated)
                return
        one = _as_one(inner)
        one.optional = True
        self._version(one)
        found.append(one)

    def _version(self, one: Argument) -> None:
        """Read the version mark of an item, if there is one."""
        if self._peek().startswith("@"):
            one.since = self._peek()[1:]
            self.at += 1


def _word(word: str) -> Argument:
    if word[0].islower():
        return Argument(word, _TYPES.get(word, "string"))
    return Argument(word.lower(), "pure-token", token=word)


def _with_tokens(found: list[Argument]) -> list[Argument]:
    """Join each pure token with the values after it: `EX seconds` becomes one argument with a token."""
    joined: list[Argument] = []
    at = 0
    while at < len(found):
        one = found[at]
        at += 1
        if one.type == "pure-token" and not one.optional:
            values = []
            while at < len(found) and found[at].type != "pure-token" and not found[at].optional:
                values.append(found[at])
                at += 1
            if len(values) == 1 and not values[0].token:
                values[0].token = one.token
                one = values[0]
            elif values:
                one = Argument(one.name, "block", token=one.token, arguments=values)
        joined.append(one)
    return joined


def _as_one(arguments: list[Argument]) -> Argument:
    if len(arguments) == 1:
        return arguments[0]
    return Argument(arguments[0].name if arguments else "argument", "block", arguments=arguments)
