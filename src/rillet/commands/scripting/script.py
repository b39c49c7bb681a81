"""SCRIPT: the cache of Lua scripts, and the end of a script that runs too long (Redis: eval.c, scriptCommand)."""

from __future__ import annotations

from typing import Any

from rillet.commands.help_texts import write_help
from rillet.commands.scripting.replies import check_flush
from rillet.errors import CommandError, NoScript, NotBusy, Unkillable
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.scripting.scripts import UNKILLABLE, scripts_of

_DEBUG = "the Lua debugger is not available"


@command("script|load", arity=3, flags="noscript stale", group="scripting", since="2.6.0",
         complexity="O(N) with N being the length in bytes of the script body.", syntax="script")
def script_load(session: Session, argv: list[bytes]) -> None:
    """Cache a script, and return the SHA1 of its source."""
    session.out.bulk(scripts_of(session.engine).load(argv[2], evictable=False).sha)


@command("script|exists", arity=-3, flags="noscript", group="scripting", since="2.6.0",
         complexity="O(N) with N being the number of scripts to check.", syntax="sha1 [sha1 ...]")
def script_exists(session: Session, argv: list[bytes]) -> None:
    """Return for each SHA1 whether its script is cached."""
    scripts = session.engine.scripts
    session.out.array(len(argv) - 2)
    for sha in argv[2:]:
        session.out.integer(0 if scripts is None or scripts.find(sha) is None else 1)


@command("script|flush", arity=-2, flags="noscript", group="scripting", since="2.6.0",
         complexity="O(N) with N being the number of scripts in cache", syntax="[ASYNC | SYNC]")
def script_flush(session: Session, argv: list[bytes]) -> None:
    """Delete all scripts from the cache."""
    check_flush(argv, "SCRIPT FLUSH only support SYNC|ASYNC option")
    if session.engine.scripts is not None:
        session.engine.scripts.flush()
    session.out.ok()


@command("script|show", arity=3, flags="noscript stale", group="scripting", since="", valkey="8.0.0",
         complexity="O(1).", syntax="sha1")
def script_show(session: Session, argv: list[bytes]) -> None:
    """Return the source of a cached script."""
    scripts = session.engine.scripts
    found = None if scripts is None else scripts.find(argv[2])
    if found is None:
        raise NoScript("No matching script.")
    session.out.bulk(found.body)


@command("script|kill", arity=2, flags="noscript allow_busy", group="scripting", since="2.6.0", complexity="O(1)")
def script_kill(session: Session, argv: list[bytes]) -> None:
    """End the script that runs, unless it has written."""
    kill(session, function=False)


def kill(session: Session, *, function: bool) -> None:
    """End the running script or function (script.c: scriptKill)."""
    scripts = session.engine.scripts
    calls: Any = None if scripts is None else scripts.calls
    if calls is None or not calls.running:
        raise NotBusy("No scripts in execution right now.")
    if calls.caller.trusted:
        raise Unkillable(
            "The busy script was sent by a master instance in the context of replication and cannot be killed."
        )
    if calls.wrote:
        raise Unkillable(UNKILLABLE)
    if calls.function != function:
        raise session.engine.busy_error()
    calls.killed = True
    session.out.ok()


@command("script|debug", arity=3, flags="noscript", group="scripting", since="3.2.0", complexity="O(1)",
         syntax="<YES | SYNC | NO>")
def script_debug(session: Session, argv: list[bytes]) -> None:
    """Select whether the following scripts run in the debugger; rillet has none."""
    mode = argv[2].lower()
    if mode not in (b"yes", b"sync", b"no"):
        raise CommandError("Use SCRIPT DEBUG YES/SYNC/NO")
    if mode != b"no":
        raise CommandError(_DEBUG)
    session.out.ok()


@command("script|help", arity=2, flags="loading stale", group="scripting", since="5.0.0", complexity="O(1)")
def script_help(session: Session, argv: list[bytes]) -> None:
    """Show this help."""
    write_help(session, argv[0], "script")
