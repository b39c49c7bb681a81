"""HELP: the subcommands of a container, as the servers of the protocol reply them; redis-cli and suites read them.

`help_texts.txt` has the lines, which the first HELP reads:

    =CLIENT                  the container; its lines follow
     GETNAME                 a line of every server
    v   * NAME <client-name> a line of some servers, which its first character selects:

    n  since 7.2, and in Valkey     4  since 7.4     5  since 7.4, and in Valkey     o  before 7.4
    r  in Redis                     v  in Valkey

Each reply has a first and a last line that all containers share (networking.c: addReplyHelp). Tests compare the replies
with those of the servers.
"""

from __future__ import annotations

from rillet.commands.data_file import read_sections
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.types.compat import Compat


def _shown(mark: str, compat: Compat) -> bool:
    """Return whether a server has the lines of this mark."""
    if mark in "rv":
        return compat.valkey == (mark == "v")
    if mark in "45":
        return compat.knows(74) or (compat.valkey and mark == "5")
    if mark == "o":
        return not compat.knows(74) and not compat.valkey
    return mark == " " or compat.knows(72)


def _lines(container: str, compat: Compat) -> list[bytes]:
    """Return the lines of a container's help between the first line and HELP."""
    lines = read_sections("commands/help_texts.txt")[container]
    return [line[1:].encode() for line in lines if _shown(line[0], compat)]


def write_help(session: Session, word: bytes, container: str) -> None:
    """Reply with the help of a container, which the client named with `word`."""
    compat = session.engine.settings.compat
    lines = _lines(container.upper(), compat)
    session.out.array(len(lines) + 3)
    session.out.simple(word.upper() + b" <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
    for line in lines:
        session.out.simple(line)
    session.out.simple(b"HELP")
    session.out.simple(b"    Print this help." if compat.knows(72) else b"    Prints this help.")


def declare_help(container: str, group: str, since: str, valkey: str = "") -> None:
    """Declare the HELP of a container, after its other subcommands; since, valkey: the versions that introduced it."""

    @command(f"{container}|help", arity=2, flags="loading stale", group=group, since=since, complexity="O(1)",
             valkey=valkey)  # fmt: skip
    def reply_help(session: Session, argv: list[bytes]) -> None:
        """Show this help."""
        write_help(session, argv[0], container)
