"""COMMAND DOCS: what a command does and takes, as the documentation and redis-cli's hints show it (Redis: server.c).

The facts equal those of the selected server: group, versions, replacement, the tree of arguments, the versions of the
history. The sentences are rillet's own: summary, complexity, the history's texts, the summaries of arguments.

The declarations contain what does not vary. `docs_arguments.txt` has the arguments by version (`argument_trees.py`),
`docs_history.txt` the changes:

    =command
    6.2.0 text        in Redis from 7.0 on that is not older than the version, and in Valkey up to 7.2
    n 6.2.0 text      only in lists since 7.4, and in Valkey: the older tables lack it
    l 7.2.0 text      only in lists of Redis since 8.0
    r 8.4.0 text      only in Redis
    v 9.0.0 text      only in Valkey, and the version is Valkey's

The first COMMAND DOCS imports this module and reads the files, so that a start does not pay for them. Commands of
modules, and those that no server has, describe their arguments with the `syntax` of their declaration.
"""

from __future__ import annotations

from typing import Any

from rillet.commands.data_file import read_sections
from rillet.commands.replies import ReplySet, write_tree
from rillet.commands.server import argument_trees
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime import command_syntax
from rillet.runtime.registry import Command
from rillet.types.compat import NEVER, Compat, level_of

# Commands that newer ones replace: (version since when, replacement); Valkey deprecates only the first table's.
_DEPRECATED = {"cluster|slaves": ("5.0.0", "`CLUSTER REPLICAS`"), "slaveof": ("5.0.0", "`REPLICAOF`")}
_DEPRECATED_BY_REDIS = {
    "cluster|slots": ("7.0.0", "`CLUSTER SHARDS`"),
    "brpoplpush": ("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments"),
    "georadius": ("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument"),
    "georadius_ro": ("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument"),
    "georadiusbymember": ("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments"),
    "georadiusbymember_ro": ("6.2.0", "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments"),
    "getset": ("6.2.0", "`SET` with the `!GET` argument"),
    "hmset": ("4.0.0", "`HSET` with multiple field-value pairs"), "psetex": ("2.6.12", "`SET` with the `PX` argument"),
    "quit": ("7.2.0", "just closing the connection"),
    "rpoplpush": ("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments"),
    "setex": ("2.6.12", "`SET` with the `EX` argument"), "setnx": ("2.6.12", "`SET` with the `NX` argument"),
    "substr": ("2.0.0", "`GETRANGE`"), "zrangebylex": ("6.2.0", "`ZRANGE` with the `BYLEX` argument"),
    "zrangebyscore": ("6.2.0", "`ZRANGE` with the `BYSCORE` argument"),
    "zrevrange": ("6.2.0", "`ZRANGE` with the `REV` argument"),
    "zrevrangebylex": ("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments"),
    "zrevrangebyscore": ("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments"),
}  # fmt: skip
_DEPRECATED_SINCE_7_2 = ("psetex", "quit", "setex", "setnx")
_INTERNAL = frozenset(("debug", "pfdebug", "pfselftest", "replconf", "restore-asking"))


def _status(entry: Command, compat: Compat) -> dict[bytes, Any]:
    """Return the fields of a command that is deprecated or that only servers use."""
    name = entry.fullname
    found = _DEPRECATED.get(name)
    if found is None and not compat.valkey and (name not in _DEPRECATED_SINCE_7_2 or compat.knows(72)):
        found = _DEPRECATED_BY_REDIS.get(name)
    internal = name in _INTERNAL or (compat.valkey and name == "cluster|syncslots")
    flags = [flag for flag, is_set in (("deprecated", found), ("syscmd", internal)) if is_set]
    fields: dict[bytes, Any] = {b"doc_flags": ReplySet(flags)} if flags else {}
    if found is not None:
        fields |= {b"deprecated_since": found[0].encode(), b"replaced_by": found[1].encode()}
    return fields


def _since(entry: Command, compat: Compat) -> str:
    """Return the version that introduced a command; for a container, the version of its oldest subcommand."""
    since = entry.since_in(compat)
    if entry.fullname == "client|pause" and compat.knows(72):
        since = "3.0.0"  # its table was corrected
    versions = [one.since_in(compat) for one in (entry.subcommands or {}).values() if one.known_to(compat)]
    return min((since, *versions), key=lambda version: [int(part) for part in version.split(".")])


# Arguments with a sentence about them, and the same for Valkey.
_SUMMARIES = {
    "increx": {
        "saturate": "A result beyond a bound becomes the bound; without this word, the value does not change.",
        "lowerbound": "An integer with BYINT, a number with BYFLOAT.",
        "upperbound": "An integer with BYINT, a number with BYFLOAT.",
        "enx": "Set the expiry only if the key has none. Not with PERSIST.",
    },
}  # fmt: skip
_VALKEY_SUMMARIES = {"set": {"comparison-value": "Set the value only if the current one equals this one."}}
# Commands whose complexity servers do not state; XREAD's since 7.2.
_NO_COMPLEXITY = frozenset(("lolwut", "monitor", "psync", "sync"))


def _syntax_arguments(syntax: str) -> list[argument_trees.DocumentedArgument]:
    """Return the arguments of a syntax line in the form of the servers' trees."""
    return [_converted(one) for one in command_syntax.parse(syntax)]


def _converted(one: command_syntax.Argument) -> argument_trees.DocumentedArgument:
    return argument_trees.DocumentedArgument(
        one.name, one.type, one.token or None, 0 if one.type == "key" else None, optional=one.optional,
        multiple=one.multiple, since=one.since, arguments=[_converted(inner) for inner in one.arguments],
    )  # fmt: skip


def _arguments(entry: Command, compat: Compat) -> list[dict[bytes, Any]]:
    """Return the arguments of a command in a server."""
    arguments = None if entry.module else argument_trees.arguments_of(entry.fullname, compat)
    if arguments is None:
        arguments = argument_trees.known_to(_syntax_arguments(entry.syntax), NEVER if entry.module else compat.level)
    summaries = (_VALKEY_SUMMARIES if compat.valkey else _SUMMARIES).get(entry.fullname, {})
    return argument_trees.describe(arguments, compat, summaries)


def _hides_complexity(name: str, compat: Compat) -> bool:
    return name in _NO_COMPLEXITY or (name == "xread" and compat.knows(72))


def _history(name: str, compat: Compat) -> list[list[bytes]]:
    """Return the changes of a command in a server, as pairs of version and text."""
    changes = []
    for line in read_sections("commands/server/docs_history.txt").get(name, ()):
        selector, rest = (line[0], line[2:]) if line[0].isalpha() else ("", line)
        version, _, text = rest.partition(" ")
        if compat.valkey if selector == "v" else _lists(selector, version, compat):
            changes.append([version.encode(), text.encode()])
    return changes


def _lists(selector: str, version: str, compat: Compat) -> bool:
    """Return whether a server lists a change of a version of Redis."""
    if selector == "n" and not (compat.knows(74) or compat.valkey):
        return False
    if (selector in ("r", "l") and compat.valkey) or (selector == "l" and not compat.knows(80)):
        return False
    return compat.knows(level_of(version))


def _docs(entry: Command, compat: Compat) -> dict[bytes, Any]:
    """Return the documentation of a command, without parts that a server lacks (server.c: addReplyCommandDocs)."""
    texts = {
        b"summary": entry.summary, b"since": entry.since_in(compat) if entry.module else _since(entry, compat),
        b"group": entry.group,
        b"complexity": "" if _hides_complexity(entry.fullname, compat) else entry.complexity,
    }  # fmt: skip
    docs: dict[bytes, Any] = {name: text.encode() for name, text in texts.items() if text}
    if entry.module:
        docs[b"module"] = entry.module.encode()
    docs.update(_status(entry, compat))
    history = _history(entry.fullname, compat)
    if history:
        docs[b"history"] = ReplySet(history)
    arguments = _arguments(entry, compat)
    if arguments:
        docs[b"arguments"] = arguments
    subcommands = [one for one in (entry.subcommands or {}).values() if one.known_to(compat)]
    if subcommands:
        docs[b"subcommands"] = {one.fullname.encode(): _docs(one, compat) for one in subcommands}
    return docs


def write_docs(out: ReplyWriter, entries: list[Command], compat: Compat) -> None:
    """Write the documentation of commands."""
    docs = [(entry.fullname.encode(), _docs(entry, compat)) for entry in entries]  # raises ImportError before a reply
    out.map(len(docs))
    for name, fields in docs:
        out.bulk(name)
        write_tree(out, fields)
