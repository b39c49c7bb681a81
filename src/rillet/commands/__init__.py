"""The commands, grouped as Redis groups them: one package for each group, one declaration for each command.

A handler registers its declaration with `runtime.registry` when its module is imported.
`load()` imports every module that declares commands, so that the table is complete before the first lookup.
"""

from __future__ import annotations

from importlib import import_module

# The modules that declare commands, by package.
MODULES = {
    "connection": ("auth", "connection", "ping", "client", "tracking", "client_admin", "monitor", "transactions"),
    "keys": ("delete", "lookup", "scan", "copy", "expire", "object", "dump", "migrate", "sort", "value_structures"),
    "string": ("get_set", "ranges", "counters", "lcs", "conditional_delete", "increx"),
    "bitmap": ("bits", "fields"),
    "array": ("elements", "ranges", "search", "ring", "info"),
    "hyperloglog": ("elements", "debug"),
    "list": ("elements", "pop", "move"),
    "set": ("members", "random_members", "operations"),
    "zset": ("members", "range", "operations", "pop", "random_members"),
    "geo": ("members", "search"),
    "hash": ("fields", "read", "random_fields", "expire", "get_set"),
    "stream": (
        "add", "delete", "range", "read", "read_group", "group", "pending", "claim", "nack", "info", "idmp",
        "bulk_read", "memory",
    ),
    "pubsub": ("pubsub",),
    "scripting": ("eval", "script", "function"),
    "acl": ("users", "inspection"),
    "server": ("info", "time", "lolwut", "persistence", "slowlog", "latency", "hotkeys", "cluster", "replication",
               "replica", "config", "introspection", "debug", "debug_load", "wait", "memory", "modules", "help"),
}


def load() -> None:
    """Import the modules that declare commands; a second call returns at once."""
    for package, names in MODULES.items():
        for name in names:
            import_module(f"rillet.commands.{package}.{name}")
