"""The commands: one declaration each in `registry`, one file for each of Redis's groups.

`load()` imports every file that declares commands, so that the table is whole before the first look-up.
"""

from __future__ import annotations

from importlib import import_module

# Files that declare commands. The stream's are split by what they do to the stream.
MODULES = (
    "connection", "generic", "expire", "object", "string", "lcs", "server", "config", "transactions", "dump", "command",
    "debug", "debug_disturb", "scripting", "acl", "pubsub", "acknowledgement",
    "list", "list_move", "set", "set_algebra",
    "zset", "zset_range", "zset_algebra", "zset_pop", "zset_scan", "hash", "hash_scan",
    "stream_write", "stream_delete", "stream_read", "stream_consume", "stream_group", "stream_claim", "stream_nack",
    "stream_info", "stream_idmp", "stream_nodes",
)  # fmt: skip


def load() -> None:
    """Import the modules that declare commands; the second call costs nothing."""
    for name in MODULES:
        import_module(f"rillet.commands.{name}")
