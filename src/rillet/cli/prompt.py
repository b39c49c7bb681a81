"""`rillet cli PATH|URL`: a prompt for commands, with history and completion; replies as redis-cli prints them.

    $ rillet cli events.rillet
    events.rillet> XADD orders * customer 42
    "1795435200123-0"
    events.rillet> help XADD

The TAB key completes commands and keys, and the last line shows the arguments of the command that is being typed. The
server's COMMAND DOCS has both, so they are those of its version. The arrows and ^R search the history, which is in
$XDG_STATE_HOME/rillet/history (by default ~/.local/state); commands with a password are not written to it. ^C ends a
command that waits, and ^D or `quit` the prompt. It needs prompt_toolkit: pip install 'rillet[cli]'.

Exit status: 0; 2 if the place cannot be opened.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.cli.execute import Talk, form_arguments
from rillet.cli.output import guarded, safe
from rillet.cli.places import place_arguments, talking
from rillet.cli.replies import plain
from rillet.cli.stats import without_password
from rillet.client.errors import ConnectorError
from rillet.errors import CommandError, RilletError
from rillet.extras import require
from rillet.inspector.console import command_table, split_words

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

_LEAVE = frozenset((b"quit", b"exit"))
_SECRET = ("auth", "hello", "acl setuser", "config set", "migrate")
_KEYS = 1000  # keys that one completion examines
_SHOWN = 100  # keys that it proposes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place_arguments(parser)
    form_arguments(parser)
    parser.add_argument("--create", action="store_true", help="create the directory if there is none")


def run(options: argparse.Namespace) -> int:
    """Read commands until the end of the input; return the exit status."""
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    require("cli", "rillet cli")
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise RilletError("rillet cli works on a terminal only: `rillet exec PATH|URL` reads commands from its input")
    with talking(options, create=options.create) as (connection, address):
        talk = Talk(connection, address, options)
        prompt = Prompt(talk, without_password(options.place), address.db)
        prompt.read(_session(prompt))


class Prompt:
    """The commands of a session: their table, the database, whether a transaction is open."""

    def __init__(self, talk: Talk, place: str, db: int) -> None:
        self.talk = talk
        self.place = place
        self.db = db
        self.queues = False
        try:
            self.table = {row["name"]: row for row in command_table(self)}
        except (CommandError, ConnectorError):  # the user may not run COMMAND
            self.table = {}

    def execute(self, *args: str) -> Any:
        """Run a command and return its reply; CommandError."""
        return plain(self.talk.ask(*(word.encode("utf-8", "surrogateescape") for word in args)))

    @property
    def text(self) -> str:
        """What stands before the command."""
        database = f"[{self.db}]" if self.db else ""
        return f"{self.place}{database}{'(TX)' if self.queues else ''}> "

    def read(self, session: PromptSession[str]) -> None:
        """Read and run commands until the end of the input."""
        while True:
            try:
                argv = split_words(session.prompt(lambda: self.text))
                if argv and argv[0].lower() in _LEAVE:
                    return
                if argv:
                    self.run(argv)
            except KeyboardInterrupt:  # also between the line and its command
                continue
            except EOFError:
                return
            except ValueError as error:
                print(f"rillet: {error}", file=sys.stderr)

    def run(self, argv: list[bytes]) -> None:
        """Run a command and print its reply; connect again if the connection was lost."""
        name = argv[0].lower()
        if name == b"help":
            print("\n".join(self.help(" ".join(word.decode("utf-8", "replace") for word in argv[1:]))))
            return
        if name == b"clear":
            print("\x1b[H\x1b[2J", end="", flush=True)
            return
        try:
            failed = self.talk.run(argv)
        except (KeyboardInterrupt, ConnectorError) as error:
            self.queues = False
            if isinstance(error, ConnectorError):
                print(f"rillet: {safe(str(error).removeprefix('rillet: '))}", file=sys.stderr)
            self.talk.reconnect()
            return
        if failed:
            return
        if name == b"select":
            self.db = int(argv[1])
            self.talk.select(self.db)
        elif name in (b"multi", b"exec", b"discard"):
            self.queues = name == b"multi"

    def help(self, name: str) -> Iterator[str]:
        """Yield the help on a command, or on the prompt."""
        row = self.table.get(name.lower())
        if row is None:
            if name:
                yield f"there is no command {safe(name)!r}"
            yield "help COMMAND shows a command; TAB completes; ^R searches the history; quit, exit or ^D ends"
            return
        yield f"{row['name'].upper()} {row['usage']}".rstrip()
        yield f"  {row['summary']}"
        facts = ((row["group"], "group"), (row["since"], "since"), (row["complexity"], "complexity"))
        for fact, what in facts:
            if fact:
                yield f"  {what}: {fact}"

    def usage(self, line: str) -> str:
        """Return the name and the arguments of the command that a line begins with."""
        words = line.lower().split()
        for size in (2, 1):
            row = self.table.get(" ".join(words[:size])) if len(words) >= size else None
            if row is not None and row["usage"]:
                return f"{row['name'].upper()} {row['usage']}"
        return ""

    def proposals(self, line: str) -> Iterable[tuple[str, int]]:
        """Yield what may stand at the end of a line, and how many characters of the line it replaces."""
        start = line.lstrip()
        names = [name for name in self.table if name.startswith(start.lower())] if start else list(self.table)
        if names:
            for name in names:
                yield name.upper(), -len(start)
            return
        word = start.rpartition(" ")[2]
        if self.queues or not self.usage(start) or any(mark in word for mark in "\"'"):
            return
        glob = "".join(f"\\{one}" if one in "*?[]\\^" else one for one in word)
        try:
            _, keys = self.execute("SCAN", "0", "MATCH", f"{glob}*", "COUNT", str(_KEYS))
        except (CommandError, ConnectorError):
            return
        for key in sorted(keys)[:_SHOWN]:
            text = key.decode("utf-8", "replace")
            if text.isprintable() and not any(one in text for one in " \"'\\"):
                yield text, -len(word)


def _session(prompt: Prompt) -> PromptSession[str]:
    """Return the session of prompt_toolkit: its history, completion, and the line with the arguments."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.shortcuts import CompleteStyle

    class Commands(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            for text, place in prompt.proposals(document.text_before_cursor):
                yield Completion(text, place)

    class Lines(FileHistory):
        def store_string(self, string: str) -> None:
            if not " ".join(string.lower().split()).startswith(_SECRET):
                super().store_string(string)

    history: History = InMemoryHistory()
    path = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rillet" / "history"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        history = Lines(str(path))
    except OSError:  # a home directory that cannot be written
        pass
    return PromptSession(history=history, completer=Commands(), complete_while_typing=False,
                         complete_style=CompleteStyle.READLINE_LIKE,
                         bottom_toolbar=lambda: prompt.usage(get_app().current_buffer.text))  # fmt: skip
