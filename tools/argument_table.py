"""Write src/rillet/commands/server/docs_arguments.txt from the replies of running servers to COMMAND DOCS.

    RILLET_REDIS_7_2=... RILLET_REDIS_7_4=... RILLET_REDIS_8_0=... RILLET_REDIS_8_2=... \\
    RILLET_REDIS_8_6=... RILLET_NEWER_REDIS=... RILLET_VALKEY=... python -m tools.argument_table

It starts the servers of the tests, reads the argument trees, and writes a line for each command in the notation of
`argument_trees.py`. Another line follows only where the tree of a server is not that of the line before without newer
options. Run it for a new version of a server; then read the difference, and add arguments without a version to
`HIDDEN`.
"""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

from rillet.commands.data_file import END
from rillet.commands.server.argument_trees import TYPES, DocumentedArgument, choose, known_to, parse
from rillet.types.compat import COMPATS, Compat
from tests.judge import PEERS, required_binary, running_redis

OUTPUT = Path(__file__).resolve().parents[1] / "src/rillet/commands/server/docs_arguments.txt"
SERVERS = tuple(PEERS)
FIRST = {"7.0": "7.0", "7.2": "7.2", "7.4": "7.4", "8.0": "8.0", "8.2": "8.2", "8.6": "8.4", "newest": "8.8"}
"""The first version with the tree of a tested server, if an older one differs."""
# The version of arguments that servers describe without a version: command -> name of the argument -> version.
HIDDEN = {
    "bitop": {"diff": "8.2.0", "diff1": "8.2.0", "andor": "8.2.0", "one": "8.2.0"}, "hscan": {"novalues": "7.4.0"},
    "xadd": {"condition": "8.2.0", "idmp": "8.6.0"}, "xreadgroup": {"min-idle-time": "8.4.0"},
    "xtrim": {"condition": "8.2.0"},
}  # fmt: skip
# Arguments of a version that is newer than the tested server: command -> the argument before them -> their notation.
ADDED = {
    name: {"count": "[MAXCOUNT:maxcount/integer@8.10.0] [MAXSIZE:maxsize/integer@8.10.0]"}
    for name in ("xread", "xreadgroup")
}

HEAD = "# The arguments of every command: written by tools/argument_table.py in the notation of argument_trees.py."
Trees = dict[str, list[DocumentedArgument]]


def main() -> None:
    """Read the trees of all servers and write the table."""
    trees = {server: read_trees(server) for server in SERVERS}
    for name, additions in ADDED.items():
        for before, notation in additions.items():
            arguments = trees["newest"][name]
            at = [one.name for one in arguments].index(before) + 1
            arguments[at:at] = parse(notation)
    names = sorted(set().union(*trees.values()))
    lines = [line for name in names for line in _lines(name, {s: t[name] for s, t in trees.items() if name in t})]
    OUTPUT.write_text("\n".join([HEAD, *lines, END, ""]))


def read_trees(server: str) -> Trees:
    """Return the arguments of all commands and subcommands of a server, without those of its modules."""
    found: Trees = {}
    with running_redis(binary=required_binary(server)) as judge, judge.client() as client:
        _collect(client.execute_command("COMMAND", "DOCS"), found)
    return found


def _collect(reply: Any, found: Trees) -> None:
    for name, docs in _pairs(reply).items():
        fields = _pairs(docs)
        if b"module" not in fields:
            found[name.decode()] = [
                _argument(one, HIDDEN.get(name.decode(), {})) for one in fields.get(b"arguments", ())
            ]
        _collect(fields.get(b"subcommands", []), found)


def _pairs(reply: Any) -> dict[bytes, Any]:
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def _argument(reply: Any, hidden: dict[str, str]) -> DocumentedArgument:
    fields = _pairs(reply)
    flags = fields.get(b"flags", ())
    name = fields[b"name"].decode()
    token, since = fields.get(b"token"), fields.get(b"since", b"").decode()
    text = fields.get(b"display_text", b"").decode()
    return DocumentedArgument(
        name, fields[b"type"].decode(), None if token is None else token.decode(), fields.get(b"key_spec_index"),
        "" if text == name else text, b"optional" in flags, b"multiple" in flags, b"multiple_token" in flags, since,
        "" if since else hidden.get(name, ""), fields.get(b"deprecated_since", b"").decode(),
        [_argument(one, {} if name in hidden else hidden) for one in fields.get(b"arguments", ())],
    )  # fmt: skip


def _lines(name: str, trees: Trees) -> list[str]:
    """Return the lines of a command: the fewest from which each server's tree follows."""
    lines: dict[str, str] = {}
    oldest = ""
    for server in reversed([server for server in SERVERS[:-1] if server in trees]):
        compat = COMPATS[server]
        if not oldest or _seen(known_to(parse(lines[oldest]), compat.level), compat) != _seen(trees[server], compat):
            oldest = FIRST[server]
            lines = {oldest: write(trees[server]), **lines}
        else:  # the line of the newer server describes this one, too
            lines = {FIRST[server]: lines.pop(oldest), **lines}
            oldest = FIRST[server]
    first = lines.pop(oldest, "")
    lines = {"7.0": first, **lines}
    if "valkey" in trees and _of(lines, COMPATS["valkey"]) != trees["valkey"]:
        lines["valkey"] = write(trees["valkey"])
    written = []
    for server, notation in lines.items():
        head = name if server == "7.0" else f"  {server}"
        written += textwrap.wrap(f"{head} {notation}".rstrip(), 118, subsequent_indent="    ", drop_whitespace=True,
                                 break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return written


def _seen(arguments: list[DocumentedArgument], compat: Compat) -> list[DocumentedArgument]:
    """Return arguments as a server describes them: without texts before 7.2, and without versions that it hides."""
    return [
        replace(one, text=one.text if compat.knows(72) else "", hidden="", arguments=_seen(one.arguments, compat))
        for one in arguments
    ]


def _of(lines: dict[str, str], compat: Compat) -> list[DocumentedArgument]:
    notation, is_own = choose(lines, compat)
    arguments = parse(notation)
    return _seen(arguments if is_own else known_to(arguments, compat.level), compat)


# -- the notation -----------------------------------------------------------------------------------


def write(arguments: list[DocumentedArgument]) -> str:
    """Return the notation of arguments."""
    return " ".join(map(_item, arguments))


def _item(one: DocumentedArgument) -> str:
    if one.type == "pure-token":
        word = _word(one)
        text = word if one.name == word.lower() else f"{one.name}={word}"
    else:
        text = one.name if one.token is None else f"{_word(one)}:{one.name}"
    if one.type == "block":
        text += f"<{write(one.arguments)}>"
    elif one.type == "oneof":
        text += f"<{' | '.join(map(_item, one.arguments))}{' |' * (len(one.arguments) == 1)}>"
    elif one.type not in ("pure-token", TYPES.get(one.name, "string")):
        text += f"/{one.type}"
    text += "" if one.spec == (0 if one.type == "key" else None) else f"#{one.spec}"
    text += f'"{one.text}"' * bool(one.text)
    text += "..." * one.multiple + "+" * one.multiple_token
    text += f"@{one.since}" * bool(one.since) + f"~{one.hidden}" * bool(one.hidden)
    text += f"!{one.deprecated}" * bool(one.deprecated)
    return f"[{text}]" if one.optional else text


def _word(one: DocumentedArgument) -> str:
    assert one.token is not None
    return one.token if one.token[:1].isalnum() else f"'{one.token}'"


if __name__ == "__main__":
    main()
