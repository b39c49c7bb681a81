"""The HELP subcommand of containers, generated from the declarations of their subcommands.

Redis writes these texts by hand (networking.c: addReplyHelp formats them). Generated texts cannot contradict the arity
check. `commands/stream/info.py` has the HELP of XGROUP and XINFO, with Redis's texts.
"""

from __future__ import annotations

from collections.abc import Iterable

from rillet.runtime.command_syntax import without_versions
from rillet.runtime.registry import TABLE, command
from rillet.runtime.session import Session

# Container -> its group, and the version of Redis that introduced its HELP.
_CONTAINERS = {
    "acl": ("server", "6.0.0"), "client": ("connection", "5.0.0"), "command": ("server", "5.0.0"),
    "config": ("server", "5.0.0"), "function": ("scripting", "7.0.0"), "latency": ("server", "2.8.13"),
    "memory": ("server", "4.0.0"), "module": ("server", "5.0.0"), "object": ("generic", "6.2.0"),
    "pubsub": ("pubsub", "6.2.0"), "script": ("scripting", "5.0.0"), "slowlog": ("server", "6.2.0"),
}  # fmt: skip


def _declare(container: str, group: str, since: str) -> None:
    @command(f"{container}|help", arity=2, flags="loading stale", group=group, since=since, complexity="O(1)")
    def reply_help(session: Session, argv: list[bytes]) -> None:
        """Show this help."""
        compat = session.engine.settings.compat
        subcommands = sorted((TABLE.by_name[container.encode()].subcommands or {}).items())
        reply_lines(session, container, (
            (f"{one.name.upper()} {without_versions(one.syntax)}".strip(), one.summary)
            for _, one in subcommands if one.known(compat)
        ))  # fmt: skip


for _container, (_group, _since) in _CONTAINERS.items():
    _declare(_container, _group, _since)


def reply_lines(session: Session, name: str, topics: Iterable[tuple[str, str]]) -> None:
    """Reply with a heading, and with two lines for each topic: the usage, and the indented summary."""
    lines = [f"{name.upper()} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    for usage, summary in topics:
        lines += [usage, f"    {summary}"]
    session.out.array(len(lines))
    for line in lines:
        session.out.simple(line.encode())
