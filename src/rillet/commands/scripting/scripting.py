"""FUNCTION and SCRIPT for a server without functions and scripts.

Redis's public test suite starts each unit with FUNCTION FLUSH; clients send SCRIPT EXISTS before EVALSHA.
"""

from __future__ import annotations

from rillet.commands.arguments import syntax_error
from rillet.errors import CommandError
from rillet.runtime.registry import command
from rillet.runtime.session import Session


def _check_flush(argv: list[bytes], message: str) -> None:
    if len(argv) > 3 or (len(argv) == 3 and argv[2].lower() not in (b"sync", b"async")):
        raise CommandError(message)


@command("function|flush", arity=-2, flags="noscript write", group="scripting", since="7.0.0", complexity="O(1)",
         syntax="[ASYNC | SYNC]")
def function_flush(session: Session, argv: list[bytes]) -> None:
    """Delete all functions; there are none."""
    _check_flush(argv, "FUNCTION FLUSH only supports SYNC|ASYNC option")
    session.dirty += 1  # Redis counts and logs a change even if there are no functions
    session.out.ok()


@command("function|list", arity=-2, flags="noscript", group="scripting", since="7.0.0", complexity="O(1)",
         syntax="[LIBRARYNAME library-name-pattern] [WITHCODE]")
def function_list(session: Session, argv: list[bytes]) -> None:
    """List the function libraries; there are none."""
    words = [word.lower() for word in argv[2:]]
    if words and words[0] not in (b"libraryname", b"withcode"):
        raise syntax_error()
    session.out.array(0)


@command("script|flush", arity=-2, flags="noscript", group="scripting", since="2.6.0", complexity="O(1)",
         syntax="[ASYNC | SYNC]")
def script_flush(session: Session, argv: list[bytes]) -> None:
    """Delete all scripts; there are none."""
    _check_flush(argv, "SCRIPT FLUSH only support SYNC|ASYNC option")
    session.out.ok()


@command("script|exists", arity=-3, flags="noscript", group="scripting", since="2.6.0",
         complexity="O(N) for N scripts", syntax="sha1 [sha1 ...]")
def script_exists(session: Session, argv: list[bytes]) -> None:
    """Return 0 for each script: there are no scripts."""
    session.out.array(len(argv) - 2)
    for _ in argv[2:]:
        session.out.integer(0)
