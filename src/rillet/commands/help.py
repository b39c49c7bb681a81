"""The HELP subcommand of containers, generated from the declarations of their subcommands.

Redis writes these texts by hand (networking.c: addReplyHelp formats them). Here they cannot contradict the arity check.
"""

from __future__ import annotations

from collections.abc import Iterable

from rillet.runtime.command_syntax import without_versions
from rillet.runtime.registry import TABLE
from rillet.runtime.session import Session


def reply_help(session: Session, container: str) -> None:
    """Reply with the syntax of the container, then two lines for each subcommand."""
    entry = TABLE.by_name[container.encode()]
    level = session.engine.settings.compat.level
    commands = [one for _, one in sorted((entry.subcommands or {}).items()) if one.level <= level]
    usages = ((f"{one.name.upper()} {without_versions(one.syntax)}".strip(), one.summary) for one in commands)
    reply_lines(session, container, usages)


def reply_lines(session: Session, name: str, topics: Iterable[tuple[str, str]]) -> None:
    """Reply with the head line and, for each (usage, summary), the usage and the summary indented by four."""
    lines = [f"{name.upper()} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    for usage, summary in topics:
        lines += [usage, f"    {summary}"]
    session.out.array(len(lines))
    for line in lines:
        session.out.simple(line.encode())
