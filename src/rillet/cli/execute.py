"""`rillet exec PATH|URL COMMAND ...`: run a command on a directory or a server, and print its reply as redis-cli does.

    rillet exec events.rillet XADD orders '*' customer 42
    rillet exec events.rillet --create XADD orders '*' customer 42     a directory that does not exist yet
    rillet exec redis://host --json XRANGE orders - +
    rillet exec events.rillet < commands.txt                           one command on each line

A directory needs no server: the process that has it open runs the command, else this one. The options of `rillet exec`
stand before the command, because every word after its name belongs to it. On a terminal the reply is printed as there
("value", (integer) 3, 1) ...), elsewhere the values alone; --raw and --no-raw choose. --json prints each reply as one
line of JSON. Lines of the input have redis-cli's quotes: "a b", "\\x00", 'a b'. SUBSCRIBE and MONITOR print until ^C.

Exit status: 0; 1 if a command was answered by an error; 2 if the place cannot be opened.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rillet.cli.output import FAILED, coloured, guarded
from rillet.cli.places import db_argument, place_arguments, talking
from rillet.cli.replies import IncomingReplies, Reply, as_json, as_lines, is_text, on_terminal, raw
from rillet.client.address import Address, NodeAddress
from rillet.client.connection import Connection
from rillet.client.protocol import pack
from rillet.errors import StoreError
from rillet.inspector.console import split_words

ERRORS = 1
_ENDLESS = frozenset((b"monitor", b"subscribe", b"psubscribe", b"ssubscribe"))
_REDIRECTIONS = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place_arguments(parser)
    _own_arguments(parser)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ...",
                        help="the command; without one, each line of the input is a command")  # fmt: skip


def _own_arguments(parser: argparse.ArgumentParser) -> None:
    form_arguments(parser)
    parser.add_argument("--create", action="store_true", help="create the directory if there is none")


def form_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose how replies are printed."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print each reply as one line of JSON")
    form.add_argument("--raw", action="store_true", default=None, help="print the values alone, as without a terminal")
    form.add_argument("--no-raw", dest="raw", action="store_false", help="print as on a terminal")


def run(options: argparse.Namespace) -> int:
    """Run the commands and print their replies; return the exit status."""
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    words = _command(options)
    if not words and sys.stdin.isatty():
        print("rillet: the command is missing: rillet exec PATH|URL COMMAND ..., or rillet cli PATH|URL for a prompt",
              file=sys.stderr)  # fmt: skip
        return FAILED
    with talking(options, create=options.create) as (connection, address):
        talk = Talk(connection, address, options)
        failed = False
        for argv in [[_bytes(word) for word in words]] if words else _lines(sys.stdin):
            failed = talk.run(argv) or failed
    return ERRORS if failed else 0


def _command(options: argparse.Namespace) -> list[str]:
    """Return the words of the command; options between PATH|URL and the command are set."""
    words, at = list(options.words), 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        at += 2 if words[at] == "--db" else 1
    own = argparse.ArgumentParser(prog="rillet exec PATH|URL", add_help=False, usage="%(prog)s [options] COMMAND ...")
    db_argument(own)
    _own_arguments(own)
    own.parse_args(words[:at], options)
    return words[at + 1 :] if words[at : at + 1] == ["--"] else words[at:]


def _bytes(word: str) -> bytes:
    return word.encode("utf-8", "surrogateescape")


def _lines(source: Iterable[str]) -> Iterator[list[bytes]]:
    for number, line in enumerate(source, 1):
        try:
            argv = split_words(line)
        except ValueError as error:
            raise StoreError(f"line {number} of the input: {error}") from None
        if argv:
            yield argv


class Talk:
    """Commands over one connection, and their replies on the standard output."""

    def __init__(self, connection: Connection, address: Address, options: Any) -> None:
        self.connection = connection
        self._address = address
        self._json = bool(options.json)
        self._raw = not sys.stdout.isatty() if options.raw is None else bool(options.raw)
        self._nodes: dict[NodeAddress, Connection] = {}
        self._replies = IncomingReplies()
        connection.until = math.inf  # a command may wait
        if self._json:
            self._ask(connection, [b"HELLO", b"3"])  # maps; a server before 6.0 refuses, and replies with lists

    def run(self, argv: list[bytes]) -> bool:
        """Run a command and print its reply; return whether it is an error."""
        reply = self._answered(argv)
        self._print(argv, reply)
        if argv[0].lower() in _ENDLESS and not reply.is_error:
            with suppress(KeyboardInterrupt):
                while True:
                    self._print(argv, self._next(self.connection))
        return reply.is_error

    def reconnect(self) -> None:
        """Replace a connection that was lost, or whose reply was interrupted."""
        self._replies = IncomingReplies()
        self._nodes.clear()
        self.connection.close()
        self.connection = Connection(self._address, None)
        self.connection.until = math.inf

    def select(self, db: int) -> None:
        """Note the database of the next connection."""
        self._address = replace(self._address, db=db)

    def ask(self, *argv: bytes) -> Reply:
        """Run a command and return its reply, without printing it."""
        return self._ask(self.connection, list(argv))

    def _answered(self, argv: list[bytes]) -> Reply:
        """Return the reply of the node that has the keys."""
        connection, before = self.connection, list[bytes]()
        for _ in range(_REDIRECTIONS):
            if before:
                self._ask(connection, before)
            reply = self._ask(connection, argv)
            words: list[bytes] = reply.value.split() if reply.is_error else []
            if len(words) != 3 or words[0] not in (b"MOVED", b"ASK"):
                return reply
            host, _, port = words[2].decode().rpartition(":")
            connection = self._node(NodeAddress(host or self._address.host, int(port)))
            before = [b"ASKING"] if words[0] == b"ASK" else []
            if not before:
                self.connection = connection
        return reply

    def _node(self, node: NodeAddress) -> Connection:
        if node not in self._nodes:
            self._nodes[node] = Connection(self._address.at(node), None)
        return self._nodes[node]

    def _ask(self, connection: Connection, argv: list[bytes]) -> Reply:
        connection.send(pack(*argv))
        return self._next(connection)

    def _next(self, connection: Connection) -> Reply:
        while (reply := self._replies.next()) is None:
            self._replies.feed(connection.receive_bytes())
        return reply

    def _print(self, argv: list[bytes], reply: Reply) -> None:
        if self._json:
            print(as_json(reply), flush=True)
        elif self._raw:
            sys.stdout.flush()
            sys.stdout.buffer.write(raw(reply) + b"\n")
            sys.stdout.flush()
        elif reply.kind == "$" and is_text(argv):
            print(as_lines(reply.value), flush=True)
        else:
            print(coloured(on_terminal(reply), "red") if reply.is_error else on_terminal(reply), flush=True)
