"""The HELP subcommand of most containers; `commands/help_texts.py` has the texts."""

from __future__ import annotations

from rillet.commands.help_texts import write_help
from rillet.runtime.registry import command
from rillet.runtime.session import Session

# Container -> its group, and the version of Redis that introduced its HELP.
_CONTAINERS = {
    "acl": ("server", "6.0.0"), "commandlog": ("server", ""), "client": ("connection", "5.0.0"),
    "command": ("server", "5.0.0"), "config": ("server", "5.0.0"),
    "latency": ("server", "2.8.13"), "hotkeys": ("server", "8.6.1"), "memory": ("server", "4.0.0"),
    "module": ("server", "5.0.0"), "object": ("generic", "6.2.0"), "pubsub": ("pubsub", "6.2.0"),
    "slowlog": ("server", "6.2.0"),
}  # fmt: skip
# Version of Valkey, for containers that Redis lacks.
_VALKEY = {"commandlog": "8.1.0"}


def _declare(container: str, group: str, since: str) -> None:
    @command(f"{container}|help", arity=2, flags="loading stale", group=group, since=since, complexity="O(1)",
             valkey=_VALKEY.get(container, ""))
    def reply_help(session: Session, argv: list[bytes]) -> None:
        """Show this help."""
        write_help(session, argv[0], container)


for _container, (_group, _since) in _CONTAINERS.items():
    _declare(_container, _group, _since)
