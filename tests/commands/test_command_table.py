"""COMMAND LIST, INFO, DOCS and GETKEYS, compared with the servers: all names, and the facts about each command."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rillet.commands.server import argument_trees
from rillet.commands.server.info import all_commands
from rillet.runtime import command_syntax
from rillet.types.compat import COMPATS
from tests.commands.ends import Bench
from tests.differential.wire import Redis, read
from tests.judge import PEERS, Judge
from tools import argument_table

SERVERS = tuple(PEERS)
PeerOf = Callable[[str], Judge]

# Names that rillet leaves out, with the reasons: docs/not-included.md.
VECTOR_SETS = {
    "VADD", "VCARD", "VDIM", "VEMB", "VGETATTR", "VINFO", "VISMEMBER", "VLINKS", "VRANDMEMBER", "VRANGE", "VREM",
    "VSETATTR", "VSIM",
}  # fmt: skip
LEFT_OUT = {
    compat: {name for name in VECTOR_SETS if COMPATS[compat].knows(84 if name == "VRANGE" else 80)}
    for compat in PEERS
}
# rillet's own commands, and those that the tested state of the newest server lacks.
OURS = {
    "rillet.shape", "rillet.xafter", "rillet.xcount", "rillet.xinfo", "rillet.xmemory", "rillet.xnodes",
    "rillet.xrank", "rillet.xretain",
}  # fmt: skip
NEWER = {"lmovem"}

COMMAND_LINES = [
    "GET k", "SET k v", "SET k v GET", "SET k v IFEQ w", "DELEX k", "DELEX k IFEQ v", "ZINTERSTORE t 99 a",
    "MSET a 1 b 2", "ZUNIONSTORE t 2 a b WEIGHTS 1 2", "EVALSHA x 1 k a", "XREADGROUP GROUP g c STREAMS a b 1 2",
    "SORT k BY w_* STORE t", "SORT k STORE a STORE b", "GEORADIUS k 1 2 3 m", "GEORADIUS k 1 2 3 m STOREDIST b",
    "MIGRATE h 1 k 0 9", 'MIGRATE h 1 "" 0 9 COPY KEYS a b', 'MIGRATE h 1 "" 0 9 AUTH KEYS KEYS a',
    'MIGRATE h 1 a 0 9 x KEYS a', 'MIGRATE h 1 "" 0 9 KEYS', "BITOP AND t a b",
    "LMPOP 2 a b LEFT", "BLMPOP 1 2 a b LEFT", "COPY a b", "RENAME a b", "PING", "NOSUCH a", "OBJECT ENCODING k",
    "MEMORY USAGE k", "XGROUP CREATE k g 0", "PUBLISH c m", "SUBSCRIBE c", "ZINTERCARD 2 a b", "LCS a b", "DEL a b c",
    "PFMERGE t a b", "BZPOPMIN a b 1", "HELLO 3", "GET", "ZUNIONSTORE t x a", "XREAD COUNT 1 STREAMS a 1",
    "SINTERSTORE t a b", "RESTORE-ASKING k 0 v", "BITFIELD k GET u8 0", "BITFIELD k SET u8 0 1", "CLUSTER KEYSLOT k",
    "GETEX k", "SMOVE a b m",
]  # fmt: skip


def _peer(peer_of: PeerOf, compat: str) -> Redis:
    return Redis(peer_of(compat).port)


@pytest.mark.parametrize("compat", SERVERS)
def test_every_name_of_the_server_exists(peer_of: PeerOf, compat: str) -> None:
    ours = {name.decode() for name in Bench(compat=compat)("COMMAND", "LIST")}
    with _peer(peer_of, compat) as server:
        theirs = {name.decode() for name in read(server.run([b"COMMAND", b"LIST"])[0])}
        count = read(server.run([b"COMMAND", b"COUNT"])[0])
    missing = theirs - ours
    assert missing == LEFT_OUT[compat]
    assert ours - theirs <= OURS | NEWER
    assert count == sum("|" not in name for name in theirs)


def _entry(reply: list[Any]) -> list[Any]:
    """Return an entry of COMMAND INFO without the order of its sets, the notes and the subcommands."""
    name, arity, flags, first, last, step, categories, tips, specs, _ = reply
    facts = [_without_notes(one) for one in specs]
    return [name, arity, sorted(flags), first, last, step, sorted(categories), tips, facts]


def _without_notes(spec: list[Any]) -> list[Any]:
    """Return a key specification without the text of `notes`, which is rillet's own."""
    return [b"notes", *spec[2:]] if spec[0] == b"notes" else spec


def test_the_documents_list_the_names_that_are_left_out() -> None:
    page = (Path(__file__).parents[2] / "docs/not-included.md").read_text()
    (row,) = re.findall(r"^\| vector sets \((.*?)\)", page, re.MULTILINE)
    assert set(row.split(", ")) == VECTOR_SETS == set().union(*LEFT_OUT.values())


@pytest.mark.parametrize("compat", SERVERS)
def test_command_info_equals_that_of_the_server(peer_of: PeerOf, compat: str) -> None:
    bench = Bench(compat=compat)
    with _peer(peer_of, compat) as server:
        names = sorted(set(bench("COMMAND", "LIST")) & set(read(server.run([b"COMMAND", b"LIST"])[0])))
        replies = server.run(*([b"COMMAND", b"INFO", name] for name in names))
    for name, reply in zip(names, replies, strict=True):
        ours, theirs = bench("COMMAND", "INFO", name)[0], read(reply)[0]
        assert _entry(ours) == _entry(theirs), name


def _fields(pairs: list[Any]) -> dict[bytes, Any]:
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


# Options of a newer version than that of the tested server.
NEWER_OPTIONS = (b"MAXCOUNT", b"MAXSIZE")


def _documented(pairs: list[Any]) -> dict[bytes, Any]:
    """Return an entry of COMMAND DOCS without rillet's own texts: summary, complexity, and the history's."""
    fields = _fields(pairs)
    for name in (b"summary", b"complexity"):
        if name in fields:
            assert fields[name]
            fields[name] = b""
    fields[b"history"] = [version for version, text in fields.get(b"history", ()) if text]
    fields[b"arguments"] = _arguments(fields.get(b"arguments", []))
    fields[b"subcommands"] = sorted(fields.get(b"subcommands", [])[::2])
    return fields


def _arguments(replies: list[Any]) -> list[list[Any]]:
    """Return arguments as pairs in the order of the reply, without the texts of their summaries."""
    rows = [_fields(reply) for reply in replies]
    return [
        [(name, _arguments(value) if name == b"arguments" else b"" if name == b"summary" else value)
         for name, value in row.items()]
        for row in rows if row.get(b"token") not in NEWER_OPTIONS
    ]  # fmt: skip


@pytest.mark.parametrize("compat", SERVERS)
def test_command_docs_equal_those_of_the_server(peer_of: PeerOf, compat: str) -> None:
    bench = Bench(compat=compat)
    with _peer(peer_of, compat) as server:
        names = sorted(set(bench("COMMAND", "LIST")) & set(read(server.run([b"COMMAND", b"LIST"])[0])))
        replies = server.run(*([b"COMMAND", b"DOCS", name] for name in names))
    different = []
    for name, reply in zip(names, replies, strict=True):
        ours, theirs = _documented(bench("COMMAND", "DOCS", name)[1]), _documented(read(reply)[1])
        if list(ours.items()) != list(theirs.items()):
            different.append((name, ours, theirs))
    assert not different


def _tokens(arguments: list[Any]) -> set[str]:
    own = {one.token.upper() for one in arguments if one.token}
    return own.union(*(_tokens(one.arguments) for one in arguments))


# The syntax names these words otherwise, or leaves them to Valkey's cluster.
OTHER_WORDS = {"migrate", "cluster|syncslots"}


def test_the_syntax_of_a_declaration_has_the_words_of_the_newest_tree() -> None:
    bench = Bench(compat="newest")
    newest, valkey = COMPATS["newest"], COMPATS["valkey"]
    different = []
    for entry in all_commands(bench.engine):
        tree = argument_trees.arguments_of(entry.fullname, newest if entry.known_to(newest) else valkey)
        if tree is not None and entry.fullname not in OTHER_WORDS:
            words = _tokens(command_syntax.parse(entry.syntax))
            if words != _tokens(tree):
                different.append((entry.fullname, words ^ _tokens(tree)))
    assert not different


def test_the_notation_is_read_as_it_was_written() -> None:
    for name, lines in argument_trees.table().items():
        for line in lines.values():
            assert argument_table.write(argument_trees.parse(line)) == line.strip(), name


@pytest.mark.parametrize("compat", SERVERS)
def test_the_keys_of_a_command_line_equal_those_of_the_server(peer_of: PeerOf, compat: str) -> None:
    bench = Bench(compat=compat)
    different = []
    with _peer(peer_of, compat) as server:
        for line in COMMAND_LINES:
            words = [word.replace('""', "").encode() for word in line.split(" ")]
            for name in (b"GETKEYS", b"GETKEYSANDFLAGS"):
                argv = [b"COMMAND", name, *words]
                ours, theirs = read(bench.run(argv)), read(server.run(argv)[0])
                if ours != theirs:
                    different.append((name, line, ours, theirs))
    assert not different


@pytest.mark.parametrize("compat", SERVERS)
def test_filters_of_command_list_select_the_same_names(peer_of: PeerOf, compat: str) -> None:
    bench = Bench(compat=compat)
    both: set[bytes] | None = None
    with _peer(peer_of, compat) as server:
        both = set(bench("COMMAND", "LIST")) & set(read(server.run([b"COMMAND", b"LIST"])[0]))
        for kind, values in (("ACLCAT", ("admin", "fast", "blocking", "connection", "keyspace", "dangerous", "nosuch")),
                             ("PATTERN", ("x*", "cluster|*", "*help")), ("MODULE", ("nosuch",))):  # fmt: skip
            for value in values:
                argv = [b"COMMAND", b"LIST", b"FILTERBY", kind.encode(), value.encode()]
                ours, theirs = set(read(bench.run(argv))), set(read(server.run(argv)[0]))
                assert ours & both == theirs & both, (kind, value)
