"""The arguments of commands as the servers describe them in COMMAND DOCS: a notation, its parser, the choice of lines.

`docs_arguments.txt` has one line for each command, and further lines if the tree of another server differs by more
than options that were added:

    get key
    set key value [condition<NX | XX>@2.6.12] [GET@6.2.0] [expiration<EX:seconds@2.6.12 | KEEPTTL@6.0.0>]
      8.8 ...                from that version on
      valkey key value [condition<NX@2.6.12 | XX@2.6.12 | IFEQ:comparison-value@8.1.0>] ...

    name                   a value, whose type the name gives (`TYPES`), or `name/double`
    name#1                 a key of the second key specification, or a value that it concerns
    name"text"             a value that is displayed as `text` since 7.2
    EX:name                a value after a word
    NX, equal='='          a word, or a sign, with its name if that is not the word in lower case
    name<a b>              a block of arguments; with a word: LIMIT:limit<offset count>
    name<a | b>            a choice; of one: name<a |>
    [a]                    optional
    a...  a...+            may be repeated; together with its word
    a@6.2.0                since that version; older servers do not describe it
    a~8.2.0                since that version, which the server does not show
    a!2.8.12               deprecated since that version

Redis writes these trees by hand, one JSON file for each command. rillet's table is written by `tools/argument_table.py`
from the replies of running servers; a test compares all trees with them. The `syntax` of a declaration remains the form
for readers: it has neither the names of choices nor the differences by version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rillet.commands.data_file import read_lines
from rillet.commands.replies import ReplySet
from rillet.types.compat import Compat, level_of

TYPES = {
    "key": "key", "source": "key", "destination": "key", "destkey": "key", "newkey": "key", "pattern": "pattern",
    "longitude": "double", "latitude": "double", "radius": "double", "width": "double", "height": "double",
    "timeout": "double", "unix-time-seconds": "unix-time", "unix-time-milliseconds": "unix-time",
    **dict.fromkeys(
        ("count", "offset", "numkeys", "numfields", "cursor", "start", "stop", "end", "seconds", "milliseconds",
         "index", "increment", "limit", "weight", "slot", "start-slot", "end-slot", "port", "destination-db",
         "client-id", "numreplicas", "ttl", "frequency"), "integer",
    ),
}  # fmt: skip
"""The types of values by name; all others are strings unless the notation has a type."""

_LEXEMES = re.compile(r"[\[\]<|]|>|[^\s\[\]<>|]+")
_MARKS = r"(?P<repeat>\.\.\.\+?)?(?:@(?P<since>[\d.]+))?(?:~(?P<hidden>[\d.]+))?(?:!(?P<gone>[\d.]+))?"
_TOKEN = r"[A-Z0-9][A-Z0-9-]*|'[^']*'"
_PURE = re.compile(rf"(?:(?P<name>[a-z][\w-]*)=)?(?P<token>{_TOKEN}){_MARKS}")
_VALUE = re.compile(
    rf"(?:(?P<token>{_TOKEN}):)?(?P<name>[a-z][\w:/-]*?)"
    rf"(?:/(?P<type>string|integer|double|key|pattern|unix-time))?(?:#(?P<spec>\d+))?(?:\"(?P<text>[^\"]*)\")?{_MARKS}"
)
_MARK = re.compile(_MARKS)
_GROUPS = ("block", "oneof")


@dataclass(slots=True)
class DocumentedArgument:
    """One argument: a value, a word, a choice (oneof) or a block of arguments; the module's docstring has the marks."""

    name: str
    type: str
    token: str | None = None
    spec: int | None = None
    text: str = ""
    optional: bool = False
    multiple: bool = False
    multiple_token: bool = False
    since: str = ""
    hidden: str = ""
    deprecated: str = ""
    arguments: list[DocumentedArgument] = field(default_factory=list)


def parse(notation: str) -> list[DocumentedArgument]:
    """Return the arguments of a line of the table."""
    reader = _Reader(_LEXEMES.findall(notation))
    arguments, _ = reader.items("")
    return arguments


class _Reader:
    """Recursive-descent parser of the lexemes of a line."""

    def __init__(self, words: list[str]) -> None:
        self.words = [*words, ""]
        self.at = 0

    def _next(self) -> str:
        self.at += 1
        return self.words[self.at - 1]

    def items(self, closing: str) -> tuple[list[DocumentedArgument], bool]:
        """Parse up to the closing sign, including it; return the items, and whether they are alternatives."""
        found: list[DocumentedArgument] = []
        is_choice = False
        while (word := self._next()) != closing:
            assert word not in ("", "]", ">"), f"unbalanced notation: {' '.join(self.words)}"
            if word == "|":
                is_choice = True
            elif word == "[":
                inner, _ = self.items("]")
                assert len(inner) == 1, f"optional block without a name: {' '.join(self.words)}"
                inner[0].optional = True
                found += inner
            else:
                found.append(self._item(word))
        return found, is_choice

    def _item(self, word: str) -> DocumentedArgument:
        match = _PURE.fullmatch(word)
        if match is not None:
            one = DocumentedArgument(match["name"] or match["token"].lower(), "pure-token", match["token"].strip("'"))
        else:
            match = _VALUE.fullmatch(word)
            assert match is not None, f"cannot parse {word}"
            one = self._value(match)
        if self.words[self.at] == "<":
            self.at += 1
            one.arguments, is_choice = self.items(">")
            one.type = "oneof" if is_choice else "block"
            match = _MARK.fullmatch(self.words[self.at])  # the marks of a group are a word of their own
            if match is None or not match[0]:
                return one
            self.at += 1
        one.multiple, one.multiple_token = bool(match["repeat"]), match["repeat"] == "...+"
        one.since, one.hidden, one.deprecated = match["since"] or "", match["hidden"] or "", match["gone"] or ""
        return one

    def _value(self, match: re.Match[str]) -> DocumentedArgument:
        name, token = match["name"], match["token"]
        kind = match["type"] or TYPES.get(name, "string")
        spec = int(match["spec"]) if match["spec"] else 0 if kind == "key" else None
        return DocumentedArgument(name, kind, None if token is None else token.strip("'"), spec, match["text"] or "")


# -- the choice by version --------------------------------------------------------------------------


@lru_cache(maxsize=1)
def table() -> dict[str, dict[str, str]]:
    """Return the lines of the table: command -> server -> notation; the servers in ascending order, Valkey last."""
    found: dict[str, dict[str, str]] = {}
    name = server = ""
    for line in read_lines("commands/server/docs_arguments.txt"):
        text = line.strip()
        if not line.startswith("    "):
            head, _, text = text.partition(" ")
            name, server = (name, head) if line.startswith("  ") else (head, "7.0")
            found.setdefault(name, {})[server] = ""
        found[name][server] += text + " "
    return found


def choose(lines: dict[str, str], compat: Compat) -> tuple[str, bool]:
    """Return the line of a server, and whether it is Valkey's own, whose versions are Valkey's."""
    if compat.valkey and "valkey" in lines:
        return lines["valkey"], True
    known = [server for server in lines if server != "valkey" and compat.knows(level_of(server))]
    return (lines[known[-1]] if known else ""), False


@lru_cache(maxsize=2048)
def arguments_of(name: str, compat: Compat) -> list[DocumentedArgument] | None:
    """Return the arguments of a command in a server; None if the table lacks the command."""
    lines = table().get(name)
    if lines is None:
        return None
    notation, is_own = choose(lines, compat)
    arguments = parse(notation)
    return arguments if is_own else known_to(arguments, compat.level)


def known_to(arguments: list[DocumentedArgument], level: int) -> list[DocumentedArgument]:
    """Return the arguments that are not newer than a level of Redis."""
    known = []
    for one in arguments:
        version = one.hidden or one.since
        if version and level_of(version) > level:
            continue
        one.arguments = known_to(one.arguments, level)
        known.append(one)
    return known


def describe(arguments: list[DocumentedArgument], compat: Compat, summaries: dict[str, str]) -> list[dict[bytes, Any]]:
    """Return arguments as in COMMAND DOCS (server.c: addReplyCommandArgList); summaries: of arguments, by name."""
    described = []
    for one in arguments:
        fields: dict[bytes, Any] = {b"name": one.name.encode(), b"type": one.type.encode()}
        if one.type not in _GROUPS and compat.knows(72):
            fields[b"display_text"] = (one.text or one.name).encode()
        if one.spec is not None:
            fields[b"key_spec_index"] = one.spec
        if one.token is not None:
            fields[b"token"] = one.token.encode()
        if one.name in summaries:
            fields[b"summary"] = summaries[one.name].encode()
        if one.since:
            fields[b"since"] = one.since.encode()
        if one.deprecated:
            fields[b"deprecated_since"] = one.deprecated.encode()
        flags = ReplySet(name for name in ("optional", "multiple", "multiple_token") if getattr(one, name))
        if flags:
            fields[b"flags"] = flags
        if one.arguments:
            fields[b"arguments"] = describe(one.arguments, compat, summaries)
        described.append(fields)
    return described
